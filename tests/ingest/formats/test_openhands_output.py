import json

import pytest
from hypothesis import given, settings

from sag_research.errors import FormatError
from sag_research.ingest._source import Source
from sag_research.ingest.formats.openhands_output import OpenHandsOutput
from sag_research.model import Outcome, Usage
from tests.ingest.formats.openhands_make import (
    act,
    action,
    damaged,
    got,
    lines,
    ran,
    read,
    record,
    response,
    said,
    v0_events,
)
from tests.ingest.make import write

FORMAT = OpenHandsOutput()


def one(path, value):
    (run,), reading = read(FORMAT, path / "output.jsonl", value)
    return run, reading


def test_an_instance(tmp_path):
    run, reading = one(tmp_path, record())
    assert (run.task_id, run.record, run.repo) == ("org__repo-1", "0", "org/repo")
    assert (run.goal, run.model, run.dataset) == ("It is broken.", "some/model", "a-set")
    assert (run.submission, run.outcome, len(run.steps)) == ("diff", None, 3)
    assert run.usage == Usage(tokens_in=300, tokens_out=21, cost_usd=0.25)
    assert run.config == {"read_from": "history", **record()["metadata"]}
    assert (run.end, run.exit_status) == ("run.completed", "finished")
    assert reading.refused == []


def test_every_line_is_a_run_and_a_bad_one_costs_itself(tmp_path):
    value = lines(
        record(), record(instance_id="b"), b'{"cut', record(instance_id=None), record(),
        record(history="x"), record(instance_id=7),
    )  # fmt: skip
    runs, reading = read(FORMAT, tmp_path / "output.jsonl", value)
    assert [(run.task_id, run.record) for run in runs] == [
        ("org__repo-1", "0"),
        ("b", "1"),
        ("org__repo-1", "4"),
        ("7", "6"),
    ]
    places, reasons = zip(*reading.refused, strict=True)
    assert sorted(places) == ["line 3", "line 4", "line 6"]
    assert all(reasons)


def test_one_object_over_many_lines(tmp_path):
    value = json.dumps(record(), indent=2).encode()
    run, reading = one(tmp_path, value)
    assert (len(run.steps), reading.refused) == (3, [])
    assert FORMAT.sniff(value, tmp_path / "x.json") > 0.9


def test_bytes_that_are_no_record(tmp_path):
    with pytest.raises(FormatError):
        read(FORMAT, tmp_path / "output.jsonl", b'{"instance_id": 1, "history": [')


@pytest.mark.parametrize(
    ("metrics", "usage"),
    [
        ({"accumulated_cost": 0.0}, None),
        (None, None),
        (
            {
                "accumulated_cost": 0.0,
                "token_usages": [
                    {"response_id": "a", "prompt_tokens": 5, "completion_tokens": 1},
                    {"response_id": "a", "prompt_tokens": 5, "completion_tokens": 4},
                    {"response_id": "b", "prompt_tokens": 6, "completion_tokens": 2},
                    "junk",
                ],
            },
            Usage(tokens_in=11, tokens_out=6),
        ),
    ],
)
def test_zero_is_unknown_and_a_reply_counts_once(tmp_path, metrics, usage):
    run, _ = one(tmp_path, record(metrics=metrics, history=[action(1, "run", {"command": "x"})]))
    assert run.usage == usage


def test_steps_take_their_tokens_from_the_metrics_where_events_have_none(tmp_path):
    reply = response("r9", usage=None)
    event = action(1, "run", {"command": "x"}, tool_call_metadata={"model_response": reply})
    usages = [{"response_id": "r9", "prompt_tokens": 5, "completion_tokens": 1}]
    run, _ = one(tmp_path, record(history=[event], metrics={"token_usages": usages}))
    assert run.steps[0].usage == Usage(tokens_in=5, tokens_out=1)


@pytest.mark.parametrize(
    ("more", "outcome", "detail"),
    [
        ({}, None, None),
        ({"test_result": {"git_patch": "d", "report": {"resolved": True}}}, "success", None),
        ({"test_result": {"git_patch": "d", "report": {"resolved": False}}}, "failure", None),
        ({"test_result": {"git_patch": "d", "report": {"resolved": None}}}, None, None),
        ({"test_result": {"git_patch": "d", "report": {}}}, None, None),
        ({"test_result": {"git_patch": "", "report": {"resolved": False}}}, "failure", "empty"),
        (
            {"test_result": {"report": {"resolved": False, "empty_generation": True}}},
            "failure",
            "empty",
        ),
        (
            {
                "test_result": {
                    "git_patch": "d",
                    "report": {"resolved": False, "failed_apply_patch": True},
                }
            },
            "failure",
            "no-apply",
        ),
        (
            {"test_result": {"git_patch": "d", "report": {"resolved": 0, "error_eval": True}}},
            "unknown",
            "error",
        ),
        (
            {"error": "Crash: no container", "test_result": {"report": {"resolved": False}}},
            "unknown",
            "error",
        ),
        ({"report": {"resolved": 1}}, "success", None),
        ({"report": {"resolved": ["a", "b"]}}, None, None),
    ],
)
def test_the_outcome_is_only_what_a_report_says(tmp_path, more, outcome, detail):
    run, _ = one(tmp_path, record(**more))
    expected = outcome and Outcome(outcome=outcome, detail=detail, source="openhands report")
    assert run.outcome == expected


