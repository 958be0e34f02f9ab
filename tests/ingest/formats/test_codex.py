"""Codex rollouts: replies, calls, tokens, rollbacks, summaries, and the ages of the layout."""

import gzip
import json
from contextlib import suppress

import pytest
from hypothesis import given, settings

from sag_research.errors import FormatError
from sag_research.ingest import ingest
from sag_research.ingest._source import Source
from sag_research.ingest.conformance import FormatConformance
from sag_research.ingest.formats import recognise
from sag_research.ingest.formats.codex import Codex
from sag_research.log import SQLiteEventStore
from sag_research.model import Usage
from tests.ingest.formats.openhands_make import bitten
from tests.ingest.make import write

FORMAT = Codex()
SESSION = "01990000-0000-7000-8000-000000000001"


def clock(seconds=0.0):
    return f"2026-01-05T10:{int(seconds) // 60:02}:{seconds % 60:06.3f}Z"


def entry(kind, at=0.0, /, **payload):
    return {"timestamp": clock(at), "type": kind, "payload": payload}


def meta(name=SESSION, at=0.0, **more):
    about = {"id": name, "timestamp": clock(at), "cwd": "/w", "originator": "codex_exec"}
    about |= {"cli_version": "0.99.0", "source": "exec"} | more
    return entry("session_meta", at, **about)


def item(kind, at=0.0, /, **payload):
    return {"timestamp": clock(at), "type": "response_item", "payload": {"type": kind, **payload}}


def event(kind, at=0.0, /, **payload):
    return {"timestamp": clock(at), "type": "event_msg", "payload": {"type": kind, **payload}}


def context(turn="turn-1", at=0.0, model="gpt-x"):
    return entry("turn_context", at, turn_id=turn, cwd="/w", model=model, approval_policy="never")


def user(text, at=0.0):
    return item("message", at, role="user", content=[{"type": "input_text", "text": text}])


def said(text, at=0.0):
    return item("message", at, role="assistant", content=[{"type": "output_text", "text": text}])


def thought(text, at=0.0, **more):
    return item("reasoning", at, summary=[{"type": "summary_text", "text": text}], **more)


def call(call_id, command, at=0.0, name="exec_command"):
    given = json.dumps({"cmd": command})
    return item("function_call", at, name=name, arguments=given, call_id=call_id)


def got(call_id, output, at=0.0, kind="function_call_output"):
    return item(kind, at, call_id=call_id, output=output)


def ran(code, text="", seconds="0.2"):
    return (
        f"Chunk ID: a1\nWall time: {seconds} seconds\nProcess exited with code {code}\n"
        f"Original token count: 3\nOutput:\n{text}"
    )


def tokens(total, last, at=0.0):
    def amount(pair):
        return {"input_tokens": pair[0], "cached_input_tokens": 1, "output_tokens": pair[1]}

    info = {"total_token_usage": amount(total), "last_token_usage": amount(last)}
    return event("token_count", at, info=info, rate_limits={"used_percent": at})


def lines(*entries):
    return b"".join(json.dumps(one).encode() + b"\n" for one in entries)


def simple(**more):
    """A session of two replies, 130 and 7 tokens for the first, 150 and 3 for the second."""
    return [
        meta(git={"repository_url": "git@github.com:a/b.git", "commit_hash": "c0"}, **more),
        item("message", 0.1, role="developer", content=[{"type": "input_text", "text": "Obey."}]),
        user("<environment_context>\n<cwd>/w</cwd>\n</environment_context>", 0.2),
        event("task_started", 0.2, turn_id="turn-1"),
        user("Mend it.", 0.3),
        event("user_message", 0.3, message="Mend it."),
        context("turn-1", 0.3),
        event("token_count", 0.4, info=None, rate_limits={}),
        event("agent_reasoning", 3, text="Look."),
        thought("Look.", 3, encrypted_content="gAAA"),
        call("c1", "ls", 4),
        tokens((130, 7), (130, 7), 4),
        got("c1", ran(0, "a.py\n"), 6),
        tokens((130, 7), (130, 7), 6),
        said("Done.", 9),
        event("agent_message", 9, message="Done."),
        tokens((280, 10), (150, 3), 9),
        event("task_complete", 9, turn_id="turn-1", last_agent_message="Done."),
    ]


