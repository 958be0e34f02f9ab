"""Loops, by the same tests over plain, asynchronous and thread-hosted driving.

The numbers in the tests' names are those of the requirements on loop plans.
"""

# ruff: noqa: BLE001, SIM105 - plans that swallow everything are what is tested

from __future__ import annotations

import threading
from typing import Any

import pytest

from sag_research.errors import SagError, UsageError
from sag_research.runtime import (
    BudgetExceededError,
    CancelToken,
    GraphBindingError,
    LoopCancelledError,
    LoopPlan,
    NodeFailedError,
    NodeResult,
    ObserverError,
    PlanError,
    ReentryError,
    Runtime,
    StateLoop,
    StepCancelledError,
    StepTimeoutError,
    Worker,
    WorkerBusyError,
    graph,
    graph_step,
    plan,
    this_node,
    unwrap,
)
from tests.runtime.loops import ECHO, Drive, Seen, boom, drive, one, rt

__all__ = ["drive", "rt"]


class Boom(Exception):
    pass


# ---- L1, L2, L3: graphs


def test_l1_bind_sees_only_declared_deps(drive: Drive, rt: Runtime) -> None:
    seen: list[Any] = []

    def bind(given: Any, deps: Any) -> Any:
        seen.append((given, sorted(deps)))
        return deps["b"].unwrap()

    whole = (
        graph("g").node("a", lambda x: x + 1).node("b", lambda x: x * 10)
        .node("c", lambda x: x, deps=["b"], bind=bind)
        .node("d", lambda x: x, deps=["a", "c"])
    )  # fmt: skip

    @plan
    def work(x: int) -> Any:
        return (yield from graph_step(whole, x))

    outputs = drive(rt, work, 2)
    assert {name: result.output for name, result in outputs.items()} == {
        "a": 3, "b": 20, "c": 20, "d": {"a": 3, "c": 20},
    }  # fmt: skip
    assert list(outputs) == ["a", "b", "c", "d"]
    assert seen == [(2, ["b"])]
    with pytest.raises(TypeError):
        outputs["a"] = None


def test_l1_an_empty_graph_has_no_outputs(drive: Drive, rt: Runtime) -> None:
    @plan
    def work(_: Any) -> Any:
        return (yield from graph_step(graph("nothing")))

    assert dict(drive(rt, work)) == {}


@pytest.mark.parametrize("asynchronous", [False, True])
def test_l2_concurrency_caps_the_nodes_of_a_graph(
    drive: Drive, rt: Runtime, asynchronous: bool
) -> None:
    import asyncio

    now = most = 0
    lock = threading.Lock()
    pair = threading.Barrier(2)

    def enter() -> None:
        nonlocal now, most
        with lock:
            now += 1
            most = max(now, most)

    def leave() -> None:
        nonlocal now
        with lock:
            now -= 1

    def plain(_: Any) -> None:
        enter()
        pair.wait(10)  # only where two are under way at a time
        leave()

    async def awaited(_: Any) -> None:
        enter()
        await asyncio.sleep(0.01)
        leave()

    wide = graph("wide")
    for name in "abcdef":
        wide = wide.node(name, awaited if asynchronous else plain)

    @plan
    def work(_: Any) -> Any:
        yield from graph_step(wide, concurrency=2)

    drive(rt, work)
    assert most == 2


@pytest.mark.parametrize("bad", [0, -1, 1.5, True, "2"])
def test_l2_bad_concurrency_is_refused_before_any_effect(
    drive: Drive, rt: Runtime, bad: Any
) -> None:
    ran: list[int] = []

    @plan
    def work(_: Any) -> Any:
        yield from graph_step(one("g", ran.append), 1, concurrency=bad)

    with pytest.raises(UsageError, match="concurrency"):
        drive(rt, work)
    assert ran == []


