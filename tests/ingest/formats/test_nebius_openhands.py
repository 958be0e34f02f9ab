import json
from contextlib import suppress

import pytest
from hypothesis import given, settings

from sag_research.errors import FormatError
from sag_research.ingest._source import Source
from sag_research.ingest.formats import recognise
from sag_research.ingest.formats.nebius_openhands import NebiusOpenHands
from sag_research.model import Outcome
from tests.ingest.formats.openhands_make import damaged
from tests.ingest.formats.rows_make import CONTAINERS, container, message, read, rebench, seen
from tests.ingest.make import tool_call

FORMAT = NebiusOpenHands()


def one(tmp_path, row, kind="jsonl"):
    (run,), reading = read(FORMAT, container(tmp_path / "a", [row], kind))
    return run, reading


@pytest.mark.parametrize("kind", CONTAINERS)
def test_a_row_is_a_run(tmp_path, kind):
    path = container(tmp_path / "a", [rebench(), rebench(resolved=0)], kind)
    assert recognise(Source(path)).name == "nebius-openhands"
    (run, other), reading = read(FORMAT, path)
    assert seen(run) == [
        ("I look.", "ls", "a.py\n[Command finished with exit code 0]"),
        ("", "finish({})", ""),
    ]
    assert run.steps[0].calls[0].arguments == {"command": "ls"}
    assert (run.task_id, run.repo, run.model) == ("org__repo-1", "org/repo", None)
    assert (run.goal, run.agent, run.submission) == ("It breaks.", "openhands", "diff")
    assert (run.end, run.exit_status) == ("run.completed", "submit")
    assert (run.record, other.record, reading.refused) == ("0", "1", [])
    assert run.config == {"trajectory_id": "chatcmpl-1", "pred_passes_gen_tests": 0.0}
    assert (run.outcome.outcome, other.outcome.outcome) == ("success", "failure")


@pytest.mark.parametrize(
    ("resolved", "patch", "outcome"),
    [
        (1, "", Outcome(outcome="success", source="nebius resolved")),
        (0.0, "diff", Outcome(outcome="failure", source="nebius resolved")),
        (0, "", Outcome(outcome="failure", detail="empty", source="nebius resolved")),
        ("1", "diff", Outcome(outcome="success", source="nebius resolved")),
        (None, "", None),
        (2, "diff", None),
        ([1], "diff", None),
    ],
)
def test_resolved_is_the_outcome(tmp_path, resolved, patch, outcome):
    run, reading = one(tmp_path, rebench(resolved=resolved, model_patch=patch))
    assert run.outcome == outcome
    assert len(reading.notes) == (outcome is None and resolved is not None)


@pytest.mark.parametrize(
    ("status", "end"),
    [("submit", "run.completed"), ("max_iterations", "run.failed"), (None, "run.completed")],
)
def test_exit_status_says_how_it_ended(tmp_path, status, end):
    run, _ = one(tmp_path, rebench(exit_status=status))
    assert (run.exit_status, run.end) == (status, end)


def test_without_a_status_and_a_last_call_the_end_is_not_known(tmp_path):
    run, _ = one(tmp_path, rebench(message("assistant", "Hm."), exit_status=None))
    assert run.end is None


def test_what_the_user_says_later_is_no_result(tmp_path):
    turns = (
        message("assistant", "I ask.", tool_calls=[tool_call("think", {"thought": "x"}, "a")]),
        message("user", "Please continue."),
        message("tool", "Logged.", tool_call_id="a"),
    )
    run, _ = one(tmp_path, rebench(*turns))
    (step,) = run.steps
    assert step.calls[0].observation == "Logged."
    assert step.observation == "Logged.\nPlease continue."


@pytest.mark.parametrize("name", ["trajectory", "instance_id"])
def test_a_row_without_what_is_needed_is_refused(tmp_path, name):
    rows = [rebench(), rebench(**{name: None})]
    runs, reading = read(FORMAT, container(tmp_path / "a", rows, "parquet"))
    assert len(runs) == 1
    assert [where for where, _ in reading.refused] == ["row 1"]


def test_the_two_nebius_sets_are_told_apart(tmp_path):
    row = rebench(trajectory=[{"role": "ai", "text": "x"}])
    assert FORMAT.sniff(json.dumps(row).encode(), tmp_path / "a") == 0


@settings(max_examples=60)
@given(damaged([rebench(), rebench()]))
def test_any_values_give_runs_or_a_reason(tmp_path_factory, value):
    path = tmp_path_factory.mktemp("any") / "a.json"
    path.write_text(json.dumps(value), encoding="utf-8")
    with suppress(FormatError):  # nothing else may come out
        for run in FORMAT.read(Source(path)):
            assert run.agent == "openhands"
