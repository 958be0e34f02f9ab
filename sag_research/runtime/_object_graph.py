"""The graph of objects and relations that the events of a run tell of."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from sag_research.model import Event

__all__ = ["GRAPH_TYPES", "GraphChange", "GraphObject", "GraphRelation", "ObjectGraph"]

GRAPH_TYPES: Final = ("object.created", "object.changed", "relation.created")


class GraphObject(msgspec.Struct, frozen=True, kw_only=True):
    """An object as it is after an event.

    Attributes
    ----------
    id, kind : str
    attributes : dict
    """

    id: str
    kind: str = ""
    attributes: dict[str, Any] = {}

    @property
    def view(self) -> dict[str, Any]:
        """The object as a mapping, for conditions."""
        return {"id": self.id, "kind": self.kind, "attributes": self.attributes}


class GraphRelation(NamedTuple):
    """A relation, told apart from others between the same objects by its position in the run."""

    position: int
    source: str
    type: str
    target: str


class GraphChange(NamedTuple):
    """What one event did: a new relation, or an object before (``None``: new) and after."""

    relation: GraphRelation | None = None
    before: GraphObject | None = None
    after: GraphObject | None = None


class ObjectGraph:
    """Objects by id, and relations by the object at either end and their type.

    Notes
    -----
    The payloads are ``object.created {id, kind, attributes}``, ``object.changed {id, attributes}``
    (these attributes are set, the others stay) and ``relation.created {source, type, target}``.
    An object may be told of after its relations. What has no such payload is no part of the graph.

    Attributes
    ----------
    objects : dict of str to GraphObject
    looked : int
        Relations and objects looked at so far, to measure the work of matching.
    """

    def __init__(self) -> None:
        self.objects: dict[str, GraphObject] = {}
        self.looked = 0
        self._ends: defaultdict[tuple[str, str, bool], list[GraphRelation]] = defaultdict(list)

    def apply(self, event: Event) -> GraphChange | None:
        """Take in an event; returns what it did, ``None`` where it is no part of the graph."""
        payload = event.payload
        if event.type == "relation.created":
            ends = payload.get("source"), payload.get("type"), payload.get("target")
            return self._relate(event.position or 0, *ends)
        if event.type not in GRAPH_TYPES or not isinstance(payload.get("id"), str):
            return None
        before = self.objects.get(payload["id"])
        anew = event.type == "object.created"
        old = GraphObject(id=payload["id"]) if anew or before is None else before
        given = payload.get("attributes", {})
        kind = payload.get("kind", old.kind)
        after = GraphObject(
            id=old.id,
            kind=kind if isinstance(kind, str) else old.kind,
            attributes=old.attributes | (dict(given) if isinstance(given, Mapping) else {}),
        )
        self.objects[old.id] = after
        return GraphChange(before=before, after=after)

    def _relate(self, position: int, *ends: Any) -> GraphChange | None:
        if not all(isinstance(end, str) for end in ends):
            return None
        relation = GraphRelation(position, *ends)
        self._ends[relation.source, relation.type, True].append(relation)
        self._ends[relation.target, relation.type, False].append(relation)
        return GraphChange(relation=relation)

    def relations(self, object_id: str, type_: str, outgoing: bool) -> Sequence[GraphRelation]:
        """Return the relations of a type that leave an object, or that reach it."""
        return self._ends.get((object_id, type_, outgoing), ())
