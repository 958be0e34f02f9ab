"""Copies of runs: found by what was done, linked, hidden from statistics, never merged."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any, Final, NamedTuple

from sag_research.ingest._copies_spelling import (
    Fingerprint,
    deeds_of_payloads,
    fingerprint,
    is_of_trace,
    sketch,
)
from sag_research.ingest._facts import (
    SourceRead,
    Visibility,
    outcomes_in_log,
    sources_in_log,
    visibility_in_log,
)
from sag_research.log import SQLiteEventStore
from sag_research.model import WORKSPACE_RUN, Event, Run

__all__ = ["Copy", "CopyReport", "hide", "hide_copies", "show"]

_FEWEST_WORDS: Final = 6
"""Fewer words in all actions of a run do not tell it from another one."""
_SAME_SAID: Final = 0.5
"""Share of three-word stretches that respelled thoughts have in common; those of another run of
the same task have less, also where its actions are equal."""
_SAME_ROW: Final = 0.95
"""Runs of one file are attempts unless all that was said is equal, too."""


class Copy(NamedTuple):
    """A run that is another run once more, and why that is believed."""

    run: str
    copy_of: str
    why: str


@dataclass
class CopyReport:
    """The copies that an ingest found; each is hidden, none is merged or removed.

    Attributes
    ----------
    hidden : list of Copy
        Hidden now. ``ws.show(run)`` takes that back for good.
    alike : list of (str, str, str)
        Runs that may be copies and are not hidden: run, the run it is like, and why not.
    """

    hidden: list[Copy] = field(default_factory=list)
    alike: list[tuple[str, str, str]] = field(default_factory=list)

    def notes(self) -> list[str]:
        """Say in a few lines what was found, and how to take it back."""
        notes = []
        if self.hidden:
            first = self.hidden[0]
            notes.append(
                f"{_runs(len(self.hidden))} hidden as copies of runs that are shown, e.g."
                f" {first.run}: {first.why} {first.copy_of}; see ws.copies(), undo with"
                " ws.show(run)"
            )
        if self.alike:
            run, other, why = self.alike[0]
            notes.append(
                f"{_runs(len(self.alike))} may be copies and are kept, e.g. {run} of {other}:"
                f" {why}; hide with ws.hide(run)"
            )
        return notes


def _runs(count: int) -> str:
    return f"{count} run{'s' * (count > 1)}"


def hide(
    store: SQLiteEventStore, run_id: str, reason: str = "", copy_of: str | None = None
) -> None:
    """Record that a run is kept out of statistics; nothing of it is removed."""
    payload = {"run": run_id, "reason": reason or "hidden by hand"}
    payload |= {} if copy_of is None else {"copy_of": copy_of}
    store.append(_event("run.hidden", payload))


def show(store: SQLiteEventStore, run_id: str, reason: str = "") -> None:
    """Record that a run counts; it is not hidden again unless by hand."""
    store.append(_event("run.shown", {"run": run_id, "reason": reason}))


def _event(kind: str, payload: dict[str, Any]) -> Event:
    return Event(run_id=WORKSPACE_RUN, type=kind, actor="ingest", payload=payload)


def hide_copies(store: SQLiteEventStore, sources: Sequence[SourceRead] | None = None) -> CopyReport:
    """Find copies among the runs, and hide all but one of each.

    Parameters
    ----------
    store : SQLiteEventStore
    sources : sequence of SourceRead, optional
        What the log says of sources, if that is known already: only runs of these are looked at.
        Default: all runs, those that did not come from files included.

    Returns
    -------
    CopyReport

    Notes
    -----
    A run is a copy of another one of the same task, and of the same model where both say one,
    if the sequences of their actions are equal once spelling is taken away, and what the model
    said beside them is mostly the same. Runs of one file must say exactly the same. Runs in which
    nothing was done are copies if they have the id of one trace and all their texts are equal. A
    run is *overwritten* if the file at its source's place was read again with another content that
    holds the same record; then the later one counts.

    Of several copies the first one with a known outcome is shown, or else the first.
    """
    look = _Look(store, sources)
    report = CopyReport()
    for run_id, later in look.overwritten():
        look.hide(report, Copy(run_id, later, "overwritten by"))
    alike = list(look.groups())
    known = _outcomes(store) if alike else {}
    for group in alike:
        _hide_all_but_one(look, group, known, report)
        look.forget()
    store.append_many(
        _event("run.hidden", {"run": c.run, "reason": f"{c.why} {c.copy_of}", "copy_of": c.copy_of})
        for c in report.hidden
    )
    return report


def _outcomes(store: SQLiteEventStore) -> dict[str, set[str]]:
    known: defaultdict[str, set[str]] = defaultdict(set)
    for run_id, outcome in outcomes_in_log(store):
        if outcome.outcome != "unknown":
            known[run_id].add(outcome.outcome)
    return known


def _hide_all_but_one(
    look: _Look, alike: list[Run], known: Mapping[str, set[str]], report: CopyReport
) -> None:
    """Judge runs of one task and one sketch; those that differ after all stay as they are."""
    if look.are_decided(alike):
        return
    rest = sorted(alike, key=lambda run: run.run_id not in known)  # stable: else the first
    while len(rest) > 1:
        kept, *others = rest
        rest = []
        for other in others:
            verdict = _judge(look, kept, other)
            if verdict == "":
                why = "the same trace as" if look.is_trace(kept.run_id) else "the same actions as"
                look.hide(report, Copy(other.run_id, kept.run_id, why))
                continue
            if verdict is not None:
                report.alike.append((other.run_id, kept.run_id, verdict))
            rest.append(other)


def _judge(look: _Look, one: Run, other: Run) -> str | None:
    """Return nothing for a copy, None for another run, else why it is not taken for a copy."""
    if not _may_be_one(one.model, other.model) or not _may_be_one(one.attempt, other.attempt):
        return None
    if look.is_trace(one.run_id):  # and of the same trace, or they would not be compared
        return "" if look.same_texts(one.run_id, other.run_id) else None
    a, b = look.fingerprint(one.run_id), look.fingerprint(other.run_id)
    if a.actions != b.actions:
        return None
    in_one_file = one.source_id == other.source_id
    if _common(a.thoughts, b.thoughts) < (_SAME_ROW if in_one_file else _SAME_SAID):
        return None
    if in_one_file and not look.same_answers(one.run_id, other.run_id):
        return None
    if a.n_words < _FEWEST_WORDS:
        return f"only {a.n_words} words of action tell them from others"
    return ""


def _may_be_one(one: Any, other: Any) -> bool:
    """Tell whether two names may mean the same; a provider before a model's name is none."""
    if one is None or other is None:
        return True
    return _bare(one) == _bare(other)


