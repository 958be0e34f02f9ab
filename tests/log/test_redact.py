"""A redaction takes the content, and leaves the chain, the clocks and a trace."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from sag_research.errors import RunNotFoundError, StoreError, UsageError
from sag_research.log import (
    SQLiteEventStore,
    document_digest,
    has_document,
    put_document,
    read_document,
)
from sag_research.log import _canonical as canonical
from sag_research.model import WORKSPACE_RUN, Event, Run
from sag_research.warehouse import Warehouse

SECRET = "hunter2-" + "".join(random.Random(1).choices("abcdefghijkmnp23456789", k=700))
SHARED = "a text that two events hold " * 30


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "log.sqlite"
    with SQLiteEventStore(path) as store:
        store.create_run(Run(run_id="r", goal="g"))
        step(store, thought="first", action=SHARED, observation="o")
        step(store, thought="short-secret-77", action=SHARED, observation=SECRET, seconds=0.5)
        step(store, thought="last", action="ls", observation="o")
        store.fork("r", at=3, run_id="child")
    return path


def step(store: SQLiteEventStore, **payload: Any) -> Event:
    return store.append(Event(run_id="r", type="agent.step", payload=payload))


def digest(text: str) -> str:
    return canonical.blob_digest(text.encode()).hex()


def test_a_redacted_event_says_why_and_keeps_its_place(path: Path) -> None:
    with SQLiteEventStore(path) as store:
        before = {run: store.head(run) for run in ("r", "child")}
        done = store.redact("r", 3, "a password")
        assert (done.removed, done.kept) == (1, 1)
        assert done.event.run_id == WORKSPACE_RUN
        assert done.event.type == "body.redacted"
        assert done.event.payload == {"run": "r", "position": 3, "reason": "a password"}
        expected = {"redacted": "a password", "seconds": 0.5}
        for events in (store.read("r"), store.read("child"), store.tail()):
            assert [e.payload for e in events if (e.run_id, e.position) == ("r", 3)] == [expected]
        assert {run: store.head(run) for run in before} == before
        assert store.verify().to_dict() == {"ok": True, "runs": 3, "problems": [], "redacted": 1}
        assert store.verify("child").ok
    with SQLiteEventStore(path, read_only=True) as store:
        assert next(store.read("child", lo=3)).payload == expected
        assert store.verify().ok


def test_only_texts_of_its_own_go(path: Path) -> None:
    with SQLiteEventStore(path) as store:
        assert store.blob(digest(SECRET)) == SECRET.encode()
        store.redact("r", 3)
        with pytest.raises(StoreError, match="missing"):
            store.blob(digest(SECRET))
        assert next(store.read("r", lo=2)).payload["action"] == SHARED
        done = store.redact("r", 2)  # now it is the last that holds the shared text
        assert (done.removed, done.kept) == (1, 0)
        with pytest.raises(StoreError, match="missing"):
            store.blob(digest(SHARED))
        assert store.verify().ok


def test_nothing_of_it_is_left_on_the_disk(tmp_path: Path) -> None:
    """Neither in freed space of the file, nor in the write-ahead log."""
    words = random.Random(2)
    secrets = [f"{words.getrandbits(4_000):x}" for _ in range(20)]
    with SQLiteEventStore(tmp_path / "log.sqlite") as store:
        store.create_run(Run(run_id="r"))
        for n, secret in enumerate(secrets):
            step(store, thought=f"short-secret-{n}", action="ls " * 100, raw=store.put_blob(
                b"\xff" + secret.encode()), observation=secret)  # fmt: skip
        assert b"short-secret-19" in on_disk(tmp_path)
        store.checkpoint()
        for position in range(2, len(secrets) + 2):
            assert store.redact("r", position).removed == 2
        assert b"short-secret" not in on_disk(tmp_path)
        assert [s for s in secrets if s[100:140].encode() in on_disk(tmp_path)] == []
        store.append(Event(run_id="r", type="note.taken", payload={"text": "short-secret-20"}))
        store.redact("r", len(secrets) + 2)
        assert b"short-secret" not in on_disk(tmp_path)


def on_disk(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in sorted(folder.iterdir()))


def test_a_store_alone_knows_what_it_redacted(path: Path) -> None:
    with SQLiteEventStore(path) as store:
        note = Event(run_id="r", type="note.taken", payload={"text": "z" + SECRET})
        store.redact("r", store.append(note).position or 0)
        again = store.append(note)
        assert next(store.read("r", lo=again.position or 0)) == again
        assert store.verify().ok


def test_a_reader_does_not_hold_a_redaction_up(path: Path) -> None:
    with SQLiteEventStore(path) as store, closing(sqlite3.connect(path)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM events").fetchone()
        store.redact("r", 3)
        assert store.verify().ok
        assert store._db.execute("PRAGMA busy_timeout").fetchone() == (30_000,)


def test_a_redacted_text_written_again_is_stored_again(path: Path) -> None:
    with SQLiteEventStore(path) as store, SQLiteEventStore(path) as other:
        other.append(Event(run_id="child", type="note.taken", payload={"text": "x" + SECRET}))
        store.append(Event(run_id="child", type="note.taken", payload={"text": "y" + SECRET}))
        store.redact("r", 3)
        store.redact("child", 5)
        again = step(store, observation=SECRET)
        assert next(store.read("r", lo=again.position or 0)).payload["observation"] == SECRET
        # the other store had written this text and must not believe that it is still there
        more = other.append(
            Event(run_id="child", type="note.taken", payload={"text": "x" + SECRET})
        )
        assert next(store.read("child", lo=more.position or 0)).payload["text"] == "x" + SECRET
        assert store.verify().ok


def test_what_cannot_be_redacted_is_refused(path: Path) -> None:
    with SQLiteEventStore(path) as store:
        for position in (-1, 0, 5, 10**6):
            with pytest.raises(UsageError, match="no position"):
                store.redact("r", position)
        with pytest.raises(RunNotFoundError):
            store.redact("nobody", 1)
        trace = store.redact("r", 3).event
        with pytest.raises(UsageError, match="no body"):
            store.redact("child", 3)
        with pytest.raises(UsageError, match="trace"):
            store.redact(WORKSPACE_RUN, trace.position or 0)
        assert [e.type for e in store.read(WORKSPACE_RUN)] == ["run.created", "body.redacted"]


def test_an_inherited_event_is_redacted_where_it_stands(path: Path) -> None:
    with SQLiteEventStore(path) as store:
        assert store.redact("child", 2, "x").event.payload["run"] == "r"
        assert next(store.read("r", lo=2)).payload == {"redacted": "x"}
        store.redact("child", 4, "the intervention")
        assert next(store.read("child", lo=4)).payload == {"redacted": "the intervention"}
        assert store.verify().ok


def test_a_run_whose_description_is_redacted_is_still_a_run(path: Path) -> None:
    with SQLiteEventStore(path) as store:
        store.redact("r", 1, "the goal names a person")
        assert [run.goal for run in store.runs()] == ["", ""]
        assert store.verify().ok


def test_a_redaction_undone_leaves_all_as_it_was(path: Path) -> None:
    with SQLiteEventStore(path) as store:

        def fail() -> None:
            with store.transaction():
                store.redact("r", 3, "never")
                assert next(store.read("r", lo=3)).payload["redacted"] == "never"
                raise KeyError

        with pytest.raises(KeyError):
            fail()
        assert next(store.read("r", lo=3)).payload["observation"] == SECRET
        store.redact("r", 2, "instead")
        assert next(store.read("r", lo=2)).payload == {"redacted": "instead"}
        assert next(store.read("r", lo=3)).payload["observation"] == SECRET
        assert store.verify().ok


def test_documents_go_with_the_only_event_that_needs_them(tmp_path: Path) -> None:
    with SQLiteEventStore(tmp_path / "log.sqlite") as store:
        store.create_run(Run(run_id="r"))
        first = put_document(store, {"message": SHARED})
        second = put_document(store, {"previous": first, "message": SECRET})
        third = put_document(store, {"previous": first, "message": "other"})
        blob = store.put_blob(b"\xff raw")
        for payload in ({"request": second, "raw": {"thought": blob}}, {"request": third}):
            store.append(Event(run_id="r", type="llm.requested", payload=payload))
        done = store.redact("r", 2)
        # the second document, its text and the raw bytes; the first and its text serve the third
        assert (done.removed, done.kept) == (3, 2)
        assert not has_document(store, second)
        assert not has_document(store, blob)
        assert read_document(store, third) == {"previous": first, "message": "other"}
        assert read_document(store, first) == {"message": SHARED}
        assert document_digest({"message": SHARED}) == first


def test_a_long_reason_is_read_back(path: Path) -> None:
    with SQLiteEventStore(path) as store:
        store.redact("r", 3, SHARED)
    with SQLiteEventStore(path) as store:
        assert next(store.read("r", lo=3)).payload["redacted"] == SHARED
        assert store.verify().ok


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_warehouse_takes_a_redacted_step(path: Path, when: str) -> None:
    with SQLiteEventStore(path) as store:
        warehouse = Warehouse(path.parent / "warehouse", store)
        if when == "after":
            warehouse.sync()
        store.redact("r", 3, "a password")
        warehouse.sync()
        query = "SELECT step, thought, seconds FROM steps WHERE run_id = 'r' ORDER BY step"
        rows = warehouse.sql(query).rows()
        assert [row[0] for row in rows] == [0, 1, 2]
        assert rows[1][2] == 0.5
        warehouse.rebuild()
        assert warehouse.sql(query).rows()[1][1] == ""
        assert len(warehouse.sql("SELECT * FROM events WHERE type = 'body.redacted'").rows()) == 1
        warehouse.close()
