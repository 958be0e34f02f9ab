"""Who does a node's work, and how one node is carried out."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import Context, ContextVar
from types import CoroutineType, MappingProxyType
from typing import Any, Final, NamedTuple

from sag_research.errors import SagError, UsageError
from sag_research.runtime._loop_cancel import Scope
from sag_research.runtime._loop_errors import GraphBindingError, WorkerBusyError
from sag_research.runtime._loop_graph import (
    Graph,
    GraphNode,
    NodeResult,
    Outputs,
    Work,
    named,
    positive,
)

__all__ = [
    "Bindings", "Bound", "BoundNode", "Job", "NodeContext", "Progress", "Worker", "acall", "call",
    "call_here", "is_async", "resolve", "scope_here", "this_node", "workers_by_id",
]  # fmt: skip

Bindings = Mapping[str, Mapping[str, str]]
"""``bindings[graph id][node id]`` is the id of the worker to use."""


class Worker:
    """Does named work for the nodes of graphs.

    Parameters
    ----------
    id : str
    does : mapping of str to callable
        The functions by the names of the work; each is called with a node's value.
    capacity : int, optional
        Nodes it takes at a time. One more is an error of that node.
    dispose : callable, optional
        Called once, when the runtime that it was given to is closed.

    Raises
    ------
    UsageError
    """

    def __init__(
        self,
        id: str,
        does: Mapping[str, Work],
        *,
        capacity: int | None = None,
        dispose: Callable[[], object] | None = None,
    ) -> None:
        self.id = named(id, "a worker")
        self.does = MappingProxyType(dict(does))
        self.capacity = None if capacity is None else positive(capacity, "capacity")
        self.dispose = dispose
        self._busy, self._lock = 0, threading.Lock()

    def __repr__(self) -> str:
        return f"Worker({self.id!r}, {sorted(self.does)})"

    @contextmanager
    def engaged(self) -> Iterator[None]:
        """Take one of its places inside the block.

        Raises
        ------
        WorkerBusyError
            If there is none left.
        """
        with self._lock:
            if self.capacity is not None and self._busy >= self.capacity:
                raise WorkerBusyError(
                    f"worker {self.id!r} is busy", why=f"it takes {self.capacity} nodes at a time",
                    fix="bind nodes to more workers, or lower the concurrency",
                )  # fmt: skip
            self._busy += 1
        try:
            yield
        finally:
            with self._lock:
                self._busy -= 1


class NodeContext(NamedTuple):
    """Where a node's work is being done."""

    loop_id: str
    graph_id: str
    graph_run: str
    node_id: str
    worker_id: str | None
    scope: Scope

    @property
    def cancelled(self) -> bool:
        """Whether the node should come to an end, because its step or its loop must."""
        return self.scope.cancelled

    def check(self) -> None:
        """Raise where the node should come to an end.

        Raises
        ------
        LoopCancelledError, StepCancelledError, StepTimeoutError
        """
        if (interruption := self.scope.interruption()) is not None:
            raise interruption


_ENDINGS: Final = (SystemExit, GeneratorExit, asyncio.CancelledError)
_here: Final[ContextVar[NodeContext | None]] = ContextVar("sag_research_node", default=None)


def this_node() -> NodeContext:
    """Return where the work that calls this is being done.

    Raises
    ------
    UsageError
        If it is called outside of a node.
    """
    if (found := _here.get()) is None:
        raise UsageError("there is no node here", why="only the work of a node has one")
    return found


def scope_here() -> Scope | None:
    """Return what can end the work that calls this, ``None`` outside of a node."""
    found = _here.get()
    return None if found is None else found.scope


class BoundNode(NamedTuple):
    """A node with the function that does its work."""

    node: GraphNode
    work: Work
    worker: Worker | None
    is_async: bool


class Bound(NamedTuple):
    """A graph whose nodes all have their functions."""

    graph: Graph
    nodes: dict[str, BoundNode]
    after: dict[str, list[str]]
    """The nodes that wait for a node."""
    sole: BoundNode | None = None
    """The node of a graph that has but one."""


def workers_by_id(workers: Iterable[Worker]) -> dict[str, Worker]:
    """Return workers by id; two of the same id are an error."""
    known: dict[str, Worker] = {}
    for worker in workers:
        if known.setdefault(worker.id, worker) is not worker:
            raise UsageError(f"there are two workers {worker.id!r}")
    return known


def resolve(graph: Graph, workers: Mapping[str, Worker], bindings: Bindings) -> Bound:
    """Find the function of each node, before any is called.

    Raises
    ------
    GraphBindingError
    """
    wanted = bindings.get(graph.id, {})
    if strangers := [name for name in wanted if name not in graph.nodes]:
        raise GraphBindingError(
            f"graph {graph.id!r} has no node {strangers[0]!r}", why="a binding names one"
        )
    after: dict[str, list[str]] = {name: [] for name in graph.nodes}
    for node in graph.nodes.values():
        for dep in node.deps:
            after[dep].append(node.id)
    nodes = {name: _bind(graph, node, workers, wanted) for name, node in graph.nodes.items()}
    sole = next(iter(nodes.values())) if len(nodes) == 1 else None
    return Bound(graph, nodes, after, sole)


