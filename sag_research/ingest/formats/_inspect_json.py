"""Large JSON objects taken apart, so that what nobody asks for is never built."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final, TypeVar, cast

import msgspec

from sag_research.errors import FormatError
from sag_research.ingest._json import loads

__all__ = ["members", "take"]

T = TypeVar("T", bound=msgspec.Struct)

_STRING: Final = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_TOKEN: Final = re.compile(rb'[^"{}\[\]:,]*+(' + _STRING + rb"|[{}\[\]:,])", re.DOTALL)
_PLAIN: Final = rb'(?:[^"{}\[\]]++|' + _STRING + rb")"
_LEAF: Final = rb"[{\[]" + _PLAIN + rb"*+[}\]]"
_TWIG: Final = rb"[{\[](?:" + _PLAIN + rb"|" + _LEAF + rb")*+[}\]]"
_BOUGH: Final = rb"[{\[](?:" + _PLAIN + rb"|" + _TWIG + rb")*+[}\]]"
_BRACKET: Final = re.compile(
    rb"(?:" + _PLAIN + rb"|" + _BOUGH + rb")*+([{}\[\]])",
    re.DOTALL,
)
"""The next bracket outside of strings behind what is nested little, which is passed at once."""
_BOM: Final = b"\xef\xbb\xbf"


def take(data: bytes | msgspec.Raw, decoder: msgspec.json.Decoder[T]) -> T:
    """Decode an object of which some parts stay undecoded.

    Parameters
    ----------
    data : bytes or Raw
    decoder : Decoder
        Of a struct whose fields are of type ``Any``, or ``Raw`` for what stays undecoded, or
        ``list[Raw] | None`` for a list whose items do: what else stands there is None.

    Raises
    ------
    FormatError
        If the bytes are no JSON object.

    Notes
    -----
    Where the fast way fails, be it for one character in one item, the object is taken apart
    and each part read by itself, so the rest is not built for it either.
    """
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        fields: dict[str, Any] = {}
    kind = cast(type[T], decoder.type)
    names, raw = _fields(kind)
    for key, value in members(bytes(data).removeprefix(_BOM), b"{"):
        name = key.decode("utf-8", "replace")
        if name in raw:
            fields[name] = msgspec.Raw(value)
        elif name in names:
            fields[name] = loads(value) if names[name] is Any else _items(value)
    return kind(**fields)


@lru_cache(maxsize=32)
def _fields(kind: type[msgspec.Struct]) -> tuple[dict[str, Any], frozenset[str]]:
    found = {one.name: one.type for one in msgspec.structs.fields(kind)}
    return found, frozenset(name for name, type_ in found.items() if type_ is msgspec.Raw)


def _items(value: bytes) -> list[msgspec.Raw] | None:
    if not value.startswith(b"["):
        return None
    return [msgspec.Raw(item) for _, item in members(value, b"[")]


def members(data: bytes, opening: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the values in a JSON object or list as bytes, each behind its key (a list's: empty).

    Raises
    ------
    FormatError
        If the data do not begin with ``opening``, or end too soon.

    Examples
    --------
    >>> list(members(b'{"a": [1, {"b": 2}], "c": "d,"}', b"{"))
    [(b'a', b'[1, {"b": 2}]'), (b'c', b'"d,"')]
    """
    if data.lstrip()[:1] != opening:
        raise FormatError(
            "JSON of another shape", why="no object" if opening == b"{" else "no list"
        )
    depth, place, start, key, last = 0, 0, 0, b"", b""
    while token := (_TOKEN if depth <= 1 else _BRACKET).match(data, place):
        mark, place = token[1], token.end()
        if mark in (b"{", b"["):
            depth += 1
            start = place if depth == 1 else start
        elif mark == b":" and depth == 1:
            key, start = last[1:-1], place
        elif mark in (b",", b"}", b"]") and depth == 1:
            if value := data[start : place - 1].strip():
                yield key, value
            start = place
        depth -= mark in (b"}", b"]")
        if not depth:
            return
        last = mark
    raise FormatError("JSON that is cut short")
