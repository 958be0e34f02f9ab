"""Files of SWE-agent's retry agent: several attempts, of which one is chosen."""

import json

import pytest
from hypothesis import given, settings

from sag_research.errors import FormatError
from sag_research.ingest import ingest
from sag_research.ingest._source import Source
from sag_research.ingest.formats.swe_agent import SweAgent
from sag_research.log import SQLiteEventStore
from sag_research.model import Usage
from tests.ingest.formats.openhands_make import damaged
from tests.ingest.make import swe_file, swe_step, write

FORMAT = SweAgent()


def stats(cost, tokens):
    return {"instance_cost": cost, "tokens_sent": tokens, "tokens_received": 1, "api_calls": 2}


def attempt(action, cost, **more):
    info = {"exit_status": "submitted", "submission": action, "model_stats": stats(cost, 10)}
    config = json.dumps({"agent": {"model": {"name": "some/model"}}, "env": {"name": action}})
    return swe_file(swe_step(action), info=info, environment="org__repo-1", replay_config=config,
                    **more)  # fmt: skip


def retry(*attempts, chosen=1):
    """A finished file: the winner's keys stand at the root, with the totals of all."""
    winner = json.loads(json.dumps(attempts[chosen]))
    winner["info"]["model_stats"] = stats(0.75, 25)
    winner["info"]["rloop_model_stats"] = stats(0.25, 5)
    winner["info"]["best_attempt_idx"] = chosen
    return {**winner, "attempts": list(attempts)}


def read(path, value):
    reading = FORMAT.read(Source(write(path / "org__repo-1.traj", value)))
    return list(reading), reading


def test_attempts_are_runs_and_the_winner_is_there_once(tmp_path):
    runs, reading = read(tmp_path, retry(attempt("a", 0.1), attempt("b", 0.4)))
    assert [(run.record, run.attempt, run.task_id) for run in runs] == [
        ("0", 0, "org__repo-1"),
        ("1", 1, "org__repo-1"),
    ]
    assert [[step.action for step in run.steps] for run in runs] == [["a"], ["b"]]
    assert [run.submission for run in runs] == ["a", "b"]
    assert [run.config.get("chosen") for run in runs] == [None, True]
    assert (reading.notes, reading.refused) == ([], [])


def test_totals_over_all_attempts_are_no_runs_usage(tmp_path):
    runs, _ = read(tmp_path, retry(attempt("a", 0.1), attempt("b", 0.4)))
    assert [run.usage for run in runs] == [
        Usage(tokens_in=10, tokens_out=1, cost_usd=0.1),
        Usage(tokens_in=10, tokens_out=1, cost_usd=0.4),
    ]
    for run in runs:
        assert run.config["retry_model_stats"] == stats(0.75, 25)
        assert run.config["rloop_model_stats"] == stats(0.25, 5)


def test_each_attempt_keeps_its_own_configuration(tmp_path):
    runs, _ = read(tmp_path, retry(attempt("a", 0.1), attempt("b", 0.4)))
    assert [run.config["env"] for run in runs] == [{"name": "a"}, {"name": "b"}]
    assert {run.model for run in runs} == {"some/model"}


def test_without_a_choice_nobody_is_chosen(tmp_path):
    file = retry(attempt("a", 0.1), attempt("b", 0.4))
    del file["info"]["best_attempt_idx"]
    runs, _ = read(tmp_path, file)
    assert [run.config.get("chosen") for run in runs] == [None, None]


def test_the_copy_stands_in_for_a_winner_that_cannot_be_read(tmp_path):
    file = retry(attempt("a", 0.1), attempt("b", 0.4))
    file["attempts"][1] = "cut"
    runs, reading = read(tmp_path, file)
    assert [(run.record, run.steps[0].action) for run in runs] == [("0", "a"), ("1", "b")]
    assert runs[1].usage is None  # the copy has the totals only
    assert runs[1].config["chosen"] is True
    assert reading.refused == []
    assert reading.notes == ["attempt 1: no object; its copy was read instead"]


def test_another_attempt_that_cannot_be_read_is_refused(tmp_path):
    file = retry(attempt("a", 0.1), attempt("b", 0.4))
    file["attempts"][0] = {"trajectory": 7}
    runs, reading = read(tmp_path, file)
    assert [run.record for run in runs] == ["1"]
    assert reading.refused == [("attempt 0", "no list at $.trajectory")]


@pytest.mark.parametrize("info", [{}, None, {"exit_status": None}])
def test_an_agent_at_work_has_attempts_alone(tmp_path, info):
    running = {"trajectory": [swe_step("ls\n")], "history": [], "info": info}
    value = {"attempts": [attempt("a", 0.1), running]}
    assert FORMAT.sniff(json.dumps(value).encode(), tmp_path / "x.traj") > 0.9
    runs, _ = read(tmp_path, value)
    assert [(run.attempt, run.end) for run in runs] == [(0, "run.completed"), (1, None)]
    assert runs[1].usage is None


def test_in_the_log_an_attempt_is_a_run_of_the_task(tmp_path):
    write(tmp_path / "in/org__repo-1.traj", retry(attempt("a", 0.1), attempt("b", 0.4)))
    with SQLiteEventStore(":memory:") as store:
        report = ingest(store, [tmp_path / "in"])
        assert (report.runs, report.steps) == (2, 2)
        assert {(run.task_id, run.attempt) for run in store.runs()} == {
            ("org__repo-1", 0),
            ("org__repo-1", 1),
        }


@settings(max_examples=60)
@given(damaged(retry(attempt("a", 0.1), attempt("b", 0.4))))
def test_any_values_give_runs_or_a_reason(tmp_path_factory, value):
    path = write(tmp_path_factory.mktemp("any") / "x.traj", value)
    try:
        reading = FORMAT.read(Source(path))
        runs = list(reading)
    except FormatError:
        return
    given_ = value.get("attempts") or [None]
    assert len(runs) + len(reading.refused) >= len(given_) or len(runs) == 1
