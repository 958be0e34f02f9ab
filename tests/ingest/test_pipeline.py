import gzip
import io
import json
import re
import subprocess
import sys
import zipfile
from functools import partial
from hashlib import sha256

import pytest
import tqdm.auto

from sag_research.errors import LabelError, UsageError
from sag_research.ingest import _account, _pipeline, _reading, add, ingest
from sag_research.ingest._clean import LONGEST
from sag_research.ingest.formats import FORMATS
from sag_research.log import RunWriter, SQLiteEventStore
from sag_research.log._canonical import MAX_TEXT_BYTES
from tests.ingest.make import (
    mini_file,
    native,
    swe_file,
    swe_step,
    tau_result,
    write,
)

KNOWN = ", ".join(one.name for one in FORMATS)
OTHER = f"JSON that no format claims (known: {KNOWN})"


@pytest.fixture
def store():
    with SQLiteEventStore(":memory:") as store:
        yield store


def adds_up(report):
    counted = report.ingested + report.duplicates + len(report.ignored) + len(report.rejected)
    assert counted == report.files
    assert sum(one["files"] for one in report.by_format.values()) == report.ingested
    assert sum(one["runs"] for one in report.by_format.values()) == report.runs
    assert sum(one["steps"] for one in report.by_format.values()) == report.steps
    return True


def sources(store):
    return [event.payload for event in store.read("@workspace", types=("source.read",))]


def test_good_runs_are_in_and_each_bad_file_is_listed_with_its_reason(store, tmp_path):
    big = "x" * 1_800_000
    write(tmp_path / "good.traj", swe_file(swe_step(), swe_step("submit\n")))
    write(tmp_path / "big.traj", swe_file(swe_step(observation=big)))
    write(tmp_path / "spoilt.traj", swe_file(swe_step(observation="half \ud835 char")))
    write(tmp_path / "empty.traj", b"")
    write(tmp_path / "blank.traj", b" \n\n")
    write(tmp_path / "cut.traj", json.dumps(swe_file()).encode()[:-40])
    write(tmp_path / "text.traj", b"no JSON at all")
    write(tmp_path / "packed.traj.gz", gzip.compress(json.dumps(mini_file()).encode())[:-9])
    write(tmp_path / "shape.json", {"trajectory": [swe_step()], "history": {"a": 1}})
    write(tmp_path / "kind.json", {"some": "other", "kind": [1, 2]})
    write(tmp_path / "empty.json", b"")
    write(tmp_path / "half.json", b'{"a": ')
    write(tmp_path / "notes.md", b"# notes")
    report = ingest(store, [tmp_path])
    assert adds_up(report)
    assert (report.files, report.ingested, report.runs, report.steps) == (13, 3, 3, 4)
    assert dict(report.rejected) == {
        "blank.traj": "empty: only white space",
        "cut.traj": "JSON that is cut short (Unterminated string starting at character 413)",
        "empty.traj": "empty file",
        "packed.traj.gz": "the gzip data is cut short",
        "shape.json": "JSON of another shape (no list at $.history)",
        "text.traj": "not JSON",
    }
    assert dict(report.ignored) == {
        "empty.json": "empty file",
        "half.json": "JSON that is cut short (Expecting value at character 6)",
        "kind.json": OTHER,
        "notes.md": "not JSON",
    }
    assert {one["path"]: one["status"] for one in sources(store)} == (
        {path: "rejected" for path, _ in report.rejected}
        | {path: "ignored" for path, _ in report.ignored}
        | dict.fromkeys(("good.traj", "big.traj", "spoilt.traj"), "ingested")
    )
    observations = {
        run.task_id: next(iter(store.read(run.run_id, types=("agent.step",)))).payload[
            "observation"
        ]
        for run in store.runs()
    }
    assert observations == {"good": "a.py", "big": big, "spoilt": "half \ufffd char"}
    assert store.verify().ok


