from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sag_research.deadend._entity_index import EntityIndex
from sag_research.deadend._index import Support
from sag_research.deadend._prefixes import Prefixes, StepTable
from sag_research.errors import MissingDataError, UsageError

N_RUNS, NAMES = 150, tuple("abcdefgh")
FEWER = settings(max_examples=60)  # an example takes tens of milliseconds
# few runs, so that they share several entities; at the edges of words of 64 bits
SOME = st.sampled_from([0, 1, 63, 64, 127, 128, N_RUNS - 1])
MENTIONS = st.lists(st.tuples(SOME, st.integers(0, 7)), max_size=60)
WANTED = st.lists(st.sampled_from([*NAMES, "never"]), max_size=10)


def built(mentions: list[tuple[int, int]]) -> EntityIndex:
    run, entity = zip(*mentions, strict=True) if mentions else ((), ())
    return EntityIndex.build(NAMES, run, entity, np.arange(N_RUNS) % 3 == 0)


def by_hand(mentions: list[tuple[int, int]], wanted: list[str], at_least: int) -> list[int]:
    """Look at every run, as a scan does."""
    shared: dict[int, set[int]] = {}
    for run, entity in mentions:
        if NAMES[entity] in wanted:
            shared.setdefault(run, set()).add(entity)
    return sorted(run for run, entities in shared.items() if len(entities) >= at_least)


@given(MENTIONS, WANTED, st.integers(1, 4))
def test_counts_agree_with_a_scan(
    mentions: list[tuple[int, int]], wanted: list[str], at_least: int
) -> None:
    index = built(mentions)
    found = by_hand(mentions, wanted, at_least)
    assert index.runs(wanted, at_least).tolist() == found
    assert index.count(wanted, at_least) == (len(found), sum(run % 3 == 0 for run in found))


@FEWER
@given(MENTIONS, st.lists(WANTED, max_size=4))
def test_step_by_step_gives_the_same(
    mentions: list[tuple[int, int]], steps: list[list[str]]
) -> None:
    index = built(mentions)
    cursor = index.begin()
    so_far: list[str] = []
    for names in steps:
        so_far += names
        assert cursor.add(names) == index.count(so_far)


def test_frequent_and_rare_entities_are_stored_differently_and_count_alike() -> None:
    mentions = [(run, 0) for run in range(N_RUNS)] + [(3, 1), (4, 1), (149, 1)]
    index = built(mentions)
    assert list(index._bitmaps) == [0]
    assert index.count(["a", "b"]) == Support(3, 1)
    assert index.runs(["a", "b"]).tolist() == [3, 4, 149]


def test_a_name_asked_for_twice_is_one_entity() -> None:
    index = built([(0, 0), (0, 0)])
    assert index.count(["a", "a"]) == (0, 0)
    assert index.count(["a", "a"], at_least=1) == (1, 1)


def test_of_a_cohort_unknown_runs_do_not_count() -> None:
    p = Prefixes.from_tokens([["t", "t"], ["t"], ["t"]], ["failure", "unknown", "success"])
    offsets = np.array([0, 1, 2, 4, 6])
    ids = np.array([0, 1, 0, 1, 0, 2], dtype=np.int32)
    table = StepTable(p.table.tokens, p.table.names, entities=(offsets, ids, ("x", "y", "z")))
    p = Prefixes.of(p.runs, p.start, p.stop, table)
    index = EntityIndex.of(p)
    assert repr(index) == "EntityIndex(3 entities, 2 runs, 4 mentions)"
    assert index.count(["x", "y"]) == (1, 1)
    assert index.count(["x", "z"]) == (1, 0)
    assert index.count(["x"], at_least=1) == (2, 1)


def test_refusals() -> None:
    with pytest.raises(MissingDataError, match="no entities"):
        EntityIndex.of(Prefixes.from_tokens([["a"]], ["success"]))
    with pytest.raises(UsageError, match="at_least=0"):
        built([]).count(["a"], at_least=0)


def test_two_shared_entities_are_not_three() -> None:
    index = built([(0, 0), (0, 1), (1, 0), (1, 1), (1, 2)])
    assert index.runs(["a", "b", "c"], at_least=3).tolist() == [1]
    assert index.runs(["a", "b", "c"], at_least=4).tolist() == []
