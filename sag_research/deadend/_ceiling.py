"""How much of a failure the first steps show at all, whatever model reads them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy import stats

from sag_research.deadend._bootstrap import percentile_interval, resamples
from sag_research.deadend._crossfit import OutOfFold
from sag_research.deadend._metrics import auroc
from sag_research.deadend._model import check_both_outcomes
from sag_research.deadend._prefixes import Floats, Ints, Prefixes

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["beta_auroc", "hindsight", "identity_ceiling", "observability_ceiling", "within_share"]

DEPTHS = (1, 2, 3, 4, 5, 6, 8, 10)
_DRAWS = 400


class Within(NamedTuple):
    """Outcomes inside groups of runs that look the same."""

    share: float
    """Variance within groups per total variance of the covered runs; may exceed 1 by chance."""
    n: int
    """Runs in groups of two or more."""
    groups: int
    coverage: float
    """These per all runs."""


def within_share(failed: Floats, group: Ints) -> Within:
    """Share of the outcomes' variance that the groups cannot explain.

    The variance within groups is pooled over groups of two runs or more (sum of squares by degrees
    of freedom, so without bias), and divided by the variance of all these runs.

    Examples
    --------
    >>> within_share(np.array([1., 1., 0., 0., 1.]), np.array([0, 0, 1, 1, 2]))
    Within(share=0.0, n=4, groups=2, coverage=0.8)
    """
    place = np.unique(group, return_inverse=True)[1]
    size = np.bincount(place)
    covered = size[place] > 1
    n, groups = int(covered.sum()), int((size > 1).sum())
    coverage = n / len(failed) if len(failed) else math.nan
    if not n:
        return Within(math.nan, 0, 0, coverage)
    y, at = failed[covered], np.unique(place[covered], return_inverse=True)[1]
    mean = np.bincount(at, y) / np.bincount(at)
    inside = float(((y - mean[at]) ** 2).sum()) / (n - groups)
    total = float(y.var(ddof=1))
    return Within(inside / total if total else math.nan, n, groups, coverage)


def beta_auroc(prevalence: float, explained: float) -> float:
    """AUROC of the true probabilities, if these follow a Beta distribution.

    Parameters
    ----------
    prevalence : float
        Their mean m.
    explained : float
        Share rho of the outcomes' variance that they explain: Beta(m s, (1 - m) s) with
        s = 1 / rho - 1.

    Notes
    -----
    Of a failed run the probability follows Beta(a + 1, b), of a successful one Beta(a, b + 1); the
    AUROC is the chance that the first exceeds the second, here by summation over 2,000 quantiles.

    Examples
    --------
    >>> round(beta_auroc(0.5, 1 / 3), 3)    # uniform probabilities: 2x against 2(1 - x)
    0.833
    >>> beta_auroc(0.3, 0.0)
    0.5
    """
    if math.isnan(explained) or not 0 < prevalence < 1:
        return math.nan
    if explained <= 0:
        return 0.5
    if explained >= 1:
        return 1.0
    size = 1 / explained - 1
    a, b = prevalence * size, (1 - prevalence) * size
    points = (np.arange(2_000) + 0.5) / 2_000
    bad = stats.beta.ppf(points, a + 1, b)
    return float(stats.beta.cdf(bad, a, b + 1).mean())


def observability_ceiling(
    prefixes: Prefixes,
    depths: Sequence[int] = DEPTHS,
    by: str = "task_id",
    seed: int = 0,
) -> pd.DataFrame:
    """How well the first tokens could tell failures, if each prefix's true rate were known.

    Parameters
    ----------
    prefixes : Prefixes
        Runs of unknown outcome are left out.
    depths : sequence of int
        Numbers of first tokens; runs with at least one step more, and whose outcome does not
        stand in these, are counted.
    by : str
        What is resampled for the interval.
    seed : int

    Returns
    -------
    DataFrame
        ``depth n_alive n covered groups coverage within within_low within_high explained auroc``.
        ``within``: variance of outcomes among runs of identical prefixes, per total variance; near
        1 where the prefix says nothing. ``auroc``: what rates of that spread would reach.

    Notes
    -----
    It bounds what *these tokens in this order* say, not what the texts say, and only for the
    covered runs: those whose prefix another run shares. With growing depth few are covered, and
    the runs that share a long prefix are often of one task, so that part of what is explained is
    the task. The share is a ratio of estimates and may exceed 1; read it with its interval. The
    error rate of the nearest neighbour is deliberately not offered as a bound: at a few hundred
    runs its asymptotic formula is beaten by real models.
    """
    import pandas as pd

    known = prefixes.labelled
    check_both_outcomes(known, "say how much of failure can be seen")
    sequences, failed, groups = known.sequences(), known.failed, known.groups(by)
    rows = []
    for depth in depths:
        alive = np.unique(known.looks([depth]).run)
        if not len(alive):
            continue
        _, same = np.unique(
            np.array([sequences[i][:depth] for i in alive]), axis=0, return_inverse=True
        )
        found = within_share(failed[alive], same.ravel())
        low, high = _interval(failed[alive], same.ravel(), groups[alive], seed)
        explained = max(0.0, 1 - found.share) if not math.isnan(found.share) else math.nan
        area = beta_auroc(float(failed[alive].mean()), explained)
        row = (depth, len(alive), found.n, found.groups, found.coverage)
        rows.append((*row, found.share, low, high, explained, area))
    names = ["depth", "n_alive", "n", "groups", "coverage"]
    return pd.DataFrame(
        rows, columns=[*names, "within", "within_low", "within_high", "explained", "auroc"]
    )


def _interval(failed: Floats, same: Ints, cluster: Ints, seed: int) -> tuple[float, float]:
    """Resample clusters; copies of a run count as weights, not as further identical runs."""
    place = np.unique(cluster, return_inverse=True)[1]
    if place.max() < 1:
        return math.nan, math.nan
    times = resamples(int(place.max()) + 1, _DRAWS, seed)[:, place]
    at = np.unique(same, return_inverse=True)[1]
    size = np.bincount(at)
    kept = size[at] > 1
    if not kept.any():
        return math.nan, math.nan
    y, at, times = failed[kept], np.unique(at[kept], return_inverse=True)[1], times[:, kept]
    mean = np.bincount(at, y) / np.bincount(at)
    count = np.bincount(at)
    inside = (y - mean[at]) ** 2 * (count / (count - 1))[at]  # unbiased, run by run
    weight = times.sum(axis=1)
    centre = (times @ y) / weight
    total = (times @ y**2) / weight - centre**2
    share = np.divide(
        (times @ inside) / weight, total, out=np.full(len(total), np.nan), where=total > 0
    )
    return percentile_interval(share)


def identity_ceiling(prefixes: Prefixes, by: Sequence[str] = ("task_id", "model")) -> pd.DataFrame:
    """How well failures could be told from who runs what, before the first step.

    Parameters
    ----------
    prefixes : Prefixes
    by : sequence of str
        Columns, each looked at alone, and all of them together.

    Returns
    -------
    DataFrame
        ``by n n_cells coverage icc auroc_true auroc_siblings``. ``icc``: share of variance that
        the cell explains. ``auroc_true``: if each cell's true rate were known and followed a Beta
        distribution. ``auroc_siblings``: a run scored by the other runs of its cell.

    Notes
    -----
    This is no prediction from a prefix: it uses outcomes of the same task. It says how much of the
    outcome is settled at step 0, and so how much of a model's score under a random split is worth
    nothing on new tasks.
    """
    import pandas as pd

    known = prefixes.labelled
    check_both_outcomes(known, "say how much is settled at the first step")
    keys = [(name,) for name in by] + ([tuple(by)] if len(by) > 1 else [])
    rows = []
    for key in keys:
        cell: Ints = np.asarray(
            known.runs.groupby(list(key), dropna=False).ngroup(), dtype=np.int64
        )
        found = within_share(known.failed, cell)
        icc = max(0.0, 1 - found.share) if found.n else math.nan
        true = beta_auroc(float(known.failed.mean()), icc)
        siblings = _sibling_auroc(known.failed, cell)
        rows.append((" × ".join(key), found.n, found.groups, found.coverage, icc, true, siblings))
    names = ["by", "n", "n_cells", "coverage", "icc", "auroc_true", "auroc_siblings"]
    return pd.DataFrame(rows, columns=names)


def _sibling_auroc(failed: Floats, cell: Ints) -> float:
    """Score each run by the failure rate of the others of its cell; runs alone are left out."""
    size, bad = np.bincount(cell), np.bincount(cell, failed)
    kept = size[cell] > 1
    rate = (bad[cell] - failed)[kept] / (size[cell] - 1)[kept]
    return auroc(failed[kept], rate) if kept.any() else math.nan


def hindsight(scores: OutOfFold) -> float:
    """AUROC of each run's score at its last look: about what the model would know at the end.

    The length of the run is in it, so it is a ceiling for a class of features, not a forecast.
    """
    unit = scores.repeat * len(scores.prefixes) + scores.looks.run
    last = np.append(np.diff(unit) != 0, True)
    return auroc(scores.failed[last], scores.scores[last], fold=scores.fold[last])
