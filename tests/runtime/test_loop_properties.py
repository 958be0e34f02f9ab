"""Random plans with random failures, cancellations and budgets keep the rules of loops."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from sag_research.runtime import (
    BudgetExceededError,
    CancelToken,
    LoopCancelledError,
    Runtime,
    StepCancelledError,
    graph_step,
    plan,
)
from tests.runtime.loops import DRIVERS, Seen, one

# what a plan's step does: succeed, fail, cancel the loop, fail while cancelling, be cancelled
ACTS = ("well", "fail", "cancel", "fail+cancel", "step")
scripts = st.lists(st.tuples(st.sampled_from(ACTS), st.booleans()), max_size=7)


def make(script: list[tuple[str, bool]], limit: int, trace: list[str], token: CancelToken) -> Any:
    """Make a plan that follows a script; each step says whether its failure is caught."""

    def act(what: tuple[str, CancelToken]) -> None:
        kind, own = what
        trace.append(kind)
        if "cancel" in kind:
            token.cancel()
        if kind == "step":
            own.cancel()
        if "fail" in kind:
            raise ValueError(kind)

    @plan(max_iterations=limit)
    def work(_: Any) -> Any:
        try:
            for kind, is_caught in script:
                own = CancelToken()
                try:
                    yield from graph_step(one("g", act), (kind, own), cancel=own)
                except Exception:
                    if not is_caught:
                        raise
            return "returned"
        finally:
            trace.append("cleaned")

    return work


def expected(script: list[tuple[str, bool]], limit: int) -> tuple[str, int]:
    """Say how a script ends, and after how many graphs."""
    for number, (kind, is_caught) in enumerate(script):
        if number == limit:
            return "budget", number
        if "cancel" in kind:
            return "cancelled", number + 1
        if kind != "well" and not is_caught:
            return "error", number + 1
    return "returned", len(script)


@settings(max_examples=60, deadline=None)
@given(script=scripts, limit=st.integers(1, 6), driver=st.sampled_from(sorted(DRIVERS)))
def test_l8_l12_l13_hold_for_random_plans(
    script: list[tuple[str, bool]], limit: int, driver: str
) -> None:
    trace: list[str] = []
    token, seen = CancelToken(), Seen()
    with Runtime() as rt:
        work = make(script, limit, trace, token)
        try:
            ended = DRIVERS[driver](rt, work, cancel=token, on_graph=seen)
        except BudgetExceededError:
            ended = "budget"
        except LoopCancelledError:
            ended = "cancelled"
        except (ValueError, StepCancelledError):
            ended = "error"
    how, graphs = expected(script, limit)
    assert ended == how
    assert trace == [kind for kind, _ in script[:graphs]] + ["cleaned"]
    assert graphs <= limit
    statuses = [status for *_, status in seen.short]
    assert statuses[::2] == ["started"] * graphs
    assert all(status in ("completed", "failed") for status in statuses[1::2])
    assert [number for number, *_ in seen.short] == [n for n in range(graphs) for _ in "ab"]
