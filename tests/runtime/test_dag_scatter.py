"""A scatter: items of whichever source, bodies at the same time, and going on where it was."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sag_research.errors import UsageError
from sag_research.log import SQLiteEventStore
from sag_research.model import Run
from sag_research.runtime import (
    Body,
    BudgetExceededError,
    CancelToken,
    Channel,
    CheckpointMismatchError,
    DagReference,
    Documents,
    EmbeddedDag,
    Execution,
    ItemExecution,
    LogAcks,
    LoopCancelledError,
    MemoryAcks,
    NodeSpec,
    ReservoirExecution,
    RoutingError,
    Runtime,
    Summary,
    execute,
    tool,
)
from sag_research.runtime._dag_scatter_feed import Batches, Feed, Items
from tests.runtime.dags import (
    ANY,
    at,
    awaited,
    counting,
    doc,
    embedded,
    end,
    gather,
    plainly,
    scatter,
    scattered,
    single,
    trace,
    way,
)  # fmt: skip

__all__ = ["end", "way"]
Way = Callable[[Execution], Summary]
PATIENCE = 20


def double(state: Any, context: object) -> Any:
    return "success", 2 * state["currentItem"]


async def adouble(state: Any, context: object) -> Any:
    await asyncio.sleep(0)
    return "success", 2 * state["currentItem"]


def numbers(count: int) -> Iterator[int]:
    yield from range(count)


async def stream(count: int) -> AsyncIterator[int]:
    for number in range(count):
        await asyncio.sleep(0)
        yield number


def fed(count: int) -> Channel[int]:
    channel: Channel[int] = Channel(max(1, count))
    for number in range(count):
        channel.push(number)
    channel.close()
    return channel


SOURCES: dict[str, Callable[[int], Any]] = {
    "list": lambda count: list(range(count)), "range": range, "generator": numbers,
    "stream": stream, "channel": fed, "iterator": lambda count: iter(range(count)),
}  # fmt: skip


def values(run: Execution, name: str = "each") -> list[Any]:
    """What the bodies gave, in the order of the records."""
    return [record.value for record in run._frame.left[at(name)][1]]


# ---- sources and ports


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("work", [double, adouble])
@pytest.mark.parametrize("concurrency", [1, 3])
def test_d10_sources(end: Way, source: str, work: Any, concurrency: int) -> None:
    documents, many, state = scattered(work, SOURCES[source](7), concurrency=concurrency)
    run = execute(documents, many, state)
    assert end(run).complete, run.summary()
    assert values(run) == [0, 2, 4, 6, 8, 10, 12]


@pytest.mark.parametrize("source", SOURCES)
def test_d10_no_items(end: Way, source: str) -> None:
    documents, many, state = scattered(double, SOURCES[source](0), concurrency=3)
    run = execute(documents, many, state)
    assert end(run).complete
    assert trace_of(run) == "empty"


def trace_of(run: Execution) -> str:
    """Port of the scatter of a run that has ended."""
    records = run._frame.left[at("each")][1]
    return run._frame.program.reducers[at("each")](records)


@pytest.mark.parametrize("source", ["stream", "generator", "list"])
def test_d10_results_have_the_order_of_the_source_whatever_ends_first(source: str) -> None:
    async def late_first(state: Any, context: object) -> Any:
        await asyncio.sleep(0.02 if state["currentItem"] == 0 else 0)
        return "success", state["currentItem"]

    documents, many, state = scattered(late_first, SOURCES[source](6), concurrency=6)
    run = execute(documents, many, state)
    assert awaited(run).complete
    assert values(run) == list(range(6))


@pytest.mark.parametrize("wrong", [3, "text", b"bytes", {"a": 1}, None])
def test_d10_what_is_no_source(wrong: Any) -> None:
    documents, many, state = scattered(double, wrong)
    summary = execute(documents, many, state).summary()
    assert "is no source of items" in str(summary.error)
    del state["items"]
    summary = execute(documents, many, state).summary()
    assert "there is nothing at 'items'" in str(summary.error)


def test_d10_the_item_stands_where_the_placement_says() -> None:
    documents, many, state = scattered(
        lambda state, _: ("success", (state["job"], state["shared"])), [1, 2], item_key="job"
    )
    state["shared"] = "s"
    run = execute(documents, many, state)
    assert run.summary().complete
    assert values(run) == [(1, "s"), (2, "s")]


def test_d10_what_a_body_writes_stays_apart(end: Way) -> None:
    def work(state: Any, context: object) -> str:
        assert "mine" not in state
        state["mine"] = state["currentItem"]
        return "success"

    documents, many, state = scattered(work, [1, 2, 3], concurrency=2)
    assert end(execute(documents, many, state)).complete
    assert state.keys() == {"items", "out"}


@pytest.mark.parametrize(
    ("items", "port"),
    [([], "empty"), ([1, 2], "all-success"), ([1, -2], "partial"), ([-1, -2], "all-error")],
)
def test_d9_a_port_of_error_stops_nothing(way: Way, items: list[int], port: str) -> None:
    ran: list[int] = []

    def work(state: Any, context: object) -> str:
        ran.append(state["currentItem"])
        return "success" if state["currentItem"] > 0 else "error"

    documents, many, state = scattered(work, items)
    run = execute(documents, many, state)
    assert way(run).complete
    assert ran == items
    assert trace_of(run) == port


# ---- concurrency and throttle


@pytest.mark.parametrize("cap", [1, 2, 5])
@pytest.mark.parametrize("source", ["list", "generator", "stream"])
def test_d10_concurrency_is_a_hard_cap_and_is_used(end: Way, cap: int, source: str) -> None:
    at_once = widest = 0
    lock = threading.Lock()

    def enter(by: int) -> None:
        nonlocal at_once, widest
        with lock:
            at_once += by
            widest = max(widest, at_once)

    meet = threading.Barrier(cap)

    def work(state: Any, context: object) -> str:
        enter(1)
        meet.wait(PATIENCE)  # goes on only when so many are here
        enter(-1)
        return "success"

    documents, many, state = scattered(work, SOURCES[source](3 * cap), concurrency=cap)
    assert end(execute(documents, many, state)).complete
    assert widest == cap


@pytest.mark.parametrize("cap", [1, 3])
def test_d10_concurrency_caps_asynchronous_bodies(end: Way, cap: int) -> None:
    at_once = widest = 0

    async def work(state: Any, context: object) -> str:
        nonlocal at_once, widest
        at_once += 1
        widest = max(widest, at_once)
        while widest < cap:  # goes on only when so many are here
            await asyncio.sleep(0)
        at_once -= 1
        return "success"

    documents, many, state = scattered(work, list(range(12)), concurrency=cap)
    assert end(execute(documents, many, state)).complete
    assert widest == cap


@pytest.mark.parametrize("work", [double, adouble])
def test_d10_bodies_begin_no_faster_than_the_throttle(end: Way, work: Any) -> None:
    documents, many, state = scattered(work, list(range(6)), concurrency=3, throttle=0.02)
    began = time.monotonic()
    run = execute(documents, many, state)
    assert end(run).complete
    assert time.monotonic() - began >= 5 * 0.02
    assert values(run) == [0, 2, 4, 6, 8, 10]


def test_d10_a_throttle_does_not_hold_up_a_cancellation(end: Way) -> None:
    documents, many, state = scattered(double, list(range(6)), throttle=60.0)
    run = execute(documents, many, state)
    timer = threading.Timer(0.1, run.cancel)
    timer.start()
    began = time.monotonic()
    assert end(run).lifecycle == "cancelled"
    assert time.monotonic() - began < PATIENCE
    timer.join()


def test_d10_no_more_is_pulled_than_there_are_places() -> None:
    pulled, gate, waiting = list[int](), threading.Event(), threading.Barrier(3)

    def source() -> Iterator[int]:
        for number in range(9):
            pulled.append(number)
            yield number

    def work(state: Any, context: object) -> str:
        if not gate.is_set():
            waiting.wait(PATIENCE)
            gate.wait(PATIENCE)
        return "success"

    documents, many, state = scattered(work, source(), concurrency=2)
    thread = threading.Thread(target=execute(documents, many, state).summary)
    thread.start()
    waiting.wait(PATIENCE)  # both bodies are under way
    time.sleep(0.02)
    assert pulled == [0, 1]
    gate.set()
    thread.join(PATIENCE)
    assert pulled == list(range(9))


def test_d10_an_endless_source_ends_at_max_items() -> None:
    def endless() -> Iterator[int]:
        number = 0
        while True:
            yield number
            number += 1

    documents, many, state = scattered(double, endless())
    summary = execute(documents, many, state, max_items=50).summary()
    assert "more than 50 items" in str(summary.error)


# ---- the first error


@pytest.mark.parametrize("source", ["list", "generator", "stream"])
def test_d10_the_first_error_stops_pulling_and_lets_running_bodies_finish(
    end: Way, source: str
) -> None:
    meet, failed, done, began = threading.Barrier(3), threading.Event(), [], []

    def work(state: Any, context: object) -> str:
        item = state["currentItem"]
        began.append(item)
        meet.wait(PATIENCE)
        if item == 1:
            failed.set()
            raise ValueError("no luck")
        failed.wait(PATIENCE)
        time.sleep(0.02)  # it ends after the failure has been heard of
        done.append(item)
        return "success"

    documents, many, state = scattered(work, SOURCES[source](30), concurrency=3)
    run = execute(documents, many, state)
    summary = end(run)
    assert summary.lifecycle == "failed"
    assert isinstance(summary.error, ValueError)
    assert sorted(done) == [0, 2]
    assert sorted(began) == [0, 1, 2]
    assert sorted(run.acks.load(f"{at('each')}#1")) == [0, 2]


def test_d10_the_first_error_is_reported_and_all_are_kept(end: Way) -> None:
    meet = threading.Barrier(3)

    def work(state: Any, context: object) -> str:
        meet.wait(PATIENCE)
        raise ValueError(state["currentItem"])

    documents, many, state = scattered(work, list(range(9)), concurrency=3)
    summary = end(execute(documents, many, state))
    assert summary.error is summary.errors[0]
    assert sorted(error.args for error in summary.errors) == [(0,), (1,), (2,)]


def test_d10_an_error_of_the_source_is_one_of_the_scatter(end: Way) -> None:
    def source() -> Iterator[int]:
        yield 1
        raise OSError("the disk is gone")

    documents, many, state = scattered(double, source(), concurrency=2)
    run = execute(documents, many, state)
    assert isinstance(end(run).error, OSError)
    assert list(run.acks.load(f"{at('each')}#1")) == [0]


@pytest.mark.parametrize("width", [1, 3])
def test_d10_a_stream_that_cancels_itself_is_no_stream_that_ends(
    end: Callable[..., Summary], width: int
) -> None:
    async def stream() -> AsyncIterator[int]:
        yield 1
        raise asyncio.CancelledError

    documents, many, state = scattered(lambda s, c: "success", stream(), concurrency=width)
    summary = end(execute(documents, many, state))
    assert (summary.lifecycle, "out" in state) == ("failed", False)
    assert "cancelled itself" in str(summary.error)


def test_d10_an_error_does_not_wait_for_a_stream_that_stands_still() -> None:
    closed = threading.Event()

    async def standing() -> AsyncIterator[int]:
        try:
            yield 0
            await asyncio.sleep(PATIENCE)
        finally:
            closed.set()

    async def work(state: Any, context: object) -> str:
        await asyncio.sleep(0.01)
        raise ValueError("no luck")

    documents, many, state = scattered(work, standing(), concurrency=2)
    began = time.monotonic()
    assert isinstance(awaited(execute(documents, many, state)).error, ValueError)
    assert time.monotonic() - began < PATIENCE / 2
    assert closed.is_set()


def test_d10_an_error_lets_the_producer_of_a_channel_go(end: Way) -> None:
    channel: Channel[int] = Channel(1)

    def produce() -> None:
        for number in range(1000):
            channel.push(number)

    documents, many, state = scattered(lambda *_: 1 // 0, channel)
    with ThreadPoolExecutor(1) as pool:
        producing = pool.submit(produce)
        assert isinstance(end(execute(documents, many, state)).error, ZeroDivisionError)
        with pytest.raises(LoopCancelledError, match="has come to its end"):
            producing.result(PATIENCE)


def test_d10_an_error_does_not_wait_for_a_channel_that_stands_still(end: Way) -> None:
    channel: Channel[int] = Channel()
    channel.push(0)

    def work(state: Any, context: object) -> str:
        time.sleep(0.05)  # the other lane waits for an item by now
        raise ValueError("no luck")

    documents, many, state = scattered(work, channel, concurrency=2)
    began = time.monotonic()
    summary = end(execute(documents, many, state))
    assert [type(error) for error in summary.errors] == [ValueError]
    assert time.monotonic() - began < PATIENCE / 2


def test_d10_cancelling_does_not_wait_for_a_channel_that_stands_still(end: Way) -> None:
    documents, many, state = scattered(double, Channel[int](), concurrency=2)
    run = execute(documents, many, state)
    timer = threading.Timer(0.1, run.cancel)
    timer.start()
    assert end(run).lifecycle == "cancelled"
    timer.join()


def test_d10_a_channel_that_fails_fails_the_scatter(end: Way) -> None:
    channel: Channel[int] = Channel()
    channel.push(1)
    channel.fail(OSError("the other side is gone"))
    documents, many, state = scattered(double, channel)
    run = execute(documents, many, state)
    assert isinstance(end(run).error, OSError)
    assert list(run.acks.load(f"{at('each')}#1")) == [0]


def test_d10_a_generator_is_closed_when_the_scatter_ends_early(end: Way) -> None:
    closed = []

    def source() -> Iterator[int]:
        try:
            yield from range(9)
        finally:
            closed.append(1)

    documents, many, state = scattered(lambda *_: 1 // 0, source(), concurrency=2)
    end(execute(documents, many, state))
    assert closed == [1]


# ---- cancellation


def test_d10_cancelling_stops_pulling_and_lets_plain_bodies_finish(end: Way) -> None:
    token, done = CancelToken(), []

    def work(state: Any, context: object) -> str:
        if state["currentItem"] == 2:
            token.cancel("enough")
        done.append(state["currentItem"])
        return "success"

    documents, many, state = scattered(work, list(range(50)))
    run = execute(documents, many, state, cancel=token)
    summary = end(run)
    assert (summary.lifecycle, done) == ("cancelled", [0, 1, 2])
    assert sorted(run.acks.load(f"{at('each')}#1")) == [0, 1, 2]


def test_d10_cancelling_cuts_off_asynchronous_bodies(end: Way) -> None:
    token, cut = CancelToken(), []

    async def work(state: Any, context: object) -> str:
        if state["currentItem"] == 1:
            token.cancel("enough")
        try:
            await asyncio.sleep(PATIENCE)
        except asyncio.CancelledError:
            cut.append(state["currentItem"])
            raise
        return "success"

    documents, many, state = scattered(work, list(range(9)), concurrency=2)
    assert end(execute(documents, many, state, cancel=token)).lifecycle == "cancelled"
    assert sorted(cut) == [0, 1]


# ---- going on


@pytest.mark.parametrize("source", ["list", "range"])
@pytest.mark.parametrize("concurrency", [1, 4])
@pytest.mark.parametrize("logged", [False, True])
def test_d10_a_run_that_goes_on_skips_what_is_done(
    end: Way, source: str, concurrency: int, logged: bool
) -> None:
    done: list[int] = []
    broken = [7]

    def work(state: Any, context: object) -> Any:
        item = state["currentItem"]
        if item in broken:
            raise ValueError("no luck")
        done.append(item)
        state["output"] = item
        return "success", item

    documents = Documents([NodeSpec("work", ("success", "error"), work)])
    how = ItemExecution(concurrency)
    each = scatter("each", Body(node="work"), dict.fromkeys(ANY, "join"), execution=how)
    join = gather("join", ["each"], "map", mapping={"output": "out"})
    many, state = doc("many", "each", each, join), {"items": SOURCES[source](20)}
    with SQLiteEventStore(":memory:") as store:
        options: Any = {"store": store} if logged else {}
        run = execute(documents, many, state, **options)
        assert end(run).lifecycle == "failed"
        before = sorted(done)
        assert 7 not in before
        assert {*range(7)} <= {*before}
        broken.clear()
        if logged:  # as another process would: from the log alone
            cursor = run.summary().cursor
            again = execute(
                documents, many, {"items": SOURCES[source](20)}, store=store, run_id=run.loop_id,
                start_at=cursor,
            )  # fmt: skip
        else:
            again = run.resume()
        assert end(again).complete
    assert sorted(done) == list(range(20))  # each once
    assert again.state["out"] == list(range(20))  # in the source's order, none twice


def test_d10_a_process_that_was_killed_goes_on_by_name() -> None:
    """Nothing is left of it but the log: no cursor, no state."""
    done: list[int] = []

    def work(state: Any, context: object) -> Any:
        done.append(state["currentItem"])
        return "success", state["currentItem"]

    documents, many, state = scattered(work, list(range(5)))
    with SQLiteEventStore(":memory:") as store:
        store.create_run(Run(run_id="r1"))
        first = execute(documents, many, state, store=store, run_id="r1")
        first.summary()
        done.clear()
        state = {"items": list(range(8))}
        more = execute(documents, many, state, store=store, run_id="r1", start_at="each")
        assert more.summary().complete
        assert done == [5, 6, 7]
        assert values(more) == list(range(8))


def test_d10_a_gather_goes_on_with_what_its_scatter_left(end: Way) -> None:
    luck = iter([ValueError("no luck"), None])
    documents, *_ = scattered(double, [])

    @documents.strategy("mine")
    def mine(state: Any, records: Any, gathering: Any) -> None:
        if (error := next(luck)) is not None:
            raise error
        state["out"] = [record.value for record in records]

    each = scatter("each", Body(node="work"), dict.fromkeys(ANY, "join"))
    join = gather("join", ["each"], "custom", function="mine")
    run = execute(documents, doc("many", "each", each, join), {"items": [1, 2, 3]})
    assert end(run).lifecycle == "failed"
    again = run.resume()
    assert end(again).complete
    assert run.state["out"] == [2, 4, 6]


def test_d10_each_visit_of_a_scatter_does_all_its_items() -> None:
    """In a cycle the same scatter comes again; what was done in the turn before is not this."""
    done: list[int] = []
    luck = iter([0, 0, 0, 0, 1, 0])

    def work(state: Any, context: object) -> str:
        if next(luck, 0):
            raise ValueError("no luck")
        done.append(state["currentItem"])
        return "success"

    documents, *_ = scattered(work, [])

    @documents.node("next", ports=("again", "over"))
    def following(state: Any, context: object) -> str:
        state["turn"] += 1
        return "again" if state["turn"] < 3 else "over"

    each = scatter("each", Body(node="work"), dict.fromkeys(ANY, "next"))
    cycle = doc("many", "next", single("next", again="each", over="end"), each)
    run = execute(documents, cycle, {"items": [0, 1, 2], "turn": 0})
    assert run.summary().lifecycle == "failed"
    assert done == [0, 1, 2, 0]
    assert run.resume().summary().complete
    assert done == [0, 1, 2, 0, 1, 2]


def test_d10_a_scatter_that_had_not_begun_begins_anew() -> None:
    """The cursor is at it, and it was visited before: that visit's items are not this one's."""
    done: list[int] = []

    def work(state: Any, context: object) -> str:
        done.append(state["currentItem"])
        return "success"

    documents, *_ = scattered(work, [])
    documents.add_node(NodeSpec("pass", ("done",), lambda *_: "done"))
    each = scatter("each", Body(node="work"), dict.fromkeys(ANY, "pass"))
    cycle = doc("many", "each", each, single("pass", done="each"))
    cycle = doc("many", "each", each, single("pass", done="each"))
    run = execute(documents, cycle, {"items": [0, 1]})
    for number, _ in enumerate(run):
        if number == 1:  # left right before the second visit
            break
    assert run.cursor is not None
    assert (run.cursor.placement, run.cursor.begun) == (at("each"), False)
    again = run.resume()
    next(iter(again))
    assert done == [0, 1, 0, 1]


@pytest.mark.parametrize(
    ("items", "said"), [([0, 9, 2], "item 1 is another"), ([0], "it ended before item 1")]
)
def test_d10_a_source_that_has_changed_is_refused(items: list[int], said: str) -> None:
    def work(state: Any, context: object) -> str:
        if state["currentItem"] == 2:
            raise ValueError("no luck")
        return "success"

    documents, many, state = scattered(work, [0, 1, 2])
    run = execute(documents, many, state)
    assert run.summary().lifecycle == "failed"
    state["items"] = items
    error = run.resume().summary().error
    assert isinstance(error, CheckpointMismatchError)
    assert said in str(error)


def test_d10_items_come_back_from_the_log_as_the_same() -> None:
    def work(state: Any, context: object) -> str:
        if state["currentItem"] == ("b", 2):
            raise ValueError("no luck")
        return "success"

    documents, many, state = scattered(work, [("a", 1), ("b", 2)])
    with SQLiteEventStore(":memory:") as store:
        run = execute(documents, many, state, store=store)
        run.summary()
        state["items"] = [("a", 1), ("c", 3)]  # tuples come back as lists, and are the same still
        again = execute(documents, many, state, store=store, run_id=run.loop_id,
                        start_at=run.cursor)  # fmt: skip
        assert again.summary().complete


def test_d10_what_cannot_be_written_down_is_an_error() -> None:
    for value in (object(), {3: "a"}, float("nan")):
        documents, many, state = scattered(lambda *_, v=value: ("success", v), [1])
        with SQLiteEventStore(":memory:") as store:
            summary = execute(documents, many, state, store=store).summary()
            kept = execute(documents, many, dict(state), store=store, acks=MemoryAcks()).summary()
        assert (summary.lifecycle, kept.lifecycle) == ("failed", "completed")
        assert isinstance(summary.error, UsageError)
        assert "item 0 cannot be written down" in str(summary.error)


def test_d10_acks_say_how_many_they_hold() -> None:
    documents, many, state = scattered(double, [1, 2])
    acks = MemoryAcks()
    execute(documents, many, state, acks=acks).summary()
    assert repr(acks) == "MemoryAcks(2 items)"
    with SQLiteEventStore(":memory:") as store:
        assert LogAcks(store, "nowhere").load("x") == {}


def test_d10_a_scatter_of_a_document_that_is_embedded_twice_does_all_its_items_twice() -> None:
    done: list[int] = []

    def work(state: Any, context: object) -> str:
        done.append(state["currentItem"])
        return "success"

    documents, many, _ = scattered(work, [])
    documents.register(many)
    sub = embedded("sub", "many", outputs={"completed": "next", "failed": "end"})

    @documents.node("next", ports=("again", "over"))
    def following(state: Any, context: object) -> str:
        state["turn"] += 1
        return "again" if state["turn"] < 2 else "over"

    outer = doc("outer", "sub", sub, single("next", again="sub", over="end"))
    assert execute(documents, outer, {"items": [0, 1], "turn": 0}).summary().complete
    assert done == [0, 1, 0, 1]


def test_d10_a_scatter_inside_an_embedded_document_goes_on() -> None:
    done, luck = list[int](), iter([0, 0, 0, 1])

    def work(state: Any, context: object) -> str:
        if next(luck, 0):
            raise ValueError("no luck")
        done.append(state["currentItem"])
        return "success"

    documents, many, _ = scattered(work, [])
    documents.register(many)
    sub = embedded("sub", "many", outputs={"completed": "next", "failed": "end"})
    documents.add_node(NodeSpec("pass", ("again", "over"), lambda state, _: state["to"].pop(0)))
    outer = doc("outer", "sub", sub, single("next", "pass", again="sub", over="end"))
    run = execute(documents, outer, {"items": [0, 1], "to": ["again", "over"]})
    assert run.summary().lifecycle == "failed"  # at the second item of the second visit
    assert done == [0, 1, 0]
    assert run.resume().summary().complete
    assert done == [0, 1, 0, 1]


def test_d10_runs_that_are_written_into_one_do_not_take_each_others_items_for_their_own() -> None:
    done: list[int] = []
    luck = [5]

    def work(state: Any, context: object) -> Any:
        if state["currentItem"] in luck:
            raise ValueError("no luck")
        done.append(state["currentItem"])
        return "success", state["currentItem"]

    documents, many, _ = scattered(work, [])
    with SQLiteEventStore(":memory:") as store:
        store.create_run(Run(run_id="r1"))
        for items in ([1, 2, 3, 9], [4, 6, 5]):
            run = execute(documents, many, {"items": items}, store=store, run_id="r1")
            run.summary()
        assert run.lifecycle == "failed"
        assert done == [1, 2, 3, 9, 4, 6]
        luck.clear()
        again = execute(
            documents, many, {"items": [4, 6, 5]}, store=store, run_id="r1", start_at=run.cursor
        )
        assert again.summary().complete
        assert done == [1, 2, 3, 9, 4, 6, 5]
        assert values(again) == [4, 6, 5]


def test_d10_only_a_run_that_goes_on_asks_for_what_is_done() -> None:
    """A long run would go through its own log again for each scatter."""
    asked: list[str] = []

    class Asked(MemoryAcks):
        def load(self, scatter: str) -> Any:
            asked.append(scatter)
            return super().load(scatter)

    documents, many, state = scattered(double, [1])
    run = execute(documents, many, state, acks=Asked())
    assert run.summary().complete
    assert asked == []
    assert execute(documents, many, state, acks=run.acks, start_at="each").summary().complete
    assert asked == [f"{at('each')}#1"]


PROGRAM = """
    import os, signal, sys
    from sag_research.log import SQLiteEventStore
    from sag_research.model import Run
    from sag_research.runtime import (
        Body, Document, Documents, Gather, ItemExecution, NodeSpec, Scatter, Terminal, execute,
    )

    path, trace, die_at = sys.argv[1], sys.argv[2], int(sys.argv[3])

    def work(state, context):
        item = state["currentItem"]
        if item == die_at:
            os.kill(os.getpid(), signal.SIGKILL)
        with open(trace, "a", encoding="utf-8") as file:
            file.write(f"{item} ")
        return "success", 10 * item

    documents = Documents([NodeSpec("work", ("success",), work)])
    ports = ("all-success", "partial", "all-error", "empty")
    each = Scatter("u:each", "each", "items", Body(node="work"), dict.fromkeys(ports, "u:join"))
    join = Gather("u:join", "join", ("u:each",), "append",
                  dict.fromkeys(("success", "error", "empty"), "u:end"), "out")
    end = Terminal("u:end", "end", "completed")
    many = Document("u:many", "many", "1", {"main": "u:each"}, (each, join, end))
    with SQLiteEventStore(path) as store:
        if not store.has_run("r1"):
            store.create_run(Run(run_id="r1"))
        state = {"items": range(6)}
        execute(documents, many, state, store=store, run_id="r1", start_at="each").summary()
        print(state["out"])
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_d10_a_process_that_is_killed_goes_on_in_another(tmp_path: Path) -> None:
    program, trace = tmp_path / "program.py", tmp_path / "trace"
    program.write_text(textwrap.dedent(PROGRAM), encoding="utf-8")
    root = Path(__file__).resolve().parents[2]

    def start(die_at: int) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, str(program), str(tmp_path / "log"), str(trace), str(die_at)],
            capture_output=True, text=True, timeout=6 * PATIENCE, check=False,
            env={**os.environ, "PYTHONPATH": str(root)},
        )  # fmt: skip

    assert start(4).returncode == -signal.SIGKILL
    assert trace.read_text(encoding="utf-8") == "0 1 2 3 "
    second = start(-1)
    assert second.stdout.strip() == "[0, 10, 20, 30, 40, 50]", second.stderr
    assert trace.read_text(encoding="utf-8") == "0 1 2 3 4 5 "


