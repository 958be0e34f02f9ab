"""What a redaction takes away, and what the log says of it afterwards."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
import zstandard

from sag_research.errors import UsageError
from sag_research.log import _canonical as canonical
from sag_research.log._connection import translated
from sag_research.log._lineage import lineage
from sag_research.model import WORKSPACE_RUN, Event

if TYPE_CHECKING:
    from sag_research.log._store import SQLiteEventStore

__all__ = [
    "Redaction",
    "Redactions",
    "ToRedact",
    "empty_write_ahead_log",
    "load_text",
    "loose_texts",
    "names_in_log",
    "reached",
    "redact",
    "redact_all",
    "redactions",
    "said_instead",
    "tell_redacted",
]

REDACTED: Final = "body.redacted"
_DIGEST: Final = re.compile(rb'"([0-9a-f]{64})"')
_REDACTIONS: Final = """
    SELECT pos, body FROM events
    WHERE run = (SELECT run FROM runs WHERE uid = ?) AND pos > ?
      AND type = (SELECT id FROM names WHERE name = ?) AND body IS NOT NULL
    ORDER BY pos"""


class Redaction(msgspec.Struct, frozen=True):
    """What a redaction did.

    Attributes
    ----------
    event : Event
        The event ``body.redacted`` that it left on the workspace's run.
    removed : int
        Number of texts that only the redacted event referred to: they are gone.
    kept : int
        Number of texts that other events hold too: they stay, there and in the file.
    busy : bool
        Somebody reads the log at this moment, so that the write-ahead log beside it still holds
        what was taken out.
    """

    event: Event
    removed: int
    kept: int
    busy: bool = False


class ToRedact(NamedTuple):
    """An event to empty: where it stands, why, and what is to be read in its place."""

    run_id: str
    position: int
    reason: str = ""
    replacement: Mapping[str, Any] | None = None


class Redactions(msgspec.Struct, frozen=True):
    """What redactions of several events did; as :class:`Redaction`, for all of them."""

    events: tuple[Event, ...]
    removed: int
    kept: int
    busy: bool = False


def redact(
    store: SQLiteEventStore,
    run_id: str,
    position: int,
    reason: str,
    replacement: Mapping[str, Any] | None = None,
) -> Redaction:
    """Empty an event's body, and say so on the workspace's run."""
    done = redact_all(store, [ToRedact(run_id, position, reason, replacement)])
    return Redaction(done.events[0], done.removed, done.kept, done.busy)


def redact_all(
    store: SQLiteEventStore, wanted: Sequence[ToRedact], texts: Mapping[bytes, bytes] | None = None
) -> Redactions:
    """Empty the bodies of several events, all or none, and say so on the workspace's run.

    Parameters
    ----------
    store : SQLiteEventStore
    wanted : sequence of ToRedact
        A replacement is kept in the event ``body.redacted``, and read in the body's place.
    texts : mapping of bytes to bytes, optional
        What replacements refer to by digests, by these.

    Raises
    ------
    RunNotFoundError
    UsageError
        If there is no such event, it was redacted before, or it tells of a redaction; nothing
        is redacted then.
    """
    with store._lock, translated(store.path):
        store._db.execute("PRAGMA secure_delete=ON")
    with store.transaction(), translated(store.path):
        found = [_redactable(store._db, one.run_id, one.position) for one in wanted]
        bodies = {seq: body for _, seq, body in found}
        gone, kept = _parted(store._db, bodies)
        update = "UPDATE events SET body = NULL WHERE seq = ?"
        store._db.executemany(update, [(seq,) for seq in bodies])
        store._blobs.delete(gone)
        store._blobs.keep(texts or {})
        events = [
            tell_redacted(store, writer, one.position, one.reason, one.replacement)
            for (writer, _, _), one in zip(found, wanted, strict=True)
        ]
        # a replacement may need again what the body held beside a secret
        removed = sum(load_text(store._db, digest) is None for digest in gone)
    return Redactions(tuple(events), removed, len(kept), not empty_write_ahead_log(store))


def _redactable(db: sqlite3.Connection, run_id: str, position: int) -> tuple[str, int, bytes]:
    """Find the event at a position: its writer, sequence number and body."""
    segments = lineage(db, run_id, position)
    if position < 1 or not segments or segments[-1].hi != position:
        raise UsageError(f"run {run_id!r} has no position {position}")
    writer, seq, type_, body = db.execute(
        """SELECT r.uid, e.seq, t.name, e.body FROM events e JOIN runs r ON r.run = e.run
           JOIN names t ON t.id = e.type WHERE e.run = ? AND e.pos = ?""",
        (segments[-1].run, position),
    ).fetchone()
    if body is None:
        raise UsageError(f"event {position} of run {run_id!r} has no body any more")
    if type_ == REDACTED:
        raise UsageError("the trace of a redaction cannot be redacted")
    return writer, seq, body


def tell_redacted(
    store: SQLiteEventStore,
    run_id: str,
    position: int,
    reason: str,
    replacement: Mapping[str, Any] | None = None,
) -> Event:
    """Leave the trace of a redaction."""
    payload: dict[str, Any] = {"run": run_id, "position": position, "reason": reason}
    if replacement is not None:
        payload["replacement"] = dict(replacement)
    return store.append(Event(run_id=WORKSPACE_RUN, type=REDACTED, actor="log", payload=payload))


def empty_write_ahead_log(store: SQLiteEventStore) -> bool:
    """Leave no older state of a page in the file beside the log; waits for nobody.

    Returns
    -------
    bool
        False where somebody reads the log, and the file stays as it is. Inside a transaction
        nothing is done; True then.
    """
    with store._lock, translated(store.path):
        if store._depth:
            return True
        store._db.execute("PRAGMA busy_timeout=0")
        (busy, *_) = store._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        store._db.execute(f"PRAGMA busy_timeout={round(store._timeout * 1_000)}")
    return not busy


def names_in_log(store: SQLiteEventStore) -> list[str]:
    """Return all types, actors and frames that a log knows."""
    with store._lock, translated(store.path):
        return [name for (name,) in store._db.execute("SELECT name FROM names ORDER BY id")]


def loose_texts(store: SQLiteEventStore) -> Iterator[bytes]:
    """Give the texts in a log that no event refers to."""
    with store._lock, translated(store.path):
        every = {row[0] for row in store._db.execute("SELECT digest FROM blobs")}
        for found in reached(store._db, _others(store._db, ())) if every else ():
            every -= found
        texts = [load_text(store._db, digest) for digest in sorted(every)]
    yield from (text for text in texts if text)


class _Told(NamedTuple):
    """One event ``body.redacted``: where it stands, and what it says."""

    pos: int
    run_id: str
    position: int
    reason: str


def redactions(db: sqlite3.Connection, after: int = 0) -> Iterator[_Told]:
    """Read what was redacted, off the workspace's events beyond a position."""
    for pos, body in db.execute(_REDACTIONS, (WORKSPACE_RUN, after, REDACTED)):
        told = _read(db, body)
        if told is None:
            continue  # it says nothing that can be read; `verify` finds its digest broken
        run_id, position = told.get("run"), told.get("position")
        if isinstance(run_id, str) and type(position) is int:
            yield _Told(pos, run_id, position, str(told.get("reason", "")))


