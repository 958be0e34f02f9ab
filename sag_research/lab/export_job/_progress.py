"""How far a task is: a fold over its run in the log, and what comes next.

Nothing else remembers anything: a task that is carried on after a crash reads the same events
and goes on with the same move.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from enum import StrEnum
from typing import Any, Literal, TypeAlias

import msgspec

from sag_research.lab.export_job._catalogue import why_refused
from sag_research.lab.export_job.request import TaskRequest
from sag_research.llm import Reply, ToolCall
from sag_research.log import canonical_digest
from sag_research.model import TERMINAL_TYPES, Event

__all__ = [
    "Done", "Final", "Move", "Observation", "Progress", "StopReason", "Turn", "Verdict",
    "final_of", "next_move", "progress_of",
]  # fmt: skip

StopReason: TypeAlias = Literal[
    "completed", "needs-human", "max-steps", "max-actions", "no-progress", "deadline",
    "invalid-decision",
]  # fmt: skip


class Observation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a tool call came to."""

    status: Literal["success", "failed", "unknown"]
    data: Any = None
    code: str = ""
    message: str = ""
    retryable: bool = False
    evidence_id: str = ""


class Final(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a model says when it means to be done."""

    status: Literal["completed", "needs-human"]
    summary: str
    totalCents: int | None = None
    evidenceIds: tuple[str, ...] = ()


class Verdict(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Whether a final answer holds."""

    ok: bool
    reason: str = ""
    receipt: str = ""
    """Digest of request, status, total, evidence and summary."""
    summary: str = ""
    """Made of verified fields; never the model's own words."""


class Turn(msgspec.Struct, kw_only=True):
    """One reply of the model and what became of it so far."""

    reply: Reply
    decided: int
    """Position of the reply in the run."""
    observations: list[Observation] = []
    dispatched: bool = False
    closed: bool = False
    verdict: Verdict | None = None

    @property
    def answered(self) -> list[tuple[ToolCall, Observation]]:
        """The calls that were observed."""
        return list(zip(self.reply.calls, self.observations, strict=False))


class Progress(msgspec.Struct, kw_only=True):
    """What the log says of a task."""

    started: float | None = None
    model_calls: int = 0
    action_calls: int = 0
    turns: list[Turn] = []
    stopped: StopReason | None = None
    ended: bool = False

    @property
    def observed(self) -> list[tuple[ToolCall, Observation]]:
        """Every call that was observed, in order."""
        return [pair for turn in self.turns for pair in turn.answered]

    @property
    def final(self) -> tuple[Final, Verdict] | None:
        """The final answer that holds, with the verdict on it."""
        turn = self.turns[-1] if self.turns else None
        if turn is None or turn.verdict is None or not turn.verdict.ok:
            return None
        final = final_of(turn.reply)
        return None if isinstance(final, str) else (final, turn.verdict)


class Done(msgspec.Struct, frozen=True):
    """Nothing is left to do."""


class _Do(StrEnum):
    BEGIN = "begin"
    DECIDE = "decide"
    ACT = "act"
    CLOSE = "close"
    VERIFY = "verify"
    STOP = "stop"
    PUBLISH = "publish"


class Move(msgspec.Struct, frozen=True):
    """What comes next: the stage, and what it needs to know."""

    do: _Do
    reason: StopReason | Literal[""] = ""
    flags: tuple[str, ...] = ()


def progress_of(events: Iterable[Event]) -> Progress:
    """Fold a run's events, in order."""
    progress = Progress()
    for event in events:
        _fold(progress, event)
    return progress


def _fold(progress: Progress, event: Event) -> None:
    turn = progress.turns[-1] if progress.turns else None
    if event.type == "job.started":
        progress.started = float(event.payload["at"])
    elif event.type == "job.stopped":
        progress.stopped = event.payload["reason"]
    elif event.type == "llm.requested":
        progress.model_calls += 1
    elif event.type == "llm.responded":
        reply = msgspec.convert(event.payload, Reply)
        progress.turns.append(Turn(reply=reply, decided=event.position or 0, observations=[]))
    elif event.type == "tool.requested" and turn is not None:
        progress.action_calls += 1
        turn.dispatched = True
    elif event.type == "tool.responded" and turn is not None:
        turn.observations.append(msgspec.convert(event.payload["value"], Observation))
    elif event.type == "agent.step" and turn is not None:
        turn.closed = True
    elif event.type == "job.verified" and turn is not None:
        turn.verdict = msgspec.convert(event.payload, Verdict)
    elif event.type in TERMINAL_TYPES:
        progress.ended = True


def final_of(reply: Reply) -> Final | str:
    """Read a reply without calls as a final answer; a text says why it is none.

    Examples
    --------
    >>> final_of(Reply(text='{"status": "needs-human", "summary": "No storage."}')).status
    'needs-human'
    >>> final_of(Reply(text="All done!"))
    'the answer holds no JSON object'
    """
    text = reply.text or ""
    begin, end = text.find("{"), text.rfind("}")
    if begin < 0 or end < begin:
        return "the answer holds no JSON object"
    try:
        return msgspec.json.decode(text[begin : end + 1].encode(), type=Final)
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError) as error:
        return re.sub(r"\s+", " ", str(error))[:200]


