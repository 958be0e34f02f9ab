from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from sag_research.deadend._prefixes import Prefixes
from sag_research.deadend._suffix import SuffixCounts

FEWER = settings(max_examples=60)  # an example takes tens of milliseconds
RUNS = st.lists(st.lists(st.sampled_from("abc"), min_size=1, max_size=9), min_size=1, max_size=8)


def cohort(runs: list[list[str]]) -> Prefixes:
    outcomes = ["failure" if i % 3 == 0 else "success" for i in range(len(runs))]
    return Prefixes.from_tokens([["a"], ["b"], ["c"], *runs], ["success"] * 3 + outcomes)


def counted_by_hand(p: Prefixes, orders: int, start: bool) -> dict[tuple[int, ...], list[int]]:
    """Return n and failed of every context at every decision point, with sets."""
    runs: Counter[tuple[int, ...]] = Counter()
    failed: Counter[tuple[int, ...]] = Counter()
    for codes, bad in zip(p.sequences(), p.failed, strict=True):
        contexts = set()
        for seen in range(1, len(codes)):
            history = ([3] if start else []) + codes[:seen].tolist()
            contexts |= {tuple(history[-k:]) for k in range(1, orders + 1) if k <= len(history)}
        runs.update(contexts)
        failed.update(contexts if bad else ())
    return {context: [n, failed[context]] for context, n in runs.items()}


@FEWER
@given(RUNS, st.booleans())
def test_counts_are_of_distinct_runs(runs: list[list[str]], start: bool) -> None:
    p = cohort(runs)
    counts = SuffixCounts.count(
        p.table.tokens, p, p.looks("all"), 4, orders=4, start=3 if start else -1
    )
    found = {
        context: [n, bad]
        for order in range(1, 5)
        for context, n, bad in zip(
            counts.tokens(order),
            counts.n[order - 1].tolist(),
            counts.failed[order - 1].tolist(),
            strict=True,
        )
    }
    assert found == counted_by_hand(p, 4, start)
    assert len(counts) == len(found)


@FEWER
@given(RUNS, RUNS, st.booleans())
def test_cursor_finds_what_find_does(
    runs: list[list[str]], others: list[list[str]], start: bool
) -> None:
    p, q = cohort(runs), cohort(others)
    counts = SuffixCounts.count(
        p.table.tokens, p, p.looks("all"), 4, orders=3, start=3 if start else -1
    )
    looks = q.every_step()
    found = counts.find(q.table.tokens, q.rows(looks), looks.seen)
    at = 0
    for codes in q.sequences():
        cursor = counts.begin()
        for code in codes.tolist():
            known = cursor.push(code)
            assert found[:, at].tolist() == known + [-1] * (3 - len(known))
            at += 1


def test_a_loop_is_one_run() -> None:
    p = Prefixes.from_tokens([["a"] * 50, ["b", "a", "b"]], ["failure", "success"])
    counts = SuffixCounts.count(p.table.tokens, p, p.looks("all"), 2, orders=2)
    assert dict(zip(counts.tokens(2), counts.n[1].tolist(), strict=True)) == {(0, 0): 1, (1, 0): 1}


def test_many_symbols_do_not_overflow() -> None:
    # 100,000 ** 5 is beyond 64 bits: keys that packed five tokens into one number would collide
    names = [f"s{n:05d}" for n in range(100_000)]
    p = Prefixes.from_tokens([names[-6:], names[:6], names], ["failure", "success", "success"])
    counts = SuffixCounts.count(p.table.tokens, p, p.looks("all"), 100_000, orders=5)
    looks = p.take([0]).looks([5])
    found = counts.find(p.table.tokens, p.take([0]).rows(looks), looks.seen)
    assert counts.n[4][found[4, 0]] == 2
    assert counts.failed[4][found[4, 0]] == 1
    assert counts.tokens(5, found[4])[0] == tuple(range(99_994, 99_999))


def test_state_restores_the_counts() -> None:
    p = cohort([list("abcab"), list("cab")])
    counts = SuffixCounts.count(p.table.tokens, p, p.looks("all"), 4, orders=3, start=3)
    again = SuffixCounts.restore(counts.state("x_"), "x_")
    assert (again.n_symbols, again.start, again.orders) == (4, 3, 3)
    for one, other in zip(
        (*counts.keys, *counts.n, *counts.failed),
        (*again.keys, *again.n, *again.failed),
        strict=True,
    ):
        assert np.array_equal(one, other)


def test_runs_too_short_for_a_context() -> None:
    p = Prefixes.from_tokens([["a"], ["a", "b"]], ["failure", "success"])
    counts = SuffixCounts.count(p.table.tokens, p, p.looks("all"), 2, orders=3)
    assert list(map(len, counts.keys)) == [1, 0, 0]
    looks = p.every_step()
    found = counts.find(p.table.tokens, p.rows(looks), looks.seen)
    assert found.tolist() == [[0, 0, -1], [-1, -1, -1], [-1, -1, -1]]
