"""Ways in which early failure prediction has fooled its authors; each has a test or a refusal."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest

from sag_research.deadend import _ceiling
from sag_research.deadend import _metrics as m
from sag_research.deadend._backtest import backtest
from sag_research.deadend._backtest_notes import length_cap
from sag_research.deadend._backtest_run import AlarmPlan, judge
from sag_research.deadend._crossfit import cross_fit
from sag_research.deadend._model import RiskModel
from sag_research.deadend._models import MODELS
from sag_research.deadend._prefixes import (
    Floats,
    Ints,
    Looks,
    Prefixes,
    StepTable,
    look_grid,
)
from sag_research.deadend._splits import make_folds
from sag_research.deadend._thresholds import RULES, set_threshold
from sag_research.errors import UsageError
from tests.deadend.evaluation import Constant, Remembers, Share, Steps, cohort
from tests.deadend.test_alarm import calibration


def test_1_scores_of_different_folds_are_never_ranked_against_each_other() -> None:
    p = cohort(tasks=8, runs=12, spread=0.5, signal=0.0)
    scores = cross_fit(Constant(), p, make_folds(p, folds=4))
    assert m.auroc(scores.failed, scores.scores) < 0.45  # pooled: worse than knowing nothing
    assert m.auroc(scores.failed, scores.scores, fold=scores.fold) == 0.5
    assert backtest(p, [Constant()], folds=4, baselines=False).table_["auroc"][0] == (
        pytest.approx(0.5)
    )


def lengths_decide() -> Prefixes:
    random = np.random.default_rng(0)
    failed = random.random(240) < 0.5
    steps = np.where(failed, random.integers(18, 60, 240), random.integers(11, 24, 240))
    tokens = [[f"a{i}" for i in random.integers(0, 5, n)] for n in steps]
    outcomes = np.where(failed, "failure", "success").tolist()
    return Prefixes.from_tokens(tokens, outcomes, [f"t{i // 4}" for i in range(240)])


class Noise(RiskModel):
    """Chance."""

    name = "noise"

    def _fit(self, prefixes: Prefixes, looks: Looks, failed: Floats, weight: Floats) -> None:
        pass

    def _predict(self, prefixes: Prefixes, looks: Looks) -> Floats:
        return np.random.default_rng(len(looks.run)).random(len(looks.run))


def test_2_a_maximum_over_all_looks_measures_length() -> None:
    p = lengths_decide()
    found = backtest(p, [Noise()], baselines=False)
    s = found.out_of_fold["noise"]
    top = s.table_.groupby(["fold", "run_id"]).agg(s=("score", "max"), y=("failed", "max"))
    folds = top.index.get_level_values("fold")
    assert m.auroc(top["y"], top["s"], fold=folds) > 0.6  # chance alone, with more throws
    row = found.table_.iloc[0]
    assert row["max_auroc_10_low"] < 0.5 < row["max_auroc_10_high"]
    assert not [c for c in found.table_ if c.startswith("max_auroc") and "_10" not in c]


def test_3_numbers_at_a_step_stand_beside_the_pool_with_how_many_are_alive() -> None:
    p = lengths_decide()
    row = backtest(p, [Steps()], baselines=False).table_.iloc[0]
    assert row["auroc"] > 0.55  # the pool knows how late it is
    assert row[["auroc_5", "auroc_10", "auroc_20"]].tolist() == pytest.approx([0.5] * 3)
    assert (row["n_5"], row["n_10"]) == (240, 240)
    assert row["n_20"] == (p.n_steps > 20).sum() < 240


def test_4_looks_after_the_outcome_stands_in_the_run_are_no_predictions() -> None:
    """A score that is printed decides the run: from then on nothing is predicted."""
    random = np.random.default_rng(0)
    tokens, outcomes, known = [], [], []
    for _ in range(160):
        failed, steps = random.random() < 0.5, int(random.integers(12, 30))
        at = int(random.integers(4, 10))
        tokens.append([f"good{i}" for i in random.integers(0, 6, steps)])
        if failed:
            tokens[-1][at:] = ["bad0"] * (steps - at)  # what is printed gives it away
        outcomes.append("failure" if failed else "success")
        known.append(at)
    tasks = [f"t{i // 4}" for i in range(160)]
    blind = Prefixes.from_tokens(tokens, outcomes, tasks)
    aware = Prefixes.from_tokens(tokens, outcomes, tasks, known_at_step=known)
    fooled, honest = (backtest(p, [Share()], baselines=False) for p in (blind, aware))
    assert fooled.table_["auroc"][0] > 0.85
    assert honest.table_["auroc"][0] == pytest.approx(0.5, abs=0.05)
    assert honest.table_["auroc_5"][0] == pytest.approx(0.5)
    looks = honest.out_of_fold["share"].looks
    assert (looks.seen <= np.array(known)[looks.run]).all()
    # neither may an alarm come later, nor count as a step that was saved
    assert honest.table_["n_alarms"][0] == 0


def test_5_who_runs_what_is_no_prefix() -> None:
    """A model that recognises the agent must lose that under a split by agent."""

    class Knows(Remembers):
        def _fit(self, prefixes: Prefixes, looks: Looks, failed: Floats, weight: Floats) -> None:
            super()._fit(
                Prefixes.of(
                    prefixes.runs.assign(task_id=prefixes.runs["model"]),
                    prefixes.start,
                    prefixes.stop,
                    prefixes.table,
                ),
                looks,
                failed,
                weight,
            )

        def _predict(self, prefixes: Prefixes, looks: Looks) -> Floats:
            rates = [self.rate_.get(name, self.base_rate_) for name in prefixes.runs["model"]]
            return np.array(rates)[looks.run]

    p = cohort(tasks=60, signal=0.0)
    model = np.where((p.failed == 1) ^ (np.arange(len(p)) % 5 == 0), "weak", "strong")
    p = Prefixes.of(p.runs.assign(model=model), p.start, p.stop, p.table)
    by_task = backtest(p, [Knows()], baselines=False).table_["auroc"][0]
    by_agent = backtest(p, [Knows()], group_by="model", split="leave", baselines=False)
    assert by_task > 0.7
    # inside a fold all runs are of one agent, whose name says nothing: all ties
    assert by_agent.table_["auroc"][0] == pytest.approx(0.5)


def test_6_what_tasks_share_can_be_the_group() -> None:
    """Customers whose tasks fail: a split by task learns their names, one by customer does not."""
    random = np.random.default_rng(1)
    customer = np.repeat([f"c{i}" for i in range(24)], 10)
    hard = np.repeat(random.random(24) < 0.5, 10)
    failed = random.random(240) < np.where(hard, 0.9, 0.1)
    tokens = [["a"] * 12 for _ in failed]
    tasks = [f"t{i // 2}" for i in range(240)]

    class KnowsCustomer(Remembers):
        def _fit(self, prefixes: Prefixes, looks: Looks, failed: Floats, weight: Floats) -> None:
            rate = prefixes.runs.assign(y=prefixes.failed).groupby("customer")["y"].mean()
            self.rate_ = rate.to_dict()

        def _predict(self, prefixes: Prefixes, looks: Looks) -> Floats:
            rates = [self.rate_.get(c, self.base_rate_) for c in prefixes.runs["customer"]]
            return np.array(rates)[looks.run]

    outcomes = np.where(failed, "failure", "success").tolist()
    p = Prefixes.from_tokens(tokens, outcomes, tasks, customer=customer.tolist())
    by_task, by_customer = (
        backtest(p, [KnowsCustomer()], group_by=by, baselines=False).table_["auroc"][0]
        for by in ("task_id", "customer")
    )
    assert by_task > 0.85
    assert by_customer == pytest.approx(0.5)


def test_7_the_noise_of_the_partition_is_shown_and_warned_of() -> None:
    p = cohort()
    one = backtest(p, [Share()], baselines=False)
    assert any("give repeats=5 or more" in note for note in one.notes)
    five = backtest(p, {"steps": Steps(), "hazard": MODELS["hazard"]()}, repeats=5, baselines=False)
    assert not any("repeats" in note for note in five.notes)
    assert "repeats=5" in one._repr_html_()
    spread = five.repeats_.groupby("model")["auroc"]
    assert (spread.size() == 5).all()
    assert spread.std()["hazard"] > 0


def test_8_the_error_of_the_nearest_neighbour_is_offered_as_no_bound() -> None:
    assert not [name for name in _ceiling.__all__ if "neighbour" in name or "nn" in name]
    # what is offered says how few runs it covers, and does not undercut a model that works
    p = cohort(tasks=60)
    table = _ceiling.observability_ceiling(p, depths=[1, 3])
    assert {"n_alive", "n", "coverage", "within_low", "within_high"} <= set(table)


def test_9_quantiles_of_single_tasks_are_no_rule() -> None:
    assert set(RULES) == {"fold-safe", "split", "pac", "hierarchical"}
    for rule in ("task-quantile", "task-balanced"):
        with pytest.raises(UsageError, match="no alarm rule"):
            set_threshold(calibration([1.0, 2.0]), 0.05, rule)
    # 40 tasks of 2 runs: each task's own .95 quantile is its maximum, which two runs do not know
    few = calibration(np.arange(80.0).tolist(), np.repeat(np.arange(40), 2).tolist())
    assert math.isfinite(set_threshold(few, 0.05, "hierarchical").value)


class Spy(Share):
    """Notes whom it was fitted on."""

    seen: list[frozenset[str]] = []  # noqa: RUF012 - shared by all copies on purpose

    def _fit(self, prefixes: Prefixes, looks: Looks, failed: Floats, weight: Floats) -> None:
        self.seen.append(frozenset(prefixes.runs["run_id"]))


def test_10_nothing_is_fitted_on_a_test_run() -> None:
    p = cohort()
    for fold in make_folds(p):
        Spy.seen.clear()
        judge(Spy(), p, [fold], AlarmPlan(0.1, "split", 1, "task_id", "task_id", 0))
        tested = set(p.runs["run_id"].iloc[fold.test])
        assert len(Spy.seen) == 4  # one outer fit and three inner ones
        assert not any(tested & fitted for fitted in Spy.seen)


def written(p: Prefixes) -> Prefixes:
    """Give a cohort texts and entities that its tokens decide."""
    names = [p.table.names[code] for code in p.table.tokens]
    columns = pa.table(
        {
            "thought": [f"I think of {name}" for name in names],
            "action": [f"do {name[:-5]} now" for name in names],
            "observation": [f"{name} came back " * 3 for name in names],
        }
    )
    offsets = np.arange(len(names) + 1, dtype=np.int64)
    entities = (offsets, p.table.tokens, p.table.names)
    table = StepTable(p.table.tokens, p.table.names, columns, entities)
    return Prefixes(p.runs, p.start, p.stop, table)


SLOW = {"stack", "boosting"}


@pytest.mark.parametrize("name", [name for name in MODELS if name not in SLOW])
def test_10_what_models_learn_does_not_depend_on_other_runs_being_there(name: str) -> None:
    """Vocabulary, idf, scale: without the test runs in its table, a model gives the same scores."""
    whole = written(cohort(tasks=16))
    fold = make_folds(whole, folds=4)[0]
    train, test = whole.take(fold.train), whole.take(fold.test)
    here = MODELS[name]().fit(train).predict(test, test.looks())
    alone, others = packed(whole, fold.train), packed(whole, fold.test)
    apart = MODELS[name]().fit(alone).predict(others, others.looks())
    assert here == pytest.approx(apart, abs=1e-9)


def packed(p: Prefixes, order: Ints) -> Prefixes:
    """Runs in a table of their own, with other codes for the same names."""
    rows = np.concatenate([np.arange(p.start[i], p.stop[i]) for i in order])
    stop = np.cumsum(p.n_steps[order])
    names = p.table.names[::-1]
    tokens = (len(names) - 1 - p.table.tokens[rows]).astype(np.int32)
    entities = (np.arange(len(rows) + 1, dtype=np.int64), tokens, names)
    assert p.table.columns is not None
    table = StepTable(tokens, names, p.table.columns.take(rows), entities)
    runs = p.runs.iloc[order].reset_index(drop=True)
    return Prefixes(runs, stop - p.n_steps[order], stop, table)


def test_11_what_is_unknown_is_never_a_failure() -> None:
    """Runs without a verdict, an empty patch that nobody judged among them, are left out."""
    p = cohort()
    detail = np.where(np.arange(len(p)) < 30, "empty", "")
    outcome = np.where(detail == "empty", "unknown", p.runs["outcome"])
    q = Prefixes.of(p.runs.assign(outcome=outcome, detail=detail), p.start, p.stop, p.table)
    found = backtest(q, [Share()], baselines=False)
    assert found.table_["n"][0] == 130
    assert found.table_["prevalence"][0] == pytest.approx(np.mean(p.failed[30:]))
    assert (found.prefixes.runs["detail"] != "empty").all()
    with pytest.raises(UsageError, match="unknown outcomes are never counted as failures"):
        m.brier(q.failed, np.zeros(len(q)))


def test_12_a_cap_on_length_is_found_and_said() -> None:
    random = np.random.default_rng(0)
    steps = np.minimum(random.integers(10, 60, 120), 50)
    outcomes = np.where((steps == 50) | (random.random(120) < 0.3), "failure", "success").tolist()
    tokens = [[f"a{i}" for i in random.integers(0, 9, n)] for n in steps]
    p = Prefixes.from_tokens(tokens, outcomes)
    assert length_cap(p) == (50, int((steps == 50).sum()))
    found = backtest(p, [Steps()], baselines=False)
    assert any("end at exactly 50 steps" in note for note in found.notes)
    assert length_cap(cohort()) is None or length_cap(cohort())[1] >= 8
    free = Prefixes.from_tokens([["a"] * n for n in range(5, 45)], ["success", "failure"] * 20)
    assert length_cap(free) is None
    even = Prefixes.from_tokens([["a"] * 9] * 10, ["success", "failure"] * 5)
    assert length_cap(even) is None  # all alike: no run was cut short


def test_13_an_alarm_on_the_grid_is_at_most_four_steps_late() -> None:
    grid = look_grid(200)
    assert np.diff(grid[grid <= 10]).max() == 1
    assert np.diff(grid).max() == 5
    p = cohort(tasks=60)
    found = backtest(p, [Share()], baselines=False, alpha=0.1)
    steps = found.alarms_["alarm_step"].dropna()
    assert len(steps)
    assert steps.isin(grid).all()
