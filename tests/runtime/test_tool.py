"""Tools: schemas from types, checks on both sides, and failures as data."""

from __future__ import annotations

import asyncio
import json
import threading
import urllib.request
from dataclasses import dataclass
from datetime import date
from functools import partial
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
import pytest
from referencing.exceptions import Unresolvable

from sag_research.errors import StoreError, UsageError
from sag_research.llm import Context, ReplayMiss
from sag_research.log import SQLiteEventStore
from sag_research.model import Run
from sag_research.runtime import (
    CancelToken,
    LoopCancelledError,
    Runtime,
    StepTimeoutError,
    Tool,
    ToolResult,
    graph,
    tool,
)
from sag_research.runtime._tool import tools_by_name
from sag_research.runtime._tool_schema import problems
from tests.runtime.agents import failing

ANY = {"type": "object"}


@dataclass
class Place:
    file: str
    line: int = 1


@tool(version="2")
def read(
    place: Place,
    mode: Literal["text", "lines"] = "text",
    limit: Annotated[int, msgspec.Meta(ge=1, description="How many lines.")] = 10,
    tags: list[str] = [],  # noqa: B006 - what users write
    **more: Any,
) -> list[str]:
    """Read a file.

    More of it.
    """
    return [f"{place.file}:{place.line}", mode, str(limit), *tags]


@pytest.fixture
def store() -> SQLiteEventStore:
    store = SQLiteEventStore(":memory:")
    store.create_run(Run(run_id="r1"))
    return store


def test_the_schema_is_that_of_the_types() -> None:
    schema = read.input_schema
    assert (read.name, read.description, read.version) == ("read", "Read a file.", "2")
    assert schema["required"] == ["place"]
    assert schema["additionalProperties"] is False
    assert list(schema["properties"]) == ["place", "mode", "limit", "tags"]
    assert schema["properties"]["mode"]["enum"] == ["lines", "text"]
    assert schema["properties"]["limit"] == {
        "type": "integer", "minimum": 1, "description": "How many lines.", "default": 10,
    }  # fmt: skip
    assert schema["$defs"]["Place"]["required"] == ["file"]
    assert read.output_schema == {"type": "array", "items": {"type": "string"}}
    assert read.offered.parameters is schema


def test_arguments_arrive_as_they_are_annotated() -> None:
    assert read.call({"place": {"file": "a.py"}, "limit": 2}).value == ["a.py:1", "text", "2"]
    assert read.call({"place": {"file": "a.py"}, "tags": ["x"]}).value[-1] == "x"
    assert read(Place("b.py", 3))[0] == "b.py:3"  # the function itself


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({}, "'place' is a required property"),
        ({"place": {"file": 3}}, "$.place.file: 3 is not of type 'string'"),
        ({"place": {"file": "a"}, "mode": "raw"}, "$.mode: 'raw' is not one of"),
        ({"place": {"file": "a"}, "limit": 0}, "$.limit: 0 is less than the minimum"),
        ({"place": {"file": "a"}, "page": 1}, "'page' was unexpected"),
        ("place", "no JSON object"),
        (None, "no JSON object"),
    ],
)
def test_arguments_that_do_not_fit_call_nothing(
    store: SQLiteEventStore, arguments: Any, problem: str
) -> None:
    result = read.call(arguments, Context(store, "r1"))
    assert result.status == "error"
    assert result.error is not None
    assert result.error.code == "invalid-input"
    assert problem in result.text
    assert store.head("r1").position == 1  # nothing was asked


def test_what_does_not_fit_the_output_schema_is_an_error() -> None:
    count = Tool("count", "", ANY, lambda: "three", {"type": "integer"})
    result = count.call({})
    assert json.loads(result.text)["error"]["problems"] == ["$: 'three' is not of type 'integer'"]
    assert count.call({}).value is None


@pytest.mark.parametrize("value", [object(), np.zeros(2), float("nan"), {1: {2: object()}}])
def test_what_is_no_json_is_an_error(value: Any) -> None:
    result = Tool("give", "", ANY, lambda: value).call({})
    assert result.error is not None
    assert result.error.code == "invalid-output"


