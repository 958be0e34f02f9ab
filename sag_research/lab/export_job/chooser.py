"""A small model on this machine as the agent: it chooses what to do, and nothing else.

A model of some hundred million parameters cannot write tool calls. It is shown a few whole
transcripts and the present one, and its next command is drawn by the probabilities that it gives
to the commands there are. Ids, codes and totals are filled in for it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, Final

import msgspec

from sag_research.lab.export_job._feedback import is_feedback
from sag_research.lab.export_job.scripted import Careful, Notes
from sag_research.llm import Chunk, Identity, Message, Model, Reply, Request, ToolCall, sample
from sag_research.log import canonical_digest

__all__ = ["Chooser"]

_TOOLS: Final = {
    "status": "job_status", "logs": "job_logs", "handbook": "runbook_search",
    "retry": "job_retry", "result": "job_result",
}  # fmt: skip
_ANSWERS: Final = ("completed", "human")
_WORDS: Final = {tool: word for word, tool in _TOOLS.items()} | {"job_result_browser": "result"}
_LINE = 70


@cache
def _examples() -> str:
    return (Path(__file__).parent / "examples.txt").read_text(encoding="utf-8")


class Chooser(Careful):
    """Lets a model that can only score options do the job.

    Parameters
    ----------
    model : Model
        Answers :attr:`Request.choices <sag_research.llm.Request>` with scores, e.g.
        :class:`sag_research.llm.Local`.
    seed : int
        Of the draws.
    temperature : float
        Above 1 the draws are more even, below 1 less.

    Notes
    -----
    The scores of the options are kept with each reply. What a small model does in a small world
    says nothing of how a large one would do.
    """

    def __init__(self, model: Model, *, seed: int = 0, temperature: float = 1.0) -> None:
        self.model, self.seed, self.temperature = model, seed, temperature

    def identity(self) -> Identity:
        """Return who answers; seed and temperature are part of it."""
        inner = self.model.identity()
        drawn = f"seed:{self.seed},temperature:{self.temperature:g}"
        return Identity(provider="chooser", model=inner.model, base_url=drawn)

    def complete(self, request: Request) -> Reply:
        """Choose what comes next."""
        notes = Notes(request)
        options = [
            word for word, tool in _TOOLS.items()
            if tool in notes.offered or (word == "result" and _browser(notes))
        ]  # fmt: skip
        prompt = _transcript(notes, request.messages)
        asked = Request(
            messages=(Message(role="user", content=prompt),),
            choices=tuple(f" {word}" for word in (*options, *_ANSWERS)),
        )
        said = self.model.complete(asked)
        messages = [msgspec.to_builtins(message) for message in request.messages]
        chance = Random(f"{self.seed} {canonical_digest({'messages': messages})}")
        word = sample(said.scores, chance, temperature=self.temperature).strip()
        reply = self._carried_out(notes, word)
        return msgspec.structs.replace(reply, scores=said.scores, usage=said.usage)

    def stream(self, request: Request) -> Iterator[Chunk]:
        """Give the same answer in one part."""
        reply = self.complete(request)
        yield Chunk(text=reply.text or "", calls=reply.calls, usage=reply.usage)

    def _carried_out(self, notes: Notes, word: str) -> Reply:
        """Make a whole reply of a word."""
        if word == "human":
            return self.hand_over(notes, "A person has to act.")
        if word == "completed":
            result = notes.good("job_result") or notes.good("job_result_browser")
            if result is not None:
                return self.deliver(notes)
            cited = [one for one in (notes.good("job_status"), notes.good("job_logs")) if one]
            return self.answer("completed", "It is completed.", 0, cited)
        if word == "handbook":
            code = str((notes.good("job_status") or {}).get("data", {}).get("error", ""))
            return self.call(notes, "runbook_search", "", code=code or "E_UNKNOWN")
        tool = "job_result_browser" if word == "result" and _browser(notes) else _TOOLS[word]
        return self.call(notes, tool, "")


def _browser(notes: Notes) -> bool:
    return "job_result_browser" in notes.offered


def _transcript(notes: Notes, messages: Sequence[Message]) -> str:
    """Write the conversation as the examples are written."""
    lines = [_examples().rstrip(), "", f"Task: {notes.job_id}"]
    pending: dict[str, ToolCall] = {}
    asked = next((n for n, one in enumerate(messages) if one.role == "user"), 0)
    for message in messages[asked + 1 :]:
        if is_feedback(message):
            lines.append(_told(message.content))
        elif message.role == "assistant":
            pending |= {call.id: call for call in message.calls}
            if not message.calls:
                lines.append(f"> {'human' if 'needs-human' in message.content else 'completed'}")
        elif message.role == "tool" and message.call_id in pending:
            lines.append(f"> {_WORDS.get(pending[message.call_id].name, '?')}")
            lines.append(_short(json.loads(message.content)))
        elif message.role == "user":
            lines.append("that does not hold")
    return "\n".join([*lines, ">"])


def _told(text: str) -> str:
    """Say in the transcript's own words what the run was told; other words stay as they are."""
    lines = [line.removeprefix("- ") for line in text.split("\n")]
    return f"({' / '.join(_commanded(line)[:_LINE] for line in lines if line)})"


def _commanded(line: str) -> str:
    if line.startswith('{"status":'):
        return "human" if "needs-human" in line else "completed"
    return _WORDS.get(line.partition("(")[0], line)


def _short(observed: dict[str, Any]) -> str:
    """Say an observation in a line; what strangers wrote stays in it, as data."""
    data = observed.get("data") or {}
    if observed.get("status") == "unknown":
        return "no reply, it may have been carried out"
    if observed.get("status") != "success":
        return f"failed: {observed.get('code', '')}"
    if isinstance(data.get("lines"), list):
        return " / ".join(str(line)[:_LINE] for line in data["lines"])
    if "advice" in data:
        told = "retry once" if data.get("retry") else "a retry cannot help"
        return f"{data.get('code', '')}: {told}"
    if "csv" in data:
        return f"total {str(data['csv']).rstrip().rpartition(',')[2]}"
    return f"{data.get('state', '')} {data.get('error', '')}".strip()
