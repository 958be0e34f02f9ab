import json
from contextlib import suppress

import pytest
from hypothesis import given, settings

from sag_research.errors import FormatError
from sag_research.ingest._source import Source
from sag_research.ingest.formats import recognise
from sag_research.ingest.formats.swe_gym import SweGym
from sag_research.model import Outcome
from tests.ingest.formats.openhands_make import damaged
from tests.ingest.formats.rows_make import CONTAINERS, chat, container, gym, message, read, seen
from tests.ingest.make import tool_call

FORMAT = SweGym()


def one(tmp_path, row, kind="jsonl"):
    (run,), reading = read(FORMAT, container(tmp_path / "a", [row], kind))
    return run, reading


@pytest.mark.parametrize("kind", CONTAINERS)
def test_a_row_is_a_run(tmp_path, kind):
    path = container(tmp_path / "a", [gym(), gym(resolved=False)], kind)
    assert recognise(Source(path)).name == "swe-gym"
    (run, other), reading = read(FORMAT, path)
    assert seen(run) == [
        ("I look.", "ls", "a.py\n[Command finished with exit code 0]"),
        ("", "finish({})", ""),
    ]
    assert [(call.status, call.exit_code) for step in run.steps for call in step.calls] == [
        ("ok", 0),
        ("unknown", None),
    ]
    assert (run.task_id, run.repo, run.model) == ("org__repo-1", "org/repo", "gpt-x")
    assert (run.goal, run.agent, run.submission) == ("It breaks.", "openhands", "diff")
    assert (run.end, run.exit_status) == ("run.completed", "finish")
    assert (run.record, other.record, reading.refused) == ("0", "1", [])
    assert run.config == {"run_id": "gpt-x_maxiter_50_N_v2-run_1"}
    assert (run.outcome.outcome, other.outcome.outcome) == ("success", "failure")


@pytest.mark.parametrize(
    ("resolved", "result", "outcome"),
    [
        (None, {}, None),
        (True, {"report": {"error_eval": True}}, ("success", None)),
        (False, {"report": {"error_eval": True}}, ("unknown", "error")),
        (False, {"report": {"test_timeout": True}}, ("unknown", "error")),
        (False, {"report": {"empty_generation": True}}, ("failure", "empty")),
        (False, {"report": {"failed_apply_patch": True}}, ("failure", "no-apply")),
        (False, {"git_patch": ""}, ("failure", "empty")),
        (False, None, ("failure", None)),
        (False, {"report": "lost"}, ("failure", None)),
    ],
)
def test_errors_of_the_evaluation_are_no_failure(tmp_path, resolved, result, outcome):
    run, _ = one(tmp_path, gym(resolved=resolved, test_result=result))
    source = "swe-gym resolved"
    wanted = outcome and Outcome(outcome=outcome[0], detail=outcome[1], source=source)
    assert run.outcome == wanted


def test_an_id_that_is_used_again_belongs_to_its_own_reply(tmp_path):
    turns = [
        part
        for number in (1, 2)
        for part in (
            message(
                "assistant", "", tool_calls=[tool_call("execute_bash", {"command": f"{number}"})]
            ),
            message("tool", f"OBSERVATION:\nof {number}", tool_call_id="c1"),
        )
    ]
    run, _ = one(tmp_path, gym(*turns))
    assert [(step.action, step.observation) for step in run.steps] == [("1", "of 1"), ("2", "of 2")]


def test_several_calls_of_a_reply_have_their_results(tmp_path):
    both = [tool_call("execute_bash", {"command": "a"}, "x"), tool_call("f", "no json", "y")]
    turns = (
        message("assistant", None, tool_calls=both),
        message("tool", "second", tool_call_id="y"),
        message("tool", "ERROR:\nfirst", tool_call_id="x"),
        message("user", "Please go on."),
    )
    run, _ = one(tmp_path, gym(*turns))
    (step,) = run.steps
    assert [(call.observation, call.status) for call in step.calls] == [
        ("ERROR:\nfirst", "error"),
        ("second", "unknown"),
    ]
    assert step.calls[1].arguments == "no json"
    assert step.observation == "ERROR:\nfirst\nsecond\nPlease go on."
    assert run.end is None


def test_messages_may_be_text(tmp_path):
    plain, _ = one(tmp_path, gym())
    for kind in ("jsonl", "parquet"):
        text, _ = one(tmp_path, gym(messages=json.dumps(chat())), kind)
        assert text == plain


def test_calls_that_are_written_out_are_read(tmp_path):
    said = "I look.\n<function=execute_bash>\n<parameter=command>\nls\n</parameter>\n</function>"
    shown = "EXECUTION RESULT of [execute_bash]:\na.py\n[Command finished with exit code 2]"
    run, _ = one(tmp_path, gym(message("assistant", said), message("user", shown)))
    (call,) = run.steps[0].calls
    assert (call.text, call.exit_code, call.status) == ("ls", 2, "error")
    assert run.steps[0].observation.startswith("a.py\n")


@pytest.mark.parametrize("name", ["messages", "instance_id", "run_id"])
def test_rows_without_what_tells_are_not_claimed(tmp_path, name):
    row = gym()
    assert FORMAT.sniff(json.dumps(row).encode(), tmp_path / "a") > 0.6
    del row[name]
    assert FORMAT.sniff(json.dumps(row).encode(), tmp_path / "a") == 0


@settings(max_examples=60)
@given(damaged([gym(), gym()]))
def test_any_values_give_runs_or_a_reason(tmp_path_factory, value):
    path = tmp_path_factory.mktemp("any") / "a.json"
    path.write_text(json.dumps(value), encoding="utf-8")
    with suppress(FormatError):  # nothing else may come out
        for run in FORMAT.read(Source(path)):
            assert run.agent == "openhands"
