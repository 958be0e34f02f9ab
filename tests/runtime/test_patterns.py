"""Behaviours that wait for a shape of objects and relations."""

# ruff: noqa: F811 - fixtures are imported by name

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sag_research.errors import UsageError
from sag_research.log import SQLiteEventStore
from sag_research.model import Event
from sag_research.runtime import GraphObject, ReactiveRuntime, replay
from sag_research.runtime._patterns import Patterns, check_pattern
from tests.runtime.reactive import Dispatch, dispatch, facts, runtime, store, types  # noqa: F401

RAISED: dict[str, Any] = {
    "objects": {"file": "File", "error": {"kind": "Error", "attributes.fatal": True}},
    "relations": [("file", "RAISED", "error")],
}
TWICE: dict[str, Any] = {
    "objects": {"file": "File", "error": "Error"},
    "relations": [("file", "RAISED", "error"), ("file", "RAISED", "error")],
}


def made(name: str, kind: str = "File", run_id: str = "r1", **attributes: Any) -> Event:
    payload = {"id": name, "kind": kind, "attributes": attributes}
    return Event(run_id=run_id, type="object.created", payload=payload)


def changed(name: str, run_id: str = "r1", **attributes: Any) -> Event:
    payload = {"id": name, "attributes": attributes}
    return Event(run_id=run_id, type="object.changed", payload=payload)


def related(source: str, type_: str, target: str, run_id: str = "r1") -> Event:
    payload = {"source": source, "type": type_, "target": target}
    return Event(run_id=run_id, type="relation.created", payload=payload)


def fatal(run_id: str = "r1") -> Event:
    return made("KeyError", "Error", run_id, fatal=True)


def report(runtime: ReactiveRuntime, **shape: Any) -> None:
    """Register a behaviour that writes down what it was run for."""

    @runtime.behavior(**shape)
    def look(rt: ReactiveRuntime, event: Event) -> None:
        rt.emit("found", {name: found.id for name, found in rt.match.items()})


def found(store: SQLiteEventStore, run_id: str = "r1") -> list[tuple[int | None, dict[str, Any]]]:
    """Cause and objects of what was found, in order."""
    return [(event.cause, event.payload) for event in store.read(run_id, types=("found",))]


BOTH = {"file": "a.py", "error": "KeyError"}


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_whatever_comes_last_completes_it(
    dispatch: Dispatch, runtime: ReactiveRuntime, store: SQLiteEventStore, order: tuple[int, ...]
) -> None:
    """Either object, or the relation; an object may be told of after its relation."""
    report(runtime, **RAISED)
    runtime.watch("r1")
    parts = [made("a.py"), fatal(), related("a.py", "RAISED", "KeyError")]
    store.append_many([parts[number] for number in order])
    dispatch(runtime)
    assert found(store) == [(4, BOTH)]
    dispatch(runtime)
    assert len(found(store)) == 1


def test_a_change_completes_it_once(runtime: ReactiveRuntime, store: SQLiteEventStore) -> None:
    report(runtime, **RAISED)
    runtime.watch("r1")
    store.append_many([made("a.py"), made("KeyError", "Error"),
                       related("a.py", "RAISED", "KeyError")])  # fmt: skip
    runtime.dispatch_loop()
    assert found(store) == []
    store.append_many([changed("KeyError", seen=1), changed("KeyError", fatal=True)])
    store.append_many([changed("KeyError", seen=2), changed("KeyError", fatal=False)])
    store.append_many([changed("KeyError", fatal=True), changed("a.py", seen=3), fatal()])
    runtime.dispatch_loop()
    assert found(store) == [(6, BOTH)]  # not for what it was already, nor when it is mended


@pytest.mark.parametrize(
    "wrong",
    [
        [related("KeyError", "RAISED", "a.py")],
        [related("a.py", "NAMED", "KeyError")],
        [related("a.py", "RAISED", "b.py"), related("b.py", "RAISED", "a.py")],
        [changed("KeyError", fatal=1), related("a.py", "RAISED", "KeyError")],
        [Event(run_id="r1", type="relation.created", payload={"source": "a.py", "type": "RAISED"})],
        [Event(run_id="r1", type="object.created", payload={"id": 3, "kind": "Error"})],
        [Event(run_id="r1", type="other", payload=related("a.py", "RAISED", "KeyError").payload)],
    ],
)
def test_nothing_else_does(
    runtime: ReactiveRuntime, store: SQLiteEventStore, wrong: list[Event]
) -> None:
    report(runtime, **RAISED)
    runtime.watch("r1")
    store.append_many([made("a.py"), made("b.py"), fatal(), *wrong])
    runtime.dispatch_loop()
    assert found(store) == []


