"""The native record, one run a line: all of a run that another log can take in."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Final

import msgspec

from sag_research.exchange._round import InterchangeReport, Recorded, record_of, whole_runs
from sag_research.exchange._traces import Parameters, opened

__all__ = ["export_jsonl"]

_LONGEST_LINE: Final = 256 * 2**20
"""Bytes of a line that the native record may have."""
_NUL: Final = b"\\u0000"


def export_jsonl(
    source: Recorded,
    path: str | PathLike[str],
    *,
    where: str = "true",
    parameters: Parameters = None,
) -> InterchangeReport:
    """Write runs as native records, one JSON object a line.

    Memory holds one run. The same runs give the same bytes. Nothing is cut; what the record has
    no field for is counted in the report.

    Parameters
    ----------
    source : Workspace
    path : path-like
        The file to write; compressed if its name ends in ``.gz``.
    where, parameters
        An SQL condition on the view ``runs``, and its values. Hidden runs, copies and extractions
        are left out.

    Returns
    -------
    InterchangeReport

    Raises
    ------
    NotEnoughDataError
        If there is no run to export.
    """
    report = InterchangeReport(Path(path), "jsonl")
    encode = msgspec.json.Encoder().encode
    with opened(path) as file:
        for whole in whole_runs(source, where, parameters, report):
            line = encode(record_of(whole))
            if len(line) > _LONGEST_LINE:
                report.add("lost", {"run.whole: a line too long to be read back": 1})
            if _NUL in line:
                report.add("lost", {"run.NUL: read back as U+FFFD": 1})
            file.write(line + b"\n")
    return report
