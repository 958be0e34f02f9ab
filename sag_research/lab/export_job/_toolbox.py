"""What the tools do, for one request and no other job."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any, Final

from sag_research.lab.export_job._evidence import EvidenceStore
from sag_research.lab.export_job._progress import Observation
from sag_research.lab.export_job._scenario import runbook
from sag_research.lab.export_job.client import JobClient, Reply
from sag_research.lab.export_job.request import TaskRequest
from sag_research.llm import ToolCall

__all__ = ["Seen", "Toolbox"]

Seen = Sequence[tuple[ToolCall, Observation]]

_RETRYABLE: Final = "E_TRANSIENT"


class Toolbox:
    """Carries out calls that have been checked.

    Parameters
    ----------
    request : TaskRequest
    client : JobClient
    evidence : EvidenceStore
        Where what tools said is kept.
    fetch : callable, optional
        ``fetch(job_id)`` fetches the file through the portal; raises ``BrowserError``.
    """

    def __init__(
        self,
        request: TaskRequest,
        client: JobClient,
        evidence: EvidenceStore,
        fetch: Callable[[str], Reply] | None = None,
    ) -> None:
        self.request, self.client, self.evidence = request, client, evidence
        self._fetch = fetch

    def run(self, name: str, arguments: Mapping[str, Any], seen: Seen) -> Observation:
        """Carry out one call.

        Parameters
        ----------
        name : str
        arguments : mapping
        seen : sequence
            The calls observed so far: a retry needs what they found.
        """
        if name == "runbook_search":
            reply = _search(str(arguments["code"]))
        elif name == "job_retry":
            reply = self._retry(seen)
        elif name == "job_result_browser":
            reply = self._through_the_portal()
        else:
            ask = {
                "job_status": self._status, "job_logs": self.client.logs,
                "job_result": self.client.result,
            }[name]  # fmt: skip
            reply = ask(self.request.job_id)
        return self._observed(name, arguments, reply)

    def _observed(self, name: str, arguments: Mapping[str, Any], reply: Reply) -> Observation:
        kept = ""
        if reply.status == "success":
            kept = self.evidence.record(name, arguments, reply.data).id
        return Observation(
            status=reply.status, data=reply.data, code=reply.code, message=reply.message,
            retryable=reply.retryable, evidence_id=kept,
        )  # fmt: skip

    def _status(self, job_id: str) -> Reply:
        reply = self.client.status(job_id)
        if reply.status != "success":
            return reply
        told = {name: reply.data.get(name) for name in ("jobId", "state", "error", "retries")}
        return Reply(
            status="success", data=told
        )  # the operation's key is none of a model's business

    def _through_the_portal(self) -> Reply:
        if self._fetch is None:
            return Reply(status="failed", code="NO_BROWSER", message="there is no browser here")
        return self._fetch(self.request.job_id)

    def _retry(self, seen: Seen) -> Reply:
        """Ask for the effect, unless it has happened, or may not be asked for."""
        job_id = self.request.job_id
        now = self.client.status(job_id)
        if now.status != "success":
            return now
        key = str(now.data.get("operation", ""))
        receipt = self.client.operation(job_id, key)
        if receipt.status == "success":
            return Reply(status="success", data={**_plain(receipt.data), "skipped": True})
        if receipt.code != "NO_RECEIPT":
            return receipt  # whether it has happened cannot be told, so nothing is asked for
        if now.data.get("state") == "completed":
            done = {"jobId": job_id, "state": "completed", "effect": False, "skipped": True}
            return Reply(status="success", data=done)
        if why := self._unprepared(seen):
            return Reply(status="failed", code="PRECONDITION", message=why)
        asked = self.client.retry(job_id, key, _RETRYABLE)
        if asked.status == "success":
            return Reply(status="success", data={**_plain(asked.data), "skipped": False})
        return asked

    def _unprepared(self, seen: Seen) -> str:
        """Say which evidence a retry lacks; ``""`` for none."""
        pieces = [
            self.evidence.load(observation.evidence_id)
            for _, observation in seen
            if observation.evidence_id
        ]
        lines = [_lines(piece.data) for piece in pieces if piece.tool == "job_logs"]
        if not any(_RETRYABLE in str(line) for line in chain(*lines)):
            return f"no recorded log names {_RETRYABLE}"
        hits = [piece.data for piece in pieces if piece.tool == "runbook_search"]
        if not any(hit.get("code") == _RETRYABLE and hit.get("retry") is True for hit in hits):
            return f"the handbook was not asked about {_RETRYABLE}"
        return ""


def _lines(data: Mapping[str, Any]) -> list[Any]:
    """Return a log's lines; what is no list has none."""
    lines = data.get("lines")
    return lines if isinstance(lines, list) else []


def _plain(data: Mapping[str, Any]) -> dict[str, Any]:
    return {name: data.get(name) for name in ("jobId", "state", "effect")}


def _search(code: str) -> Reply:
    for entry in runbook():
        if entry.code == code:
            hit = {"id": entry.id, "code": code, "title": entry.title, "advice": entry.advice}
            return Reply(status="success", data={**hit, "retry": entry.retry})
    return Reply(status="failed", code="NO_ENTRY", message="the handbook does not know this code")