@pytest.mark.parametrize("second", [None, Boom("second")])
def test_l3_siblings_finish_and_nothing_new_begins(
    drive: Drive, rt: Runtime, second: Boom | None
) -> None:
    failed, other, ran = threading.Event(), threading.Event(), []
    error = Boom("first")

    def fail(_: Any) -> None:
        failed.set()
        raise error

    def sibling(_: Any) -> None:
        failed.wait(10)
        other.wait(0.2)  # long enough for a third node to begin in the place of the failed one
        ran.append("sibling")
        if second is not None:
            raise second

    def third(_: Any) -> None:
        ran.append("third")
        other.set()

    whole = graph("g").node("sibling", sibling).node("fail", fail).node("third", third)
    whole = whole.node("later", lambda _: ran.append("later"), deps=["sibling"])

    @plan
    def work(_: Any) -> Any:
        yield from graph_step(whole, concurrency=2)

    with pytest.raises(Boom) as raised:
        drive(rt, work)
    assert raised.value is error
    assert ran == ["sibling"]


def test_l3_a_node_knows_where_it_is(drive: Drive) -> None:
    with Runtime([Worker("w1", {"WHERE": lambda _: this_node()})]) as rt:
        where = graph("g").node("a", "WHERE").node("b", lambda _: this_node())

        @plan
        def work(_: Any) -> Any:
            first = yield from graph_step(where)
            second = yield from graph_step(where)
            return [unwrap(outputs[name]) for outputs in (first, second) for name in "ab"]

        places = drive(rt, work, loop_id="l")
    assert [place[:5] for place in places] == [
        ("l", "g", "l.0", "a", "w1"), ("l", "g", "l.0", "b", None),
        ("l", "g", "l.1", "a", "w1"), ("l", "g", "l.1", "b", None),
    ]  # fmt: skip
    with pytest.raises(UsageError, match="no node here"):
        this_node()


# ---- L4: state loops


def test_l4_state_loop_runs_until_done(drive: Drive, rt: Runtime) -> None:
    up, down = one("up", lambda n: n + 3), one("down", lambda n: n - 2)
    loop = StateLoop(
        id="zigzag", graph=lambda n: up if n % 2 else down, bind=lambda n: n,
        update=lambda n, outputs: outputs["n"].unwrap(), done=lambda n: n <= 0,
    )  # fmt: skip
    seen = Seen()
    assert drive(rt, loop, 3, on_graph=seen) == 0
    assert [event.graph_id for event in seen if event.status == "started"] == [
        "up", "down", "down", "down",
    ]  # fmt: skip


def test_l4_default_limit_is_32(drive: Drive, rt: Runtime) -> None:
    ran: list[int] = []
    loop: StateLoop[int] = StateLoop(
        id="forever", graph=one("g", ran.append), update=lambda n, _: n + 1, done=lambda _: False
    )
    with pytest.raises(BudgetExceededError):
        drive(rt, loop, 0)
    assert ran == list(range(32))


# ---- L5: plans


@pytest.mark.parametrize("what", [None, 3, ECHO, "generator"])
def test_l5_only_steps_may_be_yielded(drive: Drive, rt: Runtime, what: Any) -> None:
    survived = []

    @plan(id="odd")
    def work(_: Any) -> Any:
        try:
            yield (x for x in "ab") if what == "generator" else what
        except Exception:
            survived.append("caught")
        survived.append("went on")

    seen = Seen()
    with pytest.raises(PlanError, match="odd"):
        drive(rt, work, on_graph=seen)
    assert survived == []
    assert seen == []


def test_l5_yield_without_from_works_as_well(drive: Drive, rt: Runtime) -> None:
    @plan
    def work(x: Any) -> Any:
        outputs = yield graph_step(ECHO, x)
        return outputs["n"].unwrap()

    assert drive(rt, work, 5) == 5


def test_l5_a_plan_may_return_without_a_step(drive: Drive, rt: Runtime) -> None:
    @plan
    def work(x: Any) -> Any:
        if x:
            yield from graph_step(ECHO)
        return "nothing to do"

    assert drive(rt, work, 0) == "nothing to do"


def test_l5_already_cancelled_runs_nothing(drive: Drive, rt: Runtime) -> None:
    ran = []
    token = CancelToken()
    token.cancel("too late")

    @plan
    def work(_: Any) -> Any:
        ran.append("plan")
        yield from graph_step(ECHO)

    seen = Seen()
    with pytest.raises(LoopCancelledError, match="too late"):
        drive(rt, work, cancel=token, on_graph=seen)
    assert ran == []
    assert seen == []


