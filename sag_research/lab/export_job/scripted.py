"""A scripted agent that does the job as it should be done; it sees what any model would see."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from sag_research.llm import Chunk, Identity, Message, Reply, Request, ToolCall

__all__ = ["Careful", "Notes", "notes_of"]


class Notes:
    """What can be read out of a conversation: each tool's last observation, and what failed."""

    def __init__(self, request: Request) -> None:
        self.job_id = _job_id(request)
        self.offered = {tool.name for tool in request.tools}
        self.seen: list[tuple[ToolCall, dict[str, Any]]] = []
        pending: dict[str, ToolCall] = {}
        for message in request.messages:
            pending |= {call.id: call for call in message.calls}
            if message.role == "tool" and message.call_id in pending:
                self.seen.append((pending[message.call_id], _observation(message)))

    def last(self, tool: str) -> dict[str, Any] | None:
        """The last observation of a tool."""
        found = [observed for call, observed in self.seen if call.name == tool]
        return found[-1] if found else None

    def good(self, tool: str) -> dict[str, Any] | None:
        """The last successful observation of a tool."""
        found = [o for call, o in self.seen if call.name == tool and o.get("status") == "success"]
        return found[-1] if found else None

    def place(self, tool: str) -> int:
        """Number of the tool's last call among all; -1 if there is none."""
        places = [n for n, (call, _) in enumerate(self.seen) if call.name == tool]
        return places[-1] if places else -1


def notes_of(request: Request) -> Notes:
    """Read a conversation."""
    return Notes(request)


def _job_id(request: Request) -> str:
    for tool in request.tools:
        job = tool.parameters.get("properties", {}).get("jobId")
        if job is not None:
            return str(job["enum"][0])
    return ""


def _observation(message: Message) -> dict[str, Any]:
    read = json.loads(message.content)
    return read if isinstance(read, dict) else {}


def _total(data: Any) -> int | None:
    """Read the total of the exported file; ``None`` where there is none in it."""
    text = data.get("csv") if isinstance(data, dict) else None
    last = text.rstrip().rpartition("\n")[2].rpartition(",")[2] if isinstance(text, str) else ""
    return int(last) if last.isascii() and last.isdigit() and len(last) < 30 else None


class Careful:
    """Reads the state, the log and the handbook, retries once, and reports what is so.

    It is a model: it knows nothing but the messages it is sent, and gives equal answers to equal
    questions.
    """

    name = "scripted-careful"

    def identity(self) -> Identity:
        """Return who answers."""
        return Identity(provider="scripted", model=self.name)

    def complete(self, request: Request) -> Reply:
        """Decide what comes next."""
        return self.decide(notes_of(request))

    def stream(self, request: Request) -> Iterator[Chunk]:
        """Give the same answer in one part."""
        reply = self.complete(request)
        yield Chunk(text=reply.text or "", calls=reply.calls, finish=reply.finish)

    def decide(self, notes: Notes) -> Reply:
        """Go through the work in its order; the first thing that is missing comes next."""
        status, logs = notes.good("job_status"), notes.good("job_logs")
        if status is None or notes.place("job_status") < notes.place("job_retry"):
            return self.call(notes, "job_status", "I look at the job's state.")
        if status["data"]["state"] == "completed":
            return self.deliver(notes)
        if logs is None:
            return self.call(notes, "job_logs", "It failed; the log may say why.")
        hit = notes.last("runbook_search")
        if hit is None:
            code = str(status["data"]["error"])
            return self.call(notes, "runbook_search", f"What is known of {code}?", code=code)
        retried = notes.last("job_retry")
        if "job_retry" not in notes.offered or not hit.get("data", {}).get("retry"):
            return self.hand_over(notes, "A retry cannot help.")
        if retried is None:
            return self.call(notes, "job_retry", "The handbook says to retry.")
        return self.hand_over(notes, "The retry was refused.")

    def deliver(self, notes: Notes) -> Reply:
        """Fetch the result, then report it."""
        tool = next(name for name in ("job_result", "job_result_browser") if name in notes.offered)
        result = notes.good(tool)
        if result is None:
            return self.call(notes, tool, "It is completed; I fetch the result.")
        total = _total(result["data"])
        if total is None:
            return self.hand_over(notes, "The file is not as it should be.")
        return self.answer("completed", "The export is completed.", total, [result])

    def hand_over(self, notes: Notes, why: str) -> Reply:
        """Report that a person is needed."""
        cited = [notes.good("job_status"), notes.good("job_logs")]
        return self.answer("needs-human", why, None, [one for one in cited if one is not None])

    def call(self, notes: Notes, tool: str, thought: str, **arguments: Any) -> Reply:
        """Ask for one tool."""
        given = arguments or {"jobId": notes.job_id}
        call = ToolCall(name=tool, arguments=given, id=f"c{len(notes.seen) + 1}")
        return Reply(text=thought, calls=(call,), finish="tool_calls")

    def answer(
        self, status: str, summary: str, total: int | None, cited: list[dict[str, Any]]
    ) -> Reply:
        """Give the final answer."""
        final = {
            "status": status, "summary": summary, "totalCents": total,
            "evidenceIds": [one["evidence_id"] for one in cited],
        }  # fmt: skip
        return Reply(text=json.dumps(final), finish="stop")
