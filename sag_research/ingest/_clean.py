"""Making any value fit for the log: clean text, finite numbers, bounded depth."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, Final

from sag_research import _text

__all__ = ["DEEPEST", "LONGEST", "clean", "has_nul", "is_fit", "is_long"]

LONGEST: Final = 64 * 2**20
"""Bytes of a text in the log."""
DEEPEST: Final = 60
"""Levels of lists and objects in a value."""
_CUT: Final = " …(cut)"
_WORD: Final = 2**63


def clean(value: Any, path: str, spoilt: dict[str, str]) -> Any:
    r"""Return the value as the log can hold it.

    Lone surrogates and NUL become U+FFFD; NaN, infinities and integers over 64 bits become
    text; what is nested deeper than 60 is cut off, and so is the rest of a text over 64 MiB.

    Parameters
    ----------
    value : object
        Anything that JSON can say.
    path : str
        Where the value stands, e.g. ``calls[0].observation``.
    spoilt : dict of str to str
        Receives the text as it was before repair, by path; of what was cut off, its JSON.

    Examples
    --------
    >>> spoilt = {}
    >>> clean({"n": float("nan"), "t": "half \ud835"}, "state", spoilt)
    {'n': 'nan', 't': 'half \ufffd'}
    >>> sorted(spoilt)
    ['state.n', 'state.t']
    """
    return value if is_fit(value, 0) else _clean(value, path, spoilt, 0)


def is_fit(value: Any, depth: int = 0) -> bool:
    """Tell whether a value needs no change: nearly all do not, and this is the fast way to see."""
    kind = type(value)
    if kind is str:
        return not _is_spoilt(value)
    if value is None or kind is bool:
        return True
    if kind is int:
        return bool(-_WORD <= value < _WORD)
    if kind is float:
        return math.isfinite(value)
    if depth == DEEPEST:
        return False
    if kind is list:
        return all(is_fit(item, depth + 1) for item in value)
    if kind is dict:
        for key, item in value.items():
            if type(key) is not str or _is_spoilt(key):
                return False
            if item is not None and not is_fit(item, depth + 1):
                return False
        return True
    return False


_NUL: Final = b"\\u0000"
_MARK: Final = b'{"\\u0000":"'


def has_nul(body: bytes, texts: Mapping[bytes, bytes]) -> bool:
    """Tell whether NUL may stand anywhere in what the log accepted, by its bytes alone.

    Parameters
    ----------
    body : bytes
        The canonical form of a payload; marks, which hold NUL, stand for its long texts.
    texts : mapping of bytes to bytes
        Those long texts.
    """
    in_body = _NUL in body and body.count(_NUL) != body.count(_MARK)
    return in_body or any(b"\x00" in text for text in texts.values())


def _clean(value: Any, path: str, spoilt: dict[str, str], depth: int) -> Any:
    if isinstance(value, str):
        return _clean_text(value, path, spoilt) if _is_spoilt(value) else value
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if -_WORD <= value < _WORD else _as_text(_digits(value), path, spoilt)
    if isinstance(value, float):
        return value if math.isfinite(value) else _as_text(str(value), path, spoilt)
    if depth == DEEPEST:
        return _cut_off(value, path, spoilt)
    if isinstance(value, dict):
        return {
            _clean_text(str(key), f"{path}.key", spoilt): _clean(
                item, f"{path}.{_text.repair(str(key))}", spoilt, depth + 1
            )
            for key, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [
            _clean(item, f"{path}[{number}]", spoilt, depth + 1)
            for number, item in enumerate(value)
        ]
    return _as_text(str(value), path, spoilt)


def _cut_off(value: Any, path: str, spoilt: dict[str, str]) -> str:
    """Replace what is nested too deeply; what is kept of it is its JSON."""
    spoilt[path] = _as_json(value)
    return "(nested too deeply)"


def _as_json(value: Any) -> str:
    """Write a value of any depth, for which the standard library has too few calls left."""
    found: list[str] = []
    waiting: list[tuple[bool, Any]] = [(False, value)]
    while waiting:
        is_mark, one = waiting.pop()
        if is_mark:
            found.append(one)
        elif isinstance(one, dict):
            waiting.append((True, "}"))
            for number, (key, item) in reversed(list(enumerate(one.items()))):
                name = json.dumps(str(key), ensure_ascii=False)
                waiting += [(False, item), (True, f"{', ' if number else ''}{name}: ")]
            found.append("{")
        elif isinstance(one, (list, tuple)):
            waiting.append((True, "]"))
            for number, item in reversed(list(enumerate(one))):
                waiting += [(False, item), (True, ", " if number else "")]
            found.append("[")
        elif isinstance(one, int) and not isinstance(one, bool):
            found.append(_digits(one))
        else:
            found.append(json.dumps(one, ensure_ascii=False, default=str))
    return "".join(found)


def _is_spoilt(text: str) -> bool:
    if text.isascii():
        return "\x00" in text or len(text) > LONGEST
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        return True
    return "\x00" in text or size > LONGEST


def is_long(text: str) -> bool:
    """Tell whether a text, as it was before repair, is longer than the log can hold."""
    return len(text) > LONGEST // 4 and len(_text.repair(text).encode()) > LONGEST


def _clean_text(text: str, path: str, spoilt: dict[str, str]) -> str:
    if not _is_spoilt(text):
        return text
    spoilt[path] = text
    repaired = _text.repair(text)
    return _cut(repaired) if is_long(repaired) else repaired


def _cut(text: str) -> str:
    end = LONGEST - len(_CUT.encode())
    return text.encode()[:end].decode(errors="ignore") + _CUT


def _as_text(text: str, path: str, spoilt: dict[str, str]) -> str:
    spoilt[path] = text
    return _text.repair(text)


def _digits(value: int) -> str:
    return hex(value) if value.bit_length() > 4_000 else str(value)
