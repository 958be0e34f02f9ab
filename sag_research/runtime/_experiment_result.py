"""What an experiment found: its continuations, its arms, and their paired differences."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from sag_research._text import clip, escape, html_table
from sag_research.runtime._stats import LEVEL, Estimate, paired_difference, wilson

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

__all__ = ["Continuation", "ExperimentResult"]

_MEASURES: Final = ("success", "steps", "tokens", "cost_usd")
_BOUNDS: Final = {"success": (-1.0, 1.0)}
"""Of the difference of two values of a measure."""


class Continuation(msgspec.Struct, frozen=True, kw_only=True):
    """One repeat of one arm, as it went."""

    run_id: str
    parent_id: str
    fork_position: int
    task_id: str
    arm: str
    repeat: int
    seed: int
    status: str
    """``success``, ``failure``, ``unknown`` or ``crashed``."""
    exit_status: str | None
    detail: str | None
    score: float | None
    steps: int
    """Own ones."""
    tokens: int | None
    """Read and written; ``None`` where unknown, never 0."""
    cost_usd: float | None
    attempts: int
    """Forks that it took: those before the last were interrupted."""

    @property
    def success(self) -> float | None:
        """1 for a success, 0 for a failure or a crash, ``None`` where unknown."""
        return None if self.status == "unknown" else float(self.status == "success")


class ArmRow(NamedTuple):
    """One arm; ``n = success + failure + crashed + unknown``."""

    arm: str
    n: int
    success: int
    failure: int
    crashed: int
    unknown: int
    rate: float
    low: float
    high: float
    rate_if_unknown_failed: float
    rate_if_unknown_succeeded: float
    steps: float
    tokens: float
    cost_usd: float


class DifferenceRow(NamedTuple):
    """An arm against the control, in one measure."""

    arm: str
    control: str
    measure: str
    n_pairs: int
    n_left_out: int
    n_tasks: int
    difference: float
    low: float
    high: float
    note: str
    """Why there is no interval, where there is none."""


class ExperimentResult:
    """The continuations of an experiment, counted by intention to treat.

    Attributes
    ----------
    experiment : str
        Its id, as it stands in the interventions.
    arms : list of str
        The first is the control.
    runs : list of Continuation
        Every continuation that was started.
    planned : int
        Continuations that the design asks for.

    Notes
    -----
    Every started continuation counts in its own arm, whatever it did. The rate is successes per
    continuation that is not unknown: a crash is no success, and unknown is never failure; what
    the unknown could change stands beside it. Rates carry Wilson's interval, which takes the
    continuations as independent: of several tasks, the paired differences, whose intervals are
    clustered by task, are the safer reading.
    """

    def __init__(
        self,
        experiment: str,
        arms: Sequence[str],
        runs: Sequence[Continuation],
        planned: int,
        seed: int = 7,
    ) -> None:
        self.experiment, self.arms, self.runs = experiment, list(arms), list(runs)
        self.planned, self.seed = planned, seed

    def __repr__(self) -> str:
        tasks = len({run.task_id for run in self.runs})
        name = clip(self.experiment, 40)
        counts = f"{len(self.runs)} of {self.planned} continuations, {tasks} tasks"
        return f"ExperimentResult({name!r}, {len(self.arms)} arms, {counts})"

    @property
    def runs_(self) -> pd.DataFrame:
        """One row a continuation, with the columns of :class:`Continuation`."""
        import pandas as pd

        rows = [msgspec.structs.astuple(run) for run in self.runs]
        frame = pd.DataFrame(rows, columns=list(Continuation.__struct_fields__))
        return frame.astype({"tokens": "Int64", "score": float, "cost_usd": float})

    @property
    def table_(self) -> pd.DataFrame:
        """One row an arm: counts, rate of success with its interval, medians of what it took."""
        import pandas as pd

        return pd.DataFrame(self._arm_rows(), columns=list(ArmRow._fields))

    @property
    def differences_(self) -> pd.DataFrame:
        """One row for each arm but the control, and measure: the mean paired difference.

        Pairs are the continuations of one repeat of one parent run; a pair in which either
        value is unknown is left out and counted. The interval speaks about tasks, so of one task
        there is none, and ``note`` says so.
        """
        import pandas as pd

        return pd.DataFrame(self._difference_rows(), columns=list(DifferenceRow._fields))

    def _arm_rows(self) -> list[ArmRow]:
        return [_arm_row(arm, [run for run in self.runs if run.arm == arm]) for arm in self.arms]

    def _difference_rows(self) -> list[DifferenceRow]:
        control = self.arms[0]
        rows = []
        for arm in self.arms[1:]:
            pairs = list(self._pairs(control, arm))
            for measure in _MEASURES:
                known = [
                    (one.task_id, float(theirs) - float(ours))
                    for one, other in pairs
                    if (ours := getattr(one, measure)) is not None
                    and (theirs := getattr(other, measure)) is not None
                ]
                found: Estimate = paired_difference(known, bounds=_BOUNDS.get(measure))
                left_out = len(pairs) - len(known)
                counts = (found.n, left_out, found.clusters)
                ends = (found.value, found.low, found.high)
                rows.append(DifferenceRow(arm, control, measure, *counts, *ends, found.note))
        return rows

    def _pairs(self, control: str, arm: str) -> Iterator[tuple[Continuation, Continuation]]:
        ours = {_pair_key(run): run for run in self.runs if run.arm == control}
        for run in self.runs:
            if run.arm == arm and (one := ours.get(_pair_key(run))) is not None:
                yield one, run

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw each arm's rate of success with its interval.

        Parameters
        ----------
        ax : Axes, optional
            Where to draw; default: new axes.
        """
        if ax is None:
            from matplotlib import pyplot

            ax = pyplot.subplots(figsize=(6, 1 + 0.5 * len(self.arms)))[1]
        for place, row in enumerate(self._arm_rows()):
            if not math.isnan(row.rate):
                ax.plot([row.low, row.high], [place, place], color="#0072b2", linewidth=2)
                ax.plot([row.rate], [place], "o", color="#0072b2")
        ax.set_yticks(range(len(self.arms)))
        names = [f"{clip(row.arm, 30)} (n={row.n - row.unknown})" for row in self._arm_rows()]
        for label in ax.set_yticklabels(names):
            label.set_parse_math(False)  # names are no formulas
        ax.set(xlim=(-0.02, 1.02), ylim=(len(self.arms) - 0.5, -0.5))
        ax.set_xlabel(f"rate of success, {LEVEL:.0%} interval")
        return ax

    def _repr_html_(self) -> str:
        arms = html_table(ArmRow._fields, [_rounded(row) for row in self._arm_rows()])
        differences = html_table(
            DifferenceRow._fields, [_rounded(row) for row in self._difference_rows()]
        )
        return f"<div><b>{escape(repr(self))}</b>{arms}{differences}</div>"


