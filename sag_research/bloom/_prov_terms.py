"""The words of the RDF side: namespaces, and the nodes that runs, steps and contents are."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any, Final

from pyoxigraph import Literal, NamedNode

from sag_research._text import iri, repair
from sag_research.model import Entity

__all__ = [
    "CATALOGUE",
    "DATE_TIME",
    "DECISIONS",
    "PREFIXES",
    "RDF_TYPE",
    "agent_node",
    "content_node",
    "entity_node",
    "graph_node",
    "json_literal",
    "literal",
    "prov",
    "run_node",
    "sag",
    "step_node",
    "version_node",
]

PROV: Final = "http://www.w3.org/ns/prov#"
SAG: Final = "urn:sag:vocab:"
PREFIXES: Final = {
    "prov": PROV,
    "sag": SAG,
    "id": "urn:sag:",
    "pplan": "http://purl.org/net/p-plan#",
    "rdf": "http://www.w3.org/1999/02/22-rdf-syntax-ns#",
    "rdfs": "http://www.w3.org/2000/01/rdf-schema#",
    "xsd": "http://www.w3.org/2001/XMLSchema#",
}
"""Prefixes that queries may use without declaring them; ``id:`` is our own nodes' space."""

RDF_TYPE: Final = NamedNode(f"{PREFIXES['rdf']}type")
DATE_TIME: Final = NamedNode(f"{PREFIXES['xsd']}dateTime")


@lru_cache(maxsize=256)
def prov(name: str) -> NamedNode:
    """Return a term of PROV-O.

    Examples
    --------
    >>> prov("used").value
    'http://www.w3.org/ns/prov#used'
    """
    return NamedNode(PROV + name)


@lru_cache(maxsize=256)
def sag(name: str) -> NamedNode:
    """Return a term of the project's own vocabulary."""
    return NamedNode(SAG + name)


CATALOGUE: Final = NamedNode(iri("catalogue"))
"""The graph that describes each run's graph as a bundle, and the entities and agents of all."""

DECISIONS: Final = NamedNode(iri("decisions"))
"""The graph that says which entities count as which; it changes as decisions are undone."""


def run_node(run_id: str) -> NamedNode:
    """Return the node of a run, which is an activity."""
    return NamedNode(iri("run", run_id))


def graph_node(run_id: str) -> NamedNode:
    """Return the name of a run's graph, which is another node than the run."""
    return NamedNode(iri("graph", run_id))


def step_node(run_id: str, ordinal: int) -> NamedNode:
    """Return the activity of a trace item: a pure function of run and ordinal.

    Examples
    --------
    >>> step_node("run 1", 3).value
    'urn:sag:run:run%201:s:3'
    """
    return NamedNode(iri("run", run_id, "s", str(ordinal)))


def content_node(run_id: str, ordinal: int) -> NamedNode:
    """Return the content of a trace item, which is an entity."""
    return NamedNode(iri("run", run_id, "o", str(ordinal)))


def agent_node(name: str) -> NamedNode:
    """Return the node of an agent."""
    return NamedNode(iri("agent", name))


def entity_node(entity: Entity) -> NamedNode:
    """Return the one node that an entity has over all runs.

    Examples
    --------
    >>> entity_node(Entity("File", "a/b", "setup.py")).value
    'urn:sag:entity:File:a%2Fb:setup.py'
    """
    return NamedNode(iri("entity", entity.kind, entity.scope, entity.name))


def version_node(entity: Entity, run_id: str, ordinal: int) -> NamedNode:
    """Return the node of what a step made of an entity."""
    place = (run_id, str(ordinal))
    return NamedNode(iri("entity", entity.kind, entity.scope, entity.name, "v", *place))


def literal(text: str) -> Literal:
    """Return a text as a literal; half characters, which none can hold, are replaced by U+FFFD."""
    try:
        return Literal(text)
    except ValueError:
        return Literal(repair(text))


def json_literal(value: Any) -> Literal:
    """Return a value as JSON text, in ASCII, so that nothing in it has to be replaced."""
    return Literal(json.dumps(value, ensure_ascii=True))
