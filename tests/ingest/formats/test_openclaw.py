import json
from collections import Counter
from contextlib import suppress

import pytest
from hypothesis import given, settings

from sag_research.errors import FormatError
from sag_research.ingest import ingest
from sag_research.ingest._source import Source
from sag_research.ingest.conformance import FormatConformance
from sag_research.ingest.formats import recognise
from sag_research.ingest.formats.openclaw import OpenClaw
from sag_research.log import SQLiteEventStore
from tests.ingest.formats.openhands_make import bitten, lines
from tests.ingest.make import write

FORMAT = OpenClaw()
MAIN, CHILD, CHAT = "agent:main:main", "agent:main:subagent:c1", "agent:main:telegram:x"


def read(path, *records):
    reading = FORMAT.read(Source(write(path / "x.jsonl", lines(*records))))
    return list(reading), reading


# ---- messages


def user(text, at=1000):
    return {"role": "user", "content": text, "timestamp": at}


def call(call_id, command):
    arguments = {"command": command, "timeout": 30}
    return {"type": "toolCall", "id": call_id, "name": "exec", "arguments": arguments}


def reply(*blocks, at=2000, **more):
    usage = {"input": 2, "output": 5, "cacheRead": 10, "cacheWrite": 3, "cost": {"total": 0.5}}
    said = {"role": "assistant", "content": list(blocks), "model": "some-model", "usage": usage}
    return {**said, "stopReason": "toolUse", "timestamp": at, **more}


def text(value):
    return {"type": "text", "text": value}


def got(call_id, value, at=3000, **more):
    return {
        "role": "toolResult", "toolCallId": call_id, "toolName": "exec", "content": [text(value)],
        "isError": False, "timestamp": at, **more,
    }  # fmt: skip


# ---- telemetry


def event(kind, session=MAIN, **more):
    return {"type": kind, "sessionKey": session, "agentId": "main", **more}


def tool(session, command, **more):
    params = {"command": command, "timeout": 30}
    return (
        event("tool.start", session, toolName="exec", params=params),
        event("tool.end", session, toolName="exec", durationMs=250, success=True, **more),
    )


TALK = [
    user("Look."),
    reply({"type": "thinking", "thinking": "Hm."}, text("I look."), call("c1", "ls")),
    got("c1", "a.py", details={"exitCode": 0, "durationMs": 40}),
    reply(text("Done."), at=4000, stopReason="stop"),
]


def telemetry():
    return [
        {"type": "message.in", "channel": "chat", "content": "Look.", "metadata": {}},
        event("agent.start", prompt="Look."),
        event("agent.start", prompt="Look.", messages=[]),
        *tool(MAIN, "ls"),
        event("agent.end", messages=TALK, success=True, durationMs=10),
    ]


def test_a_session_of_telemetry(tmp_path):
    (run,), reading = read(tmp_path, *telemetry())
    assert (run.task_id, run.record, run.goal) == (f"x:{MAIN}", MAIN, "Look.")
    assert [(step.thought, step.action, step.observation) for step in run.steps] == [
        ("Hm.\nI look.", "ls", "a.py"), ("Done.", "", ""),
    ]  # fmt: skip
    (only,) = run.steps[0].calls
    assert (only.id, only.name, only.status, only.exit_code) == ("c1", "exec", "ok", 0)
    usage = run.steps[0].usage
    assert (usage.tokens_in, usage.tokens_out, usage.cost_usd) == (15, 5, 0.5)
    assert (run.steps[0].started, run.steps[0].seconds) == (2000, 0.04)
    assert (run.end, run.exit_status, run.outcome) == ("run.completed", "stop", None)
    assert (run.agent, run.model) == ("openclaw", "some-model")
    assert run.config["channel_messages"] == [
        {"type": "message.in", "channel": "chat", "content": "Look."}
    ]
    assert reading.notes == ["1 lines are part of no step: message.in 1"]


