"""The events of the OpenHands SDK (V1): a tree of events becomes runs with their steps."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from msgspec.structs import replace

from sag_research.ingest.formats import _shared as shared
from sag_research.ingest.formats._openhands_tree import chains
from sag_research.ingest.formats._openhands_turns import (
    Turns,
    as_typed,
    clock,
    exit_code,
    key,
    mapping,
    summary,
)
from sag_research.ingest.formats._shared import Result
from sag_research.ingest.formats._tree import Branch
from sag_research.model import Call, Step, Trajectory, Usage

__all__ = ["UNREADABLE", "is_sdk", "sdk_runs"]

UNREADABLE: Final = "(unreadable)"
"""Kind that a reader gives to an event whose bytes it could not read."""

_SILENT: Final = frozenset({
    "ConversationStateUpdateEvent", "SystemPromptEvent", "Condensation", "CondensationRequest",
    "CondensationSummaryEvent", "PauseEvent", "InterruptEvent", "TokenEvent",
    "LLMCompletionLogEvent", "StreamingDeltaEvent", "ConversationErrorEvent",
    "HookExecutionEvent", "ConversationIterationLimitEvent", UNREADABLE,
})  # fmt: skip
"""Kinds that are known and part of no step."""
_RESULTS: Final = frozenset({"ObservationEvent", "UserRejectObservation", "AgentErrorEvent"})
_ENDS: Final = {
    "finished": "run.completed",
    "finish": "run.completed",
    "error": "run.failed",
    "stuck": "run.failed",
}
_MOST_COPIES: Final = 1_000_000
"""Events of turns that are read again for branches which leave inside of a turn."""
_LOOK: Final = 20
"""Entries that are looked at to tell events of the SDK from others."""


def is_sdk(history: Sequence[Any]) -> bool:
    """Tell whether a history holds events of the SDK.

    Examples
    --------
    >>> is_sdk([{"kind": "ActionEvent", "id": "a"}]), is_sdk([{"action": "run", "kind": "x"}])
    (True, False)
    """
    return any(
        shared.word(mapping(one).get("kind")) and not ({"args", "extras"} & set(one))
        for one in history[:_LOOK]
        if isinstance(one, dict) and not isinstance(one.get("action"), str)
    )


def sdk_runs(
    history: Sequence[Any], task_id: str, leaf: str | None = None
) -> tuple[list[Trajectory], list[str]]:
    """Make runs of a log of events.

    Parameters
    ----------
    history : sequence
        The events in the order of the log; what is no object costs itself.
    task_id : str
    leaf : str, optional
        Id of the event that the conversation stands at.

    Returns
    -------
    runs : list of Trajectory
        The first one leads to the leaf unless there are several roots; a run that left another
        one comes behind it. A branch in which the model said nothing is no run.
    notes : list of str
        What became no step, and what is wrong with the tree.
    """
    events = [one for one in history if isinstance(one, dict)]
    notes = []
    if strange := len(history) - len(events):
        notes.append(f"{strange} entries are no events and were left out")
    ids = [key(one.get("id")) for one in events]
    found, problems = chains(ids, [key(one.get("parent_id")) for one in events], leaf)
    reader = _Log(events, found, task_id)
    runs = reader.runs()
    return runs, [*notes, *problems, *reader.notes()]


class _Log:
    """The events of a source and the runs that they make."""

    def __init__(self, events: list[dict[str, Any]], found: list[Branch], task_id: str) -> None:
        self._events = events
        self._chains = found
        self._task_id = task_id
        self._paths: list[_Path] = []
        self._silent: Counter[str] = Counter()
        self._aside: list[dict[str, Any]] = []
        self._branches = 0
        self._copies = _MOST_COPIES

    def notes(self) -> list[str]:
        """Say what became no step."""
        unasked = sum(path.unasked for path in self._paths)
        asked = [f"{unasked} results name a call that is not in their run"] if unasked else []
        bare = [f"{self._branches} branches hold no turn of the model"] if self._branches else []
        return [*summary(self._silent, "are part of no step"), *asked, *bare]

    def runs(self) -> list[Trajectory]:
        """Return the runs, each behind the one that it left."""
        kept: list[_Path] = []
        for chain in self._chains:
            path = self._path(chain)
            self._paths.append(path)
            self._silent += path.silent
            if path.own_turns:
                path.number = len(kept)
                kept.append(path)
            elif len(self._chains) > 1:
                self._branches += 1
                told = (self._events[node] for node in chain.nodes)
                self._aside += [one for one in told if shared.word(one.get("kind")) not in _SILENT]
        kept = kept or self._paths[:1]
        return [self._trajectory(path, len(kept) > 1) for path in kept]

    def _path(self, chain: Branch) -> _Path:
        """Read a chain, together with the beginning of the turn in which it left another one."""
        parent = None if chain.parent is None else self._paths[chain.parent]
        path = _Path()
        branch: int | None = None
        if parent is not None:
            parent, copied, branch, path.first = parent.before(chain.at)
            self._copies -= len(copied)
            if self._copies < 0 and branch is not None:
                copied, branch, path.first = [], None, path.first + 1
            for node in copied:
                path.take(node, self._events[node])
            path.forget_what_was_copied()
        path.parent, path.branch = parent, branch
        path.copied_turns = len(path.starts)
        for node in chain.nodes:
            path.take(node, self._events[node])
        return path

    def _trajectory(self, path: _Path, several: bool) -> Trajectory:
        parent = path.parent
        config: dict[str, Any] = {"read_from": "events"}
        if path.opaque:
            config["opaque_events"] = path.opaque
        if self._aside and path.number == 0:
            config["side_events"] = self._aside
        if path.usage is not None and several:
            config["conversation_usage"] = {
                "tokens_in": path.usage.tokens_in,
                "tokens_out": path.usage.tokens_out,
                "cost_usd": path.usage.cost_usd,
            }
        steps, shared_step = path.own_steps()
        return Trajectory(
            task_id=self._task_id,
            goal=shared.problem_text(path.goal),
            steps=steps,
            repo=shared.repo_of(self._task_id),
            agent="openhands",
            model=path.model,
            record=str(path.number) if several else None,
            end=_ENDS.get(path.state or ""),
            exit_status=path.state,
            usage=None if several else path.usage,
            parent=None if parent is None else str(parent.number),
            parent_step=None if parent is None else shared_step,
            config=config,
        )


@dataclass
class _Path:
    """The events of one run, from the turn in which it left another one, or from the start."""

    parent: _Path | None = None
    branch: int | None = None
    """Number of the turn in the parent in which it was left."""
    number: int = 0
    first: int = 0
    """Number of its first turn here, counted from the start of the whole run."""
    nodes: list[int] = field(default_factory=list)
    places: dict[int, int] = field(default_factory=dict)
    """Where an event stands in ``nodes``."""
    starts: list[int] = field(default_factory=list)
    """Places in ``nodes`` at which turns begin."""
    copied_turns: int = 0
    turns: Turns = field(default_factory=Turns)
    goal: str = ""
    model: str | None = None
    state: str | None = None
    usage: Usage | None = None
    silent: Counter[str] = field(default_factory=Counter)
    opaque: list[dict[str, Any]] = field(default_factory=list)
    unasked: int = 0
    acp: dict[str, list[Result]] = field(default_factory=dict)

    @property
    def own_turns(self) -> int:
        """Turns that begin here, and not in the run that was left."""
        return len(self.starts) - self.copied_turns

    def before(self, node: int | None) -> tuple[_Path | None, list[int], int | None, int]:
        """Say how to go on from one of the events.

        Returns
        -------
        parent : _Path or None
            This run, or the one that it left if the model said nothing here.
        nodes : list of int
            The events from the start of the turn to the event.
        branch : int or None
            Number of that turn here; None if there is no turn yet.
        first : int
            Number of that turn, or of the next one, counted from the start of the whole run.
        """
        place = -1 if node is None else self.places[node]
        turn = bisect_right(self.starts, place) - 1
        start = self.starts[turn] if turn >= 0 else 0
        copied = self.nodes[start : place + 1]
        if not self.own_turns:
            return self.parent, copied, self.branch, self.first
        return self, copied, (turn if turn >= 0 else None), self.first + max(turn, 0)

    def forget_what_was_copied(self) -> None:
        """Keep the turn, but none of the account: that is the other run's."""
        self.silent, self.opaque, self.unasked = Counter(), [], 0
        self.state = self.usage = None

    def own_steps(self) -> tuple[tuple[Step, ...], int]:
        """Return the steps that are this run's own, and the number of the last one it shares."""
        steps = tuple(turn.step() for turn in self.turns.all)
        if self.parent is None:
            return steps, -1
        if self.branch is None or not self.copied_turns:
            return steps, self.first - 1
        if steps[0] == self.parent.turns.all[self.branch].step():
            return steps[1:], self.first
        flags = (*steps[0].flags, "inherited", "shared-reply")
        return (replace(steps[0], usage=None, flags=flags), *steps[1:]), self.first - 1

    # ---- events

    def take(self, node: int, event: dict[str, Any]) -> None:
        """Add an event."""
        self.places[node] = len(self.nodes)
        self.nodes.append(node)
        before = len(self.turns.all)
        kind = shared.word(event.get("kind")) or "(no kind)"
        if kind == "ActionEvent":
            self._action(event)
        elif kind == "MessageEvent":
            self._message(event)
        elif kind == "ACPToolCallEvent":
            self._acp(event)
        elif kind in _RESULTS:
            self._result(event, kind)
        else:
            self._other(event, kind)
        if len(self.turns.all) > before:
            self.starts.append(len(self.nodes) - 1)

    def _other(self, event: dict[str, Any], kind: str) -> None:
        self.silent[kind] += 1
        if kind == "ConversationErrorEvent":
            self.state = "error"
        elif kind == "ConversationStateUpdateEvent":
            self._learn(event.get("key"), event.get("value"))
        elif kind not in _SILENT:
            self.opaque.append(event)

    def _learn(self, name: Any, value: Any) -> None:
        if name == "execution_status":
            self.state = shared.word(value) or self.state
        elif name == "stats":
            self.usage, model = _totals(value)
            self.model = self.model or model
        elif name == "full_state":
            for inner in ("execution_status", "stats"):
                if inner in mapping(value):
                    self._learn(inner, mapping(value)[inner])

    def _action(self, event: dict[str, Any]) -> None:
        turn = self.turns.reply(key(event.get("llm_response_id")), clock(event.get("timestamp")))
        thought = shared.text_of(event.get("thought")).strip()
        turn.thoughts.append(thought or shared.text_of(event.get("reasoning_content")).strip())
        call = _call(event)
        if event.get("action") is None:
            turn.not_run.add(len(turn.calls))
        self.turns.ask(turn, call, key(event.get("id")))
        if call.name == "finish":
            self.state = self.state or "finish"

    def _message(self, event: dict[str, Any]) -> None:
        message = mapping(event.get("llm_message"))
        text = shared.text_of(message.get("content"))
        if event.get("source") == "agent":
            response = key(event.get("llm_response_id"))
            turn = self.turns.reply(response, clock(event.get("timestamp")))
            turn.thoughts.append(text or shared.text_of(message.get("reasoning_content")).strip())
            for call in shared.calls_from(message.get("tool_calls")):
                self.turns.ask(turn, call, None)
            return
        extension = event.get("extended_content")
        text = shared.joined([text, shared.text_of(extension)])
        if not self.turns.hear(text):
            self.goal = "\n\n".join(filter(None, (self.goal, text)))

    def _result(self, event: dict[str, Any], kind: str) -> None:
        call_id, text = shared.word(event.get("tool_call_id")), _text(event, kind)
        observation = mapping(event.get("observation"))
        about = mapping(observation.get("metadata"))
        code = exit_code(observation.get("exit_code"), about.get("exit_code"))
        result = Result(call_id, text, code, _status(kind, observation, code))
        at, refused = clock(event.get("timestamp")), kind == "UserRejectObservation"
        if not self.turns.answer(result, key(event.get("action_id")), at, refused=refused):
            self.unasked += 1
            self.turns.hear(text)

    def _acp(self, event: dict[str, Any]) -> None:
        """Take a call that another agent reports, again and again until it is done."""
        call_id = shared.word(event.get("tool_call_id")) or ""
        at, number = clock(event.get("timestamp")), key(event.get("id"))
        name = shared.word(event.get("tool_kind")) or shared.word(event.get("title")) or "call"
        found = event.get("raw_output")
        text = found if isinstance(found, str) else shared.text_of(event.get("content"))
        status = {"completed": "ok", "failed": "error"}.get(str(event.get("status")), "unknown")
        result = Result(call_id, text, None, "error" if event.get("is_error") is True else status)
        if call_id not in self.acp:
            turn = self.turns.reply(None, at)
            function = {"name": name, "arguments": event.get("raw_input")}
            (call,) = shared.calls_from([{"id": call_id, "function": function}])
            self.turns.ask(turn, call, number)
            self.acp[call_id] = turn.answers[-1]
        self.acp[call_id][:] = [result]


