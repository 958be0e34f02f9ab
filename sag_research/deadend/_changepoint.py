"""At which step the risk rose for good, and a set of steps that contains the true one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sag_research.deadend._model import RiskModel
from sag_research.deadend._prefixes import Floats, Ints, Prefixes
from sag_research.deadend._thresholds import conformal_threshold, needed
from sag_research.errors import LeakError, NotEnoughDataError, UsageError

_NO_RISE = 1e-9  # differences of two means that are rounding errors

__all__ = ["Change", "StepSets", "calibrate_steps", "change_point"]


@dataclass(frozen=True)
class Change:
    """One rise of a run's risk."""

    step: int | None
    """The first step (0-based) of the higher level; None where the risk never rises."""
    before: float
    """Mean risk of the steps before it; NaN without a step."""
    after: float
    explained: float
    """Share of the variance over steps that the rise explains, 0 to 1."""
    weight: Floats
    """The same for a rise at each step, 0 for a fall; shape (n_steps,)."""


def change_point(risk: Floats) -> Change:
    """Find the rise that explains most of a run's risk.

    Parameters
    ----------
    risk : ndarray of float64, shape (n_steps,)
        Risk, or another score, after each step.

    Notes
    -----
    Least squares with two levels: for each step the sum of squares between "before" and "from this
    step on" is computed, and the largest among rises is taken. It is fitted to the risk itself and
    not to its log odds, where one last step that settles the outcome outweighs all others. A run
    that is lost twice has one change point, and a run whose risk creeps up has one in the middle:
    look at the curve as well.

    References
    ----------
    D. V. Hinkley, "Inference about the change-point in a sequence of random variables",
    Biometrika 57 (1970) 1-17.

    Examples
    --------
    >>> change = change_point(np.array([.2, .2, .2, .7, .7]))
    >>> change.step, round(change.before, 2), round(change.after, 2), round(change.explained, 2)
    (3, 0.2, 0.7, 1.0)
    """
    value = np.asarray(risk, np.float64)
    n, between = len(value), np.zeros(len(value))
    if n > 1:
        left, sums = np.arange(1, n), np.cumsum(value)
        jump = (sums[-1] - sums[:-1]) / (n - left) - sums[:-1] / left
        between[1:] = np.where(jump > _NO_RISE, left * (n - left) / n * jump**2, 0.0)
    if not between.any():
        return Change(None, math.nan, math.nan, 0.0, between)
    weight = between / float(((value - value.mean()) ** 2).sum())
    step = int(np.argmax(between))
    before, after = float(value[:step].mean()), float(value[step:].mean())
    return Change(step, before, after, float(weight[step]), weight)


@dataclass(frozen=True)
class StepSets:
    """Sets of neighbouring steps that hold the one at which a run was lost, 1 - alpha of times."""

    alpha: float
    radius: int
    """Steps on either side of the change point."""
    n: int
    """Runs with a known step that this rests on."""

    def of(self, change: Change) -> tuple[int, ...]:
        """Return the steps (0-based) of one run, in order: all where its risk never rises."""
        n = len(change.weight)
        if change.step is None:
            return tuple(range(n))
        first, last = max(0, change.step - self.radius), min(n - 1, change.step + self.radius)
        return tuple(range(first, last + 1))


def calibrate_steps(
    risk: RiskModel, prefixes: Prefixes, lost_at: Sequence[int] | Ints, alpha: float = 0.1
) -> StepSets:
    """Set how wide a set of steps must be, by runs of which the true step is known.

    Parameters
    ----------
    risk : RiskModel
        Fitted on other runs.
    prefixes : Prefixes
    lost_at : sequence of int, shape (n_runs,)
        The step (0-based) at which each run was lost, -1 for runs that were not; annotations of
        people, or the truth of a synthetic world.
    alpha : float
        Share of further runs whose step may be missed.

    Raises
    ------
    LeakError
        If `risk` was fitted on some of these runs.
    NotEnoughDataError
        With fewer than ``1 / alpha - 1`` runs that were lost.

    References
    ----------
    "Conformal agent error attribution", arXiv 2605.06788, for contiguous conformal sets of steps.
    """
    risk._check_fitted()
    needed(alpha)  # refuses what is no share
    truth = np.asarray(lost_at, np.int64)
    if truth.shape != (len(prefixes),):
        raise UsageError(f"{len(truth)} true steps for {len(prefixes)} runs")
    lost = np.flatnonzero(truth >= 0).tolist()
    seen = prefixes.runs["run_id"].iloc[lost].isin(risk.fitted_runs_)
    if seen.any():
        raise LeakError(
            f"model {risk.name!r} was fitted on {int(seen.sum())} of these runs",
            fix="calibrate on other runs",
        )
    away = np.array([_distance(risk, prefixes, run, int(truth[run])) for run in lost])
    radius = conformal_threshold(away, alpha)
    if math.isinf(radius):
        raise NotEnoughDataError(
            f"a set of steps with alpha = {alpha:g} needs {math.ceil(1 / alpha - 1e-9) - 1} runs "
            "with a known step",
            why=f"there are {len(lost)}",
        )
    return StepSets(alpha, int(radius), len(lost))


def _distance(risk: RiskModel, prefixes: Prefixes, run: int, step: int) -> float:
    """Steps from the change point to the true step; 0 without one, since the set is the run."""
    one = prefixes.take([run])
    if step >= one.n_steps[0]:
        raise UsageError(f"run {run} was lost at step {step}, but has {one.n_steps[0]} steps")
    change = change_point(risk.predict(one))
    return 0.0 if change.step is None else float(abs(change.step - step))
