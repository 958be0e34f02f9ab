import json

import pytest

from sag_research.ingest import Source
from sag_research.ingest.formats import by_name
from tests.ingest.make import mini_file, mini_seen, mini_turn, tool_call, write

FORMAT = by_name("mini-swe-agent")
CORRECTION = "Please always provide EXACTLY ONE action in triple backticks, found 2 actions."


@pytest.fixture
def read(tmp_path):
    def read_(value, name="org__repo-1.traj.json"):
        reading = FORMAT.read(Source(write(tmp_path / name, value)))
        (run,) = reading
        return run, reading

    return read_


def test_version_1(read):
    usage = {"prompt_tokens": 5, "completion_tokens": 2, "cost": 0.25}
    response = {"model": "m", "created": 1_700_000_000, "usage": usage}
    run, reading = read(mini_file(mini_turn("ls", response=response), mini_seen("a.py")))
    assert (reading.version, run.agent, run.model) == ("1", "mini-swe-agent", "some/model")
    assert (run.task_id, run.repo, run.goal) == ("org__repo-1", "org/repo", "It is broken.")
    assert (run.end, run.exit_status, run.submission) == ("run.completed", "Submitted", "the patch")
    assert (run.usage.cost_usd, run.usage.tokens_in) == (0.5, None)
    first, last = run.steps
    assert (first.thought, first.action) == ("THOUGHT: go on", "ls")
    assert first.observation == "<returncode>0</returncode>\n<output>\na.py\n</output>"
    assert (first.usage.tokens_in, first.usage.tokens_out, first.usage.cost_usd) == (5, 2, 0.25)
    assert first.started == 1_700_000_000
    assert (last.observation, last.calls[0].status) == ("", "unknown")  # no patch


def test_the_return_code_is_read(read):
    run, _ = read(
        mini_file(mini_turn("ls"), mini_seen("no", code=2), mini_turn("pwd"), mini_seen("x"))
    )
    calls = [step.calls[0] for step in run.steps]
    assert [(call.exit_code, call.status) for call in calls[:2]] == [(2, "error"), (0, "ok")]


def test_a_command_that_timed_out_is_an_error_without_a_code(read):
    text = "The last command <command>sleep</command> timed out and has been killed."
    run, _ = read(mini_file(mini_turn("sleep"), {"role": "user", "content": text}))
    call = run.steps[0].calls[0]
    assert (call.exit_code, call.status, call.observation) == (None, "error", text)


@pytest.mark.parametrize("blocks", [0, 2, 14])
def test_a_rejected_turn_is_a_step_and_its_correction_no_observation(read, blocks):
    content = "THOUGHT: hm\n" + "\n```bash\nls\n```\n" * blocks
    turn = {"role": "assistant", "content": content}
    run, reading = read(
        mini_file(turn, {"role": "user", "content": CORRECTION}, mini_turn("ls"), mini_seen("a"))
    )
    rejected, good, _ = run.steps
    assert (rejected.flags, rejected.calls, rejected.action) == (("rejected",), (), "")
    assert (rejected.observation, rejected.thought) == ("", content.strip())
    assert (good.flags, good.action) == ((), "ls")
    assert reading.notes == []


def test_an_observation_that_speaks_of_the_rule_is_an_observation(read):
    run, _ = read(mini_file(mini_turn("cat prompt"), mini_seen(CORRECTION)))
    assert CORRECTION in run.steps[0].observation
    assert run.steps[0].flags == ()


