"""One workspace, several processes: exact answers at all times, and nobody waits for anybody."""

from __future__ import annotations

import multiprocessing
import time
from contextlib import contextmanager

import pytest

from sag_research.errors import UsageError
from tests.warehouse import workers
from tests.warehouse.support import write_runs

PROCESSES = multiprocessing.get_context("spawn")


@pytest.fixture
def start():
    """``start(function, *arguments)``: run it in a process that does not outlive the test."""
    started = []

    def run(function, *arguments):
        process = PROCESSES.Process(target=function, args=arguments, daemon=True)
        process.start()
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.join()
        process.close()


@contextmanager
def opened(study):
    store, warehouse = workers.open_both(study)
    yield store, warehouse
    warehouse.close()
    store.close()


@pytest.fixture(autouse=True)
def _own_settings(monkeypatch):
    for module, name in (
        (workers._sync, "SEGMENT_EVENTS"), (workers._sync, "GRACE_SECONDS"),
        (workers._sync, "_SEARCHED_STEPS"), (workers._warehouse, "CHUNK"),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, getattr(module, name))


class Crew:
    """Some processes that begin together, work for a while and are asked to stop."""

    def __init__(self, start, study, size):
        self._start, self._study = start, study
        self.stop, self._barrier = PROCESSES.Event(), PROCESSES.Barrier(size + 1)
        self.counts, self._processes = [], []

    def add(self, function, *arguments):
        self.counts.append(PROCESSES.Value("i", 0))
        common = (self._study, self.stop, self._barrier, self.counts[-1])
        self._processes.append(self._start(function, *common, *arguments))

    def work(self, seconds, *wanted):
        """Let them work for some seconds, and on until each has done what is wanted of it."""
        self._barrier.wait(workers.WAIT)
        begun = time.monotonic()
        while (spent := time.monotonic() - begun) < workers.WAIT:
            alive = all(process.is_alive() for process in self._processes)
            enough = all(c.value >= w for c, w in zip(self.counts, wanted, strict=True))
            if not alive or (enough and spent >= seconds):
                break
            self.stop.wait(0.1)
        self.stop.set()
        for process in self._processes:
            process.join(workers.WAIT)
            assert process.exitcode == 0
        assert [c.value >= w for c, w in zip(self.counts, wanted, strict=True)] == [True] * len(
            wanted
        )


@pytest.mark.parametrize(
    "seconds", [12, pytest.param(60, marks=[pytest.mark.slow, pytest.mark.timeout(300)])]
)
def test_an_agent_a_syncer_and_a_reader_share_a_workspace(tmp_path, start, seconds):
    workers.open_both(tmp_path)[0].close()
    read, to_reader = PROCESSES.Pipe(duplex=False)
    _synced, to_syncer = PROCESSES.Pipe(duplex=False)
    crew = Crew(start, tmp_path, 3)
    crew.add(workers.append_until)
    crew.add(workers.sync_until, to_syncer, 0.5)
    crew.add(workers.query_until, to_reader)
    crew.work(seconds, 2 * workers.SEGMENT_EVENTS, 5, 20)
    assert read.recv() == ""
    with opened(tmp_path) as (store, warehouse):
        assert store.last_seq() == crew.counts[0].value
        assert workers.fault(warehouse, store, store.last_seq()) == ("", store.last_seq())
        assert warehouse.sync().watermark == store.last_seq()
        assert workers.fault(warehouse, store, store.last_seq()) == ("", store.last_seq())


def test_two_syncers_lose_nothing_and_do_nothing_twice(tmp_path, start):
    workers.open_both(tmp_path)[0].close()
    pipes = [PROCESSES.Pipe(duplex=False) for _ in range(2)]
    crew = Crew(start, tmp_path, 3)
    crew.add(workers.append_until)
    for _, send in pipes:
        crew.add(workers.sync_until, send, 0.01)
    crew.work(4, workers.SEGMENT_EVENTS, 1, 1)
    reports = [receive.recv() for receive, _ in pipes]
    with opened(tmp_path) as (store, warehouse):
        rest = warehouse.sync()
        assert rest.watermark == store.last_seq()
        assert sum(events for _, events in reports) + rest.events == store.last_seq()
        assert sum(refused for refused, _ in reports) > 0  # they did meet
        assert workers.fault(warehouse, store, store.last_seq())[0] == ""


def test_a_second_syncer_leaves_at_once_and_readers_do_not_care(tmp_path, start):
    with opened(tmp_path) as (store, warehouse):
        write_runs(store, ["r1", "r2"])
        warehouse.sync()
        write_runs(store, ["r3"])
        stop = PROCESSES.Event()
        ready, send = PROCESSES.Pipe(duplex=False)
        holder = start(workers.hold_lock, tmp_path, send, stop)
        assert ready.poll(60)
        assert ready.recv() is True
        report = warehouse.sync()
        assert (report.done, report.events, report.watermark) == (False, 0, 13)
        with pytest.raises(UsageError, match=r"process \d+ .* is syncing"):
            warehouse.rebuild()
        assert warehouse.sql("SELECT count(*) FROM runs").rows() == [(3,)]
        stop.set()
        holder.join(60)
        assert warehouse.sync().events == 6
        assert warehouse.sql("SELECT count(*) FROM runs").rows() == [(3,)]
