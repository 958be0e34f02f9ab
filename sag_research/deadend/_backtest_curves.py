"""The curves behind the table, as data that figures are drawn from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from sag_research.deadend._backtest_run import (
    AlarmPlan,
    Judged,
    Units,
    first_alarms,
    thresholds_of,
)
from sag_research.deadend._backtest_table import (
    Measures,
    alarm_ratios,
    alarms_of,
    scored_of,
)
from sag_research.deadend._bootstrap import auroc_statistic, estimate, ratio_statistic, sample
from sag_research.deadend._metrics import reliability
from sag_research.deadend._prefixes import Floats

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["auroc_by_step", "cost_curve", "decision_curve", "reliability_of"]

ALPHAS = (0.01, 0.02, 0.03, 0.05, 0.07, 0.10, 0.15, 0.20, 0.30, 0.40, 0.50)
FEWEST = 10


def auroc_by_step(judged: Judged, what: Measures, fewest: int = FEWEST) -> pd.DataFrame:
    """AUROC among the runs still alive at each step of the grid.

    Steps at which fewer than `fewest` runs of either outcome are alive are left out.

    Returns
    -------
    DataFrame
        ``step auroc low high n n_failed``.
    """
    import pandas as pd

    data, seen = scored_of(judged, what.cluster), judged.scores.looks.seen
    rows = []
    for step in np.unique(seen).tolist():
        here = data.where(seen == step)._replace(weight=np.ones(int((seen == step).sum())))
        runs, first = np.unique(here.run, return_index=True)
        failed = int(here.failed[first].sum())
        if min(failed, len(runs) - failed) < fewest:
            continue
        found = estimate(sample(auroc_statistic(here), what.drawn, len(runs)))
        rows.append((step, found.value, found.low, found.high, found.n, failed))
    return pd.DataFrame(rows, columns=["step", "auroc", "low", "high", "n", "n_failed"])


def reliability_of(judged: Judged) -> pd.DataFrame:
    """Score and rate of failure by bins of the score, each look weighing 1."""
    s = judged.scores
    return reliability(s.failed, s.scores, run=s.looks.run)


def cost_curve(
    judged: Judged, units: Units, what: Measures, plan: AlarmPlan, alphas: Sequence[float] = ALPHAS
) -> pd.DataFrame:
    """What alarms of several levels save, and whom they stop, on runs not seen before.

    Each level's threshold is set by training runs alone, by the same rule as in the table, so a
    point is what somebody who asked for that level would have got.

    Returns
    -------
    DataFrame
        ``alpha false_aborts recall precision steps_saved tokens_saved cost_saved net_benefit``,
        each number with ``…_low`` and ``…_high``, and the same with ``random_`` before it.
    """
    import pandas as pd

    rows = []
    for alpha in alphas:
        limits = thresholds_of(judged.calibrations, plan._replace(alpha=alpha))
        values = np.array([limit.value for limit in limits])
        stop = first_alarms(judged.scores, units, values, plan.min_step)
        rows.append({"alpha": alpha, **_numbers(judged._replace(stop=stop), units, what)})
    return pd.DataFrame(rows)


def _numbers(judged: Judged, units: Units, what: Measures) -> dict[str, float]:
    row: dict[str, float] = {}
    for name, above, below in alarm_ratios(alarms_of(judged, units), what.p_star):
        if name == "earliness":
            continue
        known = np.isfinite(above) & np.isfinite(below)
        cluster = what.cluster[units.run[known]]
        ratio = ratio_statistic(above[known], below[known], cluster, what.drawn.shape[1])
        found = estimate(sample(ratio, what.drawn, int(known.sum())))
        row |= {name: found.value, f"{name}_low": found.low, f"{name}_high": found.high}
    return row


def decision_curve(
    judged: Judged, units: Units, what: Measures, thresholds: Sequence[float] | Floats | None = None
) -> pd.DataFrame:
    """Net benefit of stopping a run once its risk is at least p, for each p.

    Returns
    -------
    DataFrame
        ``threshold net_benefit low high n``.

    References
    ----------
    A. J. Vickers and E. B. Elkin, "Decision curve analysis: a novel method for evaluating
    prediction models", Medical Decision Making 26 (2006) 565-574.
    """
    import pandas as pd

    points = np.arange(0.05, 0.96, 0.05).round(2) if thresholds is None else np.asarray(thresholds)
    failed = judged.scores.prefixes.failed[units.run]
    cluster, rows = what.cluster[units.run], []
    folds = int(units.fold.max(initial=0)) + 1
    for p in points.tolist():
        just_below = np.full(folds, np.nextafter(p, -1.0))
        stopped = np.isfinite(first_alarms(judged.scores, units, just_below))
        gain = stopped * (failed - (1 - failed) * p / (1 - p))
        ratio = ratio_statistic(gain, np.ones(len(gain)), cluster, what.drawn.shape[1])
        found = estimate(sample(ratio, what.drawn, len(np.unique(units.run))))
        rows.append((p, found.value, found.low, found.high, found.n))
    return pd.DataFrame(rows, columns=["threshold", "net_benefit", "low", "high", "n"])
