"""A query's answer as a cell shows it: short, and saying so where rows are left out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from sag_research._text import clip, html_table, visible
from sag_research.warehouse import QueryResult

__all__ = ["SHOWN", "Table"]

SHOWN: Final = 20
_WIDEST: Final = 44


class Table(QueryResult):
    """A :class:`~sag_research.warehouse.QueryResult` that shows its first rows as a table.

    Parameters
    ----------
    result : QueryResult
    shown : int
        How many rows to show; 0 shows all of them. ``.df()`` has them all in any case.
    widest : int
        Characters of a cell that are shown.

    Examples
    --------
    >>> import sag_research as sag
    >>> Table(sag.open(":memory:").sql("SELECT range AS n FROM range(3)"), shown=2)
    n
    -
    0
    1
    2 of 3 rows shown; --rows 0 shows all
    """

    def __init__(self, result: QueryResult, shown: int = SHOWN, widest: int = _WIDEST) -> None:
        super().__init__(result.arrow())
        self._shown = shown or len(self)
        self._widest = widest

    def __repr__(self) -> str:
        if not self.columns:
            return "no rows: the statement gives none"
        rows = [["" if v is None else self._cell(v) for v in row] for row in self._top()]
        lines = list(_lines([self._cell(name) for name in self.columns], rows))
        if len(rows) < len(self):
            lines.append(f"{len(rows):,} of {len(self):,} rows shown; --rows 0 shows all")
        elif not rows:
            lines.append("no rows")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return html_table(self.columns, [list(row) for row in self._top()], total=len(self))

    def _cell(self, value: object) -> str:
        return visible(clip(value, self._widest))

    def _top(self) -> list[tuple[Any, ...]]:
        return QueryResult(self.arrow().slice(0, self._shown)).rows()


def _lines(names: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(names, *rows, strict=True)]
    for row in (names, ["-" * width for width in widths], *rows):
        padded = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield "  ".join(padded).rstrip()