# ---- reservoirs


def batched(items: Any, **how: Any) -> tuple[Execution, list[list[Any]]]:
    """A scatter of batches, and what its bodies were given."""
    given: list[list[Any]] = []

    def work(state: Any, context: object) -> Any:
        given.append(state["currentItem"])
        return "success", len(state["currentItem"])

    documents, many, state = scattered(work, items, execution=ReservoirExecution(**how))
    return execute(documents, many, state), given


def keyed(keys: str) -> list[dict[str, Any]]:
    return [{"key": key, "n": number} for number, key in enumerate(keys)]


async def astream(items: list[Any]) -> AsyncIterator[Any]:
    for item in items:
        await asyncio.sleep(0)
        yield item


@pytest.mark.parametrize("source", [list, iter, astream])
def test_d10_a_reservoir_gives_full_batches_by_key_and_the_rest_at_the_end(
    end: Way, source: Any
) -> None:
    run, given = batched(source(keyed("abaacbb")), key="key", capacity=2)
    assert end(run).complete
    assert [[one["n"] for one in batch] for batch in given] == [[0, 2], [1, 5], [3], [4], [6]]
    assert [(r.index, r.members) for r in run._frame.left[at("each")][1]] == [
        (0, (0, 2)), (1, (1, 5)), (3, (3,)), (4, (4,)), (6, (6,)),
    ]  # fmt: skip


