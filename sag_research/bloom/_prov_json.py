"""PROV-JSON: the W3C member submission's form, read by the usual PROV libraries.

Written without loss: what PROV-JSON has no word for is an attribute, and reading gives the same
quads again.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from pyoxigraph import Literal, NamedNode, Quad

from sag_research.bloom._prov_store import name_of
from sag_research.bloom._prov_terms import CATALOGUE, DATE_TIME, PREFIXES, RDF_TYPE, prov
from sag_research.errors import FormatError, UsageError

__all__ = ["read_prov_json", "write_prov_json"]


class _Relation(NamedTuple):
    """How a property is written as a record of its own."""

    section: str
    subject: str
    object: str
    type: str = ""


_RELATIONS: Final = {
    prov("wasGeneratedBy"): _Relation("wasGeneratedBy", "prov:entity", "prov:activity"),
    prov("used"): _Relation("used", "prov:activity", "prov:entity"),
    prov("wasInformedBy"): _Relation("wasInformedBy", "prov:informed", "prov:informant"),
    prov("wasDerivedFrom"): _Relation("wasDerivedFrom", "prov:generatedEntity", "prov:usedEntity"),
    prov("wasRevisionOf"): _Relation(
        "wasDerivedFrom", "prov:generatedEntity", "prov:usedEntity", "prov:Revision"
    ),
    prov("specializationOf"): _Relation(
        "specializationOf", "prov:specificEntity", "prov:generalEntity"
    ),
    prov("alternateOf"): _Relation("alternateOf", "prov:alternate1", "prov:alternate2"),
    prov("wasAssociatedWith"): _Relation("wasAssociatedWith", "prov:activity", "prov:agent"),
    prov("wasAttributedTo"): _Relation("wasAttributedTo", "prov:entity", "prov:agent"),
}
_READ: Final = {(one.section, one.type): (name, one) for name, one in _RELATIONS.items()}
_QUALIFIED_ASSOCIATION: Final = prov("qualifiedAssociation")
_OF_ASSOCIATION: Final = {prov("hadPlan"): "prov:plan", prov("agent"): "prov:agent"}
_SECTIONS: Final = {
    prov("Entity"): "entity",
    prov("Activity"): "activity",
    prov("Agent"): "agent",
}
_CLASSES: Final = {section: node for node, section in _SECTIONS.items()}
_TIMES: Final = {
    prov("startedAtTime"): "prov:startTime",
    prov("endedAtTime"): "prov:endTime",
}
_TIME_NAMES: Final = {name: node for node, name in _TIMES.items()}
_QUALIFIED: Final = "prov:QUALIFIED_NAME"
_STRING: Final = f"{PREFIXES['xsd']}string"
_LANGUAGE: Final = "prov:InternationalizedString"


def write_prov_json(quads: Iterable[Quad]) -> bytes:
    """Return quads as PROV-JSON: a bundle for each named graph.

    The catalogue's entries stand at the top of the document, as descriptions of its bundles.

    Raises
    ------
    UsageError
        If something is said of a node that is no activity, entity or agent in that graph, or in
        the default graph: PROV-JSON has no place for it.
    """
    names = _Names()
    by_graph: defaultdict[Any, list[Quad]] = defaultdict(list)
    for quad in sorted(quads, key=str):
        by_graph[quad.graph_name].append(quad)
    document: dict[str, Any] = {"prefix": names.prefixes}
    bundles: dict[str, Any] = {}
    for graph, said in by_graph.items():
        if not isinstance(graph, NamedNode):
            raise UsageError("quads outside any graph", fix="put them into a named graph")
        if graph == CATALOGUE:
            document |= _container(said, names)
        else:
            bundles[names.of(graph)] = _container(said, names)
    if bundles:
        document["bundle"] = bundles
    return json.dumps(document, ensure_ascii=True, indent=1).encode("ascii")


class _Names:
    """Qualified names; a namespace without a prefix gets one."""

    def __init__(self) -> None:
        # the longer namespace first: the vocabulary lies inside our nodes' space
        self.prefixes = dict(sorted(PREFIXES.items(), key=lambda pair: -len(pair[1])))

    def of(self, node: Any) -> str:
        if not isinstance(node, NamedNode):
            raise UsageError(f"{str(node)[:80]} has no name", fix="give every node an IRI")
        for prefix, space in self.prefixes.items():
            if node.value.startswith(space):
                return f"{prefix}:{node.value[len(space) :]}"
        cut = max(node.value.rfind(mark) for mark in "#/:") + 1
        prefix = f"ns{len(self.prefixes)}"
        self.prefixes[prefix] = node.value[:cut]
        return f"{prefix}:{node.value[cut:]}"


def _container(quads: list[Quad], names: _Names) -> dict[str, Any]:
    sections: defaultdict[Any, list[str]] = defaultdict(list)
    for quad in quads:
        if quad.predicate == RDF_TYPE and quad.object in _SECTIONS:
            sections[quad.subject].append(_SECTIONS[quad.object])  # type: ignore[index]
    made: defaultdict[str, dict[str, Any]] = defaultdict(dict)
    for node, kinds in sections.items():
        for kind in kinds:
            made[kind][names.of(node)] = {}
    planned = _associations(quads, names)
    if planned:
        made["wasAssociatedWith"] |= planned
    for number, quad in enumerate(quads):
        if names.of(quad.subject) in planned or quad.predicate == _QUALIFIED_ASSOCIATION:
            continue
        relation = _RELATIONS.get(quad.predicate)
        if relation is not None:
            made[relation.section][f"_:r{number}"] = _record(relation, quad, names)
        elif quad.predicate != RDF_TYPE or quad.object not in _SECTIONS:
            if quad.subject not in sections:
                raise UsageError(
                    f"{quad.subject} is no activity, entity or agent in {quad.graph_name}",
                    why="PROV-JSON has no place for what is said of it",
                    fix="give it a type, or export as trig",
                )
            attributes = made[sections[quad.subject][0]][names.of(quad.subject)]
            _add(attributes, quad, names)
    return dict(sorted(made.items()))


def _associations(quads: list[Quad], names: _Names) -> dict[str, dict[str, str]]:
    """Write associations that are nodes: what was to be carried out, by whom."""
    found: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for quad in quads:
        if quad.predicate == _QUALIFIED_ASSOCIATION:
            found[names.of(quad.object)]["prov:activity"] = names.of(quad.subject)
    for quad in quads:
        if quad.predicate in _OF_ASSOCIATION and names.of(quad.subject) in found:
            found[names.of(quad.subject)][_OF_ASSOCIATION[quad.predicate]] = names.of(quad.object)
    return dict(found)


def _record(relation: _Relation, quad: Quad, names: _Names) -> dict[str, Any]:
    told: dict[str, Any] = {
        relation.subject: names.of(quad.subject),
        relation.object: names.of(quad.object),
    }
    if relation.type:
        told["prov:type"] = {"$": relation.type, "type": _QUALIFIED}
    return told


def _add(attributes: dict[str, Any], quad: Quad, names: _Names) -> None:
    """Add an attribute; one with several values has a list."""
    if quad.predicate in _TIMES and getattr(quad.object, "datatype", None) == DATE_TIME:
        key, value = _TIMES[quad.predicate], name_of(quad.object)
        if key not in attributes:
            attributes[key] = value
            return
    key = "prov:type" if quad.predicate == RDF_TYPE else names.of(quad.predicate)
    value = _value(quad.object, names)
    if key in attributes:
        before = attributes[key]
        attributes[key] = [*(before if isinstance(before, list) else [before]), value]
    else:
        attributes[key] = value


def _value(node: Any, names: _Names) -> Any:
    if not isinstance(node, Literal):
        return {"$": names.of(node), "type": _QUALIFIED}
    if node.language:
        return {"$": node.value, "lang": node.language, "type": _LANGUAGE}
    if node.datatype.value == _STRING:
        return node.value
    return {"$": node.value, "type": names.of(node.datatype)}


# ---- reading


def read_prov_json(data: bytes | str) -> list[Quad]:
    """Read what :func:`write_prov_json` wrote.

    Raises
    ------
    FormatError
        If it is no PROV-JSON of this form.
    """
    try:
        document = json.loads(data)
        spaces = document["prefix"]
        quads = list(_said(document, spaces, CATALOGUE))
        for name, bundle in document.get("bundle", {}).items():
            quads += _said(bundle, spaces, _node(name, spaces))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        why = f"{type(error).__name__}: {error}"
        raise FormatError("this is no PROV-JSON of ours", why=why) from error
    return quads


def _said(container: dict[str, Any], spaces: dict[str, str], graph: NamedNode) -> Iterator[Quad]:
    for section, records in container.items():
        if section in ("prefix", "bundle"):
            continue
        for name, told in records.items():
            if section in _CLASSES:
                node = _node(name, spaces)
                yield Quad(node, RDF_TYPE, _CLASSES[section], graph)
                for key, values in told.items():
                    for value in values if isinstance(values, list) else [values]:
                        yield Quad(node, *_attribute(key, value, spaces), graph)
            elif section == "wasAssociatedWith" and not name.startswith("_:"):
                yield from _association(_node(name, spaces), told, spaces, graph)
            else:
                kind = told.get("prov:type", {"$": ""})["$"]
                predicate, relation = _READ[section, kind]
                ends = (told[relation.subject], told[relation.object])
                subject, object = (_node(end, spaces) for end in ends)
                yield Quad(subject, predicate, object, graph)


def _association(
    node: NamedNode, told: dict[str, str], spaces: dict[str, str], graph: NamedNode
) -> Iterator[Quad]:
    yield Quad(_node(told["prov:activity"], spaces), _QUALIFIED_ASSOCIATION, node, graph)
    yield Quad(node, RDF_TYPE, prov("Association"), graph)
    for predicate, key in _OF_ASSOCIATION.items():
        if key in told:
            yield Quad(node, predicate, _node(told[key], spaces), graph)


def _attribute(key: str, value: Any, spaces: dict[str, str]) -> tuple[NamedNode, Any]:
    if key in _TIME_NAMES and isinstance(value, str):
        return _TIME_NAMES[key], Literal(value, datatype=DATE_TIME)
    predicate = RDF_TYPE if key == "prov:type" else _node(key, spaces)
    if isinstance(value, str):
        return predicate, Literal(value)
    if value["type"] == _QUALIFIED:
        return predicate, _node(value["$"], spaces)
    if value["type"] == _LANGUAGE:
        return predicate, Literal(value["$"], language=value["lang"])
    return predicate, Literal(value["$"], datatype=_node(value["type"], spaces))


def _node(name: str, spaces: dict[str, str]) -> NamedNode:
    prefix, _, local = name.partition(":")
    return NamedNode(spaces[prefix] + local)
