"""Read past what only a terminal understands, without losing the place in the original text."""

from __future__ import annotations

import re
from typing import Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["ESCAPE", "has_codes", "uncolour"]

ESCAPE: Final = "\x1b"
_CODES: Final = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])")
_BARE: Final = re.compile(r"\r(?!\n)")


def has_codes(text: str) -> bool:
    r"""Tell whether a text holds terminal codes, backspaces, or lines that were written over.

    Examples
    --------
    >>> has_codes("a\r\nb"), has_codes("10%\r20%"), has_codes("ab\x08c"), has_codes("\x1b[1ma")
    (False, True, True, True)
    """
    if ESCAPE in text or "\x08" in text:
        return True
    return "\r" in text and _BARE.search(text) is not None


def uncolour(text: str) -> tuple[str, NDArray[np.int64]]:
    r"""Take terminal codes out of a text, and what backspaces and carriage returns undid.

    Returns
    -------
    plain : str
    places : int64 array of len(plain) + 1
        Place in ``text`` of each code point of ``plain``, and of the end.

    Notes
    -----
    A line that is written over keeps only what was written last. A terminal would show the end
    of a longer older line behind it; that is what nobody meant to be read.

    Examples
    --------
    >>> plain, places = uncolour("\x1b[1ma.py\x1b[0m")
    >>> plain, places.tolist()
    ('a.py', [4, 5, 6, 7, 12])
    >>> uncolour("10%\r100%\nab\x08c\r\n")[0]
    '100%\nac\r\n'
    """
    keep = np.ones(len(text) + 1, dtype=bool)
    for found in _CODES.finditer(text):
        keep[found.start() : found.end()] = False
    if "\x08" in text:
        _take_back(text, keep)
    if "\r" in text:
        _write_over(text, keep)
    places = np.flatnonzero(keep)
    if len(places) == len(text) + 1:
        return text, places
    points = np.array(list(text), dtype="U1")
    return "".join(points[places[:-1]].tolist()), places


def _write_over(text: str, keep: NDArray[np.bool_]) -> None:
    """Drop of each line what stands before its last carriage return that is written behind."""
    start = 0
    for line in text.split("\n"):
        over = line.rstrip("\r").rfind("\r") + 1
        keep[start : start + over] = False
        start += len(line) + 1


def _take_back(text: str, keep: NDArray[np.bool_]) -> None:
    """Drop each backspace with the character of its line that it took back."""
    kept: list[int] = []
    for found in _PIECE.finditer(text):
        piece, start = found[0], found.start()
        if piece == "\x08":
            keep[start] = False
            if kept:
                keep[kept.pop()] = False
        elif piece in "\n\r":
            kept.clear()
        elif len(piece) == 1:
            kept += [start] if keep[start] else []
        else:
            kept += (np.flatnonzero(keep[start : found.end()]) + start).tolist()


_PIECE: Final = re.compile(r"[\n\r\x08]|[^\n\r\x08]+")
