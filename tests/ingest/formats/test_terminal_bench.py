import json
import shutil
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sag_research.errors import FormatError
from sag_research.ingest import ingest
from sag_research.ingest._source import Source
from sag_research.ingest.formats import recognise
from sag_research.ingest.formats.terminal_bench import TerminalBench
from sag_research.log import SQLiteEventStore
from sag_research.model import Usage
from tests.ingest.formats.openhands_make import damaged
from tests.ingest.make import write

FORMAT = TerminalBench()


def result(resolved=True, mode="unset", task="count", **more):
    found = {
        "id": "t-1",
        "trial_name": f"{task}.2-of-5.run",
        "task_id": task,
        "instruction": "Count the lines.",
        "is_resolved": resolved,
        "failure_mode": mode,
        "parser_results": None if resolved is None else {"test_count": "passed"},
        "recording_path": "run/count/t/sessions/agent.cast",
        "total_input_tokens": 0,
        "total_output_tokens": 70,
        "trial_started_at": "2025-01-01T00:00:00+00:00",
    }
    return {**found, **more}


def run_folder(folder, *told):
    """A run as the harness leaves it: a folder a task, and one in it a trial."""
    write(folder / "run_metadata.json", {"agent_name": "terminus", "model_name": "m/1"})
    for number, value in enumerate(told):
        place = folder / value["task_id"] / f"trial-{number}"
        write(place / "results.json", value)
        write(place / "sessions/agent.cast", b'{"version": 2}\n[0.1, "o", "\\u001b[1mls"]\n')
        write(place / "sessions/agent.log", b"\x1b[1mls\x1b[0m secret\n")
    write(folder / "results.json", {"id": "r", "results": list(told), "n_resolved": 9})
    return folder


def one(path):
    source = Source(path)
    assert recognise(source).name == "terminal-bench"
    (run,) = FORMAT.read(source)
    return run


def test_a_trial(tmp_path):
    run = one(run_folder(tmp_path / "run", result()) / "count/trial-0/results.json")
    assert (run.task_id, run.goal, run.dataset) == ("count", "Count the lines.", "terminal-bench")
    assert (run.agent, run.model, run.attempt) == ("terminus", "m/1", 2)
    assert (run.steps, run.end, run.exit_status) == ((), None, None)
    assert run.usage == Usage(tokens_out=70)
    assert (run.outcome.outcome, run.outcome.source) == ("success", "terminal-bench is_resolved")
    assert run.config["evidence"] == [
        {"path": "sessions/agent.cast", "bytes": 41},
        {"path": "sessions/agent.log", "bytes": 18},
    ]


@pytest.mark.parametrize(
    ("resolved", "mode", "expected"),
    [
        (True, "agent_timeout", ("success", None)),
        (False, "unset", ("failure", None)),
        (False, "agent_timeout", ("failure", "agent_timeout")),
        (None, "unset", ("unknown", None)),
        (None, "parse_error", ("unknown", "infra")),
        (None, "test_timeout", ("unknown", "infra")),
        (None, "agent_installation_failed", ("unknown", "error")),
    ],
)
def test_why_it_stopped_is_not_how_well_it_did(tmp_path, resolved, mode, expected):
    run = one(write(tmp_path / "results.json", result(resolved, mode)))
    assert (run.outcome.outcome, run.outcome.detail) == expected
    assert run.exit_status == (None if mode == "unset" else mode)
    assert (run.agent, run.model) == (None, None)


@pytest.mark.parametrize("resolved", ["yes", 1, [], {}])
def test_a_verdict_of_a_strange_type_is_none(tmp_path, resolved):
    reading = FORMAT.read(Source(write(tmp_path / "results.json", result(resolved))))
    (run,) = reading
    assert (run.outcome, len(reading.notes)) == (None, 1)


def test_trials_of_a_copied_folder_count_once(tmp_path):
    told = [result(n != 1, task=f"task{n}", id=f"t-{n}") for n in range(3)]
    run = run_folder(tmp_path / "2025-01-02", *told, result(None, "agent_timeout", "d"))
    shutil.copytree(run, tmp_path / "2025-01-05/2025-01-02")
    with SQLiteEventStore(":memory:") as store:
        report = ingest(store, [tmp_path])
        assert report.by_format == {"terminal-bench": {"files": 4, "runs": 4, "steps": 0}}
        assert (report.duplicates, report.rejected) == (4, [])
        events = store.read("@workspace", types=("outcome.recorded",))
        said = sorted(event.payload["outcome"] for event in events)
        assert said == ["failure", "success", "success", "unknown"]


def test_the_results_of_a_run_are_no_trial(tmp_path):
    whole = json.dumps({"id": "r", "results": [result()], "n_resolved": 1}).encode()
    assert FORMAT.sniff(whole, tmp_path) == 0
    assert FORMAT.sniff(json.dumps([result()]).encode(), tmp_path) == 0
    for value in ([], {"results": []}, result(task_id=None)):
        with pytest.raises(FormatError):
            FORMAT.read(Source(write(tmp_path / "x.json", value)))


@given(st.data())
def test_any_result(tmp_path_factory, data):
    path = write(tmp_path_factory.mktemp("any") / "x.json", data.draw(damaged(result())))
    FORMAT.sniff(path.read_bytes(), path)
    with suppress(FormatError):
        (run,) = FORMAT.read(Source(path))
        assert run.outcome is None or run.outcome.outcome in ("success", "failure", "unknown")
