"""Drawings: one scene (nodes, edges, positions) that every kind of picture draws."""

from __future__ import annotations

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
from sag_research.viz._page import View, inline, page
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

__all__ = [  # noqa: RUF022
    # graphs
    "Band",
    "Edge",
    "Node",
    "Scene",
    "View",
    "inline",
    "page",
    "scene",
    # what is under way
    "UnderWay",
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
