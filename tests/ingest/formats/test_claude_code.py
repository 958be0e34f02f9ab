"""Claude Code sessions: replies of several lines, trees, sub-agents, and damaged lines."""

import json
from pathlib import Path

import pytest

from sag_research.errors import FormatError
from sag_research.ingest._source import Source
from sag_research.ingest.formats import recognise
from sag_research.ingest.formats.claude_code import ClaudeCode
from sag_research.model import Usage
from tests.ingest.formats.claude_make import (
    SESSION,
    call,
    family,
    line,
    lines,
    reply,
    result,
    simple,
    stream,
    streamed,
    text,
    user,
)
from tests.ingest.make import write


@pytest.fixture
def read(tmp_path):
    def read(*entries, name="task.jsonl"):
        data = entries[0] if isinstance(entries[0], bytes) else lines(*entries)
        reading = ClaudeCode().read(Source(write(tmp_path / name, data)))
        return list(reading), reading

    return read


def actions(run):
    return [step.action for step in run.steps]


def thoughts(run):
    return [step.thought for step in run.steps]


def told(run):
    return [step.observation for step in run.steps]


class TestReplies:
    def test_a_session_is_a_run(self, read):
        (run,), reading = read(*simple())
        assert (run.task_id, run.goal, run.model) == ("task", "Mend the parser.", "claude-x")
        assert (run.record, run.parent, run.end) == (None, None, None)
        first, second = run.steps
        assert (first.thought, first.action, first.observation) == ("I look.", "ls", "parser.py")
        assert (first.started, first.seconds) == (1_750_000_002.0, 3.0)
        assert first.usage == Usage(tokens_in=100, tokens_out=10)
        assert first.calls[0].status == "ok"
        assert (second.thought, second.observation) == ("Mended.", "")
        assert run.config == {
            "session_id": SESSION,
            "cwd": "/repo",
            "version": "2.1.0",
            "git_branch": "main",
        }
        assert (reading.version, reading.notes) == ("session", [])

    def test_the_lines_of_a_reply_are_one_step(self, read):
        (run,), _ = read(
            user("u", None, "Go."),
            reply("a", "u", [{"type": "thinking", "thinking": "Hm.", "signature": "x"}], "m", 1),
            reply("b", "a", [text("Two looks.")], "m", 2),
            reply("c", "b", [call("t1", command="ls")], "m", 3),
            reply("d", "c", [call("t2", "Read", file_path="a.py")], "m", 4, usage=(100, 90)),
            result("r1", "c", "t1", "a.py", 5),
            result("r2", "d", "t2", "x = 1", 6),
            reply("e", "r2", "Done.", "n", 7),
        )
        first, second = run.steps
        assert first.thought == "Hm.\nTwo looks."
        assert first.action == 'ls\nRead({"file_path": "a.py"})'
        assert first.observation == "a.py\nx = 1"
        assert first.usage == Usage(tokens_in=100, tokens_out=90)
        assert (first.started, first.seconds) == (1_750_000_001.0, 3.0)
        assert second.thought == "Done."

    def test_results_of_parallel_calls_make_no_branch(self, read):
        """The second call and its result hang on a branch that ends there."""
        runs, reading = read(
            user("u", None, "Go."),
            reply("a", "u", [call("t1", command="ls")], "m"),
            reply("b", "a", [call("t2", command="pwd")], "m"),
            result("r2", "b", "t2", "/repo"),
            result("r1", "a", "t1", "a.py"),
            reply("c", "r1", "Done.", "n"),
        )
        assert len(runs) == 1
        assert [one.observation for one in runs[0].steps[0].calls] == ["a.py", "/repo"]
        assert reading.notes == []

    def test_growing_text_is_said_once(self, read):
        (run,), _ = read(
            user("u", None, "Go."),
            reply("a", "u", "Hel", "m"),
            reply("b", "a", "Hello, wor", "m"),
            reply("c", "b", "Hello, world.", "m"),
        )
        assert thoughts(run) == ["Hello, world."]

    def test_equal_blocks_of_one_line_are_both_kept(self, read):
        (run,), _ = read(user("u", None, "Go."), reply("a", "u", [text("ha"), text("ha")], "m"))
        assert thoughts(run) == ["ha\nha"]

    def test_the_cached_parts_of_a_prompt_are_tokens_of_it(self, read):
        entry = reply("a", None, "x", "m")
        entry["message"]["usage"] = {
            "input_tokens": 4,
            "cache_creation_input_tokens": 30,
            "cache_read_input_tokens": 200,
            "output_tokens": 0,
        }
        (run,), _ = read(entry)
        assert run.steps[0].usage == Usage(tokens_in=234)

    def test_an_id_that_a_service_uses_again_is_another_reply(self, read):
        (run,), _ = read(
            user("u", None, "Go."),
            reply("a", "u", "One.", "msg"),
            user("v", "a", "And?"),
            reply("b", "v", "Two.", "msg"),
            user("w", "b", "And?"),
            reply("c", "w", "Three.", "msg"),
        )
        assert thoughts(run) == ["One.", "Two.", "Three."]

    def test_replies_without_ids_are_steps_of_their_own(self, read):
        first, second = reply("a", None, "One.", "m"), reply("b", "a", "Two.", "m")
        for one in (first, second):
            del one["message"]["id"], one["requestId"]
        (run,), _ = read(first, second)
        assert thoughts(run) == ["One.", "Two."]

    def test_prompts_are_what_the_model_heard(self, read):
        (run,), _ = read(
            user("c", None, "Caveat: local.", isMeta=True),
            user("d", "c", "<command-name>/model</command-name>"),
            user("u", "d", [text("Go."), {"type": "image", "source": {}}]),
            reply("a", "u", [call("t", command="ls")], "m"),
            result("r", "a", "t", "a.py"),
            user("v", "r", "Faster!"),
            reply("b", "v", "Yes.", "n"),
        )
        assert run.goal == "Go.\n[image]"
        assert run.config["preamble"] == ["Caveat: local.", "<command-name>/model</command-name>"]
        assert told(run) == ["a.py\nFaster!", ""]
        assert run.steps[0].calls[0].observation == "a.py"


