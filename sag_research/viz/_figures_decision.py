"""Figures about what to do: incidence of both ends, cost saved, net benefit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from sag_research._text import clip
from sag_research.errors import UsageError
from sag_research.viz._figures import (
    DASHES,
    FAILURE,
    GREY,
    MARKS,
    OKABE_ITO,
    SUCCESS,
    Floats,
    axes_or_new,
    bottom_counts,
    column,
    styled,
    whole_numbers,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_cost_saved", "plot_decision_curve", "plot_incidence"]


@styled
def plot_incidence(
    step: ArrayLike,
    failure: ArrayLike,
    success: ArrayLike,
    *,
    alive: ArrayLike | None = None,
    failure_band: tuple[ArrayLike, ArrayLike] | None = None,
    success_band: tuple[ArrayLike, ArrayLike] | None = None,
    title: str = "",
    ax: Axes | None = None,
) -> Axes:
    """Draw the share of runs that have failed, and that have succeeded, by each step.

    The two are competing risks: a run that has succeeded can no longer fail. Treating it as
    censored instead, as a Kaplan-Meier curve of failures would, makes failure look too likely.

    Parameters
    ----------
    step : array-like, shape (n,)
        Number of steps.
    failure, success : array-like, shape (n,)
        Cumulative incidence, between 0 and 1; their sum is at most 1.
    alive : array-like of int, shape (n,), optional
        Runs still going before each step, written below the axis.
    failure_band, success_band : (low, high), optional
        Intervals, each of shape (n,).
    title : str
    ax : Axes, optional
        Default: new axes, one column wide.

    Returns
    -------
    Axes
    """
    x = column(step, "step")
    ends = (
        ("failure", FAILURE, column(failure, "failure", len(x)), failure_band),
        ("success", SUCCESS, column(success, "success", len(x)), success_band),
    )
    if np.any(ends[0][2] + ends[1][2] > 1 + 1e-9):
        raise UsageError("failure and success add up to more than all runs")
    ax = axes_or_new(ax, 2.5)
    for number, (name, colour, share, band) in enumerate(ends):
        if band is not None:
            low, high = (column(edge, f"band of {name}", len(x)) for edge in band)
            ax.fill_between(x, low, high, step="post", color=colour, alpha=0.15, linewidth=0)
        last = f"{share[-1]:.0%}" if len(share) else ""
        ax.step(x, share, where="post", color=colour, linestyle=DASHES[number],
                label=f"{name} ({last} in the end)")  # fmt: skip
    ax.set(xlabel="steps", ylabel="share of runs", ylim=(0, 1), title=title)
    whole_numbers(ax)
    if alive is not None:
        bottom_counts(ax, x, column(alive, "alive", len(x)), "alive")
    ax.legend(loc="best")
    return ax


@styled
def plot_cost_saved(
    curves: Mapping[str, tuple[ArrayLike, ArrayLike]],
    *,
    random: float = 1.0,
    alpha: float | None = None,
    points: Mapping[str, tuple[float, float]] | None = None,
    unit: str = "steps",
    title: str = "",
    ax: Axes | None = None,
) -> Axes:
    """Draw what alarms save against the share of good runs that they stop.

    Parameters
    ----------
    curves : mapping of str to (false_aborts, saved)
        For each model two arrays of shape (n_thresholds,): the share of runs that would have
        succeeded and are stopped, and the share of all `unit` that is not spent.
    random : float
        The share saved by stopping every run where the alarms stop theirs: the end of the
        diagonal on which an alarm lies that picks runs at random.
    alpha : float, optional
        The share of false aborts that is allowed.
    points : mapping of str to (false_aborts, saved), optional
        Where each model's calibrated alarm ended up on new runs.
    unit : str
        What is saved: steps, tokens, cost.
    title : str
    ax : Axes, optional
        Default: new axes, one column wide.

    Returns
    -------
    Axes
    """
    ax = axes_or_new(ax, 2.5)
    ax.plot([0, 1], [0, random], color=GREY, linewidth=0.8, linestyle=DASHES[1],
            label="runs picked at random")  # fmt: skip
    right, top = 0.0, 0.0
    for number, (name, curve) in enumerate(curves.items()):
        x, y = _sorted(*curve, name)
        ax.plot(x, y, **_line(number), label=clip(name, 24))
        right, top = max(right, float(x.max(initial=0))), max(top, float(y.max(initial=0)))
        if points and name in points:
            ax.plot(*[[value] for value in points[name]], MARKS[number % len(MARKS)],
                    color=OKABE_ITO[number % 7], markersize=6, markeredgecolor="white")  # fmt: skip
    if alpha is not None:
        ax.axvline(alpha, color=GREY, linewidth=0.8, linestyle=DASHES[2], label=f"α = {alpha:g}")
    right = right or 1.0
    ax.set(xlabel="false aborts (share of runs that would have succeeded)",
           ylabel=f"share of {unit} saved", title=title,
           xlim=(0, right), ylim=(0, 1.05 * max(top, random * right)))  # fmt: skip
    ax.legend(loc="best")
    return ax


@styled
def plot_decision_curve(
    threshold: ArrayLike,
    net_benefit: Mapping[str, ArrayLike],
    prevalence: float,
    *,
    p_star: float | None = None,
    title: str = "",
    ax: Axes | None = None,
) -> Axes:
    """Draw the net benefit of stopping where the risk exceeds a threshold.

    Parameters
    ----------
    threshold : array-like, shape (n,)
        Threshold probabilities p, below 1.
    net_benefit : mapping of str to array-like, shape (n,)
        For each model, true stops / n - false stops / n · p / (1 - p).
    prevalence : float
        Share of failures, from which the line of stopping every run is drawn.
    p_star : float, optional
        The precision above which an intervention pays, marked.
    title : str
    ax : Axes, optional
        Default: new axes, one column wide.

    Returns
    -------
    Axes

    References
    ----------
    A. J. Vickers, E. B. Elkin, Decision curve analysis, Medical Decision Making 26 (2006).
    """
    p = column(threshold, "threshold")
    if np.any((p < 0) | (p >= 1)):
        raise UsageError("a threshold is not in 0 … 1", fix="leave out p = 1")
    ax = axes_or_new(ax, 2.5)
    everyone = prevalence - (1 - prevalence) * p / (1 - p)
    ax.plot(p, everyone, color=GREY, linewidth=0.8, linestyle=DASHES[1], label="stop all")
    ax.axhline(0, color="black", linewidth=0.8, label="stop none")
    best = prevalence
    for number, (name, values) in enumerate(net_benefit.items()):
        benefit = column(values, f"net benefit of {name}", len(p))
        ax.plot(p, benefit, **_line(number), label=clip(name, 24))
        best = max(best, float(np.nanmax(benefit, initial=0)))
    if p_star is not None:
        ax.axvline(p_star, color=OKABE_ITO[3], linewidth=0.8, linestyle=DASHES[2],
                   label=f"p* = {p_star:.2f}")  # fmt: skip
    ax.set(xlabel="threshold probability p", ylabel="net benefit (per run)", title=title,
           ylim=(-0.25 * best, 1.1 * best), xlim=(0, float(p.max(initial=0)) or 1))  # fmt: skip
    ax.legend(loc="best")
    return ax


def _sorted(x: ArrayLike, y: ArrayLike, name: str) -> tuple[Floats, Floats]:
    false_aborts = column(x, f"false aborts of {name}")
    saved = column(y, f"saved of {name}", len(false_aborts))
    order = np.lexsort((saved, false_aborts))
    return false_aborts[order], saved[order]


def _line(number: int) -> dict[str, Any]:
    return {"color": OKABE_ITO[number % 7], "linestyle": DASHES[number % len(DASHES)]}
