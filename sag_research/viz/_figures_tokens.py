"""Figures about what runs do: the paths they share, and which step goes with failure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sag_research.errors import NotEnoughDataError, UsageError
from sag_research.viz._figures import (
    BLUE,
    FONT,
    PAGE,
    PALE,
    VERMILION,
    Floats,
    axes_or_new,
    column,
    inches,
    styled,
    token_label,
    whole_numbers,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import LinearSegmentedColormap, Normalize

__all__ = ["plot_lift", "plot_prefix_sankey"]

WIDEST: Final = 4.0
"""Lifts are drawn between 1 / WIDEST and WIDEST; stronger ones have the colour of the end."""
NODE: Final = 0.16
"""Width of a node, where columns stand 1 apart."""


@dataclass(slots=True)
class _Node:
    """The runs that begin with the same tokens."""

    runs: NDArray[np.int64]
    failed: int
    depth: int
    code: int = -1
    children: list[_Node] = field(default_factory=list)
    bottom: float = 0.0

    @property
    def n(self) -> int:
        return len(self.runs)

    @property
    def rest(self) -> int:
        """Runs that end here, or go on with too few others."""
        return self.n - sum(child.n for child in self.children)


@styled
def plot_prefix_sankey(
    sequences: Sequence[NDArray[Any]],
    failed: ArrayLike,
    names: Sequence[str],
    *,
    depth: int = 6,
    min_runs: int = 10,
    title: str = "",
    ax: Axes | None = None,
) -> Axes:
    """Draw the beginnings that runs share, as bands as wide as the runs are many.

    Every node is one exact prefix, not one token: two nodes of the same token were reached on
    different ways. Its colour says how much more often its runs failed than all runs did.

    Parameters
    ----------
    sequences : sequence of int arrays
        Each run's tokens, codes into `names`; ``prefixes.sequences()``.
    failed : array-like, shape (n_runs,)
        1 for failure, 0 for success; runs of unknown outcome (NaN) are left out.
    names : sequence of str
        The tokens; ``prefixes.table.names``.
    depth : int
        Number of steps drawn.
    min_runs : int
        Prefixes of fewer runs are not drawn; their runs stay as white space beside the bands.
    title : str
    ax : Axes, optional
        Default: new axes, two columns wide, and as high as the labels need. In axes that are
        too small for a label of readable size the label is left out.

    Returns
    -------
    Axes
        Each node is labelled with its token, its number of runs and the share that failed.

    Raises
    ------
    NotEnoughDataError
        If there are fewer than `min_runs` runs of known outcome, or none of them failed.
    """
    outcome = column(failed, "failed", len(sequences))
    known = np.flatnonzero(np.isfinite(outcome))
    total = int(outcome[known].sum())
    if len(known) < max(min_runs, 1) or not total:
        raise NotEnoughDataError(
            "no paths to draw", why=f"{len(known)} runs of known outcome, {total} failed",
            fix=f"at least {max(min_runs, 1)} runs are needed, and a failure among them",
        )  # fmt: skip
    root = _grow(sequences, outcome, known, depth, min_runs)
    columns = _columns(root)
    gap = 0.035 * root.n
    for nodes in columns:  # each column is centred beside the one before
        bottom = -(sum(node.n for node in nodes) + gap * (len(nodes) - 1)) / 2
        for node in nodes:
            node.bottom = bottom
            bottom += node.n + gap
    crowd = max(len(nodes) for nodes in columns)
    ax = axes_or_new(ax, min(9.0, max(2.6, 0.36 * crowd + 0.6)), PAGE)
    colours, scale = _lift_colours()
    base = total / len(known)
    for node in (node for nodes in columns for node in nodes):
        _draw_node(ax, node, colours(scale(_lift(node.failed, node.n, base))))
        _draw_bands(ax, node, colours, scale, base)
    _finish(ax, columns, title)
    _label_nodes(ax, columns, names)
    _lift_bar(ax, colours, scale, base, root.n)
    return ax


def _grow(
    sequences: Sequence[NDArray[Any]],
    failed: Floats,
    runs: NDArray[np.int64],
    depth: int,
    least: int,
) -> _Node:
    root = _Node(runs, int(failed[runs].sum()), 0)
    level = [root]
    for seen in range(depth):
        for node in level:
            groups: dict[int, list[int]] = defaultdict(list)
            for run in node.runs:
                if len(sequences[run]) > seen:
                    groups[int(sequences[run][seen])].append(int(run))
            for code, members in sorted(groups.items(), key=lambda item: (-len(item[1]), item[0])):
                if len(members) >= least:
                    chosen = np.array(members, dtype=np.int64)
                    node.children.append(_Node(chosen, int(failed[chosen].sum()), seen + 1, code))
        level = [child for node in level for child in node.children]
    return root


def _columns(root: _Node) -> list[list[_Node]]:
    columns = [[root]]
    while below := [child for node in columns[-1] for child in node.children]:
        columns.append(below)
    return columns


def _lift(failed: int, n: int, base: float) -> float:
    return float(np.clip(failed / n / base, 1 / WIDEST, WIDEST))


def _lift_colours() -> tuple[LinearSegmentedColormap, Normalize]:
    from matplotlib.colors import LinearSegmentedColormap, LogNorm

    colours = LinearSegmentedColormap.from_list("lift", [BLUE, "#f2f2f2", VERMILION])
    return colours, LogNorm(1 / WIDEST, WIDEST)


def _draw_node(ax: Axes, node: _Node, colour: Any) -> None:
    from matplotlib.patches import Rectangle

    corner = (node.depth, node.bottom)
    ax.add_patch(
        Rectangle(corner, NODE, node.n, facecolor=colour, edgecolor="black", linewidth=0.4)
    )


def _draw_bands(ax: Axes, node: _Node, colours: Any, scale: Any, base: float) -> None:
    """Draw a band to each child, stacked from below in the children's order."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path as Outline

    left, right, start = node.depth + NODE, node.depth + 1, node.bottom
    middle = (left + right) / 2
    codes = [Outline.MOVETO, *[Outline.CURVE4] * 3, Outline.LINETO, *[Outline.CURVE4] * 3]
    for child in node.children:
        a, b, c, d = start, start + child.n, child.bottom + child.n, child.bottom
        corners = [(left, a), (middle, a), (middle, d), (right, d),
                   (right, c), (middle, c), (middle, b), (left, b)]  # fmt: skip
        colour = colours(scale(_lift(child.failed, child.n, base)))
        ax.add_patch(PathPatch(Outline(corners, codes), facecolor=colour, alpha=0.6, linewidth=0))
        start += child.n
    if node.rest and node.children:
        edge = [(left, start), (left + 0.12, start + node.rest / 2), (left, start + node.rest)]
        ax.add_patch(PathPatch(Outline(edge), facecolor=PALE, linewidth=0))


