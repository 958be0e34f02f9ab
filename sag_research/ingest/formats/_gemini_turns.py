"""Turns of Gemini: replies with their calls, which hold the results."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from msgspec.structs import replace

from sag_research.ingest.formats import _shared as shared
from sag_research.ingest.formats._cli_turns import call_of, seconds_of
from sag_research.ingest.formats._gemini_session import SUMMARY
from sag_research.ingest.formats._openhands_turns import Turn, Turns, mapping
from sag_research.ingest.formats._shared import Result
from sag_research.model import Call, Step, Usage

__all__ = ["Talk", "parts_of", "said_in", "usage_in", "with_more"]

_SHELL: Final = "run_shell_command"
_CODE: Final = re.compile(r"^Exit Code: (-?\d{1,9})\s*$", re.MULTILINE)
_TAIL: Final = 300
"""Characters behind the output proper, where the exit code stands."""
_STATUS: Final = {"success": "ok", "error": "error"}
_REFUSED: Final = frozenset({"cancelled", "canceled", "rejected"})


def parts_of(content: Any) -> list[Any]:
    """Return the parts of a content, which may be one part, or a text."""
    if isinstance(content, list):
        return content
    return [] if content in (None, "") else [content]


def said_in(content: Any) -> str:
    r"""Return the text of a content, without thoughts, calls and their results.

    Examples
    --------
    >>> said_in([{"text": "a"}, {"text": "b", "thought": True}, {"inlineData": {}}, "c"])
    'a\n[inlineData]\nc'
    """
    return shared.joined(list(filter(None, map(_said, parts_of(content)))))


def _said(part: Any) -> str:
    if not isinstance(part, dict):
        return shared.text_of(part)
    if part.get("thought") is True or part.keys() & {"functionCall", "functionResponse"}:
        return ""
    if "text" in part:
        return shared.text_of(part)
    return "".join(f"[{name}]" for name in list(part)[:1])


def _thoughts(message: dict[str, Any]) -> Iterator[str]:
    told = message.get("thoughts")
    for one in map(mapping, told if isinstance(told, list) else []):
        both = (shared.word(one.get("subject")), shared.word(one.get("description")))
        yield ": ".join(filter(None, both))
    for part in map(mapping, parts_of(message.get("content"))):
        if part.get("thought") is True:
            yield shared.text_of(part.get("text")).strip()


def usage_in(tokens: Any) -> Usage | None:
    """Return what a reply took: thoughts are no part of the output, cached tokens of the input.

    Examples
    --------
    >>> usage_in({"input": 100, "output": 5, "cached": 90, "thoughts": 7, "tool": 2, "total": 114})
    Usage(tokens_in=102, tokens_out=12, cost_usd=None)
    """
    used = mapping(tokens)
    return shared.usage_of(
        with_more(used, "input", "tool"), with_more(used, "output", "thoughts"), None
    )


def with_more(used: dict[str, Any], name: str, beside: str) -> int | None:
    """Return an amount with what was counted beside it; None where one of them is not known.

    What is beside it is left out by the program where there is none of it.

    Examples
    --------
    >>> with_more({"a": 2, "b": 3}, "a", "b"), with_more({"a": 2}, "a", "b")
    (5, 2)
    >>> with_more({"b": 3}, "a", "b"), with_more({"a": 2, "b": None}, "a", "b")
    (None, None)
    """
    amounts = [shared.integer(used.get(name)), shared.integer(used.get(beside, 0))]
    known = [one for one in amounts if one is not None and one >= 0]
    return sum(known) if len(known) == len(amounts) else None


@dataclass
class Talk:
    """One way through a session while its messages are read."""

    turns: Turns = field(default_factory=Turns)
    starts: list[int] = field(default_factory=list)
    """Numbers of the messages at which turns begin."""
    goal: list[str] = field(default_factory=list)
    preamble: list[str] = field(default_factory=list)
    summary: list[str] = field(default_factory=list)
    models: dict[str, None] = field(default_factory=dict)
    ended: str | None = None
    unasked: int = 0
    _notices: dict[int, list[str]] = field(default_factory=dict)

    def take(self, number: int, message: dict[str, Any]) -> None:
        """Add a message."""
        kind = message.get("type")
        if kind == "gemini":
            self._reply(number, message)
        elif kind == "user":
            self._user(message)
        elif kind == SUMMARY:
            self.summary.append(said_in(message.get("content")))
        else:
            self._notice(said_in(message.get("content")))
        if kind in ("gemini", "user", "error"):
            self.ended = "error" if kind == "error" else None

    def _reply(self, number: int, message: dict[str, Any]) -> None:
        turn = self.turns.reply(None, seconds_of(message.get("timestamp")))
        self.starts.append(number)
        turn.thoughts += [*_thoughts(message), said_in(message.get("content")).strip()]
        turn.usage = usage_in(message.get("tokens"))
        if model := shared.word(message.get("model")):
            self.models[model] = None
        recorded = message.get("toolCalls")
        known = set()
        for call in map(mapping, recorded if isinstance(recorded, list) else []):
            if call:
                known.add(self._ask(turn, call))
        for part in map(mapping, parts_of(message.get("content"))):
            asked = mapping(part.get("functionCall"))
            if asked and shared.word(asked.get("id")) not in known:
                self.turns.ask(turn, _call(asked), None)

    def _ask(self, turn: Turn, recorded: dict[str, Any]) -> str | None:
        call, place = _call(recorded), len(turn.calls)
        self.turns.ask(turn, call, None)
        state = recorded.get("status")
        status = _STATUS.get(state, "unknown") if isinstance(state, str) else "unknown"
        told = recorded.get("result")
        if told is None:
            told = recorded.get("resultDisplay")
        if told is not None:
            turn.answers[place].append(_result(call, told, status))
        if isinstance(state, str) and state in _REFUSED:
            turn.not_run.add(place)
        return call.id or None

    def _user(self, message: dict[str, Any]) -> None:
        content = message.get("content")
        for part in map(mapping, parts_of(content)):
            if response := mapping(part.get("functionResponse")):
                self._answer(response, part)
        text = said_in(content)
        if text.strip() and not self.turns.hear(text):
            self.goal.append(text)

    def _answer(self, response: dict[str, Any], part: dict[str, Any]) -> None:
        """Take a result that stands in a message: mostly the call holds it, too."""
        name = shared.word(response.get("id"))
        for turn in reversed(self.turns.all):
            for place, call in enumerate(turn.calls):
                if call.id == (name or "") and call.name == response.get("name"):
                    if not turn.answers[place]:
                        turn.answers[place].append(_result(call, [part], "unknown"))
                    return
        self.unasked += 1
        self.turns.hear(_response(response)[0])

    def _notice(self, text: str) -> None:
        if text.strip() and self.starts:
            self._notices.setdefault(len(self.starts) - 1, []).append(text)
        elif text.strip():
            self.preamble.append(text)

    def steps(self) -> tuple[Step, ...]:
        """Return the turns as steps."""
        found = []
        for number, turn in enumerate(self.turns.all):
            notices = self._notices.get(number)
            state = {"notices": notices} if notices else None
            found.append(replace(turn.step(), state=state, seconds=None))
        return tuple(found)


def _call(found: dict[str, Any]) -> Call:
    call = call_of(found.get("id"), found.get("name"), found.get("args"))
    command = mapping(call.arguments).get("command") if call.name == _SHELL else None
    return replace(call, text=command) if isinstance(command, str) else call


def _result(call: Call, told: Any, status: str) -> Result:
    texts, failed = [], False
    for part in parts_of(told):
        response = mapping(mapping(part).get("functionResponse"))
        text, is_error = _response(response) if response else (_said(part), False)
        failed = failed or is_error
        texts.append(text)
    text = shared.joined(texts)
    codes = _CODE.findall(text[-_TAIL:]) if call.name == _SHELL else []
    code = int(codes[-1]) if codes else None
    if code or failed:
        status = "error"
    return Result(call.id or None, text, code, status)


def _response(response: dict[str, Any]) -> tuple[str, bool]:
    """Return the text of a result, and whether it is an error."""
    told = response.get("response")
    if not isinstance(told, dict):
        return shared.text_of(told), False
    for name in ("output", "error"):
        if isinstance(told.get(name), str):
            return told[name], name == "error"
    return json.dumps(told, ensure_ascii=False), "error" in told
