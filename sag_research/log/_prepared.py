"""Runs made ready for the log anywhere, also in another process, and put into it in order.

Whatever does not depend on the log is done beforehand: canonical bodies, their digests, packed
texts. What is left for the one that writes is to chain digests and to insert rows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import msgspec

from sag_research.errors import UsageError
from sag_research.log import _canonical as canonical
from sag_research.log import _rows as shape
from sag_research.log._blobs import Packed, pack, unpacked
from sag_research.log._connection import translated
from sag_research.log._lineage import Tip
from sag_research.log._store import SQLiteEventStore
from sag_research.log._writing import (
    KNOWN_TIPS,
    Row,
    find_tip,
    insert_rows,
    insert_run,
    row_of_prepared,
)
from sag_research.model import Event, Run

__all__ = [
    "PreparedEvent",
    "PreparedRun",
    "RunWriter",
    "keep_bytes",
    "keep_text",
    "packed_run",
    "prepare_event",
    "prepare_run",
    "writing_runs",
]

_WAITING: Final = 500
"""Rows that wait at most before they are inserted together."""
_WAITING_BYTES: Final = 16 * 2**20
_AT_ONCE: Final = 500
_WORD: Final = 2**63
_NO_TEXTS: Final[Mapping[bytes, bytes]] = {}


class PreparedEvent(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """An event without its place: canonical body, the body's digest, and clocks."""

    type: str
    actor: str
    body: bytes
    digest: bytes
    started: float | None = None
    seconds: float | None = None


class PreparedRun(msgspec.Struct, array_like=True, frozen=True):
    """A run with its events, of which each is caused by the one before it.

    A run of its own begins with ``run.created``, the first of the events. One that leaves
    another run names it, the last step that both share (-1 or None: only the start), and what
    was changed; the log begins it with ``run.forked``.
    """

    run_id: str
    events: list[PreparedEvent]
    texts: list[Packed]
    source_id: str | None = None
    attempt: int | None = None
    created_at: float | None = None
    parent: str | None = None
    parent_step: int | None = None
    intervention: dict[str, Any] = {}


# ---- before: anywhere


def keep_text(text: str, texts: dict[bytes, bytes]) -> str:
    """Keep a text as it is, broken characters included; returns its digest as 64 hex digits."""
    return keep_bytes(text.encode("utf-8", "surrogatepass"), texts)


def keep_bytes(data: bytes, texts: dict[bytes, bytes]) -> str:
    """Keep bytes as :func:`keep_text` keeps a text."""
    digest = canonical.blob_digest(data)
    texts[digest] = data
    return digest.hex()


def prepare_event(event: Event, texts: dict[bytes, bytes]) -> PreparedEvent:
    """Make an event ready; its long texts go into ``texts`` by their digests.

    Raises
    ------
    BadPayloadError
        If the payload has no canonical form.
    """
    body, blobs, _, started, seconds = shape.content(event)
    texts |= blobs
    digest = canonical.body_digest(body)
    return PreparedEvent(event.type, event.actor, body, digest, started, seconds)


def prepare_run(
    run: Run,
    events: Iterable[PreparedEvent],
    texts: dict[bytes, bytes],
    *,
    parent_step: int | None = None,
    intervention: Mapping[str, Any] | None = None,
) -> PreparedRun:
    """Make a run and its events ready; where it has a parent, it leaves that behind a step.

    Parameters
    ----------
    run : Run
    events : iterable of PreparedEvent
        What stands behind the first event.
    texts : dict of bytes to bytes
        The long texts of these events, by their digests; filled while they are iterated over.
    parent_step : int, optional
    intervention : mapping, optional

    Raises
    ------
    BadPayloadError, UsageError
        If the log could not hold it.
    """
    shape.check_run(run)
    if parent_step is not None and abs(parent_step) >= _WORD:
        raise UsageError(f"run {run.parent_id!r} has no step {parent_step}")
    canonical.encode(intervention or {})
    prepared = []
    if run.parent_id is None:
        about = {name: getattr(run, name) for name in shape.CREATED_FIELDS if getattr(run, name)}
        created = Event(run_id=run.run_id, type="run.created", actor="log", payload=about)
        prepared.append(prepare_event(created, texts))
    prepared += events
    return PreparedRun(
        run_id=run.run_id,
        events=prepared,
        texts=unpacked(texts),
        source_id=run.source_id,
        attempt=run.attempt,
        created_at=run.created_at,
        parent=run.parent_id,
        parent_step=parent_step,
        intervention=dict(intervention or {}),
    )


