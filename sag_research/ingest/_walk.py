"""Finding input files: sorted, hidden ones left out, links followed once."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from sag_research.errors import UsageError
from sag_research.ingest._members import RUNS, is_repeated, members_of, tables_at

__all__ = ["Found", "find", "walk_folder"]

LOG_NAME: Final = "log.sqlite"
_WAREHOUSE: Final = "warehouse"
_TABLE: Final = ".parquet"
_SPECIAL: Final = ("/proc", "/sys", "/dev")
"""Where files are made by the system: reading them may wait for ever, or change something."""
_SHARED: Final = "/dev/shm"  # noqa: S108
"""Ordinary files that are kept in memory."""


class Found(NamedTuple):
    """A file to look at, or a place that could not be looked at."""

    path: Path
    name: str
    """POSIX path relative to ``root``."""
    root: Path
    named: bool
    """The user gave this very file."""
    problem: str = ""
    """Why it cannot be read, if that is known already."""
    members: tuple[Path, ...] = ()
    """The files of a folder that together are one source, in order."""


def find(paths: Iterable[str | os.PathLike[str]], own: Path | None = None) -> Iterator[Found]:
    """Yield every file once, in a fixed order.

    Parameters
    ----------
    paths : iterable of path
        Files and folders.
    own : Path, optional
        The log that is written to: its files and folder are no input.

    Raises
    ------
    UsageError
        If a path does not exist or is another workspace; nothing is yielded then.

    Notes
    -----
    Names that begin with a dot are left out while a folder is walked, and so are workspaces.
    Links to folders are followed, each folder once, so a loop of links ends. Files that hold one
    event each, ``event-<number>-<id>.json`` or ``events/<number>.json``, are one source together,
    which has the name of their folder; ``steps.parquet`` and ``calls.parquet`` are one with the
    ``runs.parquet`` beside them. Pages in ``event_cache``, which repeat them, have a problem.
    What is no regular file, or is in ``/proc``, ``/sys`` or ``/dev`` behind its links, has
    a problem.
    """
    given = [Path(path) for path in paths]
    for path in given:
        if not path.exists():
            raise UsageError(
                f"no such file or folder: {str(path)!r}", fix="check the spelling of the path"
            )
        _refuse_workspace(path, own)
    return _find(given, None if own is None else own.absolute())


def walk_folder(folder: Path) -> Iterator[Found]:
    """Yield every file in a folder, in a fixed order; see :func:`find`."""
    return _walk(folder, folder, None, set())


def _refuse_workspace(path: Path, own: Path | None) -> None:
    """Refuse a folder that holds a log and its tables, unless it is the one written to."""
    log = path / LOG_NAME
    if not (log.is_file() and (path / _WAREHOUSE).is_dir()):
        return
    if own is None or not own.exists() or not log.samefile(own):
        raise UsageError(
            f"{str(path)!r} is a workspace, no folder of trajectories",
            why=f"{LOG_NAME} and {_WAREHOUSE} are in it",
            fix="open it with sag.open or -w, or name the folder of trajectories inside it",
        )


def _find(given: list[Path], own: Path | None) -> Iterator[Found]:
    seen: set[Path] = set()
    folders: set[tuple[int, int]] = set()
    for path in given:
        if path.is_dir():
            root = path.absolute()
            found: Iterable[Found] = _walk(root, root, own, folders)
        else:
            found = [_look(path, path.name, path.parent.absolute(), named=True, linked=True)]
        for one in _with_tables(found, given):
            key = Path(os.path.normpath(one.path.absolute()))
            if key not in seen:
                seen.add(key)
                yield one


def _with_tables(found: Iterable[Found], given: list[Path]) -> Iterator[Found]:
    """Put the tables of steps and calls to that of their runs, of which they are a part."""
    for one in found:
        tables = tables_at(one.path.parent) if one.path.suffix == _TABLE else ()
        if one.path not in tables or one.problem:
            yield one
        elif one.path.name == RUNS:
            yield one._replace(members=tables)
        elif one.named and one.path.with_name(RUNS) not in given:
            yield one


def _walk(
    folder: Path, root: Path, own: Path | None, folders: set[tuple[int, int]]
) -> Iterator[Found]:
    if _is_special(folder):
        yield Found(folder, _name(folder, root), root, False, _NO_FILE)
        return
    try:
        about = folder.stat()
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as error:
        yield Found(folder, _name(folder, root), root, False, _reason(error))
        return
    if (about.st_dev, about.st_ino) in folders:
        return
    folders.add((about.st_dev, about.st_ino))
    names = {entry.name for entry in entries}
    if LOG_NAME in names and folder != root:
        return
    members = members_of(folder, entries)
    own_names = {entry.name for entry in members}
    problem = _REPEATED if is_repeated(folder) else ""
    if members:
        paths = tuple(folder / entry.name for entry in members)
        name = folder.name if folder == root else _name(folder, root)
        yield Found(folder, name, root, False, members=paths)
    for entry in entries:
        if entry.name in own_names:
            continue
        path = folder / entry.name
        if entry.name.startswith(".") or _belongs_to(own, path):
            continue
        if _is_dir(entry):
            yield from _walk(path, root, own, folders)
        else:
            linked = entry.is_symlink()
            found = _look(path, _name(path, root), root, named=False, linked=linked)
            yield found._replace(problem=found.problem or problem)


def _is_dir(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that points at itself
        return False


def _belongs_to(own: Path | None, path: Path) -> bool:
    if own is None or path.parent != own.parent:
        return False
    return path.name.startswith(own.name) or path.name in (_WAREHOUSE, "models")


_REPEATED: Final = "a page of the events in the folder 'events' beside it"
_NO_FILE: Final = f"the system's own, no file of yours: in {', '.join(_SPECIAL)}"


def _look(path: Path, name: str, root: Path, *, named: bool, linked: bool) -> Found:
    """Look at a file; ``linked``: it may be elsewhere than its folder."""
    try:
        regular = stat.S_ISREG(path.stat().st_mode)
    except OSError as error:
        return Found(path, name, root, named, _reason(error))
    problem = "" if regular else "not a regular file"
    if linked and not problem and _is_special(path):
        problem = _NO_FILE
    return Found(path, name, root, named, problem)


def _is_special(path: Path) -> bool:
    real = os.path.realpath(path)
    return _is_in(real, _SPECIAL) and not _is_in(real, (_SHARED,))


def _is_in(real: str, folders: tuple[str, ...]) -> bool:
    return any(real == one or real.startswith(f"{one}/") for one in folders)


def _name(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix()


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
