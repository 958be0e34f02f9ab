"""Documents: the two that come along, what is read, and what is refused."""

from __future__ import annotations

import copy
import json
import pickle
import re
from pathlib import Path
from typing import Any

import msgspec
import networkx as nx
import pytest
from hypothesis import given, settings

import sag_research.runtime
from sag_research._text import iri
from sag_research.errors import SagError
from sag_research.runtime import (
    Body,
    DagReference,
    Document,
    DocumentError,
    EmbeddedDag,
    Gather,
    ItemExecution,
    Phase,
    ReservoirExecution,
    Scatter,
    Terminal,
    bundled_document,
    document_text,
    load_document,
)
from sag_research.runtime._dag_jsonld import document_json
from tests.runtime.documents import FAULTS, documents, place, plain_form, sample, single, terminal

AGENT = {
    "build-request": "ready call-model, error end-error",
    "call-model": "text normalize-response, tools normalize-response, mixed normalize-response, "
    "error end-error",
    "normalize-response": "text append-assistant, tools decode-tools, mixed decode-tools, "
    "empty end-error, error end-error",
    "append-assistant": "done end-done, error end-error",
    "decode-tools": "decoded normalize-tools, empty end-error, error end-error",
    "normalize-tools": "valid worksets, empty end-error, error end-error",
    "worksets": "ready dispatch-tools, empty end-error, error end-error",
    "dispatch-tools": "all-success join-tool-results, partial join-tool-results, "
    "all-error join-tool-results, empty join-tool-results",
    "join-tool-results": "success collect-results, error end-error, empty collect-results",
    "collect-results": "done build-request, empty build-request, error end-error",
    "end-done": "",
    "end-error": "",
}
TRACE = {
    "scatter-steps": "all-success collect-steps, partial collect-steps, all-error collect-steps, "
    "empty end",
    "collect-steps": "success end, error end, empty end",
    "end": "",
}
SMALL: dict[str, Any] = plain_form(sample(single("first", done="end"), terminal()))


def changed(number: int | None = None, /, **changes: Any) -> dict[str, Any]:
    """Return a small document with values of it, or of a node, set anew or taken out (None)."""
    raw = copy.deepcopy(SMALL)
    part = raw if number is None else raw["nodes"][number]
    for key, value in changes.items():
        part.pop(key, None)
        if value is not None:
            part[key] = value
    return raw


def refused(source: Any) -> list[tuple[str, str, str]]:
    """Return the faults for which a document is refused."""
    with pytest.raises(DocumentError) as caught:
        load_document(source)
    return [(f.code, f.placement, f.port) for f in caught.value.faults]


@pytest.mark.parametrize(
    ("name", "facts", "entry"),
    [("react-agent", AGENT, "build-request"), ("react-agent-memory-trace", TRACE, "scatter-steps")],
)
def test_d1_d8_the_documents_hold_the_placements_and_routes_they_should(
    name: str, facts: dict[str, str], entry: str
) -> None:
    document = bundled_document(name)
    assert document.id == iri("dag", name)
    assert document.entrypoints == {"main": iri("dag", name, entry)}
    assert len(document.placements) == len(facts)
    names = {p.id: p.name for p in document.placements}
    assert list(names.values()) == list(facts)
    routes = {place: ", ".join(f"{port} {names[target]}" for source, port, target in document.routes
                               if names[source] == place) for place in facts}  # fmt: skip
    assert routes == facts


def test_d1_the_agent_calls_tools_out_of_a_closed_list() -> None:
    document = bundled_document("react-agent")
    by_name = {p.name: p for p in document.placements}
    scatter, gather = by_name["dispatch-tools"], by_name["join-tool-results"]
    assert isinstance(scatter, Scatter)
    assert isinstance(gather, Gather)
    assert scatter.body == Body(dag=DagReference("dagIri", ("tool:lookup",), "item"))
    assert (scatter.source, scatter.item_key, scatter.reducer) == (
        "safeWorkset", "currentItem", "aggregate",
    )  # fmt: skip
    assert gather.sources == (scatter.id,)
    assert (gather.strategy, gather.mapping) == ("map", {"output": "toolOutputs"})
    ends = {p.name: p.outcome for p in document.placements if isinstance(p, Terminal)}
    assert ends == {"end-done": "completed", "end-error": "failed"}


