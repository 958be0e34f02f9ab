import json
from contextlib import suppress

import pytest
from hypothesis import given, settings

from sag_research.errors import FormatError
from sag_research.ingest._source import Source
from sag_research.ingest.conformance import FormatConformance
from sag_research.ingest.formats import recognise
from sag_research.ingest.formats.cursor import Cursor
from tests.ingest.formats.openhands_make import bitten, lines
from tests.ingest.make import write

FORMAT = Cursor()
MINUTE = 1_700_000_000_000


def read(path, *records, name="x.jsonl"):
    reading = FORMAT.read(Source(write(path / name, lines(*records))))
    return list(reading), reading


# ---- stream-json


def line(kind, session="s-1", **more):
    return {"type": kind, "session_id": session, **more}


def init(**more):
    return line(
        "system", subtype="init", apiKeySource="login", cwd="/repo", model="Big",
        permissionMode="default", **more,
    )  # fmt: skip


def text(role, value, **more):
    content = [{"type": "text", "text": value}]
    return line(role, message={"role": role, "content": content}, **more)


def tool(call_id, name="shellToolCall", at=0, result=None, **more):
    args = {"command": "ls"} if name == "shellToolCall" else {"path": "a.py"}
    begun = {"args": args}
    ended = {**begun, "result": result or {"success": {"stdout": "a.py\n", "exitCode": 0}}}
    return [
        line("tool_call", subtype=subtype, call_id=call_id, tool_call={name: given},
             timestamp_ms=MINUTE + at + 250 * number, **more)
        for number, (subtype, given) in enumerate({"started": begun, "completed": ended}.items())
    ]  # fmt: skip


def result(**more):
    usage = {"inputTokens": 50, "outputTokens": 9, "cacheReadTokens": 40}
    return line(
        "result", subtype="success", is_error=False, duration_ms=9, result="I look.Done.",
        usage=usage, **more,
    )  # fmt: skip


def stream():
    return [
        init(),
        text("user", "Look."),
        line("thinking", subtype="delta", text="H"),
        line("thinking", subtype="delta", text="m."),
        line("thinking", subtype="completed"),
        text("assistant", "I look."),
        *tool("c1"),
        text("assistant", "Done."),
        result(),
    ]


def test_a_stream(tmp_path):
    (run,), reading = read(tmp_path, *stream())
    assert (run.task_id, run.record, run.goal) == ("x", None, "Look.")
    assert [(step.thought, step.action, step.observation) for step in run.steps] == [
        ("Hm.\nI look.", "ls", "a.py\n"), ("Done.", "", ""),
    ]  # fmt: skip
    (call,) = run.steps[0].calls
    assert (call.id, call.name, call.status, call.exit_code) == ("c1", "shell", "ok", 0)
    assert run.steps[0].seconds == 0.25
    assert (run.usage.tokens_in, run.usage.tokens_out) == (50, 9)
    assert (run.agent, run.model, run.end, run.exit_status, run.outcome) == (
        "cursor", "Big", "run.completed", "success", None,
    )  # fmt: skip
    assert (run.config["session_id"], run.config["cwd"]) == ("s-1", "/repo")
    assert "result" not in run.config["result"]
    assert (reading.notes, reading.version) == ([], "stream-json")


def test_a_text_in_parts_is_kept_once(tmp_path):
    parts = [text("assistant", "I "), text("assistant", "look.")]
    (whole,), _ = read(tmp_path, *parts, text("assistant", "I look."), *tool("c1"))
    (cut,), _ = read(tmp_path, *parts, *tool("c1"))
    assert [step.thought for step in whole.steps] == ["I look."]
    assert [step.thought for step in cut.steps] == ["I look."]


def test_calls_of_one_reply(tmp_path):
    (s1, e1), (s2, e2) = tool("a"), tool("b\nc", "readToolCall", 10)
    for records in (
        [text("assistant", "Both."), s1, s2, e2, e1],
        [text("assistant", "Both.", model_call_id="k"),
         *({**one, "model_call_id": "k"} for one in (s1, e1, s2, e2))],
    ):  # fmt: skip
        (run,), _ = read(tmp_path, *records)
        (step,) = run.steps
        assert [(call.id, call.name) for call in step.calls] == [("a", "shell"), ("b\nc", "read")]
        assert [call.observation for call in step.calls] == ["a.py\n", "a.py\n"]
        assert step.seconds == pytest.approx(0.26)


