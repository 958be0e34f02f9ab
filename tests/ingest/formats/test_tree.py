"""Records with parents: none lost, none twice, whatever the parents say."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sag_research.ingest.formats._tree import Branch, branches, links


@st.composite
def forests(draw):
    size = draw(st.integers(0, 40))
    one = st.none() | st.integers(0, max(size - 1, 0))
    return draw(st.lists(one, min_size=size, max_size=size))


def ancestors(up, node):
    seen = []
    while node is not None and node not in seen:
        seen.append(node)
        node = up[node]
    return seen


@given(forests())
def test_every_node_is_in_one_branch(up):
    found, _ = branches(up)
    counts = Counter(node for branch in found for node in branch.nodes)
    assert counts == Counter(range(len(up)))


@given(forests())
def test_every_step_of_a_branch_goes_from_a_parent_to_its_child(up):
    found, cycles = branches(up)
    roots = 0
    for number, branch in enumerate(found):
        before = branch.at
        if before is None:
            roots += 1
            assert branch.parent is None
        else:
            assert branch.parent is not None
            assert branch.parent < number
            assert before in found[branch.parent].nodes
            assert up[branch.nodes[0]] == before
        for parent, child in zip(branch.nodes, branch.nodes[1:], strict=False):
            assert up[child] == parent
    assert roots == up.count(None) + cycles


@given(forests(), st.data())
def test_a_branch_from_a_root_leads_to_the_highest_rank(up, data):
    if up:
        rank = data.draw(st.none() | st.permutations(range(len(up))))
        found, cycles = branches(up, rank)
        goal = len(up) - 1 if rank is None else rank.index(len(up) - 1)
        (branch,) = (one for one in found if goal in one.nodes)
        assert branch.parent is None
        if not cycles:
            way = ancestors(up, goal)[::-1]
            assert branch.nodes[: len(way)] == way


@given(forests())
def test_cycles_are_counted(up):
    in_cycles = {frozenset(walk) for walk in (_cycle(up, n) for n in range(len(up))) if walk}
    assert branches(up)[1] == len(in_cycles)


def _cycle(up, node):
    """Return the cycle that the walk up from a node ends in, or nothing."""
    seen = []
    while node is not None and node not in seen:
        seen.append(node)
        node = up[node]
    return [] if node is None else seen[seen.index(node) :]


@pytest.mark.parametrize(
    ("up", "expected", "cycles"),
    [
        ([], [], 0),
        ([None], [Branch([0])], 0),
        ([0], [Branch([0])], 1),
        ([1, 2, 0], [Branch([0, 2, 1])], 1),
        ([None, None, 0], [Branch([0, 2]), Branch([1])], 0),
        ([None, 0, None], [Branch([0, 1]), Branch([2])], 0),
        ([None, 0, 0, 0], [Branch([0, 3]), Branch([1], 0, 0), Branch([2], 0, 0)], 0),
    ],
)
def test_known_forests(up, expected, cycles):
    assert branches(up) == (expected, cycles)


def test_ids_that_are_used_again_stand_for_the_first():
    assert links(["a", "a", "b"], [None, "a", "a"]) == ([None, 0, 0], [], 1)


def test_parents_that_are_missing_are_named():
    assert links(["a", None], ["gone", "a"]) == ([None, 0], [0], 0)


@pytest.mark.parametrize("shape", ["chain", "backwards", "comb", "cycle", "star"])
def test_a_large_forest_takes_neither_recursion_nor_quadratic_work(shape):
    size = 100_000
    up = {
        "chain": [None, *range(size - 1)],
        "backwards": [*range(1, size), None],
        "comb": [None, *(node - 2 + node % 2 for node in range(1, size))],
        "cycle": [size - 1, *range(size - 1)],
        "star": [None] + [0] * (size - 1),
    }[shape]
    found, cycles = branches(up)
    assert sum(len(branch.nodes) for branch in found) == size
    assert cycles == (shape == "cycle")
