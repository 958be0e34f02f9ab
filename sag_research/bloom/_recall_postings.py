"""An inverted index in flat arrays: which runs hold which terms, how often, and where first."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Hits", "Postings", "weights_of"]

Ints = NDArray[np.int64]
Keys = NDArray[np.uint64]
Floats = NDArray[np.float64]

# chosen on half of the tasks of two sets, where each could vary widely at little loss
STOP_SHARE = 0.2
"""A term that more than this share of the runs hold says nothing about any of them."""
STOP_RUNS = 20
"""… unless so few hold it that the share is no evidence."""
RARE = 1.5
"""Exponent of the inverse document frequency."""
LENGTH = 0.6
"""Exponent of a run's norm: 1 is the cosine, 0 forgives long runs everything."""
ROUND = 9
"""Digits of a score that count: equal ones are told apart by the order of the log."""


def weights_of(df: NDArray[Any], n: int) -> Floats:
    """Weigh terms by how rare they are: BM25's inverse document frequency to the power 1.5.

    Parameters
    ----------
    df : ndarray of int
        Runs that hold each term.
    n : int
        Runs in all.

    Returns
    -------
    ndarray of float64
        0 for a term that more than ``max(0.2 n, 20)`` runs hold: a stop-entity.

    Examples
    --------
    >>> weights_of(np.array([1, 50, 300]), 1000).round(1).tolist()
    [16.6, 5.2, 0.0]
    """
    df = np.asarray(df, dtype=np.float64)
    idf = np.log1p((n - df + 0.5) / (df + 0.5)) ** RARE
    return np.where((df > max(STOP_SHARE * n, STOP_RUNS)) | (df == 0), 0.0, idf)


class Hits(NamedTuple):
    """Similarity of every run to a query, and the query's terms that can match."""

    scores: Floats
    """Shape (n_runs,), 0 or more; 1 is about a run of typical length that is like the query."""
    codes: Ints
    """Codes of the query's terms that weigh something, heaviest first."""


class Postings:
    """Terms of runs under one kind of term (entities, words, or stretches of step tokens).

    A term is known by a 64-bit key. Each pair of a run and a term takes 14 bytes here and 8 in
    the inverted form, which is made anew, by counting, when something has changed.
    """

    def __init__(self) -> None:
        self.keys: Keys = np.empty(0, np.uint64)
        self._run = np.empty(0, np.int32)
        self._code = np.empty(0, np.int32)
        self._count = np.empty(0, np.uint16)
        self._first = np.empty(0, np.int32)
        self._inverted: _Inverted | None = None
        self.weight: Floats = np.empty(0)
        self.df: Ints = np.empty(0, np.int64)

    def __len__(self) -> int:
        return len(self._run)

    def __repr__(self) -> str:
        return f"Postings({len(self.keys)} terms, {len(self)} pairs)"

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        own = (self.keys, self._run, self._code, self._count, self._first, self.weight, self.df)
        held = self._inverted.arrays if self._inverted else ()
        arrays: tuple[NDArray[Any], ...] = (*own, *held)
        return sum(array.nbytes for array in arrays)

    def drop(self, runs: Ints) -> None:
        """Forget the terms of some runs."""
        if len(runs) and len(self._run):
            keep = ~np.isin(self._run, runs)
            self._run, self._code = self._run[keep], self._code[keep]
            self._count, self._first = self._count[keep], self._first[keep]
        self._inverted = None

    def add(self, run: Ints, key: Keys, count: Ints, first: Ints) -> None:
        """Take in pairs of a run and a term, each pair once.

        Parameters
        ----------
        run, key, count, first : ndarray, shape (n_pairs,)
            The run's number, the term's key, how often, and at which step first.
        """
        found = np.unique(key)
        new = found[~np.isin(found, self.keys, assume_unique=True)]
        if len(new):
            keys = np.sort(np.concatenate((self.keys, new)))
            moved = np.searchsorted(keys, self.keys).astype(np.int32)
            self._code = moved[self._code]
            self.keys = keys
        code = np.searchsorted(self.keys, key).astype(np.int32)
        self._run = np.concatenate((self._run, run.astype(np.int32)))
        self._code = np.concatenate((self._code, code))
        capped = np.minimum(count, np.iinfo(np.uint16).max).astype(np.uint16)
        self._count = np.concatenate((self._count, capped))
        self._first = np.concatenate((self._first, first.astype(np.int32)))
        self._inverted = None

    def prepare(self, counts: NDArray[np.bool_]) -> None:
        """Weigh the terms over the runs that count (a mask over all), and invert."""
        if self._inverted is not None and np.array_equal(self._inverted.counts, counts):
            return
        shown = counts[self._run]
        self.df = np.bincount(self._code[shown], minlength=len(self.keys)).astype(np.int64)
        self.weight = weights_of(self.df, int(counts.sum()))
        useful = np.flatnonzero(shown & (self.weight[self._code] > 0))
        self._inverted = _invert(
            self._run[useful], self._code[useful], self._count[useful], self._first[useful],
            self.weight, counts,
        )  # fmt: skip

    def find(self, key: Keys) -> Ints:
        """Return the code of each key, -1 for one that no run holds."""
        if not len(self.keys):
            return np.full(len(key), -1, np.int64)
        place = np.minimum(np.searchsorted(self.keys, key), len(self.keys) - 1)
        return np.where(self.keys[place] == key, place, -1).astype(np.int64)

    def holders(self, key: Keys) -> Ints:
        """Return the runs that hold any of some terms."""
        codes = self.find(key)
        return np.unique(self._run[np.isin(self._code, codes[codes >= 0])]).astype(np.int64)

    def search(self, key: Keys, count: Ints, most: int) -> Hits:
        """Compare a query with every run.

        Parameters
        ----------
        key, count : ndarray, shape (n_terms,)
            The query's terms, each once, and how often it holds them.
        most : int
            Only so many terms count, the heaviest: it bounds the time of a long query.
        """
        inverted = self._ready()
        code = self.find(key)
        held = code >= 0
        code, heavy = code[held], np.log1p(count[held]) * self.weight[code[held]]
        order = np.argsort(-heavy, kind="stable")[:most]
        order = order[heavy[order] > 0]
        code, heavy = code[order], heavy[order]
        norm = float(np.linalg.norm(heavy))
        return Hits(inverted.scores(code, heavy / norm if norm else heavy), code)

    def step_of(self, run: int, codes: Ints) -> dict[int, int]:
        """Return, for those of some terms that a run holds, the step that showed each first."""
        return self._ready().firsts(run, codes)

    def _ready(self) -> _Inverted:
        if self._inverted is None:
            self.prepare(np.ones(int(self._run.max(initial=-1)) + 1, dtype=bool))
        assert self._inverted is not None  # noqa: S101  # prepare has just made it
        return self._inverted


