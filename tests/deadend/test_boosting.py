"""Boosting on behaviour features."""

from __future__ import annotations

import pytest

from sag_research.deadend._boosting import BoostingRisk
from sag_research.errors import UsageError
from tests.deadend.features import cohort


def test_it_learns_and_is_repeatable() -> None:
    p, other = cohort(tasks=60, seed=1), cohort(tasks=40, seed=2)
    risk = BoostingRisk(iterations=20, min_leaf=5).fit(p)
    scores = risk.predict(other, other.looks())
    failed = other.failed[other.looks().run] == 1
    assert scores[failed].mean() > scores[~failed].mean() + 0.1
    again = BoostingRisk(iterations=20, min_leaf=5).fit(p)
    assert again.predict(other, other.looks()).tolist() == scores.tolist()


def test_it_cannot_be_saved_and_says_so() -> None:
    with pytest.raises(UsageError, match="cannot be saved"):
        BoostingRisk()._state()
