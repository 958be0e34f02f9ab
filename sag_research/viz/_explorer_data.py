"""What an explorer asks the warehouse and the log; the SQL lies beside this module."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from sag_research.bloom import BloomGraph, read_decisions
from sag_research.model import Event

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

    from sag_research.log import SQLiteEventStore
    from sag_research.runtime import RunDiff

__all__ = ["ANY", "EntityUse", "Filters", "Found", "Page", "RunRow", "RunTable", "Study"]

Parameters = Sequence[Any] | Mapping[str, Any]
ANY: Final = ""
"""The value of a filter that lets everything pass."""
PAGE: Final = 50
SCANNED: Final = 2_000
"""Runs whose alarms are computed for a filter, at most."""
HITS: Final = 20
"""Runs, steps and entities that a search lists, each."""


class Rows(Protocol):
    """The answer to a query."""

    def rows(self) -> list[tuple[Any, ...]]:
        """All rows as tuples."""
        ...

    def arrow(self) -> Any:
        """The whole as a ``pyarrow.Table``."""
        ...


class Study(Protocol):
    """What an explorer needs of a workspace."""

    @property
    def path(self) -> Path | None:
        """Its folder."""
        ...

    @property
    def store(self) -> SQLiteEventStore:
        """The log."""
        ...

    def sql(self, query: str, parameters: Any = None) -> Any:
        """Query the views."""
        ...

    def steps(self, run: str) -> pd.DataFrame:
        """Return a run's steps."""
        ...

    def bloom(self, runs: Any = None) -> BloomGraph:
        """Bloom runs into a graph."""
        ...

    def diff(self, a: str, b: str) -> RunDiff:
        """Compare two runs."""
        ...

    def annotate(
        self, run: str, step: int | None = None, *, code: str, note: str = "", by: str = "me"
    ) -> None:
        """Note what somebody sees."""
        ...

    def remove_annotation(
        self, run: str, step: int | None = None, *, code: str, by: str = "me"
    ) -> None:
        """Take it back."""
        ...

    def annotations(self, run: str | None = None) -> pd.DataFrame:
        """List what was annotated."""
        ...

    def agreement(self, a: str, b: str) -> Any:
        """Compare two annotators."""
        ...


class Filters(NamedTuple):
    """Which runs are listed."""

    task: str = ANY
    """Part of a task's or run's name, upper or lower case."""
    model: str = ANY
    outcome: str = ANY
    least: int = 0
    most: int = 0
    """Steps; 0: no limit."""
    alarm: str = ANY
    """``raised`` or ``not raised``, as events in the log tell."""


ALL: Final = Filters()


class RunRow(NamedTuple):
    """A run in the list."""

    run_id: str
    task_id: str | None
    model: str | None
    outcome: str
    n_steps: int
    parent_id: str | None
    alarm: bool


class Page(NamedTuple):
    """A part of the list."""

    rows: list[RunRow]
    start: int
    total: int
    looked_at: int = 0
    """Runs that were looked at, where not all of them were; else 0."""


class Found(NamedTuple):
    """What a search found: where it leads, and the text that was found."""

    kind: str
    """``run``, ``step`` or ``entity``."""
    name: str
    """A run's or an entity's id."""
    position: int
    """Of a step's event, else 0."""
    step: int
    text: str


class EntityUse(NamedTuple):
    """An entity that a step names."""

    entity_id: str
    changed: bool
    n: int
    """Times it is named in the step."""
    runs: int
    """Runs that name it, copies left out."""
    where: str
    """Fields that name it."""


class _Condition:
    """A condition of the user's with some of ours, and values in the user's kind of place."""

    def __init__(self, where: str, parameters: Parameters) -> None:
        self._parts = [f"({where})"]
        self._named = dict(parameters) if isinstance(parameters, Mapping) else None
        self._listed = [] if isinstance(parameters, Mapping) else list(parameters)

    def place(self, value: Any) -> str:
        """Bind a value; returns what stands for it in the query."""
        if self._named is None:
            self._listed.append(value)
            return f"${len(self._listed)}"
        name = f"sag_{len(self._named)}"
        self._named[name] = value
        return f"${name}"

    def add(self, template: str, *values: Any) -> None:
        self._parts.append(template.format(*map(self.place, values)))

    @property
    def text(self) -> str:
        return " AND ".join(self._parts)

    @property
    def values(self) -> Any:
        return self._listed if self._named is None else self._named


@cache
def read_sql(name: str) -> str:
    """Read a query."""
    return files(__package__).joinpath("explorer_sql", f"{name}.sql").read_text(encoding="utf-8")


