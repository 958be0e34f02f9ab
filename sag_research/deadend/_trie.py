"""The exact prefix trie: what became of the runs that began with the very same steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sag_research.deadend._alphabet import Alphabet
from sag_research.deadend._hazard import HazardRisk, HazardStream, shrunk_interval
from sag_research.deadend._index import PrefixCursor, PrefixIndex
from sag_research.deadend._model import RiskModel
from sag_research.deadend._prefixes import Floats, Ints, Looks, Prefixes

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from sag_research.deadend._step import SeenStep

__all__ = ["TrieRisk", "TrieStream"]

ARROW = " → "


class TrieRisk(RiskModel):
    """Failure rate among the runs that began with the same tokens, shrunk to the hazard.

    ``(failed + kappa * hazard) / (n + kappa)``, with *n* the training runs that begin with the
    prefix and go on. Made for display: with some dozens of symbols hardly any prefix of more than
    three or four steps is shared by ten runs, however many there are, and the score is then the
    hazard.

    Parameters
    ----------
    kappa : float
        Runs that the hazard is worth.
    min_runs : int
        A token of fewer training runs counts as ``RARE``; fewest runs of a row of ``table_``.
    strength : float
        Of the hazard, see :class:`HazardRisk`.

    Attributes
    ----------
    alphabet_ : Alphabet
    index_ : PrefixIndex
        Of the runs' tokens up to their last decision point.
    hazard_ : HazardRisk
    table_ : DataFrame
        ``depth prefix n failed risk low high first``, in the order of the trie, a prefix before
        those that it begins.

    Examples
    --------
    >>> p = Prefixes.from_tokens([["a", "b", "z"], ["a", "c", "z"], ["b", "c", "z"]],
    ...                          ["failure", "failure", "success"])
    >>> risk = TrieRisk(kappa=1.0, min_runs=1, strength=0.0).fit(p)
    >>> risk.table_[["prefix", "n", "failed"]].head(2).to_numpy().tolist()
    [['a', 2, 2], ['a → b', 1, 1]]
    >>> risk.predict(p, p.looks([1])).round(3).tolist()    # hazard 2/3
    [0.889, 0.889, 0.333]
    """

    name = "trie"

    def __init__(self, kappa: float = 20.0, min_runs: int = 5, strength: float = 10.0) -> None:
        self.kappa = kappa
        self.min_runs = min_runs
        self.strength = strength

    def _fit(self, prefixes: Prefixes, looks: Looks, failed: Floats, weight: Floats) -> None:
        self.hazard_ = HazardRisk(self.strength).fit(prefixes)
        self.alphabet_ = Alphabet.fit(prefixes, self.min_runs)
        last = np.bincount(prefixes.looks("all").run, minlength=len(prefixes))
        codes = self.alphabet_.codes(prefixes.table)
        self.index_ = PrefixIndex.build(
            codes, prefixes.start, prefixes.start + last, prefixes.failed
        )

    def support(self, prefixes: Prefixes, looks: Looks) -> tuple[Ints, Ints]:
        """Return how many training runs begin as each look does, and how many of them failed.

        Returns
        -------
        n, failed : ndarray of int64, shape (n_looks,)
        """
        wanted = np.zeros(len(prefixes), dtype=np.int64)
        np.maximum.at(wanted, looks.run, looks.seen)
        codes = self.alphabet_.codes(prefixes.table)
        n, failed = self.index_.narrow_all(codes, prefixes.start, wanted)
        at = (np.cumsum(wanted) - wanted)[looks.run] + looks.seen - 1
        return n[at], failed[at]

    def _predict(self, prefixes: Prefixes, looks: Looks) -> Floats:
        n, failed = self.support(prefixes, looks)
        hazard = self.hazard_._predict(prefixes, looks)
        return (failed + self.kappa * hazard) / (n + self.kappa)

    def begin(self) -> TrieStream:
        """Return a follower of one new run."""
        self._check_fitted()
        return TrieStream(self.alphabet_, self.index_.begin(), self.hazard_.begin(), self.kappa)

    def explain(self, prefixes: Prefixes, looks: Looks | None = None) -> pd.DataFrame:
        """Say at each look how many runs began the same way.

        Returns
        -------
        DataFrame
            ``run_id seen risk n failed low high``, one row a look; ``low`` and ``high`` are the
            95 % Beta interval around the hazard.
        """
        import pandas as pd

        self._check_fitted()
        looks = prefixes.every_step() if looks is None else looks
        n, failed = self.support(prefixes, looks)
        hazard = self.hazard_._predict(prefixes, looks)
        low, high = shrunk_interval(failed, n, hazard, self.kappa)
        return pd.DataFrame(
            {
                "run_id": prefixes.runs["run_id"].to_numpy()[looks.run],
                "seen": looks.seen,
                "risk": self._predict(prefixes, looks),
                "n": n,
                "failed": failed,
                "low": low,
                "high": high,
            }
        )

    @property
    def table_(self) -> pd.DataFrame:
        """Prefixes of at least `min_runs` runs, in the order of the trie."""
        self._check_fitted()
        table = self.index_.prefixes(self.min_runs)
        depth, first = table["depth"].to_numpy(), table["first"].to_numpy()
        n, failed = table["n"].to_numpy(), table["failed"].to_numpy()
        curve = self.hazard_.risk_[0]
        hazard = curve[np.minimum(depth, len(curve) - 1)]
        low, high = shrunk_interval(failed, n, hazard, self.kappa)
        rows = map(self.index_.row, first.tolist(), depth.tolist())
        names = self.alphabet_.names
        table.insert(1, "prefix", [ARROW.join(names[code] for code in row) for row in rows])
        table.insert(4, "risk", (failed + self.kappa * hazard) / (n + self.kappa))
        table.insert(5, "low", low)
        table.insert(6, "high", high)
        return table.iloc[np.lexsort((depth, first))].reset_index(drop=True)

    def plot(self, ax: Axes | None = None, depth: int = 8) -> Axes:
        """Draw the trie: a box for each prefix, as high as it has runs, coloured by its risk."""
        from matplotlib import pyplot
        from matplotlib.collections import PolyCollection

        if ax is None:
            ax = pyplot.subplots(figsize=(7, 4))[1]
        table = self.table_
        table = table[table["depth"] <= depth]
        left, low = table["depth"].to_numpy() - 1.0, table["first"].to_numpy(dtype=np.float64)
        right, high = left + 1, low + table["n"].to_numpy()
        corners = np.stack([left, low, left, high, right, high, right, low], axis=1)
        boxes = PolyCollection(
            list(corners.reshape(-1, 4, 2)), cmap="cividis", edgecolor="white", linewidth=0.5
        )
        boxes.set_array(table["risk"].to_numpy())
        boxes.set_clim(0, 1)
        ax.add_collection(boxes)
        ax.figure.colorbar(boxes, ax=ax, label="risk")
        ax.set(xlim=(0, depth), ylim=(len(self.index_), 0), xlabel="steps", ylabel="runs, sorted")
        return ax

    def _state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        hazard, meta = self.hazard_._state()
        arrays = {f"index_{name}": array for name, array in self.index_.arrays().items()}
        arrays |= {f"hazard_{name}": array for name, array in hazard.items()}
        return arrays, {"alphabet": list(self.alphabet_.names), "hazard": meta}

    def _restore(self, arrays: dict[str, NDArray[Any]], meta: dict[str, Any]) -> None:
        parts: dict[str, dict[str, NDArray[Any]]] = {"index": {}, "hazard": {}}
        for name, array in arrays.items():
            part, _, rest = name.partition("_")
            parts[part][rest] = array
        self.alphabet_ = Alphabet(meta["alphabet"], self.min_runs)
        self.index_ = PrefixIndex(**parts["index"])
        self.hazard_ = HazardRisk(self.strength)
        self.hazard_.fitted_runs_ = self.fitted_runs_
        self.hazard_._restore(parts["hazard"], meta["hazard"])


class TrieStream:
    """Follows one run down the trie."""

    __slots__ = ("_alphabet", "_cursor", "_hazard", "_kappa")

    def __init__(
        self, alphabet: Alphabet, cursor: PrefixCursor, hazard: HazardStream, kappa: float
    ) -> None:
        self._alphabet, self._cursor, self._hazard, self._kappa = alphabet, cursor, hazard, kappa

    def observe(self, step: SeenStep) -> float:
        """Take in the next step and return the risk after it."""
        n, failed = self._cursor.narrow(self._alphabet.code_of(step.token))
        return (failed + self._kappa * self._hazard.advance()) / (n + self._kappa)
