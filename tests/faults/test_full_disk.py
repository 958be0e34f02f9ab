"""A disk that is full: what was acknowledged stays, what was not is not half there."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

import sag_research as sag
from sag_research.errors import SagError, StoreError, WarehouseError
from sag_research.exchange import export_csv, export_cypher, export_xes
from sag_research.model import Event, Run
from sag_research.workspace import Workspace
from tests.faults.disks import Disk, LimitedFiles, small_disk
from tests.faults.study import (
    LONG,
    ONCE_AND_OFTEN,
    Study,
    asked,
    assert_whole,
    at_rest,
    everything,
    in_order,
    one_line,
    projected,
    record,
    seeds,
    words_of,
)
from tests.ingest.make import swe_file, swe_step, write

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs disks of POSIX")


MAY_MOUNT = sys.platform == "linux" and os.getuid() == 0
"""Where it may, the limit is tried by `make slow` only; elsewhere it takes the disk's place."""


@pytest.fixture(
    params=[
        "small disk",
        pytest.param("limit for files", marks=[pytest.mark.slow] * MAY_MOUNT),
    ]
)
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    if request.param == "small disk":
        with small_disk(tmp_path / "disk") as disk:
            yield disk
    else:
        yield LimitedFiles(tmp_path / "disk")


def note(random: Random, run: str, size: int = 3000) -> Event:
    return Event(run_id=run, type="note.taken", payload={"text": random.randbytes(size).hex()})


Append = Callable[[Workspace, Random, int], list[Event]]


def one(ws: Workspace, random: Random, number: int) -> list[Event]:
    return [ws.store.append(note(random, "branch"))]


def many(ws: Workspace, random: Random, number: int) -> list[Event]:
    return ws.store.append_many([note(random, run) for run in ("branch", "asker") * 4])


def a_run(ws: Workspace, random: Random, number: int) -> list[Event]:
    config = {"text": random.randbytes(3000).hex()}
    ws.store.create_run(Run(run_id=f"new-{number}", config=config))
    return list(ws.store.read(f"new-{number}"))


def a_fork(ws: Workspace, random: Random, number: int) -> list[Event]:
    change = {"text": random.randbytes(3000).hex()}
    ws.store.fork("branch", run_id=f"fork-{number}", intervention=change)
    return list(ws.store.read(f"fork-{number}", lo=ws.store.head(f"fork-{number}").position))


def a_copy(ws: Workspace, random: Random, number: int) -> list[Event]:
    ws.store.flatten("branch", f"copy-{number}")
    return list(ws.store.read(f"copy-{number}"))


def a_record(ws: Workspace, random: Random, number: int) -> list[Event]:
    run = ws.add({**record(100 + number), "config": {"text": random.randbytes(3000).hex()}})
    return list(ws.store.read(str(run)))


APPENDS: dict[str, Append] = {
    "an event": one, "a batch": many, "a run": a_run, "a fork": a_fork, "a copy": a_copy,
    "a record": a_record,
}  # fmt: skip


@pytest.mark.parametrize("times", ONCE_AND_OFTEN)
@pytest.mark.parametrize("append", APPENDS.values(), ids=APPENDS.keys())
def test_what_was_acknowledged_before_the_disk_was_full_stays(
    template: Study, disk: Disk, append: Append, times: int
) -> None:
    for number, random in enumerate(seeds(times)):
        study = template.copy(disk.folder / f"study-{number}")
        said = dict(study.said)
        with sag.open(study.path) as ws:
            ws.store.append(note(random, "branch", 10))
            said = in_order(ws)

            def fill(ws: Workspace = ws, said: dict[Any, Any] = said, random: Random = random):
                for round_ in range(2_000):
                    made = append(ws, random, round_)
                    said |= {(e.run_id, e.position): e.digest for e in made}

            with disk.full(room=random.randrange(40) * 4096, of_log=True):
                with pytest.raises(StoreError, match=r"free some space|not full") as full:
                    fill()
                one_line(full.value)
                assert in_order(ws) == said  # it can be read, and nothing is half there
                assert everything(ws.warehouse) == projected(ws.store)
            append(ws, random, 9_999)
            assert in_order(ws).items() >= said.items()
        assert_whole(at_rest(study.path))


@pytest.mark.parametrize("times", ONCE_AND_OFTEN)
def test_an_ingest_into_a_full_disk_is_taken_up_again(
    template: Study, disk: Disk, tmp_path: Path, times: int
) -> None:
    folder = tmp_path / "in"
    for number in range(12):
        steps = [swe_step(f"echo {number} {n}\n", f"{n} {LONG * 8}") for n in range(8)]
        write(folder / f"task-{number}" / f"{number}.traj", swe_file(*steps, environment="e"))
    with sag.open(tmp_path / "whole") as ws:
        ws.ingest(folder, progress=False)
        whole = {run.run_id: ws.store.head(run.run_id).digest for run in ws.store.runs()}
    for number, random in enumerate(seeds(times)):
        with sag.open(disk.folder / f"study-{number}") as ws:
            ws.store.create_run(Run(run_id="first"))
            room = random.randrange(1, 20) * 4096
            with disk.full(room, of_log=True), pytest.raises(SagError) as full:
                ws.ingest(folder, progress=False)
            one_line(full.value)
            assert ws.verify().ok
            ws.ingest(folder, progress=False)
            heads = {run.run_id: ws.store.head(run.run_id).digest for run in ws.store.runs()}
            assert {name: heads[name] for name in whole} == whole
            assert len(heads) == len(whole) + 1
        assert_whole(at_rest(disk.folder / f"study-{number}"))


