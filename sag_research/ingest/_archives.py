"""Archives among the inputs: unpacked within bounds, then walked like a folder.

Nothing in an archive is trusted: not its names, not the sizes it states, not how often it was
packed. What is refused is listed under the archive's name and its own.
"""

from __future__ import annotations

import bz2
import io
import lzma
import re
import stat
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Final, NamedTuple

from sag_research._text import clip, visible
from sag_research.errors import FormatError
from sag_research.ingest._source import Source
from sag_research.ingest._walk import Found, walk_folder

__all__ = ["Bounds", "opened"]

_NAMES: Final = re.compile(
    r".+\.(?:zip|tar|tgz|tar\.gz|tbz2?|tar\.bz2|txz|tar\.xz|tar\.zst|tar\.zstd)", re.IGNORECASE
)
_ZIP: Final = b"PK"
_INSPECT: Final = frozenset({"header.json", "_journal/start.json"})
"""Members of an Inspect log, which is a zip as well, and a trajectory."""
_CHUNK: Final = 2**20
_PART_MOST: Final = 200
"""Characters of a name; a longer one does not fit on all file systems."""
_ENCRYPTED: Final = 0x1
_DAMAGE: Final = (
    tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, NotImplementedError,
    FormatError, ValueError,
)  # fmt: skip


class Bounds(NamedTuple):
    """How much an archive may hold."""

    members: int = 200_000
    size: int = 64 * 2**30
    """Plain bytes of all members."""
    ratio: int = 200
    """Plain bytes for each packed one, once ``free`` bytes are passed."""
    free: int = 256 * 2**20


class _Refused(Exception):
    """The archive is not unpacked any further."""


def opened(
    found: Iterable[Found], held: ExitStack, bounds: Bounds | None = None
) -> Iterator[Found]:
    """Replace archives by what is in them.

    Parameters
    ----------
    found : iterable of Found
    held : ExitStack
        Removes the folders into which archives are unpacked.
    bounds : Bounds, optional

    Yields
    ------
    Found
        A member's name begins with its archive's: ``runs.zip/a/b.traj``. An archive that cannot
        be read, and a member that is refused, has a problem.

    Notes
    -----
    Refused are absolute names, ``..``, links, devices, encrypted members, and archives that hold
    more than the bounds. An archive inside an archive is not opened. Names decide what is looked
    at (``.zip .tar .tar.gz .tgz .tar.bz2 .tar.xz .tar.zst``), and content what it is.
    """
    for one in found:
        if _is_archive(one):
            yield from _members(one, held, bounds or Bounds())
        else:
            yield one


def _members(archive: Found, held: ExitStack, bounds: Bounds) -> Iterator[Found]:
    folder = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="sag-archive-")))
    refused: list[tuple[str, str]] = []
    problem = ""
    try:
        _unpack(archive.path, folder, bounds, refused)
    except _Refused as error:
        problem = str(error)
    except _DAMAGE as error:
        problem = f"the archive is damaged: {clip(str(error) or type(error).__name__, 200)}"
    except OSError as error:
        problem = (error.strerror or str(error)).lower()
    for one in walk_folder(folder):
        nested = "" if not _NAMES.fullmatch(one.path.name) else "an archive inside an archive"
        yield one._replace(
            name=f"{archive.name}/{one.name}", root=archive.root, problem=one.problem or nested
        )
    for name, why in refused:
        yield archive._replace(name=f"{archive.name}/{name}", problem=why, named=True)
    if problem:  # meant to be read, as a file that the user names
        yield archive._replace(problem=problem, named=True)


def _unpack(path: Path, folder: Path, bounds: Bounds, refused: list[tuple[str, str]]) -> None:
    room = _Room(bounds, path.stat().st_size)
    with path.open("rb") as file:
        is_zip = file.read(2) == _ZIP
    if is_zip:
        _unpack_zip(path, folder, room, refused)
    else:
        _unpack_tar(path, folder, room, refused)


def _unpack_zip(path: Path, folder: Path, room: _Room, refused: list[tuple[str, str]]) -> None:
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            room.count()
            if member.filename.endswith("/"):  # is_dir() itself fails where there is no name
                continue
            kind = stat.S_IFMT(member.external_attr >> 16)
            why = "" if kind in (0, stat.S_IFREG) else "a link or a device"
            why = why or ("encrypted" if member.flag_bits & _ENCRYPTED else "")
            target = _target(folder, member.filename)
            if why or target is None:
                refused.append((_shown(member.filename), why or _OUTSIDE))
                continue
            try:
                with archive.open(member) as content:
                    _copy(content, target, room)
            except (*_DAMAGE, OSError) as error:
                _give_up(target, member.filename, error, refused)