def test_snapshots_say_each_message_once(tmp_path):
    cut = [TALK[0], TALK[1], {**TALK[2], "content": [text("[cut]")]}, TALK[3]]
    records = [
        *telemetry(),
        event("agent.start", prompt="Go on."),
        event("agent.start", prompt="Go on.", messages=cut),
        event("agent.end", messages=[*cut, user("Go on.", 5000), reply(text("No."), at=6000)]),
    ]
    (run,), _ = read(tmp_path, *records)
    assert [(step.thought, step.observation) for step in run.steps] == [
        ("Hm.\nI look.", "a.py"), ("Done.", "Go on."), ("No.", ""),
    ]  # fmt: skip
    assert run.end is None  # success is not told


def test_equal_prompts_of_two_turns_are_two(tmp_path):
    twice = [event("agent.start", prompt="Poll.", messages=[]) for _ in range(2)]
    (run,), _ = read(tmp_path, *twice, *tool(MAIN, "ls"))
    assert run.goal == "Poll.\n\nPoll."


def test_tools_that_no_snapshot_holds_are_turns(tmp_path):
    start = event("agent.start", prompt="Look.", messages=[])
    failed = event("tool.end", toolName="exec", success=False, error="no such file")
    (run,), reading = read(tmp_path, start, *tool(MAIN, "ls"), tool(MAIN, "cat b")[0], failed)
    assert [(step.thought, step.action, step.observation) for step in run.steps] == [
        ("", "ls", ""), ("", "cat b", "no such file"),
    ]  # fmt: skip
    assert [step.calls[0].status for step in run.steps] == ["ok", "error"]
    assert [step.seconds for step in run.steps] == [0.25, None]
    assert (run.end, run.exit_status, reading.notes) == (None, None, [])


def test_equal_tools_are_counted(tmp_path):
    snapshot = [user("Look."), reply(call("c1", "ls")), got("c1", "a")]
    start = event("agent.start", prompt="Look.", messages=[])
    (run,), _ = read(
        tmp_path, start, *tool(MAIN, "ls"), *tool(MAIN, "ls"), event("agent.end", messages=snapshot)
    )
    assert [(step.action, step.observation) for step in run.steps] == [("ls", ""), ("ls", "a")]


def test_tools_under_another_name_of_the_session(tmp_path):
    start = event("agent.start", prompt="Look.", messages=[])
    (run,), reading = read(tmp_path, start, *tool(CHAT, "ls"), *tool(CHAT, "cat a"))
    assert (run.record, [step.action for step in run.steps]) == (MAIN, ["ls", "cat a"])
    (note,) = reading.notes
    assert note.startswith(f"2 tools of {CHAT} are taken for those of {MAIN}")
    (alone,), _ = read(tmp_path, *tool(CHAT, "ls"))  # nobody began: it is its own session
    assert (alone.record, len(alone.steps)) == (CHAT, 1)


def spawn(result="", task="Count."):
    block = {"type": "toolCall", "id": "s1", "name": "sessions_spawn", "arguments": {"task": task}}
    return [user("Go."), reply(block), got("s1", result, toolName="sessions_spawn")]


@pytest.mark.parametrize("result", [json.dumps({"childSessionKey": CHILD}), "no JSON"])
def test_a_sub_agent_comes_behind_its_caller(tmp_path, result):
    child = [event("agent.start", CHILD, prompt="[Task]: Count. Report."), *tool(CHILD, "wc a")]
    (first, second), _ = read(tmp_path, *child, event("agent.end", messages=spawn(result)))
    assert (first.record, second.record) == (MAIN, CHILD)
    assert (second.parent, second.parent_step, second.relation) == (MAIN, 0, "subagent")
    assert (second.agent, second.goal) == ("openclaw/subagent", "[Task]: Count. Report.")


def test_sub_agents_in_a_circle_are_runs(tmp_path):
    def calls(child):
        return spawn(json.dumps({"childSessionKey": child}))

    other = CHILD + "2"
    runs, _ = read(
        tmp_path,
        event("agent.end", CHILD, messages=calls(other)),
        event("agent.end", other, messages=calls(CHILD)),
    )
    assert {run.record for run in runs} == {CHILD, other}
    assert [run.parent for run in runs] == [None, runs[0].record]


