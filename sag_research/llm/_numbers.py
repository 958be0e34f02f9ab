"""How often each question was asked: one count for all who carry on one run."""

from __future__ import annotations

import threading
from typing import Final
from weakref import WeakKeyDictionary, WeakValueDictionary

from sag_research.log import SQLiteEventStore, count_calls, has_call

__all__ = ["Numbers", "numbers_of"]


class Numbers:
    """Numbers the asks of each key: the k-th ask gets the k-th answer.

    Parameters
    ----------
    run : str, optional
        The run that is carried on: a number that its lineage holds is not given again. Without
        one the asks are numbered from 0, as when a program is run again.
    """

    def __init__(self, run: str | None = None) -> None:
        self._run = run
        self._lock = threading.Lock()
        self._next: dict[str, int] = {}

    def take(self, store: SQLiteEventStore, key: str) -> int:
        """Give the next ask of a key its number."""
        while True:  # the store is asked without the lock: who enters an answer holds the store
            with self._lock:
                first = self._next.get(key, 0)
            number = self._free(store, key, first)
            with self._lock:
                if self._next.get(key, 0) == first:
                    self._next[key] = number + 1
                    return number

    def give_back(self, key: str, number: int) -> None:
        """Let the next ask have the number of one that got no answer."""
        with self._lock:
            if self._next.get(key) == number + 1:
                self._next[key] = number

    def settle(self, store: SQLiteEventStore, key: str, number: int) -> int:
        """Return the number under which an answer can be entered, inside a transaction.

        It is the one that the ask was given, unless another process has used it meanwhile.
        """
        if self._run is None or not has_call(store, key, number, self._run):
            return number
        return self.take(store, key)

    def _free(self, store: SQLiteEventStore, key: str, number: int) -> int:
        if self._run is None or not has_call(store, key, number, self._run):
            return number
        number = max(number, count_calls(store, key, self._run))
        while has_call(store, key, number, self._run):  # beyond one that got no answer
            number += 1
        return number


_shared: Final[WeakKeyDictionary[SQLiteEventStore, WeakValueDictionary[str, Numbers]]] = (
    WeakKeyDictionary()
)
_sharing: Final = threading.Lock()


def numbers_of(store: SQLiteEventStore, run: str) -> Numbers:
    """Return the numbers that all who carry on a run share, for as long as one of them lives."""
    with _sharing:
        known = _shared.setdefault(store, WeakValueDictionary())
        numbers = known.get(run)
        if numbers is None:
            numbers = known[run] = Numbers(run)
        return numbers
