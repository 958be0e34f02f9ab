"""Running loops and their graphs from plain code: here, on pool threads, on a hosted event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import Context, copy_context
from queue import Empty, SimpleQueue
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from sag_research.errors import Caught, SagError
from sag_research.runtime._loop_core import Body, Course, Finished, Order, Shown, conduct
from sag_research.runtime._loop_graph import NodeResult
from sag_research.runtime._loop_node import (
    BoundNode,
    Job,
    NodeContext,
    Progress,
    acall,
    call,
    call_here,
)
from sag_research.runtime._loop_threads import Threads
from sag_research.runtime._loop_waves import Waves

__all__ = [
    "Ended", "Host", "drive", "finish", "next_job", "progress_of", "resume", "take_report",
    "walk",
]  # fmt: skip

Core: TypeAlias = "Generator[Order | Shown, Finished | None, Any]"

_THREADS: Final = 256  # a bound for the machine's sake; the cap that counts is each graph's own
_SLICE: Final = 0.5
"""Seconds after which a wait looks up, so that an interrupt never waits for a node."""


class Host:
    """What runs nodes that cannot be run in the caller's thread; made when first needed."""

    def __init__(self, concurrency: int) -> None:
        self.concurrency = concurrency
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._threads: Threads | None = None
        self._events: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @property
    def pool(self) -> ThreadPoolExecutor:
        """Threads for plain nodes of loops that are run by plain code."""
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="sag-node")
            return self._pool

    @property
    def threads(self) -> Threads:
        """Threads for plain nodes of loops that are awaited."""
        with self._lock:
            if self._threads is None:
                self._threads = Threads(_THREADS)
            return self._threads

    @property
    def events(self) -> asyncio.AbstractEventLoop:
        """A private event loop, for asynchronous nodes of loops that are run by plain code."""
        with self._lock:
            if self._events is None:
                self._events = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=self._events.run_forever, name="sag-events", daemon=True
                )
                self._thread.start()
            return self._events

    @property
    def is_here(self) -> bool:
        """Whether this is the thread of the private event loop."""
        return self._thread is threading.current_thread()

    def close(self) -> None:
        """End the threads; nothing may be under way."""
        with self._lock:
            if self._pool is not None:
                self._pool.shutdown()
            if self._threads is not None:
                self._threads.close()
            if self._events is not None and self._thread is not None:
                self._events.call_soon_threadsafe(self._events.stop)
                self._thread.join()
                self._events.close()
            self._pool = self._threads = self._events = self._thread = None


class _Report(Protocol):
    """How a node ended; futures and tasks both say it so."""

    def cancelled(self) -> bool: ...
    def exception(self) -> BaseException | None: ...
    def result(self) -> NodeResult[Any] | None: ...
    def cancel(self) -> object: ...


class _Hosted:
    """A node on the private event loop; it is done when its task is, not when that is asked."""

    def __init__(
        self,
        events: asyncio.AbstractEventLoop,
        job: Job,
        done: Callable[[asyncio.Task[NodeResult[Any]]], object],
    ) -> None:
        self._events, self._job, self._done = events, job, done
        self._task: asyncio.Task[NodeResult[Any]] | None = None
        self._is_refused = False
        self.over = threading.Event()

    def begin(self) -> None:
        self._events.call_soon_threadsafe(self._begin, context=self._job.context.copy())

    def cancel(self) -> None:
        self._events.call_soon_threadsafe(self._cut_off)

    def _begin(self) -> None:
        if not self._is_refused:
            work: Coroutine[Any, Any, NodeResult[Any]] = acall(self._job)
            self._task = self._events.create_task(work)
            self._task.add_done_callback(self._end)

    def _cut_off(self) -> None:
        if self._task is None:
            self._is_refused = True
            self.over.set()
        else:
            self._task.cancel()

    def _end(self, task: asyncio.Task[NodeResult[Any]]) -> None:
        self._done(task)
        self.over.set()


def next_job(order: Order, progress: Progress, context: Context) -> Job:
    """Take the next node that can begin."""
    bound, deps = progress.take()
    return Job(bound, order.step.input, deps, where(order, bound), context)


def take_report(order: Order, progress: Progress, name: str, report: _Report) -> None:
    """Note how a node ended that was run elsewhere."""
    if report.cancelled():
        if not order.scope.cancelled:
            error = SagError(f"node {name!r} failed", why="its work cancelled itself")
            progress.failed(name, error)
        progress.stop()
    elif (raised := report.exception()) is not None:
        progress.failed(name, raised)
    elif (result := report.result()) is not None:
        progress.done(name, result)


def finish(progress: Progress) -> Finished:
    """Say how a graph ended, once nothing of it is under way.

    Raises
    ------
    KeyboardInterrupt
        And whatever else is no error of a node's own.
    """
    if progress.error is not None and not isinstance(progress.error, Exception):
        raise progress.error
    if progress.error is not None or not progress.is_whole:
        return Finished(None, progress.error)
    return Finished(progress.outputs())


def drive(course: Course, body: Body, host: Host) -> Any:
    """Run a loop to its end in this thread."""
    steps = walk(course, body, host)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def walk(course: Course, body: Body, host: Host) -> Generator[Any, None, Any]:
    """Run a loop in this thread, and stop wherever its plan shows something."""
    core = conduct(course, body)
    order = resume(core, None)
    while not isinstance(order, Ended):
        finished: Finished | None = None
        try:
            if isinstance(order, Shown):
                yield order.value
            else:
                finished = _run(order, host)
        except BaseException as error:
            core.throw(error)
            raise
        order = resume(core, finished)
    return order.value


