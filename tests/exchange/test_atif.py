"""ATIF: read by an independent reader, and made up where it demands what nobody knows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import sag_research as sag
from sag_research.errors import UsageError
from sag_research.exchange import export_atif

CALLS = [
    {"id": "a", "name": "bash", "arguments": {"command": "ls"}, "text": "ls", "observation": "x"},
    {"id": "a", "name": "bash", "arguments": "no json", "observation": "y", "status": "error"},
]
STEPS = [
    {"thought": "look", "calls": CALLS, "usage": {"tokens_in": 3, "tokens_out": 0},
     "started": 1.7e9 + 0.5},
    {"action": "ls", "observation": "typed"},
    {"thought": "done"},
]  # fmt: skip


def written(folder: Path, version: str = "1.7") -> Path:
    with sag.open(":memory:") as ws:
        ws.add({"task_id": "A", "goal": "mend", "model": "m", "agent": "s", "steps": STEPS,
                "outcome": "failure", "usage": {"tokens_in": 4}})  # fmt: skip
        ws.add({"task_id": "a", "steps": []})
        report = export_atif(ws, folder, version=version)  # type: ignore[arg-type]
    assert report.made_up["calls.id"] == 2
    assert report.made_up["run.steps: an empty one"] == 1
    return folder


def test_an_independent_reader_finds_it_sound(tmp_path: Path) -> None:
    agentpile = pytest.importorskip("agentpile")
    for path in written(tmp_path).glob("*.json"):
        (run,) = agentpile.load(path)
        assert agentpile.validate(run) == []
    runs = [json.loads(path.read_bytes()) for path in sorted(tmp_path.glob("A*.json"))]
    first = runs[0]["steps"]
    assert [step["source"] for step in first] == ["user", "agent", "agent", "agent"]
    assert first[0]["message"] == "mend"
    assert first[1]["metrics"] == {"prompt_tokens": 3}
    assert first[1]["timestamp"] == "2023-11-14T22:13:20.500000+00:00"
    results = first[1]["observation"]["results"]
    assert [one["content"] for one in results] == ["x", "y"]
    assert [one["source_call_id"] for one in results] == ["a", "sag-call-0-1"]
    assert runs[0]["final_metrics"] == {"total_prompt_tokens": 4, "total_steps": 3}


def test_versions_differ_in_their_name_alone(tmp_path: Path) -> None:
    old, new = (written(tmp_path / one, one) for one in ("1.7", "1.8"))
    for path in old.iterdir():
        was, now = (json.loads((folder / path.name).read_bytes()) for folder in (old, new))
        assert (was.pop("schema_version"), now.pop("schema_version")) == ("ATIF-v1.7", "ATIF-v1.8")
        assert was == now


def test_an_old_version_is_not_written(tmp_path: Path) -> None:
    with sag.open(":memory:") as ws, pytest.raises(UsageError, match=r"1\.2"):
        export_atif(ws, tmp_path, version="1.2")  # type: ignore[arg-type]


def test_names_of_files_do_not_clash(tmp_path: Path) -> None:
    with sag.open(":memory:") as ws:
        for number, task in enumerate(["x/y", "x_y", "X:y", "../../etc", "z" * 300, "z" * 301]):
            ws.add({"task_id": task, "steps": [{"thought": str(number)}]})
        report = export_atif(ws, tmp_path / "out")
    names = [path.name.casefold() for path in (tmp_path / "out").iterdir()]
    assert len(set(names)) == report.runs == 6
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("told", [7, {"flags": 3}, {"calls": [1]}, {"calls": [{}, {}]}, {"x": 1}])
def test_what_does_not_fit_is_left_aside(told: object, tmp_path: Path) -> None:
    step = {"step_id": 1, "source": "agent", "message": "hm", "extra": {"sag": told}}
    root = {"schema_version": "ATIF-v1.8", "session_id": "s", "agent": {"name": "a"},
            "steps": [step], "extra": {"task_id": "t", "sag": {"record": told}}}  # fmt: skip
    (tmp_path / "t.json").write_text(json.dumps(root), encoding="utf-8")
    with sag.open(":memory:") as ws:
        assert ws.ingest(tmp_path).runs == 1
        assert ws.sql("SELECT task_id, thought FROM runs JOIN steps USING (run_id)").rows() == [
            ("t", "hm")
        ]
