"""Areas under curves for very many clusters: linear in how often each cluster is drawn.

The exact statistics keep a matrix of all pairs of clusters, or go through all looks for each
resample. With thousands of clusters in a fold neither is affordable, and neither is needed: there
the statistic of a resample is its value on all clusters plus each cluster's influence, times how
often it was drawn beyond once (the infinitesimal jackknife; B. Efron, The Jackknife, the Bootstrap
and Other Resampling Plans, 1982, ch. 6). What is left out shrinks with the number of clusters.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from sag_research.deadend._prefixes import Floats

if TYPE_CHECKING:
    from sag_research.deadend._bootstrap import Scored

__all__ = ["linear_auroc", "linear_precision_area"]


class _Sums(NamedTuple):
    """Numerator and denominator of a ratio, and their derivatives by each cluster's weight."""

    above: float
    below: float
    by_above: Floats
    by_below: Floats


def linear_auroc(data: Scored, n_clusters: int) -> Callable[[Floats], Floats]:
    """Area under the ROC curve from pairs inside a fold, linear in the draws."""
    return _linear(data, n_clusters, _concordance)


def linear_precision_area(data: Scored, n_clusters: int) -> Callable[[Floats], Floats]:
    """Area under the precision-recall curve, folds weighed by failures, linear in the draws."""
    return _linear(data, n_clusters, _precision)


def _linear(
    data: Scored, n_clusters: int, sums_of: Callable[[Scored, int], _Sums]
) -> Callable[[Floats], Floats]:
    parts = [sums_of(data.where(data.fold == fold), n_clusters) for fold in np.unique(data.fold)]
    below = sum(part.below for part in parts)
    if below <= 0:
        return lambda drawn: np.full(len(drawn), np.nan)
    value = sum(part.above for part in parts) / below
    influence = np.zeros(n_clusters)
    for part in parts:
        influence += (part.by_above - value * part.by_below) / below
    start = value - influence.sum()
    return lambda drawn: start + drawn[:, :n_clusters] @ influence


def _concordance(data: Scored, n_clusters: int) -> _Sums:
    """Concordant pairs of a failure and a success, and all of them; a tie counts half."""
    place = np.unique(data.score, return_inverse=True)[1]
    failures = np.bincount(place, data.weight * data.failed)
    successes = np.bincount(place, data.weight * (1 - data.failed))
    below = np.cumsum(successes) - successes / 2
    above = failures.sum() - np.cumsum(failures) + failures / 2
    partners = np.where(data.failed == 1, below[place], above[place])
    lost = _per_cluster(data, data.weight * data.failed, n_clusters)
    won = _per_cluster(data, data.weight * (1 - data.failed), n_clusters)
    return _Sums(
        float(failures @ below),
        float(failures.sum() * successes.sum()),
        _per_cluster(data, data.weight * partners, n_clusters),
        lost * successes.sum() + won * failures.sum(),
    )


def _precision(data: Scored, n_clusters: int) -> _Sums:
    """Area under the precision-recall curve times the failures, and the failures."""
    place = np.unique(-data.score, return_inverse=True)[1]  # the highest score first
    gained = np.bincount(place, data.weight * data.failed)
    raised = np.cumsum(np.bincount(place, data.weight))
    precision = np.cumsum(gained) / raised
    per_raised = np.cumsum((gained / raised)[::-1])[::-1]
    per_square = np.cumsum((gained * precision / raised)[::-1])[::-1]
    gain = data.weight * (data.failed * (precision[place] + per_raised[place]) - per_square[place])
    return _Sums(
        float(precision @ gained),
        float(gained.sum()),
        _per_cluster(data, gain, n_clusters),
        _per_cluster(data, data.weight * data.failed, n_clusters),
    )


def _per_cluster(data: Scored, amount: Floats, n_clusters: int) -> Floats:
    return np.bincount(data.cluster, amount, minlength=n_clusters).astype(np.float64)
