"""What a run, its steps and its facts are in RDF: pure functions from records to quads.

Every function gives the same quads for the same input, whatever was recorded before, so quads
can be made in any order and as often as one likes: the store is a set.

A step is an activity and its content is an entity; no node is both. All that is said of a run
stands in the run's own graph; what runs share (entities, agents) is described in the catalogue.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from pyoxigraph import Literal, NamedNode, Quad

from sag_research._text import iri
from sag_research.bloom._prov_terms import (
    CATALOGUE,
    DATE_TIME,
    DECISIONS,
    RDF_TYPE,
    agent_node,
    content_node,
    entity_node,
    graph_node,
    json_literal,
    literal,
    prov,
    run_node,
    sag,
    step_node,
    version_node,
)
from sag_research.bloom._trace import Action, Observation, TraceItem, item_kind, item_text
from sag_research.model import Entity, Outcome, Run

__all__ = [
    "STEP_TYPES",
    "Named",
    "Place",
    "Ref",
    "Version",
    "Writer",
    "end_quads",
    "entity_quads",
    "evidence_quads",
    "fork_quads",
    "hint_quads",
    "hint_used_quad",
    "item_quads",
    "mention_quads",
    "merge_quads",
    "outcome_quads",
    "revision_quad",
    "run_quads",
]

Node: TypeAlias = NamedNode | Literal
Said: TypeAlias = tuple[NamedNode, NamedNode, Node]

STEP_TYPES: Final = {
    "thought": (sag("ThoughtStep"), sag("Thought")),
    "action": (sag("ActionStep"), sag("ToolCall")),
    "observation": (sag("ObservationStep"), sag("ToolResult")),
    "final": (sag("FinalStep"), sag("Answer")),
}
"""By kind of item, what its activity is and what its content is."""

_ACTIVITY: Final = prov("Activity")
_ENTITY: Final = prov("Entity")
_ABOUT: Final = ("goal", "task_id", "dataset", "repo", "model", "label")


class Place(NamedTuple):
    """Where an item stands in the log, and when it began, if the source knows."""

    position: int | None = None
    step: int | None = None
    started: float | None = None


class Named(NamedTuple):
    """That an item names an entity: ``PROCESSED`` (read) or ``MUTATED`` (changed)."""

    entity: Entity
    role: str = "PROCESSED"


class Version(NamedTuple):
    """What the item of a run made of an entity."""

    entity: Entity
    run_id: str
    ordinal: int


class Ref(NamedTuple):
    """The content of an item of a run."""

    run_id: str
    ordinal: int


def _in(graph: NamedNode, said: Iterable[Said]) -> list[Quad]:
    return [Quad(*one, graph) for one in said]


Writer: TypeAlias = Callable[[int], str]
"""Gives the run that wrote the item of an ordinal: of a fork's inherited ones, an ancestor."""


def item_quads(
    run_id: str, item: TraceItem, place: Place | None = None, writer: Writer | None = None
) -> list[Quad]:
    """Return the quads of one trace item: its activity and its content.

    Parameters
    ----------
    run_id : str
    item : TraceItem
    place : Place, optional
        Where it stands in the log.
    writer : callable, optional
        For a fork: gives the run that wrote the item of an ordinal.

    Examples
    --------
    >>> from sag_research.bloom import Thought
    >>> for quad in item_quads("r", TraceItem(1, Thought("hm")))[:4]:
    ...     print(quad.predicate, quad.object)
    <http://www.w3.org/1999/02/22-rdf-syntax-ns#type> <http://www.w3.org/ns/prov#Activity>
    <http://www.w3.org/1999/02/22-rdf-syntax-ns#type> <urn:sag:vocab:ThoughtStep>
    <urn:sag:vocab:kind> "thought"
    <urn:sag:vocab:ordinal> "1"^^<http://www.w3.org/2001/XMLSchema#integer>
    """
    number, kind = item.ordinal, item_kind(item)
    step, content = step_node(run_id, number), content_node(run_id, number)
    step_type, content_type = STEP_TYPES[kind]
    said: list[Said] = [
        (step, RDF_TYPE, _ACTIVITY),
        (step, RDF_TYPE, step_type),
        (step, sag("kind"), Literal(kind)),
        (step, sag("ordinal"), Literal(number)),
        (step, sag("partOfRun"), run_node(run_id)),
        (content, RDF_TYPE, _ENTITY),
        (content, RDF_TYPE, content_type),
        (content, prov("value"), literal(item_text(item))),
        (content, prov("wasGeneratedBy"), step),
    ]
    if number:
        wrote = writer(number - 1) if writer else run_id
        before = step_node(wrote, number - 1)
        said.append((step, prov("wasInformedBy"), before))
        said += [] if wrote == run_id else [(before, RDF_TYPE, _ACTIVITY)]
    if item.origin is not None:
        wrote = writer(item.origin) if writer else run_id
        source = content_node(wrote, item.origin)
        said.append((content, prov("wasDerivedFrom"), source))
        said += [] if wrote == run_id else [(source, RDF_TYPE, _ENTITY)]
    said += [(content, *told) for told in _call(item)]
    said += [(step, *told) for told in _placed(place)]
    return _in(graph_node(run_id), said)


