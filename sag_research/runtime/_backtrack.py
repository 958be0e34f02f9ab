"""Backtracking: a run that seems lost is halted, taken back, told what to avoid, and goes on.

An agent is watched while it works. When the alarm is raised, three things are written down at
once: what was predicted and why (``deadend.predicted``), a fork at the last stable step before
the risk rose (``run.backtracked``, with what the agent is told), and the end of the run that was
left (``run.abandoned``, which is no failure). All of it follows from the log, so a process that is
killed in between is carried on by calling :func:`backtrack` again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol

import msgspec

from sag_research._text import clip, visible
from sag_research.errors import UsageError
from sag_research.log import SQLiteEventStore
from sag_research.model import WORKSPACE_RUN, Event, Run
from sag_research.runtime._arms import finish, said_outcome, seed_of
from sag_research.runtime._awaited import call
from sag_research.runtime._experiment_context import (
    RunContext,
    StepsSpentError,
    ending,
    state_at,
)
from sag_research.runtime._loop_graph import positive
from sag_research.runtime._protocols import AgentFactory, OutcomeOf, Said, World, WorldFactory

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["BacktrackPolicy", "BacktrackResult", "HaltedError", "Watch", "backtrack"]

_SHOWN: Final = 8
_QUOTE: Final = 160


class Watch(Protocol):
    """What follows a run, e.g. :class:`sag_research.deadend.DeadEndMonitor`."""

    tokens_: list[str]
    verdicts_: list[Any]
    alarm_at_: int | None

    def observe(self, step: Any, /) -> Any:
        """Take in the next step; returns a verdict with ``risk low high alarm evidence``."""
        ...


class BacktrackPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """When a run is halted, where it goes back to, and what it is told.

    Attributes
    ----------
    when : {'alarm', 'shadow'}
        ``shadow`` writes predictions down and halts nothing.
    where : {'change-point', 'fixed', 'start'}
        The last stable step before the risk rose; so many steps back; the beginning.
    back : int
        Steps, for ``fixed``, and where no change point is found.
    feedback : {'avoid-list', 'none'}
        ``avoid-list``: the actions that were taken behind the fork point.
    max_backtracks : int
    max_steps : int
        Steps of all attempts together.
    """

    when: Literal["alarm", "shadow"] = "alarm"
    where: Literal["change-point", "fixed", "start"] = "change-point"
    back: int = 3
    feedback: Literal["avoid-list", "none"] = "avoid-list"
    max_backtracks: int = 2
    max_steps: int = 100

    def __post_init__(self) -> None:
        positive(self.back, "back")
        positive(self.max_steps, "max_steps")
        if self.max_backtracks < 0:
            raise UsageError("max_backtracks cannot be negative")


class HaltedError(StepsSpentError):
    """The run is halted: an alarm was raised."""


class _Watched(RunContext):
    """A run's context that shows every step to a monitor."""

    def __init__(self, *args: Any, monitor: Watch, halts: bool, **options: Any) -> None:
        super().__init__(*args, **options)
        self.monitor, self.halts = monitor, halts
        self.predicted: Event | None = None

    def __enter__(self) -> _Watched:
        return self

    def step(self, *args: Any, **more: Any) -> Event:
        """Write down one turn, and halt the run where the alarm is raised with it.

        Raises
        ------
        HaltedError
        """
        spent: StepsSpentError | None = None
        try:
            event = super().step(*args, **more)
        except StepsSpentError as error:
            event, spent = self.steps()[-1], error
        raised = self.monitor.alarm_at_ is not None
        verdict = self.monitor.observe(event.payload)
        if not raised and verdict.alarm:
            self.predicted = self._write_prediction(verdict)
            if self.halts:
                raise HaltedError(f"run {self.run_id!r} is halted: {verdict.evidence}")
        if spent is not None:
            raise spent
        return event

    def catch_up(self) -> Event | None:
        """Predict what a process would have, that was killed after the step and before it."""
        own = self.store.get_run(self.run_id).fork_position + 1
        told = any(self.store.read(self.run_id, own, types=("deadend.predicted",)))
        if told or self.monitor.alarm_at_ is None:
            return None
        return self._write_prediction(self.monitor.verdicts_[-1])

    def _write_prediction(self, verdict: Any) -> Event:
        payload = {
            "step": self._steps - 1, "risk": float(verdict.risk), "evidence": verdict.evidence,
            "low": _number(verdict.low), "high": _number(verdict.high),
        }  # fmt: skip
        event = Event(
            run_id=self.run_id, type="deadend.predicted", actor="monitor", payload=payload
        )
        return self.append(event)[0]


