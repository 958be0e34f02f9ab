"""Intervals by resampling whole tasks, computed from sums per task instead of per resample."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from sag_research.deadend._bootstrap_linear import linear_auroc, linear_precision_area
from sag_research.deadend._metrics import LEVEL, bin_of
from sag_research.deadend._prefixes import Floats, Ints

__all__ = [
    "DRAWS",
    "Difference",
    "Estimate",
    "Sampled",
    "Scored",
    "Statistic",
    "auroc_statistic",
    "brier_statistic",
    "difference",
    "ece_statistic",
    "estimate",
    "precision_area_statistic",
    "ratio_statistic",
    "resamples",
    "sample",
]

DRAWS = 1_000
MOST_EXACT = 4_000
"""Clusters above which areas under curves are linear in the draws; see `_bootstrap_linear`."""
_CELLS = 8_000_000  # float64 cells of one intermediate array
_CACHED = 200_000  # the same, where it is read several times and should stay in the cache

_EQUAL = 1e-12  # two sums of the same terms in another order are equal

Statistic = Callable[[Floats], Floats]
"""From how often each cluster was drawn, shape (n_draws, n_clusters), to (n_draws,) values."""


class Estimate(NamedTuple):
    """A number, its interval, and what it rests on."""

    value: float
    low: float
    high: float
    n: int
    """Runs."""
    clusters: int
    """Tasks, or whatever was resampled, that these runs belong to."""


class Difference(NamedTuple):
    """A paired difference of two statistics."""

    difference: float
    low: float
    high: float
    p: float


class Scored(NamedTuple):
    """Scores with all that a metric asks of them, one entry a look; each of shape (n,)."""

    failed: Floats
    score: Floats
    weight: Floats
    fold: Ints
    cluster: Ints
    run: Ints

    def where(self, mask: NDArray[np.bool_] | Ints) -> Scored:
        """Keep the looks of a mask or of indices."""
        return Scored(
            self.failed[mask],
            self.score[mask],
            self.weight[mask],
            self.fold[mask],
            self.cluster[mask],
            self.run[mask],
        )


def resamples(n_clusters: int, draws: int = DRAWS, seed: int = 0) -> Floats:
    """Draw clusters with replacement; return how often each was drawn, (draws, n_clusters)."""
    random = np.random.default_rng(seed)
    share = np.full(n_clusters, 1 / max(n_clusters, 1))
    return random.multinomial(n_clusters, share, size=draws).astype(np.float64)


class Sampled(NamedTuple):
    """A statistic of all clusters, and of each resample of them."""

    value: float
    draws: Floats
    """Shape (n_draws,); the same resamples for all statistics that are to be compared."""
    n: int
    clusters: int


def sample(statistic: Statistic, drawn: Floats, n: int) -> Sampled:
    """Evaluate a statistic once on all clusters, and on resamples of them."""
    value = float(statistic(np.ones((1, drawn.shape[1])))[0])
    return Sampled(value, statistic(drawn), n, drawn.shape[1])


def estimate(sampled: Sampled, level: float = LEVEL) -> Estimate:
    """Value of a statistic with its percentile interval.

    Notes
    -----
    The scores are held fixed, and whole tasks are drawn anew: the interval says how much the
    number depends on which tasks happened to be tested. It leaves out what another training set
    and another partition into folds would change, which for small sets is as much again; repeat
    the backtest with several partitions before reading anything into a difference below .03.
    With few clusters it is too narrow; of fewer than two it is NaN.

    References
    ----------
    A. C. Davison and D. V. Hinkley, Bootstrap Methods and their Application, 1997, ch. 3.8.
    """
    low = high = float("nan")
    if sampled.clusters > 1 and np.isfinite(sampled.value):
        low, high = percentile_interval(sampled.draws, level)
    return Estimate(sampled.value, low, high, sampled.n, sampled.clusters)


def percentile_interval(values: Floats, level: float = LEVEL) -> tuple[float, float]:
    """Central interval of the values that are numbers; NaN when most are not."""
    known = values[np.isfinite(values)]
    if len(known) < len(values) / 2 or not len(known):
        return float("nan"), float("nan")
    low, high = np.quantile(known, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def difference(one: Sampled, other: Sampled, level: float = LEVEL) -> Difference:
    """Paired difference of two statistics over the same resamples of tasks.

    The p-value is two-sided: twice the share of resamples on the other side of zero, never below
    ``2 / (n_draws + 1)``.
    """
    gap = one.draws - other.draws
    gap = gap[np.isfinite(gap)]
    value = one.value - other.value
    if len(gap) < len(one.draws) / 2 or one.clusters < 2 or not np.isfinite(value):
        return Difference(value, np.nan, np.nan, np.nan)
    tail = min((gap <= _EQUAL).sum(), (gap >= -_EQUAL).sum())
    p = min(1.0, 2 * (1 + int(tail)) / (len(gap) + 1))
    return Difference(value, *percentile_interval(gap, level), p)


def ratio_statistic(above: Floats, below: Floats, cluster: Ints, n_clusters: int) -> Statistic:
    """Ratio of two sums over runs or looks; `above` and `below` have one entry each."""
    sums = np.bincount(cluster, above, minlength=n_clusters)
    bases = np.bincount(cluster, below, minlength=n_clusters)
    return lambda drawn: _ratio(drawn @ sums, drawn @ bases)


def brier_statistic(data: Scored, n_clusters: int) -> Statistic:
    """Brier score, see :func:`brier <sag_research.deadend.brier>`."""
    error = data.weight * (data.score - data.failed) ** 2
    return ratio_statistic(error, data.weight, data.cluster, n_clusters)


def ece_statistic(data: Scored, n_clusters: int, bins: int = 10) -> Statistic:
    """Expected calibration error, see :func:`ece <sag_research.deadend.ece>`."""
    place = data.cluster * bins + bin_of(data.score, bins)
    gap = np.bincount(
        place, data.weight * (data.score - data.failed), minlength=n_clusters * bins
    ).reshape(n_clusters, bins)
    weight = np.bincount(data.cluster, data.weight, minlength=n_clusters)
    return lambda drawn: _ratio(np.abs(drawn @ gap).sum(axis=1), drawn @ weight)


def auroc_statistic(data: Scored) -> Statistic:
    """Area under the ROC curve from pairs inside a fold.

    For each fold the concordant pairs between each two clusters are counted once (a matrix C),
    and so are all pairs (P). Drawn *m* times, the clusters give m'Cm concordant pairs of m'Pm.
    With more than :data:`MOST_EXACT` clusters the statistic is linear in the draws instead.
    """
    if _are_many(data):
        return linear_auroc(data, int(data.cluster.max()) + 1)
    blocks = []
    for fold in np.unique(data.fold):
        inside = data.where(data.fold == fold)
        clusters, place = np.unique(inside.cluster, return_inverse=True)
        failures = np.bincount(place, inside.weight * inside.failed, minlength=len(clusters))
        successes = np.bincount(place, inside.weight * (1 - inside.failed), minlength=len(clusters))
        if failures.any() and successes.any():
            matrix = _concordance_matrix(inside, place, len(clusters))
            blocks.append((clusters, matrix, failures, successes))

    def statistic(drawn: Floats) -> Floats:
        concordant, pairs = np.zeros(len(drawn)), np.zeros(len(drawn))
        for clusters, matrix, failures, successes in blocks:
            times = drawn[:, clusters]
            concordant += np.einsum("dk,dk->d", times @ matrix, times)
            pairs += (times @ failures) * (times @ successes)
        return _ratio(concordant, pairs)

    return statistic


def _are_many(data: Scored) -> bool:
    return len(np.unique(data.cluster)) > MOST_EXACT


def _concordance_matrix(data: Scored, cluster: Ints, n_clusters: int) -> Floats:
    """Concordant pairs of failures of one cluster (row) and successes of another (column)."""
    values, place = np.unique(data.score, return_inverse=True)
    shape = (len(values), n_clusters)
    is_failure = data.failed == 1
    failures = sparse.csr_array(
        (data.weight[is_failure], (place[is_failure], cluster[is_failure])), shape=shape
    )
    succeeded = ~is_failure
    successes = sparse.csc_array(
        (data.weight[succeeded], (place[succeeded], cluster[succeeded])), shape=shape
    )
    matrix = np.empty((n_clusters, n_clusters))
    step = max(1, _CELLS // max(len(values), 1))
    for first in range(0, n_clusters, step):
        here = successes[:, first : first + step].toarray()
        below = np.cumsum(here, axis=0) - here / 2  # a tie counts half
        matrix[:, first : first + step] = failures.T @ below
    return matrix


def precision_area_statistic(data: Scored) -> Statistic:
    """Area under the precision-recall curve, a mean over folds weighed by their failures.

    With more than :data:`MOST_EXACT` clusters the statistic is linear in the draws.
    """
    if _are_many(data):
        return linear_precision_area(data, int(data.cluster.max()) + 1)
    ordered = []
    for fold in np.unique(data.fold):
        inside = data.where(data.fold == fold)
        order = np.argsort(-inside.score, kind="stable")
        inside = inside.where(order)
        last = np.flatnonzero(np.append(np.diff(inside.score) != 0, True))
        ordered.append((inside, last))

    def statistic(drawn: Floats) -> Floats:
        found, total = np.zeros(len(drawn)), np.zeros(len(drawn))
        for inside, last in ordered:
            step = max(1, _CACHED // max(len(inside.score), 1))
            for first in range(0, len(drawn), step):
                part = slice(first, first + step)
                area, failures = _precision_area(drawn[part], inside, last)
                found[part] += area
                total[part] += failures
        return _ratio(found, total)

    return statistic


def _precision_area(drawn: Floats, data: Scored, last: Ints) -> tuple[Floats, Floats]:
    """Area times failures, and failures, for each draw; `data` in order of falling score."""
    weight = drawn[:, data.cluster] * data.weight
    hits = np.cumsum(weight * data.failed, axis=1)[:, last]
    raised = np.cumsum(weight, axis=1)[:, last]
    precision = np.divide(hits, raised, out=np.zeros_like(hits), where=raised > 0)
    gained = np.diff(hits, axis=1, prepend=0.0)
    return np.einsum("dk,dk->d", precision, gained), hits[:, -1]


def _ratio(above: Floats, below: Floats) -> Floats:
    return np.asarray(
        np.divide(above, below, out=np.full(np.shape(above), np.nan), where=below > 0)
    )
