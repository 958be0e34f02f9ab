"""The agent that reasons and acts: its turns, its log, its ends."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import sag_research as sag
from sag_research.bloom import MemoryTool, item_kind, item_text
from sag_research.errors import RunExistsError, UsageError
from sag_research.llm import (
    Message,
    ModelTimeout,
    ReplayMiss,
    Reply,
    Scripted,
    ToolCall,
    read_request,
)
from sag_research.log import SQLiteEventStore
from sag_research.model import Event, Run, Usage
from sag_research.runtime import (
    CancelToken,
    GraphEvent,
    LoopCancelledError,
    ReactAgent,
    ReactResult,
    RunContext,
    StepsSpentError,
    TokenLog,
    Tool,
    _react_text,
    areact,
    react,
    react_document,
    replay,
    start_react,
    this_node,
    tool,
)
from sag_research.runtime._dag_document import DocumentError, SingleNode
from sag_research.runtime._react_messages import first_state
from sag_research.runtime._react_nodes import PORTS, Bench, dispatch_tools
from sag_research.runtime._react_text import calls_in_text
from sag_research.runtime._tool import tools_by_name
from tests.runtime.agents import ANSWER, QUERY, asks, failing, lookup, scripted


@pytest.fixture
def store() -> SQLiteEventStore:
    return SQLiteEventStore(":memory:")


def events(result: ReactResult, *types: str) -> list[Event]:
    return list(result.store.read(result.run_id, types=types or None))


def requests(result: ReactResult) -> list[tuple[Message, ...]]:
    return [read_request(result.store, e).messages for e in events(result, "llm.requested")]


# ---- the way that goes well


def test_a_scripted_run(store: SQLiteEventStore) -> None:
    result = react(scripted(answer=ANSWER), [lookup], "what is a dag?", store=store, run="run-1")
    assert [e.type for e in events(result)] == [
        "run.created",
        "llm.requested", "llm.responded", "tool.requested", "tool.responded", "agent.step",
        "llm.requested", "llm.responded", "agent.step",
        "run.completed",
    ]  # fmt: skip
    assert result.answer == ANSWER
    assert repr(result) == "ReactResult('run-1': completed after 2 steps)"
    first, last = result.steps
    assert first.thought == "planning to invoke a tool"
    assert [(c.name, c.arguments, c.id, c.status) for c in first.calls] == [
        ("lookup", QUERY, "call-1-1", "ok")
    ]
    assert json.loads(first.observation)["text"] == "a graph without cycles"
    assert (last.calls, last.flags, last.action) == ((), ("final",), "")
    assert store.verify("run-1").ok


def test_d17_the_trace_of_a_scripted_run_has_five_items() -> None:
    result = react(scripted(), [lookup], "what is a dag?")
    kinds = [item_kind(item) for item in result.trace]
    assert kinds == ["thought", "action", "observation", "thought", "final"]
    assert [item.ordinal for item in result.trace] == [0, 1, 2, 3, 4]
    assert item_text(result.trace[1]) == 'lookup({"query": "acyclic graph"})'


def test_every_event_has_its_cause() -> None:
    result = react(scripted(), [lookup], "g")
    positions = {e.position: e for e in events(result)}

    def cause(position: int) -> str | None:
        before = positions[position].cause
        return None if before is None else positions[before].type

    causes = {p: cause(p) for p in positions}
    assert causes == {
        1: None,
        2: "run.created", 3: "llm.requested", 4: "llm.responded", 5: "tool.requested",
        6: "tool.responded",
        7: "agent.step", 8: "llm.requested", 9: "llm.responded",
        10: "agent.step",
    }  # fmt: skip


def test_several_calls_of_one_turn_are_all_written_down_as_they_were() -> None:
    calls = tuple(ToolCall(name="lookup", arguments={"query": q}, id=q) for q in ("a", "b", "c"))
    model = Scripted([Reply(text="three", calls=calls), "done"])
    result = react(model, [lookup], "g")
    step = result.steps[0]
    assert [(c.id, c.arguments["query"]) for c in step.calls] == [(q, q) for q in "abc"]
    assert [json.loads(c.observation)["about"] for c in step.calls] == list("abc")
    assert step.action.split("\n")[1] == 'lookup({"query":"b"})'
    assert len(step.observation.split("\n")) == 3
    decision = events(result, "llm.responded")[0].position
    assert [e.cause for e in events(result, "tool.requested")] == [decision] * 3
    told = requests(result)[1][-3:]
    assert [(m.role, m.call_id, m.name) for m in told] == [("tool", q, "lookup") for q in "abc"]


def test_the_answer_needs_no_tool_and_tools_need_no_thought() -> None:
    assert react(Scripted(["42"]), [], "g").answer == "42"
    result = react(scripted(text=None), [lookup], "g")
    assert [item_kind(item) for item in result.trace] == [
        "action", "observation", "thought", "final",
    ]  # fmt: skip


def test_usage_belongs_to_its_turn_and_unknown_is_not_zero() -> None:
    used = Usage(tokens_in=10, tokens_out=3)
    model = Scripted([Reply(calls=asks().calls, usage=used), "done"])
    first, last = react(model, [lookup], "g").steps
    assert first.usage == used
    assert last.usage is None
    assert first.seconds is not None
    assert first.started is not None
    assert last.seconds is None


# ---- errors that the model sees


def test_d12_a_tool_that_fails_is_observed_and_the_run_goes_on() -> None:
    result = react(scripted(answer=ANSWER), [failing(TimeoutError("too slow"))], "g")
    assert result.status == "completed"
    call = result.steps[0].calls[0]
    assert call.status == "error"
    assert json.loads(call.observation)["error"]["kind"] == "TimeoutError"
    assert "too slow" in requests(result)[1][-1].content
    assert [item_kind(item) for item in result.trace].count("observation") == 1


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (asks("look_up"), "there is no tool 'look_up'; there are: lookup"),
        (asks("lookup", {"q": 1}), "'query' is a required property"),
        (asks("lookup", '{"query": '), "the arguments are no JSON object"),
        (Reply(calls=asks(id="x").calls * 2), "two calls have the id 'x'"),
        (Reply(calls=(*asks().calls, *asks("no").calls)), "there is no tool 'no'"),
        (Reply(text='{"tool_calls": [7]}'), "nothing in tool_calls is a call"),
    ],
)
def test_a_decision_that_cannot_be_carried_out_is_not_carried_out_at_all(
    wrong: Reply, told: str
) -> None:
    result = react(Scripted([wrong, asks(), "done"]), [lookup], "g")
    rejected, good, final = result.steps
    assert rejected.flags == ("rejected",)
    assert rejected.observation == ""
    assert {call.status for call in rejected.calls} <= {"unknown"}
    assert (good.flags, final.flags) == ((), ("final",))
    assert len(events(result, "tool.requested")) == 1  # that of the second turn
    feedback = requests(result)[1][-1]
    assert feedback.role == "user"
    assert told in feedback.content
    kinds = [item_kind(item) for item in result.trace]
    assert kinds == ["action", "observation", "thought", "final"]
    assert [item.ordinal for item in result.trace] == [0, 1, 2, 3]


def test_a_rejected_decision_keeps_what_was_asked() -> None:
    wrong = asks("rm", {"path": "/", "deep": [1]}, id="c7", text="I clean up.")
    step = react(Scripted([wrong, "no"]), [lookup], "g").steps[0]
    assert step.thought == "I clean up."
    assert [(c.id, c.name, c.arguments) for c in step.calls] == [
        ("c7", "rm", {"path": "/", "deep": [1]})
    ]


# ---- the ends


def test_the_budget_is_one_of_turns() -> None:
    model = Scripted(lambda request: asks())
    result = react(model, [lookup], "g", max_steps=3)
    assert (result.status, result.exit_status, result.answer) == ("failed", "max-steps", None)
    assert len(result.steps) == len(model.requests) == 3
    assert [e.type for e in events(result)][-2:] == ["budget.exhausted", "run.failed"]
    assert events(result, "budget.exhausted")[0].payload == {"budget": "steps", "limit": 3}
    seen: list[GraphEvent] = []
    react(Scripted(lambda request: asks()), [lookup], "g", max_steps=3, on_graph=seen.append)
    assert [e.graph_id for e in seen if e.status == "started"] == ["think", "act"] * 3
    exact = react(Scripted([asks(), asks(), "done"]), [lookup], "g", max_steps=3)
    assert exact.answer == "done"


def test_rejected_turns_cost_as_others_do() -> None:
    result = react(Scripted(lambda _: asks("nothing")), [lookup], "g", max_steps=4)
    assert [step.flags for step in result.steps] == [("rejected",)] * 4


def test_a_model_that_fails_ends_the_run() -> None:
    model = Scripted([asks(), ModelTimeout("no answer in 30 s")])
    result = react(model, [lookup], "g")
    assert (result.status, result.exit_status) == ("failed", "model-error")
    assert "no answer in 30 s" in result.error
    assert len(result.steps) == 1
    assert result.trace[-1].ordinal == 1  # of a turn without a reply there is nothing


@pytest.mark.parametrize("nothing", [None, "", " \n"])
def test_a_reply_of_nothing_ends_the_run(nothing: str | None) -> None:
    result = react(Scripted([nothing]), [lookup], "g")
    assert (result.status, result.exit_status) == ("failed", "empty-reply")
    assert [step.flags for step in result.steps] == [("rejected",)]
    assert result.trace == ()


@pytest.mark.parametrize("form", [None, react_document()], ids=["plan", "document"])
def test_a_fault_of_the_program_is_written_down_and_raised(
    store: SQLiteEventStore, form: Any
) -> None:
    def broken(request: Any) -> str:
        raise ZeroDivisionError("the script is wrong")

    with pytest.raises(ZeroDivisionError):
        react(Scripted(broken), [lookup], "g", store=store, run="r1", document=form)
    result = ReactResult(store, "r1")
    assert (result.status, result.exit_status) == ("failed", "error")
    assert "the script is wrong" in result.error


def test_cancelled_before_it_begins_nothing_is_asked() -> None:
    token, model = CancelToken(), scripted()
    token.cancel("not today")
    result = react(model, [lookup], "g", cancel=token)
    assert (result.status, model.requests) == ("cancelled", [])
    assert events(result)[-1].payload == {"exit_status": "cancelled", "reason": "not today"}


@pytest.mark.parametrize("form", ["plan", "document"])
def test_an_asynchronous_tool_that_hangs_is_cut_off(store: SQLiteEventStore, form: str) -> None:
    begun = threading.Event()

    @tool
    async def hang() -> None:
        """Never come back."""
        begun.set()
        await asyncio.Event().wait()

    more: dict[str, Any] = {"document": react_document([hang])} if form == "document" else {}
    model = Scripted([asks("hang", {}), "never said"])
    handle = start_react(model, [hang], "g", store=store, run="r1", **more)
    begun.wait()
    handle.cancel("enough")
    with pytest.raises(LoopCancelledError):
        handle.result(timeout=60)
    assert (ReactResult(store, "r1").status, len(model.requests)) == ("cancelled", 1)


def test_cancelled_between_two_calls_the_second_is_not_made() -> None:
    token, made = CancelToken(), []

    @tool
    def work(n: int) -> int:
        made.append(n)
        token.cancel("enough")
        return n

    calls = tuple(ToolCall(name="work", arguments={"n": n}) for n in (1, 2))
    result = react(Scripted([Reply(calls=calls), "done"]), [work], "g", cancel=token)
    assert made == [1]
    assert result.status == "cancelled"
    assert result.steps == ()


def test_a_cancelled_run_raises_in_its_handle_and_says_so_in_the_log() -> None:
    entered, release = threading.Event(), threading.Event()

    def wait(request: Any) -> Reply:
        entered.set()
        assert release.wait(30)
        return asks()

    handle = start_react(Scripted(wait), [lookup], "g", run="r1")
    assert entered.wait(30)
    handle.cancel("the button was pressed")
    release.set()
    with pytest.raises(LoopCancelledError, match="the button was pressed"):
        handle.result(30)
    assert handle.status == "cancelled"


def test_a_handle_gives_the_result_and_the_stages() -> None:
    handle = start_react(scripted(), [lookup], "g", run="r1")
    result = handle.result(30)
    assert result.status == "completed"
    assert [e.graph_id for e in handle.events if e.status == "completed"] == [
        "think", "act", "think", "answer",
    ]  # fmt: skip
    assert "r1" in repr(handle)


@pytest.mark.parametrize("form", [None, react_document()], ids=["plan", "document"])
def test_interrupted_it_ends_as_cancelled(store: SQLiteEventStore, form: Any) -> None:
    with pytest.raises(KeyboardInterrupt):
        react(scripted(), [failing(KeyboardInterrupt())], "g", store=store, run="r1", document=form)
    assert ReactResult(store, "r1").status == "cancelled"


@pytest.mark.parametrize("form", [None, react_document()], ids=["plan", "document"])
def test_a_deadline_ends_it(form: Any) -> None:
    token = CancelToken(seconds=0.05)

    def wait(**_: Any) -> str:
        while not token.cancelled:
            threading.Event().wait(0.01)
        return "late"

    slow = Tool("lookup", "", {"type": "object"}, wait)
    result = react(scripted(), [slow], "g", cancel=token, document=form)
    assert result.status == "cancelled"
    assert events(result)[-1].payload["reason"] == "its time is over"


@pytest.mark.parametrize("form", [None, react_document()], ids=["plan", "document"])
def test_the_steps_of_an_experiment_are_a_budget_too(store: SQLiteEventStore, form: Any) -> None:
    store.create_run(Run(run_id="r1", goal="g"))
    with RunContext(store, "r1", max_steps=2) as ctx, pytest.raises(StepsSpentError):
        ReactAgent(Scripted(lambda _: asks()), [lookup], document=form)(ctx)
    assert len(ReactResult(store, "r1").steps) == 2


def test_on_an_event_loop() -> None:
    async def main() -> ReactResult:
        return await areact(scripted(), [lookup], "g")

    assert asyncio.run(main()).status == "completed"


def test_cancelling_the_task_ends_the_run(store: SQLiteEventStore) -> None:
    async def main() -> None:
        entered, release = asyncio.Event(), threading.Event()
        here = asyncio.get_running_loop()

        def wait(request: Any) -> Reply:
            here.call_soon_threadsafe(entered.set)
            assert release.wait(30)
            return asks()

        task = asyncio.ensure_future(areact(Scripted(wait), [lookup], "g", store=store, run="r1"))
        await entered.wait()
        task.cancel()
        here.call_later(0.05, release.set)
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert ReactResult(store, "r1").status == "cancelled"


def test_nothing_of_a_run_stays_in_the_context() -> None:
    react(scripted(), [lookup], "g")
    with pytest.raises(UsageError, match="there is no node here"):
        this_node()


# ---- what the model is told first


def test_a_hint_stands_before_everything_else_and_once() -> None:
    hint = "Prior reasoning (run-1): thought: <b>x</b>"
    result = react(scripted(), [lookup], "g", hint=hint, system="Be brief.")
    for asked in requests(result):
        assert [(m.role, m.content) for m in asked[:3]] == [
            ("system", hint), ("system", "Be brief."), ("user", "g"),
        ]  # fmt: skip
        assert [m.content for m in asked].count(hint) == 1
    assert result.store.get_run(result.run_id).config["hint"] == hint


def test_an_empty_hint_is_no_message() -> None:
    result = react(scripted(), [lookup], "g", hint="")
    assert [m.role for m in requests(result)[0]] == ["user"]
    assert "hint" not in result.store.get_run(result.run_id).config


def test_the_run_is_described(store: SQLiteEventStore) -> None:
    result = react(
        scripted(), [lookup], "g", store=store, run=Run(run_id="r1", task_id="t1"), max_steps=7
    )
    run = store.get_run("r1")
    assert (run.goal, run.task_id, run.agent, run.model) == ("g", "t1", "react", "script")
    assert run.config == {"tools": ["lookup"], "max_steps": 7}
    with pytest.raises(RunExistsError):
        react(scripted(), [lookup], "g", store=store, run="r1")
    with pytest.raises(UsageError, match="no goal"):
        react(scripted(), [lookup], "  ")
    assert result.run_id == "r1"


def test_a_workspace_is_a_store_too() -> None:
    with sag.open(":memory:") as ws:
        result = sag.react(scripted(), [lookup], "g", store=ws, run="r1")
        assert result.store is ws.store
        assert ws.steps("r1").tool.fillna("").tolist() == ["lookup", ""]
        calls = ws.sql("SELECT name, arguments, status FROM calls").rows()
    assert [(name, status) for name, _, status in calls] == [("lookup", "ok")]


# ---- again, and from the middle


def test_the_run_is_replayed_without_its_model_and_tools(store: SQLiteEventStore) -> None:
    react(scripted(), [failing(ValueError("odd"))], "g", store=store, run="r1")
    agent = ReactAgent(None, [failing(AssertionError("it was called"))])
    report = replay(store, "r1", agent)
    assert report.ok
    assert (report.made, report.reused) == (8, 3)


def test_a_fork_is_replayed_too(store: SQLiteEventStore) -> None:
    react(scripted(), [lookup], "g", store=store, run="r1")
    store.fork("r1", step=0, run_id="r2")
    with RunContext(store, "r2") as ctx:
        ReactAgent(Scripted([asks(), "another"]), [lookup])(ctx)
    assert ReactResult(store, "r2").answer == "another"
    uncalled = replace(lookup, run=failing(AssertionError("it was called")).run)
    assert replay(store, "r2", ReactAgent(None, [uncalled])).ok


def test_recorded_answers_are_used_again(store: SQLiteEventStore) -> None:
    react(scripted(), [lookup], "g", store=store, run="r1")
    model = scripted().identity()
    asking = {"mode": "reuse", "source": "r1"}
    again = react(model, [lookup], "g", store=store, run="r2", asking=asking)
    assert again.step_digests == ReactResult(store, "r1").step_digests
    assert Counter(e.type for e in events(again))["call.reused"] == 3
    with pytest.raises(ReplayMiss):
        react(model, [lookup], "other", store=store, run="r3",
              asking={"mode": "replay", "source": "r1"})  # fmt: skip


def test_a_fork_goes_on_from_its_step(store: SQLiteEventStore) -> None:
    model = Scripted([asks(text="one"), asks("no", text="two"), asks(text="three"), "A"])
    first = react(model, [lookup], "g", store=store, run="r1", system="s", hint="h")
    store.fork("r1", at=store.position_of_step("r1", 1), run_id="r2")
    other = Scripted(["B"])
    with RunContext(store, "r2") as ctx:
        ReactAgent(other, [lookup], system="s", hint="h")(ctx)
    fork = ReactResult(store, "r2")
    assert [step.thought for step in fork.steps] == ["one", "two", "B"]
    assert other.requests[0].messages == requests(first)[2]
    assert fork.step_digests[:2] == first.step_digests[:2]


# ---- calls in the text


def test_calls_written_into_the_text_are_calls() -> None:
    text = (
        'I look.\n```json\n{"tool_calls": [{"name": "lookup", "arguments": {"query": "q"}}]}\n```'
    )
    result = react(Scripted([text, "done"]), [lookup], "g")
    step = result.steps[0]
    assert step.thought == "I look."
    assert [(c.name, c.arguments, c.id, c.status) for c in step.calls] == [
        ("lookup", {"query": "q"}, "call-1-1", "ok")
    ]
    assert result.answer == "done"


def test_without_tools_a_text_is_a_text() -> None:
    text = '{"tool_calls": [{"name": "lookup", "arguments": {}}]}'
    assert react(Scripted([text]), [], "g").answer == text


@pytest.mark.parametrize(
    ("text", "calls", "prose", "dropped"),
    [
        ('{"tool_calls": []}', [], "", 0),
        ('a {b} {"tool_calls": [{"name": "f"}]} c', [("f", {})], "a {b}  c", 0),
        ('{"tool_calls": [{"name": "f", "arguments": "{\\"a\\": 1}"}]}', [("f", {"a": 1})], "", 0),
        ('{"tool_calls": [{"name": "f", "arguments": "{"}]}', [("f", "{")], "", 0),
        ('{"tool_calls": [{"function": {"name": "f"}, "id": "1"}]}', [("f", {})], "", 0),
        ('{"tool_calls": [{"name": 3}, null, {"name": ""}, {"name": "f"}]}', [("f", {})], "", 3),
        ('{"x": {"tool_calls": [{"name": "f"}]}}', [("f", {})], '{"x": }', 0),
    ],
)
def test_d14_reading_calls(
    text: str, calls: list[tuple[str, Any]], prose: str, dropped: int
) -> None:
    found = calls_in_text(text)
    assert found is not None
    assert [(call["name"], call["arguments"]) for call in found.calls] == calls
    assert (found.prose, found.dropped) == (prose, dropped)


@pytest.mark.parametrize(
    "text",
    ["", "{", '{"tool_calls"', '{"tool_calls": {"name": "f"}}', '"tool_calls" are not made', "{}"],
)
def test_what_holds_no_calls(text: str) -> None:
    assert calls_in_text(text) is None


@given(st.text() | st.builds(lambda a, b: a + '{"tool_calls": [' + b, st.text(), st.text()))
def test_no_text_raises(text: str) -> None:
    calls_in_text(text)


def test_braces_of_other_kinds_do_not_hide_a_call() -> None:
    code = "void f() { if (x) { g(); } } " * 100
    asked = '{"why": {"a": {}}, "tool_calls": [{"name": "lookup"}]}'
    for text in (code + asked, f"{code}{asked} {code}", f'The key "tool_calls" {{}} {asked}'):
        written = calls_in_text(text)
        assert written is not None
        assert [call["name"] for call in written.calls] == ["lookup"]
        assert asked not in written.prose


def test_of_a_text_of_braces_only_a_few_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = []
    look = _react_text._object_at
    monkeypatch.setattr(_react_text, "_object_at", lambda *a: looked.append(a[1]) or look(*a))
    assert calls_in_text('"tool_calls"' + '{"a":' * 5_000) is None
    assert len(looked) == 32
    assert calls_in_text('{"a":' * 5_000 + '"tool_calls"' + "{" * 5_000) is None
    assert len(looked) == 32 + 64
    assert calls_in_text('"tool_calls"' + "{" * 200_000) is None


def test_a_model_that_is_offered_no_tools_writes_its_calls(store: SQLiteEventStore) -> None:
    text = 'I look. {"tool_calls": [{"name": "lookup", "arguments": {"query": "<b>"}}]}'
    model = Scripted([text, '{"tool_calls": [{"name": "no"}]}', "done"])
    result = react(model, [lookup], "g", system="s", hint="h", calls="text", store=store, run="r1")
    assert [step.flags for step in result.steps] == [(), ("rejected",), ("final",)]
    assert [request.tools for request in model.requests] == [(), (), ()]
    told = model.requests[1].messages
    assert [m.role for m in told] == ["system", "system", "user", "assistant", "user"]
    assert told[0].content == "h"
    assert told[1].content.startswith("s\n\nTo use tools")
    assert json.dumps(lookup.input_schema) in told[1].content
    asked, came = (json.loads(m.content.removeprefix("I look.")) for m in told[3:])
    assert asked == {
        "tool_calls": [{"name": "lookup", "arguments": {"query": "<b>"}, "id": "call-1-1"}]
    }
    assert json.loads(came["tool_results"][0]["observation"])["about"] == "<b>"
    store.fork("r1", at=store.position_of_step("r1", 1), run_id="r2")
    other = Scripted(["B"])
    with RunContext(store, "r2") as ctx:
        ReactAgent(other, [lookup], system="s", hint="h", calls="text")(ctx)
    assert other.requests[0].messages == model.requests[2].messages


def test_what_an_agent_cannot_be_made_of_is_refused(store: SQLiteEventStore) -> None:
    cases: list[dict[str, Any]] = [
        {"model": "gpt"}, {"tools": lookup}, {"calls": "xml"}, {"max_steps": 0}, {"sink": 5},
        {"sink": asyncio.sleep}, {"store": "log.sqlite"}, {"goal": None}, {"goal": " "},
        {"hint": None}, {"system": 1},
    ]  # fmt: skip
    for wrong in cases:
        given: dict[str, Any] = {"model": Scripted([]), "tools": [], "goal": "g", "store": store}
        with pytest.raises(UsageError):
            react(run="r1", **(given | wrong))
    assert not store.has_run("r1")
    with pytest.raises(UsageError, match="mode 'onward' is not offered"):
        react(scripted(), [], "g", store=store, run="r1", asking={"mode": "onward"})
    assert ReactResult(store, "r1").status == "failed"


@pytest.mark.parametrize(
    "arguments",
    ['{"n": NaN}', '{"n": 1e999}', '{"n": ' + "[" * 500 + "]" * 500 + "}"],
)
def test_arguments_that_the_log_takes_not_are_refused_and_the_run_goes_on(arguments: str) -> None:
    text = f'{{"tool_calls": [{{"name": "lookup", "arguments": {arguments}}}]}}'
    result = react(Scripted([text, "done"]), [failing(ValueError())], "g")
    assert [step.flags for step in result.steps] == [("rejected",), ("final",)]
    assert isinstance(result.steps[0].calls[0].arguments, str)
    assert result.store.verify().ok


def test_a_large_number_is_none_of_them() -> None:
    text = f'{{"tool_calls": [{{"name": "lookup", "arguments": {{"n": {10**40}}}}}]}}'
    result = react(Scripted([text, "done"]), [Tool("lookup", "", {}, lambda n: n + 1)], "g")
    assert result.steps[0].calls[0].observation == str(10**40 + 1)


def test_halves_of_characters_are_repaired() -> None:
    text = '{"tool_calls": [{"name": "lookup", "arguments": {"query": "\\ud835", "\\ud836": 1}}]}'
    text = text.replace("\\\\", "\\")
    result = react(Scripted([text, "done"]), [failing(ValueError())], "g")
    assert result.steps[0].calls[0].arguments == {"query": "\ufffd", "\ufffd": 1}
    assert result.status == "completed"


def test_a_reply_that_the_log_takes_not_is_a_failure_of_the_model() -> None:
    result = react(Scripted([asks(arguments={"query": float("nan")})]), [lookup], "g")
    assert (result.status, result.exit_status) == ("failed", "model-error")
    assert result.store.verify().ok


# ---- the nodes by themselves


def bench(store: SQLiteEventStore, model: Any, *tools: Any) -> Bench:
    store.create_run(Run(run_id="r1", goal="g"))
    return Bench(ctx=RunContext(store, "r1"), model=model, tools=tools_by_name(tools))


def walk(state: dict[str, Any], desk: Bench, *names: str) -> list[str]:
    ports = []
    for name in names:
        port = dispatch_tools(state, desk) if name == "dispatch" else PORTS[name][0](state, desk)
        ports.append(port)
    return ports


ASKED = ("build-request", "call-model", "normalize-response")
DONE = ("decode-tools", "normalize-tools", "build-worksets", "dispatch", "collect-results")


@pytest.mark.parametrize(
    ("reply", "names", "ports"),
    [
        (Reply(text="x"), (*ASKED, "append-assistant"), ["ready", "text", "text", "done"]),
        (asks(), (*ASKED, *DONE),
         ["ready", "tools", "tools", "decoded", "valid", "ready", "all-success", "done"]),
        (asks(text="t"), (*ASKED, *DONE),
         ["ready", "mixed", "mixed", "decoded", "valid", "ready", "all-success", "done"]),
        (asks("broken", {}), (*ASKED, *DONE),
         ["ready", "tools", "tools", "decoded", "valid", "ready", "all-error", "done"]),
        (Reply(calls=(*asks().calls, *asks("broken", {}).calls)), (*ASKED, *DONE),
         ["ready", "tools", "tools", "decoded", "valid", "ready", "partial", "done"]),
        (asks("none"), (*ASKED, *DONE),
         ["ready", "tools", "tools", "decoded", "valid", "ready", "empty", "empty"]),
        (Reply(text='{"tool_calls": [{"name": "broken"}]}'), ASKED, ["ready", "text", "tools"]),
        (Reply(text='So {"tool_calls": [{"name": "broken"}]}'), ASKED, ["ready", "text", "mixed"]),
        (Reply(), ASKED, ["ready", "text", "empty"]),
        (ModelTimeout("late"), ASKED[:2], ["ready", "error"]),
    ],
)  # fmt: skip
def test_the_ports_of_the_nodes(
    store: SQLiteEventStore, reply: Any, names: tuple[str, ...], ports: list[str]
) -> None:
    desk = bench(store, Scripted([reply]), lookup, failing(ValueError("no"), "broken"))
    state = first_state("g")
    assert walk(state, desk, *names) == ports
    declared = [PORTS[name][1] for name in names if name != "dispatch"]
    assert all(p in d for p, d in zip((p for p, n in zip(ports, names, strict=True)
                                       if n != "dispatch"), declared, strict=True))  # fmt: skip


def test_nodes_that_find_nothing(store: SQLiteEventStore) -> None:
    desk = bench(store, Scripted([]), lookup)
    assert walk(first_state(""), desk, "build-request") == ["error"]
    state = first_state("g") | {"turn": 1, "asked": [], "problems": [], "calls": [], "feedback": ""}
    names = ("decode-tools", "normalize-tools", "build-worksets")
    assert walk(state, desk, *names) == ["empty", "empty", "empty"]


def test_the_state_is_plain_data(store: SQLiteEventStore) -> None:
    desk = bench(store, scripted(), lookup)
    state = first_state("g", hint="h")
    walk(state, desk, *ASKED, *DONE, *ASKED, "append-assistant")
    assert json.loads(json.dumps(state)) == state
    assert state["final"].startswith("word1 ")


def test_a_result_shows_itself(store: SQLiteEventStore) -> None:
    model = Scripted([asks(text="<script>alert(1)</script>"), "done"])
    result = react(model, [lookup], "g", store=store, run="r1")
    assert list(result.table_.columns) == [
        "step", "thought", "action", "observation", "n_calls", "flags",
    ]  # fmt: skip
    assert result.table_.n_calls.tolist() == [1, 0]
    assert "<script>" not in result._repr_html_()
    assert "alert" in result._repr_html_()
    store.create_run(Run(run_id="r2", goal="g"))
    assert repr(ReactResult(store, "r2")) == "ReactResult('r2': still running after 0 steps)"


# ---- the document


def both(answers: list[Any], tools: list[Any], **options: Any) -> tuple[ReactResult, ReactResult]:
    """Run the plan and the document."""
    results = [
        react(Scripted(answers), tools, "g", run="r1", document=form, **options)
        for form in (None, react_document(tools_by_name(tools)))
    ]
    return results[0], results[1]


FORMS: dict[str, list[Any]] = {
    "one call": [asks(text="planning"), "done "],
    "no call": ["done"],
    "many calls": [Reply(text="x", calls=asks().calls + asks("broken", {}).calls), asks(), "done"],
    "failing tool": [asks("broken", {}), "done"],
    "rejected": [asks("none"), asks(), "done"],
    "in the text": ['So: {"tool_calls": [{"name": "lookup", "arguments": {"query": "q"}}]}', "."],
    "empty reply": [asks(), ""],
    "model fails": [asks(), ModelTimeout("late")],
    "turns spent": [asks()] * 9,
}


@pytest.mark.parametrize("answers", FORMS.values(), ids=FORMS.keys())
def test_plan_and_document_do_the_same(answers: list[Any]) -> None:
    tools = [lookup, failing(ValueError("no"), "broken")]
    plan, document = both(answers, tools, max_steps=4)
    assert plan.step_digests == document.step_digests
    assert plan.exit_status == document.exit_status
    assert plan.answer == document.answer
    assert plan.error == document.error
    heads = [result.store.head("r1") for result in (plan, document)]
    assert heads[0] == heads[1]  # the digest of the whole run, causes included


def test_step_digests_tell_runs_apart() -> None:
    one, other = (react(Scripted([asks(), text]), [lookup], "g") for text in ("a", "b"))
    assert one.step_digests[0] == other.step_digests[0]
    assert one.step_digests[1] != other.step_digests[1]


def test_a_document_streams_and_stops_as_the_plan_does() -> None:
    sink, token, made = TokenLog(), CancelToken(), []
    react(scripted(), [lookup], "g", document=react_document(), sink=sink)
    assert len(sink.deltas) == 13

    @tool
    def work(n: int) -> int:
        made.append(n)
        token.cancel("enough")
        return n

    calls = tuple(ToolCall(name="work", arguments={"n": n}) for n in (1, 2))
    model = Scripted([Reply(calls=calls), "done"])
    result = react(model, [work], "g", cancel=token, document=react_document(["work"]))
    assert (made, result.status) == ([1], "cancelled")
    assert result.store.verify().ok


def test_a_document_that_offers_another_tool_is_refused() -> None:
    with pytest.raises(DocumentError):
        react(scripted(), [lookup], "g", document=react_document(["other"]))


def test_the_shipped_document_has_the_ports_of_the_nodes() -> None:
    ports = {
        one.node: set(one.outputs)
        for one in react_document().placements
        if isinstance(one, SingleNode)
    }
    assert ports == {name: set(declared) for name, (_, declared) in PORTS.items()}


# ---- beside the rest


def test_an_experiment_goes_on_from_a_step_with_other_settings(store: SQLiteEventStore) -> None:
    react(Scripted([asks(text="one"), asks(text="two"), "A"]), [lookup], "g", store=store, run="r1")

    def make(change: Any, seed: int) -> ReactAgent:
        return ReactAgent(Scripted([asks(text="other"), change.get("answer", "B")]), [lookup])

    experiment = sag.Experiment(
        store, "r1", step=0, arms={"as it was": {}, "told": {"answer": "C"}}, repeats=2, seed=1,
        agent_factory=make, outcome=lambda ctx: ctx.steps()[-1].payload["thought"] == "C",
    )  # fmt: skip
    result = experiment.run(jobs=1)
    assert result.table_.success.tolist() == [0, 2]
    thoughts = {
        tuple(step.thought for step in ReactResult(store, run).steps) for run in result.runs_.run_id
    }
    assert thoughts == {("one", "other", "B"), ("one", "other", "C")}


def test_memory_is_a_tool() -> None:
    with sag.open(":memory:") as ws:
        step = {"thought": "t", "action": "psql", "observation": "cannot reach postgres: timed out"}
        ws.add({"task_id": "t", "outcome": "success", "steps": [step]})
        memory = sag.tool(MemoryTool(ws).query_past_trajectories)
        assert list(memory.input_schema["properties"]) == ["entity_names", "steps", "failures"]
        model = Scripted([asks(memory.name, {"entity_names": ["postgres"]}), "done"])
        result = sag.react(model, [memory], "why?", store=ws)
        found = json.loads(result.steps[0].observation)
    assert {label for node in found["nodes"] for label in node["labels"]} >= {"Run", "Event"}
