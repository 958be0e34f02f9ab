"""A set of quads: patterns, snapshots, SPARQL."""

from __future__ import annotations

import json

import pytest
from pyoxigraph import Literal, NamedNode, Quad

from sag_research.bloom import TraceStore, item_quads
from sag_research.errors import QueryError, SchemaError, UsageError
from tests.bloom.prov_sample import full_log, recorded, scripted

GRAPH, OTHER = NamedNode("urn:g"), NamedNode("urn:h")
A, B, P = NamedNode("urn:a"), NamedNode("urn:b"), NamedNode("urn:p")


@pytest.fixture
def traces():
    return TraceStore([Quad(A, P, B, GRAPH), Quad(B, P, B, GRAPH), Quad(A, P, Literal("x"), OTHER)])


def test_d25_it_is_a_set(traces):
    before = set(traces)
    traces.add(list(before))
    assert set(traces) == before
    assert len(traces) == traces.count() == 3
    assert (traces.count(GRAPH), traces.count("urn:h"), traces.count("urn:none")) == (2, 1, 0)


def test_patterns_leave_out_what_may_be_anything(traces):
    assert len(list(traces.match("urn:a"))) == 2
    assert traces.ask("urn:a", None, "urn:b")
    assert not traces.ask("urn:b", None, None, "urn:h")
    rows = list(traces.select("?who", "urn:p", "?what", GRAPH))
    assert sorted((row["who"].value, row["what"].value) for row in rows) == [
        ("urn:a", "urn:b"), ("urn:b", "urn:b"),
    ]  # fmt: skip


def test_a_variable_that_stands_twice_is_one_node(traces):
    assert [row["x"] for row in traces.select("?x", None, "?x")] == [B]
    assert traces.ask("?x", None, "?x", GRAPH)
    assert not traces.ask("?x", None, "?x", OTHER)


def test_what_is_no_iri_is_refused(traces):
    with pytest.raises(UsageError, match="no IRI"):
        list(traces.match("a b"))


def test_clearing_a_graph_leaves_the_others(traces):
    traces.clear(GRAPH)
    assert traces.graphs() == [OTHER]
    traces.clear()
    assert len(traces) == 0


def test_a_snapshot_holds_the_quads_of_all_graphs(traces):
    traces.add(item_quads("诊断 <t>", scripted()[0]))
    kept = traces.snapshot()
    other = TraceStore([Quad(B, P, A, OTHER)])
    other.restore(kept)
    assert set(other) == set(traces)
    assert other.snapshot() == kept


@pytest.mark.parametrize(
    "change",
    [
        {"type": "something-else"},
        {"version": 2},
        {"quads": 2},
        {"nquads": "<urn:a> nonsense"},
        {"more": 1},
    ],
)
def test_a_foreign_or_damaged_snapshot_changes_nothing(traces, change):
    kept = json.loads(traces.snapshot()) | change
    other = TraceStore([Quad(B, P, A, OTHER)])
    with pytest.raises(SchemaError):
        other.restore(json.dumps(kept).encode())
    assert list(other) == [Quad(B, P, A, OTHER)]


@pytest.mark.parametrize("data", [b"", b"\xff", b"[]", b"<urn:a> <urn:b> <urn:c> ."])
def test_what_is_no_snapshot_is_refused(traces, data):
    with pytest.raises(SchemaError):
        traces.restore(data)
    assert len(traces) == 3


def test_sparql_gives_plain_values():
    traces = recorded("r1", scripted()).traces
    table = traces.sparql("SELECT ?o ?k WHERE { ?s sag:ordinal ?o ; sag:kind ?k } ORDER BY ?o")
    assert table["o"].tolist() == [0, 1, 2, 3, 4]
    assert table["k"].tolist() == ["thought", "action", "observation", "thought", "final"]
    assert traces.sparql("ASK { ?s prov:used ?e }")["ask"].tolist() == [True]
    triples = traces.sparql("CONSTRUCT { ?s sag:kind ?k } WHERE { ?s sag:kind ?k }")
    assert list(triples) == ["subject", "predicate", "object"]
    assert len(triples) == 5


