"""From the events of an Inspect sample to its runs: the agent's, its sub-agents', its branches'."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from sag_research.errors import FormatError
from sag_research.ingest.formats import _shared as shared
from sag_research.ingest.formats._inspect_json import take
from sag_research.ingest.formats._inspect_text import Attachments, calls_of, spoken, thought_of
from sag_research.ingest.formats._openhands_turns import Turn, Turns, clock, mapping
from sag_research.model import Step, Usage

__all__ = ["Events", "Run"]


class _Kind(msgspec.Struct, gc=False):
    event: Any = None


class _Event(msgspec.Struct):
    event: Any = None
    id: Any = None
    span_id: Any = None
    parent_id: Any = None
    type: Any = None
    name: Any = None
    action: Any = None
    timestamp: Any = None
    model: Any = None
    input: list[msgspec.Raw] | None = None
    input_refs: Any = None
    output: Any = None
    cache: Any = None
    result: Any = None
    error: Any = None
    working_time: Any = None
    message_id: Any = None
    agent: Any = None
    events: list[msgspec.Raw] | None = None
    from_anchor: Any = None
    anchor_id: Any = None


class Message(msgspec.Struct, gc=False):
    """A message of a conversation, as far as it is read."""

    id: Any = None
    role: Any = None
    content: Any = None
    tool_calls: Any = None
    tool_call_id: Any = None
    error: Any = None


_KIND: Final = msgspec.json.Decoder(_Kind)
_EVENT: Final = msgspec.json.Decoder(_Event)
_MESSAGE: Final = msgspec.json.Decoder(Message)
_READ: Final = frozenset({
    "model", "tool", "span_begin", "span_end", "step", "subtask", "branch", "anchor",
    "compaction", "sample_limit",
})  # fmt: skip
_JUDGES: Final = frozenset({"scorer", "scorers"})
_INNER: Final = frozenset({"tool", "handoff", "subtask"})
_NOT_RUN: Final = frozenset({"parsing", "approval"})
_NESTED: Final = 20
_TAIL: Final = 10_000
"""Messages between two replies."""


@dataclass
class Run:
    """One agent's turns while the events come in."""

    parent: Run | None = None
    parent_step: int = -1
    relation: str = "subagent"
    name: str | None = None
    turns: Turns = field(default_factory=Turns)
    opening: list[str] = field(default_factory=list)
    system: list[str] = field(default_factory=list)
    orphans: list[str] = field(default_factory=list)
    """Results before the first reply."""
    model: str | None = None
    stop: str | None = None
    failed: int = 0
    compactions: list[int] = field(default_factory=list)
    _known: dict[str, Turn] = field(default_factory=dict)
    _heard: set[Any] = field(default_factory=set)
    _asked: Counter[str] = field(default_factory=Counter)
    _answered: Counter[str] = field(default_factory=Counter)
    _owner: dict[str, int] = field(default_factory=dict)
    _seconds: dict[int, float] = field(default_factory=dict)
    _more: dict[int, tuple[tuple[str, ...], str | None]] = field(default_factory=dict)

    @property
    def last(self) -> int:
        """Number of the latest turn; -1 before the first."""
        return len(self.turns.all) - 1

    def steps(self) -> tuple[Step, ...]:
        """Return the turns as steps."""
        return tuple(self._step(number, turn) for number, turn in enumerate(self.turns.all))

    def _step(self, number: int, turn: Turn) -> Step:
        flags, agent = self._more.get(number, ((), None))
        step = turn.step()
        state = {"agent": agent} if agent else None
        seconds = self._seconds.get(number)
        return replace(step, flags=(*step.flags, *flags), state=state, seconds=seconds)

    def reply(self, message: dict[str, Any], usage: Usage | None, **about: Any) -> Turn | None:
        """Add a reply of the model; None if it is here already, with its latest usage."""
        name = shared.word(message.get("id"))
        if name and name in self._known:
            self._known[name].usage = usage or self._known[name].usage
            return None
        turn = self.turns.reply(name, about.get("at"))
        turn.usage = usage
        turn.thoughts.append(thought_of(message.get("content")))
        for call in calls_of(message):
            self.turns.ask(turn, call, None)
            self._asked[call.id] += 1
            self._owner[call.id] = self.last
        if name:
            self._known[name] = turn
        self._more[self.last] = (about.get("flags", ()), about.get("agent"))
        return turn

    def answer(self, call_id: str, content: Any, error: Any, seconds: float | None) -> bool:
        """Give a call what came back; false if this run did not make it."""
        if not self._asked[call_id]:
            return False
        fault = mapping(error)
        said = shared.text_of(fault.get("message")) if fault else shared.text_of(error)
        text = shared.joined(list(dict.fromkeys([spoken(content), said])))
        result = shared.Result(call_id, text, None, "error" if error else "ok")
        self.turns.answer(result, None, None, refused=shared.word(fault.get("type")) in _NOT_RUN)
        self._answered[call_id] += 1
        if seconds is not None:
            owner = self._owner[call_id]
            self._seconds[owner] = self._seconds.get(owner, 0.0) + seconds
        return True

    def hear(self, messages: Iterable[tuple[int, Message]]) -> None:
        """Take what came in after the latest reply; what is known already is left out."""
        for place, message in messages:
            text = spoken(message.content)
            key = shared.word(message.id) or (place, text)
            if key in self._heard:
                continue
            self._heard.add(key)
            if message.role == "tool":
                call_id = shared.text_of(message.tool_call_id)
                if self._answered[call_id] < self._asked[call_id]:
                    self.answer(call_id, message.content, message.error, None)
                elif not self._asked[call_id] and not self.turns.hear(text):
                    self.orphans.append(text)
            elif message.role in ("user", "system") and not self.turns.hear(text):
                (self.opening if message.role == "user" else self.system).append(text)

    def restart(self) -> int:
        """Forget the turns so far, which were replayed, and say how many they were."""
        replayed = len(self.turns.all)
        self.turns = Turns()
        for kept in (self._known, self._asked, self._answered, self._owner, self._seconds):
            kept.clear()
        self._more.clear()
        return replayed