def _call(event: dict[str, Any]) -> Call:
    said, action = mapping(event.get("tool_call")), mapping(event.get("action"))
    made = {name: value for name, value in action.items() if name != "kind" and value is not None}
    name = shared.word(event.get("tool_name")) or shared.word(said.get("name")) or "call"
    arguments = said.get("arguments", made)
    call_id = shared.word(event.get("tool_call_id")) or shared.word(said.get("id")) or ""
    (call,) = shared.calls_from(
        [{"id": call_id, "function": {"name": name, "arguments": arguments}}]
    )
    return as_typed(call)


def _text(event: dict[str, Any], kind: str) -> str:
    if kind == "UserRejectObservation":
        return shared.text_of(event.get("rejection_reason"))
    if kind == "AgentErrorEvent":
        return shared.text_of(event.get("error"))
    found = event.get("observation")
    if not isinstance(found, dict):
        return shared.text_of(found)
    shown = next((found[name] for name in ("content", "output") if found.get(name)), None)
    rest = {name: value for name, value in found.items() if name != "kind"}
    text = shared.text_of(shown) if shown is not None else _opaque(rest)
    return shared.joined([text, shared.text_of(event.get("extended_content"))])


def _opaque(found: dict[str, Any]) -> str:
    """Show what a tool of another maker gave back, where it has no text of its own."""
    if not found or "content" in found:
        return ""
    return json.dumps(found, ensure_ascii=False)


def _status(kind: str, observation: dict[str, Any], code: int | None) -> str:
    if kind != "ObservationEvent" or observation.get("is_error") is True:
        return "error"
    if code is not None:
        return "error" if code else "ok"
    unknown = "exit_code" in observation or "exit_code" in mapping(observation.get("metadata"))
    return "ok" if observation.get("is_error") is False and not unknown else "unknown"


def _totals(stats: Any) -> tuple[Usage | None, str | None]:
    """Add up what the models of a conversation used, and name the one that acts."""
    found = mapping(mapping(stats).get("usage_to_metrics"))
    used = {name: mapping(one) for name, one in found.items()}
    tokens = [mapping(one.get("accumulated_token_usage")) for one in used.values()]
    total = shared.usage_of(
        sum(shared.integer(one.get("prompt_tokens")) or 0 for one in tokens),
        sum(shared.integer(one.get("completion_tokens")) or 0 for one in tokens),
        sum(shared.number(one.get("accumulated_cost")) or 0.0 for one in used.values()),
    )
    acting = next((used[name] for name in ("default", "agent") if name in used), {})
    names = (shared.word(one.get("model_name")) for one in (acting, *used.values()))
    return total, next(filter(None, names), None)
