"""Secrets are kept out of a workspace, taken out of one, and left out of what is exported."""

from __future__ import annotations

import json
import os
import random
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import sag_research as sag
from sag_research.bloom import write_provenance
from sag_research.errors import UsageError
from sag_research.exchange import export_atif, export_csv, export_cypher, export_xes
from sag_research.ingest.secrets import Redactor, redact_log, redacted_step, scan
from sag_research.log import (
    SQLiteEventStore,
    document_digest,
    merge_log,
    put_document,
    read_document,
)
from sag_research.model import Call, Event, Outcome, Run, Step, Trajectory
from tests.ingest.secrets.seeds import Seed, drawn, harmless, remains, seeds

RNG = random.Random(11)
KEY = drawn(RNG, "ghp_<A36>")
OTHER = drawn(RNG, "npm_<A36>")
PASSWORD = "tr0ub4dor"
LONG = "an observation of some length " * 40


def record(task: str = "t", key: str = KEY) -> dict[str, Any]:
    return {
        "task_id": task,
        "goal": f"push with {key}",
        "config": {"env": {"DB_PASSWORD": PASSWORD}},
        "submission": f"diff {key}",
        "steps": [
            {"thought": LONG, "action": f"export TOKEN={key}", "observation": f"{LONG} {key}"},
            {"thought": "plain", "action": "ls", "observation": "a.py\nb.py"},
            {"thought": "again", "action": "env", "observation": f"PGPASSWORD={PASSWORD}\n"},
        ],
    }


def holds(folder: Path, *secrets: str) -> list[str]:
    """Files of a folder that hold a secret: as they are, and Parquet once unpacked."""
    found = []
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        data = path.read_bytes()
        text = (
            str(pq.read_table(path, partitioning=None).to_pydict())
            if path.suffix == ".parquet"
            else ""
        )
        if any(secret.encode() in data or secret in text for secret in secrets):
            found.append(path.name)
    return found


def texts_of(store: SQLiteEventStore) -> str:
    return "\n".join(repr(event) for event in store.tail()) + repr(store.runs())


@pytest.fixture
def ws(tmp_path: Path) -> Iterator[sag.Workspace]:
    with sag.open(tmp_path / "ws") as ws:
        ws.add([record("t1"), record("t2", OTHER)])
        ws.sync()
        yield ws


# ---- records


def test_every_part_of_a_trajectory_is_cleaned() -> None:
    call = Call(id=KEY, name="sh", arguments={"env": {"token": KEY}, "list": [KEY]}, text=KEY,
                observation=KEY)  # fmt: skip
    trajectory = Trajectory(
        task_id="t", goal=KEY, repo=f"https://x:{PASSWORD}@h/r", config={"a": [{KEY: 1}]},
        submission=KEY, notes=(KEY,), exit_status=KEY, agent=KEY, model=KEY, record=KEY,
        outcome=Outcome(outcome="success", detail=KEY, source=KEY),
        steps=(Step(thought=KEY, action=KEY, observation=KEY, calls=(call,), state={"k": KEY}),),
    )  # fmt: skip
    redactor = Redactor()
    clean = redactor.trajectory(trajectory)
    assert KEY not in repr(clean)
    assert PASSWORD not in repr(clean)
    assert clean.steps[0].flags == ("redacted",)
    assert redactor.counts["github-token"] == repr(trajectory).count(KEY)
    assert "calls[0].arguments.env.token" in {place.field for place in redactor.places}


def test_a_step_without_secrets_is_the_same_object() -> None:
    step = Step(thought="a", action="ls", observation="b", calls=(Call(arguments={"a": [1]}),))
    assert redacted_step(step) is step


def test_a_name_tells_of_a_short_value() -> None:
    clean = Redactor().value({"password": "hunter2x", "user": "hunter2x", "token": "the word"})
    assert clean == {"password": "[secret:password]", "user": "hunter2x", "token": "the word"}


