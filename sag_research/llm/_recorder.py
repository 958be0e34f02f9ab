"""The one mechanism of recorded calls: find an answer, or make the call and write it down."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any, Final, Literal, NamedTuple, TypeAlias, TypeVar, get_args

from sag_research.errors import MissingDataError, UsageError
from sag_research.llm._errors import ReplayMiss, describe_error, revive_error
from sag_research.llm._flights import Flight, Flights, asking
from sag_research.llm._nearest import replay_miss
from sag_research.llm._numbers import Numbers, numbers_of
from sag_research.llm._questions import Question, requested_payload
from sag_research.llm._records import as_read
from sag_research.log import CallScope, SQLiteEventStore, find_call, record_call
from sag_research.model import Event

__all__ = ["Ask", "Mode", "Recorder", "Ticket"]

Mode: TypeAlias = Literal["off", "record", "reuse", "replay", "refresh"]
"""``off``: nothing is written. ``record``: every call is live and recorded. ``reuse``: a recorded
answer is taken where there is one. ``replay``: a recorded answer is taken or the ask fails.
``refresh``: every call is live, and its answer takes the place of the recorded one."""

_SCOPES: Final = get_args(CallScope)
_MODES: Final = get_args(Mode)
_THREADS: Final = 32
_T = TypeVar("_T")


class Ask(NamedTuple):
    """A question, how often it was asked before, and the position of what caused it."""

    question: Question
    occurrence: int
    cause: int | None


class Ticket(NamedTuple):
    """The right to make a live call."""

    ask: Ask
    requested: int | None
    flight: Flight | None


class Recorder:
    """Asks on behalf of a run; :class:`Context` says what the parameters mean."""

    def __init__(
        self,
        store: SQLiteEventStore,
        run: str | None,
        *,
        mode: Mode,
        scope: CallScope,
        source: str | None,
        resume: bool | None,
        coalesce: bool | None,
        retry_failures: bool,
        actor: str,
        frame: str | None,
        known_errors: Iterable[type[Exception]],
    ) -> None:
        _check(store, run, mode, scope, source)
        self.store, self.run, self.mode, self.scope = store, run, mode, scope
        self.source, self.actor, self.frame = source, actor, frame
        self.live = self.reused = 0
        carries_on = mode == "record" if resume is None else resume and mode != "off"
        self._numbers = numbers_of(store, run) if carries_on and run else Numbers()
        self._coalesce = mode == "reuse" if coalesce is None else coalesce
        self._retry_failures = retry_failures
        self._known_errors = tuple(known_errors)
        self._lock = threading.RLock()
        self._flights = Flights()
        self._pool: ThreadPoolExecutor | None = None
        self.told_of_miss: Callable[[str, ReplayMiss], object] | None = None

    def close(self) -> None:
        """Stop the threads that asynchronous calls use."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown()

    def ask(
        self, question: Question, live: Callable[[], dict[str, Any]], cause: int | None
    ) -> Event:
        """Answer from the log, or make the call and record it."""
        ask = self.new_ask(question, cause)
        while isinstance(opened := self.open(ask, share=self._coalesce), Flight):
            if (answer := opened.wait()) is not None:
                return self._checked(self._reuse(ask, answer))
        if isinstance(opened, Event):
            return self._checked(opened)
        try:
            with asking(question.key):
                payload = live()
            return self.finish(opened, payload)
        except BaseException as error:
            self.fail(opened, error)
            raise

    async def aask(
        self, question: Question, live: Callable[[], Awaitable[dict[str, Any]]], cause: int | None
    ) -> Event:
        """Do as :meth:`ask` does, for a call that is awaited."""
        ask = self.new_ask(question, cause)
        while isinstance(opened := self.open(ask, share=self._coalesce), Flight):
            if (answer := await opened.awaited()) is not None:
                return self._checked(self._reuse(ask, answer))
        if isinstance(opened, Event):
            return self._checked(opened)
        try:
            with asking(question.key):
                payload = await live()
            return self.finish(opened, payload)
        except BaseException as error:
            self.fail(opened, error)
            raise

    def new_ask(self, question: Question, cause: int | None) -> Ask:
        """Number an ask: the k-th of a key gets the k-th answer."""
        return Ask(question, self._numbers.take(self.store, question.key), cause)

    def open(self, ask: Ask, *, share: bool) -> Event | Ticket | Flight:
        """Return a recorded answer, else the right to make the call, else the call to wait for."""
        key = ask.question.key
        shares = share and ask.question.kind != "effect" and self.mode in ("reuse", "record")
        flight, first = self._flights.join(key) if shares else (None, True)
        try:
            if (found := self._find(ask)) is not None:
                answer = self._reuse(ask, found)
                if flight is not None and first:
                    self._flights.land(flight, None)
                return answer
            if not first and flight is not None:
                return flight
            if self.mode == "replay":
                raise self._miss(ask)
            ticket = Ticket(ask, self._write_request(ask), flight)
        except BaseException:
            if flight is not None and first:
                self._flights.land(flight, None)
            self._give_back(ask)
            raise
        with self._lock:
            self.live += 1
        return ticket

    def _miss(self, ask: Ask) -> ReplayMiss:
        miss = replay_miss(self.store, self._origin(), ask.question, ask.occurrence)
        if self.told_of_miss is not None:
            self.told_of_miss(ask.question.key, miss)
        return miss

    def _give_back(self, ask: Ask) -> None:
        self._numbers.give_back(ask.question.key, ask.occurrence)

    def _origin(self) -> str:
        return self.source or self.run or ""

    def _find(self, ask: Ask) -> Event | None:
        if self.mode not in ("reuse", "replay"):
            return None
        found = self._look_up(ask)
        again = self._retry_failures and self.mode == "reuse"
        return None if again and found is not None and "error" in found.payload else found

    def _look_up(self, ask: Ask) -> Event | None:
        key, occurrence = ask.question.key, ask.occurrence
        scope: CallScope = "lineage" if ask.question.kind == "effect" else self.scope
        if self.source is not None and self.run is not None and self.source != self.run:
            found = find_call(self.store, key, occurrence, self.run)
            if found is not None:
                return found
        return find_call(self.store, key, occurrence, self._origin(), scope)

    def _reuse(self, ask: Ask, answer: Event) -> Event:
        """Note that an answer was used; the one event that a hit costs."""
        if self.run is not None:
            place = {"run": answer.run_id, "position": answer.position}
            self._enter("call.reused", place, ask, ask.cause)
        with self._lock:
            self.reused += 1
        return answer

    def _write_request(self, ask: Ask) -> int | None:
        if self.mode == "off" or ask.question.kind == "effect":
            return None
        with self.store.transaction():
            payload = requested_payload(self.store, ask.question) | _numbered(ask)
            event = self._event(f"{ask.question.kind}.requested", payload, ask.cause)
            return self.store.append(event).position

    def finish(self, ticket: Ticket, payload: dict[str, Any]) -> Event:
        """Record an answer."""
        kind = ticket.ask.question.kind
        if self.mode == "off":
            event = Event(run_id="", type=f"{kind}.responded", payload=as_read(payload))
        else:
            type_ = "effect.recorded" if kind == "effect" else f"{kind}.responded"
            event = self._enter_answer(ticket, type_, as_read(payload))
        if ticket.flight is not None:
            self._flights.land(ticket.flight, event)
        return event

    def fail(self, ticket: Ticket, error: BaseException, **more: Any) -> None:
        """Record a failure.

        One that came from outside, like an interrupt, answers nothing, and neither does one
        that kept a model from being asked at all: the next session asks again.
        """
        kind, answer = ticket.ask.question.kind, None
        try:
            if self.mode != "off":
                type_ = "effect.recorded" if kind == "effect" else f"{kind}.failed"
                payload = {"error": describe_error(error), **more}
                never_asked = kind == "llm" and isinstance(error, (UsageError, MissingDataError))
                if isinstance(error, Exception) and not never_asked:
                    answer = self._enter_answer(ticket, type_, payload)
                else:
                    self._give_back(ticket.ask)
                    about, cause = _answering(ticket)
                    payload = {**about, **payload, **_numbered(ticket.ask), "unanswered": True}
                    self.store.append(self._event(type_, payload, cause))
        finally:
            if ticket.flight is not None:
                self._flights.land(ticket.flight, answer)

    def _enter_answer(self, ticket: Ticket, type_: str, payload: dict[str, Any]) -> Event:
        about, cause = _answering(ticket)
        return self._enter(type_, {**about, **payload}, ticket.ask, cause)

    def _enter(self, type_: str, payload: dict[str, Any], ask: Ask, cause: int | None) -> Event:
        """Write down what answers an ask, under a number that nothing else in the run has."""
        with self.store.transaction():
            number = self._numbers.settle(self.store, ask.question.key, ask.occurrence)
            payload = payload | _numbered(ask._replace(occurrence=number))
            return record_call(self.store, self._event(type_, payload, cause))

    def _event(self, type_: str, payload: dict[str, Any], cause: int | None) -> Event:
        return Event(
            run_id=self.run or "", type=type_, payload=payload, actor=self.actor, cause=cause,
            frame=self.frame,
        )  # fmt: skip

    def _checked(self, event: Event) -> Event:
        self.raise_if_failed(event)
        return event

    def raise_if_failed(self, event: Event) -> None:
        """Raise again what was recorded as a failure."""
        if "error" in event.payload:
            error = revive_error(event.payload["error"], self._known_errors)
            error.add_note(f"recorded as event {event.position} of run {event.run_id!r}")
            raise error

    async def in_thread(self, fn: Callable[[], _T]) -> _T:
        """Await a blocking call."""
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="sag-call")
                weakref.finalize(self, self._pool.shutdown, wait=False)
            pool = self._pool
        return await asyncio.get_running_loop().run_in_executor(pool, copy_context().run, fn)


def _check(
    store: SQLiteEventStore, run: str | None, mode: str, scope: str, source: str | None
) -> None:
    if mode not in _MODES:
        raise UsageError(f"mode {mode!r} is not offered", fix=f"use one of {', '.join(_MODES)}")
    if scope not in _SCOPES:
        raise UsageError(f"scope {scope!r} is not offered", fix=f"use one of {', '.join(_SCOPES)}")
    if run is None and mode not in ("off", "replay"):
        raise UsageError(f"mode {mode!r} needs a run to write to", fix="name one")
    if run is None and source is None and mode == "replay":
        raise UsageError("nothing to replay", fix="name the run, or the source of its answers")
    for name in (run, source):
        if name is not None:
            store.head(name)  # raises where there is no such run


def _answering(ticket: Ticket) -> tuple[dict[str, Any], int | None]:
    """Return what an answer says of its question, and the position of what caused it."""
    ask = ticket.ask
    about = ask.question.body if ask.question.kind == "effect" else {}
    return about, ask.cause if ticket.requested is None else ticket.requested


def _numbered(ask: Ask) -> dict[str, Any]:
    return {"key": ask.question.key, "occurrence": ask.occurrence}
