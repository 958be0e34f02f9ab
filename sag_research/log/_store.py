"""The append-only event log in one SQLite file."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from operator import index
from os import PathLike, fspath
from types import TracebackType
from typing import Any, NamedTuple

from sag_research.errors import StoreError, UsageError
from sag_research.log import _canonical as canonical
from sag_research.log import _forks as forks
from sag_research.log import _reading as reading
from sag_research.log import _rows as shape
from sag_research.log import _writing as writing
from sag_research.log._blobs import Blobs
from sag_research.log._connection import connect, read_log_id, translated
from sag_research.log._lineage import Tip, count_steps, lineage, position_of_step, tip_of
from sag_research.log._reading import RawPage
from sag_research.log._redact import Redaction, redact
from sag_research.log._transactions import transaction
from sag_research.log._verify import VerifyReport, verify_log
from sag_research.model import WORKSPACE_RUN, Event, Run

__all__ = ["Head", "SQLiteEventStore"]


class Head(NamedTuple):
    """The end of a run's history: its last position and the digest of everything up to it."""

    position: int
    digest: str


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
        self._names: dict[str, int] = {}
        self._tips: dict[str, Tip] = {}
        self._blobs = Blobs(self._db)
        self._reasons: dict[tuple[str, int], tuple[str, int]] = {}
        self._reasons_upto = 0
        try:
            self.log_id = read_log_id(self._db, self.path)
        except StoreError:
            self.close()
            raise

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

    def checkpoint(self) -> None:
        """Move what was committed into the main file, so that a copy of it alone holds it.

        Waits for nobody: what readers still need stays in the file ``-wal`` beside it.
        """
        with self._lock, translated(self.path):
            self._db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()

    # ---- writing

    def transaction(self) -> AbstractContextManager[None]:
        """Group writes: all of them are kept, or none.

        Transactions nest; the outermost one commits.
        """
        return transaction(self)

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
        return writing.create_run(self, run)

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
            return [writing.append_one(self, events[0], expected)]
        return writing.append_several(self, events, expected)

    # ---- blobs

    def put_blob(self, data: bytes) -> str:
        """Keep bytes under their digest; returns the digest as 64 hex digits."""
        digest = canonical.blob_digest(data)
        with self.transaction(), translated(self.path):
            self._blobs.keep({digest: data})
        return digest.hex()

    def blob(self, digest: str) -> bytes:
        """Return the bytes kept under a digest.

        Raises
        ------
        StoreError
            If no such blob is in the log, or it was redacted.
        UsageError
            If the digest is not 64 hex digits.
        """
        return reading.read_blob(self, digest)

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
        found = reading.read_runs(self, "WHERE r.uid = ?", run_id)
        if not found:
            raise shape.not_found(run_id)
        return found[0]

    def runs(self) -> list[Run]:
        """Return all runs but the workspace's own, in the order in which they were written."""
        return reading.read_runs(self, "WHERE r.uid <> ? ORDER BY r.run", WORKSPACE_RUN)

    def get_runs(self, run_ids: Collection[str]) -> dict[str, Run]:
        """Return several runs by id; unknown ids are left out."""
        return reading.read_runs_named(self, list(run_ids))

    def head(self, run_id: str) -> Head:
        """Return the last position of a run and the digest of its whole history."""
        with self._lock, translated(self.path):
            tip = tip_of(self._db, run_id)
        if tip is None:
            raise shape.not_found(run_id)
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
            segments = lineage(self._db, run_id, hi)
        return reading.read_segments(self, segments, index(lo), types)

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
        return reading.read_tail(self, after, upto, types, strict)

    def raw_pages(self, after: int, upto: int) -> Iterator[RawPage]:
        """Read the whole log as :meth:`tail` does, but leave bodies as they are kept.

        Parameters
        ----------
        after, upto : int
            Sequence numbers: events with ``after < seq <= upto``.
        """
        return reading.raw_pages(self, index(after), index(upto))

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
        return reading.follow(self, after, interval, stop or threading.Event())

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

    def mark_at(self, seq: int) -> str | None:
        """Return what tells the event with this sequence number from any other, if there is one.

        After a power cut a log may give a number out again, and what is written then may have the
        digest of what was lost: that of another run with the same history. Run and clocks tell.
        """
        with self._lock, translated(self.path):
            query = """
                SELECT r.uid, e.pos, e.seal FROM events e JOIN runs r ON r.run = e.run
                WHERE e.seq = ?"""
            row = self._db.execute(query, (index(seq),)).fetchone()
        return None if row is None else f"{row[2].hex()}:{row[1]}:{row[0]}"

    def position_of_step(self, run_id: str, step: int) -> int:
        """Return the position of the event ``agent.step`` of a 0-based step number.

        Raises
        ------
        UsageError
            If the run has no such step.
        """
        return position_of_step(self, run_id, step)

    def count_steps(self, run_id: str, before: int) -> int:
        """Count the steps of a run's lineage that stand before a position."""
        return count_steps(self, run_id, before)

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
        source_id: str | None = None,
        attempt: int | None = None,
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
        label : str
            A name for people.
        source_id : str, optional
            The source that the branch was read from, where it was not made here.
        attempt : int, optional
            Its number, as the source gives it.

        Raises
        ------
        UsageError
            If the parent has no such position, or both ``at`` and ``step`` are given.
        """
        if step is not None:
            if at is not None:
                raise UsageError("a fork has one place", fix="give `at` or `step`, not both")
            at = self.position_of_step(parent, step)
        child = Run(
            run_id=run_id or forks.name_of_child(parent),
            label=label,
            source_id=source_id,
            attempt=attempt,
        )
        return forks.fork(self, parent, at, child, intervention)

    def family(self, run_id: str) -> list[Run]:
        """Return all runs with the same root, the run itself included, ancestors before children.

        Raises
        ------
        RunNotFoundError
        """
        return forks.family(self, run_id)

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
        return forks.flatten(self, run_id, new_id)

    # ---- redaction

    def redact(
        self,
        run_id: str,
        position: int,
        reason: str = "",
        replacement: Mapping[str, Any] | None = None,
    ) -> Redaction:
        """Empty an event's body, and leave an event ``body.redacted`` that says so.

        Parameters
        ----------
        run_id : str
        position : int
            Of the run's lineage: an inherited event is emptied for all that inherit it.
        reason : str
            Stands in the log for good, and in what is read in the body's place.
        replacement : mapping, optional
            A cleaned payload, kept in the event ``body.redacted`` and read in the body's place.

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
        event reads as ``{"redacted": reason}`` and the replacement, if there is one (a step
        keeps its clocks, which are no content).
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
        return redact(self, run_id, index(position), reason, replacement)

    def verify(self, run_id: str | None = None) -> VerifyReport:
        """Recompute digests and seals; see :class:`VerifyReport`."""
        with translated(self.path):
            return verify_log(self._db, self._lock, run_id)

    def _one(self, query: str, *parameters: Any) -> Any:
        return self._db.execute(query, parameters).fetchone()[0]
