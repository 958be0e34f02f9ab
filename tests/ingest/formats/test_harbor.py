import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sag_research.errors import FormatError
from sag_research.ingest import apply_labels, ingest, read_labels
from sag_research.ingest._source import Source
from sag_research.ingest.formats import recognise
from sag_research.ingest.formats.atif import Atif
from sag_research.ingest.formats.harbor import Harbor
from sag_research.log import SQLiteEventStore
from sag_research.model import Usage
from tests.ingest.formats import test_atif as atif
from tests.ingest.formats.openhands_make import damaged
from tests.ingest.make import swe_file, write
from tests.ingest.test_labels_trials import harbor

FORMAT = Harbor()


def result(reward=1.0, exception=None, **more):
    found = harbor(reward, exception)
    found["agent_info"]["version"] = "2.1"
    found |= {
        "source": "swebench-verified",
        "config": {"job_id": "job-7"},
        "agent_result": {"n_input_tokens": 900, "n_output_tokens": 0, "cost_usd": 0.5},
        "started_at": "2025-01-01T00:00:00Z",
    }
    return {**found, **more}


def trial(folder, told, trajectory=None, name="trajectory.json"):
    """A trial as Harbor leaves it; the path of its trajectory, or else of its result."""
    made = write(folder / "result.json", told)
    write(folder / "config.json", {"task": {"path": "x"}})
    write(folder / "verifier/reward.txt", b"1")
    return made if trajectory is None else write(folder / "agent" / name, trajectory)


def one(path):
    source = Source(path)
    assert recognise(source).name == "harbor"
    (run,) = FORMAT.read(source)
    return run


def test_a_trajectory_gets_the_outcome_of_its_trial(tmp_path):
    path = trial(tmp_path / "t__aB3", result(), atif.trajectory())
    run = one(path)
    (plain,) = Atif().read(Source(path))
    assert (run.steps, run.goal, run.agent, run.model) == (
        plain.steps, plain.goal, plain.agent, plain.model,
    )  # fmt: skip
    assert (run.task_id, run.dataset) == ("org__repo-1", "swebench-verified")
    assert (run.outcome.outcome, run.outcome.score) == ("success", 1.0)
    assert run.outcome.source == "harbor verifier_result"
    assert run.config["trial"]["job_id"] == "job-7"
    assert run.config["trial"]["trial_name"] == "org__repo-1__aB3"


@pytest.mark.parametrize(
    ("told", "expected", "exit_status"),
    [
        (result(0.0), ("failure", None), None),
        (result(0.5), ("failure", "partial"), None),
        (result(1, "AgentTimeoutError"), ("success", None), "AgentTimeoutError"),
        (result(None, "AgentTimeoutError"), ("unknown", "error"), "AgentTimeoutError"),
        (result(None, "VerifierTimeoutError"), ("unknown", "infra"), "VerifierTimeoutError"),
        (result(None), ("unknown", None), None),
        (result(verifier_result={"rewards": {"a": 1, "b": 0}}), ("unknown", None), None),
    ],
)
def test_the_reward_and_what_broke(tmp_path, told, expected, exit_status):
    for path in (trial(tmp_path / "a", told, atif.trajectory()), trial(tmp_path / "b", told)):
        run = one(path)
        assert (run.outcome.outcome, run.outcome.detail) == expected
        assert run.exit_status == exit_status


def test_a_trial_without_a_trajectory(tmp_path):
    path = trial(tmp_path / "t__aB3", result(None, "EnvironmentStartTimeoutError"))
    write(tmp_path / "t__aB3/agent/agent.cast", b'{"version": 2}\n[0.1, "o", "x"]\n')
    write(tmp_path / "t__aB3/agent/oracle.txt", b"\x1b[1mno JSON\x1b[0m")
    run = one(path)
    assert (run.steps, run.end, run.agent, run.model) == ((), None, "a", "m")
    assert run.usage == Usage(tokens_in=900, cost_usd=0.5)
    assert [left["path"] for left in run.config["evidence"]] == [
        "agent/agent.cast", "agent/oracle.txt", "config.json", "verifier/reward.txt",
    ]  # fmt: skip


def test_json_that_no_format_claims_is_no_transcript(tmp_path):
    path = trial(tmp_path / "t__aB3", result())
    write(tmp_path / "t__aB3/agent/config.json", {"model": "x"})
    write(tmp_path / "t__aB3/agent/setup/metrics.jsonl", b'{"a": 1}\n{"a": 2}\n')
    assert (one(path).steps, one(path).outcome.outcome) == ((), "success")
    write(tmp_path / "t__aB3/agent/own.traj", swe_file())
    assert recognise(Source(path)) is None


def test_a_job_counts_each_trial_once(tmp_path):
    job = tmp_path / "job"
    trial(job / "a__1", result(1), atif.trajectory())
    trial(job / "a__2", result(0, id="t-2"), atif.trajectory(atif.user("b"), atif.agent("x")))
    trial(job / "b__1", result(None, "DockerError", id="t-3", task_name="b"))
    trial(job / "c__1", result(1, id="t-4"), swe_file(), "c.traj")
    write(job / "result.json", {"id": "j", "n_total_trials": 4, "stats": {"n_trials": 4}})
    write(job / "config.json", {"job_name": "job"})
    with SQLiteEventStore(":memory:") as store:
        report = ingest(store, [job])
        assert report.by_format == {
            "harbor": {"files": 3, "runs": 3, "steps": 3},
            "swe-agent": {"files": 1, "runs": 1, "steps": 1},
        }
        said = [one.payload["outcome"] for one in store.read("@workspace", types=TYPES)]
        assert sorted(said) == ["failure", "success", "unknown"]
        labels = apply_labels(store, read_labels(job))
        assert (labels.conflicts, labels.ambiguous, labels.unmatched) == ([], [], 0)


TYPES = ("outcome.recorded",)


def test_the_first_agent_alone_is_judged(tmp_path):
    nested = atif.trajectory(atif.agent("x"), subagent_trajectories=[atif.trajectory()])
    path = trial(tmp_path / "t", result(), nested)
    assert [run.outcome is None for run in FORMAT.read(Source(path))] == [False, True]
    more = trial(tmp_path / "t", result(), atif.trajectory(), "trajectory.cont-1.json")
    run = one(more)
    assert (run.outcome, run.task_id) == (None, "org__repo-1")


@pytest.mark.parametrize("told", [b"{", [], {"task_name": "x"}, {"stats": {}}])
def test_a_trajectory_without_a_result_is_plain_atif(tmp_path, told):
    path = trial(tmp_path / "t", told, atif.trajectory())
    assert recognise(Source(path)).name == "atif"
    elsewhere = write(tmp_path / "t/other/trajectory.json", atif.trajectory())
    assert recognise(Source(elsewhere)).name == "atif"


def test_what_is_no_trial(tmp_path):
    for value in ({"task_name": "a"}, {"stats": {}, "id": "job"}, [{"trial_name": "a"}], 3):
        path = write(tmp_path / "x.json", value)
        assert FORMAT.sniff(json.dumps(value).encode(), path) == 0
        with suppress(FormatError):
            assert list(FORMAT.read(Source(path))) == []


@given(st.data())
def test_any_result(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("any")
    told = data.draw(damaged(result()))
    for path in (trial(folder / "a", told, atif.trajectory()), trial(folder / "b", told)):
        source = Source(path)
        FORMAT.sniff(source.head, path)
        with suppress(FormatError):
            for run in FORMAT.read(source):
                assert run.outcome is None or run.outcome.outcome in (
                    "success", "failure", "unknown",
                )  # fmt: skip
