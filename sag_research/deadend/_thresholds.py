"""How high a score must be to stop at most a share alpha of the runs that would succeed."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from sag_research.deadend._crossfit import OutOfFold
from sag_research.deadend._prefixes import Floats, Ints
from sag_research.errors import NotEnoughDataError, UsageError

__all__ = [
    "RULES",
    "Calibration",
    "Threshold",
    "calibration_of",
    "conformal_threshold",
    "held_out",
    "needed",
    "set_threshold",
]

DELTA = 0.1
"""Of rule ``pac``: the share of calibration sets for which alpha may be exceeded."""
_DRAWS = 500
_CANDIDATES = 200
_FOLDS = 5


class Calibration(NamedTuple):
    """What a threshold is set by, one entry a run."""

    top: Floats
    """Largest score over all the run's looks; minus infinity for a run without looks."""
    failed: Floats
    group: Ints
    fold: Ints
    """Runs whose scores came from one model, and whole groups."""

    def where(self, mask: NDArray[np.bool_]) -> Calibration:
        """Keep some runs."""
        return Calibration(self.top[mask], self.failed[mask], self.group[mask], self.fold[mask])

    @property
    def successes(self) -> Calibration:
        """The runs that succeeded."""
        return self.where(self.failed == 0)


class Threshold(NamedTuple):
    """An alarm is raised where the score is above ``value``."""

    value: float
    """Infinite where the data are too few to ever raise one."""
    alpha: float
    """The level that was used, at most the one asked for; 0 where it never fires."""


def calibration_of(scores: OutOfFold, group_by: str = "task_id", min_step: int = 1) -> Calibration:
    """Reduce the scores of looks to each run's maximum.

    A look at every point where an alarm could be raised is counted, so that looking often costs
    nothing: a run is stopped falsely exactly when its maximum is above the threshold.
    """
    prefixes = scores.prefixes
    top, fold = np.full(len(prefixes), -np.inf), np.full(len(prefixes), -1, np.int64)
    first = scores.repeat == scores.repeat.min(initial=0)  # one model's scores of each run
    late = first & (scores.looks.seen >= min_step)
    np.maximum.at(top, scores.looks.run[late], scores.scores[late])
    fold[scores.looks.run[first]] = scores.fold[first]
    has_looks = np.bincount(prefixes.looks().run, minlength=len(prefixes)) > 0
    kept = (fold >= 0) | ~has_looks
    groups = prefixes.groups(group_by)
    found = Calibration(top, prefixes.failed, groups, fold).where(kept)
    return found._replace(fold=_folds(found))


def _folds(calibration: Calibration) -> Ints:
    """Keep the folds that the scores came from; make some of whole groups where there are none."""
    known = np.unique(calibration.fold[calibration.fold >= 0])
    if len(known) > 1:
        return np.where(calibration.fold < 0, known[0], calibration.fold)
    place = np.unique(calibration.group, return_inverse=True)[1]
    return np.asarray(place % _FOLDS, np.int64)


def needed(alpha: float, rule: str = "split") -> int:
    """Return the fewest successful runs (``hierarchical``: tasks) with which a rule can fire.

    Examples
    --------
    >>> needed(0.05), needed(0.10), needed(0.05, "pac")
    (19, 9, 45)
    """
    _check_alpha(alpha)
    if rule == "pac":
        return math.ceil(math.log(DELTA) / math.log1p(-alpha) - 1e-9)
    return math.ceil(1 / alpha - 1e-9) - 1


def conformal_threshold(tops: Floats, alpha: float) -> float:
    """Return the k-th smallest of n maxima, k = ⌈(n + 1)(1 - alpha)⌉; infinity where k > n.

    A further run that is exchangeable with these exceeds it with probability at most alpha.

    References
    ----------
    V. Vovk, A. Gammerman and G. Shafer, Algorithmic Learning in a Random World, 2005, ch. 4;
    H. Papadopoulos et al., "Inductive confidence machines for regression", ECML 2002.

    Examples
    --------
    >>> conformal_threshold(np.arange(1., 20.), 0.05)     # n = 19: k = 19
    19.0
    >>> conformal_threshold(np.arange(1., 19.), 0.05)     # n = 18: k = 19
    inf
    """
    rank = _rank(len(tops), alpha)
    return math.inf if rank > len(tops) else float(np.partition(tops, rank - 1)[rank - 1])


def _rank(n: int, alpha: float) -> int:
    return math.ceil((n + 1) * (1 - alpha) - 1e-9)  # a hair, so that 20 x .95 is 19


def _split(calibration: Calibration, alpha: float, seed: int) -> Threshold:
    """Plain split conformal: exact for runs exchangeable with the calibration runs."""
    value = conformal_threshold(calibration.successes.top, alpha)
    return Threshold(value, 0.0 if value == math.inf else alpha)


def _split_value(calibration: Calibration, alpha: float) -> float:
    return conformal_threshold(calibration.successes.top, alpha)


def _fold_safe(calibration: Calibration, alpha: float, seed: int) -> Threshold:
    """The largest level at which held-out false aborts, mean over tasks + 1 SE, stay below alpha.

    Each fold's successes are tried against the threshold of the other folds, so that what new
    tasks and newly fitted models add is seen before the alarm is used.
    """
    n = len(calibration.successes.top)
    most = math.floor(alpha * (n + 1) + 1e-9)
    tried = np.unique(np.linspace(1, most, min(most, _CANDIDATES)).astype(np.int64))
    for count in reversed(tried[tried > 0].tolist()):
        level = count / (n + 1)
        fired = held_out(calibration, partial(_split_value, alpha=level))
        if _bounded(fired, calibration) <= alpha:
            return _split(calibration, level, seed)
    return Threshold(math.inf, 0.0)


