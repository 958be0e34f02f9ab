"""The index of recorded calls, and documents that many events share.

An answer is found by the digest of what was asked (the *key*) and by how often that was asked
before (the *occurrence*). The index holds only what the events say, so it can be rebuilt.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

import msgspec

from sag_research.errors import StoreError, UsageError
from sag_research.log import _canonical as canonical
from sag_research.log._connection import translated
from sag_research.log._lineage import run_number
from sag_research.log._reading import event_at
from sag_research.log._store import SQLiteEventStore
from sag_research.model import Event

__all__ = [
    "CALL_TYPES",
    "CallScope",
    "canonical_digest",
    "count_calls",
    "document_digest",
    "find_call",
    "has_call",
    "has_document",
    "put_document",
    "read_document",
    "rebuild_calls",
    "record_call",
]

CallScope: TypeAlias = Literal["lineage", "family", "store"]
"""Whose answers may be used: the run's and its ancestors', those of all runs with the same
root, or those of any run."""

_ANSWERED: Final = 0
CALL_TYPES: Final = {
    "llm.responded": _ANSWERED,
    "llm.failed": 1,
    "tool.responded": _ANSWERED,
    "tool.failed": 1,
    "effect.recorded": _ANSWERED,
    "call.reused": 2,
}
"""Types of the events that answer a call, with their status in the index: 0 answered, 1 failed,
2 a reference to an answer that stands elsewhere."""

_INSERT: Final = """
    INSERT OR IGNORE INTO calls (key, occ, run, pos, root, status)
    SELECT ?, ?, run, ?, root, ? FROM runs WHERE uid = ?"""
# Of an ancestor counts what stands before the smallest fork position on the way up to it.
_IN_LINEAGE: Final = """
    WITH RECURSIVE up (run, parent, fork_pos, hi) AS (
        SELECT run, parent, fork_pos, 9223372036854775807 FROM runs WHERE run = ?
        UNION ALL
        SELECT r.run, r.parent, r.fork_pos, min(up.hi, up.fork_pos)
        FROM up JOIN runs r ON r.run = up.parent
    )
    SELECT c.run, max(c.pos) FROM up CROSS JOIN calls c
    WHERE c.key = ? AND c.occ = ? AND c.run = up.run AND c.pos <= up.hi"""
# A run is never older than its root, which spares the family's look-up the runs before it.
_IN_FAMILY: Final = """
    SELECT run, pos FROM calls
    WHERE key = ? AND occ = ? AND run >= ? AND root = ? AND status = 0
    ORDER BY run, pos LIMIT 1"""
_IN_STORE: Final = """
    SELECT run, pos FROM calls
    WHERE key = ? AND occ = ? AND status = 0 ORDER BY run, pos LIMIT 1"""
_INT64_END: Final = 2**63


def record_call(store: SQLiteEventStore, event: Event) -> Event:
    """Append an event that answers a call, and enter it in the index, both or neither.

    Parameters
    ----------
    event : Event
        Of a type in :data:`CALL_TYPES`; its payload holds ``key`` (64 hex digits) and
        ``occurrence`` (0-based).

    Returns
    -------
    Event
        As :meth:`SQLiteEventStore.append` returns it.

    Raises
    ------
    UsageError
        If the event does not say which call it answers.
    """
    entry = _entry(event.type, event.payload)
    if entry is None:
        raise UsageError(
            f"an event {event.type!r} with this payload answers no call",
            fix="give it a type of CALL_TYPES, a key of 64 hex digits and an occurrence",
        )
    with store.transaction(), translated(store.path):
        written = store.append(event)
        _insert(store, entry, written)
    return written


def find_call(
    store: SQLiteEventStore, key: str, occurrence: int, run_id: str, scope: CallScope = "lineage"
) -> Event | None:
    """Find the recorded answer to the ``occurrence``-th time that ``key`` was asked.

    The run's own lineage comes first, and there the newest answer; a fork sees its parent's
    answers up to the fork position only. In a wider scope the oldest answer is taken, and
    recorded failures are left out.

    Returns
    -------
    Event or None
        The event that holds the answer (a ``call.reused`` is followed to it); ``None`` where
        there is none, or it was redacted.

    Raises
    ------
    RunNotFoundError, StoreError
    """
    digest = bytes.fromhex(key)
    with store._lock, translated(store.path):
        run = run_number(store._db, run_id)
        place = _in_lineage(store, digest, occurrence, run)
        if place is None and scope != "lineage":
            place = _elsewhere(store, digest, occurrence, run, scope)
        found = None if place is None else event_at(store, *place)
        if found is not None and found.type == "call.reused":
            found = _referred(store, found)
    return found if found is not None and found.payload.get("key") == key else None


def has_call(store: SQLiteEventStore, key: str, occurrence: int, run_id: str) -> bool:
    """Tell whether the ``occurrence``-th ask of a key has an entry in a run's lineage."""
    with store._lock, translated(store.path):
        run = run_number(store._db, run_id)
        return _in_lineage(store, bytes.fromhex(key), occurrence, run) is not None


