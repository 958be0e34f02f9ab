from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from sag_research.deadend import _backtest_run as run
from sag_research.deadend import _metrics as m
from sag_research.deadend._backtest import Backtest, backtest
from sag_research.deadend._crossfit import OutOfFold, cross_fit
from sag_research.deadend._prefixes import Looks, Prefixes, StepTable
from sag_research.deadend._splits import LeakWarning, make_folds
from sag_research.errors import LeakError, MissingDataError, NotEnoughDataError, UsageError
from tests.deadend.evaluation import Constant, Remembers, Share, Steps, cohort


@pytest.fixture(scope="module")
def found() -> Backtest:
    return backtest(
        cohort(tasks=60), [Share(), Constant(), Steps()], baselines=False, repeats=2, alpha=0.1
    )


def test_columns_and_counts(found: Backtest) -> None:
    table = found.table_.set_index("model")
    assert table.index.tolist() == ["share", "constant", "steps", "steps (own alarm)"]
    assert (table["n"] == 240).all()
    assert (table["n_tasks"] == 60).all()
    assert (table["folds"] == 10).all()
    assert table["prevalence"].tolist() == pytest.approx([found.prefixes.failed.mean()] * 4)
    wanted = [
        "auroc", "auroc_5", "auroc_10", "auroc_20", "auroc_30", "max_auroc_10", "auprc", "brier",
        "ece", "false_aborts", "recall", "precision", "earliness", "steps_saved", "tokens_saved",
        "cost_saved", "random_false_aborts", "random_recall", "random_precision",
        "random_steps_saved", "net_benefit", "stability",
    ]  # fmt: skip
    for name in wanted:
        assert {name, f"{name}_low", f"{name}_high"} <= set(table.columns)
    assert {"n_5", "n_10", "n_20", "n_30", "p_star", "false_aborts_worst_fold"} <= set(table)
    alive = [(found.prefixes.n_steps > t).sum() for t in (5, 10, 20, 30)]
    assert table.loc["share", ["n_5", "n_10", "n_20", "n_30"]].tolist() == alive


def test_numbers_are_the_metrics_of_the_scores(found: Backtest) -> None:
    row = found.table_.set_index("model").loc["share"]
    s = found.out_of_fold["share"]
    y, seen = s.failed, s.looks.seen
    assert row["auroc"] == pytest.approx(m.auroc(y, s.scores, s.weight, s.fold))
    here = seen == 10
    assert row["auroc_10"] == pytest.approx(m.auroc(y[here], s.scores[here], fold=s.fold[here]))
    assert row["auprc"] == pytest.approx(m.average_precision(y, s.scores, s.weight, s.fold))
    assert row["brier"] == pytest.approx(m.brier(y, s.scores))
    assert row["ece"] == pytest.approx(m.ece(y, s.scores))
    assert row["auroc_low"] < row["auroc"] < row["auroc_high"]
    frame = s.table_[s.table_["seen"] <= 10].groupby(["repeat", "fold", "run_id"])
    top = frame.agg(score=("score", "max"), failed=("failed", "max"), last=("seen", "max"))
    top = top[top["last"] == 10].reset_index()
    assert row["max_auroc_10"] == pytest.approx(
        m.auroc(top["failed"], top["score"], fold=top["fold"])
    )
    assert row["n_max_auroc_10"] == (found.prefixes.n_steps > 10).sum()
    frame = s.table_.assign(jump=s.table_.groupby(["repeat", "run_id"])["score"].diff().abs())
    mean = frame.groupby(["repeat", "run_id"])["jump"].mean().mean()
    assert row["stability"] == pytest.approx(mean)


