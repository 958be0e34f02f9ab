"""SAG's rule step by step: the same as the rule on a whole cohort."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import sag_research as sag
from sag_research.deadend import (
    Alarm,
    DeadEndMonitor,
    EntityRuleWatch,
    Prefixes,
    StepTable,
    load,
    save,
)
from sag_research.deadend._baselines import EntityRuleRisk
from sag_research.deadend._step import SeenStep


def texts(prefixes: Prefixes, run: int) -> list[dict[str, str]]:
    rows = range(int(prefixes.start[run]), int(prefixes.stop[run]))
    names = ("thought", "action", "observation")
    return [{name: prefixes.table.text(name)[row] for name in names} for row in rows]


@pytest.fixture(scope="module")
def entities() -> Prefixes:
    """Runs about code: the extractor finds entities."""
    systems = ["postgres", "redis", "nginx", "celery", "docker", "kafka"]
    rng = np.random.default_rng(3)
    with sag.open(":memory:") as ws:
        for number in range(40):
            named = rng.choice(systems, 3)
            ws.add({"task_id": f"t{number}", "outcome": "failure" if number % 2 else "success",
                    "steps": [{"action": f"cat src/{name}.py", "observation": f"{name}: timed out"}
                              for name in named]})  # fmt: skip
        return ws.prefixes(entities=True)


@pytest.fixture(scope="module")
def names() -> Prefixes:
    """Runs of a service: names in texts stand in."""
    rng = np.random.default_rng(4)
    words = ["Boston", "Denver", "user_id", "Smith", "order_no", "Paris"]
    with sag.open(":memory:") as ws:
        for number in range(40):
            ws.add({"task_id": f"t{number}", "outcome": "failure" if number % 2 else "success",
                    "steps": [{"action": f"find {a}", "observation": f"saw {b}"}
                              for a, b in rng.choice(words, (3, 2))]})  # fmt: skip
        found = ws.prefixes(entities=True)
    none = (np.zeros(len(found.table) + 1, np.int64), np.empty(0, np.int32), ())
    table = StepTable(found.table.tokens, found.table.names, found.table.columns, none)
    return Prefixes(found.runs, found.start, found.stop, table)


@pytest.mark.parametrize("kind", ["entities", "names"])
def test_step_by_step_is_the_same_as_at_once(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    cohort: Prefixes = request.getfixturevalue(kind)
    known, new = cohort.take(np.arange(30)), cohort.take(np.arange(30, 40))
    risk = EntityRuleRisk(threshold=0.5, shared=3).fit(known)
    assert risk.from_texts_ == (kind == "names")
    looks = new.every_step()
    n, bad = risk.matches(new, looks)
    fired = risk.native_alarm(new, looks)
    assert fired.any()
    assert not fired.all()
    saved = save(risk, tmp_path / "rule")
    for model in (risk, load(saved)):
        for run in range(len(new)):
            watch = EntityRuleWatch(model)
            said = [watch.observe(step) for step in texts(new, run)]
            at = looks.run == run
            assert [one.n for one in said] == n[at].tolist()
            assert [one.n_failed for one in said] == bad[at].tolist()
            assert [one.risk for one in said] == pytest.approx(risk.predict(new)[at].tolist())
            first = np.flatnonzero(fired[at])
            assert watch.alarm_at_ == (int(first[0]) + 1 if len(first) else None)


def test_the_rule_has_an_alarm_of_any_level_as_other_models(entities: Prefixes) -> None:
    known, new = entities.take(np.arange(30)), entities.take(np.arange(30, 40))
    risk = EntityRuleRisk().fit(known.take(np.arange(8)))
    alarm = Alarm(alpha=0.2, rule="split").calibrate(risk, known.take(np.arange(8, 30)))
    for run in range(len(new)):
        monitor = DeadEndMonitor(alarm)
        risks = [monitor.observe(step).risk for step in texts(new, run)]
        assert risks == pytest.approx(risk.predict(new.take([run])).tolist())


def test_entities_that_are_given_are_not_looked_for(entities: Prefixes) -> None:
    risk = EntityRuleRisk().fit(entities)
    given = tuple(sorted(risk.names_)[:2])
    verdict = EntityRuleWatch(risk).observe(SeenStep("look|src|ok", entities=given))
    one = risk.whole_[:, [risk.names_.index(name) for name in given]].toarray()
    assert verdict.n == int((one.sum(axis=1) >= 2).sum())


def test_a_rule_that_is_fitted_anew_is_indexed_anew(entities: Prefixes) -> None:
    risk = EntityRuleRisk(shared=1).fit(entities.take(np.arange(4)))
    step = texts(entities, 0)[0]
    few = EntityRuleWatch(risk).observe(step).n
    risk.fit(entities)
    assert EntityRuleWatch(risk).observe(step).n > few


def test_its_repr(entities: Prefixes) -> None:
    watch = EntityRuleWatch(EntityRuleRisk().fit(entities))
    assert repr(watch) == "EntityRuleWatch(0 steps)"
