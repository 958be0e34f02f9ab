"""JSON lines that begin with damaged ones: what the sound lines say."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Final

from sag_research.errors import FormatError
from sag_research.ingest._json import loads, outline
from sag_research.ingest._source import HEAD_BYTES, Source

__all__ = ["sound_lines"]

_SUFFIX: Final = re.compile(r"\.(?:jsonl|ndjson)(?:\.(?:gz|zst|zstd))?\Z", re.IGNORECASE)
_LOOKED_AT: Final = 200
"""Lines among which sound ones are looked for."""
_TAKEN: Final = 5
"""Sound lines that are enough to tell a format."""
_WHOLE: Final = re.compile(rb"\n[ \t\r\xef\xbb\xbf]*\{[^\n]*\}[ \t\r\f\v]*(?:\n|\Z)")
"""A line that may hold an object. In an object that is written over many lines there are few."""


def sound_lines(source: Source) -> bytes:
    """Return the first lines that hold an object each, where the first line of all is none.

    Empty where the source is no JSON lines: in a file that is not called so, most of the lines
    must be objects. So an example in a text is no record.
    """
    if source.members or not _begins_damaged(source.head):
        return b""
    named = _SUFFIX.search(source.path.name) is not None
    if not named and _WHOLE.search(source.head) is None:
        return b""
    lines = islice(filter(bytes.strip, source.lines() if named else _of_head(source)), _LOOKED_AT)
    next(lines, b"")
    sound, others = list[bytes](), 1
    for line in lines:
        if _is_object(line):
            sound.append(line)
            if named and len(sound) == _TAKEN:
                break
        else:
            others += 1
    return b"\n".join(sound[:_TAKEN]) if named or len(sound) > others else b""


def _begins_damaged(head: bytes) -> bool:
    """Tell whether the first line is no object; one that goes beyond the head may be one."""
    first, end, _ = head.lstrip().partition(b"\n")
    seen = outline(first)
    if seen.root == "object" and not end:
        return False
    return seen.root != "object" or not seen.complete or seen.more


def _of_head(source: Source) -> Iterator[bytes]:
    lines = source.head.split(b"\n")
    yield from lines[:-1] if len(source.head) >= HEAD_BYTES else lines


def _is_object(line: bytes) -> bool:
    if not line.lstrip(b" \t\r\xef\xbb\xbf").startswith(b"{"):
        return False
    try:
        return isinstance(loads(line), dict)
    except FormatError:
        return False