class RunTable:
    """A cohort's runs, a page at a time.

    Parameters
    ----------
    study : Study
    where : str
        An SQL condition over the view ``runs``.
    parameters : sequence or mapping
        Values for it.
    alarmed : callable, optional
        Tells whether an alarm is raised in a run; default: what events in the log say.
    """

    def __init__(
        self, study: Study, where: str = "true", parameters: Parameters = (),
        alarmed: Callable[[str], bool] | None = None,
    ) -> None:  # fmt: skip
        self._study, self._alarmed = study, alarmed
        # values of ours are numbered after the user's, and ? cannot stand beside numbers
        self._where, self._parameters = where, parameters
        if not isinstance(parameters, Mapping):
            self._where = _numbered(where)

    def page(self, filters: Filters = ALL, start: int = 0, size: int = PAGE) -> Page:
        """Read a page, in the order of the log; the total counts all that pass the filters.

        Where an alarm has to be computed, at most the first 2,000 runs that pass the other
        filters are looked at; ``Page.looked_at`` says how many were.
        """
        if self._alarmed is not None and filters.alarm:
            return self._computed(filters, start, size)
        return self._read(filters, start, size)

    def _computed(self, filters: Filters, start: int, size: int) -> Page:
        wanted, alarmed = filters.alarm == "raised", self._alarmed or (lambda _: False)
        page = self._read(filters._replace(alarm=ANY), 0, SCANNED)
        rows = [row._replace(alarm=alarmed(row.run_id)) for row in page.rows]
        rows = [row for row in rows if row.alarm is wanted]
        cut = len(page.rows) if page.total > len(page.rows) else 0
        return Page(rows[start : start + size], start, len(rows), cut)

    def _read(self, filters: Filters, start: int, size: int) -> Page:
        condition = self._condition(filters)
        where, counted = condition.text, condition.values
        total = self._ask(f"SELECT count(*) FROM runs WHERE {where}", counted)[0][0]  # noqa: S608
        condition = self._condition(filters)
        limits = condition.place(size), condition.place(start)
        query = read_sql("page").format(
            where=where, size=limits[0], start=limits[1], alarms=read_sql("alarms")
        )
        rows = [RunRow(*row) for row in self._ask(query, condition.values)]
        return Page(rows, start, int(total))

    def models(self, most: int = 200) -> list[str]:
        """Name the models that occur."""
        query = (
            f"SELECT DISTINCT model FROM runs WHERE ({self._where}) "  # noqa: S608
            f"AND model IS NOT NULL ORDER BY 1 LIMIT {int(most)}"
        )
        return [str(model) for (model,) in self._ask(query, self._parameters or None)]

    def search(self, text: str) -> list[Found]:
        """Find runs, steps and entities whose texts hold a text, upper or lower case."""
        condition = self._condition(ALL)
        where = condition.text
        query = read_sql("search").format(
            where=where, text=condition.place(text), most=condition.place(HITS)
        )
        return [Found(*row) for row in self._ask(query, condition.values)]

    def _condition(self, filters: Filters) -> _Condition:
        condition = _Condition(self._where, self._parameters)
        if filters.task:
            text = "contains(lower(concat_ws(' ', run_id, task_id)), lower({}))"
            condition.add(text, filters.task)
        if filters.model:
            condition.add("model = {}", filters.model)
        if filters.outcome:
            condition.add("outcome = {}", filters.outcome)
        if filters.least:
            condition.add("n_steps >= {}", filters.least)
        if filters.most:
            condition.add("n_steps <= {}", filters.most)
        if filters.alarm:
            raised = f"(run_id IN ({read_sql('alarms')}))"
            condition.add(raised + " = {}", filters.alarm == "raised")
        return condition

    def _ask(self, query: str, values: Any) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = self._study.sql(query, values or None).rows()
        return rows


def _numbered(where: str) -> str:
    """Number the question marks of a condition; those inside quotes are text."""
    parts, number, quote = [], 0, ""
    for character in where:
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        elif character == "?":
            number += 1
            character = f"${number}"
        parts.append(character)
    return "".join(parts)


def family(study: Study, run: str, most: int = 12) -> list[str]:
    """Name a run, its ancestors and its forks, the run's own line first kept, at most so many."""
    known = {one.run_id: one for one in study.store.family(run)}
    line = [run]
    while (parent := known[line[-1]].parent_id if line[-1] in known else None) is not None:
        line.append(parent)
    below = [name for name, one in known.items() if one.parent_id in line and name not in line]
    kept = set([*line, *below][:most])
    return [name for name in known if name in kept] or [run]


def children(study: Study, run: str) -> list[tuple[str, int]]:
    """List a run's forks, with the position at which each parts."""
    query = "SELECT run_id, fork_position FROM runs WHERE parent_id = ? ORDER BY seq LIMIT 200"
    return [(str(name), int(at)) for name, at in study.sql(query, [run]).rows()]


def run_facts(study: Study, run: str) -> dict[str, Any]:
    """Return the row of the view ``runs``, what each source said, and the file it came from."""
    answer = study.sql("SELECT * FROM runs WHERE run_id = ?", [run])
    facts = dict(zip(answer.columns, (answer.rows() or [()])[0], strict=False))
    said = "SELECT source, outcome, detail, score FROM outcomes WHERE run_id = ? ORDER BY position"
    facts["said"] = study.sql(said, [run]).rows()
    origin = "SELECT path, format FROM sources WHERE source_id = ? AND status = 'ingested' LIMIT 1"
    facts["origin"] = study.sql(origin, [facts.get("source_id")]).rows()
    return facts


def read_event(study: Study, run: str, position: int) -> Event | None:
    """Read one event, straight from the log."""
    return next(study.store.read(run, position, position), None)


def entities_of(study: Study, run: str, position: int) -> list[EntityUse]:
    """List what a step names, the rarest first, counted over all runs."""
    place = {"run": run, "position": position}
    rows = study.sql(read_sql("entities"), place).rows()
    return [EntityUse(*row) for row in rows]


def uses_of(study: Study, entity: str, most: int = 200) -> list[Found]:
    """List steps that name an entity, decisions about names included; copies are left out."""
    names = read_decisions(study.sql).meant([entity])
    rows = study.sql(read_sql("uses"), {"names": names, "most": most}).rows()
    return [Found("step", run, position, step, text or "") for run, position, step, text in rows]
