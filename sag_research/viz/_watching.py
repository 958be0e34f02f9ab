"""A run that is being written, drawn as it grows: by another cell, another process, or a batch."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec.structs import replace

from sag_research.bloom import bloom
from sag_research.errors import Caught
from sag_research.model import TERMINAL_TYPES, WORKSPACE_RUN, Event, Run
from sag_research.viz._bloom_view import BloomView
from sag_research.viz._scene import Scene
from sag_research.viz._stage import scene

if TYPE_CHECKING:
    from sag_research.log import SQLiteEventStore

__all__ = ["Watching"]

LOOK_EVERY: Final = 0.25
"""Seconds between two looks at the log's end; a look is one indexed query."""
DRAW_EVERY: Final = 1.0
SHARE: Final = 4.0
"""Drawing rests this many times as long as it took, so that it never takes the kernel's time."""
GRACE: Final = 2.0
"""Seconds after a run's end in which its outcome is still waited for."""
Status = Literal["running", "completed", "cancelled", "failed"]


class Watching:
    """Follows a run and its forks through the log's tail, on a thread of its own.

    Made by :meth:`Workspace.watch <sag_research.Workspace.watch>`. In a notebook it shows its
    view under a Stop button, which ends the watching and not the run. It ends by itself when the
    run and its forks have ended.

    Parameters
    ----------
    run_id : str
    store : SQLiteEventStore
        The log that is followed.
    sql : callable
        Queries it, as :meth:`Warehouse.sql <sag_research.warehouse.Warehouse.sql>`; used by the
        watcher's thread alone.
    close : callable
        Called at the end.
    height : int
        Of the view, pixels.
    lanes : int
        Draw at most so many runs: the run itself, and the newest of its forks.
    **options
        As :func:`sag_research.viz.scene` takes them.

    Attributes
    ----------
    view : BloomView
    n_events : int
        Events that the run and its forks have written so far.
    error : Exception or None
        What ended the watching where :attr:`status` is ``failed``.
    """

    def __init__(
        self, run_id: str, store: SQLiteEventStore, sql: Callable[..., Any], *,
        close: Callable[[], object], height: int = 600, lanes: int = 12, **options: Any,
    ) -> None:  # fmt: skip
        self.loop_id = run_id
        self.error: Exception | None = None
        self._store, self._sql, self._close = store, sql, close
        self._lanes, self._options = lanes, options
        self._stop, self._over = threading.Event(), threading.Event()
        self._runs: dict[str, Run] = {}
        self._heads: dict[str, int] = {}
        self._ended: set[str] = set()
        self._seen = store.last_seq()
        self._meet(run_id)
        self.view = BloomView(self._scene(), height=height, follow=True)
        threading.Thread(
            target=copy_context().run, args=(self._host,), name="sag-watching", daemon=True
        ).start()

    def __repr__(self) -> str:
        n = self.n_events
        return f"Watching({self.loop_id!r}, {n} event{'' if n == 1 else 's'}, {self.status})"

    def _ipython_display_(self) -> None:
        import ipywidgets

        from sag_research.viz._stop import stop_button

        box = ipywidgets.VBox([stop_button(self), self.view])
        self.view.show_in(box, repr(self))

    # ---- how it stands

    @property
    def n_events(self) -> int:
        """Events that the run and its forks have written so far, as far as they were seen."""
        heads = dict(self._heads)
        return sum(head - (self._runs[run].fork_position or 0) for run, head in heads.items())

    @property
    def runs(self) -> list[str]:
        """The run and its forks, in the order in which they were seen."""
        return list(self._heads)

    @property
    def status(self) -> Status:
        """Return ``running``; or ``completed``, ``cancelled`` (by you) or ``failed``."""
        if not self._over.is_set():
            return "running"
        if self.error is not None:
            return "failed"
        return "cancelled" if self._stop.is_set() else "completed"

    def stop(self) -> None:
        """End the watching; what was seen is drawn. The run itself goes on."""
        self._stop.set()
        self._over.wait(10)

    def cancel(self, reason: str = "") -> None:
        """Ask for the end, without waiting for it."""
        self._stop.set()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the watching has ended; returns whether it did in time."""
        return self._over.wait(timeout)

    # ---- following

    def _host(self) -> None:
        try:
            with Caught() as caught:
                self._follow()
            self.error = caught.error
            self.view.flush()
            self.view.save()
        finally:
            self._close()
            self._over.set()

    def _follow(self) -> None:
        due, ended, changed = 0.0, None, False
        while True:
            changed = self._look() or changed
            over = self._stop.is_set() or (ended is not None and time.monotonic() > ended + GRACE)
            if changed and (over or time.monotonic() >= due):
                began = time.monotonic()
                self.view.scene = self._scene()
                changed = False
                now = time.monotonic()
                due = now + max(DRAW_EVERY, SHARE * (now - began))
            if over:
                return
            if self._ended < set(self._heads):
                ended = None
            elif ended is None:
                ended = time.monotonic()
            self._stop.wait(LOOK_EVERY)

    def _look(self) -> bool:
        """Read what the log has gained; returns whether any of it is to be drawn."""
        last = self._store.last_seq()
        if last <= self._seen:
            return False
        events = self._store.tail(self._seen, last, strict=False)
        changed = [self._note(event) for event in events]
        self._seen = last
        return any(changed)

    def _note(self, event: Event) -> bool:
        if event.run_id == WORKSPACE_RUN:  # an outcome, a name for an entity, a label
            return event.payload.get("run") in self._heads
        if event.type == "run.forked" and event.run_id not in self._heads:
            run = self._store.get_run(event.run_id)
            if run.parent_id not in self._heads:
                return False
            self._runs[run.run_id] = run
        elif event.run_id not in self._heads:
            return False
        self._heads[event.run_id] = event.position or 0
        if event.type in TERMINAL_TYPES:
            self._ended.add(event.run_id)
        else:
            self._ended.discard(event.run_id)
        return True

    def _meet(self, run_id: str) -> None:
        """Learn how the run and those of its forks stand that are there already."""
        store = self._store
        for run in store.family(run_id):  # ancestors first
            if run.run_id != run_id and run.parent_id not in self._heads:
                continue
            head = store.head(run.run_id).position
            self._runs[run.run_id], self._heads[run.run_id] = run, head
            if any(event.type in TERMINAL_TYPES for event in store.read(run.run_id, head)):
                self._ended.add(run.run_id)

    def _scene(self) -> Scene:
        runs = self.runs
        drawn = [*runs[:1], *runs[1:][-(self._lanes - 1) :]] if self._lanes > 1 else runs[:1]
        made = scene(bloom(self._sql, drawn).nx, **self._options)
        if len(drawn) == len(runs):
            return made
        note = f"{len(drawn):,} of {len(runs):,} runs drawn: the first, and the newest"
        return replace(made, notes=[*made.notes, note])
