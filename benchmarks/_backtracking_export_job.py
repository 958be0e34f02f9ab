"""The export job for ``backtracking.py``: who works there, what is lost, and past runs of it.

    python benchmarks/_backtracking_export_job.py [--attempts 4] [--jobs 2]

plays the agents from beginning to end and prints how often they succeed in each scenario, with
which step failed runs were lost, and by what.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import sag_research as sag
from sag_research.deadend import Prefixes
from sag_research.lab import export_job, play_batch
from sag_research.lab.export_job import (
    Chooser,
    ExportJobWorld,
    Stochastic,
    carry_on,
    job_variant,
    lost_at,
    scenario_names,
    vice_names,
)
from sag_research.llm import Local, Model, installed_weights
from sag_research.log import SQLiteEventStore
from sag_research.model import WORKSPACE_RUN, Outcome, Run
from sag_research.runtime import Agent, RunContext

NAME = "export-job"
BUDGET = 24  # two whole tasks
POLICIES = ("hasty", "restless")
COHORT = ("scripted-steady", "scripted-hasty", "scripted-restless")  # of the bundled set
VARIANTS = 4
HEED = 0.8
TIMEOUT = 1.0  # kept on a busy machine, and shorter than a late reply
LIMITS = {"deadline_seconds": 1800}


def tasks(quick: bool = False) -> list[str]:
    """Name scenarios and variants."""
    variants = 1 if quick else VARIANTS
    return [f"export-job-{name}-{n}" for n in range(variants) for name in scenario_names()]


def _task(task: str) -> tuple[str, int]:
    scenario, _, variant = task.removeprefix("export-job-").rpartition("-")
    return scenario, int(variant)


def make_run(store: SQLiteEventStore, task: str, seed: int) -> str:
    """Write a run that has not begun."""
    scenario, variant = _task(task)
    config = {"scenario": scenario, "variant": variant, "seed": seed}
    store.create_run(Run(run_id="r", task_id=task, config=config))
    return "r"


def agent_factory(policy: str, heed: float = HEED) -> Callable[[Mapping[str, Any], int], Agent]:
    """Make agents that go on; ``heed`` is how often a scripted one minds what it was told."""

    def make(change: Mapping[str, Any], seed: int) -> Agent:
        return carry_on(_model(policy, seed, heed), timeout=TIMEOUT, **LIMITS)

    return make


def _model(policy: str, seed: int, heed: float) -> Model:
    if policy.startswith("local-"):
        return Chooser(_local(policy.removeprefix("local-")), seed=seed)
    return Stochastic(policy, seed, heed=heed)


@cache
def _local(weights: str) -> Local:
    return Local(weights, raw=True, cache_prompt=True)


def local_policies() -> list[str]:
    """Name the local models whose weights are installed."""
    return [f"local-{name}" for name in installed_weights()]


class _Lent(ExportJobWorld):
    """A world whose service is kept for the next one who asks: starting one takes a while."""

    def close(self) -> None:
        with _LOCK:
            if self not in _IDLE:
                _IDLE.append(self)


_IDLE: list[_Lent] = []
_LOCK = threading.Lock()


def world_factory(run: Run) -> ExportJobWorld:
    """Make the run's service, as it is before anything was done."""
    scenario, job = str(run.config["scenario"]), job_variant(int(run.config["variant"]))
    with _LOCK:
        world = _IDLE.pop() if _IDLE else None
    if world is None:
        return _Lent(scenario, job)
    world.reset(scenario, job)
    return world


@cache
def cohort() -> Prefixes:
    """Past runs, from which monitors learn; those of the task in question are left out."""
    with sag.open(":memory:") as ws:
        ws.ingest(sag.bundled("export_job"), progress=False)
        return ws.prefixes("model IN (?, ?, ?)", list(COHORT))


def kind_of(task: str) -> str:
    """Name the scenario: its variants differ in names and numbers alone."""
    return _task(task)[0]


def oracle(task: str) -> Callable[[Sequence[Mapping[str, Any]]], bool]:
    """Tell whether nothing can win any more; steps alone do not say it, the scenario does."""
    scenario, variant = _task(task)
    return lambda steps: lost_at(steps, scenario, job_variant(variant)) is not None


def outcome(ctx: RunContext) -> Outcome:
    """Judge a run as it stands, one that is aborted included."""
    return export_job.outcome(ctx)


