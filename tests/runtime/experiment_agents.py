"""Worlds and agents for the experiments' tests; here, so that other processes can import them."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from sag_research.lab.bugfix import BugfixWorld, Observation, ScriptedPolicy, load_task, render
from sag_research.log import SQLiteEventStore
from sag_research.model import Call, Outcome, Run, Usage
from sag_research.runtime import Agent, Experiment, RunContext

# ---- the bug-fix world

HASTY = "scripted-b"


def bugfix_world(run: Run) -> BugfixWorld:
    assert run.task_id is not None
    return BugfixWorld(run.task_id)


def bugfix_agent(change: Mapping[str, Any], seed: int) -> Agent:
    """The run's own policy, resumed by its observations; then other traits, and new chance."""

    def agent(ctx: RunContext) -> None:
        world = ctx.world
        assert isinstance(world, BugfixWorld)
        policy = ScriptedPolicy(world.task, HASTY, ctx.store.get_run(ctx.run_id).config["seed"])
        seen: Observation | None = None
        for event in ctx.steps():
            turn = policy.act(seen)
            assert turn is not None
            assert turn.thought == event.payload["thought"], "the parent's policy is not resumed"
            calls = event.payload["calls"]
            code = calls[0]["exit_code"] if calls else None
            seen = Observation(event.payload["observation"], code or 0) if calls else None
        policy.traits = replace(policy.traits, **change)
        policy.reseed(seed)
        live(ctx, policy, seen)

    return agent


def live(ctx: RunContext, policy: ScriptedPolicy, seen: Observation | None) -> None:
    """Act until the policy stops or submits."""
    world = ctx.world
    assert isinstance(world, BugfixWorld)
    while (turn := policy.act(seen)) is not None:
        action = render(turn.name, turn.arguments) if turn.name else ""
        seen = world.call(turn.name, turn.arguments) if turn.name else None
        text = seen.text if seen else "no action"
        calls = [
            Call(name=turn.name, arguments=turn.arguments, text=action, observation=text,
                 exit_code=seen.exit_code)
        ] if seen else []  # fmt: skip
        usage = Usage(tokens_in=100, tokens_out=10, cost_usd=0.001)
        ctx.step(turn.thought, action, text, calls=calls, usage=usage)
        if seen and seen.done:
            ctx.exit_status = "submitted"
            return


def bugfix_outcome(ctx: RunContext) -> Outcome:
    assert isinstance(ctx.world, BugfixWorld)
    verdict = ctx.world.evaluate()
    return Outcome(outcome="success" if verdict.success else "failure", detail=verdict.detail)


def record_bugfix_run(
    store: SQLiteEventStore, run_id: str, task_id: str, seed: int, *, snapshots: bool = True
) -> bool:
    """Live a run with every step's world recorded; tell whether it succeeded."""
    run = store.create_run(Run(run_id=run_id, task_id=task_id, model=HASTY, config={"seed": seed}))
    with bugfix_world(run) as world:
        ctx = RunContext(store, run_id, world=world, max_steps=40, snapshots=snapshots)
        live(ctx, ScriptedPolicy(load_task(task_id), HASTY, seed), None)
        return world.evaluate().success


# ---- a world of one number


class Counter:
    """A number that actions add to."""

    def __init__(self, run: Run | None = None) -> None:
        self.value = 0
        self.closed = False

    def act(self, action: str) -> str:
        self.value += int(action)
        return str(self.value)

    def snapshot(self) -> dict[str, int]:
        return {"value": self.value}

    def restore(self, snapshot: dict[str, int]) -> None:
        self.value = snapshot["value"]

    def close(self) -> None:
        self.closed = True


class StillCounter:
    """The same world, which cannot execute actions again."""

    def __init__(self, run: Run | None = None) -> None:
        self._inner = Counter()
        self.snapshot, self.restore = self._inner.snapshot, self._inner.restore
        self.close = self._inner.close


def counting_agent(change: Mapping[str, Any], seed: int) -> Agent:
    """Adds ``change["add"]`` twice; may raise, loop for ever, or take its process down."""

    def agent(ctx: RunContext) -> bool | None:
        world = ctx.world
        assert isinstance(world, Counter)
        for _ in range(2 if "loop" not in change else 10**6):
            ctx.step("add", str(change.get("add", 1)), world.act(str(change.get("add", 1))))
            stumble(change, ctx)
        return None if change.get("silent") else world.value > 5

    return agent


def stumble(change: Mapping[str, Any], ctx: RunContext) -> None:
    if change.get("raise"):
        raise ValueError("lost its \ud835 way")
    if change.get("kill") == ctx.repeat:
        os.kill(os.getpid(), signal.SIGKILL)
    if (once := change.get("kill_once")) and ctx.repeat == 1:
        try:
            Path(once).touch(exist_ok=False)
        except FileExistsError:
            return
        os.kill(os.getpid(), signal.SIGKILL)
    if (gate := change.get("hang")) and ctx.repeat == 1 and not Path(gate).exists():
        Path(gate).touch()
        threading.Event().wait(30)


def counting_parent(store: SQLiteEventStore, run_id: str = "p", task_id: str = "t") -> None:
    """A run that added 1, 2 and 3, with one snapshot after the first step."""
    store.create_run(Run(run_id=run_id, task_id=task_id))
    world = Counter()
    with RunContext(store, run_id, world=world) as ctx:
        for number in (1, 2, 3):
            ctx.step("add", str(number), world.act(str(number)))
            if number == 1:
                ctx.snapshot()


def unwritable_agent(change: Mapping[str, Any], seed: int) -> Agent:
    """Takes the log away under its own process, as a full disk would."""

    def agent(ctx: RunContext) -> None:
        ctx.store.close()

    return agent


def hanging_experiment(path: str, gate: str) -> Experiment:
    """One continuation waits until it is killed, at the first time only."""
    arms: dict[str, dict[str, Any]] = {"a": {"hang": gate}, "b": {"add": 2}}
    return Experiment(
        SQLiteEventStore(path), "p", step=1, arms=arms, repeats=4,
        world_factory=Counter, agent_factory=counting_agent,
    )  # fmt: skip


if __name__ == "__main__":  # a second process, to be killed
    hanging_experiment(sys.argv[1], sys.argv[2]).run(jobs=2)
