"""Behaviours on events: what sets them off, in which order, and what becomes of their failures."""

# ruff: noqa: F811 - fixtures are imported by name

from __future__ import annotations

import threading
from typing import Any

import pytest

from sag_research.errors import BadPayloadError, RunNotFoundError, UsageError
from sag_research.log import SQLiteEventStore
from sag_research.model import Event, Run
from sag_research.runtime import Budget, ReactiveRuntime, Trigger, replay
from tests.runtime.reactive import (  # noqa: F401
    Dispatch,
    dispatch,
    facts,
    runtime,
    store,
    types,
    written,
)


def test_emissions_are_dispatched_in_order_and_know_their_cause(
    dispatch: Dispatch, runtime: ReactiveRuntime, store: SQLiteEventStore
) -> None:
    seen: list[Any] = []

    @runtime.behavior(on_events=["a"])
    def first(rt: ReactiveRuntime, event: Event) -> None:
        seen.append(("first", event.payload["n"]))
        rt.emit("b", {"n": event.payload["n"]})

    @runtime.behavior(on_events=["a", "b"])
    def second(rt: ReactiveRuntime, event: Event) -> None:
        seen.append(("second", event.type, event.payload["n"]))

    with runtime.active_run("r1"):
        runtime.emit("a", {"n": 1})
        runtime.emit("a", {"n": 2})
    report = dispatch(runtime)
    expected = [("first", 1), ("second", "a", 1), ("first", 2), ("second", "a", 2)]
    assert seen == [*expected, ("second", "b", 1), ("second", "b", 2)]
    assert written(store) == [
        ("a", None, "agent"),
        ("a", None, "agent"),
        ("b", 2, "first"),
        ("b", 3, "first"),
    ]
    assert (report.events, report.fired, report.failed, report.stopped) == (4, 6, 0, "idle")


def test_a_behaviour_acts_in_the_run_of_its_event(
    dispatch: Dispatch, runtime: ReactiveRuntime, store: SQLiteEventStore
) -> None:
    store.create_run(Run(run_id="r2"))

    @runtime.behavior(on_events="a")
    def answer(rt: ReactiveRuntime, event: Event) -> None:
        with rt.active_run("r1" if event.run_id == "r2" else "r2"):
            rt.emit("told", {"at": rt.ctx.now()})
        rt.emit("b")

    runtime.emit("a", run_id="r1")
    with runtime.active_run("r2"):
        runtime.emit("a")
        with runtime.active_run("r1"):
            dispatch(runtime)
    assert written(store, "r1") == [
        ("a", None, "agent"),
        ("effect.recorded", 2, "behavior"),
        ("b", 2, "answer"),
        ("told", None, "answer"),
    ]
    assert written(store, "r2") == [
        ("a", None, "agent"),
        ("told", None, "answer"),
        ("effect.recorded", 2, "behavior"),
        ("b", 2, "answer"),
    ]
    for run_id in ("r1", "r2"):
        assert replay(store, run_id, runtime).made == 2  # what the other run told it was given


def test_any_type_and_other_peoples_events(
    dispatch: Dispatch, runtime: ReactiveRuntime, store: SQLiteEventStore
) -> None:
    seen: list[str] = []
    runtime.behavior(on_events=["*"])(lambda rt, event: seen.append(event.type))
    store.append(Event(run_id="r1", type="before.watching"))
    runtime.watch("r1")
    store.append(Event(run_id="r1", type="agent.step", payload={"thought": "hm"}))
    store.create_run(Run(run_id="unwatched"))
    runtime.emit("a", run_id="r1")
    dispatch(runtime)
    assert seen == ["agent.step", "a"]


