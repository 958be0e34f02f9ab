"""What every event store must do, as a base class: inherit from it and say how to open one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sag_research.errors import (
    BadPayloadError,
    ConflictError,
    RunExistsError,
    RunNotFoundError,
    StoreError,
    UsageError,
)
from sag_research.log import Head, SQLiteEventStore
from sag_research.model import WORKSPACE_RUN, Event, Run
from tests.log.strategies import payloads

Store = SQLiteEventStore
LONG = "a text that is kept beside the event \N{SNOWMAN} " * 40

# The same inherited test runs once for each backend, which is the point of it.
several_backends = settings(
    max_examples=40, suppress_health_check=[HealthCheck.differing_executors, HealthCheck.too_slow]
)


class Stop(Exception):
    """Raised by a test inside a transaction."""


@contextmanager
def undone(store: Store) -> Iterator[None]:
    """A transaction that fails at its end."""
    with pytest.raises(Stop), store.transaction():  # noqa: PT012
        yield
        raise Stop


def note(run_id: str, number: int, **fields: Any) -> Event:
    return Event(run_id=run_id, type="note.taken", payload={"n": number}, **fields)


def numbers(store: Store, run_id: str, **limits: Any) -> list[int]:
    return [e.payload["n"] for e in store.read(run_id, types=["note.taken"], **limits)]


def filled(store: Store, run_id: str, count: int) -> None:
    """A run of ``run.created`` and ``count`` notes: positions 1 to ``count + 1``."""
    store.create_run(Run(run_id=run_id))
    store.append_many([note(run_id, number) for number in range(count)])


class EventStoreConformance(ABC):
    """Tests of the contract of an event store.

    A subclass implements :meth:`fresh`; its name begins with ``Test``.
    """

    @abstractmethod
    def fresh(self) -> AbstractContextManager[Store]:
        """Open an empty store and close it at the end."""

    @pytest.fixture
    def store(self) -> Iterator[Store]:
        with self.fresh() as store:
            yield store

    # ---- runs

    def test_a_new_store_is_empty(self, store: Store) -> None:
        assert store.runs() == []
        assert list(store.tail()) == []
        assert store.last_seq() == 0
        assert store.digest_at(1) is None
        assert store.verify().ok

    def test_a_created_run_comes_back_as_it_was(self, store: Store) -> None:
        run = Run(
            run_id="r", goal=LONG, kind="agent", task_id="t-1", dataset="d", repo="o/p",
            agent="a", model="m", config={"temperature": 0.5, "tools": ["bash"]}, label="first",
            attempt=0, source_id="0123456789abcdef", created_at=1_700_000_000.25,
        )  # fmt: skip
        assert store.create_run(run) == run
        assert store.get_run("r") == run
        assert store.runs() == [run]
        [event] = store.read("r")
        assert (event.type, event.position) == ("run.created", 1)
        envelope = {"run_id", "label", "attempt", "source_id", "created_at", "created"}
        assert not envelope & event.payload.keys()

    def test_empty_fields_are_left_out_of_the_payload(self, store: Store) -> None:
        store.create_run(Run(run_id="r"))
        assert next(store.read("r")).payload == {"kind": "agent"}

    def test_a_run_is_created_once(self, store: Store) -> None:
        store.create_run(Run(run_id="r", goal="first"))
        with pytest.raises(RunExistsError, match="'r'"):
            store.create_run(Run(run_id="r", goal="second"))
        assert [run.goal for run in store.runs()] == ["first"]
        assert store.last_seq() == 1

    def test_an_unknown_run_is_named(self, store: Store) -> None:
        for attempt in (
            lambda: store.get_run("ghost"),
            lambda: store.read("ghost"),
            lambda: store.head("ghost"),
            lambda: store.append(note("ghost", 1)),
            lambda: store.fork("ghost"),
            lambda: store.verify("ghost"),
        ):
            with pytest.raises(RunNotFoundError, match="'ghost'"):
                attempt()
        assert not store.has_run("ghost")
        assert store.last_seq() == 0

    def test_the_workspace_run_makes_itself_and_is_not_listed(self, store: Store) -> None:
        event = store.append(note(WORKSPACE_RUN, 1))
        assert event.position == 2
        assert [e.type for e in store.read(WORKSPACE_RUN)] == ["run.created", "note.taken"]
        assert store.runs() == []
        assert store.get_run(WORKSPACE_RUN).kind == "workspace"

    # ---- append

    def test_appended_events_come_back_complete(self, store: Store) -> None:
        store.create_run(Run(run_id="r"))
        given = Event(
            run_id="r", type="tool.responded", payload={"text": LONG, "ok": None}, actor="bash",
            cause=1, frame="main", ts=1_700_000_001.5,
        )  # fmt: skip
        written = store.append(given)
        assert (written.position, written.seq, written.ts) == (2, 2, 1_700_000_001.5)
        assert list(store.read("r"))[1] == written == list(store.tail())[1]
        assert store.head("r") == Head(2, written.digest)
        assert store.digest_at(2) == written.digest

    def test_many_are_written_in_order_over_several_runs(self, store: Store) -> None:
        filled(store, "a", 0)
        filled(store, "b", 0)
        written = store.append_many([note("a", 1), note("b", 2), note("a", 3)])
        assert [(e.run_id, e.position) for e in written] == [("a", 2), ("b", 2), ("a", 3)]
        assert numbers(store, "a") == [1, 3]
        assert numbers(store, "b") == [2]
        assert store.append_many([]) == []

    @pytest.mark.parametrize(
        "bad",
        [
            Event(run_id="r", type="note.taken", payload={"x": float("nan")}),
            Event(run_id="ghost", type="note.taken"),
            Event(run_id="r", type="note.taken", cause=99),
            Event(run_id="r", type=""),
        ],
        ids=["payload", "run", "cause", "type"],
    )
    def test_of_many_all_or_none_are_written(self, store: Store, bad: Event) -> None:
        filled(store, "r", 1)
        before = store.head("r")
        with pytest.raises((BadPayloadError, RunNotFoundError)):
            store.append_many([note("r", 7), note("r", 8), bad, note("r", 9)])
        assert store.head("r") == before
        assert numbers(store, "r") == [0]
        assert store.append(note("r", 10)).position == before.position + 1
        assert store.verify().ok

    def test_an_error_of_the_callers_iterator_writes_nothing(self, store: Store) -> None:
        filled(store, "r", 0)

        def events() -> Iterator[Event]:
            yield note("r", 1)
            raise Stop

        with pytest.raises(Stop):
            store.append_many(events())
        assert numbers(store, "r") == []

    def test_reading_ends_where_the_run_ended_at_the_call(self, store: Store) -> None:
        filled(store, "r", 3)
        for event in store.read("r", types=["note.taken"]):
            store.append(note("r", event.payload["n"] + 10))
        for event in store.tail(types=["note.taken"]):
            store.append(note("r", event.payload["n"] + 100))
        assert numbers(store, "r") == [0, 1, 2, 10, 11, 12, 100, 101, 102, 110, 111, 112]

    # ---- the expected position

    def test_the_expected_position_is_kept(self, store: Store) -> None:
        filled(store, "r", 2)
        assert store.append(note("r", 5), expected=4).position == 4

    def test_a_taken_position_names_the_winner(self, store: Store) -> None:
        filled(store, "r", 1)
        with pytest.raises(ConflictError) as caught:
            store.append_many([note("r", 8), note("r", 9)], expected=2)
        assert (caught.value.run_id, caught.value.expected) == ("r", 2)
        assert caught.value.winner == list(store.read("r"))[1]
        assert numbers(store, "r") == [0]

    def test_an_inherited_position_is_taken_as_well(self, store: Store) -> None:
        filled(store, "r", 3)
        store.fork("r", at=3, run_id="c")
        with pytest.raises(ConflictError) as caught:
            store.append(note("c", 9), expected=2)
        assert caught.value.winner == list(store.read("r"))[1]

    @pytest.mark.parametrize("expected", [-1, 0, 5, 99])
    def test_a_position_that_cannot_be_next_is_no_conflict(
        self, store: Store, expected: int
    ) -> None:
        filled(store, "r", 2)
        with pytest.raises(UsageError, match=str(expected)):
            store.append(note("r", 9), expected=expected)
        assert numbers(store, "r") == [0, 1]

    # ---- causes

    def test_a_cause_is_an_earlier_position_of_the_lineage(self, store: Store) -> None:
        filled(store, "r", 2)
        store.fork("r", at=2, run_id="c")
        assert store.append(note("c", 1, cause=1)).cause == 1
        assert store.append(note("c", 2, cause=4)).cause == 4
        assert [e.cause for e in store.read("c")] == [None, None, None, 1, 4]

    @pytest.mark.parametrize("cause", [0, -1, 3, 99, True, 1.0, "1"])
    def test_no_other_cause_is_accepted(self, store: Store, cause: Any) -> None:
        filled(store, "r", 1)
        with pytest.raises(BadPayloadError, match="cause"):
            store.append(note("r", 1, cause=cause))
        assert store.head("r").position == 2

    # ---- transactions

    def test_a_transaction_is_kept_or_not(self, store: Store) -> None:
        filled(store, "r", 0)
        with store.transaction():
            store.append(note("r", 1))
            store.append(note("r", 2))
        with undone(store):
            store.append(note("r", 3))
            store.fork("r", run_id="c")
            store.create_run(Run(run_id="x"))
        assert numbers(store, "r") == [1, 2]
        assert [run.run_id for run in store.runs()] == ["r"]
        assert store.append(note("r", 4)).position == 4
        assert store.verify().ok

    def test_an_inner_transaction_rolls_back_alone(self, store: Store) -> None:
        filled(store, "r", 0)
        with store.transaction():
            store.append(note("r", 1))
            with undone(store):
                store.append(note("r", 2))
                with store.transaction():
                    store.append(note("r", 3))
            assert store.append(note("r", 4)).position == 3
            with store.transaction():
                store.append(note("r", 5))
        assert numbers(store, "r") == [1, 4, 5]
        assert store.verify().ok

    def test_an_outer_transaction_takes_the_inner_ones_along(self, store: Store) -> None:
        filled(store, "r", 0)
        with undone(store), store.transaction():
            store.append(note("r", 1))
        assert numbers(store, "r") == []

    def test_what_was_rolled_back_can_be_written_again(self, store: Store) -> None:
        filled(store, "r", 0)
        event = Event(run_id="r", type="new.type", actor="new", frame="new", payload={"text": LONG})
        with undone(store):
            store.append(event)
            digest = store.put_blob(b"bytes")
            assert store.blob(digest) == b"bytes"
            assert [e.payload for e in store.read("r", lo=2)] == [{"text": LONG}]
        with pytest.raises(StoreError, match="missing"):
            store.blob(digest)
        written = store.append(event)
        assert list(store.read("r"))[1] == written
        assert written.payload == {"text": LONG}
        assert store.put_blob(b"bytes") == digest
        assert store.blob(digest) == b"bytes"
        assert store.verify().ok

    # ---- reading

    @pytest.mark.parametrize(
        ("limits", "expected"),
        [
            ({}, [1, 2, 3, 4, 5, 6]),
            ({"lo": 3}, [3, 4, 5, 6]),
            ({"hi": 3}, [1, 2, 3]),
            ({"lo": 2, "hi": 4}, [2, 3, 4]),
            ({"lo": 4, "hi": 3}, []),
            ({"lo": -5, "hi": 0}, []),
            ({"lo": 6, "hi": 99}, [6]),
            ({"lo": 7}, []),
            ({"hi": 2**80}, [1, 2, 3, 4, 5, 6]),
            ({"types": ["run.created"]}, [1]),
            ({"types": {"run.created", "run.completed"}}, [1, 6]),
            ({"types": "run.completed"}, [6]),
            ({"types": []}, []),
            ({"types": ["never.seen"]}, []),
            ({"types": ["note.taken"], "lo": 3, "hi": 4}, [3, 4]),
        ],
    )
    def test_limits_of_reading(
        self, store: Store, limits: dict[str, Any], expected: list[int]
    ) -> None:
        filled(store, "other", 3)
        filled(store, "r", 4)
        store.append(Event(run_id="r", type="run.completed"))
        assert [e.position for e in store.read("r", **limits)] == expected

    def test_the_tail_is_every_event_once_in_order_of_writing(self, store: Store) -> None:
        filled(store, "a", 1)
        filled(store, "b", 1)
        store.fork("a", at=2, run_id="c")
        store.append(note("a", 1))
        events = list(store.tail())
        assert [(e.run_id, e.position) for e in events] == [
            ("a", 1), ("a", 2), ("b", 1), ("b", 2), ("c", 3), ("a", 3),
        ]  # fmt: skip
        seqs = [e.seq for e in events]
        assert seqs == sorted(set(seqs))
        assert store.last_seq() == seqs[-1]
        assert [e.seq for e in store.tail(seqs[1], seqs[3])] == seqs[2:4]
        assert [e.run_id for e in store.tail(types=["run.forked"])] == ["c"]
        assert [store.digest_at(e.seq) for e in events] == [e.digest for e in events]
        assert list(store.tail(seqs[-1])) == []

    def test_long_runs_are_read_whole(self, store: Store) -> None:
        filled(store, "r", 2_500)
        store.fork("r", at=1_700, run_id="c")
        store.append_many([note("c", -number) for number in range(1, 1_200)])
        assert numbers(store, "r") == list(range(2_500))
        assert numbers(store, "c") == [*range(1_699), *range(-1, -1_200, -1)]
        assert [e.position for e in store.read("c")] == list(range(1, 2_901))
        assert sum(1 for _ in store.tail()) == 2_501 + 1_200
        assert [e.position for e in store.tail(types=["run.forked"])] == [1_701]

    # ---- forks

    def test_a_fork_shares_its_prefix_and_goes_its_own_way(self, store: Store) -> None:
        store.create_run(Run(run_id="r", goal="g", task_id="t", attempt=3, config={"a": 1}))
        store.append_many([note("r", number) for number in range(4)])
        child = store.fork("r", at=3, run_id="c", label="try", intervention={"hint": LONG})
        assert (child.run_id, child.parent_id, child.fork_position) == ("c", "r", 3)
        assert (child.goal, child.task_id, child.config) == ("g", "t", {"a": 1})
        assert (child.label, child.attempt) == ("try", None)
        assert child == store.get_run("c") == store.runs()[1]
        store.append(note("c", 9))
        store.append(note("r", 4))
        assert numbers(store, "r") == [0, 1, 2, 3, 4]
        assert numbers(store, "c") == [0, 1, 9]
        parent, own = list(store.read("r")), list(store.read("c"))
        assert own[:3] == parent[:3]
        assert (own[3].type, own[3].payload) == ("run.forked", {"hint": LONG})
        assert [e.run_id for e in own] == ["r", "r", "r", "c", "c"]
        assert own[3].digest != parent[3].digest

    def test_a_fork_at_a_step_sees_that_step(self, store: Store) -> None:
        store.create_run(Run(run_id="r"))
        for number in range(3):
            store.append(Event(run_id="r", type="tool.responded"))
            store.append(Event(run_id="r", type="agent.step", payload={"thought": str(number)}))
        assert store.fork("r", step=1, run_id="c").fork_position == 5
        assert [e.payload["thought"] for e in store.read("c", types=["agent.step"])] == ["0", "1"]
        store.append(Event(run_id="c", type="agent.step", payload={"thought": "new"}))
        assert store.fork("c", step=2, run_id="d").fork_position == 7
        assert store.fork("c", step=0, run_id="e").fork_position == 3
        for step in (-1, 3):
            with pytest.raises(UsageError, match=f"step {step}"):
                store.fork("c", step=step)

    def test_a_fork_without_a_place_takes_all(self, store: Store) -> None:
        filled(store, "r", 2)
        first, second = store.fork("r"), store.fork("r")
        assert first.run_id != second.run_id
        assert first.fork_position == 3
        assert store.head(first.run_id) == Head(4, store.head(second.run_id).digest)

    @pytest.mark.parametrize("where", [{"at": 0}, {"at": 4}, {"at": -1}, {"at": 2, "step": 0}])
    def test_a_fork_needs_a_place_that_is_there(self, store: Store, where: dict[str, int]) -> None:
        store.create_run(Run(run_id="r"))
        store.append_many([Event(run_id="r", type="agent.step") for _ in range(2)])
        with pytest.raises(UsageError):
            store.fork("r", run_id="c", **where)
        assert not store.has_run("c")

    def test_a_fork_does_not_take_an_id_twice(self, store: Store) -> None:
        filled(store, "r", 1)
        with pytest.raises(RunExistsError):
            store.fork("r", run_id="r")
        assert store.last_seq() == 2

    def test_a_fork_with_a_bad_intervention_leaves_nothing(self, store: Store) -> None:
        filled(store, "r", 1)
        with pytest.raises(BadPayloadError, match="hint"):
            store.fork("r", run_id="c", intervention={"hint": {1}})
        assert not store.has_run("c")

    def test_a_family_is_the_root_and_all_below_it(self, store: Store) -> None:
        filled(store, "r", 3)
        filled(store, "apart", 1)
        store.fork("r", at=2, run_id="c")
        store.fork("c", at=1, run_id="d")
        for run_id in ("r", "c", "d"):
            assert [run.run_id for run in store.family(run_id)] == ["r", "c", "d"]
        assert [run.run_id for run in store.family("apart")] == ["apart"]
        with pytest.raises(RunNotFoundError):
            store.family("nobody")

    def test_a_flat_copy_has_the_same_history_and_no_parent(self, store: Store) -> None:
        filled(store, "r", 3)
        store.fork("r", at=2, run_id="c", intervention={"text": LONG})
        store.append(note("c", 7))
        copy = store.flatten("c", "flat")
        assert (copy.parent_id, copy.fork_position) == (None, 0)
        assert store.head("flat") == store.head("c")
        assert [e.payload for e in store.read("flat")] == [e.payload for e in store.read("c")]
        assert {e.run_id for e in store.read("flat")} == {"flat"}
        store.append(note("flat", 8))
        assert numbers(store, "flat") == [0, 7, 8]
        assert store.verify().ok

    def test_a_redacted_event_keeps_its_digest_alone(self, store: Store) -> None:
        filled(store, "r", 2)
        written = store.append(Event(run_id="r", type="note.taken", payload={"text": LONG}))
        store.fork("r", run_id="c")
        done = store.redact("c", 4, "why")
        assert (done.removed, done.kept) == (1, 0)
        assert done.event.payload == {"run": "r", "position": 4, "reason": "why"}
        [read] = store.read("c", 4, 4)
        assert (read.payload, read.digest) == ({"redacted": "why"}, written.digest)
        assert store.verify().ok
        again = store.append(Event(run_id="c", type="note.taken", payload={"text": LONG}))
        assert list(store.read("c", again.position or 0)) == [again]

    @several_backends
    @given(
        moves=st.lists(
            st.tuples(
                st.sampled_from(["append", "many", "fork", "undo"]),
                st.integers(0, 30),
                st.integers(0, 30),
            ),
            max_size=25,
        ),
        lo=st.integers(-1, 20),
        hi=st.none() | st.integers(-1, 20),
    )
    def test_lineages_are_what_plain_lists_say(
        self, moves: list[tuple[str, int, int]], lo: int, hi: int | None
    ) -> None:
        model: dict[str, list[tuple[str, str, int]]] = {"r0": [("r0", "run.created", -1)]}
        written = list(model["r0"])
        with self.fresh() as store:
            store.create_run(Run(run_id="r0"))
            for number, (move, which, where) in enumerate(moves):
                run_id = list(model)[which % len(model)]
                _play(store, model, written, run_id, number, move, where)
            for run_id, expected in model.items():
                events = list(store.read(run_id))
                assert [_short(event) for event in events] == expected
                assert [e.position for e in events] == list(range(1, len(expected) + 1))
                assert store.head(run_id) == Head(len(expected), events[-1].digest)
                part = expected[max(lo, 1) - 1 : len(expected) if hi is None else max(hi, 0)]
                assert [_short(e) for e in store.read(run_id, lo, hi)] == part
                notes = [item for item in part if item[1] == "note.taken"]
                assert [_short(e) for e in store.read(run_id, lo, hi, ["note.taken"])] == notes
            assert [_short(event) for event in store.tail()] == written
            assert store.verify().to_dict() == {"ok": True, "runs": len(model), "problems": []}

    # ---- digests

    def test_equal_histories_have_equal_digests(self, store: Store) -> None:
        for run_id, clock in (("a", 1.0), ("b", 2_000_000_000.0)):
            store.create_run(
                Run(
                    run_id=run_id, goal="g", config={"k": 1}, label=f"label of {run_id}",
                    attempt=int(clock) % 7, source_id=run_id, created_at=clock,
                )
            )  # fmt: skip
            step = {"thought": LONG, "calls": [{"b": 1, "a": 2}]}
            if run_id == "b":
                step = {"calls": [{"a": 2, "b": 1}], "thought": LONG}
            store.append(
                Event(
                    run_id=run_id, type="agent.step", ts=clock, frame=run_id,
                    payload={"started": clock, **step, "seconds": clock / 2},
                )
            )  # fmt: skip
            store.append(note(run_id, 1, cause=2))
        digests = [[e.digest for e in store.read(run_id)] for run_id in ("a", "b")]
        assert digests[0] == digests[1]
        assert len(set(digests[0])) == 3
        fork = store.fork("a", at=2, run_id="c", label="x", intervention={"i": 1})
        again = store.fork("b", at=2, run_id="d", label="y", intervention={"i": 1})
        assert store.head(fork.run_id) == store.head(again.run_id)

    @pytest.mark.parametrize(
        "other",
        [
            [note("r", 1), note("r", 3)],
            [note("r", 2), note("r", 1)],
            [note("r", 1)],
            [note("r", 1), note("r", 2), note("r", 3)],
            [note("r", 1), note("r", 2, actor="someone")],
            [note("r", 1), note("r", 2, cause=1)],
            [note("r", 1, cause=1), note("r", 2)],
            [note("r", 1), Event(run_id="r", type="note.made", payload={"n": 2})],
            [note("r", 1), Event(run_id="r", type="note.taken", payload={"n": "2"})],
            [note("r", 1), Event(run_id="r", type="note.taken", payload={"n": 2, "m": None})],
            [note("r", 1), Event(run_id="r", type="note.taken", payload={})],
        ],
        ids=[
            "payload", "order", "shorter", "longer", "actor", "cause", "earlier cause", "type",
            "number as text", "one key more", "empty",
        ],
    )  # fmt: skip
    def test_different_histories_have_different_digests(
        self, store: Store, other: list[Event]
    ) -> None:
        for run_id, events in (("a", [note("r", 1), note("r", 2)]), ("b", other)):
            store.create_run(Run(run_id=run_id))
            store.append_many(
                [
                    Event(
                        run_id=run_id, type=e.type, payload=e.payload, actor=e.actor, cause=e.cause
                    )
                    for e in events
                ]
            )
        assert store.head("a").digest != store.head("b").digest
        assert next(store.read("a")).digest == next(store.read("b")).digest

    def test_a_change_in_a_long_text_changes_the_digest(self, store: Store) -> None:
        for run_id, text in (("a", LONG), ("b", LONG[:-1] + "!")):
            store.create_run(Run(run_id=run_id))
            store.append(Event(run_id=run_id, type="note.taken", payload={"text": text}))
        assert store.head("a").digest != store.head("b").digest

    # ---- clocks of a step

    def test_the_clocks_of_a_step_are_envelope(self, store: Store) -> None:
        store.create_run(Run(run_id="r"))
        payload = {"thought": "t", "started": 1_700_000_000.125, "seconds": 0.1}
        written = store.append(Event(run_id="r", type="agent.step", payload=payload))
        assert written.payload == payload
        assert list(store.read("r"))[1].payload == payload
        store.create_run(Run(run_id="s"))
        bare = store.append(Event(run_id="s", type="agent.step", payload={"thought": "t"}))
        assert bare.digest == written.digest
        assert list(store.read("s"))[1].payload == {"thought": "t"}

    def test_the_clocks_of_other_events_are_content(self, store: Store) -> None:
        for run_id, seconds in (("a", 1.0), ("b", 2.0)):
            store.create_run(Run(run_id=run_id))
            event = Event(run_id=run_id, type="tool.responded", payload={"seconds": seconds})
            store.append(event)
            assert list(store.read(run_id))[1].payload == {"seconds": seconds}
        assert store.head("a").digest != store.head("b").digest

    @pytest.mark.parametrize("value", [0, 2, -0.0, 1e-300, -1.5, 2**53, 1e18, None])
    def test_a_clock_is_sealed_as_it_is_read(self, store: Store, value: float | None) -> None:
        store.create_run(Run(run_id="r"))
        payload = {"started": value, "seconds": value}
        store.append(Event(run_id="r", type="agent.step", payload=payload))
        expected = {} if value is None else payload
        assert list(store.read("r"))[1].payload == expected
        assert store.verify().ok

    @pytest.mark.parametrize("clock", ["started", "seconds"])
    @pytest.mark.parametrize(
        "value", [float("nan"), float("inf"), "2", True, [1], 10**400], ids=lambda v: str(v)[:5]
    )
    def test_a_clock_is_a_finite_number(self, store: Store, clock: str, value: Any) -> None:
        store.create_run(Run(run_id="r"))
        with pytest.raises(BadPayloadError) as caught:
            store.append(Event(run_id="r", type="agent.step", payload={clock: value}))
        assert caught.value.path == f"$.{clock}"
        assert store.last_seq() == 1

    @several_backends
    @given(
        payload=payloads,
        type_=st.sampled_from(["agent.step", "note.taken"]),
        clocks=st.dictionaries(
            st.sampled_from(["started", "seconds"]),
            st.integers(-(10**9), 10**9) | st.floats(-1e12, 1e12),
        ),
        ts=st.none() | st.integers(0, 10**9) | st.floats(-9e9, 9e9),
    )
    def test_any_event_comes_back_and_verifies(
        self,
        payload: dict[str, Any],
        type_: str,
        clocks: dict[str, float],
        ts: float | None,
    ) -> None:
        with self.fresh() as store:
            store.create_run(Run(run_id="r"))
            given = Event(run_id="r", type=type_, payload=payload | clocks, ts=ts)
            written = store.append(given)
            assert written.payload == given.payload
            assert list(store.read("r"))[1] == written
            assert store.verify().ok


def _short(event: Event) -> tuple[str, str, int]:
    return event.run_id, event.type, event.payload.get("n", -1)


def _play(
    store: Store,
    model: dict[str, list[tuple[str, str, int]]],
    written: list[tuple[str, str, int]],
    run_id: str,
    number: int,
    move: str,
    where: int,
) -> None:
    """Make one move in the store and in the model."""
    lineage = model[run_id]
    if move == "fork":
        at, child = where % len(lineage) + 1, f"r{len(model)}"
        store.fork(run_id, at=at, run_id=child, intervention={"n": number})
        new = [(child, "run.forked", number)]
        model[child] = lineage[:at] + new
        written += new
        return
    count = where % 4 if move == "many" else 1
    events = [note(run_id, number) for _ in range(count)]
    if move == "undo":
        with undone(store):
            store.append_many(events)
            store.fork(run_id, run_id="gone")
        return
    store.append_many(events, expected=len(lineage) + 1)
    new = [(run_id, "note.taken", number)] * count
    lineage += new
    written += new
