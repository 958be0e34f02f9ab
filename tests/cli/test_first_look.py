"""What who knows nothing but the README meets: counts without copies, and errors that help."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

import sag_research as sag
from sag_research._text import explained, made_folder
from sag_research.cli import sag as command_line
from sag_research.errors import QueryError, UsageError, WarehouseError, WriteError
from sag_research.exchange import InterchangeReport
from sag_research.ingest import LabelReport
from sag_research.model import Event, Run
from sag_research.warehouse._intact import NO_RIGHT, DamagedSegment
from tests.cli.test_cli import sag as in_a_process

needs_rights = pytest.mark.skipif(os.name == "nt", reason="needs rights of POSIX")


def record(task: str, action: str = "ls", outcome: str = "success") -> dict:
    step = {"action": action, "observation": ""}
    return {"task_id": task, "agent": "a", "model": "m", "steps": [step], "outcome": outcome}


@pytest.fixture
def study(tmp_path: Path) -> Path:
    with sag.open(tmp_path / "A") as ws:
        ws.add(record("t1"))
        ws.add(record("t2", outcome="failure"))
        ws.hide(ws.add(record("t3")), reason="a test")
        ws.sync()
    return tmp_path


def run(study: Path, *arguments: str) -> str:
    name, *rest = arguments
    done = CliRunner().invoke(command_line, [name, "-w", str(study / "A"), *rest])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.output


def test_counts_leave_hidden_runs_out_and_say_how_many(study: Path) -> None:
    with sag.open(study / "A") as ws:
        counts, outcomes = ws.info()["counts"], ws.info()["outcomes"]
        assert len(ws.runs()) == 3
        assert len(ws.runs("NOT hidden")) == 2
    told = (counts["runs"], counts["hidden"], counts["tasks"], counts["steps"])
    assert told == (2, 1, 2, 2)
    assert outcomes == {"failure": 1, "success": 1}
    assert "2 runs (and 1 hidden: see `sag copies`)" in run(study, "info")


def test_hidden_runs_are_marked_in_the_list(study: Path) -> None:
    lines = run(study, "runs").splitlines()
    assert [line.split()[0][:2] for line in lines if line.endswith("by hand")] == ["t3"]
    assert any(line.startswith("1 of 3 runs are hidden") for line in lines)
    without = run(study, "runs", "--where", "NOT hidden")
    assert "hidden" not in without
    assert len(without.splitlines()) == 3
    assert len(json.loads(run(study, "runs", "--json"))["runs"]) == 3


def test_a_condition_without_its_option_gets_a_hint(study: Path) -> None:
    with pytest.raises(UsageError, match="--where"):
        run(study, "runs", "outcome = 'failure'")


def test_verify_counts_runs_as_the_list_does(study: Path) -> None:
    assert ": 3 runs, and the workspace's own facts" in run(study, "verify")


def test_no_copies_are_said(tmp_path: Path) -> None:
    with sag.open(tmp_path / "A") as ws:
        ws.add(record("t1"))
    assert run(tmp_path, "copies") == "no copies; --find looks through all runs\n"
    assert run(tmp_path, "copies", "--find") == "no copies\n"


def test_each_conflict_of_a_merge_is_listed(tmp_path: Path) -> None:
    for name in ("A", "B"):
        with sag.open(tmp_path / name) as ws:
            for number in range(22):
                ws.store.create_run(Run(run_id=f"r{number}"))
                note = {"of": name}
                ws.store.append(Event(run_id=f"r{number}", type="note.taken", payload=note))
    told = run(tmp_path, "merge", str(tmp_path / "B")).splitlines()
    listed = [line for line in told if line.startswith("  conflict: r")]
    assert len(listed) == 20
    with sag.open(tmp_path / "A") as here, sag.open(tmp_path / "B") as there:
        for ws in (here, there):
            digest = ws.sql("SELECT digest FROM runs WHERE run_id = 'r0'").rows()[0][0]
            assert digest in listed[0]
    assert told[-1] == "  conflict: 22 in all; the same command with --json lists each"


def test_merge_and_import_do_not_have_one_help_line() -> None:
    lines = {name: command_line.commands[name].get_short_help_str() for name in ("merge", "import")}
    assert lines["merge"] != lines["import"]


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("SELECT format FROM runs", "format is a column of sources: see `sag schema sources`"),
        ("SELECT s.goal FROM steps s", "goal is a column of runs: see `sag schema runs`"),
        ("SELECT nope FROM runs", "no view has a column nope: see `sag schema`"),
        ("SELECT * FROM nope", "the views are runs"),
    ],
)
def test_a_query_that_is_wrong_says_where_to_look(query: str, words: str) -> None:
    with sag.open(":memory:") as ws, pytest.raises(QueryError, match=words):
        ws.sql(query)


def test_a_place_that_cannot_be_written_is_one_line_with_what_helps(study: Path) -> None:
    (study / "plain").write_text("", encoding="utf-8")
    for arguments, words in (
        (("jsonl", "-o", "none/x/y.jsonl"), "make the folder first"),
        (("jsonl", "-o", "plain/y.jsonl"), "name a file in a folder"),
        (("atif", "-o", "plain"), "it is a file"),
        (("jsonl", "-o", "."), "is a folder"),
    ):
        done = in_a_process("export", *arguments, "-w", "A", cwd=study)
        assert (done.returncode, done.stderr.count("\n")) == (1, 1)
        assert words in done.stderr
        assert "Errno" not in done.stderr
        assert ".tmp" not in done.stderr


def test_an_error_of_the_system_is_explained() -> None:
    assert explained(PermissionError(13, "Permission denied", "a")).startswith("a may not be used")
    assert explained(OSError("odd")) == "odd"
    assert "check the disk" in explained(OSError(5, "Input/output error", b"a"))


def test_a_folder_is_made_once_and_again(tmp_path: Path) -> None:
    assert made_folder(made_folder(tmp_path / "a" / "b")).is_dir()
    (tmp_path / "c").write_text("", encoding="utf-8")
    for place in (tmp_path / "c", tmp_path / "c" / "d"):
        with pytest.raises(WriteError, match="cannot be a folder"):
            made_folder(place)


@needs_rights
def test_what_may_not_be_read_is_not_called_damaged(
    study: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_bytes", denied)  # root may read everything
    with sag.open(study / "A") as ws:
        with pytest.raises(WarehouseError, match=r"cannot be read \(permissions\).*chmod") as told:
            ws.sql("SELECT 1")
        assert "damaged" not in str(told.value)
        assert [one.problem.count("rebuild") for one in ws.verify().problems] == [0]


def test_a_segment_without_rights_keeps_its_words_in_another_process() -> None:
    error = DamagedSegment("segments/a.parquet", NO_RIGHT)
    assert str(DamagedSegment(*error.args)) == str(error)
    assert "damaged" not in str(error)
    assert "rebuild" in str(DamagedSegment("segments/a.parquet", "its bytes have changed"))


def test_what_an_export_loses_is_told_in_runs_and_steps() -> None:
    report = InterchangeReport(Path("x"), "atif", lost={"run.end": 1, "raw": 2})
    assert "lost: run.end in 1 run, raw in 2 steps" in repr(report)


def test_advice_in_a_report_of_labels_is_not_cut() -> None:
    advice = "word " * 60 + "see ws.copies()"
    assert LabelReport(hints=[advice]).lines()[-1] == f"to know: {advice}"