def test_d10_items_without_a_key_are_of_one_kind() -> None:
    run, given = batched([1, 2, 3], key="key", capacity=2)
    assert run.summary().complete
    assert given == [[1, 2], [3]]


def test_d10_a_reservoir_that_stands_still_gives_what_it_has() -> None:
    given_at: list[int] = []
    items = keyed("aab")

    async def slow() -> AsyncIterator[Any]:
        yield items[0]
        for _ in range(2000):
            if given_at:
                break
            await asyncio.sleep(0.005)
        yield items[1]

    def work(state: Any, context: object) -> str:
        given_at.extend(one["n"] for one in state["currentItem"])
        return "success"

    how = ReservoirExecution(key="key", capacity=9, idle=0.02)
    documents, many, state = scattered(work, slow(), execution=how)
    run = execute(documents, many, state)
    assert awaited(run).complete
    assert [r.members for r in run._frame.left[at("each")][1]] == [(0,), (1,)]


def test_d10_a_plain_source_that_took_long_gives_what_there_was() -> None:
    now = [0.0]
    batches = Batches(ReservoirExecution(key="key", capacity=9, idle=5), clock=lambda: now[0])

    def slow() -> Iterator[Any]:
        first, second, third = keyed("aaa")
        yield first
        now[0] = 4
        yield second
        now[0] = 10
        yield third

    feed = Feed(Items(slow(), {}, 99), batches)
    assert [portion.members for portion in iter(feed.take, None)] == [(0, 1), (2,)]


