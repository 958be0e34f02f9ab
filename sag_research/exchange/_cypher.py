"""The bloomed graph for Cypher databases: a folder of CSV files, and scripts that load it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib.resources import files
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from sag_research._text import atomic_write, made_folder
from sag_research.bloom import read_decisions
from sag_research.errors import NotEnoughDataError, UsageError
from sag_research.exchange._cypher_tables import Table, opened_table, table_names
from sag_research.exchange._traces import Parameters, Queryable

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["CypherReport", "export_cypher"]

Place: TypeAlias = tuple[str, int]
Portion: TypeAlias = dict[str, list[Any]]
Tables: TypeAlias = Mapping[str, Table]
Forks: TypeAlias = Mapping[str, Place]

EVENTS_AT_ONCE: Final = 2_000
RUNS_AT_ONCE: Final = 5_000
NAMES_AT_ONCE: Final = 20_000
"""Entities, or relations, that a portion holds about."""

_BUFFER: Final = 4 << 20
"""What Neo4j's importer takes for a buffer unless told otherwise: 4 MiB."""


@dataclass
class CypherReport:
    """What was written.

    Attributes
    ----------
    path : pathlib.Path
        The folder.
    counts : dict
        Rows by kind: ``runs events entities contains next caused_by forked_from mentions
        relations``.
    counted : int
        Runs that are observations of their own: no forks, no hidden runs, no copies, no
        extractions, none without steps.
    replaced : int
        Characters that no text can hold, replaced by U+FFFD.
    longest : int
        Bytes of the longest row, which the importer's buffer has to hold.

    Examples
    --------
    >>> counts = {"runs": 2, "events": 9, "entities": 3, "contains": 9, "mentions": 5}
    >>> CypherReport(Path("graph"), counts, counted=1)
    CypherReport(2 runs (1 counted), 9 events, 3 entities, 14 relationships)
    """

    path: Path
    counts: dict[str, int] = field(default_factory=dict)
    counted: int = 0
    replaced: int = 0
    longest: int = 0

    def __repr__(self) -> str:
        runs, events, entities = (self.counts.get(name, 0) for name in _NODES)
        edges = sum(n for name, n in self.counts.items() if name not in _NODES)
        return (
            f"CypherReport({runs:,} runs ({self.counted:,} counted), {events:,} events, "
            f"{entities:,} entities, {edges:,} relationships)"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain values."""
        names = ("counts", "counted", "replaced", "longest")
        return {"path": str(self.path)} | {name: getattr(self, name) for name in names}


_NODES: Final = ("runs", "events", "entities")


def export_cypher(
    source: Queryable,
    folder: str | PathLike[str],
    *,
    where: str = "true",
    parameters: Parameters = None,
    texts: bool = False,
    hidden: bool = False,
) -> CypherReport:
    """Write runs, their events and entities for Neo4j and its kin.

    Hidden runs, copies and extractions are left out. Forks come with their ancestors. A run has
    ``counted`` true if it is an observation of its own, as in a cohort for statistics: forks,
    and ancestors that nobody chose, are not.

    Parameters
    ----------
    source : Workspace or Warehouse
    folder : path-like
        Made where it does not exist; files of an earlier export in it are replaced.
    where : str
        An SQL condition on the view ``runs``.
    parameters : sequence or mapping, optional
        Values for the condition.
    texts : bool
        Write the texts of the steps, and the bodies of other events, too.
    hidden : bool
        Write hidden runs, copies and extractions, too; they are not counted.

    Returns
    -------
    CypherReport

    Notes
    -----
    Nodes ``Run``, ``Event`` and ``Entity``; ``CONTAINS``, ``NEXT`` (over forks, too),
    ``CAUSED_BY``, ``FORKED_FROM``, ``PROCESSED``, ``MUTATED``, and the typed relations between
    entities, under the decisions about names that stand. ``import.sh`` gives the files to
    ``neo4j-admin``; ``embedded.cypher`` is for databases with a schema, where relations are
    ``RELATES`` with a property ``type``. ``queries.cypher`` asks for dead ends.

    Memory holds the id of each run, and its place; all else comes in portions of a few thousand
    events, runs or entities.

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
    runs = _chosen(source, where, parameters, hidden)
    made_folder(target)
    with ExitStack() as stack:
        tables = {name: stack.enter_context(opened_table(target, about))
                  for name, about in table_names().items()}  # fmt: skip
        decided = read_decisions(source.sql)
        renamed = {
            "old": list(decided.targets),
            "new": list(map(decided.canonical, decided.targets)),
        }
        _write_runs(source, runs, tables)
        _write_events(source, runs, tables, renamed, texts)
        _write_names(source, runs, tables, renamed)
    _write_scripts(target, tables.values())
    return CypherReport(
        target,
        counts={name: table.rows for name, table in tables.items()},
        counted=sum(runs.column("counted").to_pylist()),
        replaced=sum(table.replaced for table in tables.values()),
        longest=max(table.longest for table in tables.values()),
    )


def _chosen(source: Queryable, where: str, parameters: Parameters, hidden: bool) -> pa.Table:
    query = _read("chosen.sql").replace("{hidden}", str(hidden).lower())
    found = source.sql(query.replace("{where}", where), parameters).arrow()
    if not found.num_rows:
        raise NotEnoughDataError(
            "no run to export",
            why="" if hidden else "extractions, copies and hidden runs are left out",
            fix="see ws.runs(where=…)" + ("" if hidden else ", or give hidden=True (--hidden)"),
        )
    return found


def _read(name: str) -> str:
    path = files("sag_research.exchange").joinpath(f"cypher_{name}")
    return path.read_text(encoding="utf-8")


def _write_runs(source: Queryable, runs: pa.Table, tables: Tables) -> None:
    query = _read("runs.sql")
    for start in range(0, runs.num_rows, RUNS_AT_ONCE):
        some = runs.slice(start, RUNS_AT_ONCE)
        wanted = {"runs": some.column("run_id").to_pylist(),
                  "counted": some.column("counted").to_pylist()}  # fmt: skip
        tables["runs"].copy(source.sql(query, wanted).arrow())


def _write_events(
    source: Queryable,
    runs: pa.Table,
    tables: Tables,
    renamed: Portion,
    texts: bool,
) -> None:
    """Write events with all that hangs on them, a portion at a time."""
    forks = _forks(runs)
    ends = [(run_id, _wrote(forks, *fork)) for run_id, fork in forks.items()]
    there = _known(source, {place for _, place in ends})
    tables["forked_from"].extend((r, _event_id(place)) for r, place in ends if place in there)
    events, mentions = (
        _read("events.sql").replace("{texts}", str(texts).lower()),
        _read("mentions.sql"),
    )
    for portion in _portions(runs):
        found = source.sql(events, portion).arrow()
        tables["events"].copy(found)
        tables["contains"].copy(found)
        _write_order(source, found, tables, forks)
        tables["mentions"].copy(source.sql(mentions, portion | renamed).arrow())


def _portions(runs: pa.Table) -> Iterator[Portion]:
    """Cut the events of all runs into portions; a long run may stand in several."""
    portion: Portion = {"runs": [], "first": [], "last": []}
    room = EVENTS_AT_ONCE
    for batch in runs.select(["run_id", "first_position", "last_position"]).to_batches(1_000):
        for run_id, first, last in zip(*(c.to_pylist() for c in batch.columns), strict=True):
            while first <= last:
                upto = min(last, first + room - 1)
                for name, value in zip(portion, (run_id, first, upto), strict=True):
                    portion[name].append(value)
                room -= upto - first + 1
                first = upto + 1
                if not room:
                    yield portion
                    portion, room = {name: [] for name in portion}, EVENTS_AT_ONCE
    if portion["runs"]:
        yield portion


def _write_order(source: Queryable, found: pa.Table, tables: Tables, forks: Forks) -> None:
    """Write which event came before which, and which caused which."""
    columns = [found.column(name).to_pylist() for name in ("run_id", "position", "cause")]
    rows = list(zip(*columns, strict=True))
    here = {(run_id, position) for run_id, position, _ in rows}
    before = [((r, n), _wrote(forks, r, n - 1)) for r, n, _ in rows]
    causes = [((r, n), _wrote(forks, r, cause)) for r, n, cause in rows if cause is not None]
    elsewhere = {place for _, place in (*before, *causes) if place not in here and place[1] > 0}
    here |= _known(source, elsewhere)
    tables["next"].extend((_event_id(a), _event_id(b)) for b, a in before if a in here)
    tables["caused_by"].extend((_event_id(b), _event_id(a)) for b, a in causes if a in here)


def _known(source: Queryable, places: Iterable[Place]) -> set[Place]:
    """Return which of the places hold an event: a damaged one is in no view."""
    wanted = sorted(places)
    if not wanted:
        return set()
    runs, positions = [run_id for run_id, _ in wanted], [position for _, position in wanted]
    found = source.sql(_read("places.sql"), {"runs": runs, "positions": positions}).rows()
    return {(run_id, position) for run_id, position in found}


def _forks(runs: pa.Table) -> dict[str, Place]:
    """Return for each fork its parent, and up to where it took over its events."""
    import pyarrow.compute as pc

    forks = runs.filter(pc.is_valid(runs.column("parent_id")))
    columns = (forks.column(n).to_pylist() for n in ("run_id", "parent_id", "fork_position"))
    return {run_id: (parent, position) for run_id, parent, position in zip(*columns, strict=True)}


def _wrote(forks: Forks, run_id: str, position: int) -> Place:
    """Return where an event of a lineage stands: under the run that wrote it."""
    while (fork := forks.get(run_id)) is not None and position <= fork[1]:
        run_id = fork[0]
    return run_id, position


def _event_id(place: Place) -> str:
    return f"{place[0]}:{place[1]}"


def _write_names(source: Queryable, runs: pa.Table, tables: Tables, renamed: Portion) -> None:
    """Write entities and the relations between them."""
    wanted = {"runs": runs.column("run_id").to_pylist()}
    [sizes] = source.sql(_read("sizes.sql"), wanted).rows()
    for name, size in zip(("entities", "relations"), sizes, strict=True):
        query, parts = _read(f"{name}.sql"), max(1, -(-size // NAMES_AT_ONCE))
        for part in range(parts):
            portion = wanted | renamed | {"parts": parts, "part": part}
            tables[name].copy(source.sql(query, portion).arrow())


def _write_scripts(target: Path, tables: Iterable[Table]) -> None:
    """Write the scripts; the importer is told what the files need."""
    written = list(tables)
    needed = max(table.longest for table in written)
    values = {
        "{multiline}": str(any(table.broken for table in written)).lower(),
        "{buffer}": str(max(_BUFFER, 2 * needed)),
    }
    for name in ("import.sh", "schema.cypher", "queries.cypher", "embedded.cypher"):
        text = _read(name)
        for mark, value in values.items() if name == "import.sh" else ():
            text = text.replace(mark, value)
        with atomic_write(target / name) as file:
            file.write(text.encode())
