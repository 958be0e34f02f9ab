"""Label files as JSON, in which a key may be repeated: every value of it is read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sag_research._text import clip
from sag_research.errors import FormatError
from sag_research.ingest._json import loads

__all__ = ["in_step", "readings"]

_MOST: Final = 64
"""Values of one key in one object that are read; it is damage, and no report."""
_NAMED: Final = 5
"""Repeated keys that are named."""


class _Repeated:
    """An object with repeated keys: all values by key."""

    def __init__(self, pairs: Sequence[tuple[str, Any]]) -> None:
        self.values: dict[str, list[Any]] = {}
        for key, value in pairs:
            self.values.setdefault(key, []).append(value)


def readings(data: bytes) -> tuple[list[Any], list[str]]:
    """Decode JSON; where an object has a key more than once, once for each of its values.

    Parameters
    ----------
    data : bytes

    Returns
    -------
    found : list of object
        One value; of repeated keys, the first one has the first value of each, and so on.
    notes : list of str
        Which keys are repeated.

    Raises
    ------
    FormatError
        If the bytes are no JSON.

    Examples
    --------
    >>> readings(b'{"a": 1, "b": 2, "a": 3}')
    ([{'a': 1, 'b': 2}, {'a': 3, 'b': 2}], ["the key 'a' is there 2 times"])
    """
    counts: dict[str, int] = {}

    def keep(pairs: list[tuple[str, Any]]) -> Any:
        found = dict(pairs)
        if len(found) == len(pairs):
            return found
        made = _Repeated(pairs)
        for key, values in made.values.items():
            if len(values) > 1:
                counts[key] = max(len(values), counts.get(key, 0))
        return made

    value = loads(data, keep)
    most = max(counts.values(), default=1)
    if most > _MOST:
        raise FormatError(f"JSON in which a key is there {most} times")
    notes = [f"the key {clip(key, 60)!r} is there {counts[key]} times" for key in counts][:_NAMED]
    notes += [f"and {len(counts) - _NAMED} more keys"] if len(counts) > _NAMED else []
    try:
        return [_reading(value, number) for number in range(most)] if counts else [value], notes
    except RecursionError:
        raise FormatError("JSON that is nested too deeply") from None


def _reading(value: Any, number: int) -> Any:
    if isinstance(value, _Repeated):
        chosen = {key: kept[min(number, len(kept) - 1)] for key, kept in value.values.items()}
        return _reading(chosen, number)
    if isinstance(value, dict):
        return {key: _reading(item, number) for key, item in value.items()}
    if isinstance(value, list):
        return [_reading(item, number) for item in value]
    return value


def in_step(lines: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """Join the readings of lines to readings of all lines.

    Examples
    --------
    >>> in_step([["a", "b"], ["c"]])
    [['a', 'c'], ['b', 'c']]
    """
    most = max(map(len, lines), default=0)
    return [[found[min(number, len(found) - 1)] for found in lines] for number in range(most)]
