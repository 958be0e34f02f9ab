"""The answer to a query, held whole so that it does not change while the log grows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sag_research._text import clip, html_table

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

__all__ = ["QueryResult"]

_SHOWN = 20


class QueryResult:
    """Rows and columns that a query gave.

    Attributes
    ----------
    columns : list of str
    """

    def __init__(self, table: pa.Table) -> None:
        self._table = _whole_numbers(table.rename_columns(_distinct(table.column_names)))
        self.columns: list[str] = list(self._table.column_names)

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def __repr__(self) -> str:
        return f"QueryResult({len(self)} rows: {clip(', '.join(self.columns), 100)})"

    def _repr_html_(self) -> str:
        rows = [list(row) for row in self._head(_SHOWN)]
        return html_table(self.columns, rows, total=len(self))

    def _head(self, n: int) -> list[tuple[Any, ...]]:
        return _tuples(self._table.slice(0, n))

    def rows(self) -> list[tuple[Any, ...]]:
        """Return all rows as tuples of Python values."""
        return _tuples(self._table)

    def df(self) -> pd.DataFrame:
        """Return a pandas DataFrame."""
        frame: pd.DataFrame = self._table.to_pandas()
        return frame

    def arrow(self) -> pa.Table:
        """Return the pyarrow Table itself."""
        return self._table

    def pl(self) -> pl.DataFrame:
        """Return a polars DataFrame."""
        import polars

        frame = polars.from_arrow(self._table)
        if not isinstance(frame, polars.DataFrame):
            raise TypeError(type(frame))
        return frame


def _distinct(names: Sequence[str]) -> list[str]:
    """Number the names that a query gave twice, as in ``a, a_1``: not all libraries take both."""
    taken: set[str] = set(names)
    seen: set[str] = set()
    result = []
    for name in names:
        free = name
        number = 1
        while free in seen or (free != name and free in taken):
            free = f"{name}_{number}"
            number += 1
        seen.add(free)
        result.append(free)
    return result


def _whole_numbers(table: pa.Table) -> pa.Table:
    """Turn DuckDB's 128-bit sums of integers into 64-bit integers where they fit."""
    import pyarrow as pa

    huge = pa.decimal128(38, 0)
    for number, field in enumerate(table.schema):
        if field.type == huge:
            try:
                column = table.column(number).cast(pa.int64())
            except pa.ArrowInvalid:
                continue  # beyond 64 bits: left exact
            table = table.set_column(number, field.name, column)
    return table


def _tuples(table: pa.Table) -> list[tuple[Any, ...]]:
    if not table.num_columns:
        return [()] * table.num_rows
    return list(zip(*(_values(column) for column in table.columns), strict=True))


def _values(column: Any) -> list[Any]:
    try:
        values: list[Any] = column.to_pylist()
    except (OverflowError, ValueError):  # a time before the year 1 or after 9999
        import pyarrow as pa

        values = column.cast(pa.string()).to_pylist()
    return values