def test_what_is_written_of_a_run(store, tmp_path):
    path = write(tmp_path / "a/org__repo-1.traj.json", mini_file())
    ingest(store, [tmp_path])
    digest = sha256(path.read_bytes()).hexdigest()
    (run,) = store.runs()
    assert run.run_id == f"org__repo-1~{digest[:10]}"
    assert (run.source_id, run.repo, run.model) == (digest[:16], "org/repo", "some/model")
    assert run.config == {"model": {"model_name": "some/model"}}
    created, first, second, end = store.read(run.run_id)
    assert (created.type, first.type, second.type) == ("run.created", "agent.step", "agent.step")
    assert [event.cause for event in (created, first, second, end)] == [None, 1, 2, 3]
    assert first.payload["calls"] == [
        {
            "id": "",
            "name": "bash",
            "arguments": None,
            "text": "ls",
            "observation": first.payload["observation"],
            "status": "ok",
            "exit_code": 0,
        }
    ]
    assert end.type == "run.completed"
    assert end.payload == {
        "exit_status": "Submitted",
        "submission": "the patch",
        "usage": {"cost_usd": 0.5},
    }
    assert sources(store) == [
        {
            "source_id": digest[:16],
            "path": "a/org__repo-1.traj.json",
            "root": str(tmp_path),
            "digest": digest,
            "bytes": path.stat().st_size,
            "format": "mini-swe-agent",
            "format_version": "1",
            "status": "ingested",
            "n_runs": 1,
            "n_steps": 2,
            "notes": [],
            "sketches": {run.run_id: "4cd162715dc7fdbd"},
        }
    ]


def test_many_runs_in_a_source_and_their_labels(store, tmp_path):
    write(tmp_path / "x.json", [tau_result(), tau_result(trial=1, reward=0.0), "junk"])
    report = ingest(store, [tmp_path])
    assert (report.runs, report.steps) == (2, 4)
    assert report.notes == ["x.json: result 2 refused: no object"]
    digest = sources(store)[0]["digest"]
    assert [run.run_id for run in store.runs()] == [
        f"tau-bench:airline:0~{digest[:10]}.{number}" for number in (0, 1)
    ]
    events = store.read("@workspace", types=("outcome.recorded",))
    assert [event.payload for event in events] == [
        {"run": run.run_id, "outcome": outcome, "score": score, "source": "tau-bench reward"}
        for run, outcome, score in zip(
            store.runs(), ("success", "failure"), (1.0, 0.0), strict=True
        )
    ]


def test_ingesting_again_appends_nothing_and_says_so(store, tmp_path):
    write(tmp_path / "a.traj", swe_file())
    write(tmp_path / "b.traj", swe_file())
    write(tmp_path / "c.traj", b"")
    write(tmp_path / "d.txt", b"x")
    first = ingest(store, [tmp_path])
    assert (first.ingested, first.duplicates, first.duplicate_of) == (1, 1, [("b.traj", "a.traj")])
    before = store.last_seq()
    again = ingest(store, [tmp_path])
    assert store.last_seq() == before
    assert adds_up(again)
    assert (again.ingested, again.duplicates, again.runs, again.steps) == (0, 2, 0, 0)
    assert "nothing new: the log holds all of this already" in again.notes
    assert "nothing new" not in str(first.notes)


def test_a_compressed_copy_is_a_duplicate(store, tmp_path):
    path = write(tmp_path / "a.traj", swe_file())
    write(tmp_path / "b.traj.gz", gzip.compress(path.read_bytes()))
    report = ingest(store, [tmp_path])
    assert (report.ingested, report.duplicates) == (1, 1)
    assert [one["status"] for one in sources(store)] == ["ingested", "duplicate"]


