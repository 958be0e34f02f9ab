"""Extremely randomised trees over behaviour features, scored by bit vectors.

The trees are grown by scikit-learn (Geurts, Ernst & Wehenkel 2006, doi:10.1007/s10994-006-6226-1)
and kept as flat arrays. A row is scored as in QuickScorer (Lucchese et al. 2015,
doi:10.1145/2766462.2767733): each tree of at most 64 leaves is one 64-bit word; a node whose test
fails removes the leaves on its left; the leftmost leaf that remains is the one reached. The words
that a feature leaves over are tabulated for each interval between its thresholds, so that a row
costs one search for all features and one AND for all trees, whatever the depth.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sag_research.deadend._behaviour import (
    BehaviourStream,
    Rows,
    behaviour,
    behaviour_names,
    behaviour_version,
)
from sag_research.deadend._model import RiskModel
from sag_research.deadend._prefixes import Floats, Ints, Looks, Prefixes
from sag_research.errors import NotEnoughDataError, UsageError

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from sag_research.deadend._step import SeenStep

__all__ = ["BehaviourRisk", "Forest", "both_outcomes", "spread_looks"]

Words = NDArray[np.uint64]
MAX_LEAVES = 64
ALL_LEAVES = np.uint64(0xFFFFFFFFFFFFFFFF)


class _Nodes(NamedTuple):
    """The inner nodes of all trees, by feature, then by threshold; the leaves of each tree."""

    tree: NDArray[np.int32]
    feature: NDArray[np.int32]
    threshold: NDArray[np.float32]
    mask: Words
    leaf: Floats
    """Shape (n_trees, 64): the share of failures in each leaf, from left to right."""


class Forest:
    """Trees of at most 64 leaves as flat arrays.

    Parameters
    ----------
    nodes : tuple of ndarray
        What :meth:`arrays` returns.
    n_features : int
    """

    def __init__(self, nodes: _Nodes, n_features: int) -> None:
        self.nodes = nodes
        self.n_features = n_features
        self._offsets = np.arange(n_features, dtype=np.int64)
        self._feature_keys = self._offsets << 32
        self._keys = self._feature_keys[nodes.feature] + _sortable(nodes.threshold)
        counts = np.bincount(nodes.feature, minlength=n_features)
        self._first = (
            np.cumsum(counts) - counts + self._offsets
        )  # row of a feature's first interval
        self._words = self._tabulate()
        n_trees = len(nodes.leaf)
        self._leaf = np.ascontiguousarray(nodes.leaf).reshape(-1)
        self._first_leaf = np.arange(n_trees, dtype=np.int64) * MAX_LEAVES

    @classmethod
    def of_sklearn(cls, forest: Any) -> Forest:
        """Take over the trees of a fitted scikit-learn forest of two classes."""
        parts = [_flatten(e.tree_, i) for i, e in enumerate(forest.estimators_)]
        leaf = np.stack([part[4] for part in parts])
        tree, feature, threshold, mask = (np.concatenate([p[i] for p in parts]) for i in range(4))
        order = np.lexsort((tree, threshold, feature))
        nodes = _Nodes(tree[order], feature[order], threshold[order], mask[order], leaf)
        return cls(nodes, int(forest.n_features_in_))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays that the forest can be made of again."""
        return {f"forest_{name}": value for name, value in self.nodes._asdict().items()}

    @classmethod
    def of_arrays(cls, arrays: dict[str, NDArray[Any]], n_features: int) -> Forest:
        """Make a forest of what :meth:`arrays` returned."""
        return cls(_Nodes(*(arrays[f"forest_{name}"] for name in _Nodes._fields)), n_features)

    def _tabulate(self) -> Words:
        """Return the leaves left over by each interval of each feature, (n_intervals, n_trees)."""
        nodes, n_trees = self.nodes, len(self.nodes.leaf)
        words = np.full((len(nodes.tree) + self.n_features, n_trees), ALL_LEAVES)
        at = 0
        for feature, count in enumerate(np.bincount(nodes.feature, minlength=self.n_features)):
            # interval k + 1 of a feature has failed one test more than interval k
            for node in range(at, at + int(count)):
                row = node + feature + 1
                words[row] = words[row - 1]
                words[row, nodes.tree[node]] &= nodes.mask[node]
            at += int(count)
        return words

    def predict(self, rows: Rows) -> Floats:
        """Return the mean share of failures of the leaves reached, shape (n_rows,).

        Parameters
        ----------
        rows : ndarray of float32, shape (n_rows, n_features)
        """
        keys = _sortable(rows) + self._feature_keys
        intervals = np.searchsorted(self._keys, keys) + self._offsets
        # a feature in its first interval removes no leaf
        return np.array([self._one(row[row > self._first]) for row in intervals])

    def _one(self, intervals: Ints) -> float:
        return float(self._leaves(self._words.take(intervals, axis=0)).sum()) / len(
            self._first_leaf
        )

    def _leaves(self, words: Words) -> Floats:
        left = np.bitwise_and.reduce(words, axis=0)
        lowest = np.bitwise_count((left - np.uint64(1)) & ~left)  # trailing zeros
        return np.asarray(self._leaf.take(self._first_leaf + lowest))


