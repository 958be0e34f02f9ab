"""Three Parquet tables with a card: what is published as a data set."""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from importlib.resources import files
from os import PathLike
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

import msgspec

from sag_research._text import atomic_write, made_folder
from sag_research.exchange._card import Shown, card
from sag_research.exchange._round import InterchangeReport, Recorded, Whole, whole_runs
from sag_research.exchange._traces import Parameters

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

__all__ = ["export_parquet", "parquet_columns"]

_ROWS: Final = 2_000
_BYTES: Final = 32 * 2**20
"""Rows, and bytes of text, that a group of rows is made of at most, or one run if it is larger."""
_LABEL: Final = {
    "outcome": "outcome", "detail": "outcome_detail", "score": "outcome_score",
    "source": "outcome_source", "known_at_step": "outcome_known_at_step",
}  # fmt: skip
_PLAIN: Final = (
    "task_id", "goal", "dataset", "repo", "agent", "model", "attempt", "end", "exit_status",
    "submission",
)  # fmt: skip


def export_parquet(
    source: Recorded,
    folder: str | PathLike[str],
    *,
    where: str = "true",
    parameters: Parameters = None,
    title: str = "",
    licence: str = "unknown",
    redacted: bool = False,
) -> InterchangeReport:
    """Write runs as three Parquet tables, with a card that the Hugging Face hub reads.

    ``runs.parquet``, ``steps.parquet`` and ``calls.parquet`` are read by DuckDB or pandas alone,
    and ``README.md`` says what is in them. ``sag ingest FOLDER`` reads them back. Memory holds
    one run and a few thousand rows.

    Parameters
    ----------
    source : Workspace
    folder : path-like
        Made if it does not exist; the four files in it are replaced.
    where, parameters
        An SQL condition on the view ``runs``, and its values. Hidden runs, copies and extractions
        are left out.
    title : str
        Of the card; the folder's name by default.
    licence : str
        As the hub abbreviates it, e.g. ``mit`` or ``cc-by-4.0``.
    redacted : bool
        Whether secrets were replaced in ``source`` before; the card says so.

    Returns
    -------
    InterchangeReport

    Raises
    ------
    NotEnoughDataError
        If there is no run to export.
    """
    folder = Path(folder)
    report = InterchangeReport(folder, "parquet")
    shown = Shown(title or folder.resolve().name, licence, redacted, where)
    found = whole_runs(source, where, parameters, report)
    first = next(found)
    made_folder(folder)
    with _tables(folder) as tables:
        for whole in _with(first, found):
            shown.count(whole)
            for name, rows in _rows(whole).items():
                tables[name].extend(rows)
    for name in parquet_columns():
        shown.files[f"{name}.parquet"] = _digest(folder / f"{name}.parquet")
    text = card(shown, report, parquet_columns())
    with atomic_write(folder / "README.md") as file:
        file.write(text.encode())
    return report


def _with(first: Whole, rest: Iterator[Whole]) -> Iterator[Whole]:
    yield first
    yield from rest


@cache
def parquet_columns() -> dict[str, dict[str, list[str]]]:
    """Return the columns of each table: type, and what it says."""
    place = files("sag_research.exchange").joinpath("parquet_columns.toml")
    return tomllib.loads(place.read_text(encoding="utf-8"))


@contextmanager
def _tables(folder: Path) -> Iterator[dict[str, _Table]]:
    with ExitStack() as held:
        tables = {
            name: _Table(held.enter_context(atomic_write(folder / f"{name}.parquet")), columns)
            for name, columns in parquet_columns().items()
        }
        yield tables
        for table in tables.values():
            table.close()


class _Table:
    """One file while it is written."""

    def __init__(self, file: IO[bytes], columns: Mapping[str, Sequence[str]]) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        kinds = {"string": pa.string(), "int64": pa.int64(), "double": pa.float64(),
                 "list": pa.list_(pa.string())}  # fmt: skip
        self._schema: pa.Schema = pa.schema(
            [(name, kinds[one[0]]) for name, one in columns.items()]
        )
        self._writer: pq.ParquetWriter = pq.ParquetWriter(file, self._schema, compression="zstd")
        self._rows: list[dict[str, Any]] = []
        self._bytes = 0

    def extend(self, rows: Sequence[dict[str, Any]]) -> None:
        """Add rows, and write them in groups."""
        for row in rows:
            size = sum(4 * len(value) for value in row.values() if isinstance(value, str))
            if len(self._rows) >= _ROWS or (self._rows and self._bytes + size > 4 * _BYTES):
                self._write()
            self._rows.append(row)
            self._bytes += size

    def _write(self) -> None:
        import pyarrow as pa

        self._writer.write_table(pa.Table.from_pylist(self._rows, schema=self._schema))
        self._rows, self._bytes = [], 0

    def close(self) -> None:
        """Write what is left, and the file's end."""
        if self._rows:
            self._write()
        self._writer.close()


def _rows(whole: Whole) -> dict[str, list[dict[str, Any]]]:
    record, label = whole.record, whole.record.get("outcome") or {}
    run = {name: record.get(name) for name in _PLAIN}
    run |= {column: label.get(name) for name, column in _LABEL.items()}
    run |= record.get("usage") or {}
    run |= {
        "run_id": whole.run_id,
        "n_steps": len(whole.steps),
        "config": _json(record.get("config")),
        "source_format": whole.format or None,
        "digest": whole.digest,
    }
    found: dict[str, list[dict[str, Any]]] = {"runs": [run], "steps": [], "calls": []}
    for number, step in enumerate(whole.steps):
        place = {"run_id": whole.run_id, "step": number}
        about = {name: value for name, value in step.items() if name not in ("calls", "usage")}
        about |= {"state": _json(step.get("state")), "n_calls": len(step["calls"])}
        found["steps"].append(place | about | (step.get("usage") or {}))
        found["calls"] += [
            place | call | {"call": at, "arguments": _json(call["arguments"])}
            for at, call in enumerate(step["calls"])
        ]
    return found


def _json(value: Any) -> str | None:
    return None if value is None else msgspec.json.encode(value).decode()


def _digest(path: Path) -> tuple[int, str]:
    """Return a file's size and SHA-256."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return path.stat().st_size, digest
