"""Events of Copilot CLI, parted into the conversation and those of its sub-agents."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

from sag_research.ingest.formats import _shared as shared
from sag_research.ingest.formats._cli_turns import (
    call_of,
    counted,
    leading,
    seconds_of,
    steps_of,
    total_of,
)
from sag_research.ingest.formats._openhands_turns import Turn, Turns, mapping
from sag_research.ingest.formats._shared import Result
from sag_research.model import Step, Usage

__all__ = ["MAIN", "Lane", "Session"]

MAIN: Final = ""
"""The lane of the conversation itself."""
_CODE: Final = re.compile(r"<exited with exit code (-?\d{1,9})>\s*\Z")
_REFUSED: Final = frozenset({"denied", "rejected"})
_TAIL: Final = 200
_DELTAS: Final = re.compile(r".*(?:_delta|_progress|_partial_result)")
"""Types of what is only streamed, and said again as a whole."""


@dataclass
class Lane:
    """One conversation while its events come in."""

    turns: Turns = field(default_factory=Turns)
    goal: list[str] = field(default_factory=list)
    models: dict[str, None] = field(default_factory=dict)
    about: dict[str, Any] = field(default_factory=dict)
    """What the harness says of a sub-agent."""
    open: Turn | None = None
    """The reply to which reasoning and amounts belong that come now."""
    reasoned: list[str] = field(default_factory=list)
    """Reasoning that came in front of its reply."""
    began: dict[str, tuple[int, float | None]] = field(default_factory=dict)
    """By call: its turn, and when its tool began."""
    spans: dict[int, tuple[float, float]] = field(default_factory=dict)
    """By turn: when its first tool began, and the last one ended."""
    _numbers: dict[int, int] = field(default_factory=dict)
    """By identity of a turn: its number."""

    def hear(self, text: str) -> None:
        """Add what the model was told."""
        self.open = None
        if text.strip() and not self.turns.hear(text):
            self.goal.append(text)

    def reply(self, data: dict[str, Any], at: float | None) -> None:
        """Add a message of the model; chunks of one reply are one turn."""
        turn = self.turns.reply(leading(data, "apiCallId", "messageId"), at)
        self._numbers.setdefault(id(turn), len(self.turns.all) - 1)
        is_new = turn is not self.open
        self.open = turn
        if is_new and self.reasoned:
            turn.thoughts += self.reasoned
            self.reasoned = []
        for name in ("reasoningText", "content"):
            turn.thoughts.append(shared.text_of(data.get(name)).strip())
        requests = data.get("toolRequests")
        for request in map(mapping, requests if isinstance(requests, list) else []):
            if request:
                self.ask(turn, request.get("toolCallId"), request.get("name"), request, None)
        turn.usage = _usage(data, turn.usage)
        self.learn(data)

    def ask(
        self, turn: Turn, call_id: Any, name: Any, given: dict[str, Any], at: float | None
    ) -> None:
        """Add a call."""
        call = call_of(call_id, name, given.get("arguments"))
        number = self._numbers.setdefault(id(turn), len(self.turns.all) - 1)
        if call.id and self.began.get(call.id, (-1, None))[0] == number:
            return  # a chunk that says it again
        self.turns.ask(turn, call, None)
        self.began[call.id] = (number, at)

    def start(self, data: dict[str, Any], at: float | None) -> None:
        """Take the start of a tool: of a call that is known, or of one that no reply holds."""
        name = shared.word(data.get("toolCallId")) or ""
        if name not in self.began:
            turn = self.turns.reply(None, at)
            self.ask(turn, name, data.get("toolName"), data, at)
        self.began[name] = (self.began[name][0], at)
        self.learn(data)

    def complete(self, data: dict[str, Any], at: float | None) -> bool:
        """Give a tool's result to its call; false if nobody asked for it."""
        self.open = None
        name = shared.word(data.get("toolCallId")) or ""
        error = mapping(data.get("error"))
        text = _text(data.get("result")) or shared.text_of(error.get("message"))
        found = _CODE.search(text, max(0, len(text) - _TAIL))
        code = int(found[1]) if found else None
        done = data.get("success")
        status = "error" if done is False or code else "ok" if done is True else "unknown"
        refused = error.get("code") in _REFUSED if isinstance(error.get("code"), str) else False
        result = Result(name, text, code, status)
        if not self.turns.answer(result, None, None, refused=refused):
            self.hear(text)
            return False
        number, start = self.began.get(name, (-1, None))
        if start is not None and at is not None and at >= start and number >= 0:
            first, last = self.spans.get(number, (start, at))
            self.spans[number] = (min(first, start), max(last, at))
        return True

    def reason(self, data: dict[str, Any]) -> None:
        """Take reasoning that stands beside its reply."""
        text = shared.text_of(data.get("content")).strip()
        if self.open is None:
            self.reasoned.append(text)
        elif text not in self.open.thoughts:
            self.open.thoughts.insert(0, text)

    def used(self, data: dict[str, Any]) -> None:
        """Take what the reply before took."""
        if self.open is not None:
            self.open.usage = shared.usage_of(
                data.get("inputTokens"), data.get("outputTokens"), None
            )
        self.learn(data)

    def learn(self, data: dict[str, Any]) -> None:
        """Take the model that an event names."""
        if model := shared.word(data.get("model")):
            self.models[model] = None

    def steps(self) -> tuple[Step, ...]:
        """Return the turns as steps."""
        return steps_of(
            self.turns, {turn: end - start for turn, (start, end) in self.spans.items()}
        )


