"""Runs that come from other runs: forks, their families, and copies that need no other run."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from operator import index
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from sag_research.errors import UsageError
from sag_research.log import _rows as shape
from sag_research.log._connection import translated
from sag_research.log._lineage import lineage, run_number, segments
from sag_research.log._reading import read_runs
from sag_research.log._redact import tell_redacted
from sag_research.log._writing import find_tip, insert_run
from sag_research.model import WORKSPACE_RUN, Event, Run

if TYPE_CHECKING:
    from sag_research.log._store import SQLiteEventStore

__all__ = ["family", "flatten", "fork", "name_of_child"]

_NOT_OF_THE_BODY: Final = ("redacted", "started", "seconds")
_COPY_EVENTS: Final = """
    INSERT INTO events (run, pos, type, actor, cause, frame, ts_ns, started, seconds,
                        body, body_digest, digest, seal)
    SELECT :new, pos, type, actor, cause, frame, ts_ns, started, seconds,
           body, body_digest, digest, seal
    FROM events WHERE run = :run AND pos BETWEEN :lo AND :hi ORDER BY pos"""
_COPY_CALLS: Final = """
    INSERT INTO calls (key, occ, run, pos, root, status)
    SELECT key, occ, :new, pos, :new, status
    FROM calls WHERE run = :run AND pos BETWEEN :lo AND :hi"""
# Down from the root; UNION, so that a damaged file with a circle in it does not hang.
_IN_FAMILY: Final = """
    WHERE r.run IN (
        WITH RECURSIVE family (run) AS (
            SELECT root FROM runs WHERE uid = ?
            UNION
            SELECT child.run FROM family JOIN runs child ON child.parent = family.run
        )
        SELECT run FROM family
    )
    ORDER BY r.run"""


def fork(
    store: SQLiteEventStore,
    parent: str,
    at: int | None,
    child: Run,
    intervention: Mapping[str, Any] | None,
) -> Run:
    """Branch a run: one row, and the child's first own event."""
    if parent == WORKSPACE_RUN:
        raise UsageError("the workspace's own run cannot be forked")
    with store.transaction(), translated(store.path):
        tip = find_tip(store, parent)
        at = tip.pos if at is None else index(at)
        if not 1 <= at <= tip.pos:
            raise UsageError(f"run {parent!r} has no position {at}", why=f"it ends at {tip.pos}")
        writer = segments(store._db, tip.run, at)[-1].run
        digest = store._one("SELECT digest FROM events WHERE run = ? AND pos = ?", writer, at)
        insert_run(store, child, tip.run, at, digest)
        payload: Any = {} if intervention is None else intervention  # checked like any payload
        payload = dict(payload) if isinstance(payload, Mapping) else payload
        store.append(Event(run_id=child.run_id, type="run.forked", actor="log", payload=payload))
    return store.get_run(child.run_id)


def name_of_child(run_id: str) -> str:
    """Make an id for a run that comes from another."""
    return f"{run_id}+{uuid.uuid4().hex[:8]}"


def family(store: SQLiteEventStore, run_id: str) -> list[Run]:
    """Return all runs with the same root."""
    found = read_runs(store, _IN_FAMILY, run_id)
    if not found:
        raise shape.not_found(run_id)
    return found


def flatten(store: SQLiteEventStore, run_id: str, new_id: str | None) -> Run:
    """Copy a whole lineage into one run."""
    if run_id == WORKSPACE_RUN:
        raise UsageError("the workspace's own run cannot be copied")
    with store.transaction(), translated(store.path):
        source = store.get_run(run_id)
        copy = replace(
            source, run_id=new_id or name_of_child(run_id), parent_id=None, fork_position=0
        )
        insert_run(store, copy, None, 0, None)
        number = run_number(store._db, copy.run_id)
        for segment in lineage(store._db, run_id):
            for statement in (_COPY_EVENTS, _COPY_CALLS):
                store._db.execute(statement, {"new": number, **segment._asdict()})
        _tell_again(store, copy.run_id, number, run_id)
    return copy


def _tell_again(store: SQLiteEventStore, new_id: str, number: int, old_id: str) -> None:
    """Say of a copy's empty bodies what was said of the original's."""
    query = "SELECT pos FROM events WHERE run = ? AND body IS NULL ORDER BY pos"
    for (pos,) in store._db.execute(query, (number,)).fetchall():
        original = next(store.read(old_id, pos, pos))
        instead = {k: v for k, v in original.payload.items() if k not in _NOT_OF_THE_BODY}
        if (reason := original.payload.get("redacted")) is not None:
            tell_redacted(store, new_id, pos, reason, instead or None)
