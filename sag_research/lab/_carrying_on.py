"""What carrying a run on has in common: the run so far as a conversation, and a plan to drive."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from sag_research.llm import Message, Model, ToolCall
from sag_research.model import Call
from sag_research.runtime import LoopPlan, RunContext, Runtime, StepsSpentError

__all__ = ["conversation", "driven"]


def conversation(ctx: RunContext, begin: str, answer: Callable[[Call], str]) -> tuple[Message, ...]:
    """Make messages of the steps so far, those of an ancestor included.

    Parameters
    ----------
    ctx : RunContext
        Feedback in its change is a message where the run went on.
    begin : str
        What the agent is told at first.
    answer : callable
        What a call's result says to the model.
    """
    messages = [Message(role="user", content=begin)]
    told = str(ctx.change.get("feedback", ""))
    fork = ctx.store.get_run(ctx.run_id).fork_position
    for event in ctx.steps():
        if told and (event.position or 0) > fork:
            messages.append(Message(role="user", content=told))
            told = ""
        step = event.payload
        calls = [msgspec.convert(call, Call) for call in step["calls"]]
        messages.append(Message(role="assistant", content=step["thought"], calls=_asked(calls)))
        messages += [
            Message(role="tool", content=answer(call), call_id=call.id, name=call.name)
            for call in calls
        ]
        if not calls and step["observation"]:
            messages.append(Message(role="user", content=step["observation"]))
    messages += [Message(role="user", content=told)] if told else []
    return tuple(messages)


def _asked(calls: list[Call]) -> tuple[ToolCall, ...]:
    return tuple(ToolCall(id=c.id, name=c.name, arguments=c.arguments) for c in calls)


def driven(work: LoopPlan[str], ctx: RunContext, model: Model) -> str:
    """Drive a plan of turns to its end; returns why it ended."""
    with Runtime() as runtime:
        try:
            return runtime.loop(work, (ctx, model))
        except StepsSpentError:
            return "max-steps"
