"""What is drawn, and where."""

from __future__ import annotations

import itertools
import tomllib
from importlib.resources import files

import msgspec
import pytest

from sag_research.bloom import EntityRow, EventRow, RunRow, bloom_graph, weigh_entities
from sag_research.errors import UsageError
from sag_research.extract import Vocabulary
from sag_research.viz import Scene, scene, scene_data
from sag_research.viz._measure import BOX_HEIGHT
from sag_research.viz._pyvis import drawing_data
from sag_research.viz._style import hidden_edges
from tests.viz.sample import FORK_AT, graph

KINDS = {"Run", "Step", "Chain", "Event"}


def boxes(drawn):
    """Left, upper, right and lower side of each node."""
    sides = {}
    for node in drawn.nodes:
        half = 14.0 if node.kind in KINDS else node.size / 2
        high = 14.0 if node.kind in KINDS else BOX_HEIGHT * node.scale / 2
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


def test_shape_says_what_a_step_did_and_colour_what_came_back():
    told = [
        ("ls", "a.py", None, "look", "ok"),
        ("grep -rn x .", "", 0, "search", "empty"),
        ("sed -i s/a/b/ a.py", "", 0, "edit", "ok"),
        ("pytest", "1 failed in 0.1s", 1, "test", "error"),
        ("submit", "", None, "submit", "ok"),
        ("frobnicate", "done", 0, "other", "ok"),
        ("", "", None, "other", "unknown"),
    ]
    events = [EventRow("r", 1, "run.created")]
    for n, (action, observation, code, _, _) in enumerate(told):
        events.append(EventRow("r", n + 2, step=n, action=action, observation=observation,
                               exit_code=code))  # fmt: skip
    looks = {
        node.id: (node.kind, node.mark, node.tone) for node in scene(bloom_graph(events)).nodes
    }
    assert looks["event:r:1"] == ("Event", "", "")
    for n, (*_, mark, tone) in enumerate(told):
        assert looks[f"event:r:{n + 2}"] == ("Step", mark, tone), told[n]


def test_every_verb_and_result_of_the_vocabulary_has_a_shape_and_a_colour():
    alphabet = Vocabulary().alphabet
    tables = tomllib.loads(files("sag_research.viz").joinpath("grammar.toml").read_text("utf-8"))
    verbs = [verb for mark in tables["mark"].values() for verb in mark["verbs"]]
    results = [result for tone in tables["tone"].values() for result in tone["results"]]
    assert len(verbs) == len(set(verbs))
    assert len(results) == len(set(results))
    assert set(verbs) <= set(alphabet["verb"])
    assert set(results) <= set(alphabet["result"])
    # what is left out is not called a failure
    assert set(alphabet["result"]) - set(results) == {"none", "reply-no", "reply-question"}
    assert tables["tone"]["unknown"]["results"] == []


def test_a_lane_ends_with_its_outcome_and_a_fork_begins_where_it_parts():
    drawn = scene(graph())
    steps = {node.id: node for node in drawn.nodes}
    lanes = {band.run: band for band in drawn.bands if band.run}
    assert {run: band.outcome for run, band in lanes.items()} == {
        "leap-day~1": "failure",
        "leap-day~1-fork": "success",
    }
    for band in lanes.values():
        own = [node.x for node in drawn.nodes if node.detail.get("run") == band.run]
        assert max(own) < band.end[0] < band.x + band.width
    parts = steps[f"event:leap-day~1:{FORK_AT}"]
    assert parts.flags == ("fork-point",)
    assert abs(steps["run:leap-day~1-fork"].x - parts.x) < 10
    # what the fork took over is not drawn twice
    own = [node for node in drawn.nodes if node.detail.get("run") == "leap-day~1-fork"]
    assert {node.detail["step"] for node in own if node.kind == "Step"} == set(
        map(str, range(9, 16))
    )


def test_an_unknown_outcome_is_said_to_be_unknown():
    bands = scene(bloom_graph([("r", 1)])).bands
    assert [band.outcome for band in bands] == ["unknown"]
    assert scene_data(scene(bloom_graph([("r", 1)])))["bands"][0]["says"] == "? unknown"


