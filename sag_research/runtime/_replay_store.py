"""A log in memory in which a run is written again, each event held against the recorded one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, NoReturn

from msgspec.structs import replace

from sag_research.errors import SagError, UsageError
from sag_research.log import CALL_TYPES, SQLiteEventStore, canonical_digest, record_call
from sag_research.model import Event, Run
from sag_research.runtime._reactive_context import ANSWERED_BY, FRAME
from sag_research.runtime._replay_diff import Divergence, changes, parting

__all__ = ["ANSWERS", "LIVE_TYPES", "Parted", "Recording", "ReplayStore", "read_recording"]

ANSWERS: Final = "@answers"
"""Run of the log in memory that holds the recorded answers."""

LIVE_TYPES: Final = frozenset(CALL_TYPES) - {"call.reused"} | {"llm.requested", "tool.requested"}
"""Types of events that only a call that is made writes; a replay makes none."""

_CLOCKS: Final = ("started", "seconds")
_OF_ONE_MACHINE: Final = ("traceback", "fingerprint")


class Parted(BaseException):
    """Ends a replay at its first divergence; no handler of errors in an agent may keep it."""

    def __init__(self, divergence: Divergence) -> None:
        self.divergence = divergence
        super().__init__(str(divergence))


class Recording:
    """A run to be written again.

    Parameters
    ----------
    store : SQLiteEventStore
        Only read.
    run : Run
    events : list of Event
        The whole lineage; index 0 is position 1.
    since : int
        First position that is made anew; what stands before it is taken as given.
    is_given : callable
        Tells of a later event whether it came from outside, and is taken as given too.
    """

    def __init__(
        self,
        store: SQLiteEventStore,
        run: Run,
        events: list[Event],
        since: int,
        is_given: Callable[[Event], bool],
    ) -> None:
        self.store, self.run, self.events, self.since = store, run, events, since
        self._is_given, self._in_vain = is_given, _in_vain(events)
        self.in_vain = frozenset(events[at - 1].payload.get("key") for at in self._in_vain)
        """Keys of questions that were asked and never answered."""

    def at(self, position: int) -> Event | None:
        """Return the event at a position, ``None`` after the end."""
        return self.events[position - 1] if position <= len(self.events) else None

    def is_given(self, event: Event) -> bool:
        """Tell whether an event is taken as given rather than made anew."""
        position = event.position or 0
        return position < self.since or position in self._in_vain or self._is_given(event)

    def made(self) -> list[Event]:
        """Return the events that a replay must make anew."""
        return [event for event in self.events if not self.is_given(event)]


def read_recording(
    store: SQLiteEventStore,
    run_id: str,
    since: int,
    is_given: Callable[[Event], bool],
    upto: int | None = None,
) -> Recording:
    """Read a run whole.

    Raises
    ------
    RunNotFoundError, StoreError
    UsageError
        If the replay would end before it begins.
    """
    if upto is not None and upto < 1:
        raise UsageError(f"nothing stands up to position {upto}", fix="give upto=1 or more")
    events = list(store.read(run_id, hi=upto))
    return Recording(store, store.get_run(run_id), events, since, is_given)


class ReplayStore(SQLiteEventStore):
    """The log that a replay writes to; it lets through only what the recording holds.

    Attributes
    ----------
    recording : Recording
    made : int
        Events made anew so far, and found to be the recorded ones.
    reused : int
        Asks answered so far.
    parted : Divergence or None
        The first divergence; it stays, whatever the code that is replayed does with the error.
    """

    def __init__(self, recording: Recording) -> None:
        super().__init__(":memory:")
        self.recording = recording
        self.made = self.reused = 0
        self.parted: Divergence | None = None
        self.speaker: Callable[[], str | None] = lambda: None
        self._next = 1
        self._used: set[int] = set()
        self._place_of: dict[int, int] = {}
        self._lay_out_answers()
        run = recording.run
        self.create_run(replace(run, parent_id=None, fork_position=0))
        self.advance()

    # ---- the recorded answers

    def _lay_out_answers(self) -> None:
        """Enter each answer under the number of its ask, counted from where the replay begins."""
        self.create_run(Run(run_id=ANSWERS, kind="answers"))
        numbered = [event for event in self.recording.made() if _answers_a_call(event)]
        asked: dict[str, set[int]] = {}  # others may have asked in between, in the same run
        for event in numbered:
            asked.setdefault(event.payload["key"], set()).add(event.payload["occurrence"])
        ranks = {
            (key, number): rank
            for key, numbers in asked.items()
            for rank, number in enumerate(sorted(numbers))
        }
        for event in numbered:
            answer = self._followed(event)
            if answer is not None:
                number = ranks[event.payload["key"], event.payload["occurrence"]]
                payload = {**answer.payload, "occurrence": number}
                written = record_call(
                    self, Event(run_id=ANSWERS, type=answer.type, payload=payload)
                )
                self._place_of[written.position or 0] = event.position or 0

    def _followed(self, event: Event) -> Event | None:
        """Return the event that holds the answer, with the bytes it refers to."""
        source, answer = self.recording.store, event
        if event.type == "call.reused":
            run_id, position = event.payload.get("run"), event.payload.get("position")
            if not isinstance(run_id, str) or not source.has_run(run_id):
                return None
            found = next(source.read(run_id, position or 0, position), None)
            if found is None or "key" not in found.payload:
                return None
            answer = found
        if "blob" in answer.payload:
            self.put_blob(source.blob(answer.payload["blob"]))
        return answer

    # ---- writing again

    def append_many(self, events: Iterable[Event], *, expected: int | None = None) -> list[Event]:
        """Append events; those of the replayed run must be the recorded ones."""
        with self._lock:
            return [self._again(event, expected) for event in events]

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Group writes; what is rolled back was not written again."""
        with super().transaction():
            before = self._next, self.made
            try:
                yield
            except BaseException:
                self._next, self.made = before
                raise

    def _again(self, event: Event, expected: int | None) -> Event:
        if event.run_id != self.recording.run.run_id:
            return super().append_many([event], expected=expected)[0]
        self.stay_parted()
        if event.type == "call.reused" and event.payload.get("run") == ANSWERS:
            return self._use(self._place_of[event.payload["position"]])
        if self._next > 1:  # the first is written with the run's row, before anything else
            self.advance()
        recorded = self.recording.at(self._next)
        if recorded is not None and event.type == recorded.type == "run.created":
            return self._copy(recorded)
        if event.type in LIVE_TYPES:
            self.part("unrecorded", recorded, event, reason="a call was about to be made live")
        if recorded is None:
            self.part("extra", None, event)
        if not _is_same(recorded, event):
            self.part("different", recorded, event)
        self.made += self._next >= self.recording.since
        written = self._copy(recorded)
        self.advance()
        return written

    def _use(self, position: int) -> Event:
        """Note that a recorded answer was given; it is written when its turn comes."""
        answer = self.recording.events[position - 1]
        self._used.add(position)
        if answer.type != "call.reused" and answer.type != "effect.recorded" and answer.cause:
            self._used.add(answer.cause)
        self.reused += 1
        self.advance()
        return answer

    @property
    def position(self) -> int:
        """The last position written."""
        return self._next - 1

    @property
    def context_options(self) -> dict[str, Any]:
        """How a context must be made to ask the recording."""
        return {"mode": "replay", "source": ANSWERS, "resume": False}

    def borrow(self, run_id: str) -> None:
        """Make another run of the recording's log known here, empty."""
        if not self.has_run(run_id):
            self.recording.store.head(run_id)  # raises where there is no such run
            self.create_run(Run(run_id=run_id))

    def advance(self, given: Collection[str] = ()) -> None:
        """Write what comes next in the recording and need not be made anew."""
        with self._lock:
            self.stay_parted()
            while (event := self.recording.at(self._next)) is not None:
                used = self._next in self._used
                if not (used or event.type in given or self.recording.is_given(event)):
                    return
                self.made += used
                self._copy(event)

    def _copy(self, event: Event) -> Event:
        run_id = self.recording.run.run_id
        bare = replace(event, run_id=run_id, seq=None, position=None, digest=None)
        written = super().append_many([bare])[0]
        if written.digest != event.digest:
            raise SagError(
                f"run {run_id!r} cannot be replayed from event {event.position} on",
                why="the recorded event was redacted or damaged",
                fix="see `sag verify`; with upto=… the part before it can be replayed",
            )
        self._next += 1
        return written

    # ---- parting

    def end(self) -> None:
        """Say that nothing more will be written."""
        self.advance()
        if (recorded := self.recording.at(self._next)) is not None:
            self.part("missing", recorded, None)

    def stay_parted(self) -> None:
        """Raise the first divergence again where the code that is replayed has kept it."""
        if self.parted is not None:
            raise Parted(self.parted)

    def part(
        self,
        kind: Any,
        recorded: Event | None,
        replayed: Event | None,
        *,
        reason: str = "",
        between: tuple[Mapping[str, Any], Mapping[str, Any]] | None = None,
    ) -> NoReturn:
        """End the replay here."""
        self.stay_parted()
        both = recorded is not None and replayed is not None
        fields = parting(recorded, replayed) if recorded and replayed else ()
        if between is None and recorded and replayed and recorded.type == replayed.type:
            between = recorded.payload, replayed.payload
        found = tuple(changes(*between)) if between else ()
        if replayed is not None:
            replayed = replace(replayed, position=self._next)
        self.parted = Divergence(
            run_id=self.recording.run.run_id, position=self._next, kind=kind,
            recorded=recorded, replayed=replayed, reason=reason, changes=found,
            fields=(*fields, "payload") if both and found else fields,
            behavior=self.speaker() or _writer(recorded),
        )  # fmt: skip
        raise Parted(self.parted)


