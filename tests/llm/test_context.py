"""Recorded calls: modes, occurrences, forks, failures, streams, parallel asks, effects."""

from __future__ import annotations

import asyncio
import gc
import random
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sag_research.errors import BadPayloadError, MissingDataError, RunNotFoundError, UsageError
from sag_research.llm import (
    Chunk,
    Context,
    CutStream,
    Identity,
    MalformedReply,
    Message,
    ModelError,
    RateLimited,
    RecordedFailure,
    ReplayMiss,
    Reply,
    Request,
    Scripted,
    ToolCall,
    read_request,
    recorded_calls,
)
from sag_research.llm._asking import arguments_of
from sag_research.llm._errors import revive_error
from sag_research.llm._flights import Flight
from sag_research.log import SQLiteEventStore
from sag_research.model import Event, Run, Usage


@pytest.fixture
def store() -> Iterator[SQLiteEventStore]:
    with SQLiteEventStore(":memory:") as opened:
        opened.create_run(Run(run_id="r1", goal="g"))
        yield opened


def types(store: SQLiteEventStore, run: str = "r1") -> list[str]:
    return [event.type for event in store.read(run)]


def never(*_: Any, **__: Any) -> Any:
    raise AssertionError("a live call was made")


class Forbidden:
    """A model that may be named and never asked."""

    def identity(self) -> Identity:
        return Scripted([]).identity()

    complete = stream = never


def texts(ctx: Context, model: Any, question: str, times: int) -> list[str | None]:
    return [ctx.llm(model, question).text for _ in range(times)]


# ---- what is written


def test_a_live_call_is_a_request_and_its_answer(store: SQLiteEventStore) -> None:
    Context(store, "r1").llm(Scripted(["4"]), "2 + 2?", cause=1)
    created, asked, answer = store.read("r1")
    assert [asked.type, answer.type] == ["llm.requested", "llm.responded"]
    assert (asked.cause, answer.cause) == (created.position, asked.position)
    assert asked.payload["key"] == answer.payload["key"]
    assert len(asked.payload["key"]) == 64
    assert asked.payload["occurrence"] == answer.payload["occurrence"] == 0
    assert asked.payload["provider"] == "scripted"
    assert answer.payload["text"] == "4"
    assert store.verify().ok


def test_a_hit_is_one_small_event(store: SQLiteEventStore) -> None:
    Context(store, "r1").llm(Scripted(["4"]), "2 + 2?")
    Context(store, "r1", mode="reuse").llm(Forbidden(), "2 + 2?")
    *_, answer, hit = store.read("r1")
    assert hit.type == "call.reused"
    assert hit.payload == {
        "run": "r1",
        "position": answer.position,
        "key": answer.payload["key"],
        "occurrence": 0,
    }


def test_the_request_is_read_back_whole(store: SQLiteEventStore) -> None:
    asked = Request(
        system="s" * 700,
        messages=(
            Message(role="user", content="q" * 900),
            Message(role="assistant", calls=(ToolCall(name="t", arguments={"a": [1, None]}),)),
        ),
        parameters={"temperature": 0.7, "seed": 3},
        output_schema={"type": "object"},
        choices=("a", "b"),
    )
    Context(store, "r1").llm(Scripted(["4"]), asked)
    event = next(store.read("r1", types=["llm.requested"]))
    assert read_request(store, event) == asked


@pytest.mark.parametrize(
    "reply",
    [
        Reply(text=None),
        Reply(text=""),
        Reply(text="x" * 2_000, finish="length", model="m-1", attempts=3),
        Reply(calls=(ToolCall(id="1", name="t", arguments="{no json", signature="c2ln"),)),
        Reply(text="a", usage=Usage(tokens_in=1, tokens_out=None, cost_usd=0.25)),
        Reply(text="a", scores={"a": 0.75, "b": 0.25}),
    ],
)
def test_any_answer_comes_back_as_it_was(store: SQLiteEventStore, reply: Reply) -> None:
    assert Context(store, "r1").llm(Scripted([reply]), "?") == reply
    assert Context(store, "r1", mode="replay").llm(Forbidden(), "?") == reply


def test_half_characters_are_mended_before_anybody_sees_them(store: SQLiteEventStore) -> None:
    model = Scripted(["half \ud800"])
    live = Context(store, "r1").llm(model, "ask \udfff")
    assert live.text == "half \N{REPLACEMENT CHARACTER}"
    assert model.requests[0].messages[0].content == "ask \N{REPLACEMENT CHARACTER}"
    assert Context(store, "r1", mode="replay").llm(Forbidden(), "ask \udfff") == live


# ---- keys


QUESTION = {"messages": [{"role": "user", "content": "q"}], "parameters": {"seed": 1}}


@pytest.mark.parametrize(
    "other",
    [
        {**QUESTION, "parameters": {"seed": 2}},
        {**QUESTION, "parameters": {}},
        {**QUESTION, "system": "s"},
        {**QUESTION, "messages": [{"role": "user", "content": "Q"}]},
        {**QUESTION, "messages": [{"role": "assistant", "content": "q"}]},
        {**QUESTION, "messages": QUESTION["messages"] * 2},
        {**QUESTION, "tools": [{"name": "t", "version": "1"}]},
        {**QUESTION, "tools": [{"name": "t", "version": "2"}]},
        {**QUESTION, "output_schema": {"type": "string"}},
        {**QUESTION, "choices": ["a"]},
    ],
)
def test_whatever_changes_the_question_changes_the_key(
    store: SQLiteEventStore, other: dict[str, Any]
) -> None:
    Context(store, "r1").llm(Scripted(["a"]), QUESTION)
    ctx = Context(store, "r1", mode="replay")
    with pytest.raises(ReplayMiss):
        ctx.llm(Forbidden(), other)
    assert ctx.llm(Forbidden(), QUESTION).text == "a"


