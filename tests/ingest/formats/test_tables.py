"""The package's own tables: read again, and refused with a reason where they are damaged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sag_research.ingest import ingest
from sag_research.ingest.conformance import FormatConformance
from sag_research.ingest.formats.tables import Tables
from sag_research.log import SQLiteEventStore

RUN = {"run_id": "r", "task_id": "t", "goal": "g", "end": "run.completed", "outcome": "failure",
       "outcome_source": "x", "n_steps": 2, "config": '{"k": 1}'}  # fmt: skip
STEPS = [
    {"run_id": "r", "step": 0, "thought": "look", "n_calls": 1, "flags": ["odd"], "state": "[1]"},
    {"run_id": "r", "step": 1, "thought": "done", "n_calls": 0, "flags": []},
]
CALLS = [{"run_id": "r", "step": 0, "call": 0, "name": "bash", "text": "ls", "status": "ok",
          "arguments": '{"command": "ls"}'}]  # fmt: skip


def tables(folder: Path, run: dict[str, Any] | None = None, steps: Any = None) -> Path:
    rows = {"runs": [run or RUN], "steps": STEPS if steps is None else steps, "calls": CALLS}
    folder.mkdir(exist_ok=True)
    for name, listed in rows.items():
        pq.write_table(pa.Table.from_pylist(listed), folder / f"{name}.parquet")
    return folder / "runs.parquet"


class TestConformance(FormatConformance):
    def format(self) -> Tables:
        return Tables()

    def examples(self, folder: Path) -> list[Path]:
        return [tables(folder)]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"n_steps": 3}, "has not the 3 rows"),
        ({"n_steps": None}, "n_steps is no number"),
        ({"config": "{"}, "JSON"),
        ({"config": "[]"}, "config"),
        ({"outcome": "perhaps"}, "outcome"),
        ({"task_id": ""}, "task_id"),
    ],
)
def test_a_bad_row_costs_that_run(change: dict[str, Any], why: str, tmp_path: Path) -> None:
    path = tables(tmp_path, RUN | change)
    done = ingest(SQLiteEventStore(":memory:"), [path])
    assert done.runs == 0
    said = " ".join(map(str, [*done.refused_records, *done.rejected]))
    assert why in said


@pytest.mark.parametrize("column", ["n_calls", "thought", "flags", "state"])
def test_columns_of_another_type_cost_that_run(column: str, tmp_path: Path) -> None:
    path = tables(tmp_path, steps=[one | {column: 1.5} for one in STEPS])
    done = ingest(SQLiteEventStore(":memory:"), [path])
    assert done.runs == 0
    assert done.refused_records or done.rejected
