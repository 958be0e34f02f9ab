"""Graphs of one stage, the steps that run them, and what their nodes report."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Generic, Literal, TypeAlias, TypeVar

import msgspec

from sag_research._text import clip
from sag_research.errors import UsageError
from sag_research.runtime._loop_cancel import CancelToken
from sag_research.runtime._loop_errors import NodeFailedError

__all__ = [
    "Graph",
    "GraphEvent",
    "GraphNode",
    "GraphStep",
    "NodeResult",
    "Outputs",
    "Work",
    "graph",
    "graph_step",
    "positive",
    "unwrap",
]

T = TypeVar("T")

Work: TypeAlias = Callable[[Any], Any]
"""``work(value)`` does what a node is there for; it may be ``async def``."""

Bind: TypeAlias = Callable[[Any, Mapping[str, Any]], Any]
"""``bind(input, deps)`` makes a node's value from the graph's input and results of other nodes."""


class NodeResult(msgspec.Struct, Generic[T], frozen=True):
    """What a node reports; a failure that is reported is data, and ends nothing.

    Examples
    --------
    >>> NodeResult.success(3).output
    3
    >>> NodeResult.failed("NOT_FOUND", "no such job").output
    Traceback (most recent call last):
    sag_research.runtime._loop_errors.NodeFailedError: the node failed with 'NOT_FOUND' ...
    """

    value: T | None = None
    status: Literal["success", "failed"] = "success"
    code: str = ""
    message: str = ""

    @classmethod
    def success(cls, value: T) -> NodeResult[T]:
        """Report an output."""
        return cls(value)

    @classmethod
    def failed(cls, code: str, message: str = "") -> NodeResult[T]:
        """Report a failure under a name that a plan can look at."""
        return cls(None, "failed", code, message)

    @property
    def output(self) -> T:
        """The output.

        Raises
        ------
        NodeFailedError
            If the node reported a failure.
        """
        if self.status != "success":
            raise NodeFailedError(self.code, self.message)
        return self.value  # type: ignore[return-value]  # a success holds what the node returned

    def unwrap(self) -> T:
        """Return the output; see :attr:`output`."""
        return self.output


Outputs: TypeAlias = Mapping[str, NodeResult[Any]]
"""What each node of a graph reported, by its id; it cannot be changed."""


def unwrap(result: NodeResult[T]) -> T:
    """Return a node's output.

    Raises
    ------
    NodeFailedError
        If the node reported a failure.
    """
    return result.output


class GraphNode(msgspec.Struct, frozen=True):
    """One node: its id, the work it needs, the nodes before it, and how its value is made."""

    id: str
    work: str | Work
    deps: tuple[str, ...] = ()
    bind: Bind | None = None

    def value(self, given: Any, deps: Mapping[str, NodeResult[Any]]) -> Any:
        """Return what the node's work is called with."""
        if self.bind is not None:
            return self.bind(given, deps)
        return {name: result.output for name, result in deps.items()} if deps else given


class Graph:
    """An unchangeable graph without cycles; made by :func:`graph`.

    Examples
    --------
    >>> answer = graph("answer").node("read", "JOB.READ").node("say", "MODEL.SAY", deps=["read"])
    >>> answer
    Graph('answer', read -> say)
    """

    __slots__ = ("_nodes", "id")

    def __init__(self, id: str, nodes: Mapping[str, GraphNode] | None = None) -> None:
        self.id = named(id, "a graph")
        self._nodes = MappingProxyType(dict(nodes or {}))

    def __repr__(self) -> str:
        shown = ", ".join(
            f"{'+'.join(node.deps)} -> {node.id}" if node.deps else node.id
            for node in self._nodes.values()
            if node.deps or not any(node.id in other.deps for other in self._nodes.values())
        )
        return f"Graph({self.id!r}, {clip(shown or 'empty')})"

    @property
    def nodes(self) -> Mapping[str, GraphNode]:
        """The nodes by id, in the order of their declaration."""
        return self._nodes

    def node(
        self,
        id: str,
        work: str | Work,
        deps: Sequence[str] = (),
        bind: Bind | None = None,
    ) -> Graph:
        """Return a graph with one node more.

        Parameters
        ----------
        id : str
        work : str or callable
            What a worker of the runtime must be able to do, or the function itself.
        deps : sequence of str
            Nodes declared before, which must be done first.
        bind : callable, optional
            ``bind(input, deps)`` makes the value that the work is called with; ``deps`` holds the
            results of the declared nodes and no others. Default: the graph's input for a node
            without such, else their outputs by id.

        Raises
        ------
        UsageError
            If the id is blank or taken, or a node before it is not declared.
        """
        named(id, "a node")
        if id in self._nodes:
            raise UsageError(f"graph {self.id!r} has a node {id!r} already")
        if isinstance(deps, str):
            raise UsageError(f"{deps!r} is no list of nodes", fix=f"write deps=[{deps!r}]")
        if unknown := [dep for dep in deps if dep not in self._nodes]:
            raise UsageError(
                f"node {id!r} comes after {', '.join(map(repr, unknown))}",
                why=f"graph {self.id!r} has no such node yet",
                fix="declare nodes in the order in which they depend on one another",
            )
        if not callable(work):
            named(work, "the work of a node")
        elif inspect.isgeneratorfunction(work) or inspect.isasyncgenfunction(work):
            raise UsageError(f"the work of node {id!r} is a generator", fix="return a value")
        added = GraphNode(id, work, tuple(dict.fromkeys(deps)), bind)
        return Graph(self.id, {**self._nodes, id: added})


