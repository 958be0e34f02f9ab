"""Rows of the log's tables to and from records, and what a record may hold."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from sag_research.errors import BadPayloadError, RunNotFoundError, StoreError, UsageError
from sag_research.log import _canonical as canonical
from sag_research.model import Event, Run

_INT64_END: Final = 2**63
SECOND: Final = 10**9  # in ns; dividing two whole numbers rounds once
CREATED_FIELDS: Final = ("kind", "goal", "task_id", "dataset", "repo", "agent", "model", "config")
_CLOCKS: Final = ("started", "seconds")


class Content(msgspec.Struct, frozen=True, gc=False):
    """What an event holds wherever it is put.

    The clocks are ts in ns, started in s, seconds.
    """

    body: bytes
    blobs: dict[bytes, bytes]
    clocks: tuple[int, float | None, float | None]


def not_found(run_id: str) -> RunNotFoundError:
    return RunNotFoundError(f"no run {run_id!r} in the log", fix="list the runs with `sag runs`")


def content(event: Event) -> Content:
    payload, started, seconds = split_clocks(event)
    body, blobs = canonical.encode(payload)
    ts_ns = time.time_ns() if event.ts is None else nanoseconds(event.ts, "ts")
    return Content(body, blobs, (ts_ns, started, seconds))


def end(row: tuple[Any, ...]) -> tuple[int, bytes, bytes]:
    """Position, digest and seal of a row of the table ``events``."""
    return row[1], row[11], row[12]


def written(event: Event, row: tuple[Any, ...], seq: int | None) -> Event:
    return replace(event, position=row[1], seq=seq, ts=row[6] / SECOND, digest=row[11].hex())


def split_clocks(event: Event) -> tuple[Mapping[str, Any], float | None, float | None]:
    """Take a step's clocks out of its payload: they are envelope, not content."""
    payload = event.payload
    if event.type != "agent.step" or not (type(payload) is dict or isinstance(payload, Mapping)):
        return payload, None, None
    if "started" not in payload and "seconds" not in payload:
        return payload, None, None
    rest = {key: value for key, value in payload.items() if key not in _CLOCKS}
    started, seconds = (clock(payload.get(name), f"$.{name}") for name in _CLOCKS)
    return rest, started, seconds


def clock(value: object, path: str) -> float | None:
    """Check a number of seconds; a float, so that the file gives back what was sealed."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise BadPayloadError(path, f"{type(value).__name__} is no number of seconds")
    if abs(value) >= _INT64_END or not math.isfinite(value):
        raise BadPayloadError(path, "no finite number of seconds")
    return float(value) + 0.0  # SQLite gives -0.0 back as 0.0


def nanoseconds(value: float | None, path: str) -> int:
    """Turn seconds since the epoch into whole nanoseconds; ``None`` is now."""
    seconds = clock(value, path)
    if seconds is None:
        return time.time_ns()
    if abs(seconds) >= _INT64_END // SECOND:
        raise BadPayloadError(path, f"{value} is no time within 292 years of 1970")
    fraction, whole = math.modf(seconds)  # apart, for a product of the whole would be rounded
    return int(whole) * SECOND + round(fraction * SECOND)


def is_clean(text: object) -> bool:
    if type(text) is not str or "\x00" in text:
        return False
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_run(run: Run) -> None:
    """Refuse an envelope that the file could not give back as it is."""
    faults = {
        "run_id": is_clean(run.run_id) and run.run_id != "",
        "label": is_clean(run.label),
        "source_id": run.source_id is None or is_clean(run.source_id),
        "attempt": run.attempt is None
        or (type(run.attempt) is int and abs(run.attempt) < _INT64_END),
    }
    for field, good in faults.items():
        if not good:
            raise UsageError(f"a run cannot have {field} {getattr(run, field)!r}")


def events_from_rows(
    rows: Sequence[tuple[Any, ...]],
    blobs: Mapping[bytes, bytes],
    reasons: Mapping[tuple[str, int], str],
    strict: bool,
) -> list[Event]:
    """Make events; at one that cannot be read, stop before it, or raise if it is the first."""
    events: list[Event] = []
    for row in rows:
        try:
            event = event_from_row(row, blobs)
            if row[10] is None:
                event = replace(event, payload=emptied(row, reasons) | event.payload)
            events.append(event)
        except (KeyError, ValueError, msgspec.DecodeError) as error:
            if not strict:
                blank = event_from_row((*row[:10], None, row[11]), blobs)
                events.append(replace(blank, payload={"unreadable": why(error)}))
                continue
            if events:
                break
            what = f"event {row[2]} of run {row[1]!r} (number {row[0]} of the log)"
            raise unreadable(what, error) from error
    return events


def emptied(row: tuple[Any, ...], reasons: Mapping[tuple[str, int], str]) -> dict[str, Any]:
    """Say what became of a body that is gone."""
    reason = reasons.get((row[1], row[2]))
    return {"unreadable": "missing: the body is gone"} if reason is None else {"redacted": reason}


def why(error: Exception) -> str:
    return "a text of it is missing or damaged" if isinstance(error, KeyError) else str(error)


def unreadable(what: str, error: Exception) -> StoreError:
    return StoreError(f"{what} cannot be read", why=why(error), fix="run `sag verify`")


def event_from_row(row: tuple[Any, ...], blobs: Mapping[bytes, bytes]) -> Event:
    seq, run_id, pos, type_, actor, cause, frame, ts_ns, started, seconds, body, digest = row
    payload = {} if body is None else canonical.decode(body, blobs.__getitem__)
    if started is not None:
        payload["started"] = started
    if seconds is not None:
        payload["seconds"] = seconds
    return Event(
        run_id=run_id, type=type_, payload=payload, actor=actor, cause=cause, frame=frame,
        ts=ts_ns / SECOND, position=pos, seq=seq, digest=digest.hex(),
    )  # fmt: skip


UNREADABLE: Final = b"(unreadable; see `sag verify`)"
"""Stands for a text of a run's description that the log has lost: one run must not cost all."""


def run_from_row(row: tuple[Any, ...], blobs: Mapping[bytes, bytes]) -> Run:
    uid, parent, fork_pos, label, attempt, source_id, created_ns, body = row
    try:
        about = {} if body is None else canonical.decode(body, lambda d: blobs.get(d, UNREADABLE))
    except (ValueError, msgspec.DecodeError):
        about = {"goal": UNREADABLE.decode()}
    known = {name: about[name] for name in CREATED_FIELDS if name in about}
    return Run(
        run_id=uid, parent_id=parent, fork_position=fork_pos, label=label, attempt=attempt,
        source_id=source_id, created_at=created_ns / SECOND, **known,
    )  # fmt: skip