def test_odd_telemetry(tmp_path):
    (run,), reading = read(
        tmp_path,
        b"{",
        [1],
        event("agent.start", prompt=3, messages=["x", TALK[0], {"role": "judge"}, TALK[1]]),
        event("agent.start", CHILD, prompt="Nothing comes."),
        event("tool.end", toolName="exec"),
        {"type": "llm.usage"},
        {"sessionKey": MAIN},
    )
    assert [step.action for step in run.steps] == ["ls"]
    assert "line 1: JSON that is cut short" in reading.notes[0]
    assert reading.notes[1:] == [
        "line 2: no object",
        "2 lines are part of no step: (no type) 1, llm.usage 1",
        "1 tools ended that did not begin",
        "1 messages are no objects",
        f"{CHILD}: no turn of the model in it",
        f"{MAIN}: messages of unknown roles: judge 1",
    ]


# ---- transcripts


def entry(entry_id, parent, message, **more):
    return {
        "type": "message", "id": entry_id, "parentId": parent,
        "timestamp": "2026-01-01T00:00:00Z", "message": message, **more,
    }  # fmt: skip


HEADER = {
    "type": "session", "version": 3, "id": "s-1", "timestamp": "2026-01-01T00:00:00Z",
    "cwd": "/home/a/.openclaw/workspace",
}  # fmt: skip


def transcript():
    return [
        HEADER,
        {"type": "model_change", "id": "m", "parentId": None, "timestamp": "", "modelId": "other"},
        entry("a", "m", TALK[0]),
        entry("b", "a", TALK[1]),
        entry("c", "b", TALK[2]),
        entry("d", "c", TALK[3]),
    ]


def test_a_transcript(tmp_path):
    (run,), reading = read(tmp_path, *transcript())
    assert (run.task_id, run.record, run.goal) == ("x", None, "Look.")
    assert [(step.action, step.observation) for step in run.steps] == [("ls", "a.py"), ("", "")]
    assert (run.agent, run.model, run.end) == ("openclaw", "some-model", None)
    assert (run.config["session_id"], run.config["cwd"]) == ("s-1", HEADER["cwd"])
    assert reading.notes == ["1 lines are part of no step: model_change 1"]


def test_branches_are_runs(tmp_path):
    (main, side), _ = read(
        tmp_path,
        *transcript(),
        entry("e", "b", got("c1", "other")),  # the same call came back with something else
        entry("f", "e", user("Now this.")),
        entry("g", "f", reply(text("Yes."), call("c2", "pwd"), at=9000)),
        entry("h", "d", user("Go on.", 9500)),
        entry("i", "h", reply(text("Right."), at=9900)),
    )
    assert [step.thought for step in main.steps] == ["Hm.\nI look.", "Done.", "Right."]
    assert main.steps[1].observation == "Go on."
    assert (side.parent, side.parent_step, side.relation) == (main.record, 0, "fork")
    assert [(step.thought, step.action) for step in side.steps] == [("Yes.", "pwd")]
    assert side.goal == "Now this."
    assert side.config["results_before_the_first_turn"] == ["other"]


def test_what_the_user_and_the_harness_say(tmp_path):
    summary = {"type": "compaction", "id": "s", "parentId": "d", "summary": "So far: a.py."}
    shell = {"role": "bashExecution", "command": "pwd", "output": "/home"}
    (run,), _ = read(tmp_path, *transcript(), summary, entry("x", "s", shell))
    assert run.steps[-1].observation == "So far: a.py.\n$ pwd\n/home"


def test_lines_without_parents_follow_each_other(tmp_path):
    bare = [{"type": "message", "message": one} for one in TALK]
    header = {name: HEADER[name] for name in HEADER if name != "cwd"}
    (run,), _ = read(tmp_path, header, *bare)
    assert ([step.action for step in run.steps], run.agent) == (["ls", ""], None)


def test_a_reply_that_failed(tmp_path):
    bad = reply(at=9000, stopReason="error", errorMessage="overloaded")
    (run,), _ = read(tmp_path, *transcript(), entry("e", "d", bad))
    assert (run.end, run.exit_status) == ("run.failed", "error")
    assert run.steps[-1].state == {"corrections": ["overloaded"]}