def packed_run(run: PreparedRun) -> PreparedRun:
    """Pack a run's texts here; otherwise that is done by the writer, for those that are new."""
    return msgspec.structs.replace(run, texts=[pack(text) for text in run.texts])


# ---- behind: in the one process that writes


@contextmanager
def writing_runs(store: SQLiteEventStore) -> Iterator[RunWriter]:
    """Write prepared runs in one transaction: all that is written in the block, or none."""
    with store.transaction():
        writer = RunWriter(store)
        yield writer
        writer.flush()


class RunWriter:
    """Puts prepared runs into a log, inside a transaction; rows wait to be inserted together."""

    def __init__(self, store: SQLiteEventStore) -> None:
        self._store = store
        self._rows: list[Row] = []
        self._texts: dict[bytes, Packed] = {}
        self._size = 0

    def taken(self, run_ids: Collection[str]) -> list[str]:
        """Return those of some run ids that are in the log already."""
        found: list[str] = []
        ids = list(run_ids)
        with translated(self._store.path):
            for start in range(0, len(ids), _AT_ONCE):
                part = ids[start : start + _AT_ONCE]
                query = f"SELECT uid FROM runs WHERE uid IN ({','.join('?' * len(part))})"  # noqa: S608
                found += [row[0] for row in self._store._db.execute(query, part)]
        return found

    @contextmanager
    def part(self) -> Iterator[None]:
        """Write all of a block, or none of it and go on."""
        self.flush()
        with self._store.transaction():
            try:
                yield
                self.flush()
            except BaseException:
                self._drop()
                raise

    def add(self, run: PreparedRun) -> None:
        """Write a run.

        Raises
        ------
        RunExistsError
            If a run of its id is in the log.
        UsageError
            If its parent has no such step.
        """
        with translated(self._store.path):
            if run.parent is None:
                envelope = Run(
                    run_id=run.run_id,
                    attempt=run.attempt,
                    source_id=run.source_id,
                    created_at=run.created_at,
                )
                insert_run(self._store, envelope, None, 0, None)
            else:
                self._fork(run, run.parent)
            self._keep(run.texts)
            self._append(run.run_id, run.events, caused=True)

    def append(
        self, run_id: str, event: PreparedEvent, texts: Mapping[bytes, bytes] = _NO_TEXTS
    ) -> int:
        """Append an event without a cause to any run; returns its position.

        ``texts`` are its long texts, where they did not come with a run.
        """
        with translated(self._store.path):
            self._keep(unpacked(texts))
            return self._append(run_id, [event], caused=False)

    def _fork(self, run: PreparedRun, parent: str) -> None:
        self.flush()  # what is asked now must be there
        step = run.parent_step
        at = 1 if step is None or step < 0 else self._store.position_of_step(parent, step)
        self._store.fork(
            parent,
            at=at,
            run_id=run.run_id,
            intervention=run.intervention,
            source_id=run.source_id,
            attempt=run.attempt,
        )

    def _keep(self, texts: Iterable[Packed]) -> None:
        for text in texts:
            if text[0] not in self._texts:
                self._texts[text[0]] = text
                self._size += len(text[3])

    def _append(self, run_id: str, events: Sequence[PreparedEvent], *, caused: bool) -> int:
        store = self._store
        if (tip := store._tips.get(run_id)) is None:
            if len(store._tips) >= KNOWN_TIPS:
                self.flush()  # for the ends of runs will be looked up
                store._tips.clear()
            tip = find_tip(store, run_id)
        for event in events:
            row = row_of_prepared(store, tip, event, (tip.pos or None) if caused else None)
            tip = Tip(row[0], row[1], row[7], row[8])
            self._rows.append(row)
        store._tips[run_id] = tip
        if len(self._rows) >= _WAITING or self._size >= _WAITING_BYTES:
            self.flush()
        return tip.pos

    def flush(self) -> None:
        """Insert what waits."""
        with translated(self._store.path):
            if self._texts:
                self._store._blobs.keep_packed(self._texts.values())
            if self._rows:
                insert_rows(self._store, self._rows)
        self._drop()

    def _drop(self) -> None:
        self._texts.clear()
        self._rows.clear()
        self._size = 0