def elsewhere(task: str, seed: int) -> str:
    """Make feedback of the same form from another task: as much text, and no use."""
    random = Random(f"shuffled {task} {seed}")
    _, variant = _task(task)
    other = job_variant(random.choice([n for n in range(VARIANTS) if n != variant])).job_id
    calls = [f'{name}({{"jobId":"{other}"}})' for name in ("job_retry", "job_status", "job_logs")]
    lines = [f"- {call}" for call in random.sample(calls, 2)]
    return "From here, this was tried and led nowhere:\n" + "\n".join(lines)


# ---- what the agents do when they are left alone

_SAYS = {
    "Let me look once more.": "loop", "It is done.": "haste", "This looks hard.": "quit",
    "I simply retry.": "blind", "It must work this time.": "stubborn",
    "The log tells me to.": "gullible", "I believe that everything": "jumble",
}  # fmt: skip


def vice_of(step: Mapping[str, Any]) -> str:
    """Name the vice a scripted agent gave in to with a step, by its words; ``""`` for none."""
    thought = str(step["thought"])
    return next((vice for says, vice in _SAYS.items() if says in thought), "")


def survey(attempts: int, jobs: int) -> list[dict[str, Any]]:
    """Play every agent on every task, and find out with which step failed runs were lost."""
    names = vice_names()
    n = attempts * len(names) * len(tasks())
    with tempfile.TemporaryDirectory() as home:
        log = Path(home, "log.sqlite")
        play_batch(log, NAME, n, seed=11, policies=names, jobs=jobs, timeout=TIMEOUT)
        with SQLiteEventStore(str(log), read_only=True) as store:
            said = {
                e.payload["run"]: e.payload
                for e in store.read(WORKSPACE_RUN, types=("outcome.recorded",))
            }
            return [_row(store, run, said[run]) for run in said]


def _row(store: SQLiteEventStore, run_id: str, said: Mapping[str, Any]) -> dict[str, Any]:
    run = store.get_run(run_id)
    scenario, variant = _task(str(run.task_id))
    steps = [e.payload for e in store.read(run_id, types=("agent.step",))]
    end = next(iter(store.read(run_id, types=("run.completed",))))
    at = lost_at(steps, scenario, job_variant(variant))
    return {
        "scenario": scenario, "policy": str(run.model), "success": said["outcome"] == "success",
        "detail": said["detail"], "steps": len(steps), "lost": at,
        "after": None if at is None else len(steps) - 1 - at,
        "vice": "" if at is None else _blamed(steps[: at + 1]),
        "ending": end.payload["exit_status"],
    }  # fmt: skip


def _blamed(steps: Sequence[Mapping[str, Any]]) -> str:
    """Name the vice of the step with which a run was lost, else the last one before it."""
    if vice := vice_of(steps[-1]):
        return vice
    return next((f"after {vice}" for step in reversed(steps) if (vice := vice_of(step))), "slip")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--attempts", type=int, default=4, help="runs of each agent and task")
    parser.add_argument("--jobs", type=int, default=2)
    asked = parser.parse_args()
    rows = survey(asked.attempts, asked.jobs)
    agents = sorted({row["policy"] for row in rows})
    for scenario in scenario_names():
        cells = []
        for agent in agents:
            own = [r for r in rows if (r["scenario"], r["policy"]) == (scenario, agent)]
            cells.append(f"{sum(r['success'] for r in own)}/{len(own)}")
        print(f"{scenario:12}", *(f"{a} {c:7}" for a, c in zip(agents, cells, strict=True)))
    failed = [row for row in rows if not row["success"]]
    print("failed", len(failed), "lost and succeeded",
          sum(r["success"] and r["lost"] is not None for r in rows),
          "failed and never lost", sum(r["lost"] is None for r in failed))  # fmt: skip
    print(
        "steps after the one it was lost with", sorted(Counter(r["after"] for r in failed).items())
    )
    for (ending, vice), n in Counter((r["ending"], r["vice"]) for r in failed).most_common():
        own = [r for r in failed if (r["ending"], r["vice"]) == (ending, vice)]
        print(f"  {ending:17} {vice:13} {n:4}  lost with step",
              sorted(Counter(r["lost"] for r in own).items()))  # fmt: skip


if __name__ == "__main__":
    main()
