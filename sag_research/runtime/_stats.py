"""Intervals for rates and paired differences, and how many repeats they need."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from statistics import NormalDist
from typing import NamedTuple

from sag_research.errors import UsageError

__all__ = [
    "DRAWS",
    "LEVEL",
    "Estimate",
    "Interval",
    "paired_difference",
    "repeats_for_difference",
    "repeats_for_rate",
    "wilson",
]

LEVEL = 0.95
DRAWS = 4_000
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
    seed: int = 7,
    level: float = LEVEL,
    draws: int = DRAWS,
) -> Estimate:
    """Mean of paired differences, with a bootstrap interval clustered by task.

    Parameters
    ----------
    pairs : sequence of (cluster, difference)
        One item a pair; clusters are tasks.
    seed : int
        Of the bootstrap.
    level : float
    draws : int
        Bootstrap samples.

    Returns
    -------
    Estimate
        The interval is NaN where fewer than two units could be drawn.

    Notes
    -----
    Percentile bootstrap. Of several clusters, whole clusters are drawn, since pairs of one task
    are alike; of one cluster, its pairs are drawn, and the interval then speaks about this task
    alone. With few clusters it is too narrow, and where all differences are equal it has no
    width: neither is evidence of certainty.

    References
    ----------
    A. C. Davison and D. V. Hinkley, Bootstrap Methods and their Application, 1997, ch. 3.8.

    Examples
    --------
    >>> paired_difference([("t1", 1.0), ("t1", 0.0)], seed=1)
    Estimate(value=0.5, low=0.0, high=1.0, n=2, clusters=1)
    """
    import numpy as np

    sums: dict[Hashable, float] = {}
    counts: dict[Hashable, int] = {}
    for cluster, difference in pairs:
        sums[cluster] = sums.get(cluster, 0.0) + difference
        counts[cluster] = counts.get(cluster, 0) + 1
    if not pairs:
        return Estimate(math.nan, math.nan, math.nan, 0, 0)
    value = math.fsum(difference for _, difference in pairs) / len(pairs)
    single = len(sums) == 1
    totals = np.array([d for _, d in pairs] if single else list(sums.values()), dtype=float)
    sizes = np.ones(len(pairs)) if single else np.array(list(counts.values()), dtype=float)
    if len(totals) < 2:
        return Estimate(value, math.nan, math.nan, len(pairs), len(sums))
    drawn = np.random.default_rng(seed).integers(0, len(totals), (draws, len(totals)))
    means = totals[drawn].sum(axis=1) / sizes[drawn].sum(axis=1)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return Estimate(value, float(low), float(high), len(pairs), len(sums))


def _z(level: float) -> float:
    if not 0 < level < 1:
        raise UsageError(f"{level} is no confidence level between 0 and 1")
    return NormalDist().inv_cdf((1 + level) / 2)


def _check(width: float, base_rate: float) -> None:
    if not 0 < width < 0.5:
        raise UsageError(f"a half-width of {width} cannot be planned", fix="give 0 < width < 0.5")
    if not 0 <= base_rate <= 1:
        raise UsageError(f"{base_rate} is no rate", fix="give a base_rate from 0 to 1")
