"""One source, read by several: each takes every n-th block of its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from sag_research.errors import FormatError
from sag_research.ingest._json import outline
from sag_research.ingest._source import HEAD_BYTES, Source
from sag_research.ingest.formats._parquet import MAGIC, is_parquet

__all__ = ["BY_ROW", "Share", "can_be_shared"]

BY_ROW: Final = frozenset(
    {"native", "nebius-openhands", "nebius-swe-agent", "openai-chat", "swe-gym", "swe-smith"}
)
"""Formats whose rows are runs that know nothing of each other."""

_BLOCK_BYTES: Final = 2**20
"""Bytes of lines that make a block."""
_LOOKED_IN: Final = 4 * 2**20
"""Bytes in which the first line must end."""


class Share:
    """The part of a source's rows that one of several readers takes.

    Whoever reads the source sees all rows, those of others as blank lines, so that numbers and
    places are those of the whole.

    Parameters
    ----------
    index, of : int
        Which of the readers this is, and how many there are.
    """

    def __init__(self, index: int, of: int) -> None:
        self._index, self._of = index, of
        self.ended: Callable[[], None] = lambda: None
        """Is called behind each block that is taken, once its rows were read."""

    def takes(self, block: int) -> bool:
        """Tell whether a block, counted from 0, is of this share."""
        return block % self._of == self._index

    def lines(self, lines: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the lines of this share, and blank ones for the others."""
        block = size = 0
        mine = self.takes(0)
        for line in lines:
            yield line if mine else b""
            size += len(line) + 1
            if size >= _BLOCK_BYTES:
                if mine:
                    self.ended()
                block, size = block + 1, 0
                mine = self.takes(block)


def can_be_shared(source: Source) -> bool:
    """Tell whether a source is a table, or lines that hold an object each, by its beginning."""
    if source.members:
        return False
    try:
        if is_parquet(source.beginning(len(MAGIC))):
            return True
        first, _, rest = source.beginning(_LOOKED_IN).partition(b"\n")
    except (FormatError, OSError):
        return False  # said where it is read
    if not (rest.lstrip().startswith(b"{") and first.rstrip().endswith(b"}")):
        return False
    seen = outline(first[:HEAD_BYTES])
    whole = seen.complete and not seen.more
    return seen.root == "object" and (whole or len(first) > HEAD_BYTES)