def _call(item: TraceItem) -> Iterator[tuple[NamedNode, Literal]]:
    """Say what the tool call was, or which one came back."""
    step = item.step
    if isinstance(step, Action):
        yield sag("toolName"), literal(step.tool)
        yield sag("arguments"), json_literal(step.args)
    if isinstance(step, (Action, Observation)) and step.call_id:
        yield sag("callId"), literal(step.call_id)


def _placed(place: Place | None) -> Iterator[tuple[NamedNode, Literal]]:
    if place is None:
        return
    if place.position is not None:
        yield sag("position"), Literal(place.position)
    if place.step is not None:
        yield sag("step"), Literal(place.step)
    if (when := _time(place.started)) is not None:
        yield prov("startedAtTime"), when


def _time(seconds: float | None) -> Literal | None:
    """Write a time; None where there is none, as in milliseconds that somebody took for seconds."""
    if seconds is None:
        return None
    try:
        when = dt.datetime.fromtimestamp(seconds, dt.UTC)
    except (ValueError, OverflowError, OSError):
        return None
    return Literal(when.isoformat().replace("+00:00", "Z"), datatype=DATE_TIME)


def run_quads(run: Run) -> list[Quad]:
    """Return what is known of a run from its beginning, and the catalogue's entries.

    These are the description of its graph as a bundle, and of its agent, which other runs share.
    """
    node, graph = run_node(run.run_id), graph_node(run.run_id)
    said: list[Said] = [
        (node, RDF_TYPE, _ACTIVITY),
        (node, RDF_TYPE, sag("Run")),
        (node, sag("runId"), literal(run.run_id)),
        (node, sag("runKind"), literal(run.kind)),
    ]
    for name in _ABOUT:
        if value := getattr(run, name):
            said.append((node, sag(_camel(name)), literal(value)))
    if (created := _time(run.created_at)) is not None:
        said.append((node, sag("createdAt"), created))
    if run.agent:
        said += [(node, prov("wasAssociatedWith"), agent_node(run.agent))]
        said += [(agent_node(run.agent), RDF_TYPE, prov("Agent"))]
    said += _planned(run)
    entry: list[Said] = [
        (graph, RDF_TYPE, prov("Bundle")),
        (graph, RDF_TYPE, _ENTITY),
        (graph, sag("describes"), node),
        (graph, sag("runId"), literal(run.run_id)),
    ]
    if run.agent:
        agent = agent_node(run.agent)
        entry += [
            (agent, RDF_TYPE, prov("Agent")),
            (agent, RDF_TYPE, prov("SoftwareAgent")),
            (agent, sag("name"), literal(run.agent)),
        ]
    return _in(graph, said) + _in(CATALOGUE, entry)