def test_an_error_ends_the_run_and_is_no_failure(tmp_path):
    run, _ = one(tmp_path, record(error="StuckError: it loops\nTraceback …", history=[]))
    assert (run.end, run.exit_status, run.outcome) == ("run.failed", "StuckError: it loops", None)
    assert run.config["error"] == "StuckError: it loops\nTraceback …"
    assert run.steps == ()


def resolver(**more):
    history = [
        {"action": "message", "content": "Please mend it.", "wait_for_response": False},
        {"action": "run", "command": "ls", "thought": "I look."},
        {"observation": "run", "content": "a.py", "command": "ls", "exit_code": 1},
        {"action": "run_ipython", "code": "1+1", "thought": "I count."},
        {"observation": "run_ipython", "content": "2", "code": "1+1"},
        {"action": "message", "content": "Is it good?", "wait_for_response": True},
        {"action": "message", "content": "Go on.", "wait_for_response": False},
        {"action": "finish", "outputs": {}, "thought": "Done."},
    ]
    return {
        "issue": {"owner": "org", "repo": "repo", "number": 5, "body": "It is broken."},
        "issue_type": "issue",
        "instruction": "Please mend it.",
        "git_patch": "diff",
        "history": history,
        "metrics": {"accumulated_cost": 0.5},
        "success": True,
        "result_explanation": "It looks good.",
        **more,
    }


def test_the_issue_resolver(tmp_path):
    run, reading = one(tmp_path, resolver())
    assert reading.version == "resolver"
    assert (run.task_id, run.repo, run.goal) == ("org__repo-5", "org/repo", "It is broken.")
    assert [(step.thought, step.action, step.observation) for step in run.steps] == [
        ("I look.", "ls", "a.py"),
        ("I count.", "1+1", "2"),
        ("Is it good?", "", "Go on."),
        ("Done.", "finish({})", ""),
    ]
    assert run.steps[0].calls[0].exit_code == 1
    assert run.usage == Usage(cost_usd=0.5)
    # the model's own opinion is no outcome
    assert run.outcome is None
    assert run.config["resolver"] == {
        "issue_type": "issue",
        "success": True,
        "result_explanation": "It looks good.",
    }


def test_a_history_of_the_sdk_and_its_branches(tmp_path):
    history = [
        said("u", "Mend it."),
        act("a", "ls", "r1"),
        got("o", "call-a", "x"),
        act("b", "left", "r2", parent_id="o"),
        act("c", "right", "r3", parent_id="o"),
    ]
    value = lines(record(), record(instance_id="two", history=history))
    runs, _ = read(FORMAT, tmp_path / "output.jsonl", value)
    assert [(run.record, run.parent, run.parent_step) for run in runs] == [
        ("0", None, None),
        ("1", None, None),
        ("1.1", "1", 0),
    ]
    assert [[step.action for step in run.steps] for run in runs[1:]] == [["ls", "right"], ["left"]]
    assert runs[1].submission == "diff"
    assert runs[2].submission is None  # the patch is that of the run that went on


@pytest.mark.parametrize(
    ("value", "claimed"),
    [
        (record(), True),
        (resolver(), True),
        ({"instance_id": "x", "history": [], "metrics": {}}, True),
        ({"instance_id": "x", "model_patch": "d", "model_name_or_path": "m"}, False),
        ({"instance_id": "x", "resolved": True}, False),
        ({"history": v0_events()}, False),
        ([record()], False),
    ],
)
def test_files_are_claimed_by_content(tmp_path, value, claimed):
    head = json.dumps(value).encode()
    assert (FORMAT.sniff(head, tmp_path / "x.json") > 0) == claimed


def test_a_bad_first_line_does_not_hide_the_others(tmp_path):
    assert FORMAT.sniff(lines({"a": 1}, record()), tmp_path / "x.jsonl") > 0.6


def test_an_observation_longer_than_the_head(tmp_path):
    history = [action(1, "run", {"command": "x"}), ran(2, 1, "y" * 1_000_000)]
    run, _ = one(tmp_path, lines(record(history=history), b""))
    assert len(run.steps[0].observation) == 1_000_000


@settings(max_examples=80)
@given(damaged(record()))
def test_any_values_give_runs_or_a_reason(tmp_path_factory, value):
    path = write(tmp_path_factory.mktemp("any") / "output.jsonl", lines(value, record()))
    reading = FORMAT.read(Source(path))
    assert len(list(reading)) + len(reading.refused) == 2


def test_real_resolver_output(real_data):
    path = real_data / "openhands_output_jsonl/resolver/mock_output/output.jsonl"
    text = path.read_text(encoding="utf-8")
    records = [json.loads(line) for line in text.split("\n") if line]
    runs = list(FORMAT.read(Source(path)))
    assert len(runs) == len(records) == 2
    for run, raw in zip(runs, records, strict=True):
        asked, *events = raw["history"]
        actions = [event for event in events if "action" in event]
        results = [event["content"] for event in events if "observation" in event]
        assert len(run.steps) == len(actions) == len(raw["metrics"]["costs"])
        assert [call.observation for step in run.steps for call in step.calls][:-1] == results
        typed = [event.get("command") or event.get("code") for event in actions[:-1]]
        assert [step.action for step in run.steps[:-1]] == typed
        assert [step.thought for step in run.steps] == [event["thought"] for event in actions]
        assert run.usage == Usage(cost_usd=raw["metrics"]["accumulated_cost"])
        assert (run.submission, run.outcome) == (raw["git_patch"], None)
        assert asked["action"] == "message"
    assert [len(run.steps) for run in runs] == [4, 22]
