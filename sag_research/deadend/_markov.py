"""Two Markov models, one of failed runs and one of successful ones, and their log ratio."""

from __future__ import annotations

from functools import cached_property
from math import log
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GroupKFold

from sag_research.deadend._alphabet import Alphabet
from sag_research.deadend._model import RiskModel
from sag_research.deadend._prefixes import Floats, Ints, Looks, Prefixes
from sag_research.deadend._suffix import SuffixCounts

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from sag_research.deadend._step import SeenStep

__all__ = ["MarkovRisk", "MarkovStream", "Transitions"]

BLUE, RED, GREY = "#0072b2", "#d55e00", "#6b7885"

Pair = tuple[float, float]
"""Of failed and of successful runs."""
Grams = dict[int, tuple[int, Pair]]
Contexts = dict[int, tuple[int, Pair]]
UNSEEN_GRAM: tuple[int, Pair] = (-1, (0.0, 0.0))


class Transitions:
    """P(next token | last *k* tokens) among failed and among successful runs, backed off.

    ``P_k(x) = (c(context, x) + kappa * P_(k-1)(x)) / (c(context) + kappa)`` for *k* = 0 … `orders`,
    from the uniform distribution; ``c(context, x)`` is the number of runs of the class in which
    *x* follows the context, and ``c(context)`` its sum over *x*. The start of a run is part of
    the contexts.

    Attributes
    ----------
    grams : SuffixCounts
        Contexts with their next token, orders 1 … `orders` + 1.
    contexts : SuffixCounts
        What stands before a step, orders 1 … `orders`.
    totals : list of ndarray of float64, shape (2, n_contexts)
        ``c(context)`` of failed and successful runs, orders 0 … `orders`.
    """

    def __init__(
        self, grams: SuffixCounts, contexts: SuffixCounts, totals: list[Floats], kappa: float
    ) -> None:
        self.grams, self.contexts, self.totals, self.kappa = grams, contexts, totals, kappa
        self.counts = [
            np.stack([bad, n - bad]).astype(np.float64)
            for n, bad in zip(grams.n, grams.failed, strict=True)
        ]

    @classmethod
    def count(
        cls, codes: NDArray[np.int32], prefixes: Prefixes, n_symbols: int, orders: int, kappa: float
    ) -> Transitions:
        """Count the transitions up to each decision point."""
        looks = prefixes.looks("all")
        before = Looks(looks.run, looks.seen - 1)
        size, start = n_symbols + 1, n_symbols
        grams = SuffixCounts.count(codes, prefixes, looks, size, orders + 1, start)
        contexts = SuffixCounts.count(codes, prefixes, before, size, orders, start)
        found = grams.find(codes, prefixes.rows(looks), looks.seen)
        came_from = contexts.find(codes, prefixes.rows(before), before.seen)
        came_from = np.vstack([np.zeros(len(looks.run), dtype=np.int64), came_from])
        sizes = [1, *map(len, contexts.keys)]
        totals = []
        for order, wide in enumerate(sizes):
            n, bad = grams.n[order], grams.failed[order]
            context = np.zeros(len(n), dtype=np.int64)
            there = found[order] >= 0
            context[found[order, there]] = came_from[order, there]
            sums = [np.bincount(context, c, wide) for c in (bad, n - bad)]
            totals.append(np.stack(sums).astype(np.float64))
        return cls(grams, contexts, totals, kappa)

    def log_ratios(self, codes: NDArray[np.int32], rows: Ints, seen: Ints) -> Floats:
        """Return log P(token | failed) - log P(token | successful) of steps, shape (n,).

        Parameters
        ----------
        codes : ndarray of int32
        rows : ndarray of int64, shape (n,)
            The steps.
        seen : ndarray of int64, shape (n,)
            Number of steps of the run up to each.
        """
        found = self.grams.find(codes, rows, seen)
        came_from = self.contexts.find(codes, rows - 1, seen - 1)
        came_from = np.vstack([np.zeros(len(rows), dtype=np.int64), came_from])
        rate = np.full((2, len(rows)), 1.0 / (self.grams.n_symbols - 1))
        for order, (counts, totals) in enumerate(zip(self.counts, self.totals, strict=True)):
            known = came_from[order] >= 0
            wanted = np.zeros(rate.shape)
            follows = found[order] >= 0
            wanted[:, follows] = counts[:, found[order, follows]]
            total = totals[:, came_from[order, known]]
            rate[:, known] = (wanted + self.kappa * rate)[:, known] / (total + self.kappa)
        # numpy's own logarithm may differ in the last bit from one array length to another
        return np.fromiter(map(log, (rate[0] / rate[1]).tolist()), np.float64, len(rows))

    @cached_property
    def lookups(self) -> tuple[list[Grams], list[Contexts], Pair]:
        """Counts of grams and totals of contexts, with kappa added, in dictionaries by their key.

        One dictionary an order; the last item is the total of the empty context.
        """
        grams = [
            dict(zip(keys.tolist(), enumerate(map(tuple, counts.T.tolist())), strict=True))
            for keys, counts in zip(self.grams.keys, self.counts, strict=True)
        ]
        totals = [list(map(tuple, (array + self.kappa).T.tolist())) for array in self.totals]
        contexts = [
            dict(zip(keys.tolist(), enumerate(pairs), strict=True))
            for keys, pairs in zip(self.contexts.keys, totals[1:], strict=True)
        ]
        return grams, contexts, totals[0][0]

    def begin(self) -> TransitionCursor:
        """Return a follower of one run."""
        return TransitionCursor(self)

    def state(self) -> dict[str, NDArray[Any]]:
        """Return what was counted as arrays, to be saved."""
        totals = {f"totals_{order}": array for order, array in enumerate(self.totals)}
        return self.grams.state("grams_") | self.contexts.state("contexts_") | totals

    @classmethod
    def restore(cls, arrays: dict[str, NDArray[Any]], kappa: float) -> Transitions:
        """Make the counts again from what :meth:`state` returned."""
        grams = SuffixCounts.restore(arrays, "grams_")
        totals = [arrays[f"totals_{order}"] for order in range(grams.orders)]
        return cls(grams, SuffixCounts.restore(arrays, "contexts_"), totals, kappa)


