"""Reading labels: reports in all their shapes, results of trials, and tables."""

from __future__ import annotations

import re
from collections import Counter
from os import PathLike
from pathlib import Path
from typing import Any, Final

from sag_research._text import repair
from sag_research.errors import FormatError, LabelError
from sag_research.ingest._json import looks_like_json
from sag_research.ingest._labels_csv import read_csv
from sag_research.ingest._labels_json import in_step, readings
from sag_research.ingest._labels_model import Label, Labels
from sag_research.ingest._labels_shapes import counters, labels_in
from sag_research.ingest._source import Source
from sag_research.ingest._walk import find

__all__ = ["Label", "Labels", "labels_in", "read_labels"]

_LARGEST: Final = 512 * 2**20


def read_labels(path: str | PathLike[str]) -> Labels:
    """Read a label file, or every label file in a folder.

    Parameters
    ----------
    path : path-like
        A SWE-bench style report: one instance or many, lists of ids, or counters beside lists
        (counters are never used); results of Harbor or Terminal-Bench trials; a folder of
        reports; or a CSV with a key column (``path``, ``run_id`` or ``task_id``), ``outcome``,
        and optional ``task_id``, ``model``, ``score``, ``detail`` and ``known_at_step``, or the
        same as JSON records. ``instance_id`` is another name of ``task_id`` and
        ``resolved`` one of ``outcome``, so a CSV ``instance_id,resolved`` works as it is.
        A row is about what the first of its keys names that is filled in. Cells are separated
        by commas, in UTF-8 or in UTF-16 with a byte order mark; an outcome is ``success``,
        ``failure`` or ``unknown``, or one of the usual words for these (``true``, ``0``,
        ``passed``, empty …).

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
    given, the folder's name and the path inside it; where labels are recorded, a second file of
    that name gets more of its path. So a corrected file at the same place takes back what it
    said before, and files at two places that disagree are in conflict. Sources inside
    trajectories, such as ``record``, have no slash in their names.

    Where a file says two things of a run, both are labels: an id in two lists that exclude each
    other, or a JSON key that is repeated with two values, which a note names.

    A row of a CSV that cannot be understood costs that row, and so does a line of a file of
    records that is no JSON; both are listed as refused.

    A missing or null ``resolved`` is unknown, never failure. An empty patch is a failure with
    the detail ``empty``, a patch that does not apply one with ``no-apply``; errors of the harness
    are unknown with the detail ``error``, those of the machines with ``infra``, and what was not
    judged with ``incomplete``.

    Counters are recounted from the ids; where they differ, a note says so. A trial that is there
    twice, because one folder of results was copied into another, is read once.
    """
    found = Labels()
    folder = Path(path)
    for one in find([path]):
        inside = folder.resolve() if folder.is_dir() else folder.resolve().parent
        name = f"{inside.name}/{one.name if folder.is_dir() else folder.resolve().name}"
        try:
            if one.problem:
                raise FormatError(one.problem)
            read = _read_file(Source(one.path), repair(name), found)
            place = folder.resolve() / one.name if folder.is_dir() else folder.resolve()
            found.labels += [label._replace(file=str(place)) for label in read]
        except LabelError as error:
            if one.named:
                raise
            found.notes.append(str(LabelError(error.what, why=error.why)))
        except (FormatError, OSError) as error:
            if one.named:
                raise _no_labels(repair(name), str(error)) from None
            found.notes.append(f"{repair(name)}: {error}")
    _drop_copied_trials(found)
    if not found.labels:
        raise LabelError(
            f"no labels in {str(path)!r}", fix="give a report, a folder of reports, or a CSV"
        )
    return found


def _no_labels(name: str, why: str) -> LabelError:
    return LabelError(f"{name}: no labels in it", why=why, fix="give a report or a CSV")


def _read_file(source: Source, name: str, found: Labels) -> list[Label]:
    if looks_like_json(source.head):
        if source.size > _LARGEST:
            raise _no_labels(name, "too large for a report")
        return _read_json(source, name, found)
    if re.search(r"\.csv(\.(gz|zst))?$", source.path.name, re.IGNORECASE):
        return read_csv(source, name, found.refused)
    raise _no_labels(name, "neither JSON nor CSV")


def _read_json(source: Source, name: str, found: Labels) -> list[Label]:
    try:
        values, twice = readings(source.bytes())
    except FormatError:
        return _read_lines(source, name, found)
    labels = _of_readings(values, name, source)
    if labels is None:
        raise _no_labels(name, "JSON, but no report")
    told = dict.fromkeys(one for value in values for one in counters(value))
    found.notes += [f"{name}: {one}; counted from the ids" for one in told]
    found.notes += [f"{name}: {one}" for one in twice]
    return labels


def _of_readings(values: list[Any], name: str, source: Source) -> list[Label] | None:
    """Read what a file says by each of its readings, once each."""
    found: list[Label] | None = None
    for value in values:
        labels = labels_in(value, name, source.path)
        if labels is not None and found is None:
            found = labels
        elif labels is not None and found is not None:
            known = set(found)
            found += [label for label in labels if label not in known]
    return found


def _read_lines(source: Source, name: str, found: Labels) -> list[Label]:
    """Read records, one a line; a line behind the first that is no JSON costs that line."""
    values: list[list[Any]] = []
    faults, notes = list[str](), list[str]()
    for number, line in enumerate(source.lines(), 1):
        if not line.strip():
            continue
        try:
            read, twice = readings(line)
        except FormatError as error:
            if not values:
                raise
            faults.append(f"{name} line {number}: {error}")
        else:
            values.append(read)
            notes += [f"{name} line {number}: {one}" for one in twice]
    labels = _of_readings(in_step(values), name, source)
    if labels is None:
        raise _no_labels(name, faults[0] if faults else "JSON, but no report")
    found.refused += faults
    found.notes += notes
    return labels


def _drop_copied_trials(found: Labels) -> None:
    """Keep the first label of a trial that several files hold in the same words."""
    first: dict[tuple[str, str, str | None], str] = {}
    kept, dropped = [], Counter[tuple[str, str]]()
    for label in found.labels:
        said = label.outcome
        if label.trial is None:
            kept.append(label)
            continue
        source = first.setdefault((label.trial, said.outcome, said.detail), said.source)
        if source == said.source:
            kept.append(label)
        else:
            dropped[said.source, source] += 1
    found.labels = kept
    found.notes += [
        f"{copy}: {count} trial{'s' * (count > 1)} known from {source} already"
        for (copy, source), count in dropped.items()
    ]
