"""Shapes in the graph of a run's objects, found when an event completes them.

Matching begins at what the event brought and goes outward along the relations of the shape, so
its work depends on what is near, not on the length of the log.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from sag_research.errors import UsageError
from sag_research.model import TERMINAL_TYPES, Event
from sag_research.runtime._object_graph import (
    GRAPH_TYPES,
    GraphChange,
    GraphObject,
    GraphRelation,
    ObjectGraph,
)
from sag_research.runtime._where import matches

__all__ = ["Match", "Patterns", "Wanted", "check_pattern"]

Wanted: TypeAlias = tuple[str, str, str]
"""A relation of a shape: name of an object, type, name of an object."""

Read: TypeAlias = Callable[[str, int, int], Iterable[Event]]
"""``read(run_id, first, last)`` gives the graph's events of a lineage between two positions."""

Match: TypeAlias = dict[str, GraphObject]
"""The objects of a shape by their names in it."""

_ANY: Final = None


def check_pattern(
    objects: Mapping[str, Any], relations: Sequence[Sequence[str]]
) -> tuple[dict[str, dict[str, Any]], tuple[Wanted, ...]]:
    """Check a shape, and write it out in full.

    Raises
    ------
    UsageError
        If an object is neither a kind nor conditions, a relation no triple of names, or the
        shape falls into parts.
    """
    wheres: dict[str, dict[str, Any]] = {}
    for name, where in objects.items():
        if not isinstance(where, (str, Mapping)):
            raise UsageError(
                f"object {name!r} of a shape cannot be {where!r}",
                fix="give a kind, or conditions such as {'kind': 'Error', 'attributes.code': 5}",
            )
        wheres[name] = {"kind": where} if isinstance(where, str) else dict(where)
    triples = []
    for relation in relations:
        triple = tuple(relation) if not isinstance(relation, str) else ()
        if len(triple) != 3 or not all(isinstance(part, str) for part in triple):
            raise UsageError(
                f"{relation!r} is no relation of a shape",
                fix="give (name, type, name), e.g. ('file', 'RAISED', 'error')",
            )
        if missing := {triple[0], triple[2]} - wheres.keys():
            raise UsageError(f"the shape has no object {min(missing)!r}", fix="name it in objects")
        triples.append((triple[0], triple[1], triple[2]))
    _check_whole(wheres, triples)
    return wheres, tuple(triples)


def _check_whole(names: Iterable[str], relations: Sequence[Wanted]) -> None:
    """Refuse a shape in parts: any object would go with any other, however many there are."""
    first, *others = names
    reached, grown = {first}, True
    while grown:
        near = {end for s, _, t in relations if {s, t} & reached for end in (s, t)}
        grown = not near <= reached
        reached |= near
    if apart := set(others) - reached:
        raise UsageError(
            f"object {min(apart)!r} of the shape is related to nothing else in it",
            fix="join all objects by relations, or register two behaviours",
        )


