"""The warehouse follows the log: in any rhythm, and when the log or the extractor changes."""

from __future__ import annotations

import sqlite3
from contextlib import nullcontext
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sag_research.errors import WarehouseError
from sag_research.extract import EntityExtractor
from sag_research.log import SQLiteEventStore, _reading
from sag_research.model import Event, Run
from sag_research.warehouse import Warehouse, _sync, _warehouse
from sag_research.warehouse._manifest import read_manifest
from tests.warehouse.support import (
    end,
    everything,
    open_warehouse,
    outcome,
    parquet_files,
    source_read,
    step,
    write_runs,
)


@pytest.fixture
def store(tmp_path):
    with SQLiteEventStore(tmp_path / "log.sqlite") as store:
        yield store


@pytest.fixture
def small_segments(monkeypatch):
    monkeypatch.setattr(_sync, "SEGMENT_EVENTS", 100)


def write_something(store: SQLiteEventStore, random: Random) -> None:
    """Append one thing to a log: a run, a fork, steps, an end, a label or a source."""
    runs = [run.run_id for run in store.runs()]
    choice = random.choice(["run", "fork", "steps", "steps", "steps", "end", "label", "source"])
    name = random.choice(runs) if runs else ""
    if choice == "run" or not runs:
        store.create_run(Run(run_id=f"r{len(runs)}", task_id=f"t{len(runs) % 3}", repo="a/b"))
    elif choice == "fork":
        at = random.randint(1, store.head(name).position)
        store.fork(name, at=at, run_id=f"f{len(runs)}")
    elif choice == "steps":
        some = range(random.randint(1, 30))
        store.append_many(step(name, f"m{random.randint(0, 9)}.py é{i}.py" * 3) for i in some)
    elif choice == "end":
        store.append(end(name, random.choice(["run.completed", "run.failed"]), exit_status="x"))
    elif choice == "label":
        store.append(outcome(name, random.choice(["success", "failure", "unknown"]), "report"))
    else:
        store.append(source_read(f"{random.randint(0, 3)}.traj", "s", "ingested"))


@given(seed=st.integers(0, 2**32))
@settings(max_examples=6)
def test_any_rhythm_gives_the_same_rows_and_the_same_bytes(tmp_path_factory, seed):
    random, folder = Random(seed), tmp_path_factory.mktemp("study")
    with pytest.MonkeyPatch.context() as patch, SQLiteEventStore(folder / "log.sqlite") as store:
        patch.setattr(_sync, "SEGMENT_EVENTS", 100)
        patch.setattr(_sync, "_SEARCHED_STEPS", random.choice([1, 7, 64, 10_000]))
        patch.setattr(_reading, "PAGE", random.choice([1, 7, 1_000]))
        patch.setattr(_warehouse, "CHUNK", random.choice([1, 7, 2_000]))
        memory = open_warehouse(None, store)
        often = open_warehouse(folder / "often", store)
        for _ in range(random.randint(1, 40)):
            write_something(store, random)
            act = random.choice(["", "", "refresh", "sync", "reopen"])
            if act == "refresh":
                memory.refresh(), often.refresh()
            elif act == "sync":
                assert often.sync().watermark == store.last_seq()
            elif act == "reopen":
                often.close()
                often = open_warehouse(folder / "often", store)
        rows = everything(memory)
        assert everything(often) == rows
        often.sync()
        patch.setattr(_sync, "_SEARCHED_STEPS", 10_000)
        once = open_warehouse(folder / "once", store)
        assert once.sync().rebuilt
        assert everything(often) == everything(once) == rows
        files = parquet_files(folder / "often")
        assert files == parquet_files(folder / "once")
        assert often.rebuild().rebuilt
        assert files == parquet_files(folder / "often")
        for warehouse in (memory, often, once):
            warehouse.close()


