"""Backtracking: a run that seems lost is halted, taken back, told what to avoid, and goes on.

An agent is watched while it works. When it seems lost, three things are written down: what was
predicted and why (``deadend.predicted``); then, in one go, a fork at the last stable step before
the risk rose (``run.backtracked``, with what the agent is told) and the end of the run that was
left (``run.abandoned``, which is no failure). All of it follows from the log, so a process that is
killed in between is carried on by calling :func:`backtrack` again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from typing import Any, NamedTuple

import msgspec

from sag_research.log import SQLiteEventStore
from sag_research.model import WORKSPACE_RUN, Event, Usage
from sag_research.runtime._arms import finish, said_outcome, seed_of
from sag_research.runtime._awaited import call
from sag_research.runtime._backtrack_context import Account, HaltedError, Watched, own_steps
from sag_research.runtime._backtrack_feedback import Situation, tell
from sag_research.runtime._backtrack_policy import BacktrackPolicy, Watch, where_to
from sag_research.runtime._backtrack_result import BacktrackResult
from sag_research.runtime._experiment_context import (
    StepsSpentError,
    ending,
    state_at,
    usage_of,
)
from sag_research.runtime._protocols import AgentFactory, OutcomeOf, Said, World, WorldFactory

__all__ = ["backtrack"]


def backtrack(
    store: SQLiteEventStore,
    run: str,
    *,
    agent_factory: AgentFactory,
    watch: Callable[[], Watch],
    world_factory: WorldFactory | None = None,
    outcome: OutcomeOf | None = None,
    policy: BacktrackPolicy | None = None,
    seed: int = 7,
) -> BacktrackResult:
    """Let an agent work on a run, and take it back where it seems lost.

    Parameters
    ----------
    store : SQLiteEventStore
    run : str
        A run that was created and has not ended; or one that this function was working on.
    agent_factory : callable
        ``agent_factory(change, seed)`` makes the agent of an attempt. ``change`` is empty at
        first; then it holds ``backtrack`` (how often it was taken back) and, as the policy says,
        ``feedback`` (a text for the agent) and ``avoid`` (the actions as they were). An agent
        goes on after the steps that its context has. It asks and acts through the context: what
        it does to its world by itself is not undone where a bound is reached.
    watch : callable
        Makes a monitor for each attempt; it is shown the steps that were kept, first.
    world_factory : callable, optional
        ``world_factory(run)`` makes a fresh world; it is taken to where the attempt begins.
    outcome : callable, optional
        ``outcome(ctx)`` judges the last attempt; default: what the agent returns. A run that was
        aborted has no outcome but one that is judged so: else it is unknown.
    policy : BacktrackPolicy, optional
    seed : int
        Each attempt has a seed of its own, made of this one.

    Returns
    -------
    BacktrackResult

    Raises
    ------
    Exception
        What the agent or the world raises; the run stays as it is and can be carried on.
    """
    setup = _Setup(
        store, run, agent_factory, watch, world_factory, outcome, policy or BacktrackPolicy(), seed
    )
    runs = _attempts(store, run)
    while True:
        tip = runs[-1]
        if ending(store, tip, store.get_run(tip).fork_position + 1) is not None:
            return BacktrackResult(store, runs, _outcome_of(store, tip))
        if (child := _live(setup, runs)) is not None:
            runs.append(child)


class _Setup(NamedTuple):
    store: SQLiteEventStore
    root: str
    agent_factory: AgentFactory
    watch: Callable[[], Watch]
    world_factory: WorldFactory | None
    outcome: OutcomeOf | None
    policy: BacktrackPolicy
    seed: int

    def judged(self, ctx: Watched, said: Said) -> Said:
        """Ask the judge, if there is one."""
        ctx.release()
        return said if self.outcome is None else self.outcome(ctx)


def _attempts(store: SQLiteEventStore, run: str) -> list[str]:
    """Return the run and the attempts that left it, in order; all that is remembered is the log."""
    runs = [run]
    while store.has_run(name := _child_name(run, len(runs))):
        runs.append(name)
    return runs


def _child_name(root: str, number: int) -> str:
    return f"{root}~back{number}"


def _live(setup: _Setup, runs: Sequence[str]) -> str | None:
    """Carry the last attempt on; returns the fork that left it, ``None`` when it has ended."""
    with ExitStack() as held:
        ctx = _context(setup, runs, held)
        ctx.catch_up()
        said: Said = None
        if not ctx.leaves:
            cut_off = ctx.spent
            said = _work(setup, ctx)
            if cut_off and ctx.world is not None:  # nothing is left that could be written down
                ctx.world.restore(_state(setup, ctx.run_id))
        if not ctx.leaves:
            ended = said_outcome(setup.judged(ctx, said))
            finish(setup.store, ctx.run_id, ctx.exit_status or "completed", ended)
        elif setup.policy.then == "abort":
            _abort(setup, ctx)
        else:
            return _leave(setup, ctx, len(runs))
    return None


def _work(setup: _Setup, ctx: Watched) -> Said:
    said: Said = None
    try:
        said = call(setup.agent_factory(ctx.change, ctx.seed), ctx)
    except HaltedError:
        ctx.exit_status = "halted"
    except StepsSpentError:
        ctx.exit_status = ctx.exhausted
    return said


def _context(setup: _Setup, runs: Sequence[str], held: ExitStack) -> Watched:
    """Make the context of the last attempt, with its world and monitor where the run is."""
    store, rules, run_id, number = setup.store, setup.policy, runs[-1], len(runs) - 1
    own = own_steps(store, run_id)
    left = rules.max_steps - sum(own_steps(store, one) for one in runs)
    world = _world(setup, run_id, held)
    may = rules.then == "abort" or number < rules.max_backtracks
    ctx = Watched(
        store, run_id, world=world, seed=seed_of(setup.seed, setup.root, 0, number),
        max_steps=own + max(left, 0), snapshots=world is not None,
        change=_change(store, run_id), monitor=_shown(setup.watch(), store, run_id),
        rules=rules, halts=may and rules.when != "shadow", account=Account(store, runs),
    )  # fmt: skip
    return held.enter_context(ctx)


def _change(store: SQLiteEventStore, run_id: str) -> dict[str, Any]:
    own = store.get_run(run_id).fork_position + 1
    for event in store.read(run_id, own, own, types=("run.forked",)):
        return dict(event.payload.get("change", {}))
    return {}


def _world(setup: _Setup, run_id: str, held: ExitStack) -> World | None:
    """Make the run's world, and take it to where the run is."""
    if setup.world_factory is None:
        return None
    store = setup.store
    world = held.enter_context(closing(setup.world_factory(store.get_run(run_id))))
    if store.count_steps(run_id, store.head(run_id).position + 1):
        world.restore(_state(setup, run_id))
    return world


