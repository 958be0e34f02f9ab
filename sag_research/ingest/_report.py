"""What an ingest and a labelling did: counts that add up, and every exception by name."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sag_research._text import clip, escape

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["IngestReport", "LabelReport"]

_SHOWN = 20


@dataclass
class LabelReport:
    """What became of the labels of a file or folder.

    Every label is counted once: ``labels = applied + unchanged + contradictory + ambiguous +
    unmatched``.

    Attributes
    ----------
    labels : int
        Number of labels read.
    applied : int
        Recorded now.
    unchanged : int
        Recorded before with the same value.
    contradictory : list of (str, str)
        Run and source, one entry a label, where one source says two things; nothing recorded.
    ambiguous : list of (str, list of str)
        What the label names, and the runs among which nothing tells; nothing recorded.
    unmatched : int
        Labels that no run answers to.
    conflicts : list of (str, dict of str to str)
        Runs on which sources disagree, with the outcome by source; both are recorded.
    unlabelled : int
        Runs in scope that have no known outcome.
    outcomes : dict of str to int
        The labels that found their run, by outcome.
    notes : list of str
        Files that hold no labels, and what could not be read.
    """

    labels: int = 0
    applied: int = 0
    unchanged: int = 0
    contradictory: list[tuple[str, str]] = field(default_factory=list)
    ambiguous: list[tuple[str, list[str]]] = field(default_factory=list)
    unmatched: int = 0
    conflicts: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    unlabelled: int = 0
    outcomes: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain data, as ``sag labels --json`` prints it."""
        return {
            "labels": self.labels,
            "applied": self.applied,
            "unchanged": self.unchanged,
            "contradictory": [{"run": run, "source": source} for run, source in self.contradictory],
            "ambiguous": [{"label": label, "runs": runs} for label, runs in self.ambiguous],
            "unmatched": self.unmatched,
            "conflicts": [{"run": run, "outcomes": said} for run, said in self.conflicts],
            "unlabelled": self.unlabelled,
            "outcomes": self.outcomes,
            "notes": self.notes,
        }

    def __repr__(self) -> str:
        known = ", ".join(f"{count} {name}" for name, count in sorted(self.outcomes.items()))
        return (
            f"LabelReport({self.labels} labels: {self.applied} applied, {self.unchanged} unchanged,"
            f" {len(self.contradictory)} contradictory, {len(self.ambiguous)} ambiguous,"
            f" {self.unmatched} unmatched; {known or 'none known'};"
            f" {len(self.conflicts)} conflicts, {self.unlabelled} runs unlabelled)"
        )

    def _repr_html_(self) -> str:
        rows = [(run, f"conflict: {said}") for run, said in self.conflicts]
        rows += [(run, f"contradictory in {source}") for run, source in self.contradictory]
        rows += [(label, f"ambiguous: {', '.join(runs)}") for label, runs in self.ambiguous]
        return _html(repr(self), rows)


@dataclass
class IngestReport:
    """What an ingest did: ``files = ingested + duplicates + ignored + rejected``.

    Attributes
    ----------
    files : int
        Files looked at.
    ingested : int
        Files whose runs are new in the log.
    runs, steps : int
        New in the log.
    duplicates : int
        Files whose content is in the log already, from this or an earlier ingest.
    duplicate_of : list of (str, str)
        Path of each duplicate, and the path under which its content came in.
    ignored, rejected : list of (str, str)
        Path and reason.
    by_format : dict
        ``{name: {"files", "runs", "steps"}}`` of what is new.
    labels : LabelReport or None
        What became of the labels that were given.
    notes : list of str
        What readers left out, and hints.
    """

    files: int = 0
    ingested: int = 0
    runs: int = 0
    steps: int = 0
    duplicates: int = 0
    ignored: list[tuple[str, str]] = field(default_factory=list)
    rejected: list[tuple[str, str]] = field(default_factory=list)
    by_format: dict[str, dict[str, int]] = field(default_factory=dict)
    duplicate_of: list[tuple[str, str]] = field(default_factory=list)
    labels: LabelReport | None = None
    notes: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain data, as ``sag ingest --json`` prints it."""
        return {
            "files": self.files,
            "ingested": self.ingested,
            "runs": self.runs,
            "steps": self.steps,
            "duplicates": self.duplicates,
            "ignored": [{"path": path, "reason": reason} for path, reason in self.ignored],
            "rejected": [{"path": path, "reason": reason} for path, reason in self.rejected],
            "by_format": self.by_format,
        }

    @property
    def table_(self) -> pd.DataFrame:
        """One row for each file that was not ingested: path, status, reason."""
        import pandas as pd

        return pd.DataFrame(self._exceptions(), columns=["path", "status", "reason"])

    def _exceptions(self) -> list[tuple[str, str, str]]:
        rows = [(path, "rejected", reason) for path, reason in self.rejected]
        rows += [(path, "ignored", reason) for path, reason in self.ignored]
        rows += [(path, "duplicate", f"same as {first}") for path, first in self.duplicate_of]
        return rows

    def __repr__(self) -> str:
        return (
            f"IngestReport({self.files} files: {self.ingested} ingested, {self.duplicates}"
            f" duplicates, {len(self.ignored)} ignored, {len(self.rejected)} rejected;"
            f" {self.runs} runs, {self.steps} steps)"
        )

    def _repr_html_(self) -> str:
        rows = [(path, f"{status}: {reason}") for path, status, reason in self._exceptions()]
        rows += [("note", note) for note in self.notes]
        labels = "" if self.labels is None else self.labels._repr_html_()
        return _html(repr(self), rows) + labels


def _html(title: str, rows: list[tuple[str, str]]) -> str:
    cells = "".join(
        f"<tr><td>{escape(clip(left, 100))}</td><td>{escape(clip(right, 160))}</td></tr>"
        for left, right in rows[:_SHOWN]
    )
    more = len(rows) - _SHOWN
    rest = f"<div>and {more} more</div>" if more > 0 else ""
    return f"<div><div>{escape(title)}</div><table>{cells}</table>{rest}</div>"
