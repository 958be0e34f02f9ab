from __future__ import annotations

import duckdb
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sag_research.deadend._index import PrefixIndex
from sag_research.deadend._prefixes import Prefixes
from sag_research.deadend._sql import load_tokens, prefix_counts, query, suffix_counts
from sag_research.deadend._suffix import SuffixCounts
from sag_research.errors import UsageError

RUNS = st.lists(
    st.tuples(
        st.lists(st.sampled_from("abc"), min_size=1, max_size=8),
        st.sampled_from(["failure", "success", "unknown"]),
    ),
    min_size=1,
    max_size=12,
)
slow_engine = settings(max_examples=25)


def cohort(runs: list[tuple[list[str], str]]) -> Prefixes:
    return Prefixes.from_tokens([tokens for tokens, _ in runs], [outcome for _, outcome in runs])


def by_prefix(p: Prefixes) -> dict[tuple[int, ...], tuple[int, int]]:
    """Return the counts of SQL by the prefix's tokens; each prefix must come once."""
    runs = p.sequences()
    rows = prefix_counts(p).to_dict("records")
    found = {
        tuple(runs[row["example"]][: row["depth"]].tolist()): (row["n"], row["failed"])
        for row in rows
    }
    assert len(found) == len(rows)
    return found


@slow_engine
@given(RUNS)
def test_sql_and_index_agree_on_every_prefix(runs: list[tuple[list[str], str]]) -> None:
    p = cohort(runs)
    index = PrefixIndex.of(p, p.table.tokens)
    table = index.prefixes()
    ours = {
        tuple(index.row(row["first"], row["depth"])): (row["n"], row["failed"])
        for row in table.to_dict("records")
    }
    assert by_prefix(p) == ours


@slow_engine
@given(RUNS, st.integers(1, 5))
def test_sql_and_arrays_agree_on_every_context(
    runs: list[tuple[list[str], str]], orders: int
) -> None:
    p = cohort(runs)
    known = p.labelled
    looks = p.looks("all")
    ours = {}
    if len(known):
        counts = SuffixCounts.count(p.table.tokens, known, known.looks("all"), 3, orders)
        for order in range(1, orders + 1):
            pairs = zip(
                counts.n[order - 1].tolist(), counts.failed[order - 1].tolist(), strict=True
            )
            ours |= dict(zip(counts.tokens(order), pairs, strict=True))
    rows = suffix_counts(p, looks=looks, orders=orders).to_dict("records")
    sequences = p.sequences()
    theirs = {}
    for row in rows:
        end = row["example_step"] + 1
        context = sequences[row["example"]][end - row["k"] : end]
        theirs[tuple(context.tolist())] = (row["n"], row["failed"])
    assert len(theirs) == len(rows)
    assert theirs == ours


def all_pairs() -> Prefixes:
    """Make a run for each ordered pair of 40 tokens; every second one failed."""
    names = [f"t{n:02d}" for n in range(40)]
    runs = [[a, b] for a in names for b in names]
    return Prefixes.from_tokens(runs, ["failure", "success"] * 800)


def test_order_matters() -> None:
    table = prefix_counts(all_pairs())
    assert (table["depth"] == 2).sum() == 1600
    assert set(table.loc[table["depth"] == 2, "n"]) == {1}


def test_the_trap_is_one() -> None:
    # the same query with a hash of two arguments: "a b" and "b a" fall together
    one_number = "hash((step::BIGINT << 32) | token::BIGINT)"
    text = query("prefix_counts")
    assert text.count(one_number) == 1
    with duckdb.connect() as connection:
        load_tokens(connection, all_pairs())
        trap = connection.execute(text.replace(one_number, "hash(step, token)")).df()
    assert (trap["depth"] == 2).sum() < 1600


def test_hashes_are_signed() -> None:
    p = all_pairs()
    for name, table in (("prefix", prefix_counts(p)), ("context", suffix_counts(p))):
        assert table[name].dtype == np.int64
        assert table[name].min() >= 0


def test_a_loop_is_one_run() -> None:
    p = Prefixes.from_tokens([["a"] * 30], ["failure"])
    table = suffix_counts(p, orders=3)
    assert table["n"].tolist() == [1, 1, 1]
    assert prefix_counts(p)["n"].tolist() == [1] * 30


def test_unknown_runs_are_left_out() -> None:
    p = Prefixes.from_tokens([["a"], ["a"]], ["unknown", "success"])
    assert prefix_counts(p)[["n", "failed"]].to_numpy().tolist() == [[1, 0]]


def test_refusals() -> None:
    p = Prefixes.from_tokens([["a"]], ["success"])
    with pytest.raises(UsageError, match="orders=6"):
        suffix_counts(p, orders=6)
    with pytest.raises(UsageError, match="no query"):
        query("nothing")
