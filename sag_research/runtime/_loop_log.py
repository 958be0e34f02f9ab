"""What the log is told of a loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sag_research._text import repair, said
from sag_research.errors import Caught
from sag_research.log import SQLiteEventStore
from sag_research.model import Event, Run
from sag_research.runtime._loop_core import Course
from sag_research.runtime._loop_errors import BudgetExceededError, LoopCancelledError
from sag_research.runtime._loop_graph import GraphEvent

__all__ = ["LoopLog"]

_ACTOR = "runtime"
_STOPS = (LoopCancelledError, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError)


class LoopLog:
    """Writes a loop's events into a run: the caller's, or one of its own that it ends.

    The id of the loop stands in the envelope, outside the digested history, so that the same
    loop run twice has the same digest.
    """

    def __init__(
        self, store: SQLiteEventStore, plan_id: str, loop_id: str, run_id: str | None
    ) -> None:
        self._store, self._plan_id, self._frame = store, plan_id, f"loop:{loop_id}"
        self._run_id, self._is_own = run_id or loop_id, run_id is None
        self._started: dict[int, int] = {}
        self._lock = threading.Lock()
        self._waiting: list[Event] = []
        self.is_late = False
        """Whether that a graph was completed may be written together with what comes next. It is
        written before another graph begins, and at the loop's end at the latest."""

    def note(self, event: GraphEvent, error: BaseException | None) -> None:
        """Write that a graph began or ended; the end is caused by the beginning."""
        payload: dict[str, Any] = {
            "plan": self._plan_id, "iteration": event.iteration, "graph": event.graph_id,
            "nodes": list(event.nodes),
        }  # fmt: skip
        if error is not None:
            payload["error"] = _about(error)
        cause = self._started.pop(event.iteration, None)
        told = self._event(f"graph.{event.status}", payload, cause)
        if self.is_late and event.status == "completed":
            with self._lock:
                self._waiting.append(told)
            return
        position = self._append(told)
        if event.status == "started":
            self._started[event.iteration] = position

    def catch_up(self) -> None:
        """Write what has been left for later."""
        with self._lock:
            waiting, self._waiting = self._waiting, []
            if waiting:
                self._store.append_many(waiting)

    @contextmanager
    def told(self, course: Course) -> Iterator[None]:
        """Write what ends the loop that is run inside the block."""
        if self._is_own:
            run = Run(run_id=self._run_id, kind="loop", agent=self._plan_id)
            self._store.create_run(run)
        try:
            yield
        except BaseException as error:
            with Caught() as caught:
                self._fail(course, error)
            if caught.error is not None:
                error.add_note(f"to write it down failed as well: {said(caught.error)}")
            raise
        if self._is_own:
            self._write("run.completed", {"exit_status": "completed"})
        self.catch_up()

    def _fail(self, course: Course, error: BaseException) -> None:
        cause = None
        if isinstance(error, BudgetExceededError) and course.tally.refused:
            payload = {
                "budget": "iterations", "limit": course.tally.limit, "plan": self._plan_id,
                "graph": course.tally.refused,
            }  # fmt: skip
            cause = self._write("budget.exhausted", payload)
        self.catch_up()
        if not self._is_own:
            return
        if isinstance(error, _STOPS):
            why = error.why if isinstance(error, LoopCancelledError) else type(error).__name__
            payload = {"exit_status": "cancelled", "reason": repair(why)}
            self._write("run.cancelled", payload)
        else:
            status = "error" if cause is None else "iterations exhausted"
            self._write("run.failed", {"exit_status": status, "error": _about(error)}, cause)

    def _write(self, type_: str, payload: dict[str, Any], cause: int | None = None) -> int:
        return self._append(self._event(type_, payload, cause))

    def _event(self, type_: str, payload: dict[str, Any], cause: int | None) -> Event:
        return Event(
            run_id=self._run_id, type=type_, payload=payload, actor=_ACTOR, cause=cause,
            frame=self._frame,
        )  # fmt: skip

    def _append(self, event: Event) -> int:
        with self._lock:
            if not self._waiting:
                return self._store.append(event).position or 0
            waiting, self._waiting = self._waiting, []
            return self._store.append_many([*waiting, event])[-1].position or 0


def _about(error: BaseException) -> dict[str, str]:
    kind = type(error)
    text = said(error) if isinstance(error, Exception) else kind.__qualname__
    message = repair(text.removeprefix(f"{kind.__qualname__}: "))
    return {"class": f"{kind.__module__}.{kind.__qualname__}", "message": message}
