from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from scipy import stats
from sklearn.base import clone

from sag_research.deadend import _thresholds as t
from sag_research.deadend._alarm import Alarm, SmallSampleWarning
from sag_research.deadend._crossfit import OutOfFold, cross_fit
from sag_research.deadend._prefixes import Prefixes
from sag_research.deadend._splits import LeakWarning, make_folds
from sag_research.deadend._stack import PrefixRisk
from sag_research.errors import LeakError, NotEnoughDataError, UsageError
from tests.deadend.evaluation import Share, cohort


def calibration(top: list[float], group: list[int] | None = None, folds: int = 5) -> t.Calibration:
    """Successful runs only."""
    tops = np.array(top, float)
    groups = np.arange(len(tops)) if group is None else np.array(group)
    return t.Calibration(tops, np.zeros(len(tops)), groups, groups % folds)


def oof(p: Prefixes, scores: list[float]) -> OutOfFold:
    looks = p.looks()
    zeros = np.zeros(len(scores), np.int64)
    return OutOfFold(p, looks, np.array(scores), zeros, zeros)


# ---------------------------------------------------------------------- rules


def test_conformal_rank_by_hand() -> None:
    tops = np.random.default_rng(0).permutation(np.arange(1.0, 40.0))  # n = 39
    assert t.conformal_threshold(tops, 0.05) == 38.0  # ceil(40 x .95) = 38
    assert t.conformal_threshold(tops, 0.10) == 36.0
    assert t.conformal_threshold(tops, 0.03) == 39.0  # ceil(38.8)
    assert t.conformal_threshold(tops, 0.02) == math.inf  # ceil(39.2) = 40 > 39


@pytest.mark.parametrize(("alpha", "n"), [(0.05, 19), (0.10, 9), (0.20, 4), (0.01, 99)])
def test_what_alpha_needs(alpha: float, n: int) -> None:
    assert t.needed(alpha) == n
    assert math.isfinite(t.conformal_threshold(np.arange(float(n)), alpha))
    assert math.isinf(t.conformal_threshold(np.arange(float(n - 1)), alpha))


def test_a_runs_maximum_over_all_looks_counts() -> None:
    p = Prefixes.from_tokens([["a"] * 4, ["a"] * 3, ["a"]], ["success", "failure", "success"])
    scores = oof(p, [0.1, 0.9, 0.2, 0.3, 0.4])
    found = t.calibration_of(scores)
    assert found.top.tolist() == [0.9, 0.4, -math.inf]  # a run without looks is never stopped
    assert found.failed.tolist() == [0, 1, 0]
    late = t.calibration_of(scores, min_step=3)
    assert late.top.tolist() == [0.2, -math.inf, -math.inf]


def test_of_several_repeats_the_first_counts() -> None:
    p = cohort(tasks=20)
    one, two = (t.calibration_of(cross_fit(Share(), p, make_folds(p, repeats=r))) for r in (1, 2))
    assert np.array_equal(one.top, two.top)
    assert np.array_equal(one.fold, two.fold)


def test_looking_often_costs_nothing() -> None:
    """Exchangeable runs of many looks are stopped as seldom as alpha says."""
    random = np.random.default_rng(1)
    shares = []
    for _ in range(400):
        walks = np.cumsum(random.normal(size=(60, 30)), axis=1)
        threshold = t.conformal_threshold(walks[:39].max(axis=1), 0.10)
        shares.append((walks[39:].max(axis=1) > threshold).mean())
    assert np.mean(shares) == pytest.approx(0.10, abs=3 * np.std(shares) / 20)


def test_split_uses_successes_only() -> None:
    good = calibration(list(range(19)))
    both = t.Calibration(
        np.append(good.top, [50.0, 60.0]),
        np.append(good.failed, [1.0, 1.0]),
        np.append(good.group, [97, 98]),
        np.append(good.fold, [0, 1]),
    )
    assert t.set_threshold(both, 0.05, "split").value == 18.0


def test_hierarchical_by_hand() -> None:
    # 4 tasks and infinity weigh 1/5; task 3 has two runs, worth 1/10 each
    few = calibration([1, 2, 3, 4, 9], [0, 1, 2, 3, 3])
    assert t.set_threshold(few, 0.2, "hierarchical").value == 9.0  # mass .8 is reached at 9
    assert t.set_threshold(few, 0.3, "hierarchical").value == 4.0  # .6 + .1
    assert math.isinf(t.set_threshold(few, 0.19, "hierarchical").value)


def test_hierarchical_is_split_where_tasks_have_one_run() -> None:
    tops = np.random.default_rng(0).random(57).tolist()
    one = calibration(tops)
    for alpha in (0.02, 0.05, 0.1, 0.33):
        assert t.set_threshold(one, alpha, "hierarchical").value == (
            t.set_threshold(one, alpha, "split").value
        )