class TestResults:
    def step(self, read, *answers):
        (run,), _ = read(reply("a", None, [call("t", command="x")], "m"), *answers)
        return run.steps[0]

    @pytest.mark.parametrize(
        ("content", "expected"),
        [
            ("plain", "plain"),
            ([text("one"), text("two")], "one\ntwo"),
            ([{"type": "image", "source": {"data": "…"}}], "[image]"),
            (None, ""),
            ([], ""),
            ({"type": "text", "text": "bare"}, "bare"),
            (7, "7"),
        ],
    )
    def test_content_of_any_type(self, read, content, expected):
        assert self.step(read, result("r", "a", "t", content)).observation == expected

    @pytest.mark.parametrize(
        "value",
        ["text", {"stdout": "text", "stderr": ""}, {"content": [text("text")]}, [text("text")]],
    )
    def test_the_harness_own_account_is_read_where_the_message_has_none(self, read, value):
        assert self.step(read, result("r", "a", "t", "", told=value)).observation == "text"
        assert self.step(read, result("r", "a", "t", "said", told=value)).observation == "said"
        bare = line("user", "r", "a", {"role": "user"}, toolUseResult=value)
        step = self.step(read, bare)
        assert step.calls[0].observation == "text"

    def test_a_failure_and_its_exit_code(self, read):
        step = self.step(read, result("r", "a", "t", "Exit code 2\nno such file", is_error=True))
        assert (step.calls[0].status, step.calls[0].exit_code) == ("error", 2)
        step = self.step(read, result("r", "a", "t", "Exit code 2 is what it says"))
        assert (step.calls[0].status, step.calls[0].exit_code) == ("ok", None)

    def test_a_call_that_the_user_refused(self, read):
        refused = "The user doesn't want to proceed with this tool use."
        step = self.step(read, result("r", "a", "t", refused, is_error=True))
        assert step.flags == ("rejected",)
        assert self.step(read, result("r", "a", "t", refused)).flags == ()

    def test_a_call_that_a_rule_refused(self, read):
        said = "Permission to use Bash with command rm has been denied."
        assert self.step(read, result("r", "a", "t", said, is_error=True)).flags == ("rejected",)
        for kind, flags in (("permission-rule", ("rejected",)), ("cancelled", ()), ([], ())):
            stopped = result("r", "a", "t", "STOP", is_error=True, toolDenialKind=kind)
            assert self.step(read, stopped).flags == flags

    def test_a_call_without_a_result_is_unknown(self, read):
        assert self.step(read).calls[0].status == "unknown"

    def test_several_results_for_a_call_and_none(self, read):
        (run,), reading = read(
            reply("a", None, [call("t", command="x")], "m"),
            result("r1", "a", "t", "first"),
            result("r2", "r1", "t", "second"),
            result("r3", "r2", "t", "second"),  # written again
            result("r4", "r3", "other", "of no call"),
        )
        assert run.steps[0].calls[0].observation == "first\nsecond"
        assert run.steps[0].observation == "first\nsecond\nof no call"
        assert reading.notes == ["1 results name a call that is not in their run"]

    def test_ids_of_calls_that_are_used_again(self, read):
        (run,), _ = read(
            reply("a", None, [call("t", command="x")], "m"),
            result("r", "a", "t", "ok"),
            reply("b", "r", [call("t", command="y")], "n"),
            result("s", "b", "t", "ok"),
        )
        assert told(run) == ["ok", "ok"]

    def test_two_calls_of_one_id_have_a_result_each(self, read):
        (run,), _ = read(
            reply("a", None, [call("t", command="x"), call("t", command="y")], "m"),
            result("r", "a", "t", "ok"),
            result("s", "r", "t", "ok"),
        )
        assert [one.observation for one in run.steps[0].calls] == ["ok", "ok"]

    def test_tools_of_the_service_answer_in_the_reply(self, read):
        found = {"type": "web_search_tool_result", "tool_use_id": "t", "content": [text("page")]}
        asked = {"type": "server_tool_use", "id": "t", "name": "web_search", "input": {"q": "x"}}
        (run,), _ = read(reply("a", None, [asked, found, text("It is so.")], "m"))
        assert run.steps[0].action == 'web_search({"q": "x"})'
        assert told(run) == ["page"]
        assert thoughts(run) == ["It is so."]


