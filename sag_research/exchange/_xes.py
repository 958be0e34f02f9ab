"""XES, the exchange format of process mining (IEEE 1849), written as a stream."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterable, Iterator, Mapping
from os import PathLike
from pathlib import Path
from typing import Any, Final

from sag_research._text import escape_xml
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

__all__ = ["export_xes"]

LONG: Final = range(-(2**63), 2**63)

_HEAD: Final = """<?xml version="1.0" encoding="UTF-8"?>
<log xes.version="1849.2016" xes.features="">
  <extension name="Concept" prefix="concept" uri="http://www.xes-standard.org/concept.xesext"/>
  <extension name="Lifecycle" prefix="lifecycle" uri="http://www.xes-standard.org/lifecycle.xesext"/>
  <extension name="Time" prefix="time" uri="http://www.xes-standard.org/time.xesext"/>
  <extension name="Organizational" prefix="org" uri="http://www.xes-standard.org/org.xesext"/>
  <extension name="Cost" prefix="cost" uri="http://www.xes-standard.org/cost.xesext"/>
  <global scope="trace">
    <string key="concept:name" value=""/>
    <string key="outcome" value="unknown"/>
  </global>
  <global scope="event">
    <string key="concept:name" value=""/>
    <string key="lifecycle:transition" value="complete"/>
    <int key="order" value="0"/>
    <string key="verb" value="none"/>
    <string key="object" value="none"/>
    <string key="result" value="none"/>
  </global>
  <classifier name="Token" scope="event" keys="concept:name"/>
  <classifier name="Action" scope="event" keys="verb object"/>
  <classifier name="Verb" scope="event" keys="verb"/>
"""

_CASE: Final = ("task_id", "outcome", "detail", "known_at_step", "exit_status", "dataset", "repo",
                "agent", "model", "attempt", "n_steps", "tokens_in", "tokens_out")  # fmt: skip
_EVENT: Final = ("tool", "exit_code", "seconds", "tokens_in", "tokens_out", *TEXTS)


def export_xes(
    source: Queryable | Iterable[Trace],
    path: str | PathLike[str],
    *,
    where: str = "true",
    parameters: Parameters = None,
    vocabulary: Vocabulary | None = None,
    texts: bool = False,
) -> ExportReport:
    """Write runs as an XES event log: a trace for each run, an event for each step.

    Memory holds a row for each run, and the texts of a few thousand steps. The same runs give
    the same bytes.

    Parameters
    ----------
    source : Workspace, Warehouse, or iterable of Trace
    path : path-like
        The file to write; compressed if its name ends in ``.gz``.
    where, parameters
        An SQL condition on the view ``runs``, and its values.
    vocabulary : Vocabulary, optional
        How steps become activities; default: the shipped one.
    texts : bool
        Whether events carry their texts. They may hold whatever an agent has met.

    Returns
    -------
    ExportReport

    Notes
    -----
    ``time:timestamp`` is the time at which the step began, and is left out where the source does
    not say it: no time is made up. ``order`` (the step's 0-based number) is there always. Nothing
    in the file says when it was written.

    References
    ----------
    IEEE 1849-2016, Standard for eXtensible Event Stream (XES).
    """
    report = ExportReport(Path(path), "xes")
    write = _Attributes(report)
    found = taken(source, where, parameters, vocabulary, texts)
    with opened(path) as file:
        file.write(_HEAD.encode())
        for trace in found:
            report.runs += 1
            for line in _trace(trace, write, report):
                file.write(line.encode())
        file.write(b"</log>\n")
    return report


def _trace(trace: Trace, write: _Attributes, report: ExportReport) -> Iterator[str]:
    case = {"outcome": "unknown"} | dict(trace.case)
    yield "  <trace>\n"
    yield write("concept:name", str(case["run_id"]), 4)
    for name in _CASE:
        yield write(name, case.get(name), 4)
    yield write.cost(case.get("cost_usd"), 4)
    for number, event in enumerate(trace.events):
        report.steps += 1
        yield "    <event>\n"
        yield from _event(event, number, case, write, report)
        yield "    </event>\n"
    yield "  </trace>\n"


def _event(
    event: Mapping[str, Any],
    number: int,
    case: Mapping[str, Any],
    write: _Attributes,
    report: ExportReport,
) -> Iterator[str]:
    token = str(event["token"])
    order = event.get("step")
    yield write("concept:name", token, 6)
    yield write("lifecycle:transition", "complete", 6)
    if event.get("started_at") is None:
        report.without_time += 1
    else:
        yield write("time:timestamp", event["started_at"], 6)
    yield write("order", number if order is None else order, 6)
    yield write("org:resource", case.get("model") or None, 6)
    yield write("org:group", case.get("agent") or None, 6)
    for name, part in token_parts(token).items():
        yield write(name, part, 6)
    for name in _EVENT:
        yield write(name, event.get(name), 6)
    yield write.cost(event.get("cost_usd"), 6)


class _Attributes:
    """Writes XES attributes, and counts the characters that XML cannot hold."""

    def __init__(self, report: ExportReport) -> None:
        self._report = report

    def __call__(self, key: str, value: Any, indent: int) -> str:
        """Return one attribute as a line; nothing for an unknown value."""
        if value is None:
            return ""
        kind, text = _typed(value)
        escaped, replaced = escape_xml(text)
        self._report.replaced += replaced
        return f'{" " * indent}<{kind} key="{key}" value="{escaped}"/>\n'

    def cost(self, dollars: float | None, indent: int) -> str:
        """Return total and currency of a cost; nothing for an unknown one."""
        if dollars is None or not math.isfinite(dollars):
            return ""
        return self("cost:total", float(dollars), indent) + self("cost:currency", "USD", indent)


def _typed(value: Any) -> tuple[str, str]:
    """Return the XES type that holds a value, and its text."""
    if isinstance(value, bool):
        return "boolean", str(value).lower()
    if isinstance(value, int) and value in LONG:
        return "int", str(value)
    if isinstance(value, float):
        # what XML Schema writes as NaN and INF, few readers of XES take
        return ("float", repr(value)) if math.isfinite(value) else ("string", str(value))
    if isinstance(value, dt.datetime):
        return "date", utc(value)
    return "string", str(value)
