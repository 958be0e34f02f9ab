"""The generator: same seed, same bytes; real labels; a card whose numbers add up."""

from __future__ import annotations

import csv
import gzip
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
import zstandard

from sag_research.errors import MissingDataError, UsageError
from sag_research.lab import bundled
from sag_research.lab.bugfix import BugfixWorld
from sag_research.lab.bugfix.generate import generate

SUBSET = ["acme__billing-117", "kestrel__logscan-19", "orchard__graphkit-28"]


def tree(root: Path) -> dict[str, bytes]:
    files = (path for path in root.rglob("*") if path.is_file())
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in files}


def unpack(data: bytes, path: str) -> dict[str, Any]:
    plain = (
        gzip.decompress(data)
        if path.endswith(".gz")
        else zstandard.ZstdDecompressor().decompress(data)
    )
    content: dict[str, Any] = json.loads(plain)
    return content


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("made") / "set"
    generate(out, seed=7, tasks=SUBSET, attempts={"scripted-a": 1, "scripted-c": 1}, jobs=1)
    return out


def test_same_bytes_again(made: Path, tmp_path: Path) -> None:
    deeper = tmp_path / "a rather long name of a folder" / "set"
    generate(deeper, seed=7, tasks=SUBSET, attempts={"scripted-a": 1, "scripted-c": 1}, jobs=1)
    assert tree(deeper) == tree(made)


def test_labels_come_from_the_final_tree(made: Path) -> None:
    """Replaying the recorded actions in a fresh world gives the observations and the label."""
    with (made / "labels.csv").open(encoding="utf-8", newline="") as file:
        labels = {row["path"]: row for row in csv.DictReader(file)}
    path, label = next((p, row) for p, row in labels.items() if "scripted-a__attempt" in p)
    content = unpack((made / path).read_bytes(), path)
    with BugfixWorld(label["task_id"]) as world:
        for step in content["trajectory"]:
            if step["action"]:
                assert world.act(step["action"]).text == step["observation"]
        outcome = "success" if world.evaluate().success else "failure"
    assert outcome == label["outcome"]


def test_a_full_folder_is_not_overwritten(made: Path) -> None:
    with pytest.raises(UsageError, match="force"):
        generate(made, tasks=SUBSET[:1])


# ------------------------------------------------------------------ the bundled set


@pytest.fixture(scope="module")
def bugfix() -> Path:
    return bundled("bugfix")


@pytest.fixture(scope="module")
def files(bugfix: Path) -> dict[str, dict[str, Any]]:
    found = tree(bugfix / "trajectories")
    return {f"trajectories/{name}": unpack(data, name) for name, data in found.items()}


@pytest.fixture(scope="module")
def labels(bugfix: Path) -> dict[str, dict[str, str]]:
    with (bugfix / "labels.csv").open(encoding="utf-8", newline="") as file:
        return {row["path"]: row for row in csv.DictReader(file)}


def test_checksums(bugfix: Path) -> None:
    lines = (bugfix / "SHA256SUMS").read_text(encoding="utf-8").splitlines()
    sums = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
    found = {name: data for name, data in tree(bugfix).items() if name != "SHA256SUMS"}
    assert sums == {name: hashlib.sha256(data).hexdigest() for name, data in found.items()}


def test_size_and_counts(bugfix: Path, files: dict[str, dict[str, Any]]) -> None:
    assert sum(len(data) for data in tree(bugfix).values()) <= 2_000_000
    tasks = {content["environment"] for content in files.values()}
    assert len(files) >= 240
    assert len(tasks) >= 24
    for task in tasks:
        assert sum(content["environment"] == task for content in files.values()) >= 10


def test_outcomes(files: dict[str, dict[str, Any]], labels: dict[str, dict[str, str]]) -> None:
    assert set(labels) < set(files)
    assert 0.02 <= 1 - len(labels) / len(files) <= 0.05
    failures = sum(row["outcome"] == "failure" for row in labels.values())
    assert 0.35 <= failures / len(labels) <= 0.65
    for path, row in labels.items():
        assert row["task_id"] == files[path]["environment"]
        assert row["model"] in path
        assert (row["detail"] == "resolved") is (row["outcome"] == "success")


def test_exit_status_is_not_the_outcome(
    files: dict[str, dict[str, Any]], labels: dict[str, dict[str, str]]
) -> None:
    seen = {
        (files[path]["info"]["exit_status"] == "submitted", row["outcome"])
        for path, row in labels.items()
    }
    assert seen == {(a, b) for a in (True, False) for b in ("success", "failure")}
    statuses = {content["info"]["exit_status"] for content in files.values()}
    assert {"submitted", "exit_cost", "exit_format", "submitted (exit_cost)"} <= statuses


def test_lengths(files: dict[str, dict[str, Any]]) -> None:
    lengths = [len(content["trajectory"]) for content in files.values()]
    assert min(lengths) >= 4
    assert max(lengths) <= 40
    assert sum(length >= 25 for length in lengths) >= len(lengths) / 10
    assert any(28 <= length <= 32 for length in lengths)


def test_copies(bugfix: Path) -> None:
    found = tree(bugfix / "trajectories")
    assert len(found) - len(set(found.values())) == 2


def test_shape(files: dict[str, dict[str, Any]]) -> None:
    for path, content in files.items():
        config = json.loads(content["replay_config"])
        assert config["agent"]["model"]["name"] == path.split("/")[1].split("__")[0]
        assert content["info"]["model_stats"]["api_calls"] == len(content["trajectory"])
        style = config["agent"]["tools"]["parse_function"]["type"]
        calls = [message for message in content["history"] if "tool_calls" in message]
        acted = [step for step in content["trajectory"] if step["action"]]
        assert len(calls) == (len(acted) if style == "function_calling" else 0)
        assert len(content["history"]) == 2 + 2 * len(content["trajectory"])


def test_no_trace_of_the_machine(files: dict[str, dict[str, Any]]) -> None:
    text = json.dumps(list(files.values()))
    for word in ("bugfix-", "site-packages", ".venv", "python3.1", "/home/", "/root/"):
        assert word not in text, word
    assert set(re.findall(r"/tmp/\w+", text)) == {"/tmp/pytest"}


@pytest.mark.parametrize("name", ["nothing", "", "..", "../datasets/bugfix", "/etc"])
def test_data_sets_that_are_not_there(name: str) -> None:
    with pytest.raises(MissingDataError, match="no bundled data set"):
        bundled(name)
