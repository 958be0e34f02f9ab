"""A cohort of runs as arrays: the data that every estimator of this room is fitted on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from sag_research.errors import UsageError

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from sag_research.extract import Vocabulary
    from sag_research.viz import PrefixExplorer
    from sag_research.warehouse.corpus import Corpus

__all__ = ["Looks", "Prefixes", "StepTable", "is_on_grid", "look_grid"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
T = TypeVar("T")

TEXTS = ("thought", "action", "observation")
NUMBERS = ("exit_code", "tokens_in", "tokens_out", "cost_usd", "seconds")


class Looks(NamedTuple):
    """Decision points: after how many steps of which run a score is asked for.

    Both arrays have shape (n_looks,), sorted by run, then by number of steps.
    """

    run: Ints
    """Index of the run in its :class:`Prefixes`."""
    seen: Ints
    """Number of steps seen, 1 for the first step alone."""


class StepTable:
    """The steps of many runs, one run after another; shared by all cohorts cut from it.

    Parameters
    ----------
    tokens : ndarray of int32, shape (n_steps,)
        Code of each step's token, an index into `names`.
    names : sequence of str
        The tokens, each ``verb|object|result``.
    columns : pyarrow.Table, optional
        Texts ``thought action observation`` and numbers ``exit_code tokens_in tokens_out
        cost_usd seconds``, `n_steps` rows; any of them may be missing.
    entities : (offsets, ids, names), optional
        Entities that each step mentions, as rows of a compressed sparse matrix: step *i* mentions
        ``ids[offsets[i]:offsets[i + 1]]``, indices into `names`.
    vocabulary : Vocabulary, optional
        What made the tokens, so that a new step can be given one.
    """

    def __init__(
        self,
        tokens: NDArray[np.int32],
        names: Sequence[str],
        columns: pa.Table | None = None,
        entities: tuple[Ints, NDArray[np.int32], Sequence[str]] | None = None,
        vocabulary: Vocabulary | None = None,
    ) -> None:
        self.tokens = np.ascontiguousarray(tokens, dtype=np.int32)
        self.names = tuple(names)
        self.columns = columns
        self.entities = entities
        self.vocabulary = vocabulary
        self._memo: dict[str, Any] = {}
        if columns is not None and columns.num_rows != len(self.tokens):
            raise UsageError(f"{columns.num_rows} rows of text for {len(self.tokens)} steps")

    def __len__(self) -> int:
        return len(self.tokens)

    def memo(self, key: str, build: Callable[[], T]) -> T:
        """Return what `build` makes, made once.

        Only for what depends on each run's own steps: nothing that is counted over runs, and
        nothing that has seen a label, may be kept here, or it leaks from fold to fold.
        """
        if key not in self._memo:
            self._memo[key] = build()
        value: T = self._memo[key]
        return value

    @property
    def has_text(self) -> bool:
        """Whether the steps' texts are at hand."""
        return self.columns is not None and set(TEXTS) <= set(self.columns.column_names)

    def text(self, name: str) -> list[str]:
        """Return one text column as strings, empty ones where there is none."""
        columns = self.columns
        if columns is None or name not in columns.column_names:
            return [""] * len(self)
        return self.memo(
            f"text {name}", lambda: [value or "" for value in columns.column(name).to_pylist()]
        )

    def number(self, name: str) -> Floats:
        """Return one column of numbers, NaN where unknown."""
        columns = self.columns
        if columns is None or name not in columns.column_names:
            return np.full(len(self), np.nan)
        return self.memo(f"number {name}", lambda: _as_floats(columns.column(name)))


def _as_floats(column: pa.ChunkedArray) -> Floats:
    series = column.to_pandas()
    return np.asarray(series.to_numpy(dtype=np.float64, na_value=np.nan))


def is_on_grid(seen: int) -> bool:
    """Tell whether the default grid looks after this many steps.

    Examples
    --------
    >>> [seen for seen in range(1, 41) if is_on_grid(seen)] == look_grid(40).tolist()
    True
    """
    if seen <= 10:
        return seen >= 1
    return seen % 2 == 0 if seen <= 30 else seen % 5 == 0


def look_grid(longest: int) -> Ints:
    """Return the numbers of steps after which a run is looked at.

    After each of the first 10 steps, then every 2 steps to 30, then every 5. A monitor that
    looks on this grid may raise an alarm up to four steps late.

    Examples
    --------
    >>> look_grid(14).tolist()
    [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14]
    """
    return np.array([n for n in range(1, longest + 1) if is_on_grid(n)], dtype=np.int64)