@pytest.mark.parametrize("field", ["provider", "model", "base_url"])
def test_who_is_asked_is_part_of_the_key(store: SQLiteEventStore, field: str) -> None:
    identity = Identity(provider="scripted", model="script")
    Context(store, "r1").llm(Scripted(["a"]), "q")
    ctx = Context(store, "r1", mode="replay")
    changed = {"provider": "scripted", "model": "script"} | {field: "other"}
    with pytest.raises(ReplayMiss):
        ctx.llm(Identity(**changed), "q")
    assert ctx.llm(identity, "q").text == "a"


def test_one_number_in_two_spellings_is_one_question(store: SQLiteEventStore) -> None:
    Context(store, "r1").llm(Scripted(["a"]), {**QUESTION, "parameters": {"temperature": 1}})
    asked = {**QUESTION, "parameters": {"temperature": 1.0}}
    assert Context(store, "r1", mode="replay").llm(Forbidden(), asked).text == "a"


def test_order_of_parameters_does_not_matter(store: SQLiteEventStore) -> None:
    Context(store, "r1").llm(Scripted(["a"]), {**QUESTION, "parameters": {"a": 1, "b": 2}})
    asked = {**QUESTION, "parameters": {"b": 2, "a": 1}}
    assert Context(store, "r1", mode="replay").llm(Forbidden(), asked).text == "a"


# ---- modes and occurrences


def test_the_kth_ask_gets_the_kth_answer(store: SQLiteEventStore) -> None:
    assert texts(Context(store, "r1"), Scripted("abc"), "q", 3) == ["a", "b", "c"]
    for _ in range(2):  # a replay does not change what the next one finds
        ctx = Context(store, "r1", mode="replay")
        assert texts(ctx, Forbidden(), "q", 3) == ["a", "b", "c"]
        with pytest.raises(ReplayMiss, match="recorded 3 times, and this is time 4"):
            ctx.llm(Forbidden(), "q")
        assert (ctx.live, ctx.reused) == (0, 3)


def test_a_second_recording_carries_on(store: SQLiteEventStore) -> None:
    texts(Context(store, "r1"), Scripted("ab"), "q", 2)
    texts(Context(store, "r1"), Scripted("cde"), "q", 3)
    assert texts(Context(store, "r1", mode="replay"), Forbidden(), "q", 5) == list("abcde")


def test_record_never_takes_a_recorded_answer(store: SQLiteEventStore) -> None:
    texts(Context(store, "r1"), Scripted("a"), "q", 1)
    assert texts(Context(store, "r1", resume=False), Scripted("b"), "q", 1) == ["b"]


def test_reuse_pays_only_for_what_is_new(store: SQLiteEventStore) -> None:
    texts(Context(store, "r1"), Scripted("ab"), "q", 2)
    ctx = Context(store, "r1", mode="reuse")
    assert texts(ctx, Scripted("c"), "q", 3) == ["a", "b", "c"]
    assert (ctx.live, ctx.reused) == (1, 2)
    assert texts(Context(store, "r1", mode="replay"), Forbidden(), "q", 3) == ["a", "b", "c"]


def test_refresh_takes_the_place_of_what_was_recorded(store: SQLiteEventStore) -> None:
    texts(Context(store, "r1"), Scripted("abc"), "q", 3)
    assert texts(Context(store, "r1", mode="refresh"), Scripted("AB"), "q", 2) == ["A", "B"]
    assert texts(Context(store, "r1", mode="replay"), Forbidden(), "q", 3) == ["A", "B", "c"]


def test_off_writes_and_finds_nothing(store: SQLiteEventStore) -> None:
    texts(Context(store, "r1"), Scripted("a"), "q", 1)
    before = types(store)
    ctx = Context(store, None, mode="off")
    assert texts(ctx, Scripted("xy"), "q", 2) == ["x", "y"]
    assert ctx.tool("t", lambda: (1, 2)) == [1, 2]
    assert ctx.read_file(__file__) == Path(__file__).read_bytes()
    with pytest.raises(ValueError, match="no"):
        ctx.tool("t", lambda: int("no"))
    assert types(store) == before


def test_unfinished_calls_are_asked_again(store: SQLiteEventStore) -> None:
    """A process that died between request and answer left no answer to find."""
    Context(store, "r1").llm(Scripted(["a"]), "q")
    asked = next(store.read("r1", types=["llm.requested"]))
    store.append(
        Event(run_id="r1", type="llm.requested", payload=asked.payload | {"occurrence": 1})
    )
    assert texts(Context(store, "r1", mode="reuse"), Scripted("b"), "q", 2) == ["a", "b"]


def test_bad_combinations_are_refused(store: SQLiteEventStore) -> None:
    with pytest.raises(UsageError, match="mode"):
        Context(store, "r1", mode="sometimes")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="scope"):
        Context(store, "r1", scope="world")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="needs a run"):
        Context(store, None, mode="record")
    with pytest.raises(UsageError, match="nothing to replay"):
        Context(store, None, mode="replay")
    with pytest.raises(RunNotFoundError):
        Context(store, "r9")
    with pytest.raises(UsageError, match="no model"):
        Context(store, "r1").llm(None, "q")
    with pytest.raises(UsageError, match="only its identity"):
        Context(store, "r1").llm(Identity(provider="p", model="m"), "q")
    with pytest.raises(UsageError, match="cannot be asked"):
        Context(store, "r1").llm(Scripted([]), [{"role": "wizard"}])


