"""The report: written once, of verified fields."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from sag_research._text import strip_terminal, visible
from sag_research.lab.export_job._evidence import create_once
from sag_research.lab.export_job._progress import Progress
from sag_research.lab.export_job._words import say
from sag_research.lab.export_job.request import TaskRequest

__all__ = ["Report", "publish", "report_of"]

_JSON, _MARKDOWN = "report.json", "report.md"


class Report(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a task ended.

    Attributes
    ----------
    request : str
        Fingerprint of the request.
    task_id, job_id : str
    status : {'completed', 'needs-human', 'partial'}
    stop_reason : str
    total_cents : int or None
    summary : str
        In the language of the goal.
    evidence : tuple of str
        Ids of the cited pieces.
    verification : str or None
        Receipt of the verification; ``None`` for a partial end.
    faults : tuple of str
        What was wrong on purpose.
    """

    request: str
    task_id: str
    job_id: str
    status: str
    stop_reason: str
    total_cents: int | None
    summary: str
    evidence: tuple[str, ...]
    verification: str | None
    faults: tuple[str, ...] = ()


def report_of(progress: Progress, request: TaskRequest, faults: tuple[str, ...]) -> Report:
    """Make the report of a task that has stopped."""
    reason = progress.stopped or ""
    final = progress.final
    if final is None:
        summary = say("partial", request.goal, job=request.job_id, reason=reason)
        return Report(
            request=request.fingerprint, task_id=request.id, job_id=request.job_id,
            status="partial", stop_reason=reason, total_cents=None, summary=summary, evidence=(),
            verification=None, faults=faults,
        )  # fmt: skip
    answer, verdict = final
    return Report(
        request=request.fingerprint, task_id=request.id, job_id=request.job_id,
        status=answer.status, stop_reason=reason, total_cents=answer.totalCents,
        summary=verdict.summary, evidence=tuple(sorted(answer.evidenceIds)),
        verification=verdict.receipt, faults=faults,
    )  # fmt: skip


def publish(directory: Path, report: Report) -> None:
    """Write the report's two files; files that are there already must say the same.

    Raises
    ------
    SagError
        If something else is in their place; nothing is overwritten.
    """
    text = msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n"
    create_once(directory / _MARKDOWN, _markdown(report).encode())
    create_once(directory / _JSON, text)


def _markdown(report: Report) -> str:
    total = "–" if report.total_cents is None else f"{report.total_cents:,} cents"
    rows = {
        "Job": report.job_id, "Status": report.status, "Stopped": report.stop_reason,
        "Total": total, "Verification": report.verification or "none",
        "Faults on purpose": ", ".join(report.faults) or "none",
    }  # fmt: skip
    table = "".join(f"| {name} | {_escaped(value)} |\n" for name, value in rows.items())
    cited = "".join(f"- `{one}`\n" for one in report.evidence) or "none\n"
    title = _escaped(f"Report of {report.task_id}")
    return (
        f"# {title}\n\n{_escaped(report.summary)}\n\n| | |\n|---|---|\n{table}\n"
        f"## Evidence\n\n{cited}"
    )


def _escaped(text: str) -> str:
    r"""Take its meaning from everything that Markdown or HTML gives one.

    Examples
    --------
    >>> print(_escaped("*a* <b>|"))
    \*a\* &lt;b&gt;\|
    """
    line = " ".join(visible(strip_terminal(text)).split())
    safe = line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_{}\[\]()#!|~]|^[-+=])", r"\\\1", safe)
