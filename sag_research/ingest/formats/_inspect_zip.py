"""Entries of a zip archive one at a time: deflate and zstd, whole or damaged, within bounds."""

from __future__ import annotations

import io
import mmap
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, Final, NamedTuple, TypeAlias

import zstandard

from sag_research.errors import FormatError
from sag_research.ingest._source import Source

__all__ = ["Archive", "Entry", "first_name", "opened"]

_LOCAL: Final = b"PK\x03\x04"
_HEADER: Final = struct.Struct("<4sHHHHHIIIHH")
_STORED, _DEFLATE, _ZSTD = 0, 8, 93
_SIZED_LATER: Final = 0x08
_ENCRYPTED: Final = 0x01
_UTF8: Final = 0x800
_BIG: Final = 0xFFFFFFFF
_ZIP64: Final = 1

_ENTRIES: Final = 1_000_000
_ENTRY: Final = 512 * 2**20
"""Plain bytes of an entry, which is held in memory."""
_EXPANDED: Final = 256 * 2**20
_RATIO: Final = 1_000
"""Behind the first ``_EXPANDED`` bytes, what expands further is taken for a bomb."""
_CHUNK: Final = 2**20
_SMALL: Final = 2**10
"""Packed bytes of zstd given at once: one of them can stand for some ten thousand plain ones."""
_BOMBS: Final = 4
"""Entries that may expand too far, each at its own cost, before the archive is refused."""


_Bytes: TypeAlias = bytes | mmap.mmap


class Entry(NamedTuple):
    """A file inside the archive; its name is never used as a path."""

    name: str
    offset: int
    """Where its own header begins."""
    packed: int | None
    """Bytes that it takes; None if only its data say where they end."""
    checksum: int | None


class _Local(NamedTuple):
    """The header in front of an entry's data."""

    name: str
    method: int
    start: int
    packed: int | None
    checksum: int | None
    encrypted: bool


class Archive:
    """A zip archive that is read from its directory or, if that is damaged, from its entries.

    Attributes
    ----------
    entries : list of Entry
        In the order in which they stand in the file; of several of one name, the last.
    damage : str
        Why the directory could not be used; empty if it could.
    """

    def __init__(self, data: _Bytes, directory: BinaryIO) -> None:
        self._data = data
        self._spent = 0
        self.damage = ""
        try:
            found = _listed(directory)
        except (
            zipfile.BadZipFile,
            struct.error,
            ValueError,
            NotImplementedError,
            OSError,
        ) as error:
            self.damage = f"its directory is damaged: {error}"
            found = list(_scanned(data))
        if len(found) > _ENTRIES:
            raise FormatError(f"a zip archive of {len(found)} entries", why=f"limit {_ENTRIES}")
        latest = {entry.name: entry for entry in found}
        self.replaced = len(found) - len(latest)
        self.entries = sorted(latest.values(), key=lambda entry: entry.offset)

    def read(self, entry: Entry) -> bytes:
        """Return an entry's content.

        Raises
        ------
        FormatError
            If it is damaged, packed in an unknown way, or expands beyond bounds.
        """
        local = _local(self._data, entry.offset)
        if local is None:
            raise FormatError("its header is damaged")
        if local.encrypted:
            raise FormatError("it is encrypted")
        packed = local.packed if entry.packed is None else entry.packed
        stop = len(self._data) if packed is None else local.start + packed
        if stop > len(self._data):
            raise FormatError("it is cut short")
        plain = b"".join(self._bounded(local, stop))
        checksum = entry.checksum if entry.checksum is not None else local.checksum
        if checksum is not None and zlib.crc32(plain) != checksum:
            raise FormatError("its checksum is wrong")
        return plain

    def _bounded(self, local: _Local, stop: int) -> Iterator[bytes]:
        size = 0
        for chunk in _plain(self._data, local, stop):
            size += len(chunk)
            self._spent += len(chunk)
            if size > _ENTRY:
                raise FormatError(f"it expands to more than {_ENTRY} bytes")
            if size > _EXPANDED and size > _RATIO * (stop - local.start):
                raise FormatError(f"it expands to more than {_RATIO} times its size")
            yield chunk

    @property
    def is_bomb(self) -> bool:
        """Much more was unpacked than an archive of this size can hold."""
        return self._spent > _BOMBS * _EXPANDED and self._spent > _RATIO * len(self._data)


