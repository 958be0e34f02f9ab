"""Recording labels: each finds its run, or is listed."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from itertools import takewhile
from pathlib import Path

from sag_research.ingest._events import outcome_event
from sag_research.ingest._facts import (
    SourceRead,
    outcomes_in_log,
    sources_in_log,
    visibility_in_log,
)
from sag_research.ingest._labels import Label, Labels
from sag_research.ingest._report import Contradiction, LabelReport
from sag_research.log import SQLiteEventStore
from sag_research.model import Outcome, Run

__all__ = ["apply_labels"]


def apply_labels(
    store: SQLiteEventStore,
    labels: Labels,
    *,
    runs: Collection[str] | None = None,
    paths: Mapping[str, Collection[str]] | None = None,
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
    """
    wanted = None if runs is None else frozenset(runs)
    found = (run for run in store.runs() if wanted is None or run.run_id in wanted)
    scope = _Scope(run for run in found if run.kind == "agent")
    scope.add_paths(_paths_in_log(store, scope) if paths is None else paths)
    scope.hidden = {run_id for run_id, one in visibility_in_log(store).items() if one.hidden}
    if any(label.folder is not None for label in labels):
        scope.add_folders(sources_in_log(store))
    report = LabelReport(labels=len(labels), notes=list(labels.notes), refused=list(labels.refused))
    targets = _targets(labels, scope, report)
    with store.transaction():
        said = _outcomes_in_log(store)
        _record(store, targets, said, report)
    _compare(scope, said, report)
    return report


class _Scope:
    """The runs that labels may be about, by what labels name."""

    def __init__(self, runs: Iterable[Run]) -> None:
        self.runs = {run.run_id: run for run in runs}
        self.by_task: defaultdict[str, list[str]] = defaultdict(list)
        self.by_path: dict[str, list[str]] = {}
        self.hidden: set[str] = set()
        self._by_place: list[tuple[str, list[str]]] = []
        self._ids = sorted(self.runs)
        for run in self.runs.values():
            if run.task_id is not None and run.parent_id is None:  # a report knows no forks
                self.by_task[run.task_id].append(run.run_id)

    def add_paths(self, paths: Mapping[str, Collection[str]]) -> None:
        self.by_path = {
            path: [run_id for run_id in run_ids if run_id in self.runs]
            for path, run_ids in paths.items()
        }

    def add_folders(self, sources: Iterable[tuple[int, SourceRead]]) -> None:
        """Learn where the files of runs stand on disk."""
        by_source: defaultdict[str, list[str]] = defaultdict(list)
        for run in self.runs.values():
            called = "called_by" in run.config  # a trial's result is about its first agent
            if run.source_id is not None and run.parent_id is None and not called:
                by_source[run.source_id].append(run.run_id)
        places = {
            str(Path(source.root, source.path).resolve()): by_source.get(source.source_id or "")
            for _, source in sources
        }
        self._by_place = sorted((place, runs) for place, runs in places.items() if runs)

    def _in_folder(self, folder: str) -> list[str]:
        """Runs of all files in a folder and below it."""
        start = bisect_left(self._by_place, (folder.rstrip("/") + "/",))
        behind = (self._by_place[place] for place in range(start, len(self._by_place)))
        inside = takewhile(lambda one: one[0].startswith(folder.rstrip("/") + "/"), behind)
        return list(dict.fromkeys(run_id for _, runs in inside for run_id in runs))

    def _of_trial(self, label: Label) -> list[str]:
        if label.folder is not None and (found := self._in_folder(label.folder)):
            return found
        names = filter(None, (label.key, label.task_id))
        return next(filter(None, (self.by_task.get(name) for name in names)), [])

    def candidates(self, label: Label, models: set[str]) -> list[str]:
        """Runs that a label may be about; ``models`` are those that labels of its key name."""
        if label.kind == "path":
            found = self.by_path.get(label.key, [])
        elif label.kind == "run_id":
            found = self._by_id(label.key)
        elif label.kind == "trial":
            return self._chosen(self._of_model(self._shown(self._of_trial(label)), label, models))
        else:
            found = self.by_task.get(label.key, [])
        if label.task_id is not None:
            found = [run_id for run_id in found if self.runs[run_id].task_id == label.task_id]
        return self._chosen(self._of_model(self._shown(found), label, models))

    def _shown(self, found: list[str]) -> list[str]:
        return [run_id for run_id in found if run_id not in self.hidden] or found

    def _by_id(self, key: str) -> list[str]:
        if key in self.runs:
            return [key]
        start = bisect_left(self._ids, key) if key else len(self._ids)
        behind = (self._ids[place] for place in range(start, len(self._ids)))
        return list(takewhile(lambda run_id: run_id.startswith(key), behind))

    def _of_model(self, found: list[str], label: Label, models: set[str]) -> list[str]:
        if label.model is None:
            return found
        fitting = [run_id for run_id in found if _same(self.runs[run_id].model, label.model)]
        if fitting or label.exact:
            return fitting
        return found if len(models) == 1 else []

    def _chosen(self, found: list[str]) -> list[str]:
        """Of the attempts in one file, keep the chosen one, whose work was judged."""
        if len(found) < 2 or len({self.runs[run_id].source_id for run_id in found}) > 1:
            return found
        chosen = [run_id for run_id in found if self.runs[run_id].config.get("chosen") is True]
        return chosen if len(chosen) == 1 else found


