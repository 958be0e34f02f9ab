"""Kills a task at random writes and carries it on, many times; prints what came of it as JSON.

Run as ``python -m tests.lab.export_job.kills KILLS SEED``. Each task is a process forked from
this one, which has no threads, and dies of a real SIGKILL.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, NoReturn

import jsonschema  # noqa: F401 - so that not every fork imports it anew

from sag_research.errors import Caught
from sag_research.lab.export_job import Careful, ExportJobWorld, TaskRequest, run_task, spent
from sag_research.lab.export_job import _evidence as evidence
from sag_research.lab.export_job._toolbox import Toolbox
from sag_research.llm import Reply, Request
from sag_research.log import SQLiteEventStore

SCENARIOS = ("transient", "transient", "disconnect", "hostile", "permanent", "completed")


def tally(path: Path) -> None:
    """Count one, in a way that no crash takes back."""
    with path.open("ab") as file:
        file.write(b"1")


class Tallied(Careful):
    """The careful agent, counting how often it is really asked."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def complete(self, request: Request) -> Reply:
        tally(self.folder / "asked")
        return super().complete(request)


def arm(kill_at: int, before: bool) -> None:
    """Die at the n-th write: before or after it is made."""
    left = [kill_at]

    def dying(plain: Callable[..., Any]) -> Callable[..., Any]:
        def write(*args: Any, **more: Any) -> Any:
            left[0] -= 1
            if left[0] == 0 and before:
                os.kill(os.getpid(), signal.SIGKILL)
            written = plain(*args, **more)
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return written

        return write

    SQLiteEventStore.append = dying(SQLiteEventStore.append)  # type: ignore[method-assign]
    SQLiteEventStore.create_run = dying(SQLiteEventStore.create_run)  # type: ignore[method-assign]
    os.link = dying(os.link)
    evidence.os.fsync = dying(os.fsync)  # type: ignore[attr-defined]


def task(origin: str, folder: Path, kill_at: int | None, before: bool) -> NoReturn:
    """The forked process: run the task, perhaps to its death."""
    plain = Toolbox.run

    def run(*args: Any) -> Any:
        tally(folder / "used")
        return plain(*args)

    setattr(Toolbox, "run", run)  # noqa: B010 - to mypy a method is no attribute
    if kill_at is not None:
        arm(kill_at, before)
    with Caught() as caught:
        run_task(
            folder / "task", Tallied(folder), TaskRequest(id="task-1", origin=origin), timeout=1.0
        )
    if caught.error is not None:
        traceback.print_exception(caught.error)
    os._exit(caught.error is not None)


def forked(*args: Any) -> int:
    """Run a task in a process of its own; returns how it ended, negative for a signal."""
    child = os.fork()
    if child == 0:
        task(*args)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def outcome(world: ExportJobWorld, folder: Path) -> dict[str, Any]:
    with SQLiteEventStore(str(folder / "task" / "log.sqlite"), read_only=True) as store:
        counted = spent(store, "task-1")
        kinds = [event.type for event in store.read("task-1")]
        ok = store.verify("task-1").ok
    return {
        "report": (folder / "task" / "report.json").read_text(encoding="utf-8"),
        "retries": world.retries,
        "model_calls": [counted.model_calls, size(folder / "asked")],
        "action_calls": [counted.action_calls, size(folder / "used")],
        "steps": kinds.count("agent.step"),
        "ends": kinds.count("run.completed"),
        "verified": ok,
    }


def size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def main(kills: int, seed: int) -> None:
    random = Random(seed)
    found: list[dict[str, Any]] = []
    with ExportJobWorld(own_process=True) as world, tempfile.TemporaryDirectory() as home:
        whole: dict[str, dict[str, Any]] = {}
        for scenario in dict.fromkeys(SCENARIOS):
            world.reset(scenario)
            folder = Path(home, scenario)
            folder.mkdir()
            assert forked(world.origin, folder, None, False) == 0
            whole[scenario] = outcome(world, folder)
        for number in range(kills):
            scenario = random.choice(SCENARIOS)
            world.reset(scenario)
            folder = Path(home, str(number))
            folder.mkdir()
            at, before = random.randrange(1, 45), random.random() < 0.5
            ended = forked(world.origin, folder, at, before)
            # a run may have fewer writes than the number drawn
            again = forked(world.origin, folder, None, False) if ended != 0 else 0
            came = {"scenario": scenario, "at": at, "before": before, "ended": ended}
            came |= {"again": again} | outcome(world, folder)
            found.append(came)
    print(json.dumps({"whole": whole, "kills": found}))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
