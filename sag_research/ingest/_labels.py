"""Reading labels: SWE-bench style reports in all their shapes, and CSV."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from sag_research._text import clip, repair
from sag_research.errors import FormatError, LabelError
from sag_research.ingest._json import loads, looks_like_json
from sag_research.ingest._source import Source
from sag_research.ingest._walk import find
from sag_research.ingest.formats._shared import integer, number, word
from sag_research.model import Outcome, OutcomeName

__all__ = ["Label", "Labels", "labels_in", "read_labels"]

KeyKind: TypeAlias = Literal["task_id", "run_id", "path"]


class Label(NamedTuple):
    """What one source says of one run, task or file."""

    kind: KeyKind
    key: str
    outcome: Outcome
    task_id: str | None = None
    """Narrows a path that holds several tasks."""
    model: str | None = None
    exact: bool = False
    """The model must be the run's model; else it only tells runs of one task apart."""
    place: str = ""
    """Where in its source it stands, e.g. ``line 4``; empty if the key says it all."""


class Labels:
    """The labels of a file or folder, in the order of the files.

    Attributes
    ----------
    labels : list of Label
    notes : list of str
        Files without labels, and what could not be read.
    refused : list of str
        Rows of a CSV that cannot be understood, with file and line.
    """

    def __init__(
        self,
        labels: Iterable[Label] = (),
        notes: Iterable[str] = (),
        refused: Iterable[str] = (),
    ) -> None:
        self.labels = list(labels)
        self.notes = list(notes)
        self.refused = list(refused)

    def __len__(self) -> int:
        return len(self.labels)

    def __iter__(self) -> Iterator[Label]:
        return iter(self.labels)

    def __repr__(self) -> str:
        counts = Counter(label.outcome.outcome for label in self.labels)
        known = ", ".join(f"{counts[name]} {name}" for name in ("success", "failure", "unknown"))
        sources = len({label.outcome.source for label in self.labels})
        return f"Labels({len(self)} labels: {known}; {sources} files)"


_LARGEST: Final = 512 * 2**20


def read_labels(path: str | PathLike[str]) -> Labels:
    """Read a label file, or every label file in a folder.

    Parameters
    ----------
    path : path-like
        A SWE-bench style report: one instance or many, lists of ids, or counters beside lists
        (counters are never used); a folder of reports; or a CSV with a key column (``path``,
        ``run_id`` or ``task_id``), ``outcome``, and optional ``task_id``, ``model``, ``score``,
        ``detail`` and ``known_at_step``. ``instance_id`` is another name of ``task_id`` and
        ``resolved`` one of ``outcome``, so a CSV ``instance_id,resolved`` works as it is.
        Cells are separated by commas; an outcome is ``success``, ``failure`` or ``unknown``,
        or one of the usual words for these (``true``, ``0``, ``passed``, empty …).

    Raises
    ------
    LabelError
        If nothing in it can be understood as labels, or a CSV has two columns of one meaning
        that disagree; says the file, and the line of a CSV.
    UsageError
        If the path does not exist.

    Notes
    -----
    A label's source is the file's folder and name, as in ``r1/results.json``; of a folder that is
    given, the folder's name and the path inside it. So a corrected file at the same place takes
    back what it said before, and files at two places that disagree are in conflict. Sources
    inside trajectories, such as ``record``, have no slash in their names.

    A row of a CSV that cannot be understood costs that row, and is listed as refused.

    A missing or null ``resolved`` is unknown, never failure. An empty patch is a failure with
    the detail ``empty``; errors of the harness are unknown with the detail ``error``.
    """
    found = Labels()
    folder = Path(path)
    for one in find([path]):
        inside = folder.resolve() if folder.is_dir() else folder.resolve().parent
        name = f"{inside.name}/{one.name if folder.is_dir() else folder.resolve().name}"
        try:
            if one.problem:
                raise FormatError(one.problem)
            found.labels.extend(_read_file(Source(one.path), repair(name), found.refused))
        except LabelError as error:
            if one.named:
                raise
            found.notes.append(str(LabelError(error.what, why=error.why)))
        except (FormatError, OSError) as error:
            if one.named:
                raise _no_labels(repair(name), str(error)) from None
            found.notes.append(f"{repair(name)}: {error}")
    if not found.labels:
        raise LabelError(
            f"no labels in {str(path)!r}", fix="give a report, a folder of reports, or a CSV"
        )
    return found


