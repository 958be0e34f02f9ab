"""Many events at a time: batches of all sizes, and pages whose texts lie anywhere."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from sag_research.errors import StoreError
from sag_research.log import SQLiteEventStore
from sag_research.model import Event, Run

LONG = "a text of more than five hundred bytes, again and again " * 20


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.sqlite"


@pytest.fixture
def store(path: Path) -> Iterator[SQLiteEventStore]:
    with SQLiteEventStore(path) as opened:
        opened.create_run(Run(run_id="r"))
        yield opened


def mixed(count: int, rare: int) -> list[Event]:
    """Events of which every ``rare``-th has what most have not: a cause, a frame, clocks."""
    plain = [
        Event(run_id="r", type="note.taken", payload={"n": n}, ts=float(n)) for n in range(count)
    ]
    kinds: list[dict[str, Any]] = [
        {"cause": 1},
        {"frame": "f"},
        {"type": "agent.step", "payload": {"started": 1.5, "thought": LONG}},
        {"type": "agent.step", "payload": {"seconds": 0.25}},
    ]
    return [
        replace(event, **kinds[n // rare % len(kinds)]) if n % rare == rare - 1 else event
        for n, event in enumerate(plain)
    ]


@pytest.mark.parametrize("count", [1, 2, 49, 50, 51, 99, 100, 101, 257])
@pytest.mark.parametrize("rare", [1, 7, 1_000])
def test_a_batch_is_what_its_events_are_one_by_one(
    store: SQLiteEventStore, count: int, rare: int
) -> None:
    events = mixed(count, rare)
    with SQLiteEventStore(":memory:") as other:
        other.create_run(Run(run_id="r"))
        singles = [other.append(event) for event in events]
    written = store.append_many(events)
    assert written == singles == list(store.read("r", lo=2))
    assert [event.seq for event in written] == list(range(2, count + 2))
    assert store.verify().ok


def test_a_payload_is_not_changed_by_writing_it(store: SQLiteEventStore) -> None:
    inner = {"texts": [LONG, {"again": LONG}], "short": ["x", ("y", 1)]}
    payload = {"a": inner, "thought": LONG, "started": 1.0}
    before = repr(payload)
    store.append(Event(run_id="r", type="agent.step", payload=payload))
    assert repr(payload) == before
    assert payload["a"] is inner


def shuffled(store: SQLiteEventStore) -> list[Event]:
    """Events whose texts were written before, in another order, some of them together."""
    texts = [f"{n} {LONG}" for n in range(60)]
    order = random.Random(3)
    for text in order.sample(texts, 40):
        store.put_blob(text.encode())
    payloads = [{"t": order.choice(texts), "more": [order.choice(texts)]} for _ in range(50)]
    return store.append_many(
        [Event(run_id="r", type="note.taken", payload=payload) for payload in payloads]
    )


def test_texts_are_found_wherever_they_lie(store: SQLiteEventStore, path: Path) -> None:
    written = shuffled(store)
    with SQLiteEventStore(path, read_only=True) as fresh:
        for _ in range(2):  # from the file, then from memory
            assert list(fresh.read("r", lo=2)) == written
    first = written[-1].payload["t"]
    with SQLiteEventStore(path, read_only=True) as fresh:
        assert next(fresh.read("r", lo=written[-1].position or 0)).payload["t"] == first


@pytest.mark.parametrize(
    "harm",
    [
        "DELETE FROM blobs WHERE id = (SELECT max(id) FROM blobs)",
        "UPDATE blobs SET data = NULL WHERE id = (SELECT max(id) FROM blobs)",
        "UPDATE blobs SET data = x'28b52ffd00' WHERE id = (SELECT max(id) FROM blobs)",
        "UPDATE blobs SET data = x'ff41', enc = 0 WHERE id = (SELECT max(id) FROM blobs)",
    ],
    ids=["gone", "empty", "damaged", "no text"],
)
def test_a_lost_text_costs_the_events_that_hold_it(
    store: SQLiteEventStore, path: Path, harm: str
) -> None:
    written = shuffled(store)
    with closing(sqlite3.connect(path)) as db:
        digest = db.execute("SELECT digest FROM blobs ORDER BY id DESC LIMIT 1").fetchone()[0]
        lost = store.blob(digest.hex()).decode()
        db.execute(harm)
        db.commit()
    hit = [lost in (e.payload["t"], *e.payload["more"]) for e in written]
    assert 0 < sum(hit) < len(hit)
    with SQLiteEventStore(path, read_only=True) as fresh:
        found = list(fresh.tail(after=1, strict=False))
        assert ["unreadable" in e.payload for e in found] == hit
        assert [e for e in found if "unreadable" not in e.payload] == [
            e for e, bad in zip(written, hit, strict=True) if not bad
        ]
        whole: list[Event] = []
        with pytest.raises(StoreError, match="missing or damaged"):
            whole.extend(iter_into(fresh, whole))
        assert whole == written[: hit.index(True)]


def iter_into(store: SQLiteEventStore, seen: list[Event]) -> list[Event]:
    for event in store.tail(after=1):
        seen.append(event)
    return []


@pytest.mark.parametrize(
    "body", ['{"a":{"\\u0000":5}}', '{"a":{"\\u0000":"xyz"}}', "[1]", '{"\\u0000":"00"}', "{"]
)
def test_a_body_that_is_none_costs_itself(store: SQLiteEventStore, path: Path, body: str) -> None:
    written = store.append_many(mixed(3, 1_000))
    with closing(sqlite3.connect(path)) as db:
        db.execute("UPDATE events SET body = ? WHERE pos = 3", (body.encode(),))
        db.commit()
    found = list(store.tail(after=1, strict=False))
    assert [found[0], found[2]] == [written[0], written[2]]
    assert list(found[1].payload) == ["unreadable"]
    assert not store.verify().ok
