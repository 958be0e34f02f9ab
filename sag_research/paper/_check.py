"""Running a study again, elsewhere, and saying what came out differently."""

from __future__ import annotations

import csv
import io
import tempfile
from collections.abc import Iterator, Mapping
from os import PathLike
from pathlib import Path
from typing import Any, Final, NamedTuple

from sag_research._text import html_table, open_text
from sag_research.errors import MissingDataError
from sag_research.paper._build import run_study
from sag_research.paper._data import changed_files, find
from sag_research.paper._manifest import RESULTS, commit_of, read_manifest, versions
from sag_research.paper._spec import Spec, StudyError, read_spec

__all__ = ["Checked", "Difference", "check"]

_KEYS: Final = 4
"""At most so many leading columns of words name a row."""


class Difference(NamedTuple):
    """One thing that came out differently."""

    kind: str
    """``table``, ``figure``, ``file``, ``data`` or ``seed``."""
    name: str
    what: str
    old: str = ""
    new: str = ""

    def __str__(self) -> str:
        change = f": {self.old or '(empty)'} → {self.new or '(empty)'}" if self.has_values else ""
        return f"{self.kind} {self.name}: {self.what}{change}"

    @property
    def has_values(self) -> bool:
        """Whether a value changed, rather than a whole file."""
        return bool(self.old or self.new)


class Checked:
    """What a second run of a study showed.

    Attributes
    ----------
    differences : list of Difference
    notes : list of str
        What differs around the results and changes none of them: versions, commit, own files.
    n_outputs, n_cells : int
        Tables and figures compared, and cells of their numbers.
    """

    def __init__(
        self, differences: list[Difference], notes: list[str], n_outputs: int, n_cells: int
    ) -> None:
        self.differences, self.notes = differences, notes
        self.n_outputs, self.n_cells = n_outputs, n_cells

    @property
    def same(self) -> bool:
        """Whether nothing differs."""
        return not self.differences

    def __repr__(self) -> str:
        what = f"{self.n_outputs} tables and figures, {self.n_cells} cells"
        n = len(self.differences)
        return f"Checked({what}: {n or 'no'} difference{'s' * (n != 1)})"

    def _repr_html_(self) -> str:
        shown = self.differences[:100]
        return html_table(
            ["kind", "name", "what", "old", "new"], [list(d) for d in shown], len(self.differences)
        )

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "same": self.same, "outputs": self.n_outputs, "cells": self.n_cells,
            "differences": [one._asdict() for one in self.differences], "notes": self.notes,
        }  # fmt: skip


def check(folder: str | PathLike[str] = ".") -> Checked:
    """Run a study again in a temporary folder and compare with the results that it has.

    Data that is not what ``study.toml`` names is no error here: the check says what it changes.

    Parameters
    ----------
    folder : path-like
        With a ``study.toml`` and its ``results/``.

    Raises
    ------
    StudyError
        If there are no results to compare with, or the study no longer runs.
    """
    place = Path(folder).resolve()
    spec, old = read_spec(place), read_manifest(place / RESULTS)
    if old is None:
        raise StudyError("there are no results to compare with", fix="run `sag paper build` first")
    missing = [*_missing_data(place, spec)]
    if missing:
        return Checked(missing, [], 0, 0)
    found = {name: find(name, source, place) for name, source in spec.data.items()}
    with tempfile.TemporaryDirectory(prefix="sag-check-") as home:
        new = run_study(place, spec, Path(home), found)
        differences = [*_around(old, new)]
        cells = 0
        for name in dict.fromkeys([*old["outputs"], *new["outputs"]]):
            some, count = _output(place / RESULTS, Path(home), name, old, new)
            differences, cells = [*differences, *some], cells + count
        differences += _file(place / RESULTS, Path(home), "file", "data.bib", "data.bib")
    return Checked(differences, _notes(place, old, new), len(new["outputs"]), cells)


def _missing_data(place: Path, spec: Spec) -> Iterator[Difference]:
    for name, source in spec.data.items():
        try:
            find(name, source, place)
        except MissingDataError as error:
            yield Difference("data", name, f"is missing ({error.why})")