def test_d1_the_recorder_takes_one_step_at_a_time() -> None:
    scatter, gather, end = bundled_document("react-agent-memory-trace").placements
    assert isinstance(scatter, Scatter)
    assert isinstance(gather, Gather)
    assert isinstance(end, Terminal)
    assert (scatter.source, scatter.item_key) == ("source", "reasoning-step-item")
    assert scatter.body == Body(node="record-step")
    assert scatter.execution == ItemExecution(concurrency=1)
    assert (gather.strategy, gather.target, end.outcome) == ("append", "steps", "completed")


def test_d1_who_changes_a_document_changes_no_other() -> None:
    bundled_document("react-agent").placements[0].outputs.clear()  # type: ignore[union-attr]
    document_json(bundled_document("react-agent"))["@context"].clear()
    assert len(bundled_document("react-agent").routes) == 32
    assert load_document(document_text(bundled_document("react-agent"))).id


def test_d1_an_unknown_document_does_not_come_along() -> None:
    for name in ("react", "../react-agent", "context", ""):
        with pytest.raises(DocumentError, match="react-agent, react-agent-memory-trace"):
            bundled_document(name)


def test_d2_terminals_have_an_outcome_and_no_routes() -> None:
    assert load_document(changed(1, outputs={})) == load_document(SMALL)
    assert refused(changed(1, outputs={"done": place("first")})) == [
        ("unknown-key", place("end"), "")
    ]
    assert refused(changed(1, outcome=None)) == [("missing-key", place("end"), "")]


def test_d4_the_agent_is_one_cycle_of_nine() -> None:
    document = bundled_document("react-agent")
    graph = document.to_networkx()
    assert [len(circle) for circle in nx.simple_cycles(nx.DiGraph(graph))] == [9]
    assert graph.number_of_edges() == 32
    assert set(graph.get_edge_data(*map_ids("call-model", "normalize-response"))) == {
        "text", "tools", "mixed",
    }  # fmt: skip
    assert graph.graph["entrypoints"] == document.entrypoints
    assert graph.nodes[map_ids("end-done")[0]] == {"name": "end-done", "kind": "TerminalNode"}


def map_ids(*names: str) -> list[str]:
    """Return IRIs of placements of the agent."""
    return [iri("dag", "react-agent", name) for name in names]


def test_d4_a_graph_shows_routes_to_nowhere_as_they_are() -> None:
    graph = sample(single("first", done="nowhere")).to_networkx()
    assert graph.nodes[place("nowhere")] == {}


# ---- text


@pytest.mark.parametrize("name", ["react-agent", "react-agent-memory-trace"])
def test_d5_the_text_of_a_file_comes_back(name: str) -> None:
    folder = Path(sag_research.runtime.__file__).parent / "documents"
    text = (folder / f"{name}.json").read_text(encoding="utf-8")
    assert document_text(load_document(folder / f"{name}.json")) == text
    assert load_document(text) == load_document(text.encode()) == bundled_document(name)


@settings(max_examples=60, deadline=None)
@given(documents())
def test_d5_text_to_document_to_text_is_the_same(document: Document) -> None:
    text = document_text(document)
    assert load_document(text) == document
    assert document_text(load_document(text)) == text
    assert document_text(load_document(json.dumps(json.loads(text)))) == text, "however laid out"


@settings(max_examples=60, deadline=None)
@given(documents())
def test_d5_plain_maps_are_taken_for_the_same(document: Document) -> None:
    assert load_document(plain_form(document)) == document


@pytest.mark.parametrize("name", ["react-agent", "react-agent-memory-trace"])
def test_d5_plain_maps_of_the_documents_are_taken(name: str) -> None:
    document = bundled_document(name)
    plain = plain_form(document)
    assert "routes" not in json.dumps(plain)
    assert load_document(json.dumps(plain)) == document


def test_d5_what_cannot_be_text_is_refused() -> None:
    for odd in ("half \ud800", object()):
        document = msgspec.structs.replace(sample(terminal()), name=odd)
        with pytest.raises(DocumentError, match="cannot be written"):
            document_text(document)
    endless = Scatter(
        place("s"), "s", "s", Body(node="n"), execution=ItemExecution(1, float("inf"))
    )
    with pytest.raises(DocumentError, match="not JSON compliant"):
        document_text(sample(endless))


