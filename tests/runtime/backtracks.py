"""Agents, monitors and worlds for the tests of going back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from sag_research.log import SQLiteEventStore
from sag_research.model import WORKSPACE_RUN, Event, Run, Usage
from sag_research.runtime import (
    Agent,
    BacktrackPolicy,
    BacktrackResult,
    RunContext,
    backtrack,
)


class Said(NamedTuple):
    risk: float
    low: float
    high: float
    alarm: bool
    evidence: str
    n: int
    n_failed: int


class Scripted:
    """A monitor whose risks are given, one a step; the alarm is raised at .9."""

    def __init__(self, risks: Sequence[float], tokens: Sequence[str] = ()) -> None:
        self.tokens_: list[str] = []
        self.verdicts_: list[Said] = []
        self.alarm_at_: int | None = None
        self._risks, self._tokens = risks, tokens

    def observe(self, step: Mapping[str, Any], /) -> Said:
        at = len(self.verdicts_)
        risk = self._risks[min(at, len(self._risks) - 1)]
        self.tokens_.append(self._tokens[at] if at < len(self._tokens) else "look|src|ok")
        if risk >= 0.9 and self.alarm_at_ is None:
            self.alarm_at_ = at + 1
        low = risk - 0.2 if risk else float("nan")
        said = Said(risk, low, 1.0, self.alarm_at_ is not None, "3 of 4 runs failed", 4, 3)
        self.verdicts_.append(said)
        return said


class Counter:
    """A world whose state is a number, and which any action adds one to."""

    def __init__(self) -> None:
        self.value = 0

    def act(self, action: str) -> str:
        self.value += 1
        return f"{action} -> {self.value}"

    def snapshot(self) -> int:
        return self.value

    def restore(self, snapshot: int) -> None:
        self.value = snapshot

    def close(self) -> None:
        pass


def walker(
    steps: int = 10, usage: Usage | None = None, prefix: str = "go"
) -> Callable[[Mapping[str, Any], int], Agent]:
    """Agents that go on until the run has so many steps."""

    def factory(change: Mapping[str, Any], seed: int) -> Agent:
        def agent(ctx: RunContext) -> str:
            assert isinstance(ctx.world, Counter)
            number = change.get("backtrack", 0)
            while (made := len(ctx.steps())) < steps:
                action = f"{prefix} {made} try {number}"
                seen = ctx.tool("act", ctx.world.act, {"action": action})
                ctx.step(f"I {action}", action, seen, usage=usage)
            return "success"

        return agent

    return factory


def make_store(run: str = "r", task: str | None = "t") -> SQLiteEventStore:
    store = SQLiteEventStore(":memory:")
    store.create_run(Run(run_id=run, task_id=task))
    return store


def go(
    store: SQLiteEventStore,
    risks: Sequence[float],
    policy: BacktrackPolicy | None = None,
    **options: Any,
) -> BacktrackResult:
    given: dict[str, Any] = {
        "agent_factory": walker(), "watch": lambda: Scripted(risks), "policy": policy,
        "world_factory": lambda run: Counter(), **options,
    }  # fmt: skip
    return backtrack(store, "r", **given)


def own(store: SQLiteEventStore, run: str, type_: str = "") -> list[Event]:
    """The events that a run wrote itself."""
    events = store.read(run, store.get_run(run).fork_position + 1)
    return [event for event in events if event.type.startswith(type_)]


def past(store: SQLiteEventStore, run: str, actions: Sequence[str], outcome: str = "success",
         task: str = "t") -> None:  # fmt: skip
    """A run that has ended, each action with what the world says to it."""
    store.create_run(Run(run_id=run, task_id=task))
    for number, action in enumerate(actions, 1):
        payload = {"thought": "", "action": action, "observation": f"{action} -> {number}",
                   "calls": [], "flags": []}  # fmt: skip
        store.append(Event(run_id=run, type="agent.step", payload=payload))
    store.append(Event(run_id=run, type="run.completed", payload={}))
    store.append(
        Event(run_id=WORKSPACE_RUN, type="outcome.recorded",
              payload={"run": run, "outcome": outcome, "source": "test"})
    )  # fmt: skip
