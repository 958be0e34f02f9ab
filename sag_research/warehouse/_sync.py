"""Bringing the Parquet segments up to the log's end.

A sync takes a lock without waiting, fixes its target first (else it would never end while an
agent writes), writes files under temporary names and publishes the manifest last. Killed at
any moment it leaves a warehouse that can be read, and some files that the next sync removes.

Segments are immutable but for redactions: what was taken out of the log is taken out of the
segments by the next sync, and no file that held it stays.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from io import BytesIO
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sag_research._text import atomic_write
from sag_research.errors import WarehouseError, WriteError
from sag_research.extract import EntityExtractor
from sag_research.log import RawPage, SQLiteEventStore, holder_of
from sag_research.model import Event
from sag_research.warehouse._intact import read_segment
from sag_research.warehouse._manifest import (
    DamagedManifest,
    Dead,
    Manifest,
    Segment,
    digest_of,
    place_of,
    read_manifest,
    write_manifest,
)
from sag_research.warehouse._project import Projector, Searched
from sag_research.warehouse._redacted import REDACTED, project_again, stale_events, without
from sag_research.warehouse._steps import read_page
from sag_research.warehouse._tables import (
    BASE_TABLES,
    DICTIONARY,
    MENTION_TABLES,
    PROJECTION,
    SCHEMAS,
    SORT,
)

__all__ = ["SEGMENT_EVENTS", "SyncReport", "fits", "lock_holder", "sync"]

SEGMENT_EVENTS: Final = 50_000
ROW_GROUP: Final = 2_048
_SEARCHED_STEPS: Final = 10_000
_SEARCHED_CHARACTERS: Final = 16 * 2**20
GRACE_SECONDS: Final = 600.0
LOCK: Final = "lock.sqlite"
_KEPT: Final = "the log holds everything"
_ROOM: Final = f"free some space, or make it writable; {_KEPT}"


class SyncReport(msgspec.Struct, frozen=True):
    """Result of a sync.

    Attributes
    ----------
    done : bool
        False where another process was syncing; nothing was done then.
    events : int
        Events projected.
    watermark : int
        Sequence number up to which the segments reach.
    rebuilt : bool
        Whether the warehouse was built from nothing.
    fell_behind : bool
        Whether the log no longer holds what the segments were made of: after a power cut, or
        where an older copy took its place.
    """

    done: bool
    events: int
    watermark: int
    rebuilt: bool
    fell_behind: bool = False


def sync(
    store: SQLiteEventStore, folder: Path, extractor: EntityExtractor, *, rebuild: bool = False
) -> SyncReport:
    """Project all events that the segments do not hold yet, or with ``rebuild`` all there are.

    Raises
    ------
    WarehouseError
        If the manifest is of a newer version, or it or an open segment is damaged (``rebuild``
        mends the latter), or the folder cannot be locked or written.
    """
    with _written(folder), _lock(folder) as mine:
        if not mine:
            return SyncReport(False, 0, read_manifest(folder).watermark, False)
        old = _readable(folder) if rebuild else read_manifest(folder)
        usable = not rebuild and fits(old, store, extractor.version)
        fell_behind = not usable and _of_this_log(old, store) and not _at_watermark(old, store)
        start = old if usable else _empty(old, store, extractor)
        target = store.last_seq()
        told = list(store.tail(start.watermark, target, types=(REDACTED,), strict=False))
        made = _build_all(store, folder, start, target, told, extractor)
        if made or start is not old:
            new = _next(old, start, made, target, store.mark_at(target))
            if told:  # no file that may hold what was taken out waits for its readers
                new = msgspec.structs.replace(new, dead=())
            write_manifest(folder, new)
            _sync_folder(folder)
            old = new
        _collect(folder, old)
    rebuilt = start.watermark == 0
    return SyncReport(True, target - start.watermark, target, rebuilt, fell_behind)


def fits(manifest: Manifest, store: SQLiteEventStore, extractor: str) -> bool:
    """Tell whether the segments are a projection of this log's beginning.

    After a power cut a log may have lost its last events and given their numbers to others;
    the mark at the watermark tells.
    """
    if not _of_this_log(manifest, store) or manifest.extractor != extractor:
        return False
    return _at_watermark(manifest, store)


def _of_this_log(manifest: Manifest, store: SQLiteEventStore) -> bool:
    return (manifest.log_id, manifest.projection) == (store.log_id, PROJECTION)


def _at_watermark(manifest: Manifest, store: SQLiteEventStore) -> bool:
    return store.mark_at(manifest.watermark) == manifest.watermark_mark


def _readable(folder: Path) -> Manifest:
    """Read the manifest, or take the warehouse for empty where it is damaged."""
    try:
        return read_manifest(folder)
    except DamagedManifest:
        return Manifest()


def _empty(old: Manifest, store: SQLiteEventStore, extractor: EntityExtractor) -> Manifest:
    return Manifest(
        projection=PROJECTION,
        extractor=extractor.version,
        generation=old.generation,
        log_id=store.log_id,
    )


def _next(
    old: Manifest, start: Manifest, made: Sequence[Segment], target: int, mark: str | None
) -> Manifest:
    replaced = {(segment.table, segment.k) for segment in made}
    kept = [s for s in start.segments if (s.table, s.k) not in replaced]
    some = [segment for segment in made if segment.rows]  # a redaction may leave a table none
    segments = sorted([*kept, *some], key=lambda s: (s.table, s.k))
    live = {segment.file for segment in segments}
    now = time.time()
    gone = [s.file for s in old.segments if s.file not in live]
    # a time to come is that of a clock that was set back since: waiting begins anew
    dead = [Dead(d.file, min(d.time, now)) for d in old.dead if d.file not in live]
    dead += [Dead(file, now) for file in gone]
    return msgspec.structs.replace(
        start,
        generation=old.generation + 1,
        watermark=target,
        watermark_mark=mark,
        segments=tuple(segments),
        dead=tuple(dead),
    )


def _build_all(
    store: SQLiteEventStore,
    folder: Path,
    start: Manifest,
    target: int,
    told: Sequence[Event],
    extractor: EntityExtractor,
) -> list[Segment]:
    """Write the segments of the new events, and those whose events were redacted since."""
    if target <= start.watermark:
        return []
    stale: dict[int, list[Event]] = {}
    for event in stale_events(store, told, start.watermark):
        stale.setdefault(((event.seq or 1) - 1) // SEGMENT_EVENTS, []).append(event)
    projector = Projector(store, extractor)
    made: list[Segment] = []
    for k in sorted({*stale, *range(start.watermark // SEGMENT_EVENTS,
                                    -(-target // SEGMENT_EVENTS))}):  # fmt: skip
        lo, end = max(start.watermark, k * SEGMENT_EVENTS), (k + 1) * SEGMENT_EVENTS
        parts = _project(projector, store.raw_pages(lo, min(end, target)))
        old = stale.get(k, [])
        for table, rows in project_again(store, extractor, old):
            parts.setdefault(table, []).append(rows)
        made += _build(folder, start, k, parts, old, target >= end, extractor.version)
    return made


def _build(
    folder: Path,
    start: Manifest,
    k: int,
    parts: dict[str, list[pa.Table]],
    stale: Sequence[Event],
    sealed: bool,
    version: str,
) -> list[Segment]:
    """Write the files of one segment: what its files hold but for stale rows, and new rows."""
    made = []
    for table in (*BASE_TABLES, *MENTION_TABLES):
        held = [s for s in start.segments if (s.table, s.k) == (table, k)]
        new = parts.pop(table, [])
        seals = bool(held) and sealed and not held[0].sealed
        if not (new or seals or (held and stale)):
            continue
        old = [read_segment(folder, segment) for segment in held]
        kept = [without(rows, stale) for rows in old] if stale else old
        lost = sum(map(len, old)) > sum(map(len, kept))
        if new or seals or lost:
            made.append(_write(folder, table, k, [*kept, *new], sealed, version))
    return made


def _project(projector: Projector, pages: Iterator[RawPage]) -> dict[str, list[pa.Table]]:
    """Project events; the texts of some are searched while the next ones are projected."""
    parts: dict[str, list[pa.Table]] = {}

    def keep(tables: Mapping[str, pa.Table]) -> None:
        for table, rows in tables.items():
            parts.setdefault(table, []).append(rows)

    found: Future[dict[str, pa.Table]] | None = None
    with ThreadPoolExecutor(1, thread_name_prefix="sag-extract") as pool:
        for searched in _searched(projector, pages, keep):
            if found is not None:
                keep(found.result())
            found = pool.submit(projector.extraction(searched))
        if found is not None:
            keep(found.result())
    return parts


def _searched(
    projector: Projector, pages: Iterator[RawPage], keep: Callable[[dict[str, pa.Table]], None]
) -> Iterator[list[Searched]]:
    """Project events page by page, and yield the steps to search: many texts at once cost less."""
    waiting: list[Searched] = []
    size = 0
    for page in pages:
        tables, searched = projector.begin(read_page(page))
        keep(tables)
        waiting += searched
        size += sum(len(one.action) + len(one.observation) for one in searched)
        if len(waiting) >= _SEARCHED_STEPS or size >= _SEARCHED_CHARACTERS:
            yield waiting
            waiting, size = [], 0
    if waiting:
        yield waiting


def _write(
    folder: Path, table: str, k: int, parts: list[pa.Table], sealed: bool, version: str
) -> Segment:
    rows = sum(part.num_rows for part in parts)
    if not rows:
        return Segment(table=table, k=k, file="", rows=0, bytes=0, sealed=sealed)
    data = _encode(table, parts)
    place = place_of(table, version)
    file = f"{place}/{table}-{k:05d}-{digest_of(data)}.parquet"
    if not (folder / place).exists():
        (folder / place).mkdir(parents=True)
        _sync_folder((folder / place).parent)
    with atomic_write(folder / file) as out:
        out.write(data)
    _sync_folder(folder / place)
    return Segment(table=table, k=k, file=file, rows=rows, bytes=len(data), sealed=sealed)


def _encode(table: str, parts: list[pa.Table]) -> memoryview:
    """Sort rows and write them as Parquet; the bytes depend on the rows alone.

    Only the keys are sorted whole. The rows are taken from contiguous memory, one row group at a
    time: taking from many small pieces would first copy all of them, each time.
    """
    rows = pa.concat_tables(parts).combine_chunks()
    keys = [name for name, _ in SORT[table]]
    order = pc.sort_indices(rows.select(keys), sort_keys=SORT[table])
    buffer = BytesIO()
    with pq.ParquetWriter(
        buffer,
        SCHEMAS[table],
        compression="zstd",
        compression_level=3,
        use_dictionary=[name for name in rows.column_names if name in DICTIONARY],
        write_statistics=[f.name for f in SCHEMAS[table] if f.type != pa.large_string()],
    ) as writer:
        for start in range(0, rows.num_rows, ROW_GROUP):
            writer.write_table(rows.take(order[start : start + ROW_GROUP]), ROW_GROUP)
    return buffer.getbuffer()


def _sync_folder(folder: Path) -> None:
    """Make renames last through a power cut, where the system can do that for folders."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _collect(folder: Path, manifest: Manifest) -> None:
    """Remove files that no manifest names, and dead ones that no reader can still be using."""
    now = time.time()
    young = {dead.file for dead in manifest.dead if now - dead.time < GRACE_SECONDS}
    keep = young | {segment.file for segment in manifest.segments}
    # a killed sync also leaves half-written files; nobody else writes while we hold the lock
    places = ("segments/*", "mentions/*/*", ".sag-*.tmp")
    for path in (path for place in places for path in folder.glob(place)):
        if path.relative_to(folder).as_posix() not in keep:
            path.unlink(missing_ok=True)
    if len(young) < len(manifest.dead):
        dead = tuple(dead for dead in manifest.dead if dead.file in young)
        write_manifest(folder, msgspec.structs.replace(manifest, dead=dead))


