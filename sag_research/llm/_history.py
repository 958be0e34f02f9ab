"""Looking back at the calls of a run: what was asked, what was live, what was reused."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, overload

import msgspec

from sag_research._text import escape, html_table
from sag_research.errors import RunNotFoundError
from sag_research.log import CALL_TYPES, SQLiteEventStore
from sag_research.model import Event

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["RecordedCall", "RecordedCalls", "recorded_calls"]

_REQUESTS: Final = ("llm.requested", "tool.requested")
_HTML_ROWS: Final = 50


class RecordedCall(msgspec.Struct, frozen=True, kw_only=True):
    """One ask of a run."""

    kind: str
    """``llm``, ``tool`` or ``effect``."""
    name: str
    """The model, the tool or the effect."""
    key: str
    """First 12 hex digits of the question's key."""
    occurrence: int
    """How often the question was asked before, from 0."""
    how: str
    """``live`` (a call was made) or ``reused`` (a recorded answer was taken)."""
    status: str
    """``ok``, ``failed``, ``unanswered`` (interrupted, or never asked), ``open`` (no answer
    yet), ``unknown`` (reused from a
    run that is not in this log)."""
    run_id: str
    """The run that wrote the ask; an ancestor for what was inherited."""
    position: int
    """Of the event that asks."""
    tokens_in: int | None
    tokens_out: int | None
    cost_usd: float | None
    """What the answer took when it was made; only live rows were paid for by this run."""
    seconds: float | None
    """From request to answer; ``None`` for effects, open calls and reused answers."""


class RecordedCalls(Sequence[RecordedCall]):
    """The asks of a run, in order."""

    def __init__(self, run_id: str, rows: Sequence[RecordedCall]) -> None:
        self.run_id, self._rows = run_id, tuple(rows)

    @overload
    def __getitem__(self, index: int) -> RecordedCall: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[RecordedCall]: ...
    def __getitem__(self, index: int | slice) -> RecordedCall | Sequence[RecordedCall]:
        return self._rows[index]

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def live(self) -> int:
        """Number of asks for which a call was made."""
        return sum(row.how == "live" for row in self._rows)

    @property
    def reused(self) -> int:
        """Number of asks answered from the log."""
        return sum(row.how == "reused" for row in self._rows)

    @property
    def table_(self) -> pd.DataFrame:
        """One row an ask, with the columns of :class:`RecordedCall`."""
        import pandas as pd

        columns = list(RecordedCall.__struct_fields__)
        return pd.DataFrame([msgspec.structs.astuple(row) for row in self._rows], columns=columns)

    def __repr__(self) -> str:
        return f"RecordedCalls({self.run_id!r}, {self.live} live, {self.reused} reused)"

    def _repr_html_(self) -> str:
        rows = [msgspec.structs.astuple(row) for row in self._rows[:_HTML_ROWS]]
        table = html_table(RecordedCall.__struct_fields__, rows, len(self._rows))
        return f"<div><b>{escape(repr(self))}</b>{table}</div>"


def recorded_calls(store: SQLiteEventStore, run_id: str) -> RecordedCalls:
    """List what a run asked: hits and misses, failures and calls without an answer.

    Parameters
    ----------
    store : SQLiteEventStore
    run_id : str
        What its ancestors asked up to the fork is included.

    Raises
    ------
    RunNotFoundError
    """
    rows: dict[int, RecordedCall] = {}
    requests: dict[int, Event] = {}
    for event in store.read(run_id, types=(*_REQUESTS, *CALL_TYPES)):
        position = event.position or 0
        if "key" not in event.payload:
            continue  # redacted, or written by something else
        if event.type in _REQUESTS:
            requests[position] = event
            rows[position] = _row(event, event, event.type.partition(".")[0], "live", "open")
        elif event.type == "call.reused":
            rows[position] = _reused(store, event)
        elif event.type == "effect.recorded":
            rows[position] = _row(event, event, "effect", "live", _status(event))
        elif (asked := requests.get(event.cause or 0)) is not None:
            kind = event.type.partition(".")[0]
            rows[asked.position or 0] = _row(asked, asked, kind, "live", _status(event), event)
    return RecordedCalls(run_id, [rows[position] for position in sorted(rows)])


def _row(
    event: Event, asked: Event | None, kind: str, how: str, status: str, answer: Event | None = None
) -> RecordedCall:
    """Make a row of the event that asks, the one that says what, and the answer."""
    about = asked.payload if asked is not None else {}
    usage = (answer.payload.get("usage") if answer is not None else None) or {}
    took = None
    if how == "live" and answer is not None and answer.ts is not None and event.ts is not None:
        took = answer.ts - event.ts
    return RecordedCall(
        kind=kind,
        name=str(about.get({"llm": "model", "tool": "name"}.get(kind, "effect"), "")),
        key=str(event.payload["key"])[:12],
        occurrence=event.payload["occurrence"],
        how=how,
        status=status,
        run_id=event.run_id,
        position=event.position or 0,
        tokens_in=usage.get("tokens_in"),
        tokens_out=usage.get("tokens_out"),
        cost_usd=usage.get("cost_usd"),
        seconds=took,
    )


def _reused(store: SQLiteEventStore, event: Event) -> RecordedCall:
    answer = _at(store, event.payload.get("run"), event.payload.get("position"))
    if answer is None:
        return _row(event, None, "", "reused", "unknown")
    asked = answer
    if answer.type != "effect.recorded":
        asked = _at(store, answer.run_id, answer.cause) or answer
    kind = answer.type.partition(".")[0]
    return _row(event, asked, kind, "reused", _status(answer), answer)


def _at(store: SQLiteEventStore, run_id: str | None, position: int | None) -> Event | None:
    if run_id is None or position is None:
        return None
    try:
        events: Iterator[Event] = store.read(run_id, position, position)
    except RunNotFoundError:
        return None
    return next(events, None)


def _status(answer: Event) -> str:
    payload: dict[str, Any] = answer.payload
    if payload.get("unanswered"):
        return "unanswered"
    return "failed" if "error" in payload else "ok"
