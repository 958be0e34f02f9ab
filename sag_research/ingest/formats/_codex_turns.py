"""Turns of a Codex session: replies of several items, their calls, results and tokens."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from msgspec.structs import replace

from sag_research.ingest.formats import _shared as shared
from sag_research.ingest.formats._codex_calls import (
    CALLS,
    OUTPUTS,
    Told,
    call_in,
    is_refused,
    result_of,
    told_in,
)
from sag_research.ingest.formats._codex_lines import Line, Rollout, is_injected, text_parts
from sag_research.ingest.formats._openhands_turns import Turn, Turns, mapping
from sag_research.model import Step, Usage

__all__ = ["Conversation", "Facts", "facts_of", "prompt_in", "total"]

_ECHOES: Final = {
    "agent_message": "assistant",
    "agent_reasoning": "assistant",
    "agent_reasoning_raw_content": "assistant",
    "user_message": "user",
}
"""Events that say an item again, and who says it."""
_ENDS: Final = {
    "task_complete": "run.completed",
    "turn_complete": "run.completed",
    "turn_aborted": "run.cancelled",
    "error": "run.failed",
}
_STARTS: Final = frozenset({"task_started", "turn_started"})


@dataclass(frozen=True)
class Facts:
    """What is known of a whole rollout before its lines are read one by one."""

    own: int
    """Number of the first line that is no copy."""
    said: frozenset[int]
    """Hashes of the texts in items: events that say one of them add nothing."""
    told: Mapping[str, Told]
    spent: Mapping[int, Usage]
    """By the number of a line: what a reply took. Amounts that are repeated are left out."""
    usage: Usage | None
    """What all replies that are no copies took."""


def facts_of(rollout: Rollout, own: int) -> Facts:
    """Look through a rollout.

    Parameters
    ----------
    rollout : Rollout
    own : int
        Number of the first line that is no copy.
    """
    items = (line for line in rollout.lines if line.kind == "item")
    said = frozenset(hash(text) for line in items for text in text_parts(line.body))
    spent = _spent(rollout.lines)
    mine = [used for number, used in spent.items() if number >= own]
    return Facts(own, said, told_in(rollout.lines), spent, total(mine))


def _spent(lines: Sequence[Line]) -> dict[int, Usage]:
    """Return what each reply took: of the last one, or what was added to the total.

    The amounts are told again with each change of the rate limits.
    """
    found: dict[int, Usage] = {}
    before: Any = None
    known = (0, 0)
    for number, line in enumerate(lines):
        info = mapping(line.body.get("info"))
        if line.kind != "event" or line.type != "token_count" or not info:
            continue
        whole, last = (mapping(info.get(f"{one}_token_usage")) for one in ("total", "last"))
        mark = whole or last
        if mark == before:
            continue
        before, now = mark, _amounts(whole)
        used = _amounts(last) if last else (now[0] - known[0], now[1] - known[1])
        if not last and min(used) < 0:
            used = now  # the count began anew
        known = now
        if usage := shared.usage_of(*used, None):
            found[number] = usage
    return found


def _amounts(used: dict[str, Any]) -> tuple[int, int]:
    prompt, reply = (shared.integer(used.get(f"{one}_tokens")) for one in ("input", "output"))
    return prompt or 0, reply or 0


def total(amounts: Collection[Usage]) -> Usage | None:
    """Return the sum of amounts; None if there is none."""
    prompt = sum(one.tokens_in or 0 for one in amounts)
    return shared.usage_of(prompt, sum(one.tokens_out or 0 for one in amounts), None)


def prompt_in(line: Line, said: Collection[int]) -> str:
    """Return what the user says in a line; empty if it is something else, or said again."""
    if line.kind == "item" and line.type == "message" and line.body.get("role") == "user":
        text = shared.text_of(line.body.get("content"))
        return "" if is_injected(text) else text
    if line.kind == "event" and line.type == "user_message":
        text = shared.text_of(line.body.get("message"))
        return "" if hash(text.strip()) in said or is_injected(text) else text
    return ""


@dataclass
class Conversation:
    """One way through a rollout while its lines are read."""

    facts: Facts
    turns: Turns = field(default_factory=Turns)
    starts: list[int] = field(default_factory=list)
    """Numbers of the lines at which turns begin."""
    prompts: list[tuple[int, str]] = field(default_factory=list)
    preamble: list[str] = field(default_factory=list)
    summary: list[str] = field(default_factory=list)
    contexts: list[dict[str, Any]] = field(default_factory=list)
    ended: tuple[str, str] | None = None
    beside: list[Usage] = field(default_factory=list)
    """What was taken by no reply that is here, as by a summary."""
    unasked: int = 0
    _notices: dict[int, list[str]] = field(default_factory=dict)
    _usage: dict[int, Usage] = field(default_factory=dict)
    _begun: dict[str, tuple[int, float | None]] = field(default_factory=dict)
    """By call: its turn, and when it was asked for."""
    _seconds: dict[int, float] = field(default_factory=dict)
    _open: Turn | None = None
    _is_counted: bool = False
    """The tokens of the open reply are known: an item that comes now is of another one."""
    _is_lent: bool = False
    """The open reply has tokens that were told before it."""
    _is_early: bool = False
    """Tokens are told in front of the items of their reply."""
    _waiting: Usage | None = None

    def take(self, number: int, line: Line) -> None:
        """Add a line."""
        if line.kind == "item":
            self._item(number, line)
        elif line.kind == "event":
            self._event(number, line)
        elif line.kind == "context":
            self.contexts.append(line.body)
            self._close()
        elif line.kind == "compacted":
            self.summary.append(shared.text_of(line.body.get("message")))
            self._close()
        elif line.kind == "inter_agent_communication":
            self._hear(number, shared.text_of(line.body.get("content")))

    def close(self) -> None:
        """End the reading."""
        self._close()
        if self._waiting is not None:
            self.beside.append(self._waiting)
            self._waiting = None

    # ---- items

    def _item(self, number: int, line: Line) -> None:
        body, kind = line.body, line.type
        self.ended = None
        if kind == "message" and body.get("role") == "assistant":
            self._reply(number, line.at).thoughts += [shared.text_of(body.get("content")).strip()]
        elif kind == "message":
            self._say(number, line)
        elif kind == "agent_message":
            self._hear(number, shared.text_of(body.get("content")))
        elif kind == "reasoning":
            self._reply(number, line.at).thoughts += text_parts(body)
        elif kind in CALLS:
            self._ask(number, line)
        elif kind in OUTPUTS:
            self._answer(number, line)

    def _reply(self, number: int, at: float | None) -> Turn:
        if self._open is None or self._is_counted:
            self._close()
            self._open = self.turns.reply(None, at if number >= self.facts.own else None)
            self.starts.append(number)
            if self._waiting is not None:
                self._usage[len(self.starts) - 1] = self._waiting
                self._waiting, self._is_lent = None, True
        return self._open

    def _close(self) -> None:
        self._is_early = self._is_early or self._is_lent
        self._open, self._is_counted, self._is_lent = None, False, False

    def _ask(self, number: int, line: Line) -> None:
        call = call_in(line.body)
        self.turns.ask(self._reply(number, line.at), call, None)
        if call.id:
            self._begun[call.id] = (len(self.starts) - 1, line.at)

    def _answer(self, number: int, line: Line) -> None:
        self._close()
        call_id = shared.word(line.body.get("call_id")) or ""
        result, seconds = result_of(line.body, self.facts.told.get(call_id, Told()))
        if not self.turns.answer(result, None, None, refused=is_refused(result.text)):
            self.unasked += 1
            self._hear(number, result.text)
            return
        turn, start = self._begun.get(call_id, (-1, None))
        if start is not None and line.at is not None and number >= self.facts.own:
            seconds = max(seconds or 0.0, line.at - start)
        if seconds is not None and turn >= 0:
            self._seconds[turn] = max(seconds, self._seconds.get(turn, 0.0))

    def _say(self, number: int, line: Line) -> None:
        if text := prompt_in(line, self.facts.said):
            self._close()
            self.prompts.append((number, text))
            self.turns.hear(text)
        else:
            self._note(shared.text_of(line.body.get("content")))

    def _hear(self, number: int, text: str) -> None:
        self._close()
        if text.strip() and not self.turns.hear(text):
            self.prompts.append((number, text))

    def _note(self, text: str) -> None:
        """Keep what the harness says: in front of the first turn, or beside the last one."""
        if not text.strip():
            return
        if self.starts:
            self._notices.setdefault(len(self.starts) - 1, []).append(text)
        else:
            self.preamble.append(text)

    # ---- events

    def _event(self, number: int, line: Line) -> None:
        kind = line.type
        if kind == "token_count":
            self._count(self.facts.spent.get(number))
        elif kind in _ECHOES:
            self._echo(number, line)
        elif kind in _STARTS:
            self.ended = None
            self._close()
        elif kind in _ENDS:
            self._close()
            why = shared.word(line.body.get("reason")) if kind == "turn_aborted" else None
            self.ended = (_ENDS[kind], why or kind) if number >= self.facts.own else None
            if kind == "error":
                self._note(shared.text_of(line.body.get("message")))

    def _echo(self, number: int, line: Line) -> None:
        """Take what no item says."""
        if _ECHOES[line.type] == "user":
            if prompt := prompt_in(line, self.facts.said):
                self.ended = None
                self._close()
                self.prompts.append((number, prompt))
                self.turns.hear(prompt)
            return
        texts = [text for text in text_parts(line.body) if hash(text) not in self.facts.said]
        if texts:
            self.ended = None
            self._reply(number, line.at).thoughts += texts

    def _count(self, used: Usage | None) -> None:
        """Give tokens to their reply: the open one, the last one, or the next one."""
        last = len(self.starts) - 1
        if used is None:
            return
        if self._open is not None and not self._is_counted:
            if self._is_lent:
                self.beside.append(self._usage[last])
            self._usage[last] = used
            self._is_counted, self._is_lent = True, False
        elif last >= 0 and last not in self._usage and not self._is_early:
            self._usage[last] = used
        else:
            self._waiting = total([used, *filter(None, [self._waiting])])

    # ---- steps

    def steps(self) -> tuple[Step, ...]:
        """Return the turns as steps."""
        return tuple(map(self._step, range(len(self.starts))))

    def _step(self, number: int) -> Step:
        step, notices = self.turns.all[number].step(), self._notices.get(number)
        inherited = ("inherited",) if self.starts[number] < self.facts.own else ()
        return replace(
            step,
            flags=(*step.flags, *inherited),
            usage=self._usage.get(number),
            seconds=self._seconds.get(number),
            state={"notices": notices} if notices else None,
        )