def _in_vain(events: list[Event]) -> set[int]:
    """Positions of calls that were cut off before there was an answer; they were made again."""
    asked = {e.position or 0 for e in events if e.type in ("llm.requested", "tool.requested")}
    cut = {e.position or 0 for e in events if e.type in CALL_TYPES and e.payload.get("unanswered")}
    answered = {e.cause for e in events if e.type in CALL_TYPES and not e.payload.get("unanswered")}
    return cut | (asked - answered)


def _writer(event: Event | None) -> str | None:
    """Return the behaviour that wrote an event, where the event says so."""
    is_emission = event is not None and event.frame == FRAME and event.actor != ANSWERED_BY
    return event.actor if event is not None and is_emission else None


def _answers_a_call(event: Event) -> bool:
    payload = event.payload
    known = isinstance(payload.get("key"), str) and type(payload.get("occurrence")) is int
    return event.type in CALL_TYPES and known and not payload.get("unanswered")


def _is_same(recorded: Event, replayed: Event) -> bool:
    """Compare what the digest covers: type, actor, cause and the canonical payload."""
    if parting(recorded, replayed):
        return False
    return _body(recorded, recorded.type) == _body(replayed, recorded.type)


def _body(event: Event, type_: str) -> str:
    drop = {"agent.step": _CLOCKS, "behavior.failed": _OF_ONE_MACHINE}.get(type_, ())
    return canonical_digest({key: val for key, val in event.payload.items() if key not in drop})
