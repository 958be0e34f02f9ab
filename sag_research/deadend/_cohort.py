"""From the warehouse to a cohort: which runs count, their steps as tokens, their labels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np

from sag_research.deadend._prefixes import NUMBERS, TEXTS, Ints, Prefixes, StepTable
from sag_research.errors import NotEnoughDataError
from sag_research.extract import Vocabulary

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from sag_research.warehouse import Warehouse

__all__ = ["read_prefixes"]

CHUNK_STEPS = 100_000
"""Steps whose texts are held at once while they become tokens."""

_Parameters = Sequence[Any] | Mapping[str, Any] | None


def read_prefixes(
    warehouse: Warehouse,
    where: str = "true",
    parameters: _Parameters = None,
    *,
    vocabulary: Vocabulary | None = None,
    texts: bool = True,
    entities: bool = True,
) -> Prefixes:
    """Read the runs that answer to an SQL condition, with their steps as tokens.

    Left out, and counted in ``left_out``: forks (their inherited steps would count twice),
    extractions, and runs without steps.

    Parameters
    ----------
    warehouse : Warehouse
    where : str
        A condition over the view ``runs``.
    parameters : sequence or mapping, optional
        Values for the condition.
    vocabulary : Vocabulary, optional
        How steps become tokens; the shipped one by default.
    texts : bool
        Keep the texts in memory, for the models that read them.
    entities : bool
        Read the entities that each step mentions, for SAG's rule.

    Raises
    ------
    NotEnoughDataError
        If no run is left.
    """
    vocabulary = vocabulary or Vocabulary()
    found = warehouse.sql(_query("cohort").replace("{where}", where), parameters).df()
    reason = found.pop("left_out")
    left_out = {str(name): int(n) for name, n in reason.value_counts(sort=False).items()}
    runs = found[reason.isna()].reset_index(drop=True)
    if runs.empty:
        raise NotEnoughDataError(
            "no run in this cohort",
            why=", ".join(f"{n} left out: {why}" for why, n in left_out.items()) or "none answers",
            fix="see ws.runs(where=…)",
        )
    table, owner = _steps(warehouse, runs, vocabulary, texts)
    counts = np.bincount(owner, minlength=len(runs)).astype(np.int64)
    stop = np.cumsum(counts)
    if entities:
        table.entities = _entities(warehouse, runs, stop - counts, len(table))
    return Prefixes.of(runs, stop - counts, stop, table, left_out)


def _query(name: str) -> str:
    return files("sag_research.deadend").joinpath(f"sql/{name}.sql").read_text(encoding="utf-8")


def _chunks(n_steps: Sequence[int]) -> Iterator[slice]:
    """Cut runs into stretches of about CHUNK_STEPS steps."""
    first = held = 0
    for index, count in enumerate(n_steps):
        if held and held + count > CHUNK_STEPS:
            yield slice(first, index)
            first, held = index, 0
        held += count
    yield slice(first, len(n_steps))


def _steps(
    warehouse: Warehouse, runs: pd.DataFrame, vocabulary: Vocabulary, texts: bool
) -> tuple[StepTable, Ints]:
    """Return the steps of all runs, and the index of the run that each belongs to."""
    import pyarrow as pa

    kept = [*(TEXTS if texts else ()), *NUMBERS, "step"]
    names: dict[str, int] = {}
    tokens, owners, tables = [], [], []
    for chunk in _chunks(runs["n_steps"].tolist()):
        ids = runs["run_id"].iloc[chunk].tolist()
        part = warehouse.sql(_query("cohort_steps"), [ids]).arrow()
        codes, found = vocabulary.tokens(part)
        renamed = np.array([names.setdefault(n, len(names)) for n in found], dtype=np.int32)
        tokens.append(renamed[codes] if len(codes) else codes)
        owners.append(part.column("owner").to_numpy() + (chunk.start or 0))
        tables.append(part.select(kept))
    columns: pa.Table = pa.concat_tables(tables)
    owner = np.concatenate(owners).astype(np.int64)
    return StepTable(np.concatenate(tokens), tuple(names), columns, vocabulary=vocabulary), owner


def _entities(
    warehouse: Warehouse, runs: pd.DataFrame, start: Ints, n_rows: int
) -> tuple[Ints, np.ndarray[Any, np.dtype[np.int32]], tuple[str, ...]]:
    """Return the distinct entities of each step as the rows of a sparse matrix."""
    import pandas as pd

    found = warehouse.sql(_query("cohort_entities"), [runs["run_id"].tolist()]).arrow()
    rows = start[found.column("owner").to_numpy()] + found.column("rank").to_numpy()
    ids, names = pd.factorize(found.column("entity_id").to_pandas(), sort=True)
    order = np.lexsort((ids, rows))
    offsets = np.concatenate(([0], np.cumsum(np.bincount(rows, minlength=n_rows))))
    return offsets.astype(np.int64), ids[order].astype(np.int32), tuple(map(str, names))
