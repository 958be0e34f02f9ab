"""Dotted paths into a state: ``job.id`` is the ``id`` of what stands under ``job``."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any

from sag_research._text import clip
from sag_research.errors import UsageError

__all__ = ["MISSING", "look", "put"]

MISSING: Any = object()
"""What :func:`look` returns where there is nothing; ``None`` may be a value."""


def look(place: Any, path: str) -> Any:
    """Return what stands at a path, :data:`MISSING` where nothing does.

    Each part is a key of a mapping, a position of a sequence or a public attribute. A key that
    holds a dot itself is found under its full name.

    Examples
    --------
    >>> look({"job": {"steps": ["read", "write"]}}, "job.steps.1")
    'write'
    """
    if isinstance(place, Mapping) and path in place:
        return place[path]
    for part in path.split("."):
        if isinstance(place, Mapping):
            place = place.get(part, MISSING)
        elif isinstance(place, Sequence) and not isinstance(place, str) and part.isdecimal():
            place = place[int(part)] if int(part) < len(place) else MISSING
        else:
            place = MISSING if part.startswith("_") else getattr(place, part, MISSING)
        if place is MISSING:
            break
    return place


def put(state: MutableMapping[str, Any], path: str, value: Any) -> None:
    """Write a value at a path; mappings on the way to it are made where they are missing.

    Raises
    ------
    UsageError
        If something that is no mapping is in the way.

    Examples
    --------
    >>> state = {}
    >>> put(state, "job.id", 7)
    >>> state
    {'job': {'id': 7}}
    """
    place: MutableMapping[str, Any] = state
    *way, last = [path] if path in state else path.split(".")
    for part in way:
        inner = place.setdefault(part, {})
        if not isinstance(inner, MutableMapping):
            raise UsageError(
                f"nothing can be written at {path!r}",
                why=f"{part!r} holds {clip(repr(inner))}, which is no mapping",
            )
        place = inner
    place[last] = value
