"""One arm of an experiment, and one continuation carried out from fork to outcome."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from contextlib import ExitStack, closing
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import msgspec

from sag_research._text import clip, repair
from sag_research.errors import Caught, SagError
from sag_research.log import SQLiteEventStore, canonical_digest
from sag_research.model import WORKSPACE_RUN, Event, Outcome, Usage
from sag_research.runtime._awaited import call
from sag_research.runtime._experiment_context import (
    RunContext,
    StepsSpentError,
    ending,
    usage_of,
)
from sag_research.runtime._protocols import AgentFactory, OutcomeOf, Said, WorldFactory

__all__ = [
    "Arm", "Job", "Setting", "carry_out", "finish", "give_up", "said_outcome", "seed_of",
]  # fmt: skip

_TRACE: Final = 8_000
SOURCE: Final = "experiment"


class Arm(msgspec.Struct, frozen=True):
    """One way to go on from the fork.

    Examples
    --------
    >>> Arm({"temperature": 0.2}).change
    {'temperature': 0.2}
    """

    change: dict[str, Any] = {}
    """What is changed, as plain data: given to the agent factory and recorded at the fork."""
    agent_factory: AgentFactory | None = None
    """Makes this arm's agents; default: the experiment's."""


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One continuation to carry out; plain data, so that it can be sent to another process."""

    experiment: str
    parent: str
    at: int
    arm: str
    change: dict[str, Any]
    repeat: int
    seed: int
    attempt: int = 0

    @property
    def intervention(self) -> dict[str, Any]:
        """The payload of ``run.forked``, by which a continuation is found again."""
        about = {
            "experiment": self.experiment,
            "arm": self.arm,
            "repeat": self.repeat,
            "seed": self.seed,
        }
        return about | ({"change": self.change} if self.change else {})

    @property
    def child_id(self) -> str:
        """Id of the run; the same wherever it is carried out, so two cannot claim one job."""
        about = {"parent": self.parent, "at": self.at, "attempt": self.attempt}
        key = canonical_digest(about | {"intervention": self.intervention})
        return f"{self.parent}+{key[:10]}"


class Setting(NamedTuple):
    """What all continuations of an experiment have in common."""

    factories: Mapping[str, AgentFactory]
    """By arm."""
    world_factory: WorldFactory | None
    outcome: OutcomeOf | None
    states: Mapping[tuple[str, int], Any]
    """State of the world by run and position."""
    max_steps: int | None
    snapshots: bool


class _End(NamedTuple):
    type: str
    exit_status: str
    outcome: Outcome
    error: str = ""


def carry_out(store: SQLiteEventStore, job: Job, setting: Setting) -> str:
    """Fork, live the continuation to its end, and record how it ended and went.

    Returns
    -------
    str
        The id of the new run. Whatever agent, world or judge raise becomes the run's end; an
        interrupt leaves it without one.
    """
    child = store.fork(
        job.parent,
        at=job.at,
        run_id=job.child_id,
        intervention=job.intervention,
        label=f"{clip(job.arm, 60)} {job.repeat}",
    )
    end = None
    with Caught() as caught:
        try:
            end = _live(store, child.run_id, job, setting)
        except SystemExit as left:  # it would end the other continuations, too
            raise SagError(
                "the continuation tried to end the program", why=f"sys.exit({left.code!r})"
            ) from left
    if caught.error is not None or end is None:
        end = _crashed(caught.error)
    _finish(store, child.run_id, child.fork_position + 1, end)
    return child.run_id


def _live(store: SQLiteEventStore, run_id: str, job: Job, setting: Setting) -> _End:
    with ExitStack() as stack:
        world = None
        if setting.world_factory is not None:
            world = setting.world_factory(store.get_run(run_id))
            stack.enter_context(closing(world))
            world.restore(setting.states[job.parent, job.at])
        ctx = RunContext(
            store, run_id, world=world, seed=job.seed, max_steps=setting.max_steps,
            snapshots=setting.snapshots and world is not None,
            arm=job.arm, repeat=job.repeat, change=job.change,
        )  # fmt: skip
        stack.enter_context(ctx)
        said: Said = None
        try:
            said = call(setting.factories[job.arm](job.change, job.seed), ctx)
        except StepsSpentError:
            payload = {"budget": "steps", "limit": setting.max_steps}
            ctx.append(Event(run_id=run_id, type="budget.exhausted", payload=payload))
            ctx.exit_status = "steps exhausted"
        if setting.outcome is not None:
            said = setting.outcome(ctx)
        return _End("run.completed", ctx.exit_status or "completed", said_outcome(said))


def said_outcome(said: Said) -> Outcome:
    """Turn what was said into an outcome; nothing said is unknown."""
    if isinstance(said, Outcome):
        return said if said.source else msgspec.structs.replace(said, source=SOURCE)
    if said is None:
        said = "unknown"
    if isinstance(said, bool):
        said = "success" if said else "failure"
    return msgspec.convert({"outcome": said, "source": SOURCE}, Outcome)


def _crashed(error: Exception | None) -> _End:
    text = "".join(traceback.format_exception(error)) if error is not None else ""
    outcome = Outcome(outcome="unknown", detail="crashed", source=SOURCE)
    return _End("run.failed", "crashed", outcome, repair(text)[-_TRACE:])


def _finish(store: SQLiteEventStore, run_id: str, own: int, end: _End) -> None:
    payload: dict[str, Any] = {"exit_status": clip(end.exit_status, 200)}
    if end.error:
        payload["error"] = end.error
    usage = usage_of(store, run_id)
    if usage != Usage():
        payload["usage"] = msgspec.to_builtins(usage)
    said = {"run": run_id, **msgspec.to_builtins(end.outcome)}
    with store.transaction():
        if ending(store, run_id, own) is not None:
            return  # given up meanwhile by a process that took this one for dead
        cause = store.head(run_id).position
        store.append_many([
            Event(run_id=run_id, type=end.type, actor=SOURCE, payload=payload, cause=cause),
            Event(run_id=WORKSPACE_RUN, type="outcome.recorded", actor=SOURCE, payload=said),
        ])  # fmt: skip


def finish(store: SQLiteEventStore, run_id: str, exit_status: str, outcome: Outcome) -> None:
    """End a run of one's own making, and record how it went; what has ended stays as it is."""
    own = store.get_run(run_id).fork_position + 1
    _finish(store, run_id, own, _End("run.completed", exit_status, outcome))


def give_up(store: SQLiteEventStore, run_id: str) -> None:
    """End a run that was left half done; a process that still lives it can write no more."""
    own = store.get_run(run_id).fork_position + 1
    with store.transaction():
        if ending(store, run_id, own) is None:
            cause = store.head(run_id).position
            payload = {"exit_status": "interrupted"}
            store.append(
                Event(run_id=run_id, type="run.abandoned", actor=SOURCE, payload=payload,
                      cause=cause)
            )  # fmt: skip


def seed_of(seed: int, parent: str, at: int, repeat: int) -> int:
    """Return the seed of a repeat: the same in every arm, another for every parent and repeat.

    Examples
    --------
    >>> seed_of(7, "r1", 3, 0) == seed_of(7, "r1", 3, 0) != seed_of(7, "r1", 3, 1)
    True
    """
    text = f"{seed}|{at}|{repeat}|{parent}".encode()
    return int.from_bytes(blake2b(text, digest_size=6).digest(), "big")