def _bind(
    graph: Graph, node: GraphNode, workers: Mapping[str, Worker], wanted: Mapping[str, str]
) -> BoundNode:
    where = f"node {node.id!r} of graph {graph.id!r}"
    chosen = wanted.get(node.id)
    if not isinstance(node.work, str):
        if chosen is not None:
            raise GraphBindingError(f"{where} is bound to a worker", why="it brings its function")
        return BoundNode(node, node.work, None, is_async(node.work))
    if chosen is not None and chosen not in workers:
        raise GraphBindingError(f"{where} is bound to {chosen!r}", why="there is no such worker")
    candidates = workers.values() if chosen is None else [workers[chosen]]
    for worker in candidates:
        if (work := worker.does.get(node.work)) is not None:
            return BoundNode(node, work, worker, is_async(work))
    raise GraphBindingError(
        f"{where} cannot be run",
        why=f"no worker does {node.work!r}" if chosen is None
        else f"worker {chosen!r} does not do {node.work!r}",
        fix="give the runtime a worker that does",
    )  # fmt: skip


def is_async(work: Callable[..., Any]) -> bool:
    """Whether calling a function gives something to be awaited."""
    call = getattr(work, "__call__", None)  # noqa: B004 - an object may have an async __call__
    return inspect.iscoroutinefunction(work) or inspect.iscoroutinefunction(call)


class Job(NamedTuple):
    """One node, ready to be carried out."""

    bound: BoundNode
    given: Any
    deps: dict[str, NodeResult[Any]]
    where: NodeContext
    context: Context
    """Of the code that runs the loop; what the node sets in it is not seen there."""


def call(job: Job) -> NodeResult[Any]:
    """Carry out a node that is a plain function, in a context of its own."""
    return job.context.copy().run(call_here, job)


def call_here(job: Job) -> NodeResult[Any]:
    """Carry out a node that is a plain function, in the context that is the present one."""
    _here.set(job.where)
    try:
        if job.bound.worker is None:
            return _report(job, job.bound.work(job.bound.node.value(job.given, job.deps)))
        with job.bound.worker.engaged():
            return _report(job, job.bound.work(job.bound.node.value(job.given, job.deps)))
    except (StopIteration, *_ENDINGS) as left:
        raise _left(job, left) from left


async def acall(job: Job) -> NodeResult[Any]:
    """Carry out a node that is asynchronous, in a task of its own."""
    _here.set(job.where)
    try:
        if job.bound.worker is None:
            return _report(job, await job.bound.work(job.bound.node.value(job.given, job.deps)))
        with job.bound.worker.engaged():
            return _report(job, await job.bound.work(job.bound.node.value(job.given, job.deps)))
    except asyncio.CancelledError:  # the way in which an asynchronous node is cut off
        raise
    except (StopIteration, KeyboardInterrupt, *_ENDINGS) as left:
        raise _left(job, left) from left


def _left(job: Job, error: BaseException) -> SagError:
    """Make an ordinary error of one that would end a generator, a task or the program."""
    why = f"its work raised {type(error).__name__}"
    return SagError(f"node {job.bound.node.id!r} failed", why, "return from the work instead")


def _report(job: Job, value: Any) -> NodeResult[Any]:
    if isinstance(value, NodeResult):
        return value
    if isinstance(value, CoroutineType):
        value.close()
        raise UsageError(
            f"the work of node {job.bound.node.id!r} returned a coroutine",
            fix="write it with `async def`",
        )
    return NodeResult(value)


class Progress:
    """Which nodes of a graph are ready, under way and done; runs nothing itself."""

    def __init__(self, bound: Bound) -> None:
        self.results: dict[str, NodeResult[Any]] = {}
        self.error: BaseException | None = None
        self.stopped = False
        self._bound = bound
        self._waits = {name: len(one.node.deps) for name, one in bound.nodes.items()}
        self.ready = deque(name for name, waits in self._waits.items() if not waits)

    @property
    def is_whole(self) -> bool:
        """Whether every node has reported."""
        return len(self.results) == len(self._bound.nodes)

    def take(self) -> tuple[BoundNode, dict[str, NodeResult[Any]]]:
        """Return a node that can begin, with the results that it may see."""
        bound = self._bound.nodes[self.ready.popleft()]
        return bound, {dep: self.results[dep] for dep in bound.node.deps}

    def done(self, name: str, result: NodeResult[Any]) -> None:
        """Note what a node reported."""
        self.results[name] = result
        for other in self._bound.after[name]:
            self._waits[other] -= 1
            if not self._waits[other]:
                self.ready.append(other)
        if self.stopped:
            self.ready.clear()

    def failed(self, name: str, error: BaseException) -> None:
        """Note that a node raised; the first error stays, and no further node begins."""
        if self.error is None:
            self.error = error
        self.stop()

    def stop(self) -> None:
        """Let no further node begin."""
        self.stopped = True
        self.ready.clear()

    def turn(self) -> bool:
        """Tell whether more can begin, now that nothing is ready or under way."""
        return False

    def outputs(self) -> Outputs:
        """Return what the nodes reported, in the order of their declaration."""
        return MappingProxyType({name: self.results[name] for name in self._bound.nodes})
