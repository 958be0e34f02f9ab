"""The two forms of a loop: a plan, which is a generator of steps, and a machine with a state."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator, Mapping
from typing import Annotated, Any, Generic, Protocol, TypeAlias, TypeVar, overload

import msgspec

from sag_research._text import clip
from sag_research.errors import UsageError
from sag_research.log import SQLiteEventStore, canonical_digest
from sag_research.model import Event
from sag_research.runtime._loop_errors import CheckpointMismatchError
from sag_research.runtime._loop_graph import (
    Graph,
    GraphStep,
    Outputs,
    graph_step,
    named,
    positive,
)

__all__ = [
    "Checkpoint", "LogCheckpoint", "LoopPlan", "StateLoop", "Steps", "plan", "resumed",
    "states",
]  # fmt: skip

R = TypeVar("R")
S = TypeVar("S")

Steps: TypeAlias = Generator[GraphStep, Outputs, R]
"""What a plan returns when it is called: steps, and in the end a result of type ``R``."""


class LoopPlan(Generic[R]):
    """A plan: a function that yields steps and returns the loop's result; see :func:`plan`.

    Calling it inside another plan, ``yield from child(x)``, runs it as a part of that: budget,
    cancellation and events are the outer loop's.
    """

    __slots__ = ("function", "id", "max_iterations")

    def __init__(
        self, id: str, function: Callable[..., Steps[R]], max_iterations: int | None = None
    ) -> None:
        self.id, self.function = named(id, "a plan"), function
        self.max_iterations = max_iterations
        if max_iterations is not None:
            positive(max_iterations, "max_iterations")

    def __repr__(self) -> str:
        return f"LoopPlan({self.id!r})"

    def __call__(self, *args: Any, **options: Any) -> Steps[R]:
        """Return the plan's steps; nothing of it has run yet."""
        return self.function(*args, **options)


@overload
def plan(function: Callable[..., Steps[R]], /) -> LoopPlan[R]: ...
@overload
def plan(
    *, id: str | None = None, max_iterations: int | None = None
) -> Callable[[Callable[..., Steps[R]]], LoopPlan[R]]: ...
def plan(
    function: Callable[..., Steps[R]] | None = None,
    /,
    *,
    id: str | None = None,
    max_iterations: int | None = None,
) -> LoopPlan[R] | Callable[[Callable[..., Steps[R]]], LoopPlan[R]]:
    """Make a plan of the decorated generator function.

    Parameters
    ----------
    id : str, optional
        Default: the function's name.
    max_iterations : int, optional
        Graphs that the loop may run, failed ones included; default: the runtime's.

    Raises
    ------
    UsageError
        If the function is no plain generator function, the id is blank or the limit is none.

    Notes
    -----
    A plan has no effects of its own: what reads, writes or asks is the work of a node. An
    error of a graph is raised where its step was yielded; the plan may catch it and go on. The
    end of the budget and the loop's cancellation cannot be caught: the plan is closed, its
    ``finally`` blocks run, and a step yielded there is not run.

    Each step costs time in proportion to the depth of nested ``yield from``, and Python's
    recursion limit holds for it.

    Examples
    --------
    >>> @plan(max_iterations=4)
    ... def countdown(n):
    ...     while n:
    ...         outputs = yield from GraphStep(Graph("less").node("n", lambda n: n - 1), n)
    ...         n = outputs["n"].unwrap()
    ...     return "lift off"
    >>> countdown
    LoopPlan('countdown')
    """

    def make(decorated: Callable[..., Steps[R]]) -> LoopPlan[R]:
        name = str(getattr(decorated, "__name__", type(decorated).__name__))
        if inspect.isasyncgenfunction(decorated) or inspect.iscoroutinefunction(decorated):
            raise UsageError(
                f"plan {name!r} is asynchronous", why="a plan only says what to run next",
                fix="write it with `def` and `yield from`; its nodes may be `async def`",
            )  # fmt: skip
        if not inspect.isgeneratorfunction(decorated):
            raise UsageError(
                f"plan {name!r} yields nothing", fix="use `yield from graph_step(graph, input)`"
            )
        return LoopPlan(name if id is None else id, decorated, max_iterations)

    return make if function is None else make(function)


