"""Workspaces put together: by the content of their runs, with every conflict listed."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from sag_research.errors import UsageError
from sag_research.ingest import CopyReport, hide_copies
from sag_research.log import MergedRuns, SQLiteEventStore, merge_log
from sag_research.model import WORKSPACE_RUN

__all__ = ["Disagreement", "MergeReport", "merge"]

_LOG: Final = "log.sqlite"
_BESIDE: Final = ("aliases.toml", "models")
"""What a workspace holds beside its log, and a merge leaves where it is."""


class Disagreement(NamedTuple):
    """A source that says two things of one run, each in another log; the later one counts."""

    run: str
    source: str
    here: str
    there: str


class MergeReport(msgspec.Struct, kw_only=True):
    """What a merge did.

    Attributes
    ----------
    logs : dict of str to MergedRuns
        By path. The runs of a log are copied, extended, known, in conflict or refused.
    disagreements : list of Disagreement
        Outcomes; both stand in the view ``outcomes``.
    copies : CopyReport
        Runs of different logs that are the same run once more.
    notes : list of str
    """

    logs: dict[str, MergedRuns] = {}
    disagreements: list[Disagreement] = []
    copies: CopyReport = msgspec.field(default_factory=CopyReport)
    notes: list[str] = []

    def __repr__(self) -> str:
        count = {name: self.count(name) for name in ("copied", "extended", "known")}
        told = ", ".join(f"{n} {name}" for name, n in count.items())
        bad = self.count("conflicts") + self.count("refused")
        return f"MergeReport({len(self.logs)} logs: {told}, {bad} left out)"

    def count(self, name: str) -> int:
        """Return how many runs of all logs stand in one of the lists of :class:`MergedRuns`."""
        return sum(len(getattr(one, name)) for one in self.logs.values())

    @property
    def is_whole(self) -> bool:
        """Nothing is left out, and nothing is in doubt."""
        return not (self.count("conflicts") or self.count("refused") or self.disagreements)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain data, as ``sag merge --json`` prints it."""
        found: dict[str, Any] = msgspec.to_builtins(
            {"logs": self.logs, "notes": self.notes, "hidden": len(self.copies.hidden)}
        )
        found["disagreements"] = [one._asdict() for one in self.disagreements]
        return found


def merge(store: SQLiteEventStore, others: Iterable[str | os.PathLike[str]]) -> MergeReport:
    """Take over the runs of other workspaces, and what was said of them.

    Parameters
    ----------
    store : SQLiteEventStore
    others : iterable of path-like
        Folders of workspaces, or their logs. They are only read, also where they are in use.

    Returns
    -------
    MergeReport

    Raises
    ------
    UsageError
        If one of them holds no log, or is the log that is written to; nothing is written then.
    StoreError
        If one of them cannot be read; those before it are merged.

    Notes
    -----
    Runs are the same if their id and all their events are. One that has gone on in the other log
    is extended; one of the same id and with another history is a conflict, and stays out, with
    the forks made from it and what was said of it. Every chain is verified before it is read.
    Labels, annotations, merged entities and hidden runs come along, each once. A body that was
    redacted in one of the logs is empty afterwards.
    """
    found = [_log_of(Path(one)) for one in others]
    report = MergeReport()
    for path in found:
        with SQLiteEventStore(path, read_only=True) as other:
            told = _outcomes(store), _outcomes(other)
            merged = merge_log(store, other)
            report.logs[str(path.parent if path.name == _LOG else path)] = merged
            report.disagreements += _disagreements(merged, *told)
        report.notes += [
            f"{path.parent / name} stays where it is: merge it by hand"
            for name in _BESIDE
            if path.name == _LOG and (path.parent / name).exists()
        ]
    report.copies = hide_copies(store)
    report.notes += report.copies.notes()
    return report


def _log_of(path: Path) -> Path:
    log = path / _LOG if path.is_dir() else path
    if not log.is_file():
        raise UsageError(f"{str(path)!r} holds no log", fix="name the folder of a workspace")
    return log


_Key = tuple[str, str]
_Said = tuple[str, str | None]


class _Told(NamedTuple):
    """What sources say of runs in a log: each source's last word, and every word."""

    last: dict[_Key, _Said]
    ever: set[tuple[_Key, _Said]]


def _outcomes(store: SQLiteEventStore) -> _Told:
    told = _Told({}, set())
    if store.has_run(WORKSPACE_RUN):
        for event in store.read(WORKSPACE_RUN, types=("outcome.recorded",)):
            about = event.payload
            key = str(about.get("run")), str(about.get("source"))
            said = str(about.get("outcome")), about.get("detail")
            told.last[key] = said
            told.ever.add((key, said))
    return told


def _disagreements(merged: MergedRuns, here: _Told, there: _Told) -> list[Disagreement]:
    """Find last words that differ, and are not merely an older word of the other log."""
    left = {run for run, _ in (*merged.conflicts, *merged.refused)}
    found = []
    for key in sorted(here.last.keys() & there.last.keys()):
        mine, theirs = here.last[key], there.last[key]
        is_older = (key, mine) in there.ever or (key, theirs) in here.ever
        if mine != theirs and not is_older and key[0] not in left:
            found.append(Disagreement(*key, mine[0], theirs[0]))
    return found
