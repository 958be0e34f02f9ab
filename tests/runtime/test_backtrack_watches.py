"""Monitors in the harness: a rule that knows, chance, SAG's rule, and a model with its alarm."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

import sag_research as sag
from sag_research.deadend import (
    Alarm,
    DeadEndMonitor,
    EntityRuleWatch,
    Looks,
    Prefixes,
    PrefixRisk,
    RiskModel,
    SeenStep,
    Stream,
    model_of,
)
from sag_research.errors import UsageError
from sag_research.log import SQLiteEventStore
from sag_research.model import Run
from sag_research.runtime import BacktrackPolicy, RandomWatch, RuleWatch, RunContext, backtrack
from tests.runtime.backtracks import Scripted, go, make_store, own, past, walker

NOISE = 1e-3
"""What a test of a share may fail by chance, were its data drawn anew."""


def step(text: str) -> dict[str, str]:
    return {"thought": "", "action": text, "observation": f"{text}: done"}


# ---- rules and chance


def test_a_rule_sees_all_steps_and_its_alarm_stays() -> None:
    watch = RuleWatch(lambda steps: steps[-1]["action"] == "b", "the world says so")
    said = [watch.observe(step(text)) for text in "abab"]
    assert [one.risk for one in said] == [one.low for one in said] == [0.0, 1.0, 0.0, 1.0]
    assert [one.alarm for one in said] == [False, True, True, True]
    assert (watch.alarm_at_, said[0].evidence) == (2, "the world says so")
    assert repr(watch) == "RuleWatch(4 steps, alarm after step 2)"
    assert len(watch.tokens_) == 4


def test_chance_has_the_rate_that_was_asked_for() -> None:
    """4,000 runs of at most 10 steps: each step of a run without alarm is one draw."""
    rate, draws, alarms = 0.1, 0, 0
    for seed in range(4000):
        watch = RandomWatch(rate, seed)
        for number in range(10):
            draws += 1
            if watch.observe(step(f"{number}")).alarm:
                alarms += 1
                break
    low, high = stats.binom.ppf([NOISE / 2, 1 - NOISE / 2], draws, rate)
    assert low <= alarms <= high


def test_chance_follows_from_seed_and_steps() -> None:
    def alarms(seed: int | str, prefix: str = "") -> list[Any]:
        watch = RandomWatch(0.3, seed)
        return [watch.observe(step(f"{prefix}{n}")) for n in range(40)]

    assert [one[3:] for one in alarms(5)] == [one[3:] for one in alarms(5)]
    ats = {tuple(one.alarm for one in alarms(seed)) for seed in range(20)}
    others = {tuple(one.alarm for one in alarms(5, f"{n} ")) for n in range(20)}
    assert len(ats) > 4
    assert len(others) > 4


def test_chance_says_where_its_alarm_was_and_gives_no_bound() -> None:
    watch = RandomWatch(1.0)
    said = watch.observe(step("a"))
    assert (said.risk, said.alarm) == (1.0, True)
    assert np.isnan(said.low)
    assert np.isnan(said.high)
    never = RandomWatch(0.0)
    assert not any(never.observe(step("a")).alarm for _ in range(100))
    for wrong in (-0.1, 1.1, float("nan")):
        with pytest.raises(UsageError):
            RandomWatch(wrong)


@pytest.mark.parametrize("text", ["\ud800", "x" * 100_000, "\x00"])
def test_chance_takes_any_text(text: str) -> None:
    RandomWatch(0.5).observe({"action": text, "observation": text})


def test_chance_takes_runs_back() -> None:
    store = make_store()
    result = go(store, [], watch=lambda: RandomWatch(0.4, seed=4))
    assert len(result.runs) == 3
    for left, child in zip(result.runs, result.runs[1:], strict=False):
        [predicted] = own(store, left, "deadend.predicted")
        [back] = own(store, child, "run.backtracked")
        assert back.payload["change_step"] in (predicted.payload["step"], None)
        assert predicted.payload["low"] is None


# ---- SAG's rule, live


@pytest.fixture(scope="module")
def rule() -> Any:
    """Fitted on runs whose texts name systems; those that meet Postgres and Redis failed."""
    with sag.open(":memory:") as ws:
        for number in range(12):
            lost = number % 2 == 0
            seen = "cannot reach postgres: timed out, redis is down" if lost else "nginx: ok"
            ws.add({"task_id": f"t{number}", "outcome": "failure" if lost else "success",
                    "steps": [{"action": f"cat a{number}.py", "observation": seen},
                              {"action": "ls", "observation": "celery and nginx"}]})  # fmt: skip
        return model_of("sag-entity-rule").fit(ws.prefixes(entities=True))


def test_the_rule_raises_its_own_alarm(rule: Any) -> None:
    watch = EntityRuleWatch(rule)
    calm = watch.observe({"action": "ls", "observation": "setup.cfg"})
    assert (calm.alarm, calm.n, calm.risk) == (False, 0, rule.base_rate_)
    assert np.isnan(calm.low)
    said = watch.observe({"action": "psql", "observation": "cannot reach pg, redis is down"})
    assert (said.alarm, said.n, said.n_failed, said.risk) == (True, 6, 6, 1.0)
    assert 0.5 < said.low < 1 == said.high
    assert said.evidence == "6 of 6 past runs that share 2 names or more with this one failed"
    assert (watch.alarm_at_, watch.seen_) == (2, 2)


def test_the_rule_works_in_the_harness(rule: Any) -> None:
    def factory(change: Any, seed: int) -> Any:
        def agent(ctx: RunContext) -> str:
            ctx.step("", "ls", "setup.cfg")
            if "backtrack" not in change:
                ctx.step("", "psql", "cannot reach postgres: timed out, redis is down")
            return "success"

        return agent

    store = make_store()
    result = backtrack(
        store, "r", agent_factory=factory, watch=lambda: EntityRuleWatch(rule),
        policy=BacktrackPolicy(when="pays", p_star=0.5),
    )  # fmt: skip
    assert (len(result.runs), result.outcome) == (2, "success")
    [back] = own(store, result.runs[1], "run.backtracked")
    assert (back.payload["n"], back.payload["n_failed"]) == (6, 6)
    assert back.payload["fork_step"] == 0


# ---- false aborts


class Written(RiskModel):
    """A model whose score is written in the step."""

    name = "written"

    def _fit(self, prefixes: Prefixes, looks: Looks, failed: Any, weight: Any) -> None:
        """Nothing is learnt."""

    def _predict(self, prefixes: Prefixes, looks: Looks) -> Any:
        scores = np.array([float(text) for text in prefixes.table.text("observation")])
        return scores[prefixes.rows(looks)]

    def begin(self) -> Stream:
        return _WrittenStream()


class _WrittenStream:
    def observe(self, step: SeenStep) -> float:
        return float(step.observation)


def scores(rng: np.random.Generator, n: int, longest: int = 6) -> list[list[float]]:
    """Scores of runs: each has a level of its own, so looks of a run are alike."""
    return [(rng.normal() + rng.normal(size=rng.integers(2, longest))).round(6).tolist()
            for _ in range(n)]  # fmt: skip


def written(runs: list[list[float]], outcome: str, prefix: str) -> Prefixes:
    texts = [f"{score}" for run in runs for score in run]
    columns = pa.table({"thought": texts, "action": texts, "observation": texts})
    made = Prefixes.from_tokens(
        [["look|src|ok"] * len(run) for run in runs], [outcome] * len(runs),
        [f"{prefix}-{n}" for n in range(len(runs))], columns,
    )  # fmt: skip
    return Prefixes(made.runs.assign(run_id=made.runs["task_id"]), made.start, made.stop,
                    made.table)  # fmt: skip


def test_false_aborts_keep_alpha_on_exchangeable_runs() -> None:
    """300 successes of 300 new tasks, a threshold from 199 others at alpha = .1.

    The threshold is the 180th of 199 maxima, so the share above it is Beta(20, 180) and the
    number of aborts of 300 is beta-binomial: its two limits leave out 1e-3 together.
    """
    rng = np.random.default_rng(20)
    known = written(scores(rng, 199), "success", "known")
    some = np.array([0, 1])
    first = written([[0.0], [1.0]], "success", "fitted")
    first = Prefixes(
        first.runs.assign(outcome=["success", "failure"]), first.start, first.stop, first.table
    )
    alarm = Alarm(alpha=0.1, rule="split").calibrate(Written().fit(first.take(some)), known)
    aborted, n = 0, 300
    store = SQLiteEventStore(":memory:")
    for number, values in enumerate(scores(rng, n)):
        store.create_run(Run(run_id=f"r{number}"))

        def agent(ctx: RunContext, values: list[float] = values) -> str:
            for value in values:
                ctx.step("", f"{value}", f"{value}")
            return "success"

        result = backtrack(
            store, f"r{number}", agent_factory=lambda change, seed, agent=agent: agent,
            watch=lambda: DeadEndMonitor(alarm), policy=BacktrackPolicy(then="abort"),
        )  # fmt: skip
        assert result.outcome == ("unknown" if result.abandoned else "success")
        aborted += result.abandoned
    low, high = stats.betabinom.ppf([NOISE / 2, 1 - NOISE / 2], n, 20, 180)
    assert low <= aborted <= high, (low, aborted, high)


def test_false_aborts_keep_alpha_on_levels_that_the_monitor_has_not_seen() -> None:
    """The bundled store rooms: model and alarm from one half of the levels, the other watched.

    210 successes, at alpha = .1: at most 35 may be stopped, the binomial limit that is passed
    with a probability below 1e-3 if the share is .1.
    """
    with sag.open(":memory:") as ws:
        ws.ingest(sag.bundled("crates"), progress=False)
        cohort = ws.prefixes()
    levels = sorted(cohort.runs["task_id"].unique())
    stopped = n = caught = 0
    for half in (levels[::2], levels[1::2]):
        inside = cohort.runs["task_id"].isin(half).to_numpy()
        known, new = cohort.take(inside), cohort.take(~inside)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", sag.deadend.SmallSampleWarning)
            risk = PrefixRisk(text=False, trees=20, min_leaf=10).fit(known)
            alarm = Alarm(alpha=0.1, rule="hierarchical").calibrate(risk, known)
        for run in range(len(new)):
            monitor = DeadEndMonitor(alarm)
            for row in range(int(new.start[run]), int(new.stop[run])):
                names = ("thought", "action", "observation")
                monitor.observe({name: new.table.text(name)[row] for name in names})
            raised = monitor.alarm_at_ is not None
            n += new.failed[run] == 0
            stopped += raised and new.failed[run] == 0
            caught += raised and new.failed[run] == 1
    assert n == 210
    assert stopped <= stats.binom.ppf(1 - NOISE, n, 0.1) == 35
    assert stopped + caught > 0  # an alarm that is never raised would pass, too


def test_the_helpers_of_these_tests() -> None:
    watch = Scripted([0.1, 0.9])
    assert [watch.observe({}).alarm for _ in range(3)] == [False, True, True]
    store = make_store()
    past(store, "s", ["a"])
    assert go(store, [0.0], agent_factory=walker(2)).outcome == "success"