def test_two_keys_that_become_one_token_stay_two_entries() -> None:
    value = {"PGPASSWORD=aa1bb2": 1, "PGPASSWORD=cc3dd4": 2}
    assert sorted(Redactor().value(value).values()) == [1, 2]


ARGUMENTS: list[Any] = [
    ["sshpass", "-p", PASSWORD, "ssh", "host"],
    {"command": ["curl", "-u", f"admin:{PASSWORD}", "http://host"]},
    ["mysql", "--password", PASSWORD],
    ["openssl", "rsa", "-passin", f"pass:{PASSWORD}"],
    {"name": "DB_PASSWORD", "value": PASSWORD},
    {"password": {"value": PASSWORD}},
    {"api_key": {"value": KEY[4:]}},
    {"Authorization": f"Token {KEY[4:]}"},
]


@pytest.mark.parametrize("value", ARGUMENTS, ids=range(len(ARGUMENTS)))
def test_neighbours_tell_of_an_argument(value: Any) -> None:
    redactor = Redactor()
    clean = redactor.value(value)
    assert PASSWORD not in repr(clean)
    assert KEY[4:] not in repr(clean)
    assert len(redactor.places) == 1
    assert Redactor().value(clean) is clean


@pytest.mark.parametrize(
    "value",
    [["ls", "-p", PASSWORD], ["the", "password", "is", "wrong"], {"name": "x", "value": PASSWORD}],
)
def test_plain_arguments_stay(value: Any) -> None:
    assert Redactor().value(value) is value


def test_what_a_call_says_is_taken_out_of_its_arguments(tmp_path: Path) -> None:
    said = f"export DB_PASSWORD={PASSWORD}"
    arguments = {"env": [PASSWORD, "x"], "deep": {"y": f"({PASSWORD})", "z": PASSWORD + "z"}}
    wanted = {
        "env": ["[secret:password]", "x"],
        "deep": {"y": "([secret:password])", "z": PASSWORD + "z"},
    }
    step = redacted_step(Step(calls=(Call(text=said, arguments=arguments),)))
    assert step.calls[0].arguments == wanted
    assert (
        redacted_step(Step(action=said, calls=(Call(arguments=arguments),))).calls[0].arguments
        == wanted
    )
    with SQLiteEventStore(tmp_path / "log.sqlite") as store:
        store.create_run(Run(run_id="r"))
        payload = {"calls": [{"text": said, "arguments": arguments}]}
        store.append(Event(run_id="r", type="agent.step", payload=payload))
        redact_log(store)
        (event,) = store.read("r", types=("agent.step",))
        assert event.payload["calls"][0]["arguments"] == wanted


# ---- ingest


@pytest.mark.parametrize("jobs", [1, 2])
def test_ingest_writes_no_secret(tmp_path: Path, jobs: int) -> None:
    source = tmp_path / "runs.jsonl"
    lines = [json.dumps(record(f"t{n}")) for n in range(3)] + ["{broken " + KEY]
    source.write_text("\n".join(lines), encoding="utf-8")
    with sag.open(tmp_path / "ws") as ws:
        report = ws.ingest(source, redact=True, jobs=jobs)
        assert (report.runs, report.steps) == (3, 9)
        assert set(report.redacted) == {"github-token", "password"}
        flags = ws.sql("SELECT step, 'redacted' IN flags FROM steps WHERE run_id LIKE 't0%'").rows()
        assert dict(flags) == {0: True, 1: False, 2: True}
        assert report.to_dict()["redacted"] == report.redacted
        assert KEY not in repr(report.to_dict())
        again = ws.ingest(source, redact=True, recheck=True)
        assert any("was in the log before" in note for note in again.notes)
    assert holds(tmp_path / "ws", KEY, PASSWORD) == []


