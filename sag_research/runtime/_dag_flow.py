"""A document as a plan: each placement is a graph of the loop, and its port says what is next."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextvars import copy_context
from typing import Any, Final, NamedTuple

from sag_research._text import clip
from sag_research.errors import UsageError
from sag_research.runtime._dag_acks import Acks
from sag_research.runtime._dag_document import (
    EmbeddedDag,
    Gather,
    Placement,
    Scatter,
    SingleNode,
    Terminal,
    routes_of,
)
from sag_research.runtime._dag_gather import ItemRecord, Needs, Records, gathered_port
from sag_research.runtime._dag_life import Cursor, RoutingError
from sag_research.runtime._dag_path import MISSING, look, put
from sag_research.runtime._dag_program import (
    Answer,
    Program,
    Programs,
    answer,
    entry_of,
    tool_program,
)
from sag_research.runtime._dag_registered import NodeSpec, State
from sag_research.runtime._dag_scatter import ScatterRun, chosen, scatter_graph
from sag_research.runtime._loop_async import adrive
from sag_research.runtime._loop_core import Course, Shown
from sag_research.runtime._loop_graph import Graph, GraphStep, Outputs
from sag_research.runtime._loop_node import is_async, this_node
from sag_research.runtime._loop_sync import Host, drive

__all__ = ["DEEPEST", "Flow", "Frame", "NodeDone", "flow", "restored"]

DEEPEST: Final = 32
"""Documents that may be embedded in one another."""

Stage = Generator[Any, Outputs, Answer]


class NodeDone(NamedTuple):
    """What one placement did."""

    placement: str
    """Name of the placement, after those of the documents around it, as in ``outer/inner``."""
    port: str
    """What it left by."""
    state: State
    """The state as it is now; it is the run's own, and changes as the run goes on."""
    value: Any = None
    """What the node returned beside its port."""
    id: str = ""
    """IRI of the placement."""


class Way(NamedTuple):
    """How a document was come to through those around it."""

    path: str = ""
    """The names of the placements, for people."""
    key: str = ""
    """Their IRIs and which visit of each it is: never the same twice."""
    depth: int = 0

    def into(self, here: EmbeddedDag, visit: int) -> Way:
        """Return the way into a document that is embedded."""
        key = f"{self.key}{here.id}#{visit}/"
        return Way(f"{self.path}{here.name}/", key, self.depth + 1)


class Frame:
    """One document under way: where it is, its state, and what its scatters left."""

    def __init__(self, program: Program, here: str, state: State, outer: Way | None = None) -> None:
        self.program, self.here, self.state = program, here, state
        self.way = outer or Way()
        self.visits: dict[str, int] = {}
        self.left: dict[str, tuple[int, Records]] = {}
        """By placement: the number of its visit and what it left."""
        self.taken: dict[str, int] = {}
        """By gather and source: the visit whose records it has taken."""
        self.inner: Frame | None = None
        self.value: Any = None
        self.is_begun = False
        """Whether the placement has been begun, and the run goes on in the middle of it."""

    def cursor(self) -> Cursor:
        """Return where this document goes on."""
        inner = None if self.inner is None else self.inner.cursor()
        state = {} if self.inner is None else dict(self.inner.state)
        visits, taken = dict(self.visits), dict(self.taken)
        return Cursor(self.here, self.is_begun, visits, taken, inner, state)


def restored(
    find: Callable[[str], Program],
    program: Program,
    cursor: Cursor,
    state: State,
    way: Way | None = None,
) -> Frame:
    """Return the frame of a document that goes on at a cursor.

    Raises
    ------
    UsageError
        If the cursor is at no placement of the document.
    """
    here = program.by_id.get(cursor.placement)
    if here is None:
        raise UsageError(
            f"document {clip(program.document.name)!r} has no placement {clip(cursor.placement)!r}",
            why="the run was to go on there",
        )
    frame = Frame(program, cursor.placement, state, way)
    frame.is_begun = cursor.begun
    frame.visits, frame.taken = dict(cursor.visits), dict(cursor.taken)
    if cursor.inner is not None and isinstance(here, EmbeddedDag):
        inner = frame.way.into(here, frame.visits.get(here.id, 1))
        frame.inner = restored(find, find(here.dag), cursor.inner, dict(cursor.state), inner)
    return frame


