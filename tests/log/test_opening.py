"""Opening a log: what is no log is refused by name and left as it is."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from sag_research.errors import BusyError, SagError, SchemaError, StoreError, UsageError
from sag_research.log import SQLiteEventStore, _connection
from sag_research.model import Event, Run

LONG = "a text of more than five hundred bytes " * 20


def make_log(path: Path) -> Path:
    with SQLiteEventStore(path) as store:
        store.create_run(Run(run_id="r"))
    return path


def text_file(path: Path) -> None:
    path.write_text("this is no database at all\n" * 100, encoding="utf-8")


def others_database(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE events (id INTEGER)")
        db.commit()


def others_with_our_version(path: Path) -> None:
    others_database(path)
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version = 1")
        db.commit()


def newer(path: Path) -> None:
    make_log(path)
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version = 99")
        db.commit()


def without_id(path: Path) -> None:
    make_log(path)
    with closing(sqlite3.connect(path)) as db:
        db.execute("DELETE FROM meta")
        db.commit()


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize(
    ("make", "kind", "words"),
    [
        (text_file, SchemaError, "is not a log"),
        (others_database, SchemaError, "another program's database"),
        (others_with_our_version, SchemaError, "another program's database"),
        (newer, SchemaError, "schema version 99"),
        (without_id, SchemaError, "lost its id"),
        (Path.mkdir, StoreError, "could not be used"),
    ],
)
def test_what_is_no_log_is_refused_and_untouched(
    tmp_path: Path,
    make: Callable[[Path], object],
    kind: type[SagError],
    words: str,
    read_only: bool,
) -> None:
    path = tmp_path / "log.sqlite"
    make(path)
    before = path.read_bytes() if path.is_file() else None
    with pytest.raises(kind, match=words) as caught:
        SQLiteEventStore(path, read_only=read_only)
    assert str(path) in str(caught.value)
    assert caught.value.fix
    assert (path.read_bytes() if path.is_file() else None) == before


def test_a_log_without_a_table_is_damaged(tmp_path: Path) -> None:
    path = make_log(tmp_path / "log.sqlite")
    with closing(sqlite3.connect(path)) as db:
        db.execute("DROP TABLE meta")
        db.commit()
    with pytest.raises(StoreError, match="no such table: meta"):
        SQLiteEventStore(path)


def test_a_log_with_a_bad_page_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "log.sqlite"
    with SQLiteEventStore(path) as store:
        store.create_run(Run(run_id="r"))
        store.append_many(
            [Event(run_id="r", type="note.taken", payload={"n": n}) for n in range(500)]
        )
    whole = path.read_bytes()
    half = len(whole) // 8192 * 4096
    path.write_bytes(whole[:half] + b"\xff" * (len(whole) - half))
    with SQLiteEventStore(path, read_only=True) as store:
        for attempt in (lambda: list(store.tail()), lambda: list(store.read("r"))):
            with pytest.raises(StoreError, match="is damaged") as caught:
                attempt()
            assert type(caught.value) is StoreError
        report = store.verify()
        assert [(p.run, p.problem.split(":")[0]) for p in report.problems] == [
            ("r", "damaged"), ("(file)", "damaged"),
        ]  # fmt: skip
        assert 1 <= report.problems[0].position <= 500


@pytest.mark.parametrize("read_only", [False, True])
def test_a_missing_folder_is_said(tmp_path: Path, read_only: bool) -> None:
    with pytest.raises(StoreError, match="folder"):
        SQLiteEventStore(tmp_path / "none" / "log.sqlite", read_only=read_only)
    assert list(tmp_path.iterdir()) == []


def test_a_log_is_not_made_by_reading(tmp_path: Path) -> None:
    with pytest.raises(StoreError):
        SQLiteEventStore(tmp_path / "log.sqlite", read_only=True)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "empty").touch()
    with pytest.raises(SchemaError, match="holds no log"):
        SQLiteEventStore(tmp_path / "empty", read_only=True)
    assert (tmp_path / "empty").stat().st_size == 0


def test_an_empty_file_becomes_a_log(tmp_path: Path) -> None:
    (tmp_path / "log.sqlite").touch()
    make_log(tmp_path / "log.sqlite")


def test_an_unknown_setting_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="OFF"):
        SQLiteEventStore(tmp_path / "log.sqlite", synchronous="OFF")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("synchronous", "number"), [("NORMAL", 1), ("FULL", 2)])
def test_settings_of_the_connection(tmp_path: Path, synchronous: str, number: int) -> None:
    path = make_log(tmp_path / "log.sqlite")
    with SQLiteEventStore(path, synchronous=synchronous) as store:
        settings = {
            name: store._db.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("synchronous", "journal_mode", "foreign_keys", "user_version")
        }
    assert settings == {
        "synchronous": number, "journal_mode": "wal", "foreign_keys": 1, "user_version": 1,
    }  # fmt: skip


@pytest.mark.parametrize("name", ["a b.sqlite", "50%25.sqlite", "why?mode=ro", "#1", "ünï.sqlite"])
def test_any_file_name_is_taken_as_it_is(tmp_path: Path, name: str) -> None:
    make_log(tmp_path / name)
    assert [p.name for p in tmp_path.iterdir()] == [name]
    assert SQLiteEventStore(str(tmp_path / name)).has_run("r")


def test_a_relative_path_stays_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with SQLiteEventStore("log.sqlite") as store:
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir("elsewhere")
        store.create_run(Run(run_id="r"))
    assert [p.name for p in tmp_path.iterdir() if p.is_file()] == ["log.sqlite"]


def test_the_id_is_the_files(tmp_path: Path) -> None:
    first, second = tmp_path / "1.sqlite", tmp_path / "2.sqlite"
    ids = [SQLiteEventStore(path).log_id for path in (first, second, first, ":memory:")]
    assert ids[0] == ids[2]
    assert len(set(ids)) == 3
    assert all(len(log_id) == 32 and int(log_id, 16) for log_id in ids)


def test_a_reader_does_not_write(tmp_path: Path) -> None:
    path = make_log(tmp_path / "log.sqlite")
    with SQLiteEventStore(path, read_only=True) as store:
        for attempt in (
            lambda: store.append(Event(run_id="r", type="note.taken")),
            lambda: store.create_run(Run(run_id="s")),
            lambda: store.fork("r"),
            lambda: store.put_blob(b"x"),
        ):
            with pytest.raises(StoreError, match="can only be read"):
                attempt()
        assert [run.run_id for run in store.runs()] == ["r"]
        assert store.verify().ok


def read_as_nobody(path: Path) -> int:
    """Read a log in a child process without any rights; returns its exit code."""
    if (child := os.fork()) == 0:
        code = 1
        try:
            os.setuid(65_534)
            with SQLiteEventStore(path, read_only=True) as store:
                code = 0 if store.has_run("r") and store.verify().ok else 2
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_log_in_a_folder_without_rights_can_be_read() -> None:
    """As a published data set is, or a mounted snapshot: SQLite cannot lay its files beside it."""
    folder = Path(tempfile.mkdtemp())
    path = make_log(folder / "log.sqlite")
    path.chmod(0o444)
    folder.chmod(0o555)
    try:
        if os.getuid() == 0:
            assert read_as_nobody(path) == 0
        else:
            with SQLiteEventStore(path, read_only=True) as store:
                assert store.has_run("r")
                assert store.verify().ok
        assert [p.name for p in folder.iterdir()] == ["log.sqlite"]
    finally:
        folder.chmod(0o755)
        shutil.rmtree(folder)


def test_a_closed_store_says_so(tmp_path: Path) -> None:
    store = SQLiteEventStore(tmp_path / "log.sqlite")
    store.create_run(Run(run_id="r"))
    store.close()
    store.close()
    for attempt in (
        lambda: store.append(Event(run_id="r", type="note.taken")),
        lambda: store.runs(),
        lambda: list(store.tail()),
        lambda: store.read("r"),
        lambda: store.verify(),
        lambda: store.blob("00" * 32),
    ):
        with pytest.raises(StoreError, match="was closed"):
            attempt()
    assert not (tmp_path / "log.sqlite-wal").exists()


def test_a_forgotten_store_closes_its_file(tmp_path: Path) -> None:
    store = SQLiteEventStore(tmp_path / "log.sqlite")
    store.create_run(Run(run_id="r"))
    assert (tmp_path / "log.sqlite-wal").exists()
    del store
    assert [p.name for p in tmp_path.iterdir()] == ["log.sqlite"]


@pytest.mark.parametrize(
    "attempt",
    [
        lambda store: store.append(Event(run_id="r", type="note.taken")),
        lambda store: store.create_run(Run(run_id="s")),
        lambda store: store.fork("r"),
        lambda store: store.put_blob(b"x"),
    ],
    ids=["append", "create_run", "fork", "put_blob"],
)
def test_a_locked_log_is_busy_and_then_works(
    tmp_path: Path, attempt: Callable[[SQLiteEventStore], object]
) -> None:
    path = make_log(tmp_path / "log.sqlite")
    with SQLiteEventStore(path, timeout=0.05) as store, closing(sqlite3.connect(path)) as other:
        other.isolation_level = None
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(BusyError, match="locked"):
            attempt(store)
        assert [e.type for e in store.read("r")] == ["run.created"]  # reading goes on
        other.execute("ROLLBACK")
        attempt(store)
        assert store.verify().ok


def test_a_short_lock_is_waited_for(tmp_path: Path) -> None:
    path = make_log(tmp_path / "log.sqlite")
    with SQLiteEventStore(path) as store, SQLiteEventStore(path) as other:
        with other.transaction():
            other.append(Event(run_id="r", type="note.taken"))
            thread = threading.Thread(
                target=store.append, args=[Event(run_id="r", type="note.taken")]
            )
            thread.start()
            thread.join(0.1)
            assert thread.is_alive()
        thread.join(30)
        assert store.head("r").position == 3


def test_a_new_file_locked_by_another_is_busy(tmp_path: Path) -> None:
    path = tmp_path / "log.sqlite"
    with closing(sqlite3.connect(path)) as other:
        other.isolation_level = None
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(BusyError):
            SQLiteEventStore(path, timeout=0.05)
    make_log(path)


# ---- being created by several at once


def test_a_new_file_that_another_writes_is_waited_for(tmp_path: Path) -> None:
    """SQLite itself does not wait when it switches a file to WAL."""
    path = tmp_path / "log.sqlite"
    with closing(sqlite3.connect(path)) as other, ThreadPoolExecutor(1) as thread:
        other.isolation_level = None
        other.execute("BEGIN IMMEDIATE")
        opening = thread.submit(make_log, path)
        with pytest.raises(TimeoutError):
            opening.result(0.1)
        other.execute("ROLLBACK")
        assert opening.result(30) == path


class Interrupted:
    """A connection during whose first statement another process makes the log."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.db = sqlite3.connect(path)

    def execute(self, statement: str) -> sqlite3.Cursor:
        rows = self.db.execute(statement).fetchall()
        if self.path.stat().st_size == 0:
            make_log(self.path)
        return self.db.execute("VALUES (?)", rows[0])


