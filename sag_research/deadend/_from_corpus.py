"""From a corpus to a cohort: runs and tokens from Parquet, without their texts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sag_research.deadend._prefixes import Prefixes, StepTable
from sag_research.errors import NotEnoughDataError

if TYPE_CHECKING:
    from sag_research.warehouse.corpus import Corpus

__all__ = ["read_corpus"]

_RUNS = """
    SELECT run_id, task_id, dataset, repo, agent, model, outcome
    FROM runs WHERE n_steps > 0 AND ({where}) ORDER BY task_id, run_id"""
_STEPS = """
    SELECT r.number, s.token::INTEGER AS token
    FROM steps s JOIN (
        SELECT run_id, row_number() OVER (ORDER BY task_id, run_id) - 1 AS number
        FROM runs WHERE n_steps > 0 AND ({where})
    ) r ON s.run_id = r.run_id
    ORDER BY r.number, s.step"""


def read_corpus(corpus: Corpus, where: str = "true") -> Prefixes:
    """Read the runs of a corpus that answer to an SQL condition over its table ``runs``.

    Raises
    ------
    NotEnoughDataError
        If no run is left.
    QueryError
        If the condition cannot be read.
    """
    from sag_research.warehouse.corpus import engine

    with engine("duckdb") as duck:
        runs = duck.sql(_RUNS.format(where=where), corpus).df()
        if runs.empty:
            raise NotEnoughDataError("no run in this cohort", why="none answers")
        steps = duck.sql(_STEPS.format(where=where), corpus).arrow()
        names = duck.sql("SELECT name FROM tokens ORDER BY token", corpus).arrow()
    counts = np.bincount(steps.column("number").to_numpy(), minlength=len(runs))
    stop = np.cumsum(counts).astype(np.int64)
    tokens = steps.column("token").to_numpy()
    used, codes = np.unique(tokens, return_inverse=True)
    every = names.column("name").to_pylist()
    table = StepTable(codes.astype(np.int32), [every[code] for code in used])
    return Prefixes.of(runs, stop - counts, stop, table, corpus.about["left_out"])
