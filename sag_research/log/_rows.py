"""Rows of the log's tables to and from records, and what a record may hold."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import count
from typing import Any, Final, TypeAlias

import msgspec
from msgspec.structs import replace

from sag_research.errors import BadPayloadError, RunNotFoundError, StoreError, UsageError
from sag_research.log import _canonical as canonical
from sag_research.model import Event, Run

_INT64_END: Final = 2**63
SECOND: Final = 10**9  # in ns; dividing two whole numbers rounds once
CREATED_FIELDS: Final = ("kind", "goal", "task_id", "dataset", "repo", "agent", "model", "config")
_CLOCKS: Final = ("started", "seconds")


Content: TypeAlias = tuple[bytes, dict[bytes, bytes], int, float | None, float | None]
"""What an event holds wherever it is put: body, blobs, ts in ns, started in s, seconds."""


def not_found(run_id: str) -> RunNotFoundError:
    return RunNotFoundError(f"no run {run_id!r} in the log", fix="list the runs with `sag runs`")


def content(event: Event) -> Content:
    payload: Mapping[str, Any] = event.payload
    started = seconds = None
    if event.type == "agent.step" and (
        type(payload) is not dict or "started" in payload or "seconds" in payload
    ):
        payload, started, seconds = split_clocks(payload)
    body, blobs = canonical.encode(payload)
    ts_ns = time.time_ns() if event.ts is None else nanoseconds(event.ts, "ts")
    return body, blobs, ts_ns, started, seconds


def written(events: Sequence[Event], rows: Sequence[tuple[Any, ...]], first: int) -> list[Event]:
    """Events as they stand in the log, the first one under a sequence number."""
    return [
        replace(event, position=row[1], seq=seq, ts=row[4] / SECOND, digest=row[7].hex())
        for event, row, seq in zip(events, rows, count(first), strict=False)
    ]


def split_clocks(
    payload: Mapping[str, Any],
) -> tuple[Mapping[str, Any], float | None, float | None]:
    """Take a step's clocks out of its payload: they are envelope, not content."""
    if not isinstance(payload, Mapping):
        return payload, None, None  # type: ignore[unreachable] # refused where it is encoded
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
    fetch: Callable[[Collection[bytes]], Mapping[bytes, bytes]],
    redacted: Callable[[str, int], dict[str, Any] | None],
    strict: bool,
) -> list[Event]:
    """Make events; at one that cannot be read, stop before it, or raise if it is the first."""
    holes: list[Any] = []
    parsed = [_parsed(row[10], holes) for row in rows]
    wanted = dict.fromkeys(holes[2::3])  # in order, each once
    texts = decoded(fetch(wanted)) if wanted else {}
    for container, key, digest in zip(holes[::3], holes[1::3], holes[2::3], strict=True):
        container[key] = texts.get(digest)
    lost = wanted.keys() - texts.keys() if len(texts) < len(wanted) else None
    events: list[Event] = []
    start = 0
    for row, (payload, end) in zip(rows, parsed, strict=True):
        fault = payload if isinstance(payload, Exception) else None
        if lost and not lost.isdisjoint(holes[start + 2 : end : 3]):
            fault = KeyError("a text")
        start = end
        if fault is not None:
            if strict and events:
                break
            if strict:
                what = f"event {row[2]} of run {row[1]!r} (number {row[0]} of the log)"
                raise unreadable(what, fault) from fault
            events.append(_event(row, {"unreadable": why(fault)}))
            continue
        if row[10] is None:
            instead = redacted(row[1], row[2])
            payload |= {"unreadable": "missing: the body is gone"} if instead is None else instead
        if row[8] is not None:
            payload["started"] = row[8]
        if row[9] is not None:
            payload["seconds"] = row[9]
        events.append(_event(row, payload))
    return events


def _parsed(body: bytes | None, holes: list[Any]) -> tuple[Any, int]:
    """Read a body, or say why it cannot be read; and where its holes end."""
    if body is None:
        return {}, len(holes)
    end = len(holes)
    try:
        return canonical.parse(body, holes), len(holes)
    except (ValueError, msgspec.DecodeError) as error:
        del holes[end:]
        return error, end


def decoded(blobs: Mapping[bytes, bytes]) -> dict[bytes, str]:
    """Read blobs as texts, each once however often it stands on a page; no text: left out."""
    try:
        return {digest: data.decode() for digest, data in blobs.items()}
    except UnicodeDecodeError:
        texts = {digest: data.decode(errors="ignore") for digest, data in blobs.items()}
        return {digest: text for digest, text in texts.items() if text.encode() == blobs[digest]}


def why(error: Exception) -> str:
    return "a text of it is missing or damaged" if isinstance(error, KeyError) else str(error)


def unreadable(what: str, error: Exception) -> StoreError:
    return StoreError(f"{what} cannot be read", why=why(error), fix="run `sag verify`")


def _event(row: tuple[Any, ...], payload: dict[str, Any]) -> Event:
    seq, run_id, pos, type_, actor, cause, frame, ts_ns, _, _, _, digest = row
    return Event(
        run_id=run_id, type=type_, payload=payload, actor=actor, cause=cause, frame=frame,
        ts=ts_ns / SECOND, position=pos, seq=seq, digest=digest.hex(),
    )  # fmt: skip


UNREADABLE: Final = b"(unreadable; see `sag verify`)"
"""Stands for a text of a run's description that the log has lost: one run must not cost all."""


def run_from_row(
    row: tuple[Any, ...], blobs: Mapping[bytes, bytes], instead: Mapping[str, Any] | None = None
) -> Run:
    """Make a run; ``instead`` is what is read in the place of a redacted description."""
    uid, parent, fork_pos, label, attempt, source_id, created_ns, body = row
    try:
        about = dict(instead or {})
        if body is not None:
            about = canonical.decode(body, lambda d: blobs.get(d, UNREADABLE))
    except (ValueError, msgspec.DecodeError):
        about = {"goal": UNREADABLE.decode()}
    known = {name: about[name] for name in CREATED_FIELDS if name in about}
    return Run(
        run_id=uid, parent_id=parent, fork_position=fork_pos, label=label, attempt=attempt,
        source_id=source_id, created_at=created_ns / SECOND, **known,
    )  # fmt: skip
