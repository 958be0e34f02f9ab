"""Reports of trials, records of evaluations, and counters that lie."""

import json
import shutil

import pytest

from sag_research.errors import LabelError
from sag_research.ingest import apply_labels, ingest, read_labels
from sag_research.log import SQLiteEventStore
from tests.ingest.make import native, swe_file, swe_step, write
from tests.ingest.test_labels import EMPTY, ERROR, FAILURE, SUCCESS, UNKNOWN, said

INFRA, NO_APPLY = ("unknown", "infra"), ("failure", "no-apply")


@pytest.fixture
def store():
    with SQLiteEventStore(":memory:") as store:
        yield store


def harbor(reward=None, exception=None, **more):
    return {
        "id": "t-1",
        "task_name": "org__repo-1",
        "trial_name": "org__repo-1__aB3",
        "agent_info": {"name": "a", "model_info": {"name": "m", "provider": "p"}},
        "verifier_result": None if reward is None else {"rewards": {"reward": reward}},
        "exception_info": exception and {"exception_type": exception, "exception_message": "x"},
        **more,
    }


def terminal_bench(resolved, mode="unset", trial="t-1", task="count"):
    return {
        "id": trial,
        "trial_name": f"{task}.1-of-1",
        "task_id": task,
        "is_resolved": resolved,
        "failure_mode": mode,
        "parser_results": None,
        "total_input_tokens": 0,
    }


@pytest.mark.parametrize(
    ("value", "expected", "score"),
    [
        (harbor(1.0), SUCCESS, 1.0),
        (harbor(0), FAILURE, 0.0),
        (harbor(0.4), ("failure", "partial"), 0.4),
        (harbor(1.0, "AgentTimeoutError"), SUCCESS, 1.0),
        (harbor(None, "AgentTimeoutError"), ERROR, None),
        (harbor(None, "EnvironmentStartTimeoutError"), INFRA, None),
        (harbor(None, "VerifierTimeoutError"), INFRA, None),
        (harbor(), UNKNOWN, None),
        (harbor(verifier_result={"rewards": {"a": 1.0, "b": 0.0}}), UNKNOWN, None),
        (harbor(verifier_result={"rewards": {"tests": 1.0}}), SUCCESS, 1.0),
        (harbor("1.0"), UNKNOWN, None),
    ],
)
def test_harbor(tmp_path, value, expected, score):
    (label,) = read_labels(write(tmp_path / "job/trial/result.json", value))
    assert ((label.outcome.outcome, label.outcome.detail), label.outcome.score) == (expected, score)
    assert (label.kind, label.key, label.model) == ("trial", "org__repo-1__aB3", "m")
    assert label.folder == str(tmp_path / "job/trial")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (terminal_bench(True), SUCCESS),
        (terminal_bench(True, "agent_timeout"), SUCCESS),
        (terminal_bench(False), FAILURE),
        (terminal_bench(False, "agent_timeout"), ("failure", "agent_timeout")),
        (terminal_bench(None, "parse_error"), INFRA),
        (terminal_bench(None, "test_timeout"), INFRA),
        (terminal_bench(None, "agent_installation_failed"), ERROR),
        (terminal_bench(None), UNKNOWN),
    ],
)
def test_terminal_bench(tmp_path, value, expected):
    labels = read_labels(write(tmp_path / "run/count/t/results.json", value))
    assert said(labels) == {"count.1-of-1": expected}


def test_a_copied_folder_of_results_counts_once(tmp_path):
    run = tmp_path / "bench/2025-01-02"
    for number in range(3):
        value = terminal_bench(number != 1, trial=f"t-{number}", task=f"task{number}")
        write(run / f"task{number}/trial/results.json", value)
    batch = [terminal_bench(n != 1, trial=f"t-{n}", task=f"task{n}") for n in range(3)]
    write(run / "results.json", {"results": batch, "n_resolved": 7})
    shutil.copytree(run, tmp_path / "bench/2025-01-05/2025-01-02")
    labels = read_labels(tmp_path / "bench")
    assert sorted(label.trial for label in labels) == ["t-0", "t-1", "t-2"]
    assert sum("already" in note for note in labels.notes) == 7
    assert {label.outcome.outcome for label in labels} == {"success", "failure"}


def test_a_copy_that_says_something_else_is_a_conflict(store, tmp_path):
    for name, resolved in (("a", True), ("b", False)):
        write(tmp_path / f"bench/{name}/results.json", terminal_bench(resolved))
    write(tmp_path / "runs/x.jsonl", json.dumps(native(task_id="count")).encode())
    ingest(store, [tmp_path / "runs"])
    report = apply_labels(store, read_labels(tmp_path / "bench"))
    ((_, outcomes),) = report.conflicts
    assert outcomes == {"bench/a/results.json": "success", "bench/b/results.json": "failure"}


