"""What Cursor's agent prints as ``stream-json``, as turns."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

from sag_research.ingest.formats import _shared as shared
from sag_research.ingest.formats._cli_turns import call_of, leading, seconds_of
from sag_research.ingest.formats._openhands_turns import Turn, Turns, exit_code, mapping
from sag_research.ingest.formats._shared import Result
from sag_research.model import Call

__all__ = ["Stream"]

_SUFFIX: Final = "ToolCall"
_TEXTS: Final = ("content", "output", "error", "errorMessage", "message", "reason")
"""Where a result has its text, if it has one."""


@dataclass
class Stream:
    """A session while its lines come in."""

    turns: Turns = field(default_factory=Turns)
    goal: list[str] = field(default_factory=list)
    begun: dict[str, Any] = field(default_factory=dict)
    """How the program was set up."""
    ended: dict[str, Any] | None = None
    """How it says that the session ended, if nothing came behind that."""
    silent: Counter[str] = field(default_factory=Counter)
    spans: dict[int, tuple[float, float]] = field(default_factory=dict)
    """By turn: when its first tool began, and the last one ended."""
    _said: list[str] = field(default_factory=list)
    """Texts of a reply, which may come in parts."""
    _said_at: float | None = None
    _reply: str | None = None
    """Id of that reply."""
    _thinking: list[str] = field(default_factory=list)
    _open: Turn | None = None
    """The reply whose calls come now."""
    _began: dict[str, tuple[int, float | None]] = field(default_factory=dict)
    _numbers: dict[int, int] = field(default_factory=dict)

    def take(self, line: dict[str, Any]) -> None:
        """Add a line."""
        kind, subtype = shared.word(line.get("type")), shared.word(line.get("subtype"))
        if kind == "assistant":
            self._text(line)
            return
        self.close()
        if kind == "result":
            self.ended = line
        elif (kind, subtype) == ("system", "init"):
            self.begun = self.begun or line
        elif kind == "user":
            self._hear(_content(line))
        elif kind == "thinking":
            self._thinking.append(shared.text_of(line.get("text")))
        elif kind == "tool_call":
            self._tool(line, subtype)
        else:
            self.silent["/".join(filter(None, (kind, subtype))) or "(no type)"] += 1

    def _hear(self, text: str) -> None:
        self.ended, self._open = None, None
        if text.strip() and not self.turns.hear(text):
            self.goal.append(text)

    def _text(self, line: dict[str, Any]) -> None:
        self.ended = None
        if not self._said:
            self._said_at = seconds_of(line.get("timestamp_ms"))
        self._said.append(_content(line))
        self._reply = shared.word(line.get("model_call_id")) or self._reply

    def close(self) -> None:
        """End the text of a reply, of which the whole may follow its parts."""
        if not self._said:
            return
        *parts, last = self._said
        text = last if parts and "".join(parts) == last else "".join(self._said)
        turn = self._turn(self._reply, self._said_at)
        turn.thoughts.append(text.strip())
        self._said, self._reply = [], None
        self._open = turn

    def _turn(self, reply: str | None, at: float | None) -> Turn:
        turn = self.turns.reply(reply, at)
        self._numbers.setdefault(id(turn), len(self.turns.all) - 1)
        thinking = "".join(self._thinking).strip()
        self._thinking = []
        if thinking:
            turn.thoughts.append(thinking)
        return turn

    def _tool(self, line: dict[str, Any], subtype: str | None) -> None:
        self.ended = None
        name, arguments, result = _parted(line.get("tool_call"))
        given = leading(line, "call_id") or leading(mapping(arguments), "toolCallId")
        at = seconds_of(line.get("timestamp_ms"))
        call = call_of(given, name, arguments)
        if subtype == "started" or call.id not in self._began:
            self._ask(call, shared.word(line.get("model_call_id")), at)
        if subtype != "completed":
            return
        text, code, status = _seen(result)
        refused = status == "rejected"
        known = Result(call.id, text, code, "error" if refused else status)
        self.turns.answer(known, call.id, None, refused=refused)
        number, start = self._began[call.id]
        if start is not None and at is not None and at >= start:
            first, last = self.spans.get(number, (start, at))
            self.spans[number] = (min(first, start), max(last, at))
        if not call.id:
            del self._began[call.id]  # the next call without an id is another one
        self._open = None

    def _ask(self, call: Call, reply: str | None, at: float | None) -> None:
        turn = self._open if reply is None and self._open else self._turn(reply, at)
        self._open = turn
        self.turns.ask(turn, call, call.id)
        self._began[call.id] = (self._numbers[id(turn)], at)


def _content(line: dict[str, Any]) -> str:
    return shared.text_of(mapping(line.get("message")).get("content"))


def _parted(found: Any) -> tuple[str, Any, Any]:
    """Return a tool's name, arguments and result: its name is the key, or that of a function."""
    for name, value in mapping(found).items():
        told = mapping(value)
        if name == "function":
            return shared.text_of(told.get("name")), told.get("arguments"), told.get("result")
        if name.endswith(_SUFFIX):
            return name.removesuffix(_SUFFIX), told.get("args"), told.get("result")
    return "", None, None


def _seen(result: Any) -> tuple[str, int | None, str]:
    """Return the text of a result, its exit code, and whether it went well."""
    kind, value = next(iter(mapping(result).items()), ("", None))
    found = mapping(value)
    code = exit_code(found.get("exitCode"))
    if "stdout" in found or "stderr" in found:
        text = shared.joined([shared.text_of(found.get(name)) for name in ("stdout", "stderr")])
    elif isinstance(value, str) or not found:
        text = shared.text_of(value)
    else:
        text = leading(found, *_TEXTS) or json.dumps(found, ensure_ascii=False)
    if kind == "rejected":
        return text, code, kind
    if kind == "success":
        return text, code, "error" if code else "ok"
    return text, code, "error" if kind else "unknown"
