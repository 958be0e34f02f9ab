"""Writing a log once more with other payloads: same runs, positions, forks and clocks."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any, Final, TypeAlias

import msgspec

from sag_research.log import _canonical as canonical
from sag_research.log._calls import rebuild_calls
from sag_research.log._connection import translated
from sag_research.log._lineage import Tip
from sag_research.log._merge import (
    EVENTS,
    PUT_RUN,
    RUNS,
    StoredRun,
    chain_at,
    parts,
    row_after,
    snapshot,
)
from sag_research.log._redact import REDACTED, load_text
from sag_research.log._store import SQLiteEventStore
from sag_research.log._writing import insert_rows

__all__ = ["write_cleaned"]

Clean: TypeAlias = Callable[[str, dict[str, Any]], tuple[dict[str, Any], Mapping[bytes, bytes]]]
"""Gives a payload of a type as it is to be written, and what it refers to by digests."""
_SAME: Final[Mapping[str, str]] = {}
_UNREADABLE: Final = {"unreadable": "a text of it is missing or damaged"}


def write_cleaned(
    source: SQLiteEventStore,
    target: SQLiteEventStore,
    clean: Clean,
    ids: Mapping[str, str] = _SAME,
) -> int:
    """Write all runs of a log into an empty one, each payload as it is given back.

    Digests are made anew, so they tell nothing of what a payload held before. Blobs that no
    event refers to stay behind. Redacted bodies are written as what is read in their place.

    Parameters
    ----------
    source, target : SQLiteEventStore
        The source is read as it is at this moment; the target must hold no run.
    clean : callable
        ``clean(type, payload)`` gives the payload to write, and texts by their digests.
    ids : mapping of str to str, optional
        New ids of runs, by the old ones; payloads that name a run are for ``clean`` to change.

    Returns
    -------
    int
        Events written.
    """
    with source._lock, translated(source.path), closing(snapshot(source)):
        instead = {(e.run_id, e.position): e.payload for e in _emptied(source)}
        with target.transaction(), translated(target.path):
            copy = _Copy(source._db, target, clean, instead, ids)
            for row in source._db.execute(RUNS).fetchall():
                copy.take(StoredRun(*row))
            target._tips.clear()
    rebuild_calls(target)
    return copy.events


def _emptied(source: SQLiteEventStore) -> list[Any]:
    query = "SELECT r.uid, e.pos FROM events e JOIN runs r ON r.run = e.run WHERE e.body IS NULL"
    found = source._db.execute(query).fetchall()
    return [event for run_id, pos in found for event in source.read(run_id, pos, pos)]


class _Copy:
    """One writing, inside a transaction."""

    def __init__(
        self,
        db: sqlite3.Connection,
        target: SQLiteEventStore,
        clean: Clean,
        instead: Mapping[tuple[str, int], dict[str, Any]],
        ids: Mapping[str, str],
    ) -> None:
        self._ids = ids
        self._db, self._target, self._clean, self._instead = db, target, clean, instead
        self.events = 0

    def take(self, run: StoredRun) -> None:
        db, parent, digest = self._target._db, None, None
        root, depth = run.number, 0
        tip = Tip(run.number, 0, canonical.GENESIS, canonical.GENESIS)
        if run.parent is not None:
            query = "SELECT run, root, depth + 1 FROM runs WHERE uid = ?"
            parent, root, depth = db.execute(query, (self._id(run.parent),)).fetchone()
            digest, seal = chain_at(db, parent, run.fork_pos)
            tip = Tip(run.number, run.fork_pos, digest, seal)
        label = self._clean("run.label", {"label": run.label})[0]["label"]
        envelope = (label, run.attempt, run.source_id, run.created_ns)
        row = (run.number, self._id(run.uid), parent, run.fork_pos, digest, root, depth)
        db.execute(PUT_RUN, (*row, *envelope))
        for rows in parts(self._db.execute(EVENTS, (run.number, 1, 2**62))):
            made = []
            for old in rows:
                made.append(self._row(run.uid, tip, old))
                tip = Tip(tip.run, made[-1][1], made[-1][7], made[-1][8])
            insert_rows(self._target, made)
            self.events += len(made)

    def _id(self, uid: str) -> str:
        return self._ids.get(uid, uid)

    def _row(self, run_id: str, tip: Tip, old: tuple[Any, ...]) -> tuple[Any, ...]:
        pos, type_, actor, cause, frame, ts_ns, started, seconds, body, _, _ = old
        payload, refers_to = self._clean(type_, self._payload(run_id, pos, type_, body))
        new, texts = canonical.encode(payload)
        self._target._blobs.keep({**texts, **refers_to})
        clocks, digest = (ts_ns, started, seconds), canonical.body_digest(new)
        return row_after(self._target, tip, type_, actor, cause, frame, clocks, new, digest)

    def _payload(self, run_id: str, pos: int, type_: str, body: bytes | None) -> dict[str, Any]:
        if body is None:
            found = self._instead.get((run_id, pos), _UNREADABLE)
            return {name: value for name, value in found.items() if name not in _CLOCKS}
        try:
            payload = canonical.decode(body, self._text)
        except (ValueError, KeyError, msgspec.DecodeError):
            return dict(_UNREADABLE)
        if type_ == REDACTED:  # the body is there again, as it was told to be read
            return {name: payload[name] for name in ("run", "reason") if name in payload}
        return payload

    def _text(self, digest: bytes) -> bytes:
        text = load_text(self._db, digest)
        if text is None:
            raise KeyError(digest)
        return text


_CLOCKS: Final = ("started", "seconds")