def test_alarm_numbers_are_those_of_the_alarms(found: Backtest) -> None:
    table, alarms = found.table_.set_index("model"), found.alarms_
    rows = alarms[alarms["model"] == "share"]
    stopped = rows["alarm_step"].notna()
    bad = rows["failed"] == 1
    row = table.loc["share"]
    assert row["n_alarms"] == stopped.sum() > 0
    assert row["false_aborts"] == pytest.approx(stopped[~bad].mean())
    assert row["recall"] == pytest.approx(stopped[bad].mean())
    assert row["precision"] == pytest.approx(bad[stopped].mean())
    saved = (rows["n_steps"] - rows["alarm_step"])[stopped].sum() / rows["n_steps"].sum()
    assert row["steps_saved"] == pytest.approx(saved)
    caught = rows[stopped & bad]
    assert row["earliness"] == pytest.approx((caught["alarm_step"] / caught["n_steps"]).mean())
    benefit = (stopped & bad).sum() - (stopped & ~bad).sum()
    assert row["net_benefit"] == pytest.approx(benefit / len(rows))
    worst = stopped[~bad].groupby(rows["fold"][~bad]).mean().max()
    assert row["false_aborts_worst_fold"] == pytest.approx(worst)


def test_a_scale_without_probabilities_has_no_calibration(found: Backtest) -> None:
    table = found.table_.set_index("model")
    assert table.loc["steps", ["brier", "ece", "stability"]].isna().all()
    assert math.isfinite(table.loc["steps", "auroc"])


def test_a_rule_of_its_own_has_a_row_of_its_own(found: Backtest) -> None:
    table, alarms = found.table_.set_index("model"), found.alarms_
    own = alarms[alarms["model"] == "steps (own alarm)"]
    assert table.loc["steps (own alarm)", "rule"] == "own"
    assert table.loc["steps", "rule"] == "fold-safe"
    caps = [np.percentile(found.prefixes.n_steps[fold.train], 75) for fold in found.folds]
    looks = found.prefixes.looks()
    place = {name: i for i, name in enumerate(found.prefixes.runs["run_id"])}
    for row in own.iloc[::17].itertuples():
        seen = looks.seen[looks.run == place[row.run_id]]
        late = [int(t) for t in seen if t >= caps[row.fold]]
        assert late[:1] == ([] if row.alarm_step is pd.NA else [row.alarm_step])


def test_a_constant_score_knows_nothing_and_stops_nobody(found: Backtest) -> None:
    row = found.table_.set_index("model").loc["constant"]
    assert row[["auroc", "auroc_low", "auroc_high"]].tolist() == pytest.approx([0.5] * 3)
    assert row["n_alarms"] == 0
    assert row["false_aborts"] == 0 < row["false_aborts_high"]  # none of n is no proof of never
    assert math.isnan(row["precision"])


def test_models_are_compared_over_the_same_tasks(found: Backtest) -> None:
    paired = found.paired_.set_index("other")
    table = found.table_.set_index("model")
    gap = table.loc["share", "auroc"] - table.loc["constant", "auroc"]
    assert paired.loc["constant", "difference"] == pytest.approx(gap)
    assert paired.loc["constant", "low"] > 0
    assert paired["p_holm"].tolist() == pytest.approx(m.holm(paired["p"]).tolist())
    assert (paired["p_holm"] >= paired["p"]).all()
    other = found.paired("constant", "auroc_10")
    assert other["other"].tolist() == ["share", "steps"]  # an own alarm has no scores of its own
    assert len(found.paired("share", "recall")) == 3
    with pytest.raises(UsageError, match="no number 'brier'"):
        found.paired("steps", "brier")


def test_thresholds_come_from_training_runs_alone() -> None:
    """What the test runs of a fold score, or how they end, cannot move the fold's threshold."""
    p = cohort(tasks=60)
    fold = make_folds(p)[0]
    plan = run.AlarmPlan(0.1, "fold-safe", 1, "task_id", "task_id", 0)
    turned = p.runs["outcome"].map({"success": "failure", "failure": "success"})
    outcome = p.runs["outcome"].where(~np.isin(np.arange(len(p)), fold.test), turned)
    other = Prefixes.of(p.runs.assign(outcome=outcome), p.start, p.stop, p.table)
    one, two = (run.judge(Share(), q, [fold], plan) for q in (p, other))
    assert one.thresholds == two.thresholds
    assert math.isfinite(one.thresholds[0].value)


