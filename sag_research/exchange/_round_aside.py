"""What another format has no words for: found by comparing a step with what its words say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from sag_research.exchange._round import STEP_FIELDS, calls_as_text

__all__ = ["aside_of", "positive", "unique_ids"]

_OWN: Final = tuple(name for name in STEP_FIELDS if name not in ("calls", "action"))
_EMPTY: Final[tuple[Any, ...]] = ("", [], None)


def aside_of(
    step: Mapping[str, Any], said: Mapping[str, Any], aside: Counter[str]
) -> dict[str, Any]:
    """Return the fields of a step that the words of a format do not give back.

    Parameters
    ----------
    step : mapping
        A native step.
    said : mapping
        What a reader makes of the words: fields of a step; what is absent is empty. ``calls`` has
        an object for each call, in which a field that is absent is not given back.
    aside : Counter
        Gets one for each field that is found.

    Examples
    --------
    >>> step = {"thought": "t", "action": "ls", "observation": "", "flags": ["final"],
    ...         "calls": [{"text": "ls", "name": "bash"}]}
    >>> aside_of(step, {"thought": "t", "calls": [{"name": "bash"}]}, Counter())
    {'flags': ['final'], 'calls': [{'text': 'ls'}]}
    """
    found = {name: step.get(name) for name in _OWN if not _same(step, said, name)}
    if step["action"] != calls_as_text(step, "text"):
        found["action"] = step["action"]
    calls = [
        {name: value for name, value in call.items() if name not in known or known[name] != value}
        for call, known in zip(step["calls"], said.get("calls", ()), strict=True)
    ]
    aside.update(found.keys())
    aside.update({f"calls.{name}" for one in calls for name in one})
    return found | ({"calls": calls} if any(calls) else {})


def _same(step: Mapping[str, Any], said: Mapping[str, Any], name: str) -> bool:
    value, read = step.get(name), said.get(name)
    nothing = name != "state" and value in _EMPTY and read in _EMPTY  # a state may be []
    return value == read or nothing


def unique_ids(calls: Sequence[Mapping[str, Any]], number: int, made_up: Counter[str]) -> list[str]:
    """Return an id for each call of a step: its own, or one made up if it has none of its own.

    Examples
    --------
    >>> unique_ids([{"id": "a"}, {"id": "a"}, {"id": ""}], 3, Counter())
    ['a', 'sag-call-3-1', 'sag-call-3-2']
    """
    found: list[str] = []
    for place, call in enumerate(calls):
        own = call["id"]
        if not own.strip() or own != own.strip() or own in found:
            own = f"sag-call-{number}-{place}"
            made_up["calls.id"] += 1
        found.append(own)
    return found


def positive(usage: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return the amounts above 0: readers of other formats take 0 for an amount nobody counted."""
    return {name: value for name, value in (usage or {}).items() if value > 0} or None
