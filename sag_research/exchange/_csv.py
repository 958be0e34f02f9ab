"""CSV as programs for process mining read it: one row an event."""

from __future__ import annotations

import csv
import datetime as dt
import io
from collections.abc import Iterable, Iterator
from os import PathLike
from pathlib import Path
from typing import Any, Final

from sag_research._text import REPLACEMENT, repair
from sag_research.exchange._traces import (
    TEXTS,
    ExportReport,
    Parameters,
    Queryable,
    Trace,
    opened,
    taken,
    token_parts,
    utc,
)
from sag_research.extract import Vocabulary

__all__ = ["export_csv"]

_EVENT: Final = ("tool", "exit_code", "seconds", "cost_usd", "tokens_in", "tokens_out")
_CASE: Final = ("task_id", "outcome", "detail", "known_at_step", "exit_status", "dataset", "repo",
                "attempt", "n_steps")  # fmt: skip
COLUMNS: Final = (
    "case_id", "activity", "timestamp", "order", "resource", "group", "verb", "object", "result",
    *_EVENT, *_CASE,
)  # fmt: skip

_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")


def export_csv(
    source: Queryable | Iterable[Trace],
    path: str | PathLike[str],
    *,
    where: str = "true",
    parameters: Parameters = None,
    vocabulary: Vocabulary | None = None,
    texts: bool = False,
) -> ExportReport:
    """Write runs as a CSV event log: a row for each step, a case for each run.

    Memory holds a row for each run, and the texts of a few thousand steps. The same runs give
    the same bytes. Runs without steps have no row; they are in the report's count of runs.

    Parameters
    ----------
    source, path, where, parameters, vocabulary, texts
        As for :func:`export_xes`.

    Returns
    -------
    ExportReport

    Notes
    -----
    ``timestamp`` is the time at which the step began, and empty where the source does not say it;
    ``order`` is the step's 0-based number and always there. UTF-8, comma, quotes where needed,
    lines end in LF. A text that begins with ``= + - @`` or a tab is written after an apostrophe,
    because a spreadsheet would run it as a formula; the report counts these cells.
    """
    report = ExportReport(Path(path), "csv")
    found = taken(source, where, parameters, vocabulary, texts)
    with opened(path) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="")
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([*COLUMNS, *(TEXTS if texts else ())])
        for trace in found:
            report.runs += 1
            for row in _rows(trace, texts, report):
                writer.writerow([_cell(value, report) for value in row])
        text.flush()
        text.detach()
    return report


def _rows(trace: Trace, texts: bool, report: ExportReport) -> Iterator[list[Any]]:
    case = {"outcome": "unknown"} | dict(trace.case)
    about = [case.get(name) for name in _CASE]
    for number, event in enumerate(trace.events):
        report.steps += 1
        report.without_time += event.get("started_at") is None
        token, order = str(event["token"]), event.get("step")
        parts = token_parts(token).values()
        who = [case.get("model"), case.get("agent")]
        yield [
            str(case["run_id"]), token, event.get("started_at"), number if order is None else order,
            *who, *parts, *(event.get(name) for name in _EVENT), *about,
            *(event.get(name) for name in (TEXTS if texts else ())),
        ]  # fmt: skip


def _cell(value: Any, report: ExportReport) -> Any:
    if isinstance(value, dt.datetime):
        return utc(value)
    if not isinstance(value, str):
        return value
    clean = repair(value)
    report.replaced += clean.count(REPLACEMENT) - value.count(REPLACEMENT)
    if clean.startswith(_FORMULA):
        report.guarded += 1
        return f"'{clean}"
    return clean
