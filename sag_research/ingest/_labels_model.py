"""What a label is, whatever file it comes from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from sag_research.ingest.formats._shared import word
from sag_research.model import Outcome, OutcomeName

__all__ = [
    "EMPTY",
    "ERROR",
    "FAILURE",
    "INCOMPLETE",
    "INFRA",
    "NO_APPLY",
    "SUCCESS",
    "UNKNOWN",
    "KeyKind",
    "Label",
    "Labels",
    "Verdict",
    "as_id",
    "is_flag",
]

KeyKind: TypeAlias = Literal["task_id", "run_id", "path", "trial"]


class Label(NamedTuple):
    """What one source says of one run, task, file or trial."""

    kind: KeyKind
    key: str
    outcome: Outcome
    task_id: str | None = None
    """Narrows a path that holds several tasks; of a trial, its task."""
    model: str | None = None
    exact: bool = False
    """The model must be the run's model; else it only tells runs of one task apart."""
    place: str = ""
    """Where in its source it stands, e.g. ``line 4``; empty if the key says it all."""
    folder: str | None = None
    """Of a trial, the folder that holds all it wrote: runs read from there are meant."""
    trial: str | None = None
    """The source's own id of a trial: the same one again is a copy of the file."""
    file: str | None = None
    """Where the label's file is, all links followed."""


class Labels:
    """The labels of a file or folder, in the order of the files.

    Attributes
    ----------
    labels : list of Label
    notes : list of str
        Files without labels, what could not be read, and counters that contradict the ids.
    refused : list of str
        Rows of a CSV, and lines of records, that cannot be understood, with file and line.
    """

    def __init__(
        self,
        labels: Iterable[Label] = (),
        notes: Iterable[str] = (),
        refused: Iterable[str] = (),
    ) -> None:
        self.labels = list(labels)
        self.notes = list(notes)
        self.refused = list(refused)

    def __len__(self) -> int:
        return len(self.labels)

    def __iter__(self) -> Iterator[Label]:
        return iter(self.labels)

    def __repr__(self) -> str:
        counts = Counter(label.outcome.outcome for label in self.labels)
        known = ", ".join(f"{counts[name]} {name}" for name in ("success", "failure", "unknown"))
        sources = len({label.outcome.source for label in self.labels})
        return f"Labels({len(self)} labels: {known}; {sources} files)"


class Verdict(NamedTuple):
    """What a report says, with the reason where it has one."""

    outcome: OutcomeName
    detail: str | None = None


SUCCESS: Final = Verdict("success")
FAILURE: Final = Verdict("failure")
EMPTY: Final = Verdict("failure", "empty")
NO_APPLY: Final = Verdict("failure", "no-apply")
ERROR: Final = Verdict("unknown", "error")
INFRA: Final = Verdict("unknown", "infra")
INCOMPLETE: Final = Verdict("unknown", "incomplete")
UNKNOWN: Final = Verdict("unknown")


def as_id(value: Any) -> str | None:
    """Return an id as text; whole numbers are ids too."""
    return str(value) if type(value) is int else word(value)


def is_flag(value: Any) -> bool:
    """Tell whether a value answers yes, no, or nothing: a bool, 0 or 1, or null."""
    return value is None or isinstance(value, bool) or (type(value) is int and value in (0, 1))
