"""Labels from tables: CSV, and JSON records of the same columns."""

from __future__ import annotations

import codecs
import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from sag_research._text import clip, repair
from sag_research.errors import LabelError
from sag_research.ingest._labels_model import (
    EMPTY,
    ERROR,
    FAILURE,
    INFRA,
    SUCCESS,
    UNKNOWN,
    KeyKind,
    Label,
    Verdict,
    is_flag,
)
from sag_research.ingest._source import Source
from sag_research.ingest.formats._shared import integer, number
from sag_research.model import Outcome

__all__ = ["of_table", "read_csv"]

_WORDS: Final[dict[str, Verdict]] = {
    **dict.fromkeys(("success", "true", "1", "1.0", "pass", "passed", "resolved", "yes"), SUCCESS),
    **dict.fromkeys(
        ("failure", "false", "0", "0.0", "fail", "failed", "unresolved", "no"), FAILURE
    ),
    **dict.fromkeys(("unknown", "", "null", "none", "nan", "na", "n/a"), UNKNOWN),
    "empty": EMPTY,
    "error": ERROR,
    "infra": INFRA,
}
_ALIASES: Final = {"instance_id": "task_id", "resolved": "outcome"}
_COLUMNS: Final = (
    "path", "run_id", "task_id", "instance_id", "outcome", "resolved", "model", "score", "detail",
    "known_at_step",
)  # fmt: skip
_MARKS: Final = ((";", "semicolons"), ("\t", "tabs"), ("|", "bars"))
_KEYS: Final[tuple[KeyKind, ...]] = ("run_id", "path", "task_id")


def read_csv(source: Source, name: str, refused: list[str]) -> list[Label]:
    """Read a CSV; rows that cannot be understood are added to ``refused``.

    Raises
    ------
    LabelError
        If it lacks a column, two columns disagree, or no row can be understood.
    """
    faults: list[LabelError] = []
    rows, names = _rows(_text(source.bytes()), name, faults)
    columns = {_ALIASES.get(column, column) for column in names}
    if not columns.intersection(_KEYS) or "outcome" not in columns:
        raise _without_columns(name, names)
    _refuse_twins(names, rows, name)
    labels = []
    for line, row in rows:
        cells = _cells(row)
        if not any(cells.values()):
            continue  # spreadsheets leave such rows behind
        try:
            labels.append(
                _of_row(cells, _key_of(cells, f"{name} line {line}"), name, f"line {line}")
            )
        except LabelError as error:
            faults.append(error)
    if faults and not labels:
        raise faults[0]
    refused += map(str, faults)
    return labels


def _text(data: bytes) -> str:
    """Decode a table: UTF-8, or UTF-16 where the first bytes say so."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return repair(data.decode("utf-16", "replace"))
    return repair(data.decode("utf-8-sig", "surrogateescape"))


def _key_of(cells: Mapping[str, str], where: str) -> KeyKind:
    """Tell which cell names what a row is about: the first of the keys that is filled in."""
    for key in _KEYS:
        if cells.get(key):
            return key
    raise LabelError(f"{where}: names no run", fix=f"fill in one of {', '.join(_KEYS)}")


def of_table(values: Sequence[Any], name: str) -> list[Label] | None:
    """Read JSON records with the columns of a CSV; None if they are something else.

    A record that names its outcome in a word that is none makes it something else, and so does
    one that holds more than plain values, as runs do.
    """
    labels = []
    for place, value in enumerate(values):
        if not isinstance(value, Mapping) or not _is_said(value.get("outcome", [])):
            return None
        if any(isinstance(one, (dict, list)) for one in value.values()):
            return None  # a run that says its outcome, or another record
        row = {key: _cell(value[key]) for key in _COLUMNS if key in value}
        kind: KeyKind | None = next((key for key in _KEYS if row.get(key)), None)
        if kind is None or row["outcome"].lower() not in _WORDS:
            return None
        labels.append(_of_row(row, kind, name, f"record {place}"))
    return labels or None


def _is_said(value: Any) -> bool:
    return isinstance(value, str) or is_flag(value)


def _cell(value: Any) -> str:
    return "" if value is None else str(value).strip()


_Row: TypeAlias = tuple[int, dict[str, Any]]
"""The number of a row's last line, and its cells by column."""


