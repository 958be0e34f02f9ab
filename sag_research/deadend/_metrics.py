"""The numbers by which scores are judged, each as one function of arrays.

``failed`` holds 1 for a failure and 0 for a success; ``score`` is larger where failure is thought
likelier; ``weight`` is 1 by default. NaN is returned where there is nothing to count.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from sag_research.deadend._prefixes import Floats, Ints
from sag_research.errors import UsageError

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "LEVEL",
    "Interval",
    "Pairs",
    "auroc",
    "average_precision",
    "beta_interval",
    "brier",
    "concordance",
    "cumulative_incidence",
    "ece",
    "holm",
    "net_benefit",
    "reliability",
    "wilson",
]

LEVEL = 0.95
BINS = 10


class Interval(NamedTuple):
    """Lower and upper end; both NaN where there is nothing to say."""

    low: float
    high: float


class Pairs(NamedTuple):
    """Pairs of a failure and a success, weighted."""

    concordant: float
    """Those in which the failure has the higher score; ties count half."""
    pairs: float

    @property
    def share(self) -> float:
        """Concordant pairs per pair."""
        return self.concordant / self.pairs if self.pairs else math.nan


def _arrays(
    failed: ArrayLike, score: ArrayLike, weight: ArrayLike | None
) -> tuple[NDArray[np.bool_], Floats, Floats]:
    """Check what all metrics are given."""
    labels, scores = np.asarray(failed, np.float64), np.asarray(score, np.float64)
    weights = np.ones(len(labels)) if weight is None else np.asarray(weight, np.float64)
    if not len(labels) == len(scores) == len(weights):
        raise UsageError(
            f"{len(labels)} labels, {len(scores)} scores and {len(weights)} weights do not match"
        )
    if not np.isin(labels, (0.0, 1.0)).all():
        raise UsageError(
            "labels must be 0 or 1",
            why="unknown outcomes are never counted as failures",
            fix="use prefixes.labelled",
        )
    if np.isnan(scores).any():
        raise UsageError(f"{int(np.isnan(scores).sum())} of {len(scores)} scores are NaN")
    return labels == 1, scores, weights


def concordance(
    failed: ArrayLike,
    score: ArrayLike,
    weight: ArrayLike | None = None,
    fold: ArrayLike | None = None,
) -> Pairs:
    """Count pairs of a failure and a success, and those that the score puts in order.

    Parameters
    ----------
    failed, score, weight : array_like, shape (n,)
        A pair weighs the product of its two weights.
    fold : array_like of int, shape (n,), optional
        Only pairs inside a fold are counted: scores of models fitted on different runs do not
        share a scale.

    Examples
    --------
    >>> concordance([1, 1, 0, 0], [.9, .4, .4, .1])
    Pairs(concordant=3.5, pairs=4.0)
    """
    labels, scores, weights = _arrays(failed, score, weight)
    if fold is None:
        return _concordance(labels, scores, weights)
    folds = np.asarray(fold)
    concordant = pairs = 0.0
    for one in np.unique(folds):
        inside = folds == one
        found = _concordance(labels[inside], scores[inside], weights[inside])
        concordant, pairs = concordant + found.concordant, pairs + found.pairs
    return Pairs(concordant, pairs)


def _concordance(labels: NDArray[np.bool_], scores: Floats, weights: Floats) -> Pairs:
    values, place = np.unique(scores, return_inverse=True)
    failures = np.bincount(place, weights * labels, minlength=len(values))
    successes = np.bincount(place, weights * ~labels, minlength=len(values))
    below = np.cumsum(successes) - successes
    concordant = float(failures @ (below + successes / 2))
    return Pairs(concordant, float(failures.sum() * successes.sum()))


def auroc(
    failed: ArrayLike,
    score: ArrayLike,
    weight: ArrayLike | None = None,
    fold: ArrayLike | None = None,
) -> float:
    """Area under the ROC curve, from pairs inside a fold only; see :func:`concordance`.

    Notes
    -----
    Concordant pairs are summed over folds and divided by the sum of pairs. Pooling the scores of
    several folds instead compares scores of different models: a constant model then looks worse
    than chance, because its score rises where the test fold's rate falls.

    References
    ----------
    J. A. Hanley and B. J. McNeil, "The meaning and use of the area under a receiver operating
    characteristic (ROC) curve", Radiology 143 (1982) 29-36.

    Examples
    --------
    >>> auroc([1, 1, 0, 0], [.9, .4, .4, .1])
    0.875
    """
    return concordance(failed, score, weight, fold).share


def average_precision(
    failed: ArrayLike,
    score: ArrayLike,
    weight: ArrayLike | None = None,
    fold: ArrayLike | None = None,
) -> float:
    """Area under the precision-recall curve, as a sum of steps (no interpolation).

    With `fold`, the mean over folds, each weighed by its failures. Chance level is the share of
    failures, so the number says nothing without the prevalence beside it.

    Examples
    --------
    >>> round(average_precision([1, 0, 1, 0], [.9, .8, .7, .1]), 4)    # (1 + 2/3) / 2
    0.8333
    """
    labels, scores, weights = _arrays(failed, score, weight)
    folds = np.zeros(len(labels)) if fold is None else np.asarray(fold)
    total = found = 0.0
    for one in np.unique(folds):
        inside = folds == one
        failures = float((weights * labels)[inside].sum())
        if failures > 0:
            found += failures * _precision_area(labels[inside], scores[inside], weights[inside])
            total += failures
    return found / total if total else math.nan


def _precision_area(labels: NDArray[np.bool_], scores: Floats, weights: Floats) -> float:
    values, place = np.unique(-scores, return_inverse=True)
    hits = np.bincount(place, weights * labels, minlength=len(values))
    raised = np.cumsum(np.bincount(place, weights, minlength=len(values)))
    precision = np.divide(np.cumsum(hits), raised, out=np.zeros_like(raised), where=raised > 0)
    return float(precision @ hits / hits.sum())


def brier(failed: ArrayLike, score: ArrayLike, weight: ArrayLike | None = None) -> float:
    """Mean squared distance of probability and outcome; 0 is best.

    Examples
    --------
    >>> round(brier([1, 0], [.8, .4]), 3)    # (.04 + .16) / 2
    0.1
    """
    labels, scores, weights = _arrays(failed, score, weight)
    total = weights.sum()
    return float(weights @ (scores - labels) ** 2 / total) if total else math.nan


def bin_of(score: Floats, bins: int = BINS) -> Ints:
    """Return the number of each score's bin, equal widths over [0, 1]; 1.0 is in the last."""
    return np.clip((score * bins).astype(np.int64), 0, bins - 1)


