"""Round trips through every export, other readers of them, and traces that others wrote."""

from __future__ import annotations

import json
import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyoxigraph import DefaultGraph, Literal, NamedNode, Quad

import sag_research as sag
from sag_research.bloom import (
    PROV_FORMATS,
    Action,
    Final,
    Named,
    Observation,
    Recorder,
    RunProvenance,
    Thought,
    TraceItem,
    provenance_text,
    read_quads,
    read_traces,
    trace_items,
    trace_steps,
    write_provenance,
)
from sag_research.bloom._prov_terms import graph_node, prov, step_node
from sag_research.errors import FormatError, UsageError
from sag_research.model import Call, Entity, Run, Step
from tests.bloom.prov_sample import HOSTILE, full_log, line, mentions, named, recorded, scripted

FORMATS = sorted(PROV_FORMATS)
each_format = pytest.mark.parametrize("format", FORMATS)


@pytest.fixture(scope="module")
def traces():
    recorder = Recorder(full_log(), mentions=mentions)
    recorder.catch_up()
    return recorder.traces


def hostile_traces():
    """A run for each hostile text, which is its name, its agent, its tool, and all it says."""
    recorder = Recorder()
    for name in HOSTILE:
        recorder.add_run(Run(run_id=name, goal=name, agent=name, task_id=name))
        steps = [Thought(name), Action(name, {name: [name]}, name), Observation(name, name),
                 Final(name)]  # fmt: skip
        for number, step in enumerate(steps):
            names = [
                Named(Entity("File", name, name), "MUTATED"),
                Named(Entity("Test", name, name)),
            ]
            assert recorder.add(name, TraceItem(number, step), named=names)
    return recorder.traces


@each_format
def test_all_quads_come_back(traces, format):
    assert set(read_quads(provenance_text(traces, format), format)) == set(traces)


@each_format
def test_hostile_names_come_back(format):
    traces = hostile_traces()
    assert len(traces.graphs()) == len(HOSTILE) + 1
    again = read_quads(provenance_text(traces, format), format)
    assert set(again) == set(traces)
    texts = {item.step.text for trace in read_traces(again) for item in trace.items[:1]}
    assert texts == set(HOSTILE)


@each_format
def test_cycles_and_gaps_come_back(format):
    items = line(4)
    traces = recorded("r1", items[:5] + items[7:]).traces
    loop = Quad(step_node("r1", 0), prov("wasInformedBy"), step_node("r1", 4), graph_node("r1"))
    traces.add([loop])
    again = read_quads(provenance_text(traces, format), format)
    assert set(again) == set(traces)
    [trace] = read_traces(again)
    assert sorted(item.ordinal for item in trace.items) == [0, 1, 2, 3, 4, 7, 8, 9, 10, 11]
    assert any("cycle" in fault for fault in trace.faults)


@given(
    run_id=st.text(min_size=1, max_size=12),
    texts=st.lists(st.text(max_size=20), min_size=1, max_size=4),
    order=st.randoms(use_true_random=False),
)
@settings(max_examples=40)
def test_any_text_survives_every_export(run_id, texts, order):
    items = list(trace_items([Step(thought=t, calls=(Call(name=t, text=t),)) for t in texts]))
    order.shuffle(items)
    traces = recorded(run_id, items).traces
    for format in FORMATS:
        text = provenance_text(traces, format)
        assert set(read_quads(text, format)) == set(traces)
        [trace] = read_traces(read_quads(text, format))
        assert (trace.run_id, list(trace.items)) == (run_id, sorted(items, key=lambda i: i.ordinal))
        assert not trace.faults


@each_format
def test_a_file_is_written_whole_and_always_the_same(traces, format, tmp_path):
    run = RunProvenance(traces, "r2")
    path = run.export(format, tmp_path / "out")
    data = path.read_bytes()
    assert data == run.export(format, tmp_path / "again").read_bytes()
    assert set(read_quads(data, format)) == set(run.quads())
    assert write_provenance(traces, format, tmp_path / "all").stat().st_size > len(data)


def test_an_unknown_format_is_refused(traces, tmp_path):
    with pytest.raises(UsageError, match="prov-json"):
        RunProvenance(traces, "r1").export("xml", tmp_path / "x")
    with pytest.raises(UsageError):
        read_quads("", "xml")
    assert not list(tmp_path.iterdir())


@each_format
@pytest.mark.parametrize("data", [b"{", b"[1, 2", b"\xff\xfe", b"<urn:a> <urn:b>"])
def test_what_is_no_such_text_is_refused(format, data):
    with pytest.raises(FormatError):
        read_quads(data, format)


# ---- other readers


