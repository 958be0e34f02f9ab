"""Read past terminal codes without losing the place in the original text."""

from __future__ import annotations

import re
from typing import Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["ESCAPE", "uncolour"]

ESCAPE: Final = "\x1b"
_CODES: Final = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])")


def uncolour(text: str) -> tuple[str, NDArray[np.int64]]:
    r"""Take terminal codes out of a text.

    Returns
    -------
    plain : str
    places : int64 array of len(plain) + 1
        Place in ``text`` of each code point of ``plain``, and of the end.

    Examples
    --------
    >>> plain, places = uncolour("\x1b[1ma.py\x1b[0m")
    >>> plain, places.tolist()
    ('a.py', [4, 5, 6, 7, 12])
    """
    keep = np.ones(len(text) + 1, dtype=bool)
    for found in _CODES.finditer(text):
        keep[found.start() : found.end()] = False
    return _CODES.sub("", text), np.flatnonzero(keep)