def test_l5_stop_iteration_of_a_plan_is_explained(drive: Drive, rt: Runtime) -> None:
    @plan
    def work(_: Any) -> Any:
        yield from graph_step(ECHO)
        return next(iter(()))

    with pytest.raises(PlanError, match="StopIteration"):
        drive(rt, work)


# ---- L6: sub-plans


def test_l6_sub_plans_share_everything(drive: Drive, rt: Runtime) -> None:
    @plan(max_iterations=1)
    def child(n: int) -> Any:
        if n == 0:
            return 0
        outputs = yield from graph_step(ECHO, n)
        rest = yield from child(n - 1)
        return unwrap(outputs["n"]) + rest

    @plan(max_iterations=5)
    def parent(n: int) -> Any:
        first = yield from child(n)
        second = yield from child(n)
        return first + second

    seen = Seen()
    assert drive(rt, parent, 2, on_graph=seen) == 6
    assert [event.iteration for event in seen if event.status == "started"] == [0, 1, 2, 3]
    with pytest.raises(BudgetExceededError):
        drive(rt, parent, 3)


# ---- L7: events


def test_l7_events_of_a_caught_failure(drive: Drive, rt: Runtime) -> None:
    @plan
    def work(_: Any) -> Any:
        yield from graph_step(one("a", lambda _: None))
        try:
            yield from graph_step(one("boom", boom(Boom("no"))))
        except Boom:
            yield from graph_step(one("a", lambda _: None))

    seen = Seen()
    drive(rt, work, on_graph=seen, loop_id="l")
    assert seen.short == [
        (0, "a", "started"), (0, "a", "completed"), (1, "boom", "started"),
        (1, "boom", "failed"), (2, "a", "started"), (2, "a", "completed"),
    ]  # fmt: skip
    assert {event.loop_id for event in seen} == {"l"}
    assert {event.nodes for event in seen} == {("n",)}
    assert seen[3].error == "Boom: no"


# ---- L8: budget


def test_l8_the_plan_may_return_after_its_last_graph(drive: Drive, rt: Runtime) -> None:
    @plan(max_iterations=4)
    def work(n: int) -> Any:
        for number in range(n):
            yield from graph_step(ECHO, number)
        return "done"

    assert drive(rt, work, 4) == "done"
    seen = Seen()
    with pytest.raises(BudgetExceededError, match="4 graphs"):
        drive(rt, work, 5, on_graph=seen)
    assert len(seen) == 8


def test_l8_swallowing_every_error_extends_nothing(drive: Drive, rt: Runtime) -> None:
    ran: list[int] = []

    def fail(n: int) -> None:
        ran.append(n)
        raise Boom

    @plan(max_iterations=4)
    def work(_: Any) -> Any:
        n = 0
        while True:
            n += 1
            try:
                yield from graph_step(one("g", fail), n)
            except Exception:
                pass

    with pytest.raises(BudgetExceededError):
        drive(rt, work)
    assert ran == [1, 2, 3, 4]


def test_l8_default_is_the_runtimes(drive: Drive) -> None:
    @plan
    def work(_: Any) -> Any:
        while True:
            yield from graph_step(ECHO)

    seen = Seen()
    with Runtime(max_iterations=3) as rt, pytest.raises(BudgetExceededError):
        drive(rt, work, on_graph=seen)
    assert len(seen) == 6


# ---- L9, L10, L11: errors and failures


def test_l9_an_error_is_raised_at_its_step_and_stays_the_same(drive: Drive, rt: Runtime) -> None:
    error, caught = Boom("x"), []

    @plan
    def work(catch: bool) -> Any:
        try:
            yield from graph_step(one("g", boom(error)))
        except Boom as raised:
            caught.append(raised)
            if not catch:
                raise
        return "went on"

    assert drive(rt, work, True) == "went on"
    with pytest.raises(Boom) as raised:
        drive(rt, work, False)
    assert raised.value is error
    assert caught == [error, error]


