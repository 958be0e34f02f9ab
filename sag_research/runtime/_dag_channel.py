"""A bounded queue between what makes items and what takes them, on threads and event loops."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, Final, Generic, TypeVar, cast

from sag_research.errors import SagError
from sag_research.runtime._loop_cancel import CancelToken
from sag_research.runtime._loop_errors import LoopCancelledError
from sag_research.runtime._loop_graph import positive

__all__ = ["CAPACITY", "Channel", "ChannelClosedError", "Producer"]

T = TypeVar("T")
CAPACITY: Final = 256
_BLOCKED: Final = object()
_END: Final = object()


class ChannelClosedError(SagError):
    """Something was pushed into a channel that had come to its end."""


class Channel(Generic[T]):
    """Items in their order, from one producer to one consumer; a full channel makes it wait.

    Either side may be plain code (``push``, ``for``) or asynchronous (``apush``, ``async for``),
    on whichever thread.

    Parameters
    ----------
    capacity : int
        Items that wait in it at most.
    cancel : CancelToken, optional
        When it is set, both sides get a :class:`LoopCancelledError`: give the token of the run
        outside, and its end is the end of what runs inside.

    Raises
    ------
    UsageError
        If the capacity is no whole number from 1 on.

    Examples
    --------
    >>> channel = Channel(capacity=2)
    >>> channel.push("a"); channel.push("b"); channel.close()
    >>> list(channel)
    ['a', 'b']
    """

    def __init__(self, capacity: int = CAPACITY, *, cancel: CancelToken | None = None) -> None:
        self.capacity = positive(capacity, "capacity")
        self._token = CancelToken(parent=cancel)
        self._items: deque[T] = deque()
        self._lock = threading.Lock()
        self._is_over = False
        self._error: BaseException | None = None
        self._wakes: list[Callable[[], object]] = []

    def __repr__(self) -> str:
        state = "cancelled" if self._token.cancelled else "ended" if self._is_over else "open"
        return f"Channel({len(self._items)} of {self.capacity}, {state})"

    def __len__(self) -> int:
        return len(self._items)

    # ---- the producer's side

    def push(self, item: T) -> None:
        """Add an item; waits while the channel is full.

        Raises
        ------
        ChannelClosedError
            If the channel has been closed or failed.
        LoopCancelledError
            If it was cancelled.
        """
        self._wait(lambda: self._offer(item))

    async def apush(self, item: T) -> None:
        """Add an item without blocking the event loop; see :meth:`push`."""
        await self._await(lambda: self._offer(item))

    def close(self) -> None:
        """Let the consumer come to an end after the items that are in the channel."""
        self._end(None)

    def fail(self, error: BaseException) -> None:
        """Let the consumer get an error after the items that are in the channel."""
        self._end(error)

    def cancel(self, reason: str = "the channel was cancelled") -> None:
        """End both sides now, e.g. because the consumer takes no more."""
        self._token.cancel(reason)
        self._changed()

    def fan_in(self, producers: int) -> tuple[Producer[T], ...]:
        """Return several producers; the channel closes when all end, and fails with the first.

        Raises
        ------
        UsageError
            If the number is none.
        """
        gate = _Gate(positive(producers, "producers"))
        return tuple(Producer(self, gate) for _ in range(producers))

    # ---- the consumer's side

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        if (taken := self._wait(self._take)) is _END:
            raise StopIteration
        return cast("T", taken)

    def __aiter__(self) -> AsyncIterator[T]:
        return self

    async def __anext__(self) -> T:
        if (taken := await self._await(self._take)) is _END:
            raise StopAsyncIteration
        return cast("T", taken)

    # ---- one attempt of either side, and waiting for a chance of another

    def _offer(self, item: T) -> object:
        self._check()
        with self._lock:
            if self._is_over:
                raise ChannelClosedError(
                    "nothing can be pushed into this channel", why="it has come to its end"
                ) from self._error
            if len(self._items) >= self.capacity:
                return _BLOCKED
            self._items.append(item)
        self._changed()
        return None

    def _take(self) -> object:
        self._check()
        with self._lock:
            if self._items:
                taken = self._items.popleft()
            elif not self._is_over:
                return _BLOCKED
            elif self._error is not None:
                raise self._error
            else:
                return _END
        self._changed()
        return taken

    def _check(self) -> None:
        if self._token.cancelled:
            raise LoopCancelledError("the channel was cancelled", self._token.reason)

    def _end(self, error: BaseException | None) -> None:
        with self._lock:
            if not self._is_over:  # how it ended first stays
                self._is_over, self._error = True, error
        self._changed()

    def _changed(self) -> None:
        for wake in tuple(self._wakes):
            wake()

    @contextmanager
    def _waking(self, wake: Callable[[], object]) -> Iterator[None]:
        self._wakes.append(wake)
        try:
            with self._token.telling(wake):
                yield
        finally:
            self._wakes.remove(wake)

    def _wait(self, attempt: Callable[[], Any]) -> Any:
        if (got := attempt()) is not _BLOCKED:
            return got
        chance = threading.Event()
        with self._waking(chance.set):
            while (got := attempt()) is _BLOCKED:
                chance.wait(self._token.remaining())
                chance.clear()
        return got

    async def _await(self, attempt: Callable[[], Any]) -> Any:
        if (got := attempt()) is not _BLOCKED:
            return got
        chance, events = asyncio.Event(), asyncio.get_running_loop()

        def wake() -> None:
            with suppress(RuntimeError):  # the event loop may be closed by now
                events.call_soon_threadsafe(chance.set)

        with self._waking(wake):
            while (got := attempt()) is _BLOCKED:
                with suppress(TimeoutError):
                    await asyncio.wait_for(chance.wait(), self._token.remaining())
                chance.clear()
        return got


class _Gate:
    """Counts producers that have not ended."""

    def __init__(self, left: int) -> None:
        self._left, self._lock = left, threading.Lock()

    def leave(self) -> bool:
        """Note that one ended; tell whether it was the last."""
        with self._lock:
            self._left -= 1
            return self._left == 0


class Producer(Generic[T]):
    """One of several that push into a channel; its block's end is its end."""

    def __init__(self, channel: Channel[T], gate: _Gate) -> None:
        self._channel, self._gate, self._is_over = channel, gate, False

    def __enter__(self) -> Producer[T]:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
        else:
            self.fail(error)

    def push(self, item: T) -> None:
        """Add an item; see :meth:`Channel.push`."""
        self._check()
        self._channel.push(item)

    async def apush(self, item: T) -> None:
        """Add an item; see :meth:`Channel.apush`."""
        self._check()
        await self._channel.apush(item)

    def close(self) -> None:
        """End this producer."""
        if not self._is_over:
            self._is_over = True
            if self._gate.leave():
                self._channel.close()

    def fail(self, error: BaseException) -> None:
        """End this producer, and the channel with an error."""
        if not self._is_over:
            self._is_over = True
            self._channel.fail(error)

    def _check(self) -> None:
        if self._is_over:
            raise ChannelClosedError("nothing can be pushed any more", why="this producer ended")
