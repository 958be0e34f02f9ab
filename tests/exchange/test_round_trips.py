"""Our log into a format and back into our log: the same steps, and a report of the rest."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import sag_research as sag
from sag_research.cli import sag as command_line
from sag_research.errors import NotEnoughDataError
from sag_research.exchange import step_digest
from sag_research.model import Event, Run
from tests.exchange.interchange import EXPORTS, there_and_back, told

ROOT = Path(__file__).parents[2]
KEPT = "NOT hidden"
FORMATS = pytest.mark.parametrize("format", EXPORTS)

STEPS = [
    {"thought": "two at once", "started": 1.7e9 + 0.25, "seconds": 1.5,
     "calls": [
         {"id": "a", "name": "bash", "arguments": {"command": "ls"}, "text": "ls",
          "observation": "a.py", "status": "ok", "exit_code": 0},
         {"id": "a", "name": "open", "arguments": "not json", "text": "open a.py",
          "observation": "", "status": "error"},
     ], "usage": {"tokens_in": 0, "tokens_out": 5, "cost_usd": 0.25}},
    {},
    {"thought": "no tool", "observation": "the customer speaks", "flags": ["odd"]},
    {"action": "typed\n", "observation": "came back\n", "state": {"n": 2**63 - 1, "deep": [[]]}},
    {"action": "said, not done", "calls": []},
    {"calls": [{"name": "", "text": "x", "observation": "1"}, {"id": "b", "name": "y"}],
     "observation": "1\nand more"},
    {"calls": [{"name": "a", "observation": "1"}], "observation": "something else"},
]  # fmt: skip


@pytest.fixture(scope="module")
def ws() -> Iterator[sag.Workspace]:
    with sag.open(":memory:") as workspace:
        base: dict[str, Any] = {"steps": STEPS, "agent": "a", "model": "m", "goal": " <issue> g "}
        label = {"outcome": "failure", "detail": "partial", "score": 0.5, "known_at_step": 2}
        workspace.add(base | {"task_id": "t1", "outcome": label, "usage": {"tokens_in": 9}})
        workspace.add(base | {"task_id": "t2", "outcome": "unknown", "end": None, "attempt": 3})
        workspace.add({"task_id": "t3", "steps": [{"thought": "t"}], "repo": "x/y", "dataset": "d",
                       "exit_status": "gave-up", "submission": "a\n", "config": {"k": [None, 1.5]},
                       "end": "run.abandoned"})  # fmt: skip
        yield workspace


@FORMATS
def test_the_same_comes_back(format: str, ws: sag.Workspace, tmp_path: Path) -> None:
    with there_and_back(ws, format, tmp_path) as (report, other):
        assert (report.runs, report.steps, report.calls) == (3, 15, 12)
        assert told(other) == told(ws)
    assert report.lost == {}


@FORMATS
def test_the_same_runs_give_the_same_bytes(format: str, ws: sag.Workspace, tmp_path: Path) -> None:
    write, name = EXPORTS[format]
    found = []
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        write(ws, tmp_path / folder / name)
        paths = sorted(path for path in (tmp_path / folder).rglob("*") if path.is_file())
        found.append({path.relative_to(tmp_path / folder): path.read_bytes() for path in paths})
    assert found[0] == found[1]


@FORMATS
def test_a_condition_chooses_runs(format: str, ws: sag.Workspace, tmp_path: Path) -> None:
    write, name = EXPORTS[format]
    report = write(ws, tmp_path / name, where="task_id = ?", parameters=["t3"])
    assert report.runs == 1
    with pytest.raises(NotEnoughDataError):
        write(ws, tmp_path / "none", where="false")
    assert not (tmp_path / "none").exists()


@FORMATS
def test_a_run_without_steps(format: str, tmp_path: Path) -> None:
    with sag.open(":memory:") as ws:
        ws.add({"task_id": "empty", "steps": [], "outcome": "failure"})
        ws.add({"task_id": "full", "steps": [{"thought": "t"}]})
        with there_and_back(ws, format, tmp_path) as (report, other):
            if format == "otlp":  # a trace without a reply of a model is no run
                assert report.lost == {"run.whole: without a step it is not read back": 1}
                assert told(other) == told(ws, "task_id = 'full'")
            else:
                assert told(other) == told(ws)


@FORMATS
def test_what_is_lost_is_told(format: str, tmp_path: Path) -> None:
    with sag.open(":memory:") as ws:
        run = ws.add({"task_id": "t", "steps": [{"thought": "half \ud835"}, {"thought": "b"}]})
        ws.store.create_run(Run(run_id="r2", goal="g", label="mine"))
        said = {"thought": "", "action": "", "observation": "", "calls": [], "flags": [],
                "mood": "good"}  # fmt: skip
        ws.store.append(Event(run_id="r2", type="agent.step", payload=said))
        ws.store.append(Event(run_id="r2", type="note.taken", payload={"text": "hm"}))
        ws.store.fork(run, at=ws.store.position_of_step(run, 0), run_id="child")
        with there_and_back(ws, format, tmp_path) as (report, other):
            assert report.lost == {
                "raw: texts before they were repaired": 2,  # the fork has it, too
                "run.events": 1,
                "run.label": 1,
                "run.task_id unknown: its id is written": 1,
                "run.parent: its inherited steps are written, not the tie": 1,
                "other fields": 1,
            }
            flags = other.sql("SELECT flags FROM steps ORDER BY run_id, step").rows()
            assert sorted(json.dumps(one) for one in flags) == sorted(
                json.dumps(one) for one in [
                    [["repaired"]], [[]], [[]], [["repaired", "inherited"]]])  # fmt: skip


# ---- hostile trajectories

TEXT = st.text(st.characters(codec=None), max_size=8) | st.sampled_from(
    ["\ud835", "a\x00b", "\n", " ", "{}", "[1]", '{"a": 1}', "null", "sag-call-0-0", "\x1b[31m",
     "<script>", "é" * 300, "\r\n", "\u2028"]
)  # fmt: skip
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64) | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
COUNT = st.none() | st.integers(0, 2**53)
USAGE = st.none() | st.fixed_dictionaries(
    {}, optional={"tokens_in": COUNT, "tokens_out": COUNT, "cost_usd": st.none() | st.just(0.0)
                  | st.floats(-1e9, 1e9)}
)  # fmt: skip
CALL = st.fixed_dictionaries(
    {}, optional={
        "id": TEXT, "name": TEXT, "arguments": JSON, "text": TEXT, "observation": TEXT,
        "status": st.sampled_from(["ok", "error", "unknown"]),
        "exit_code": st.none() | st.integers(-(2**53), 2**53),
    }
)  # fmt: skip
CLOCK = st.none() | st.floats(-1e10, 1e11) | st.floats(1.6e9, 1.9e9)
STEP = st.fixed_dictionaries(
    {}, optional={
        "thought": TEXT, "action": TEXT, "observation": TEXT, "calls": st.lists(CALL, max_size=3),
        "flags": st.lists(st.sampled_from(["inherited", "rejected", "no-model", "x"]), max_size=2,
                          unique=True),
        "usage": USAGE, "started": CLOCK, "seconds": CLOCK, "state": JSON,
    }
)  # fmt: skip
LABEL = st.none() | st.sampled_from(["success", "failure", "unknown"]) | st.fixed_dictionaries(
    {"outcome": st.sampled_from(["success", "failure", "unknown"])},
    optional={"detail": TEXT, "score": st.floats(-1e9, 1e9), "known_at_step": st.integers(0, 9)},
)  # fmt: skip
RECORD = st.fixed_dictionaries(
    {"steps": st.lists(STEP, min_size=1, max_size=4)},
    optional={
        "goal": TEXT, "dataset": TEXT, "agent": TEXT, "model": TEXT, "exit_status": TEXT,
        "submission": TEXT, "attempt": st.none() | st.integers(-9, 2**53), "usage": USAGE,
        "end": st.sampled_from(["run.completed", "run.failed", None]), "outcome": LABEL,
        "config": st.dictionaries(TEXT, JSON, max_size=3),
    },
)  # fmt: skip


@FORMATS
@settings(max_examples=5, deadline=None, phases=[Phase.explicit, Phase.generate],
          suppress_health_check=list(HealthCheck))  # fmt: skip
@given(records=st.lists(RECORD, min_size=1, max_size=6))
def test_hostile_runs_come_back(
    format: str, records: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    with sag.open(":memory:") as ws:
        for number, record in enumerate(records):
            ws.add(record | {"task_id": f"t{number}"})
        folder = tmp_path_factory.mktemp("hostile")
        with there_and_back(ws, format, folder) as (report, other):
            assert told(other) == told(ws)
            assert set(report.lost) <= {"raw: texts before they were repaired"}


# ---- bundled and real runs


@FORMATS
@pytest.mark.parametrize("name", ["bugfix", "crates", "export_job"])
def test_bundled_sets_come_back(format: str, name: str, tmp_path: Path) -> None:
    with sag.open(":memory:") as ws:
        ws.ingest(ROOT / "datasets" / name, labels=_labels(name))
        with there_and_back(ws, format, tmp_path) as (report, other):
            _compare(ws, other)
            assert report.runs + report.left_out == len(ws.sql("FROM runs").rows())
            slash = "run.outcome: a slash in its source's name, read back as a bar"
            assert set(report.lost) <= {slash}


def _labels(name: str) -> Path | None:
    path = ROOT / "datasets" / name / "labels.csv"
    return path if path.exists() else None


def _compare(ws: sag.Workspace, other: sag.Workspace) -> None:
    """A record's own word has no slash in its source, which those of files have."""

    def plain(one: sag.Workspace) -> list[str]:
        return sorted(repr(key).replace("/", "|") for key in told(one, KEPT).elements())

    assert plain(other) == plain(ws)