@contextmanager
def _written(folder: Path) -> Iterator[None]:
    """Say in our words that a folder could not be written, and that nothing is lost by that."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except WriteError as error:
        told = f"{folder} could not be written"
        raise WarehouseError(told, why=error.why, fix=f"{error.fix}; {_KEPT}") from error
    except OSError as error:
        why = ": ".join(map(str, filter(None, (error.strerror or str(error), error.filename))))
        rights = f"give the right to write: chmod u+rwX {folder}; {_KEPT}"
        fix = rights if isinstance(error, PermissionError) else _ROOM
        raise WarehouseError(f"{folder} could not be written", why=why, fix=fix) from error


@contextmanager
def _lock(folder: Path) -> Iterator[bool]:
    """Take the writer's lock without waiting; the system frees it when the process dies."""
    try:
        connection = sqlite3.connect(folder / LOCK, timeout=0, isolation_level=None)
    except sqlite3.OperationalError as error:
        raise _no_lock(folder, error) from error
    with closing(connection) as db:
        try:
            db.execute("BEGIN EXCLUSIVE")
        except sqlite3.DatabaseError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                raise _no_lock(folder, error) from error
            yield False
            return
        try:
            yield True
        finally:
            db.execute("ROLLBACK")


def lock_holder(folder: Path) -> str:
    """Name the process that is syncing, where the system tells; else an empty text."""
    return holder_of(folder / LOCK)


def _no_lock(folder: Path, error: sqlite3.Error) -> WarehouseError:
    fix = {
        sqlite3.SQLITE_NOTADB: f"remove {folder / LOCK}, which holds nothing",
        sqlite3.SQLITE_FULL: _ROOM,
        sqlite3.SQLITE_IOERR: _ROOM,
    }.get(error.sqlite_errorcode & 0xFF, f"give the right to write: chmod u+rwX {folder}")
    return WarehouseError(f"{folder} cannot be locked", why=str(error), fix=fix)
