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
from functools import cache
from importlib.resources import files
from typing import Any, Final

from sag_research.errors import MissingDataError
from sag_research.viz._scene import Node, Scene
from sag_research.viz._style import BRIDGE, LINKS, MARKS, hidden_edges

__all__ = ["drawing_data", "drawing_library"]

LIBRARY: Final = ("templates", "lib", "vis-9.1.2", "vis-network.min.js")


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
    """Give a scene's nodes, edges and options in pyvis' own form, numbered instead of named.

    An edge that is not drawn until one of its ends is pointed at is ``hidden``.
    """
    from pyvis.network import Network

    network = Network(directed=True, cdn_resources="in_line")
    numbers = {node.id: number for number, node in enumerate(scene.nodes)}
    # add_node() searches all nodes each time; the lists are the same, filled at once
    network.nodes = [_node(number, node) for number, node in enumerate(scene.nodes)]
    network.node_ids = list(range(len(scene.nodes)))
    network.node_map = dict(zip(network.node_ids, network.nodes, strict=True))
    network.edges = _edges(scene, numbers)
    network.options = _options(scene.layout)
    nodes, edges, _, _, _, options = network.get_network_data()
    return {"nodes": nodes, "edges": edges, "options": json.loads(options)}


def _node(number: int, node: Node) -> dict[str, Any]:
    from pyvis.node import Node as PyvisNode

    shape = "dot" if node.kind in MARKS else "box"
    looks: dict[str, Any] = {"x": node.x, "y": node.y, "size": node.size}
    options: dict[str, Any] = PyvisNode(number, shape, " ", **looks).options
    return options


def _edges(scene: Scene, numbers: dict[str, int]) -> list[dict[str, Any]]:
    from pyvis.edge import Edge as PyvisEdge

    made = []
    timeline = scene.layout == "timeline"
    for number, (edge, hidden) in enumerate(zip(scene.edges, hidden_edges(scene), strict=True)):
        link = LINKS.get(edge.kind, LINKS[""])
        looks: dict[str, Any] = {"id": number, "width": link.width}
        source, target = numbers[edge.source], numbers[edge.target]
        level = scene.nodes[source].y == scene.nodes[target].y
        if hidden:
            looks["hidden"] = True
        if link.dashes:
            looks["dashes"] = [5, 4]
        if edge.kind in {*BRIDGE, "CONTAINS"} or (timeline and level):
            looks["arrows"] = ""  # a lane is read from left to right
        if timeline and edge.kind == "FORKED_FROM":
            looks["smooth"] = {"enabled": True, "type": "cubicBezier", "roundness": 0.6}
            looks["smooth"]["forceDirection"] = "vertical"
            looks["arrows"] = "from"  # time goes from the parent to the fork
        elif edge.kind not in LINKS or edge.kind == "CAUSED_BY":
            looks["smooth"] = {"enabled": True, "type": "curvedCW", "roundness": 0.2}
        made.append(PyvisEdge(source, target, True, **looks).options)
    return made


def _options(layout: str) -> dict[str, Any]:
    return {
        "physics": {"enabled": False},
        "layout": {"improvedLayout": False},
        "interaction": {
            "hover": True, "hoverConnectedEdges": False, "selectConnectedEdges": False,
            "dragNodes": layout == "force", "multiselect": False, "keyboard": {"enabled": False},
            "tooltipDelay": 86_400_000,
        },
        "edges": {
            "smooth": False, "arrowStrikethrough": False, "selectionWidth": 0, "hoverWidth": 0.5,
            "arrows": {"to": {"scaleFactor": 0.45}},
        },
    }  # fmt: skip
