"""The package's own shape: one JSON object a run, as JSON lines or alone."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias, cast

import msgspec

from sag_research._text import clip, repair
from sag_research.errors import BadPayloadError, FormatError
from sag_research.ingest._clean import DEEPEST, is_fit
from sag_research.ingest._format import Reading
from sag_research.ingest._json import (
    OtherShapeError,
    decode,
    first_lines,
    loads,
    outline,
    shaped,
)
from sag_research.ingest._source import Source
from sag_research.ingest.formats import _shared as shared
from sag_research.model import (
    OUTCOMES,
    TERMINAL_TYPES,
    Call,
    Outcome,
    OutcomeName,
    Step,
    Trajectory,
    Usage,
)

__all__ = ["Native", "trajectory_of"]

_Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
_Code = Annotated[int, msgspec.Meta(ge=-(2**53), le=2**53)]
_Number = Annotated[float, msgspec.Meta(ge=-1e300, le=1e300)]  # bounds refuse NaN as well
_Name = Annotated[str, msgspec.Meta(min_length=1, pattern=r"\S")]


class _Call(msgspec.Struct, forbid_unknown_fields=True):
    id: str = ""
    name: str = ""
    arguments: Any = None
    text: str = ""
    observation: str = ""
    status: Literal["ok", "error", "unknown"] = "unknown"
    exit_code: _Code | None = None


class _Usage(msgspec.Struct, forbid_unknown_fields=True):
    tokens_in: _Count | None = None
    tokens_out: _Count | None = None
    cost_usd: _Number | None = None


class _Step(msgspec.Struct, forbid_unknown_fields=True):
    thought: str | None = None
    action: str | None = None
    observation: str | None = None
    calls: list[_Call] | msgspec.UnsetType = msgspec.UNSET
    """Unset: one call is made of the action; an empty list says that there was none."""
    flags: list[str] = []
    usage: _Usage | None = None
    started: _Number | None = None
    seconds: _Number | None = None
    state: Any = None


_Said: TypeAlias = Literal["success", "failure", "unknown", 0, 1] | bool
"""An outcome, or a flag: yes is success and no is failure."""


class _Outcome(msgspec.Struct, forbid_unknown_fields=True):
    outcome: _Said
    detail: str | None = None
    score: _Number | None = None
    source: str = "record"
    known_at_step: _Count | None = None


class _Record(msgspec.Struct, forbid_unknown_fields=True):
    """What a record may say of a run; ``task_id`` and ``steps`` are needed."""

    task_id: _Name | int
    steps: list[_Step]
    goal: str | None = None
    dataset: str | None = None
    repo: str | None = None
    agent: str | None = None
    model: str | None = None
    attempt: _Code | None = None
    end: Literal["run.completed", "run.failed", "run.abandoned", "run.cancelled"] | None = (
        "run.completed"
    )
    exit_status: str | None = None
    submission: str | None = None
    usage: _Usage | None = None
    outcome: _Said | _Outcome | None = None
    config: dict[str, Any] = {}


_DIGITS: Final = 4_000
_DECODER: Final = msgspec.json.Decoder(_Record)
_STEP_KEYS: Final = frozenset(_Step.__struct_fields__)


class Native:
    """Runs as plain records: ``{"task_id": …, "steps": [{"thought", "action", "observation"}]}``.

    One object a line, or one object in the file. A step may hold ``calls``; ``outcome`` is
    ``success``, ``failure``, ``unknown``, a flag (true and 1 are success, false and 0 failure) or
    an object. A line that cannot be read costs that
    line, and is listed as refused. A number that is NaN, infinite or out of its range costs that
    number: the step gets the flag ``bad-number``, and a note says where it stood.
    """

    name = "native"

    def sniff(self, head: bytes, path: Path) -> float:
        """Claim objects with a task and steps with known keys, alone or as JSON lines."""
        if _is_record(head):
            return 0.9
        return 0.7 if any(map(_is_record, first_lines(head))) else 0.0

    def read(self, source: Source) -> Reading:
        """Read line by line, or the one object of the file."""
        notes: list[str] = []
        if _is_record(source.head) and not _has_lines(source):
            return Reading("1", iter([_read(source.bytes(), None, notes)]), notes)
        refused: list[tuple[str, str]] = []
        return Reading("1", _lines(source, refused, notes), notes, refused)


def _is_record(data: bytes) -> bool:
    seen = outline(data)
    if seen.root != "object" or not {"task_id", "steps"} <= set(seen.keys):
        return False
    return not seen.below("steps") or bool(seen.below("steps") & _STEP_KEYS)


def _has_lines(source: Source) -> bool:
    """Tell JSON lines from one object, which may be longer than the head and have line breaks."""
    seen = outline(source.head)
    if seen.complete:
        return seen.more
    if b"\n" in source.head:  # one object, or lines of which the first is cut
        return any(map(_is_record, source.head.split(b"\n")[1:]))
    return sum(1 for line in islice(filter(bytes.strip, source.lines()), 2)) > 1


def _lines(
    source: Source, refused: list[tuple[str, str]], notes: list[str]
) -> Iterator[Trajectory]:
    for number, line in enumerate(source.lines()):
        if line.strip():
            dropped: list[str] = []
            try:
                yield _read(line, str(number), dropped)
            except FormatError as error:
                refused.append((f"line {number + 1}", str(error)))
            else:
                notes += [f"line {number + 1}: {one}" for one in dropped]


def _read(data: bytes, record: str | None, notes: list[str]) -> Trajectory:
    try:
        found = _decoded(data, notes)
    except OtherShapeError as error:
        path, fault = _explained(error.why)
        raise FormatError(fault if path == "$" else f"{path}: {fault}") from None
    return _trajectory(found, record)


def _decoded(data: bytes, notes: list[str]) -> _Record:
    try:
        return decode(data, _DECODER)
    except OtherShapeError:
        value = loads(data)
        if not (dropped := list(_without_bad_numbers(value))):
            raise
    found = shaped(value, _DECODER)
    notes += dropped
    return found


_INEXACT: Final = 2**53
_BOUNDS: Final[dict[str, tuple[float, float, bool]]] = {
    **dict.fromkeys(("tokens_in", "tokens_out", "known_at_step"), (0, _INEXACT, True)),
    **dict.fromkeys(("attempt", "exit_code"), (-_INEXACT, _INEXACT, True)),
    **dict.fromkeys(("cost_usd", "started", "seconds", "score"), (-1e300, 1e300, False)),
}
"""Least and largest of the numbers in a record, and whether they are whole."""


def _without_bad_numbers(record: Any) -> Iterator[str]:
    """Take numbers out of a record that no such field can hold, and say where they stood."""
    if not isinstance(record, dict):
        return
    yield from _drop(record, "$")
    for part in ("usage", "outcome"):
        yield from _drop(record.get(part), f"$.{part}")
    steps = record.get("steps")
    for number, step in enumerate(steps if isinstance(steps, list) else ()):
        if isinstance(step, dict) and (dropped := list(_from_step(step, f"$.steps[{number}]"))):
            flags = step.setdefault("flags", [])
            if isinstance(flags, list) and "bad-number" not in flags:
                flags.append("bad-number")
            yield from dropped


def _from_step(step: dict[str, Any], path: str) -> Iterator[str]:
    yield from _drop(step, path)
    yield from _drop(step.get("usage"), f"{path}.usage")
    calls = step.get("calls")
    for number, call in enumerate(calls if isinstance(calls, list) else ()):
        yield from _drop(call, f"{path}.calls[{number}]")


def _drop(holder: Any, path: str) -> Iterator[str]:
    if isinstance(holder, dict):
        for key in [key for key in holder if key in _BOUNDS and _is_bad(holder[key], key)]:
            yield f"{path}.{key}: {clip(holder.pop(key), 40)} was dropped: no number it can hold"


def _is_bad(value: Any, key: str) -> bool:
    low, high, whole = _BOUNDS[key]
    if isinstance(value, str):  # a number of too many digits to be one
        return len(value) > _DIGITS and value.lstrip("-").isdecimal()
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return not low <= value <= high or (whole and value != int(value))


_AT: Final = " - at $"
_UNKNOWN: Final = "Object contains unknown field "
_SHAPES: Final[tuple[tuple[str, type[msgspec.Struct]], ...]] = (
    (r"\$", _Record),
    (r"\$\.steps\[[^.]*\]", _Step),
    (r"\$\.steps\[[^.]*\]\.calls\[[^.]*\]", _Call),
    (r"\$(?:\.steps\[[^.]*\])?\.usage", _Usage),
    (r"\$\.outcome", _Outcome),
)
_WORDS: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    (r"\$\.outcome(?:\.outcome)?", (*OUTCOMES, "true", "false", "1", "0")),
    (r"\$\.end", tuple(sorted(TERMINAL_TYPES))),
    (r"\$\.steps\[[^.]*\]\.calls\[[^.]*\]\.status", ("ok", "error", "unknown")),
)


def _explained(why: str) -> tuple[str, str]:
    """Return where a fault is, and what is wrong and would have been allowed there.

    Examples
    --------
    >>> _explained("Object contains unknown field tokens - at $.usage")
    ('$.usage', "unknown field 'tokens'; allowed: tokens_in, tokens_out, cost_usd")
    """
    fault, at, tail = why.rpartition(_AT)
    fault, path = (fault, f"${tail}") if at else (why, "$")
    if fault.startswith(_UNKNOWN):
        fault = f"unknown field {clip(fault.removeprefix(_UNKNOWN), 60)!r}"
        shape = next((one for where, one in _SHAPES if re.fullmatch(where, path)), None)
        allowed = shape.__struct_fields__ if shape else ()
    else:
        allowed = next((words for where, words in _WORDS if re.fullmatch(where, path)), ())
    return path, fault + (f"; allowed: {', '.join(allowed)}" if allowed else "")


def trajectory_of(value: Any) -> Trajectory:
    """Read one record that is plain data.

    Raises
    ------
    BadPayloadError
        If a field is missing, unknown or of the wrong type, or an object is no JSON; ``path``
        names it.

    Examples
    --------
    >>> run = trajectory_of({"task_id": "t", "steps": [{"action": "ls", "observation": "a.py"}]})
    >>> run.steps[0].calls[0].text, run.steps[0].calls[0].observation
    ('ls', 'a.py')
    """
    try:
        found = msgspec.convert(dict(value) if isinstance(value, Mapping) else value, _Record)
    except msgspec.ValidationError as error:
        raise BadPayloadError(*_explained(str(error).replace("`", ""))) from None
    except UnicodeEncodeError:
        raise BadPayloadError("$", "a key, or a word out of a fixed list, is no text") from None
    except RecursionError:
        raise BadPayloadError("$", "nested too deeply") from None
    for path, free in _free(found):
        if not is_fit(free):
            _refuse_no_json(free, path, 0)
    return _trajectory(found, None)


def _free(record: _Record) -> Iterator[tuple[str, Any]]:
    """Yield what may hold any JSON, with its place."""
    yield "$.config", record.config
    for number, step in enumerate(record.steps):
        yield f"$.steps[{number}].state", step.state
        for place, call in enumerate(step.calls or ()):
            yield f"$.steps[{number}].calls[{place}].arguments", call.arguments


def _refuse_no_json(value: Any, path: str, depth: int) -> None:
    if value is None or isinstance(value, (str, int, float)) or depth > DEEPEST:
        return
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise BadPayloadError(path, f"the key {clip(repr(key), 60)} is no text")
            _refuse_no_json(item, f"{path}.{repair(key)}", depth + 1)
    elif isinstance(value, (list, tuple)):
        for number, item in enumerate(value):
            _refuse_no_json(item, f"{path}[{number}]", depth + 1)
    else:
        raise BadPayloadError(path, f"{type(value).__name__} is not JSON")


def _trajectory(found: _Record, record: str | None) -> Trajectory:
    return Trajectory(
        task_id=str(found.task_id),
        steps=tuple(map(_step, found.steps)),
        goal=found.goal or "",
        dataset=found.dataset,
        repo=found.repo,
        agent=found.agent,
        model=found.model,
        attempt=found.attempt,
        record=record,
        end=found.end,
        exit_status=found.exit_status,
        submission=found.submission,
        usage=_usage(found.usage),
        outcome=_outcome(found.outcome),
        config=found.config,
    )


def _outcome(found: Any) -> Outcome | None:
    if isinstance(found, _Outcome):
        about = msgspec.structs.asdict(found)
        return Outcome(**{**about, "outcome": _named(found.outcome)})
    return None if found is None else Outcome(outcome=_named(found), source="record")


def _named(said: Any) -> OutcomeName:
    if isinstance(said, str):
        return cast("OutcomeName", said)
    return "success" if said else "failure"


def _usage(found: _Usage | None) -> Usage | None:
    return None if found is None else Usage(**msgspec.structs.asdict(found))


def _step(step: _Step) -> Step:
    action, observation = step.action, step.observation
    told = () if step.calls is msgspec.UNSET else step.calls
    calls = tuple(Call(**msgspec.structs.asdict(call)) for call in told)
    if step.calls is msgspec.UNSET and (action or "").strip():
        calls = (Call(text=action or "", observation=observation or "", status="unknown"),)
    return Step(
        thought=step.thought or "",
        action=shared.joined([call.text for call in calls]) if action is None else action,
        observation=(
            shared.joined([call.observation for call in calls])
            if observation is None
            else observation
        ),
        calls=calls,
        flags=tuple(step.flags),
        usage=_usage(step.usage),
        started=step.started,
        seconds=step.seconds,
        state=step.state,
    )
