"""What is redacted leaves the warehouse: what it shows, and what its files hold."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import sag_research as sag
from sag_research.log import SQLiteEventStore
from sag_research.model import WORKSPACE_RUN, Event, Run
from sag_research.warehouse import Warehouse, _sync
from sag_research.warehouse._manifest import read_manifest
from tests.warehouse.conftest import Study
from tests.warehouse.support import everything, open_warehouse, parquet_files, step, write_runs

SECRET = "swordfish.py"
REDACT = """
import sys
from sag_research.log import SQLiteEventStore
with SQLiteEventStore(sys.argv[1]) as store:
    store.redact(sys.argv[2], int(sys.argv[3]), "a password")
"""


def redact_elsewhere(log: str | Path, run_id: str, position: int) -> None:
    """Redact in a process of its own, which knows nothing of a warehouse."""
    subprocess.run([sys.executable, "-c", REDACT, str(log), run_id, str(position)],
                   check=True, timeout=60)  # fmt: skip


def files_with(folder: Path, text: str = SECRET) -> list[str]:
    """Parquet files of which any column, once unpacked, holds a text."""
    import pyarrow.parquet as pq

    return [
        path.name
        for path in folder.rglob("*.parquet")
        if text in str(pq.read_table(path, partitioning=None).to_pydict())
        or text.encode() in path.read_bytes()
    ]


def shown(warehouse: Warehouse, text: str = SECRET) -> list[str]:
    """Views that show a text."""
    return [view for view, rows in everything(warehouse).items() if text in str(rows)]


def write(store: SQLiteEventStore) -> None:
    """r1 has the secret at position 3; its fork inherits it; r2 comes after."""
    store.create_run(Run(run_id="r1", repo="a/b", task_id="t1"))
    calls = [{"name": "bash", "text": "cat"}, {"name": "edit", "text": SECRET}]
    store.append_many(
        [step("r1", "a.py b.py"), step("r1", f"cat {SECRET} a.py", calls=calls), step("r1", "c.py")]
    )
    store.fork("r1", at=4, run_id="child")
    store.append(step("child", "d.py"))
    write_runs(store, ["r2", "r3"])


def test_a_redaction_is_seen_in_every_state(study: Study) -> None:
    write(study.store)
    study.checkpoint()
    assert "steps" in shown(study.warehouse)
    study.add(step("r1", "e.py"))
    study.checkpoint()
    redact_elsewhere(study.store.path, "r1", 3)
    assert shown(study.warehouse) == []
    rows = study.rows("SELECT step, thought, action, observation, n_calls FROM steps"
                      " WHERE run_id = 'r1' AND position = 3")  # fmt: skip
    assert rows == [(1, "", "", "", 0)]
    assert study.one("SELECT count(*) FROM calls WHERE run_id = 'r1' AND step = 1") == 0
    assert study.one("SELECT count(*) FROM steps_all WHERE run_id = 'child' AND inherited") == 3
    assert study.one("SELECT count(DISTINCT seq) = count(*) FROM events")
    assert study.one("SELECT n_steps FROM runs WHERE run_id = 'r1'") == 4
    fresh = open_warehouse(None, study.store)
    assert everything(study.warehouse) == everything(fresh)
    fresh.close()


@pytest.fixture
def ws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[sag.Workspace]:
    """A workspace on disk whose segments are sealed after 7 events."""
    monkeypatch.setattr(_sync, "SEGMENT_EVENTS", 7)
    with sag.open(tmp_path / "study") as opened:
        write(opened.store)
        opened.sync()
        yield opened


def folder_of(ws: sag.Workspace) -> Path:
    assert ws.warehouse.folder is not None
    return ws.warehouse.folder


def test_redacted_elsewhere_and_gone_from_views_and_files(ws: sag.Workspace) -> None:
    manifest = read_manifest(folder_of(ws))
    sealed = {s.file: s.sealed for s in manifest.segments if s.table == "steps"}
    held = files_with(folder_of(ws))
    assert any(sealed.get(f"segments/{name}") for name in held)
    redact_elsewhere(ws.store.path, "r1", 3)
    query = "SELECT body FROM events WHERE type = 'body.redacted'"
    assert "a password" in ws.sql(query).rows()[0][0]
    assert shown(ws.warehouse) == []
    assert files_with(folder_of(ws)) == []
    # what was written then is what a rebuild writes, and what has no stale row was left alone
    written = parquet_files(folder_of(ws))
    assert written.keys() & set(sealed)
    ws.rebuild()
    assert parquet_files(folder_of(ws)) == written
    assert ws.verify().ok


def test_a_file_still_waiting_for_readers_goes_too(ws: sag.Workspace) -> None:
    """An open segment that was replaced is kept for its readers, but not with a secret in it."""
    ws.store.append(step("r3", f"now {SECRET}"))
    ws.sync()
    ws.store.append(step("r3", "more"))
    ws.sync()
    waiting = {dead.file for dead in read_manifest(folder_of(ws)).dead}
    assert {f"segments/{name}" for name in files_with(folder_of(ws))} & waiting
    ws.redact("r1", 3)
    ws.redact("r3", ws.store.head("r3").position - 1)
    assert files_with(folder_of(ws)) == []
    assert read_manifest(folder_of(ws)).dead == ()


def test_a_reader_that_cannot_write_hides_it(
    ws: sag.Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While another process syncs, segments stay as they are; nothing of it is shown."""
    with _sync._lock(folder_of(ws)) as mine:
        assert mine
        redact_elsewhere(ws.store.path, "r1", 3)
        assert ws.warehouse.refresh() == 1
        assert "swordfish" not in str(ws.duckdb.sql("FROM steps").fetchall())
        assert shown(ws.warehouse) == []
        assert files_with(folder_of(ws)) != []
    assert shown(ws.warehouse) == []
    assert files_with(folder_of(ws)) == []