def test_l10_a_failed_result_is_data(drive: Drive, rt: Runtime) -> None:
    whole = (
        graph("g").node("a", lambda _: NodeResult.failed("NOT_FOUND", "no job"))
        .node("b", lambda deps: "ran", deps=["a"], bind=lambda _, deps: deps["a"].status)
    )  # fmt: skip

    @plan
    def work(_: Any) -> Any:
        return (yield from graph_step(whole))

    seen = Seen()
    outputs = drive(rt, work, on_graph=seen)
    assert seen.short[-1] == (0, "g", "completed")
    assert outputs["a"].status == "failed"
    assert outputs["b"].output == "ran"
    with pytest.raises(NodeFailedError, match="no job") as raised:
        unwrap(outputs["a"])
    assert raised.value.code == "NOT_FOUND"


def test_l10_reading_a_failed_output_in_a_binding_fails_the_graph(
    drive: Drive, rt: Runtime
) -> None:
    whole = graph("g").node("a", lambda _: NodeResult.failed("GONE")).node("b", print, deps=["a"])

    @plan
    def work(_: Any) -> Any:
        yield from graph_step(whole)

    with pytest.raises(NodeFailedError, match="GONE"):
        drive(rt, work)


def test_l11_named_conditions_are_caught_and_others_pass(drive: Drive, rt: Runtime) -> None:
    class ContextNotFound(Exception):
        pass

    @plan
    def work(error: Exception) -> Any:
        try:
            yield from graph_step(one("load", boom(error)))
        except ContextNotFound:
            yield from graph_step(ECHO)
            return "rebuilt"

    assert drive(rt, work, ContextNotFound()) == "rebuilt"
    with pytest.raises(ConnectionError):
        drive(rt, work, ConnectionError())


# ---- L12: two scopes of cancellation


def test_l12_a_cancelled_loop_cannot_be_swallowed(drive: Drive, rt: Runtime) -> None:
    token, went_on = CancelToken(), []

    def stop(_: Any) -> str:
        token.cancel("stop")
        return "the graph still completes"

    @plan
    def work(_: Any) -> Any:
        while True:
            try:
                yield from graph_step(one("g", stop))
            except Exception:
                pass
            went_on.append(1)

    seen = Seen()
    with pytest.raises(LoopCancelledError, match="stop"):
        drive(rt, work, cancel=token, on_graph=seen)
    assert went_on == []
    assert seen.short == [(0, "g", "started"), (0, "g", "completed")]


def test_l12_cancellation_is_seen_where_the_graph_failed(drive: Drive, rt: Runtime) -> None:
    token, error = CancelToken(), Boom("x")

    def stop(_: Any) -> None:
        token.cancel("stop")
        raise error

    @plan
    def work(_: Any) -> Any:
        try:
            yield from graph_step(one("g", stop))
        except Exception:
            yield from graph_step(ECHO)

    seen = Seen()
    with pytest.raises(LoopCancelledError) as raised:
        drive(rt, work, cancel=token, on_graph=seen)
    assert raised.value.__context__ is error
    assert seen.short == [(0, "g", "started"), (0, "g", "failed")]


def test_l12_a_loop_cancelled_between_its_steps(drive: Drive, rt: Runtime) -> None:
    token = CancelToken()

    @plan
    def work(_: Any) -> Any:
        yield from graph_step(ECHO)
        token.cancel()
        yield from graph_step(ECHO)

    seen = Seen()
    with pytest.raises(LoopCancelledError):
        drive(rt, work, cancel=token, on_graph=seen)
    assert len(seen) == 2


def test_l12_an_observer_may_cancel(drive: Drive, rt: Runtime) -> None:
    token = CancelToken()

    @plan
    def work(_: Any) -> Any:
        yield from graph_step(ECHO)
        yield from graph_step(ECHO)

    with pytest.raises(LoopCancelledError):
        drive(rt, work, cancel=token, on_graph=lambda e: e.status == "completed" and token.cancel())


def test_l12_a_cancelled_step_fails_alone(drive: Drive, rt: Runtime) -> None:
    token = CancelToken()

    def stop(_: Any) -> None:
        token.cancel("not this one")

    @plan
    def work(_: Any) -> Any:
        try:
            yield from graph_step(one("g", stop), cancel=token)
        except StepTimeoutError:
            return "a time-out"
        except StepCancelledError as error:
            outputs = yield from graph_step(one("record", lambda text: text), str(error))
            return unwrap(outputs["n"])

    seen = Seen()
    assert "not this one" in drive(rt, work, on_graph=seen)
    assert [status for *_, status in seen.short] == ["started", "failed", "started", "completed"]


