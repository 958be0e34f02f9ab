"""Intervals and plans against numbers worked by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from sag_research.errors import UsageError
from sag_research.runtime._stats import (
    _clustered,
    paired_difference,
    repeats_for_difference,
    repeats_for_rate,
    wilson,
)

Z2 = 3.8414588206941254  # 1.959964 squared


def test_wilson_of_half() -> None:
    # 5 of 10: centre 1/2, half-width z sqrt(1/40 + z^2/400) / (1 + z^2/10), which is
    # z / (2 sqrt(10 + z^2))
    half = math.sqrt(Z2) / (2 * math.sqrt(10 + Z2))
    assert wilson(5, 10) == pytest.approx((0.5 - half, 0.5 + half))
    assert wilson(5, 10) == pytest.approx((0.2366, 0.7634), abs=5e-5)


def test_wilson_at_the_ends() -> None:
    # all of n: the lower end is n / (n + z^2)
    assert wilson(3, 3) == pytest.approx((3 / (3 + Z2), 1.0))
    assert wilson(0, 3) == pytest.approx((0.0, Z2 / (3 + Z2)))
    assert wilson(0, 3).low == 0.0
    assert wilson(3, 3).high == 1.0


def test_wilson_of_nothing_says_nothing() -> None:
    assert all(math.isnan(end) for end in wilson(0, 0))


def test_wilson_at_another_level() -> None:
    low, high = wilson(5, 10, level=0.8)
    assert 0.2366 < low < 0.5 < high < 0.7634


@pytest.mark.parametrize(("successes", "n"), [(4, 3), (-1, 3)])
def test_wilson_refuses_what_is_no_rate(successes: int, n: int) -> None:
    with pytest.raises(UsageError):
        wilson(successes, n)


def test_plan_for_a_rate() -> None:
    # at 1/2 the half-width is z / (2 sqrt(n + z^2)) <= w, so n >= z^2 / (4 w^2) - z^2
    assert round(Z2 / 0.04 - Z2, 3) == 92.195
    assert repeats_for_rate(0.1) == 93
    assert repeats_for_rate(0.05) == math.ceil(Z2 / 0.01 - Z2) == 381
    # at 0 it is z^2 / (2 (n + z^2)) <= w, so n >= z^2 / (2 w) - z^2 = 15.37
    assert repeats_for_rate(0.1, base_rate=0.0) == 16


def test_a_plan_keeps_its_word() -> None:
    for n, enough in ((93, True), (92, False)):
        half = math.sqrt(Z2) / (2 * math.sqrt(n + Z2))
        assert (half <= 0.1) is enough


def test_plan_for_a_difference() -> None:
    # z^2 * 2 p (1 - p) (1 - r) / w^2 = 3.8415 * 0.5 / 0.01 = 192.07
    assert repeats_for_difference(0.1) == 193
    assert repeats_for_difference(0.1, correlation=0.5) == 97
    assert repeats_for_difference(0.1, base_rate=0.2) == math.ceil(Z2 * 0.32 / 0.01) == 123


@pytest.mark.parametrize("width", [0.0, 0.5, -1.0])
def test_no_plan_for_a_width_that_is_none(width: float) -> None:
    with pytest.raises(UsageError):
        repeats_for_rate(width)


def test_of_equally_many_pairs_it_is_the_t_interval_of_the_tasks_means() -> None:
    # means 1, 3, 2: their standard error is sqrt(1 / 3), t with 2 degrees of freedom is 4.30265
    one = paired_difference([("a", 1.0), ("b", 3.0), ("c", 2.0)])
    half = 4.302652729911275 / math.sqrt(3)
    assert one[:3] == pytest.approx((2.0, 2 - half, 2 + half))
    assert one[3:] == (3, 3, "")
    spread = [("a", 0.0), ("a", 2.0), ("b", 2.5), ("b", 3.5), ("c", -7.0), ("c", 11.0)]
    assert paired_difference(spread)[:3] == pytest.approx(one[:3])  # pairs of a task are alike


def test_of_two_tasks_little_is_known_however_many_pairs_there_are() -> None:
    found = paired_difference([("a", 1.0)] * 50 + [("b", 0.0)] * 50, bounds=(-1, 1))
    assert found == (0.5, -1.0, 1.0, 100, 2, "")  # t with 1 degree of freedom: 12.7 * 0.5


@pytest.mark.parametrize("counts", [(1, 1, 1), (3, 1), (5, 2, 9, 1), (20, 1, 1)])
def test_error_and_degrees_of_freedom_are_those_of_the_matrices(counts: tuple[int, ...]) -> None:
    """Against the textbook's matrices: ``A = (I - H)^(-1/2)`` of each task's block."""
    rng = np.random.default_rng(len(counts))
    n = sum(counts)
    cluster = np.repeat(np.arange(len(counts)), counts)
    values = rng.normal(size=n)
    residual = np.eye(n) - 1 / n
    columns = []
    for number in range(len(counts)):
        inside = cluster == number
        block = residual[np.ix_(inside, inside)]
        value, vector = np.linalg.eigh(block)
        root = (vector / np.sqrt(value)) @ vector.T
        columns.append(residual[:, inside] @ root @ np.ones(inside.sum()) / n)
    g = np.array(columns)
    m = g @ g.T
    error = math.sqrt(((g @ values) ** 2).sum())
    freedom = np.trace(m) ** 2 / np.trace(m @ m)
    sums = [float(values[cluster == number].sum()) for number in range(len(counts))]
    assert _clustered(sums, counts, float(values.mean())) == pytest.approx((error, freedom))


def test_tasks_weigh_by_their_pairs() -> None:
    assert paired_difference([("a", 1.0)] * 3 + [("b", 0.0)]).value == 0.75


def test_equal_successes_are_no_certainty() -> None:
    """Of 3 tasks without a gain, a gain in one of ten may well be true; of 300 it is not."""
    few = paired_difference([(str(i), 0.0) for i in range(3)], bounds=(-1, 1))
    many = paired_difference([(str(i), 0.0) for i in range(300)], bounds=(-1, 1))
    assert few.low < -0.3 < 0.3 < few.high
    assert -0.01 < many.low < 0 < many.high < 0.01
    all_gain = paired_difference([(str(i), 1.0) for i in range(3)], bounds=(-1, 1))
    assert (all_gain.value, all_gain.high) == (1.0, 1.0)
    assert all_gain.low < 0.5


def test_equal_numbers_without_bounds_have_no_interval() -> None:
    found = paired_difference([("a", 2.0), ("b", 2.0)])
    assert (found.value, found.note) == (2.0, "no spread: no interval")
    assert math.isnan(found.low)
    assert math.isnan(found.high)


@pytest.mark.parametrize(
    ("pairs", "note"),
    [([("t", 1.0)], "one task: no interval"), ([("t", 1.0), ("t", 0.0)] * 9, "one task: no i"),
     ([], "no pairs")],
)  # fmt: skip
def test_of_one_task_or_none_there_is_no_interval(pairs: Any, note: str) -> None:
    found = paired_difference(pairs, bounds=(-1, 1))
    assert math.isnan(found.low)
    assert math.isnan(found.high)
    assert found.note.startswith(note)
    assert found.n == len(pairs)


def test_no_level_but_between_0_and_1() -> None:
    with pytest.raises(UsageError):
        paired_difference([("a", 1.0), ("b", 0.0)], level=95)


REPEATS = (1, 3, 12)


def binary(rng: np.random.Generator, n: int) -> np.ndarray:
    """A task's gains in success: both arms' chances differ from task to task; 0.1 on average."""
    arm, control = rng.random(n) < rng.beta(3, 2), rng.random(n) < rng.beta(2, 2)
    return arm.astype(float) - control


def rare(rng: np.random.Generator, n: int) -> np.ndarray:
    """Gains in one pair of ten, and never a loss."""
    return (rng.random(n) < 0.1).astype(float)


def continuous(rng: np.random.Generator, n: int) -> np.ndarray:
    """Numbers that vary as much between tasks as within; 0.1 on average."""
    return 0.1 + rng.normal() + rng.normal(size=n)


@pytest.mark.parametrize("tasks", [3, 5, 10, 30])
@pytest.mark.parametrize("draw", [binary, rare, continuous])
@pytest.mark.parametrize("repeats", [1, 5, REPEATS])
def test_the_interval_covers_what_it_says(tasks: int, draw: Any, repeats: Any) -> None:
    """Of 600 samples at least 92 % hold the true mean (0.1); three of four by a bootstrap."""
    rng = np.random.default_rng(11)
    bounds = None if draw is continuous else (-1.0, 1.0)
    hits = 0
    for _ in range(600):
        pairs = []
        for task in range(tasks):
            n = repeats if isinstance(repeats, int) else repeats[rng.integers(len(repeats))]
            pairs += [(task, float(value)) for value in draw(rng, n)]
        found = paired_difference(pairs, bounds=bounds)
        hits += found.low <= 0.1 <= found.high
    assert hits / 600 >= 0.92
    if draw is continuous:  # nor is it wide for the sake of it
        assert hits / 600 <= 0.98