def test_one_event_may_complete_several(runtime: ReactiveRuntime, store: SQLiteEventStore) -> None:
    report(runtime, **RAISED)

    @runtime.behavior(objects={"any": {"attributes": {"fatal": True}}}, name="alone")
    def alone(rt: ReactiveRuntime, event: Event) -> None:
        rt.emit("alone", {"kind": rt.match["any"].kind, "matched": [e.type for e in rt.matched]})

    runtime.watch("r1")
    store.append_many([made("a.py"), made("b.py"), related("b.py", "RAISED", "KeyError"),
                       related("a.py", "RAISED", "KeyError"), fatal()])  # fmt: skip
    runtime.dispatch_loop()
    assert [about["file"] for _, about in found(store)] == ["b.py", "a.py"]  # as they were told
    assert types(store, lo=7) == ["found", "found", "alone"]
    told = next(store.read("r1", types=("alone",))).payload
    assert told == {"kind": "Error", "matched": ["object.created"]}
    assert runtime.match == {}


def test_relations_are_told_apart(runtime: ReactiveRuntime, store: SQLiteEventStore) -> None:
    """An error reached twice from one file; the two relations have one role, so it counts once."""
    report(runtime, **TWICE)
    runtime.watch("r1")
    edge = related("a.py", "RAISED", "KeyError")
    store.append_many([made("a.py"), fatal(), edge, related("b.py", "RAISED", "KeyError")])
    runtime.dispatch_loop()
    assert found(store) == []
    store.append(edge)
    runtime.dispatch_loop()
    assert found(store) == [(6, BOTH)]
    store.append(edge)  # the third goes with the first, and with the second
    runtime.dispatch_loop()
    assert len(found(store)) == 3


def test_a_shape_that_can_be_turned_counts_once(
    runtime: ReactiveRuntime, store: SQLiteEventStore
) -> None:
    triangle = {
        "objects": {"x": "File", "y": "File", "z": "File"},
        "relations": [("x", "IMPORTS", "y"), ("y", "IMPORTS", "z"), ("z", "IMPORTS", "x")],
    }
    report(runtime, **triangle)
    runtime.watch("r1")
    store.append_many([made(name) for name in "abc"])
    store.append_many([related("a", "IMPORTS", "b"), related("b", "IMPORTS", "c")])
    store.append_many([related("c", "IMPORTS", "c"), related("b", "IMPORTS", "a")])
    runtime.dispatch_loop()
    assert found(store) == []  # different names are different objects
    store.append(related("c", "IMPORTS", "a"))
    runtime.dispatch_loop()
    assert [set(about.values()) for _, about in found(store)] == [{"a", "b", "c"}]


def test_different_names_are_different_objects(
    runtime: ReactiveRuntime, store: SQLiteEventStore
) -> None:
    report(runtime, objects={"x": {}, "y": {}, "z": {}},
           relations=[("x", "IMPORTS", "y"), ("y", "IMPORTS", "z")])  # fmt: skip
    runtime.watch("r1")
    store.append_many([made("a"), made("b"), related("a", "IMPORTS", "b")])
    store.append(related("b", "IMPORTS", "a"))
    runtime.dispatch_loop()
    assert found(store) == []  # there and back is no way of three


def test_a_relation_may_join_an_object_to_itself(
    runtime: ReactiveRuntime, store: SQLiteEventStore
) -> None:
    report(runtime, objects={"x": {}}, relations=[("x", "IMPORTS", "x")])
    runtime.watch("r1")
    store.append_many([made("a"), made("b"), related("a", "IMPORTS", "b")])
    store.append(related("b", "IMPORTS", "b"))
    runtime.dispatch_loop()
    assert [about for _, about in found(store)] == [{"x": "b"}]


# ---- forks, later processes, replay


def test_a_fork_sees_what_it_inherited(runtime: ReactiveRuntime, store: SQLiteEventStore) -> None:
    """Each child completes the shape for itself; what lies behind the fork is not seen."""
    store.append_many([made("a.py"), related("a.py", "RAISED", "KeyError")])
    for child, at in (("near", 3), ("far", 2)):
        store.fork("r1", at=at, run_id=child)
    report(runtime, **RAISED)
    for run_id in ("r1", "near", "far"):
        runtime.watch(run_id)
    store.append_many([fatal(), fatal("near"), fatal("far")])
    runtime.dispatch_loop()
    assert [len(found(store, run_id)) for run_id in ("r1", "near", "far")] == [1, 1, 0]
    store.append(related("a.py", "RAISED", "KeyError", "far"))
    runtime.dispatch_loop()
    assert found(store, "far") == [(5, BOTH)]


