"""From scores and alarms to one table, each number with its n and its interval."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from sag_research.deadend._backtest_run import (
    Judged,
    Units,
    left_after,
    random_control,
    remaining,
)
from sag_research.deadend._bootstrap import (
    Estimate,
    Sampled,
    Scored,
    Statistic,
    auroc_statistic,
    brier_statistic,
    ece_statistic,
    estimate,
    precision_area_statistic,
    ratio_statistic,
    sample,
)
from sag_research.deadend._metrics import LEVEL, wilson
from sag_research.deadend._prefixes import Floats, Ints, Prefixes

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Measures", "measure", "table_of"]

NOTHING = Estimate(math.nan, math.nan, math.nan, 0, 0)
RATES = ("false_aborts", "recall", "precision")
"""Widened by Wilson's interval: of 0 events, every resample has 0 too."""


class Measures(NamedTuple):
    """What is measured, and how often it is resampled."""

    at: tuple[int, ...]
    horizon: int
    p_star: float
    cluster: Ints
    """Of each run of the cohort."""
    drawn: Floats


class Alarms(NamedTuple):
    """Alarms of one model, one entry a unit."""

    failed: Floats
    n_steps: Ints
    stop: Floats
    stopped: Floats
    saved: Floats
    """Steps, tokens, cost; shape (n_units, 3), NaN where unknown."""
    total: Floats
    random_stopped: Floats
    random_saved: Floats


SAVED = ("steps_saved", "tokens_saved", "cost_saved")


def scored_of(judged: Judged, cluster: Ints) -> Scored:
    """Put a model's scores into the form that statistics are made of."""
    s = judged.scores
    return Scored(s.failed, s.scores, s.weight, s.fold, cluster[s.looks.run], s.looks.run)


def measure(
    judged: Judged, units: Units, what: Measures, same_scores: Mapping[str, Sampled] | None = None
) -> dict[str, Sampled]:
    """Compute every number of a model's row, with its resamples.

    `same_scores` are the numbers of another row of the same scores, to be taken over.
    """
    found = dict(same_scores or {})
    for name, statistic, n in () if found else _score_statistics(judged, what):
        found[name] = sample(statistic, what.drawn, n)
    alarms = alarms_of(judged, units)
    repeats = int(units.repeat.max(initial=0)) + 1
    for name, above, below in alarm_ratios(alarms, what.p_star):
        known = np.isfinite(above) & np.isfinite(below)
        statistic = ratio_statistic(
            above[known], below[known], what.cluster[units.run[known]], what.drawn.shape[1]
        )
        found[name] = sample(statistic, what.drawn, round(_base(name, below[known]) / repeats))
    return found


def _base(name: str, below: Floats) -> float:
    """Runs that a ratio is taken of."""
    return float((below > 0).sum()) if name.endswith("saved") else float(below.sum())


def _score_statistics(judged: Judged, what: Measures) -> Iterator[tuple[str, Statistic, int]]:
    data, seen = scored_of(judged, what.cluster), judged.scores.looks.seen
    clusters = what.drawn.shape[1]
    runs = len(np.unique(data.run))
    yield "auroc", auroc_statistic(data), runs
    for step in what.at:
        here = data.where(seen == step)._replace(weight=np.ones(int((seen == step).sum())))
        yield f"auroc_{step}", auroc_statistic(here), len(np.unique(here.run))
    early = up_to(judged, data, what.horizon)
    yield f"max_auroc_{what.horizon}", auroc_statistic(early), len(np.unique(early.run))
    yield "auprc", precision_area_statistic(data), runs
    if judged.model.calibrated:
        even = data._replace(weight=np.ones(len(data.score)))  # see Backtest.table_
        yield "brier", brier_statistic(even, clusters), runs
        yield "ece", ece_statistic(even, clusters), runs
        yield "stability", _stability(judged, data, clusters), runs


def up_to(judged: Judged, data: Scored, horizon: int) -> Scored:
    """Largest score up to a step, of the runs that are alive at that step.

    Over all looks, a longer run has more of them and so a larger maximum: that measures length.
    """
    seen = judged.scores.looks.seen
    unit = judged.scores.repeat * len(judged.scores.prefixes) + data.run
    alive = np.isin(unit, unit[seen == horizon]) & (seen <= horizon)
    first, place = np.unique(unit[alive], return_index=True, return_inverse=True)[1:]
    kept = data.where(alive)
    top = np.full(len(first), -np.inf)
    np.maximum.at(top, place, kept.score)
    return kept.where(first)._replace(score=top, weight=np.ones(len(first)))


def _stability(judged: Judged, data: Scored, clusters: int) -> Statistic:
    """Mean distance of a run's successive scores, each run weighing 1."""
    unit = judged.scores.repeat * len(judged.scores.prefixes) + data.run
    same = unit[1:] == unit[:-1]
    later, count = unit[1:][same], np.bincount(unit[1:][same], minlength=int(unit.max()) + 1)
    jump = np.abs(np.diff(data.score))[same] / count[later]
    return ratio_statistic(jump, 1 / count[later], data.cluster[1:][same], clusters)


