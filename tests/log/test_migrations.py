"""Logs of older versions open, and what a newer version did is not half done."""

from __future__ import annotations

import json
import shutil
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from sag_research.errors import SchemaError, StoreError
from sag_research.log import SQLiteEventStore, _connection, find_call
from sag_research.model import Event, Run
from tests.log.golden.make_v1 import KEY, LONG, fill

GOLDEN = Path(__file__).parent / "golden"
NEXT = """
ALTER TABLE runs ADD COLUMN shade TEXT NOT NULL DEFAULT 'grey';
CREATE TABLE more (run INTEGER NOT NULL REFERENCES runs) STRICT;
"""


@pytest.fixture
def golden(tmp_path: Path) -> Path:
    return Path(shutil.copy(GOLDEN / "v1.sqlite", tmp_path / "log.sqlite"))


def expect_golden(store: SQLiteEventStore) -> None:
    """What was written with version 1 is all there, and can be gone on with."""
    expected = json.loads((GOLDEN / "v1.json").read_text(encoding="utf-8"))
    heads = {run.run_id: list(store.head(run.run_id)) for run in store.runs()}
    assert heads == expected
    assert store.verify().to_dict() == {"ok": True, "runs": 5, "problems": [], "redacted": 1}
    root = store.get_run("root")
    assert (root.goal, root.label, root.attempt) == (f"mend it {LONG}", "l", 2)
    assert root.config == {"n": [1, 2.5, None, True, {"deep": "\x00é"}]}
    assert (root.created_at, root.source_id) == (1.7e9, "0" * 16)
    payloads = [e.payload for e in store.read("grandchild", types=["agent.step"])]
    assert payloads[0]["observation"] == f"0 {LONG}"
    assert payloads[0]["usage"] == {"tokens_in": 10**30}
    assert next(store.read("child", lo=3)).payload["redacted"] == "a name"
    assert next(store.read("flat", lo=3)).payload["observation"] == f"1 {LONG}"
    found = find_call(store, KEY, 0, "root")
    assert found is not None
    assert (found.position, found.frame, found.cause) == (7, "f", 2)


def test_a_log_of_version_1_is_read_as_it_was_written(golden: Path) -> None:
    with SQLiteEventStore(golden, read_only=True) as store:
        expect_golden(store)
    with SQLiteEventStore(golden) as store:
        expect_golden(store)
        store.append(Event(run_id="grandchild", type="note.taken", payload={"n": 1}))
        store.fork("flat", at=5, run_id="new")
        assert store.verify().ok


def test_the_same_history_still_has_the_same_digests(tmp_path: Path) -> None:
    with SQLiteEventStore(tmp_path / "log.sqlite") as store:
        fill(store)
        expect_golden(store)


def test_there_is_a_step_from_every_older_version() -> None:
    assert sorted(_connection.MIGRATIONS) == list(range(1, _connection.SCHEMA_VERSION))


@pytest.fixture
def newer(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the next version of this package were installed."""
    monkeypatch.setattr(_connection, "SCHEMA_VERSION", 2)
    monkeypatch.setattr(_connection, "MIGRATIONS", {1: NEXT})


def version(path: Path) -> int:
    with closing(sqlite3.connect(path)) as db:
        return int(db.execute("PRAGMA user_version").fetchone()[0])


@pytest.mark.usefixtures("newer")
def test_an_older_log_is_brought_up_to_date_with_a_backup(golden: Path) -> None:
    with SQLiteEventStore(golden) as store:
        expect_golden(store)
        assert set(store._db.execute("SELECT shade FROM runs")) == {("grey",)}
        assert store._db.execute("PRAGMA foreign_keys").fetchone() == (1,)
    backup = golden.with_name("log.sqlite.v1.backup")
    assert {p.name for p in golden.parent.iterdir()} == {golden.name, backup.name}
    assert (version(golden), version(backup)) == (2, 1)
    before = backup.read_bytes()
    SQLiteEventStore(golden).close()
    assert backup.read_bytes() == before


def test_a_backup_holds_what_was_not_yet_in_the_main_file(
    golden: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process of the older version still has the log open."""
    with SQLiteEventStore(golden) as old:
        old.create_run(Run(run_id="late"))
        monkeypatch.setattr(_connection, "SCHEMA_VERSION", 2)
        monkeypatch.setattr(_connection, "MIGRATIONS", {1: NEXT})
        SQLiteEventStore(golden).close()
    monkeypatch.undo()
    with SQLiteEventStore(golden.with_name("log.sqlite.v1.backup")) as backup:
        assert backup.has_run("late")
        assert backup.verify().ok


@pytest.mark.usefixtures("newer")
def test_an_older_log_is_not_changed_by_reading(golden: Path) -> None:
    before = golden.read_bytes()
    with pytest.raises(SchemaError, match="older schema version 1") as caught:
        SQLiteEventStore(golden, read_only=True)
    assert caught.value.fix
    assert golden.read_bytes() == before


def test_a_newer_log_is_refused_and_left_alone(
    golden: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as newer:
        newer.setattr(_connection, "SCHEMA_VERSION", 2)
        newer.setattr(_connection, "MIGRATIONS", {1: NEXT})
        SQLiteEventStore(golden).close()
    before = golden.read_bytes()
    for read_only in (False, True):
        with pytest.raises(SchemaError, match="schema version 2"):
            SQLiteEventStore(golden, read_only=read_only)
    assert golden.read_bytes() == before


@pytest.mark.parametrize(
    "step",
    [NEXT + "INSERT INTO nowhere VALUES (1);\n", NEXT + "INSERT INTO more VALUES (99);\n"],
    ids=["fails", "leaves rows without what they refer to"],
)
def test_a_step_that_fails_changes_nothing(
    golden: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    with monkeypatch.context() as newer:
        newer.setattr(_connection, "SCHEMA_VERSION", 2)
        newer.setattr(_connection, "MIGRATIONS", {1: step})
        with pytest.raises(StoreError):
            SQLiteEventStore(golden)
    assert version(golden) == 1
    with SQLiteEventStore(golden) as store:
        expect_golden(store)


@pytest.mark.usefixtures("newer")
def test_several_openings_at_once_migrate_once(golden: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        stores = list(pool.map(lambda _: SQLiteEventStore(golden), range(4)))
    for store in stores:
        expect_golden(store)
        store.close()
    assert version(golden.with_name("log.sqlite.v1.backup")) == 1
