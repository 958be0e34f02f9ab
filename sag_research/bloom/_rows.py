"""The rows a graph is built from, and how to read them from any table."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, TypeVar

__all__ = ["EntityRow", "EventRow", "MentionRow", "RelationRow", "RunRow", "read_rows"]

Row = TypeVar("Row", bound=tuple[Any, ...])


class RunRow(NamedTuple):
    """A run, or an ancestor whose events it took over."""

    run_id: str
    parent_id: str | None = None
    fork_position: int | None = None
    task_id: str | None = None
    agent: str | None = None
    model: str | None = None
    goal: str | None = None
    outcome: str | None = None
    exit_status: str | None = None
    n_steps: int | None = None


class EventRow(NamedTuple):
    """An event under the run that wrote it; the texts are those of an ``agent.step``."""

    run_id: str
    position: int
    type: str = "agent.step"
    step: int | None = None
    rank: int | None = None
    """1-based number among the chosen events of its lineage: neighbours differ by one."""
    cause: int | None = None
    thought: str | None = None
    action: str | None = None
    observation: str | None = None
    exit_code: int | None = None
    inherited: bool | None = None
    body: str | None = None
    """Payload of an event that is no step, as JSON text."""


class MentionRow(NamedTuple):
    """That an event names an entity, ``n`` times."""

    run_id: str
    position: int
    entity_id: str
    role: str = "PROCESSED"
    n: int = 1
    rule: str | None = None


class RelationRow(NamedTuple):
    """A typed edge between two entities and where it was first read."""

    source_id: str
    type: str
    target_id: str
    run_id: str = ""
    position: int = 0
    rule: str | None = None
    n: int = 1


class EntityRow(NamedTuple):
    """An entity and how many runs of the whole workspace name it."""

    entity_id: str
    kind: str
    scope: str = ""
    name: str = ""
    runs_total: int = 0


def read_rows(row_type: type[Row], table: Any) -> list[Row]:
    """Read a pyarrow table (by column name) or tuples (by order) as rows of one type.

    Columns that the row type does not have are left out.

    Examples
    --------
    >>> read_rows(MentionRow, [("r1", 2, "Error||TimeoutError")])[0].role
    'PROCESSED'
    """
    if hasattr(table, "to_pylist"):
        fields: tuple[str, ...] = row_type._fields  # type: ignore[attr-defined]
        names = [name for name in table.column_names if name in fields]
        return [row_type(**record) for record in table.select(names).to_pylist()]
    rows: Iterable[tuple[Any, ...]] = table
    return [row if isinstance(row, row_type) else row_type(*row) for row in rows]
