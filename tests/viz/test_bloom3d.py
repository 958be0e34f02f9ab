"""The view in space: places, limits, the vendored library, and inert data."""

from __future__ import annotations

import gzip
import hashlib
import json
import tomllib
from importlib.resources import files

import pytest

import sag_research
from sag_research.errors import UsageError
from sag_research.viz import Edge, Node, Scene
from sag_research.viz._bloom3d import MOST_NODES, Bloom3D, space_lib, space_library
from sag_research.viz._space import place_in_space, space_data

HOSTILE = "</script><img src=x onerror=alert(1)>\ud800"
NODES = [
    Node(id="run:a", kind="Run", detail={"run": "a"}, y=40),
    Node(id="event:a@2", kind="Step", detail={"run": "a"}, tone="error", x=50, y=40, size=12),
    Node(id="run:b", kind="Run", detail={"run": "b"}, y=140),
    Node(id="entity:e", kind="Error", label=HOSTILE, detail={"entity": HOSTILE}, x=30, y=-60),
    Node(id="entity:f", kind="File", x=60, y=-90),
]
EDGES = [
    Edge(source="run:a", target="event:a@2", kind="CONTAINS"),
    Edge(source="event:a@2", target="entity:e", kind="PROCESSED"),
]
SCENE = Scene(nodes=NODES, edges=EDGES, layout="timeline")


def test_runs_stand_behind_each_other_and_entities_above() -> None:
    run, step, other, error, file = place_in_space(SCENE)
    assert run[1:] == step[1:]
    assert other[1] == 0.0
    assert other[2] < run[2]
    assert step[0] > run[0]
    assert min(error[1], file[1]) > 0
    assert error[2] != file[2]


def test_a_long_timeline_is_pressed_together_but_not_too_much() -> None:
    long = Scene(nodes=[NODES[0], Node(id="x", kind="Step", x=10_000)], edges=[], layout="timeline")
    assert place_in_space(long)[1][0] == 4_500


def test_of_another_layout_places_stay() -> None:
    places = place_in_space(Scene(nodes=NODES, edges=[], layout="force"))
    assert [place[:2] for place in places] == [(n.x, -n.y + 0.0) for n in NODES]


def test_what_is_only_named_waits_for_a_choice() -> None:
    data = space_data(SCENE)
    assert [always for _, always in data["links"]] == [True, False]
    assert {len(data[name]) for name in ("at", "colours", "radii")} == {len(NODES)}


def test_too_many_nodes_are_refused_with_a_reason() -> None:
    nodes = [Node(id=f"event:{n}", kind="Step") for n in range(MOST_NODES + 1)]
    with pytest.raises(UsageError, match=r"2,001 nodes.*turned fluently.*draw fewer"):
        Bloom3D(Scene(nodes=nodes, edges=[], layout="timeline"))
    assert repr(Bloom3D(Scene(nodes=nodes[1:], edges=[], layout="timeline"))).startswith("Bloom3D(")


def test_an_unknown_key_is_refused_and_another_scene_forgets_the_choice() -> None:
    view = Bloom3D(SCENE)
    with pytest.raises(UsageError, match="no node 'nosuch'"):
        view.selected = "nosuch"
    view.selected = "entity:e"
    view.scene = Scene(nodes=NODES[:2], edges=EDGES[:1], layout="timeline")
    assert view.selected == ""


def test_hostile_labels_travel_as_data() -> None:
    view = Bloom3D(SCENE)
    text = gzip.decompress(view._data).decode("ascii")
    assert "<" not in text
    assert "onerror" in json.loads(text)["texts"][3][0]
    assert "<img" not in view._repr_mimebundle_()[0]["text/html"]


def test_the_library_travels_once() -> None:
    assert Bloom3D(SCENE)._lib is Bloom3D(SCENE)._lib is space_lib()


def test_the_vendored_library_is_the_published_one() -> None:
    folder = files(sag_research).joinpath("viz", "js", "vendor")
    pin = tomllib.loads(folder.joinpath("3d-force-graph.toml").read_text(encoding="utf-8"))
    content = folder.joinpath("3d-force-graph.min.js").read_bytes()
    assert (len(content), hashlib.sha256(content).hexdigest()) == (pin["bytes"], pin["sha256"])
    assert f"// Version {pin['version']} 3d-force-graph" in space_library()[:80]
    licence = folder.joinpath("3d-force-graph.LICENSE.txt").read_text(encoding="utf-8")
    assert "Vasco Asturiano" in licence
    others = folder.joinpath("3d-force-graph.THIRD_PARTY.txt").read_text(encoding="utf-8")
    assert "three.js authors" in others
