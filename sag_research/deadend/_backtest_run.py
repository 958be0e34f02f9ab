"""Fitting, scoring and alarming, fold by fold, with nothing of a test run seen before."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from sag_research.deadend._crossfit import (
    INNER,
    OutOfFold,
    fresh,
    gather,
    inner_scores,
    score_fold,
)
from sag_research.deadend._model import RiskModel
from sag_research.deadend._prefixes import Floats, Ints, Looks, Prefixes
from sag_research.deadend._splits import Fold
from sag_research.deadend._thresholds import (
    Calibration,
    Threshold,
    calibration_of,
    set_threshold,
)
from sag_research.errors import NotEnoughDataError, UsageError

__all__ = ["BASELINES", "AlarmPlan", "Judged", "Units", "judge", "resolve", "units_of"]

BASELINES = (
    "majority",
    "hazard",
    "characters",
    "cap-p75",
    "repeat-3",
    "prior",
    "sag-entity-rule",
    "sag-entity-rule .90",
    "counts-logistic",
    "text-tfidf",
)
"""What every table holds: a score that does not beat these has learnt nothing worth having."""
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "sag-entity-rule .90": ("sag-entity-rule", {"threshold": 0.90}),
}
"""Further names: a model's name and its parameters."""


class AlarmPlan(NamedTuple):
    """How alarms are set in each fold."""

    alpha: float
    rule: str
    min_step: int
    group_by: str
    """Inner folds keep these groups whole."""
    cluster_by: str
    """Runs of one of these are alike."""
    seed: int


class Units(NamedTuple):
    """Tested runs, one entry for each repeat in which a run was tested; shape (n_units,)."""

    run: Ints
    fold: Ints
    repeat: Ints


class Judged(NamedTuple):
    """What one model did on runs it had not seen."""

    model: RiskModel
    scores: OutOfFold
    thresholds: tuple[Threshold, ...]
    """One a fold."""
    calibrations: tuple[Calibration | None, ...]
    """What each was set by: training runs; None where these are too few to be scored unseen."""
    stop: Floats
    """Step at which each unit raised an alarm, NaN for none; shape (n_units,)."""
    own_stop: Floats | None = None
    """The same by the rule that the model brings itself (``native_alarm``), if it does."""

    def by_own_rule(self, stop: Floats) -> Judged:
        """The same scores with the model's own alarm."""
        return self._replace(thresholds=(), calibrations=(), stop=stop, own_stop=None)


def resolve(
    models: Sequence[str | RiskModel] | Mapping[str, RiskModel],
) -> dict[str, RiskModel]:
    """Turn names and estimators into named estimators, in the order given."""
    if isinstance(models, Mapping):
        return {name: _estimator(model) for name, model in models.items()}
    if isinstance(models, str):
        models = [models]
    if not models:
        raise UsageError("no model to judge", fix="give one, e.g. 'stack'")
    found: dict[str, RiskModel] = {}
    for given in models:
        model = _estimator(given)
        name = (
            given if isinstance(given, str) else str(getattr(given, "name", type(given).__name__))
        )
        count = 2
        while name in found:
            name, count = f"{name.rsplit(' #', 1)[0]} #{count}", count + 1
        found[name] = model
    return found


def _estimator(given: str | RiskModel) -> RiskModel:
    if isinstance(given, str):
        return named(given)
    if isinstance(given, type) or not hasattr(given, "get_params"):
        raise UsageError(f"{given!r} is no model", fix="give a name or an estimator")
    return given


def named(name: str) -> RiskModel:
    """Make the model of this name."""
    from sag_research.deadend._models import MODELS

    if name in VARIANTS:
        base, parameters = VARIANTS[name]
        return MODELS[base](**parameters)
    if name not in MODELS:
        raise UsageError(f"no model {name!r}", fix=f"one of {', '.join(MODELS)}, or an estimator")
    return MODELS[name]()


def units_of(folds: Sequence[Fold]) -> Units:
    """List the tested runs of all folds."""
    run = np.concatenate([fold.test for fold in folds])
    sizes = [len(fold.test) for fold in folds]
    number = np.repeat(np.arange(len(folds), dtype=np.int64), sizes)
    repeat = np.repeat(np.array([fold.repeat for fold in folds], dtype=np.int64), sizes)
    return Units(run, number, repeat)


def judge(model: RiskModel, prefixes: Prefixes, folds: Sequence[Fold], plan: AlarmPlan) -> Judged:
    """Fit on each fold's training runs, set the alarm by them alone, and score its test runs."""
    parts, own, calibrations = [], [], []
    for number, fold in enumerate(folds):
        training = prefixes.take(fold.train)
        fitted = fresh(model, plan.seed).fit(training)
        parts.append(score_fold(fitted, prefixes, fold, number))
        own += _own_alarms(fitted, prefixes, parts[-1], fold)
        calibrations.append(_calibration(fitted, training, plan))
    scores, units = gather(prefixes, parts), units_of(folds)
    thresholds = thresholds_of(calibrations, plan)
    stop = first_alarms(scores, units, np.array([t.value for t in thresholds]), plan.min_step)
    own_stop = None
    if own:
        never_or_now = np.full(len(folds), 0.5)
        own_stop = first_alarms(gather(prefixes, own), units, never_or_now, plan.min_step)
    return Judged(model, scores, thresholds, tuple(calibrations), stop, own_stop)


