"""Two notebooks, a command line and a DuckDB of somebody else on one workspace at once."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import start_new_kernel

import sag_research as sag
from sag_research.errors import BusyError
from sag_research.log import SQLiteEventStore
from sag_research.model import Event
from tests.faults.study import (
    LONG,
    Study,
    assert_whole,
    at_rest,
    everything,
    one_line,
    projected,
    record,
)
from tests.ingest.make import swe_file, swe_step, write

PATIENCE = 120
ROUNDS = 5

SETUP = """
import sag_research as sag
from sag_research.model import Event, Run
ws = sag.open({path!r})
said, seen = [], []
"""
WORK = """
store, name = ws.store, {name!r}
if not store.has_run(name):
    store.create_run(Run(run_id=name))
for number in range({rounds}):
    for run in (name, "shared"):
        event = store.append(Event(run_id=run, type="note.taken", actor=name,
                                   payload=dict(n=number, text="long " * 200)))
        said.append((run, event.position, event.digest))
    ws.add(dict(task_id=f"{{name}}-{{number}}", steps=[dict(action="ls src/app.py")] * 3))
    rows = ws.sql("SELECT (SELECT count(*) FROM events), (SELECT max(seq) FROM events), "
                  "(SELECT count(*) FROM steps), "
                  "(SELECT count(*) FROM events WHERE type = 'agent.step')").rows()
    seen.append(rows[0])
    if number == {rounds} // 2:
        report = ws.ingest({folder!r}, progress=False)
    if number % 4 == 3:
        ws.sync()