class StateLoop(msgspec.Struct, Generic[S], frozen=True, kw_only=True):
    """A loop whose only memory is a state: bind, run, update, done, again.

    A definition holds nothing of a run, so loops that run at the same time may share it.

    Raises
    ------
    UsageError
        If the id is blank or the limit is none.

    Examples
    --------
    >>> double = Graph("double").node("twice", lambda n: 2 * n)
    >>> loop = StateLoop(
    ...     id="grow",
    ...     graph=double,
    ...     update=lambda n, outputs: outputs["twice"].unwrap(),
    ...     done=lambda n: n > 100,
    ... )
    >>> loop.max_iterations
    32
    """

    id: str
    graph: Graph | Callable[[S], Graph]
    """What is run in each turn, or a function that selects it by the state."""
    update: Callable[[S, Outputs], S]
    done: Callable[[S], bool]
    bind: Callable[[S], Any] = lambda state: state
    max_iterations: int = 32
    version: str = ""
    """A checkpoint of another version is refused."""

    def __post_init__(self) -> None:
        named(self.id, "a loop")
        positive(self.max_iterations, "max_iterations")


class Checkpoint(Protocol):
    """Where a state loop keeps how far it is, so that another process can go on."""

    def load(self, loop: str) -> Mapping[str, Any] | None:
        """Return what was saved last for a loop, ``None`` where nothing was."""
        ...

    def save(self, loop: str, record: Mapping[str, Any]) -> object:
        """Keep a record ``{version, input, iteration, state, completed}``."""
        ...


class LogCheckpoint:
    """Checkpoints as events ``loop.checkpointed`` of a run in the log.

    Parameters
    ----------
    store : SQLiteEventStore
    run_id : str

    Notes
    -----
    The state must be plain JSON data, and comes back as such: tuples as lists.
    """

    def __init__(self, store: SQLiteEventStore, run_id: str) -> None:
        self._store, self._run_id = store, run_id

    def load(self, loop: str) -> Mapping[str, Any] | None:
        """Return the last checkpoint of a loop in the run's lineage."""
        found: Mapping[str, Any] | None = None
        for event in self._store.read(self._run_id, types=("loop.checkpointed",)):
            if event.payload.get("loop") == loop:
                found = event.payload
        return found

    def save(self, loop: str, record: Mapping[str, Any]) -> None:
        """Append a checkpoint."""
        payload = {"loop": loop, **record}
        event = Event(
            run_id=self._run_id, type="loop.checkpointed", payload=payload, actor="runtime"
        )
        self._store.append(event)


def _digest(state: object) -> str:
    return canonical_digest({"state": state})


def resumed(
    loop: StateLoop[Any], state: Any, checkpoint: Checkpoint | None
) -> tuple[int, Any, bool]:
    """Return iteration, state and whether the loop is done, from a checkpoint where there is one.

    Raises
    ------
    CheckpointMismatchError
        If the checkpoint is of another version or input, or damaged.
    """
    found: Any = None if checkpoint is None else checkpoint.load(loop.id)
    if found is None:
        return 0, state, False
    if not isinstance(found, Mapping):
        raise _damaged(loop, f"it is {clip(repr(found))}")
    for name, ours in (("version", loop.version), ("input", _digest(state))):
        if found.get(name) != ours:
            raise CheckpointMismatchError(
                f"loop {loop.id!r} cannot go on from its checkpoint",
                why=f"that is of another {name}", fix="resume as it was begun, or begin a new run",
            )  # fmt: skip
    try:
        record = msgspec.convert(dict(found), _Record)
    except msgspec.ValidationError as error:
        raise _damaged(loop, str(error)) from error
    return record.iteration, record.state, record.completed


class _Record(msgspec.Struct):
    """What is kept of a state loop, beside its version and input."""

    iteration: Annotated[int, msgspec.Meta(ge=0)]
    state: Any
    completed: bool


def _damaged(loop: StateLoop[Any], why: str) -> CheckpointMismatchError:
    return CheckpointMismatchError(
        f"the checkpoint of loop {loop.id!r} is damaged", why=why, fix="begin a new run"
    )


def states(
    loop: StateLoop[S], state: S, begun: tuple[int, S, bool], checkpoint: Checkpoint | None
) -> Steps[S]:
    """Run a state loop as a plan."""
    mark = None if checkpoint is None else _digest(state)
    iteration, state, completed = begun
    while not completed:
        chosen = loop.graph if isinstance(loop.graph, Graph) else loop.graph(state)
        outputs = yield graph_step(chosen, loop.bind(state))
        state, iteration = loop.update(state, outputs), iteration + 1
        completed = loop.done(state)
        if checkpoint is not None:
            record = {"version": loop.version, "input": mark, "iteration": iteration}
            checkpoint.save(loop.id, {**record, "state": state, "completed": completed})
    return state