@dataclass(frozen=True, eq=False, repr=False)
class Prefixes:
    """Runs with their tokens, groups and labels.

    Attributes
    ----------
    runs : DataFrame
        One row a run, index 0 … n_runs - 1: ``run_id task_id dataset repo agent model outcome
        known_at_step started_at n_steps``, and what else the source gave. ``known_at_step`` is
        the step (0-based) from which on the outcome stands in the run itself, or NA.
    start, stop : ndarray of int64, shape (n_runs,)
        Rows of each run in `table`.
    table : StepTable
        The steps.
    left_out : dict of str to int
        How many runs were left out of this cohort, by reason.

    Examples
    --------
    >>> p = Prefixes.from_tokens([["look|src|ok", "edit|src|ok"], ["look|src|ok"]],
    ...                          outcomes=["success", "failure"])
    >>> p
    Prefixes(2 runs, 2 tasks, 3 steps, 1 failed, 1 succeeded)
    >>> p.looks().seen.tolist()     # a look leaves at least one step to save
    [1]
    """

    runs: pd.DataFrame
    start: Ints
    stop: Ints
    table: StepTable
    left_out: dict[str, int] = field(default_factory=dict)

    @classmethod
    def from_tokens(
        cls,
        tokens: Sequence[Sequence[str]],
        outcomes: Sequence[str],
        tasks: Sequence[str] | None = None,
        columns: pa.Table | None = None,
        **more: Sequence[Any],
    ) -> Prefixes:
        """Make a cohort from token names, one sequence a run.

        Parameters
        ----------
        tokens : sequence of sequences of str
            Each run's tokens.
        outcomes : sequence of str
            ``success``, ``failure`` or ``unknown`` of each run.
        tasks : sequence of str, optional
            Each run's task; a task of its own for each by default.
        columns : pyarrow.Table, optional
            Texts and numbers of all steps, see :class:`StepTable`.
        **more
            Further columns of ``runs``, e.g. ``model=[…]``.
        """
        import pandas as pd

        lengths = np.array([len(run) for run in tokens], dtype=np.int64)
        names = sorted({name for run in tokens for name in run})
        code = {name: i for i, name in enumerate(names)}
        flat = np.array([code[name] for run in tokens for name in run], dtype=np.int32)
        stop = np.cumsum(lengths)
        known: dict[str, Any] = {
            "run_id": [f"run-{i:05d}" for i in range(len(lengths))],
            "task_id": tasks if tasks is not None else [f"t{i}" for i in range(len(lengths))],
            "outcome": list(outcomes),
        }
        runs = pd.DataFrame(known | more)
        return cls.of(runs, stop - lengths, stop, StepTable(flat, names, columns))

    @classmethod
    def from_corpus(cls, corpus: Corpus, where: str = "true") -> Prefixes:
        """Read a corpus: tokens and labels of its runs, without texts and entities.

        Parameters
        ----------
        corpus : Corpus
        where : str
            A condition in SQL over its table ``runs``.

        Raises
        ------
        NotEnoughDataError
            If no run is left.
        """
        from sag_research.deadend._from_corpus import read_corpus

        return read_corpus(corpus, where)

    @classmethod
    def of(
        cls,
        runs: pd.DataFrame,
        start: Ints,
        stop: Ints,
        table: StepTable,
        left_out: Mapping[str, int] | None = None,
    ) -> Prefixes:
        """Check and complete the columns of `runs`, and make a cohort of them."""
        import pandas as pd

        runs = runs.reset_index(drop=True).copy()
        for name in ("dataset", "repo", "agent", "model"):
            if name not in runs:
                runs[name] = ""
        for name in ("known_at_step", "started_at"):
            if name not in runs:
                runs[name] = pd.NA
        runs["known_at_step"] = runs["known_at_step"].astype("Int64")
        runs["n_steps"] = np.asarray(stop) - np.asarray(start)
        strange = set(runs["outcome"]) - {"success", "failure", "unknown"}
        if strange:
            raise UsageError(
                f"outcomes {sorted(map(str, strange))} are not known",
                fix="say success, failure or unknown",
            )
        first, end = np.asarray(start, np.int64), np.asarray(stop, np.int64)
        if (end < first).any():
            raise UsageError(f"run {int(np.argmax(end < first))} stops before it starts")
        return cls(runs, first, end, table, dict(left_out or {}))

    def __len__(self) -> int:
        return len(self.start)

    def __repr__(self) -> str:
        failed, known = int((self.failed == 1).sum()), int(np.isfinite(self.failed).sum())
        unknown = f", {len(self) - known} unknown" if known < len(self) else ""
        return (
            f"Prefixes({len(self)} runs, {self.runs['task_id'].nunique()} tasks, "
            f"{int(self.n_steps.sum())} steps, {failed} failed, {known - failed} succeeded"
            f"{unknown})"
        )

    @property
    def n_steps(self) -> Ints:
        """Number of steps of each run, shape (n_runs,)."""
        return self.stop - self.start

    @property
    def failed(self) -> Floats:
        """1 for failure, 0 for success, NaN for unknown; shape (n_runs,)."""
        outcome = self.runs["outcome"].to_numpy()
        return np.select([outcome == "failure", outcome == "success"], [1.0, 0.0], np.nan)

    def groups(self, by: str = "task_id") -> Ints:
        """Return a group number for each run, shape (n_runs,)."""
        if by not in self.runs:
            raise UsageError(
                f"no column {by!r} to group runs by", fix=f"one of {', '.join(self.runs.columns)}"
            )
        number = self.runs.groupby(by, sort=True, dropna=False).ngroup()
        return np.asarray(number.to_numpy(), dtype=np.int64)

    def take(self, which: Iterable[int] | NDArray[Any]) -> Prefixes:
        """Return the runs of these indices, or where a mask of shape (n_runs,) is true."""
        chosen = np.asarray(which)
        if chosen.dtype == bool:
            if chosen.shape != (len(self),):
                raise UsageError(f"a mask of shape {chosen.shape} for {len(self)} runs")
            chosen = np.flatnonzero(chosen)
        chosen = chosen.astype(np.int64)
        runs = self.runs.iloc[chosen].reset_index(drop=True)
        return Prefixes(runs, self.start[chosen], self.stop[chosen], self.table)

    @property
    def labelled(self) -> Prefixes:
        """The runs whose outcome is known."""
        return self.take(np.isfinite(self.failed))

    def sequences(self) -> list[NDArray[np.int32]]:
        """Return each run's token codes."""
        return [self.table.tokens[a:b] for a, b in zip(self.start, self.stop, strict=True)]

    def looks(self, grid: str | Sequence[int] = "default") -> Looks:
        """Return the decision points of all runs.

        A look after *t* steps counts where at least one step is left, and where the outcome does
        not stand in the steps seen (``known_at_step``).

        Parameters
        ----------
        grid : {"default", "all"} or sequence of int
            :func:`look_grid`, after every step, or after these numbers of steps.
        """
        last = self.n_steps - 1
        known = self.runs["known_at_step"].to_numpy(dtype=np.float64, na_value=np.inf)
        last = np.minimum(last, known).astype(np.int64)
        longest = int(last.max(initial=0))
        if isinstance(grid, str):
            if grid not in ("default", "all"):
                raise UsageError(f"no grid {grid!r}", fix="say 'default', 'all' or give numbers")
            points = look_grid(longest) if grid == "default" else np.arange(1, longest + 1)
        else:
            points = np.unique(np.asarray(grid, dtype=np.int64))
            if len(points) and points[0] < 1:
                raise UsageError(
                    f"no look after {points[0]} steps", fix="1 is after the first step"
                )
        counts = np.searchsorted(points, last, side="right")
        run = np.repeat(np.arange(len(self), dtype=np.int64), counts)
        first = np.repeat(np.cumsum(counts) - counts, counts)
        return Looks(run, points[np.arange(len(run)) - first])

    def every_step(self) -> Looks:
        """Return a look after each step of each run, the last one too (for drawing)."""
        run = np.repeat(np.arange(len(self), dtype=np.int64), self.n_steps)
        first = np.repeat(np.cumsum(self.n_steps) - self.n_steps, self.n_steps)
        return Looks(run, np.arange(len(run)) - first + 1)

    def rows(self, looks: Looks) -> Ints:
        """Return the row in `table` of the last step that each look has seen."""
        return self.start[looks.run] + looks.seen - 1

    def explore(self, **options: Any) -> PrefixExplorer:
        """Walk through the beginnings that runs share: a widget, a table, a page, a figure.

        Parameters
        ----------
        **options
            As for :class:`sag_research.viz.PrefixExplorer`: ``min_runs``, ``depth``, ``view``,
            ``title``, ``height``.
        """
        return self.show(**options)

    def show(self, **options: Any) -> PrefixExplorer:
        """Return what :meth:`explore` does."""
        from sag_research.viz import PrefixExplorer

        return PrefixExplorer(self, **options)

    def weights(self, looks: Looks) -> Floats:
        """Return the looks' weights: each run weighs 1, spread evenly over its looks."""
        return 1.0 / np.bincount(looks.run, minlength=len(self))[looks.run]
