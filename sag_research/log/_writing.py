"""Appending: rows are made, chained to the end of their run, and inserted many at a time."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from msgspec.structs import replace

from sag_research.errors import BadPayloadError, ConflictError, RunExistsError, UsageError
from sag_research.log import _canonical as canonical
from sag_research.log import _rows as shape
from sag_research.log._connection import translated
from sag_research.log._lineage import Tip, tip_of
from sag_research.log._transactions import refuse_if_lost
from sag_research.model import WORKSPACE_RUN, Event, Run

if TYPE_CHECKING:
    from sag_research.log._prepared import PreparedEvent
    from sag_research.log._store import SQLiteEventStore

__all__ = [
    "append_one",
    "append_several",
    "create_run",
    "find_tip",
    "insert_rows",
    "insert_run",
    "name_number",
    "row_of_prepared",
]

_PART: Final = 100
"""Events written by one call: few, for what is made on the way would rouse the garbage collector,
and it would look through all that the caller holds."""
_ROWS: Final = 50
"""Rows inserted by one statement; what a statement costs by itself is shared by so many."""
KNOWN_TIPS: Final = 65_536

Row: TypeAlias = tuple[Any, ...]
"""Values of the common columns, and, where one is not null, those of the rare ones."""
_COMMON: Final = ("run", "pos", "type", "actor", "ts_ns", "body", "body_digest", "digest", "seal")
_RARE: Final = ("cause", "frame", "started", "seconds")
_NONE: Final = (None,) * len(_RARE)


def _insertion(columns: Sequence[str], rows: int) -> str:
    values = f"({', '.join('?' * len(columns))})"
    return f"INSERT INTO events ({', '.join(columns)}) VALUES {', '.join([values] * rows)}"  # noqa: S608


# To bind the nulls of four columns would cost as much as all the rest of an insertion.
_ONE: Final = (_insertion(_COMMON, 1), _insertion(_COMMON + _RARE, 1))
_MANY: Final = (_insertion(_COMMON, _ROWS), _insertion(_COMMON + _RARE, _ROWS))
_INSERT_RUN: Final = "INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"


# ---- runs


def create_run(store: SQLiteEventStore, run: Run) -> Run:
    """Write a run's row and its first event."""
    if run.parent_id is not None:
        raise UsageError("create_run does not make forks", fix="use store.fork(parent, at=…)")
    payload = {name: getattr(run, name) for name in shape.CREATED_FIELDS if getattr(run, name)}
    with store.transaction(), translated(store.path):
        created = insert_run(store, run, None, 0, None)
        store.append(Event(run_id=run.run_id, type="run.created", actor="log", payload=payload))
    return created


def insert_run(
    store: SQLiteEventStore, run: Run, parent: int | None, fork_pos: int, digest: bytes | None
) -> Run:
    """Write a run's row; returns the run with its time of creation."""
    shape.check_run(run)
    created_ns = shape.nanoseconds(run.created_at, "created_at")
    root, depth = None, 0
    if parent is not None:
        above = "SELECT root, depth + 1 FROM runs WHERE run = ?"
        root, depth = store._db.execute(above, (parent,)).fetchone()
    number = store._one("SELECT coalesce(max(run), 0) + 1 FROM runs")
    row = (number, run.run_id, parent, fork_pos, digest, root or number, depth)
    envelope = (run.label, run.attempt, run.source_id, created_ns)
    try:
        store._db.execute(_INSERT_RUN, row + envelope)
    except sqlite3.IntegrityError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_CONSTRAINT_UNIQUE:
            raise
        raise RunExistsError(
            f"run {run.run_id!r} is already in the log", fix="choose another run id"
        ) from None
    return replace(run, created_at=created_ns / shape.SECOND, fork_position=fork_pos)


# ---- events


def append_several(
    store: SQLiteEventStore, events: Iterable[Event], expected: int | None
) -> list[Event]:
    """Append events in one transaction."""
    with store.transaction(), translated(store.path):
        written: list[Event] = []
        given = iter(events)
        while part := list(islice(given, _PART)):
            contents = [shape.content(event) for event in part]
            written += _write(store, part, contents, None if written else expected)
        return written


def append_one(store: SQLiteEventStore, event: Event, expected: int | None) -> Event:
    """Append an event, by a transaction of one statement where that is enough."""
    content = shape.content(event)
    with store._lock:
        if store._depth:  # one statement is whole or absent as it is
            refuse_if_lost(store)
            with translated(store.path):
                return _write(store, [event], [content], expected)[0]
        if not content[1] and (written := _write_at_once(store, event, content, expected)):
            return written
        with store.transaction(), translated(store.path):
            return _write(store, [event], [content], expected)[0]


def _write(
    store: SQLiteEventStore,
    events: Sequence[Event],
    contents: Sequence[shape.Content],
    expected: int | None,
) -> list[Event]:
    """Write events inside a transaction; their sequence numbers follow each other."""
    tips = store._tips
    if len(tips) + len(events) > KNOWN_TIPS:  # not later: these will be needed
        tips.clear()
    try:
        rows: list[Row] = []
        blobs: dict[bytes, bytes] = {}
        for event, content in zip(events, contents, strict=True):
            tip = tips.get(event.run_id) or find_tip(store, event.run_id)
            if expected is not None and not rows and tip.pos + 1 != expected:
                raise _conflict(store, event.run_id, expected, tip.pos)
            row = _row(store, event, content, tip)
            tips[event.run_id] = Tip(row[0], row[1], row[7], row[8])
            rows.append(row)
            if content[1]:
                blobs |= content[1]
        if blobs:
            store._blobs.keep(blobs)
        last = insert_rows(store, rows)
    except BaseException:
        tips.clear()
        raise
    return shape.written(events, rows, last - len(rows) + 1)