def test_d10_a_reservoir_goes_on_without_what_is_done() -> None:
    luck = iter([0, 1])
    given: list[list[int]] = []

    def work(state: Any, context: object) -> str:
        if next(luck, 0):
            raise ValueError("no luck")
        given.append([one["n"] for one in state["currentItem"]])
        return "success"

    how = ReservoirExecution(key="key", capacity=2)
    documents, many, state = scattered(work, keyed("ababa"), execution=how)
    run = execute(documents, many, state)
    assert run.summary().lifecycle == "failed"
    assert given == [[0, 2]]
    assert run.resume().summary().complete
    assert given == [[0, 2], [1, 3], [4]]


# ---- bodies that are documents


def with_bodies(*names: str, dag: Any = None, **more: Any) -> tuple[Documents, Any]:
    """A scatter whose items name the document that is for them."""
    documents = Documents()
    for name in names:

        @documents.node(name, ports=("done", "error"))
        def work(state: Any, context: object, name: str = name) -> Any:
            state["output"] = (name, state["currentItem"]["n"])
            return "error" if state["currentItem"]["n"] < 0 else "done", state["output"]

        documents.register(doc(f"do-{name}", name, single(name, done="end", error="bad")))
    reference = dag or DagReference("dagIri", tuple(at(f"do-{name}") for name in names))
    each = scatter("each", Body(dag=reference), dict.fromkeys(ANY, "join"), **more)
    join = gather("join", ["each"], "map", mapping={"output": "out"})
    return documents, doc("many", "each", each, join)