def read(path, *entries, name="rollout-2026-01-05T10-00-00-x.jsonl"):
    data = entries[0] if isinstance(entries[0], bytes) else lines(*entries)
    reading = FORMAT.read(Source(write(path / name, data)))
    return list(reading), reading


def one(path, *entries, **more):
    (run,), reading = read(path, *entries, **more)
    return run, reading


def texts(run):
    return [(step.thought, step.action, step.observation) for step in run.steps]


def used(run):
    return [step.usage and (step.usage.tokens_in, step.usage.tokens_out) for step in run.steps]


def test_a_session(tmp_path):
    run, reading = one(tmp_path, *simple())
    assert texts(run) == [("Look.", "ls", ran(0, "a.py\n")), ("Done.", "", "")]
    assert used(run) == [(130, 7), (150, 3)]
    assert run.usage == Usage(tokens_in=280, tokens_out=10)
    assert (run.task_id, run.goal, run.model, run.repo) == (SESSION, "Mend it.", "gpt-x", "a/b")
    assert (run.agent, run.end, run.exit_status) == ("codex", "run.completed", "task_complete")
    assert (run.outcome, run.parent, run.record) == (None, None, None)
    (asked,) = run.steps[0].calls
    assert (asked.id, asked.name, asked.arguments) == ("c1", "exec_command", {"cmd": "ls"})
    assert (asked.status, asked.exit_code) == ("ok", 0)
    assert run.steps[0].seconds == pytest.approx(2)
    assert run.steps[1].started - run.steps[0].started == pytest.approx(6)
    assert run.config["preamble"][0] == "Obey."
    assert (run.config["commit"], run.config["approval_policy"]) == ("c0", "never")
    assert (reading.version, reading.refused) == ("rollout", [])
    assert reading.notes == [f"{SESSION}: 1 reasonings are encrypted"]


def test_a_named_file_is_its_task(tmp_path):
    assert one(tmp_path, *simple(), name="task-7.jsonl")[0].task_id == "task-7"


def test_tokens_in_front_of_the_items_of_their_reply(tmp_path):
    """Older versions wrote a reply's items when its tools had run."""
    entries = [meta(), user("Go."), context()]
    for number in range(3):
        at = 10 * number
        entries += [
            event("agent_reasoning", at, text=f"Step {number}."),
            tokens((100 * (number + 1), number + 1), (100, 1), at),
            thought(f"Step {number}.", at),
            call(f"c{number}", "ls", at),
            got(f"c{number}", "{}", at),
        ]
    entries += [tokens((440, 9), (140, 6), 40), said("Done.", 40)]
    run, _ = one(tmp_path, *entries)
    assert used(run) == [(100, 1)] * 3 + [(140, 6)]
    assert [step.thought for step in run.steps] == ["Step 0.", "Step 1.", "Step 2.", "Done."]


def test_tokens_in_front_of_a_reply_that_is_told_in_pairs(tmp_path):
    """A call and its result each: what comes next is not the tokens of the second pair."""
    run, _ = one(
        tmp_path, meta(), user("Go."), tokens((100, 1), (100, 1)), call("a", "ls"), got("a", "x"),
        call("b", "pwd"), got("b", "/"), tokens((220, 3), (120, 2)), said("Done."),
    )  # fmt: skip
    assert used(run) == [(100, 1), None, (120, 2)]


