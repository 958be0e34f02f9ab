"""What valid provenance is, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyoxigraph import Literal, Quad

import sag_research
from sag_research.bloom import (
    Action,
    Final,
    Observation,
    Recorder,
    RunProvenance,
    Thought,
    TraceItem,
    TraceStore,
    item_quads,
    validate_graph,
)
from sag_research.bloom._prov_terms import (
    DATE_TIME,
    RDF_TYPE,
    content_node,
    graph_node,
    prov,
    sag,
    step_node,
)
from sag_research.errors import MissingDataError, RunNotFoundError
from tests.bloom.prov_sample import full_log, line, mentions, recorded, scripted

GRAPH = graph_node("r1")
STEP = [step_node("r1", n) for n in range(3)]
CONTENT = [content_node("r1", n) for n in range(3)]
CYCLE = "ASK { ?s prov:wasInformedBy+ ?s }"
ONE_ROOT = """ASK { { SELECT (count(?s) AS ?n) { ?s sag:ordinal ?o .
    FILTER NOT EXISTS { ?s prov:wasInformedBy/sag:ordinal ?b } } } FILTER(?n = 1) }"""
CONTIGUOUS = """ASK { { SELECT (count(DISTINCT ?o) AS ?n) (max(?o) AS ?last) (count(?s) AS ?all)
    { ?s sag:ordinal ?o } } FILTER(?n = ?last + 1 && ?n = ?all) }"""
TURN_GOES_ON = """ASK { ?s sag:kind "final" ; sag:ordinal ?o . ?t sag:ordinal ?p ; sag:kind ?k
    FILTER(?p = ?o + 1 && ?k IN ("observation", "final")) }"""


def rules(traces, run_id="r1", **options):
    return {fault.rule for fault in validate_graph(traces, run_id, **options).faults}


def said(*quads):
    return [Quad(*quad, GRAPH) for quad in quads]


def test_all_runs_of_a_log_are_valid():
    recorder = Recorder(full_log(), mentions=mentions)
    recorder.catch_up()
    for run_id in ("r1", "r2", "r3"):
        report = RunProvenance(recorder.traces, run_id).validate()
        assert report.ok, report.table_
        assert bool(report)
        assert report.shapes
        assert report.table_.empty
    assert repr(report) == "ProvenanceReport(r3: valid, 3 steps, 74 quads)"


def test_a_step_that_is_its_own_content_is_refused():
    """One node that is both an activity and an entity, as is often written."""
    quads = []
    for n in range(3):
        node = step_node("r1", n)
        quads += said(
            (node, RDF_TYPE, prov("Entity")),
            (node, RDF_TYPE, prov("Activity")),
            (node, sag("kind"), Literal("thought")),
            (node, sag("ordinal"), Literal(n)),
            (node, prov("wasGeneratedBy"), graph_node("run")),
            (node, prov("startedAtTime"), Literal("2026-01-01T00:00:00Z", datatype=DATE_TIME)),
        )
        quads += said((node, prov("wasInformedBy"), step_node("r1", n - 1))) if n else []
    report = validate_graph(TraceStore(quads), "r1")
    assert not report.ok
    assert any("no activity" in fault.message for fault in report.faults)
    assert {fault.node for fault in report.faults if fault.rule == "NotConstraintComponent"} == {
        step_node("r1", n).value for n in range(3)
    }


@pytest.mark.parametrize(
    ("quads", "rule"),
    [
        (said((STEP[1], prov("wasInformedBy"), CONTENT[0])), "wasInformedBy"),
        (said((CONTENT[1], prov("wasGeneratedBy"), STEP[0])), "wasGeneratedBy"),
        (said((STEP[1], prov("used"), STEP[0])), "used"),
        (said((CONTENT[1], prov("wasDerivedFrom"), STEP[0])), "wasDerivedFrom"),
        (said((STEP[1], sag("kind"), Literal("plan"))), "kind"),
        (said((STEP[1], sag("ordinal"), Literal(-1))), "ordinal"),
        (said((STEP[1], sag("ordinal"), Literal("1"))), "ordinal"),
        (said((CONTENT[1], prov("value"), Literal("more"))), "value"),
        (
            said(
                (STEP[0], prov("startedAtTime"),
                 Literal("2026-01-02T00:00:00Z", datatype=DATE_TIME)),
                (STEP[0], prov("endedAtTime"),
                 Literal("2026-01-01T00:00:00Z", datatype=DATE_TIME)),
            ),
            "startedAtTime",
        ),
    ],
)  # fmt: skip
def test_the_shapes_find_what_a_node_may_not_say(quads, rule):
    traces = recorded("r1", scripted()).traces
    assert rules(traces) == set()
    traces.add(quads)
    assert rule in rules(traces)


@pytest.mark.parametrize("gone", ["ordinal", "kind", "partOfRun"])
def test_a_step_must_say_what_it_is(gone):
    traces = recorded("r1", scripted()).traces
    traces.replace(list(traces.match(step_node("r1", 2), sag(gone))), [])
    assert gone in rules(traces)


# ---- the line of steps


def test_a_gap_is_found():
    items = scripted()
    traces = recorded("r1", items[:2] + items[3:]).traces
    report = validate_graph(traces, "r1", shapes=False)
    assert {(fault.rule, fault.message) for fault in report.faults} == {
        ("ordinals", "no step has the ordinal 2"),
        ("root", "2 steps are informed by no step of the run, not 1"),
        ("root", "the first step has the ordinal 3, not 0"),
    }
    assert not traces.sparql(CONTIGUOUS)["ask"][0]
    assert not traces.sparql(ONE_ROOT)["ask"][0]


def test_a_beginning_that_is_missing_is_found():
    traces = recorded("r1", scripted()[2:]).traces
    assert rules(traces, shapes=False) == {"ordinals", "root"}


def test_a_cycle_is_found_and_ends():
    traces = recorded("r1", scripted()).traces
    assert not traces.sparql(CYCLE)["ask"][0]
    traces.add(said((step_node("r1", 0), prov("wasInformedBy"), step_node("r1", 4))))
    report = validate_graph(traces, "r1", shapes=False)
    assert "cycle" in {fault.rule for fault in report.faults}
    assert len([fault for fault in report.faults if fault.rule == "cycle"]) == 1
    assert traces.sparql(CYCLE)["ask"][0]


def test_a_step_that_informs_itself_is_a_cycle():
    traces = recorded("r1", scripted()).traces
    traces.add(said((step_node("r1", 2), prov("wasInformedBy"), step_node("r1", 2))))
    assert "cycle" in rules(traces, shapes=False)


def test_an_ordinal_is_taken_once():
    traces = recorded("r1", scripted()).traces
    traces.add(said((content_node("r1", 9), sag("ordinal"), Literal(2))))
    assert "ordinals" in rules(traces, shapes=False)


@pytest.mark.parametrize("after", [Final("b"), Observation("b")])
def test_a_final_ends_its_turn(after):
    traces = recorded("r1", [TraceItem(0, Final("a")), TraceItem(1, after)]).traces
    assert rules(traces, shapes=False) == {"final"}
    assert traces.sparql(TURN_GOES_ON)["ask"][0]


@pytest.mark.parametrize("after", [Thought("b"), Action("b")])
def test_an_answer_may_be_refused_and_given_again(after):
    items = [TraceItem(0, Final("a")), TraceItem(1, after), TraceItem(2, Final("c"))]
    traces = recorded("r1", items).traces
    assert RunProvenance(traces, "r1").validate().ok
    assert not traces.sparql(TURN_GOES_ON)["ask"][0]


@given(st.data())
@settings(max_examples=60)
def test_the_rules_say_what_sparql_says(data):
    """The function and the queries were written apart; any set of steps and edges is a trial."""
    items = line(2)
    kept = data.draw(st.lists(st.sampled_from(items), min_size=1, unique_by=lambda i: i.ordinal))
    traces = recorded("r1", kept, run=False).traces
    ends = st.sampled_from([step_node("r1", item.ordinal) for item in kept])
    for one, other in data.draw(st.lists(st.tuples(ends, ends), max_size=2)):
        traces.add(said((one, prov("wasInformedBy"), other)))
    found = rules(traces, shapes=False)
    assert ("cycle" in found) == traces.sparql(CYCLE)["ask"][0]
    assert ("ordinals" not in found) == traces.sparql(CONTIGUOUS)["ask"][0]
    if "root" not in found:
        assert traces.sparql(ONE_ROOT)["ask"][0]


def test_a_line_of_ten_thousand_is_walked_without_recursion():
    quads = [q for n in range(10_000) for q in item_quads("r1", TraceItem(n, Thought("hm")))]
    traces = TraceStore(quads)
    assert rules(traces, shapes=False) == set()
    traces.add(said((step_node("r1", 0), prov("wasInformedBy"), step_node("r1", 9_999))))
    assert "cycle" in rules(traces, shapes=False)


def test_without_pyshacl_the_report_says_so(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "pyshacl", None)
    traces = recorded("r1", scripted()).traces
    monkeypatch.setattr("sag_research.bloom._prov_check.find_spec", lambda name: None)
    with pytest.raises(MissingDataError, match="shapes=False"):
        validate_graph(traces, "r1", shapes=True)
    report = validate_graph(traces, "r1")
    assert not report.shapes
    assert repr(report).endswith("SHACL not applied)")


def test_a_run_that_was_not_recorded_is_no_empty_one():
    with pytest.raises(RunNotFoundError):
        RunProvenance(recorded("r1", scripted()).traces, "r9")


def test_faults_are_escaped_on_a_page():
    traces = recorded("<img src=x>", scripted()[2:]).traces
    report = validate_graph(traces, "<img src=x>", shapes=False)
    assert "<img" not in report._repr_html_()


def test_every_fourth_run_of_the_export_job_is_valid():
    with sag_research.open(":memory:") as ws:
        ws.ingest(sag_research.bundled("export_job"), progress=False)
        runs = ws.runs().run_id.tolist()[::4]
        answers = [(ws.provenance(run).table_["kind"] == "final").sum() for run in runs]
        assert max(answers) > 1  # the service's host refuses wrong answers
        assert all(ws.provenance(run).validate(shapes=False).ok for run in runs)
