"""Playing a level from beginning to end, as one run of the laboratory."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec

from sag_research.errors import UsageError
from sag_research.lab._assignment import Assignment, Played
from sag_research.lab._carrying_on import conversation, driven
from sag_research.lab.crates.policy import ScriptedWorker, habit_names
from sag_research.lab.crates.world import CratesWorld, action_text, levels
from sag_research.llm import Model, Reply, Request, Tool
from sag_research.log import SQLiteEventStore
from sag_research.model import Call, Event, Outcome, Run
from sag_research.runtime import (
    Agent,
    RunContext,
    Steps,
    graph,
    graph_step,
    plan,
)

__all__ = ["MAX_STEPS", "CratesPlay", "carry_on"]

MAX_STEPS: Final = 45
_SYSTEM: Final = "Push every crate to a place. A push cannot be taken back. Use the tools."
_BEGIN: Final = "Here is the store room's door. Begin."
_SOURCE: Final = "world:crates"


@cache
def _tools() -> tuple[Tool, ...]:
    path = Path(__file__).parent / "tools.json"
    return msgspec.convert(json.loads(path.read_text(encoding="utf-8")), tuple[Tool, ...])


class CratesPlay:
    """The store room as the laboratory plays it: a scenario is a difficulty, a variant a level."""

    name = "crates"

    @property
    def scenarios(self) -> tuple[str, ...]:
        """Names of the difficulties."""
        return tuple(dict.fromkeys(one.difficulty for one in levels()))

    @property
    def variants(self) -> int:
        """Levels of each difficulty."""
        return len(levels()) // len(self.scenarios)

    @property
    def policies(self) -> tuple[str, ...]:
        """Names of the workers."""
        return habit_names()

    @property
    def more_policies(self) -> tuple[str, ...]:
        """Nobody else can play."""
        return ()

    def close(self) -> None:
        """Nothing is held."""

    def play(
        self,
        store: SQLiteEventStore,
        assignment: Assignment,
        *,
        model: Model | None = None,
        max_steps: int = MAX_STEPS,
        **more: Any,
    ) -> Played:
        """Run one assignment, and judge it by the board that is left.

        Parameters
        ----------
        store : SQLiteEventStore
        assignment : Assignment
        model : Model, optional
            Decides, instead of the assignment's policy.
        max_steps : int
        **more
            There is nothing more to say; the names are refused.
        """
        if more:
            raise UsageError(f"the store room knows no {sorted(more)[0]!r}")
        if max_steps < 1:
            raise UsageError(f"nobody can work for {max_steps} steps", fix="give 1 or more")
        deciding = model or ScriptedWorker(assignment.policy, assignment.seed)
        start = f"{assignment.scenario}-{assignment.variant}"
        store.create_run(
            Run(
                run_id=assignment.run_id, goal=_SYSTEM, task_id=assignment.task_id,
                dataset="crates", agent="store-worker", model=deciding.identity().model,
                attempt=assignment.attempt, config={"level": start, "seed": assignment.seed},
            )
        )  # fmt: skip
        world = CratesWorld(start)
        with RunContext(store, assignment.run_id, model=deciding, world=world,
                        max_steps=max_steps) as ctx:  # fmt: skip
            ending = driven(_work, ctx, deciding)
        end = Event(run_id=assignment.run_id, type="run.completed", payload={"exit_status": ending})
        store.append(end)
        return Played(outcome=judge(world), ending=ending)


def judge(world: CratesWorld) -> Outcome:
    """Say what a run came to: success is a solved board."""
    if world.solved:
        return Outcome(outcome="success", detail="solved", source=_SOURCE)
    detail = "lost" if world.lost else "left-too-early"
    return Outcome(outcome="failure", detail=detail, source=_SOURCE)


def carry_on(model: Model) -> Agent:
    """Make an agent that carries on with a run in the store room; for experiments and replays.

    Parameters
    ----------
    model : Model
        Decides.

    Returns
    -------
    Agent
        Says whether the board was solved. Feedback in the context's change (see
        :func:`sag_research.runtime.backtrack`) is a message where the run went on.
    """

    def agent(ctx: RunContext) -> bool:
        world = _room(ctx)
        ctx.exit_status = driven(_work, ctx, model)
        return world.solved

    return agent


def _room(ctx: RunContext) -> CratesWorld:
    if not isinstance(ctx.world, CratesWorld):
        raise UsageError("this agent works in the store room", fix="give it a CratesWorld")
    return ctx.world


@plan(id="crates", max_iterations=1000)
def _work(given: tuple[RunContext, Model]) -> Steps[str]:
    """Ask, act, write it down, until the worker has left."""
    while not _room(given[0]).done:
        outputs = yield from graph_step(_TURN, given)
        if outputs["turn"].unwrap():
            break
    return "finished"


def _turn(given: tuple[RunContext, Model]) -> bool:
    """One turn; returns whether it was the last."""
    ctx, model = given
    world = _room(ctx)
    reply = ctx.llm(model, _question(ctx))
    calls, done = [], False
    for asked in reply.calls:
        text = action_text(asked.name, asked.arguments)
        said = ctx.tool(asked.name, lambda text=text, **_: _acted(world, text), asked.arguments)
        done = done or said["done"]
        calls.append(
            Call(
                id=asked.id, name=asked.name, arguments=asked.arguments, text=text,
                observation=said["text"], status="ok" if said["ok"] else "error",
            )
        )  # fmt: skip
    _write(ctx, reply, calls)
    return done or not calls


def _acted(world: CratesWorld, text: str) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(world.act(text))
    return plain


def _write(ctx: RunContext, reply: Reply, calls: list[Call]) -> None:
    ctx.step(
        reply.text or "", "\n".join(call.text for call in calls),
        "\n".join(call.observation for call in calls), calls=calls, usage=reply.usage,
        flags=() if calls else ("final",),
    )  # fmt: skip


def _question(ctx: RunContext) -> Request:
    messages = conversation(ctx, _BEGIN, lambda call: call.observation)
    return Request(system=_SYSTEM, messages=messages, tools=_tools())


_TURN: Final = graph("turn").node("turn", _turn)
