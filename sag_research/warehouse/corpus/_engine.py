"""One set of queries, on DuckDB here or on Spark anywhere."""

from __future__ import annotations

import re
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

from sag_research.errors import MissingDataError, QueryError, UsageError
from sag_research.warehouse._result import QueryResult
from sag_research.warehouse.corpus._layout import TABLES, columns
from sag_research.warehouse.corpus._queries import Query, query

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

    from sag_research.warehouse.corpus._corpus import Corpus

__all__ = ["DuckDBEngine", "Engine", "engine"]


class Engine(Protocol):
    """What answers queries over a corpus."""

    name: str

    def ask(self, name: str, corpus: Corpus, **parameters: int) -> QueryResult:
        """Answer a shipped query (see :func:`queries`).

        Rows, their order and their types are the same on every engine.

        Parameters
        ----------
        name : str
        corpus : Corpus
        **parameters : int
            As the query's head names them.

        Raises
        ------
        UsageError
            If there is no such query or parameter.
        QueryError
            If the engine cannot answer.
        """

    def sql(self, text: str, corpus: Corpus) -> QueryResult:
        """Answer a query of your own, in DuckDB's SQL, over ``runs steps tokens mentions``.

        Raises
        ------
        QueryError
            If the engine cannot answer.
        """

    def close(self) -> None:
        """Let the engine go."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


def engine(name: str = "duckdb", **options: Any) -> Engine:
    """Open an engine for queries over a corpus.

    Parameters
    ----------
    name : {"duckdb", "spark"}
    **options
        For ``duckdb``: ``threads``, ``memory`` (as ``"4GB"``). For ``spark``: ``master`` (as
        ``"local[2]"`` or ``"spark://host:7077"``), or ``remote`` (a Spark Connect address,
        ``"sc://host"``), or ``session`` (one that you made), and ``config``, a dict.

    Raises
    ------
    UsageError
        If there is no such engine or option.
    MissingDataError
        If the extra ``spark`` is not installed, or there is no Java.

    Examples
    --------
    >>> with engine() as duck:
    ...     duck.name
    'duckdb'
    """
    if name == "duckdb":
        return DuckDBEngine(**options)
    if name != "spark":
        raise UsageError(f"no engine {name!r}", fix="one of duckdb, spark")
    try:
        from sag_research.warehouse.corpus._spark import SparkEngine
    except ImportError as error:
        raise MissingDataError(
            "Spark is not installed",
            why=str(error),
            fix="pip install 'sag-research[spark]'; it needs Java 17 or later, too",
        ) from error
    return SparkEngine(**options)


class DuckDBEngine:
    """DuckDB in this process.

    Parameters
    ----------
    threads : int, optional
    memory : str, optional
        Above it DuckDB goes to disk, as in ``"4GB"``.
    """

    name = "duckdb"

    def __init__(self, threads: int | None = None, memory: str | None = None) -> None:
        import duckdb

        self._db = duckdb.connect()
        if threads is not None:
            self._db.execute("SET threads = $1", [threads])
        if memory is not None:
            self._db.execute("SET memory_limit = $1", [memory])

    def __repr__(self) -> str:
        return "DuckDBEngine()"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *rest: object) -> None:
        self.close()

    def close(self) -> None:
        """Let the engine go."""
        self._db.close()

    def ask(self, name: str, corpus: Corpus, **parameters: int) -> QueryResult:
        """Answer a shipped query; see :class:`Engine`."""
        asked = query(name)
        values = asked.settings(parameters)
        with self._db.cursor() as db:
            self._views(db, corpus, asked)
            return QueryResult(shaped(_answer(db, asked.text, values), asked))

    def sql(self, text: str, corpus: Corpus) -> QueryResult:
        """Answer a query of your own; see :class:`Engine`."""
        with self._db.cursor() as db:
            self._views(db, corpus)
            return QueryResult(_answer(db, text, {}))

    def _reach(self, system: str) -> None:
        import fsspec

        if not self._db.filesystem_is_registered(system):
            self._db.register_filesystem(fsspec.filesystem(system))

    def _views(
        self, db: duckdb.DuckDBPyConnection, corpus: Corpus, asked: Query | None = None
    ) -> None:
        if corpus.is_remote:
            self._reach(corpus.place.partition("://")[0])
        for table in TABLES if asked is None else asked.inputs:
            names = ", ".join(one.name for one in columns(table))
            # taken literally, what would match several places
            folder = re.sub(r"[*?[]", r"[\g<0>]", corpus.folder(table))
            place = f"{folder}/*.parquet".replace("'", "''")
            db.execute(
                f"CREATE OR REPLACE TEMP VIEW {table} AS SELECT {names} "  # noqa: S608
                f"FROM read_parquet('{place}')"
            )


def _answer(db: duckdb.DuckDBPyConnection, text: str, values: dict[str, int]) -> pa.Table:
    import duckdb

    try:
        return db.sql(text, params=values or None).to_arrow_table()
    except duckdb.Error as error:
        raise QueryError("DuckDB refused the query", why=first_line(error)) from error


def first_line(error: Exception) -> str:
    """Return the first line of what an engine says."""
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)


def shaped(rows: pa.Table, asked: Query) -> pa.Table:
    """Return rows with the columns and types that a query's head promises.

    Raises
    ------
    QueryError
        If they are others.
    """
    if rows.column_names != list(asked.outputs):
        raise QueryError(
            f"query {asked.name} gave other columns", why=f"{', '.join(rows.column_names)}"
        )
    return rows.cast(asked.schema())
