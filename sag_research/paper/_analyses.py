"""The analyses that come with the package: each makes one table, or one figure with its numbers."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from sag_research.deadend import wilson
from sag_research.paper._backtracking import backtracking
from sag_research.paper._prefixguard import prefixguard, prefixguard_alerts, prefixguard_curve
from sag_research.paper._spec import Output, StudyError
from sag_research.paper._study import Cohort, Study

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from sag_research.deadend import Backtest

__all__ = ["FIGURES", "TABLES", "draw", "tabulate"]

NUMBERS = ("auroc", "auroc_5", "auroc_10", "brier", "ece")
LEVELS = (0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4)
ALARMS = ("false_aborts", "recall", "precision", "steps_saved", "random_steps_saved")


def datasets(cohort: Cohort) -> pd.DataFrame:
    """Runs, tasks, outcomes and steps of each data source."""
    import pandas as pd

    rows = []
    for name in cohort.run_ids:
        runs = cohort.of(name).runs()
        outcome = runs["outcome"].value_counts()
        success, failure = (int(outcome.get(key, 0)) for key in ("success", "failure"))
        low, high = wilson(failure, success + failure)
        rows.append({
            "data": name, "n": len(runs), "n_tasks": runs["task_id"].nunique(),
            "n_models": runs["model"].nunique(), "n_success": success, "n_failure": failure,
            "n_unknown": len(runs) - success - failure,
            "failed": failure / (success + failure) if success + failure else np.nan,
            "failed_low": low, "failed_high": high,
            "n_steps": int(runs["n_steps"].sum()),
            "median_steps": float(runs["n_steps"].median()) if len(runs) else np.nan,
        })  # fmt: skip
    return pd.DataFrame(rows)


def success(cohort: Cohort, by: str = "model", ks: Sequence[int] = ()) -> pd.DataFrame:
    """Success by the values of a column, with intervals that resample tasks."""
    table = cohort.compare(by, ks).table_
    kept = [by, "n", "n_tasks", "n_unknown", "rate", "low", "high"]
    return table[kept + [name for k in ks for name in _with_interval(f"pass_{k}", f"n_pass_{k}")]]


def paired(cohort: Cohort, by: str = "model") -> pd.DataFrame:
    """Differences of success between two values of a column, over the tasks both attempted."""
    return cohort.compare(by).paired_


def _with_interval(name: str, *more: str) -> list[str]:
    return [*more, name, f"{name}_low", f"{name}_high"]


def backtest(found: Backtest, numbers: Sequence[str] = NUMBERS) -> pd.DataFrame:
    """What each model's scores are worth on runs that it has not seen."""
    table = found.table_
    kept = ["model", "n", "prevalence"]
    for name in numbers:
        if name not in table:
            raise StudyError(f"a backtest has no number {name!r}", fix="see Backtest.table_")
        step = name.rpartition("_")[2]
        alive = [f"n_{step}"] if step.isdigit() and f"n_{step}" in table else []
        kept += _with_interval(name, *(one for one in alive if one not in kept))
    return table[kept]


def alarms(found: Backtest) -> pd.DataFrame:
    """What each model's calibrated alarm does, beside random stops."""
    table = found.table_
    kept = [name for number in ALARMS for name in _with_interval(number) if name in table]
    return table[["model", "n", "n_alarms", "alpha", *kept]]


def cost_curve(found: Backtest, alphas: Sequence[float] = LEVELS) -> pd.DataFrame:
    """What alarms of several levels save, and whom they stop."""
    table = found.cost_curve(alphas)
    table.insert(1, "n", len(found.prefixes))
    names = ("false_aborts", "recall", "steps_saved", "random_steps_saved")
    return table[["model", "n", "alpha", *(c for name in names for c in _with_interval(name))]]


def draw_cost(
    found: Backtest, ax: Axes, models: Sequence[str] | None = None, alphas: Sequence[float] = LEVELS
) -> pd.DataFrame:
    """Steps saved against false aborts, of alarms whose levels were set by training runs alone."""
    from sag_research.viz import plot_cost_saved

    whole = found.cost_curve(alphas)
    table = _of_models(cost_curve(found, alphas), models)
    curves = {
        str(name): (rows["false_aborts"], rows["steps_saved"])
        for name, rows in table.groupby("model", sort=False)
    }
    stopped, saved = whole["random_false_aborts"].sum(), whole["random_steps_saved"].sum()
    title = "LEAK: not to be believed" if found.leaks else ""
    alpha = float(found.settings["alpha"])
    slope = float(saved / stopped) if stopped else 1.0
    plot_cost_saved(curves, random=slope, alpha=alpha, title=title, ax=ax)
    return table