def test_tokens_behind_the_results(tmp_path):
    run, _ = one(
        tmp_path, meta(), user("Go."), call("a", "ls"), got("a", "x"), tokens((9, 1), (9, 1)),
        call("b", "pwd"), got("b", "/"), tokens((19, 3), (10, 2)),
    )  # fmt: skip
    assert used(run) == [(9, 1), (10, 2)]


def test_tokens_of_a_summary_are_beside_the_steps(tmp_path):
    run, _ = one(
        tmp_path, meta(), user("Go."), call("a", "ls"), tokens((9, 1), (9, 1)), got("a", "x"),
        tokens((59, 6), (50, 5)), said("So."), tokens((79, 8), (20, 2)),
    )  # fmt: skip
    assert used(run) == [(9, 1), (20, 2)]
    assert run.config["tokens_beside"] == [[50, 5]]
    assert run.usage == Usage(tokens_in=79, tokens_out=8)


def test_totals_without_the_last_amounts(tmp_path):
    def amount(prompt, reply):
        whole = {"input_tokens": prompt, "output_tokens": reply}
        return event("token_count", info={"total_token_usage": whole})

    run, _ = one(
        tmp_path, meta(), said("a"), amount(10, 1), said("b"), amount(30, 4),
        said("c"), amount(30, 4), said("d"), amount(7, 2),
    )  # fmt: skip
    assert used(run) == [(10, 1), (20, 3), (7, 2)]  # c and d are told as one reply
    assert run.steps[2].thought == "c\nd"


@pytest.mark.parametrize(("output", "text", "status", "code"), [
    (ran(0, "x"), ran(0, "x"), "ok", 0),
    (ran(2), ran(2), "error", 2),
    ("Exit code: 1\nWall time: 3 seconds\nOutput:\nno", None, "error", 1),
    ('{"output": "x\\n", "metadata": {"exit_code": 1}}', "x\n", "error", 1),
    ("Process running with session ID 4\nOutput:\nProcess exited with code 9\n", None, "unknown",
     None),
    ("I say: Exit code: 3", None, "unknown", None),
    ("plain\nExit code: 3\n", None, "unknown", None),
    ({"content": "x", "success": False}, "x", "error", None),
    ({"content": [{"type": "input_text", "text": "y"}], "success": True}, "y", "ok", None),
    ([{"type": "input_text", "text": "y"}, {"type": "input_image", "image_url": "data:"}],
     "y\n[input_image]", "unknown", None),
    (None, "", "unknown", None),
    (7, "7", "unknown", None),
])  # fmt: skip
def test_exit_codes_stand_inside_the_text(tmp_path, output, text, status, code):
    run, _ = one(tmp_path, meta(), user("Go."), call("a", "ls"), got("a", output))
    (asked,) = run.steps[0].calls
    assert asked.observation == (output if text is None else text)
    assert (asked.status, asked.exit_code) == (status, code)


@pytest.mark.parametrize(("kind", "payload", "status", "code"), [
    ("exec_command_end", {"exit_code": 3, "duration": {"secs": 2, "nanos": 0}}, "error", 3),
    ("exec_command_end", {"exit_code": 0}, "ok", 0),
    ("patch_apply_end", {"success": False}, "error", None),
    ("mcp_tool_call_end", {"result": {"Ok": {"content": []}}}, "ok", None),
    ("mcp_tool_call_end", {"result": {"Err": "no"}}, "error", None),
    ("mcp_tool_call_end", {}, "unknown", None),
])  # fmt: skip
def test_events_tell_of_calls(tmp_path, kind, payload, status, code):
    told = event(kind, call_id="a", **payload)
    run, _ = one(tmp_path, meta(), call("a", "ls"), told, got("a", "x"))
    (asked,) = run.steps[0].calls
    assert (asked.observation, asked.status, asked.exit_code) == ("x", status, code)


