"""Running a DAG document: one handle to iterate over, to await, to stop and to go on from."""

from __future__ import annotations

import secrets
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Generator,
    Iterator,
    MutableMapping,
)
from contextlib import AsyncExitStack, ExitStack, aclosing, closing
from typing import Any, Final, TypedDict, Unpack

import msgspec

from sag_research._text import clip, escape, html_table, said
from sag_research.errors import Caught, UsageError
from sag_research.log import SQLiteEventStore
from sag_research.runtime._dag_acks import Acks, LogAcks, MemoryAcks
from sag_research.runtime._dag_document import Document, Terminal
from sag_research.runtime._dag_flow import Flow, Frame, NodeDone, flow, restored
from sag_research.runtime._dag_life import AwaitingInputError, Cursor, Lifecycle, LifecycleName
from sag_research.runtime._dag_program import Programs, entry_of
from sag_research.runtime._dag_registered import Documents, State
from sag_research.runtime._loop_cancel import CancelToken
from sag_research.runtime._loop_errors import LoopCancelledError
from sag_research.runtime._loop_graph import GraphEvent, positive
from sag_research.runtime._loop_runtime import LoopOptions, Runtime
from sag_research.runtime._loop_sync import Ended
from sag_research.runtime._plan import LoopPlan

__all__ = ["Execution", "ExecutionOptions", "Summary", "execute"]

MAX_STEPS: Final = 1_000
MAX_ITEMS: Final = 1_000_000


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """How the run of a document ended."""

    document: str
    """Name of the document."""
    lifecycle: LifecycleName
    steps: int
    """Graphs that were run, those of embedded documents and of items' documents included."""
    state: Any
    terminal: str = ""
    """Name of the terminal that was reached."""
    cursor: Cursor | None = None
    """Where the run goes on; ``None`` where a terminal was reached."""
    error: Exception | None = None
    """What ended the run, first of all."""
    errors: tuple[Exception, ...] = ()
    """All that was raised: bodies of a scatter that were under way may fail after the first."""

    @property
    def complete(self) -> bool:
        """Whether the run came to a terminal that means ``completed``."""
        return self.lifecycle == "completed"

    def __repr__(self) -> str:
        text = f"{clip(self.document)!r} {self.lifecycle} after {self.steps} steps"
        if self.terminal:
            text += f" at {clip(self.terminal)!r}"
        if self.error is not None:
            text += f": {clip(said(self.error))}"
        return f"Summary({text})"

    def _repr_html_(self) -> str:
        rows = [("lifecycle", self.lifecycle), ("terminal", self.terminal), ("steps", self.steps),
                ("goes on at", self.cursor.placement if self.cursor else "")]  # fmt: skip
        rows += [("error", said(error)) for error in self.errors]
        return f"<p>{escape(repr(self))}</p>{html_table(['what', 'is'], rows)}"


class ExecutionOptions(TypedDict, total=False):
    """What can be said of one run of a document."""

    entry: str
    """Label of the entry, by default ``main``."""
    max_steps: int
    """Graphs that may be run, by default 1,000."""
    max_items: int
    """Items that one visit of a scatter may be given, by default a million."""
    seconds: float
    """The run ends as ``timed_out`` after so long."""
    cancel: CancelToken
    start_at: Cursor | str
    """Where to go on: a cursor, or the IRI or name of a placement. Items of scatters that
    ``acks`` holds as done are not done again; a run without it does all."""
    acks: Acks
    """Where done items are kept; default: with a store, its run, else memory."""
    store: SQLiteEventStore
    """Where graphs, budgets and ends are written down."""
    run_id: str
    """Run of the log to write into; default: one of its own."""
    runtime: Runtime
    """Who runs it; its store is the one that is written to. Default: one of its own."""
    on_graph: Callable[[GraphEvent], object]
    """Told of every graph; an error of it ends the run."""


