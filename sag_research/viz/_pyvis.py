"""The only module that knows pyvis.

pyvis 0.3.2 is not maintained, and its own page cannot be made safe: it asks two CDNs for
bootstrap, reads every title as HTML as soon as one holds the letters ``href``, and puts heading
and ids in raw. So its ``Network`` makes the nodes, edges and options, and the drawing code in
its wheel draws them, but on our page. Nothing that comes from a trajectory passes through here:
nodes are numbers, and texts travel beside them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any, Final

from sag_research.errors import MissingDataError
from sag_research.viz._measure import BOX_HEIGHT
from sag_research.viz._scene import Node, Scene
from sag_research.viz._style import (
    BRIDGE,
    ENTITY_COLOURS,
    FONT_SIZE,
    LINKS,
    MARKS,
    is_crowded,
    tint,
)

__all__ = ["drawing_data", "drawing_library"]

LIBRARY: Final = ("templates", "lib", "vis-9.1.2", "vis-network.min.js")
UNKNOWN: Final = "#999999"
FACE: Final = "system-ui, 'DejaVu Sans', sans-serif"


@cache
def drawing_library() -> str:
    """Read the vis-network source that pyvis ships, as ASCII and without its source-map link.

    Raises
    ------
    MissingDataError
        pyvis is installed without it.
    """
    path = files("pyvis").joinpath(*LIBRARY)
    if not path.is_file():
        raise MissingDataError(
            "pyvis has no vis-network 9.1.2",
            fix="install the pinned version: pip install pyvis==0.3.2",
        )
    source = re.sub(r"(?m)^//# sourceMappingURL=.*$", "", path.read_text(encoding="utf-8"))
    # all other characters stand in string literals, where an escape means the same
    return re.sub(r"[^\x00-\x7f]", lambda m: f"\\u{ord(m.group()):04x}", source)


def drawing_data(scene: Scene) -> dict[str, Any]:
    """Give a scene's nodes, edges and options in pyvis' own form, numbered instead of named."""
    from pyvis.network import Network

    network = Network(directed=True, cdn_resources="in_line")
    numbers = {node.id: number for number, node in enumerate(scene.nodes)}
    # add_node() searches all nodes each time; the lists are the same, filled at once
    network.nodes = [_node(number, node) for number, node in enumerate(scene.nodes)]
    network.node_ids = list(range(len(scene.nodes)))
    network.node_map = dict(zip(network.node_ids, network.nodes, strict=True))
    network.edges = _edges(scene, numbers)
    network.options = _options(sorted({node.kind for node in scene.nodes}))
    nodes, edges, _, _, _, options = network.get_network_data()
    return {"nodes": nodes, "edges": edges, "options": json.loads(options)}


def _node(number: int, node: Node) -> dict[str, Any]:
    from pyvis.node import Node as PyvisNode

    shape = MARKS[node.kind].shape if node.kind in MARKS else "box"
    looks: dict[str, Any] = {"x": node.x, "y": node.y, "group": _group(node.kind)}
    if shape == "box":
        inner = node.size - 8
        looks["widthConstraint"] = {"minimum": inner}  # with a maximum, text would be broken
        looks["heightConstraint"] = {"minimum": BOX_HEIGHT - 8}
    elif shape != "circle":
        looks["size"] = node.size
    options: dict[str, Any] = PyvisNode(number, shape, " ", **looks).options
    return options


def _group(kind: str) -> str:
    return kind if kind in MARKS or kind in ENTITY_COLOURS else "Other"


def _edges(scene: Scene, numbers: dict[str, int]) -> list[dict[str, Any]]:
    from pyvis.edge import Edge as PyvisEdge

    made = []
    crowded = is_crowded([edge.kind for edge in scene.edges])
    for number, edge in enumerate(scene.edges):
        link = LINKS.get(edge.kind, LINKS[""])
        looks: dict[str, Any] = {
            "id": number,
            "color": {"color": link.colour, "opacity": link.opacity, "highlight": "#d55e00"}
            | {"hover": "#d55e00"},
            "width": link.width,
        }
        if crowded and edge.kind in BRIDGE:
            # what is only named shows when a node is chosen; what is changed stays, paler
            looks["hidden"] = edge.kind == "PROCESSED"
            looks["color"]["opacity"] = 0.4
            looks["width"] = 1.0
        if link.dashes:
            looks["dashes"] = [5, 4]
        source, target = numbers[edge.source], numbers[edge.target]
        if edge.kind in {*BRIDGE, "CONTAINS"} or (
            # a lane is read from left to right
            edge.kind == "NEXT"
            and scene.layout == "timeline"
            and scene.nodes[source].y == scene.nodes[target].y
        ):
            looks["arrows"] = ""
        if edge.kind not in LINKS or edge.kind == "CAUSED_BY":
            looks["smooth"] = {"enabled": True, "type": "curvedCW", "roundness": 0.2}
        made.append(PyvisEdge(source, target, True, **looks).options)
    return made


def _options(kinds: Sequence[str]) -> dict[str, Any]:
    groups = {}
    for kind in kinds:
        if kind in MARKS:
            mark = MARKS[kind]
            fill, line, text = mark.fill, mark.line, mark.text
        else:
            line = ENTITY_COLOURS.get(kind, UNKNOWN)
            fill, text = tint(line), "#1c2329"
        size = FONT_SIZE if kind not in MARKS else FONT_SIZE - 2
        groups[_group(kind)] = {
            "color": {"background": fill, "border": line}
            | {side: {"background": fill, "border": "#d55e00"} for side in ("highlight", "hover")},
            "font": {"color": text, "size": size, "face": FACE},
            "margin": 3 if kind in MARKS else 4,
            "borderWidth": 2.5 if kind == "Fault" else 1.5,
        }
    return {
        "physics": {"enabled": False},
        "layout": {"improvedLayout": False},
        "interaction": {
            "hover": True, "hoverConnectedEdges": True, "selectConnectedEdges": True,
            "dragNodes": True, "multiselect": False, "keyboard": {"enabled": False},
            "tooltipDelay": 86_400_000,
        },
        "nodes": {
            "borderWidthSelected": 3, "labelHighlightBold": False,
            "shapeProperties": {"borderRadius": 4},
            "scaling": {"label": {"drawThreshold": 3}},
        },
        "edges": {
            "smooth": False, "arrowStrikethrough": False, "selectionWidth": 1.5, "hoverWidth": 0.5,
            "arrows": {"to": {"scaleFactor": 0.45}},
        },
        "groups": groups,
    }  # fmt: skip
