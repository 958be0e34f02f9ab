"""A study comes out the same elsewhere, and what does not is named."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sag_research.paper import build, check, init
from tests.paper.study import change, outputs, write_study

ELSEWHERE = {
    "TZ": "Asia/Tokyo", "LANG": "de_DE.UTF-8", "LC_ALL": "C", "PYTHONHASHSEED": "12345",
    "MPLBACKEND": "svg", "COLUMNS": "40", "SAG_WORKSPACE": "/nowhere",
}  # fmt: skip


def sag(*words: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "sag_research.cli", *words], cwd=cwd, capture_output=True,
        encoding="utf-8", check=False, env=os.environ | {"PYTHONUTF8": "1"} | env,
    )  # fmt: skip


def compared(folder: Path) -> dict[str, Any]:
    """Read a manifest without what is not compared."""
    read: dict[str, Any] = json.loads((folder / "results/manifest.json").read_text("utf-8"))
    del read["not_compared"]
    return read


@pytest.fixture
def built(tmp_path: Path) -> Path:
    folder = write_study(tmp_path / "study")
    build(folder)
    return folder


def test_same_bytes_in_another_folder_and_environment(built: Path, tmp_path: Path) -> None:
    other = write_study(tmp_path / "a much longer path, with ünïcode" / "and more" / "study")
    (tmp_path / "matplotlibrc").write_text("axes.facecolor: red\n", encoding="utf-8")
    done = sag("paper", "build", str(other), cwd=tmp_path, **ELSEWHERE)
    assert done.returncode == 0, done.stderr
    assert outputs(other) == outputs(built)
    for name, data in outputs(built).items():
        assert str(tmp_path).encode() not in data, name
    old, new = (
        json.loads((f / "results/manifest.json").read_text("utf-8")) for f in (built, other)
    )
    for manifest in (old, new):
        del manifest["not_compared"]
    assert old == new


def test_nothing_differs(built: Path) -> None:
    found = check(built)
    assert found.same
    assert not found.notes
    assert repr(found).endswith("no differences)")
    assert found.n_outputs == 6
    assert found.n_cells > 40
    assert {path.name for path in built.iterdir()} == {
        "analysis.py",
        "data",
        "results",
        "study.toml",
    }


def test_a_changed_label_names_table_and_cell(built: Path) -> None:
    change(built, "data/runs.jsonl", '"outcome": "success"', '"outcome": "failure"')
    found = check(built)
    told = [str(one) for one in found.differences]
    assert "data runs: runs.jsonl changed" in told
    good = [one for one in found.differences if one.name == "datasets"]
    cells = {one.what: (one.old, one.new) for one in good}
    old, new = cells["row runs, column n_success"]
    assert int(old) == int(new) + 1
    assert any(one.kind == "figure" and one.name == "reliability" for one in found.differences)
    assert not any(one.kind == "figure" and one.name == "own" for one in found.differences)


def test_a_changed_seed_is_named(built: Path) -> None:
    change(built, "study.toml", "seed = 3", "seed = 4")
    found = check(built)
    told = [str(one) for one in found.differences]
    assert told[0] == "seed study: changed: 3 → 4"
    assert any(one.startswith("table own: row 27, column drawn: ") for one in told)
    assert not any(one.startswith("table datasets") for one in told)
    assert "own file study.toml changed" in found.notes


def test_a_result_that_was_edited_by_hand_is_found(built: Path) -> None:
    path = built / "results/tables/success.tex"
    path.write_text(path.read_text("utf-8").replace("0.", "1.", 1), encoding="utf-8")
    (built / "results/figures/own.pdf").unlink()
    assert [str(one) for one in check(built).differences] == [
        "table success: tables/success.tex differs", "figure own: figures/own.pdf is missing",
    ]  # fmt: skip


def test_new_and_gone_outputs_rows_and_files(built: Path) -> None:
    text = (built / "study.toml").read_text("utf-8")
    cut = text[: text.index('[[figure]]\nname = "own"')].replace('"own"', '"newer"')
    (built / "study.toml").write_text(cut, encoding="utf-8")
    change(built, "data/runs.jsonl", '"model": "m0"', '"model": "m9"')
    (built / "data" / "extra.jsonl").write_text("", encoding="utf-8")
    told = [str(one) for one in check(built).differences]
    for line in (
        "table own: is no longer made",
        "table newer: is new",
        "figure own: is no longer made",
        "table success: row m9 is new",
        "data runs: extra.jsonl is new",
    ):
        assert line in told


def test_other_versions_are_a_note(built: Path) -> None:
    path = built / "results/manifest.json"
    manifest = json.loads(path.read_text("utf-8"))
    manifest["versions"]["numpy"] = "1.0"
    path.write_text(json.dumps(manifest), encoding="utf-8")
    found = check(built)
    assert found.same
    assert any(note.startswith("numpy 1.0 then, ") for note in found.notes)


def test_command_line(built: Path, tmp_path: Path) -> None:
    done = sag("paper", "check", str(built), cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("cells compared: no difference\n")
    change(built, "data/runs.jsonl", '"outcome": "success"', '"outcome": "failure"')
    done = sag("paper", "check", ".", "--json", cwd=built)
    assert done.returncode == 1
    told = json.loads(done.stdout)
    assert not told["same"]
    assert {one["kind"] for one in told["differences"]} == {"data", "table", "figure"}
    (built / "analysis.py").write_text("def drawn():\n    return 1 / 0\n", encoding="utf-8")
    done = sag("paper", "build", cwd=built)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("error: table 'own': analysis:drawn failed (analysis.py, line 2)")
    assert sag("paper", "init", "x", "--example", "no", cwd=tmp_path).returncode == 2


@pytest.mark.timeout(900)
@pytest.mark.parametrize("example", ["failure-prefixes", "prefixguard"])
def test_examples_come_out_the_same(example: str, tmp_path: Path) -> None:
    folder = init(tmp_path / "study", example)
    here = sag("paper", "build", ".", cwd=folder, PYTHONHASHSEED="1")
    assert here.returncode == 0, here.stderr
    there = sag("paper", "check", str(folder), cwd=tmp_path, **ELSEWHERE)
    assert there.returncode == 0, there.stdout + there.stderr
    assert "no difference" in there.stdout
    tex = (folder / "paper.tex").read_text("utf-8")
    for name, data in outputs(folder).items():
        if name.endswith(".csv"):
            columns = data.decode().partition("\n")[0].split(",")
            assert any(column == "n" or column.startswith("n_") for column in columns), name
        if name.endswith((".tex", ".pdf")):
            assert f"results/{name.rpartition('.')[0]}}}" in tex, name
