"""Nearest neighbours: runs that had taken the same kinds of steps by the same time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sag_research.deadend._alphabet import Alphabet
from sag_research.deadend._counts import token_counts
from sag_research.deadend._model import RiskModel
from sag_research.deadend._prefixes import Floats, Looks, Prefixes

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["NeighbourRisk"]


class NeighbourRisk(RiskModel):
    """Failure rate among the nearest training runs at the same number of steps, shrunk.

    Runs are compared by the cosine of their log token counts so far. A look between two points of
    the grid, or past its end, is compared with the training runs at the last point before it.

    Parameters
    ----------
    neighbours : int
        How many runs.
    strength : float
        Runs that the base rate is worth.
    min_runs : int
        A token of fewer training runs counts as ``RARE``.
    """

    name = "knn"

    def __init__(self, neighbours: int = 25, strength: float = 5.0, min_runs: int = 5) -> None:
        self.neighbours = neighbours
        self.strength = strength
        self.min_runs = min_runs

    def _fit(self, prefixes: Prefixes, looks: Looks, failed: Floats, weight: Floats) -> None:
        self.alphabet_ = Alphabet.fit(prefixes, self.min_runs)
        rows = self._rows(prefixes, looks)
        self.points_ = np.unique(looks.seen)
        at = [np.flatnonzero(looks.seen == point) for point in self.points_.tolist()]
        self.at_point_ = [(rows[a], failed[a]) for a in at]

    @property
    def table_(self) -> pd.DataFrame:
        """``seen n failed``: the training runs that can be neighbours after so many steps."""
        import pandas as pd

        self._check_fitted()
        ended = [failed for _, failed in self.at_point_]
        columns = {"seen": self.points_, "n": [len(failed) for failed in ended]}
        return pd.DataFrame(columns | {"failed": [int(failed.sum()) for failed in ended]})

    def _rows(self, prefixes: Prefixes, looks: Looks) -> Floats:
        rows = np.log1p(token_counts(prefixes, looks, self.alphabet_))
        return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))

    def _predict(self, prefixes: Prefixes, looks: Looks) -> Floats:
        scores = np.full(len(looks.run), self.base_rate_)
        place = np.searchsorted(self.points_, looks.seen, side="right") - 1
        rows = self._rows(prefixes, looks)
        for point in np.unique(place[place >= 0]).tolist():
            known, failed = self.at_point_[point]
            at = np.flatnonzero(place == point)
            k = min(self.neighbours, len(known))
            # the smallest index wins among equally near runs, so that the answer is repeatable
            near = np.argsort(-(rows[at] @ known.T).round(9), axis=1, kind="stable")[:, :k]
            prior = self.strength * self.base_rate_
            scores[at] = (failed[near].sum(axis=1) + prior) / (k + self.strength)
        return scores
