"""The projected tables: their columns, and how they are laid out in Parquet.

Each event of the log gives rows in some of these tables. They hold what the views need and
nothing that can be computed from them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

__all__ = [
    "BASE_TABLES",
    "DICTIONARY",
    "MENTION_TABLES",
    "PROJECTION",
    "SCHEMAS",
    "SORT",
    "to_table",
]

PROJECTION: Final = "4"
"""Version of this projection: another one makes the warehouse be built again."""

_text: Final = pa.large_string()
_name: Final = pa.string()

_EVENT: Final = [("seq", pa.int64()), ("run_id", _name), ("position", pa.int64())]
_MENTION: Final = [*_EVENT, ("step", pa.int64())]


def _schema(head: Sequence[tuple[str, Any]], *rest: tuple[str, Any]) -> pa.Schema:
    return pa.schema([*head, *rest])


SCHEMAS: Final[dict[str, pa.Schema]] = {
    "events": _schema(
        _EVENT,
        ("type", _name), ("actor", _name), ("ts", pa.timestamp("us")), ("cause", pa.int64()),
        ("frame", _name), ("body", _text), ("digest", pa.binary()),
    ),
    "steps": _schema(
        _MENTION,
        ("thought", _text), ("action", _text), ("observation", _text), ("n_calls", pa.int32()),
        ("tool", _name), ("exit_code", pa.int32()), ("seconds", pa.float64()),
        ("tokens_in", pa.int64()), ("tokens_out", pa.int64()), ("cost_usd", pa.float64()),
        ("started_at", pa.timestamp("us")), ("inherited", pa.bool_()), ("flags", pa.list_(_name)),
        # a step's only call is kept here where its texts are the step's own, as they mostly are
        ("one_call", pa.bool_()), ("call_id", _name), ("call_arguments", _text),
        ("call_status", _name),
    ),
    "calls": _schema(
        _MENTION,
        ("call", pa.int32()), ("id", _name), ("name", _name), ("arguments", _text),
        ("text", _text), ("observation", _text), ("status", _name), ("exit_code", pa.int32()),
    ),
    "run_rows": _schema(
        _EVENT,
        ("kind", _name), ("goal", _text), ("task_id", _name), ("dataset", _name), ("repo", _name),
        ("agent", _name), ("model", _name), ("label", _name), ("attempt", pa.int64()),
        ("source_id", _name), ("created_at", pa.timestamp("us")), ("parent_id", _name),
        ("fork_position", pa.int64()),
    ),
    "end_rows": _schema(
        _EVENT,
        ("type", _name), ("ts", pa.timestamp("us")), ("exit_status", _name),
        ("tokens_in", pa.int64()), ("tokens_out", pa.int64()), ("cost_usd", pa.float64()),
    ),
    "outcome_rows": _schema(
        _EVENT,
        ("subject", _name), ("outcome", _name), ("detail", _name), ("score", pa.float64()),
        ("source", _name), ("known_at_step", pa.int64()),
    ),
    "source_rows": _schema(
        _EVENT,
        ("source_id", _name), ("path", _name), ("root", _name), ("digest", _name),
        ("bytes", pa.int64()), ("format", _name), ("format_version", _name), ("status", _name),
        ("reason", _name), ("n_runs", pa.int64()), ("n_steps", pa.int64()),
    ),
    "mentions": _schema(
        _MENTION,
        ("field", _name), ("start", pa.int32()), ("end", pa.int32()), ("kind", _name),
        ("scope", _name), ("name", _name), ("role", _name), ("rule", _name), ("version", _name),
    ),
    "relations": _schema(
        _MENTION,
        ("source_kind", _name), ("source_scope", _name), ("source_name", _name), ("type", _name),
        ("target_kind", _name), ("target_scope", _name), ("target_name", _name), ("rule", _name),
        ("version", _name),
    ),
}  # fmt: skip

BASE_TABLES: Final = (
    "events", "steps", "calls", "run_rows", "end_rows", "outcome_rows", "source_rows",
)  # fmt: skip
MENTION_TABLES: Final = ("mentions", "relations")

_SORT_MORE: Final = {
    "calls": ("call",),
    "mentions": ("field", "start", "end", "rule", "kind", "name", "scope", "role"),
    "relations": (
        "source_kind", "source_scope", "source_name", "type", "target_kind", "target_scope",
        "target_name", "rule",
    ),
}  # fmt: skip
SORT: Final[dict[str, list[tuple[str, str]]]] = {
    table: [(column, "ascending") for column in ("run_id", "position", *_SORT_MORE.get(table, ()))]
    for table in SCHEMAS
}
"""The order of rows in a file; it is total, so the same rows give the same bytes."""

DICTIONARY: Final = frozenset(
    {
        "run_id", "type", "actor", "frame", "tool", "flags", "name", "status", "kind", "task_id",
        "dataset", "repo", "agent", "model", "exit_status", "outcome", "source", "format",
        "call_status", "field", "scope", "role", "rule", "version", "source_kind", "source_scope",
        "source_name", "target_kind", "target_scope", "target_name",
    }
)  # fmt: skip
"""Columns that repeat few values."""


def to_table(name: str, rows: Sequence[Sequence[Any]]) -> pa.Table:
    """Make an Arrow table of a projected table from at least one row."""
    schema = SCHEMAS[name]
    columns = zip(*rows, strict=True)
    arrays = [pa.array(column, field.type) for field, column in zip(schema, columns, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)
