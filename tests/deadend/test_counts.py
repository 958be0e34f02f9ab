"""Token counts and their logistic regression, neighbours, and boosting."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from sag_research.deadend import Prefixes
from sag_research.deadend._alphabet import Alphabet
from sag_research.deadend._counts import CountsRisk, token_counts
from tests.deadend.features import cohort, seen_steps


def test_counts_up_to_each_look() -> None:
    p = Prefixes.from_tokens([["a", "b", "a", "rare"], ["b", "a"]], ["failure", "success"])
    alphabet = Alphabet(("RARE", "a", "b"), 2)
    counts = token_counts(p, p.every_step(), alphabet)
    assert counts.tolist() == [[0, 1, 0], [0, 1, 1], [0, 2, 1], [1, 2, 1], [0, 0, 1], [0, 1, 1]]


def test_it_is_a_logistic_regression_on_log_counts() -> None:
    p, other = cohort(tasks=40, seed=1), cohort(tasks=10, seed=2)
    risk = CountsRisk(C=0.5).fit(p)

    def columns(prefixes: Prefixes) -> np.ndarray:
        looks = prefixes.looks()
        counts = token_counts(prefixes, looks, risk.alphabet_)
        return np.log1p(np.column_stack([counts, looks.seen]))

    x, looks = columns(p), p.looks()
    scale = np.where(x.std(axis=0) > 0, x.std(axis=0), 1)
    model = LogisticRegression(C=0.5, max_iter=1000)
    model.fit((x - x.mean(axis=0)) / scale, p.failed[looks.run], p.weights(looks))
    expected = model.predict_proba((columns(other) - x.mean(axis=0)) / scale)[:, 1]
    assert np.abs(risk.predict(other, other.looks()) - expected).max() < 1e-9
    assert expected.std() > 0.05
    assert set(risk.table_["token"]) == {*risk.alphabet_.names, "(steps)"}


def test_its_stream_gives_the_same_scores() -> None:
    p = cohort(tasks=20, seed=1)
    risk = CountsRisk().fit(p)
    stream = risk.begin()
    live = [stream.observe(step) for step in seen_steps(p, 3)]
    assert live == pytest.approx(risk.predict(p.take([3])).tolist())


def test_its_plot_names_the_extreme_tokens() -> None:
    from matplotlib.figure import Figure

    risk = CountsRisk().fit(cohort(tasks=20, seed=1))
    ax = Figure().subplots()
    assert risk.plot(ax=ax, top=2) is ax
    drawn = [label.get_text() for label in ax.get_yticklabels()]
    tokens = risk.table_["token"].tolist()
    assert drawn == [*tokens[:2], *tokens[-2:]][::-1]
