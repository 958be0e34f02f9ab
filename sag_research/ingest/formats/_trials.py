"""What the folders of trials have in common, in Harbor and in Terminal-Bench."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from sag_research.errors import FormatError
from sag_research.ingest._json import loads
from sag_research.ingest._source import Source
from sag_research.ingest.formats._openhands_turns import mapping

__all__ = ["evidence", "files_below", "object_in"]

_MOST: Final = 500
"""Files of a trial that are listed."""
_DEEP: Final = 4
_LARGEST: Final = 64 * 2**20


def object_in(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file beside a source; empty where none can be read."""
    try:
        if not path.is_file() or path.stat().st_size > _LARGEST:
            return {}
        return mapping(loads(Source(path).bytes()))
    except (FormatError, OSError):
        return {}


def files_below(folder: Path, depth: int = _DEEP) -> Iterator[Path]:
    """Yield the files in a folder and below it, in order; links are not followed."""
    try:
        entries = sorted(folder.iterdir())
        for path in entries:
            if path.is_symlink():
                continue
            if path.is_file():
                yield path
            elif depth and path.is_dir():
                yield from files_below(path, depth - 1)
    except OSError:
        return


def evidence(folder: Path, source: Path) -> list[dict[str, Any]]:
    """List what a trial left in its folder beside its result: names and sizes, not contents."""
    found: list[dict[str, Any]] = []
    for path in files_below(folder):
        if path != source and len(found) < _MOST:
            found.append({"path": path.relative_to(folder).as_posix(), "bytes": _size(path)})
    return found


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None
