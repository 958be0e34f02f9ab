"""Intervals and plans against numbers worked by hand."""

from __future__ import annotations

import math

import pytest

from sag_research.errors import UsageError
from sag_research.runtime._stats import (
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


def test_bootstrap_of_two_pairs() -> None:
    # means of two draws from {1, 0} are 0, 1/2, 1 with chances 1/4, 1/2, 1/4
    found = paired_difference([("t", 1.0), ("t", 0.0)])
    assert found == (0.5, 0.0, 1.0, 2, 1)


def test_bootstrap_draws_tasks_not_pairs() -> None:
    # 20 pairs that gain in one task, 20 that do not in another: by pairs the mean is known well,
    # by tasks it is 0, 1/2 or 1
    clustered = paired_difference([("a", 1.0)] * 20 + [("b", 0.0)] * 20)
    assert clustered == (0.5, 0.0, 1.0, 40, 2)
    alone = paired_difference([("a", 1.0)] * 20 + [("a", 0.0)] * 20)
    assert 0.3 < alone.low < 0.45 < 0.55 < alone.high < 0.7


def test_bootstrap_weighs_tasks_by_their_pairs() -> None:
    # draws: (a, a) -> 3/3 of 1, (b, b) -> 0, (a, b) -> 3 of 4 pairs
    pairs = [("a", 1.0)] * 3 + [("b", 0.0)]
    assert paired_difference(pairs).value == 0.75
    middle = paired_difference(pairs, level=0.2)
    assert middle.low == middle.high == 0.75


def test_bootstrap_is_seeded() -> None:
    pairs = [(str(i % 17), (i * 7 % 11) / 10) for i in range(60)]
    assert paired_difference(pairs, seed=1) == paired_difference(pairs, seed=1)
    assert paired_difference(pairs, seed=1) != paired_difference(pairs, seed=2)


def test_bootstrap_of_one_or_none_has_no_interval() -> None:
    one = paired_difference([("t", 1.0)])
    assert (one.value, one.n) == (1.0, 1)
    assert math.isnan(one.low)
    assert math.isnan(one.high)
    assert math.isnan(paired_difference([]).value)
