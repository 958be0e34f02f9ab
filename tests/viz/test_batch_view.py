"""Batches on a thread of their own: counted, stopped, carried on, and shown."""

from __future__ import annotations

import threading
import time

import pytest

import sag_research as sag
from sag_research.errors import SagError
from sag_research.lab import BatchRow, play_batch
from sag_research.model import Event, Run
from sag_research.runtime import Delta
from sag_research.viz import progress_view, start_batch, start_experiment, token_view


def row(outcome="success", error="", name="r"):
    return BatchRow(run_id=name, task_id="t", policy="p", outcome=outcome, error=error)


def until(wish):
    limit = time.monotonic() + 20
    while not wish():
        assert time.monotonic() < limit
        time.sleep(0.01)


def test_a_batch_of_the_lab_is_counted(tmp_path):
    asked = {"policies": ["careful"], "scenarios": ["easy"]}
    from sag_research.lab import open_world

    world = open_world("crates")
    asked["policies"] = list(world.policies)[:1]
    world.close()
    path = tmp_path / "log.sqlite"
    batch = start_batch(lambda told: play_batch(path, "crates", 4, told=told, **asked), 4, "crates")
    report = batch.result(60)
    assert batch.status == "completed"
    assert batch.progress.done == 4 == len(report.rows)
    assert sum(batch.progress.outcomes.values()) == 4
    assert repr(batch).startswith("Batch('crates', 4 of 4 runs · ")


def test_what_could_not_be_played_is_told_and_adds_up():
    def work(told):
        for n in range(9):
            told(row(error=f"no disk {n} <b>"))
        told(row("unknown"))

    batch = start_batch(work, 10)
    assert batch.wait(20)
    progress = batch.progress
    assert (progress.done, progress.failed, progress.outcomes) == (10, 9, {"unknown": 1})
    assert progress.problems == tuple(f"no disk {n} <b>" for n in range(4, 9))
    view = progress_view(batch)
    until(lambda: view.bar.bar_style == "success")
    assert "no disk 8 &lt;b&gt;" in view.told.value
    assert "<b>" not in view.told.value
    assert repr(view) == "BatchView('batch', 10 of 10 runs · 1 unknown · 9 not played)"


def test_its_button_stops_it_after_the_run_that_is_played():
    gate, played = threading.Event(), []

    def work(told):
        for n in range(5):
            gate.wait(20)
            played.append(n)
            told(row())

    batch = start_batch(work, 5, "slow")
    tokens = token_view()
    view = progress_view(batch, tokens)
    assert tokens in view.children
    tokens(Delta(route_key="a", delta="hello", **delta_rest()))
    view.stop.button.click()
    assert view.stop.told.value == "stopping"
    gate.set()
    assert batch.wait(20)
    assert batch.status == "cancelled"
    assert played == [0]
    until(lambda: view.bar.bar_style == "warning")
    assert view.bar.value == 1
    assert tokens.shown == {"a": "hello"}
    with pytest.raises(SagError, match="was stopped"):
        batch.result()


def delta_rest():
    import msgspec

    return {
        field.name: "" for field in msgspec.structs.fields(Delta)
        if field.required and field.name not in ("route_key", "delta")
    }  # fmt: skip


def test_a_stop_after_the_last_run_stops_nothing():
    asked = threading.Event()

    def work(told):
        asked.wait(20)
        told(row())
        return "whole"

    batch = start_batch(work, 1)
    batch.cancel()
    asked.set()
    assert batch.result(20) == "whole"
    assert batch.status == "completed"


def test_an_error_ends_it_and_is_kept():
    def work(told):
        raise ValueError("broken")

    batch = start_batch(work, 3)
    assert batch.wait(20)
    assert batch.status == "failed"
    with pytest.raises(ValueError, match="broken"):
        batch.result()
    with pytest.raises(TimeoutError):
        start_batch(lambda told: threading.Event().wait(0.5), 1).result(0.01)


@pytest.fixture
def coin():
    store = sag.SQLiteEventStore(":memory:")
    store.create_run(Run(run_id="r1", task_id="t1"))
    store.append(Event(run_id="r1", type="agent.step", payload={"action": "guess"}))
    gate = threading.Event()
    gate.set()

    def agent_factory(change, seed):
        def agent(ctx):
            gate.wait(20)
            ctx.step("toss", "toss", "heads")
            return ctx.rng().random() < change.get("chance", 0.2)

        return agent

    arms = {"same": {}, "luckier": {"chance": 0.8}}
    experiment = sag.Experiment(
        store, "r1", at=1, arms=arms, repeats=4, agent_factory=agent_factory, name="coin"
    )
    return experiment, gate


def test_an_experiment_is_counted(coin):
    experiment, _ = coin
    batch = start_experiment(experiment)
    result = batch.result(60)
    assert repr(result) == repr(experiment.run())
    assert batch.progress.done == batch.progress.total == 8
    assert batch.loop_id == "coin"


def test_an_experiment_is_stopped_between_repeats_and_carried_on(coin):
    experiment, gate = coin
    gate.clear()
    batch = start_experiment(experiment)
    batch.cancel()
    gate.set()
    assert batch.wait(60)
    assert batch.status == "cancelled"
    done = len(experiment.result().runs)
    assert done in {0, 2}  # whole pairs
    assert experiment.repeats == 4
    again = start_experiment(experiment)
    again.result(60)
    assert again.progress.done == 8
    assert len(experiment.result().runs) == 8
