"""The tree of forks for print."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from sag_research.viz._figures import FAILURE, FONT, GREY, PAGE, PALE, SUCCESS, axes_or_new, styled
from sag_research.viz._prefix_explorer_data import plain
from sag_research.viz._prefix_explorer_plot import LETTER, drawable

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_lineage_tree"]

COLOURS: Final = {"success": SUCCESS, "failure": FAILURE, "unknown": GREY}
ROW: Final = 0.24
"""Inches of a row."""
MOST: Final = 120
"""Rows of a figure; what stands below them is said in its title."""


@styled
def plot_lineage_tree(data: Mapping[str, Any], title: str, ax: Axes | None = None) -> Axes:
    """Draw a row a run over its steps, with what was changed beside it.

    Parameters
    ----------
    data : mapping
        Columns of :func:`lineage_data`.
    title : str
    ax : Axes, optional
        Default: new axes, two columns wide.

    Returns
    -------
    Axes
        x is the step; the first 120 rows are drawn.
    """
    n, total = min(len(data["id"]), MOST), len(data["id"])
    ax = axes_or_new(ax, 0.8 + ROW * n, PAGE)
    longest = max(1, *(a + b for a, b in zip(data["inherited"], data["steps"], strict=True)))
    names = 1.15 * longest  # the names take as much room as the lanes
    per_inch = (names + 1.25 * longest) / PAGE
    for row in range(n):
        _draw(ax, data, row, -names, per_inch)
    more = f" (the first {n} of {total:,} rows)" if n < total else ""
    ax.set(xlim=(-names, 1.25 * longest), ylim=(n - 0.4, -0.6), yticks=[], xlabel="step",
           title=drawable(plain(title + more)))  # fmt: skip
    ax.set_xticks([tick for tick in ax.get_xticks() if 0 <= tick <= longest])
    ax.spines["left"].set_visible(False)
    _legend(ax, data)
    return ax


def _draw(ax: Axes, data: Mapping[str, Any], row: int, left: float, per_inch: float) -> None:
    others, parent = data["others"][row], data["parent"][row]
    indent = left + 0.12 * per_inch * min(data["depth"][row], 10)
    room = int(-indent / per_inch / LETTER) - 2
    if others:
        n, failed, succeeded, unknown = data["counts"][row]
        text = f"{others:,} other forks with {n:,} runs: {failed} ✘, {succeeded} ✔, {unknown} ?"
        ax.text(indent, row, drawable(text), va="center", color="0.35")
        return
    start = data["inherited"][row]
    end = start + data["steps"][row]
    if parent >= 0:
        ax.plot([start, start], [parent, row], color=PALE, linewidth=0.8, zorder=0)
        ax.plot([0, start], [row, row], color=PALE, linewidth=1, linestyle=(0, (1, 2)))
    colour = COLOURS[data["outcome"][row]]
    ends = [start, max(end, start + 0.1)]
    ax.plot(ends, [row, row], color=colour, linewidth=3, solid_capstyle="butt")
    if data["left"][row]:
        ax.plot(ends[1:], [row], color="black", marker="|", markersize=7, markeredgewidth=1.5)
    sign = {"success": "✔", "failure": "✘", "unknown": "?"}[data["outcome"][row]]
    ax.text(end, row, f"  {sign}{' abandoned' if data['left'][row] else ''}", va="center")
    weight = "bold" if row == data["asked"] else "normal"
    name = drawable(plain(data["id"][row], max(room, 4)))
    lines: dict[str, Any] = {"va": "center", "fontsize": FONT}
    ax.text(indent, row - 0.2 if data["words"][row] else row, name, fontweight=weight, **lines)
    if data["words"][row]:
        words = drawable(plain(data["words"][row], max(room, 4)))
        ax.text(indent, row + 0.25, words, color="0.35", **lines)


def _legend(ax: Axes, data: Mapping[str, Any]) -> None:
    from matplotlib.lines import Line2D

    n, failed, succeeded, unknown = (sum(column) for column in zip(*data["counts"], strict=True))
    counted = {"success": succeeded, "failure": failed, "unknown": unknown}
    handles = [
        Line2D([], [], color=COLOURS[name], linewidth=3, label=f"{name} ({count:,} of {n:,} runs)")
        for name, count in counted.items()
    ]
    if any(data["left"]):
        bar: dict[str, Any] = {
            "color": "black",
            "marker": "|",
            "markersize": 7,
            "markeredgewidth": 1.5,
        }
        handles.append(Line2D([], [], linestyle="", label="abandoned here", **bar))
    # so many inches below the axes, however high they are
    figure = ax.get_figure(root=True)
    down = -0.45 / (4.0 if figure is None else float(figure.get_size_inches()[1]))
    ax.legend(handles=handles, loc="upper right", bbox_to_anchor=(1, down), ncols=4)
