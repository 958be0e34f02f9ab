"""What is refused where loops are defined, and what the log is told of them."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from sag_research.errors import RunNotFoundError, UsageError
from sag_research.log import SQLiteEventStore
from sag_research.model import Run
from sag_research.runtime import (
    BudgetExceededError,
    CancelToken,
    CheckpointMismatchError,
    GraphBindingError,
    LogCheckpoint,
    LoopCancelledError,
    ObserverError,
    Runtime,
    StateLoop,
    Worker,
    graph,
    graph_step,
    plan,
)
from tests.runtime.loops import ECHO, Drive, boom, drive, one, store

__all__ = ["drive", "store"]


@plan(max_iterations=3)
def climb(n: int) -> Any:
    """Add one until it is ten; a failing graph on the way is caught."""
    while n < 10:
        try:
            graph_ = one("up", boom(KeyError("slip")) if n == 8 else lambda n: n + 1)
            n = (yield from graph_step(graph_, n))["n"].unwrap()
        except KeyError:
            n = 10
    return n


# ---- definitions


def test_l1_graphs_do_not_change() -> None:
    first = graph("g").node("a", "A")
    second = first.node("b", "B", deps=["a"])
    assert list(first.nodes) == ["a"]
    assert list(second.nodes) == ["a", "b"]
    with pytest.raises(TypeError):
        first.nodes["b"] = second.nodes["b"]  # type: ignore[index]


@pytest.mark.parametrize(
    ("id", "work", "deps", "said"),
    [
        ("a", "A", [], "already"),
        ("", "A", [], "named ''"),
        ("  ", "A", [], "named"),
        (3, "A", [], "named 3"),
        ("b", "", [], "work"),
        ("b", "A", ["b"], "no such node yet"),
        ("b", "A", ["a", "z"], "'z'"),
        ("b", "A", "a", "no list"),
        ("b", lambda: (yield), [], "generator"),
    ],
)
def test_l1_bad_nodes_are_refused_at_build_time(id: Any, work: Any, deps: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        graph("g").node("a", "A").node(id, work, deps)


@pytest.mark.parametrize("options", [{"seconds": 0}, {"seconds": True}, {"cancel": "now"}])
def test_bad_step_options_are_refused(options: Any) -> None:
    with pytest.raises(UsageError):
        graph_step(ECHO, **options)
    with pytest.raises(UsageError, match="no graph"):
        graph_step("ECHO")  # type: ignore[arg-type]


def test_l5_bad_plans_are_refused_before_they_are_made() -> None:
    called: list[int] = []

    def steps(_: Any) -> Any:
        called.append(1)
        yield

    async def asynchronous(_: Any) -> Any:
        yield

    for options in ({"id": " "}, {"max_iterations": 0}, {"max_iterations": True}):
        with pytest.raises(UsageError):
            plan(**options)(steps)  # type: ignore[call-overload]
    with pytest.raises(UsageError, match="asynchronous"):
        plan(asynchronous)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="yields nothing"):
        plan(lambda _: None)  # type: ignore[arg-type,return-value]
    with Runtime() as rt, pytest.raises(UsageError, match="no loop"):
        rt.loop(steps)  # type: ignore[arg-type]
    with pytest.raises(UsageError):
        StateLoop(id="", graph=ECHO, update=lambda s, _: s, done=bool)
    with pytest.raises(UsageError):
        StateLoop(id="l", graph=ECHO, update=lambda s, _: s, done=bool, max_iterations=0)
    assert called == []


def test_bad_runtimes_are_refused() -> None:
    for options in ({"concurrency": 0}, {"max_iterations": 0}):
        with pytest.raises(UsageError):
            Runtime(**options)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="two workers"):
        Runtime([Worker("w", {}), Worker("w", {})])
    with pytest.raises(UsageError):
        Worker("w", {}, capacity=0)
    with pytest.raises(UsageError):
        CancelToken(0)


def test_bad_options_are_refused(drive: Drive) -> None:
    async def observe(_: Any) -> None:
        pass

    with Runtime() as rt:
        with pytest.raises(UsageError, match="on_grpah"):
            drive(rt, climb, 9, on_grpah=print)
        with pytest.raises(UsageError, match="asynchronous"):
            drive(rt, climb, 9, on_graph=observe)
        with pytest.raises(UsageError, match="named"):
            drive(rt, climb, 9, loop_id="")


def test_l17_an_unknown_worker_is_refused_before_the_plan_begins(drive: Drive) -> None:
    with Runtime() as rt, pytest.raises(GraphBindingError, match="no such worker"):
        drive(rt, climb, 9, bindings={"never reached": {"n": "w9"}})


# ---- the log


def written(store: SQLiteEventStore, run_id: str) -> list[tuple[Any, ...]]:
    return [(e.type, e.cause, e.payload.get("iteration")) for e in store.read(run_id)]


def test_a_loop_is_in_the_log(drive: Drive, store: SQLiteEventStore) -> None:
    with Runtime(store=store) as rt:
        assert drive(rt, climb, 7, loop_id="l1") == 10
    assert written(store, "l1") == [
        ("run.created", None, None), ("graph.started", None, 0), ("graph.completed", 2, 0),
        ("graph.started", None, 1), ("graph.failed", 4, 1), ("run.completed", None, None),
    ]  # fmt: skip
    failed = next(iter(store.read("l1", 5, 5)))
    assert failed.payload == {
        "plan": "climb", "iteration": 1, "graph": "up", "nodes": ["n"],
        "error": {"class": "builtins.KeyError", "message": "'slip'"},
    }  # fmt: skip
    assert (failed.actor, failed.frame) == ("runtime", "loop:l1")


def test_equal_loops_have_equal_digests(drive: Drive, store: SQLiteEventStore) -> None:
    with Runtime(store=store) as rt:
        for loop_id in ("l1", "l2"):
            drive(rt, climb, 7, loop_id=loop_id)
    assert store.head("l1").digest == store.head("l2").digest


def test_a_loop_may_write_into_a_run(drive: Drive, store: SQLiteEventStore) -> None:
    store.create_run(Run(run_id="r1"))
    with Runtime(store=store) as rt:
        drive(rt, climb, 9, run_id="r1")
        with pytest.raises(RunNotFoundError):
            drive(rt, climb, 9, run_id="r9")
    assert [e.type for e in store.read("r1", 2)] == ["graph.started", "graph.completed"]
    with Runtime() as rt, pytest.raises(UsageError, match="no store"):
        drive(rt, climb, 9, run_id="r1")


def test_l8_the_log_says_that_the_budget_is_exhausted(
    drive: Drive, store: SQLiteEventStore
) -> None:
    with Runtime(store=store) as rt, pytest.raises(BudgetExceededError):
        drive(rt, climb, 0, loop_id="l1")
    *_, exhausted, end = store.read("l1")
    assert exhausted.type == "budget.exhausted"
    assert exhausted.payload == {
        "budget": "iterations", "limit": 3, "plan": "climb", "graph": "up",
    }  # fmt: skip
    assert (end.type, end.payload["exit_status"]) == ("run.failed", "iterations exhausted")
    assert end.cause == exhausted.position


def test_l12_the_log_says_that_the_loop_was_cancelled(
    drive: Drive, store: SQLiteEventStore
) -> None:
    token = CancelToken()
    token.cancel("enough")
    with Runtime(store=store) as rt, pytest.raises(LoopCancelledError):
        drive(rt, climb, 0, loop_id="l1", cancel=token)
    end = list(store.read("l1"))[-1]
    assert end.type == "run.cancelled"
    assert end.payload == {"exit_status": "cancelled", "reason": "enough"}


def test_l14_each_graph_that_began_has_an_end_in_the_log(
    drive: Drive, store: SQLiteEventStore
) -> None:
    with Runtime(store=store) as rt, pytest.raises(ObserverError):
        drive(rt, climb, 0, loop_id="l1", on_graph=boom(KeyError("observer")))
    assert [e.type for e in store.read("l1", 2)] == ["graph.started", "graph.failed", "run.failed"]


def test_hostile_errors_are_written_down(drive: Drive, store: SQLiteEventStore) -> None:
    class Hostile(Exception):
        def __str__(self) -> str:
            raise ValueError

    @plan
    def work(error: Exception) -> Any:
        yield from graph_step(one("g", boom(error)))

    with Runtime(store=store) as rt:
        for error in (Hostile(), KeyError("\ud800<b>\x00")):
            with pytest.raises(type(error)):
                drive(rt, work, error)
    assert store.verify().ok


# ---- L18: checkpoints

COUNTER = """
import os, signal, sys
from sag_research.log import SQLiteEventStore
from sag_research.runtime import Graph, LogCheckpoint, Runtime, StateLoop

