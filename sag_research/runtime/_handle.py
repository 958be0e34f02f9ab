"""A dispatch on a thread of its own, with a Stop button's worth of control."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from contextvars import copy_context
from typing import TYPE_CHECKING, Final

from sag_research.errors import Caught, SagError
from sag_research.model import Event
from sag_research.runtime._budget import Budget, DispatchReport, Stopped

if TYPE_CHECKING:
    from sag_research.runtime._reactive import ReactiveRuntime

__all__ = ["RunHandle"]

_KEPT: Final = 10_000
_ENDINGS: Final = (SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError)
_LOOK_EVERY: Final = (
    0.2  # seconds; an emission wakes it at once, another process's writing does not
)


class RunHandle:
    """A dispatch under way.

    Made by :meth:`ReactiveRuntime.start`. The events can be read, and the dispatch cancelled,
    from any thread.
    """

    def __init__(self, runtime: ReactiveRuntime, budget: Budget | None, stay: bool) -> None:
        self._runtime, self._stay = runtime, stay
        self._meter = runtime.new_meter(budget)
        self._meter.on_event = self._note
        self._events: deque[Event] = deque(maxlen=_KEPT)
        self._lock = threading.Lock()
        self._error: Exception | None = None
        self._task: tuple[asyncio.AbstractEventLoop, asyncio.Task[None]] | None = None
        self._thread = threading.Thread(
            target=copy_context().run, args=(self._host,), name="sag-dispatch", daemon=True
        )
        self._thread.start()

    def __repr__(self) -> str:
        return f"RunHandle({self._meter.events} events, {self.stopped})"

    @property
    def done(self) -> bool:
        """Whether the dispatch has ended."""
        return not self._thread.is_alive()

    @property
    def stopped(self) -> Stopped:
        """Why the dispatch ended, ``running`` while it has not; one that stays may be ``idle``."""
        return self._meter.stopped

    @property
    def events(self) -> tuple[Event, ...]:
        """The events dispatched so far; of very many the last 10,000."""
        with self._lock:
            return tuple(self._events)

    def cancel(self) -> None:
        """End the dispatch after the behaviour that is running; one that is awaited is cut off."""
        self._meter.cancelled.set()
        self._runtime.written.set()
        with self._lock:
            if self._task is not None and not self._task[0].is_closed():
                self._task[0].call_soon_threadsafe(self._task[1].cancel)

    def result(self, timeout: float | None = None) -> DispatchReport:
        """Wait for the end.

        Raises
        ------
        TimeoutError
            If it does not come in time.
        Exception
            What ended the dispatch, e.g. an error of a strict runtime's behaviour.
        """
        self._thread.join(timeout)
        if self._thread.is_alive():
            raise TimeoutError("the dispatch is still running")
        if self._error is not None:
            raise self._error
        return self._meter.report(self._runtime.listeners)

    def _host(self) -> None:
        with Caught() as caught:
            try:
                self._dispatch_until_done()
            except _ENDINGS as error:  # they would end this thread, and nobody would hear of it
                raise SagError(
                    "a behaviour ended the dispatch that runs it",
                    why=f"it raised {type(error).__name__}",
                    fix="return from the behaviour instead",
                ) from error
        self._error = caught.error

    def _dispatch_until_done(self) -> None:
        while True:
            self._runtime.written.clear()
            if any(behavior.is_async for behavior in self._runtime.behaviors):
                asyncio.run(self._cancellable())
            else:
                self._runtime.drive(self._meter)
            if not self._stay or self._meter.stopped != "idle":
                return
            self._runtime.written.wait(_LOOK_EVERY)
            self._meter.renew()
            if self._meter.cancelled.is_set():
                self._meter.stopped = "cancelled"
                return

    async def _cancellable(self) -> None:
        task = asyncio.ensure_future(self._runtime.adrive(self._meter))
        with self._lock:
            self._task = (asyncio.get_running_loop(), task)
        if self._meter.cancelled.is_set():  # it was cancelled before there was a task to cut off
            task.cancel()
        await asyncio.wait([task])
        if not task.cancelled():
            task.result()
        elif not self._meter.cancelled.is_set():
            raise SagError("a behaviour cancelled the dispatch that runs it")

    def _note(self, event: Event) -> None:
        with self._lock:
            self._events.append(event)