@pytest.mark.parametrize(("body", "name", "text"), [
    ({"type": "function_call", "name": "shell", "arguments": '{"command": ["sh", "-c", "ls|wc"]}'},
     "shell", "ls|wc"),
    ({"type": "function_call", "name": "shell", "arguments": '{"command": ["rg", "a b"]}'},
     "shell", "rg 'a b'"),
    ({"type": "function_call", "name": "shell_command", "arguments": '{"command": "pwd"}'},
     "shell_command", "pwd"),
    ({"type": "function_call", "name": "update_plan", "arguments": '{"plan": []}'},
     "update_plan", 'update_plan({"plan": []})'),
    ({"type": "function_call", "name": "find", "namespace": "mcp__docs__", "arguments": "{broken"},
     "mcp__docs__find", "mcp__docs__find({broken)"),
    ({"type": "local_shell_call", "action": {"type": "exec", "command": ["cat", "a"]}},
     "local_shell", "cat a"),
    ({"type": "custom_tool_call", "name": "apply_patch", "input": "*** Begin Patch\n"},
     "apply_patch", "apply_patch(*** Begin Patch\n)"),
])  # fmt: skip
def test_calls(tmp_path, body, name, text):
    asked = {"timestamp": clock(), "type": "response_item", "payload": {**body, "call_id": "a"}}
    output = f"{body['type']}_output".replace("local_shell", "function")
    run, _ = one(tmp_path, meta(), asked, got("a", "out", kind=output))
    (found,) = run.steps[0].calls
    assert (found.id, found.name, found.text, found.observation) == ("a", name, text, "out")


def test_a_search_has_no_result(tmp_path):
    action = {"type": "search", "query": "x"}
    run, _ = one(tmp_path, meta(), item("web_search_call", status="completed", action=action))
    (asked,) = run.steps[0].calls
    assert (asked.name, asked.arguments, asked.status) == ("web_search", action, "ok")


def test_parallel_calls_and_results_in_another_order(tmp_path):
    run, reading = one(
        tmp_path, meta(), call("a", "ls"), call("b", "pwd"), got("b", "B"), got("a", "A"),
        got("z", "lost"),
    )  # fmt: skip
    assert [(call.text, call.observation) for call in run.steps[0].calls] == [
        ("ls", "A"), ("pwd", "B"),
    ]  # fmt: skip
    assert run.steps[0].observation == "A\nB\nlost"
    assert f"{SESSION}: 1 results name a call that is not in their run" in reading.notes


def test_refused_calls(tmp_path):
    run, _ = one(tmp_path, meta(), call("a", "rm"), got("a", "exec command rejected by user"))
    assert run.steps[0].flags == ("rejected",)


def test_events_that_no_item_says(tmp_path):
    run, _ = one(
        tmp_path, meta(), event("user_message", message="Go."),
        event("agent_reasoning", text="Hm."), event("agent_message", message="So."),
        event("user_message", message="And?"), event("agent_message", message="Yes."),
    )  # fmt: skip
    assert run.goal == "Go."
    assert texts(run) == [("Hm.\nSo.", "", "And?"), ("Yes.", "", "")]


def test_what_the_harness_says_is_beside(tmp_path):
    run, _ = one(
        tmp_path, *simple(), item("message", role="developer", content="More rules."),
        user("<turn_aborted>\nStopped.\n</turn_aborted>"), user("Go on."), said("Yes."),
    )  # fmt: skip
    assert run.steps[1].observation == "Go on."
    assert len(run.steps[1].state["notices"]) == 2
    assert (run.goal, run.end) == ("Mend it.", None)


@pytest.mark.parametrize(("last", "end", "status"), [
    (event("turn_aborted", reason="interrupted"), "run.cancelled", "interrupted"),
    (event("error", message="No quota."), "run.failed", "error"),
    (event("token_count", info=None), "run.completed", "task_complete"),
    (event("task_started", turn_id="t"), None, None),
])  # fmt: skip
def test_how_it_ended(tmp_path, last, end, status):
    run, _ = one(tmp_path, *simple(), last)
    assert (run.end, run.exit_status, run.outcome) == (end, status, None)


