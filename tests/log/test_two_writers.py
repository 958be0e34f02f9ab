"""Several stores and threads on one log, in one process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sag_research.errors import ConflictError, RunExistsError
from sag_research.log import SQLiteEventStore
from sag_research.model import WORKSPACE_RUN, Event, Run
from tests.conformance.event_store import undone

LONG = "a text of more than five hundred bytes " * 20


def note(number: int, run_id: str = "r") -> Event:
    return Event(run_id=run_id, type="note.taken", payload={"n": number})


def numbers(store: SQLiteEventStore, run_id: str = "r") -> list[int]:
    return [event.payload["n"] for event in store.read(run_id, types=["note.taken"])]


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[SQLiteEventStore, SQLiteEventStore]]:
    with (
        SQLiteEventStore(tmp_path / "log.sqlite") as first,
        SQLiteEventStore(tmp_path / "log.sqlite") as second,
    ):
        first.create_run(Run(run_id="r"))
        yield first, second


Pair = tuple[SQLiteEventStore, SQLiteEventStore]


def test_writers_in_turn_leave_no_gap(pair: Pair) -> None:
    """Each remembers the end of the run; the other's events must make it look again."""
    for number in range(40):
        store = pair[number % 3 % 2]
        assert store.append(note(number)).position == number + 2
    assert numbers(pair[0]) == numbers(pair[1]) == list(range(40))
    assert pair[0].verify().ok


def test_a_cause_may_be_what_the_other_wrote(pair: Pair) -> None:
    for number in range(6):
        store = pair[number % 2]
        cause = store.head("r").position
        event = Event(run_id="r", type="note.taken", payload={"n": number}, cause=cause)
        assert store.append(event).cause == number + 1
    assert pair[0].verify().ok


def test_a_short_event_is_one_statement(pair: Pair) -> None:
    store, other = pair
    store.append(note(0))
    assert len(statements(store, lambda: store.append(note(1)))) == 1
    other.append(note(2))
    assert len(statements(store, lambda: store.append(note(3)))) > 1
    with store.transaction():
        one = statements(store, lambda: store.append(note(4)))
    assert [text for text in one if "SAVEPOINT" in text] == []
    batch = statements(store, lambda: store.append_many([note(5), note(6)]))
    assert sum("SELECT" in text for text in batch) <= 1
    assert numbers(other) == list(range(7))
    assert [e.seq for e in store.tail()] == list(range(1, 9))
    assert store.verify().ok


def statements(store: SQLiteEventStore, work: Callable[[], object]) -> list[str]:
    seen: list[str] = []
    store._db.set_trace_callback(seen.append)
    work()
    store._db.set_trace_callback(None)
    return seen


def test_a_batch_may_be_made_by_a_generator_that_writes(pair: Pair) -> None:
    store = pair[0]

    def notes() -> Iterator[Event]:
        for number in range(3):
            store.append(note(10 + number))
            yield note(number)

    written = store.append_many(notes())
    assert list(store.read("r", lo=written[0].position or 0)) == written
    assert [e.position for e in store.tail()] == list(range(1, 8))
    assert store.verify().ok


def test_writers_in_turn_by_batch_and_fork(pair: Pair) -> None:
    first, second = pair
    first.append(note(0))
    second.append_many([note(1), note(2)])
    first.append(note(3))
    second.fork("r", at=3, run_id="c")
    first.append(note(4, "c"))
    second.append(note(5, "c"))
    first.append(note(6))
    assert numbers(second) == [0, 1, 2, 3, 6]
    assert numbers(second, "c") == [0, 1, 4, 5]
    assert second.verify().ok


def test_what_one_rolled_back_the_other_never_sees(pair: Pair) -> None:
    first, second = pair
    with undone(first):
        first.append(Event(run_id="r", type="new.type", payload={"text": LONG}))
    second.append(Event(run_id="r", type="other.type", actor="new", payload={"text": LONG}))
    first.append(Event(run_id="r", type="new.type", actor="other.type", payload={"text": LONG}))
    for store in pair:
        events = list(store.read("r", lo=2))
        assert [(e.type, e.actor) for e in events] == [
            ("other.type", "new"), ("new.type", "other.type"),
        ]  # fmt: skip
        assert store.verify().ok


def test_names_are_shared(pair: Pair) -> None:
    for number in range(20):
        pair[number % 2].append(
            Event(run_id="r", type=f"type.{number % 5}", actor=f"type.{number % 3}", frame="type.1")
        )
    events = list(pair[0].read("r", lo=2))
    assert [e.type for e in events] == [f"type.{n % 5}" for n in range(20)]
    assert [e.actor for e in events] == [f"type.{n % 3}" for n in range(20)]
    assert {e.frame for e in events} == {"type.1"}


def test_the_expected_position_sees_the_other_writer(pair: Pair) -> None:
    first, second = pair
    first.append(note(0), expected=2)
    second.append(note(1), expected=3)
    with pytest.raises(ConflictError) as caught:
        first.append(note(2), expected=3)
    assert caught.value.winner == list(second.read("r"))[2]
    first.append(note(2), expected=4)
    assert numbers(second) == [0, 1, 2]


def test_a_run_is_created_by_one_of_two(pair: Pair) -> None:
    pair[0].create_run(Run(run_id="s", goal="first"))
    with pytest.raises(RunExistsError):
        pair[1].create_run(Run(run_id="s", goal="second"))
    assert pair[1].get_run("s").goal == "first"
    for store in pair:
        store.append(note(1, WORKSPACE_RUN))
    assert [e.type for e in pair[0].read(WORKSPACE_RUN)] == [
        "run.created", "note.taken", "note.taken",
    ]  # fmt: skip


def test_a_reader_sees_whole_transactions(pair: Pair) -> None:
    writer, reader = pair
    with writer.transaction():
        for number in range(5):
            writer.append(note(number))
            assert numbers(writer) == list(range(number + 1))
            assert numbers(reader) == []
            assert reader.last_seq() == 1
            assert reader.verify().ok
    assert numbers(reader) == list(range(5))


def test_half_read_events_hold_up_nobody(pair: Pair) -> None:
    writer, reader = pair
    writer.append_many([note(number) for number in range(2_500)])
    reading, tailing = reader.read("r"), reader.tail()
    assert next(reading).position == next(tailing).position == 1
    writer.append_many([note(-number) for number in range(1, 2_000)])
    assert writer._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0
    assert sum(1 for _ in reading) == sum(1 for _ in tailing) == 2_500


def test_threads_share_one_store(tmp_path: Path) -> None:
    with SQLiteEventStore(tmp_path / "log.sqlite") as store:
        store.create_run(Run(run_id="r"))
        store.create_run(Run(run_id="s"))

        def write(thread: int) -> None:
            for number in range(50):
                with store.transaction():
                    store.append(note(thread * 100 + number))
                    store.append(note(thread * 100 + number, "s"))
                    assert numbers(store) == numbers(store, "s")

        with ThreadPoolExecutor(4) as threads:
            assert list(threads.map(write, range(4), timeout=60)) == [None] * 4
        assert sorted(numbers(store)) == [t * 100 + n for t in range(4) for n in range(50)]
        assert store.verify().ok


def test_following_yields_what_others_append(pair: Pair) -> None:
    writer, reader = pair
    stop = threading.Event()
    events = reader.follow(1, interval=0.001, stop=stop)
    for number in range(3):
        writer.append_many([note(number), note(number + 10)])
        assert [next(events).payload["n"] for _ in range(2)] == [number, number + 10]
    stop.set()
    assert list(events) == []
