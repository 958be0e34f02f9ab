"""One input file: read once, decompressed by its first bytes, digested."""

from __future__ import annotations

import gzip
import hashlib
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, TypeAlias

import zstandard

from sag_research.errors import FormatError

if TYPE_CHECKING:
    from sag_research.ingest._share import Share

__all__ = ["HEAD_BYTES", "Source"]

_Bytes: TypeAlias = bytes
"""The type, which the method of that name hides inside the class."""

HEAD_BYTES: Final = 64 * 2**10
_CHUNK: Final = 2**20
_ZSTD_CHUNK: Final = 8 * 2**10
"""Small, because one compressed byte can stand for some ten thousand plain ones."""
_EAGER: Final = 4 * 2**20
"""Files up to this size on disk are read whole at the first look."""
_KEEP: Final = 256 * 2**20
"""Plain bytes kept in memory; larger sources are read from disk again."""
_LIMIT: Final = 16 * 2**30
"""Plain bytes of a source, which is read line by line."""
_LINE: Final = 256 * 2**20
"""Plain bytes of a line, which is held in memory with all that is read from it."""
_VALUE: Final = 512 * 2**20
"""Plain bytes of a source that is one value."""
_RATIO: Final = 200
"""Behind the first ``_LINE`` bytes, a file that expands further is taken for a bomb."""

_GZIP: Final = b"\x1f\x8b"
_ZSTD: Final = b"\x28\xb5\x2f\xfd"


