"""A backtest's figures: from its scores and alarms to what the other figure functions draw."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from sag_research.errors import NotEnoughDataError, UsageError
from sag_research.viz._figures import Floats
from sag_research.viz._figures_decision import (
    plot_cost_saved,
    plot_decision_curve,
    plot_incidence,
)
from sag_research.viz._figures_risk import plot_auroc_by_step, plot_leakage, plot_reliability

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from sag_research.deadend import Backtest, OutOfFold

__all__ = ["BACKTEST_FIGURES", "plot_backtest", "plot_backtest_leakage"]

BACKTEST_FIGURES: Final = ("auroc", "reliability", "cost", "decision", "incidence")
SHOWN: Final = 4
"""More lines than this cannot be told apart in one column."""


def plot_backtest(
    backtest: Backtest,
    what: str,
    models: Sequence[str] | None = None,
    *,
    ax: Axes | None = None,
) -> Axes:
    """Draw one figure of a backtest.

    Parameters
    ----------
    backtest : Backtest
    what : {"auroc", "reliability", "cost", "decision", "incidence"}
        AUROC by step among runs alive; predicted risk against the share that failed; steps saved
        against false aborts; net benefit over thresholds; failures and successes over steps.
    models : sequence of str, optional
        Rows of ``backtest.table_``; default: the first few. ``reliability`` draws the first one.
    ax : Axes, optional
        Default: new axes, one column wide.

    Returns
    -------
    Axes
        The title says so where the split leaks.
    """
    if what not in BACKTEST_FIGURES:
        raise UsageError(f"no figure {what!r}", fix=f"one of {', '.join(BACKTEST_FIGURES)}")
    named = list(models) if models is not None else list(backtest.out_of_fold)[:SHOWN]
    if missing := [name for name in named if name not in backtest.out_of_fold]:
        raise UsageError(
            f"no model {missing[0]!r} in this backtest",
            fix=f"one of {', '.join(backtest.out_of_fold)}",
        )
    title = "LEAK: not to be believed" if backtest.leaks else ""
    draw = {"auroc": _auroc, "reliability": _reliability, "cost": _cost, "decision": _decision}
    return (
        _incidence(backtest, title, ax)
        if what == "incidence"
        else draw[what](backtest, named, title, ax)
    )


def rows_of(backtest: Backtest) -> dict[str, dict[str, Any]]:
    """Return the rows of a backtest's table by model, in its order."""
    records: list[dict[str, Any]] = backtest.table_.to_dict("records")  # type: ignore[assignment]
    return {row["model"]: row for row in records}


def _auroc(backtest: Backtest, models: list[str], title: str, ax: Axes | None) -> Axes:
    import pandas as pd

    table = rows_of(backtest)
    steps = sorted(int(name[2:]) for name in table[models[0]] if name[2:].isdigit())
    ends = {"auroc": "", "low": "_low", "high": "_high"}
    rows = [
        {"model": model, "step": step, "n": table[model][f"n_{step}"]}
        | {new: table[model][f"auroc_{step}{end}"] for new, end in ends.items()}
        for model in models
        for step in steps
        if not math.isnan(table[model][f"auroc_{step}"])
    ]
    if not rows:
        raise NotEnoughDataError(
            "no AUROC at any step to draw", fix="give the backtest other steps"
        )
    return plot_auroc_by_step(pd.DataFrame(rows), title=title, ax=ax)


def _reliability(backtest: Backtest, models: list[str], title: str, ax: Axes | None) -> Axes:
    from sag_research.deadend import reliability

    scores = backtest.out_of_fold[models[0]]
    if not backtest.judged[models[0]].model.calibrated:
        raise UsageError(
            f"scores of {models[0]!r} are no probabilities", fix="choose another model"
        )
    bins = reliability(scores.failed, scores.scores, scores.weight, scores.looks.run)
    ece = float(rows_of(backtest)[models[0]]["ece"])
    return plot_reliability(bins["score"], bins["rate"], bins["n_runs"], bins["low"],
                            bins["high"], ece=ece, title=title or models[0], ax=ax)  # fmt: skip


def _cost(backtest: Backtest, models: list[str], title: str, ax: Axes | None) -> Axes:
    table = rows_of(backtest)
    first = table[models[0]]
    slope = first["random_steps_saved"] / (first["random_false_aborts"] or math.nan)
    return plot_cost_saved(
        {model: cost_curve(backtest.out_of_fold[model]) for model in models},
        random=1.0 if math.isnan(slope) else slope,
        alpha=float(backtest.settings["alpha"]),
        points={m: (table[m]["false_aborts"], table[m]["steps_saved"]) for m in models},
        title=title,
        ax=ax,
    )


