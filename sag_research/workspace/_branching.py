"""Branching a workspace's runs: fork, compare, replay; and keeping the log true."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sag_research.llm import RecordedCalls, recorded_calls
from sag_research.log import Problem, Redaction, VerifyReport
from sag_research.model import Run
from sag_research.runtime import Lineage, ReplayReport, RunDiff, diff, lineage, replay, replay_named
from sag_research.workspace._base import Base

__all__ = ["Branching"]


class Branching(Base):
    """The methods of a workspace that go back into runs."""

    def fork(
        self,
        run: str,
        *,
        at: int | None = None,
        step: int | None = None,
        intervention: Mapping[str, Any] | None = None,
        run_id: str | None = None,
        label: str = "",
    ) -> Run:
        """Branch a run at an event position or a step; costs one row and one event.

        Parameters
        ----------
        run : str
            The parent, as :meth:`resolve` takes it.
        at : int, optional
            The child sees the parent's events 1..at.
        step : int, optional
            Instead: the child sees everything up to the event of this 0-based step.
        intervention : mapping, optional
            What is changed; kept as the payload of ``run.forked``.
        """
        return self.store.fork(
            self.resolve(run), at=at, step=step, run_id=run_id, intervention=intervention,
            label=label,
        )  # fmt: skip

    def lineage(self, run: str) -> Lineage:
        """Return a run's relatives, root to leaves: ``.table_`` and ``.plot(ax=ax)``."""
        outcomes = dict(self.sql("SELECT run_id, outcome FROM runs").rows())
        return lineage(self.store, self.resolve(run), outcomes=outcomes)

    def diff(self, a: str, b: str) -> RunDiff:
        """Compare two runs: the shared prefix, where they part, and the aligned rest."""
        return diff(self.store, self.resolve(a), self.resolve(b))

    def recorded_calls(self, run: str) -> RecordedCalls:
        """List a run's recorded calls: what was asked, live or reused, and what it cost."""
        return recorded_calls(self.store, self.resolve(run))

    def replay(
        self, run: str, what: Any = None, *, strict: bool = True, **options: Any
    ) -> ReplayReport:
        """Run behaviours or an agent again against a recording; see :func:`sag_research.replay`.

        Parameters
        ----------
        run : str
            As :meth:`resolve` takes it.
        what : ReactiveRuntime, behaviours, callable ``agent(ctx)``, or str, optional
            A text names one of these: ``"module:name"`` or ``"path/to/file.py:name"``; default:
            what the run's configuration says under ``entry_point``.
        strict : bool
            Raise at the first divergence instead of reporting it.
        **options
            As for :func:`sag_research.replay`; for a text also ``factory=True``, where it names
            a function of ``(change, seed)`` that makes the agent.
        """
        if what is None or isinstance(what, str):
            return replay_named(self.store, self.resolve(run), what, strict=strict, **options)
        return replay(self.store, self.resolve(run), what, strict=strict, **options)

    def flatten(self, run: str, new_id: str | None = None) -> Run:
        """Copy a fork's whole lineage into a run of its own; the digests stay equal."""
        return self.store.flatten(self.resolve(run), new_id)

    def redact(self, run: str, position: int, reason: str = "") -> Redaction:
        """Take an event's text out of the log for good, and out of the warehouse.

        The digest stays, so :meth:`verify` still holds. Files of the warehouse that held the
        text are written anew and removed at once; where another process is syncing just now,
        with the next sync or query. Texts that other events hold too stay there: see ``kept``.

        Parameters
        ----------
        run : str
            As :meth:`resolve` takes it.
        position : int
            Of the event; of a fork also an inherited one, which then is gone for all.
        reason : str
            Stands in the text's place for good.
        """
        redaction = self.store.redact(self.resolve(run), position, reason)
        self.sync()
        return redaction

    def verify(self, run: str | None = None) -> VerifyReport:
        """Check that the log is what was written, and without a run, the warehouse as well.

        A damaged file of the warehouse is a problem of the run ``(warehouse)``.
        """
        if run is not None:
            return self.store.verify(self.resolve(run))
        report = self.store.verify()
        bad = [
            Problem("(warehouse)", 0, f"{file}: {fault}{_mended(fault)}")
            for file, fault in self.warehouse.faults()
        ]
        problems = (*report.problems, *bad)
        return VerifyReport(report.ok and not bad, report.runs, problems, report.redacted)


def _mended(fault: str) -> str:
    """Say what mends a file; one that may not be read says itself which right it needs."""
    return "" if "chmod" in fault else "; run `sag rebuild`"
