"""From a flat scene to places in space: time to the right, runs one behind the other."""

from __future__ import annotations

from typing import Any, Final

from sag_research.viz._grammar import tone_words
from sag_research.viz._scene import Node, Scene
from sag_research.viz._style import ENTITY_COLOURS, LINKS, MARKS, OPEN, TONES, UNKNOWN

__all__ = ["place_in_space", "space_data"]

WIDE: Final = 900.0
"""A longer timeline is pressed together to this width, scene units."""
TIGHT: Final = 0.45
"""But not more than to this share, or its marks would touch."""
LANE: Final = 90.0
"""From one run to the next, scene units."""
SHEET: Final = 30.0
"""From one kind of entity to the next."""
RUN_COLOUR: Final = "#8c6d1f"
EVENT_COLOUR: Final = "#7c8b9a"

Place = tuple[float, float, float]


def place_in_space(scene: Scene) -> list[Place]:
    """Give each node of a scene its place, in their order.

    On a timeline, x is the step, each run is a lane of its own in depth (z), on the floor (y = 0),
    and entities hang above, kind behind kind. Of other layouts x and y stay, and depth is the
    run's or the kind's.

    Returns
    -------
    list of (float, float, float)
        Scene units; x to the right, y upwards, z towards the viewer.

    Examples
    --------
    >>> runs = [Node(id=f"run:{name}", kind="Run", detail={"run": name}) for name in "ab"]
    >>> place_in_space(Scene(nodes=runs, edges=[], layout="timeline"))
    [(0.0, 0.0, 0.0), (0.0, 0.0, -90.0)]
    """
    flat = scene.layout == "timeline"
    lanes = _ranks(node.detail.get("run", "") for node in scene.nodes if node.kind in MARKS)
    sheets = _ranks(node.kind for node in scene.nodes if node.kind not in MARKS)
    xs = [node.x for node in scene.nodes] or [0.0]
    press = max(TIGHT, min(1.0, WIDE / ((max(xs) - min(xs)) or 1.0))) if flat else 1.0
    shelf = max((node.y for node in scene.nodes if node.kind not in MARKS), default=0.0)
    middle = -LANE * max(len(lanes) - 1, 0) / 2

    def place(node: Node) -> Place:
        if node.kind in MARKS:
            depth = -LANE * lanes[node.detail.get("run", "")]
            return _rounded(node.x * press, 0.0 if flat else -node.y, depth)
        depth = middle + SHEET * ((len(sheets) - 1) / 2 - sheets[node.kind])
        return _rounded(node.x * press, LANE + shelf - node.y if flat else -node.y, depth)

    return [place(node) for node in scene.nodes]


def _rounded(x: float, y: float, z: float) -> Place:
    return round(x, 1) + 0.0, round(y, 1) + 0.0, round(z, 1) + 0.0


def space_data(scene: Scene) -> dict[str, Any]:
    """Give what ``js/bloom3d.js`` needs beside :func:`~sag_research.viz.scene_data`.

    Returns
    -------
    dict
        ``at`` (places), ``colours`` and ``radii`` of the nodes; of the edges ``links``: colour,
        and whether it is drawn before a node is chosen; ``legend``: colours and words.
    """
    return {
        "at": place_in_space(scene),
        "colours": [_colour(node) for node in scene.nodes],
        "radii": [round(node.size / 2, 1) if node.kind in MARKS else 5.0 for node in scene.nodes],
        "links": [[LINKS.get(e.kind, LINKS[""]).colour, e.kind in OPEN] for e in scene.edges],
        "legend": _legend(scene),
    }


def _legend(scene: Scene) -> list[tuple[str, str]]:
    kinds = {node.kind for node in scene.nodes}
    tones = {node.tone for node in scene.nodes}
    listed = [(RUN_COLOUR, "run")] if "Run" in kinds else []
    listed += [(TONES[word.name][0], word.words) for word in tone_words() if word.name in tones]
    listed += [(EVENT_COLOUR, "begin, end, fork")] if "Event" in kinds else []
    return listed + [(c, kind) for kind, c in ENTITY_COLOURS.items() if kind in kinds]


def _ranks(names: Any) -> dict[str, int]:
    return {name: rank for rank, name in enumerate(dict.fromkeys(names))}


def _colour(node: Node) -> str:
    if node.kind not in MARKS:
        return ENTITY_COLOURS.get(node.kind, UNKNOWN)
    if node.kind == "Run":
        return RUN_COLOUR
    return TONES[node.tone][0] if node.tone in TONES else EVENT_COLOUR
