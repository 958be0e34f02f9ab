"""Tables for publishing: read by DuckDB and pandas alone, with a card that tells the truth."""

from __future__ import annotations

import hashlib
import re
import shutil
from pathlib import Path

import duckdb
import pytest

import sag_research as sag
from sag_research.exchange import export_parquet

HOSTILE = "m|<b>\n---\nlicense: gpl"
STEPS = [
    {"thought": "look", "calls": [
        {"id": "a", "name": "bash", "arguments": {"command": "ls"}, "text": "ls",
         "observation": "x", "status": "ok", "exit_code": 0},
        {"name": "open", "arguments": "no json", "observation": "y"}]},
    {"thought": "done", "flags": ["redacted"]},
]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("tables") / "my-set"
    with sag.open(":memory:") as ws:
        base = {"steps": STEPS, "model": HOSTILE}
        ws.add(base | {"task_id": "t1", "outcome": "success"})
        ws.add(base | {"task_id": "t2", "outcome": "failure"})
        ws.add(base | {"task_id": "t3"})
        export_parquet(ws, place, licence="mit")
    return place


def test_duckdb_joins_the_tables(folder: Path) -> None:
    query = f"""
        SELECT r.task_id, r.outcome, s.step, s.flags, c.name, c.arguments, c.exit_code
        FROM '{folder}/runs.parquet' r JOIN '{folder}/steps.parquet' s USING (run_id)
             LEFT JOIN '{folder}/calls.parquet' c USING (run_id, step)
        ORDER BY ALL"""
    rows = duckdb.sql(query).fetchall()
    assert rows[:3] == [
        ("t1", "success", 0, [], "bash", '{"command":"ls"}', 0),
        ("t1", "success", 0, [], "open", '"no json"', None),
        ("t1", "success", 1, ["redacted"], None, None, None),
    ]
    assert [row[:2] for row in rows[6:7]] == [("t3", None)]  # nobody said: not a failure


def test_pandas_reads_them(folder: Path) -> None:
    import pandas as pd

    counts = {path.stem: len(pd.read_parquet(path)) for path in folder.glob("*.parquet")}
    assert counts == {"runs": 3, "steps": 6, "calls": 6}


def test_the_card_begins_as_the_hub_reads_it(folder: Path) -> None:
    yaml = pytest.importorskip("yaml")
    text = (folder / "README.md").read_text(encoding="utf-8")
    front = yaml.safe_load(text.split("---\n")[1])
    assert front["license"] == "mit"
    assert front["pretty_name"] == "my-set"
    assert front["size_categories"] == ["n<1K"]
    assert {one["config_name"]: one["data_files"] for one in front["configs"]} == {
        "runs": "runs.parquet", "steps": "steps.parquet", "calls": "calls.parquet",
    }  # fmt: skip


def test_the_card_tells_what_is_there(folder: Path) -> None:
    text = (folder / "README.md").read_text(encoding="utf-8")
    assert "3 runs of 3 tasks by agents: 6 steps, 6 tool calls." in text
    assert "| all | 3 | 1 | 1 | 1 | 0.500 " in text
    assert re.search(r"n = 2\b", text)
    assert "Redacted: no." in text
    assert "\n---\nlicense: gpl" not in text  # a model's name is no markup
    for path in folder.glob("*.parquet"):
        assert f"{hashlib.sha256(path.read_bytes()).hexdigest()} |" in text
    for table in ("runs", "steps", "calls"):
        for name in duckdb.sql(f"FROM '{folder}/{table}.parquet'").columns:
            assert f"| `{name}` | " in text


def test_tables_apart_are_refused_with_the_reason(folder: Path, tmp_path: Path) -> None:
    shutil.copy(folder / "runs.parquet", tmp_path)
    with sag.open(":memory:") as ws:
        done = ws.ingest(tmp_path)
    ((_, why),) = done.rejected
    assert "steps.parquet" in why


def test_a_run_without_its_rows_costs_that_run(folder: Path, tmp_path: Path) -> None:
    for path in folder.glob("*.parquet"):
        shutil.copy(path, tmp_path)
    kept = "rowid NOT IN (SELECT max(rowid) FROM found)"
    with duckdb.connect() as db:
        db.execute(f"CREATE TABLE found AS FROM '{folder}/steps.parquet'")
        db.execute(f"COPY (FROM found WHERE {kept}) TO '{tmp_path}/steps.parquet'")
    with sag.open(":memory:") as ws:
        done = ws.ingest(tmp_path)
        assert done.runs == 2
        ((*_, why),) = done.refused_records
    assert "has not the 2 rows" in why
