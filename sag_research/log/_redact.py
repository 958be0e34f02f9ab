"""What a redaction takes away, and what the log says of it afterwards."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
import zstandard

from sag_research.errors import UsageError
from sag_research.log import _canonical as canonical
from sag_research.log._connection import translated
from sag_research.log._lineage import lineage
from sag_research.model import WORKSPACE_RUN, Event

if TYPE_CHECKING:
    from sag_research.log._store import SQLiteEventStore

__all__ = ["Redaction", "load_text", "reached", "redact", "redactions", "tell_redacted"]

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
    """

    event: Event
    removed: int
    kept: int


def redact(store: SQLiteEventStore, run_id: str, position: int, reason: str) -> Redaction:
    """Empty an event's body, and say so on the workspace's run."""
    with store._lock, translated(store.path):
        store._db.execute("PRAGMA secure_delete=ON")
    with store.transaction(), translated(store.path):
        writer, seq, body = _redactable(store._db, run_id, position)
        gone, kept = _parted(store._db, seq, body)
        store._db.execute("UPDATE events SET body = NULL WHERE seq = ?", (seq,))
        store._blobs.delete(gone)
        event = tell_redacted(store, writer, position, reason)
    _empty_write_ahead_log(store)
    return Redaction(event, len(gone), len(kept))


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


def tell_redacted(store: SQLiteEventStore, run_id: str, position: int, reason: str) -> Event:
    """Leave the trace of a redaction."""
    payload = {"run": run_id, "position": position, "reason": reason}
    return store.append(Event(run_id=WORKSPACE_RUN, type=REDACTED, actor="log", payload=payload))


def _empty_write_ahead_log(store: SQLiteEventStore) -> None:
    """Leave no older state of a page in the file beside the log; waits for nobody."""
    with store._lock, translated(store.path):
        if not store._depth:
            store._db.execute("PRAGMA busy_timeout=0")
            store._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            store._db.execute(f"PRAGMA busy_timeout={round(store._timeout * 1_000)}")


class _Told(NamedTuple):
    """One event ``body.redacted``: where it stands, and what it says."""

    pos: int
    run_id: str
    position: int
    reason: str


def redactions(db: sqlite3.Connection, after: int = 0) -> Iterator[_Told]:
    """Read what was redacted, off the workspace's events beyond a position."""
    for pos, body in db.execute(_REDACTIONS, (WORKSPACE_RUN, after, REDACTED)):
        try:
            told = canonical.decode(body, lambda digest: load_text(db, digest) or b"")
        except (ValueError, msgspec.DecodeError):
            continue  # it says nothing that can be read; `verify` finds its digest broken
        run_id, position = told.get("run"), told.get("position")
        if isinstance(run_id, str) and type(position) is int:
            yield _Told(pos, run_id, position, str(told.get("reason", "")))


def _parted(db: sqlite3.Connection, seq: int, body: bytes) -> tuple[set[bytes], set[bytes]]:
    """Part the blobs of the event ``seq``: those it alone refers to, and those others need too.

    An event refers to long texts by marks, and by plain digests to blobs and documents, which
    may refer to others in turn. No index is kept of that, so all bodies are looked through.
    """
    mine: set[bytes] = set()
    for found in reached(db, [body]):
        mine |= found
    mine = {digest for digest in mine if load_text(db, digest) is not None}
    kept: set[bytes] = set()
    if mine:
        others = "SELECT body FROM events WHERE seq <> ? AND length(body) > 64"
        for found in reached(db, (row[0] for row in db.execute(others, (seq,)))):
            kept |= found & mine
            if len(kept) == len(mine):
                break
    return mine - kept, kept


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
