"""Does going back pay? Arms of one experiment in the store room, at equal total steps.

    python benchmarks/backtracking.py [--attempts 4] [--budget 60] [--jobs 2] [--quick]

Each unit is a level and a seed; every arm plays it with the same seed and the same budget of steps
over all its attempts, so differences are paired. The worker is scripted and has its vices on.

    continue    nothing is done about an alarm (shadow)
    restart     halted, and begun anew
    fork        taken back to the last stable step before the risk rose, told nothing
    feedback    the same, and told what was tried behind that step
    shuffled    the same, and told what was tried in a run of another level

Monitors: the truth (a solver knows when the room is lost), a model fitted on the bundled runs of
*other* levels with an alarm at alpha = .05, and alarms at random steps. Rates have Wilson
intervals, paired differences a bootstrap over levels. Written to
``benchmarks/results/backtracking.json``.
"""

from __future__ import annotations

import argparse
import json
import platform
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import msgspec
import numpy as np

import sag_research as sag
from sag_research.deadend import DeadEndMonitor, Prefixes, wilson
from sag_research.lab.crates import CratesWorld, Habits, ScriptedWorker, carry_on, levels, lost_at
from sag_research.log import SQLiteEventStore
from sag_research.model import Run
from sag_research.runtime import Agent, BacktrackPolicy, Watch, backtrack

RESULT = Path(__file__).resolve().parent / "results" / "backtracking.json"
ARMS = ("continue", "restart", "fork", "feedback", "shuffled")
MONITORS = ("truth", "model", "random")
WORKER = Habits(name="reckless", clumsy=0.25, careless=0.1, blind=0.05, dither=0.05, notice=0.05)
COHORT = "worker-clumsy"  # of the bundled set: alike, and not the same
ALPHA = 0.05
RANDOM_RATE = 0.05  # chance of a random alarm, per step


class Said(NamedTuple):
    risk: float
    low: float
    high: float
    alarm: bool
    evidence: str


class Rule:
    """A monitor that is a rule on the observations so far."""

    def __init__(self, raises: Callable[[list[str]], bool], evidence: str) -> None:
        self.tokens_: list[str] = []
        self.verdicts_: list[Any] = []
        self.alarm_at_: int | None = None
        self._raises, self._evidence, self._seen = raises, evidence, list[str]()

    def observe(self, step: Mapping[str, Any], /) -> Said:
        self._seen.append(str(step.get("observation", "")))
        self.tokens_.append("call|push|ok")
        raised = self._raises(self._seen)
        if raised and self.alarm_at_ is None:
            self.alarm_at_ = len(self._seen)
        said = Said(0.9 if raised else 0.1, 0, 1, self.alarm_at_ is not None, self._evidence)
        self.verdicts_.append(said)
        return said


@cache
def cohort() -> Prefixes:
    with sag.open(":memory:") as ws:
        ws.ingest(sag.bundled("crates"), progress=False)
        return ws.prefixes("model = ?", [COHORT])


@cache
def trained(level: str) -> sag.Alarm:
    """An alarm whose model has not seen the level."""
    task = "crates-" + level
    others = np.flatnonzero((cohort().runs["task_id"] != task).to_numpy())
    known = cohort().take(others)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        risk = sag.PrefixRisk(text=False).fit(known)
        return sag.Alarm(alpha=ALPHA).calibrate(risk, known)


def watch_of(monitor: str, level: str, seed: int) -> Callable[[], Watch]:
    if monitor == "model":
        return lambda: DeadEndMonitor(trained(level))
    if monitor == "truth":
        return lambda: Rule(lambda seen: lost_at(seen) is not None, "the solver says so")
    chance = Random(f"alarm {seed} {level}")
    return lambda: Rule(lambda seen: chance.random() < RANDOM_RATE, "chance says so")


def policy_of(arm: str, budget: int) -> BacktrackPolicy:
    return BacktrackPolicy(
        when="shadow" if arm == "continue" else "alarm",
        where="start" if arm == "restart" else "change-point",
        feedback="avoid-list" if arm in ("feedback", "shuffled") else "none",
        max_backtracks=6, max_steps=budget,
    )  # fmt: skip


def elsewhere(level: str, seed: int) -> str:
    """What somebody tried in another level: as much text, and no use."""
    random = Random(f"shuffled {level} {seed}")
    place = f"push(row={random.randrange(1, 6)}, column={random.randrange(1, 6)}, direction="
    ways = ("up", "down", "left", "right")
    lines = [f"- {place}{random.choice(ways)})" for _ in range(3)]
    return "From here, this was tried and led nowhere:\n" + "\n".join(lines)