def test_rdflib_reads_what_we_write(traces):
    from rdflib import Dataset

    for format, name in (("trig", "trig"), ("nquads", "nquads"), ("jsonld", "json-ld")):
        dataset = Dataset()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about rdflib's own old names
            dataset.parse(data=provenance_text(traces, format), format=name, publicID="urn:x")
        assert sum(1 for _ in dataset.quads((None, None, None, None))) == len(traces), format


def test_the_prov_package_reads_both_forms(traces):
    from prov.model import ProvDocument

    told = RunProvenance(traces, "r1").quads()
    document = ProvDocument.deserialize(
        content=provenance_text(told, "prov-json").decode(), format="json"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about rdflib's own old names
        other = ProvDocument.deserialize(
            content=provenance_text(told, "trig").decode(), format="rdf", rdf_format="trig"
        )
    [bundle] = document.bundles
    [same] = [one for one in other.bundles if "graph" in str(one.identifier)]
    for one in (bundle, same):
        kinds = [str(record.get_type()) for record in one.get_records()]
        counts = {kind: kinds.count(f"prov:{kind}") for kind in
                  ("Activity", "Communication", "Usage", "Generation")}  # fmt: skip
        assert counts == {"Activity": 12, "Communication": 10, "Usage": 3, "Generation": 15 + 1}
    assert document.unified()
    values = {str(v) for r in bundle.get_records() for v in r.get_attribute("prov:value")}
    assert {"thought 0", "TimeoutError 2", "it works"} <= values


def test_prov_json_says_what_is_no_provenance():
    graph = NamedNode("urn:g")
    with pytest.raises(UsageError, match="no activity, entity or agent"):
        provenance_text(
            [Quad(NamedNode("urn:a"), NamedNode("urn:b"), Literal("c"), graph)], "prov-json"
        )
    with pytest.raises(UsageError, match="named graph"):
        provenance_text([Quad(graph, prov("used"), graph, DefaultGraph())], "prov-json")


def test_prov_json_keeps_literals_of_any_kind():
    graph, node = NamedNode("http://x.org/g#1"), NamedNode("http://x.org/a")
    rdf_type = NamedNode("http://www.w3.org/1999/02/22-rdf-syntax-ns#type")
    quads = [Quad(node, rdf_type, prov("Entity"), graph)]
    for value in (Literal("a", language="en"), Literal(1.5), Literal(True), Literal("x"),
                  Literal("y"), NamedNode("urn:other:thing")):  # fmt: skip
        quads.append(Quad(node, NamedNode("http://x.org/p#q"), value, graph))
    assert set(read_quads(provenance_text(quads, "prov-json"), "prov-json")) == set(quads)


# ---- traces that others wrote


def foreign(run, told, base="https://memory.example/ns/prov#"):
    """Write steps in the shape of four predicates, as (name, kind, value, name before)."""
    lines = []
    for name, kind, value, before in told:
        quads = [("kind", json.dumps(kind)), ("value", json.dumps(value, ensure_ascii=False)),
                 ("wasGeneratedBy", f"<urn:run:{run}>")]  # fmt: skip
        if before is not None:
            quads.append(("wasInformedBy", f"<urn:step:{before}>"))
        lines += [f"<urn:step:{name}> <{base}{p}> {o} <urn:run:{run}> ." for p, o in quads]
    return "\n".join(lines)


SCRIPTED = [
    ("0", "thought", "planning to invoke a tool", None),
    ("1", "action", 'lookup({"query": "sag"})', "0"),
    ("2", "observation", '{"hits": 3}', "1"),
    ("3", "thought", "Based on 3 hits", "2"),
    ("4", "final", "Based on 3 hits", "3"),
]


@pytest.mark.parametrize("base", ["https://memory.example/ns/prov#", "urn:trace:", "http://a/b/"])
def test_d19_the_four_predicates_are_read_as_a_run(base):
    told = [SCRIPTED[n] for n in (2, 0, 4, 3, 1)]
    [trace] = read_traces(read_quads(foreign("run-1", told, base), "nquads"))
    assert (trace.run_id, trace.faults) == ("run-1", ())
    assert [item.ordinal for item in trace.items] == [0, 1, 2, 3, 4]
    assert [item.step for item in trace.items] == [
        Thought("planning to invoke a tool"), Action("lookup", {"query": "sag"}),
        Observation('{"hits": 3}'), Thought("Based on 3 hits"), Final("Based on 3 hits"),
    ]  # fmt: skip


def test_a_read_run_goes_into_a_workspace_and_gives_the_same_trace():
    [trace] = read_traces(read_quads(foreign("run-1", SCRIPTED), "nquads"))
    with sag.open(":memory:") as ws:
        run = ws.add(trace.record)
        table = ws.provenance(run).table_
        assert table["kind"].tolist() == [kind for _, kind, _, _ in SCRIPTED]
        assert table["text"].tolist() == [value for _, _, value, _ in SCRIPTED]
        assert [event.type for event in ws.store.read(run)][-1] == "run.completed"
        assert ws.provenance(run).validate().ok


def test_several_graphs_are_several_runs():
    text = foreign("a%20b", SCRIPTED) + "\n" + foreign("c", SCRIPTED[:1])
    assert [trace.run_id for trace in read_traces(read_quads(text, "nquads"))] == ["a b", "c"]


@pytest.mark.parametrize(
    ("told", "fault"),
    [
        ([("0", "thought", "a", "1"), ("1", "thought", "b", "0")], "cycle"),
        ([("0", "thought", "a", None), ("2", "thought", "b", "1")], "not there"),
        ([("0", "thought", "a", None), ("1", "thought", "b", None)], "begin"),
        ([("0", "thought", "a", None), ("1", "thought", "b", "0"), ("2", "thought", "c", "0")],
         "informs 2"),
        ([("0", "plan", "a", None), ("1", "thought", "b", "0")], "unknown kind"),
    ],
)  # fmt: skip
def test_what_is_no_line_is_read_and_said(told, fault):
    [trace] = read_traces(read_quads(foreign("r", told), "nquads"))
    assert any(fault in one for one in trace.faults)
    known = [value for _, kind, value, _ in told if kind != "plan"]
    assert sorted(item.step.text for item in trace.items) == known


def test_a_line_of_ten_thousand_is_read_without_recursion():
    told = [(str(n), "thought", f"t{n}", str(n - 1) if n else None) for n in range(10_000)]
    [trace] = read_traces(read_quads(foreign("r", told[::-1]), "nquads"))
    assert [item.step.text for item in trace.items] == [f"t{n}" for n in range(10_000)]


@pytest.mark.parametrize(
    ("text", "step"),
    [
        ("lookup({})", Action("lookup", {})),
        ("now()", Action("now")),
        ("ls -l", Action("", "ls -l")),
        ("print(x)", Action("", "print(x)")),
        ("f((1))", Action("", "f((1))")),
        ("(1)", Action("", "(1)")),
    ],
)
def test_actions_are_read_as_far_as_they_can_be(text, step):
    [trace] = read_traces(read_quads(foreign("r", [("0", "action", text, None)]), "nquads"))
    assert trace.items[0].step == step


def test_half_characters_are_replaced_in_texts_and_keep_names_apart():
    halves = ["\ud800", "\udfff", "\N{REPLACEMENT CHARACTER}"]
    recorder = Recorder()
    for name in halves:
        assert recorder.add(name, TraceItem(0, Action(name, {name: 1})))
    traces = recorder.traces
    assert len(traces.graphs()) == 3
    found = traces.sparql("SELECT ?tool ?args { ?c sag:toolName ?tool ; sag:arguments ?args }")
    assert set(found["tool"]) == {"\N{REPLACEMENT CHARACTER}"}
    assert {next(iter(json.loads(args))) for args in found["args"]} == set(halves)


WORD = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=8)
ARGS = st.none() | st.dictionaries(WORD, WORD, max_size=2)
CALLS = st.lists(
    st.builds(Call, name=WORD, arguments=ARGS, observation=st.text(max_size=8), id=WORD),
    max_size=3,
).map(tuple)