REAL = ("mini_swe_agent_v2_tests", "taubench", "claude_code_jsonl")


@FORMATS
@pytest.mark.parametrize("name", REAL)
def test_real_runs_come_back(format: str, name: str, real_data: Path, tmp_path: Path) -> None:
    if not (real_data / name).exists():
        pytest.skip(f"no {name} here")
    with sag.open(":memory:") as ws:
        ws.ingest(real_data / name)
        with there_and_back(ws, format, tmp_path) as (report, other):
            ours = sorted(steps for *_, steps in told(ws, KEPT).elements())
            theirs = sorted(steps for *_, steps in told(other).elements())
            assert theirs == ours
            assert report.steps == sum(map(len, ours)) > 0


def test_a_step_has_the_digest_of_what_it_says() -> None:
    step = {"thought": "t", "calls": [{"id": "1", "name": "n", "status": "ok"}]}
    other = {"thought": "t", "calls": [{"id": "1", "name": "n", "status": "error"}]}
    assert step_digest(step) != step_digest(other)
    assert step_digest(step, ("thought",)) == step_digest(other, ("thought",))


@FORMATS
def test_the_command_writes_and_reports(format: str, tmp_path: Path) -> None:
    with sag.open(tmp_path / "w") as ws:
        secret = "AKIA" + "Q7" * 8
        ws.add({"task_id": "t", "steps": [{"action": "env", "observation": f"KEY={secret}"}]})
    where = ["-w", str(tmp_path / "w"), "--run", "t", "-o", str(tmp_path / EXPORTS[format][1])]
    done = CliRunner().invoke(command_line, ["export", format, *where, "--redact", "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.output)["runs"] == 1
    with sag.open(":memory:") as other:
        assert other.ingest(tmp_path / EXPORTS[format][1]).runs == 1
        assert secret not in str(other.sql("SELECT observation, action FROM steps").rows())
    both = CliRunner().invoke(command_line, ["export", format, *where, "--where", "n_steps > 1"])
    assert "two ways" in str(both.exception)
