"""Replay of behaviours: equal when nothing changed, and the very event named when something did."""

# ruff: noqa: F811 - fixtures are imported by name

from __future__ import annotations

import random
import sqlite3
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sag_research.errors import SagError, UsageError
from sag_research.llm import Context, Scripted
from sag_research.log import SQLiteEventStore
from sag_research.model import Event, Run
from sag_research.runtime import (
    Budget,
    Divergence,
    ReactiveRuntime,
    ReplayDivergence,
    replay,
)
from tests.runtime.reactive import Dispatch, dispatch, runtime, store, types  # noqa: F401

Handler = Callable[[ReactiveRuntime, Event], Any]


def honest(rt: ReactiveRuntime, event: Event) -> None:
    """Takes everything that differs from run to run from its context."""
    drawn = rt.ctx.rng().randrange(10**9)
    at, name, chance = rt.ctx.now(), rt.ctx.uuid(), rt.ctx.random()
    rt.emit("made", {"at": at, "name": name, "chance": chance, "drawn": drawn})
    added = rt.ctx.tool("add", lambda a, b: a + b, {"a": event.payload["n"], "b": 1})
    rt.emit("added", {"sum": added})


def live(store: SQLiteEventStore, handler: Handler, dispatch: Dispatch | None = None) -> None:
    """Record two seeds that a behaviour answers and another behaviour answers in turn."""
    runtime = with_behaviors(store, handler)
    with runtime.active_run("r1"):
        runtime.emit("seed", {"n": 1})
        runtime.emit("seed", {"n": 2})
    (dispatch or ReactiveRuntime.dispatch_loop)(runtime)


def with_behaviors(store: SQLiteEventStore, handler: Handler) -> ReactiveRuntime:
    runtime = ReactiveRuntime(store)
    runtime.behavior(on_events=["seed"], name="answer")(handler)

    @runtime.behavior(on_events=["made"])
    def confirm(rt: ReactiveRuntime, event: Event) -> None:
        rt.emit("confirmed", {"of": event.payload})

    return runtime


def again(store: SQLiteEventStore, handler: Handler) -> Divergence | None:
    """Replay with another handler."""
    report = replay(store, "r1", with_behaviors(store, handler), strict=False)
    return report.divergence


def test_what_goes_through_the_context_is_replayed(
    dispatch: Dispatch, store: SQLiteEventStore
) -> None:
    live(store, honest, dispatch)
    before = (store.last_seq(), store.head("r1"), store.head("@workspace"))
    report = replay(store, "r1", with_behaviors(store, honest))
    assert report.ok
    assert report.events == store.head("r1").position
    assert report.made == report.events - 3  # the run and the two seeds were given
    assert report.reused == 10
    assert (store.last_seq(), store.head("r1"), store.head("@workspace")) == before


def constant(payload: dict[str, Any]) -> Handler:
    return lambda rt, event: rt.emit("made", payload)


CARELESS: dict[str, Handler] = {
    "time": lambda rt, event: rt.emit("made", {"x": {"at": time.time()}}),
    "uuid": lambda rt, event: rt.emit("made", {"x": {"at": str(uuid.uuid4())}}),
    "random": lambda rt, event: rt.emit("made", {"x": {"at": random.random()}}),
}


@pytest.mark.parametrize("what", CARELESS)
def test_what_does_not_go_through_the_context_is_named(
    dispatch: Dispatch, store: SQLiteEventStore, what: str
) -> None:
    live(store, CARELESS[what], dispatch)
    found = again(store, CARELESS[what])
    assert found is not None
    assert (found.position, found.kind, found.fields) == (4, "different", ("payload",))
    assert found.behavior == "answer"
    assert [change.path for change in found.changes] == ["$.x.at"]
    assert found.changed == ()  # the source is the same: it is the world that differed
    with pytest.raises(ReplayDivergence, match=r"event 4 of run 'r1' in behaviour 'answer'"):
        replay(store, "r1", with_behaviors(store, CARELESS[what]))


def test_an_edited_payload_names_the_behaviour_whose_source_changed(
    store: SQLiteEventStore,
) -> None:
    live(store, lambda rt, event: rt.emit("made", {"verdict": "good", "n": event.payload["n"]}))
    found = again(
        store, lambda rt, event: rt.emit("made", {"verdict": "bad", "n": event.payload["n"]})
    )
    assert found is not None
    assert found.changed == ("answer",)
    text = str(ReplayDivergence(found))
    assert '- "good"\n+ "bad"' in text
    assert "$.verdict" in text
    assert "source changed since the recording: answer" in text


