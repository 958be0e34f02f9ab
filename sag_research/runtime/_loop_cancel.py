"""Cancellation by agreement: a token that is set once, and what it ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from sag_research.errors import UsageError
from sag_research.runtime._loop_errors import (
    LoopCancelledError,
    StepCancelledError,
    StepTimeoutError,
)

__all__ = ["CancelToken", "Interruption", "Scope"]

Interruption: TypeAlias = LoopCancelledError | StepCancelledError


class CancelToken:
    """Asks a loop, or one step of it, to end; once set it stays set.

    Parameters
    ----------
    seconds : float, optional
        It sets itself after so long.
    parent : CancelToken, optional
        It is set when that is.
    clock : callable
        Monotonic seconds.

    Raises
    ------
    UsageError
        If ``seconds`` is not positive.

    Examples
    --------
    >>> token = CancelToken()
    >>> token.cancel("the user pressed Stop")
    >>> token
    CancelToken(cancelled: 'the user pressed Stop')
    """

    def __init__(
        self,
        seconds: float | None = None,
        *,
        parent: CancelToken | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if seconds is not None and not seconds > 0:
            raise UsageError(f"a token cannot set itself after {seconds!r} seconds")
        self._clock, self._parent = clock, parent
        self._until = None if seconds is None else clock() + seconds
        self._reason: str | None = None
        self._lock = threading.RLock()  # a signal may cancel it while this thread holds the lock
        self._told: list[Callable[[], object]] = []

    def __repr__(self) -> str:
        return f"CancelToken(cancelled: {self.reason!r})" if self.cancelled else "CancelToken()"

    @property
    def cancelled(self) -> bool:
        """Whether it is set."""
        token: CancelToken | None = self
        while token is not None:
            if token._reason is not None:
                return True
            if token._until is not None and token._clock() >= token._until:
                return True
            token = token._parent
        return False

    @property
    def reason(self) -> str:
        """Why it is set; empty while it is not."""
        if self._reason is not None:
            return self._reason
        if self._until is not None and self._clock() >= self._until:
            return "its time is over"
        return self._parent.reason if self._parent is not None else ""

    @property
    def timed_out(self) -> bool:
        """Whether it is set because its time, or that of its parent, is over."""
        if self._reason is not None:
            return False
        if self._until is not None and self._clock() >= self._until:
            return True
        return self._parent is not None and self._parent.timed_out

    def cancel(self, reason: str = "it was cancelled") -> None:
        """Set it, from any thread; the first reason stays."""
        with self._lock:
            if self._reason is not None:
                return
            self._reason, told = reason, tuple(self._told)
        for function in told:
            function()

    def remaining(self) -> float | None:
        """Seconds until it sets itself, ``None`` where it does not."""
        own = None if self._until is None else max(0.0, self._until - self._clock())
        above = None if self._parent is None else self._parent.remaining()
        return min((left for left in (own, above) if left is not None), default=None)

    @contextmanager
    def telling(self, function: Callable[[], object]) -> Iterator[None]:
        """Call a function when the token is set inside the block (not when its time is over)."""
        tokens: list[CancelToken] = []
        token: CancelToken | None = self
        try:
            while token is not None:
                token._tell(function)
                tokens.append(token)
                token = token._parent
            yield
        finally:
            for token in tokens:
                token._forget(function)

    def _tell(self, function: Callable[[], object]) -> None:
        with self._lock:
            self._told.append(function)
            is_set = self._reason is not None
        if is_set:
            function()

    def _forget(self, function: Callable[[], object]) -> None:
        with self._lock:
            self._told.remove(function)


class Scope:
    """What can end a graph: the token of its loop, and that and the time of the step alone."""

    __slots__ = ("loop", "step", "timer")

    def __init__(
        self, loop: CancelToken, step: CancelToken | None = None, seconds: float | None = None
    ) -> None:
        self.loop, self.step = loop, step
        self.timer = None if seconds is None else CancelToken(seconds)

    @property
    def cancelled(self) -> bool:
        """Whether the graph must come to an end."""
        return (
            self.loop.cancelled
            or (self.step is not None and self.step.cancelled)
            or (self.timer is not None and self.timer.cancelled)
        )

    def interruption(self) -> Interruption | None:
        """Return what ends the graph, the loop's cancellation first."""
        if self.loop.cancelled:
            return LoopCancelledError("the loop was cancelled", why=self.loop.reason)
        if self.step is not None and self.step.cancelled:
            return StepCancelledError("the step was cancelled", why=self.step.reason)
        if self.timer is not None and self.timer.cancelled:
            return StepTimeoutError("the step took too long", why=self.timer.reason)
        return None

    def remaining(self) -> float | None:
        """Seconds until the time of the loop or of the step is over."""
        tokens = (self.loop, self.step, self.timer)
        left = [token.remaining() for token in tokens if token is not None]
        return min((seconds for seconds in left if seconds is not None), default=None)

    @contextmanager
    def telling(self, function: Callable[[], object]) -> Iterator[None]:
        """Call a function when a token is set inside the block."""
        with self.loop.telling(function):
            if self.step is None:
                yield
            else:
                with self.step.telling(function):
                    yield
