"""Decisions about names, read from the log in their order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import pyarrow as pa

from sag_research.model import WORKSPACE_RUN

if TYPE_CHECKING:
    import pandas as pd

    from sag_research.bloom._query import Query

__all__ = ["Decision", "Decisions", "read_decisions", "read_sql", "take_decisions"]


class Decision(NamedTuple):
    """One event ``entity.merged`` or ``entity.split``."""

    position: int
    type: str
    source: str
    target: str
    by: str
    reason: str


class Decisions(NamedTuple):
    """All decisions, and the merges that stand after them."""

    log: list[Decision]
    targets: dict[str, str]
    """Id merged away to the id that it was merged into, which may be merged away itself."""

    def canonical(self, entity_id: str) -> str:
        """Follow the merges that stand.

        Decisions that were made at the same time may go in a circle: it is one entity, the first
        of its ids by the alphabet.
        """
        path = {entity_id: 0}
        last = entity_id
        while (onward := self.targets.get(last)) is not None:
            if onward in path:
                return min(one for one, place in path.items() if place >= path[onward])
            path[onward] = len(path)
            last = onward
        return last

    def moved(self, after: Decisions) -> set[str]:
        """Return the ids that entities counted as, of those that count as another afterwards."""
        names = self.targets.keys() | after.targets.keys()
        return {self.canonical(one) for one in names if self.canonical(one) != after.canonical(one)}

    def renamed(self) -> dict[str, list[str]]:
        """Return ids merged away, ``old``, and what each counts as, ``new``."""
        return {"old": list(self.targets), "new": [self.canonical(one) for one in self.targets]}

    def members(self) -> Mapping[str, list[str]]:
        """Map canonical ids to the ids merged into them."""
        found: dict[str, list[str]] = {}
        for old in sorted(self.targets):
            if (canonical := self.canonical(old)) != old:
                found.setdefault(canonical, []).append(old)
        return found

    def decided(self) -> set[frozenset[str]]:
        """Return the pairs that somebody has decided about, whichever way."""
        return {frozenset((one.source, one.target)) for one in self.log}

    def rename(self, rows: Any, *columns: str) -> Any:
        """Put canonical ids for those merged away, in columns of a ``pyarrow.Table``."""
        for column in columns if self.targets else ():
            ids = [self.canonical(one) for one in rows.column(column).to_pylist()]
            place = rows.schema.get_field_index(column)
            rows = rows.set_column(place, column, pa.array(ids, rows.schema.field(place).type))
        return rows

    def meant(self, ids: list[str]) -> list[str]:
        """Return all ids that count as the same entities as the given ones."""
        members = self.members()
        found: dict[str, None] = {}
        for one in map(self.canonical, ids):
            found.update(dict.fromkeys([one, *members.get(one, ())]))
        return list(found)

    def table(self) -> pd.DataFrame:
        """Return all decisions as a table; ``stands`` marks merges that were not undone."""
        import pandas as pd

        frame = pd.DataFrame.from_records(self.log, columns=Decision._fields)
        last = {one.source: one.position for one in self.log}
        frame["stands"] = [
            one.type == "entity.merged" and last[one.source] == one.position for one in self.log
        ]
        return frame


def read_sql(name: str) -> str:
    """Read a query of this room."""
    return files(__package__).joinpath("sql", f"{name}.sql").read_text(encoding="utf-8")


def read_decisions(query: Query) -> Decisions:
    """Read the decisions from the view of events."""
    rows = query(read_sql("entity_decisions"), {"workspace": WORKSPACE_RUN}).arrow().to_pylist()
    return take_decisions(
        (row["position"], row["type"], msgspec.json.decode(row["body"] or "{}")) for row in rows
    )


def take_decisions(events: Iterable[tuple[int, str, Mapping[str, Any]]]) -> Decisions:
    """Apply decisions in their order: each one's position, type and payload.

    A payload that names no two entities decides nothing.
    """
    log: list[Decision] = []
    targets: dict[str, str] = {}
    for position, type_, payload in events:
        source, target = payload.get("source"), payload.get("target")
        if not isinstance(source, str) or not isinstance(target, str) or source == target:
            continue
        by, reason = (str(payload.get(name) or "") for name in ("by", "reason"))
        log.append(Decision(position, type_, source, target, by, reason))
        if type_ == "entity.merged":
            targets[source] = target
        else:
            targets.pop(source, None)
    return Decisions(log, targets)
