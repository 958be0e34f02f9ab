"""What is registered, all of it or nothing, and what may be named."""

from __future__ import annotations

import threading
from typing import Any

import msgspec
import pytest

from sag_research.errors import UsageError
from sag_research.runtime import (
    Body,
    DagReference,
    Document,
    DocumentError,
    Documents,
    EmbeddedDag,
    Gather,
    NodeSpec,
    Scatter,
    Terminal,
    bundled_document,
)
from tests.runtime.documents import (
    AGGREGATE,
    GATHERED,
    INNER,
    Lookup,
    known,
    place,
    sample,
    single,
    terminal,
)

GOOD = sample(single("first", done="end"), terminal())


def calling(id: str, name: str, other: str) -> Document:
    """Return a document that embeds another."""
    end, failed = (Terminal(f"{id}:{o}", o, o) for o in ("completed", "failed"))
    routes = {"completed": end.id, "failed": failed.id}
    return Document(
        id, name, "1", {"main": f"{id}:call"},
        (EmbeddedDag(f"{id}:call", "call", other, routes), end, failed),
    )  # fmt: skip


def faults(error: pytest.ExceptionInfo[DocumentError]) -> list[tuple[str, str]]:
    """Return code and document of the faults of an error."""
    return [(fault.code, fault.document) for fault in error.value.faults]


def test_d3_nothing_is_registered_where_one_of_several_is_faulty() -> None:
    documents = known()
    bad = calling("urn:x:bad", "bad", "urn:x:nowhere")
    with pytest.raises(DocumentError, match="nothing of sample, bad is registered") as caught:
        documents.register(GOOD, bad)
    assert faults(caught) == [("unknown-dag", bad.id)]
    assert [*documents.documents] == [INNER]


def test_d3_documents_that_name_each_other_are_registered_together() -> None:
    a, b = calling("urn:x:a", "a", "urn:x:b"), calling("urn:x:b", "b", "urn:x:a")
    documents = known()
    with pytest.raises(DocumentError):
        documents.register(a)
    assert documents.register(a, b) is documents
    assert [*documents.documents] == [INNER, a.id, b.id]


def test_d3_the_faults_of_all_documents_are_told() -> None:
    one, two = (calling(f"urn:x:{n}", str(n), "urn:x:nowhere") for n in (1, 2))
    with pytest.raises(DocumentError) as caught:
        known().register(one, GOOD, two)
    assert faults(caught) == [("unknown-dag", one.id), ("unknown-dag", two.id)]


def test_d3_what_is_changed_after_the_check_is_not_what_is_registered() -> None:
    first = single("first", done="end")
    given = sample(first, terminal())
    documents = known().register(given)
    first.outputs["done"] = given.entrypoints["main"] = place("nowhere")
    held = documents.document(GOOD.id)
    assert (held.routes, held.entrypoints) == (GOOD.routes, GOOD.entrypoints)
    with pytest.raises(DocumentError):
        documents.register(given)


def test_d3_the_same_document_twice_is_no_error() -> None:
    documents = known().register(GOOD)
    held = documents.documents[GOOD.id]
    documents.register(GOOD, GOOD)
    documents.register(msgspec.structs.replace(GOOD))
    assert documents.documents[GOOD.id] == held
    assert len(documents.documents) == 2


@pytest.mark.parametrize(
    ("change", "code"),
    [({"version": "2"}, "taken-id"), ({"id": "urn:x:other"}, "taken-name")],
)
def test_d3_another_document_of_the_same_iri_or_name_is_refused(
    change: dict[str, str], code: str
) -> None:
    other = msgspec.structs.replace(GOOD, **change)
    documents = known().register(GOOD)
    with pytest.raises(DocumentError) as caught:
        documents.register(other)
    assert faults(caught) == [(code, other.id)]
    assert documents.documents[GOOD.id] == GOOD
    fresh = known()
    with pytest.raises(DocumentError) as caught:
        fresh.register(GOOD, other)
    assert faults(caught) == [(code, other.id)], "within a bundle, too"


def test_d3_faults_are_told_without_registering() -> None:
    documents = known()
    assert documents.faults(GOOD) == []
    assert GOOD.id not in documents.documents


def test_d3_readers_see_all_of_a_bundle_or_nothing() -> None:
    documents, seen, stop = known(), set[int](), threading.Event()
    bundle = [calling(f"urn:x:{n}", str(n), f"urn:x:{(n + 1) % 50}") for n in range(50)]

    def look() -> None:
        while not stop.is_set():
            seen.add(len(documents.documents))

    reader = threading.Thread(target=look)
    reader.start()
    documents.register(*bundle)
    stop.set()
    reader.join()
    assert seen <= {1, 51}


def test_what_is_registered_cannot_be_changed_from_outside() -> None:
    documents = known()
    for held in (documents.nodes, documents.tools, documents.documents, documents.reducers,
                 documents.strategies):  # fmt: skip
        with pytest.raises(TypeError):
            held["new"] = None  # type: ignore[index]


def test_documents_are_found_by_iri_or_name() -> None:
    documents = known().register(GOOD)
    assert documents.document(GOOD.id) == documents.document("sample") == GOOD
    with pytest.raises(DocumentError, match="no document 'other', there is inner, sample"):
        documents.document("other")
    assert repr(documents) == "Documents(2 documents, 3 nodes, 1 tool)"


# ---- nodes, reducers, strategies


def test_a_node_is_registered_once() -> None:
    documents = Documents()

    @documents.node("greet", ports=["done", "error"])
    def greet(state: Any, context: Any) -> str:
        return "done"

    assert documents.nodes["greet"] == NodeSpec("greet", ("done", "error"), greet)
    documents.add_node(NodeSpec("greet", ("done", "error"), greet))
    with pytest.raises(UsageError, match="another node is named 'greet'"):
        documents.node("greet", ports=["done"])(greet)


