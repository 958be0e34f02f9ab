"""The shipped store, on a file and in memory, against the contract of an event store."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sag_research.log import SQLiteEventStore
from tests.conformance.event_store import EventStoreConformance


class TestFileStore(EventStoreConformance):
    @contextmanager
    def fresh(self) -> Iterator[SQLiteEventStore]:
        with (
            tempfile.TemporaryDirectory() as folder,
            SQLiteEventStore(Path(folder, "log.sqlite")) as store,
        ):
            yield store


class TestMemoryStore(EventStoreConformance):
    @contextmanager
    def fresh(self) -> Iterator[SQLiteEventStore]:
        with SQLiteEventStore(":memory:") as store:
            yield store
