"""Files that are one source together: a file for each event of a run, or a table for each kind."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from sag_research.errors import FormatError
from sag_research.ingest._json import outline
from sag_research.ingest._source import Source

__all__ = ["RUNS", "V0_MEMBER", "is_repeated", "members_of", "tables_at"]

_SDK: Final = re.compile(r"event-\d+-.+\.json(?:\.(?:gz|zst))?", re.DOTALL)
V0_MEMBER: Final = re.compile(r"(?P<number>\d{1,18})\.json(?:\.(?:gz|zst))?")
"""The name of an event of OpenHands V0, in a folder ``events``."""
_V0_FOLDER: Final = "events"
_V0_PAGES: Final = "event_cache"
_ASKED: Final = 8
"""Files that are looked at to tell whether numbers are events; the first may be damaged."""
_GLANCE: Final = 4 * 2**10
RUNS: Final = "runs.parquet"
"""The table that stands for those beside it."""
_TABLES: Final = (RUNS, "steps.parquet", "calls.parquet")
_ENVELOPE: Final = frozenset({"id", "timestamp", "source", "cause"})


def members_of(folder: Path, entries: Sequence[os.DirEntry[str]]) -> list[os.DirEntry[str]]:
    """Return the files in a folder that hold one event each, in the order of their names.

    Parameters
    ----------
    folder : Path
    entries : sequence of os.DirEntry
        What is in the folder.

    Returns
    -------
    list of os.DirEntry
        Numbers are in the order of numbers. Empty where every file is a source of its own.
    """
    found = [one for one in entries if _SDK.fullmatch(one.name) and _is_plain(one)]
    if found or folder.name != _V0_FOLDER:
        return found
    numbered = [
        (int(name["number"]), one.name, one)
        for one in entries
        if (name := V0_MEMBER.fullmatch(one.name)) and _is_plain(one)
    ]
    numbered.sort(key=lambda one: one[:2])
    if any(_is_event(folder / name) for _, name, _ in numbered[:_ASKED]):
        return [one for _, _, one in numbered]
    return []


def tables_at(folder: Path) -> tuple[Path, ...]:
    """Return the tables of runs, steps and calls in a folder; empty where one is missing."""
    paths = tuple(folder / name for name in _TABLES)
    try:
        return paths if all(path.is_file() for path in paths) else ()
    except OSError:
        return ()


def is_repeated(folder: Path) -> bool:
    """Tell whether the files of a folder repeat the events in the folder beside it."""
    if folder.name != _V0_PAGES:
        return False
    beside = folder.parent / _V0_FOLDER
    try:
        entries = list(os.scandir(beside))
    except OSError:
        return False
    return bool(members_of(beside, sorted(entries, key=lambda one: one.name)))


def _is_event(path: Path) -> bool:
    try:
        seen = outline(Source(path).head[:_GLANCE])
    except (FormatError, OSError):
        return False
    keys = seen.keys.keys()
    named = {"action", "args"} <= keys or {"observation", "content"} <= keys
    return seen.root == "object" and named and bool(_ENVELOPE & keys)


def _is_plain(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_file(follow_symlinks=False)
    except OSError:
        return False
