"""A case: the name of what is fuzzed, and the files it is given, as one text of bytes.

The first line is the name of the target. What follows is the content of one file, or several
files, each behind a mark and its name.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, NamedTuple

__all__ = ["Case", "lay_out", "pack", "unpack"]

_MARK: Final = b"\n\x1c"
_SAFE: Final = re.compile(r"[\w.@-]{1,80}", re.ASCII)


class Case(NamedTuple):
    """What one input says."""

    target: str
    files: tuple[tuple[str, bytes], ...]
    """Names and contents."""


def pack(case: Case) -> bytes:
    """Write a case.

    Examples
    --------
    >>> pack(Case("native", (("a.jsonl", b"{}"),)))
    b'native\\n\\x1ca.jsonl\\n{}'
    """
    parts = [_MARK + name.encode() + b"\n" + data for name, data in case.files]
    return case.target.encode() + b"".join(parts)


def unpack(data: bytes) -> Case:
    """Read a case; any bytes are one.

    Examples
    --------
    >>> unpack(b'native\\n\\x1ca.jsonl\\n{}')
    Case(target='native', files=(('a.jsonl', b'{}'),))
    >>> unpack(b'')
    Case(target='', files=(('x.json', b''),))
    """
    first, *parts = data.split(_MARK)
    files = []
    for part in parts:
        name, _, content = part.partition(b"\n")
        files.append((_safe(name), content))
    return Case(first.decode("ascii", "replace"), tuple(files) or (("x.json", b""),))


def lay_out(case: Case, folder: Path) -> list[Path]:
    """Write a case's files into a folder; of two of one name the first."""
    paths = []
    for name, data in case.files:
        path = folder / name
        if not path.exists() and not any(parent.is_file() for parent in path.parents):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            paths.append(path)
    return paths


def _safe(name: bytes) -> str:
    """Return a name below the folder, whatever the bytes are: nothing is written elsewhere."""
    parts = name.decode("ascii", "replace").split("/")
    kept = [part for part in parts if _SAFE.fullmatch(part) and part.strip(".")]
    return "/".join(kept[:4]) or "x.json"
