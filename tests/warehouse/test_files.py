"""The folder on disk: damage, other versions, hostile names, files that come and go."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import msgspec
import pytest

from sag_research.errors import WarehouseError
from sag_research.log import SQLiteEventStore
from sag_research.model import Run
from sag_research.warehouse import VIEWS, _sync
from sag_research.warehouse._manifest import Dead, read_manifest, write_manifest
from sag_research.warehouse._tables import SCHEMAS
from tests.warehouse.support import everything, open_warehouse, parquet_files, step, write_runs

COUNT = "SELECT count(*) FROM steps"


@pytest.fixture
def store(tmp_path):
    with SQLiteEventStore(tmp_path / "log.sqlite") as store:
        write_runs(store, ["r1", "r2"])
        yield store


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "warehouse"


@pytest.fixture
def warehouse(store, folder):
    warehouse = open_warehouse(folder, store)
    warehouse.sync()
    yield warehouse
    warehouse.close()


def on_disk(folder: Path) -> set[str]:
    return {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}


# ---- damage


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b'{"format": "x"}', b'{"format": 1, "watermark": "x"}', b"\xff\xfe"]
)
def test_a_damaged_manifest_is_refused_and_a_rebuild_mends_it(warehouse, store, folder, data):
    rows = everything(warehouse)
    files = parquet_files(folder)
    (folder / "manifest.json").write_bytes(data)
    new = open_warehouse(folder, store)
    for act in (new.refresh, new.sync, lambda: new.sql(COUNT), lambda: warehouse.sql(COUNT)):
        with pytest.raises(WarehouseError, match=r"manifest\.json is damaged .*sag rebuild"):
            act()
    assert new.rebuild().rebuilt
    assert parquet_files(folder) == files
    assert everything(new) == everything(warehouse) == rows
    new.close()


def test_a_newer_manifest_is_refused_and_never_overwritten(warehouse, store, folder):
    newer = b'{"format": 2, "segments": {"another": "shape"}}'
    (folder / "manifest.json").write_bytes(newer)
    new = open_warehouse(folder, store)
    for act in (new.refresh, new.sync, new.rebuild, lambda: new.sql(COUNT)):
        with pytest.raises(WarehouseError, match=r"newer version \(format 2\); upgrade"):
            act()
    assert (folder / "manifest.json").read_bytes() == newer
    new.close()


def test_another_projection_is_built_again(warehouse, store, folder):
    rows = everything(warehouse)
    manifest = msgspec.structs.replace(read_manifest(folder), projection="0")
    write_manifest(folder, manifest)
    assert everything(warehouse) == rows
    assert warehouse.sync().rebuilt


def write_of_every_kind(store):
    write_runs(store, [f"new{store.last_seq()}"])


@pytest.mark.parametrize("table", [name for name in SCHEMAS if name != "source_rows"])
def test_a_missing_file_is_named_and_a_rebuild_mends_it(warehouse, store, folder, table):
    (missing,) = read_manifest(folder).files(table)
    (folder / missing).unlink()
    words = rf"(?=.*{table}).*is missing or damaged .*sag rebuild"
    for reader in (warehouse, open_warehouse(folder, store)):
        with pytest.raises(WarehouseError, match=words):
            everything(reader)
    write_of_every_kind(store)
    with pytest.raises(WarehouseError, match=words):
        warehouse.sync()
    assert warehouse.rebuild().rebuilt
    assert warehouse.sql("SELECT count(*) FROM events").rows() == [(store.last_seq(),)]
    memory = open_warehouse(None, store)
    assert everything(warehouse) == everything(reader) == everything(memory)
    memory.close(), reader.close()


def test_a_torn_file_is_an_error_in_our_words(warehouse, store, folder):
    torn = folder / read_manifest(folder).files("steps")[0]
    torn.write_bytes(torn.read_bytes()[:100])
    new = open_warehouse(folder, store)
    with pytest.raises(WarehouseError, match=r"missing or damaged .*sag rebuild"):
        new.sql("SELECT max(thought) FROM steps")
    store.append(step("r1"))
    with pytest.raises(WarehouseError, match=r"missing or damaged .*sag rebuild"):
        new.sync()
    assert new.rebuild().rebuilt
    assert new.sql(COUNT).rows() == [(7,)]
    new.close()


# ---- names


HOSTILE = [
    "it's", 'a "quoted" one', "[a-z]*?{b,c}", "dataset=swe", "run_id=x", "; DROP TABLE runs --",
    "~", "Ünï ☃", "a\nb", "$HOME", "%20#?x=1", "http:",
]  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_folder_may_have_any_name(tmp_path, name):
    place = tmp_path / name
    place.mkdir()
    with SQLiteEventStore(tmp_path / "log.sqlite") as store:
        write_runs(store, ["r1", "r2"])
        memory = open_warehouse(None, store)
        warehouse = open_warehouse(place / "warehouse", store)
        warehouse.sync()
        assert everything(warehouse) == everything(memory)
        if "?" not in name:  # DuckDB takes what follows for settings when it names its own log
            assert warehouse.export_duckdb(place / "copy.duckdb").exists()
        memory.close(), warehouse.close()


def test_a_relative_folder_stays_where_it_was(tmp_path, store, monkeypatch):
    monkeypatch.chdir(tmp_path)
    warehouse = open_warehouse(Path("study"), store)
    warehouse.sync()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert warehouse.sql(COUNT).rows() == [(6,)]
    store.append(step("r1"))
    assert warehouse.sync().events == 1
    assert warehouse.sql(COUNT).rows() == [(7,)]
    assert list((tmp_path / "elsewhere").iterdir()) == []
    warehouse.close()


# ---- files that come and go


def test_a_replaced_file_stays_for_readers_until_its_grace_is_over(
    warehouse, store, folder, monkeypatch
):
    old = set(parquet_files(folder))
    reader = open_warehouse(folder, store)
    reader.refresh()
    store.append(step("r1", "x.py y.py"))
    warehouse.sync()
    gone = old - set(parquet_files(folder))
    assert gone == {d.file for d in read_manifest(folder).dead}
    assert {name.split("/")[-1].split("-")[0] for name in gone} == {
        "events", "steps", "mentions", "relations",
    }  # fmt: skip
    assert gone <= on_disk(folder)
    assert reader.connection.execute(COUNT).fetchall() == [(6,)]  # the old state, still readable

    monkeypatch.setattr(_sync, "GRACE_SECONDS", -1.0)
    warehouse.sync()
    assert not gone & on_disk(folder)
    assert read_manifest(folder).dead == ()
    assert reader.sql(COUNT).rows() == [(7,)]
    reader.close()


def test_a_reader_that_is_overtaken_by_a_collection_reads_again(
    warehouse, store, folder, monkeypatch
):
    """The file goes after the reader has looked at the manifest and before it opens the file."""
    reader = open_warehouse(folder, store)
    monkeypatch.setattr(_sync, "GRACE_SECONDS", -1.0)
    run = reader._run
    overtaken = []

    def overtake(query, parameters):
        if not overtaken:
            overtaken.append(True)
            store.append(step("r1", "x.py"))
            warehouse.sync()
        return run(query, parameters)

    monkeypatch.setattr(reader, "_run", overtake)
    assert reader.sql(COUNT).rows() == [(7,)]
    assert overtaken
    reader.close()


def test_orphans_of_a_killed_sync_are_collected(warehouse, folder):
    before = on_disk(folder)
    orphans = [
        "segments/steps-00000-0123456789abcdef.parquet",
        "segments/.steps-00000-0123456789abcdef.parquet.x1.tmp",
        "mentions/tiny-0/mentions-00000-0123456789abcdef.parquet",
        ".sag-abc.tmp",
    ]
    for name in orphans:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(b"half")
    (folder / "notes.txt").write_bytes(b"a user's own")
    warehouse.sync()
    assert on_disk(folder) == before | {"notes.txt"}


def test_a_file_that_comes_back_to_life_is_not_collected(warehouse, store, folder, monkeypatch):
    """Names follow content: a rebuild may need a file again that was replaced."""
    names = set(parquet_files(folder))
    manifest = read_manifest(folder)
    dead = tuple(Dead(file=name, time=0.0) for name in names)
    write_manifest(folder, msgspec.structs.replace(manifest, dead=dead, projection="0"))
    warehouse.sync()
    assert set(parquet_files(folder)) == names
    assert warehouse.sql(COUNT).rows() == [(6,)]


def test_the_folder_holds_nothing_but_the_warehouse(warehouse, folder):
    named = set(parquet_files(folder))
    rest = on_disk(folder) - named
    assert rest == {"manifest.json", "lock.sqlite"}
    sizes = {s.file: s.bytes for s in read_manifest(folder).segments}
    assert sizes == {name: Path(folder / name).stat().st_size for name in named}


def test_a_warehouse_in_memory_leaves_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with SQLiteEventStore(":memory:") as store:
        write_runs(store, ["r1"])
        warehouse = open_warehouse(None, store)
        assert not warehouse.sync().done
        assert {view: len(warehouse.sql(f"FROM {view}")) for view in VIEWS}["steps"] == 3
        warehouse.close()
        warehouse.close()
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_text_costs_one_event(tmp_path):
    with SQLiteEventStore(tmp_path / "log.sqlite") as store:
        store.create_run(Run(run_id="r1", goal="g" * 600))
        store.append_many(step("r1", text) for text in ("a.py", "b" * 600, "c.py"))
        with sqlite3.connect(tmp_path / "log.sqlite") as other:
            other.execute("UPDATE blobs SET data = x'00', enc = 1")
        other.close()
    with SQLiteEventStore(tmp_path / "log.sqlite") as store:
        for folder in (None, tmp_path / "warehouse"):
            warehouse = open_warehouse(folder, store)
            if folder:
                assert warehouse.sync().events == store.last_seq()
            rows = warehouse.sql("SELECT step, action, flags FROM steps ORDER BY step").rows()
            assert rows == [(0, "a.py", []), (1, "", ["unreadable"]), (2, "c.py", [])]
            assert warehouse.sql("SELECT goal FROM runs").rows() == [
                ("(unreadable; see `sag verify`)",)
            ]
            warehouse.close()
        assert not store.verify().ok