def _pair_key(run: Continuation) -> tuple[str, int, int]:
    return run.parent_id, run.fork_position, run.repeat


def _arm_row(arm: str, runs: list[Continuation]) -> ArmRow:
    n = len(runs)
    counts = {name: sum(run.status == name for run in runs)
              for name in ("success", "failure", "crashed", "unknown")}  # fmt: skip
    success, unknown = counts["success"], counts["unknown"]
    known = n - unknown
    low, high = wilson(success, known)
    return ArmRow(
        arm=arm,
        n=n,
        **counts,
        rate=_share(success, known),
        low=low,
        high=high,
        rate_if_unknown_failed=_share(success, n),
        rate_if_unknown_succeeded=_share(success + unknown, n),
        steps=_median(runs, lambda run: run.steps),
        tokens=_median(runs, lambda run: run.tokens),
        cost_usd=_median(runs, lambda run: run.cost_usd),
    )


def _share(part: int, n: int) -> float:
    return part / n if n else math.nan


def _median(runs: list[Continuation], of: Callable[[Continuation], float | None]) -> float:
    values = [value for run in runs if (value := of(run)) is not None]
    return float(median(values)) if values else math.nan


def _rounded(row: Sequence[Any]) -> list[Any]:
    return [f"{value:.4g}" if isinstance(value, float) else value for value in row]
