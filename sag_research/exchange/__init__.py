"""Exports for other programs, and other workspaces merged.

Interchange: ATIF, OTLP, native records, Parquet tables. Process mining: XES, CSV. Graphs: Cypher.
"""

from __future__ import annotations

from sag_research.exchange._atif import export_atif
from sag_research.exchange._csv import export_csv
from sag_research.exchange._cypher import CypherReport, export_cypher
from sag_research.exchange._jsonl import export_jsonl
from sag_research.exchange._merge import Disagreement, MergeReport, merge
from sag_research.exchange._otlp import export_otlp
from sag_research.exchange._parquet import export_parquet
from sag_research.exchange._round import InterchangeReport, Recorded, step_digest
from sag_research.exchange._traces import ExportReport, Queryable, Trace, traces
from sag_research.exchange._xes import export_xes

__all__ = [
    "CypherReport",
    "Disagreement",
    "ExportReport",
    "InterchangeReport",
    "MergeReport",
    "Queryable",
    "Recorded",
    "Trace",
    "export_atif",
    "export_csv",
    "export_cypher",
    "export_jsonl",
    "export_otlp",
    "export_parquet",
    "export_xes",
    "merge",
    "step_digest",
    "traces",
]
