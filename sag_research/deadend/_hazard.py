"""The hazard: how likely is a run that still goes on after *t* steps to fail."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv, expit, logit

from sag_research.deadend._model import RiskModel
from sag_research.deadend._prefixes import Floats, Ints, Looks, Prefixes
from sag_research.errors import UsageError

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from sag_research.deadend._step import SeenStep

__all__ = ["HazardRisk", "HazardStream", "shrunk_interval"]

LEVEL = 0.95
BLUE, GREY = "#0072b2", "#6b7885"


def shrunk_interval(
    failed: Any, n: Any, prior: Any, strength: Any, level: float = LEVEL
) -> tuple[Floats, Floats]:
    """Return the central Beta interval of a failure rate that is shrunk towards a prior rate.

    The posterior is Beta(failed + strength * prior, n - failed + strength * (1 - prior)), whose
    mean is the shrunk rate.

    Parameters
    ----------
    failed, n : array_like
        Failed runs, and all runs.
    prior : array_like
        Rate to shrink to, in (0, 1).
    strength : array_like
        Runs that the prior is worth.
    level : float
        Mass of the interval.

    Examples
    --------
    >>> low, high = shrunk_interval(3, 3, 0.5, 2.0)      # 3 of 3 failed: Beta(4, 1)
    >>> float(low.round(3)), float(high.round(3))        # its quantiles are u ** (1/4)
    (0.398, 0.994)
    """
    failed, n, prior = np.asarray(failed), np.asarray(n), np.asarray(prior)
    a, b = failed + strength * prior, n - failed + strength * (1 - prior)
    tail = (1 - level) / 2
    return np.asarray(betaincinv(a, b, tail)), np.asarray(betaincinv(a, b, 1 - tail))


class HazardRisk(RiskModel):
    """P(failure | still going on after *t* steps), shrunk to the base rate; reads no token.

    With `groups`, each group has its own hazard, shrunk to that of the wider group, and so on up to
    all runs: the prior of a group is the wider hazard, moved in log odds by what the group's base
    rate differs. A run of a group that was not seen takes the next wider one.

    Parameters
    ----------
    strength : float
        Runs that the prior is worth.
    groups : sequence of str
        Columns of ``prefixes.runs`` from the finest to the widest, e.g. ``("repo", "model")``:
        groups are then repository within model, model, all runs.

    Attributes
    ----------
    table_ : DataFrame
        ``group seen n failed risk low high``, one row for each group and number of steps.

    Examples
    --------
    >>> p = Prefixes.from_tokens([["a"] * 2, ["a"] * 3, ["a"] * 3, ["a"] * 2],
    ...                          ["success", "failure", "failure", "success"])
    >>> risk = HazardRisk(strength=2.0).fit(p)
    >>> risk.table_[["seen", "n", "failed", "risk"]].to_numpy().tolist()
    [[1.0, 4.0, 2.0, 0.5], [2.0, 2.0, 2.0, 0.75]]
    """

    name = "hazard"

    def __init__(self, strength: float = 10.0, groups: Sequence[str] = ()) -> None:
        self.strength = strength
        self.groups = groups

    def _fit(self, prefixes: Prefixes, looks: Looks, failed: Floats, weight: Floats) -> None:
        last = _last_looks(prefixes)
        bad = prefixes.failed == 1
        width = int(last.max(initial=0)) + 2  # the last column has no run: what the prior says
        rows, of_run = _group_rows(prefixes, tuple(self.groups))
        self.rows_ = rows
        self.n_ = np.stack([_still_going(last[members], width) for members in of_run])
        self.failed_ = np.stack([_still_going(last[m & bad], width) for m in of_run])
        self.risk_, self.prior_ = self._shrink()

    def _shrink(self) -> tuple[Floats, Floats]:
        """Return risk and prior of each group at each number of steps, wider groups first."""
        k = self.strength
        base = np.empty(len(self.rows_))
        risk, prior = np.empty(self.n_.shape), np.empty(self.n_.shape)
        for key, row in self.rows_.items():
            n, bad = self.n_[row], self.failed_[row]
            if not key:
                base[row] = bad[0] / n[0]
                prior[row] = base[row]
            else:
                wider = self.rows_[key[1:]]
                base[row] = (bad[0] + k * base[wider]) / (n[0] + k)
                prior[row] = expit(logit(risk[wider]) + logit(base[row]) - logit(base[wider]))
            risk[row] = prior[row]  # stays where there is no run and the prior is worth none
            np.divide(bad + k * prior[row], n + k, out=risk[row], where=n + k > 0)
        return risk, prior

    def _predict(self, prefixes: Prefixes, looks: Looks) -> Floats:
        row = self._rows_of(prefixes)[looks.run]
        return np.asarray(self.risk_[row, np.minimum(looks.seen, self.risk_.shape[1] - 1)])

    def support(self, prefixes: Prefixes, looks: Looks) -> tuple[Ints, Ints, Floats]:
        """Return how many training runs stand behind the hazard at each look.

        Returns
        -------
        n, failed, prior : ndarray, shape (n_looks,)
            Runs of the group that went on after so many steps, the failed among them, and the rate
            that theirs is shrunk to.
        """
        row = self._rows_of(prefixes)[looks.run]
        seen = np.minimum(looks.seen, self.risk_.shape[1] - 1)
        return self.n_[row, seen], self.failed_[row, seen], self.prior_[row, seen]

    def _rows_of(self, prefixes: Prefixes) -> Ints:
        """Return the row of each run: of its finest group that was seen."""
        columns = [_column(prefixes, name) for name in self.groups]
        keys = list(zip(*columns, strict=True)) if columns else [()] * len(prefixes)
        return np.fromiter(map(self._row_of, keys), dtype=np.int64, count=len(prefixes))

    def _row_of(self, key: tuple[str, ...]) -> int:
        while key not in self.rows_:
            key = key[1:]
        return self.rows_[key]

    def begin(self, **group: str) -> HazardStream:
        """Return a follower of one new run.

        Parameters
        ----------
        **group
            What is known of the run, e.g. ``model="m1"``; only the columns in `groups` matter.
        """
        self._check_fitted()
        key = tuple(str(group.get(name, "")) for name in self.groups)
        return HazardStream(self.risk_[self._row_of(key)].tolist())

    @property
    def table_(self) -> pd.DataFrame:
        """Hazard of each group after each number of steps."""
        import pandas as pd

        self._check_fitted()
        row, seen = np.nonzero(self.n_)
        row, seen = row[seen > 0], seen[seen > 0]
        n, bad = self.n_[row, seen], self.failed_[row, seen]
        low, high = shrunk_interval(bad, n, self.prior_[row, seen], self.strength)
        names = [" / ".join(key) or "all" for key in self.rows_]
        return pd.DataFrame(
            {
                "group": [names[r] for r in row.tolist()],
                "seen": seen,
                "n": n,
                "failed": bad,
                "risk": self.risk_[row, seen],
                "low": low,
                "high": high,
            }
        )

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the hazard of all runs over the number of steps, with its interval."""
        from matplotlib import pyplot

        table = self.table_
        table = table[table["group"] == "all"]
        if ax is None:
            ax = pyplot.subplots(figsize=(6, 3))[1]
        ax.fill_between(table["seen"], table["low"], table["high"], color=BLUE, alpha=0.2, lw=0)
        ax.plot(table["seen"], table["risk"], color=BLUE)
        ax.axhline(self.failed_[0, 0] / self.n_[0, 0], color=GREY, linestyle=":", linewidth=1)
        ax.set(xlabel="steps seen", ylabel="P(failure | still going on)", ylim=(0, 1))
        ax.set_title(f"{int(self.n_[0, 0])} runs, {LEVEL:.0%} interval", fontsize="medium")
        return ax

    def _state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        arrays = {"n": self.n_, "failed": self.failed_, "risk": self.risk_, "prior": self.prior_}
        return arrays, {"rows": [list(key) for key in self.rows_]}

    def _restore(self, arrays: dict[str, NDArray[Any]], meta: dict[str, Any]) -> None:
        self.rows_ = {tuple(key): row for row, key in enumerate(meta["rows"])}
        self.n_, self.failed_ = arrays["n"], arrays["failed"]
        self.risk_, self.prior_ = arrays["risk"], arrays["prior"]