def test_a_file_that_grew_is_a_new_run_and_the_rest_is_not(store, tmp_path):
    write(tmp_path / "a.traj", swe_file())
    write(tmp_path / "b.traj", swe_file(swe_step("pwd\n")))
    ingest(store, [tmp_path])
    write(tmp_path / "a.traj", swe_file(swe_step(), swe_step("submit\n")))
    report = ingest(store, [tmp_path])
    assert (report.ingested, report.duplicates, len(store.runs())) == (1, 1, 3)


def test_a_file_that_was_mended_is_taken(store, tmp_path):
    write(tmp_path / "a.traj", b"")
    assert ingest(store, [tmp_path]).rejected == [("a.traj", "empty file")]
    write(tmp_path / "a.traj", swe_file())
    assert ingest(store, [tmp_path]).ingested == 1


def test_files_that_were_named_must_be_trajectories(store, tmp_path):
    report = write(tmp_path / "report.json", {"a": {"resolved": True}})
    notes = write(tmp_path / "notes.md", b"x")
    good = write(tmp_path / "x.txt", swe_file())
    found = ingest(store, [report, notes, good])
    assert (found.ingested, found.ignored) == (1, [])
    assert found.rejected == [
        ("report.json", "a label report, no trajectory"),
        ("notes.md", "not JSON"),
    ]


def test_reports_and_predictions_are_ignored_with_a_hint(store, tmp_path):
    write(tmp_path / "x.traj", swe_file())
    write(tmp_path / "report.json", {"a": {"resolved": True}})
    write(tmp_path / "preds.jsonl", b'{"instance_id": "a", "model_patch": ""}\n{"a": 1}\n')
    write(tmp_path / "rows.jsonl", b'{"a": 1}\n{"a": 2}\n')
    write(tmp_path / "bad.jsonl", b'{"a": 1}\n{"a": \n')
    report = ingest(store, [tmp_path])
    assert dict(report.ignored) == {
        "preds.jsonl": "predictions, no trajectory",
        "report.json": "a label report, no trajectory",
        "rows.jsonl": OTHER,
    }
    assert [path for path, _ in report.rejected] == ["bad.jsonl"]
    assert report.rejected[0][1].startswith("line 2: ")
    assert report.notes == ["1 file looks like a label report: pass --labels"]
    labelled = ingest(store, [tmp_path], labels=tmp_path / "report.json")
    assert labelled.labels.unmatched == 1
    assert not any("--labels" in note for note in labelled.notes)


def test_a_format_that_is_named_takes_what_looks_like_it(store, tmp_path):
    write(tmp_path / "a.traj", swe_file())
    write(tmp_path / "b.jsonl", json.dumps(native()).encode())
    write(tmp_path / "c.json", mini_file())
    report = ingest(store, [tmp_path], format="native")
    assert report.by_format == {"native": {"files": 1, "runs": 1, "steps": 1}}
    assert [path for path, _ in report.rejected] == ["a.traj"]
    assert [path for path, _ in report.ignored] == ["c.json"]
    with pytest.raises(UsageError, match="no format is called 'nativ'"):
        ingest(store, [tmp_path], format="nativ")


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_wrong_format_without_a_step_does_not_take_the_file_for_good(store, tmp_path, jobs):
    write(tmp_path / "a.traj.json", mini_file())
    report = ingest(store, [tmp_path], format="swe-agent", jobs=jobs)
    reason = (
        "it looks like mini-swe-agent, not swe-agent: leave the format out, or force it by an"
        " exclamation mark behind its name (swe-agent!)"
    )
    assert report.rejected == [("a.traj.json", reason)]
    forced = ingest(store, [tmp_path], format="swe-agent!", jobs=jobs)
    reason = "no step in it (it does not look like swe-agent)"
    assert forced.rejected == [("a.traj.json", reason)]
    assert adds_up(report)
    assert store.runs() == []
    assert ingest(store, [tmp_path], jobs=jobs).by_format == {
        "mini-swe-agent": {"files": 1, "runs": 1, "steps": 2}
    }