def _around(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Difference]:
    """Compare seeds and data."""
    seeds = old["study"]["seed"], new["study"]["seed"]
    if seeds[0] != seeds[1]:
        yield Difference("seed", "study", "changed", str(seeds[0]), str(seeds[1]))
    for name in dict.fromkeys([*old["data"], *new["data"]]):
        if name not in new["data"] or name not in old["data"]:
            yield Difference("data", name, "is new" if name in new["data"] else "is gone")
            continue
        for word in changed_files(old["data"][name]["files"], new["data"][name]["files"]):
            yield Difference("data", name, word)


def _output(
    before: Path, after: Path, name: str, old: Mapping[str, Any], new: Mapping[str, Any]
) -> tuple[list[Difference], int]:
    """Compare all files of a table or figure."""
    part, _, own = name.partition("/")
    kind = part.removesuffix("s")
    for manifest, word in ((new, "is no longer made"), (old, "is new")):
        if name not in manifest["outputs"]:
            return [Difference(kind, own, word)], 0
    differences: list[Difference] = []
    cells = 0
    for file in new["outputs"][name]["files"]:
        if file.endswith(".csv") and (before / file).is_file():
            some, cells = _cells(before / file, after / file, kind, own)
            differences += some
    told = {one.what for one in differences}
    for file in new["outputs"][name]["files"]:
        if not (file.endswith(".csv") and told):
            differences += _file(before, after, kind, own, file)
    return differences, cells


def _file(before: Path, after: Path, kind: str, name: str, file: str) -> list[Difference]:
    if not (before / file).is_file():
        return [Difference(kind, name, f"{file} is missing")]
    same = (before / file).read_bytes() == (after / file).read_bytes()
    return [] if same else [Difference(kind, name, f"{file} differs")]


def _cells(before: Path, after: Path, kind: str, name: str) -> tuple[list[Difference], int]:
    """Compare two CSV files cell by cell; rows are known by their leading words."""
    (old_head, *old_rows), (new_head, *new_rows) = _read(before), _read(after)
    if old_head != new_head:
        return [Difference(kind, name, "its columns changed", ", ".join(old_head),
                           ", ".join(new_head))], 0  # fmt: skip
    old, new = _keyed(old_head, old_rows, new_rows), _keyed(new_head, new_rows, old_rows)
    found = [Difference(kind, name, f"row {key} is gone") for key in old if key not in new]
    found += [Difference(kind, name, f"row {key} is new") for key in new if key not in old]
    for key, row in old.items():
        pairs = zip(new_head, row, new.get(key, row), strict=True)
        found += [
            Difference(kind, name, f"row {key}, column {column}", one, other)
            for column, one, other in pairs if one != other
        ]  # fmt: skip
    return found, sum(map(len, new_rows))


def _read(path: Path) -> list[list[str]]:
    with open_text(path) as file:
        text = file.read()
    rows = [row for row in csv.reader(io.StringIO(text)) if row]
    width = max(map(len, rows), default=0)
    return [row + [""] * (width - len(row)) for row in rows] or [[]]


def _keyed(head: list[str], rows: list[list[str]], others: list[list[str]]) -> dict[str, list[str]]:
    """Name rows by as few leading columns as tell them apart, here and in the other table."""
    for width in range(1, min(len(head), _KEYS) + 1):
        apart = all(len({tuple(row[:width]) for row in part}) == len(part)
                    for part in (rows, others))  # fmt: skip
        if apart:
            return {" · ".join(row[:width]): row for row in rows}
    return {str(number): row for number, row in enumerate(rows, 1)}


def _notes(place: Path, old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    notes = [f"{name} {old['versions'].get(name, '?')} then, {now} now"
             for name, now in versions().items() if old["versions"].get(name) != now]  # fmt: skip
    notes += [f"own file {word}"
              for word in changed_files(old["study"]["files"], new["study"]["files"])]  # fmt: skip
    then, now = old.get("commit"), commit_of(place)
    if (then or {}).get("id") != (now or {}).get("id"):
        notes.append(
            f"commit {(then or {}).get('id', 'none')} then, {(now or {}).get('id', 'none')} now"
        )
    return notes