class HazardStream:
    """Follows one run: the hazard depends on the number of steps alone."""

    __slots__ = ("_risk", "_seen")

    def __init__(self, risk: list[float]) -> None:
        self._risk, self._seen = risk, 0

    def observe(self, step: SeenStep) -> float:
        """Take in the next step and return the risk after it."""
        return self.advance()

    def advance(self) -> float:
        """Count one step more and return the risk after it."""
        self._seen += 1
        return self._risk[min(self._seen, len(self._risk) - 1)]


def _last_looks(prefixes: Prefixes) -> Ints:
    """Return after how many steps each run has its last decision point, 0 for none."""
    return np.bincount(prefixes.looks("all").run, minlength=len(prefixes))


def _still_going(last: Ints, width: int) -> Ints:
    """Count the runs that have a decision point after 0, 1, 2 … steps."""
    ended = np.bincount(last, minlength=width)
    return np.asarray(ended[::-1].cumsum()[::-1])


def _group_rows(
    prefixes: Prefixes, groups: tuple[str, ...]
) -> tuple[dict[tuple[str, ...], int], list[NDArray[np.bool_]]]:
    """Return a row number for each group, wider ones first, and the runs in each."""
    missing = [name for name in groups if name not in prefixes.runs]
    if missing:
        raise UsageError(
            f"no column {missing[0]!r} to group runs by",
            fix=f"one of {', '.join(map(str, prefixes.runs.columns))}",
        )
    rows: dict[tuple[str, ...], int] = {(): 0}
    members = [np.ones(len(prefixes), dtype=bool)]
    for depth in range(1, len(groups) + 1):
        columns = [_column(prefixes, name) for name in groups[-depth:]]
        keys = list(zip(*columns, strict=True))
        places: dict[tuple[str, ...], list[int]] = {}
        for run, key in enumerate(keys):
            places.setdefault(key, []).append(run)
        for key in sorted(places):
            rows[key] = len(members)
            members.append(np.zeros(len(prefixes), dtype=bool))
            members[-1][places[key]] = True
    return rows, members


def _column(prefixes: Prefixes, name: str) -> list[str]:
    """Return one column of the runs as text; what is unknown is empty."""
    if name not in prefixes.runs:
        return [""] * len(prefixes)
    column = prefixes.runs[name]
    return list(column.astype(object).where(column.notna(), "").map(str))
