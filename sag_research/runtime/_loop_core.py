"""What advances a plan; it runs no graph itself, so one core serves every driver."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from copy import copy
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from sag_research._text import clip, said
from sag_research.errors import Caught
from sag_research.runtime._loop_cancel import CancelToken, Scope
from sag_research.runtime._loop_errors import (
    BudgetExceededError,
    LoopCancelledError,
    ObserverError,
    PlanError,
    ReentryError,
)
from sag_research.runtime._loop_graph import Graph, GraphEvent, GraphStep, Outputs
from sag_research.runtime._loop_node import Bindings, Bound, Worker, resolve

__all__ = [
    "Body", "Course", "Finished", "Order", "Shown", "Sink", "Tally", "conduct",
    "refuse_inside_a_plan",
]  # fmt: skip

Body: TypeAlias = Generator[GraphStep, Outputs, Any]
"""A plan that has been called."""

Sink: TypeAlias = "Callable[[GraphEvent, BaseException | None], object]"
"""What keeps events; unlike an observer it sees how a graph ended in every case."""

_LEAVING: Final = (SystemExit, GeneratorExit, asyncio.CancelledError)
_TRIES: Final = 10  # of closing a plan
_advancing: Final[ContextVar[str | None]] = ContextVar("sag_research_plan", default=None)


class Order(NamedTuple):
    """A graph that a driver is to run now."""

    bound: Bound
    step: GraphStep
    scope: Scope
    loop_id: str
    iteration: int

    @property
    def graph_run(self) -> str:
        """Id of this run of the graph."""
        return f"{self.loop_id}.{self.iteration}"


class Finished(NamedTuple):
    """How a graph ended: with its outputs, with an error, or with neither where it was stopped."""

    outputs: Outputs | None
    error: BaseException | None = None


class Shown(NamedTuple):
    """What a document's plan shows to whoever iterates over it, between two graphs."""

    value: Any


class _Returned(NamedTuple):
    value: Any


class Tally:
    """Counts the graphs of a loop, of whichever of its plans, against what it may run."""

    def __init__(self, limit: int, spent: int = 0) -> None:
        self.limit, self.spent, self.refused = limit, spent, ""
        self._lock = threading.Lock()

    def take(self, graph_id: str) -> int | None:
        """Return the number of a graph that is to be run, ``None`` where none may be."""
        with self._lock:
            if self.spent >= self.limit:
                self.refused = graph_id
                return None
            self.spent += 1
            return self.spent - 1


class Course:
    """What a loop may still do, and who is told of it.

    Parameters
    ----------
    plan_id, loop_id : str
    tally : Tally
    token : CancelToken
    workers : mapping of str to Worker
    bindings : mapping
    sinks : sequence of callable
    observer : callable, optional
    shows : bool
        Whether what the plan shows is to be passed on.
    """

    def __init__(
        self,
        plan_id: str,
        loop_id: str,
        tally: Tally,
        token: CancelToken,
        workers: Mapping[str, Worker],
        bindings: Bindings,
        sinks: Sequence[Sink] = (),
        observer: Callable[[GraphEvent], object] | None = None,
        shows: bool = False,
    ) -> None:
        self.plan_id, self.loop_id, self.tally, self.token = plan_id, loop_id, tally, token
        self.shows = shows
        self._workers, self._bindings = workers, bindings
        self._sinks, self._observer = tuple(sinks), observer
        self._bound: dict[Graph, Bound] = {}
        self._scope = Scope(token)
        self._is_silent = not self._sinks and observer is None
        self._open = False
        self._telling = threading.RLock()

    def beside(self) -> Course:
        """Return the course of another plan of the same loop, which runs at the same time."""
        other = copy(self)
        other._open = False
        return other

    def check(self) -> None:
        """Raise where the loop was cancelled.

        Raises
        ------
        LoopCancelledError
        """
        if self.token.cancelled:
            raise self._cancelled()

    def order(self, step: object) -> Order:
        """Make an order of what a plan yielded.

        Raises
        ------
        PlanError, LoopCancelledError, BudgetExceededError, GraphBindingError
            None of them is delivered to the plan.
        """
        if not isinstance(step, GraphStep):
            raise PlanError(
                f"plan {self.plan_id!r} yielded {clip(repr(step))}", why="this is no step",
                fix="write `outputs = yield from graph_step(graph, input)`",
            )  # fmt: skip
        self.check()
        iteration = self.tally.take(step.graph.id)
        if iteration is None:
            raise BudgetExceededError(
                f"loop {self.loop_id!r} has run {self.tally.limit} graphs",
                why=f"that is its budget, and graph {step.graph.id!r} would be one more",
                fix="raise max_iterations",
            )
        bound = self._bound.get(step.graph)
        if bound is None:
            bound = resolve(step.graph, self._workers, self._bindings)
            self._bound[step.graph] = bound
        scope = self._scope
        if step.cancel is not None or step.seconds is not None:
            scope = Scope(self.token, step.cancel, step.seconds)
        return Order(bound, step, scope, self.loop_id, iteration)

    def began(self, order: Order) -> None:
        """Tell that a graph is about to be run."""
        if self._is_silent:
            return
        self._keep(order, "started")
        self._open = True
        self._show(order, "started")

    def settle(self, order: Order, finished: Finished) -> tuple[Any, BaseException | None]:
        """Tell how a graph ended; returns what the plan is resumed with.

        Raises
        ------
        LoopCancelledError, ObserverError
        """
        error = finished.error
        if self._is_silent and not order.scope.cancelled:
            return finished.outputs, error
        interruption = order.scope.interruption() if order.scope.cancelled else None
        is_loop = isinstance(interruption, LoopCancelledError)
        if interruption is not None and not (is_loop and finished.outputs is not None):
            interruption.__context__, error = error, interruption
        self._open = False
        self._keep(order, "failed" if error else "completed", error)
        self._show(order, "failed" if error else "completed", error)
        if self.token.cancelled:  # seen also where the graph failed, or the observer cancelled
            raise error if isinstance(error, LoopCancelledError) else self._cancelled(error)
        return finished.outputs, error

    def _cancelled(self, error: BaseException | None = None) -> LoopCancelledError:
        ended = LoopCancelledError(f"loop {self.loop_id!r} was cancelled", self.token.reason)
        ended.__context__ = error
        return ended

    def broke_off(self, order: Order, error: BaseException) -> None:
        """Tell of a graph that an error of nobody's node put an end to."""
        if not self._open:
            return
        self._open = False
        with Caught() as caught:
            self._keep(order, "failed", error)
            if not isinstance(error, ObserverError):
                self._show(order, "failed", error)
        if caught.error is not None:
            error.add_note(f"to tell of it failed as well: {said(caught.error)}")

    def _keep(self, order: Order, status: _Status, error: BaseException | None = None) -> None:
        if self._sinks:
            event = _event(order, status, error)
            with self._telling:
                for sink in self._sinks:
                    sink(event, error)

    def _show(self, order: Order, status: _Status, error: BaseException | None = None) -> None:
        if self._observer is None:
            return
        with Caught() as caught, self._telling:
            self._observer(_event(order, status, error))
        if caught.error is not None:
            raised = ObserverError(
                f"the observer of loop {self.loop_id!r} raised when graph "
                f"{order.step.graph.id!r} {status}", why=said(caught.error),
            )  # fmt: skip
            if caught.error.__context__ is None:
                caught.error.__context__ = error
            raised.graph_error = error
            raise raised from caught.error


