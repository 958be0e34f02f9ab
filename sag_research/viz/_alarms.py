"""Where an alarm was raised and where a fork parts, as arguments or the graph itself tell."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

__all__ = ["Told", "read_alarms"]

_TELLING: Final = ("deadend.predicted", "run.backtracked", "run.abandoned")


class Told(NamedTuple):
    """What is marked on lanes."""

    flags: dict[str, set[str]]
    """By key of the event."""
    risk: dict[str, dict[int, float]]
    """By run id and step."""


def read_alarms(
    graph: Any,
    risk: Mapping[str, Sequence[float]] | None = None,
    alarms: Mapping[str, int] | None = None,
) -> Told:
    """Find the steps to flag, and the risk of each step that it is known of."""
    known = {run: _clean(values) for run, values in (risk or {}).items()}
    raised = dict(alarms or {})
    for run, step, value in _events(graph):
        if alarms is None:
            raised.setdefault(run, step)
        if value is not None and run not in (risk or {}):
            known.setdefault(run, {})[step] = value
    flags: dict[str, set[str]] = {}
    for key, data in graph.nodes(data=True):
        at = data.get("step")  # only events have one, and only those that are steps
        if at is not None and raised.get(data["run_id"]) == at:
            flags.setdefault(key, set()).add("alarm")
    for _, target, kind in graph.edges(keys=True):
        if kind == "FORKED_FROM":
            flags.setdefault(target, set()).add("fork-point")
    return Told(flags, known)


def _clean(values: Sequence[float]) -> dict[int, float]:
    numbers = ((step, float(value)) for step, value in enumerate(values))
    return {step: min(max(n, 0.0), 1.0) for step, n in numbers if not math.isnan(n)}


def _events(graph: Any) -> list[tuple[str, int, float | None]]:
    """Read run, step and risk out of events that tell of an alarm."""
    found = []
    for _, data in graph.nodes(data=True):
        if data["label"] != "Event" or data["type"] not in _TELLING:
            continue
        body = _decode(data["body"])
        run = body.get("from", data["run_id"])
        step, value = body.get("step"), body.get("risk")
        if isinstance(step, int) and isinstance(run, str):
            number = float(value) if isinstance(value, (int, float)) else None
            found.append((run, step, number if number is None or 0 <= number <= 1 else None))
    return found


def _decode(body: str) -> dict[str, Any]:
    """Read a payload; one that was cut for the graph says nothing."""
    try:
        found = msgspec.json.decode(body.encode("utf-8", "replace"))
    except msgspec.DecodeError:
        return {}
    return found if isinstance(found, dict) else {}