class Source:
    """A file that may hold trajectories.

    Parameters
    ----------
    path : Path
        Where the file is.
    name : str, optional
        Its POSIX path relative to the folder that was given; its name by default.
    root : Path, optional
        That folder; the file's own folder by default.
    members : tuple of Path
        If ``path`` is a folder, the files in it that are one source together, in order; if it is
        a table of runs, that table and those beside it. The source's content is theirs, each
        behind a line with its name.

    Notes
    -----
    gzip and zstd are recognised by content, whatever the file is called. All sizes and
    digests are those of the decompressed bytes, so ``a.traj`` and ``a.traj.gz`` are equal.
    Reading raises :class:`FormatError` if the file is damaged and ``OSError`` if it cannot
    be opened.
    """

    def __init__(
        self,
        path: Path,
        name: str | None = None,
        root: Path | None = None,
        members: tuple[Path, ...] = (),
    ) -> None:
        self.path = path
        self.members = members
        self.name = path.name if name is None else name
        self.root = path.parent.absolute() if root is None else root
        self.share: Share | None = None
        """The part of its rows that is read, where several read it."""
        self._data: _Bytes | None = None
        self._head: _Bytes | None = None
        self._digest: str | None = None
        self._fault: FormatError | None = None
        self._size = 0

    def __repr__(self) -> str:
        return f"Source({self.name!r})"

    @property
    def head(self) -> _Bytes:
        """The first 64 KiB; of several files, of the first one that is not empty."""
        if self._head is None and self.members:
            heads = (Source(path).head for path in self.members)
            self._head = next((head for head in heads if head.strip()), b"")
        if self._head is None:
            if self.path.stat().st_size <= _EAGER:
                self._load()
            else:
                self._head = self._first_bytes()
        return self._head or b""

    @property
    def is_read(self) -> bool:
        """The digest is known without reading any more."""
        return self._digest is not None

    @property
    def digest(self) -> str:
        """SHA-256 of the content as 64 hex digits."""
        return self._digest or self._load()

    @property
    def source_id(self) -> str:
        """The first 16 hex digits of the digest: the key of the view ``sources``."""
        return self.digest[:16]

    @property
    def size(self) -> int:
        """Number of bytes."""
        self._digest or self._load()
        return self._size

    def bytes(self) -> _Bytes:
        """Return the whole content, up to 512 MiB."""
        self._digest or self._load()
        if self._size > _VALUE:
            raise FormatError(
                f"one value of {self._size} bytes",
                why=f"the limit is {_VALUE}",
                fix="split it, or write one record a line",
            )
        return b"".join(self._again()) if self._data is None else self._data

    def lines(self) -> Iterator[_Bytes]:
        r"""Yield the lines, split at ``\n`` only; a source of any size takes little memory.

        Lines that are not of this source's share are blank.
        """
        lines = self._lines()
        return lines if self.share is None else self.share.lines(lines)

    def _lines(self) -> Iterator[_Bytes]:
        self._digest or self._load()
        parts: list[_Bytes] = []  # of a line that is longer than a chunk
        for chunk in self._again() if self._data is None else (self._data,):
            first, *lines = chunk.split(b"\n")
            parts.append(first)
            if lines:
                yield b"".join(parts)
                parts = [lines.pop()]
                yield from lines
        if rest := b"".join(parts):
            yield rest

    def beginning(self, size: int) -> _Bytes:
        """Return the first bytes, so many or a few more; the rest is not read."""
        found: list[_Bytes] = []
        for chunk in self.chunks():
            found.append(chunk)
            size -= len(chunk)
            if size <= 0:
                break
        return b"".join(found)

    def release(self) -> None:
        """Forget the content, which is read from disk again when asked for."""
        self._data = None

    def _first_bytes(self) -> _Bytes:
        return self.beginning(HEAD_BYTES)[:HEAD_BYTES]

    def _load(self) -> str:
        if self._fault is not None:
            raise self._fault
        try:
            return self._read_through()
        except FormatError as error:
            self._fault = error  # what was refused is not unpacked again to be refused
            raise

    def _read_through(self) -> str:
        digest, kept, size, line = hashlib.sha256(), list[_Bytes](), 0, 0
        for chunk in self.chunks():
            digest.update(chunk)
            if size < HEAD_BYTES or size + len(chunk) <= _KEEP:
                kept.append(chunk)
            size += len(chunk)
            end = chunk.rfind(b"\n")
            line = line + len(chunk) if end < 0 else len(chunk) - end - 1
            if line > _LINE:
                raise FormatError(
                    f"a line of more than {_LINE} bytes", fix="split the record, or its texts"
                )
        joined = b"".join(kept) if len(kept) != 1 else kept[0]
        self._head = self._head or joined[:HEAD_BYTES]
        self._data = joined if size <= _KEEP else None
        self._size, self._digest = size, digest.hexdigest()
        return self._digest

    def _again(self) -> Iterator[_Bytes]:
        digest = hashlib.sha256()
        for chunk in self.chunks():
            digest.update(chunk)
            yield chunk
        if digest.hexdigest() != self._digest:
            raise FormatError("the file changed while it was read", fix="ingest it again")

    def chunks(self) -> Iterator[_Bytes]:
        """Yield the content in parts, unpacked, without keeping it."""
        for path in self.members:
            yield os.fsencode(path.name) + b"\n"
            yield from Source(path).chunks()
            yield b"\n"
        if not self.members:
            yield from self._file_chunks()

    def _file_chunks(self) -> Iterator[_Bytes]:
        size = 0
        with self.path.open("rb") as file:
            packed = os.fstat(file.fileno()).st_size
            for chunk in _plain_chunks(file):
                size += len(chunk)
                if size > _LINE and size > _RATIO * packed:
                    raise FormatError(
                        f"expands to more than {_RATIO} times its size",
                        fix="unpack it yourself if you know where it is from",
                    )
                if size > _LIMIT:
                    raise FormatError(f"expands to more than {_LIMIT} bytes")
                yield chunk


def _plain_chunks(file: IO[bytes]) -> Iterator[bytes]:
    magic = file.read(4)
    file.seek(0)
    if magic[:2] == _GZIP:
        return _gzip_chunks(file)
    if magic == _ZSTD:
        return _zstd_chunks(file)
    return iter(lambda: file.read(_CHUNK), b"")


def _gzip_chunks(file: IO[bytes]) -> Iterator[bytes]:
    with gzip.GzipFile(fileobj=file) as plain:
        try:
            yield from iter(lambda: plain.read(_CHUNK), b"")
        except EOFError:
            raise FormatError("the gzip data is cut short") from None
        except (gzip.BadGzipFile, zlib.error) as error:
            raise FormatError("the gzip data is damaged", why=str(error)) from None


def _zstd_chunks(file: IO[bytes]) -> Iterator[bytes]:
    frame = zstandard.ZstdDecompressor().decompressobj()
    started = False
    while data := file.read(_ZSTD_CHUNK):
        while data:
            started = True
            try:
                plain = frame.decompress(data)
            except zstandard.ZstdError as error:
                raise FormatError("the zstd data is damaged", why=str(error)) from None
            data = b""
            if frame.eof:
                data, started = frame.unused_data, False
                frame = zstandard.ZstdDecompressor().decompressobj()
            if plain:
                yield plain
    if started:
        raise FormatError("the zstd data is cut short")
