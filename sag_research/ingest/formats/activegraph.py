"""ActiveGraph: runtime events of tau2-bench simulations, and traces made from their results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import msgspec

from sag_research.errors import FormatError
from sag_research.ingest._format import Reading
from sag_research.ingest._json import Other, decode, first_lines, outline
from sag_research.ingest._source import Source
from sag_research.ingest.formats import _shared as shared
from sag_research.ingest.formats._openhands_turns import key, mapping
from sag_research.ingest.formats._tau2_turns import Message, turns_of
from sag_research.model import Outcome, OutcomeName, Trajectory

__all__ = ["ActiveGraph"]


class _Event(msgspec.Struct, gc=False):
    event_id: Any = None
    event_type: Any = None
    run_id: Any = None
    task_id: Any = None
    phase: Any = None
    timestamp: Any = None
    message_role: Any = None
    tool_name: Any = None
    payload: Any = None


_LINE: Final = msgspec.json.Decoder(_Event | Other)
_EVENT: Final = {
    "event_id", "event_type", "parent_event_id", "run_id", "task_id", "component", "phase",
    "payload", "state_hash",
}  # fmt: skip
_SAID: Final = ("agent_response", "user_response", "message_observed")
"""Events of the orchestrator that hold a message, each message once."""
_BEGIN: Final = ("orchestrator_run_start", "baseline.task.started")
_ENDED: Final = ("simulation_end", "baseline.evaluation.observed")
_CLOSED: Final = ("orchestrator_run_end", *_ENDED)
_JUDGED: Final = (
    "evaluation_end", "simulation_execution_end", "baseline.evaluation.observed",
)  # fmt: skip
_NOT_JUDGED: Final = {
    "infrastructure_error": "infra",
    "context_window_exceeded": "infra",
    "unexpected_error": "error",
    "user_error": "error",
}
_NEAR: Final = 1e-6
_OPTIONS: Final = {"--agent-llm": "model", "--agent": "agent", "--domain": "domain"}


@dataclass
class _Batch:
    """What the events say of all simulations."""

    run_id: str | None = None
    phase: str | None = None
    domain: str | None = None
    model: str | None = None
    agent: str | None = None


@dataclass
class _Simulation:
    task: str
    messages: list[Message] = field(default_factory=list)
    about: dict[str, Any] = field(default_factory=dict)
    reward: dict[str, Any] = field(default_factory=dict)
    reason: str | None = None
    ended: bool = False
    closed: bool = False
    """No more messages come."""
    failed: bool = False
    mixed: bool = False
    """Another one of this task ran at the same time: the events do not say whose they are."""


class ActiveGraph:
    """ActiveGraph: runtime events of tau2-bench, JSON lines ``{event_id, event_type, payload, …}``.

    Traps that are honoured

    * ``parent_event_id`` is null in four of ten events, so nothing rests on it: events belong to
      a simulation by their task, between its start and its end. Where a task was tried several
      times at once, nothing tells the attempts apart, and they are refused.
    * Most events tell of one message several times (``turn_start``, ``user_generate_end``,
      ``tool_dispatch_end``, …). Each is taken once, as the orchestrator passed it on; the evaluator
      replays tool calls after the end, which are no actions of the agent.
    * The same simulations stand in tau2's ``results.json``, which is there twice. Task ids, model
      and actions are those of the tau2 format, so that a run is found to be a copy.
    * Events have UTC times, the messages in them local ones without a zone: the events' are taken.
      A trace that was made from results (``baseline.…``) has the local ones alone; there the zone
      follows from the provider's clock, or the time is unknown.
    * ``user_stop`` says how the talk ended: the outcome is the reward, success at 1 alone. A reward
      of 0 after an error of the infrastructure or of the simulated customer is unknown.
    * Of the command line in the first event only domain, agent and model are taken: its paths are
      those of somebody's machine.
    * Indexes, summaries and analyses that lie beside the events are no trajectories: they hold
      shortened texts of the same messages.
    """

    name = "activegraph"

    def sniff(self, head: bytes, path: Path) -> float:
        """Claim JSON lines of events with the columns of this event log."""
        seen = (outline(line) for line in first_lines(head))
        found = any(one.root == "object" and one.keys.keys() >= _EVENT for one in seen)
        return 0.95 if found else 0.0

    def read(self, source: Source) -> Reading:
        """Read the simulations."""
        notes: list[str] = []
        refused: list[tuple[str, str]] = []
        reader = _Reader()
        reader.read(_events(source, refused), notes)
        if not reader.found:
            why = "; ".join(": ".join(one) for one in refused[:3])
            raise FormatError("no simulation in these events", why=why)
        return Reading("1", _trajectories(reader, notes, refused), notes, refused)


def _events(source: Source, refused: list[tuple[str, str]]) -> Iterator[_Event]:
    for number, line in enumerate(source.lines(), start=1):
        if not line.strip():
            continue
        try:
            event = decode(line, _LINE)
        except FormatError as error:
            refused.append((f"line {number}", str(error)))
            continue
        if isinstance(event, _Event):
            yield event
        else:
            refused.append((f"line {number}", "no object"))


class _Reader:
    """Sorts events into simulations."""

    def __init__(self) -> None:
        self.found: list[_Simulation] = []
        self.batch = _Batch()
        self._open: dict[str, _Simulation] = {}

    def read(self, events: Iterator[_Event], notes: list[str]) -> None:
        """Read the events in the order of the file."""
        seen: set[str] = set()
        again, strange = 0, Counter[str]()
        for event in events:
            name = key(event.event_id)
            if name is not None and name in seen:
                again += 1
                continue
            seen.update([name] if name else [])
            kind = event.event_type if isinstance(event.event_type, str) else ""
            payload = mapping(event.payload)
            payload = mapping(payload["runtime_trace"]) if "runtime_trace" in payload else payload
            self._take(event, kind, payload, strange)
        if again:
            notes.append(f"{again} events are there twice: the first one is taken")
        notes += [f"{strange[kind]} {kind} outside of a simulation" for kind in sorted(strange)]

    def _take(
        self, event: _Event, kind: str, payload: dict[str, Any], strange: Counter[str]
    ) -> None:
        self._describe(event, payload)
        task = key(event.task_id)
        if kind in _BEGIN and task is not None:
            self._begin(task, payload)
            return
        here = self._open.get(task) if task is not None else None
        if here is None:
            if kind in _SAID or kind == "baseline.message.observed":
                strange[kind] += 1
            return
        if kind in _SAID or (kind == "turn_start" and not here.messages):
            here.messages.append(_message(event, mapping(payload.get("message"))))
        elif kind == "baseline.message.observed":
            here.messages.append(_observed(event, payload))
        elif kind == "baseline.tool.requested" and here.messages:
            _request(here.messages[-1], payload, event.tool_name)
        elif kind in _JUDGED:
            here.reward.update(mapping(payload.get("reward_info")) or payload)
        if (reason := shared.word(payload.get("termination_reason"))) and reason != "None":
            here.reason = reason
        here.closed = here.closed or kind in _CLOSED
        if kind in _ENDED:
            here.ended = True
            status = shared.word(payload.get("status"))
            if status not in (None, "ok"):
                here.failed, here.reason = True, here.reason or status

    def _describe(self, event: _Event, payload: dict[str, Any]) -> None:
        batch = self.batch
        batch.run_id = batch.run_id or shared.word(event.run_id)
        batch.phase = batch.phase or shared.word(event.phase)
        batch.domain = batch.domain or shared.word(payload.get("domain"))
        batch.model = batch.model or shared.word(payload.get("tau2_model_name"))
        for name in ("argv", "tau2_command"):
            words = payload.get(name)
            for option, value in _pairs(words if isinstance(words, list) else ()):
                where = _OPTIONS.get(option)
                if where and getattr(batch, where) is None:
                    setattr(batch, where, shared.word(value))

    def _begin(self, task: str, payload: dict[str, Any]) -> None:
        about = ("simulation_id", "trial", "seed", "mode", "duration")
        one = _Simulation(task, about={name: payload.get(name) for name in about})
        one.reason = shared.word(payload.get("termination_reason"))
        before = self._open.get(task)
        if before is not None and not before.closed:
            before.mixed = one.mixed = True
        self._open[task] = one
        self.found.append(one)


def _pairs(words: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    for name, value in pairwise(words):
        if isinstance(name, str):
            yield name, value


def _message(event: _Event, told: dict[str, Any]) -> Message:
    """Return the message of an event, with the event's own time."""
    raw = mapping(told.get("raw"))
    if not raw:
        shown = told.get("content_preview")
        raw = {**told, "content": None if shown == "None" else shown}
    found = Message(**{name: raw.get(name) for name in Message.__struct_fields__})
    found.role = found.role or event.message_role
    found.timestamp = event.timestamp
    return found


