"""The manifest: which Parquet files make up the warehouse, and up to where they reach."""

from __future__ import annotations

import re
from hashlib import blake2b
from pathlib import Path
from typing import Final

import msgspec

from sag_research._text import atomic_write
from sag_research.errors import WarehouseError
from sag_research.warehouse._tables import BASE_TABLES, MENTION_TABLES, PROJECTION

__all__ = [
    "DamagedManifest",
    "Dead",
    "Manifest",
    "Segment",
    "digest_of",
    "place_of",
    "read_manifest",
    "write_manifest",
]

FORMAT: Final = 1
NAME: Final = "manifest.json"
_NAMED: Final = re.compile(r"([a-z_]+)-(\d{5,})-([0-9a-f]{16})\.parquet")
"""The name of a segment's file: table, number, and the digest of its bytes."""


class DamagedManifest(WarehouseError):
    """The manifest cannot be read or decoded; a rebuild replaces it."""


class _Version(msgspec.Struct, frozen=True):
    format: int


class Segment(msgspec.Struct, frozen=True, kw_only=True):
    """One immutable Parquet file: the rows of one table for one range of sequence numbers."""

    table: str
    k: int
    """The file holds events with ``k * 50,000 < seq <= (k + 1) * 50,000``."""
    file: str
    rows: int
    bytes: int
    sealed: bool


class Dead(msgspec.Struct, frozen=True):
    """A file that is no longer part of the warehouse, and since when."""

    file: str
    time: float


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What the warehouse holds. A reader needs nothing else to find its files."""

    format: int = FORMAT
    projection: str = ""
    extractor: str = ""
    generation: int = 0
    log_id: str = ""
    watermark: int = 0
    watermark_mark: str | None = None
    """What the log's :meth:`~sag_research.log.SQLiteEventStore.mark_at` says of the watermark."""
    segments: tuple[Segment, ...] = ()
    dead: tuple[Dead, ...] = ()
    check: str = ""
    """Digest of all the rest: a manifest that was damaged may still be good JSON."""

    def files(self, table: str) -> list[str]:
        """Return the files of a table, oldest first."""
        return [segment.file for segment in self.segments if segment.table == table]


def digest_of(data: bytes | memoryview) -> str:
    """Return what the name of a segment's file says of its bytes."""
    return blake2b(data, digest_size=8).hexdigest()


def place_of(table: str, extractor: str) -> str:
    """Return the folder of a table's files, inside the warehouse."""
    return f"mentions/{extractor}" if table in MENTION_TABLES else "segments"


def read_manifest(folder: Path) -> Manifest:
    """Read a warehouse's manifest; an absent one is an empty warehouse.

    Raises
    ------
    WarehouseError
        If it is of a newer version, or cannot be read, or is not what was written, or names
        files that are no segments of this warehouse (:class:`DamagedManifest`).
    """
    try:
        data = (folder / NAME).read_bytes()
    except FileNotFoundError:
        return Manifest()
    except PermissionError as error:
        fix = f"give the right to read it: chmod u+r {folder / NAME}"
        why = "permissions"
        raise DamagedManifest(f"{folder / NAME} cannot be read", why=why, fix=fix) from error
    except OSError as error:
        raise _damaged(folder, error.strerror or str(error)) from error
    try:
        # the version first: a newer manifest may look different in all else
        version = msgspec.json.decode(data, type=_Version).format
        if version > FORMAT:
            raise WarehouseError(
                f"{folder} was written by a newer version (format {version})",
                fix="upgrade sag_research, or remove the folder: it is built again from the log",
            )
        manifest = msgspec.json.decode(data, type=Manifest)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _damaged(folder, str(error)) from error
    if fault := _fault(manifest):
        raise _damaged(folder, fault)
    return manifest


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Publish a manifest whole or not at all."""
    checked = msgspec.structs.replace(manifest, check=_check(manifest))
    with atomic_write(folder / NAME) as file:
        file.write(msgspec.json.format(msgspec.json.encode(checked), indent=1))


def _check(manifest: Manifest) -> str:
    return digest_of(msgspec.json.encode(msgspec.structs.replace(manifest, check="")))


def _fault(manifest: Manifest) -> str:
    """Say what is wrong with a manifest that could be decoded.

    A folder may come from somebody else: no name in it leads out of it.
    """
    if manifest.projection != PROJECTION:
        return ""  # none of its files will be read
    if manifest.check != _check(manifest):
        return "it is not what was written"
    seen = set()
    for segment in manifest.segments:
        place, _, name = segment.file.rpartition("/")
        named = _NAMED.fullmatch(name)
        if (
            segment.table not in (*BASE_TABLES, *MENTION_TABLES)
            or place != place_of(segment.table, manifest.extractor)
            or not named
            or (named[1], int(named[2])) != (segment.table, segment.k)
        ):
            return f"{segment.file!r} is no file of table {segment.table!r}"
        if (segment.table, segment.k) in seen:
            return f"segment {segment.k} of {segment.table!r} is named twice"
        seen.add((segment.table, segment.k))
    return ""


def _damaged(folder: Path, why: str) -> DamagedManifest:
    return DamagedManifest(f"{folder / NAME} is damaged", why=why, fix="run `sag rebuild`")
