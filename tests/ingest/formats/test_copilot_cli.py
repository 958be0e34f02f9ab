import json
from contextlib import suppress

import pytest
from hypothesis import given, settings

from sag_research.errors import FormatError
from sag_research.ingest._source import Source
from sag_research.ingest.conformance import FormatConformance
from sag_research.ingest.formats.copilot_cli import CopilotCli
from tests.ingest.formats.openhands_make import bitten, lines
from tests.ingest.make import tool_call, write

FORMAT = CopilotCli()


def event(kind, second=0, agent=None, **data):
    found = {
        "type": kind, "data": data, "id": f"{kind}-{second}", "parentId": None,
        "timestamp": f"2026-01-01T00:00:{second:02}.000Z",
    }  # fmt: skip
    return found if agent is None else {**found, "agentId": agent}


def start(**more):
    context = {"cwd": "/repo", "repository": "some/repo", "branch": "main"}
    return event(
        "session.start", sessionId="s-1", producer="copilot-agent", context=context, **more
    )


def asks(call_id="c1", name="bash", **arguments):
    return {"toolCallId": call_id, "name": name, "arguments": arguments or {"command": "ls"}}


def said(text, *requests, second=1, message="m1", agent=None, **more):
    return event(
        "assistant.message", second, agent, messageId=message, content=text,
        toolRequests=list(requests), **more,
    )  # fmt: skip


def tool(call_id="c1", text="a.py\n<exited with exit code 0>", second=2, agent=None, **more):
    done = {"success": True, "result": {"content": text}, **more}
    return [
        event("tool.execution_start", second, agent, toolCallId=call_id, toolName="bash",
              arguments={"command": "ls"}, model="big"),
        event("tool.execution_complete", second + 3, agent, toolCallId=call_id, **done),
    ]  # fmt: skip


def session():
    return [
        start(),
        event("user.message", content="Look."),
        event("assistant.turn_start", turnId="0"),
        said("I look.", asks(), reasoningText="Hm.", outputTokens=7),
        *tool(),
        said("Done.", second=9, message="m2"),
        event("session.shutdown", 10, shutdownType="routine", modelMetrics={
            "big": {"requests": {"cost": 1}, "usage": {"inputTokens": 50, "outputTokens": 9}},
        }),
    ]  # fmt: skip


def read(path, *records, name="x.jsonl"):
    reading = FORMAT.read(Source(write(path / name, lines(*records))))
    return list(reading), reading


def test_a_session(tmp_path):
    (run,), reading = read(tmp_path, *session())
    assert (run.task_id, run.record, run.goal, run.repo) == ("x", None, "Look.", "some/repo")
    assert [(step.thought, step.action) for step in run.steps] == [
        ("Hm.\nI look.", "ls"), ("Done.", ""),
    ]  # fmt: skip
    (call,) = run.steps[0].calls
    assert (call.id, call.name, call.status, call.exit_code) == ("c1", "bash", "ok", 0)
    assert run.steps[0].observation == call.observation == "a.py\n<exited with exit code 0>"
    assert run.steps[0].seconds == 3.0
    assert run.steps[0].started == 1_767_225_601.0
    assert (run.steps[0].usage.tokens_in, run.steps[0].usage.tokens_out) == (None, 7)
    assert (run.usage.tokens_in, run.usage.tokens_out, run.usage.cost_usd) == (50, 9, None)
    assert (run.agent, run.model, run.end, run.exit_status, run.outcome) == (
        "copilot-cli", "big", "run.completed", "routine", None,
    )  # fmt: skip
    assert run.config["sessionId"] == "s-1"
    assert reading.notes == [
        "3 lines are part of no step: assistant.turn_start 1, session.shutdown 1, session.start 1"
    ]


def test_all_sessions_are_called_events(tmp_path):
    assert read(tmp_path, *session(), name="events.jsonl")[0][0].task_id == "s-1"
    assert read(tmp_path / "id-7", *session()[1:], name="events.jsonl")[0][0].task_id == "id-7"


def test_chunks_of_a_reply_are_one_step(tmp_path):
    first = said("One.", asks(), message="m1", apiCallId="k", outputTokens=7)
    second = said("Two.", asks(), asks("c2", "view", path="b"), message="m2", apiCallId="k",
                  outputTokens=7)  # fmt: skip
    (run,), _ = read(tmp_path, first, second, *tool(), *tool("c2", "text"))
    (step,) = run.steps
    assert (step.thought, [call.id for call in step.calls]) == ("One.\nTwo.", ["c1", "c2"])
    assert step.usage.tokens_out == 7
    assert [call.observation for call in step.calls] == ["a.py\n<exited with exit code 0>", "text"]


