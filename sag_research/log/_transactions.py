"""Transactions of a store: they nest, and what is rolled back is also forgotten."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from sag_research.errors import StoreError
from sag_research.log._connection import translated

if TYPE_CHECKING:
    from sag_research.log._store import SQLiteEventStore

__all__ = ["refuse_if_lost", "transaction"]

_OUTERMOST: Final = ("BEGIN IMMEDIATE", "COMMIT", ("ROLLBACK",))
_NESTED: Final = ("SAVEPOINT part", "RELEASE part", ("ROLLBACK TO part", "RELEASE part"))


@contextmanager
def transaction(store: SQLiteEventStore) -> Iterator[None]:
    """Keep all writes of a block, or none."""
    with store._lock:
        begin, keep, drop = _NESTED if store._depth else _OUTERMOST
        refuse_if_lost(store)
        with translated(store.path):
            store._db.execute(begin)
        store._depth += 1
        try:
            if store._depth == 1:
                _forget_if_others_wrote(store)
            yield
            refuse_if_lost(store)
            with translated(store.path):
                store._db.execute(keep)
        except BaseException:
            _roll_back(store, drop)
            raise
        finally:
            store._depth -= 1


def refuse_if_lost(store: SQLiteEventStore) -> None:
    """Stop inside a transaction that SQLite itself rolled back, e.g. on a full disk."""
    if store._depth and not store._db.in_transaction:
        raise StoreError(
            f"the transaction on {store.path} is lost",
            why="an error before this one rolled all of it back",
            fix="leave the transaction and begin again",
        )


def _roll_back(store: SQLiteEventStore, drop: Sequence[str]) -> None:
    if store._db.in_transaction:
        with translated(store.path):
            for statement in drop:
                store._db.execute(statement)
    store._names.clear()
    store._tips.clear()
    store._blobs.forget()
    store._reasons.clear()
    store._reasons_upto = 0


def _forget_if_others_wrote(store: SQLiteEventStore) -> None:
    with translated(store.path):
        version = store._one("PRAGMA data_version")
    if version != store._data_version:
        store._data_version = version
        store._tips.clear()
        store._blobs.doubt()