class TransitionCursor:
    """Follows one run; gives what :meth:`Transitions.log_ratios` does."""

    __slots__ = ("_contexts", "_empty", "_grams", "_kappa", "_recent", "_size", "_totals")

    def __init__(self, transitions: Transitions) -> None:
        self._grams, self._contexts, self._empty = transitions.lookups
        self._size, self._kappa = transitions.grams.n_symbols, transitions.kappa
        self._recent = [transitions.grams.start]
        self._totals = self._known_contexts()

    def push(self, code: int) -> float:
        """Take in the next token and return its log ratio."""
        recent, kappa, size = self._recent, self._kappa, self._size
        recent.insert(0, code)
        bad = good = 1.0 / (size - 1)
        n_bad = n_good = 0.0
        parent = 0
        for lookup, token, totals in zip(self._grams, recent, self._totals, strict=False):
            if parent >= 0:
                parent, (n_bad, n_good) = lookup.get(parent * size + token, UNSEEN_GRAM)
            bad = (n_bad + kappa * bad) / totals[0]
            good = (n_good + kappa * good) / totals[1]
        del recent[len(self._contexts) :]
        self._totals = self._known_contexts()
        return log(bad / good)

    def _known_contexts(self) -> list[Pair]:
        """Return the totals of what stands before the next step, shorter contexts first."""
        totals = [self._empty]
        parent = 0
        for lookup, token in zip(self._contexts, self._recent, strict=False):
            found = lookup.get(parent * self._size + token)
            if found is None:
                break
            parent, pair = found
            totals.append(pair)
        return totals


