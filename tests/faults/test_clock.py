"""Clocks that jump: order, chains, answers and upkeep hang on sequence numbers, not on time."""

from __future__ import annotations

import datetime as dt
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

import sag_research as sag
from sag_research.errors import SagError
from sag_research.model import Event, Run
from sag_research.warehouse import _sync
from sag_research.warehouse._manifest import read_manifest
from tests.faults.study import (
    ONCE_AND_OFTEN,
    Study,
    assert_whole,
    at_rest,
    everything,
    in_order,
    one_line,
    projected,
    seeds,
    words_of,
)

HOUR, YEAR = 3600.0, 365.25 * 86400
SPRING = 1774746000.0
"""2026-03-29 01:00 UTC: in Berlin, 02:00 becomes 03:00."""
AUTUMN = 1792890000.0
"""2026-10-25 01:00 UTC: in Berlin, 03:00 becomes 02:00."""


class Clock:
    """The computer's clock, which a test sets."""

    def __init__(self) -> None:
        self.now = time.time()

    def jump(self, seconds: float) -> None:
        self.now += seconds

    def tick(self) -> float:
        self.now += 0.01
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(time, "time", clock.tick)
    monkeypatch.setattr(time, "time_ns", lambda: int(clock.tick() * 1e9))
    return clock


@contextmanager
def zone(name: str) -> Iterator[None]:
    before = os.environ.get("TZ")
    try:
        os.environ["TZ"] = name
        time.tzset()
        yield
    finally:
        if before is None:
            del os.environ["TZ"]
        else:
            os.environ["TZ"] = before
        time.tzset()


Jumps = Callable[[Random], list[float]]
JUMPS: dict[str, Jumps] = {
    "backwards": lambda random: [-random.uniform(1, 5 * HOUR), 1, -random.uniform(1, 3 * YEAR)],
    "forwards": lambda random: [random.uniform(1, 5 * HOUR), random.uniform(1, 30 * YEAR), 1],
    "to and fro": lambda random: [random.gauss(0, 1e7) for _ in range(6)],
    "to before 1970": lambda random: [-58 * YEAR, 1, 1],
    "to the year 2200": lambda random: [174 * YEAR, 1, 1],
    "stands still": lambda random: [-0.02] * 5,
}


OFTEN_ONLY = ("to and fro", "to the year 2200", "stands still")


@pytest.mark.parametrize("times", ONCE_AND_OFTEN)
@pytest.mark.parametrize(
    "jumps",
    [
        pytest.param(jumps, id=name, marks=[pytest.mark.slow] * (name in OFTEN_ONLY))
        for name, jumps in JUMPS.items()
    ],
)
def test_a_clock_that_jumps_changes_no_order(
    template: Study, tmp_path: Path, clock: Clock, jumps: Jumps, times: int
) -> None:
    for random in seeds(times):
        study = template.copy(tmp_path / f"{random.random()}")
        clock.now = 1_800_000_000.0
        with sag.open(study.path) as ws:
            ws.store.create_run(Run(run_id="jumpy"))
            for number, jump in enumerate(jumps(random)):
                clock.jump(jump)
                step = {"action": f"step {number}", "observation": "x", "seconds": 1.5}
                ws.store.append(Event(run_id="jumpy", type="agent.step", payload=step))
                ws.record_outcome("jumpy", number % 2 == 0, source="me")
                ws.sync()
            actions = ws.sql(
                "SELECT action, seconds FROM steps WHERE run_id = 'jumpy' ORDER BY step"
            )
            assert actions.rows() == [(f"step {n}", 1.5) for n in range(number + 1)]
            last = "success" if number % 2 == 0 else "failure"
            outcome = "SELECT outcome FROM runs WHERE run_id = 'jumpy'"
            assert ws.sql(outcome).rows() == [(last,)]  # what was said last, not latest
            assert everything(ws.warehouse) == projected(ws.store)
        assert_whole(at_rest(study.path))


