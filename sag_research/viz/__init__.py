"""Drawings: one scene (nodes, edges, positions) that every kind of picture draws."""

from __future__ import annotations

from sag_research.viz._page import View, inline, page
from sag_research.viz._report import report_page, report_tables
from sag_research.viz._scene import Band, Edge, Node, Scene
from sag_research.viz._stage import scene

__all__ = [
    "Band",
    "Edge",
    "Node",
    "Scene",
    "View",
    "inline",
    "page",
    "report_page",
    "report_tables",
    "scene",
]
