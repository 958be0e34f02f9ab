"""Threads for plain nodes of asynchronous loops."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from sag_research.runtime._loop_threads import Threads

PATIENCE = 20


def ours() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name.startswith("sag-node-")]


def until(what: Callable[[], bool]) -> None:
    """Wait for something that comes of itself."""
    end = time.monotonic() + PATIENCE
    while not what():
        assert time.monotonic() < end
        time.sleep(0.002)


def running(work: Callable[[Threads], Any], most: int = 8) -> Any:
    threads = Threads(most)
    try:
        return asyncio.run(work(threads))
    finally:
        threads.close()
        assert ours() == []


def test_l2_what_a_function_returns_is_the_futures() -> None:
    async def main(threads: Threads) -> list[int]:
        return [await threads.call(lambda n: 2 * n, number) for number in range(5)]

    assert running(main) == [0, 2, 4, 6, 8]


@pytest.mark.parametrize("error", [ValueError("no luck"), KeyboardInterrupt()])
def test_l2_what_a_function_raises_is_the_futures(error: BaseException) -> None:
    def boom(_: object) -> None:
        raise error

    async def main(threads: Threads) -> BaseException | None:
        one = threads.call(boom, None)
        await asyncio.wait({one})
        return one.exception()

    assert running(main) is error


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_l2_a_thread_that_is_ended_from_inside_leaves_nobody_waiting() -> None:
    class Odd(BaseException):
        pass

    def boom(_: object) -> None:
        raise Odd

    async def main(threads: Threads) -> list[object]:
        ends: list[object] = []
        for _ in range(3):  # with one thread at most: each needs that of the last to be replaced
            one = threads.call(boom, None)
            await asyncio.wait({one}, timeout=PATIENCE)
            ends.append(type(one.exception()))
            ends.append(await asyncio.wait_for(threads.call(str, 7), PATIENCE))
        return ends

    assert running(main, most=1) == [Odd, "7"] * 3


def test_l2_a_thread_is_used_again() -> None:
    async def main(threads: Threads) -> int:
        for number in range(50):
            await threads.call(str, number)
        return len(ours())

    assert running(main) == 1


def test_l2_there_are_as_many_threads_as_are_needed_and_no_more_than_allowed() -> None:
    async def main(threads: Threads) -> int:
        gate = threading.Event()
        waiting = [threads.call(lambda _: gate.wait(PATIENCE), None) for _ in range(9)]
        count = len(ours())
        gate.set()
        assert all(await asyncio.gather(*waiting))
        return count

    assert running(main, most=4) == 4
    assert running(main, most=99) == 9


def test_l2_threads_end_when_nobody_has_them_any_more() -> None:
    async def main() -> None:
        await Threads(2).call(str, 1)

    asyncio.run(main())
    gc.collect()
    until(lambda: not ours())


def test_l2_an_event_loop_that_was_closed_meanwhile_is_no_error() -> None:
    threads, gate = Threads(1), threading.Event()

    async def main() -> None:
        threads.call(lambda _: gate.wait(PATIENCE), None)

    asyncio.run(main())
    gate.set()
    threads.close()
    assert ours() == []
