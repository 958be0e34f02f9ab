"""Making anew what a damaged log can give: its indices, its free list, its index of calls.

Events are not among it: what is damaged of those stands nowhere else. SQLite's own means do not
help, for each of them reads the damaged index; so the rows are copied by their tables alone.
"""

from __future__ import annotations

import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sag_research.errors import BusyError, StoreError
from sag_research.log._calls import rebuild_calls
from sag_research.log._connection import create_schema, translated
from sag_research.log._verify import file_fault, verify_log

if TYPE_CHECKING:
    from sag_research.log._store import SQLiteEventStore

__all__ = ["mend"]

_TABLES: Final = ("meta", "names", "runs", "events", "blobs")


def mend(store: SQLiteEventStore) -> bool:
    """Make anew what a damaged log can give: indices, free list, and the index of calls.

    Returns
    -------
    bool
        Whether something was damaged, and is no longer.

    Raises
    ------
    StoreError
        If events are damaged: they stand nowhere else. The file is then as it was.
    BusyError
        If somebody wrote meanwhile.
    """
    with store._lock, translated(store.path):
        if not file_fault(store._db):
            return False
        with tempfile.TemporaryDirectory(prefix="sag-") as folder:
            copy = sqlite3.connect(Path(folder, "log.sqlite"), isolation_level=None)
            with closing(copy):
                _copy_rows(store, copy)
                copy.backup(store._db, pages=1, progress=_unless_written(store, copy))
        store._names.clear()
        store._tips.clear()
        store._blobs.forget()
        rebuild_calls(store)
    return True


def _copy_rows(store: SQLiteEventStore, copy: sqlite3.Connection) -> None:
    """Copy all rows but the calls' into a new file, and check that they are all there are."""
    create_schema(copy)
    copy.execute("DELETE FROM meta")
    copy.execute("BEGIN")
    try:
        for table in _TABLES:
            rows = store._db.execute(f"SELECT * FROM {table} NOT INDEXED ORDER BY rowid")  # noqa: S608
            marks = ", ".join("?" * len(rows.description))
            copy.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)  # noqa: S608
        written = store._one("SELECT coalesce(max(seq), 0) FROM sqlite_sequence")
    except sqlite3.DatabaseError as error:
        raise _lost(store) from error
    copy.execute("COMMIT")
    # the log gives its numbers without gaps, and never takes a row away
    if copy.execute("SELECT count(*) FROM events").fetchone()[0] != written:
        raise _lost(store)
    if not verify_log(copy, threading.RLock()).ok:
        raise _lost(store)


def _unless_written(
    store: SQLiteEventStore, copy: sqlite3.Connection
) -> Callable[[int, int, int], None]:
    """Make the check that nobody has appended since the rows were read.

    From its first page on a backup keeps others from writing, so one look then is enough.
    """
    query = "SELECT coalesce(max(seq), 0) FROM events"
    last, deadline = copy.execute(query).fetchone(), time.monotonic() + store._timeout
    looked: list[bool] = []

    def look(status: int, remaining: int, total: int) -> None:
        if status != sqlite3.SQLITE_OK and time.monotonic() > deadline:
            raise BusyError(f"{store.path} is locked", fix="close the other writer and try again")
        if looked or status != sqlite3.SQLITE_OK:
            return
        looked.append(True)
        source = f"{Path(store.path).absolute().as_uri()}?mode=ro"
        with closing(sqlite3.connect(source, uri=True)) as other:
            if other.execute(query).fetchone() != last:
                raise BusyError(f"{store.path} was written meanwhile", fix="try again")

    return look


def _lost(store: SQLiteEventStore) -> StoreError:
    return StoreError(
        f"{store.path} is damaged",
        why="and not only in what can be made anew",
        fix="`sag verify` names the runs; restore the file from a copy and run `sag rebuild`, or"
        " take over the other runs by `sag merge -w NEW OLD`",
    )
