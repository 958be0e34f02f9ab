"""The canonical form of a payload, and the digests chained over it.

A payload is written as JSON with sorted keys. Every text of 512 bytes and more is taken out
and replaced by a mark that holds the text's digest, so the digest of the short form covers
the long texts too, and equal texts are stored once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from hashlib import blake2b
from typing import Any, Final

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
GENESIS: Final = blake2b(b"sag_research log 1", digest_size=32).digest()

_encoder: Final = msgspec.json.Encoder(order="sorted")


class _Refused(Exception):
    """The payload holds something that has no canonical form; found without its path."""


def blob_digest(data: bytes) -> bytes:
    """Return the 32-byte address of a blob."""
    return blake2b(data, digest_size=32).digest()


def body_digest(body: bytes) -> bytes:
    """Return the 32-byte digest of a canonical body."""
    return blake2b(body, digest_size=32).digest()


def chain(previous: bytes, type_: str, actor: str, cause: int | None, body: bytes) -> bytes:
    """Chain one event's content to its history; ``body`` is the body's digest."""
    envelope = _encoder.encode((type_, actor, cause))
    return blake2b(previous + body + envelope, digest_size=32).digest()


def seal(
    previous: bytes, digest: bytes, envelope: tuple[int, float | None, float | None, str | None]
) -> bytes:
    """Chain one event's digest, clocks and frame to its history; checked by ``verify`` alone.

    ``envelope`` is (ts in ns, started in s, seconds, frame).
    """
    return blake2b(previous + digest + _encoder.encode(envelope), digest_size=32).digest()


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
    shortener = _Shortener()
    try:
        return _encoder.encode(shortener.object(plain, 1)), shortener.blobs
    except (_Refused, ValueError, TypeError) as error:
        path, why = _locate(payload, "$", 0) or ("$", str(error))
        raise BadPayloadError(path, why) from None


class _Shortener:
    """Takes the long texts out of a payload; a text met twice is digested once."""

    def __init__(self) -> None:
        self.blobs: dict[bytes, bytes] = {}
        self._marks: dict[str, dict[str, str]] = {}

    def short(self, value: Any, depth: int) -> Any:
        kind = type(value)
        if kind is str:
            return value if len(value) < _SURELY_SHORT else self._text(value)
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
            return self.object(value, depth + 1)
        if isinstance(value, (list, tuple)):
            return [self.short(item, depth + 1) for item in value]
        if isinstance(value, Mapping):
            return self.object(dict(value), depth + 1)
        raise _Refused

    def object(self, value: dict[Any, Any], depth: int) -> dict[str, Any]:
        """Shorten the values of an object; ``depth`` is theirs."""
        short = self.short
        return {
            key if type(key) is str and MARK not in key else _key(key): item
            # most values are short texts or None: no call for them
            if item is None
            or (
                type(item) is str
                and (
                    len(item) < _SURELY_SHORT
                    or (len(item) < BLOB_BYTES and item.isascii())  # as many bytes
                )
            )
            else short(item, depth)
            for key, item in value.items()
        }

    def _text(self, text: str) -> str | dict[str, str]:
        if (mark := self._marks.get(text)) is not None:
            return mark
        data = text.encode()
        if len(data) < BLOB_BYTES:
            return text
        if len(data) > MAX_TEXT_BYTES:
            raise _Refused
        digest = blob_digest(data)
        self.blobs[digest] = data
        mark = self._marks[text] = {MARK: digest.hex()}
        return mark


def _key(key: object) -> str:
    if type(key) is not str or MARK in key:
        raise _Refused
    return key


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
    payload = msgspec.json.decode(body)
    if _MARK_BYTES in body:
        payload = _long(payload, fetch)
    return payload  # type: ignore[no-any-return]


_NESTED: Final = (dict, list)


def _long(value: Any, fetch: Callable[[bytes], bytes]) -> Any:
    if type(value) is dict:
        if MARK in value:
            return fetch(bytes.fromhex(value[MARK])).decode()
        return {
            key: _long(item, fetch) if type(item) in _NESTED else item
            for key, item in value.items()
        }
    if type(value) is list:
        return [_long(item, fetch) if type(item) in _NESTED else item for item in value]
    return value


def marked(bodies: Iterable[bytes]) -> set[bytes]:
    """Collect the digests of all blobs that some bodies refer to."""
    found: set[bytes] = set()
    for body in bodies:
        if _MARK_BYTES in body:
            for part in body.split(_MARK_BYTES)[1:]:
                found.add(bytes.fromhex(part[1:65].decode()))
    return found
