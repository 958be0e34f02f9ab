"""Which past runs share entities with a run: an inverted index of bitmaps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from sag_research.deadend._index import Support
from sag_research.deadend._prefixes import Ints, Prefixes
from sag_research.errors import MissingDataError, UsageError

__all__ = ["EntityCursor", "EntityIndex"]

Words = NDArray[np.uint64]
WORD = 64
DENSE_SHARE = 32
"""An entity of more than one run in so many is kept as a bitmap: not larger than its list."""


class EntityIndex:
    """For each entity, the runs of known outcome that mention it anywhere.

    A frequent entity is a bitmap, a bit for each run; a rare one is a list of runs. "At least two
    of these entities" is then a handful of AND and OR over the bitmaps, whatever the number of
    mentions: two sets of runs are kept, those that have shown one entity so far, and those that
    have shown two.

    Parameters
    ----------
    names : sequence of str
        The entities.
    offset : ndarray of int64, shape (n_entities + 1,)
    run : ndarray of int32
        Runs that mention entity *e*, sorted: ``run[offset[e]:offset[e + 1]]``.
    failed : ndarray of bool, shape (n_runs,)

    Examples
    --------
    >>> index = EntityIndex.build(["db", "disk"], run=[0, 0, 1, 2, 2], entity=[0, 1, 0, 0, 1],
    ...                           failed=[True, True, False])
    >>> index.count(["db", "disk"])           # runs 0 and 2 mention both
    Support(n=2, failed=1)
    >>> index.count(["db", "disk"], at_least=1)
    Support(n=3, failed=2)
    >>> index.runs(["db", "disk", "unheard of"]).tolist()
    [0, 2]
    """

    def __init__(
        self, names: Sequence[str], offset: Ints, run: NDArray[np.int32], failed: NDArray[np.bool_]
    ) -> None:
        self.names = tuple(names)
        self.offset, self.run, self.failed = offset, run, failed
        self._code = {name: code for code, name in enumerate(self.names)}
        self._n_words = -(-len(failed) // WORD)
        self._failed = self._bits(np.flatnonzero(failed))
        frequent = np.flatnonzero(np.diff(offset) * DENSE_SHARE > len(failed))
        self._bitmaps = {code: self._bits(self._list(code)) for code in frequent.tolist()}

    @classmethod
    def of(cls, prefixes: Prefixes) -> Self:
        """Index the runs of known outcome of a cohort, by all entities that each mentions.

        Raises
        ------
        MissingDataError
            If the cohort was read without entities.
        """
        if prefixes.table.entities is None:
            raise MissingDataError("this cohort has no entities", fix="make it with entities=True")
        known = prefixes.labelled
        offset, ids, names = prefixes.table.entities
        rows = known.rows(known.every_step())
        count = offset[rows + 1] - offset[rows]
        owner = np.repeat(known.every_step().run, count)
        first = np.repeat(offset[rows] - (np.cumsum(count) - count), count)
        return cls.build(names, owner, ids[first + np.arange(len(first))], known.failed == 1)

    @classmethod
    def build(cls, names: Sequence[str], run: Any, entity: Any, failed: Any) -> Self:
        """Index mentions, pairs of a run and an entity, in any order and any number of times.

        Parameters
        ----------
        names : sequence of str
            The entities.
        run, entity : array_like of int, shape (n_mentions,)
            Indices into `failed` and `names`.
        failed : array_like of bool, shape (n_runs,)
        """
        failed = np.asarray(failed, dtype=bool)
        size = max(len(failed), 1)
        pairs = np.asarray(entity, dtype=np.int64) * size + np.asarray(run, dtype=np.int64)
        pairs.sort()
        keep = np.ones(len(pairs), dtype=bool)
        np.not_equal(pairs[1:], pairs[:-1], out=keep[1:])
        pairs = pairs[keep]
        offset = np.searchsorted(pairs, np.arange(len(names) + 1) * size)
        return cls(names, offset, (pairs % size).astype(np.int32), failed)

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        return (
            f"EntityIndex({len(self)} entities, {len(self.failed)} runs, {len(self.run)} mentions)"
        )

    @property
    def nbytes(self) -> int:
        """Size of lists and bitmaps in bytes."""
        bitmaps = (len(self._bitmaps) + 1) * self._n_words * (WORD // 8)
        return self.run.nbytes + self.offset.nbytes + self.failed.nbytes + bitmaps

    def codes(self, names: Iterable[str]) -> list[int]:
        """Return the distinct codes of these entities; those never mentioned are left out."""
        return sorted({self._code[name] for name in names if name in self._code})

    def count(self, names: Iterable[str], at_least: int = 2) -> Support:
        """Count the runs that mention at least so many of these entities, and the failed ones.

        Raises
        ------
        UsageError
            If `at_least` is below 1.
        """
        cursor = self.begin(at_least)
        return cursor.add(names)

    def runs(self, names: Iterable[str], at_least: int = 2) -> Ints:
        """Return the runs that mention at least so many of these entities, sorted."""
        cursor = self.begin(at_least)
        cursor.add(names)
        bits = np.unpackbits(cursor.matches.view(np.uint8), bitorder="little")
        return np.flatnonzero(bits)

    def begin(self, at_least: int = 2) -> EntityCursor:
        """Return a follower of one new run, whose entities come step by step."""
        if at_least < 1:
            raise UsageError(f"at_least={at_least}", fix="give 1 or more")
        return EntityCursor(self, at_least)

    def support(self, words: Words) -> Support:
        """Count the runs of a bitmap, and the failed ones."""
        n = int(np.bitwise_count(words).sum())
        return Support(n, int(np.bitwise_count(words & self._failed).sum()) if n else 0)

    def bitmap(self, code: int) -> Words:
        """Return the runs that mention an entity as a bitmap, shape (ceil(n_runs / 64),)."""
        found = self._bitmaps.get(code)
        return self._bits(self._list(code)) if found is None else found

    def _list(self, code: int) -> NDArray[np.int32]:
        return self.run[self.offset[code] : self.offset[code + 1]]

    def _bits(self, runs: NDArray[Any]) -> Words:
        marks = np.zeros(self._n_words * WORD, dtype=np.uint8)
        marks[runs] = 1
        return np.packbits(marks, bitorder="little").view(np.uint64)


class EntityCursor:
    """The past runs that share enough entities with a run that is going on.

    Attributes
    ----------
    matches : ndarray of uint64
        Those runs, as a bitmap.
    """

    __slots__ = ("_at_least", "_index", "_levels", "_seen")

    def __init__(self, index: EntityIndex, at_least: int) -> None:
        self._index = index
        self._seen: set[int] = set()
        # level i holds the runs that share i + 1 entities or more with what was added so far
        self._levels = [np.zeros(index._n_words, dtype=np.uint64) for _ in range(at_least)]

    @property
    def matches(self) -> Words:
        """Return the past runs that share enough entities, as a bitmap."""
        return self._levels[-1]

    def add(self, names: Iterable[str]) -> Support:
        """Take in the entities of the next step; those added before change nothing."""
        for code in self._index.codes(names):
            if code in self._seen:
                continue
            self._seen.add(code)
            bits = self._index.bitmap(code)
            for level in range(len(self._levels) - 1, 0, -1):
                self._levels[level] |= self._levels[level - 1] & bits
            self._levels[0] |= bits
        return self._index.support(self._levels[-1])
