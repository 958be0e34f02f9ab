"""A corpus: the runs of a study as plain Parquet, for queries over all of them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import fsspec
import numpy as np

from sag_research.errors import UsageError, WarehouseError
from sag_research.warehouse.corpus._codes import Codes, chained
from sag_research.warehouse.corpus._layout import TABLES, schema

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Corpus", "CorpusWriter", "about", "write_about"]

_ABOUT: Final = "corpus.json"
_FORMAT: Final = "sag-corpus"
_VERSION: Final = 1


class Corpus:
    """Parquet files of runs and steps as tokens, which DuckDB and Spark read alike.

    Parameters
    ----------
    place : str or path
        A folder, or an address that fsspec knows (``s3://…``, ``gs://…``, ``memory://…``).

    Attributes
    ----------
    place : str
    about : dict
        What ``corpus.json`` says: counts, the vocabulary's version, what was left out.

    Raises
    ------
    WarehouseError
        If there is no corpus, or one that a later version wrote.
    """

    def __init__(self, place: str | Path) -> None:
        self.place = str(place).rstrip("/")
        try:
            with fsspec.open(f"{self.place}/{_ABOUT}", "rt", encoding="utf-8") as file:
                self.about: dict[str, Any] = json.load(file)
        except (OSError, ValueError) as error:
            raise WarehouseError(
                f"no corpus at {self.place}",
                why=f"{_ABOUT} cannot be read",
                fix="write one with Corpus.write(ws, place)",
            ) from error
        if self.about.get("format") != _FORMAT or self.about.get("version") != _VERSION:
            raise WarehouseError(
                f"the corpus at {self.place} is of another version",
                why=f"{self.about.get('format')!r} {self.about.get('version')!r}",
                fix="write it anew",
            )

    def __repr__(self) -> str:
        counts = ", ".join(f"{self.about['rows'][table]:,} {table}" for table in ("runs", "steps"))
        return f"Corpus({self.place!r}, {counts})"

    def folder(self, table: str) -> str:
        """Return the folder of a table's Parquet files."""
        if table not in TABLES:
            raise UsageError(f"a corpus has no table {table!r}", fix=f"one of {', '.join(TABLES)}")
        return f"{self.place}/{table}"

    @property
    def is_remote(self) -> bool:
        """Whether fsspec is needed to read it."""
        return "://" in self.place and not self.place.startswith("file://")


class CorpusWriter:
    """Writes a corpus part by part; it is there, whole, when the block ends.

    Parameters
    ----------
    place : str or path
        A folder that does not exist yet.
    codes : Codes, optional
    left_out : mapping of str to int, optional
        How many runs are not in it, by reason.

    Raises
    ------
    UsageError
        If the folder exists.
    """

    def __init__(
        self,
        place: str | Path,
        codes: Codes | None = None,
        left_out: Mapping[str, int] | None = None,
    ) -> None:
        self.codes = codes or Codes()
        self._place = Path(place)
        if self._place.exists():
            raise UsageError(f"{self._place} exists", fix="name a folder that does not")
        self._partial = self._place.with_name(f"{self._place.name}.partial")
        self._left_out = dict(left_out or {})
        self._rows = dict.fromkeys(TABLES, 0)
        self._parts = 0

    def __enter__(self) -> Self:
        shutil.rmtree(self._partial, ignore_errors=True)
        for table in TABLES:
            (self._partial / table).mkdir(parents=True)
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is not None:
            shutil.rmtree(self._partial, ignore_errors=True)
            return
        if not self._parts:
            self.add({}, {}, {})
        self._write("tokens", self.codes.table(), 0)
        write_about(str(self._partial), about(self.codes, self._rows, self._left_out))
        self._partial.rename(self._place)

    def add(
        self,
        runs: pa.Table | Mapping[str, Any],
        steps: pa.Table | Mapping[str, Any],
        mentions: pa.Table | Mapping[str, Any] | None = None,
    ) -> None:
        """Add a part: runs with all their steps.

        Parameters
        ----------
        runs, mentions : Table or mapping of columns
            As in ``tables.toml``; columns that are not given are NULL.
        steps : Table or mapping of columns
            Likewise, sorted by run and step; ``prefix`` is worked out from the tokens.
        """
        filled = _filled("steps", steps)
        hashes = chained(_numbers(filled, "token"), first_rows(filled))
        place = filled.schema.get_field_index("prefix")
        filled = filled.set_column(place, "prefix", [hashes])
        self._write("runs", _filled("runs", runs), self._parts)
        self._write("steps", filled, self._parts)
        self._write("mentions", _filled("mentions", mentions or {}), self._parts)
        self._parts += 1

    def _write(self, table: str, rows: pa.Table, part: int) -> None:
        import pyarrow.parquet as pq

        file = self._partial / table / f"part-{part:05d}.parquet"
        pq.write_table(rows, file, compression="zstd", row_group_size=131_072)
        self._rows[table] += rows.num_rows


def about(codes: Codes, rows: Mapping[str, int], left_out: Mapping[str, int]) -> dict[str, Any]:
    """Return what ``corpus.json`` says at least."""
    return {
        "format": _FORMAT,
        "version": _VERSION,
        "vocabulary": codes.vocabulary.version,
        "rows": dict(rows),
        "left_out": dict(left_out),
    }


def write_about(place: str, told: Mapping[str, Any]) -> None:
    """Write ``corpus.json``, which makes the Parquet files beside it a corpus."""
    with fsspec.open(f"{place}/{_ABOUT}", "wt", encoding="utf-8", newline="\n") as file:
        file.write(json.dumps(told, indent=2, ensure_ascii=False) + "\n")


def first_rows(steps: pa.Table) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the rows at which the runs of a table of steps begin."""
    return np.flatnonzero(_numbers(steps, "step") == 0)


def _numbers(rows: pa.Table, column: str) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.asarray(rows.column(column).to_numpy(), dtype=np.int64)


def _filled(table: str, given: pa.Table | Mapping[str, Any]) -> pa.Table:
    """Return rows with all columns of a table, in its types."""
    import pyarrow as pa

    rows = given if isinstance(given, pa.Table) else pa.table(dict(given))
    wanted = schema(table)
    columns = []
    for field in wanted:
        if field.name in rows.column_names:
            columns.append(rows.column(field.name).cast(field.type))
        else:
            columns.append(pa.nulls(rows.num_rows, field.type))
    return pa.table(columns, schema=wanted)