def _same(one: str | None, other: str) -> bool:
    return one is not None and one.strip().casefold() == other.strip().casefold()


def _paths_in_log(store: SQLiteEventStore, scope: _Scope) -> dict[str, list[str]]:
    by_source: defaultdict[str, list[str]] = defaultdict(list)
    for run in scope.runs.values():
        if run.source_id is not None:
            by_source[run.source_id].append(run.run_id)
    paths: dict[str, list[str]] = {}
    for _, source in sources_in_log(store):
        known = paths.setdefault(source.path, [])
        runs = by_source.get(source.source_id or "", [])
        known.extend(run_id for run_id in runs if run_id not in known)
    return paths


_Targets = dict[tuple[str, str], list[Label]]
"""Labels by the run they are about and their source."""


def _targets(labels: Labels, scope: _Scope, report: LabelReport) -> _Targets:
    """Find the run of each label; several labels may be about one run and source."""
    models: defaultdict[str, set[str]] = defaultdict(set)
    for label in labels:
        if label.model is not None:
            models[label.key].add(label.model.strip().casefold())
    targets: defaultdict[tuple[str, str], list[Label]] = defaultdict(list)
    for label in labels:
        source = label.outcome.source
        report.count(source, "labels")
        found = scope.candidates(label, models[label.key])
        if not found:
            report.unmatched += 1
            report.unmatched_keys.append(label.key)
            report.count(source, "unmatched")
        elif len(found) > 1:
            report.ambiguous.append((label.key, found))
            report.count(source, "ambiguous")
        else:
            targets[found[0], source].append(label)
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
            events.append(outcome_event(run_id, outcome))
    report.outcomes = dict(sorted(counts.items()))
    store.append_many(events)


def _contradiction(run_id: str, source: str, labels: list[Label]) -> Contradiction:
    places: dict[str, list[str]] = {}
    for label in labels:
        places.setdefault(label.outcome.outcome, []).append(label.place or label.key)
    return Contradiction(run_id, labels[0].key, source, dict(sorted(places.items())))


def _outcomes_in_log(store: SQLiteEventStore) -> dict[str, dict[str, Outcome]]:
    """Read the last outcome by run and source."""
    said: dict[str, dict[str, Outcome]] = defaultdict(dict)
    for run_id, outcome in outcomes_in_log(store):
        said[run_id][outcome.source] = outcome
    return said


def _compare(scope: _Scope, said: Mapping[str, Mapping[str, Outcome]], report: LabelReport) -> None:
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