def execute(
    documents: Documents,
    doc: Document | str,
    state: State | None = None,
    **options: Unpack[ExecutionOptions],
) -> Execution:
    """Make a run of a document; nothing is done before it is iterated over or awaited.

    Parameters
    ----------
    documents : Documents
    doc : Document or str
        A document, or the IRI or name of a registered one.
    state : mutable mapping, optional
        What nodes read and write; it is changed in place. Default: a new dict.
    **options
        See :class:`ExecutionOptions`.

    Returns
    -------
    Execution

    Raises
    ------
    UsageError, DocumentError
        If an option is none, or the document names something that is not registered, or holds a
        phase. A node's failure is never raised: it ends the run, and stands in the summary.

    Examples
    --------
    >>> from sag_research.runtime import Document, Documents, SingleNode, Terminal
    >>> documents = Documents()
    >>> @documents.node("add", ports=("more", "enough"))
    ... def add(state, context):
    ...     state["n"] += 1
    ...     return "more" if state["n"] < 3 else "enough"
    >>> count = Document(
    ...     "urn:x:count",
    ...     "count",
    ...     "1",
    ...     {"main": "urn:x:add"},
    ...     (
    ...         SingleNode(
    ...             "urn:x:add", "add", "add", {"more": "urn:x:add", "enough": "urn:x:end"}
    ...         ),
    ...         Terminal("urn:x:end", "end", "completed"),
    ...     ),
    ... )
    >>> run = execute(documents, count, {"n": 0})
    >>> [(done.placement, done.port) for done in run]
    [('add', 'more'), ('add', 'more'), ('add', 'enough')]
    >>> run.summary()
    Summary('count' completed after 3 steps at 'end')
    """
    if strangers := sorted(options.keys() - ExecutionOptions.__annotations__.keys()):
        known = ", ".join(ExecutionOptions.__annotations__)
        raise UsageError(f"a run has no option {strangers[0]!r}", fix=f"its options are {known}")
    if not isinstance(documents, Documents):
        raise UsageError(f"{clip(repr(documents))} holds no documents", fix="give Documents(…)")
    if not isinstance(state, MutableMapping | None):
        raise UsageError(f"{clip(repr(state))} is no state", fix="give a dict")
    if "runtime" in options and "store" in options:
        raise UsageError("a run has a store or a runtime", fix="give the store to the runtime")
    document = doc if isinstance(doc, Document) else documents.document(doc)
    return Execution(documents, document, {} if state is None else state, options)