def test_a_call_behind_a_result_is_a_reply_of_its_own(tmp_path):
    (run,), _ = read(tmp_path, text("assistant", "Go."), *tool("a"), *tool("b"), tool("c")[1])
    assert [len(step.calls) for step in run.steps] == [1, 1, 1]
    (run,), _ = read(tmp_path, *({**one, "call_id": None} for _ in "ab" for one in tool("")))
    assert [step.observation for step in run.steps] == ["a.py\n", "a.py\n"]


@pytest.mark.parametrize(
    ("told", "status", "code", "seen", "flags"),
    [
        ({"success": {"stdout": "a", "stderr": "b", "exitCode": 2}}, "error", 2, "a\nb", ()),
        ({"success": {"content": "text", "totalLines": 1}}, "ok", None, "text", ()),
        ({"success": {"path": "a", "linesCreated": 1}}, "ok", None,
         '{"path": "a", "linesCreated": 1}', ()),
        ({"error": {"errorMessage": "no"}}, "error", None, "no", ()),
        ({"failure": {"stdout": "", "stderr": "no", "exitCode": 1}}, "error", 1, "no", ()),
        ({"rejected": {"reason": "no"}}, "error", None, "no", ("rejected",)),
        ({"success": "text"}, "ok", None, "text", ()),
        ("odd", "unknown", None, "", ()),
    ],
)  # fmt: skip
def test_how_a_tool_went(tmp_path, told, status, code, seen, flags):
    (run,), _ = read(tmp_path, *tool("a", result=told))
    (step,) = run.steps
    (call,) = step.calls
    assert (call.status, call.exit_code, call.observation) == (status, code, seen)
    assert step.flags == flags


def test_tools_of_other_shapes(tmp_path):
    function = {"function": {"name": "grep", "arguments": '{"pattern": "x"}'}}
    first = line("tool_call", subtype="started", call_id="a", tool_call=function)
    odd = [line("tool_call", subtype="started", call_id=3, tool_call=value) for value in (None, 3)]
    (run,), _ = read(tmp_path, first, *odd)
    (step,) = run.steps
    assert [(call.name, call.status) for call in step.calls] == [
        ("grep", "unknown"), ("", "unknown"), ("", "unknown"),
    ]  # fmt: skip
    assert step.calls[0].arguments == {"pattern": "x"}


def test_how_a_stream_ended(tmp_path):
    said = text("assistant", "a")
    failed = {**result(), "is_error": True, "subtype": "error"}
    for records, end, status in (
        ([said], None, None),
        ([said, failed], "run.failed", "error"),
        ([said, result(), text("user", "Go on.")], None, None),
    ):
        (run,), _ = read(tmp_path, *records)
        assert (run.end, run.exit_status) == (end, status)


def test_sessions_and_odd_lines(tmp_path):
    other = text("assistant", "No.", session_id="s-2")
    (first, second), reading = read(tmp_path, b"{", [1], *stream(), other, line("mood"))
    assert (first.record, second.record) == ("s-1", "s-2")
    assert [note.split(":")[0] for note in reading.notes] == [
        "line 1", "line 2", "1 lines are part of no step",
    ]  # fmt: skip
    with pytest.raises(FormatError, match="no message"):
        read(tmp_path, {"a": 1})


# ---- transcripts


def spoken(role, *blocks):
    return {"role": role, "message": {"content": list(blocks)}}


def block(value):
    return {"type": "text", "text": value}


def use(name="Shell", **more):
    return {"type": "tool_use", "name": name, "input": {"command": "ls"}, **more}


def transcript():
    query = "<attached_files>a</attached_files>\n<user_query>\nLook.\n</user_query>"
    return [
        spoken("user", block(query)),
        spoken("assistant", block("I look."), use(), use("Grep")),
        spoken("assistant", block("Done.")),
        {"type": "turn_ended", "status": "success"},
    ]