def test_pac_by_hand() -> None:
    # 45 runs: .95^45 = .099, so only the largest maximum will do; with 44 nothing does
    assert t.set_threshold(calibration(list(range(45))), 0.05, "pac").value >= 44.0
    assert math.isinf(t.set_threshold(calibration(list(range(44))), 0.05, "pac").value)


def test_pac_rank_is_the_smallest_that_is_safe() -> None:
    n, alpha = 200, 0.1
    value = t.set_threshold(calibration(list(range(n))), alpha, "pac").value
    rank = int(value) + 1
    assert stats.binom.sf(rank - 1, n, 1 - alpha) <= t.DELTA
    assert value >= t.set_threshold(calibration(list(range(n))), alpha, "split").value


def test_pac_exceeds_alpha_for_few_calibration_sets() -> None:
    random = np.random.default_rng(2)
    over = {"split": 0, "pac": 0}
    for trial in range(200):
        one = calibration(random.random(120).tolist())
        for rule in over:
            over[rule] += 1 - t.set_threshold(one, 0.1, rule, seed=trial).value > 0.1
    assert over["split"] > 60
    assert over["pac"] <= 30  # 20 expected, at most 3 standard errors more


def test_fold_safe_by_hand() -> None:
    """Two folds with very different levels: each is stopped by the other's threshold."""
    top = [*np.linspace(0, 1, 30), *np.linspace(5, 6, 30)]
    shifted = t.Calibration(np.array(top), np.zeros(60), np.arange(60), np.repeat([0, 1], 30))
    # at every level that fires at all, fold 0 would stop all of fold 1
    found = t.set_threshold(shifted, 0.1, "fold-safe")
    count = round(found.alpha * 61)
    assert count == 1  # only with 30 of 30 in order is the threshold of one fold infinite
    assert found.value == 6.0


def test_fold_safe_is_plain_where_nothing_shifts() -> None:
    random = np.random.default_rng(0)
    one = calibration(random.random(4000).tolist())
    found = t.set_threshold(one, 0.1, "fold-safe")
    assert 0.08 < found.alpha <= 0.1
    assert found.value >= t.set_threshold(one, 0.1, "split").value


def shifted_tasks(random: np.random.Generator, tasks: int, runs: int) -> t.Calibration:
    level = np.repeat(random.normal(size=tasks), runs)
    top = level + 0.1 * random.normal(size=tasks * runs)
    group = np.repeat(np.arange(tasks), runs)
    return t.Calibration(top, np.zeros(len(top)), group, group % 3)


def test_under_task_shift_plain_split_overshoots_and_fold_safe_does_not() -> None:
    random = np.random.default_rng(5)
    alpha, shares = 0.1, {"split": [], "fold-safe": [], "hierarchical": []}
    for _ in range(400):
        known, new = shifted_tasks(random, 12, 8), shifted_tasks(random, 60, 2)
        for rule, found in shares.items():
            found.append((new.top > t.set_threshold(known, alpha, rule).value).mean())
    error = {rule: np.std(s) / math.sqrt(len(s)) for rule, s in shares.items()}
    mean = {rule: np.mean(s) for rule, s in shares.items()}
    assert mean["split"] > alpha + 3 * error["split"]
    assert mean["fold-safe"] <= alpha + error["fold-safe"]
    assert mean["hierarchical"] <= alpha + 3 * error["hierarchical"]
    # what is promised of the mean is not promised of each test
    assert np.max(shares["fold-safe"]) > alpha


def test_unknown_rules_and_levels_are_refused() -> None:
    with pytest.raises(UsageError, match="no alarm rule 'hope'"):
        t.set_threshold(calibration([1.0]), 0.05, "hope")
    with pytest.raises(UsageError, match="no share"):
        t.set_threshold(calibration([1.0]), 5, "split")


# ---------------------------------------------------------------------- the alarm


def calibrated(**parameters: object) -> Alarm:
    p = cohort(tasks=60)
    scores = cross_fit(Share(), p, make_folds(p, folds=3))
    return Alarm(**parameters).calibrate_scores(scores, Share().fit(p))


def test_alarm_says_what_it_rests_on() -> None:
    alarm = calibrated(rule="split", alpha=0.1)
    row = alarm.table_.iloc[0]
    assert row["n_success"] + row["n_failure"] == 240
    assert row["n_tasks"] == 60
    assert row["needed"] == 9
    assert 0 <= row["false_aborts_low"] <= row["false_aborts"] <= row["false_aborts_high"] <= 1
    assert row["precision_low"] < row["precision"] <= row["precision_high"]
    assert not row["acts"]
    assert repr(alarm).startswith("Alarm(alpha=0.1, rule='split', mode='shadow', threshold 0.")
    assert "not calibrated" in repr(clone(alarm))


