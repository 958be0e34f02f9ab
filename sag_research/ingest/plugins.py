"""Formats of other packages, found by the entry point group ``sag_research.formats``.

A package offers a format in its ``pyproject.toml``::

    [project.entry-points."sag_research.formats"]
    my-agent = "my_package.formats:MyAgent"

Plug-ins are looked for when an ingest starts, never at import. One that is broken costs itself:
it is left out, or its file is, and a note says so.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, TypeAlias

from sag_research._text import clip, repair, said
from sag_research.errors import Caught, FormatError, UsageError
from sag_research.ingest._format import Format, Reading
from sag_research.ingest._source import Source
from sag_research.ingest.formats import FORMATS
from sag_research.model import Trajectory

__all__ = ["FORCE", "GROUP", "Formats", "available", "discover"]

GROUP: Final = "sag_research.formats"
"""Name of the entry point group."""
FORCE: Final = "!"
"""Behind the name of a format: files are taken for it whatever they look like."""

_NAME: Final = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_MESSAGE: Final = 200


def discover(known: Sequence[Format], notes: list[str]) -> tuple[Format, ...]:
    """Return the formats known and those of installed plug-ins.

    Parameters
    ----------
    known : sequence of Format
        They come first, so they win where a plug-in is as sure of a file; no plug-in may have
        the name of one of them.
    notes : list of str
        Receives what is wrong with plug-ins, now and while they are used.

    Returns
    -------
    tuple of Format
        The plug-ins are ordered by the names of their entry points.

    Examples
    --------
    >>> discover((), [])
    ()
    """
    found = list(known)
    names = {one.name for one in known}
    for point in _points():
        format_ = _load(point, notes)
        if format_ is not None and format_.name in names:
            notes.append(f"{_about(point)} left out: there is a format {format_.name!r} already")
        elif format_ is not None:
            names.add(format_.name)
            found.append(format_)
    return tuple(found)


_Find: TypeAlias = Callable[..., Iterable[metadata.EntryPoint]]


def _points() -> tuple[metadata.EntryPoint, ...]:
    """Return the entry points of installed plug-ins, by name."""
    return _points_of(metadata.entry_points, tuple((path, _changed(path)) for path in sys.path))


@lru_cache(maxsize=1)
def _points_of(find: _Find, path: tuple[tuple[str, int], ...]) -> tuple[metadata.EntryPoint, ...]:
    """Look through all that is installed: once, until something is installed or removed."""
    return tuple(sorted(find(group=GROUP), key=lambda point: (point.name, point.value)))


def _changed(path: str) -> int:
    """Return when a folder of installed packages was changed last; 0 if it is none."""
    try:
        return Path(path).stat().st_mtime_ns
    except (OSError, ValueError):
        return 0


class Formats(NamedTuple):
    """The formats that an ingest tries, and what is wrong with plug-ins among them."""

    tried: tuple[Format, ...]
    told: list[str]
    """Grows while they are used; whoever passes it on empties it."""
    others: tuple[Format, ...] = ()
    """If one was named: those that may be surer of a file than it is."""

    def tell(self) -> list[str]:
        """Return what was not told yet."""
        said = [*self.told]
        self.told.clear()
        return said


def available(name: str | None = None) -> Formats:
    """Return the formats to try: all there are, plug-ins included, or the one of a name.

    Parameters
    ----------
    name : str, optional
        As in ``--format``; with an exclamation mark, no other format may object.

    Raises
    ------
    UsageError
        If there is no such format.
    """
    told: list[str] = []
    found = discover(FORMATS, told)
    if name is None:
        return Formats(found, told)
    chosen = tuple(one for one in found if one.name == name.removesuffix(FORCE))
    if not chosen:
        known = ", ".join(one.name for one in found)
        raise UsageError(f"no format is called {name!r}", fix=f"choose one of {known}")
    others = () if name.endswith(FORCE) else tuple(one for one in found if one not in chosen)
    return Formats(chosen, told, others)


class _Caught(Caught):
    """Keeps an exit as well: a format that was made of a script may end with one."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        if isinstance(error, SystemExit):
            self.error = RuntimeError("it called sys.exit")
            return True
        return super().__exit__(kind, error, traceback)


def _load(point: metadata.EntryPoint, notes: list[str]) -> Format | None:
    """Load a plug-in; None if that fails or gives no format."""
    loaded: Any = None
    with _Caught() as caught:
        loaded = point.load()
        loaded = loaded() if isinstance(loaded, type) else loaded
        if fault := _fault(loaded):
            notes.append(f"{_about(point)} left out: {fault}")
            return None
        return _Guarded(loaded, loaded.name, _about(point), notes)
    notes.append(f"{_about(point)} left out: {said(caught.error)}")
    return None


def _fault(loaded: Any) -> str:
    """Say what keeps a loaded object from being a format; empty if nothing does."""
    name = getattr(loaded, "name", None)
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        return f"its name {clip(repair(repr(name)), 60)} is not in kebab-case"
    missing = [one for one in ("sniff", "read") if not callable(getattr(loaded, one, None))]
    return f"it has no {' and no '.join(missing)}" if missing else ""


def _about(point: metadata.EntryPoint) -> str:
    package = point.dist.name if point.dist is not None else "an unknown package"
    return f"plug-in {repair(point.name)!r} of {package}"


class _Guarded:
    """A format of others: it may raise anything, and costs its own files alone."""

    def __init__(self, format_: Any, name: str, about: str, notes: list[str]) -> None:
        self.name = name
        self._format, self._about, self._notes = format_, about, notes
        self._failed = False

    def __repr__(self) -> str:
        return f"<format {self.name!r}, {self._about}>"

    def sniff(self, head: bytes, path: Path) -> float:
        """Return the plug-in's claim; none if it fails, which is noted once."""
        with _Caught() as caught:
            claim = float(self._format.sniff(head, path))
            return min(max(claim, 0.0), 1.0) if claim == claim else 0.0
        if not self._failed:
            self._failed = True
            self._notes.append(f"{self._about} failed to recognise a file: {said(caught.error)}")
        return 0.0

    def read(self, source: Source) -> Reading:
        """Read a source; whatever the plug-in raises refuses the source."""
        with _Caught() as caught:
            reading = self._format.read(source)
            if isinstance(reading, Reading):
                runs = self._runs(iter(reading))
                return Reading(reading.version, runs, reading.notes, reading.refused)
            raise TypeError(f"read gave {type(reading).__name__}, no Reading")
        raise self._refusal(caught.error)

    def _runs(self, runs: Iterator[Any]) -> Iterator[Trajectory]:
        while True:
            run: Any = None
            with _Caught() as caught:
                run = next(runs, None)
                if run is None:
                    return
                if not isinstance(run, Trajectory):
                    raise TypeError(f"it yielded {type(run).__name__}, no Trajectory")
            if caught.error is not None:
                raise self._refusal(caught.error)
            yield run

    def _refusal(self, error: Exception | None) -> FormatError:
        if isinstance(error, FormatError):
            return error
        return FormatError(f"{self._about} failed", why=said(error))
