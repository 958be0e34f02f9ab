"""What is wrong with a document: all of it, at once."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given, settings

from sag_research._text import iri
from sag_research.runtime import (
    Body,
    Document,
    DocumentError,
    ItemExecution,
    Phase,
    ReservoirExecution,
    Scatter,
    SingleNode,
    bundled_document,
    validate_document,
)
from sag_research.runtime._dag_validate import is_iri
from tests.runtime.documents import (
    AGGREGATE,
    FAULTS,
    documents,
    known,
    place,
    sample,
    single,
    spoiled,
    terminal,
)

PLAIN = sample(single("first", "two", done="end", error="first"), terminal())


def codes(document: Document) -> list[tuple[str, str, str]]:
    """Return the faults of a document that is about to be registered."""
    return [(f.code, f.placement, f.port) for f in known().faults(document)]


@pytest.mark.parametrize("name", ["react-agent", "react-agent-memory-trace"])
def test_d1_the_documents_that_come_along_are_sound(name: str) -> None:
    assert validate_document(bundled_document(name)) == []


def test_d2_a_port_to_an_unknown_placement_is_named_with_its_placement() -> None:
    document = sample(single("first", "two", done="end", error="edn"), terminal())
    [fault] = known().faults(document)
    assert (fault.code, fault.placement, fault.port) == ("unknown-target", place("first"), "error")
    assert place("end") in fault.fix, "the nearest IRI is proposed"


def test_d2_a_name_where_an_iri_belongs_is_explained() -> None:
    document = sample(SingleNode(place("a"), "a", "one", {"done": "end"}), terminal())
    [fault] = [f for f in validate_document(document) if f.code == "unknown-target"]
    assert fault.fix == f"'end' is a name, write {place('end')}"


@pytest.mark.parametrize("fault", FAULTS)
def test_d3_each_fault_is_found_where_it_is(fault: str) -> None:
    document, expected = spoiled(PLAIN, {"odd": fault})
    assert set(codes(document)) == expected | (
        {("no-terminal", place("odd"), "")} if fault == "a loop without exit" else set()
    )


@settings(max_examples=60, deadline=None)
@given(documents())
def test_d3_a_sound_document_has_no_fault(document: Document) -> None:
    assert codes(document) == []


@settings(max_examples=60, deadline=None)
@given(documents(), st.lists(st.sampled_from([*FAULTS]), min_size=1, max_size=8))
def test_d3_all_faults_are_found_at_once(document: Document, faults: list[str]) -> None:
    named = {f"odd-{n}": fault for n, fault in enumerate(faults)}
    spoilt, expected = spoiled(document, named)
    found = codes(spoilt)
    assert expected <= set(found)
    sound = {p.id for p in document.placements}
    assert not [f for f in found if f[1] in sound], "nothing is said of what is sound"
    with pytest.raises(DocumentError) as caught:
        known().register(spoilt)
    assert len(caught.value.faults) == len(found)


def test_d3_faults_stand_in_the_order_of_the_document() -> None:
    document, _ = spoiled(PLAIN, {"a": "an unknown node", "b": "missing routes", "c": "twins"})
    order = [placement.id for placement in document.placements]
    found = [order.index(fault.placement) for fault in known().faults(document)]
    assert found == sorted(found)
    assert len(found) == 4


@pytest.mark.parametrize(
    ("document", "code"),
    [
        (msgspec.structs.replace(PLAIN, id="sample"), "bad-iri"),
        (msgspec.structs.replace(PLAIN, name=" "), "blank-name"),
        (msgspec.structs.replace(PLAIN, entrypoints={}), "no-entry"),
        (msgspec.structs.replace(PLAIN, entrypoints={"": place("first")}), "blank-port"),
    ],
)
def test_d3_faults_of_the_whole_document(document: Document, code: str) -> None:
    assert codes(document) == [(code, "", "")]


@pytest.mark.parametrize(
    "change",
    [
        {"entrypoints": None},
        {"version": 1},
        {"placements": [terminal()]},
        {"placements": ("end",)},
        {"placements": (single("a", done="end"), SingleNode("urn:a", "a", None, {"x": 3}))},  # type: ignore[arg-type, dict-item]
        {"placements": (Scatter("urn:a", "a", "s", Body(), {}, "k", "r", "fast"),)},  # type: ignore[arg-type]
    ],
)
def test_d3_values_of_the_wrong_type_are_faults_and_no_crash(change: dict[str, Any]) -> None:
    found = known().faults(msgspec.structs.replace(PLAIN, **change))
    assert {fault.code for fault in found} == {"bad-value"}


def test_d3_without_a_list_of_what_exists_names_are_not_looked_up() -> None:
    document = sample(
        single("a", "anything", out="b"),
        Scatter(place("b"), "b", "s", Body(dag="urn:x:any"), {"x": place("end")}, reducer="mine"),
        terminal(),
    )
    assert validate_document(document) == []
    assert {f.code for f in validate_document(document, nodes={}, documents=(), reducers={})} == {
        "unknown-node", "unknown-dag", "unknown-reducer",
    }  # fmt: skip


@pytest.mark.parametrize("seconds", [None, 0, 0.0, 0.001, 2, 2**53])
def test_d10_seconds_that_are_some(seconds: float | None) -> None:
    routes = dict.fromkeys(AGGREGATE, place("end"))
    for execution in (ItemExecution(1, seconds), ReservoirExecution("k", 1, seconds)):
        scatter = Scatter(place("s"), "s", "x", Body(node="one"), routes, execution=execution)
        assert codes(sample(scatter, terminal())) == []


def test_d4_cycles_are_fine_where_a_route_leads_out() -> None:
    ring = [single("a", "two", done="b", error="end"), single("b", done="a"), terminal()]
    assert codes(sample(*ring)) == []
    closed = [single("a", "two", done="b", error="b"), ring[1], terminal()]
    assert sorted(code for code, *_ in codes(sample(*closed))) == [
        "endless-cycle", "no-terminal", "no-terminal", "unreachable",
    ]  # fmt: skip


def test_d4_a_long_line_is_no_deep_recursion() -> None:
    line = [single(str(n), done=str(n + 1)) for n in range(5_000)]
    assert codes(sample(*line, terminal("5000"))) == []


@pytest.mark.parametrize("when", ["pre", "post"])
def test_a_phase_may_stand_beside_the_flow(when: str) -> None:
    apart = Phase(place("tidy"), "tidy", when, "two")
    assert codes(sample(*PLAIN.placements, apart)) == []
    led = msgspec.structs.replace(apart, outputs={"done": place("end")})
    assert codes(sample(*PLAIN.placements, led)) == [("missing-route", apart.id, "error")]


@pytest.mark.parametrize("reducer", ["all-success", "any-success", "terminal"])
def test_d9_a_scatter_has_the_ports_of_its_reducer(reducer: str) -> None:
    routes = dict.fromkeys(("success", "error", "partial"), place("end"))
    scatter = Scatter(place("s"), "s", "s", Body(node="one"), routes, reducer=reducer)
    assert codes(sample(scatter, terminal())) == [
        ("missing-route", scatter.id, "empty"), ("unknown-port", scatter.id, "partial"),
    ]  # fmt: skip


def test_d9_a_reducer_of_ours_has_the_ports_it_says() -> None:
    documents = known()

    @documents.reducer("first", ports=("some", "none"))
    def first(records: Any) -> str:
        return "some" if records else "none"

    scatter = Scatter(
        place("s"), "s", "s", Body(node="one"), {"some": place("end")}, reducer="first"
    )
    [fault] = documents.faults(sample(scatter, terminal()))
    assert (fault.code, fault.port) == ("missing-route", "none")


@pytest.mark.parametrize(
    "text", ["", "a", "a:b c", ":a", "_:b0", "urn:a\u00a0b", "u:\ud800", "u:a#b#c", "u:50%",
             "u:<a>", "u:\u202e", "a\nb:c", "http://x:y", "u:\ue000"]
)  # fmt: skip
def test_no_iris(text: str) -> None:
    assert not is_iri(text)


def test_iris_of_this_package_are_some() -> None:
    assert is_iri(iri("dag", "a b\ud800", "%<é>"))
