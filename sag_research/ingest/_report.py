"""What an ingest and a labelling did: counts that add up, and every exception by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sag_research._text import clip, escape, visible

if TYPE_CHECKING:
    import pandas as pd

    from sag_research.ingest._copies import CopyReport

__all__ = ["Contradiction", "IngestReport", "LabelReport"]

_SHOWN: Final = 20
_NAMED: Final = 5
_ADVICE: Final = 400
"""Characters of a line at most; what we say ourselves is shorter."""
"""Names of a kind in a one-line repr."""
_COLUMNS: Final = ("labels", "applied", "unchanged", "unmatched", "contradictory", "ambiguous")


class Contradiction(NamedTuple):
    """One label source says two things of one run.

    Examples
    --------
    >>> str(Contradiction("t~1", "t", "a.csv", {"failure": ["line 2"], "success": ["line 9"]}))
    't~1 (a.csv: failure in line 2, success in line 9)'
    """

    run: str
    key: str
    """What the labels name: a task, a run or a path."""
    source: str
    values: dict[str, list[str]]
    """Where in the source each outcome stands; the key again where the source has no lines."""

    @property
    def n_labels(self) -> int:
        """Number of labels in it."""
        return sum(map(len, self.values.values()))

    def __str__(self) -> str:
        said = (
            value if places[0] == self.key else f"{value} in {_some(places, 3)}"
            for value, places in self.values.items()
        )
        return f"{self.run} ({self.source}: {', '.join(said)})"


@dataclass
class LabelReport:
    """What became of the labels of a file or folder.

    Every label is counted once: ``labels = applied + unchanged + n_contradictory +
    len(ambiguous) + unmatched``. *Contradictory* is said inside one label source, which says
    two things of one run and is not believed. A *conflict* is between sources: each is
    recorded, and the run's outcome is unknown until one of them changes.

    Attributes
    ----------
    labels : int
        Number of labels read.
    applied : int
        Recorded now.
    unchanged : int
        Recorded before with the same value.
    contradictory : list of Contradiction
        One entry for each run and source, where one source says two things; nothing recorded.
    ambiguous : list of (str, list of str)
        What the label names, and the runs of which any may be meant, or none; nothing recorded.
    unmatched : int
        Labels that no run answers to.
    unmatched_keys : list of str
        What these labels name, one entry a label.
    conflicts : list of (str, dict of str to str)
        Runs on which sources disagree, with the outcome by source; both are recorded.
    unlabelled : int
        Runs in scope that count and have no known outcome.
    outcomes : dict of str to int
        The labels that found their run, by outcome.
    refused : list of str
        Rows of a CSV that cannot be understood, with file and line; not among the labels.
    notes : list of str
        Files that hold no labels, and what could not be read.
    hints : list of str
        Why labels that name tasks alone are ambiguous, and what would help.
    by_source : dict of str to dict of str to int
        The counts of labels for each source; see :attr:`table_`.
    """

    labels: int = 0
    applied: int = 0
    unchanged: int = 0
    contradictory: list[Contradiction] = field(default_factory=list)
    ambiguous: list[tuple[str, list[str]]] = field(default_factory=list)
    unmatched: int = 0
    unmatched_keys: list[str] = field(default_factory=list)
    conflicts: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    unlabelled: int = 0
    outcomes: dict[str, int] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    by_source: dict[str, dict[str, int]] = field(default_factory=dict)
    hints: list[str] = field(default_factory=list)

    @property
    def n_contradictory(self) -> int:
        """Number of labels that are contradictory."""
        return sum(one.n_labels for one in self.contradictory)

    def count(self, source: str, what: str, n: int = 1) -> None:
        """Count labels of a source under one of the columns of :attr:`table_`."""
        counts = self.by_source.setdefault(source, dict.fromkeys(_COLUMNS, 0))
        counts[what] += n

    @property
    def table_(self) -> pd.DataFrame:
        """One row for each label source, in which ``labels`` is the sum of the other counts.

        Columns: source, labels, applied, unchanged, unmatched, contradictory, ambiguous.
        """
        import pandas as pd

        rows = [(source, *counts.values()) for source, counts in self.by_source.items()]
        return pd.DataFrame(rows, columns=["source", *_COLUMNS])

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain data, as ``sag labels --json`` prints it.

        ``unmatched`` is the number, ``unmatched_keys`` the first 20 of what was named.
        """
        return {
            "labels": self.labels,
            "applied": self.applied,
            "unchanged": self.unchanged,
            "contradictory": [one._asdict() for one in self.contradictory],
            "ambiguous": [{"label": label, "runs": runs} for label, runs in self.ambiguous],
            "unmatched": self.unmatched,
            "unmatched_keys": list(dict.fromkeys(self.unmatched_keys))[:_SHOWN],
            "conflicts": [{"run": run, "outcomes": said} for run, said in self.conflicts],
            "unlabelled": self.unlabelled,
            "outcomes": self.outcomes,
            "refused": self.refused,
            "hints": self.hints,
            "notes": self.notes,
        }

    def __repr__(self) -> str:
        return f"LabelReport({'; '.join(self.lines())})"

    def lines(self) -> list[str]:
        """Say what was recorded, and what was not, each kind on a line; advice is not cut."""
        named = self._exceptions()
        return [self._counts(), *(f"{title}: {_some(names, _NAMED)}" for title, names in named)]

    def _counts(self) -> str:
        known = ", ".join(f"{count} {name}" for name, count in sorted(self.outcomes.items()))
        return (
            f"{self.labels} labels: {self.applied} applied, {self.unchanged} unchanged,"
            f" {self.n_contradictory} contradictory, {len(self.ambiguous)} ambiguous,"
            f" {self.unmatched} unmatched; {known or 'none known'};"
            f" {len(self.conflicts)} runs in conflict, {self.unlabelled} runs unlabelled"
        )

    def _exceptions(self) -> list[tuple[str, list[str]]]:
        """Name what was not recorded, or is recorded twice, under words that tell these apart."""
        found = [
            ("contradictory inside one source", list(map(str, self.contradictory))),
            ("in conflict between sources", [f"{run} ({_said(s)})" for run, s in self.conflicts]),
            ("ambiguous", [f"{key} ({_some(runs, 3)})" for key, runs in self.ambiguous]),
            ("unmatched", self.unmatched_keys),
            ("rows refused", self.refused),
            ("to know", self.hints),
        ]
        return [(title, list(dict.fromkeys(names))) for title, names in found if names]

    def _repr_html_(self) -> str:
        rows = [(title, name) for title, names in self._exceptions() for name in names]
        return _html(f"LabelReport({self._counts()})", rows)


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
        New in the log. Steps that a run inherited from the run it was forked from are not
        counted, as in the views.
    duplicates : int
        Files whose content is in the log already, from this or an earlier ingest.
    duplicate_of : list of (str, str)
        Path of each duplicate, and the path under which its content came in.
    ignored, rejected : list of (str, str)
        Path and reason.
    refused_records : list of (str, str, str)
        Path, place and reason of each record that could not be read in a file that was
        ingested: a line, an entry of a list, an attempt.
    by_format : dict
        ``{name: {"files", "runs", "steps"}}`` of what is new.
    labels : LabelReport or None
        What became of the labels that were given.
    copies : CopyReport or None
        Runs that are other runs once more, and were hidden.
    notes : list of str
        What readers left out, and hints.
    redacted : dict of str to int
        Secrets that were replaced before anything was written, by kind.
    """

    files: int = 0
    ingested: int = 0
    runs: int = 0
    steps: int = 0
    duplicates: int = 0
    ignored: list[tuple[str, str]] = field(default_factory=list)
    rejected: list[tuple[str, str]] = field(default_factory=list)
    refused_records: list[tuple[str, str, str]] = field(default_factory=list)
    by_format: dict[str, dict[str, int]] = field(default_factory=dict)
    duplicate_of: list[tuple[str, str]] = field(default_factory=list)
    labels: LabelReport | None = None
    copies: CopyReport | None = None
    notes: list[str] = field(default_factory=list)
    redacted: dict[str, int] = field(default_factory=dict)

    @property
    def n_copies(self) -> int:
        """Number of runs that were hidden as copies."""
        return 0 if self.copies is None else len(self.copies.hidden)

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
            "refused_records": [
                {"path": path, "record": at, "reason": why}
                for path, at, why in self.refused_records
            ],
            "by_format": self.by_format,
            "copies": [] if self.copies is None else [c._asdict() for c in self.copies.hidden],
            "labels": None if self.labels is None else self.labels.to_dict(),
            "notes": self.notes,
            "redacted": self.redacted,
        }

    @property
    def table_(self) -> pd.DataFrame:
        """One row for each file or record that was not ingested: path, status, reason.

        The status of a record that was refused in a file that was ingested is ``refused``.
        """
        import pandas as pd

        return pd.DataFrame(self._exceptions(), columns=["path", "status", "reason"])

    def _exceptions(self) -> list[tuple[str, str, str]]:
        rows = [(path, "rejected", reason) for path, reason in self.rejected]
        rows += [(path, "refused", f"{at}: {why}") for path, at, why in self.refused_records]
        rows += [(path, "ignored", reason) for path, reason in self.ignored]
        rows += [(path, "duplicate", f"same as {first}") for path, first in self.duplicate_of]
        return rows

    def __repr__(self) -> str:
        return (
            f"IngestReport({self.files} files: {self.ingested} ingested, {self.duplicates}"
            f" duplicates, {len(self.ignored)} ignored, {len(self.rejected)} rejected;"
            f" {self.runs} runs, {self.steps} steps"
            f"{self._refused()}{self._copied()}{self._cleaned()})"
        )

    def _copied(self) -> str:
        return f"; {self.n_copies} hidden as copies" if self.n_copies else ""

    def _cleaned(self) -> str:
        count = sum(self.redacted.values())
        return f"; {count} secrets replaced" if count else ""

    def _refused(self) -> str:
        count = len(self.refused_records)
        return f"; {count} record{'s' * (count > 1)} refused" if count else ""

    def _repr_html_(self) -> str:
        rows = [(path, f"{status}: {reason}") for path, status, reason in self._exceptions()]
        told = {f"{path}: {at} refused: {why}" for path, at, why in self.refused_records}
        rows += [("note", note) for note in self.notes if note not in told]
        labels = "" if self.labels is None else self.labels._repr_html_()
        return _html(repr(self), rows) + labels


def _said(outcomes: Mapping[str, str]) -> str:
    return _some([f"{source}: {outcome}" for source, outcome in outcomes.items()], 4)


def _some(names: Sequence[str], most: int) -> str:
    """Join names on one line; of many, the first and the number of the rest."""
    shown = ", ".join(clip(visible(name), _ADVICE) for name in names[:most])
    return shown + (f" and {len(names) - most} more" if len(names) > most else "")


def _html(title: str, rows: list[tuple[str, str]]) -> str:
    cells = "".join(
        f"<tr><td>{escape(clip(left, 100))}</td><td>{escape(clip(right, 160))}</td></tr>"
        for left, right in rows[:_SHOWN]
    )
    more = len(rows) - _SHOWN
    rest = f"<div>and {more} more</div>" if more > 0 else ""
    return f"<div><div>{escape(title)}</div><table>{cells}</table>{rest}</div>"
