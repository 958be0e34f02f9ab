import json
from contextlib import suppress

import pytest
from hypothesis import given, settings

from sag_research.errors import FormatError
from sag_research.ingest import ingest
from sag_research.ingest._source import Source
from sag_research.ingest.conformance import FormatConformance
from sag_research.ingest.formats.opencode import OpenCode
from sag_research.log import SQLiteEventStore
from tests.ingest.formats.openhands_make import bitten, lines
from tests.ingest.make import write

FORMAT = OpenCode()
MINUTE = 1_700_000_000_000
"""Milliseconds since the epoch."""


def info(**more):
    return {
        "id": "ses_1", "version": "1.0.0", "projectID": "p", "directory": "/repo",
        "title": "Look", "time": {"created": MINUTE, "updated": MINUTE + 9}, **more,
    }  # fmt: skip


def text(value, **more):
    return {"type": "text", "text": value, **more}


def tool(name="bash", status="completed", call_id="call_1", **more):
    state = {
        "status": status, "input": {"command": "ls", "description": "List."}, "output": "a.py\n",
        "metadata": {"exit": 0}, "time": {"start": MINUTE + 100, "end": MINUTE + 350}, **more,
    }  # fmt: skip
    return {"type": "tool", "callID": call_id, "tool": name, "state": state}


def tokens(**more):
    return {
        "input": 2, "output": 5, "reasoning": 3, "cache": {"read": 10, "write": 1}, **more,
    }  # fmt: skip


def finish(cost=0.5, reason="tool-calls", **more):
    return {"type": "step-finish", "reason": reason, "cost": cost, "tokens": tokens(**more)}


START = {"type": "step-start", "snapshot": "aa"}


def user(*parts, message="msg_1"):
    return {"info": {"id": message, "role": "user", "time": {"created": MINUTE}}, "parts": [*parts]}


def reply(*parts, message="msg_2", **more):
    about = {
        "id": message, "role": "assistant", "modelID": "big", "providerID": "some", "mode": "build",
        "time": {"created": MINUTE + 50}, "cost": 9, "tokens": tokens(input=99), **more,
    }  # fmt: skip
    return {"info": about, "parts": [*parts]}


def export():
    return {
        "info": info(),
        "messages": [
            user(text("Look."), text("(the file's content)", synthetic=True)),
            reply(
                START, {"type": "reasoning", "text": "Hm."}, text("I look."), tool(), finish(),
                finish="tool-calls",
            ),
            reply(START, text("Done."), finish(reason="stop"), message="msg_3", finish="stop"),
        ],
        "todos": [],
    }  # fmt: skip


def read(path, value):
    reading = FORMAT.read(Source(write(path, value)))
    return list(reading), reading


def one(path, *messages, **more):
    (run,), _ = read(path / "x.json", {"info": info(**more), "messages": [*messages]})
    return run


def test_an_export(tmp_path):
    (run,), reading = read(tmp_path / "task-7.json", export())
    assert (run.task_id, run.record, run.goal) == ("task-7", None, "Look.")
    assert [(step.thought, step.action, step.observation) for step in run.steps] == [
        ("Hm.\nI look.", "ls", "a.py\n"), ("Done.", "", ""),
    ]  # fmt: skip
    (call,) = run.steps[0].calls
    assert (call.id, call.name, call.status, call.exit_code) == ("call_1", "bash", "ok", 0)
    assert call.arguments == {"command": "ls", "description": "List."}
    assert (run.steps[0].started, run.steps[0].seconds) == (MINUTE / 1000 + 0.05, 0.25)
    usage = run.steps[0].usage
    assert (usage.tokens_in, usage.tokens_out, usage.cost_usd) == (13, 5, 0.5)
    assert (run.agent, run.model, run.end, run.exit_status, run.outcome) == (
        "opencode", "some/big", "run.completed", "stop", None,
    )  # fmt: skip
    assert (run.config["session_id"], run.config["agents"]) == ("ses_1", ["build"])
    assert (reading.notes, reading.refused, reading.version) == ([], [], "export")


def test_a_common_name_says_nothing(tmp_path):
    assert read(tmp_path / "export.json", export())[0][0].task_id == "ses_1"


def test_a_message_of_several_replies(tmp_path):
    parts = [START, tool(), finish(cost=1), START, text("Done."), finish(cost=2)]
    run = one(tmp_path, user(text("Go.")), reply(*parts))
    assert [(step.action, step.usage.cost_usd) for step in run.steps] == [("ls", 1), ("", 2)]


def test_what_a_message_took_serves_one_reply(tmp_path):
    run = one(tmp_path, reply(text("a")), reply(START, text("b"), START, text("c")))
    assert [step.usage and step.usage.tokens_in for step in run.steps] == [110, None, None]


@pytest.mark.parametrize(
    ("told", "output"),
    [({}, 5), ({"total": 18}, 5), ({"total": 21}, 8), ({"output": 0}, 3), ({"reasoning": 0}, 5)],
)
def test_reasoning_is_counted_within_the_output_or_beside_it(tmp_path, told, output):
    run = one(tmp_path, reply(START, text("a"), finish(**told)))
    assert run.steps[0].usage.tokens_out == output