def test_risk_and_alarm_stand_on_the_lane():
    risk = {"leap-day~1": [0.1, float("nan"), *[n / 30 for n in range(2, 30)]]}
    drawn = scene(graph(), risk=risk, alarms={"leap-day~1": 12})
    steps = {node.id: node for node in drawn.nodes}
    (band,) = [band for band in drawn.bands if band.risk]
    assert len(band.risk) == 29  # what is not known is not drawn
    assert band.risk[0][2] == 0.1
    for left, right, value in band.risk:
        (at,) = [n for n in drawn.nodes if n.kind == "Step" and left <= n.x < right
                 and n.detail["run"] == "leap-day~1"]  # fmt: skip
        assert value == pytest.approx(risk["leap-day~1"][int(at.detail["step"])], abs=1e-4)
    assert steps["event:leap-day~1:14"].flags == ("alarm",)
    assert [n.id for n in drawn.nodes if "alarm" in n.flags] == ["event:leap-day~1:14"]


def test_events_tell_of_an_alarm():
    body = '{"step": 1, "risk": 0.875, "evidence": "<img src=x>"}'
    events = [EventRow("r", 1, step=0), EventRow("r", 2, step=1),
              EventRow("r", 3, "deadend.predicted", body=body), EventRow("r", 4, step=2),
              EventRow("q", 1, step=0)]  # fmt: skip
    events.append(EventRow("q", 2, "deadend.predicted", body=body[:20]))
    drawn = scene(bloom_graph(events))
    assert [node.id for node in drawn.nodes if node.flags] == ["event:r:2"]
    assert {band.run: [value for _, _, value in band.risk] for band in drawn.bands} == {
        "r": [0.875],
        "q": [],
    }


def test_entities_stand_by_kind_and_rare_ones_are_larger():
    g = bloom_graph(
        [EventRow("r", n) for n in range(1, 9)],
        [("r", n, f"{kind}||{kind}{n}") for kind in ("File", "Error", "Test") for n in range(1, 9)],
        entities=[EntityRow(f"File||File{n}", "File", "", f"File{n}", 4**n) for n in range(1, 9)],
    )
    g.graph["runs_total"] = 4**8
    drawn = scene(g)
    heights = {kind: {node.y for node in drawn.nodes if node.kind == kind}
               for kind in ("File", "Error", "Test")}  # fmt: skip
    assert (
        max(heights["File"]) < min(heights["Test"]) <= max(heights["Test"]) < min(heights["Error"])
    )
    scales = [node.scale for node in sorted(drawn.nodes, key=lambda n: n.id) if node.kind == "File"]
    assert scales == sorted(scales, reverse=True)
    assert (scales[-1], scales[0] > 1.1) == (0.85, True)
    assert [kind for kind, _ in drawn.bands[0].rows] == ["Error", "Test", "File"]
    assert overlaps(drawn) == []


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


