"""A bounded channel between what makes items and what takes them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sag_research.errors import UsageError
from sag_research.runtime import CancelToken, Channel, ChannelClosedError, LoopCancelledError

PATIENCE = 20


def push_all(channel: Channel[Any], items: Iterable[Any]) -> None:
    for item in items:
        channel.push(item)
    channel.close()


async def apush_all(channel: Channel[Any], items: Iterable[Any]) -> None:
    for item in items:
        await channel.apush(item)
    channel.close()


def by_thread(channel: Channel[Any], items: Iterable[Any]) -> list[Any]:
    with ThreadPoolExecutor(1) as pool:
        pushed = pool.submit(push_all, channel, items)
        taken = list(channel)
        pushed.result(PATIENCE)
    return taken


def by_loop(channel: Channel[Any], items: Iterable[Any]) -> list[Any]:
    async def main() -> list[Any]:
        pushing = asyncio.create_task(apush_all(channel, items))
        taken = [item async for item in channel]
        await pushing
        return taken

    return asyncio.run(main())


def thread_to_loop(channel: Channel[Any], items: Iterable[Any]) -> list[Any]:
    async def main() -> list[Any]:
        pushing = asyncio.to_thread(push_all, channel, items)
        _, taken = await asyncio.gather(pushing, all_of(channel))
        return taken

    return asyncio.run(main())


def loop_to_thread(channel: Channel[Any], items: Iterable[Any]) -> list[Any]:
    async def main() -> list[Any]:
        _, taken = await asyncio.gather(apush_all(channel, items), asyncio.to_thread(list, channel))
        return taken

    return asyncio.run(main())


async def all_of(channel: AsyncIterator[Any]) -> list[Any]:
    return [item async for item in channel]


SIDES = [by_thread, by_loop, thread_to_loop, loop_to_thread]
Sides = Callable[[Channel[Any], Iterable[Any]], list[Any]]


@pytest.mark.parametrize("sides", SIDES)
@pytest.mark.parametrize("capacity", [1, 3, 256])
def test_d15_items_come_in_their_order(sides: Sides, capacity: int) -> None:
    assert sides(Channel(capacity), range(300)) == list(range(300))


def test_d15_the_capacity_is_256_where_none_is_given() -> None:
    assert Channel[int]().capacity == 256
    for wrong in (0, -1, 1.5, True, "9"):
        with pytest.raises(UsageError):
            Channel(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("sides", SIDES)
def test_d15_push_waits_while_the_channel_is_full(sides: Sides) -> None:
    channel: Channel[int] = Channel(2)
    made = 0

    def numbers() -> Iterator[int]:
        nonlocal made
        for number in range(50):
            made += 1
            yield number

    taken = []
    widest = 0

    class Slow(Channel[int]):
        def _take(self) -> object:
            nonlocal widest
            widest = max(widest, len(self))
            return super()._take()

    channel = Slow(2)
    taken = sides(channel, numbers())
    assert taken == list(range(50))
    assert made == 50
    assert 1 <= widest <= 2


def test_d15_a_push_that_waits_goes_on_when_something_is_taken() -> None:
    channel: Channel[str] = Channel(1)
    channel.push("a")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(channel.push, "b")
        with pytest.raises(TimeoutError):
            waiting.result(0.05)
        assert next(channel) == "a"
        waiting.result(PATIENCE)
    assert next(channel) == "b"


def test_d15_close_is_the_end_after_what_is_in_it() -> None:
    channel: Channel[str] = Channel()
    channel.push("a")
    channel.close()
    channel.close()
    assert list(channel) == ["a"]
    assert list(channel) == []
    with pytest.raises(ChannelClosedError, match="has come to its end"):
        channel.push("b")
    with pytest.raises(ChannelClosedError):
        asyncio.run(channel.apush("b"))


def test_d15_fail_raises_at_the_consumer_after_what_is_in_it() -> None:
    channel: Channel[str] = Channel()
    channel.push("a")
    error = ValueError("no luck")
    channel.fail(error)
    channel.close()  # how it ended first stays
    assert next(channel) == "a"
    for _ in range(2):
        with pytest.raises(ValueError, match="no luck") as caught:
            next(channel)
        assert caught.value is error
    with pytest.raises(ChannelClosedError) as refused:
        channel.push("b")
    assert refused.value.__cause__ is error


@pytest.mark.parametrize("end", ["close", "fail"])
def test_d15_a_consumer_that_waits_hears_of_the_end(end: str) -> None:
    channel: Channel[str] = Channel()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(list, channel)
        with pytest.raises(TimeoutError):
            waiting.result(0.05)
        if end == "close":
            channel.close()
            assert waiting.result(PATIENCE) == []
        else:
            channel.fail(ValueError("no luck"))
            with pytest.raises(ValueError, match="no luck"):
                waiting.result(PATIENCE)


def test_d15_cancelling_what_is_outside_ends_both_sides() -> None:
    token = CancelToken()
    full: Channel[int] = Channel(1, cancel=token)
    empty: Channel[int] = Channel(cancel=token)
    full.push(1)
    with ThreadPoolExecutor(2) as pool:
        pushing, taking = pool.submit(full.push, 2), pool.submit(next, empty)
        with pytest.raises(TimeoutError):
            pushing.result(0.05)
        token.cancel("the user pressed Stop")
        for waiting in (pushing, taking):
            with pytest.raises(LoopCancelledError, match="Stop"):
                waiting.result(PATIENCE)


def test_d15_cancelling_what_is_outside_ends_both_sides_on_an_event_loop() -> None:
    token = CancelToken(0.05)
    full: Channel[int] = Channel(1, cancel=token)
    empty: Channel[int] = Channel(cancel=token)

    async def main() -> list[BaseException | None]:
        await full.apush(1)
        return await asyncio.gather(full.apush(2), anext(empty), return_exceptions=True)

    ended = asyncio.run(main())
    assert [type(error) for error in ended] == [LoopCancelledError] * 2


def test_d15_a_consumer_that_takes_no_more_lets_the_producer_go() -> None:
    channel: Channel[int] = Channel(1)
    with ThreadPoolExecutor(1) as pool:
        pushing = pool.submit(push_all, channel, range(9))
        assert next(channel) == 0
        channel.cancel()
        with pytest.raises(LoopCancelledError):
            pushing.result(PATIENCE)


def test_d15_fan_in_closes_when_all_have_ended() -> None:
    channel: Channel[int] = Channel(2)
    one, two, three = channel.fan_in(3)

    def work(producer: Any, start: int) -> None:
        with producer:
            for number in range(start, start + 100):
                producer.push(number)

    with ThreadPoolExecutor(3) as pool:
        for start, producer in enumerate((one, two, three)):
            pool.submit(work, producer, 1000 * start)
        taken = list(channel)
    assert sorted(taken) == [1000 * part + n for part in range(3) for n in range(100)]
    for part in range(3):  # each producer's own order is kept
        own = [n for n in taken if n // 1000 == part]
        assert own == sorted(own)


def test_d15_fan_in_stays_open_until_the_last_has_ended() -> None:
    channel: Channel[int] = Channel()
    one, two = channel.fan_in(2)
    one.close()
    one.close()  # ending twice is not ending for the other
    two.push(1)
    with pytest.raises(ChannelClosedError, match="this producer ended"):
        one.push(2)
    two.close()
    assert list(channel) == [1]


def test_d15_fan_in_fails_on_the_first() -> None:
    channel: Channel[int] = Channel()
    one, two = channel.fan_in(2)
    one.push(1)
    with pytest.raises(ZeroDivisionError), two:
        raise ZeroDivisionError
    one.close()
    assert next(channel) == 1
    with pytest.raises(ZeroDivisionError):
        next(channel)


def test_d15_fan_in_on_an_event_loop() -> None:
    channel: Channel[int] = Channel(1)

    async def work(producer: Any, start: int) -> None:
        with producer:
            for number in range(start, start + 20):
                await producer.apush(number)

    async def main() -> list[int]:
        one, two = channel.fan_in(2)
        *_, taken = await asyncio.gather(work(one, 0), work(two, 100), all_of(channel))
        return taken

    assert sorted(asyncio.run(main())) == [*range(20), *range(100, 120)]


def test_d15_a_channel_tells_how_it_stands() -> None:
    channel: Channel[int] = Channel(3)
    channel.push(1)
    assert repr(channel) == "Channel(1 of 3, open)"
    channel.close()
    assert repr(channel) == "Channel(1 of 3, ended)"
    channel.cancel()
    assert repr(channel) == "Channel(1 of 3, cancelled)"


@settings(max_examples=25, deadline=None)
@given(
    items=st.lists(st.integers(), max_size=40),
    capacity=st.integers(1, 5),
    sides=st.sampled_from(SIDES),
    fails=st.booleans(),
)
def test_d15_nothing_is_lost_doubled_or_out_of_order(
    items: list[int], capacity: int, sides: Sides, fails: bool
) -> None:
    channel: Channel[int] = Channel(capacity)

    def source() -> Iterator[int]:
        yield from items
        if fails:
            channel.fail(ValueError("no luck"))

    taken: list[int] = []

    class Kept(Channel[int]):
        def _take(self) -> object:
            got = super()._take()
            if isinstance(got, int):
                taken.append(got)
            return got

    channel = Kept(capacity)
    if fails:
        with pytest.raises(ValueError, match="no luck"):
            sides(channel, source())
    else:
        assert sides(channel, source()) == items
    assert taken == items


def test_d15_threads_are_not_left() -> None:
    before = threading.active_count()
    assert by_thread(Channel(1), range(20)) == list(range(20))
    assert threading.active_count() == before