# ---- runs that left others


def test_a_summary_begins_a_run(tmp_path):
    again = [one["payload"] for one in simple() if one["type"] == "response_item"]
    runs, _ = read(
        tmp_path, *simple(), entry("compacted", message="All is well.", replacement_history=again),
        context("turn-2"), user("Go on."), call("d", "pwd"), got("d", "/"), said("Yes."),
        tokens((300, 12), (20, 2)),
    )  # fmt: skip
    assert [(run.record, run.parent, run.parent_step, run.relation) for run in runs] == [
        ("0", None, None, "fork"), ("1", "0", 1, "compaction"),
    ]  # fmt: skip
    assert [len(run.steps) for run in runs] == [2, 2]
    assert runs[1].config["compaction_summary"] == "All is well."
    assert (runs[1].goal, runs[1].usage, used(runs[1])) == ("Go on.", None, [None, (20, 2)])


def test_a_summary_in_the_middle_of_a_turn_keeps_the_goal(tmp_path):
    runs, _ = read(tmp_path, *simple(), entry("compacted", message=""), said("Yes."))
    assert [run.goal for run in runs] == ["Mend it.", "Mend it."]


def test_two_summaries_without_a_reply_between_them(tmp_path):
    runs, _ = read(
        tmp_path, *simple(), entry("compacted", message="One."), user("Lost?"),
        entry("compacted", message="Two."), said("Yes."),
    )  # fmt: skip
    assert [(run.parent, run.parent_step) for run in runs] == [(None, None), ("0", 1)]
    assert runs[0].config["unanswered"] == ["Lost?"]


def test_turns_that_were_rolled_back(tmp_path):
    runs, _ = read(
        tmp_path, *simple(), user("Bad idea."), call("d", "rm a"), got("d", ""), said("Gone."),
        event("thread_rolled_back", num_turns=1), user("Better."), said("Good."),
    )  # fmt: skip
    assert [[step.action or step.thought for step in run.steps] for run in runs] == [
        ["ls", "Done.", "Good."], ["rm a", "Gone."],
    ]  # fmt: skip
    assert (runs[1].parent, runs[1].parent_step, runs[1].relation) == ("0", 1, "fork")
    assert (runs[0].goal, runs[1].goal) == ("Mend it.", "Bad idea.")
    assert runs[0].steps[1].observation == "Better."


@pytest.mark.parametrize("count", [2, 9, None, -1, "x"])
def test_rollbacks_of_strange_numbers(tmp_path, count):
    runs, _ = read(
        tmp_path, *simple(), user("More."), said("Yes."),
        event("thread_rolled_back", num_turns=count), user("New."), said("New."),
    )  # fmt: skip
    if isinstance(count, int) and count > 0:
        assert [len(run.steps) for run in runs] == [1, 3]
        assert (runs[1].parent, runs[1].parent_step) == ("0", None)
    else:
        assert [len(run.steps) for run in runs] == [4]


def test_two_sessions_in_a_file(tmp_path):
    other = "01990000-0000-7000-8000-00000000000f"
    runs, _ = read(tmp_path, *simple(), meta(other), user("Else."), said("Yes."))
    assert [(run.task_id, run.record, run.goal) for run in runs] == [
        (SESSION, "0", "Mend it."), (other, "1", "Else."),
    ]  # fmt: skip


# ---- other ages


def bare(*entries):
    return [one["payload"] for one in entries if one["type"] == "response_item"]


def test_bare_items(tmp_path):
    head = {"id": SESSION, "timestamp": clock(), "instructions": None, "git": {}}
    data = lines(head, {"record_type": "state"}, *bare(*simple()), {"record_type": "state"})
    run, reading = one(tmp_path, data)
    assert (run.task_id, run.goal, reading.version) == (SESSION, "Mend it.", "bare")
    assert texts(run) == texts(one(tmp_path, *simple())[0])
    assert (run.steps[0].started, run.steps[0].seconds) == (None, 0.2)
    assert recognise(Source(write(tmp_path / "x.jsonl", data))).name == "codex"