def count_calls(store: SQLiteEventStore, key: str, run_id: str) -> int:
    """Count how often a key was asked in a run's lineage.

    Occurrences have no gaps, so the count is found by doubling and halving, in a number of
    look-ups that grows with its logarithm.
    """
    digest = bytes.fromhex(key)
    with store._lock, translated(store.path):
        run = run_number(store._db, run_id)
        low, high = 0, 1
        while _in_lineage(store, digest, high - 1, run) is not None:
            low, high = high, high * 2
        while high - low > 1:
            middle = (low + high) // 2
            known = _in_lineage(store, digest, middle - 1, run) is not None
            low, high = (middle, high) if known else (low, middle)
    return low


def rebuild_calls(store: SQLiteEventStore) -> int:
    """Make the index again from the events; returns the number of its entries."""
    with store.transaction(), translated(store.path):
        store._db.execute("DELETE FROM calls")
        for event in store.tail(types=tuple(CALL_TYPES)):
            if entry := _entry(event.type, event.payload):
                _insert(store, entry, event)
        return int(store._one("SELECT count(*) FROM calls"))


def _entry(type_: str, payload: Mapping[str, Any]) -> tuple[bytes, int, int] | None:
    """Read key, occurrence and status off an event; ``None`` where it answers no call."""
    status, key, occurrence = CALL_TYPES.get(type_), payload.get("key"), payload.get("occurrence")
    if status is None or not isinstance(key, str) or type(occurrence) is not int:
        return None
    if payload.get("unanswered") or not 0 <= occurrence < _INT64_END:
        return None
    try:
        digest = bytes.fromhex(key)
    except ValueError:
        return None
    return (digest, occurrence, status) if len(digest) == 32 else None


def _insert(store: SQLiteEventStore, entry: tuple[bytes, int, int], event: Event) -> None:
    key, occurrence, status = entry
    store._db.execute(_INSERT, (key, occurrence, event.position, status, event.run_id))


def _in_lineage(
    store: SQLiteEventStore, key: bytes, occurrence: int, run: int
) -> tuple[int, int] | None:
    """Find the newest entry of a lineage, whose positions grow from ancestor to child."""
    found = store._db.execute(_IN_LINEAGE, (run, key, occurrence)).fetchone()
    return None if found[0] is None else (int(found[0]), int(found[1]))


def _elsewhere(
    store: SQLiteEventStore, key: bytes, occurrence: int, run: int, scope: CallScope
) -> tuple[int, int] | None:
    if scope == "store":
        row = store._db.execute(_IN_STORE, (key, occurrence)).fetchone()
    elif scope == "family":
        root = int(store._one("SELECT root FROM runs WHERE run = ?", run))
        row = store._db.execute(_IN_FAMILY, (key, occurrence, root, root)).fetchone()
    else:
        raise UsageError(f"scope {scope!r} is not offered", fix="use lineage, family or store")
    return None if row is None else (int(row[0]), int(row[1]))


def _referred(store: SQLiteEventStore, event: Event) -> Event | None:
    """Follow a ``call.reused`` to the answer it names; ``None`` where that is not in this log."""
    uid, pos = event.payload.get("run"), event.payload.get("position")
    if not isinstance(uid, str) or type(pos) is not int:
        return None
    row = store._db.execute("SELECT run FROM runs WHERE uid = ?", (uid,)).fetchone()
    return None if row is None else event_at(store, row[0], pos)


# ---- documents: values that many events refer to by digest


def canonical_digest(payload: Mapping[str, Any]) -> str:
    """Return the digest of a value's canonical form, as 64 hex digits.

    Raises
    ------
    BadPayloadError
        If the value has no canonical form.

    Examples
    --------
    >>> canonical_digest({"b": 1, "a": 2}) == canonical_digest({"a": 2, "b": 1})
    True
    """
    return canonical.body_digest(canonical.encode(payload)[0]).hex()


def document_digest(payload: Mapping[str, Any]) -> str:
    """Return the digest under which :func:`put_document` keeps a value."""
    return canonical.blob_digest(canonical.encode(payload)[0]).hex()


def put_document(store: SQLiteEventStore, payload: Mapping[str, Any]) -> str:
    """Keep a JSON object beside the events, its long texts shared with theirs.

    Returns
    -------
    str
        The digest to refer to it by.
    """
    body, blobs = canonical.encode(payload)
    digest = canonical.blob_digest(body)
    with store.transaction(), translated(store.path):
        store._blobs.keep(blobs | {digest: body})
    return digest.hex()


def has_document(store: SQLiteEventStore, digest: str) -> bool:
    """Tell whether a document is in the log."""
    with store._lock, translated(store.path):
        query = "SELECT 1 FROM blobs WHERE digest = ?"
        return store._db.execute(query, (bytes.fromhex(digest),)).fetchone() is not None


def read_document(store: SQLiteEventStore, digest: str) -> dict[str, Any]:
    """Read what :func:`put_document` kept.

    Raises
    ------
    StoreError
        If the document or a text of it is missing or damaged.
    """
    body = store.blob(digest)
    fault = "it does not fit its digest"
    if canonical.blob_digest(body).hex() == digest:
        try:
            return canonical.decode(body, lambda address: store.blob(address.hex()))
        except (ValueError, msgspec.DecodeError) as error:
            fault = str(error)
    raise StoreError(f"document {digest[:12]} cannot be read", why=fault, fix="run `sag verify`")