def test_a_transcript(tmp_path):
    (run,), reading = read(tmp_path, *transcript())
    assert (run.task_id, run.goal) == ("x", "Look.")
    assert [(step.thought, step.observation) for step in run.steps] == [
        ("I look.", ""), ("Done.", ""),
    ]  # fmt: skip
    assert [(call.name, call.text, call.status) for call in run.steps[0].calls] == [
        ("Shell", "ls", "unknown"), ("Grep", "ls", "unknown"),
    ]  # fmt: skip
    assert (run.end, run.exit_status, run.outcome) == ("run.completed", "success", None)
    assert reading.version == "transcript"


def test_results_of_a_transcript(tmp_path):
    named = {"type": "tool_result", "tool_use_id": "b", "content": "2", "is_error": True}
    bare = {"type": "tool_result", "content": [block("1")]}
    (run,), _ = read(
        tmp_path,
        spoken("assistant", use(id="a"), use(id="b")),
        spoken("user", named, bare, {**bare, "content": "3"}, block("Go on.")),
    )
    (step,) = run.steps
    assert [(call.observation, call.status) for call in step.calls] == [
        ("1", "unknown"), ("2", "error"),
    ]  # fmt: skip
    assert step.observation == "1\n2\n3\nGo on."


@pytest.mark.parametrize(
    ("last", "end"),
    [
        ([{"type": "turn_ended", "status": "aborted", "error": "x"}], "run.cancelled"),
        ([{"type": "turn_ended", "status": "error"}], "run.failed"),
        ([{"type": "turn_ended", "status": "strange"}], None),
        ([{"type": "turn_ended", "status": "success"}, spoken("user", block("More."))], None),
        ([], None),
    ],
)
def test_how_a_transcript_ended(tmp_path, last, end):
    (run,), _ = read(tmp_path, spoken("assistant", block("a")), *last)
    assert run.end == end


def test_content_that_is_text(tmp_path):
    records = [
        {"role": role, "message": {"content": value}}
        for role, value in (("user", "Fix it."), ("assistant", "Sure."), ("user", "<user_query>"))
    ]
    (run,), _ = read(tmp_path, *records)
    assert (run.goal, run.steps[0].thought, run.steps[0].observation) == (
        "Fix it.", "Sure.", "<user_query>",
    )  # fmt: skip


# ---- whose file it is


def claude(kind, **more):
    return {"type": kind, "session_id": "s", "uuid": "u", "parent_tool_use_id": None, **more}


@pytest.mark.parametrize(
    "record",
    [
        claude("system", subtype="init", apiKeySource="none", cwd="/", tools=[], model="m"),
        claude("assistant", message={"id": "m", "role": "assistant", "content": []}),
        {"role": "user", "content": "x"},
        {"type": "message", "role": "user", "message": {"content": []}},
        {"type": "turn_ended", "status": "success"},
    ],
)
def test_what_is_of_others(record):
    assert FORMAT.sniff(json.dumps(record).encode(), None) == 0


@pytest.mark.parametrize("shown", [2, 9])
def test_a_stream_is_not_claude_codes(tmp_path, shown):
    long = [init(), text("user", "Look. " * 2_000), *stream()[2:]][:shown]
    assert recognise(Source(write(tmp_path / "x.jsonl", lines(*long)))).name == "cursor"


class TestStream(FormatConformance):
    def format(self):
        return Cursor()

    def examples(self, folder):
        return [write(folder / "stream.jsonl", lines(*stream()))]


class TestTranscript(FormatConformance):
    def format(self):
        return Cursor()

    def examples(self, folder):
        return [write(folder / "0a1b.jsonl", lines(*transcript()))]


@pytest.mark.parametrize("good", [lines(*stream()), lines(*transcript())], ids=["s", "t"])
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
    odd = lines(*stream()).replace(b"I look.", b"I \\ud835 \xff")
    (run,) = FORMAT.read(Source(write(tmp_path / "x.jsonl", odd)))
    assert run.steps[0].thought == "Hm.\nI \ud835 \udcff"
