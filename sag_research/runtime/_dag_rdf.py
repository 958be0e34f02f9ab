"""DAG documents as RDF, for rdflib and pyoxigraph, and back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from sag_research._text import clip
from sag_research.runtime._dag_document import Document, DocumentError, Fault, Route
from sag_research.runtime._dag_jsonld import KINDS, SAID, Reading, context, document_text
from sag_research.runtime._dag_validate import is_iri

if TYPE_CHECKING:
    import pyoxigraph
    import rdflib

__all__ = ["document_from_rdf", "document_graph", "document_triples"]

_RDF_TYPE: Final = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"
_XSD_STRING: Final = "http://www.w3.org/2001/XMLSchema#string"


def document_graph(document: Document) -> rdflib.Graph:
    """Return a document as an rdflib graph.

    Raises
    ------
    DocumentError
        If there is something in it that RDF cannot hold, such as a relative IRI.
    """
    import pyoxigraph as ox
    import rdflib

    def term(found: Any) -> rdflib.term.Node:
        if isinstance(found, ox.NamedNode):
            return rdflib.URIRef(found.value)
        if isinstance(found, ox.BlankNode):
            return rdflib.BNode(found.value)
        plain = found.datatype.value == _XSD_STRING  # rdflib finds a typed one unlike a plain one
        return rdflib.Literal(found.value, datatype=None if plain else found.datatype.value)

    graph = rdflib.Graph()
    for subject, predicate, found in document_triples(document):
        graph.add((term(subject), term(predicate), term(found)))
    return graph


def document_triples(document: Document) -> list[pyoxigraph.Triple]:
    """Return a document as triples for pyoxigraph.

    Raises
    ------
    DocumentError
        If there is something in it that RDF cannot hold, such as a relative IRI.
    """
    import pyoxigraph as ox

    return [quad.triple for quad in ox.parse(_for_rdf(document), format=ox.RdfFormat.JSON_LD)]


def _for_rdf(document: Document) -> str:
    routes = (*document.routes, *(Route("", *entry) for entry in document.entrypoints.items()))
    named: list[tuple[str, str, str]] = [("", "", document.id)]
    named += [(placement.id, "", placement.id) for placement in document.placements]
    named += routes
    named += [(p.id, "", str(getattr(p, "dag", document.id))) for p in document.placements]
    faults = [
        Fault(document.id, placement, port, "bad-iri", f"{clip(iri, 120)!r} is no absolute IRI",
              "write one such as urn:sag:dag:name")
        for placement, port, iri in named if not is_iri(iri)
    ]  # fmt: skip
    if faults:
        raise DocumentError(f"document {clip(document.name)!r} cannot be RDF", tuple(faults))
    return document_text(document)


_About: TypeAlias = dict[str, list[str]]
"""What is said of one thing, by property."""


def document_from_rdf(
    graph: rdflib.Graph | Iterable[pyoxigraph.Triple | pyoxigraph.Quad], iri: str = ""
) -> Document:
    """Read a document from RDF.

    Parameters
    ----------
    graph : rdflib.Graph, or iterable of pyoxigraph.Triple or Quad
        A pyoxigraph store is one such. Graph names are not looked at.
    iri : str, optional
        Which document; needed where there are several.

    Returns
    -------
    Document
        RDF has no order, so placements are sorted by IRI, routes by port and entries by label.

    Raises
    ------
    DocumentError
        If there is no such document.
    """
    about = _facts(graph)
    wanted = _term_iri("DAG")
    held = [s for s, said in about.items() if wanted in said.get(_RDF_TYPE, [])]
    found = [s for s in held if iri in {"", s}]
    if len(found) != 1:
        shown = ", ".join(clip(s, 80) for s in sorted(held)) or "none"
        raise DocumentError(f"{len(found)} documents are meant, the graph holds {shown}")
    said, reading = about[found[0]], Reading()
    raw = {
        "@id": found[0], "@type": "DAG", **_literals(said, ("name", "version")),
        "entrypoints": _links(about, said, "entrypoints", "label"),
        "nodes": [_placement_raw(about, node, reading)
                  for node in sorted(said.get(_term_iri("nodes"), []))],
    }  # fmt: skip
    return reading.document(raw)


def _placement_raw(about: Mapping[str, _About], iri: str, reading: Reading) -> dict[str, Any]:
    said = about.get(iri, {})
    kinds = {_term_iri(kind): kind for kind in KINDS}
    types = [kinds[kind] for kind in said.get(_RDF_TYPE, []) if kind in kinds]
    raw = {"@id": iri, **_literals(said, ("name", *SAID))}
    if types:
        raw["@type"] = types[0] if len(types) == 1 else ", ".join(sorted(types))
    if routes := _links(about, said, "routes", "port"):
        raw["routes"] = routes
    settings = [reading.json(text) for text in said.get(_term_iri("settings"), [])]
    if settings:
        raw["settings"] = settings[0] if len(settings) == 1 else settings
    return raw


def _links(about: Mapping[str, _About], said: _About, key: str, by: str) -> list[dict[str, Any]]:
    links = [
        _literals(about.get(node, {}), (by, "target")) for node in said.get(_term_iri(key), [])
    ]
    return sorted(links, key=lambda link: str(link.get(by)))


def _literals(said: _About, keys: Iterable[str]) -> dict[str, Any]:
    """Return texts by key; of a property that is said twice, both, which is then a fault."""
    found = {key: sorted(said.get(_term_iri(key), [])) for key in keys}
    return {key: texts[0] if len(texts) == 1 else texts for key, texts in found.items() if texts}


def _term_iri(term: str) -> str:
    return str(context()[term]["@id"])


def _facts(graph: Any) -> dict[str, _About]:
    about: dict[str, _About] = {}
    for subject, predicate, found in _triples(graph):
        about.setdefault(subject, {}).setdefault(predicate, []).append(found)
    return about


def _triples(graph: Any) -> Iterator[tuple[str, str, str]]:
    """Yield the triples of a graph of either library."""
    import rdflib

    if isinstance(graph, rdflib.Dataset):
        graph = graph.quads()
    for triple in graph:
        if isinstance(triple, tuple):
            subject, predicate, found = triple[:3]
        else:
            subject, predicate, found = triple.subject, triple.predicate, triple.object
        yield _text(subject), _text(predicate), _text(found)


def _text(term: Any) -> str:
    """Return the text of a term of either library; a blank node begins with ``_:``."""
    import pyoxigraph as ox
    import rdflib

    mark = "_:" if isinstance(term, (ox.BlankNode, rdflib.BNode)) else ""
    if isinstance(term, (ox.NamedNode, ox.BlankNode, ox.Literal)):
        return mark + term.value
    return mark + str(term)