@contextmanager
def opened(source: Source) -> Iterator[Archive]:
    """Open the zip archive that a source is, itself compressed or not."""
    with source.path.open("rb") as file:
        if file.read(4) == _LOCAL:
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                yield Archive(data, file)
        else:
            whole = source.bytes()
            yield Archive(whole, io.BytesIO(whole))


def first_name(head: bytes) -> str:
    """Return the name of the entry with which an archive begins; empty if there is none.

    Examples
    --------
    >>> first_name(b"no archive")
    ''
    """
    local = _local(head, 0)
    return "" if local is None else local.name


def _listed(file: BinaryIO) -> list[Entry]:
    file.seek(0)
    with zipfile.ZipFile(file) as archive:
        return [
            Entry(one.filename, one.header_offset, one.compress_size, one.CRC)
            for one in archive.infolist()
        ]


def _local(data: _Bytes, offset: int) -> _Local | None:
    head = data[offset : offset + _HEADER.size]
    if len(head) < _HEADER.size or head[:4] != _LOCAL:
        return None
    _, _, flags, method, _, _, crc, packed, plain, n_name, n_extra = _HEADER.unpack(head)
    start = offset + _HEADER.size
    name = data[start : start + n_name]
    extra = data[start + n_name : start + n_name + n_extra]
    if packed == _BIG or plain == _BIG:
        packed = _zip64(extra, plain == _BIG)
    # sizes are written last: where they are missing, the data themselves say where they end
    unsized = bool(flags & _SIZED_LATER) or (packed == 0 and method != _STORED)
    return _Local(
        name=name.decode("utf-8" if flags & _UTF8 else "cp437", "replace"),
        method=method,
        start=start + n_name + n_extra,
        packed=None if unsized else packed,
        checksum=None if unsized else crc,
        encrypted=bool(flags & _ENCRYPTED),
    )


def _zip64(extra: bytes, has_plain: bool) -> int:
    place = 0
    while place + 4 <= len(extra):
        kind, length = struct.unpack_from("<HH", extra, place)
        at = place + 4 + (8 if has_plain else 0)
        if kind == _ZIP64 and at + 8 <= len(extra):
            return int(struct.unpack_from("<Q", extra, at)[0])
        place += 4 + length
    return 0


def _scanned(data: _Bytes) -> Iterator[Entry]:
    """Find entries by their own headers, wherever they are."""
    place = data.find(_LOCAL)
    while place >= 0:
        local = _local(data, place)
        if local is None:
            return
        yield Entry(local.name, place, None, None)
        after = local.start + (local.packed or 0)
        place = data.find(_LOCAL, after if after <= len(data) else local.start)


def _plain(data: _Bytes, local: _Local, stop: int) -> Iterator[bytes]:
    if local.method == _STORED:
        for place in range(local.start, stop, _CHUNK):
            yield data[place : min(place + _CHUNK, stop)]
    elif local.method == _DEFLATE:
        yield from _inflated(data, local.start, stop)
    elif local.method == _ZSTD:
        yield from _zstd(data, local.start, stop)
    else:
        raise FormatError(f"it is packed by method {local.method}, which is not known")


def _inflated(data: _Bytes, start: int, stop: int) -> Iterator[bytes]:
    stream = zlib.decompressobj(-zlib.MAX_WBITS)
    for place in range(start, stop, _CHUNK):
        piece = data[place : min(place + _CHUNK, stop)]
        try:
            while piece and not stream.eof:
                yield stream.decompress(piece, _CHUNK)
                piece = stream.unconsumed_tail
        except zlib.error as error:
            raise FormatError("its data are damaged", why=str(error)) from None
        if stream.eof:
            return
    yield stream.flush()
    if not stream.eof:
        raise FormatError("it is cut short")


def _zstd(data: _Bytes, start: int, stop: int) -> Iterator[bytes]:
    stream: Any = zstandard.ZstdDecompressor().decompressobj()
    for place in range(start, stop, _SMALL):
        try:
            yield stream.decompress(data[place : min(place + _SMALL, stop)])
        except zstandard.ZstdError as error:
            raise FormatError("its data are damaged", why=str(error)) from None
        if stream.eof:
            return
    raise FormatError("it is cut short")
