"""Verification: a final answer is believed when what it says is so."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from sag_research._text import clip
from sag_research.errors import SagError
from sag_research.lab.export_job._catalogue import DELIVERY
from sag_research.lab.export_job._evidence import Evidence, EvidenceStore
from sag_research.lab.export_job._progress import Final as Answer
from sag_research.lab.export_job._progress import Progress, Verdict
from sag_research.lab.export_job._words import say
from sag_research.lab.export_job.client import JobClient
from sag_research.lab.export_job.request import TaskRequest
from sag_research.log import canonical_digest

__all__ = ["receipt_of", "recheck", "verify"]

_HEADER: Final = "jobId,quantity,unitCents,totalCents"


def verify(
    answer: Answer,
    request: TaskRequest,
    progress: Progress,
    evidence: EvidenceStore,
    client: JobClient,
    saved: Path | None = None,
) -> Verdict:
    """Check an answer against its evidence and against the service as it is now.

    Parameters
    ----------
    answer, request, progress, evidence, client
    saved : pathlib.Path, optional
        A file that was downloaded, and must still be what its evidence says.

    Returns
    -------
    Verdict
        With the reason, where it does not hold: the model is told and may try again.
    """
    cited, reason = _cited(answer, progress, evidence)
    if reason:
        return Verdict(ok=False, reason=reason)
    now = client.status(request.job_id)
    if now.status != "success":
        return Verdict(ok=False, reason=f"the job's state cannot be read now ({now.code})")
    if answer.status == "completed":
        return _completed(answer, request, cited, now.data, client, saved)
    return _needs_human(answer, request, cited, now.data)


def _cited(
    answer: Answer, progress: Progress, evidence: EvidenceStore
) -> tuple[list[Evidence], str]:
    if not answer.evidenceIds:
        return [], "no evidence is cited"
    own = {observation.evidence_id for _, observation in progress.observed}
    strange = [one for one in answer.evidenceIds if one not in own]
    if strange:
        return [], f"evidence {clip(strange[0], 20)!r} was not found in this task"
    return [evidence.load(one) for one in answer.evidenceIds], ""


def _completed(
    answer: Answer,
    request: TaskRequest,
    cited: list[Evidence],
    now: dict[str, Any],
    client: JobClient,
    saved: Path | None,
) -> Verdict:
    if now.get("state") != "completed":
        return Verdict(ok=False, reason="the job is not completed")
    tool = DELIVERY[request.delivery]
    delivered = [piece for piece in cited if piece.tool == tool]
    if not delivered:
        return Verdict(ok=False, reason=f"evidence of {tool} is not cited")
    told = delivered[-1].data
    text = str(told.get("csv", "")) if isinstance(told, dict) else ""
    row = _row(text, request.job_id)
    if row is None:
        return Verdict(ok=False, reason="the exported file is not as it should be")
    quantity, unit, total = row
    if answer.totalCents != total:
        return Verdict(ok=False, reason="totalCents is not the total of the exported file")
    fresh = client.download(request.job_id)
    if fresh.status != "success" or fresh.data != text:
        return Verdict(ok=False, reason="the file fetched anew is not the one in evidence")
    if saved is not None and not (saved.is_file() and saved.read_bytes() == text.encode()):
        return Verdict(ok=False, reason="the downloaded file is not the one in evidence")
    summary = say(
        "completed", request.goal, job=request.job_id, quantity=quantity, unit=unit, total=total
    )
    return Verdict(ok=True, summary=summary, receipt=receipt_of(answer, request, summary))


def _needs_human(
    answer: Answer, request: TaskRequest, cited: list[Evidence], now: dict[str, Any]
) -> Verdict:
    if now.get("state") == "completed":
        return Verdict(ok=False, reason="the job is completed")
    if answer.totalCents is not None:
        return Verdict(ok=False, reason="totalCents must be null when a person is needed")
    if not any(piece.tool in ("job_status", "job_logs") for piece in cited):
        return Verdict(ok=False, reason="neither the state nor the log is cited")
    error = clip(now.get("error", ""), 80)
    summary = say("needs_human", request.goal, job=request.job_id, error=error)
    return Verdict(ok=True, summary=summary, receipt=receipt_of(answer, request, summary))


def _row(text: str, job_id: str) -> tuple[int, int, int] | None:
    """Read the exported file: quantity, price and total, where they agree."""
    lines = text.split("\n")
    if len(lines) != 3 or lines[0] != _HEADER or lines[2]:
        return None
    fields = lines[1].split(",")
    if len(fields) != 4 or fields[0] != job_id:
        return None
    if not all(field.isascii() and field.isdigit() and len(field) < 19 for field in fields[1:]):
        return None
    quantity, unit, total = (int(field) for field in fields[1:])
    return (quantity, unit, total) if quantity * unit == total else None


def receipt_of(answer: Answer, request: TaskRequest, summary: str) -> str:
    """Digest that binds a verified answer to its request."""
    return canonical_digest({
        "request": request.fingerprint, "status": answer.status, "total": answer.totalCents,
        "evidence": sorted(answer.evidenceIds), "summary": summary,
    })  # fmt: skip


def recheck(progress: Progress, request: TaskRequest, evidence: EvidenceStore) -> None:
    """Check every observation against its evidence, and the final answer against its receipt.

    Raises
    ------
    EvidenceError
        If a piece is missing or was changed.
    SagError
        If the receipt is not that of the answer.
    """
    for call, observation in progress.observed:
        if not observation.evidence_id:
            continue
        piece = evidence.load(observation.evidence_id)
        if (piece.tool, piece.arguments, piece.data) != (
            call.name, call.arguments, observation.data,
        ):  # fmt: skip
            raise SagError(f"an observation of {call.name} is not what its evidence says")
    if progress.final is not None:
        answer, verdict = progress.final
        if verdict.receipt != receipt_of(answer, request, verdict.summary):
            raise SagError("the verification's receipt is not that of the answer")
