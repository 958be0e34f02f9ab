"""Checking that a log is what was written: digests, seals, order, and the texts beside them."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec
import zstandard

from sag_research.errors import RunNotFoundError
from sag_research.log import _canonical as canonical
from sag_research.log._redact import redactions

__all__ = ["Problem", "VerifyReport", "file_fault", "verify_log"]

_ROWS = """
    SELECT e.pos, t.name, a.name, e.cause, e.ts_ns, e.started, e.seconds, e.body, e.body_digest,
           e.digest, e.seal, f.name
    FROM events e LEFT JOIN names t ON t.id = e.type LEFT JOIN names a ON a.id = e.actor
         LEFT JOIN names f ON f.id = e.frame
    WHERE e.run = ? AND e.pos <= ? ORDER BY e.pos"""
_END = 2**62


class Problem(msgspec.Struct, frozen=True):
    """The first bad position of a run and what is wrong there."""

    run: str
    position: int
    problem: str


class VerifyReport(msgspec.Struct, frozen=True):
    """Result of a check.

    Attributes
    ----------
    ok : bool
    runs : int
        Number of runs checked.
    problems : tuple of Problem
        The first problem of each bad run.
    redacted : int
        Events whose body was taken out, of which the log says so; that is no problem.
    """

    ok: bool
    runs: int
    problems: tuple[Problem, ...]
    redacted: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain data, as ``sag verify --json`` prints it.

        ``redacted`` stands in it where any body was.
        """
        redacted = {"redacted": self.redacted} if self.redacted else {}
        return {
            "ok": self.ok,
            "runs": self.runs,
            "problems": [msgspec.structs.asdict(problem) for problem in self.problems],
            **redacted,
        }

    def __repr__(self) -> str:
        state = "ok" if self.ok else "NOT ok"
        taken = f", {self.redacted} bodies redacted" if self.redacted else ""
        return f"VerifyReport({state}, {self.runs} runs, {len(self.problems)} problems{taken})"


class _RunRow(NamedTuple):
    run: int
    uid: str
    parent: int | None
    fork_pos: int
    fork_digest: bytes | None


def verify_log(
    db: sqlite3.Connection, lock: threading.RLock, run_id: str | None = None
) -> VerifyReport:
    """Recompute the chain of one run (and of its ancestors' shared prefix), or of all runs.

    Raises
    ------
    RunNotFoundError
        If ``run_id`` is given and unknown.
    """
    with lock:
        rows = [
            _RunRow(*row)
            for row in db.execute(
                "SELECT run, uid, parent, fork_pos, fork_digest FROM runs ORDER BY run"
            )
        ]
        wanted = _wanted(rows, run_id)
        texts = _Texts(db)
        problems = [problem for row, end in wanted if (problem := _readable(db, row, end, texts))]
        if run_id is None:
            problems += _file_faults(db) or _orphans(db)
    return VerifyReport(not problems, len(wanted), tuple(problems), texts.n_redacted)


def _readable(db: sqlite3.Connection, row: _RunRow, end: int, texts: _Texts) -> Problem | None:
    """Check a run; a page of the file that is damaged costs the runs that stand on it."""
    try:
        return _check_run(db, row, end, texts)
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_CORRUPT:
            raise
        first = _first_unreadable(db, row)
        return Problem(row.uid, first, "damaged: the file cannot be read there")


def _first_unreadable(db: sqlite3.Connection, row: _RunRow) -> int:
    position = row.fork_pos
    with suppress(sqlite3.DatabaseError):  # it comes where the damage is
        for event in db.execute(_ROWS, (row.run, _END)):
            position = event[0]
    return position + 1


def file_fault(db: sqlite3.Connection) -> str:
    """Ask SQLite whether pages, indices and free list fit together; returns what does not."""
    try:
        said = [str(row[0]) for row in db.execute("PRAGMA integrity_check(3)")]
    except sqlite3.DatabaseError as error:  # the check itself met the damage
        if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_CORRUPT:
            raise
        said = [str(error)]
    return "" if said == ["ok"] else " ".join("; ".join(said).split())


def _file_faults(db: sqlite3.Connection) -> list[Problem]:
    fault = file_fault(db)
    told = f"damaged: {fault}; `sag rebuild` makes indices anew"
    return [Problem("(file)", 0, told)] if fault else []


