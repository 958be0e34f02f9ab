"""Running loops and their graphs on the caller's event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable
from contextlib import suppress
from contextvars import Context, copy_context
from types import MappingProxyType
from typing import Any, TypeAlias

from sag_research.errors import Caught
from sag_research.runtime._loop_core import Body, Course, Finished, Order, Shown, conduct
from sag_research.runtime._loop_graph import NodeResult
from sag_research.runtime._loop_node import BoundNode, Job, Progress, acall, call
from sag_research.runtime._loop_sync import (
    Ended,
    Host,
    finish,
    next_job,
    progress_of,
    resume,
    take_report,
    where,
)

__all__ = ["adrive", "awalk"]

_Under: TypeAlias = "asyncio.Future[NodeResult[Any]]"


async def adrive(course: Course, body: Body, host: Host) -> Any:
    """Run a loop to its end; plain nodes are run on threads, so the event loop stays free."""
    result: Any = None
    async for step in awalk(course, body, host):
        if isinstance(step, Ended):
            result = step.value
    return result


async def awalk(course: Course, body: Body, host: Host) -> AsyncGenerator[Shown | Ended, None]:
    """Run a loop, and stop wherever its plan shows something; the last that is given is its end."""
    core = conduct(course, body)
    order = resume(core, None)
    while not isinstance(order, Ended):
        finished: Finished | None = None
        try:
            if isinstance(order, Shown):
                yield order
            else:
                finished = await _run(order, host)
        except BaseException as error:
            core.throw(error)
            raise
        order = resume(core, finished)
    yield order


async def _run(order: Order, host: Host) -> Finished:
    sole = order.bound.sole
    if sole is not None and not sole.is_async and order.step.checkpoint is None:
        return await _run_sole(order, sole, host)
    with Caught() as caught:
        progress = progress_of(order)
    if caught.error is not None:  # of a checkpoint; nothing has been run
        return Finished(None, caught.error)
    return await _Crew(order, progress, host).work()


async def _run_sole(order: Order, bound: BoundNode, host: Host) -> Finished:
    """Run the only node of a graph, a plain one, on a thread; it is waited for in every case."""
    if order.scope.cancelled:
        return Finished(None)
    job = Job(bound, order.step.input, {}, where(order, bound), copy_context())
    one = host.threads.call(call, job)
    try:
        await _end_of(one)
    except BaseException:
        order.scope.loop.cancel("it was interrupted")  # for a node that looks
        await asyncio.gather(one, return_exceptions=True)
        raise
    error = one.exception()
    if error is not None and not isinstance(error, Exception):
        raise error
    return Finished(None if error else MappingProxyType({bound.node.id: one.result()}), error)


async def _end_of(one: _Under) -> None:
    """Wait until something has ended, without cancelling it where the wait is."""
    waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    one.add_done_callback(lambda _: None if waiter.done() else waiter.set_result(None))
    await waiter


class _Crew:
    """The nodes of one graph that are under way."""

    def __init__(self, order: Order, progress: Progress, host: Host) -> None:
        self._order, self._progress = order, progress
        self._host, self._limit = host, order.step.concurrency or host.concurrency
        self._context: Context = copy_context()
        self._events = asyncio.get_running_loop()
        self._under_way: dict[_Under, str] = {}
        self._is_cut_off = False

    async def work(self) -> Finished:
        """Run nodes until none is ready or under way."""
        with self._order.scope.telling(self._interrupt):
            try:
                while self._progress.ready or self._under_way or self._progress.turn():
                    await self._step()
            except BaseException:
                self._order.scope.loop.cancel("it was interrupted")  # for plain nodes that look
                self._stop()
                await asyncio.gather(*self._under_way, return_exceptions=True)
                raise
        return finish(self._progress)

    async def _step(self) -> None:
        is_cancelled = self._order.scope.cancelled
        if is_cancelled:
            self._stop()
        while self._progress.ready and len(self._under_way) < self._limit:
            self._start()
        if self._under_way:
            patience = None if is_cancelled else self._order.scope.remaining()
            for one in await self._ended(patience):
                take_report(self._order, self._progress, self._under_way.pop(one), one)

    async def _ended(self, patience: float | None) -> Iterable[_Under]:
        """Wait until something has ended; returns it, or nothing where it took too long."""
        if patience is not None or len(self._under_way) > 1:
            done, _ = await asyncio.wait(
                self._under_way, timeout=patience, return_when=asyncio.FIRST_COMPLETED
            )
            return done
        [one] = self._under_way
        await _end_of(one)
        return (one,)

    def _start(self) -> None:
        job = next_job(self._order, self._progress, self._context)
        one: _Under
        if job.bound.is_async:
            one = self._events.create_task(acall(job), context=self._context.copy())
        else:
            one = self._host.threads.call(call, job)
        self._under_way[one] = job.bound.node.id

    def _interrupt(self) -> None:
        with suppress(RuntimeError):  # the event loop may have been closed in this very moment
            self._events.call_soon_threadsafe(self._stop)

    def _stop(self) -> None:
        self._progress.stop()
        if not self._is_cut_off:  # once: a node may be awaiting its own cleanup
            self._is_cut_off = True
            for one in self._under_way:
                if isinstance(one, asyncio.Task):  # a plain node that has begun is waited for
                    one.cancel()
