"""Aligning two sequences: the longest common subsequence, in little memory."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from math import isqrt

__all__ = ["align"]

Pair = tuple[int | None, int | None]

_FREQUENT = 32


def align(a: Sequence[Hashable], b: Sequence[Hashable]) -> list[Pair]:
    """Align two sequences so that as many equal items as possible stand side by side.

    Parameters
    ----------
    a, b : sequence of hashable

    Returns
    -------
    list of (int or None, int or None)
        Indices into ``a`` and ``b`` in order; ``None`` where the other has no counterpart.

    Notes
    -----
    Bit-parallel: one operation on a whole row of the table at a time, so n x m costs n x m / 64
    word operations. Of the rows only every sqrt(n)-th is kept and those between are computed
    again on the way back, so memory is m x sqrt(n) / 4 bytes, 8 MB for 100,000 by 100,000.

    References
    ----------
    H. Hyyrö, "Bit-parallel LCS-length computation revisited", AWOCA 2004.

    Examples
    --------
    >>> align("abcd", "abxd")
    [(0, 0), (1, 1), (2, None), (None, 2), (3, 3)]
    """
    shortest = min(len(a), len(b))
    start = next((i for i in range(shortest) if a[i] != b[i]), shortest)
    room = shortest - start
    end = next((i for i in range(room) if a[-1 - i] != b[-1 - i]), room)
    inner = _matches(a[start : len(a) - end], b[start : len(b) - end])
    tail = zip(range(len(a) - end, len(a)), range(len(b) - end, len(b)), strict=True)
    matches = [(i, i) for i in range(start)]
    matches += [(start + i, start + j) for i, j in inner]
    return _filled([*matches, *tail], len(a), len(b))


def _filled(matches: list[tuple[int, int]], m: int, n: int) -> list[Pair]:
    pairs: list[Pair] = []
    i = j = 0
    for at_a, at_b in [*matches, (m, n)]:
        pairs += [(k, None) for k in range(i, at_a)]
        pairs += [(None, k) for k in range(j, at_b)]
        if at_a < m and at_b < n:
            pairs.append((at_a, at_b))
        i, j = at_a + 1, at_b + 1
    return pairs


class _Rows:
    """The rows of the table: bit i of row j is 0 where column i adds one to the common length."""

    def __init__(self, a: Sequence[Hashable], b: Sequence[Hashable]) -> None:
        self._places: dict[Hashable, list[int]] = {}
        for i, item in enumerate(a):
            self._places.setdefault(item, []).append(i)
        # masks of frequent items only: one of every item would need m x m bits
        self._masks = {
            item: _mask(where) for item, where in self._places.items() if len(where) > _FREQUENT
        }
        self._b, self._full = b, (1 << len(a)) - 1
        self._stride = isqrt(len(b)) + 1
        self._kept = [self._full]
        row = self._full
        for j, item in enumerate(b, 1):
            row = self._next(row, item)
            if j % self._stride == 0:
                self._kept.append(row)
        self._block, self._rows = -1, [self._full]

    def _next(self, row: int, item: Hashable) -> int:
        mask = self._masks.get(item)
        hits = row & (_mask(self._places.get(item, ())) if mask is None else mask)
        return ((row + hits) | (row - hits)) & self._full

    def adds(self, j: int, i: int) -> bool:
        """Tell whether item ``i`` adds to the common length with the first ``j`` items of b."""
        block = j // self._stride
        if block != self._block:
            first = block * self._stride
            self._block, self._rows = block, [self._kept[block]]
            for item in self._b[first : first + self._stride - 1]:
                self._rows.append(self._next(self._rows[-1], item))
        return not self._rows[j % self._stride] >> i & 1


def _mask(places: Sequence[int]) -> int:
    mask = 0
    for place in places:
        mask |= 1 << place
    return mask


def _matches(a: Sequence[Hashable], b: Sequence[Hashable]) -> list[tuple[int, int]]:
    if not a or not b:
        return []
    rows = _Rows(a, b)
    found: list[tuple[int, int]] = []
    i, j = len(a), len(b)
    while i and j:
        if not rows.adds(j, i - 1):
            i -= 1
        elif rows.adds(j - 1, i - 1):
            j -= 1
        else:
            i, j = i - 1, j - 1
            found.append((i, j))
    return found[::-1]
