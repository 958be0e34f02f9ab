"""The table that a claim about early failure prediction rests on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sag_research._text import escape, html_table
from sag_research.deadend._backtest_curves import (
    ALPHAS,
    auroc_by_step,
    cost_curve,
    decision_curve,
    reliability_of,
)
from sag_research.deadend._backtest_notes import notes_on
from sag_research.deadend._backtest_run import (
    BASELINES,
    VARIANTS,
    AlarmPlan,
    Judged,
    judge,
    named,
    resolve,
    units_of,
)
from sag_research.deadend._backtest_table import (
    RATES,
    SAVED,
    Measures,
    intervals_of,
    measure,
    table_of,
)
from sag_research.deadend._bootstrap import DRAWS, Sampled, difference, resamples
from sag_research.deadend._crossfit import OutOfFold
from sag_research.deadend._metrics import LEVEL, auroc, holm
from sag_research.deadend._model import RiskModel
from sag_research.deadend._prefixes import Ints, Prefixes
from sag_research.deadend._splits import Fold, make_folds, warn_of_copies
from sag_research.errors import MissingDataError, NotEnoughDataError, UsageError

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

__all__ = ["Backtest", "backtest"]

AT = (5, 10, 20, 30)
ALARM_NUMBERS = frozenset([*RATES, *SAVED, "earliness", "net_benefit"])
OWN = " (own alarm)"
_SHOWN = (
    "auroc",
    "auroc_5",
    "auroc_10",
    "auroc_20",
    "brier",
    "ece",
    "false_aborts",
    "recall",
    "precision",
    "steps_saved",
    "random_steps_saved",
    "net_benefit",
)


class Backtest:
    """What models did on runs that they had not seen.

    Attributes
    ----------
    prefixes : Prefixes
        The runs of known outcome.
    folds : list of Fold
    out_of_fold : dict of str to OutOfFold
        Scores of each model.
    judged : dict of str to Judged
        Scores, thresholds and alarms of each model.
    leaks : tuple of str
        Reasons why the numbers are not to be believed; empty for an honest split.
    left_out : dict of str to str
        Baselines that could not be computed on this cohort, with the reason.
    settings : dict
        What :func:`backtest` was asked.
    """

    def __init__(
        self,
        prefixes: Prefixes,
        folds: Sequence[Fold],
        judged: Mapping[str, Judged],
        what: Measures,
        settings: Mapping[str, Any],
        leaks: Sequence[str] = (),
        left_out: Mapping[str, str] | None = None,
    ) -> None:
        self.prefixes, self.folds, self.judged = prefixes, list(folds), _with_own_rules(judged)
        self.settings, self.leaks = dict(settings), tuple(leaks)
        self.left_out = dict(left_out or {})
        self.out_of_fold: dict[str, OutOfFold] = {k: v.scores for k, v in self.judged.items()}
        self.units, self.measures = units_of(self.folds), what
        self.sampled: dict[str, dict[str, Sampled]] = {}
        for name, one in self.judged.items():
            same = self.sampled.get(name.removesuffix(OWN), {})  # an own alarm has the same scores
            self.sampled[name] = measure(one, self.units, what, same)

    def __repr__(self) -> str:
        leak = f"LEAK ({'; '.join(self.leaks)}), " if self.leaks else ""
        tested = len(np.unique(self.units.run))
        models = sum(not name.endswith(OWN) for name in self.judged)
        return (
            f"Backtest({leak}{models} models, {tested} runs, "
            f"{len(self.folds)} folds, split={self.settings['split']!r})"
        )

    @property
    def table_(self) -> pd.DataFrame:
        """One row a model; every number ``x`` has ``x_low`` and ``x_high`` beside it.

        ==========================  ==============================================================
        ``n prevalence``            tested runs, share of them that failed
        ``auroc``                   all looks, each run weighs 1; pairs inside a fold only
        ``auroc_t``, ``n_t``        at step t, among the ``n_t`` runs still alive there
        ``max_auroc_h``             largest score up to step h, among runs alive at h
        ``auprc``                   all looks, each run weighs 1
        ``brier ece``               each look weighs 1; only for scores that are probabilities
        ``false_aborts``            share of successes that raised an alarm; ``…_worst_fold``
        ``recall precision``        of alarms, counting failures
        ``earliness``               step of the alarm per length of the run, failures only
        ``steps_saved …``           share of all steps (tokens, cost) after the alarms
        ``random_…``                the same for random stops, as many and at the same steps
        ``net_benefit``             per run, at ``p_star``
        ``stability``               mean distance of a run's successive scores
        ``n_alarms``                over all repeats
        ``folds_without_alarm``     folds with too few successes for ``alpha``
        ==========================  ==============================================================

        A run's weight at a look depends on how long it will go on. A probability of what is seen
        cannot know that, so Brier score and calibration weigh looks alike: under the runs' weights
        the true probability would not have the smallest Brier score.

        Intervals resample tasks and hold the scores fixed: what another training set or partition
        would change is left out. NaN means unknown. A rule that brings an alarm of its own has a
        second row with that, named ``… (own alarm)``.
        """
        table = table_of(self.judged, self.sampled, self.units, self.measures)
        names = ("split", "group_by", "alpha", "rule", "repeats", "seed")
        for name in names:
            table[name] = self.settings[name]
        table.loc[table["model"].str.endswith(OWN), "rule"] = "own"
        if self.leaks:
            table["split"] = f"LEAK {self.settings['split']}"
            table.attrs["leak"] = list(self.leaks)
        return table

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of the table should know about this cohort and this design."""
        return notes_on(self.prefixes, self.folds, self.measures.drawn.shape[1], self.judged)

    @property
    def repeats_(self) -> pd.DataFrame:
        """AUROC in each repeat: ``model repeat auroc``; how much the partition alone changes."""
        import pandas as pd

        rows = []
        for name, judged in self.judged.items():
            s = judged.scores
            for repeat in np.unique(s.repeat).tolist() if judged.calibrations else ():
                at = s.repeat == repeat
                area = auroc(s.failed[at], s.scores[at], s.weight[at], s.fold[at])
                rows.append((name, repeat, area))
        return pd.DataFrame(rows, columns=["model", "repeat", "auroc"])

    @property
    def intervals_(self) -> pd.DataFrame:
        """The same numbers in long form: ``model metric value low high n clusters``."""
        return intervals_of(self.sampled)

    @property
    def paired_(self) -> pd.DataFrame:
        """The first model's AUROC against each other's, see :meth:`paired`."""
        return self.paired()

    def paired(
        self, reference: str | None = None, metric: str = "auroc", level: float = LEVEL
    ) -> pd.DataFrame:
        """Compare one model with all others over the same resamples of tasks.

        Parameters
        ----------
        reference : str, optional
            The first model by default.
        metric : str
            A number of ``table_``.
        level : float

        Returns
        -------
        DataFrame
            ``model other metric difference low high p p_holm n clusters``; Holm's adjustment is
            over the rows.
        """
        import pandas as pd

        reference = next(iter(self.judged)) if reference is None else reference
        if metric not in self.sampled.get(reference, {}):
            raise UsageError(f"model {reference!r} has no number {metric!r} in this backtest")
        one = self.sampled[reference][metric]
        rows = [
            (reference, name, metric, *difference(one, other[metric], level), one.n, one.clusters)
            for name, other in self.sampled.items()
            if name != reference and metric in other and self._says_more(name, metric)
        ]
        names = ["model", "other", "metric", "difference", "low", "high", "p", "n", "clusters"]
        table = pd.DataFrame(rows, columns=names)
        table.insert(7, "p_holm", holm(table["p"].to_numpy(np.float64)))
        if self.leaks:
            table.attrs["leak"] = list(self.leaks)
        return table

    def _says_more(self, name: str, metric: str) -> bool:
        """A model's own alarm has the scores of the model: only its alarms are another test."""
        return bool(self.judged[name].calibrations) or metric in ALARM_NUMBERS

    def auroc_by_step(self, fewest: int = 10) -> pd.DataFrame:
        """AUROC among the runs still alive at each step: ``model step auroc low high n n_failed``.

        Steps at which fewer than `fewest` runs of either outcome are alive are left out.
        """
        return self._stacked(lambda one: auroc_by_step(one, self.measures, fewest))

    def reliability(self, model: str) -> pd.DataFrame:
        """Score and rate of failure of one model, by bins of the score."""
        judged = self._one(model)
        if not judged.model.calibrated:
            raise UsageError(f"scores of model {model!r} are no probabilities")
        return reliability_of(judged)

    def cost_curve(self, alphas: Sequence[float] = ALPHAS) -> pd.DataFrame:
        """What alarms of several levels save and whom they stop, beside random stops."""
        plan = AlarmPlan(**{name: self.settings[name] for name in AlarmPlan._fields})
        return self._stacked(lambda one: cost_curve(one, self.units, self.measures, plan, alphas))

    def decision_curve(self, thresholds: Sequence[float] | None = None) -> pd.DataFrame:
        """Net benefit by threshold probability: ``model threshold net_benefit low high n``."""
        return self._stacked(
            lambda one: decision_curve(one, self.units, self.measures, thresholds), True
        )

    def _stacked(
        self, curve: Callable[[Judged], pd.DataFrame], calibrated: bool = False
    ) -> pd.DataFrame:
        """One curve a model; a model's own alarm has none."""
        import pandas as pd

        parts = []
        for name, judged in self.judged.items():
            if judged.calibrations and (judged.model.calibrated or not calibrated):
                part = curve(judged)
                part.insert(0, "model", name)
                parts.append(part)
        table = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame({"model": []})
        if self.leaks:
            table.attrs["leak"] = list(self.leaks)
        return table

    def _one(self, model: str) -> Judged:
        if model not in self.judged:
            raise UsageError(f"no model {model!r} here", fix=f"one of {', '.join(self.judged)}")
        return self.judged[model]

    @property
    def alarms_(self) -> pd.DataFrame:
        """One row a model and tested run.

        ``model repeat fold run_id task_id failed n_steps alarm_step``; the last is NA where no
        alarm was raised.
        """
        import pandas as pd

        runs = self.prefixes.runs.iloc[self.units.run]
        parts = []
        for name, judged in self.judged.items():
            part = pd.DataFrame(
                {"model": name, "repeat": self.units.repeat, "fold": self.units.fold}
            )
            for column in ("run_id", "task_id", "n_steps"):
                part[column] = runs[column].to_numpy()
            part.insert(5, "failed", self.prefixes.failed[self.units.run].astype(np.int64))
            part["alarm_step"] = pd.array(judged.stop, dtype="Float64").astype("Int64")
            parts.append(part)
        return pd.concat(parts, ignore_index=True)

    def plot(
        self, what: str = "auroc", models: Sequence[str] | None = None, ax: Axes | None = None
    ) -> Axes:
        """Draw one figure of it, see :func:`~sag_research.viz.plot_backtest`."""
        from sag_research.viz import plot_backtest

        return plot_backtest(self, what, models, ax=ax)

    def _repr_html_(self) -> str:
        table = self.table_
        shown = [name for name in _SHOWN if name in table]
        rows = []
        for record in table.to_dict("records"):
            cells = [_cell(record, name) for name in shown]
            rows.append([record["model"], record["n"], f"{record['prevalence']:.2f}", *cells])
        stamp = f"<p><b>LEAK</b>: {escape('; '.join(self.leaks))}</p>" if self.leaks else ""
        absent = "".join(
            f"<p>{escape(name)} left out: {escape(why)}</p>" for name, why in self.left_out.items()
        )
        said = "".join(f"<p>{escape(note)}</p>" for note in self.notes)
        return stamp + html_table(["model", "n", "prevalence", *shown], rows) + absent + said