def _no_labels(name: str, why: str) -> LabelError:
    return LabelError(f"{name}: no labels in it", why=why, fix="give a report or a CSV")


def _read_file(source: Source, name: str, refused: list[str]) -> list[Label]:
    if looks_like_json(source.head):
        if source.size > _LARGEST:
            raise _no_labels(name, "too large for a report")
        return _read_json(source, name)
    if re.search(r"\.csv(\.(gz|zst))?$", source.path.name, re.IGNORECASE):
        return _read_csv(source, name, refused)
    raise _no_labels(name, "neither JSON nor CSV")


# ---- reports


def _read_json(source: Source, name: str) -> list[Label]:
    try:
        values = [loads(source.bytes())]
    except FormatError:
        lines = [line for line in source.lines() if line.strip()]
        if len(lines) < 2:
            raise
        values = [[loads(line) for line in lines]]
    labels = labels_in(values[0], name, source.path)
    if labels is None:
        raise _no_labels(name, "JSON, but no report")
    return labels


class _Verdict(NamedTuple):
    outcome: OutcomeName
    detail: str | None = None


_SUCCESS: Final = _Verdict("success")
_FAILURE: Final = _Verdict("failure")
_EMPTY: Final = _Verdict("failure", "empty")
_ERROR: Final = _Verdict("unknown", "error")
_UNKNOWN: Final = _Verdict("unknown")

_LISTS: Final[tuple[tuple[str, _Verdict], ...]] = (
    (r"resolved", _SUCCESS),
    (r"error|failed|install_fail|reset_failed|no_logs|test_errored|test_timeout", _ERROR),
    (r"infra|infrastructure_error", _Verdict("unknown", "infra")),
    (r"incomplete|pending", _Verdict("unknown", "incomplete")),
    (r"empty_patch|empty_error_patch|no_generation", _EMPTY),
    (r"no_apply", _Verdict("failure", "no-apply")),
    (r"unresolved", _FAILURE),
    (r"completed|generated|with_logs|applied", _FAILURE),
)
"""What it means to stand in a list of this name; of several, the first is believed."""


def labels_in(value: Any, name: str, path: Path) -> list[Label] | None:
    """Read a report that was decoded; None if it is none.

    Parameters
    ----------
    value : object
        The decoded JSON.
    name : str
        The label source's name.
    path : Path
        Where the file is: the report of one instance may be named after it.
    """
    if isinstance(value, list):
        return _of_records(value, name)
    if not isinstance(value, dict):
        return None
    if (lists := _id_lists(value)) is not None:
        return _of_lists(lists, name, _model(value))
    if "resolved" in value and _is_flag(value["resolved"]):
        return [_of_instance(_own_id(value, path), value, name)]
    if isinstance(value.get("instances"), list):
        return _of_records(value["instances"], name)
    return _of_mapping(value, name)


def _is_flag(value: Any) -> bool:
    return value is None or isinstance(value, bool) or (type(value) is int and value in (0, 1))


def _verdict(value: Any) -> _Verdict:
    if value is None:
        return _UNKNOWN
    return _SUCCESS if value else _FAILURE


def _label(task_id: str, verdict: _Verdict, name: str, model: str | None = None) -> Label:
    outcome = Outcome(outcome=verdict.outcome, detail=verdict.detail, source=name)
    return Label("task_id", task_id, outcome, model=model)


def _model(value: dict[str, Any]) -> str | None:
    return next(
        filter(None, (word(value.get(key)) for key in ("model_name_or_path", "model"))), None
    )


def _id(value: Any) -> str | None:
    """Return an id as text; whole numbers are ids too."""
    return str(value) if type(value) is int else word(value)


def _own_id(value: dict[str, Any], path: Path) -> str:
    """Find the instance in the report, in its file's name, or in its folder's."""
    named = _id(value.get("instance_id"))
    stem = re.sub(r"(\.(gz|zst|json|report))+$", "", path.name)
    return named or (stem if stem not in ("report", "results") else path.absolute().parent.name)


def _of_instance(task_id: str, value: dict[str, Any], name: str) -> Label:
    verdict = _verdict(value["resolved"])
    no_patch = value.get("patch_is_None") is True or value.get("patch_exists") is False
    if no_patch and verdict is _FAILURE:
        verdict = _EMPTY
    return _label(task_id, verdict, name, _model(value))