def _planned(run: Run) -> list[Said]:
    """Say which document the run's configuration names as its plan, if that is an IRI."""
    name = run.config.get("document")
    if not isinstance(name, str):
        return []
    try:
        plan = NamedNode(name)
    except ValueError:
        return []
    node, association = run_node(run.run_id), NamedNode(iri("run", run.run_id, "plan"))
    said: list[Said] = [
        (node, prov("qualifiedAssociation"), association),
        (association, RDF_TYPE, prov("Association")),
        (association, prov("hadPlan"), plan),
        (plan, RDF_TYPE, prov("Plan")),
        (plan, RDF_TYPE, _ENTITY),
    ]
    return said + ([(association, prov("agent"), agent_node(run.agent))] if run.agent else [])


def _camel(name: str) -> str:
    first, *more = name.split("_")
    return first + "".join(part.title() for part in more)


def fork_quads(run: Run, start: int, writer: Writer) -> list[Quad]:
    """Return how a run left its parent after ``start`` items, which it took over.

    The prefix is referred to, not copied: the child's first own step is informed by the parent's.
    """
    if run.parent_id is None:
        return []
    node, parent = run_node(run.run_id), run_node(run.parent_id)
    said: list[Said] = [
        (parent, RDF_TYPE, _ACTIVITY),
        (node, prov("wasInformedBy"), parent),
        (node, sag("forkPosition"), Literal(run.fork_position)),
        (node, sag("firstOrdinal"), Literal(start)),
    ]
    if start:
        left = step_node(writer(start - 1), start - 1)
        said += [(node, sag("forkedFromStep"), left), (left, RDF_TYPE, _ACTIVITY)]
    return _in(graph_node(run.run_id), said)


def end_quads(run_id: str, type: str, payload: Mapping[str, Any]) -> list[Quad]:
    """Return why a run stopped; never its outcome."""
    node = run_node(run_id)
    said: list[Said] = [(node, sag("ended"), literal(type.removeprefix("run.")))]
    if isinstance(status := payload.get("exit_status"), str):
        said.append((node, sag("exitStatus"), literal(status)))
    return _in(graph_node(run_id), said)


def outcome_quads(run_id: str, outcome: Outcome, position: int) -> list[Quad]:
    """Return what a label source says of a run, under the label's position in the log."""
    label = NamedNode(iri("run", run_id, "l", str(position)))
    said: list[Said] = [
        (label, RDF_TYPE, _ENTITY),
        (label, RDF_TYPE, sag("Label")),
        (label, sag("ofRun"), run_node(run_id)),
        (label, sag("outcome"), literal(outcome.outcome)),
        (label, sag("source"), literal(outcome.source)),
    ]
    if outcome.detail is not None:
        said.append((label, sag("detail"), literal(outcome.detail)))
    if outcome.score is not None:
        said.append((label, sag("score"), Literal(outcome.score)))
    if outcome.known_at_step is not None:
        said.append((label, sag("knownAtStep"), Literal(outcome.known_at_step)))
    return _in(graph_node(run_id), said)


def entity_quads(run_id: str, entity: Entity) -> list[Quad]:
    """Return what an entity is: in the graph of a run that names it that it is one.

    Its description stands in the catalogue, once for all runs: a pattern over all graphs finds
    what several of them say several times.
    """
    node = entity_node(entity)
    said: list[Said] = [
        (node, RDF_TYPE, _ENTITY),
        (node, RDF_TYPE, sag("NamedEntity")),
        (node, sag("entityKind"), literal(entity.kind)),
        (node, sag("scope"), literal(entity.scope)),
        (node, sag("name"), literal(entity.name)),
    ]
    return [*_in(CATALOGUE, said), Quad(node, RDF_TYPE, _ENTITY, graph_node(run_id))]


def mention_quads(run_id: str, ordinal: int, named: Sequence[Named]) -> list[Quad]:
    """Return which entities an item used, and of which it made a new version.

    An entity has one node over all runs and an entity is generated once at most, so what changes
    it generates a version of it.
    """
    step = step_node(run_id, ordinal)
    quads: list[Quad] = []
    said: list[Said] = []
    for entity, role in dict.fromkeys(named):
        node = entity_node(entity)
        quads += entity_quads(run_id, entity)
        if role != "MUTATED":
            said.append((step, prov("used"), node))
            continue
        version = version_node(entity, run_id, ordinal)
        said += [
            (step, sag("mutated"), node),
            (version, RDF_TYPE, _ENTITY),
            (version, RDF_TYPE, sag("EntityVersion")),
            (version, prov("wasGeneratedBy"), step),
            (version, prov("specializationOf"), node),
        ]
    return quads + _in(graph_node(run_id), said)