class Execution:
    """A run of a document; made by :func:`execute`.

    Iterating over it, ``for`` or ``async for``, gives a :class:`NodeDone` for each node, and
    leaving the loop early ends the run, which can be gone on with from its cursor. Awaiting it,
    or :meth:`summary` in plain code, gives how it ended. The run is made once.
    """

    def __init__(
        self, documents: Documents, document: Document, state: State, options: ExecutionOptions
    ) -> None:
        self._documents, self.document, self.state, self._options = (
            documents, document, state, options,
        )  # fmt: skip
        self.life = Lifecycle()
        self._max_steps = positive(options.get("max_steps", MAX_STEPS), "max_steps")
        max_items = positive(options.get("max_items", MAX_ITEMS), "max_items")
        self._token = CancelToken(options.get("seconds"), parent=options.get("cancel"))
        self.loop_id = f"{document.name}-{secrets.token_hex(4)}"
        acks = options.get("acks")
        self.acks: Acks = self._own_acks() if acks is None else acks
        goes_on = options.get("start_at") is not None
        self._flow = Flow(Programs(documents, document), self.acks, max_items, goes_on)
        self._frame = self._first_frame()
        self._summary: Summary | None = None

    def __repr__(self) -> str:
        return f"Execution({clip(self.document.name)!r}, {self.lifecycle}, {self.steps} steps)"

    def _own_acks(self) -> Acks:
        runtime = self._options.get("runtime")
        store = self._options.get("store") if runtime is None else runtime.store
        run_id = self._options.get("run_id", self.loop_id)
        return MemoryAcks() if store is None else LogAcks(store, run_id)

    def _first_frame(self) -> Frame:
        program = self._flow.programs[self.document.id]
        start = self._options.get("start_at")
        if start is None:
            entry = entry_of(self.document, self._options.get("entry", "main"))
            return Frame(program, entry, self.state)
        if isinstance(start, str):
            named = [one.id for one in self.document.placements if start in (one.id, one.name)]
            start = Cursor(named[0] if named else start, True, {named[0]: 1} if named else {})
        return restored(self._flow.program, program, start, self.state)

    # ---- how it stands

    @property
    def lifecycle(self) -> LifecycleName:
        """How the run stands."""
        return self.life.name

    @property
    def steps(self) -> int:
        """Graphs that have been run."""
        return 0 if self._flow.course is None else self._flow.course.tally.spent

    @property
    def cursor(self) -> Cursor | None:
        """Where the run goes on: the placement that comes next, or that could not be done."""
        is_at_an_end = self._summary is not None and self._summary.terminal
        return None if is_at_an_end else self._frame.cursor()

    def cancel(self, reason: str = "it was cancelled") -> None:
        """End the run, from any thread; an asynchronous node is cut off, a plain one finishes."""
        self._token.cancel(reason)

    def resume(self, **options: Unpack[ExecutionOptions]) -> Execution:
        """Return a run that goes on where this one ended; items that are done stay so.

        It has this one's options where no others are given, but no token that has been set.

        Raises
        ------
        UsageError
            If this run has not ended, or came to a terminal.
        """
        if not self.life.is_over or self.cursor is None:
            raise UsageError(
                f"a run that is {self.lifecycle!r} cannot be gone on with",
                fix="execute the document again" if self.life.is_over else "let it end first",
            )
        kept: ExecutionOptions = {**self._options}
        if "cancel" in kept and kept["cancel"].cancelled:
            del kept["cancel"]  # it ended this run, and would end the next before its first node
        kept.update({"start_at": self.cursor, "acks": self.acks})
        kept.update(options)
        return Execution(self._documents, self.document, self.state, kept)

    # ---- plain code

    def __iter__(self) -> Iterator[NodeDone]:
        return self._iterate(stops=True)

    def _iterate(self, stops: bool) -> Iterator[NodeDone]:
        if self._summary is not None:
            return
        self._check_new()
        terminal, caught = None, Caught()
        with ExitStack() as stack:
            runtime = self._options.get("runtime") or stack.enter_context(self._own_runtime())
            loop = self._begin(runtime)
            try:
                with caught, closing(runtime._walk(loop, stops)) as steps:
                    terminal = yield from steps
            finally:
                self._settle(terminal, caught.error)

    def summary(self) -> Summary:
        """Run to the end, if that has not been done, and return how it ended.

        Raises
        ------
        UsageError
            If it is being iterated over.
        """
        for _ in self._iterate(stops=False):
            pass
        return self._known()

    # ---- on an event loop

    def __aiter__(self) -> AsyncIterator[NodeDone]:
        return self._aiterate(stops=True)

    async def _aiterate(self, stops: bool) -> AsyncGenerator[NodeDone, None]:
        if self._summary is not None:
            return
        self._check_new()
        terminal, caught = None, Caught()
        async with AsyncExitStack() as stack:
            runtime = self._options.get("runtime")
            if runtime is None:
                runtime = await stack.enter_async_context(self._own_runtime())
            loop = self._begin(runtime)
            try:
                with caught:
                    async with aclosing(runtime._awalk(loop, stops)) as steps:
                        async for shown in steps:
                            if isinstance(shown, Ended):
                                terminal = shown.value
                            else:
                                yield shown.value
            finally:
                self._settle(terminal, caught.error)

    def __await__(self) -> Generator[Any, None, Summary]:
        return self._asummary().__await__()

    async def _asummary(self) -> Summary:
        async for _ in self._aiterate(stops=False):
            pass
        return self._known()

    # ---- beginning and ending

    def _check_new(self) -> None:
        if self.life.name != "new":
            raise UsageError(
                f"this run is {self.lifecycle!r} already", why="it is made once",
                fix="finish the loop that iterates over it, and ask for its summary then",
            )  # fmt: skip

    def _own_runtime(self) -> Runtime:
        return Runtime(store=self._options.get("store"))

    def _begin(self, runtime: Runtime) -> Any:
        """Make the run a loop: one budget, one cancellation, one stream of events."""
        options: LoopOptions = {"loop_id": self.loop_id, "cancel": self._token}
        if (run_id := self._options.get("run_id")) is not None:
            options["run_id"] = run_id
        if (observer := self._options.get("on_graph")) is not None:
            options["on_graph"] = observer
        name = self.document.name
        plan = LoopPlan(name, lambda _: flow(self._flow, self._frame), self._max_steps)
        loop = runtime._prepare(plan, None, options, shows=True)
        self._flow.course, self._flow.host = loop.course, runtime._host
        self._flow.catch_up = loop.catch_up
        self.life.become("running")
        return loop

    def _settle(self, terminal: Terminal | None, error: Exception | None) -> None:
        errors = list(dict.fromkeys([*([error] if error else []), *self._flow.errors]))
        self._summary = Summary(
            document=self.document.name, lifecycle=self._ending(terminal, error),
            steps=self.steps, state=self.state, terminal=terminal.name if terminal else "",
            cursor=None if terminal else self._frame.cursor(), error=error, errors=tuple(errors),
        )  # fmt: skip
        self.life.become(self._summary.lifecycle)

    def _ending(self, terminal: Terminal | None, error: Exception | None) -> LifecycleName:
        if terminal is not None:
            return "completed" if terminal.outcome == "completed" else "failed"
        if isinstance(error, AwaitingInputError):
            return "awaiting-input"
        token = self._flow.course.token if self._flow.course is not None else self._token
        if error is None or (isinstance(error, LoopCancelledError) and token.cancelled):
            return "timed_out" if token.timed_out else "cancelled"
        return "failed"

    def _known(self) -> Summary:
        if self._summary is None:
            raise UsageError("the run has not ended", fix="finish the loop that iterates over it")
        return self._summary
