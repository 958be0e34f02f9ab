"""Migrations that are killed: the log is old and whole, or new and whole."""

from __future__ import annotations

import random
import shutil
import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from sag_research.log import SQLiteEventStore
from sag_research.log._connection import connect
from sag_research.log._verify import verify_log
from sag_research.model import Run
from tests.faults.test_log_kill import line, started, tell
from tests.log import writer

KILLS = 20
EVENTS = 4_000
OLD, NEW = 1, 3


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A log of the older version, of some megabytes."""
    path = tmp_path / "base.sqlite"
    with SQLiteEventStore(path) as store:
        store.create_run(Run(run_id="r"))
        store.append_many([writer.note("r", "n", number) for number in range(EVENTS)])
    return path


def contents(path: Path) -> tuple[int, Any, Any]:
    """Version, events and texts of a log, which must be whole."""
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert verify_log(db, threading.RLock()).ok
        version = db.execute("PRAGMA user_version").fetchone()[0]
        events = db.execute("SELECT count(*), max(seq), max(pos) FROM events").fetchone()
        texts = db.execute("SELECT count(*), sum(size) FROM blobs").fetchone()
        if version == NEW:
            assert db.execute("SELECT count(*) FROM sizes").fetchone()[0] == events[0]
            assert set(db.execute("SELECT shade FROM runs")) == {("grey",)}
    return version, events, texts


def phases(base: Path, path: Path, backup: Path) -> tuple[float, float]:
    """Seconds that a migration takes up to its backup, and from there on."""
    shutil.copy(base, path)
    began = time.time()
    connect(str(path), migrations=writer.STEPS).close()
    there = backup.stat().st_ctime
    return max(there - began, 0.0), max(time.time() - there, 0.0)


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < deadline
        time.sleep(0.0005)


def test_a_killed_migration_is_whole_or_absent(base: Path, tmp_path: Path) -> None:
    _, *kept = contents(base)
    path, backup = tmp_path / "log.sqlite", tmp_path / "log.sqlite.v1.backup"
    before, after = phases(base, path, backup)
    moment, old, backed_up = random.Random(21), 0, 0
    for number in range(KILLS):
        for left in tmp_path.glob("log.sqlite*"):
            left.unlink()
        shutil.copy(base, path)
        with started("migrate", path, "x") as [process]:
            assert line(process) == "ready"
            tell(process, "go")
            if number % 2:
                wait_for(backup)
            time.sleep(moment.uniform(0, 1.4 * (after if number % 2 else before)))
        version, *found = contents(path)
        assert version in (OLD, NEW)
        assert found == kept
        old, backed_up = old + (version == OLD), backed_up + backup.exists()
        if backup.exists():
            assert contents(backup) == (OLD, *kept)
        else:
            assert version == OLD
        connect(str(path), migrations=writer.STEPS).close()
        assert contents(path) == (NEW, *kept)
        assert contents(backup) == (OLD, *kept)
        assert {left.name for left in tmp_path.glob("log.sqlite*")} == {path.name, backup.name}
    assert old  # else none of the moments was early enough,
    assert backed_up  # or all of them were