def test_runs_that_are_in_the_log_are_no_failed_ingest(
    template: Study, disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk becomes full between the log and the warehouse."""
    write(tmp_path / "in" / "task" / "1.traj", swe_file(swe_step("ls\n", LONG), environment="e"))
    study = template.copy(disk.folder / "study")
    with sag.open(study.path) as ws:
        sync = ws.warehouse.sync

        def too_late() -> Any:
            with disk.full():
                return sync()

        monkeypatch.setattr(ws.warehouse, "sync", too_late)
        with pytest.warns(UserWarning, match="the runs are in the log, but .*free some space"):
            assert ws.ingest(tmp_path / "in", progress=False).runs == 1
    assert_whole(at_rest(study.path))


@pytest.mark.parametrize("times", ONCE_AND_OFTEN)
@pytest.mark.parametrize("method", ["sync", "rebuild"])
def test_a_warehouse_that_cannot_be_written_is_as_it_was(
    template: Study, disk: Disk, method: str, times: int
) -> None:
    for number, random in enumerate(seeds(times)):
        study = template.copy(disk.folder / f"study-{number}")
        with sag.open(study.path) as ws:
            ws.store.append(note(random, "branch", 5000))
            with disk.full(room=random.randrange(3) * 4096 if method == "sync" else 0):
                with pytest.raises(
                    WarehouseError, match=r"could not be written|cannot be locked"
                ) as full:
                    getattr(ws, method)()
                assert "free some space" in one_line(full.value)
                assert everything(ws.warehouse) == projected(ws.store)
                assert ws.recall(["src/app1.py"]) is not None  # in memory
            assert not list(study.warehouse.rglob("*.tmp"))
            assert getattr(ws, method)().done
        assert_whole(at_rest(study.path))


EXPORTS: dict[str, Callable[[Workspace, Path], object]] = {
    "duckdb": lambda ws, path: ws.export_duckdb(path),
    "xes": lambda ws, path: export_xes(ws, path, texts=True),
    "csv": lambda ws, path: export_csv(ws, path, texts=True),
    "cypher": lambda ws, path: export_cypher(ws, path),
    "trig": lambda ws, path: ws.provenance("branch").export("trig", path),
    "report": lambda ws, path: ws.report(path),
}


@pytest.mark.parametrize(
    "export",
    [
        pytest.param(export, id=name, marks=[pytest.mark.slow] * (name == "report"))
        for name, export in EXPORTS.items()
    ],
)
def test_an_export_to_a_full_disk_leaves_nothing_half_written(
    template: Study, disk: Disk, tmp_path: Path, export: Callable[[Workspace, Path], object]
) -> None:
    study = template.copy(tmp_path / "study")
    target = disk.folder / "out.html"
    with sag.open(study.path) as ws:
        with disk.full(), pytest.raises(SagError) as full:
            export(ws, target)
        assert "written" in one_line(full.value)
        assert [path for path in disk.folder.rglob("*") if path.is_file()] == []
        export(ws, target)
        assert [path for path in disk.folder.rglob("*") if path.is_file()] != []
    assert_whole(study)


@pytest.mark.parametrize("times", ONCE_AND_OFTEN)
def test_a_redaction_on_a_full_disk_is_whole_or_absent(
    template: Study, disk: Disk, times: int
) -> None:
    for number, random in enumerate(seeds(times)):
        study = template.copy(disk.folder / f"study-{number}")
        with sag.open(study.path) as ws:
            ws.store.append(note(random, "branch", 10))
            run = next(run.run_id for run in ws.store.runs() if run.run_id.startswith("task-1"))
            with disk.full(room=random.randrange(2) * 4096):
                try:
                    ws.redact(run, 4, "a name")
                except (StoreError, WarehouseError) as error:
                    one_line(error)
                else:
                    pytest.fail("a full disk was not noticed")
            gone = "redacted" in next(ws.store.read(run, 4, 4)).payload
            assert ws.verify().ok
            assert ws.sync().done
            if not gone:
                ws.redact(run, 4, "a name")
            words = "SELECT count(*) FROM steps WHERE run_id = ? AND observation = ''"
            assert ws.sql(words, [run]).rows() == [(1,)]
        assert_whole(at_rest(study.path))


@pytest.mark.parametrize("left", [0, 1, 8])
def test_a_workspace_on_a_full_disk_opens_or_says_why(
    template: Study, disk: Disk, left: int
) -> None:
    study = template.copy(disk.folder / "study")
    with disk.full(room=left * 4096):
        said = words_of(lambda: asked(study.path))
        assert "full" in said or "space" in said or not said
    assert_whole(study)


def test_no_workspace_is_begun_on_a_full_disk(disk: Disk) -> None:
    with disk.full(), pytest.raises(StoreError) as full:
        sag.open(disk.folder / "study")
    one_line(full.value)
    with sag.open(disk.folder / "study") as ws:
        assert ws.add(record(1))
    assert_whole(at_rest(disk.folder / "study"))