def _of_models(table: pd.DataFrame, models: Sequence[str] | None) -> pd.DataFrame:
    if models is None:
        return table
    if strange := set(models) - set(table["model"]):
        raise StudyError(f"no model {min(strange)!r} in this backtest")
    return table[table["model"].isin(list(models))]


def draw_auroc(
    found: Backtest, ax: Axes, models: Sequence[str] | None = None, fewest: int = 10
) -> pd.DataFrame:
    """AUROC among the runs alive at each step."""
    from sag_research.viz import plot_auroc_by_step

    table = found.auroc_by_step(fewest)
    if not table.empty:
        table = _of_models(table, models)
    if table.empty:
        raise StudyError(f"at no step are {fewest} failures and {fewest} successes alive")
    plot_auroc_by_step(table, title="LEAK: not to be believed" if found.leaks else "", ax=ax)
    return table


def draw_reliability(found: Backtest, ax: Axes, model: str = "") -> pd.DataFrame:
    """Predicted risk against the share that failed, of one model."""
    from sag_research.viz import plot_reliability

    name = model or next(iter(found.out_of_fold))
    table = found.reliability(name)
    records = found.table_.to_dict("records")
    gap = next(float(row["ece"]) for row in records if row["model"] == name)
    plot_reliability(table["score"], table["rate"], table["n_runs"], table["low"], table["high"],
                     ece=gap, title=name, ax=ax)  # fmt: skip
    return table


def draw_incidence(found: Backtest, ax: Axes) -> pd.DataFrame:
    """Share of runs that failed, and that succeeded, by each step."""
    from sag_research.deadend import cumulative_incidence

    found.plot("incidence", ax=ax)
    table = cumulative_incidence(found.prefixes.n_steps, found.prefixes.failed)
    table.insert(0, "n", len(found.prefixes))
    return table


TABLES: dict[str, Callable[..., pd.DataFrame]] = {
    "datasets": datasets,
    "success": success,
    "paired": paired,
    "backtest": backtest,
    "alarms": alarms,
    "cost-curve": cost_curve,
    "backtracking": backtracking,
    "prefixguard": prefixguard,
    "prefixguard-alerts": prefixguard_alerts,
}
"""Analyses that make a table, by name."""

FIGURES: dict[str, Callable[..., pd.DataFrame]] = {
    "cost-curve": draw_cost,
    "auroc-by-step": draw_auroc,
    "reliability": draw_reliability,
    "incidence": draw_incidence,
    "prefixguard-curve": prefixguard_curve,
}
"""Analyses that draw into axes, and return the numbers that they drew."""

OF_BACKTEST: Final = frozenset(
    {"backtest", "alarms", "cost-curve", "auroc-by-step", "reliability", "incidence"}
)
"""Analyses that are given a backtest; the others are given a cohort."""


def tabulate(study: Study, one: Output) -> pd.DataFrame:
    """Make a table by a shipped analysis."""
    analysis = _chosen(TABLES, "table", one)
    return _called(analysis, one, _subject(study, one))


def draw(study: Study, one: Output, ax: Axes) -> pd.DataFrame:
    """Draw a figure by a shipped analysis, and return its numbers."""
    analysis = _chosen(FIGURES, "figure", one)
    return _called(analysis, one, _subject(study, one), ax)


def _chosen(known: Mapping[str, Callable[..., Any]], kind: str, one: Output) -> Callable[..., Any]:
    if one.analysis not in known:
        raise StudyError(f"no {kind} {one.analysis!r}", fix=f"one of {', '.join(known)}")
    return known[one.analysis]


def _subject(study: Study, one: Output) -> Cohort | Backtest:
    if one.analysis not in OF_BACKTEST:
        return study.cohort(one)
    if not one.backtest:
        raise StudyError(f"analysis {one.analysis!r} is of a backtest", fix='say backtest = "NAME"')
    return study.backtest(one.backtest)


def _called(analysis: Callable[..., pd.DataFrame], one: Output, *given: Any) -> pd.DataFrame:
    try:
        inspect.signature(analysis).bind(*given, **one.options)
    except TypeError as error:
        raise StudyError(
            f"analysis {one.analysis!r} cannot be asked this", why=str(error)
        ) from error
    return analysis(*given, **one.options)