@given(st.lists(st.builds(Step, thought=WORD, calls=CALLS), max_size=5), st.booleans())
def test_items_make_steps_that_make_the_items(steps, answered):
    steps += [Step(thought="answer", flags=("final",))] if answered else []
    items = list(trace_items(steps))
    assert list(trace_items(trace_steps(items))) == items


def test_graph_of_networkx_has_every_property(traces):
    run = RunProvenance(traces, "r1")
    graph = run.to_networkx()
    edges = [q for q in run.quads() if isinstance(q.object, NamedNode)
             and not q.predicate.value.endswith("#type")]  # fmt: skip
    assert graph.number_of_edges() == len(edges)
    assert graph.has_edge(step_node("r1", 1).value, step_node("r1", 0).value, "wasInformedBy")
    assert graph.nodes[step_node("r1", 1).value]["ordinal"] == 1
    assert graph.nodes[step_node("r1", 1).value]["types"] == ["Activity", "ActionStep"]
    assert named(scripted()[1])


def test_a_table_is_in_the_order_of_the_steps(traces):
    table = RunProvenance(traces, "r1").table_
    assert table["ordinal"].tolist() == list(range(11))
    assert table["origin"].tolist()[:3] == [None, None, 1]
    assert table["arguments"][1] == '{"n": 0}'
    assert "<table>" in RunProvenance(traces, "r1")._repr_html_()