def _read(db: sqlite3.Connection, body: bytes) -> dict[str, Any] | None:
    try:
        return canonical.decode(body, lambda digest: load_text(db, digest) or b"")
    except (ValueError, msgspec.DecodeError):
        return None


def said_instead(db: sqlite3.Connection, pos: int) -> dict[str, Any]:
    """Return what the redaction at a position of the workspace's run put in a body's place."""
    query = """SELECT body FROM events WHERE run = (SELECT run FROM runs WHERE uid = ?)
               AND pos = ?"""
    row = db.execute(query, (WORKSPACE_RUN, pos)).fetchone()
    told = _read(db, row[0]) if row and row[0] else None
    replacement = told.get("replacement") if told else None
    return replacement if isinstance(replacement, dict) else {}


def _parted(db: sqlite3.Connection, bodies: Mapping[int, bytes]) -> tuple[set[bytes], set[bytes]]:
    """Part the blobs of some events: those they alone refer to, and those others need too.

    An event refers to long texts by marks, and by plain digests to blobs and documents, which
    may refer to others in turn. No index is kept of that, so all bodies are looked through.
    """
    mine: set[bytes] = set()
    for found in reached(db, bodies.values()):
        mine |= found
    mine = {digest for digest in mine if load_text(db, digest) is not None}
    kept: set[bytes] = set()
    if mine:
        for found in reached(db, _others(db, bodies)):
            kept |= found & mine
            if len(kept) == len(mine):
                break
    return mine - kept, kept


def _others(db: sqlite3.Connection, seqs: Collection[int]) -> Iterator[bytes]:
    for seq, body in db.execute("SELECT seq, body FROM events WHERE length(body) > 64"):
        if seq not in seqs:
            yield body


def reached(db: sqlite3.Connection, bodies: Iterable[bytes]) -> Iterator[set[bytes]]:
    """Give the digests that bodies name, and then those that the documents among them name."""
    seen: set[bytes] = set()
    todo: list[bytes] = []

    def look(body: bytes) -> set[bytes]:
        named = {bytes.fromhex(digest.decode()) for digest in _DIGEST.findall(body)}
        documents = named - canonical.marked([body]) - seen
        seen.update(documents)
        todo.extend(documents)
        return named

    yield from map(look, bodies)
    while todo:
        if (document := load_text(db, todo.pop())) is not None and _is_object(document):
            yield look(document)


def _is_object(data: bytes) -> bool:
    if not data.startswith(b"{"):
        return False
    try:
        msgspec.json.decode(data)
    except (ValueError, msgspec.DecodeError):
        return False
    return True


def load_text(db: sqlite3.Connection, digest: bytes) -> bytes | None:
    query = "SELECT enc, size, data FROM blobs WHERE digest = ?"
    row = db.execute(query, (digest,)).fetchone()
    if row is None or row[2] is None:
        return None
    enc, size, data = row
    try:
        return zstandard.ZstdDecompressor().decompress(data, size) if enc else data
    except zstandard.ZstdError:
        return b""  # damaged, but there
