"""Each claim of docs/threat-model.md names the file that keeps it and a test that shows it.

Claims that no test of a room shows are tested here.
"""

from __future__ import annotations

import ast
import io
import re
import stat
import tarfile
import tomllib
from contextlib import ExitStack
from pathlib import Path

import pytest

import sag_research as sag
from sag_research._text import atomic_write
from sag_research.exchange import export_atif, export_jsonl, export_parquet
from sag_research.ingest._archives import opened
from sag_research.ingest._walk import find
from tests.project.named import missing
from tests.project.source import ROOT, modules

DOCUMENT = ROOT / "docs/threat-model.md"
NAMED = re.compile(r"`((?:tests|sag_research|scripts|docs)/[^`\s]+)`")


def claims(text: str) -> list[str]:
    """The rows of the document's tables."""
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    return [row for row in rows if not row.startswith(("| What", "| ---"))]


def faults(row: str) -> list[str]:
    """Say what is wrong with a row: what it names must exist."""
    named = NAMED.findall(row)
    files = [name for name in named if "::" not in name]
    tests = [name for name in named if "::" in name]
    found = [f"{name}: no such file" for name in files if not (ROOT / name).exists()]
    found += [fault for name in tests if (fault := missing(name))]
    found += (
        [] if any(name.startswith(("sag_research", "scripts")) for name in files) else ["no file"]
    )
    return found + ([] if tests else ["no test"])


def test_every_claim_names_its_file_and_its_test() -> None:
    rows = claims(DOCUMENT.read_text(encoding="utf-8"))
    assert len(rows) > 25
    assert {row: found for row in rows if (found := faults(row))} == {}


def test_a_claim_without_a_test_is_noticed() -> None:
    here = "tests/project/test_threat_model.py::test_a_claim_without_a_test_is_noticed"
    assert faults(f"| a | `sag_research/_text.py` | `{here}` |") == []
    assert faults("| a | `sag_research/_text.py` | |") == ["no test"]
    assert faults(f"| a | | `{here}` |") == ["no file"]
    assert faults(f"| a | `sag_research/gone.py` | `{here}` |") == [
        "sag_research/gone.py: no such file"
    ]
    assert faults("| a | `sag_research/_text.py` | `tests/gone.py::test_a` |")


# ---- SQL

EVIL = (
    "'; DROP VIEW runs; --", "' UNION SELECT content FROM read_text('{secret}') --", '"; x',
    "{0} {where} {size}", "%s $1 ? :a", "\\'; --", "*/ SELECT 1 /*",
)  # fmt: skip


@pytest.mark.parametrize("evil", EVIL)
def test_what_a_trajectory_says_steers_no_query(tmp_path: Path, evil: str) -> None:
    (secret := tmp_path / "secret.txt").write_text("the secret", encoding="utf-8")
    evil = evil.replace("{secret}", secret.as_posix())
    step = {"thought": evil, "action": f"cat '{evil}.py' src/a.py", "observation": evil}
    record = {"task_id": evil, "agent": evil, "model": evil, "dataset": evil, "repo": evil}
    with sag.open(tmp_path / "study") as ws:
        for outcome in ("success", "failure"):
            ws.add({**record, "steps": [step, step], "outcome": outcome, "goal": evil})
        ws.sync()
        views = ws.sql("SELECT view_name FROM duckdb_views() ORDER BY 1").rows()
        told = [ws.runs().to_csv(), repr(ws.recall([evil]).table_)]
        told += [ws.steps(run).to_csv() for run in ws.runs()["run_id"]]
        told += [str(ws.compare(by="model").table_), str(ws.info())]
        ws.export_duckdb(tmp_path / "out.duckdb")
        assert ws.runs("model = $m", {"m": evil})["model"].tolist() == [evil] * 2
        assert ws.sql("SELECT view_name FROM duckdb_views() ORDER BY 1").rows() == views
        assert ws.sql("SELECT count(*) FROM steps").rows() == [(4,)]
        assert not any("the secret" in text for text in told)
        assert ws.verify().ok


def test_no_query_installs_anything(tmp_path: Path) -> None:
    with sag.open(tmp_path / "study") as ws:
        query = "SELECT current_setting('autoinstall_known_extensions')"
        assert ws.sql(query).rows() == [(False,)]


def test_a_query_that_is_put_together_is_marked_where_it_stands() -> None:
    """Ruff refuses SQL that is put together from strings, unless the line says why it may be."""
    lint = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["ruff"][
        "lint"
    ]
    assert "S" in lint["select"]
    assert not [rule for rule in lint["ignore"] if rule.startswith("S6") and rule == "S608"]
    package = {
        where: rules for where, rules in lint["per-file-ignores"].items() if "sag_r" in where
    }
    assert not [rule for where, rules in package.items() if where[0] != "!" for rule in rules
                if "S608".startswith(rule)]  # fmt: skip


# ---- files


def test_a_file_that_is_written_again_keeps_its_readers(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"old")
    path.chmod(0o600)
    with atomic_write(path) as file:
        (beside,) = (one for one in tmp_path.iterdir() if one != path)
        assert stat.S_IMODE(beside.stat().st_mode) == 0o600
        file.write(b"new")
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"new", 0o600)


def test_a_link_is_written_through_and_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"old")
    (tmp_path / "link").symlink_to("real")
    with atomic_write(tmp_path / "link") as file:
        file.write(b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"new"


@pytest.mark.parametrize(
    "name", ["../../x", "/etc/x", "a/../../x", ".hidden", "", "\x00", "x" * 999]
)
def test_names_from_a_trajectory_are_no_paths(tmp_path: Path, name: str) -> None:
    (place := tmp_path / "deep" / "out").mkdir(parents=True)
    with sag.open(tmp_path / "study") as ws:
        step = {"action": "ls", "observation": "a"}
        ws.add({"task_id": name or "t", "agent": name, "steps": [step]})
        before = {*tmp_path.rglob("*")}
        for export in (export_atif, export_parquet):
            export(ws, place / export.__name__)
        export_jsonl(ws, place / "runs.jsonl")
        written = [path for path in {*tmp_path.rglob("*")} - before if "study" not in path.parts]
        assert written
        assert all(path.is_relative_to(place) for path in written)


def test_what_an_archive_holds_is_unpacked_where_nobody_else_looks(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        (about := tarfile.TarInfo("x/a.jsonl")).mode = 0o777
        about.size = 2
        archive.addfile(about, io.BytesIO(b"{}"))
    with ExitStack() as held:
        (one,) = opened(find([tmp_path / "a.tar"]), held)
        folder = one.path.parents[1]
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert not stat.S_IMODE(one.path.stat().st_mode) & 0o111
    assert not folder.exists()


# ---- servers


def test_every_server_listens_on_this_machine_alone() -> None:
    found = {}
    for module in modules(ROOT):
        for node in ast.walk(module.tree):
            if (
                isinstance(node, ast.Call)
                and ast.unparse(node.func).endswith(".bind")
                and node.args
            ):
                found[module.where] = ast.unparse(node.args[0])
    assert found
    addresses = [address for address in found.values() if address.startswith("(")]
    assert {address.partition(",")[0] for address in addresses} == {"('127.0.0.1'"}