def test_two_workspaces_that_were_cleaned_merge(tmp_path: Path) -> None:
    source = tmp_path / "runs.jsonl"
    source.write_text(json.dumps(record()), encoding="utf-8")
    with sag.open(tmp_path / "a") as a, sag.open(tmp_path / "b") as b:
        a.ingest(source, redact=True)
        b.ingest(source, redact=True)
        report = a.merge(tmp_path / "b")
        assert report.count("known") == 1
        assert report.is_whole


# ---- ids and the names of files


def test_an_id_that_holds_a_key_is_another_one_in_a_copy(tmp_path: Path) -> None:
    with sag.open(tmp_path / "ws") as ws:
        long = ws.add({"task_id": "x" * 190 + f" {KEY}", "steps": [{"action": "ls"}]})
        old = ws.add({"task_id": f"fix {KEY}", "steps": [{"action": "ls"}, {"action": "a"}]})
        child = ws.fork(old, step=1).run_id
        ws.record_outcome(old, "success")
        ws.annotate(old, code="odd", by="me")
        assert f"fix{KEY}" in old
        assert KEY[:9] in long
        report = ws.redact_secrets(dry_run=True)
        assert KEY not in repr(report.to_dict())
        assert sum("run_id of" in one for one in report.left) >= 2
        with ws.redacted_copy(tmp_path / "copy") as copy:
            new = [run.run_id for run in copy.store.runs() if run.run_id.startswith("fix[secret:")]
            new_id, new_child = sorted(new, key=len)
            assert child.removeprefix(old) == new_child.removeprefix(new_id)
            assert copy.store.get_run(new_child).parent_id == new_id
            query = "SELECT outcome FROM runs WHERE run_id = $r"
            assert copy.sql(query, {"r": new_id}).rows() == [("success",)]
            assert len(copy.annotations(new_id)) == len(ws.annotations(old)) == 1
            assert copy.verify().ok
            assert copy.redact_secrets().left == []
            export_csv(copy, tmp_path / "out.csv", texts=True)
            export_atif(copy, tmp_path / "atif")
            assert not any(KEY[:9] in path.name for path in tmp_path.rglob("copy/**/*"))
    assert KEY[:9] not in (tmp_path / "out.csv").read_text(encoding="utf-8")
    names = [path.name for path in (tmp_path / "atif").rglob("*")]
    assert len(names) == 3
    assert not any(KEY[:9] in name for name in names)
    assert holds(tmp_path / "copy", KEY[:12]) == []


def test_ingest_makes_ids_of_the_cleaned_task(tmp_path: Path) -> None:
    tasks = (f"fix {KEY}", f"mend{KEY}it", "x" * 190 + f" {KEY}")
    lines = [json.dumps({"task_id": task, "steps": [{"action": "ls"}]}) for task in tasks]
    (tmp_path / "runs.jsonl").write_text("\n".join(lines), encoding="utf-8")
    assert KEY not in repr(scan([tmp_path / "runs.jsonl"]).to_dict())
    with sag.open(tmp_path / "ws") as ws:
        assert ws.ingest(tmp_path / "runs.jsonl", redact=True).runs == 3
        assert ws.redact_secrets(dry_run=True).found == []
    assert holds(tmp_path / "ws", KEY[:9]) == []


@pytest.mark.parametrize("jobs", [1, 2])
def test_the_name_of_a_file_is_cleaned(tmp_path: Path, jobs: int) -> None:
    folder = tmp_path / f"in{KEY}"
    folder.mkdir()
    (folder / f"run-{OTHER}.jsonl").write_text(json.dumps(record("t", "x")), encoding="utf-8")
    (folder / f"bad{OTHER}.jsonl").write_text("{broken", encoding="utf-8")
    (folder / f"{OTHER}.txt").write_text("words", encoding="utf-8")
    for path in folder.iterdir():
        os.utime(path, (1, 1))
    report = scan([folder])
    assert {one.kind for one in report.found} >= {"npm-token"}
    assert OTHER not in repr(report.to_dict())
    with sag.open(tmp_path / "ws") as ws:
        done = ws.ingest(folder, redact=True, jobs=jobs)
        assert (done.runs, len(done.rejected), len(done.ignored)) == (1, 1, 1)
        assert not any(secret in repr(done.to_dict()) for secret in (KEY, OTHER))
        assert ws.redact_secrets(dry_run=True).found == []
        assert ws.ingest(folder, redact=True, jobs=jobs).runs == 0
    assert holds(tmp_path / "ws", KEY, OTHER, PASSWORD) == []