"""


@contextmanager
def kernel(folder: Path) -> Iterator[BlockingKernelClient]:
    folder.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        for name in ("JUPYTER_RUNTIME_DIR", "IPYTHONDIR"):
            patch.setenv(name, str(folder))
        manager, client = start_new_kernel(startup_timeout=PATIENCE, cwd=str(folder))
    try:
        yield client
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def run(client: BlockingKernelClient, code: str) -> str:
    """Run a cell to its end; returns what it printed, or fails with its traceback."""
    said: list[str] = []

    def heard(message: dict[str, Any]) -> None:
        content = message["content"]
        if message["msg_type"] == "stream":
            said.append(content["text"])
        elif message["msg_type"] == "error":
            said.append("\n".join(content["traceback"]))

    reply = client.execute_interactive(code, output_hook=heard, timeout=PATIENCE)
    assert reply["content"]["status"] == "ok", "".join(said)
    return "".join(said)


def wait(client: BlockingKernelClient, asked: str) -> None:
    """Wait until a cell that was sent has run."""
    while (reply := client.get_shell_msg(timeout=PATIENCE))["parent_header"]["msg_id"] != asked:
        pass
    content = reply["content"]
    assert content["status"] == "ok", "\n".join(content.get("traceback", []))


def command_line(path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sag_research.cli", *words, "-w", str(path)]
    return subprocess.run(command, capture_output=True, encoding="utf-8", check=False)


@pytest.mark.parametrize("rounds", [ROUNDS, pytest.param(20 * ROUNDS, marks=pytest.mark.slow)])
def test_two_kernels_and_a_command_line_share_a_workspace(tmp_path: Path, rounds: int) -> None:
    path, folder = tmp_path / "study", tmp_path / "in"
    for number in range(6):
        steps = [swe_step(f"echo {number}\n", LONG)] * 3
        write(folder / f"task-{number}" / f"{number}.traj", swe_file(*steps, environment="e"))
    with sag.open(path) as ws:
        ws.store.create_run(sag.Run(run_id="shared"))
    with kernel(tmp_path / "left") as left, kernel(tmp_path / "right") as right:
        for client in (left, right):
            run(client, SETUP.format(path=str(path)))
        work = [WORK.format(name=n, rounds=rounds, folder=str(folder)) for n in ("left", "right")]
        sent = [client.execute(code) for client, code in zip((left, right), work, strict=True)]
        third = command_line(path, "sql", "SELECT count(*) FROM runs", "--json")
        for client, asked in zip((left, right), sent, strict=True):
            wait(client, asked)
        assert (third.returncode, third.stderr) == (0, "")
        acknowledged = [one for client in (left, right) for one in eval(run(client, "print(said)"))]
        seen = [eval(run(client, "print(seen)")) for client in (left, right)]
    for rows in seen:  # each answer was exact, and none fell behind the one before
        assert all(events == last and steps == typed for events, last, steps, typed in rows)
        assert rows == sorted(rows)
    study = at_rest(path)
    assert len(acknowledged) == 4 * rounds
    assert {study.said[name, position] for name, position, _ in acknowledged} == {
        digest for _, _, digest in acknowledged
    }
    names = [row[0] for row in study.answers["runs"]]
    assert len([name for name in names if name.startswith(("left-", "right-"))]) == 2 * rounds
    given = [name for name in names if not name.startswith(("left", "right", "shared"))]
    assert len(given) == 6, given  # both read the folder, and each run is there once
    assert_whole(study)


# ---- locks


def test_a_writer_that_waits_too_long_is_told_who_writes(template: Study, tmp_path: Path) -> None:
    study = template.copy(tmp_path / "study")
    code = (
        "import sys; from sag_research.log import SQLiteEventStore\n"
        "from sag_research.model import Run\n"
        "store = SQLiteEventStore(sys.argv[1])\n"
        "with store.transaction():\n"
        "    store.create_run(Run(run_id='mine')); print(1, flush=True); input()"
    )
    command = [sys.executable, "-c", code, str(study.log)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8"
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "1\n"
        with SQLiteEventStore(study.log, timeout=0.05) as store:
            with pytest.raises(BusyError, match="is locked") as busy:
                store.append(Event(run_id="branch", type="note.taken"))
            words = one_line(busy.value)
            if sys.platform == "linux":
                assert f"by process {process.pid} (" in words
                assert Path(sys.executable).name in words
            assert len(list(store.tail())) == len(study.said)  # reading goes on
        with sag.open(study.path) as ws:
            assert everything(ws.warehouse) == study.answers
        process.kill()
        process.wait()
        with sag.open(study.path) as ws:  # the lock and what was not acknowledged died with it
            ws.store.append(Event(run_id="branch", type="note.taken"))
            assert not ws.store.has_run("mine")
    assert_whole(at_rest(study.path))


def test_a_notebook_that_stays_open_locks_nobody_out(template: Study, tmp_path: Path) -> None:
    """What a DuckDB file does: its reader shuts the writer out, and its writer the readers."""
    study = template.copy(tmp_path / "study")
    with sag.open(study.path) as first, sag.open(study.path) as second:
        first.refresh()
        cursor = first.duckdb.cursor()
        pending = cursor.execute("SELECT * FROM steps_all, range(1000)")  # half read
        assert pending.fetchone()
        second.add(record(50))
        assert second.sync().done
        assert first.sync().done
        assert second.rebuild().done
        assert command_line(study.path, "rebuild").returncode == 0
        assert everything(first.warehouse) == everything(second.warehouse)
        assert everything(first.warehouse) == projected(first.store)
    assert_whole(at_rest(study.path))


def test_an_export_that_is_open_elsewhere_does_not_lock_the_workspace(
    template: Study, tmp_path: Path
) -> None:
    study = template.copy(tmp_path / "study")
    with sag.open(study.path) as ws:
        ws.export_duckdb(tmp_path / "out.duckdb")
        with closing(duckdb.connect(str(tmp_path / "out.duckdb"))) as other:
            ws.add(record(51))
            ws.rebuild()
            count = "SELECT count(*) FROM steps"
            assert ws.sql(count).rows()[0][0] > other.execute(count).fetchall()[0][0]
    assert not list(study.path.rglob("*.duckdb"))  # nothing in a workspace can be locked so
    assert_whole(at_rest(study.path))


def test_a_reader_in_the_middle_of_a_run_holds_up_no_writer(
    template: Study, tmp_path: Path
) -> None:
    study = template.copy(tmp_path / "study")
    with sag.open(study.path) as reader, sag.open(study.path) as writer:
        half_read = reader.store.tail()
        next(half_read)
        began = time.monotonic()
        for number in range(20):
            writer.store.append(Event(run_id="branch", type="note.taken", payload={"n": number}))
        assert time.monotonic() - began < 20  # it did not wait out the 30 s of a lock
        assert len(list(half_read)) == len(study.said) - 1  # as it was when it began
    assert_whole(at_rest(study.path))
