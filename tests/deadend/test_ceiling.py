from __future__ import annotations

import math

import numpy as np
import pytest

from sag_research.deadend import _metrics as m
from sag_research.deadend._ceiling import (
    beta_auroc,
    hindsight,
    identity_ceiling,
    observability_ceiling,
    within_share,
)
from sag_research.deadend._crossfit import cross_fit
from sag_research.deadend._prefixes import Prefixes
from sag_research.deadend._splits import make_folds
from sag_research.errors import NotEnoughDataError
from tests.deadend.evaluation import Share, cohort


def test_within_by_hand() -> None:
    # groups (1, 0) (1, 1): within (.5 + 0) / (4 - 2); total of 1 0 1 1 is .25
    found = within_share(np.array([1.0, 0, 1, 1, 0]), np.array([0, 0, 1, 1, 2]))
    assert found.share == pytest.approx(0.25 / 0.25)
    assert (found.n, found.groups, found.coverage) == (4, 2, 0.8)
    assert math.isnan(within_share(np.array([1.0, 0]), np.array([0, 1])).share)


def test_within_is_unbiased_where_groups_mean_nothing() -> None:
    random = np.random.default_rng(0)
    shares = [
        within_share((random.random(60) < 0.3).astype(float), np.arange(60) // 2).share
        for _ in range(400)
    ]
    assert np.mean(shares) == pytest.approx(1, abs=4 * np.std(shares) / 20)


def test_beta_auroc_against_drawing() -> None:
    random = np.random.default_rng(1)
    mean, explained = 0.3, 0.2
    size = 1 / explained - 1
    p = random.beta(mean * size, (1 - mean) * size, 200_000)
    drawn = m.auroc((random.random(len(p)) < p).astype(float), p)
    assert beta_auroc(mean, explained) == pytest.approx(drawn, abs=0.005)
    assert beta_auroc(0.5, 1 / 3) == pytest.approx(5 / 6, abs=1e-4)
    assert (beta_auroc(0.3, 0.0), beta_auroc(0.3, 1.0)) == (0.5, 1.0)
    assert math.isnan(beta_auroc(0.3, math.nan))


def told(n: int = 400, seed: int = 0) -> Prefixes:
    """The third token says which of two rates a run has; the first two say nothing."""
    random = np.random.default_rng(seed)
    tokens, outcomes = [], []
    for _ in range(n):
        kind = random.integers(2)
        first = [f"a{random.integers(2)}", "b"]
        tokens.append([*first, f"k{kind}", *[f"x{random.integers(9)}" for _ in range(8)]])
        outcomes.append("failure" if random.random() < (0.2, 0.8)[kind] else "success")
    return Prefixes.from_tokens(tokens, outcomes)


def test_prefixes_show_what_they_show() -> None:
    table = observability_ceiling(told(), depths=[2, 3, 4, 99]).set_index("depth")
    assert table.index.tolist() == [2, 3, 4]  # no run is alive after 99 steps
    assert table.loc[2, "within"] == pytest.approx(1, abs=0.03)
    # two rates .2 and .8: variance within .16 of .25
    assert table.loc[3, "within"] == pytest.approx(0.64, abs=0.1)
    assert table.loc[3, "within_low"] < 0.64 < table.loc[3, "within_high"]
    assert table.loc[2, "auroc"] < 0.6 < 0.7 < table.loc[3, "auroc"]
    assert (table["n_alive"] == 400).all()
    assert table.loc[3, "coverage"] == 1


def test_coverage_falls_with_depth_and_is_said() -> None:
    table = observability_ceiling(told(), depths=[3, 6, 10])
    assert table["coverage"].is_monotonic_decreasing
    assert table["coverage"].iloc[-1] < 0.05
    assert (table["n"] <= table["n_alive"]).all()


def test_a_decided_outcome_is_not_seen() -> None:
    p = told()
    known = Prefixes.of(p.runs.assign(known_at_step=2), p.start, p.stop, p.table)
    assert observability_ceiling(known, depths=[2, 3])["depth"].tolist() == [2]


def test_siblings_tell_how_much_the_task_settles() -> None:
    p = cohort(tasks=60, spread=0.3, signal=0.0, model=["m1", "m2"] * 120)
    table = identity_ceiling(p).set_index("by")
    assert table.index.tolist() == ["task_id", "model", "task_id × model"]
    assert table.loc["task_id", "icc"] > 0.3
    assert table.loc["model", "icc"] < 0.05
    assert table.loc["task_id", "auroc_true"] > table.loc["task_id", "auroc_siblings"] > 0.65
    # leaving each run out: a task's own outcome is not among its siblings'
    flat = cohort(tasks=60, spread=200.0, signal=0.0)
    assert identity_ceiling(flat, ["task_id"])["auroc_siblings"][0] < 0.6


def test_sibling_score_by_hand() -> None:
    p = Prefixes.from_tokens(
        [["a"]] * 5, ["failure", "failure", "success", "success", "failure"], list("xxyyz")
    )
    row = identity_ceiling(p, ["task_id"]).iloc[0]
    assert (row["n"], row["n_cells"], row["coverage"]) == (4, 2, 0.8)
    assert (row["icc"], row["auroc_true"], row["auroc_siblings"]) == (1.0, 1.0, 1.0)


def test_hindsight_is_of_the_last_look() -> None:
    p = cohort()
    scores = cross_fit(Share(), p, make_folds(p))
    last = scores.table_.groupby("run_id").last()
    assert hindsight(scores) == m.auroc(last["failed"], last["score"], fold=last["fold"])


def test_one_outcome_has_no_ceiling() -> None:
    p = Prefixes.from_tokens([["a", "b"]] * 4, ["failure"] * 4)
    for ceiling in (observability_ceiling, identity_ceiling):
        with pytest.raises(NotEnoughDataError, match="both are needed"):
            ceiling(p)
