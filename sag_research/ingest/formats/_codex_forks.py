"""What a Codex rollout copied from the session that it left, and who began a sub-agent."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Final
from uuid import UUID

from sag_research.errors import FormatError
from sag_research.ingest._source import Source
from sag_research.ingest.formats import _shared as shared
from sag_research.ingest.formats._cli_turns import seconds_of
from sag_research.ingest.formats._codex_lines import (
    Line,
    Rollout,
    forked_from,
    minted,
    parent_of,
    read_rollouts,
)

__all__ = ["file_of", "first_own"]

_SUFFIXES: Final = (".jsonl", ".jsonl.gz", ".jsonl.zst")
_BURST: Final = 1.0
"""Seconds: lines that are copied follow each other faster, and a model does not answer so fast."""
_MOST: Final = 10_000
"""Files of a folder that are looked at."""


def first_own(rollout: Rollout, path: Path) -> int:
    """Return the number of the first line that is the session's own; the others are copies.

    A fork begins with the lines of its parent, with the time of the fork. Turns have ids that
    tell when they began: the first one behind the fork is its own. Where turns have none, the
    lines are compared with the parent's file, if that is here; else the lines that were written
    at once are the copies.

    Parameters
    ----------
    rollout : Rollout
    path : Path
        Its file.
    """
    if not rollout.ancestors and not forked_from(rollout.meta):
        return 0
    began = minted(rollout.name) or seconds_of(rollout.meta.get("timestamp"))
    turns = [minted(shared.word(line.body.get("turn_id"))) for line in rollout.lines]
    if began is not None and any(turns):
        own = (number for number, at in enumerate(turns) if at is not None and at >= began)
        return next(own, len(turns))
    found = _compared(rollout, path)
    return _behind_burst(rollout.lines) if found is None else found


def _behind_burst(lines: list[Line]) -> int:
    before = next((line.at for line in lines if line.at is not None), None)
    for number, line in enumerate(lines):
        if line.at is None or before is None:
            continue
        if line.at - before > _BURST:
            return number
        before = line.at
    return len(lines) if before is not None else 0


def _compared(rollout: Rollout, path: Path) -> int | None:
    forked = forked_from(rollout.meta)
    for name in filter(None, (forked, parent_of(rollout.meta), *rollout.ancestors)):
        place = file_of(name, path)
        said = None if place is None else _said(place, *_changed(place))
        if said:
            return _as_in(rollout.lines, said)
    return None


def _as_in(lines: list[Line], said: tuple[str, ...]) -> int:
    """Return how many lines stand in the parent's file, in the same order."""
    places: dict[str, list[int]] = {}
    for place in reversed(range(len(said))):
        places.setdefault(said[place], []).append(place)
    last = -1
    for number, line in enumerate(lines):
        found = places.get(_key(line), [])
        while found and found[-1] <= last:
            found.pop()
        if not found:
            return number
        last = found.pop()
    return len(lines)


def _key(line: Line) -> str:
    return f"{line.kind} {json.dumps(line.body, sort_keys=True)}"


def _changed(path: Path) -> tuple[int, int]:
    about = path.stat()
    return about.st_size, about.st_mtime_ns


@lru_cache(maxsize=4)
def _said(path: Path, size: int, changed: int) -> tuple[str, ...]:
    """Read a file, which is read again when its size or time differs."""
    try:
        _, found = read_rollouts(Source(path), [])
        return tuple(_key(line) for one in found[:1] for line in one.lines)
    except (FormatError, OSError, RecursionError):
        return ()


def file_of(name: str, path: Path) -> Path | None:
    """Find the file of a session, by its id: in the folder, or in those of the days around it.

    Parameters
    ----------
    name : str
        The session.
    path : Path
        The file of another one.
    """
    try:
        UUID(name)
    except ValueError:  # what else stands there is no name to look for
        return None
    for folder in _folders(name, path.absolute().parent):
        try:
            for one in sorted(folder.iterdir())[:_MOST]:
                is_it = one.name.endswith(tuple(f"{name}{suffix}" for suffix in _SUFFIXES))
                if is_it and one.is_file() and one.name != path.name:
                    return one
        except OSError:
            continue
    return None


def _folders(name: str, folder: Path) -> Iterator[Path]:
    yield folder
    at, parts = minted(name), folder.parts[-3:]
    if at is None or len(parts) < 3 or not all(part.isdecimal() for part in parts):
        return
    root = folder.parents[2]
    for days in (0, -1, 1):  # folders are named after the local day
        day = datetime.fromtimestamp(at, UTC) + timedelta(days=days)
        yield root / f"{day:%Y}" / f"{day:%m}" / f"{day:%d}"