def one_more(rt: ReactiveRuntime, event: Event) -> None:
    rt.emit("made", {"n": 1})
    if event.payload["n"] == 2:
        rt.emit("more")


def one_fewer(rt: ReactiveRuntime, event: Event) -> None:
    if event.payload["n"] != 2:
        rt.emit("made", {"n": 1})


def test_one_event_more(store: SQLiteEventStore) -> None:
    live(store, constant({"n": 1}))
    found = again(store, one_more)
    assert found is not None
    assert (found.position, found.replayed and found.replayed.type) == (6, "more")
    assert found.recorded is not None
    assert found.recorded.type == "confirmed"


def test_one_event_more_after_the_end(store: SQLiteEventStore) -> None:
    live(store, constant({"n": 1}))
    runtime = with_behaviors(store, constant({"n": 1}))
    runtime.behavior(on_events=["confirmed"], name="late")(lambda rt, event: rt.emit("more"))
    report = replay(store, "r1", runtime, strict=False)
    assert report.divergence is not None
    found = report.divergence
    assert (found.position, found.kind, found.behavior) == (8, "extra", "late")
    assert found.changed == ("late (new)",)


def test_one_event_fewer(store: SQLiteEventStore) -> None:
    live(store, constant({"n": 1}))
    found = again(store, one_fewer)
    assert found is not None
    assert found.position == 5
    assert found.recorded is not None
    assert (found.recorded.type, found.recorded.cause) == ("made", 3)


def test_one_event_fewer_at_the_end(store: SQLiteEventStore) -> None:
    live(store, constant({"n": 1}))
    runtime = ReactiveRuntime(store)
    runtime.behavior(on_events=["seed"], name="answer")(constant({"n": 1}))
    report = replay(store, "r1", runtime, strict=False)
    assert report.divergence is not None
    found = report.divergence
    assert (found.position, found.kind, found.behavior) == (6, "missing", "confirm")
    assert found.changed == ("confirm (gone)",)


@pytest.mark.parametrize(
    ("handler", "fields"),
    [
        (lambda rt, event: rt.emit("made", {"n": 1}, actor="me"), ("actor",)),
        (lambda rt, event: rt.emit("made", {"n": 1}, cause=1), ("cause",)),
        (lambda rt, event: rt.emit("mode", {"n": 1}), ("type",)),
        (lambda rt, event: rt.emit("made", {"n": True}), ("payload",)),
        (lambda rt, event: rt.emit("made", {"n": 1.0}), ("payload",)),
        (lambda rt, event: rt.emit("made", {"n": 1, "m": None}), ("payload",)),
    ],
)
def test_whatever_the_digest_covers_is_compared(
    store: SQLiteEventStore, handler: Handler, fields: tuple[str, ...]
) -> None:
    live(store, constant({"n": 1}))
    found = again(store, handler)
    assert found is not None
    assert (found.position, found.fields) == (4, fields)


def test_the_order_of_keys_is_not_compared(store: SQLiteEventStore) -> None:
    live(store, constant({"a": (1, 2), "b": {"c": 1, "d": 2}}))
    assert again(store, constant({"b": {"d": 2, "c": 1}, "a": [1, 2]})) is None


def test_an_ask_that_was_not_recorded(store: SQLiteEventStore) -> None:
    def other(rt: ReactiveRuntime, event: Event) -> None:
        rt.ctx.tool("add", lambda a, b: pytest.fail("called in a replay"), {"a": 1, "b": 2})

    live(store, lambda rt, event: rt.emit("n", {"n": rt.ctx.tool("add", max, {})}) if 0 else None)
    found = again(store, other)
    assert found is not None
    assert (found.kind, found.behavior) == ("unrecorded", "answer")


def test_an_ask_with_other_arguments_is_shown_beside_the_recorded_one(
    store: SQLiteEventStore,
) -> None:
    def asking(b: int) -> Handler:
        return lambda rt, event: rt.ctx.tool("add", lambda a, b: a + b, {"a": 1, "b": b})

    live(store, asking(2))
    found = again(store, asking(3))
    assert found is not None
    assert (found.position, found.kind) == (4, "unrecorded")
    assert [(c.path, c.recorded, c.replayed) for c in found.changes] == [
        ("$.arguments.b", "2", "3")
    ]