def long_runs(runs=5, steps=10, actions=("ls", "pytest")):
    rows = [EventRow(f"r{n}", p, step=p - 1, action=actions[p // 3 % len(actions)],
                     observation="x", exit_code=0)
            for n in range(runs) for p in range(1, steps + 1)]  # fmt: skip
    return bloom_graph(rows, runs=[RunRow(f"r{n}") for n in range(runs)])


def test_too_many_steps_become_chains_and_each_is_in_one_of_them():
    g = long_runs()
    drawn = scene(g, events=20)
    chains = [node for node in drawn.nodes if node.kind == "Chain"]
    assert len([n for n in drawn.nodes if n.kind in {"Chain", "Step"}]) == 20
    assert drawn.notes == ["50 events drawn as 20 marks"]
    steps = [node for node in drawn.nodes if node.kind == "Step"]
    assert sum(int(node.detail["count"]) for node in chains) + len(steps) == 50
    assert {node.mark for node in chains} == {"look", "test"}
    ids = {node.id for node in drawn.nodes}
    assert all(edge.source in ids and edge.target in ids for edge in drawn.edges)
    lanes = [edge for edge in drawn.edges if edge.kind == "NEXT"]
    assert len(lanes) == 5 * 3


def test_a_chain_opens_by_its_key():
    g = long_runs()
    closed = scene(g, collapse=True)
    chain = next(node for node in closed.nodes if node.kind == "Chain")
    first = chain.id.removeprefix("chain:")
    opened = scene(g, collapse=True, expand={chain.id})
    ids = {node.id for node in opened.nodes}
    assert first in ids
    assert chain.id not in ids
    assert len(opened.nodes) == len(closed.nodes) + int(chain.detail["count"]) - 1
    assert scene(g, collapse=True, expand={"chain:nothing"}) == closed


def test_what_something_is_said_of_is_in_no_chain():
    drawn = scene(graph(), collapse=True, alarms={"leap-day~1": 9}, events=8)
    flagged = {node.id: node.flags for node in drawn.nodes if node.flags}
    assert flagged == {"event:leap-day~1:10": ("fork-point",), "event:leap-day~1:11": ("alarm",)}
    assert not any(node.flags for node in drawn.nodes if node.kind == "Chain")


def test_runs_that_are_too_many_are_left_out_and_said():
    drawn = scene(long_runs(), events=3)
    assert drawn.notes == [
        "30 events drawn as 3 marks", "30 of 50 events drawn", "3 of 5 runs drawn",
    ]  # fmt: skip
    ids = {node.id for node in drawn.nodes}
    assert all(edge.source in ids and edge.target in ids for edge in drawn.edges)


def test_two_thousand_nodes_are_the_most():
    actions = [f"{program} {n}" for n in range(3) for program in ("ls", "pytest", "grep x", "rm")]
    g = long_runs(300, 40, actions)
    mentions = [(f"r{n}", 1 + n % 40, f"File||f{n}") for n in range(300)]
    g = bloom_graph(
        [EventRow(d["run_id"], d["position"], step=d["step"], action=d["action"], observation="x")
         for _, d in g.nodes(data=True) if d["label"] == "Event"],
        mentions, runs=[RunRow(f"r{n}") for n in range(300)],
    )  # fmt: skip
    drawn = scene(g, events=100_000, entities=100_000)
    assert len(drawn.nodes) <= 2_000
    (note,) = drawn.notes
    assert note.startswith("12,000 events drawn as 1,")
    chains = [node.id for node in drawn.nodes if node.kind == "Chain"]
    opened = scene(g, events=100_000, entities=100_000, expand=chains)
    assert 1_500 < len(opened.nodes) <= 2_000
    assert any("runs drawn" in note for note in opened.notes)


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


def test_a_timeline_draws_lanes_and_forks_and_no_more_until_asked():
    drawn = scene(graph())
    hidden = dict.fromkeys((edge.kind for edge in drawn.edges), 0)
    shown = dict(hidden)
    for edge, off in zip(drawn.edges, hidden_edges(drawn), strict=True):
        (hidden if off else shown)[edge.kind] += 1
    assert shown["FORKED_FROM"] == 1
    assert shown["NEXT"] == 31 + 8
    assert hidden["NEXT"] == 1  # the fork's own edge says where it parts
    assert shown["PROCESSED"] == shown["MUTATED"] == shown["DEFINES"] == 0
    data = drawing_data(drawn)
    assert [edge.get("hidden", False) for edge in data["edges"]] == hidden_edges(drawn)


def test_a_crowded_cloud_hides_what_is_only_named_and_says_so():
    events = [EventRow("r", n) for n in range(1, 51)]
    mentions = [("r", n, f"Symbol|x|s{k}") for n in range(1, 51) for k in range(13)]
    mentions.append(("r", 1, "Symbol|x|s0", "MUTATED"))
    drawn = scene(bloom_graph(events, mentions), "force")
    assert "click a node to see what is only named" in drawn.notes
    assert hidden_edges(drawn) == [edge.kind == "PROCESSED" for edge in drawn.edges]
    assert not any(hidden_edges(scene(graph(), "force")))


def test_the_table_says_what_the_picture_says():
    table = scene(graph()).table_
    row = table.set_index("key").loc["event:leap-day~1:9"]
    assert tuple(row[["kind", "run", "step", "did", "result"]]) == (
        "Step", "leap-day~1", "7", "ran a test or a program", "error or failed test",
    )  # fmt: skip
    assert len(table) == len(scene(graph()).nodes)


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
