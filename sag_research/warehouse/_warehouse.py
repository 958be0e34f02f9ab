"""The DuckDB side: views over Parquet segments and the log's tail."""

from __future__ import annotations

import re
import threading
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.resources import files
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

import duckdb
import pyarrow as pa

from sag_research.errors import QueryError, StoreError, UsageError, WarehouseError
from sag_research.extract import EntityExtractor
from sag_research.log import SQLiteEventStore
from sag_research.model import Event
from sag_research.warehouse._intact import NO_RIGHT, DamagedSegment, damaged, look_at
from sag_research.warehouse._manifest import DamagedManifest, Manifest, read_manifest
from sag_research.warehouse._project import Projector, chunked
from sag_research.warehouse._redacted import project_again, stale_events
from sag_research.warehouse._refused import first_lines, meanings, query_error
from sag_research.warehouse._result import QueryResult
from sag_research.warehouse._sync import SyncReport, fits, lock_holder, sync
from sag_research.warehouse._tables import SCHEMAS

__all__ = ["VIEWS", "Warehouse"]

_TRIES: Final = 20
"""How often a query begins anew where another process keeps replacing files under it."""
CHUNK: Final = 2_000
"""Events of the log's tail that are projected together."""
TAIL_EVENTS: Final = 5_000
"""A longer tail is written to segments before the next query."""

VIEWS: Final = (
    "runs", "steps", "steps_all", "calls", "events", "outcomes", "entities", "mentions",
    "relations", "sources",
)  # fmt: skip

_TYPES: Final = {
    pa.int32(): "INTEGER",
    pa.int64(): "BIGINT",
    pa.float64(): "DOUBLE",
    pa.bool_(): "BOOLEAN",
    pa.binary(): "BLOB",
    pa.string(): "VARCHAR",
    pa.large_string(): "VARCHAR",
    pa.timestamp("us"): "TIMESTAMP",
    pa.list_(pa.string()): "VARCHAR[]",
}


_T = TypeVar("_T")
_Parameters: TypeAlias = Sequence[Any] | Mapping[str, Any] | None
_Stamp: TypeAlias = tuple[int, int, int] | None

_ABOUT_THE_QUERY: Final = (
    duckdb.BinderException, duckdb.CatalogException, duckdb.ConversionException,
    duckdb.OutOfRangeException, duckdb.ParserException, duckdb.PermissionException,
)  # fmt: skip
"""Errors that no damaged file makes."""
_NEVER: Final = (-1, -1, -1)
"""The stamp of no manifest: the next refresh starts from nothing."""


