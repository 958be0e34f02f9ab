"""Turns of a tau2 simulation: the agent's replies among those of the customer and the tools."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from sag_research.ingest.formats import _shared as shared
from sag_research.ingest.formats._openhands_turns import Turn, Turns, clock, mapping
from sag_research.model import Step, Usage

__all__ = ["Message", "Talk", "turns_of"]

_ZONES: Final = 900.0
"""Zones differ by quarters of an hour."""
_WORLD: Final = 14 * 3600.0


class Message(msgspec.Struct, gc=False):
    """A message of a simulation, or a participant's part of a tick."""

    role: Any = None
    content: Any = None
    tool_calls: Any = None
    tool_messages: Any = None
    id: Any = None
    requestor: Any = None
    error: Any = None
    timestamp: Any = None
    cost: Any = None
    usage: Any = None
    raw_data: Any = None


class Talk(NamedTuple):
    """What was said, from the agent's side."""

    steps: tuple[Step, ...]
    opening: str
    scripted: list[dict[str, Any]]
    """What the agent did not say itself."""
    user_tools: list[dict[str, Any]]
    """Calls of the customer before the agent's first turn."""
    model: str | None
    notes: list[str]


def turns_of(messages: Sequence[Any] | None, ticks: Any) -> Talk:
    """Read the turns from messages or, if there are none, from ticks."""
    reader = _Reader()
    if messages:
        found = [one for one in messages if isinstance(one, Message)]
        if lost := len(messages) - len(found):
            reader.notes.append(f"{lost} messages are no objects")
        reader.read(list(_flat(found)))
    elif isinstance(ticks, list):
        reader.listen(ticks)
    return reader.talk()


def _flat(messages: Sequence[Message]) -> Iterator[Message]:
    """Take apart messages that hold the results of several tools."""
    for message in messages:
        if isinstance(message.tool_messages, list):
            parts = [_message(one) for one in message.tool_messages if isinstance(one, dict)]
            yield from parts
        else:
            yield message


def _message(value: dict[str, Any]) -> Message:
    return Message(**{name: value.get(name) for name in Message.__struct_fields__})


