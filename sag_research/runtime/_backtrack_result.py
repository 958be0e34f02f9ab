"""What became of a run that was taken back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from sag_research._text import clip
from sag_research.log import SQLiteEventStore
from sag_research.model import Run, Usage
from sag_research.runtime._backtrack_context import own_steps
from sag_research.runtime._experiment_context import ending, usage_of

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["BacktrackResult"]

_PREDICTED: Final = ("risk", "evidence", "low", "high", "n", "n_failed")


class BacktrackResult:
    """What became of a run and of the attempts that left it.

    Attributes
    ----------
    runs : list of str
        The attempts in order; each but the first is a fork of the one before.
    outcome : str
        Of the last attempt.
    """

    def __init__(self, store: SQLiteEventStore, runs: Sequence[str], outcome: str) -> None:
        self.store, self.runs, self.outcome = store, list(runs), outcome

    def __repr__(self) -> str:
        times = len(self.runs) - 1
        many = f"{times} time{'s' * (times != 1)}"
        gone = ", abandoned" if self.abandoned else ""
        return (
            f"BacktrackResult({clip(self.runs[0], 40)!r}: {self.outcome}, taken back {many}{gone})"
        )

    @property
    def abandoned(self) -> bool:
        """Whether the last attempt was ended because it seemed lost."""
        run = self.store.get_run(self.runs[-1])
        end = ending(self.store, run.run_id, run.fork_position + 1)
        return end is not None and end.type == "run.abandoned"

    @property
    def table_(self) -> pd.DataFrame:
        """One row an attempt: what it did, how it ended, and what was last predicted of it.

        ``run_id fork_step own_steps exit_status risk evidence low high n n_failed``.
        """
        import pandas as pd

        rows = [_attempt_row(self.store, run_id) for run_id in self.runs]
        names = ["run_id", "fork_step", "own_steps", "exit_status", *_PREDICTED]
        return pd.DataFrame(rows, columns=names)

    @property
    def steps(self) -> int:
        """Steps of all attempts together; what a fork took over is counted once."""
        return sum(own_steps(self.store, run_id) for run_id in self.runs)

    @property
    def usage(self) -> Usage:
        """What all attempts took together; what is unknown of one is unknown of all."""
        parts = [usage_of(self.store, run_id) for run_id in self.runs]
        return Usage(
            tokens_in=_total([part.tokens_in for part in parts]),
            tokens_out=_total([part.tokens_out for part in parts]),
            cost_usd=_total([part.cost_usd for part in parts]),
        )


def _total(values: Sequence[Any]) -> Any:
    return None if None in values else sum(values)


def _attempt_row(store: SQLiteEventStore, run_id: str) -> tuple[Any, ...]:
    run: Run = store.get_run(run_id)
    own = run.fork_position + 1
    kept = store.count_steps(run_id, own) if run.parent_id else 0
    fork = kept - 1 if kept else None
    end = ending(store, run_id, own)
    predicted = list(store.read(run_id, own, types=("deadend.predicted",)))
    last: Mapping[str, Any] = predicted[-1].payload if predicted else {}
    status = None if end is None else end.payload.get("exit_status")
    return (run_id, fork, own_steps(store, run_id), status, *map(last.get, _PREDICTED))
