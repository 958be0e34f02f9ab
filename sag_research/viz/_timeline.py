"""Timeline: a lane a run, entities on a shelf above, by kind, near the middle of their mentions."""

from __future__ import annotations

from bisect import insort
from collections import defaultdict
from collections.abc import Mapping
from itertools import count
from statistics import fmean
from typing import Any, Final

from sag_research._text import clip
from sag_research.viz._drawn import Drawn
from sag_research.viz._grammar import OUTCOMES
from sag_research.viz._measure import BOX_HEIGHT, text_width
from sag_research.viz._scene import Band, Node
from sag_research.viz._style import ENTITY_COLOURS

__all__ = ["place_timeline"]

WIDE: Final = 760.0
"""Short runs are spread over about this width, scene units."""
NARROWEST: Final = 32.0
WIDEST: Final = 110.0
ROW: Final = BOX_HEIGHT + 7
PAD: Final = 10.0
SHELF_GAP: Final = 30.0
"""Between the shelf's lower edge and the first lane's upper one, scene units."""
TITLE: Final = 24.0
"""Height of a band's title."""
FLAG: Final = 17.0
"""Height of the words above a mark: an alarm, a fork."""
MARK: Final = 17.0
"""From the middle of a mark to what stands above or below it."""
RISK: Final = 26.0
"""Height of the strip that shows the risk."""
CAPTION: Final = 112.0
"""Height of the slanted captions below a lane."""
LANE_GAP: Final = 12.0
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
    drawn: Drawn, nodes: Mapping[str, Node], seed: int = 0
) -> tuple[Places, list[Band]]:
    """Place the drawn nodes on lanes and a shelf.

    Returns
    -------
    places : dict of str to (float, float)
        By node key; lanes at y >= 0, the shelf at y < 0.
    bands : list of Band
        The shelf and one band a lane.
    """
    columns, spacing = _columns(drawn)
    captioned = len(drawn.runs) <= MOST_CAPTIONS
    places: Places = {}
    bands = []
    top = 0.0
    for key in drawn.runs:
        lane = drawn.lanes[drawn.graph.nodes[key]["run_id"]]
        flagged = any(nodes[mark].flags for mark in lane)
        y = top + TITLE + (FLAG if flagged else 0.0) + MARK
        places |= {mark: (columns[drawn.first(mark)["rank"]], y) for mark in lane}
        left = min((places[mark][0] for mark in lane), default=0.0) - max(spacing * 0.9, 34.0)
        places[key] = left, y
        bands.append(_lane(drawn, key, lane, places, top, captioned))
        top += bands[-1].height + LANE_GAP
    places |= _shelf(drawn, nodes, places)
    return places, [*_shelf_band(drawn, nodes, places), *bands]


def _columns(drawn: Drawn) -> tuple[dict[int, float], float]:
    """Give each rank its x: equal steps, and a wider one where the drawing skips events."""
    length = {drawn.first(mark)["rank"]: 1 for mark in drawn.marks}
    for mark, group in drawn.marks.items():
        rank = drawn.first(mark)["rank"]
        length[rank] = max(length[rank], len(group))
    ranks = sorted(length)
    spacing = min(WIDEST, max(NARROWEST, WIDE / max(len(ranks), 1)))
    columns: dict[int, float] = {}
    x, before = 0.0, None
    for rank in ranks:
        if before is not None:
            x += spacing * (1.0 if rank <= before + length[before] else 1.8)
        columns[rank], before = x, rank
    return columns, spacing


def _lane(
    drawn: Drawn, key: str, marks: list[str], places: Places, top: float, captioned: bool
) -> Band:
    run = drawn.graph.nodes[key]
    outcome = run.get("outcome")
    outcome = outcome if outcome in OUTCOMES else "unknown"
    own = [places[mark][0] for mark in marks] or [places[key][0]]
    y = places[key][1]
    risk = _risk(drawn, run["run_id"], marks, places)
    end = max(own) + 26
    label = _lane_title(run)
    word = OUTCOMES[outcome]
    left = places[key][0] - 22
    right = max(end + text_width(word) + 14, left + text_width(label) + 24)
    if captioned:
        right = max(right, max(own) + CAPTION * 0.85)
    below = MARK + (RISK if risk else 0.0) + (CAPTION if captioned else 0.0)
    return Band(
        label=label, x=round(left, 1), y=round(top, 1), width=round(right - left, 1),
        height=round(y - top + below, 1), run=run["run_id"], outcome=outcome,
        end=(round(end, 1), round(y, 1)), risk=risk, risk_y=round(y + MARK + RISK - 4, 1),
        captions=captioned,
    )  # fmt: skip


