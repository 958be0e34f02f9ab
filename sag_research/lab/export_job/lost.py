"""The truth about a run's dead end: from which step on no verified, required ending is left."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from sag_research.lab.export_job._catalogue import DELIVERY
from sag_research.lab.export_job._progress import (
    Done,
    Move,
    Observation,
    Progress,
    Turn,
    Verdict,
    final_of,
    next_move,
)
from sag_research.lab.export_job._progress import Final as Answer
from sag_research.lab.export_job._scenario import Job, Scenario, load_scenario
from sag_research.lab.export_job.request import TaskRequest
from sag_research.llm import Reply, ToolCall

__all__ = ["lost_at"]

_TRANSIENT: Final = "E_TRANSIENT"
_NEVER: Final = 10_000


def lost_at(
    steps: Iterable[Mapping[str, Any]], scenario: str, job: Job | None = None, **limits: Any
) -> int | None:
    """Return the 0-based step with which a run was lost; ``None`` if it never was.

    A run is lost with the step after which it cannot end as its scenario requires, whatever an
    agent did that makes one call a turn. There are four ways to lose one: an answer that holds
    and is not the one required (a job handed over that a retry would have completed), a call
    that is refused, one and the same observation too often, and fewer turns or calls left than
    the work still takes. The effect cannot be repeated and a wrong file cannot be accepted: the
    service and the verification see to that, so no run is lost by them.

    Parameters
    ----------
    steps : iterable of mapping
        Payloads of a run's ``agent.step``, in order.
    scenario : str
        Truth that no agent and no monitor has.
    job : Job, optional
        Default: ``JOB-204``.
    **limits
        Fields of :class:`TaskRequest`, e.g. ``max_steps``; as the run had them.

    Notes
    -----
    The service is taken to behave as its scenario says; faults that were injected besides are
    not looked at, nor is the deadline. The truth is about the world, not about the agent: one
    that will repeat a refused answer for ever has not lost the run until its turns are spent.

    Examples
    --------
    >>> lost_at([{"thought": "...", "calls": []}] * 12, "transient")
    7
    """
    job = job or Job()
    request = TaskRequest.of(
        {"id": job.job_id, "job_id": job.job_id, "origin": "http://127.0.0.1", **limits}
    )
    truth = load_scenario(scenario)
    progress = Progress(started=0.0, turns=[])
    for number, step in enumerate(steps):
        _take(progress, step)
        last = progress.turns[-1]
        if not last.reply.calls and not isinstance(answer := final_of(last.reply), str):
            last.verdict = Verdict(ok=_holds(answer, progress, truth, request))
        if _lost(progress, truth, request, job):
            return number
    return None


def _take(progress: Progress, step: Mapping[str, Any]) -> None:
    """Read a step as the loop would have it."""
    calls = [call for call in step.get("calls", ()) if isinstance(call, Mapping)]
    asked = tuple(
        ToolCall(name=call["name"], arguments=call["arguments"], id=call.get("id", ""))
        for call in calls
    )
    observed = [
        msgspec.json.decode(call["observation"], type=Observation)
        for call in calls
        if call.get("observation")
    ]
    progress.model_calls += 1
    progress.action_calls += len(observed)
    progress.turns.append(
        Turn(
            reply=Reply(text=step.get("thought", ""), calls=asked), decided=progress.model_calls,
            observations=observed, dispatched=bool(observed), closed=True,
        )
    )  # fmt: skip


def _lost(progress: Progress, truth: Scenario, request: TaskRequest, job: Job) -> bool:
    move = next_move(progress, request, 0.0)
    if isinstance(move, Done):
        return False
    if move.do == "stop":
        return not _ends_well(move, progress, truth, job)
    needed = _needed(progress, truth, request)
    turns_left = request.max_steps - progress.model_calls
    calls_left = request.max_actions - progress.action_calls
    return needed > turns_left or needed - 1 > calls_left


def _ends_well(move: Move, progress: Progress, truth: Scenario, job: Job) -> bool:
    ending = move.reason if move.reason in ("completed", "needs-human") else "partial"
    if ending == "completed":
        answer = final_of(progress.turns[-1].reply)
        return ending in truth.endings and getattr(answer, "totalCents", None) == job.total_cents
    done_as_required = _happened(progress, truth) == bool(truth.retries)
    return ending in truth.endings and done_as_required


def _needed(progress: Progress, truth: Scenario, request: TaskRequest) -> int:
    """Count the turns that the required ending takes at least, its answer included."""
    if "partial" in truth.endings:
        return 0
    tools = {call.name for call, _ in _good(progress)}
    if "completed" not in truth.endings:
        return 1 if tools & {"job_status", "job_logs"} else 2
    needed = 1 + (DELIVERY[request.delivery] not in tools)
    if _completed(progress, truth):
        return needed
    if request.mode == "inspect":
        return _NEVER
    hits = [seen.data for call, seen in _good(progress) if call.name == "runbook_search"]
    looked_up = any(hit.get("code") == _TRANSIENT and hit.get("retry") for hit in hits)
    return needed + 1 + ("job_logs" not in tools) + (not looked_up)


def _good(progress: Progress) -> Iterator[tuple[ToolCall, Observation]]:
    return (pair for pair in progress.observed if pair[1].status == "success")


def _happened(progress: Progress, truth: Scenario) -> bool:
    """Whether the effect has happened, seen or not."""
    lost_reply = truth.reply in ("drop", "late")
    for call, seen in progress.observed:
        if call.name != "job_retry":
            continue
        if seen.status == "success" and seen.data.get("effect") is True:
            return True
        if seen.status == "unknown" and lost_reply:
            return True
    return False


def _completed(progress: Progress, truth: Scenario) -> bool:
    told = any(
        call.name == "job_status" and seen.data.get("state") == "completed"
        for call, seen in _good(progress)
    )
    return told or truth.state == "completed" or _happened(progress, truth)


def _holds(answer: Answer, progress: Progress, truth: Scenario, request: TaskRequest) -> bool:
    """Foresee what the verification says of an answer."""
    own = {seen.evidence_id: (call, seen) for call, seen in _good(progress)}
    if not answer.evidenceIds or not set(answer.evidenceIds) <= set(own):
        return False
    cited = [own[one] for one in answer.evidenceIds]
    if answer.status == "needs-human":
        looked = any(call.name in ("job_status", "job_logs") for call, _ in cited)
        return looked and answer.totalCents is None and not _completed(progress, truth)
    files = [seen.data for call, seen in cited if call.name == DELIVERY[request.delivery]]
    if not files or not _completed(progress, truth):
        return False
    total = str(files[-1].get("csv", "")).rstrip().rpartition(",")[2]
    return str(answer.totalCents) == total