def _text(result: Any) -> str:
    if not isinstance(result, dict):
        return shared.text_of(result)
    return shared.text_of(result.get("content")) or shared.text_of(result.get("detailedContent"))


def _usage(data: dict[str, Any], known: Usage | None) -> Usage | None:
    """Return what a message says that it took, or what chunks before it said."""
    used = mapping(data.get("usage"))
    output = total_of(used.get("completion_tokens")) or total_of(data.get("outputTokens"))
    if known is not None and (known.tokens_out or 0) >= (output or 0):
        return known
    return shared.usage_of(used.get("prompt_tokens"), output, None)


class Session:
    """The events of a source."""

    def __init__(self) -> None:
        self.lanes: dict[str, Lane] = {MAIN: Lane()}
        self.start: dict[str, Any] = {}
        self.ended: tuple[str, dict[str, Any]] | None = None
        """Type and data of the event with which the session ended, if none came behind it."""
        self.totals: dict[str, Any] = {}
        self.kept: dict[str, list[Any]] = {}
        self._agents: dict[str, str] = {}
        """By a sub-agent's own id: the call that began it."""
        self._silent: Counter[str] = Counter()
        self._unasked = 0

    def take(self, event: dict[str, Any]) -> None:
        """Add an event."""
        kind = shared.word(event.get("type")) or "(no type)"
        data, at = mapping(event.get("data")), seconds_of(event.get("timestamp"))
        if kind in ("subagent.started", "subagent.completed", "subagent.failed"):
            self._subagent(kind, event, data)
            return
        lane = self._lane(event, data)
        if kind.split(".")[0] in ("user", "assistant", "tool"):
            self.ended = None
        if kind == "user.message":
            lane.hear(shared.text_of(data.get("content")))
        elif kind == "assistant.message":
            lane.reply(data, at)
        elif kind == "assistant.reasoning":
            lane.reason(data)
        elif kind == "assistant.usage":
            lane.used(data)
        elif kind == "tool.execution_start":
            lane.start(data, at)
        elif kind == "tool.execution_complete":
            self._unasked += not lane.complete(data, at)
        elif not _DELTAS.fullmatch(kind):
            self._other(kind, data, event)

    def _lane(self, event: dict[str, Any], data: dict[str, Any]) -> Lane:
        agent = shared.word(event.get("agentId"))
        name = (
            self._agents.get(agent, agent) if agent else shared.word(data.get("parentToolCallId"))
        )
        return self.lanes.setdefault(name or MAIN, Lane())

    def _subagent(self, kind: str, event: dict[str, Any], data: dict[str, Any]) -> None:
        call, agent = shared.word(data.get("toolCallId")), shared.word(event.get("agentId"))
        if call and agent:
            self._agents.setdefault(agent, call)
        if call or agent:
            self.lanes.setdefault(call or agent or MAIN, Lane()).about[kind] = data

    def _other(self, kind: str, data: dict[str, Any], event: dict[str, Any]) -> None:
        self._silent[kind] += 1
        main = self.lanes[MAIN]
        if kind in ("session.start", "session.resume"):
            self.start = self.start or data
            main.learn({"model": leading(data, "selectedModel")})
        elif kind == "session.model_change":
            main.learn({"model": data.get("newModel")})
        elif kind == "assistant.turn_start":
            self._lane(event, data).open = None
        elif kind in ("session.shutdown", "abort", "result"):
            self.ended = (kind, data or {name: event[name] for name in event if name != "type"})
            if metrics := data.get("modelMetrics"):
                self.totals = mapping(metrics)
        elif kind in ("session.error", "session.task_complete", "session.compaction_complete"):
            self.kept.setdefault(kind, []).append(data)

    def notes(self) -> list[str]:
        """Say what became no step."""
        found = counted(self._silent, "are part of no step")
        if self._unasked:
            found.append(f"{self._unasked} results name a call that is not in their run")
        return found