def _sortable(values: NDArray[np.float32]) -> NDArray[np.int32]:
    """Return integers in the order of these numbers; -0.0 counts as 0.0.

    The bits of a float32, read as an integer, are in order already, except that negative numbers
    run backwards.
    """
    bits = (values + np.float32(0.0)).view(np.int32)
    return np.asarray(bits ^ ((bits >> 31) & np.int32(0x7FFFFFFF)))


def _flatten(tree: Any, number: int) -> tuple[NDArray[Any], ...]:
    """Return tree, feature, threshold and mask of a tree's inner nodes, and its leaves' values."""
    left, right = tree.children_left, tree.children_right
    leaves = np.zeros(MAX_LEAVES)
    mask: dict[int, int] = {}
    count = 0

    def span(node: int) -> tuple[int, int]:
        nonlocal count
        if left[node] < 0:
            value = tree.value[node, 0]
            leaves[count] = value[1] / value.sum()
            count += 1
            return count - 1, count
        first, middle = span(int(left[node]))
        _, last = span(int(right[node]))
        mask[node] = ((1 << middle) - 1) ^ ((1 << first) - 1)
        return first, last

    span(0)
    inner = np.array(sorted(mask), dtype=np.int64)
    masks = ~np.array([mask[node] for node in inner.tolist()], dtype=np.uint64)
    return (
        np.full(len(inner), number, dtype=np.int32),
        tree.feature[inner].astype(np.int32),
        _round_down(tree.threshold[inner]),
        masks,
        leaves,
    )


def _round_down(thresholds: Floats) -> NDArray[np.float32]:
    """Return the largest float32 not above each number: ``x <= t`` stays the same for float32 x."""
    near = thresholds.astype(np.float32)
    lower = np.nextafter(near, np.float32(-np.inf))
    return np.where(near.astype(np.float64) > thresholds, lower, near) + np.float32(0.0)


