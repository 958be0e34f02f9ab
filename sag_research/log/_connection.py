"""Opening the log file: settings, schema, and SQLite's errors in this package's words."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
import time
import uuid
from collections.abc import Mapping
from contextlib import closing
from importlib.resources import files
from pathlib import Path
from types import TracebackType
from typing import Final

from sag_research.errors import BusyError, SchemaError, StoreError, UsageError
from sag_research.log._holders import holder_of

__all__ = ["SCHEMA_VERSION", "connect", "create_schema", "read_log_id", "translated"]

APPLICATION_ID: Final = 0x5341_4731  # "SAG1"
SCHEMA_VERSION: Final = 1
MIGRATIONS: Final[dict[int, str]] = {}
"""SQL that leads from a version of the schema to the next; statements end with ``;`` and a line
break. Version 1 is the first, so there is none yet."""


def connect(
    path: str,
    *,
    synchronous: str = "NORMAL",
    timeout: float = 30.0,
    read_only: bool = False,
    migrations: Mapping[int, str] | None = None,
) -> sqlite3.Connection:
    """Open a log, creating it where it does not exist.

    Parameters
    ----------
    path : str
        File, or ``":memory:"``.
    synchronous : {"NORMAL", "FULL"}
        With NORMAL a crash of the process loses nothing and a power cut may lose the last
        commits; with FULL neither does.
    timeout : float
        Seconds to wait for another writer.
    read_only : bool
        Open without the right to write; the file must exist.
    migrations : mapping of int to str, optional
        SQL that leads from a version of the schema to the next; default: :data:`MIGRATIONS`.

    Raises
    ------
    StoreError
        If the file cannot be opened; :class:`SchemaError` if it is no log or a newer one.
    """
    if synchronous not in ("NORMAL", "FULL"):
        raise UsageError(f"synchronous={synchronous!r} is not offered", fix="use NORMAL or FULL")
    with translated(path):
        connection = _open(path, timeout, read_only)
        try:
            steps = MIGRATIONS if migrations is None else migrations
            _check_or_create(connection, path, timeout, read_only, steps)
            connection.execute(f"PRAGMA synchronous={synchronous}")
        except BaseException:
            connection.close()
            raise
    return connection


def read_log_id(connection: sqlite3.Connection, path: str) -> str:
    """Return what tells this log from all others: fixed when the file was made."""
    with translated(path):
        row = connection.execute("SELECT value FROM meta WHERE key = 'log_id'").fetchone()
    if row is None:
        raise SchemaError(f"{path} has lost its id", fix="restore the file from a copy")
    return str(row[0])


def _open(path: str, timeout: float, read_only: bool) -> sqlite3.Connection:
    if path == ":memory:":
        return _connect(path, timeout)
    file, mode = Path(path).absolute(), "ro" if read_only else "rwc"
    if read_only and not os.access(file.parent, os.W_OK):
        tail, shared = (file.with_name(file.name + end) for end in ("-wal", "-shm"))
        if not tail.exists() or tail.stat().st_size == 0:
            mode = "ro&immutable=1"  # else SQLite wants to lay a file beside the log
        elif not shared.exists():
            return _open_copy(file, tail, timeout)
    return _connect(f"{file.as_uri()}?mode={mode}", timeout)


def _connect(target: str, timeout: float) -> sqlite3.Connection:
    connection = sqlite3.connect(
        target, timeout=timeout, isolation_level=None, check_same_thread=False, uri=True
    )
    connection.execute("PRAGMA foreign_keys=ON")
    return connection


def _open_copy(file: Path, tail: Path, timeout: float) -> sqlite3.Connection:
    """Read a log whose writer died, and where nobody can write: its last events are beside it.

    SQLite can only read those where it may write. The copy is gone from its folder at once, and
    from the disk when the connection is closed.
    """
    with tempfile.TemporaryDirectory(prefix="sag-", ignore_cleanup_errors=True) as folder:
        copy = Path(folder, file.name)
        for part in (file, tail):
            shutil.copyfile(part, copy.with_name(part.name))
        with closing(sqlite3.connect(copy, isolation_level=None)) as whole:
            whole.execute("PRAGMA journal_mode=DELETE")
        connection = _connect(f"{copy.as_uri()}?mode=ro&immutable=1", timeout)
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()  # opens the file
    return connection


def _check_or_create(
    connection: sqlite3.Connection,
    path: str,
    timeout: float,
    read_only: bool,
    steps: Mapping[int, str],
) -> None:
    version = _version(connection, path)
    target = max(SCHEMA_VERSION, max(steps, default=0) + 1)
    if version == 0 and read_only:
        raise SchemaError(f"{path} holds no log", fix="open it without read_only to create one")
    if version == 0:
        _write_ahead(connection, timeout)
        connection.execute("BEGIN IMMEDIATE")
        if _version(connection, path) == 0:  # another process may have been first
            create_schema(connection)
        connection.execute("COMMIT")
        version = _version(connection, path)
    if version < target:
        if read_only:
            raise SchemaError(
                f"{path} has the older schema version {version}",
                why="reading alone does not change a file",
                fix="open it once without read_only; a backup is kept beside it",
            )
        _migrate(connection, path, target, steps)
        version = _version(connection, path)
    if version > target:
        raise SchemaError(
            f"{path} has schema version {version}",
            why=f"this version of sag_research knows versions up to {target}",
            fix="upgrade sag_research",
        )


def _write_ahead(connection: sqlite3.Connection, timeout: float) -> None:
    """Switch a new file to WAL; SQLite itself does not wait for others who do the same."""
    deadline = time.monotonic() + timeout
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.005)
        else:
            return


def _version(connection: sqlite3.Connection, path: str) -> int:
    # The tables first: who sees them also sees the numbers written in the same transaction.
    tables = int(connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])
    application = int(connection.execute("PRAGMA application_id").fetchone()[0])
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if tables and application != APPLICATION_ID:
        raise SchemaError(
            f"{path} is another program's database", fix="give the path of a log or of a new file"
        )
    return version


def create_schema(connection: sqlite3.Connection) -> None:
    """Make the tables of an empty log, and give it an id."""
    schema = files("sag_research.log").joinpath("schema.sql").read_text(encoding="utf-8")
    _execute_all(connection, schema)
    connection.execute("INSERT INTO meta VALUES ('log_id', ?)", (uuid.uuid4().hex,))
    connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version={SCHEMA_VERSION}")


def _execute_all(connection: sqlite3.Connection, script: str) -> None:
    """Execute statements one by one: ``executescript`` would commit first."""
    for statement in script.split(";\n"):
        if statement.strip():
            connection.execute(statement)


def _migrate(
    connection: sqlite3.Connection, path: str, target: int, steps: Mapping[int, str]
) -> None:
    """Bring an older file up to date, all steps or none, with a backup beside it."""
    connection.execute("PRAGMA foreign_keys=OFF")  # a step may have to rebuild a table
    connection.execute("BEGIN IMMEDIATE")
    try:
        version = _version(connection, path)  # another process may have been first
        if version < target:
            _back_up(path, version)
        for step in range(version, target):
            _execute_all(connection, steps[step])
            connection.execute(f"PRAGMA user_version={step + 1}")
        if connection.execute("PRAGMA foreign_key_check").fetchone() is not None:
            raise StoreError(
                f"{path} could not be brought to schema version {target}",
                why="rows would refer to rows that are not there",
                fix="the file is as it was; run `sag verify` with the version that wrote it",
            )
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")
    connection.execute("PRAGMA foreign_keys=ON")


def _back_up(path: str, version: int) -> None:
    """Copy the file as it was last committed; a copy cut short never has the backup's name."""
    backup = Path(f"{path}.v{version}.backup")
    part = backup.with_name(backup.name + ".part")
    part.unlink(missing_ok=True)
    source = f"{Path(path).absolute().as_uri()}?mode=ro"
    with closing(sqlite3.connect(source, uri=True)) as old, closing(sqlite3.connect(part)) as new:
        old.backup(new)
    part.replace(backup)