def test_a_reader_holding_a_removed_file_repeats_its_query(ws: sag.Workspace) -> None:
    with sag.open(folder_of(ws).parent) as other:
        before = other.sql("SELECT count(*) FROM steps").rows()
        ws.redact("r1", 3, "x")
        assert other.sql("SELECT count(*) FROM steps").rows() == before
        assert shown(other.warehouse) == []


def test_what_a_run_says_of_itself_leaves_its_family(ws: sag.Workspace) -> None:
    """Forks inherit a run's description, and entities its repository as their scope."""
    ws.store.create_run(Run(run_id="s", goal=SECRET, repo="secret/repo", task_id="t9"))
    ws.store.append(step("s", "z.py"))
    ws.store.fork("s", at=2, run_id="s2")
    ws.store.append(step("s2", "y.py"))
    ws.sync()
    assert {"runs", "entities"} <= set(shown(ws.warehouse, "secret/repo"))
    redact_elsewhere(ws.store.path, "s", 1)
    assert shown(ws.warehouse, "secret/repo") == []
    ws.store.append(step("s2", "x.py"))  # by a projector that knew the run before
    assert shown(ws.warehouse, "secret/repo") == []
    written = parquet_files(folder_of(ws))
    assert files_with(folder_of(ws), "secret/repo") == []
    assert len(ws.sql("FROM runs").rows()) == 6
    redact_elsewhere(ws.store.path, "r1", 3)
    ws.sync()
    written = parquet_files(folder_of(ws))
    ws.rebuild()
    assert parquet_files(folder_of(ws)) == written


@pytest.mark.parametrize(
    "payload",
    [{}, {"run": 3, "position": 1}, {"run": "nobody", "position": 1}, {"run": "r1", "position": 99},
     {"run": "r1", "position": 3}],
)  # fmt: skip
def test_a_trace_that_others_wrote_does_no_harm(ws: sag.Workspace, payload: Any) -> None:
    before = ws.sql("FROM steps ORDER BY seq").rows()
    for run_id in (WORKSPACE_RUN, "r2"):
        ws.store.append(Event(run_id=run_id, type="body.redacted", payload=payload))
    assert ws.sql("FROM steps ORDER BY seq").rows() == before
    assert ws.sync().done
    assert ws.sql("FROM steps ORDER BY seq").rows() == before


def test_later_steps_of_a_run_whose_description_went(study: Study) -> None:
    study.run("s", repo="secret/repo")
    study.add(step("s", "z.py"))
    study.checkpoint()
    assert "entities" in shown(study.warehouse, "secret/repo")
    study.store.redact("s", 1)
    study.add(step("s", "y.py"))
    assert shown(study.warehouse, "secret/repo") == []
    study.add(step("s", "x.py"))
    assert shown(study.warehouse, "secret/repo") == []
    assert study.one("SELECT list(step ORDER BY step) FROM steps") == [0, 1, 2]


@pytest.mark.parametrize("moment", ["_write", "write_manifest", "_collect"])
def test_a_purge_cut_off_anywhere_is_made_good(
    ws: sag.Workspace, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """Stopped before any file, before the manifest, or before the old files are removed."""

    def cut(*_: Any) -> None:
        raise KeyboardInterrupt

    redact_elsewhere(ws.store.path, "r1", 3)
    with monkeypatch.context() as patch:
        patch.setattr(_sync, moment, cut)
        with pytest.raises(KeyboardInterrupt):
            ws.sync()
    assert shown(ws.warehouse) == []
    ws.sync()
    assert files_with(folder_of(ws)) == []
    written = parquet_files(folder_of(ws))
    ws.rebuild()
    assert parquet_files(folder_of(ws)) == written


READ = """
import sys
import sag_research as sag
ws = sag.open(sys.argv[1])
print("ready", flush=True)
while not sys.stdin.read(1):
    pass
for _ in range(150):
    ((n, _),) = ws.sql("SELECT count(*), sum(length(observation)) FROM steps").rows()
    assert n == 20, n
"""


def test_a_reader_goes_on_while_another_process_replaces_files_under_it(tmp_path: Path) -> None:
    with sag.open(tmp_path / "w") as ws:
        steps = [{"action": "cat a", "observation": f"{SECRET} {i} " * 100} for i in range(20)]
        run = str(ws.add({"task_id": "t", "steps": steps}))
        ws.sync()
        reader = subprocess.Popen(
            [sys.executable, "-c", READ, str(tmp_path / "w")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert reader.stdin is not None
        assert reader.stdout is not None
        assert reader.stdout.readline() == "ready\n"
        reader.stdin.write("x")
        reader.stdin.close()
        reader.stdin = None
        for position in range(2, 14):
            ws.redact(run, position)
        _, told = reader.communicate(timeout=120)
        assert reader.returncode == 0, told
