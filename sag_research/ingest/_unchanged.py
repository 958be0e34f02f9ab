"""Files that need not be read again: what they looked like from outside when they were read.

A file is taken for unchanged if its size, its inode and both its times (of the content and of
the inode) are those of the last look, and the log says of this very path that it holds what was
read then. The second time cannot be set by hand: copying over a file, or setting its time back,
changes it. What was touched less than two seconds before it was looked at is not relied on, for
two changes may bear one time. What remains is a file system that does not keep these times, or
a clock that was set back: for these, everything can be read again.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Final

import msgspec

from sag_research.ingest._account import key_of
from sag_research.ingest._walk import Found
from sag_research.log import SQLiteEventStore

__all__ = ["Outside", "Unchanged", "outside_of"]

_SUFFIX: Final = "-seen"
_VERSION: Final = 1
_FRESH_NS: Final = 2 * 10**9
"""The coarsest clock of a file system in use ticks every two seconds."""


class Outside(msgspec.Struct, array_like=True, frozen=True):
    """What a file looks like from outside."""

    size: int = 0
    """Bytes on disk."""
    mark: str = ""
    """Size, times and inode; empty where they cannot be relied on."""


class _Was(msgspec.Struct, array_like=True, frozen=True, gc=False):
    mark: str
    digest: str
    size: int


class _Memory(msgspec.Struct, frozen=True):
    log_id: str
    version: int = _VERSION
    files: dict[str, dict[str, _Was]] = {}
    """By folder and path."""


def outside_of(found: Found) -> Outside:
    """Look at a file, or at all files of a source, without reading."""
    if found.problem:
        return Outside()
    try:
        seen = [path.stat() for path in found.members or (found.path,)]
    except OSError:
        return Outside()
    size = sum(one.st_size for one in seen)
    newest = max(max(one.st_mtime_ns, one.st_ctime_ns) for one in seen)
    if newest > time.time_ns() - _FRESH_NS:
        return Outside(size)
    marks = [f"{one.st_size}.{one.st_mtime_ns}.{one.st_ctime_ns}.{one.st_ino}" for one in seen]
    if len(marks) > 1:
        names = [f"{path.name!r} {mark}" for path, mark in zip(found.members, marks, strict=True)]
        return Outside(size, sha256("\n".join(names).encode()).hexdigest())
    return Outside(size, marks[0])


class Unchanged:
    """What a log's ingests saw of files, kept in a file beside the log.

    The file is a cache: without it, everything is read again.
    """

    def __init__(self, store: SQLiteEventStore) -> None:
        memory = store.path == ":memory:"
        self._path = None if memory else Path(store.path + _SUFFIX)
        self._memory = _Memory(store.log_id)
        self._is_new = False
        if self._path is not None:
            with suppress(OSError, msgspec.DecodeError):
                read = msgspec.msgpack.decode(self._path.read_bytes(), type=_Memory)
                if (read.log_id, read.version) == (store.log_id, _VERSION):
                    self._memory = read

    def digest_of(self, found: Found, outside: Outside) -> tuple[str, int] | None:
        """Return digest and size of a file's content, if it looks as it did then."""
        root, name = key_of(found)
        was = self._memory.files.get(root, {}).get(name)
        if was is None or not outside.mark or was.mark != outside.mark:
            return None
        return was.digest, was.size

    def remember(self, found: Found, outside: Outside, digest: str, size: int) -> None:
        """Keep what a file looked like before it was read."""
        if outside.mark:
            root, name = key_of(found)
            self._memory.files.setdefault(root, {})[name] = _Was(outside.mark, digest, size)
            self._is_new = True

    def save(self) -> None:
        """Write it down; where that is not possible, files are read again next time."""
        if self._path is None or not self._is_new:
            return
        part = self._path.with_name(f"{self._path.name}.{os.getpid()}.part")
        with suppress(OSError):
            part.write_bytes(msgspec.msgpack.encode(self._memory))
            part.replace(self._path)
        self._is_new = False