def test_what_an_ancestor_had_is_not_completed_by_its_fork(
    runtime: ReactiveRuntime, store: SQLiteEventStore
) -> None:
    store.append_many([made("a.py"), fatal(), related("a.py", "RAISED", "KeyError")])
    store.append(changed("KeyError", fatal=False))
    store.fork("r1", run_id="child")
    report(runtime, **RAISED)
    runtime.watch("child")
    store.append_many([changed("KeyError", "child", fatal=True), made("b.py", run_id="child")])
    runtime.dispatch_loop()
    assert found(store, "child") == []
    store.append(related("b.py", "RAISED", "KeyError", "child"))
    runtime.dispatch_loop()
    assert [about["file"] for _, about in found(store, "child")] == ["b.py"]


def test_a_later_process_goes_on_where_the_first_stopped(store: SQLiteEventStore) -> None:
    parts = [made("a.py"), fatal(), related("a.py", "RAISED", "KeyError"), made("b.py")]
    for part in [*parts, related("b.py", "RAISED", "KeyError")]:
        with ReactiveRuntime(store) as runtime:
            report(runtime, **RAISED)
            runtime.watch("r1", since=store.append(part).position)
            runtime.dispatch_loop()
    assert [about["file"] for _, about in found(store)] == ["a.py", "b.py"]
    assert [told.payload["restart"] for told in facts(store, "behaviors.registered")] == [True] * 5
    (about,) = facts(store, "behaviors.registered")[0].payload["behaviors"]
    assert about["trigger"]["objects"]["file"] == {"kind": "File"}
    assert about["trigger"]["relations"] == [["file", "RAISED", "error"]]


def test_what_is_dispatched_once_more_fires_once_more(
    runtime: ReactiveRuntime, store: SQLiteEventStore
) -> None:
    report(runtime, **RAISED)
    runtime.watch("r1")
    store.append_many([made("a.py"), fatal(), related("a.py", "RAISED", "KeyError")])
    runtime.dispatch_loop()
    runtime.watch("r1", since=3)
    runtime.dispatch_loop()
    assert found(store) == [(4, BOTH), (4, BOTH)]


def test_events_passed_over_are_in_the_graph(
    runtime: ReactiveRuntime, store: SQLiteEventStore
) -> None:
    """A run that is watched late: what stands before is known, and not fired for."""
    store.append_many([made("a.py"), fatal(), related("a.py", "RAISED", "KeyError"), made("b.py")])
    report(runtime, **RAISED)
    runtime.watch("r1")
    store.append(related("b.py", "RAISED", "KeyError"))
    runtime.dispatch_loop()
    assert [about["file"] for _, about in found(store)] == ["b.py"]


def chain(store: SQLiteEventStore, change: bool = False) -> ReactiveRuntime:
    """Behaviours that make objects for one another, two of them waiting for shapes."""
    runtime = ReactiveRuntime(store)

    @runtime.behavior(on_events="seed")
    def sow(rt: ReactiveRuntime, event: Event) -> None:
        rt.emit("object.created", {"id": rt.ctx.uuid(), "kind": "Error"})

    @runtime.behavior(objects={"error": "Error"})
    def relate(rt: ReactiveRuntime, event: Event) -> None:
        error = rt.match["error"].id
        rt.emit("relation.created", {"source": "a.py", "type": "RAISED", "target": error})

    @runtime.behavior(
        objects={"file": "File", "one": "Error", "other": "Error"},
        relations=[("file", "RAISED", "one"), ("file", "RAISED", "other")],
    )
    def compare(rt: ReactiveRuntime, event: Event) -> None:
        both = [rt.match[name].id for name in ("one", "other")]
        rt.emit("compared", {"both": both[::-1] if change else both, "at": rt.ctx.now()})

    return runtime


def test_a_replay_fires_the_same_and_nothing_twice(
    dispatch: Dispatch, store: SQLiteEventStore
) -> None:
    runtime = chain(store)
    with runtime.active_run("r1"):
        runtime.emit("object.created", {"id": "a.py", "kind": "File"})
        for _ in range(4):
            runtime.emit("seed")
    dispatch(runtime)
    assert types(store).count("compared") == 6  # pairs of four errors
    assert replay(store, "r1", chain(store)).ok
    parted = replay(store, "r1", chain(store, change=True), strict=False).divergence
    assert parted is not None
    assert (parted.behavior, parted.changes[0].path) == ("compare", "$.both[0]")
    # of a fork, too, of which a part was inherited
    store.fork("r1", at=5, run_id="child")
    forked = chain(store)
    with forked.active_run("child"):
        forked.emit("seed")
        forked.emit("seed")
    dispatch(forked)
    assert types(store, "child").count("compared") == 1
    assert replay(store, "child", chain(store)).ok


