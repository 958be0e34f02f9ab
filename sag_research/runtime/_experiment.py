"""Experiments on one step: go back to it, go on in several ways, and count how that went."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from operator import index
from typing import Any, Final, NamedTuple, Protocol

from msgspec.structs import replace

from sag_research._text import clip
from sag_research.errors import SagError, UsageError
from sag_research.log import SQLiteEventStore, canonical_digest
from sag_research.model import TERMINAL_TYPES, Event, Run
from sag_research.runtime._arms import Arm, Job, Setting, carry_out, give_up, seed_of
from sag_research.runtime._experiment_context import ending, state_at
from sag_research.runtime._experiment_pool import carry_out_all, check_importable
from sag_research.runtime._experiment_result import Continuation, ExperimentResult
from sag_research.runtime._lineage_outcomes import read_outcomes
from sag_research.runtime._protocols import AgentFactory, OutcomeOf, WorldFactory
from sag_research.runtime._stats import LEVEL, repeats_for_difference, repeats_for_rate

__all__ = ["Experiment", "Plan"]

_ATTEMPTS: Final = 3


class _HasStore(Protocol):
    """A workspace, as far as it matters here."""

    @property
    def store(self) -> SQLiteEventStore: ...

    def resolve(self, run: str) -> str: ...


class _Point(NamedTuple):
    """Where a parent run is forked."""

    run_id: str
    at: int


class _Key(NamedTuple):
    """What is carried out once."""

    parent: str
    at: int
    arm: str
    repeat: int


class _Try(NamedTuple):
    """A fork that was made for it, and how it ended, if it did."""

    run: Run
    end: Event | None


class Plan(NamedTuple):
    """How many repeats a wanted precision needs.

    Examples
    --------
    >>> Plan(0.1, 0.5, 0.95, 2, 1, 93, 193).continuations
    186
    """

    width: float
    base_rate: float
    level: float
    arms: int
    points: int
    repeats: int
    """Per arm and parent run, for each arm's own rate to ``±width``."""
    repeats_for_difference: int
    """Per arm and parent run, for the difference of two arms to ``±width``."""

    @property
    def continuations(self) -> int:
        """Runs in all that :attr:`repeats` asks for."""
        return self.arms * self.points * self.repeats