@dataclass(frozen=True)
class _Scope:
    """Where in the tree of spans an event stands."""

    run: Run
    judged: bool = False
    inner: bool = False
    agent: str | None = None


class Events:
    """The runs that the events of one sample tell of.

    Parameters
    ----------
    texts : Attachments
    pool : sequence of Raw
        Messages to which events refer by number.
    """

    def __init__(self, texts: Attachments, pool: Sequence[msgspec.Raw]) -> None:
        self.main = Run()
        self.children: list[Run] = []
        self.counts: Counter[str] = Counter()
        self.notes: Counter[str] = Counter()
        self.limit: str | None = None
        self._texts, self._pool = texts, pool
        self._spans: dict[str, _Scope] = {}
        self._steps: list[_Scope] = []
        self._working: set[str] = set()  # agents of the main run that have not ended
        self._anchors: dict[str, tuple[Run, int]] = {}

    def take(
        self, events: Iterable[msgspec.Raw], inside: _Scope | None = None, depth: int = 0
    ) -> None:
        """Read events in order; only those of the kinds that tell of turns are built."""
        for raw in events:
            try:
                kind = shared.word(take(raw, _KIND).event)
                self.counts[kind or "unknown"] += 1
                if kind in _READ:
                    event = take(raw, _EVENT)
                    event.type = shared.word(event.type)
                    self._one(event, inside or self._scope(event), depth)
            except FormatError:
                self.notes["events could not be read"] += 1

    def _scope(self, event: _Event) -> _Scope:
        span = self._spans.get(event.span_id) if isinstance(event.span_id, str) else None
        return span or (self._steps[-1] if self._steps else _Scope(self.main))

    def _one(self, event: _Event, scope: _Scope, depth: int) -> None:
        if event.event == "model":
            self._model(event, scope)
        elif event.event in ("tool", "subtask"):
            self._tool(event, scope, depth)
        elif event.event == "span_begin":
            self._span(event, scope)
        elif event.event == "span_end" and isinstance(event.id, str):
            self._working.discard(event.id)
        elif event.event == "step":
            self._step(event)
        elif event.event == "branch":
            self._branch(event, scope.run)
        elif event.event == "anchor" and isinstance(event.anchor_id, str):
            self._anchors[event.anchor_id] = (scope.run, scope.run.last)
        elif event.event == "compaction":
            scope.run.compactions.append(scope.run.last)
        elif event.event == "sample_limit":
            self.limit = event.type

    # ---- the tree

    def _span(self, event: _Event, around: _Scope) -> None:
        parent = self._spans.get(event.parent_id) if isinstance(event.parent_id, str) else None
        if isinstance(event.id, str):
            self._spans[event.id] = self._below(event, parent or around)

    def _step(self, event: _Event) -> None:
        """Follow the spans of older logs, which have no ids."""
        if event.action == "begin":
            around = self._steps[-1] if self._steps else _Scope(self.main)
            self._steps.append(self._below(event, around))
        elif self._steps:
            self._steps.pop()

    def _below(self, event: _Event, around: _Scope) -> _Scope:
        name = shared.word(event.name) or shared.word(event.agent)
        if around.judged or event.type in _JUDGES:
            return _Scope(around.run, judged=True)
        if event.type in _INNER or (event.type == "agent" and around.inner):
            return _Scope(self._child(around, name, "subagent"), inner=True)
        if event.type == "branch":
            return _Scope(self._child(around, name, "fork"), inner=True, agent=around.agent)
        if event.type == "agent" and self._working:  # both at once: their turns do not mix
            return _Scope(self._child(around, name, "subagent"), inner=True)
        if event.type == "agent":
            if isinstance(event.id, str) and event.event == "span_begin":
                self._working.add(event.id)
            return _Scope(around.run, inner=True, agent=name)
        return around

    def _child(self, around: _Scope, name: str | None, relation: str) -> Run:
        run = Run(around.run, around.run.last, relation, name)
        self.children.append(run)
        return run

    def _branch(self, event: _Event, run: Run) -> None:
        """Leave out what a branch replayed before it went its own way."""
        if run.relation != "fork" or run.parent is None:
            return
        if replayed := run.restart():
            self.notes["replies were replayed at the start of a branch"] += replayed
        place = self._anchors.get(event.from_anchor) if isinstance(event.from_anchor, str) else None
        if place is not None and place[0] is run.parent:
            run.parent_step = place[1]

    # ---- turns

    def _model(self, event: _Event, scope: _Scope) -> None:
        if scope.judged:
            self.notes["calls of the model are the scorer's"] += 1
            return
        run, output = scope.run, mapping(event.output)
        choices = output.get("choices")
        first = mapping(choices[0]) if isinstance(choices, list) and choices else {}
        message = mapping(self._texts.put_back(first.get("message")))
        run.hear(self._tail(event))
        run.model = shared.word(event.model) or run.model
        if not message or (
            event.error and not (message.get("content") or message.get("tool_calls"))
        ):
            run.failed += 1  # an error may stand with an empty reply
            return
        if isinstance(choices, list) and len(choices) > 1:
            self.notes["other choices of a reply are left out"] += len(choices) - 1
        cached = event.cache == "read"
        usage = None if cached else usage_of(output.get("usage"))
        flags = ("cached",) if cached else ()
        run.stop = shared.word(first.get("stop_reason")) or run.stop
        run.reply(message, usage, at=clock(event.timestamp), flags=flags, agent=scope.agent)
        if isinstance(message.get("id"), str):
            self._anchors[message["id"]] = (run, run.last)

    def _tail(self, event: _Event) -> list[tuple[int, Message]]:
        """Return the messages behind the last reply in what the model was sent."""
        sent = event.input or []
        if not sent and isinstance(event.input_refs, list):
            return self.behind(self._pool, _places(event.input_refs, len(self._pool)))
        return self.behind(sent, reversed(range(len(sent))))

    def behind(
        self, messages: Sequence[msgspec.Raw], backwards: Iterable[int]
    ) -> list[tuple[int, Message]]:
        """Return the messages behind the last reply, each with its place."""
        found = []
        for place in islice(backwards, _TAIL):
            message = self.message(messages[place])
            if message is None or message.role == "assistant":
                break
            found.append((place, message))
        return found[::-1]

    def message(self, raw: msgspec.Raw) -> Message | None:
        """Read a message, with its attachments; None if it cannot be read."""
        try:
            message = take(raw, _MESSAGE)
        except FormatError:
            self.notes["messages could not be read"] += 1
            return None
        message.content = self._texts.put_back(message.content)
        message.error = self._texts.put_back(message.error)
        return message

    def _tool(self, event: _Event, scope: _Scope, depth: int) -> None:
        if not scope.judged and event.event == "tool":
            self._result(event, scope.run)
        if event.events and depth < _NESTED:
            inner = scope
            if not scope.judged:
                name = shared.word(event.agent) or shared.word(event.name)
                inner = _Scope(self._child(scope, name, "subagent"), inner=True)
            self.take(event.events, inner, depth + 1)

    def _result(self, event: _Event, run: Run | None) -> None:
        call_id = shared.text_of(event.id)
        content = self._texts.put_back(event.result)
        error = self._texts.put_back(event.error)
        asked: Run | None = run
        while asked is not None:  # a call's own span stands below the run that made it
            if asked.answer(call_id, content, error, shared.number(event.working_time)):
                if isinstance(event.message_id, str):
                    self._anchors[event.message_id] = (asked, asked.last)
                return
            asked = asked.parent
        self.notes["results answer no call"] += 1

    def said(self, messages: Iterable[msgspec.Raw]) -> None:
        """Read the main run from its messages alone."""
        for place, raw in enumerate(messages):
            message = self.message(raw)
            if message is None:
                continue
            if message.role == "assistant":
                about = {"id": message.id, "content": message.content}
                calls = self._texts.put_back(message.tool_calls)
                self.main.reply({**about, "tool_calls": calls}, None)
            else:
                self.main.hear([(place, message)])

    def kept(self) -> Iterator[tuple[Run, Run, int]]:
        """Yield each child that has turns, with the run it belongs to and the step there."""
        for run in self.children:
            child = run
            while child.parent is not None and child.parent.parent and not child.parent.turns.all:
                child = child.parent
            if run.turns.all and child.parent is not None:
                yield run, child.parent, child.parent_step