def test_rules_find_the_same_in_a_short_tail_and_in_a_long_sync(store, tmp_path):
    """The shipped rules take another path for few rows than for many."""
    store.create_run(Run(run_id="r1", repo="a/b"))
    texts = ["cat src/app.py", "pytest tests/test_app.py::test_x", "pip install flask", "git diff"]
    seen = 'File "src/app.py", line 3, in run\n  x\nTimeoutError: é https://example.org/a.py\n'
    for number in range(700):
        text = f"{texts[number % 4]} {number % 13}"
        store.append(step("r1", text, observation=seen * (number % 3)))
        if number == 0:
            memory = Warehouse(None, store, extractor=EntityExtractor())
        if number < 40:
            memory.refresh()
    disk = Warehouse(tmp_path / "warehouse", store, extractor=EntityExtractor())
    disk.sync()
    rows = everything(memory)
    assert len(rows["mentions"]) > 700
    assert everything(disk) == rows
    memory.close(), disk.close()


# ---- refresh


def test_refresh_counts_what_it_loads(store, tmp_path):
    warehouse = open_warehouse(tmp_path / "warehouse", store)
    assert warehouse.refresh() == 0
    write_runs(store, ["r1", "r2"])
    assert warehouse.refresh() == store.last_seq() == 13  # the workspace's own run has one more
    assert warehouse.refresh() == 0
    store.append(step("r1"))
    assert warehouse.refresh() == 1
    warehouse.close()


def test_the_connection_shows_the_state_of_the_last_refresh(store, tmp_path):
    warehouse = open_warehouse(tmp_path / "warehouse", store)
    write_runs(store, ["r1"])
    count = "SELECT count(*) FROM steps"
    assert warehouse.connection.execute(count).fetchall() == [(0,)]
    warehouse.refresh()
    assert warehouse.connection.execute(count).fetchall() == [(3,)]
    warehouse.close()


def test_a_users_unfinished_result_survives_a_refresh(store):
    warehouse = open_warehouse(None, store)
    write_runs(store, ["r1"])
    warehouse.refresh()
    pending = warehouse.connection.execute("SELECT i FROM range(100000) t(i)")
    assert pending.fetchone() == (0,)
    store.append(step("r1"))
    assert warehouse.refresh() == 1
    assert len(pending.fetchall()) == 99_999
    warehouse.close()


def test_a_users_open_transaction_does_not_stop_the_refresh(store):
    warehouse = open_warehouse(None, store)
    warehouse.sql("BEGIN")
    write_runs(store, ["r1"])
    assert warehouse.refresh() == 7
    warehouse.sql("COMMIT")
    assert warehouse.sql("SELECT count(*) FROM steps").rows() == [(3,)]
    warehouse.close()


def test_a_long_tail_goes_to_segments_before_it_is_held_in_memory(store, tmp_path, monkeypatch):
    monkeypatch.setattr(_warehouse, "TAIL_EVENTS", 10)
    folder = tmp_path / "warehouse"
    warehouse = open_warehouse(folder, store)
    write_runs(store, ["r1"])
    assert warehouse.sql("SELECT count(*) FROM steps").rows() == [(3,)]
    assert read_manifest(folder).watermark == 0
    write_runs(store, ["r2", "r3"])
    loaded = []
    insert = warehouse._insert
    monkeypatch.setattr(warehouse, "_insert", lambda *a: (loaded.append(a[0]), insert(*a)))
    assert warehouse.sql("SELECT count(*) FROM steps").rows() == [(9,)]
    assert read_manifest(folder).watermark == store.last_seq()
    assert loaded == []
    warehouse.close()


def test_a_folder_that_cannot_be_written_costs_speed_only(store, tmp_path, monkeypatch):
    monkeypatch.setattr(_warehouse, "TAIL_EVENTS", 10)
    folder = tmp_path / "warehouse"
    (folder / "lock.sqlite").mkdir(parents=True)  # so not even root can lock it
    warehouse = open_warehouse(folder, store)
    with pytest.raises(WarehouseError, match="cannot be locked"):
        warehouse.sync()
    write_runs(store, ["r1", "r2", "r3"])
    with pytest.warns(UserWarning, match="could not be brought up to date"):
        answer = warehouse.sql("SELECT count(*) FROM steps").rows()
    assert answer == [(9,)]
    warehouse.close()


