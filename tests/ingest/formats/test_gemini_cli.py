"""Gemini CLI sessions: one object, JSON lines with changes, and recorded replies."""

import json
from contextlib import suppress

import pytest
from hypothesis import given, settings

from sag_research.errors import FormatError
from sag_research.ingest import ingest
from sag_research.ingest._source import Source
from sag_research.ingest.conformance import FormatConformance
from sag_research.ingest.formats import recognise
from sag_research.ingest.formats.gemini_cli import GeminiCli
from sag_research.log import SQLiteEventStore
from sag_research.model import Usage
from tests.ingest.formats.openhands_make import bitten
from tests.ingest.make import write

FORMAT = GeminiCli()
SESSION = "5e55a0de-0000-4000-8000-000000000001"
NAME = "session-2026-01-05T10-00-5e55a0de.jsonl"


def clock(seconds=0):
    return f"2026-01-05T10:{seconds // 60:02}:{seconds % 60:02}.000Z"


def head(name=SESSION, **more):
    about = {"sessionId": name, "projectHash": "abc", "startTime": clock(), "kind": "main"}
    return about | {"lastUpdated": clock()} | more


def said(kind, name, content, at=0, **more):
    return {"id": name, "timestamp": clock(at), "type": kind, "content": content, **more}


def user(name, text, at=0):
    return said("user", name, [{"text": text}], at)


def reply(name, text="", *calls, at=0, tokens=(100, 5, 7), **more):
    used = dict(zip(("input", "output", "thoughts"), tokens, strict=True)) if tokens else None
    if used:
        used |= {"cached": 90, "tool": 0, "total": sum(tokens)}
    about = {"tokens": used, "model": "gemini-x", "thoughts": []} | more
    return said("gemini", name, text, at, **about) | ({"toolCalls": list(calls)} if calls else {})


def call(name, tool="run_shell_command", args=None, output="a.py", status="success", **more):
    response = {"id": name, "name": tool, "response": {"output": output}}
    result = [{"functionResponse": response}]
    args = {"command": "ls"} if args is None else args
    return {"id": name, "name": tool, "args": args, "result": result, "status": status} | more


def rewind(name):
    return {"$rewindTo": name}


def change(**more):
    return {"$set": more}


def lines(*entries):
    return b"".join(json.dumps(one).encode() + b"\n" for one in entries)


def simple():
    looks = [{"subject": "Looking", "description": "I look around.", "timestamp": clock(2)}]
    return [
        user("u1", "Mend it.", 1),
        reply("g1", "I look.", call("c1"), at=2, thoughts=looks),
        reply("g2", "Done.", at=9, tokens=(150, 3, 0)),
    ]


def read(path, *entries, name=NAME):
    data = entries[0] if isinstance(entries[0], bytes) else lines(head(), *entries)
    reading = FORMAT.read(Source(write(path / name, data)))
    return list(reading), reading


def one(path, *entries, **more):
    (run,), reading = read(path, *entries, **more)
    return run, reading


def texts(run):
    return [(step.thought, step.action, step.observation) for step in run.steps]


def used(run):
    return [step.usage and (step.usage.tokens_in, step.usage.tokens_out) for step in run.steps]


def test_a_session_of_lines(tmp_path):
    run, reading = one(tmp_path, *simple(), change(summary="Mended.", lastUpdated=clock(9)))
    assert texts(run) == [
        ("Looking: I look around.\nI look.", "ls", "a.py"), ("Done.", "", ""),
    ]  # fmt: skip
    assert used(run) == [(100, 12), (150, 3)]
    assert (run.task_id, run.goal, run.model) == (SESSION, "Mend it.", "gemini-x")
    assert (run.agent, run.end, run.outcome, run.usage) == ("gemini-cli", None, None, None)
    (asked,) = run.steps[0].calls
    assert (asked.id, asked.name, asked.arguments) == ("c1", "run_shell_command", {"command": "ls"})
    assert (asked.status, asked.exit_code) == ("ok", None)
    assert run.steps[1].started - run.steps[0].started == 7
    assert (run.config["summary"], run.config["session_id"]) == ("Mended.", SESSION)
    assert (reading.version, reading.notes, reading.refused) == ("lines", [], [])


def test_a_session_as_one_object(tmp_path):
    path = write(tmp_path / "task-7.json", head(messages=simple()))
    assert recognise(Source(path)).name == "gemini-cli"
    reading = FORMAT.read(Source(path))
    (run,) = reading
    assert (run.task_id, reading.version) == ("task-7", "object")
    assert texts(run) == texts(one(tmp_path, *simple())[0])


