"""Runs as traces: what every export of an event log writes, read in small portions."""

from __future__ import annotations

import datetime as dt
import gzip
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from os import PathLike
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeAlias, cast

from sag_research._text import atomic_write
from sag_research.errors import NotEnoughDataError
from sag_research.extract import Vocabulary

if TYPE_CHECKING:
    import pyarrow as pa

    from sag_research.warehouse import QueryResult

__all__ = [
    "TEXTS",
    "ExportReport",
    "Queryable",
    "Trace",
    "opened",
    "taken",
    "token_parts",
    "traces",
]

CHUNK_STEPS: Final = 2_000
"""Steps whose texts are held at once."""

TEXTS: Final = ("thought", "action", "observation")

Parameters: TypeAlias = Sequence[Any] | Mapping[str, Any] | None


class Queryable(Protocol):
    """What runs are read from: a workspace, or a warehouse."""

    def sql(self, query: str, parameters: Parameters = None, /) -> QueryResult:
        """Answer a query over the views."""
        ...


class Trace(NamedTuple):
    """One run, as process mining sees it: a case with its events in order."""

    case: Mapping[str, Any]
    """The case's attributes: ``run_id``, and as far as known ``task_id outcome detail
    known_at_step exit_status dataset repo agent model attempt n_steps tokens_in tokens_out
    cost_usd``."""
    events: Sequence[Mapping[str, Any]]
    """One mapping a step: ``token``, and as far as known ``step tool exit_code seconds tokens_in
    tokens_out cost_usd started_at`` and the texts ``thought action observation``."""


@dataclass
class ExportReport:
    """What an export wrote, and what it had to change.

    Attributes
    ----------
    path : pathlib.Path
    format : str
    runs, steps : int
    without_time : int
        Steps whose time is unknown: they have their place in the order, and no timestamp.
    replaced : int
        Characters that the format cannot hold, replaced by U+FFFD.
    guarded : int
        Cells of a CSV file that a spreadsheet would take for a formula, written after an
        apostrophe.

    Examples
    --------
    >>> ExportReport(Path("log.xes"), "xes", runs=2, steps=9, without_time=9)
    ExportReport(xes: 2 runs, 9 steps, 9 without time, 0 characters replaced)
    """

    path: Path
    format: str
    runs: int = 0
    steps: int = 0
    without_time: int = 0
    replaced: int = 0
    guarded: int = 0

    def __repr__(self) -> str:
        guarded = f", {self.guarded:,} cells guarded" if self.guarded else ""
        return (
            f"ExportReport({self.format}: {self.runs:,} runs, {self.steps:,} steps, "
            f"{self.without_time:,} without time, {self.replaced:,} characters replaced{guarded})"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain values."""
        names = ("format", "runs", "steps", "without_time", "replaced", "guarded")
        return {"path": str(self.path)} | {name: getattr(self, name) for name in names}


def traces(
    source: Queryable,
    where: str = "true",
    parameters: Parameters = None,
    *,
    vocabulary: Vocabulary | None = None,
    texts: bool = False,
) -> Iterator[Trace]:
    """Read runs as traces, a few at a time.

    Forks, extractions, copies and hidden runs are left out, as in a cohort for statistics: what a
    fork inherited would count twice. So are steps that were copied from another run.
    Runs without steps are kept; they have no events.

    Parameters
    ----------
    source : Workspace or Warehouse
    where : str
        An SQL condition on the view ``runs``.
    parameters : sequence or mapping, optional
        Values for the condition.
    vocabulary : Vocabulary, optional
        How steps become activities; default: the shipped one.
    texts : bool
        Whether events carry their texts.

    Yields
    ------
    Trace
    """
    vocabulary = vocabulary or Vocabulary()
    cases = source.sql(_query("traces").replace("{where}", where), parameters)
    if not len(cases):
        raise NotEnoughDataError(
            "no run to export",
            why="forks, extractions, copies and hidden runs are left out",
            fix="see ws.runs(where=…)",
        )
    rows = [dict(zip(cases.columns, row, strict=True)) for row in cases.rows()]
    for chunk in _chunks(rows):
        found = source.sql(_query("trace_events"), [[case["run_id"] for case in chunk]]).arrow()
        by_run = _events(found, vocabulary, texts)
        for case in chunk:
            yield Trace(case, by_run.get(case["run_id"], []))


def _query(name: str) -> str:
    return files("sag_research.exchange").joinpath(f"{name}.sql").read_text(encoding="utf-8")


def _chunks(cases: Sequence[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    chunk: list[dict[str, Any]] = []
    held = 0
    for case in cases:
        if chunk and held + case["n_steps"] > CHUNK_STEPS:
            yield chunk
            chunk, held = [], 0
        chunk.append(case)
        held += case["n_steps"]
    if chunk:
        yield chunk


def _events(rows: pa.Table, vocabulary: Vocabulary, texts: bool) -> dict[str, list[dict[str, Any]]]:
    """Return the events of each run, tokens instead of texts unless these are wanted."""
    codes, names = vocabulary.tokens(rows)
    dropped = {"flags", "n_calls"} | set(() if texts else TEXTS)
    kept = [name for name in rows.column_names if name not in dropped]
    by_run: dict[str, list[dict[str, Any]]] = {}
    for code, event in zip(codes, rows.select(kept).to_pylist(), strict=True):
        event["token"] = names[code]
        by_run.setdefault(event.pop("run_id"), []).append(event)
    return by_run


def taken(
    source: Queryable | Iterable[Trace],
    where: str,
    parameters: Parameters,
    vocabulary: Vocabulary | None,
    texts: bool,
) -> Iterator[Trace]:
    """Return the traces of a workspace, or the given ones as they are."""
    if isinstance(source, Iterable):
        return iter(source)
    return traces(source, where, parameters, vocabulary=vocabulary, texts=texts)


@contextmanager
def opened(path: str | PathLike[str]) -> Iterator[IO[bytes]]:
    """Open a file to be written whole or not at all, compressed if its name ends in ``.gz``."""
    with atomic_write(path) as file:
        if Path(path).suffix != ".gz":
            yield file
            return
        # neither name nor time in the header: the same data gives the same bytes
        with gzip.GzipFile("", "wb", compresslevel=6, fileobj=file, mtime=0) as packed:
            yield cast("IO[bytes]", packed)


def token_parts(token: str) -> dict[str, str]:
    """Return verb, object and result of a token, ``none`` for a part that it does not have.

    Examples
    --------
    >>> token_parts("look|src")
    {'verb': 'look', 'object': 'src', 'result': 'none'}
    """
    parts = [*token.split("|", 2), "none", "none"]
    return dict(zip(("verb", "object", "result"), parts, strict=False))


def utc(value: dt.datetime) -> str:
    """Write a time as ISO 8601 in UTC with milliseconds; one without a zone is UTC already.

    Examples
    --------
    >>> utc(dt.datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=dt.UTC))
    '2026-01-02T03:04:05.678+00:00'
    """
    aware = value.replace(tzinfo=dt.UTC) if value.tzinfo is None else value.astimezone(dt.UTC)
    return aware.isoformat(timespec="milliseconds")