def cost_curve(scores: OutOfFold, levels: int = 31, most: float = 0.3) -> tuple[Floats, Floats]:
    """Return false aborts and share of steps saved, for thresholds that stop ever more runs.

    Scores of different folds come from different models and share no scale, so in each fold the
    threshold is the one that stops a given share of that fold's successful runs; folds are summed.

    Returns
    -------
    false_aborts, saved : ndarray of float64, shape (levels,)
    """
    lengths, failed = scores.prefixes.n_steps, scores.prefixes.failed
    allowed = np.linspace(0, most, levels)
    stopped, saved = np.zeros(levels), np.zeros(levels)
    successes = total = 0.0
    for fold in np.unique(scores.fold):
        here = scores.fold == fold
        run, seen, score = scores.looks.run[here], scores.looks.seen[here], scores.scores[here]
        runs, place = np.unique(run, return_inverse=True)
        top = np.full(len(runs), -np.inf)
        np.maximum.at(top, place, score)
        good = np.sort(top[failed[runs] == 0])[::-1]
        successes, total = successes + len(good), total + lengths[runs].sum()
        for number, share in enumerate(allowed):
            spared = int(share * len(good))
            threshold = good[spared] if spared < len(good) else -np.inf
            first = np.full(len(runs), np.inf)
            np.minimum.at(first, place[score > threshold], seen[score > threshold])
            stop = np.isfinite(first)
            stopped[number] += (failed[runs][stop] == 0).sum()
            saved[number] += (lengths[runs][stop] - first[stop]).sum()
    return stopped / max(successes, 1), saved / max(total, 1)


def _decision(backtest: Backtest, models: list[str], title: str, ax: Axes | None) -> Axes:
    p = np.linspace(0, 0.95, 96)
    curves = {}
    for model in models:
        scores = backtest.out_of_fold[model]
        unit = scores.repeat * len(scores.prefixes) + scores.looks.run
        units, first = np.unique(unit, return_index=True)
        top = np.full(len(units), -np.inf)
        np.maximum.at(top, np.searchsorted(units, unit), scores.scores)
        curves[model] = _benefit(scores.failed[first] == 1, top, p)
    row = rows_of(backtest)[models[0]]
    return plot_decision_curve(
        p, curves, row["prevalence"], p_star=row["p_star"], title=title, ax=ax
    )


def _benefit(bad: NDArray[np.bool_], top: Floats, thresholds: Floats) -> Floats:
    """Return the net benefit of stopping each run whose largest risk is above a threshold."""
    from sag_research.deadend import net_benefit

    stops = [top > threshold for threshold in thresholds]
    return np.array([
        net_benefit(float((bad & stop).sum()), float((~bad & stop).sum()), len(top), float(p))
        for stop, p in zip(stops, thresholds, strict=True)
    ])  # fmt: skip


def _incidence(backtest: Backtest, title: str, ax: Axes | None) -> Axes:
    from sag_research.deadend import cumulative_incidence

    table = cumulative_incidence(backtest.prefixes.n_steps, backtest.prefixes.failed)
    return plot_incidence(table["step"], table["failure"], table["success"],
                          alive=table["at_risk"], title=title, ax=ax)  # fmt: skip


def plot_backtest_leakage(
    random: Backtest,
    group: Backtest,
    models: Sequence[str] | None = None,
    *,
    title: str = "",
    ax: Axes | None = None,
) -> Axes:
    """Draw how much better a random split makes each model look than the split by group.

    Parameters
    ----------
    random, group : Backtest
        Of the same runs, under the two splits.
    models : sequence of str, optional
        Default: all that stand in both.
    title : str
    ax : Axes, optional
        Default: new axes, one column wide.

    Returns
    -------
    Axes
    """
    one, other = random.table_.set_index("model"), group.table_.set_index("model")
    named = (
        list(models) if models is not None else [name for name in other.index if name in one.index]
    )
    return plot_leakage(_leakage(one.loc[named], other.loc[named]), title=title, ax=ax)


def _leakage(random: pd.DataFrame, group: pd.DataFrame) -> pd.DataFrame:
    import pandas as pd

    table: dict[str, Any] = {"model": list(random.index)}
    for name, found in (("random", random), ("group", group)):
        table |= {name: found["auroc"].to_numpy(), f"{name}_low": found["auroc_low"].to_numpy(),
                  f"{name}_high": found["auroc_high"].to_numpy()}  # fmt: skip
    return pd.DataFrame(table)