@pytest.mark.parametrize("ports", [(), "done", ("done", "done"), ("done", ""), None])
def test_ports_that_are_none_are_refused(ports: Any) -> None:
    with pytest.raises(UsageError, match="ports of node 'a'"):
        Documents().node("a", ports=ports)(print)
    with pytest.raises(UsageError, match="ports of reducer 'a'"):
        Documents().reducer("a", ports=ports)(print)
    with pytest.raises(UsageError, match="ports of node 'a'"):
        Documents([NodeSpec("a", ports, print)])


@pytest.mark.parametrize("name", ["", " ", None])
def test_blank_names_are_refused(name: Any) -> None:
    for register in (Documents().node(name, ports=["a"]), Documents().strategy(name)):
        with pytest.raises(UsageError, match="cannot be named"):
            register(print)


def test_what_is_always_there_is_not_replaced() -> None:
    with pytest.raises(UsageError, match="always there"):
        Documents().reducer("aggregate", ports=["a"])(print)
    with pytest.raises(UsageError, match="always there"):
        Documents().strategy("custom")(print)


def test_d9_a_custom_strategy_and_reducer_may_be_named_once_registered() -> None:
    scatter = Scatter(
        place("s"), "s", "items", Body(node="one"), {"some": place("g")}, reducer="any"
    )
    routes = dict.fromkeys(GATHERED, place("end"))
    gather = Gather(place("g"), "g", (scatter.id,), "custom", routes, function="sum")
    document, documents = sample(scatter, gather, terminal()), known()
    assert {f.code for f in documents.faults(document)} == {"unknown-reducer", "unknown-strategy"}
    documents.reducer("any", ports=["some"])(print)
    documents.strategy("sum")(print)
    documents.register(document)
    assert documents.strategies["sum"].run is print


# ---- tools


def candidates(*iris: str) -> Document:
    """Return a document that chooses among documents for each item."""
    body = Body(dag=DagReference("dagIri", iris))
    routes = dict.fromkeys(AGGREGATE, place("end"))
    return sample(Scatter(place("s"), "s", "items", body, routes), terminal())


def test_d11_a_tool_is_a_document_of_its_name() -> None:
    documents = known().register(candidates("tool:lookup", INNER))
    assert documents.resolve("tool:lookup") == Lookup()
    assert documents.resolve(INNER) == documents.document("inner")


def test_d11_candidates_that_are_not_registered_are_all_told() -> None:
    with pytest.raises(DocumentError) as caught:
        known().register(candidates("tool:lookup", "tool:rm", "urn:x:evil", "lookup", "tool:"))
    found = [(fault.code, fault.what) for fault in caught.value.faults]
    assert found == [
        ("unknown-candidate", "there is no document or tool 'tool:rm'"),
        ("unknown-candidate", "there is no document or tool 'urn:x:evil'"),
        ("bad-iri", "'lookup' is no absolute IRI"),
        ("unknown-candidate", "there is no document or tool 'tool:'"),
    ]


@pytest.mark.parametrize("iri", ["tool:rm", "lookup", "inner", "tool:", "urn:x:evil", ""])
def test_d11_nothing_else_is_ever_found(iri: str) -> None:
    with pytest.raises(DocumentError):
        known().resolve(iri)


def test_d11_the_agent_is_registered_with_its_nodes_and_its_tool() -> None:
    agent = bundled_document("react-agent")
    ports: dict[str, list[str]] = {}
    names = {p.id: getattr(p, "node", "") for p in agent.placements}
    for source, port, _ in agent.routes:
        ports.setdefault(names[source], []).append(port)
    nodes = [NodeSpec(name, tuple(found), print) for name, found in ports.items() if name]
    assert len(nodes) == 8
    Documents(nodes, [Lookup()]).register(agent)
    with pytest.raises(DocumentError) as caught:
        Documents(nodes[1:]).register(agent)
    assert {f.code for f in caught.value.faults} == {"unknown-candidate", "unknown-node"}


@pytest.mark.parametrize("name", ["", "a b", "a:b", "é", "x" * 65, "../x", "a\n"])
def test_d11_a_tool_has_a_name_that_models_can_say(name: str) -> None:
    with pytest.raises(UsageError, match="cannot be named"):
        Documents(tools=[Lookup(name)])


def test_d11_another_tool_of_the_same_name_is_refused() -> None:
    class Other:
        name = "lookup"

    documents = known()
    assert documents.tool(Lookup()) == Lookup()
    with pytest.raises(UsageError, match="another tool"):
        documents.tool(Other())


def test_d11_a_document_does_not_take_the_place_of_a_tool() -> None:
    end = Terminal("urn:x:end", "end", "completed")
    with pytest.raises(DocumentError) as caught:
        known().register(Document("tool:lookup", "mine", "1", {"main": end.id}, (end,)))
    assert faults(caught) == [("taken-id", "tool:lookup")]
    documents = known().register(Document("tool:new", "mine", "1", {"main": end.id}, (end,)))
    with pytest.raises(UsageError, match="is a document already"):
        documents.tool(Lookup("new"))


def test_d9_what_is_never_awaited_is_refused() -> None:
    async def later(*_: object) -> str:
        return "empty"

    documents = Documents()
    with pytest.raises(UsageError, match="reducer 'r' is asynchronous"):
        documents.reducer("r", ports=("empty",))(later)
    with pytest.raises(UsageError, match="strategy 's' is asynchronous"):
        documents.strategy("s")(later)
    assert not documents.reducers
    assert not documents.strategies