def test_a_log_made_while_we_look_is_a_log(tmp_path: Path) -> None:
    path = tmp_path / "log.sqlite"
    path.touch()
    interrupted = Interrupted(path)
    with closing(interrupted.db):
        assert _connection._version(interrupted, str(path)) == 1


# ---- a full disk


def random_note(size: int) -> Event:
    return Event(run_id="r", type="note.taken", payload={"text": os.urandom(size).hex()})


def leave_room(store: SQLiteEventStore, pages: int) -> None:
    count = store._db.execute("PRAGMA page_count").fetchone()[0]
    store._db.execute(f"PRAGMA max_page_count={count + pages}")


def test_a_full_disk_leaves_nothing_half_written(tmp_path: Path) -> None:
    with SQLiteEventStore(make_log(tmp_path / "log.sqlite")) as store:
        acknowledged = []

        def fill() -> None:
            for _ in range(100):
                acknowledged.append(store.append(random_note(3_000)))

        leave_room(store, 20)
        with pytest.raises(StoreError, match="full"):
            fill()
        with pytest.raises(StoreError, match="full"):
            store.append_many([random_note(3_000) for _ in range(50)])
        with pytest.raises(StoreError, match="full"):
            store.create_run(Run(run_id="s", config={str(n): LONG + str(n) for n in range(2_000)}))
        with pytest.raises(StoreError, match="full"):
            store.fork("r", run_id="c", intervention={str(n): LONG[:500] for n in range(500)})
        assert 2 <= len(acknowledged) < 100
        assert list(store.read("r", lo=2)) == acknowledged
        assert [run.run_id for run in store.runs()] == ["r"]
        assert store.verify().ok

        leave_room(store, 10_000)
        after = store.append(random_note(3_000))
        assert after.position == len(acknowledged) + 2
        store.create_run(Run(run_id="s"))
        store.fork("r", run_id="c")
        assert store.verify().to_dict() == {"ok": True, "runs": 3, "problems": []}
        assert list(store.read("r", lo=after.position)) == [after]


def test_a_transaction_that_the_full_disk_undid_is_not_half_kept(tmp_path: Path) -> None:
    """SQLite rolls all of it back; what a caller writes after swallowing that must not stay."""
    with SQLiteEventStore(make_log(tmp_path / "log.sqlite")) as store:

        def careless() -> None:
            with store.transaction():
                store.append(random_note(10))
                with pytest.raises(StoreError, match="full"):
                    store.append_many([random_note(3_000) for _ in range(50)])
                with pytest.raises(StoreError, match="lost"):
                    store.append(random_note(10))

        leave_room(store, 20)
        with pytest.raises(StoreError, match="lost"):
            careless()
        assert [e.type for e in store.read("r")] == ["run.created"]
        assert store.append(random_note(10)).position == 2
        assert store.verify().ok
