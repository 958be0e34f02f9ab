"""Suffix contexts: the last 1 … K tokens before a decision point, counted in distinct runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from sag_research.deadend._prefixes import Ints, Looks, Prefixes

__all__ = ["SuffixCounts", "SuffixCursor"]

Codes = NDArray[np.int32]
UNSEEN = -1


def distinct(values: Ints) -> Ints:
    """Sort and leave out what occurs again; for these sizes faster than ``numpy.unique``."""
    values = np.sort(values)
    keep = np.ones(len(values), dtype=bool)
    np.not_equal(values[1:], values[:-1], out=keep[1:])
    return values[keep]


@dataclass(frozen=True, eq=False, repr=False)
class SuffixCounts:
    """In how many runs each context occurs, and how many of those failed.

    A context of order *k* is the last *k* tokens of a prefix. It is stored as a pair: the context
    of order *k* - 1 that it ends in, and the token before that. So keys are exact whatever the
    number of symbols, and no two contexts share one. A run counts once for a context, however
    often it comes back to it.

    Attributes
    ----------
    n_symbols : int
        Size of the alphabet; codes are 0 … n_symbols - 1.
    keys : list of ndarray of int64
        ``keys[k - 1]`` holds the contexts of order *k*, sorted: ``parent * n_symbols + token``.
    n, failed : list of ndarray of int64
        Runs in which each context occurs, and failed runs among them.
    start : int
        Symbol that stands before the first token of a run, or -1 for none: then a context is never
        longer than the prefix.
    """

    n_symbols: int
    keys: list[Ints]
    n: list[Ints]
    failed: list[Ints]
    start: int = -1

    @classmethod
    def count(
        cls,
        codes: Codes,
        prefixes: Prefixes,
        looks: Looks,
        n_symbols: int,
        orders: int = 5,
        start: int = -1,
    ) -> Self:
        """Count the contexts at these decision points.

        Parameters
        ----------
        codes : ndarray of int32, shape (n_steps,)
            Symbol of each row of ``prefixes.table``.
        prefixes : Prefixes
            Runs of known outcome.
        looks : Looks
            Where contexts are counted; sorted by run.
        n_symbols : int
        orders : int
            Longest context, *K*.
        start : int
            See the class.

        Examples
        --------
        >>> p = Prefixes.from_tokens([["a", "b", "a", "b"], ["b", "a"]], ["failure", "success"])
        >>> c = SuffixCounts.count(p.table.tokens, p, p.every_step(), 2, orders=2)
        >>> c.n[0].tolist(), c.failed[0].tolist()     # a and b occur in both runs
        ([2, 2], [1, 1])
        >>> c.tokens(2), c.n[1].tolist()              # "b a" in both runs, "a b" in one
        ([(1, 0), (0, 1)], [2, 1])
        """
        failed = prefixes.failed == 1
        rows, seen, run = prefixes.rows(looks), looks.seen, looks.run
        keys, n, bad = [], [], []
        parent = np.zeros(len(rows), dtype=np.int64)
        for order in range(1, orders + 1):
            deep = seen >= order - (start >= 0)
            rows, seen, run, parent = rows[deep], seen[deep], run[deep], parent[deep]
            wanted = parent * n_symbols + _token(codes, rows, seen, order, start)
            found, parent = np.unique(wanted, return_inverse=True)
            context, owner = np.divmod(distinct(parent * len(prefixes) + run), len(prefixes))
            keys.append(found)
            n.append(np.bincount(context, minlength=len(found)))
            bad.append(np.bincount(context[failed[owner]], minlength=len(found)))
        return cls(n_symbols, keys, n, bad, start)

    @property
    def orders(self) -> int:
        """Longest context counted."""
        return len(self.keys)

    def __len__(self) -> int:
        return sum(map(len, self.keys))

    def __repr__(self) -> str:
        return f"SuffixCounts({len(self)} contexts of 1 to {self.orders} tokens)"

    def find(self, codes: Codes, rows: Ints, seen: Ints) -> Ints:
        """Return the context of each order at these rows, -1 where it was not counted.

        Parameters
        ----------
        codes : ndarray of int32, shape (n_steps,)
        rows : ndarray of int64, shape (n,)
            Row of the last step seen.
        seen : ndarray of int64, shape (n,)
            Number of steps seen.

        Returns
        -------
        ndarray of int64, shape (orders, n)
            Indices into ``keys[k - 1]``.
        """
        found = np.full((self.orders, len(rows)), UNSEEN, dtype=np.int64)
        at = np.arange(len(rows))
        parent = np.zeros(len(rows), dtype=np.int64)
        for order, keys in enumerate(self.keys, 1):
            deep = seen[at] >= order - (self.start >= 0)
            at, parent = at[deep], parent[deep]
            token = _token(codes, rows[at], seen[at], order, self.start)
            wanted = parent * self.n_symbols + token
            place = np.searchsorted(keys, wanted)
            known = place < len(keys)
            known[known] = keys[place[known]] == wanted[known]
            at, parent = at[known], place[known]
            found[order - 1, at] = parent
        return found

    def parent(self, order: int) -> Ints:
        """Return, for each context of this order, its context of the order below."""
        return self.keys[order - 1] // self.n_symbols

    def tokens(self, order: int, which: Ints | None = None) -> list[tuple[int, ...]]:
        """Return the codes of contexts of one order, oldest first; of all by default."""
        context = np.arange(len(self.keys[order - 1])) if which is None else which
        columns = []
        for level in range(order, 0, -1):
            context, token = np.divmod(self.keys[level - 1][context], self.n_symbols)
            columns.append(token.tolist())
        return list(zip(*columns, strict=True))

    def begin(self) -> SuffixCursor:
        """Return a follower of one run."""
        return SuffixCursor(self.lookups, self.n_symbols, self.start)

    @cached_property
    def lookups(self) -> list[dict[int, int]]:
        """Key → context, a dictionary for each order."""
        return [{key: i for i, key in enumerate(keys.tolist())} for keys in self.keys]

    def state(self, prefix: str = "") -> dict[str, NDArray[Any]]:
        """Return the counts as arrays, to be saved; their names start with `prefix`."""
        arrays: dict[str, NDArray[Any]] = {f"{prefix}size": np.array([self.n_symbols, self.start])}
        for order in range(1, self.orders + 1):
            for name in ("keys", "n", "failed"):
                arrays[f"{prefix}{name}_{order}"] = getattr(self, name)[order - 1]
        return arrays

    @classmethod
    def restore(cls, arrays: Mapping[str, NDArray[Any]], prefix: str = "") -> Self:
        """Make the counts again from what :meth:`state` returned."""
        orders = sum(name.startswith(f"{prefix}keys_") for name in arrays)
        keys, n, failed = (
            [arrays[f"{prefix}{name}_{order}"] for order in range(1, orders + 1)]
            for name in ("keys", "n", "failed")
        )
        size, start = arrays[f"{prefix}size"].tolist()
        return cls(size, keys, n, failed, start)


def _token(codes: Codes, rows: Ints, seen: Ints, order: int, start: int) -> Ints:
    """Return the oldest token of each context of this order."""
    token = codes[rows - (order - 1)].astype(np.int64)
    return np.where(seen >= order, token, start)


class SuffixCursor:
    """The contexts that one run is in, step by step; gives what :meth:`SuffixCounts.find` does."""

    __slots__ = ("_lookups", "_n_symbols", "_recent")

    def __init__(self, lookups: list[dict[int, int]], n_symbols: int, start: int = -1) -> None:
        self._lookups, self._n_symbols = lookups, n_symbols
        self._recent: list[int] = [start] if start >= 0 else []

    def push(self, code: int) -> list[int]:
        """Take in the next token; return the contexts that were counted, order 1 first."""
        self._recent.insert(0, code)
        del self._recent[len(self._lookups) :]
        return self.contexts()

    def contexts(self) -> list[int]:
        """Return the contexts that were counted, order 1 first."""
        found: list[int] = []
        parent, n_symbols = 0, self._n_symbols
        for lookup, token in zip(self._lookups, self._recent, strict=False):
            context = lookup.get(parent * n_symbols + token)
            if context is None:
                break
            found.append(context)
            parent = context
        return found