def test_text_comes_into_a_query_by_substitution_only():
    traces = recorded("r1", scripted()).traces
    evil = '" } ; DROP ALL ; SELECT * { ?s ?p "'
    query = "SELECT ?s ?kind WHERE { ?s sag:kind ?kind }"
    assert traces.sparql(query, {"kind": evil}).empty
    assert len(traces.sparql(query, {"kind": "final"})) == 1
    assert len(traces.sparql(query, {"?kind": "final"})) == 1
    with pytest.raises(QueryError, match="select the variables"):
        traces.sparql("SELECT ?s WHERE { ?s sag:kind ?kind }", {"kind": "final"})


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * { SERVICE <http://127.0.0.1:9/> { ?a ?b ?c } }",
        "SELECT * { service\n<http://127.0.0.1:9/> { ?a ?b ?c } }",
        "SELECT * { ?a ?b '#' . SERVICE SILENT ?a { ?a ?b ?c } }",
        "SELECT * { FILTER(1 < 2) SERVICE <http://127.0.0.1:9/> { } }",
        # what looks like a comment, a string or another word, and is none to the query's parser
        "SELECT * { # \rSERVICE <http://127.0.0.1:9/> { ?a ?b ?c } }",
        r"SELECT * { OPTIONAL { ?a ?b id:o\'x } SERVICE <urn:x> { ?a ?b ?c } ?a ?b 'y' }",
        "SELECT * { OPTIONAL { ?a ?b id:o\\#x } SERVICE <urn:x> { ?a ?b ?c }\n }",
        "SELECT * { OPTIONAL { ?a ?b 0SERVICE<http://127.0.0.1:9/> { ?a ?b ?c } } }",
        "PREFIX : <urn:x> PREFIX service: <urn:x> SELECT * { service:x { ?a ?b ?c } }",
        "SELECT * { ?a ?b <urn:a'\u00a0> . SERVICE <urn:x> { ?a ?b ?c } ?a ?b <urn:b'> }",
    ],
)
def test_no_query_asks_another_machine(query, traces):
    with pytest.raises(QueryError, match="SERVICE"):
        traces.sparql(query)


@pytest.mark.parametrize("query", ["SELECT", "DELETE WHERE { ?s ?p ?o }", "SELECT ?x { ?x a b:c }"])
def test_what_is_no_query_is_refused(query, traces):
    with pytest.raises(QueryError):
        traces.sparql(query)
    assert len(traces) == 3


def test_columns_of_numbers_have_their_type(traces):
    found = traces.sparql(
        "SELECT * { VALUES (?n ?x ?t ?gap ?huge) { (1 1.5 true 1 1000000000000000000000)"
        " (2 2.5 false UNDEF 1) } }"
    )
    kinds = {name: str(kind) for name, kind in found.dtypes.items()}
    assert kinds == {
        "n": "int64", "x": "float64", "t": "bool", "gap": "object", "huge": "object"
    }  # fmt: skip
    assert found["huge"].tolist() == [10**21, 1]


def test_service_may_be_the_name_of_something(traces):
    assert traces.sparql("SELECT ?service { ?service sag:service 'SERVICE' } # SERVICE").empty


def test_a_dataset_of_rdflib_shares_the_quads():
    traces = recorded("r1", scripted()).traces
    dataset = traces.dataset()
    found = dataset.query(
        "SELECT ?v WHERE { GRAPH ?g { ?s <http://www.w3.org/ns/prov#value> ?v } }"
    )
    assert sorted(str(row.v) for row in found)[0] == "Based on 3 hits"
    traces.clear()
    assert not list(dataset.quads((None, None, None, None)))


def test_text_is_the_same_whatever_the_order_of_adding():
    from pyoxigraph import RdfFormat

    from sag_research.bloom import Recorder

    recorder = Recorder(full_log())
    recorder.catch_up()
    forwards = list(recorder.traces)
    for format in (RdfFormat.N_QUADS, RdfFormat.TRIG, RdfFormat.JSON_LD):
        texts = {TraceStore(q).write(format) for q in (forwards, forwards[::-1])}
        assert len(texts) == 1
