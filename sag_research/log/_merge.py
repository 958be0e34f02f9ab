"""Taking over the runs of another log: by content, with what was written about them since.

Equal histories have equal digests, so whether a run is here already, has gone on there, or is
another run of the same name needs one comparison. Seals are made anew, for they chain clocks, and
the same trajectory may have been read on two machines at two times.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from sag_research.errors import StoreError, UsageError
from sag_research.log import _canonical as canonical
from sag_research.log._connection import translated
from sag_research.log._lineage import Segment, Tip, read_tip, segments, tip_of
from sag_research.log._redact import (
    REDACTED,
    load_text,
    reached,
    redact,
    redactions,
    said_instead,
)
from sag_research.log._writing import find_tip, insert_rows, name_number
from sag_research.model import WORKSPACE_RUN

if TYPE_CHECKING:
    from sag_research.log._store import SQLiteEventStore

__all__ = [
    "EVENTS",
    "PUT_RUN",
    "RUNS",
    "MergedRuns",
    "StoredRun",
    "chain_at",
    "merge_log",
    "parts",
    "row_after",
    "snapshot",
]

_PART: Final = 500
RUNS: Final = """
    SELECT r.run, r.uid, p.uid, r.fork_pos, r.label, r.attempt, r.source_id, r.created_ns
    FROM runs r LEFT JOIN runs p ON p.run = r.parent ORDER BY r.run"""
EVENTS: Final = """
    SELECT e.pos, t.name, a.name, e.cause, f.name, e.ts_ns, e.started, e.seconds, e.body,
           e.body_digest, e.digest
    FROM events e JOIN names t ON t.id = e.type JOIN names a ON a.id = e.actor
         LEFT JOIN names f ON f.id = e.frame
    WHERE e.run = ? AND e.pos BETWEEN ? AND ? ORDER BY e.pos"""
_TEXTS: Final = "SELECT digest, size, enc, data FROM blobs WHERE data IS NOT NULL AND digest IN "
_PUT_TEXT: Final = "INSERT OR IGNORE INTO blobs (digest, size, enc, data) VALUES (?, ?, ?, ?)"
PUT_RUN: Final = "INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_CALLS: Final = "SELECT key, occ, pos, status FROM calls WHERE run = ? AND pos >= ?"
_PUT_CALL: Final = """
    INSERT OR IGNORE INTO calls (key, occ, run, pos, root, status)
    SELECT ?, ?, run, ?, root, ? FROM runs WHERE run = ?"""
_AT_ONCE: Final = 500
_SOURCE: Final = "source.read"


class MergedRuns(msgspec.Struct, kw_only=True):
    """What became of another log's runs: each stands in one of the five lists.

    Attributes
    ----------
    copied, extended, known : list of str
        Runs that were not here; that had gone on there; that were here as they are, or longer.
    conflicts, refused : list of (str, str)
        Runs of the same id with another history, and runs that could not be taken over: with
        the reason. Nothing of them was written.
    events : int
        Events that were written, those about runs included.
    facts, facts_known, facts_left : int
        Events about runs (labels, annotations, merges …) that were written, that were here, and
        that were left out, because their run was or because they are empty.
    redacted : int
        Bodies that were emptied here because they were emptied there.
    """

    copied: list[str] = []
    extended: list[str] = []
    known: list[str] = []
    conflicts: list[tuple[str, str]] = []
    refused: list[tuple[str, str]] = []
    events: int = 0
    facts: int = 0
    facts_known: int = 0
    facts_left: int = 0
    redacted: int = 0


class StoredRun(NamedTuple):
    """A row of the table of runs, with the parent's id."""

    number: int
    uid: str
    parent: str | None
    fork_pos: int
    label: str
    attempt: int | None
    source_id: str | None
    created_ns: int