def wanting(*pairs: tuple[str, int]) -> dict[str, Any]:
    return {"items": [{"dagIri": at(f"do-{name}"), "n": n} for name, n in pairs]}


@pytest.mark.parametrize("concurrency", [1, 3])
def test_d11_each_item_chooses_its_document(end: Way, concurrency: int) -> None:
    documents, many = with_bodies("a", "b", execution=ItemExecution(concurrency))
    state = wanting(("a", 1), ("b", 2), ("a", -3))
    run = execute(documents, many, state)
    assert end(run).complete
    assert state["out"] == [("a", 1), ("b", 2), ("a", -3)]
    assert [r.port for r in run._frame.left[at("each")][1]] == ["completed", "completed", "failed"]
    assert run.steps == 5  # scatter, a document's node for each item, gather


def test_d11_a_body_may_be_one_document(end: Way) -> None:
    documents, many = with_bodies("a", dag=at("do-a"))
    state = {"items": [{"n": 1}]}
    assert end(execute(documents, many, state)).complete
    assert state["out"] == [("a", 1)]  # type: ignore[comparison-overlap]


@pytest.mark.parametrize("named", ["urn:x:do-b", "urn:x:other", None, 3, ["urn:x:do-a"]])
def test_d11_what_is_no_candidate_is_refused(named: Any) -> None:
    documents, many = with_bodies("a", "b", dag=DagReference("dagIri", (at("do-a"),)))
    run = execute(documents, many, {"items": [{"dagIri": named, "n": 1}, {"n": 2}]})
    error = run.summary().error
    assert isinstance(error, RoutingError)
    assert "the candidates are 'urn:x:do-a'" in str(error)
    assert run.steps == 1


