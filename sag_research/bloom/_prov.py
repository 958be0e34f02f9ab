"""The provenance of a run as an object: checked, drawn, asked and handed on."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from pyoxigraph import NamedNode, Quad, RdfFormat

from sag_research._text import atomic_write, clip, html_table, visible
from sag_research.bloom._hint import Hint, hint
from sag_research.bloom._prov_check import ProvenanceReport, validate_graph
from sag_research.bloom._prov_json import write_prov_json
from sag_research.bloom._prov_record import Mentions, Recorder
from sag_research.bloom._prov_store import TraceStore, name_of, term_value, written
from sag_research.bloom._prov_terms import (
    CATALOGUE,
    DECISIONS,
    PREFIXES,
    RDF_TYPE,
    graph_node,
    prov,
    sag,
)
from sag_research.bloom._query import Query
from sag_research.errors import RunNotFoundError, UsageError
from sag_research.log import SQLiteEventStore
from sag_research.model import Entity, Event, Mention

if TYPE_CHECKING:
    import pandas as pd
    from networkx import MultiDiGraph

__all__ = [
    "PROV_FORMATS",
    "ProvFormat",
    "RunProvenance",
    "mentions_from",
    "provenance_text",
    "run_provenance",
    "write_provenance",
]

ProvFormat: TypeAlias = Literal["trig", "nquads", "jsonld", "prov-json"]
PROV_FORMATS: Final = {
    "trig": RdfFormat.TRIG,
    "nquads": RdfFormat.N_QUADS,
    "jsonld": RdfFormat.JSON_LD,
    "prov-json": None,
}


_SHARED: Final = frozenset(
    {prov("used"), prov("specializationOf"), prov("wasAssociatedWith"), sag("mutated")}
)
"""Properties whose objects may be described in the catalogue."""


def run_provenance(
    store: SQLiteEventStore, run_id: str, *, mentions: Mentions | None = None
) -> RunProvenance:
    """Read a run's provenance from the log, and that of the ancestors it was forked from.

    Parameters
    ----------
    store : SQLiteEventStore
    run_id : str
    mentions : callable, optional
        Gives the entities that steps name; see :func:`mentions_from`.

    Raises
    ------
    RunNotFoundError
    """
    recorder = Recorder(store, mentions=mentions)
    recorder.record(run_id)
    return RunProvenance(recorder.traces, run_id)


def mentions_from(query: Query) -> Mentions:
    """Return what gives a :class:`Recorder` the mentions that a warehouse holds.

    Parameters
    ----------
    query : callable
        ``Warehouse.sql``, or what answers alike.
    """
    text = files("sag_research.bloom").joinpath("sql", "prov_mentions.sql")
    sql = text.read_text(encoding="utf-8")

    def mentions(events: Sequence[Event]) -> Mapping[tuple[str, int], Sequence[Mention]]:
        where = {"runs": [e.run_id for e in events], "positions": [e.position for e in events]}
        found: defaultdict[tuple[str, int], list[Mention]] = defaultdict(list)
        for row in query(sql, where).arrow().to_pylist():
            entity = Entity(row["kind"], row["scope"], row["name"])
            found[row["run_id"], row["position"]].append(
                Mention(
                    entity=entity, field=row["field"], start=row["start"], end=row["end"],
                    role=row["role"],
                )
            )  # fmt: skip
        return found

    return mentions


class RunProvenance:
    """The provenance of one run; made by ``ws.provenance(run)``.

    Attributes
    ----------
    run_id : str
    traces : TraceStore
        The quads of the run, and of its ancestors.

    Examples
    --------
    >>> from sag_research.bloom import Final, Recorder, Thought, TraceItem
    >>> from sag_research.model import Run
    >>> recorder = Recorder()
    >>> recorder.add_run(Run(run_id="r1"))
    >>> for number, step in enumerate([Thought("look"), Final("3")]):
    ...     _ = recorder.add("r1", TraceItem(number, step))
    >>> provenance = RunProvenance(recorder.traces, "r1")
    >>> provenance
    RunProvenance(r1: 2 steps (1 final, 1 thought), 27 quads)
    >>> provenance.validate(shapes=False).ok
    True
    """

    def __init__(self, traces: TraceStore, run_id: str) -> None:
        self.traces, self.run_id = traces, run_id
        self._graph = graph_node(run_id)
        if not traces.ask(graph=self._graph):
            raise RunNotFoundError(
                f"nothing is recorded of run {clip(run_id)!r}", fix="record it first"
            )

    def __repr__(self) -> str:
        kinds = Counter(
            name_of(quad.object) for quad in self.traces.match(None, sag("kind"), None, self._graph)
        )
        told = ", ".join(f"{count:,} {kind}" for kind, count in sorted(kinds.items()))
        steps = f"{kinds.total():,} steps" + (f" ({told})" if told else "")
        return f"RunProvenance({visible(clip(self.run_id))}: {steps}, {len(self.quads()):,} quads)"

    def _repr_html_(self) -> str:
        table = self.table_[["ordinal", "kind", "text", "tool"]]
        return html_table([str(c) for c in table], table.head(20).to_numpy().tolist(), len(table))

    # ---- looking

    def quads(self) -> list[Quad]:
        """Return the run's own quads: its graph, and what is said elsewhere of what it names.

        That are the catalogue's entries, and the merges of its entities that stand.
        """
        own = list(self.traces.match(graph=self._graph))
        named = {quad.object for quad in own if quad.predicate in _SHARED} | {self._graph}
        merged = self._merges(named)
        entries = (self.traces.match(node, None, None, CATALOGUE) for node in named)
        return own + merged + [quad for entry in entries for quad in entry]

    def _merges(self, named: set[Any]) -> list[Quad]:
        """Return the merges of some entities, and of those they were merged into, to the end."""
        found: set[Quad] = set()
        waiting = list(named)
        while waiting:
            for quad in self.traces.match(waiting.pop(), None, None, DECISIONS):
                if quad not in found:
                    found.add(quad)
                    waiting += [quad.object] if quad.predicate == sag("mergedInto") else []
        return list(found)

    @property
    def table_(self) -> pd.DataFrame:
        """One row a step, by ordinal.

        Columns ordinal, kind, text, tool, call_id, arguments (JSON), origin (ordinal of the item
        that the content derives from), position, step; the last two as in the log.
        """
        query = files("sag_research.bloom").joinpath("sql", "prov_steps.rq")
        table = self.sparql(query.read_text(encoding="utf-8"), only=True)
        return table.sort_values("ordinal", kind="stable", ignore_index=True)

    def sparql(
        self, query: str, substitutions: Mapping[str, Any] | None = None, *, only: bool = False
    ) -> pd.DataFrame:
        """Answer a SPARQL query over the run and its ancestors; see :meth:`TraceStore.sparql`.

        Parameters
        ----------
        query : str
        substitutions : mapping, optional
            Values of variables.
        only : bool
            Look at the run's own graph alone.
        """
        graph = self._graph if only else None
        return self.traces.sparql(query, substitutions, graph=graph)

    def to_networkx(self) -> MultiDiGraph:
        """Return the run's graph: nodes by IRI, an edge for each property between two nodes.

        Nodes carry ``types`` and their literals by the last part of the property's name (a list
        where there are several); edges are keyed by that part of theirs.
        """
        import networkx as nx

        graph = nx.MultiDiGraph(run_id=self.run_id)
        for quad in sorted(self.quads(), key=str):
            subject, name = name_of(quad.subject), _short(name_of(quad.predicate))
            graph.add_node(subject)
            if quad.predicate == RDF_TYPE:
                _append(graph.nodes[subject], "types", [_short(name_of(quad.object))])
            elif isinstance(quad.object, NamedNode):
                graph.add_edge(subject, quad.object.value, key=name)
            else:
                _append(graph.nodes[subject], name, term_value(quad.object))
        return graph

    # ---- checking and handing on

    def validate(self, *, shapes: bool | None = None) -> ProvenanceReport:
        """Check the run's graph: SHACL shapes, and that its steps form one line.

        Parameters
        ----------
        shapes : bool, optional
            Apply the SHACL shapes, for which pyshacl must be installed; default: where it is.
            The report says whether they were.
        """
        return validate_graph(self.traces, self.run_id, shapes=shapes)

    def export(self, format: ProvFormat, path: str | PathLike[str]) -> Path:
        """Write the run's provenance to a file, whole or not at all.

        Parameters
        ----------
        format : {"trig", "nquads", "jsonld", "prov-json"}
        path : path-like
        """
        return write_provenance(self.quads(), format, path)

    def hint(self, *, max_chars: int = 2_000) -> Hint:
        """Recall the run in one line for a prompt; see :func:`hint`."""
        return hint(self.traces, self.run_id, max_chars=max_chars)


def _append(attributes: dict[str, Any], name: str, value: Any) -> None:
    if name not in attributes:
        attributes[name] = value
        return
    before = attributes[name]
    known = before if isinstance(before, list) else [before]
    attributes[name] = [*known, *(value if isinstance(value, list) else [value])]


def _short(name: str) -> str:
    """Return the last part of a term's name; of other names all of it."""
    for space in PREFIXES.values():
        local = name.removeprefix(space)
        if local != name and ":" not in local:
            return local
    return name


def provenance_text(quads: Iterable[Quad], format: str) -> bytes:
    """Return quads as text; the same quads give the same bytes.

    Raises
    ------
    UsageError
        If the format is unknown.
    """
    if format not in PROV_FORMATS:
        raise UsageError(f"the format {format!r} is unknown", fix=f"use {', '.join(PROV_FORMATS)}")
    rdf = PROV_FORMATS[format]
    return write_prov_json(quads) if rdf is None else written(quads, rdf)


def write_provenance(quads: Iterable[Quad], format: str, path: str | PathLike[str]) -> Path:
    """Write quads to a file, whole or not at all."""
    data = provenance_text(quads, format)
    with atomic_write(path) as file:
        file.write(data)
    return Path(path)