def test_a_run_without_a_step_is_one_where_its_format_claims_it(store, tmp_path):
    write(tmp_path / "a.traj", swe_file(trajectory=[], history=[]))
    report = ingest(store, [tmp_path], format="swe-agent")
    assert (report.runs, report.steps) == (1, 0)


def test_nothing_is_written_when_an_argument_is_wrong(store, tmp_path):
    write(tmp_path / "a.traj", swe_file())
    with pytest.raises(UsageError):
        ingest(store, [tmp_path, tmp_path / "gone"])
    with pytest.raises(LabelError):
        ingest(store, [tmp_path], labels=write(tmp_path / "l.json", {}))
    assert store.last_seq() == 0


def test_a_text_that_is_too_long_is_cut_and_kept_beside(store, tmp_path):
    text = "ä" * (33 * 2**20)  # two bytes each
    step = {"thought": text[:9], "action": "cat", "observation": text}
    lines = [native("a"), native("b", steps=[step]), native("c", goal="x" * (65 * 2**20))]
    write(tmp_path / "x.jsonl", b"\n".join(json.dumps(line).encode() for line in lines))
    report = ingest(store, [tmp_path])
    assert adds_up(report)
    _, b, c = store.runs()
    assert report.notes == [
        f"x.jsonl: {b.run_id}: step 0: observation was cut, over 64 MiB",
        f"x.jsonl: {b.run_id}: step 0: calls[0].observation was cut, over 64 MiB",
        f"x.jsonl: {c.run_id}: goal was cut, over 64 MiB",
    ]
    (event,) = store.read(b.run_id, types=("agent.step",))
    kept = event.payload["observation"]
    assert kept.endswith("ä …(cut)")
    assert 64 * 2**20 - 2 < len(kept.encode()) <= 64 * 2**20 == LONGEST == MAX_TEXT_BYTES
    assert event.payload["flags"] == ["cut"]
    assert store.blob(event.payload["raw"]["observation"]).decode() == text
    assert len(c.goal) == LONGEST - len(" …")
    assert store.verify().ok


def test_a_run_that_cannot_be_written_costs_its_file_whole(store, tmp_path):
    lines = json.dumps(native("a")).encode() + b"\n" + json.dumps(native("b")).encode()
    digest = sha256(lines).hexdigest()[:10]
    (other,) = add(store, native("q"))
    store.fork(other, at=1, run_id=f"b~{digest}.1")
    write(tmp_path / "x.jsonl", lines)
    write(tmp_path / "y.jsonl", json.dumps(native("c")).encode())
    report = ingest(store, [tmp_path])
    assert adds_up(report)
    assert [run.task_id for run in store.runs()] == ["q", "q", "c"]
    why = f"the log holds a run of this id that is a fork of {other!r}"
    assert report.rejected == [
        (
            "x.jsonl",
            f"run id 'b~{digest}.1' is taken ({why}); ingest the file into another workspace",
        )
    ]


def test_a_source_without_a_run_is_rejected(store, tmp_path):
    line = json.dumps(native(steps=[{"action": 1}])).encode()
    write(tmp_path / "x.jsonl", line + b"\n" + line)
    ((_, reason),) = ingest(store, [tmp_path]).rejected
    assert reason.startswith("no run in it (2 of 2 records refused: line 1: ")


def test_groups_do_not_change_the_result(tmp_path, monkeypatch):
    for number in range(7):
        write(tmp_path / f"{number}.traj", swe_file(swe_step(f"echo {number}\n")))
    found = []
    for files, size in ((200, 2**26), (2, 2**26), (200, 1)):
        monkeypatch.setattr("sag_research.ingest._pipeline._CHUNK_FILES", files)
        monkeypatch.setattr("sag_research.ingest._pipeline._CHUNK_BYTES", size)
        with SQLiteEventStore(":memory:") as store:
            report = ingest(store, [tmp_path])
            assert (report.ingested, store.verify().ok) == (7, True)
            found.append([(run.run_id, store.head(run.run_id)) for run in store.runs()])
    assert found[0] == found[1] == found[2]


