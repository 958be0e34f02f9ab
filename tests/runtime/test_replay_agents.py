"""Replay of an agent: a function of its context, plain or asynchronous."""

# ruff: noqa: F811 - fixtures are imported by name

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest

from sag_research.errors import SagError, UsageError
from sag_research.llm import Context, Identity, Scripted
from sag_research.log import SQLiteEventStore
from sag_research.model import Event, Run
from sag_research.runtime import (
    Divergence,
    ReactiveRuntime,
    ReplayDivergence,
    fingerprint,
    replay,
)
from sag_research.runtime._replay_diff import changes
from tests.runtime.reactive import runtime, store, types  # noqa: F401

Agent = Callable[[Context], Any]


def step(ctx: Context, **payload: Any) -> Event:
    """Write a turn, caused by what stands before it."""
    assert ctx.run is not None
    end = ctx.store.head(ctx.run).position
    event = Event(run_id=ctx.run, type="agent.step", payload=payload, cause=end)
    return ctx.store.append(event)


def agent(ctx: Context) -> None:
    """Asks a model twice, calls a tool, reads the clock."""
    thought = ctx.llm(None, "What now?").text
    listing = ctx.tool("ls", lambda path: ["a.py", "b.py"], {"path": "."})
    step(ctx, thought=thought, action="ls", observation=", ".join(listing), started=time.time())
    thought = ctx.llm(None, "What now?").text
    step(ctx, thought=thought, action="date", observation=str(ctx.now()), seconds=time.time() % 1)


def lived(store: SQLiteEventStore, what: Agent = agent, run_id: str = "r1", **options: Any) -> None:
    model = Scripted(["look", "and date"])
    with Context(store, run_id, model=model, **options) as ctx:
        result = what(ctx)
        if asyncio.iscoroutine(result):
            asyncio.run(result)


def again(store: SQLiteEventStore, what: Agent) -> Divergence | None:
    return replay(store, "r1", what, strict=False).divergence


def test_an_agent_writes_the_same_run_again(store: SQLiteEventStore) -> None:
    lived(store)
    head = store.head("r1")
    report = replay(store, "r1", agent)
    assert (report.events, report.made, report.reused) == (10, 9, 4)
    assert "equal" in repr(report)
    assert store.head("r1") == head


def test_the_end_may_be_written_by_others(store: SQLiteEventStore) -> None:
    lived(store)
    store.append(Event(run_id="r1", type="run.completed", payload={"exit_status": "submitted"}))
    report = replay(store, "r1", agent)
    assert (report.events, report.made) == (11, 9)


def test_a_step_too_few_is_not_taken_for_the_end(store: SQLiteEventStore) -> None:
    lived(store)
    store.append(Event(run_id="r1", type="run.completed", payload={"exit_status": "submitted"}))
    found = again(store, lambda ctx: ctx.llm(None, "What now?"))
    assert found is not None
    assert (found.position, found.kind) == (4, "missing")
    assert found.recorded is not None
    assert found.recorded.type == "tool.requested"


def test_clocks_of_steps_are_not_compared_but_times_in_texts_are(store: SQLiteEventStore) -> None:
    def careless(ctx: Context) -> None:
        step(ctx, action="date", observation=str(time.time()))

    lived(store, careless)
    found = again(store, careless)
    assert found is not None
    assert (found.position, [change.path for change in found.changes]) == (2, ["$.observation"])


def test_an_edited_question_shows_what_was_edited(store: SQLiteEventStore) -> None:
    lived(store, lambda ctx: ctx.llm(None, "What now, my friend?"))
    found = again(store, lambda ctx: ctx.llm(None, "What now, dear friend?"))
    assert found is not None
    assert (found.position, found.kind) == (2, "unrecorded")
    assert [change.path for change in found.changes] == ["$.messages[0].content"]
    assert "dear friend" in found.changes[0].replayed


def test_one_ask_more_than_recorded(store: SQLiteEventStore) -> None:
    lived(store, lambda ctx: ctx.now())
    found = again(store, lambda ctx: [ctx.now(), ctx.now()])
    assert found is not None
    assert (found.position, found.kind) == (3, "unrecorded")
    assert "recorded 1 times" in found.reason


def test_the_source_of_an_agent_can_be_compared(store: SQLiteEventStore) -> None:
    def edited(ctx: Context) -> None:
        step(ctx, thought="otherwise")

    store.create_run(Run(run_id="r2", config={"code": fingerprint(agent)}))
    lived(store, run_id="r2")
    assert replay(store, "r2", agent).ok
    with pytest.raises(ReplayDivergence, match="source changed since the recording: edited"):
        replay(store, "r2", edited)


