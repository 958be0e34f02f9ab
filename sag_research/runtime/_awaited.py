"""Calling functions of others that may be plain or asynchronous."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from typing import Any

from sag_research.runtime._loop_cancel import Scope
from sag_research.runtime._loop_node import scope_here

__all__ = ["call", "until_cancelled"]


def call(function: Callable[..., Any], *args: object) -> Any:
    """Call a function, and await what it returns where that must be.

    Examples
    --------
    >>> async def later(number):
    ...     return number + 1
    >>> call(later, 1), call(abs, -2)
    (2, 2)
    """
    result = function(*args)
    if not inspect.isawaitable(result):
        return result

    async def awaited() -> Any:
        return await result

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(awaited())
    with ThreadPoolExecutor(1) as pool:  # a notebook has a loop of its own in this thread
        return pool.submit(copy_context().run, asyncio.run, awaited()).result()


def until_cancelled(result: Any) -> Any:
    """Return a result, or, of an asynchronous function, what awaits it until its node is cancelled.

    Raises
    ------
    LoopCancelledError, StepCancelledError
        When awaited, where the loop or the step was cancelled first; the work is cut off.
    """
    scope = scope_here()
    return result if scope is None or not inspect.isawaitable(result) else _cut_off(result, scope)


async def _cut_off(result: Awaitable[Any], scope: Scope) -> Any:
    work, events = asyncio.ensure_future(result), asyncio.get_running_loop()

    def cut() -> None:
        with suppress(RuntimeError):  # the event loop may have been closed in this very moment
            events.call_soon_threadsafe(work.cancel)

    with scope.telling(cut):
        while not (work.done() or scope.cancelled):
            await asyncio.wait({work}, timeout=scope.remaining())
        if not work.done():
            work.cancel()
            await asyncio.wait({work})
    if work.cancelled() and (interruption := scope.interruption()) is not None:
        raise interruption
    return work.result()
