"""Cohen's kappa, beside a peer, and what counts as a unit."""

from __future__ import annotations

import math

import numpy as np
import pytest
from statsmodels.stats.inter_rater import cohens_kappa

from sag_research.deadend import agreement, cohen_kappa
from sag_research.errors import NotEnoughDataError, UsageError


@pytest.mark.parametrize("seed", range(5))
def test_a_peer_gives_the_same(seed):
    table = np.random.default_rng(seed).integers(1, 40, size=(2 + seed % 3,) * 2)
    found, peer = cohen_kappa(table), cohens_kappa(table)
    assert found.kappa == pytest.approx(peer.kappa)
    assert found.low == pytest.approx(peer.kappa_low)
    assert found.high == pytest.approx(peer.kappa_upp)


def test_clusters_are_resampled():
    rng = np.random.default_rng(0)
    tables = np.stack([rng.multinomial(30, [0.3, 0.1, 0.1, 0.5]).reshape(2, 2) for _ in range(40)])
    whole, found = cohen_kappa(tables.sum(axis=0)), cohen_kappa(tables)
    assert found.kappa == pytest.approx(whole.kappa)
    assert found.clusters == 40
    assert found.low < found.kappa < found.high


def test_no_number_without_variation_or_data():
    assert math.isnan(cohen_kappa([[0, 0], [0, 9]]).kappa)
    with pytest.raises(NotEnoughDataError):
        cohen_kappa([[0, 0], [0, 0]])
    with pytest.raises(UsageError):
        cohen_kappa([[1, 2, 3], [1, 2, 3]])


def test_every_unit_is_counted_once():
    marks = {"a": [("r", 0, "x"), ("r", 2, "y"), ("q", 1, "x")], "b": [("r", 0, "x")]}
    found = agreement(marks, {"r": 4, "q": 3})
    table = found.table_.set_index("code")
    assert table.loc["x", ["n", "both", "only_a", "only_b", "neither"]].tolist() == [7, 1, 1, 0, 5]
    assert table.loc["(all codes)", "n"] == 14
    assert agreement(marks, {"r": 4, "q": 3}, unit="run").kappa.n == 4
