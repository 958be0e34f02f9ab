"""A scene as a figure for print: the same marks, colours and words as on a screen, no browser."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from functools import cache
from io import BytesIO
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sag_research._text import atomic_write, clip, visible
from sag_research.errors import UsageError
from sag_research.viz._figures import METADATA, style
from sag_research.viz._grammar import OUTCOMES
from sag_research.viz._measure import BOX_HEIGHT, text_width
from sag_research.viz._scene import Band, Edge, Node, Scene
from sag_research.viz._style import (
    ENTITY_COLOURS,
    FONT_SIZE,
    LINKS,
    MARKS,
    TONES,
    UNKNOWN,
    hidden_edges,
    legend,
    tint,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw_scene", "save_scene"]

INCH: Final = 100.0
"""Scene units an inch, where the picture is not too large for that."""
LONGEST: Final = 50.0
"""Inches; a longer picture is made smaller."""
MARGIN: Final = 14.0
INK, FAINT, BAND, BAND_LINE = "#1c2329", "#55626e", "#f4f6f8", "#dde3e8"
LINES: Final = {"ok": "#004d7a", "error": "#7a3500", "empty": "#55626e", "unknown": "#7c8b9a"}
ENDS: Final = {"success": "#006b4e", "failure": "#9c3d00", "unknown": "#55626e"}
ALARM, PARTING, RISK = "#9c1f4f", "#005a8c", "#882255"
RISK_HEIGHT: Final = 20.0
FLAGS: Final = {"alarm": "alarm", "fork-point": "fork"}

Points = list[tuple[float, float]]


def save_scene(scene: Scene, path: str | os.PathLike[str], suffix: str, dpi: int = 200) -> Path:
    """Write a scene as PNG, SVG or PDF; the same scene gives the same bytes.

    Raises
    ------
    UsageError
        The name does not end in `suffix`.
    """
    target = Path(path)
    if target.suffix.lower() != suffix:
        name = clip(visible(target.name), 60)
        raise UsageError(f"{name!r} does not end in {suffix}", fix=f"end the name in {suffix}")
    buffer = BytesIO()
    with style():
        draw_scene(scene).savefig(buffer, format=suffix[1:], metadata=METADATA[suffix], dpi=dpi)
    with atomic_write(target) as file:
        file.write(buffer.getvalue())
    return target


def draw_scene(scene: Scene) -> Figure:
    """Draw a scene into a matplotlib figure of its own."""
    from matplotlib.figure import Figure

    items = _legend_items(scene)
    left, top, right, bottom = _bounds(scene)
    right = max(right, left + 420.0)
    rows = _flow(items, right - left)
    head, foot = 44.0, 22.0 * (1 + max((row for _, row, _ in rows), default=0)) + 12
    width, height = right - left + 2 * MARGIN, bottom - top + 2 * MARGIN + head + foot
    unit = min(1 / INCH, LONGEST / width, LONGEST / height)
    with style():
        figure = Figure(figsize=(width * unit, height * unit))
        figure.set_layout_engine("none")
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set_xlim(left - MARGIN, right + MARGIN)
        axes.set_ylim(bottom + MARGIN + foot, top - MARGIN - head)
        axes.set_axis_off()
        pen = _Pen(axes, unit * 72)
        _draw_bands(pen, scene.bands)
        _draw_edges(pen, scene)
        for node in scene.nodes:
            _draw_node(pen, node)
        _draw_words(pen, scene)
        pen.text(left, top - head + 8, scene.title, 15, INK, weight="bold")
        pen.text(left, top - head + 27, " · ".join(scene.notes), 11, FAINT)
        for item, row, x in rows:
            _draw_item(pen, item, left + x, bottom + MARGIN + 16 + 22 * row)
    return figure


class _Pen:
    """Draws in scene units."""

    def __init__(self, axes: Axes, point: float) -> None:
        self.axes, self.point = axes, point
        self._layers = count(1)  # what is drawn later lies above

    def text(self, x: float, y: float, text: str, size: float, colour: str, **looks: Any) -> None:
        options: dict[str, Any] = {"ha": "left", "va": "center"} | looks
        if said := _drawable(visible(text)):
            options |= {
                "fontsize": size * self.point,
                "color": colour,
                "zorder": next(self._layers),
            }
            self.axes.text(x, y, said, **options)

    def polygon(self, points: Points, fill: str, line: str, width: float = 1.4) -> None:
        from matplotlib.patches import Polygon

        looks: dict[str, Any] = {"facecolor": fill, "edgecolor": line, "joinstyle": "round"}
        looks |= {"linewidth": width * self.point, "zorder": next(self._layers)}
        self.axes.add_patch(Polygon(points, closed=True, **looks))

    def box(self, x: float, y: float, width: float, height: float, fill: str, line: str,
            corner: float = 4.0) -> None:  # fmt: skip
        from matplotlib.patches import FancyBboxPatch

        looks: dict[str, Any] = {"facecolor": fill, "edgecolor": line}
        looks |= {"linewidth": 1.2 * self.point, "zorder": next(self._layers)}
        corners = f"round,pad=0,rounding_size={corner}"
        self.axes.add_patch(FancyBboxPatch((x, y), width, height, boxstyle=corners, **looks))

    def line(self, points: Points, colour: str, width: float = 1.0, dashes: bool = False) -> None:
        xs, ys = zip(*points, strict=True)
        looks: dict[str, Any] = {"linestyle": (0, (4, 3)) if dashes else "-"}
        looks |= {"linewidth": width * self.point, "zorder": next(self._layers)}
        self.axes.plot(xs, ys, color=colour, solid_capstyle="butt", **looks)


@cache
def _known_glyphs() -> frozenset[int]:
    from matplotlib.font_manager import findfont, get_font

    return frozenset(get_font(findfont("DejaVu Sans")).get_charmap())


def _drawable(text: str) -> str:
    """Replace what the font of figures cannot draw, which would print a warning each time."""
    known = _known_glyphs()
    return "".join(c if ord(c) in known else "\N{WHITE SQUARE}" for c in clip(text, 300))


def _bounds(scene: Scene) -> tuple[float, float, float, float]:
    sides = [(b.x, b.y, b.x + b.width, b.y + b.height) for b in scene.bands]
    for node in scene.nodes:
        half = node.size * 1.4 if node.kind in MARKS else node.size / 2
        high = node.size * 1.4 if node.kind in MARKS else BOX_HEIGHT * node.scale / 2
        sides.append((node.x - half, node.y - high, node.x + half, node.y + high))
    if not sides:
        return 0.0, 0.0, 1.0, 1.0
    lefts, tops, rights, bottoms = zip(*sides, strict=True)
    return min(lefts), min(tops), max(rights), max(bottoms)


def _star(x: float, y: float, radius: float, corners: int, inner: float = 1.0) -> Points:
    """Give a polygon with one corner upwards; with ``inner`` < 1 a star."""
    count = corners if inner == 1.0 else 2 * corners
    points = []
    for number in range(count):
        angle = 2 * math.pi * number / count - math.pi / 2
        r = radius * (inner if number % 2 and inner != 1.0 else 1.0)
        points.append((x + r * math.cos(angle), y + r * math.sin(angle)))
    return points


def _outline(mark: str, x: float, y: float, r: float) -> Points:
    if mark == "look":
        return _star(x, y, r * 0.95, 48)
    if mark == "search":
        return _star(x, y, r * 1.22, 4)
    if mark == "edit":
        a = r * 0.86
        return [(x - a, y - a), (x + a, y - a), (x + a, y + a), (x - a, y + a)]
    if mark == "test":
        return _star(x, y + r * 0.22, r * 1.32, 3)
    if mark == "submit":
        return _star(x, y, r * 1.4, 5, 0.6)
    return [(x + dy, y + dx) for dx, dy in _star(0, 0, r * 1.04, 6)]  # lies on a side


def _draw_mark(pen: _Pen, mark: str, tone: str, x: float, y: float, r: float) -> str:
    fill, ink = TONES.get(tone, TONES["unknown"])
    line = LINES.get(tone, LINES["unknown"])
    pen.polygon(_outline(mark, x, y, r), fill, line, 2.2 if tone == "error" else 1.3)
    return ink


def _draw_run(pen: _Pen, x: float, y: float) -> None:
    pen.box(x - 14, y - 11, 28, 22, "#26323d", "#26323d", 6)
    pen.polygon([(x - 4, y - 6), (x + 7, y), (x - 4, y + 6)], "#ffffff", "#ffffff", 0.1)


def _draw_node(pen: _Pen, node: Node) -> None:
    if node.kind == "Run":
        _draw_run(pen, node.x, node.y)
    elif node.kind == "Event":
        pen.polygon(_star(node.x, node.y, node.size, 24), "#7c8b9a", "#7c8b9a", 0.1)
    elif node.kind in MARKS:
        if node.kind == "Chain":
            _draw_mark(pen, node.mark, node.tone, node.x + 3.5, node.y - 3.5, node.size)
        ink = _draw_mark(pen, node.mark, node.tone, node.x, node.y, node.size)
        low = 3.5 if node.mark == "test" else 0.5
        size = 9.5 if len(node.label) > 2 else 11
        pen.text(node.x, node.y + low, node.label, size, ink, ha="center")
    else:
        line, high = ENTITY_COLOURS.get(node.kind, UNKNOWN), BOX_HEIGHT * node.scale
        pen.box(node.x - node.size / 2, node.y - high / 2, node.size, high, tint(line), line)
        pen.text(node.x, node.y, node.label, FONT_SIZE * node.scale, INK, ha="center")


def _draw_bands(pen: _Pen, bands: Iterable[Band]) -> None:
    for band in bands:
        pen.box(band.x, band.y, band.width, band.height, BAND, BAND_LINE, 8)
        for left, right, value in band.risk:
            high = max(value * RISK_HEIGHT, 0.8)
            corners = [(left + 0.5, band.risk_y), (right - 0.5, band.risk_y)]
            points = [*corners, *((x, band.risk_y - high) for x, _ in corners[::-1])]
            pen.polygon(points, tint(RISK, 0.3 + 0.7 * value), "none", 0)
        if band.risk:
            pen.text(band.x + 8, band.risk_y - 4, "risk", 11, FAINT)
        for kind, y in band.rows:
            pen.text(band.x + 10, y, kind, 11, FAINT)


def _draw_edges(pen: _Pen, scene: Scene) -> None:
    places = {node.id: (node.x, node.y) for node in scene.nodes}
    for edge, hidden in zip(scene.edges, hidden_edges(scene), strict=True):
        if hidden:
            continue
        link = LINKS.get(edge.kind, LINKS[""])
        points = _curve(edge, places) if scene.layout == "timeline" else [
            places[edge.source], places[edge.target]
        ]  # fmt: skip
        pen.line(points, link.colour, link.width * 0.8, link.dashes)


def _curve(edge: Edge, places: dict[str, tuple[float, float]]) -> Points:
    """Let a fork leave its parent's lane downwards and come to its own from above."""
    (x0, y0), (x1, y1) = places[edge.source], places[edge.target]
    if y0 == y1:
        return [(x0, y0), (x1, y1)]
    middle = (y0 + y1) / 2
    return [
        (
            (1 - t) ** 3 * x0 + 3 * (1 - t) ** 2 * t * x0 + 3 * (1 - t) * t**2 * x1 + t**3 * x1,
            (1 - t) ** 3 * y0 + 3 * (1 - t) ** 2 * t * middle + 3 * (1 - t) * t**2 * middle
            + t**3 * y1,
        )
        for t in (step / 24 for step in range(25))
    ]  # fmt: skip


