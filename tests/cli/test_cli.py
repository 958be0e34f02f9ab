"""The command line: the same verbs, honest exit codes, one JSON object, one line an error."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

STEP = {"thought": "t", "action": "cat a.py", "observation": "KeyError: 'x'"}
RUN = {"task_id": "t1", "model": "m1", "repo": "acme/a", "steps": [STEP], "outcome": "success"}


def sag(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run the real command in a process of its own."""
    environment = {k: v for k, v in os.environ.items() if k != "SAG_WORKSPACE"}
    code = "from sag_research.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=cwd, env=environment, capture_output=True, text=True, encoding="utf-8", timeout=120,
    )  # fmt: skip


def sag_json(*arguments: str, cwd: Path) -> Any:
    done = sag(*arguments, "--json", cwd=cwd)
    assert done.stdout.count("\n") == 1, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a workspace of two runs."""
    folder = tmp_path_factory.mktemp("study")
    second = RUN | {"task_id": "t2", "outcome": "failure"}
    lines = [json.dumps(RUN), json.dumps(second)]
    (folder / "runs.jsonl").write_text("\n".join(lines), encoding="utf-8")
    done = sag("ingest", "runs.jsonl", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of good and bad inputs."""
    folder = tmp_path_factory.mktemp("mixed") / "in"
    folder.mkdir()
    traj = {"environment": "acme__a-1", "trajectory": [STEP | {"response": "r", "state": "{}"}],
            "history": [], "info": {"exit_status": "submitted"}}  # fmt: skip
    big = STEP | {"observation": "x" * 1_800_000}
    (folder / "good.traj").write_text(json.dumps(traj), encoding="utf-8")
    (folder / "empty.traj").write_bytes(b"")
    (folder / "cut.traj").write_text(json.dumps(traj)[:90], encoding="utf-8")
    (folder / "other.json").write_text('{"a": 1}', encoding="utf-8")
    half = json.dumps(RUN).replace("KeyError", "half \\ud835 char")
    (folder / "half.jsonl").write_text(half, encoding="utf-8")
    (folder / "big.jsonl").write_text(json.dumps(RUN | {"steps": [big]}), encoding="utf-8")
    return folder


def test_bad_inputs_cost_themselves_only(mixed: Path) -> None:
    work = mixed.parent
    report = sag_json("ingest", "in", "-w", "w", cwd=work)
    assert report["files"] == 6
    assert report["ingested"] == 3
    assert sorted(item["path"] for item in report["rejected"]) == ["cut.traj", "empty.traj"]
    assert [item["path"] for item in report["ignored"]] == ["other.json"]
    assert all(item["reason"] for item in report["rejected"] + report["ignored"])
    total = report["ingested"] + report["duplicates"]
    assert report["files"] == total + len(report["ignored"]) + len(report["rejected"])
    again = sag("ingest", "in", "-w", "w", cwd=work)
    assert again.returncode == 3
    assert "0 ingested" in again.stdout
    before = sag_json("sources", "-w", "w", cwd=work)["sources"]
    assert len(before) == 6
    assert sag("rebuild", "-w", "w", cwd=work).returncode == 0
    assert sag_json("sources", "-w", "w", cwd=work)["sources"] == before
    flags = sag_json("sql", "SELECT count(*) FROM steps WHERE list_contains(flags, 'repaired')",
                     "-w", "w", cwd=work)  # fmt: skip
    assert flags["rows"] == [[1]]


def test_sql_json_has_columns_and_rows(study: Path) -> None:
    query = "SELECT task_id, outcome FROM runs ORDER BY 1"
    answer = sag_json("sql", query, cwd=study)
    expected = {"columns": ["task_id", "outcome"], "rows": [["t1", "success"], ["t2", "failure"]]}
    assert answer == expected


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("sql", "SELECT nope FROM runs"), 1, "DuckDB refused"),
        (("steps", "t9"), 1, "no run 't9'"),
        (("steps", "t"), 1, "may be any of 2 runs"),
        (("ingest", "missing"), 2, "missing"),
        (("info", "-w", "elsewhere"), 1, "no workspace"),
        (("fork", "t1", "--step", "9"), 2, "no step 9"),
        (("labels", "runs.jsonl"), 1, "runs.jsonl"),
    ],
)
def test_an_error_is_one_line(
    study: Path, arguments: tuple[str, ...], code: int, words: str
) -> None:
    done = sag(*arguments, cwd=study)
    assert done.returncode == code
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_debug_shows_the_traceback(study: Path) -> None:
    done = sag("--debug", "steps", "t9", cwd=study)
    assert done.returncode == 1
    assert "Traceback" in done.stderr


def test_wrong_usage_leaves_with_2(study: Path) -> None:
    assert sag("ingest", cwd=study).returncode == 2
    assert sag("nonsense", cwd=study).returncode == 2


