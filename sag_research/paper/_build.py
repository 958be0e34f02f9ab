"""Running a study: data in, tables and figures out, and a manifest of what they were made of."""

from __future__ import annotations

import datetime as dt
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sag_research._text import atomic_write, clip, open_text
from sag_research.errors import SagError, StoreError
from sag_research.paper._analyses import draw, tabulate
from sag_research.paper._data import Found, check_digest, file_digest, find
from sag_research.paper._functions import call_own
from sag_research.paper._manifest import (
    MANIFEST,
    RESULTS,
    commit_of,
    cost_of,
    data_of,
    own_files,
    read_manifest,
    versions,
    write_json,
)
from sag_research.paper._spec import FILE, Output, Spec, StudyError, read_spec
from sag_research.paper._study import Study, opened
from sag_research.paper._table import csv_table, has_counts, latex_table, markdown_table

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

__all__ = ["Built", "build", "run_study"]

SIZE: Final = (3.4, 2.5)
"""Inches of a figure: one column of a paper."""


class Built:
    """What a build wrote.

    Attributes
    ----------
    folder : pathlib.Path
        The results.
    manifest : dict
        What stands in ``manifest.json``.
    """

    def __init__(self, folder: Path, manifest: Mapping[str, Any]) -> None:
        self.folder, self.manifest = folder, dict(manifest)

    def __repr__(self) -> str:
        names = list(self.manifest["outputs"])
        tables = sum(name.startswith("tables/") for name in names)
        runs = sum(one["n_runs"] for one in self.manifest["data"].values())
        figures = len(names) - tables
        counts = ((tables, "table"), (figures, "figure"), (runs, "run"))
        said = ", ".join(f"{n} {word}{'s' * (n != 1)}" for n, word in counts)
        return f"Built({said})"

    def to_dict(self) -> dict[str, Any]:
        """Return the manifest, and where the results are."""
        return {"results": str(self.folder), **self.manifest}


def build(folder: str | PathLike[str] = ".", *, accept_data: bool = False) -> Built:
    """Run a study and write its tables, figures and manifest into ``results/``.

    Functions of the study's own are run, so a study of someone else is a program of someone else.

    Parameters
    ----------
    folder : path-like
        With a ``study.toml``.
    accept_data : bool
        Take data that is not what ``study.toml`` names, and write its digest there.

    Returns
    -------
    Built

    Raises
    ------
    StudyError
        If the declaration, the data or an own function is wrong; results of before stay.
    MissingDataError
        If data is not there.
    """
    place = Path(folder).resolve()
    spec = read_spec(place)
    target = place / RESULTS
    before = read_manifest(target) if target.is_dir() else None
    if before is None and target.is_dir() and any(target.iterdir()):
        raise StudyError(f"{RESULTS}/ is not empty", why="it holds no manifest of a study",
                         fix="move away what is in it")  # fmt: skip
    found = {name: find(name, source, place) for name, source in spec.data.items()}
    if not accept_data:
        known = (before or {}).get("data", {})
        for name, source in spec.data.items():
            check_digest(name, source, found[name], known.get(name, {}).get("files", {}))
    fresh = Path(tempfile.mkdtemp(prefix=".results-", dir=place))
    try:
        if accept_data:
            _write_digests(place, spec, found)
        manifest = run_study(place, spec, fresh, found)
        if target.is_dir():
            shutil.rmtree(target)
        fresh.rename(target)
        target.chmod(0o755)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return Built(target, manifest)


def _write_digests(folder: Path, spec: Spec, found: Mapping[str, Found]) -> None:
    """Put the digests of the data as it is in the place of those that stand there."""
    path = folder / FILE
    with open_text(path) as file:
        text = file.read()
    for name, source in spec.data.items():
        if source.digest:
            text = text.replace(source.digest, found[name].digest)
    with atomic_write(path) as stream:
        stream.write(text.encode("utf-8"))


def run_study(folder: Path, spec: Spec, target: Path, found: Mapping[str, Found]) -> dict[str, Any]:
    """Make everything that a study declares, below an empty folder; returns the manifest."""
    import matplotlib

    began, seconds = time.perf_counter(), dict[str, float]()
    outputs: dict[str, Any] = {}
    for part in ("tables", "figures"):
        (target / part).mkdir(parents=True)
    # settings of the place where this runs must not show in a figure
    with matplotlib.rc_context(), opened(folder, spec, found) as study:
        matplotlib.rcdefaults()
        for kind, asked in (("tables", spec.table), ("figures", spec.figure)):
            for one in asked:
                start = time.perf_counter()
                outputs[f"{kind}/{one.name}"] = _output(study, one, kind, target)
                seconds[f"{kind}/{one.name}"] = round(time.perf_counter() - start, 3)
        _write(target / "data.bib", study.ws.cite() + "\n")
        manifest = {
            "format": 1,
            "study": {"title": spec.study.title, "seed": spec.study.seed,
                      "files": own_files(folder)},
            "commit": commit_of(folder),
            "versions": versions(),
            "data": {name: data_of(spec.data[name], one, study.ws, study.run_ids[name])
                     for name, one in found.items()},
            "cost": cost_of(study.ws),
            "outputs": outputs,
            "files": {"data.bib": file_digest(target / "data.bib")},
            "not_compared": {
                "built_at": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
                "machine": platform.machine(), "system": platform.system(),
                "seconds": round(time.perf_counter() - began, 3), "seconds_of": seconds,
            },
        }  # fmt: skip
    write_json(target / MANIFEST, manifest)
    return manifest


