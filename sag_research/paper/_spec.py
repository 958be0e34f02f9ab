"""What a study declares in its ``study.toml``."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any, Final

import msgspec

from sag_research._text import open_text
from sag_research.errors import SagError

__all__ = ["FILE", "BacktestSpec", "Output", "Source", "Spec", "StudyError", "read_spec"]

FILE: Final = "study.toml"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,59}")


class StudyError(SagError):
    """A study folder cannot be built: its declaration, its data or a function of its own."""


class _Strict(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """A table of the file; a key that nobody knows is a slip of the pen."""


class Head(_Strict, kw_only=True, frozen=True):
    """``[study]``."""

    title: str
    seed: int = 0
    """Of everything that draws."""


class Source(_Strict, kw_only=True, frozen=True):
    """``[data.NAME]``: runs that the study rests on; one of the first three says which."""

    bundled: str = ""
    """A set that comes with the package."""
    path: str = ""
    """A file or folder of trajectories, relative to the study folder."""
    workspace: str = ""
    """A workspace, relative to the study folder; it is only read."""
    labels: str = ""
    """A label file, for ``path``."""
    format: str = ""
    digest: str = ""
    """``sha256:`` and what :func:`sag_research.paper.digest_of` gives; empty: not checked."""


class BacktestSpec(_Strict, kw_only=True, frozen=True):
    """``[backtest.NAME]``: models judged once, for as many tables and figures as ask for it."""

    data: list[str] = []
    where: str = "true"
    models: dict[str, dict[str, Any]] | list[str]
    """Names, or for each name ``{model = …}`` and the model's parameters."""
    options: dict[str, Any] = {}
    """Of :func:`sag_research.backtest`: group_by, folds, repeats, baselines, alpha …."""


class Output(_Strict, kw_only=True, frozen=True):
    """``[[table]]`` or ``[[figure]]``."""

    name: str
    title: str = ""
    analysis: str = ""
    """A shipped analysis, by name."""
    function: str = ""
    """``module:function`` in the study folder."""
    backtest: str = ""
    """The backtest that the analysis is of."""
    data: list[str] = []
    """Names of data sources; all by default."""
    where: str = "true"
    """An SQL condition over the view ``runs``."""
    options: dict[str, Any] = {}
    counts: bool = True
    """Whether the table must have a column ``n`` or ``n_…``; false for one that holds no result."""


class Spec(_Strict, kw_only=True, frozen=True):
    """The whole file."""

    study: Head
    data: dict[str, Source]
    backtest: dict[str, BacktestSpec] = {}
    table: list[Output] = []
    figure: list[Output] = []


def read_spec(folder: Path) -> Spec:
    """Read and check the declaration of a study.

    Raises
    ------
    StudyError
        With the place in the file.
    """
    path = folder / FILE
    if not path.is_file():
        raise StudyError(f"no {FILE} in {folder}", fix="make a study with `sag paper init FOLDER`")
    with open_text(path) as file:
        text = file.read()
    try:
        spec = msgspec.convert(tomllib.loads(text), Spec)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise StudyError(f"{FILE} cannot be read", why=str(error)) from error
    for problem in _problems(spec):
        raise StudyError(f"{FILE}: {problem}")
    return spec


def _problems(spec: Spec) -> list[str]:
    found = [] if spec.data else ["no [data.NAME]: say which runs the study is about"]
    for name, source in spec.data.items():
        kinds = [kind for kind in (source.bundled, source.path, source.workspace) if kind]
        if len(kinds) != 1:
            found.append(f"data {name!r} needs one of bundled, path and workspace")
        if source.labels and not source.path:
            found.append(f"data {name!r} has labels, which go with path")
    for kind, outputs in (("table", spec.table), ("figure", spec.figure)):
        names = [one.name for one in outputs]
        found += [f"two {kind}s are called {n!r}" for n in names if names.count(n) > 1]
        for one in outputs:
            found += [f"{kind} {one.name!r} {why}" for why in _wrong(one, spec)]
    for name, asked in spec.backtest.items():
        found += [
            f"backtest {name!r}: no data {one!r}" for one in asked.data if one not in spec.data
        ]
    names = [*spec.data, *spec.backtest, *(one.name for one in (*spec.table, *spec.figure))]
    found += [
        f"{n!r} is no name: letters, digits, - and _" for n in names if not _NAME.fullmatch(n)
    ]
    return found


def _wrong(one: Output, spec: Spec) -> list[str]:
    found = [f"asks for data {name!r}, which is not declared"
             for name in one.data if name not in spec.data]  # fmt: skip
    if bool(one.analysis) == bool(one.function):
        found.append("needs either analysis or function")
    if one.backtest and one.backtest not in spec.backtest:
        found.append(f"asks for backtest {one.backtest!r}, which is not declared")
    if one.backtest and (one.data or one.where != "true"):
        found.append("has data or where beside backtest, which brings its own")
    return found
