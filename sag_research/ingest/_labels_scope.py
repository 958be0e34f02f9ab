"""The runs that labels may be about, by what labels name."""

from __future__ import annotations

import os
import posixpath
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cached_property, lru_cache
from itertools import takewhile
from pathlib import Path, PurePath

from sag_research.ingest._facts import SourceRead
from sag_research.ingest._labels_model import Label
from sag_research.model import Run

__all__ = ["Scope", "bare_name", "same_model"]


class Scope:
    """The runs that labels may be about.

    Parameters
    ----------
    runs : iterable of Run
    sources : collection of SourceRead
        What the log says of sources.
    hidden : collection of str
        Runs that do not count.
    """

    def __init__(
        self, runs: Iterable[Run], sources: Collection[SourceRead], hidden: Collection[str]
    ) -> None:
        self.runs = {run.run_id: run for run in runs}
        self.hidden = hidden
        self.by_task: defaultdict[str, list[str]] = defaultdict(list)
        self._by_path: dict[str, list[str]] = {}
        self._homes: dict[Path, tuple[frozenset[str], frozenset[frozenset[str]]] | None] = {}
        self._ids = sorted(self.runs)
        self._sources = sources
        self._by_source: defaultdict[str, list[str]] = defaultdict(list)
        for run in self.runs.values():
            if run.source_id is not None:
                self._by_source[run.source_id].append(run.run_id)
            # a report knows no forks, and is about the agent that called the others
            if run.task_id is not None and run.parent_id is None and not _is_called(run):
                self.by_task[run.task_id].append(run.run_id)

    def add_paths(self, paths: Mapping[str, Collection[str]] | None = None) -> None:
        """Learn which runs stand under which path; from the sources by default."""
        found: defaultdict[str, dict[str, None]] = defaultdict(dict)
        if paths is None:
            for source in self._sources:
                ids = self._by_source.get(source.source_id or "", [])
                found[_normal(source.path)].update(dict.fromkeys(ids))
        else:
            for path, given in paths.items():
                ids = [run_id for run_id in given if run_id in self.runs]
                found[_normal(path)].update(dict.fromkeys(ids))
        self._by_path = {path: list(ids) for path, ids in found.items()}

    # ---- what labels name

    def of_path(self, label: Label) -> list[str]:
        """Runs of a file: by its path in the ingested folder, in full, or beside the label file."""
        path = label.key
        if found := self._by_path.get(_normal(path)):
            return found
        beside = Path(label.file).parent if label.file is not None else Path()
        place = _real(os.path.normpath(beside / path))
        return [run_id for at, ids in self._at(place) if at == place for run_id in ids]

    def of_id(self, key: str) -> list[str]:
        """The run of an id, or all runs whose ids begin with it."""
        if key in self.runs:
            return [key]
        start = bisect_left(self._ids, key) if key else len(self._ids)
        behind = (self._ids[place] for place in range(start, len(self._ids)))
        return list(takewhile(lambda run_id: run_id.startswith(key), behind))

    def of_task(self, label: Label) -> list[str]:
        """Runs of a task; of a trial, those of its name or else of its task."""
        names = [label.key] if label.kind == "task_id" else [label.key, label.task_id or ""]
        found: list[str] = next(filter(None, (self.by_task.get(name) for name in names)), [])
        return self.chosen(self.shown(found))

    def in_folder(self, folder: str) -> list[str]:
        """Runs of all files in a folder and below it; first agents alone."""
        found = dict.fromkeys(run_id for _, ids in self._at(_inside(folder)) for run_id in ids)
        runs = (self.runs[run_id] for run_id in found)
        return [run.run_id for run in runs if run.parent_id is None and not _is_called(run)]

    # ---- of several runs, those that are meant

    def shown(self, found: list[str]) -> list[str]:
        """Leave out hidden runs, unless no other is there."""
        return [run_id for run_id in found if run_id not in self.hidden] or found

    def chosen(self, found: list[str]) -> list[str]:
        """Of the attempts in one file, keep the chosen one, whose work was judged."""
        if len(found) < 2 or len({self.runs[run_id].source_id for run_id in found}) > 1:
            return found
        chosen = [run_id for run_id in found if self.runs[run_id].config.get("chosen") is True]
        return chosen if len(chosen) == 1 else found

    # ---- where files are

    def _at(self, start: str) -> Iterator[tuple[str, list[str]]]:
        """Yield the files whose places begin with a text, and their runs."""
        places = self._places
        behind = (places[at] for at in range(bisect_left(places, (start,)), len(places)))
        return takewhile(lambda one: one[0].startswith(start), behind)

    @cached_property
    def _places(self) -> list[tuple[str, list[str]]]:
        """Where the files of runs stand on disk, and the runs, in order."""
        last = {
            _real(str(Path(source.root, source.path))): source.source_id or ""
            for source in self._sources
        }
        known = ((place, self._by_source.get(source_id)) for place, source_id in last.items())
        return sorted((place, ids) for place, ids in known if ids)

    @cached_property
    def roots(self) -> dict[str, frozenset[str]]:
        """By source: the folders that were ingested as one and hold it.

        A folder with runs of one task alone is one of many in the folder above.
        """
        found: defaultdict[str, set[str]] = defaultdict(set)
        tasks: defaultdict[str, set[str | None]] = defaultdict(set)
        for source in self._sources:
            root = _folder(source.root)
            for run_id in self._by_source.get(source.source_id or "", ()):
                found[source.source_id or ""].add(root)
                tasks[root].add(self.runs[run_id].task_id)
        above = {root: str(Path(root).parent) if len(tasks[root]) == 1 else root for root in tasks}
        return {source: frozenset(above[root] for root in roots) for source, roots in found.items()}

    def roots_of(self, run_id: str) -> frozenset[str]:
        """Folders that were ingested as one and hold a run; one without a file is nowhere."""
        return self.roots.get(self.runs[run_id].source_id or "", frozenset({""}))

    def home(self, file: str | None) -> tuple[frozenset[str], bool]:
        """Runs that a label file belongs to: those of the next folder above it that holds any.

        The file must be in a folder that was ingested, which is told, or in the one above.
        """
        for folder in Path(file).parents if file is not None else ():
            if next(self._at(_inside(str(folder))), None) and (found := self._of_folder(folder)):
                runs, roots = found
                if not all(any(map(folder.is_relative_to, _above(one))) for one in roots):
                    break
                return runs, all(
                    any(map(folder.is_relative_to, filter(None, one))) for one in roots
                )
        return frozenset(), False

    def _of_folder(self, folder: Path) -> tuple[frozenset[str], frozenset[frozenset[str]]] | None:
        """Runs in a folder that count, and the folders that were ingested; None without any."""
        if folder not in self._homes:
            found = [run for run in self.in_folder(str(folder)) if run not in self.hidden]
            roots = frozenset(map(self.roots_of, found))
            self._homes[folder] = (frozenset(found), roots) if found else None
        return self._homes[folder]


def same_model(one: str | None, other: str) -> bool:
    """Tell whether two names mean one model; a provider before the name means nothing.

    Examples
    --------
    >>> same_model("openai/GPT-5", "gpt-5"), same_model(None, "gpt-5")
    (True, False)
    """
    return one is not None and bare_name(one) == bare_name(other)


def bare_name(name: str) -> str:
    """Return a name without what stands before a slash, and without capitals."""
    return PurePath(name.strip().casefold()).name


def _above(roots: frozenset[str]) -> Iterator[Path]:
    """Yield the folders in which a label file may be that is about the runs of others."""
    return (Path(root).parent for root in roots if root)


def _inside(folder: str) -> str:
    return folder.rstrip("/") + "/"


def _is_called(run: Run) -> bool:
    return "called_by" in run.config


def _normal(path: str) -> str:
    return posixpath.normpath(path) if path else ""


def _real(path: str) -> str:
    """Follow the links on the way to a file, but not the file itself."""
    folder, name = os.path.split(path)
    return f"{_folder(folder).rstrip('/')}/{name}"


@lru_cache(maxsize=100_000)
def _folder(path: str) -> str:
    return os.path.realpath(path)
