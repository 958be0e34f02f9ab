"""Reading: pages of events with their long texts, and runs with what they are about."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from operator import index
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sag_research.errors import StoreError, UsageError
from sag_research.log import _canonical as canonical
from sag_research.log import _rows as shape
from sag_research.log._connection import translated
from sag_research.log._lineage import Segment
from sag_research.log._redact import redactions, said_instead
from sag_research.model import Event, Run

if TYPE_CHECKING:
    from sag_research.log._store import SQLiteEventStore

__all__ = [
    "RawEvent",
    "RawPage",
    "event_at",
    "follow",
    "raw_pages",
    "read_blob",
    "read_runs",
    "read_runs_named",
    "read_segments",
    "read_tail",
]

PAGE: Final = 1_000
_AT_ONCE: Final = 500
_SELECT: Final = """
    SELECT e.seq, r.uid, e.pos, t.name, a.name, e.cause, f.name, e.ts_ns, e.started, e.seconds,
           e.body, e.digest
    FROM events e JOIN runs r ON r.run = e.run JOIN names t ON t.id = e.type
         JOIN names a ON a.id = e.actor LEFT JOIN names f ON f.id = e.frame"""


class RawEvent(NamedTuple):
    """An event as its row holds it: the body is not decoded, its long texts are elsewhere."""

    seq: int
    run_id: str
    position: int
    type: str
    actor: str
    cause: int | None
    frame: str | None
    ts_ns: int
    started: float | None
    seconds: float | None
    body: bytes | None
    digest: bytes


class RawPage:
    """Consecutive events of the log, for those who read bodies by their own types.

    In a body, an object with one key, NUL, stands for a long text; :func:`marked_digest` tells.
    """

    def __init__(self, store: SQLiteEventStore, rows: Sequence[RawEvent]) -> None:
        self.rows = rows
        self._store = store

    def texts(self, digests: Collection[bytes]) -> dict[bytes, str]:
        """Return long texts by their digests; what is missing or damaged is left out."""
        with self._store._lock, translated(self._store.path):
            return shape.decoded(self._store._blobs.fetch(digests))

    def events(self, rows: Sequence[RawEvent]) -> list[Event]:
        """Read some of the events whole; one that cannot be read says so in its payload."""
        with self._store._lock, translated(self._store.path):
            redacted = partial(_redacted, self._store)
            return shape.events_from_rows(rows, self._store._blobs.fetch, redacted, strict=False)


def raw_pages(store: SQLiteEventStore, after: int, upto: int) -> Iterator[RawPage]:
    """Read the log in the order of writing, page by page, without decoding."""
    query = f"{_SELECT} WHERE e.seq > ? AND e.seq <= ? ORDER BY e.seq LIMIT {PAGE}"
    while True:
        with store._lock, translated(store.path):
            rows = store._db.execute(query, (after, upto)).fetchall()
        if not rows:
            return
        yield RawPage(store, list(map(RawEvent._make, rows)))
        after = rows[-1][0]


def read_segments(
    store: SQLiteEventStore,
    segments: Sequence[Segment],
    lo: int,
    types: Collection[str] | None,
) -> Iterator[Event]:
    """Read the parts of a lineage from a position on."""
    own = "e.run = ? AND e.pos > ? AND e.pos <= ?"
    for segment in segments:
        if segment.hi < lo:
            continue
        after = max(segment.lo, lo) - 1
        while page := _page(store, own, (segment.run, after, segment.hi), "e.pos", types):
            yield from page
            after = page[-1].position or segment.hi


def read_tail(
    store: SQLiteEventStore,
    after: int,
    upto: int | None,
    types: Collection[str] | None,
    strict: bool,
) -> Iterator[Event]:
    """Read the log in the order of writing."""
    after, end = index(after), store.last_seq() if upto is None else index(upto)
    where = "e.seq > ? AND e.seq <= ?"
    while page := _page(store, where, (after, end), "e.seq", types, strict=strict):
        yield from page
        after = page[-1].seq or end


def follow(
    store: SQLiteEventStore, after: int, interval: float, stop: threading.Event
) -> Iterator[Event]:
    """Read the log, and go on with what is appended."""
    while not stop.is_set():
        for event in store.tail(after):
            yield event
            after = event.seq or after
        stop.wait(interval)


def event_at(store: SQLiteEventStore, run: int, pos: int) -> Event | None:
    """Read the event at a position of a run's own part."""
    page = _page(store, "e.run = ? AND e.pos = ?", (run, pos), "e.pos", None)
    return page[0] if page else None


