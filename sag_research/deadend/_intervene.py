"""Whether acting on an alarm pays: the break-even probability, and what is known of precision."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from sag_research.deadend._bootstrap import (
    DRAWS,
    Estimate,
    estimate,
    percentile_interval,
    ratio_statistic,
    resamples,
    sample,
)
from sag_research.deadend._metrics import LEVEL, Interval, wilson
from sag_research.deadend._prefixes import Floats, Ints
from sag_research.errors import NotEnoughDataError, UsageError

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["break_even", "pilot", "precision_interval"]

PILOT_TASKS = 50


def break_even(recovery: float, disruption: float) -> float:
    """Return p* = d / (r + d): acting pays where a run fails with a higher probability than that.

    Parameters
    ----------
    recovery : float
        Share r of runs that would fail and succeed when acted on.
    disruption : float
        Share d of runs that would succeed and fail when acted on.

    Returns
    -------
    float
        NaN where acting changes nothing.

    References
    ----------
    "Accurate failure prediction in agents does not imply effective failure prevention",
    arXiv 2602.03338.

    Examples
    --------
    >>> round(break_even(recovery=0.14, disruption=0.64), 2)
    0.82
    """
    for share in (recovery, disruption):
        if not 0 <= share <= 1:
            raise UsageError(f"{share} is no share between 0 and 1")
    total = recovery + disruption
    return disruption / total if total else math.nan


def pilot(pairs: pd.DataFrame, seed: int = 0, level: float = LEVEL) -> pd.DataFrame:
    """Estimate recovery, disruption and p* from a paired pilot.

    Parameters
    ----------
    pairs : DataFrame
        One row a pair from the same state: ``task_id``, and 1 or 0 for success in ``continued``
        (the run left alone) and ``acted`` (the run acted on). All started pairs belong in it,
        whatever became of them.
    seed : int
    level : float

    Returns
    -------
    DataFrame
        Rows ``recovery disruption p_star``; columns ``value low high n n_tasks``, `n` the pairs
        that the share is taken of.

    Raises
    ------
    NotEnoughDataError
        With fewer than 50 tasks, or without pairs of both kinds.
    """
    import pandas as pd

    tasks = np.unique(pairs["task_id"].astype(str), return_inverse=True)[1].astype(np.int64)
    n_tasks = len(np.unique(tasks))
    if n_tasks < PILOT_TASKS:
        raise NotEnoughDataError(
            f"p* needs a pilot of {PILOT_TASKS} tasks", why=f"there are {n_tasks}"
        )
    left, acted = pairs["continued"].to_numpy(float), pairs["acted"].to_numpy(float)
    if not np.isin(np.concatenate([left, acted]), (0, 1)).all():
        raise UsageError("continued and acted must be 1 or 0", fix="leave out unknown outcomes")
    if len(np.unique(left)) < 2:
        raise NotEnoughDataError("p* needs runs that fail and runs that succeed when left alone")
    drawn = resamples(n_tasks, DRAWS, seed)
    recovery = ratio_statistic((1 - left) * acted, 1 - left, tasks, n_tasks)
    disruption = ratio_statistic(left * (1 - acted), left, tasks, n_tasks)

    def star(times: Floats) -> Floats:
        r, d = recovery(times), disruption(times)
        return np.asarray(np.divide(d, r + d, out=np.full(len(d), np.nan), where=r + d > 0))

    counts = (int((left == 0).sum()), int((left == 1).sum()), len(left))
    rows = {
        name: estimate(sample(statistic, drawn, n), level)
        for name, statistic, n in zip(
            ("recovery", "disruption", "p_star"), (recovery, disruption, star), counts, strict=True
        )
    }
    return pd.DataFrame(rows.values(), index=list(rows), columns=list(Estimate._fields)).rename(
        columns={"clusters": "n_tasks"}
    )


def precision_interval(
    failed: Floats, cluster: Ints, seed: int = 0, level: float = LEVEL
) -> Interval:
    """Interval of the share of failures among runs that raised an alarm.

    The wider, on each side, of Wilson's interval, which knows about small numbers, and of the
    bootstrap over tasks, which knows that runs of a task are alike.

    Parameters
    ----------
    failed, cluster : ndarray, shape (n_alarms,)

    Examples
    --------
    >>> low, high = precision_interval(np.array([1., 1., 1.]), np.array([0, 1, 2]))
    >>> round(low, 4), high
    (0.4385, 1.0)
    """
    low, high = wilson(float(failed.sum()), len(failed), level)
    place = np.unique(cluster, return_inverse=True)[1]
    n_clusters = int(place.max(initial=-1)) + 1
    if n_clusters < 2:
        return Interval(low, high)
    share = ratio_statistic(failed, np.ones(len(failed)), place, n_clusters)
    drawn_low, drawn_high = percentile_interval(share(resamples(n_clusters, DRAWS, seed)), level)
    return Interval(float(np.fmin(low, drawn_low)), float(np.fmax(high, drawn_high)))
