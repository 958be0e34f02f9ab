"""Several contexts in one run: one numbering of the asks; and what asks are caused by."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from sag_research.errors import BadPayloadError
from sag_research.llm import Context, Scripted, recorded_calls
from sag_research.log import CALL_TYPES, SQLiteEventStore
from sag_research.model import Event, Run


@pytest.fixture
def store() -> Iterator[SQLiteEventStore]:
    with SQLiteEventStore(":memory:") as opened:
        opened.create_run(Run(run_id="r1", goal="g"))
        yield opened


def never() -> None:
    raise AssertionError("a live call was made")


def answered(store: SQLiteEventStore, run: str = "r1") -> list[int]:
    """The numbers under which a run's answers stand, in order."""
    return [e.payload["occurrence"] for e in store.read(run, types=tuple(CALL_TYPES))]


# ---- numbers


def test_contexts_that_take_turns_number_their_asks_together(store: SQLiteEventStore) -> None:
    first, second = Context(store, "r1"), Context(store, "r1")
    live = [ctx.tool("t", lambda n=n: n) for n, ctx in enumerate([first, second] * 3)]
    assert answered(store) == [0, 1, 2, 3, 4, 5]
    replay = Context(store, "r1", mode="replay")
    assert [replay.tool("t", never) for _ in range(6)] == live


def test_contexts_at_once_number_their_asks_together(store: SQLiteEventStore) -> None:
    """All calls are under way before the first one ends."""
    together, times = threading.Barrier(4), 20

    def work(ctx: Context) -> None:
        for _ in range(times):
            ctx.tool("t", lambda: together.wait(20) and None)

    threads = [threading.Thread(target=work, args=(Context(store, "r1"),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(answered(store)) == list(range(4 * times))
    requests = store.read("r1", types=["tool.requested"])
    assert sorted(e.payload["occurrence"] for e in requests) == list(range(4 * times))


def test_an_answer_from_elsewhere_meanwhile_keeps_its_number(tmp_path: Path) -> None:
    """Another process asks the same, and is faster; here it is another store on the file."""
    path = tmp_path / "log.sqlite"
    with SQLiteEventStore(path) as store, closing(SQLiteEventStore(path)) as elsewhere:
        store.create_run(Run(run_id="r1"))
        mine, theirs = Context(store, "r1"), Context(elsewhere, "r1")

        def slow() -> str:
            assert theirs.tool("t", lambda: "theirs") == "theirs"
            return "mine"

        assert mine.tool("t", slow) == "mine"
        assert theirs.tool("t", lambda: "theirs again") == "theirs again"
        assert mine.tool("t", lambda: "mine again") == "mine again"
        assert answered(store) == [0, 1, 2, 3]
        assert [call.status for call in recorded_calls(store, "r1")] == ["ok"] * 4
        replay = Context(store, "r1", mode="replay")
        said = [replay.tool("t", never) for _ in range(4)]
        assert said == ["theirs", "mine", "theirs again", "mine again"]


def test_numbers_are_kept_apart_by_run_and_file(store: SQLiteEventStore) -> None:
    with SQLiteEventStore(":memory:") as other:
        for log, run in ((store, "r2"), (other, "r1")):
            log.create_run(Run(run_id=run))
        for log, run in ((store, "r1"), (store, "r2"), (other, "r1")):
            Context(log, run).now()
            assert answered(log, run) == [0]


def test_who_asks_from_the_beginning_numbers_from_the_beginning(store: SQLiteEventStore) -> None:
    recording = Context(store, "r1")
    live = [recording.uuid() for _ in range(3)]
    again = Context(store, "r1", mode="reuse")
    assert [again.uuid(), again.uuid()] == live[:2]
    assert recording.uuid() not in live
    assert answered(store) == [0, 1, 2, 0, 1, 3]


def test_an_ask_without_an_answer_gives_its_number_to_the_other(store: SQLiteEventStore) -> None:
    first, second = Context(store, "r1"), Context(store, "r1")

    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        first.tool("t", interrupted)
    second.tool("t", lambda: 1)
    first.tool("t", lambda: 2)
    entered = [
        e.payload["occurrence"]
        for e in store.read("r1", types=["tool.responded", "tool.failed"])
        if "unanswered" not in e.payload
    ]
    assert entered == [0, 1]


# ---- causes


def test_calls_and_effects_are_caused_by_the_event_that_is_answered(
    store: SQLiteEventStore, tmp_path: Path
) -> None:
    (tmp_path / "file").write_bytes(b"x")
    store.append(Event(run_id="r1", type="question.asked"))
    ctx = Context(store, "r1", model=Scripted("abcd"), clock=lambda: 1.0)

    async def awaited(view: Context) -> None:
        await view.allm(None, "q")
        await view.atool("t", answer)
        assert [chunk.text async for chunk in view.astream(None, "q")]

    async def answer() -> int:
        return 1

    with closing(ctx.caused_by(2)) as view:
        view.llm(None, "q")
        list(view.stream(None, "q"))
        view.tool("t", lambda: 1)
        asyncio.run(awaited(view))
        for effect in (view.now, view.uuid, view.random, view.rng, lambda: view.env("HOME")):
            effect()
        view.read_file(tmp_path / "file")
    asked = ("llm.requested", "tool.requested", "effect.recorded")
    assert Counter(e.cause for e in store.read("r1", types=asked)) == {2: 12}
    assert (ctx.live, ctx.cause, view.cause) == (view.live, None, 2) == (12, None, 2)


def test_a_cause_given_to_a_call_goes_first(store: SQLiteEventStore) -> None:
    ctx = Context(store, "r1", cause=1)
    ctx.now()
    ctx.tool("t", lambda: 1, cause=2)
    ctx.caused_by(None).now()
    causes = [e.cause for e in store.read("r1", lo=2)]
    assert causes == [1, 2, 3, None]


def test_a_reused_answer_is_caused_by_what_asks_now(store: SQLiteEventStore) -> None:
    Context(store, "r1", clock=lambda: 5.0).now()
    again = Context(store, "r1", mode="reuse").caused_by(1)
    assert again.now() == 5.0
    assert [(e.type, e.cause) for e in store.read("r1", lo=3)] == [("call.reused", 1)]


@pytest.mark.parametrize("cause", [0, 99, "1"])
def test_a_cause_that_is_no_earlier_position_is_refused(
    store: SQLiteEventStore, cause: Any
) -> None:
    ctx = Context(store, "r1").caused_by(cause)
    with pytest.raises(BadPayloadError, match="cause"):
        ctx.tool("t", never)
    assert store.head("r1").position == 1
