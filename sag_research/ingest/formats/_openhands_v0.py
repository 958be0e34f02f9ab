"""The events of OpenHands V0, as they stand in event lists and in ``output.jsonl``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

from msgspec.structs import replace

from sag_research.ingest.formats import _shared as shared
from sag_research.ingest.formats._openhands_turns import (
    Turns,
    clock,
    exit_code,
    key,
    mapping,
    summary,
)
from sag_research.ingest.formats._shared import Result
from sag_research.model import Call, Step, Usage

__all__ = ["EventsV0", "flat", "metrics_usage"]

_SILENT_ACTIONS: Final = frozenset({
    "system", "change_agent_state", "recall", "loop_recovery", "condensation",
    "condensation_request", "null", "start", "pause", "resume", "stop",
})  # fmt: skip
"""What the harness does; the model neither asked for it nor sees it as an answer."""
_SILENT_OBSERVATIONS: Final = frozenset({
    "null", "agent_state_changed", "recall", "condense", "loop_detection",
})  # fmt: skip
_ENVELOPE: Final = frozenset({
    "id", "timestamp", "source", "message", "cause", "action", "observation", "timeout",
    "tool_call_metadata", "llm_metrics",
})  # fmt: skip
_BOOKKEEPING: Final = frozenset({
    "thought", "kernel_init_code", "is_confirmed", "confirmation_state", "security_risk",
    "action_risk",
})  # fmt: skip
"""Arguments of an action that the harness adds to what the model said."""
_TEXTS: Final = {"run": "command", "run_ipython": "code"}
_STATES: Final = {
    "finished": "run.completed",
    "error": "run.failed",
    "rejected": "run.abandoned",
    "stopped": "run.cancelled",
}


def flat(history: Sequence[Any]) -> Iterator[Any]:
    """Yield the events of a history, in which old files keep pairs of action and observation."""
    for entry in history:
        if isinstance(entry, list):
            yield from entry
        else:
            yield entry


def metrics_usage(metrics: Any) -> Usage | None:
    """Return the totals of ``metrics``; replies that are listed twice count once.

    Examples
    --------
    >>> metrics_usage({"accumulated_cost": 0.0, "token_usages": [
    ...     {"response_id": "a", "prompt_tokens": 3, "completion_tokens": 1},
    ...     {"response_id": "a", "prompt_tokens": 3, "completion_tokens": 2}]})
    Usage(tokens_in=3, tokens_out=2, cost_usd=None)
    """
    found = mapping(metrics)
    total = mapping(found.get("accumulated_token_usage"))
    if not total:
        usages = replies(found).values()
        total = {
            name: sum(shared.integer(one.get(name)) or 0 for one in usages)
            for name in ("prompt_tokens", "completion_tokens")
        }
    return shared.usage_of(
        total.get("prompt_tokens"), total.get("completion_tokens"), found.get("accumulated_cost")
    )


def replies(metrics: Any) -> dict[str, dict[str, Any]]:
    """Return ``token_usages`` by response, the last one of each; without an id each is one."""
    listed = mapping(metrics).get("token_usages")
    entries = map(mapping, listed if isinstance(listed, list) else [])
    return {
        key(one.get("response_id")) or f"(number {number})": one
        for number, one in enumerate(entries)
    }


class EventsV0:
    """Reads events one by one; the run is complete when all were taken.

    Attributes
    ----------
    goal : str
        What the user asked first.
    model : str or None
        Name of the model in the first reply that has one.
    state : str or None
        The last state of the agent, or ``finish`` after the action of that name.
    usage : Usage or None
        The last totals that an event carries.
    silent : Counter
        Events that are part of no step, by kind.
    strange : int
        Entries that are no events.
    """

    def __init__(self) -> None:
        self.goal = ""
        self.model: str | None = None
        self.agent_class: str | None = None
        self.state: str | None = None
        self.usage: Usage | None = None
        self.silent: Counter[str] = Counter()
        self.strange = 0
        self._turns = Turns()
        self._others: set[str] = set()
        """Numbers of actions that are no call of the model; a number may be used again."""
        self._last_was_message = False

    def take(self, history: Sequence[Any]) -> EventsV0:
        """Take the events of a history and return the object itself."""
        for event in flat(history):
            if event is None:
                continue  # the missing half of a pair
            action = shared.word(mapping(event).get("action"))
            observation = shared.word(mapping(event).get("observation"))
            if action:
                self._action(event, action)
            elif observation:
                self._observation(event, observation)
            else:
                self.strange += 1
        return self

    def steps(self, metrics: Any = None) -> tuple[Step, ...]:
        """Return the steps; tokens that no event carries are taken from ``metrics``."""
        counted = replies(metrics)
        for turn in self._turns.all:
            one = counted.get(turn.response or "")
            if turn.usage is None and one is not None:
                turn.usage = _tokens(one)
        return tuple(turn.step() for turn in self._turns.all)

    def notes(self) -> list[str]:
        """Say what became no step."""
        strange = (
            [f"{self.strange} entries are no events and were left out"] if self.strange else []
        )
        return [*strange, *summary(self.silent, "are part of no step")]

    @property
    def end(self) -> str | None:
        """Type of the event that ends the run, where the source says that it ended."""
        if self.state == "finish":
            return "run.completed"
        return _STATES.get(self.state or "")

    # ---- actions

    def _action(self, event: dict[str, Any], action: str) -> None:
        args = _args(event, "args")
        self._learn(event)
        if (number := key(event.get("id"))) is not None:
            self._others.add(number)
        if action in _SILENT_ACTIONS:
            self.silent[action] += 1
            self.agent_class = self.agent_class or shared.word(args.get("agent_class"))
        elif self._is_users(event, action):
            self._user(event, action, args)
        else:
            self._reply(event, action, args)

    def _is_users(self, event: dict[str, Any], action: str) -> bool:
        source = shared.word(event.get("source"))
        if source is not None:
            return source != "agent"
        # events without a source: the user speaks first, and again when the agent has spoken
        return action == "message" and (not self._turns.all or self._last_was_message)

    def _user(self, event: dict[str, Any], action: str, args: dict[str, Any]) -> None:
        self._last_was_message = False
        text = shared.text_of(args.get("content")) if action == "message" else ""
        if text and not self._turns.all and not self.goal:
            self.goal = text
        elif not text or not self._turns.hear(text):
            self.silent[f"user's {action}"] += 1

    def _reply(self, event: dict[str, Any], action: str, args: dict[str, Any]) -> None:
        about = mapping(event.get("tool_call_metadata"))
        response = mapping(about.get("model_response"))
        number = key(event.get("id"))
        turn = self._turns.reply(key(response.get("id")), clock(event.get("timestamp")))
        self._last_was_message = action == "message"
        said = _message(response)
        self.model = self.model or shared.word(response.get("model"))
        turn.usage = _tokens(mapping(response.get("usage"))) or turn.usage
        if action == "message":
            turn.thoughts.append(shared.text_of(args.get("content")) or _thought(said))
            return
        self._others.discard(number or "")
        thought = "" if action == "think" else shared.text_of(args.get("thought"))
        turn.thoughts.append(thought or _thought(said))
        self._turns.ask(turn, _call(action, args, about, said), number)
        if action == "finish":
            self.state = self.state or "finish"

    # ---- observations

    def _observation(self, event: dict[str, Any], kind: str) -> None:
        extras = _args(event, "extras")
        self._learn(event)
        if kind == "agent_state_changed":
            self.state = shared.word(extras.get("agent_state")) or self.state
        cause = key(event.get("cause"))
        if kind in _SILENT_OBSERVATIONS:
            self.silent[kind] += 1
            return
        self._last_was_message = False
        result, at = _result(event, kind, extras), clock(event.get("timestamp"))
        refused = kind == "user_rejected"
        if cause not in self._others:
            if self._turns.answer(result, cause, at, refused=refused):
                return
            if cause is None and not result.call_id and self._turns.answer_last(result, at):
                return
        if kind == "error" and self._turns.all:
            self._turns.all[-1].corrections.append(result.text)
        elif not result.text or not self._turns.hear(result.text):
            self.silent[kind] += 1

    def _learn(self, event: dict[str, Any]) -> None:
        if "llm_metrics" in event:
            self.usage = metrics_usage(event["llm_metrics"]) or self.usage


def _args(event: dict[str, Any], name: str) -> dict[str, Any]:
    """Return what an event holds in ``args`` or ``extras``, or else beside its kind."""
    found = event.get(name)
    if isinstance(found, dict):
        return found
    return {name: value for name, value in event.items() if name not in _ENVELOPE}


def _message(response: dict[str, Any]) -> dict[str, Any]:
    choices = response.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    return mapping(mapping(first).get("message"))


def _thought(said: dict[str, Any]) -> str:
    return (
        shared.text_of(said.get("content")).strip()
        or shared.text_of(said.get("reasoning_content")).strip()
    )


def _tokens(usage: dict[str, Any]) -> Usage | None:
    return shared.usage_of(usage.get("prompt_tokens"), usage.get("completion_tokens"), None)


def _call(action: str, args: dict[str, Any], about: dict[str, Any], said: dict[str, Any]) -> Call:
    """Make a call: what the model said where that is kept, else what the harness made of it."""
    call_id = shared.text_of(about.get("tool_call_id"))
    known = [call for call in shared.calls_from(said.get("tool_calls")) if call.id == call_id]
    if not call_id or not known:
        kept = {name: value for name, value in args.items() if _is_said(action, name, value)}
        function = {"name": shared.word(about.get("function_name")) or action, "arguments": kept}
        known = list(shared.calls_from([{"id": call_id, "function": function}]))
    text = shared.word(args.get(_TEXTS.get(action, "")))
    return known[0] if text is None else replace(known[0], text=text)


def _is_said(action: str, name: str, value: Any) -> bool:
    if name == "thought" and action == "think":
        return True
    return name not in _BOOKKEEPING and value not in (None, False, "", [], {})


def _result(event: dict[str, Any], kind: str, extras: dict[str, Any]) -> Result:
    found = mapping(extras.get("metadata"))
    code = exit_code(extras.get("exit_code"), found.get("exit_code"), event.get("exit_code"))
    status = "unknown" if code is None else ("error" if code else "ok")
    if kind in ("error", "user_rejected"):
        status = "error"
    call_id = shared.word(mapping(event.get("tool_call_metadata")).get("tool_call_id"))
    return Result(call_id, shared.text_of(event.get("content")), code, status)
