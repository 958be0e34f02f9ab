"""Parallel asks with one key: one makes the call, the others wait for its answer."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Final

from sag_research.model import Event

__all__ = ["Flight", "Flights", "asking"]

_inside: Final[ContextVar[tuple[str, ...]]] = ContextVar("sag_research_asking", default=())


@contextmanager
def asking(key: str) -> Iterator[None]:
    """Mark the block in which a live call is made, so that it never waits for itself."""
    token = _inside.set((*_inside.get(), key))
    try:
        yield
    finally:
        _inside.reset(token)


class Flight:
    """A live call under way."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.answer: Event | None = None
        """The event that holds its answer or its failure; none if no call was made after all."""
        self._landed = threading.Event()
        self._lock = threading.Lock()
        self._callbacks: list[Callable[[], object]] = []

    def wait(self) -> Event | None:
        """Wait for the end of the call."""
        self._landed.wait()
        return self.answer

    async def awaited(self) -> Event | None:
        """Wait for the end of the call without holding a thread."""
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        with self._lock:
            if not self._landed.is_set():
                self._callbacks.append(partial(_call_soon, loop, ended))
            else:
                ended.set()
        await ended.wait()
        return self.answer

    def land(self) -> None:
        """Let those who wait go on."""
        with self._lock:
            self._landed.set()
        for callback in self._callbacks:
            callback()


def _call_soon(loop: asyncio.AbstractEventLoop, ended: asyncio.Event) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(ended.set)


class Flights:
    """The live calls under way in one context."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_key: dict[str, Flight] = {}

    def join(self, key: str) -> tuple[Flight | None, bool]:
        """Return the flight for a key, and whether the caller is the one to make the call.

        There is none for an ask made from inside the very call.
        """
        if key in _inside.get():
            return None, True
        with self._lock:
            flight = self._by_key.get(key)
            if flight is not None:
                return flight, False
            flight = self._by_key[key] = Flight(key)
            return flight, True

    def land(self, flight: Flight, answer: Event | None) -> None:
        """End a flight."""
        flight.answer = answer
        with self._lock:
            self._by_key.pop(flight.key, None)
        flight.land()
