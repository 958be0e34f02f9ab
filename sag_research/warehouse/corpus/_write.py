"""From a warehouse to a corpus, a stretch of runs at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sag_research.warehouse.corpus._codes import Codes
from sag_research.warehouse.corpus._corpus import Corpus, CorpusWriter

if TYPE_CHECKING:
    import pandas as pd

    from sag_research.warehouse._warehouse import Warehouse

__all__ = ["write_corpus"]

_CHUNK: Final = 100_000
"""Steps whose texts are held at once while they become tokens."""


def write_corpus(
    warehouse: Warehouse,
    place: str | Path,
    where: str = "true",
    parameters: Sequence[Any] | Mapping[str, Any] | None = None,
    codes: Codes | None = None,
) -> Corpus:
    """Write the runs that answer to an SQL condition as a corpus.

    Left out, and counted in ``about["left_out"]``: forks, extractions, copies and hidden runs,
    which would count twice or not at all, and runs without steps.

    Parameters
    ----------
    warehouse : Warehouse
    place : str or path
        A folder that does not exist yet.
    where : str
        A condition over the view ``runs``.
    parameters : sequence or mapping, optional
        Values for the condition.
    codes : Codes, optional
        Of the vocabulary that turns steps into tokens; the shipped one by default.

    Raises
    ------
    UsageError
        If the folder exists.
    """
    found = warehouse.sql(_query("from_runs").replace("{where}", where), parameters).df()
    reason = found.pop("left_out")
    left_out = {str(name): int(n) for name, n in reason.value_counts(sort=False).items()}
    runs = found[reason.isna()].reset_index(drop=True)
    with CorpusWriter(place, codes, left_out) as writer:
        for chunk in _chunks(runs["n_steps"].tolist()):
            _add(warehouse, writer, runs.iloc[chunk])
    return Corpus(place)


def _add(warehouse: Warehouse, writer: CorpusWriter, runs: pd.DataFrame) -> None:
    import pyarrow as pa

    ids = [runs["run_id"].tolist()]
    steps = warehouse.sql(_query("from_steps"), ids).arrow()
    steps = steps.append_column("token", pa.array(writer.codes.of_steps(steps)))
    mentions = warehouse.sql(_query("from_mentions"), ids).arrow()
    writer.add(pa.Table.from_pandas(runs, preserve_index=False), steps, mentions)


def _query(name: str) -> str:
    return files(__package__).joinpath(f"{name}.sql").read_text(encoding="utf-8")


def _chunks(n_steps: Sequence[int]) -> Iterator[slice]:
    first = held = 0
    for index, count in enumerate(n_steps):
        if held and held + count > _CHUNK:
            yield slice(first, index)
            first, held = index, 0
        held += count
    yield slice(first, len(n_steps))