def ece(
    failed: ArrayLike, score: ArrayLike, weight: ArrayLike | None = None, bins: int = BINS
) -> float:
    """Expected calibration error: mean distance of score and rate over bins of equal width.

    References
    ----------
    M. P. Naeini, G. F. Cooper and M. Hauskrecht, "Obtaining well calibrated probabilities using
    Bayesian binning", AAAI 2015.

    Examples
    --------
    >>> round(ece([1, 0, 1, 1], [.1, .1, .9, .9], bins=2), 3)    # .5 |.1 - .5| + .5 |.9 - 1|
    0.25
    """
    labels, scores, weights = _arrays(failed, score, weight)
    place, total = bin_of(scores, bins), weights.sum()
    gap = np.abs(np.bincount(place, weights * (scores - labels), minlength=bins))
    return float(gap.sum() / total) if total else math.nan


def reliability(
    failed: ArrayLike,
    score: ArrayLike,
    weight: ArrayLike | None = None,
    run: ArrayLike | None = None,
    bins: int = BINS,
) -> pd.DataFrame:
    """Score and rate of failure in bins of equal width.

    Parameters
    ----------
    failed, score, weight : array_like, shape (n,)
    run : array_like of int, shape (n,), optional
        The run of each score. Looks at one run are not independent, so the interval counts runs.
    bins : int

    Returns
    -------
    DataFrame
        One row a bin that is not empty: ``bin_low bin_high n n_runs share score rate low high``,
        the last two Wilson's interval of the rate for ``n_runs`` runs.
    """
    import pandas as pd

    labels, scores, weights = _arrays(failed, score, weight)
    runs = np.arange(len(labels)) if run is None else np.asarray(run)
    place = bin_of(scores, bins)
    rows = []
    for one in np.unique(place):
        inside = place == one
        mass, n_runs = weights[inside].sum(), len(np.unique(runs[inside]))
        rate = min(1.0, float(weights[inside] @ labels[inside] / mass))  # but for rounding
        mean = float(weights[inside] @ scores[inside] / mass)
        span = (one / bins, (one + 1) / bins, int(inside.sum()), n_runs)
        rows.append(
            (*span, float(mass / weights.sum()), mean, rate, *wilson(rate * n_runs, n_runs))
        )
    names = ["bin_low", "bin_high", "n", "n_runs", "share", "score", "rate", "low", "high"]
    return pd.DataFrame(rows, columns=names)


def wilson(successes: float, n: float, level: float = LEVEL) -> Interval:
    """Wilson's score interval of a rate.

    References
    ----------
    E. B. Wilson, "Probable inference, the law of succession, and statistical inference",
    JASA 22 (1927) 209-212.

    Examples
    --------
    >>> low, high = wilson(3, 3)     # three failures of three prove little
    >>> round(low, 4), high
    (0.4385, 1.0)
    """
    if not 0 <= successes <= n:
        raise UsageError(f"{successes} of {n} is no rate")
    if n == 0:
        return Interval(math.nan, math.nan)
    z = float(stats.norm.ppf((1 + _checked(level)) / 2))
    rate, scale = successes / n, 1 + z * z / n
    centre = (rate + z * z / (2 * n)) / scale
    half = z * math.sqrt(rate * (1 - rate) / n + z * z / (4 * n * n)) / scale
    # at the ends the interval ends there; a rounding error would say otherwise
    low = 0.0 if successes == 0 else centre - half
    return Interval(low, 1.0 if successes == n else centre + half)


