"""The shipped queries: SQL files that say what they read, what they give, and what may be set."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sag_research.errors import UsageError
from sag_research.warehouse.corpus._layout import TABLES, columns

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Query", "queries", "query"]

_INPUT: Final = re.compile(r"(\w+)\(([^)]*)\)")
_OUTPUT: Final = re.compile(r"(\w+) (VARCHAR|BIGINT|DOUBLE)")
_PARAMETER: Final = re.compile(r"(\w+) BIGINT = (-?\d+)")
_ARROW: Final = {"VARCHAR": "string", "BIGINT": "int64", "DOUBLE": "float64"}


class Query(NamedTuple):
    """A query over a corpus, in DuckDB's SQL.

    Attributes
    ----------
    name, meaning, text : str
    inputs : dict of str to tuple of str
        The columns that are read, by table.
    outputs : dict of str to str
        SQL type of each column that is given, in order.
    parameters : dict of str to int
        What may be set, and what it is otherwise.
    """

    name: str
    meaning: str
    text: str
    inputs: dict[str, tuple[str, ...]]
    outputs: dict[str, str]
    parameters: dict[str, int]

    def __repr__(self) -> str:
        return f"Query({self.name!r}: {', '.join(self.outputs)})"

    def settings(self, given: Mapping[str, int]) -> dict[str, int]:
        """Return all parameters with their values.

        Raises
        ------
        UsageError
            If a parameter is unknown, or no whole number.
        """
        known = ", ".join(self.parameters) or "none"
        for name, value in given.items():
            if name not in self.parameters:
                raise UsageError(
                    f"{self.name} has no parameter {name!r}", fix=f"its parameters: {known}"
                )
            if type(value) is not int:
                raise UsageError(f"{name}={value!r} is no whole number", fix="give an int")
        return {**self.parameters, **given}

    def schema(self) -> pa.Schema:
        """Return the Arrow schema of its rows."""
        import pyarrow as pa

        types = {name: pa.type_for_alias(_ARROW[type_]) for name, type_ in self.outputs.items()}
        return pa.schema(list(types.items()))


def queries() -> list[str]:
    """Return the names of the shipped queries."""
    folder = files(__package__).joinpath("sql")
    return sorted(one.name.removesuffix(".sql") for one in folder.iterdir() if _is_sql(one.name))


def _is_sql(name: str) -> bool:
    return name.endswith(".sql")


@cache
def query(name: str) -> Query:
    """Return a shipped query by its name.

    Raises
    ------
    UsageError
        If there is none.

    Examples
    --------
    >>> query("tools").outputs
    {'tool': 'VARCHAR', 'n_steps': 'BIGINT', 'n_runs': 'BIGINT', 'n_coded': 'BIGINT', \
'n_not_zero': 'BIGINT'}
    """
    if name not in queries():
        raise UsageError(f"no query {name!r}", fix=f"one of {', '.join(queries())}")
    text = files(__package__).joinpath(f"sql/{name}.sql").read_text(encoding="utf-8")
    return parsed(name, text)


def parsed(name: str, text: str) -> Query:
    """Read the head of a query.

    Raises
    ------
    UsageError
        If it does not say what it reads and gives.
    """
    head = [line[3:] for line in text.splitlines() if line.startswith("-- ")]
    told: dict[str, str] = {"in": "", "out": "", "with": ""}
    meaning = []
    for line in head:
        key, _, rest = line.partition(": ")
        if key in told:
            told[key] = f"{told[key]}, {rest}" if told[key] else rest
        else:
            meaning.append(line)
    inputs = {
        table: tuple(one.strip() for one in names.split(","))
        for table, names in _INPUT.findall(told["in"])
    }
    outputs = dict(_OUTPUT.findall(told["out"]))
    _check(name, inputs, outputs)
    parameters = {one: int(value) for one, value in _PARAMETER.findall(told["with"])}
    return Query(
        name, " ".join(meaning).removeprefix(f"{name}: "), text, inputs, outputs, parameters
    )


def _check(name: str, inputs: Mapping[str, tuple[str, ...]], outputs: Mapping[str, Any]) -> None:
    if not inputs or not outputs:
        raise UsageError(f"query {name} does not say what it reads and gives", fix="-- in: -- out:")
    for table, wanted in inputs.items():
        known = {one.name for one in columns(table)} if table in TABLES else set()
        if missing := set(wanted) - known:
            raise UsageError(f"query {name} reads {table}({min(missing)}), which no corpus has")