# ---- segments


def test_segments_are_cut_by_sequence_number_and_sealed_ones_never_change(
    store, tmp_path, small_segments
):
    folder = tmp_path / "warehouse"
    warehouse = open_warehouse(folder, store)
    sealed: dict[str, bytes] = {}
    for number in range(30):
        write_runs(store, [f"r{number}"], n_steps=number)
        report = warehouse.sync()
        assert (report.done, report.watermark) == (True, store.last_seq())
        manifest = read_manifest(folder)
        files = parquet_files(folder)
        full = report.watermark // 100
        assert {s.k for s in manifest.segments if s.table == "events"} == set(range(full + 1))
        assert all(s.sealed == (s.k < full) for s in manifest.segments)
        assert sum(s.rows for s in manifest.segments if s.table == "events") == report.watermark
        assert sealed.items() <= files.items()
        sealed = {s.file: files[s.file] for s in manifest.segments if s.sealed}
    bounds = warehouse.connection.execute(
        "SELECT filename, min(seq), max(seq), count(*) FROM read_parquet(?, filename = true)"
        " GROUP BY 1 ORDER BY 2",
        [[str(folder / name) for name in read_manifest(folder).files("events")]],
    ).fetchall()
    assert [(lo, hi) for _, lo, hi, _ in bounds[:-1]] == [
        (100 * k + 1, 100 * k + 100) for k in range(len(bounds) - 1)
    ]
    assert len(bounds) > 4
    warehouse.close()


def test_a_segment_is_sealed_even_where_a_table_gains_nothing(store, tmp_path, small_segments):
    folder = tmp_path / "warehouse"
    warehouse = open_warehouse(folder, store)
    write_runs(store, ["r1"])
    warehouse.sync()
    store.append_many(Event(run_id="r1", type="note.taken") for _ in range(150))
    warehouse.sync()
    assert {s.sealed for s in read_manifest(folder).segments if s.k == 0} == {True}
    assert warehouse.sql("SELECT count(*) FROM steps").rows() == [(3,)]
    warehouse.close()


def test_a_run_that_spans_segments_keeps_its_step_numbers(store, tmp_path, small_segments):
    folder = tmp_path / "warehouse"
    store.create_run(Run(run_id="r1"))
    for part in range(5):
        store.append_many(step("r1", f"x{part}.py") for _ in range(90))
        with SQLiteEventStore(store.path) as other:  # another process, which knows nothing
            syncer = open_warehouse(folder, other)
            syncer.sync()
            syncer.close()
    reader = open_warehouse(folder, store)
    store.append(step("r1"))
    found = reader.sql("SELECT step FROM steps ORDER BY position").rows()
    assert found == [(n,) for n in range(451)]
    assert len(read_manifest(folder).files("steps")) == 5
    reader.close()


def test_a_sync_of_nothing_new_writes_nothing(store, tmp_path):
    folder = tmp_path / "warehouse"
    warehouse = open_warehouse(folder, store)
    for n_runs in (0, 2):
        write_runs(store, [f"r{n}" for n in range(n_runs)])
        warehouse.sync()
        before = {p: p.stat().st_mtime_ns for p in folder.rglob("*") if p.name != "lock.sqlite"}
        report = warehouse.sync()
        assert (report.done, report.events) == (True, 0)
        after = {p: p.stat().st_mtime_ns for p in folder.rglob("*") if p.name != "lock.sqlite"}
        assert after == before
    warehouse.close()


# ---- a log that is not what it was