def test_an_interrupted_ingest_goes_on_where_it_stopped(tmp_path, monkeypatch):
    for number in range(6):
        write(tmp_path / f"in/{number}.traj", swe_file(swe_step(f"echo {number}\n")))
    monkeypatch.setattr("sag_research.ingest._pipeline._CHUNK_FILES", 2)
    real, seen = RunWriter.add, []

    def interrupted(self, run):
        seen.append(run)
        if len(seen) == 4:
            raise KeyboardInterrupt
        return real(self, run)

    with SQLiteEventStore(tmp_path / "log.sqlite") as store:
        with monkeypatch.context() as patch:
            patch.setattr(RunWriter, "add", interrupted)
            with pytest.raises(KeyboardInterrupt):
                ingest(store, [tmp_path / "in"])
        assert [run.task_id for run in store.runs()] == ["0", "1"]
        report = ingest(store, [tmp_path / "in"])
        assert (report.ingested, report.duplicates) == (4, 2)
        assert store.verify().ok


def test_names_that_are_no_text_are_shown_and_kept_as_text(store, tmp_path):
    try:
        write(tmp_path / "bad\udcff.traj", swe_file())
    except OSError:
        pytest.skip("this file system refuses such names")
    report = ingest(store, [tmp_path])
    assert (report.ingested, sources(store)[0]["path"]) == (1, "bad\ufffd.traj")
    assert store.runs()[0].task_id == "bad\ufffd"


def test_what_is_repaired_outside_the_steps_is_noted(store, tmp_path):
    record = native(goal="half \ud835", config={"n": float("nan")}, submission="\x00")
    write(tmp_path / "a.json", record)
    report = ingest(store, [tmp_path])
    (run,) = store.runs()
    assert (run.goal, run.config) == ("half \ufffd", {"n": "nan"})
    assert report.notes == [
        f"a.json: {run.run_id}: {what} was repaired"
        for what in ("goal", "config.n", "end.submission")
    ]


def test_the_report_shows_itself(store, tmp_path):
    write(tmp_path / "<img src=x>.traj", b"")
    write(tmp_path / "a.traj", swe_file())
    write(tmp_path / "b.traj", swe_file())
    report = ingest(store, [tmp_path])
    assert repr(report) == (
        "IngestReport(3 files: 1 ingested, 1 duplicates, 0 ignored, 1 rejected; 1 runs, 1 steps)"
    )
    assert "<img" not in report._repr_html_()
    assert report.to_dict() == {
        "files": 3,
        "ingested": 1,
        "runs": 1,
        "steps": 1,
        "duplicates": 1,
        "ignored": [],
        "rejected": [{"path": "<img src=x>.traj", "reason": "empty file"}],
        "refused_records": [],
        "by_format": {"swe-agent": {"files": 1, "runs": 1, "steps": 1}},
        "copies": [],
        "labels": None,
        "notes": [],
        "redacted": {},
    }
    assert list(report.table_["status"]) == ["rejected", "duplicate"]


def test_the_plain_report_holds_refused_records_and_labels(store, tmp_path):
    write(tmp_path / "in/a.jsonl", json.dumps(native("t")).encode() + b"\n[]\n")
    labels = write(tmp_path / "l/x.csv", b"task_id,outcome\nt,success\nt,perhaps\n")
    told = ingest(store, [tmp_path / "in"], labels=labels).to_dict()
    assert [(one["path"], one["record"]) for one in told["refused_records"]] == [
        ("a.jsonl", "line 2")
    ]
    assert (told["labels"]["applied"], len(told["labels"]["refused"])) == (1, 1)
    assert json.loads(json.dumps(told)) == told