def merge_quads(targets: Mapping[str, str]) -> list[Quad]:
    """Return which entities were decided to be others, by ids: the one merged to its target.

    They keep their nodes, since what was extracted stays as it was; the two are alternates.
    """
    said: list[Said] = []
    for pair in targets.items():
        parts = [one.split("|", 2) for one in pair]
        if any(len(part) < len(Entity.__struct_fields__) for part in parts):
            continue  # an id that names no entity
        source, target = (entity_node(Entity(*part)) for part in parts)
        said += [
            (source, RDF_TYPE, _ENTITY),
            (target, RDF_TYPE, _ENTITY),
            (source, sag("mergedInto"), target),
            (source, prov("alternateOf"), target),
        ]
    return _in(DECISIONS, said)


def revision_quad(new: Version, old: Version) -> list[Quad]:
    """Return that a version of an entity came after another, maybe one of an ancestor."""
    node = version_node(*old)
    said: list[Said] = [(version_node(*new), prov("wasRevisionOf"), node)]
    if old.run_id != new.run_id:
        said.append((node, RDF_TYPE, _ENTITY))
    return _in(graph_node(new.run_id), said)


def hint_quads(run_id: str, position: int, text: str, items: Iterable[Ref]) -> list[Quad]:
    """Return a hint that a run was given, and the contents of other runs it was made from."""
    node = _hint_node(run_id, position)
    said: list[Said] = [
        (node, RDF_TYPE, _ENTITY),
        (node, RDF_TYPE, sag("Hint")),
        (node, prov("value"), literal(text)),
    ]
    for item in items:
        content = content_node(*item)
        said += [(node, prov("wasDerivedFrom"), content), (content, RDF_TYPE, _ENTITY)]
    return _in(graph_node(run_id), said)


def hint_used_quad(run_id: str, position: int, ordinal: int) -> Quad:
    """Return that a step used a hint."""
    node = _hint_node(run_id, position)
    return Quad(step_node(run_id, ordinal), prov("used"), node, graph_node(run_id))


def _hint_node(run_id: str, position: int) -> NamedNode:
    return NamedNode(iri("run", run_id, "h", str(position)))


def evidence_quads(
    run_id: str,
    name: str,
    kind: str,
    sha256: str,
    *,
    ordinal: int | None = None,
    derived_from: Iterable[str] = (),
) -> list[Quad]:
    """Return a piece of evidence, a receipt or a report, and what it came from.

    Parameters
    ----------
    run_id : str
    name : str
        Its name within the run; ``derived_from`` names others.
    kind : str
        ``evidence``, ``receipt`` or ``report``.
    sha256 : str
        Of its bytes.
    ordinal : int, optional
        The item that made it.
    derived_from : iterable of str
        Names of the pieces it was made from.
    """
    node = _evidence_node(run_id, name)
    said: list[Said] = [
        (node, RDF_TYPE, _ENTITY),
        (node, RDF_TYPE, sag(_EVIDENCE.get(kind, "Evidence"))),
        (node, sag("name"), literal(name)),
        (node, sag("sha256"), literal(sha256)),
    ]
    if ordinal is not None:
        said.append((node, prov("wasGeneratedBy"), step_node(run_id, ordinal)))
    for other in derived_from:
        source = _evidence_node(run_id, other)
        said += [(node, prov("wasDerivedFrom"), source), (source, RDF_TYPE, _ENTITY)]
    return _in(graph_node(run_id), said)


_EVIDENCE: Final = {"evidence": "Evidence", "receipt": "Receipt", "report": "Report"}


def _evidence_node(run_id: str, name: str) -> NamedNode:
    return NamedNode(iri("run", run_id, "e", name))