def test_a_miss_that_the_behaviour_swallows_still_shows(store: SQLiteEventStore) -> None:
    def deaf(rt: ReactiveRuntime, event: Event) -> None:
        try:
            rt.emit("made", {"sum": rt.ctx.tool("add", lambda a: a, {"a": 2})})
        except Exception:  # noqa: BLE001 - what careless behaviours do
            rt.emit("made", {"sum": 1})

    live(
        store, lambda rt, event: rt.emit("made", {"sum": rt.ctx.tool("add", lambda a: a, {"a": 1})})
    )
    found = again(store, deaf)
    assert found is not None
    assert found.position == 4


def test_models_are_not_asked_again(store: SQLiteEventStore) -> None:
    model = Scripted(["yes", "no"])
    runtime = ReactiveRuntime(store, model=model)

    @runtime.behavior(on_events=["seed"])
    def asks(rt: ReactiveRuntime, event: Event) -> None:
        rt.emit("said", {"text": rt.ctx.llm(None, "Well?").text})
        said = "".join(chunk.text for chunk in rt.ctx.stream(model, "And?"))
        rt.emit("said", {"text": said})

    runtime.emit("seed", run_id="r1")
    runtime.dispatch_loop()
    requested = next(store.read("r1", types=["llm.requested"]))
    assert requested.cause == 2
    report = replay(store, "r1", runtime)
    assert (report.ok, report.reused) == (True, 2)
    assert len(model.requests) == 2
    assert replay(store, "r1", runtime, model=model.identity()).ok


def test_the_log_of_a_replay_cannot_make_live_calls(store: SQLiteEventStore) -> None:
    calls: list[int] = []

    def goes_behind(rt: ReactiveRuntime, event: Event) -> None:
        own = Context(rt.store, "r1")
        own.tool("add", lambda a: calls.append(a), {"a": 1})

    live(store, goes_behind)
    assert calls == [1, 1]
    found = again(store, goes_behind)
    assert found is not None
    assert found.kind == "unrecorded"
    assert calls == [1, 1]


def test_failures_are_replayed_as_failures(dispatch: Dispatch, store: SQLiteEventStore) -> None:
    def fails(rt: ReactiveRuntime, event: Event) -> None:
        raise ValueError(f"seed {event.payload['n']}")

    live(store, fails, dispatch)
    assert types(store) == ["seed", "seed", "behavior.failed", "behavior.failed"]
    assert again(store, fails) is None

    def fails_otherwise(rt: ReactiveRuntime, event: Event) -> None:
        raise ValueError("something else")

    found = again(store, fails_otherwise)
    assert found is not None
    assert [change.path for change in found.changes if change.path == "$.message"]


def test_where_the_failing_source_lies_is_not_compared(store: SQLiteEventStore) -> None:
    def from_file(name: str) -> Handler:
        names: dict[str, Any] = {}
        text = f"def fails(rt, event):  # in {name}\n    raise ValueError('no')\n"
        exec(compile(text, name, "exec"), names)
        return names["fails"]  # type: ignore[no-any-return]

    live(store, from_file("<cell 1>"))
    payload = next(store.read("r1", types=["behavior.failed"])).payload
    assert "<cell 1>" in payload["traceback"]
    assert again(store, from_file("/elsewhere/agent.py")) is None


def test_recorded_errors_of_tools_come_again(store: SQLiteEventStore) -> None:
    def broken() -> None:
        raise OSError("gone")

    def tries(rt: ReactiveRuntime, event: Event) -> None:
        try:
            rt.ctx.tool("broken", broken)
        except OSError as error:
            rt.emit("made", {"why": str(error)})

    live(store, tries)
    assert replay(store, "r1", with_behaviors(store, tries)).reused == 2


