"""All that is wrong with a document, found at once and each thing said where it stands."""

from __future__ import annotations

import re
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any, Final

import msgspec

from sag_research._text import clip
from sag_research.runtime._dag_document import (
    EMBEDDED_PORTS,
    GATHER_PORTS,
    REDUCER_PORTS,
    STRATEGIES,
    DagReference,
    Document,
    EmbeddedDag,
    Fault,
    Gather,
    Phase,
    Placement,
    ReservoirExecution,
    Scatter,
    SingleNode,
    Terminal,
    routes_of,
)
from sag_research.runtime._dag_registered import NodeSpec

__all__ = ["is_iri", "validate_document", "value_fault"]

_UNSEEN: Final = re.compile("[\\s\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff]")

_FEW: Final = 200
_EXACT: Final = 2**53
_MILLISECOND: Final = 0.001
"""Of smaller and larger numbers RDF libraries do not agree how they are written."""

_Found = Iterator[Fault]


def is_iri(text: str) -> bool:
    """Tell whether a text is an absolute IRI that every RDF library takes, and people can see.

    Examples
    --------
    >>> is_iri("urn:sag:dag:greet"), is_iri("greet"), is_iri("urn:a b"), is_iri("urn:50%")
    (True, False, False, False)
    """
    import pyoxigraph as ox

    try:
        ox.NamedNode(text)
    except ValueError:  # rdflib takes anything, and fails when it writes
        return False
    return _UNSEEN.search(text) is None


def validate_document(
    document: Document,
    *,
    nodes: Mapping[str, NodeSpec] | None = None,
    documents: Collection[str] | None = None,
    reducers: Mapping[str, tuple[str, ...]] | None = None,
    strategies: Collection[str] | None = None,
) -> list[Fault]:
    """Return all that is wrong with a document.

    Parameters
    ----------
    document : Document
    nodes : mapping of str to NodeSpec, optional
        The implementations by name. ``None``: whether they exist, and which ports they have, is
        not checked.
    documents : collection of str, optional
        IRIs of documents and tools that may be named. ``None``: any may.
    reducers : mapping of str to tuple of str, optional
        Ports by name of the reducers there are besides ``REDUCER_PORTS``. ``None``: any may be
        named.
    strategies : collection of str, optional
        What a ``custom`` gather may name. ``None``: anything.

    Returns
    -------
    list of Fault
        In the document's order, empty where nothing is wrong.

    Notes
    -----
    Checked are IRIs and names, that every placement is come to from an entry and comes to a
    terminal, that every cycle has a way out, that there is a route for each port and none for
    what is no port, the settings, and that all that is named exists. A :class:`Phase` without
    routes stands beside the flow and need not be come to.
    """
    if wrong := list(_values(document)):
        return wrong  # with values of the wrong type nothing else can be said
    known = _Known(document, nodes, documents, reducers, strategies)
    found = [
        *_entries(document, known),
        *_identities(document),
        *(fault for p in document.placements for fault in _placement(p, known)),
        *_flow(document, known),
    ]
    order = {placement.id: n for n, placement in enumerate(document.placements)}
    return sorted(found, key=lambda fault: order.get(fault.placement, -1))


class _Known:
    """What a document may name, and how a fault of it is made."""

    def __init__(
        self,
        document: Document,
        nodes: Mapping[str, NodeSpec] | None,
        documents: Collection[str] | None,
        reducers: Mapping[str, tuple[str, ...]] | None,
        strategies: Collection[str] | None,
    ) -> None:
        self.id = document.id
        self.nodes, self.documents, self.reducers = nodes, documents, reducers
        self.strategies = strategies
        self.placements = document.by_id
        self.names = {p.name: p.id for p in document.placements}

    def fault(self, placement: Placement | None, code: str, what: str, fix: str = "",
              port: str = "") -> Fault:  # fmt: skip
        return Fault(self.id, "" if placement is None else placement.id, port, code, what, fix)

    def instead(self, target: str) -> str:
        """Say which placement may have been meant."""
        if target in self.names:
            return f"{clip(target)!r} is a name, write {self.names[target]}"
        return _meant(target, self.placements, "name the IRI of a placement of this document")


def _meant(given: str, known: Iterable[str], otherwise: str) -> str:
    names = [*known]  # of very many, looking for the nearest takes longer than all else
    near = get_close_matches(given, names, 1) if len(names) <= _FEW else []
    return f"did you mean {clip(near[0], 120)!r}?" if near else otherwise


# ---- values