class Flow:
    """What all the documents of one run share.

    Parameters
    ----------
    programs : Programs
    acks : Acks
    max_items : int
    goes_on : bool
        Whether an earlier run may have done items.
    """

    def __init__(self, programs: Programs, acks: Acks, max_items: int, goes_on: bool) -> None:
        self.programs, self.acks, self.max_items = programs, acks, max_items
        self.goes_on = goes_on
        self.errors: list[Exception] = []
        self.host: Host | None = None
        self.course: Course | None = None
        self.catch_up: Callable[[], object] = lambda: None
        """Writes down what is not yet, before anybody builds on it."""
        self._graphs: dict[tuple[Any, ...], Graph] = {}
        self._tools: dict[tuple[str, str], Program] = {}

    def program(self, iri: str, item_key: str = "") -> Program:
        """Return what an IRI names, ready to be run; a tool finds its call at ``item_key``."""
        tool = self.programs.tool(iri)
        if tool is None:
            return self.programs[iri]
        made = self._tools.get((iri, item_key))
        if made is None:
            made = self._tools[iri, item_key] = tool_program(tool, item_key)
        return made

    def graph(self, key: tuple[Any, ...], make: Callable[[], Graph]) -> Graph:
        """Return the graph of a placement; the same one each time it is come to."""
        found = self._graphs.get(key)
        if found is None:
            found = self._graphs[key] = make()
        return found


def flow(run: Flow, frame: Frame) -> Generator[Any, Outputs, Terminal]:
    """Run a document from where its frame is to a terminal.

    Raises
    ------
    RoutingError
        If a placement left by a port without a route.
    Exception
        What a node raised; the frame stays at it.
    """
    by_id, prefix = frame.program.by_id, frame.way.path
    while True:
        here = by_id.get(frame.here)
        if here is None:
            raise RoutingError(f"there is no placement {clip(frame.here)!r}", "a route leads there")
        if isinstance(here, Terminal):
            return here
        port, value = yield from _STAGES[type(here)](run, frame, here)
        target = routes_of(here).get(port)
        if target is None:
            raise RoutingError(
                f"placement {clip(here.name)!r} left by {port!r}", why="no route is for that port",
                fix="give it one in the document",
            )  # fmt: skip
        frame.here, frame.value, frame.is_begun = target, value, False
        if isinstance(by_id.get(target), Gather) and not isinstance(here, Scatter):
            _leave(frame, here, port, value)
        yield Shown(NodeDone(prefix + here.name, port, frame.state, value, here.id))


def _leave(frame: Frame, here: Placement, port: str, value: Any) -> None:
    """Keep what a placement that is no scatter left for the gather that comes after it."""
    if not isinstance(here, EmbeddedDag):  # the visits of these are counted as they are entered
        frame.visits[here.id] = frame.visits.get(here.id, 0) + 1
    visit = frame.visits[here.id]
    record = ItemRecord(index=0, item=value, port=port, value=value, changes=frame.state)
    frame.left[here.id] = (visit, [record])


# ---- placements, by their kind


def _single(run: Flow, frame: Frame, here: SingleNode) -> Stage:
    graph = run.graph((frame.program.document.id, here.id), lambda: _one_node(frame.program, here))
    outputs: Outputs = yield GraphStep(graph, frame.state)
    found: Answer = outputs[here.name].output
    return found


def _one_node(program: Program, here: SingleNode) -> Graph:
    return Graph(here.id).node(here.name, _work(program.specs[here.id]))


def _work(spec: NodeSpec) -> Callable[[State], Any]:
    """Return a function of the state alone that runs a node."""
    run = spec.run
    if is_async(run):

        async def awork(state: State) -> Answer:
            return answer(spec, await run(state, this_node()))

        return awork

    def work(state: State) -> Answer:
        return answer(spec, run(state, this_node()))

    return work


def _scatter(run: Flow, frame: Frame, here: Scatter) -> Stage:
    visit = frame.visits.get(here.id, 0) + (not frame.is_begun)
    frame.visits[here.id], frame.is_begun = visit, True
    key = _key(frame, here.id, visit)
    reduce = frame.program.reducers[here.id]
    bodies = _Bodies(run, frame, here, key)
    needs = frame.program.needs.get(here.id, Needs())
    scatter = ScatterRun(
        here, frame.state, key, bodies, reduce, needs, run.acks, run.max_items, run.goes_on
    )
    name = (frame.program.document.id, here.id, scatter.lanes, scatter.awaits)
    graph = run.graph(name, lambda: scatter_graph(here, scatter.lanes, scatter.awaits))
    try:
        outputs: Outputs = yield GraphStep(graph, scatter, scatter.lanes)
    finally:
        run.errors += scatter.errors
    frame.left[here.id] = (visit, scatter.records)
    return Answer(outputs["reduce"].output)


def _key(frame: Frame, scatter: str, visit: int) -> str:
    """Return the name under which the done items of a visit of a scatter are kept."""
    return f"{frame.way.key}{scatter}#{visit}"


def _gather(run: Flow, frame: Frame, here: Gather) -> Stage:
    records: list[ItemRecord] = []
    taken: dict[str, int] = {}
    for source in here.sources:
        visit, found = frame.left.get(source) or _kept(run, frame, source)
        if visit != frame.taken.get(f"{here.id} {source}", 0):
            taken[f"{here.id} {source}"] = visit
            records += found
    graph = run.graph((frame.program.document.id, here.id), lambda: _gathering(frame, here))
    outputs: Outputs = yield GraphStep(graph, (frame.state, records))
    frame.taken |= taken
    return Answer(outputs["gather"].output)