@pytest.mark.parametrize(
    "events",
    [
        [event("assistant.reasoning", content="Hm."), said("I look.")],
        [said("I look."), event("assistant.reasoning", content="Hm.")],
        [said("I look.", reasoningText="Hm."), event("assistant.reasoning", content="Hm.")],
    ],
)
def test_reasoning_beside_its_reply(tmp_path, events):
    (run,), _ = read(tmp_path, *events)
    assert [step.thought for step in run.steps] == ["Hm.\nI look."]


def test_reasoning_of_the_next_reply(tmp_path):
    (run,), _ = read(
        tmp_path,
        said("One.", asks()),
        *tool(),
        event("assistant.reasoning", content="Hm."),
        said("Two.", message="m2"),
    )
    assert [step.thought for step in run.steps] == ["One.", "Hm.\nTwo."]


def test_tools_that_no_message_asked_for(tmp_path):
    (run,), reading = read(tmp_path, *tool("u1"), tool("u2", "lost")[1])
    (step,) = run.steps
    assert (step.thought, step.action, step.calls[0].status) == ("", "ls", "ok")
    assert step.observation == "a.py\n<exited with exit code 0>\nlost"
    assert reading.notes == ["1 results name a call that is not in their run"]


@pytest.mark.parametrize(
    ("done", "status", "code", "seen", "flags"),
    [
        ({"result": {"content": "x\n<exited with exit code 1>"}}, "error", 1,
         "x\n<exited with exit code 1>", ()),
        ({"result": "text"}, "ok", None, "text", ()),
        ({"result": {"detailedContent": "more"}}, "ok", None, "more", ()),
        ({"success": None, "result": None}, "unknown", None, "", ()),
        ({"success": False, "result": None, "error": {"message": "no", "code": "failure"}},
         "error", None, "no", ()),
        ({"success": False, "result": None, "error": {"message": "no", "code": "denied"}},
         "error", None, "no", ("rejected",)),
        ({"success": False, "result": 3, "error": {"code": ["denied"]}}, "error", None, "3", ()),
    ],
)  # fmt: skip
def test_how_a_tool_went(tmp_path, done, status, code, seen, flags):
    (run,), _ = read(tmp_path, said("", asks()), *tool(**done))
    (step,) = run.steps
    (call,) = step.calls
    assert (call.status, call.exit_code, call.observation) == (status, code, seen)
    assert step.flags == flags


def caller(call_id="t1"):
    return said("", asks(call_id, "task", prompt="Count.", agent_type="helper"))


def test_a_sub_agent_is_a_run(tmp_path):
    (main, sub), _ = read(
        tmp_path,
        event("user.message", content="Go."),
        caller(),
        event("subagent.started", agent="helper-1", toolCallId="t1", agentName="helper"),
        said("I count.", asks("c9"), message="m9", agent="helper-1"),
        *tool("c9", "3", agent="helper-1"),
        event("subagent.completed", agent="helper-1", toolCallId="t1"),
        *tool("t1", "There are 3."),
        said("Three.", message="m3"),
    )
    assert [step.thought for step in main.steps] == ["", "Three."]
    assert main.steps[0].observation == "There are 3."
    assert [(step.thought, step.observation) for step in sub.steps] == [("I count.", "3")]
    assert (sub.parent, sub.parent_step, sub.relation) == ("main", 0, "subagent")
    assert (sub.record, sub.goal, sub.agent) == ("t1", "Count.", "copilot-cli/subagent")
    assert (sub.end, main.end) == ("run.completed", None)


def test_an_old_sub_agent_names_the_call(tmp_path):
    (main, sub), _ = read(
        tmp_path,
        caller(),
        said("I count.", message="m9", parentToolCallId="t1"),
        event("subagent.failed", toolCallId="t1", error="x"),
    )
    assert (len(main.steps), len(sub.steps)) == (1, 1)
    assert (sub.parent, sub.end, sub.exit_status) == ("main", "run.failed", "subagent.failed")


def test_sub_agents_in_a_circle_are_runs(tmp_path):
    runs, _ = read(
        tmp_path,
        said("", asks("b", "task"), message="1", agent="a"),
        said("", asks("a", "task"), message="2", agent="b"),
        said("", asks("c", "task"), message="3", agent="c"),
    )
    assert {run.record for run in runs} == {"main", "a", "b", "c"}
    seen = set()
    for run in runs:
        assert run.parent is None or run.parent in seen
        seen.add(run.record)


@pytest.mark.parametrize(
    ("last", "end", "status"),
    [
        ([event("abort", reason="user")], "run.cancelled", "abort"),
        ([event("session.shutdown", shutdownType="error")], "run.failed", "error"),
        ([{"type": "result", "exitCode": 1}], "run.failed", "exit code 1"),
        ([{"type": "result", "exitCode": 0}], "run.completed", "exit code 0"),
        ([event("abort"), event("user.message", content="Go on.")], None, None),
        ([event("session.task_complete", success=True, summary="Done.")], None, None),
        ([], None, None),
    ],
)
def test_how_a_session_ended(tmp_path, last, end, status):
    (run,), _ = read(tmp_path, said("a"), *last)
    assert (run.end, run.exit_status, run.outcome) == (end, status, None)