class MarkovRisk(RiskModel):
    """How much more likely the steps seen are among failed runs than among successful ones.

    The log ratio of two Markov models (:class:`Transitions`), summed over the steps seen and
    clipped. As a sum over many dependent steps it says too much; ``predict`` therefore returns a
    logistic function of it, fitted to log ratios of runs whose task was left out (Platt scaling).

    Parameters
    ----------
    orders : int
        Longest context.
    kappa : float
        Runs that the shorter context is worth.
    clip : float
        Bound of the absolute log ratio.
    min_runs : int
        A token of fewer training runs counts as ``RARE``.
    folds : int
        Folds by task for the logistic function; 0 takes the log ratio as it is, added to the log
        odds of the base rate.

    Attributes
    ----------
    alphabet_ : Alphabet
    transitions_ : Transitions
    slope_, intercept_ : float
        Of the logistic function. A slope is never negative: a ratio that runs the wrong way on
        tasks left out is worth nothing, not worth its opposite.
    table_ : DataFrame
        ``token n failed ratio``: how the risk moves when a token comes next, whatever came before.

    References
    ----------
    J. Platt, Probabilistic Outputs for Support Vector Machines, 1999.

    Examples
    --------
    >>> p = Prefixes.from_tokens([["a", "b", "z"], ["a", "b", "z"], ["a", "a", "z"]],
    ...                          ["failure", "failure", "success"])
    >>> risk = MarkovRisk(orders=0, kappa=2.0, min_runs=1, folds=0).fit(p)
    >>> risk.table_["token"].tolist()         # a: 2 of 4 and 1 of 1; b: 2 of 4 and 0 of 1
    ['b', 'a']
    """

    name = "markov"

    def __init__(
        self,
        orders: int = 3,
        kappa: float = 20.0,
        clip: float = 15.0,
        min_runs: int = 5,
        folds: int = 3,
    ) -> None:
        self.orders = orders
        self.kappa = kappa
        self.clip = clip
        self.min_runs = min_runs
        self.folds = folds

    def _fit(self, prefixes: Prefixes, looks: Looks, failed: Floats, weight: Floats) -> None:
        self.slope_, self.intercept_ = 1.0, float(logit(prefixes.failed.mean()))
        if self.folds:
            self._scale(prefixes, looks, failed, weight)
        self._count(prefixes)

    def _count(self, prefixes: Prefixes) -> None:
        self.alphabet_ = Alphabet.fit(prefixes, self.min_runs)
        codes = self.alphabet_.codes(prefixes.table)
        self.transitions_ = Transitions.count(
            codes, prefixes, len(self.alphabet_), self.orders, self.kappa
        )

    def _scale(self, prefixes: Prefixes, looks: Looks, failed: Floats, weight: Floats) -> None:
        """Fit the logistic function to log ratios of tasks left out."""
        group = prefixes.groups()
        if len(np.unique(group)) < 2:
            group = np.arange(len(prefixes))
        folds = GroupKFold(min(self.folds, len(np.unique(group))))
        ratio = np.zeros(len(looks.run))
        for train, test in folds.split(group, groups=group):
            self._count(prefixes.take(train))
            held = np.isin(looks.run, test)
            ratio[held] = self.log_ratio(prefixes, Looks(looks.run[held], looks.seen[held]))
        if len(np.unique(failed)) < 2:
            return
        scale = LogisticRegression().fit(ratio[:, None], failed, sample_weight=weight)
        self.slope_ = max(float(scale.coef_[0, 0]), 0.0)
        if self.slope_:
            self.intercept_ = float(scale.intercept_[0])

    def log_ratio(self, prefixes: Prefixes, looks: Looks) -> Floats:
        """Return log P(steps seen | failed) - log P(steps seen | successful), clipped.

        Returns
        -------
        ndarray of float64, shape (n_looks,)
        """
        wanted = np.zeros(len(prefixes), dtype=np.int64)
        np.maximum.at(wanted, looks.run, looks.seen)
        stop = np.cumsum(wanted)
        first = stop - wanted
        seen = np.arange(int(wanted.sum())) - np.repeat(first, wanted) + 1
        rows = np.repeat(prefixes.start, wanted) + seen - 1
        codes = self.alphabet_.codes(prefixes.table)
        ratio = self.transitions_.log_ratios(codes, rows, seen)
        for a, b in zip(first.tolist(), stop.tolist(), strict=True):
            np.cumsum(ratio[a:b], out=ratio[a:b])  # one run at a time: sums as a stream sums
        wanted_sums = ratio[first[looks.run] + looks.seen - 1]
        return np.asarray(np.clip(wanted_sums, -self.clip, self.clip))

    def _predict(self, prefixes: Prefixes, looks: Looks) -> Floats:
        ratio = self.log_ratio(prefixes, looks)
        return np.asarray(expit(self.slope_ * ratio + self.intercept_))

    def begin(self) -> MarkovStream:
        """Return a follower of one new run."""
        self._check_fitted()
        return MarkovStream(self)

    @property
    def table_(self) -> pd.DataFrame:
        """Tokens, those that speak most for failure first."""
        import pandas as pd

        self._check_fitted()
        t = self.transitions_
        rate = t.counts[0] + self.kappa / (t.grams.n_symbols - 1)
        ratio = np.log(rate / (t.totals[0] + self.kappa))
        table = pd.DataFrame(
            {
                "token": [self.alphabet_.names[code] for code in t.grams.keys[0].tolist()],
                "n": t.grams.n[0],
                "failed": t.grams.failed[0],
                "ratio": ratio[0] - ratio[1],
            }
        )
        return table.sort_values(["ratio", "token"], ascending=[False, True], ignore_index=True)

    def plot(self, ax: Axes | None = None, top: int = 8) -> Axes:
        """Draw the tokens that speak most for failure and for success."""
        import pandas as pd
        from matplotlib import pyplot

        table = self.table_
        if len(table) > 2 * top:
            table = pd.concat([table.head(top), table.tail(top)])
        if ax is None:
            ax = pyplot.subplots(figsize=(7, 1 + 0.3 * len(table)))[1]
        place = np.arange(len(table))
        colours = np.where(table["ratio"] > 0, RED, BLUE)
        ax.barh(place, table["ratio"], color=colours)
        ax.axvline(0, color=GREY, linewidth=1)
        names = [f"{t} (n={n})" for t, n in zip(table["token"], table["n"], strict=True)]
        ax.set_yticks(place)
        for label in ax.set_yticklabels(names, fontsize="small"):
            label.set_parse_math(False)  # names are no formulas
        ax.set(ylim=(len(table) - 0.5, -0.5))
        ax.set_xlabel("log ratio, failed to successful runs")
        return ax

    def _state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        meta = {
            "alphabet": list(self.alphabet_.names),
            "slope": self.slope_,
            "intercept": self.intercept_,
        }
        return self.transitions_.state(), meta

    def _restore(self, arrays: dict[str, NDArray[Any]], meta: dict[str, Any]) -> None:
        self.alphabet_ = Alphabet(meta["alphabet"], self.min_runs)
        self.transitions_ = Transitions.restore(arrays, self.kappa)
        self.slope_, self.intercept_ = meta["slope"], meta["intercept"]


class MarkovStream:
    """Follows one run, at a few dictionary look-ups a step."""

    __slots__ = ("_alphabet", "_clip", "_cursor", "_intercept", "_slope", "_sum")

    def __init__(self, model: MarkovRisk) -> None:
        self._alphabet, self._cursor = model.alphabet_, model.transitions_.begin()
        self._slope, self._intercept, self._clip = model.slope_, model.intercept_, model.clip
        self._sum = 0.0

    def observe(self, step: SeenStep) -> float:
        """Take in the next step and return the risk after it."""
        return float(expit(self._slope * self.push(step) + self._intercept))

    def push(self, step: SeenStep) -> float:
        """Take in the next step and return the clipped log ratio after it."""
        self._sum += self._cursor.push(self._alphabet.code_of(step.token))
        return min(max(self._sum, -self._clip), self._clip)