@pytest.mark.skipif(not hasattr(time, "tzset"), reason="needs time zones of POSIX")
@pytest.mark.parametrize("change", [SPRING, AUTUMN], ids=["spring", "autumn"])
def test_a_change_to_and_from_summer_time_is_no_jump(
    tmp_path: Path, clock: Clock, change: float
) -> None:
    answers = []
    for name in ("UTC", "Europe/Berlin"):
        with zone(name), sag.open(tmp_path / name) as ws:
            clock.now = change - 2 * HOUR
            ws.store.create_run(Run(run_id="r"))
            for number in range(16):
                clock.now = change - 2 * HOUR + number * 900
                step = {"action": f"{number}", "started": clock.now, "seconds": 900.0}
                ws.store.append(Event(run_id="r", type="agent.step", payload=step))
                if number == 8:
                    ws.sync()
            rows = ws.sql(
                "SELECT e.ts, s.started_at FROM steps s JOIN events e USING (seq) ORDER BY s.step"
            ).rows()
            for column in zip(*rows, strict=True):
                gaps = {round((b - a).total_seconds()) for a, b in zip(column, column[1:])}  # noqa: B905, RUF007
                assert gaps == {900}
            started = dt.datetime.fromtimestamp(change - 2 * HOUR, dt.UTC).replace(tzinfo=None)
            assert rows[0][1] == started
            answers.append((rows, ws.digest(), list(ws.steps("r")["started_at"])))
        assert_whole(at_rest(tmp_path / name))
    assert answers[0] == answers[1]


@pytest.mark.parametrize("times", ONCE_AND_OFTEN)
def test_a_clock_beyond_what_a_log_can_hold_is_said(
    template: Study, tmp_path: Path, clock: Clock, times: int
) -> None:
    for random in seeds(times):
        study = template.copy(tmp_path / f"{random.random()}")
        with sag.open(study.path) as ws:
            clock.now = 1_800_000_000.0 + random.uniform(300, 7000) * YEAR
            for attempt in (
                lambda ws=ws: ws.store.append(Event(run_id="branch", type="note.taken")),
                lambda ws=ws: ws.store.create_run(Run(run_id="later")),
                lambda ws=ws: ws.store.fork("branch", run_id="later"),
            ):
                with pytest.raises(SagError, match="clock") as refused:
                    attempt()
                one_line(refused.value)
            clock.now = 1_800_000_000.0
            assert in_order(ws) == study.said
            ws.store.append(Event(run_id="branch", type="note.taken"))
        assert_whole(at_rest(study.path))


@pytest.mark.parametrize("stamp", [1e11, -1e11, 1.7e12, 1.7e18, float("nan"), float("inf")])
def test_a_time_of_a_source_beyond_range_costs_that_event_alone(
    template: Study, tmp_path: Path, stamp: float
) -> None:
    """Milliseconds taken for seconds, for one; what cannot be a time is refused with its place."""
    study = template.copy(tmp_path / "study")
    with sag.open(study.path) as ws:
        step = {"action": "a", "started": stamp}
        for event in (
            Event(run_id="branch", type="note.taken", ts=stamp),
            Event(run_id="branch", type="agent.step", payload=step),
        ):
            said = words_of(lambda event=event: ws.store.append(event))
            assert "refused at" in said or not said
        ws.store.append(Event(run_id="branch", type="note.taken"))
        assert everything(ws.warehouse) == projected(ws.store)
    assert_whole(at_rest(study.path))


@pytest.mark.parametrize("times", ONCE_AND_OFTEN)
@pytest.mark.parametrize("way", [-1, 1], ids=["set back", "set forward"])
def test_replaced_files_go_in_the_end_whatever_the_clock_does(
    template: Study, tmp_path: Path, clock: Clock, way: int, times: int
) -> None:
    for random in seeds(times):
        study = template.copy(tmp_path / f"{random.random()}")

        def sync(study: Study = study, random: Random = random) -> None:
            with sag.open(study.path) as ws:
                event = Event(run_id="branch", type="note.taken", payload={"n": random.random()})
                ws.store.append(event)
                ws.sync()

        clock.now = 1_800_000_000.0
        sync()
        clock.jump(way * random.uniform(1, 3) * YEAR)
        sync()
        assert read_manifest(study.warehouse).dead
        clock.jump(_sync.GRACE_SECONDS + 1)
        sync()
        clock.jump(_sync.GRACE_SECONDS + 1)
        sync()
        manifest = read_manifest(study.warehouse)
        held = {s.file for s in manifest.segments} | {d.file for d in manifest.dead}
        there = {
            p.relative_to(study.warehouse).as_posix() for p in study.warehouse.rglob("*.parquet")
        }
        assert there == held
        assert len(manifest.dead) < 8  # those of the last sync
        assert_whole(at_rest(study.path))


def test_a_reader_outlives_files_that_a_jump_made_old(
    template: Study, tmp_path: Path, clock: Clock
) -> None:
    study = template.copy(tmp_path / "study")
    with sag.open(study.path) as reader, sag.open(study.path) as writer:
        assert everything(reader.warehouse) == study.answers
        for number in range(4):
            clock.jump(YEAR)
            writer.store.append(Event(run_id="branch", type="note.taken", payload={"n": number}))
            writer.sync()
            assert everything(reader.warehouse) == projected(writer.store)
    assert_whole(at_rest(study.path))