def value_fault(value: Any, wanted: Any) -> str:
    """Say why a value, as JSON has it, cannot be what is wanted; empty where it can."""
    try:
        msgspec.convert(msgspec.to_builtins(value), wanted)
    except UnicodeError:
        return "there is half a character in it"
    except (msgspec.ValidationError, TypeError, RecursionError) as error:
        return clip(error, 200)
    return ""


def _values(document: Document) -> _Found:
    """Yield a fault for each value of the wrong type, which Python lets anybody write."""
    for field in msgspec.structs.fields(Document):
        if field.name != "placements":
            yield from _value(document, "", field, getattr(document, field.name))
    given: Any = document.placements
    if not isinstance(given, tuple):
        yield Fault(str(document.id), "", "", "bad-value", "placements are no tuple")
        return
    for placement in given:
        if not isinstance(placement, Placement):
            why = f"{clip(repr(placement))} is no placement"
            yield Fault(str(document.id), "", "", "bad-value", why)
            continue
        for field in msgspec.structs.fields(type(placement)):
            value = getattr(placement, field.name)
            yield from _value(document, str(placement.id), field, value)


def _value(
    document: Document, placement: str, field: msgspec.structs.FieldInfo, value: Any
) -> _Found:
    if why := value_fault(value, field.type):
        yield Fault(str(document.id), placement, "", "bad-value", f"{field.encode_name}: {why}")


# ---- names and entries


def _entries(document: Document, known: _Known) -> _Found:
    if not is_iri(document.id):
        yield _no_iri(document.id, known, None)
    if not document.name.strip():
        yield known.fault(None, "blank-name", "the document has no name")
    if not document.entrypoints:
        fix = 'say where a run begins, as in entrypoints {"main": …}'
        yield known.fault(None, "no-entry", "there is no entry", fix)
    for label, target in document.entrypoints.items():
        if not label.strip():
            yield known.fault(None, "blank-port", "an entry has no label")
        if target not in known.placements:
            what = f"the entry leads to {clip(target, 120)!r}, which is no placement"
            yield known.fault(None, "unknown-entry", what, known.instead(target), label)


def _identities(document: Document) -> _Found:
    known = _Known(document, None, None, None, None)
    ids = Counter(p.id for p in document.placements)
    names = Counter(p.name for p in document.placements)
    seen: set[str] = set()
    for placement in document.placements:
        if placement.id in seen:
            continue
        seen.add(placement.id)
        if not is_iri(placement.id):
            yield _no_iri(placement.id, known, placement)
        if ids[placement.id] > 1:
            what = f"{ids[placement.id]} placements have this IRI"
            yield known.fault(placement, "duplicate-id", what, "give each its own")
        if not placement.name.strip():
            yield known.fault(placement, "blank-name", "the placement has no name")
        elif names[placement.name] > 1 and ids[placement.id] == 1:
            what = f"{names[placement.name]} placements are named {clip(placement.name)!r}"
            yield known.fault(placement, "duplicate-name", what, "give each its own")


def _no_iri(text: str, known: _Known, placement: Placement | None) -> Fault:
    what = f"{clip(text, 120)!r} is no absolute IRI"
    return known.fault(placement, "bad-iri", what, "write one such as urn:sag:dag:name")


# ---- one placement


def _placement(placement: Placement, known: _Known) -> _Found:
    for port, target in routes_of(placement).items():
        if not port.strip():
            yield known.fault(placement, "blank-port", "a route has no port")
        if target not in known.placements:
            what = f"the route leads to {clip(target, 120)!r}, which is no placement"
            yield known.fault(placement, "unknown-target", what, known.instead(target), port)
    yield from _CHECKS[type(placement)](placement, known)


def _ports(placement: Placement, ports: Iterable[str] | None, known: _Known) -> _Found:
    """Yield a fault for each port without a route, and each route without a port."""
    if ports is None:
        return
    routes, ports = routes_of(placement), tuple(ports)
    for port in ports:
        if port not in routes:
            fix = f'add "{clip(port, 40)}" to its routes'
            what = f"there is no route for the port {clip(port)!r}"
            yield known.fault(placement, "missing-route", what, fix, port)
    for port in routes:
        if port.strip() and port not in ports:
            what = f"{clip(port)!r} is none of its ports"
            yield known.fault(placement, "unknown-port", what, f"it has {', '.join(ports)}", port)


