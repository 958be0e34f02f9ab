"""Graphs run by themselves, and graphs that go on where another process left them."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sag_research.errors import BadPayloadError, UsageError
from sag_research.log import SQLiteEventStore
from sag_research.model import Run
from sag_research.runtime import (
    BudgetExceededError,
    CancelToken,
    CheckpointMismatchError,
    Graph,
    LogCheckpoint,
    LoopCancelledError,
    NodeResult,
    ReentryError,
    Runtime,
    StepCancelledError,
    StepTimeoutError,
    UncertainError,
    Worker,
    graph,
    graph_step,
    plan,
)
from tests.runtime.loops import ECHO, Seen, boom, one

PATIENCE = 120
Go = Callable[..., Mapping[str, NodeResult[Any]]]


def plainly(rt: Runtime, graph: Graph, input: Any = None, **options: Any) -> Any:
    return rt.run(graph, input, **options)


def awaiting(rt: Runtime, graph: Graph, input: Any = None, **options: Any) -> Any:
    return asyncio.run(rt.arun(graph, input, **options))


def in_a_plan(rt: Runtime, graph: Graph, input: Any = None, **options: Any) -> Any:
    @plan
    def work(_: Any) -> Any:
        return (yield from graph_step(graph, input, **options))

    return rt.loop(work)


@pytest.fixture(params=[plainly, awaiting, in_a_plan])
def go(request: pytest.FixtureRequest) -> Go:
    """One of three ways to run a graph."""
    return request.param  # type: ignore[no-any-return]


@pytest.fixture(params=[plainly, awaiting])
def run(request: pytest.FixtureRequest) -> Go:
    return request.param  # type: ignore[no-any-return]


class Kept:
    """A checkpoint in memory that keeps all that was ever saved."""

    def __init__(self) -> None:
        self.saved: list[tuple[str, dict[str, Any]]] = []

    def load(self, loop: str) -> Mapping[str, Any] | None:
        return next((dict(record) for name, record in self.saved[::-1] if name == loop), None)

    def save(self, loop: str, record: Mapping[str, Any]) -> None:
        self.saved.append((loop, dict(record)))

    @property
    def waves(self) -> list[tuple[list[str], list[str], bool]]:
        """What was done, what was uncertain, and whether it was all."""
        return [(sorted(r["completed"]), r["uncertain"], r["whole"]) for _, r in self.saved]

    def cut(self, count: int) -> Kept:
        """What there would be if the process had died after so many saves."""
        other = Kept()
        other.saved = self.saved[:count]
        return other


class Ran(list[str]):
    """Nodes that note that they ran."""

    def node(self, name: str, value: Any = None) -> Callable[[Any], Any]:
        def work(given: Any) -> Any:
            self.append(name)
            return name if value is None else value

        return work


def diamond(ran: Ran, d: Any = None) -> Graph:
    """``a``, then ``b`` and ``c``, then ``d``."""
    made = graph("diamond").node("a", ran.node("a"))
    made = made.node("b", ran.node("b"), ["a"]).node("c", ran.node("c"), ["a"])
    return made.node("d", d or ran.node("d"), ["b", "c"])


# ---- Runtime.run


def test_l18_a_graph_is_run_by_itself(run: Go) -> None:
    seen = Seen()
    with Runtime([Worker("w", {"TWICE": lambda n: 2 * n})]) as rt:
        outputs = run(rt, graph("g").node("n", "TWICE"), 21, on_graph=seen)
    assert outputs["n"].output == 42
    assert seen.short == [(0, "g", "started"), (0, "g", "completed")]


def test_l18_what_a_node_raises_is_raised(run: Go) -> None:
    error = ValueError("no luck")
    with Runtime() as rt, pytest.raises(ValueError, match="no luck") as caught:
        run(rt, one("g", boom(error)))
    assert caught.value is error


def test_l15_a_plan_cannot_run_a_graph_itself() -> None:
    with Runtime() as rt:

        @plan
        def work(_: Any) -> Any:
            rt.run(ECHO, 1)
            yield from graph_step(ECHO)

        with pytest.raises(ReentryError):
            rt.loop(work)


def test_l18_options_of_a_graph_by_itself(run: Go) -> None:
    token = CancelToken()
    token.cancel()

    async def wait(_: Any) -> None:
        await asyncio.sleep(PATIENCE)

    with Runtime() as rt:
        with pytest.raises(LoopCancelledError):
            run(rt, ECHO, cancel=token)
        with pytest.raises(StepTimeoutError):
            run(rt, one("g", wait), seconds=0.02)
        with pytest.raises(UsageError, match="no option 'steps'"):
            run(rt, ECHO, steps=3)
        with pytest.raises(UsageError, match="is no graph"):
            run(rt, "g")  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="are for checkpoints"):
            run(rt, ECHO, version="2")


def test_l18_a_graph_by_itself_is_written_down(run: Go) -> None:
    with SQLiteEventStore(":memory:") as store, Runtime(store=store) as rt:
        run(rt, ECHO, 1, loop_id="l1")
        assert [event.type for event in store.read("l1")] == [
            "run.created", "graph.started", "graph.completed", "run.completed",
        ]  # fmt: skip


# ---- waves


def test_l18_a_graph_is_kept_after_each_wave(go: Go) -> None:
    kept, ran = Kept(), Ran()
    with Runtime() as rt:
        outputs = go(rt, diamond(ran), 1, checkpoint=kept)
    assert kept.waves == [
        ([], ["a"], False),
        (["a"], ["b", "c"], False),
        (["a", "b", "c"], ["d"], False),
        (["a", "b", "c", "d"], [], True),
    ]
    assert {name for name, _ in kept.saved} == {"graph:diamond"}
    assert list(outputs) == ["a", "b", "c", "d"]


def test_l18_nothing_of_a_wave_begins_before_all_of_the_last_has_ended() -> None:
    kept, order, quick = Kept(), list[str](), threading.Event()

    def note(name: str) -> Callable[[Any], str]:
        def work(_: Any) -> str:
            if name == "slow":
                quick.wait(PATIENCE)
                time.sleep(0.02)  # what waits for the quick one alone could begin by now
            order.append(name)
            if name == "quick":
                quick.set()
            return name

        return work

    made = graph("g").node("slow", note("slow")).node("quick", note("quick"))
    made = made.node("after", note("after"), ["quick"])
    with Runtime() as rt:
        rt.run(made, checkpoint=kept)
    assert order == ["quick", "slow", "after"]


def test_l18_a_graph_that_is_done_runs_nothing(go: Go) -> None:
    kept, ran = Kept(), Ran()
    with Runtime() as rt:
        first = go(rt, diamond(ran), 1, checkpoint=kept)
        count = len(kept.saved)
        again = go(rt, diamond(ran), 1, checkpoint=kept)
    assert ran == ["a", *sorted(ran[1:3]), "d"]
    assert len(ran) == 4
    assert again == first
    assert len(kept.saved) == count


@pytest.mark.parametrize(
    "wrong",
    [
        {"uncertain": None}, {"whole": None}, {"completed": {}}, {"completed": {"a": 5}},
        {"completed": {"stranger": {"value": 1}}, "whole": False}, {"uncertain": ["stranger"]},
        None,
    ],
)  # fmt: skip
def test_l18_a_damaged_checkpoint_is_refused(go: Go, wrong: dict[str, Any] | None) -> None:
    kept: Any = Kept()
    ran = Ran()
    with Runtime() as rt:
        go(rt, diamond(ran), 1, checkpoint=kept)
        _, whole = kept.saved[-1]
        kept.load = lambda loop: [] if wrong is None else whole | wrong
        with pytest.raises(CheckpointMismatchError, match="is damaged"):
            go(rt, diamond(ran), 1, checkpoint=kept)
    assert len(ran) == 4


def test_l18_a_failed_node_is_run_again_and_the_others_are_not(go: Go) -> None:
    kept, ran = Kept(), Ran()
    with Runtime() as rt:
        with pytest.raises(ValueError, match="no luck"):
            go(rt, diamond(ran, boom(ValueError("no luck"))), 1, checkpoint=kept)
        assert kept.waves[-1] == (["a", "b", "c"], [], False)
        kept_shape = kept.saved[-1][1]["shape"]
        kept.saved[-1][1]["shape"] = shape_of(diamond(ran))
        assert kept_shape != kept.saved[-1][1]["shape"]  # its work is another function
        outputs = go(rt, diamond(ran), 1, checkpoint=kept)
    assert sorted(ran) == ["a", "b", "c", "d"]
    assert outputs["d"].output == "d"


def shape_of(made: Graph) -> str:
    from sag_research.runtime._loop_waves import fingerprints

    return fingerprints(made, 1, "")["shape"]


def test_l18_a_reported_failure_is_kept_as_data(go: Go) -> None:
    kept = Kept()
    made = one("g", lambda _: NodeResult.failed("NOT_FOUND", "no such job"))
    with Runtime() as rt:
        first = go(rt, made, checkpoint=kept)
        again = go(rt, made, checkpoint=kept)
    assert again["n"] == first["n"] == NodeResult.failed("NOT_FOUND", "no such job")


@pytest.mark.parametrize("how", ["shape", "deps", "input", "version", "bind"])
def test_l18_what_is_not_the_same_is_refused(go: Go, how: str) -> None:
    kept, ran = Kept(), Ran()
    made, options = diamond(ran), {"input": 1, "version": "1"}
    with Runtime() as rt:
        go(rt, made, checkpoint=kept, **options)
        ran.clear()
        if how == "shape":
            made = made.node("e", ran.node("e"))
        elif how == "deps":
            made = graph("diamond").node("a", ran.node("a")).node("b", ran.node("b"))
            made = made.node("c", ran.node("c"), ["a"]).node("d", ran.node("d"), ["b", "c"])
        elif how == "bind":
            made = graph("diamond").node("a", ran.node("a"), bind=lambda given, _: given)
        else:
            options[how] = "other"
        said = how if how in ("input", "version") else "shape"
        with pytest.raises(CheckpointMismatchError, match=f"of another {said}"):
            go(rt, made, checkpoint=kept, **options)
    assert ran == []


def test_l18_an_input_that_cannot_be_compared_is_refused(go: Go) -> None:
    with Runtime() as rt, pytest.raises(BadPayloadError):
        go(rt, ECHO, object(), checkpoint=Kept())


# ---- what is uncertain


@pytest.mark.parametrize(("saves", "uncertain"), [(1, ("a",)), (2, ("b", "c")), (3, ("d",))])
def test_l18_a_graph_does_not_go_on_over_what_is_uncertain(
    go: Go, saves: int, uncertain: tuple[str, ...]
) -> None:
    kept, ran = Kept(), Ran()
    with Runtime() as rt:
        go(rt, diamond(ran), 1, checkpoint=kept)
        ran.clear()
        died = kept.cut(saves)
        with pytest.raises(UncertainError) as caught:
            go(rt, diamond(ran), 1, checkpoint=died)
        assert caught.value.uncertain == uncertain
        assert ran == []
        assert len(died.saved) == saves


def test_l18_what_is_settled_is_gone_on_with(go: Go) -> None:
    kept, ran = Kept(), Ran()
    with Runtime() as rt:
        go(rt, diamond(ran), 1, checkpoint=kept)
        ran.clear()
        settled = {"b": NodeResult.success("found out"), "c": None}
        with pytest.raises(UncertainError, match="'c'"):
            go(rt, diamond(ran), 1, checkpoint=kept.cut(2), settled={"b": settled["b"]})
        outputs = go(rt, diamond(ran), 1, checkpoint=kept.cut(2), settled=settled)
    assert ran == ["c", "d"]
    assert outputs["b"].output == "found out"


def test_l18_only_what_is_uncertain_is_settled(go: Go) -> None:
    kept, ran = Kept(), Ran()
    with Runtime() as rt:
        for checkpoint in (Kept(), kept):
            with pytest.raises(UsageError, match="'a' is not uncertain"):
                go(rt, diamond(ran), 1, checkpoint=checkpoint, settled={"a": None})
            go(rt, diamond(ran), 1, checkpoint=kept)


def test_l18_a_node_that_was_cut_off_is_uncertain(go: Go) -> None:
    kept, token = Kept(), CancelToken()

    async def wait(_: Any) -> None:
        token.cancel()
        await asyncio.sleep(PATIENCE)

    made = graph("g").node("a", lambda _: 1).node("wait", wait, ["a"])
    with Runtime() as rt:
        with pytest.raises((StepCancelledError, LoopCancelledError)):
            go(rt, made, checkpoint=kept, cancel=token)
        assert kept.waves[-1] == (["a"], ["wait"], False)
        with pytest.raises(UncertainError, match="'wait'"):
            go(rt, made, checkpoint=kept)


def test_l18_a_node_that_was_interrupted_is_uncertain() -> None:
    kept = Kept()
    with Runtime() as rt:
        with pytest.raises(KeyboardInterrupt):
            rt.run(one("g", boom(KeyboardInterrupt())), checkpoint=kept)
        with pytest.raises(UncertainError):
            rt.run(one("g", boom(KeyboardInterrupt())), checkpoint=kept)


def test_l18_a_node_that_had_not_begun_is_not_uncertain() -> None:
    kept, token = Kept(), CancelToken()

    def stop(_: Any) -> None:
        token.cancel()

    made = graph("g").node("a", stop).node("b", lambda _: 1)
    with Runtime() as rt:
        with pytest.raises(LoopCancelledError):
            rt.run(made, checkpoint=kept, cancel=token, concurrency=1)
        assert kept.waves[-1] == (["a"], [], False)
        assert rt.run(made, checkpoint=kept)["b"].output == 1


def test_l18_a_plan_may_catch_that_a_graph_cannot_go_on() -> None:
    kept, ran = Kept(), Ran()
    kept.saved = [("graph:diamond", {"shape": "other"})]

    @plan(max_iterations=2)
    def work(_: Any) -> Any:
        try:
            yield from graph_step(diamond(ran), checkpoint=kept)
        except CheckpointMismatchError:
            return (yield from graph_step(ECHO, "anew"))["n"].output

    seen = Seen()
    with Runtime() as rt:
        assert rt.loop(work, on_graph=seen) == "anew"
    assert [status for *_, status in seen.short] == ["started", "failed", "started", "completed"]
    assert ran == []


def test_l8_a_graph_with_waves_is_one_of_the_budget() -> None:
    ran = Ran()

    @plan(max_iterations=1)
    def work(_: Any) -> Any:
        yield from graph_step(diamond(ran), 1, checkpoint=Kept())
        yield from graph_step(ECHO)

    with Runtime() as rt, pytest.raises(BudgetExceededError):
        rt.loop(work)
    assert len(ran) == 4


# ---- another process


PROGRAM = """
    import os, signal, sys
    from sag_research.log import SQLiteEventStore
    from sag_research.model import Run
    from sag_research.runtime import LogCheckpoint, Runtime, graph

    path, trace, die_in = sys.argv[1:]

    def node(name):
        def work(given):
            with open(trace, "a", encoding="utf-8") as file:
                file.write(name)
            if name == die_in:
                os.kill(os.getpid(), signal.SIGKILL)
            return name.upper()
        return work

    made = graph("g").node("a", node("a")).node("b", node("b"), ["a"]).node("c", node("c"), ["b"])
    with SQLiteEventStore(path) as store, Runtime() as rt:
        if not store.has_run("r1"):
            store.create_run(Run(run_id="r1"))
        try:
            outputs = rt.run(made, 1, checkpoint=LogCheckpoint(store, "r1"))
        except Exception as error:
            print(type(error).__name__, *error.uncertain)
        else:
            print(*(one.output for one in outputs.values()))
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_l18_a_process_that_is_killed_leaves_what_is_known_and_what_is_not(tmp_path: Path) -> None:
    program, trace = tmp_path / "program.py", tmp_path / "trace"
    program.write_text(textwrap.dedent(PROGRAM), encoding="utf-8")
    root = Path(__file__).resolve().parents[2]

    def start(die_in: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, str(program), str(tmp_path / "log.sqlite"), str(trace), die_in],
            capture_output=True, text=True, timeout=PATIENCE, check=False,
            env={**os.environ, "PYTHONPATH": str(root)},
        )  # fmt: skip

    assert start("b").returncode == -signal.SIGKILL
    second = start("")
    assert second.stdout.split() == ["UncertainError", "b"], second.stderr
    assert trace.read_text(encoding="utf-8") == "ab"
    with SQLiteEventStore(tmp_path / "log.sqlite") as store:
        record = LogCheckpoint(store, "r1").load("graph:g")
    assert record is not None
    assert sorted(record["completed"]) == ["a"]