def graph(id: str) -> Graph:
    """Begin a graph.

    Parameters
    ----------
    id : str
        Names it in events and bindings.

    Raises
    ------
    UsageError
        If the id is blank.
    """
    return Graph(id)


class GraphStep(msgspec.Struct, frozen=True):
    """What a plan yields: a graph to be run with an input; made by :func:`graph_step`."""

    graph: Graph
    input: Any = None
    concurrency: int | None = None
    cancel: CancelToken | None = None
    seconds: float | None = None
    checkpoint: Any = None
    version: str = ""
    settled: Mapping[str, NodeResult[Any] | None] = {}

    def __iter__(self) -> Generator[GraphStep, Outputs, Outputs]:
        """Yield the step itself, so that ``yield from`` it gives its outputs, typed."""
        return (yield self)


def graph_step(
    graph: Graph,
    input: Any = None,
    *,
    concurrency: int | None = None,
    cancel: CancelToken | None = None,
    seconds: float | None = None,
    checkpoint: Any = None,
    version: str = "",
    settled: Mapping[str, NodeResult[Any] | None] | None = None,
) -> GraphStep:
    """Make a step: ``outputs = yield from graph_step(graph, input)``.

    Parameters
    ----------
    graph : Graph
    input : object
    concurrency : int, optional
        How many of its nodes may be under way at a time; default: as the runtime has it.
    cancel : CancelToken, optional
        Ends this graph alone, with :class:`StepCancelledError`. The loop's own cancellation
        holds besides it.
    seconds : float, optional
        Ends this graph alone when it takes longer, with :class:`StepTimeoutError`.
    checkpoint : Checkpoint, optional
        Where the graph keeps what is done, wave by wave, and goes on from. Input and outputs
        must be plain JSON data then.
    version : str
        A checkpoint of another version is refused, with :class:`CheckpointMismatchError`.
    settled : mapping of str to NodeResult or None, optional
        What became of nodes that had begun when a process died: a result, or ``None`` where the
        node is to be run again. Without it the graph fails with :class:`UncertainError`.

    Raises
    ------
    UsageError
        If an option is none; nothing has been run then.

    Notes
    -----
    Cancellation is by agreement: an asynchronous node is cut off, a plain one finishes, or looks
    at ``this_node().cancelled``. Nothing of a graph is under way after its step.
    """
    if not isinstance(graph, Graph):
        raise UsageError(f"{clip(repr(graph))} is no graph")
    is_plain = concurrency is None and cancel is None and seconds is None and checkpoint is None
    if is_plain and not version and not settled:
        return GraphStep(graph, input)
    if concurrency is not None:
        positive(concurrency, "concurrency")
    if cancel is not None and not isinstance(cancel, CancelToken):
        raise UsageError(f"{clip(repr(cancel))} is no CancelToken")
    if seconds is not None and (isinstance(seconds, bool) or not seconds > 0):
        raise UsageError(f"a step cannot take {seconds!r} seconds", fix="give more than 0")
    if checkpoint is None and (version or settled):
        raise UsageError("a version and what is settled are for checkpoints", fix="give one")
    return GraphStep(
        graph, input, concurrency, cancel, seconds, checkpoint, version, dict(settled or {})
    )


class GraphEvent(msgspec.Struct, frozen=True, kw_only=True):
    """What an observer is told: a graph began, or it came to one of its two ends."""

    loop_id: str
    iteration: int
    """0-based number of the graph within its loop."""
    graph_id: str
    graph_run: str
    """Id of this run of the graph."""
    nodes: tuple[str, ...]
    """Ids of the declared nodes."""
    status: Literal["started", "completed", "failed"]
    error: str = ""


def named(id: object, what: str) -> str:
    """Return an id that is one, i.e. text that is not blank."""
    if not isinstance(id, str) or not id.strip():
        raise UsageError(f"{what} cannot be named {id!r}", fix="give a text that is not blank")
    return id


def positive(number: object, what: str) -> int:
    """Return a whole number from 1 on."""
    if type(number) is not int or number < 1:
        raise UsageError(f"{what} cannot be {number!r}", fix="give a whole number from 1 on")
    return number
