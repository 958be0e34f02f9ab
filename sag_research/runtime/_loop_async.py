"""Running loops and their graphs on the caller's event loop."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from contextvars import Context, copy_context
from typing import Any, TypeAlias

from sag_research.runtime._loop_core import Body, Course, Finished, Order, conduct
from sag_research.runtime._loop_graph import NodeResult
from sag_research.runtime._loop_node import Progress, acall, call
from sag_research.runtime._loop_sync import Host, finish, next_job, resume, take_report

__all__ = ["adrive"]

_Under: TypeAlias = "asyncio.Future[NodeResult[Any]]"


async def adrive(course: Course, body: Body, host: Host) -> Any:
    """Run a loop to its end; plain nodes are run on threads, so the event loop stays free."""
    core = conduct(course, body)
    order = resume(core, None)
    while isinstance(order, Order):
        try:
            finished = await _Crew(order, host).work()
        except BaseException as error:
            core.throw(error)
            raise
        order = resume(core, finished)
    return order.value


class _Crew:
    """The nodes of one graph that are under way."""

    def __init__(self, order: Order, host: Host) -> None:
        self._order, self._progress = order, Progress(order.bound)
        self._host, self._limit = host, order.step.concurrency or host.concurrency
        self._context: Context = copy_context()
        self._events = asyncio.get_running_loop()
        self._under_way: dict[_Under, str] = {}
        self._is_cut_off = False

    async def work(self) -> Finished:
        """Run nodes until none is ready or under way."""
        with self._order.scope.telling(self._interrupt):
            try:
                while self._progress.ready or self._under_way:
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
            done, _ = await asyncio.wait(
                self._under_way, timeout=patience, return_when=asyncio.FIRST_COMPLETED
            )
            for one in done:
                take_report(self._order, self._progress, self._under_way.pop(one), one)

    def _start(self) -> None:
        job = next_job(self._order, self._progress, self._context)
        one: _Under
        if job.bound.is_async:
            one = self._events.create_task(acall(job), context=self._context.copy())
        else:
            one = self._events.run_in_executor(self._host.pool, call, job)
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