class TestTree:
    def test_a_branch_begins_with_its_own_copy_of_the_turn_that_went_on_otherwise(self, read):
        (main, fork), _ = read(
            *simple(),
            user("u2", "a2", "Test it."),
            reply("b1", "u2", "Tested.", "m3"),
            user("u3", "a2", "Document it."),
            reply("b2", "u3", "Documented.", "m4"),
        )
        assert thoughts(main) == ["I look.", "Mended.", "Documented."]
        assert told(main)[1] == "Document it."
        assert (fork.parent, fork.parent_step, fork.relation) == ("0", 0, "fork")
        assert thoughts(fork) == ["Mended.", "Tested."]
        assert fork.steps[0].flags == ("inherited", "shared-reply")
        assert (fork.steps[0].usage, told(fork)[0]) == (None, "Test it.")
        assert fork.goal == "Test it."

    def test_a_turn_that_is_the_same_in_both_is_not_copied(self, read):
        (main, fork), _ = read(
            *simple(),
            reply("b1", "a2", "One way.", "m3"),
            reply("b2", "a2", "Another.", "m4"),
        )
        assert thoughts(main) == ["I look.", "Mended.", "Another."]
        assert (fork.parent_step, thoughts(fork)) == (1, ["One way."])

    def test_a_branch_of_a_branch_counts_from_the_start(self, read):
        entries = [
            *simple(),
            reply("b1", "a2", "B one.", "b1"),
            reply("b2", "b1", "B two.", "b2"),
            reply("c2", "b1", "C two.", "c2"),
            reply("d1", "a2", "D one.", "d1"),
        ]
        (main, left, lower), _ = read(*entries)
        assert thoughts(main) == ["I look.", "Mended.", "D one."]
        assert (left.parent, left.parent_step, thoughts(left)) == ("0", 1, ["B one.", "C two."])
        assert (lower.parent, lower.parent_step, thoughts(lower)) == ("1", 2, ["B two."])

    def test_results_beside_a_shared_turn_are_in_both(self, read):
        (main, fork), _ = read(
            reply("a", None, [call("t1", command="x"), call("t2", command="y")], "m"),
            result("r1", "a", "t1", "one"),
            result("r2", "a", "t2", "two"),
            reply("b", "r2", "First.", "n"),
            user("v", "r2", "Stop."),
            reply("c", "v", "Second.", "o"),
        )
        assert told(main)[0] == "one\ntwo\nStop."
        assert (told(fork)[0], fork.steps[0].flags) == ("one\ntwo", ("inherited", "shared-reply"))

    def test_each_branch_has_what_came_back_in_it(self, read):
        (main, fork), _ = read(
            reply("a", None, [call("t", command="x")], "m"),
            result("r1", "a", "t", "first"),
            reply("b", "r1", "Left.", "n"),
            result("r2", "a", "t", "second"),
            reply("c", "r2", "Right.", "o"),
        )
        assert (told(main), thoughts(main)[1]) == (["second", ""], "Right.")
        assert (told(fork), thoughts(fork)[1]) == (["first", ""], "Left.")
        assert (fork.parent_step, fork.steps[0].flags) == (-1, ("inherited", "shared-reply"))

    def test_a_branch_without_a_reply_is_no_run(self, read):
        (run,), reading = read(*simple(), user("x", "u1", "Never answered."))
        assert run.config["unanswered"] == ["Never answered."]
        assert "1 texts stand in branches without a reply, and are kept aside" in reading.notes

    def test_the_run_leads_to_the_last_reply_and_not_to_a_lost_prompt(self, read):
        (run,), _ = read(
            user("u", None, "Go."), reply("a", "u", "Gone.", "m"), user("v", "u", "Lost.")
        )
        assert (run.goal, thoughts(run)) == ("Go.", ["Gone."])

    def test_a_parent_that_was_never_written(self, read):
        entries = simple()
        entries[2]["parentUuid"] = "phantom"
        (run,), reading = read(*entries)
        assert told(run) == ["parser.py", ""]
        assert any("1 lines name a parent that is not here" in note for note in reading.notes)

    def test_lines_without_parents_follow_each_other(self, read):
        (run,), reading = read(*(entry | {"parentUuid": None} for entry in simple()))
        assert thoughts(run) == ["I look.", "Mended."]
        assert reading.notes == []

    def test_quiet_lines_in_between(self, read):
        first, asked, *rest = simple()
        quiet = line("progress", "p", "a1", None) | {"data": {"type": "hook"}}
        rest[0]["parentUuid"] = "p"
        extra = [
            {"type": "file-history-snapshot", "messageId": "a1", "snapshot": {}},
            {"type": "queue-operation", "operation": "enqueue", "sessionId": SESSION},
        ]
        (run,), reading = read(extra[0], first, asked, quiet, extra[1], *rest)
        assert told(run) == ["parser.py", ""]
        assert reading.notes == [
            "3 lines are part of no step: file-history-snapshot 1, progress 1, queue-operation 1"
        ]

    def test_what_the_user_says_in_between_is_heard(self, read):
        entries = simple()
        said = {"type": "queued_command", "prompt": "Faster!"}
        entries.insert(3, line("attachment", "q", "r1", None) | {"attachment": said})
        entries[4]["parentUuid"] = "q"
        (run,), reading = read(*entries)
        assert (told(run), reading.notes) == (["parser.py\nFaster!", ""], [])

    def test_unknown_types_are_kept(self, read):
        strange = {"type": "from-the-future", "uuid": "z", "parentUuid": "a2", "x": [1]}
        (run,), _ = read(*simple(), strange)
        assert run.config["opaque_lines"] == [strange]

    def test_a_history_that_is_written_again_falls_onto_the_original(self, read):
        again = [
            user("v1", None, "Mend the parser."),
            reply("b1", "v1", [text("I look."), call("t1", command="ls")], "m1"),
            result("s1", "b1", "t1", "parser.py"),
            reply("b2", "s1", "Mended.", "m2"),
            user("v2", "b2", "Thanks."),
            reply("b3", "v2", "Welcome.", "m3"),
        ]
        (run,), reading = read(*simple(), *simple()[:2], *again)
        assert thoughts(run) == ["I look.", "Mended.", "Welcome."]
        assert told(run) == ["parser.py", "Thanks.", ""]
        assert run.config.get("unanswered") is None
        assert reading.notes == [
            "2 lines repeat an earlier one",
            "1 texts in branches without a reply repeat others",
        ]

    def test_a_uuid_that_is_used_again_for_something_else(self, read):
        (run,), reading = read(*simple(), reply("a2", "a2", "Something else.", "m9"))
        assert thoughts(run) == ["I look.", "Mended.", "Something else."]
        assert "1 lines have the uuid of an earlier one" in reading.notes


