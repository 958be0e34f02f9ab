"""Following a run that is written elsewhere: what is seen, and when it ends."""

from __future__ import annotations

import threading
import time

import pytest

import sag_research as sag
from sag_research.errors import RunNotFoundError
from sag_research.model import Event, Run
from sag_research.viz import _watching as module


@pytest.fixture(autouse=True)
def _hurry(monkeypatch):
    monkeypatch.setattr(module, "LOOK_EVERY", 0.01)
    monkeypatch.setattr(module, "DRAW_EVERY", 0.0)
    monkeypatch.setattr(module, "SHARE", 0.0)
    monkeypatch.setattr(module, "GRACE", 0.3)
    yield
    end = time.monotonic() + 20  # no watcher is left behind
    while any(one.name == "sag-watching" for one in threading.enumerate()):
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.fixture(params=["memory", "disk"])
def ws(request, tmp_path):
    path = ":memory:" if request.param == "memory" else tmp_path / "study"
    with sag.open(path) as ws:
        ws.store.create_run(Run(run_id="r", task_id="t", goal="g"))
        step(ws.store, "r", 0)
        yield ws


def step(store, run, n):
    payload = {"action": f"cat shop/m{n}.py", "observation": "<img src=x onerror=alert(1)>"}
    store.append(Event(run_id=run, type="agent.step", payload=payload))


def end(store, run):
    store.append(Event(run_id=run, type="run.completed", payload={"exit_status": "done"}))


def until(wish):
    limit = time.monotonic() + 20
    while not wish():
        assert time.monotonic() < limit
        time.sleep(0.01)


def steps(live, run="r"):
    return [node.id for node in live.view.scene.nodes if node.id.startswith(f"event:{run}:")]


def test_a_run_is_followed_to_its_end(ws):
    live = ws.watch("r")
    assert live.status == "running"
    assert live.n_events == 2
    assert len(steps(live)) == 2
    for n in range(1, 6):
        step(ws.store, "r", n)
    until(lambda: len(steps(live)) == 7)
    assert live.n_events == 7
    end(ws.store, "r")
    assert live.wait(20)
    assert (live.status, live.n_events, live.error) == ("completed", 8, None)
    assert repr(live) == "Watching('r', 8 events, completed)"
    assert len(steps(live)) == 8
    assert ws.steps("r").shape[0] == 6  # the workspace is still open


def test_another_process_writes_through_its_own_connection(tmp_path):
    with sag.open(tmp_path / "study") as ws:
        ws.store.create_run(Run(run_id="r"))
        live = ws.watch("r", height=300)
        assert live.view.height == 300
        with sag.SQLiteEventStore(tmp_path / "study" / "log.sqlite") as other:
            step(other, "r", 0)
            until(lambda: live.n_events == 2)
            end(other, "r")
        assert live.wait(20)
        assert live.status == "completed"
        assert live.n_events == 3


def test_forks_are_lanes_and_are_waited_for(ws):
    old = ws.fork("r", step=0, run_id="old")
    live = ws.watch("r")
    assert live.runs == ["r", old.run_id]
    ws.fork("old", at=3, run_id="younger")
    ws.store.create_run(Run(run_id="stranger"))
    ws.fork("stranger", at=1, run_id="strange-fork")
    step(ws.store, "younger", 1)
    for run in ("r", "old"):
        end(ws.store, run)
    until(lambda: live.runs == ["r", "old", "younger"] and len(steps(live, "younger")) == 2)
    assert not live.wait(0.6)
    assert {band.run for band in live.view.scene.bands if band.run} == {"r", "old", "younger"}
    end(ws.store, "younger")
    assert live.wait(20)
    assert live.n_events == 3 + 2 + 3


def test_of_many_forks_the_newest_are_drawn_and_it_is_said(ws):
    for n in range(5):
        ws.fork("r", step=0, run_id=f"f{n}")
    live = ws.watch("r", lanes=3)
    drawn = {band.run for band in live.view.scene.bands if band.run}
    assert drawn == {"r", "f3", "f4"}
    assert "3 of 6 runs drawn: the first, and the newest" in live.view.scene.notes
    live.stop()


def test_an_outcome_that_comes_after_the_end_is_drawn(ws):
    live = ws.watch("r")
    end(ws.store, "r")
    until(lambda: len(steps(live)) == 3)
    payload = {"run": "r", "outcome": "success", "source": "test"}
    ws.store.append(Event(run_id="@workspace", type="outcome.recorded", payload=payload))
    assert live.wait(20)
    assert [band.outcome for band in live.view.scene.bands if band.run == "r"] == ["success"]


def test_a_run_that_goes_on_after_its_end_is_followed_on(ws):
    live = ws.watch("r")
    end(ws.store, "r")
    until(lambda: live.n_events == 3)
    step(ws.store, "r", 1)
    assert not live.wait(0.6)
    live.stop()
    assert live.status == "cancelled"


def test_what_came_since_the_last_drawing_is_drawn_at_the_end(ws, monkeypatch):
    monkeypatch.setattr(module, "DRAW_EVERY", 1_000.0)
    live = ws.watch("r")
    step(ws.store, "r", 1)
    until(lambda: len(steps(live)) == 3)  # the next drawing is far away
    step(ws.store, "r", 2)
    end(ws.store, "r")
    assert live.wait(20)
    assert len(steps(live)) == 5


def test_stopping_draws_what_was_seen_and_leaves_the_run(ws):
    live = ws.watch("r")
    step(ws.store, "r", 1)
    until(lambda: live.n_events == 3)
    live.stop()
    assert live.status == "cancelled"
    assert len(steps(live)) == 3
    step(ws.store, "r", 2)
    assert live.n_events == 3
    live.stop()


def test_a_log_that_goes_away_ends_it_with_the_reason():
    ws = sag.open(":memory:")
    ws.store.create_run(Run(run_id="r"))
    live = ws.watch("r")
    ws.close()
    assert live.wait(20)
    assert live.status == "failed"
    assert live.error is not None


def test_no_such_run(ws):
    with pytest.raises(RunNotFoundError):
        ws.watch("nothing")