def _finish(ax: Axes, columns: list[list[_Node]], title: str) -> None:
    nodes = [node for column_ in columns for node in column_]
    low, high = min(n.bottom for n in nodes), max(n.bottom + n.n for n in nodes)
    pad = 0.03 * (high - low)
    ax.set(xlim=(-0.05, len(columns) + 0.05), ylim=(low - pad, high + pad), yticks=[], title=title)
    steps = range(1, len(columns))
    ax.set_xticks([step + NODE / 2 for step in steps], [str(step - 1) for step in steps])
    ax.set_xlabel("step")
    ax.spines[["left", "bottom"]].set_visible(False)
    ax.tick_params(length=0)


def _label_nodes(ax: Axes, columns: list[list[_Node]], names: Sequence[str]) -> None:
    """Write into each band what its node is, where there is room for readable type."""
    width, height = inches(ax)
    low, high = ax.get_ylim()
    line = (high - low) / (72 * height) * 1.15 * FONT
    # a letter takes about a twentieth of an inch
    letters = int(width / (len(columns) + 0.1) * (1 - NODE) / 0.05)
    for nodes in columns:
        middles = np.array([node.bottom + node.n / 2 for node in nodes])
        gaps = np.concatenate([[np.inf], np.diff(middles), [np.inf]]) / line
        for node, y, room in zip(nodes, middles, np.minimum(gaps[1:], gaps[:-1]), strict=True):
            lines = 2 if room >= 1.75 else int(min(room, 1))
            if lines:
                ax.text(node.depth + NODE + 0.04, y, _node_label(node, names, letters, lines),
                        va="center", clip_on=True)  # fmt: skip


