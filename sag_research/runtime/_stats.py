"""Intervals for rates and paired differences, and how many repeats they need."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from statistics import NormalDist
from typing import NamedTuple

from sag_research.errors import UsageError

__all__ = [
    "LEVEL",
    "Estimate",
    "Interval",
    "paired_difference",
    "repeats_for_difference",
    "repeats_for_rate",
    "wilson",
]

LEVEL = 0.95
_MOST = 10**9


class Interval(NamedTuple):
    """Lower and upper end; both NaN where there is nothing to say."""

    low: float
    high: float


class Estimate(NamedTuple):
    """A mean with its interval, and what it rests on."""

    value: float
    low: float
    high: float
    n: int
    """Pairs."""
    clusters: int
    note: str = ""
    """Why there is no interval, where there is none."""


def wilson(successes: int, n: int, level: float = LEVEL) -> Interval:
    """Wilson's score interval of a rate.

    Parameters
    ----------
    successes, n : int
    level : float
        Confidence, e.g. 0.95.

    References
    ----------
    E. B. Wilson, "Probable inference, the law of succession, and statistical inference",
    JASA 22 (1927) 209-212.

    Examples
    --------
    >>> low, high = wilson(3, 3)
    >>> round(low, 4), high
    (0.4385, 1.0)
    """
    if not 0 <= successes <= n:
        raise UsageError(f"{successes} of {n} is no rate")
    if n == 0:
        return Interval(math.nan, math.nan)
    half, centre = _score(successes / n, n, _z(level))
    # at the ends the interval ends there; a rounding error would say otherwise
    low = 0.0 if successes == 0 else centre - half
    high = 1.0 if successes == n else centre + half
    return Interval(low, high)


def _score(rate: float, n: float, z: float) -> tuple[float, float]:
    """Half-width and centre of Wilson's interval."""
    scale = 1 + z * z / n
    half = z * math.sqrt(rate * (1 - rate) / n + z * z / (4 * n * n)) / scale
    return half, (rate + z * z / (2 * n)) / scale


def repeats_for_rate(width: float, base_rate: float = 0.5, level: float = LEVEL) -> int:
    """Return the fewest runs for which Wilson's interval is at most ``±width`` wide.

    Parameters
    ----------
    width : float
        Wanted half-width, between 0 and 0.5.
    base_rate : float
        Expected rate; 0.5 is the most demanding.
    level : float

    Examples
    --------
    >>> repeats_for_rate(0.1)
    93
    """
    _check(width, base_rate)
    z = _z(level)
    return _fewest(lambda n: _score(base_rate, n, z)[0] <= width)


def repeats_for_difference(
    width: float, base_rate: float = 0.5, level: float = LEVEL, correlation: float = 0.0
) -> int:
    """Return the fewest pairs for which a difference of two rates is known to ``±width``.

    Parameters
    ----------
    width : float
        Wanted half-width of the difference's interval (normal approximation).
    base_rate : float
        Expected rate of both arms.
    level : float
    correlation : float
        Between the two arms' results of one repeat; common random numbers make it positive.

    Examples
    --------
    >>> repeats_for_difference(0.1), repeats_for_difference(0.1, correlation=0.5)
    (193, 97)
    """
    _check(width, base_rate)
    if not -1 <= correlation < 1:
        raise UsageError(f"{correlation} is no correlation below 1")
    variance = 2 * base_rate * (1 - base_rate) * (1 - correlation)
    return max(2, math.ceil(_z(level) ** 2 * variance / width**2))


