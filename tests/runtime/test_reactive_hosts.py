"""Dispatching beside other work: asynchronous behaviours, threads, listeners."""

# ruff: noqa: F811 - fixtures are imported by name

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sag_research.errors import SagError, UsageError
from sag_research.log import SQLiteEventStore
from sag_research.model import Event, Run
from sag_research.runtime import Budget, Listener, ReactiveRuntime
from tests.runtime.reactive import (  # noqa: F401
    facts,
    runtime,
    store,
    types,
    written,
)

WAIT = 20  # seconds; reached only where something is broken


@pytest.fixture
def filed(tmp_path: Path) -> Iterator[SQLiteEventStore]:
    with SQLiteEventStore(tmp_path / "log.sqlite") as opened:
        opened.create_run(Run(run_id="r1"))
        yield opened


async def fetches(rt: ReactiveRuntime, event: Event) -> None:
    await asyncio.sleep(0)
    rt.emit("fetched", {"n": event.payload["n"]})


def test_asynchronous_behaviours_are_awaited_in_order(
    runtime: ReactiveRuntime, store: SQLiteEventStore
) -> None:
    runtime.behavior(on_events=["a"])(fetches)
    runtime.behavior(on_events=["fetched"])(lambda rt, event: rt.emit("kept"))
    for n in range(3):
        runtime.emit("a", {"n": n}, run_id="r1")
    report = asyncio.run(runtime.adispatch_loop())
    assert (report.fired, report.failed) == (6, 0)
    assert written(store)[3:] == [("fetched", n, "fetches") for n in (2, 3, 4)] + [
        ("kept", n, "<lambda>") for n in (5, 6, 7)
    ]


def test_an_asynchronous_failure_is_written_down_too(
    runtime: ReactiveRuntime, store: SQLiteEventStore
) -> None:
    @runtime.behavior(on_events=["a"])
    async def fails(rt: ReactiveRuntime, event: Event) -> None:
        await asyncio.sleep(0)
        raise TimeoutError("too late")

    runtime.emit("a", run_id="r1")
    assert asyncio.run(runtime.adispatch_loop()).failed == 1
    failed = next(store.read("r1", types=["behavior.failed"]))
    assert (failed.cause, failed.payload["class"]) == (2, "builtins.TimeoutError")


def test_an_asynchronous_behaviour_cannot_be_run_plainly(runtime: ReactiveRuntime) -> None:
    runtime.behavior(on_events=["a"])(fetches)
    runtime.emit("a", {"n": 1}, run_id="r1")
    with pytest.raises(UsageError, match="asynchronous"):
        runtime.dispatch_loop()
    assert runtime.start().result(WAIT).fired == 1  # nothing was lost, and a thread can


def test_other_tasks_have_their_turn(runtime: ReactiveRuntime) -> None:
    turns: list[str] = []
    runtime.behavior(on_events=["a"])(lambda rt, event: turns.append("behaviour"))
    for _ in range(3):
        runtime.emit("a", run_id="r1")

    async def other() -> None:
        for _ in range(3):
            turns.append("task")
            await asyncio.sleep(0)

    async def both() -> None:
        await asyncio.gather(runtime.adispatch_loop(), other())

    asyncio.run(both())
    assert turns == ["behaviour", "task"] * 3


def test_a_plain_dispatch_works_where_a_loop_is_running(runtime: ReactiveRuntime) -> None:
    runtime.behavior(on_events=["a"])(lambda rt, event: None)
    runtime.emit("a", run_id="r1")

    async def cell() -> int:
        return runtime.dispatch_loop().fired + runtime.start().result(WAIT).fired

    assert asyncio.run(cell()) == 1


