"""The runtime of loops: one core, driven by plain code, by an event loop, or on a thread."""

from __future__ import annotations

import asyncio
import inspect
import secrets
import threading
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager, aclosing, contextmanager, nullcontext
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Final, NamedTuple, TypedDict, TypeVar, Unpack, cast

from sag_research.errors import Caught, UsageError
from sag_research.log import SQLiteEventStore
from sag_research.runtime._loop_async import adrive, awalk
from sag_research.runtime._loop_cancel import CancelToken
from sag_research.runtime._loop_core import Body, Course, Sink, Tally, refuse_inside_a_plan
from sag_research.runtime._loop_errors import GraphBindingError, RuntimeClosedError
from sag_research.runtime._loop_graph import (
    Graph,
    GraphEvent,
    GraphStep,
    NodeResult,
    Outputs,
    graph_step,
    named,
    positive,
)
from sag_research.runtime._loop_handle import LoopHandle
from sag_research.runtime._loop_log import LoopLog
from sag_research.runtime._loop_node import Bindings, Worker, workers_by_id
from sag_research.runtime._loop_sync import Ended, Host, drive, walk
from sag_research.runtime._loop_waves import GraphCheckpoint
from sag_research.runtime._plan import (
    Checkpoint,
    LoopPlan,
    StateLoop,
    Steps,
    resumed,
    states,
)

__all__ = ["LoopOptions", "RunOptions", "Runtime"]

R = TypeVar("R")

_inside: Final[ContextVar[tuple[object, ...]]] = ContextVar("sag_research_loops", default=())


class LoopOptions(TypedDict, total=False):
    """What can be said of one loop, beside its definition and input."""

    loop_id: str
    """Default: the definition's id and eight random digits."""
    run_id: str
    """Run of the log to write into; default: with a store, a run of the loop's own."""
    on_graph: Callable[[GraphEvent], object]
    """Called with each event, in the thread that runs the loop; an error of it ends the loop."""
    cancel: CancelToken
    bindings: Bindings
    """``bindings[graph id][node id]``: the worker to use."""
    checkpoint: Checkpoint
    """For a state loop: where it keeps how far it is, and goes on from."""


class RunOptions(TypedDict, total=False):
    """What can be said of one run of a graph by itself."""

    loop_id: str
    """Default: the graph's id and eight random digits."""
    run_id: str
    """As of a loop."""
    on_graph: Callable[[GraphEvent], object]
    """As of a loop."""
    cancel: CancelToken
    bindings: Bindings
    """As of a loop."""
    concurrency: int
    """As of :func:`graph_step`, which says more of what follows."""
    seconds: float
    """It ends with :class:`StepTimeoutError` when it takes longer."""
    checkpoint: GraphCheckpoint
    """Where the graph keeps what is done, wave by wave, and goes on from."""
    version: str
    settled: Mapping[str, NodeResult[Any] | None]
    """What became of nodes that had begun when a process died."""


class _Loop(NamedTuple):
    course: Course
    body: Body
    told: Callable[[], AbstractContextManager[None]]
    catch_up: Callable[[], object]


