"""What other processes do to a workspace while a test watches."""

from __future__ import annotations

from multiprocessing.connection import Connection
from multiprocessing.sharedctypes import Synchronized
from multiprocessing.synchronize import Barrier
from multiprocessing.synchronize import Event as Flag
from pathlib import Path
from random import Random
from typing import TypeAlias

from sag_research.log import SQLiteEventStore
from sag_research.model import Run
from sag_research.warehouse import Warehouse, _sync, _warehouse
from tests.warehouse.support import end, open_warehouse, outcome, step

SEGMENT_EVENTS = 500
GRACE_SECONDS = 2.0
WAIT = 90.0
"""Seconds until somebody is taken for dead; a busy machine is slow to start a process."""

Counter: TypeAlias = "Synchronized[int]"


def open_both(study: Path) -> tuple[SQLiteEventStore, Warehouse]:
    """Open a workspace with segments so small that a test sees many of them."""
    _sync.SEGMENT_EVENTS = SEGMENT_EVENTS
    _sync.GRACE_SECONDS = GRACE_SECONDS
    _sync._SEARCHED_STEPS = _warehouse.CHUNK = 64
    store = SQLiteEventStore(study / "log.sqlite")
    return store, open_warehouse(study / "warehouse", store)


def append_until(study: Path, stop: Flag, start: Barrier, count: Counter) -> None:
    """An agent: runs of some steps, now and then a fork, a label on each; counts its events."""
    random, number = Random(1), 0
    with SQLiteEventStore(study / "log.sqlite") as store:
        start.wait(WAIT)
        while not stop.is_set():
            name = f"r{number}"
            if number % 4 == 3:
                store.fork(f"r{number - 1}", at=random.randint(1, 3), run_id=name)
            else:
                store.create_run(Run(run_id=name, repo="a/b"))
            for _ in range(random.randint(2, 12)):
                some = range(random.randint(1, 3))
                store.append_many(step(name, f"x{i}.py y.py " * 20) for i in some)
                stop.wait(0.004)
            store.append_many([end(name), outcome(name, "success")])
            number += 1
            count.value = store.last_seq()


def sync_until(
    study: Path, stop: Flag, start: Barrier, count: Counter, answer: Connection, pause: float
) -> None:
    """A syncer, which counts the syncs it did; answers with refusals and events projected."""
    store, warehouse = open_both(study)
    start.wait(WAIT)
    refused, events = 0, 0
    while not stop.is_set():
        report = warehouse.sync()
        refused += not report.done
        events += report.events
        count.value += report.done
        stop.wait(pause)
    answer.send((refused, events))
    warehouse.close()
    store.close()


EXACT = """
    SELECT (SELECT count(*) FROM events), (SELECT max(seq) FROM events),
           (SELECT count(DISTINCT seq) FROM events),
           (SELECT count(*) FROM events WHERE type = 'agent.step'), (SELECT count(*) FROM steps),
           (SELECT sum(n_steps) FROM runs), (SELECT count(*) FROM calls WHERE call = 0),
           (SELECT count(*) FROM events WHERE type IN ('run.created', 'run.forked')),
           (SELECT count(*) FROM runs) + (SELECT count(*) FROM events WHERE run_id = '@workspace'
                                          AND position = 1),
           (SELECT count(*) FROM outcomes), (SELECT count(*) FROM runs WHERE outcome <> 'unknown'),
           (SELECT count(DISTINCT (run_id, position)) FROM mentions),
           (SELECT count(*) FROM steps_all WHERE inherited), (SELECT sum(n_inherited) FROM runs)"""


def fault(warehouse: Warehouse, store: SQLiteEventStore, at_least: int) -> tuple[str, int]:
    """Compare a warehouse with its log; returns what is wrong, and how far the answer reaches."""
    before = store.last_seq()
    (row,) = warehouse.sql(EXACT).rows()
    after = store.last_seq()
    row = tuple(value or 0 for value in row)
    events, last, distinct, typed, steps, of_runs, calls, firsts, runs, labels, judged = row[:11]
    good = (
        events == last == distinct
        and max(before, at_least) <= last <= after
        and typed == steps == of_runs == calls == row[11]
        and firsts == runs
        and labels == judged
        and row[12] == row[13]
    )
    return ("" if good else f"{before} <= {row} <= {after}"), last


def query_until(
    study: Path, stop: Flag, start: Barrier, count: Counter, answer: Connection
) -> None:
    """A reader, which counts its queries; answers with the first thing that was wrong."""
    store, warehouse = open_both(study)
    start.wait(WAIT)
    seen, wrong = 0, ""
    while not stop.is_set() and not wrong:
        wrong, seen = fault(warehouse, store, seen)
        count.value += 1
    answer.send(wrong)
    warehouse.close()
    store.close()


def rebuild_for_ever(study: Path, ready: Connection) -> None:
    """A syncer that is always in the middle of something; to be killed."""
    _, warehouse = open_both(study)
    ready.send(True)
    while True:
        warehouse.rebuild()
        warehouse.sync()


def hold_lock(study: Path, ready: Connection, stop: Flag) -> None:
    """Another syncer, in the middle of a long sync."""
    with _sync._lock(study / "warehouse") as mine:
        ready.send(mine)
        stop.wait(60)