def _of_records(values: list[Any], name: str) -> list[Label] | None:
    """Read a list of ``{"instance_id", "resolved"}``; other entries make it no report."""
    labels = []
    for value in values:
        if not isinstance(value, dict) or not _is_flag(value.get("resolved", "absent")):
            return None
        if not (task_id := _id(value.get("instance_id"))):
            return None
        labels.append(_of_instance(task_id, value, name))
    return labels or None


def _of_mapping(value: dict[str, Any], name: str) -> list[Label] | None:
    """Read ``{id: {"resolved": …}}``; other objects make it no report, counters do not."""
    labels = []
    for task_id, said in value.items():
        if not isinstance(said, (dict, list)):
            continue
        if not isinstance(said, dict) or not _is_flag(said.get("resolved", "absent")):
            return None
        labels.append(_of_instance(task_id, said, name))
    return labels or None


def _id_lists(value: dict[str, Any]) -> dict[str, list[str]] | None:
    """Find the lists of ids of an aggregate report, by their status; counters are passed over."""
    lists: dict[str, list[str]] = {}
    for key, ids in value.items():
        status = re.sub(r"^ids_|_ids$", "", key)
        if isinstance(ids, list) and any(re.fullmatch(names, status) for names, _ in _LISTS):
            lists.setdefault(status, []).extend(filter(None, map(_id, ids)))
    return lists if {"resolved", "unresolved"} & set(lists) else None


def _of_lists(lists: dict[str, list[str]], name: str, model: str | None) -> list[Label]:
    """Recount from the ids. An id that is both resolved and unresolved gives both labels."""
    statuses: dict[str, set[str]] = {}
    for status, ids in lists.items():
        for task_id in ids:
            statuses.setdefault(task_id, set()).add(status)
    labels = []
    for task_id, found in statuses.items():
        labels.append(_label(task_id, _first_verdict(found), name, model))
        if {"resolved", "unresolved"} <= found:
            labels.append(_label(task_id, _FAILURE, name, model))
    return labels


def _first_verdict(statuses: set[str]) -> _Verdict:
    return next(
        verdict
        for names, verdict in _LISTS
        if any(re.fullmatch(names, status) for status in statuses)
    )


# ---- CSV

_WORDS: Final[dict[str, _Verdict]] = {
    **dict.fromkeys(("success", "true", "1", "pass", "passed", "resolved", "yes"), _SUCCESS),
    **dict.fromkeys(("failure", "false", "0", "fail", "failed", "unresolved", "no"), _FAILURE),
    **dict.fromkeys(("unknown", "", "null", "none", "nan", "na", "n/a"), _UNKNOWN),
    "empty": _EMPTY,
    "error": _ERROR,
    "infra": _Verdict("unknown", "infra"),
}
_ALIASES: Final = {"instance_id": "task_id", "resolved": "outcome"}
_COLUMNS: Final = (
    "path", "run_id", "task_id", "instance_id", "outcome", "resolved", "model", "score", "detail",
    "known_at_step",
)  # fmt: skip
_MARKS: Final = ((";", "semicolons"), ("\t", "tabs"), ("|", "bars"))
_KEYS: Final[tuple[KeyKind, ...]] = ("run_id", "path", "task_id")


def _read_csv(source: Source, name: str, refused: list[str]) -> list[Label]:
    text = source.bytes().decode("utf-8-sig", "surrogateescape")
    faults: list[LabelError] = []
    rows, names = _rows(repair(text), name, faults)
    columns = {_ALIASES.get(column, column) for column in names}
    kind: KeyKind | None = next((key for key in _KEYS if key in columns), None)
    if kind is None or "outcome" not in columns:
        raise _without_columns(name, names)
    _refuse_twins(names, rows, name)
    labels = []
    for line, row in rows:
        try:
            labels.append(_of_row(_cells(row), kind, name, line))
        except LabelError as error:
            faults.append(error)
    if faults and not labels:
        raise faults[0]
    refused += map(str, faults)
    return labels


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


def _of_row(row: dict[str, str], kind: KeyKind, name: str, line: int) -> Label:
    said = row["outcome"].lower()
    if said not in _WORDS:
        raise LabelError(
            f"{name} line {line}: {clip(row['outcome'], 60)!r} is no outcome",
            fix="use success, failure or unknown",
        )
    verdict = _WORDS[said]
    where = f"{name} line {line}"
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
    return Label(kind, row[kind], outcome, task_id, model, exact=True, place=f"line {line}")


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
