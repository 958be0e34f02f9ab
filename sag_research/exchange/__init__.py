"""Exports for other programs (process mining, XES, CSV, Cypher), and other workspaces merged."""

from __future__ import annotations

from sag_research.exchange._csv import export_csv
from sag_research.exchange._cypher import CypherReport, export_cypher
from sag_research.exchange._merge import Disagreement, MergeReport, merge
from sag_research.exchange._traces import ExportReport, Queryable, Trace, traces
from sag_research.exchange._xes import export_xes

__all__ = [
    "CypherReport",
    "Disagreement",
    "ExportReport",
    "MergeReport",
    "Queryable",
    "Trace",
    "export_csv",
    "export_cypher",
    "export_xes",
    "merge",
    "traces",
]
