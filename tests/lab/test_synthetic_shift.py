"""Alarms on families of tasks that no threshold was set on: what each rule promises, and keeps."""

from __future__ import annotations

import math

import numpy as np
import pytest

from sag_research.deadend._backtest_run import (
    AlarmPlan,
    Judged,
    first_alarms,
    judge,
    thresholds_of,
    units_of,
)
from sag_research.deadend._splits import make_folds
from sag_research.lab.synthetic import OracleRisk, generate

ALPHA = 0.05
SEEDS = range(4)
RULES = ("split", "fold-safe")


def false_aborts(seed: int) -> dict[str, float]:
    """Share of the successes of new families that each rule stops.

    The score is the truth of a world in which all families are alike, so it is the same for all
    folds and not to blame.
    """
    prefixes = generate("traps", tasks=300, seed=seed, shift=1.0).prefixes
    folds = make_folds(prefixes, "group", "repo", 5, 1, seed)
    plan = AlarmPlan(ALPHA, "split", 1, "repo", "repo", seed)
    judged: Judged = judge(OracleRisk("traps"), prefixes, folds, plan)
    units = units_of(folds)
    good = prefixes.failed[units.run] == 0
    found = {}
    for rule in RULES:
        thresholds = thresholds_of(judged.calibrations, plan._replace(rule=rule))
        stop = first_alarms(judged.scores, units, np.array([t.value for t in thresholds]))
        found[rule] = float(np.isfinite(stop[good]).mean())
    return found


@pytest.fixture(scope="module")
def shares() -> dict[str, np.ndarray]:
    found = [false_aborts(seed) for seed in SEEDS]
    return {rule: np.array([one[rule] for one in found]) for rule in RULES}


def test_plain_split_overshoots_on_new_families(shares: dict[str, np.ndarray]) -> None:
    assert shares["split"].mean() > ALPHA


def test_default_rule_stays_below_alpha_on_new_families(shares: dict[str, np.ndarray]) -> None:
    safe = shares["fold-safe"]
    error = safe.std(ddof=1) / math.sqrt(len(safe))
    assert 0 < safe.mean() <= ALPHA + error
    assert safe.mean() < shares["split"].mean()
