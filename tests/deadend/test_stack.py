"""The stack: nesting, weights, explanations, refusals."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone

from sag_research.deadend import Looks, Prefixes
from sag_research.deadend import _stack as module
from sag_research.deadend._metrics import auroc
from sag_research.deadend._prefixes import Ints
from sag_research.deadend._stack import PrefixRisk, Similar, Weights, inner_folds
from sag_research.errors import NotEnoughDataError, UsageError
from tests.deadend.features import cohort, seen_steps

SMALL = {"trees": 20, "min_leaf": 5}


@pytest.fixture(scope="module")
def prefixes() -> Prefixes:
    return cohort(tasks=36, seed=1)


@pytest.fixture(scope="module")
def fitted(prefixes: Prefixes) -> PrefixRisk:
    return PrefixRisk(**SMALL).fit(prefixes)


def flipped(prefixes: Prefixes, task: str) -> Prefixes:
    """The same runs, with the outcomes of one task turned round."""
    turned = {"success": "failure", "failure": "success"}
    outcome = prefixes.runs["outcome"].where(
        prefixes.runs["task_id"] != task, prefixes.runs["outcome"].map(turned)
    )
    runs = prefixes.runs.assign(outcome=outcome)
    return Prefixes(runs, prefixes.start, prefixes.stop, prefixes.table)


# --------------------------------------------------------------------------- nesting


def test_a_tasks_labels_are_not_in_its_own_unseen_scores(
    prefixes: Prefixes, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The folds are spread by outcome; here they are held still, so that only fits can differ.
    fold = inner_folds(prefixes, "task_id", 4, 0)
    monkeypatch.setattr(module, "inner_folds", lambda *_: fold)
    task = prefixes.runs["task_id"].iloc[0]
    before = PrefixRisk(**SMALL).fit(prefixes)
    after = PrefixRisk(**SMALL).fit(flipped(prefixes, task))
    one, two = before.out_of_fold_, after.out_of_fold_
    own = (prefixes.runs["task_id"] == task).to_numpy()[one.looks.run]
    assert own.any()
    assert np.array_equal(one.scores[own], two.scores[own])
    # it does matter to runs of other folds, and to scores of the fitted model
    others = fold[one.looks.run] != fold[one.looks.run[own][0]]
    assert (one.scores[others] != two.scores[others]).mean() > 0.9
    assert not np.allclose(before.predict(prefixes), after.predict(prefixes))
    # and the weights of the one-level scheme do know the label: this is what nesting is for
    assert not np.array_equal(before.weights_.coef, after.weights_.coef)


def test_labels_without_meaning_give_unseen_scores_without_meaning() -> None:
    noise = cohort(tasks=60, runs=2, seed=11, signal=0.0)
    risk = PrefixRisk(**SMALL).fit(noise)
    own = risk.out_of_fold_
    looks = noise.looks()
    seen = auroc(noise.failed[looks.run], risk.predict(noise, looks), noise.weights(looks))
    unseen = auroc(own.failed, own.scores, own.weight, own.fold)
    assert seen > 0.75
    assert 0.35 < unseen < 0.65


def test_unseen_scores_cover_each_look_of_each_run_once(
    prefixes: Prefixes, fitted: PrefixRisk
) -> None:
    own, looks = fitted.out_of_fold_, prefixes.looks()
    assert np.array_equal(own.looks.run, looks.run)
    assert np.array_equal(own.looks.seen, looks.seen)
    assert ((own.scores > 0) & (own.scores < 1)).all()
    tasks = prefixes.groups()
    for fold in np.unique(own.fold):  # no task is in two folds
        inside = np.unique(tasks[own.looks.run[own.fold == fold]])
        assert not np.isin(tasks[own.looks.run[own.fold != fold]], inside).any()
    assert fitted.out_of_fold_ is own


def test_it_finds_the_signal_on_unseen_tasks(fitted: PrefixRisk) -> None:
    own = fitted.out_of_fold_
    assert auroc(own.failed, own.scores, own.weight, own.fold) > 0.8


def test_a_new_fit_forgets_the_old_scores(prefixes: Prefixes, fitted: PrefixRisk) -> None:
    again = PrefixRisk(**SMALL).fit(prefixes)
    old, similar = again.out_of_fold_, again.similar_
    again.fit(prefixes.take(np.arange(40)))
    assert len(again.out_of_fold_) < len(old)
    assert again.similar_ is not similar


# --------------------------------------------------------------------------- folds and refusals


def test_folds_keep_groups_whole(prefixes: Prefixes) -> None:
    fold = inner_folds(prefixes, "task_id", 4, 0)
    assert sorted(set(fold.tolist())) == [0, 1, 2, 3]
    for group in np.unique(prefixes.groups()):
        assert len(np.unique(fold[prefixes.groups() == group])) == 1
    assert np.array_equal(fold, inner_folds(prefixes, "task_id", 4, 0))


def of_tasks(n: int) -> Prefixes:
    """Every task has failures and successes."""
    runs, outcomes, tasks = [], [], []
    for i in range(8 * n):
        runs.append(["a", "b", "a"] if i % 2 else ["b", "a", "b"])
        outcomes.append("failure" if i % 2 else "success")
        tasks.append(f"t{i // 8}")
    return Prefixes.from_tokens(runs, outcomes, tasks)


def test_few_groups_make_few_folds() -> None:
    assert set(inner_folds(of_tasks(3), "task_id", 4, 0).tolist()) == {0, 1, 2}


def test_one_task_is_refused() -> None:
    with pytest.raises(NotEnoughDataError, match="all 8 runs are of one task_id"):
        PrefixRisk(**SMALL).fit(of_tasks(1))


def test_two_tasks_can_be_fitted_but_not_scored_unseen() -> None:
    risk = PrefixRisk(**SMALL).fit(of_tasks(2))
    assert np.isfinite(risk.predict(of_tasks(2))).all()
    with pytest.raises(NotEnoughDataError, match="2 groups"):
        _ = risk.out_of_fold_


def test_one_outcome_is_refused() -> None:
    p = Prefixes.from_tokens([["a", "b"]] * 6, ["failure"] * 6)
    with pytest.raises(NotEnoughDataError, match="6 runs failed and 0 succeeded"):
        PrefixRisk(**SMALL).fit(p)


def test_an_unfitted_model_says_so(prefixes: Prefixes) -> None:
    for ask in (lambda m: m.out_of_fold_, lambda m: m.table_, lambda m: m.explain(prefixes)):
        with pytest.raises(UsageError, match="not fitted"):
            ask(PrefixRisk())


def test_groups_of_another_column(prefixes: Prefixes) -> None:
    runs = prefixes.runs.assign(customer=[f"c{i % 5}" for i in range(len(prefixes))])
    p = Prefixes(runs, prefixes.start, prefixes.stop, prefixes.table)
    own = PrefixRisk(**SMALL, group_by="customer").fit(p).out_of_fold_
    for fold in np.unique(own.fold):
        inside = set(runs["customer"].iloc[own.looks.run[own.fold == fold]])
        outside = set(runs["customer"].iloc[own.looks.run[own.fold != fold]])
        assert not inside & outside


# --------------------------------------------------------------------------- parts and weights


def test_text_is_a_part_where_there_is_text(prefixes: Prefixes, fitted: PrefixRisk) -> None:
    assert list(fitted.parts_) == ["hazard", "backoff", "markov", "behaviour-trees", "text-tfidf"]
    assert "text-tfidf" not in PrefixRisk(**SMALL, text=False).fit(prefixes).parts_
    assert "text-tfidf" not in PrefixRisk(**SMALL).fit(cohort(tasks=12, text=False)).parts_
    with pytest.raises(UsageError, match="text='yes'"):
        PrefixRisk(**SMALL, text="yes").fit(prefixes)


def test_weights_by_hand() -> None:
    weights = Weights(np.array([1.0, 0.0]), np.array([2.0, 1.0]), np.array([0.5, -1.0]), 0.25)
    odds = np.array([[3.0, 0.5]])
    assert weights.shares(odds).tolist() == [[0.5, -0.5]]
    assert weights.risk(odds)[0] == pytest.approx(1 / (1 + np.exp(-0.25)))


def test_the_slope_restores_the_scale_that_the_penalty_took() -> None:
    rng = np.random.default_rng(0)
    odds = rng.normal(size=(4000, 2))
    failed = (rng.random(4000) < 1 / (1 + np.exp(-2 * odds[:, 0]))).astype(float)
    weights = Weights.fit(odds, failed, np.full(4000, 1.0), 1e-5)
    risk = weights.risk(odds)
    assert weights.coef[0] == pytest.approx(2 * odds[:, 0].std(), rel=0.15)
    assert risk[risk > 0.8].mean() == pytest.approx(failed[risk > 0.8].mean(), abs=0.04)


def test_a_part_that_says_the_same_of_all_gets_no_weight() -> None:
    odds = np.column_stack([np.zeros(50), np.tile([1.0, -1.0], 25)])
    failed = np.tile([1.0, 0.0], 25)
    assert Weights.fit(odds, failed, np.ones(50), 0.1).coef[0] == 0


def test_table_and_plot(fitted: PrefixRisk) -> None:
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib.figure import Figure

    table = fitted.table_
    assert table.columns.tolist() == ["part", "weight", "auroc", "n", "evidence"]
    assert set(table["n"]) == {72}
    ax = Figure().subplots()
    assert fitted.plot(ax=ax) is ax
    assert [label.get_text() for label in ax.get_yticklabels()] == table["part"].tolist()[::-1]


def test_parameters_are_those_of_scikit_learn(fitted: PrefixRisk) -> None:
    copy = clone(fitted)
    assert copy.get_params() == fitted.get_params()
    assert not hasattr(copy, "parts_")


def test_its_stream_gives_the_same_scores(prefixes: Prefixes, fitted: PrefixRisk) -> None:
    for run in range(5):
        stream = fitted.begin()
        live = [stream.observe(step) for step in seen_steps(prefixes, run)]
        assert live == pytest.approx(fitted.predict(prefixes.take([run])).tolist(), abs=1e-9)


def test_unknown_runs_are_scored_and_not_learnt_from(
    prefixes: Prefixes, fitted: PrefixRisk
) -> None:
    known = prefixes.take(np.arange(60))
    outcome = prefixes.runs["outcome"].where(prefixes.runs.index < 60, "unknown")
    mixed = Prefixes(
        prefixes.runs.assign(outcome=outcome), prefixes.start, prefixes.stop, prefixes.table
    )
    one, two = PrefixRisk(**SMALL).fit(known), PrefixRisk(**SMALL).fit(mixed)
    assert np.array_equal(one.predict(prefixes), two.predict(mixed))
    assert two.fitted_runs_ == frozenset(known.runs["run_id"])


# --------------------------------------------------------------------------- explanations


def test_similar_counts_runs_once_in_a_tenth() -> None:
    scores = np.array([0.1, 0.12, 0.9, 0.9, 0.91, 0.1])
    run = np.array([0, 0, 0, 1, 1, 2])
    failed = np.array([0.0, 0.0, 0.0, 1.0, 1.0, 0.0])
    similar = Similar.of(scores, run, failed)
    assert similar.cuts.tolist() == [0.1, 0.12, 0.9]
    n, bad, low, high = similar.at(np.array([0.0, 0.1, 0.5, 0.95]))
    assert n.tolist() == [2, 2, 2, 1]  # runs 0 and 2 were ever lowest; 0 and 1 between; 1 on top
    assert bad.tolist() == [0, 0, 1, 1]
    assert (low <= bad / n).all()
    assert (bad / n <= high).all()


def test_every_look_is_explained_by_every_part(prefixes: Prefixes, fitted: PrefixRisk) -> None:
    some = prefixes.take([0, 1])
    looks = some.looks()
    table = fitted.explain(some, looks)
    assert len(table) == len(looks.run) * 5
    adds = table["adds"].to_numpy().reshape(len(looks.run), 5)
    risk = 1 / (1 + np.exp(-(adds.sum(axis=1) + fitted.weights_.intercept)))
    assert risk == pytest.approx(fitted.predict(some, looks))
    assert (np.diff(np.abs(adds), axis=1) <= 1e-12).all()  # the part that moves it most first
    assert (table["low"] <= table["high"]).all()
    assert (table["failed"] <= table["n"]).all()
    assert (table["n"] <= 72).all()
    assert table["seen"].tolist() == np.repeat(looks.seen, 5).tolist()
    assert (table["evidence"].str.len() > 0).mean() > 0.9


def test_hazard_evidence_counts_the_runs_still_going_on(
    prefixes: Prefixes, fitted: PrefixRisk
) -> None:
    long = prefixes.take([int(np.argmax(prefixes.n_steps))])
    table = fitted.explain(long, Looks(np.array([0]), np.array([4])))
    row = table[table["part"] == "hazard"].iloc[0]
    alive: Ints = np.flatnonzero(prefixes.n_steps > 4)
    assert row["n"] == len(alive)
    assert row["failed"] == prefixes.failed[alive].sum()