def _state(setup: _Setup, run_id: str) -> Any:
    assert setup.world_factory is not None  # noqa: S101 - there is a world
    head = setup.store.head(run_id).position
    return state_at(setup.store, run_id, head, setup.world_factory)


def _shown(monitor: Watch, store: SQLiteEventStore, run_id: str) -> Watch:
    """Show a monitor the steps so far; an alarm about those that were kept has been heard."""
    fork = store.get_run(run_id).fork_position
    kept = True
    for event in store.read(run_id, types=("agent.step",)):
        if kept and (event.position or 0) > fork:
            kept, monitor.alarm_at_ = False, None
        monitor.observe(event.payload)
    if kept:
        monitor.alarm_at_ = None
    return monitor


# ---- leaving a run


def _leave(setup: _Setup, ctx: Watched, number: int) -> str:
    """Write down in one go that the run is left, and where the next attempt begins."""
    store, rules, run_id = setup.store, setup.policy, ctx.run_id
    steps = tuple(ctx.steps())
    change, back_to = where_to(ctx.monitor, len(steps), rules)
    predicted = _prediction(ctx)
    told = tell(Situation(store, run_id, number, back_to, change, steps, predicted), rules)
    at = 1 if back_to is None else steps[back_to].position or 1
    place = {"fork_step": back_to, "change_step": change, "from": run_id}
    about = {"where": rules.where, "feedback": rules.about["feedback"], "sources": told.sources}
    if rules.where == "conformal" and rules.fork_set is not None:
        about["coverage"] = 1 - rules.fork_set.alpha
    with store.transaction():
        child = store.fork(
            run_id, at=at, run_id=_child_name(setup.root, number),
            intervention={"backtrack": number, "from": run_id, "change": told.change},
        )  # fmt: skip
        store.append_many([
            Event(run_id=child.run_id, type="run.backtracked", actor="monitor",
                  payload={**place, **about, **_why(predicted)}, cause=child.fork_position + 1),
            _abandoned(ctx, to=child.run_id),
        ])  # fmt: skip
    return child.run_id


def _abort(setup: _Setup, ctx: Watched) -> None:
    """End the run where it is; only a judge says how it went."""
    said = said_outcome(setup.judged(ctx, None))
    about = {"run": ctx.run_id, **msgspec.to_builtins(said)}
    with setup.store.transaction():
        setup.store.append_many([
            _abandoned(ctx),
            Event(run_id=WORKSPACE_RUN, type="outcome.recorded", actor="monitor", payload=about),
        ])  # fmt: skip


def _prediction(ctx: Watched) -> Event:
    assert ctx.predicted is not None  # noqa: S101 - a run is left because of one
    return ctx.predicted


def _why(predicted: Event) -> dict[str, Any]:
    return {"prediction": predicted.position, **predicted.payload}


def _abandoned(ctx: Watched, **more: str) -> Event:
    predicted, usage = _prediction(ctx), usage_of(ctx.store, ctx.run_id)
    payload = {"exit_status": "dead end predicted", **more, **_why(predicted)}
    if usage != Usage():
        payload["usage"] = msgspec.to_builtins(usage)
    return Event(
        run_id=ctx.run_id, type="run.abandoned", actor="monitor", payload=payload,
        cause=predicted.position,
    )  # fmt: skip


def _outcome_of(store: SQLiteEventStore, run_id: str) -> str:
    said = "unknown"
    if store.has_run(WORKSPACE_RUN):
        for event in store.read(WORKSPACE_RUN, types=("outcome.recorded",)):
            if event.payload.get("run") == run_id:
                said = str(event.payload["outcome"])
    return said
