"""Replays that are killed: what they wrote stands, and they can be carried out again."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from sag_research.llm import Context
from sag_research.log import SQLiteEventStore
from sag_research.model import Run
from sag_research.runtime import replay
from tests.faults.test_log_kill import killed
from tests.log import writer

KILLS = 20


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A log with a run that was recorded."""
    path = tmp_path / "log.sqlite"
    with SQLiteEventStore(path) as store:
        store.create_run(Run(run_id="original"))
        writer.agent(Context(store, "original", model=writer.model()))
    return path


def test_a_killed_strict_replay_leaves_a_prefix_and_can_be_repeated(path: Path) -> None:
    """All replays write the same history, so a prefix is told by one digest."""
    moment = random.Random(11)
    with SQLiteEventStore(path) as store:
        store.create_run(Run(run_id="whole"))
        writer.agent(writer.strictly(store, "whole"))
        history = [None, *(event.digest for event in store.read("whole"))]
        assert Counter(e.type for e in store.read("whole"))["call.reused"] == 3 * writer.ASKS
    cut = 0
    for number in range(KILLS):
        name = f"k{number}"
        lines = killed("replay", path, name, moment)
        with SQLiteEventStore(path) as store:
            assert store.verify().ok
            for line in lines:
                run_id, position, digest = line.split()
                assert next(store.read(run_id, lo=int(position))).digest == digest
            runs = [run.run_id for run in store.runs() if run.run_id.startswith(f"{name}/")]
            heads = [store.head(run_id) for run_id in runs]
            assert all(digest == history[position] for position, digest in heads)
            assert all(head.position == len(history) - 1 for head in heads[:-1])
            cut += heads[-1].position < len(history) - 1
            store.create_run(Run(run_id=f"{name}.again"))
            writer.agent(writer.strictly(store, f"{name}.again"))
            assert store.head(f"{name}.again").digest == history[-1]
    assert cut > KILLS // 2  # else the moments were badly chosen
    with SQLiteEventStore(path) as store:
        assert replay(store, "original", writer.agent).ok


def test_a_killed_run_goes_on_from_its_answers(tmp_path: Path) -> None:
    """A program that is begun anew after each kill; what was answered is not asked again."""
    path, moment = tmp_path / "log.sqlite", random.Random(12)
    for _ in range(8):
        lines = [line.split() for line in killed("reuse", path, "r", moment)[1:]]
        with SQLiteEventStore(path) as store:
            assert store.verify().ok
            for _, position, digest in (line for line in lines if line != ["done"]):
                assert next(store.read("r", lo=int(position))).digest == digest
    with SQLiteEventStore(path) as store:
        writer.agent(Context(store, "r", mode="reuse", model=writer.model()))
        live = list(store.read("r", types=["llm.responded", "tool.responded"]))
        asked = Counter((e.payload["key"], e.payload["occurrence"]) for e in live)
        assert set(asked.values()) == {1}
        assert len(asked) == 2 * writer.ASKS
        steps = [e.payload for e in store.read("r", types=["agent.step"])]
        assert steps[-writer.ASKS :] == list({str(step): step for step in steps}.values())
