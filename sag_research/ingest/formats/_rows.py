"""Rows of data sets, one run each, from Parquet, JSON lines, a JSON list or one JSON object."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar

import msgspec

from sag_research.errors import FormatError
from sag_research.ingest._format import Reading
from sag_research.ingest._json import Other, decode, first_character, loads, outline, shaped
from sag_research.ingest._source import Source
from sag_research.ingest.formats import _shared as shared
from sag_research.ingest.formats._parquet import (
    Columns,
    columns_of,
    is_parquet,
    structs,
    table_rows,
)
from sag_research.model import Outcome, OutcomeName, Trajectory

__all__ = ["Listed", "Rows", "columns_seen", "judged", "listed", "named"]

R = TypeVar("R", bound=msgspec.Struct)
M = TypeVar("M", bound=msgspec.Struct)

Listed: TypeAlias = dict[str, Any] | str | int | float | bool | None
"""What may stand where a list of messages is expected; text may be a list as JSON."""

_LOOKED_IN: Final = 2**20
_LOOKED_AT: Final = 5
"""Lines in which a format is looked for."""


def columns_seen(head: bytes, path: Path) -> tuple[tuple[Columns, bool], ...]:
    """Return what the beginning shows of rows: columns with fields, and if these are all columns.

    Of a list the first object counts, of JSON lines each of the first few.
    """
    if not is_parquet(head):
        return _columns_of_json(head)
    found = columns_of(head, path)
    return () if found is None else ((found, True),)


def _columns_of_json(head: bytes) -> tuple[tuple[Columns, bool], ...]:
    seen = outline(head)
    found = [(seen.keys, seen.complete or seen.root == "list")] if seen.root else []
    if seen.root == "object" and (seen.more or not seen.complete):
        for line in filter(None, head[:_LOOKED_IN].split(b"\n", _LOOKED_AT)[1:_LOOKED_AT]):
            later = outline(line)
            if later.root == "object":
                found.append((later.keys, later.complete))
    return tuple(found)


class Rows(Generic[R]):
    """How the rows of a data set are read.

    Parameters
    ----------
    row : type of msgspec.Struct
        A row, whose fields are the columns that are read; each has None as its default.
    messages : str
        The column with the messages.
    message : type of msgspec.Struct
        A message, whose fields are those that are read.
    """

    def __init__(self, row: type[R], messages: str, message: type[msgspec.Struct]) -> None:
        self._row = row
        self._decoder = msgspec.json.Decoder(row)
        self._items = msgspec.json.Decoder(list[msgspec.Raw])
        fields = message.__struct_fields__
        self._wanted = dict.fromkeys(row.__struct_fields__, frozenset[str]())
        self._wanted[messages] = frozenset(fields)
        self._convert = {messages: structs(message, fields)}

    def read(self, source: Source, make: Callable[[int, R, list[str]], Trajectory]) -> Reading:
        """Read a source; a row that cannot be read costs that row.

        Parameters
        ----------
        source : Source
        make : callable
            Makes a run of a row's number (from 0) and the row, and adds to its notes; raises
            FormatError if there is none in it.

        Raises
        ------
        FormatError
            If the source as a whole cannot be read; also while it is iterated over.
        """
        notes: list[str] = []
        refused: list[tuple[str, str]] = []
        if is_parquet(source.head):
            version, rows = "parquet", self._table(source, refused)
        else:
            version, rows = "json", self._json(source, refused)
        return Reading(version, _runs(rows, make, notes, refused), notes, refused)

    def _table(self, source: Source, refused: list[tuple[str, str]]) -> Iterator[_Row[R]]:
        found = table_rows(source, self._wanted, self._convert, refused)
        for number, columns in found:
            yield _Row(number, f"row {number}", self._row(*columns))

    def _json(self, source: Source, refused: list[tuple[str, str]]) -> Iterator[_Row[R]]:
        if first_character(source.head) == b"[":
            try:
                items = self._items_of(source.bytes())
            except FormatError as error:
                yield from self._lines(source, refused, error)
            else:
                yield from self._list(items, refused)
        elif _is_one(source):
            try:
                alone = decode(source.bytes(), self._decoder)
            except FormatError as error:
                yield from self._lines(source, refused, error)
            else:
                yield _Row(0, "line 1", alone)
        else:
            yield from self._lines(source, refused, None)

    def _lines(
        self, source: Source, refused: list[tuple[str, str]], fault: FormatError | None
    ) -> Iterator[_Row[R]]:
        """Yield the lines' rows; a fault that the source has as one value is raised if none is."""
        found = False
        for number, line in enumerate(source.lines()):
            if not line.strip():
                continue
            try:
                row = decode(line, self._decoder)
            except FormatError as error:
                refused.append((f"line {number + 1}", str(error)))
            else:
                found = True
                yield _Row(number, f"line {number + 1}", row)
        if fault is not None and not found:
            refused.clear()
            raise fault

    def _items_of(self, data: bytes) -> list[Any]:
        try:
            return [*decode(data, self._items)]
        except FormatError:  # of another shape, if it is JSON: texts that only loads can read
            found = loads(data)
            return found if isinstance(found, list) else []

    def _list(self, items: list[Any], refused: list[tuple[str, str]]) -> Iterator[_Row[R]]:
        for number, item in enumerate(items):
            raw = isinstance(item, msgspec.Raw)
            try:
                row = decode(bytes(item), self._decoder) if raw else shaped(item, self._decoder)
            except FormatError as error:
                refused.append((f"row {number}", str(error)))
            else:
                yield _Row(number, f"row {number}", row)