def test_what_the_log_refuses_is_an_error_and_not_the_end(store: SQLiteEventStore) -> None:
    huge = Tool("huge", "", ANY, lambda n: n)
    for number in (10**400, 2**64):
        result = huge.call({"n": number}, Context(store, "r1"))
        assert result.error is None or result.error.code == "unrecordable"
    assert Tool("deep", "", ANY, lambda: _nested(3000)).call({}).status == "error"


def _nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


def test_an_exception_is_an_observation_with_its_class() -> None:
    result = failing(FileNotFoundError("no such file \ud835 <b>")).call({})
    assert json.loads(result.text) == {
        "error": {
            "code": "raised",
            "message": "no such file \ufffd <b>",
            "kind": "FileNotFoundError",
        }
    }
    assert len(failing(ValueError("x" * 10_000)).call({}).text) < 800


class OwnError(Exception):
    """Known to nobody else."""


@pytest.mark.parametrize(
    "error", [ValueError("bad"), OwnError("odd", {"a": 1}), StoreError("mine"), KeyError("x")]
)
def test_a_replay_gives_the_same_observation(store: SQLiteEventStore, error: Exception) -> None:
    broken = failing(error)
    live = broken.call({"a": 1}, Context(store, "r1"), cause=1)
    asked = [(event.type, event.cause) for event in store.read("r1", 2)]
    assert asked == [("tool.requested", 1), ("tool.failed", 2)]
    again = Tool("lookup", "", ANY, lambda **_: "it was called")
    assert again.call({"a": 1}, Context(store, "r1", mode="replay")) == live
    assert live.error is not None


def test_a_good_result_is_recorded_and_replayed(store: SQLiteEventStore) -> None:
    pair = Tool("pair", "", ANY, lambda a: (a, {"z": 1, "b": 2}))
    live = pair.call({"a": 1}, Context(store, "r1"))
    again = Tool("pair", "", ANY, lambda a: None)
    assert again.call({"a": 1}, Context(store, "r1", mode="replay")) == live
    assert live.text == '[1, {"b": 2, "z": 1}]'
    assert pair.call({"a": 1}).value == live.value


def test_a_record_without_an_answer_is_no_failure_of_the_tool(store: SQLiteEventStore) -> None:
    with pytest.raises(ReplayMiss):
        failing(ValueError()).call({"a": 1}, Context(store, "r1", mode="replay"))


@pytest.mark.parametrize("error", [LoopCancelledError("stop"), KeyboardInterrupt()])
def test_cancellation_is_raised(error: BaseException) -> None:
    with pytest.raises(type(error)):
        failing(error).call({})


def test_an_asynchronous_tool_is_awaited() -> None:
    @tool
    async def later(n: int) -> int:
        return n + 1

    assert later.call({"n": 1}).value == 2


def test_texts_are_passed_as_they_are_and_other_values_as_json() -> None:
    assert ToolResult(value="a\nb").text == "a\nb"
    assert ToolResult(value=None).text == "null"
    assert ToolResult(value="half \ud835").text


def test_nothing_is_fetched_for_a_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    monkeypatch.setattr(urllib.request, "urlopen", lambda *a, **k: asked.append(a))
    schema = {"type": "object", "properties": {"a": {"$ref": "http://127.0.0.1:9/s.json"}}}
    with pytest.raises(UsageError, match="nothing is fetched"):
        Tool("remote", "", schema, print)
    with pytest.raises(Unresolvable):
        problems(schema, {"a": 1})
    assert asked == []


@pytest.mark.parametrize("name", ["", "two words", "naïve", "x" * 65, "a.b"])
def test_a_name_that_providers_refuse_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="cannot be named"):
        Tool(name, "", ANY, print)


def test_a_schema_that_is_none_is_refused() -> None:
    with pytest.raises(UsageError, match="input schema of tool 'a' is no JSON schema"):
        Tool("a", "", {"type": "thing"}, print)
    with pytest.raises(UsageError, match="output schema of tool 'a'"):
        Tool("a", "", ANY, print, {"required": "x"})
    with pytest.raises(UsageError, match="nothing to call"):
        Tool("a", "", ANY, None)  # type: ignore[arg-type]


