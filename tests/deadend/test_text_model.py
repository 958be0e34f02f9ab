"""Hashed TF-IDF: against a dense computation by scikit-learn, and step by step."""

from __future__ import annotations

import re
from itertools import pairwise
from zlib import crc32

import numpy as np
import pyarrow as pa
import pytest
from sklearn.linear_model import LogisticRegression

from sag_research.deadend import Looks, Prefixes
from sag_research.deadend._text_model import BUCKETS, TextRisk, _Words, text_words
from sag_research.errors import MissingDataError
from tests.deadend.features import cohort, seen_steps


def bucket(*words: str) -> int:
    """Where a word or a pair of words falls, computed with Python's own integers."""
    mix, full = 0x9E3779B1, 0xFFFFFFFF
    codes = [crc32(word.encode()) for word in words]
    mixed = codes[0] if len(codes) == 1 else ((codes[0] * mix) & full) ^ codes[1]
    return ((mixed * mix) & full) >> 16


def test_words_and_pairs_of_a_step() -> None:
    buckets, counts = text_words(("Fix the fix", "", "the"), _Words())
    expected = [bucket("fix")] * 2 + [bucket("the")] * 2
    expected += [bucket("fix", "the"), bucket("the", "fix")]  # none across texts
    values, n = np.unique(expected, return_counts=True)
    assert buckets.tolist() == values.tolist()
    assert counts.tolist() == n.tolist()


def dense(prefixes: Prefixes, looks: Looks) -> np.ndarray:
    """log-scaled counts of all words and pairs so far, one row a look."""
    table = prefixes.table
    rows = np.zeros((len(looks.run), BUCKETS))
    for row, run, seen in zip(rows, looks.run, looks.seen, strict=True):
        for step in range(prefixes.start[run], prefixes.start[run] + seen):
            for name in ("thought", "action", "observation"):
                words = re.findall(r"\w\w+", table.text(name)[step].lower())
                for word in words:
                    row[bucket(word)] += 1
                for pair in pairwise(words):
                    row[bucket(*pair)] += 1
    return np.where(rows > 0, 1 + np.log(np.maximum(rows, 1)), 0.0)


def test_it_is_a_logistic_regression_on_tf_idf() -> None:
    prefixes, other = cohort(tasks=12, seed=1, longest=6), cohort(tasks=5, seed=2, longest=9)
    risk = TextRisk(C=3.0).fit(prefixes)
    looks = prefixes.looks()  # at most 4 of a run: all of them are used
    last = Looks(np.arange(len(prefixes)), prefixes.n_steps - 1)
    held = (dense(prefixes, last) > 0).sum(axis=0)
    idf = np.where(held >= 3, np.log((1 + len(prefixes)) / (1 + held)) + 1, 0.0)
    assert np.allclose(risk.idf_, idf)

    def scaled(rows: np.ndarray) -> np.ndarray:
        rows = rows * idf
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)

    model = LogisticRegression(C=3.0, solver="liblinear", dual=True, random_state=0)
    model.fit(scaled(dense(prefixes, looks)), prefixes.failed[looks.run], prefixes.weights(looks))
    where = other.every_step()
    expected = model.predict_proba(scaled(dense(other, where)))[:, 1]
    assert np.abs(risk.predict(other) - expected).max() < 1e-6
    assert expected.std() > 0.05


def test_idf_knows_only_the_runs_it_was_fitted_on() -> None:
    prefixes = cohort(tasks=20, seed=1)
    half = prefixes.take(np.arange(20))
    alone = TextRisk().fit(half)
    assert alone.idf_[bucket("error")] > 0
    last = half.n_steps - 1
    held = sum(
        any("error" in step.thought.split() for step in seen_steps(half, run)[: last[run]])
        for run in range(20)
    )
    assert alone.idf_[bucket("error")] == pytest.approx(np.log(21 / (1 + held)) + 1)


def test_its_stream_gives_the_same_scores() -> None:
    prefixes = cohort(tasks=12, seed=1, longest=20)
    risk = TextRisk().fit(prefixes)
    for run in range(4):
        stream = risk.begin()
        live = [stream.observe(step) for step in seen_steps(prefixes, run)]
        assert np.abs(live - risk.predict(prefixes.take([run]))).max() < 1e-9


def test_without_texts_it_is_refused() -> None:
    with pytest.raises(MissingDataError, match="reads the steps' texts"):
        TextRisk().fit(cohort(text=False))


def test_hostile_and_empty_texts() -> None:
    texts = ["\ud800\udfff surrogate", "", "x" * 100_000, "<b>&amp;</b> \x00\x1b[0m"] * 3
    columns = pa.table({"thought": [""] * 12, "action": [""] * 12, "observation": [""] * 12})
    prefixes = Prefixes.from_tokens(
        [["a"] * 4] * 3, ["failure", "success", "failure"], columns=columns
    )
    assert np.isfinite(TextRisk().fit(prefixes).predict(prefixes)).all()  # no word at all
    words = _Words()
    for text in texts:
        assert len(text_words((text,), words)[0]) < 10


def test_reasons_name_the_words_of_the_run() -> None:
    prefixes = cohort(tasks=40, seed=1, signal=1.0)
    risk = TextRisk().fit(prefixes)
    failed = prefixes.take(prefixes.failed == 1)
    looks = failed.looks()
    said = [reason for look in risk.reasons(failed, looks) for reason in look]
    assert sum("'error' (+" in reason for reason in said) > len(looks.run) / 4