def _observed(event: _Event, payload: dict[str, Any]) -> Message:
    return Message(
        role=event.message_role,
        content=payload.get("content"),
        id=payload.get("message_id"),
        requestor=payload.get("requestor"),
        timestamp=event.timestamp,
        cost=payload.get("cost"),
        usage=payload.get("usage"),
        raw_data=payload.get("raw_data_summary"),
    )


def _request(message: Message, payload: dict[str, Any], name: Any) -> None:
    call = {
        "id": payload.get("tool_call_id"),
        "name": name,
        "arguments": payload.get("arguments"),
        "requestor": payload.get("requestor"),
    }
    message.tool_calls = [*(message.tool_calls or ()), call]


# ---- what comes out


def _trajectories(
    reader: _Reader, notes: list[str], refused: list[tuple[str, str]]
) -> Iterator[Trajectory]:
    alone = len(reader.found) == 1
    for number, one in enumerate(reader.found):
        place = f"simulation {number}"
        if one.mixed:
            refused.append((place, f"task {one.task} was tried several times at once"))
            continue
        try:
            made = _trajectory(one, reader.batch, None if alone else str(number), notes)
        except RecursionError:
            refused.append((place, "nested too deeply"))
            continue
        yield made


def _trajectory(
    one: _Simulation, batch: _Batch, record: str | None, notes: list[str]
) -> Trajectory:
    talk = turns_of(one.messages, None)
    notes += [f"task {one.task}: {note}" for note in talk.notes]
    config = {
        **one.about,
        "run_id": batch.run_id,
        "phase": batch.phase,
        "reward_info": one.reward,
        "scripted": talk.scripted,
        "opening": talk.opening,
        "user_tools": talk.user_tools,
    }
    failed = one.failed or (one.reason is not None and one.reason.endswith("_error"))
    end = "run.failed" if failed else "run.completed"
    return Trajectory(
        task_id=":".join(filter(None, ("tau2", batch.domain, one.task))),
        record=record,
        steps=talk.steps,
        goal=talk.opening,
        dataset="tau2-bench",
        agent=batch.agent,
        model=batch.model or talk.model,
        attempt=shared.integer(one.about.get("trial")),
        end=end if one.ended else None,
        exit_status=one.reason,
        outcome=_outcome(one),
        config={name: value for name, value in config.items() if value not in (None, "", [], {})},
    )


def _outcome(one: _Simulation) -> Outcome | None:
    reward = shared.number(one.reward.get("reward"))
    source = "tau2 reward"
    if (fault := _NOT_JUDGED.get(one.reason or "")) is not None:
        return Outcome(outcome="unknown", detail=fault, score=reward, source=source)
    if reward is None:
        return None
    done: OutcomeName = "success" if abs(reward - 1) <= _NEAR else "failure"
    detail = "partial" if _NEAR < reward < 1 - _NEAR else None
    return Outcome(outcome=done, detail=detail, score=reward, source=source)
