"""Onlookers of a runtime: they can neither hold it up nor fail unseen."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

import msgspec

from sag_research._text import said
from sag_research.errors import Caught, SagError, UsageError
from sag_research.model import Event

__all__ = ["Listener", "ListenerCounts"]


class ListenerCounts(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the events that a listener was offered."""

    name: str
    delivered: int
    dropped: int
    """Events that found the queue full."""
    failures: int
    """Deliveries in which the listener raised; counted among the delivered."""
    last_error: str = ""


class Listener:
    """A function that is told of events on a thread of its own.

    Parameters
    ----------
    function : callable
        Called with each event.
    capacity : int
        Events that may wait; while so many wait, further ones are dropped and counted.
    """

    def __init__(self, function: Callable[[Event], object], capacity: int = 1_000) -> None:
        if capacity < 1:
            raise UsageError(f"a listener cannot have capacity {capacity}", fix="give 1 or more")
        self.name = str(getattr(function, "__name__", type(function).__name__))
        self._function, self._capacity = function, capacity
        self._waiting: deque[Event] = deque()
        self._change = threading.Condition()
        self._busy = self._closed = False
        self._delivered = self._dropped = self._failures = 0
        self._last_error = ""
        self._thread = threading.Thread(target=self._work, name=f"sag-{self.name}", daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        counts = self.counts
        text = f"{counts.delivered} delivered, {counts.dropped} dropped, {counts.failures} failed"
        return f"Listener({self.name!r}, {text})"

    @property
    def counts(self) -> ListenerCounts:
        """What it received, missed and failed on so far."""
        with self._change:
            return ListenerCounts(
                name=self.name, delivered=self._delivered, dropped=self._dropped,
                failures=self._failures, last_error=self._last_error,
            )  # fmt: skip

    def offer(self, event: Event) -> None:
        """Queue an event, or drop it where the queue is full; never waits for the function."""
        with self._change:
            if self._closed or len(self._waiting) >= self._capacity:
                self._dropped += 1
            else:
                self._waiting.append(event)
                self._change.notify_all()

    def flush(self, timeout: float | None = None) -> bool:
        """Wait until nothing waits; returns whether that was so in time."""
        with self._change:
            return self._change.wait_for(lambda: not self._waiting and not self._busy, timeout)

    def close(self, timeout: float | None = 5.0) -> bool:
        """Deliver what waits and end the thread; returns whether it ended in time."""
        with self._change:
            self._closed = True
            self._change.notify_all()
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout)
        return not self._thread.is_alive()

    def _work(self) -> None:
        while (event := self._next()) is not None:
            with Caught() as caught:
                try:
                    self._function(event)
                except SystemExit as left:  # it would end the thread, and nobody would hear of it
                    raise SagError("the listener called sys.exit") from left
            with self._change:
                self._busy = False
                self._delivered += 1
                if (error := caught.error) is not None:
                    self._failures += 1
                    self._last_error = said(error)
                self._change.notify_all()

    def _next(self) -> Event | None:
        with self._change:
            self._change.wait_for(lambda: self._waiting or self._closed)
            if not self._waiting:
                return None
            self._busy = True
            return self._waiting.popleft()
