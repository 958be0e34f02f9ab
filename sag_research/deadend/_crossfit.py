"""Scores of runs by models that were not fitted on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sag_research.deadend._model import RiskModel, checked_scores
from sag_research.deadend._prefixes import Floats, Ints, Looks, Prefixes
from sag_research.deadend._splits import Fold, group_folds
from sag_research.errors import NotEnoughDataError

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["OutOfFold", "cross_fit", "inner_scores"]

INNER = 3


@dataclass(frozen=True, eq=False, repr=False)
class OutOfFold:
    """One score for each look at each run that was tested, in each repeat.

    Attributes
    ----------
    prefixes : Prefixes
        The runs, all of known outcome.
    looks : Looks
        Where was scored, shape (n_scores,): by repeat, then run, then step.
    scores : ndarray of float64, shape (n_scores,)
    fold : ndarray of int64, shape (n_scores,)
        Which fold, numbered over all repeats: the model was fitted on its training runs.
    repeat : ndarray of int64, shape (n_scores,)
    """

    prefixes: Prefixes
    looks: Looks
    scores: Floats
    fold: Ints
    repeat: Ints

    def __repr__(self) -> str:
        runs, folds = len(np.unique(self.looks.run)), len(np.unique(self.fold))
        return f"OutOfFold({len(self.scores)} scores, {runs} runs, {folds} folds)"

    def __len__(self) -> int:
        return len(self.scores)

    @property
    def failed(self) -> Floats:
        """1 for each look at a run that failed, 0 for one that succeeded; shape (n_scores,)."""
        return np.asarray(self.prefixes.failed[self.looks.run])

    @property
    def weight(self) -> Floats:
        """Each run weighs 1 in each repeat, spread over its looks; shape (n_scores,)."""
        unit = self.repeat * len(self.prefixes) + self.looks.run
        return np.asarray(1.0 / np.bincount(unit)[unit])

    @property
    def table_(self) -> pd.DataFrame:
        """``repeat fold run_id task_id failed seen score``, one row a look."""
        import pandas as pd

        runs = self.prefixes.runs.iloc[self.looks.run]
        columns = {
            "repeat": self.repeat,
            "fold": self.fold,
            "run_id": runs["run_id"].to_numpy(),
            "task_id": runs["task_id"].to_numpy(),
            "failed": self.failed.astype(np.int64),
            "seen": self.looks.seen,
            "score": self.scores,
        }
        return pd.DataFrame(columns)


def cross_fit(
    model: RiskModel,
    prefixes: Prefixes,
    folds: Sequence[Fold],
    seed: int = 0,
) -> OutOfFold:
    """Fit a fresh copy of a model on each fold's training runs, and score its test runs.

    Parameters
    ----------
    model : RiskModel
        Left untouched.
    prefixes : Prefixes
        Runs of known outcome; `folds` index into it.
    folds : sequence of Fold
        See :func:`make_folds`.
    seed : int
        Random state of models that have none of their own.
    """
    parts = []
    for number, fold in enumerate(folds):
        fitted = fresh(model, seed).fit(prefixes.take(fold.train))
        parts.append(score_fold(fitted, prefixes, fold, number))
    return gather(prefixes, parts)


def fresh(model: RiskModel, seed: int) -> RiskModel:
    """Return an unfitted copy, with a random state if it has none of its own."""
    from sklearn.base import clone

    copy: RiskModel = clone(model)
    for name in ("random_state", "seed"):
        if copy.get_params(deep=False).get(name, 0) is None:
            copy.set_params(**{name: seed})
    return copy


def score_fold(fitted: RiskModel, prefixes: Prefixes, fold: Fold, number: int) -> OutOfFold:
    """Score a fold's test runs at their decision points."""
    tested = prefixes.take(fold.test)
    looks = tested.looks()
    scores = checked_scores(fitted, fitted.predict(tested, looks), len(looks.run))
    where = Looks(fold.test[looks.run], looks.seen)
    shape = np.ones(len(scores), np.int64)
    return OutOfFold(prefixes, where, scores, shape * number, shape * fold.repeat)


def gather(prefixes: Prefixes, parts: Sequence[OutOfFold]) -> OutOfFold:
    """Put the scores of several folds together, ordered by repeat, run and step."""
    run = np.concatenate([part.looks.run for part in parts])
    seen = np.concatenate([part.looks.seen for part in parts])
    scores, fold, repeat = (
        np.concatenate([getattr(part, name) for part in parts])
        for name in ("scores", "fold", "repeat")
    )
    order = np.lexsort((seen, run, repeat))
    looks = Looks(run[order], seen[order])
    return OutOfFold(prefixes, looks, scores[order], fold[order], repeat[order])


def inner_scores(
    fitted: RiskModel, prefixes: Prefixes, group_by: str = "task_id", seed: int = 0
) -> OutOfFold:
    """Return scores of a model's own training runs that it has not seen, to set an alarm by.

    A model that keeps ``out_of_fold_`` gives these; others are fitted again on two thirds of the
    runs and score the third, three times.

    Raises
    ------
    NotEnoughDataError
        If the training runs have too few groups for that.
    """
    own = getattr(fitted, "out_of_fold_", None)
    if own is not None:
        return as_out_of_fold(own, prefixes)
    groups = len(np.unique(prefixes.groups(group_by)))
    folds = group_folds(prefixes, group_by, min(INNER, max(groups, 2)), 1, seed)
    for fold in folds:
        left = prefixes.failed[fold.train]
        if len(np.unique(left)) < 2:
            raise NotEnoughDataError(
                f"cannot score the training runs of {fitted.name!r} without having seen them",
                why=f"all outcomes of one kind are in one {group_by}",
                fix="collect runs of more tasks",
            )
    return cross_fit(fitted, prefixes, folds, seed)


def as_out_of_fold(own: Any, prefixes: Prefixes) -> OutOfFold:
    """Read a model's ``out_of_fold_`` as scores of the runs of `prefixes`, matched by run id.

    `own` is an :class:`OutOfFold`, or has ``run_ids``, ``looks``, ``scores`` and maybe ``fold``.
    """
    place = {run: i for i, run in enumerate(prefixes.runs["run_id"])}
    ids = own.prefixes.runs["run_id"].to_numpy() if isinstance(own, OutOfFold) else own.run_ids
    index = np.array([place.get(run, -1) for run in ids], dtype=np.int64)[own.looks.run]
    kept = np.flatnonzero(index >= 0)
    order = kept[np.lexsort((own.looks.seen[kept], index[kept]))]
    fold = getattr(own, "fold", None)
    folds = np.zeros(len(order), np.int64) if fold is None else np.asarray(fold)[order]
    looks = Looks(index[order], own.looks.seen[order])
    scores = np.asarray(own.scores, np.float64)[order]
    return OutOfFold(prefixes, looks, scores, folds, np.zeros(len(order), np.int64))
