"""Documents as RDF: nothing is lost on the way there and back, whichever library reads."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pyoxigraph as ox
import pytest
import rdflib
from hypothesis import given, settings
from rdflib.compare import isomorphic

from sag_research.runtime import (
    Document,
    DocumentError,
    Terminal,
    bundled_document,
    document_from_rdf,
    document_graph,
    document_text,
    document_triples,
)
from tests.runtime.documents import by_iri, documents, place, plain_form, sample, single, terminal

NAMES = ["react-agent", "react-agent-memory-trace"]
RDFLIB_WARNS_OF_ITSELF = pytest.mark.filterwarnings("ignore:ConjunctiveGraph is deprecated")
COUNT_ROUTES = """
    SELECT (COUNT(*) AS ?n) WHERE {
      ?source <urn:sag:vocab:route> ?route .
      ?route <urn:sag:vocab:port> ?port ; <urn:sag:vocab:target> ?target .
    }
"""


def read_by_rdflib(document: Document) -> rdflib.Graph:
    """Return what rdflib's own parser makes of a document's text."""
    return rdflib.Graph().parse(data=document_text(document), format="json-ld")


def as_rdflib(triples: list[Any]) -> rdflib.Graph:
    """Return what pyoxigraph holds as a graph of rdflib."""
    text = ox.serialize(triples, format=ox.RdfFormat.N_TRIPLES)
    assert text is not None
    return rdflib.Graph().parse(data=text, format="nt")


@pytest.mark.parametrize(("name", "routes"), [(NAMES[0], 32), (NAMES[1], 7)])
def test_d5_every_route_is_there_in_both_libraries(name: str, routes: int) -> None:
    document = bundled_document(name)
    [row] = document_graph(document).query(COUNT_ROUTES)
    assert int(row[0]) == routes  # type: ignore[index]
    store = ox.Store()
    store.extend(ox.Quad(*triple) for triple in document_triples(document))
    [found] = store.query(COUNT_ROUTES)  # type: ignore[misc]
    assert int(found["n"].value) == routes
    assert len(document.routes) == routes


@RDFLIB_WARNS_OF_ITSELF
@pytest.mark.parametrize("name", NAMES)
def test_d5_both_libraries_read_the_same(name: str) -> None:
    document = bundled_document(name)
    graph, triples = read_by_rdflib(document), document_triples(document)
    assert len(graph) == len(triples)
    assert isomorphic(graph, as_rdflib(triples))
    assert isomorphic(graph, document_graph(document))


@RDFLIB_WARNS_OF_ITSELF
@settings(max_examples=40, deadline=None)
@given(documents())
def test_d5_there_and_back_nothing_is_lost(document: Document) -> None:
    graph, triples = read_by_rdflib(document), document_triples(document)
    assert document_from_rdf(graph) == document_from_rdf(triples) == by_iri(document)
    again = document_graph(document_from_rdf(triples))
    assert isomorphic(graph, again)
    assert isomorphic(again, as_rdflib(triples))


@RDFLIB_WARNS_OF_ITSELF
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("format", ["json-ld", "turtle", "xml", "nt"])
def test_d5_what_rdflib_writes_is_read_again(name: str, format: str) -> None:
    graph = document_graph(bundled_document(name))
    again = rdflib.Graph().parse(data=graph.serialize(format=format), format=format)
    assert isomorphic(graph, again)
    assert document_from_rdf(again) == by_iri(bundled_document(name))


@pytest.mark.parametrize("name", NAMES)
def test_d5_what_pyoxigraph_writes_is_read_again(name: str) -> None:
    triples = document_triples(bundled_document(name))
    for format in (ox.RdfFormat.TURTLE, ox.RdfFormat.N_TRIPLES):
        text = ox.serialize(triples, format=format)
        assert text is not None
        read = [quad.triple for quad in ox.parse(text, format=format)]
        assert document_from_rdf(read) == by_iri(bundled_document(name))


@RDFLIB_WARNS_OF_ITSELF
def test_d5_plain_maps_would_lose_all_routes() -> None:
    raw = plain_form(bundled_document("react-agent"))
    raw["@context"] = {"nodes": "urn:x:nodes", "outputs": "urn:x:outputs"}
    graph = rdflib.Graph().parse(data=json.dumps(raw), format="json-ld")
    placements = {placement.id for placement in bundled_document("react-agent").placements}
    assert {str(o) for o in graph.objects(None, rdflib.URIRef("urn:x:nodes"))} == placements
    outputs = [*graph.objects(None, rdflib.URIRef("urn:x:outputs"))]
    assert len(outputs) == 10
    assert not [o for way in outputs for _, _, o in graph.triples((way, None, None))]


def test_d5_several_documents_in_one_graph_are_told_apart() -> None:
    documents = [bundled_document(name) for name in NAMES]
    graph = rdflib.Dataset()
    for document in documents:
        for triple in document_graph(document):
            graph.graph(rdflib.URIRef(document.id + ":graph")).add(triple)
    for document in documents:
        assert document_from_rdf(graph, document.id) == by_iri(document)
    with pytest.raises(DocumentError, match="2 documents are meant"):
        document_from_rdf(graph)
    with pytest.raises(DocumentError, match="0 documents are meant"):
        document_from_rdf(graph, "urn:x:other")
    with pytest.raises(DocumentError, match="holds none"):
        document_from_rdf([])


def test_d5_a_store_is_read() -> None:
    document = bundled_document("react-agent")
    store = ox.Store()
    graph = ox.NamedNode(document.id + ":graph")
    store.extend(ox.Quad(*triple, graph) for triple in document_triples(document))
    assert document_from_rdf(store) == by_iri(document)


def test_d5_relative_iris_are_refused_and_do_not_become_files() -> None:
    document = sample(Terminal("end", "end", "completed"), single("a", done="b c"), first="end")
    for convert in (document_graph, document_triples):
        with pytest.raises(DocumentError) as caught:
            convert(document)
        assert [(f.placement, f.port) for f in caught.value.faults] == [
            ("end", ""), ("", "main"),
        ]  # fmt: skip


@RDFLIB_WARNS_OF_ITSELF
@pytest.mark.parametrize(
    "id", ["name:x", "nodes:x", "sag:x", "rdf:type", "http://x.org/a/../b#", "a:é"]
)
def test_d5_iris_stay_as_they_are(id: str) -> None:
    document = sample(Terminal(id, "end", "completed"))
    assert document_from_rdf(read_by_rdflib(document)) == document
    assert document_from_rdf(document_graph(document)) == document
    assert document_from_rdf(document_triples(document)) == document


def test_d5_a_graph_that_says_two_things_is_refused() -> None:
    graph = document_graph(sample(single("first", done="end"), terminal()))
    end, term = rdflib.URIRef(place("end")), "urn:sag:vocab:"
    graph.add((end, rdflib.URIRef(f"{term}outcome"), rdflib.Literal("failed")))
    route = graph.value(rdflib.URIRef(place("first")), rdflib.URIRef(f"{term}route"))
    assert route is not None
    graph.remove((route, rdflib.URIRef(f"{term}target"), None))
    with pytest.raises(DocumentError) as caught:
        document_from_rdf(graph)
    assert {(f.code, f.placement) for f in caught.value.faults} == {
        ("bad-value", place("end")), ("bad-value", place("first")),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("texts", "code"),
    [(['{"strategy": "append", "strategy": "map"}'], "duplicate-key"), (["{}", "[]"], "bad-value")],
)
def test_d5_settings_that_say_two_things_are_refused(texts: list[str], code: str) -> None:
    graph = document_graph(bundled_document("react-agent-memory-trace"))
    settings = rdflib.URIRef("urn:sag:vocab:settings")
    gather = rdflib.URIRef("urn:sag:dag:react-agent-memory-trace:collect-steps")
    graph.remove((gather, settings, None))
    for text in texts:
        graph.add((gather, settings, rdflib.Literal(text, datatype=rdflib.RDF.JSON)))
    with pytest.raises(DocumentError) as caught:
        document_from_rdf(graph)
    assert code in {fault.code for fault in caught.value.faults}


def test_d5_a_placement_of_two_kinds_is_refused() -> None:
    graph = document_graph(sample(terminal()))
    kind = rdflib.URIRef("urn:sag:vocab:PhaseNode")
    graph.add((rdflib.URIRef(place("end")), rdflib.RDF.type, kind))
    with pytest.raises(DocumentError, match="'PhaseNode, TerminalNode'"):
        document_from_rdf(graph)


def test_d5_a_placement_that_nothing_is_said_of_is_refused() -> None:
    graph = document_graph(sample(terminal()))
    graph.remove((rdflib.URIRef(place("end")), None, None))
    with pytest.raises(DocumentError, match="there is no kind"):
        document_from_rdf(graph)


@RDFLIB_WARNS_OF_ITSELF
def test_d5_hostile_text_stays_text() -> None:
    odd = "\"'<>\\\n\t\r\u2028}]{[é\u202e@json"
    document = msgspec.structs.replace(sample(Terminal(place("end"), odd, "completed")), name=odd)
    assert document_from_rdf(read_by_rdflib(document)) == document
    assert document_from_rdf(document_graph(document)) == document
    assert document_from_rdf(document_triples(document)) == document
    assert json.loads(document_text(document))["name"] == odd