def test_sequences_are_replayed_over_restarts(store: SQLiteEventStore) -> None:
    def session() -> ReactiveRuntime:
        runtime = ReactiveRuntime(store)
        register = runtime.behavior(sequence=["a", "a"], name="twice")
        register(lambda rt, event: rt.emit("twice", {"first": rt.matched[0].position}))
        return runtime

    for _ in range(2):  # each session sees three: a pair, and one that is forgotten
        runtime = session()
        for _ in range(3):
            runtime.emit("a", run_id="r1")
        runtime.dispatch_loop()
    assert types(store).count("twice") == 2
    assert replay(store, "r1", session()).made == 2


def test_what_was_not_dispatched_is_not_replayed(
    dispatch: Dispatch, store: SQLiteEventStore
) -> None:
    def ping(rt: ReactiveRuntime, event: Event) -> None:
        rt.emit("seed", {"n": event.payload["n"] + 1})

    store.append(Event(run_id="r1", type="seed", payload={"n": -1}))
    runtime = with_behaviors(store, ping)
    runtime.emit("seed", {"n": 0}, run_id="r1")
    assert dispatch(runtime, Budget(events=5)).stopped == "events"
    assert again(store, ping) is None
    assert dispatch(runtime, Budget(events=5)).stopped == "events"
    assert again(store, ping) is None
    assert dispatch(runtime, Budget(depth=14)).stopped == "depth"
    dispatch(runtime)
    assert again(store, ping) is None
    found = again(store, constant({"n": 1}))
    assert found is not None
    assert found.position == 4


def test_a_cancelled_dispatch_is_replayed_as_far_as_it_went(store: SQLiteEventStore) -> None:
    cancel: list[Any] = []

    def ping(rt: ReactiveRuntime, event: Event) -> None:
        if event.payload["n"] == 5:
            cancel[0].cancel()
        rt.emit("seed", {"n": event.payload["n"] + 1})

    class Quiet:
        def cancel(self) -> None:
            pass

    runtime = with_behaviors(store, ping)
    gate = runtime.emit("seed", {"n": 0}, run_id="r1")
    assert gate.position == 2
    with store.transaction():  # it cannot begin before the handle is known
        cancel.append(runtime.start())
    assert cancel[0].result(20).stopped == "cancelled"
    cancel[0] = Quiet()
    assert again(store, ping) is None


def test_a_fork_replays_its_own_part(store: SQLiteEventStore) -> None:
    live(store, honest)
    fork = store.fork("r1", at=9)
    runtime = with_behaviors(store, honest)
    runtime.watch(fork.run_id)
    for n in (7, 8):
        runtime.emit("seed", {"n": n}, run_id=fork.run_id)
    runtime.dispatch_loop()
    report = replay(store, fork.run_id, with_behaviors(store, honest))
    assert report.reused == 10
    assert report.made == store.head(fork.run_id).position - 12  # prefix, run.forked, two seeds
    found = replay(store, fork.run_id, with_behaviors(store, one_more), strict=False).divergence
    assert found is not None
    assert found.position == 13


def test_answers_that_were_reused_from_another_run(store: SQLiteEventStore) -> None:
    live(store, lambda rt, event: rt.emit("made", {"n": rt.ctx.tool("t", lambda: 1)}))
    store.create_run(Run(run_id="r2"))
    runtime = ReactiveRuntime(store, mode="reuse", scope="store")

    @runtime.behavior(on_events=["seed"])
    def asks(rt: ReactiveRuntime, event: Event) -> None:
        rt.emit("made", {"n": rt.ctx.tool("t", lambda: 2)})

    runtime.emit("seed", run_id="r2")
    runtime.dispatch_loop()
    assert "call.reused" in types(store, "r2")
    assert replay(store, "r2", runtime).reused == 1


def test_an_agent_beside_the_behaviours_is_given(store: SQLiteEventStore) -> None:
    runtime = with_behaviors(store, honest)
    agent = Context(store, "r1")
    for n in range(3):
        at = agent.now()
        runtime.emit("seed", {"n": n, "at": at}, run_id="r1")
        runtime.dispatch_loop()
    assert replay(store, "r1", with_behaviors(store, honest)).reused == 15


def test_behaviours_that_came_after_the_run(store: SQLiteEventStore) -> None:
    for n in range(3):
        store.append(Event(run_id="r1", type="seed", payload={"n": n}))
    runtime = with_behaviors(store, honest)
    runtime.watch("r1", since=2)
    runtime.dispatch_loop()
    assert types(store)[:4] == ["seed"] * 3 + ["effect.recorded"]
    assert replay(store, "r1", with_behaviors(store, honest)).reused == 15