class Experiment:
    """Forks runs at a step, goes on in several arms, and compares how that went.

    Parameters
    ----------
    store : SQLiteEventStore or Workspace
    run : str or sequence of (str, int)
        The parent run; or several, each with the step at which it is forked.
    at, step : int, optional
        Where one parent run is forked: a position, or a 0-based step (everything up to the event
        of that step is shared).
    arms : mapping of str to Arm or mapping
        The ways to go on; a mapping is an arm's ``change``. The first is the control.
    repeats : int
        Continuations of each arm and parent run.
    seed : int
        Repeat i of a parent run has the same seed in every arm (common random numbers).
    world_factory : callable, optional
        ``world_factory(run)`` makes a fresh world; it is restored to the fork.
    agent_factory : callable, optional
        ``agent_factory(change, seed)`` makes an agent; needed unless every arm has its own.
    outcome : callable, optional
        ``outcome(ctx)`` judges a continuation; default: what the agent returns.
    max_steps : int or None
        Own steps after which a continuation is stopped (and judged as it stands).
    snapshots : bool
        Whether continuations record their world with every step.
    name : str
        Tells experiments apart; default: made of the seed and the forks. Give a new one when
        the agents' code has changed, else continuations already carried out are taken.

    Notes
    -----
    A continuation that is finished is found again by its intervention and not carried out again;
    one that was interrupted is marked ``run.abandoned`` and carried out anew, so an experiment
    goes on where it was stopped, and may later be given more repeats or arms. One that brought
    down its process three times counts as crashed. Carry out an experiment from one
    process at a time: another would take for dead what this one is doing.

    Examples
    --------
    >>> store = SQLiteEventStore(":memory:")
    >>> _ = store.create_run(Run(run_id="r1", task_id="t1"))
    >>> _ = store.append(Event(run_id="r1", type="agent.step", payload={"action": "guess"}))
    >>> def agent_factory(change, seed):
    ...     def agent(ctx):
    ...         ctx.step("toss", "toss", "heads")
    ...         return ctx.rng().random() < change.get("chance", 0.2)
    ...     return agent
    >>> arms = {"same": {}, "luckier": {"chance": 0.8}}
    >>> result = Experiment(
    ...     store, "r1", at=1, arms=arms, repeats=4, agent_factory=agent_factory, name="coin"
    ... ).run()
    >>> result
    ExperimentResult('coin', 2 arms, 8 of 8 continuations, 1 tasks)
    >>> [row.n for row in result.table_.itertuples()]
    [4, 4]
    """

    def __init__(
        self,
        store: SQLiteEventStore | _HasStore,
        run: str | Sequence[tuple[str, int]],
        *,
        arms: Mapping[str, Arm | Mapping[str, Any]],
        at: int | None = None,
        step: int | None = None,
        repeats: int = 20,
        seed: int = 7,
        world_factory: WorldFactory | None = None,
        agent_factory: AgentFactory | None = None,
        outcome: OutcomeOf | None = None,
        max_steps: int | None = 100,
        snapshots: bool = False,
        name: str = "",
    ) -> None:
        self._home = store
        self.store = store if isinstance(store, SQLiteEventStore) else store.store
        self.arms = {key: _arm(arm) for key, arm in arms.items()}
        self.repeats, self.seed = repeats, seed
        self._world_factory, self._outcome = world_factory, outcome
        self._max_steps, self._snapshots = max_steps, snapshots
        self._factories = _factories(self.arms, agent_factory)
        if index(repeats) < 1:
            raise UsageError(f"{repeats} repeats are none", fix="give at least 1")
        self._points = self._find_points(run, at, step)
        self.name = name or self._make_name()
        self._states: dict[tuple[str, int], Any] = {}

    def __repr__(self) -> str:
        size = f"{len(self._points)} forks x {len(self.arms)} arms x {self.repeats} repeats"
        return f"Experiment({clip(self.name, 40)!r}, {size})"

    def _find_points(
        self, run: str | Sequence[tuple[str, int]], at: int | None, step: int | None
    ) -> list[_Point]:
        if isinstance(run, str):
            if (at is None) == (step is None):
                raise UsageError("an experiment forks at one place", fix="give `at` or `step`")
            return [self._point(run, at, step)]
        if at is not None or step is not None:
            raise UsageError("several runs have a step each", fix="give [(run, step), …] alone")
        points = [self._point(run_id, None, at_step) for run_id, at_step in run]
        if not points or len(set(points)) < len(points):
            raise UsageError("an experiment needs forks, each once", why=f"got {len(points)}")
        return points

    def _point(self, name: str, at: int | None, step: int | None) -> _Point:
        home = self._home
        run_id = name if isinstance(home, SQLiteEventStore) else home.resolve(name)
        end = self.store.head(run_id).position
        if at is None:
            at = self.store.position_of_step(run_id, step or 0)
        if not 1 <= at <= end:
            raise UsageError(f"run {run_id!r} has no position {at}", why=f"it ends at {end}")
        if any(self.store.read(run_id, 1, at, types=TERMINAL_TYPES)):
            raise UsageError(
                f"run {run_id!r} has ended at position {at}", fix="fork it before its end"
            )
        return _Point(run_id, at)

    def _make_name(self) -> str:
        places = "|".join(f"{point.at}@{point.run_id}" for point in self._points)
        return blake2b(f"{self.seed}|{places}".encode(), digest_size=6).hexdigest()

    # ---- planning

    def plan(
        self,
        width: float,
        base_rate: float = 0.5,
        *,
        level: float = LEVEL,
        correlation: float = 0.0,
    ) -> Plan:
        """Say how many repeats a wanted precision needs.

        Parameters
        ----------
        width : float
            Wanted half-width of an interval.
        base_rate : float
            Expected rate of success; 0.5 is the most demanding.
        level : float
            Confidence.
        correlation : float
            Between two arms' results of one repeat; 0 is the careful guess.

        Notes
        -----
        Continuations are taken as independent. Those of one parent run speak about that run
        alone: more of them do not make up for few tasks.
        """
        points = len(self._points)
        rate = repeats_for_rate(width, base_rate, level)
        difference = repeats_for_difference(width, base_rate, level, correlation)
        repeats = (-(-rate // points), -(-difference // points))
        return Plan(width, base_rate, level, len(self.arms), points, *repeats)

    # ---- carrying out

    def run(self, jobs: int = 1) -> ExperimentResult:
        """Carry out what has not been, and return all that is there.

        Parameters
        ----------
        jobs : int
            Processes at work; 1 works in this one. With more, the factories and ``outcome``
            must be importable: defined at the top of a module, not in a notebook.
        """
        if jobs < 1:
            raise UsageError(f"{jobs} processes carry out nothing", fix="give jobs=1 or more")
        if jobs > 1:
            self._check_for_processes()
        while todo := self._todo():
            before = self._count_tries()
            self._prepare(todo)
            setting = self._setting()
            if jobs == 1:
                for job in todo:
                    carry_out(self.store, job, setting)
            else:
                carry_out_all(self.store.path, setting, todo, jobs)
            if self._count_tries() == before:
                raise SagError("no continuation could be started")
        return self.result()

    def _check_for_processes(self) -> None:
        if self.store.path == ":memory:":
            raise UsageError("a log in memory has one process", fix="use a file, or jobs=1")
        things: dict[str, Any] = {
            f"the agent factory of arm {arm!r}": made for arm, made in self._factories.items()
        }
        things |= {"world_factory": self._world_factory, "outcome": self._outcome}
        check_importable({name: thing for name, thing in things.items() if thing is not None})

    def _setting(self) -> Setting:
        return Setting(
            factories=self._factories,
            world_factory=self._world_factory,
            outcome=self._outcome,
            states=self._states,
            max_steps=self._max_steps,
            snapshots=self._snapshots,
        )

    def _prepare(self, todo: Sequence[Job]) -> None:
        """Find the state of the world at each fork once, not once a continuation."""
        if self._world_factory is not None:
            for place in {(job.parent, job.at) for job in todo}:
                if place not in self._states:
                    self._states[place] = state_at(self.store, *place, self._world_factory)

    def _jobs(self) -> Iterator[tuple[_Key, Job]]:
        """List the design, repeat by repeat, so that an interrupted experiment has whole pairs."""
        for repeat in range(self.repeats):
            for point in self._points:
                for name, arm in self.arms.items():
                    yield (
                        _Key(point.run_id, point.at, name, repeat),
                        Job(
                            experiment=self.name,
                            parent=point.run_id,
                            at=point.at,
                            arm=name,
                            change=arm.change,
                            repeat=repeat,
                            seed=seed_of(self.seed, point.run_id, point.at, repeat),
                        ),
                    )

    def _todo(self) -> list[Job]:
        """List what is left to do, and give up what was left half done."""
        tries, todo = self._tries(), []
        for key, job in self._jobs():
            made = tries[key]
            if any(_is_whole(one) for one in made):
                continue
            for one in made:
                if one.end is None:
                    give_up(self.store, one.run.run_id)
            if len(made) < _ATTEMPTS:
                todo.append(_attempt(job, len(made)))
        return todo

    def _tries(self) -> defaultdict[_Key, list[_Try]]:
        """Find the forks made for this design, by what their first own event says."""
        wanted = {canonical_digest(job.intervention): key for key, job in self._jobs()}
        places = {(point.run_id, point.at) for point in self._points}
        found: defaultdict[_Key, list[_Try]] = defaultdict(list)
        for run in self._relatives():
            if (run.parent_id, run.fork_position) not in places:
                continue
            own = run.fork_position + 1
            for event in self.store.read(run.run_id, own, own, types=("run.forked",)):
                key = wanted.get(canonical_digest(event.payload))
                if key is not None and (key.parent, key.at) == (run.parent_id, run.fork_position):
                    found[key].append(_Try(run, ending(self.store, run.run_id, own)))
        return found

    def _relatives(self) -> list[Run]:
        """List the families of the runs that are forked, each once."""
        known: dict[str, Run] = {}
        for parent in dict.fromkeys(point.run_id for point in self._points):
            if parent not in known:
                known |= {run.run_id: run for run in self.store.family(parent)}
        return list(known.values())

    def _count_tries(self) -> int:
        return sum(map(len, self._tries().values()))

    # ---- looking

    def result(self) -> ExperimentResult:
        """Return what is there, without carrying out anything."""
        tries = self._tries()
        last = {key: _telling(made) for key, made in tries.items()}
        outcomes = read_outcomes(self.store, [one.run.run_id for one in last.values()])
        rows = [
            self._continuation(key, job, last[key], len(tries[key]), outcomes)
            for key, job in self._jobs()
            if key in last
        ]
        planned = len(self._points) * len(self.arms) * self.repeats
        return ExperimentResult(self.name, list(self.arms), rows, planned, self.seed)

    def _continuation(
        self, key: _Key, job: Job, one: _Try, attempts: int, outcomes: Mapping[str, Any]
    ) -> Continuation:
        run, said = one.run, outcomes[one.run.run_id]
        payload = {} if one.end is None else one.end.payload
        usage = payload.get("usage") or {}
        read, written = usage.get("tokens_in"), usage.get("tokens_out")
        crashed = _is_crash(one, attempts)
        head = self.store.head(run.run_id).position
        steps = self.store.count_steps(run.run_id, head + 1)
        return Continuation(
            run_id=run.run_id,
            parent_id=key.parent,
            fork_position=key.at,
            task_id=run.task_id or key.parent,
            arm=key.arm,
            repeat=key.repeat,
            seed=job.seed,
            status="crashed" if crashed else said.outcome,
            exit_status=payload.get("exit_status"),
            detail=said.detail,
            score=said.score,
            steps=steps - self.store.count_steps(run.run_id, run.fork_position + 1),
            tokens=None if read is None or written is None else read + written,
            cost_usd=usage.get("cost_usd"),
            attempts=attempts,
        )


def _arm(arm: Arm | Mapping[str, Any]) -> Arm:
    if not isinstance(arm, (Arm, Mapping)):
        raise UsageError(f"{arm!r} is no arm", fix="give what it changes: {'temperature': 1.0}")
    made = arm if isinstance(arm, Arm) else Arm(dict(arm))
    canonical_digest(made.change)  # refuses what cannot be recorded
    return made


def _factories(arms: Mapping[str, Arm], default: AgentFactory | None) -> dict[str, AgentFactory]:
    if not arms:
        raise UsageError("an experiment needs at least one arm")
    found: dict[str, AgentFactory] = {}
    for name, arm in arms.items():
        factory = arm.agent_factory or default
        if factory is None:
            raise UsageError(f"arm {name!r} has no agent", fix="give agent_factory")
        found[name] = factory
    return found


def _attempt(job: Job, number: int) -> Job:
    return replace(job, attempt=number)


def _is_whole(one: _Try) -> bool:
    return one.end is not None and one.end.type != "run.abandoned"


def _is_crash(one: _Try, attempts: int) -> bool:
    if one.end is None:
        return False
    return one.end.type == "run.failed" or (
        one.end.type == "run.abandoned" and attempts >= _ATTEMPTS
    )


def _telling(made: Sequence[_Try]) -> _Try:
    """Of several attempts, return the one that came to an end, else the last."""
    return next((one for one in made if _is_whole(one)), made[-1])
