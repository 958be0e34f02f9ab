"""Tables in, graph out; nothing here knows where the tables come from."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from operator import attrgetter
from typing import Any

from sag_research._text import repair
from sag_research.bloom._rows import (
    EntityRow,
    EventRow,
    MentionRow,
    RelationRow,
    RunRow,
    read_rows,
)

__all__ = ["bloom_graph"]


def bloom_graph(
    events: Any, mentions: Any = (), relations: Any = (), runs: Any = (), entities: Any = ()
) -> Any:
    """Build the bloomed graph of some events.

    Every argument is a pyarrow table with the named columns or an iterable of tuples in the
    same order; trailing columns may be missing.

    Parameters
    ----------
    events : table of :class:`~sag_research.bloom.EventRow`
        Each event once, under its writer. Without ``rank`` the events are taken as complete:
        neighbours in a lineage are linked.
    mentions : table of :class:`~sag_research.bloom.MentionRow`
        Mentions of other events are left out.
    relations : table of :class:`~sag_research.bloom.RelationRow`
        Relations of one type between the same two entities become one edge with their sum
        ``n`` and the place of the first.
    runs : table of :class:`~sag_research.bloom.RunRow`
        Runs and their ancestors. A writer that is not listed gets a bare node.
    entities : table of :class:`~sag_research.bloom.EntityRow`
        An entity that is not listed is read from its id.

    Returns
    -------
    networkx.MultiDiGraph
        Nodes ``run:<run_id>``, ``event:<run_id>:<position>`` and entity ids with an attribute
        ``label`` of ``Run``, ``Event`` or ``Entity``; an edge's key is its type.

    Examples
    --------
    >>> graph = bloom_graph([("r1", 1, "run.created"), ("r1", 2)], [("r1", 2, "Error||KeyError")])
    >>> sorted(key for _, _, key in graph.edges(keys=True))
    ['CONTAINS', 'CONTAINS', 'NEXT', 'PROCESSED']
    """
    import networkx as nx

    graph = nx.MultiDiGraph()
    known = {row.run_id: row for row in read_rows(RunRow, runs)}
    own: dict[str, list[EventRow]] = defaultdict(list)
    for row in sorted(read_rows(EventRow, events), key=lambda row: (row.run_id, row.position)):
        own[row.run_id].append(row)
    lines = _Lines(known, own)
    for run in lines.in_order():
        _add_run(graph, run, own.get(run.run_id, []))
    for run in lines.in_order():
        _link_run(graph, run, lines)
    names = {row.entity_id: row for row in read_rows(EntityRow, entities)}
    _add_mentions(graph, read_rows(MentionRow, mentions), names)
    _add_relations(graph, read_rows(RelationRow, relations), names)
    return graph


def _run_key(run_id: str) -> str:
    return f"run:{run_id}"


def _event_key(run_id: str, position: int) -> str:
    return f"event:{run_id}:{position}"


class _Lines:
    """Who wrote which event of a lineage."""

    def __init__(self, known: dict[str, RunRow], own: dict[str, list[EventRow]]) -> None:
        self.runs = {**known, **{run_id: RunRow(run_id) for run_id in own if run_id not in known}}
        self.own = own
        self._ranks: dict[str, dict[int, int]] = {}

    def in_order(self) -> Iterator[RunRow]:
        """Give the runs in the order they were listed, children straight after their parent."""
        children: dict[str | None, list[RunRow]] = defaultdict(list)
        for run in self.runs.values():
            children[run.parent_id if run.parent_id in self.runs else None].append(run)
        waiting = children[None][::-1]
        while waiting:
            run = waiting.pop()
            yield run
            by_fork = sorted(children[run.run_id], key=lambda r: (r.fork_position or 0, r.run_id))
            waiting.extend(by_fork[::-1])

    def last_upto(self, run_id: str | None, position: int) -> tuple[str, EventRow] | None:
        """Find the last event of a lineage at or before a position, with its writer."""
        while run_id is not None and (run := self.runs.get(run_id)) is not None:
            rows = self.own.get(run_id, [])
            before = bisect_right(rows, position, key=attrgetter("position"))
            if before:
                return run_id, rows[before - 1]
            position = min(position, run.fork_position or 0)
            run_id = run.parent_id
        return None

    def rank(self, run_id: str, row: EventRow) -> int:
        """Give an event's number in its lineage: as the table says, else counted."""
        if row.rank is not None:
            return row.rank
        if run_id not in self._ranks:
            run = self.runs[run_id]
            before = self.last_upto(run.parent_id, run.fork_position or 0)
            start = self.rank(*before) if before else 0
            rows = enumerate(self.own[run_id], start + 1)
            self._ranks[run_id] = {row.position: number for number, row in rows}
        return self._ranks[run_id][row.position]


