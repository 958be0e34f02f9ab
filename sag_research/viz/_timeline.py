"""Timeline: a lane a run, entities on a shelf above, near the middle of their mentions."""

from __future__ import annotations

from bisect import insort
from collections import defaultdict
from collections.abc import Mapping
from itertools import count
from statistics import fmean
from typing import Any, Final

from sag_research._text import clip
from sag_research.viz._measure import BOX_HEIGHT, text_width
from sag_research.viz._scene import Band, Node

__all__ = ["place_timeline"]

WIDE: Final = 760.0
"""Short runs are spread over about this width, scene units."""
NARROWEST: Final = 29.0
WIDEST: Final = 110.0
ROW: Final = BOX_HEIGHT + 11
PAD: Final = 10.0
SHELF_GAP: Final = 104.0
CAPTION: Final = 112.0
"""Height of the slanted captions below a lane."""
MOST_CAPTIONS: Final = 6
"""More lanes than this stand close together, without captions."""
SHIFT: Final = 150.0
"""An entity may stand this far from the middle of its mentions before it takes a higher row."""
SPREAD: Final = 60.0
"""One row higher counts as much as this far aside."""
SHIFT_SHARE: Final = 0.12
"""In a long timeline: this share of its length."""

Places = dict[str, tuple[float, float]]


def place_timeline(
    graph: Any, runs: list[str], events: list[str], nodes: Mapping[str, Node], seed: int = 0
) -> tuple[Places, list[Band]]:
    """Place the drawn nodes on lanes and a shelf.

    Returns
    -------
    places : dict of str to (float, float)
        By node key; lanes at y >= 0, the shelf at y < 0.
    bands : list of Band
        The shelf and one band a lane.
    """
    columns, spacing = _columns(graph, events)
    captioned = len(runs) <= MOST_CAPTIONS
    height = 74.0 + (CAPTION if captioned else 0.0)
    lanes = {graph.nodes[key]["run_id"]: number for number, key in enumerate(runs)}
    places: Places = {}
    for key in events:
        data = graph.nodes[key]
        places[key] = columns[data["rank"]], lanes[data["run_id"]] * height
    for key in runs:
        own = [
            places[k][0] for k in events if graph.nodes[k]["run_id"] == graph.nodes[key]["run_id"]
        ]
        left = min(own, default=0.0) - max(spacing * 0.9, 30.0)
        places[key] = left, lanes[graph.nodes[key]["run_id"]] * height
    entities = [key for key, node in nodes.items() if graph.nodes[key]["label"] == "Entity"]
    places |= _shelf(graph, entities, nodes, places)
    return places, _bands(graph, runs, entities, nodes, places, height, captioned)


def _columns(graph: Any, events: list[str]) -> tuple[dict[int, float], float]:
    """Give each rank its x: equal steps, and a wider one where the drawing skips events."""
    ranks = sorted({graph.nodes[key]["rank"] for key in events})
    spacing = min(WIDEST, max(NARROWEST, WIDE / max(len(ranks), 1)))
    columns: dict[int, float] = {}
    x, before = 0.0, None
    for rank in ranks:
        if before is not None:
            x += spacing * (1.0 if rank == before + 1 else 1.8)
        columns[rank], before = x, rank
    return columns, spacing


def _shelf(graph: Any, entities: list[str], nodes: Mapping[str, Node], places: Places) -> Places:
    """Stack entity boxes in rows, the most telling ones nearest to the lanes."""
    reach = max(SHIFT, SHIFT_SHARE * max((x for x, _ in places.values()), default=0.0))
    rows: dict[int, list[tuple[float, float]]] = defaultdict(list)
    shelf: Places = {}
    for key in entities:
        named = [places[event][0] for event in graph.predecessors(key) if event in places]
        wish, width = fmean(named) if named else 0.0, nodes[key].size + PAD
        row, x = _seat(rows, wish, width, reach)
        insort(rows[row], (x - width / 2, x + width / 2))
        shelf[key] = x, -(SHELF_GAP + row * ROW)
    return shelf


def _seat(
    rows: Mapping[int, list[tuple[float, float]]], wish: float, width: float, reach: float
) -> tuple[int, float]:
    """Find a place: a low row far out costs what a high row near by does, so heaps stay flat."""
    for level in count():
        for row in range(level + 1):
            near = reach + (level - row) * SPREAD
            if (x := _free(rows[row], wish, width, near)) is not None:
                return row, x
    raise AssertionError("an empty row takes everything")


def _free(
    taken: list[tuple[float, float]], wish: float, width: float, reach: float
) -> float | None:
    """Find the place in a row that is nearest to the wished one, if one is near enough."""
    tries = [wish]
    for left, right in taken:
        tries += [left - width / 2, right + width / 2]
    for x in sorted(tries, key=lambda x: (abs(x - wish), x)):
        if abs(x - wish) > reach:
            return None
        if all(x + width / 2 <= left or right <= x - width / 2 for left, right in taken):
            return x
    return None


def _bands(
    graph: Any, runs: list[str], entities: list[str], nodes: Mapping[str, Node], places: Places,
    height: float, captioned: bool,
) -> list[Band]:  # fmt: skip
    bands = []
    if entities:
        left = min(places[key][0] - nodes[key].size / 2 for key in entities) - PAD
        right = max(places[key][0] + nodes[key].size / 2 for key in entities) + PAD
        top = min(places[key][1] for key in entities) - BOX_HEIGHT / 2 - 26
        bottom = -SHELF_GAP + BOX_HEIGHT / 2 + PAD
        label = "What the steps name (entities)"
        right = max(right, left + text_width(label) + 20)
        bands.append(_band(label, left, top, right - left, bottom - top))
    for key in runs:
        run_id = graph.nodes[key]["run_id"]
        own = [x for k, (x, _) in places.items() if graph.nodes[k].get("run_id") == run_id]
        left, right, y = min(own) - 24, max(own) + 24, places[key][1]
        below = 18 + (CAPTION if captioned else 0.0)
        right += CAPTION * 0.6 if captioned else 0.0
        label = _lane_title(graph.nodes[key])
        width = max(right - left, text_width(label) + 20)
        bands.append(_band(label, left, y - 36, width, 36 + below))
    return bands


def _band(label: str, *sides: float) -> Band:
    x, y, width, height = (round(side, 1) for side in sides)
    return Band(label=label, x=x, y=y, width=width, height=height)


def _lane_title(run: Mapping[str, Any]) -> str:
    parts = [run["run_id"], run.get("model"), run.get("outcome"), run.get("exit_status")]
    return "  ·  ".join(dict.fromkeys(clip(part, 48) for part in parts if part))
