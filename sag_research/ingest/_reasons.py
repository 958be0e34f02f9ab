"""Why a file is not ingested, and what could be done, in words."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from sag_research._text import clip, repair
from sag_research.errors import FormatError
from sag_research.ingest._facts import SourceRead
from sag_research.ingest._json import first_fault, loads, looks_like_json, outline
from sag_research.ingest._labels import labels_in
from sag_research.ingest._report import IngestReport
from sag_research.ingest._source import Source
from sag_research.ingest.formats import FORMATS
from sag_research.ingest.formats._parquet import columns_of, is_parquet

__all__ = [
    "KNOWN",
    "NO_TRAJECTORY",
    "REPORT",
    "TOO_DEEP",
    "has_suffix",
    "hint_at_formats",
    "hint_at_labels",
    "other_format",
    "reason_of",
    "refusals",
    "unclaimed",
]

_SUFFIX: Final = re.compile(
    r".*\.(?:traj|traj\.json|jsonl|eval)(?:\.(?:gz|zst|zstd))?", re.IGNORECASE | re.DOTALL
)
_ENDS: Final = re.compile(r"(?:\.(?:md|json|gz|zst|zstd))+$")
_TAKES_LABELS: Final = "aider"
"""The format that reads the labels in a JSON of the same name itself."""
_REASONS: Final = 3
"""Refused records that the reason of a source names; the notes name all."""
_REASON: Final = 300
_CHECKED: Final = 64 * 2**20
"""JSON that nothing claims is checked up to this size for being JSON at all."""
_ZIP: Final = b"PK\x03\x04"

KNOWN: Final = ", ".join(one.name for one in FORMATS)
TOO_DEEP: Final = "nested too deeply"
REPORT: Final = "a label report, no trajectory"
_OTHER: Final = f"JSON that no format claims (known: {KNOWN})"
_PREDICTIONS: Final = "predictions, no trajectory"
NO_TRAJECTORY: Final = (REPORT, _OTHER, _PREDICTIONS)
"""What is sound, and meant to be something else than a trajectory."""


def has_suffix(path: Path) -> bool:
    """Tell whether a file is called as trajectories are."""
    return _SUFFIX.fullmatch(path.name) is not None


def reason_of(error: Exception) -> str:
    """Say what an error says, in clean text."""
    if isinstance(error, OSError):
        return (error.strerror or str(error)).lower()
    return repair(str(error))


def refusals(refused: list[tuple[str, str]], runs: int) -> str:
    """Say how many records of a source could not be read, and why the first of them; or nothing.

    Examples
    --------
    >>> refusals([("line 2", "empty"), ("line 7", "no object")], 5)
    '2 of 7 records refused: line 2: empty; line 7: no object'
    """
    if not refused:
        return ""
    shown = "; ".join(f"{where}: {clip(why, _REASON)}" for where, why in refused[:_REASONS])
    more = f"; and {len(refused) - _REASONS} more" if len(refused) > _REASONS else ""
    return f"{len(refused)} of {len(refused) + runs} records refused: {shown}{more}"


def unclaimed(source: Source) -> str:
    """Say why no format takes a file."""
    if source.head.startswith(_ZIP):
        return "a zip archive under another name: end its name in .zip"
    if is_parquet(source.head):
        names = ", ".join(columns_of(source.head, source.path) or ())
        return f"a Parquet table that no format claims (columns: {clip(names, _REASON)})"
    if not looks_like_json(source.head):
        return "not JSON"
    if source.size > _CHECKED:
        return _OTHER
    try:
        value = loads(source.bytes())
    except FormatError as error:
        if not outline(source.head).more:
            return str(error)
        if why := first_fault(source.lines()):
            return why
    else:
        if labels_in(value, source.name, source.path) is not None:
            return REPORT
    return _PREDICTIONS if b'"model_patch"' in source.head else _OTHER


def other_format(asked: str, other: str) -> str:
    """Say that a file is of another format than the one that was asked for."""
    return (
        f"it looks like {other}, not {asked}: leave the format out, or force it by"
        f" an exclamation mark behind its name ({asked}!)"
    )


def hint_at_labels(report: IngestReport, sources: Iterable[SourceRead] = ()) -> None:
    """Say that there are labels beside the trajectories, and which of them a reader took."""
    chats = {_ENDS.sub("", one.path) for one in sources if one.format == _TAKES_LABELS}
    found = [_ENDS.sub("", path) in chats for path, reason in report.ignored if reason == REPORT]
    taken = sum(found)
    if taken:
        what = "label was" if taken == 1 else "labels were"
        report.notes.append(f"{taken} {what} taken from the JSON beside the chats")
    if reports := len(found) - taken:
        what = "file looks like a label report" if reports == 1 else "files look like label reports"
        report.notes.append(f"{reports} {what}: pass --labels")


def hint_at_formats(
    report: IngestReport, paths: Iterable[str | os.PathLike[str]], held: set[Path]
) -> None:
    """Say of a folder without a trajectory what would have been one."""
    given = [Path(path) for path in paths]
    empty = [path for path in given if path.is_dir() and not _is_above(path.absolute(), held)]
    if empty and held:  # the way to a trajectory may lead over links
        held = {folder.resolve() for folder in held}
        empty = [path for path in empty if not _is_above(path.resolve(), held)]
    report.notes += [
        f"{repair(str(path))}: no trajectory found; formats known: {KNOWN}; see ws.add for your own"
        for path in empty
    ]


def _is_above(folder: Path, held: set[Path]) -> bool:
    return any(one == folder or folder in one.parents for one in held)
