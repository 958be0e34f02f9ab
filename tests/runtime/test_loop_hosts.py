"""What differs between the hosts of a loop: threads, event loops, interrupts, closing."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

import pytest

from sag_research.errors import UsageError
from sag_research.runtime import (
    CancelToken,
    LoopCancelledError,
    Runtime,
    RuntimeClosedError,
    Worker,
    graph,
    graph_step,
    plan,
    this_node,
)
from tests.runtime.loops import DRIVERS, ECHO, PATIENCE, Drive, Seen, boom, drive, one, rt

__all__ = ["drive", "rt"]


@plan
def twice(work: Any) -> Any:
    """Run the same work in two steps."""
    yield from graph_step(one("first", work))
    yield from graph_step(one("second", work))
    return "done"


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """Holds plain nodes until it is set; set at the end in any case."""
    opened = threading.Event()
    yield opened
    opened.set()


# ---- cancellation from elsewhere


@pytest.mark.parametrize("width", [1, 3])
def test_l12_stop_from_another_thread(rt: Runtime, width: int) -> None:
    begun = threading.Event()

    async def forever(_: Any) -> None:
        begun.set()
        await asyncio.sleep(3600)

    wide = graph("g")
    for number in range(width):
        wide = wide.node(f"n{number}", forever)

    @plan
    def work(_: Any) -> Any:
        while True:
            try:
                yield from graph_step(wide)
            except Exception:  # noqa: BLE001 - it is not to help
                continue

    handle = rt.start(work)
    assert begun.wait(PATIENCE)
    assert (handle.done, handle.status) == (False, "running")
    with pytest.raises(TimeoutError):
        handle.result(timeout=0.001)
    handle.cancel("Stop was pressed")
    with pytest.raises(LoopCancelledError, match="Stop was pressed"):
        handle.result(PATIENCE)
    assert (handle.done, handle.status) == (True, "cancelled")
    assert [event.status for event in handle.events] == ["started", "failed"]


def test_l12_stop_of_an_awaited_loop(rt: Runtime) -> None:
    token = CancelToken()

    async def forever(_: Any) -> None:
        threading.Thread(target=token.cancel).start()
        await asyncio.sleep(3600)

    with pytest.raises(LoopCancelledError):
        asyncio.run(rt.aloop(twice, forever, cancel=token))


def test_a_cancelled_task_ends_its_loop(rt: Runtime) -> None:
    seen, ended, begun = Seen(), [], []

    async def forever(_: Any) -> None:
        try:
            begun.append(1)
            await asyncio.sleep(3600)
        finally:
            ended.append("node")

    def poll(_: Any) -> None:
        while not this_node().cancelled:
            pass
        ended.append("plain node")

    @plan
    def work(_: Any) -> Any:
        try:
            yield from graph_step(one("g", forever).node("plain", poll))
        finally:
            ended.append("plan")

    async def main() -> None:
        task = asyncio.create_task(rt.aloop(work, on_graph=seen))
        while not begun:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert sorted(ended[:2]) == ["node", "plain node"]
    assert ended[2:] == ["plan"]
    assert [event.status for event in seen] == ["started", "failed"]


def test_one_shared_token_is_not_set_by_one_handle(rt: Runtime) -> None:
    token, release = CancelToken(), threading.Event()
    handles = [rt.start(twice, lambda _: release.wait(PATIENCE), cancel=token) for _ in "ab"]
    handles[0].cancel()
    release.set()
    assert handles[1].result(PATIENCE) == "done"
    with pytest.raises(LoopCancelledError):
        handles[0].result(PATIENCE)
    assert not token.cancelled


# ---- interrupts


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Python's own handler, also where the tests run in the background, with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_l13_an_interrupt_of_a_node_ends_the_loop(rt: Runtime) -> None:
    cleaned, seen = [], Seen()

    @plan
    def work(_: Any) -> Any:
        try:
            yield from graph_step(one("g", boom(KeyboardInterrupt())))
        except BaseException as error:
            cleaned.append(type(error))
            raise

    with pytest.raises(KeyboardInterrupt):
        rt.loop(work, on_graph=seen)
    assert cleaned == [GeneratorExit]
    assert [event.status for event in seen] == ["started", "failed"]


@pytest.mark.usefixtures("interruptible")
def test_l13_an_interrupt_while_nodes_are_waited_for(rt: Runtime) -> None:
    ended, seen, begun = [], Seen(), threading.Event()

    def interrupt(_: Any) -> None:
        begun.wait(PATIENCE)
        os.kill(os.getpid(), signal.SIGINT)
        while not this_node().cancelled:
            pass
        ended.append(1)

    async def forever(_: Any) -> None:
        try:
            begun.set()
            await asyncio.sleep(3600)
        finally:
            ended.append(2)

    @plan
    def work(_: Any) -> Any:
        yield from graph_step(one("g", forever).node("m", interrupt))

    token = CancelToken()
    with pytest.raises(KeyboardInterrupt):
        rt.loop(work, on_graph=seen, cancel=token)
    assert not token.cancelled  # others may share it
    assert sorted(ended) == [1, 2]
    assert [event.status for event in seen] == ["started", "failed"]


# ---- context variables


_cell: ContextVar[str] = ContextVar("cell", default="nothing")


@pytest.mark.parametrize("nodes", [1, 2])
def test_contexts_reach_nodes_and_do_not_leak(drive: Drive, rt: Runtime, nodes: int) -> None:
    seen = []

    def plain(_: Any) -> None:
        seen.append(_cell.get())
        _cell.set("left by a node")

    async def awaited(_: Any) -> None:
        plain(None)

    for work in (plain, awaited):
        whole = one("g", work)
        if nodes == 2:
            whole = whole.node("m", work)

        @plan
        def twice_over(_: Any, whole: Any = whole) -> Any:
            yield from graph_step(whole)
            yield from graph_step(whole)

        token = _cell.set("of the cell")
        drive(rt, twice_over)
        assert _cell.get() == "of the cell"
        _cell.reset(token)
    assert seen == ["of the cell"] * 4 * nodes
    with pytest.raises(UsageError):
        this_node()


def test_loops_can_be_awaited_side_by_side(rt: Runtime) -> None:
    both = asyncio.Barrier(2) if hasattr(asyncio, "Barrier") else None

    async def meet(_: Any) -> None:
        assert both is not None
        await both.wait()  # ends only if the other loop is under way at the same time

    async def main() -> list[Any]:
        return await asyncio.gather(rt.aloop(twice, meet), rt.aloop(twice, meet))

    assert asyncio.run(asyncio.wait_for(main(), PATIENCE)) == ["done", "done"]


def test_asynchronous_nodes_await_their_loops(drive: Drive, rt: Runtime) -> None:
    async def outer(how: str) -> Any:
        if how == "await":
            return await rt.aloop(twice, inner)
        return rt.loop(twice, inner)

    async def inner(_: Any) -> None:
        await asyncio.sleep(0)

    @plan
    def work(how: str) -> Any:
        return (yield from graph_step(one("g", outer), how))["n"].unwrap()

    assert drive(rt, work, "await") == "done"
    if drive is not DRIVERS["async"]:
        with pytest.raises(UsageError, match="await"):
            drive(rt, work, "block")


# ---- the handle


def test_a_handle_shows_hostile_ids_escaped(rt: Runtime) -> None:
    @plan
    def work(_: Any) -> Any:
        yield from graph_step(one("<script>", boom(ValueError("<img>"))))

    handle = rt.start(work, loop_id="<b>")
    with pytest.raises(ValueError, match="<img>"):
        handle.result(PATIENCE)
    assert handle.status == "failed"
    assert repr(handle) == "LoopHandle('<b>', 2 events, failed)"
    shown = handle._repr_html_()
    assert "ValueError" in shown
    assert not any(tag in shown for tag in ("<script>", "<img>", "<b>"))


def test_a_plan_that_leaves_its_thread_is_heard_of(rt: Runtime) -> None:
    @plan
    def work(_: Any) -> Any:
        yield from graph_step(ECHO)
        raise SystemExit

    with pytest.raises(Exception, match="SystemExit"):
        rt.start(work).result(PATIENCE)


# ---- L16: closing


def test_l16_close_drains_and_disposes_once(gate: threading.Event) -> None:
    disposed, begun = [], threading.Event()

    def hold(_: Any) -> None:
        begun.set()
        gate.wait(PATIENCE)

    rt = Runtime(
        [Worker(name, {}, dispose=lambda name=name: disposed.append(name)) for name in "ab"]
    )
    handle = rt.start(twice, hold)
    assert begun.wait(PATIENCE)
    closers = [threading.Thread(target=rt.close) for _ in range(2)]
    for closer in closers:
        closer.start()
    while "closing" not in repr(rt):
        pass
    for begin in (rt.loop, rt.start, lambda plan, work: asyncio.run(rt.aloop(plan, work))):
        with pytest.raises(RuntimeClosedError):
            begin(twice, hold)
    assert disposed == []
    gate.set()
    for closer in closers:
        closer.join(PATIENCE)
    assert handle.result(PATIENCE) == "done"  # its second step began after close()
    assert len(handle.events) == 4
    rt.close()
    assert disposed == ["a", "b"]


def test_l16_errors_of_disposal_are_gathered() -> None:
    disposed: list[int] = []
    rt = Runtime(
        [
            Worker("a", {}, dispose=lambda: boom(KeyError("a"))(None)),
            Worker("b", {}, dispose=lambda: disposed.append(1)),
            Worker("c", {}, dispose=lambda: boom(ValueError("c"))(None)),
        ]
    )
    first, second = (pytest.raises(ExceptionGroup) for _ in range(2))
    with first as one_time:
        rt.close()
    with second as other_time:
        rt.close()
    assert one_time.value is other_time.value
    assert [type(error) for error in one_time.value.exceptions] == [KeyError, ValueError]
    assert disposed == [1]


def test_l16_aclose_drains_an_awaited_loop() -> None:
    steps = []

    async def work(_: Any) -> None:
        steps.append(1)
        await asyncio.sleep(0.01)

    async def main() -> str:
        async with Runtime() as rt:
            task = asyncio.create_task(rt.aloop(twice, work))
            while not steps:
                await asyncio.sleep(0)
            with pytest.raises(UsageError, match="aclose"):
                rt.close()
            await rt.aclose()
            assert len(steps) == 2
            return await task

    assert asyncio.run(main()) == "done"


def test_l16_a_loop_cannot_wait_for_its_own_end(drive: Drive) -> None:
    with Runtime() as rt:
        for width in (1, 2):

            @plan
            def work(_: Any, width: int = width) -> Any:
                whole = one("g", lambda _: rt.close())
                yield from graph_step(whole.node("m", ECHO.nodes["n"].work) if width > 1 else whole)

            with pytest.raises(UsageError, match="cannot close the runtime"):
                drive(rt, work)
        assert drive(rt, twice, lambda _: None) == "done"


def test_l16_no_thread_stays_behind() -> None:
    async def awaited(_: Any) -> None:
        await asyncio.sleep(0)

    before = set(threading.enumerate())
    with Runtime() as rt:
        rt.loop(twice, awaited)
        asyncio.run(rt.aloop(twice, lambda _: None))
        assert set(threading.enumerate()) - before
    assert not set(threading.enumerate()) - before