class Runtime:
    """Runs loops.

    Parameters
    ----------
    workers : iterable of Worker
        Who does the work that nodes name; they are disposed of when the runtime is closed.
    store : SQLiteEventStore, optional
        Where graphs, budgets and ends are written down; it stays open.
    concurrency : int
        Nodes of a graph that may be under way at a time, where a step says nothing else.
    max_iterations : int
        Graphs that a loop may run, where its plan says nothing else.

    Raises
    ------
    UsageError
        If a limit is none, or two workers have the same id.

    Examples
    --------
    >>> from sag_research.runtime import graph, graph_step, plan
    >>> double = graph("double").node("twice", "TWICE")
    >>> @plan(max_iterations=10)
    ... def grow(n):
    ...     while n < 100:
    ...         outputs = yield from graph_step(double, n)
    ...         n = outputs["twice"].unwrap()
    ...     return n
    >>> with Runtime([Worker("local", {"TWICE": lambda n: 2 * n})]) as rt:
    ...     rt.loop(grow, 7)
    ...     rt.start(grow, 3).result()
    112
    192
    """

    def __init__(
        self,
        workers: Iterable[Worker] = (),
        *,
        store: SQLiteEventStore | None = None,
        concurrency: int = 4,
        max_iterations: int = 100,
    ) -> None:
        self.store = store
        self.max_iterations = positive(max_iterations, "max_iterations")
        self._workers = workers_by_id(workers)
        self._host = Host(positive(concurrency, "concurrency"))
        self._lock = threading.Lock()
        self._under_way, self._closing = 0, False
        self._awaiting: set[asyncio.AbstractEventLoop] = set()
        self._standing: list[int] = []
        """Threads in which somebody iterates over a run, and has not asked for more of it yet."""
        self._closed: Future[None] = Future()

    def __repr__(self) -> str:
        state = ", closed" if self._closed.done() else ", closing" if self._closing else ""
        return f"Runtime({len(self._workers)} workers, {self._under_way} loops{state})"

    def __enter__(self) -> Runtime:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    async def __aenter__(self) -> Runtime:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    # ---- three drivers of one core

    def loop(
        self,
        definition: LoopPlan[R] | StateLoop[R],
        input: Any = None,
        **options: Unpack[LoopOptions],
    ) -> R:
        """Run a loop in this thread and return its result.

        Parameters
        ----------
        definition : LoopPlan or StateLoop
        input : object
            What the plan is called with, or the first state.
        **options
            See :class:`LoopOptions`.

        Raises
        ------
        BudgetExceededError, LoopCancelledError, ObserverError
            The plan cannot catch these.
        ReentryError
            If a plan calls this.
        RuntimeClosedError, UsageError, CheckpointMismatchError
            Before anything is run.
        Exception
            What a graph or the plan raised.
        """
        loop = self._prepare(definition, input, options)
        self._refuse_to_block()
        with self._accepted(), self._marked(), loop.told():
            return cast("R", drive(loop.course, loop.body, self._host))

    async def aloop(
        self,
        definition: LoopPlan[R] | StateLoop[R],
        input: Any = None,
        **options: Unpack[LoopOptions],
    ) -> R:
        """Run a loop on the running event loop; see :meth:`loop`.

        Plain nodes are run on threads. Cancelling the task that awaits this ends the loop.
        """
        loop = self._prepare(definition, input, options)
        with self._accepted(asyncio.get_running_loop()), self._marked(), loop.told():
            return cast("R", await adrive(loop.course, loop.body, self._host))

    def run(self, graph: Graph, input: Any = None, **options: Unpack[RunOptions]) -> Outputs:
        """Run a graph by itself in this thread, as a loop of one step.

        Parameters
        ----------
        graph : Graph
        input : object
        **options
            See :class:`RunOptions`.

        Returns
        -------
        mapping of str to NodeResult
            What each node reported.

        Raises
        ------
        CheckpointMismatchError
            If it cannot go on from its checkpoint: that is of another graph, input or version,
            or it is not known what became of a node (:class:`UncertainError`).
        Exception
            As :meth:`loop`.

        Examples
        --------
        >>> from sag_research.runtime import graph
        >>> with Runtime() as rt:
        ...     rt.run(graph("g").node("twice", lambda n: 2 * n), 21)["twice"].output
        42
        """
        plan, step, left = _alone(graph, input, options)
        return self.loop(plan, step, **left)

    async def arun(self, graph: Graph, input: Any = None, **options: Unpack[RunOptions]) -> Outputs:
        """Run a graph by itself on the running event loop; see :meth:`run`."""
        plan, step, left = _alone(graph, input, options)
        return await self.aloop(plan, step, **left)

    def start(
        self,
        definition: LoopPlan[R] | StateLoop[R],
        input: Any = None,
        **options: Unpack[LoopOptions],
    ) -> LoopHandle[R]:
        """Run a loop on a thread of its own; see :meth:`loop`.

        The handle can stop it, e.g. from a button while no cell is running.
        """
        token = CancelToken(parent=options.get("cancel"))
        loop_id = options.setdefault("loop_id", _new_id(definition))
        handle: LoopHandle[R] = LoopHandle(loop_id, token)
        options["cancel"] = token
        loop = self._prepare(definition, input, options, [handle._note])
        accepted = self._accepted()
        accepted.__enter__()  # from now on close() waits for it

        def work() -> R:
            with _leaving(accepted), self._marked(), loop.told():
                return cast("R", drive(loop.course, loop.body, self._host))

        handle._begin(work)
        return handle

    def _walk(self, loop: _Loop, stops: bool) -> Generator[Any, None, Any]:
        """Run a loop in this thread, and stop wherever its plan shows something.

        Where somebody may look at the log meanwhile, as ``stops`` says, all stands in it.
        """
        self._refuse_to_block()
        with self._accepted(), loop.told():
            steps = walk(loop.course, loop.body, self._host)
            try:
                while True:
                    with self._marked():  # not while it stops: the caller is not inside
                        try:
                            shown = next(steps)
                        except StopIteration as end:
                            return end.value
                    if stops:
                        loop.catch_up()
                    here = threading.get_ident()
                    self._standing.append(here)
                    try:
                        yield shown
                    finally:
                        self._standing.remove(here)
            finally:
                steps.close()

    async def _awalk(self, loop: _Loop, stops: bool) -> AsyncGenerator[Any, None]:
        """Run a loop on the running event loop, and stop wherever its plan shows something."""
        with self._accepted(asyncio.get_running_loop()), loop.told():
            async with aclosing(awalk(loop.course, loop.body, self._host)) as steps:
                while True:
                    with self._marked():
                        shown = await anext(steps)
                    if stops:
                        loop.catch_up()
                    yield shown
                    if isinstance(shown, Ended):
                        return

    def _prepare(
        self,
        definition: LoopPlan[Any] | StateLoop[Any],
        input: Any,
        options: LoopOptions,
        sinks: Iterable[Sink] = (),
        shows: bool = False,
    ) -> _Loop:
        """Check everything that can be checked before something is run."""
        refuse_inside_a_plan()
        _check(options)
        loop_id = named(options.get("loop_id", _new_id(definition)), "a loop")
        log = self._log(definition.id, loop_id, options.get("run_id"))
        bindings = options.get("bindings", {})
        for graph_id, nodes in bindings.items():
            if strangers := [name for name in nodes.values() if name not in self._workers]:
                raise GraphBindingError(
                    f"graph {graph_id!r} is bound to {strangers[0]!r}", "there is no such worker"
                )
        body, spent = _call(definition, input, options.get("checkpoint"))
        kept = [*sinks, log.note] if log is not None else list(sinks)
        course = Course(
            definition.id, loop_id, Tally(definition.max_iterations or self.max_iterations, spent),
            CancelToken(parent=options.get("cancel")), self._workers, bindings, kept,
            options.get("on_graph"), shows,
        )  # fmt: skip
        if log is None:
            return _Loop(course, body, nullcontext, _nothing)
        # whoever is told of a graph, or keeps a checkpoint after it, finds it in the log
        log.is_late = not sinks and "on_graph" not in options and "checkpoint" not in options
        return _Loop(course, body, lambda: log.told(course), log.catch_up)

    def _refuse_to_block(self) -> None:
        if self._host.is_here:
            raise UsageError(
                "this would block the event loop that runs asynchronous nodes",
                fix="await it in an asynchronous node, e.g. with `await rt.aloop(…)`",
            )

    def _log(self, plan_id: str, loop_id: str, run_id: str | None) -> LoopLog | None:
        if self.store is None:
            if run_id is not None:
                raise UsageError(f"nothing can be written to run {run_id!r}", "there is no store")
            return None
        if run_id is not None:
            self.store.get_run(run_id)
        return LoopLog(self.store, plan_id, loop_id, run_id)

    # ---- closing

    def close(self) -> None:
        """Take no new loop, wait for those under way, then dispose of the workers, once.

        Loops under way run to their end; cancel them to be done sooner. Closing again waits for
        the same end.

        Raises
        ------
        UsageError
            If a loop of this runtime calls it, or the thread that iterates over one, which would
            wait for itself; and on an event loop that such a loop is awaited on: use
            :meth:`aclose` there.
        ExceptionGroup
            What the workers raised.
        """
        self._refuse_to_wait_for_oneself()
        if _running_loop() in self._awaiting:
            raise UsageError("close() would block a loop's event loop", fix="await aclose()")
        if threading.get_ident() in self._standing:
            raise UsageError(
                "close() would wait for a run that is iterated over here, and stands still",
                fix="finish that loop, or close its iterator",
            )
        self._stop_accepting()
        self._closed.result()

    async def aclose(self) -> None:
        """Close without blocking the event loop; see :meth:`close`."""
        self._refuse_to_wait_for_oneself()
        self._stop_accepting()
        await asyncio.shield(asyncio.wrap_future(self._closed))

    def _refuse_to_wait_for_oneself(self) -> None:
        refuse_inside_a_plan()
        if self in _inside.get():
            raise UsageError("a loop cannot close the runtime that runs it", fix="cancel it")

    def _stop_accepting(self) -> None:
        with self._lock:
            self._closing, was_closing = True, self._closing
            is_drained = not was_closing and self._under_way == 0
        if is_drained:
            self._dispose()

    def _dispose(self) -> None:
        errors: list[Exception] = []
        for end in (*(worker.dispose for worker in self._workers.values()), self._host.close):
            with Caught() as caught:
                if end is not None:
                    end()
            if caught.error is not None:
                errors.append(caught.error)
        if errors:
            self._closed.set_exception(ExceptionGroup("workers failed to close", errors))
        else:
            self._closed.set_result(None)

    @contextmanager
    def _accepted(self, events: asyncio.AbstractEventLoop | None = None) -> Iterator[None]:
        with self._lock:
            if self._closing:
                raise RuntimeClosedError("the runtime is closing", fix="make another one")
            self._under_way += 1
            if events is not None:
                self._awaiting.add(events)
        try:
            yield
        finally:
            self._leave()

    def _leave(self) -> None:
        with self._lock:
            self._under_way -= 1
            is_drained = self._closing and self._under_way == 0
            if not self._under_way:
                self._awaiting.clear()
        if is_drained:
            self._dispose()

    @contextmanager
    def _marked(self) -> Iterator[None]:
        token = _inside.set((*_inside.get(), self))
        try:
            yield
        finally:
            _inside.reset(token)