def test_a_hosted_dispatch_follows_what_others_write(filed: SQLiteEventStore) -> None:
    runtime = ReactiveRuntime(filed)
    answered = threading.Semaphore(0)

    @runtime.behavior(on_events=["a"])
    def answers(rt: ReactiveRuntime, event: Event) -> None:
        rt.emit("b", {"n": event.payload["n"]})
        answered.release()

    runtime.watch("r1")
    handle = runtime.start(stay=True)
    with SQLiteEventStore(filed.path) as elsewhere:
        for n in range(20):
            (elsewhere if n % 5 == 0 else filed).append(
                Event(run_id="r1", type="a", payload={"n": n})
            )
            if n % 2:
                runtime.emit("c", run_id="r1")
    assert all(answered.acquire(timeout=WAIT) for _ in range(20))
    assert not handle.done
    handle.cancel()
    report = handle.result(WAIT)
    assert report.stopped == "cancelled"
    assert handle.done
    assert "cancelled" in repr(handle)
    numbers = [event.payload["n"] for event in filed.read("r1", types=["b"])]
    assert numbers == list(range(20))
    assert [e.type for e in handle.events if e.type == "a"] == ["a"] * 20
    assert filed.verify().ok


def test_a_hosted_dispatch_has_its_whole_budget_each_time(runtime: ReactiveRuntime) -> None:
    runtime.watch("r1")
    handle = runtime.start(Budget(events=5), stay=True)
    for done in (4, 8, 12):
        with runtime.store.transaction():  # all four at once
            for _ in range(4):
                runtime.emit("a", run_id="r1")
        deadline = time.monotonic() + WAIT
        while not (len(handle.events) == done and handle.stopped == "idle"):
            assert time.monotonic() < deadline
            assert not handle.done
            time.sleep(0.001)
    handle.cancel()
    assert handle.result(WAIT).events == 12


def test_the_stop_button_ends_an_endless_loop(filed: SQLiteEventStore) -> None:
    runtime = ReactiveRuntime(filed)
    started = threading.Event()

    @runtime.behavior(on_events=["ping"])
    def ping(rt: ReactiveRuntime, event: Event) -> None:
        started.set()
        rt.emit("ping")

    runtime.emit("ping", run_id="r1")
    handle = runtime.start(Budget(events=10**9, depth=10**9, seconds=60.0))
    assert started.wait(WAIT)
    with pytest.raises(UsageError, match="under way"):
        runtime.dispatch_loop()
    handle.cancel()
    report = handle.result(WAIT)
    assert report.stopped == "cancelled"
    assert "budget.exhausted" not in types(filed)
    at = facts(filed, "behaviors.stopped")[0].payload["at"]
    assert at == filed.head("r1").position  # the last ping was never answered


def test_a_behaviour_that_is_awaited_is_cut_off(runtime: ReactiveRuntime) -> None:
    started, cut = threading.Event(), threading.Event()

    @runtime.behavior(on_events=["a"])
    async def sleeps(rt: ReactiveRuntime, event: Event) -> None:
        started.set()
        try:
            await asyncio.sleep(3_600)
        finally:
            cut.set()

    runtime.emit("a", run_id="r1")
    handle = runtime.start()
    assert started.wait(WAIT)
    with pytest.raises(TimeoutError):
        handle.result(0.01)
    handle.cancel()
    assert handle.result(WAIT).stopped == "cancelled"
    assert cut.is_set()
    assert runtime.start().result(WAIT).stopped == "idle"


def test_the_result_raises_what_ended_the_dispatch(store: SQLiteEventStore) -> None:
    runtime = ReactiveRuntime(store, strict=True)

    @runtime.behavior(on_events=["a"])
    def fails(rt: ReactiveRuntime, event: Event) -> None:
        raise LookupError("gone")

    runtime.emit("a", run_id="r1")
    handle = runtime.start()
    for _ in range(2):
        with pytest.raises(LookupError, match="gone"):
            handle.result(WAIT)


