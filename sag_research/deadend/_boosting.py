"""Gradient boosting on behaviour features."""

from __future__ import annotations

import numpy as np

from sag_research.deadend._behaviour import behaviour
from sag_research.deadend._forest import both_outcomes
from sag_research.deadend._model import RiskModel
from sag_research.deadend._prefixes import Floats, Looks, Prefixes

__all__ = ["BoostingRisk"]


class BoostingRisk(RiskModel):
    """Boosted trees (scikit-learn's ``HistGradientBoostingClassifier``) on behaviour features.

    A comparison, not a default: it costs more than :class:`BehaviourRisk` and is rarely better.
    It cannot be saved.

    Parameters
    ----------
    iterations : int
        Number of trees.
    rate : float
        Learning rate.
    leaves : int
        Most leaves of a tree.
    min_leaf : int
        Fewest looks in a leaf.
    penalty : float
        L2 penalty on the leaves' values.
    seed : int
    """

    name = "boosting"

    def __init__(
        self,
        iterations: int = 100,
        rate: float = 0.05,
        leaves: int = 15,
        min_leaf: int = 30,
        penalty: float = 1.0,
        seed: int = 0,
    ) -> None:
        self.iterations, self.rate, self.leaves = iterations, rate, leaves
        self.min_leaf, self.penalty, self.seed = min_leaf, penalty, seed

    def _fit(self, prefixes: Prefixes, looks: Looks, failed: Floats, weight: Floats) -> None:
        from sklearn.ensemble import HistGradientBoostingClassifier

        both_outcomes(failed, self.name)
        model = HistGradientBoostingClassifier(
            max_iter=self.iterations, learning_rate=self.rate, max_leaf_nodes=self.leaves,
            min_samples_leaf=self.min_leaf, l2_regularization=self.penalty, early_stopping=False,
            max_features=0.25, random_state=self.seed,
        )  # fmt: skip
        # the penalty is worth as many looks as it says only if weights are about 1
        self.model_ = model.fit(behaviour(prefixes, looks), failed, weight / weight.mean())

    def _predict(self, prefixes: Prefixes, looks: Looks) -> Floats:
        if not len(looks.run):
            return np.empty(0)
        return np.asarray(self.model_.predict_proba(behaviour(prefixes, looks))[:, 1])
