"""SQL as it is written in a cell: its parameters, and where in it an error stands."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sag_research._text import clip, visible
from sag_research.errors import UsageError

if TYPE_CHECKING:
    import duckdb

__all__ = ["Place", "bind", "place_of", "spell_parameters"]

_VALUES: Final = frozenset({"identifier", "numeric_const", "string_const"})
_CLOSING: Final = frozenset({")", "]", "}"})
_CARET: Final = re.compile(r"^LINE (\d+): (.*)\n( *)\^", re.MULTILINE)
_CUT: Final = "..."
_EXCERPT: Final = 60


class Token(NamedTuple):
    """A word of a query: where it begins (bytes), what it is, and its text."""

    at: int
    kind: str
    text: str


class Place(NamedTuple):
    """Where in a query an error stands; both are counted from 1."""

    line: int
    column: int
    text: str
    """The query's text from there to the end of the line, shortened."""

    def __str__(self) -> str:
        return f"line {self.line}, column {self.column}: {self.text}"


def spell_parameters(query: str) -> tuple[str, list[str]]:
    """Find the named parameters of a query, written ``$name`` or ``:name``.

    Strings, comments, casts (``::int``), slices (``a[1:n]``) and structs (``{'k':v}``) are left
    alone.

    Returns
    -------
    query : str
        With every parameter written ``$name``, as DuckDB has it; places stay as they are.
    names : list of str
        In order of their first use.

    Examples
    --------
    >>> spell_parameters("SELECT ':a', b::int FROM t WHERE c = :d AND e < $f LIMIT :d")
    ("SELECT ':a', b::int FROM t WHERE c = $d AND e < $f LIMIT $d", ['d', 'f'])
    """
    spelt = bytearray(query.encode("utf-8", "replace"))
    names: dict[str, None] = {}
    before: Token | None = None
    for mark, word in pairwise(_tokens(bytes(spelt))):
        if _begins_a_parameter(before, mark, word):
            spelt[mark.at] = ord("$")
            names[word.text.strip()] = None
        before = mark
    return spelt.decode("utf-8"), list(names)


def _tokens(query: bytes) -> list[Token]:
    import duckdb

    found = duckdb.tokenize(query.decode("utf-8"))
    ends = [*[at for at, _ in found[1:]], len(query)][: len(found)]
    return [
        Token(at, kind.name, query[at:end].decode("utf-8", "replace"))
        for (at, kind), end in zip(found, ends, strict=True)
    ]


def _begins_a_parameter(before: Token | None, mark: Token, word: Token) -> bool:
    if mark.text not in (":", "$") or word.kind not in ("identifier", "keyword"):
        return False
    if mark.text == "$" or before is None:
        return True
    # after a value a colon divides: a slice, a struct's field, a name before its expression
    divides = before.kind in _VALUES or before.text.strip() in _CLOSING
    return not divides and before.text.strip() != "["


def bind(names: Sequence[str], namespace: Mapping[str, Any]) -> dict[str, Any]:
    """Look parameters up among variables, as values that DuckDB takes.

    Raises
    ------
    UsageError
        If there is no such variable.

    Examples
    --------
    >>> import numpy as np
    >>> bind(["least", "kinds"], {"least": np.int64(3), "kinds": {"b", "a"}, "other": None})
    {'least': 3, 'kinds': ['a', 'b']}
    """
    if missing := [name for name in names if name not in namespace]:
        listed = ", ".join(missing)
        raise UsageError(f"no variable {listed}", fix="give it a value in a cell before")
    return {name: _plain(namespace[name]) for name in names}


def _plain(value: Any) -> Any:
    """Turn numpy's numbers, arrays, series and sets into plain numbers and lists."""
    if isinstance(value, set | frozenset):
        return sorted(value, key=repr)
    if type(value).__module__.partition(".")[0] in ("numpy", "pandas", "polars", "pyarrow"):
        for name in ("tolist", "to_list", "to_pylist", "as_py"):
            if callable(convert := getattr(value, name, None)):
                return convert()
    return value


def place_of(
    connection: duckdb.DuckDBPyConnection, query: str, parameters: Mapping[str, Any]
) -> Place | None:
    """Find where the error of a refused query stands, by having it planned; it is not run.

    Returns
    -------
    Place or None
        None where DuckDB does not say, as for errors that depend on the data.
    """
    import duckdb

    with connection.cursor() as cursor:
        try:
            if len(cursor.extract_statements(query)) != 1:
                return None  # EXPLAIN covers the first; the others would be run
            cursor.execute(f"EXPLAIN\n{query}", parameters)
        except duckdb.Error as error:
            return _place(str(error), query)
    return None


def _place(message: str, query: str) -> Place | None:
    found = _CARET.search(message)
    lines = query.splitlines()
    if found is None:
        return None
    # the parser sees the query alone, the planner behind the line with EXPLAIN
    for number in (int(found[1]) - 1, int(found[1])):
        column = len(found[3]) - len(f"LINE {found[1]}: ")
        excerpt = found[2]
        if excerpt.startswith(_CUT):
            excerpt, column = excerpt[len(_CUT) :], column - len(_CUT)
        excerpt = excerpt.removesuffix(_CUT)
        start = lines[number - 1].find(excerpt) if 1 <= number <= len(lines) else -1
        if start >= 0 and excerpt:
            text = lines[number - 1][start + column :]
            return Place(number, start + column + 1, visible(clip(text, _EXCERPT)))
    return None