def _risk(
    drawn: Drawn, run_id: str, marks: list[str], places: Places
) -> list[tuple[float, float, float]]:
    """Cut the lane's length into one piece a mark; of a chain the highest risk is shown."""
    known = drawn.risk.get(run_id, {})
    xs = [places[mark][0] for mark in marks]
    pieces = []
    for number, mark in enumerate(marks):
        steps = (drawn.graph.nodes[event]["step"] for event in drawn.marks[mark])
        values = [known[step] for step in steps if step in known]
        if not values:
            continue
        half = NARROWEST / 2
        left = (xs[number - 1] + xs[number]) / 2 if number else xs[number] - half
        right = (xs[number] + xs[number + 1]) / 2 if number + 1 < len(xs) else xs[number] + half
        pieces.append((round(left, 1), round(right, 1), round(max(values), 4)))
    return pieces


def _lane_title(run: Mapping[str, Any]) -> str:
    parts = [run["run_id"], run.get("model"), run.get("outcome"), run.get("exit_status")]
    return "  ·  ".join(dict.fromkeys(clip(part, 48) for part in parts if part))


def _kinds(drawn: Drawn, nodes: Mapping[str, Node]) -> dict[str, list[str]]:
    """Group entities by kind; the kinds that tell most of what went wrong stand nearest."""
    order = {kind: number for number, kind in enumerate(ENTITY_COLOURS)}
    kinds: dict[str, list[str]] = defaultdict(list)
    for key in drawn.entities:
        kinds[nodes[key].kind].append(key)
    names = sorted(kinds, key=lambda kind: (order.get(kind, len(order)), kind))
    return {kind: kinds[kind] for kind in names}


def _shelf(drawn: Drawn, nodes: Mapping[str, Node], places: Places) -> Places:
    """Stack entity boxes in rows, each kind in its own, the most telling ones nearest below."""
    reach = max(SHIFT, SHIFT_SHARE * max((x for x, _ in places.values()), default=0.0))
    shelf: Places = {}
    low = SHELF_GAP + BOX_HEIGHT / 2 + PAD
    for entities in _kinds(drawn, nodes).values():
        rows: dict[int, list[tuple[float, float]]] = defaultdict(list)
        for key in entities:
            named = [places[home][0] for home in _readers(drawn, key)]
            wish, width = fmean(named) if named else 0.0, nodes[key].size + PAD
            row, x = _seat(rows, wish, width, reach)
            insort(rows[row], (x - width / 2, x + width / 2))
            shelf[key] = x, -(low + row * ROW)
        low += len(rows) * ROW
    return shelf


def _readers(drawn: Drawn, key: str) -> list[str]:
    return [drawn.home[event] for event in drawn.graph.predecessors(key) if event in drawn.home]


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


def _shelf_band(drawn: Drawn, nodes: Mapping[str, Node], places: Places) -> list[Band]:
    if not drawn.entities:
        return []
    label = "What the steps name (entities)"
    kinds = {kind: [places[key][1] for key in keys] for kind, keys in _kinds(drawn, nodes).items()}
    margin = max(text_width(kind) for kind in kinds) + 2 * PAD
    left = min(places[key][0] - nodes[key].size / 2 for key in drawn.entities) - margin
    right = max(places[key][0] + nodes[key].size / 2 for key in drawn.entities) + PAD
    right = max(right, left + text_width(label) + 20)
    top = min(places[key][1] for key in drawn.entities) - BOX_HEIGHT / 2 - TITLE - 6
    rows = [(kind, round(max(ys), 1)) for kind, ys in kinds.items()]
    return [
        Band(
            label=label, x=round(left, 1), y=round(top, 1), width=round(right - left, 1),
            height=round(-SHELF_GAP - top, 1), rows=rows,
        )
    ]  # fmt: skip
