"""Success of agents, models or whatever else runs differ in, compared on the same tasks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sag_research._text import html_table
from sag_research.deadend._bootstrap import (
    DRAWS,
    difference,
    estimate,
    ratio_statistic,
    resamples,
    sample,
)
from sag_research.deadend._metrics import LEVEL, holm, wilson
from sag_research.deadend._prefixes import Floats, Ints, Prefixes
from sag_research.errors import NotEnoughDataError, UsageError

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Comparison", "compare", "pass_at_k"]

KS = (1, 2, 4, 8)


def pass_at_k(successes: int, n: int, k: int) -> float:
    """Chance that at least one of k attempts succeeds, estimated without bias from n of them.

    ``1 - C(n - c, k) / C(n, k)`` for c successes; NaN where n < k.

    References
    ----------
    M. Chen et al., "Evaluating large language models trained on code", arXiv 2107.03374, eq. 1.

    Examples
    --------
    >>> pass_at_k(successes=1, n=4, k=2)    # 3 of the 6 pairs hold the success
    0.5
    """
    if not 0 <= successes <= n or k < 1:
        raise UsageError(f"{successes} successes of {n}, k = {k}, make no sense")
    if n < k:
        return math.nan
    return 1.0 - math.comb(n - successes, k) / math.comb(n, k)


class Cell(NamedTuple):
    """Runs of one value of the column, task by task."""

    success: Floats
    """Successes of each task, shape (n_tasks,)."""
    runs: Floats


class Comparison:
    """Success by the values of a column.

    Attributes
    ----------
    by : str
    table_ : DataFrame
        One row a value: ``n n_tasks n_success n_failure n_unknown rate wilson_low wilson_high low
        high`` and ``pass_k``, ``pass_k_low``, ``pass_k_high``, ``n_pass_k`` for each k. ``low``
        and ``high`` resample tasks: runs of one task are alike, which Wilson's interval does not
        know. pass@k is a mean over the ``n_pass_k`` tasks with k known runs or more.
    paired_ : DataFrame
        One row a pair of values: mean over their common tasks of the difference of success rates,
        with its interval, p-value and Holm's adjustment.
    """

    def __init__(self, by: str, table: pd.DataFrame, paired: pd.DataFrame) -> None:
        self.by, self.table_, self.paired_ = by, table, paired

    def __repr__(self) -> str:
        runs, tasks = int(self.table_["n"].sum()), int(self.table_["n_tasks"].max())
        return (
            f"Comparison(by {self.by!r}: {len(self.table_)} values, {runs} runs, ≤ {tasks} tasks)"
        )

    def _repr_html_(self) -> str:
        rows = [
            [row[self.by], row["n"], row["n_unknown"], _shown(row, "rate", "low", "high")]
            for row in self.table_.to_dict("records")
        ]
        pairs = [
            [row["one"], row["other"], row["n_tasks"], _shown(row, "difference", "low", "high")]
            for row in self.paired_.to_dict("records")
        ]
        return html_table([self.by, "runs", "unknown", "success"], rows) + html_table(
            ["one", "other", "tasks", "difference"], pairs
        )


def _shown(row: Mapping[Any, Any], value: str, low: str, high: str) -> str:
    numbers = [row[name] for name in (value, low, high)]
    return "{:.3f} [{:.3f}, {:.3f}]".format(*numbers)


def compare(
    runs: pd.DataFrame | Prefixes,
    by: str = "model",
    task: str = "task_id",
    ks: Sequence[int] = KS,
    seed: int = 0,
    draws: int = DRAWS,
    level: float = LEVEL,
) -> Comparison:
    """Compare success between the values of a column.

    Parameters
    ----------
    runs : DataFrame or Prefixes
        One row a run, with ``outcome`` and the columns `by` and `task`.
    by : str
    task : str
    ks : sequence of int
        For pass@k.
    seed, draws : int
        Of the resamples of tasks.
    level : float

    Raises
    ------
    NotEnoughDataError
        If no outcome is known.

    Notes
    -----
    Unknown outcomes are counted and left out; they are never failures. The difference of two
    values is taken task by task, over the tasks that both have known runs of, each task weighing
    1: what makes a task hard then drops out. With few tasks the interval is too narrow.
    """
    frame = runs.runs if isinstance(runs, Prefixes) else runs
    for name in (by, task, "outcome"):
        if name not in frame:
            raise UsageError(f"no column {name!r}", fix=f"one of {', '.join(map(str, frame))}")
    known = frame["outcome"].isin(["success", "failure"])
    if not known.any():
        raise NotEnoughDataError(
            "cannot compare success",
            why=f"the outcome of none of {len(frame)} runs is known",
            fix="label runs with `sag labels FILE` or ws.label(file)",
        )
    tasks = _tasks(frame.loc[known, task])
    labels = _names(frame[by])
    values = labels[known].to_numpy()
    good = np.asarray(frame.loc[known, "outcome"] == "success", dtype=np.float64)
    names = sorted(labels.unique())
    n_tasks = int(tasks.max()) + 1
    cells = {name: _cell(good, tasks, np.asarray(values == name), n_tasks) for name in names}
    drawn = resamples(n_tasks, draws, seed)
    unknown = labels[~known].value_counts()
    rows = [
        {by: name, **_row(cells[name], drawn, int(unknown.get(name, 0)), ks, level)}
        for name in names
    ]
    return Comparison(by, _frame(rows), _paired(cells, drawn, level))


def _names(column: pd.Series[Any]) -> pd.Series[str]:
    """Return the values as text; what is missing is a value of its own, the empty one."""
    return column.astype(object).where(column.notna(), "").astype(str)


def _tasks(column: pd.Series[Any]) -> Ints:
    """Number the tasks; a run without one is a task of its own."""
    missing = (column.isna() | (column.astype(str) == "")).to_numpy(np.bool_)
    names = [
        (1, str(row)) if absent else (0, str(name))
        for row, (name, absent) in enumerate(zip(column, missing, strict=True))
    ]
    order = {name: i for i, name in enumerate(sorted(set(names)))}
    return np.array([order[name] for name in names], np.int64)


def _frame(rows: list[dict[str, object]]) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame(rows)


def _cell(good: Floats, tasks: Ints, mine: NDArray[np.bool_], n_tasks: int) -> Cell:
    return Cell(
        np.bincount(tasks[mine], good[mine], minlength=n_tasks).astype(np.float64),
        np.bincount(tasks[mine], minlength=n_tasks).astype(np.float64),
    )


def _row(
    cell: Cell, drawn: Floats, unknown: int, ks: Sequence[int], level: float
) -> dict[str, object]:
    n, good = int(cell.runs.sum()), int(cell.success.sum())
    every = np.arange(len(cell.runs))
    rate = ratio_statistic(cell.success, cell.runs, every, len(every))
    found = estimate(sample(rate, drawn, n), level)
    low, high = wilson(good, n, level)
    row: dict[str, object] = {
        "n": n + unknown,
        "n_tasks": int((cell.runs > 0).sum()),
        "n_success": good,
        "n_failure": n - good,
        "n_unknown": unknown,
        "rate": found.value,
        "wilson_low": low,
        "wilson_high": high,
        "low": found.low,
        "high": found.high,
    }
    for k in ks:
        enough = cell.runs >= k
        chance = np.array(
            [
                pass_at_k(int(c), int(m), k) if m >= k else 0.0
                for c, m in zip(cell.success, cell.runs, strict=True)
            ]
        )
        mean = ratio_statistic(chance, enough.astype(np.float64), every, len(every))
        at = estimate(sample(mean, drawn, n), level)
        row |= {f"pass_{k}": at.value, f"pass_{k}_low": at.low, f"pass_{k}_high": at.high}
        row[f"n_pass_{k}"] = int(enough.sum())
    return row


def _paired(cells: dict[str, Cell], drawn: Floats, level: float) -> pd.DataFrame:
    import pandas as pd

    every, rows = np.arange(drawn.shape[1]), []
    nothing = sample(lambda times: np.zeros(len(times)), drawn, 0)
    for one, other in combinations(cells, 2):
        both = (cells[one].runs > 0) & (cells[other].runs > 0)
        gap = np.zeros(len(both))
        for name, sign in ((one, 1), (other, -1)):
            gap[both] += sign * cells[name].success[both] / cells[name].runs[both]
        mean = ratio_statistic(gap, both.astype(np.float64), every, len(every))
        found = difference(sample(mean, drawn, 0), nothing, level)
        if both.sum() < 2:  # one task says nothing about others
            found = found._replace(low=math.nan, high=math.nan, p=math.nan)
        rows.append((one, other, int(both.sum()), *found))
    names = ["one", "other", "n_tasks", "difference", "low", "high", "p"]
    table = pd.DataFrame(rows, columns=names)
    table["p_holm"] = holm(table["p"].to_numpy(np.float64))
    return table