class TestSessions:
    def test_a_compaction_begins_a_run(self, read):
        runs, _ = read(*family())
        main, after = runs[:2]
        assert thoughts(main) == ["I look.", "Mended.", "Documented."]
        assert (after.parent, after.parent_step, after.relation) == ("0", 2, "compaction")
        assert (after.goal, thoughts(after)) == ("Go on.", ["Going on."])
        assert after.config["compaction_summary"] == "They mended and documented a parser."

    def test_a_compaction_without_a_boundary(self, read):
        entries = [entry for entry in family() if entry["uuid"] != "b1"]
        entries[-3]["parentUuid"] = "a5"
        runs, _ = read(*entries)
        assert (runs[1].relation, runs[1].parent_step) == ("compaction", 2)

    def test_a_compaction_that_puts_kept_messages_behind_itself(self, read):
        """The boundary names as its logical parent a reply that now stands behind it."""
        boundary = line("system", "c", None, None, subtype="compact_boundary")
        boundary["logicalParentUuid"] = "kept"
        (before, after), reading = read(
            *simple(),
            boundary,
            user("s", "c", "Summary.", isCompactSummary=True),
            reply("kept", "s", "Kept.", "m3"),
            user("v", "kept", "Go on."),
            reply("b", "v", "On.", "m4"),
        )
        assert thoughts(before) == ["I look.", "Mended."]
        assert (after.relation, after.parent_step) == ("compaction", 1)
        assert thoughts(after) == ["Kept.", "On."]
        assert not any("cycle" in note for note in reading.notes)

    def test_clear_begins_a_run_that_shares_nothing(self, read):
        (before, after), _ = read(
            *simple(),
            user("c", "a2", "<command-name>/clear</command-name>"),
            user("v", "c", "Anew."),
            reply("b", "v", "Yes.", "m3"),
        )
        assert thoughts(before) == ["I look.", "Mended."]
        assert (after.parent, after.parent_step, after.goal) == (None, None, "Anew.")
        assert thoughts(after) == ["Yes."]

    def test_clear_in_front_of_everything_parts_nothing(self, read):
        (run,), _ = read(
            user("c", None, "<command-name>/clear</command-name>"),
            user("v", "c", "Go."),
            reply("b", "v", "Yes.", "m3"),
        )
        assert (run.goal, thoughts(run)) == ("Go.", ["Yes."])

    def test_sessions_of_one_file_are_runs(self, read):
        other = [entry | {"sessionId": "other"} for entry in simple()]
        for entry in other:
            entry["uuid"] += "x"
            entry["parentUuid"] = entry["parentUuid"] and entry["parentUuid"] + "x"
            entry["message"] = json.loads(json.dumps(entry["message"]).replace('"m', '"n'))
            entry.pop("requestId", None)
        (one, two), _ = read(*simple(), *other)
        assert [run.task_id for run in (one, two)] == [SESSION, "other"]
        assert thoughts(one) == thoughts(two) == ["I look.", "Mended."]
        assert [run.parent for run in (one, two)] == [None, None]

    def continued(self):
        return [
            *simple(),
            user("v", "a2", "Go on.", sessionId="later"),
            reply("b", "v", "Going on.", "m3", sessionId="later"),
        ]

    def test_a_session_that_goes_on_behind_another_left_it(self, read):
        (one, two), _ = read(*self.continued())
        assert (two.parent, two.parent_step, two.relation) == ("0", 1, "resume")
        assert (thoughts(two), two.goal, two.task_id) == (["Going on."], "Go on.", SESSION)
        assert thoughts(one) == ["I look.", "Mended."]

    def test_in_the_file_of_the_later_session_the_others_are_copies(self, read):
        (run,), _ = read(*self.continued(), name="later.jsonl")
        assert thoughts(run) == ["I look.", "Mended.", "Going on."]
        assert [step.flags for step in run.steps] == [("inherited",), ("inherited",), ()]

    def test_lines_that_say_they_are_forked(self, read):
        where = {"sessionId": "old", "messageUuid": "x"}
        entries = [entry | {"forkedFrom": where} for entry in simple()]
        (run,), _ = read(*entries, reply("b", "a2", "Own.", "m3"))
        assert [step.flags for step in run.steps] == [("inherited",), ("inherited",), ()]

    def test_a_run_that_ends_in_an_error_of_the_service(self, read):
        fault = reply("x", "a2", "API Error: 529", "f", isApiErrorMessage=True)
        fault["message"]["model"] = "<synthetic>"
        (run,), _ = read(*simple(), fault)
        assert (len(run.steps), run.end, run.exit_status) == (2, "run.failed", "api_error")
        assert run.steps[1].state == {"notices": ["API Error: 529"]}
        assert run.model == "claude-x"
        (run,), _ = read(*simple(), fault, reply("y", "x", "Back.", "m3"))
        assert (len(run.steps), run.end) == (3, None)

    def test_a_run_that_was_interrupted(self, read):
        (run,), _ = read(*simple(), user("x", "a2", "[Request interrupted by user]"))
        assert (run.end, run.exit_status) == ("run.cancelled", "interrupted")

    def test_a_session_without_a_reply_is_an_empty_run(self, read):
        (run,), _ = read(user("u", None, "Hello?"))
        assert (run.goal, run.steps) == ("Hello?", ())