def _with_own_rules(judged: Mapping[str, Judged]) -> dict[str, Judged]:
    """Give a model that brings an alarm of its own a second row, with that."""
    rows: dict[str, Judged] = {}
    for name, one in judged.items():
        if one.own_stop is None or name not in VARIANTS:  # variants differ in their alarm alone
            rows[name] = one
        if one.own_stop is not None:
            rows[name + OWN] = one.by_own_rule(one.own_stop)
    return rows


def _cell(record: Mapping[Any, Any], name: str) -> str:
    value, low, high = record[name], record[f"{name}_low"], record[f"{name}_high"]
    if np.isnan(value):
        return "–"
    return f"{value:.3f}" if np.isnan(low) else f"{value:.3f} [{low:.3f}, {high:.3f}]"


def backtest(
    prefixes: Prefixes,
    models: Sequence[str | RiskModel] | Mapping[str, RiskModel] = ("stack",),
    group_by: str = "task_id",
    folds: int = 5,
    repeats: int = 1,
    seed: int = 0,
    *,
    split: str = "group",
    allow_leak: bool = False,
    baselines: bool | Sequence[str] = True,
    alpha: float = 0.05,
    rule: str = "fold-safe",
    min_step: int = 1,
    p_star: float = 0.5,
    at: Sequence[int] = AT,
    horizon: int = 10,
    cluster_by: str | None = None,
    draws: int = DRAWS,
    told: Callable[[str], None] = lambda name: None,
) -> Backtest:
    """Judge models of failure on runs that they have not seen.

    Parameters
    ----------
    prefixes : Prefixes
        Runs of unknown outcome are left out.
    models : sequence of str or RiskModel, or mapping of names to them
        The first is the reference of ``paired_``.
    group_by : str
        Column whose values are never in training and test at once: the task, or what tasks have
        in common, such as a customer or a repository.
    folds, repeats, seed : int
        The partition; for a claim, repeat it five times or more.
    split : {"group", "leave", "time", "random"}
        See :func:`make_folds`. ``random`` leaks and is stamped.
    allow_leak : bool
        ``random`` is refused without it.
    baselines : bool or sequence of str
        Simple models that stand in the table as well. Those that need texts or entities that the
        cohort lacks are named in ``left_out``.
    alpha : float
        Share of successful runs that an alarm may stop. In each fold its threshold is set by
        scores of training runs that the model had not seen.
    rule : str
        See :class:`Alarm`.
    min_step : int
        No alarm before.
    p_star : float
        Probability of failure above which acting pays; .5 takes stopping a run that would succeed
        to be as bad as saving one that would fail is good.
    at : sequence of int
        Steps at which runs still alive are compared.
    horizon : int
        The maximum score up to this step is compared among runs alive there.
    cluster_by : str, optional
        What is resampled: `group_by`, or the task where a split leaves out or ignores groups.
    draws : int
        Resamples.
    told : callable, optional
        Is given the name of each model and baseline before it is judged.

    Raises
    ------
    NotEnoughDataError
        Without both outcomes, or with fewer groups than folds.
    LeakError
        For a random split without `allow_leak`.

    Warns
    -----
    LeakWarning
        If runs stand word for word in several groups.
    """
    if not 0 <= p_star < 1:
        raise UsageError(f"p_star = {p_star} is no probability below 1")
    known, asked = prefixes.labelled, resolve(models)
    parts = make_folds(known, split, group_by, folds, repeats, seed, allow_leak)
    _check_cohort(known)
    leaks = ["random split: runs of one task are in training and test"] if split == "random" else []
    if warn_of_copies(known, group_by):
        leaks.append(f"the same runs stand in several values of {group_by}")
    cluster_by = cluster_by or (group_by if split in ("group", "time") else "task_id")
    plan = AlarmPlan(alpha, rule, min_step, group_by, cluster_by, seed)
    judged: dict[str, Judged] = {}
    for name, model in asked.items():
        told(name)
        judged[name] = judge(model, known, parts, plan)
    more = _baselines(baselines)
    rest = [n for n in more if n not in judged]
    left_out = _add_baselines(judged, rest, known, parts, plan, told)
    cluster = _clusters(known, parts, cluster_by)
    drawn = resamples(int(cluster.max()) + 1, draws, seed)
    what = Measures(tuple(at), horizon, p_star, cluster, drawn)
    settings = plan._asdict() | {"split": split, "folds": folds, "repeats": repeats}
    return Backtest(known, parts, judged, what, settings, leaks, left_out)


