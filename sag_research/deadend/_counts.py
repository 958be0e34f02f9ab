"""Logistic regression on how often each token occurred so far."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sag_research.deadend._alphabet import Alphabet
from sag_research.deadend._forest import both_outcomes
from sag_research.deadend._model import RiskModel
from sag_research.deadend._prefixes import Floats, Looks, Prefixes

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from sag_research.deadend._step import SeenStep

__all__ = ["CountsRisk", "token_counts"]


def token_counts(prefixes: Prefixes, looks: Looks, alphabet: Alphabet) -> Floats:
    """Return how often each symbol occurred up to each look, shape (n_looks, n_symbols)."""
    codes, width = alphabet.codes(prefixes.table), len(alphabet)
    counts = np.empty((len(looks.run), width))
    runs, first = np.unique(looks.run, return_index=True)
    ends = np.append(first, len(looks.run))[1:]
    for run, a, b in zip(runs.tolist(), first.tolist(), ends.tolist(), strict=True):
        own = codes[prefixes.start[run] : prefixes.stop[run]]
        so_far = np.cumsum(own[:, None] == np.arange(width), axis=0)
        counts[a:b] = so_far[looks.seen[a:b] - 1]
    return counts


class CountsRisk(RiskModel):
    """Logistic regression on log(1 + count) of each token so far, and log of the steps so far.

    Parameters
    ----------
    C : float
        Inverse strength of the penalty, on columns of unit variance.
    min_runs : int
        A token of fewer training runs counts as ``RARE``.

    Attributes
    ----------
    alphabet_ : Alphabet
    coef_ : ndarray of float64, shape (n_symbols + 1,)
        Of the columns as they are, not scaled; the last is that of log steps.
    intercept_ : float
    """

    name = "counts-logistic"

    def __init__(self, C: float = 0.01, min_runs: int = 5) -> None:
        self.C = C
        self.min_runs = min_runs

    def _fit(self, prefixes: Prefixes, looks: Looks, failed: Floats, weight: Floats) -> None:
        from sklearn.linear_model import LogisticRegression

        both_outcomes(failed, self.name)
        self.alphabet_ = Alphabet.fit(prefixes, self.min_runs)
        x = self._columns(prefixes, looks)
        centre, scale = x.mean(axis=0), x.std(axis=0)
        scale[scale == 0] = 1.0
        model = LogisticRegression(C=self.C, max_iter=1000)
        model.fit((x - centre) / scale, failed, weight)
        self.coef_ = np.asarray(model.coef_[0]) / scale
        self.intercept_ = float(model.intercept_[0] - centre @ self.coef_)

    def _columns(self, prefixes: Prefixes, looks: Looks) -> Floats:
        counts = token_counts(prefixes, looks, self.alphabet_)
        return np.log1p(np.column_stack([counts, looks.seen]))

    def _predict(self, prefixes: Prefixes, looks: Looks) -> Floats:
        logit = self._columns(prefixes, looks) @ self.coef_ + self.intercept_
        return np.asarray(1 / (1 + np.exp(-logit)))

    def begin(self) -> _CountsStream:
        """Return a follower of one new run."""
        self._check_fitted()
        return _CountsStream(self)

    @property
    def table_(self) -> pd.DataFrame:
        """``token coefficient``, of log(1 + count)."""
        import pandas as pd

        self._check_fitted()
        names = [*self.alphabet_.names, "(steps)"]
        table = pd.DataFrame({"token": names, "coefficient": self.coef_})
        return table.sort_values("coefficient", ascending=False, kind="stable", ignore_index=True)

    def plot(self, ax: Axes | None = None, top: int = 8) -> Axes:
        """Draw the tokens that speak most for failure and for success."""
        import matplotlib.pyplot as plt

        ax = plt.gca() if ax is None else ax
        table = self.table_
        table = table[(table.index < top) | (table.index >= len(table) - top)][::-1]
        ax.barh(table["token"], table["coefficient"])
        ax.axvline(0, color="black", linewidth=0.8)
        ax.set_xlabel("change of log odds for one more log count")
        return ax

    def _state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        meta = {"names": list(self.alphabet_.names), "coarser": self.alphabet_.coarser}
        return {"coef": self.coef_}, meta | {"intercept": self.intercept_}

    def _restore(self, arrays: dict[str, NDArray[Any]], meta: dict[str, Any]) -> None:
        self.alphabet_ = Alphabet(meta["names"], self.min_runs, meta["coarser"])
        self.coef_, self.intercept_ = arrays["coef"], float(meta["intercept"])


class _CountsStream:
    def __init__(self, model: CountsRisk) -> None:
        self._model = model
        self._counts = np.zeros(len(model.coef_))

    def observe(self, step: SeenStep) -> float:
        self._counts[self._model.alphabet_.code_of(step.token)] += 1
        self._counts[-1] += 1
        logit = np.log1p(self._counts) @ self._model.coef_ + self._model.intercept_
        return float(1 / (1 + np.exp(-logit)))