# ---- random graphs that die anywhere


@settings(max_examples=40, deadline=None)
@given(
    deps=st.lists(st.lists(st.integers(0, 6), max_size=3), min_size=1, max_size=7),
    saves=st.integers(1, 8),
    how=st.sampled_from([plainly, awaiting]),
    redo=st.booleans(),
)
def test_l18_a_graph_that_dies_anywhere_comes_to_the_same_outputs(
    deps: list[list[int]], saves: int, how: Go, redo: bool
) -> None:
    ran = Ran()
    made = graph("g")
    for number, before in enumerate(deps):
        names = [f"n{other}" for other in before if other < number]
        made = made.node(f"n{number}", ran.node(f"n{number}", number), names)
    kept = Kept()
    with Runtime() as rt:
        whole = how(rt, made, 1, checkpoint=kept)
        died = kept.cut(saves)
        uncertain = died.saved[-1][1]["uncertain"]
        done = set(died.saved[-1][1]["completed"])
        ran.clear()
        settled = {name: None if redo else whole[name] for name in uncertain}
        again = how(rt, made, 1, checkpoint=died, settled=settled)
    assert again == whole
    expected = set(made.nodes) - done - (set() if redo else set(uncertain))
    assert sorted(ran) == sorted(expected)


def test_l18_the_log_keeps_the_waves_of_a_run() -> None:
    ran = Ran()
    with SQLiteEventStore(":memory:") as store, Runtime() as rt:
        store.create_run(Run(run_id="r1"))
        rt.run(diamond(ran), 1, checkpoint=LogCheckpoint(store, "r1"))
        again = rt.run(diamond(ran), 1, checkpoint=LogCheckpoint(store, "r1"))
        types = [event.type for event in store.read("r1")]
    assert types == ["run.created", *["loop.checkpointed"] * 4]
    assert [one.output for one in again.values()] == ["a", "b", "c", "d"]
    assert len(ran) == 4