def test_a_trial_is_about_what_was_read_from_its_folder(store, tmp_path):
    for number, action in enumerate(("ls\n", "pwd\n")):
        folder = tmp_path / f"job/org__repo-1__{number}"
        write(folder / "agent/org__repo-1.traj", swe_file(swe_step(action)))
        write(folder / "result.json", harbor(number, id=f"t-{number}", agent_info=None))
    ingest(store, [tmp_path / "job"])
    report = apply_labels(store, read_labels(tmp_path / "job"))
    assert (report.applied, report.ambiguous, report.unmatched) == (2, [], 0)
    outcomes = {
        event.payload["run"]: event.payload["outcome"]
        for event in store.tail(types=("outcome.recorded",))
    }
    first_actions = {
        run_id: next(iter(store.read(run_id, types=("agent.step",)))).payload["action"].strip()
        for run_id in outcomes
    }
    assert {first_actions[run_id]: outcome for run_id, outcome in outcomes.items()} == {
        "ls": "failure",
        "pwd": "success",
    }


def test_a_trial_whose_folder_holds_no_run_is_about_its_task(store, tmp_path):
    write(tmp_path / "runs/x.jsonl", json.dumps(native(task_id="org__repo-1")).encode())
    ingest(store, [tmp_path / "runs"])
    write(tmp_path / "elsewhere/result.json", harbor(1, agent_info=None))
    report = apply_labels(store, read_labels(tmp_path / "elsewhere"))
    assert report.outcomes == {"success": 1}


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ({"report": {"resolved": True}}, SUCCESS),
        ({"test_result": {"report": {"resolved": False, "empty_generation": True}}}, EMPTY),
        ({"test_result": {"report": {"resolved": False, "error_eval": True}}}, ERROR),
        ({"test_result": {"report": {"resolved": False, "test_timeout": True}}}, ERROR),
        ({"test_result": {"report": {"resolved": False, "failed_apply_patch": True}}}, NO_APPLY),
        ({"report": {"resolved": None}}, UNKNOWN),
        ({"resolved": 1}, SUCCESS),
        ({"resolved": 0, "try": 1, "all_results": [{"resolved": True}]}, FAILURE),
        ({"all_results": [{"resolved": True}, {"resolved": True}]}, SUCCESS),
        ({"all_results": [{"resolved": True}, {"resolved": False}]},
         ("unknown", "several attempts")),
        ({"model_patch": "b", "all_results": [
            {"resolved": True, "model_patch": "a"}, {"resolved": False, "model_patch": "b"}]},
         FAILURE),
    ],
)  # fmt: skip
def test_records_of_an_evaluation(tmp_path, record, expected):
    path = write(tmp_path / "r/out.jsonl", json.dumps({"instance_id": "a", **record}).encode())
    assert said(read_labels(path)) == {"a": expected}


def test_counters_are_recounted_and_told(tmp_path):
    report = {
        "submitted_instances": 492,
        "submitted_ids": ["a", "b"],
        "resolved_instances": 1,
        "resolved_ids": ["a"],
        "empty_error_patch_instances": 0,
        "empty_error_patch_ids": ["b"],
    }
    labels = read_labels(write(tmp_path / "r/report.json", report))
    assert said(labels) == {"a": SUCCESS, "b": EMPTY}
    assert labels.notes == [
        "r/report.json: submitted_instances says 492, but 2 ids are listed; counted from the ids",
        "r/report.json: empty_error_patch_instances says 0, but 1 ids are listed; counted from the"
        " ids",
    ]


def test_json_records_with_the_columns_of_a_csv(tmp_path):
    rows = [
        {"task_id": "a", "outcome": "success", "score": 0.5, "known_at_step": 3},
        {"run_id": "b", "outcome": "error", "detail": None},
    ]
    first, second = read_labels(write(tmp_path / "x.json", rows))
    assert (first.kind, first.outcome.score, first.outcome.known_at_step) == ("task_id", 0.5, 3)
    assert (second.kind, second.outcome.outcome, second.outcome.detail) == (
        "run_id", "unknown", "error",
    )  # fmt: skip


def test_json_records_may_answer_with_a_flag(tmp_path):
    flags = (True, 0, 1, False, None)
    rows = [{"task_id": a, "outcome": flag} for a, flag in zip("abcde", flags, strict=True)]
    labels = read_labels(write(tmp_path / "x.json", rows))
    assert said(labels) == {"a": SUCCESS, "b": FAILURE, "c": SUCCESS, "d": FAILURE, "e": UNKNOWN}


def test_runs_are_no_labels(tmp_path):
    with pytest.raises(LabelError, match="no report"):
        read_labels(write(tmp_path / "x.json", [native(task_id="a", outcome="success")]))
