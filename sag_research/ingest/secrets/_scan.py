"""Looking for secrets in files of any format, and in the logs of workspaces."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import msgspec

from sag_research._text import escape, repair
from sag_research.errors import FormatError, SagError
from sag_research.ingest._archives import opened
from sag_research.ingest._source import Source
from sag_research.ingest._walk import LOG_NAME, Found, find
from sag_research.ingest.formats import recognise
from sag_research.ingest.plugins import Formats, available
from sag_research.ingest.secrets._find import find_secrets
from sag_research.ingest.secrets._log import Spotted, scan_log
from sag_research.ingest.secrets._redactor import Redactor
from sag_research.log import SQLiteEventStore
from sag_research.model import Trajectory

__all__ = ["ScanReport", "scan"]

_CHUNK: Final = 2**20
_OVERLAP: Final = 4_096
"""Characters that are looked at again, for a key may stand where a part ends."""
_CONTAINERS: Final = (b"PK\x03\x04", b"PAR1", b"SQLite format 3\x00")


class ScanReport(msgspec.Struct, frozen=True):
    """Where secrets stand; the secrets are not in it.

    Attributes
    ----------
    found : list of Spotted
    files : int
        Files and logs that were looked at.
    unread : list of (str, str)
        Files that could not be looked at, or not as the format that they are, with the reason.
    detectors : str
        What looked for secrets.
    """

    found: list[Spotted]
    files: int
    unread: list[tuple[str, str]]
    detectors: str

    @property
    def counts(self) -> dict[str, int]:
        """Number of secrets by kind."""
        return dict(Counter(one.kind for one in self.found).most_common())

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain data, as ``sag scan --json`` prints it."""
        return {
            "findings": [one._asdict() for one in self.found],
            "counts": self.counts,
            "files": self.files,
            "unread": [{"file": file, "reason": reason} for file, reason in self.unread],
            "detectors": self.detectors,
        }

    def __repr__(self) -> str:
        kinds = ", ".join(f"{count} {kind}" for kind, count in self.counts.items())
        unread = f"; {len(self.unread)} not read" if self.unread else ""
        return f"ScanReport({self.files} files, {len(self.found)} secrets{unread}; {kinds or '-'})"

    def _repr_html_(self) -> str:
        return f"<div>{escape(repr(self))}</div>"


def scan(
    paths: Iterable[str | os.PathLike[str]], *, format: str | None = None, second: bool = True
) -> ScanReport:
    """Look for secrets in files, folders and workspaces; writes nothing.

    Parameters
    ----------
    paths : iterable of path-like
        Folders are walked as for an ingest: hidden files are left out. A folder that is a
        workspace stands for its log.
    format : str, optional
        Take files for this format; by default each file's content decides.
    second : bool
        As for :class:`Redactor`.

    Returns
    -------
    ScanReport

    Raises
    ------
    UsageError
        If a path does not exist, or the format is unknown.

    Notes
    -----
    A trajectory is read step by step. What stands in its file besides, where a reader leaves it
    out, is looked through as text, and so are files of no known format.
    """
    given = [Path(path) for path in paths]
    logs = [path for path in given if _is_log(path)]
    work = _Scan(available(format), second)
    with ExitStack() as held:
        files = find([path for path in given if path not in logs])
        for one in opened(files, held):
            work.take(one)
    for path in logs:
        work.take_log(path if path.is_file() else path / LOG_NAME)
    return ScanReport(work.found, work.files, work.unread, work.redactor.detectors)


def _is_log(path: Path) -> bool:
    return (path / LOG_NAME).is_file() or (path.name == LOG_NAME and path.is_file())


class _Scan:
    """One scan: what was found so far."""

    def __init__(self, formats: Formats, second: bool) -> None:
        self.redactor = Redactor(second=second)
        self.found: list[Spotted] = []
        self.unread: list[tuple[str, str]] = []
        self.files = 0
        self._formats, self._second = formats, second

    def take_log(self, path: Path) -> None:
        self.files += 1
        with SQLiteEventStore(path, read_only=True) as store:
            self.found += scan_log(store, second=self._second).found

    def take(self, one: Found) -> None:
        """Look at one file."""
        self.files += 1
        name = self._named(one)
        if one.problem:
            self.unread.append((name, one.problem))
            return
        source = Source(one.path, name, one.root, one.members)
        before = len(self.found)
        try:
            self._take_runs(source)
            tokens = {spot.token for spot in self.found[before:]}
            if not source.head.startswith(_CONTAINERS):
                self.found += self._beside(source, tokens)
        except (FormatError, OSError) as error:
            self.unread.append((name, repair(str(error))))

    def _named(self, one: Found) -> str:
        """Return a file's name as it can be shown; what stands in it is found."""
        self.redactor.places.clear()
        name = self.redactor.name(repair(one.name), "file name")
        self.found += [Spotted(name, "", None, None, *place) for place in self.redactor.places]
        return name

    def _take_runs(self, source: Source) -> None:
        format_ = recognise(source, self._formats.tried)
        if format_ is None:
            return
        try:
            for trajectory in format_.read(source):
                self.found += self._spots(source.name, trajectory)
        except (SagError, RecursionError) as error:
            reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
            self.unread.append((source.name, f"not as {format_.name}: {repair(reason)}"))

    def _spots(self, file: str, trajectory: Trajectory) -> Iterator[Spotted]:
        redactor, run = self.redactor, trajectory.record or trajectory.task_id
        redactor.places.clear()
        redactor.trajectory(msgspec.structs.replace(trajectory, steps=()))
        places = list(redactor.places)
        run = redactor.name(run)
        for place in places:
            yield Spotted(file, run, None, None, *place)
        for number, step in enumerate(trajectory.steps):
            redactor.places.clear()
            redactor.step(step)
            for place in redactor.places:
                yield Spotted(file, run, None, number, *place)

    def _beside(self, source: Source, known: set[str]) -> Iterator[Spotted]:
        """Yield what stands in a file's text and in none of its runs, each token once."""
        for text, line in _parts(source):
            for one in find_secrets(text, second=self._second):
                if one.token not in known:
                    known.add(one.token)
                    at = line + text.count("\n", 0, one.start)
                    yield Spotted(source.name, "", None, None, f"line {at}", one.kind, one.token)


def _parts(source: Source) -> Iterator[tuple[str, int]]:
    """Yield a file's text in parts that overlap, each with the number of its first line."""
    rest, line = "", 1
    for chunk in source.chunks():
        rest += bytes(chunk).decode("utf-8", "replace")
        while len(rest) >= _CHUNK:
            part = rest[:_CHUNK]
            yield part, line
            line += part.count("\n", 0, _CHUNK - _OVERLAP)
            rest = rest[_CHUNK - _OVERLAP :]
    yield rest, line