def test_the_verbs_work(study: Path) -> None:
    assert sag_json("runs", cwd=study)["runs"][0]["task_id"] == "t1"
    assert sag_json("steps", "t1", cwd=study)["steps"][0]["action"] == "cat a.py"
    assert sag_json("info", cwd=study)["counts"]["runs"] == 2
    assert sag_json("verify", cwd=study) == {"ok": True, "runs": 3, "problems": []}
    tail = sag("tail", "--after", "0", "--once", "--json", cwd=study).stdout.splitlines()
    types = [json.loads(line)["type"] for line in tail]
    assert types.count("agent.step") == 2
    done = sag_json("graph", "t1", "-o", "graph.html", cwd=study)
    assert (study / done["path"]).stat().st_size > 100_000
    assert sag("export", "duckdb", "-o", "out.duckdb", cwd=study).returncode == 0
    assert sag("report", "-o", "report.html", cwd=study).returncode == 0
    assert sag_json("fork", "t1", "--step", "0", "-w", "sag-workspace", cwd=study)["at"] == 2


def test_labels_at_any_time(tmp_path: Path) -> None:
    (tmp_path / "r.jsonl").write_text(json.dumps(RUN | {"outcome": None}), encoding="utf-8")
    assert sag("ingest", "r.jsonl", cwd=tmp_path).returncode == 0
    (tmp_path / "l.csv").write_text("task_id,outcome\nt1,failure\n", encoding="utf-8")
    assert sag("labels", "l.csv", cwd=tmp_path).returncode == 0
    rows = sag_json("sql", "SELECT outcome FROM runs", cwd=tmp_path)["rows"]
    assert rows == [["failure"]]


def test_output_cut_short_is_no_error(study: Path) -> None:
    code = "from sag_research.cli import main; main()"
    query = "SELECT range FROM range(100000)"
    with subprocess.Popen(
        [sys.executable, "-c", code, "sql", query],
        cwd=study, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert b"Traceback" not in process.stderr.read()


def test_text_of_a_run_cannot_steer_the_terminal(tmp_path: Path) -> None:
    bad = STEP | {"action": "\x1b[2Jcat\x1b]0;title\x07 \u202ea.py"}
    run = RUN | {"steps": [bad], "model": "\x1b[31mred"}
    (tmp_path / "r.jsonl").write_text(json.dumps(run), encoding="utf-8")
    assert sag("ingest", "r.jsonl", cwd=tmp_path).returncode == 0
    for verb in (("runs",), ("steps", "t1"), ("sql", "SELECT action FROM steps")):
        out = sag(*verb, cwd=tmp_path).stdout
        assert "\x1b" not in out
        assert "\u202e" not in out


def test_numbers_are_whole_in_json(study: Path) -> None:
    query = "SELECT 1.23456789012e-9::double AS a, 'nan'::double AS b, '\\xff'::blob AS c"
    answer = sag_json("sql", query, cwd=study)
    assert answer["rows"] == [[1.23456789012e-9, "nan", "ff"]]
    assert sag_json("sql", "SELECT '294247-01-10'::timestamp AS t", cwd=study)["rows"]


@pytest.mark.parametrize("target", ["missing/x.html", ".", "runs.jsonl/x.html", "pipe"])
def test_an_output_that_cannot_be_is_one_line(study: Path, target: str) -> None:
    if target == "pipe" and not (study / "pipe").exists():
        os.mkfifo(study / "pipe")
    done = sag("report", "-o", target, cwd=study)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.stderr
    assert target != "pipe" or (study / "pipe").is_fifo()


def test_a_failed_ingest_makes_no_workspace(tmp_path: Path) -> None:
    assert sag("ingest", "missing", "-w", "new", cwd=tmp_path).returncode == 2
    assert not (tmp_path / "new").exists()
    assert sag("info", "-w", "", cwd=tmp_path).returncode == 2
    run = json.dumps({"task_id": "a", "steps": []})
    (tmp_path / "runs.jsonl").write_text(run, encoding="utf-8")
    (tmp_path / "l.csv").write_text("name,won\na,1\n", encoding="utf-8")
    (tmp_path / "l.json").write_text("{", encoding="utf-8")
    for wrong in (("--labels", "l.csv"), ("--labels", "l.json"), ("--format", "nativ")):
        result = sag("ingest", "runs.jsonl", *wrong, "-w", "new", cwd=tmp_path)
        assert result.returncode in (1, 2), result.stderr
        assert not (tmp_path / "new").exists()


def test_schema_explains_the_columns(tmp_path: Path) -> None:
    out = sag("schema", "runs", cwd=tmp_path).stdout
    assert "exit_status" in out
    assert "never the outcome" in out
    assert list(tmp_path.iterdir()) == []