class BacktrackResult:
    """What became of a run and of the attempts that left it.

    Attributes
    ----------
    runs : list of str
        The attempts in order; each but the first is a fork of the one before.
    outcome : str
        Of the last attempt.
    """

    def __init__(self, store: SQLiteEventStore, runs: Sequence[str], outcome: str) -> None:
        self.store, self.runs, self.outcome = store, list(runs), outcome

    def __repr__(self) -> str:
        times = len(self.runs) - 1
        many = f"{times} time{'s' * (times != 1)}"
        return f"BacktrackResult({clip(self.runs[0], 40)!r}: {self.outcome}, taken back {many})"

    @property
    def table_(self) -> pd.DataFrame:
        """``run_id fork_step own_steps exit_status risk evidence``, one row an attempt."""
        import pandas as pd

        rows = [_attempt_row(self.store, run_id) for run_id in self.runs]
        names = ["run_id", "fork_step", "own_steps", "exit_status", "risk", "evidence"]
        return pd.DataFrame(rows, columns=names)

    @property
    def steps(self) -> int:
        """Steps of all attempts together; what a fork took over is counted once."""
        return sum(_own_steps(self.store, run_id) for run_id in self.runs)


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
        first; then it holds ``feedback`` (a text for the agent), ``avoid`` (the actions as
        they were) and ``backtrack`` (how often it was taken back). An agent goes on after the
        steps that its context has.
    watch : callable
        Makes a monitor for each attempt; it is shown the steps that were kept, first.
    world_factory : callable, optional
        ``world_factory(run)`` makes a fresh world; it is taken to where the attempt begins.
    outcome : callable, optional
        ``outcome(ctx)`` judges the last attempt; default: what the agent returns.
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
    store, rules, run_id, number = setup.store, setup.policy, runs[-1], len(runs) - 1
    left = rules.max_steps - sum(_own_steps(store, one) for one in runs)
    change, seed = _change(store, run_id), seed_of(setup.seed, setup.root, 0, number)
    with ExitStack() as held:
        world = _world(store, run_id, setup.world_factory, held)
        ctx = held.enter_context(_Watched(
            store, run_id, world=world, seed=seed, max_steps=_limit(store, run_id, left),
            snapshots=world is not None, change=change,
            monitor=_shown(setup.watch(), store, run_id),
            halts=rules.when == "alarm" and number < rules.max_backtracks,
        ))  # fmt: skip
        ctx.predicted = _unanswered(store, run_id) or ctx.catch_up()
        said: Said = None
        try:
            if left > 0 and not (ctx.halts and ctx.predicted is not None):
                said = call(setup.agent_factory(change, seed), ctx)
        except HaltedError:
            ctx.exit_status = "halted"
        except StepsSpentError:
            ctx.exit_status = "steps exhausted"
        if ctx.predicted is not None and ctx.halts:
            return _leave(setup, run_id, number, ctx)
        if setup.outcome is not None:
            said = setup.outcome(ctx)
        finish(store, run_id, ctx.exit_status or "completed", said_outcome(said))
    return None


def _unanswered(store: SQLiteEventStore, run_id: str) -> Event | None:
    """Return the prediction that a process wrote down and was killed before it acted on."""
    own = store.get_run(run_id).fork_position + 1
    types = ("agent.step", "deadend.predicted")
    last: Event | None = None
    for last in store.read(run_id, own, types=types):  # noqa: B007
        pass
    return last if last is not None and last.type == "deadend.predicted" else None


def _limit(store: SQLiteEventStore, run_id: str, left: int) -> int:
    """Own steps that the attempt may have in all, those before a crash included."""
    return max(1, _own_steps(store, run_id) + left)


def _own_steps(store: SQLiteEventStore, run_id: str) -> int:
    own = store.get_run(run_id).fork_position + 1
    return sum(1 for _ in store.read(run_id, own, types=("agent.step",)))


