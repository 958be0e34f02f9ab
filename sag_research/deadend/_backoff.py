"""Suffix back-off: what became of the runs that were in the same last few steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sag_research.deadend._alphabet import Alphabet
from sag_research.deadend._hazard import (
    BLUE,
    GREY,
    LEVEL,
    HazardRisk,
    HazardStream,
    shrunk_interval,
)
from sag_research.deadend._model import RiskModel
from sag_research.deadend._prefixes import Floats, Ints, Looks, Prefixes
from sag_research.deadend._suffix import SuffixCounts, SuffixCursor

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from sag_research.deadend._step import SeenStep

__all__ = ["BackoffRisk", "BackoffStream"]

ARROW = " → "


class BackoffRisk(RiskModel):
    """Failure rate among the runs that show the same last *k* tokens, backed off.

    ``p_k = (f_k + kappa * p_(k-1)) / (n_k + kappa)`` for *k* = 1 … `orders`, where ``n_k`` is the
    number of training runs in which the last *k* tokens occur in this order, and ``f_k`` how many
    of them failed: runs, not visits. ``p_0`` is the hazard, P(failure | still going on).

    Parameters
    ----------
    orders : int
        Longest context.
    kappa : float
        Runs that the shorter context's rate is worth.
    min_runs : int
        A token of fewer training runs counts as ``RARE``.
    strength : float
        Of the hazard, see :class:`HazardRisk`.
    groups : sequence of str
        Of the hazard, see :class:`HazardRisk`.

    Attributes
    ----------
    alphabet_ : Alphabet
    counts_ : SuffixCounts
    hazard_ : HazardRisk
    table_ : DataFrame
        ``order context n failed risk low high``, contexts of at least `min_runs` runs, those that
        move the risk most first. ``risk`` is after the mean hazard.

    Examples
    --------
    >>> p = Prefixes.from_tokens([["a", "b", "z"], ["a", "a", "z"], ["b", "a", "z"]],
    ...                          ["failure", "success", "success"])
    >>> risk = BackoffRisk(orders=1, kappa=1.0, min_runs=1, strength=0.0).fit(p)
    >>> risk.predict(p).round(3).tolist()    # a: 1 of 3 failed, b: 1 of 2, hazard 1/3
    [0.333, 0.444, 0.333, 0.333, 0.333, 0.333, 0.444, 0.333, 0.333]
    """

    name = "backoff"

    def __init__(
        self,
        orders: int = 4,
        kappa: float = 20.0,
        min_runs: int = 5,
        strength: float = 10.0,
        groups: Sequence[str] = (),
    ) -> None:
        self.orders = orders
        self.kappa = kappa
        self.min_runs = min_runs
        self.strength = strength
        self.groups = groups

    def _fit(self, prefixes: Prefixes, looks: Looks, failed: Floats, weight: Floats) -> None:
        self.hazard_ = HazardRisk(self.strength, self.groups).fit(prefixes)
        self.alphabet_ = Alphabet.fit(prefixes, self.min_runs)
        codes = self.alphabet_.codes(prefixes.table)
        everywhere = prefixes.looks("all")
        self.counts_ = SuffixCounts.count(
            codes, prefixes, everywhere, len(self.alphabet_), self.orders
        )
        self._set_lines()

    def _set_lines(self) -> None:
        """Write the risk in each context as own + share * hazard, which it is at any step."""
        own, share = np.zeros(1), np.ones(1)
        self._own: list[Floats] = []
        self._share: list[Floats] = []
        for order in range(1, self.counts_.orders + 1):
            n, bad = self.counts_.n[order - 1], self.counts_.failed[order - 1]
            parent = self.counts_.parent(order)
            own = (bad + self.kappa * own[parent]) / (n + self.kappa)
            share = self.kappa * share[parent] / (n + self.kappa)
            self._own.append(own)
            self._share.append(share)
        self._lists: list[tuple[list[float], list[float]]] = []

    def _find(self, prefixes: Prefixes, looks: Looks) -> Ints:
        codes = self.alphabet_.codes(prefixes.table)
        return self.counts_.find(codes, prefixes.rows(looks), looks.seen)

    def _predict(self, prefixes: Prefixes, looks: Looks) -> Floats:
        found = self._find(prefixes, looks)
        own, share = np.zeros(len(looks.run)), np.ones(len(looks.run))
        for order in range(self.counts_.orders):
            known = found[order] >= 0
            own[known] = self._own[order][found[order, known]]
            share[known] = self._share[order][found[order, known]]
        return own + share * self.hazard_._predict(prefixes, looks)

    def begin(self, **group: str) -> BackoffStream:
        """Return a follower of one new run; see :meth:`HazardRisk.begin` for `group`."""
        self._check_fitted()
        if not self._lists:
            pairs = zip(self._own, self._share, strict=True)
            self._lists = [(own.tolist(), share.tolist()) for own, share in pairs]
        return BackoffStream(
            self.alphabet_, self.counts_.begin(), self.hazard_.begin(**group), self._lists
        )

    def explain(self, prefixes: Prefixes, looks: Looks | None = None) -> pd.DataFrame:
        """Say which context decided at each look.

        It is the context whose own runs have the largest weight in the risk: those of order *k*
        weigh ``n_k / (n_k + kappa)`` of what longer contexts leave over.

        Returns
        -------
        DataFrame
            ``run_id seen risk order context n failed low high weight``, one row a look. Order 0 is
            the hazard, without a context. ``low`` and ``high`` bound the failure rate in the
            deciding context (95 % Beta interval around its back-off).
        """
        import pandas as pd

        self._check_fitted()
        looks = prefixes.every_step() if looks is None else looks
        found = self._find(prefixes, looks)
        start = self.hazard_._predict(prefixes, looks)
        table = self._ladder(found, start, self.hazard_.support(prefixes, looks))
        at = np.arange(len(looks.run))
        order = np.argmax(table["weight"], axis=0)
        chosen = {name: values[order, at] for name, values in table.items()}
        kappa = np.where(order > 0, self.kappa, self.strength)
        low, high = shrunk_interval(chosen["failed"], chosen["n"], chosen["prior"], kappa)
        return pd.DataFrame(
            {
                "run_id": prefixes.runs["run_id"].to_numpy()[looks.run],
                "seen": looks.seen,
                "risk": self._predict(prefixes, looks),
                "order": order,
                "context": self._names(order, found),
                "n": chosen["n"].astype(np.int64),
                "failed": chosen["failed"].astype(np.int64),
                "low": low,
                "high": high,
                "weight": chosen["weight"],
            }
        )

    def _ladder(
        self, found: Ints, hazard: Floats, support: tuple[Ints, Ints, Floats]
    ) -> dict[str, Floats]:
        """Return n, failed, prior and weight of orders 0 … K, each of shape (K + 1, n_looks)."""
        shape = (self.counts_.orders + 1, found.shape[1])
        n, bad, prior = np.zeros(shape), np.zeros(shape), np.zeros(shape)
        n[0], bad[0], prior[0] = support
        below = hazard
        for order in range(1, shape[0]):
            known = found[order - 1] >= 0
            context = found[order - 1, known]
            n[order, known] = self.counts_.n[order - 1][context]
            bad[order, known] = self.counts_.failed[order - 1][context]
            prior[order] = below
            below = (bad[order] + self.kappa * below) / (n[order] + self.kappa)
        part = n / (n + self.kappa)
        part[0] = 1.0
        left = np.cumprod(1 - part[:0:-1], axis=0)[::-1]  # what the longer contexts leave over
        weight = part * np.vstack([left, np.ones(shape[1])])
        return {"n": n, "failed": bad, "prior": prior, "weight": weight}

    def _names(self, order: Ints, found: Ints) -> list[str]:
        names = np.full(len(order), "", dtype=object)
        for level in range(1, self.counts_.orders + 1):
            at = np.flatnonzero(order == level)
            names[at] = self._written(level, found[level - 1, at])
        return list(names)

    def _written(self, order: int, which: Ints) -> list[str]:
        symbols = self.alphabet_.names
        return [
            ARROW.join(symbols[code] for code in codes)
            for codes in self.counts_.tokens(order, which)
        ]

    @property
    def table_(self) -> pd.DataFrame:
        """Contexts of at least `min_runs` runs, those that move the risk most first."""
        import pandas as pd

        self._check_fitted()
        parts = []
        below = np.array([self.base_rate_])
        for order in range(1, self.counts_.orders + 1):
            n, bad = self.counts_.n[order - 1], self.counts_.failed[order - 1]
            prior = below[self.counts_.parent(order)]
            below = (bad + self.kappa * prior) / (n + self.kappa)
            which = np.flatnonzero(n >= self.min_runs)
            low, high = shrunk_interval(bad[which], n[which], prior[which], self.kappa)
            parts.append(
                pd.DataFrame(
                    {
                        "order": order,
                        "context": self._written(order, which),
                        "n": n[which],
                        "failed": bad[which],
                        "risk": below[which],
                        "low": low,
                        "high": high,
                    }
                )
            )
        table = pd.concat(parts, ignore_index=True)
        moved = (table["risk"] - self.base_rate_).abs()
        return table.iloc[np.lexsort((table["context"], -moved))].reset_index(drop=True)

    def plot(self, ax: Axes | None = None, top: int = 15) -> Axes:
        """Draw the contexts that move the risk most, with their intervals."""
        from matplotlib import pyplot

        table = self.table_.head(top)
        if ax is None:
            ax = pyplot.subplots(figsize=(7, 1 + 0.3 * len(table)))[1]
        place = np.arange(len(table))
        ax.hlines(place, table["low"], table["high"], color=BLUE, linewidth=2)
        ax.plot(table["risk"], place, "o", color=BLUE)
        ax.axvline(self.base_rate_, color=GREY, linestyle=":", linewidth=1)
        names = [f"{c} (n={n})" for c, n in zip(table["context"], table["n"], strict=True)]
        ax.set_yticks(place)
        for label in ax.set_yticklabels(names, fontsize="small"):
            label.set_parse_math(False)  # names are no formulas
        ax.set(xlim=(0, 1), ylim=(len(table) - 0.5, -0.5))
        ax.set_xlabel(f"failure rate, {LEVEL:.0%} interval; dotted: all runs")
        return ax

    def _state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        hazard, meta = self.hazard_._state()
        arrays = self.counts_.state("suffix_")
        arrays |= {f"hazard_{name}": array for name, array in hazard.items()}
        return arrays, {"alphabet": list(self.alphabet_.names), "hazard": meta}

    def _restore(self, arrays: dict[str, NDArray[Any]], meta: dict[str, Any]) -> None:
        self.alphabet_ = Alphabet(meta["alphabet"], self.min_runs)
        self.counts_ = SuffixCounts.restore(arrays, "suffix_")
        self.hazard_ = HazardRisk(self.strength, self.groups)
        self.hazard_.fitted_runs_ = self.fitted_runs_
        hazard = {
            name.removeprefix("hazard_"): array
            for name, array in arrays.items()
            if name.startswith("hazard_")
        }
        self.hazard_._restore(hazard, meta["hazard"])
        self._set_lines()


class BackoffStream:
    """Follows one run, at a few dictionary look-ups a step."""

    __slots__ = ("_alphabet", "_cursor", "_hazard", "_lines")

    def __init__(
        self,
        alphabet: Alphabet,
        cursor: SuffixCursor,
        hazard: HazardStream,
        lines: list[tuple[list[float], list[float]]],
    ) -> None:
        self._alphabet, self._cursor, self._hazard, self._lines = alphabet, cursor, hazard, lines

    def observe(self, step: SeenStep) -> float:
        """Take in the next step and return the risk after it."""
        hazard = self._hazard.advance()
        found = self._cursor.push(self._alphabet.code_of(step.token))
        if not found:
            return hazard
        own, share = self._lines[len(found) - 1]
        return own[found[-1]] + share[found[-1]] * hazard