def _draw_words(pen: _Pen, scene: Scene) -> None:
    """Write titles, ends, flags and captions, above all lines."""
    bands = {band.run: band for band in scene.bands if band.run}
    for band in scene.bands:
        pen.text(band.x + 10, band.y + 13, band.label, 12, INK, weight="bold")
        if band.outcome:
            says, colour = OUTCOMES.get(band.outcome, ""), ENDS.get(band.outcome, FAINT)
            pen.text(*band.end, says, 13, colour, weight="bold")
    for node in scene.nodes:
        if node.kind not in MARKS:
            continue
        band_or_none = bands.get(node.detail.get("run", ""))
        if node.flags:
            words = " · ".join(FLAGS.get(flag, flag) for flag in node.flags)
            colour = ALARM if "alarm" in node.flags else PARTING
            if "alarm" in node.flags and band_or_none is not None:
                low = band_or_none.risk_y if band_or_none.risk else node.y + 20
                pen.line([(node.x, node.y + 15), (node.x, low)], ALARM, 1.6, dashes=True)
            pen.text(node.x, node.y - 24, words, 11, colour, weight="bold", ha="center")
        if band_or_none is not None and band_or_none.captions and node.caption:
            low = band_or_none.risk_y + 8 if band_or_none.risk else node.y + 20
            pen.text(node.x - 2, low, node.caption, 11, FAINT, rotation=-50, va="top",
                     rotation_mode="anchor")  # fmt: skip