@contextmanager
def _leaving(entered: AbstractContextManager[None]) -> Iterator[None]:
    """Leave a context at the block's end that was entered in another thread."""
    try:
        yield
    finally:
        entered.__exit__(None, None, None)


_STEP: Final = ("concurrency", "seconds", "checkpoint", "version", "settled")


def _alone(
    graph: Graph, input: Any, options: RunOptions
) -> tuple[LoopPlan[Outputs], GraphStep, LoopOptions]:
    """Return a loop of one step, its input, and what is left of the options for the loop."""
    given: dict[str, Any] = dict(options)
    step = graph_step(graph, input, **{name: given.pop(name) for name in _STEP if name in given})

    def one(step: GraphStep) -> Steps[Outputs]:
        return (yield from step)

    return LoopPlan(graph.id, one, 1), step, cast("LoopOptions", given)


def _nothing() -> None:
    """Write nothing down."""


def _check(options: LoopOptions) -> None:
    if strangers := sorted(options.keys() - LoopOptions.__annotations__.keys()):
        known = ", ".join(LoopOptions.__annotations__)
        raise UsageError(f"a loop has no option {strangers[0]!r}", fix=f"its options are {known}")
    if inspect.iscoroutinefunction(options.get("on_graph")):
        raise UsageError("an observer cannot be asynchronous", fix="write it with `def`")


def _call(
    definition: LoopPlan[Any] | StateLoop[Any], input: Any, checkpoint: Checkpoint | None
) -> tuple[Body, int]:
    if isinstance(definition, StateLoop):
        begun = resumed(definition, input, checkpoint)
        return states(definition, input, begun, checkpoint), begun[0]
    if checkpoint is not None:
        raise UsageError(
            f"plan {definition.id!r} cannot be checkpointed", why="a generator cannot be stored",
            fix="use a StateLoop, or let the plan read what is done from the log",
        )  # fmt: skip
    return definition(input), 0


def _new_id(definition: object) -> str:
    if not isinstance(definition, LoopPlan | StateLoop):
        raise UsageError(
            f"{type(definition).__name__!r} is no loop", fix="decorate the function with @plan"
        )
    return f"{definition.id}-{secrets.token_hex(4)}"


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