# ---- replay


def test_no_model_can_be_reached_in_a_replay(store: SQLiteEventStore) -> None:
    model = Scripted("ab")
    texts(Context(store, "r1"), model, "q", 1)
    ctx = Context(store, "r1", model=model, mode="replay")
    assert ctx.llm(None, "q").text == "a"
    assert ctx.llm.__self__ is ctx
    seen, todo = set(), [ctx]
    while todo:
        thing = todo.pop()
        if id(thing) not in seen and not isinstance(thing, (type, type(gc))):
            seen.add(id(thing))
            assert not isinstance(thing, Scripted)
            todo += gc.get_referents(thing) if not callable(thing) else []
    assert len(seen) > 10


def test_a_miss_names_the_question_and_the_nearest_one(store: SQLiteEventStore) -> None:
    ctx = Context(store, "r1")
    for question in ("how many apples are there", "what colour is the sky", "apples or pears"):
        ctx.llm(Scripted(["x"]), question)
    with pytest.raises(ReplayMiss) as caught:
        Context(store, "r1", mode="replay").llm(Forbidden(), "what colour was the sky")
    miss = caught.value
    assert miss.question["messages"][0]["content"] == "what colour was the sky"
    assert miss.nearest is not None
    assert miss.nearest["messages"][0]["content"] == "what colour is the sky"
    assert miss.position == 4
    assert "what colour is" in str(miss)
    assert "what colour was" in str(miss)
    assert [line[:1] for line in miss.diff.splitlines() if "colour" in line] == ["-", "+"]


def test_a_miss_in_an_empty_run(store: SQLiteEventStore) -> None:
    with pytest.raises(ReplayMiss, match="no recorded tool call"):
        Context(store, "r1", mode="replay").tool("t", never)


def test_a_replay_may_write_to_a_run_of_its_own(store: SQLiteEventStore) -> None:
    texts(Context(store, "r1"), Scripted("ab"), "q", 2)
    before = store.head("r1")
    store.create_run(Run(run_id="copy"))
    ctx = Context(store, "copy", source="r1", mode="replay")
    assert texts(ctx, Forbidden(), "q", 2) == ["a", "b"]
    assert store.head("r1") == before
    assert types(store, "copy") == ["run.created", "call.reused", "call.reused"]
    # and the copy can be replayed by itself
    assert texts(Context(store, "copy", mode="replay"), Forbidden(), "q", 2) == ["a", "b"]


def test_a_replay_may_write_nothing(tmp_path: Path) -> None:
    with SQLiteEventStore(tmp_path / "log.sqlite") as writer:
        writer.create_run(Run(run_id="r1"))
        texts(Context(writer, "r1"), Scripted("ab"), "q", 2)
    with SQLiteEventStore(tmp_path / "log.sqlite", read_only=True) as reader:
        ctx = Context(reader, None, source="r1", mode="replay")
        assert texts(ctx, Forbidden(), "q", 2) == ["a", "b"]


def test_nothing_is_built_when_the_file_is_opened(tmp_path: Path) -> None:
    path = tmp_path / "log.sqlite"
    with SQLiteEventStore(path) as store:
        store.create_run(Run(run_id="r1"))
        texts(Context(store, "r1"), Scripted("ab"), "q", 2)
    with SQLiteEventStore(path) as store:
        assert texts(Context(store, "r1", mode="replay"), Forbidden(), "q", 2) == ["a", "b"]


# ---- forks, families, other runs


def forked(store: SQLiteEventStore) -> None:
    """A parent that asked a, b and, after the cut, c."""
    texts(Context(store, "r1"), Scripted("ab"), "q", 2)
    store.fork("r1", at=store.head("r1").position, run_id="child")
    texts(Context(store, "r1"), Scripted("c"), "q", 1)


def test_a_fork_sees_answers_before_the_cut_and_none_after(store: SQLiteEventStore) -> None:
    forked(store)
    ctx = Context(store, "child", mode="reuse")
    assert texts(ctx, Scripted("x"), "q", 3) == ["a", "b", "x"]
    assert (ctx.live, ctx.reused) == (1, 2)
    assert texts(Context(store, "r1", mode="replay"), Forbidden(), "q", 3) == ["a", "b", "c"]
    with pytest.raises(ReplayMiss):
        texts(Context(store, "child", mode="replay"), Forbidden(), "q", 4)


def test_the_family_shares_later_answers_when_asked_to(store: SQLiteEventStore) -> None:
    forked(store)
    ctx = Context(store, "child", mode="reuse", scope="family")
    assert texts(ctx, Forbidden(), "q", 3) == ["a", "b", "c"]
    # what was taken from outside is now the child's own history
    assert texts(Context(store, "child", mode="replay"), Forbidden(), "q", 3) == ["a", "b", "c"]


def test_a_fork_that_carries_on_counts_what_was_asked_before(store: SQLiteEventStore) -> None:
    forked(store)
    ctx = Context(store, "child", mode="reuse", resume=True)
    assert texts(ctx, Scripted("x"), "q", 1) == ["x"]
    assert texts(Context(store, "child", mode="replay"), Forbidden(), "q", 3) == ["a", "b", "x"]
    family = Context(store, "child", mode="reuse", scope="family", resume=True)
    assert texts(family, Scripted("y"), "q", 1) == ["y"], "the child itself asked a third time"


