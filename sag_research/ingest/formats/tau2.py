"""tau2-bench: results with their simulations, and simulations in files of their own."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import msgspec

from sag_research.errors import FormatError
from sag_research.ingest._format import Reading
from sag_research.ingest._json import Other, decode, outline
from sag_research.ingest._source import Source
from sag_research.ingest.formats import _shared as shared
from sag_research.ingest.formats._openhands_turns import key, mapping
from sag_research.ingest.formats._tau2_turns import Message, Talk, turns_of
from sag_research.model import Outcome, OutcomeName, Trajectory, Usage

__all__ = ["Tau2"]


class _Task(msgspec.Struct, gc=False):
    id: Any = None
    user_scenario: Any = None
    ticket: Any = None


class _Info(msgspec.Struct):
    """What a results file says of all its simulations."""

    info: Any = None
    tasks: list[_Task | Other] | dict[str, Any] | str | int | float | bool | None = None


class _Simulation(msgspec.Struct):
    id: Any = None
    task_id: Any = None
    trial: Any = None
    seed: Any = None
    mode: Any = None
    start_time: Any = None
    end_time: Any = None
    duration: Any = None
    termination_reason: Any = None
    agent_cost: Any = None
    user_cost: Any = None
    reward_info: Any = None
    messages: list[Message | Other] | dict[str, Any] | str | int | float | bool | None = None
    ticks: Any = None
    policy: Any = None


class _Results(_Info):
    simulations: list[_Simulation | Other] | None = None


_RESULTS: Final = msgspec.json.Decoder(_Results)
_ABOUT: Final = msgspec.json.Decoder(_Info)
_ONE: Final = msgspec.json.Decoder(_Simulation)

_TALK: Final = {"messages", "ticks"}
_OWN: Final = {"termination_reason", "reward_info", "agent_cost", "trial", "seed"}
_SETUP: Final = {"agent_info", "user_info", "environment_info"}
_KEPT: Final = (
    "seed", "mode", "start_time", "end_time", "duration", "user_cost", "reward_info",
)  # fmt: skip
_NOT_JUDGED: Final = {
    "infrastructure_error": "infra",
    "context_window_exceeded": "infra",
    "unexpected_error": "error",
    "user_error": "error",
}
"""Ends that say nothing of the agent; the benchmark itself leaves out the first two."""
_NEAR: Final = 1e-6


class Tau2:
    """tau2-bench: ``results.json`` with ``simulations``, or one simulation a file.

    Traps that are honoured

    * Newer releases write each simulation into a file of its own (``simulations/<id>.json``) and
      leave the list in ``results.json`` short or out. What is said there of domain, model and
      tasks is read for them from the folder above; a ``results.json`` without simulations is no
      trajectory.
    * Task numbers restart in each domain: task 12 becomes ``tau2:airline:12``.
    * In dual-control domains the customer calls tools as well (``requestor: user``). These calls
      and their results are not the agent's: they are in the ``state`` of the step behind which
      they stand, or in ``config`` under ``user_tools``.
    * What the agent did not say itself is no step: the greeting, and a history that the task
      gives, which have no usage while later replies have. They are in ``config``, ``scripted``.
    * ``user_stop`` says how the talk ended, not whether the task was done: the outcome is the
      reward, success at 1 alone. A reward of 0 after an error of the infrastructure or of the
      simulated customer is no failure of the agent: unknown, in detail ``infra`` or ``error``.
    * Times have no zone. A reply's raw data may hold the provider's clock, from which the zone
      follows; else the time of a step is unknown, and only durations are taken.
    * Cost and tokens of a step are those of its reply; the customer's cost is in ``config``.
    * Full-duplex simulations (voice) have ``ticks`` instead of messages: a step lasts from the
      agent's first word, or call, until the customer has the floor. Where the words were not
      kept, the step has the flag ``speech-without-text``; its ticks are in ``state``.
    """

    name = "tau2"

    def sniff(self, head: bytes, path: Path) -> float:
        """Claim results that hold simulations, and simulations."""
        seen = outline(head)
        keys = set(seen.keys)
        if seen.root != "object":
            return 0.0
        if "simulations" in keys and {"task_id"} <= seen.below("simulations"):
            return 0.95
        if "task_id" in keys and len(keys & _OWN) >= 3 and (keys & _TALK or not seen.complete):
            return 0.9 if keys & _TALK else 0.5
        # simulations come last, and may be far behind long tasks
        begun = not seen.complete and len(seen.below("info") & _SETUP) >= 2
        return 0.4 if begun else 0.0

    def read(self, source: Source) -> Reading:
        """Read the simulations."""
        notes: list[str] = []
        refused: list[tuple[str, str]] = []
        results = decode(source.bytes(), _RESULTS)
        if results.simulations is None:
            one = decode(source.bytes(), _ONE)
            if one.task_id is None:
                raise FormatError("no simulations in it")
            about = _beside(source.path)
            found = _trajectories([one], about, notes, refused, alone=True)
            return Reading("simulation file", found, notes, refused)
        runs = _trajectories(results.simulations, results, notes, refused, alone=False)
        return Reading("results", runs, notes, refused)


def _trajectories(
    simulations: Sequence[_Simulation | Other],
    about: _Info,
    notes: list[str],
    refused: list[tuple[str, str]],
    *,
    alone: bool,
) -> Iterator[Trajectory]:
    tasks = {
        key(task.id): task
        for task in (about.tasks if isinstance(about.tasks, list) else [])
        if isinstance(task, _Task)
    }
    for number, simulation in enumerate(simulations):
        place = f"simulation {number}"
        if not isinstance(simulation, _Simulation):
            refused.append((place, "no object"))
        elif key(simulation.task_id) is None:
            refused.append((place, "names no task"))
        elif not isinstance(simulation.messages, list | None):
            refused.append((place, "its messages are no list"))
        else:
            task = tasks.get(key(simulation.task_id)) or _Task()
            talk = turns_of(simulation.messages, simulation.ticks)
            notes += [f"{place}: {note}" for note in talk.notes]
            yield _trajectory(
                simulation, talk, task, mapping(about.info), None if alone else str(number)
            )


def _trajectory(
    simulation: _Simulation, talk: Talk, task: _Task, info: dict[str, Any], record: str | None
) -> Trajectory:
    agent = mapping(info.get("agent_info"))
    domain = shared.word(mapping(info.get("environment_info")).get("domain_name"))
    reason = shared.word(simulation.termination_reason)
    cost = shared.number(simulation.agent_cost)
    parts = ("tau2", domain, key(simulation.task_id))
    return Trajectory(
        task_id=":".join(filter(None, parts)),
        record=record,
        steps=talk.steps,
        goal=_goal(task) or talk.opening,
        dataset="tau2-bench",
        agent=shared.word(agent.get("implementation")),
        model=shared.word(agent.get("llm")) or talk.model,
        attempt=shared.integer(simulation.trial),
        end="run.failed" if reason and reason.endswith("_error") else "run.completed",
        exit_status=reason,
        usage=Usage(cost_usd=cost) if cost and cost > 0 else None,
        outcome=_outcome(simulation, reason),
        config=_config(simulation, talk, info),
    )


def _config(simulation: _Simulation, talk: Talk, info: dict[str, Any]) -> dict[str, Any]:
    kept = {name: getattr(simulation, name) for name in _KEPT}
    kept |= {"simulation_id": simulation.id, "scripted": talk.scripted, "opening": talk.opening}
    kept["user_tools"] = talk.user_tools
    user = mapping(info.get("user_info"))
    kept["user"] = {name: user[name] for name in ("implementation", "llm") if user.get(name)}
    args = mapping(info.get("agent_info")).get("llm_args")
    kept |= {"llm_args": args, "git_commit": info.get("git_commit")}
    return {name: value for name, value in kept.items() if value not in (None, "", [], {})}


def _goal(task: _Task) -> str:
    """Return what the customer wants, as the task tells it."""
    told = mapping(task.user_scenario).get("instructions")
    if isinstance(told, dict):
        lines = [f"{name}: {text}" for name, text in told.items() if shared.word(text)]
        return "\n".join(lines)
    return shared.word(told) or shared.word(task.ticket) or ""


def _outcome(simulation: _Simulation, reason: str | None) -> Outcome | None:
    reward = shared.number(mapping(simulation.reward_info).get("reward"))
    source = "tau2 reward"
    if (fault := _NOT_JUDGED.get(reason or "")) is not None:
        return Outcome(outcome="unknown", detail=fault, score=reward, source=source)
    if reward is None:
        return None
    done: OutcomeName = "success" if abs(reward - 1) <= _NEAR else "failure"
    detail = "partial" if _NEAR < reward < 1 - _NEAR else None
    return Outcome(outcome=done, detail=detail, score=reward, source=source)


# ---- what stands beside a simulation's own file


def _beside(path: Path) -> _Info:
    """Read what the results file in the folder above says, if it is there."""
    folder = path.absolute().parent.parent
    for name in ("results.json", "results.json.gz"):
        place = folder / name
        try:
            about = place.stat()
        except OSError:
            continue
        return _info(os.fspath(place), about.st_mtime_ns, about.st_size)
    return _Info()


@lru_cache(maxsize=2)
def _info(path: str, changed: int, size: int) -> _Info:
    try:
        return decode(Source(Path(path)).bytes(), _ABOUT)
    except (FormatError, OSError):
        return _Info()
