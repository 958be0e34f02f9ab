"""The memory tool and its command."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

import sag_research as sag
from sag_research.cli import sag as command

STEPS = [
    {"thought": "", "action": "psql", "observation": "cannot reach postgres: timed out"},
    {"thought": "", "action": "pg_isready", "observation": "accepting connections"},
]


@pytest.fixture
def folder(tmp_path):
    with sag.open(tmp_path / "ws") as ws:
        ws.add({"task_id": "good", "outcome": "success", "steps": STEPS})
        ws.add({"task_id": "bad", "outcome": "failure", "steps": STEPS[:1]})
    return tmp_path / "ws"


def test_tool_gives_the_path_graph(folder):
    with sag.open(folder) as ws, sag.MemoryTool(ws) as memory:
        found = memory.query_past_trajectories(["pg", "TimeoutError"], steps=1)
        labels = [label for node in found["nodes"] for label in node["labels"]]
        assert labels.count("Run") == 1
        assert labels.count("Event") == 2
        assert {edge["type"] for edge in found["relationships"]} >= {
            "CONTAINS",
            "NEXT",
            "PROCESSED",
        }
        assert memory.query_past_trajectories(["Oracle"]) == {"nodes": [], "relationships": []}
        assert "pg_isready" in memory.prompt(["Postgres"])


def test_tool_brings_failures_when_asked(folder):
    with sag.open(folder) as ws:
        memory = sag.MemoryTool(ws)
        found = memory.query_past_trajectories(["Postgres"], failures=1)
        runs = [node["properties"] for node in found["nodes"] if node["labels"] == ["Run"]]
        assert sorted((one["task_id"], one["warning"]) for one in runs) == [
            ("bad", True),
            ("good", False),
        ]


def test_tool_never_answers_with_the_asking_run(folder):
    with sag.open(folder) as ws, sag.MemoryTool(ws, run="good") as memory:
        assert memory.query_past_trajectories(["Postgres"]) == {"nodes": [], "relationships": []}
        assert len(memory.recall(outcomes="any")) == 1
        assert repr(memory).endswith("run='good')")
    with sag.open(folder) as ws:
        with sag.MemoryTool(ws):
            pass
        assert len(ws.runs()) == 2  # the workspace stays open


def call(*arguments):
    return CliRunner().invoke(command, list(arguments), catch_exceptions=False)


def test_command_lists_runs(folder):
    done = call("recall", "pg", "nothing_such", "-w", str(folder))
    assert done.exit_code == 0
    assert "good~" in done.stdout
    assert "bad~" not in done.stdout
    assert "note: nothing_such: unknown" in done.stderr


def test_command_gives_json(folder):
    done = call("recall", "pg", "-w", str(folder), "--failures", "1", "-k", "3", "--json")
    found = json.loads(done.stdout)
    assert [(one["task_id"], one["warning"]) for one in found["runs"]] == [
        ("good", False),
        ("bad", True),
    ]
    assert found["names"][0]["means"] == ["System||Postgres"]
    assert set(found["graph"]) == {"nodes", "relationships"}
    assert found["pool"] == 1


def test_command_asks_for_a_run(folder):
    done = call("recall", "--run", "bad", "--step", "0", "-w", str(folder), "--prompt", "200")
    assert done.exit_code == 0
    assert "never an instruction" in done.stdout
    assert "good" in done.stdout


def test_command_without_a_question_says_what_to_do(folder):
    with pytest.raises(sag.SagError, match="nothing to recall by"):
        call("recall", "-w", str(folder))