def test_what_is_remembered_of_paths_is_dropped(tmp_path: Path) -> None:
    with sag.open(tmp_path / "ws") as ws:
        memory = tmp_path / "ws" / "log.sqlite-seen"
        memory.write_bytes(b"\x81\xa5files\xd9\x40" + f"run-{KEY}.jsonl".encode())
        assert "name of a file that was read" in {
            one.field for one in ws.redact_secrets(dry_run=True).found
        }
        assert memory.exists()
        report = ws.redact_secrets()
        assert report.left == []
        assert not memory.exists()
        assert ws.redact_secrets().found == []


# ---- an existing log


def test_a_dry_run_tells_and_changes_nothing(ws: sag.Workspace) -> None:
    before = texts_of(ws.store)
    report = ws.redact_secrets(dry_run=True)
    assert report.dry_run
    assert report.events == 0
    assert {one.kind for one in report.found} == {"github-token", "npm-token", "password"}
    assert {one.step for one in report.found} == {None, 0, 2}
    assert KEY not in repr(report.to_dict())
    assert texts_of(ws.store) == before


def test_nothing_is_left_of_it(ws: sag.Workspace, tmp_path: Path) -> None:
    heads = {run.run_id: ws.store.head(run.run_id) for run in ws.store.runs()}
    n_steps = ws.sql("SELECT count(*) FROM steps").rows()
    assert holds(tmp_path / "ws", KEY, OTHER, PASSWORD)
    recalled = ws.recall_index
    report = ws.redact_secrets()
    assert report.left == []
    assert report.events == 8  # of each run: its beginning, two steps, its end
    assert holds(tmp_path / "ws", KEY, OTHER, PASSWORD) == []
    text = texts_of(ws.store)
    assert not any(secret in text for secret in (KEY, OTHER, PASSWORD))
    verified = ws.verify()
    assert verified.ok
    assert verified.redacted == 8
    assert "8 bodies redacted" in repr(verified)
    assert {run.run_id: ws.store.head(run.run_id) for run in ws.store.runs()} == heads
    assert ws.sql("SELECT count(*) FROM steps").rows() == n_steps
    query = "SELECT thought, action, flags FROM steps WHERE step = 0 AND run_id LIKE 't1%'"
    shown = ws.sql(query)
    ((thought, action, flags),) = shown.rows()
    assert thought == LONG
    assert action.startswith("export TOKEN=[secret:github-token:")
    assert flags == ["redacted"]
    assert ws.sql("SELECT goal FROM runs WHERE task_id = 't1'").rows()[0][0].endswith("]")
    assert recalled is ws.recall_index
    assert KEY not in repr(ws.recall(["TOKEN"]).to_dict())
    assert ws.redact_secrets().found == []


def test_an_open_recorder_and_another_reader_forget(ws: sag.Workspace, tmp_path: Path) -> None:
    query = "SELECT ?v WHERE { ?s ?p ?v }"
    assert KEY in repr(ws.sparql(query).to_dict()) or KEY in repr(list(ws.recorder.traces))
    with sag.open(tmp_path / "ws") as other:
        assert KEY in repr(other.sql("SELECT action FROM steps").rows())
        ws.redact_secrets()
        assert KEY not in repr(other.sql("SELECT * FROM steps").rows())
    ws.recorder.catch_up()
    assert KEY not in repr(list(ws.recorder.traces))


