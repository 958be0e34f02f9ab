"""Spark, classic or Connect, on the same SQL files: sqlglot writes them in its dialect."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import sqlglot
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from sqlglot import expressions as exp

from sag_research.errors import QueryError, UsageError
from sag_research.warehouse._result import QueryResult
from sag_research.warehouse.corpus import _spark_jobs as jobs
from sag_research.warehouse.corpus._corpus import Corpus
from sag_research.warehouse.corpus._engine import first_line, shaped
from sag_research.warehouse.corpus._layout import TABLES, columns
from sag_research.warehouse.corpus._queries import Query, query

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["SparkEngine", "in_spark"]

_CONFIG = {
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
}
"""What a session gets that is made here."""


class SparkEngine:
    """Spark as an engine; see :func:`engine` for the options."""

    name = "spark"

    def __init__(
        self,
        master: str | None = None,
        remote: str | None = None,
        session: SparkSession | None = None,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        given = [one for one in (master, remote, session) if one is not None]
        if len(given) > 1:
            raise UsageError("master, remote and session name Spark in several ways", fix="one")
        self._is_own = session is None
        self.session: SparkSession = session or _session(master, remote, dict(config or {}))

    def __repr__(self) -> str:
        return f"SparkEngine({self.session.version})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *rest: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop the session, if it was made here."""
        if self._is_own:
            self.session.stop()

    def ask(self, name: str, corpus: Corpus, **parameters: int) -> QueryResult:
        """Answer a shipped query; see :class:`Engine`."""
        asked = query(name)
        values = asked.settings(parameters)
        self._views(corpus, asked)
        return QueryResult(shaped(self._answer(asked.text, values), asked))

    def sql(self, text: str, corpus: Corpus) -> QueryResult:
        """Answer a query of your own, in DuckDB's SQL; see :class:`Engine`."""
        self._views(corpus)
        return QueryResult(self._answer(text, {}))

    def ingest(
        self,
        paths: str | Path | Sequence[str | Path],
        place: str | Path,
        *,
        labels: str | Path | None = None,
        parts: int | None = None,
    ) -> Corpus:
        """Read trajectories into a corpus, on Spark's workers.

        Parameters
        ----------
        paths : path or sequence of path
            Files and folders, at the same place on all workers.
        place : str or path
            Where the corpus is written: a folder that all workers see, or an address that fsspec
            knows.
        labels : path, optional
            As for ``ws.ingest``; at the same place on all workers.
        parts : int, optional
            How many tasks; one for each 64 MB by default.

        Returns
        -------
        Corpus
            ``about["files"]`` counts files, and ``about["rejected"]`` says what could not be read,
            and why. Files of equal content are read once. What one file says of another (resumed
            sessions, copies in another spelling) is seen within a part only.

        Raises
        ------
        UsageError
            If there is something at the place.
        """
        given = [paths] if isinstance(paths, (str, Path)) else list(paths)
        return jobs.ingest_files(self.session, given, place, labels=labels, parts=parts)

    def tokenise(
        self, steps: str | Path, runs: str | Path, place: str | Path, parts: int = 8
    ) -> Corpus:
        """Make a corpus of Parquet tables of steps with their texts, and of runs.

        Parameters
        ----------
        steps : str or path
            ``run_id step action observation``, and as far as known ``thought n_calls tool
            exit_code flags``; the view ``steps`` has them all.
        runs : str or path
            ``run_id task_id outcome``, and as far as known the other columns of a corpus's runs.
        place : str or path
            Where the corpus is written, as for :meth:`ingest`.
        parts : int
            How many parts the corpus has.

        Raises
        ------
        UsageError
            If there is something at the place.
        """
        return jobs.tokenise_steps(self.session, steps, runs, place, parts)

    def _views(self, corpus: Corpus, asked: Query | None = None) -> None:
        for table in TABLES if asked is None else asked.inputs:
            frame = self.session.read.parquet(corpus.folder(table))
            names = [one.name for one in columns(table)]
            frame.select(*names).createOrReplaceTempView(table)

    def _answer(self, text: str, values: Mapping[str, int]) -> pa.Table:
        try:
            return self.session.sql(in_spark(text), args=dict(values)).toArrow()
        except PySparkException as error:
            raise QueryError("Spark refused the query", why=first_line(error)) from error


def _session(master: str | None, remote: str | None, config: dict[str, Any]) -> SparkSession:
    where = remote or master or "local[*]"
    if where.startswith("local"):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # else whatever python3 is
    if remote is not None:
        making = SparkSession.builder.remote(remote)
    else:
        making = SparkSession.builder.master(where).appName("sag-research")
        config = {**_CONFIG, **config}
    for name, value in config.items():
        making = making.config(name, value)
    session = making.getOrCreate()
    if remote is None:
        session.sparkContext.setLogLevel("ERROR")
    return session


@cache
def in_spark(text: str) -> str:
    """Write a query of DuckDB's SQL in Spark's.

    Raises
    ------
    QueryError
        If it is no SQL, or more than one statement.

    Examples
    --------
    >>> in_spark("SELECT n::DOUBLE AS x FROM t WHERE n > $least")
    'SELECT CAST(n AS DOUBLE) AS x FROM t WHERE n > :least'
    """
    try:
        statements = sqlglot.parse(text, read="duckdb")
    except sqlglot.errors.ParseError as error:
        raise QueryError("sqlglot cannot read the query", why=first_line(error)) from error
    if len(statements) != 1 or statements[0] is None:
        raise QueryError(f"{len(statements)} statements", fix="give one")
    return statements[0].transform(_parameter).sql(dialect="spark", comments=False)


def _parameter(node: exp.Expression) -> exp.Expression:
    if isinstance(node, exp.Parameter):
        return exp.Placeholder(this=node.name)
    return node
