"""A refused query in our words: what DuckDB said, and where the column stands that it lacks."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any, Final

import duckdb

from sag_research.errors import QueryError

__all__ = ["first_lines", "meanings", "query_error"]

_NO_COLUMN: Final = re.compile(
    r'column "(?P<one>[^"]+)" not found'
    r'|does not have a column named "(?P<two>[^"]+)"'
    r'|USING[^"]*column "(?P<three>[^"]+)"'
)


def meanings() -> Mapping[str, Any]:
    """Return what each view and each of its columns means."""
    text = files("sag_research.warehouse").joinpath("schema.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def first_lines(error: duckdb.Error) -> str:
    """Return the start of what DuckDB said."""
    return " ".join([line for line in str(error).splitlines() if line.strip()][:2])


def query_error(error: duckdb.Error, views: Sequence[str]) -> QueryError:
    """Say what is wrong with a query, and where to look."""
    fix = f"the views are {', '.join(views)}; see `sag schema`"
    if found := _NO_COLUMN.search(str(error)):
        column = next(filter(None, found.groups())).lower()
        if having := _views_with(column, views):
            fix = f"{column} is a column of {', '.join(having)}: see `sag schema {having[0]}`"
        else:
            fix = f"no view has a column {column}: see `sag schema`"
    return QueryError("DuckDB refused the query", why=first_lines(error), fix=fix)


def _views_with(column: str, views: Sequence[str]) -> list[str]:
    about = meanings()
    columns = {name: about[name].keys() for name in views}
    columns["steps_all"] = columns["steps_all"] | columns["steps"]
    return [name for name in views if column and column in columns[name]]