def test_a_run_can_be_taken_up_where_it_stands(dispatch: Dispatch, store: SQLiteEventStore) -> None:
    """As after a crash: a new runtime, and events that nobody has dispatched."""
    store.create_run(Run(run_id="r2"))
    for n in range(4):
        store.append(Event(run_id="r1", type="a", payload={"n": n}))
    fork = store.fork("r1", at=3)
    seen: list[tuple[str, int | None]] = []
    runtime = ReactiveRuntime(store)
    runtime.behavior(on_events=["*"])(lambda rt, event: seen.append((event.run_id, event.position)))
    runtime.emit("b", run_id="r2")
    dispatch(runtime)
    runtime.emit("b", run_id="r2")
    runtime.watch("r1", since=4)
    runtime.watch(fork.run_id, since=1)  # of its own events there is one
    dispatch(runtime)
    assert seen == [("r2", 2), ("r1", 4), ("r1", 5), (fork.run_id, 4), ("r2", 3)]
    with pytest.raises(RunNotFoundError):
        runtime.watch("r9", since=1)
    runtime.watch("r1", since=99)
    dispatch(runtime)
    assert len(seen) == 5


@pytest.mark.parametrize(
    ("where", "payload", "fits"),
    [
        ({"a": 1}, {"a": 1, "b": 2}, True),
        ({"a": {"b": {"c": "x"}}}, {"a": {"b": {"c": "x", "d": 0}}}, True),
        ({"a.b.c": "x"}, {"a": {"b": {"c": "x"}}}, True),
        ({"a.b": 1}, {"a.b": 1}, True),
        ({"calls.1.name": "ls"}, {"calls": [{"name": "cd"}, {"name": "ls"}]}, True),
        ({"calls": ["ls"]}, {"calls": ["ls"]}, True),
        ({"a": None}, {"a": None}, True),
        ({"a": 1}, {"a": 2}, False),
        ({"a": 1}, {}, False),
        ({"a": None}, {}, False),
        ({"a": 1}, {"a": True}, False),
        ({"a": False}, {"a": 0}, False),
        ({"a": {"b": 1}}, {"a": [1]}, False),
        ({"a.b.c": "x"}, {"a": "b"}, False),
        ({"calls.7.name": "ls"}, {"calls": []}, False),
        ({"a.0": "b"}, {"a": "b"}, False),
        ({"a": 1, "b": 2}, {"a": 1, "b": 3}, False),
    ],
)
def test_where_looks_inside_the_payload(
    runtime: ReactiveRuntime, where: dict[str, Any], payload: dict[str, Any], fits: bool
) -> None:
    hits: list[Event] = []
    runtime.behavior(on_events=["a"], where=where)(lambda rt, event: hits.append(event))
    runtime.emit("a", payload, run_id="r1")
    assert runtime.dispatch_loop().fired == len(hits) == int(fits)


def test_a_sequence_within_a_run(
    dispatch: Dispatch, runtime: ReactiveRuntime, store: SQLiteEventStore
) -> None:
    store.create_run(Run(run_id="r2"))
    hits: list[tuple[str, list[int | None]]] = []

    @runtime.behavior(sequence=["tool.failed", "tool.failed"], reset_on="tool.responded")
    def twice(rt: ReactiveRuntime, event: Event) -> None:
        hits.append((event.run_id, [one.position for one in rt.matched]))

    script = {
        "r1": ["tool.failed", "x", "tool.failed", "tool.failed", "tool.responded", "tool.failed"],
        "r2": ["tool.failed"],
    }
    for run_id, all_types in script.items():
        for type_ in all_types:
            runtime.emit(type_, run_id=run_id)
        dispatch(runtime)
    assert hits == [("r1", [2, 4])]
    runtime.emit("tool.failed", run_id="r1")
    dispatch(runtime)
    assert hits == [("r1", [2, 4]), ("r1", [7, 8])]


def test_where_holds_for_every_event_of_a_sequence(runtime: ReactiveRuntime) -> None:
    hits: list[Event] = []
    register = runtime.behavior(sequence=["a", "b"], where={"file": "x.py"})
    register(lambda rt, event: hits.append(event))
    for type_, file in [("a", "x.py"), ("b", "y.py"), ("b", "x.py"), ("b", "x.py")]:
        runtime.emit(type_, {"file": file}, run_id="r1")
    runtime.dispatch_loop()
    assert [event.position for event in hits] == [4]


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"on_events": []},
        {"on_events": ["a"], "sequence": ["b"]},
        {"on_events": ["a"], "reset_on": "b"},
        {"on_events": [3]},
        {"on_events": [""]},
        {"on_events": print},  # the decorator without parentheses
    ],
)
def test_a_trigger_that_makes_no_sense_is_refused(
    runtime: ReactiveRuntime, wrong: dict[str, Any]
) -> None:
    with pytest.raises(UsageError):
        runtime.behavior(**wrong)