class TestSubagents:
    def test_a_subagent_is_linked_to_the_call_that_began_it(self, read):
        runs, _ = read(*family())
        (side,) = [run for run in runs if run.relation == "subagent"]
        (fork,) = [run for run in runs if run.relation == "fork" and run.parent]
        assert (side.parent, side.parent_step) == (fork.record, 2)
        assert fork.steps[side.parent_step - 1].calls[0].name == "Task"
        assert (side.agent, side.config["subagent_type"]) == ("claude-code/subagent", "Tester")
        assert actions(side) == ["pytest", ""]
        assert not any("pytest" in action for run in runs if run != side for action in actions(run))

    def test_the_line_of_the_result_may_name_the_agent(self, read):
        entries = family()
        for entry in entries:
            if entry["uuid"] == "r3":
                del entry["toolUseResult"]
                entry["agentId"] = "ag1"
            if entry["uuid"] == "s1":
                entry["message"]["content"] = "Not the prompt."
        (side,) = [run for run in read(*entries)[0] if run.relation == "subagent"]
        assert (side.parent_step, side.config["subagent_type"]) == (2, "Tester")

    def old(self, uuid, parent, content, **more):
        make = reply if "message_id" in more else user
        return make(uuid, parent, content, isSidechain=True, **more)

    def test_old_files_link_by_the_prompt_each_once(self, read):
        runs, _ = read(
            user("u", None, "Go."),
            reply("a", "u", [call("t1", "Task", prompt="Look.")], "m1"),
            self.old("s1", None, "Look."),
            self.old("s2", "s1", "One.", message_id="x1"),
            result("r", "a", "t1", "One."),
            reply("b", "r", [call("t2", "Task", prompt=" Look. ")], "m2"),
            self.old("s3", None, "Look."),
            self.old("s4", "s3", "Two.", message_id="x2"),
            self.old("s5", None, "Asked by nobody."),
            self.old("s6", "s5", "Three.", message_id="x3"),
        )
        main, *sides = runs
        assert told(main) == ["One.", ""]
        assert [thoughts(side) for side in sides] == [["One."], ["Two."], ["Three."]]
        assert [side.parent for side in sides] == ["0", "0", "0"]
        assert [side.parent_step for side in sides] == [0, 1, None]

    def test_a_file_of_a_subagent_alone(self, read):
        entries = [entry | {"isSidechain": True, "agentId": "ag7"} for entry in simple()]
        (run,), _ = read(*entries, name="agent-ag7.jsonl")
        assert (run.task_id, run.agent, run.parent) == ("agent-ag7", "claude-code/subagent", None)
        assert (run.config["agent_id"], run.config["session_id"]) == ("ag7", SESSION)
        assert thoughts(run) == ["I look.", "Mended."]

    def test_subagents_that_call_each_other_in_a_circle(self, read):
        def side(agent, asks):
            more = {"isSidechain": True, "agentId": agent}
            return [
                user(f"u{agent}", None, f"for {agent}", **more),
                reply(f"a{agent}", f"u{agent}", [call(f"t{agent}", "Task", prompt=f"for {asks}")],
                      f"m{agent}", **more),
            ]  # fmt: skip

        runs, _ = read(*side("one", "two"), *side("two", "one"))
        assert sorted(run.parent or "" for run in runs) == ["", "0"]