def test_d11_a_candidate_that_is_not_registered_is_refused_before() -> None:
    documents, many = with_bodies("a", dag=DagReference("dagIri", (at("do-z"),)))
    with pytest.raises(UsageError, match="no document 'urn:x:do-z'"):
        execute(documents, many, wanting())


@pytest.mark.parametrize("concurrency", [1, 4])
def test_d11_documents_of_items_share_the_budget(end: Way, concurrency: int) -> None:
    documents, count = counting(10**9)
    documents.register(count)
    how = ItemExecution(concurrency)
    each = scatter("each", Body(dag=at("count")), ANY, execution=how)
    run = execute(documents, doc("many", "each", each), {"items": range(8)}, max_steps=40)
    summary = end(run)
    assert isinstance(summary.error, BudgetExceededError)
    assert run.steps == 40


def test_d11_documents_of_items_share_cancellation_and_events(end: Way) -> None:
    token = CancelToken()
    events: list[Any] = []
    documents = Documents()

    @documents.node("a", ports=("done",))
    def a(state: Any, context: object) -> str:
        if state["currentItem"] == 3:
            token.cancel("enough")
        return "done"

    documents.register(doc("do-a", "a", single("a", done="end")))
    many = doc("many", "each", scatter("each", Body(dag=at("do-a")), ANY))
    run = execute(documents, many, {"items": range(9)}, cancel=token, on_graph=events.append)
    assert end(run).lifecycle == "cancelled"
    assert [e.graph_id for e in events if e.status == "started"] == [at("each"), *[at("a")] * 4]
    assert {e.loop_id for e in events} == {run.loop_id}
    began = [e.iteration for e in events if e.status == "started"]
    assert began == sorted(set(began))
    ended = sorted(e.iteration for e in events if e.status != "started")
    assert ended == began  # exactly one end for each beginning


