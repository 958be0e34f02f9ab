"""Exports for other programs: runs as an event log of process mining, as XES, CSV, Cypher."""

from __future__ import annotations

from sag_research.exchange._csv import export_csv
from sag_research.exchange._cypher import CypherReport, export_cypher
from sag_research.exchange._traces import ExportReport, Queryable, Trace, traces
from sag_research.exchange._xes import export_xes

__all__ = [
    "CypherReport",
    "ExportReport",
    "Queryable",
    "Trace",
    "export_csv",
    "export_cypher",
    "export_xes",
    "traces",
]
