"""Filling a workspace: files, public sets, plain records, outcomes."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sag_research.errors import StoreError, UsageError, WarehouseError
from sag_research.ingest import (
    IngestReport,
    LabelReport,
    Labels,
    add,
    apply_labels,
    ingest,
    load_public,
    read_labels,
)
from sag_research.ingest.registry import public_set
from sag_research.lab import record_outcome
from sag_research.model import Outcome, OutcomeName
from sag_research.workspace._base import Base

if TYPE_CHECKING:
    from sag_research.exchange import MergeReport

__all__ = ["Filling"]


class Filling(Base):
    """The methods of a workspace that put runs and outcomes in."""

    def ingest(
        self,
        *paths: str | PathLike[str],
        labels: str | PathLike[str] | Labels | None = None,
        format: str | None = None,
        progress: bool = True,
        jobs: int = 1,
        recheck: bool = False,
        redact: bool = False,
    ) -> IngestReport:
        """Read trajectories from files and folders.

        Parameters
        ----------
        *paths : path-like
            Files, or folders walked to their end.
        labels : path-like or Labels, optional
            A report, a folder of reports or a CSV; see :meth:`label`.
        format : str, optional
            Take every file for this format; default: each file's content decides. A file that
            looks like another format is refused, unless ``!`` stands behind the name.
        progress : bool
            Show a progress bar where someone can see it.
        jobs : int
            Processes that read; pays for many or large files. The result is the same.
        recheck : bool
            Read files again that look as they did when they were last read.
        redact : bool
            Replace secrets by tokens before anything is written; ``.redacted`` of the report
            counts them. What was in the workspace before stays; see :meth:`redact_secrets`.

        Returns
        -------
        IngestReport
            Every input is in it: ingested, duplicate, ignored or rejected, with the reason.
        """
        if not paths:
            raise UsageError("nothing to ingest", fix="name at least one file or folder")
        report = ingest(
            self.store,
            list(paths),
            labels=labels,
            format=format,
            progress=progress,
            jobs=jobs,
            recheck=recheck,
            redact=redact,
        )
        self._settle()
        return report

    def _settle(self) -> None:
        """Bring the warehouse up to date, and the log into one file.

        Where that cannot be done, e.g. on a full disk, the runs are in the log all the same.
        """
        for step in (self.sync, self.store.checkpoint):
            try:
                step()
            except (StoreError, WarehouseError) as error:
                warnings.warn(f"the runs are in the log, but {error}", stacklevel=3)

    def merge(self, *others: str | PathLike[str]) -> MergeReport:
        """Take over the runs of other workspaces, with what was said of them.

        Parameters
        ----------
        *others : path-like
            Their folders; they are only read.

        Returns
        -------
        MergeReport
            Runs copied, extended, known, in conflict and refused; sources that contradict each
            other; and runs that are now here twice, of which one is hidden.
        """
        from sag_research.exchange import merge

        report = merge(self.store, others)
        self._settle()
        return report

    def load_public(
        self, name: str, folder: str | PathLike[str] | None = None, *, limit: int | None = None
    ) -> IngestReport:
        """Read a public set that was fetched with ``sag datasets fetch``.

        Parameters
        ----------
        name : str
            As ``sag datasets list`` has it.
        folder : path-like, optional
            Where its files are; default ``sag-datasets/NAME``.
        limit : int, optional
            Only so many runs, for sets that are read through agentpile.
        """
        place = Path("sag-datasets") / name if folder is None else Path(folder)
        if public_set(name).formats:
            return self.ingest(place)
        report = load_public(self.store, name, place, limit=limit)
        self._settle()
        return report

    def add(self, record: Mapping[str, Any] | Iterable[Mapping[str, Any]]) -> str | list[str]:
        """Add one run, or several, from plain dictionaries.

        Parameters
        ----------
        record : mapping or iterable of mappings
            ``{"task_id": …, "steps": [{"thought": …, "action": …, "observation": …}], …}``, the
            shape of native JSONL.

        Returns
        -------
        str or list of str
            The run's id, or one for each record.
        """
        if isinstance(record, Mapping):
            return add(self.store, record)[0]
        return add(self.store, record)

    def record_outcome(
        self, run: str, outcome: OutcomeName | bool, *, detail: str = "", source: str = "me"
    ) -> None:
        """Say how a run went, at any time after it; for label files see :meth:`label`.

        Parameters
        ----------
        run : str
            As :meth:`resolve` takes it.
        outcome : {'success', 'failure', 'unknown'} or bool
        detail : str
            Why, where there is more to say.
        source : str
            Who says so. What one source says last counts; two that contradict each other leave
            the outcome unknown.
        """
        if isinstance(outcome, bool):
            outcome = "success" if outcome else "failure"
        if outcome not in ("success", "failure", "unknown"):
            raise UsageError(f"no outcome {outcome!r}", fix="success, failure or unknown")
        said = Outcome(outcome=outcome, detail=detail or None, source=source)
        record_outcome(self.store, self.resolve(run), said)

    def label(self, path: str | PathLike[str]) -> LabelReport:
        """Record outcomes from a label file, at any time after the runs.

        Parameters
        ----------
        path : path-like
            A SWE-bench style report, a folder of them, or a CSV with a key column (``path``,
            ``run_id`` or ``task_id``) and ``outcome``.
        """
        return apply_labels(self.store, read_labels(path))
