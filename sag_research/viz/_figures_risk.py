"""Figures about scores: risk over steps, AUROC by step, reliability, leakage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from sag_research._text import clip
from sag_research.errors import UsageError
from sag_research.viz._figures import (
    BLUE,
    DASHES,
    FAILURE,
    GREY,
    MARKS,
    OKABE_ITO,
    ORANGE,
    PALE,
    PURPLE,
    Floats,
    axes_or_new,
    bottom_counts,
    column,
    styled,
    whole_numbers,
)

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

__all__ = ["plot_auroc_by_step", "plot_leakage", "plot_reliability", "plot_risk"]


@styled
def plot_risk(
    risk: ArrayLike,
    *,
    step: ArrayLike | None = None,
    low: ArrayLike | None = None,
    high: ArrayLike | None = None,
    threshold: float | None = None,
    alarm: int | None = None,
    fork: int | None = None,
    step_set: Sequence[int] = (),
    title: str = "",
    ax: Axes | None = None,
) -> Axes:
    """Draw a run's risk over its steps, with the alarm and the fork point.

    Parameters
    ----------
    risk : array-like, shape (n_looks,)
        Probability of failure, or score, once each step is seen.
    step : array-like of int, shape (n_looks,), optional
        The 0-based step that each look has just seen; default 0 … n_looks - 1.
    low, high : array-like, shape (n_looks,), optional
        Interval around `risk`.
    threshold : float, optional
        The alarm's threshold.
    alarm, fork : int, optional
        The 0-based step at which the alarm fires, and the last stable one, to fork from.
    step_set : sequence of int
        Steps at which the run may have been lost, shaded.
    title : str
    ax : Axes, optional
        Default: new axes, one column wide.

    Returns
    -------
    Axes
    """
    values = column(risk, "risk")
    steps = np.arange(len(values)) if step is None else column(step, "step", len(values))
    ax = axes_or_new(ax, 2.1)
    for number, at in enumerate(step_set):
        label = f"may be lost here ({len(step_set)} steps)" if not number else None
        ax.axvspan(at - 0.5, at + 0.5, color=ORANGE, alpha=0.18, linewidth=0, label=label)
    if low is not None and high is not None:
        band = column(low, "low", len(values)), column(high, "high", len(values))
        ax.fill_between(steps, *band, color=BLUE, alpha=0.18, linewidth=0)
    ax.plot(steps, values, color=BLUE, marker="o", markersize=2.5, label="risk")
    if threshold is not None:
        ax.axhline(threshold, color=GREY, linestyle=DASHES[1], linewidth=0.8, label="threshold")
    for where, colour, mark, word in ((alarm, FAILURE, "X", "alarm"), (fork, PURPLE, "D", "fork")):
        if where is not None:
            ax.axvline(where, color=colour, linewidth=0.8, linestyle=DASHES[2])
            y = np.interp(where, steps, values)
            ax.plot([where], [y], mark, color=colour, markersize=6, label=f"{word}, step {where}")
    ax.set(xlabel="step", ylabel="risk of failure", title=clip(title, 60))
    whole_numbers(ax)
    top = max(1.0, float(np.nanmax(values, initial=1.0)))
    ax.set_ylim(min(0.0, float(np.nanmin(values, initial=0.0))), 1.02 * top)
    ax.legend(loc="best")
    return ax


@styled
def plot_auroc_by_step(table: pd.DataFrame, *, title: str = "", ax: Axes | None = None) -> Axes:
    """Draw AUROC among the runs still alive at each step, with how many those are.

    Parameters
    ----------
    table : DataFrame
        ``step`` (number of steps seen), ``auroc``, ``n`` (runs alive), and if there are any
        ``low``, ``high`` and ``model``, one line each.
    title : str
    ax : Axes, optional
        Default: new axes, one column wide.

    Returns
    -------
    Axes
        Numbers below the axis are runs alive, of the first model.
    """
    _need(table, "step", "auroc", "n")
    ax = axes_or_new(ax, 2.5)
    ax.axhline(0.5, color=GREY, linewidth=0.8, linestyle=DASHES[1])
    groups: list[tuple[Any, pd.DataFrame]] = [("", table)]
    if "model" in table:
        groups = list(table.groupby("model", sort=False))
    for number, (name, rows) in enumerate(groups):
        rows = rows.sort_values("step")
        colour = OKABE_ITO[number % 7]
        ax.plot(rows["step"], rows["auroc"], color=colour, label=clip(name, 24) or None,
                linestyle=DASHES[number % len(DASHES)],
                marker=MARKS[number % len(MARKS)])  # fmt: skip
        if {"low", "high"} <= set(rows):
            ax.fill_between(rows["step"].to_numpy(float), rows["low"].to_numpy(float),
                            rows["high"].to_numpy(float), color=colour, alpha=0.12,
                            linewidth=0)  # fmt: skip
    ax.set(xlabel="steps seen", ylabel="AUROC among runs alive", title=title)
    whole_numbers(ax)
    first = groups[0][1].sort_values("step")
    bottom_counts(ax, first["step"], first["n"], "alive")
    if "model" in table:
        ax.legend(loc="best")
    return ax


@styled
def plot_reliability(
    predicted: ArrayLike,
    observed: ArrayLike,
    n: ArrayLike,
    low: ArrayLike,
    high: ArrayLike,
    *,
    ece: float | None = None,
    title: str = "",
    ax: Axes | None = None,
) -> Axes:
    """Draw how often runs failed against how often they were said to, bin by bin.

    Parameters
    ----------
    predicted, observed : array-like, shape (n_bins,)
        Mean of the predicted probabilities, and share of failures, in each bin.
    n : array-like of int, shape (n_bins,)
        Looks (or runs) in each bin, written below the axis.
    low, high : array-like, shape (n_bins,)
        Interval around `observed`.
    ece : float, optional
        Expected calibration error, written into the figure.
    title : str
    ax : Axes, optional
        Default: new axes, one column wide.

    Returns
    -------
    Axes
    """
    x = column(predicted, "predicted")
    y, counts = column(observed, "observed", len(x)), column(n, "n", len(x))
    bounds = column(low, "low", len(x)), column(high, "high", len(x))
    used = counts > 0
    ax = axes_or_new(ax, 2.7)
    ax.plot([0, 1], [0, 1], color=GREY, linewidth=0.8, linestyle=DASHES[1])
    ax.vlines(x[used], bounds[0][used], bounds[1][used], color=BLUE, linewidth=1)
    ax.plot(x[used], y[used], "o", color=BLUE, markersize=4)
    ax.set(xlim=(0, 1), ylim=(0, 1), xlabel="predicted risk", ylabel="share that failed",
           title=title)  # fmt: skip
    bottom_counts(ax, x[used], counts[used], "n", rows=2)
    if ece is not None:
        ax.text(0.03, 0.95, f"ECE {ece:.3f}", transform=ax.transAxes, va="top")
    return ax


@styled
def plot_leakage(table: pd.DataFrame, *, title: str = "", ax: Axes | None = None) -> Axes:
    """Draw how much better a random split makes each model look than a split by group.

    Parameters
    ----------
    table : DataFrame
        ``model``, ``random``, ``group`` (AUROC under each split), and if there are any
        ``random_low random_high group_low group_high``.
    title : str
    ax : Axes, optional
        Default: new axes, one column wide.

    Returns
    -------
    Axes
        The difference, in AUROC, is written at the end of each pair of bars.
    """
    _need(table, "model", "random", "group")
    ax = axes_or_new(ax, 0.9 + 0.33 * len(table))
    splits: Mapping[str, tuple[float, str, str]] = {
        "random": (-0.19, PALE, "//"), "group": (0.19, BLUE, "")
    }  # fmt: skip
    y = np.arange(len(table))
    for name, (offset, colour, hatch) in splits.items():
        values = table[name].to_numpy(float)
        label = f"{name} split" + (" (leaks)" if name == "random" else "")
        ax.barh(y + offset, values - 0.5, 0.36, left=0.5, color=colour, hatch=hatch,
                edgecolor=GREY, linewidth=0.5, label=label)  # fmt: skip
        if {f"{name}_low", f"{name}_high"} <= set(table):
            ax.hlines(y + offset, table[f"{name}_low"], table[f"{name}_high"], color="black",
                      linewidth=0.8)  # fmt: skip
    ends = _ends(table)
    for place, (end, more) in enumerate(zip(ends, table["random"] - table["group"], strict=True)):
        ax.annotate(f"{more:+.3f}", (end, place), (3, 0), textcoords="offset points", va="center")
    ax.set_yticks(y, [clip(name, 22) for name in table["model"]])
    ax.axvline(0.5, color="black", linewidth=0.6)
    low = min(0.5, float(np.nanmin(table[["random", "group"]].to_numpy(float))))
    ax.set(xlim=(low - 0.02, float(np.max(ends, initial=0.6)) + 0.1), xlabel="AUROC", title=title,
           ylim=(len(table) - 0.45, -0.55))  # fmt: skip
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
    return ax


def _ends(table: pd.DataFrame) -> Floats:
    """Return where each pair of bars, intervals included, ends on the right."""
    shown = [c for c in ("random", "group", "random_high", "group_high") if c in table]
    ends: Floats = np.fmax(table[shown].max(axis=1).to_numpy(float), 0.5)
    return ends


def _need(table: pd.DataFrame, *names: str) -> None:
    if missing := [name for name in names if name not in table]:
        raise UsageError(
            f"the table has no column {', '.join(missing)}", fix=f"it needs {', '.join(names)}"
        )