def test_a_fork_in_the_middle_of_a_call_has_no_answer(store: SQLiteEventStore) -> None:
    Context(store, "r1").llm(Scripted(["a"]), "q")
    store.fork("r1", at=2, run_id="child")
    assert types(store, "child")[:2] == ["run.created", "llm.requested"]
    assert texts(Context(store, "child", mode="reuse"), Scripted("x"), "q", 1) == ["x"]


def test_forks_of_forks(store: SQLiteEventStore) -> None:
    parent = "r1"
    for depth in range(8):
        texts(Context(store, parent), Scripted(str(depth)), "q", 1)
        store.fork(parent, at=store.head(parent).position, run_id=f"f{depth}")
        texts(Context(store, parent), Scripted("late"), "q", 1)
        parent = f"f{depth}"
    expected = [str(depth) for depth in range(8)]
    assert texts(Context(store, parent, mode="replay"), Forbidden(), "q", 8) == expected
    with pytest.raises(ReplayMiss):
        texts(Context(store, parent, mode="replay"), Forbidden(), "q", 9)


def test_strangers_share_only_when_the_store_is_the_scope(store: SQLiteEventStore) -> None:
    texts(Context(store, "r1"), Scripted("a"), "q", 1)
    store.create_run(Run(run_id="r2"))
    store.create_run(Run(run_id="r3"))
    assert texts(Context(store, "r3", mode="reuse", scope="family"), Scripted("x"), "q", 1) == ["x"]
    shared = Context(store, "r2", mode="reuse", scope="store")
    assert texts(shared, Scripted("y"), "q", 2) == ["a", "y"]


def test_failures_and_effects_stay_in_the_lineage(store: SQLiteEventStore) -> None:
    ctx = Context(store, "r1", clock=lambda: 1.0)
    ctx.now()
    with pytest.raises(RateLimited):
        ctx.llm(Scripted([RateLimited("busy")]), "q")
    store.create_run(Run(run_id="r2"))
    other = Context(store, "r2", mode="reuse", scope="store", clock=lambda: 2.0)
    assert other.now() == 2.0
    assert other.llm(Scripted(["fine"]), "q").text == "fine"


# ---- failures


def test_a_failed_call_fails_again_in_the_same_class(store: SQLiteEventStore) -> None:
    error = RateLimited("busy", "HTTP 429", "wait", status=429, retry_after=3.0)
    with pytest.raises(RateLimited):
        Context(store, "r1").llm(Scripted([error]), "q")
    assert types(store)[1:] == ["llm.requested", "llm.failed"]
    with pytest.raises(RateLimited) as caught:
        Context(store, "r1", mode="replay").llm(Forbidden(), "q")
    again = caught.value
    assert str(again) == str(error)
    assert (again.status, again.retry_after) == (429, 3.0)
    assert again.__notes__ == ["recorded as event 3 of run 'r1'"]


def test_an_ask_without_an_answer_leaves_no_gap(store: SQLiteEventStore) -> None:
    ctx = Context(store, "r1")
    for error in (UsageError("no API key"), MissingDataError("no package")):
        with pytest.raises(type(error)):
            ctx.llm(Scripted([error]), "q")
    with pytest.raises(BadPayloadError):
        ctx.tool("t", never, {"a": float("inf")})
    assert ctx.llm(Scripted(["fine"]), "q").text == "fine"
    replay = Context(store, "r1", mode="replay")
    with pytest.raises(ReplayMiss):
        replay.llm(Forbidden(), "another")
    assert replay.llm(Forbidden(), "q").text == "fine"
    assert texts(Context(store, "r1"), Scripted(["second"]), "q", 1) == ["second"]
    assert texts(Context(store, "r1", mode="replay"), Forbidden(), "q", 2) == ["fine", "second"]


def test_failures_can_be_asked_again(store: SQLiteEventStore) -> None:
    with pytest.raises(RateLimited):
        Context(store, "r1").llm(Scripted([RateLimited("busy")]), "q")
    with pytest.raises(RateLimited):
        Context(store, "r1", mode="reuse").llm(Forbidden(), "q")
    again = Context(store, "r1", mode="reuse", retry_failures=True)
    assert again.llm(Scripted(["fine"]), "q").text == "fine"
    assert Context(store, "r1", mode="replay").llm(Forbidden(), "q").text == "fine"


@pytest.mark.parametrize("error", [UsageError("no API key"), MissingDataError("no package")])
def test_a_model_that_could_not_be_asked_gave_no_answer(
    store: SQLiteEventStore, error: Exception
) -> None:
    with pytest.raises(type(error)):
        Context(store, "r1", mode="reuse").llm(Scripted([error]), "q")
    assert types(store)[-1] == "llm.failed"
    assert recorded_calls(store, "r1")[0].status == "unanswered"
    assert Context(store, "r1", mode="reuse").llm(Scripted(["fine"]), "q").text == "fine"


class OddError(KeyError):
    """An error of the user's own."""


class StrangeError(Exception):
    """One without a known class above it."""


def raising(error: BaseException) -> Callable[[], Any]:
    def tool() -> None:
        raise error

    return tool


