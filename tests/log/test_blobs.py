"""Long texts: stored once, compressed, checked when read."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from sag_research.errors import BadPayloadError, StoreError, UsageError
from sag_research.log import SQLiteEventStore, _blobs, _reading, _writing
from sag_research.model import Event, Run

LONG = "a text of more than five hundred bytes, again and again " * 100


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.sqlite"


@pytest.fixture
def store(path: Path) -> Iterator[SQLiteEventStore]:
    with SQLiteEventStore(path) as store:
        store.create_run(Run(run_id="r"))
        yield store


def note(payload: dict[str, Any]) -> Event:
    return Event(run_id="r", type="note.taken", payload=payload)


def table(path: Path) -> list[tuple[bytes, int, int, bytes]]:
    with closing(sqlite3.connect(path)) as db:
        return db.execute("SELECT digest, size, enc, data FROM blobs ORDER BY id").fetchall()


def test_a_text_is_stored_once_whoever_writes_it(store: SQLiteEventStore, path: Path) -> None:
    store.append(note({"a": LONG, "b": [LONG]}))
    store.create_run(Run(run_id="s", goal=LONG))
    with SQLiteEventStore(path) as other:
        other.append(note({"c": LONG}))
        assert other.put_blob(LONG.encode()) == table(path)[0][0].hex()
    [(_, size, enc, data)] = table(path)
    assert size == len(LONG)
    assert enc == 1
    assert len(data) < size / 10
    assert [e.payload for e in store.read("r", lo=2)] == [{"a": LONG, "b": [LONG]}, {"c": LONG}]
    assert store.get_run("s").goal == LONG


def test_what_does_not_shrink_is_stored_as_it_is(store: SQLiteEventStore, path: Path) -> None:
    data = os.urandom(2_000)
    digest = store.put_blob(data)
    assert table(path) == [(bytes.fromhex(digest), 2_000, 0, data)]
    assert store.blob(digest) == data


@pytest.mark.parametrize("data", [b"", b"x", b"\x00" * 100_000, bytes(range(256)) * 10])
def test_any_bytes_come_back(store: SQLiteEventStore, path: Path, data: bytes) -> None:
    digest = store.put_blob(data)
    with SQLiteEventStore(path) as other:
        assert other.blob(digest) == data


def test_a_missing_blob_is_an_error(store: SQLiteEventStore) -> None:
    with pytest.raises(StoreError, match="blob abababababab is missing"):
        store.blob("ab" * 32)
    with pytest.raises(UsageError, match="'no digest'"):
        store.blob("no digest")


@pytest.mark.parametrize(
    "harm",
    [
        "DELETE FROM blobs WHERE digest = ?",
        "UPDATE blobs SET data = NULL WHERE digest = ?",
        "UPDATE blobs SET data = x'00' WHERE digest = ?",
        "UPDATE blobs SET data = x'fffe', enc = 0 WHERE digest = ?",  # no UTF-8
    ],
)
def test_a_bad_text_costs_its_event_alone(store: SQLiteEventStore, path: Path, harm: str) -> None:
    for number in range(4):
        store.append(note({"text": f"{number} {LONG}"}))
    digest = table(path)[2][0]
    with closing(sqlite3.connect(path)) as db:
        assert db.execute(harm, (digest,)).rowcount == 1
        db.commit()
    with SQLiteEventStore(path) as fresh:
        for events in (fresh.read("r"), fresh.tail()):
            before = [next(events).position for _ in range(3)]
            assert before == [1, 2, 3]
            with pytest.raises(StoreError, match=r"event 4 of run 'r' \(number 4 of the log\)"):
                next(events)
        assert [e.position for e in fresh.tail(after=4)] == [5]
        assert [e.position for e in fresh.read("r", lo=5)] == [5]
        assert [(p.run, p.position) for p in fresh.verify().problems] == [("r", 4)]


def test_a_body_that_is_no_json_costs_its_event_alone(store: SQLiteEventStore, path: Path) -> None:
    store.append(note({"n": 1}))
    with closing(sqlite3.connect(path)) as db:
        db.execute("UPDATE events SET body = x'7b22' WHERE pos = 2")
        db.commit()
    events = store.read("r")
    assert next(events).position == 1
    with pytest.raises(StoreError, match="event 2 of run 'r'"):
        next(events)


def test_a_run_whose_goal_is_gone_costs_its_goal_only(store: SQLiteEventStore, path: Path) -> None:
    store.create_run(Run(run_id="s", goal=LONG, task_id="t"))
    with closing(sqlite3.connect(path)) as db:
        db.execute("DELETE FROM blobs")
        db.commit()
    with SQLiteEventStore(path) as fresh:
        run = fresh.get_run("s")
        assert (run.goal, run.task_id) == ("(unreadable; see `sag verify`)", "t")
        assert not fresh.verify("s").ok


def test_refused_events_leave_no_text_behind(store: SQLiteEventStore, path: Path) -> None:
    with pytest.raises(BadPayloadError):
        store.append_many([note({"a": LONG}), note({"b": {1}})])
    assert table(path) == []
    store.append(note({"a": LONG}))
    assert len(table(path)) == 1


def test_small_caches_change_nothing(
    store: SQLiteEventStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_blobs, "CACHE_BYTES", 10_000)
    monkeypatch.setattr(_blobs, "KNOWN", 3)
    monkeypatch.setattr(_writing, "KNOWN_TIPS", 2)
    monkeypatch.setattr(_reading, "PAGE", 7)
    for name in "abc":
        store.create_run(Run(run_id=name))
    events = [
        Event(run_id="abc"[n % 3], type="note.taken", payload={"text": f"{n % 11} {LONG}"})
        for n in range(60)
    ]
    written = store.append_many(events[:40]) + [store.append(event) for event in events[40:]]
    assert list(store.tail(after=4)) == written
    assert len(table(path)) == 11
    for name in "abc":
        assert list(store.read(name, lo=2)) == [e for e in written if e.run_id == name]
    assert store._blobs._bytes == sum(map(len, store._blobs._texts.values())) <= 10_000
    assert store.verify().ok