def test_an_asynchronous_agent_with_parallel_calls(store: SQLiteEventStore) -> None:
    async def slow(n: int) -> int:
        for _ in range(5 - n):
            await asyncio.sleep(0)
        return n

    async def parallel(ctx: Context) -> None:
        answers = await asyncio.gather(*(ctx.atool("slow", slow, {"n": n}) for n in range(4)))
        step(ctx, observation=str(answers))
        reply = await ctx.allm(None, "What now?")
        step(ctx, thought=reply.text)

    lived(store, parallel)
    assert types(store)[:8] == ["tool.requested"] * 4 + ["tool.responded"] * 4
    assert replay(store, "r1", parallel).made == 12

    async def in_a_notebook() -> bool:
        return replay(store, "r1", parallel).ok

    assert asyncio.run(in_a_notebook())


def test_a_stream_with_steps_between_its_chunks(store: SQLiteEventStore) -> None:
    def streams(ctx: Context) -> None:
        for chunk in ctx.stream(None, "Go on."):
            if chunk.text:
                step(ctx, observation=chunk.text)

    lived(store, streams)
    assert types(store)[-1] == "llm.responded"
    assert replay(store, "r1", streams).ok


def test_recorded_failures_come_again(store: SQLiteEventStore) -> None:
    def fails(ctx: Context) -> None:
        ctx.tool("broken", lambda: 1 // 0)

    with pytest.raises(ZeroDivisionError):
        lived(store, fails)
    assert replay(store, "r1", fails).ok  # it raised when it was recorded, too


def test_an_agent_that_raises_too_early(store: SQLiteEventStore) -> None:
    def raises(ctx: Context) -> None:
        raise LookupError("no such tool")

    lived(store)
    found = again(store, raises)
    assert found is not None
    assert (found.position, found.kind) == (2, "missing")
    assert found.reason == "the agent raised LookupError: no such tool"


def test_nothing_can_keep_a_divergence_secret(store: SQLiteEventStore) -> None:
    def stubborn(ctx: Context) -> None:
        for text in ("one", "two"):
            try:
                step(ctx, observation=f"{text} {time.time()}")
            except Exception:  # noqa: BLE001 - what careless agents do
                pytest.fail("the divergence was caught")

    lived(store, stubborn)
    found = again(store, stubborn)
    assert found is not None
    assert found.position == 2


def test_a_replay_needs_no_model_and_keeps_none(store: SQLiteEventStore) -> None:
    lived(store)
    seen: list[Any] = []

    def looks(ctx: Context) -> None:
        seen.append(ctx._model)
        agent(ctx)

    model = Scripted([])
    replay(store, "r1", looks)
    replay(store, "r1", looks, model=model)
    assert seen == [model.identity()] * 2


def test_events_from_outside_can_be_named(store: SQLiteEventStore) -> None:
    def chat(ctx: Context) -> None:
        heard = [event.payload["text"] for event in ctx.store.read("r1", types=["user.said"])]
        step(ctx, observation=" ".join(heard))

    store.append(Event(run_id="r1", type="user.said", payload={"text": "hello"}))
    lived(store, chat)
    assert replay(store, "r1", chat, given=["user.said"]).made == 1
    assert not replay(store, "r1", chat, strict=False).ok


def test_behaviours_beside_an_agent_are_given(store: SQLiteEventStore) -> None:
    runtime = ReactiveRuntime(store)
    runtime.behavior(on_events=["agent.step"])(
        lambda rt, event: rt.emit("seen", {"at": rt.ctx.now()})
    )
    runtime.watch("r1")

    def watched(ctx: Context) -> None:
        for n in range(3):
            step(ctx, observation=f"{n} {ctx.now()}")
            if ctx.store is store:
                runtime.dispatch_loop()

    lived(store, watched)
    assert types(store).count("seen") == 3
    assert replay(store, "r1", watched).reused == 3
    assert replay(store, "r1", runtime).reused == 3


def test_a_fork_is_replayed_from_where_it_parts(store: SQLiteEventStore) -> None:
    lived(store)
    fork = store.fork("r1", at=6, intervention={"model": "other"})
    lived(store, run_id=fork.run_id)
    report = replay(store, fork.run_id, agent)
    assert (report.events, report.made, report.reused) == (16, 9, 4)


def test_sessions_that_were_resumed_replay_as_one(store: SQLiteEventStore) -> None:
    def asks(ctx: Context) -> None:
        step(ctx, observation=f"{ctx.now()} {ctx.random()}")

    for _ in range(2):
        lived(store, asks)

    def both(ctx: Context) -> None:
        asks(ctx)
        asks(ctx)

    assert replay(store, "r1", both).reused == 4
    half = store.head("r1").position // 2 + 1
    assert replay(store, "r1", asks, since=half + 1).reused == 2


def test_an_interrupted_call_that_was_made_again_later(store: SQLiteEventStore) -> None:
    interrupts = [True]

    def tool() -> int:
        if interrupts:
            interrupts.pop()
            raise KeyboardInterrupt
        return 1

    def calls(ctx: Context) -> None:
        step(ctx, observation=str(ctx.tool("slow", tool)))

    with pytest.raises(KeyboardInterrupt):
        lived(store, calls)
    key = next(store.read("r1", types=["tool.requested"])).payload["key"]
    torn = {"name": "torn", "key": key[::-1], "occurrence": 0}  # its process was killed
    store.append(Event(run_id="r1", type="tool.requested", payload=torn))
    lived(store, calls)
    calls_twice = ["tool.requested", "tool.failed", "tool.requested", "tool.requested"]
    assert types(store) == [*calls_twice, "tool.responded", "agent.step"]
    assert replay(store, "r1", calls).made == 3


def test_the_part_of_long_texts_that_differs_is_shown() -> None:
    long = "same " * 500
    (change,) = changes({"text": long + "old end"}, {"text": long + "new end"})
    assert change.path == "$.text"
    assert "old end" in change.recorded
    assert "new end" in change.replayed
    assert len(change.recorded) <= 200


def test_a_long_diff_is_cut(store: SQLiteEventStore) -> None:
    def many(value: int) -> Agent:
        return lambda ctx: step(ctx, state={f"k{n:02d}": value for n in range(50)})

    lived(store, many(1))
    found = again(store, many(2))
    assert found is not None
    assert len(found.changes) == 50
    assert found.diff.count("\n") == 60
    assert found.diff.endswith("… 30 more")


def recorded(store: SQLiteEventStore) -> None:
    lived(store, note_twice)


def note(ctx: Context, number: int) -> None:
    assert ctx.run is not None
    ctx.store.append(Event(run_id=ctx.run, type="note.taken", payload={"n": number}))


def note_twice(ctx: Context) -> None:
    for number in range(2):
        ctx.now()
        note(ctx, number)


def keeps_the_parting(ctx: Context) -> None:
    for number in range(2):
        ctx.now()
        with suppress(BaseException):
            note(ctx, -1)
        note(ctx, number)


def one_more_in_a_thread(ctx: Context) -> None:
    note_twice(ctx)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(note, ctx, 2)


async def one_more_in_a_task(ctx: Context) -> None:
    async def more() -> None:
        note(ctx, 2)

    note_twice(ctx)
    await asyncio.gather(more(), return_exceptions=True)


@pytest.mark.parametrize(
    ("what", "position", "kind"),
    [
        (keeps_the_parting, 3, "different"),
        (one_more_in_a_thread, 6, "extra"),
        (one_more_in_a_task, 6, "extra"),
    ],
)
def test_an_agent_cannot_keep_a_divergence_to_itself(
    store: SQLiteEventStore, what: Agent, position: int, kind: str
) -> None:
    recorded(store)
    found = again(store, what)
    assert found is not None
    assert (found.position, found.kind) == (position, kind)


def test_an_agent_cannot_keep_a_missing_answer_to_itself(store: SQLiteEventStore) -> None:
    def asks_more(ctx: Context) -> None:
        note_twice(ctx)
        with suppress(Exception):
            ctx.tool("pwd", lambda: "/", {})

    recorded(store)
    found = again(store, asks_more)
    assert found is not None
    assert (found.position, found.kind) == (6, "unrecorded")
    assert "pwd" in found.reason or "no recorded tool call" in found.reason


def test_a_question_that_never_had_an_answer_may_be_asked_again(store: SQLiteEventStore) -> None:
    def has_no_model(ctx: Context) -> None:
        with suppress(SagError):
            ctx.llm(Identity(provider="none", model="none"), "What now?")
        note(ctx, 1)

    lived(store, has_no_model)
    assert again(store, has_no_model) is None


def test_what_is_rolled_back_was_not_written_again(store: SQLiteEventStore) -> None:
    def in_vain(ctx: Context) -> None:
        with suppress(LookupError), ctx.store.transaction():
            note(ctx, 0)
            raise LookupError

    def at_second_try(ctx: Context) -> None:
        in_vain(ctx)
        note(ctx, 0)

    lived(store, at_second_try)
    assert again(store, at_second_try) is None
    found = again(store, in_vain)
    assert found is not None
    assert (found.position, found.kind) == (2, "missing")


def test_an_error_without_a_text_is_told(store: SQLiteEventStore) -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise LookupError

    def raises(ctx: Context) -> None:
        raise Mute

    recorded(store)
    found = again(store, raises)
    assert found is not None
    assert "Mute" in found.reason


def test_a_replay_must_begin_somewhere(store: SQLiteEventStore) -> None:
    recorded(store)
    with pytest.raises(UsageError, match="position 0"):
        replay(store, "r1", note_twice, upto=0)