def test_first_alarm_by_hand() -> None:
    p = Prefixes.from_tokens([["a"] * 5, ["a"] * 4], ["success", "failure"])
    looks = Looks(np.array([0, 0, 0, 0, 1, 1, 1]), np.array([1, 2, 3, 4, 1, 2, 3]))
    zeros = np.zeros(7, np.int64)
    scores = np.array([0.9, 0.1, 0.6, 0.7, 0.1, 0.5, 0.5])
    oof = OutOfFold(p, looks, scores, zeros, zeros)
    units = run.Units(np.array([1, 0]), np.zeros(2, np.int64), np.zeros(2, np.int64))
    stop = run.first_alarms(oof, units, np.array([0.5]))
    assert math.isnan(stop[0])  # equal to the threshold is not above it
    assert stop[1] == 1
    assert run.first_alarms(oof, units, np.array([0.5]), min_step=2)[1] == 3


def test_random_stops_by_hand() -> None:
    # three runs of 4, 4 and 2 steps; alarms at step 1 and at step 3
    p = Prefixes.from_tokens([["a"] * 4, ["a"] * 4, ["a"] * 2], ["success", "failure", "failure"])
    units = run.Units(np.arange(3), np.zeros(3, np.int64), np.zeros(3, np.int64))
    stop = np.array([np.nan, 3.0, 1.0])
    steps = run.remaining(p, np.ones(10))
    blind = run.random_control(p.looks(), units, stop, p, [steps])
    # at 3 one of the first two is drawn; at 1 one of the two that are left
    assert blind.stopped.tolist() == pytest.approx([0.75, 0.75, 0.5])
    assert blind.stopped.sum() == 2
    # run 0: 1 step with 1/2; 3 steps with 1/2 (not drawn before) x 1/2
    assert blind.saved[:, 0].tolist() == pytest.approx([0.5 + 0.75, 0.5 + 0.75, 0.5])


def test_random_stops_are_the_mean_of_drawing(found: Backtest) -> None:
    p, judged, units = found.prefixes, found.judged["share"], found.units
    steps = run.remaining(p, np.ones(len(p.table)))
    looks = p.looks()
    exact = run.random_control(looks, units, judged.stop, p, [steps])
    random, drawn = np.random.default_rng(0), np.zeros(len(judged.stop))
    points = set(zip(looks.run.tolist(), looks.seen.tolist(), strict=True))
    for _ in range(300):
        for fold in range(10):
            free = np.flatnonzero(units.fold == fold).tolist()
            stops = judged.stop[free]
            for step in sorted(stops[np.isfinite(stops)], reverse=True):
                one = random.choice([i for i in free if (units.run[i], int(step)) in points])
                free.remove(one)
                drawn[one] += 1 / 300
    assert np.abs(drawn - exact.stopped).max() < 0.15
    assert exact.stopped.sum() == pytest.approx(np.isfinite(judged.stop).sum())


def numbers(p: Prefixes, tokens: list[float | None]) -> Prefixes:
    columns = pa.table({"tokens_in": tokens, "tokens_out": [1.0] * len(p.table)})
    names = [[p.table.names[t] for t in sequence] for sequence in p.sequences()]
    return Prefixes.from_tokens(names, p.runs["outcome"], p.runs["task_id"], columns)


def test_tokens_saved_are_unknown_where_one_step_is() -> None:
    p = cohort(tasks=60)
    spent = np.random.default_rng(0).integers(1, 100, len(p.table)).astype(float).tolist()
    q = numbers(p, spent)
    options = {"baselines": False, "alpha": 0.1}
    row = backtest(q, [Share()], **options).table_.iloc[0]
    assert 0 < row["tokens_saved"] < 1
    assert math.isnan(row["cost_saved"])
    holes = [*spent]
    holes[int(q.start[3])] = None  # of run 3 nothing can be said; the others are counted
    found = backtest(numbers(p, holes), [Share()], **options)
    n = found.intervals_.set_index("metric")["n"]
    assert n["tokens_saved"] == len(p) - 1
    assert n["steps_saved"] == len(p)
    assert found.table_["tokens_saved"][0] == pytest.approx(row["tokens_saved"], abs=0.02)


