"""How far back a halted run must go, by runs of which the truth is known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from sag_research.deadend import (
    Alarm,
    ForkSet,
    Looks,
    Prefixes,
    RiskModel,
    calibrate_forks,
    fork_point,
)
from sag_research.deadend._changepoint import change_point
from sag_research.errors import NotEnoughDataError, UsageError


class Written(RiskModel):
    """A model whose score is written in the step."""

    name = "written"

    def _fit(self, prefixes: Prefixes, looks: Looks, failed: Any, weight: Any) -> None:
        """Nothing is learnt."""

    def _predict(self, prefixes: Prefixes, looks: Looks) -> Any:
        scores = np.array([float(text) for text in prefixes.table.text("observation")])
        return scores[prefixes.rows(looks)]


def cohort(runs: list[list[float]], outcome: str, prefix: str) -> Prefixes:
    texts = [f"{score}" for run in runs for score in run]
    columns = pa.table({"thought": texts, "action": texts, "observation": texts})
    tasks = [f"{prefix}-{n}" for n in range(len(runs))]
    made = Prefixes.from_tokens(
        [["look|src|ok"] * len(run) for run in runs], [outcome] * len(runs), tasks, columns
    )
    frame = made.runs.assign(run_id=made.runs["task_id"])
    return Prefixes(frame, made.start, made.stop, made.table)


@pytest.fixture(scope="module")
def alarm() -> Alarm:
    """Fires above .8."""
    both = cohort([[0.0] * 3, [1.0] * 3], "success", "fitted")
    both = Prefixes(
        both.runs.assign(outcome=["success", "failure"]), both.start, both.stop, both.table
    )
    good = cohort([[0.1, 0.8, 0.1]] * 20, "success", "good")
    return Alarm(alpha=0.1, rule="split").calibrate(Written().fit(both), good)


def lost(rng: np.random.Generator) -> tuple[list[float], int]:
    """A run lost at some step, whose risk rises some steps before or after, and creeps up."""
    at = int(rng.integers(2, 8))
    rise = max(1, at + int(rng.integers(-1, 4)))
    risk = [0.1] * rise + [0.5 + 0.1 * n for n in range(5)]
    return [round(r + 0.01 * rng.random(), 4) for r in risk], at


def test_by_hand(alarm: Alarm) -> None:
    """Halted with step 6, the risk rises with step 4: 2 steps after the truth in all runs."""
    runs = [[0.1, 0.1, 0.1, 0.1, 0.6, 0.7, 0.9, 0.9]] * 9
    found = calibrate_forks(alarm, cohort(runs, "failure", "x"), [2] * 9)
    assert found == ForkSet(0.1, 2, 9)
    assert fork_point(runs[0][:7], ["look|src|ok"] * 7, found) == (4, 1)
    assert fork_point(runs[0][:7], ["look|src|ok"] * 7) == (4, 3)


def test_only_runs_that_were_lost_when_halted_count(alarm: Alarm) -> None:
    halted, calm = [0.1, 0.1, 0.7, 0.9, 0.9, 0.9], [0.1, 0.1, 0.2]
    runs = [halted] * 9 + [calm] + [halted] * 2
    prefixes = cohort(runs, "failure", "x")
    found = calibrate_forks(alarm, prefixes, [2] * 9 + [1] + [-1, 5])
    assert found.n == 9  # never halted; never lost; lost after it was halted
    with pytest.raises(NotEnoughDataError, match="9 runs"):
        calibrate_forks(alarm, prefixes, [2] * 8 + [-1] + [1] + [-1, 5])


def test_the_set_holds_the_true_step_as_often_as_it_says(alarm: Alarm) -> None:
    """99 runs set it at alpha = .1; 400 further ones are missed beta-binomially at most."""
    rng = np.random.default_rng(8)
    drawn = [lost(rng) for _ in range(499)]
    runs = [run for run, _ in drawn]
    found = calibrate_forks(alarm, cohort(runs[:99], "failure", "x"), [at for _, at in drawn[:99]])
    missed = n = 0
    for run, at in drawn[99:]:
        seen = next((k for k, risk in enumerate(run, 1) if alarm.fires(k, risk)), None)
        if seen is None or at >= seen:
            continue
        n += 1
        missed += found.earliest(change_point(np.array(run[:seen])).step, seen) > at
    assert n > 300
    limit = stats.betabinom.ppf(1 - 1e-3, n, 0.1 * (found.n + 1), 0.9 * (found.n + 1))
    assert missed <= limit
    tight = ForkSet(0.1, found.before - 2, found.n)  # a set that is too small would be found out
    short = sum(
        tight.earliest(change_point(np.array(run)).step, len(run)) > at for run, at in drawn[99:]
    )
    assert short > limit


@pytest.mark.parametrize(
    ("change", "n_steps", "earliest"), [(0, 5, 0), (1, 5, 0), (4, 5, 2), (None, 5, 0), (None, 0, 0)]
)
def test_the_set_ends_with_the_run(change: int | None, n_steps: int, earliest: int) -> None:
    assert ForkSet(0.1, 2, 20).earliest(change, n_steps) == earliest


def test_a_set_may_begin_after_the_rise() -> None:
    assert ForkSet(0.1, -2, 20).earliest(3, 9) == 5
    assert ForkSet(0.1, -2, 20).earliest(3, 5) == 4


def test_what_cannot_be_calibrated(alarm: Alarm) -> None:
    runs = cohort([[0.9, 0.9]] * 9, "failure", "x")
    with pytest.raises(UsageError, match="true steps"):
        calibrate_forks(alarm, runs, [1])
    with pytest.raises(UsageError, match="has 2 steps"):
        calibrate_forks(alarm, runs, [2] * 9)
    with pytest.raises(UsageError, match="no share"):
        calibrate_forks(alarm, runs, [0] * 9, alpha=0)
    with pytest.raises(UsageError, match="no model"):
        calibrate_forks(Alarm(), runs, [0] * 9)