def test_a_message_that_is_written_again_counts_once(tmp_path):
    grown = [
        user("u1", "Mend it."),
        reply("g1", "I look.", tokens=None),
        reply("g1", "I look."),
        change(lastUpdated=clock(3)),
        reply("g1", "I look.", call("c1", status="executing", result=None)),
        reply("g1", "I look.", call("c1"), call("c2", output="b.py")),
    ]
    run, _ = one(tmp_path, *grown)
    assert texts(run) == [("I look.", "ls\nls", "a.py\nb.py")]
    assert used(run) == [(100, 12)]


@pytest.mark.parametrize(("output", "status", "kept", "code"), [
    ("Output: a\nExit Code: 2\nProcess Group PGID: 7", "success", "error", 2),
    ("Command: x\nStdout: y\nExit Code: 0\nSignal: (none)", "success", "ok", 0),
    ("Exit Code: 1\n" + "x" * 400, "success", "ok", None),
    ("no", "error", "error", None),
    ("no", "cancelled", "unknown", None),
    ("no", ["odd"], "unknown", None),
])  # fmt: skip
def test_exit_codes_and_states(tmp_path, output, status, kept, code):
    run, _ = one(
        tmp_path, user("u", "Go."), reply("g", "", call("c", output=output, status=status))
    )
    (asked,) = run.steps[0].calls
    assert (asked.observation, asked.status, asked.exit_code) == (output, kept, code)
    assert run.steps[0].flags == (("rejected",) if status == "cancelled" else ())


def test_an_exit_code_is_the_shells(tmp_path):
    asked = call("c", tool="read_file", args={"path": "a"}, output="Exit Code: 3")
    run, _ = one(tmp_path, reply("g", "", asked))
    assert (run.steps[0].calls[0].exit_code, run.steps[0].calls[0].status) == (None, "ok")
    assert run.steps[0].action == 'read_file({"path": "a"})'


@pytest.mark.parametrize(("result", "text", "status"), [
    ([{"functionResponse": {"id": "c", "response": {"error": "No such file."}}}],
     "No such file.", "error"),
    ([{"functionResponse": {"id": "c", "response": {"a": 1}}}, {"inlineData": {"data": "AA"}}],
     '{"a": 1}\n[inlineData]', "ok"),
    ({"text": "plain"}, "plain", "ok"),
    ("plain", "plain", "ok"),
    ([], "", "ok"),
    (7, "7", "ok"),
])  # fmt: skip
def test_results(tmp_path, result, text, status):
    run, _ = one(tmp_path, reply("g", "", call("c", result=result)))
    (asked,) = run.steps[0].calls
    assert (asked.observation, asked.status) == (text, status)


def test_calls_and_results_that_stand_in_messages(tmp_path):
    """As in a history that the program wrote back."""
    parts = [{"text": "Hm.", "thought": True}, {"text": "I look."},
             {"functionCall": {"id": "a", "name": "ls", "args": {"path": "."}}},
             {"functionCall": {"id": "b", "name": "ls", "args": {"path": "x"}}}]  # fmt: skip
    answers = [
        {"functionResponse": {"id": name, "name": "ls", "response": {"output": text}}}
        for name, text in (("b", "B"), ("a", "A"), ("z", "lost"))
    ]
    run, reading = one(tmp_path, reply("g", parts), said("user", "u", answers))
    assert run.steps[0].thought == "Hm.\nI look."
    assert [call.observation for call in run.steps[0].calls] == ["A", "B"]
    assert reading.notes == ["1 results name a call that is not in their run"]
    again = reply("h", "", call("c1", output="whole"))
    masked = {"id": "c1", "name": "run_shell_command", "response": {"output": "cut"}}
    run, _ = one(tmp_path, again, said("user", "u", [{"functionResponse": masked}]))
    assert run.steps[0].observation == "whole"


def test_what_the_program_says(tmp_path):
    run, _ = one(
        tmp_path, said("info", "i", "Hello."), *simple(), said("warning", "w", "Slow."),
        user("u2", "Go on."),
    )  # fmt: skip
    assert run.config["preamble"] == ["Hello."]
    assert run.steps[1].state == {"notices": ["Slow."]}
    assert (run.steps[1].observation, run.end) == ("Go on.", None)
    run, _ = one(tmp_path, *simple(), said("error", "e", "No quota."), said("info", "f", "Bye."))
    assert (run.end, run.exit_status, run.outcome) == ("run.failed", "error", None)


# ---- runs that left others


def test_messages_that_were_taken_back(tmp_path):
    runs, _ = read(
        tmp_path, *simple(), user("u2", "Bad idea."), reply("g3", "Gone."), rewind("u2"),
        user("u3", "Better."), reply("g4", "Good."),
    )  # fmt: skip
    assert [[step.thought for step in run.steps] for run in runs] == [
        ["Looking: I look around.\nI look.", "Done.", "Good."], ["Gone."],
    ]  # fmt: skip
    assert [(run.record, run.parent, run.parent_step, run.relation) for run in runs] == [
        ("0", None, None, "fork"), ("1", "0", 1, "fork"),
    ]  # fmt: skip
    assert [run.goal for run in runs] == ["Mend it.", "Bad idea."]
    assert runs[0].steps[1].observation == "Better."


