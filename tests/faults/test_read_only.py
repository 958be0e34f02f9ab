"""A workspace where nobody may write: it is read, its last events included, and says so."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

import sag_research as sag
from sag_research.errors import SagError
from sag_research.model import Event, Run
from sag_research.workspace import Workspace
from tests.faults.disks import mounted, read_only
from tests.faults.study import (
    ONCE_AND_OFTEN,
    Study,
    asked,
    at_rest,
    complaint,
    everything,
    in_order,
    one_line,
    projected,
    record,
    seeds,
)
from tests.faults.test_bad_warehouse import flip_bits

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs rights of POSIX")


@contextmanager
def by_mount(study: Study, place: Path) -> Iterator[Path]:
    """A disk that is mounted read-only, as a snapshot or a share is."""
    with mounted(place):
        shutil.copytree(study.path, place / "study")
        read_only(place)
        yield place / "study"


WRITES: dict[str, Callable[[Workspace], object]] = {
    "append": lambda ws: ws.store.append(Event(run_id="branch", type="note.taken")),
    "create": lambda ws: ws.store.create_run(Run(run_id="s")),
    "fork": lambda ws: ws.store.fork("branch"),
    "add": lambda ws: ws.add(record(77)),
    "label": lambda ws: ws.record_outcome("branch", "success"),
    "redact": lambda ws: ws.redact("branch", 2),
    "sync": lambda ws: ws.sync(),
    "rebuild": lambda ws: ws.rebuild(),
}


def assert_read(path: Path, study: Study) -> None:
    before = sorted(p.name for p in path.rglob("*"))
    with sag.open(path) as ws:
        assert everything(ws.warehouse) == study.answers
        assert in_order(ws) == study.said
        assert ws.verify().ok
        for write in WRITES.values():
            with pytest.raises(
                SagError, match=r"can only be read|could not be written|locked"
            ) as refused:
                write(ws)
            one_line(refused.value)
        assert everything(ws.warehouse) == study.answers
    assert sorted(p.name for p in path.rglob("*")) == before


def left_by_a_kill(study: Study) -> Study:
    """Give a log a tail beside it, as a writer leaves one that was killed."""
    copy = study.path.with_name("killed")
    with sag.open(study.path) as ws:
        ws.store.append(Event(run_id="branch", type="note.taken", payload={"last": "words"}))
        shutil.copytree(study.path, copy)
        (copy / "log.sqlite-shm").unlink()
        assert (copy / "log.sqlite-wal").stat().st_size > 0
        said, answers = in_order(ws), projected(ws.store)
    return Study(copy, said, answers)


def test_a_mounted_snapshot_is_read(template: Study, tmp_path: Path) -> None:
    study = template.copy(tmp_path / "study")
    with by_mount(study, tmp_path / "disk") as path:
        assert_read(path, study)


def test_the_last_events_of_a_killed_writer_are_read_where_nobody_can_write(
    template: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = left_by_a_kill(template.copy(tmp_path / "study"))
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    with by_mount(study, tmp_path / "disk") as path:
        assert_read(path, study)
    assert not list(temporary.iterdir())


def test_without_a_warehouse_the_log_answers(template: Study, tmp_path: Path) -> None:
    study = template.copy(tmp_path / "study")
    shutil.rmtree(study.warehouse)
    with by_mount(study, tmp_path / "disk") as path:
        assert_read(path, study)


@pytest.mark.parametrize("times", ONCE_AND_OFTEN)
def test_a_damaged_warehouse_where_nobody_can_write_says_so(
    template: Study, tmp_path: Path, times: int
) -> None:
    for number, random in enumerate(seeds(times)):
        study = template.copy(tmp_path / f"study-{number}")
        flip_bits(study.warehouse, random)
        with by_mount(study, tmp_path / f"disk-{number}") as path:
            assert "sag rebuild" in complaint(path)
            with sag.open(path) as ws, pytest.raises(SagError, match=r"locked|written") as refused:
                ws.rebuild()
            one_line(refused.value)
        with sag.open(study.path) as ws:  # where one may write
            ws.rebuild()
        assert asked(study.path) == study.answers


def test_the_command_line_says_so_in_one_line(template: Study, tmp_path: Path) -> None:
    study = template.copy(tmp_path / "study")
    with by_mount(study, tmp_path / "disk") as path:
        command = [sys.executable, "-m", "sag_research.cli", "rebuild", "-w", str(path)]
        done = subprocess.run(command, capture_output=True, encoding="utf-8", check=False)
        assert done.returncode == 1
        assert len(done.stderr.splitlines()) == 1


# ---- by rights, as another user; root may always write

CHILD = """
import os, sys
import sag_research as sag

def read(path):
    with sag.open(path) as ws:
        print(len(ws.sql("FROM runs")), len(list(ws.store.tail())), ws.verify().ok)
        for write in (lambda: ws.add({"task_id": "x", "steps": [{"action": "a"}]}), ws.sync):
            try:
                write()
            except sag.errors.SagError as error:
                print(str(error))

read(sys.argv[2])  # another user need not have the right to import what this needs
print("---")
os.setuid(65534)
read(sys.argv[1])
"""


def read_as_nobody(study: Study, warm: Study) -> list[str]:
    """Open a workspace as a user without rights; returns what that one saw."""
    command = [sys.executable, "-c", CHILD, str(study.path), str(warm.path)]
    environment = os.environ | {"PYTHONPATH": str(Path(sag.__file__).parent.parent)}
    done = subprocess.run(
        command, capture_output=True, encoding="utf-8", check=False, env=environment
    )
    assert done.returncode == 0, done.stderr
    seen = done.stdout.splitlines()
    return seen[seen.index("---") + 1 :]


@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="needs a second user")
@pytest.mark.parametrize(
    "what",
    ["all, left by a kill", *(pytest.param(w, marks=pytest.mark.slow) for w in ("all", "the log"))],
)
def test_a_folder_without_rights_is_read(template: Study, tmp_path: Path, what: str) -> None:
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    try:
        study = template.copy(folder / "study")
        if what.endswith("kill"):
            study = left_by_a_kill(study)
        for path in (study.path, *study.path.rglob("*")):
            path.chmod(0o777 if what == "the log" else 0o555 if path.is_dir() else 0o444)
        study.log.chmod(0o444)
        counts, *refused = read_as_nobody(study, template.copy(tmp_path / "warm"))
        assert counts == f"{len(study.answers['runs'])} {len(study.said)} True"
        assert "here it can only be read" in refused[0]
        assert len(refused) == 1 + (what != "the log")
        assert all("locked" in words or "could not be written" in words for words in refused[1:])
    finally:
        shutil.rmtree(folder)


def test_a_copy_is_read_as_it_was_when_it_was_opened(template: Study, tmp_path: Path) -> None:
    study = left_by_a_kill(template.copy(tmp_path / "study"))
    with by_mount(study, tmp_path / "disk") as path, sag.open(path) as ws:
        assert ws.store.last_seq() == len(study.said)
        with closing(sqlite3.connect(study.log)) as db:  # the copy's twin, where one may write
            assert db.execute("SELECT count(*) FROM events").fetchone() == (len(study.said),)
    assert at_rest(study.path).said == study.said
