"""Files of a graph as Neo4j's importer reads them: a header with types, a row a node or edge."""

from __future__ import annotations

import datetime as dt
import math
import tomllib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from sag_research._text import REPLACEMENT, atomic_write, repair
from sag_research.exchange._traces import utc

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Table", "opened_table", "table_names"]

_AT_ONCE: Final = 500
"""Rows that are Python values at once."""


class Table:
    """One file while it is written.

    Attributes
    ----------
    rows : int
        Rows written, without the header.
    longest : int
        Bytes of the longest row.
    replaced : int
        Characters that no text can hold, replaced by U+FFFD.
    broken : bool
        Whether a text has a line break in it.
    """

    def __init__(self, file: IO[bytes], columns: dict[str, str], kind: str | None) -> None:
        self._file = file
        self._columns = list(columns)
        self._kind = () if kind is None else (kind,)
        self.rows = self.longest = self.replaced = 0
        self.broken = False
        last = (
            () if kind is None else (":LABEL" if ":ID(" in "".join(columns.values()) else ":TYPE",)
        )
        self._put(",".join((*columns.values(), *last)))

    def copy(self, answer: pa.Table) -> None:
        """Write the columns of an answer that the file has."""
        for batch in answer.select(self._columns).to_batches(max_chunksize=_AT_ONCE):
            self.extend(zip(*(column.to_pylist() for column in batch.columns), strict=True))

    def extend(self, rows: Iterable[Iterable[Any]]) -> None:
        """Write rows, their values in the order of the columns."""
        for row in rows:
            self._put(",".join([self._cell(value) for value in (*row, *self._kind)]))
            self.rows += 1

    def _put(self, line: str) -> None:
        written = self._file.write(f"{line}\n".encode())
        self.longest = max(self.longest, written)

    def _cell(self, value: Any) -> str:
        """Write a value: texts in quotes, so that an empty one is not taken for a missing one."""
        if isinstance(value, str):
            clean = repair(value)
            self.replaced += clean.count(REPLACEMENT) - value.count(REPLACEMENT)
            self.broken = self.broken or "\n" in clean or "\r" in clean
            return '"' + clean.replace('"', '""') + '"'
        if value is None:
            return ""
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, dt.datetime):
            return utc(value)
        if isinstance(value, float) and not math.isfinite(value):
            return "NaN" if math.isnan(value) else f"{'-' if value < 0 else ''}Infinity"
        return str(value)


def table_names() -> dict[str, dict[str, Any]]:
    """Return what the files are: name, columns of the query, and what the importer calls them."""
    text = files("sag_research.exchange").joinpath("cypher_tables.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


@contextmanager
def opened_table(folder: Path, about: dict[str, Any]) -> Iterator[Table]:
    """Open a file to be written whole or not at all."""
    with atomic_write(folder / f"{about['file']}.csv") as file:
        yield Table(file, about["columns"], about.get("kind"))
