"""Right values of real data sets, counted by independent scripts."""

import pytest

from sag_research.ingest import ingest, read_labels
from sag_research.log import SQLiteEventStore


@pytest.fixture
def store():
    with SQLiteEventStore(":memory:") as store:
        yield store


def outcomes(store):
    events = store.read("@workspace", types=("outcome.recorded",))
    return [event.payload["outcome"] for event in events]


def test_swe_agent(store, real_data):
    report = ingest(store, [real_data / "sweagent_demos", real_data / "swesmith_sweagent_v1"])
    assert (report.ingested, report.duplicates) == (11 + 1, 5)  # one file of rows beside the runs
    assert (report.runs, report.steps, report.rejected) == (11 + 3, 152 + 103, [])
    assert report.n_copies == 2  # two of the three rows were made of runs that are there
    steps = [event.payload for event in store.tail(types=("agent.step",))]
    assert all(len(step["calls"]) == 1 for step in steps)
    assert sum(bool(step["calls"][0]["id"]) for step in steps) == 5 + 76  # with tool calls
    models = {run.model for run in store.runs()}
    assert models == {"claude-3-7-sonnet-20250219", "gpt4", "human_thought", None}
    assert {run.repo for run in store.runs() if run.model == "claude-3-7-sonnet-20250219"} == {
        "pandas-dev/pandas",
        "pydantic/pydantic",
    }


def test_swe_smith_reports(store, real_data):
    folder = real_data / "swesmith_sweagent_v1"
    report = ingest(store, [folder], labels=folder / "run_evaluation")
    assert (report.labels.conflicts, report.labels.ambiguous) == ([], [])
    assert report.labels.applied == 8  # of four tasks, by the aggregate and each one's own
    assert sorted(outcomes(store)) == ["failure"] * 2 + ["success"] * 6


def test_mini_swe_agent(store, real_data):
    folder = real_data / "mini_swe_agent_v1_gemini3pro_verified"
    report = ingest(store, [folder / "trajs"], labels=folder / "reports")
    assert (report.files, report.ingested, report.runs) == (235, 235, 235)
    assert report.steps == 9_488
    assert report.labels.outcomes == {"failure": 52, "success": 183}
    assert report.labels.applied == 235
    assert (outcomes(store).count("success"), outcomes(store).count("failure")) == (183, 52)
    steps = [event.payload for event in store.tail(types=("agent.step",))]
    assert sum("rejected" in step["flags"] for step in steps) == 348
    assert not any("EXACTLY ONE" in step["observation"][:100] for step in steps)
    ends = list(store.tail(types=("run.completed",)))
    assert {event.payload["exit_status"] for event in ends} == {"Submitted"}
    assert len(ends) == 235


def test_the_aggregate_report_says_the_same(real_data):
    folder = real_data / "mini_swe_agent_v1_gemini3pro_verified"
    single = {label.key: label.outcome.outcome for label in read_labels(folder / "reports")}
    whole = {
        label.key: label.outcome.outcome for label in read_labels(folder / "sb_cli_report.json")
    }
    assert len(whole) == 500
    assert single == {key: whole[key] for key in single}


def test_bare_lists(store, real_data):
    report = ingest(store, [real_data / "mini_swe_agent_v2_tests"])
    assert (report.ingested, report.steps) == (2, 12)
    assert {run.task_id for run in store.runs()} == {"github_issue", "local"}


def test_tau_bench(store, real_data):
    report = ingest(store, [real_data / "taubench"])
    assert (report.files, report.runs, report.steps) == (1, 200, 2_454)
    assert (outcomes(store).count("success"), outcomes(store).count("failure")) == (84, 116)
    assert len({run.task_id for run in store.runs()}) == 50
    assert {run.attempt for run in store.runs()} == {0, 1, 2, 3}
    steps = [event.payload for event in store.tail(types=("agent.step",))]
    assert sum(len(step["calls"]) for step in steps) == 1_164


def test_no_other_format_is_taken_for_one_of_these(store, real_data):
    ours = {"sweagent_demos", "swesmith_sweagent_v1", "taubench", "mini_swe_agent_v2_tests"}
    others = [
        folder
        for folder in sorted(real_data.iterdir())
        if folder.is_dir() and folder.name not in ours and not folder.name.startswith("mini_")
    ]
    report = ingest(store, others)
    assert not {"swe-agent", "mini-swe-agent", "tau-bench", "native"} & set(report.by_format)
    refused = len(report.ignored) + len(report.rejected)
    assert report.files == report.ingested + report.duplicates + refused > 300
