"""Many runs under way on a thread of their own: how far they are, and an end to them."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from contextvars import copy_context
from copy import copy
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, NamedTuple, Protocol, TypeVar

from sag_research.errors import Caught, SagError

if TYPE_CHECKING:
    from sag_research.runtime import Experiment, ExperimentResult
    from sag_research.viz._batch_view import BatchView
    from sag_research.viz._tokens_widget import TokenView

__all__ = ["Batch", "Progress", "progress_view", "start_batch", "start_experiment"]

R = TypeVar("R")
_PROBLEMS: Final = 5
"""Messages of runs that could not be played that are kept."""


class Row(Protocol):
    """One run that is done, as a :class:`~sag_research.lab.BatchRow`."""

    @property
    def outcome(self) -> str: ...

    @property
    def error(self) -> str: ...


class Progress(NamedTuple):
    """How far a batch is; ``done`` is the sum of the outcomes and what could not be played."""

    total: int
    outcomes: dict[str, int]
    failed: int = 0
    """Runs that could not be played, or crashed."""
    problems: tuple[str, ...] = ()
    """What the last of them said."""

    @property
    def done(self) -> int:
        """Runs that came to an end of either kind."""
        return sum(self.outcomes.values()) + self.failed

    def __str__(self) -> str:
        counts = [f"{n} {outcome}" for outcome, n in sorted(self.outcomes.items()) if n]
        failed = [f"{self.failed} not played"] if self.failed else []
        return " · ".join([f"{self.done} of {self.total} runs", *counts, *failed])


class Stopped(SagError):
    """The batch was asked to end."""


class Batch(Generic[R]):
    """Runs under way; made by :func:`start_batch` and :func:`start_experiment`.

    It can be stopped from any thread, by :meth:`cancel` or the button of
    :func:`progress_view`: after the run that is being played. What is done stays in the log.
    """

    def __init__(self, work: Callable[[Batch[R]], R], name: str, total: int) -> None:
        self.loop_id = name
        self._cancelled, self._over = threading.Event(), threading.Event()
        self._guard = threading.Lock()
        self._progress = Progress(total, {})
        self._value: Any = None
        self._error: Exception | None = None
        threading.Thread(
            target=copy_context().run, args=(self._host, work), name="sag-batch", daemon=True
        ).start()

    def __repr__(self) -> str:
        return f"Batch({self.loop_id!r}, {self.progress}, {self.status})"

    @property
    def progress(self) -> Progress:
        """How far it is."""
        with self._guard:
            return self._progress

    @property
    def status(self) -> Literal["running", "completed", "cancelled", "failed"]:
        """How it ended, ``running`` while it has not."""
        if not self._over.is_set():
            return "running"
        if self._error is None:
            return "completed"
        return "cancelled" if isinstance(self._error, Stopped) else "failed"

    def cancel(self, reason: str = "") -> None:
        """End the batch after the run that is being played."""
        self._cancelled.set()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end, however it comes; returns whether it came in time."""
        return self._over.wait(timeout)

    def result(self, timeout: float | None = None) -> R:
        """Wait for the result.

        Raises
        ------
        TimeoutError
            If it does not come in time; the batch goes on.
        SagError
            If it was stopped; what is done is in the log.
        Exception
            What ended the batch.
        """
        if not self._over.wait(timeout):
            raise TimeoutError(f"batch {self.loop_id!r} is still running")
        if self._error is not None:
            raise self._error
        value: R = self._value
        return value

    def told(self, row: Row) -> None:
        """Count a run that is done; raises where the batch was cancelled."""
        with self._guard:
            total, outcomes, failed, problems = self._progress
            if row.error:
                kept = (*problems, row.error)[-_PROBLEMS:]
                self._progress = Progress(total, outcomes, failed + 1, kept)
            else:
                more = {row.outcome: outcomes.get(row.outcome, 0) + 1}
                self._progress = Progress(total, outcomes | more, failed, problems)
            over = self._progress.done >= total
        if not over:
            self.check()

    def count(self, result: ExperimentResult) -> None:
        """Take the counts from an experiment's log."""
        counts = Counter(run.status for run in result.runs)
        crashed = counts.pop("crashed", 0)
        with self._guard:
            self._progress = Progress(self._progress.total, dict(counts), crashed)

    def check(self) -> None:
        """Raise where the batch was cancelled."""
        if self._cancelled.is_set():
            raise Stopped("the batch was stopped", fix="start it again to carry it on")

    def _host(self, work: Callable[[Batch[R]], R]) -> None:
        try:
            with Caught() as caught:
                self._value = work(self)
            self._error = caught.error
        finally:
            self._over.set()


def start_batch(work: Callable[[Callable[[Row], None]], R], total: int, name: str = "") -> Batch[R]:
    """Play runs on a thread of their own, so that the notebook stays free.

    Parameters
    ----------
    work : callable
        Gets a function to call with each row as it is done, as ``told`` of
        :func:`sag_research.lab.play_batch`.
    total : int
        Runs that are to be played.
    name : str

    Examples
    --------
    >>> from sag_research.lab import BatchRow
    >>> def work(told):
    ...     told(BatchRow(run_id="a", task_id="t", policy="p", outcome="success"))
    ...     told(BatchRow(run_id="b", task_id="t", policy="p", error="the disk is full"))
    >>> batch = start_batch(work, 2, "demo")
    >>> batch.wait(10)
    True
    >>> batch
    Batch('demo', 2 of 2 runs · 1 success · 1 not played, completed)
    """
    return Batch(lambda batch: work(batch.told), name or "batch", total)


def start_experiment(experiment: Experiment, jobs: int = 1) -> Batch[ExperimentResult]:
    """Carry an experiment out on a thread of its own; it can be stopped between repeats.

    Parameters
    ----------
    experiment : Experiment
        It is not changed; ``experiment.result()`` shows what is done, at any time.
    jobs : int
        As for :meth:`Experiment.run <sag_research.Experiment.run>`.
    """
    whole = experiment.result()

    def work(batch: Batch[ExperimentResult]) -> ExperimentResult:
        part = copy(experiment)  # repeat by repeat: each is whole pairs of all arms
        for repeats in range(1, experiment.repeats + 1):
            batch.check()
            part.repeats = repeats
            part.run(jobs)
            batch.count(experiment.result())
        return experiment.result()

    return Batch(work, whole.experiment, whole.planned)


def progress_view(batch: Batch[Any], tokens: TokenView | None = None) -> BatchView:
    """Show how far a batch is, with a Stop button.

    Parameters
    ----------
    batch : Batch
    tokens : TokenView, optional
        Answers while they are written, shown below; see
        :func:`~sag_research.viz.token_view`.

    Returns
    -------
    BatchView
        A widget; ``.told`` is the line of counts.
    """
    from sag_research.viz._batch_view import BatchView

    return BatchView(batch, tokens)