def test_a_function_without_types_is_refused() -> None:
    with pytest.raises(UsageError, match="parameter 'q' of tool 'f' has no type"):

        @tool
        def f(q):  # type: ignore[no-untyped-def]
            return q

    with pytest.raises(UsageError, match="cannot be given by name"):

        @tool
        def g(q: int, /) -> int:
            return q

    with pytest.raises(UsageError, match="returns cannot be written as JSON"):

        @tool
        def h() -> np.ndarray:
            return np.zeros(1)


def test_tools_have_different_names() -> None:
    def one(a: int) -> int:
        return a

    assert list(tools_by_name([one, read])) == ["one", "read"]
    assert list(tools_by_name([read, read])) == ["read"]
    with pytest.raises(UsageError, match="two tools 'read'"):
        tools_by_name([read, failing(ValueError(), "read")])
    with pytest.raises(UsageError, match="is no tool"):
        tools_by_name([3])  # type: ignore[list-item]


class _Odd(Exception):
    def __str__(self) -> str:
        raise ZeroDivisionError


@pytest.mark.parametrize(
    "error", [SystemExit(2), GeneratorExit(), asyncio.CancelledError(), StopIteration(), _Odd()]
)
@pytest.mark.parametrize("is_async", [False, True])
def test_no_tool_ends_the_agent(
    store: SQLiteEventStore, error: BaseException, is_async: bool
) -> None:
    async def leave() -> None:
        raise error

    def leave_plainly() -> None:
        raise error

    if is_async and isinstance(error, StopIteration):
        pytest.skip("Python makes it a RuntimeError")
    one = Tool("leave", "", ANY, leave if is_async else leave_plainly)
    for ctx in (None, Context(store, "r1")):
        result = one.call({}, ctx)
        assert result.error is not None
        assert (result.error.code, result.error.kind) == ("raised", type(error).__name__)


def test_an_interrupt_is_no_failure_of_a_tool() -> None:
    with pytest.raises(KeyboardInterrupt):
        failing(KeyboardInterrupt()).call({})


@pytest.mark.parametrize("name", ["self", "arguments", "function", "cls"])
def test_an_argument_may_have_any_name(store: SQLiteEventStore, name: str) -> None:
    one = Tool("keys", "", ANY, lambda **arguments: list(arguments))
    assert one.call({name: 1}, Context(store, "r1")).value == [name]


def test_arguments_that_fit_the_schema_and_not_the_type_call_nothing() -> None:
    called = []

    @tool
    def on(day: date, n: int = 0) -> None:
        """Note a day."""
        called.append((day, n))

    for arguments in ({"day": "tomorrow"}, {"day": "2020-01-01", "n": 1.0}):
        error = on.refusal(arguments)
        assert error is not None
        assert error.code == "invalid-input"
        assert "`$." in error.problems[0]
        assert on.call(arguments).error == error
    assert called == []
    assert on.call({"day": "2020-01-01"}).status == "ok"


class _Adder:
    """Something with a method."""

    def __call__(self, n: int, by: int) -> int:
        """Add two numbers."""
        return n + by


def test_whatever_can_be_called_becomes_a_tool() -> None:
    add = tool(name="add")(_Adder())
    assert add.call({"n": 1, "by": 2}).value == 3
    more = tool(name="more")(partial(_Adder(), by=5))
    assert more.call({"n": 1}).value == 6
    assert (add.description, more.description) == ("Add two numbers.", "Add two numbers.")


@pytest.mark.parametrize("how", ["cancel", "seconds"])
def test_an_asynchronous_tool_is_cut_off(how: str) -> None:
    begun, ends = threading.Event(), []

    async def wait() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ends.append("cut off")
            raise

    def work(_: Any) -> Any:
        return Tool("wait", "", ANY, wait).call({})

    token = CancelToken()

    def stop() -> None:
        begun.wait()
        token.cancel("enough")

    stopping = threading.Thread(target=stop)
    with Runtime() as rt:
        if how == "cancel":
            stopping.start()
            with pytest.raises(LoopCancelledError, match="enough"):
                rt.run(graph("g").node("n", work), cancel=token)
            stopping.join()
        else:
            with pytest.raises(StepTimeoutError):
                rt.run(graph("g").node("n", work), seconds=0.2)
    assert ends == ["cut off"]
