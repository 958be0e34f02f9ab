"""What a step is known by: the words of its texts, and the stretches of tokens that end in it."""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sag_research._text import repair

__all__ = ["Terms", "hash_names", "stretches", "word_list", "words", "words_by_key"]

Ints = NDArray[np.int64]
Keys = NDArray[np.uint64]

WORD = r"[\p{L}\p{N}_]{1,40}"
"""Letters, digits and underscores, so that ``mia_li_3668`` and ``HAT069`` are words."""
_WORD: Final = re.compile(r"\w{1,40}")
"""The same for one text, where a batch would cost more than it saves."""
STRETCH = 3
"""A stretch of tokens is at most so many steps long."""
_SEED = 20_240_229


class Terms(NamedTuple):
    """Pairs of a run and a term, each once, how often, and at which step first."""

    run: Ints
    key: Keys
    times: Ints
    first: Ints


def hash_names(names: Any) -> Keys:
    """Return 64-bit keys of texts; equal within a process, and not meant to be kept.

    Parameters
    ----------
    names : sequence of str, pyarrow array or polars Series
    """
    import polars as pl

    series = names if isinstance(names, pl.Series) else pl.Series(names, dtype=pl.String)
    return series.hash(seed=_SEED).to_numpy().astype(np.uint64)


def word_list(text: str) -> list[str]:
    """Return the words of a text in order, in lower case.

    Examples
    --------
    >>> word_list("Flight HAT069 for mia_li_3668")
    ['flight', 'hat069', 'for', 'mia_li_3668']
    """
    return _WORD.findall(repair(text).lower())


def words(run: Ints, step: Ints, texts: Any) -> Terms:
    """Return the words of steps, counted over each run.

    Parameters
    ----------
    run, step : ndarray of int64, shape (n_steps,)
        The run's number, and the step's in its run.
    texts : pyarrow array of str, shape (n_steps,)
    """
    import polars as pl

    steps = pl.DataFrame({"run": run, "step": step, "text": pl.Series(texts, dtype=pl.String)})
    found = (
        steps.lazy()
        .select("run", "step", key=pl.col("text").str.to_lowercase().str.extract_all(WORD))
        .explode("key")
        .drop_nulls("key")
        .with_columns(pl.col("key").hash(seed=_SEED))
        .group_by("run", "key")
        .agg(n=pl.len(), first=pl.col("step").min())
        .sort("run", "key")
        .collect()
    )
    return _terms(found)


def words_by_key(texts: Any) -> dict[int, str]:
    """Return what is behind the keys of the words of some texts."""
    import polars as pl

    series = pl.Series(texts, dtype=pl.String).str.to_lowercase().str.extract_all(WORD)
    found = series.explode().drop_nulls().unique().sort()
    return dict(zip(hash_names(found).tolist(), found.to_list(), strict=True))


def stretches(run: Ints, step: Ints, tokens: Any) -> Terms:
    """Return the stretches of 1 … 3 consecutive tokens of runs, in their order.

    Parameters
    ----------
    run, step : ndarray of int64, shape (n_steps,)
        Sorted by run, then step. A run's start is a token, too.
    tokens : sequence of str, shape (n_steps,)
    """
    import polars as pl

    steps = pl.DataFrame({"run": run, "step": step, "token": pl.Series(tokens, dtype=pl.String)})
    parts = []
    text = pl.col("token")
    for length in range(STRETCH):
        if length:
            before = pl.col("token").shift(length).over("run").fill_null("^")
            text = pl.concat_str(before, text, separator="\n")
        parts.append(steps.select("run", "step", key=text.hash(seed=_SEED)))
    found = (
        pl.concat(parts)
        .group_by("run", "key")
        .agg(n=pl.len(), first=pl.col("step").min())
        .sort("run", "key")
    )
    return _terms(found)


def _terms(found: Any) -> Terms:
    return Terms(
        found["run"].to_numpy().astype(np.int64),
        found["key"].to_numpy().astype(np.uint64),
        found["n"].to_numpy().astype(np.int64),
        found["first"].to_numpy().astype(np.int64),
    )
