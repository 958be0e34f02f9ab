"""Reading JSON: fast and typed where it is clean, forgiving where it is not."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

import msgspec

from sag_research._text import repair
from sag_research.errors import FormatError

__all__ = [
    "Other",
    "OtherShapeError",
    "Outline",
    "decode",
    "first_character",
    "first_fault",
    "first_lines",
    "loads",
    "looks_like_json",
    "outline",
    "shaped",
]

T = TypeVar("T")

Other: TypeAlias = str | int | float | bool | list[Any] | None
"""What may stand where an object is expected; a reader leaves it out and says so."""

_BOM: Final = b"\xef\xbb\xbf"
_SPACE: Final = b" \t\r\n"
_DIGITS: Final = 4_000  # Python itself refuses to convert more than 4,300
_MARGIN: Final = 2**10
"""A JSON text begins within so many bytes."""


class OtherShapeError(FormatError):
    """The bytes are JSON, but not of the type that was asked for; ``why`` says where."""


def decode(data: bytes, decoder: msgspec.json.Decoder[T]) -> T:
    """Decode JSON into the decoder's type.

    Clean input takes the fast path, which skips what the type does not name. Input with lone
    surrogates, invalid UTF-8, NaN, raw control characters or numbers out of range is read
    again by the standard library; such text comes back with lone surrogates in it.

    Raises
    ------
    FormatError
        If the bytes are no JSON, are nested too deeply, or are of another shape.
    """
    data = data.removeprefix(_BOM)
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        value = loads(data)
    except RecursionError:
        raise _too_deep() from None
    return shaped(value, decoder)


def shaped(value: Any, decoder: msgspec.json.Decoder[T]) -> T:
    """Convert what :func:`loads` gives into the decoder's type.

    Raises
    ------
    FormatError
        If the value is of another shape, or nested too deeply.
    """
    try:
        return _convert(value, decoder)
    except msgspec.ValidationError as error:
        why = str(error).replace("`", "")
        raise OtherShapeError("JSON of another shape", why=why) from None
    except RecursionError:
        raise _too_deep() from None


def _convert(value: Any, decoder: msgspec.json.Decoder[T]) -> T:
    converted: T
    try:
        converted = msgspec.convert(value, decoder.type)
    except UnicodeEncodeError:  # a key, or a word out of a fixed list, holds half a character
        converted = msgspec.convert(_repaired(value), decoder.type)
    return converted


def _repaired(value: Any) -> Any:
    if isinstance(value, dict):
        return {repair(key): _repaired(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_repaired(item) for item in value]
    return repair(value) if isinstance(value, str) else value


def loads(data: bytes, pairs: Callable[[list[tuple[str, Any]]], Any] | None = None) -> Any:
    """Decode any JSON; invalid bytes become lone surrogates, absurdly long numbers stay text.

    Parameters
    ----------
    data : bytes
    pairs : callable, optional
        Makes an object of its keys and values; by default the last one of a repeated key wins.

    Raises
    ------
    FormatError
        If the bytes are no JSON or are nested too deeply.
    """
    text = data.removeprefix(_BOM).decode("utf-8", "surrogateescape")
    try:
        return json.loads(text, strict=False, parse_int=_int, object_pairs_hook=pairs)
    except RecursionError:
        raise _too_deep() from None
    except json.JSONDecodeError as error:
        if not text.strip():
            raise FormatError("empty") from None
        cut = error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated string")
        what = "JSON that is cut short" if cut else "not valid JSON"
        raise FormatError(
            what, why=f"{error.msg.removesuffix(' at')} at character {error.pos}"
        ) from None


def _int(digits: str) -> int | str:
    return int(digits) if len(digits) <= _DIGITS else digits


def _too_deep() -> FormatError:
    return FormatError("JSON that is nested too deeply")


def looks_like_json(head: bytes) -> bool:
    """Tell whether the first character can begin an object or a list."""
    return first_character(head) in (b"{", b"[")


def first_character(head: bytes) -> bytes:
    """Return the first character that is no space: ``{`` begins an object and ``[`` a list."""
    return head[:_MARGIN].removeprefix(_BOM).lstrip(_SPACE)[:1]


def first_fault(lines: Iterable[bytes]) -> str:
    """Say what keeps the first bad one of JSON lines from being read; empty if none is bad."""
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                loads(line)
            except FormatError as error:
                return f"line {number}: {error}"
    return ""


def first_lines(head: bytes, most: int = 5) -> list[bytes]:
    r"""Return the first lines of a beginning that are whole objects; else the first, which is cut.

    Examples
    --------
    >>> first_lines(b'{"a": 1}\n{"b": \n\n{"c": 1}\n{"d"')
    [b'{"a": 1}', b'{"c": 1}']
    >>> first_lines(b'{"a": 1, "b')
    [b'{"a": 1, "b']
    """
    lines = head.split(b"\n", most)
    kept = [line for line in lines[:most] if len(line) > 2 and outline(line).complete]
    return kept or lines[:1]


class Outline(NamedTuple):
    """What the beginning of a JSON text shows of its structure."""

    root: str
    """``object``, ``list`` or empty."""
    keys: dict[str, frozenset[str]]
    """Keys of the root (of a list: of its first object), each with the keys below it.

    Below a key stand the keys of the object it holds, or of the first object in its list.
    """
    complete: bool
    """The root was closed within the bytes seen."""
    more: bool
    """Another value follows: JSON lines."""

    def below(self, key: str) -> frozenset[str]:
        """Return the keys below a key; empty if it is absent or holds no object."""
        return self.keys.get(key, frozenset())


_TOKEN: Final = re.compile(rb'"([^"\\]*(?:\\.[^"\\]*)*)(?:"|\\?\Z)|([{}\[\]:])', re.DOTALL)
_SHORT: Final = 64 * 2**10
_EMPTY: Final = Outline("", {}, False, False)


def outline(data: bytes) -> Outline:
    """Read the outline of a JSON text, which may be cut anywhere.

    Examples
    --------
    >>> sorted(outline(b'{"a": [{"b": 1, "c": {"d"').below("a"))
    ['b', 'c']
    """
    return _short_outline(data) if len(data) <= _SHORT else _long_outline(data)


def _outline(data: bytes) -> Outline:
    data = data.removeprefix(_BOM)
    if not looks_like_json(data):
        return _EMPTY
    scan = _Scan()
    for token in _TOKEN.finditer(data):
        if scan.feed(token):
            more = bool(data[token.end() :].strip(_SPACE))
            return Outline(scan.root, scan.found(), True, more)
    return Outline(scan.root, scan.found(), False, False)


# All formats look at the same beginnings, and at the same lines of them.
_short_outline: Final = lru_cache(maxsize=64)(_outline)
_long_outline: Final = lru_cache(maxsize=2)(_outline)


class _Scan:
    """Follows braces and keeps the keys of the first object at each of two levels."""

    def __init__(self) -> None:
        self.root = ""
        self._keys: dict[str, set[str]] = {}
        self._open: list[str] = []
        self._last = b""
        self._key: str | None = None
        self._closed: set[str | None] = set()

    def found(self) -> dict[str, frozenset[str]]:
        return {key: frozenset(below) for key, below in self._keys.items()}

    def feed(self, token: re.Match[bytes]) -> bool:
        """Take a token; true when the root is closed."""
        text, mark = token.group(1), token.group(2)
        if mark is None:
            self._last = text
        elif mark == b":":
            self._name_key()
        elif mark in b"{[":
            self.root = self.root or ("object" if mark == b"{" else "list")
            self._open.append(mark.decode())
        elif self._open:
            self._close()
            return not self._open
        return False

    def _name_key(self) -> None:
        level = self._open.count("{") if len(self._open) <= 5 else 9
        if level == 1 and None not in self._closed:
            self._key = self._last.decode("utf-8", "replace")
            self._keys.setdefault(self._key, set())
        elif level == 2 and self._key is not None and self._key not in self._closed:
            self._keys[self._key].add(self._last.decode("utf-8", "replace"))

    def _close(self) -> None:
        level = self._open.count("{") if len(self._open) <= 5 else 9
        if self._open.pop() != "{":
            return
        if level == 1:
            self._closed.add(None)
        elif level == 2:
            self._closed.add(self._key)
