"""The envelope of runs, and ids and errors at the edge of the store."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from sag_research.errors import (
    BadPayloadError,
    ConflictError,
    RunExistsError,
    RunNotFoundError,
    SagError,
    UsageError,
)
from sag_research.log import SQLiteEventStore
from sag_research.model import Event, Run


@pytest.fixture
def store() -> Iterator[SQLiteEventStore]:
    with SQLiteEventStore(":memory:") as store:
        yield store


def test_runs_come_in_the_order_of_writing_with_their_forks(store: SQLiteEventStore) -> None:
    store.create_run(Run(run_id="b", goal="of b", repo="o/p"))
    store.create_run(Run(run_id="a", goal="of a"))
    store.append(Event(run_id="b", type="note.taken"))
    store.fork("b", at=1, run_id="b1")
    store.fork("b1", run_id="b2", label="deep")
    store.fork("b2", at=1, run_id="b3")
    runs = store.runs()
    assert [(r.run_id, r.parent_id, r.fork_position, r.goal, r.repo) for r in runs] == [
        ("b", None, 0, "of b", "o/p"),
        ("a", None, 0, "of a", None),
        ("b1", "b", 1, "of b", "o/p"),
        ("b2", "b1", 2, "of b", "o/p"),
        ("b3", "b2", 1, "of b", "o/p"),
    ]
    assert [store.get_run(run.run_id) for run in runs] == runs
    assert store.get_runs(["b2", "ghost", "a"]) == {"b2": runs[3], "a": runs[1]}
    assert store.get_runs([]) == {}
    assert [e.run_id for e in store.read("b3")] == ["b", "b3"]


def test_many_runs_are_found_by_id(store: SQLiteEventStore) -> None:
    ids = [f"r{number}" for number in range(1_100)]
    with store.transaction():
        for run_id in ids:
            store.create_run(Run(run_id=run_id))
    assert [run.run_id for run in store.runs()] == ids
    assert store.get_runs(ids) == {run.run_id: run for run in store.runs()}


def test_a_fork_is_made_now_and_its_root_then(store: SQLiteEventStore) -> None:
    store.create_run(Run(run_id="r", created_at=0.0, source_id="s", attempt=2, label="l"))
    child = store.fork("r", run_id="c")
    assert store.get_run("r").created_at == 0.0
    assert child.created_at is not None
    assert child.created_at > 1_700_000_000
    assert (child.source_id, child.attempt, child.label) == (None, None, "")


@pytest.mark.parametrize("seconds", [0.0, 1.5, 1_700_000_000.25, 1_700_000_000.1234567, -2.25, 7])
def test_times_are_kept_to_the_last_digit(store: SQLiteEventStore, seconds: float) -> None:
    store.create_run(Run(run_id="r", created_at=seconds))
    store.append(Event(run_id="r", type="note.taken", ts=seconds))
    assert store.get_run("r").created_at == seconds
    [_, event] = store.read("r")
    assert event.ts == seconds
    store.create_run(Run(run_id="copy"))
    assert store.append(Event(run_id="copy", type="note.taken", ts=event.ts)).ts == seconds


@pytest.mark.parametrize(
    "fields",
    [
        {"run_id": ""},
        {"run_id": "half \ud800"},
        {"run_id": "nul\x00"},
        {"run_id": 5},
        {"label": None},
        {"label": "\ud800"},
        {"source_id": 7},
        {"attempt": "1"},
        {"attempt": 1.0},
        {"attempt": True},
        {"attempt": 2**63},
        {"parent_id": "p"},
    ],
)
def test_an_envelope_that_would_not_come_back_is_refused(
    store: SQLiteEventStore, fields: dict[str, Any]
) -> None:
    with pytest.raises(UsageError):
        store.create_run(Run(**{"run_id": "r", **fields}))
    assert store.last_seq() == 0
    assert store.runs() == []


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("type", ""), ("type", None), ("type", 5), ("type", "\ud800"), ("type", "a\x00"),
        ("type", ["note.taken"]), ("actor", ""), ("actor", None), ("frame", ""), ("frame", 5),
        ("frame", "\udfff"), ("ts", float("nan")), ("ts", float("inf")), ("ts", 1e12), ("ts", "1"),
        ("ts", True),
    ],
)  # fmt: skip
def test_an_event_that_would_not_come_back_is_refused(
    store: SQLiteEventStore, field: str, value: Any
) -> None:
    store.create_run(Run(run_id="r"))
    with pytest.raises(BadPayloadError) as caught:
        store.append(Event(**{"run_id": "r", "type": "note.taken", field: value}))
    assert caught.value.path == field
    assert store.last_seq() == 1
    assert store.append(Event(run_id="r", type="note.taken")).position == 2
    assert store.verify().ok


def test_a_hostile_id_is_an_id_like_any_other(store: SQLiteEventStore) -> None:
    for run_id in ("a'; DROP TABLE runs; --", "<script>", "../../x", "\x1b[31m", "ü~é", "%00"):
        store.create_run(Run(run_id=run_id))
        assert store.get_run(run_id).run_id == run_id
        assert store.head(store.fork(run_id).run_id).position == 2
    assert store.verify().runs == 12


@pytest.mark.parametrize("run_id", ["half \ud800", "\udc80"])
def test_an_id_that_no_run_can_have_is_refused_in_our_words(
    store: SQLiteEventStore, run_id: str
) -> None:
    for attempt in (
        lambda: store.read(run_id),
        lambda: store.get_run(run_id),
        lambda: store.append(Event(run_id=run_id, type="note.taken")),
        lambda: store.fork(run_id),
        lambda: store.head(run_id),
        lambda: store.has_run(run_id),
    ):
        with pytest.raises(SagError):
            attempt()


def test_numbers_out_of_a_table_are_taken(store: SQLiteEventStore) -> None:
    """Positions come out of DataFrames as NumPy's own integers."""
    store.create_run(Run(run_id="r"))
    events = [Event(run_id="r", type="agent.step", payload={"n": n}) for n in range(5)]
    store.append_many(events, expected=np.int64(2))
    assert store.fork("r", at=np.int64(3)).fork_position == 3
    assert store.fork("r", step=np.int64(0)).fork_position == 2
    assert [e.position for e in store.read("r", np.int64(2), np.int64(3))] == [2, 3]
    assert [e.seq for e in store.tail(np.int64(2), np.int64(4))] == [3, 4]
    assert store.digest_at(np.int64(1)) == next(store.read("r")).digest


def test_steps_are_counted_over_the_lineage(store: SQLiteEventStore) -> None:
    store.create_run(Run(run_id="r"))
    for _ in range(3):
        store.append(Event(run_id="r", type="tool.responded"))
        store.append(Event(run_id="r", type="agent.step"))
    store.fork("r", step=1, run_id="c")
    store.append(Event(run_id="c", type="agent.step"))
    assert [store.position_of_step("c", step) for step in range(3)] == [3, 5, 7]
    counts = {1: 0, 3: 0, 4: 1, 5: 1, 6: 2, 7: 2, 8: 3, 99: 3}
    assert {before: store.count_steps("c", before) for before in counts} == counts
    assert store.count_steps("r", 99) == 3


@pytest.mark.parametrize(
    "error",
    [
        BadPayloadError("$.a", "nan is not JSON"),
        ConflictError("r", 3, Event(run_id="r", type="note.taken", position=3)),
        RunExistsError("run 'r' is already in the log", fix="choose another"),
        RunNotFoundError("no run 'r'"),
    ],
)
def test_errors_survive_the_way_between_processes(error: SagError) -> None:
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(twin) is type(error)
        assert vars(twin) == vars(error)
        assert str(twin) == str(error)
