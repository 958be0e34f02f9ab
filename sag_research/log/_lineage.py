"""The way from a run up to its root: where it ends, and who wrote which part of it."""

from __future__ import annotations

import sqlite3
from operator import index
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from sag_research.errors import StoreError, UsageError
from sag_research.log import _canonical as canonical
from sag_research.log import _rows as shape
from sag_research.log._connection import translated

if TYPE_CHECKING:
    from sag_research.log._store import SQLiteEventStore

__all__ = [
    "Segment",
    "Tip",
    "count_steps",
    "lineage",
    "position_of_step",
    "read_tip",
    "run_number",
    "segments",
    "tip_of",
]


class Tip(msgspec.Struct, frozen=True, gc=False):
    """What the next append to a run needs: its row, last position, digest and seal."""

    run: int
    pos: int
    digest: bytes
    seal: bytes


class Segment(NamedTuple):
    """A run's own part of a lineage: its row and the positions it contributes."""

    run: int
    lo: int
    hi: int


def run_number(db: sqlite3.Connection, run_id: str) -> int:
    """Return the row of a run."""
    row = db.execute("SELECT run FROM runs WHERE uid = ?", (run_id,)).fetchone()
    if row is None:
        raise shape.not_found(run_id)
    return int(row[0])


def tip_of(db: sqlite3.Connection, run_id: str) -> Tip | None:
    """Read the end of a run, if there is such a run."""
    row = db.execute("SELECT run, fork_pos FROM runs WHERE uid = ?", (run_id,)).fetchone()
    return None if row is None else read_tip(db, *row)


def read_tip(db: sqlite3.Connection, run: int, fork_pos: int) -> Tip:
    """Read the end of a run, which in a new fork is an ancestor's event."""
    last = "SELECT pos, digest, seal FROM events WHERE run = ? ORDER BY pos DESC LIMIT 1"
    row = db.execute(last, (run,)).fetchone()
    if row is None and fork_pos:
        at = "SELECT pos, digest, seal FROM events WHERE run = ? AND pos = ?"
        row = db.execute(at, (segments(db, run, fork_pos)[-1].run, fork_pos)).fetchone()
    return Tip(run, *(row or (0, canonical.GENESIS, canonical.GENESIS)))


def segments(db: sqlite3.Connection, run: int, end: int) -> list[Segment]:
    """Walk up the lineage; the inherited part ends at the smallest fork position on the way."""
    found: list[Segment] = []
    current: int | None = run
    while current is not None and end > 0:
        query = "SELECT parent, fork_pos FROM runs WHERE run = ?"
        row = db.execute(query, (current,)).fetchone()
        if row is None:
            raise StoreError(
                "a run was forked from one that the log does not hold",
                why="the file is damaged",
                fix="run `sag verify` to see which runs are whole",
            )
        parent, fork_pos = row
        if end > fork_pos:
            found.append(Segment(current, fork_pos + 1, end))
        current, end = parent, min(end, fork_pos)
    return found[::-1]


def lineage(db: sqlite3.Connection, run_id: str, hi: int | None = None) -> list[Segment]:
    """Return the parts of a run's history, up to a position or to its end."""
    tip = tip_of(db, run_id)
    if tip is None:
        raise shape.not_found(run_id)
    return segments(db, tip.run, tip.pos if hi is None else min(index(hi), tip.pos))


def position_of_step(store: SQLiteEventStore, run_id: str, step: int) -> int:
    """Return the position of the event of a step."""
    query = """
        SELECT pos FROM events WHERE run = ? AND pos BETWEEN ? AND ?
        AND type = (SELECT id FROM names WHERE name = 'agent.step') ORDER BY pos"""
    with store._lock, translated(store.path):
        positions = [
            row[0]
            for segment in lineage(store._db, run_id)
            for row in store._db.execute(query, segment)
        ]
    if not 0 <= step < len(positions):
        raise UsageError(f"run {run_id!r} has no step {step}", why=f"it has {len(positions)} steps")
    return int(positions[step])


def count_steps(store: SQLiteEventStore, run_id: str, before: int) -> int:
    """Count the steps that stand before a position."""
    query = """
        SELECT count(*) FROM events
        WHERE run = ? AND pos BETWEEN ? AND ?
          AND type = (SELECT id FROM names WHERE name = 'agent.step')"""
    with store._lock, translated(store.path):
        run = run_number(store._db, run_id)
        parts = segments(store._db, run, index(before) - 1)
        return sum(int(store._one(query, *part)) for part in parts)
