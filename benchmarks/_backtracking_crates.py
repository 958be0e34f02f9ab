"""The store room for ``backtracking.py``: who works there, what is lost, and past runs of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from random import Random
from typing import Any

import sag_research as sag
from sag_research.deadend import Prefixes
from sag_research.lab.crates import CratesWorld, Habits, ScriptedWorker, carry_on, levels, lost_at
from sag_research.log import SQLiteEventStore
from sag_research.model import Run
from sag_research.runtime import Agent, RunContext

NAME = "crates"
BUDGET = 60
POLICIES = ("reckless", "clumsy")
WORKERS: dict[str, Habits | str] = {
    "clumsy": "clumsy",  # the one of the cohort
    "reckless": Habits(
        name="reckless", clumsy=0.25, careless=0.1, blind=0.05, dither=0.05, notice=0.05
    ),
}
COHORT = "worker-clumsy"  # of the bundled set: alike, and not the same


def tasks(quick: bool = False) -> list[str]:
    """Name the levels."""
    return ["crates-" + one.name for one in levels() if not quick or one.difficulty == "easy"]


def make_run(store: SQLiteEventStore, task: str, seed: int) -> str:
    """Write a run that has not begun."""
    level = task.removeprefix("crates-")
    store.create_run(Run(run_id="r", task_id=task, config={"level": level, "seed": seed}))
    return "r"


def agent_factory(policy: str) -> Callable[[Mapping[str, Any], int], Agent]:
    """Make agents that go on as the worker would."""
    return lambda change, seed: carry_on(ScriptedWorker(WORKERS[policy], seed))


def world_factory(run: Run) -> CratesWorld:
    """Make the run's room."""
    return CratesWorld(str(run.config["level"]))


@cache
def cohort() -> Prefixes:
    """Past runs, from which monitors learn; those of the task in question are left out."""
    with sag.open(":memory:") as ws:
        ws.ingest(sag.bundled("crates"), progress=False)
        return ws.prefixes("model = ?", [COHORT])


def is_lost(steps: Sequence[Mapping[str, Any]]) -> bool:
    """Tell whether nothing can win any more; a solver knows."""
    return lost_at([str(step.get("observation", "")) for step in steps]) is not None


@cache
def _past() -> dict[str, tuple[str, str, list[dict[str, Any]]]]:
    """Read the past runs: task, outcome and steps by id."""
    with sag.open(":memory:") as ws:
        ws.ingest(sag.bundled("crates"), progress=False)
        runs = ws.sql("SELECT run_id, task_id, outcome FROM runs ORDER BY run_id").df()
        return {
            run: (task, outcome, [dict(step) for step in ws.steps(run).to_dict("records")])
            for run, task, outcome in runs.itertuples(index=False)
        }


@cache
def past_lost() -> dict[str, int]:
    """Tell with which step each past run was lost; -1: with none."""
    found = {}
    for run, (_, _, steps) in _past().items():
        lost = lost_at([str(step["observation"]) for step in steps])
        found[run] = -1 if lost is None else lost
    return found


def siblings(task: str) -> list[list[dict[str, Any]]]:
    """Give past successes of the very task."""
    return [
        steps for one, outcome, steps in _past().values() if (one, outcome) == (task, "success")
    ]


def outcome(ctx: RunContext) -> bool:
    """Judge a run as it stands, one that is aborted included."""
    return bool(ctx.world.solved)


def elsewhere(task: str, seed: int) -> str:
    """Make feedback of the same form from another place: as much text, and no use."""
    random = Random(f"shuffled {task} {seed}")
    place = f"push(row={random.randrange(1, 6)}, column={random.randrange(1, 6)}, direction="
    ways = ("up", "down", "left", "right")
    lines = [f"- {place}{random.choice(ways)})" for _ in range(3)]
    return "From here, this was tried and led nowhere:\n" + "\n".join(lines)


def local_policies() -> list[str]:
    """Name the local models that can work here: none can, they do not read boards."""
    return []