class Warehouse:
    """Analytical queries over everything in a log.

    Parameters
    ----------
    folder : path-like or None
        Where the Parquet segments are; ``None`` keeps everything in memory.
    store : SQLiteEventStore
        The log. Nothing in the warehouse is lost with it.
    extractor : EntityExtractor, optional
        Default: the shipped rules.

    Notes
    -----
    Readers take no lock. The manifest is read before the log, so an event is never missed;
    events after the manifest's watermark are held in memory.

    What is redacted, by whatever process, is not shown from the next :meth:`refresh` or
    :meth:`sql` on: rows of segments are hidden, and the event is read from the log anew. The
    next :meth:`sync`, which :meth:`sql` then makes by itself where it may write, writes the
    segments without it and removes at once every file that may have held it. A reader that has
    such a file open reads it to its end; one that comes later finds it gone, looks at the
    manifest again and repeats its query (a query on :attr:`connection` fails once instead). The
    blocks of a removed file are free, not overwritten.

    Attributes
    ----------
    folder : pathlib.Path or None
    connection : duckdb.DuckDBPyConnection
        Shows the state of the last :meth:`refresh` or :meth:`sql`.
    """

    def __init__(
        self,
        folder: str | PathLike[str] | None,
        store: SQLiteEventStore,
        *,
        extractor: EntityExtractor | None = None,
    ) -> None:
        # absolute: a notebook may change its working directory later
        self.folder = None if folder is None else Path(fspath(folder)).absolute()
        self._store = store
        self._extractor = extractor or EntityExtractor()
        self._lock = threading.RLock()
        self._manifest = Manifest()
        self._stamp: _Stamp = None
        self._loaded = 0
        self._loaded_mark: str | None = None
        self._intact: set[str] = set()
        self._projector = Projector(store, self._extractor)
        self._masked: set[int] = set()
        self._tidy = True
        self._parents: dict[str, tuple[str, int]] = {}
        self.connection = duckdb.connect(":memory:")
        # a connection of its own, so that a user's unfinished result or transaction is not touched
        self._follower = self.connection.cursor()
        self._prepare()

    def __repr__(self) -> str:
        return f"Warehouse({'in memory' if self.folder is None else str(self.folder)!r})"

    def close(self) -> None:
        """Close the DuckDB connection."""
        self._follower.close()
        self.connection.close()

    def _prepare(self) -> None:
        self._follower.execute("SET autoinstall_known_extensions = false")
        self._empty_tail()
        self._define_views(Manifest())
        views = files("sag_research.warehouse").joinpath("views.sql").read_text(encoding="utf-8")
        self._follower.execute(views)

    def _empty_tail(self) -> None:
        # replaced, because DuckDB keeps the rows that are deleted from a table in memory
        for table, schema in SCHEMAS.items():
            columns = ", ".join(f'"{field.name}" {_TYPES[field.type]}' for field in schema)
            self._follower.execute(f"CREATE OR REPLACE TABLE tail_{table} ({columns})")
        self._follower.execute(
            "CREATE OR REPLACE TABLE lineage"
            " (run_id VARCHAR, writer_id VARCHAR, lo BIGINT, hi BIGINT)"
        )

    def _define_views(self, manifest: Manifest) -> None:
        for table in SCHEMAS:
            parts = [f"SELECT * FROM tail_{table}"]  # noqa: S608
            if self.folder is not None and (names := manifest.files(table)):
                paths = ", ".join(_file(self.folder / name) for name in names)
                # a folder named like dataset=x is no column
                segments = f"read_parquet([{paths}], hive_partitioning = false)"
                shown = f" WHERE seq NOT IN ({_numbers(self._masked)})" if self._masked else ""
                parts.insert(0, f"SELECT * FROM {segments}{shown}")  # noqa: S608
            body = " UNION ALL ".join(parts)
            self._follower.execute(f"CREATE OR REPLACE VIEW base_{table} AS {body}")

    # ---- following the log

    def refresh(self) -> int:
        """Make everything committed to the log visible; returns the number of events loaded.

        Raises
        ------
        WarehouseError
            If the manifest or a segment is damaged, or of a newer version.
        """
        with self._lock:
            return self._again_if_lost(self._refresh)

    def _refresh(self) -> int:
        stamp = self._manifest_stamp()
        # numbers alone do not tell: after a power cut a log may give them out again
        same = self._store.mark_at(self._loaded) == self._loaded_mark
        if same and stamp == self._stamp and self._store.last_seq() == self._loaded:
            return 0
        with _Transaction(self._follower, self._forget):
            if not same or stamp != self._stamp:
                self._load_manifest()
                self._stamp = stamp
            return self._load_tail()

    def _manifest_stamp(self) -> _Stamp:
        if self.folder is None:
            return None
        try:
            stat = (self.folder / "manifest.json").stat()
        except FileNotFoundError:
            return None
        except PermissionError as error:
            fix = f"give the right to enter and read it: chmod u+rwX {self.folder}"
            why = "permissions"
            raise WarehouseError(f"{self.folder} cannot be read", why=why, fix=fix) from error
        return stat.st_mtime_ns, stat.st_ino, stat.st_size

    def _forget(self) -> None:
        """After a failed refresh, start the next one from nothing."""
        self._stamp, self._loaded, self._loaded_mark = _NEVER, 0, None

    def _usable_manifest(self) -> Manifest:
        found = Manifest() if self.folder is None else read_manifest(self.folder)
        return found if fits(found, self._store, self._extractor.version) else Manifest()

    def _load_manifest(self) -> None:
        self._manifest = self._usable_manifest()
        self._loaded = self._manifest.watermark
        self._loaded_mark = self._manifest.watermark_mark
        self._projector = Projector(self._store, self._extractor)
        self._parents.clear()
        self._masked, self._tidy = set(), True
        self._empty_tail()
        forks = """
            SELECT run_id, parent_id, fork_position FROM base_run_rows
            WHERE parent_id IS NOT NULL ORDER BY seq"""
        if self.folder is not None:
            self._intact.update(look_at(self.folder, self._manifest.segments, self._intact))
        try:
            self._define_views(self._manifest)
            self._add_lineage(self._follower.execute(forks).fetchall())
        except duckdb.Error as error:
            if isinstance(error, duckdb.IOException) and self._lost():
                raise  # replaced by another process, or gone: _again_if_lost tells
            raise _damaged(error) from error

    def _load_tail(self) -> int:
        count = 0
        for events in chunked(self._store.tail(self._loaded, strict=False), CHUNK):
            for table, rows in self._projector.project(events).items():
                self._insert(f"tail_{table}", rows)
                if table == "run_rows":
                    columns = (rows["run_id"], rows["parent_id"], rows["fork_position"])
                    forks = zip(*(column.to_pylist() for column in columns), strict=True)
                    self._add_lineage([fork for fork in forks if fork[1] is not None])
            count += len(events)
            self._loaded = events[-1].seq or self._loaded
            self._hide_redacted(events)
        if count:
            self._loaded_mark = self._store.mark_at(self._loaded)
        return count

    def _hide_redacted(self, events: Sequence[Event]) -> None:
        """Load redacted events anew, in the place of what was loaded of them before."""
        stale = stale_events(self._store, events, self._loaded)
        if not stale:
            return
        numbers = {event.seq or 0 for event in stale}
        for table in SCHEMAS:
            self._follower.execute(f"DELETE FROM tail_{table} WHERE seq IN ({_numbers(numbers)})")  # noqa: S608
        for table, rows in project_again(self._store, self._extractor, stale):
            self._insert(f"tail_{table}", rows)
        in_segments = {number for number in numbers if number <= self._manifest.watermark}
        if in_segments:
            self._masked |= in_segments
            self._tidy = False
            self._define_views(self._manifest)
        self._projector = Projector(self._store, self._extractor)  # the old one knows the runs

    def _add_lineage(self, forks: Sequence[tuple[str, str, int]]) -> None:
        """Note for each new fork which part of each ancestor it sees."""
        rows = []
        for run_id, parent, position in forks:
            self._parents[run_id] = (parent, position)
            writer: str | None = parent
            hi = position
            while writer is not None and hi > 0:
                above, start = self._parents.get(writer, (None, 0))
                if hi > start:
                    rows.append((run_id, writer, start + 1, hi))
                writer, hi = above, min(hi, start)
        if rows:
            names = ("run_id", "writer_id", "lo", "hi")
            columns = {n: list(c) for n, c in zip(names, zip(*rows, strict=True), strict=True)}
            self._insert("lineage", pa.table(columns))

    def _insert(self, table: str, sag_rows: pa.Table) -> None:
        # DuckDB finds the parameter by its name: half the time of registering it
        self._follower.execute(f"INSERT INTO {table} SELECT * FROM sag_rows")  # noqa: S608

    # ---- queries

    def sql(self, query: str, parameters: _Parameters = None) -> QueryResult:
        """Run one SQL query over the views; it sees everything committed to the log.

        Parameters
        ----------
        query : str
            DuckDB SQL. Values go into ``parameters``, never into the text.
        parameters : sequence or mapping, optional
            For ``?`` or ``$name``.

        Raises
        ------
        QueryError
            If DuckDB refuses the query.
        WarehouseError
            If the warehouse is damaged; :meth:`rebuild` mends it.
        """
        with self._lock:
            if self._tail_is_long():
                self._sync_if_allowed()
            try:
                self.refresh()
                if not self._tidy:  # no file is to keep what was redacted
                    self._tidy = self._sync_if_allowed()
                return self._again_if_lost(lambda: self._run(query, parameters))
            except duckdb.Error as error:
                raise self._why_refused(error) from error

    def _why_refused(self, error: duckdb.Error) -> QueryError | WarehouseError:
        """Tell a query that is wrong from a file that cannot be read."""
        if self.folder is not None and not isinstance(error, _ABOUT_THE_QUERY):
            for file, fault in damaged(self.folder, self._manifest.segments):
                self._forget()
                return DamagedSegment(file, f"{fault}: {first_lines(error)}")
        return query_error(error, VIEWS)

    def _run(self, query: str, parameters: _Parameters) -> QueryResult:
        self._refresh()  # costs nothing unless files were replaced since
        answer: duckdb.DuckDBPyRelation | None = self.connection.sql(query, params=parameters)
        return QueryResult(pa.table({}) if answer is None else answer.to_arrow_table())

    def _again_if_lost(self, work: Callable[[], _T]) -> _T:
        """Do something again while another process removes files that it replaced meanwhile."""
        tries = 0
        while True:
            stamp, tries = self._manifest_stamp(), tries + 1
            try:
                return work()
            except (duckdb.IOException, DamagedSegment) as error:
                if not self._lost():
                    raise
                self._forget()
                if stamp == self._manifest_stamp() or tries == _TRIES:
                    # the newest manifest names it
                    raise error if isinstance(error, DamagedSegment) else _damaged(error) from error

    def _lost(self) -> bool:
        """Tell whether a file is missing that the manifest, as this reader knows it, names."""
        folder = self.folder
        if folder is None:
            return False
        try:
            return not all((folder / segment.file).exists() for segment in self._manifest.segments)
        except PermissionError:  # what may not be seen may well be there
            return False

    def _tail_is_long(self) -> bool:
        """Tell whether a tail should go to segments before it is held in memory."""
        if self.folder is None:
            return False
        known = self._manifest_stamp() == self._stamp
        manifest = self._manifest if known else self._usable_manifest()
        return self._store.last_seq() - manifest.watermark > TAIL_EVENTS

    def _sync_if_allowed(self) -> bool:
        """Bring the segments up to date; returns whether there is no use in trying again now.

        A folder that may not be written costs speed, not the answer.
        """
        try:
            return self.sync().done
        except (StoreError, WarehouseError) as error:
            warnings.warn(f"the warehouse could not be brought up to date: {error}", stacklevel=3)
            return True

    def schema(self, view: str | None = None) -> QueryResult:
        """Say what the views' columns are: view, column, type, meaning.

        Parameters
        ----------
        view : str, optional
            Only this view; default: all of them, and the functions.

        Raises
        ------
        UsageError
            If there is no such view.
        """
        known = meanings()
        if view is not None and view not in VIEWS:
            raise UsageError(f"no view {view!r}", fix="the views are " + ", ".join(VIEWS))
        rows = []
        for name in VIEWS if view is None else (view,):
            about = known["steps"] | known[name] if name == "steps_all" else known[name]
            rows.append((name, "", "VIEW", about[""]))
            described = self.sql(f"SELECT column_name, column_type FROM (DESCRIBE {name})").rows()  # noqa: S608
            rows += [(name, column, type_, about.get(column, "")) for column, type_ in described]
        if view is None:
            rows += [("", name, "MACRO", text) for name, text in known["functions"].items()]
        columns = ("view", "column", "type", "meaning")
        return QueryResult(
            pa.table({n: list(c) for n, c in zip(columns, zip(*rows, strict=True), strict=True)})
        )

    # ---- upkeep

    def sync(self) -> SyncReport:
        """Write the tail into segments; does nothing where another process is at it."""
        if self.folder is None:
            return SyncReport(False, 0, 0, False)
        report = sync(self._store, self.folder, self._extractor)
        if report.fell_behind:
            warnings.warn(
                f"{self._store.path} no longer holds what the warehouse was made of: it lost its"
                " last events in a power cut, or is an older copy; the warehouse is made anew",
                stacklevel=3,
            )
        self.refresh()
        return report

    def faults(self) -> list[tuple[str, str]]:
        """Read all files through; returns those that are not what was written, and why.

        An empty list is good news, also where there is no warehouse yet, or one that will be
        made anew because it does not fit the log. A rebuild mends all.
        """
        if self.folder is None:
            return []
        try:
            manifest = self._usable_manifest()
        except DamagedManifest as error:
            denied = error.why == "permissions"
            return [("manifest.json", NO_RIGHT if denied else error.why)]
        return list(damaged(self.folder, manifest.segments))

    def rebuild(self) -> SyncReport:
        """Throw the segments away and project the whole log again.

        Raises
        ------
        UsageError
            If the warehouse is in memory only, or another process is syncing.
        """
        if self.folder is None:
            raise UsageError("a warehouse in memory has nothing to rebuild")
        report = sync(self._store, self.folder, self._extractor, rebuild=True)
        if not report.done:
            who = lock_holder(self.folder) or "another process"
            raise UsageError(f"{who} is syncing this warehouse", fix="try again later")
        self.refresh()
        return report

    def export_duckdb(self, path: str | PathLike[str]) -> Path:
        """Write all views as tables of a plain ``.duckdb`` file, for other programs.

        Raises
        ------
        UsageError
            If the file exists or cannot be written.
        """
        target = Path(fspath(path))
        if target.exists():
            raise UsageError(f"{target} exists", fix="choose another name or remove it")
        if not target.absolute().parent.is_dir():
            fix = "make the folder first, or check the path"
            raise UsageError(f"{target} cannot be written", why="it has no folder", fix=fix)
        with self._lock:
            try:
                self._again_if_lost(lambda: self._export(target))
            except duckdb.Error as error:
                fix = "free some space, or choose a place that may be written"
                why = first_lines(error)
                raise UsageError(f"{target} cannot be written", why=why, fix=fix) from error
        return target

    def _export(self, target: Path) -> None:
        self._refresh()
        # whole or not at all
        partial = target.with_name(f".{target.name}.partial")
        partial.unlink(missing_ok=True)
        try:
            self._follower.execute(f"ATTACH {_quoted(partial.as_posix())} AS sag_export")
            try:
                for view in VIEWS:
                    self._follower.execute(f"CREATE TABLE sag_export.{view} AS FROM {view}")
            finally:
                self._follower.execute("DETACH sag_export")
            partial.rename(target)
        finally:
            partial.unlink(missing_ok=True)


class _Transaction:
    """A DuckDB transaction in which views and tail change together."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, on_error: Any) -> None:
        self._connection, self._on_error = connection, on_error

    def __enter__(self) -> None:
        self._connection.execute("BEGIN")

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is None:
            self._connection.execute("COMMIT")
            return
        self._connection.execute("ROLLBACK")
        self._on_error()


def _numbers(numbers: Iterable[int]) -> str:
    return ", ".join(str(int(number)) for number in sorted(numbers))


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _file(path: Path) -> str:
    """Write a path as SQL, with the characters taken literally that would match several files."""
    return _quoted(re.sub(r"[*?[]", r"[\g<0>]", path.as_posix()))


def _damaged(error: duckdb.Error) -> WarehouseError:
    return WarehouseError(
        "a file of the warehouse is missing or damaged",
        why=first_lines(error),
        fix="run `sag rebuild`",
    )
