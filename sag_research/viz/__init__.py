"""Drawings: one scene (nodes, edges, positions) that every kind of picture draws."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sag_research.viz._batch import Batch, progress_view, start_batch, start_experiment
from sag_research.viz._figures import COLUMN, OKABE_ITO, PAGE, save_figure, style
from sag_research.viz._figures_backtest import (
    BACKTEST_FIGURES,
    plot_backtest,
    plot_backtest_leakage,
)
from sag_research.viz._figures_decision import (
    plot_cost_saved,
    plot_decision_curve,
    plot_incidence,
)
from sag_research.viz._figures_risk import (
    plot_auroc_by_step,
    plot_leakage,
    plot_reliability,
    plot_risk,
)
from sag_research.viz._figures_tokens import plot_lift, plot_prefix_sankey
from sag_research.viz._overview import Overview, overview
from sag_research.viz._page import View, inline, page, scene_data
from sag_research.viz._patch import scene_patch
from sag_research.viz._report import report_page, report_tables
from sag_research.viz._report_deadend import (
    DeadEndReport,
    alarm_steps,
    deadend_report,
    plot_where,
    where_line,
    where_values,
)
from sag_research.viz._scene import Band, Edge, Node, Scene
from sag_research.viz._stage import scene
from sag_research.viz._stop import UnderWay, stop_button, token_view

if TYPE_CHECKING:
    from sag_research.viz._bloom3d import Bloom3D
    from sag_research.viz._bloom_view import BloomView
    from sag_research.viz._explorer import Explorer
    from sag_research.viz._lineage_tree import LineageTree
    from sag_research.viz._prefix_explorer import PrefixExplorer
    from sag_research.viz._watching import Watching

__all__ = [  # noqa: RUF022
    # graphs
    "Band",
    "Edge",
    "Node",
    "Overview",
    "Scene",
    "View",
    "inline",
    "overview",
    "page",
    "scene",
    "scene_data",
    "scene_patch",
    # alive, in a notebook
    "Bloom3D",
    "BloomView",
    "Explorer",
    "LineageTree",
    "PrefixExplorer",
    "Watching",
    # what is under way
    "Batch",
    "UnderWay",
    "progress_view",
    "start_batch",
    "start_experiment",
    "stop_button",
    "token_view",
    # reports
    "DeadEndReport",
    "alarm_steps",
    "deadend_report",
    "report_page",
    "report_tables",
    "where_line",
    "where_values",
    # figures for papers
    "BACKTEST_FIGURES",
    "COLUMN",
    "OKABE_ITO",
    "PAGE",
    "plot_auroc_by_step",
    "plot_backtest",
    "plot_backtest_leakage",
    "plot_cost_saved",
    "plot_decision_curve",
    "plot_incidence",
    "plot_leakage",
    "plot_lift",
    "plot_prefix_sankey",
    "plot_reliability",
    "plot_risk",
    "plot_where",
    "save_figure",
    "style",
]

_WIDGETS = {
    "Bloom3D": "_bloom3d",
    "BloomView": "_bloom_view",
    "Explorer": "_explorer",
    "LineageTree": "_lineage_tree",
    "PrefixExplorer": "_prefix_explorer",
    "Watching": "_watching",
}
"""Names by module that are imported when first used: widgets take their time."""


def __getattr__(name: str) -> Any:
    if name in _WIDGETS:
        value = getattr(import_module(f"{__name__}.{_WIDGETS[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