def _page(
    store: SQLiteEventStore,
    where: str,
    parameters: Sequence[int],
    order: str,
    types: Collection[str] | None,
    *,
    strict: bool = True,
) -> list[Event]:
    wanted = [types] if isinstance(types, str) else list(types or ())
    only = f" AND t.name IN ({','.join('?' * len(wanted))})" if types is not None else ""
    query = f"{_SELECT} WHERE {where}{only} ORDER BY {order} LIMIT {PAGE}"
    with store._lock, translated(store.path):
        rows = store._db.execute(query, (*parameters, *wanted)).fetchall()
        redacted = partial(_redacted, store)
        return shape.events_from_rows(rows, store._blobs.fetch, redacted, strict)


def _redacted(store: SQLiteEventStore, run_id: str, position: int) -> dict[str, Any] | None:
    """Return what is read in a body's place, if it was redacted; reasons are read once."""
    for told in redactions(store._db, store._reasons_upto):
        store._reasons[told.run_id, told.position] = told.reason, told.pos
        store._reasons_upto = told.pos
    if (known := store._reasons.get((run_id, position))) is None:
        return None
    reason, pos = known
    return {**said_instead(store._db, pos), "redacted": reason}


def read_blob(store: SQLiteEventStore, digest: str) -> bytes:
    """Read the bytes kept under a digest."""
    try:
        key = bytes.fromhex(digest)
    except ValueError:
        raise UsageError(f"{digest!r} is no digest", fix="give 64 hex digits") from None
    with store._lock, translated(store.path):
        found = store._blobs.fetch([key])
    if key not in found:
        raise StoreError(
            f"blob {digest[:12]} is missing from {store.path}",
            why="it was redacted, or the file is damaged",
            fix="run `sag verify` to see which events it belongs to",
        )
    return found[key]


def read_runs(store: SQLiteEventStore, where: str, *parameters: Any) -> list[Run]:
    """Read runs; what a run is about stands in the first event of its root."""
    query = f"""
        SELECT r.uid, p.uid, r.fork_pos, r.label, r.attempt, r.source_id, r.created_ns, e.body
        FROM runs r LEFT JOIN runs p ON p.run = r.parent
             LEFT JOIN events e ON e.run = r.root AND e.pos = 1 {where}"""  # noqa: S608
    with store._lock, translated(store.path):
        rows = store._db.execute(query, parameters).fetchall()
        blobs = store._blobs.fetch(canonical.marked(row[-1] for row in rows if row[-1]))
        about = {row[0]: _about_redacted(store, row[0]) for row in rows if row[-1] is None}
    return [shape.run_from_row(row, blobs, about.get(row[0])) for row in rows]


def _about_redacted(store: SQLiteEventStore, run_id: str) -> dict[str, Any] | None:
    """Return what is read in the place of a run's redacted description, which its root holds."""
    query = "SELECT uid FROM runs WHERE run = (SELECT root FROM runs WHERE uid = ?)"
    row = store._db.execute(query, (run_id,)).fetchone()
    return None if row is None else _redacted(store, row[0], 1)


def read_runs_named(store: SQLiteEventStore, run_ids: Sequence[str]) -> dict[str, Run]:
    """Read runs by id; unknown ids are left out."""
    found: dict[str, Run] = {}
    for start in range(0, len(run_ids), _AT_ONCE):
        part = run_ids[start : start + _AT_ONCE]
        marks = ",".join("?" * len(part))
        runs = read_runs(store, f"WHERE r.uid IN ({marks})", *part)
        found.update({run.run_id: run for run in runs})
    return found