def test_a_listener_that_is_slow_holds_nothing_up(
    runtime: ReactiveRuntime, store: SQLiteEventStore
) -> None:
    gate, taken = threading.Event(), threading.Event()
    received: list[str] = []

    def slow(event: Event) -> None:
        received.append(event.type)
        taken.set()
        gate.wait(WAIT)

    listener = runtime.listen(slow, capacity=3)
    runtime.emit("e0", run_id="r1")
    runtime.dispatch_loop()
    assert taken.wait(WAIT)  # it holds the first; three more may wait
    for n in range(1, 8):
        runtime.emit(f"e{n}", run_id="r1")
    report = runtime.dispatch_loop()
    assert (report.events, report.stopped) == (7, "idle")
    assert report.listeners[0].dropped == 4
    assert "dropped 4" in repr(report)
    gate.set()
    assert listener.flush(WAIT)
    assert received == ["e0", "e1", "e2", "e3"]
    counts = runtime.listeners[0]
    assert (counts.delivered, counts.dropped, counts.failures) == (4, 4, 0)
    assert counts.delivered + counts.dropped == 8


def test_a_listener_that_fails_is_reported(runtime: ReactiveRuntime) -> None:
    def picky(event: Event) -> None:
        if event.type != "a":
            raise ValueError(f"\x1b[31mnot {event.type}")

    listener = runtime.listen(picky)
    for type_ in ("a", "b", "a", "c"):
        runtime.emit(type_, run_id="r1")
    runtime.dispatch_loop()
    assert listener.flush(WAIT)
    counts = listener.counts
    assert (counts.delivered, counts.failures) == (4, 2)
    assert counts.last_error == "ValueError: not c"
    assert "failed on 2" in repr(runtime.dispatch_loop())


def test_closing_delivers_what_waits() -> None:
    received: list[Event] = []
    listener = Listener(received.append, capacity=10)
    for n in range(5):
        listener.offer(Event(run_id="r1", type=f"e{n}"))
    assert listener.close(WAIT)
    assert len(received) == 5
    listener.offer(Event(run_id="r1", type="late"))
    assert listener.counts.dropped == 1
    with pytest.raises(UsageError):
        Listener(received.append, capacity=0)


def test_closing_cancels_what_is_hosted(store: SQLiteEventStore) -> None:
    with ReactiveRuntime(store) as runtime:
        handle = runtime.start(stay=True)
    assert handle.result(WAIT).stopped == "cancelled"


def test_many_threads_emit_and_nothing_is_lost(filed: SQLiteEventStore) -> None:
    runtime = ReactiveRuntime(filed)
    filed.create_run(Run(run_id="r2"))
    seen: list[int] = []
    runtime.behavior(on_events=["a"])(lambda rt, event: seen.append(event.payload["n"]))
    runtime.watch("r1")
    runtime.watch("r2")
    handle = runtime.start(stay=True)

    def emit(start: int) -> None:
        with runtime.active_run("r1" if start % 2 else "r2"):
            for n in range(start * 100, start * 100 + 50):
                runtime.emit("a", {"n": n})

    threads = [threading.Thread(target=emit, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    handle.cancel()
    handle.result(WAIT)
    runtime.dispatch_loop()
    assert sorted(seen) == [n * 100 + k for n in range(4) for k in range(50)]


@pytest.mark.parametrize("ending", [SystemExit(0), KeyboardInterrupt(), asyncio.CancelledError()])
def test_a_behaviour_that_ends_a_hosted_dispatch_is_told_of(
    runtime: ReactiveRuntime, ending: BaseException
) -> None:
    @runtime.behavior(on_events=["a"])
    def leaves(rt: ReactiveRuntime, event: Event) -> None:
        raise ending

    with runtime.active_run("r1"):
        runtime.emit("a")
    handle = runtime.start()
    with pytest.raises(SagError, match=type(ending).__name__):
        handle.result(timeout=WAIT)


def test_a_listener_cannot_leave() -> None:
    def leaves(event: Event) -> None:
        raise SystemExit

    listener = Listener(leaves)
    for _ in range(2):
        listener.offer(Event(run_id="r1", type="a"))
    assert listener.flush(timeout=WAIT)
    assert (listener.counts.delivered, listener.counts.failures) == (2, 2)
    assert listener.close()