def test_one_object(tmp_path):
    head = {"id": SESSION, "timestamp": clock(), "instructions": ""}
    path = write(tmp_path / "x.json", {"session": head, "items": [*bare(*simple()), 3]})
    source = Source(path)
    assert recognise(source).name == "codex"
    reading = FORMAT.read(source)
    (run,) = reading
    assert (len(run.steps), reading.version) == (2, "document")


def test_damaged_lines_cost_themselves(tmp_path):
    good = lines(*simple()).splitlines(keepends=True)
    data = b"".join([*good[:6], b"[1]\n", b"{\n", b'{"type": 3}\n', b'"x"\n', *good[6:]])
    run, reading = one(tmp_path, data)
    assert texts(run) == texts(one(tmp_path, *simple())[0])
    assert reading.notes[1].startswith("line 8: ")
    assert "1 lines are of no known shape: (no type) 1" in reading.notes


@pytest.mark.parametrize("line", [
    b'{"timestamp": "2026-01-01T00:00:00Z", "type": "event_msg", "payload": {"type": "x"}}',
    b'{"record_type": "state"}', b'{"type": "x"}',
])  # fmt: skip
def test_a_file_without_a_turn(tmp_path, line):
    with suppress(FormatError):
        assert [len(run.steps) for run in read(tmp_path, line)[0]] == [0]


# ---- whatever comes


class TestConformance(FormatConformance):
    def format(self):
        return FORMAT

    def examples(self, folder):
        return [
            write(folder / "rollout-1.jsonl", lines(*simple())),
            write(
                folder / "b.jsonl",
                lines(
                    *simple(), user("x"), said("y"), event("thread_rolled_back", num_turns=1),
                    said("z"), entry("compacted", message="m"), call("q", "ls"),
                ),
            ),
            write(folder / "c.jsonl", lines({"id": "a", "timestamp": clock(), "instructions": None},
                                            *bare(*simple()))),
        ]  # fmt: skip


def test_any_bytes_give_runs_or_a_reason(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bytes")
    good = lines(*simple(), event("thread_rolled_back", num_turns=1), said("z"))

    @settings(max_examples=60)
    @given(bitten(good))
    def check(data):
        source = Source(write(folder / "x.jsonl", data))
        FORMAT.sniff(data[:4096], source.path)
        with suppress(FormatError):  # nothing else may come out
            reading = FORMAT.read(source)
            assert list(reading) or reading.refused

    check()


def test_texts_keep_their_odd_characters(tmp_path):
    data = lines(*simple()).replace(b"Done.", b"Done \\ud835 \xff")
    assert "\udcff" in one(tmp_path, data)[0].steps[1].thought


def test_compressed_and_ingested(tmp_path):
    write(tmp_path / "rollout-2026-01-05T10-00-00-a.jsonl", gzip.compress(lines(*simple())))
    with SQLiteEventStore(":memory:") as store:
        report = ingest(store, [tmp_path], progress=False)
        assert (report.runs, report.steps, report.rejected) == (1, 2, [])
        assert {run.task_id for run in store.runs()} == {SESSION}


@pytest.mark.parametrize("turn", [
    [call("c", "ls"), entry("compacted", message="x")],
    [user("q"), said("b"), event("thread_rolled_back", num_turns=1)],
    [user("q"), entry("compacted", message="x")],
])  # fmt: skip
def test_very_many_runs_that_left_each_other(tmp_path, turn):
    runs, _ = read(tmp_path, meta(), said("a"), *(turn * 1_200), said("z"))
    assert sum(len(run.steps) for run in runs) in (1_201, 2)