def insert_rows(store: SQLiteEventStore, rows: Sequence[Row]) -> int:
    """Insert rows; returns the last one's sequence number."""
    width = max(map(len, rows))
    rare = width > len(_COMMON)
    if rare:
        rows = [row if len(row) == width else row + _NONE for row in rows]
    whole = len(rows) - len(rows) % _ROWS
    for start in range(0, whole, _ROWS):
        values = tuple(chain.from_iterable(rows[start : start + _ROWS]))
        store._db.execute(_MANY[rare], values)
    if whole < len(rows):
        store._db.executemany(_ONE[rare], rows[whole:])
    return int(store._one("SELECT last_insert_rowid()"))


def _write_at_once(
    store: SQLiteEventStore, event: Event, content: shape.Content, expected: int | None
) -> Event | None:
    """Write an event as a transaction of one statement, where that is enough.

    It is not if the run's end or a name is unknown here, or another writer was faster: the
    position is taken then, and nothing is written.
    """
    tip = store._tips.get(event.run_id)
    if tip is None or (expected is not None and expected != tip.pos + 1):
        return None
    cause = event.cause
    if cause is not None and not (type(cause) is int and 1 <= cause <= tip.pos):
        return None
    for name in (event.type, event.actor, event.frame):
        if name is not None and not (type(name) is str and name in store._names):
            return None
    try:
        row = _row(store, event, content, tip)
        cursor = store._db.execute(_ONE[len(row) > len(_COMMON)], row)
    except sqlite3.IntegrityError:
        return None
    except sqlite3.Error as error:
        with translated(store.path):
            raise error
    store._tips[event.run_id] = Tip(row[0], row[1], row[7], row[8])
    return shape.written((event,), (row,), cursor.lastrowid or 0)[0]


def _row(store: SQLiteEventStore, event: Event, content: shape.Content, tip: Tip) -> Row:
    """Make an event's row, chained to the run's end."""
    pos, cause, frame = tip.pos + 1, event.cause, event.frame
    if cause is not None and not (type(cause) is int and 1 <= cause < pos):
        raise BadPayloadError("cause", f"{cause!r} is no position before {pos}")
    name, actor, known = event.type, event.actor, store._names
    type_id = (known.get(name) if type(name) is str else None) or name_number(store, name, "type")
    actor_id = (known.get(actor) if type(actor) is str else None) or name_number(
        store, actor, "actor"
    )
    frame_id = None if frame is None else name_number(store, frame, "frame")
    body, _, ts_ns, started, seconds = content
    body_digest = canonical.body_digest(body)
    digest = canonical.chain(tip.digest, name, actor, cause, body_digest)
    seal = canonical.seal(tip.seal, digest, (ts_ns, started, seconds, frame))
    row = (tip.run, pos, type_id, actor_id, ts_ns, body, body_digest, digest, seal)
    if cause is frame_id is started is seconds is None:
        return row
    return (*row, cause, frame_id, started, seconds)


def row_of_prepared(
    store: SQLiteEventStore, tip: Tip, event: PreparedEvent, cause: int | None
) -> Row:
    """Make the row of an event whose body was encoded and digested before."""
    known, body_digest, ts_ns = store._names, event.digest, time.time_ns()
    type_id = known.get(event.type) or name_number(store, event.type, "type")
    actor_id = known.get(event.actor) or name_number(store, event.actor, "actor")
    digest = canonical.chain(tip.digest, event.type, event.actor, cause, body_digest)
    seal = canonical.seal(tip.seal, digest, (ts_ns, event.started, event.seconds, None))
    row = (tip.run, tip.pos + 1, type_id, actor_id, ts_ns, event.body, body_digest, digest, seal)
    if cause is event.started is event.seconds is None:
        return row
    return (*row, cause, None, event.started, event.seconds)


def _conflict(
    store: SQLiteEventStore, run_id: str, expected: int, end: int
) -> ConflictError | UsageError:
    if not 1 <= expected <= end:
        return UsageError(
            f"no event of run {run_id!r} can get position {expected}", why=f"it ends at {end}"
        )
    return ConflictError(run_id, expected, next(store.read(run_id, expected, expected)))


# ---- what a row refers to


def find_tip(store: SQLiteEventStore, run_id: str) -> Tip:
    """Find the end of a run, inside a transaction: nobody else writes meanwhile."""
    if (tip := store._tips.get(run_id)) is not None:
        return tip
    tip = tip_of(store._db, run_id)
    if tip is None:
        if run_id != WORKSPACE_RUN:
            raise shape.not_found(run_id)
        store.create_run(Run(run_id=WORKSPACE_RUN, kind="workspace"))
        return store._tips[run_id]
    store._tips[run_id] = tip
    return tip


def name_number(store: SQLiteEventStore, name: str, field: str = "name") -> int:
    """Return the number of a type, an actor or a frame; a new one gets the next."""
    number = store._names.get(name) if type(name) is str else None
    if number is None:
        if not shape.is_clean(name) or not name:
            raise BadPayloadError(field, f"{name!r} is no clean text")
        store._db.execute("INSERT OR IGNORE INTO names (name) VALUES (?)", (name,))
        number = int(store._one("SELECT id FROM names WHERE name = ?", name))
        store._names[name] = number
    return number
