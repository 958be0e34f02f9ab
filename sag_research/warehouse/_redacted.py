"""Which rows redactions have made stale, and what takes their place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from sag_research.errors import StoreError
from sag_research.extract import EntityExtractor
from sag_research.log import SQLiteEventStore
from sag_research.model import WORKSPACE_RUN, Event
from sag_research.warehouse._project import Projector

__all__ = ["REDACTED", "project_again", "stale_events", "without"]

REDACTED: Final = "body.redacted"
_SHAPED_BY_THE_RUN: Final = ("run.created", "run.forked", "agent.step")
"""Types of events whose rows hold what a run says of itself: its goal, its repository."""


def stale_events(store: SQLiteEventStore, told: Iterable[Event], upto: int) -> list[Event]:
    """Return the events that redactions have changed, as they read now, each once.

    Parameters
    ----------
    store : SQLiteEventStore
    told : iterable of Event
        Others than ``body.redacted`` of the workspace's run are passed over.
    upto : int
        Only events up to this sequence number: later ones were not projected yet.
    """
    found: dict[int, Event] = {}
    for event in told:
        if event.type == REDACTED and event.run_id == WORKSPACE_RUN:
            found |= {one.seq or 0: one for one in _touched(store, event)}
    return [event for seq, event in sorted(found.items()) if seq <= upto]


def _touched(store: SQLiteEventStore, told: Event) -> Iterator[Event]:
    run_id, position = told.payload.get("run"), told.payload.get("position")
    if not isinstance(run_id, str) or type(position) is not int or not store.has_run(run_id):
        return  # written by somebody else than the log
    try:
        for event in store.read(run_id, position, position):
            yield event
            if event.type == "run.created":
                yield from _family(store, run_id)
    except StoreError:
        return  # damaged: it was projected as unreadable, and holds no text


def _family(store: SQLiteEventStore, run_id: str) -> Iterator[Event]:
    for member in store.family(run_id):
        yield from store.read(member.run_id, member.fork_position + 1, types=_SHAPED_BY_THE_RUN)


def project_again(
    store: SQLiteEventStore, extractor: EntityExtractor, events: Iterable[Event]
) -> Iterator[tuple[str, pa.Table]]:
    """Project single events; yields each table that has rows, with its name."""
    for event in events:
        # a projector counts steps from one event to the next, and these are not neighbours
        yield from Projector(store, extractor).project([event]).items()


def without(rows: pa.Table, stale: Sequence[Event]) -> pa.Table:
    """Return a projected table without the rows of some events."""
    seqs = pa.array([event.seq for event in stale], pa.int64())
    return rows.filter(pc.invert(pc.is_in(rows["seq"], value_set=seqs)))
