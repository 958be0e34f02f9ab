"""A killed sync leaves a warehouse that can be read, and files that the next one removes."""

from __future__ import annotations

import multiprocessing
from random import Random

import pytest

from sag_research.warehouse._manifest import read_manifest
from tests.warehouse import workers
from tests.warehouse.support import parquet_files, write_runs

ROUNDS = 20


@pytest.fixture(autouse=True)
def _own_settings(monkeypatch):
    for name in ("SEGMENT_EVENTS", "GRACE_SECONDS", "_SEARCHED_STEPS"):
        monkeypatch.setattr(workers._sync, name, getattr(workers._sync, name))
    monkeypatch.setattr(workers._warehouse, "CHUNK", workers._warehouse.CHUNK)


def files(folder):
    return {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}


def test_a_killed_sync_leaves_exact_answers(tmp_path):
    # a server that has imported everything, so that a round costs a fork and not a start
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(["tests.warehouse.workers"])
    folder, random = tmp_path / "warehouse", Random(5)
    store, reader = workers.open_both(tmp_path)
    write_runs(store, [f"first{n}" for n in range(100)], n_steps=6)
    unfinished = 0
    for number in range(ROUNDS):
        ready, send = processes.Pipe(duplex=False)
        child = processes.Process(target=workers.rebuild_for_ever, args=(tmp_path, send))
        child.start()
        assert ready.poll(60)
        write_runs(store, [f"r{number}-{n}" for n in range(5)])
        child.join(random.uniform(0.0, 0.6))
        assert child.is_alive()
        child.kill()
        child.join()
        child.close()

        manifest = read_manifest(folder)
        known = {s.file for s in manifest.segments} | {d.file for d in manifest.dead}
        unfinished += bool(files(folder) - known - {"manifest.json", "lock.sqlite"})
        fresh_store, fresh = workers.open_both(tmp_path)
        for warehouse in (reader, fresh):
            assert workers.fault(warehouse, store, store.last_seq()) == ("", store.last_seq())
        if number % 5 == 4:
            report = fresh.sync()
            assert (report.done, report.watermark) == (True, store.last_seq())
            manifest = read_manifest(folder)
            known = {s.file for s in manifest.segments} | {d.file for d in manifest.dead}
            assert files(folder) == known | {"manifest.json", "lock.sqlite"}
            assert workers.fault(reader, store, store.last_seq())[0] == ""
        fresh.close()
        fresh_store.close()
    assert unfinished > 0  # else no kill came in the middle, and this test shows nothing
    repaired = parquet_files(folder)
    assert reader.rebuild().rebuilt
    assert parquet_files(folder) == repaired
    reader.close()
    store.close()