def _own_alarms(
    fitted: RiskModel, prefixes: Prefixes, scored: OutOfFold, fold: Fold
) -> list[OutOfFold]:
    """Ask a model that brings a rule of its own where it would stop; 1 where it does."""
    rule = getattr(fitted, "native_alarm", None)
    if rule is None:
        return []
    tested = prefixes.take(fold.test)
    fires = np.asarray(rule(tested, tested.looks()), np.float64)
    return [replace(scored, scores=fires)]


def _calibration(fitted: RiskModel, training: Prefixes, plan: AlarmPlan) -> Calibration | None:
    enough = training.runs[plan.group_by].nunique(dropna=False) >= INNER
    group_by = plan.group_by if enough else "task_id"
    try:
        inner = inner_scores(fitted, training, group_by, plan.seed)
    except NotEnoughDataError:
        return None
    return calibration_of(inner, plan.cluster_by, plan.min_step)


def thresholds_of(
    calibrations: Sequence[Calibration | None], plan: AlarmPlan
) -> tuple[Threshold, ...]:
    """Set each fold's threshold; where there is too little to set it by, no alarm ever fires."""
    return tuple(
        Threshold(math.inf, 0.0)
        if one is None
        else set_threshold(one, plan.alpha, plan.rule, plan.seed)
        for one in calibrations
    )


def first_alarms(scores: OutOfFold, units: Units, threshold: Floats, min_step: int = 1) -> Floats:
    """Return the step of each unit's first score above its fold's threshold, NaN for none."""
    fires = (scores.scores > threshold[scores.fold]) & (scores.looks.seen >= min_step)
    size = len(scores.prefixes)
    keys = units.repeat * size + units.run
    order = np.argsort(keys, kind="stable")
    fired = scores.repeat[fires] * size + scores.looks.run[fires]
    unit = order[np.searchsorted(keys[order], fired)]
    stop = np.full(len(units.run), np.inf)
    np.minimum.at(stop, unit, scores.looks.seen[fires].astype(np.float64))
    stop[np.isinf(stop)] = np.nan
    return stop


class Remaining(NamedTuple):
    """How much of a quantity each run takes, and how much of it before each step."""

    total: Floats
    """Shape (n_runs,); NaN where unknown at any step of the run."""
    before: Floats
    """Running sum over the rows of the table, shape (n_rows + 1,)."""


def remaining(prefixes: Prefixes, amount: Floats) -> Remaining:
    """Sum an amount a row over each run."""
    before = np.concatenate([[0.0], np.cumsum(np.nan_to_num(amount))])
    unknown = np.concatenate([[0], np.cumsum(np.isnan(amount))])
    total = before[prefixes.stop] - before[prefixes.start]
    total[unknown[prefixes.stop] > unknown[prefixes.start]] = np.nan
    return Remaining(total, before)


def left_after(prefixes: Prefixes, what: Remaining, run: Ints, step: Ints) -> Floats:
    """Return how much of a quantity a run still takes after so many steps; NaN where unknown."""
    rest = what.before[prefixes.stop[run]] - what.before[prefixes.start[run] + step]
    return np.where(np.isnan(what.total[run]), np.nan, rest)


class Random(NamedTuple):
    """What stopping as many runs at the same moments, picked blindly, would do; per unit."""

    stopped: Floats
    """Probability that this unit is stopped."""
    saved: Floats
    """Expected amount saved on it, one column a quantity; shape (n_units, n_quantities)."""


def random_control(
    looks: Looks,
    units: Units,
    stop: Floats,
    prefixes: Prefixes,
    quantities: Sequence[Remaining],
) -> Random:
    """Expected result of stopping random runs of the same fold at the same steps.

    For each alarm, from the latest to the earliest, one of the runs that can be stopped at that
    step and have not been is drawn; the expectation over all such draws is exact, not simulated.
    """
    chance = np.zeros(len(stop))
    saved = np.zeros((len(stop), len(quantities)))
    width = int(looks.seen.max(initial=0)) + 1
    alive = np.unique(looks.run * width + looks.seen)
    for fold in np.unique(units.fold):
        inside = np.flatnonzero(units.fold == fold)
        steps, counts = np.unique(stop[inside][np.isfinite(stop[inside])], return_counts=True)
        drawn = 0
        for step, count in zip(steps[::-1].astype(np.int64), counts[::-1], strict=True):
            here = inside[np.isin(units.run[inside] * width + step, alive, assume_unique=True)]
            # one after another of n runs that are left: (n - 1) / n * (n - 2) / (n - 1) * ...
            share = (1 - chance[here]) * count / (len(here) - drawn)
            drawn += count
            chance[here] += share
            run = units.run[here]
            for column, what in enumerate(quantities):
                rest = left_after(prefixes, what, run, np.full(len(run), step))
                saved[here, column] += share * rest
    return Random(chance, saved)
