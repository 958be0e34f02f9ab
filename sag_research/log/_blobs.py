"""Long texts, kept once under their digests, packed, and remembered for a while."""

from __future__ import annotations

import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, TypeAlias

import zstandard

__all__ = ["Blobs", "Packed", "pack", "unpacked"]

Packed: TypeAlias = tuple[bytes, int, int, bytes]
"""Digest, size in bytes, how it is kept (0 as it is, 1 zstd, -1 to be packed yet), and data."""

CACHE_BYTES: Final = 32 * 2**20
KNOWN: Final = 65_536
_AT_ONCE: Final = 500
_FEW: Final = 8
_FROM: Final = """
    SELECT digest, enc, size, data FROM blobs
    WHERE id >= (SELECT id FROM blobs WHERE digest = ?) ORDER BY id LIMIT ?"""
_INSERT: Final = "INSERT OR IGNORE INTO blobs (digest, size, enc, data) VALUES (?, ?, ?, ?)"
_UNPACKED: Final = -1
_LEVEL: Final = 3
_compressor: Final = threading.local()


def unpacked(texts: Mapping[bytes, bytes]) -> list[Packed]:
    """Give texts, by their digests, the form in which they are handed on."""
    return [(digest, len(data), _UNPACKED, data) for digest, data in texts.items()]


def pack(text: Packed) -> Packed:
    """Pack a text, if it becomes shorter by that; what is packed stays as it is."""
    digest, size, enc, data = text
    if enc != _UNPACKED:
        return text
    if not hasattr(_compressor, "compress"):  # one must not be shared by threads
        _compressor.compress = zstandard.ZstdCompressor(level=_LEVEL).compress
    packed = _compressor.compress(data)
    return (digest, size, 1, packed) if len(packed) < size else (digest, size, 0, data)


class Blobs:
    """The table ``blobs`` of an open log; used under the store's lock."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._decompressor = zstandard.ZstdDecompressor()
        self._known: set[bytes] = set()
        self._texts: OrderedDict[bytes, bytes] = OrderedDict()
        self._bytes = 0

    def keep(self, blobs: Mapping[bytes, bytes]) -> None:
        """Write those that are not there yet, inside a transaction."""
        self.keep_packed(unpacked(blobs))

    def keep_packed(self, texts: Iterable[Packed]) -> None:
        """Write those that are not there yet, inside a transaction."""
        new = [text for text in texts if text[0] not in self._known]
        if not new:
            return
        self._db.executemany(_INSERT, [pack(text) for text in new])
        if len(self._known) + len(new) > KNOWN:
            self._known.clear()
        self._known.update(text[0] for text in new)

    def fetch(self, digests: Collection[bytes]) -> dict[bytes, bytes]:
        """Read blobs; those that are missing or damaged are left out."""
        texts = self._texts
        found = {digest: texts[digest] for digest in digests if digest in texts}
        missing = [digest for digest in digests if digest not in found]
        if len(missing) > _FEW:
            found |= self._neighbours(missing)
            missing = [digest for digest in missing if digest not in found]
        for start in range(0, len(missing), _AT_ONCE):
            part = missing[start : start + _AT_ONCE]
            marks = ",".join("?" * len(part))
            query = f"SELECT digest, enc, size, data FROM blobs WHERE digest IN ({marks})"  # noqa: S608
            found |= self._texts_of(self._db.execute(query, part))
        return found

    def _neighbours(self, digests: Sequence[bytes]) -> dict[bytes, bytes]:
        """Read as many blobs as are wanted from the first one on: what was written together.

        One after another they cost a fraction of looking each up by its digest.
        """
        wanted = set(digests)
        rows = self._db.execute(_FROM, (digests[0], len(digests)))
        return self._texts_of(row for row in rows if row[0] in wanted)

    def _texts_of(self, rows: Iterable[tuple[bytes, int, int, bytes | None]]) -> dict[bytes, bytes]:
        texts: dict[bytes, bytes] = {}
        unpack = self._decompressor.decompress
        for digest, enc, size, data in rows:
            if data is None:
                continue
            try:
                texts[digest] = unpack(data, size) if enc else data
            except zstandard.ZstdError:
                continue
        self._remember(texts)
        return texts

    def _remember(self, texts: Mapping[bytes, bytes]) -> None:
        self._texts.update(texts)
        self._bytes += sum(map(len, texts.values()))
        while self._bytes > CACHE_BYTES:
            _, dropped = self._texts.popitem(last=False)
            self._bytes -= len(dropped)

    def delete(self, digests: Iterable[bytes]) -> None:
        """Remove blobs that nothing refers to any more."""
        for digest in sorted(digests):
            self._db.execute("DELETE FROM blobs WHERE digest = ?", (digest,))
            self._known.discard(digest)
            if (text := self._texts.pop(digest, None)) is not None:
                self._bytes -= len(text)

    def doubt(self) -> None:
        """No longer take for granted that what was written is there: another may redact it."""
        self._known.clear()

    def forget(self) -> None:
        """Know nothing, as after a transaction that was rolled back."""
        self._known.clear()
        self._texts.clear()
        self._bytes = 0