DAMAGED: Final = (
    "run `sag rebuild`, which mends what can be made anew; else restore the file from a copy and"
    " rebuild, or take over the runs that can be read by `sag merge -w NEW OLD`"
)
_FIXES: Final = {
    "unable to open database file": "check that its folder exists, and that the "
    "folder may be entered and the file be read",
    "attempt to write a readonly database": "here it can only be read: it was opened so, "
    "or the right to write is missing (chmod u+rwX on its folder and on the files log.sqlite*)",
    "disk I/O error": "check that the path is a file and that its disk works and is not full",
    "database or disk is full": "free some space and try again; nothing was half-written",
}


class translated:
    """Turn SQLite's errors into :class:`StoreError` and its children.

    A context manager with the name of a function: as a generator it would cost more than the
    statements around which it stands.
    """

    __slots__ = ("path",)

    def __init__(self, path: str) -> None:
        self.path = path

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if isinstance(error, sqlite3.Error):
            raise _in_our_words(error, self.path) from error
        if isinstance(error, UnicodeDecodeError):
            raise StoreError(
                f"{self.path} is damaged", why=str(error), fix="restore the file from a copy"
            ) from error
        if isinstance(error, (UnicodeEncodeError, OverflowError)):  # SQLite cannot take it
            raise UsageError(
                "a name or number cannot stand in a log",
                why=str(error),
                fix="correct it; where it is a time, see what the computer's clock shows",
            ) from error


def _in_our_words(error: sqlite3.Error, path: str) -> StoreError:
    text = str(error)
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # absent where Python itself refused
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return BusyError(
            f"{path} is locked" + (f" by {who}" if (who := holder_of(f"{path}-shm")) else ""),
            why=text,
            fix="close the other writer or raise the timeout",
        )
    if code == sqlite3.SQLITE_NOTADB:
        return SchemaError(
            f"{path} is not a log",
            why=text,
            fix="give the path of a log or of a new file; one that was a log must be restored from"
            " a copy",
        )
    if code == sqlite3.SQLITE_CORRUPT:
        return StoreError(f"{path} is damaged", why=text, fix=DAMAGED)
    if "closed database" in text:
        return StoreError(f"{path} was closed", fix="open the store again")
    if "unable to open" in text and Path(path).is_file() and not os.access(path, os.R_OK):
        fix = f"give the right to read it: chmod u+r {path}"
        return StoreError(f"{path} cannot be read", why="permissions", fix=fix)
    return StoreError(f"{path} could not be used", why=text, fix=_FIXES.get(text, ""))