def _change(store: SQLiteEventStore, run_id: str) -> dict[str, Any]:
    own = store.get_run(run_id).fork_position + 1
    for event in store.read(run_id, own, own, types=("run.forked",)):
        return dict(event.payload.get("change", {}))
    return {}


def _world(
    store: SQLiteEventStore, run_id: str, make: WorldFactory | None, held: ExitStack
) -> World | None:
    """Make the run's world, and take it to where the run is."""
    if make is None:
        return None
    world = held.enter_context(closing(make(store.get_run(run_id))))
    head = store.head(run_id).position
    if store.count_steps(run_id, head + 1):
        world.restore(state_at(store, run_id, head, make))
    return world


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


def _leave(setup: _Setup, run_id: str, number: int, ctx: _Watched) -> str:
    """Write down in one go that the run is left, and where the next attempt begins."""
    store, rules = setup.store, setup.policy
    steps = list(store.read(run_id, types=("agent.step",)))
    change, back_to = _where(ctx.monitor, len(steps), rules)
    behind = steps[0 if back_to is None else back_to + 1 :]
    told = _told(behind, number + 1, rules)
    at = 1 if back_to is None else steps[back_to].position or 1
    predicted = ctx.predicted
    assert predicted is not None  # noqa: S101 - the caller has looked
    why = {"prediction": predicted.position, **predicted.payload}
    with store.transaction():
        child = store.fork(
            run_id, at=at, run_id=_child_name(setup.root, number + 1),
            intervention={"backtrack": number + 1, "from": run_id, "change": told},
        )  # fmt: skip
        place = {"fork_step": back_to, "change_step": change, "from": run_id}
        store.append_many([
            Event(run_id=child.run_id, type="run.backtracked", actor="monitor",
                  payload={**place, **why}, cause=child.fork_position + 1),
            Event(run_id=run_id, type="run.abandoned", actor="monitor",
                  payload={"exit_status": "dead end predicted", "to": child.run_id, **why},
                  cause=predicted.position),
        ])  # fmt: skip
    return child.run_id


def _where(monitor: Watch, n_steps: int, rules: BacktrackPolicy) -> tuple[int | None, int | None]:
    """Find where the risk rose, and the step to go back to; None: the beginning."""
    from sag_research.deadend import fork_point  # scikit-learn takes seconds to import

    change, stable = fork_point([one.risk for one in monitor.verdicts_], monitor.tokens_)
    fixed = n_steps - 1 - rules.back
    if rules.where == "start":
        return change, None
    if rules.where == "fixed" or change is None:
        return change, fixed if fixed >= 0 else None
    return change, stable


def _told(behind: Sequence[Event], number: int, rules: BacktrackPolicy) -> dict[str, Any]:
    change: dict[str, Any] = {"backtrack": number}
    if rules.feedback == "none":
        return change
    actions = [str(event.payload.get("action", "")) for event in behind]
    avoid = [action for action in dict.fromkeys(actions) if action.strip()]
    lines = [f"- {visible(clip(action, _QUOTE))}" for action in avoid[:_SHOWN]]
    if len(avoid) > _SHOWN:
        lines.append(f"- and {len(avoid) - _SHOWN} more")
    text = "From here, this was tried and led nowhere:\n" + "\n".join(lines)
    return {**change, "avoid": avoid, "feedback": text}


def _number(value: float) -> float | None:
    return float(value) if value == value else None


def _outcome_of(store: SQLiteEventStore, run_id: str) -> str:
    said = "unknown"
    if store.has_run(WORKSPACE_RUN):
        for event in store.read(WORKSPACE_RUN, types=("outcome.recorded",)):
            if event.payload.get("run") == run_id:
                said = str(event.payload["outcome"])
    return said


def _attempt_row(store: SQLiteEventStore, run_id: str) -> tuple[Any, ...]:
    run: Run = store.get_run(run_id)
    own = run.fork_position + 1
    fork = store.count_steps(run_id, own) - 1 if run.parent_id else None
    end = ending(store, run_id, own)
    predicted = list(store.read(run_id, own, types=("deadend.predicted",)))
    last: Mapping[str, Any] = predicted[-1].payload if predicted else {}
    status = None if end is None else end.payload.get("exit_status")
    return (run_id, fork, _own_steps(store, run_id), status, last.get("risk"),
            last.get("evidence"))  # fmt: skip
