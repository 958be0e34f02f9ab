from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as peer

from sag_research.deadend import _metrics as m
from sag_research.errors import UsageError


def test_auroc_by_hand() -> None:
    # pairs of failure and success: (.9, .4) (.9, .1) (.4, .4) tie (.4, .1): 3.5 of 4
    assert m.auroc([1, 1, 0, 0], [0.9, 0.4, 0.4, 0.1]) == 0.875
    assert m.auroc([1, 0], [0.5, 0.5]) == 0.5
    assert m.auroc([1, 0], [0.1, 0.9]) == 0.0


def test_weighted_auroc_by_hand() -> None:
    # pairs weigh 2 * 1 (in order) and 2 * 3 (not)
    assert m.auroc([1, 0, 0], [0.5, 0.1, 0.9], weight=[2, 1, 3]) == pytest.approx(2 / 8)


def test_auroc_counts_pairs_inside_folds_only() -> None:
    failed, score, fold = [1, 0, 1, 0], [0.9, 0.8, 0.2, 0.1], [0, 0, 1, 1]
    assert m.auroc(failed, score) == 0.75  # pooled: (.2, .8) is out of order
    assert m.auroc(failed, score, fold=fold) == 1.0
    assert m.concordance(failed, score, fold=fold) == m.Pairs(2.0, 2.0)


def test_folds_weigh_by_their_pairs() -> None:
    failed = [1, 0, 1, 1, 0, 0]
    score = [0.9, 0.1, 0.1, 0.1, 0.9, 0.9]
    assert m.auroc(failed, score, fold=[0, 0, 1, 1, 1, 1]) == pytest.approx(1 / 5)


def test_no_pairs_is_nan() -> None:
    assert math.isnan(m.auroc([1, 1], [0.1, 0.2]))
    assert math.isnan(m.average_precision([0, 0], [0.1, 0.2]))
    assert math.isnan(m.brier([], []))


labels = st.lists(
    st.tuples(st.booleans(), st.sampled_from([0.0, 0.1, 0.35, 0.5, 0.8, 1.0]), st.integers(1, 4)),
    min_size=4,
    max_size=30,
).filter(lambda rows: len({row[0] for row in rows}) == 2)


@given(labels)
@settings(max_examples=60, deadline=None)
def test_scikit_learn_says_the_same(rows: list[tuple[bool, float, int]]) -> None:
    y, s, w = (np.array(column, float) for column in zip(*rows, strict=True))
    assert m.auroc(y, s) == pytest.approx(peer.roc_auc_score(y, s))
    assert m.auroc(y, s, w) == pytest.approx(peer.roc_auc_score(y, s, sample_weight=w))
    ours = m.average_precision(y, s, w)
    assert ours == pytest.approx(peer.average_precision_score(y, s, sample_weight=w))
    assert m.brier(y, s, w) == pytest.approx(peer.brier_score_loss(y, s, sample_weight=w))


def test_average_precision_by_hand() -> None:
    # precision at the two failures: 1/1 and 2/3
    assert m.average_precision([1, 0, 1, 0], [0.9, 0.8, 0.7, 0.1]) == pytest.approx(5 / 6)
    # folds weigh by their failures: (1 * 1 + 2 * 5/6) / 3
    area = m.average_precision(
        [1, 0, 1, 0, 1, 0], [0.9, 0.1, 0.9, 0.8, 0.7, 0.1], fold=[0, 0, 1, 1, 1, 1]
    )
    assert area == pytest.approx((1 + 5 / 3) / 3)


def test_brier_by_hand() -> None:
    assert m.brier([1, 0], [0.8, 0.4]) == pytest.approx((0.04 + 0.16) / 2)
    assert m.brier([1, 0], [0.8, 0.4], weight=[3, 1]) == pytest.approx((3 * 0.04 + 0.16) / 4)


def test_ece_by_hand() -> None:
    # bin 0 holds .1 and .15 (rate 1/2), bin 9 holds 1.0 (rate 1): (2 |.125 - .5| + 0) / 3
    assert m.ece([1, 0, 1], [0.1, 0.15, 1.0], bins=5) == pytest.approx(2 * 0.375 / 3)


def test_reliability_by_hand() -> None:
    table = m.reliability([1, 0, 1, 1], [0.1, 0.2, 0.9, 1.0], run=[0, 1, 2, 2], bins=2)
    assert table["n"].tolist() == [2, 2]
    assert table["n_runs"].tolist() == [2, 1]
    assert table["score"].tolist() == pytest.approx([0.15, 0.95])
    assert table["rate"].tolist() == [0.5, 1.0]
    assert (table["low"][1], table["high"][1]) == pytest.approx(m.wilson(1, 1))