@pytest.mark.parametrize(
    ("error", "again"),
    [
        (ValueError("bad value"), ValueError),
        (KeyError("k"), KeyError),
        (FileNotFoundError(2, "No such file or directory", "x"), FileNotFoundError),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"), UnicodeError),
        (ZeroDivisionError(), ZeroDivisionError),
        (BadPayloadError("$.a", "no JSON"), BadPayloadError),
        (OddError("odd"), KeyError),
        (StrangeError("strange"), RecordedFailure),
        (ValueError("x" * 100_000), ValueError),
        (ValueError("half \ud800"), ValueError),
    ],
)
def test_errors_of_tools_come_back(
    store: SQLiteEventStore, error: Exception, again: type[Exception]
) -> None:
    with pytest.raises(type(error)) as live:
        Context(store, "r1").tool("t", raising(error))
    assert live.value is error
    with pytest.raises(again) as caught:
        Context(store, "r1", mode="replay").tool("t", never)
    assert type(caught.value) is again
    assert str(caught.value)[:500] == str(error)[:500].replace(
        "\ud800", "\N{REPLACEMENT CHARACTER}"
    )


def test_known_errors_come_back_as_themselves(store: SQLiteEventStore) -> None:
    with pytest.raises(StrangeError):
        Context(store, "r1").tool("t", raising(StrangeError("strange")))
    ctx = Context(store, "r1", mode="replay", known_errors=[StrangeError])
    with pytest.raises(StrangeError, match="strange"):
        ctx.tool("t", never)


def test_a_hostile_log_chooses_no_class(store: SQLiteEventStore) -> None:
    """Names in a log are looked up among errors only: nothing is imported or called."""
    with pytest.raises(ValueError, match="x"):
        Context(store, "r1").tool("t", raising(ValueError("x")))
    failed = next(store.read("r1", types=["tool.failed"]))
    for name in ("eval", "SystemExit", "os.system", "Exception", "print", 7, None):
        about = failed.payload["error"] | {"classes": [name], "args": ["1"]}
        assert type(revive_error(about)) is RecordedFailure


def test_an_interrupt_is_noted_and_asked_again(store: SQLiteEventStore) -> None:
    with pytest.raises(KeyboardInterrupt):
        Context(store, "r1").tool("t", raising(KeyboardInterrupt()))
    assert types(store)[-1] == "tool.failed"
    assert Context(store, "r1", mode="reuse").tool("t", lambda: 7) == 7


def test_what_cannot_be_recorded_is_refused_and_noted(store: SQLiteEventStore) -> None:
    ctx = Context(store, "r1")
    with pytest.raises(BadPayloadError, match="value"):
        ctx.tool("t", lambda: {"value": float("nan")})
    assert types(store)[-1] == "tool.failed"
    with pytest.raises(BadPayloadError):
        ctx.tool("t", never, {"a": object()})


# ---- tools


def test_tool_calls_are_recorded_and_replayed(store: SQLiteEventStore) -> None:
    def add(a: int, b: int) -> dict[str, Any]:
        return {"sum": a + b, "pair": (a, b), "none": None}

    live = Context(store, "r1").tool("add", add, {"a": 1, "b": 2}, version="1")
    assert live == {"sum": 3, "pair": [1, 2], "none": None}
    assert types(store)[1:] == ["tool.requested", "tool.responded"]
    again = Context(store, "r1", mode="replay")
    assert again.tool("add", never, {"b": 2, "a": 1}, version="1") == live


@pytest.mark.parametrize(
    ("name", "arguments", "version"), [("sub", 1, "1"), ("add", 2, "1"), ("add", 1, "2")]
)
def test_name_arguments_and_version_are_the_tools_key(
    store: SQLiteEventStore, name: str, arguments: int, version: str
) -> None:
    Context(store, "r1").tool("add", lambda a: a, {"a": 1}, version="1")
    with pytest.raises(ReplayMiss, match="nearest"):
        Context(store, "r1", mode="replay").tool(name, never, {"a": arguments}, version=version)


def test_a_loop_over_a_result_goes_the_same_way(store: SQLiteEventStore) -> None:
    live = Context(store, "r1").tool("t", lambda: {"z": 1, "a": {"y": 2, "b": 3}})
    again = Context(store, "r1", mode="replay").tool("t", never)
    assert (
        [list(live), list(live["a"])] == [list(again), list(again["a"])] == [["a", "z"], ["b", "y"]]
    )


@pytest.mark.parametrize("value", [None, "", [], {}, 0, False, "\x00", 1e300, 2**70])
def test_empty_and_odd_results_are_hits(store: SQLiteEventStore, value: Any) -> None:
    live = Context(store, "r1").tool("t", lambda: value)
    again = Context(store, "r1", mode="replay").tool("t", never)
    assert (again, type(again)) == (live, type(live))


def test_a_tool_may_call_itself(store: SQLiteEventStore) -> None:
    ctx = Context(store, "r1", mode="reuse")
    depth = iter(range(3))

    def again() -> int:
        return 0 if next(depth) == 2 else 1 + ctx.tool("again", again)

    assert ctx.tool("again", again) == 2


# ---- streams


def test_streams_are_replayed_chunk_by_chunk(store: SQLiteEventStore) -> None:
    model = Scripted([Reply(text="one two  three", finish="stop", usage=Usage(tokens_in=3))])
    live = list(Context(store, "r1").stream(model, "q"))
    assert [chunk.text for chunk in live] == ["one ", "two  ", "three", ""]
    assert list(Context(store, "r1", mode="replay").stream(Forbidden(), "q")) == live
    assert live[-1].finish == "stop"


def test_streamed_and_whole_answers_stand_for_each_other(store: SQLiteEventStore) -> None:
    ctx = Context(store, "r1")
    list(ctx.stream(Scripted(["a b"]), "streamed"))
    ctx.llm(Scripted(["c d"]), "whole")
    replay = Context(store, "r1", mode="replay")
    assert replay.llm(Forbidden(), "streamed").text == "a b"
    assert [chunk.text for chunk in replay.stream(Forbidden(), "whole")] == ["c d", ""]


