"""Workspaces are put together by content; contradictions are listed, nothing counts twice."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import sag_research as sag
from sag_research.errors import UsageError
from sag_research.log import SQLiteEventStore, merge_log
from sag_research.model import Event, Run
from tests.cli.test_cli import sag as sag_command

BIG = "a long observation " * 60


def record(task: str, words: str = "", steps: int = 3) -> dict:
    made = [
        {"thought": f"t{n}", "action": f"cat {task}-{n}.py {words}", "observation": f"{BIG} {n}"}
        for n in range(steps)
    ]
    return {"task_id": task, "agent": "a", "model": "m", "steps": made}


def write(folder: Path, *tasks: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for task in tasks:
        (folder / f"{task}.jsonl").write_text(json.dumps(record(task)) + "\n", encoding="utf-8")
    return folder


def adds_up(report, store: SQLiteEventStore) -> bool:
    names = ("copied", "extended", "known", "conflicts", "refused")
    return sum(report.count(name) for name in names) == len(store.runs())


def test_the_merged_cohort_is_the_union(tmp_path: Path) -> None:
    one, two = write(tmp_path / "one", "a", "b"), write(tmp_path / "two", "b", "c")
    with sag.open(tmp_path / "A") as ws:
        ws.ingest(one, progress=False)
        ws.record_outcome("a", "success")
        ws.annotate("a", step=1, code="odd", by="me")
    with sag.open(tmp_path / "B") as ws:
        ws.ingest(two, progress=False)
        ws.record_outcome("c", "failure")
    with sag.open(tmp_path / "union") as ws:
        ws.ingest(one, two, progress=False)
        ws.record_outcome("a", "success")
        ws.record_outcome("c", "failure")
        union = ws.digest()
    with sag.open(tmp_path / "AB") as ws:
        report = ws.merge(tmp_path / "A", tmp_path / "B")
        assert (report.count("copied"), report.count("known"), report.is_whole) == (3, 1, True)
        assert ws.digest() == union
        assert ws.verify().ok
        assert dict(ws.sql("select task_id, outcome from runs order by 1").df().to_numpy()) == {
            "a": "success", "b": "unknown", "c": "failure",
        }  # fmt: skip
        assert ws.sql("select count(*) n from steps").df()["n"][0] == 9
        again = ws.merge(tmp_path / "A", tmp_path / "B")
        assert (again.count("known"), again.count("copied")) == (4, 0)
        assert sum(log.events for log in again.logs.values()) == 0
        fresh = ws.ingest(one, two, progress=False)
        assert (fresh.ingested, fresh.duplicates) == (0, 4)
    with sag.open(tmp_path / "BA") as ws:
        ws.merge(tmp_path / "B", tmp_path / "A")
        assert ws.digest() == union


@pytest.fixture
def stores() -> tuple[SQLiteEventStore, SQLiteEventStore]:
    return SQLiteEventStore(":memory:"), SQLiteEventStore(":memory:")


def note(store: SQLiteEventStore, run: str, text: str) -> None:
    store.append(Event(run_id=run, type="note.taken", payload={"text": text}))


def begin(store: SQLiteEventStore, run: str, *texts: str) -> None:
    store.create_run(Run(run_id=run, goal="g"))
    for text in texts:
        note(store, run, text)


def test_a_run_that_went_on_is_extended_and_an_older_one_is_known(stores) -> None:
    here, there = stores
    begin(here, "r", "x", BIG)
    begin(here, "s", "x", "y")
    begin(there, "r", "x", BIG, "z" * 900)
    begin(there, "s", "x")
    report = merge_log(here, there)
    assert (report.extended, report.known, report.copied) == (["r"], ["s"], [])
    assert here.head("r") == there.head("r")
    assert [event.payload["text"] for event in here.read("r", 2)] == ["x", BIG, "z" * 900]
    assert here.verify().ok


def test_another_history_is_a_conflict_with_its_forks_and_facts(stores) -> None:
    here, there = stores
    begin(here, "r", "mine", "m")
    begin(there, "r", "theirs", "t")
    there.fork("r", at=2, run_id="child")
    begin(there, "free", "f")
    for run in ("r", "child", "free"):
        payload = {"run": run, "outcome": "success", "source": "me"}
        there.append(Event(run_id="@workspace", type="outcome.recorded", payload=payload))
    before = here.head("r")
    report = merge_log(here, there)
    assert [run for run, _ in report.conflicts] == ["r"]
    assert [run for run, _ in report.refused] == ["child"]
    assert report.copied == ["free"]
    assert (report.facts, report.facts_left) == (1, 2)
    assert here.head("r") == before
    assert not here.has_run("child")
    assert here.verify().ok


def test_forks_come_with_their_parents_at_any_depth(stores) -> None:
    here, there = stores
    begin(there, "r", "1", "2", "3")
    there.fork("r", at=3, run_id="f", intervention={"why": "look"})
    note(there, "f", BIG)
    there.fork("f", at=2, run_id="g")  # inherits from the grandparent
    note(there, "g", "own")
    begin(here, "r", "1", "2", "3", "4")  # the parent went on here
    report = merge_log(here, there)
    assert (report.known, report.copied) == (["r"], ["f", "g"])
    for run in ("f", "g"):
        assert here.head(run) == there.head(run)
        assert [e.payload for e in here.read(run)] == [e.payload for e in there.read(run)]
    assert here.get_run("g").parent_id == "f"
    assert here.verify().ok


def test_a_broken_chain_is_refused_and_the_rest_is_read(tmp_path: Path) -> None:
    there = SQLiteEventStore(tmp_path / "there.sqlite")
    begin(there, "good", "x")
    begin(there, "bad", "x", "y")
    there._db.execute(
        "UPDATE events SET body = ? WHERE seq = (SELECT max(seq) FROM events)", (b'{"text":"z"}',)
    )
    here = SQLiteEventStore(":memory:")
    report = merge_log(here, there)
    assert report.copied == ["good"]
    assert [(run, why.split(":")[0]) for run, why in report.refused] == [("bad", "edited")]
    assert here.verify().ok


def test_what_is_redacted_on_either_side_stays_empty(stores) -> None:
    here, there = stores
    for store in stores:
        begin(store, "r", "keep", "secret " * 100, "hidden " * 100)
    here.redact("r", 3, "a key")
    there.redact("r", 4, "a name")
    begin(there, "new", "fine", "password " * 90)
    there.redact("new", 3, "a password")
    report = merge_log(here, there)
    assert report.redacted == 1
    assert [e.payload for e in here.read("r", 3)] == [{"redacted": "a key"}, {"redacted": "a name"}]
    assert next(here.read("new", 3)).payload == {"redacted": "a password"}
    assert here.verify().ok
    assert b"password password" not in bytes(here._db.serialize())


def test_a_merge_that_fails_leaves_nothing(stores, monkeypatch) -> None:
    here, there = stores
    begin(there, "a", "x")
    begin(there, "b", "y")
    seen = here.last_seq()
    from sag_research.log import _merge

    whole = _merge._Merge._append

    def breaks(self, run, tip, end):
        if run.uid == "b":
            raise KeyboardInterrupt
        return whole(self, run, tip, end)

    monkeypatch.setattr(_merge._Merge, "_append", breaks)
    with pytest.raises(KeyboardInterrupt):
        merge_log(here, there)
    assert (here.last_seq(), here.runs()) == (seen, [])
    monkeypatch.undo()
    assert merge_log(here, there).copied == ["a", "b"]


def test_sources_that_disagree_are_listed_and_an_older_word_is_no_disagreement(
    tmp_path: Path,
) -> None:
    folder = write(tmp_path / "in", "a", "b", "c")
    for name, said in (("A", ("success", "success", "failure")), ("B", ("failure", "success"))):
        with sag.open(tmp_path / name) as ws:
            ws.ingest(folder, progress=False)
            for task, outcome in zip("abc", said, strict=False):
                ws.record_outcome(task, outcome)
            if name == "B":  # the same first word, corrected later
                ws.record_outcome("c", "failure")
                ws.record_outcome("c", "success")
    with sag.open(tmp_path / "C") as ws:
        report = ws.merge(tmp_path / "A", tmp_path / "B")
        ((run, source, here, there),) = report.disagreements
        assert (run.split("~")[0], source, here, there) == ("a", "me", "success", "failure")
        found = dict(ws.sql("select task_id, outcome from runs").df().to_numpy())
        assert found == {"a": "failure", "b": "success", "c": "success"}


def test_equal_paths_of_two_machines_do_not_overwrite_each_other(tmp_path: Path) -> None:
    place = tmp_path / "data"
    for name, words in (("A", "one"), ("B", "two")):
        place.mkdir(exist_ok=True)
        made = json.dumps(record("t", words)) + "\n"
        (place / "runs.jsonl").write_text(made, encoding="utf-8")
        with sag.open(tmp_path / name) as ws:
            ws.ingest(place, progress=False)
    with sag.open(tmp_path / "C") as ws:
        report = ws.merge(tmp_path / "A", tmp_path / "B")
        assert report.copies.hidden == []
        assert len(ws.runs()) == 2
        assert ws.ingest(place, progress=False).duplicates == 1
        assert ws.find_copies().hidden == []


def test_the_command(tmp_path: Path) -> None:
    with sag.open(tmp_path / "A") as ws:
        ws.ingest(write(tmp_path / "in", "a"), progress=False)
    done = sag_command("merge", "A", "-w", "C", "--json", cwd=tmp_path)
    assert done.returncode == 0
    (log,) = json.loads(done.stdout)["logs"].values()
    assert len(log["copied"]) == 1
    again = sag_command("import", "A", "-w", "C", cwd=tmp_path)
    assert "1 known" in again.stdout
    itself = sag_command("merge", "C", "-w", "C", cwd=tmp_path)
    assert (itself.returncode, itself.stderr.count("\n")) == (2, 1)
    nothing = sag_command("merge", "in", "-w", "C", cwd=tmp_path)
    assert (nothing.returncode, nothing.stderr.count("\n")) == (2, 1)
    assert "holds no log" in nothing.stderr


def test_a_log_is_not_merged_with_itself(tmp_path: Path) -> None:
    with sag.open(tmp_path / "A") as ws, pytest.raises(UsageError, match="itself"):
        ws.merge(tmp_path / "A")
