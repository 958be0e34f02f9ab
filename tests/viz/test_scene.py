"""What is drawn, and where."""

from __future__ import annotations

import itertools

import msgspec
import pytest

from sag_research.bloom import EventRow, RunRow, bloom_graph, weigh_entities
from sag_research.errors import UsageError
from sag_research.viz import Scene, scene
from sag_research.viz._measure import BOX_HEIGHT
from tests.viz.sample import FORK_AT, graph

KINDS = {"Run", "Step", "Edit", "Fault", "Event"}


def boxes(drawn):
    """Left, upper, right and lower side of each node."""
    sides = {}
    for node in drawn.nodes:
        half = 12.0 if node.kind in KINDS else node.size / 2
        high = 12.0 if node.kind in KINDS else BOX_HEIGHT / 2
        sides[node.id] = (node.x - half, node.y - high, node.x + half, node.y + high)
    return sides


def overlaps(drawn):
    return [
        (a, b)
        for (a, p), (b, q) in itertools.combinations(boxes(drawn).items(), 2)
        if p[0] < q[2] and q[0] < p[2] and p[1] < q[3] and q[1] < p[3]
    ]


def crowd(entities=200, steps=20):
    events = [EventRow("r", n) for n in range(1, steps + 1)]
    mentions = [("r", 1 + n % steps, f"Symbol|x|some_name_{n}") for n in range(entities)]
    return bloom_graph(events, mentions)


@pytest.mark.parametrize("layout", ["timeline", "force"])
@pytest.mark.parametrize("fork", [False, True])
def test_nothing_lies_on_anything_else(layout, fork):
    assert overlaps(scene(graph(fork), layout)) == []


def test_a_crowded_shelf_does_not_overlap():
    drawn = scene(crowd(), entities=200)
    assert len(drawn.nodes) == 221
    assert overlaps(drawn) == []


@pytest.mark.parametrize("layout", ["timeline", "force"])
def test_the_same_graph_gives_the_same_scene(layout):
    assert scene(graph(), layout, seed=3) == scene(graph(), layout, seed=3)


def test_the_order_of_rows_does_not_matter():
    from tests.viz.sample import tables

    rows = tables()
    turned = {kind: list(reversed(values)) for kind, values in rows.items() if kind != "runs"}
    assert scene(bloom_graph(**rows | turned)) == scene(bloom_graph(**rows))


def test_seed_moves_the_force_layout_only():
    places = {(layout, seed): [(n.x, n.y) for n in scene(graph(), layout, seed).nodes]
              for layout in ("timeline", "force") for seed in (1, 2)}  # fmt: skip
    assert places["timeline", 1] == places["timeline", 2]
    assert places["force", 1] != places["force", 2]


def test_timeline_has_lanes_below_a_shelf():
    drawn = scene(graph())
    steps = {node.id: node for node in drawn.nodes}
    parent = [steps[f"event:leap-day~1:{n}"] for n in range(1, 33)]
    assert len({node.y for node in parent}) == 1
    widths = {round(b.x - a.x, 1) for a, b in itertools.pairwise(parent)}
    assert len(widths) == 1  # equal steps
    child = steps[f"event:leap-day~1-fork:{FORK_AT + 1}"]
    assert child.y > parent[0].y  # the parent stands above
    assert child.x == parent[FORK_AT].x  # equal positions stand below each other
    shelf = [node for node in drawn.nodes if node.kind not in KINDS]
    assert shelf
    assert all(node.y < parent[0].y for node in shelf)
    assert [band.label.split("  ")[0] for band in drawn.bands[1:]] == [
        "leap-day~1",
        "leap-day~1-fork",
    ]


def test_an_entity_stands_near_the_middle_of_its_mentions():
    events = [EventRow("r", n) for n in range(1, 41)]
    g = bloom_graph(events, [("r", n, "Error||E") for n in (10, 20, 30)])
    places = {node.id: node.x for node in scene(g).nodes}
    assert places["Error||E"] == places["event:r:20"]


def test_a_gap_is_wider_than_a_step():
    g = bloom_graph([EventRow("r", 1, rank=1), EventRow("r", 2, rank=2), EventRow("r", 9, rank=9)])
    x = [node.x for node in scene(g).nodes if node.kind == "Event" or node.kind == "Step"]
    assert x[2] - x[1] > x[1] - x[0]


