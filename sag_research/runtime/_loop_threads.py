"""Threads for plain nodes of asynchronous loops, with little between a node and its event loop.

An executor makes two futures, links them, and wakes the event loop for each; a node that does
nothing takes twice as long that way.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, TypeAlias, TypeVar

from sag_research.errors import Caught

__all__ = ["Threads"]

R = TypeVar("R")
_Tasks: TypeAlias = "SimpleQueue[Callable[[], object] | None]"


class _Idle:
    """Counts the threads that have nothing to do, or will have none in a moment."""

    def __init__(self) -> None:
        self._count, self._lock = 0, threading.Lock()

    def take(self) -> bool:
        with self._lock:
            is_one = self._count > 0
            self._count -= is_one
            return is_one

    def give(self) -> None:
        with self._lock:
            self._count += 1


class Threads:
    """Threads that wait for something to do, at most so many; they are begun when needed."""

    def __init__(self, most: int) -> None:
        self._most, self._idle, self._lock = most, _Idle(), threading.Lock()
        self._tasks: _Tasks = SimpleQueue()
        self._all: list[threading.Thread] = []
        self._ending: list[threading.Thread] = []
        weakref.finalize(self, _dismiss, self._tasks, self._all)

    def call(self, work: Callable[[Any], R], value: Any) -> asyncio.Future[R]:
        """Call a function on a thread; what it returns or raises is the future's."""
        events, idle = asyncio.get_running_loop(), self._idle
        everyone, ending = self._all, self._ending  # not this object, which a thread outlives
        future: asyncio.Future[R] = events.create_future()

        def tell(result: R | None, error: BaseException | None) -> None:
            with suppress(RuntimeError):  # the event loop may be closed by now
                events.call_soon_threadsafe(_settle, future, result, error)

        def task() -> None:
            try:
                ended = _outcome(work, value)
            except BaseException as left:  # the end of this thread, which another may replace
                ending.append(threading.current_thread())
                with suppress(ValueError):
                    everyone.remove(threading.current_thread())
                tell(None, left)
                raise
            idle.give()  # before it is told: what comes next may be for this thread
            tell(*ended)

        if not idle.take():
            self._begin_thread()
        self._tasks.put(task)
        return future

    def _begin_thread(self) -> None:
        with self._lock:
            if len(self._all) < self._most:
                thread = threading.Thread(
                    target=_serve, args=(self._tasks,), name=f"sag-node-{len(self._all)}",
                    daemon=True,
                )  # fmt: skip
                self._all.append(thread)
                thread.start()

    def close(self) -> None:
        """End the threads; nothing may be under way."""
        with self._lock:
            threads = (*self._all, *self._ending)
            _dismiss(self._tasks, self._all)
        for thread in threads:
            thread.join()


def _dismiss(tasks: _Tasks, threads: list[threading.Thread]) -> None:
    for _ in threads:
        tasks.put(None)
    threads.clear()


def _serve(tasks: _Tasks) -> None:
    """Do one task after the other; knows nothing of whose they are, so that those may go."""
    while (task := tasks.get()) is not None:
        task()
        del task  # while it waits it keeps nothing alive


def _outcome(work: Callable[[Any], R], value: Any) -> tuple[R | None, BaseException | None]:
    with Caught() as caught:
        try:
            return work(value), None
        except KeyboardInterrupt as interrupt:
            return None, interrupt
    return None, caught.error


def _settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