class TestStream:
    def test_the_printed_dialect(self, read):
        (main, side), reading = read(*streamed(), name="trial-1/claude-code.txt")
        assert reading.version == "stream-json"
        assert main.task_id == "trial-1"
        assert (main.end, main.exit_status) == ("run.completed", "success")
        assert main.usage == Usage(tokens_in=86, tokens_out=30, cost_usd=0.25)
        assert told(main) == ["There is a.py.", ""]
        assert main.config["setup"]["tools"] == ["Bash", "Task"]
        assert (side.parent, side.parent_step, side.goal) == ("0", 0, "Look.")
        assert (actions(side), told(side), side.usage) == (["ls"], ["a.py"], None)

    @pytest.mark.parametrize("status", ["error_max_turns", "error_during_execution"])
    def test_a_run_that_failed(self, read, status):
        *entries, last = streamed()
        (main, _), _ = read(*entries, last | {"subtype": status, "is_error": True})
        assert (main.end, main.exit_status) == ("run.failed", status)

    def test_the_cost_of_several_results_is_the_last_one(self, read):
        first = stream("result", subtype="success", total_cost_usd=0.1, usage={"output_tokens": 9})
        (main, _), _ = read(first, *streamed())
        assert main.usage == Usage(cost_usd=0.25)

    def test_a_run_that_died_has_no_end(self, read):
        (main, _), _ = read(*streamed()[:-1])
        assert (main.end, main.exit_status, main.usage) == (None, None, None)


