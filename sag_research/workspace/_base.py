"""What every part of a workspace stands on: the log, the warehouse, SQL, and names of runs."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from os import PathLike, fspath
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from sag_research.errors import RunNotFoundError, StoreError, UsageError
from sag_research.extract import EntityExtractor
from sag_research.log import SQLiteEventStore, mend
from sag_research.model import WORKSPACE_RUN
from sag_research.warehouse import QueryResult, SyncReport, Warehouse

if TYPE_CHECKING:
    import duckdb

__all__ = ["Base", "cohort", "shown"]


class Base:
    """An open log and its warehouse."""

    path: Path | None
    store: SQLiteEventStore
    warehouse: Warehouse

    def __init__(self, path: str | PathLike[str], *, create: bool = True) -> None:
        if not fspath(path):
            raise UsageError("a workspace needs a name", fix="give a folder, or ':memory:'")
        self.path = None if fspath(path) == ":memory:" else Path(path)
        if self.path is None:
            log, folder, aliases = ":memory:", None, None
        else:
            log, folder = str(self.path / "log.sqlite"), self.path / "warehouse"
            aliases = self.path / "aliases.toml"
            with _entered(self.path):
                self._make_folder(self.path, create)
                _refuse_if_log_is_gone(self.path)
        frozen = self.path is not None and not os.access(self.path, os.W_OK)
        self.store = SQLiteEventStore(log, read_only=frozen)
        extractor = EntityExtractor(aliases=aliases if aliases and aliases.exists() else None)
        self.warehouse = Warehouse(folder, self.store, extractor=extractor)

    @staticmethod
    def _make_folder(path: Path, create: bool) -> None:
        if not create and not (path / "log.sqlite").exists():
            raise StoreError(
                f"no workspace at {path}",
                fix="name one with -w, or make one with `sag ingest` or sag.open(path)",
            )
        try:
            path.mkdir(parents=True, exist_ok=True)
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or str(error)
            fix = "name a folder, or a new one in a folder where you may write"
            raise StoreError(f"{path!s} cannot be a workspace", why=why, fix=fix) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the log and the warehouse; closing twice does nothing."""
        self.warehouse.close()
        self.store.close()

    def sql(
        self, query: str, parameters: Sequence[Any] | Mapping[str, Any] | None = None
    ) -> QueryResult:
        """Query everything with DuckDB SQL; sees all that is committed.

        Returns
        -------
        QueryResult
            ``.df()`` for pandas, ``.pl()`` for polars, ``.arrow()``, ``.rows()``.
        """
        return self.warehouse.sql(query, parameters)

    @property
    def duckdb(self) -> duckdb.DuckDBPyConnection:
        """The DuckDB connection; it shows the state of the last ``sql`` or ``refresh``."""
        return self.warehouse.connection

    def resolve(self, run: str) -> str:
        """Return the id of the run that is meant.

        Parameters
        ----------
        run : str
            Id, unique prefix of an id, or a task with one run.

        Raises
        ------
        RunNotFoundError
            If none is meant, or several; the message lists the candidates.
        """
        if run != WORKSPACE_RUN and self.store.has_run(run):
            return run
        query = """
            SELECT run_id, task_id = $name AND parent_id IS NULL AS is_task FROM runs
            WHERE task_id = $name OR starts_with(run_id, $name) ORDER BY is_task DESC, seq"""
        found = self.sql(query, {"name": run}).rows()
        # a task means the run that attempted it, not its forks
        tasks = [run_id for run_id, is_task in found if is_task]
        candidates = tasks or [run_id for run_id, _ in found]
        if len(candidates) == 1:
            return str(candidates[0])
        if not candidates:
            raise RunNotFoundError(f"no run {run!r}", fix="list the runs with `sag runs`")
        more = f" and {len(candidates) - 8} more" if len(candidates) > 8 else ""
        raise RunNotFoundError(
            f"{run!r} may be any of {len(candidates)} runs",
            why=", ".join(candidates[:8]) + more,
            fix="give one of these ids",
        )

    def refresh(self) -> int:
        """Make everything committed visible on :attr:`duckdb`; returns the events loaded."""
        return self.warehouse.refresh()

    def sync(self) -> SyncReport:
        """Write what the log has gained into the warehouse's segments."""
        return self.warehouse.sync()

    def rebuild(self) -> SyncReport:
        """Make all anew that the events give: the log's indices if damaged, and the warehouse.

        Raises
        ------
        StoreError
            If events of the log are damaged: see :meth:`verify`.
        """
        mend(self.store)
        return self.warehouse.rebuild()

    def export_duckdb(self, path: str | PathLike[str]) -> Path:
        """Write a plain ``.duckdb`` file for other programs; see :class:`Warehouse`."""
        return self.warehouse.export_duckdb(path)


@contextmanager
def _entered(path: Path) -> Iterator[None]:
    """Say whose rights are missing where a workspace cannot even be looked at."""
    try:
        yield
    except PermissionError as error:
        raise StoreError(
            f"{path} cannot be read",
            why=f"permissions: {error.filename}",
            fix=f"give the right to enter and read it: chmod -R u+rwX {path}",
        ) from error


def _refuse_if_log_is_gone(path: Path) -> None:
    """Stop before an empty log is taken for the truth, and the warehouse for out of date."""
    log, warehouse = path / "log.sqlite", path / "warehouse"
    if (warehouse / "manifest.json").exists() and not (log.exists() and log.stat().st_size):
        raise StoreError(
            f"{log} is {'empty' if log.exists() else 'gone'}",
            why="the warehouse beside it was made of it, so there were events",
            fix=f"put the log back from a copy, or remove {warehouse} to begin anew",
        )


def cohort(columns: str, where: str, order: str) -> str:
    # the condition is the user's own SQL, like the text of ws.sql; values are bound
    return f"SELECT {columns} FROM runs WHERE ({where}) {order}"  # noqa: S608


def shown(where: str) -> str:
    """Leave hidden runs out, unless the condition speaks of them itself."""
    return where if re.search(r"\b(hidden|copy_of)\b", where) else f"({where}) AND NOT hidden"