def test_a_prompt_that_was_taken_back(tmp_path):
    run, _ = one(tmp_path, *simple(), user("u2", "Oops."), rewind("u2"), user("u3", "And?"))
    assert (len(run.steps), run.config["unanswered"]) == (2, ["Oops."])
    assert run.steps[1].observation == "And?"


@pytest.mark.parametrize("name", ["u1", "nowhere"])
def test_all_messages_taken_back(tmp_path, name):
    runs, _ = read(tmp_path, *simple(), rewind(name), user("u3", "New."), reply("g4", "Good."))
    assert [(len(run.steps), run.goal, run.parent) for run in runs] == [
        (2, "Mend it.", None), (1, "New.", None),
    ]  # fmt: skip


def test_a_message_under_an_id_that_was_taken_back(tmp_path):
    runs, _ = read(tmp_path, *simple(), rewind("g2"), reply("g2", "Other."))
    assert [[step.thought for step in run.steps][-1] for run in runs] == ["Other.", "Done."]


def test_a_summary_begins_a_run(tmp_path):
    sums = [user("s1", "All is well."), said("gemini", "s2", "Got it.")]
    cut = json.loads(json.dumps(simple()[2]))
    runs, _ = read(
        tmp_path, *simple(), change(messages=[*sums, cut]), user("u2", "Go on."),
        reply("g3", "Yes."),
    )  # fmt: skip
    assert [(run.parent, run.parent_step, run.relation) for run in runs] == [
        (None, None, "fork"), ("0", 1, "compaction"),
    ]  # fmt: skip
    assert [[step.thought for step in run.steps][-1] for run in runs] == ["Done.", "Yes."]
    assert [len(run.steps) for run in runs] == [2, 1]
    assert runs[1].config["compaction_summary"] == "All is well."
    assert (runs[1].goal, runs[1].config["preamble"]) == ("Go on.", ["Got it."])


def test_outputs_that_are_cut_afterwards_stay(tmp_path):
    masked = json.loads(json.dumps(simple()).replace("a.py", "[cut]"))
    run, _ = one(tmp_path, *simple(), change(messages=masked), reply("g3", "Yes."))
    assert (len(run.steps), run.steps[0].observation) == (3, "a.py")


def test_a_list_that_leaves_messages_out_takes_them_back(tmp_path):
    runs, _ = read(tmp_path, *simple(), change(messages=simple()[:2]), reply("g3", "Other."))
    assert [(len(run.steps), run.parent_step) for run in runs] == [(2, None), (1, 0)]


def test_messages_that_only_a_change_holds(tmp_path):
    run, _ = one(tmp_path, change(messages=[*simple(), 3, {"type": "user"}]))
    assert len(run.steps) == 2


# ---- sub-agents


def test_the_call_that_began_a_sub_agent(tmp_path):
    child = "c0ffee00-0000-4000-8000-00000000000c"
    entries = [*simple(), reply("g3", "", call("c9", "helper", {"task": "x"}, agentId=child))]
    write(tmp_path / "chats" / NAME, lines(head(), *entries))
    other = head("5e55a0de-ffff-4000-8000-000000000002")
    write(tmp_path / "chats" / "session-2025-01-05T10-00-5e55a0de.json", other | {"messages": []})
    place = tmp_path / "chats" / SESSION / f"{child}.jsonl"
    write(place, lines(head(child, kind="subagent"), user("u", "Look."), reply("g", "Looked.")))
    with SQLiteEventStore(":memory:") as store:
        report = ingest(store, [tmp_path], progress=False)
        assert (report.runs, report.steps) == (2, 4)
        runs = {run.task_id: run for run in store.runs()}
        assert runs[child].agent == "gemini-cli/subagent"
        assert runs[child].config["called_by"] == {"run": runs[SESSION].run_id, "step": 2}
        assert "called_by" not in runs[SESSION].config


def test_a_sub_agent_alone(tmp_path):
    data = lines(head("child", kind="subagent"), user("u", "Look."), reply("g", "Looked."))
    run, _ = one(tmp_path, data)
    assert (run.agent, "called_by" in run.config) == ("gemini-cli/subagent", False)


