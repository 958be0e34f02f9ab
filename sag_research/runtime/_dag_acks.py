"""Which items of a scatter are done, so that a run that goes on does not do them again."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from sag_research._text import said
from sag_research.errors import BadPayloadError, UsageError
from sag_research.log import SQLiteEventStore, canonical_digest
from sag_research.model import Event
from sag_research.runtime._dag_gather import ItemRecord

__all__ = ["Acks", "Known", "LogAcks", "MemoryAcks", "done_items", "mark_of"]

BEGAN: Final = "scatter.began"
ACKED: Final = "scatter.acked"


class Acks(Protocol):
    """Where the records of done items are kept; may be called from several threads.

    A run that goes on asks for what is kept; any other begins its scatters anew.
    """

    def begin(self, scatter: str) -> object:
        """Forget what is kept of a scatter, if anything: it begins anew."""
        ...

    def load(self, scatter: str) -> Mapping[int, ItemRecord]:
        """Return the records of a scatter by index."""
        ...

    def save(self, scatter: str, record: ItemRecord) -> object:
        """Keep a record. The item counts as done from then on."""
        ...


class MemoryAcks:
    """Records in memory, for a run that goes on in the same process."""

    def __init__(self) -> None:
        self._kept: dict[str, dict[int, ItemRecord]] = {}
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"MemoryAcks({sum(map(len, self._kept.values()))} items)"

    def begin(self, scatter: str) -> None:
        """Forget what is kept of a scatter."""
        with self._lock:
            self._kept.pop(scatter, None)

    def load(self, scatter: str) -> Mapping[int, ItemRecord]:
        """Return the records of a scatter by index."""
        with self._lock:
            return dict(self._kept.get(scatter, {}))

    def save(self, scatter: str, record: ItemRecord) -> None:
        """Keep a record."""
        with self._lock:
            self._kept.setdefault(scatter, {})[record.index] = record


class LogAcks:
    """Records as events ``scatter.began`` and ``scatter.acked`` of a run in the log.

    Parameters
    ----------
    store : SQLiteEventStore
    run_id : str

    Notes
    -----
    Items, and what bodies return and write, must be plain JSON data, and come back as such:
    tuples as lists.
    """

    def __init__(self, store: SQLiteEventStore, run_id: str) -> None:
        self._store, self._run_id = store, run_id
        self._found: MemoryAcks | None = None
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"LogAcks({self._run_id!r})"

    def begin(self, scatter: str) -> None:
        """Write down that a scatter begins anew."""
        self._append(BEGAN, {"scatter": scatter})
        if self._found is not None:
            self._found.begin(scatter)

    def load(self, scatter: str) -> Mapping[int, ItemRecord]:
        """Return the records of a scatter in the run's lineage, by index."""
        with self._lock:
            if self._found is None:  # the log is gone through once, whatever is asked for later
                self._found = self._read()
        return self._found.load(scatter)

    def save(self, scatter: str, record: ItemRecord) -> None:
        """Append a record.

        Raises
        ------
        UsageError
            If it is no plain JSON data.
        """
        try:
            self._append(ACKED, {"scatter": scatter, "record": msgspec.to_builtins(record)})
        except (TypeError, BadPayloadError) as error:
            raise UsageError(
                f"what became of item {record.index} cannot be written down", why=said(error),
                fix="return and write plain JSON data, or give acks=MemoryAcks()",
            ) from error  # fmt: skip
        if self._found is not None:
            self._found.save(scatter, record)

    def _read(self) -> MemoryAcks:
        found = MemoryAcks()
        if self._store.has_run(self._run_id):
            for event in self._store.read(self._run_id, types=(BEGAN, ACKED)):
                if event.type == BEGAN:
                    found.begin(event.payload["scatter"])
                else:
                    record = msgspec.convert(event.payload["record"], ItemRecord)
                    found.save(event.payload["scatter"], record)
        return found

    def _append(self, type_: str, payload: dict[str, Any]) -> None:
        event = Event(run_id=self._run_id, type=type_, payload=payload, actor="runtime")
        self._store.append(event)


def mark_of(item: Any) -> str:
    """Return the digest of an item, empty where it is no plain JSON data.

    Examples
    --------
    >>> mark_of(("a", 1)) == mark_of(["a", 1]) != mark_of(["a", 2])
    True
    >>> mark_of(object())
    ''
    """
    try:
        return canonical_digest({"item": item})
    except BadPayloadError:
        return ""


class Known(NamedTuple):
    """What is known of an item that is done."""

    mark: str
    item: Any
    is_kept: bool
    """Whether the item itself is there."""

    def is_same(self, item: Any) -> bool:
        """Tell whether this is the item, which may have been through the log."""
        if self.is_kept:
            return bool(self.item == item) or "" != mark_of(item) == mark_of(self.item)
        return self.mark in ("", mark_of(item))


def done_items(records: Iterable[ItemRecord]) -> dict[int, Known]:
    """Return what is known of the items that are done, by their number."""
    known: dict[int, Known] = {}
    for record in records:
        numbers = record.members or (record.index,)
        items = record.item if record.members else [record.item]
        if record.marks:
            known.update(zip(numbers, (Known(m, None, False) for m in record.marks), strict=True))
        else:
            known.update(zip(numbers, (Known("", item, True) for item in items), strict=True))
    return known