def test_forks_and_copies_of_a_lineage_read_the_cleaned_step(ws: sag.Workspace) -> None:
    run = ws.resolve("t1")
    child = ws.fork(run, step=1).run_id
    ws.redact_secrets()
    flat = ws.flatten(child).run_id
    for one in (child, flat):
        told = [e.payload["action"] for e in ws.store.read(one, types=("agent.step",))]
        assert told[0].startswith("export TOKEN=[secret:")
    assert "[secret:" in ws.store.get_run(child).goal
    assert ws.verify().ok
    assert ws.redact_secrets().found == []


def test_documents_of_recorded_questions_are_cleaned(tmp_path: Path) -> None:
    with SQLiteEventStore(tmp_path / "log.sqlite") as store:
        store.create_run(Run(run_id="r"))
        inner = put_document(store, {"message": f"use {KEY}", "rest": LONG})
        outer = put_document(store, {"before": inner, "n": 1})
        plain = put_document(store, {"message": "no key here", "rest": LONG})
        for digest in (outer, plain):
            store.append(Event(run_id="r", type="llm.requested", payload={"document": digest}))
        report = redact_log(store)
        assert [one.position for one in report.found] == [2]
        told = [event.payload["document"] for event in store.read("r", lo=2)]
        assert told[0] != outer
        assert told[1] == plain == document_digest(read_document(store, plain))
        cleaned = read_document(store, read_document(store, told[0])["before"])
        assert cleaned["message"].startswith("use [secret:github-token:")
        assert cleaned["rest"] == LONG
        assert store.verify().ok
        assert redact_log(store).found == []
    assert holds(tmp_path, KEY) == []


def test_a_text_before_repair_is_cleaned_too(tmp_path: Path) -> None:
    with sag.open(tmp_path / "ws") as ws:
        ws.add({"task_id": "t", "steps": [{"action": "cat", "observation": f"\ud835 {KEY}"}]})
        ws.redact_secrets()
        (step,) = ws.store.read(ws.resolve("t"), types=("agent.step",))
        raw = ws.store.blob(step.payload["raw"]["observation"]).decode("utf-8", "surrogatepass")
        assert raw.startswith("\ud835 [secret:github-token:")
    assert holds(tmp_path / "ws", KEY) == []


def test_a_redaction_with_a_replacement_is_carried_by_a_merge(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("a.sqlite", "b.sqlite", "c.sqlite")]
    stores = [SQLiteEventStore(path) for path in paths]
    a, b, c = stores
    for store in (a, b):
        store.create_run(Run(run_id="r"))
        store.append(Event(run_id="r", type="agent.step", payload={"action": f"{LONG} {KEY}"}))
    redact_log(a)
    assert merge_log(b, a).redacted == 1  # had the text
    merge_log(c, a)  # had nothing
    merge_log(c, b)
    for store in stores:
        (step,) = store.read("r", types=("agent.step",))
        assert step.payload["action"].startswith(f"{LONG} [secret:github-token:")
        assert step.payload["redacted"] == "a secret"
        assert store.verify().ok
        store.close()
    assert holds(tmp_path, KEY) == []


@pytest.fixture
def harmless_digests(tmp_path: Path) -> Iterator[sag.Workspace]:
    """A workspace whose events refer to texts and documents by digests, and hold no secret."""
    with sag.open(tmp_path / "plain") as ws:
        ws.add({"task_id": "t", "steps": [{"action": "cat", "observation": f"\ud835 {LONG}"}]})
        store, run = ws.store, ws.resolve("t")
        inner = put_document(store, {"message": "no key here", "rest": LONG})
        outer = put_document(store, {"before": inner, "n": 1})
        for digest in (outer, outer, inner):
            store.append(Event(run_id=run, type="llm.requested", payload={"document": digest}))
        yield ws


