"""The reactive runtime: functions that are run when an event is written."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from types import TracebackType
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from msgspec.structs import replace

from sag_research.errors import Caught, UsageError
from sag_research.llm import Context, Identity, Mode, Model
from sag_research.log import CallScope, SQLiteEventStore
from sag_research.model import WORKSPACE_RUN, Event
from sag_research.runtime._budget import Budget, DispatchReport, Meter, Stopped
from sag_research.runtime._handle import RunHandle
from sag_research.runtime._object_graph import GRAPH_TYPES, GraphObject
from sag_research.runtime._reactive_context import ANSWERED_BY, FRAME
from sag_research.runtime._reactive_failure import failure
from sag_research.runtime._reactive_listeners import Listener, ListenerCounts
from sag_research.runtime._reactive_scope import Scope, current, entered
from sag_research.runtime._triggers import Behavior, Handler, Triggers, make_trigger

__all__ = ["Projection", "ReactiveRuntime"]

_KNOWN_DEPTHS: Final = 65_536
_H = TypeVar("_H", bound=Handler)


class Projection(Protocol):
    """State that is kept up to date with the events that a runtime dispatches."""

    def apply(self, event: Event) -> object:
        """Take in an event, before behaviours are run on it; an error ends the dispatch."""
        ...


class Turn(NamedTuple):
    """A behaviour to be run now."""

    behavior: Behavior
    event: Event
    scope: Scope


Turns = Generator[Turn, Exception | None, None]


class ReactiveRuntime:
    """Runs behaviours on the events of a log.

    Parameters
    ----------
    store : SQLiteEventStore
    projection : Projection, optional
        Its ``apply(event)`` is called on each event before behaviours are.
    model : Model or Identity, optional
        Asked where a behaviour's ``rt.ctx.llm`` names none.
    mode : {"record", "reuse", "replay", "refresh", "off"}
    scope : {"lineage", "family", "store"}
        How ``rt.ctx`` uses recorded answers; see :class:`~sag_research.llm.Context`.
    budget : Budget, optional
        Of each dispatch.
    strict : bool
        Raise what a behaviour raises, after writing it down.
    clock : callable
        Monotonic seconds, for the budget.

    Notes
    -----
    The queue is the log itself. Every event of a run that the runtime watches, whoever wrote it,
    is dispatched once, in the order of writing; a run is watched from the first
    :meth:`active_run`, :meth:`emit` or :meth:`watch` on. A sequence counts what was dispatched.
    The work for one event does not depend on the length of the log.

    Which behaviours ran on a run, from which position, and the fingerprints of their sources
    are kept as events ``behaviors.registered`` of the run ``@workspace``.

    Examples
    --------
    >>> from sag_research.model import Run
    >>> store = SQLiteEventStore(":memory:")
    >>> _ = store.create_run(Run(run_id="r1"))
    >>> runtime = ReactiveRuntime(store=store)
    >>> @runtime.behavior(on_events=["database.error"], where={"port": 5432})
    ... def diagnose(rt, event):
    ...     rt.emit("diagnosis.made", {"cause": "the port is wrong"})
    >>> with runtime.active_run("r1"):
    ...     _ = runtime.emit("database.error", {"port": 5432})
    >>> runtime.dispatch_loop()
    DispatchReport(2 events, 1 behaviours run, 0 failed, stopped: idle)
    >>> [(e.position, e.type, e.cause) for e in store.read("r1", lo=2)]
    [(2, 'database.error', None), (3, 'diagnosis.made', 2)]
    """

    def __init__(
        self,
        store: SQLiteEventStore,
        projection: Projection | None = None,
        *,
        model: Model | Identity | None = None,
        mode: Mode = "record",
        scope: CallScope = "lineage",
        budget: Budget | None = None,
        strict: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.store, self.projection, self.strict = store, projection, strict
        self.budget = budget or Budget()
        self._clock = clock
        self._context_options: dict[str, Any] = {"model": model, "mode": mode, "scope": scope}
        self._contexts: dict[str, Context] = {}
        self._triggers = Triggers(self._read_graph)
        self._listeners: list[Listener] = []
        self._hosted: list[RunHandle] = []
        self._cursor = store.last_seq()
        self._since: dict[str, int] = {}
        self._seen: dict[str, int] = {}
        self._told: dict[str, tuple[tuple[str, str], ...]] = {}
        self._depths: OrderedDict[tuple[str, int], int] = OrderedDict()
        self._lock = threading.RLock()
        self._looping = threading.Lock()
        self.written = threading.Event()
        """Set at each emission; a hosted dispatch waits for it."""

    def __repr__(self) -> str:
        counts = f"{len(self._triggers)} behaviours, {len(self._since)} runs"
        return f"ReactiveRuntime({self.store!r}, {counts})"

    def __enter__(self) -> ReactiveRuntime:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Cancel hosted dispatches, end the threads of listeners; the store stays open."""
        for handle in self._hosted:
            handle.cancel()
        for listener in self._listeners:
            listener.close()
        for context in self._contexts.values():
            context.close()

    # ---- behaviours and listeners

    @property
    def behaviors(self) -> tuple[Behavior, ...]:
        """The behaviours, in the order of their definition."""
        return tuple(self._triggers)

    def behavior(
        self,
        on_events: str | Sequence[str] | None = None,
        where: Mapping[str, Any] | None = None,
        *,
        sequence: Sequence[str] | None = None,
        reset_on: str | Sequence[str] = (),
        objects: Mapping[str, str | Mapping[str, Any]] | None = None,
        relations: Sequence[Sequence[str]] = (),
        name: str | None = None,
    ) -> Callable[[_H], _H]:
        """Register the decorated function; it is returned as it is.

        Parameters
        ----------
        on_events : str or sequence of str, optional
            Types of events that set it off; ``"*"`` is any.
        where : mapping, optional
            Values that the payload must hold, nested or as paths with dots:
            ``{"error": {"code": 5}}`` or ``{"error.code": 5}``. In a sequence, every event's.
        sequence : sequence of str, optional
            Instead of ``on_events``: types that must follow one another within a run. Others may
            stand between them; sequences do not overlap. ``rt.matched`` holds the events.
        reset_on : str or sequence of str
            Types at which the sequence begins anew.
        objects : mapping of str to str or mapping, optional
            Instead of ``on_events``: names of the objects of a shape, each with its kind, or with
            conditions as in ``where`` on its ``id``, ``kind`` and ``attributes``. ``rt.match``
            holds the objects found, by these names; different names are different objects.
        relations : sequence of (str, str, str)
            How the objects are joined, each time by a relation of its own:
            ``("file", "RAISED", "error")``. All must hang together.
        name : str, optional
            Default: the function's. A function defined anew (a notebook cell that is run again)
            takes the place of its namesake.

        Raises
        ------
        UsageError
            If nothing or too much sets it off.

        Notes
        -----
        Objects and relations are what the events of the run's lineage tell, those inherited by a
        fork included: ``object.created {id, kind, attributes}``, ``object.changed {id,
        attributes}`` and ``relation.created {source, type, target}``. A behaviour is run once for
        each set of objects and relations that has the shape, when an event completes it; a set
        that was complete before the run was watched, or falls apart and is mended, does not count
        again.

        Examples
        --------
        >>> from sag_research.model import Run
        >>> store = SQLiteEventStore(":memory:")
        >>> _ = store.create_run(Run(run_id="r1"))
        >>> runtime = ReactiveRuntime(store=store)
        >>> @runtime.behavior(
        ...     objects={"file": "File", "error": {"kind": "Error", "attributes.fatal": True}},
        ...     relations=[("file", "RAISED", "error")],
        ... )
        ... def look(rt, event):
        ...     print(rt.match["file"].id, "raised", rt.match["error"].id)
        >>> with runtime.active_run("r1"):
        ...     for name, kind in (("a.py", "File"), ("b.py", "File"), ("KeyError", "Error")):
        ...         _ = runtime.emit("object.created", {"id": name, "kind": kind})
        ...     edge = {"source": "b.py", "type": "RAISED", "target": "KeyError"}
        ...     _ = runtime.emit("relation.created", edge)
        ...     change = {"id": "KeyError", "attributes": {"fatal": True}}
        ...     _ = runtime.emit("object.changed", change)
        >>> _ = runtime.dispatch_loop()
        b.py raised KeyError
        """
        trigger = make_trigger(on_events, where, sequence, reset_on, objects, relations)

        def register(handler: _H) -> _H:
            known_as = name or str(getattr(handler, "__name__", type(handler).__name__))
            self._triggers.add(known_as, handler, trigger)
            return handler

        return register

    def listen(self, function: Callable[[Event], object], capacity: int = 1_000) -> Listener:
        """Tell a function of each dispatched event, on a thread of its own.

        What it misses (its queue was full) and where it raises is counted, in the
        :class:`Listener` and in each :class:`DispatchReport`.
        """
        listener = Listener(function, capacity)
        self._listeners.append(listener)
        return listener

    @property
    def listeners(self) -> tuple[ListenerCounts, ...]:
        """What each listener received, missed and failed on so far."""
        return tuple(listener.counts for listener in self._listeners)

    # ---- writing

    @contextmanager
    def active_run(self, run_id: str) -> Iterator[ReactiveRuntime]:
        """Emit into this run inside the block (in this thread or task alone).

        Raises
        ------
        RunNotFoundError
        """
        self.watch(run_id)
        around = current(self) or Scope(self, run_id)
        with entered(around._replace(run_id=run_id)):
            yield self

    def watch(self, run_id: str, since: int | None = None) -> None:
        """Dispatch what is written to a run from now on, or what was written from a position on.

        Parameters
        ----------
        run_id : str
        since : int, optional
            For a run that is there already: first position of its own events to dispatch, e.g.
            where a process was killed, or the start of a run that was lived without behaviours.

        Raises
        ------
        RunNotFoundError
        UsageError
            With ``since``, while a dispatch is under way.
        """
        if since is not None:
            self._go_back(run_id, since)
        elif run_id not in self._since:
            with self._lock:
                start = self.store.head(run_id).position + 1
                self._since.setdefault(run_id, start)

    def _go_back(self, run_id: str, since: int) -> None:
        own = max(since, self.store.get_run(run_id).fork_position + 1)
        first = next(self.store.read(run_id, own, own), None)
        with self._alone(), self._lock:
            for other, seen in self._seen.items():  # what was dispatched is not dispatched again
                self._since[other] = max(self._since[other], seen + 1)
            self._since[run_id] = own
            if first is not None:
                self._cursor = min(self._cursor, (first.seq or 1) - 1)

    def emit(
        self,
        type: str,
        payload: Mapping[str, Any] | None = None,
        *,
        run_id: str | None = None,
        actor: str | None = None,
        cause: int | None = None,
    ) -> Event:
        """Append an event; the next dispatch, or the one under way, hands it to behaviours.

        Parameters
        ----------
        type : str
        payload : mapping, optional
        run_id : str, optional
            Default: the active run, inside a behaviour that of its event.
        actor : str, optional
            Default: inside a behaviour its name, else ``agent``.
        cause : int, optional
            Default: inside a behaviour the position of its event, where the run is the same.

        Raises
        ------
        UsageError
            If no run is active and none is named.
        RunNotFoundError, BadPayloadError
        """
        scope = current(self)
        run = run_id or (scope.run_id if scope else None)
        if run is None:
            raise UsageError(
                f"event {type!r} belongs to no run",
                fix="emit inside `with runtime.active_run(run_id):`, or name the run",
            )
        body: Any = dict(payload) if isinstance(payload, Mapping) else payload
        event = Event(run_id=run, type=type, payload={} if body is None else body, cause=cause)
        return self._write(event, scope, actor)

    def _write(self, event: Event, scope: Scope | None, actor: str | None = None) -> Event:
        behavior = scope.behavior if scope else None
        if scope is not None and scope.event is not None and behavior is not None:
            event = replace(event, actor=behavior.name)
            if scope.event.run_id == event.run_id:  # to another run it comes from outside
                cause = scope.event.position if event.cause is None else event.cause
                event = replace(event, cause=cause, frame=FRAME)
        if actor is not None:
            event = replace(event, actor=actor)
        self.watch(event.run_id)
        written = self.store.append(event)
        if scope is not None and behavior is not None:
            self._note_depth(written, scope.depth + 1)
        self.written.set()
        return written

    # ---- inside a behaviour

    @property
    def ctx(self) -> Context:
        """The context of the event's run, for asking models, tools, the clock and chance.

        What is asked through it is recorded there, caused by the event that the behaviour
        answers, so that a replay can answer it.

        Raises
        ------
        UsageError
            Where no behaviour is running: an agent outside makes a context of its own.
        """
        scope = current(self)
        if scope is None or scope.event is None:
            raise UsageError(
                "rt.ctx belongs to a behaviour that is running",
                fix="make a sag_research.llm.Context for an agent outside of behaviours",
            )
        run_id = scope.event.run_id
        with self._lock:
            if run_id not in self._contexts:
                self._contexts[run_id] = Context(
                    self.store, run_id, actor=ANSWERED_BY, frame=FRAME, **self._context_options
                )
            return self._contexts[run_id].caused_by(scope.event.position)

    @property
    def matched(self) -> tuple[Event, ...]:
        """The events that set the running behaviour off: one, or those of its sequence."""
        scope = current(self)
        return scope.matched if scope else ()

    @property
    def match(self) -> Mapping[str, GraphObject]:
        """The objects that set the running behaviour off, by their names in its shape."""
        scope = current(self)
        return dict(scope.objects or {}) if scope else {}

    def _read_graph(self, run_id: str, first: int, last: int) -> Iterator[Event]:
        return self.store.read(run_id, first, last, types=GRAPH_TYPES)

    # ---- dispatching

    def dispatch_loop(self, budget: Budget | None = None) -> DispatchReport:
        """Run behaviours on all that waits, and on what they emit, until nothing waits.

        Parameters
        ----------
        budget : Budget, optional
            Default: the runtime's. What ends it is written as an event ``budget.exhausted``;
            what still waits is left to the next dispatch, but for a chain that became too deep.

        Raises
        ------
        UsageError
            If a behaviour is asynchronous, or a dispatch is under way.
        Exception
            With ``strict=True``: what a behaviour raised.
        """
        meter = self.new_meter(budget)
        self.drive(meter)
        return meter.report(self.listeners)

    async def adispatch_loop(self, budget: Budget | None = None) -> DispatchReport:
        """Do as :meth:`dispatch_loop` does, and await behaviours that are asynchronous.

        Behaviours are run one after the other; other tasks have their turn between them.
        """
        meter = self.new_meter(budget)
        await self.adrive(meter)
        return meter.report(self.listeners)

    def start(self, budget: Budget | None = None, *, stay: bool = False) -> RunHandle:
        """Dispatch on a thread of its own, so that a notebook stays free.

        Parameters
        ----------
        budget : Budget, optional
        stay : bool
            Wait for further events when nothing is left, until cancelled; each time with the
            whole budget.

        Returns
        -------
        RunHandle
            With ``cancel()``, ``result()`` and ``events``.
        """
        handle = RunHandle(self, budget, stay)
        self._hosted = [old for old in self._hosted if not old.done] + [handle]
        return handle

    def new_meter(self, budget: Budget | None = None) -> Meter:
        """Return the account of a dispatch that begins now."""
        return Meter(budget or self.budget, self._clock)

    def drive(self, meter: Meter) -> None:
        """Run the turns of one dispatch, plainly."""
        if names := [b.name for b in self._triggers if b.is_async]:
            raise _must_be_awaited(names[0])
        with self._alone(), closing(self._turns(meter)) as turns:
            turn = next(turns, None)
            while turn is not None:
                if turn.behavior.is_async:
                    raise _must_be_awaited(turn.behavior.name)
                with Caught() as caught, entered(turn.scope):
                    turn.behavior.handler(self, turn.event)
                turn = _answer(turns, caught.error)

    async def adrive(self, meter: Meter) -> None:
        """Run the turns of one dispatch, awaiting those that are asynchronous."""
        with self._alone(), closing(self._turns(meter)) as turns:
            turn = next(turns, None)
            while turn is not None:
                with Caught() as caught, entered(turn.scope):
                    result = turn.behavior.handler(self, turn.event)
                    if inspect.isawaitable(result):
                        await result
                await asyncio.sleep(0)
                turn = _answer(turns, caught.error)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        scope = current(self)
        inside = scope is not None and scope.behavior is not None
        if inside or not self._looping.acquire(blocking=False):
            raise UsageError(
                "a dispatch of this runtime is under way",
                why="events are dispatched one after the other",
                fix="emit the event and return; or wait for the handle's result",
            )
        try:
            yield
        finally:
            self._looping.release()

    def _turns(self, meter: Meter) -> Turns:
        """Yield each behaviour to run, in order; the driver sends back what it raised."""
        meter.stopped = "running"
        try:
            for event in self._waiting():
                depth = self._depth(event)
                if (limit := meter.limit(depth)) is not None:
                    self._stop(meter, limit, event)
                    return
                self._take(event)
                meter.events += 1
                yield from self._react(event, depth, meter)
            meter.stopped = "idle"
        finally:
            if meter.stopped in ("running", "cancelled"):
                meter.stopped = "cancelled" if meter.cancelled.is_set() else "error"
                self._note_stop(meter.stopped)

    def _react(self, event: Event, depth: int, meter: Meter) -> Turns:
        self._register(event)
        if self.projection is not None:
            self.projection.apply(event)
        meter.on_event(event)
        for listener in self._listeners:
            listener.offer(event)
        for behavior, matched, objects in self._triggers.firing(event):
            scope = Scope(self, event.run_id, behavior, event, depth, matched, objects)
            meter.fired += 1
            error = yield Turn(behavior, event, scope)
            if error is not None:
                meter.failed += 1
                self._failed(scope, event, error)

    def _failed(self, scope: Scope, event: Event, error: Exception) -> None:
        if scope.behavior is not None:
            self._write(failure(scope.behavior, event, error), scope)
        if self.strict:
            raise error

    def _waiting(self) -> Iterator[Event]:
        """Yield the undispatched events of watched runs; what is yielded must be taken."""
        found = True
        while found:
            found = False
            for event in self.store.tail(self._cursor):
                found = True
                since = self._since.get(event.run_id)
                if since is None or (event.position or 0) < since:
                    self._cursor = event.seq or self._cursor
                else:
                    yield event

    def _take(self, event: Event) -> None:
        self._cursor = event.seq or self._cursor
        self._seen[event.run_id] = event.position or 0

    # ---- how deep a chain of causes is

    def _depth(self, event: Event) -> int:
        known = self._depths.get((event.run_id, event.position or 0))
        if known is None and event.frame == FRAME:  # written by a call of a behaviour
            known = self._depths.get((event.run_id, event.cause or 0), 0) + 1
            self._note_depth(event, known)
        return known or 0

    def _note_depth(self, event: Event, depth: int) -> None:
        self._depths[event.run_id, event.position or 0] = depth
        if len(self._depths) > _KNOWN_DEPTHS:
            self._depths.popitem(last=False)

    # ---- what the log is told of a dispatch

    def _stop(self, meter: Meter, limit: Stopped, event: Event) -> None:
        """End a dispatch before an event; one that is too deep is passed over for good."""
        meter.stopped = limit
        if limit == "cancelled":
            return
        self._note_stop(limit)
        if limit == "depth":
            self._take(event)
        payload = {"limit": limit, "budget": getattr(meter.budget, limit), "type": event.type}
        exhausted = Event(
            run_id=event.run_id, type="budget.exhausted", payload=payload, actor="runtime",
            cause=event.position,
        )  # fmt: skip
        self._note_depth(self.store.append(exhausted), 0)  # it begins a chain of its own

    def _register(self, event: Event) -> None:
        """Write down which behaviours run on a run, where that is new."""
        told = tuple((b.name, b.fingerprint) for b in self._triggers)
        if told == self._told.get(event.run_id, ()) or event.run_id == WORKSPACE_RUN:
            return
        payload = {
            "run": event.run_id,
            "since": event.position,
            "restart": event.run_id not in self._told,
            "behaviors": [behavior.describe() for behavior in self._triggers],
        }
        self._told[event.run_id] = told
        self._tell("behaviors.registered", payload)

    def _note_stop(self, why: Stopped) -> None:
        """Write down from which position on events were left undispatched."""
        for run_id, seen in self._seen.items():
            if run_id in self._told and self.store.head(run_id).position > seen:
                payload = {"run": run_id, "at": seen + 1, "why": why}
                self._tell("behaviors.stopped", payload)

    def _tell(self, type_: str, payload: dict[str, Any]) -> None:
        self.store.append(Event(run_id=WORKSPACE_RUN, type=type_, payload=payload, actor="runtime"))


def _answer(turns: Turns, error: Exception | None) -> Turn | None:
    """Send back what a behaviour raised; returns the next turn, if there is one."""
    try:
        return turns.send(error)
    except StopIteration:
        return None


def _must_be_awaited(name: str) -> UsageError:
    return UsageError(
        f"behaviour {name!r} is asynchronous", fix="use `await runtime.adispatch_loop()` or start()"
    )
