"""DuckDB over the log: immutable Parquet segments, the tail in memory, and stable views."""

from sag_research.warehouse._project import step_table
from sag_research.warehouse._result import QueryResult
from sag_research.warehouse._sync import SyncReport
from sag_research.warehouse._warehouse import VIEWS, Warehouse

__all__ = ["VIEWS", "QueryResult", "SyncReport", "Warehouse", "step_table"]
