"""What the sessions of several command-line agents share: lines, calls, amounts and times."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from sag_research.errors import FormatError
from sag_research.ingest._json import decode
from sag_research.ingest._source import Source
from sag_research.ingest.formats import _shared as shared
from sag_research.ingest.formats._openhands_turns import Turns, clock
from sag_research.model import Call, Step, Trajectory, Usage

__all__ = [
    "SHELLS",
    "call_of",
    "counted",
    "filled",
    "leading",
    "objects",
    "seconds_of",
    "shallow",
    "steps_of",
    "total_of",
]

SHELLS: Final = frozenset({"bash", "exec", "powershell", "shell", "Shell"})
"""Tools whose ``command`` is what a person would read as the action."""
_ANY: Final = msgspec.json.Decoder()
_MILLISECONDS: Final = 1e11
"""Times above it, which as seconds would be beyond the year 5000, are milliseconds."""


def objects(source: Source, notes: list[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the objects of JSON lines, each with its number; a damaged line costs that line.

    The damaged ones are noted when all lines are read.
    """
    faults = []
    for number, line in enumerate(source.lines(), start=1):
        if not line.strip():
            continue
        try:
            found = decode(line, _ANY)
        except FormatError as error:
            faults.append(f"line {number}: {error}")
            continue
        if isinstance(found, dict):
            yield number, found
        else:
            faults.append(f"line {number}: no object")
    notes += shared.first_of(faults)


def shallow(runs: Iterator[Trajectory]) -> Iterator[Trajectory]:
    """Yield the runs; what is nested too deeply to be written down is a fault of the source."""
    try:
        yield from runs
    except RecursionError:
        raise FormatError("JSON that is nested too deeply") from None


def counted(counts: Mapping[str, int], what: str) -> list[str]:
    """Say how many lines of which types are something; nothing if there are none.

    Examples
    --------
    >>> counted({"abort": 1, "session.idle": 2}, "are part of no step")
    ['3 lines are part of no step: abort 1, session.idle 2']
    """
    kinds = ", ".join(f"{kind} {counts[kind]}" for kind in sorted(counts))
    return [f"{sum(counts.values())} lines {what}: {kinds}"] if counts else []


def call_of(call_id: Any, name: Any, arguments: Any) -> Call:
    """Return a call; one of a shell is shown as the command that was typed.

    Examples
    --------
    >>> call_of("c", "exec", {"command": "ls", "timeout": 30}).text
    'ls'
    """
    entry = {"id": shared.word(call_id), "name": shared.word(name), "arguments": arguments}
    (call,) = shared.calls_from([entry])
    given = call.arguments
    command = given.get("command") if isinstance(given, dict) and call.name in SHELLS else None
    return replace(call, text=command) if isinstance(command, str) else call


def seconds_of(value: Any) -> float | None:
    """Return seconds since the epoch, of seconds, milliseconds or a written time.

    Examples
    --------
    >>> seconds_of(1700000000500), seconds_of("1970-01-01T00:01:00Z"), seconds_of(0)
    (1700000000.5, 60.0, None)
    """
    found = clock(value)
    if found is None or found <= 0:
        return None
    return found / 1000 if found > _MILLISECONDS else found


def total_of(*amounts: Any) -> int | None:
    """Return the sum of the amounts that were counted; None if none was.

    Examples
    --------
    >>> total_of(3, None, 40), total_of(0, None)
    (43, None)
    """
    known = [one for one in map(shared.integer, amounts) if one is not None and one > 0]
    return sum(known) or None


def filled(config: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what is empty or unknown."""
    return {name: value for name, value in config.items() if value not in (None, "", [], {})}


def leading(found: Mapping[str, Any], *names: str) -> str | None:
    """Return the first of these values that is text and not empty."""
    return next(filter(None, (shared.word(found.get(name)) for name in names)), None)


def steps_of(
    turns: Turns,
    seconds: Mapping[int, float] | None = None,
    usage: Mapping[int, Usage] | None = None,
) -> tuple[Step, ...]:
    """Return the turns as steps, with the seconds of their tools by the number of the turn."""
    told, used = seconds or {}, usage or {}
    found = []
    for number, turn in enumerate(turns.all):
        step = turn.step()
        found.append(replace(step, seconds=told.get(number), usage=used.get(number, step.usage)))
    return tuple(found)
