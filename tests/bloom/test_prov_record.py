"""Recording: any order, any number of threads, as often as one likes; live as from the log."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import astuple

from sag_research.bloom import (
    PROV_FORMATS,
    Named,
    Observation,
    Recorder,
    RunProvenance,
    Thought,
    TraceItem,
    provenance_text,
    read_quads,
    run_provenance,
    trace_items,
)
from sag_research.bloom._prov_terms import (
    content_node,
    entity_node,
    graph_node,
    prov,
    run_node,
    sag,
    step_node,
    version_node,
)
from sag_research.errors import UsageError
from sag_research.log import SQLiteEventStore
from sag_research.model import WORKSPACE_RUN, Call, Entity, Event, Run, Step
from sag_research.runtime import ReactiveRuntime
from tests.bloom.prov_sample import (
    ERROR,
    HOSTILE,
    SETUP,
    full_log,
    label,
    line,
    mentions,
    named,
    recorded,
    scripted,
    step,
)

RUN = "诊断 <t>|1"


def edges(traces, run_id="r1"):
    """(n, n before) for each step that another one informed."""
    found = traces.sparql(
        "SELECT ?n ?m { ?s prov:wasInformedBy ?b ; sag:ordinal ?n . ?b sag:ordinal ?m }"
    )
    return sorted(zip(found["n"], found["m"], strict=True))


def test_out_of_order_steps_are_joined_as_if_in_order():
    items = [TraceItem(n, Thought(f"t{n}")) for n in range(4)]
    traces = recorded("r1", [items[n] for n in (2, 0, 3, 1)]).traces
    assert edges(traces) == [(1, 0), (2, 1), (3, 2)]
    assert not traces.ask(step_node("r1", 0), prov("wasInformedBy"))
    assert set(traces) == set(recorded("r1", items).traces)


@given(
    order=st.permutations(range(12)),
    twice=st.lists(st.integers(0, 11), max_size=5),
    threads=st.integers(1, 8),
)
@settings(max_examples=60)
def test_d20_any_order_and_concurrency_give_the_same_quads(order, twice, threads):
    items = line(4)
    recorder = Recorder()
    with ThreadPoolExecutor(threads) as pool:
        done = [
            pool.submit(recorder.add, RUN, items[n], named=named(items[n]))
            for n in [*order, *twice]
        ]
        assert all(one.result() for one in done)
    assert set(recorder.traces) == set(recorded(RUN, items, run=False).traces)


@given(st.lists(st.text(max_size=30), min_size=1, max_size=6), st.text(min_size=1, max_size=20))
def test_d20_recording_twice_changes_nothing(texts, run_id):
    items = list(trace_items([Step(thought=t, calls=(Call(name=t, text=t),)) for t in texts]))
    recorder = recorded(run_id, items)
    once = set(recorder.traces)
    for item in items:
        recorder.add(run_id, item, named=named(item))
    assert set(recorder.traces) == once


def test_what_is_no_item_is_counted_and_leaves_nothing():
    recorder = Recorder()
    for bad in ({"ordinal": -1, "step": {"kind": "final", "text": ""}}, "{}", b"\xff", 3,
                TraceItem(-1, Thought("x")), TraceItem(0, Thought(None))):  # fmt: skip
        assert recorder.add("r1", bad) is False
    assert len(recorder.traces) == 0
    assert (recorder.counts.rejected, recorder.counts.items) == (6, 0)
    assert recorder.counts.last_reason
    assert recorder.add("r1", '{"ordinal": 0, "step": {"kind": "thought", "text": "x"}}')
    assert (recorder.counts.rejected, recorder.counts.items) == (6, 1)


def test_a_change_generates_a_version_and_never_the_entity():
    traces = recorded("r1", line(3)).traces
    versions = [version_node(SETUP, "r1", n) for n in (1, 4, 7)]
    canonical = entity_node(SETUP)
    assert not traces.ask(canonical, prov("wasGeneratedBy"))
    for node, n in zip(versions, (1, 4, 7), strict=True):
        assert [q.object for q in traces.match(node, prov("specializationOf"))] == [canonical]
        assert [q.object for q in traces.match(node, prov("wasGeneratedBy"))] == [
            step_node("r1", n)
        ]
        assert traces.ask(step_node("r1", n), sag("mutated"), canonical)
    revisions = {(q.subject, q.object) for q in traces.match(None, prov("wasRevisionOf"))}
    assert revisions == {(versions[1], versions[0]), (versions[2], versions[1])}


def test_what_was_read_is_used():
    traces = recorded("r1", scripted()).traces
    assert traces.ask(step_node("r1", 2), prov("used"), entity_node(ERROR))
    assert traces.ask(step_node("r1", 1), prov("used"), entity_node(SETUP))


def test_contents_derive_from_what_they_answer():
    traces = recorded("r1", scripted()).traces
    derived = {(q.subject, q.object) for q in traces.match(None, prov("wasDerivedFrom"))}
    assert derived == {
        (content_node("r1", 2), content_node("r1", 1)),
        (content_node("r1", 4), content_node("r1", 2)),
    }


# ---- the log


def test_live_and_from_the_log_are_the_same_quads():
    store = SQLiteEventStore(":memory:")
    live = Recorder(store, mentions=mentions)
    seen = 0

    def record(event):
        nonlocal seen
        seen += 1
        live.apply(event)

    full_log(store)
    for event in store.tail():
        record(event)
    again = Recorder(store, mentions=mentions)
    assert again.catch_up() == seen
    assert set(again.traces) == set(live.traces)
    before = set(live.traces)
    live.catch_up()  # nothing is taken twice
    live.rebuild()
    assert set(live.traces) == before
    assert live.counts.rejected == 0


@given(st.permutations(range(18)), st.integers(1, 8))
@settings(max_examples=25)
def test_events_in_any_order_give_the_same_quads(order, threads):
    store = full_log()
    events = list(store.tail())
    recorder = Recorder(store, mentions=mentions)
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(recorder.apply, [events[n] for n in order if n < len(events)]))
        list(pool.map(recorder.apply, events))
    whole = Recorder(store, mentions=mentions)
    whole.catch_up()
    assert set(recorder.traces) == set(whole.traces)


def test_d21_steps_can_be_asked_for_while_the_run_goes_on():
    store = SQLiteEventStore(":memory:")
    store.create_run(Run(run_id="r1"))
    recorder = Recorder(store)
    for n in range(3):
        store.append(Event(run_id="r1", type="agent.step", payload=step(n)))
        recorder.catch_up()
        assert len(RunProvenance(recorder.traces, "r1").table_) == 3 * (n + 1)


def test_it_follows_the_log_on_a_thread_and_as_a_projection():
    store = full_log()
    follower, projection = Recorder(store), Recorder(store)
    stop = threading.Event()
    thread = threading.Thread(target=follower.follow, kwargs={"interval": 0.01, "stop": stop})
    thread.start()
    with ReactiveRuntime(store, projection=projection) as runtime:
        with runtime.active_run("r3"):
            runtime.emit("agent.step", step(11))
        runtime.dispatch_loop()
    projection.catch_up()
    never = threading.Event()
    for _ in range(1_000):
        if set(follower.traces) == set(projection.traces) or never.wait(0.01):
            break
    stop.set()
    thread.join(10)
    assert set(follower.traces) == set(projection.traces)
    assert follower.traces.ask(None, prov("value"), None, graph_node("r3"))


def test_a_fork_refers_to_what_it_took_over():
    recorder = Recorder(full_log(), mentions=mentions)
    recorder.catch_up()
    traces = recorder.traces
    child = RunProvenance(traces, "r2").table_
    assert child["ordinal"].tolist() == [6, 7, 8]  # the parent's six items are not repeated
    assert child["step"].tolist() == [2, 2, 2]
    assert traces.ask(step_node("r2", 6), prov("wasInformedBy"), step_node("r1", 5))
    assert traces.ask(run_node("r2"), prov("wasInformedBy"), run_node("r1"))
    assert traces.ask(run_node("r2"), sag("forkedFromStep"), step_node("r1", 5))
    new, old = version_node(SETUP, "r2", 7), version_node(SETUP, "r1", 4)
    assert traces.ask(new, prov("wasRevisionOf"), old, graph_node("r2"))
    grandchild = RunProvenance(traces, "r3").table_
    assert grandchild["ordinal"].tolist() == [3, 4, 5]
    assert traces.ask(step_node("r3", 3), prov("wasInformedBy"), step_node("r1", 2))


def test_one_run_alone_has_the_quads_it_has_among_all():
    store = full_log()
    whole = Recorder(store, mentions=mentions)
    whole.catch_up()
    for run_id in ("r1", "r2", "r3"):
        alone = run_provenance(store, run_id, mentions=mentions)
        assert set(alone.quads()) == set(RunProvenance(whole.traces, run_id).quads())


@pytest.mark.parametrize("length", [60, pytest.param(1_200, marks=pytest.mark.slow)])
def test_a_long_line_of_forks_needs_no_recursion(length):
    store = SQLiteEventStore(":memory:")
    store.create_run(Run(run_id="0"))
    store.append(Event(run_id="0", type="agent.step", payload=step(0)))
    for n in range(1, length):
        store.fork(str(n - 1), run_id=str(n))
    alone = run_provenance(store, f"{length - 1}")
    assert alone.traces.ask(run_node(f"{length - 1}"), sag("forkedFromStep"), step_node("0", 2))


def test_a_hint_is_derived_from_what_it_recalls_and_used_by_the_first_own_step():
    recorder = Recorder(full_log())
    recorder.catch_up()
    traces = recorder.traces
    [hint] = [q.subject for q in traces.match(None, None, sag("Hint"))]
    sources = {q.object for q in traces.match(hint, prov("wasDerivedFrom"))}
    assert sources == {content_node("r1", 0), content_node("r1", 1)}
    assert [q.subject for q in traces.match(None, prov("used"), hint)] == [step_node("r3", 3)]


def test_evidence_is_made_by_the_step_before_it():
    recorder = Recorder(full_log())
    recorder.catch_up()
    found = recorder.traces.sparql(
        "SELECT ?sha ?n ?type { ?report a sag:Report ; prov:wasDerivedFrom ?e . "
        "?e sag:sha256 ?sha ; a ?type ; prov:wasGeneratedBy/sag:ordinal ?n }"
    )
    kinds = set(found["type"])
    assert kinds == {"http://www.w3.org/ns/prov#Entity", "urn:sag:vocab:Evidence"}
    assert set(found["sha"]) == {"ab" * 32}
    assert set(found["n"]) == {8}


def test_a_run_tells_how_it_ended_and_what_became_of_it():
    recorder = Recorder(full_log())
    recorder.catch_up()
    found = recorder.traces.sparql(
        "SELECT ?id ?ended ?outcome ?score { ?run sag:runId ?id ; sag:ended ?ended . "
        "?label sag:ofRun ?run ; sag:outcome ?outcome ; sag:score ?score } ORDER BY ?id"
    )
    assert found.to_numpy().tolist() == [
        ["r1", "completed", "success", 0.5], ["r2", "failed", "failure", 0.5],
    ]  # fmt: skip
    first = recorder.traces.sparql("SELECT ?t { ?s prov:startedAtTime ?t } ORDER BY ?t")
    assert first["t"][0].timestamp() == 1_000.0


def test_what_was_redacted_is_gone():
    store = full_log()
    recorder = Recorder(store, mentions=mentions)
    recorder.catch_up()
    recorder.traces.sparql("SELECT * { ?s ?p ?o }")
    store.redact("r1", 2, "a secret")
    recorder.catch_up()
    assert "thought 0" not in {q.object.value for q in recorder.traces}
    again = Recorder(store, mentions=mentions)
    again.catch_up()
    assert set(again.traces) == set(recorder.traces)
    assert RunProvenance(again.traces, "r1").validate().ok


def test_payloads_that_others_wrote_cost_no_more_than_themselves():
    store = full_log()
    for payload in ({}, {"thought": 3, "calls": "no", "flags": {}}, {"calls": [3, {"name": 4}]}):
        store.append(Event(run_id="r3", type="agent.step", payload=payload))
    store.append(Event(run_id="r3", type="hint.given", payload={"text": "x", "items": [3]}))
    store.append(Event(run_id="r3", type="evidence.recorded", payload={"name": 1}))
    label(store, "r3", "perhaps")
    store.append(Event(run_id="r3", type="agent.step", payload=step(5)))
    recorder = Recorder(store)
    recorder.catch_up()
    assert recorder.counts.rejected == 3
    assert RunProvenance(recorder.traces, "r3").validate().ok


def test_hostile_names_keep_apart_what_is_apart():
    store = SQLiteEventStore(":memory:")
    names = [name for name in HOSTILE if name and "\x00" not in name]
    for name in names:
        store.create_run(Run(run_id=name, goal=name, agent=name))
        payload = step(0, thought=name, calls=[{"name": name, "arguments": {name: name}}])
        store.append(Event(run_id=name, type="agent.step", payload=payload))
    recorder = Recorder(store)
    recorder.catch_up()
    assert len({graph_node(name) for name in names}) == len(names)
    for name in names:
        table = RunProvenance(recorder.traces, name).table_
        assert table["text"][0] == name
        assert table["tool"][1] == name
        assert recorder.traces.ask(run_node(name), sag("runId"))


def test_names_that_share_a_long_beginning_are_not_one():
    nodes = {entity_node(SETUP.__class__("File", "", "x" * 100_000 + tail)) for tail in "abc"}
    assert len(nodes) == 3
    assert all(len(node.value) < 500 for node in nodes)


def test_a_recorder_without_a_log_says_so():
    with pytest.raises(UsageError, match="has no log"):
        Recorder().catch_up()


def test_facts_of_the_workspace_are_no_run():
    recorder = Recorder(full_log())
    recorder.catch_up()
    assert not recorder.traces.ask(graph=graph_node(WORKSPACE_RUN))


def test_mentions_in_joined_texts_go_to_the_call_they_stand_in():
    store = SQLiteEventStore(":memory:")
    store.create_run(Run(run_id="r1"))
    calls = [{"name": "a", "text": "edit setup.py", "observation": "fine"},
             {"name": "b", "text": "", "observation": ""},
             {"name": "c", "text": "look", "observation": "TimeoutError"}]  # fmt: skip
    told = {"action": "edit setup.py\nlook", "observation": "fine\nTimeoutError", "calls": calls}
    store.append(Event(run_id="r1", type="agent.step", payload=told))

    def found(events):
        from sag_research.model import Mention

        edit = Mention(entity=SETUP, field="action", start=5, end=13, role="MUTATED")
        seen = Mention(entity=ERROR, field="observation", start=5, end=17)
        return {("r1", 2): [edit, seen]}

    traces = run_provenance(store, "r1", mentions=found).traces
    assert [q.subject for q in traces.match(None, sag("mutated"))] == [step_node("r1", 0)]
    assert [q.subject for q in traces.match(None, prov("used"))] == [step_node("r1", 5)]


def test_named_twice_is_recorded_once():
    item = TraceItem(0, Observation("x"))
    one, two = Recorder(), Recorder()
    one.add("r", item, named=[Named(ERROR)])
    two.add("r", item, named=[Named(ERROR), Named(ERROR)])
    assert set(one.traces) == set(two.traces)


def test_what_runs_share_is_described_once():
    recorder = Recorder(full_log(), mentions=mentions)
    recorder.catch_up()
    found = recorder.traces.sparql(
        "SELECT ?v ?name { ?v a sag:EntityVersion ; prov:specializationOf/sag:name ?name }"
    )
    assert len(found) == len(set(found["v"])) == 5
    agents = recorder.traces.sparql(
        "SELECT ?run { ?run prov:wasAssociatedWith/sag:name 'scripted' }"
    )
    assert sorted(agents["run"]) == [run_node(r).value for r in ("r1", "r2", "r3")]
    alone = run_provenance(recorder.store, "r2", mentions=mentions)
    kinds = {str(q.object.value) for q in alone.quads() if q.predicate == sag("entityKind")}
    assert kinds == {"File", "Error"}


def test_an_answer_after_a_fork_comes_from_what_the_parent_saw():
    store = full_log()
    store.fork("r1", step=0, run_id="r4")
    answer = {"thought": "it is mended", "calls": [], "flags": ["final"]}
    store.append(Event(run_id="r4", type="agent.step", payload=answer))
    alone = run_provenance(store, "r4")
    derived = alone.traces.match(content_node("r4", 4), prov("wasDerivedFrom"))
    assert [q.object for q in derived] == [content_node("r1", 2)]
    assert alone.validate().ok


# ---- what others write


@pytest.mark.parametrize("started", [1.7e12, -1e12, 9e9, 0.0])
def test_a_clock_of_another_unit_costs_the_time_alone(started):
    store = SQLiteEventStore(":memory:")
    store.create_run(Run(run_id="r1"))
    payload = {"thought": "look", "started": started}
    store.append(Event(run_id="r1", type="agent.step", payload=payload))
    provenance = run_provenance(store, "r1")
    assert provenance.validate().ok
    told = provenance.traces.ask(predicate=prov("startedAtTime"))
    assert told == (started in (9e9, 0.0))


@pytest.mark.parametrize("sources", [5, "a", {"a": 1}, None, ["a", 3]])
def test_evidence_may_name_its_sources_wrongly(sources):
    store = SQLiteEventStore(":memory:")
    store.create_run(Run(run_id="r1"))
    payload = {"name": "e", "kind": "evidence", "sha256": "00", "derived_from": sources}
    store.append(Event(run_id="r1", type="evidence.recorded", payload=payload))
    provenance = run_provenance(store, "r1")
    assert provenance.validate().ok
    derived = list(provenance.traces.match(None, prov("wasDerivedFrom")))
    assert len(derived) == (sources == ["a", 3])


def test_evidence_that_is_recorded_again_was_made_once():
    store = SQLiteEventStore(":memory:")
    store.create_run(Run(run_id="r1"))
    told = {"name": "e", "kind": "receipt", "sha256": "00"}
    for number in range(2):
        payload = {"thought": f"look {number}"}
        store.append(Event(run_id="r1", type="agent.step", payload=payload))
        store.append(Event(run_id="r1", type="evidence.recorded", payload=told))
    provenance = run_provenance(store, "r1")
    assert provenance.validate().ok
    made = [
        quad.object
        for quad in provenance.traces.match(None, prov("wasGeneratedBy"))
        if provenance.traces.ask(quad.subject, sag("sha256"))
    ]
    assert made == [step_node("r1", 0)]


def test_a_run_names_the_document_that_it_carries_out():
    store = SQLiteEventStore(":memory:")
    for run_id, name in (("r1", "urn:example:dag"), ("r2", "no iri <>"), ("r3", 7)):
        store.create_run(Run(run_id=run_id, agent="a", config={"document": name}))
        store.append(Event(run_id=run_id, type="agent.step", payload={"thought": "x"}))
        provenance = run_provenance(store, run_id)
        assert provenance.validate().ok
        plans = provenance.sparql(
            "SELECT ?run ?plan { ?run prov:qualifiedAssociation ?a . ?a prov:hadPlan ?plan ;"
            " prov:agent ?who . ?plan a prov:Plan }"
        )
        wanted = [["urn:sag:run:r1", "urn:example:dag"]] if run_id == "r1" else []
        assert plans.values.tolist() == wanted
        for format in PROV_FORMATS:
            text = provenance_text(provenance.quads(), format)
            assert set(read_quads(text, format)) == set(provenance.quads())


# ---- merges of entities


def merged(store, type, source, target):
    payload = {
        "source": "|".join(astuple(source)),
        "target": "|".join(astuple(target)),
        "by": "ann",
    }
    return store.append(Event(run_id=WORKSPACE_RUN, type=type, payload=payload))


MERGES = "SELECT ?a ?b { ?a sag:mergedInto+ ?b ; prov:alternateOf ?any } ORDER BY ?a ?b"


def test_merges_are_links_that_can_be_undone():
    store, other = full_log(), Entity("Error", "", "OtherError")
    live = Recorder(store, mentions=mentions)
    live.catch_up()
    merged(store, "entity.merged", ERROR, other)
    merged(store, "entity.merged", other, Entity("Error", "", "Third"))
    merged(store, "entity.merged", Entity("Error", "", "Third"), ERROR)  # a circle, by others
    live.catch_up()
    assert len(live.traces.sparql(MERGES)) == 9
    for source in (Entity("Error", "", "Third"), other):
        live.apply(merged(store, "entity.split", source, ERROR))
    found = live.traces.sparql(MERGES).values.tolist()
    assert found == [[entity_node(ERROR).value, entity_node(other).value]]
    later = Recorder(store, mentions=mentions)
    later.catch_up()
    live.catch_up()
    assert set(live.traces) == set(later.traces)


def test_a_runs_own_quads_hold_the_merges_of_what_it_names():
    store, other = full_log(), Entity("Error", "", "OtherError")
    merged(store, "entity.merged", ERROR, other)
    merged(store, "entity.merged", other, Entity("Error", "", "Third"))
    merged(store, "entity.merged", Entity("File", "", "a.py"), Entity("File", "", "b.py"))
    store.append(
        Event(run_id=WORKSPACE_RUN, type="entity.merged", payload={"source": "x", "target": "y|z"})
    )
    provenance = run_provenance(store, "r1", mentions=mentions)
    links = {q.subject for q in provenance.quads() if q.predicate == sag("mergedInto")}
    assert links == {entity_node(ERROR), entity_node(other)}
    assert provenance.validate().ok
    for format in PROV_FORMATS:
        text = provenance_text(provenance.quads(), format)
        assert set(read_quads(text, format)) == set(provenance.quads())