def test_a_failure_is_written_down_and_the_dispatch_goes_on(
    dispatch: Dispatch, runtime: ReactiveRuntime, store: SQLiteEventStore
) -> None:
    @runtime.behavior(on_events=["a"])
    def fails(rt: ReactiveRuntime, event: Event) -> None:
        rt.emit("begun")
        raise ValueError("no such <b>file</b>")

    @runtime.behavior(on_events=["a"])
    def works(rt: ReactiveRuntime, event: Event) -> None:
        rt.emit("done")

    runtime.emit("a", run_id="r1")
    report = dispatch(runtime)
    assert written(store)[1:] == [
        ("begun", 2, "fails"),
        ("behavior.failed", 2, "fails"),
        ("done", 2, "works"),
    ]
    payload = next(store.read("r1", types=["behavior.failed"])).payload
    assert payload["behavior"] == "fails"
    assert payload["class"] == "builtins.ValueError"
    assert payload["message"] == "no such <b>file</b>"
    assert payload["fingerprint"] == runtime.behaviors[0].fingerprint
    assert "raise ValueError" in payload["traceback"]
    assert "runtime/_reactive" not in payload["traceback"]  # it begins at the behaviour
    assert (report.fired, report.failed) == (2, 1)
    assert "1 failed" in repr(report)


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("cannot even say")


@pytest.mark.parametrize(
    "error", [ValueError("half \ud835 and \x00"), ValueError("x" * 10**6), Unspeakable(), KeyError]
)
def test_any_failure_can_be_written_down(
    runtime: ReactiveRuntime, store: SQLiteEventStore, error: Any
) -> None:
    @runtime.behavior(on_events=["a"])
    def fails(rt: ReactiveRuntime, event: Event) -> None:
        raise error

    runtime.emit("a", run_id="r1")
    assert runtime.dispatch_loop().failed == 1
    payload = next(store.read("r1", types=["behavior.failed"])).payload
    assert len(payload["message"]) <= 4_000
    assert store.verify().ok


def test_strict_raises_what_the_behaviour_raised(
    dispatch: Dispatch, store: SQLiteEventStore
) -> None:
    runtime = ReactiveRuntime(store, strict=True)

    @runtime.behavior(on_events=["a"])
    def fails(rt: ReactiveRuntime, event: Event) -> None:
        raise ValueError("here")

    runtime.emit("a", run_id="r1")
    with pytest.raises(ValueError, match="here"):
        dispatch(runtime)
    assert types(store) == ["a", "behavior.failed"]
    assert dispatch(runtime).stopped == "idle"  # the runtime is not left locked


def test_interrupts_are_not_failures(runtime: ReactiveRuntime, store: SQLiteEventStore) -> None:
    @runtime.behavior(on_events=["a"])
    def interrupted(rt: ReactiveRuntime, event: Event) -> None:
        raise KeyboardInterrupt

    runtime.emit("a", run_id="r1")
    with pytest.raises(KeyboardInterrupt):
        runtime.dispatch_loop()
    assert types(store) == ["a"]
    assert runtime.dispatch_loop().events == 0


def test_an_endless_loop_ends_and_says_so(
    dispatch: Dispatch, runtime: ReactiveRuntime, store: SQLiteEventStore
) -> None:
    @runtime.behavior(on_events=["ping"])
    def ping(rt: ReactiveRuntime, event: Event) -> None:
        rt.emit("ping")

    runtime.emit("ping", run_id="r1")
    report = dispatch(runtime, Budget(events=10, depth=1_000))
    assert (report.events, report.stopped) == (10, "events")
    last = list(store.read("r1"))[-1]
    assert last.type == "budget.exhausted"
    assert last.cause == 12  # the ping that still waits
    assert last.payload == {"limit": "events", "budget": 10, "type": "ping"}
    assert dispatch(runtime, Budget(events=5, depth=1_000)).stopped == "events"  # it goes on
    assert types(store).count("ping") == 15


