from __future__ import annotations

import json

import pyarrow.parquet as pq
import pytest

import sag_research as sag
from sag_research.errors import UsageError, WarehouseError
from sag_research.lab import bundled
from sag_research.warehouse.corpus import Codes, Corpus, CorpusWriter, write_corpus


def add(ws, task, *actions, outcome="success", **more):
    steps = [{"thought": "", "action": one, "observation": "ok"} for one in actions]
    return ws.add({"task_id": task, "steps": steps, "outcome": outcome, **more})


@pytest.fixture
def ws():
    with sag.open(":memory:") as one:
        yield one


def test_a_row_for_each_run_and_step(ws, folder):
    first = add(ws, "t1", "ls", "cat src/a.py", model="m")
    add(ws, "t2", "ls", outcome="failure")
    add(ws, "t3", "pytest", outcome=None)
    corpus = write_corpus(ws.warehouse, folder)
    runs = pq.read_table(folder / "runs").to_pylist()
    assert [(one["task_id"], one["outcome"], one["failed"], one["n_steps"]) for one in runs] == [
        ("t1", "success", 0, 2), ("t2", "failure", 1, 1), ("t3", "unknown", None, 1),
    ]  # fmt: skip
    assert (runs[0]["run_id"], runs[0]["model"]) == (first, "m")
    steps = pq.read_table(folder / "steps").to_pylist()
    assert [(one["run_id"] == first, one["step"]) for one in steps] == [
        (True, 0), (True, 1), (False, 0), (False, 0),
    ]  # fmt: skip
    assert steps[0]["prefix"] == steps[2]["prefix"] != steps[3]["prefix"]
    names = Codes().names
    assert names[steps[0]["token"]].startswith("look|")
    wanted = ws.sql("SELECT DISTINCT run_id, step, entity_id FROM mentions").rows()
    named = pq.read_table(folder / "mentions").to_pylist()
    assert {(one["run_id"], one["step"], one["entity_id"]) for one in named} == set(wanted)
    assert (first, 1, "File||src/a.py") in wanted
    counts = {"runs": 3, "steps": 4, "tokens": len(names), "mentions": len(wanted)}
    assert corpus.about["rows"] == counts
    assert repr(corpus) == f"Corpus({str(folder)!r}, 3 runs, 4 steps)"


def test_what_would_count_twice_is_left_out_and_counted(ws, folder):
    run = add(ws, "t1", "ls", "cat a")
    ws.fork(run, at=2)
    add(ws, "t2", outcome="failure")
    corpus = write_corpus(ws.warehouse, folder)
    assert corpus.about["left_out"] == {"fork": 1, "no steps": 1}
    assert corpus.about["rows"]["runs"] == 1


def test_a_condition_chooses(ws, folder):
    add(ws, "t1", "ls", model="a")
    add(ws, "t2", "ls", model="b")
    corpus = write_corpus(ws.warehouse, folder, "model = $1", ["b"])
    assert pq.read_table(folder / "runs").column("task_id").to_pylist() == ["t2"]
    assert corpus.about["rows"]["runs"] == 1


def test_parts_make_the_same_corpus(ws, tmp_path, monkeypatch):
    ws.ingest(bundled("crates"))
    whole = write_corpus(ws.warehouse, tmp_path / "whole")
    monkeypatch.setattr("sag_research.warehouse.corpus._write._CHUNK", 500)
    parts = write_corpus(ws.warehouse, tmp_path / "parts")
    assert len(list((tmp_path / "parts" / "steps").iterdir())) > 3
    assert whole.about == parts.about
    for table in ("runs", "steps", "mentions"):
        assert pq.read_table(whole.folder(table)).equals(pq.read_table(parts.folder(table)))


def test_nothing_is_a_corpus_too(ws, folder):
    corpus = write_corpus(ws.warehouse, folder)
    assert corpus.about["rows"]["runs"] == 0
    with sag.engine() as duck:
        assert duck.ask("prefixes", corpus).rows() == []


def test_an_existing_folder_is_left_alone(ws, folder):
    folder.mkdir()
    with pytest.raises(UsageError, match="exists"):
        write_corpus(ws.warehouse, folder)


def test_half_a_corpus_is_none(folder):
    def broken():
        with CorpusWriter(folder) as writer:
            writer.add({"run_id": ["a"]}, {"run_id": ["a"], "step": [0], "token": [0]})
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        broken()
    assert list(folder.parent.iterdir()) == []


@pytest.mark.parametrize(
    "left", [None, "{", '{"format": "sag-corpus", "version": 2}', '{"rows": {}}']
)
def test_what_is_no_corpus_is_said_to_be_none(folder, left):
    folder.mkdir()
    if left is not None:
        (folder / "corpus.json").write_text(left, encoding="utf-8")
    with pytest.raises(WarehouseError, match=r"no corpus|another version"):
        Corpus(folder)


def test_a_corpus_in_memory_and_one_on_disk_answer_alike(corpus, tmp_path):
    import fsspec

    memory = fsspec.filesystem("memory")
    memory.put(corpus.place, "/study", recursive=True)
    try:
        far = Corpus("memory://study")
        assert far.is_remote
        with sag.engine() as duck:
            for name in ("summary", "prefixes", "loops"):
                assert duck.ask(name, far).rows() == duck.ask(name, corpus).rows()
    finally:
        memory.rm("/study", recursive=True)


def test_texts_of_a_trajectory_are_values_and_nothing_else(ws, folder):
    add(ws, "t'); DROP TABLE runs; --", "ls", model='m"; SELECT 1; --')
    corpus = write_corpus(ws.warehouse, folder)
    with sag.engine() as duck:
        (row,) = duck.ask("task_outcomes", corpus).rows()
    assert row[:3] == ("t'); DROP TABLE runs; --", 'm"; SELECT 1; --', 1)


def test_a_place_with_odd_characters(ws, tmp_path):
    add(ws, "t1", "ls")
    corpus = write_corpus(ws.warehouse, tmp_path / "it's [a] *place*?")
    with sag.engine() as duck:
        assert duck.sql("SELECT count(*) FROM steps", corpus).rows() == [(1,)]


def test_the_cohort_of_a_corpus_is_that_of_the_workspace(tmp_path):
    with sag.open(":memory:") as ws:
        ws.ingest(bundled("crates"))
        corpus = ws.corpus(tmp_path / "corpus")
        near = ws.prefixes()
        far = sag.Prefixes.from_corpus(corpus)
    place = {run: at for at, run in enumerate(far.runs["run_id"])}
    order = [place[run] for run in near.runs["run_id"]]
    assert sorted(order) == list(range(len(near)))
    for at, run in enumerate(order):
        ours = [near.table.names[code] for code in near.sequences()[at]]
        assert ours == [far.table.names[code] for code in far.sequences()[run]]
    assert (near.failed == far.failed[order]).all()
    assert json.dumps(far.left_out) == json.dumps(corpus.about["left_out"])
