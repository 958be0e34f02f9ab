"""Recording runs as RDF while they go on, and from the log at any time.

Both ways end in the same quads: the live one takes events from the log's tail and remembers how
far it got in each run.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from functools import partial
from itertools import islice
from operator import itemgetter
from typing import Any, Final, TypeAlias

import msgspec
from pyoxigraph import Quad

from sag_research.bloom._entities_decisions import take_decisions
from sag_research.bloom._prov_quads import (
    Named,
    Place,
    Ref,
    Version,
    end_quads,
    evidence_quads,
    fork_quads,
    hint_quads,
    hint_used_quad,
    item_quads,
    mention_quads,
    merge_quads,
    outcome_quads,
    revision_quad,
    run_quads,
)
from sag_research.bloom._prov_store import TraceStore
from sag_research.bloom._prov_terms import DECISIONS, prov
from sag_research.bloom._trace import Action, Observation, TraceItem, Tracer, read_item, step_of
from sag_research.errors import FormatError, UsageError
from sag_research.log import SQLiteEventStore
from sag_research.model import TERMINAL_TYPES, WORKSPACE_RUN, Entity, Event, Mention, Outcome, Run
from sag_research.model import Step as StepRecord

__all__ = ["EVIDENCE", "HINT", "Mentions", "RecordCounts", "Recorder"]

HINT: Final = "hint.given"
"""Type of the event that says which hint a run was given: ``{text, items: [[run, ordinal]]}``."""
EVIDENCE: Final = "evidence.recorded"
"""``{name, kind, sha256, derived_from: [name]}``; made by the step before it."""

PAGE: Final = 1_000
_STEP: Final = "agent.step"
_REDACTED: Final = "body.redacted"
_LABEL: Final = "outcome.recorded"
_GENERATED: Final = prov("wasGeneratedBy")
_DECIDED: Final = ("entity.merged", "entity.split")

Mentions: TypeAlias = Callable[[Sequence[Event]], Mapping[tuple[str, int], Sequence[Mention]]]
"""Gives the mentions in some steps' events, by run and position."""


class RecordCounts(msgspec.Struct):
    """What became of what a recorder was offered."""

    events: int = 0
    items: int = 0
    rejected: int = 0
    """Items and facts that were none; the last reason stands in ``last_reason``."""
    last_reason: str = ""


class _Line:
    """How far a run has been taken from the log."""

    def __init__(self, position: int, tracer: Tracer, step: int) -> None:
        self.position, self.tracer, self.step = position, tracer, step
        self.start = tracer.ordinal
        self.marks: list[tuple[int, Tracer, int]] = []
        self.mark()
        self.hints: list[int] = []
        self.ended: list[Quad] = []

    def mark(self) -> None:
        """Remember the state here, for runs that are forked at this place."""
        self.marks.append((self.position, copy(self.tracer), self.step))

    def at(self, position: int) -> tuple[Tracer, int] | None:
        """Return a tracer, and the number of steps, as they were at a position of the run's own."""
        place = bisect_right(self.marks, position, key=itemgetter(0))
        return (copy(self.marks[place - 1][1]), self.marks[place - 1][2]) if place else None


