from __future__ import annotations

import numpy as np
import pytest

from sag_research.deadend._crossfit import as_out_of_fold, cross_fit, fresh, inner_scores
from sag_research.deadend._model import RiskModel
from sag_research.deadend._prefixes import Floats, Looks, Prefixes
from sag_research.deadend._splits import make_folds
from sag_research.errors import NotEnoughDataError, UsageError
from tests.deadend.evaluation import Constant, Remembers, Share, cohort


def test_every_look_is_scored_once_a_repeat() -> None:
    p = cohort()
    found = cross_fit(Share(), p, make_folds(p, folds=4, repeats=2))
    looks = p.looks()
    assert len(found) == 2 * len(looks.run)
    for repeat in (0, 1):
        here = found.repeat == repeat
        assert np.array_equal(found.looks.run[here], looks.run)
        assert np.array_equal(found.looks.seen[here], looks.seen)
    assert found.weight.sum() == pytest.approx(2 * len(p))
    assert repr(found) == f"OutOfFold({len(found)} scores, 160 runs, 8 folds)"
    assert list(found.table_) == ["repeat", "fold", "run_id", "task_id", "failed", "seen", "score"]


def test_scores_are_those_of_the_fold_that_did_not_see_the_run() -> None:
    p = cohort()
    folds = make_folds(p, folds=4)
    found = cross_fit(Constant(), p, folds)
    for number, fold in enumerate(folds):
        scores = found.scores[found.fold == number]
        assert scores == pytest.approx(p.failed[fold.train].mean())
        assert set(found.looks.run[found.fold == number]) == set(fold.test)


def test_a_memory_of_tasks_is_worth_nothing_by_task() -> None:
    p = cohort(signal=0.0)
    grouped = cross_fit(Remembers(), p, make_folds(p))
    assert len(np.unique(grouped.scores)) <= 5  # the base rates of five training sets


def test_the_model_itself_is_left_untouched() -> None:
    p, model = cohort(), Share(sign=2.0)
    cross_fit(model, p, make_folds(p))
    assert not hasattr(model, "fitted_runs_")
    assert fresh(model, 0).get_params() == {"sign": 2.0}


class Seeded(Share):
    def __init__(self, sign: float = 1.0, random_state: int | None = None) -> None:
        super().__init__(sign)
        self.random_state = random_state


def test_a_seed_is_given_where_there_is_none() -> None:
    assert fresh(Seeded(), 7).get_params()["random_state"] == 7
    assert fresh(Seeded(random_state=1), 7).get_params()["random_state"] == 1


class Broken(Share):
    def _predict(self, prefixes: Prefixes, looks: Looks) -> Floats:
        return np.full(len(looks.run), np.nan)


def test_a_score_that_is_no_number_is_refused() -> None:
    p = cohort()
    with pytest.raises(UsageError, match="gave no finite score"):
        cross_fit(Broken(), p, make_folds(p))


def test_inner_scores_leave_the_task_out() -> None:
    p = cohort()
    found = inner_scores(Constant().fit(p), p)
    assert len(np.unique(found.fold)) == 3
    own = p.groups()
    for fold in np.unique(found.fold):
        runs = np.unique(found.looks.run[found.fold == fold])
        others = np.setdiff1d(np.arange(len(p)), runs)
        assert not set(own[runs]) & set(own[others])


def test_a_models_own_scores_are_used() -> None:
    p = cohort()
    model: RiskModel = Share().fit(p)
    mine = cross_fit(Constant(), p, make_folds(p))
    model.out_of_fold_ = mine
    found = inner_scores(model, p)
    assert np.array_equal(found.scores, mine.scores)
    # matched by run id, whatever the order
    order = np.random.default_rng(0).permutation(len(p))[:50]
    part = as_out_of_fold(mine, p.take(order))
    expected = mine.table_[mine.table_["run_id"].isin(p.runs["run_id"].iloc[order])]
    key = ["run_id", "seen"]
    assert part.table_.sort_values(key)["score"].tolist() == (
        expected.sort_values(key)["score"].tolist()
    )


def test_one_task_cannot_be_cross_fitted() -> None:
    p = cohort(tasks=1, runs=20)
    with pytest.raises(NotEnoughDataError, match="the cohort has 1"):
        inner_scores(Constant().fit(p), p)


def test_failures_of_one_task_alone_cannot_be_cross_fitted() -> None:
    tasks = ["hard"] * 3 + [f"t{i}" for i in range(6)]
    p = Prefixes.from_tokens([["a"] * 3] * 9, ["failure"] * 3 + ["success"] * 6, tasks)
    with pytest.raises(NotEnoughDataError, match="outcomes of one kind are in one task_id"):
        inner_scores(Constant().fit(p), p)
