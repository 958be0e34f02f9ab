"""Limits that make every dispatch end, and the account of what one did."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final, Literal, TypeAlias

import msgspec

from sag_research.errors import UsageError
from sag_research.model import Event
from sag_research.runtime._reactive_listeners import ListenerCounts

__all__ = ["Budget", "DispatchReport", "Meter", "Stopped"]

Stopped: TypeAlias = Literal["running", "idle", "events", "seconds", "depth", "cancelled", "error"]
"""Why a dispatch ended: nothing was left to do, a limit of the budget, a cancellation, or an
error that was not to be outlived. ``running`` while it has not."""

_LIMITS: Final = ("events", "seconds", "depth")


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """How much one dispatch may do.

    Raises
    ------
    UsageError
        If a limit is not positive, or ``events`` or ``depth`` is no whole number.

    Examples
    --------
    >>> Budget(events=100).depth
    100
    """

    events: int = 10_000
    """Events taken from the queue."""
    seconds: float = 300.0
    depth: int = 100
    """Length of a chain of events of which each was caused by the one before."""

    def __post_init__(self) -> None:
        whole = type(self.events) is int and type(self.depth) is int
        if not whole or not all(getattr(self, name) > 0 for name in _LIMITS):
            raise UsageError(
                f"{self!r} is no budget",
                why="limits are positive; events and depth are whole numbers",
            )


class DispatchReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a dispatch did."""

    events: int
    """Events taken from the queue."""
    fired: int
    """Behaviours run."""
    failed: int
    """Behaviours that raised; each left an event ``behavior.failed``."""
    stopped: Stopped
    seconds: float
    listeners: tuple[ListenerCounts, ...] = ()
    """What each listener had received, missed and failed on at that time."""

    def __repr__(self) -> str:
        text = f"{self.events} events, {self.fired} behaviours run, {self.failed} failed"
        dropped = sum(listener.dropped for listener in self.listeners)
        raised = sum(listener.failures for listener in self.listeners)
        if dropped or raised:
            text += f", listeners dropped {dropped} and failed on {raised}"
        return f"DispatchReport({text}, stopped: {self.stopped})"


class Meter:
    """Counts what a dispatch does, and says when it must end."""

    def __init__(self, budget: Budget, clock: Callable[[], float] = time.monotonic) -> None:
        self.budget, self.cancelled = budget, threading.Event()
        self.events = self.fired = self.failed = 0
        self.stopped: Stopped = "running"
        self.on_event: Callable[[Event], object] = _nobody
        self._clock, self._began = clock, clock()
        self._start, self._until = self._began, budget.events

    def renew(self) -> None:
        """Grant the whole budget again."""
        self._start, self._until = self._clock(), self.events + self.budget.events

    def limit(self, depth: int) -> Stopped | None:
        """Return what forbids to go on with an event of this causal depth."""
        if self.cancelled.is_set():
            return "cancelled"
        if self.events >= self._until:
            return "events"
        if depth > self.budget.depth:
            return "depth"
        if self._clock() - self._start >= self.budget.seconds:
            return "seconds"
        return None

    def report(self, listeners: tuple[ListenerCounts, ...] = ()) -> DispatchReport:
        """Return the account so far."""
        return DispatchReport(
            events=self.events, fired=self.fired, failed=self.failed, stopped=self.stopped,
            seconds=self._clock() - self._began, listeners=listeners,
        )  # fmt: skip


def _nobody(event: Event) -> None:
    """Take no notice."""
