"""Runs that were made ready elsewhere stand in the log as runs that were written one by one."""

import pytest

from sag_research.errors import BadPayloadError, RunExistsError, UsageError
from sag_research.log import (
    SQLiteEventStore,
    packed_run,
    prepare_event,
    prepare_run,
    writing_runs,
)
from sag_research.model import Event, Run

LONG = "a long text " * 100
PAYLOADS = [
    {"thought": "", "action": "ls", "observation": LONG, "started": 5.0, "seconds": 0.5},
    {"thought": LONG, "action": "cat", "observation": "", "calls": [{"text": LONG}]},
]


@pytest.fixture
def store():
    with SQLiteEventStore(":memory:") as store:
        yield store


def step(run_id, payload, cause=None):
    return Event(run_id=run_id, type="agent.step", payload=payload, cause=cause)


def prepared(run_id="r", payloads=PAYLOADS, **options):
    texts = {}
    run = Run(run_id=run_id, goal=LONG, task_id="t", **options)
    return prepare_run(run, (prepare_event(step(run_id, one), texts) for one in payloads), texts)


def add_all(writer, *runs):
    for run in runs:
        writer.add(run)


@pytest.mark.parametrize("form", [lambda run: run, packed_run])
@pytest.mark.parametrize("n", [0, 1, 2, 49, 120, 700])
def test_a_prepared_run_is_the_run(store, form, n):
    payloads = [PAYLOADS[number % 2] | {"number": number} for number in range(n)]
    with SQLiteEventStore(":memory:") as other:
        other.create_run(Run(run_id="r", goal=LONG, task_id="t", attempt=2, created_at=7.0))
        other.append_many([step("r", one, number + 1) for number, one in enumerate(payloads)])
        with writing_runs(store) as writer:
            writer.add(form(prepared("r", payloads, attempt=2, created_at=7.0)))
        assert store.get_run("r") == other.get_run("r")
        assert store.head("r") == other.head("r")
        plain = [(e.payload, e.cause, e.digest) for e in other.read("r")]
        assert [(e.payload, e.cause, e.digest) for e in store.read("r")] == plain
    assert store.verify().ok


def test_a_prepared_fork_leaves_its_parent_behind_a_step(store):
    texts = {}
    child = prepare_run(
        Run(run_id="c", parent_id="r", attempt=3),
        [prepare_event(step("c", {"action": "other"}), texts)],
        texts,
        parent_step=0,
        intervention={"relation": "fork"},
    )
    with writing_runs(store) as writer:
        writer.add(prepared())
        writer.add(child)
    run = store.get_run("c")
    assert (run.parent_id, run.fork_position, run.attempt) == ("r", 2, 3)
    events = list(store.read("c"))
    assert [event.type for event in events] == [
        "run.created",
        "agent.step",
        "run.forked",
        "agent.step",
    ]
    assert (events[2].payload, events[3].cause) == ({"relation": "fork"}, 3)
    assert store.verify().ok


def test_a_part_is_taken_back_alone(store):
    with writing_runs(store) as writer:
        writer.add(prepared("before"))
        with pytest.raises(RunExistsError), writer.part():
            add_all(writer, prepared("within"), prepared("before"))
        writer.add(prepared("behind"))
        position = writer.append("behind", prepare_event(step("behind", {"a": 1}), {}))
    assert [run.run_id for run in store.runs()] == ["before", "behind"]
    assert position == 4
    assert [event.cause for event in store.read("behind")] == [None, 1, 2, None]
    assert store.verify().ok


def test_nothing_is_written_where_the_whole_fails(store):
    with pytest.raises(RunExistsError), writing_runs(store) as writer:
        add_all(writer, prepared(), prepared())
    assert (store.runs(), store.last_seq()) == ([], 0)
    with writing_runs(store) as writer:
        assert writer.taken(["r", "x"]) == []
        writer.add(prepared())
        assert writer.taken(["r", "x"]) == ["r"]
    assert store.head("r").position == 3


def test_what_the_log_could_not_hold_is_refused_before(store):
    with pytest.raises(BadPayloadError, match=r"\$\.a"):
        prepare_event(step("r", {"a": float("nan")}), {})
    with pytest.raises(UsageError, match="cannot have run_id"):
        prepared("half \ud835")
    with pytest.raises(UsageError, match="has no step"):
        prepare_run(Run(run_id="c", parent_id="r"), [], {}, parent_step=2**64)
    with pytest.raises(BadPayloadError):
        prepare_run(Run(run_id="c", parent_id="r"), [], {}, intervention={"a": "\ud835"})
    child = prepare_run(Run(run_id="c", parent_id="r"), [], {}, parent_step=9)
    with writing_runs(store) as writer:
        writer.add(prepared())
        with pytest.raises(UsageError, match="has no step 9"):
            writer.add(child)
