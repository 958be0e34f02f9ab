"""The worlds by name; each is imported when it is opened."""

from __future__ import annotations

from importlib import import_module
from typing import Final

from sag_research.errors import MissingDataError
from sag_research.lab._assignment import Play

__all__ = ["open_world", "world_names"]

_WORLDS: Final = {
    "export-job": ("sag_research.lab.export_job", "ExportJobPlay"),
    "crates": ("sag_research.lab.crates", "CratesPlay"),
}


def world_names() -> tuple[str, ...]:
    """Names of the worlds that can be played.

    Examples
    --------
    >>> "export-job" in world_names()
    True
    """
    return tuple(_WORLDS)


def open_world(name: str) -> Play:
    """Open a world to be played; close it at the end.

    Raises
    ------
    MissingDataError
        If there is none of this name.
    """
    if name not in _WORLDS:
        raise MissingDataError(f"no world {name!r}", fix=f"choose of {', '.join(_WORLDS)}")
    module, maker = _WORLDS[name]
    world: Play = getattr(import_module(module), maker)()
    return world
