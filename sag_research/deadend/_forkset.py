"""How far before the rise of its risk a run must be taken back to be taken back far enough."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sag_research.deadend._alarm import Alarm
from sag_research.deadend._changepoint import change_point
from sag_research.deadend._locate import risk_by_step
from sag_research.deadend._model import RiskModel
from sag_research.deadend._prefixes import Floats, Ints, Prefixes
from sag_research.deadend._thresholds import conformal_threshold, needed
from sag_research.errors import NotEnoughDataError, UsageError

__all__ = ["ForkSet", "calibrate_forks"]


@dataclass(frozen=True)
class ForkSet:
    """The latest steps of a halted run that hold the one at which it was lost.

    All steps from the earliest one on are in the set, so only where it begins must be known.

    Examples
    --------
    >>> ForkSet(alpha=0.1, before=2, n=40).earliest(change=6, n_steps=9)
    4
    >>> ForkSet(alpha=0.1, before=2, n=40).earliest(change=None, n_steps=9)
    0
    """

    alpha: float
    """Share of halted runs that were lost before the set begins, at most."""
    before: int
    """So many steps before the change point the set begins; negative: after it."""
    n: int
    """Runs with a known step that this rests on."""

    def earliest(self, change: int | None, n_steps: int) -> int:
        """Return the first step (0-based) of the set: 0 where the risk never rises.

        Parameters
        ----------
        change : int or None
            Change point of the run's risk so far.
        n_steps : int
            Steps so far.
        """
        if change is None:
            return 0
        return min(max(change - self.before, 0), max(n_steps - 1, 0))


def calibrate_forks(
    alarm: Alarm, prefixes: Prefixes, lost_at: Sequence[int] | Ints, alpha: float = 0.1
) -> ForkSet:
    """Set how far back a run must go, by past runs of which the true step is known.

    Each past run is cut where it would have raised the alarm, for that is what is seen of a run
    when it is halted. How many steps its change point then is after the true step is its score;
    the set begins the conformal quantile of these scores before a new run's change point.

    Parameters
    ----------
    alarm : Alarm
        Calibrated. Runs that its model was fitted on count with their out-of-fold scores.
    prefixes : Prefixes
    lost_at : sequence of int, shape (n_runs,)
        The step (0-based) with which each run was lost, -1 for runs that were not: the truth of
        a world that knows it, or people's annotations.
    alpha : float
        Share of runs, among those lost when the alarm is raised, that may have been lost earlier.

    Returns
    -------
    ForkSet
        It says nothing of runs that are halted before they are lost.

    Raises
    ------
    NotEnoughDataError
        With fewer than ``1 / alpha - 1`` runs that were lost when they raised the alarm.

    Warns
    -----
    LeakWarning
        If the model has seen a run and keeps no scores from before it did.
    """
    needed(alpha)  # refuses what is no share
    risk: RiskModel | None = getattr(alarm, "risk_", None)
    if risk is None:
        raise UsageError("the alarm has no model", fix="call alarm.calibrate(risk, prefixes)")
    truth = np.asarray(lost_at, np.int64)
    if truth.shape != (len(prefixes),):
        raise UsageError(f"{len(truth)} true steps for {len(prefixes)} runs")
    found = []
    for run in np.flatnonzero(truth >= 0).tolist():
        if truth[run] >= prefixes.n_steps[run]:
            raise UsageError(
                f"run {run} was lost at step {truth[run]}, but has {prefixes.n_steps[run]} steps"
            )
        score = _late(alarm, risk_by_step(risk, prefixes, run), int(truth[run]))
        found += [] if score is None else [score]
    before = conformal_threshold(np.array(found, np.float64), alpha)
    if math.isinf(before):
        raise NotEnoughDataError(
            f"a set with alpha = {alpha:g} needs {needed(alpha)} runs that were lost when they "
            "raised the alarm",
            why=f"there are {len(found)}",
            fix="use more runs of known step, or another rule of where to go back to",
        )
    return ForkSet(alpha, int(before), len(found))


def _late(alarm: Alarm, risk: Floats, lost: int) -> float | None:
    """Steps from the true one to the change point at the alarm; None: not halted, or not lost."""
    seen = next((n for n, score in enumerate(risk, 1) if alarm.fires(n, float(score))), None)
    if seen is None or lost >= seen:
        return None
    change = change_point(risk[:seen]).step
    return -float(seen) if change is None else float(change - lost)  # without one, all are in it
