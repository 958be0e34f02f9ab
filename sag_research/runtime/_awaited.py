"""Calling functions of others that may be plain or asynchronous."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any

__all__ = ["call"]


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