def _kept(run: Flow, frame: Frame, source: str) -> tuple[int, Records]:
    """Return what a scatter left before the run went on, from where done items are kept."""
    visit = frame.visits.get(source, 0)
    if not visit or not isinstance(frame.program.by_id.get(source), Scatter):
        return 0, []
    found = run.acks.load(_key(frame, source, visit))
    return visit, [found[index] for index in sorted(found)]


def _gathering(frame: Frame, here: Gather) -> Graph:
    strategy = frame.program.strategies[here.id]

    def work(given: tuple[State, Records]) -> str:
        strategy(*given, here)
        return gathered_port(given[1])

    return Graph(here.id).node("gather", work)


def _embedded(run: Flow, frame: Frame, here: EmbeddedDag) -> Stage:
    inner = frame.inner
    if inner is None:  # else the run goes on inside of it
        inner = frame.inner = yield from _entered(run, frame, here)
    terminal = yield from flow(run, inner)
    frame.inner = None
    if here.results:
        for path, outer in here.results.items():
            if (value := look(inner.state, path)) is not MISSING:
                put(frame.state, outer, value)
    else:
        frame.state.update(inner.state)
    return Answer(terminal.outcome, inner.value)


def _entered(run: Flow, frame: Frame, here: EmbeddedDag) -> Generator[Any, Outputs, Frame]:
    """Return the frame of an embedded document; to enter one is a graph of the budget, too."""
    program = run.program(here.dag)
    if frame.way.depth >= DEEPEST:
        raise UsageError(
            f"documents are embedded more than {DEEPEST} deep", why=f"at {clip(frame.way.path)!r}",
            fix="let a document not embed itself without end",
        )  # fmt: skip
    visit = frame.visits[here.id] = frame.visits.get(here.id, 0) + 1
    name = (frame.program.document.id, here.id)
    graph = run.graph(name, lambda: Graph(here.id).node("enter", _inner_state))
    outputs: Outputs = yield GraphStep(graph, (frame.state, here.inputs))
    entry = entry_of(program.document, "main")
    return Frame(program, entry, outputs["enter"].output, frame.way.into(here, visit))


def _inner_state(given: tuple[State, Mapping[str, str]]) -> State:
    state, inputs = given
    inner: State = {} if inputs else dict(state)
    for outer, path in inputs.items():
        if (value := look(state, outer)) is not MISSING:
            put(inner, path, value)
    return inner


_STAGES: Final[Mapping[type, Callable[[Flow, Frame, Any], Stage]]] = {
    SingleNode: _single,
    Scatter: _scatter,
    Gather: _gather,
    EmbeddedDag: _embedded,
}


class _Bodies:
    """Runs the body of a scatter, a node or a document, for one item after the other."""

    def __init__(self, run: Flow, frame: Frame, here: Scatter, key: str) -> None:
        self._run, self._frame, self._here, self._key = run, frame, here, key
        self._spec = frame.program.specs.get(here.id)
        if self._spec is not None:
            self.awaits = is_async(self._spec.run)
        else:
            dag = here.body.dag
            iris = (dag,) if isinstance(dag, str) else dag.candidates
            self.awaits = any(map(run.programs.is_async, iris))

    def run(self, item: Any, state: State, index: int) -> Answer:
        """Run it in this thread."""
        if self._spec is not None:
            return answer(self._spec, self._spec.run(state, this_node()))
        frame, course, host = self._began(item, state, index)
        terminal: Terminal = drive(course, flow(self._run, frame), host)
        self._run.catch_up()
        return Answer(terminal.outcome, frame.value)

    async def arun(self, item: Any, state: State, index: int) -> Answer:
        """Run it on the event loop."""
        spec = self._spec
        if spec is None:
            frame, course, host = self._began(item, state, index)
            terminal: Terminal = await adrive(course, flow(self._run, frame), host)
            self._run.catch_up()
            return Answer(terminal.outcome, frame.value)
        if self.awaits:
            return answer(spec, await spec.run(state, this_node()))
        context, node = copy_context(), this_node()
        work = self._host.threads.call(lambda given: context.run(spec.run, given, node), state)
        returned = await work
        return answer(spec, returned)

    def _began(self, item: Any, state: State, index: int) -> tuple[Frame, Course, Host]:
        here, outer = self._here, self._frame
        if outer.way.depth >= DEEPEST:
            raise UsageError(f"documents are embedded more than {DEEPEST} deep")
        program = self._run.program(chosen(here.body.dag, item), here.item_key)
        way = Way(f"{outer.way.path}{here.name}/", f"{self._key}/{index}/", outer.way.depth + 1)
        frame = Frame(program, entry_of(program.document, "main"), state, way)
        course = self._run.course
        if course is None:
            raise UsageError("the run has not begun")
        return frame, course.beside(), self._host

    @property
    def _host(self) -> Host:
        if self._run.host is None:
            raise UsageError("the run has not begun")
        return self._run.host
