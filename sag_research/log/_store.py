"""The append-only event log in one SQLite file."""

from __future__ import annotations

import sqlite3
import threading
import uuid
import weakref
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from operator import index
from os import PathLike, fspath
from types import TracebackType
from typing import Any, Final, NamedTuple

import msgspec
import zstandard
from msgspec.structs import replace

from sag_research.errors import (
    BadPayloadError,
    ConflictError,
    RunExistsError,
    SchemaError,
    StoreError,
    UsageError,
)
from sag_research.log import _canonical as canonical
from sag_research.log import _rows as shape
from sag_research.log._connection import connect, translated
from sag_research.log._redact import REDACTED, Redaction, parted, redactions
from sag_research.log._verify import VerifyReport, verify_log
from sag_research.model import WORKSPACE_RUN, Event, Run

__all__ = ["Head", "SQLiteEventStore"]

_PAGE: Final = 1_000
_PART: Final = 100
"""Events written by one call: few, for what is made on the way would rouse the garbage collector,
and it would look through all that the caller holds."""
_BLOB_CACHE_BYTES: Final = 32 * 2**20
_KNOWN_BLOBS: Final = 65_536
_KNOWN_TIPS: Final = 65_536

_TRANSACTION: Final = ("BEGIN IMMEDIATE", "COMMIT", ("ROLLBACK",))
_SAVEPOINT: Final = ("SAVEPOINT part", "RELEASE part", ("ROLLBACK TO part", "RELEASE part"))
_INSERT_EVENT: Final = """
    INSERT INTO events (run, pos, type, actor, cause, frame, ts_ns, started, seconds,
                        body, body_digest, digest, seal)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
_SELECT_EVENT: Final = """
    SELECT e.seq, r.uid, e.pos, t.name, a.name, e.cause, f.name, e.ts_ns, e.started, e.seconds,
           e.body, e.digest
    FROM events e JOIN runs r ON r.run = e.run JOIN names t ON t.id = e.type
         JOIN names a ON a.id = e.actor LEFT JOIN names f ON f.id = e.frame"""

_COPY_EVENTS: Final = """
    INSERT INTO events (run, pos, type, actor, cause, frame, ts_ns, started, seconds,
                        body, body_digest, digest, seal)
    SELECT :new, pos, type, actor, cause, frame, ts_ns, started, seconds,
           body, body_digest, digest, seal
    FROM events WHERE run = :run AND pos BETWEEN :lo AND :hi ORDER BY pos"""
_COPY_CALLS: Final = """
    INSERT INTO calls (key, occ, run, pos, root, status)
    SELECT key, occ, :new, pos, :new, status
    FROM calls WHERE run = :run AND pos BETWEEN :lo AND :hi"""
# Down from the root; UNION, so that a damaged file with a circle in it does not hang.
_IN_FAMILY: Final = """
    WHERE r.run IN (
        WITH RECURSIVE family (run) AS (
            SELECT root FROM runs WHERE uid = ?
            UNION
            SELECT child.run FROM family JOIN runs child ON child.parent = family.run
        )
        SELECT run FROM family
    )
    ORDER BY r.run"""


class Head(NamedTuple):
    """The end of a run's history: its last position and the digest of everything up to it."""

    position: int
    digest: str


class _Tip(msgspec.Struct, frozen=True, gc=False):
    """What the next append to a run needs: its row, last position, digest and seal."""

    run: int
    pos: int
    digest: bytes
    seal: bytes


class _Segment(NamedTuple):
    """A run's own part of a lineage: its row and the positions it contributes."""

    run: int
    lo: int
    hi: int