def _rows(text: str, name: str, faults: list[LabelError]) -> tuple[list[_Row], list[str]]:
    """Read the rows that can be read, and the names of the columns."""
    reader = csv.DictReader(io.StringIO(text, newline=""), restkey="", restval="")
    rows: list[_Row] = []
    try:
        names = [column.strip() for column in reader.fieldnames or ()]
    except csv.Error as error:
        raise LabelError(f"{name} line 1: a damaged CSV", why=str(error)) from None
    while True:
        try:
            row = next(reader)
        except StopIteration:
            return rows, names
        except csv.Error as error:
            where = f"{name} line {reader.reader.line_num}"  # its own number lags behind
            faults.append(LabelError(f"{where}: a damaged CSV", why=str(error)))
        else:
            rows.append((reader.line_num, row))


def _refuse_twins(names: Sequence[str], rows: Sequence[_Row], name: str) -> None:
    """Refuse a CSV in which two columns answer one question, unless they agree."""
    twice = [column for column in _COLUMNS if names.count(column) > 1]
    if twice:
        raise LabelError(f"{name} line 1: the column {twice[0]} is there twice", fix="keep one")
    for alias, column in _ALIASES.items():
        if not {alias, column} <= set(names):
            continue
        for line, row in rows:
            cells = {key.strip(): cell for key, cell in row.items() if isinstance(cell, str)}
            if _meaning(cells[alias]) != _meaning(cells[column]):
                raise LabelError(
                    f"{name} line {line}: the columns {column} and {alias} disagree",
                    fix="keep one of them",
                )


def _meaning(cell: str) -> str:
    verdict = _WORDS.get(cell.strip().lower())
    return cell.strip() if verdict is None else verdict.outcome


def _without_columns(name: str, found: Sequence[str]) -> LabelError:
    header = ",".join(found)
    mark = next((one for one, _ in _MARKS if one in header), None)
    hint = f"; separate the cells by commas, not by {dict(_MARKS)[mark]}" if mark else ""
    columns = ", ".join(clip(column, 40) for column in found[:20]) or "none"
    return LabelError(
        f"{name} line 1: a CSV without the columns it needs",
        why=f"found: {columns}",
        fix="needed are path, run_id or task_id (also called instance_id),"
        f" and outcome (also called resolved){hint}",
    )


def _cells(row: dict[str, Any]) -> dict[str, str]:
    """Name the columns as they are documented; surplus cells are dropped."""
    return {
        _ALIASES.get(column.strip(), column.strip()): cell.strip()
        for column, cell in row.items()
        if isinstance(cell, str)
    }


def _of_row(row: dict[str, str], kind: KeyKind, name: str, place: str) -> Label:
    said = row["outcome"].lower()
    if said not in _WORDS:
        raise LabelError(
            f"{name} {place}: {clip(row['outcome'], 60)!r} is no outcome",
            fix="use success, failure or unknown",
        )
    verdict = _WORDS[said]
    where = f"{name} {place}"
    step = _number_in(row, "known_at_step", where)
    outcome = Outcome(
        outcome=verdict.outcome,
        detail=row.get("detail") or verdict.detail,
        score=_number_in(row, "score", where),
        source=name,
        known_at_step=None if step is None else integer(step),
    )
    task_id = row.get("task_id") or None
    model = row.get("model") or None
    return Label(kind, row[kind], outcome, task_id, model, exact=True, place=place)


def _number_in(row: dict[str, str], column: str, where: str) -> float | None:
    cell = row.get(column, "")
    if not cell:
        return None
    try:
        found = number(float(cell))
    except ValueError:
        found = None
    if found is None or (column == "known_at_step" and (found < 0 or found != int(found))):
        raise LabelError(
            f"{where}: {clip(cell, 60)!r} is no {column}", fix="write a number or nothing"
        )
    return found