@pytest.mark.parametrize(
    ("k", "n", "low", "high"),
    [(3, 3, 0.4385, 1.0), (0, 10, 0.0, 0.2775), (5, 10, 0.2366, 0.7634), (0, 1, 0.0, 0.7935)],
)
def test_wilson_by_hand(k: int, n: int, low: float, high: float) -> None:
    # n = n, p = 0: high = z² / (n + z²); 5 of 10: (.5 ± z sqrt(.025 + z²/400) ...) from the formula
    assert m.wilson(k, n) == pytest.approx((low, high), abs=6e-5)


def test_wilson_of_no_failures() -> None:
    z2 = 1.959964**2
    assert m.wilson(0, 10).high == pytest.approx(z2 / (10 + z2), abs=1e-6)
    assert all(map(math.isnan, m.wilson(0, 0)))
    with pytest.raises(UsageError, match="no rate"):
        m.wilson(4, 3)


def test_evidence_that_a_rate_exceeds_a_threshold() -> None:
    # unanimous failures prove a rate above .75 from 12 on, above .90 from 35 on
    assert m.wilson(11, 11).low < 0.75 < m.wilson(12, 12).low
    assert m.wilson(34, 34).low < 0.90 < m.wilson(35, 35).low


def test_beta_interval_by_hand() -> None:
    low, high = m.beta_interval(0, 2, prior=(1, 1))  # Beta(1, 3): F(x) = 1 - (1 - x)³
    assert (1 - (1 - low) ** 3, 1 - (1 - high) ** 3) == pytest.approx((0.025, 0.975))
    assert m.beta_interval(0, 0, prior=(1, 1)) == pytest.approx((0.025, 0.975))


def test_cumulative_incidence_by_hand() -> None:
    # four runs: fail at 1, succeed at 2, unknown at 2, fail at 3
    table = m.cumulative_incidence([1, 2, 2, 3], [1, 0, math.nan, 1])
    assert table["at_risk"].tolist() == [4, 3, 1]
    assert table["failure"].tolist() == pytest.approx([1 / 4, 1 / 4, 1 / 4 + 1 / 2])
    assert table["success"].tolist() == pytest.approx([0, 3 / 4 / 3, 1 / 4])
    assert (table["failure"] + table["success"] + table["running"]).tolist() == pytest.approx(
        [1] * 3
    )


def test_cumulative_incidence_is_lifelines_s() -> None:
    # AalenJohansenFitter(calculate_variance=False).fit([1, …, 5], [1, 2, 0, 1, 2], 1), 0.30.3
    outcome = [1, 0, math.nan, 1, 0]
    table = m.cumulative_incidence([1, 2, 3, 4, 5], outcome)
    assert table["failure"].tolist() == pytest.approx([0.2, 0.2, 0.2, 0.5, 0.5])


def test_cumulative_incidence_is_statsmodels_s() -> None:
    survival = pytest.importorskip("statsmodels.duration.survfunc")
    random = np.random.default_rng(3)
    time, status = random.integers(1, 9, 80).astype(float), random.integers(0, 3, 80)
    failed = np.choose(status, [math.nan, 1.0, 0.0])
    theirs = survival.CumIncidenceRight(time, status)
    ours = m.cumulative_incidence(time, failed)
    at = np.isin(ours["step"], theirs.times)
    assert ours["failure"][at].to_numpy() == pytest.approx(theirs.cinc[0])
    assert ours["success"][at].to_numpy() == pytest.approx(theirs.cinc[1])


def test_kaplan_meier_would_overstate_failure() -> None:
    table = m.cumulative_incidence([1, 2], [0, 1])
    assert table["failure"].tolist() == [0, 0.5]  # one minus Kaplan-Meier says 1


def test_net_benefit_by_hand() -> None:
    assert m.net_benefit(6, 3, 10, 0.5) == pytest.approx(0.3)
    assert m.net_benefit(6, 3, 10, 0.75) == pytest.approx((6 - 9) / 10)
    assert m.net_benefit(3, 1, 10, 0.75) == 0  # precision .75 is where acting starts to pay
    with pytest.raises(UsageError, match="no probability"):
        m.net_benefit(1, 1, 2, 1.0)


def test_holm_by_hand() -> None:
    assert m.holm([0.01, 0.04, 0.03]).tolist() == pytest.approx([0.03, 0.06, 0.06])
    adjusted = m.holm([0.5, math.nan, 0.6])
    assert adjusted[[0, 2]].tolist() == [1.0, 1.0]
    assert math.isnan(adjusted[1])


def test_holm_is_statsmodels_s() -> None:
    multitest = pytest.importorskip("statsmodels.stats.multitest")
    p = np.random.default_rng(0).random(12) ** 3
    assert m.holm(p) == pytest.approx(multitest.multipletests(p, method="holm")[1])


def test_unknown_outcomes_are_refused() -> None:
    with pytest.raises(UsageError, match="unknown outcomes are never counted as failures"):
        m.auroc([1, math.nan], [0.1, 0.2])
    with pytest.raises(UsageError, match="scores are NaN"):
        m.brier([1, 0], [0.1, math.nan])
    with pytest.raises(UsageError, match="do not match"):
        m.brier([1, 0], [0.1])