def spread_looks(looks: Looks, at_most: int) -> NDArray[np.bool_]:
    """Choose at most so many looks of each run, evenly spread, with the first and the last."""
    counts = np.bincount(looks.run)
    first = np.cumsum(counts) - counts
    rank = np.arange(len(looks.run)) - first[looks.run]
    last = np.maximum(counts[looks.run] - 1, 1)
    steps = max(at_most - 1, 1)
    # a look is kept where it is the first to reach another of `at_most` equal parts of the run
    part = rank * steps // last
    return np.asarray((rank == 0) | (part != (rank - 1) * steps // last))


def _importance(forest: Any) -> Floats:
    """Return each feature's share of the decrease of impurity; zeros where no split helped."""
    trees = [e.tree_.compute_feature_importances(normalize=False) for e in forest.estimators_]
    total = np.mean(trees, axis=0)
    return np.asarray(total / (total.sum() or 1.0))


def both_outcomes(failed: Floats, model: str) -> None:
    """Refuse looks of runs that all ended alike (runs of one step have no look)."""
    if len(np.unique(failed)) < 2:
        raise NotEnoughDataError(
            f"cannot fit {model!r}",
            why="all runs with a decision point ended alike: runs of one step have none",
        )


class BehaviourRisk(RiskModel):
    """Extremely randomised trees over what a run did so far.

    Parameters
    ----------
    trees : int
        Number of trees.
    min_leaf : int
        Fewest looks in a leaf.
    max_features : float
        Share of the features tried at each split.
    looks_per_run : int
        Most looks of one run to learn from, evenly spread; a run weighs 1 whatever its length.
    seed : int
        Seed of the trees.

    Attributes
    ----------
    forest_ : Forest
        The trees.
    importance_ : ndarray of float64, shape (n_features,)
        Mean decrease of impurity by feature.
    typical_ : ndarray of float32, shape (n_features,)
        Median of each feature over the looks it was fitted on.
    """

    name = "behaviour-trees"

    def __init__(
        self,
        trees: int = 200,
        min_leaf: int = 20,
        max_features: float = 0.25,
        looks_per_run: int = 10,
        seed: int = 0,
    ) -> None:
        self.trees, self.min_leaf, self.max_features = trees, min_leaf, max_features
        self.looks_per_run, self.seed = looks_per_run, seed

    def _fit(self, prefixes: Prefixes, looks: Looks, failed: Floats, weight: Floats) -> None:
        from sklearn.ensemble import ExtraTreesClassifier

        both_outcomes(failed, self.name)
        kept = spread_looks(looks, self.looks_per_run)
        looks = Looks(looks.run[kept], looks.seen[kept])
        grown = ExtraTreesClassifier(
            n_estimators=self.trees, min_samples_leaf=self.min_leaf, max_leaf_nodes=MAX_LEAVES,
            max_features=self.max_features, n_jobs=1, random_state=self.seed,
        )  # fmt: skip
        rows = behaviour(prefixes, looks)
        grown.fit(rows, failed[kept], prefixes.weights(looks))
        self.typical_ = np.median(rows, axis=0)
        self.forest_ = Forest.of_sklearn(grown)
        self.importance_ = _importance(grown)

    def _predict(self, prefixes: Prefixes, looks: Looks) -> Floats:
        return self.forest_.predict(behaviour(prefixes, looks))

    def reasons(self, prefixes: Prefixes, looks: Looks, most: int = 3) -> list[list[str]]:
        """Say which features move the risk of each look most away from that of a typical value.

        Each feature in turn is set to its median; what the risk changes by is the feature's
        effect, those of others left as they are.

        Returns
        -------
        list of list of str
            For each look ``name = value (effect)``, the largest effects first, in points of risk.
        """
        names = behaviour_names()
        said = []
        for row in behaviour(prefixes, looks):
            others = np.tile(row, (len(row), 1))
            np.fill_diagonal(others, self.typical_)
            effect = self.forest_.predict(row[None]) - self.forest_.predict(others)
            largest = np.argsort(-np.abs(effect), kind="stable")[:most]
            said.append(
                [f"{names[i]} = {row[i]:.3g} ({effect[i]:+.3f})" for i in largest if effect[i]]
            )
        return said

    def begin(self) -> _ForestStream:
        """Return a follower of one new run."""
        self._check_fitted()
        return _ForestStream(self.forest_)

    @property
    def table_(self) -> pd.DataFrame:
        """The features, by their importance: ``feature importance``."""
        import pandas as pd

        self._check_fitted()
        table = pd.DataFrame({"feature": behaviour_names(), "importance": self.importance_})
        return table.sort_values("importance", ascending=False, kind="stable", ignore_index=True)

    def plot(self, ax: Axes | None = None, top: int = 15) -> Axes:
        """Draw the features of greatest importance."""
        import matplotlib.pyplot as plt

        ax = plt.gca() if ax is None else ax
        table = self.table_.head(top)[::-1]
        ax.barh(table["feature"], table["importance"])
        ax.set_xlabel("mean decrease of impurity")
        return ax

    def _state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        arrays: dict[str, NDArray[Any]] = {"importance": self.importance_}
        arrays["typical"] = self.typical_
        return arrays | self.forest_.arrays(), {"features": behaviour_version()}

    def _restore(self, arrays: dict[str, NDArray[Any]], meta: dict[str, Any]) -> None:
        if meta.get("features") != behaviour_version():
            raise UsageError(
                f"the model reads features {meta.get('features')!r}",
                why=f"this version of the package makes {behaviour_version()!r}",
                fix="fit it again",
            )
        self.forest_ = Forest.of_arrays(arrays, len(behaviour_names()))
        self.importance_, self.typical_ = arrays["importance"], arrays["typical"]


class _ForestStream:
    def __init__(self, forest: Forest) -> None:
        self._forest = forest
        self._behaviour = BehaviourStream()

    def observe(self, step: SeenStep) -> float:
        return float(self._forest.predict(self._behaviour.observe(step))[0])
