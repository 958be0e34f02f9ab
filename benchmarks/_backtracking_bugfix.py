"""Bugs in small repositories for ``backtracking.py``: who works there, what is lost, past runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from random import Random
from typing import Any

import sag_research as sag
from sag_research.deadend import Prefixes
from sag_research.lab.bugfix import (
    BugfixWorld,
    LocalFixer,
    ScriptedFixer,
    carry_on,
    judge,
    load_task,
    render,
    task_ids,
    trapped_at,
)
from sag_research.llm import Local, installed_weights
from sag_research.log import SQLiteEventStore
from sag_research.model import Outcome, Run
from sag_research.runtime import Agent, RunContext

NAME = "bugfix"
BUDGET = 60
POLICIES = ("scripted-b", "scripted-c")
COHORT = ("scripted-b", "scripted-c")  # of the bundled set: the same traits, and good and bad days
_LOCAL = "local:"


def tasks(quick: bool = False) -> list[str]:
    """Name the tasks."""
    return list(task_ids()[::8] if quick else task_ids())


def make_run(store: SQLiteEventStore, task: str, seed: int) -> str:
    """Write a run that has not begun."""
    store.create_run(Run(run_id="r", task_id=task, config={"task": task, "seed": seed}))
    return "r"


def agent_factory(policy: str) -> Callable[[Mapping[str, Any], int], Agent]:
    """Make agents that go on as the model would, a scripted or a local one."""
    if policy.startswith(_LOCAL):
        model = _local(policy.removeprefix(_LOCAL))
        return lambda change, seed: carry_on(LocalFixer(model, seed=seed))
    return lambda change, seed: carry_on(ScriptedFixer(policy, seed))


@cache
def _local(weights: str) -> Local:
    """Start one server, for all runs of the process."""
    return Local(weights, cache_prompt=True)


def world_factory(run: Run) -> BugfixWorld:
    """Make the run's checkout."""
    return BugfixWorld(str(run.config["task"]), remember=True)


@cache
def cohort() -> Prefixes:
    """Past runs, from which monitors learn; those of the task in question are left out."""
    with sag.open(":memory:") as ws:
        folder = sag.bundled("bugfix")
        ws.ingest(folder, labels=folder / "labels.csv", progress=False)
        return ws.prefixes("model IN (?, ?)", list(COHORT))


def is_lost(steps: Sequence[Mapping[str, Any]]) -> bool:
    """Tell whether a wrong tree was handed in, or stands in which the agent's own tests pass.

    Every edit can be taken back, so before it is handed in nothing is final; a trap can be left,
    and seldom is.
    """
    return trapped_at(steps) is not None


def outcome(ctx: RunContext) -> Outcome:
    """Judge a run as it stands, one that is aborted included."""
    return judge(ctx.world)


def elsewhere(task: str, seed: int) -> str:
    """Make feedback of the same form from another task: as much text, and no use."""
    random = Random(f"shuffled {task} {seed}")
    other = load_task(random.choice([name for name in task_ids() if name != task]))
    edit = random.choice(other.decoy)
    arguments = {"command": "str_replace", "path": f"/repo/{edit.file}",
                 "old_str": edit.old, "new_str": edit.new}  # fmt: skip
    edited = " ".join(render("str_replace_editor", arguments).split())[:160]
    lines = [f"- {edited}", f"- cat {edit.file}", "- python -m pytest -q"]
    return "From here, this was tried and led nowhere:\n" + "\n".join(lines)


def local_policies() -> list[str]:
    """Name the local models that can work here."""
    return [_LOCAL + name for name in installed_weights()]
