"""What a query gives back, and what an export holds."""

from __future__ import annotations

import subprocess
import sys
from decimal import Decimal

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from sag_research.errors import QueryError, UsageError
from sag_research.log import SQLiteEventStore
from sag_research.warehouse import VIEWS, QueryResult
from tests.warehouse.support import everything, open_warehouse, step, write_runs

HOSTILE = '<script>alert("x")</script>'


@pytest.fixture
def store(tmp_path):
    with SQLiteEventStore(tmp_path / "log.sqlite") as store:
        write_runs(store, ["r1", "r2"])
        yield store


@pytest.fixture
def warehouse(store, tmp_path):
    warehouse = open_warehouse(tmp_path / "warehouse", store)
    yield warehouse
    warehouse.close()


def test_one_answer_in_five_forms(warehouse):
    answer = warehouse.sql("SELECT run_id, n_steps FROM runs ORDER BY run_id")
    assert isinstance(answer, QueryResult)
    assert answer.columns == ["run_id", "n_steps"]
    assert answer.rows() == [("r1", 3), ("r2", 3)]
    assert len(answer) == 2
    expected = {"run_id": ["r1", "r2"], "n_steps": [3, 3]}
    pd.testing.assert_frame_equal(answer.df(), pd.DataFrame(expected), check_dtype=False)
    assert answer.pl().equals(pl.DataFrame(expected))
    assert answer.arrow().to_pydict() == expected
    assert repr(answer) == "QueryResult(2 rows: run_id, n_steps)"


def test_an_answer_does_not_change_while_the_log_grows(warehouse, store):
    answer = warehouse.sql("SELECT count(*) AS n FROM steps")
    store.append(step("r1"))
    warehouse.sync()
    assert answer.rows() == [(6,)]
    assert warehouse.sql("SELECT count(*) AS n FROM steps").rows() == [(7,)]


def test_html_is_escaped_and_says_what_it_leaves_out(warehouse, store):
    store.append(step("r1", HOSTILE + "\x1b[31m"))
    html = warehouse.sql(
        f'SELECT action AS "{HOSTILE.replace(chr(34), "")}" FROM steps'
    )._repr_html_()
    assert "<script" not in html
    assert "\x1b" not in html
    assert "&lt;script&gt;alert(&quot;x&quot;)" in html
    long = warehouse.sql("SELECT * FROM range(1000)")._repr_html_()
    assert "20 of 1000 rows shown" in long
    assert long.count("<tr>") == 21


def test_values_are_parameters(warehouse):
    by_position = "SELECT run_id FROM runs WHERE run_id = ?"
    assert warehouse.sql(by_position, ["r1"]).rows() == [("r1",)]
    assert warehouse.sql(by_position, ["r1' OR '1'='1"]).rows() == []
    assert warehouse.sql("SELECT run_id FROM runs WHERE run_id = $x", {"x": "r2"}).rows() == [
        ("r2",)
    ]


def test_sums_are_plain_numbers_and_beyond_64_bits_exact(warehouse):
    answer = warehouse.sql("SELECT sum(n_steps) AS s, sum(9223372036854775807) AS h FROM runs")
    assert answer.rows() == [(6, Decimal(2 * (2**63 - 1)))]
    assert answer.arrow().schema.field("s").type == pa.int64()


def test_two_columns_of_one_name_are_told_apart(warehouse):
    answer = warehouse.sql("SELECT 1 AS a, 2 AS a, 3 AS a_1, 4 AS a")
    assert answer.columns == ["a", "a_2", "a_1", "a_3"]
    assert answer.rows() == [(1, 2, 3, 4)]
    assert answer.pl().columns == list(answer.df().columns) == answer.columns


def test_statements_run_once(warehouse):
    warehouse.sql("CREATE TABLE mine (x INTEGER)")
    warehouse.sql("INSERT INTO mine VALUES (1)")
    assert warehouse.sql("SELECT x FROM mine").rows() == [(1,)]
    assert warehouse.sql("").rows() == []


@pytest.mark.parametrize(
    ("query", "parameters", "says"),
    [
        ("SELECT * FROM run", None, "runs, steps, steps_all"),
        ("SELEC 1", None, "syntax error"),
        ("SELECT nothing FROM runs", None, "nothing"),
        ("SELECT 1 / 'x'", None, "Conversion Error"),
        ("SELECT ?", None, ""),
        ("SELECT 1", [1, 2], ""),
        ("FROM read_csv('no-such-file.csv')", None, "no-such-file.csv"),
        ("FROM read_parquet('no-such-file.parquet')", None, "no-such-file.parquet"),
        ("SELECT error('\x1b[31m<b>')", None, ""),
    ],
)
def test_a_refused_query_says_why(warehouse, query, parameters, says):
    warehouse.sync()
    with pytest.raises(QueryError) as caught:
        warehouse.sql(query, parameters)
    text = str(caught.value)
    assert says in text
    assert "\n" not in text
    assert warehouse.sql("SELECT 1").rows() == [(1,)]


# ---- export


@pytest.mark.parametrize("synced", [True, False])
def test_an_export_is_a_plain_file_for_others(warehouse, tmp_path, synced):
    if synced:
        warehouse.sync()
    target = warehouse.export_duckdb(tmp_path / "it's.duckdb")
    program = (
        "import duckdb, sys; c = duckdb.connect(sys.argv[1], read_only=True);"
        "print(c.execute('SELECT count(*), max(outcome) FROM runs').fetchall())"
    )
    out = subprocess.run(
        [sys.executable, "-c", program, str(target)], capture_output=True, text=True, check=True
    )
    assert out.stdout.strip() == "[(2, 'success')]"
    with duckdb.connect(str(target), read_only=True) as other:
        for view, rows in everything(warehouse).items():
            assert sorted(other.execute(f"FROM {view}").fetchall(), key=repr) == rows
    assert {p.name for p in tmp_path.iterdir() if "duckdb" in p.name} == {"it's.duckdb"}
    assert set(VIEWS) == set(everything(warehouse))


def test_an_export_overwrites_nothing_and_leaves_no_torn_file(warehouse, tmp_path, monkeypatch):
    target = tmp_path / "copy.duckdb"
    target.write_text("mine", encoding="utf-8")
    with pytest.raises(UsageError, match="exists"):
        warehouse.export_duckdb(target)
    assert target.read_text(encoding="utf-8") == "mine"
    with pytest.raises(UsageError, match="cannot be written"):
        warehouse.export_duckdb(tmp_path / "no-folder" / "copy.duckdb")
    monkeypatch.setattr("sag_research.warehouse._warehouse.VIEWS", ("runs", "no_such_view"))
    with pytest.raises(UsageError, match="no_such_view"):
        warehouse.export_duckdb(tmp_path / "torn.duckdb")
    assert {p.name for p in tmp_path.iterdir()} == {
        "copy.duckdb", "log.sqlite", "log.sqlite-shm", "log.sqlite-wal",
    }  # fmt: skip
