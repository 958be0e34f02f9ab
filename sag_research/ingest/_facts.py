"""What the log holds of sources and outcomes; events of another shape count for nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

import msgspec

from sag_research.log import SQLiteEventStore
from sag_research.model import WORKSPACE_RUN, Outcome

__all__ = [
    "SourceRead",
    "Visibility",
    "labels_in_log",
    "outcomes_in_log",
    "sources_in_log",
    "visibility_in_log",
]

T = TypeVar("T")


class SourceRead(msgspec.Struct):
    """What an event ``source.read`` says, as far as an ingest needs it."""

    path: str
    root: str
    status: str
    digest: str | None = None
    source_id: str | None = None
    format: str | None = None
    reason: str | None = None
    log: str | None = None
    """Id of the log from which this was taken over; its folder may be another machine's."""
    sketches: dict[str, str] = {}
    """What the source's runs did, in short, by run; see :func:`hide_copies`."""


class Visibility(msgspec.Struct, frozen=True):
    """Whether a run counts, and why not."""

    run: str
    hidden: bool
    reason: str = ""
    copy_of: str | None = None


class _Hidden(msgspec.Struct):
    run: str
    reason: str = ""
    copy_of: str | None = None


class _About(msgspec.Struct):
    run: str
    place: str | None = None


def sources_in_log(store: SQLiteEventStore, after: int = 0) -> Iterator[tuple[int, SourceRead]]:
    """Yield what was said of sources behind a position of the workspace's run, with positions."""
    if store.has_run(WORKSPACE_RUN):
        for event in store.read(WORKSPACE_RUN, after + 1, types=("source.read",)):
            if (said := _as(event.payload, SourceRead)) is not None:
                yield event.position or 0, said


def outcomes_in_log(store: SQLiteEventStore) -> Iterator[tuple[str, Outcome]]:
    """Yield what was said of runs, in the order in which it was said."""
    for run_id, outcome, _ in labels_in_log(store):
        yield run_id, outcome


def labels_in_log(store: SQLiteEventStore) -> Iterator[tuple[str, Outcome, str | None]]:
    """Yield what was said of runs, in the order in which it was said, and by which label file."""
    if store.has_run(WORKSPACE_RUN):
        for event in store.read(WORKSPACE_RUN, types=("outcome.recorded",)):
            about, outcome = _as(event.payload, _About), _as(event.payload, Outcome)
            if about is not None and outcome is not None:
                yield about.run, outcome, about.place


def visibility_in_log(store: SQLiteEventStore) -> dict[str, Visibility]:
    """Read the last word on each run that was ever hidden or shown."""
    last: dict[str, Visibility] = {}
    if store.has_run(WORKSPACE_RUN):
        for event in store.read(WORKSPACE_RUN, types=("run.hidden", "run.shown")):
            if (said := _as(event.payload, _Hidden)) is not None:
                hidden = event.type == "run.hidden"
                copy_of = said.copy_of if hidden else None
                last[said.run] = Visibility(said.run, hidden, said.reason, copy_of)
    return last


def _as(payload: object, shape: type[T]) -> T | None:
    try:
        return msgspec.convert(payload, shape)
    except msgspec.ValidationError:  # anyone may write any event: such a one costs itself alone
        return None