class Cutting:
    """Streams two chunks, then fails."""

    identity = Forbidden().identity
    complete = never

    def stream(self, request: Request) -> Iterator[Chunk]:
        yield Chunk(text="one ")
        yield Chunk(text="two")
        raise CutStream("the answer broke off")


def test_a_cut_stream_is_cut_again(store: SQLiteEventStore) -> None:
    for mode, model in (("record", Cutting()), ("replay", Forbidden())):
        came: list[str] = []
        stream = Context(store, "r1", mode=mode).stream(model, "q")  # type: ignore[arg-type]
        with pytest.raises(CutStream, match="broke off"):
            came.extend(chunk.text for chunk in stream)
        assert came == ["one ", "two"]
    assert types(store)[2] == "llm.failed"
    with pytest.raises(CutStream):
        Context(store, "r1", mode="replay").llm(Forbidden(), "q")


def test_a_stream_that_is_not_read_to_its_end(store: SQLiteEventStore) -> None:
    stream = Context(store, "r1").stream(Scripted(["one two three"]), "q")
    assert next(stream).text == "one "
    stream.close()
    assert types(store)[-1] == "llm.failed"
    replayed = Context(store, "r1", mode="replay").stream(Forbidden(), "q")
    assert next(replayed).text == "one "
    with pytest.raises(CutStream, match="not read to its end"):
        next(replayed)


# ---- parallel asks


class Slow:
    """Answers when released, and counts its calls."""

    def __init__(self, *answers: str | Exception) -> None:
        self.script, self.calls = Scripted(answers), 0
        self.entered, self.release = threading.Event(), threading.Event()
        self.counting = threading.Lock()

    def identity(self) -> Identity:
        return self.script.identity()

    def complete(self, request: Request) -> Reply:
        with self.counting:
            self.calls += 1
        self.entered.set()
        assert self.release.wait(10)
        return self.script.complete(request)

    stream = never


@pytest.fixture
def in_parallel(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Any]]:
    """Ask n times at once: the model answers when every ask is in the call or waits for it."""
    waiting: list[int] = []
    wait = Flight.wait

    def counted(flight: Flight) -> Event | None:
        waiting.append(1)
        return wait(flight)

    monkeypatch.setattr(Flight, "wait", counted)

    def run(ask: Callable[[], Any], model: Slow, n: int) -> list[Any]:
        results: list[Any] = [None] * n
        waiting.clear()

        def one(number: int) -> None:
            try:
                results[number] = ask()
            except ModelError as error:
                results[number] = type(error)

        threads = [threading.Thread(target=one, args=(number,)) for number in range(n)]
        for thread in threads:
            thread.start()
        until(lambda: len(waiting) + model.calls == n)
        model.release.set()
        for thread in threads:
            thread.join(10)
        return results

    return run


def until(condition: Callable[[], bool]) -> None:
    patience = threading.Event()
    for _ in range(2_000):
        if condition():
            return
        patience.wait(0.005)
    pytest.fail("it never came to that")


def test_parallel_asks_share_one_call(
    store: SQLiteEventStore, in_parallel: Callable[..., list[Any]]
) -> None:
    model, ctx = Slow("a"), Context(store, "r1", mode="reuse")
    assert in_parallel(lambda: ctx.llm(model, "q").text, model, 8) == ["a"] * 8
    assert (model.calls, ctx.live, ctx.reused) == (1, 1, 7)
    assert types(store).count("llm.requested") == 1
    assert types(store).count("call.reused") == 7
    # each was an ask of its own, so a replay finds eight
    replay = Context(store, "r1", mode="replay")
    assert texts(replay, Forbidden(), "q", 8) == ["a"] * 8
    with pytest.raises(ReplayMiss):
        replay.llm(Forbidden(), "q")


def test_parallel_asks_share_a_failure(
    store: SQLiteEventStore, in_parallel: Callable[..., list[Any]]
) -> None:
    model, ctx = Slow(RateLimited("busy")), Context(store, "r1", mode="reuse")
    assert in_parallel(lambda: ctx.llm(model, "q"), model, 4) == [RateLimited] * 4
    assert model.calls == 1


def test_samples_are_not_shared_unless_asked_for(
    store: SQLiteEventStore, in_parallel: Callable[..., list[Any]]
) -> None:
    model, ctx = Slow(*"abcd"), Context(store, "r1")
    assert sorted(in_parallel(lambda: ctx.llm(model, "q").text, model, 4)) == list("abcd")
    model, ctx = Slow("e"), Context(store, "r1", coalesce=True)
    assert in_parallel(lambda: ctx.llm(model, "q").text, model, 4) == list("eeee")
    model, ctx = Slow(*"fghi"), Context(store, "r1", mode="reuse", coalesce=False, resume=True)
    assert sorted(in_parallel(lambda: ctx.llm(model, "q").text, model, 4)) == list("fghi")


def test_those_who_wait_go_on_when_the_caller_is_interrupted(store: SQLiteEventStore) -> None:
    ctx = Context(store, "r1", mode="reuse")
    entered, release = threading.Event(), threading.Event()
    outcome: list[Any] = []

    def interrupted() -> None:
        entered.set()
        assert release.wait(10)
        raise KeyboardInterrupt

    def first() -> None:
        try:
            ctx.tool("t", interrupted)
        except KeyboardInterrupt:
            outcome.append("interrupted")

    leader = threading.Thread(target=first)
    leader.start()
    assert entered.wait(10)
    follower = threading.Thread(target=lambda: outcome.append(ctx.tool("t", lambda: 7)))
    follower.start()
    release.set()
    leader.join(10)
    follower.join(10)
    assert sorted(map(str, outcome)) == ["7", "interrupted"]


