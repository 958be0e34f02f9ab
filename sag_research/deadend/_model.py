"""What every estimator of failure shares: ``fit``, ``predict``, ``table_``, ``plot``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

import numpy as np
from sklearn.base import BaseEstimator

from sag_research.deadend._prefixes import Floats, Looks, Prefixes
from sag_research.errors import MissingDataError, NotEnoughDataError, UsageError

if TYPE_CHECKING:
    import pandas as pd

    from sag_research.deadend._step import SeenStep
    from sag_research.extract import Vocabulary

__all__ = ["RiskModel", "Stream"]


class Stream(Protocol):
    """One run followed step by step."""

    def observe(self, step: SeenStep) -> float:
        """Take in the next step and return the risk after it."""
        ...


class RiskModel(BaseEstimator):  # type: ignore[misc]
    """Base of the estimators: the probability, or a score, that a run will fail.

    A subclass stores its parameters in ``__init__`` unchanged (they are what ``get_params``
    returns) and writes ``_fit`` and ``_predict``; it may write ``begin`` for use step by step, and
    ``_state`` and ``_restore`` for :func:`~sag_research.deadend.save`.
    """

    name: ClassVar[str]
    """The name under which :func:`~sag_research.deadend.backtest` knows the model."""
    calibrated: ClassVar[bool] = True
    """Whether scores are probabilities; Brier score and calibration are left out otherwise."""
    needs_text: ClassVar[bool] = False

    fitted_runs_: frozenset[str]
    """Ids of the runs seen by ``fit``; their scores are in-sample."""
    fitted_tasks_: frozenset[str]
    """Tasks of these runs; other runs of them are not new to the model either."""
    base_rate_: float
    """Share of failures among the runs seen by ``fit``."""
    vocabulary_: Vocabulary | None = None
    """What made the tokens seen by ``fit``."""

    def fit(self, prefixes: Prefixes) -> Self:
        """Fit on the runs of known outcome.

        Raises
        ------
        NotEnoughDataError
            If no outcome is known, or all are the same.
        MissingDataError
            If the model reads texts and there are none.
        """
        if self.needs_text and not prefixes.table.has_text:
            raise MissingDataError(
                f"model {self.name!r} reads the steps' texts, and this cohort has none",
                fix="make it with texts=True, or choose another model",
            )
        known = prefixes.labelled
        check_both_outcomes(known, f"fit {self.name!r}")
        looks = known.looks()
        self.base_rate_ = float(known.failed.mean())
        self.fitted_runs_ = frozenset(known.runs["run_id"])
        self.fitted_tasks_ = frozenset(known.runs["task_id"])
        self.vocabulary_ = known.table.vocabulary
        self._fit(known, looks, known.failed[looks.run], known.weights(looks))
        return self

    def predict(self, prefixes: Prefixes | pd.DataFrame, looks: Looks | None = None) -> Floats:
        """Return the risk at each look; after every step by default.

        Parameters
        ----------
        prefixes : Prefixes or DataFrame
            A cohort, or the steps of one run as ``ws.steps(run)`` returns them.
        looks : Looks, optional
            Where to score, indices into `prefixes`.

        Returns
        -------
        ndarray of float64, shape (n_looks,)

        Raises
        ------
        UsageError
            If a look is not at a step of its run, or the model gives no number for each look.
        """
        self._check_fitted()
        if not isinstance(prefixes, Prefixes):
            from sag_research.deadend._step import prefixes_of_steps

            prefixes = prefixes_of_steps(prefixes, self.vocabulary_)
        if looks is None:
            looks = prefixes.every_step()
        else:
            _check_looks(looks, prefixes)
        return checked_scores(self, self._predict(prefixes, looks), len(looks.run))

    def begin(self) -> Stream:
        """Return a follower of one new run.

        Raises
        ------
        UsageError
            If the model cannot score step by step.
        """
        raise UsageError(f"model {self.name!r} does not score step by step", fix="use predict")

    def _fit(self, prefixes: Prefixes, looks: Looks, failed: Floats, weight: Floats) -> None:
        """Fit on labelled runs; `failed` and `weight` have one entry a look."""
        raise NotImplementedError

    def _predict(self, prefixes: Prefixes, looks: Looks) -> Floats:
        raise NotImplementedError

    def _state(self) -> tuple[dict[str, np.ndarray[Any, Any]], dict[str, Any]]:
        """Return what was learnt, as arrays and as JSON."""
        raise UsageError(f"model {self.name!r} cannot be saved")

    def _restore(self, arrays: dict[str, np.ndarray[Any, Any]], meta: dict[str, Any]) -> None:
        raise NotImplementedError

    def _check_fitted(self) -> None:
        if not hasattr(self, "fitted_runs_"):
            raise UsageError(f"model {self.name!r} is not fitted", fix="call fit(prefixes) first")

    @property
    def table_(self) -> pd.DataFrame:
        """What was learnt, as a table."""
        raise UsageError(f"model {self.name!r} has no table")


def _check_looks(looks: Looks, prefixes: Prefixes) -> None:
    """Refuse looks that would read steps of another run."""
    run, seen = np.asarray(looks.run), np.asarray(looks.seen)
    inside = (run >= 0) & (run < len(prefixes))
    n_steps = prefixes.n_steps[run[inside]]
    inside[inside] = (seen[inside] >= 1) & (seen[inside] <= n_steps)
    if not inside.all():
        at = int(np.argmin(inside))
        raise UsageError(
            f"no look at run {run[at]} after {seen[at]} steps in {prefixes!r}",
            fix="take looks from looks() or every_step() of the same cohort",
        )


def checked_scores(model: object, scores: Any, n_looks: int) -> Floats:
    """Return a model's scores as numbers; a score that is none would be an alarm never raised."""
    name = getattr(model, "name", type(model).__name__)
    try:
        found = np.asarray(scores, np.float64)
    except (TypeError, ValueError) as error:
        raise UsageError(f"model {name!r} gave scores that are no numbers") from error
    if found.shape != (n_looks,) or not np.isfinite(found).all():
        raise UsageError(
            f"model {name!r} gave no finite score for each of {n_looks} looks",
            why=f"its scores have shape {found.shape}"
            + (", some are NaN or infinite" if found.shape == (n_looks,) else ""),
        )
    return found


def check_both_outcomes(prefixes: Prefixes, what: str) -> None:
    """Refuse a cohort without both successes and failures, or of a single task."""
    failed = prefixes.failed
    failures, successes = int((failed == 1).sum()), int((failed == 0).sum())
    if not failures or not successes:
        raise NotEnoughDataError(
            f"cannot {what}",
            why=f"{failures} runs failed and {successes} succeeded; both are needed",
            fix="label more runs with `sag labels FILE` or ws.label(file)",
        )
