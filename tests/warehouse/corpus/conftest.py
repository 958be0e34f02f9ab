"""Corpora made of the bundled sets, and a Spark that runs in this test session."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import sag_research as sag
from sag_research.lab import bundled
from sag_research.warehouse.corpus import Corpus, Engine, engine, write_corpus
from tests import support

if TYPE_CHECKING:
    from sag_research.warehouse.corpus._spark import SparkEngine


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """Two bundled sets as a corpus."""
    place = tmp_path_factory.mktemp("corpora") / "bundled"
    with sag.open(":memory:") as ws:
        ws.ingest(bundled("bugfix"), labels=bundled("bugfix") / "labels.csv")
        ws.ingest(bundled("crates"))
        return write_corpus(ws.warehouse, place)


@pytest.fixture(scope="session")
def duck() -> Iterator[Engine]:
    """DuckDB as an engine."""
    with engine("duckdb") as one:
        yield one


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkEngine]:
    """Spark on two threads of this machine."""
    support.require_module("spark", "pyspark")
    if support.find_java() is None:
        support.skip_or_fail("spark", "no java was found")
    from sag_research.warehouse.corpus._spark import SparkEngine

    config = {"spark.sql.shuffle.partitions": 2, "spark.driver.bindAddress": "127.0.0.1"}
    config |= {"spark.driver.host": "127.0.0.1"}
    with SparkEngine(master="local[2]", config=config) as one:
        yield one


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder that does not exist yet."""
    return tmp_path / "corpus"