class _Inverted(NamedTuple):
    """For each term the runs that hold it, sorted, with what each adds to a score."""

    start: Ints
    run: NDArray[np.int32]
    value: NDArray[np.float32]
    first: NDArray[np.int32]
    counts: NDArray[np.bool_]

    @property
    def arrays(self) -> tuple[NDArray[Any], ...]:
        return (self.start, self.run, self.value, self.first, self.counts)

    def scores(self, codes: Ints, query: Floats) -> Floats:
        """Sum what each of the query's terms adds, over all runs."""
        spans = [slice(self.start[code], self.start[code + 1]) for code in codes.tolist()]
        if not spans:
            return np.zeros(len(self.counts))
        run = np.concatenate([self.run[span] for span in spans])
        value = [self.value[span] * q for span, q in zip(spans, query.tolist(), strict=True)]
        found: Floats = np.bincount(
            run, weights=np.concatenate(value), minlength=len(self.counts)
        ).astype(np.float64)
        return found

    def firsts(self, run: int, codes: Ints) -> dict[int, int]:
        found = {}
        for code in codes.tolist():
            low, high = int(self.start[code]), int(self.start[code + 1])
            place = low + int(np.searchsorted(self.run[low:high], run))
            if place < high and self.run[place] == run:
                found[code] = int(self.first[place])
        return found


def _invert(
    run: NDArray[np.int32],
    code: NDArray[np.int32],
    count: NDArray[np.uint16],
    first: NDArray[np.int32],
    weight: Floats,
    counts: NDArray[np.bool_],
) -> _Inverted:
    from scipy.sparse import csr_matrix

    value = np.log1p(count.astype(np.float32)) * weight[code].astype(np.float32)
    norm = np.sqrt(np.bincount(run, weights=value.astype(np.float64) ** 2, minlength=len(counts)))
    value = value / np.where(norm > 0, norm, 1.0).astype(np.float32)[run] ** np.float32(LENGTH)
    # two transpositions of a sparse matrix sort by term, then run, in linear time; its "data" are
    # the places of the pairs, so that any column can follow
    place = np.arange(len(run), dtype=np.int32)
    shape = (len(counts), len(weight))
    by_term = csr_matrix((place, (run, code)), shape=shape).tocsc()
    order = by_term.data
    start = by_term.indptr.astype(np.int64)
    return _Inverted(start, by_term.indices.astype(np.int32), value[order], first[order], counts)
