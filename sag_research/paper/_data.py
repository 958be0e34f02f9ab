"""The data of a study: what it consists of, to the byte, and how it comes into a workspace."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from sag_research.errors import MissingDataError
from sag_research.lab import bundled
from sag_research.paper._spec import Source, StudyError
from sag_research.workspace import Workspace
from sag_research.workspace import open as open_workspace

__all__ = ["Found", "changed_files", "check_digest", "file_digest", "find", "read_into"]

_LABELS = "labels/"
_STRAY = frozenset({".DS_Store", "Thumbs.db", "desktop.ini"})
"""Files that systems leave in folders; they are no data."""
_RUNS = "runs and outcomes"
"""What stands in the place of a file where the source is a workspace."""
_SIDE = "labels.csv"
"""A label file that is taken where none is named."""


class Found(NamedTuple):
    """A data source as it lies on the disk."""

    place: Path
    labels: Path | None
    files: dict[str, str]
    """SHA-256 of each file, by its path below the source."""
    bytes: int

    @property
    def digest(self) -> str:
        """One fingerprint of all files and their names."""
        lines = "".join(f"{digest}  {name}\n" for name, digest in self.files.items())
        return f"sha256:{sha256(lines.encode('utf-8', 'surrogateescape')).hexdigest()}"


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file, in hex."""
    with path.open("rb") as file:
        state = sha256()
        while block := file.read(1 << 20):
            state.update(block)
    return state.hexdigest()


def find(name: str, source: Source, folder: Path) -> Found:
    """Look up a source and fingerprint every file of it.

    Raises
    ------
    MissingDataError
        If there is nothing at its place.
    """
    place = (
        bundled(source.bundled) if source.bundled else folder / (source.path or source.workspace)
    )
    labels = folder / source.labels if source.labels else None
    named = {place: source.path or source.workspace} | ({labels: source.labels} if labels else {})
    for path, said in named.items():
        if not path.exists():
            raise MissingDataError(
                f"data {name!r} is missing",
                why=f"there is no {said}",
                fix="put it there, or change study.toml",
            )
    if labels is None and place.is_dir() and (place / _SIDE).is_file():
        labels = place / _SIDE
    if source.workspace:
        return _of_workspace(place)
    paths = _files(place)
    if not paths:
        raise MissingDataError(f"data {name!r} is empty", why=f"there is no file in {named[place]}")
    if labels is not None and place not in labels.parents:
        paths[_LABELS + labels.name] = labels
    files = {key: file_digest(path) for key, path in sorted(paths.items())}
    return Found(place, labels, files, sum(path.stat().st_size for path in paths.values()))


def _files(place: Path) -> dict[str, Path]:
    if place.is_file():
        return {place.name: place}
    found = (path for path in place.rglob("*") if path.is_file() and path.name not in _STRAY)
    return {path.relative_to(place).as_posix(): path for path in found}


def _of_workspace(place: Path) -> Found:
    """Fingerprint what a workspace says: its file may change without that, even when it is read."""
    with open_workspace(place, create=False) as ws:
        digest = ws.digest("hidden OR NOT hidden")
    return Found(place, None, {_RUNS: digest}, (place / "log.sqlite").stat().st_size)


def changed_files(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    """Say which files came, went or changed."""
    words = [f"{name} is missing" for name in old if name not in new]
    words += [f"{name} is new" for name in new if name not in old]
    return words + [f"{name} changed" for name in old if name in new and old[name] != new[name]]


def check_digest(name: str, source: Source, found: Found, before: Mapping[str, str]) -> None:
    """Refuse data that is not what the study names.

    Raises
    ------
    StudyError
        With the files that differ from those of the last build, where there was one.
    """
    if not source.digest or source.digest == found.digest:
        return
    differ = changed_files(before, found.files) if before else []
    more = f"; and {len(differ) - 3} more" if len(differ) > 3 else ""
    raise StudyError(
        f"data {name!r} is not what study.toml names",
        why="; ".join(differ[:3]) + more if differ else f"its digest is {found.digest}",
        fix="bring the data back, or accept it with `sag paper build --accept-data`",
    )


def read_into(ws: Workspace, source: Source, found: Found) -> list[str]:
    """Read a source into a workspace; returns the ids of the runs that it brought."""
    before = {run for (run,) in ws.sql("SELECT run_id FROM runs").rows()}
    if source.workspace:
        ws.merge(found.place)
    else:
        ws.ingest(found.place, labels=found.labels, format=source.format or None, progress=False)
    rows = ws.sql("SELECT run_id FROM runs ORDER BY run_id").rows()
    return [run for (run,) in rows if run not in before]


def in_memory() -> Workspace:
    """Open a workspace that leaves nothing behind."""
    return open_workspace(":memory:")
