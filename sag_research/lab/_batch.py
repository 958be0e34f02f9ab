"""Playing many runs, in several processes, into one log; a batch can be carried on."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import closing
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import msgspec

from sag_research.errors import Caught, SagError, UsageError
from sag_research.ingest import hide
from sag_research.lab._assignment import Assignment, Play, assignments
from sag_research.lab._worlds import open_world
from sag_research.log import SQLiteEventStore
from sag_research.model import TERMINAL_TYPES, WORKSPACE_RUN, Event, Outcome

__all__ = ["BatchReport", "BatchRow", "play_batch", "record_outcome"]


class BatchRow(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a batch; ``error`` says why there is none."""

    run_id: str
    task_id: str
    policy: str
    outcome: str = "unknown"
    ending: str = ""
    error: str = ""
    there: bool = False
    """It had been played before."""


class BatchReport(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a batch; every assignment is in it."""

    world: str
    rows: tuple[BatchRow, ...]

    def __repr__(self) -> str:
        outcomes = Counter(row.outcome for row in self.rows if not row.error)
        failed = sum(bool(row.error) for row in self.rows)
        counts = [f"{outcomes[name]} {name}" for name in ("success", "failure", "unknown")]
        more = f", {failed} not played" if failed else ""
        return f"BatchReport({self.world!r}, {len(self.rows)} runs: {', '.join(counts)}{more})"


def play_batch(
    store: Path | str,
    world: str,
    n: int,
    *,
    seed: int = 7,
    scenarios: Sequence[str] = (),
    policies: Sequence[str] = (),
    jobs: int = 1,
    told: Callable[[BatchRow], object] | None = None,
    **options: Any,
) -> BatchReport:
    """Play runs of a world into a log.

    Parameters
    ----------
    store : path-like
        The log's file.
    world : str
        See :func:`sag_research.lab.world_names`.
    n : int
        Runs, spread evenly over tasks and policies.
    seed : int
        The same seed gives the same runs.
    scenarios, policies : sequence of str
        Default: all.
    jobs : int
        Processes.
    told : callable, optional
        Called with each row as it is done.
    **options
        Limits of the runs, as the world takes them.

    Returns
    -------
    BatchReport
        In the order of the assignments. A run that had ended is not played again; one that was
        cut off is given up, and played anew under another id.
    """
    if jobs < 1:
        raise UsageError(f"{jobs} processes cannot play", fix="give jobs=1 or more")
    with closing(open_world(world)) as play:
        todo = assignments(play, n, seed=seed, scenarios=scenarios, policies=policies)
    rows: dict[int, BatchRow] = {}
    for place, row in _rows(str(store), todo, jobs, options):
        rows[place] = row
        if told is not None:
            told(row)
    return BatchReport(world=world, rows=tuple(rows[place] for place in sorted(rows)))


_PART = 8  # runs that a process plays in one world


def _rows(
    store: str, todo: list[Assignment], jobs: int, options: dict[str, Any]
) -> Iterator[tuple[int, BatchRow]]:
    SQLiteEventStore(store).close()  # made once, before several processes open it
    parts = [(store, todo[at : at + _PART], options) for at in range(0, len(todo), _PART)]
    if jobs == 1:
        for place, part in enumerate(parts):
            yield from enumerate(_part(part), place * _PART)
        return
    pool = ProcessPoolExecutor(
        jobs, mp_context=get_context("spawn"), initializer=signal.signal,
        initargs=(signal.SIGINT, signal.SIG_IGN),
    )  # fmt: skip
    try:
        places = {pool.submit(_interruptible, part): place for place, part in enumerate(parts)}
        for done in as_completed(places):
            yield from enumerate(done.result(), places[done] * _PART)
    finally:
        pool.shutdown(cancel_futures=True)


def _interruptible(part: tuple[str, list[Assignment], dict[str, Any]]) -> list[BatchRow]:
    """Play a part in a process of the pool, which hears an interrupt only while it plays.

    A process that waits for work would print a traceback; one that plays closes its world.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return _part(part)
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def _part(part: tuple[str, list[Assignment], dict[str, Any]]) -> list[BatchRow]:
    store, todo, options = part
    with closing(open_world(todo[0].world)) as world, SQLiteEventStore(store) as log:
        outcomes = {
            str(event.payload["run"]): str(event.payload["outcome"])
            for event in (log.read(WORKSPACE_RUN) if log.has_run(WORKSPACE_RUN) else ())
            if event.type == "outcome.recorded"
        }
        return [_played(log, world, one, options, outcomes) for one in todo]


def _played(
    store: SQLiteEventStore,
    world: Play,
    one: Assignment,
    options: dict[str, Any],
    outcomes: Mapping[str, str],
) -> BatchRow:
    fields: dict[str, Any] = {"task_id": one.task_id, "policy": one.policy}
    while store.has_run(one.run_id):
        ending = _ending(store, one.run_id)
        if ending is not None and one.run_id in outcomes:
            outcome = outcomes[one.run_id]
            return BatchRow(run_id=one.run_id, there=True, outcome=outcome, ending=ending, **fields)
        _give_up(store, one.run_id, ending is not None)
        one = msgspec.structs.replace(one, again=one.again + 1)
    with Caught() as caught:
        played = world.play(store, one, **options)
    if isinstance(caught.error, SagError):
        return BatchRow(run_id=one.run_id, error=str(caught.error), **fields)
    if caught.error is not None:
        raise caught.error
    record_outcome(store, one.run_id, played.outcome)
    return BatchRow(
        run_id=one.run_id, outcome=played.outcome.outcome, ending=played.ending, **fields
    )


def record_outcome(store: SQLiteEventStore, run: str, outcome: Outcome) -> None:
    """Write down what a world says of a run."""
    payload = {"run": run, **msgspec.to_builtins(outcome)}
    event = Event(run_id=WORKSPACE_RUN, type="outcome.recorded", actor="world", payload=payload)
    store.append(event)


def _ending(store: SQLiteEventStore, run: str) -> str | None:
    """Return why a run stopped, ``None`` where it has not."""
    ends = [event.payload for event in store.read(run, types=TERMINAL_TYPES)]
    return str(ends[-1].get("exit_status", "")) if ends else None


def _give_up(store: SQLiteEventStore, run: str, ended: bool) -> None:
    """Leave a run that was cut off: the state of its world is gone."""
    if not ended:
        store.append(Event(run_id=run, type="run.abandoned", payload={"exit_status": "cut-off"}))
    hide(store, run, "cut off while it was played")
