import json

import pytest

from sag_research.ingest import Source
from sag_research.ingest.formats import by_name
from tests.ingest.make import tau_result, tool_call, write

FORMAT = by_name("tau-bench")


@pytest.fixture
def read(tmp_path):
    def read_(value):
        reading = FORMAT.read(Source(write(tmp_path / "gpt-4o-retail.json", value)))
        return list(reading), reading

    return read_


def test_a_result_is_a_run(read):
    (run,), _ = read([tau_result(task_id=12, trial=3)])
    assert (run.task_id, run.dataset, run.attempt) == ("tau-bench:airline:12", "tau-bench", 3)
    assert (run.goal, run.model, run.end) == ("You want a flight.", None, "run.completed")
    talk, call = run.steps
    assert (talk.thought, talk.action, talk.observation, talk.calls) == ("Your id?", "", "mia", ())
    assert (call.action, call.observation) == ('find({"id": "mia"})', "Error: no user")
    assert (call.calls[0].name, call.calls[0].arguments) == ("find", {"id": "mia"})
    assert call.calls[0].status == "error"


@pytest.mark.parametrize(
    ("reward", "outcome", "score"),
    [(1.0, "success", 1.0), (1, "success", 1.0), (0.0, "failure", 0.0), (0.5, "failure", 0.5)],
)
def test_the_reward_is_the_outcome(read, reward, outcome, score):
    (run,), _ = read([tau_result(reward=reward)])
    assert (run.outcome.outcome, run.outcome.score) == (outcome, score)
    assert run.outcome.source == "tau-bench reward"


@pytest.mark.parametrize("reward", [None, "1.0", True])
def test_what_is_no_reward_is_unknown_and_not_a_failure(read, reward):
    (run,), _ = read([tau_result(reward=reward)])
    assert run.outcome is None


def test_a_crash_of_the_harness_is_no_failure(read):
    (run,), _ = read([tau_result(reward=0.0, info={"error": "boom", "traceback": "…"}, traj=[])])
    assert (run.outcome.outcome, run.outcome.detail) == ("unknown", "error")
    assert (run.end, run.exit_status, run.steps) == ("run.failed", "error", ())


def test_runs_that_repeat_task_and_trial_stay_apart(read):
    runs, _ = read([tau_result(), tau_result(), tau_result(trial=1)])
    assert [(run.record, run.attempt) for run in runs] == [("0", 0), ("1", 0), ("2", 1)]


def test_without_a_policy_the_domain_is_unknown(read):
    (run,), _ = read([tau_result(task_id="7", traj=[{"role": "assistant", "content": "Hi"}])])
    assert run.task_id == "tau-bench:7"


def test_an_entry_that_is_no_result_costs_that_entry(read):
    runs, reading = read([tau_result(), "junk", {"task_id": None}, tau_result(task_id=1)])
    assert [run.record for run in runs] == ["0", "3"]
    assert reading.refused == [("result 1", "no object"), ("result 2", "names no task")]


def test_an_entry_whose_messages_are_no_list_costs_that_entry(read):
    runs, reading = read([tau_result(traj={"role": "user"}), tau_result(traj="x"), tau_result()])
    assert [run.record for run in runs] == ["2"]
    assert reading.refused == [(f"result {number}", "its traj is no list") for number in (0, 1)]


def test_results_are_joined_by_id_and_none_is_lost(read):
    calls = [tool_call("find", {}, "a"), tool_call("find", "{broken", "b")]
    answers = [("b", "two"), ("a", "one"), ("a", "one again"), ("x", "orphan")]
    traj = [
        {"role": "assistant", "content": "Both.", "tool_calls": calls},
        *({"role": "tool", "tool_call_id": key, "content": text} for key, text in answers),
    ]
    ((run,), _) = read([tau_result(traj=traj)])
    (step,) = run.steps
    assert [call.observation for call in step.calls] == ["one\none again", "two"]
    assert step.calls[1].arguments == "{broken"
    assert step.observation == "one\none again\ntwo\norphan"
    assert step.thought == "Both."


def test_files_are_claimed_by_content(tmp_path):
    def sniff(value):
        return FORMAT.sniff(json.dumps(value).encode(), tmp_path / "x.json")

    assert sniff([tau_result()]) > 0
    assert sniff(tau_result()) == 0
    assert sniff([{"task_id": 1, "reward": 1.0}]) == 0
    assert sniff({"simulations": [tau_result()]}) == 0