@pytest.mark.parametrize("whose", ["loop", "step"])
def test_l12_no_node_begins_after_a_cancellation(drive: Drive, rt: Runtime, whose: str) -> None:
    tokens, ran = {"loop": CancelToken(), "step": CancelToken()}, []
    chain = one("g", lambda _: tokens[whose].cancel()).node("later", ran.append, deps=["n"])

    @plan
    def work(_: Any) -> Any:
        yield from graph_step(chain, cancel=tokens["step"])

    seen = Seen()
    with pytest.raises(LoopCancelledError if whose == "loop" else StepCancelledError):
        drive(rt, work, cancel=tokens["loop"], on_graph=seen)
    assert ran == []
    assert seen.short == [(0, "g", "started"), (0, "g", "failed")]


def test_l12_a_step_that_is_cancelled_before_it_begins_costs_one(drive: Drive, rt: Runtime) -> None:
    token, ran = CancelToken(), []
    token.cancel()

    @plan(max_iterations=1)
    def work(_: Any) -> Any:
        try:
            yield from graph_step(one("g", ran.append).node("m", ran.append), cancel=token)
        except StepCancelledError:
            yield from graph_step(ECHO)

    with pytest.raises(BudgetExceededError):
        drive(rt, work)
    assert ran == []


def test_l12_a_step_that_takes_too_long_fails_alone(drive: Drive, rt: Runtime) -> None:
    import asyncio

    ended = []

    async def long(_: Any) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append("cut off")

    @plan
    def work(_: Any) -> Any:
        try:
            yield from graph_step(one("g", long).node("later", ended.append, ["n"]), seconds=0.02)
        except StepTimeoutError:
            return (yield from graph_step(ECHO, "recorded"))["n"].unwrap()

    assert drive(rt, work) == "recorded"
    assert ended in (["cut off"], [])  # on a busy machine its time is over before it begins


def test_l12_a_plain_node_may_look(drive: Drive, rt: Runtime) -> None:
    def poll(_: Any) -> None:
        while True:
            this_node().check()

    @plan
    def work(_: Any) -> Any:
        try:
            yield from graph_step(one("g", poll), seconds=0.02)
        except StepTimeoutError:
            return "noticed"

    assert drive(rt, work) == "noticed"


def test_l12_the_loops_scope_holds_beside_the_steps(drive: Drive, rt: Runtime) -> None:
    loop_token, step_token = CancelToken(), CancelToken()

    @plan
    def work(_: Any) -> Any:
        try:
            yield from graph_step(
                one("g", lambda _: loop_token.cancel("all")), cancel=step_token, seconds=60
            )
        except StepCancelledError:
            return "swallowed"

    with pytest.raises(LoopCancelledError, match="all"):
        drive(rt, work, cancel=loop_token)


def test_l12_a_loop_may_have_a_deadline(drive: Drive, rt: Runtime) -> None:
    import asyncio

    async def long(_: Any) -> None:
        await asyncio.sleep(60)

    @plan
    def work(_: Any) -> Any:
        yield from graph_step(one("g", long).node("m", long))

    with pytest.raises(LoopCancelledError, match="time is over"):
        drive(rt, work, cancel=CancelToken(seconds=0.02))


# ---- L13: endings


@pytest.mark.parametrize("how", ["return", "error", "budget", "cancel", "wrong", "observer"])
def test_l13_cleanup_runs_once_and_its_graph_does_not(drive: Drive, rt: Runtime, how: str) -> None:
    cleaned, compensated = [], []
    token = CancelToken()

    @plan(max_iterations=1)
    def work(_: Any) -> Any:
        try:
            yield from graph_step(ECHO)
            if how == "error":
                raise Boom
            if how == "budget":
                yield from graph_step(ECHO)
            if how == "wrong":
                yield "nothing"
        finally:
            cleaned.append(1)
            if how != "return":
                yield from graph_step(one("undo", compensated.append), 1)

    def observe(event: Any) -> None:
        if how == "cancel":
            token.cancel()
        if how == "observer":
            raise Boom

    expected: dict[str, Any] = {
        "error": BudgetExceededError, "budget": BudgetExceededError, "cancel": LoopCancelledError,
        "wrong": PlanError, "observer": ObserverError,
    }  # fmt: skip
    if how == "return":
        drive(rt, work)
    else:  # after an error of the plan's own the step in `finally` is an ordinary one: no budget
        with pytest.raises(expected[how]):
            drive(rt, work, cancel=token, on_graph=observe)
    assert cleaned == [1]
    assert compensated == []


