"""A run watched step by step."""

from __future__ import annotations

import math

import numpy as np
import pytest

from sag_research.deadend import Prefixes
from sag_research.deadend._alarm import Alarm
from sag_research.deadend._baselines import MajorityRisk
from sag_research.deadend._monitor import DeadEndMonitor
from sag_research.deadend._stack import PrefixRisk
from sag_research.errors import UsageError
from sag_research.extract import Vocabulary
from sag_research.model import Call, Step
from tests.deadend.features import cohort, seen_steps


@pytest.fixture(scope="module")
def prefixes() -> Prefixes:
    return cohort(tasks=40, seed=1, longest=16)


@pytest.fixture(scope="module")
def alarm(prefixes: Prefixes) -> Alarm:
    risk = PrefixRisk(trees=20, min_leaf=5).fit(prefixes)
    return Alarm(alpha=0.2, min_step=2).calibrate(risk, prefixes)


def watch(alarm: Alarm, prefixes: Prefixes, run: int) -> DeadEndMonitor:
    monitor = DeadEndMonitor(alarm)
    for step in seen_steps(prefixes, run):
        monitor.observe(step)
    return monitor


def test_verdicts_are_the_models_scores(alarm: Alarm, prefixes: Prefixes) -> None:
    monitor = watch(alarm, prefixes, 0)
    risks = [verdict.risk for verdict in monitor.verdicts_]
    assert risks == pytest.approx(alarm.risk_.predict(prefixes.take([0])).tolist())
    assert monitor.seen_ == prefixes.n_steps[0]


def test_an_alarm_once_raised_stays(alarm: Alarm, prefixes: Prefixes) -> None:
    raised = 0
    for run in range(len(prefixes)):
        monitor = watch(alarm, prefixes, run)
        said = [verdict.alarm for verdict in monitor.verdicts_]
        scores = enumerate((v.risk for v in monitor.verdicts_), start=1)
        first = next((seen for seen, risk in scores if alarm.fires(seen, risk)), None)
        assert monitor.alarm_at_ == first
        assert said == [first is not None and seen >= first for seen in range(1, len(said) + 1)]
        raised += first is not None
    assert 0 < raised < len(prefixes)


def test_intervals_are_those_of_runs_with_a_similar_risk(alarm: Alarm, prefixes: Prefixes) -> None:
    monitor = watch(alarm, prefixes, 1)
    verdict = monitor.verdicts_[-1]
    n, bad, low, high = (x[0] for x in alarm.risk_.similar_.at(np.array([verdict.risk])))
    assert (verdict.low, verdict.high) == (low, high)
    assert verdict.evidence == f"{bad} of {n} runs that had a similar risk failed"


def test_steps_of_any_kind_are_taken(alarm: Alarm) -> None:
    step = Step(
        thought="look", action="cat a.py", observation="x",
        calls=(Call(name="bash", observation="x", exit_code=0),),
    )  # fmt: skip
    mapping = {"thought": "look", "action": "cat a.py", "observation": "x", "exit_code": 0}
    one = DeadEndMonitor(alarm, Vocabulary()).observe(step)
    two = DeadEndMonitor(alarm, Vocabulary()).observe(mapping)
    assert math.isfinite(one.risk)
    assert one.risk == pytest.approx(two.risk, abs=0.2)


def test_its_repr(alarm: Alarm, prefixes: Prefixes) -> None:
    assert repr(DeadEndMonitor(alarm)) == "DeadEndMonitor(0 steps, nothing seen)"
    assert repr(watch(alarm, prefixes, 0)).startswith(f"DeadEndMonitor({prefixes.n_steps[0]} steps")


def test_an_alarm_without_a_model_is_refused() -> None:
    with pytest.raises(UsageError, match="the alarm has no model"):
        DeadEndMonitor(Alarm())


def test_a_model_that_cannot_go_step_by_step_is_refused(prefixes: Prefixes) -> None:
    alarm = Alarm()
    alarm.risk_, alarm.threshold_ = MajorityRisk().fit(prefixes), 0.5
    with pytest.raises(UsageError, match="does not score step by step"):
        DeadEndMonitor(alarm)