def test_a_budget_is_finite_unless_told_otherwise(runtime: ReactiveRuntime) -> None:
    runtime.behavior(on_events=["ping"])(lambda rt, event: rt.emit("ping"))
    runtime.emit("ping", run_id="r1")
    assert runtime.dispatch_loop().stopped == "depth"
    assert runtime.dispatch_loop().stopped == "idle"  # what was too deep is passed over


def test_a_chain_of_causes_may_be_too_deep(
    dispatch: Dispatch, runtime: ReactiveRuntime, store: SQLiteEventStore
) -> None:
    @runtime.behavior(on_events=["ping"])
    def ping(rt: ReactiveRuntime, event: Event) -> None:
        rt.emit("ping")

    with runtime.active_run("r1"):
        runtime.emit("ping")
        runtime.emit("other")
    assert dispatch(runtime, Budget(depth=3)).stopped == "depth"
    assert types(store) == ["ping", "other", "ping", "ping", "ping", "ping", "budget.exhausted"]
    assert [b.payload["limit"] for b in store.read("r1", types=["budget.exhausted"])] == ["depth"]


def test_a_failing_tool_cannot_set_itself_off_for_ever(
    runtime: ReactiveRuntime, store: SQLiteEventStore
) -> None:
    def broken() -> None:
        raise OSError("gone")

    @runtime.behavior(on_events=["a", "tool.failed"])
    def again(rt: ReactiveRuntime, event: Event) -> None:
        rt.ctx.tool("broken", broken)

    runtime.emit("a", run_id="r1")
    report = runtime.dispatch_loop(Budget(depth=9))
    assert report.stopped == "depth"
    assert 3 <= types(store).count("tool.failed") <= 9


def test_seconds_are_counted_by_the_clock_that_is_given(
    dispatch: Dispatch, store: SQLiteEventStore
) -> None:
    now = [0.0]
    runtime = ReactiveRuntime(store, budget=Budget(seconds=10.0), clock=lambda: now[0])

    @runtime.behavior(on_events=["a"])
    def slow(rt: ReactiveRuntime, event: Event) -> None:
        now[0] += 4.0

    for _ in range(5):
        runtime.emit("a", run_id="r1")
    report = dispatch(runtime)
    assert (report.events, report.stopped, report.seconds) == (3, "seconds", 12.0)
    assert types(store)[-1] == "budget.exhausted"
    assert dispatch(runtime).events == 3  # the two that waited, and what ended the first


@pytest.mark.parametrize(
    "wrong", [{"events": 0}, {"seconds": -1.0}, {"depth": 0}, {"events": 1.5}, {"depth": True}]
)
def test_a_budget_must_be_positive(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        Budget(**wrong)


def test_the_active_run_ends_with_its_block(
    runtime: ReactiveRuntime, store: SQLiteEventStore
) -> None:
    store.create_run(Run(run_id="r2"))
    other = ReactiveRuntime(store)
    with pytest.raises(ZeroDivisionError), runtime.active_run("r1"):  # noqa: PT012
        with runtime.active_run("r2"), other.active_run("r1"):
            assert runtime.emit("inner").run_id == "r2"
            assert other.emit("other").run_id == "r1"
        assert runtime.emit("outer").run_id == "r1"
        raise ZeroDivisionError
    with pytest.raises(UsageError, match="no run"):
        runtime.emit("nowhere")


def test_the_active_run_is_that_of_the_thread(runtime: ReactiveRuntime) -> None:
    caught: list[BaseException] = []

    def elsewhere() -> None:
        try:
            runtime.emit("a")
        except UsageError as error:
            caught.append(error)

    with runtime.active_run("r1"):
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
    assert len(caught) == 1


def test_what_cannot_be_emitted(runtime: ReactiveRuntime, store: SQLiteEventStore) -> None:
    with pytest.raises(RunNotFoundError):
        runtime.emit("a", run_id="r9")
    with pytest.raises(RunNotFoundError), runtime.active_run("r9"):
        pass
    with pytest.raises(BadPayloadError):
        runtime.emit("a", {"x": float("nan")}, run_id="r1")
    with pytest.raises(BadPayloadError):
        runtime.emit("a", run_id="r1", cause=99)
    for wrong in ([("k", 1)], "text", 3, []):
        with pytest.raises(BadPayloadError):
            runtime.emit("a", wrong, run_id="r1")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"rt\.ctx"):
        _ = runtime.ctx
    assert types(store) == []


