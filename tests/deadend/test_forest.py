"""Trees by bit vectors: the same numbers as scikit-learn's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import ExtraTreesClassifier

from sag_research.deadend import Looks, Prefixes
from sag_research.deadend._behaviour import behaviour, behaviour_names
from sag_research.deadend._forest import (
    BehaviourRisk,
    Forest,
    _round_down,
    _sortable,
    spread_looks,
)
from sag_research.errors import NotEnoughDataError
from tests.deadend.features import cohort, seen_steps


def grown(seed: int, leaves: int = 64) -> tuple[Any, np.ndarray[Any, Any]]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(400, 7)).astype(np.float32)
    x[:, ::2] = np.round(x[:, ::2])  # ties with thresholds, zeros and minus zeros
    y = (x[:, 0] + x[:, 1] + rng.normal(size=400) > 0).astype(float)
    forest = ExtraTreesClassifier(
        30, min_samples_leaf=2, max_leaf_nodes=leaves, max_features=0.5, random_state=seed
    )
    return forest.fit(x, y, rng.random(400)), x


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("leaves", [2, 5, 64])
def test_scores_are_those_of_scikit_learn(seed: int, leaves: int) -> None:
    theirs, x = grown(seed, leaves)
    ours = Forest.of_sklearn(theirs)
    expected = theirs.predict_proba(x)[:, 1]
    assert np.abs(ours.predict(x) - expected).max() < 1e-12
    assert expected.std() > 0.01


def test_a_row_on_a_threshold_goes_left() -> None:
    theirs, x = grown(0)
    on = np.repeat(x[:1], 200, axis=0)
    nodes = Forest.of_sklearn(theirs).nodes
    on[np.arange(200), nodes.feature[:200]] = nodes.threshold[:200]
    ours = Forest.of_sklearn(theirs).predict(on)
    assert np.abs(ours - theirs.predict_proba(on)[:, 1]).max() < 1e-12


def test_one_row_gives_what_many_give() -> None:
    theirs, x = grown(1)
    ours = Forest.of_sklearn(theirs)
    assert [float(ours.predict(row[None])[0]) for row in x[:20]] == ours.predict(x[:20]).tolist()
    assert ours.predict(x[:0]).shape == (0,)


def test_trees_of_a_single_leaf() -> None:
    x, y = np.zeros((20, 3), np.float32), np.array([0.0, 1.0] * 10)
    theirs = ExtraTreesClassifier(5, random_state=0).fit(x, y)
    assert Forest.of_sklearn(theirs).predict(x[:1])[0] == pytest.approx(0.5)


def test_arrays_make_the_same_forest() -> None:
    theirs, x = grown(2)
    ours = Forest.of_sklearn(theirs)
    again = Forest.of_arrays(ours.arrays(), 7)
    assert again.predict(x).tolist() == ours.predict(x).tolist()
    assert all(array.dtype != object for array in ours.arrays().values())


def test_sortable_integers_keep_the_order_of_numbers() -> None:
    numbers = np.array([-np.inf, -2.5, -1e-30, -0.0, 0.0, 1e-30, 1.0, 3e38], np.float32)
    keys = _sortable(numbers)
    assert (np.diff(keys.astype(float)) >= 0).all()
    assert keys[3] == keys[4]
    assert len(np.unique(keys)) == 7


def test_rounding_down_never_lets_a_number_pass() -> None:
    thresholds = np.array([0.1, 1 / 3, -0.1, 0.5, 0.0])
    rounded = _round_down(thresholds)
    assert (rounded <= thresholds).all()
    above = np.nextafter(rounded, np.float32(np.inf))
    assert (above.astype(float) > thresholds).all()


def test_looks_are_spread_evenly() -> None:
    looks = Looks(np.array([0] * 9 + [1] * 2 + [2]), np.array([*range(1, 10), 1, 2, 1]))
    kept = spread_looks(looks, 3)
    assert looks.seen[kept].tolist() == [1, 5, 9, 1, 2, 1]
    assert looks.run[kept].tolist() == [0, 0, 0, 1, 1, 2]
    assert spread_looks(looks, 100).all()


def test_it_learns_and_is_repeatable() -> None:
    prefixes, other = cohort(tasks=60, seed=1), cohort(tasks=60, seed=2)
    risk = BehaviourRisk(trees=50, min_leaf=5).fit(prefixes)
    scores = risk.predict(other, other.looks())
    failed = other.failed[other.looks().run] == 1
    assert scores[failed].mean() > scores[~failed].mean() + 0.1
    again = BehaviourRisk(trees=50, min_leaf=5).fit(prefixes)
    assert again.predict(other, other.looks()).tolist() == scores.tolist()
    assert risk.table_["importance"].sum() == pytest.approx(1.0)
    from matplotlib.figure import Figure

    ax = risk.plot(ax=Figure().subplots(), top=3)
    drawn = [label.get_text() for label in ax.get_yticklabels()]
    assert drawn == risk.table_["feature"].tolist()[2::-1]


def test_its_stream_gives_the_same_scores() -> None:
    prefixes = cohort(tasks=20, seed=1)
    risk = BehaviourRisk(trees=20, min_leaf=5).fit(prefixes)
    for run in range(5):
        stream = risk.begin()
        live = [stream.observe(step) for step in seen_steps(prefixes, run)]
        assert live == risk.predict(prefixes.take([run])).tolist()


def test_long_runs_weigh_no_more_than_short_ones() -> None:
    """One long failure against two short successes: the mean score is near 1/3, not near 5/7."""
    tokens = [["look|src|ok"] * 7, ["look|src|ok"] * 2, ["look|src|ok"] * 2]
    prefixes = Prefixes.from_tokens(tokens, ["failure", "success", "success"])
    risk = BehaviourRisk(trees=10, min_leaf=100).fit(prefixes)
    assert risk.predict(prefixes)[0] == pytest.approx(1 / 3)


def test_runs_of_one_step_leave_nothing_to_learn() -> None:
    prefixes = Prefixes.from_tokens([["a"], ["a", "b"], ["a", "b"]], ["failure"] + ["success"] * 2)
    with pytest.raises(NotEnoughDataError, match="ended alike"):
        BehaviourRisk(trees=2).fit(prefixes)


def test_reasons_are_the_change_from_a_typical_value() -> None:
    prefixes = cohort(tasks=40, seed=1)
    risk = BehaviourRisk(trees=30, min_leaf=5).fit(prefixes)
    run = prefixes.take([0])
    looks = run.looks()
    row = behaviour(run, looks)[:1]
    (said, *_rest) = risk.reasons(run, looks, most=1)
    name, _, rest = said[0].partition(" = ")
    feature = risk.table_["feature"].tolist()
    assert name in feature
    changed = row.copy()
    at = behaviour_names().index(name)
    changed[0, at] = risk.typical_[at]
    effect = risk.forest_.predict(row)[0] - risk.forest_.predict(changed)[0]
    assert f"({effect:+.3f})" in rest