def test_what_nobody_counted_is_unknown(tmp_path):
    zero = {"input": 0, "output": 0, "reasoning": 0, "cache": {"read": 0, "write": 0}}
    run = one(tmp_path, reply(text("a"), cost=0, tokens=zero))
    assert run.steps[0].usage is None


@pytest.mark.parametrize(
    ("state", "status", "code", "seen", "flags"),
    [
        ({"metadata": {"exit": 2}}, "error", 2, "a.py\n", ()),
        ({"metadata": {}}, "ok", None, "a.py\n", ()),
        ({"status": "error", "error": "no file"}, "error", 0, "no file", ()),
        ({"status": "running", "output": None}, "unknown", 0, "", ()),
        ({"status": ["x"], "metadata": 3}, "unknown", None, "a.py\n", ()),
        (
            {"status": "error", "error": "The user rejected permission to use this tool call."},
            "error", 0, "The user rejected permission to use this tool call.", ("rejected",),
        ),
    ],
)  # fmt: skip
def test_how_a_tool_went(tmp_path, state, status, code, seen, flags):
    (step,) = one(tmp_path, reply(tool(**state))).steps
    (call,) = step.calls
    assert (call.status, call.exit_code, call.observation) == (status, code, seen)
    assert step.flags == flags


def test_one_refused_call_of_two_is_no_rejected_step(tmp_path):
    refused = tool(status="error", error="The user rejected permission to use this tool call.")
    (step,) = one(tmp_path, reply(refused, tool(call_id="call_2"))).steps
    assert (len(step.calls), step.flags) == (2, ())


def test_what_the_user_says_later_is_heard(tmp_path):
    later = user(
        text("And b?"), text("Called the Read tool", synthetic=True), text("no", ignored=True),
        {"type": "file", "filename": "b.py"}, {"type": "subtask", "prompt": "Count."},
        {"type": "agent", "name": "x"},
    )  # fmt: skip
    run = one(tmp_path, user(text("Go.")), reply(text("a")), later)
    assert run.steps[0].observation == "And b?\nCalled the Read tool\n[file b.py]\nCount."


def test_what_was_reverted_and_what_was_summed_up(tmp_path):
    run = one(
        tmp_path,
        reply(text("a"), message="m1"),
        reply(text("b"), message="m2", summary=True),
        reply(text("c"), message="m3"),
        revert={"messageID": "m2"},
    )
    assert [step.flags for step in run.steps] == [(), ("compaction", "reverted"), ("reverted",)]


@pytest.mark.parametrize(
    ("name", "end"), [("MessageAbortedError", "run.cancelled"), ("APIError", "run.failed")]
)
def test_a_reply_that_ended_with_an_error(tmp_path, name, end):
    error = {"name": name, "data": {"message": "x"}}
    run = one(tmp_path, reply(text("a"), finish="stop"), reply(START, error=error))
    assert (len(run.steps), run.end, run.exit_status) == (1, end, name)
    assert run.config["errors"] == [error]
    again = one(tmp_path, reply(error=error), reply(text("a"), finish="stop"))
    assert again.end == "run.completed"


def test_a_sub_agent_names_its_session(tmp_path):
    run = one(tmp_path, reply(text("a")), parentID="ses_0")
    assert (run.agent, run.config["parent_session"], run.parent) == (
        "opencode/subagent", "ses_0", None,
    )  # fmt: skip


def test_odd_messages(tmp_path):
    parts = [3, {"type": "hologram"}, {"type": "patch", "hash": "h", "files": ["a"]}, text("a")]
    value = {"info": info(), "messages": ["x", {}, {"info": 3, "parts": 4}, reply(*parts)]}
    (run,), reading = read(tmp_path / "x.json", value)
    assert run.steps[0].state == {"patch": {"hash": "h", "files": ["a"]}}
    assert reading.notes == [
        "1 messages are no objects",
        "3 messages or parts are of another shape",
        "1 parts are part of no step: hologram 1",
    ]
    with pytest.raises(FormatError, match="no message"):
        read(tmp_path / "y.json", {"info": info(), "messages": [3]})


# ---- the storage


def store(folder):
    value = export()
    write(folder / "session/p/ses_1.json", value["info"])
    for message in value["messages"]:
        name = message["info"]["id"]
        write(folder / f"message/ses_1/{name}.json", message["info"])
        for number, part in enumerate(message["parts"]):
            write(folder / f"part/{name}/prt_{number:03}.json", part)
    return folder / "session/p/ses_1.json"


def test_a_stored_session(tmp_path):
    path = store(tmp_path / "storage")
    write(path.parents[2] / "part/msg_2/prt_009.json", b"{")
    reading = FORMAT.read(Source(path))
    (run,), (exported,) = list(reading), read(tmp_path / "ses_1.json", export())[0]
    assert (run.steps, run.goal, run.task_id) == (exported.steps, exported.goal, "ses_1")
    assert reading.version == "storage"
    (note,) = reading.notes
    assert note.startswith("prt_009.json: JSON that is cut short")


