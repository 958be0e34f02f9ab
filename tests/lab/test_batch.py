"""Batches of runs: even, repeatable, in processes, carried on after a kill."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import sag_research as sag
from sag_research.errors import MissingDataError, SchemaError, UsageError
from sag_research.lab import assignments, open_world, play_batch, world_names
from sag_research.log import SQLiteEventStore

SAG = [sys.executable, "-m", "sag_research.cli"]
PLAYERS = ("steady", "clumsy", "dreamy")


def digests(path: Path) -> dict[str, str]:
    with SQLiteEventStore(str(path), read_only=True) as store:
        hidden = {
            str(event.payload["run"]) for event in store.read("@workspace")
            if event.type == "run.hidden"
        }  # fmt: skip
        runs = [run.run_id for run in store.runs() if run.run_id.startswith("crates")]
        return {
            run.split(".again-")[0]: str(store.head(run).digest)
            for run in runs if run not in hidden
        }  # fmt: skip


@pytest.mark.parametrize("name", world_names())
def test_assignments_are_even_and_repeatable(name: str) -> None:
    with closing(open_world(name)) as world:
        made = assignments(world, 60, seed=3)
        assert made == assignments(world, 60, seed=3)
        assert made[:20] == assignments(world, 20, seed=3)
        assert made != assignments(world, 60, seed=4)
        assert len({one.run_id for one in made}) == 60
        policies = Counter(one.policy for one in made)
        assert max(policies.values()) - min(policies.values()) <= 1
        with pytest.raises(MissingDataError):
            assignments(world, 2, policies=["nobody"])
        with pytest.raises(MissingDataError):
            assignments(world, 2, scenarios=["nothing"])
        with pytest.raises(UsageError):
            assignments(world, 0)


def test_two_processes_play_what_one_plays(tmp_path: Path) -> None:
    asked: dict[str, Any] = {"policies": PLAYERS, "scenarios": ["easy"]}
    one = play_batch(tmp_path / "one.sqlite", "crates", 12, **asked)
    two = play_batch(tmp_path / "two.sqlite", "crates", 12, jobs=2, **asked)
    assert one == two
    assert digests(tmp_path / "one.sqlite") == digests(tmp_path / "two.sqlite")
    again = play_batch(tmp_path / "two.sqlite", "crates", 12, jobs=2, **asked)
    assert [row.there for row in again.rows] == [True] * 12
    assert [row.outcome for row in again.rows] == [row.outcome for row in two.rows]


def test_what_cannot_be_played_is_listed(tmp_path: Path) -> None:
    found = play_batch(tmp_path / "log.sqlite", "crates", 2, nonsense=1)
    assert all("no 'nonsense'" in row.error for row in found.rows)
    assert repr(found).endswith("2 not played)")
    with pytest.raises(MissingDataError):
        play_batch(tmp_path / "log.sqlite", "nowhere", 2)


def test_a_killed_batch_is_carried_on(tmp_path: Path) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    command = [*SAG, "agent", "batch", "--world", "crates", "--scenario", "easy", "-n", "9"]
    command += ["--json"]
    for player in PLAYERS:
        command += ["--policy", player]
    subprocess.run([*command, "-w", str(whole)], check=True, capture_output=True, timeout=300)
    running = subprocess.Popen([*command, "-w", str(cut)], stdout=subprocess.DEVNULL)
    log = cut / "log.sqlite"
    until = time.monotonic() + 120
    while time.monotonic() < until and running.poll() is None:
        if log.exists() and len(digests_or_none(log)) >= 4:
            break
    running.send_signal(signal.SIGKILL)
    assert running.wait() in (-signal.SIGKILL, 0)
    done = subprocess.run(
        [*command, "-w", str(cut)], check=True, capture_output=True, timeout=300, encoding="utf-8"
    )
    rows = json.loads(done.stdout)["runs"]
    assert len(rows) == 9
    assert any(row["there"] for row in rows)
    assert digests(log) == digests(whole / "log.sqlite")
    with sag.open(whole) as one, sag.open(cut) as two:
        query = "SELECT task_id, model, attempt, outcome, n_steps FROM runs WHERE NOT hidden"
        assert sorted(one.sql(query).rows()) == sorted(two.sql(query).rows())


def digests_or_none(path: Path) -> list[str]:
    try:
        with closing(SQLiteEventStore(str(path), read_only=True)) as store:
            return [run.run_id for run in store.runs()]
    except SchemaError:  # it is just being made
        return []


def test_one_run_from_the_command_line(tmp_path: Path) -> None:
    command = [*SAG, "agent", "run", "-w", str(tmp_path / "ws"), "--json"]
    told = []
    for world, policy in (("crates", "perfect"), ("export-job", "careful"), ("crates", "perfect")):
        done = subprocess.run(
            [*command, "--world", world, "--policy", policy],
            check=True, capture_output=True, encoding="utf-8", timeout=120,
        )  # fmt: skip
        told.append(json.loads(done.stdout))
    assert [one["outcome"] for one in told] == ["success"] * 3
    assert len({one["run_id"] for one in told}) == 3
    wrong = subprocess.run(
        [*command, "--world", "export-job", "--policy", "nobody"],
        check=False, capture_output=True, encoding="utf-8", timeout=120,
    )  # fmt: skip
    assert wrong.returncode == 1
    assert "choose of careful" in wrong.stderr
    assert "Traceback" not in wrong.stderr


def test_readable_table_of_a_run(tmp_path: Path) -> None:
    done = subprocess.run(
        [*SAG, "agent", "run", "-w", str(tmp_path / "ws"), "--scenario", "disconnect"],
        check=True, capture_output=True, encoding="utf-8", timeout=120,
    )  # fmt: skip
    assert "success (completed)" in done.stdout
    assert "OUTCOME_UNKNOWN" in done.stdout
