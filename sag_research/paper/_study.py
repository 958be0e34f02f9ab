"""A study at work: its data in one workspace, cohorts of it, and backtests that are run once."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from sag_research.paper._data import Found, find, in_memory, read_into
from sag_research.paper._spec import BacktestSpec, Output, Spec, StudyError
from sag_research.workspace import Workspace

if TYPE_CHECKING:
    import pandas as pd

    from sag_research.deadend import Backtest, Comparison, Prefixes, RiskModel

__all__ = ["Cohort", "Study", "Who", "opened"]

T = TypeVar("T")
_OURS = "run_id IN (SELECT unnest(?))"


class Who(NamedTuple):
    """Which runs an output is about."""

    data: tuple[str, ...]
    where: str
    n: int
    digest: str
    """Of these runs and their outcomes, see :meth:`Workspace.digest`."""


class Cohort:
    """Some runs of a study: what a table or figure is made of.

    Attributes
    ----------
    ws : Workspace
        All runs of the study.
    where, parameters : str, list
        The condition that the cohort's runs answer, as the methods of a workspace take it.
    run_ids : dict of str to list of str
        The runs by the data source that they came from.
    seed : int
    folder : pathlib.Path
        The study folder, for files that an analysis reads.
    """

    def __init__(
        self,
        ws: Workspace,
        run_ids: Mapping[str, list[str]],
        where: str = "true",
        seed: int = 0,
        folder: Path = Path(),
        kept: dict[Hashable, Any] | None = None,
    ) -> None:
        self.ws, self.run_ids, self.seed, self.folder = ws, dict(run_ids), seed, folder
        self._kept = {} if kept is None else kept
        self.where = _OURS if where == "true" else f"{_OURS} AND ({where})"
        self.asked = where
        self.parameters = [[run for runs in self.run_ids.values() for run in runs]]

    def of(self, name: str) -> Cohort:
        """Return the part of the cohort that came from one data source."""
        own = {name: self.run_ids[name]}
        return Cohort(self.ws, own, self.asked, self.seed, self.folder, self._kept)

    def once(self, what: Hashable, make: Callable[[], T]) -> T:
        """Return what `make` makes of this cohort, made once for all tables and figures."""
        key = (what, tuple(self.run_ids), self.asked)
        if key not in self._kept:
            self._kept[key] = make()
        value: T = self._kept[key]
        return value

    def runs(self) -> pd.DataFrame:
        """One row a run, with the columns of the view ``runs``; hidden copies are left out."""
        return self.ws.runs(f"{self.where} AND NOT hidden", self.parameters)

    def prefixes(self, *, texts: bool = True, entities: bool = True) -> Prefixes:
        """Read tokens, groups and labels, see :meth:`Workspace.prefixes`."""
        return self.once(
            ("prefixes", texts, entities),
            lambda: self.ws.prefixes(self.where, self.parameters, texts=texts, entities=entities),
        )

    def compare(self, by: str = "model", ks: Sequence[int] = (1,)) -> Comparison:
        """Compare success, see :meth:`Workspace.compare`."""
        return self.ws.compare(by, self.where, self.parameters, ks=ks, seed=self.seed)

    def who(self) -> Who:
        """Say which runs these are."""
        digest = self.ws.digest(self.where, self.parameters)
        count = f"SELECT count(*) FROM runs WHERE ({self.where}) AND NOT hidden"  # noqa: S608
        n = int(self.ws.sql(count, self.parameters).rows()[0][0])
        return Who(tuple(self.run_ids), self.asked, n, digest)


class Study:
    """An open study."""

    def __init__(
        self, folder: Path, spec: Spec, ws: Workspace, found: Mapping[str, Found],
        run_ids: Mapping[str, list[str]],
    ) -> None:  # fmt: skip
        self.folder, self.spec, self.ws = folder, spec, ws
        self.found, self.run_ids = dict(found), dict(run_ids)
        self._backtests: dict[str, Backtest] = {}
        self._kept: dict[Hashable, Any] = {}

    def cohort(self, asked: Output | BacktestSpec) -> Cohort:
        """Return the runs that an output, or the backtest that it is of, is about."""
        if isinstance(asked, Output) and asked.backtest:
            asked = self.spec.backtest[asked.backtest]
        names = asked.data or list(self.spec.data)
        chosen = {name: self.run_ids[name] for name in names}
        return Cohort(self.ws, chosen, asked.where, self.spec.study.seed, self.folder, self._kept)

    def backtest(self, name: str) -> Backtest:
        """Return a backtest, run when it is first asked for."""
        if name not in self._backtests:
            asked = self.spec.backtest[name]
            self._backtests[name] = run_backtest(self.cohort(asked), asked.models, asked.options)
        return self._backtests[name]

    def rng(self, name: str) -> np.random.Generator:
        """Return the random numbers of one output, whatever else is drawn before it."""
        own = int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "big")
        return np.random.default_rng([self.spec.study.seed, own])


def run_backtest(
    cohort: Cohort, models: Mapping[str, Mapping[str, Any]] | Sequence[str],
    options: Mapping[str, Any],
) -> Backtest:  # fmt: skip
    """Judge models on a cohort, with the study's seed."""
    from sag_research.deadend import backtest

    asked = dict(options)
    prefixes = cohort.prefixes(texts=bool(asked.pop("texts", True)))
    named: Any = models
    if isinstance(models, Mapping):
        named = {name: _model(name, parameters) for name, parameters in models.items()}
    asked.setdefault("baselines", False)
    try:
        return backtest(prefixes, named, **{"seed": cohort.seed, **asked})
    except TypeError as error:
        raise StudyError("a backtest has an option that there is not", why=str(error)) from error


def _model(name: str, parameters: Mapping[str, Any]) -> RiskModel:
    from sag_research.deadend import model_of

    asked = dict(parameters)
    model = model_of(str(asked.pop("model", name)))
    known = model.get_params()
    if strange := [key for key in asked if key not in known]:
        raise StudyError(
            f"model {name!r} has no parameter {strange[0]!r}", fix=f"one of {', '.join(known)}"
        )
    changed: RiskModel = model.set_params(**asked)
    return changed


@contextmanager
def opened(folder: Path, spec: Spec, found: Mapping[str, Found] | None = None) -> Iterator[Study]:
    """Read all data of a study into a workspace in memory."""
    found = found or {name: find(name, source, folder) for name, source in spec.data.items()}
    with in_memory() as ws:
        run_ids = {name: read_into(ws, spec.data[name], one) for name, one in found.items()}
        for name, runs in run_ids.items():
            if not runs:
                raise StudyError(
                    f"data {name!r} brought no run",
                    why="no file of it is a trajectory, or another source had them before",
                )
        yield Study(folder, spec, ws, found, run_ids)