class Recorder:
    """Writes runs into a :class:`TraceStore`.

    Parameters
    ----------
    store : SQLiteEventStore, optional
        The log, where events are to be taken from one.
    traces : TraceStore, optional
        Default: a new one.
    mentions : callable, optional
        Gives the entities that steps name; default: none are recorded.

    Notes
    -----
    :meth:`add` takes single items in any order, from any number of threads, as often as one
    likes. :meth:`apply` takes events in any order: what is missing before one is read from the
    log. It is what a listener calls, and makes a recorder a projection of a runtime.

    Examples
    --------
    >>> from sag_research.bloom import Thought, TraceItem
    >>> recorder = Recorder()
    >>> for number in (2, 0, 1):
    ...     _ = recorder.add("r1", TraceItem(number, Thought("hm")))
    >>> recorder.traces.sparql("SELECT (count(?b) AS ?n) WHERE { ?a prov:wasInformedBy ?b }")
       n
    0  2
    """

    def __init__(
        self,
        store: SQLiteEventStore | None = None,
        traces: TraceStore | None = None,
        *,
        mentions: Mentions | None = None,
    ) -> None:
        self.store, self.traces = store, TraceStore() if traces is None else traces
        self.counts = RecordCounts()
        self._mentions = mentions
        self._lock = threading.RLock()
        self._reset()

    def __repr__(self) -> str:
        counts = self.counts
        return f"Recorder({counts.items:,} items of {len(self._lines):,} runs in {self.traces!r})"

    def _reset(self) -> None:
        self._seq = 0
        self._lines: dict[str, _Line] = {}
        self._bases: dict[str, tuple[str, int]] = {}
        self._made: defaultdict[tuple[str, Entity], list[int]] = defaultdict(list)
        # what was redacted up to here is gone from all that is read after now
        self._clean = 0 if self.store is None else self.store.last_seq()

    # ---- items, in any order

    def add_run(self, run: Run) -> None:
        """Record what is known of a run from its beginning."""
        self.traces.add(run_quads(run))

    def add(
        self,
        run_id: str,
        item: TraceItem | Mapping[str, Any] | str | bytes,
        *,
        place: Place | None = None,
        named: Sequence[Named] = (),
    ) -> bool:
        """Record an item; recording it again changes nothing.

        Parameters
        ----------
        run_id : str
        item : TraceItem, mapping or JSON text
        place : Place, optional
            Where it stands in the log.
        named : sequence of Named
            The entities that it names.

        Returns
        -------
        bool
            False where it is no item: nothing is recorded then, and it is counted as rejected.
        """
        try:
            taken = read_item(item)
        except FormatError as error:
            self._reject(str(error))
            return False
        self._write(run_id, taken, place, named)
        return True

    def _write(
        self, run_id: str, item: TraceItem, place: Place | None, named: Sequence[Named]
    ) -> None:
        writer = partial(self._writer, run_id) if run_id in self._bases else None
        quads = item_quads(run_id, item, place, writer)
        if named:
            quads += mention_quads(run_id, item.ordinal, named)
        with self._lock:
            self.counts.items += 1
            self.traces.add(quads)
            for entity in {entity for entity, role in named if role == "MUTATED"}:
                self._revise(Version(entity, run_id, item.ordinal))

    def _revise(self, new: Version) -> None:
        """Put a version between the one before it and the one after it."""
        made = self._made[new.run_id, new.entity]
        at = bisect_left(made, new.ordinal)
        if made[at : at + 1] == [new.ordinal]:
            return
        before = self._before(new, made[at - 1] if at else None)
        after = new._replace(ordinal=made[at]) if at < len(made) else None
        made.insert(at, new.ordinal)
        gone = revision_quad(after, before)[:1] if after and before else []
        quads = revision_quad(new, before) if before else []
        self.traces.replace(gone, quads + (revision_quad(after, new) if after else []))

    def _before(self, new: Version, own: int | None) -> Version | None:
        """Return the version that another one changed, in the same run or an ancestor."""
        if own is not None:
            return new._replace(ordinal=own)
        run_id = new.run_id
        while run_id in self._bases:
            run_id, start = self._bases[run_id]
            made = self._made.get((run_id, new.entity), [])
            if at := bisect_left(made, start):
                return Version(new.entity, run_id, made[at - 1])
        return None

    def _writer(self, run_id: str, ordinal: int) -> str:
        """Return the run that wrote an item of a lineage."""
        while run_id in self._bases and ordinal < self._bases[run_id][1]:
            run_id = self._bases[run_id][0]
        return run_id

    def _reject(self, reason: str) -> None:
        with self._lock:
            self.counts.rejected += 1
            self.counts.last_reason = reason

    # ---- events of the log

    def catch_up(self) -> int:
        """Take all that the log has gained; returns the number of events read."""
        store = self._log()
        with self._lock:
            read = 0
            while page := list(islice(store.tail(self._seq, strict=False), PAGE)):
                self._take(page)
                read += len(page)
            return read

    def follow(self, *, interval: float = 0.2, stop: threading.Event | None = None) -> None:
        """Go on taking what any process appends, until ``stop`` is set."""
        ended = stop or threading.Event()
        while not ended.is_set():
            self.catch_up()
            ended.wait(interval)

    def apply(self, event: Event) -> None:
        """Take an event, and whatever of its run comes before it and is missing."""
        with self._lock:
            if event.run_id != WORKSPACE_RUN:
                self._take_run(event.run_id, event.position)
            elif event.type not in _DECIDED:
                self._fact(event)
            elif self.store is not None:
                self._decide()

    def record(self, run_id: str) -> None:
        """Take a run and its ancestors, as far as the log has them, and the run's labels."""
        store = self._log()
        with self._lock:
            self._take_run(run_id, store.head(run_id).position)
            if store.has_run(WORKSPACE_RUN):
                for event in store.read(WORKSPACE_RUN, types=(_LABEL,)):
                    if event.payload.get("run") == run_id:
                        self._fact(event)
                self._decide()

    def rebuild(self) -> int:
        """Throw everything away and take the whole log again."""
        with self._lock:
            self.traces.clear()
            self._reset()
            return self.catch_up()

    def _log(self) -> SQLiteEventStore:
        if self.store is None:
            raise UsageError("this recorder has no log", fix="make it with Recorder(store)")
        return self.store

    def _take_run(self, run_id: str, position: int | None) -> None:
        """Take a run's own events up to a position."""
        line = self._line(run_id)
        if position is not None and position <= line.position:
            return
        events = self._log().read(run_id, lo=line.position + 1, hi=position)
        while page := list(islice(events, PAGE)):
            self._take(page, tail=False)

    def _take(self, events: Sequence[Event], *, tail: bool = True) -> None:
        steps = [event for event in events if event.type == _STEP]
        found = self._mentions(steps) if self._mentions and steps else {}
        if any(event.run_id == WORKSPACE_RUN and event.type in _DECIDED for event in events):
            self._decide()
        for event in events:
            if event.run_id == WORKSPACE_RUN:
                if self._fact(event):
                    return  # everything was forgotten, and is read again from the beginning
            else:
                key = (event.run_id, event.position or 0)
                self._take_one(self._line(event.run_id), event, found.get(key, ()))
            if tail:
                self._seq = event.seq or self._seq

    def _line(self, run_id: str) -> _Line:
        """Return how far a run was taken; a new one is introduced, its ancestors first."""
        new: list[Run] = []
        named: str | None = run_id
        while named is not None and named not in self._lines:
            new.append(self._log().get_run(named))
            named = new[-1].parent_id
        for run in reversed(new):
            self._begin(run)
        return self._lines[run_id]

    def _begin(self, run: Run) -> None:
        tracer, steps = Tracer(), 0
        if run.parent_id is not None:
            self._take_run(run.parent_id, run.fork_position)
            tracer, steps = self._left(run.parent_id, run.fork_position)
            self._bases[run.run_id] = (run.parent_id, tracer.ordinal)
        writer = partial(self._writer, run.run_id)
        self.traces.add(run_quads(run) + fork_quads(run, tracer.ordinal, writer))
        self._lines[run.run_id] = _Line(run.fork_position, tracer, steps)

    def _left(self, run_id: str, position: int) -> tuple[Tracer, int]:
        """Return the state of a lineage at a position, which an ancestor may have written."""
        while (found := self._lines[run_id].at(position)) is None:
            run_id = self._bases[run_id][0]
        return found

    def _take_one(self, line: _Line, event: Event, mentions: Sequence[Mention]) -> None:
        position = event.position or 0
        if position <= line.position:
            return
        line.position = position
        self.counts.events += 1
        if event.type == HINT:
            self._hint(line, event)
        elif event.type == EVIDENCE:
            self._evidence(line, event)
        else:
            self._items(line, event, mentions)

    def _items(self, line: _Line, event: Event, mentions: Sequence[Mention]) -> None:
        """Record what an event says that was thought, done, seen or answered."""
        run_id, number = event.run_id, None
        step, items = _items_of(line.tracer, event)
        if step is not None:
            number, line.step = line.step, line.step + 1
        named = _assign(step, items, mentions) if step is not None and mentions else {}
        for n, item in enumerate(items):
            started = step.started if step is not None and n == 0 else None
            place = Place(event.position, number, started)
            self._write(run_id, item, place, named.get(item.ordinal, ()))
        if line.hints and line.tracer.ordinal > line.start:
            self.traces.add(hint_used_quad(run_id, hint, line.start) for hint in line.hints)
            line.hints.clear()
        if step is not None or items:
            line.mark()
        if event.type in TERMINAL_TYPES:
            ended = end_quads(run_id, event.type, event.payload)
            self.traces.replace(line.ended, ended)
            line.ended = ended

    def _hint(self, line: _Line, event: Event) -> None:
        text, position = event.payload.get("text"), event.position or 0
        items = _refs(event.payload.get("items"))
        if not isinstance(text, str) or items is None:
            return self._reject(f"position {position} of {event.run_id!r} holds no hint")
        self.traces.add(hint_quads(event.run_id, position, text, items))
        if line.tracer.ordinal > line.start:
            self.traces.add([hint_used_quad(event.run_id, position, line.start)])
        else:
            line.hints.append(position)
        return None

    def _evidence(self, line: _Line, event: Event) -> None:
        told = event.payload
        texts = [told.get(name) for name in ("name", "kind", "sha256")]
        if not all(isinstance(text, str) for text in texts):
            return self._reject(f"position {event.position} of {event.run_id!r} is no evidence")
        listed = told.get("derived_from")
        listed = listed if isinstance(listed, list) else []
        sources = [one for one in listed if isinstance(one, str)]
        made_by = line.tracer.ordinal - 1 if line.tracer.ordinal > line.start else None
        name, kind, sha256 = (str(text) for text in texts)
        quads = evidence_quads(
            event.run_id, name, kind, sha256, ordinal=made_by, derived_from=sources
        )
        # what is recorded again was made before: an entity is generated once
        self.traces.add(
            quad for quad in quads
            if quad.predicate != _GENERATED
            or not self.traces.ask(quad.subject, _GENERATED, None, quad.graph_name)
        )  # fmt: skip
        return None

    def _decide(self) -> None:
        """Record which entities count as which now: decisions hold in their order, so all count."""
        decided = take_decisions(
            (event.position or 0, event.type, event.payload)
            for event in self._log().read(WORKSPACE_RUN, types=_DECIDED)
        )
        before = set(self.traces.match(graph=DECISIONS))
        after = set(merge_quads(decided.targets))
        self.traces.replace(before - after, after - before)

    def _fact(self, event: Event) -> bool:
        """Take a fact about a run; returns whether everything was read anew because of it."""
        run_id = event.payload.get("run")
        if not isinstance(run_id, str) or event.type not in (_LABEL, _REDACTED):
            return False
        if event.type == _REDACTED:
            stale = (event.seq or 0) > self._clean and run_id in self._lines
            if stale:
                self.rebuild()
            return stale
        try:
            outcome = msgspec.convert(
                {k: v for k, v in event.payload.items() if k != "run"}, Outcome
            )
        except msgspec.ValidationError as error:
            self._reject(f"position {event.position} of {event.run_id!r} is no label: {error}")
            return False
        self.traces.add(outcome_quads(run_id, outcome, event.position or 0))
        return False


