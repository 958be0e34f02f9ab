"""Tool calls that a model writes into its text, and the ids that calls without one are given."""

from __future__ import annotations

import json
import re
from collections import deque
from itertools import islice
from typing import Any, Final, NamedTuple

from sag_research._text import repair

__all__ = ["Written", "calls_in_text"]

_TRIES: Final = 32
_DEEPEST: Final = 200
_OPENING: Final = re.compile(r"\{")
_FENCE: Final = re.compile(r"```[a-zA-Z]*[ \t]*(?=\n|$)")


class Written(NamedTuple):
    """What a text holds."""

    prose: str
    """The text around the calls."""
    calls: tuple[dict[str, Any], ...]
    """Calls ``{name, arguments, id}``, as they were written."""
    dropped: int
    """Entries that are no calls."""


def calls_in_text(text: str) -> Written | None:
    r"""Find ``{"tool_calls": [{"name": …, "arguments": …}]}`` in a text, with prose around it.

    Parameters
    ----------
    text : str
        Whatever a model said; nothing in it raises.

    Returns
    -------
    Written or None
        ``None`` where there is no such object.

    Examples
    --------
    >>> calls_in_text('So: {"tool_calls": [{"name": "lookup", "arguments": {"q": 1}}, 7]}')
    Written(prose='So:', calls=({'name': 'lookup', 'arguments': {'q': 1}, 'id': ''},), dropped=1)
    >>> calls_in_text('A set is written {1, 2}.') is None
    True
    """
    named = text.find('"tool_calls"')
    if named < 0:
        return None
    for start in _openings(text, named):
        found = _object_at(text, start)
        if found is not None:
            entries, end = found
            calls = tuple(call for entry in entries if (call := _call(entry)) is not None)
            prose = _FENCE.sub("", text[:start] + text[end:]).strip()
            return Written(prose, calls, len(entries) - len(calls))
    return None


def _openings(text: str, named: int) -> list[int]:
    """Return where the object may begin: the last braces before its key, and the first after."""
    before = deque((found.start() for found in _OPENING.finditer(text, 0, named)), _TRIES)
    return [*before, *islice((found.start() for found in _OPENING.finditer(text, named)), _TRIES)]


def _object_at(text: str, start: int) -> tuple[list[Any], int] | None:
    """Read the object that begins at a place, if it holds calls; returns them and its end."""
    try:
        value, end = _DECODER.raw_decode(text, start)
    except (ValueError, RecursionError):
        return None
    entries = value.get("tool_calls")
    return (entries, end) if isinstance(entries, list) else None


_DECODER: Final = json.JSONDecoder()


def _call(entry: Any) -> dict[str, Any] | None:
    """Read one entry; the form in which some providers nest it is understood too."""
    inner = entry.get("function", entry) if isinstance(entry, dict) else None
    if not isinstance(inner, dict) or not isinstance(name := inner.get("name"), str) or not name:
        return None
    arguments, id_ = inner.get("arguments", {}), entry.get("id")
    read = _read(arguments) if isinstance(arguments, str) else arguments
    return {
        "name": repair(name),
        "arguments": _repaired(read),
        "id": repair(id_) if isinstance(id_, str) else "",
    }


def _read(arguments: str) -> Any:
    """Read arguments that were written as a text; what is no JSON stays the text."""
    try:
        return json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        return arguments


def _repaired(value: Any, depth: int = 0) -> Any:
    """Repair the texts in a value; JSON can write halves of characters, and the log takes none."""
    if isinstance(value, str):
        return repair(value)
    if depth < _DEEPEST and isinstance(value, dict):
        return {repair(name): _repaired(item, depth + 1) for name, item in value.items()}
    if depth < _DEEPEST and isinstance(value, list):
        return [_repaired(item, depth + 1) for item in value]
    return value
