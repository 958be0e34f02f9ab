"""Messages of OpenClaw's agent, as they stand in transcripts and in telemetry."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

from sag_research.errors import FormatError
from sag_research.ingest._json import loads
from sag_research.ingest.formats import _shared as shared
from sag_research.ingest.formats._cli_turns import call_of, leading, seconds_of, steps_of, total_of
from sag_research.ingest.formats._openhands_turns import Turns, exit_code, mapping
from sag_research.ingest.formats._shared import Result
from sag_research.model import Step, Usage

__all__ = ["Talk", "calls_in", "spawned", "usage_in"]

_REPLY: Final = "assistant"
_RESULT: Final = "toolResult"
_HEARD: Final = frozenset({
    "user", "custom", "bashExecution", "branchSummary", "compactionSummary",
})  # fmt: skip
"""Roles of what the model is told, and that are no result of a call."""
_SPAWN: Final = "sessions_spawn"
_FAILED: Final = frozenset({"error", "aborted"})


@dataclass
class Talk:
    """A conversation while its messages come in."""

    turns: Turns = field(default_factory=Turns)
    goal: list[str] = field(default_factory=list)
    models: dict[str, None] = field(default_factory=dict)
    stopped: str | None = None
    """Why the last reply ended."""
    silent: Counter[str] = field(default_factory=Counter)
    """Messages that became no part of a step, by role."""
    unasked: int = 0
    """Results whose call is not here."""
    stray: list[str] = field(default_factory=list)
    """Such results in front of the first turn."""
    took: dict[int, float] = field(default_factory=dict)
    """By turn: seconds of its tools."""
    timed: dict[int, float] = field(default_factory=dict)
    """By turn: the same, as others than its results tell it."""
    children: dict[str, int] = field(default_factory=dict)
    """By session that a call began: the turn of that call."""
    _asked: dict[str, list[int]] = field(default_factory=dict)
    """By id of a call: the turns that made it."""
    _answered: Counter[str] = field(default_factory=Counter)

    def take(self, message: dict[str, Any]) -> None:
        """Add a message."""
        role = shared.word(message.get("role"))
        if role == _REPLY:
            self._reply(message)
        elif role == _RESULT:
            self._result(message)
        elif role in _HEARD:
            self.hear(_told(message))
        else:
            self.silent[role or "(no role)"] += 1

    def hear(self, text: str) -> None:
        """Add what the model was told: its goal, or what it heard after its last turn."""
        if text.strip() and not self.turns.hear(text):
            self.goal.append(text)

    def _reply(self, message: dict[str, Any]) -> None:
        turn = self.turns.reply(None, seconds_of(message.get("timestamp")))
        content = message.get("content")
        for block in content if isinstance(content, list) else [content]:
            found = mapping(block)
            kind = found.get("type")
            if kind == "toolCall":
                call = call_of(found.get("id"), found.get("name"), found.get("arguments"))
                self.turns.ask(turn, call, None)
                self._asked.setdefault(call.id, []).append(len(self.turns.all) - 1)
            else:
                thought = found.get("thinking") if kind == "thinking" else shared.text_of(block)
                turn.thoughts.append(shared.text_of(thought).strip())
        turn.usage = usage_in(message.get("usage"))
        self.stopped = shared.word(message.get("stopReason"))
        if self.stopped in _FAILED and (said := shared.word(message.get("errorMessage"))):
            turn.corrections.append(said)
        if model := leading(message, "responseModel", "model"):
            self.models[model] = None

    def _result(self, message: dict[str, Any]) -> None:
        details = mapping(message.get("details"))
        code = exit_code(details.get("exitCode"))
        failed, text = message.get("isError"), shared.text_of(message.get("content"))
        known = "ok" if failed is False else "unknown"
        status = "error" if failed is True or code else known
        result = Result(shared.word(message.get("toolCallId")), text, code, status)
        if not self.turns.answer(result, None, None):
            self.unasked += 1
            if not self.turns.hear(text):
                self.stray.append(text)
            return
        number = self._turn_of(result.call_id)
        took = shared.number(details.get("durationMs"))
        if took is not None and took >= 0:
            self.took[number] = self.took.get(number, 0.0) + took / 1000
        if message.get("toolName") == _SPAWN and (child := spawned(details, text)):
            self.children.setdefault(child, number)

    def _turn_of(self, call_id: str | None) -> int:
        """Return the turn whose call takes the next result of an id."""
        asked = self._asked[call_id or ""]
        taken = self._answered[call_id or ""]
        self._answered[call_id or ""] += 1
        return asked[min(taken, len(asked) - 1)]

    def steps(self) -> tuple[Step, ...]:
        """Return the turns as steps."""
        return steps_of(self.turns, self.timed | self.took)

    def notes(self, where: str) -> list[str]:
        """Say what became no step."""
        notes = []
        if self.unasked:
            notes.append(f"{where}: {self.unasked} results name a call that is not in their run")
        if self.silent:
            kinds = ", ".join(f"{role} {self.silent[role]}" for role in sorted(self.silent))
            notes.append(f"{where}: messages of unknown roles: {kinds}")
        return notes


def usage_in(found: Any) -> Usage | None:
    """Return what a reply took; the parts of a prompt that were cached are among its tokens."""
    used = mapping(found)
    prompt = total_of(used.get("input"), used.get("cacheRead"), used.get("cacheWrite"))
    return shared.usage_of(prompt, used.get("output"), mapping(used.get("cost")).get("total"))


def calls_in(message: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the calls of a reply, each as its tool and its arguments in one spelling."""
    content = message.get("content")
    blocks = map(mapping, content if isinstance(content, list) else [])
    return [
        (shared.text_of(one.get("name")), json.dumps(one.get("arguments"), sort_keys=True))
        for one in blocks
        if one.get("type") == "toolCall"
    ]


def spawned(details: dict[str, Any], text: str) -> str | None:
    """Return the session that a call began, as its result names it."""
    if child := shared.word(details.get("childSessionKey")):
        return child
    try:
        told = mapping(loads(text.encode("utf-8", "surrogatepass")))
    except FormatError:
        return None
    return shared.word(told.get("childSessionKey"))


def _told(message: dict[str, Any]) -> str:
    if message.get("role") == "bashExecution":
        command = shared.text_of(message.get("command"))
        return shared.joined([f"$ {command}", shared.text_of(message.get("output"))])
    return shared.text_of(message.get("content")) or shared.text_of(message.get("summary"))
