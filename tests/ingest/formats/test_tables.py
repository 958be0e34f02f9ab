"""The package's own tables: read again, and refused with a reason where they are damaged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sag_research.ingest import ingest
from sag_research.ingest._source import Source
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


def tables(
    folder: Path, run: dict[str, Any] | None = None, steps: Any = None, calls: Any = None
) -> Path:
    rows = {"runs": [run or RUN], "steps": STEPS if steps is None else steps,
            "calls": CALLS if calls is None else calls}  # fmt: skip
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


def steps_read(path: Path) -> tuple[list[tuple[str, list[str]]], list[str], list[Any]]:
    reading = Tables().read(Source(path))
    found = [
        (step.thought, [call.text for call in step.calls]) for run in reading for step in run.steps
    ]
    return found, list(reading.notes), list(reading.refused)


MANY = [STEPS[0] | {"n_calls": 2}, STEPS[1] | {"n_calls": 1}]
CALLED = [CALLS[0] | {"step": step, "call": call, "text": f"{step}.{call}"}
          for step, call in ((0, 0), (0, 1), (1, 0))]  # fmt: skip
IN_ORDER = [("look", ["0.0", "0.1"]), ("done", ["1.0"])]


@pytest.mark.parametrize("turn", [slice(None), slice(None, None, -1)])
def test_rows_are_in_the_order_of_their_numbers(turn: slice, tmp_path: Path) -> None:
    path = tables(tmp_path, steps=MANY[turn], calls=CALLED[::-1])
    assert steps_read(path) == (IN_ORDER, [], [])


@pytest.mark.parametrize(
    ("steps", "calls"),
    [
        (MANY, [CALLED[0], CALLED[2], CALLED[2] | {"call": 1}]),
        (MANY, [CALLED[0], CALLED[0], CALLED[2]]),
        ([MANY[0], MANY[1] | {"step": 0}], CALLED),
        (MANY, [CALLED[0], CALLED[1], CALLED[2] | {"step": 7}]),
    ],
)
def test_numbers_that_disagree_cost_that_run(steps: Any, calls: Any, tmp_path: Path) -> None:
    found, _, refused = steps_read(tables(tmp_path, steps=steps, calls=calls))
    assert (found, len(refused)) == ([], 1)


def test_surplus_rows_are_noted_and_cost_no_other_run(tmp_path: Path) -> None:
    strange = [one | {"run_id": "nobody"} for one in STEPS]
    path = tables(tmp_path, steps=[*strange, *MANY, *strange[:1]], calls=CALLED)
    assert steps_read(path) == (
        IN_ORDER, ["steps.parquet: 3 rows are of no run, or not where it stands"], [],
    )  # fmt: skip
    rows = [RUN | {"run_id": "gone"}, RUN]
    pq.write_table(pa.Table.from_pylist(rows), path)
    found, _, refused = steps_read(path)
    assert (found, [where for where, _ in refused]) == (IN_ORDER, ["row 0"])


def test_the_three_tables_are_one_source(tmp_path: Path) -> None:
    path = tables(tmp_path / "a")
    given = ([tmp_path], [path], [path.with_name("calls.parquet"), path])
    for paths in given:
        with SQLiteEventStore(":memory:") as store:
            done = ingest(store, paths)
            assert (done.runs, done.ignored, done.rejected) == (1, [], [])
    with SQLiteEventStore(":memory:") as store:
        ingest(store, [tmp_path])
        assert ingest(store, [tmp_path]).runs == 0
        tables(tmp_path / "a", steps=[STEPS[0] | {"thought": "mended"}, STEPS[1]])
        assert ingest(store, [tmp_path]).runs == 1