def _bounded(fired: NDArray[np.bool_], calibration: Calibration) -> float:
    """Mean over tasks of the share of successes stopped, plus one standard error."""
    succeeded = calibration.failed == 0
    place = np.unique(calibration.group[succeeded], return_inverse=True)[1]
    shares = np.bincount(place, fired[succeeded]) / np.bincount(place)
    if len(shares) < 2:
        return math.inf
    return float(shares.mean() + shares.std(ddof=1) / math.sqrt(len(shares)))


def _pac(calibration: Calibration, alpha: float, seed: int) -> Threshold:
    """Exceeds alpha for at most a share ``DELTA`` of calibration sets.

    The larger of two: the order statistic of the binomial bound, exact for independent runs, and
    the ``1 - DELTA`` quantile of the threshold over resamples of whole tasks.
    """
    good = calibration.successes
    tops, n = np.sort(good.top), len(good.top)
    if n < needed(alpha, "pac"):
        return Threshold(math.inf, 0.0)
    # smallest k with P(Binomial(n, 1 - alpha) >= k) <= DELTA: more than alpha above it is rare
    rank = int(stats.binom.ppf(1 - DELTA, n, 1 - alpha)) + 1
    if rank > n:
        return Threshold(math.inf, 0.0)
    return Threshold(max(float(tops[rank - 1]), _resampled(good, alpha, seed)), alpha)


def _resampled(good: Calibration, alpha: float, seed: int) -> float:
    """Quantile over resamples of tasks of the conformal threshold."""
    place = np.unique(good.group, return_inverse=True)[1]
    n_groups = int(place.max()) + 1
    random = np.random.default_rng(seed)
    times = random.multinomial(n_groups, np.full(n_groups, 1 / n_groups), size=_DRAWS)
    order = np.argsort(good.top, kind="stable")
    reached = np.cumsum(times[:, place[order]], axis=1)
    ranks = np.array([_rank(int(total), alpha) for total in reached[:, -1]])
    where = (reached < ranks[:, None]).sum(axis=1)
    values = np.append(good.top[order], math.inf)[where]
    return float(np.quantile(values, 1 - DELTA, method="higher"))


def _hierarchical(calibration: Calibration, alpha: float, seed: int) -> Threshold:
    """For a run of a new task: K tasks and infinity weigh 1/(K + 1) each, a task's runs share it.

    References
    ----------
    R. Dunn, L. Wasserman and A. Ramdas, "Distribution-free prediction sets for two-layer
    hierarchical models", JASA 118 (2023) 2491-2502.
    """
    good = calibration.successes
    place = np.unique(good.group, return_inverse=True)[1]
    n_groups = int(place.max(initial=-1)) + 1
    order = np.argsort(good.top, kind="stable")
    mass = np.cumsum((1 / np.bincount(place))[place[order]]) / (n_groups + 1)
    enough = np.flatnonzero(mass >= 1 - alpha - 1e-12)
    if not len(enough):
        return Threshold(math.inf, 0.0)
    return Threshold(float(good.top[order[enough[0]]]), alpha)


RULES: dict[str, Callable[[Calibration, float, int], Threshold]] = {
    "fold-safe": _fold_safe,
    "split": _split,
    "pac": _pac,
    "hierarchical": _hierarchical,
}


def set_threshold(
    calibration: Calibration, alpha: float = 0.05, rule: str = "fold-safe", seed: int = 0
) -> Threshold:
    """Set a threshold by one of the rules; infinite where the data do not carry `alpha`."""
    _check_alpha(alpha)
    if rule not in RULES:
        raise UsageError(f"no alarm rule {rule!r}", fix=f"one of {', '.join(RULES)}")
    if not np.isfinite(calibration.top).any():  # no look to raise an alarm at
        return Threshold(math.inf, 0.0)
    return RULES[rule](calibration, alpha, seed)


def check_enough(calibration: Calibration, alpha: float, rule: str) -> None:
    """Refuse an alpha that these runs cannot carry, and say what it needs."""
    good = calibration.successes
    runs, tasks = len(good.top), len(np.unique(good.group))
    unit, found = ("tasks", tasks) if rule == "hierarchical" else ("successful runs", runs)
    least = needed(alpha, rule)
    if found < least:
        raise NotEnoughDataError(
            f"an alarm with alpha = {alpha:g} by rule {rule!r} needs {least} {unit} to set it by",
            why=f"there are {found}",
            fix=f"label more runs, or ask for alpha ≥ {1 / (found + 1):.2g}",
        )
    if not np.isfinite(calibration.top).any():
        raise NotEnoughDataError(
            "no run of this cohort has a look at which an alarm could be raised",
            why="they are of one step, their outcome is known at once, or min_step is too high",
        )
    if rule == "fold-safe" and tasks < 2:
        raise NotEnoughDataError(
            "rule 'fold-safe' needs successes of 2 tasks or more", why=f"there are {tasks}"
        )


def held_out(calibration: Calibration, rule: Callable[[Calibration], float]) -> NDArray[np.bool_]:
    """Try each fold's runs against the threshold that the other folds set; True where it fires."""
    fired = np.zeros(len(calibration.top), np.bool_)
    for fold in np.unique(calibration.fold):
        inside = calibration.fold == fold
        fired[inside] = calibration.top[inside] > rule(calibration.where(~inside))
    return fired


def _check_alpha(alpha: float) -> None:
    if not 0 < alpha < 1:
        raise UsageError(f"alpha = {alpha} is no share between 0 and 1")
