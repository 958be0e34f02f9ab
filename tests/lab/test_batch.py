"""Batches of runs: even, repeatable, in processes, carried on after a kill."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
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


def agent_run(*words: str) -> subprocess.CompletedProcess[str]:
    command = [*SAG, "agent", "run", *words]
    return subprocess.run(
        command, check=False, capture_output=True, encoding="utf-8", timeout=120
    )  # fmt: skip


def test_a_task_that_was_left_is_carried_on_by_the_same_command(tmp_path: Path) -> None:
    where = ["-w", str(tmp_path / "ws"), "--directory", str(tmp_path / "task")]
    left = ["--scenario", "disconnect", "--goal", "Please.", "--stop-after", "observation"]
    first = agent_run(*where, *left)
    assert (first.returncode, "left after the observation" in first.stdout) == (0, True)
    second = agent_run(*where, *left, "--json")
    assert (second.returncode, json.loads(second.stdout)["steps"]) == (0, 1)
    for other, why in (
        (["--scenario", "permanent"], "scenario differ"), (["--goal", "Other."], "goal differ"),
        (["--policy", "hasty"], "policy differ"), (["--seed", "9"], "seed differ"),
        (["--world", "crates"], "no scenario 'disconnect'"),
    ):  # fmt: skip
        refused = agent_run(*where, *other)
        assert refused.returncode == 2
        assert why in refused.stderr
    elsewhere = agent_run("-w", str(tmp_path / "other"), *where[2:])
    assert (elsewhere.returncode, "is not in the log" in elsewhere.stderr) == (1, True)
    done, again = agent_run(*where, "--json"), agent_run(*where, "--json")
    assert done.stdout == again.stdout
    told = json.loads(done.stdout)
    assert (told["outcome"], told["ending"], told["steps"]) == ("success", "completed", 7)
    with sag.open(tmp_path / "ws") as ws:
        assert len(ws.sql("SELECT * FROM outcomes").rows()) == 1
        assert len(ws.sql("SELECT * FROM runs").rows()) == 1
        assert ws.verify().ok


def test_a_port_that_is_taken_is_said(tmp_path: Path) -> None:
    where = ["-w", str(tmp_path / "ws"), "--directory", str(tmp_path / "task")]
    assert agent_run(*where, "--stop-after", "decision").returncode == 0
    request = json.loads((tmp_path / "task" / "request.json").read_text(encoding="utf-8"))
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", int(request["origin"].rpartition(":")[2])))
        other.listen()
        refused = agent_run(*where)
    assert (refused.returncode, "cannot listen on port" in refused.stderr) == (1, True)
    assert "Traceback" not in refused.stderr
    assert "success (completed)" in agent_run(*where).stdout


@pytest.mark.parametrize(
    "words",
    [
        ["--stop-after", "report"], ["-w", ":memory:", "--directory", "x"], ["--steps", "0"],
        ["--world", "crates", "--browser"], ["--world", "crates", "--steps", "0"],
        ["--seed", "9" * 200], ["--goal", ""],
    ],
)  # fmt: skip
def test_odd_options_are_refused_before_a_run_is_begun(words: list[str], tmp_path: Path) -> None:
    place = [] if "-w" in words else ["-w", str(tmp_path / "ws")]
    refused = agent_run(*place, *words)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.startswith("error: ")
    if place:
        with sag.open(tmp_path / "ws") as ws:
            assert ws.sql("SELECT * FROM runs").rows() == []


def test_an_interrupt_ends_a_batch_and_all_its_processes(tmp_path: Path) -> None:
    command = [*SAG, "agent", "batch", "-w", str(tmp_path / "ws"), "-n", "80", "--jobs", "2"]
    command += ["--policy", "steady", "--policy", "hasty"]
    log = tmp_path / "ws" / "log.sqlite"
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8",
        start_new_session=True,
    ) as running:  # fmt: skip
        try:
            until = time.monotonic() + 120
            while time.monotonic() < until and running.poll() is None:
                if log.exists() and len(digests_or_none(log)) >= 3:
                    break
                time.sleep(0.1)
            os.killpg(running.pid, signal.SIGINT)  # as a terminal does
            out, err = running.communicate(timeout=60)
        finally:
            running.kill()
    assert (running.returncode, out, err.strip()) == (1, "", "stopped")
    assert gone(running.pid)


def gone(group: int) -> bool:
    """Whether every process of a group has ended within some seconds."""
    until = time.monotonic() + 20
    while time.monotonic() < until:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.1)
    return False


def test_a_batch_is_read_while_two_processes_write_it(tmp_path: Path) -> None:
    log = tmp_path / "ws" / "log.sqlite"
    with sag.open(tmp_path / "ws") as ws:
        asked: dict[str, Any] = {"policies": PLAYERS, "scenarios": ["easy"], "jobs": 2}
        writing = threading.Thread(target=play_batch, args=(log, "crates", 24), kwargs=asked)
        writing.start()
        seen = []
        while writing.is_alive():
            seen += ws.sql("SELECT count(*) FROM steps").rows()[0]
        writing.join()
        assert seen == sorted(seen)
        assert len(ws.runs()) == 24
        assert ws.verify().ok