def test_alarms_come_on_the_grid_and_after_the_first_steps() -> None:
    alarm = calibrated(min_step=3)
    high = alarm.threshold_ + 0.01
    assert [seen for seen in range(41) if alarm.fires(seen, high)] == [
        3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30, 35, 40,
    ]  # fmt: skip
    assert not alarm.fires(10, alarm.threshold_)
    assert not alarm.fires(0, high)


def test_in_sample_scores_are_refused() -> None:
    p = cohort(tasks=60)
    risk = Share().fit(p.take(np.arange(200)))
    with pytest.raises(LeakError, match="fitted on 200 of these 240 runs"):
        Alarm().calibrate(risk, p)


def test_unseen_runs_are_scored_by_the_model_itself() -> None:
    p = cohort(tasks=80)
    risk = Share().fit(p.take(np.arange(160)))
    rest = p.take(np.arange(160, 320))
    alarm = Alarm(rule="split").calibrate(risk, rest)
    top = np.full(len(rest), -np.inf)
    looks = rest.looks()
    np.maximum.at(top, looks.run, risk.predict(rest, looks))
    assert alarm.threshold_ == t.conformal_threshold(top[rest.failed == 0], 0.05)


def test_new_runs_of_known_tasks_are_told() -> None:
    p = cohort(tasks=60)
    even = np.arange(len(p)) % 2 == 0
    with pytest.warns(LeakWarning, match="calibrated for known tasks only"):
        Alarm().calibrate(Share().fit(p.take(even)), p.take(~even))


def test_a_models_own_unseen_scores_are_used() -> None:
    p = cohort(tasks=60)
    risk = Share().fit(p)
    risk.out_of_fold_ = cross_fit(Share(), p, make_folds(p, folds=3))
    alarm = Alarm(rule="split").calibrate(risk, p)
    expected = Alarm(rule="split").calibrate_scores(risk.out_of_fold_)
    assert alarm.threshold_ == expected.threshold_
    # scores of some runs alone are not enough
    half = p.take(np.arange(120))
    risk.out_of_fold_ = cross_fit(Share(), half, make_folds(half, folds=3))
    with pytest.raises(LeakError, match="no out-of-fold score of 120 runs"):
        Alarm().calibrate(risk, p)


def test_the_stack_calibrates_on_what_it_was_fitted_on() -> None:
    p = cohort(tasks=24)
    risk = PrefixRisk(trees=20).fit(p)
    alarm = Alarm(alpha=0.1).calibrate(risk, p)
    row = alarm.table_.iloc[0]
    assert row["n_success"] + row["n_failure"] == len(p)
    top = t.calibration_of(risk.out_of_fold_)
    assert alarm.threshold_ == t.set_threshold(top, 0.1, "fold-safe").value


def test_too_few_successes_are_refused_with_what_is_needed() -> None:
    p = cohort(tasks=8)
    risk = Share().fit(cohort(tasks=2, seed=9).take(np.arange(8)))
    risk.fitted_runs_, risk.fitted_tasks_ = frozenset(), frozenset()
    few = p.take(np.flatnonzero(p.failed == 0)[:12])
    with pytest.raises(NotEnoughDataError, match=r"needs 19 successful runs.*there are 12"):
        Alarm().calibrate(risk, few)
    with pytest.raises(NotEnoughDataError, match="needs 19 tasks"):
        Alarm(rule="hierarchical").calibrate(risk, p)
    with pytest.raises(
        NotEnoughDataError, match="no run of this cohort is known to have succeeded"
    ):
        Alarm().calibrate(risk, p.take(p.failed == 1))


def test_few_tasks_are_warned_of() -> None:
    p = cohort(tasks=10, runs=12)
    scores = cross_fit(Share(), p, make_folds(p, folds=3))
    with pytest.warns(SmallSampleWarning, match=r"10 tasks are fewer than 1/alpha - 1 = 19"):
        Alarm().calibrate_scores(scores)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Alarm(alpha=0.1).calibrate_scores(scores)


def test_shadow_never_acts_and_intervening_needs_proof() -> None:
    assert not calibrated().acts(10, 1.0)
    with pytest.raises(UsageError, match="needs p_star"):
        calibrated(mode="intervene")
    with pytest.raises(UsageError, match="no mode 'boldly'"):
        calibrated(mode="boldly")
    sure = calibrated(mode="intervene", p_star=0.3, rule="split", alpha=0.1)
    low = sure.table_["precision_low"][0]
    assert 0.3 < low < 1
    assert sure.acts(10, 1.0)
    unsure = calibrated(mode="intervene", p_star=float(low) + 0.001, rule="split", alpha=0.1)
    assert unsure.fires(10, 1.0)
    assert not unsure.acts(10, 1.0)


def test_an_alarm_that_is_not_calibrated_says_so() -> None:
    with pytest.raises(UsageError, match="not calibrated"):
        Alarm().fires(3, 0.5)