def _node_label(node: _Node, names: Sequence[str], letters: int, lines: int) -> str:
    numbers = f"{node.n:,} · {node.failed / node.n:.0%}"
    left = letters if lines == 2 else letters - len(numbers) - 1
    what = token_label(names[node.code], max(left, 3)) if node.code >= 0 else "all runs"
    return f"{what}\n{numbers}" if lines == 2 else f"{what} {numbers}"


def _lift_bar(ax: Axes, colours: Any, scale: Any, base: float, n: int) -> None:
    from matplotlib.cm import ScalarMappable

    figure = ax.get_figure(root=True)
    if figure is None:
        return
    mappable = ScalarMappable(scale, colours)
    bar = figure.colorbar(mappable, ax=ax, fraction=0.04, pad=0.02, aspect=30)
    ticks = [0.25, 0.5, 1, 2, 4]
    bar.set_ticks(ticks, labels=["≤ ¼", "½", "1", "2", "≥ 4"])
    bar.ax.minorticks_off()
    bar.outline.set_linewidth(0.4)
    bar.set_label(f"failure lift (1 = {base:.0%} of {n:,})")


@styled
def plot_lift(
    sequences: Sequence[NDArray[Any]],
    failed: ArrayLike,
    names: Sequence[str],
    *,
    steps: int = 20,
    tokens: int = 15,
    min_runs: int = 10,
    title: str = "",
    ax: Axes | None = None,
) -> Axes:
    """Draw how much more often runs failed that did this at that step, among those still alive.

    Parameters
    ----------
    sequences, failed, names
        As for :func:`plot_prefix_sankey`.
    steps : int
        Number of steps drawn.
    tokens : int
        Number of tokens drawn, those that most runs have.
    min_runs : int
        A cell of fewer runs stays empty.
    title : str
    ax : Axes, optional
        Default: new axes, one column wide.

    Returns
    -------
    Axes
        Colour is P(failure | token at the step) / P(failure | alive at the step): the step itself,
        and with it the run's length, is divided out.

    Raises
    ------
    NotEnoughDataError
        If no cell has `min_runs` runs, or no run failed.
    """
    outcome = column(failed, "failed", len(sequences))
    if steps < 1 or tokens < 1:
        raise UsageError("nothing to draw", fix="ask for at least one step and one token")
    n, bad = _cells(sequences, outcome, len(names), steps)
    alive, failures = n.sum(axis=0), bad.sum(axis=0)
    enough = (n >= max(min_runs, 1)) & (failures > 0)
    if not enough.any():
        raise NotEnoughDataError(
            "no cell to draw", why=f"none has {min_runs} runs of known outcome, and failures",
            fix="lower min_runs, or take coarser tokens",
        )  # fmt: skip
    rows = np.argsort(-n.sum(axis=1), kind="stable")[:tokens]
    rows = rows[enough[rows].any(axis=1)]
    lift = np.full(n.shape, np.nan)
    np.divide(bad * alive, n * failures, out=lift, where=enough)
    ax = axes_or_new(ax, 0.75 + 0.15 * len(rows))
    colours, scale = _lift_colours()
    ax.imshow(np.clip(lift[rows], 1 / WIDEST, WIDEST), cmap=colours, norm=scale, aspect="auto",
              interpolation="nearest")  # fmt: skip
    ax.set_yticks(range(len(rows)), [token_label(names[row]) for row in rows])
    ax.set(xlabel="step", title=title)
    whole_numbers(ax)
    known = int(np.isfinite(outcome).sum())
    _lift_bar(ax, colours, scale, float(np.nansum(outcome)) / known, known)
    return ax


def _cells(
    sequences: Sequence[NDArray[Any]], failed: Floats, n_tokens: int, steps: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Count runs, and failed runs, by token and step; shapes (n_tokens, steps)."""
    n = np.zeros((n_tokens, steps), dtype=np.int64)
    bad = np.zeros_like(n)
    for codes, outcome in zip(sequences, failed, strict=True):
        if np.isfinite(outcome):
            head = np.asarray(codes[:steps], dtype=np.int64)
            n[head, np.arange(len(head))] += 1
            bad[head, np.arange(len(head))] += int(outcome)
    return n, bad
