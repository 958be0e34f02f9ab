"""Tokens as numbers that mean the same in every corpus, and prefixes as one number."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from sag_research.errors import UsageError
from sag_research.extract import Vocabulary

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Codes", "chained"]

_PARTS: Final = ("verb", "object", "result")
_START: Final = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


class Codes:
    """The codes of a vocabulary's tokens: a token's place in the product of its alphabet.

    They depend on nothing but the vocabulary, so that parts of a corpus that were made by
    different processes, or on different machines, agree.

    Parameters
    ----------
    vocabulary : Vocabulary, optional
        The shipped one by default.
    more : sequence of str
        Tokens beyond its alphabet, as generated runs may have; they get the codes behind it.

    Raises
    ------
    UsageError
        If the vocabulary is a function: nobody knows its alphabet beforehand.

    Examples
    --------
    >>> codes = Codes()
    >>> codes.names[codes.of(["edit|src|ok"])[0]]
    'edit|src|ok'
    """

    def __init__(self, vocabulary: Vocabulary | None = None, more: Sequence[str] = ()) -> None:
        self.vocabulary = vocabulary or Vocabulary()
        alphabet = self.vocabulary.alphabet
        if not alphabet:
            raise UsageError(
                "the tokens of a function have no codes",
                why="a corpus needs the whole alphabet beforehand",
                fix="use a vocabulary of rules",
            )
        parts = [alphabet[part] for part in _PARTS]
        known = ["|".join(one) for one in product(*parts)]
        self.names: tuple[str, ...] = (*known, *sorted(set(more).difference(known)))
        self._place = {name: code for code, name in enumerate(self.names)}

    def of(self, names: Sequence[str]) -> NDArray[np.int64]:
        """Return the codes of tokens.

        Raises
        ------
        UsageError
            If a token is not one of the vocabulary's.
        """
        try:
            return np.array([self._place[name] for name in names], dtype=np.int64)
        except KeyError as error:
            raise UsageError(f"{error.args[0]!r} is no token of {self.vocabulary!r}") from error

    def of_steps(self, steps: pa.Table) -> NDArray[np.int64]:
        """Return the codes of steps, given with the columns of the view ``steps``."""
        places, names = self.vocabulary.tokens(steps)
        return self.of(names)[places] if len(places) else np.empty(0, dtype=np.int64)

    def table(self) -> pa.Table:
        """Return the table ``tokens`` of a corpus."""
        import pyarrow as pa

        from sag_research.warehouse.corpus._layout import schema

        parts = [self.vocabulary.parts(name) for name in self.names]
        columns = {"token": range(len(parts)), "name": self.names}
        columns |= {part: [one[at] for one in parts] for at, part in enumerate(_PARTS)}
        return pa.table(columns, schema=schema("tokens"))


def chained(tokens: NDArray[np.int64], first: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return a hash of each step's prefix: the tokens of its run up to it.

    A step's hash is that of the step before, XOR its token, mixed by the finaliser of splitmix64
    (Steele, Lea and Flood, 2014). Of 30 million different prefixes, the chance that any two share
    a hash is 2.4e-5.

    Parameters
    ----------
    tokens : ndarray of int64, shape (n_steps,)
        Run after run.
    first : ndarray of int64, shape (n_runs,)
        Row of each run's first step, ascending; runs without steps are not in it.

    Returns
    -------
    ndarray of int64, shape (n_steps,)

    Examples
    --------
    >>> a = chained(np.array([5, 7, 5, 7, 7, 5]), np.array([0, 2, 4]))
    >>> bool((a[:2] == a[2:4]).all()), len(set(a.tolist()))
    (True, 4)
    """
    hashes = np.empty(len(tokens), dtype=np.uint64)
    rows = np.asarray(first, dtype=np.int64)
    stop = np.append(rows[1:], len(tokens))
    before = np.full(len(rows), _START)
    while len(rows):
        before = _mixed(before ^ tokens[rows].astype(np.uint64))
        hashes[rows] = before
        goes_on = rows + 1 < stop
        rows, stop, before = rows[goes_on] + 1, stop[goes_on], before[goes_on]
    return hashes.view(np.int64)


def _mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    with np.errstate(over="ignore"):
        values = values + _START
        values = (values ^ (values >> np.uint64(30))) * _FIRST
        values = (values ^ (values >> np.uint64(27))) * _SECOND
    return values ^ (values >> np.uint64(31))
