"""The canonical form of a payload, and the digests chained over it.

A payload is written as JSON with sorted keys. Every text of 512 bytes and more is taken out
and replaced by a mark that holds the text's digest, so the digest of the short form covers
the long texts too, and equal texts are stored once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final, TypeAlias

import msgspec

from sag_research.errors import BadPayloadError

__all__ = [
    "BLOB_BYTES",
    "GENESIS",
    "MAX_TEXT_BYTES",
    "blob_digest",
    "body_digest",
    "chain",
    "decode",
    "encode",
    "marked",
    "marked_digest",
    "parse",
    "seal",
]

BLOB_BYTES: Final = 512
MAX_TEXT_BYTES: Final = 64 * 2**20
MAX_DEPTH: Final = 100
_SURELY_SHORT: Final = BLOB_BYTES // 4
"""A text of fewer characters is of fewer bytes than a blob, whatever they are."""
MARK: Final = "\x00"
_MARK_BYTES: Final = b'{"\\u0000":'
_INT_END: Final = 10**4300  # Python neither writes nor reads longer numbers unless told to
_SMALL: Final = 2**63  # numbers below are told apart quickly
_blank: Final = blake2b(digest_size=32)
GENESIS: Final = blake2b(b"sag_research log 1", digest_size=32).digest()

_encode: Final = msgspec.json.Encoder(order="sorted").encode


class _Refused(Exception):
    """The payload holds something that has no canonical form; found without its path."""


def body_digest(body: bytes) -> bytes:
    """Return the 32-byte digest of a canonical body."""
    state = _blank.copy()  # cheaper than to make one
    state.update(body)
    return state.digest()


blob_digest: Final = body_digest
"""Return the 32-byte address of a blob."""


def chain(previous: bytes, type_: str, actor: str, cause: int | None, body: bytes) -> bytes:
    """Chain one event's content to its history; ``body`` is the body's digest."""
    state = _blank.copy()
    envelope = _uncaused(type_, actor) if cause is None else _encode((type_, actor, cause))
    state.update(previous + body + envelope)
    return state.digest()


@lru_cache(1_024)
def _uncaused(type_: str, actor: str) -> bytes:
    return _encode((type_, actor, None))


def seal(
    previous: bytes, digest: bytes, envelope: tuple[int, float | None, float | None, str | None]
) -> bytes:
    """Chain one event's digest, clocks and frame to its history; checked by ``verify`` alone.

    ``envelope`` is (ts in ns, started in s, seconds, frame).
    """
    state = _blank.copy()
    state.update(previous + digest + _encode(envelope))
    return state.digest()


def encode(payload: Mapping[str, Any]) -> tuple[bytes, dict[bytes, bytes]]:
    """Write a payload in canonical form.

    Returns
    -------
    body : bytes
        JSON with sorted keys and marks in place of long texts.
    blobs : dict of bytes to bytes
        The long texts by their digest.

    Raises
    ------
    BadPayloadError
        For NaN, infinities, lone surrogates, keys that are no text or hold NUL, objects that
        are no JSON, numbers of more than 4,300 digits, nesting deeper than 100 and texts over
        64 MiB; names the value's path.

    Examples
    --------
    >>> encode({"b": 1, "a": "x"})
    (b'{"a":"x","b":1}', {})
    """
    plain = payload if type(payload) is dict else None
    if plain is None:
        if not isinstance(payload, Mapping):
            raise BadPayloadError("$", f"{type(payload).__name__} is no JSON object")
        plain = dict(payload)
    blobs: dict[bytes, bytes] = {}
    try:
        return _encode(_object(plain, 1, blobs, {})), blobs
    except (_Refused, ValueError, TypeError) as error:
        path, why = _locate(payload, "$", 0) or ("$", str(error))
        raise BadPayloadError(path, why) from None


_Marks: TypeAlias = dict[str, dict[str, str]]
"""Long texts of a payload with their marks: one met twice is digested once."""


def _object(
    value: dict[Any, Any], depth: int, blobs: dict[bytes, bytes], marks: _Marks
) -> dict[str, Any]:
    """Take the long texts out of an object's values, whose depth is given.

    What holds none is returned itself: most objects need not be made again.
    """
    changed = None
    short: Any
    for key, item in value.items():
        if type(key) is not str or MARK in key:
            raise _Refused
        kind = type(item)
        if kind is str:  # most are short: no call for them
            size = len(item)
            if size < _SURELY_SHORT or (size < BLOB_BYTES and item.isascii()):
                continue
            short = _text(item, blobs, marks)
        elif item is None or (kind is int and _SMALL > item > -_SMALL):
            continue
        else:
            short = _short(item, depth, blobs, marks)
        if short is not item:
            if changed is None:
                changed = value.copy()
            changed[key] = short
    return value if changed is None else changed


def _short(value: Any, depth: int, blobs: dict[bytes, bytes], marks: _Marks) -> Any:
    kind = type(value)
    if kind is str:
        return value if len(value) < _SURELY_SHORT else _text(value, blobs, marks)
    if value is None or kind is bool:
        return value
    if kind is int:
        if abs(value) >= _INT_END:
            raise _Refused
        return value
    if kind is float:
        if not math.isfinite(value):
            raise _Refused
        return value
    if depth >= MAX_DEPTH:
        raise _Refused
    if kind is dict:
        return _object(value, depth + 1, blobs, marks)
    if isinstance(value, (list, tuple)):
        return [_short(item, depth + 1, blobs, marks) for item in value] if value else []
    if isinstance(value, Mapping):
        return _object(dict(value), depth + 1, blobs, marks)
    raise _Refused


def _text(text: str, blobs: dict[bytes, bytes], marks: _Marks) -> str | dict[str, str]:
    if (mark := marks.get(text)) is not None:
        return mark
    data = text.encode()
    if len(data) < BLOB_BYTES:
        return text
    if len(data) > MAX_TEXT_BYTES:
        raise _Refused
    digest = blob_digest(data)
    blobs[digest] = data
    mark = marks[text] = {MARK: digest.hex()}
    return mark


def _locate(value: Any, path: str, depth: int) -> tuple[str, str] | None:
    """Find the first value without a canonical form: its path and what is wrong with it."""
    kind = type(value)
    if kind is str:
        why = _text_fault(value)
        return (path, why) if why else None
    if kind is float and not math.isfinite(value):
        return path, f"{value} is not JSON"
    if kind is int and abs(value) >= _INT_END:
        return path, "a number of more than 4,300 digits"
    if value is None or kind in (int, bool, float):
        return None
    if depth >= MAX_DEPTH:
        return path, f"nested deeper than {MAX_DEPTH}"
    if isinstance(value, Mapping):
        for key, item in value.items():
            if type(key) is not str or MARK in key or _text_fault(key):
                return path, f"the key {key!r} is not clean text"
            if found := _locate(item, f"{path}.{key}", depth + 1):
                return found
        return None
    if isinstance(value, (list, tuple)):
        for number, item in enumerate(value):
            if found := _locate(item, f"{path}[{number}]", depth + 1):
                return found
        return None
    return path, f"{kind.__name__} is not JSON"


def _text_fault(text: str) -> str:
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        return f"lone surrogate at character {error.start}"
    return f"text of {size} bytes, the limit is {MAX_TEXT_BYTES}" if size > MAX_TEXT_BYTES else ""


def decode(body: bytes, fetch: Callable[[bytes], bytes]) -> dict[str, Any]:
    """Read a canonical body; ``fetch`` gives the bytes of a blob by its digest."""
    holes: list[Any] = []
    payload = parse(body, holes)
    for start in range(0, len(holes), 3):
        container, key, digest = holes[start : start + 3]
        container[key] = fetch(digest).decode()
    return payload


def parse(body: bytes, holes: list[Any]) -> dict[str, Any]:
    """Read a canonical body without its long texts, and say where they belong.

    Parameters
    ----------
    body : bytes
    holes : list
        Gets, for each long text, three items: the object or array that it belongs in, its key
        or index there, and its digest. They stand flat, for a page of events has many.

    Raises
    ------
    ValueError, msgspec.DecodeError
        If it is no canonical body.
    """
    try:
        payload = msgspec.json.decode(body)
    except TypeError:  # a damaged file may hold a number in its place
        raise ValueError("the body is no text") from None
    if type(payload) is not dict or MARK in payload:
        raise ValueError("the body is no JSON object")
    for key, item in payload.items():
        kind = type(item)
        if kind is dict or kind is list:
            _find_holes(payload, key, item, holes)
    return payload


def _find_holes(container: Any, key: Any, item: Any, holes: list[Any]) -> None:
    if type(item) is list:
        parts: Iterable[tuple[Any, Any]] = enumerate(item)
    elif MARK in item:
        holes += (container, key, _marked_digest(item[MARK]))
        return
    else:
        parts = item.items()
    for name, part in parts:
        kind = type(part)
        if kind is dict or kind is list:
            _find_holes(item, name, part, holes)


def _marked_digest(mark: object) -> bytes:
    if type(mark) is not str:
        raise ValueError("a mark holds no digest")
    return bytes.fromhex(mark)


def marked_digest(mark: Mapping[str, str]) -> bytes | None:
    """Return the digest of the long text for which an object of a body stands, if it is a mark."""
    digest = mark.get(MARK)
    return None if digest is None else bytes.fromhex(digest)


def marked(bodies: Iterable[bytes]) -> set[bytes]:
    """Collect the digests of all blobs that some bodies refer to."""
    found: set[bytes] = set()
    for body in bodies:
        if _MARK_BYTES in body:
            for part in body.split(_MARK_BYTES)[1:]:
                found.add(bytes.fromhex(part[1:65].decode()))
    return found