class TestDamage:
    @pytest.mark.parametrize("bad", [b'"text"', b"42", b"[1]", b"null", b"true"])
    def test_lines_that_are_no_objects_are_named(self, read, bad):
        first, *rest = simple()
        (run,), reading = read(lines(first) + bad + b"\n" + lines(*rest))
        assert len(run.steps) == 2
        assert reading.notes == ["line 2: no object"]

    def test_a_line_that_is_cut_costs_itself(self, read):
        data = lines(*simple())
        (run,), reading = read(data[:-20])
        assert len(run.steps) == 1
        assert len(reading.notes) == 1
        assert reading.notes[0].startswith("line 4: JSON that is cut short")

    @pytest.mark.parametrize("key", [
        "parentUuid", "isSidechain", "sessionId", "uuid", "timestamp", "message", "type",
    ])  # fmt: skip
    @pytest.mark.parametrize("value", [None, 7, [], {}, "x", True])
    @pytest.mark.parametrize("place", range(4))
    def test_keys_of_other_types(self, read, key, value, place):
        entries = simple()
        entries[place][key] = value
        runs, _ = read(*entries)
        kept = sum(len(run.steps) for run in runs)
        if place in (0, 2) or key not in ("message", "type"):
            assert kept == 2
        else:
            assert kept in (1, 2)

    def test_without_any_message_it_is_refused(self, read):
        with pytest.raises(FormatError, match="no message in it"):
            read({"type": "summary", "summary": "x", "leafUuid": "y"})