def test_a_dispatch_does_not_run_inside_another(
    dispatch: Dispatch, runtime: ReactiveRuntime, store: SQLiteEventStore
) -> None:
    @runtime.behavior(on_events=["a"])
    def greedy(rt: ReactiveRuntime, event: Event) -> None:
        rt.dispatch_loop()

    runtime.emit("a", run_id="r1")
    assert dispatch(runtime).failed == 1
    failed = next(store.read("r1", types=["behavior.failed"]))
    assert failed.payload["class"].endswith("UsageError")


def test_a_cell_that_is_run_again_replaces_its_behaviour(runtime: ReactiveRuntime) -> None:
    source = (
        "@runtime.behavior(on_events=['a'])\ndef answer(rt, event):\n    rt.emit('b', {'n': N})\n"
    )
    for number in (1, 2):
        names: dict[str, Any] = {"runtime": runtime, "N": number}
        exec(compile(source, f"<cell {number}>", "exec"), names)
    assert [behavior.name for behavior in runtime.behaviors] == ["answer"]
    runtime.emit("a", run_id="r1")
    runtime.dispatch_loop()
    assert [event.payload for event in runtime.store.read("r1", types=["b"])] == [{"n": 2}]


def test_functions_that_share_a_name_are_all_kept(runtime: ReactiveRuntime) -> None:
    source = (
        "for type_ in ('a', 'b'):\n"
        "    @runtime.behavior(on_events=[type_])\n"
        "    def answer(rt, event):\n        rt.emit('c')\n"
    )
    exec(compile(source, "<cell>", "exec"), {"runtime": runtime})
    for _ in range(2):
        runtime.behavior(on_events=["a"])(lambda rt, event: None)
    names = [behavior.name for behavior in runtime.behaviors]
    assert names == ["answer", "answer#2", "<lambda>", "<lambda>#2"]
    assert runtime.behaviors[1].trigger == Trigger(on_events=("b",))


def test_fingerprints_follow_the_source(runtime: ReactiveRuntime) -> None:
    def compiled(text: str, name: str = "<cell>") -> Any:
        names: dict[str, Any] = {}
        exec(compile(text, name, "exec"), names)
        return names["f"]

    nested = "def f(rt, event):\n    return [x + {} for x in event]\n"
    texts = [nested.format(1), nested.format(1), nested.format(2)]
    for number, text in enumerate(texts):
        runtime.behavior("a", name=f"b{number}")(compiled(text, f"<cell {number}>"))
    one, same, other = (behavior.fingerprint for behavior in runtime.behaviors)
    assert one == same != other


def test_the_log_tells_which_behaviours_ran(
    dispatch: Dispatch, runtime: ReactiveRuntime, store: SQLiteEventStore
) -> None:
    before = store.head("r1")
    runtime.watch("r1")
    dispatch(runtime)
    assert facts(store, "behaviors.registered") == []
    runtime.behavior(on_events=["a"], name="one")(lambda rt, event: None)
    runtime.emit("a", run_id="r1")
    dispatch(runtime)
    runtime.emit("a", run_id="r1")
    runtime.behavior(on_events=["b"], name="two")(lambda rt, event: None)
    dispatch(runtime)
    told = [event.payload for event in facts(store, "behaviors.registered")]
    assert [(t["run"], t["since"], t["restart"]) for t in told] == [
        ("r1", 2, True),
        ("r1", 3, False),
    ]
    assert [[b["name"] for b in t["behaviors"]] for t in told] == [["one"], ["one", "two"]]
    assert store.head("r1").position == before.position + 2  # the run itself is not disturbed