def _node(placement: Placement, name: str, known: _Known) -> _Found:
    if not name.strip():
        yield known.fault(placement, "bad-settings", "node is blank", "name an implementation")
    elif known.nodes is not None and name not in known.nodes:
        fix = _meant(name, known.nodes, "register it first")
        what = f"there is no implementation {clip(name)!r}"
        yield known.fault(placement, "unknown-node", what, fix)


def _implemented(placement: SingleNode | Phase, known: _Known) -> _Found:
    yield from _node(placement, placement.node, known)
    spec = (known.nodes or {}).get(placement.node)
    if spec is not None and (placement.outputs or not isinstance(placement, Phase)):
        yield from _ports(placement, spec.ports, known)


def _phase(placement: Phase, known: _Known) -> _Found:
    if placement.when not in {"pre", "post"}:
        what = f"when cannot be {clip(placement.when)!r}"
        yield known.fault(placement, "bad-settings", what, "give pre or post")
    yield from _implemented(placement, known)


def _terminal(placement: Terminal, known: _Known) -> _Found:
    if placement.outcome not in EMBEDDED_PORTS:
        what = f"outcome cannot be {clip(placement.outcome)!r}"
        yield known.fault(placement, "bad-settings", what, "give completed or failed")


def _dag(placement: Placement, iri: str, known: _Known, code: str = "unknown-dag") -> _Found:
    if not is_iri(iri):
        yield _no_iri(iri, known, placement)
    elif known.documents is not None and iri not in known.documents:
        what = f"there is no document or tool {clip(iri, 120)!r}"
        yield known.fault(placement, code, what, _meant(iri, known.documents, "register it first"))


def _embedded(placement: EmbeddedDag, known: _Known) -> _Found:
    yield from _dag(placement, placement.dag, known)
    yield from _ports(placement, EMBEDDED_PORTS, known)


def _scatter(placement: Scatter, known: _Known) -> _Found:
    body = placement.body
    if bool(body.node) == bool(body.dag):
        what = "the body is " + ("both a node and a document" if body.node else "nothing")
        yield known.fault(placement, "bad-body", what, "give one of node and dag")
    if body.node:
        yield from _node(placement, body.node, known)
    if isinstance(body.dag, DagReference):
        yield from _reference(placement, body.dag, known)
    elif body.dag:
        yield from _dag(placement, body.dag, known)
    for setting, text in (("source", placement.source), ("itemKey", placement.item_key)):
        if not text.strip():
            yield known.fault(placement, "bad-settings", f"{setting} is blank")
    yield from _execution(placement, known)
    ports = {**(known.reducers or {}), **REDUCER_PORTS}.get(placement.reducer)
    if ports is None and known.reducers is not None:
        what = f"there is no reducer {clip(placement.reducer)!r}"
        fix = _meant(placement.reducer, [*REDUCER_PORTS, *known.reducers], "register it first")
        yield known.fault(placement, "unknown-reducer", what, fix)
    yield from _ports(placement, ports, known)


def _reference(placement: Scatter, reference: DagReference, known: _Known) -> _Found:
    if reference.from_ != "item":
        what = f"from cannot be {clip(reference.from_)!r}"
        yield known.fault(placement, "bad-settings", what, 'give "item"')
    if not reference.path.strip():
        yield known.fault(placement, "bad-settings", "path is blank")
    if not reference.candidates:
        yield known.fault(placement, "no-candidates", "there is no document to choose from")
    for iri in dict.fromkeys(reference.candidates):
        yield from _dag(placement, iri, known, "unknown-candidate")


def _execution(placement: Scatter, known: _Known) -> _Found:
    given = placement.execution
    if isinstance(given, ReservoirExecution):
        counts, seconds = {"capacity": given.capacity}, {"idle": given.idle}
        if not given.key.strip():
            yield known.fault(placement, "bad-settings", "key is blank")
    else:
        counts, seconds = {"concurrency": given.concurrency}, {"throttle": given.throttle}
    for setting, count in counts.items():
        if not 1 <= count <= _EXACT:
            what = f"{setting} cannot be {count}"
            yield known.fault(placement, "bad-settings", what, "give a whole number from 1 on")
    for setting, value in seconds.items():
        if value is not None and value != 0 and not _MILLISECOND <= value <= _EXACT:
            what = f"{setting} cannot be {value}"
            yield known.fault(placement, "bad-settings", what, "give seconds, 0 or from 0.001 on")