def unit(job: tuple[str, str, int, int]) -> list[dict[str, Any]]:
    """Play one level and seed in every arm under one monitor."""
    monitor, level, seed, budget = job
    rows = []
    for arm in ARMS:
        with tempfile.TemporaryDirectory() as home, SQLiteEventStore(home + "/log.sqlite") as store:
            store.create_run(Run(run_id="r", task_id=f"crates-{level}", config={"level": level}))

            def agent(change: Mapping[str, Any], own: int, arm: str = arm) -> Agent:
                inner = carry_on(ScriptedWorker(WORKER, own))
                if arm != "shuffled" or "feedback" not in change:
                    return inner

                def misled(ctx: Any) -> Any:
                    ctx.change = {**ctx.change, "feedback": elsewhere(level, own)}
                    return inner(ctx)

                return misled

            found = backtrack(
                store, "r", agent_factory=agent, watch=watch_of(monitor, level, seed),
                world_factory=lambda run: CratesWorld(str(run.config["level"])),
                policy=policy_of(arm, budget), seed=seed,
            )  # fmt: skip
            rows.append({
                "monitor": monitor, "arm": arm, "level": level, "seed": seed,
                "success": found.outcome == "success", "steps": found.steps,
                "backtracks": len(found.runs) - 1,
            })  # fmt: skip
    return rows


def paired(rows: Sequence[dict[str, Any]], arm: str, other: str) -> dict[str, float]:
    """Mean difference of success, with an interval by resampling levels."""
    by_unit = {(r["level"], r["seed"], r["arm"]): float(r["success"]) for r in rows}
    names = sorted({(level, seed) for level, seed, _ in by_unit})
    gains: dict[str, list[float]] = {}
    for level, seed in names:
        gain = by_unit[level, seed, arm] - by_unit[level, seed, other]
        gains.setdefault(level, []).append(gain)
    values = [np.array(gain) for gain in gains.values()]
    rng = np.random.default_rng(7)
    means = [
        float(np.concatenate([values[i] for i in rng.integers(0, len(values), len(values))]).mean())
        for _ in range(2000)
    ]
    low, high = np.quantile(means, [0.025, 0.975])
    mean = float(np.concatenate(values).mean())
    return {
        "difference": round(mean, 3),
        "low": round(float(low), 3),
        "high": round(float(high), 3),
    }


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    table = []
    for arm in ARMS:
        own = [row for row in rows if row["arm"] == arm]
        good = sum(row["success"] for row in own)
        low, high = wilson(good, len(own))
        table.append({
            "arm": arm, "n": len(own), "success": round(good / len(own), 3),
            "low": round(float(low), 3), "high": round(float(high), 3),
            "steps": round(float(np.mean([row["steps"] for row in own])), 1),
            "backtracks": round(float(np.mean([row["backtracks"] for row in own])), 2),
        })  # fmt: skip
    pairs = [("feedback", "continue"), ("feedback", "restart"), ("feedback", "shuffled"),
             ("fork", "continue"), ("fork", "restart")]  # fmt: skip
    return {"arms": table, "paired": {f"{a} - {b}": paired(rows, a, b) for a, b in pairs}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--attempts", type=int, default=4, help="seeds of each level")
    parser.add_argument("--budget", type=int, default=60, help="steps of all attempts together")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="easy levels, 1 seed")
    asked = parser.parse_args()
    names = [one.name for one in levels() if not asked.quick or one.difficulty == "easy"]
    seeds = range(1 if asked.quick else asked.attempts)
    result: dict[str, Any] = {
        "python": platform.python_version(), "world": "crates",
        "worker": msgspec.to_builtins(WORKER),
        "budget": asked.budget, "levels": len(names), "seeds": len(seeds), "quick": asked.quick,
    }  # fmt: skip
    jobs = [(m, name, s, asked.budget) for m in MONITORS for name in names for s in seeds]
    with ProcessPoolExecutor(asked.jobs, mp_context=get_context("spawn")) as pool:
        rows = [row for found in pool.map(unit, jobs, chunksize=4) for row in found]
    for monitor in MONITORS:
        result[monitor] = summary([row for row in rows if row["monitor"] == monitor])
        print(f"monitor {monitor}")
        for row in result[monitor]["arms"]:
            print("  {arm:9} n {n:3}  success {success:.2f} [{low:.2f}, {high:.2f}]  "
                  "steps {steps:5.1f}  backtracks {backtracks:.2f}".format(**row))  # fmt: skip
        for pair, gain in result[monitor]["paired"].items():
            print("  {:22} {difference:+.3f} [{low:+.3f}, {high:+.3f}]".format(pair, **gain))
    path = RESULT.with_stem("backtracking-quick") if asked.quick else RESULT
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
