"""Values out of payloads: a user's event may hold anything, and what does not fit is unknown."""

from __future__ import annotations

from typing import Any, Final

import msgspec

__all__ = ["as_list", "micros", "number", "open_file", "text", "whole"]

_FIRST_SECOND: Final = -62_135_596_800
_LAST_SECOND: Final = 253_402_300_799
"""The years 1 to 9999, which are those of Python: a source may give milliseconds by mistake."""


def as_list(value: Any) -> list[Any]:
    """Take one value for a list of it, and nothing for an empty one."""
    if isinstance(value, list):
        return value
    return [] if value is None else [value]


def text(value: Any) -> str | None:
    """Take a value as text: as it is, or as JSON."""
    if value is None or isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode()


def whole(value: Any, bits: int = 63) -> int | None:
    """Take a whole number that fits into so many bits and a sign."""
    if value is None:
        return None
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    return value if is_whole and -(2**bits) <= value < 2**bits else None


def number(value: Any) -> float | None:
    """Take a number of a size that can be added up."""
    if value is None:
        return None
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if is_number and abs(value) < 1e300 else None


def micros(seconds: Any) -> int | None:
    """Take seconds since the epoch as whole microseconds."""
    value = number(seconds)
    if value is None or not _FIRST_SECOND <= value <= _LAST_SECOND:
        return None
    return round(value * 1e6)


def open_file(opened: Any) -> str | None:
    """Take the file that an agent's editor says is open."""
    return opened if isinstance(opened, str) and opened not in ("", "n/a") else None
