"""Writers of the log that are killed, and writers that race each other."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import sag_research
from sag_research.log import SQLiteEventStore
from sag_research.model import Run
from tests.log import writer

PACKAGE = Path(sag_research.__file__).parent.parent


@contextmanager
def started(mode: str, path: Path, *names: str) -> Iterator[list[subprocess.Popen[str]]]:
    """Start one writer a name; none of them outlives the block."""
    processes = [
        subprocess.Popen(
            [sys.executable, str(writer.__file__), mode, str(path), name],
            env=os.environ | {"PYTHONPATH": str(PACKAGE)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
        )
        for name in names
    ]
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def line(process: subprocess.Popen[str]) -> str:
    """The next line of a writer; if it died instead, its own words."""
    assert process.stdout is not None
    assert process.stderr is not None
    text = process.stdout.readline()
    assert text, process.stderr.read()
    return text.strip()


def tell(process: subprocess.Popen[str], text: str) -> None:
    assert process.stdin is not None
    process.stdin.write(text + "\n")
    process.stdin.flush()


def killed(mode: str, path: Path, name: str, moment: random.Random) -> list[str]:
    """Run a writer for a moment and kill it; returns the whole lines it had printed."""
    with started(mode, path, name) as [process]:
        text = line(process) + "\n"
        time.sleep(moment.uniform(0, 0.06))
        process.kill()
        assert process.wait() == -signal.SIGKILL
        assert process.stdout is not None
        text += process.stdout.read()
    return text[: text.rfind("\n")].splitlines()


# 29 kills of writers at work, each log going on where the last kill left it.


def test_every_acknowledged_event_survives_a_kill(tmp_path: Path) -> None:
    path, moment = tmp_path / "log.sqlite", random.Random(1)
    said: dict[str, list[str]] = {}
    for number in range(5):
        said[f"r{number}"] = killed("single", path, f"r{number}", moment)
        with SQLiteEventStore(path) as store:
            assert store.verify().to_dict() == {"ok": True, "runs": number + 1, "problems": []}
            for run_id, lines in said.items():
                notes = list(store.read(run_id, types=["note.taken"]))
                kept = [f"{e.payload['n']} {e.seq} {e.digest}" for e in notes]
                assert kept[: len(lines)] == lines
                assert len(kept) - len(lines) in (0, 1)  # the last may have been on its way
                assert [e.payload for e in notes] == [
                    writer.note(run_id, run_id, n).payload for n in range(len(notes))
                ]


def test_a_killed_batch_is_whole_or_absent(tmp_path: Path) -> None:
    path, moment = tmp_path / "log.sqlite", random.Random(2)
    for number in range(7):
        name = f"b{number}"
        lines = killed("batch", path, name, moment)
        with SQLiteEventStore(path) as store:
            assert store.verify().ok
            sizes = Counter(
                event.payload["n"]
                for run_id in (f"{name}.1", f"{name}.2")
                for event in store.read(run_id, types=["note.taken"])
            )
        assert set(sizes.values()) == {writer.BATCH}
        assert len(sizes) - len(lines) in (0, 1)
        assert sorted(sizes) == list(range(len(sizes)))


def test_a_killed_fork_is_whole_or_absent(tmp_path: Path) -> None:
    path, moment = tmp_path / "log.sqlite", random.Random(3)
    for number in range(7):
        name = f"f{number}"
        lines = killed("fork", path, name, moment)
        with SQLiteEventStore(path) as store:
            assert store.verify().ok
            forks = [run for run in store.runs() if run.run_id.startswith(f"{name}/")]
            assert [run.run_id for run in forks] == [f"{name}/{n}" for n in range(len(forks))]
            assert len(forks) - len(lines) in (0, 1)
            for run in forks:
                own = list(store.read(run.run_id, lo=run.fork_position + 1))
                assert [e.type for e in own] == ["run.forked"] + ["note.taken"] * 3
                assert {e.run_id for e in own} == {run.run_id}


def test_a_killed_redaction_is_whole_or_absent(tmp_path: Path) -> None:
    path, moment = tmp_path / "log.sqlite", random.Random(5)
    for number in range(5):
        name = f"x{number}"
        lines = killed("redact", path, name, moment)
        wrote = sum(line.startswith("wrote") for line in lines)
        redacted = len(lines) - wrote
        with SQLiteEventStore(path) as store:
            assert store.verify().ok
            events = list(store.read(name, types=["note.taken"]))
            reasons = [e.payload["redacted"] for e in events if "redacted" in e.payload]
            whole = [e.payload for e in events if "redacted" not in e.payload]
            assert reasons == [f"reason {n}" for n in range(len(reasons))]
            assert len(reasons) - redacted in (0, 1)
            assert len(events) - wrote in (0, 1)
            assert whole == [
                writer.note(name, name, len(reasons)).payload | {"shared": writer.LONG}
            ] * (len(events) - len(reasons))
            texts = store._db.execute("SELECT count(*) FROM blobs").fetchone()[0]
            # one shared text and one of its own for each event that is still whole
            left = sum("text" in e.payload for e in store.tail())
            shared = any("shared" in e.payload for e in store.tail())
            assert texts == left + shared


def test_a_killed_copy_is_whole_or_absent(tmp_path: Path) -> None:
    path, moment = tmp_path / "log.sqlite", random.Random(6)
    for number in range(5):
        name = f"c{number}"
        lines = killed("flatten", path, name, moment)
        with SQLiteEventStore(path) as store:
            assert store.verify().ok
            copies = [run.run_id for run in store.runs() if run.run_id.startswith(f"{name}/")]
            copies.remove(f"{name}/fork")
            assert copies == [f"{name}/{n}" for n in range(len(copies))]
            assert len(copies) - len(lines) in (0, 1)
            for run_id in copies:
                assert store.head(run_id) == store.head(f"{name}/fork")
                assert next(store.read(run_id, lo=2)).payload == {"redacted": "why"}


def test_a_log_whose_creator_is_killed_can_be_opened(tmp_path: Path) -> None:
    moment = random.Random(4)
    for number in range(4):
        path = tmp_path / f"{number}.sqlite"
        with started("create", path, "x") as [process]:
            assert line(process) == "ready"
            tell(process, "go")
            time.sleep(moment.uniform(0, 0.004))
        with SQLiteEventStore(path) as store:
            store.create_run(Run(run_id="r"))
            assert store.verify().ok


def test_of_two_processes_one_gets_the_position(tmp_path: Path) -> None:
    path = tmp_path / "log.sqlite"
    with SQLiteEventStore(path) as store:
        store.create_run(Run(run_id="r"))
    winners = []
    with started("race", path, "left", "right") as racers:
        assert [line(racer) for racer in racers] == ["ready", "ready"]
        for position in range(2, 102):
            order = racers if position % 2 else racers[::-1]
            for racer in order:
                tell(racer, str(position))
            answers = dict(zip(("left", "right"), map(line, racers), strict=True))
            [winner] = [name for name, answer in answers.items() if answer == f"won {position}"]
            [loser] = answers.keys() - {winner}
            assert answers[loser] == f"lost {winner}"
            winners.append(winner)
    with SQLiteEventStore(path) as store:
        events = list(store.read("r", lo=2))
        assert [e.payload["by"] for e in events] == winners
        assert [e.position for e in events] == list(range(2, 102))
        assert store.verify().ok


def test_four_processes_lose_nothing(tmp_path: Path) -> None:
    """Each writes to a run of its own, and all of them to one run without expectations."""
    path, names = tmp_path / "log.sqlite", ["a", "b", "c", "d"]
    with SQLiteEventStore(path) as store:
        store.create_run(Run(run_id="shared"))
    with started("own", path, *names) as processes:
        assert [line(process) for process in processes] == ["ready"] * 4
        for process in processes:
            tell(process, "go")
        assert [line(process) for process in processes] == ["done"] * 4
    with SQLiteEventStore(path) as store:
        for name in names:
            events = list(store.read(name, types=["note.taken"]))
            assert [e.payload["n"] for e in events] == list(range(150))
            mine = [e.payload["n"] for e in store.read("shared", lo=2) if e.actor == name]
            assert mine == list(range(150))
        assert store.head("shared").position == 601
        assert len(list(store.tail())) == store.last_seq() == 5 + 1_200
        assert store.verify().to_dict() == {"ok": True, "runs": 5, "problems": []}


@pytest.mark.parametrize("round_", range(3))
def test_processes_that_create_a_log_together_share_it(tmp_path: Path, round_: int) -> None:
    path = tmp_path / "log.sqlite"
    with started("create", path, *"abcd") as processes:
        assert [line(process) for process in processes] == ["ready"] * 4
        for process in processes:
            tell(process, "go")
        assert len({line(process) for process in processes}) == 1
