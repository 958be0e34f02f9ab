"""Turns of an OpenHands run: replies, their calls, and 0..n results for each call."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from msgspec.structs import replace

from sag_research.ingest.formats import _shared as shared
from sag_research.ingest.formats._shared import Result
from sag_research.model import Call, Step, Usage

__all__ = ["Turn", "Turns", "as_typed", "clock", "exit_code", "key", "mapping", "summary"]

_FIRST_YEAR: Final = 1970
_SHELLS: Final = frozenset({"terminal", "execute_bash", "bash"})


def mapping(value: Any) -> dict[str, Any]:
    """Return an object, or an empty one in the place of anything else."""
    return value if isinstance(value, dict) else {}


def key(value: Any) -> str | None:
    """Return an id as text; the format uses whole numbers and text.

    Examples
    --------
    >>> key(7), key("7"), key(True), key("")
    ('7', '7', None, None)
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value) if shared.integer(value) is not None else None
    return shared.word(value)


def clock(value: Any) -> float | None:
    """Return seconds since the epoch; a time without a zone is taken for UTC.

    Examples
    --------
    >>> clock("1970-01-01T00:01:00.5"), clock("1970-01-01T02:00:00+02:00"), clock("soon")
    (60.5, 0.0, None)
    """
    if not isinstance(value, str):
        return shared.number(value)
    try:
        found = datetime.fromisoformat(value)
        zoned = found if found.tzinfo else found.replace(tzinfo=UTC)
        return zoned.timestamp() if found.year >= _FIRST_YEAR else None
    except (ValueError, OverflowError):
        return None


def as_typed(call: Call) -> Call:
    """Show a call of the shell as the command that was typed.

    Examples
    --------
    >>> as_typed(Call(name="terminal", arguments={"command": "ls", "risk": "LOW"})).text
    'ls'
    """
    command = mapping(call.arguments).get("command") if call.name in _SHELLS else None
    return replace(call, text=command) if isinstance(command, str) else call


def exit_code(*found: Any) -> int | None:
    """Return the first exit code that is known: -1 stands for one that is not.

    Examples
    --------
    >>> exit_code(None, -1), exit_code(None, 2), exit_code(0, -1)
    (None, 2, 0)
    """
    codes = (shared.integer(one) for one in found)
    return next((code for code in codes if code is not None and code != -1), None)


def summary(counts: dict[str, int], what: str) -> list[str]:
    """Say how many events of which kinds are something; nothing if there are none.

    Examples
    --------
    >>> summary({"recall": 2, "system": 1}, "are no steps")
    ['3 events are no steps: recall 2, system 1']
    """
    total = sum(counts.values())
    kinds = ", ".join(f"{kind} {counts[kind]}" for kind in sorted(counts))
    return [f"{total} events {what}: {kinds}"] if total else []


@dataclass
class Turn:
    """One reply of the model while its events come in."""

    response: str | None = None
    started: float | None = None
    thoughts: list[str] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    answers: list[list[Result]] = field(default_factory=list)
    heard: list[str] = field(default_factory=list)
    """What came back without naming a call."""
    corrections: list[str] = field(default_factory=list)
    """What the harness said of replies that it could not use and did not keep."""
    usage: Usage | None = None
    ended: float | None = None
    not_run: set[int] = field(default_factory=set)
    """Numbers of the calls that were refused or could not be run."""

    def step(self) -> Step:
        """Return the turn as a step."""
        calls = tuple(map(_answered, self.calls, self.answers))
        rejected = bool(calls) and len(self.not_run) == len(calls)
        return Step(
            thought=shared.joined(list(dict.fromkeys(self.thoughts))),
            action=shared.joined([call.text for call in calls]),
            observation=shared.joined([*(call.observation for call in calls), *self.heard]),
            calls=calls,
            flags=("rejected",) if rejected else (),
            usage=self.usage,
            started=self.started,
            seconds=self._seconds(),
            state={"corrections": self.corrections} if self.corrections else None,
        )

    def _seconds(self) -> float | None:
        if self.started is None or self.ended is None or self.ended < self.started:
            return None
        return self.ended - self.started


def _answered(call: Call, results: list[Result]) -> Call:
    if not results:
        return call
    return replace(
        call,
        observation=shared.joined([result.text for result in results]),
        exit_code=results[-1].exit_code,
        status=results[-1].status,
    )


class Turns:
    """The turns of one run in order.

    Several calls may share one id and several results may name one call: each call takes the
    first result that names it, and the last of them takes all that are left. An event's number
    may be used again later on: a result then belongs to the event before it.
    """

    def __init__(self) -> None:
        self.all: list[Turn] = []
        self._responses: dict[str, Turn] = {}
        self._calls: defaultdict[str, list[tuple[Turn, int]]] = defaultdict(list)
        self._events: dict[str, tuple[Turn, int]] = {}

    def reply(self, response: str | None, started: float | None) -> Turn:
        """Return the turn of a reply, which is a new one unless the reply is known."""
        known = self._responses.get(response) if response else None
        if known is not None:
            return known
        turn = Turn(response, started)
        self.all.append(turn)
        if response:
            self._responses[response] = turn
        return turn

    def ask(self, turn: Turn, call: Call, event: str | None) -> None:
        """Add a call, which results may name by its id or by the number of its event."""
        place = (turn, len(turn.calls))
        turn.calls.append(call)
        turn.answers.append([])
        if call.id:
            self._calls[call.id].append(place)
        if event is not None:
            self._events[event] = place

    def answer(
        self, result: Result, event: str | None, at: float | None, *, refused: bool = False
    ) -> bool:
        """Give a result to its call; false if nobody asked for it."""
        place = self._events.get(event) if event is not None else None
        if place is None and result.call_id:
            place = self._open(self._calls.get(result.call_id, []))
        if place is None:
            return False
        turn, number = place
        turn.answers[number].append(result)
        turn.ended = turn.ended if at is None else max(at, turn.ended or at)
        if refused:
            turn.not_run.add(number)
        return True

    @staticmethod
    def _open(places: list[tuple[Turn, int]]) -> tuple[Turn, int] | None:
        for turn, number in places:
            if not turn.answers[number]:
                return turn, number
        return places[-1] if places else None

    def answer_last(self, result: Result, at: float | None) -> bool:
        """Give a result that names no call to the last call, if that one still waits."""
        if not self.all or not self.all[-1].calls or self.all[-1].answers[-1]:
            return False
        self.all[-1].answers[-1].append(result)
        self.all[-1].ended = at
        return True

    def hear(self, text: str) -> bool:
        """Add what the model heard after its last turn; false if there was none."""
        if not self.all:
            return False
        self.all[-1].heard.append(text)
        return True