Item = tuple[str, str, str]


def _legend_items(scene: Scene) -> list[Item]:
    """List sort, name and words of what the picture's signs mean."""
    told = legend(scene.nodes, {edge.kind for edge in scene.edges})
    drawn = {
        edge.kind if edge.kind in LINKS else ""
        for edge, hidden in zip(scene.edges, hidden_edges(scene), strict=True)
        if not hidden
    }
    items = [("mark", one["mark"], one["text"]) for one in told["marks"]]
    items += [("tone", one["tone"], one["text"]) for one in told["tones"]]
    items += [("link", one["kind"], one["text"]) for one in told["links"] if one["kind"] in drawn]
    if any(band.risk for band in scene.bands):
        items.append(("risk", "", "risk that the run is lost"))
    items += [("entity", one["kind"], one["text"]) for one in told["entities"]]
    return items


def _flow(items: list[Item], width: float) -> list[tuple[Item, int, float]]:
    """Give each item its row and its place in it."""
    placed, row, x = [], 0, 0.0
    for item in items:
        need = text_width(item[2]) + 34
        if x and x + need > width:
            row, x = row + 1, 0.0
        placed.append((item, row, x))
        x += need
    return placed


def _draw_item(pen: _Pen, item: Item, x: float, y: float) -> None:
    sort, name, words = item
    if sort == "mark":
        _draw_mark(pen, name, "unknown", x + 9, y, 7)
    elif sort == "tone":
        _draw_mark(pen, "look", name, x + 9, y, 7)
    elif sort == "link":
        link = LINKS[name]
        pen.line([(x, y), (x + 18, y)], link.colour, link.width, link.dashes)
    elif sort == "risk":
        for number, high in enumerate((4.0, 8.0, 13.0)):
            at = x + 1 + 6 * number
            points = [(at, y + 7), (at + 5, y + 7), (at + 5, y + 7 - high), (at, y + 7 - high)]
            pen.polygon(points, RISK, "none", 0)
    else:
        line = ENTITY_COLOURS.get(name, UNKNOWN)
        pen.box(x + 1, y - 5, 16, 10, tint(line, 0.3), line, 3)
    pen.text(x + 23, y, words, 12, INK)
