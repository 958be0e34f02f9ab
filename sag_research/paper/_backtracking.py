"""Does going back pay? A table read from a result file, or a small experiment in the store room."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from sag_research._text import open_text
from sag_research.deadend import wilson
from sag_research.errors import MissingDataError
from sag_research.log import SQLiteEventStore
from sag_research.model import Run
from sag_research.paper._spec import StudyError
from sag_research.paper._study import Cohort

if TYPE_CHECKING:
    import pandas as pd

    from sag_research.runtime import RunContext

__all__ = ["ARMS", "backtracking"]

ARMS: Final[dict[str, dict[str, Any]]] = {
    "continue": {"when": "shadow"},
    "abort": {"then": "abort", "feedback": "none"},
    "restart": {"where": "start", "feedback": "none"},
    "fork": {"feedback": "none"},
    "feedback": {"feedback": "avoid-list"},
}
"""What is done about an alarm: nothing, giving up, beginning anew, going back to the last stable
step, and the same with a word on what was tried."""
BUDGET: Final = 60
_HABITS: Final = {"clumsy": 0.25, "careless": 0.1, "blind": 0.05, "dither": 0.05, "notice": 0.05}
DRAWS: Final = 1_000


def backtracking(
    cohort: Cohort,
    file: str = "",
    arms: Sequence[str] = ("continue", "restart", "fork", "feedback"),
    tasks: int = 8,
    attempts: int = 1,
) -> pd.DataFrame:
    """Success of the arms of a backtracking experiment, and their differences from going on.

    Parameters
    ----------
    cohort : Cohort
        Its seed and folder are used; its runs are not.
    file : str
        A result file of ``benchmarks/backtracking.py``, relative to the study folder. Without it
        the experiment is run: scripted workers in the bundled store room, an alarm when the room
        cannot be won any more (the world says so), every arm with the same seeds and budget.
    arms : sequence of str
        Of `ARMS`; ``continue`` is what the others are compared with.
    tasks, attempts : int
        Levels, evenly chosen from easy to hard, and seeds for each.
    """
    if file:
        return _from_file(cohort, file)
    if strange := [arm for arm in arms if arm not in ARMS]:
        raise StudyError(f"no arm {strange[0]!r}", fix=f"some of {', '.join(ARMS)}")
    rows = [row for arm in dict.fromkeys(("continue", *arms))
            for row in _played(arm, tasks, attempts, cohort.seed)]  # fmt: skip
    return _table(rows, cohort.seed)


def _from_file(cohort: Cohort, file: str) -> pd.DataFrame:
    import pandas as pd

    path = cohort.folder / file
    if not path.is_file():
        raise MissingDataError(f"no result file {file}", fix="copy it into the study folder")
    with open_text(path) as stream:
        text = stream.read()
    try:
        read = json.loads(text)
    except json.JSONDecodeError as error:
        raise StudyError(f"{file} cannot be read", why=str(error)) from error
    rows = [
        {"world": world, "policy": policy, "monitor": monitor, **_kept(arm), **_gain(table, arm)}
        for world, found in read.get("worlds", {}).items()
        for policy, monitors in found.items() if isinstance(monitors, Mapping)
        for monitor, table in monitors.items()
        for arm in table["arms"]
    ]  # fmt: skip
    if not rows:
        raise StudyError(f"{file} holds no arms", fix="take a file of benchmarks/backtracking.py")
    return pd.DataFrame(rows)


def _kept(arm: Mapping[str, Any]) -> dict[str, Any]:
    return {key: arm.get(key) for key in ("arm", "n", "rate", "low", "high", "steps")}


def _gain(table: Mapping[str, Any], arm: Mapping[str, Any]) -> dict[str, Any]:
    gain = table.get("paired", {}).get(f"{arm['arm']} - continue", {})
    return {
        "gain": gain.get("difference"), "gain_low": gain.get("low"), "gain_high": gain.get("high"),
    }  # fmt: skip


def _played(arm: str, tasks: int, attempts: int, seed: int) -> Iterator[dict[str, Any]]:
    """Play one arm on each level and seed."""
    from sag_research.lab.crates import levels

    all_levels = [one.name for one in levels()]
    chosen = np.unique(np.linspace(0, len(all_levels) - 1, min(tasks, len(all_levels))).round())
    for place in chosen.astype(int).tolist():
        for attempt in range(attempts):
            yield _one(arm, all_levels[place], seed * 1_000 + attempt)


def _one(arm: str, level: str, seed: int) -> dict[str, Any]:
    from sag_research.lab.crates import CratesWorld, Habits, ScriptedWorker, carry_on, lost_at
    from sag_research.runtime import BacktrackPolicy, RuleWatch, backtrack

    def is_lost(steps: Sequence[Mapping[str, Any]]) -> bool:
        return lost_at([str(step.get("observation", "")) for step in steps]) is not None

    def outcome(ctx: RunContext) -> bool:
        return isinstance(ctx.world, CratesWorld) and ctx.world.solved

    habits = Habits(name="reckless", **_HABITS)
    with SQLiteEventStore(":memory:") as store:
        store.create_run(Run(run_id="r", task_id=level, config={"level": level, "seed": seed}))
        found = backtrack(
            store, "r",
            agent_factory=lambda change, seed: carry_on(ScriptedWorker(habits, seed)),
            watch=lambda: RuleWatch(is_lost, "the world says so"),
            world_factory=lambda run: CratesWorld(str(run.config["level"])), outcome=outcome,
            policy=BacktrackPolicy(max_backtracks=6, max_steps=BUDGET, **ARMS[arm]), seed=seed,
        )  # fmt: skip
        return {
            "arm": arm, "unit": (level, seed), "task": level, "steps": found.steps,
            "success": float(found.outcome == "success"), "backtracks": len(found.runs) - 1,
        }  # fmt: skip


def _table(rows: Sequence[Mapping[str, Any]], seed: int) -> pd.DataFrame:
    import pandas as pd

    frame = pd.DataFrame(rows)
    alone = frame[frame["arm"] == "continue"].set_index("unit")
    table = []
    for arm, own in frame.groupby("arm", sort=False):
        good, n = int(own["success"].sum()), len(own)
        low, high = wilson(good, n)
        gap = own.set_index("unit")["success"] - alone["success"]
        gain_low, gain_high = _interval(gap, [task for task, _ in gap.index], seed)
        first = arm == "continue"
        table.append({
            "arm": arm, "n": n, "n_tasks": own["task"].nunique(), "rate": good / n, "low": low,
            "high": high, "gain": np.nan if first else float(gap.mean()),
            "gain_low": np.nan if first else gain_low, "gain_high": np.nan if first else gain_high,
            "steps": float(own["steps"].mean()), "backtracks": float(own["backtracks"].mean()),
        })  # fmt: skip
    return pd.DataFrame(table)


def _interval(gap: pd.Series[float], task: Sequence[str], seed: int) -> tuple[float, float]:
    """Resample tasks; the difference is a mean over all units of the drawn tasks."""
    by_task = gap.groupby(list(task)).agg(["sum", "count"]).to_numpy()
    if len(by_task) < 2:  # one task says nothing about others
        return np.nan, np.nan
    drawn = np.random.default_rng(seed).integers(0, len(by_task), (DRAWS, len(by_task)))
    sums = by_task[drawn].sum(axis=1)
    low, high = np.quantile(sums[:, 0] / sums[:, 1], [0.025, 0.975])
    return float(low), float(high)