def test_a_storage_is_ingested(tmp_path):
    store(tmp_path / "storage")
    with SQLiteEventStore(":memory:") as log:
        report = ingest(log, [tmp_path / "storage"], progress=False)
        assert report.by_format == {"opencode": {"files": 1, "runs": 1, "steps": 2}}
        assert report.rejected == []


def test_a_stored_session_alone_is_refused(tmp_path):
    with pytest.raises(FormatError, match="no message") as caught:
        FORMAT.read(Source(write(tmp_path / "ses_1.json", info())))
    assert "without its messages" in str(caught.value)


@pytest.mark.parametrize("name", ["../message/ses_1", "..", "/etc", "", None, 3, ["a"]])
def test_ids_lead_nowhere_else(tmp_path, name):
    path = store(tmp_path / "storage")
    write(path, info(id=name))
    with pytest.raises(FormatError, match="no message"):
        FORMAT.read(Source(path))


# ---- run --format json


def test_a_message_that_is_listed_twice_is_read_once(tmp_path):
    value = export()
    (plain,), _ = read(tmp_path / "x.json", value)
    value["messages"] += value["messages"][1:]
    (run,), reading = read(tmp_path / "x.json", value)
    assert run.steps == plain.steps
    assert reading.notes == ["2 messages are there twice: the first one of each is taken"]


def printed(kind, part=None, session="ses_1", **more):
    line = {"type": kind, "timestamp": MINUTE, "sessionID": session, **more}
    return line if part is None else {**line, "part": part}


def run_lines():
    return [
        printed("step_start", {**START, "messageID": "m1"}),
        printed("text", {**text("I look."), "messageID": "m1"}),
        printed("tool_use", {**tool(), "messageID": "m1"}),
        printed("step_finish", {**finish(), "messageID": "m1"}),
        printed("step_start", START),
        printed("text", text("Done.")),
        printed("step_finish", finish(reason="stop")),
    ]


def test_a_printed_run(tmp_path):
    (run,), reading = read(tmp_path / "x.jsonl", lines(*run_lines()))
    assert [(step.thought, step.action, step.observation) for step in run.steps] == [
        ("I look.", "ls", "a.py\n"), ("Done.", "", ""),
    ]  # fmt: skip
    assert [step.usage.cost_usd for step in run.steps] == [0.5, 0.5]
    assert (run.goal, run.record, run.end, run.exit_status) == ("", None, "run.completed", "stop")
    assert (run.config["session_id"], reading.notes) == ("ses_1", [])


def test_printed_sessions_and_errors(tmp_path):
    error = printed("error", session="ses_2", error={"name": "APIError", "data": {}})
    other = printed("text", text("No."), session="ses_2")
    (first, second), reading = read(
        tmp_path / "x.jsonl", lines(b"{", *run_lines(), other, error, printed("text"))
    )
    assert (first.record, second.record) == ("ses_1", "ses_2")
    assert (second.end, second.exit_status) == ("run.failed", "APIError")
    assert [note.split(":")[0] for note in reading.notes] == ["line 1", "1 lines have no part"]


@pytest.mark.parametrize(
    "value",
    [
        {"info": {"exit_status": "x"}, "messages": []},
        {"messages": [reply()]},
        {"id": "x", "projectID": "p", "directory": "d", "title": "t", "time": {}},
        {"type": "tool_use", "timestamp": "t", "tool_name": "glob"},
        {"type": "text", "part": {}},
    ],
)
def test_what_is_of_others(value):
    assert FORMAT.sniff(json.dumps(value).encode(), None) == 0


class TestExport(FormatConformance):
    def format(self):
        return OpenCode()

    def examples(self, folder):
        pretty = json.dumps(export(), indent=2).encode()
        return [write(folder / "a.json", export()), write(folder / "b.json", pretty)]


class TestRun(FormatConformance):
    def format(self):
        return OpenCode()

    def examples(self, folder):
        return [write(folder / "run.jsonl", lines(*run_lines()))]


@pytest.mark.parametrize(
    "good", [json.dumps(export()).encode(), lines(*run_lines())], ids=["export", "run"]
)
def test_any_bytes_give_runs_or_a_reason(tmp_path_factory, good):
    folder = tmp_path_factory.mktemp("bytes")

    @settings(max_examples=60)
    @given(bitten(good))
    def check(data):
        source = Source(write(folder / "x.json", data))
        FORMAT.sniff(data[:4096], source.path)
        with suppress(FormatError):
            reading = FORMAT.read(source)
            assert list(reading) or reading.refused

    check()


def test_half_characters_stay(tmp_path):
    odd = json.dumps(export()).encode().replace(b"I look.", b"I \\ud835 \xff")
    (run,), _ = read(tmp_path / "x.json", odd)
    assert run.steps[0].thought == "Hm.\nI \ud835 \udcff"
