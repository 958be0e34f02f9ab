"""The bloomed graph for Cypher databases: a folder of CSV files, and scripts that load it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from os import PathLike
from pathlib import Path
from typing import Any, Final, TypeAlias

from sag_research._text import REPLACEMENT, atomic_write, repair
from sag_research.errors import NotEnoughDataError, UsageError
from sag_research.exchange._traces import TEXTS, Parameters, Queryable
from sag_research.model import Entity

__all__ = ["CypherReport", "export_cypher"]

Row: TypeAlias = Sequence[Any]
Counts: TypeAlias = dict[str, int]

_RUN: Final = ("task_id", "kind", "agent", "model", "dataset", "repo", "outcome", "exit_status")
_HEADERS: Final = {
    "runs": ("run_id:ID(Run)", *_RUN, "n_steps:long", "goal"),
    "events": ("event_id:ID(Event)", "run_id", "position:long", "type", "step:long", "tool",
               "exit_code:long", *TEXTS),
    "entities": ("entity_id:ID(Entity)", "kind", "scope", "name"),
    "contains": (":START_ID(Run)", ":END_ID(Event)"),
    "next": (":START_ID(Event)", ":END_ID(Event)"),
    "caused_by": (":START_ID(Event)", ":END_ID(Event)"),
    "forked_from": (":START_ID(Run)", ":END_ID(Event)"),
    "processed": (":START_ID(Event)", ":END_ID(Entity)", "n:long"),
    "mutated": (":START_ID(Event)", ":END_ID(Entity)", "n:long"),
    "relations": (":START_ID(Entity)", ":END_ID(Entity)", ":TYPE", "n:long"),
}  # fmt: skip
_SCRIPTS: Final = {
    "import.sh": "cypher_import.sh",
    "constraints.cypher": "cypher_constraints.cypher",
    "embedded.cypher": "cypher_embedded.cypher",
    "deadend.cypher": "cypher_deadend.cypher",
}
_AT_ONCE: Final = 200
"""Runs whose events are held at once."""


@dataclass
class CypherReport:
    """What was written.

    Attributes
    ----------
    path : pathlib.Path
        The folder.
    counts : dict
        Rows by file, e.g. ``{"runs": 2, "events": 9, …}``.
    replaced : int
        Characters that no text can hold, replaced by U+FFFD.
    """

    path: Path
    counts: Counts = field(default_factory=dict)
    replaced: int = 0

    def __repr__(self) -> str:
        nodes = ", ".join(
            f"{self.counts[name]:,} {name}" for name in ("runs", "events", "entities")
        )
        edges = sum(n for name, n in self.counts.items() if name not in _NODES)
        return f"CypherReport({nodes}, {edges:,} relationships)"

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain values."""
        return {"path": str(self.path), "counts": self.counts, "replaced": self.replaced}


_NODES: Final = frozenset({"runs", "events", "entities"})


def export_cypher(
    source: Queryable,
    folder: str | PathLike[str],
    *,
    where: str = "true",
    parameters: Parameters = None,
    texts: bool = False,
) -> CypherReport:
    """Write runs, their events and entities for Neo4j and its kin.

    Parameters
    ----------
    source : Workspace or Warehouse
    folder : path-like
        Made where it does not exist; files of an earlier export in it are replaced.
    where : str
        An SQL condition on the view ``runs``. Ancestors of forks come along.
    parameters : sequence or mapping, optional
        Values for the condition.
    texts : bool
        Write the texts of the steps, too.

    Returns
    -------
    CypherReport

    Notes
    -----
    Nodes ``Run``, ``Event`` and ``Entity``; ``CONTAINS``, ``NEXT`` (over forks, too),
    ``CAUSED_BY``, ``FORKED_FROM``, ``PROCESSED``, ``MUTATED``, and the typed relations between
    entities. ``import.sh`` gives the files to ``neo4j-admin``; ``embedded.cypher`` is for
    databases with a schema, where relations are ``RELATES`` with a property ``type``.

    Raises
    ------
    NotEnoughDataError
        If no run is meant.
    UsageError
        If the folder's name is taken by a file.
    """
    target = Path(folder)
    if target.exists() and not target.is_dir():
        raise UsageError(f"{target} is a file", fix="name a folder")
    runs = _runs(source, where, parameters)
    target.mkdir(parents=True, exist_ok=True)
    report = CypherReport(target)
    _write(report, "runs", ([r["run_id"], *(r[n] for n in _RUN), r["n_steps"], r["goal"]]
                            for r in runs.values()))  # fmt: skip
    _write_events(report, source, runs, texts)
    entities = _write_mentions(report, source, runs)
    related = _relations(source, list(runs), entities)
    _write(report, "relations", related)
    _write(report, "entities", ((e, *_parts(e, entities)) for e in sorted(entities)))
    for name, shipped in _SCRIPTS.items():
        text = files("sag_research.exchange").joinpath(shipped).read_bytes()
        with atomic_write(target / name) as file:
            file.write(text)
    return report


