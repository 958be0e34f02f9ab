"""tau-bench v1: a list of results, one for each task and trial."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from sag_research.ingest._format import Reading
from sag_research.ingest._json import Other, decode, outline
from sag_research.ingest._source import Source
from sag_research.ingest.formats import _shared as shared
from sag_research.model import Call, Outcome, Step, Trajectory

__all__ = ["TauBench"]


class _Message(msgspec.Struct, gc=False):
    role: Any = None
    content: Any = None
    tool_calls: Any = None
    tool_call_id: Any = None


class _Task(msgspec.Struct, gc=False):
    instruction: Any = None


class _Info(msgspec.Struct):
    task: _Task | Other = None
    user_cost: Any = None
    error: Any = None


class _Result(msgspec.Struct):
    task_id: Any = None
    trial: Any = None
    reward: Any = None
    info: _Info | Other = None
    traj: list[_Message | Other] | dict[str, Any] | str | int | float | bool | None = None


_DECODER: Final = msgspec.json.Decoder(list[_Result | Other])
_DOMAIN: Final = re.compile(r"\s*#\s*(\w+) agent policy", re.IGNORECASE)
_ERROR: Final = re.compile(r"\s*Error\b")


class TauBench:
    """tau-bench v1 results: a JSON list of ``{task_id, trial, reward, info, traj}``.

    Traps that are honoured

    * Task numbers restart in each domain. The domain stands in the first line of the policy
      alone, so task 12 becomes ``tau-bench:airline:12``, or ``tau-bench:12`` without a policy.
    * The file's name is no evidence of model or domain.
    * A turn that speaks to the customer has no tool call: its text is the thought, and the
      customer's reply is the observation.
    * A result with ``info.error`` is a crash of the harness: its reward of 0 is no failure,
      the outcome is unknown, in detail ``error``.
    * Numbers of task and trial may repeat, so a run is known by its place in the list.
    """

    name = "tau-bench"

    def sniff(self, head: bytes, path: Path) -> float:
        """Claim lists whose first object has a task, a reward and messages."""
        seen = outline(head)
        if seen.root != "list" or not {"task_id", "reward"} <= set(seen.keys):
            return 0.0
        return 0.95 if "traj" in seen.keys or "user_cost" in seen.below("info") else 0.0

    def read(self, source: Source) -> Reading:
        """Read all results of the list."""
        refused: list[tuple[str, str]] = []
        results = decode(source.bytes(), _DECODER)
        return Reading("1", _trajectories(results, refused), refused=refused)


def _trajectories(
    results: list[_Result | Other], refused: list[tuple[str, str]]
) -> Iterator[Trajectory]:
    for number, result in enumerate(results):
        if not isinstance(result, _Result):
            refused.append((f"result {number}", "no object"))
        elif not _known(result.task_id):
            refused.append((f"result {number}", "names no task"))
        elif not (result.traj is None or isinstance(result.traj, list)):
            refused.append((f"result {number}", "its traj is no list"))
        else:
            yield _trajectory(result, str(number))


def _known(task_id: Any) -> bool:
    return isinstance(task_id, (int, str)) and not isinstance(task_id, bool) and task_id != ""


def _trajectory(result: _Result, record: str) -> Trajectory:
    told = result.traj if isinstance(result.traj, list) else []
    messages = [message for message in told if isinstance(message, _Message)]
    info = result.info if isinstance(result.info, _Info) else _Info()
    policy = next((shared.text_of(one.content) for one in messages if one.role == "system"), "")
    domain = _DOMAIN.match(policy)
    parts = ("tau-bench", domain[1].lower() if domain else None, str(result.task_id))
    opening = next((shared.text_of(one.content) for one in messages if one.role == "user"), "")
    task = info.task if isinstance(info.task, _Task) else _Task()
    return Trajectory(
        task_id=":".join(filter(None, parts)),
        steps=tuple(_step(turn, replies) for turn, replies in shared.turns(messages)),
        goal=shared.word(task.instruction) or opening,
        dataset="tau-bench",
        attempt=shared.integer(result.trial),
        record=record,
        end="run.failed" if info.error else "run.completed",
        exit_status="error" if info.error else None,
        outcome=_outcome(result, info),
        config={"opening": opening} if opening else {},
    )


def _outcome(result: _Result, info: _Info) -> Outcome | None:
    reward = shared.number(result.reward)
    if info.error:
        return Outcome(outcome="unknown", detail="error", score=reward, source="tau-bench reward")
    if reward is None:
        return None
    outcome: Any = "success" if reward >= 1.0 else "failure"
    return Outcome(outcome=outcome, score=reward, source="tau-bench reward")


def _step(turn: _Message, replies: Sequence[_Message]) -> Step:
    calls: tuple[Call, ...] = shared.calls_from(turn.tool_calls)
    results = [_result(one) for one in replies if one.role in ("tool", "user")]
    calls, left = shared.with_results(calls, results)
    return Step(
        thought=shared.text_of(turn.content),
        action=shared.joined([call.text for call in calls]),
        observation=shared.joined([*(call.observation for call in calls), *left]),
        calls=calls,
    )


def _result(reply: _Message) -> shared.Result:
    text = shared.text_of(reply.content)
    status = "error" if _ERROR.match(text) else "ok"
    call_id = shared.text_of(reply.tool_call_id) if reply.role == "tool" else "(customer)"
    return shared.Result(call_id, text, None, status)
