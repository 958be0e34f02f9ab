"""When to say that a run is lost, so that few runs that would succeed are stopped."""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from sag_research.deadend._bootstrap import estimate, ratio_statistic, resamples, sample
from sag_research.deadend._crossfit import OutOfFold, as_out_of_fold, gather
from sag_research.deadend._intervene import precision_interval
from sag_research.deadend._metrics import LEVEL
from sag_research.deadend._model import RiskModel
from sag_research.deadend._prefixes import Prefixes, is_on_grid
from sag_research.deadend._splits import LeakWarning
from sag_research.deadend._thresholds import (
    Calibration,
    Threshold,
    calibration_of,
    check_enough,
    held_out,
    needed,
    set_threshold,
)
from sag_research.errors import LeakError, NotEnoughDataError, UsageError

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Alarm", "SmallSampleWarning"]

MODES = ("shadow", "intervene")


class SmallSampleWarning(UserWarning):
    """A guarantee holds on average only, because it rests on few tasks."""


class Alarm(BaseEstimator):  # type: ignore[misc]
    """A threshold on risk, set so that few runs that would have succeeded raise an alarm.

    Parameters
    ----------
    alpha : float
        At most this share of the runs that would have succeeded may raise an alarm.
    rule : {"fold-safe", "split", "pac", "hierarchical"}
        ``split``: the conformal order statistic of successful runs' maxima; exact for further
        runs of the same tasks, too low for new ones. ``fold-safe``: the largest level at most
        `alpha` whose false aborts on held-out folds, mean over tasks plus one standard error,
        stay below `alpha`. ``pac``: exceeds `alpha` for at most one calibration set in ten.
        ``hierarchical``: exact for a run of a new task, but never fires with fewer than
        ``1 / alpha - 1`` tasks.
    min_step : int
        No alarm before so many steps are seen.
    p_star : float, optional
        Probability of failure above which acting pays, from a paired pilot; see
        :func:`break_even` and :func:`pilot`.
    mode : {"shadow", "intervene"}
        ``shadow`` only reports. ``intervene`` acts, if the lower bound of the alarms' precision
        is above `p_star`.
    group_by : str
        Column of ``runs`` that says which runs are alike.
    seed : int
        Of the resamples.

    Attributes
    ----------
    threshold_ : float
        An alarm is raised where the score is above.
    alpha_ : float
        The level that the rule used, at most `alpha`.
    risk_ : RiskModel
    acts_ : bool
        Whether an alarm is acted on.

    Notes
    -----
    The guarantee is about the mean over many tests. No rule keeps every single test set, or every
    single task, below alpha: with 20 successes in a test set, chance alone exceeds .05 often. It
    holds for looks on the grid of :func:`look_grid`, so no alarm is raised between its points: it
    may come up to four steps late.
    """

    def __init__(
        self,
        alpha: float = 0.05,
        rule: str = "fold-safe",
        min_step: int = 1,
        p_star: float | None = None,
        mode: str = "shadow",
        group_by: str = "task_id",
        seed: int = 0,
    ) -> None:
        self.alpha, self.rule, self.min_step = alpha, rule, min_step
        self.p_star, self.mode = p_star, mode
        self.group_by, self.seed = group_by, seed

    def __repr__(self) -> str:
        state = (
            f"threshold {self.threshold_:.3g}" if hasattr(self, "threshold_") else "not calibrated"
        )
        return f"Alarm(alpha={self.alpha:g}, rule={self.rule!r}, mode={self.mode!r}, {state})"

    def calibrate(self, risk: RiskModel, prefixes: Prefixes) -> Self:
        """Set the threshold.

        Parameters
        ----------
        risk : RiskModel
            Fitted. Runs that it was fitted on count with their out-of-fold scores, others with
            the scores it gives them.
        prefixes : Prefixes
            Runs of known outcome are used.

        Raises
        ------
        LeakError
            If `risk` was fitted on some of the runs and keeps no out-of-fold scores.
        NotEnoughDataError
            If there are too few successful runs, or tasks, for `alpha`.
        """
        return self.calibrate_scores(unseen_scores(risk, prefixes.labelled, self.seed), risk)

    def calibrate_scores(self, scores: OutOfFold, risk: RiskModel | None = None) -> Self:
        """Set the threshold by scores of unseen runs, as :func:`cross_fit` gives them."""
        if self.mode not in MODES:
            raise UsageError(f"no mode {self.mode!r}", fix=f"one of {', '.join(MODES)}")
        if self.mode == "intervene" and self.p_star is None:
            raise UsageError(
                "an alarm that intervenes needs p_star",
                fix="take it from pilot(pairs), or stay in shadow",
            )
        if self.p_star is not None and not 0 <= self.p_star <= 1:
            raise UsageError(f"p_star = {self.p_star} is no probability")
        calibration = calibration_of(scores, self.group_by, self.min_step)
        threshold = set_threshold(calibration, self.alpha, self.rule, self.seed)
        check_enough(calibration, self.alpha, self.rule)
        self._warn_of_few_tasks(calibration)
        self.threshold_, self.alpha_ = threshold
        self.risk_ = risk
        self._tried = self._try(calibration, threshold)
        low = self._tried["precision_low"]
        self.acts_ = self.mode == "intervene" and self.p_star is not None and low > self.p_star
        return self

    def fires(self, seen: int, score: float) -> bool:
        """Whether an alarm is raised after `seen` steps at this score."""
        self._check_calibrated()
        return score > self.threshold_ and seen >= self.min_step and is_on_grid(seen)

    def acts(self, seen: int, score: float) -> bool:
        """Whether the run should be acted on; never in shadow mode."""
        return self.fires(seen, score) and self.acts_

    @property
    def table_(self) -> pd.DataFrame:
        """One row: the rule, what it rests on, and what it did on held-out folds.

        ``rule alpha alpha_used threshold needed n_success n_failure n_tasks false_aborts
        false_aborts_low false_aborts_high recall recall_low recall_high n_alarms precision
        precision_low precision_high p_star mode acts``.
        """
        import pandas as pd

        self._check_calibrated()
        row = {"rule": self.rule, "alpha": self.alpha, "alpha_used": self.alpha_}
        row |= {
            "threshold": self.threshold_,
            "needed": needed(self.alpha, self.rule),
            **self._tried,
        }
        row |= {"p_star": math.nan if self.p_star is None else self.p_star, "mode": self.mode}
        return pd.DataFrame([row | {"acts": self.acts_}])

    def _try(self, calibration: Calibration, threshold: Threshold) -> dict[str, float]:
        """Estimate on held-out folds what alarms of this level do."""

        def rule(part: Calibration) -> float:
            if not threshold.alpha:
                return math.inf
            name = "split" if self.rule == "fold-safe" else self.rule
            return set_threshold(part, threshold.alpha, name, self.seed).value

        fired = held_out(calibration, rule)
        failed, group = calibration.failed, np.unique(calibration.group, return_inverse=True)[1]
        n_groups = int(group.max()) + 1
        drawn = resamples(n_groups, seed=self.seed)
        row: dict[str, float] = {
            "n_success": int((failed == 0).sum()),
            "n_failure": int((failed == 1).sum()),
            "n_tasks": n_groups,
        }
        for name, kind in (("false_aborts", failed == 0), ("recall", failed == 1)):
            share = ratio_statistic(fired & kind, kind.astype(float), group, n_groups)
            found = estimate(sample(share, drawn, int(kind.sum())))
            row |= {name: found.value, f"{name}_low": found.low, f"{name}_high": found.high}
        low, high = precision_interval(failed[fired], group[fired], self.seed, LEVEL)
        rate = float(failed[fired].mean()) if fired.any() else math.nan
        row |= {"n_alarms": int(fired.sum()), "precision": rate}
        return row | {"precision_low": low, "precision_high": high}

    def _warn_of_few_tasks(self, calibration: Calibration) -> None:
        tasks, least = len(np.unique(calibration.group)), needed(self.alpha)
        if tasks < least:
            warnings.warn(
                f"{tasks} tasks are fewer than 1/alpha - 1 = {least}: for a run of a new task, "
                f"alpha = {self.alpha:g} holds on average at best",
                SmallSampleWarning,
                stacklevel=4,
            )

    def _check_calibrated(self) -> None:
        if not hasattr(self, "threshold_"):
            raise UsageError(
                "the alarm is not calibrated", fix="call calibrate(risk, prefixes) first"
            )


