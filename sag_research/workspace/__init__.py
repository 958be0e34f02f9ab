"""A study: one folder on disk, and the front door to all rooms."""

from __future__ import annotations

from os import PathLike, environ

from sag_research.lab import bundled
from sag_research.workspace._analysing import Analysing
from sag_research.workspace._exploring import Exploring
from sag_research.workspace._filling import Filling
from sag_research.workspace._memory import Remembering
from sag_research.workspace._provenance import Provenance, provenance
from sag_research.workspace._redacting import Redacting

__all__ = ["Provenance", "Workspace", "bundled", "default_path", "open", "provenance"]


def default_path() -> str:
    """Return the workspace that is meant where none is named."""
    return environ.get("SAG_WORKSPACE", "sag-workspace")


def open(path: str | PathLike[str] | None = None, *, create: bool = True) -> Workspace:
    """Open a workspace.

    Parameters
    ----------
    path : path-like, optional
        A folder, made where it does not exist; ``":memory:"`` for one that leaves nothing behind;
        default ``$SAG_WORKSPACE``, else ``sag-workspace`` in the current folder.
    create : bool
        Whether a workspace may be made where there is none.

    Raises
    ------
    StoreError
        If there is no workspace and ``create`` is false, or its log cannot be opened.
    """
    return Workspace(default_path() if path is None else path, create=create)


class Workspace(Filling, Analysing, Exploring, Remembering, Redacting):
    """Runs, labels and everything computed from them; made by :func:`sag_research.open`.

    A workspace may be used by several notebooks, agents and command lines at once. It is a
    context manager, and safe to forget to close.

    Attributes
    ----------
    path : pathlib.Path or None
        The folder, ``None`` in memory.
    store : SQLiteEventStore
        The log, which is the truth.
    warehouse : Warehouse
        The DuckDB side, which can be thrown away.
    """