@dataclass
class _Reader:
    turns: Turns = field(default_factory=Turns)
    opening: list[str] = field(default_factory=list)
    scripted: list[dict[str, Any]] = field(default_factory=list)
    user_tools: list[dict[str, Any]] = field(default_factory=list)
    model: str | None = None
    notes: list[str] = field(default_factory=list)
    _states: dict[int, dict[str, Any]] = field(default_factory=dict)
    _ended: dict[int, float] = field(default_factory=dict)
    _zone: float | None = None
    _silent: set[int] = field(default_factory=set)

    # ---- messages

    def read(self, messages: list[Message]) -> None:
        """Read the messages of a half-duplex simulation in order."""
        self._zone = _zone_of(messages)
        own = [number for number, one in enumerate(messages) if _is_reply(one)]
        first = own[0] if own else 0
        for number, message in enumerate(messages):
            if own and number < first and _is_agents(message):
                self.scripted.append(_plain(message))
            else:
                self._one(message)

    def _one(self, message: Message) -> None:
        if message.role == "assistant":
            self._reply(message)
        elif message.role == "tool" and message.requestor == "user":
            self._user_result(message)
        elif message.role == "tool":
            self._result(message)
        elif message.role == "user":
            self._user_calls(message)
            self._hear(shared.text_of(message.content))

    def _reply(self, message: Message) -> Turn:
        turn = self.turns.reply(None, clock(message.timestamp))
        turn.thoughts.append(shared.text_of(message.content))
        turn.usage = _usage(message)
        self.model = shared.word(mapping(message.raw_data).get("model")) or self.model
        self._calls(turn, message.tool_calls)
        return turn

    def _calls(self, turn: Turn, calls: Any) -> None:
        found = calls if isinstance(calls, list) else []
        own = [one for one in found if mapping(one).get("requestor") != "user"]
        for call in shared.calls_from(own):
            self.turns.ask(turn, call, None)

    def _result(self, message: Message) -> None:
        text = shared.text_of(message.content)
        status = "error" if message.error is True else "ok"
        result = shared.Result(shared.word(message.id), text, None, status)
        if not self.turns.answer(result, None, None):
            self._hear(text)
        at = clock(message.timestamp)
        if at is not None and self.turns.all:
            self._ended[len(self.turns.all) - 1] = at

    def _hear(self, text: str) -> None:
        if text and not self.turns.hear(text):
            self.opening.append(text)

    # ---- the customer's tools

    def _customer(self) -> list[dict[str, Any]]:
        if not self.turns.all:
            return self.user_tools
        state = self._states.setdefault(len(self.turns.all) - 1, {})
        made: list[dict[str, Any]] = state.setdefault("user_tools", [])
        return made

    def _user_calls(self, message: Message) -> None:
        for call in message.tool_calls if isinstance(message.tool_calls, list) else []:
            about = mapping(call)
            kept = {name: about.get(name) for name in ("id", "name", "arguments")}
            self._customer().append(kept)

    def _user_result(self, message: Message) -> None:
        found = self._customer()
        for call in found:
            if call.get("id") == message.id and "observation" not in call:
                call["observation"] = shared.text_of(message.content)
                return
        found.append({"id": message.id, "observation": shared.text_of(message.content)})

    # ---- ticks

    def listen(self, ticks: list[Any]) -> None:
        """Read the ticks of a full-duplex simulation: the agent has the floor, or the customer."""
        turn: Turn | None = None
        words: list[str] = []
        for number, tick in enumerate(map(mapping, ticks)):
            agent, user = _chunk(tick, "agent_chunk"), _chunk(tick, "user_chunk")
            calls = tick.get("agent_tool_calls") or agent.tool_calls
            if _speaks(tick, "agent_chunk") or calls:
                if turn is None:
                    self._heard(words)
                    turn = self._reply(Message(timestamp=tick.get("timestamp")))
                    self._silent.add(len(self.turns.all) - 1)
                self._say(turn, agent, number)
                self._calls(turn, calls)
            elif _speaks(tick, "user_chunk"):
                turn = None
            words.append(shared.text_of(user.content))
            for one in _listed(tick.get("agent_tool_results")):
                self._result(_message(one))
            for one in _listed(tick.get("user_tool_calls")):
                self._customer().append(one)
            for one in _listed(tick.get("user_tool_results")):
                self._user_result(_message(one))
        self._heard(words)

    def _heard(self, words: list[str]) -> None:
        self._hear("".join(words).strip())
        words.clear()

    def _say(self, turn: Turn, chunk: Message, number: int) -> None:
        place = len(self.turns.all) - 1
        if said := shared.text_of(chunk.content):
            turn.thoughts = ["".join([*turn.thoughts, said])]
            self._silent.discard(place)
        turn.usage = _usage(chunk) or turn.usage
        state = self._states.setdefault(place, {"ticks": [number, number]})
        state.setdefault("ticks", [number, number])[1] = number

    # ---- what comes out

    def talk(self) -> Talk:
        """Return all of it."""
        steps = tuple(self._step(number, turn) for number, turn in enumerate(self.turns.all))
        opening = "\n".join(self.opening)
        return Talk(steps, opening, self.scripted, self.user_tools, self.model, self.notes)

    def _step(self, number: int, turn: Turn) -> Step:
        step = turn.step()
        silent = number in self._silent and not step.calls
        started, ended = turn.started, self._ended.get(number)
        lasted = None if started is None or ended is None else ended - started
        zone = self._zone
        return replace(
            step,
            flags=(*step.flags, "speech-without-text") if silent else step.flags,
            started=None if started is None or zone is None else started + zone,
            seconds=lasted if lasted is not None and lasted >= 0 else None,
            state=self._states.get(number),
        )


def _listed(value: Any) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _chunk(tick: dict[str, Any], name: str) -> Message:
    chunk = mapping(tick.get(name))
    message = _message(chunk)
    # the words of a voice are its script; its content may be the sound
    script = chunk.get("audio_script_gold")
    if isinstance(script, str) or chunk.get("is_audio") is True:
        message.content = script if isinstance(script, str) else None
    return message


def _speaks(tick: dict[str, Any], name: str) -> bool:
    chunk = mapping(tick.get(name))
    return chunk.get("contains_speech") is True or bool(_chunk(tick, name).content)


def _is_paid(message: Message) -> bool:
    return bool(mapping(message.usage) or mapping(message.raw_data))


def _is_reply(message: Message) -> bool:
    return bool(message.role == "assistant") and _is_paid(message)


def _is_agents(message: Message) -> bool:
    return bool(
        message.role == "assistant" or (message.role == "tool" and message.requestor != "user")
    )


def _plain(message: Message) -> dict[str, Any]:
    kept = {name: getattr(message, name) for name in ("role", "content", "tool_calls", "id")}
    return {name: value for name, value in kept.items() if value is not None}


def _usage(message: Message) -> Usage | None:
    usage = mapping(message.usage)
    return shared.usage_of(usage.get("prompt_tokens"), usage.get("completion_tokens"), message.cost)


def _zone_of(messages: Sequence[Message]) -> float | None:
    """Return what to add to local times, as the provider's clock in a reply shows it."""
    for message in messages:
        created = shared.number(mapping(message.raw_data).get("created"))
        local = clock(message.timestamp)
        if created is not None and local is not None:
            offset = round((created - local) / _ZONES) * _ZONES
            return offset if abs(offset) <= _WORLD else None
    return None