def _runs(source: Queryable, where: str, parameters: Parameters) -> dict[str, dict[str, Any]]:
    found = source.sql(_query("runs").replace("{where}", where), parameters).arrow().to_pylist()
    if not found:
        raise NotEnoughDataError("no run to export", fix="see ws.runs(where=…)")
    return {row["run_id"]: row for row in found}


def _query(name: str) -> str:
    sql = files("sag_research.exchange").joinpath(f"cypher_{name}.sql")
    return sql.read_text(encoding="utf-8")


def _rows(source: Queryable, name: str, runs: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Read what a query says of the runs, a few runs at a time."""
    wanted = list(runs)
    for start in range(0, len(wanted), _AT_ONCE):
        found = source.sql(_query(name), [wanted[start : start + _AT_ONCE]]).arrow()
        for batch in found.to_batches(max_chunksize=5_000):
            yield from batch.to_pylist()


def _event_id(run_id: str, position: int) -> str:
    return f"{run_id}:{position}"


def _write_events(
    report: CypherReport, source: Queryable, runs: Mapping[str, dict[str, Any]], texts: bool
) -> None:
    """Write events, and the relationships that their places tell."""
    places: list[tuple[str, int, int | None]] = []

    def events() -> Iterator[Row]:
        for row in _rows(source, "events", runs):
            run_id, position = row["run_id"], row["position"]
            places.append((run_id, position, row["cause"]))
            about = [row[name] for name in ("type", "step", "tool", "exit_code")]
            told = [row[name] if texts else None for name in TEXTS]
            yield [_event_id(run_id, position), run_id, position, *about, *told]

    _write(report, "events", events())
    known = {(run_id, position) for run_id, position, _ in places}

    def linked(pairs: Iterable[tuple[str, int, int | None]], back: bool) -> Iterator[Row]:
        for run_id, position, other in pairs:
            place = None if other is None else _wrote(runs, run_id, other)
            if place in known and place is not None:
                ends = [_event_id(run_id, position), _event_id(*place)]
                yield ends if back else ends[::-1]

    _write(report, "contains", ([run_id, _event_id(run_id, n)] for run_id, n, _ in places))
    _write(report, "next", linked(((r, n, n - 1) for r, n, _ in places), back=False))
    _write(report, "caused_by", linked(places, back=True))
    forks = ((r, _wrote(runs, row["parent_id"], row["fork_position"]))
             for r, row in runs.items() if row["parent_id"] is not None)  # fmt: skip
    _write(report, "forked_from", ([r, _event_id(*at)] for r, at in forks if at in known))


def _wrote(runs: Mapping[str, dict[str, Any]], run_id: str, position: int) -> tuple[str, int]:
    """Return where an event of a lineage stands: under the run that wrote it."""
    row = runs.get(run_id)
    while row is not None and row["parent_id"] and position <= (row["fork_position"] or 0):
        run_id = row["parent_id"]
        row = runs.get(run_id)
    return run_id, position


def _write_mentions(
    report: CypherReport, source: Queryable, runs: Iterable[str]
) -> dict[str, Entity | None]:
    """Write which events name which entities; returns these."""
    entities: dict[str, Entity | None] = {}
    by_role: dict[str, list[Row]] = {"PROCESSED": [], "MUTATED": []}
    for row in _rows(source, "mentions", runs):
        entity = Entity(row["kind"], row["scope"], row["name"])
        entities[entity.entity_id] = entity
        at = _event_id(row["run_id"], row["position"])
        by_role[row["role"]].append([at, entity.entity_id, row["n"]])
    for role, rows in by_role.items():
        _write(report, role.lower(), rows)
    return entities


def _relations(source: Queryable, runs: list[str], entities: dict[str, Entity | None]) -> list[Row]:
    counted: dict[tuple[str, str, str], int] = {}
    for row in _rows(source, "relations", runs):
        key = (row["source_id"], row["target_id"], row["type"])
        counted[key] = counted.get(key, 0) + row["n"]
    for one, other, _ in counted:
        entities.setdefault(one, None)
        entities.setdefault(other, None)
    return [[*key, n] for key, n in sorted(counted.items())]


def _parts(entity_id: str, entities: Mapping[str, Entity | None]) -> tuple[str, str, str]:
    """Return kind, scope and name; those of an entity that no event names are in its id."""
    entity = entities[entity_id]
    if entity is None:
        kind, scope, name = entity_id.split("|", 2)
        return kind, scope, name
    return entity.kind, entity.scope, entity.name


def _write(report: CypherReport, name: str, rows: Iterable[Row]) -> None:
    count = 0
    with atomic_write(report.path / f"{name}.csv") as file:
        file.write(f"{','.join(_HEADERS[name])}\n".encode())
        for row in rows:
            count += 1
            file.write(f"{','.join(_cell(value, report) for value in row)}\n".encode())
    report.counts[name] = count


def _cell(value: Any, report: CypherReport) -> str:
    """Write a value: texts in quotes, so that an empty one is not taken for a missing one."""
    if value is None:
        return ""
    if not isinstance(value, str):
        return str(value)
    clean = repair(value)
    report.replaced += clean.count(REPLACEMENT) - value.count(REPLACEMENT)
    return '"' + clean.replace('"', '""') + '"'