def _add_run(graph: Any, run: RunRow, events: list[EventRow]) -> None:
    details = {name: value for name, value in run._asdict().items() if value is not None}
    graph.add_node(_run_key(run.run_id), label="Run", **details)
    for row in events:
        key = _event_key(row.run_id, row.position)
        graph.add_node(
            key,
            label="Event",
            type=row.type,
            step=row.step,
            position=row.position,
            run_id=row.run_id,
            thought=repair(row.thought or ""),
            action=repair(row.action or ""),
            observation=repair(row.observation or ""),
            exit_code=row.exit_code,
            inherited=bool(row.inherited),
            body=repair(row.body or ""),
        )
        graph.add_edge(_run_key(run.run_id), key, key="CONTAINS", type="CONTAINS")


def _link_run(graph: Any, run: RunRow, lines: _Lines) -> None:
    """Link a run's own events to the ones before them, also over the fork."""
    fork = lines.last_upto(run.parent_id, run.fork_position or 0)
    before = fork
    for row in lines.own.get(run.run_id, []):
        key = _event_key(run.run_id, row.position)
        graph.nodes[key]["rank"] = lines.rank(run.run_id, row)
        if before is not None and lines.rank(*before) + 1 == lines.rank(run.run_id, row):
            graph.add_edge(_event_key(*_place(before)), key, key="NEXT", type="NEXT")
        _link_cause(graph, run.run_id, row, lines)
        before = run.run_id, row
    if fork is not None and _is_fork_point(run, fork, lines):
        graph.add_edge(
            _run_key(run.run_id),
            _event_key(*_place(fork)),
            key="FORKED_FROM",
            type="FORKED_FROM",
            position=run.fork_position,
        )


def _place(found: tuple[str, EventRow]) -> tuple[str, int]:
    return found[0], found[1].position


def _is_fork_point(run: RunRow, found: tuple[str, EventRow], lines: _Lines) -> bool:
    """Tell the fork point from an event that merely happens to be the last one chosen."""
    if found[1].position == run.fork_position:
        return True
    own = lines.own.get(run.run_id, [])
    return bool(own) and lines.rank(*found) + 1 == lines.rank(run.run_id, own[0])


def _link_cause(graph: Any, run_id: str, row: EventRow, lines: _Lines) -> None:
    if row.cause is None:
        return
    found = lines.last_upto(run_id, row.cause)
    if found is not None and found[1].position == row.cause:
        source, target = _event_key(run_id, row.position), _event_key(*_place(found))
        graph.add_edge(source, target, key="CAUSED_BY", type="CAUSED_BY")


def _add_entity(graph: Any, entity_id: str, names: dict[str, EntityRow]) -> None:
    if entity_id in graph:
        return
    kind, scope, name = [*entity_id.split("|", 2), "", ""][:3]
    row = names.get(entity_id) or EntityRow(entity_id, kind, scope, name)
    graph.add_node(
        entity_id,
        label="Entity",
        kind=row.kind,
        scope=repair(row.scope),
        name=repair(row.name),
        entity_id=entity_id,
        runs_total=row.runs_total,
    )


def _add_mentions(graph: Any, rows: list[MentionRow], names: dict[str, EntityRow]) -> None:
    for row in sorted(rows, key=lambda row: (row.run_id, row.position, row.entity_id, row.role)):
        source = _event_key(row.run_id, row.position)
        if source not in graph:
            continue
        _add_entity(graph, row.entity_id, names)
        _count_edge(graph, source, row.entity_id, row.role, row.n, {"rule": row.rule or ""})


def _add_relations(graph: Any, rows: list[RelationRow], names: dict[str, EntityRow]) -> None:
    for row in sorted(rows, key=lambda row: (row.run_id, row.position, row[:3])):
        _add_entity(graph, row.source_id, names)
        _add_entity(graph, row.target_id, names)
        place = {"run_id": row.run_id, "position": row.position, "rule": row.rule or ""}
        _count_edge(graph, row.source_id, row.target_id, row.type, row.n, place)


def _count_edge(
    graph: Any, source: str, target: str, type: str, n: int, first: dict[str, Any]
) -> None:
    """Add an edge, or count it on the one of its type that is there already."""
    if graph.has_edge(source, target, key=type):
        graph.edges[source, target, type]["n"] += n
    else:
        graph.add_edge(source, target, key=type, type=type, n=n, **first)