class TestSniff:
    def test_sessions_are_recognised_by_content(self, tmp_path):
        for data in (lines(*simple()), lines(*family()), lines(*streamed())):
            source = Source(write(tmp_path / "any.name", data))
            found = recognise(source)
            assert found is not None
            assert found.name == "claude-code"

    @pytest.mark.parametrize("first", [
        {"type": "summary", "summary": "x", "leafUuid": "y"},
        {"type": "file-history-snapshot", "messageId": "m", "snapshot": {}, "isSnapshotUpdate": 0},
        {"type": "queue-operation", "operation": "x", "sessionId": "s", "content": "x" * 9000},
        "no object",
    ])  # fmt: skip
    def test_whatever_stands_first(self, tmp_path, first):
        source = Source(write(tmp_path / "x.jsonl", lines(first, *simple())))
        found = recognise(source)
        assert found is not None
        assert found.name == "claude-code"

    @pytest.mark.parametrize("other", [
        {"role": "user", "content": "x"},
        {"messages": [{"role": "user", "content": "x"}]},
        {"type": "session_meta", "payload": {"id": "x"}, "timestamp": "2026-01-01T00:00:00Z"},
        {"type": "user", "message": "x"},
        {"task_id": "t", "steps": []},
    ])  # fmt: skip
    def test_other_lines_are_not_claimed(self, other):
        assert ClaudeCode().sniff(lines(other, other), Path("x.jsonl")) == 0.0


def test_hostile_sizes_take_no_quadratic_work(read):
    size = 20_000
    flat = [reply(f"a{n}", None, [text(f"t{n}")], "m") for n in range(size)]
    (run,), _ = read(*flat)
    assert run.steps[0].thought.count("\n") == size - 1
    star = [user("u", None, "Go."), reply("a", "u", [call("t", command="x")], "m")]
    star += [result(f"r{n}", "a", "t", f"{n}") for n in range(size)]
    (run,), _ = read(*star)
    assert run.steps[0].observation.count("\n") == size - 1
    forks = [*star[:2], *(reply(f"b{n}", "a", f"{n}", f"m{n}") for n in range(2_000))]
    runs, _ = read(*forks)
    assert len(runs) == 2_000
