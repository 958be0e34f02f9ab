"""Whether a value holds what is wanted of it: one small language for payloads and objects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

__all__ = ["matches"]

_MISSING: Final = object()


def matches(where: Mapping[str, Any], payload: object) -> bool:
    """Tell whether a payload holds the wanted values.

    A key may be a path with dots; a mapping asks for these values inside, whatever else is
    there; anything else must be equal, and of the same kind (``True`` is not 1).

    Examples
    --------
    >>> matches({"error": {"code": 5}}, {"error": {"code": 5, "text": "gone"}})
    True
    >>> matches({"error.code": 5, "calls.0.name": "ls"}, {"error": {"code": 5}})
    False
    """
    return all(_fits(wanted, _find(payload, key)) for key, wanted in where.items())


def _find(value: object, key: str) -> object:
    if isinstance(value, Mapping) and key in value:
        return value[key]
    for part in key.split("."):
        if isinstance(value, Mapping) and part in value:
            value = value[part]
        elif isinstance(value, Sequence) and not isinstance(value, str) and part.isdecimal():
            value = value[int(part)] if int(part) < len(value) else _MISSING
        else:
            return _MISSING
    return value


def _fits(wanted: object, found: object) -> bool:
    if isinstance(wanted, Mapping):
        return isinstance(found, Mapping) and matches(wanted, found)
    if isinstance(wanted, bool) or isinstance(found, bool):
        return wanted is found
    if isinstance(wanted, (list, tuple)):
        return isinstance(found, (list, tuple)) and list(wanted) == list(found)
    return wanted == found
