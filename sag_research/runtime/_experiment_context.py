"""A run while it is being lived: asking, acting, and writing down every turn."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from random import Random
from typing import Any, Final

import msgspec

from sag_research.errors import SagError, UsageError
from sag_research.llm import Context
from sag_research.log import SQLiteEventStore
from sag_research.model import TERMINAL_TYPES, Call, Event, Usage
from sag_research.runtime._protocols import ActingWorld, World, WorldFactory

__all__ = ["RunContext", "RunEndedError", "StepsSpentError", "ending", "state_at", "usage_of"]

_WINDOW: Final = 64


class RunEndedError(SagError):
    """The run has ended, perhaps because another process gave it up."""


class StepsSpentError(SagError):
    """The run has made as many steps as it may; ends the agent that does not end itself."""


class RunContext(Context):
    """What an agent is given: its run, its world, its chance, and recorded calls.

    Parameters
    ----------
    store : SQLiteEventStore
    run : str
        The run that is lived; a fork inherits its parent's steps.
    world : World, optional
        Where the agent acts.
    seed : int
        Of :meth:`~sag_research.llm.Context.rng` and its kin.
    max_steps : int, optional
        Number of own steps; with the last one :meth:`step` raises :class:`StepsSpentError`.
    snapshots : bool
        Whether the world's state is recorded with every step, so that a fork at that step needs
        no replay.
    arm : str
        Name of the experiment's arm, if it is one.
    repeat : int
    change : mapping, optional
        What the arm changes.
    **asking
        As for :class:`~sag_research.llm.Context`, e.g. ``mode`` and ``source``.

    Attributes
    ----------
    exit_status : str
        Why the run stops; the agent may say so, in words of its own.

    Examples
    --------
    >>> from sag_research.model import Run
    >>> store = SQLiteEventStore(":memory:")
    >>> _ = store.create_run(Run(run_id="r1"))
    >>> with RunContext(store, "r1", seed=3) as ctx:
    ...     event = ctx.step("look around", "ls", "setup.py")
    >>> event.position, [e.type for e in store.read("r1")]
    (2, ['run.created', 'agent.step'])
    """

    def __init__(
        self,
        store: SQLiteEventStore,
        run: str,
        *,
        world: World | None = None,
        seed: int = 0,
        max_steps: int | None = None,
        snapshots: bool = False,
        arm: str = "",
        repeat: int = 0,
        change: Mapping[str, Any] | None = None,
        **asking: Any,
    ) -> None:
        super().__init__(store, run, **{"rng": Random(seed), **asking})
        if snapshots and world is None:
            raise UsageError("no world to take snapshots of", fix="give one, or snapshots=False")
        self.run_id, self.world, self.seed = run, world, seed
        self.max_steps, self.snapshots = max_steps, snapshots
        self.arm, self.repeat, self.change = arm, repeat, dict(change or {})
        self.exit_status = ""
        self._looked_at = store.get_run(run).fork_position
        self._own = sum(1 for _ in store.read(run, self._looked_at + 1, types=("agent.step",)))
        self._steps = store.count_steps(run, store.head(run).position + 1)

    def __enter__(self) -> RunContext:
        return self

    def steps(self) -> list[Event]:
        """Return the events ``agent.step`` so far, those of the ancestors included."""
        return list(self.store.read(self.run_id, types=("agent.step",)))

    def step(
        self,
        thought: str = "",
        action: str = "",
        observation: str = "",
        *,
        calls: Sequence[Call | Mapping[str, Any]] = (),
        flags: Sequence[str] = (),
        usage: Usage | None = None,
        **more: Any,
    ) -> Event:
        """Write down one turn.

        Parameters
        ----------
        thought, action, observation : str
            ``action`` and ``observation`` are the texts of the calls joined, if there are calls.
        calls : sequence of Call or mapping
        flags : sequence of str
        usage : Usage, optional
        **more
            Other fields of the event: ``state``, ``started``, ``seconds``.

        Raises
        ------
        StepsSpentError
            With the last of ``max_steps`` own steps, which is written down, so that no action
            follows that is not.
        RunEndedError
            If it has ended.
        """
        if self.max_steps is not None and self._own >= self.max_steps:
            raise self._spent()
        payload: dict[str, Any] = {
            "thought": thought,
            "action": action,
            "observation": observation,
            "calls": [_call(call) for call in calls],
            "flags": list(flags),
        }
        if usage is not None:
            payload["usage"] = msgspec.to_builtins(usage)
        event = Event(run_id=self.run_id, type="agent.step", payload=payload | more)
        # the snapshot stands before its step, for a fork at the step sees nothing after it
        before = [self._snapshot(self._steps + 1)] if self.snapshots else []
        written = self.append(*before, event)[-1]
        self._own, self._steps = self._own + 1, self._steps + 1
        if self.max_steps is not None and self._own >= self.max_steps:
            raise self._spent()  # now, for the next action would be done and not be written down
        return written

    def _spent(self) -> StepsSpentError:
        return StepsSpentError(f"run {self.run_id!r} has made its {self.max_steps} steps")

    def snapshot(self) -> Event:
        """Record the state of the world, as it is after the steps so far."""
        return self.append(self._snapshot(self._steps))[0]

    def _snapshot(self, steps: int) -> Event:
        if self.world is None:
            raise UsageError("no world to take a snapshot of")
        payload = {"steps": steps, "state": self.world.snapshot()}
        return Event(run_id=self.run_id, type="world.snapshot", actor="world", payload=payload)

    def append(self, *events: Event) -> list[Event]:
        """Append events to the run, each caused by the one before it.

        Raises
        ------
        RunEndedError
            If the run has ended.
        """
        with self.store.transaction():
            end = self.store.head(self.run_id).position
            if ending(self.store, self.run_id, self._looked_at + 1) is not None:
                raise RunEndedError(f"run {self.run_id!r} has ended")
            chained = [
                event if event.cause is not None else msgspec.structs.replace(event, cause=cause)
                for cause, event in enumerate(events, end)
            ]
            written = self.store.append_many(chained)
        self._looked_at = end + len(written)
        return written


def _call(call: Call | Mapping[str, Any]) -> dict[str, Any]:
    full = call if isinstance(call, Call) else msgspec.convert(dict(call), Call)
    return {name: getattr(full, name) for name in full.__struct_fields__}


def ending(store: SQLiteEventStore, run_id: str, lo: int) -> Event | None:
    """Return the event at or after a position that ended the run, the last of several."""
    found = None
    for found in store.read(run_id, lo, types=TERMINAL_TYPES):  # noqa: B007
        pass
    return found


def usage_of(store: SQLiteEventStore, run_id: str) -> Usage:
    """Sum up what a run's own steps took, or else its own model calls; a part unknown: unknown."""
    own = store.get_run(run_id).fork_position + 1
    for type_ in ("agent.step", "llm.responded"):
        parts = [event.payload.get("usage") or {} for event in store.read(run_id, own, types=type_)]
        if any(parts):
            return Usage(
                tokens_in=_total([part.get("tokens_in") for part in parts]),
                tokens_out=_total([part.get("tokens_out") for part in parts]),
                cost_usd=_total([part.get("cost_usd") for part in parts]),
            )
    return Usage()