def _gather(placement: Gather, known: _Known) -> _Found:
    if not placement.sources:
        yield known.fault(placement, "no-sources", "it gathers from nowhere", "name a scatter")
    for source in dict.fromkeys(placement.sources):
        producer = known.placements.get(source)
        if not isinstance(producer, Scatter):
            what = f"the source {clip(source, 120)!r} is no scatter of this document"
            yield known.fault(placement, "unknown-source", what, known.instead(source))
        elif placement.id not in producer.outputs.values():
            what = f"no route leads here from the source {clip(producer.name)!r}"
            fix = "add a route to it, or leave the source out"
            yield known.fault(placement, "unrouted-source", what, fix)
    yield from _strategy(placement, known)
    yield from _ports(placement, GATHER_PORTS, known)


def _strategy(placement: Gather, known: _Known) -> _Found:
    needs = {"append": "target", "collect": "target", "partition": "target", "map": "mapping",
             "custom": "function"}.get(placement.strategy)  # fmt: skip
    if placement.strategy not in STRATEGIES:
        what = f"there is no strategy {clip(placement.strategy)!r}"
        fix = f"give one of {', '.join(STRATEGIES)}"
        yield known.fault(placement, "unknown-strategy", what, fix)
    elif needs is not None and not getattr(placement, needs):
        what = f"the strategy {placement.strategy!r} needs a {needs}"
        yield known.fault(placement, "bad-settings", what)
    elif (
        placement.strategy == "custom"
        and known.strategies is not None
        and placement.function not in known.strategies
    ):
        what = f"there is no registered strategy {clip(placement.function)!r}"
        fix = _meant(placement.function, known.strategies, "register it first")
        yield known.fault(placement, "unknown-strategy", what, fix)


_CHECKS: Final[Mapping[type, Callable[..., _Found]]] = {
    SingleNode: _implemented,
    Scatter: _scatter,
    Gather: _gather,
    EmbeddedDag: _embedded,
    Terminal: _terminal,
    Phase: _phase,
}


# ---- the flow


def _flow(document: Document, known: _Known) -> _Found:
    """Yield what is never come to, what never ends, and cycles without a way out."""
    ahead: dict[str, set[str]] = {iri: set() for iri in known.placements}
    behind: dict[str, set[str]] = defaultdict(set)
    open_ended = set()  # a route to nowhere is a fault of its own: it may lead to a terminal
    for source, _port, target in document.routes:
        if target in ahead:
            ahead[source].add(target)
            behind[target].add(source)
        else:
            open_ended.add(source)
    beside = {
        iri for iri, p in known.placements.items()
        if isinstance(p, Phase) and not p.outputs and not behind[iri]
    }  # fmt: skip
    starts = [target for target in document.entrypoints.values() if target in ahead]
    come_to = _reached(starts, ahead)
    ends = [iri for iri, p in known.placements.items() if isinstance(p, Terminal)]
    ending = _reached([*ends, *open_ended], behind)
    for iri, placement in known.placements.items():
        if starts and iri not in come_to and not _is_phase_apart(placement, behind):
            what, fix = "no entry leads here", "route to it, or leave it out"
            yield known.fault(placement, "unreachable", what, fix)
        if iri not in ending and iri not in beside:
            what, fix = "no terminal can be come to from here", "route to one"
            yield known.fault(placement, "no-terminal", what, fix)
    yield from _endless(ahead, open_ended, known)


def _is_phase_apart(placement: Placement, behind: Mapping[str, set[str]]) -> bool:
    """Tell whether a placement is a phase that nothing leads to."""
    return isinstance(placement, Phase) and not behind.get(placement.id)


def _reached(starts: Iterable[str], ahead: Mapping[str, set[str]]) -> set[str]:
    reached, waiting = set(starts), deque(starts)
    while waiting:
        for target in ahead.get(waiting.popleft(), ()):
            if target not in reached:
                reached.add(target)
                waiting.append(target)
    return reached


def _endless(ahead: Mapping[str, set[str]], open_ended: set[str], known: _Known) -> _Found:
    """Yield a fault for each cycle that no route leaves."""
    import networkx as nx

    for circle in nx.strongly_connected_components(nx.DiGraph(ahead)):
        is_cycle = len(circle) > 1 or any(iri in ahead[iri] for iri in circle)
        if is_cycle and not circle & open_ended and all(ahead[iri] <= circle for iri in circle):
            ring = [p for iri, p in known.placements.items() if iri in circle]
            what = f"no route leaves the cycle of {clip(', '.join(p.name for p in ring), 120)}"
            yield known.fault(ring[0], "endless-cycle", what, "give one of them a way out")
