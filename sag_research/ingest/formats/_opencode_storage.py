"""opencode's folder of sessions: a file for each session, message and part."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import msgspec

from sag_research.errors import FormatError
from sag_research.ingest._json import decode
from sag_research.ingest._source import Source
from sag_research.ingest.formats import _shared as shared

__all__ = ["stored_messages"]

_ANY: Final = msgspec.json.Decoder()
_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,200}")
"""Ids that are names of files; others, which could lead elsewhere, are not looked for."""


def stored_messages(path: Path, session: Any, notes: list[str]) -> list[dict[str, Any]]:
    """Return the messages of a session, each with its parts, from the folders beside its file.

    Parameters
    ----------
    path : Path
        The session's file, ``storage/session/<project>/<session>.json``.
    session : object
        Its id.
    notes : list of str
        Takes the files that could not be read.
    """
    storage = path.absolute().parent.parent.parent
    faults: list[str] = []
    found = []
    for info in _objects(storage / "message", session, faults):
        parts = _objects(storage / "part", info.get("id"), faults)
        found.append({"info": info, "parts": parts})
    notes += shared.first_of(faults)
    return found


def _objects(folder: Path, name: Any, faults: list[str]) -> list[dict[str, Any]]:
    """Read the objects in a folder in the order of their names, which is that of time."""
    if not (isinstance(name, str) and _ID.fullmatch(name)):
        return []
    place = folder / name
    found = []
    for path in sorted(place.glob("*.json")) if place.is_dir() else []:
        try:
            value = decode(Source(path).bytes(), _ANY)
        except (FormatError, OSError) as error:
            faults.append(f"{path.name}: {error}")
            continue
        if isinstance(value, dict):
            found.append(value)
        else:
            faults.append(f"{path.name}: no object")
    return found