def test_kinds_of_steps():
    events = [
        EventRow("r", 1, "run.created"),
        EventRow("r", 2, step=0),
        EventRow("r", 3, step=1),
        EventRow("r", 4, step=2, exit_code=1),
        EventRow("r", 5, step=3, exit_code=0),
    ]
    g = bloom_graph(events, [("r", 3, "File|x|a", "MUTATED"), ("r", 2, "File|x|a")])
    kinds = {node.id: node.kind for node in scene(g).nodes}
    assert [kinds[f"event:r:{n}"] for n in range(1, 6)] == [
        "Event",
        "Step",
        "Edit",
        "Fault",
        "Step",
    ]


def test_the_drawing_says_what_it_leaves_out_and_the_graph_stays_whole():
    g = crowd(214)
    drawn = scene(g)
    assert drawn.notes == ["60 of 214 entities drawn"]
    assert sum(node.kind == "Symbol" for node in drawn.nodes) == 60
    assert sum(label == "Entity" for _, label in g.nodes(data="label")) == 214


def test_what_was_asked_for_is_always_drawn():
    g = crowd(214)
    last = next(reversed(weigh_entities(g)))
    assert last not in {node.id for node in scene(g, entities=10).nodes}
    g.graph["focus"] = [last]
    drawn = {node.id for node in scene(g, entities=10).nodes}
    assert last in drawn
    assert sum(key.startswith("Symbol") for key in drawn) == 10


def test_many_events_are_cut_by_run_and_said():
    runs = [RunRow(f"r{n}") for n in range(5)]
    g = bloom_graph([EventRow(f"r{n}", p) for n in range(5) for p in range(1, 11)], runs=runs)
    drawn = scene(g, events=25)
    assert drawn.notes == ["25 of 50 events drawn", "3 of 5 runs drawn"]
    drawn_ids = {node.id for node in drawn.nodes}
    assert all(edge.source in drawn_ids and edge.target in drawn_ids for edge in drawn.edges)


def test_what_the_picture_says_already_is_not_drawn_twice():
    kinds = [edge.kind for edge in scene(graph()).edges]
    assert "CAUSED_BY" not in kinds  # each cause is the event before
    assert kinds.count("CONTAINS") == 2
    other = bloom_graph([("r", 1), ("r", 2), EventRow("r", 3, cause=1)])
    assert "CAUSED_BY" in [edge.kind for edge in scene(other).edges]


def test_a_scene_is_plain_json():
    drawn = scene(graph())
    assert msgspec.json.decode(msgspec.json.encode(drawn), type=Scene) == drawn


def test_details_of_each_label():
    details = {node.id: node.detail for node in scene(graph()).nodes}
    run = details["run:leap-day~1-fork"]
    assert run["forked from"] == f"leap-day~1 at position {FORK_AT}"
    assert run["outcome"] == "success"
    step = details["event:leap-day~1:7"]
    assert (step["step"], step["exit code"]) == ("5", "1")
    assert {"thought", "action", "observation"} <= step.keys()
    entity = details["Error||ValueError"]
    assert (entity["kind"], entity["entity"]) == ("Error", "ValueError")
    assert "scope" not in entity


def test_a_crowded_picture_hides_what_is_only_named_and_says_so():
    from sag_research.viz._pyvis import drawing_data

    events = [EventRow("r", n) for n in range(1, 51)]
    mentions = [("r", n, f"Symbol|x|s{k}") for n in range(1, 51) for k in range(13)]
    mentions.append(("r", 1, "Symbol|x|s0", "MUTATED"))
    drawn = scene(bloom_graph(events, mentions))
    assert "click a node to see what is only named" in drawn.notes
    hidden = [edge.get("hidden", False) for edge in drawing_data(drawn)["edges"]]
    assert hidden == [edge.kind == "PROCESSED" for edge in drawn.edges]
    assert not any("hidden" in edge for edge in drawing_data(scene(graph()))["edges"])


def test_a_large_force_layout_is_stable_too():
    g = crowd(480, steps=60)
    assert scene(g, "force", entities=480) == scene(g, "force", entities=480)


@pytest.mark.parametrize("layout", ["timeline", "force"])
def test_empty_and_tiny_graphs(layout):
    assert scene(bloom_graph([]), layout).nodes == []
    assert len(scene(bloom_graph([], runs=[("r",)]), layout).nodes) == 1
    assert len(scene(bloom_graph([("r", 1)], [("r", 1, "Error||E")]), layout).nodes) == 3


def test_an_unknown_layout_is_refused():
    with pytest.raises(UsageError, match="timeline, force"):
        scene(graph(), "circle")
