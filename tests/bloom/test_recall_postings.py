"""The inverted index against a plain calculation, and its terms."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sag_research.bloom._recall_postings import LENGTH, RARE, Postings
from sag_research.bloom._recall_terms import hash_names, stretches, word_list, words, words_by_key

PAIRS = st.dictionaries(
    st.tuples(st.integers(0, 7), st.integers(0, 9)), st.integers(1, 5), min_size=1, max_size=40
)


def filled(pairs):
    postings = Postings()
    add(postings, pairs)
    return postings


def add(postings, pairs):
    run, key = (np.array(part) for part in zip(*pairs, strict=True))
    count = np.array(list(pairs.values()))
    postings.add(run, key.astype(np.uint64), count, np.zeros(len(run), np.int64))


def plain_scores(pairs, query, n):
    """The same by dictionaries: tf = log(1 + n), BM25's idf to the power, a softened norm."""
    df = {key: sum(1 for _, other in pairs if other == key) for _, key in pairs}
    weight = {key: math.log1p((n - d + 0.5) / (d + 0.5)) ** RARE for key, d in df.items()}
    norm = [
        math.sqrt(sum((math.log1p(c) * weight[k]) ** 2 for (r, k), c in pairs.items() if r == run))
        for run in range(n)
    ]
    asked = {key: math.log1p(c) * weight[key] for key, c in query.items() if key in weight}
    size = math.sqrt(sum(value**2 for value in asked.values())) or 1.0
    return [
        sum(
            asked[k] / size * math.log1p(c) * weight[k] / (norm[run] or 1.0) ** LENGTH
            for (r, k), c in pairs.items()
            if r == run and k in asked
        )
        for run in range(n)
    ]


@given(PAIRS, st.dictionaries(st.integers(0, 12), st.integers(1, 3), min_size=1, max_size=6))
def test_scores_are_those_of_a_plain_calculation(pairs, query):
    postings = filled(pairs)
    n = max(run for run, _ in pairs) + 1
    postings.prepare(np.ones(n, bool))
    keys, counts = np.array(list(query), np.uint64), np.array(list(query.values()))
    found = postings.search(keys, counts, most=99).scores
    np.testing.assert_allclose(found, plain_scores(pairs, query, n), rtol=1e-5, atol=1e-7)


@given(PAIRS, PAIRS)
def test_runs_may_be_replaced_in_any_order(first, second):
    """What was dropped and added again is what was there from the start."""
    changed = {run for run, _ in second}
    kept = {pair: count for pair, count in first.items() if pair[0] not in changed}
    postings = filled(first)
    postings.drop(np.array(sorted(changed)))
    add(postings, second)
    straight = filled(kept | second)
    n = max(run for run, _ in kept | second) + 1
    query = np.arange(10, dtype=np.uint64), np.ones(10, np.int64)
    found = []
    for index in (postings, straight):
        index.prepare(np.ones(n, bool))
        found.append(index.search(*query, most=99).scores)
    np.testing.assert_allclose(*found)


def test_runs_that_do_not_count_lend_no_weight():
    pairs = {(0, 1): 1, (1, 1): 1, (2, 1): 1, (2, 2): 1}
    postings = filled(pairs)
    postings.prepare(np.array([True, True, False]))
    hits = postings.search(np.array([1, 2], np.uint64), np.array([1, 1]), most=9)
    assert hits.scores[2] == 0
    assert postings.df.tolist() == [2, 0]


def test_only_the_heaviest_terms_of_a_long_query_count():
    pairs = {(run, key): 1 for run in range(8) for key in range(10) if run <= key}
    postings = filled(pairs)
    hits = postings.search(np.arange(10, dtype=np.uint64), np.ones(10, np.int64), most=2)
    assert postings.keys[hits.codes].tolist() == [0, 1]  # the rarest


def test_the_first_step_of_a_term_is_kept():
    postings = Postings()
    postings.add(
        np.array([0, 1]), np.array([5, 5], np.uint64), np.array([1, 2]), np.array([3, 70_000])
    )
    postings.prepare(np.ones(2, bool))
    code = int(postings.find(np.array([5], np.uint64))[0])
    assert postings.step_of(1, np.array([code])) == {code: 70_000}


def test_a_query_of_nothing_known_scores_nothing():
    postings = Postings()
    postings.prepare(np.ones(3, bool))
    assert postings.search(np.array([1], np.uint64), np.array([1]), 9).scores.tolist() == [0, 0, 0]
    assert repr(postings) == "Postings(0 terms, 0 pairs)"


def test_words_are_counted_over_each_run():
    found = words(np.array([0, 0, 1]), np.array([4, 5, 0]), ["Ab ab", "x_1", "ab ÄÖ"])
    called = words_by_key(["Ab x_1 ÄÖ"])
    rows = {
        (run, called[key]): (n, first)
        for run, key, n, first in zip(*(part.tolist() for part in found), strict=True)
    }
    assert rows == {(0, "ab"): (2, 4), (0, "x_1"): (1, 5), (1, "ab"): (1, 0), (1, "äö"): (1, 0)}


def test_keys_of_names_and_of_words_are_the_same():
    keys = words(np.zeros(1, int), np.zeros(1, int), ["postgres"]).key
    assert keys.tolist() == hash_names(["postgres"]).tolist()
    assert hash_names(["postgres", "Postgres"]).tolist()[0] == keys[0]


def test_words_leave_out_what_separates_them():
    assert word_list("a/b-c.py: don't\x00\ud800 10%") == ["a", "b", "c", "py", "don", "t", "10"]


@given(st.text(st.characters(max_codepoint=0x4FF, exclude_characters="\x00"), max_size=60))
def test_both_ways_to_words_agree(text):
    """The index reads in batches, by another engine; on letters new to Unicode they may differ."""
    assert set(words_by_key([text]).values()) == set(word_list(text))


def test_stretches_know_the_order_and_the_start():
    forth = stretches(np.zeros(3, int), np.arange(3), ["a", "b", "c"])
    back = stretches(np.zeros(3, int), np.arange(3), ["c", "b", "a"])
    shared = set(forth.key.tolist()) & set(back.key.tolist())
    assert len(shared) == 3  # the tokens alone
    assert len(forth.key) == 9
    other = stretches(np.array([0, 1]), np.array([0, 0]), ["a", "b"])
    assert len(set(other.key.tolist())) == 6  # no stretch reaches over a run's end
