"""Replies that a session file copied from an earlier one beside it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from sag_research.errors import FormatError
from sag_research.ingest._json import Other, decode
from sag_research.ingest._source import Source
from sag_research.ingest.formats import _shared as shared

__all__ = ["Reply", "copied_replies"]

Reply: TypeAlias = tuple[str | None, str | None]

_SUFFIX: Final = ".jsonl"
_HEAD: Final = 128 * 2**10
"""The first reply of a session is looked for within so many bytes."""
_MOST: Final = 10_000
"""Files of a folder that are looked at."""


class _Message(msgspec.Struct):
    id: Any = None


class _Entry(msgspec.Struct):
    type: Any = None
    timestamp: Any = None
    request: Any = msgspec.field(default=None, name="requestId")
    message: _Message | Other = None


class _Told(NamedTuple):
    """What a file holds."""

    replies: frozenset[Reply]
    last: str
    """When its last line was written."""


_DECODER: Final = msgspec.json.Decoder(_Entry)


def copied_replies(path: Path) -> frozenset[Reply]:
    """Return the replies of a file that stand in another one of its folder, which ended before.

    A resumed or forked session begins with the whole history of the one before, often under its
    own session. Only files that begin with the same reply are read. A file that has no reply of
    its own is no continuation, and has none of them copied.

    Parameters
    ----------
    path : Path

    Returns
    -------
    frozenset of (str or None, str or None)
        Ids of message and request.
    """
    folder = path.absolute().parent
    try:
        names = sorted(one.name for one in folder.iterdir() if one.name.endswith(_SUFFIX))
        alike = _alike(folder, tuple(names[:_MOST])).get(path.name, ())
        files = [(one, _told_of(folder / one)) for one in alike]
    except OSError:
        return frozenset()
    own = next((told for one, told in files if one == path.name), None)
    if own is None:
        return frozenset()
    before = [told.replies for one, told in files if (told.last, one) < (own.last, path.name)]
    found = own.replies.intersection(frozenset[Reply]().union(*before))
    return found if found != own.replies else frozenset()


@lru_cache(maxsize=4)
def _alike(folder: Path, names: tuple[str, ...]) -> dict[str, list[str]]:
    """Name, for each file that begins with the same reply as another one, all of these files."""
    groups: dict[Reply, list[str]] = {}
    for name in names:
        first = _first_reply(folder / name)
        if first is not None:
            groups.setdefault(first, []).append(name)
    return {name: group for group in groups.values() if len(group) > 1 for name in group}


def _first_reply(path: Path) -> Reply | None:
    try:
        if not path.is_file():  # a pipe would never end
            return None
        with path.open("rb") as file:
            head = file.read(_HEAD)
    except OSError:
        return None
    return next((reply for reply, _ in _entries(head.split(b"\n")) if reply is not None), None)


def _told_of(path: Path) -> _Told:
    about = path.stat()
    return _read(path, about.st_size, about.st_mtime_ns)


@lru_cache(maxsize=64)
def _read(path: Path, size: int, changed: int) -> _Told:
    """Read a file, which is read again when its size or time differs."""
    replies, last = set[Reply](), ""
    try:
        for reply, at in _entries(Source(path).lines()):
            last = max(last, at)
            if reply is not None:
                replies.add(reply)
    except FormatError:
        return _Told(frozenset(), "")
    return _Told(frozenset(replies), last)


def _entries(lines: Iterable[bytes]) -> Iterator[tuple[Reply | None, str]]:
    for line in lines:
        if line[:1] != b"{":
            continue
        try:
            entry = decode(line, _DECODER)
        except FormatError:
            continue
        message = entry.message
        found = message.id if isinstance(message, _Message) else None
        reply = (shared.word(found), shared.word(entry.request))
        at = shared.word(entry.timestamp) or ""
        yield (reply if entry.type == "assistant" and reply[0] else None), at
