"""Labels that name tasks alone: applied only where the runs are of one experiment.

A task says nothing of whose run was judged. Where the runs of the tasks that a label file names,
and those among which it lies, are of several models, agents, data sets or folders, or several
attempts, even a task with one run may be another experiment's. Then the report's own model, or the
place of the label file, must tell.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

from sag_research._text import clip
from sag_research.ingest._labels_model import Label, Labels
from sag_research.ingest._labels_scope import Scope, bare_name, same_model

__all__ = ["Candidates"]

_SHOWN: Final = 3
_FIX: Final = (
    "say which run is meant in a column run_id, path or model, or ingest the runs of each"
    " experiment with its own labels"
)


class Candidates:
    """Finds the runs that labels may be about.

    Parameters
    ----------
    labels : Labels
    scope : Scope
    """

    def __init__(self, labels: Labels, scope: Scope) -> None:
        self._scope = scope
        self._models: defaultdict[str, set[str]] = defaultdict(set)
        self._hints: dict[tuple[str, tuple[str, ...]], str] = {}
        self._told: dict[
            tuple[frozenset[str], frozenset[str], bool], tuple[tuple[str, ...], bool]
        ] = {}
        self._pools: dict[tuple[str, str | None], tuple[frozenset[str], bool]] = {}
        self._group = _groups(labels)
        self._involved: defaultdict[str, dict[str, None]] = defaultdict(dict)
        for label in labels:
            if label.model is not None:
                self._models[label.key].add(label.model.strip().casefold())
            if label.kind in ("task_id", "trial"):
                group = self._group[label.outcome.source]
                self._involved[group].update(dict.fromkeys(scope.of_task(label)))

    @property
    def hints(self) -> list[str]:
        """Why labels that name tasks alone were not given to runs, and what would help."""
        return [
            f"{source}: it names tasks alone, and their runs may be of several experiments"
            f" ({'; '.join(told)}); {_FIX}"
            for (_, told), source in self._hints.items()
        ]

    def of(self, label: Label) -> tuple[list[str], bool]:
        """Return the runs that a label may be about, and whether one of them is meant for sure."""
        scope = self._scope
        if label.kind == "path":
            found = scope.of_path(label)
        elif label.kind == "run_id":
            found = scope.of_id(label.key)
        elif label.folder is None or not (found := scope.in_folder(label.folder)):
            return self._of_task(label)
        if label.task_id is not None and label.kind != "trial":
            found = [run_id for run_id in found if scope.runs[run_id].task_id == label.task_id]
        found = scope.chosen(self._of_model(scope.shown(found), label))
        return found, len(found) == 1

    def _of_model(self, found: list[str], label: Label) -> list[str]:
        if label.model is None:
            return found
        fitting = [one for one in found if same_model(self._scope.runs[one].model, label.model)]
        if fitting or label.exact:
            return fitting
        return found if len(self._models[label.key]) == 1 else []

    def _of_task(self, label: Label) -> tuple[list[str], bool]:
        found = self._of_model(self._scope.of_task(label), label)
        if len(found) == 1 and label.exact and label.model is not None:
            return found, True
        pool, by_model = self._pool(label)
        if by_model:
            found = [run_id for run_id in found if run_id in pool]
        home, is_inside = self._scope.home(label.file)
        told, fits = self._seen_from(pool, home, counts=is_inside and not by_model)
        if not found or not told:
            return found, len(found) == 1
        if fits:
            found = [run_id for run_id in found if run_id in home]
            return found, len(found) == 1
        source = label.outcome.source
        self._hints.setdefault((self._group[source], told), source)
        return found, False

    def _pool(self, label: Label) -> tuple[frozenset[str], bool]:
        """Runs of all tasks that a label's file names, and whether its model tells among them.

        If any of them has the model, those of another one are not meant.
        """
        group = self._group[label.outcome.source]
        model = None if label.model is None else label.model.strip().casefold()
        if (group, model) not in self._pools:
            every, runs = self._involved[group], self._scope.runs
            if by_model := any(model and same_model(runs[one].model, model) for one in every):
                fits = [
                    one
                    for one in every
                    if runs[one].model is None or same_model(runs[one].model, model or "")
                ]
            self._pools[group, model] = frozenset(fits if by_model else every), by_model
        return self._pools[group, model]

    def _seen_from(
        self, pool: frozenset[str], home: frozenset[str], *, counts: bool
    ) -> tuple[tuple[str, ...], bool]:
        """Say in what runs differ, and whether those of the label file's folder do not.

        Runs of the folder are among those that may be meant if the file lies with them.
        """
        if (pool, home, counts) not in self._told:
            own = pool & home
            told = tuple(self._told_apart(pool | home if counts else pool))
            fits = bool(told and own) and not any(self._told_apart(own))
            self._told[pool, home, counts] = told, fits
        return self._told[pool, home, counts]

    def _told_apart(self, pool: Collection[str]) -> Iterator[str]:
        runs = [self._scope.runs[run_id] for run_id in pool]
        for what in ("model", "agent", "dataset"):
            known = {bare_name(name) for run in runs if (name := getattr(run, what))}
            if len(known) > 1:
                yield f"{what}s {_some(known)}"
        roots = {self._scope.roots_of(run_id) for run_id in pool}
        if roots and not frozenset.intersection(*roots):
            yield f"folders {_some({_short(root) for several in roots for root in several})}"
        tasks = Counter(run.task_id for run in runs)
        if several := sorted(str(task) for task, n in tasks.items() if n > 1):
            yield f"several runs of {_some(several)}"


def _groups(labels: Labels) -> dict[str, str]:
    """By source: the files whose labels tell together. Reports of one task each are one group."""
    keys: defaultdict[str, set[str]] = defaultdict(set)
    for label in labels:
        keys[label.outcome.source].add(label.key)
    return {source: source if len(found) > 1 else "" for source, found in keys.items()}


def _some(names: Collection[str]) -> str:
    shown = ", ".join(clip(name, 60) for name in sorted(names)[:_SHOWN])
    return shown + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")


def _short(root: str) -> str:
    return "/".join(Path(root).parts[-2:]) or "(none: added by hand)"