class _Row(NamedTuple, Generic[R]):
    number: int
    where: str
    row: R


def _runs(
    rows: Iterator[_Row[R]],
    make: Callable[[int, R, list[str]], Trajectory],
    notes: list[str],
    refused: list[tuple[str, str]],
) -> Iterator[Trajectory]:
    for number, where, row in rows:
        told: list[str] = []
        try:
            run = make(number, row, told)
        except FormatError as error:
            refused.append((where, str(error)))
        else:
            yield run
            notes += [f"{where}: {note}" for note in told]


def _is_one(source: Source) -> bool:
    """Tell one object from JSON lines: it ends with the source, or goes over several lines."""
    seen = outline(source.head)
    if seen.complete:
        return not seen.more and source.size <= len(source.head)
    return b"\n" in source.head.strip()


def listed(
    messages: list[M | Other] | Listed,
    decoder: msgspec.json.Decoder[list[M | Other]],
    kind: type[M],
    notes: list[str],
) -> list[M]:
    """Return the messages of a row, which may be a list or a list as JSON.

    Raises
    ------
    FormatError
        If there are none, or they are something else.
    """
    if isinstance(messages, str):
        messages = decode(messages.encode("utf-8", "surrogatepass"), decoder)
    if messages is None:
        raise FormatError("no messages")
    if not isinstance(messages, list):
        raise FormatError("its messages are no list")
    found = [one for one in messages if isinstance(one, kind)]
    if left := len(messages) - len(found):
        what = "message is no object and was" if left == 1 else "messages are no objects and were"
        notes.append(f"{left} {what} left out")
    return found


def named(value: Any) -> str:
    """Return the task that a row names.

    Raises
    ------
    FormatError
        If it names none.
    """
    found = shared.word(value)
    if found is None and shared.integer(value) is not None:
        found = str(value)
    if found is None:
        raise FormatError("names no task")
    return found


_TRUE: Final = ("true", "1", "yes")
_FALSE: Final = ("false", "0", "no")


def judged(value: Any, patch: Any, source: str, notes: list[str]) -> Outcome | None:
    """Return the outcome that a label says: ``True``, 0 or 1; None if there is no label.

    An empty patch of a run that failed is said in detail; whether one that is null was empty is
    not known.

    Examples
    --------
    >>> judged(0, "", "set resolved", []).detail, judged(None, "", "set resolved", [])
    ('empty', None)
    """
    said = value.strip().lower() if isinstance(value, str) else value
    outcome: OutcomeName
    if said is None or said == "":
        return None
    if said in (True, *_TRUE):
        outcome = "success"
    elif said in (False, *_FALSE):
        outcome = "failure"
    else:
        notes.append("its label says neither yes nor no and was left out")
        return None
    empty = outcome == "failure" and isinstance(patch, str) and not patch.strip()
    return Outcome(outcome=outcome, detail="empty" if empty else None, source=source)