def next_move(progress: Progress, request: TaskRequest, now: float) -> Move | Done:
    """Say what comes next.

    Parameters
    ----------
    progress : Progress
    request : TaskRequest
    now : float
        Seconds since the epoch; compared with the deadline before new work only.
    """
    if progress.ended:
        return Done()
    if progress.started is None:
        return Move(_Do.BEGIN)
    if progress.stopped is not None:
        return Move(_Do.PUBLISH)
    late = now - progress.started > request.deadline_seconds
    turn = progress.turns[-1] if progress.turns else None
    if turn is None:
        return _new_turn(progress, request, late)
    if turn.reply.calls:
        return _acting(progress, turn, request, late)
    return _answering(progress, turn, request, late)


def _new_turn(progress: Progress, request: TaskRequest, late: bool) -> Move:
    if _repeats(progress) >= request.max_repeated_actions:
        return Move(_Do.STOP, "no-progress")
    if late:
        return Move(_Do.STOP, "deadline")
    if progress.model_calls >= request.max_steps:
        return Move(_Do.STOP, "max-steps")
    return Move(_Do.DECIDE)


def _acting(progress: Progress, turn: Turn, request: TaskRequest, late: bool) -> Move:
    calls = turn.reply.calls
    if why_refused(calls, request):
        close = Move(_Do.CLOSE, flags=("rejected",))
        return Move(_Do.STOP, "invalid-decision") if turn.closed else close
    if turn.closed:
        if len(turn.observations) == len(calls):
            return _new_turn(progress, request, late)
        return Move(_Do.STOP, _why_not(progress, turn, request, late) or "max-actions")
    if len(turn.observations) == len(calls):
        return Move(_Do.CLOSE)
    if _why_not(progress, turn, request, late):
        return Move(_Do.CLOSE, flags=("not-run",))
    return Move(_Do.ACT)


def _why_not(
    progress: Progress, turn: Turn, request: TaskRequest, late: bool
) -> StopReason | Literal[""]:
    """Say why what is left of a batch may not be dispatched; a batch must fit as a whole."""
    left = len(turn.reply.calls) - len(turn.observations)
    if not turn.dispatched and progress.model_calls >= request.max_steps:
        return "max-steps"
    if progress.action_calls + left > request.max_actions:
        return "max-actions"
    return "deadline" if late else ""


def _answering(progress: Progress, turn: Turn, request: TaskRequest, late: bool) -> Move:
    malformed = isinstance(final_of(turn.reply), str)
    if not turn.closed:
        return Move(_Do.CLOSE, flags=("rejected",) if malformed else ("final",))
    if malformed:
        return _new_turn(progress, request, late)
    if turn.verdict is None:
        return Move(_Do.VERIFY)
    if not turn.verdict.ok:
        return _new_turn(progress, request, late)
    final = final_of(turn.reply)
    return Move(_Do.STOP, "" if isinstance(final, str) else final.status)


def _repeats(progress: Progress) -> int:
    """How often the most frequent observation was made."""
    seen = Counter(
        canonical_digest({"tool": call.name, "arguments": call.arguments, **_said(observation)})
        for call, observation in progress.observed
    )
    return max(seen.values(), default=0)


def _said(observation: Observation) -> dict[str, Any]:
    names = ("status", "data", "code", "message")
    return {name: getattr(observation, name) for name in names}