def test_unknown_outcomes_are_left_out() -> None:
    p = cohort()
    outcome = p.runs["outcome"].mask(np.arange(len(p)) < 20, "unknown")
    q = Prefixes.of(p.runs.assign(outcome=outcome), p.start, p.stop, p.table)
    assert backtest(q, [Share()], baselines=False).table_["n"][0] == 140


def test_the_same_seed_gives_the_same_table() -> None:
    one, two = (backtest(cohort(), [Share()], baselines=False, draws=50) for _ in range(2))
    assert one.table_.equals(two.table_)


def test_a_random_split_is_stamped_everywhere() -> None:
    p = cohort(signal=0.0, spread=0.3)
    with pytest.raises(LeakError):
        backtest(p, [Remembers()], split="random", baselines=False)
    leak = backtest(p, [Remembers()], split="random", allow_leak=True, baselines=False)
    honest = backtest(p, [Remembers()], baselines=False)
    assert "LEAK" in repr(leak)
    assert leak.table_.attrs["leak"]
    assert leak.table_["split"][0] == "LEAK random"
    assert leak.paired_.attrs["leak"]
    assert leak._repr_html_().startswith("<p><b>LEAK</b>")
    assert "LEAK" not in repr(honest) + honest._repr_html_() + honest.table_["split"][0]
    assert not honest.table_.attrs
    assert leak.table_["auroc"][0] > honest.table_["auroc"][0] + 0.1


def test_copies_of_test_runs_in_the_corpus_are_stamped() -> None:
    p = cohort(tasks=20)
    names = [[p.table.names[t] for t in sequence] for sequence in p.sequences()]
    q = Prefixes.from_tokens(
        names + names[:8],
        [*p.runs["outcome"], *p.runs["outcome"][:8]],
        [*p.runs["task_id"], *(f"copy{i}" for i in range(8))],
    )
    with pytest.warns(LeakWarning, match="test runs stand in the training corpus"):
        found = backtest(q, [Share()], baselines=False)
    assert "LEAK" in repr(found)


def test_a_run_that_stands_twice_is_refused() -> None:
    p = cohort()
    with pytest.raises(UsageError, match="'run-00003' stands in this cohort twice"):
        backtest(p.take([*range(len(p)), 3]), [Share()], baselines=False)


@pytest.mark.parametrize(
    ("prefixes", "reason"),
    [
        (Prefixes.from_tokens([["a"] * 3] * 9, ["unknown"] * 9), "0 runs failed and 0 succeeded"),
        (Prefixes.from_tokens([["a"] * 3] * 9, ["failure"] * 9), "9 runs failed and 0 succeeded"),
        (cohort(tasks=1, runs=30), "collect runs of more tasks"),
    ],
)
def test_data_that_carry_no_number_are_refused(prefixes: Prefixes, reason: str) -> None:
    with pytest.raises(NotEnoughDataError, match=reason):
        backtest(prefixes, [Share()], baselines=False)


def test_too_few_successes_for_alpha_never_stop_anyone() -> None:
    p = cohort(tasks=8, runs=4)
    found = backtest(p, [Share()], baselines=False, folds=4, alpha=0.01).table_.iloc[0]
    assert found["folds_without_alarm"] == found["folds"] == 4
    assert found["n_alarms"] == 0


def test_names_of_models() -> None:
    named = run.resolve([Share(), Share(-1.0), "sag-entity-rule .90"])
    assert list(named) == ["share", "share #2", "sag-entity-rule .90"]
    assert named["sag-entity-rule .90"].get_params()["threshold"] == 0.90
    assert list(run.resolve({"mine": Share()})) == ["mine"]
    with pytest.raises(UsageError, match="no model 'oracle'"):
        run.resolve(["oracle"])


def test_a_variant_of_a_rule_is_judged_by_its_alarm_alone() -> None:
    p = cohort(tasks=20)
    codes = p.table.tokens
    rows = (np.arange(len(codes) + 1, dtype=np.int64), codes, p.table.names)
    q = Prefixes(p.runs, p.start, p.stop, StepTable(codes, p.table.names, None, rows))
    names = ["sag-entity-rule", "sag-entity-rule .90"]
    table = backtest(q, names, baselines=False, draws=20).table_
    assert table["model"].tolist() == [
        "sag-entity-rule", "sag-entity-rule (own alarm)", "sag-entity-rule .90 (own alarm)"
    ]  # fmt: skip
    stops = table.set_index("model")["n_alarms"]
    assert stops["sag-entity-rule .90 (own alarm)"] <= stops["sag-entity-rule (own alarm)"]


