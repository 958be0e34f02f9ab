"""A loop on a thread of its own, so that a second cell or a button can stop it."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeAlias, TypeVar, cast

from sag_research._text import escape, html_table
from sag_research.errors import Caught, SagError
from sag_research.runtime._loop_cancel import CancelToken
from sag_research.runtime._loop_errors import LoopCancelledError
from sag_research.runtime._loop_graph import GraphEvent

if TYPE_CHECKING:
    from sag_research.viz._stop_widget import StopButton

__all__ = ["LoopHandle"]

R = TypeVar("R")
_State: TypeAlias = Literal["running", "completed", "failed", "cancelled"]
_KEPT: Final = 10_000
_SHOWN: Final = 20
_ENDINGS: Final = (SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError)


class LoopHandle(Generic[R]):
    """A loop under way; made by :meth:`Runtime.start`, usable from any thread."""

    def __init__(self, loop_id: str, token: CancelToken) -> None:
        self.loop_id, self._token = loop_id, token
        self._events: deque[GraphEvent] = deque(maxlen=_KEPT)
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._value: Any = None
        self._error: Exception | None = None

    def __repr__(self) -> str:
        return f"LoopHandle({self.loop_id!r}, {len(self.events)} events, {self.status})"

    def _repr_html_(self) -> str:
        rows = [
            (e.iteration, e.graph_id, e.status, ", ".join(e.nodes), e.error)
            for e in self.events[-_SHOWN:]
        ]
        table = html_table(["iteration", "graph", "status", "nodes", "error"], rows)
        return f"<p>{escape(repr(self))}</p>{table}"

    @property
    def done(self) -> bool:
        """Whether the loop has ended."""
        return self._over.is_set()

    @property
    def status(self) -> _State:
        """How the loop ended, ``running`` while it has not."""
        if not self.done:
            return "running"
        if self._error is None:
            return "completed"
        return "cancelled" if isinstance(self._error, LoopCancelledError) else "failed"

    @property
    def events(self) -> tuple[GraphEvent, ...]:
        """The events so far; of very many the last 10,000."""
        with self._lock:
            return tuple(self._events)

    def cancel(self, reason: str = "it was cancelled") -> None:
        """End the loop; an asynchronous node is cut off, a plain one finishes."""
        self._token.cancel(reason)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the loop's end, however it comes; returns whether it came in time."""
        return self._over.wait(timeout)

    def show(self) -> StopButton:
        """Return a widget with a Stop button; it can be pressed while no cell is running."""
        from sag_research.viz import stop_button

        return stop_button(self)

    def result(self, timeout: float | None = None) -> R:
        """Wait for the loop's result.

        Raises
        ------
        TimeoutError
            If it does not come in time; the loop goes on.
        Exception
            What ended the loop.
        """
        if not self._over.wait(timeout):
            raise TimeoutError(f"loop {self.loop_id!r} is still running")
        if self._error is not None:
            raise self._error
        return cast("R", self._value)

    def _note(self, event: GraphEvent, error: BaseException | None) -> None:
        with self._lock:
            self._events.append(event)

    def _begin(self, work: Callable[[], R]) -> None:
        threading.Thread(
            target=copy_context().run, args=(self._host, work), name="sag-loop", daemon=True
        ).start()

    def _host(self, work: Callable[[], R]) -> None:
        try:
            with Caught() as caught:
                try:
                    self._value = work()
                except _ENDINGS as left:  # they would end this thread, and nobody would hear of it
                    raise SagError("the loop tried to leave", type(left).__name__) from left
            self._error = caught.error
        finally:
            self._over.set()