# ---- the work


def test_work_does_not_grow_with_the_log(store: SQLiteEventStore) -> None:
    """The same shape is found again and again among ever more objects of its kinds."""
    runtime = ReactiveRuntime(store)
    report(runtime, objects={"test": "Test", "file": "File", "error": "Error"},
           relations=[("test", "COVERS", "file"), ("file", "RAISED", "error")])  # fmt: skip
    runtime.watch("r1")
    read: list[int] = []
    original = runtime.store.read

    def counting(run_id: str, *args: Any, **options: Any) -> Iterator[Event]:
        for event in original(run_id, *args, **options):
            read.append(event.position or 0)
            yield event

    runtime.store.read = counting  # type: ignore[method-assign]
    work = []
    for n in range(300):
        parts = [made(f"f{n}"), made(f"t{n}", "Test"), made(f"e{n}", "Error")]
        parts += [related(f"t{n}", "COVERS", f"f{n}"), changed(f"t{n}", n=n), changed(f"f{n}", n=n)]
        before = runtime._triggers.patterns.looked("r1")
        store.append_many([*parts, related(f"f{n}", "RAISED", f"e{n}")])
        runtime.dispatch_loop()
        work.append(runtime._triggers.patterns.looked("r1") - before)
    assert len(list(original("r1", types=("found",)))) == 300
    assert len(set(work[1:])) == 1
    assert work[1] < 30
    assert read == []  # the graph is kept, not read again


def test_a_hub_costs_what_is_wanted_of_it(store: SQLiteEventStore) -> None:
    """A file with a thousand relations of one type; another type leads to few."""
    patterns = Patterns(lambda run, first, last: ())
    shape = {"test": "Test", "file": "File", "error": "Error"}
    relations = [("test", "COVERS", "file"), ("file", "RAISED", "error")]
    patterns.enter({"b": check_pattern(shape, relations)})
    events = [made("hub"), made("err", "Error"), related("hub", "RAISED", "err")]
    events += [related("hub", "NAMED", f"n{n}") for n in range(1_000)]
    events += [event for n in range(50)
               for event in (made(f"t{n}", "Test"), related(f"t{n}", "COVERS", "hub"),
                             changed("hub", n=n))]  # fmt: skip
    work, count = [], 0
    for position, event in enumerate(events, 1):
        before = patterns.looked("r1")
        given = Event(run_id="r1", type=event.type, payload=event.payload, position=position)
        count += len(patterns.completed(given).get("b", ()))
        work.append(patterns.looked("r1") - before)
    assert count == 50
    assert max(work) <= 6


def test_the_shorter_way_is_taken(store: SQLiteEventStore) -> None:
    """Where both ends are known, the one with fewer relations is asked."""
    patterns = Patterns(lambda run, first, last: ())
    for relations in ([("x", "R", "y"), ("x", "S", "y")], [("y", "R", "x"), ("y", "S", "x")]):
        patterns.enter({"b": check_pattern({"x": "Test", "y": "File"}, relations)})
        ends = [tuple(name.replace("y", "hub") for name in wanted) for wanted in relations]
        events = [made("hub"), made("x", "Test")]
        for n in range(500):
            source, type_, target = (part.replace("x", f"n{n}") for part in ends[1])
            events.append(related(source, type_, target))
        events += [related(*ends[1]), related(*ends[0])]
        for position, event in enumerate(events, 1):
            before = patterns.looked("r1")
            given = Event(run_id="r1", type=event.type, payload=event.payload, position=position)
            completed = patterns.completed(given)
        assert [match["x"].id for match in completed["b"]] == ["x"]
        assert patterns.looked("r1") - before <= 4


KINDS = ("File", "Error")
NAMES = st.sampled_from("abc")
related_steps = st.tuples(NAMES, st.sampled_from("RS"), NAMES)
steps = st.one_of(
    related_steps,
    related_steps,
    st.tuples(st.just("made"), NAMES, st.sampled_from(KINDS)),
    st.tuples(st.just("changed"), NAMES, st.booleans()),
)
shapes = st.sampled_from(
    [
        ({"x": "File", "y": {"attributes.on": True}}, [("x", "R", "y")]),
        ({"x": {}, "y": {}, "z": "Error"}, [("x", "R", "y"), ("y", "S", "z")]),
        ({"x": {}, "y": {}}, [("x", "R", "y"), ("x", "R", "y")]),
        ({"x": {}, "y": {}, "z": {}}, [("x", "R", "y"), ("z", "R", "y"), ("x", "S", "z")]),
        ({"x": {"attributes.on": True}}, [("x", "S", "x")]),
    ]
)


