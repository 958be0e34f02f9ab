"""Turns of a Claude Code run: replies of several lines, their calls, and what came back."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from sag_research.ingest.formats import _shared as shared
from sag_research.ingest.formats._claude_lines import Line, blocks, is_result, mapping
from sag_research.ingest.formats._shared import Result
from sag_research.model import Call, Step, Usage

__all__ = ["Answer", "Turn", "Turns", "answers_in", "usage_in"]

_EXIT: Final = re.compile(r"\s*(?:Error: )?Exit code (\d{1,9})\b")
_REFUSED: Final = re.compile(
    r"\s*(?:Error: )?(?:The user doesn't want to|User rejected tool use"
    r"|Permission to use .{1,200} has been denied)"
)
_THOUGHT: Final = {"text": "text", "thinking": "thinking"}
"""The key under which a block of a type holds its text."""
_INPUT: Final = (
    "input_tokens",
    "cache_creation_input_tokens",
    "cache_read_input_tokens",
)
"""Parts of a prompt, each counted in one of them."""


class Answer(NamedTuple):
    """What came back from a call."""

    place: int
    """Where in its path the line stands; -1 if it stands aside of it."""
    line: int
    result: Result
    at: float | None
    refused: bool


@dataclass
class Turn:
    """One reply of the model while its lines come in."""

    started: float | None = None
    called: float | None = None
    inherited: bool = False
    thoughts: list[tuple[str, str]] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    answers: list[list[Answer]] = field(default_factory=list)
    heard: list[tuple[int, str]] = field(default_factory=list)
    """Place and text of what came in after the calls, and names none of them."""
    notices: list[tuple[int, str]] = field(default_factory=list)
    """What the harness said in the place of the model."""
    usage: Usage | None = None
    _seen: dict[tuple[str, str], int] = field(default_factory=dict)
    """Number of the line in which a block stood first."""
    _numbers: dict[str, int] = field(default_factory=dict)
    """Number of the first call with an id."""

    def add(self, line: Line) -> None:
        """Add a line of the reply.

        The lines of a reply hold a block each, or a growing text, or all of it again.
        """
        if self.started is None:
            self.started = line.at
        self.usage = usage_in(mapping(line.usage), line.cost) or self.usage
        texts = len(self.thoughts)
        for block in blocks(line.content):
            kind = str(block.get("type"))
            if kind.endswith("tool_use"):
                self._ask(block, line)
            elif block and not is_result(block):
                self._think(kind, block, line.number, texts)

    def _think(self, kind: str, block: dict[str, Any], line: int, texts: int) -> None:
        text = shared.text_of(block.get(_THOUGHT.get(kind, ""), [block]))
        said = (kind, text)
        if self._seen.setdefault(said, line) != line or not text.strip():
            return
        last = self.thoughts[-1] if 0 < texts == len(self.thoughts) else None
        if last is not None and last[0] == kind and text.startswith(last[1]):
            self.thoughts[-1] = said
        else:
            self.thoughts.append(said)

    def _ask(self, block: dict[str, Any], line: Line) -> None:
        call = _call(block)
        if call.id and self._seen.setdefault(("call", call.id), line.number) != line.number:
            if call.arguments:
                self.calls[self._numbers[call.id]] = call
            return
        self._numbers.setdefault(call.id, len(self.calls))
        self.called = line.at if self.called is None else self.called
        self.calls.append(call)
        self.answers.append([])

    def before(self, place: int) -> Turn:
        """Return the turn as it stood at a place of its path, to go on from there in another."""
        return Turn(
            started=self.started,
            called=self.called,
            inherited=self.inherited,
            thoughts=list(self.thoughts),
            calls=list(self.calls),
            answers=[
                [one._replace(place=-1) for one in got if one.place <= place]
                for got in self.answers
            ],
            heard=[(-1, text) for at, text in self.heard if at <= place],
            notices=[(-1, text) for at, text in self.notices if at <= place],
            usage=self.usage,
        )

    @property
    def weight(self) -> int:
        """How much there is to copy."""
        return 1 + sum(map(len, self.answers)) + len(self.calls) + len(self.heard)

    def step(self) -> Step:
        """Return the turn as a step."""
        calls = tuple(map(_answered, self.calls, self.answers))
        refused = [bool(got) and all(one.refused for one in got) for got in self.answers]
        flags = ("rejected",) if refused and all(refused) else ()
        notices = [text for _, text in self.notices]
        heard = [text for _, text in self.heard]
        return Step(
            thought=shared.joined([text for _, text in self.thoughts]),
            action=shared.joined([call.text for call in calls]),
            observation=shared.joined([*(call.observation for call in calls), *heard]),
            calls=calls,
            flags=(*flags, "inherited") if self.inherited else flags,
            usage=self.usage,
            started=self.started,
            seconds=self._seconds(),
            state={"notices": notices} if notices else None,
        )

    def _seconds(self) -> float | None:
        ends = [one.at for got in self.answers for one in got if one.at is not None]
        if self.called is None or not ends or max(ends) < self.called:
            return None
        return max(ends) - self.called


@dataclass
class _Asked:
    """The calls of one turn that have one id."""

    turn: int
    numbers: list[int]
    given: int = 0
    """How many of them have an answer."""


class Turns:
    """The turns of one path in order."""

    def __init__(self) -> None:
        self.all: list[Turn] = []
        self._asked: defaultdict[str, list[_Asked]] = defaultdict(list)
        self._said: dict[Result, int] = {}

    def add(self, turn: Turn) -> None:
        """Add a turn with the calls that it holds."""
        for number, call in enumerate(turn.calls):
            asked = self._asked[call.id] if call.id else []
            if not asked or asked[-1].turn != len(self.all):
                asked.append(_Asked(len(self.all), []))
            asked[-1].numbers.append(number)
            asked[-1].given += bool(turn.answers[number])
        for one in (one for got in turn.answers for one in got):
            self._said.setdefault(one.result, one.line)
        self.all.append(turn)

    def answer(self, answer: Answer, last: int | None = None) -> bool:
        """Give an answer to its call in the latest turn that has it; false if there is none.

        Several calls of a turn may have one id, and several answers may name one call: each
        call takes the first that names it, and the last call takes all that are left. A line
        that repeats an answer, as the copy of a history does, adds nothing.

        Parameters
        ----------
        answer : Answer
        last : int, optional
            Turns behind this one are not looked at.
        """
        asked = self._asked.get(answer.result.call_id or "", [])
        end = len(asked) if last is None else bisect_right(asked, last, key=lambda one: one.turn)
        if not end:
            return False
        calls = asked[end - 1]
        first = self._said.setdefault(answer.result, answer.line)
        if calls.given == len(calls.numbers) and first != answer.line:
            return True
        number = calls.numbers[min(calls.given, len(calls.numbers) - 1)]
        self.all[calls.turn].answers[number].append(answer)
        calls.given = min(calls.given + 1, len(calls.numbers))
        return True

    def answer_open(self, answer: Answer) -> bool:
        """Give an answer that names no call to the only call of the last turn, if it waits."""
        got = self.all[-1].answers if self.all else []
        if len(got) != 1 or got[0]:
            return False
        got[0].append(answer)
        return True


def answers_in(line: Line, place: int) -> list[Answer]:
    """Return the results in a line.

    Where the message holds no text of the only one, the harness's own account of it is taken.
    """
    found = [block for block in blocks(line.content) if is_result(block)]
    answers = []
    for block in found:
        text = shared.text_of(block.get("content"))
        if not text and len(found) == 1:
            text = line.told
        call_id = shared.text_of(block.get("tool_use_id"))
        failed = block.get("is_error") is True
        code = _EXIT.match(text) if failed else None
        status = "error" if failed or _is_fault(block) else "ok"
        result = Result(call_id, text, int(code[1]) if code else None, status)
        refused = failed and bool(_REFUSED.match(text) or _REFUSED.match(line.told))
        refused = refused or line.refused
        answers.append(Answer(place, line.number, result, line.at, refused))
    return answers


def _is_fault(block: dict[str, Any]) -> bool:
    """Tell whether a tool of the service, which has no flag of its own, gave an error back."""
    return str(mapping(block.get("content")).get("type")).endswith("_error")


def _call(block: dict[str, Any]) -> Call:
    name, arguments = block.get("name"), block.get("input")
    (call,) = shared.calls_from(
        [{"id": block.get("id"), "function": {"name": name, "arguments": arguments}}]
    )
    command = mapping(call.arguments).get("command") if call.name == "Bash" else None
    return replace(call, text=command) if isinstance(command, str) else call


def _answered(call: Call, got: list[Answer]) -> Call:
    if not got:
        return call
    last = got[-1].result
    return replace(
        call,
        observation=shared.joined([one.result.text for one in got]),
        exit_code=last.exit_code,
        status=last.status,
    )


def usage_in(used: dict[str, Any], cost: Any) -> Usage | None:
    """Return what was used; the parts of the prompt that came from a cache are in it."""
    parts = [shared.integer(used.get(name)) or 0 for name in _INPUT]
    return shared.usage_of(sum(parts), used.get("output_tokens"), cost)