def _output(study: Study, one: Output, kind: str, target: Path) -> dict[str, Any]:
    """Make one table or figure, and describe it."""
    try:
        names = _table(study, one, target) if kind == "tables" else _figure(study, one, target)
        who, notes = study.cohort(one).who(), _notes(study, one)
    except StoreError:
        raise
    except SagError as error:
        raise StudyError(f"{kind[:-1]} {one.name!r}: {error}") from error
    return {
        "title": one.title, "by": one.analysis or one.function, "backtest": one.backtest,
        "options": one.options, "seed": study.spec.study.seed,
        "cohort": {"data": list(who.data), "where": who.where, "n_runs": who.n,
                   "digest": who.digest},
        "notes": notes, "files": {name: file_digest(target / name) for name in names},
    }  # fmt: skip


def _notes(study: Study, one: Output) -> list[str]:
    if not one.backtest:
        return []
    found = study.backtest(one.backtest)
    leaks = [f"LEAK: {leak}" for leak in found.leaks]
    return [*leaks, *found.notes, *(f"{k} left out: {v}" for k, v in found.left_out.items())]


def _table(study: Study, one: Output, target: Path) -> list[str]:
    frame = tabulate(study, one) if one.analysis else _own_table(study, one)
    if one.counts and not has_counts(frame):
        raise StudyError(
            "no column says how many runs its numbers rest on",
            fix="name a column n or n_…, or say counts = false where there is no result in it",
        )
    stem = f"tables/{one.name}"
    _write(target / f"{stem}.csv", csv_table(frame))
    _write(target / f"{stem}.tex", latex_table(frame))
    _write(target / f"{stem}.md", markdown_table(frame, one.title, _notes(study, one)))
    return [f"{stem}{suffix}" for suffix in (".csv", ".tex", ".md")]


def _own_table(study: Study, one: Output) -> pd.DataFrame:
    import pandas as pd

    made = _own(study, one)
    if not isinstance(made, pd.DataFrame):
        raise StudyError(f"{one.function} returned no DataFrame but {type(made).__name__}")
    return made


def _own(study: Study, one: Output) -> Any:
    cohort, seed = study.cohort(one), study.spec.study.seed
    given = {"ws": study.ws, "cohort": cohort, "rng": study.rng(one.name), "seed": seed}
    return call_own(study.folder, one.function, given, one.options)


def _figure(study: Study, one: Output, target: Path) -> list[str]:
    from sag_research.viz import save_figure

    stem, names = f"figures/{one.name}", []
    if one.analysis:
        figure, frame = _drawn(study, one)
        _write(target / f"{stem}.csv", csv_table(frame))
        names.append(f"{stem}.csv")
    else:
        figure = _own_figure(study, one)
    for suffix in (".pdf", ".svg"):
        save_figure(figure, target / f"{stem}{suffix}")
        names.append(f"{stem}{suffix}")
    if pyplot := sys.modules.get("matplotlib.pyplot"):
        pyplot.close(figure)  # pyplot keeps every figure that it made
    return names


def _drawn(study: Study, one: Output) -> tuple[Figure, pd.DataFrame]:
    from matplotlib.figure import Figure

    from sag_research.viz import style

    with style():
        figure = Figure(figsize=SIZE, layout="constrained")  # of no window, on any machine
        ax = figure.subplots()
        frame = draw(study, one, ax)
        if one.backtest:
            n = len(study.backtest(one.backtest).prefixes)
            ax.set_title(f"n = {n:,} runs", loc="right")
    return figure, frame


def _own_figure(study: Study, one: Output) -> Figure:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from sag_research.viz import style

    with style():
        made = _own(study, one)
    figure = made.get_figure(root=True) if isinstance(made, Axes) else made
    if not isinstance(figure, Figure):
        raise StudyError(f"{one.function} returned no Figure but {clip(type(made).__name__)}")
    return figure


def _write(path: Path, text: str) -> None:
    with open_text(path, "w") as file:
        file.write(text)
