"""All runs at once: a corpus of plain Parquet, and the same queries on DuckDB or Spark."""

from __future__ import annotations

from sag_research.warehouse.corpus._codes import Codes, chained
from sag_research.warehouse.corpus._corpus import Corpus, CorpusWriter
from sag_research.warehouse.corpus._engine import DuckDBEngine, Engine, engine
from sag_research.warehouse.corpus._queries import Query, queries, query
from sag_research.warehouse.corpus._write import write_corpus

__all__ = [
    "Codes",
    "Corpus",
    "CorpusWriter",
    "DuckDBEngine",
    "Engine",
    "Query",
    "chained",
    "engine",
    "queries",
    "query",
    "write_corpus",
]
