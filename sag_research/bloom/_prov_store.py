"""A set of quads in memory: patterns, SPARQL, snapshots.

The log is the truth and this is a projection of it, so it lives in memory and is built again.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec
from pyoxigraph import (
    BlankNode,
    DefaultGraph,
    Literal,
    NamedNode,
    Quad,
    QueryBoolean,
    QuerySolutions,
    RdfFormat,
    Store,
    Triple,
    Variable,
    parse,
    serialize,
)

from sag_research.bloom._prov_terms import PREFIXES
from sag_research.errors import QueryError, SchemaError, UsageError

if TYPE_CHECKING:
    import pandas as pd
    from rdflib import Dataset

__all__ = ["Slot", "TraceStore", "name_of", "term_value", "written"]

Slot: TypeAlias = NamedNode | BlankNode | Triple | Literal | DefaultGraph | str | None
"""A place of a pattern: a node, an IRI as text, a variable as text (``?x``), or anything."""

_TYPE: Final = "sag-research/quads"
_VERSION: Final = 1


class _Snapshot(msgspec.Struct, forbid_unknown_fields=True):
    type: str
    version: int
    quads: int
    nquads: str


class TraceStore:
    """A set of quads.

    Examples
    --------
    >>> from sag_research.bloom import Thought, TraceItem, item_quads
    >>> traces = TraceStore(item_quads("r1", TraceItem(0, Thought("look"))))
    >>> traces.add(item_quads("r1", TraceItem(0, Thought("look"))))  # a set: nothing is new
    >>> traces.count(), traces.ask(predicate="http://www.w3.org/ns/prov#value")
    (9, True)
    >>> traces.sparql("SELECT ?kind WHERE { ?step sag:kind ?kind }").to_dict("records")
    [{'kind': 'thought'}]
    """

    def __init__(self, quads: Iterable[Quad] = ()) -> None:
        self.oxigraph = Store()
        """The store itself, for what has no method here."""
        self.oxigraph.bulk_extend(quads)

    def __repr__(self) -> str:
        return f"TraceStore({self.count():,} quads, {len(self.graphs()):,} graphs)"

    # ---- the set

    def add(self, quads: Iterable[Quad]) -> None:
        """Add quads, all or none; those that are there already change nothing."""
        self.oxigraph.extend(quads)

    def replace(self, gone: Iterable[Quad], new: Iterable[Quad]) -> None:
        """Take quads out and put others in."""
        for quad in gone:
            self.oxigraph.remove(quad)
        self.oxigraph.extend(new)

    def __iter__(self) -> Iterator[Quad]:
        return iter(self.oxigraph)

    def __len__(self) -> int:
        return len(self.oxigraph)

    def __contains__(self, quad: Quad) -> bool:
        return quad in self.oxigraph

    def match(
        self,
        subject: Slot = None,
        predicate: Slot = None,
        object: Slot = None,
        graph: Slot = None,
    ) -> Iterator[Quad]:
        """Return the quads of a pattern; what is left out matches anything, in any graph."""
        places = [_node(slot) for slot in (subject, predicate, object, graph)]
        return iter(self.oxigraph.quads_for_pattern(*places))

    def ask(
        self,
        subject: Slot = None,
        predicate: Slot = None,
        object: Slot = None,
        graph: Slot = None,
    ) -> bool:
        """Tell whether a pattern has a quad."""
        return any(True for _ in self.select(subject, predicate, object, graph))

    def select(
        self,
        subject: Slot = None,
        predicate: Slot = None,
        object: Slot = None,
        graph: Slot = None,
    ) -> Iterator[dict[str, Any]]:
        """Yield what the variables of a pattern stand for, once for each quad.

        A variable that stands twice must mean the same node.

        Examples
        --------
        >>> from sag_research.bloom import Thought, TraceItem, item_quads
        >>> traces = TraceStore(item_quads("r1", TraceItem(0, Thought("look"))))
        >>> [row["of"].value for row in traces.select("?s", "urn:sag:vocab:partOfRun", "?of")]
        ['urn:sag:run:r1']
        """
        slots = (subject, predicate, object, graph)
        names = [slot[1:] if isinstance(slot, str) and slot[:1] == "?" else None for slot in slots]
        for quad in self.match(*slots):
            found: dict[str, Any] = {}
            for name, node in zip(names, quad, strict=True):
                if name is not None and found.setdefault(name, node) != node:
                    break
            else:
                yield found

    def count(self, graph: Slot = None) -> int:
        """Count the quads of a graph, or all."""
        return len(self.oxigraph) if graph is None else sum(1 for _ in self.match(graph=graph))

    def clear(self, graph: Slot = None) -> None:
        """Empty a graph, or everything."""
        node = _node(graph)
        if node is None:
            self.oxigraph.clear()
        else:
            self.oxigraph.remove_graph(node)

    def graphs(self) -> list[NamedNode]:
        """Return the names of the graphs."""
        named = [node for node in self.oxigraph.named_graphs() if isinstance(node, NamedNode)]
        return sorted(named, key=lambda node: node.value)

    # ---- keeping

    def snapshot(self) -> bytes:
        """Return all quads, of all graphs, in a form that :meth:`restore` takes."""
        lines = self.oxigraph.dump(format=RdfFormat.N_QUADS) or b""
        text = "\n".join(sorted(lines.decode("utf-8").splitlines()))
        return msgspec.json.encode(_Snapshot(_TYPE, _VERSION, len(self), text))

    def restore(self, snapshot: bytes) -> None:
        """Hold what a snapshot holds, and nothing else.

        Raises
        ------
        SchemaError
            If it is of another type or version, or damaged; nothing is changed then.
        """
        try:
            kept = msgspec.json.decode(snapshot, type=_Snapshot)
        except msgspec.DecodeError as error:
            raise SchemaError("this is no snapshot of quads", why=str(error)) from error
        if (kept.type, kept.version) != (_TYPE, _VERSION):
            raise SchemaError(
                f"a snapshot of type {kept.type!r}, version {kept.version}, is not understood",
                fix=f"give one of type {_TYPE!r}, version {_VERSION}",
            )
        try:
            quads = set(parse(kept.nquads.encode("utf-8"), format=RdfFormat.N_QUADS))
        except SyntaxError as error:
            raise SchemaError("the snapshot is damaged", why=str(error)) from error
        if len(quads) != kept.quads:
            why = f"it holds {len(quads)} quads and says {kept.quads}"
            raise SchemaError("the snapshot is damaged", why=why)
        self.oxigraph.clear()
        self.oxigraph.bulk_extend(quads)

    # ---- SPARQL

    def sparql(
        self, query: str, substitutions: Mapping[str, Any] | None = None, *, graph: Slot = None
    ) -> pd.DataFrame:
        """Answer a SPARQL query with a DataFrame.

        Parameters
        ----------
        query : str
            ``SELECT``, ``ASK`` (one column ``ask``), ``CONSTRUCT`` or ``DESCRIBE`` (columns
            subject, predicate, object). The prefixes ``prov sag id pplan rdf rdfs xsd`` are
            declared. Nothing is fetched: ``SERVICE`` is refused.
        substitutions : mapping, optional
            Values of variables, by name: the safe way to bring text into a query. The variables
            must be among those selected. A text is a literal; give a ``NamedNode`` for an IRI.
        graph : node or IRI, optional
            The only graph that patterns outside ``GRAPH`` look at; default: all.

        Raises
        ------
        QueryError
            If it is no SPARQL, or cannot be answered.

        Notes
        -----
        A column of numbers has their type where all are known; any other holds objects.
        """
        import pandas as pd

        answer = self._answer(query, substitutions or {}, _node(graph))
        if isinstance(answer, QueryBoolean):
            return pd.DataFrame({"ask": [bool(answer)]})
        if isinstance(answer, QuerySolutions):
            columns = [variable.value for variable in answer.variables]
        else:
            columns = ["subject", "predicate", "object"]
        try:
            rows = [[term_value(term) for term in row] for row in answer]
        except OSError as error:
            raise QueryError("the query failed", why=str(error)) from error
        table = pd.DataFrame(rows, columns=columns, dtype=object)
        kinds = {name: kind for name in columns if (kind := _plain_type(table[name]))}
        return table.astype(kinds)

    def _answer(self, query: str, given: Mapping[str, Any], graph: Any) -> Any:
        if _SERVICE.search(_QUOTED.sub(" ", query)):
            raise QueryError(
                "SERVICE is refused",
                why="it would ask another machine",
                fix="fetch the data first, and add it with TraceStore.add; if it is the name of a "
                "prefix, use another one",
            )
        terms = {Variable(name.lstrip("?$")): _term(value) for name, value in given.items()}
        try:
            return self.oxigraph.query(
                query,
                prefixes=PREFIXES,
                substitutions=terms,
                use_default_graph_as_union=graph is None,
                default_graph=graph,
            )
        except RuntimeError as error:
            raise QueryError(
                "the SPARQL query was refused",
                why=str(error),
                fix="select the variables that you give values for",
            ) from error
        except (SyntaxError, ValueError, OSError) as error:
            why = str(error).strip()
            raise QueryError("the SPARQL query was refused", why=why) from error

    def dataset(self) -> Dataset:
        """Return an rdflib Dataset on these very quads.

        Paths of rdflib's own (``transitive_objects``) recurse: use :meth:`sparql` for chains.
        """
        from oxrdflib import OxigraphStore
        from rdflib import Dataset

        return Dataset(store=OxigraphStore(store=self.oxigraph))

    def write(self, format: RdfFormat, graphs: Iterable[NamedNode] | None = None) -> bytes:
        """Return quads as text, sorted, so that the same quads give the same bytes.

        Parameters
        ----------
        format : pyoxigraph.RdfFormat
            One that has graphs: TriG, N-Quads or JSON-LD.
        graphs : iterable of NamedNode, optional
            Only these; default: all.
        """
        found = self if graphs is None else (q for g in graphs for q in self.match(graph=g))
        return written(found, format)


def written(quads: Iterable[Quad], format: RdfFormat) -> bytes:
    """Return quads as text, sorted."""
    prefixes = None if format == RdfFormat.N_QUADS else PREFIXES
    return serialize(sorted(quads, key=_order), format=format, prefixes=prefixes) or b""


def _order(quad: Quad) -> tuple[str, str, str, str]:
    return str(quad.graph_name), str(quad.subject), quad.predicate.value, str(quad.object)


# What the word SERVICE may stand in without being the keyword, cut as the query language cuts it:
# IRIs, strings, comments, escapes in names, variables, and names behind a prefix. A prefix of that
# name is refused too: the parser takes `service:x {` for a call of the service `:x`.
_QUOTED: Final = re.compile(
    r"""<(?:[^<>"{}|^`\\\x00-\x20]|\\u[0-9A-Fa-f]{4}|\\U[0-9A-Fa-f]{8})*>"""
    r'''|"""(?:[^"\\]|\\.|"(?!""))*"""|"(?:[^"\\\n\r]|\\.)*"'''
    r"""|'''(?:[^'\\]|\\.|'(?!''))*'''|'(?:[^'\\\n\r]|\\.)*'"""
    r"|#[^\n\r]*|\\.|[?$]\w+|:\w+",
    re.DOTALL,
)
_SERVICE: Final = re.compile(r"service", re.IGNORECASE)


def _node(slot: Slot) -> Any:
    if not isinstance(slot, str):
        return slot
    if slot.startswith("?"):
        return None
    try:
        return NamedNode(slot)
    except ValueError as error:
        raise UsageError(
            f"{slot[:80]!r} is no IRI", why=str(error), fix="give a full IRI, or ?name"
        ) from None


def _term(value: Any) -> Any:
    return Literal(value) if isinstance(value, (str, bool, int, float)) else value


def _plain_type(column: Any) -> str | None:
    """Return the type of a column of numbers, all known, that fit; of any other None."""
    kinds = {type(value) for value in column}
    if kinds == {int} and all(-(2**63) <= value < 2**63 for value in column):
        return "int64"
    return "float64" if kinds == {float} else "bool" if kinds == {bool} else None


def name_of(term: Any) -> str:
    """Return the text of a node: an IRI, the id of a blank node, a literal's value."""
    return str(getattr(term, "value", term))


_XSD: Final = PREFIXES["xsd"]
_NUMBERS: Final = frozenset({f"{_XSD}integer", f"{_XSD}int", f"{_XSD}long"})
_FLOATS: Final = frozenset({f"{_XSD}double", f"{_XSD}float", f"{_XSD}decimal"})


def term_value(term: Any) -> Any:
    """Return a node as a plain value: an IRI as text, a literal as its type says.

    Examples
    --------
    >>> term_value(Literal(3)), term_value(NamedNode("urn:a")), term_value(None)
    (3, 'urn:a', None)
    """
    if not isinstance(term, Literal):
        return None if term is None else getattr(term, "value", str(term))
    kind = term.datatype.value
    try:
        if kind in _NUMBERS:
            return int(term.value)
        if kind in _FLOATS:
            return float(term.value)
        if kind == f"{_XSD}boolean":
            return term.value in ("true", "1")
        if kind == f"{_XSD}dateTime":
            return dt.datetime.fromisoformat(term.value)
    except ValueError:  # a literal may say what it is not
        return term.value
    return term.value