def _items_of(tracer: Tracer, event: Event) -> tuple[StepRecord | None, list[TraceItem]]:
    """Return the step that an event is, and the items it gives."""
    if event.type == _STEP:
        step = step_of(event.payload)
        return step, tracer.take(step)
    return None, tracer.complete() if event.type == "run.completed" else []


def _refs(value: Any) -> list[Ref] | None:
    try:
        return msgspec.convert(value, list[Ref])
    except msgspec.ValidationError:
        return None


def _assign(
    step: StepRecord, items: Iterable[TraceItem], mentions: Sequence[Mention]
) -> dict[int, list[Named]]:
    """Give each mention to the item whose text it stands in.

    A step's texts are those of its calls joined by line ends. Where they are not, a mention goes
    to the first item of its kind.
    """
    given: defaultdict[int, list[Named]] = defaultdict(list)
    for field, kind in (("action", Action), ("observation", Observation)):
        wanted = [mention for mention in mentions if mention.field == field]
        ordinals = [item.ordinal for item in items if isinstance(item.step, kind)]
        if wanted and ordinals:
            ends = list(_ends(step, field, len(ordinals)))
            for mention in wanted:
                place = min(bisect_left(ends, mention.end), len(ordinals) - 1)
                given[ordinals[place] if ends else ordinals[0]].append(
                    Named(mention.entity, mention.role)
                )
    return given


def _ends(step: StepRecord, field: str, count: int) -> Iterator[int]:
    """Yield where each call's text ends in the step's; nothing where they do not fit."""
    texts = [call.text if field == "action" else call.observation for call in step.calls]
    whole = step.action if field == "action" else step.observation
    if len(texts) != count or "\n".join(filter(None, texts)) != whole:
        return
    end = 0
    for text in texts:
        end += len(text)
        yield end
        end += bool(text)
