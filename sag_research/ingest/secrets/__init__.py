"""Secrets in trajectories: found however a terminal left them, and replaced by stable tokens."""

from sag_research.ingest.secrets._find import Finding, find_secrets
from sag_research.ingest.secrets._kinds import Kind, kinds
from sag_research.ingest.secrets._log import (
    LogRedaction,
    Spotted,
    redact_log,
    redacted_copy,
    scan_log,
)
from sag_research.ingest.secrets._redactor import (
    REDACTED_FLAG,
    Place,
    Redactor,
    redact_text,
    redacted_step,
)
from sag_research.ingest.secrets._scan import ScanReport, scan

__all__ = [
    "REDACTED_FLAG",
    "Finding",
    "Kind",
    "LogRedaction",
    "Place",
    "Redactor",
    "ScanReport",
    "Spotted",
    "find_secrets",
    "kinds",
    "redact_log",
    "redact_text",
    "redacted_copy",
    "redacted_step",
    "scan",
    "scan_log",
]
