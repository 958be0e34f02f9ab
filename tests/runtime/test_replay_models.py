"""The default model of a replay is that of the part that is replayed."""

# ruff: noqa: F811 - fixtures are imported by name

from __future__ import annotations

from typing import Any

import pytest

from sag_research.llm import Context, Identity, Scripted
from sag_research.log import SQLiteEventStore
from sag_research.model import Event
from sag_research.runtime import ReactiveRuntime, replay
from tests.runtime.reactive import runtime, store  # noqa: F401


def asks(ctx: Context) -> None:
    """Asks the default model, and writes the answer down."""
    thought = ctx.llm(None, "What now?").text
    assert ctx.run is not None
    end = ctx.store.head(ctx.run).position
    event = Event(run_id=ctx.run, type="agent.step", payload={"thought": thought}, cause=end)
    ctx.store.append(event)


def lived(store: SQLiteEventStore, run_id: str, model: str, **options: Any) -> None:
    with Context(store, run_id, model=Scripted(lambda request: model, name=model), **options) as c:
        asks(c)


def default_of(store: SQLiteEventStore, run_id: str, **options: Any) -> Identity | None:
    """Replay with an agent that only looks at its default model."""
    seen: list[Any] = []
    replay(store, run_id, lambda ctx: seen.append(ctx._model), strict=False, **options)
    return seen[0]  # type: ignore[no-any-return]


INTERVENTIONS: list[dict[str, Any]] = [
    {"model": "large"},
    {"change": {"model": "large"}},
    {"model": {"provider": "scripted", "model": "large"}},
    {"prompt": "think twice"},
]


@pytest.mark.parametrize("intervention", INTERVENTIONS)
def test_a_fork_is_replayed_with_its_own_model(
    store: SQLiteEventStore, intervention: dict[str, Any]
) -> None:
    lived(store, "r1", "small")
    store.fork("r1", at=4, run_id="child", intervention=intervention)
    lived(store, "child", "large")
    assert replay(store, "r1", asks).ok
    assert replay(store, "child", asks).ok
    # a fork of the fork, that says nothing of a model
    store.fork("child", run_id="grandchild")
    lived(store, "grandchild", "large")
    assert replay(store, "grandchild", asks).ok


@pytest.mark.parametrize("intervention", INTERVENTIONS[:3])
def test_a_fork_that_asked_nothing_yet_has_the_model_that_was_meant(
    store: SQLiteEventStore, intervention: dict[str, Any]
) -> None:
    lived(store, "r1", "small")
    store.fork("r1", run_id="child", intervention=intervention)
    assert default_of(store, "child") == Scripted([], name="large").identity()
    assert default_of(store, "r1") == Scripted([], name="small").identity()
    named = Identity("other", "one")
    assert default_of(store, "child", model=named) == named


def test_of_several_models_the_one_that_was_meant(store: SQLiteEventStore) -> None:
    def consults(ctx: Context) -> None:
        judge = Scripted(lambda request: "no", name="judge")
        ctx.llm(judge if ctx.mode == "record" else judge.identity(), "Is it?")
        asks(ctx)

    store.fork("r1", run_id="child", intervention={"model": "large"})
    with Context(store, "child", model=Scripted(lambda request: "go", name="large")) as ctx:
        consults(ctx)
    assert replay(store, "child", consults).ok


def test_a_taken_answer_tells_the_model_too(store: SQLiteEventStore) -> None:
    """A fork that reused the answers of another one, and never asked live."""
    for child, mode in (("one", "record"), ("two", "reuse")):
        store.fork("r1", run_id=child, intervention={"seed": child})
        lived(store, child, "large", mode=mode, scope="family")
    assert [event.type for event in store.read("two", lo=3)] == ["call.reused", "agent.step"]
    assert replay(store, "two", asks).ok


def test_a_model_that_nobody_can_read_is_passed_over(store: SQLiteEventStore) -> None:
    lived(store, "r1", "small")
    for number, odd in enumerate([3, ["a"], {"name": "x"}, {"model": 3}, ""]):
        child = store.fork("r1", run_id=f"c{number}", intervention={"model": odd})
        assert default_of(store, child.run_id) == Scripted([], name="small").identity()


def test_behaviours_of_a_fork_have_its_model(store: SQLiteEventStore) -> None:
    def with_model(model: Any) -> ReactiveRuntime:
        runtime = ReactiveRuntime(store, model=model)

        @runtime.behavior(on_events="question")
        def answer(rt: ReactiveRuntime, event: Event) -> None:
            rt.emit("answer", {"text": rt.ctx.llm(None, event.payload["text"]).text})

        return runtime

    for run_id, name in (("r1", "small"), ("child", "large")):
        if run_id == "child":
            store.fork("r1", run_id="child", intervention={"model": "large"})
        living = with_model(Scripted(lambda request, name=name: name, name=name))
        with living.active_run(run_id):
            living.emit("question", {"text": "Why?"})
        living.dispatch_loop()
        assert replay(store, run_id, with_model(None)).ok
