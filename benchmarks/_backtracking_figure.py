"""The figure of ``backtracking.py``: success by arm and monitor, and gains on going on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sag_research.viz import OKABE_ITO, PAGE, save_figure, style

ARMS: Final = ("continue", "abort", "restart", "fork", "feedback", "shuffled")
ACTING: Final = ARMS[1:]
MONITORS: Final = ("truth", "stack", "sag-rule", "random")
LOOKS: Final = tuple(zip(OKABE_ITO[:4], "os^D", strict=True))
"""Colour and mark of each monitor, in their order."""
_ROW: Final = 1.05
"""Height of a row of panels, in inches."""


class Row(NamedTuple):
    """One agent in one world, under all monitors."""

    world: str
    policy: str
    monitors: Mapping[str, Mapping[str, Any]]


def rows_of(result: Mapping[str, Any]) -> Iterator[Row]:
    """List agents by world and name; what else stands in the file is no agent."""
    for world, found in sorted(result["worlds"].items()):
        for policy, monitors in sorted(found.items()):
            if isinstance(monitors, Mapping):
                yield Row(world, policy, monitors)


def draw(result: Mapping[str, Any], path: Path) -> None:
    """Draw the file's figure into another file, as PDF, SVG or PNG; always the same bytes."""
    save_figure(figure_of(result), path)


def figure_of(result: Mapping[str, Any]) -> Figure:
    """Draw a row of panels for each agent: success under each monitor, and paired differences."""
    rows = list(rows_of(result))
    names = [name for name in MONITORS if any(name in row.monitors for row in rows)]
    with style():
        figure = Figure(figsize=(PAGE, _ROW * len(rows) + 0.7))
        widths = [1.0] * len(names) + [1.5]
        grid = figure.subplots(
            len(rows), len(names) + 1, squeeze=False, sharex="col", width_ratios=widths
        )
        for row, panels in zip(rows, grid, strict=True):
            for name, ax in zip(names, panels[:-1], strict=True):
                _rates(ax, row.monitors.get(name), *LOOKS[MONITORS.index(name)])
            _differences(panels[-1], row)
            world = row.world.removesuffix(" (local models)")  # the agent's name says it
            panels[0].set_ylabel(f"{world}\n{row.policy}")
            panels[0].set_yticks(range(len(ARMS)), ARMS)
        _titles(grid, names)
        figure.legend(*_keys(names), loc="outside lower center", ncols=len(names), title="monitor")
    return figure


def _rates(ax: Axes, found: Mapping[str, Any] | None, colour: str, mark: str) -> None:
    """Draw the success of each arm; the line across is that of going on."""
    ax.set(xlim=(-0.04, 1.04), ylim=(len(ARMS) - 0.5, -0.5), xticks=(0, 0.5, 1))
    ax.set_yticks(range(len(ARMS)), [""] * len(ARMS))
    if found is None:
        ax.text(0.5, 2.5, "not played", ha="center", va="center", color="#7c8b9a")
        return
    known = {row["arm"]: row for row in found["arms"] if row["n"]}
    for place, arm in enumerate(ARMS):
        if arm in known:
            _point(ax, known[arm], "rate", place, colour if place else "#000000", mark)
    if "continue" in known:
        ax.axvline(known["continue"]["rate"], color="#7c8b9a", linewidth=0.7, linestyle=(0, (2, 2)))
        ax.text(1.02, -0.35, f"n {known['continue']['n']}", ha="right", va="center", fontsize=6)


def _differences(ax: Axes, row: Row) -> None:
    """Draw each arm's success minus that of going on, one mark a monitor."""
    arms = [arm for arm in ACTING if any(_gain(one, arm) for one in row.monitors.values())]
    ax.axvline(0, color="#7c8b9a", linewidth=0.7)
    ax.set_ylim(len(arms) - 0.5, -0.5)
    ax.set_yticks(range(len(arms)), arms)
    for number, (name, (colour, mark)) in enumerate(zip(MONITORS, LOOKS, strict=True)):
        for place, arm in enumerate(arms):
            if gain := _gain(row.monitors.get(name, {}), arm):
                _point(ax, gain, "difference", place + 0.2 * (number - 1.5), colour, mark)


def _gain(found: Mapping[str, Any], arm: str) -> Mapping[str, Any] | None:
    gain: Mapping[str, Any] | None = found.get("paired", {}).get(f"{arm} - continue")
    return gain if gain and gain["n"] else None


def _point(ax: Axes, row: Mapping[str, Any], of: str, place: float, colour: str, mark: str) -> None:
    ax.plot([row["low"], row["high"]], [place, place], color=colour, linewidth=1)
    ax.plot([row[of]], [place], color=colour, marker=mark)


def _titles(grid: Any, names: Sequence[str]) -> None:
    for name, ax, last in zip([*names, ""], grid[0], grid[-1], strict=True):
        ax.set_title(f"monitor: {name}" if name else "paired difference")
        last.set_xlabel("success" if name else "success − continue")


def _keys(names: Sequence[str]) -> tuple[list[Any], list[str]]:
    from matplotlib.lines import Line2D

    looks = dict(zip(MONITORS, LOOKS, strict=True))
    lines = [Line2D([], [], color=looks[name][0], marker=looks[name][1]) for name in names]
    return lines, list(names)
