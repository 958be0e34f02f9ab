"""An ingest that is killed, and begun again, ends where one that was left alone ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import pytest

import sag_research as sag
from sag_research.ingest import _jobs, ingest
from tests.ingest.make import native, swe_file, swe_step, write

ROOT = Path(sag.__file__).parent.parent
FILES = 60
GROUP = 4

CHILD = f"""
import sys
from sag_research.ingest import _pipeline, _reading, ingest
from sag_research.log import SQLiteEventStore
_pipeline._CHUNK_FILES, _pipeline._HELD_BYTES, _reading._PART_BYTES = {GROUP}, 20_000, 20_000
real = _pipeline._take_group
def take_group(*arguments):
    print("group", flush=True)
    real(*arguments)
_pipeline._take_group = take_group
with SQLiteEventStore(sys.argv[1]) as store:
    ingest(store, [sys.argv[2]], jobs=int(sys.argv[3]))
print("done", flush=True)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of several kinds: equal ones, copies, bad ones, and one of many runs.

    The last is so large that two processes share it.
    """
    folder = tmp_path_factory.mktemp("in")
    for number in range(FILES):
        steps = [swe_step(f"echo {number} {n} && make test\n", "seen\n" * n) for n in range(6)]
        content = swe_file(*steps, environment=f"env-{number % 50}")
        write(folder / f"{number % 7}/task-{number % 40}/{number:02}.traj", content)
    write(folder / "3/again.traj", (folder / "3/task-3/03.traj").read_bytes())
    write(folder / "4/bad.traj", b"{")
    write(folder / "5/label.json", {"task-1": {"resolved": True}})
    steps = [{"action": f"sed -n {n}p a.py", "observation": "text " * 2_000} for n in range(5)]
    rows = [native(f"row-{n}", steps=[*steps, {"action": f"ls {n}"}]) for n in range(60)]
    large = write(folder / "2/rows.jsonl", b"\n".join(json.dumps(row).encode() for row in rows))
    assert large.stat().st_size > _jobs._LARGE
    return folder


def result(workspace: Path, folder: Path, jobs: int) -> dict[str, object]:
    """Ingest to the end, and say what a user sees of it."""
    with sag.open(workspace) as ws:
        ingest(ws.store, [folder], jobs=jobs)
        ws.sync()
        assert ws.verify().ok
        queries = {
            "runs": "SELECT * EXCLUDE (created_at, started_at, ended_at, seq) FROM runs"
            " ORDER BY run_id",
            "steps": "SELECT * EXCLUDE (started_at, seq) FROM steps ORDER BY run_id, step",
            "sources": "SELECT * FROM sources ORDER BY path",
            "mentions": "SELECT run_id, entity_id, count(*) FROM mentions GROUP BY ALL"
            " ORDER BY ALL",
            "events": "SELECT run_id, position, type, body FROM events"
            " WHERE run_id <> '@workspace' ORDER BY run_id, position",
        }
        seen: dict[str, object] = {name: ws.sql(query).rows() for name, query in queries.items()}
        return seen | {"digest": ws.digest()}


def killed(workspace: Path, folder: Path, jobs: int, groups: int, delay: float) -> bool:
    """Start an ingest, kill it some time after so many groups; tells whether it was at work.

    The processes that read for it end with it: all of them hold the pipe that is read here.
    """
    workspace.mkdir(exist_ok=True)
    command = [sys.executable, "-c", CHILD, str(workspace / "log.sqlite"), str(folder), str(jobs)]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    ) as process:
        assert process.stdout is not None
        for _ in range(groups):
            process.stdout.readline()
        time.sleep(delay)
        process.kill()
        said, errors = process.communicate(timeout=60)
    assert errors == ""
    return "done" not in said


@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGKILL")
@pytest.mark.parametrize("jobs", [1, 2])
def test_twenty_kills_leave_no_trace(tmp_path: Path, folder: Path, jobs: int) -> None:
    random = Random(jobs)
    expected = result(tmp_path / "whole", folder, 1)
    assert len(expected["runs"]) == FILES + 60
    at_work = 0
    for number in range(20):
        workspace = tmp_path / f"killed-{number}"
        groups, delay = random.randrange(0, FILES // GROUP), random.uniform(0, 0.03)
        at_work += killed(workspace, folder, jobs, groups, delay)
        again = jobs if number % 5 == 0 else 1
        assert result(workspace, folder, again) == expected, f"kill {number}, after {groups} groups"
    assert at_work >= 10


@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGKILL")
def test_an_ingest_may_be_killed_many_times(tmp_path: Path, folder: Path) -> None:
    random = Random(3)
    expected = result(tmp_path / "whole", folder, 1)
    for number in range(4):
        killed(tmp_path / "killed", folder, 1 + number % 2, 1, random.uniform(0, 0.05))
    assert result(tmp_path / "killed", folder, 2) == expected
