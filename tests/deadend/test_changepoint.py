from __future__ import annotations

import math

import numpy as np
import pytest

from sag_research.deadend._changepoint import StepSets, calibrate_steps, change_point
from sag_research.deadend._model import RiskModel
from sag_research.deadend._prefixes import Floats, Looks, Prefixes
from sag_research.errors import LeakError, NotEnoughDataError, UsageError


def test_the_rise_by_hand() -> None:
    # levels 0 0 | 1 2: between at 2 is 4/4 (1.5 - 0)² = 2.25; at 1: 3/4 (1 - 0)², at 3: 3/4 (5/3)²
    change = change_point(np.array([0.0, 0.0, 1.0, 2.0]))
    between = np.array([0.0, 3 / 4, 9 / 4, 3 / 4 * (5 / 3) ** 2])
    assert change.step == 2
    assert change.weight == pytest.approx(between / 2.75)
    assert (change.before, change.after) == (0.0, 1.5)
    assert change.explained == pytest.approx(2.25 / 2.75)


def test_a_fall_is_no_rise() -> None:
    change = change_point(np.array([0.8, 0.8, 0.2, 0.2]))
    assert change.step is None
    assert math.isnan(change.before)
    assert not change.weight.any()


@pytest.mark.parametrize("risk", [[], [0.3], [0.4, 0.4, 0.4]])
def test_nothing_rises_in_nothing(risk: list[float]) -> None:
    assert change_point(np.array(risk)).step is None


def test_certainty_does_not_outweigh_everything() -> None:
    """One step of risk 1 after a rise that lasts must not be taken for the rise."""
    change = change_point(np.array([0.1] * 10 + [0.7] * 10 + [1.0]))
    assert change.step == 10


def test_brute_force_says_the_same() -> None:
    random = np.random.default_rng(0)
    for _ in range(20):
        value = random.normal(size=15)
        total = ((value - value.mean()) ** 2).sum()
        best, where = 0.0, None
        for step in range(1, 15):
            a, b = value[:step], value[step:]
            gain = total - ((a - a.mean()) ** 2).sum() - ((b - b.mean()) ** 2).sum()
            if b.mean() > a.mean() and gain > best:
                best, where = gain, step
        change = change_point(value)
        assert change.step == where
        assert change.explained == pytest.approx(best / total)


def test_sets_end_with_the_run() -> None:
    sets = StepSets(0.1, 2, 20)
    rise = change_point(np.array([0.0, 1.0, 1.0, 1.0, 1.0]))
    assert (rise.step, sets.of(rise)) == (1, (0, 1, 2, 3))
    assert sets.of(change_point(np.array([0.0, 0.0, 0.0, 0.0, 1.0]))) == (2, 3, 4)
    assert sets.of(change_point(np.array([1.0, 0.0, 0.0]))) == (0, 1, 2)  # no rise: anywhere
    assert sets.of(change_point(np.array([]))) == ()


def test_radius_by_hand() -> None:
    # nine runs of which the rise is at step 3, and the true steps 0 … 8 away: the largest is needed
    p = Prefixes.from_tokens([["0.1"] * 3 + ["0.9"] * 9] * 9, ["failure"] * 8 + ["success"])
    true = [3, 4, 5, 6, 7, 8, 9, 10, 11]
    assert calibrate_steps(fitted(), p, true, alpha=0.1) == StepSets(0.1, 8, 9)
    assert calibrate_steps(fitted(), p, true, alpha=0.2) == StepSets(0.2, 7, 9)
    assert calibrate_steps(fitted(), p, [-1, *true[1:]], alpha=0.2) == StepSets(0.2, 8, 8)


class Noisy(RiskModel):
    """Risk written into the names of the tokens."""

    name = "noisy"

    def _fit(self, prefixes: Prefixes, looks: Looks, failed: Floats, weight: Floats) -> None:
        pass

    def _predict(self, prefixes: Prefixes, looks: Looks) -> Floats:
        value = np.array([float(name) for name in prefixes.table.names])
        return value[prefixes.table.tokens[prefixes.rows(looks)]]


def lost_runs(n: int, seed: int) -> tuple[Prefixes, np.ndarray]:
    random = np.random.default_rng(seed)
    lost = random.integers(2, 22, n)
    runs = []
    for at in lost:
        steps = np.arange(25)
        odds = -1 + 2 * (steps >= at + random.integers(-1, 4)) + random.normal(size=25)
        runs.append([f"{1 / (1 + math.exp(-x)):.3f}" for x in odds])
    return Prefixes.from_tokens(runs, ["failure"] * (n - 1) + ["success"]), lost


def fitted() -> Noisy:
    p = Prefixes.from_tokens([["0.1"] * 3, ["0.9"] * 3], ["success", "failure"], run_id=["a", "b"])
    return Noisy().fit(p)


def test_sets_hold_the_true_step_as_often_as_they_say() -> None:
    risk, covered, sizes = fitted(), [], []
    for seed in range(12):
        known, lost = lost_runs(60, seed)
        new, true = lost_runs(60, 100 + seed)
        sets = calibrate_steps(risk, known, lost, alpha=0.2)
        assert sets.n == 60
        for i, at in enumerate(true):
            steps = sets.of(change_point(risk.predict(new.take([i]))))
            assert steps == tuple(range(steps[0], steps[-1] + 1))
            covered.append(at in steps)
            sizes.append(len(steps))
    assert np.mean(covered) > 0.8 - 3 * math.sqrt(0.16 / 60)  # at least 1 - alpha, on average
    assert np.mean(sizes) < 20


def test_what_sets_of_steps_need() -> None:
    risk, (known, lost) = fitted(), lost_runs(30, 0)
    with pytest.raises(NotEnoughDataError, match=r"needs 99 runs.*there are 30"):
        calibrate_steps(risk, known, lost, alpha=0.01)
    half = np.where(np.arange(30) < 5, lost, -1)
    with pytest.raises(NotEnoughDataError, match="there are 5"):
        calibrate_steps(risk, known, half)
    with pytest.raises(UsageError, match="2 true steps for 30 runs"):
        calibrate_steps(risk, known, [1, 2])
    with pytest.raises(UsageError, match="lost at step 99"):
        calibrate_steps(risk, known, np.full(30, 99))
    with pytest.raises(LeakError, match="fitted on 30 of these runs"):
        calibrate_steps(Noisy().fit(known), known, lost)