def _places(references: list[Any], size: int) -> Iterator[int]:
    """Yield, from the last one on, the places in the pool to which ranges refer."""
    for one in reversed(references):
        if _is_range(one):
            yield from reversed(range(*(min(int(end), size) for end in one[:2])))


def _is_range(value: Any) -> bool:
    if not isinstance(value, list) or len(value) < 2:
        return False
    numbers = [shared.integer(one) for one in value[:2]]
    return all(one is not None and one >= 0 for one in numbers)


def usage_of(found: Any) -> Usage | None:
    """Return the tokens of a reply; what came from a cache is part of what went in.

    Examples
    --------
    >>> usage_of({"input_tokens": 10, "input_tokens_cache_read": 90, "output_tokens": 5,
    ...           "total_tokens": 105}).tokens_in
    100
    >>> usage_of({"input_tokens": 100, "input_tokens_cache_read": 90, "output_tokens": 5,
    ...           "total_tokens": 105}).tokens_in
    100
    """
    usage = mapping(found)
    names = ("input_tokens", "input_tokens_cache_read", "input_tokens_cache_write")
    sent, *cached = (shared.integer(usage.get(name)) or 0 for name in names)
    given = shared.integer(usage.get("output_tokens"))
    total = shared.integer(usage.get("total_tokens")) or 0
    if total >= sent + sum(cached) + (given or 0):
        sent += sum(cached)
    return shared.usage_of(sent, given, usage.get("total_cost"))
