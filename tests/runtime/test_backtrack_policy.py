"""When a run is halted, where it goes back to, what bounds it; and what is written of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pytest

from sag_research.deadend import ForkSet
from sag_research.errors import UsageError
from sag_research.llm import Reply, Request
from sag_research.llm import Scripted as ScriptedModel
from sag_research.model import WORKSPACE_RUN, Outcome, Usage
from sag_research.runtime import (
    Agent,
    BacktrackPolicy,
    HaltedError,
    RunContext,
    StepsSpentError,
    backtrack,
)
from tests.runtime.backtracks import Counter, Scripted, go, make_store, own, walker

RISES = [0.2, 0.2, 0.3, 0.7, 0.8, 0.95, 0.95]
"""The change point is step 3, .8 is reached with step 4, the alarm with step 5."""


def halts_at(policy: BacktrackPolicy, risks: list[float] = RISES) -> int | None:
    """The step at which the first attempt is halted."""
    store = make_store()
    result = go(store, risks, policy)
    predicted = own(store, "r", "deadend.predicted")
    if len(result.runs) == 1 and not result.abandoned:
        return None
    assert predicted[0].payload["step"] == len(own(store, "r", "agent.step")) - 1
    return int(predicted[0].payload["step"])


@pytest.mark.parametrize(
    ("policy", "step"),
    [
        (BacktrackPolicy(), 5),
        (BacktrackPolicy(when="threshold", threshold=0.8), 4),
        (BacktrackPolicy(when="threshold", threshold=0.2), 0),
        (BacktrackPolicy(when="threshold", threshold=1.0), None),
        (BacktrackPolicy(when="pays", p_star=0.45), 3),  # the lower bound is .2 below the risk
        (BacktrackPolicy(when="pays", p_star=0.9), None),
        (BacktrackPolicy(when="shadow"), None),
        (BacktrackPolicy(max_backtracks=0), None),
        (BacktrackPolicy(max_backtracks=0, then="abort"), 5),
        (BacktrackPolicy(when="threshold", threshold=0.8, then="abort"), 4),
        (BacktrackPolicy(when="shadow", then="abort"), None),
    ],
)
def test_when_a_run_is_halted(policy: BacktrackPolicy, step: int | None) -> None:
    assert halts_at(policy) == step


def test_a_bound_that_is_unknown_halts_nothing() -> None:
    assert halts_at(BacktrackPolicy(when="pays", p_star=0.0), [0.0] * 10) is None


@pytest.mark.parametrize(
    ("more", "fork_step"),
    [
        ({}, 2),
        ({"where": "start"}, None),
        ({"where": "fixed", "back": 2}, 3),
        ({"where": "fixed", "back": 9}, None),
        ({"where": "conformal", "fork_set": ForkSet(0.1, 0, 30)}, 2),
        ({"where": "conformal", "fork_set": ForkSet(0.1, 2, 30)}, 0),
        ({"where": "conformal", "fork_set": ForkSet(0.1, 3, 30)}, None),
        ({"where": "conformal", "fork_set": ForkSet(0.1, -1, 30)}, 3),
    ],
)
def test_where_a_run_goes_back_to(more: dict[str, Any], fork_step: int | None) -> None:
    store = make_store()
    result = go(store, RISES, BacktrackPolicy(max_backtracks=1, **more))
    [event] = own(store, result.runs[1], "run.backtracked")
    assert event.payload["fork_step"] == fork_step
    kept = 0 if fork_step is None else fork_step + 1
    assert result.table_.fork_step.astype(object).tolist()[1:] == ([fork_step] if kept else [None])
    actions = [e.payload["action"] for e in store.read(result.runs[1], types=("agent.step",))]
    assert [int("try 0" in action) for action in actions] == [1] * kept + [0] * (10 - kept)
    seen = [e.payload["observation"] for e in store.read(result.runs[1], types=("agent.step",))]
    assert [int(text.rpartition(" ")[2]) for text in seen] == list(range(1, 11))  # the world's


def test_steps_that_are_not_stable_are_no_place_to_go_back_to() -> None:
    store = make_store()
    tokens = ["look|src|ok", "edit|src|ok", "run|-|traceback"]
    result = go(store, RISES, watch=lambda: Scripted(RISES, tokens))
    [event] = own(store, result.runs[1], "run.backtracked")
    assert (event.payload["fork_step"], event.payload["change_step"]) == (1, 3)


def test_without_a_change_point_it_goes_so_many_steps_back() -> None:
    store = make_store()
    result = go(store, [0.95] * 9, BacktrackPolicy(back=1, max_backtracks=1, when="threshold",
                                                   threshold=0.9))  # fmt: skip
    [event] = own(store, result.runs[1], "run.backtracked")
    assert (event.payload["fork_step"], event.payload["change_step"]) == (None, None)


# ---- what is written


def test_events_carry_the_evidence() -> None:
    store = make_store()
    result = go(store, RISES, BacktrackPolicy(when="threshold", threshold=0.8, max_backtracks=1))
    [predicted] = own(store, "r", "deadend.predicted")
    evidence = {
        "step": 4, "risk": 0.8, "low": pytest.approx(0.6), "high": 1.0, "n": 4, "n_failed": 3,
        "evidence": "3 of 4 runs failed", "when": "threshold", "threshold": 0.8,
    }  # fmt: skip
    assert predicted.payload == evidence
    [back] = own(store, result.runs[1], "run.backtracked")
    assert back.payload == evidence | {
        "prediction": predicted.position, "from": "r", "fork_step": 2, "change_step": 3,
        "where": "change-point", "feedback": "avoid-list", "sources": [],
    }  # fmt: skip
    [left] = own(store, "r", "run.abandoned")
    assert left.payload == evidence | {
        "prediction": predicted.position, "exit_status": "dead end predicted",
        "to": result.runs[1],
    }  # fmt: skip
    assert left.cause == predicted.position
    assert own(store, "r")[-2:] == [predicted, left]
    said = [event.payload["run"] for event in store.read(WORKSPACE_RUN, types=["outcome.recorded"])]
    assert said == [result.runs[-1]]  # nothing is said of the run that was left
    row = result.table_.iloc[0]
    assert (row.n, row.n_failed, row.low, row.exit_status) == (4, 3, pytest.approx(0.6),
                                                               "dead end predicted")  # fmt: skip


def test_coverage_is_written_down() -> None:
    store = make_store()
    policy = BacktrackPolicy(where="conformal", fork_set=ForkSet(0.1, 1, 30), max_backtracks=1)
    result = go(store, RISES, policy)
    [event] = own(store, result.runs[1], "run.backtracked")
    assert event.payload["coverage"] == 0.9
    assert event.payload["where"] == "conformal"


def test_an_aborted_run_has_no_outcome_that_is_made_up() -> None:
    store = make_store()
    result = go(store, RISES, BacktrackPolicy(then="abort"))
    assert (result.runs, result.outcome, result.abandoned) == (["r"], "unknown", True)
    assert [event.type for event in own(store, "r")][-2:] == ["deadend.predicted", "run.abandoned"]
    assert "to" not in own(store, "r")[-1].payload
    [said] = store.read(WORKSPACE_RUN, types=["outcome.recorded"])
    assert said.payload["outcome"] == "unknown"
    assert repr(result) == "BacktrackResult('r': unknown, taken back 0 times, abandoned)"
    head = store.last_seq()
    again = go(store, RISES, BacktrackPolicy(then="abort"))
    assert (again.outcome, store.last_seq()) == ("unknown", head)


def test_an_aborted_run_is_judged_as_it_stands_if_there_is_a_judge() -> None:
    def judge(ctx: RunContext) -> Outcome:
        assert isinstance(ctx.world, Counter)
        assert ctx.tool("ask", lambda: 1) == 1  # a judge may ask
        return Outcome(outcome="failure", detail=f"at {ctx.world.value}")

    store = make_store()
    result = go(store, RISES, BacktrackPolicy(then="abort"), outcome=judge)
    assert (result.outcome, result.abandoned) == ("failure", True)
    [said] = store.read(WORKSPACE_RUN, types=["outcome.recorded"])
    assert said.payload["detail"] == "at 6"


def test_a_shadow_changes_nothing_but_says_what_it_saw() -> None:
    watched, alone = make_store(), make_store()
    go(watched, RISES, BacktrackPolicy(when="shadow"))
    go(alone, [0.0])
    seen = [(e.type, e.payload) for e in own(watched, "r")]
    [predicted] = [pair for pair in seen if pair[0] == "deadend.predicted"]
    seen.remove(predicted)
    assert seen == [(e.type, e.payload) for e in own(alone, "r")]
    assert predicted[1]["when"] == "shadow"


def test_a_halted_agent_can_do_nothing_more() -> None:
    tried: list[str] = []

    def stubborn(change: Mapping[str, Any], seed: int) -> Agent:
        inner = walker()(change, seed)

        def agent(ctx: RunContext) -> Any:
            try:
                return inner(ctx)
            except HaltedError:
                for name, act in {
                    "step": lambda: ctx.step("more", "more", "more"),
                    "llm": lambda: ctx.llm(None, "more"),
                    "stream": lambda: list(ctx.stream(None, "more")),
                    "tool": lambda: ctx.tool("more", lambda: 1),
                }.items():
                    with pytest.raises(HaltedError):
                        act()
                    tried.append(name)
            return "success"

        return agent

    store = make_store()
    result = go(store, RISES, BacktrackPolicy(max_backtracks=1), agent_factory=stubborn)
    assert tried == ["step", "llm", "stream", "tool"]
    assert len(own(store, "r", "agent.step")) == 6
    assert result.outcome == "success"


# ---- bounds


def test_no_attempt_begins_that_could_make_no_step() -> None:
    store = make_store()
    result = go(store, RISES, BacktrackPolicy(max_steps=6), outcome=lambda ctx: "failure")
    assert (result.runs, result.steps, result.outcome) == (["r"], 6, "failure")
    assert own(store, "r")[-1].payload["exit_status"] == "steps exhausted"
    assert len(own(store, "r", "deadend.predicted")) == 1


@pytest.mark.parametrize(
    ("bound", "status", "steps"),
    [
        ({"max_tokens": 80}, "tokens exhausted", 8),
        ({"max_tokens": 71}, "tokens exhausted", 8),
        ({"max_cost_usd": 0.06}, "money exhausted", 6),
        ({"max_cost_usd": 0.9, "max_tokens": 90}, "tokens exhausted", 9),
    ],
)
def test_tokens_and_cost_are_bounded_over_all_attempts(
    bound: dict[str, Any], status: str, steps: int
) -> None:
    """Ten tokens and a cent a step; attempts keep three steps and are halted with their sixth."""
    usage = Usage(tokens_in=7, tokens_out=3, cost_usd=0.01)
    store = make_store()
    policy = BacktrackPolicy(max_backtracks=5, **bound)
    result = go(store, RISES, policy, agent_factory=walker(usage=usage))
    assert result.steps == steps
    assert result.usage == Usage(
        tokens_in=7 * steps, tokens_out=3 * steps, cost_usd=pytest.approx(0.01 * steps)
    )
    assert own(store, result.runs[-1])[-1].payload["exit_status"] == status
    assert result.outcome == "unknown"
    left = own(store, "r")[-1]
    assert left.payload["usage"]["tokens_in"] == 7 * len(own(store, "r", "agent.step"))


class Talking(ScriptedModel):
    """A model that says what an answer took."""

    def complete(self, request: Request) -> Reply:
        return Reply(text="go", usage=Usage(tokens_in=6, tokens_out=4))


def test_tokens_of_model_calls_count_where_steps_do_not_say() -> None:
    def factory(change: Mapping[str, Any], seed: int) -> Agent:
        def agent(ctx: RunContext) -> None:
            while True:
                ctx.llm(Talking([]), f"{len(ctx.steps())}?")
                ctx.step("", "go", "gone")

        return agent

    store = make_store()
    result = go(store, [0.0], BacktrackPolicy(max_tokens=35), agent_factory=factory)
    assert result.steps == 4
    assert result.usage.tokens_in == 24


def test_a_bound_that_cannot_be_kept_is_refused() -> None:
    store = make_store()
    with pytest.raises(UsageError, match="max_cost_usd cannot be kept"):
        go(store, [0.0], BacktrackPolicy(max_cost_usd=1.0),
           agent_factory=walker(usage=Usage(tokens_in=1, tokens_out=1)))  # fmt: skip
    assert own(store, "r")[-1].type == "agent.step"  # it can be carried on without the bound
    assert go(store, [0.0]).outcome == "success"


def test_a_spent_run_that_was_cut_off_ends_as_it_would_have() -> None:
    """Killed after its last step, the agent is asked for its word, and can do nothing more."""

    def catching(change: Mapping[str, Any], seed: int) -> Agent:
        inner = walker()(change, seed)

        def agent(ctx: RunContext) -> Any:
            try:
                return inner(ctx)
            except StepsSpentError:
                ctx.exit_status = "no more"
                return "failure"

        return agent

    whole = make_store()
    go(whole, [0.0], BacktrackPolicy(max_steps=4), agent_factory=catching)
    store = make_store()

    def dying(ctx: RunContext) -> Any:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        go(store, [0.0], BacktrackPolicy(max_steps=4), agent_factory=catching, outcome=dying)
    result = go(store, [0.0], BacktrackPolicy(max_steps=4), agent_factory=catching)
    assert (result.steps, result.outcome) == (4, "failure")
    assert store.head("r").digest == whole.head("r").digest


def test_a_judge_sees_the_world_of_the_last_step_that_was_written() -> None:
    """An agent that acts by itself does so once more when it is asked for its word."""

    def direct(change: Mapping[str, Any], seed: int) -> Agent:
        def agent(ctx: RunContext) -> None:
            assert isinstance(ctx.world, Counter)
            while True:
                ctx.step("", "go", ctx.world.act("go"))

        return agent

    seen: list[int] = []

    def judge(ctx: RunContext) -> bool:
        assert isinstance(ctx.world, Counter)
        seen.append(ctx.world.value)
        if len(seen) == 1:
            raise KeyboardInterrupt
        return False

    store = make_store()
    options: dict[str, Any] = {"agent_factory": direct, "outcome": judge}
    with pytest.raises(KeyboardInterrupt):
        go(store, [0.0], BacktrackPolicy(max_steps=4), **options)
    assert go(store, [0.0], BacktrackPolicy(max_steps=4), **options).outcome == "failure"
    assert seen == [4, 4]


# ---- rules that are none


@pytest.mark.parametrize(
    "wrong",
    [
        {"when": "later"}, {"where": "here"}, {"then": "stop"}, {"feedback": "shout"},
        {"when": "threshold"}, {"when": "pays"}, {"where": "conformal"}, {"feedback": "recall"},
        {"when": "threshold", "threshold": 1.1}, {"when": "pays", "p_star": math.nan},
        {"max_tokens": 0}, {"max_cost_usd": 0.0}, {"max_cost_usd": math.inf},
        {"max_cost_usd": math.nan}, {"max_backtracks": -1}, {"max_steps": 0}, {"back": 0},
        {"when": print},
    ],
)  # fmt: skip
def test_rules_that_are_none(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        BacktrackPolicy(**wrong)


def test_rules_are_named() -> None:
    def shuffled(_: Any) -> str:
        return ""

    assert BacktrackPolicy(feedback=shuffled).about["feedback"] == "shuffled"
    assert BacktrackPolicy(when="threshold", threshold=0.5).about["threshold"] == 0.5
    assert "p_star" not in BacktrackPolicy(p_star=0.5).about


def test_what_an_agent_raises_leaves_the_run_as_it_is() -> None:
    def broken(change: Mapping[str, Any], seed: int) -> Agent:
        def agent(ctx: RunContext) -> None:
            ctx.step("", "go", "gone")
            raise ValueError("no")

        return agent

    store = make_store()
    with pytest.raises(ValueError, match="no"):
        backtrack(store, "r", agent_factory=broken, watch=lambda: Scripted([0.1]))
    assert own(store, "r")[-1].type == "agent.step"