def test_a_bar_is_shown_to_people_only(tmp_path):
    write(tmp_path / "a.traj", swe_file())
    code = (
        "import sys; from sag_research.ingest import ingest; "
        "from sag_research.log import SQLiteEventStore; "
        "ingest(SQLiteEventStore(':memory:'), sys.argv[1:])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == ("", "")


def test_the_bar_tells_rate_and_time_left(tmp_path, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    lines = [json.dumps(native(f"t{number}")).encode() for number in range(50)]
    write(tmp_path / "a.jsonl", b"\n".join(lines))
    write(tmp_path / "b.traj", swe_file())
    monkeypatch.setattr(_pipeline, "_HELD_BYTES", 10)
    monkeypatch.setattr(_reading, "_PART_BYTES", 10)
    bar = partial(tqdm.auto.tqdm, mininterval=0, miniters=0)
    monkeypatch.setattr(tqdm.auto, "tqdm", bar)
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    with SQLiteEventStore(":memory:") as store:
        assert ingest(store, [tmp_path]).runs == 51
    shown = terminal.getvalue()
    assert all(f"0 of 2 files, {n} runs" in shown for n in range(2, 51))
    assert "1 of 2 files, 50 runs" in shown
    assert "2 of 2 files, 51 runs" in shown
    assert re.search(r"\d+%.*\d/.*\[\d\d:\d\d<\d\d:\d\d, .*B/s", shown)


# ---- records that are refused


def test_refused_records_are_in_the_report_and_in_the_log(store, tmp_path):
    data = [native("a"), {**native("b"), "resolved": False}, native("c")]
    lines = [json.dumps(one).encode() for one in data]
    write(tmp_path / "m.jsonl", b"\n".join([*lines, b"[1]", b"{"]))
    report = ingest(store, [tmp_path])
    assert adds_up(report)
    assert (report.ingested, report.runs, report.rejected) == (1, 2, [])
    assert [(path, at) for path, at, _ in report.refused_records] == [
        ("m.jsonl", f"line {number}") for number in (2, 4, 5)
    ]
    assert report.refused_records[0][2].startswith("unknown field 'resolved'; allowed: task_id, ")
    (source,) = sources(store)
    assert source["status"] == "ingested"
    start = "3 of 5 records refused: line 2: unknown field 'resolved'; allowed: "
    assert source["reason"].startswith(start)
    assert "; line 4: " in source["reason"]
    assert len(source["notes"]) == 3
    assert report.to_dict()["notes"] == [f"m.jsonl: {note}" for note in source["notes"]]
    assert repr(report).endswith("2 runs, 2 steps; 3 records refused)")
    assert list(report.table_["status"]) == ["refused"] * 3
    assert report._repr_html_().count("line 4") == 1
    before = store.last_seq()
    assert ingest(store, [tmp_path]).refused_records == []  # a duplicate is not read again
    assert store.last_seq() == before


def test_the_reason_names_the_first_records_and_the_notes_all(store, tmp_path):
    write(tmp_path / "m.jsonl", b"\n".join([json.dumps(native()).encode(), *[b"[]"] * 50]))
    report = ingest(store, [tmp_path])
    (source,) = sources(store)
    assert source["reason"].startswith("50 of 51 records refused: line 2: ")
    assert source["reason"].endswith("; and 47 more")
    assert (len(source["notes"]), len(report.refused_records)) == (50, 50)


def test_entries_of_a_list_and_attempts_are_records(store, tmp_path):
    write(tmp_path / "t.json", [tau_result(), "junk"])
    write(tmp_path / "a.traj", {"attempts": [swe_file(), None]})
    report = ingest(store, [tmp_path])
    assert report.refused_records == [
        ("a.traj", "attempt 1", "no object"),
        ("t.json", "result 1", "no object"),
    ]
    assert [source["reason"] for source in sources(store)] == [
        f"1 of 2 records refused: {what} 1: no object" for what in ("attempt", "result")
    ]


def test_a_file_without_refused_records_has_no_reason(store, tmp_path):
    write(tmp_path / "a.traj", swe_file(swe_step(), "junk"))  # a step is no record
    report = ingest(store, [tmp_path])
    assert (report.refused_records, len(report.notes)) == ([], 1)
    assert "reason" not in sources(store)[0]
    assert "refused" not in repr(report)


def test_a_file_that_is_rejected_whole_has_no_refused_records(store, tmp_path):
    write(tmp_path / "m.jsonl", b'{"task_id": "a", "steps": []}\n{"task_id": "b", "steps": 3}\n')
    write(tmp_path / "n.jsonl", b'{"task_id": 1.5, "steps": []}\n{"task_id": "b", "steps": 3}\n')
    report = ingest(store, [tmp_path])
    assert [path for path, _ in report.rejected] == ["n.jsonl"]
    assert [path for path, _, _ in report.refused_records] == ["m.jsonl"]


# ---- reasons and hints


def test_archives_are_told_from_other_files(store, tmp_path):
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr("notes.txt", "x")
    path = write(tmp_path / "log.data", data.getvalue())
    reason = "a zip archive under another name: end its name in .zip"
    assert ingest(store, [path]).rejected == [("log.data", reason)]


def test_a_folder_without_a_trajectory_gets_a_hint(store, tmp_path):
    write(tmp_path / "full/deep/a.traj", swe_file())
    write(tmp_path / "other/x.json", {"a": 1})
    (tmp_path / "empty").mkdir()
    report = ingest(store, [tmp_path / "full", tmp_path / "other", tmp_path / "empty"])
    hint = f"no trajectory found; formats known: {KNOWN}; see ws.add for your own"
    assert report.notes == [f"{tmp_path / name}: {hint}" for name in ("other", "empty")]


def test_a_folder_of_known_trajectories_needs_no_hint(store, tmp_path):
    write(tmp_path / "a/b/x.traj", swe_file())
    write(tmp_path / "named.txt", b"x")
    (tmp_path / "link").symlink_to(tmp_path / "a")
    ingest(store, [tmp_path / "a"])
    for paths in (["a"], ["a", "a/b"], ["link", "a"], ["link/b", "a"]):
        notes = ingest(store, [tmp_path / path for path in paths]).notes
        assert not any("no trajectory" in note for note in notes)
    assert ingest(store, [tmp_path / "named.txt"]).notes == []  # the reason says it already


def test_paths_may_come_one_by_one(store, tmp_path):
    write(tmp_path / "a/x.traj", swe_file())
    assert ingest(store, (path for path in [tmp_path / "a"])).ingested == 1


# ---- several ingests, and the lock


def test_two_ingests_of_one_folder_at_once_share_the_work(tmp_path, monkeypatch):
    for number in range(6):
        write(tmp_path / f"in/{number}.traj", swe_file(swe_step(f"echo {number}\n")))
    write(tmp_path / "in/bad.traj", b"")
    monkeypatch.setattr(_pipeline, "_CHUNK_FILES", 2)
    with SQLiteEventStore(tmp_path / "log.sqlite") as one, SQLiteEventStore(one.path) as two:
        real, others = _pipeline._take_group, []

        def take_group(store, *arguments):
            if store is one and not others:
                others.append(None)
                others.append(ingest(two, [tmp_path / "in"]))
            real(store, *arguments)

        monkeypatch.setattr(_pipeline, "_take_group", take_group)
        report = ingest(one, [tmp_path / "in"])
        assert adds_up(report)
        assert (report.duplicates, report.ingested, len(report.rejected)) == (6, 0, 1)
        assert (others[1].ingested, len(one.runs())) == (6, 6)
        assert [source["status"] for source in sources(one)].count("ingested") == 6
        assert len(sources(one)) == 7
        assert one.verify().ok


def test_a_run_that_is_there_without_its_source_is_no_fault(store, tmp_path, monkeypatch):
    """A log whose facts were lost still knows its runs."""
    write(tmp_path / "a.traj", swe_file())
    ingest(store, [tmp_path])
    real = _account.Account.catch_up
    monkeypatch.setattr(_account.Account, "catch_up", lambda account: None)
    report = ingest(store, [tmp_path])
    assert (report.duplicates, report.rejected, len(store.runs())) == (1, [], 1)
    monkeypatch.setattr(_account.Account, "catch_up", real)
    assert ingest(store, [tmp_path]).duplicates == 1


def test_files_are_read_before_the_log_is_locked(tmp_path, monkeypatch):
    write(tmp_path / "in/a.traj", swe_file())
    write(tmp_path / "in/b.jsonl", json.dumps(native()).encode())
    seen, real = [], _reading.read_run
    with SQLiteEventStore(tmp_path / "log.sqlite") as store:

        def read_run(*arguments):
            seen.append(store._depth)
            return real(*arguments)

        monkeypatch.setattr(_reading, "read_run", read_run)
        assert ingest(store, [tmp_path / "in"]).ingested == 2
        assert seen == [0, 0]
        lines = [json.dumps(native(name)).encode() for name in "cde"]
        write(tmp_path / "in/c.jsonl", b"\n".join(lines))
        monkeypatch.setattr(_pipeline, "_HELD_BYTES", 10)
        monkeypatch.setattr(_reading, "_PART_BYTES", 0)
        assert ingest(store, [tmp_path / "in"]).runs == 3
        assert seen == [0, 0, 0, 2, 2]


def test_an_equal_file_is_taken_where_the_first_was_refused(store, tmp_path, monkeypatch):
    for name in "ab":
        write(tmp_path / f"{name}.jsonl", json.dumps(native()).encode())
    real, calls = _account.write_run, []

    def once_refused(*arguments):
        calls.append(arguments)
        if len(calls) == 1:
            raise UsageError("not now")
        return real(*arguments)

    monkeypatch.setattr(_account, "write_run", once_refused)
    report = ingest(store, [tmp_path])
    assert (report.rejected, report.ingested) == ([("a.jsonl", "not now")], 1)


def test_inherited_steps_are_not_counted(store, tmp_path):
    step = {"action": "ls", "observation": "a"}
    steps = [{**step, "flags": ["inherited"]}, {**step, "flags": ["rejected", "inherited"]}, step]
    write(tmp_path / "a.jsonl", native(steps=steps))
    report = ingest(store, [tmp_path])
    assert (report.runs, report.steps) == (1, 1)
    assert report.by_format["native"]["steps"] == sources(store)[0]["n_steps"] == 1
    assert report.notes == [f"a.jsonl: {store.runs()[0].run_id}: 2 inherited steps not counted"]


def test_a_workspace_is_no_folder_of_trajectories(store, tmp_path):
    write(tmp_path / "ws/log.sqlite", b"x")
    write(tmp_path / "ws/x.traj", swe_file())
    (tmp_path / "ws/warehouse").mkdir()
    write(tmp_path / "in/x.traj", swe_file())
    with pytest.raises(UsageError, match="is a workspace, no folder of trajectories"):
        ingest(store, [tmp_path / "in", tmp_path / "ws"])
    assert store.last_seq() == 0


def test_a_bomb_costs_itself(store, tmp_path, monkeypatch):
    monkeypatch.setattr("sag_research.ingest._source._LINE", 100_000)
    bomb = b'{"task_id": "t", "steps": [{"action": "' + b"a" * 300_000 + b'"}]}'
    write(tmp_path / "bomb.jsonl.gz", gzip.compress(bomb))
    write(tmp_path / "plain.jsonl", bomb)
    write(tmp_path / "good.jsonl", native())
    report = ingest(store, [tmp_path])
    assert report.ingested == 1
    assert dict(report.rejected) == {
        "bomb.jsonl.gz": "expands to more than 200 times its size;"
        " unpack it yourself if you know where it is from",
        "plain.jsonl": "a line of more than 100000 bytes; split the record, or its texts",
    }
