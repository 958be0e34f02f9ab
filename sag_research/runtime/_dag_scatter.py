"""A scatter under way: lanes that take items, run a body for each, and keep what came of it."""

from __future__ import annotations

import asyncio
import threading
from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count
from typing import Any, Protocol

from sag_research._text import clip
from sag_research.errors import Caught, UsageError
from sag_research.runtime._dag_acks import Acks, done_items, mark_of
from sag_research.runtime._dag_document import DagReference, ReservoirExecution, Scatter
from sag_research.runtime._dag_gather import ItemRecord, Needs, Records
from sag_research.runtime._dag_life import RoutingError
from sag_research.runtime._dag_path import MISSING, look
from sag_research.runtime._dag_program import Answer, Reduce
from sag_research.runtime._dag_registered import State
from sag_research.runtime._dag_scatter_feed import Batches, Feed, Items, Portion
from sag_research.runtime._loop_graph import Graph
from sag_research.runtime._loop_node import this_node

__all__ = ["Bodies", "ScatterRun", "chosen", "lanes_of", "scatter_graph"]


class Bodies(Protocol):
    """What runs the body of a scatter for one item."""

    @property
    def awaits(self) -> bool:
        """Whether something asynchronous is among the bodies."""
        ...

    def run(self, item: Any, state: State, index: int) -> Answer:
        """Run it here, to its end."""
        ...

    async def arun(self, item: Any, state: State, index: int) -> Answer:
        """Run it on the event loop, and what is plain in it on a thread."""
        ...


def chosen(reference: str | DagReference, item: Any) -> str:
    """Return the IRI of the document that an item is for.

    Raises
    ------
    RoutingError
        If it names none of the candidates.
    """
    if isinstance(reference, str):
        return reference
    named = look(item, reference.path)
    if named not in reference.candidates:
        what = "nothing" if named is MISSING else clip(repr(named))
        raise RoutingError(
            f"an item names {what} at {reference.path!r}",
            why=f"the candidates are {', '.join(map(repr, reference.candidates)) or 'none'}",
        )
    return str(named)


class ScatterRun:
    """One visit of a scatter.

    Parameters
    ----------
    placement : Scatter
    state : State
    key : str
        Names this visit where done items are kept.
    bodies : Bodies
    reduce : callable
    needs : Needs
        What must be kept of each item.
    acks : Acks
    limit : int
        Items at most.
    goes_on : bool
        Whether items may be done already.

    Raises
    ------
    UsageError
        If there is no source in the state.
    """

    def __init__(
        self,
        placement: Scatter,
        state: State,
        key: str,
        bodies: Bodies,
        reduce: Reduce,
        needs: Needs,
        acks: Acks,
        limit: int,
        goes_on: bool,
    ) -> None:
        self.placement, self.state, self.bodies = placement, state, bodies
        self.errors: list[Exception] = []
        self._key, self._reduce, self._needs, self._acks = key, reduce, needs, acks
        self._records: list[ItemRecord] = list(acks.load(key).values()) if goes_on else []
        self._is_new, self._beginning = not self._records, threading.Lock()
        self.source = look(state, placement.source)
        if self.source is MISSING:
            raise UsageError(
                f"scatter {clip(placement.name)!r} has no source",
                why=f"there is nothing at {placement.source!r} in the state",
            )
        how = placement.execution
        batches = Batches(how) if isinstance(how, ReservoirExecution) else None
        throttle = None if isinstance(how, ReservoirExecution) else how.throttle
        self.feed = Feed(Items(self.source, done_items(self._records), limit), batches, throttle)
        # a channel can be waited for on a thread as well, which is quicker for plain bodies
        self.awaits = bodies.awaits or not isinstance(self.source, Iterable)
        self.lanes, self._ended = lanes_of(placement, self.source), count(1)

    @property
    def records(self) -> Records:
        """What came of the items so far, in the order of the source."""
        return sorted(self._records, key=lambda record: record.index)

    def reduced(self) -> str:
        """Return the port that the records make together."""
        port = self._reduce(self.records)
        if not isinstance(port, str):
            raise UsageError(f"the reducer {self.placement.reducer!r} returned {clip(repr(port))}")
        return port

    # ---- one lane: as long as there are items, one after the other

    def work(self) -> None:
        """Run bodies in this thread."""
        scope = this_node().scope
        with Caught() as caught:
            try:
                self._begin()
                with scope.telling(self.feed.stop):
                    while not scope.cancelled and (portion := self.feed.take()) is not None:
                        state = self._state(portion)
                        answer = self.bodies.run(portion.item, state, portion.number)
                        self._keep(portion, state, answer)
            finally:
                if self._has_left():
                    self.feed.close()
        self._end(caught.error)

    async def awork(self) -> None:
        """Run bodies on the event loop."""
        with Caught() as caught:
            try:
                self._begin()
                while (portion := await self.feed.atake()) is not None:
                    state = self._state(portion)
                    answer = await self.bodies.arun(portion.item, state, portion.number)
                    self._keep(portion, state, answer)
            except asyncio.CancelledError:
                self.feed.astop()
                raise
            finally:
                if self._has_left():
                    await self.feed.aclose()
        if caught.error is not None:
            self.feed.astop()
        self._end(caught.error)

    def _begin(self) -> None:
        with self._beginning:  # the first lane does
            is_new, self._is_new = self._is_new, False
            if is_new:
                self._acks.begin(self._key)

    def _state(self, portion: Portion) -> ChainMap[str, Any]:
        """Return a body's state: what it writes stays apart, what it reads is the run's."""
        return ChainMap({self.placement.item_key: portion.item}, self.state)

    def _keep(self, portion: Portion, state: ChainMap[str, Any], answer: Answer) -> None:
        kept, changes = self._needs, state.maps[0]
        if not kept.changes:
            changes = {key: changes[key] for key in kept.paths if key in changes}
        marks: tuple[str, ...] = ()
        if not kept.items:
            marks = tuple(map(mark_of, portion.item if portion.members else [portion.item]))
        record = ItemRecord(
            index=portion.number, port=answer.port, changes=changes, members=portion.members,
            item=portion.item if kept.items else None, marks=marks,
            value=answer.value if kept.items else None,
        )  # fmt: skip
        self._acks.save(self._key, record)
        self._records.append(record)

    def _has_left(self) -> bool:
        """Note that a lane has come to its end; tell whether it was the last."""
        return next(self._ended) == self.lanes

    def _end(self, error: Exception | None) -> None:
        if error is not None:
            self.feed.stop()
            self.errors.append(error)
            raise error


def lanes_of(placement: Scatter, source: Any) -> int:
    """Return how many bodies are under way at a time."""
    if isinstance(placement.execution, ReservoirExecution):
        return 1
    wanted = max(1, placement.execution.concurrency)
    return max(1, min(wanted, len(source))) if isinstance(source, Sequence) else wanted


def scatter_graph(placement: Scatter, lanes: int, awaits: bool) -> Graph:
    """Return the graph of a scatter: lanes side by side, and after them what makes the port."""
    work: Callable[[ScatterRun], Any] = ScatterRun.awork if awaits else ScatterRun.work
    made = Graph(placement.id)
    names = [f"lane-{number}" for number in range(lanes)]
    for name in names:
        made = made.node(name, work)
    return made.node("reduce", ScatterRun.reduced, deps=names, bind=_whole)


def _whole(given: ScatterRun, _: Mapping[str, Any]) -> ScatterRun:
    return given