# ---- what is refused


def test_all_that_cannot_be_read_is_told_at_once() -> None:
    raw = changed(name=3, extra=1, entrypoints=None)
    raw["nodes"][0] |= {"node": None, "speed": "fast", "outputs": {"done": 4}}
    raw["nodes"][1] |= {"@type": "EndNode"}
    raw["nodes"] += ["end", {"@type": ["DAG"]}, {"@type": "TerminalNode", "settings": []}]
    first, end = place("first"), place("end")
    assert refused(raw) == [
        ("bad-value", "", ""), ("unknown-key", "", ""), ("missing-key", "", ""),
        ("bad-value", first, ""), ("bad-value", first, ""), ("unknown-key", first, ""),
        ("unknown-kind", end, ""), ("bad-value", "", ""), ("unknown-kind", "", ""),
        ("bad-value", "", ""), *[("missing-key", "", "")] * 3,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ({"execution": {"mode": "item", "concurrency": "many"}}, "bad-value"),
        ({"execution": {"mode": "item", "concurrency": 1.5}}, "bad-value"),
        ({"execution": {"mode": "item", "concurrency": True}}, "bad-value"),
        ({"execution": {"mode": "stream"}}, "bad-value"),
        ({"execution": {"mode": "item", "capacity": 3}}, "bad-value"),
        ({"execution": {"mode": "reservoir", "key": "k"}}, "bad-value"),
        ({"body": {"node": "n", "code": "import os"}}, "bad-value"),
        ({"body": {"dag": {"from": "item", "path": "p"}}}, "bad-value"),
        ({"body": None}, "bad-value"),
        ({"itemkey": "k"}, "unknown-key"),
        ({"name": "again"}, "duplicate-key"),
    ],
)
def test_d10_bad_settings_are_refused(settings: dict[str, Any], code: str) -> None:
    fine = {"source": "s", "body": {"node": "n"}}
    node = {
        "@id": place("s"),
        "@type": "ScatterNode",
        "name": "s",
        "settings": {**fine, **settings},
    }
    assert (code, place("s"), "") in refused(changed(nodes=[node]))


@pytest.mark.parametrize(
    "execution",
    [
        {"mode": "item", "concurrency": 4, "throttle": 0.5},
        {"mode": "reservoir", "key": "k", "capacity": 3, "idle": 2},
    ],
)
def test_d10_both_ways_to_run_items_are_read(execution: dict[str, Any]) -> None:
    node = {
        "@id": place("s"), "@type": "ScatterNode", "name": "s", "source": "s",
        "body": {"node": "n"}, "execution": execution,
    }  # fmt: skip
    [scatter] = load_document(changed(nodes=[node])).placements
    assert isinstance(scatter, Scatter)
    kind = ItemExecution if execution["mode"] == "item" else ReservoirExecution
    assert isinstance(scatter.execution, kind)
    assert {"mode": execution["mode"], **msgspec.to_builtins(scatter.execution)} == execution


def test_options_of_a_source_are_not_passed_over_in_silence() -> None:
    document = bundled_document("react-agent-memory-trace")
    raw = plain_form(document)
    raw["nodes"][1]["sources"]["scatter-steps"] = {"ports": ["success"]}
    assert refused(raw) == [("unknown-key", document.placements[1].id, "")]


@pytest.mark.parametrize(
    ("routes", "code", "port"),
    [
        (
            [{"port": "done", "target": "a"}, {"port": "done", "target": "b"}],
            "duplicate-route",
            "done",
        ),
        ([{"port": "done"}], "bad-value", ""),
        ([{"port": "done", "target": "a", "when": "b"}], "bad-value", ""),
        (["done"], "bad-value", ""),
        ("done", "bad-value", ""),
    ],
)
def test_routes_that_are_none_are_refused(routes: Any, code: str, port: str) -> None:
    assert refused(changed(0, outputs=None, routes=routes)) == [(code, place("first"), port)]


def test_routes_in_both_forms_are_refused() -> None:
    assert refused(changed(0, routes=[])) == [("duplicate-key", place("first"), "")]


def test_a_key_that_stands_twice_is_refused() -> None:
    text = json.dumps(SMALL).replace('"done":', '"done": "urn:x:lost", "done":')
    assert refused(text) == [("duplicate-key", "", "")]


