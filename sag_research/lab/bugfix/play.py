"""Carrying a run on in the world of bugs, with any model, until it is handed in."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from sag_research.errors import UsageError
from sag_research.lab._carrying_on import conversation, driven
from sag_research.lab.bugfix._episode import NO_ACTION, SYSTEM
from sag_research.lab.bugfix._notes import FAILED
from sag_research.lab.bugfix.world import TOOLS, BugfixWorld, render
from sag_research.llm import Model, Reply, Request, Tool, ToolCall
from sag_research.model import Call, Outcome, OutcomeName
from sag_research.runtime import (
    Agent,
    RunContext,
    Steps,
    graph,
    graph_step,
    plan,
)

__all__ = ["carry_on", "judge"]

_SOURCE: Final = "world:bugfix"
_MOST_LAPSES: Final = 3


def judge(world: BugfixWorld) -> Outcome:
    """Say what a run came to: success is the held-out test's word on the tree as it stands.

    Nothing else counts, and handing in does not: as in the bundled set, a tree that was left
    without a word is judged like one that was handed in.
    """
    verdict = world.evaluate()
    name: OutcomeName = "success" if verdict.success else "failure"
    return Outcome(outcome=name, detail=verdict.detail, source=_SOURCE)


def carry_on(model: Model) -> Agent:
    """Make an agent that carries on with a run on a task; for experiments and replays.

    Parameters
    ----------
    model : Model
        Decides: :class:`ScriptedFixer`, :class:`LocalFixer`, or any model that calls tools.

    Returns
    -------
    Agent
        Goes on after the steps that its context has, in the context's :class:`BugfixWorld`,
        and says what :func:`judge` says. Feedback in the context's change (see
        :func:`sag_research.runtime.backtrack`) is a message where the run went on.
    """

    def agent(ctx: RunContext) -> Outcome:
        world = _desk(ctx)
        ctx.exit_status = driven(_work, ctx, model)
        return judge(world)

    return agent


def _desk(ctx: RunContext) -> BugfixWorld:
    if not isinstance(ctx.world, BugfixWorld):
        raise UsageError("this agent repairs bugs", fix="give it a BugfixWorld")
    return ctx.world


@plan(id="bugfix", max_iterations=1000)
def _work(given: tuple[RunContext, Model]) -> Steps[str]:
    """Ask, act, write it down, until the change is handed in or the model has lost its tools."""
    while True:
        outputs = yield from graph_step(_TURN, given)
        ended: str = outputs["turn"].unwrap()
        if ended:
            return ended


def _turn(given: tuple[RunContext, Model]) -> str:
    """One turn; returns why it was the last, if it was."""
    ctx, model = given
    world = _desk(ctx)
    if world.submitted:
        return "submitted"
    reply = ctx.llm(model, question(ctx))
    calls = [_called(ctx, world, asked) for asked in reply.calls]
    _write(ctx, world, reply, calls)
    if any(call.name == "submit" for call in calls):
        return "submitted"
    return "exit_format" if _lapses(ctx) >= _MOST_LAPSES else ""


def _called(ctx: RunContext, world: BugfixWorld, asked: ToolCall) -> Call:
    arguments = asked.arguments if isinstance(asked.arguments, dict) else {}

    def acted(**_: Any) -> dict[str, Any]:
        plain: dict[str, Any] = msgspec.to_builtins(world.call(asked.name, arguments))
        return plain

    said = ctx.tool(asked.name, acted, arguments)
    return Call(
        id=asked.id, name=asked.name, arguments=asked.arguments,
        text=render(asked.name, arguments), observation=said["text"],
        status="ok" if said["exit_code"] == 0 else "error", exit_code=said["exit_code"],
    )  # fmt: skip


def _write(ctx: RunContext, world: BugfixWorld, reply: Reply, calls: list[Call]) -> None:
    seen = "\n".join(call.observation for call in calls) if calls else NO_ACTION
    ctx.step(
        reply.text or "", "\n".join(call.text for call in calls), seen, calls=calls,
        usage=reply.usage, state={"task_id": world.task.task_id, **world.state},
    )  # fmt: skip


def _lapses(ctx: RunContext) -> int:
    """Count the replies without an action at the end."""
    count = 0
    for event in reversed(ctx.steps()):
        if event.payload["calls"]:
            break
        count += 1
    return count


def question(ctx: RunContext) -> Request:
    """Make the conversation from the steps so far, those of an ancestor included."""
    messages = conversation(ctx, _desk(ctx).task.problem, _answer)
    return Request(system=SYSTEM, messages=messages, tools=_tools())


def _answer(call: Call) -> str:
    return call.observation + ("" if call.status == "ok" else FAILED)


def _tools() -> tuple[Tool, ...]:
    return msgspec.convert(TOOLS, tuple[Tool, ...])


_TURN: Final = graph("turn").node("turn", _turn)