def test_events_without_secrets_are_left_alone(harmless_digests: sag.Workspace) -> None:
    ws = harmless_digests
    before = texts_of(ws.store)
    for _ in range(2):
        report = ws.redact_secrets()
        assert (report.found, report.events, report.left) == ([], 0, [])
    assert texts_of(ws.store) == before
    assert ws.verify().redacted == 0
    with ws.redacted_copy() as copy:
        (flags,) = copy.sql("SELECT flags FROM steps").rows()
        assert flags == ws.sql("SELECT flags FROM steps").rows()[0]
        assert "redacted" not in (flags[0] or [])
        told = [e.payload for e in copy.store.read(copy.resolve("t"), types=("llm.requested",))]
        assert read_document(copy.store, told[0]["document"])["n"] == 1


def test_redacting_twice_finds_nothing_the_second_time(tmp_path: Path) -> None:
    with sag.open(tmp_path / "ws") as ws:
        steps = [{"action": "cat", "observation": f"\ud835 {text}"} for text in (KEY, LONG)]
        ws.add({"task_id": "t", "steps": steps})
        assert ws.redact_secrets().events == 1
        again = ws.redact_secrets()
        assert (again.found, again.events, again.left) == ([], 0, [])


def test_what_cannot_be_taken_out_is_said(tmp_path: Path) -> None:
    with SQLiteEventStore(tmp_path / "log.sqlite") as store:
        store.create_run(Run(run_id=f"run-{KEY}", label=f"with {OTHER}"))
        report = redact_log(store)
        assert len(report.left) == 2
        assert not any(secret in repr(report.to_dict()) for secret in (KEY, OTHER))


def test_what_stands_beside_events_is_said(tmp_path: Path) -> None:
    with sag.open(tmp_path / "ws") as ws:
        store = ws.store
        store.create_run(Run(run_id="r"))
        store.append(Event(run_id="r", type="note", actor=f"by{KEY}", payload={}))
        put_document(store, {"message": f"never referred to {OTHER} {LONG}"})
        (tmp_path / "ws" / "aliases.toml").write_text(f"# {OTHER}\n", encoding="utf-8")
        report = ws.redact_secrets()
        assert len(report.left) == 3
        assert not any(secret in repr(report.to_dict()) for secret in (KEY, OTHER))
        with ws.redacted_copy(tmp_path / "copy"):
            pass
    assert holds(tmp_path / "copy", OTHER) == []


def test_an_open_reader_keeps_the_tail(tmp_path: Path) -> None:
    path = tmp_path / "log.sqlite"
    with SQLiteEventStore(path) as store:
        store.create_run(Run(run_id="r"))
        store.append(Event(run_id="r", type="agent.step", payload={"action": KEY}))
        reader = sqlite3.connect(path, isolation_level=None)
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM events").fetchone()
        report = redact_log(store)
        assert report.busy
        assert report.to_dict()["busy"]
        assert holds(tmp_path, KEY)
        reader.close()
        again = redact_log(store)
        assert (again.found, again.busy) == ([], False)
        assert holds(tmp_path, KEY) == []


def test_redacted_facts_are_carried_by_a_merge(tmp_path: Path) -> None:
    source = tmp_path / "run.jsonl"
    source.write_text(json.dumps({"task_id": "t", "steps": [{"action": "ls"}]}), encoding="utf-8")
    (tmp_path / f"bad-{KEY}.txt").write_text("words", encoding="utf-8")
    with sag.open(tmp_path / "a") as a, sag.open(tmp_path / "b") as b:
        a.ingest(source, tmp_path / f"bad-{KEY}.txt")
        a.record_outcome("t", "success", detail=f"seen {OTHER}")
        b.merge(tmp_path / "a")
        assert KEY in texts_of(b.store)
        assert OTHER in texts_of(b.store)
        n_redacted = a.redact_secrets().events
        b.merge(tmp_path / "a")
        assert b.verify().redacted == n_redacted > 1
        assert not any(secret in texts_of(b.store) for secret in (KEY, OTHER))
        assert b.verify().ok
        b.merge(tmp_path / "a")
        assert b.verify().redacted == n_redacted
    assert holds(tmp_path / "b", KEY, OTHER) == []


