"""The counts of prefixes and of suffix contexts, in SQL: for study, and against the arrays."""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sag_research.deadend._prefixes import Looks, Prefixes
from sag_research.errors import UsageError

if TYPE_CHECKING:
    import duckdb
    import pandas as pd

__all__ = ["load_tokens", "prefix_counts", "query", "suffix_counts"]

MOST_ORDERS = 5


def query(name: str) -> str:
    """Return the text of a shipped query, e.g. ``prefix_counts``; paste it where you like."""
    file = files("sag_research.deadend").joinpath(f"sql/{name}.sql")
    if not file.is_file():
        raise UsageError(f"no query {name!r}", fix="one of prefix_counts, suffix_counts")
    return file.read_text(encoding="utf-8")


def load_tokens(
    connection: duckdb.DuckDBPyConnection,
    prefixes: Prefixes,
    codes: NDArray[np.int32] | None = None,
    looks: Looks | None = None,
) -> None:
    """Make the temporary tables ``tokens(run, step, token)`` and ``runs(run, failed)``.

    Parameters
    ----------
    connection : duckdb connection
    prefixes : Prefixes
    codes : ndarray of int32, shape (n_steps,), optional
        Code of each row of ``prefixes.table``; the table's own by default.
    looks : Looks, optional
        Load the steps up to these decision points only, as the estimators count them; after each
        run's every step by default.
    """
    import pyarrow as pa

    wanted = prefixes.every_step() if looks is None else looks
    codes = prefixes.table.tokens if codes is None else codes
    tokens = {
        "run": wanted.run,
        "step": wanted.seen - 1,
        "token": codes[prefixes.rows(wanted)].astype(np.int64),
    }
    failed = prefixes.failed
    runs = {
        "run": np.arange(len(prefixes)),
        "failed": pa.array(failed.astype(object), pa.int64(), from_pandas=True)
        if len(failed) else pa.array([], pa.int64()),
    }  # fmt: skip
    for name, columns in (("tokens", tokens), ("runs", runs)):
        connection.register(f"{name}_given", pa.table(columns))
        connection.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS FROM {name}_given")
        connection.unregister(f"{name}_given")


def prefix_counts(
    prefixes: Prefixes, codes: NDArray[np.int32] | None = None, looks: Looks | None = None
) -> pd.DataFrame:
    """Count every distinct prefix in DuckDB; :class:`PrefixIndex` counts the same.

    Parameters
    ----------
    prefixes, codes, looks
        See :func:`load_tokens`.

    Returns
    -------
    DataFrame
        ``depth prefix n failed example``: number of steps, a signed 64-bit hash, runs of known
        outcome that begin so, the failed among them, and the index of one of them.

    Examples
    --------
    >>> p = Prefixes.from_tokens([["a", "b"], ["b", "a"]], ["failure", "success"])
    >>> counts = prefix_counts(p).sort_values(["depth", "example"])
    >>> counts[["depth", "n", "failed"]].to_numpy().tolist()    # a, b; a b, b a
    [[1, 1, 1], [1, 1, 0], [2, 1, 1], [2, 1, 0]]
    """
    import duckdb

    with duckdb.connect() as connection:
        load_tokens(connection, prefixes, codes, looks)
        return connection.execute(query("prefix_counts")).df()


def suffix_counts(
    prefixes: Prefixes,
    codes: NDArray[np.int32] | None = None,
    looks: Looks | None = None,
    orders: int = 5,
) -> pd.DataFrame:
    """Count every context of the last 1 … `orders` tokens in DuckDB, in distinct runs.

    :class:`SuffixCounts` counts the same.

    Parameters
    ----------
    prefixes, codes, looks
        See :func:`load_tokens`.
    orders : int
        At most 5.

    Returns
    -------
    DataFrame
        ``k context n failed example example_step``: number of tokens, a signed 64-bit hash, runs
        of known outcome that show it, the failed among them, and one run and step that end in it.
    """
    import duckdb

    if not 1 <= orders <= MOST_ORDERS:
        raise UsageError(f"orders={orders}", fix=f"from 1 to {MOST_ORDERS}")
    with duckdb.connect() as connection:
        load_tokens(connection, prefixes, codes, looks)
        return connection.execute(query("suffix_counts"), {"orders": orders}).df()