def unseen_scores(risk: RiskModel, known: Prefixes, seed: int = 0) -> OutOfFold:
    """Score runs by models that have not seen them, or refuse."""
    risk._check_fitted()
    if not (known.failed == 0).any():
        raise NotEnoughDataError(
            "cannot calibrate an alarm", why="no run of this cohort is known to have succeeded"
        )
    seen = known.runs["run_id"].isin(risk.fitted_runs_).to_numpy(np.bool_)
    parts = []
    if seen.any():
        parts.append(_own_scores(risk, known, seen))
    if not seen.all():
        parts.append(_new_scores(risk, known, ~seen))
    return gather(known, parts)


def _own_scores(risk: RiskModel, known: Prefixes, seen: NDArray[np.bool_]) -> OutOfFold:
    own = getattr(risk, "out_of_fold_", None)
    fix = "calibrate on other runs, or use a model that keeps out_of_fold_, such as PrefixRisk"
    if own is None:
        raise LeakError(
            f"model {risk.name!r} was fitted on {int(seen.sum())} of these {len(known)} runs",
            why="its scores of them are too good, and the threshold would be wrong",
            fix=fix,
        )
    scores = as_out_of_fold(own, known)
    looks = known.looks()
    absent = seen & ~np.isin(np.arange(len(known)), scores.looks.run)
    absent &= np.bincount(looks.run, minlength=len(known)) > 0
    if absent.any():
        raise LeakError(
            f"model {risk.name!r} keeps no out-of-fold score of {int(absent.sum())} runs "
            "that it was fitted on",
            fix=fix,
        )
    return scores


def _new_scores(risk: RiskModel, known: Prefixes, new: NDArray[np.bool_]) -> OutOfFold:
    part = known.take(new)
    familiar = part.runs["task_id"].isin(getattr(risk, "fitted_tasks_", frozenset()))
    if familiar.any():
        warnings.warn(
            f"{int(familiar.sum())} of {len(part)} calibration runs are of tasks that "
            f"{risk.name!r} was fitted on: the alarm is calibrated for known tasks only",
            LeakWarning,
            stacklevel=5,
        )
    looks = part.looks()
    scores = np.asarray(risk.predict(part, looks), np.float64)
    place = np.flatnonzero(new)
    where = looks._replace(run=place[looks.run])
    folds = 1_000 + part.groups() % 5  # whole tasks, and numbers that no model's own folds have
    return OutOfFold(known, where, scores, folds[looks.run], np.zeros(len(scores), np.int64))
