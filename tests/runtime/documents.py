"""What the tests of documents share: nodes that do nothing, sound documents, ways to spoil one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import hypothesis.strategies as st
import msgspec

from sag_research._text import iri
from sag_research.runtime import (
    Body,
    DagReference,
    Document,
    Documents,
    EmbeddedDag,
    Gather,
    ItemExecution,
    NodeSpec,
    Phase,
    Placement,
    ReservoirExecution,
    Scatter,
    SingleNode,
    Terminal,
)

PORTS = {"one": ("done",), "two": ("done", "error"), "three": ("yes", "no", "error")}
NODES = [NodeSpec(name, ports, lambda state, context, port=ports[0]: port)
         for name, ports in PORTS.items()]  # fmt: skip
INNER, LOOKUP = iri("dag", "inner"), "tool:lookup"


class Lookup(NamedTuple):
    """A tool as far as documents look at one."""

    name: str = "lookup"


def place(name: str, document: str = "sample") -> str:
    """Return the IRI of a placement."""
    return iri("dag", document, name)


def known() -> Documents:
    """Return documents that know the nodes, the tool and the inner document of the samples."""
    end = Terminal(place("end", "inner"), "end", "completed")
    return Documents(NODES, [Lookup()]).register(
        Document(INNER, "inner", "1", {"main": end.id}, (end,))
    )


def sample(*placements: Placement, first: str | None = None) -> Document:
    """Return a document that begins at its first placement."""
    return Document(
        iri("dag", "sample"), "sample", "1", {"main": first or placements[0].id}, placements
    )


def single(name: str, node: str = "one", **targets: str) -> SingleNode:
    """Return a node of the sample; targets are names."""
    return SingleNode(place(name), name, node, {port: place(t) for port, t in targets.items()})


def terminal(name: str = "end", outcome: str = "completed") -> Terminal:
    """Return an end of the sample."""
    return Terminal(place(name), name, outcome)


def plain_form(document: Document) -> dict[str, Any]:
    """Return a document in the form that has plain maps, where RDF would lose its routes."""
    names = {p.id: p.name for p in document.placements}
    return {
        "@context": {"outputs": {"@id": "urn:x:outputs"}}, "@id": document.id, "@type": "DAG",
        "name": document.name, "version": document.version,
        "entrypoints": document.entrypoints,
        "nodes": [_plain(p, names) for p in document.placements],
    }  # fmt: skip


def _plain(placement: Placement, names: dict[str, str]) -> dict[str, Any]:
    flat: dict[str, Any] = msgspec.to_builtins(placement)
    if isinstance(placement, Gather):
        gather = {key: flat.pop(key) for key in ("strategy", "target", "mapping", "function")}
        flat |= {"sources": {names[s]: {} for s in placement.sources}, "gather": gather}
    if isinstance(placement, Scatter) and isinstance(placement.body.dag, DagReference):
        flat["body"]["dag"]["@type"] = "DagReference"
    return flat


def by_iri(document: Document) -> Document:
    """Return a document in the order that comes back from RDF."""
    placements = sorted(document.placements, key=lambda placement: placement.id)
    return msgspec.structs.replace(document, placements=tuple(placements))


# ---- random documents

AGGREGATE, GATHERED = (
    ("all-success", "partial", "all-error", "empty"),
    ("success", "error", "empty"),
)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8).filter(str.strip)
SECONDS = st.none() | st.integers(0, 9) | st.floats(0.001, 2.0**53) | st.just(2**53)
EXECUTIONS = st.builds(ItemExecution, st.integers(1, 2**53), SECONDS) | st.builds(
    ReservoirExecution, TEXTS, st.integers(1, 9), SECONDS
)
BODIES = (
    st.builds(Body, node=st.sampled_from([*PORTS]))
    | st.just(Body(dag=INNER))
    | st.builds(Body, dag=st.builds(DagReference, TEXTS, st.just((LOOKUP, INNER))))
)
GATHERS = st.sampled_from(
    [{"strategy": "append", "target": "a"}, {"strategy": "map", "mapping": {"x": "y", "z": "y"}},
     {"strategy": "discard"}, {"strategy": "collect", "target": "b.c"}]
)  # fmt: skip


@st.composite
def documents(draw: st.DrawFn) -> Document:
    """Draw a document without a fault: a line from entry to end, and other routes to anywhere."""
    kinds = draw(st.lists(st.sampled_from("nnse"), max_size=6))
    names = draw(st.lists(TEXTS, min_size=20, max_size=20, unique=True))
    line: list[tuple[str, str]] = []
    for kind in kinds:
        line += [("s", ""), ("g", "")] if kind == "s" else [(kind, "")]
    ids = [iri("dag", "sample", str(n)) for n in range(len(line) + 1)]
    placements: list[Placement] = []
    for n, (kind, _) in enumerate(line):
        placements.append(draw(_placement(kind, ids[n], names[n], ids, n)))
    outcome = draw(st.sampled_from(["completed", "failed"]))
    placements.append(Terminal(ids[-1], names[len(line)], outcome))
    if draw(st.booleans()):
        placements.append(Phase(place("phase"), names[19], "post", "one"))
    placements = draw(st.permutations(placements))
    entries = dict.fromkeys(draw(st.sets(TEXTS, min_size=1, max_size=2)), ids[0])
    name, version = draw(TEXTS), draw(TEXTS)
    return Document(iri("dag", "sample"), name, version, entries, tuple(placements))


def _placement(
    kind: str, id: str, name: str, ids: list[str], n: int
) -> st.SearchStrategy[Placement]:
    def routes(ports: tuple[str, ...]) -> st.SearchStrategy[dict[str, str]]:
        anywhere = {port: st.sampled_from(ids) for port in ports[1:]}
        return st.fixed_dictionaries({ports[0]: st.just(ids[n + 1]), **anywhere})

    if kind == "n":
        return st.sampled_from([*PORTS]).flatmap(
            lambda node: st.builds(SingleNode, st.just(id), st.just(name), st.just(node),
                                   routes(PORTS[node]))
        )  # fmt: skip
    if kind == "s":
        return st.builds(
            Scatter, st.just(id), st.just(name), TEXTS, BODIES, routes(AGGREGATE), TEXTS,
            execution=EXECUTIONS,
        )  # fmt: skip
    if kind == "g":
        return st.tuples(GATHERS, routes(GATHERED)).map(
            lambda drawn: Gather(id, name, (ids[n - 1],), outputs=drawn[1], **drawn[0])
        )
    mapping = st.dictionaries(TEXTS, TEXTS, max_size=2)
    return st.builds(
        EmbeddedDag, st.just(id), st.just(name), st.just(INNER), routes(("completed", "failed")),
        mapping, mapping,
    )  # fmt: skip


# ---- faults

Expected = tuple[str, str, str]
"""Code, placement and port of a fault."""


class Spoiled(NamedTuple):
    """A part of a document with faults in it, and what they are."""

    placements: tuple[Placement, ...]
    expected: tuple[Expected, ...]
    entries: Mapping[str, str] = MappingProxyType({})


def _new(
    fault: str, made: Callable[[str, str, str], Placement], *ports: str
) -> Callable[[str, str], Spoiled]:
    """Return a maker of one placement with one fault, which an entry of its own leads to."""

    def spoil(tag: str, end: str) -> Spoiled:
        id = place(tag)
        expected = tuple((fault, id, port) for port in ports or ("",))
        return Spoiled((made(id, tag, end),), expected, {tag: id})

    return spoil


def _scatter(**changes: Any) -> Callable[[str, str, str], Placement]:
    def made(id: str, name: str, end: str) -> Placement:
        fine: dict[str, Any] = {"source": "s", "body": Body(node="one")}
        routes = dict.fromkeys(AGGREGATE, end)
        return Scatter(id, name, **{**fine, "outputs": routes, **changes})

    return made


def _gathered(**changes: Any) -> Callable[[str, str], Spoiled]:
    """Return a maker of a gather with a fault, and of the scatter that it needs."""
    fault, port = changes.pop("fault"), changes.pop("port", "")

    def spoil(tag: str, end: str) -> Spoiled:
        ids = place(tag), place(f"{tag}-from")
        fine: dict[str, Any] = {"sources": (ids[1],), "strategy": "append", "target": "t"}
        routes = {name: end for name in GATHERED if name != port}
        gather = Gather(ids[0], tag, **{**fine, "outputs": routes, **changes})
        scatter = _scatter(outputs=dict.fromkeys(AGGREGATE, ids[0]))(ids[1], f"{tag}-from", end)
        return Spoiled((gather, scatter), ((fault, ids[0], port),), {tag: ids[1]})

    return spoil


def _unrouted(tag: str, end: str) -> Spoiled:
    ids = place(tag), place(f"{tag}-from")
    gather = Gather(ids[0], tag, (ids[1],), "append", dict.fromkeys(GATHERED, end), "t")
    scatter = _scatter()(ids[1], f"{tag}-from", end)
    entries = {tag: ids[0], f"{tag}-2": ids[1]}
    return Spoiled((gather, scatter), (("unrouted-source", ids[0], ""),), entries)


def _circle(tag: str, end: str) -> Spoiled:
    ids = place(tag), place(f"{tag}-2")
    nodes = [SingleNode(ids[n], f"{tag}{n}", "one", {"done": ids[1 - n]}) for n in (0, 1)]
    codes = (("endless-cycle", ids[0], ""), *(("no-terminal", id, "") for id in ids))
    return Spoiled(tuple(nodes), codes, {tag: ids[0]})


def _island(tag: str, end: str) -> Spoiled:
    node = SingleNode(place(tag), tag, "one", {"done": end})
    return Spoiled((node,), (("unreachable", node.id, ""),))


def _twins(tag: str, end: str) -> Spoiled:
    node = SingleNode(place(tag), tag, "one", {"done": end})
    other = msgspec.structs.replace(node, name=f"{tag}-2")
    return Spoiled((node, other), (("duplicate-id", node.id, ""),), {tag: node.id})


def _namesakes(tag: str, end: str) -> Spoiled:
    ids = place(tag), place(f"{tag}-2")
    nodes = tuple(SingleNode(id, tag, "one", {"done": end}) for id in ids)
    expected = tuple(("duplicate-name", id, "") for id in ids)
    return Spoiled(nodes, expected, dict(zip((tag, f"{tag}-2"), ids, strict=True)))


def _lost_entry(tag: str, end: str) -> Spoiled:
    return Spoiled((), (("unknown-entry", "", tag),), {tag: place("nowhere")})


def _no_iri(tag: str, end: str) -> Spoiled:
    id = f"{tag} is no iri"
    node = SingleNode(id, tag, "one", {"done": end})
    return Spoiled((node,), (("bad-iri", id, ""),), {tag: id})


def _one(node: str = "one", **routes: str) -> Callable[[str, str, str], Placement]:
    def made(id: str, name: str, end: str) -> Placement:
        return SingleNode(id, name, node, {p: t or end for p, t in routes.items()})

    return made


FAULTS: dict[str, Callable[[str, str], Spoiled]] = {
    "an unknown target": _new("unknown-target", _one(done=place("nowhere")), "done"),
    "missing routes": _new("missing-route", _one("three", yes=""), "no", "error"),
    "a route for no port": _new("unknown-port", _one(done="", dnoe=""), "dnoe"),
    "a blank port": _new("blank-port", _one(**{"done": "", " ": ""})),
    "an unknown node": _new("unknown-node", _one("on", done="")),
    "an unknown node in a body": _new("unknown-node", _scatter(body=Body(node="oen"))),
    "a blank node": _new("bad-settings", _one(" ", done="")),
    "missing routes of an embedded document": _new(
        "missing-route",
        lambda id, name, end: EmbeddedDag(id, name, INNER, {"completed": end}),
        "failed",
    ),
    "an unknown document": _new(
        "unknown-dag",
        lambda id, name, end: EmbeddedDag(id, name, "urn:x:no", {"completed": end, "failed": end}),
    ),
    "an unknown document in a body": _new("unknown-dag", _scatter(body=Body(dag="tool:no"))),
    "an unknown candidate": _new(
        "unknown-candidate", _scatter(body=Body(dag=DagReference("iri", (LOOKUP, "tool:lok"))))
    ),
    "no candidates": _new("no-candidates", _scatter(body=Body(dag=DagReference("iri", ())))),
    "a blank path": _new("bad-settings", _scatter(body=Body(dag=DagReference("", (LOOKUP,))))),
    "a choice by no item": _new(
        "bad-settings", _scatter(body=Body(dag=DagReference("iri", (LOOKUP,), "state")))
    ),
    "no body": _new("bad-body", _scatter(body=Body())),
    "two bodies": _new("bad-body", _scatter(body=Body("one", INNER))),
    "an unknown reducer": _new("unknown-reducer", _scatter(reducer="agregate")),
    "missing routes of a scatter": _new(
        "missing-route",
        lambda id, name, end: Scatter(
            id, name, "s", Body(node="one"), {"empty": end}, reducer="terminal"
        ),
        "success",
        "error",
    ),
    "a blank source": _new("bad-settings", _scatter(source=" ")),
    "a blank item key": _new("bad-settings", _scatter(item_key="")),
    "concurrency without end": _new("bad-settings", _scatter(execution=ItemExecution(2**53 + 1))),
    "a throttle of a microsecond": _new("bad-settings", _scatter(execution=ItemExecution(1, 1e-6))),
    "concurrency 0": _new("bad-settings", _scatter(execution=ItemExecution(0))),
    "a throttle below 0": _new("bad-settings", _scatter(execution=ItemExecution(1, -0.5))),
    "an endless throttle": _new("bad-settings", _scatter(execution=ItemExecution(1, float("inf")))),
    "a throttle that is no number": _new(
        "bad-settings", _scatter(execution=ItemExecution(1, float("nan")))
    ),
    "capacity 0": _new("bad-settings", _scatter(execution=ReservoirExecution("k", 0))),
    "a blank key": _new("bad-settings", _scatter(execution=ReservoirExecution(" ", 1))),
    "idle below 0": _new("bad-settings", _scatter(execution=ReservoirExecution("k", 1, -1))),
    "a missing route of a gather": _gathered(fault="missing-route", port="empty"),
    "an unknown source": _gathered(fault="unknown-source", sources=(place("nowhere"),)),
    "no sources": _gathered(fault="no-sources", sources=()),
    "an unknown strategy": _gathered(fault="unknown-strategy", strategy="apend"),
    "an unknown custom strategy": _gathered(
        fault="unknown-strategy", strategy="custom", function="no"
    ),
    "a strategy without target": _gathered(fault="bad-settings", target=""),
    "a map without mapping": _gathered(fault="bad-settings", strategy="map"),
    "no custom strategy": _gathered(fault="bad-settings", strategy="custom"),
    "an unrouted source": _unrouted,
    "an unknown outcome": _new("bad-settings", lambda id, name, end: Terminal(id, name, "done")),
    "an unknown phase": _new(
        "bad-settings", lambda id, name, end: Phase(id, name, "mid", "one", {"done": end})
    ),
    "a phase of an unknown node": _new(
        "unknown-node", lambda id, name, end: Phase(id, name, "pre", "oen", {"done": end})
    ),
    "a cycle without exit": _circle,
    "a loop without exit": _new(
        "endless-cycle", lambda id, name, end: SingleNode(id, name, "one", {"done": id})
    ),
    "an unreachable placement": _island,
    "twins": _twins,
    "namesakes": _namesakes,
    "a blank name": _new(
        "blank-name", lambda id, name, end: SingleNode(id, " ", "one", {"done": end})
    ),
    "an entry to nowhere": _lost_entry,
    "no IRI": _no_iri,
}  # fmt: skip


def spoiled(document: Document, faults: dict[str, str]) -> tuple[Document, set[Expected]]:
    """Add faults to a document: their names by what their placements are to be called."""
    end = next(p.id for p in document.placements if isinstance(p, Terminal))
    parts = [FAULTS[fault](tag, end) for tag, fault in faults.items()]
    entries = dict(document.entrypoints)
    for part in parts:
        entries.update(part.entries)
    placements = (*document.placements, *(p for part in parts for p in part.placements))
    made = msgspec.structs.replace(document, placements=placements, entrypoints=entries)
    return made, {expected for part in parts for expected in part.expected}