def _bare(name: Any) -> str:
    return PurePath(str(name).strip().casefold()).name


def _common(one: frozenset[int], other: frozenset[int]) -> float:
    """Return the share of what both have; a run that says nothing contradicts nobody."""
    if not one or not other:
        return 1.0 if one == other else _SAME_SAID
    return len(one & other) / len(one | other)


class _Look:
    """What the log says of runs, as far as copies need it."""

    def __init__(self, store: SQLiteEventStore, sources: Sequence[SourceRead] | None) -> None:
        self._store = store
        self._everything = sources is None
        self._sources = [said for _, said in sources_in_log(store)] if sources is None else sources
        self._state: dict[str, Visibility] = visibility_in_log(store)
        self._sketches = {
            run_id: text for said in self._sources for run_id, text in said.sketches.items()
        }
        self._fingerprints: dict[str, Fingerprint] = {}

    def groups(self) -> Iterator[list[Run]]:
        """Yield runs that one task and one sketch have in common, two and more at a time."""
        if self._everything:
            for run in self._store.runs():
                if run.kind == "agent" and run.parent_id is None:
                    self._sketch(run.run_id)
        alike: defaultdict[str, list[str]] = defaultdict(list)
        for run_id, text in self._sketches.items():
            if text and not self._is_settled(run_id):
                alike[text].append(run_id)
        for run_ids in alike.values():
            if len(run_ids) > 1:
                yield from self._of_one_task(run_ids)

    def _of_one_task(self, run_ids: list[str]) -> Iterator[list[Run]]:
        found = self._store.get_runs(run_ids)
        by_task: defaultdict[str, list[Run]] = defaultdict(list)
        for run_id in run_ids:
            run = found.get(run_id)
            if run is not None and run.task_id is not None and run.parent_id is None:
                by_task[run.task_id].append(run)
        yield from (runs for runs in by_task.values() if len(runs) > 1)

    def are_decided(self, runs: Sequence[Run]) -> bool:
        """Tell whether all but one of these are known as copies of that one."""
        states = [self._state.get(run.run_id) for run in runs]
        shown = [run.run_id for run, state in zip(runs, states, strict=True) if state is None]
        return len(shown) == 1 and {s.copy_of for s in states if s is not None} == set(shown)

    def _is_settled(self, run_id: str) -> bool:
        """Tell whether a person said that a run counts or not, or its file was overwritten."""
        state = self._state.get(run_id)
        if state is None:
            return False
        return state.copy_of is None or state.reason.startswith("overwritten")

    def _sketch(self, run_id: str) -> str:
        if run_id not in self._sketches:
            self._sketches[run_id] = sketch(list(deeds_of_payloads(self._payloads(run_id))))
        return self._sketches[run_id]

    def _payloads(self, run_id: str) -> list[dict[str, Any]]:
        return [event.payload for event in self._store.read(run_id, types=("agent.step",))]

    def fingerprint(self, run_id: str) -> Fingerprint:
        if run_id not in self._fingerprints:
            payloads = self._payloads(run_id)
            thoughts = (str(payload.get("thought") or "") for payload in payloads)
            self._fingerprints[run_id] = fingerprint(deeds_of_payloads(payloads), thoughts)
        return self._fingerprints[run_id]

    def forget(self) -> None:
        """Let go of what was read of the runs of one group: the next has none of them."""
        self._fingerprints.clear()

    def is_trace(self, run_id: str) -> bool:
        """Tell whether a run is known by the id of its trace, because nothing was done in it."""
        return is_of_trace(self._sketches.get(run_id, ""))

    def same_texts(self, one: str, other: str) -> bool:
        """Tell whether all that was said and all that came back is equal, letter by letter."""
        a, b = self._payloads(one), self._payloads(other)
        return all(
            [step.get(name) for step in a] == [step.get(name) for step in b]
            for name in ("thought", "observation")
        )

    def same_answers(self, one: str, other: str) -> bool:
        """Tell whether all that came back is equal, letter by letter."""
        a, b = self._payloads(one), self._payloads(other)
        return [step.get("observation") for step in a] == [step.get("observation") for step in b]

    def overwritten(self) -> Iterator[tuple[str, str]]:
        """Yield runs whose file was read again with another content, and what stands there now."""
        held = [said for said in self._sources if said.source_id and said.status in _HELD]
        now = {(said.log, said.root, said.path): said.source_id for said in held}
        current = set(now.values())
        gone = {said.source_id: said for said in held if said.source_id not in current}
        if not gone:
            return
        by_source: defaultdict[str, dict[tuple[str | None, str], str]] = defaultdict(dict)
        for run in self._store.runs():
            if run.source_id is not None:
                by_source[run.source_id][run.task_id, _record(run.run_id)] = run.run_id
        for source_id, said in gone.items():
            later = by_source[now[said.log, said.root, said.path] or ""]
            for key, run_id in by_source[source_id or ""].items():
                state = self._state.get(run_id)
                if key in later and (state is None or state.hidden):
                    yield run_id, later[key]

    def hide(self, report: CopyReport, copy: Copy) -> None:
        """Hide a run unless that is known already."""
        state = self._state.get(copy.run)
        if state is not None and state.hidden and state.copy_of == copy.copy_of:
            return
        reason = f"{copy.why} {copy.copy_of}"
        self._state[copy.run] = Visibility(copy.run, True, reason, copy.copy_of)
        report.hidden.append(copy)


_HELD: Final = ("ingested", "duplicate")


def _record(run_id: str) -> str:
    """Return what names a run inside its source: what stands behind the digest in its id."""
    return run_id.rpartition("~")[2].partition(".")[2]
