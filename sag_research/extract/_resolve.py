"""Where matches overlap, decide which of them are mentions."""

from __future__ import annotations

from itertools import compress

import numpy as np
from numpy.typing import NDArray

__all__ = ["resolve"]

Ints = NDArray[np.int64]


def resolve(
    text: Ints, start: Ints, end: Ints, priority: Ints,
    mask: NDArray[np.bool_], immune: NDArray[np.bool_],
) -> Ints:  # fmt: skip
    """Return the indices of the matches that stand, in order of text and place.

    A mask removes every match that touches it except immune ones, and itself. Of matches that
    overlap, the higher priority wins, then the longer, then the earlier, then the first given.

    Parameters
    ----------
    text, start, end, priority : int64 arrays of equal length
    mask, immune : bool arrays of the same length

    Examples
    --------
    >>> column = lambda *values: np.array(values)
    >>> no = column(False, False)
    >>> resolve(column(0, 0), column(0, 2), column(5, 9), column(1, 2), no, no).tolist()
    [1]
    """
    if not len(text):
        return np.empty(0, np.int64)
    order = np.lexsort((end, start, text))
    width = int(end.max()) + 1
    begin, finish = (text * width + start)[order], (text * width + end)[order]
    reach = np.maximum.accumulate(finish)
    alone = np.ones(len(order), bool)
    overlaps = begin[1:] < reach[:-1]
    alone[1:] &= ~overlaps
    alone[:-1] &= ~overlaps
    keep = alone & ~mask[order]
    crowded = np.flatnonzero(~alone)
    if len(crowded):
        borders = np.flatnonzero(np.concatenate(([False], ~overlaps))[crowded])
        for cluster in np.split(crowded, borders[borders > 0]):
            chosen = order[cluster]
            winners = _winners(
                begin[cluster].tolist(), finish[cluster].tolist(), priority[chosen].tolist(),
                mask[chosen].tolist(), immune[chosen].tolist(), chosen.tolist(),
            )  # fmt: skip
            keep[cluster[winners]] = True
    return order[keep]


def _winners(
    begin: list[int], end: list[int], priority: list[int],
    mask: list[bool], immune: list[bool], given: list[int],
) -> list[int]:  # fmt: skip
    """Decide one cluster of overlapping matches.

    Occupied places are marked in a byte array: linear in the total length of the matches, which
    is at most the length of the text times the number of rules.
    """
    base = begin[0]
    masked, taken = bytearray(max(end) - base), bytearray(max(end) - base)
    for i in compress(range(len(begin)), mask):
        masked[begin[i] - base : end[i] - base] = b"\1" * (end[i] - begin[i])
    ranked = sorted(
        range(len(begin)), key=lambda i: (-priority[i], begin[i] - end[i], begin[i], given[i])
    )
    winners = []
    for i in ranked:
        low, high = begin[i] - base, end[i] - base
        hidden = not immune[i] and masked.find(1, low, high) >= 0
        if not mask[i] and not hidden and taken.find(1, low, high) < 0:
            taken[low:high] = b"\1" * (high - low)
            winners.append(i)
    return sorted(winners)