def test_many_threads_get_different_occurrences(store: SQLiteEventStore) -> None:
    ctx = Context(store, "r1")
    numbers = iter(range(1_000))
    results: list[int] = []
    threads = [
        threading.Thread(
            target=lambda: results.extend(ctx.tool("t", lambda: next(numbers)) for _ in range(25))
        )
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    replay = Context(store, "r1", mode="replay")
    assert sorted(results) == sorted(replay.tool("t", never) for _ in range(200))
    assert store.verify().ok


# ---- asynchronous twins


def test_asynchronous_calls(store: SQLiteEventStore) -> None:
    async def double(x: int) -> int:
        await asyncio.sleep(0)
        return 2 * x

    async def fail() -> None:
        raise ValueError("no")

    async def program(ctx: Context, model: Any, *tools: Any) -> list[Any]:
        seen = [(await ctx.allm(model, "q")).text, [c.text async for c in ctx.astream(model, "s")]]
        seen += [await ctx.atool("double", tools[0], {"x": 4}), await ctx.atool("sync", tools[1])]
        with pytest.raises(ValueError, match="no"):
            await ctx.atool("fail", tools[2])
        return seen

    with Context(store, "r1") as ctx:
        live = asyncio.run(program(ctx, Scripted(["a", "b c"]), double, lambda: 5, fail))
    assert live == ["a", ["b ", "c", ""], 8, 5]
    with Context(store, "r1", mode="replay") as ctx:
        assert asyncio.run(program(ctx, Forbidden(), never, never, never)) == live


def test_asynchronous_asks_share_one_call(store: SQLiteEventStore) -> None:
    calls = []

    async def slow(ctx: Context) -> int:
        calls.append(1)
        await asyncio.sleep(0.02)
        return int((await ctx.allm(Scripted(["7"]), "q")).text or "")

    async def program(ctx: Context) -> list[int]:
        """More wait than there are threads, and the call itself needs one."""
        asks = (ctx.atool("slow", partial(slow, ctx)) for _ in range(40))
        return await asyncio.gather(*asks)

    with Context(store, "r1", mode="reuse") as ctx:
        assert asyncio.run(program(ctx)) == [7] * 40
        assert (ctx.live, ctx.reused) == (2, 39)
    assert len(calls) == 1


def test_the_loop_runs_on_while_a_model_thinks(store: SQLiteEventStore) -> None:
    model = Slow("a")

    async def program(ctx: Context) -> str | None:
        asked = asyncio.create_task(ctx.allm(model, "q"))
        while not model.entered.is_set():
            await asyncio.sleep(0.005)
        model.release.set()  # would never be reached if the loop were blocked
        return (await asked).text

    with Context(store, "r1") as ctx:
        assert asyncio.run(program(ctx)) == "a"


def test_a_cancelled_asynchronous_tool_is_noted(store: SQLiteEventStore) -> None:
    async def endless() -> None:
        await asyncio.sleep(60)

    async def program(ctx: Context) -> None:
        task = asyncio.create_task(ctx.atool("t", endless))
        await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with Context(store, "r1", mode="reuse") as ctx:
        asyncio.run(program(ctx))
    assert types(store)[-1] == "tool.failed"
    assert Context(store, "r1", mode="reuse").tool("t", lambda: 7) == 7


def test_a_stream_that_is_left_early(store: SQLiteEventStore) -> None:
    async def program(ctx: Context) -> str:
        stream = ctx.astream(Scripted(["one two three"]), "q")
        first = await anext(stream)
        await stream.aclose()  # type: ignore[attr-defined]
        return first.text

    with Context(store, "r1") as ctx:
        assert asyncio.run(program(ctx)) == "one "
    assert types(store)[-1] == "llm.failed"


# ---- effects


def effects(ctx: Context, path: Path) -> list[Any]:
    return [
        ctx.now(), ctx.now(), ctx.uuid(), ctx.uuid(), ctx.random(), ctx.rng().random(),
        ctx.env("SAG_TEST_COLOUR"), ctx.env("SAG_TEST_NOT_SET"), ctx.read_file(path),
    ]  # fmt: skip


def test_effects_are_replayed(
    store: SQLiteEventStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file.bin"
    path.write_bytes(b"\xff\x00 bytes" * 200)
    monkeypatch.setenv("SAG_TEST_COLOUR", "blue")
    live = effects(Context(store, "r1"), path)
    assert len(set(live[:6])) == 6
    assert live[6:] == ["blue", None, b"\xff\x00 bytes" * 200]
    assert types(store)[1:] == ["effect.recorded"] * 9
    path.unlink()
    monkeypatch.setenv("SAG_TEST_COLOUR", "red")
    ctx = Context(store, "r1", mode="replay", clock=never)
    assert effects(ctx, path) == live
    with pytest.raises(ReplayMiss, match="effect call 'now'"):
        ctx.now()


def test_chance_and_clock_can_be_given(store: SQLiteEventStore) -> None:
    store.create_run(Run(run_id="r2"))
    first, second = (
        Context(store, run, rng=random.Random(5), clock=lambda: 12.5) for run in ("r1", "r2")
    )
    assert [first.uuid(), first.random(), first.now()] == [
        second.uuid(),
        second.random(),
        second.now(),
    ]
    histories = [[e.digest for e in store.read(run)][1:] for run in ("r1", "r2")]
    assert len(histories[0]) == 3
    store.create_run(Run(run_id="r3", goal="g"))
    third = Context(store, "r3", rng=random.Random(5), clock=lambda: 12.5)
    assert [third.uuid(), third.random(), third.now()]
    assert store.head("r3").digest == store.head("r1").digest, "equal histories, equal digests"


def test_a_file_that_was_missing_stays_missing(store: SQLiteEventStore, tmp_path: Path) -> None:
    path = tmp_path / "late.txt"
    with pytest.raises(FileNotFoundError):
        Context(store, "r1").read_file(path)
    path.write_text("here", encoding="utf-8")
    with pytest.raises(FileNotFoundError, match="late"):
        Context(store, "r1", mode="replay").read_file(path)


@pytest.mark.parametrize("name", ["OPENAI_API_KEY", "GITHUB_TOKEN", "db-password", "MY_SECRET"])
def test_secrets_are_not_read_into_the_log(store: SQLiteEventStore, name: str) -> None:
    with pytest.raises(UsageError, match="secret"):
        Context(store, "r1").env(name)
    assert types(store) == ["run.created"]


def test_ordinary_variables_are_no_secrets(store: SQLiteEventStore) -> None:
    assert Context(store, "r1").env("SAG_TEST_KEYBOARD") is None


# ---- looking back


def test_recorded_calls_show_hits_and_misses(store: SQLiteEventStore) -> None:
    ctx = Context(store, "r1", model=Scripted(["a"]))
    ctx.llm(None, "q")
    with pytest.raises(ZeroDivisionError):
        ctx.tool("divide", lambda: 1 // 0)
    ctx.now()
    with pytest.raises(KeyboardInterrupt):
        ctx.tool("t", raising(KeyboardInterrupt()))
    usage = Usage(tokens_in=5, tokens_out=2, cost_usd=0.5)
    again = Context(store, "r1", mode="reuse")
    again.llm(Scripted([]), "q")
    again.llm(Scripted([Reply(text="new", usage=usage)]), "q2")
    again.now()
    calls = recorded_calls(store, "r1")
    seen = [(c.kind, c.name, c.occurrence, c.how, c.status) for c in calls]
    assert seen == [
        ("llm", "script", 0, "live", "ok"),
        ("tool", "divide", 0, "live", "failed"),
        ("effect", "now", 0, "live", "ok"),
        ("tool", "t", 0, "live", "unanswered"),
        ("llm", "script", 0, "reused", "ok"),
        ("llm", "script", 0, "live", "ok"),
        ("effect", "now", 0, "reused", "ok"),
    ]
    assert (calls[5].tokens_in, calls[5].tokens_out, calls[5].cost_usd) == (5, 2, 0.5)
    assert calls[0].tokens_in is None, "unknown is not zero"
    assert calls[0].seconds is not None
    assert calls[4].seconds is None
    assert (calls.live, calls.reused) == (5, 2)
    assert repr(calls) == "RecordedCalls('r1', 5 live, 2 reused)"
    table = calls.table_
    assert len(table) == 7
    assert list(table.columns[:6]) == ["kind", "name", "key", "occurrence", "how", "status"]


def test_recorded_calls_of_forks_and_open_calls(store: SQLiteEventStore) -> None:
    Context(store, "r1").llm(Scripted(["a"]), "<script>alert(1)</script>")
    store.fork("r1", at=2, run_id="child")
    (row,) = recorded_calls(store, "child")
    assert (row.run_id, row.status) == ("r1", "open")
    ctx = Context(store, "child", mode="reuse", scope="family")
    ctx.llm(Forbidden(), "<script>alert(1)</script>")
    assert [(c.how, c.status, c.name) for c in recorded_calls(store, "child")][1] == (
        "reused",
        "ok",
        "script",
    )
    html = recorded_calls(store, "child")._repr_html_()
    assert "<table>" in html
    with pytest.raises(RunNotFoundError):
        recorded_calls(store, "nobody")


def test_what_holds_itself_or_is_very_deep_is_refused_like_all_that_is_no_json(
    store: SQLiteEventStore,
) -> None:
    endless: list[Any] = []
    endless.append(endless)
    deep: Any = 1
    for _ in range(5_000):
        deep = {"in": deep}
    ctx = Context(store, "r1")
    for value in (endless, deep):
        with pytest.raises(BadPayloadError, match="nested deeper"):
            ctx.tool("nest", lambda given=value: given)
        with pytest.raises(BadPayloadError, match="nested deeper"):
            ctx.tool("nest", lambda value: value, {"value": value})


def test_the_name_of_a_model_is_no_model(store: SQLiteEventStore) -> None:
    name: Any = "some-model"
    with pytest.raises(UsageError, match="some-model"):
        Context(store, "r1").llm(name, "hello")


def test_an_answer_nested_without_end_is_no_json() -> None:
    text = "[" * 100_000
    assert arguments_of(text) == text
    with pytest.raises(MalformedReply):
        Reply(text=text).data()


def test_a_replay_says_that_the_answer_was_redacted(store: SQLiteEventStore) -> None:
    Context(store, "r1").tool("look", lambda: "secret")
    store.redact("r1", 3, "a secret")
    with pytest.raises(ReplayMiss, match="redacted"):
        Context(store, "r1", mode="replay").tool("look", lambda: "live")