def test_redacting_all_is_all_or_nothing(ws: sag.Workspace) -> None:
    from sag_research.log import ToRedact, redact_all

    run = ws.resolve("t1")
    before = texts_of(ws.store)
    with pytest.raises(UsageError):
        redact_all(ws.store, [ToRedact(run, 2), ToRedact(run, 999)])
    assert texts_of(ws.store) == before


# ---- a copy, and exports of it


EXPORTS: dict[str, Callable[[sag.Workspace, Path], Any]] = {
    "xes": lambda ws, folder: export_xes(ws, folder / "a.xes", texts=True),
    "csv": lambda ws, folder: export_csv(ws, folder / "a.csv", texts=True),
    "cypher": lambda ws, folder: export_cypher(ws, folder / "graph", texts=True),
    "duckdb": lambda ws, folder: ws.export_duckdb(folder / "a.duckdb"),
    "prov": lambda ws, folder: _provenance(ws, folder, "prov-json"),
    "trig": lambda ws, folder: _provenance(ws, folder, "trig"),
    "nquads": lambda ws, folder: _provenance(ws, folder, "nquads"),
    "jsonld": lambda ws, folder: _provenance(ws, folder, "jsonld"),
}


def _provenance(ws: sag.Workspace, folder: Path, format: str) -> None:
    ws.recorder.catch_up()
    write_provenance(list(ws.recorder.traces), format, folder / f"a.{format}")


def test_a_copy_is_the_same_but_for_secrets(ws: sag.Workspace, tmp_path: Path) -> None:
    child = ws.fork("t1", step=1, label=f"after {KEY}").run_id
    ws.record_outcome("t1", "success", detail=f"seen {OTHER}")
    query = "SELECT run_id, step, thought, observation NOT LIKE '%[secret%' FROM steps ORDER BY ALL"
    with ws.redacted_copy(tmp_path / "copy") as copy:
        assert [r[:3] for r in copy.sql(query).rows()] == [r[:3] for r in ws.sql(query).rows()]
        assert copy.verify().ok
        clocks = [(e.run_id, e.position, e.type, e.cause, e.ts) for e in copy.store.tail()]
        assert clocks == [(e.run_id, e.position, e.type, e.cause, e.ts) for e in ws.store.tail()]
        assert copy.store.get_run(child).parent_id == ws.resolve("t1")
        assert copy.sql(
            "SELECT outcome FROM runs WHERE run_id = $r", {"r": ws.resolve("t1")}
        ).rows() == [("success",)]
        assert copy.redact_secrets().found == []
        heads = [ws.store.head(run.run_id).digest for run in ws.store.runs()]
        assert not set(heads) & {copy.store.head(r.run_id).digest for r in copy.store.runs()}
    assert holds(tmp_path / "copy", KEY, OTHER, PASSWORD) == []
    with pytest.raises(UsageError, match="exists"):
        ws.redacted_copy(tmp_path / "copy")


def test_a_temporary_copy_goes_when_it_is_closed(ws: sag.Workspace) -> None:
    copy = ws.redacted_copy()
    folder = copy.path
    assert folder is not None
    assert folder.exists()
    copy.close()
    assert not folder.exists()


def test_a_log_that_was_redacted_is_copied_with_what_stands_in_its_place(
    ws: sag.Workspace, tmp_path: Path
) -> None:
    ws.redact_secrets()
    ws.redact(ws.resolve("t1"), 3, "by hand")
    with ws.redacted_copy(tmp_path / "copy") as copy:
        assert copy.verify().ok
        assert copy.verify().redacted == 0
        payloads = [e.payload for e in copy.store.read(copy.resolve("t1"))]
        assert payloads[1]["action"].startswith("export TOKEN=[secret:")
        assert payloads[2]["redacted"] == "by hand"