def naive(shape: Any, events: list[Event]) -> list[set[Any]]:
    """After each event, every set of objects and relations that has the shape, by trying all."""
    from sag_research.runtime._where import matches

    wheres, relations = check_pattern(*shape)
    objects: dict[str, GraphObject] = {}
    edges: list[tuple[int, str, str, str]] = []
    there = []
    for event in events:
        about = event.payload
        if event.type == "relation.created":
            edges.append((event.position or 0, about["source"], about["type"], about["target"]))
        else:
            old = objects.get(about["id"], GraphObject(id=about["id"]))
            fresh = event.type == "object.created"
            attributes = about["attributes"] if fresh else old.attributes | about["attributes"]
            kind = about.get("kind", old.kind)
            objects[old.id] = GraphObject(id=old.id, kind=kind, attributes=attributes)
        now = set()
        for ids in permutations(objects, len(wheres)):
            bound = dict(zip(wheres, ids, strict=True))
            if all(matches(wheres[name], objects[i].view) for name, i in bound.items()):
                wanted = [(bound[s], kind, bound[t]) for s, kind, t in relations]
                for chosen in permutations(edges, len(wanted)):
                    if [edge[1:] for edge in chosen] == wanted:
                        now.add((frozenset(ids), frozenset(edge[0] for edge in chosen)))
        there.append(now)
    return there


@settings(max_examples=150, deadline=None)
@given(shapes, st.lists(steps, min_size=3, max_size=10))
def test_every_set_is_found_once_when_it_is_completed(shape: Any, given_steps: Any) -> None:
    """Against a search through everything after each event."""
    events = []
    for position, (first, second, third) in enumerate(given_steps, 1):
        event = related(first, second, third)
        if first == "made":
            event = made(second, third)
        elif first == "changed":
            event = changed(second, on=third)
        events.append(Event(run_id="r1", type=event.type, payload=event.payload, position=position))
    patterns = Patterns(lambda run, first, last: events[first - 1 : last])
    patterns.enter({"b": check_pattern(*shape)})
    seen: set[Any] = set()
    for event, now in zip(events, naive(shape, events), strict=True):
        matched = patterns.completed(event).get("b", [])
        assert len(matched) == len(now - seen)
        ids = sorted(sorted(o.id for o in match.values()) for match in matched)
        assert ids == sorted(sorted(objects) for objects, _ in now - seen)
        seen |= now


# ---- shapes that make no sense


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"objects": {"x": 3}}, "cannot be 3"),
        ({"objects": {"x": "A", "y": "B"}}, "related to nothing"),
        ({"objects": {"x": "A"}, "relations": [("x", "R", "y")]}, "no object 'y'"),
        ({"objects": {"x": "A"}, "relations": ["xRx"]}, "no relation"),
        ({"objects": {"x": "A"}, "relations": [("x", "x")]}, "no relation"),
        ({"objects": {"x": "A"}, "on_events": ["a"]}, "one thing"),
        ({"objects": {"x": "A"}, "sequence": ["a"]}, "one thing"),
        ({"objects": {"x": "A"}, "where": {"id": "x"}}, "one event"),
        ({"on_events": ["a"], "relations": [("x", "R", "y")]}, "give objects"),
        ({"objects": {}}, "one thing"),
    ],
)
def test_a_shape_that_makes_no_sense_is_refused(
    runtime: ReactiveRuntime, wrong: dict[str, Any], why: str
) -> None:
    with pytest.raises(UsageError, match=why):
        runtime.behavior(**wrong)


def test_a_run_that_goes_on_after_its_end_is_known_again(
    runtime: ReactiveRuntime, store: SQLiteEventStore
) -> None:
    report(runtime, **RAISED)
    runtime.watch("r1")
    store.append_many([made("a.py"), related("a.py", "RAISED", "KeyError")])
    store.append(Event(run_id="r1", type="run.completed"))
    runtime.dispatch_loop()
    assert runtime._triggers.patterns.looked("r1") == 0  # of a run that has ended nothing is kept
    store.append(fatal())
    runtime.dispatch_loop()
    assert found(store) == [(5, BOTH)]
