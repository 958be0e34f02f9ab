"""The manifest: which Parquet files make up the warehouse, and up to where they reach."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from sag_research._text import atomic_write
from sag_research.errors import WarehouseError

__all__ = ["DamagedManifest", "Dead", "Manifest", "Segment", "read_manifest", "write_manifest"]

FORMAT: Final = 1
NAME: Final = "manifest.json"


class DamagedManifest(WarehouseError):
    """The manifest cannot be decoded; a rebuild replaces it."""


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
    watermark_digest: str | None = None
    segments: tuple[Segment, ...] = ()
    dead: tuple[Dead, ...] = ()

    def files(self, table: str) -> list[str]:
        """Return the files of a table, oldest first."""
        return [segment.file for segment in self.segments if segment.table == table]


def read_manifest(folder: Path) -> Manifest:
    """Read a warehouse's manifest; an absent one is an empty warehouse.

    Raises
    ------
    WarehouseError
        If it is of a newer version, or cannot be decoded (:class:`DamagedManifest`).
    """
    try:
        data = (folder / NAME).read_bytes()
    except FileNotFoundError:
        return Manifest()
    try:
        # the version first: a newer manifest may look different in all else
        version = msgspec.json.decode(data, type=_Version).format
        if version > FORMAT:
            raise WarehouseError(
                f"{folder} was written by a newer version (format {version})",
                fix="upgrade sag_research, or remove the folder: it is built again from the log",
            )
        return msgspec.json.decode(data, type=Manifest)
    except msgspec.DecodeError as error:
        raise DamagedManifest(
            f"{folder / NAME} is damaged", why=str(error), fix="run `sag rebuild`"
        ) from error


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Publish a manifest whole or not at all."""
    with atomic_write(folder / NAME) as file:
        file.write(msgspec.json.format(msgspec.json.encode(manifest), indent=1))
