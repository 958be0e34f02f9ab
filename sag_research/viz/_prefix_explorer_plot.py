"""The prefix tree for print."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sag_research.viz._figures import (
    BLUE,
    FONT,
    PAGE,
    PALE,
    VERMILION,
    axes_or_new,
    inches,
    styled,
)
from sag_research.viz._prefix_explorer_data import plain, token_text
from sag_research.viz._prefix_explorer_tree import Branch, Counts

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Box", "drawable", "plot_tree", "tree_boxes"]

THINNEST: Final = 1 / 250
"""Of all runs: what would be thinner is drawn together with others."""
LETTER: Final = 0.051
"""Inches that a letter of the smallest type takes."""
_MIX: Final = 0.55


class Box(NamedTuple):
    """A rectangle of the figure, in steps and runs."""

    level: int
    low: int
    counts: Counts
    text: str
    is_node: bool
    parted: int = 0


@cache
def _known() -> frozenset[int]:
    from matplotlib.font_manager import findfont, get_font

    return frozenset(get_font(findfont("DejaVu Sans")).get_charmap())


def drawable(text: str) -> str:
    r"""Replace what the figures' type cannot show.

    Examples
    --------
    >>> drawable("abc"), ascii(drawable("\U0001f4a5"))
    ('abc', "'\\ufffd'")
    """
    return "".join(c if ord(c) in _known() else "\N{REPLACEMENT CHARACTER}" for c in text)


def tree_boxes(
    branches: Sequence[Branch], names: Sequence[str], min_runs: int, depth: int
) -> list[Box]:
    """Place the branches of enough runs, what is left of each, and what ended there.

    The boxes of each level add up to those of the level before.
    """
    least = max(min_runs, round(branches[0].counts.n * THINNEST))
    below: list[list[int]] = [[] for _ in branches]
    for child, one in enumerate(branches[1:], 1):
        below[one.parent].append(child)
    boxes: list[Box] = []
    waiting = [(0, 0, 0)]
    while waiting:
        number, level, low = waiting.pop()
        one = branches[number]
        text = token_text(names[one.token]) if one.token >= 0 else "all runs"
        boxes.append(Box(level, low, one.counts, text, is_node=True, parted=one.parted))
        if level == depth:
            continue
        rest, others = one.cut, one.cut_tokens
        for child in sorted(below[number], key=lambda i: -branches[i].counts.n):
            if branches[child].counts.n >= least:
                waiting.append((child, level + 1, low))
                low += branches[child].counts.n
            else:
                rest, others = rest.plus(branches[child].counts), others + 1
        if others:
            more = f"{others:,} other{'s' if others > 1 else ''}"
            boxes.append(Box(level + 1, low, rest, more, is_node=False))
            low += rest.n
        if one.ended.n:
            boxes.append(Box(level + 1, low, one.ended, "ended", is_node=False))
    return boxes


@styled
def plot_tree(
    boxes: Sequence[Box], whole: Counts, title: str = "", first: int = 0, ax: Axes | None = None
) -> Axes:
    """Draw the boxes, a column a step, as high as the runs are many.

    Parameters
    ----------
    boxes : sequence of Box
    whole : Counts
        Of all runs; colours say how much more often runs failed than these.
    title : str
    first : int
        Step of the second column.
    ax : Axes, optional

    Returns
    -------
    Axes
    """
    from matplotlib.patches import Rectangle

    ax = axes_or_new(ax, 4.6, PAGE)
    levels, n = 1 + max(box.level for box in boxes), boxes[0].counts.n
    ax.set(xlim=(0, levels), ylim=(n, 0), yticks=[], xlabel="step", title=drawable(plain(title)))
    width, height = _size(ax)
    line = n * 1.3 * FONT / 72 / height
    letters = int((width / levels - 0.1) / LETTER)
    for box in boxes:
        look = _look(box, whole)
        ax.add_patch(Rectangle((box.level, box.low), 0.985, box.counts.n, linewidth=0.4, **look))
        if box.parted and box.counts.n >= line:
            y = box.low + min(box.counts.n / 2, line)
            ax.text(box.level + 0.97, y, f"◆{box.parted}", ha="right", va="center", clip_on=True)
        _label(ax, box, line, letters)
    ax.set_xticks([i + 0.5 for i in range(1, levels)], [str(first + i) for i in range(levels - 1)])
    ax.tick_params(length=0)
    ax.spines[["left", "bottom"]].set_visible(False)
    _legend(ax, whole, any(box.parted for box in boxes))
    return ax


def _size(ax: Axes) -> tuple[float, float]:
    """Return about how large the axes are, in inches, when the layout has made room for text."""
    figure = ax.get_figure(root=True)
    width, height = inches(ax)
    if figure is None or len(figure.axes) > 1:
        return width, height
    whole = figure.get_size_inches()
    return float(whole[0] - 0.1), max(float(whole[1] - 1.1), height / 2)


def _look(box: Box, whole: Counts) -> dict[str, Any]:
    if not box.is_node:
        return {"facecolor": "white", "edgecolor": PALE, "linestyle": (0, (2, 2))}
    if not box.counts.failed + box.counts.succeeded:
        return {"facecolor": "white", "edgecolor": "0.4", "hatch": "////"}
    return {"facecolor": _tint(box.counts, whole), "edgecolor": "white"}


def _tint(counts: Counts, whole: Counts) -> tuple[float, float, float]:
    from math import log2

    from matplotlib.colors import to_rgb

    rate = counts.failed / (counts.failed + counts.succeeded)
    base = whole.failed / (whole.failed + whole.succeeded)
    lift = log2(min(4.0, max(0.25, rate / base))) / 2 if base else 0.0
    end, even = to_rgb(VERMILION if lift > 0 else BLUE), to_rgb("#eceff2")
    share = _MIX * abs(lift)  # pale enough for black type on it
    red, green, blue = (a * share + b * (1 - share) for a, b in zip(end, even, strict=True))
    return red, green, blue


def _label(ax: Axes, box: Box, line: float, letters: int) -> None:
    counts, known = box.counts, box.counts.failed + box.counts.succeeded
    rate = f" · {counts.failed / known:.0%}" if known and box.is_node else ""
    numbers = f"{counts.n:,}{rate}"
    lines = 2 if counts.n >= 2 * line else int(counts.n >= line)
    if not lines or letters < 4:
        return
    letters -= len(str(box.parted)) + 2 if box.parted else 0
    room = letters if lines == 2 else letters - len(numbers) - 2
    name = drawable(plain(box.text, max(room, 1))) if room > 2 else ""
    text = f"{name}\n{numbers}" if lines == 2 else f"{name}  {numbers}".strip()
    colour = "black" if box.is_node else "0.35"
    ax.text(box.level + 0.04, box.low + counts.n / 2, text, va="center", color=colour, clip_on=True)


def _legend(ax: Axes, whole: Counts, parts: bool) -> None:
    from matplotlib.patches import Patch

    known = whole.failed + whole.succeeded
    handles: list[Any] = []
    if known:
        less, more = Counts(4, 0, 4), Counts(4, 4, 0)
        said = f"{whole.failed / known:.0%} of {known:,}"
        handles += [
            Patch(facecolor=_tint(less, whole), label=f"fails less often than all ({said})"),
            Patch(facecolor=_tint(more, whole), label="more often"),
        ]
    if known < whole.n:
        label = f"outcome unknown ({whole.unknown:,} of all)"
        handles.append(Patch(facecolor="white", edgecolor="0.4", hatch="////", label=label))
    if parts:
        from matplotlib.lines import Line2D

        label = "so many failed runs leave the successful ones of their task"
        handles.append(Line2D([], [], color="black", marker="D", linestyle="", label=label))
    if handles:
        ax.legend(handles=handles, loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=2)
