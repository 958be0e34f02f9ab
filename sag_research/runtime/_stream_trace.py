"""The trace of a run while the run goes on, from the log's tail."""

from __future__ import annotations

import threading
from collections.abc import Generator

import msgspec

from sag_research.bloom import TraceItem, Tracer
from sag_research.errors import Caught, UsageError
from sag_research.log import SQLiteEventStore
from sag_research.model import TERMINAL_TYPES, Event, Step
from sag_research.runtime._dag_channel import CAPACITY, Channel
from sag_research.runtime._loop_cancel import CancelToken
from sag_research.runtime._loop_errors import LoopCancelledError

__all__ = ["live_trace"]


def live_trace(
    store: SQLiteEventStore,
    run_id: str,
    *,
    capacity: int = CAPACITY,
    interval: float = 0.05,
    cancel: CancelToken | None = None,
) -> Generator[TraceItem, None, None]:
    """Follow a run: its items so far, and each further one when its step is written.

    A listener of its own reads the log and waits while the reader is behind; the agent never
    does. It makes no difference which process the agent is in.

    Parameters
    ----------
    store : SQLiteEventStore
    run_id : str
    capacity : int
        Items that may wait for the reader.
    interval : float
        Seconds between two looks at the log.
    cancel : CancelToken, optional
        Ends it where the run does not, e.g. because its process was killed.

    Yields
    ------
    TraceItem
        To the run's end.

    Raises
    ------
    RunNotFoundError
        At the call.
    StoreError
        At a step that cannot be read.

    Examples
    --------
    >>> from sag_research.bloom import item_kind
    >>> from sag_research.model import Run
    >>> store = SQLiteEventStore(":memory:")
    >>> _ = store.create_run(Run(run_id="r1"))
    >>> for type_, payload in (("agent.step", {"thought": "Done."}), ("run.completed", {})):
    ...     _ = store.append(Event(run_id="r1", type=type_, payload=payload))
    >>> [item_kind(item) for item in live_trace(store, "r1")]
    ['thought', 'final']
    """
    if not interval > 0:
        raise UsageError(f"the log cannot be looked at every {interval!r} seconds")
    store.get_run(run_id)
    return _followed(_Tail(store, run_id, capacity, interval, cancel))


def _followed(tail: _Tail) -> Generator[TraceItem, None, None]:
    tail.start()
    try:
        yield from tail.channel
    except LoopCancelledError:
        return
    finally:
        tail.stop()


class _Tail:
    """Reads a run's steps on a thread, and puts their items into a channel."""

    def __init__(
        self,
        store: SQLiteEventStore,
        run_id: str,
        capacity: int,
        interval: float,
        cancel: CancelToken | None,
    ) -> None:
        self.channel: Channel[TraceItem] = Channel(capacity, cancel=cancel)
        self._store, self._run_id, self._interval = store, run_id, interval
        self._own = store.get_run(run_id).fork_position + 1
        self._next, self._tracer = 1, Tracer()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="sag-trace", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self.channel.cancel("its reader takes no more")
        self._thread.join()

    def _work(self) -> None:
        with Caught() as caught:
            while not self._read() and not self._stop.wait(self._interval):
                pass
        if caught.error is None:
            self.channel.close()
        elif not isinstance(caught.error, LoopCancelledError):
            self.channel.fail(caught.error)

    def _read(self) -> bool:
        """Pass on what is new; returns whether the run has ended."""
        for event in self._store.read(self._run_id, self._next):
            self._next = (event.position or 0) + 1
            for item in self._items(event):
                self.channel.push(item)
            if event.type in TERMINAL_TYPES and (event.position or 0) >= self._own:
                return True
        return False

    def _items(self, event: Event) -> list[TraceItem]:
        if event.type == "agent.step":
            return self._tracer.take(msgspec.convert(event.payload, Step))
        return self._tracer.complete() if event.type == "run.completed" else []