def _total(values: list[Any]) -> Any:
    return None if None in values else sum(values)


def state_at(store: SQLiteEventStore, run_id: str, at: int, make_world: WorldFactory) -> Any:
    """Return the state of a run's world at a position, as :meth:`World.snapshot` gives it.

    Taken from the last event ``world.snapshot`` up to there; the steps after it, or all where
    there is none, are executed again in a world of its own.

    Raises
    ------
    UsageError
        If steps must be executed and the world has no ``act``.
    SagError
        If the world answers otherwise than it did in the run.
    """
    steps = store.count_steps(run_id, at + 1)
    done, state = 0, None
    for event in _snapshots(store, run_id, at):
        covered = event.payload.get("steps")
        done = store.count_steps(run_id, event.position or 0) if covered is None else int(covered)
        if done <= steps:  # else it belongs to a step that the fork does not see
            state = event.payload.get("state", event.payload)
            break
    else:
        done = 0
    if state is not None and done == steps:
        return state
    with closing(make_world(store.get_run(run_id))) as world:
        if state is not None:
            world.restore(state)
        _replay(store, run_id, at, done, world)
        return world.snapshot()


def _snapshots(store: SQLiteEventStore, run_id: str, at: int) -> Iterator[Event]:
    """Read snapshots from a position backwards; each may be large, and the last one is wanted."""
    while at > 0:
        lo = max(1, at - _WINDOW + 1)
        yield from reversed(list(store.read(run_id, lo, at, types=("world.snapshot",))))
        at = lo - 1


def _replay(store: SQLiteEventStore, run_id: str, at: int, done: int, world: World) -> None:
    events = store.read(run_id, 1, at, types=("agent.step",))
    for number, event in enumerate(events):
        if number < done:
            continue
        if not isinstance(world, ActingWorld):
            raise UsageError(
                f"the world of run {run_id!r} cannot be taken to position {at}",
                why=f"there is no snapshot of it after step {number}, and it has no act()",
                fix="record world.snapshot events, or give a world that executes actions",
            )
        for action, recorded in _acts(event.payload):
            result = world.act(action)
            seen = getattr(result, "text", result)
            if seen != recorded:
                raise SagError(
                    f"replaying run {run_id!r}, the world answers otherwise at step {number}",
                    why="it is not the world of the run, or not deterministic",
                    fix="record world.snapshot events while the run is lived",
                )


def _acts(payload: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The actions of a step that were executed, with what was observed."""
    if "rejected" in payload.get("flags", ()):
        return []
    calls = [call for call in payload.get("calls", ()) if call.get("text")]
    if calls:
        return [(call["text"], call.get("observation", "")) for call in calls]
    action = payload.get("action", "")
    return [(action, payload.get("observation", ""))] if action.strip() else []
