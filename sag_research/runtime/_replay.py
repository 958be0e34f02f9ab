"""Strict replay: a run is carried out again, and must write what was recorded."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Coroutine, Iterable
from contextlib import closing, suppress
from functools import partial
from typing import Any, Final, NoReturn, TypeAlias

import msgspec
from msgspec.structs import replace

from sag_research._text import escape, said
from sag_research.errors import Caught, UsageError
from sag_research.llm import Context, Identity, Model, ReplayMiss, read_request
from sag_research.log import SQLiteEventStore
from sag_research.model import TERMINAL_TYPES, WORKSPACE_RUN, Event
from sag_research.runtime._awaited import call
from sag_research.runtime._budget import Budget, Meter
from sag_research.runtime._reactive import ReactiveRuntime, Turns
from sag_research.runtime._reactive_context import FRAME
from sag_research.runtime._reactive_scope import Scope, current, entered
from sag_research.runtime._replay_diff import Divergence, ReplayDivergence
from sag_research.runtime._replay_model import identity_of
from sag_research.runtime._replay_store import (
    LIVE_TYPES,
    Parted,
    ReplayStore,
    read_recording,
)
from sag_research.runtime._triggers import Behavior, fingerprint

__all__ = ["ReplayReport", "replay"]

AgentFunction: TypeAlias = Callable[[Any], object]
"""``agent(ctx)``, plain or asynchronous; it writes its steps to ``ctx.store``."""

_NO_LIMIT: Final = Budget(events=2**62, seconds=math.inf, depth=2**62)
_BY_THE_LOG: Final = frozenset({"run.created", "run.forked"})


class ReplayReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a replay found.

    Attributes
    ----------
    run_id : str
    events : int
        Events of the recording.
    made : int
        Of these, made anew and found equal; the others were given.
    reused : int
        Asks answered from the recording; none was live.
    divergence : Divergence or None
        The first place where the two part.
    """

    run_id: str
    events: int
    made: int
    reused: int
    divergence: Divergence | None = None

    @property
    def ok(self) -> bool:
        """Whether the replay wrote what was recorded."""
        return self.divergence is None

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data, for JSON."""
        return {
            "run": self.run_id,
            "ok": self.ok,
            "events": self.events,
            "made": self.made,
            "reused": self.reused,
            "divergence": None if self.divergence is None else self.divergence.to_dict(),
        }

    def __repr__(self) -> str:
        state = "equal" if self.divergence is None else f"parts at {self.divergence.position}"
        counts = f"{self.made} of {self.events} events made anew, {self.reused} answers reused"
        return f"ReplayReport({self.run_id!r}: {state}; {counts})"

    def _repr_html_(self) -> str:
        more = self.divergence._repr_html_() if self.divergence else ""
        return f"<div><b>{escape(repr(self))}</b>{more}</div>"


def replay(
    store: SQLiteEventStore,
    run_id: str,
    what: ReactiveRuntime | Iterable[Behavior] | AgentFunction,
    *,
    strict: bool = True,
    since: int | None = None,
    upto: int | None = None,
    given: Collection[str] = (),
    model: Model | Identity | None = None,
    context: Callable[..., Context] | None = None,
) -> ReplayReport:
    """Carry out a run again, and compare type, actor, cause and payload event by event.

    Nothing is written to ``store``: the run is written again to a log in memory. Nothing is
    called: models, tools, the clock and chance answer from the recording, and what has no
    recorded answer is a divergence. No model is kept, only its identity.

    Parameters
    ----------
    store : SQLiteEventStore
    run_id : str
    what : ReactiveRuntime, iterable of Behavior, or callable
        Behaviours, which are run on the recorded events that came from outside; or an agent
        ``agent(ctx)``, plain or asynchronous, that writes to ``ctx.store``.
    strict : bool
        Raise at the first divergence; else return it in the report.
    since : int, optional
        First position to be made anew. Default: for behaviours where they were registered, for
        an agent the run's own second event (in a fork: what follows ``run.forked``).
    upto : int, optional
        Last position to replay; useful where the end of the log was never dispatched.
    given : collection of str
        For an agent: further types of events that came from outside.
    model : Model or Identity, optional
        Stands where a call names none; default: the one that was asked first in what is made
        anew, of a fork whose intervention names a model that one.
    context : callable, optional
        For an agent: makes its context, as :class:`~sag_research.llm.Context` does, of
        ``(store, run, model=…, mode=…, source=…, resume=…)``. Default: the agent's attribute
        ``context`` where it has one, as a :class:`ReactAgent` has, else that class.

    Returns
    -------
    ReplayReport

    Raises
    ------
    ReplayDivergence
        If ``strict`` and the two part.
    SagError
        If a recorded event is redacted or damaged.

    Notes
    -----
    Outside the comparison are clocks (``ts``, a step's ``started`` and ``seconds``), and the
    traceback and fingerprint of ``behavior.failed``. Events asked for in parallel may be asked in
    another order. Other runs of the store cannot be read in a replay. Sources are compared with
    the events ``behaviors.registered``; an agent's, with ``config["code"]`` of its run, if that
    holds a :func:`fingerprint`.

    Examples
    --------
    >>> import time
    >>> from sag_research.model import Run
    >>> store = SQLiteEventStore(":memory:")
    >>> _ = store.create_run(Run(run_id="r1"))
    >>> def agent(ctx):
    ...     event = Event(run_id=ctx.run, type="time.read", payload={"at": ctx.now()})
    ...     ctx.store.append(event)
    >>> agent(Context(store, "r1"))
    >>> replay(store, "r1", agent)
    ReplayReport('r1': equal; 2 of 3 events made anew, 1 answers reused)
    >>> def careless(ctx):
    ...     ctx.now()
    ...     ctx.store.append(Event(run_id=ctx.run, type="time.read", payload={"at": time.time()}))
    >>> report = replay(store, "r1", careless, strict=False)
    >>> report.divergence.position, report.divergence.changes[0].path
    (3, '$.at')
    """
    behaviors = _behaviors_of(what)
    if behaviors is not None:
        report = _replay_behaviors(store, run_id, behaviors, since, upto, model)
    elif callable(what):
        made: Callable[..., Context] = context or getattr(what, "context", None) or Context
        report = _replay_agent(store, run_id, what, since, upto, frozenset(given), model, made)
    else:
        raise UsageError(
            "nothing to replay the run with", fix="give a runtime, behaviours, or an agent(ctx)"
        )
    if strict and report.divergence is not None:
        raise ReplayDivergence(report.divergence)
    return report


def _behaviors_of(what: object) -> tuple[Behavior, ...] | None:
    if isinstance(what, ReactiveRuntime):
        return what.behaviors
    if isinstance(what, Iterable) and not callable(what):
        found = tuple(what)
        if all(isinstance(item, Behavior) for item in found):
            return found
    return None


def _report(rerun: ReplayStore, divergence: Divergence | None) -> ReplayReport:
    recording = rerun.recording
    return ReplayReport(
        run_id=recording.run.run_id, events=len(recording.events), made=rerun.made,
        reused=rerun.reused, divergence=divergence,
    )  # fmt: skip


def _missed(rerun: ReplayStore, miss: ReplayMiss) -> NoReturn:
    """End the replay at a question without an answer."""
    recorded, question = rerun.recording.at(rerun.position + 1), miss.question
    between = None
    if recorded is not None and recorded.type in LIVE_TYPES:
        between = _asked(rerun.recording.store, recorded), question
    rerun.part("unrecorded", recorded, None, reason=miss.why, between=between)


def _told_of_miss(rerun: ReplayStore, key: str, miss: ReplayMiss) -> None:
    """End the replay, unless the question had no answer when it was recorded either."""
    if key not in rerun.recording.in_vain:
        _missed(rerun, miss)


def _asked(store: SQLiteEventStore, event: Event) -> dict[str, Any]:
    drop = ("key", "occurrence", "value", "blob", "error")
    body = {name: value for name, value in event.payload.items() if name not in drop}
    if event.type == "llm.requested":
        body |= msgspec.to_builtins(read_request(store, event))
    return body


# ---- an agent


def _replay_agent(
    store: SQLiteEventStore,
    run_id: str,
    agent: AgentFunction,
    since: int | None,
    upto: int | None,
    given: frozenset[str],
    model: Model | Identity | None,
    context: Callable[..., Context],
) -> ReplayReport:
    from_outside = _BY_THE_LOG | given

    def is_given(event: Event) -> bool:
        return event.frame == FRAME or event.type in from_outside

    begin = since or store.get_run(run_id).fork_position + 1
    rerun = ReplayStore(read_recording(store, run_id, begin, is_given, upto))
    options = {"model": identity_of(model, rerun.recording), **rerun.context_options}
    with suppress(Parted):
        with context(rerun, run_id, **options) as ctx, Caught() as caught:
            ctx.when_missed(partial(_told_of_miss, rerun))
            call(agent, ctx)
        if isinstance(caught.error, ReplayMiss):
            _missed(rerun, caught.error)
        _end_of_agent(rerun, caught.error)
    found = rerun.parted
    return _report(rerun, None if found is None else _with_agent_source(found, rerun, agent))


def _end_of_agent(rerun: ReplayStore, error: Exception | None) -> None:
    """Take the events that end a run as given, for its harness may have written them."""
    rerun.advance(TERMINAL_TYPES)
    if (recorded := rerun.recording.at(rerun.position + 1)) is not None:
        reason = "" if error is None else f"the agent raised {said(error)}"
        rerun.part("missing", recorded, None, reason=reason)


def _with_agent_source(found: Divergence, rerun: ReplayStore, agent: AgentFunction) -> Divergence:
    recorded = rerun.recording.run.config.get("code")
    if recorded is None or recorded == fingerprint(agent):
        return found
    return replace(found, changed=(str(getattr(agent, "__name__", "the agent")),))


# ---- behaviours


def _replay_behaviors(
    store: SQLiteEventStore,
    run_id: str,
    behaviors: tuple[Behavior, ...],
    since: int | None,
    upto: int | None,
    model: Model | Identity | None,
) -> ReplayReport:
    facts = _Facts(store, run_id)
    begin = since or facts.begin or store.get_run(run_id).fork_position + 1
    recording = read_recording(store, run_id, begin, lambda event: event.frame != FRAME, upto)
    rerun = ReplayStore(recording)
    runtime = _Rerun(rerun, behaviors, facts, identity_of(model, recording))
    with suppress(Parted), closing(runtime):
        call(runtime.again)
        rerun.end()
    if (found := rerun.parted) is None:
        return _report(rerun, None)
    changed = facts.changed(behaviors, found.position)
    return _report(rerun, replace(found, changed=changed))


class _Facts:
    """What the log tells of the dispatches of a run."""

    def __init__(self, store: SQLiteEventStore, run_id: str) -> None:
        types = ("behaviors.registered", "behaviors.stopped")
        known = store.read(WORKSPACE_RUN, types=types) if store.has_run(WORKSPACE_RUN) else ()
        payloads = [(e.type, e.payload) for e in known if e.payload.get("run") == run_id]
        self.registered = [told for type_, told in payloads if type_ == types[0]]
        stopped = [told for type_, told in payloads if type_ == types[1]]
        self.begin: int | None = min((told["since"] for told in self.registered), default=None)
        self.restarts = {told["since"] for told in self.registered if told["restart"]}
        self.too_deep = {told["at"] for told in stopped if told["why"] == "depth"}
        self.stops = {told["at"] for told in stopped} - self.too_deep

    def changed(self, behaviors: Iterable[Behavior], position: int) -> tuple[str, ...]:
        """Name the behaviours that are not what they were at a position."""
        told = [told for told in self.registered if told["since"] <= position]
        if not told:
            return ()
        then = {about["name"]: about["fingerprint"] for about in told[-1]["behaviors"]}
        now = {behavior.name: behavior.fingerprint for behavior in behaviors}
        moved = [name for name in then if name in now and then[name] != now[name]]
        new = [f"{name} (new)" for name in now if name not in then]
        return (*moved, *new, *(f"{name} (gone)" for name in then if name not in now))


class _Rerun(ReactiveRuntime):
    """A runtime that dispatches a recording: what came from outside comes from there."""

    def __init__(
        self,
        store: ReplayStore,
        behaviors: tuple[Behavior, ...],
        facts: _Facts,
        identity: Identity | None,
    ) -> None:
        super().__init__(store, budget=_NO_LIMIT)
        self._rerun, self._facts, self._ended = store, facts, False
        self._context_options = {"model": identity, **store.context_options}
        self._triggers.enter(behaviors)
        self._since[store.recording.run.run_id] = store.recording.since
        self._cursor = 0
        self._last = max((event.position or 0 for event in store.recording.made()), default=0)
        store.speaker = self._who

    @property
    def ctx(self) -> Context:
        """As of any runtime; here it ends the replay at what has no recorded answer."""
        asking = super().ctx
        asking.when_missed(partial(_told_of_miss, self._rerun))
        return asking

    def again(self) -> Coroutine[Any, Any, None] | None:
        """Dispatch everything; awaitable where a behaviour is asynchronous."""
        meter = self.new_meter()
        if any(behavior.is_async for behavior in self.behaviors):
            return self.adrive(meter)
        self.drive(meter)
        return None

    def watch(self, run_id: str, since: int | None = None) -> None:
        """Make room for what behaviours write to another run; it is not dispatched here."""
        self._rerun.borrow(run_id)

    def _react(self, event: Event, depth: int, meter: Meter) -> Turns:
        position = event.position or 0
        if position in self._facts.restarts:
            self._triggers.forget(event.run_id)
        if position in self._facts.stops and self._rerun.position >= self._last:
            self._ended = True  # the dispatch was cut off here and never taken up again
        if not self._ended and position not in self._facts.too_deep:
            yield from super()._react(event, depth, meter)
        self._rerun.advance()

    def _failed(self, scope: Scope, event: Event, error: Exception) -> None:
        if isinstance(error, ReplayMiss):
            with entered(scope):
                _missed(self._rerun, error)
        with entered(scope):
            super()._failed(scope, event, error)

    def _register(self, event: Event) -> None:
        """Write nothing: the recording has it."""

    def _note_stop(self, why: str) -> None:
        """Write nothing: a replay is stopped by its divergence alone."""

    def _who(self) -> str | None:
        scope = current(self)
        return scope.behavior.name if scope and scope.behavior else None