def merge_log(store: SQLiteEventStore, other: SQLiteEventStore) -> MergedRuns:
    """Take over what another log holds and this one does not, all of it or nothing.

    Parameters
    ----------
    store, other : SQLiteEventStore
        The other one is read as it is at this moment.

    Raises
    ------
    UsageError
        If both are one file.
    StoreError
        If a chain does not come out as it was.
    """
    if other.log_id == store.log_id and _is_one_file(store, other):
        raise UsageError("a log cannot be merged with itself")
    with other._lock, translated(other.path), closing(snapshot(other)):
        bad = {one.run: one.problem for one in other.verify().problems}
        with store.transaction(), translated(store.path):
            found = _Merge(store, other, bad)
            found.take_runs()
            found.take_redactions()
            found.take_facts()
            store._tips.clear()
    return found.report


def _two_histories(here: Tip, there: Tip) -> str:
    """Name two histories of one id by their digests, as the view ``runs`` shows them."""
    told = [f"{tip.digest.hex()} of {tip.pos} events" for tip in (here, there)]
    return f"a run of this id has another history here: {told[0]}; there: {told[1]}"


def _is_one_file(store: SQLiteEventStore, other: SQLiteEventStore) -> bool:
    query = "PRAGMA database_list"
    files = [one._db.execute(query).fetchone()[2] for one in (store, other)]
    return store is other or (files[0] != "" and files[0] == files[1])


class snapshot:
    """Hold the other log as it is while it is read."""

    def __init__(self, store: SQLiteEventStore) -> None:
        self._db = store._db
        self._db.execute("BEGIN")

    def close(self) -> None:
        self._db.execute("ROLLBACK")