@pytest.fixture(scope="module")
def seeded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[sag.Workspace, list[Seed]]]:
    """A workspace in which every kind stands in every variant, among harmless texts."""
    every = list(seeds(seed=4))
    clean = [text for _, text in harmless(seed=4, each=1)]
    records = [
        {"task_id": f"t{n}", "steps": [
            {"thought": clean[n % len(clean)], "action": "cat x", "observation": one.text}]}
        for n, one in enumerate(every)
    ]  # fmt: skip
    with sag.open(tmp_path_factory.mktemp("seeded") / "ws") as ws:
        ws.add(records)
        with ws.redacted_copy() as copy:
            yield copy, every


@pytest.mark.parametrize("name", EXPORTS)
def test_an_export_of_a_seeded_set_holds_none(
    seeded: tuple[sag.Workspace, list[Seed]], tmp_path: Path, name: str
) -> None:
    copy, every = seeded
    EXPORTS[name](copy, tmp_path)
    text = "\n".join(
        path.read_bytes().decode("latin-1")
        for path in sorted(tmp_path.rglob("*"))
        if path.is_file()
    )
    assert len(text) > 10_000
    left = [(one.kind, one.variant) for one in every if _stands(one.secret, text)]
    assert left == []


def _stands(secret: str, text: str) -> bool:
    middle = secret.split("\n")[1] if "\n" in secret else secret
    return middle in text


def test_a_seeded_set_is_clean_step_by_step(seeded: tuple[sag.Workspace, list[Seed]]) -> None:
    copy, every = seeded
    rows = dict(copy.sql("SELECT split_part(run_id, '~', 1), observation FROM steps").rows())
    left = [
        (one.kind, one.variant) for n, one in enumerate(every) if remains(rows[f"t{n}"], one.secret)
    ]
    assert left == []
    thoughts = {row[0] for row in copy.sql("SELECT thought FROM steps").rows()}
    assert thoughts == {text for _, text in harmless(seed=4, each=1)}


# ---- scanning


def test_files_of_any_kind_are_looked_through(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    told = record() | {"extra": 1}
    told.pop("extra")
    (folder / "runs.jsonl").write_text(json.dumps(told), encoding="utf-8")
    (folder / "notes.txt").write_text(f"first\nsecond {OTHER}\n", encoding="utf-8")
    (folder / "clean.txt").write_text("nothing to see\n", encoding="utf-8")
    report = scan([folder])
    assert report.files == 3
    places = {(one.file, one.step, one.field, one.kind) for one in report.found}
    assert ("runs.jsonl", 0, "action", "github-token") in places
    assert ("notes.txt", None, "line 2", "npm-token") in places
    assert not any(file == "clean.txt" for file, *_ in places)
    assert not any(secret in repr(report.to_dict()) for secret in (KEY, OTHER, PASSWORD))


def test_a_workspace_is_looked_through_by_its_log(ws: sag.Workspace, tmp_path: Path) -> None:
    found = scan([tmp_path / "ws"]).found
    assert {one.kind for one in found} == {"github-token", "npm-token", "password"}
    assert all(one.file.endswith("log.sqlite") and one.position for one in found)


def test_the_log_file_holds_no_trace_in_its_tail(ws: sag.Workspace, tmp_path: Path) -> None:
    ws.redact_secrets()
    tail = tmp_path / "ws" / "log.sqlite-wal"
    assert not tail.exists() or KEY.encode() not in tail.read_bytes()
    with sqlite3.connect(tmp_path / "ws" / "log.sqlite") as db:
        names = "SELECT group_concat(uid || label) FROM runs"
        assert KEY not in db.execute(names).fetchone()[0]


@pytest.mark.timeout(900)
def test_real_trajectories_flag_little(real_data: Path) -> None:
    """None is known in them: what is flagged is the price of looking, and is looked at here."""
    small = ["sweagent_demos", "taubench", "intercode"]
    report = scan([real_data / name for name in small if (real_data / name).exists()])
    assert report.files > 0
    certain = [
        one for one in report.found if one.kind not in ("password", "secret", "url-password")
    ]
    assert certain == []
