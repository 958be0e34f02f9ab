"""What a page is told turns one drawing into the other."""

from __future__ import annotations

import itertools
import json

import pytest

from sag_research.bloom import EventRow, bloom_graph
from sag_research.viz import scene, scene_data, scene_patch
from sag_research.viz._patch import apply_patch
from tests.viz.sample import graph
from tests.viz.test_page import hostile_graph

DRAWINGS = {
    "empty": lambda: scene(bloom_graph([])),
    "run": lambda: scene(graph(fork=False)),
    "fork": lambda: scene(graph()),
    "chains": lambda: scene(graph(), collapse=True),
    "risk": lambda: scene(graph(), risk={"leap-day~1": [0.5] * 30}, alarms={"leap-day~1": 9}),
    "cloud": lambda: scene(graph(), "force"),
    "hostile": lambda: scene(hostile_graph(), entities=1_000),
}


def meaning(data):
    """A drawing without the order and numbers of its nodes and edges."""
    nodes = {
        key: ({**node, "id": 0}, *rest)
        for key, node, *rest in zip(
            *(data[name] for name in ("keys", "nodes", "kinds", "texts", "marks")), strict=True
        )
    }
    edges = {}
    for edge, (kind, label) in zip(data["edges"], data["links"], strict=True):
        ends = data["keys"][edge["from"]], data["keys"][edge["to"]], kind
        looks = {name: value for name, value in edge.items() if name not in ("id", "from", "to")}
        edges[ends] = (label, looks)
    rest = ("bands", "legend", "notes", "title", "layout", "options")
    return nodes, edges, {name: data[name] for name in rest}


@pytest.mark.parametrize(("old", "new"), [*itertools.product(DRAWINGS, repeat=2)])
def test_a_patch_leads_from_any_drawing_to_any_other(old, new):
    before, after = (scene_data(DRAWINGS[name]()) for name in (old, new))
    untouched = json.dumps(before)
    patch = json.loads(json.dumps(scene_patch(before, after)))  # it travels as JSON
    assert meaning(apply_patch(before, patch)) == meaning(after)
    assert json.dumps(before) == untouched
    assert (patch == {}) == (old == new)


def test_one_more_step_is_a_small_patch():
    events = [EventRow("r", n, step=n - 1, action="ls", observation="x") for n in range(1, 101)]
    # the columns of a short run move together: this one is long
    before, after = (scene_data(scene(bloom_graph(events[:n]))) for n in (99, 100))
    patch = scene_patch(before, after)
    assert patch["add"]["keys"] == ["event:r:100"]
    assert "remove" not in patch
    assert "change" not in patch
    assert [(e["source"], e["target"]) for e in patch["edges"]["add"]] == [
        ("event:r:99", "event:r:100")
    ]
    assert len(json.dumps(patch)) < len(json.dumps(after)) / 10


def test_what_a_page_is_told_is_valid_text():
    data = scene_data(DRAWINGS["hostile"]())
    text = json.dumps(scene_patch(scene_data(DRAWINGS["empty"]()), data), ensure_ascii=False)
    assert text.encode("utf-8")  # no half characters, which a kernel could not send