# ---- recorded replies


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ({"input": 10, "output": 5}, Usage(tokens_in=10, tokens_out=5)),
        ({"input": 10, "thoughts": 7}, Usage(tokens_in=10)),
        ({"input": 10, "output": 5, "thoughts": None}, Usage(tokens_in=10)),
        ({"tool": 3, "output": 5, "thoughts": 7}, Usage(tokens_out=12)),
        ({"input": 10, "tool": "?", "output": 0, "thoughts": 7}, Usage(tokens_out=7)),
    ],
)
def test_a_sum_with_a_part_that_is_not_known_is_not_known(tmp_path, told, expected):
    run, _ = one(tmp_path, head(), user("u", "Mend it."), reply("g", "x", tokens=None) |
                 {"tokens": told})  # fmt: skip
    assert run.steps[0].usage == expected


def recorded():
    def chunk(prompt, *parts, output=None, **more):
        amounts = {"promptTokenCount": prompt, "candidatesTokenCount": output}
        candidate = {"content": {"role": "model", "parts": list(parts)}, **more}
        return {"candidates": [candidate], "usageMetadata": amounts}

    asked = {"functionCall": {"name": "ls", "args": {"path": "."}}}
    return [
        {"method": "generateContentStream", "response": [
            chunk(90, {"text": "Hm", "thought": True}, {"text": "I lo"}),
            chunk(70, {"text": "ok."}, asked, output=4, finishReason="STOP"),
        ]},
        {"method": "countTokens", "response": {"totalTokens": 3}},
        {"method": "generateContent", "response": chunk(80, {"text": "Done."}, output=2)},
    ]  # fmt: skip


def test_recorded_replies(tmp_path):
    path = write(tmp_path / "play.json", lines(*recorded()))
    assert recognise(Source(path)).name == "gemini-cli"
    reading = FORMAT.read(Source(path))
    (run,) = reading
    assert texts(run) == [("Hm\nI look.", 'ls({"path": "."})', ""), ("Done.", "", "")]
    assert used(run) == [(70, 4), (80, 2)]
    assert run.steps[0].calls[0].status == "unknown"
    assert (run.end, run.goal, reading.version) == (None, "", "replies")
    assert reading.notes == ["1 lines are no replies of the model"]


def test_the_real_file(real_data):
    path = real_data / "gemini_cli/packages/sdk/test-data/agent-resume-session.json"
    raw = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    (run,) = FORMAT.read(Source(path))
    parts = [
        "".join(
            part["text"]
            for chunk in line["response"]
            for part in chunk["candidates"][0]["content"]["parts"]
        )
        for line in raw
    ]
    assert [step.thought for step in run.steps] == [text.strip() for text in parts]
    last = [line["response"][-1]["usageMetadata"] for line in raw]
    assert [step.usage for step in run.steps] == [
        Usage(tokens_in=one["promptTokenCount"], tokens_out=one["candidatesTokenCount"])
        for one in last
    ]
    assert (run.task_id, run.steps[0].thought, len(raw)) == ("agent-resume-session", "BANANA", 2)
    assert recognise(Source(path)).name == "gemini-cli"


# ---- whatever comes


class TestConformance(FormatConformance):
    def format(self):
        return FORMAT

    def examples(self, folder):
        many = (*simple(), rewind("g2"), reply("g4", "x"), change(messages=[user("s", "Sum.")]),
                reply("g5", "y"))  # fmt: skip
        return [
            write(folder / NAME, lines(head(), *many)),
            write(folder / "b.json", head(messages=simple())),
            write(folder / "c.jsonl", lines(*recorded())),
        ]


@pytest.mark.parametrize("good", [
    lines(head(), *simple(), rewind("g2"), reply("g4", "x"), change(messages=simple()[:1])),
    json.dumps(head(messages=simple())).encode(),
    lines(*recorded()),
], ids=["lines", "object", "replies"])  # fmt: skip
def test_any_bytes_give_runs_or_a_reason(tmp_path_factory, good):
    folder = tmp_path_factory.mktemp("bytes")

    @settings(max_examples=40)
    @given(bitten(good))
    def check(data):
        source = Source(write(folder / "x.json", data))
        FORMAT.sniff(data[:4096], source.path)
        with suppress(FormatError):  # nothing else may come out
            reading = FORMAT.read(source)
            assert list(reading) or reading.refused

    check()


def test_texts_keep_their_odd_characters(tmp_path):
    data = lines(head(), *simple()).replace(b"Done.", b"Done \\ud835 \xff")
    assert "\udcff" in one(tmp_path, data)[0].steps[1].thought


def test_damaged_lines_cost_themselves(tmp_path):
    data = lines(head(), simple()[0]) + b'[1]\n{"id"\n{"x": 1}\n' + lines(*simple()[1:])
    run, reading = one(tmp_path, data)
    assert len(run.steps) == 2
    assert [note[:7] for note in reading.notes] == ["line 3:", "line 4:", "1 recor"]


@pytest.mark.parametrize("opening", [b"[", b'{"sessionId":', b'{"messages":['])
def test_deep_nesting_is_refused(tmp_path, opening):
    with pytest.raises(FormatError):
        read(tmp_path, opening * 100_000)