def test_parts_of_a_run_can_be_replayed(store: SQLiteEventStore) -> None:
    live(store, constant({"n": 1}))
    runtime = with_behaviors(store, constant({"n": 1}))
    runtime.emit("seed", {"n": 3}, run_id="r1")  # never dispatched
    report = replay(store, "r1", runtime, strict=False)
    assert report.divergence is not None
    assert report.divergence.kind == "extra"
    assert replay(store, "r1", runtime, upto=7).events == 7


def test_a_redacted_recording_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "log.sqlite"
    with SQLiteEventStore(path) as store:
        store.create_run(Run(run_id="r1"))
        live(store, constant({"n": 1}))
    with sqlite3.connect(path) as db:
        db.execute("UPDATE events SET body = NULL WHERE run = 1 AND pos = 3")
    db.close()
    with SQLiteEventStore(path) as store, pytest.raises(SagError, match="from event 3 on"):
        replay(store, "r1", with_behaviors(store, constant({"n": 1})))


def test_hostile_text_in_a_divergence_is_made_harmless(store: SQLiteEventStore) -> None:
    nasty = "<script>alert(1)</script>\x1b[31m\u202e"
    live(store, constant({nasty: nasty}))
    report = replay(
        store, "r1", with_behaviors(store, constant({nasty: nasty + "!"})), strict=False
    )
    text, page = str(report.divergence), report._repr_html_()
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "<script>" not in page
    assert "parts at 4" in page


def test_only_a_runtime_behaviours_or_an_agent_can_replay(store: SQLiteEventStore) -> None:
    for wrong in (3, "agent", [1]):
        with pytest.raises(UsageError):
            replay(store, "r1", wrong)  # type: ignore[arg-type]


plans = st.lists(
    st.tuples(st.sampled_from(["emit", "now", "tool", "uuid", "fail", "deep"]), st.integers(0, 3)),
    max_size=5,
)


@settings(max_examples=40)
@given(plan=plans, seeds=st.integers(1, 3), spoilt=st.integers(0, 10))
def test_any_program_replays_and_any_change_is_found(
    plan: list[tuple[str, int]], seeds: int, spoilt: int
) -> None:
    def program(spoil: int | None) -> tuple[Handler, list[int]]:
        made = [0]

        def note(rt: ReactiveRuntime, value: Any) -> None:
            payload = {"value": value}
            if made[0] == spoil:
                payload["spoilt"] = True
            made[0] += 1
            rt.emit("made", payload)

        def handler(rt: ReactiveRuntime, event: Event) -> None:
            for what, n in plan:
                if what == "emit":
                    note(rt, n)
                elif what == "now":
                    note(rt, rt.ctx.now())
                elif what == "uuid":
                    note(rt, [rt.ctx.uuid() for _ in range(n)])
                elif what == "tool":
                    note(rt, rt.ctx.tool("t", lambda n: uuid.uuid4().hex, {"n": n}))
                elif what == "deep" and event.payload.get("n", 0) < 4:
                    rt.emit("seed", {"n": event.payload["n"] + 2})
                elif what == "fail":
                    raise ValueError(str(n))

        return handler, made

    with SQLiteEventStore(":memory:") as store:
        store.create_run(Run(run_id="r1"))
        runtime = with_behaviors(store, program(None)[0])
        for _ in range(seeds):
            runtime.emit("seed", {"n": 1}, run_id="r1")
        runtime.dispatch_loop(Budget(events=60))
        assert again(store, program(None)[0]) is None
        made = [event.position for event in store.read("r1", types=["made"])]
        found = again(store, program(spoilt)[0])
        if spoilt < len(made):
            assert found is not None
            assert found.position == made[spoilt]
        else:
            assert found is None


def test_a_behaviour_cannot_keep_a_missing_answer_to_itself(store: SQLiteEventStore) -> None:
    def asks_more(rt: ReactiveRuntime, event: Event) -> None:
        with suppress(Exception):
            rt.ctx.tool("pwd", lambda: "/", {})
        honest(rt, event)

    live(store, honest)
    found = replay(store, "r1", with_behaviors(store, asks_more), strict=False).divergence
    assert found is not None
    assert (found.kind, found.behavior) == ("unrecorded", "answer")