class _Texts:
    """Checks that bodies are there or were redacted, and the texts beside them, each once."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self.n_redacted = 0
        self._redacted = {(told.run_id, told.position) for told in redactions(db)}
        self._good: set[bytes] = set()
        self._decompressor = zstandard.ZstdDecompressor()

    def fault(self, run_id: str, position: int, body: bytes | None) -> str | None:
        """Say what is wrong with an event's body, or with the texts that it refers to."""
        if body is None:
            redacted = (run_id, position) in self._redacted
            self.n_redacted += redacted
            return None if redacted else "missing: the body is gone"
        for digest in sorted(canonical.marked([body])):
            if digest not in self._good:
                if (fault := self._fault(digest)) is not None:
                    return fault
                self._good.add(digest)
        return None

    def _fault(self, digest: bytes) -> str | None:
        query = "SELECT size, enc, data FROM blobs WHERE digest = ?"
        row = self._db.execute(query, (digest,)).fetchone()
        if row is None or row[2] is None:
            return "missing: a text of the event is gone"
        size, enc, data = row
        try:
            text = self._decompressor.decompress(data, size) if enc else data
        except zstandard.ZstdError:
            return "edited: a text of the event is damaged"
        same = canonical.blob_digest(text) == digest
        return None if same else "edited: a text does not fit its digest"


def _wanted(rows: list[_RunRow], run_id: str | None) -> list[tuple[_RunRow, int]]:
    """Choose the runs to check, each with the last position that matters."""
    if run_id is None:
        return [(row, _END) for row in rows]
    by_number = {row.run: row for row in rows}
    row = next((row for row in rows if row.uid == run_id), None)
    if row is None:
        raise RunNotFoundError(f"no run {run_id!r} in the log", fix="list the runs with `sag runs`")
    chain, end = [(row, _END)], _END
    while (above := by_number.get(row.parent or 0)) is not None and above.run < row.run:
        row, end = above, min(end, row.fork_pos)
        if end > row.fork_pos:  # else all of it stands further up
            chain.append((row, end))
    return chain[::-1]


def _orphans(db: sqlite3.Connection) -> list[Problem]:
    query = """
        SELECT run, min(pos) FROM events WHERE run NOT IN (SELECT run FROM runs)
        GROUP BY run ORDER BY run"""
    fault = "missing: the events' run is gone"
    return [Problem(f"(row {run})", position, fault) for run, position in db.execute(query)]


def _check_run(db: sqlite3.Connection, row: _RunRow, end: int, texts: _Texts) -> Problem | None:
    digest, seal = canonical.GENESIS, canonical.GENESIS
    if row.parent is not None:
        start = _fork_point(db, row)
        if isinstance(start, str):
            return Problem(row.uid, row.fork_pos, start)
        digest, seal = start
    position = row.fork_pos
    for event in db.execute(_ROWS, (row.run, end)):
        position += 1
        fault = _fault(position, digest, seal, event) or texts.fault(row.uid, position, event[7])
        if fault:
            return Problem(row.uid, position, fault)
        digest, seal = event[9], event[10]
    if position == row.fork_pos:
        return Problem(row.uid, position + 1, "missing: the run has no event of its own")
    return None


def _fork_point(db: sqlite3.Connection, row: _RunRow) -> tuple[bytes, bytes] | str:
    """Find digest and seal of the inherited prefix's last event, which a grandparent may hold."""
    run, position = row.parent, row.fork_pos
    while run is not None:
        found = db.execute(
            "SELECT digest, seal FROM events WHERE run = ? AND pos = ?", (run, position)
        ).fetchone()
        if found:
            same = found[0] == row.fork_digest
            return (found[0], found[1]) if same else "edited: the parent's prefix has changed"
        above = db.execute("SELECT parent, fork_pos FROM runs WHERE run = ?", (run,)).fetchone()
        known = above and above[0] is not None and above[0] < run  # a parent is always older
        run = above[0] if known and position <= above[1] else None
    return "missing: the parent's event at the fork position is gone"


def _fault(position: int, previous: bytes, seal: bytes, event: tuple[Any, ...]) -> str | None:
    pos, type_, actor, cause, ts_ns, started, seconds, body, body_digest, digest, sealed, frame = (
        event
    )
    if pos != position:
        return f"missing: the next event stands at position {pos}"
    if body is not None and canonical.body_digest(body) != body_digest:
        return "edited: the body does not fit its digest"
    if canonical.chain(previous, type_ or "", actor or "", cause, body_digest) != digest:
        return "edited or reordered: the digest does not follow from the event before"
    if canonical.seal(seal, digest, (ts_ns, started, seconds, frame)) != sealed:
        return "clock: a time or frame was changed after the event was written"
    return None
