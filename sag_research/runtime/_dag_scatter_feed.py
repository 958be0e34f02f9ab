"""Handing out the items of a scatter, one by one or in batches, to whoever has a place free."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from typing import Any, Final, NamedTuple, cast

from sag_research._text import clip
from sag_research.errors import SagError, UsageError
from sag_research.runtime._dag_acks import Known
from sag_research.runtime._dag_channel import Channel
from sag_research.runtime._dag_document import ReservoirExecution
from sag_research.runtime._dag_path import MISSING, look
from sag_research.runtime._loop_errors import CheckpointMismatchError, LoopCancelledError

__all__ = ["Batches", "Feed", "Items", "Portion"]

_END: Final[Any] = object()


class Portion(NamedTuple):
    """What one body is given."""

    number: int
    item: Any
    members: tuple[int, ...] = ()


class Items:
    """The items of a source that are not done yet, with their numbers; one caller at a time.

    Parameters
    ----------
    source : iterable or async iterable
        Nothing of it is asked for before it is wanted.
    done : mapping of int to Known
        Items that are done, by number.
    limit : int
        Items that are handed out at most.

    Raises
    ------
    UsageError
        If the source is none.
    """

    def __init__(self, source: Any, done: Mapping[int, Known], limit: int) -> None:
        self._source, self._done, self._limit = source, done, limit
        self._left = set(done)
        self._number = 0
        self._sync: Iterator[Any] | None = None
        self._async: AsyncIterator[Any] | None = None
        if isinstance(source, Mapping | str | bytes) or not isinstance(
            source, Iterable | AsyncIterable
        ):
            raise UsageError(
                f"{clip(repr(source))} is no source of items",
                fix="give a list, a generator or an asynchronous stream",
            )

    @property
    def is_stream(self) -> bool:
        """Whether waiting for an item must be awaited."""
        return isinstance(self._source, AsyncIterable)

    @property
    def is_ready(self) -> bool:
        """Whether no item is ever waited for."""
        return isinstance(self._source, Sequence)

    def next(self) -> tuple[int, Any] | None:
        """Return the next item and its number, ``None`` at the end."""
        if self._sync is None:
            self._sync = iter(self._source)
        while True:
            if (numbered := self._take(next(self._sync, _END))) is not _END:
                return cast("tuple[int, Any] | None", numbered)

    async def anext(self) -> tuple[int, Any] | None:
        """Return the next item of a stream."""
        if self._async is None:
            self._async = aiter(self._source)
        while True:
            if (numbered := self._take(await anext(self._async, _END))) is not _END:
                return cast("tuple[int, Any] | None", numbered)

    def _take(self, item: Any) -> Any:
        """Number an item; returns ``_END`` for one that is to be passed over."""
        number = self._number
        if item is _END:
            if self._left:
                raise _changed(f"it ended before item {min(self._left)}")
            return None
        self._number += 1
        if number >= self._limit:
            raise UsageError(
                f"a scatter was given more than {self._limit} items", fix="raise max_items"
            )
        if number not in self._done:
            return number, item
        self._left.discard(number)
        if not self._done[number].is_same(item):
            raise _changed(f"item {number} is another")
        return _END

    def stop(self) -> None:
        """Let who pushes into a channel know that nothing is taken any more."""
        if isinstance(self._source, Channel):
            self._source.cancel("the scatter that it feeds has come to its end")

    def close(self) -> None:
        """Close a generator that is not at its end."""
        close = getattr(self._sync, "close", None)
        if close is not None:
            close()

    async def aclose(self) -> None:
        """Close a stream that is not at its end."""
        close = getattr(self._async, "aclose", None)
        if close is not None:
            await close()


def _changed(why: str) -> CheckpointMismatchError:
    return CheckpointMismatchError(
        "the scatter cannot go on where it was", why=f"its source has changed: {why}",
        fix="begin a new run, or give it the same items in the same order",
    )  # fmt: skip


class Batches:
    """Collects items by key; a batch is full, or no item has come for a while, or it is the end."""

    def __init__(
        self, how: ReservoirExecution, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._how, self._clock = how, clock
        self._kept: dict[Any, list[tuple[int, Any]]] = {}
        self._last = clock()

    def add(self, numbered: tuple[int, Any]) -> Portion | None:
        """Keep an item; returns its batch where that is full."""
        key = look(numbered[1], self._how.key)
        key = None if key is MISSING else key
        batch = self._kept.setdefault(key if isinstance(key, str) else repr(key), [])
        batch.append(numbered)
        self._last = self._clock()
        if len(batch) < self._how.capacity:
            return None
        del self._kept[key if isinstance(key, str) else repr(key)]
        return _portion(batch)

    @property
    def patience(self) -> float | None:
        """Seconds to wait for another item before a batch is given as it is."""
        if self._how.idle is None or not self._kept:
            return None
        return max(0.0, self._last + self._how.idle - self._clock())

    def rest(self) -> Portion | None:
        """Return the oldest batch that is not full, ``None`` where there is none."""
        if not self._kept:
            return None
        return _portion(self._kept.pop(min(self._kept, key=lambda key: self._kept[key][0][0])))


def _portion(batch: list[tuple[int, Any]]) -> Portion:
    numbers, items = zip(*batch, strict=True)
    return Portion(numbers[0], list(items), numbers)


class Feed:
    """Gives portions to several takers, and nothing more once it is stopped.

    Parameters
    ----------
    items : Items
    batches : Batches, optional
    throttle : float, optional
        Seconds between two portions.
    """

    def __init__(
        self, items: Items, batches: Batches | None = None, throttle: float | None = None
    ) -> None:
        self._items, self._batches, self._throttle = items, batches, throttle
        self._lock, self._alock = threading.Lock(), asyncio.Lock()
        self._stopped = threading.Event()
        self._is_over = False
        self._next_at = 0.0
        self._held: tuple[int, Any] | None = None
        self._pending: asyncio.Task[tuple[int, Any] | None] | None = None

    def stop(self) -> None:
        """Give nothing more, from whichever thread."""
        self._stopped.set()
        self._items.stop()

    def astop(self) -> None:
        """Give nothing more, and wait for no further item; on the event loop."""
        self.stop()
        if self._pending is not None:
            self._pending.cancel()

    def take(self) -> Portion | None:
        """Return what comes next, ``None`` where nothing does."""
        with self._lock:
            portion = self._taken()
            if portion is not None and self._throttle and self._stopped.wait(self._pause()):
                return None
            return portion

    async def atake(self) -> Portion | None:
        """Return what comes next, without blocking the event loop."""
        async with self._alock:
            if self._items.is_stream:
                portion = await self._atake()
            elif self._items.is_ready:
                portion = self._taken()
            else:
                portion = await asyncio.to_thread(self._locked)
            if portion is not None and self._throttle:
                await asyncio.sleep(self._pause())
            return None if self._stopped.is_set() else portion

    def _locked(self) -> Portion | None:
        with self._lock:
            return self._taken()

    def _taken(self) -> Portion | None:
        if self._is_over or self._stopped.is_set():
            return None
        try:
            portion = self._one() if self._batches is None else self._batch(self._batches)
        except LoopCancelledError:
            if not self._stopped.is_set():
                raise
            portion = None  # the source is a channel, which was let go of
        self._is_over = portion is None
        return portion

    def _one(self) -> Portion | None:
        numbered = self._items.next()
        return None if numbered is None else Portion(*numbered)

    def _batch(self, batches: Batches) -> Portion | None:
        while not self._stopped.is_set():
            numbered, self._held = self._held or self._items.next(), None
            if numbered is None:
                return batches.rest()
            # a plain source cannot be left waiting: how long it took is seen when it has come
            if batches.patience == 0.0:
                self._held = numbered
                return batches.rest()
            if (full := batches.add(numbered)) is not None:
                return full
        return None

    async def _atake(self) -> Portion | None:
        batches = self._batches
        while not (self._is_over or self._stopped.is_set()):
            if self._pending is None:
                self._pending = asyncio.ensure_future(self._items.anext())
            patience = None if batches is None else batches.patience
            done, _ = await asyncio.wait({self._pending}, timeout=patience)
            if not done and batches is not None:
                return batches.rest()
            if self._stopped.is_set():
                break
            pending, self._pending = self._pending, None
            if pending.cancelled():  # its own doing: what is left out must not look like the end
                raise SagError("the source of a scatter failed", why="it cancelled itself")
            numbered = pending.result()
            if numbered is None:
                rest = None if batches is None else batches.rest()
                self._is_over = rest is None
                return rest
            portion = Portion(*numbered) if batches is None else batches.add(numbered)
            if portion is not None:
                return portion
        return None

    def _pause(self) -> float:
        """Return how long to wait before the next portion may be given."""
        now = time.monotonic()
        pause = max(0.0, self._next_at - now)
        self._next_at = now + pause + (self._throttle or 0.0)
        return pause

    def close(self) -> None:
        """Close the source, unless a thread is waiting for it still."""
        if self._lock.acquire(blocking=False):
            try:
                self._items.close()
            finally:
                self._lock.release()

    async def aclose(self) -> None:
        """Close the source on the event loop."""
        if self._pending is not None:
            self._pending.cancel()
            await asyncio.gather(self._pending, return_exceptions=True)
        await self._items.aclose()
        self.close()