def test_l13_cleanup_never_hides_the_first_error(drive: Drive, rt: Runtime) -> None:
    @plan(max_iterations=1)
    def work(kind: Any) -> Any:
        try:
            yield from graph_step(ECHO)
            yield from graph_step(ECHO)
        finally:
            raise kind("in cleanup")

    for kind in (Boom, SystemExit):
        with pytest.raises(BudgetExceededError) as raised:
            drive(rt, work, kind)
        assert kind.__name__ in "".join(raised.value.__notes__)


def test_l13_all_cleanup_runs_and_no_graph_of_it(drive: Drive, rt: Runtime) -> None:
    cleaned: list[str] = []
    ran: list[Any] = []

    @plan(max_iterations=1)
    def work(_: Any) -> Any:
        try:
            try:
                yield from graph_step(ECHO)
                yield from graph_step(ECHO)
            finally:
                cleaned.append("inner")
                yield from graph_step(one("undo", ran.append))
        finally:
            cleaned.append("outer")
            yield from graph_step(one("undo", ran.append))

    with pytest.raises(BudgetExceededError) as raised:
        drive(rt, work)
    assert ["was not run" in note for note in raised.value.__notes__] == [True, True]
    assert cleaned == ["inner", "outer"]
    assert ran == []


def test_l13_a_plan_that_will_not_close_is_left(drive: Drive, rt: Runtime) -> None:
    ran: list[Any] = []
    left: list[Any] = []
    is_tested = True

    @plan(max_iterations=2)
    def work(_: Any) -> Any:
        while is_tested:
            try:
                yield from graph_step(one("g", ran.append))
            except BaseException:
                pass

    def keep(value: Any) -> Any:
        left.append(work.function(value))
        return left[0]

    with pytest.raises(BudgetExceededError) as raised:
        drive(rt, LoopPlan("work", keep, 2))
    assert "left as it is" in raised.value.__notes__[-1]
    assert len(ran) == 2
    is_tested = False
    left[0].close()


# ---- L14: observers


@pytest.mark.parametrize("status", ["started", "completed", "failed"])
def test_l14_an_observer_that_raises_ends_the_loop(drive: Drive, rt: Runtime, status: str) -> None:
    ran, error, went_on = [], Boom("of the graph"), []
    observers, told = KeyError("of the observer"), []

    def work_of(_: Any) -> None:
        ran.append(1)
        if status == "failed":
            raise error

    @plan
    def work(_: Any) -> Any:
        try:
            yield from graph_step(one("g", work_of))
        except Exception:
            went_on.append(1)
        went_on.append(1)

    def observe(event: Any) -> None:
        told.append(event.status)
        if event.status == status:
            raise observers

    with pytest.raises(ObserverError) as raised:
        drive(rt, work, on_graph=observe)
    assert raised.value.__cause__ is observers
    assert told == (["started"] if status == "started" else ["started", status])
    assert ran == ([] if status == "started" else [1])
    assert went_on == []
    if status == "failed":
        assert raised.value.graph_error is error
        assert observers.__context__ is error


# ---- L15: no effects


def test_l15_a_plan_cannot_run_a_loop(drive: Drive, rt: Runtime) -> None:
    @plan
    def inner(_: Any) -> Any:
        yield from graph_step(ECHO)

    @plan
    def work(how: str) -> Any:
        yield from graph_step(ECHO)
        getattr(rt, how)(inner) if how != "aloop" else rt.aloop(inner).send(None)

    for how in ("loop", "aloop", "start"):
        with pytest.raises(ReentryError, match="work"):
            drive(rt, work, how)


