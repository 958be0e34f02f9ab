"""How far two people agree on what they see in steps."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import numpy as np

from sag_research._text import escape, html_table
from sag_research.deadend._bootstrap import estimate, resamples, sample
from sag_research.errors import NotEnoughDataError, UsageError

if TYPE_CHECKING:
    import pandas as pd

    from sag_research.deadend._prefixes import Floats

__all__ = ["Agreement", "Kappa", "Marks", "agreement", "cohen_kappa"]

Marks: TypeAlias = Collection[tuple[str, int, str]]
"""What somebody marked: run, step, code."""

LEVEL: Final = 0.95
ALL: Final = "(all codes)"
FEW: Final = 10
"""Of fewer runs, resampling gives intervals that are too narrow."""


class Kappa(NamedTuple):
    """Agreement of two annotators beyond chance."""

    kappa: float
    """1: perfect; 0: as much as chance gives; NaN where chance alone gives perfect agreement."""
    low: float
    high: float
    """95 % interval."""
    n: int
    """Units that both judged."""
    clusters: int
    """Runs (or whatever the units lie in) that were resampled; 0: the asymptotic interval."""
    observed: float
    """Share of units on which they agree."""
    expected: float
    """The share that chance gives."""


def cohen_kappa(table: Any, *, seed: int = 0) -> Kappa:
    r"""Cohen's kappa of two annotators, with its interval.

    Parameters
    ----------
    table : array-like of shape (k, k) or (n_clusters, k, k)
        Counts of units: rows are the first annotator's categories, columns the second's. With a
        third axis, one such table a cluster.
    seed : int
        Of the resamples of clusters.

    Returns
    -------
    Kappa
        The interval of one table is the asymptotic one, which takes units for independent. Steps
        of one run are not: of two and more clusters, clusters are resampled. With few clusters
        it is too narrow.

    Raises
    ------
    UsageError
        The table is not square, or holds something else than counts.
    NotEnoughDataError
        It counts nothing.

    References
    ----------
    J. Cohen, A coefficient of agreement for nominal scales, Educational and Psychological
    Measurement 20, 1960. J. L. Fleiss, J. Cohen and B. S. Everitt, Large sample standard errors
    of kappa and weighted kappa, Psychological Bulletin 72, 1969.

    Examples
    --------
    >>> found = cohen_kappa([[20, 5], [10, 15]])
    >>> round(found.kappa, 2), round(found.low, 2), round(found.high, 2), found.n
    (0.4, 0.15, 0.65, 50)
    """
    counts = _checked(table)
    whole = counts.sum(axis=0)
    n, observed, expected = _shares(whole)
    kappa = float(_kappas(whole[None])[0])
    if len(counts) == 1:
        low, high = _asymptotic(whole, kappa, expected)
        return Kappa(kappa, low, high, n, 0, observed, expected)

    def statistic(drawn: Floats) -> Floats:
        return _kappas(np.einsum("dc,cij->dij", drawn, counts))

    found = estimate(sample(statistic, resamples(len(counts), seed=seed), n), LEVEL)
    return Kappa(kappa, found.low, found.high, n, len(counts), observed, expected)


def _checked(table: Any) -> Floats:
    counts = np.asarray(table, np.float64)
    counts = counts[None] if counts.ndim == 2 else counts
    square = counts.ndim == 3 and counts.shape[1] == counts.shape[2] > 1
    if not square or not np.isfinite(counts).all() or (counts < 0).any():
        raise UsageError(
            "Cohen's kappa needs a square table of counts", why=f"got shape {counts.shape}"
        )
    if not counts.sum():
        raise NotEnoughDataError("there is nothing that both annotators judged")
    return counts


def _shares(whole: Floats) -> tuple[int, float, float]:
    p = whole / whole.sum()
    return int(whole.sum()), float(np.trace(p)), float(p.sum(axis=1) @ p.sum(axis=0))


def _kappas(tables: Floats) -> Floats:
    """Kappa of each of many tables, shape (m, k, k)."""
    n = tables.sum(axis=(1, 2))
    with np.errstate(invalid="ignore", divide="ignore"):
        p = tables / n[:, None, None]
        observed = np.trace(p, axis1=1, axis2=2)
        expected = (p.sum(axis=2) * p.sum(axis=1)).sum(axis=1)
        kappas: Floats = np.where(
            expected < 1 - 1e-12, (observed - expected) / (1 - expected), np.nan
        )
    return kappas


def _asymptotic(whole: Floats, kappa: float, expected: float) -> tuple[float, float]:
    if math.isnan(kappa):
        return math.nan, math.nan
    n, p, rest = whole.sum(), whole / whole.sum(), 1 - kappa
    rows, columns = p.sum(axis=1), p.sum(axis=0)
    agreed = np.diag(p) * (1 - (rows + columns) * rest) ** 2
    parted = p * (columns[:, None] + rows[None, :]) ** 2
    np.fill_diagonal(parted, 0)
    variance = agreed.sum() + rest**2 * parted.sum() - (kappa - expected * rest) ** 2
    spread = NormalDist().inv_cdf((1 + LEVEL) / 2) * math.sqrt(max(variance, 0.0) / n)
    spread /= 1 - expected
    return max(kappa - spread, -1.0), min(kappa + spread, 1.0)


class Agreement:
    """Agreement of two annotators over the steps of runs that both have read.

    Attributes
    ----------
    a, b : str
        The annotators.
    n_runs, n_units : int
        Runs that both have read, and their steps (with ``unit="run"``: the runs).
    unit : str
        What is judged: for each step (or run) and each code, whether the code is there.
    left_out : list of str
        Runs that only one of them has annotated.
    """

    def __init__(
        self, a: str, b: str, unit: str, tables: Mapping[str, Any], n_units: int,
        left_out: list[str],
    ) -> None:  # fmt: skip
        self.a, self.b, self.unit, self.n_units, self.left_out = a, b, unit, n_units, left_out
        self._tables = {code: np.asarray(table) for code, table in tables.items()}
        self._tables[ALL] = np.sum(list(self._tables.values()), axis=0)
        self.n_runs = len(self._tables[ALL])
        self._kappas = {code: cohen_kappa(table) for code, table in self._tables.items()}

    @property
    def kappa(self) -> Kappa:
        """Over all codes together."""
        return self._kappas[ALL]

    @property
    def table_(self) -> pd.DataFrame:
        """One row a code, and one for all.

        Columns code, n, both, only_a, only_b, neither (units), observed, expected, kappa, low,
        high. ``n`` counts steps (of all codes: step × code).
        """
        import pandas as pd

        columns = ["code", "n", "both", "only_a", "only_b", "neither", "observed", "expected"]
        rows = []
        for code, found in self._kappas.items():
            cells = self._tables[code].sum(axis=0).astype(int).tolist()
            (both, only_a), (only_b, neither) = cells
            rows.append(
                (code, found.n, both, only_a, only_b, neither, found.observed, found.expected,
                 found.kappa, found.low, found.high)
            )  # fmt: skip
        return pd.DataFrame(rows, columns=[*columns, "kappa", "low", "high"])

    def __repr__(self) -> str:
        found = self.kappa
        return (
            f"Agreement({self.a!r}, {self.b!r}: kappa {found.kappa:.2f} "
            f"[{found.low:.2f}, {found.high:.2f}], n={found.n} {self.unit} × code)"
        )

    def says(self) -> str:
        """Say in a sentence what was compared."""
        few = ", too narrow with so few" if self.kappa.clusters < FEW else ""
        how = f"runs resampled{few}" if self.kappa.clusters else "asymptotic, units independent"
        left = f"; {len(self.left_out)} runs that one of them read are left out"
        return (
            f"Judged for each {self.unit} and code: is the code there? {self.n_units} "
            f"{self.unit}s of {self.n_runs} runs that both annotated, "
            f"{len(self._tables) - 1} codes; 95 % intervals, {how}"
            f"{left if self.left_out else ''}."
        )

    def _repr_html_(self) -> str:
        table = self.table_.round(3)
        rows = table.astype(object).where(table.notna(), None).to_numpy().tolist()
        return f"<div>{escape(self.says())}{html_table(list(table.columns), rows)}</div>"


def agreement(
    marks: Mapping[str, Marks],
    n_steps: Mapping[str, int],
    *,
    unit: str = "step",
    left_out: Collection[str] = (),
) -> Agreement:
    """Compare what two annotators marked in the same runs.

    Parameters
    ----------
    marks : mapping of str to collection of (run, step, code)
        By annotator; two of them.
    n_steps : mapping of str to int
        By run that both have read, its steps; marks in other runs are passed over.
    unit : {"step", "run"}
        Whether a code has to be at the same step, or anywhere in the run.
    left_out : collection of str
        Runs that only one has read, for the record.

    Examples
    --------
    >>> mine, yours = [("r", 1, "loop"), ("r", 3, "loop")], [("r", 1, "loop")]
    >>> agreement({"me": mine, "you": yours}, {"r": 5}).table_[["code", "both", "only_a"]].values
    array([['loop', 1, 1],
           ['(all codes)', 1, 1]], dtype=object)
    """
    if unit not in ("step", "run") or len(marks) != 2:
        raise UsageError("agreement is of two annotators", fix="unit is 'step' or 'run'")
    (a, first), (b, second) = marks.items()
    sets = [
        {(run, step if unit == "step" else 0, code) for run, step, code in side if run in n_steps}
        for side in (first, second)
    ]
    codes = sorted({code for side in sets for _, _, code in side})
    if not codes:
        raise NotEnoughDataError(
            f"no run was annotated by both {a!r} and {b!r}", fix="name the runs that both have read"
        )
    units = {run: n if unit == "step" else 1 for run, n in n_steps.items()}
    tables = {code: [_cells(sets, run, code, n) for run, n in units.items()] for code in codes}
    return Agreement(a, b, unit, tables, sum(units.values()), sorted(left_out))


def _cells(sets: list[set[tuple[str, int, str]]], run: str, code: str, n: int) -> list[list[int]]:
    one, two = (
        {step for where, step, what in side if (where, what) == (run, code)} for side in sets
    )
    both = len(one & two)
    return [[both, len(one) - both], [len(two) - both, n - len(one | two)]]
