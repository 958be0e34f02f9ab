"""How good a ranking of remembered runs is, and how sure that is."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Interval", "area", "mean_interval", "ndcg", "precision", "reciprocal_rank"]

Floats = NDArray[np.float64]
LEVEL = (2.5, 97.5)
"""Percentiles of the resampled means: a 95 % interval."""


class Interval(NamedTuple):
    """A mean with its 95 % interval, over n queries of so many tasks."""

    value: float
    low: float
    high: float
    n: int
    tasks: int


def precision(relevant: NDArray[np.bool_], k: int) -> float:
    """Share of the first k that are relevant; what was not returned is not.

    Examples
    --------
    >>> precision(np.array([True, False]), 5)
    0.2
    """
    return float(np.count_nonzero(relevant[:k])) / k


def reciprocal_rank(relevant: NDArray[np.bool_]) -> float:
    """One over the rank of the first relevant one, 0 without any.

    Examples
    --------
    >>> reciprocal_rank(np.array([False, True, True]))
    0.5
    """
    places = np.flatnonzero(relevant)
    return 1.0 / (int(places[0]) + 1) if len(places) else 0.0


def ndcg(relevant: NDArray[np.bool_], k: int, n_relevant: int) -> float:
    """Discounted gain of the first k over that of the best order (relevance is 0 or 1).

    References
    ----------
    K. Järvelin, J. Kekäläinen: Cumulated gain-based evaluation of IR techniques, 2002.

    Examples
    --------
    >>> ndcg(np.array([True, True, False]), 10, 2), ndcg(np.array([False]), 10, 2)
    (1.0, 0.0)
    """
    discount = 1.0 / np.log2(np.arange(2, k + 2))
    gain = float(np.sum(discount[: len(relevant[:k])][relevant[:k]]))
    return gain / float(np.sum(discount[: min(k, n_relevant)]))


def mean_interval(values: Any, tasks: Any, *, resamples: int, seed: int) -> Interval:
    """Mean of per-query values; the interval resamples whole tasks (percentile bootstrap)."""
    value = np.asarray(values, dtype=np.float64)
    _, cluster = np.unique(np.asarray(tasks), return_inverse=True)
    n_tasks = int(cluster.max(initial=-1)) + 1
    if not n_tasks:
        return Interval(math.nan, math.nan, math.nan, 0, 0)
    total, count = np.bincount(cluster, weights=value), np.bincount(cluster)
    drawn = _drawn(n_tasks, resamples, seed)
    low, high = np.percentile((drawn @ total) / (drawn @ count), LEVEL)
    return Interval(float(value.mean()), float(low), float(high), len(value), n_tasks)


def area(scores: Any, failed: Any, tasks: Any, *, resamples: int, seed: int) -> Interval:
    """AUROC of scores for failure: concordant pairs, ties half; the interval resamples tasks."""
    score, bad = np.asarray(scores, dtype=np.float64), np.asarray(failed, dtype=bool)
    _, cluster = np.unique(np.asarray(tasks), return_inverse=True)
    n_tasks = int(cluster.max(initial=-1)) + 1
    if not bad.any() or bad.all():
        return Interval(math.nan, math.nan, math.nan, len(score), n_tasks)
    won = np.sign(score[bad][:, None] - score[~bad][None, :]) / 2 + 0.5
    drawn = _drawn(n_tasks, resamples, seed)
    left, right = drawn[:, cluster[bad]], drawn[:, cluster[~bad]]
    pairs = left.sum(axis=1) * right.sum(axis=1)
    areas = np.einsum("di,ij,dj->d", left, won, right, optimize=True)[pairs > 0] / pairs[pairs > 0]
    low, high = np.percentile(areas, LEVEL)
    return Interval(float(won.mean()), float(low), float(high), len(score), n_tasks)


def _drawn(n_tasks: int, resamples: int, seed: int) -> Floats:
    """How often each resample draws each task, shape (resamples, n_tasks)."""
    rng = np.random.default_rng(seed)
    return rng.multinomial(n_tasks, np.full(n_tasks, 1 / n_tasks), size=resamples).astype(float)