class _Merge:
    """One merge, inside a transaction."""

    def __init__(
        self, store: SQLiteEventStore, other: SQLiteEventStore, bad: dict[str, str]
    ) -> None:
        self.report = MergedRuns()
        self._store, self._other, self._log_id, self._bad = store, other._db, other.log_id, bad
        self._left: set[str] = set()

    # ---- runs

    def take_runs(self) -> None:
        for row in self._other.execute(RUNS).fetchall():
            run = StoredRun(*row)
            if run.uid == WORKSPACE_RUN:
                continue
            if run.uid in self._bad:
                self._leave(self.report.refused, run, self._bad[run.uid])
            elif run.parent in self._left:
                self._leave(self.report.refused, run, f"its parent {run.parent!r} is left out")
            else:
                self._take(run)

    def _leave(self, where: list[tuple[str, str]], run: StoredRun, why: str) -> None:
        self._left.add(run.uid)
        where.append((run.uid, why))

    def _take(self, run: StoredRun) -> None:
        here = tip_of(self._store._db, run.uid)
        there = read_tip(self._other, run.number, run.fork_pos)
        if here is None:
            self._copy(run, there)
            return
        shared = min(here.pos, there.pos)
        mine = _digest_at(self._store._db, here.run, shared)
        if mine != _digest_at(self._other, run.number, shared):
            self._leave(self.report.conflicts, run, _two_histories(here, there))
        elif there.pos > here.pos:
            self._append(run, here, there)
            self.report.extended.append(run.uid)
        else:
            self.report.known.append(run.uid)

    def _copy(self, run: StoredRun, there: Tip) -> None:
        db, parent, digest = self._store._db, None, None
        number = int(self._store._one("SELECT coalesce(max(run), 0) + 1 FROM runs"))
        root, depth = number, 0
        start = Tip(number, 0, canonical.GENESIS, canonical.GENESIS)
        if run.parent is not None:
            query = "SELECT run, root, depth + 1 FROM runs WHERE uid = ?"
            parent, root, depth = db.execute(query, (run.parent,)).fetchone()
            digest, seal = chain_at(db, parent, run.fork_pos)
            start = Tip(number, run.fork_pos, digest, seal)
        row = (number, run.uid, parent, run.fork_pos, digest, root, depth)
        db.execute(PUT_RUN, (*row, *run[4:]))
        self._append(run, start, there)
        self.report.copied.append(run.uid)

    def _append(self, run: StoredRun, tip: Tip, there: Tip) -> None:
        """Append what the other run has behind a position, with the calls that it answers."""
        first = tip.pos + 1
        for segment in segments(self._other, run.number, there.pos):
            part = Segment(segment.run, max(segment.lo, first), segment.hi)
            for rows in parts(self._other.execute(EVENTS, part)):
                tip = self._write(tip, rows)
            for key, occ, pos, status in self._other.execute(_CALLS, part[:2]):
                if pos <= segment.hi:
                    self._store._db.execute(_PUT_CALL, (key, occ, pos, status, tip.run))
        if tip.digest != there.digest:
            raise StoreError(f"run {run.uid!r} does not come out as it was", fix="verify both logs")

    def _write(self, tip: Tip, rows: Sequence[tuple[Any, ...]]) -> Tip:
        made = []
        for _, type_, actor, cause, frame, ts_ns, started, seconds, body, body_digest, _ in rows:
            clocks = (ts_ns, started, seconds)
            row = row_after(self._store, tip, type_, actor, cause, frame, clocks, body, body_digest)
            tip = Tip(tip.run, row[1], row[7], row[8])
            made.append(row)
        self._texts(row[8] for row in rows if row[8] is not None)
        insert_rows(self._store, made)
        self.report.events += len(made)
        return tip

    def _texts(self, bodies: Iterable[bytes]) -> None:
        """Copy the texts that bodies refer to, packed as they are."""
        wanted = sorted(set().union(*reached(self._other, bodies)))
        for start in range(0, len(wanted), _AT_ONCE):
            some = wanted[start : start + _AT_ONCE]
            query = f"{_TEXTS} ({','.join('?' * len(some))})"
            self._store._db.executemany(_PUT_TEXT, self._other.execute(query, some))

    # ---- what was said of runs later

    def take_redactions(self) -> None:
        for told in list(redactions(self._other)):
            if told.run_id in self._left:
                continue
            if told.run_id == WORKSPACE_RUN:
                self._redact_facts(told.pos, told.position, told.reason)
                continue
            here = tip_of(self._store._db, told.run_id)
            if here is None or here.pos < told.position:
                continue
            writer = segments(self._store._db, here.run, told.position)[-1].run
            query = "SELECT body IS NOT NULL FROM events WHERE run = ? AND pos = ?"
            is_copy = told.run_id in self.report.copied
            if self._store._one(query, writer, told.position) and not is_copy:
                self._redact(told.pos, told.run_id, told.position, told.reason)
                self.report.redacted += 1

    def _redact(self, pos: int, run_id: str, position: int, reason: str) -> None:
        """Empty a body here as it was emptied there, and put the same in its place."""
        query = (
            "SELECT body FROM events WHERE run = (SELECT run FROM runs WHERE uid = ?) AND pos = ?"
        )
        (body,) = self._other.execute(query, (WORKSPACE_RUN, pos)).fetchone()
        redact(self._store, run_id, position, reason, said_instead(self._other, pos) or None)
        self._texts([body])

    def _redact_facts(self, pos: int, position: int, reason: str) -> None:
        """Empty, among what is said of runs here, what was emptied there: by its digest."""
        there = tip_of(self._other, WORKSPACE_RUN)
        here = tip_of(self._store._db, WORKSPACE_RUN)
        rows = [] if there is None else self._other.execute(
            EVENTS, (there.run, position, position)
        ).fetchall()  # fmt: skip
        if here is None or not rows:
            return
        type_, actor, digest = rows[0][1], rows[0][2], rows[0][9]
        for row in self._store._db.execute(EVENTS, (here.run, 1, here.pos)).fetchall():
            if row[8] is None or (row[1], row[2]) != (type_, actor):
                continue
            if digest in (row[9], self._as_told_there(row)):
                self._redact(pos, WORKSPACE_RUN, row[0], reason)
                self.report.redacted += 1

    def _as_told_there(self, row: tuple[Any, ...]) -> bytes | None:
        """Return the digest that a source's event had where it was taken over from."""
        if row[1] != _SOURCE:
            return None
        try:
            told = canonical.decode(row[8], lambda one: load_text(self._store._db, one) or b"")
        except (ValueError, KeyError, msgspec.DecodeError):
            return None
        if told.pop("log", None) != self._log_id:
            return None
        return canonical.body_digest(canonical.encode(told)[0])

    def take_facts(self) -> None:
        there = tip_of(self._other, WORKSPACE_RUN)
        if there is None:
            return
        tip = find_tip(self._store, WORKSPACE_RUN)
        have = _facts(self._store._db, tip.run, tip.pos)
        moved: dict[int, int] = {}
        events = self._other.execute(EVENTS, (there.run, 2, there.pos))  # 1 is its creation
        for rows in parts(events):
            wanted: list[tuple[Any, ...]] = []
            for row in rows:
                key = (row[1], row[2], row[9])
                if row[1] == _SOURCE and row[8] is not None and not have[key]:
                    row = self._elsewhere(row)
                    key = (row[1], row[2], row[9])
                if have[key]:
                    have[key] -= 1
                    self.report.facts_known += 1
                elif self._is_left(row):
                    self.report.facts_left += 1
                else:
                    moved[row[0]] = tip.pos + len(wanted) + 1
                    wanted.append((*row[:3], moved.get(row[3]), *row[4:]))
            if wanted:
                tip = self._write(tip, wanted)
                self.report.facts += len(wanted)

    def _elsewhere(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        """Say which log has read a source: its folder need not be a folder of this machine."""
        try:
            told = canonical.decode(row[8], lambda digest: self._text(digest))
        except (ValueError, KeyError, msgspec.DecodeError):
            return row
        body, texts = canonical.encode({"log": self._log_id, **told})
        self._store._blobs.keep(texts)
        return (*row[:8], body, canonical.body_digest(body), row[10])

    def _text(self, digest: bytes) -> bytes:
        text = load_text(self._other, digest)
        if text is None:
            raise KeyError(digest)
        return text

    def _is_left(self, row: tuple[Any, ...]) -> bool:
        if row[8] is None:
            return True
        try:
            run = canonical.decode(row[8], lambda _: b"").get("run")
        except (ValueError, msgspec.DecodeError):
            return True
        return run in self._left or (row[1] == REDACTED and run == WORKSPACE_RUN)


def row_after(
    store: SQLiteEventStore, tip: Tip, type_: str, actor: str, cause: int | None,
    frame: str | None, clocks: tuple[int, float | None, float | None], body: bytes | None,
    body_digest: bytes,
) -> tuple[Any, ...]:  # fmt: skip
    """Make the row of the event that follows a run's end."""
    ts_ns, started, seconds = clocks
    digest = canonical.chain(tip.digest, type_, actor, cause, body_digest)
    seal = canonical.seal(tip.seal, digest, (ts_ns, started, seconds, frame))
    names = [name_number(store, name) for name in (type_, actor)]
    frame_number = None if frame is None else name_number(store, frame)
    return (tip.run, tip.pos + 1, *names, ts_ns, body, body_digest, digest, seal,
            cause, frame_number, started, seconds)  # fmt: skip


def _facts(db: sqlite3.Connection, run: int, end: int) -> Counter[tuple[str, str, bytes]]:
    return Counter((row[1], row[2], row[9]) for row in db.execute(EVENTS, (run, 1, end)))


def _digest_at(db: sqlite3.Connection, run: int, position: int) -> bytes:
    return chain_at(db, run, position)[0]


def chain_at(db: sqlite3.Connection, run: int, position: int) -> tuple[bytes, bytes]:
    """Return digest and seal of a run's history at a position."""
    writer = segments(db, run, position)[-1].run
    query = "SELECT digest, seal FROM events WHERE run = ? AND pos = ?"
    digest, seal = db.execute(query, (writer, position)).fetchone()
    return digest, seal


def parts(rows: Iterable[tuple[Any, ...]]) -> Iterator[list[tuple[Any, ...]]]:
    """Part rows into lists of bounded length."""
    given = iter(rows)
    while part := list(islice(given, _PART)):
        yield part