def _baselines(asked: bool | Sequence[str]) -> tuple[str, ...]:
    if isinstance(asked, str):
        return (asked,)
    return BASELINES if asked is True else tuple(asked or ())


def _add_baselines(
    judged: dict[str, Judged],
    names: Sequence[str],
    known: Prefixes,
    parts: Sequence[Fold],
    plan: AlarmPlan,
    told: Callable[[str], None],
) -> dict[str, str]:
    """Judge the baselines as well, and say which could not be."""
    left_out = {}
    for name in names:
        told(name)
        try:
            judged[name] = judge(named(name), known, parts, plan)
        except (MissingDataError, NotEnoughDataError) as error:
            left_out[name] = str(error)
    return left_out


def _clusters(known: Prefixes, parts: Sequence[Fold], by: str) -> Ints:
    """Number the clusters of the tested runs from 0; runs that are not tested get 0 as well."""
    groups = known.groups(by)
    tested = np.unique(np.concatenate([fold.test for fold in parts]))
    cluster = np.zeros(len(known), np.int64)
    cluster[tested] = np.unique(groups[tested], return_inverse=True)[1]
    return cluster


def _check_cohort(known: Prefixes) -> None:
    """Refuse runs that stand there twice, and runs of which none can be looked at."""
    if not len(known.looks().run):
        raise NotEnoughDataError(
            f"no decision point in these {len(known)} runs",
            why="each has one step, or its outcome stands in its first step (known_at_step)",
        )
    ids = known.runs["run_id"]
    if ids.duplicated().any():
        raise UsageError(
            f"run {ids[ids.duplicated()].iloc[0]!r} stands in this cohort twice",
            why="one copy could be tested by a model that was fitted on the other",
            fix="leave the copies out",
        )