def test_baselines_that_lack_their_data_are_named(found: Backtest) -> None:
    some = backtest(cohort(), [Share()], baselines=["majority", "characters"], draws=20)
    assert some.table_["model"].tolist() == ["share", "majority"]
    assert "reads the steps' texts" in some.left_out["characters"]
    assert "characters left out" in some._repr_html_()
    with pytest.raises(MissingDataError):
        backtest(cohort(), ["characters"], baselines=False)


def test_other_splits_give_tables(found: Backtest) -> None:
    days = [f"2026-01-{1 + i // 8:02d}T00:00:00Z" for i in range(160)]
    p = cohort(model=["m1", "m2", "m3", "m4"] * 40, started_at=days)
    left = backtest(p, [Share()], group_by="model", split="leave", baselines=False)
    assert len(left.folds) == 4
    assert left.table_["n_clusters"][0] == 40  # tasks, not the four models, are resampled
    timed = backtest(p, [Share()], split="time", folds=3, baselines=False)
    assert timed.table_["n"][0] < len(p)


def test_html_escapes_names() -> None:
    page = backtest(cohort(), {"<b>": Share()}, baselines=False, draws=20)._repr_html_()
    assert "&lt;b&gt;" in page
    assert "<td><b>" not in page


def test_cross_fit_and_backtest_score_alike(found: Backtest) -> None:
    p = found.prefixes
    again = cross_fit(Share(), p, make_folds(p, repeats=2))
    assert np.array_equal(again.scores, found.out_of_fold["share"].scores)


def test_auroc_by_step_is_the_tables(found: Backtest) -> None:
    curve, table = found.auroc_by_step(), found.table_.set_index("model")
    row = curve[(curve["model"] == "share") & (curve["step"] == 10)].iloc[0]
    assert row["auroc"] == table.loc["share", "auroc_10"]
    assert (row["low"], row["high"]) == tuple(table.loc["share", ["auroc_10_low", "auroc_10_high"]])
    assert row["n"] == table.loc["share", "n_10"]
    assert set(curve["model"]) == {"share", "constant", "steps"}
    assert (curve["n"] - curve["n_failed"] >= 10).all()


def test_cost_curve_goes_through_the_table(found: Backtest) -> None:
    curve = found.cost_curve([0.05, 0.1, 0.3]).set_index(["model", "alpha"])
    row = found.table_.set_index("model").loc["share"]
    for name in ("false_aborts", "recall", "steps_saved", "random_steps_saved", "net_benefit"):
        assert curve.loc[("share", 0.1), name] == pytest.approx(row[name])
    saved = curve.loc["share", "steps_saved"]
    assert saved[0.05] < saved[0.1] < saved[0.3]


def test_decision_curve_by_hand(found: Backtest) -> None:
    curve = found.decision_curve([0.3, 0.6]).set_index(["model", "threshold"])
    assert "steps" not in curve.index
    s = found.out_of_fold["share"].table_
    runs = s.groupby(["repeat", "run_id"]).agg(top=("score", "max"), y=("failed", "max"))
    stopped = runs["top"] >= 0.6
    hits, false = (stopped & (runs["y"] == 1)).sum(), (stopped & (runs["y"] == 0)).sum()
    expected = m.net_benefit(hits, false, len(runs), 0.6)
    assert curve.loc[("share", 0.6), "net_benefit"] == pytest.approx(expected)


def test_reliability_is_of_one_model(found: Backtest) -> None:
    bins = found.reliability("share")
    assert bins["n"].sum() == len(found.out_of_fold["share"])
    assert bins["share"].sum() == pytest.approx(1)
    with pytest.raises(UsageError, match="no probabilities"):
        found.reliability("steps")
    with pytest.raises(UsageError, match="no model 'x' here"):
        found.reliability("x")