def add(n):
    if n == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
    return n + 1

loop = StateLoop(
    id="count", graph=Graph("add").node("n", add),
    update=lambda _, outputs: outputs["n"].unwrap(), done=lambda n: n >= 6,
)
with SQLiteEventStore(sys.argv[1]) as store, Runtime(store=store) as rt:
    result = rt.loop(loop, 0, run_id="r1", checkpoint=LogCheckpoint(store, "r1"))
sys.exit(result)
"""


def test_l12_a_signal_may_cancel_a_token_whatever_its_thread_is_doing() -> None:
    token = CancelToken()

    def interrupted() -> None:
        with token._lock:  # where a handler of a signal may find this thread
            token.cancel("Ctrl-C")

    thread = threading.Thread(target=interrupted, daemon=True)
    thread.start()
    thread.join(30)
    assert token.reason == "Ctrl-C"


@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGKILL")
def test_l18_a_killed_process_goes_on_in_another(tmp_path: Path) -> None:
    path = tmp_path / "log.sqlite"
    with SQLiteEventStore(path) as store:
        store.create_run(Run(run_id="r1"))
    ends = [
        subprocess.run([sys.executable, "-c", COUNTER, str(path), str(die_at)], timeout=60)
        for die_at in (2, 5, 99)
    ]
    assert [end.returncode for end in ends] == [-signal.SIGKILL, -signal.SIGKILL, 6]
    with SQLiteEventStore(path) as store:
        started = store.read("r1", types=("graph.started",))
        completed = store.read("r1", types=("graph.completed",))
        assert [event.payload["iteration"] for event in started] == [0, 1, 2, 2, 3, 4, 5, 5]
        assert [event.payload["iteration"] for event in completed] == list(range(6))
        assert store.verify().ok


def up_to(limit: int, fail_at: int | None = None, **options: Any) -> StateLoop[Any]:
    def add(n: int) -> int:
        if n == fail_at:
            raise ConnectionError
        return n + 1

    return StateLoop(
        id="count", graph=one("add", add), bind=lambda state: state["n"],
        update=lambda _, outputs: {"n": outputs["n"].unwrap()},
        done=lambda state: state["n"] >= limit, **options,
    )  # fmt: skip


def test_l18_a_state_loop_goes_on_from_its_checkpoint(
    drive: Drive, store: SQLiteEventStore
) -> None:
    store.create_run(Run(run_id="r1"))
    kept = LogCheckpoint(store, "r1")
    with Runtime() as rt:
        with pytest.raises(ConnectionError):
            drive(rt, up_to(6, fail_at=4), {"n": 0}, checkpoint=kept)
        seen: list[Any] = []
        assert drive(rt, up_to(6), {"n": 0}, checkpoint=kept, on_graph=seen.append) == {"n": 6}
        assert [event.iteration for event in seen if event.status == "started"] == [4, 5]
        seen.clear()
        assert drive(rt, up_to(6), {"n": 0}, checkpoint=kept, on_graph=seen.append) == {"n": 6}
        assert seen == []
    saved = [e.payload for e in store.read("r1", types=("loop.checkpointed",))]
    assert [(s["iteration"], s["state"], s["completed"]) for s in saved] == [
        (n, {"n": n}, n == 6) for n in range(1, 7)
    ]


def test_l18_resuming_grants_no_new_budget(drive: Drive, store: SQLiteEventStore) -> None:
    store.create_run(Run(run_id="r1"))
    kept = LogCheckpoint(store, "r1")
    with Runtime() as rt:
        for _ in range(2):
            with pytest.raises(BudgetExceededError):
                drive(rt, up_to(99, max_iterations=5), {"n": 0}, checkpoint=kept)
    assert len(list(store.read("r1", types=("loop.checkpointed",)))) == 5


def test_l18_another_input_or_version_is_refused(drive: Drive, store: SQLiteEventStore) -> None:
    store.create_run(Run(run_id="r1"))
    kept = LogCheckpoint(store, "r1")
    with Runtime() as rt:
        drive(rt, up_to(2), {"n": 0}, checkpoint=kept)
        with pytest.raises(CheckpointMismatchError, match="input"):
            drive(rt, up_to(2), {"n": 1}, checkpoint=kept)
        with pytest.raises(CheckpointMismatchError, match="version"):
            drive(rt, up_to(2, version="2"), {"n": 0}, checkpoint=kept)


@pytest.mark.parametrize(
    "wrong", [{"iteration": "x"}, {"iteration": -5}, {"completed": None}, None]
)
def test_l18_a_damaged_checkpoint_is_refused(
    drive: Drive, store: SQLiteEventStore, wrong: dict[str, Any] | None
) -> None:
    store.create_run(Run(run_id="r1"))
    kept: Any = LogCheckpoint(store, "r1")
    with Runtime() as rt:
        drive(rt, up_to(2), {"n": 0}, checkpoint=kept)
        whole = kept.load(up_to(2).id)
        kept.load = lambda loop: [] if wrong is None else {**whole, **wrong}
        with pytest.raises(CheckpointMismatchError, match="is damaged"):
            drive(rt, up_to(2), {"n": 0}, checkpoint=kept)


def test_l4_what_selects_no_graph_is_said(drive: Drive) -> None:
    wrong: Any = lambda state: "no graph"  # noqa: E731
    loop = StateLoop(id="s", graph=wrong, update=lambda n, _: n, done=lambda n: n > 5)
    with Runtime() as rt, pytest.raises(UsageError, match="'no graph' is no graph"):
        drive(rt, loop, 0)


def test_l18_a_plan_has_no_checkpoint(drive: Drive, store: SQLiteEventStore) -> None:
    store.create_run(Run(run_id="r1"))
    with Runtime() as rt, pytest.raises(UsageError, match="cannot be checkpointed"):
        drive(rt, climb, 0, checkpoint=LogCheckpoint(store, "r1"))