def test_a_projection_knows_the_event_before_behaviours_do(
    dispatch: Dispatch, store: SQLiteEventStore
) -> None:
    class Counting:
        count = 0

        def apply(self, event: Event) -> None:
            self.count += 1

    projection, seen = Counting(), []
    runtime = ReactiveRuntime(store=store, projection=projection)
    runtime.behavior(on_events=["*"])(lambda rt, event: seen.append(projection.count))
    runtime.emit("a", run_id="r1")
    runtime.emit("b", run_id="r1")
    dispatch(runtime)
    assert seen == [1, 2]


def test_the_work_for_an_event_does_not_grow_with_the_log(store: SQLiteEventStore) -> None:
    """Counted in steps of SQLite's machine, which no busy computer can change."""
    runtime = ReactiveRuntime(store)
    runtime.behavior(on_events=["a"])(lambda rt, event: None)

    def work() -> int:
        steps = [0]

        def step() -> None:
            steps[0] += 1

        runtime.emit("a", run_id="r1")
        store._db.set_progress_handler(step, 1)
        runtime.dispatch_loop()
        store._db.set_progress_handler(None, 0)
        return steps[0]

    runtime.dispatch_loop()
    work()
    short = work()
    store.append_many(Event(run_id="r1", type="x.y", payload={"n": n}) for n in range(20_000))
    runtime.dispatch_loop(Budget(events=100_000))
    assert work() <= short + 20  # a deeper tree takes a few steps more


def test_context_calls_of_a_behaviour_are_events_too(
    dispatch: Dispatch, runtime: ReactiveRuntime, store: SQLiteEventStore
) -> None:
    def broken(n: int) -> None:
        raise OSError("gone")

    @runtime.behavior(on_events=["a"])
    def tries(rt: ReactiveRuntime, event: Event) -> None:
        for n in range(2):
            with pytest.raises(OSError, match="gone"):
                rt.ctx.tool("broken", broken, {"n": n})

    @runtime.behavior(sequence=["tool.failed", "tool.failed"])
    def gives_up(rt: ReactiveRuntime, event: Event) -> None:
        rt.emit("run.abandoned")

    runtime.emit("a", run_id="r1")
    dispatch(runtime)
    assert written(store)[1:] == [
        ("tool.requested", 2, "behavior"),
        ("tool.failed", 3, "behavior"),
        ("tool.requested", 2, "behavior"),
        ("tool.failed", 5, "behavior"),
        ("run.abandoned", 6, "gives_up"),
    ]


@pytest.mark.parametrize(
    "trigger",
    [
        {"on_events": ["a"], "where": 5},
        {"on_events": ["a"], "where": {"x": object()}},
        {"on_events": ["a"], "where": {1: 2}},
        {"on_events": ["a"], "name": "\ud800"},
        {"objects": {"a": {"attributes.size": float("nan")}}},
    ],
)
def test_what_the_log_cannot_keep_is_refused_at_the_definition(
    runtime: ReactiveRuntime, trigger: dict[str, Any]
) -> None:
    with pytest.raises(UsageError):
        runtime.behavior(**trigger)(lambda rt, event: None)
    assert runtime.behaviors == ()


def test_what_is_no_function_is_no_behaviour(runtime: ReactiveRuntime) -> None:
    not_callable: Any = 5
    with pytest.raises(UsageError, match="no behaviour"):
        runtime.behavior(on_events=["a"])(not_callable)


def test_a_sequence_that_is_defined_anew_begins_anew(runtime: ReactiveRuntime) -> None:
    def define(sequence: str) -> None:
        # as a cell of a notebook does that is edited and run again
        names: dict[str, Any] = {}
        source = f"{sequence!r}\ndef found(rt, event): done.append(len(rt.matched))"
        code = compile(source, f"<cell {sequence}>", "exec")
        exec(code, {"done": done}, names)
        runtime.behavior(sequence=list(sequence), name="found")(names["found"])

    done: list[int] = []
    define("abc")
    with runtime.active_run("r1"):
        runtime.emit("a")
        runtime.emit("b")
        runtime.dispatch_loop()
        define("ab")
        for type_ in "cab":
            runtime.emit(type_)
        runtime.dispatch_loop()
    assert [behavior.name for behavior in runtime.behaviors] == ["found"]
    assert done == [2]
