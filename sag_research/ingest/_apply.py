"""Recording labels: each finds its run, or is listed."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from typing import TypeAlias

from msgspec.structs import replace

from sag_research.ingest._events import outcome_event
from sag_research.ingest._facts import (
    SourceRead,
    labels_in_log,
    sources_in_log,
    visibility_in_log,
)
from sag_research.ingest._labels import Label, Labels
from sag_research.ingest._labels_experiments import Candidates
from sag_research.ingest._labels_scope import Scope
from sag_research.ingest._labels_sources import place_of, with_own_sources
from sag_research.ingest._report import Contradiction, LabelReport
from sag_research.log import SQLiteEventStore
from sag_research.model import Event, Outcome

__all__ = ["apply_labels"]


def apply_labels(
    store: SQLiteEventStore,
    labels: Labels,
    *,
    runs: Collection[str] | None = None,
    paths: Mapping[str, Collection[str]] | None = None,
    sources: Collection[SourceRead] | None = None,
) -> LabelReport:
    """Record what labels say, as events ``outcome.recorded``.

    Parameters
    ----------
    store : SQLiteEventStore
    labels : Labels
        As :func:`read_labels` gives them.
    runs : collection of str, optional
        Ids of the runs the labels are about; all agents' runs by default.
    paths : mapping of str to collection of str, optional
        Runs by the path of their source; from the log by default.
    sources : collection of SourceRead, optional
        What the log says of sources, if that is known already.

    Returns
    -------
    LabelReport
        Labels recorded, unchanged, contradictory, ambiguous and without a run; and the runs
        on which sources are in conflict.

    Notes
    -----
    At most one event is written for a run, a source and a value, so applying labels again
    does nothing; what a source says later replaces what it said before. Where several runs
    answer to a task, a label's model tells them apart, and among the attempts of a retry agent
    the chosen one is meant, and never a copy that is hidden where its original fits as well; what
    still fits several runs is listed and not guessed. The result of a trial is about the run that
    was read from the trial's folder, or else about its task.

    What names tasks alone is applied where all runs of the tasks that its file names may be of one
    experiment: of one model, agent, data set and ingested folder, and one run a task. Where they
    are not, the report's own model must tell, or the label file must be in the folder of one
    experiment or beside it; else the labels are ambiguous, also those of tasks with one run.
    """
    wanted = None if runs is None else frozenset(runs)
    found = (run for run in store.runs() if wanted is None or run.run_id in wanted)
    hidden = {run_id for run_id, one in visibility_in_log(store).items() if one.hidden}
    known = [one for _, one in sources_in_log(store)] if sources is None else sources
    scope = Scope((run for run in found if run.kind == "agent"), known, hidden)
    scope.add_paths(paths)
    report = LabelReport(labels=len(labels), notes=list(labels.notes), refused=list(labels.refused))
    with store.transaction():
        said, places = _said_in_log(store)
        named = with_own_sources(labels, places)
        targets = _targets(named, scope, report)
        _record(store, targets, said, report)
    _compare(scope, said, report)
    return report


_Targets: TypeAlias = dict[tuple[str, str], list[Label]]
"""Labels by the run they are about and their source."""


def _targets(labels: Labels, scope: Scope, report: LabelReport) -> _Targets:
    """Find the run of each label; several labels may be about one run and source."""
    candidates = Candidates(labels, scope)
    targets: defaultdict[tuple[str, str], list[Label]] = defaultdict(list)
    for label in labels:
        source = label.outcome.source
        report.count(source, "labels")
        found, is_sure = candidates.of(label)
        if not found:
            report.unmatched += 1
            report.unmatched_keys.append(label.key)
            report.count(source, "unmatched")
        elif not is_sure:
            report.ambiguous.append((label.key, found))
            report.count(source, "ambiguous")
        else:
            targets[found[0], source].append(label)
    report.hints = candidates.hints
    return targets


def _record(
    store: SQLiteEventStore,
    targets: _Targets,
    said: dict[str, dict[str, Outcome]],
    report: LabelReport,
) -> None:
    counts: Counter[str] = Counter()
    events = []
    for (run_id, source), labels in targets.items():
        outcome = labels[0].outcome
        if any(label.outcome.outcome != outcome.outcome for label in labels):
            report.contradictory.append(_contradiction(run_id, source, labels))
            report.count(source, "contradictory", len(labels))
            continue
        counts[outcome.outcome] += len(labels)
        new = said[run_id].get(source) != outcome
        report.applied += new
        report.unchanged += len(labels) - new
        report.count(source, "applied", int(new))
        report.count(source, "unchanged", len(labels) - new)
        if new:
            said[run_id][source] = outcome
            events.append(_event(run_id, labels[0]))
    report.outcomes = dict(sorted(counts.items()))
    store.append_many(events)


def _contradiction(run_id: str, source: str, labels: list[Label]) -> Contradiction:
    places: dict[str, list[str]] = {}
    for label in labels:
        places.setdefault(label.outcome.outcome, []).append(label.place or label.key)
    return Contradiction(run_id, labels[0].key, source, dict(sorted(places.items())))


def _event(run_id: str, label: Label) -> Event:
    """Return the event of a label, which knows its file again without telling where it was."""
    event = outcome_event(run_id, label.outcome)
    if label.file is None:
        return event
    return replace(event, payload={**event.payload, "place": place_of(label.file)})


def _said_in_log(
    store: SQLiteEventStore,
) -> tuple[dict[str, dict[str, Outcome]], dict[str, str | None]]:
    """Read the last outcome by run and source, and the place of each source."""
    said: dict[str, dict[str, Outcome]] = defaultdict(dict)
    places: dict[str, str | None] = {}
    for run_id, outcome, place in labels_in_log(store):
        said[run_id][outcome.source] = outcome
        places[outcome.source] = place or places.get(outcome.source)
    return said, places


def _compare(scope: Scope, said: Mapping[str, Mapping[str, Outcome]], report: LabelReport) -> None:
    """List the runs on which sources disagree, and count those without a known outcome."""
    for run_id in scope.runs:
        known = {
            source: outcome.outcome
            for source, outcome in said.get(run_id, {}).items()
            if outcome.outcome != "unknown"
        }
        if len(set(known.values())) > 1:
            report.conflicts.append((run_id, dict(sorted(known.items()))))
        report.unlabelled += not known and run_id not in scope.hidden
