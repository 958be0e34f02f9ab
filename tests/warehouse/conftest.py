"""One log, seen in four states of its warehouse."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sag_research.log import SQLiteEventStore
from sag_research.model import Run
from sag_research.warehouse import Warehouse, _sync
from tests.warehouse.support import open_warehouse


class Study:
    """A log and its warehouse; ``checkpoint`` is where an earlier sync may have been."""

    def __init__(self, state: str, folder: Path) -> None:
        self.state = state
        place = None if state == "memory" else folder / "warehouse"
        self.store = SQLiteEventStore(folder / "log.sqlite")
        self.warehouse: Warehouse = open_warehouse(place, self.store)

    def run(self, run_id: str, **about: Any) -> None:
        self.store.create_run(Run(run_id=run_id, **about))

    def add(self, *events: Any) -> None:
        self.store.append_many(events)

    def checkpoint(self) -> None:
        if self.state == "half":
            assert self.warehouse.sync().done

    def rows(self, query: str, parameters: Any = None) -> list[tuple[Any, ...]]:
        if self.state == "synced":
            assert self.warehouse.sync().watermark == self.store.last_seq()
        return self.warehouse.sql(query, parameters).rows()

    def one(self, query: str, parameters: Any = None) -> Any:
        (row,) = self.rows(query, parameters)
        return row[0] if len(row) == 1 else row


@pytest.fixture(params=["memory", "tail", "half", "synced"])
def study(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Study]:
    """Everything in memory; on disk and unsynced; partly in segments; all in segments."""
    monkeypatch.setattr(_sync, "SEGMENT_EVENTS", 7)
    study = Study(request.param, tmp_path)
    yield study
    study.warehouse.close()
    study.store.close()
