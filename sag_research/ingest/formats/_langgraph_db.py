"""Tables of a LangGraph checkpoint file, read from bytes of a database that nobody vouches for."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any, Final, NamedTuple

from sag_research.errors import FormatError

__all__ = ["MAGIC", "Checkpoint", "Write", "has_checkpoints", "tables"]

MAGIC: Final = b"SQLite format 3\x00"
_JOURNAL: Final = slice(18, 20)
"""Versions for writing and reading: 2 asks for a write-ahead log, which bytes do not have."""
_HEADER: Final = 100
_LONGEST: Final = 64 * 2**20
"""Bytes of one value."""
_ROW: Final = 4
"""Bytes that a row takes at least."""
_TABLE: Final = re.compile(
    rb'CREATE\s+TABLE\s+(?:IF\s+NOT\s+EXISTS\s+)?["`\[]?checkpoints["`\]]?\s*\(([^;]{0,4000})',
    re.IGNORECASE,
)
_COLUMNS: Final = (b"thread_id", b"checkpoint_id", b"parent_checkpoint_id", b"metadata")
_DAMAGE: Final = (sqlite3.Error, UnicodeDecodeError, OverflowError, MemoryError)
"""What SQLite raises over damage: its messages may quote bytes that are no text."""
_PLAIN: Final = re.compile(r"\s*CREATE\s+TABLE\b", re.IGNORECASE)


class Checkpoint(NamedTuple):
    """A row of the table ``checkpoints``, as it stands there."""

    thread_id: Any
    checkpoint_ns: Any
    checkpoint_id: Any
    parent_checkpoint_id: Any
    type: Any
    checkpoint: Any
    metadata: Any


class Write(NamedTuple):
    """A row of the table ``writes``: what a task wrote on top of a checkpoint."""

    thread_id: Any
    checkpoint_ns: Any
    checkpoint_id: Any
    task_id: Any
    task_path: Any
    idx: Any
    channel: Any
    type: Any
    value: Any


def has_checkpoints(data: bytes) -> bool:
    """Tell whether the pages of a database, as far as they are seen, define such a table."""
    if not data.startswith(MAGIC):
        return False
    found = _TABLE.search(data)
    return found is not None and all(one in found[1] for one in _COLUMNS)


def tables(data: bytes) -> tuple[list[Checkpoint], list[Write], list[str]]:
    """Read both tables.

    Parameters
    ----------
    data : bytes
        The file. It is read in memory: no file is opened, and none is written.

    Returns
    -------
    checkpoints : list of Checkpoint
    writes : list of Write
    faults : list of str
        Why some rows could not be read.

    Raises
    ------
    FormatError
        If it is no such database, or too damaged to be read at all.
    """
    if not data.startswith(MAGIC) or len(data) < _HEADER:
        raise FormatError("no SQLite database")
    faults: list[str] = []
    try:
        with closing(_opened(data)) as db:
            rows = _rows(db, "checkpoints", Checkpoint._fields, len(data), faults)
            checkpoints = [Checkpoint(*row) for row in rows]
            rows = _rows(db, "writes", Write._fields, len(data), faults, needed=False)
            return checkpoints, [Write(*row) for row in rows], faults
    except _DAMAGE as error:
        raise FormatError("a damaged SQLite database", why=str(error)) from None


def _opened(data: bytes) -> sqlite3.Connection:
    db = sqlite3.connect(":memory:")
    db.deserialize(data[: _JOURNAL.start] + b"\x01\x01" + data[_JOURNAL.stop :])
    db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST)
    db.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    db.setlimit(sqlite3.SQLITE_LIMIT_COLUMN, 100)
    for rule in ("trusted_schema = OFF", "query_only = ON", "cell_size_check = ON"):
        db.execute(f"PRAGMA {rule}")
    db.text_factory = lambda text: text.decode("utf-8", "surrogateescape")
    db.set_authorizer(_only_reads)
    return db


def _only_reads(action: int, *_: str | None) -> int:
    """Allow to read columns, and nothing that a schema could ask for besides: no functions."""
    reads = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ)
    return sqlite3.SQLITE_OK if action in reads else sqlite3.SQLITE_DENY


def _rows(
    db: sqlite3.Connection,
    table: str,
    names: tuple[str, ...],
    size: int,
    faults: list[str],
    needed: bool = True,
) -> Iterator[tuple[Any, ...]]:
    if not _is_table(db, table):
        if needed:
            raise FormatError(f"no table {table} in it")
        return
    nothing = db.execute(f"SELECT * FROM {table} LIMIT 0")  # noqa: S608 (names of ours)
    there = {column[0] for column in nothing.description}
    chosen = ", ".join(f'"{name}"' if name in there else "NULL" for name in names)
    query = f"SELECT {chosen} FROM {table} WHERE rowid = ?"  # noqa: S608 (names of ours)
    taken = 0
    for number in _numbers(db, table, size, faults):
        try:
            row = db.execute(query, (number,)).fetchone()
        except _DAMAGE as error:
            faults.append(f"row {number} of {table}: {error}")
            continue
        taken += sum(len(value) for value in row or () if isinstance(value, str | bytes))
        if taken > size:
            raise FormatError("a damaged SQLite database", why="its rows are larger than the file")
        if row:
            yield row


def _is_table(db: sqlite3.Connection, name: str) -> bool:
    """Tell whether a name is that of a table in the file: no view, and no module's table."""
    query = "SELECT type, sql FROM sqlite_master WHERE name = ?"
    return any(
        kind == "table" and isinstance(sql, str) and _PLAIN.match(sql) is not None
        for kind, sql in db.execute(query, (name,))
    )


def _numbers(db: sqlite3.Connection, table: str, size: int, faults: list[str]) -> Iterator[int]:
    """Yield the row numbers, which grow; pages that lead in a circle end that."""
    last, count = None, 0
    try:
        for (number,) in db.execute(f"SELECT rowid FROM {table} NOT INDEXED"):  # noqa: S608 (names of ours)
            count += 1
            if (last is not None and number <= last) or count > size // _ROW:
                faults.append(f"{table}: its pages lead in a circle")
                return
            last = number
            yield number
    except _DAMAGE as error:
        faults.append(f"{table}: not read to its end: {error}")