@pytest.mark.parametrize(
    "record",
    [
        {"type": "message", "role": "user", "content": "x"},
        {"type": "session", "id": "x"},
        {"type": "tool.start", "name": "x"},
        {"parentUuid": None, "type": "user", "sessionId": "s", "uuid": "u", "message": {}},
    ],
)
def test_what_is_of_others(record):
    assert FORMAT.sniff(json.dumps(record).encode(), None) == 0


class TestTelemetry(FormatConformance):
    def format(self):
        return OpenClaw()

    def examples(self, folder):
        records = [*telemetry(), event("agent.end", CHILD, messages=TALK)]
        return [write(folder / "telemetry.jsonl", lines(*records))]


class TestTranscript(FormatConformance):
    def format(self):
        return OpenClaw()

    def examples(self, folder):
        fork = entry("g", "a", reply(text("No."), at=9000))
        return [write(folder / "session.jsonl", lines(*transcript(), fork))]


@pytest.mark.parametrize("good", [lines(*telemetry()), lines(*transcript())], ids=["t", "s"])
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
    odd = lines(*transcript()).replace(b"I look.", b"I \\ud835 \xff")
    (run,) = FORMAT.read(Source(write(tmp_path / "x.jsonl", odd)))
    assert run.steps[0].thought == "Hm.\nI \ud835 \udcff"


# ---- real files


def raw_lines(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def told(path):
    """Per session the distinct replies and results of all snapshots, straight from the file."""
    found = {}
    for line in raw_lines(path):
        for message in line.get("messages") or []:
            key = (message["role"], message["timestamp"], message.get("toolCallId"))
            found.setdefault(line["sessionKey"], {}).setdefault(key, message)
    return found


def test_real_telemetry(real_data):
    folder = real_data / "openclaw_telemetry"
    counts = Counter()
    for path in sorted(folder.rglob("*.jsonl")):
        source = Source(path)
        assert recognise(source).name == "openclaw"
        runs = {run.record: run for run in FORMAT.read(source)}
        for session, messages in told(path).items():
            replies = [one for one in messages.values() if one["role"] == "assistant"]
            results = [one for one in messages.values() if one["role"] == "toolResult"]
            calls = [
                block["id"]
                for one in replies
                for block in one["content"]
                if block["type"] == "toolCall"
            ]
            steps = runs[session].steps[: len(replies)]
            assert [len(step.calls) for step in steps] == [
                sum(block["type"] == "toolCall" for block in one["content"]) for one in replies
            ]
            assert [one.id for step in steps for one in step.calls] == calls
            assert {one.id: one.observation for step in steps for one in step.calls} == {
                one["toolCallId"]: "\n".join(block["text"] for block in one["content"])
                for one in results
            }
            assert [step.usage.tokens_out for step in steps] == [
                one["usage"]["output"] for one in replies
            ]
            counts += Counter(replies=len(replies), results=len(results))
    assert counts == {"replies": 14, "results": 13}


def test_real_tools_are_each_one_call(real_data):
    """Every tool that began is a call: of a reply in a snapshot, or of a turn of its own."""
    path = next((real_data / "openclaw_telemetry").rglob("sample-telemetry.jsonl"))
    began = Counter(
        json.dumps(line["params"], sort_keys=True)
        for line in raw_lines(path)
        if line["type"] == "tool.start"
    )
    runs = list(FORMAT.read(Source(path)))
    calls = [one for run in runs for step in run.steps for one in step.calls]
    assert Counter(json.dumps(one.arguments, sort_keys=True) for one in calls) == began
    assert sum(began.values()) == len(calls) == 14
    assert {one.status for one in calls} == {"ok"}
    assert [(run.parent, run.parent_step, len(run.steps)) for run in runs] == [
        (None, None, 9), (MAIN, 4, 3), (MAIN, 4, 1), (MAIN, 4, 1),
    ]  # fmt: skip
    assert all(run.outcome is None for run in runs)


def test_real_runs_are_ingested(real_data):
    with SQLiteEventStore(":memory:") as store:
        report = ingest(store, [real_data / "openclaw_telemetry"], progress=False)
        assert report.by_format == {"openclaw": {"files": 2, "runs": 6, "steps": 22}}
        assert (report.rejected, report.ignored) == ([], [])