class _Shape:
    """A checked shape, with its objects by kind and its relations by type."""

    def __init__(self, objects: Mapping[str, Mapping[str, Any]], relations: Sequence[Wanted]):
        self._objects, self._relations = objects, relations
        self.by_kind: defaultdict[str | None, list[str]] = defaultdict(list)
        for name, where in objects.items():
            kind = where.get("kind")
            self.by_kind[kind if isinstance(kind, str) else _ANY].append(name)
        self.by_type: defaultdict[str, list[int]] = defaultdict(list)
        for number, (_, type_, _) in enumerate(relations):
            self.by_type[type_].append(number)

    def completed(self, graph: ObjectGraph, change: GraphChange) -> Iterator[_Found]:
        """Yield every way in which what a change brought is part of the whole shape."""
        if change.relation is not None:
            for number in self.by_type.get(change.relation.type, ()):
                if (bound := self._join(graph, {}, number, change.relation)) is not None:
                    yield from self._grow(graph, bound, {number: change.relation})
        elif change.after is not None:
            for name in self._newly(graph, change.before, change.after):
                yield from self._grow(graph, {name: change.after}, {})

    def _newly(
        self, graph: ObjectGraph, before: GraphObject | None, after: GraphObject
    ) -> Iterator[str]:
        """Yield the places that an object fits now and did not before."""
        for name in (*self.by_kind.get(after.kind, ()), *self.by_kind.get(_ANY, ())):
            graph.looked += 1
            where = self._objects[name]
            if matches(where, after.view) and (before is None or not matches(where, before.view)):
                yield name

    def _grow(
        self, graph: ObjectGraph, bound: Match, used: dict[int, GraphRelation]
    ) -> Iterator[_Found]:
        """Bind the rest of the shape, each time along the relation with the fewest candidates."""
        choices = [
            (len(near), number, near)
            for number, wanted in enumerate(self._relations)
            if number not in used and (near := self._near(graph, bound, wanted)) is not None
        ]
        if not choices:
            yield _Found(bound, tuple(used.values()))
            return
        _, number, near = min(choices, key=lambda choice: choice[:2])
        for relation in near:
            graph.looked += 1
            if relation in used.values():
                continue
            if (joined := self._join(graph, bound, number, relation)) is not None:
                yield from self._grow(graph, joined, {**used, number: relation})

    def _near(
        self, graph: ObjectGraph, bound: Match, wanted: Wanted
    ) -> Sequence[GraphRelation] | None:
        """Return the candidates for a relation, ``None`` while neither end is bound."""
        source, type_, target = wanted
        lists = [
            graph.relations(bound[name].id, type_, outgoing)
            for name, outgoing in ((source, True), (target, False))
            if name in bound
        ]
        return min(lists, key=len) if lists else None

    def _join(
        self, graph: ObjectGraph, bound: Match, number: int, relation: GraphRelation
    ) -> Match | None:
        """Bind both ends of a relation; ``None`` where they do not fit."""
        source, _, target = self._relations[number]
        for name, object_id in ((source, relation.source), (target, relation.target)):
            if name in bound:
                if bound[name].id != object_id:
                    return None
                continue
            graph.looked += 1
            found = graph.objects.get(object_id)
            if found is None or any(other.id == object_id for other in bound.values()):
                return None
            if not matches(self._objects[name], found.view):
                return None
            bound = {**bound, name: found}
        return bound


class _Found(NamedTuple):
    """A way in which a shape is there."""

    objects: Match
    relations: tuple[GraphRelation, ...]

    @property
    def key(self) -> tuple[frozenset[str], frozenset[int]]:
        """What it consists of, whatever names its objects have in the shape."""
        ids = frozenset(found.id for found in self.objects.values())
        return ids, frozenset(relation.position for relation in self.relations)


class _Run:
    """How far a run's graph is known, and which shapes were found in it."""

    def __init__(self) -> None:
        self.graph, self.upto = ObjectGraph(), 0
        self.found: defaultdict[str, set[Any]] = defaultdict(set)


class Patterns:
    """The shapes that behaviours wait for, and the graph of each run that is dispatched.

    The state of a run is computed from its lineage alone: it is the same in a process that
    begins later, in a fork, and in a replay.
    """

    def __init__(self, read: Read) -> None:
        self._read = read
        self._shapes: dict[str, _Shape] = {}
        self._runs: dict[str, _Run] = {}

    def enter(self, shapes: Mapping[str, tuple[Mapping[str, Any], Sequence[Wanted]]]) -> None:
        """Wait for these shapes, by the name of their behaviour, instead of former ones."""
        self._shapes = {name: _Shape(*shape) for name, shape in shapes.items()}
        self._runs.clear()

    def looked(self, run_id: str) -> int:
        """Return how many objects and relations of a run were looked at so far."""
        return self._runs[run_id].graph.looked if run_id in self._runs else 0

    def completed(self, event: Event) -> dict[str, list[Match]]:
        """Return the shapes that an event completes, by the name of their behaviour.

        What a lineage had before, in whole or in another way, is not completed again.
        """
        position, state = event.position or 0, self._runs.get(event.run_id)
        if not self._shapes or (state is None and event.type not in GRAPH_TYPES):
            return {}
        if state is None or position <= state.upto:  # unknown, or dispatched once more
            state = self._runs[event.run_id] = _Run()
        if event.type in GRAPH_TYPES or position == state.upto + 1:
            if position > state.upto + 1:
                for earlier in self._read(event.run_id, state.upto + 1, position - 1):
                    self._take(state, earlier)
            found = self._take(state, event)
            state.upto = position
        else:
            found = {}
        if event.type in TERMINAL_TYPES:
            del self._runs[event.run_id]  # it can be computed again, should the run go on
        return found

    def _take(self, state: _Run, event: Event) -> dict[str, list[Match]]:
        change = state.graph.apply(event)
        new: defaultdict[str, list[Match]] = defaultdict(list)
        if change is not None:
            for name, shape in self._shapes.items():
                known = state.found[name]
                for found in shape.completed(state.graph, change):
                    if found.key not in known:
                        known.add(found.key)
                        new[name].append(found.objects)
        return dict(new)
