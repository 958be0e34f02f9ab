"""Whether the files of segments are what was written.

A file is named after the digest of its bytes. Parquet as it is read here has no check of its own:
of single flipped bits, half give other values and no error.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from sag_research.errors import WarehouseError
from sag_research.warehouse._manifest import Segment, digest_of
from sag_research.warehouse._tables import SCHEMAS

__all__ = ["DamagedSegment", "damaged", "look_at", "read_segment"]

LOOKED_AT_BYTES: Final = 64 * 2**20
"""As much is read through when a warehouse is opened: more would be felt."""
_THREADS: Final = 4
NO_RIGHT: Final = "permissions; give the right to read it: chmod -R u+rX on the warehouse's folder"


class DamagedSegment(WarehouseError):
    """A file of the warehouse is missing, damaged or not to be read.

    A rebuild mends it; of one that may not be read, the right to read it does.
    """

    def __init__(self, file: str, why: str) -> None:
        what, fix = f"{file} of the warehouse is missing or damaged", "run `sag rebuild`"
        cause = why
        if why.startswith(NO_RIGHT):  # nothing is wrong with the file
            what = f"{file} of the warehouse cannot be read"
            cause, _, fix = NO_RIGHT.partition("; ")
        super().__init__(what, why=cause, fix=fix)
        self.args = (file, why)


def look_at(folder: Path, segments: Sequence[Segment], known: Container[str]) -> list[str]:
    """Look at files when a warehouse is opened; returns those that were read and are good.

    Parameters
    ----------
    folder : Path
    segments : sequence of Segment
        Of each, the file must be there and be as long as it was.
    known : container of str
        Files that need not be read again.

    Raises
    ------
    DamagedSegment
    """
    for segment in segments:
        if fault := _size_fault(folder, segment):
            raise DamagedSegment(segment.file, fault)
    new = [segment for segment in segments if segment.file not in known]
    if sum(segment.bytes for segment in new) > LOOKED_AT_BYTES:
        return []  # `sag verify` reads them
    for file, fault in damaged(folder, new):
        raise DamagedSegment(file, fault)
    return [segment.file for segment in new]


def damaged(folder: Path, segments: Sequence[Segment]) -> Iterator[tuple[str, str]]:
    """Read files through; yields those that are not what was written, and why."""
    if not segments:
        return
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="sag-check") as pool:
        faults = pool.map(lambda segment: _fault(folder, segment), segments)
        yield from ((s.file, fault) for s, fault in zip(segments, faults, strict=True) if fault)


def read_segment(folder: Path, segment: Segment) -> pa.Table:
    """Read a file of which another one is made: what is damaged must not get a good name.

    Raises
    ------
    DamagedSegment
    """
    try:
        data = (folder / segment.file).read_bytes()
        if digest_of(data) != _digest_in(segment.file):
            raise DamagedSegment(segment.file, "its bytes have changed")
        return pq.read_table(pa.BufferReader(data), schema=SCHEMAS[segment.table])
    except PermissionError as error:
        raise DamagedSegment(segment.file, NO_RIGHT) from error
    except (OSError, pa.ArrowException) as error:
        raise DamagedSegment(segment.file, str(error)) from error


def _fault(folder: Path, segment: Segment) -> str:
    try:
        data = (folder / segment.file).read_bytes()
    except PermissionError:
        return NO_RIGHT
    except OSError as error:
        return error.strerror or str(error)
    return "" if digest_of(data) == _digest_in(segment.file) else "its bytes have changed"


def _size_fault(folder: Path, segment: Segment) -> str:
    try:
        size = (folder / segment.file).stat().st_size
    except PermissionError:
        return NO_RIGHT
    except OSError as error:
        return error.strerror or str(error)
    return "" if size == segment.bytes else f"it has {size} bytes and had {segment.bytes}"


def _digest_in(file: str) -> str:
    return file.removesuffix(".parquet")[-16:]