@pytest.mark.parametrize("concurrency", [1, 4])
def test_d11_what_ran_at_the_same_time_is_written_down_with_its_cause(
    end: Way, concurrency: int
) -> None:
    documents, many = with_bodies("a", execution=ItemExecution(concurrency))
    with SQLiteEventStore(":memory:") as store:
        run = execute(documents, many, wanting(*[("a", n) for n in range(12)]), store=store)
        assert end(run).complete
        events = list(store.read(run.loop_id))
    began = {e.position: e for e in events if e.type == "graph.started"}
    ended = [e for e in events if e.type == "graph.completed"]
    assert len(began) == len(ended) == 14
    for event in ended:
        assert began[event.cause].payload["iteration"] == event.payload["iteration"]
        assert began[event.cause].payload["graph"] == event.payload["graph"]


@pytest.mark.parametrize("concurrency", [1, 4])
def test_d11_an_item_counts_as_done_after_its_graphs_are_written_down(
    end: Way, concurrency: int
) -> None:
    documents, many = with_bodies("a", execution=ItemExecution(concurrency))
    with SQLiteEventStore(":memory:") as store:
        run = execute(documents, many, wanting(*[("a", n) for n in range(9)]), store=store)
        assert end(run).complete
        types = [event.type for event in store.read(run.loop_id)]
    completed = acked = 0
    for type_ in types:
        completed += type_ == "graph.completed"
        acked += type_ == "scatter.acked"
        assert acked <= completed
    assert (acked, completed) == (9, 11)


def test_d11_a_document_of_an_item_may_scatter_itself(end: Way) -> None:
    documents = Documents([NodeSpec("work", ("success", "error"), double)])
    inner = scatter(
        "inner",
        Body(node="work"),
        dict.fromkeys(ANY, "join"),
        source="outer",
        item_key="currentItem",
    )
    join = gather("join", ["inner"], "append", target="output")
    documents.register(doc("sub", "inner", inner, join))
    each = scatter("each", Body(dag=at("sub")), dict.fromkeys(ANY, "up"), item_key="outer")
    up = gather("up", ["each"], "map", mapping={"output": "out"})
    state: dict[str, Any] = {"items": [[1, 2], [], [3]]}
    run = execute(documents, doc("many", "each", each, up), state)
    assert end(run).complete
    assert state["out"] == [[2, 4], [], [6]]


def test_d4_a_document_that_scatters_itself_without_end_comes_to_one(end: Way) -> None:
    documents = Documents()
    again = doc("again", "each", scatter("each", Body(dag=at("again")), ANY))
    summary = end(execute(documents.register(again), again, {"items": [1]}))
    assert summary.lifecycle == "failed"
    assert "32 deep" in str(summary.error)
    assert summary.steps == 33  # of a budget of 1,000