class Ended(NamedTuple):
    """What a loop returned."""

    value: Any


def resume(core: Core, finished: Finished | None) -> Order | Shown | Ended:
    """Send a core how a graph ended; returns what is to be run next, or the loop's result."""
    try:
        return core.send(finished)
    except StopIteration as end:
        return Ended(end.value)


def _run(order: Order, host: Host) -> Finished:
    sole = order.bound.sole
    if sole is not None and not sole.is_async and order.step.checkpoint is None:
        return _run_sole(order, sole)
    with Caught() as caught:
        progress = progress_of(order)
    if caught.error is not None:  # of a checkpoint; nothing has been run
        return Finished(None, caught.error)
    context = copy_context()
    _run_alone(order, progress, context)
    if progress.ready or progress.turn():
        _Crew(order, progress, context, host).work()
    return finish(progress)


def _run_sole(order: Order, bound: BoundNode) -> Finished:
    """Carry out the only node of a graph, which needs no account of who waits for whom."""
    if order.scope.cancelled:
        return Finished(None)
    job = Job(bound, order.step.input, {}, where(order, bound), copy_context())
    with Caught() as caught:
        result = job.context.run(call_here, job)
        return Finished(MappingProxyType({bound.node.id: result}))
    return Finished(None, caught.error)


def where(order: Order, bound: BoundNode) -> NodeContext:
    """Return what a node is told of where it is run."""
    worker = None if bound.worker is None else bound.worker.id
    return NodeContext(
        order.loop_id, order.step.graph.id, order.graph_run, bound.node.id, worker, order.scope
    )


def progress_of(order: Order) -> Progress:
    """Return the progress of a graph, from its checkpoint where it has one.

    Raises
    ------
    CheckpointMismatchError, BadPayloadError, UsageError
    """
    if order.step.checkpoint is None:
        return Progress(order.bound)
    return Waves(order.bound, order.step)


def _run_alone(order: Order, progress: Progress, context: Context) -> None:
    """Carry out plain nodes here, while there is but one that can begin."""
    while len(progress.ready) == 1 and not order.bound.nodes[progress.ready[0]].is_async:
        if order.scope.cancelled:
            progress.stop()
            return
        job = next_job(order, progress, context)
        with Caught() as caught:
            progress.done(job.bound.node.id, call(job))
        if caught.error is not None:
            progress.failed(job.bound.node.id, caught.error)


_Under: TypeAlias = "Future[NodeResult[Any] | None] | _Hosted"


class _Crew:
    """The nodes of one graph that are under way at the same time."""

    def __init__(self, order: Order, progress: Progress, context: Context, host: Host) -> None:
        self._order, self._progress, self._context = order, progress, context
        self._host, self._limit = host, order.step.concurrency or host.concurrency
        self._under_way: dict[str, _Under] = {}
        self._is_cut_off = self._is_broken = False
        self._plain, self._change = 0, threading.Condition()
        self._heard: SimpleQueue[tuple[str, _Report] | None] = SimpleQueue()

    def work(self) -> None:
        """Run nodes until none is ready or under way."""
        with self._order.scope.telling(lambda: self._heard.put(None)):
            try:
                while self._progress.ready or self._under_way or self._progress.turn():
                    self._step()
            except BaseException:
                self._break_off()
                raise

    def _step(self) -> None:
        if not self._under_way:
            _run_alone(self._order, self._progress, self._context)
        is_cancelled = self._order.scope.cancelled
        if is_cancelled:
            self._stop()
        while self._progress.ready and len(self._under_way) < self._limit:
            self._start(next_job(self._order, self._progress, self._context))
        if self._under_way:
            self._hear(None if is_cancelled else self._order.scope.remaining())

    def _start(self, job: Job) -> None:
        name = job.bound.node.id
        if job.bound.is_async:
            hosted = _Hosted(self._host.events, job, lambda task: self._heard.put((name, task)))
            self._under_way[name] = hosted  # before it begins: an interrupt may come in between
            hosted.begin()
        else:
            future = self._host.pool.submit(self._carry_out, job)
            self._under_way[name] = future
            future.add_done_callback(lambda done: self._heard.put((name, done)))

    def _carry_out(self, job: Job) -> NodeResult[Any] | None:
        """Carry out a plain node on a thread of the pool, unless the crew has broken off."""
        with self._change:
            if self._is_broken:
                return None
            self._plain += 1
        try:
            return call(job)
        finally:
            with self._change:
                self._plain -= 1
                self._change.notify_all()

    def _break_off(self) -> None:
        """Let what is under way come to its end after an interrupt, wherever that came."""
        self._order.scope.loop.cancel("it was interrupted")  # for plain nodes that look
        self._stop()
        with self._change:
            self._is_broken = True
            self._change.wait_for(lambda: not self._plain)
        for one in self._under_way.values():
            if isinstance(one, _Hosted):
                one.over.wait()

    def _hear(self, patience: float | None) -> None:
        # in slices: an interrupt that reaches another thread first does not end a wait of this one
        try:
            heard = self._heard.get(timeout=_SLICE if patience is None else min(patience, _SLICE))
        except Empty:  # the next look at the scope sees whether the time is over
            return
        if heard is not None:
            name, report = heard
            del self._under_way[name]
            take_report(self._order, self._progress, name, report)

    def _stop(self) -> None:
        self._progress.stop()
        if not self._is_cut_off:  # once: a node may be awaiting its own cleanup
            self._is_cut_off = True
            for one in self._under_way.values():
                one.cancel()  # a plain node that has begun cannot be, and is waited for
