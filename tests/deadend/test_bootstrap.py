from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from sag_research.deadend import _bootstrap as b
from sag_research.deadend import _metrics as m


def scored(seed: int = 0, n: int = 400, clusters: int = 30, levels: int = 25) -> b.Scored:
    random = np.random.default_rng(seed)
    cluster = random.integers(0, clusters, n)
    failed = (random.random(n) < 0.3 + 0.4 * (cluster % 2)).astype(float)
    score = np.round(np.clip(0.4 * failed + 0.6 * random.random(n), 0, 1) * levels) / levels
    weight = random.random(n) + 0.1
    fold = cluster % 3
    return b.Scored(failed, score, weight, fold, cluster, np.arange(n))


def replicated(data: b.Scored, times: np.ndarray) -> b.Scored:
    """Copy each look as often as its cluster was drawn."""
    return data.where(np.repeat(np.arange(len(data.failed)), times[data.cluster].astype(int)))


@pytest.mark.parametrize("draw", range(4))
def test_sums_per_task_give_what_copying_the_looks_gives(draw: int) -> None:
    data = scored()
    drawn = b.resamples(30, 5, seed=7)
    copies = replicated(data, drawn[draw])
    y, s, w, fold = copies.failed, copies.score, copies.weight, copies.fold
    assert b.auroc_statistic(data)(drawn)[draw] == pytest.approx(m.auroc(y, s, w, fold))
    expected = m.average_precision(y, s, w, fold)
    assert b.precision_area_statistic(data)(drawn)[draw] == pytest.approx(expected)
    assert b.brier_statistic(data, 30)(drawn)[draw] == pytest.approx(m.brier(y, s, w))
    assert b.ece_statistic(data, 30)(drawn)[draw] == pytest.approx(m.ece(y, s, w))


def test_small_pieces_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    data, drawn = scored(), b.resamples(30, 9)
    whole = [b.auroc_statistic(data)(drawn), b.precision_area_statistic(data)(drawn)]
    monkeypatch.setattr(b, "_CELLS", 100)
    monkeypatch.setattr(b, "_CACHED", 200)
    parts = [b.auroc_statistic(data)(drawn), b.precision_area_statistic(data)(drawn)]
    assert parts[0] == pytest.approx(whole[0])
    assert parts[1] == pytest.approx(whole[1])


def test_resamples_draw_as_many_clusters_as_there_are() -> None:
    drawn = b.resamples(7, 100)
    assert drawn.shape == (100, 7)
    assert (drawn.sum(axis=1) == 7).all()
    assert np.array_equal(drawn, b.resamples(7, 100))
    assert not np.array_equal(drawn, b.resamples(7, 100, seed=1))


def test_interval_covers_and_widens_with_clusters() -> None:
    """Runs that are all alike inside a task tell only as much as the tasks."""
    task = np.repeat(np.arange(40), 10)
    value = np.repeat(np.random.default_rng(0).random(40) < 0.5, 10).astype(float)
    by_task = b.ratio_statistic(value, np.ones(400), task, 40)
    by_run = b.ratio_statistic(value, np.ones(400), np.arange(400), 400)
    wide = b.estimate(b.sample(by_task, b.resamples(40), 400))
    narrow = b.estimate(b.sample(by_run, b.resamples(400), 400))
    assert wide.value == narrow.value == value.mean()
    assert wide.high - wide.low > 2.5 * (narrow.high - narrow.low)
    normal = 2 * 1.96 * value.std() / np.sqrt(40)
    assert wide.high - wide.low == pytest.approx(normal, rel=0.15)


def test_one_cluster_has_no_interval() -> None:
    one = b.ratio_statistic(np.ones(3), np.ones(3), np.zeros(3, int), 1)
    found = b.estimate(b.sample(one, b.resamples(1), 3))
    assert found.value == 1.0
    assert np.isnan([found.low, found.high]).all()


def test_difference_of_a_thing_and_itself_is_nothing() -> None:
    data = scored()
    one = b.sample(b.auroc_statistic(data), b.resamples(30), 400)
    assert b.difference(one, one) == b.Difference(0.0, 0.0, 0.0, 1.0)


def test_paired_p_value_by_hand() -> None:
    draws = np.arange(1.0, 100.0)
    one = b.Sampled(0.5, draws, 10, 10)
    other = b.Sampled(0.4, np.where(draws <= 3, draws + 1, draws - 1), 10, 10)
    # 3 of 99 resamples are on the other side: 2 (3 + 1) / 100
    found = b.difference(one, other)
    assert found.difference == pytest.approx(0.1)
    assert found.p == pytest.approx(0.08)


@pytest.mark.parametrize("make", [b.auroc_statistic, b.precision_area_statistic])
def test_linear_in_the_draws_is_close_where_clusters_are_many(
    make: Callable[[b.Scored], b.Statistic], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Value to the last digits, spread within a twentieth, draw by draw nearly the same."""
    random = np.random.default_rng(3)
    n_clusters, size = 1_500, 8
    cluster = np.repeat(np.arange(n_clusters), size)
    effect = np.repeat(random.normal(size=n_clusters), size)
    failed = (random.random(len(cluster)) < 0.4 + 0.2 * np.tanh(effect)).astype(float)
    score = np.round(failed + effect + 2 * random.normal(size=len(cluster)), 1)  # with ties
    weight = random.uniform(0.2, 1, len(cluster))
    data = b.Scored(failed, score, weight, cluster % 3, cluster, cluster)
    drawn = b.resamples(n_clusters + 5, 400, seed=1)  # some clusters are not among these looks
    exact = b.sample(make(data), drawn, 1)
    monkeypatch.setattr("sag_research.deadend._bootstrap.MOST_EXACT", 100)
    linear = b.sample(make(data), drawn, 1)
    assert linear.value == pytest.approx(exact.value, rel=1e-9)
    assert linear.draws.std() == pytest.approx(exact.draws.std(), rel=0.05)
    assert np.corrcoef(linear.draws, exact.draws)[0, 1] > 0.995


def test_linear_without_a_pair_is_nan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sag_research.deadend._bootstrap.MOST_EXACT", 0)
    one = np.zeros(2)
    data = b.Scored(one, one + 0.5, one + 1, one.astype(int), np.arange(2), np.arange(2))
    assert np.isnan(b.sample(b.auroc_statistic(data), b.resamples(2, 10), 1).value)
    assert np.isnan(b.sample(b.precision_area_statistic(data), b.resamples(2, 10), 1).value)