def _unpack_tar(path: Path, folder: Path, room: _Room, refused: list[tuple[str, str]]) -> None:
    plain = io.BufferedReader(_Chunks(_bounded(_plain(path), room)))
    with plain, tarfile.open(fileobj=plain, mode="r|") as archive:
        for member in archive:
            room.count()
            if member.isdir():
                continue
            target = _target(folder, member.name)
            content = archive.extractfile(member) if member.isreg() else None
            if content is None or target is None:
                why = "a link or a device" if content is None else _OUTSIDE
                refused.append((_shown(member.name), why))
                continue
            try:
                _copy(content, target, None)
            except FileExistsError as error:
                _give_up(target, member.name, error, refused)


def _plain(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        magic = file.read(6)
    if magic[:2] in (b"BZ", b"\xfd7"):
        with bz2.open(path) if magic[:2] == b"BZ" else lzma.open(path) as packed:
            yield from iter(lambda: packed.read(_CHUNK), b"")
    else:  # gzip, zstd, and what is not packed
        yield from Source(path).chunks()


def _bounded(chunks: Iterator[bytes], room: _Room) -> Iterator[bytes]:
    """Watch what an archive expands to: names can be bombs, too."""
    for chunk in chunks:
        room.take(len(chunk))
        yield chunk


class _Chunks(io.RawIOBase):
    """Chunks of bytes as something to read from."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks, self._rest = chunks, b""

    def readable(self) -> bool:
        """It can be read."""
        return True

    def readinto(self, buffer: memoryview, /) -> int:  # type: ignore[override]
        """Fill a buffer with what comes next."""
        while not self._rest:
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self._rest = chunk
        taken = self._rest[: len(buffer)]
        buffer[: len(taken)] = taken
        self._rest = self._rest[len(taken) :]
        return len(taken)


class _Room:
    """What an archive may still hold."""

    def __init__(self, bounds: Bounds, packed: int) -> None:
        self._bounds, self._packed = bounds, max(packed, 1)
        self._members = self._size = 0

    def count(self) -> None:
        self._members += 1
        if self._members > self._bounds.members:
            raise _Refused(f"the archive holds more than {self._bounds.members:,} members")

    def take(self, size: int) -> None:
        self._size += size
        if self._size > self._bounds.size:
            raise _Refused(f"the archive expands to more than {self._bounds.size:,} bytes")
        if self._size > self._bounds.free and self._size > self._bounds.ratio * self._packed:
            raise _Refused(f"the archive expands to more than {self._bounds.ratio} times its size")


_OUTSIDE: Final = "its name leads outside of the archive"


def _target(folder: Path, name: str) -> Path | None:
    """Return where a member is unpacked; None where its name is no place inside the folder."""
    parts = name.replace("\\", "/").split("/")
    kept = [part for part in parts if part not in ("", ".")]
    if name.startswith(("/", "\\")) or re.match(r"[A-Za-z]:", name):
        return None
    if not kept or ".." in kept or any("\0" in p or len(p) > _PART_MOST for p in kept):
        return None
    return folder.joinpath(*kept)


def _copy(content: IO[bytes], target: Path, room: _Room | None) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("xb") as file:  # of two members of one name the first is taken
        while chunk := content.read(_CHUNK):
            if room is not None:
                room.take(len(chunk))
            file.write(chunk)


def _give_up(target: Path, name: str, error: BaseException, refused: list[tuple[str, str]]) -> None:
    if isinstance(error, FileExistsError):
        refused.append((_shown(name), "a second member of this name"))
        return
    target.unlink(missing_ok=True)
    why = error.strerror or str(error) if isinstance(error, OSError) else str(error)
    refused.append((_shown(name), clip(why.lower() or type(error).__name__, 200)))


def _shown(name: str) -> str:
    return visible(clip(name, 300))


def _is_archive(one: Found) -> bool:
    if one.problem or one.members or not _NAMES.fullmatch(one.path.name):
        return False
    return not _is_inspect_log(one.path)


def _is_inspect_log(path: Path) -> bool:
    try:
        with zipfile.ZipFile(path) as archive:
            return bool(_INSPECT & set(archive.namelist()))
    except (*_DAMAGE, OSError):
        return False