def test_l15_a_node_may(drive: Drive, rt: Runtime) -> None:
    @plan
    def inner(n: int) -> Any:
        return (yield from graph_step(ECHO, n + 1))["n"].unwrap()

    @plan
    def work(n: int) -> Any:
        return (yield from graph_step(one("g", lambda n: rt.loop(inner, n)), n))["n"].unwrap()

    assert drive(rt, work, 1) == 2


# ---- L17: bindings


def test_l17_a_binding_chooses_the_worker(drive: Drive) -> None:
    workers = [Worker(name, {"NAME": lambda _, name=name: name}) for name in ("w1", "w2")]
    names = graph("g").node("a", "NAME").node("b", "NAME")

    @plan
    def work(_: Any) -> Any:
        return (yield from graph_step(names))

    with Runtime(workers) as rt:
        outputs = drive(rt, work, bindings={"g": {"b": "w2"}, "elsewhere": {"x": "w1"}})
    assert [result.output for result in outputs.values()] == ["w1", "w2"]


@pytest.mark.parametrize(
    "bindings", [{"g": {"z": "w1"}}, {"g": {"b": "w1"}}, {"g": {"b": "w9"}}, {"g": {"f": "w1"}}]
)
def test_l17_bad_bindings_make_no_call(drive: Drive, bindings: Any) -> None:
    calls: list[Any] = []
    workers = [Worker("w1", {"A": calls.append}), Worker("w2", {"B": calls.append})]
    whole = graph("g").node("a", "A").node("b", "B").node("f", calls.append)

    @plan
    def work(_: Any) -> Any:
        try:
            yield from graph_step(whole)
        except Exception:
            calls.append("delivered")

    seen = Seen()
    with Runtime(workers) as rt, pytest.raises(GraphBindingError):
        drive(rt, work, bindings=bindings, on_graph=seen)
    assert calls == []
    assert seen == []


def test_l17_work_that_nobody_does(drive: Drive, rt: Runtime) -> None:
    @plan
    def work(_: Any) -> Any:
        yield from graph_step(graph("g").node("a", "NOBODY"))

    with pytest.raises(GraphBindingError, match="NOBODY"):
        drive(rt, work)


def test_l17_nothing_waits_for_a_busy_worker(drive: Drive) -> None:
    @plan
    def work(name: str) -> Any:
        return (yield from graph_step(graph("g").node("a", name)))["a"].unwrap()

    does = {"PLAIN": lambda _: "done", "NESTED": lambda _: rt.loop(work, "PLAIN")}
    with Runtime([Worker("w", does, capacity=1)]) as rt:
        with pytest.raises(WorkerBusyError, match="takes 1"):
            drive(rt, work, "NESTED")
        assert drive(rt, work, "PLAIN") == "done"


# ---- nodes that try to leave


@pytest.mark.parametrize("kind", [SystemExit, StopIteration, GeneratorExit])
@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("nodes", [1, 2])
def test_a_node_that_leaves_fails(
    drive: Drive, rt: Runtime, kind: type[BaseException], asynchronous: bool, nodes: int
) -> None:
    async def leave(_: Any) -> None:
        raise kind

    whole = one("g", leave if asynchronous else boom(kind()))
    if nodes == 2:
        whole = whole.node("m", lambda _: None)

    @plan
    def work(_: Any) -> Any:
        try:
            yield from graph_step(whole)
        except Exception as error:
            return str(error)

    assert kind.__name__ in drive(rt, work)


def test_a_node_that_cancels_itself_fails(drive: Drive, rt: Runtime) -> None:
    import asyncio

    async def leave(_: Any) -> None:
        raise asyncio.CancelledError

    @plan
    def work(_: Any) -> Any:
        try:
            yield from graph_step(one("g", leave))
        except SagError as error:
            return str(error)

    assert "cancelled itself" in drive(rt, work)


def test_a_forgotten_async_def_is_named(drive: Drive, rt: Runtime) -> None:
    async def work_of(_: Any) -> None:
        pass

    @plan
    def work(_: Any) -> Any:
        yield from graph_step(one("g", lambda x: work_of(x)))

    with pytest.raises(UsageError, match="async def"):
        drive(rt, work)
