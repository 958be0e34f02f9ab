"""The same files on a real Spark."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import sag_research as sag
from sag_research.errors import QueryError, UsageError
from sag_research.lab import bundled
from sag_research.warehouse.corpus import Corpus, queries, write_corpus


@pytest.mark.parametrize("name", queries())
def test_each_query_gives_the_same_rows(duck, spark, corpus, name):
    ours, theirs = duck.ask(name, corpus), spark.ask(name, corpus)
    assert theirs.arrow().equals(ours.arrow())
    assert len(ours) > 0


def test_parameters_reach_spark(duck, spark, corpus):
    for least in (2, 50):
        ours = duck.ask("prefixes", corpus, min_runs=least)
        assert spark.ask("prefixes", corpus, min_runs=least).rows() == ours.rows()
    assert len(ours) < len(duck.ask("prefixes", corpus, min_runs=2))


def test_sql_of_ones_own(duck, spark, corpus):
    text = "SELECT outcome, count(*) FILTER (n_steps > 5) AS n FROM runs GROUP BY ALL ORDER BY 1"
    assert spark.sql(text, corpus).rows() == duck.sql(text, corpus).rows()


@pytest.mark.parametrize(
    "text", ["SELECT nothing FROM runs", "SELECT FROM WHERE", "SELECT 1; SELECT 2"]
)
def test_what_spark_cannot_answer(spark, corpus, text):
    with pytest.raises(QueryError):
        spark.sql(text, corpus)


def test_files_are_read_with_the_same_readers(spark, tmp_path):
    """Also from a folder with what is no trajectory, a damaged file and a copy."""
    folder = tmp_path / "runs"
    shutil.copytree(bundled("bugfix"), folder)
    first = sorted(folder.rglob("*.traj.gz"))[0]
    shutil.copy(first, folder / "again.traj.gz")
    (folder / "cut.traj").write_text('{"trajectory": [', encoding="utf-8")
    (folder / "notes.txt").write_text("nothing", encoding="utf-8")
    with sag.open(":memory:") as ws:
        report = ws.ingest(folder)
        near = write_corpus(ws.warehouse, tmp_path / "near")
    far = spark.ingest(folder, tmp_path / "far", parts=3)
    for table in ("runs", "steps", "mentions"):
        keys = [(key, "ascending") for key in ("run_id", "step", "entity_id")]
        known = pq.read_schema(next((tmp_path / "near" / table).iterdir())).names
        order = [one for one in keys if one[0] in known]
        ours, theirs = (
            pq.read_table(one.folder(table)).sort_by(order) for one in (near, far)
        )  # fmt: skip
        assert ours.equals(theirs), table
    files = far.about["files"]
    assert files == {
        "files": report.files,
        "ingested": report.ingested,
        "duplicates": report.duplicates,
        "ignored": len(report.ignored),
        "rejected": 1,
    }
    assert files["files"] == sum(files.values()) - files["files"]
    assert {one["path"] for one in far.about["rejected"]} == {"cut.traj"}
    assert len(list((tmp_path / "far" / "runs").glob("*.parquet"))) == 3


def test_texts_become_tokens(spark, corpus, tmp_path):
    with sag.open(":memory:") as ws:
        ws.ingest(bundled("crates"))
        near = write_corpus(ws.warehouse, tmp_path / "near")
        texts = ws.sql("SELECT * FROM steps WHERE NOT inherited").arrow()
        runs = ws.sql("SELECT run_id, task_id, model, outcome FROM runs").arrow()
    pq.write_table(texts, tmp_path / "steps.parquet")
    pq.write_table(runs, tmp_path / "runs.parquet")
    far = spark.tokenise(
        tmp_path / "steps.parquet", tmp_path / "runs.parquet", tmp_path / "far", parts=3
    )
    order = [("run_id", "ascending"), ("step", "ascending")]
    columns = ["run_id", "step", "token", "prefix", "tool"]
    ours, theirs = (
        pq.read_table(one.folder("steps")).sort_by(order).select(columns) for one in (near, far)
    )
    assert ours.equals(theirs)
    assert far.about["rows"]["runs"] == near.about["rows"]["runs"]


def test_an_existing_place_is_left_alone(spark, tmp_path):
    with pytest.raises(UsageError, match="exists"):
        spark.ingest(bundled("crates"), tmp_path)


def test_a_corpus_that_spark_wrote_is_read_anywhere(spark, duck, tmp_path):
    far = spark.ingest(bundled("crates"), tmp_path / "far", parts=2)
    assert Corpus(tmp_path / "far").about == far.about
    assert len(sag.Prefixes.from_corpus(far)) == far.about["rows"]["runs"]


def test_spark_is_named_in_one_way():
    with pytest.raises(UsageError, match="several ways"):
        sag.engine("spark", master="local[1]", remote="sc://localhost")


def test_spark_connect_gives_the_same_rows(spark, corpus):
    """``spark`` is asked for because it skips, or fails, where there is none."""
    script = Path(__file__).with_name("connected.py")
    done = subprocess.run(
        [sys.executable, str(script), corpus.place],
        check=True, capture_output=True, encoding="utf-8", timeout=170,
    )  # fmt: skip
    told = json.loads(done.stdout.splitlines()[-1])
    assert told == {
        "asked": len(queries()), "others": [], "session": "pyspark.sql.connect.session",
    }  # fmt: skip
