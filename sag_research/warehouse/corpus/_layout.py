"""What a corpus is made of: tables, columns and types, as they stand in ``tables.toml``."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["TABLES", "Column", "columns", "empty", "schema"]

TABLES: Final = ("runs", "steps", "tokens", "mentions")


class Column(NamedTuple):
    """A column of a corpus table."""

    name: str
    type: str
    meaning: str


@cache
def columns(table: str) -> tuple[Column, ...]:
    """Return the columns of a table, in their order."""
    text = files(__package__).joinpath("tables.toml").read_text(encoding="utf-8")
    told = tomllib.loads(text)[table]["columns"]
    return tuple(Column(name, type_, meaning) for name, (type_, meaning) in told.items())


@cache
def schema(table: str) -> pa.Schema:
    """Return the Arrow schema of a table."""
    import pyarrow as pa

    return pa.schema([(one.name, pa.type_for_alias(one.type)) for one in columns(table)])


def empty(table: str) -> pa.Table:
    """Return a table without rows."""
    return schema(table).empty_table()