def _fewest(enough: Callable[[int], bool]) -> int:
    """Find the smallest number that is enough; enough stays enough."""
    low, high = 0, 1
    while not enough(high) and high < _MOST:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def paired_difference(
    pairs: Sequence[tuple[Hashable, float]],
    *,
    level: float = LEVEL,
    bounds: tuple[float, float] | None = None,
) -> Estimate:
    """Mean of paired differences, with an interval that knows how few tasks there are.

    Parameters
    ----------
    pairs : sequence of (cluster, difference)
        One item a pair; clusters are tasks.
    level : float
    bounds : (float, float), optional
        Least and greatest difference there can be, symmetric about 0; (-1, 1) for success.

    Returns
    -------
    Estimate
        Without an interval (NaN) where there is no ground for one; ``note`` says why.

    Notes
    -----
    Pairs of one task are alike, so tasks, not pairs, are what is sampled: one task says nothing
    about others. The standard error is the cluster-robust one with the bias-reduced linearisation
    (CR2), the quantile that of Student's t with Bell and McCaffrey's degrees of freedom. With
    equally many pairs a task this is the t interval of the task means with ``tasks - 1`` degrees
    of freedom; unequal numbers cost degrees of freedom. A percentile bootstrap of few clusters is
    too narrow: of three tasks it covers about three times in four.

    Few discrete values may all be equal by chance, which is no certainty. With ``bounds``, the
    standard error is at least that of as many independent pairs to which one half pair at each
    bound and one pair at 0 are added, after Agresti and Min. Without bounds, differences that
    are all equal have no interval.

    References
    ----------
    R. M. Bell and D. F. McCaffrey, "Bias reduction in standard errors for linear regression with
    multi-stage samples", Survey Methodology 28 (2002) 169-181. J. E. Pustejovsky and E. Tipton,
    "Small-sample methods for cluster-robust variance estimation and hypothesis testing in fixed
    effects models", J. Business & Economic Statistics 36 (2018) 672-683. A. Agresti and Y. Min,
    "Simple improved confidence intervals for comparing matched proportions", Statistics in
    Medicine 24 (2005) 729-740.

    Examples
    --------
    >>> found = paired_difference([("t1", 1.0), ("t2", 3.0), ("t3", 2.0)])
    >>> found.value, round(found.low, 3), round(found.high, 3)
    (2.0, -0.484, 4.484)
    >>> paired_difference([("t1", 1.0), ("t1", 0.0)])
    Estimate(value=0.5, low=nan, high=nan, n=2, clusters=1, note='one task: no interval')
    """
    _z(level)  # refuses what is no level
    sums: dict[Hashable, float] = {}
    counts: dict[Hashable, int] = {}
    for cluster, difference in pairs:
        sums[cluster] = sums.get(cluster, 0.0) + difference
        counts[cluster] = counts.get(cluster, 0) + 1
    n, tasks = len(pairs), len(sums)
    if not pairs:
        return Estimate(math.nan, math.nan, math.nan, 0, 0, "no pairs")
    value = math.fsum(difference for _, difference in pairs) / n
    if tasks == 1:
        return Estimate(value, math.nan, math.nan, n, 1, "one task: no interval")
    error, freedom = _clustered(list(sums.values()), list(counts.values()), value)
    if bounds is None and error == 0:
        return Estimate(value, math.nan, math.nan, n, tasks, "no spread: no interval")
    if bounds is not None:
        error = max(error, _least_error([difference for _, difference in pairs], bounds[1]))
    half = _t(level, freedom) * error
    least, greatest = bounds or (-math.inf, math.inf)
    return Estimate(value, max(least, value - half), min(greatest, value + half), n, tasks)


def _clustered(sums: Sequence[float], counts: Sequence[int], mean: float) -> tuple[float, float]:
    """CR2 standard error of a mean over clusters, and Bell and McCaffrey's degrees of freedom.

    With shares ``s = n_i / N``, the adjustment of cluster i is ``1 / sqrt(1 - s_i)``; the
    degrees of freedom are ``tr(M)^2 / tr(M^2)`` with
    ``M_ij = (s_i [i = j] - s_i s_j) / sqrt((1 - s_i) (1 - s_j))``.
    """
    n = sum(counts)
    shares = [count / n for count in counts]
    squares = [
        ((total - mean * count) / n) ** 2 / (1 - share)
        for total, count, share in zip(sums, counts, shares, strict=True)
    ]
    # M is diagonal less a product, so its traces need no matrix
    odds = [share**2 / (1 - share) for share in shares]
    crossed = math.fsum(odds) ** 2 - math.fsum(odd**2 for odd in odds)
    freedom = math.fsum(shares) ** 2 / (math.fsum(share**2 for share in shares) + crossed)
    return math.sqrt(math.fsum(squares)), freedom


def _least_error(differences: Sequence[float], bound: float) -> float:
    """Standard error of a mean of independent pairs, with four half pairs added."""
    n = len(differences) + 2
    mean = math.fsum(differences) / n
    square = (math.fsum(value**2 for value in differences) + bound**2) / n
    return math.sqrt(max(0.0, square - mean**2) / n)


def _t(level: float, freedom: float) -> float:
    """Quantile of Student's t for an interval of this level."""
    from scipy.special import stdtrit

    return float(stdtrit(freedom, (1 + level) / 2))


def _z(level: float) -> float:
    if not 0 < level < 1:
        raise UsageError(f"{level} is no confidence level between 0 and 1")
    return NormalDist().inv_cdf((1 + level) / 2)


def _check(width: float, base_rate: float) -> None:
    if not 0 < width < 0.5:
        raise UsageError(f"a half-width of {width} cannot be planned", fix="give 0 < width < 0.5")
    if not 0 <= base_rate <= 1:
        raise UsageError(f"{base_rate} is no rate", fix="give a base_rate from 0 to 1")