def beta_interval(
    successes: float, n: float, level: float = LEVEL, prior: tuple[float, float] = (0.5, 0.5)
) -> Interval:
    """Central interval of the Beta posterior of a rate; Jeffreys' prior by default.

    Examples
    --------
    >>> low, high = beta_interval(1, 1, prior=(1, 1))    # Beta(2, 1): its p-quantile is sqrt(p)
    >>> round(low ** 2, 3), round(high ** 2, 3)
    (0.025, 0.975)
    """
    if not 0 <= successes <= n:
        raise UsageError(f"{successes} of {n} is no rate")
    posterior = stats.beta(successes + prior[0], n - successes + prior[1])
    tail = (1 - _checked(level)) / 2
    return Interval(float(posterior.ppf(tail)), float(posterior.ppf(1 - tail)))


def cumulative_incidence(steps: ArrayLike, failed: ArrayLike) -> pd.DataFrame:
    """Share of runs that have ended in failure, and in success, after each number of steps.

    Failure and success compete: a run that has succeeded can fail no more. The Aalen-Johansen
    estimator takes that into account, which one minus Kaplan-Meier does not: it treats a success
    as a run lost from sight, and so overstates failure.

    Parameters
    ----------
    steps : array_like, shape (n_runs,)
        Steps of each run.
    failed : array_like, shape (n_runs,)
        1 for failure, 0 for success, NaN for unknown: censored, so it counts as running up to its
        last step and not after it.

    Returns
    -------
    DataFrame
        ``step at_risk failures successes unknown running failure success``; the last three are
        shares that add up to 1.

    References
    ----------
    O. O. Aalen and S. Johansen, "An empirical transition matrix for non-homogeneous Markov chains
    based on censored observations", Scandinavian Journal of Statistics 5 (1978) 141-150.

    Examples
    --------
    >>> cumulative_incidence([1, 2, 2, 3], [1, 0, float("nan"), 1])[["step", "failure"]].values
    array([[1.  , 0.25],
           [2.  , 0.25],
           [3.  , 0.75]])
    """
    import pandas as pd

    ends, outcome = np.asarray(steps, np.float64), np.asarray(failed, np.float64)
    times, place = np.unique(ends, return_inverse=True)
    count = [
        np.bincount(place, which, minlength=len(times))
        for which in (outcome == 1, outcome == 0, np.isnan(outcome))
    ]
    left = np.cumsum(sum(count)) - sum(count)
    at_risk = len(ends) - left
    running = np.cumprod(1 - (count[0] + count[1]) / at_risk)
    before = np.concatenate([[1.0], running[:-1]])
    columns = {
        "step": times.astype(np.int64),
        "at_risk": at_risk.astype(np.int64),
        "failures": count[0].astype(np.int64),
        "successes": count[1].astype(np.int64),
        "unknown": count[2].astype(np.int64),
        "running": running,
        "failure": np.cumsum(before * count[0] / at_risk),
        "success": np.cumsum(before * count[1] / at_risk),
    }
    return pd.DataFrame(columns)


def net_benefit(hits: float, false_alarms: float, n: float, p_star: float) -> float:
    """What acting on alarms brings per run, in units of one failure put right.

    An act on a run that would have failed brings 1; on one that would have succeeded it costs
    ``p_star / (1 - p_star)``, so that acting pays exactly where failure is likelier than `p_star`.

    References
    ----------
    A. J. Vickers and E. B. Elkin, "Decision curve analysis: a novel method for evaluating
    prediction models", Medical Decision Making 26 (2006) 565-574.

    Examples
    --------
    >>> net_benefit(hits=6, false_alarms=3, n=10, p_star=0.5)
    0.3
    """
    if not 0 <= p_star < 1:
        raise UsageError(f"p* = {p_star} is no probability below 1")
    return (hits - false_alarms * p_star / (1 - p_star)) / n if n else math.nan


def holm(p_values: ArrayLike) -> Floats:
    """Adjust p-values of several tests by Holm's step-down method; NaN stays NaN and is no test.

    References
    ----------
    S. Holm, "A simple sequentially rejective multiple test procedure", Scandinavian Journal of
    Statistics 6 (1979) 65-70.

    Examples
    --------
    >>> holm([0.01, 0.04, 0.03]).round(2).tolist()    # 3 x .01, then 2 x .03, and never less
    [0.03, 0.06, 0.06]
    """
    p = np.asarray(p_values, np.float64)
    adjusted = np.full(len(p), np.nan)
    tested = np.flatnonzero(~np.isnan(p))
    order = tested[np.argsort(p[tested], kind="stable")]
    factors = np.arange(len(order), 0, -1)
    adjusted[order] = np.minimum(np.maximum.accumulate(p[order] * factors), 1.0)
    return adjusted


def _checked(level: float) -> float:
    if not 0 < level < 1:
        raise UsageError(f"{level} is no confidence level between 0 and 1")
    return level