def test_version_1_1_with_tools(read):
    messages = [
        {"role": "system", "content": "x"},
        {"role": "user", "content": "Mend it."},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                tool_call("bash", {"command": "ls"}, "a"),
                tool_call("bash", {"command": "pwd"}, "b"),
            ],
            "extra": {
                "actions": [{"command": "ls", "tool_call_id": "a"}],
                "cost": 0.1,
                "timestamp": 1.5e9,
                "response": {
                    "usage": {"input_tokens": 3, "output_tokens": 4},
                    "choices": [{"message": {"reasoning": "I think."}}],
                },
            },
        },
        {
            "role": "tool",
            "tool_call_id": "b",
            "content": "second",
            "extra": {"returncode": 1, "raw_output": "long"},
        },
        {"role": "tool", "tool_call_id": "a", "content": "first", "extra": {"returncode": 0}},
        {"role": "tool", "tool_call_id": "gone", "content": "orphan"},
        {
            "role": "user",
            "content": "Tool call error: bad",
            "extra": {"interrupt_type": "FormatError"},
        },
        {
            "role": "user",
            "content": "Tool call error: bad",
            "extra": {"interrupt_type": "FormatError"},
        },
        {
            "role": "exit",
            "content": "the patch",
            "extra": {"exit_status": "LimitsExceeded", "submission": "p"},
        },
    ]
    run, reading = read(
        {
            "info": {"mini_version": "2.0"},
            "messages": messages,
            "trajectory_format": "mini-swe-agent-1.1",
        },
        "task_9.traj.json",
    )
    assert (reading.version, run.task_id, run.goal) == ("1.1", "task_9", "Mend it.")
    assert (run.exit_status, run.submission, run.end) == ("LimitsExceeded", "p", "run.failed")
    (step,) = run.steps
    assert [(call.text, call.observation, call.exit_code) for call in step.calls] == [
        ("ls", "first", 0),
        ("pwd", "second", 1),
    ]
    assert step.action == "ls\npwd"
    assert step.observation == "first\nsecond\norphan"
    assert (step.thought, step.started) == ("I think.", 1.5e9)
    assert (step.usage.tokens_in, step.usage.tokens_out, step.usage.cost_usd) == (3, 4, 0.1)
    assert reading.notes == ["2 rejected replies are not in the file, their corrections are"]


def test_a_bare_list_of_messages(read):
    messages = mini_file()["messages"]
    for message in messages:
        message["content"] = message["content"].replace("```bash", "```mswea_bash_command")
    run, reading = read(messages, "github_issue.traj.json")
    assert (reading.version, run.task_id, run.model) == ("messages", "github_issue", None)
    assert (run.exit_status, run.end, run.submission) == (None, "run.completed", "the patch")
    assert run.steps[0].action == "ls"


def test_a_run_that_was_cut_off_has_no_end(read):
    file = mini_file()
    file["messages"] = file["messages"][:-2]
    file["info"] = {"mini_version": "1.15.0"}
    run, _ = read(file)
    assert (run.end, run.exit_status, len(run.steps)) == (None, None, 1)
    assert "a.py" in run.steps[0].observation


def test_limits_end_with_an_empty_message(read):
    file = mini_file()
    file["messages"] = [*file["messages"][:-2], {"role": "user", "content": ""}]
    file["info"] |= {"exit_status": "LimitsExceeded", "submission": ""}
    run, _ = read(file)
    assert (run.end, run.exit_status, len(run.steps)) == ("run.failed", "LimitsExceeded", 1)


def test_a_message_that_is_no_object_costs_that_message(read):
    file = mini_file()
    file["messages"].insert(2, "junk")
    run, reading = read(file)
    assert len(run.steps) == 2
    assert reading.notes == ["1 messages are no objects and were left out"]


@pytest.mark.parametrize(
    ("value", "claimed"),
    [
        (mini_file(), True),
        ({"info": {"exit_status": "x", "submission": "y"}, "messages": [{"role": "user"}]}, True),
        (mini_file()["messages"], True),
        ([{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi"}], False),
        (
            {"messages": [{"role": "user", "content": "```bash\nls\n```"}], "instance_id": "x"},
            False,
        ),
    ],
)
def test_files_are_claimed_by_content(tmp_path, value, claimed):
    head = json.dumps(value).encode()
    assert (FORMAT.sniff(head, tmp_path / "x") > 0) == claimed