def test_d11_an_inner_failure_ends_the_run(end: Way) -> None:
    documents = Documents([NodeSpec("a", ("done",), lambda *_: 1 // 0)])
    documents.register(doc("do-a", "a", single("a", done="end")))
    run = execute(documents, doc("m", "each", scatter("each", Body(dag=at("do-a")), ANY)),
                  {"items": [1]})  # fmt: skip
    assert isinstance(end(run).error, ZeroDivisionError)


# ---- tools


@tool
def half(n: int) -> float:
    """Half of a number."""
    if n < 0:
        raise ValueError("n is negative")
    return n / 2


def test_d12_a_tool_is_a_document_of_one_node(end: Way) -> None:
    documents = Documents(tools=[half])
    each = scatter("each", Body(dag=DagReference("dagIri", ("tool:half",))),
                   dict.fromkeys(ANY, "join"))  # fmt: skip
    join = gather("join", ["each"], "map", mapping={"output": "out"})
    calls = [{"n": 3}, {"n": -1}, {"n": "x"}, {}]
    items = [{"dagIri": "tool:half", "id": f"c{n}", "arguments": call}
             for n, call in enumerate(calls)]  # fmt: skip
    state: dict[str, Any] = {"items": items}
    run = execute(documents, doc("many", "each", each, join), state)
    assert end(run).complete
    assert [(one["id"], one["status"]) for one in state["out"]] == [
        ("c0", "ok"), ("c1", "error"), ("c2", "error"), ("c3", "error"),
    ]  # fmt: skip
    assert state["out"][0]["observation"] == "1.5"
    assert "n is negative" in state["out"][1]["observation"]
    assert trace_of(run) == "partial"


def test_d12_a_tool_finds_its_call_where_each_scatter_puts_it() -> None:
    documents = Documents(tools=[half])
    body = Body(dag="tool:half")
    one = scatter("one", body, dict.fromkeys(ANY, "two"), item_key="first")
    two = scatter("two", body, dict.fromkeys(ANY, "join"), item_key="second", source="more")
    join = gather("join", ["one", "two"], "map", mapping={"output": "out"})
    state: dict[str, Any] = {"items": [{"arguments": {"n": 2}}], "more": [{"arguments": {"n": 8}}]}
    assert execute(documents, doc("d", "one", one, two, join), state).summary().complete
    assert [told["observation"] for told in state["out"]] == ["1.0", "4.0"]


def test_d12_a_tool_may_be_embedded() -> None:
    documents = Documents(tools=[half])
    routes = {"completed": at("end"), "failed": at("bad")}
    call = EmbeddedDag(
        at("call"), "call", "tool:half", routes, {"asked": "arguments"}, {"output": "told"}
    )
    state: dict[str, Any] = {"asked": {"n": 4}}
    assert execute(documents, doc("d", "call", call), state).summary().complete
    assert state["told"] == {"status": "ok", "observation": "2.0"}


# ---- random scatters


@settings(max_examples=40, deadline=None)
@given(
    count=st.integers(0, 12),
    concurrency=st.integers(1, 4),
    broken=st.lists(st.integers(0, 11), max_size=3),
    how=st.sampled_from([plainly, awaited]),
    is_async=st.booleans(),
)
def test_d10_random_failures_and_resumes_do_each_item_once(
    count: int, concurrency: int, broken: list[int], how: Way, is_async: bool
) -> None:
    done: list[int] = []
    left = [item for item in broken if item < count]

    def act(item: int) -> Any:
        if item in left:
            left.remove(item)
            raise ValueError(item)
        done.append(item)
        return "success", item

    def work(state: Any, context: object) -> Any:
        return act(state["currentItem"])

    async def awork(state: Any, context: object) -> Any:
        await asyncio.sleep(0)
        return act(state["currentItem"])

    documents, many, state = scattered(
        awork if is_async else work, list(range(count)), concurrency=concurrency
    )
    with Runtime() as rt:
        run = execute(documents, many, state, runtime=rt)
        for _ in range(len(broken) + 1):
            summary = how(run)
            if summary.complete:
                break
            assert summary.lifecycle == "failed"
            assert all(isinstance(error, ValueError) for error in summary.errors)
            run = run.resume()
    assert summary.complete
    assert sorted(done) == list(range(count))
    assert values(run) == list(range(count))


def test_d10_the_trace_of_a_scatter_is_one_node() -> None:
    documents, many, state = scattered(double, [1, 2, 3])
    assert trace(execute(documents, many, state)) == [
        ("each", "all-success"), ("join", "success"),
    ]  # fmt: skip


# ---- what is kept


def kept_by(*gathers: Any, reducer: str = "aggregate", **more: Any) -> list[Any]:
    """Scatter two items into gathers; returns the records."""

    def work(state: Any, context: object) -> Any:
        state["output"], state["aside"] = {"n": state["currentItem"]}, "a"
        return "success", 2 * state["currentItem"]

    documents = Documents([NodeSpec("work", ("success", "error"), work)])
    documents.reducer("mine", ports=tuple(ANY))(lambda records: "partial")
    documents.strategy("mine")(lambda *_: None)
    names = [one.name for one in gathers]
    each = scatter("each", Body(node="work"), dict.fromkeys(ANY, [*names, "end"][0]),
                   reducer=reducer)  # fmt: skip
    run = execute(documents, doc("many", "each", each, *gathers), {"items": [1, 2]}, **more)
    assert run.summary().complete
    return [
        (r.index, r.item, r.value, sorted(r.changes), len(r.marks))
        for r in run._frame.left[at("each")][1]
    ]


def test_d10_only_what_is_asked_for_is_kept() -> None:
    light = [(0, None, None, [], 1), (1, None, None, [], 1)]
    assert kept_by() == light
    assert kept_by(gather("g", ["each"], "discard")) == light
    whole = ["aside", "currentItem", "output"]
    for strategy in ("append", "partition", "collect"):
        found = kept_by(gather("g", ["each"], strategy, target="out"))
        assert found == [(0, 1, 2, [], 0), (1, 2, 4, [], 0)]
    found = kept_by(gather("g", ["each"], "map", mapping={"output.n": "out"}))
    assert found == [(0, None, None, ["output"], 1), (1, None, None, ["output"], 1)]
    both = [(0, 1, 2, whole, 0), (1, 2, 4, whole, 0)]
    assert kept_by(gather("g", ["each"], "custom", function="mine")) == both
    assert kept_by(reducer="mine") == both
    outputs = dict.fromkeys(("success", "error", "empty"), "h")
    two = gather("g", ["each"], "map", mapping={"output": "out"}, outputs=outputs)
    found = kept_by(two, gather("h", ["each"], "append", target="all"))
    assert found == [(0, 1, 2, ["output"], 0), (1, 2, 4, ["output"], 0)]


@pytest.mark.parametrize("logged", [False, True])
@pytest.mark.parametrize("batches", [False, True])
def test_d10_what_is_not_kept_is_known_again_by_its_digest(logged: bool, batches: bool) -> None:
    luck, ran = [1], list[Any]()

    def work(state: Any, context: object) -> str:
        item = state["currentItem"]
        if luck and 3 in (item if batches else [item]):
            raise ValueError(luck.pop())
        ran.append(item)
        return "success"

    documents = Documents([NodeSpec("work", ("success",), work)])
    how: Any = ReservoirExecution("key", 2) if batches else ItemExecution()
    many = doc("many", "each", scatter("each", Body(node="work"), ANY, execution=how))
    with SQLiteEventStore(":memory:") as store:
        acks = {"acks": LogAcks(store, "r1")} if logged else {}
        store.create_run(Run(run_id="r1"))
        run = execute(documents, many, {"items": [0, 1, 2, 3]}, **acks)
        assert run.summary().lifecycle == "failed"
        run.state["items"] = [0, 9, 2, 3]
        assert isinstance(run.resume().summary().error, CheckpointMismatchError)
        run.state["items"] = [0, 1, 2, 3]
        assert run.resume().summary().complete
    assert ran == ([[0, 1], [2, 3]] if batches else [0, 1, 2, 3])


def test_d10_a_long_stream_is_not_kept_in_memory() -> None:
    size, peak = 100_000, 0

    class Item:
        alive = 0

        def __init__(self) -> None:
            nonlocal peak
            Item.alive += 1
            peak = max(peak, Item.alive)
            self.text = "x" * size

        def __del__(self) -> None:
            Item.alive -= 1

    documents = Documents([NodeSpec("work", ("success",), lambda *_: "success")])
    how = ItemExecution(4)
    many = doc("many", "each", scatter("each", Body(node="work"), ANY, execution=how))
    items = (Item() for _ in range(500))
    assert execute(documents, many, {"items": items}).summary().complete
    assert peak <= 12  # those of four bodies, and what the interpreter has not let go of yet