@pytest.mark.parametrize(
    "source",
    ["", "null", "[]", "{}", "[" * 100_000, '{"@type": "DAG"', '{"@type": NaN}', "react-agent",
     b"\xff\xfe{", '{"@type": "dag"}', 7],
)  # fmt: skip
def test_what_is_no_document_is_refused(source: Any) -> None:
    assert refused(source) == []


def test_a_name_of_a_file_is_told_from_text() -> None:
    with pytest.raises(DocumentError, match=r"pathlib\.Path"):
        load_document("my-agent.json")
    with pytest.raises(FileNotFoundError):
        load_document(Path("no-such-agent.json"))


def test_half_characters_are_refused() -> None:
    assert refused(changed(0, name="half \ud800")) == [("bad-value", place("first"), "")]
    assert refused(json.dumps(changed(0, node="half \ud800"))) == [
        ("bad-value", place("first"), "")
    ]
    assert refused(json.dumps(changed(0, outputs={"\udc00": "a"}))) == [
        ("bad-value", place("first"), "")
    ]
    for key in ("outputs", "routes"):  # where no text is expected at all
        assert ("bad-value", place("first"), "") in refused(changed(0, **{key: "half \ud800"}))


def test_a_byte_order_mark_is_passed_over() -> None:
    assert load_document("\ufeff" + json.dumps(SMALL)) == load_document(SMALL)


def test_errors_are_of_the_package_and_travel() -> None:
    with pytest.raises(SagError) as caught:
        load_document(changed(name=3, version=4))
    error = pickle.loads(pickle.dumps(caught.value))
    assert isinstance(error, DocumentError)
    assert str(error) == str(caught.value)
    assert len(error.faults) == 2


def test_an_error_shows_some_faults_and_holds_all() -> None:
    raw = changed(**{f"odd{n}": n for n in range(9)})
    with pytest.raises(DocumentError, match="and 4 more") as caught:
        load_document(raw)
    assert len(caught.value.faults) == 9


# ---- how documents look


def test_a_document_is_shown_on_a_line_and_as_a_table() -> None:
    hostile = "<script>alert(1)</script>\x1b[31m"
    document = msgspec.structs.replace(
        sample(single("first", done="end"), Terminal(place("end"), hostile, hostile)), name=hostile
    )
    assert repr(document) == "Document('<script>alert(1)</script>' 1, 2 placements, 1 route)"
    html = document._repr_html_()
    assert "<script" not in html
    assert "done → &lt;script&gt;" in html


def test_kinds_are_counted() -> None:
    embedded = EmbeddedDag(place("e"), "e", "urn:x:inner")
    phase = Phase(place("p"), "p", "pre", "one")
    document = sample(embedded, phase, terminal(), terminal("failed", "failed"))
    assert document.kinds == {"EmbeddedDAGNode": 1, "PhaseNode": 1, "TerminalNode": 2}


# ---- the page about them

PAGE = Path(__file__).parents[2] / "docs" / "documents.md"


def test_the_examples_of_the_page_run(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    exec("\n".join(blocks), {"__name__": "page"})
    printed = capsys.readouterr().out
    faults = [line.split(" | ")[:3] for line in printed.splitlines() if " | " in line]
    a, end = "urn:example:a", "urn:example:end"
    assert faults == [
        ["unknown-target", a, "named"], ["unknown-node", a, ""], ["bad-settings", end, ""],
        ["unreachable", end, ""],
    ]  # fmt: skip


def test_the_page_names_every_code() -> None:
    table = PAGE.read_text(encoding="utf-8").split("| code |")[1].split("\n\n")[0]
    named = set(re.findall(r"`([a-z-]+)`", table))
    source = Path(sag_research.runtime.__file__).parent
    texts = [path.read_text(encoding="utf-8") for path in source.glob("_dag_[djrv]*.py")]
    given = re.compile(
        r'(?:fault\(\s*(?:placement|None|ring\[0\]),|self\.fault\(|"",|placement, port,)\s*'
        r'"([a-z]+-[a-z]+)"'
    )
    codes = {code for text in texts for code in given.findall(text)}
    assert len(codes) > 25
    assert codes - {"unknown-candidate", "unknown-dag"} <= named
    assert {code for make in FAULTS.values() for code, *_ in make("odd", "end").expected} <= named