def lose_and_replace(store: SQLiteEventStore, n: int) -> None:
    """What a power cut can do: the last events are gone, and others get their numbers."""
    with sqlite3.connect(store.path) as db:
        last = store.last_seq() - n
        db.execute("DELETE FROM events WHERE seq > ?", (last,))
        db.execute("UPDATE sqlite_sequence SET seq = ? WHERE name = 'events'", (last,))
    db.close()
    with SQLiteEventStore(store.path) as other:
        other.append_many(step("r1", f"other{i}.py") for i in range(n))


@pytest.mark.parametrize("synced", [True, False])
def test_a_reader_notices_that_the_log_fell_behind(store, tmp_path, synced):
    folder = tmp_path / "warehouse"
    store.create_run(Run(run_id="r1"))
    store.append_many(step("r1", f"old{i}.py") for i in range(20))
    reader = open_warehouse(folder, store)
    if synced:
        reader.sync()
    assert reader.sql("SELECT count(*) FROM steps WHERE action LIKE 'old%'").rows() == [(20,)]
    lose_and_replace(store, 5)
    new = open_warehouse(folder, store)
    memory = open_warehouse(None, store)
    for warehouse in (reader, new, memory):
        query = "SELECT left(action, 3) AS w, count(*), max(step) FROM steps GROUP BY 1 ORDER BY 1"
        assert warehouse.sql(query).rows() == [("old", 15, 14), ("oth", 5, 19)]
    with pytest.warns(UserWarning, match="lost its last events") if synced else nullcontext():
        report = new.sync()
    assert (report.rebuilt, report.events, report.fell_behind) == (True, 21, synced)
    assert everything(reader) == everything(new) == everything(memory)
    for warehouse in (reader, new, memory):
        warehouse.close()


def test_a_log_shorter_than_the_watermark_is_noticed(store, tmp_path):
    folder = tmp_path / "warehouse"
    write_runs(store, ["r1", "r2"])
    warehouse = open_warehouse(folder, store)
    warehouse.sync()
    with sqlite3.connect(store.path) as db:
        db.execute("DELETE FROM events WHERE seq > 6")
    db.close()
    assert warehouse.sql("SELECT count(*), max(seq) FROM events").rows() == [(6, 6)]
    with pytest.warns(UserWarning, match="no longer holds what the warehouse was made of"):
        report = warehouse.sync()
    assert (report.watermark, report.fell_behind) == (6, True)
    assert not warehouse.sync().fell_behind
    warehouse.close()


def test_another_logs_warehouse_is_not_believed(store, tmp_path):
    folder = tmp_path / "warehouse"
    write_runs(store, ["r1"])
    first = open_warehouse(folder, store)
    first.sync()
    first.close()
    with SQLiteEventStore(tmp_path / "other.sqlite") as other:
        write_runs(other, ["q1"])
        second = open_warehouse(folder, other)
        assert second.sql("SELECT run_id FROM runs").rows() == [("q1",)]
        assert second.sync().rebuilt
        assert second.sql("SELECT run_id FROM runs").rows() == [("q1",)]
        second.close()


def test_another_extractor_builds_the_mentions_again(store, tmp_path):
    folder = tmp_path / "warehouse"
    write_runs(store, ["r1"])
    old = open_warehouse(folder, store, "tiny-1")
    old.sync()
    steps = {n: data for n, data in parquet_files(folder).items() if n.startswith("segments/")}
    new = open_warehouse(folder, store, "tiny-2")
    versions = "SELECT DISTINCT version, rule FROM mentions"
    assert new.sql(versions).rows() == [("tiny-2", "tiny-2")]
    new.sync()
    assert new.sql(versions).rows() == [("tiny-2", "tiny-2")]
    files = parquet_files(folder)
    assert {n.split("/")[1] for n in files if n.startswith("mentions/")} == {"tiny-2"}
    assert {n: data for n, data in files.items() if n.startswith("segments/")} == steps
    assert old.sql(versions).rows() == [("tiny-1", "tiny-1")]  # each sees what it would find
    old.close(), new.close()