def alarms_of(judged: Judged, units: Units) -> Alarms:
    """Work out what each alarm saves, and what random alarms would."""
    prefixes = judged.scores.prefixes
    table = prefixes.table
    amounts = (
        np.ones(len(table)),
        table.number("tokens_in") + table.number("tokens_out"),
        table.number("cost_usd"),
    )
    quantities = [remaining(prefixes, amount) for amount in amounts]
    stopped = np.isfinite(judged.stop)
    step = np.where(stopped, judged.stop, 0).astype(np.int64)
    saved = np.column_stack([left_after(prefixes, q, units.run, step) for q in quantities])
    total = np.column_stack([q.total[units.run] for q in quantities])
    saved = np.where(stopped[:, None], saved, 0 * total)
    blind = random_control(prefixes.looks(), units, judged.stop, prefixes, quantities)
    return Alarms(
        prefixes.failed[units.run],
        prefixes.n_steps[units.run],
        judged.stop,
        stopped.astype(np.float64),
        saved,
        total,
        blind.stopped,
        blind.saved,
    )


def alarm_ratios(alarms: Alarms, p_star: float) -> Iterator[tuple[str, Floats, Floats]]:
    """Numerator and denominator a unit, of everything that alarms are judged by."""
    bad, one = alarms.failed, np.ones(len(alarms.failed))
    price = p_star / (1 - p_star)
    for mark, stopped, saved in (
        ("", alarms.stopped, alarms.saved),
        ("random_", alarms.random_stopped, alarms.random_saved),
    ):
        yield f"{mark}false_aborts", stopped * (1 - bad), 1 - bad
        yield f"{mark}recall", stopped * bad, bad
        yield f"{mark}precision", stopped * bad, stopped
        for column, name in enumerate(SAVED):
            yield f"{mark}{name}", saved[:, column], alarms.total[:, column]
        yield f"{mark}net_benefit", stopped * (bad - (1 - bad) * price), one
    caught = alarms.stopped * bad
    share = np.divide(alarms.stop, alarms.n_steps, out=np.zeros(len(bad)), where=caught > 0)
    yield "earliness", share, caught


def interval_of(name: str, sampled: Sampled, level: float = LEVEL) -> Estimate:
    """Interval of one number; that of a rate is at least as wide as Wilson's."""
    found = estimate(sampled, level)
    if name not in RATES or not sampled.n or math.isnan(sampled.value):
        return found
    low, high = wilson(min(max(sampled.value, 0.0), 1.0) * sampled.n, sampled.n, level)
    return found._replace(low=float(np.fmin(low, found.low)), high=float(np.fmax(high, found.high)))


def worst_fold(judged: Judged, units: Units) -> float:
    """Largest share of successes stopped in any one fold."""
    good = judged.scores.prefixes.failed[units.run] == 0
    of = np.bincount(units.fold[good])
    stopped = np.bincount(units.fold[good], np.isfinite(judged.stop[good]))
    return float((stopped[of > 0] / of[of > 0]).max()) if of.any() else math.nan


ORDER = (
    "auroc",
    *("auroc_at", "max_auroc"),
    *("auprc", "brier", "ece", "false_aborts", "recall", "precision", "earliness"),
    *SAVED,
    *(f"random_{name}" for name in (*RATES, *SAVED, "net_benefit")),
    *("net_benefit", "stability"),
)


def column_order(at: Sequence[int], horizon: int) -> list[str]:
    """Return the names of the numbers, in the order of the table."""
    names: list[str] = []
    for name in ORDER:
        if name == "auroc_at":
            names += [f"auroc_{step}" for step in at]
        else:
            names.append(f"max_auroc_{horizon}" if name == "max_auroc" else name)
    return names


def table_of(
    results: Mapping[str, Judged],
    sampled: Mapping[str, Mapping[str, Sampled]],
    units: Units,
    what: Measures,
    level: float = LEVEL,
) -> pd.DataFrame:
    """One row a model."""
    import pandas as pd

    rows = []
    for name, judged in results.items():
        row: dict[str, object] = {"model": name, **_cohort_of(judged.scores.prefixes, units, what)}
        for metric in column_order(what.at, what.horizon):
            known = sampled[name].get(metric)
            found = interval_of(metric, known, level) if known else NOTHING
            row |= {metric: found.value, f"{metric}_low": found.low, f"{metric}_high": found.high}
            if "auroc_" in metric:
                row["n_" + metric.removeprefix("auroc_")] = found.n
        row["false_aborts_worst_fold"] = worst_fold(judged, units)
        row["n_alarms"] = int(np.isfinite(judged.stop).sum())
        row["folds_without_alarm"] = sum(t.value == math.inf for t in judged.thresholds)
        rows.append(row | {"p_star": what.p_star, "folds": int(units.fold.max()) + 1})
    return pd.DataFrame(rows)


def _cohort_of(prefixes: Prefixes, units: Units, what: Measures) -> dict[str, object]:
    tested = np.unique(units.run)
    return {
        "n": len(tested),
        "n_tasks": prefixes.runs["task_id"].iloc[tested].nunique(),
        "n_clusters": what.drawn.shape[1],
        "prevalence": float(prefixes.failed[tested].mean()),
    }


def intervals_of(
    sampled: Mapping[str, Mapping[str, Sampled]], level: float = LEVEL
) -> pd.DataFrame:
    """One row a model and number: ``model metric value low high n clusters``."""
    import pandas as pd

    rows = [
        (model, metric, *interval_of(metric, known, level))
        for model, metrics in sampled.items()
        for metric, known in metrics.items()
    ]
    return pd.DataFrame(rows, columns=["model", "metric", *Estimate._fields])
