"""Force-directed layout, computed once in Python; the page does not simulate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sag_research.viz._drawn import Drawn
from sag_research.viz._measure import BOX_HEIGHT
from sag_research.viz._scene import Band, Node
from sag_research.viz._style import MARKS

__all__ = ["place_force"]

REACH: Final = 46.0
"""Scene units per square root of the number of nodes."""
ASPECT: Final = 1.5
"""Pictures are wider than they are high, and so are the boxes on them."""
LARGE: Final = 500
"""From here on networkx minimises an energy, whose rounds are dearer and reach further."""
SPRING_ROUNDS: Final = 120
SPRING_ROUNDS_LARGE: Final = 20
ROUNDS: Final = 200
"""Give up on the last overlaps after so many rounds."""
EAGER: Final = 0.8
"""Share of an overlap that one round removes: less than all, for a box may have many neighbours."""


def place_force(
    drawn: Drawn, nodes: Mapping[str, Node], seed: int = 7
) -> tuple[dict[str, tuple[float, float]], list[Band]]:
    """Place the drawn nodes by attraction and repulsion.

    Returns
    -------
    places : dict of str to (float, float)
        By node key.
    bands : list of Band
        Always empty.
    """
    import networkx as nx

    plain = nx.Graph()
    plain.add_nodes_from(nodes)
    for one, other, kind in drawn.graph.edges(keys=True):
        source, target = drawn.home.get(one, one), drawn.home.get(other, other)
        if source in nodes and target in nodes and source != target and kind != "CONTAINS":
            plain.add_edge(source, target, weight=3.0 if kind == "NEXT" else 1.0)
    for key in drawn.runs:  # a run hangs on its first event only: a hub would pull all into a ball
        if own := drawn.lanes[drawn.graph.nodes[key]["run_id"]]:
            plain.add_edge(key, own[0], weight=3.0)
    reach = REACH * len(nodes) ** 0.5
    rounds = SPRING_ROUNDS if len(nodes) < LARGE else SPRING_ROUNDS_LARGE
    k = 2.2 / max(len(nodes), 1) ** 0.5
    loose = nx.spring_layout(plain, seed=seed, k=k, iterations=rounds)
    wished = {key: (x * reach * ASPECT, y * reach) for key, (x, y) in loose.items()}
    return _pull_apart(wished, nodes), []


def _pull_apart(
    wished: dict[str, tuple[float, float]], nodes: Mapping[str, Node]
) -> dict[str, tuple[float, float]]:
    """Push overlapping boxes apart along the shorter way until none overlap."""
    import numpy as np
    from scipy.spatial import KDTree

    if not wished:
        return {}
    place = np.array(list(wished.values()))
    half = np.array([_half(nodes[key]) for key in wished])
    reach = 2 * half.max(axis=0)
    for _ in range(ROUNDS):
        # scaled by the widest box, only places nearer than 1 can overlap
        pairs = KDTree(place / reach).query_pairs(1.0, p=np.inf, output_type="ndarray")
        first, second = pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))].T
        way = place[first] - place[second]
        lap = half[first] + half[second] - np.abs(way)
        touching = (lap > 0.01).all(axis=1)
        if not touching.any():
            break
        first, second, way, lap = first[touching], second[touching], way[touching], lap[touching]
        axis = lap.argmin(axis=1)
        each = np.arange(len(first))
        push = np.where(way[each, axis] >= 0, 0.5, -0.5) * lap[each, axis]
        np.add.at(place, (first, axis), push * EAGER)
        np.add.at(place, (second, axis), -push * EAGER)
    return {key: (float(x), float(y)) for key, (x, y) in zip(wished, place, strict=True)}


def _half(node: Node) -> tuple[float, float]:
    if node.kind in MARKS:
        return 17.0, 17.0
    return node.size / 2 + 5, BOX_HEIGHT * node.scale / 2 + 4