class SQLiteEventStore:
    """Append-only store of runs and events.

    Parameters
    ----------
    path : str or path-like
        The log file, created where it does not exist; ``":memory:"`` for none.
    synchronous : {"NORMAL", "FULL"}
        How far a commit waits for the disk; see :func:`connect`.
    timeout : float
        Seconds to wait for another writer.
    read_only : bool
        Refuse all writing.

    Notes
    -----
    Every event carries ``digest = H(previous digest, type, actor, cause, body digest)``. Run
    ids, labels and clocks stand outside, so two runs share a prefix exactly when their digests
    at that position are equal.

    Examples
    --------
    >>> store = SQLiteEventStore(":memory:")
    >>> _ = store.create_run(Run(run_id="r1", goal="mend the parser"))
    >>> event = store.append(Event(run_id="r1", type="note.taken", payload={"text": "hello"}))
    >>> event.position, [e.type for e in store.read("r1")]
    (2, ['run.created', 'note.taken'])
    >>> store.verify().ok
    True
    """

    def __init__(
        self,
        path: str | PathLike[str],
        *,
        synchronous: str = "NORMAL",
        timeout: float = 30.0,
        read_only: bool = False,
    ) -> None:
        self.path = fspath(path)
        self._db = connect(self.path, synchronous=synchronous, timeout=timeout, read_only=read_only)
        self._close = weakref.finalize(self, self._db.close)  # a forgotten store closes its file
        self._lock = threading.RLock()
        self._timeout = timeout
        self._depth = 0
        self._data_version = -1
        self._compressor = zstandard.ZstdCompressor(level=3)
        self._decompressor = zstandard.ZstdDecompressor()
        self._names: dict[str, int] = {}
        self._tips: dict[str, _Tip] = {}
        self._known: set[bytes] = set()
        self._blobs: OrderedDict[bytes, bytes] = OrderedDict()
        self._blob_bytes = 0
        self._reasons: dict[tuple[str, int], str] = {}
        self._reasons_upto = 0
        self.log_id = self._read_log_id()

    def __repr__(self) -> str:
        return f"SQLiteEventStore({self.path!r})"

    def __enter__(self) -> SQLiteEventStore:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; closing twice does nothing."""
        with self._lock:
            self._close()

    def _read_log_id(self) -> str:
        try:
            with translated(self.path):
                row = self._db.execute("SELECT value FROM meta WHERE key = 'log_id'").fetchone()
        except StoreError:
            self.close()
            raise
        if row is None:
            self.close()
            raise SchemaError(f"{self.path} has lost its id", fix="restore the file from a copy")
        return str(row[0])

    def checkpoint(self) -> None:
        """Move what was committed into the main file, so that a copy of it alone holds it.

        Waits for nobody: what readers still need stays in the file ``-wal`` beside it.
        """
        with self._lock, translated(self.path):
            self._db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()

    # ---- writing

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Group writes: all of them are kept, or none.

        Transactions nest; the outermost one commits.
        """
        with self._lock:
            begin, keep, drop = _SAVEPOINT if self._depth else _TRANSACTION
            self._refuse_if_lost()
            with translated(self.path):
                self._db.execute(begin)
            self._depth += 1
            try:
                if self._depth == 1:
                    self._forget_if_others_wrote()
                yield
                self._refuse_if_lost()
                with translated(self.path):
                    self._db.execute(keep)
            except BaseException:
                self._roll_back(drop)
                raise
            finally:
                self._depth -= 1

    def _refuse_if_lost(self) -> None:
        """Stop inside a transaction that SQLite itself rolled back, e.g. on a full disk."""
        if self._depth and not self._db.in_transaction:
            raise StoreError(
                f"the transaction on {self.path} is lost",
                why="an error before this one rolled all of it back",
                fix="leave the transaction and begin again",
            )

    def _roll_back(self, drop: Sequence[str]) -> None:
        if self._db.in_transaction:
            with translated(self.path):
                for statement in drop:
                    self._db.execute(statement)
        self._names.clear()
        self._tips.clear()
        self._known.clear()
        self._blobs.clear()
        self._blob_bytes = 0
        self._reasons.clear()
        self._reasons_upto = 0

    def _forget_if_others_wrote(self) -> None:
        with translated(self.path):
            version = self._one("PRAGMA data_version")
        if version != self._data_version:
            self._data_version = version
            self._tips.clear()
            self._known.clear()  # another may have redacted a text that we wrote

    def create_run(self, run: Run) -> Run:
        """Write a run's row and its first event, ``run.created``.

        Returns
        -------
        Run
            The same run with ``created_at`` set.

        Raises
        ------
        RunExistsError
            If a run of this id is in the log.
        UsageError
            If the run names a parent (use :meth:`fork`), or its envelope is malformed.
        """
        if run.parent_id is not None:
            raise UsageError("create_run does not make forks", fix="use store.fork(parent, at=…)")
        payload = {name: getattr(run, name) for name in shape.CREATED_FIELDS if getattr(run, name)}
        with self.transaction(), translated(self.path):
            created = self._insert_run(run, None, 0, None)
            self.append(Event(run_id=run.run_id, type="run.created", actor="log", payload=payload))
        return created

    def _insert_run(self, run: Run, parent: int | None, fork_pos: int, digest: bytes | None) -> Run:
        shape.check_run(run)
        created_ns = shape.nanoseconds(run.created_at, "created_at")
        root, depth = None, 0
        if parent is not None:
            above = "SELECT root, depth + 1 FROM runs WHERE run = ?"
            root, depth = self._db.execute(above, (parent,)).fetchone()
        number = self._one("SELECT coalesce(max(run), 0) + 1 FROM runs")
        row = (number, run.run_id, parent, fork_pos, digest, root or number, depth)
        envelope = (run.label, run.attempt, run.source_id, created_ns)
        try:
            self._db.execute(
                "INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row + envelope
            )
        except sqlite3.IntegrityError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_CONSTRAINT_UNIQUE:
                raise
            raise RunExistsError(
                f"run {run.run_id!r} is already in the log", fix="choose another run id"
            ) from None
        return replace(run, created_at=created_ns / shape.SECOND, fork_position=fork_pos)

    def append(self, event: Event, *, expected: int | None = None) -> Event:
        """Append one event; see :meth:`append_many`."""
        return self.append_many([event], expected=expected)[0]

    def append_many(self, events: Iterable[Event], *, expected: int | None = None) -> list[Event]:
        """Append events, all or none.

        Parameters
        ----------
        events : iterable of Event
            Of one or several runs; ``cause`` must be an earlier position of the same lineage.
        expected : int, optional
            The position the first event must get (optimistic concurrency).

        Returns
        -------
        list of Event
            The same events with ``position``, ``seq``, ``ts`` and ``digest``.

        Raises
        ------
        ConflictError
            If another writer stands at the expected position; it names the winner.
        UsageError
            If the expected position lies beyond the next one.
        RunNotFoundError, BadPayloadError
            If an event's run is unknown, or the event has no canonical form.
        """
        if type(events) is list and len(events) == 1:
            return self._append_one(events[0], expected)
        with self.transaction(), translated(self.path):
            written: list[Event] = []
            given = iter(events)
            while part := [(event, shape.content(event)) for event in islice(given, _PART)]:
                written += self._write(part, None if written else expected)
            return written

    def _append_one(self, event: Event, expected: int | None) -> list[Event]:
        content = shape.content(event)
        with self._lock:
            if self._depth:  # one statement is whole or absent as it is
                self._refuse_if_lost()
                with translated(self.path):
                    return self._write([(event, content)], expected)
            if not content.blobs and (written := self._write_at_once(event, content, expected)):
                return [written]
            with self.transaction(), translated(self.path):
                return self._write([(event, content)], expected)

    def _conflict(self, run_id: str, expected: int, end: int) -> ConflictError | UsageError:
        if not 1 <= expected <= end:
            return UsageError(
                f"no event of run {run_id!r} can get position {expected}", why=f"it ends at {end}"
            )
        return ConflictError(run_id, expected, next(self.read(run_id, expected, expected)))

    def _write(
        self, events: Sequence[tuple[Event, shape.Content]], expected: int | None
    ) -> list[Event]:
        """Write events inside a transaction; their sequence numbers follow each other."""
        if len(self._tips) + len(events) > _KNOWN_TIPS:  # not later: these will be needed
            self._tips.clear()
        try:
            rows: list[tuple[Any, ...]] = []
            for event, content in events:
                tip = self._tip(event.run_id)
                if expected is not None and not rows and tip.pos + 1 != expected:
                    raise self._conflict(event.run_id, expected, tip.pos)
                rows.append(self._row(event, content, tip))
                self._tips[event.run_id] = _Tip(tip.run, *shape.end(rows[-1]))
            for _, content in events:
                for digest, data in content.blobs.items():
                    self._keep_blob(digest, data)
            self._db.executemany(_INSERT_EVENT, rows)
        except BaseException:
            self._tips.clear()
            raise
        before = self._one("SELECT last_insert_rowid()") - len(rows)
        return [
            shape.written(event, row, before + number)
            for number, ((event, _), row) in enumerate(zip(events, rows, strict=True), 1)
        ]

    def _write_at_once(
        self, event: Event, content: shape.Content, expected: int | None
    ) -> Event | None:
        """Write an event as a transaction of one statement, where that is enough.

        It is not if the run's end or a name is unknown here, or another writer was faster: the
        position is taken then, and nothing is written.
        """
        tip = self._tips.get(event.run_id)
        if tip is None or (expected is not None and expected != tip.pos + 1):
            return None
        cause = event.cause
        if cause is not None and not (type(cause) is int and 1 <= cause <= tip.pos):
            return None
        for name in (event.type, event.actor, event.frame):
            if name is not None and not (type(name) is str and name in self._names):
                return None
        try:
            row = self._row(event, content, tip)
            cursor = self._db.execute(_INSERT_EVENT, row)
        except sqlite3.IntegrityError:
            return None
        except sqlite3.Error as error:
            with translated(self.path):
                raise error
        self._tips[event.run_id] = _Tip(tip.run, *shape.end(row))
        return shape.written(event, row, cursor.lastrowid)

    def _row(self, event: Event, content: shape.Content, tip: _Tip) -> tuple[Any, ...]:
        """Make an event's row, chained to the run's end."""
        pos, cause, frame = tip.pos + 1, event.cause, event.frame
        if cause is not None and not (type(cause) is int and 1 <= cause < pos):
            raise BadPayloadError("cause", f"{cause!r} is no position before {pos}")
        type_, actor = self._name(event.type, "type"), self._name(event.actor, "actor")
        frame_id = None if frame is None else self._name(frame, "frame")
        body, clocks = content.body, content.clocks
        body_digest = canonical.body_digest(body)
        digest = canonical.chain(tip.digest, event.type, event.actor, cause, body_digest)
        seal = canonical.seal(tip.seal, digest, (*clocks, frame))
        return (
            tip.run, pos, type_, actor, cause, frame_id, *clocks, body, body_digest, digest, seal,
        )  # fmt: skip

    def _tip(self, run_id: str) -> _Tip:
        """Find the end of a run, inside a transaction: nobody else writes meanwhile."""
        if (tip := self._tips.get(run_id)) is not None:
            return tip
        row = self._db.execute("SELECT run, fork_pos FROM runs WHERE uid = ?", (run_id,)).fetchone()
        if row is None:
            if run_id != WORKSPACE_RUN:
                raise shape.not_found(run_id)
            self.create_run(Run(run_id=WORKSPACE_RUN, kind="workspace"))
            return self._tips[run_id]
        tip = self._tips[run_id] = self._read_tip(*row)
        return tip

    def _read_tip(self, run: int, fork_pos: int) -> _Tip:
        last = "SELECT pos, digest, seal FROM events WHERE run = ? ORDER BY pos DESC LIMIT 1"
        row = self._db.execute(last, (run,)).fetchone()
        if row is None and fork_pos:
            at = "SELECT pos, digest, seal FROM events WHERE run = ? AND pos = ?"
            segment = self._segments(run, fork_pos)[-1]
            row = self._db.execute(at, (segment.run, fork_pos)).fetchone()
        return _Tip(run, *(row or (0, canonical.GENESIS, canonical.GENESIS)))

    def _name(self, name: str, field: str) -> int:
        number = self._names.get(name) if type(name) is str else None
        if number is None:
            if not shape.is_clean(name) or not name:
                raise BadPayloadError(field, f"{name!r} is no clean text")
            self._db.execute("INSERT OR IGNORE INTO names (name) VALUES (?)", (name,))
            number = self._one("SELECT id FROM names WHERE name = ?", name)
            self._names[name] = number
        return number

    # ---- blobs

    def put_blob(self, data: bytes) -> str:
        """Keep bytes under their digest; returns the digest as 64 hex digits."""
        digest = canonical.blob_digest(data)
        with self.transaction(), translated(self.path):
            self._keep_blob(digest, data)
        return digest.hex()

    def _keep_blob(self, digest: bytes, data: bytes) -> None:
        if digest in self._known:
            return
        packed = self._compressor.compress(data)
        enc, stored = (1, packed) if len(packed) < len(data) else (0, data)
        self._db.execute(
            "INSERT OR IGNORE INTO blobs (digest, size, enc, data) VALUES (?, ?, ?, ?)",
            (digest, len(data), enc, stored),
        )
        if len(self._known) >= _KNOWN_BLOBS:
            self._known.clear()
        self._known.add(digest)

    def blob(self, digest: str) -> bytes:
        """Return the bytes kept under a digest.

        Raises
        ------
        StoreError
            If no such blob is in the log, or it was redacted.
        UsageError
            If the digest is not 64 hex digits.
        """
        try:
            key = bytes.fromhex(digest)
        except ValueError:
            raise UsageError(f"{digest!r} is no digest", fix="give 64 hex digits") from None
        with self._lock, translated(self.path):
            found = self._fetch([key])
        if key not in found:
            raise StoreError(
                f"blob {digest[:12]} is missing from {self.path}",
                why="it was redacted, or the file is damaged",
                fix="run `sag verify` to see which events it belongs to",
            )
        return found[key]

    def _fetch(self, digests: Collection[bytes]) -> dict[bytes, bytes]:
        """Read blobs; those that are missing or damaged are left out."""
        found = {digest: self._blobs[digest] for digest in digests if digest in self._blobs}
        missing = [digest for digest in digests if digest not in found]
        for start in range(0, len(missing), 500):
            part = missing[start : start + 500]
            marks = ",".join("?" * len(part))
            query = f"SELECT digest, enc, size, data FROM blobs WHERE digest IN ({marks})"  # noqa: S608
            for digest, enc, size, data in self._db.execute(query, part):
                if (text := self._unpacked(enc, size, data)) is not None:
                    found[digest] = text
                    self._remember(digest, text)
        return found

    def _unpacked(self, enc: int, size: int, data: bytes | None) -> bytes | None:
        if data is None or not enc:
            return data
        try:
            return self._decompressor.decompress(data, size)
        except zstandard.ZstdError:
            return None

    def _remember(self, digest: bytes, data: bytes) -> None:
        self._blobs[digest] = data
        self._blob_bytes += len(data)
        while self._blob_bytes > _BLOB_CACHE_BYTES:
            _, dropped = self._blobs.popitem(last=False)
            self._blob_bytes -= len(dropped)

    # ---- reading

    def has_run(self, run_id: str) -> bool:
        """Tell whether a run of this id is in the log."""
        with self._lock, translated(self.path):
            row = self._db.execute("SELECT 1 FROM runs WHERE uid = ?", (run_id,)).fetchone()
            return row is not None

    def get_run(self, run_id: str) -> Run:
        """Return a run: its envelope, and what its first event says it is about.

        Raises
        ------
        RunNotFoundError
        """
        found = self._runs("WHERE r.uid = ?", run_id)
        if not found:
            raise shape.not_found(run_id)
        return found[0]

    def runs(self) -> list[Run]:
        """Return all runs but the workspace's own, in the order in which they were written."""
        return self._runs("WHERE r.uid <> ? ORDER BY r.run", WORKSPACE_RUN)

    def get_runs(self, run_ids: Collection[str]) -> dict[str, Run]:
        """Return several runs by id; unknown ids are left out."""
        wanted, found = list(run_ids), {}
        for start in range(0, len(wanted), 500):
            part = wanted[start : start + 500]
            marks = ",".join("?" * len(part))
            found.update(
                {run.run_id: run for run in self._runs(f"WHERE r.uid IN ({marks})", *part)}
            )
        return found

    def _runs(self, where: str, *parameters: Any) -> list[Run]:
        query = f"""
            SELECT r.uid, p.uid, r.fork_pos, r.label, r.attempt, r.source_id, r.created_ns, e.body
            FROM runs r LEFT JOIN runs p ON p.run = r.parent
                 LEFT JOIN events e ON e.run = r.root AND e.pos = 1 {where}"""  # noqa: S608
        with self._lock, translated(self.path):
            rows = self._db.execute(query, parameters).fetchall()
            blobs = self._fetch(canonical.marked(row[-1] for row in rows if row[-1]))
        return [shape.run_from_row(row, blobs) for row in rows]

    def head(self, run_id: str) -> Head:
        """Return the last position of a run and the digest of its whole history."""
        with self._lock, translated(self.path):
            row = self._db.execute(
                "SELECT run, fork_pos FROM runs WHERE uid = ?", (run_id,)
            ).fetchone()
            if row is None:
                raise shape.not_found(run_id)
            tip = self._read_tip(*row)
        return Head(tip.pos, tip.digest.hex())

    def read(
        self,
        run_id: str,
        lo: int = 1,
        hi: int | None = None,
        types: Collection[str] | None = None,
    ) -> Iterator[Event]:
        """Read a run's events in order, the prefix inherited from its ancestors included.

        Parameters
        ----------
        run_id : str
        lo, hi : int
            First and last position wanted, both included.
        types : collection of str, optional
            Only events of these types.

        Returns
        -------
        iterator of Event
            Read in pages, up to what was the run's last event at the time of the call;
            ``run_id`` names the run that wrote the event.

        Raises
        ------
        RunNotFoundError
            At the call.
        StoreError
            While reading, at an event whose texts are missing or damaged.
        """
        with self._lock, translated(self.path):
            segments = self._lineage(run_id, hi)
        return self._read_segments(segments, index(lo), types)

    def _lineage(self, run_id: str, hi: int | None = None) -> list[_Segment]:
        query = "SELECT run, fork_pos FROM runs WHERE uid = ?"
        row = self._db.execute(query, (run_id,)).fetchone()
        if row is None:
            raise shape.not_found(run_id)
        end = self._read_tip(*row).pos
        return self._segments(row[0], end if hi is None else min(index(hi), end))

    def _read_segments(
        self, segments: Sequence[_Segment], lo: int, types: Collection[str] | None
    ) -> Iterator[Event]:
        own = "e.run = ? AND e.pos > ? AND e.pos <= ?"
        for segment in segments:
            after = max(segment.lo, lo) - 1
            while page := self._page(own, (segment.run, after, segment.hi), "e.pos", types):
                yield from page
                after = page[-1].position or segment.hi

    def _segments(self, run: int, end: int) -> list[_Segment]:
        """Walk up the lineage; the inherited part ends at the smallest fork position on the way."""
        segments: list[_Segment] = []
        current: int | None = run
        while current is not None and end > 0:
            query = "SELECT parent, fork_pos FROM runs WHERE run = ?"
            parent, fork_pos = self._db.execute(query, (current,)).fetchone()
            if end > fork_pos:
                segments.append(_Segment(current, fork_pos + 1, end))
            current, end = parent, min(end, fork_pos)
        return segments[::-1]

    def tail(
        self,
        after: int = 0,
        upto: int | None = None,
        types: Collection[str] | None = None,
        *,
        strict: bool = True,
    ) -> Iterator[Event]:
        """Read the whole log in the order of writing; every event once, under its writer.

        Parameters
        ----------
        after, upto : int
            Sequence numbers: events with ``after < seq <= upto``.
        types : collection of str, optional
            Only events of these types.
        strict : bool
            What to do at an event whose texts are missing or damaged: raise, or (false) give
            it with the payload ``{"unreadable": reason}`` and go on.

        Raises
        ------
        StoreError
            At an event that cannot be read, if strict; those before it are read.
        """
        after, end = index(after), self.last_seq() if upto is None else index(upto)
        where = "e.seq > ? AND e.seq <= ?"
        while page := self._page(where, (after, end), "e.seq", types, strict=strict):
            yield from page
            after = page[-1].seq or end

    def follow(
        self, after: int, *, interval: float = 0.2, stop: threading.Event | None = None
    ) -> Iterator[Event]:
        """Read the log as :meth:`tail` does, and go on with what any process appends.

        Parameters
        ----------
        after : int
            Sequence number of the last event already seen.
        interval : float
            Seconds between two looks.
        stop : threading.Event, optional
            Ends the iteration when set; default: never.
        """
        stop = stop or threading.Event()
        while not stop.is_set():
            for event in self.tail(after):
                yield event
                after = event.seq or after
            stop.wait(interval)

    def _page(
        self,
        where: str,
        parameters: Sequence[int],
        order: str,
        types: Collection[str] | None,
        *,
        strict: bool = True,
    ) -> list[Event]:
        wanted = [types] if isinstance(types, str) else list(types or ())
        only = f" AND t.name IN ({','.join('?' * len(wanted))})" if types is not None else ""
        query = f"{_SELECT_EVENT} WHERE {where}{only} ORDER BY {order} LIMIT {_PAGE}"
        with self._lock, translated(self.path):
            rows = self._db.execute(query, (*parameters, *wanted)).fetchall()
            blobs = self._fetch(canonical.marked(row[10] for row in rows if row[10]))
            empty = any(row[10] is None for row in rows)
            reasons = self._redacted() if empty else {}
        return shape.events_from_rows(rows, blobs, reasons, strict)

    def _redacted(self) -> Mapping[tuple[str, int], str]:
        """Say why bodies are gone, by run and position; what is known is not read again."""
        for told in redactions(self._db, self._reasons_upto):
            self._reasons[told.run_id, told.position] = told.reason
            self._reasons_upto = told.pos
        return self._reasons

    def last_seq(self) -> int:
        """Return the sequence number of the newest event, 0 in an empty log."""
        with self._lock, translated(self.path):
            return int(self._one("SELECT coalesce(max(seq), 0) FROM events"))

    def digest_at(self, seq: int) -> str | None:
        """Return the digest of the event with this sequence number, if there is one."""
        with self._lock, translated(self.path):
            query = "SELECT digest FROM events WHERE seq = ?"
            row = self._db.execute(query, (index(seq),)).fetchone()
        return None if row is None else row[0].hex()

    def position_of_step(self, run_id: str, step: int) -> int:
        """Return the position of the event ``agent.step`` of a 0-based step number.

        Raises
        ------
        UsageError
            If the run has no such step.
        """
        steps = """
            SELECT pos FROM events WHERE run = ? AND pos BETWEEN ? AND ?
            AND type = (SELECT id FROM names WHERE name = 'agent.step') ORDER BY pos"""
        with self._lock, translated(self.path):
            positions = [
                row[0]
                for segment in self._lineage(run_id)
                for row in self._db.execute(steps, segment)
            ]
        if not 0 <= step < len(positions):
            raise UsageError(
                f"run {run_id!r} has no step {step}", why=f"it has {len(positions)} steps"
            )
        return int(positions[step])

    def count_steps(self, run_id: str, before: int) -> int:
        """Count the steps of a run's lineage that stand before a position."""
        query = """
            SELECT count(*) FROM events
            WHERE run = ? AND pos BETWEEN ? AND ?
              AND type = (SELECT id FROM names WHERE name = 'agent.step')"""
        with self._lock, translated(self.path):
            run = self._run_number(run_id)
            segments = self._segments(run, index(before) - 1)
            return sum(int(self._one(query, *segment)) for segment in segments)

    # ---- lineage

    def fork(
        self,
        parent: str,
        *,
        at: int | None = None,
        step: int | None = None,
        run_id: str | None = None,
        intervention: Mapping[str, Any] | None = None,
        label: str = "",
    ) -> Run:
        """Branch a run: one row, and the child's first own event ``run.forked``.

        Parameters
        ----------
        parent : str
            Id of the run to branch.
        at : int, optional
            The child sees the parent's events 1..at; default: all of them.
        step : int, optional
            Instead of ``at``: up to the event of this 0-based step.
        run_id : str, optional
            Default: the parent's id, ``+``, and eight random hex digits.
        intervention : mapping, optional
            What is changed; the payload of ``run.forked``.

        Raises
        ------
        UsageError
            If the parent has no such position, or both ``at`` and ``step`` are given.
        """
        if parent == WORKSPACE_RUN:
            raise UsageError("the workspace's own run cannot be forked")
        if step is not None:
            if at is not None:
                raise UsageError("a fork has one place", fix="give `at` or `step`, not both")
            at = self.position_of_step(parent, step)
        child = Run(run_id=run_id or f"{parent}+{uuid.uuid4().hex[:8]}", label=label)
        with self.transaction(), translated(self.path):
            tip = self._tip(parent)
            at = tip.pos if at is None else index(at)
            if not 1 <= at <= tip.pos:
                raise UsageError(
                    f"run {parent!r} has no position {at}", why=f"it ends at {tip.pos}"
                )
            writer = self._segments(tip.run, at)[-1].run
            digest = self._one("SELECT digest FROM events WHERE run = ? AND pos = ?", writer, at)
            self._insert_run(child, tip.run, at, digest)
            payload = dict(intervention or {})
            self.append(Event(run_id=child.run_id, type="run.forked", actor="log", payload=payload))
        return self.get_run(child.run_id)

    def family(self, run_id: str) -> list[Run]:
        """Return all runs with the same root, the run itself included, ancestors before children.

        Raises
        ------
        RunNotFoundError
        """
        found = self._runs(_IN_FAMILY, run_id)
        if not found:
            raise shape.not_found(run_id)
        return found

    def flatten(self, run_id: str, new_id: str | None = None) -> Run:
        """Copy a fork's whole lineage into a run that needs no other.

        Parameters
        ----------
        run_id : str
        new_id : str, optional
            Default: the run's id, ``+``, and eight random hex digits.

        Returns
        -------
        Run
            A run without a parent, with the same events at the same positions, so with equal
            digests; its envelope (label, attempt, source, time of creation) is the fork's.

        Raises
        ------
        RunNotFoundError, RunExistsError
        UsageError
            For the workspace's own run.

        Notes
        -----
        A fork otherwise reads what it inherited from its ancestors. Nothing removes rows, and
        foreign keys keep a run's row while events or children refer to it, so a fork cannot
        lose its prefix; flattening is for handing a run on by itself. In statistics the copy
        is a run like any other: hide one of the two.
        """
        if run_id == WORKSPACE_RUN:
            raise UsageError("the workspace's own run cannot be copied")
        with self.transaction(), translated(self.path):
            source = self.get_run(run_id)
            copy = replace(
                source, run_id=new_id or f"{run_id}+{uuid.uuid4().hex[:8]}",
                parent_id=None, fork_position=0,
            )  # fmt: skip
            self._insert_run(copy, None, 0, None)
            number = self._run_number(copy.run_id)
            for segment in self._lineage(run_id):
                for statement in (_COPY_EVENTS, _COPY_CALLS):
                    self._db.execute(statement, {"new": number, **segment._asdict()})
            self._tell_again(copy.run_id, number, run_id)
        return copy

    def _tell_again(self, new_id: str, number: int, old_id: str) -> None:
        """Say of a copy's empty bodies what was said of the original's."""
        query = "SELECT pos FROM events WHERE run = ? AND body IS NULL ORDER BY pos"
        for (pos,) in self._db.execute(query, (number,)).fetchall():
            original = next(self.read(old_id, pos, pos))
            if (reason := original.payload.get("redacted")) is not None:
                self._tell_redacted(new_id, pos, reason)

    # ---- redaction

    def redact(self, run_id: str, position: int, reason: str = "") -> Redaction:
        """Empty an event's body, and leave an event ``body.redacted`` that says so.

        Parameters
        ----------
        run_id : str
        position : int
            Of the run's lineage: an inherited event is emptied for all that inherit it.
        reason : str
            Stands in the log for good, and in what is read in the body's place.

        Returns
        -------
        Redaction
            With the number of texts that went, and of those that other events hold too and
            that therefore stay.

        Raises
        ------
        RunNotFoundError
        UsageError
            If there is no such event, it was redacted before, or it tells of a redaction.

        Notes
        -----
        The body's digest stays, so :meth:`verify` still holds, for this run and its forks. The
        event reads as ``{"redacted": reason}`` (a step keeps its clocks, which are no content).
        Of the file itself the freed pages are overwritten with zeros, and the write-ahead log
        is emptied if nobody else reads at the moment. Copies elsewhere (backups, exports, a
        warehouse that was synced before) are not touched.

        Examples
        --------
        >>> store = SQLiteEventStore(":memory:")
        >>> _ = store.create_run(Run(run_id="r1"))
        >>> _ = store.append(Event(run_id="r1", type="note.taken", payload={"password": "x"}))
        >>> _ = store.redact("r1", 2, "a password")
        >>> [event.payload for event in store.read("r1", lo=2)], store.verify().ok
        ([{'redacted': 'a password'}], True)
        """
        with self._lock, translated(self.path):
            self._db.execute("PRAGMA secure_delete=ON")
        with self.transaction(), translated(self.path):
            writer, seq, body = self._redactable(run_id, index(position))
            gone, kept = parted(self._db, seq, body)
            self._db.execute("UPDATE events SET body = NULL WHERE seq = ?", (seq,))
            for digest in sorted(gone):
                self._db.execute("DELETE FROM blobs WHERE digest = ?", (digest,))
            self._known -= gone
            for digest in gone & self._blobs.keys():
                self._blob_bytes -= len(self._blobs.pop(digest))
            event = self._tell_redacted(writer, index(position), reason)
        self._empty_write_ahead_log()
        return Redaction(event, len(gone), len(kept))

    def _empty_write_ahead_log(self) -> None:
        """Leave no older state of a page in the file beside the log; waits for nobody."""
        with self._lock, translated(self.path):
            if not self._depth:
                self._db.execute("PRAGMA busy_timeout=0")
                self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
                self._db.execute(f"PRAGMA busy_timeout={round(self._timeout * 1_000)}")

    def _redactable(self, run_id: str, position: int) -> tuple[str, int, bytes]:
        """Find the event at a position: its writer, sequence number and body."""
        segments = self._lineage(run_id, position)
        if position < 1 or not segments or segments[-1].hi != position:
            raise UsageError(f"run {run_id!r} has no position {position}")
        writer, seq, type_, body = self._db.execute(
            """SELECT r.uid, e.seq, t.name, e.body FROM events e JOIN runs r ON r.run = e.run
               JOIN names t ON t.id = e.type WHERE e.run = ? AND e.pos = ?""",
            (segments[-1].run, position),
        ).fetchone()
        if body is None:
            raise UsageError(f"event {position} of run {run_id!r} has no body any more")
        if type_ == REDACTED:
            raise UsageError("the trace of a redaction cannot be redacted")
        return writer, seq, body

    def _tell_redacted(self, run_id: str, position: int, reason: str) -> Event:
        payload = {"run": run_id, "position": position, "reason": reason}
        return self.append(Event(run_id=WORKSPACE_RUN, type=REDACTED, actor="log", payload=payload))

    def verify(self, run_id: str | None = None) -> VerifyReport:
        """Recompute digests and seals; see :class:`VerifyReport`."""
        with translated(self.path):
            return verify_log(self._db, self._lock, run_id)

    # ---- small helpers

    def _run_number(self, run_id: str) -> int:
        row = self._db.execute("SELECT run FROM runs WHERE uid = ?", (run_id,)).fetchone()
        if row is None:
            raise shape.not_found(run_id)
        return int(row[0])

    def _one(self, query: str, *parameters: Any) -> Any:
        return self._db.execute(query, parameters).fetchone()[0]