_Status: TypeAlias = Literal["started", "completed", "failed"]


def _event(order: Order, status: _Status, error: BaseException | None) -> GraphEvent:
    told = ""
    if error is not None:
        told = said(error) if isinstance(error, Exception) else type(error).__qualname__
    return GraphEvent(
        loop_id=order.loop_id, iteration=order.iteration, graph_id=order.step.graph.id,
        graph_run=order.graph_run, nodes=tuple(order.bound.nodes), status=status, error=told,
    )  # fmt: skip


def conduct(course: Course, body: Body) -> Generator[Order | Shown, Finished | None, Any]:
    """Advance a plan to its end: yields orders, is sent how they ended, returns the result.

    What the plan shows is passed on, and answered with nothing, where the course says so.

    Budget and cancellation reach a plan as its being closed, never as an error that it could
    catch.
    """
    feed: Any = None
    error: BaseException | None = None
    try:
        course.check()
        while True:
            moved = _advance(course, body, feed, error)
            if isinstance(moved, _Returned):
                return moved.value
            if course.shows and isinstance(moved, Shown):
                yield moved
                feed = error = None
                continue
            order = course.order(moved)
            try:
                course.began(order)
                finished = yield order
            except BaseException as left:
                course.broke_off(order, left)
                raise
            if finished is None:
                raise TypeError("a graph was run, and nothing said of its end")
            feed, error = course.settle(order, finished)
    except BaseException as ending:
        _close(course, body, ending)
        raise


def _advance(course: Course, body: Body, feed: Any, error: BaseException | None) -> object:
    token = _advancing.set(course.plan_id)
    try:
        return body.send(feed) if error is None else body.throw(error)
    except StopIteration as end:
        return _Returned(end.value)
    except RuntimeError as raised:
        if not isinstance(raised.__cause__, StopIteration) or raised is error:
            raise
        raise PlanError(
            f"plan {course.plan_id!r} let StopIteration out", fix="catch it, or use next(it, None)"
        ) from raised.__cause__
    finally:
        _advancing.reset(token)


def _close(course: Course, body: Body, ending: BaseException) -> None:
    """Close a plan; what goes wrong in its cleanup stands beside the error that ended it.

    A plan that yields while it is closed is closed again, so that its outer cleanup runs too.
    """
    for _ in range(_TRIES):
        with Caught() as caught, _marked(course.plan_id):
            try:
                body.close()
            except _LEAVING as left:
                raise PlanError("the plan's cleanup tried to leave", type(left).__name__) from left
        if (error := caught.error) is None:
            return
        yielded = isinstance(error, RuntimeError) and "ignored GeneratorExit" in str(error)
        told = "it yielded a step, which was not run" if yielded else said(error)
        ending.add_note(f"the cleanup of plan {course.plan_id!r} failed: {told}")
        if ending.__context__ is None and error is not ending:
            ending.__context__ = error
        if not yielded:
            return
    ending.add_note(f"plan {course.plan_id!r} will not be closed, and was left as it is")


@contextmanager
def _marked(plan_id: str) -> Iterator[None]:
    token = _advancing.set(plan_id)
    try:
        yield
    finally:
        _advancing.reset(token)


def refuse_inside_a_plan() -> None:
    """Raise where a plan is being advanced in this context.

    Raises
    ------
    ReentryError
    """
    if (plan_id := _advancing.get()) is not None:
        raise ReentryError(
            f"plan {plan_id!r} tried to run a loop itself", why="plans have no effects",
            fix="yield a step, or `yield from` the other plan",
        )  # fmt: skip
