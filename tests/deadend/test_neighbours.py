"""Nearest neighbours, by hand."""

from __future__ import annotations

import pytest

from sag_research.deadend import Prefixes
from sag_research.deadend._neighbours import NeighbourRisk


def test_failure_rate_of_the_nearest_runs_at_the_same_step() -> None:
    runs = [["a", "x"], ["a", "x"], ["a", "x"], ["b", "x"], ["b", "x"]]
    p = Prefixes.from_tokens(runs, ["failure", "failure", "success", "success", "success"])
    risk = NeighbourRisk(neighbours=3, strength=0.0, min_runs=1).fit(p)
    new = Prefixes.from_tokens([["a", "y"], ["b", "y"]], ["unknown"] * 2)
    # three begin with a, two of them failed; of those with b there are two, and one more is taken
    assert risk.predict(new, new.looks()).tolist() == pytest.approx([2 / 3, 1 / 3])


def test_rates_are_shrunk_to_the_base_rate() -> None:
    p = Prefixes.from_tokens([["a", "x"]] * 2 + [["b", "x"]] * 2, ["failure"] * 2 + ["success"] * 2)
    risk = NeighbourRisk(neighbours=2, strength=2.0, min_runs=1).fit(p)
    assert risk.predict(p, p.looks())[0] == pytest.approx((2 + 2 * 0.5) / (2 + 2))


def test_a_look_past_the_grid_uses_its_last_point() -> None:
    p = Prefixes.from_tokens([["a", "x"], ["b", "x"]], ["failure", "success"])
    risk = NeighbourRisk(neighbours=1, strength=0.0, min_runs=1).fit(p)
    long = Prefixes.from_tokens([["a"] * 50], ["unknown"])
    assert set(risk.predict(long)) == {1.0}


def test_table_counts_the_runs_alive_at_each_point() -> None:
    runs = [["a"] * 2, ["a"] * 3, ["a"] * 3]
    p = Prefixes.from_tokens(runs, ["failure", "success", "failure"])
    table = NeighbourRisk(min_runs=1).fit(p).table_
    assert table.to_dict("list") == {"seen": [1, 2], "n": [3, 2], "failed": [2, 1]}