def test_the_last_totals_count(tmp_path):
    def shutdown(tokens):
        usage = {"usage": {"inputTokens": tokens, "outputTokens": 1}}
        return event("session.shutdown", shutdownType="routine", modelMetrics={"big": usage})

    (run,), _ = read(tmp_path, said("a"), shutdown(10), said("b", message="m2"), shutdown(30))
    assert (run.usage.tokens_in, run.end) == (30, "run.completed")


def test_what_is_streamed_is_said_again(tmp_path):
    (run,), reading = read(
        tmp_path,
        event("assistant.message_delta", deltaContent="I "),
        said("I look."),
        event("assistant.usage", model="big", inputTokens=20, outputTokens=4, cost=1),
    )
    (step,) = run.steps
    assert (step.usage.tokens_in, step.usage.tokens_out, step.usage.cost_usd) == (20, 4, None)
    assert (run.model, reading.notes) == ("big", [])


def test_chats_of_the_editor(tmp_path):
    asked = {"toolCallId": "c1", "name": "read_file", "arguments": '{"path": "a"}'}
    (run,), _ = read(tmp_path, start(vscodeVersion="1"), said("", asked))
    assert (run.agent, run.steps[0].calls[0].arguments) == ("copilot-chat", {"path": "a"})


def test_odd_lines(tmp_path):
    (run,), reading = read(
        tmp_path,
        b"{",
        [1],
        {"type": "assistant.message", "data": 3},
        {"type": "assistant.message", "data": {"content": [{"a": 1}], "toolRequests": [3, {}]}},
        {"type": "hook.start", "data": {}, "timestamp": ["x"]},
        {"data": {}},
    )
    assert len(run.steps) == 2
    assert [note.split(":")[0] for note in reading.notes] == [
        "line 1", "line 2", "2 lines are part of no step",
    ]  # fmt: skip
    with pytest.raises(FormatError, match="no event"):
        read(tmp_path, {"a": 1})


# ---- dumps of the first versions


def dump():
    return {
        "sessionId": "s-0",
        "startTime": "2025-10-01T00:00:00Z",
        "chatMessages": [
            {"role": "user", "content": "Look."},
            {"role": "assistant", "content": "I look.",
             "tool_calls": [tool_call("bash", {"command": "ls"})]},
            {"role": "tool", "tool_call_id": "c1", "content": "a.py"},
        ],
        "timeline": [],
    }  # fmt: skip


def test_a_dump(tmp_path):
    path = write(tmp_path / "session.json", dump())
    reading = FORMAT.read(Source(path))
    (run,) = reading
    assert (run.task_id, run.goal, reading.version) == ("s-0", "Look.", "history")
    assert [(step.thought, step.action, step.observation) for step in run.steps] == [
        ("I look.", "ls", "a.py")
    ]
    with pytest.raises(FormatError, match="no message"):
        list(FORMAT.read(Source(write(path, {**dump(), "chatMessages": [3]}))))


@pytest.mark.parametrize(
    "record",
    [
        {"type": "assistant.message", "text": "x"},
        {"type": "assistant", "data": {}},
        {"sessionId": "s", "messages": []},
        {"type": "session.updated", "properties": {}},
    ],
)
def test_what_is_of_others(record):
    assert FORMAT.sniff(json.dumps(record).encode(), None) == 0


class TestEvents(FormatConformance):
    def format(self):
        return CopilotCli()

    def examples(self, folder):
        sub = [said("I count.", message="m9", agent="c1")]
        return [write(folder / "events.jsonl", lines(*session(), *sub))]


class TestDump(FormatConformance):
    def format(self):
        return CopilotCli()

    def examples(self, folder):
        return [write(folder / "session.json", dump())]


@pytest.mark.parametrize(
    "good", [lines(*session()), json.dumps(dump()).encode()], ids=["events", "dump"]
)
def test_any_bytes_give_runs_or_a_reason(tmp_path_factory, good):
    folder = tmp_path_factory.mktemp("bytes")

    @settings(max_examples=60)
    @given(bitten(good))
    def check(data):
        source = Source(write(folder / "x.jsonl", data))
        FORMAT.sniff(data[:4096], source.path)
        with suppress(FormatError):
            reading = FORMAT.read(source)
            assert list(reading) or reading.refused

    check()


def test_half_characters_stay(tmp_path):
    odd = lines(*session()).replace(b"I look.", b"I \\ud835 \xff")
    (run,) = FORMAT.read(Source(write(tmp_path / "x.jsonl", odd)))
    assert run.steps[0].thought == "Hm.\nI \ud835 \udcff"
