"""A document as a plan over the loop: one handle, which ends in one of five ways."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from sag_research.errors import RunNotFoundError, UsageError
from sag_research.log import SQLiteEventStore
from sag_research.model import Run
from sag_research.runtime import (
    AwaitingInputError,
    BudgetExceededError,
    CancelToken,
    Cursor,
    DocumentError,
    Documents,
    Execution,
    GraphEvent,
    LifecycleError,
    NodeSpec,
    ObserverError,
    Phase,
    ReentryError,
    RoutingError,
    Runtime,
    Summary,
    execute,
    graph,
    graph_step,
    plan,
)
from tests.runtime.dags import (  # noqa: F401 - `way` and `end` are fixtures
    ANY,
    at,
    counting,
    doc,
    embedded,
    end,
    gather,
    scatter,
    single,
    trace,
    way,
)  # fmt: skip
from tests.runtime.loops import ECHO

Way = Callable[[Execution], Summary]
PATIENCE = 20


def nodes(**functions: Any) -> Documents:
    """Nodes with the ports ``done`` and ``error``."""
    return Documents([NodeSpec(name, ("done", "error"), run) for name, run in functions.items()])


def chain(**functions: Any) -> tuple[Documents, Any]:
    """Nodes one after the other."""
    names = [*functions, "end"]
    placements = [single(name, done=after, error="bad") for name, after in pairwise(names)]
    return nodes(**functions), doc("chain", names[0], *placements)


def boom(state: Any, context: object) -> str:
    raise ValueError("no luck")


def fine(state: Any, context: object) -> str:
    state.setdefault("ran", []).append(1)
    return "done"


# ---- the handle


def test_d7_every_way_to_run_a_document_gives_the_same(way: Way) -> None:  # noqa: F811
    documents, count = counting(5)
    state: dict[str, Any] = {}
    run = execute(documents, count, state)
    assert (run.lifecycle, run.steps) == ("new", 0)
    summary = way(run)
    assert (summary.lifecycle, summary.terminal, summary.steps) == ("completed", "end", 5)
    assert summary.complete
    assert summary.cursor is None
    assert summary.state is state
    assert state == {"n": 5}
    assert run.lifecycle == "completed"


def test_d7_each_node_gives_its_name_its_port_and_the_state() -> None:
    documents, count = counting(2)
    state: dict[str, Any] = {}
    seen = [(done.placement, done.port, done.state["n"], done.id) for done in
            execute(documents, count, state)]  # fmt: skip
    assert seen == [("add", "more", 1, at("add")), ("add", "enough", 2, at("add"))]


def test_d7_a_value_beside_the_port_is_given_on() -> None:
    documents, chained = chain(tell=lambda state, _: ("done", {"said": 7}))
    [done] = execute(documents, chained)
    assert done.value == {"said": 7}


def test_d7_nothing_runs_before_it_is_asked_for(way: Way) -> None:  # noqa: F811
    ran: list[int] = []
    documents, chained = chain(a=lambda *_: (ran.append(1), "done")[1])
    run = execute(documents, chained)
    assert ran == []
    way(run)
    assert ran == [1]


def test_d7_a_node_runs_only_when_the_one_before_has_been_taken() -> None:
    documents, count = counting(3)
    state: dict[str, Any] = {"n": 0}
    steps = iter(execute(documents, count, state))
    assert state["n"] == 0
    next(steps)
    assert state["n"] == 1
    next(steps)
    assert state["n"] == 2
    steps.close()  # type: ignore[attr-defined]


def test_d7_the_body_runs_once(way: Way) -> None:  # noqa: F811
    documents, count = counting(3)
    state: dict[str, Any] = {}
    run = execute(documents, count, state)
    first = way(run)
    assert way(run) is first
    assert run.summary() is first
    assert list(run) == []
    assert state["n"] == 3


def test_d7_two_loops_cannot_share_a_run() -> None:
    documents, count = counting(3)
    run = execute(documents, count)
    steps = iter(run)
    next(steps)
    with pytest.raises(UsageError, match="running"):
        run.summary()
    with pytest.raises(UsageError, match="running"):
        next(iter(run))
    assert [done.port for done in steps] == ["more", "enough"]


# ---- ends


def test_d7_a_node_that_raises_ends_the_run_and_is_not_raised(way: Way) -> None:  # noqa: F811
    documents, chained = chain(a=fine, b=boom, c=fine)
    state: dict[str, Any] = {}
    run = execute(documents, chained, state)
    summary = way(run)
    assert summary.lifecycle == run.lifecycle == "failed"
    assert isinstance(summary.error, ValueError)
    assert summary.errors == (summary.error,)
    assert summary.cursor == Cursor(at("b"))
    assert state["ran"] == [1]
    assert "no luck" in repr(summary)


def test_d7_a_failed_terminal_is_a_failed_run(way: Way) -> None:  # noqa: F811
    documents, chained = chain(a=lambda *_: "error")
    run = execute(documents, chained)
    summary = way(run)
    assert (summary.lifecycle, summary.terminal, summary.error) == ("failed", "bad", None)
    assert summary.cursor is None
    with pytest.raises(UsageError, match="cannot be gone on with"):
        run.resume()


def test_d7_a_failed_run_goes_on_from_its_cursor(way: Way) -> None:  # noqa: F811
    luck = iter([ValueError("no luck"), None])

    def b(state: Any, _: object) -> str:
        if (error := next(luck)) is not None:
            raise error
        return "done"

    documents, chained = chain(a=fine, b=b, c=fine)
    run = execute(documents, chained)
    assert way(run).lifecycle == "failed"
    again = run.resume()
    assert way(again).complete
    assert run.state["ran"] == [1, 1]  # a once and c once
    assert again.steps == 2


@pytest.mark.parametrize("start", ["b", at("b"), Cursor(at("b"))])
def test_d7_a_run_starts_where_it_is_told(start: Any) -> None:
    documents, chained = chain(a=boom, b=fine)
    assert trace(execute(documents, chained, start_at=start)) == [("b", "done")]


def test_d7_a_run_that_is_cancelled(way: Way) -> None:  # noqa: F811
    token = CancelToken()

    def a(state: Any, context: object) -> str:
        token.cancel("the user pressed Stop")
        return "done"

    documents, chained = chain(a=a, b=boom)
    run = execute(documents, chained, cancel=token)
    summary = way(run)
    assert summary.lifecycle == "cancelled"
    assert "the user pressed Stop" in str(summary.error)
    # what the graph gave in the same instant is not given on: the node is where the run goes on
    assert summary.cursor == Cursor(at("a"))


def test_d7_a_run_that_was_cancelled_before_does_nothing(way: Way) -> None:  # noqa: F811
    documents, chained = chain(a=boom)
    run = execute(documents, chained)
    run.cancel()
    summary = way(run)
    assert (summary.lifecycle, summary.steps, summary.cursor) == ("cancelled", 0, Cursor(at("a")))


def test_d7_a_run_that_takes_too_long(way: Way) -> None:  # noqa: F811
    def wait(state: Any, context: Any) -> str:
        while not context.cancelled:
            time.sleep(0.002)
        return "done"

    documents, chained = chain(b=wait, c=boom)
    summary = way(execute(documents, chained, seconds=0.05))
    assert summary.lifecycle == "timed_out"
    assert summary.cursor == Cursor(at("b"))


def test_d7_an_asynchronous_node_is_cut_off_when_the_time_is_over(way: Way) -> None:  # noqa: F811
    async def wait(state: Any, context: Any) -> str:
        await asyncio.sleep(PATIENCE)
        return "done"

    documents, chained = chain(a=fine, b=wait)
    assert way(execute(documents, chained, seconds=0.05)).lifecycle == "timed_out"


def test_d7_a_run_that_waits_for_somebody(way: Way) -> None:  # noqa: F811
    def ask(state: Any, context: object) -> str:
        if "answer" not in state:
            raise AwaitingInputError("may the file be removed?")
        return "done"

    documents, chained = chain(a=fine, ask=ask)
    run = execute(documents, chained)
    summary = way(run)
    assert summary.lifecycle == "awaiting-input"
    assert str(summary.error) == "may the file be removed?"
    run.state["answer"] = "yes"
    assert way(run.resume()).complete
    assert run.state["ran"] == [1]


def test_d7_ends_are_kept_and_other_steps_refused() -> None:
    documents, count = counting(1)
    run = execute(documents, count)
    with pytest.raises(LifecycleError, match="'new' cannot become 'completed'"):
        run.life.become("completed")
    run.summary()
    for name in ("running", "failed", "completed", "new"):
        with pytest.raises(LifecycleError, match="kept for good"):
            run.life.become(name)  # type: ignore[arg-type]
    assert run.lifecycle == "completed"
    run.cancel()
    assert run.summary().lifecycle == "completed"


def test_d7_leaving_the_loop_early_ends_the_run_and_lets_everything_go() -> None:
    documents, count = counting(9)
    threads, disposed = threading.active_count(), []
    run = execute(documents, count, {"n": 0}, on_graph=lambda e: disposed.append(e.status))
    for done in run:
        if done.state["n"] == 2:
            break
    gc.collect()
    assert run.lifecycle == "cancelled"
    assert disposed == ["started", "completed"] * 2  # nothing was begun and left
    assert threading.active_count() == threads
    assert run.cursor == Cursor(at("add"))
    assert trace(run.resume())[-1] == ("add", "enough")


def test_d7_leaving_the_asynchronous_loop_early_ends_the_run() -> None:
    documents, count = counting(9)
    run = execute(documents, count, {"n": 0})

    async def main() -> None:
        async for done in run:
            if done.state["n"] == 2:
                break
        for _ in range(20):
            await asyncio.sleep(0)

    asyncio.run(main())
    assert run.lifecycle == "cancelled"
    assert run.resume().summary().complete


def test_d7_an_interrupt_is_raised_and_ends_the_run() -> None:
    def stop(state: Any, context: object) -> str:
        raise KeyboardInterrupt

    documents, chained = chain(a=fine, b=stop)
    run = execute(documents, chained)
    with pytest.raises(KeyboardInterrupt):
        run.summary()
    assert run.lifecycle == "cancelled"
    assert run.cursor == Cursor(at("b"))


def test_d7_cancelling_the_task_that_awaits_a_run_ends_it() -> None:
    began = threading.Event()

    async def wait(state: Any, context: object) -> str:
        began.set()
        await asyncio.sleep(PATIENCE)
        return "done"

    documents, chained = chain(a=wait)
    run = execute(documents, chained)

    async def main() -> None:
        task = asyncio.ensure_future(run._asummary())
        while not began.is_set():
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert run.lifecycle == "cancelled"


def test_d7_a_run_that_was_cancelled_goes_on_without_the_token_that_ended_it(
    way: Way,  # noqa: F811
) -> None:
    token = CancelToken()
    documents, chained = chain(a=lambda *_: (token.cancel(), "done")[1], b=fine)
    run = execute(documents, chained, cancel=token)
    assert way(run).lifecycle == "cancelled"
    assert way(run.resume()).complete
    fresh = CancelToken()
    fresh.cancel()
    assert way(run.resume(cancel=fresh)).lifecycle == "cancelled"


def test_d7_what_is_wrong_with_the_call_is_raised_and_leaves_the_run_new(way: Way) -> None:  # noqa: F811
    documents, chained = chain(a=boom)
    with SQLiteEventStore(":memory:") as store:
        run = execute(documents, chained, store=store, run_id="nowhere")
        with pytest.raises(RunNotFoundError):
            way(run)
        assert run.lifecycle == "new"
        with Runtime() as rt, pytest.raises(UsageError, match="a store or a runtime"):
            execute(documents, chained, store=store, runtime=rt)


def test_l15_a_plan_cannot_run_a_document_itself() -> None:
    documents, chained = chain(a=fine)
    run = execute(documents, chained)

    @plan
    def work(_: Any) -> Any:
        run.summary()
        yield from graph_step(ECHO)

    with Runtime() as rt, pytest.raises(ReentryError):
        rt.loop(work)
    assert run.summary().complete


def test_l15_a_node_may_run_another_document() -> None:
    documents, chained = chain(a=fine)
    state: dict[str, Any] = {}

    def nested(_: Any, context: object) -> str:
        return "done" if execute(documents, chained, state).summary().complete else "error"

    others, outer_doc = chain(nested=nested)
    assert execute(others, outer_doc).summary().complete
    assert state["ran"] == [1]


# ---- the budget, the observer, and what is checked before


def test_d4_a_run_ends_at_its_budget(way: Way) -> None:  # noqa: F811
    documents, count = counting(10**9)
    run = execute(documents, count, max_steps=4)
    summary = way(run)
    assert (summary.lifecycle, summary.steps) == ("failed", 4)
    assert isinstance(summary.error, BudgetExceededError)
    assert run.state["n"] == 4
    assert summary.cursor == Cursor(at("add"))
    assert run.resume(max_steps=2).summary().steps == 2
    assert run.state["n"] == 6


def test_d4_there_is_a_budget_where_none_is_given() -> None:
    documents, count = counting(10**9)
    assert execute(documents, count).summary().steps == 1000


def test_d7_an_observer_that_raises_ends_the_run(way: Way) -> None:  # noqa: F811
    def observe(event: GraphEvent) -> None:
        raise ZeroDivisionError

    documents, chained = chain(a=boom)
    summary = way(execute(documents, chained, on_graph=observe))
    assert summary.lifecycle == "failed"
    assert isinstance(summary.error, ObserverError)


def test_d7_a_port_that_no_route_is_for() -> None:
    documents = Documents([NodeSpec("a", ("done", "odd"), lambda *_: "odd")])
    summary = execute(documents, doc("d", "a", single("a", done="end"))).summary()
    assert isinstance(summary.error, RoutingError)
    assert "'odd'" in str(summary.error)


@pytest.mark.parametrize("returned", [None, 3, "nowhere", ("done",), ("done", 1, 2), (1, 2)])
def test_d7_what_is_no_port_is_said(returned: Any) -> None:
    documents, chained = chain(a=lambda *_: returned)
    summary = execute(documents, chained).summary()
    assert summary.lifecycle == "failed"
    assert "is no port of it" in str(summary.error)


def test_d1_a_phase_is_refused_before_anything_runs() -> None:
    documents = nodes(a=fine)
    phase = Phase(at("p"), "p", "pre", "a")
    with pytest.raises(UsageError, match="phases are not run"):
        execute(documents, doc("d", "a", single("a", done="end", error="bad"), phase))


def test_d7_what_cannot_run_is_refused_before_anything_runs() -> None:
    documents, chained = chain(a=fine)
    for options, said in [
        ({"entry": "other"}, "no entry 'other'"), ({"start_at": "z"}, "no placement 'z'"),
        ({"max_steps": 0}, "max_steps"), ({"max_items": 0}, "max_items"),
        ({"max_step": 1}, "no option 'max_step'"), ({"seconds": 0}, "0 seconds"),
    ]:  # fmt: skip
        with pytest.raises(UsageError, match=said):
            execute(documents, chained, **options)  # type: ignore[arg-type]
    wrong: Any = ["no state"]
    with pytest.raises(UsageError, match="is no state"):
        execute(documents, chained, wrong)
    with pytest.raises(UsageError, match="holds no documents"):
        execute(wrong, chained)
    with pytest.raises(UsageError, match="names node 'b'"):
        execute(documents, doc("d", "a", single("a", "b", done="end")))
    with pytest.raises(UsageError, match="no document"):
        execute(documents, doc("d", "e", embedded("e", "nowhere")))
    with pytest.raises(DocumentError, match="no document 'nothing'"):
        execute(documents, "nothing")


# ---- documents in documents


def outer(**inner: Any) -> tuple[Documents, Any]:
    """A document that embeds the chain of some nodes."""
    documents, chained = chain(**inner)
    documents.register(chained)
    return documents, doc("outer", "sub", embedded("sub", "chain"))


def test_d1_an_embedded_document_is_a_sub_plan(way: Way) -> None:  # noqa: F811
    events: list[GraphEvent] = []
    documents, nested = outer(a=fine, b=fine)
    run = execute(documents, nested, on_graph=events.append)
    assert way(run).complete
    assert [(e.graph_id, e.iteration) for e in events[::2]] == [
        (at("sub"), 0), (at("a"), 1), (at("b"), 2),
    ]  # fmt: skip
    assert {e.loop_id for e in events} == {run.loop_id}
    assert run.state["ran"] == [1, 1]


def test_d1_an_embedded_document_is_told_with_its_path() -> None:
    documents, nested = outer(a=fine, b=lambda *_: "error")
    assert trace(execute(documents, nested)) == [
        ("sub/a", "done"), ("sub/b", "error"), ("sub", "failed"),
    ]  # fmt: skip


def test_d1_an_embedded_document_shares_the_budget() -> None:
    documents, count = counting(10**9)
    documents.register(count)
    run = execute(documents, doc("outer", "sub", embedded("sub", "count")), max_steps=5)
    assert run.summary().steps == 5
    assert run.summary().lifecycle == "failed"


def test_d1_places_are_copied_in_and_out() -> None:
    def work(state: Any, _: object) -> str:
        assert "secret" not in state
        state["out"] = state["given"]["n"] + 1
        return "done"

    documents, chained = chain(work=work)
    documents.register(chained)
    sub = embedded("sub", "chain", inputs={"job": "given"}, results={"out": "answer.n"})
    state: dict[str, Any] = {"job": {"n": 1}, "secret": 2}
    assert execute(documents, doc("outer", "sub", sub), state).summary().complete
    assert state == {"job": {"n": 1}, "secret": 2, "answer": {"n": 2}}


def test_d7_a_run_goes_on_inside_an_embedded_document(way: Way) -> None:  # noqa: F811
    luck = iter([1, 0])

    def b(state: Any, _: object) -> str:
        assert state["inside"]
        return "done" if 1 // (1 - next(luck)) else "error"

    def a(state: Any, _: object) -> str:
        state["inside"] = True
        return fine(state, _)

    documents, nested = outer(a=a, b=b)
    run = execute(documents, nested)
    assert way(run).lifecycle == "failed"
    assert run.cursor is not None
    assert (run.cursor.placement, run.cursor.inner and run.cursor.inner.placement) == (
        at("sub"), at("b"),
    )  # fmt: skip
    again = run.resume()
    assert trace(again) == [("sub/b", "done"), ("sub", "completed")]
    assert run.state["ran"] == [1]


def test_d7_a_cursor_is_plain_data() -> None:
    import msgspec

    documents, nested = outer(a=boom)
    cursor = execute(documents, nested, {"n": 1}).summary().cursor
    assert msgspec.json.decode(msgspec.json.encode(cursor), type=Cursor) == cursor


@pytest.mark.parametrize("other", ["me", "you"])
def test_d4_documents_that_embed_each_other_come_to_an_end(other: str) -> None:
    documents = Documents()
    me = doc("me", "sub", embedded("sub", other))
    you = doc("you", "sub2", embedded("sub2", "me"))
    documents.register(me, you)
    summary = execute(documents, me).summary()
    assert summary.lifecycle == "failed"
    assert "embedded more than" in str(summary.error)


def test_d4_a_cycle_of_embedded_documents_without_a_node_ends_at_the_budget() -> None:
    documents = Documents()
    documents.register(doc("nothing", "end"))
    again = embedded("sub", "nothing", outputs={"completed": "sub", "failed": "end"})
    run = execute(documents, doc("outer", "sub", again), max_steps=7)
    assert isinstance(run.summary().error, BudgetExceededError)
    assert run.steps == 7


# ---- the log, and a runtime of the user's


def test_d7_a_run_is_written_down(way: Way) -> None:  # noqa: F811
    documents, count = counting(2)
    with SQLiteEventStore(":memory:") as store:
        run = execute(documents, count, store=store)
        way(run)
        types = [event.type for event in store.read(run.loop_id)]
    assert types == ["run.created", *["graph.started", "graph.completed"] * 2, "run.completed"]


def test_d7_a_run_that_failed_is_written_down() -> None:
    documents, chained = chain(a=boom)
    with SQLiteEventStore(":memory:") as store:
        run = execute(documents, chained, store=store)
        run.summary()
        types = [event.type for event in store.read(run.loop_id)]
    assert types == ["run.created", "graph.started", "graph.failed", "run.failed"]


def test_d7_a_run_that_was_left_is_written_down() -> None:
    documents, count = counting(3)
    with SQLiteEventStore(":memory:") as store:
        run = execute(documents, count, store=store)
        for _ in run:
            break
        last = [event.type for event in store.read(run.loop_id)][-1]
    assert last == "run.cancelled"


def test_d7_a_run_may_be_written_into_one_that_is_there() -> None:
    documents, count = counting(1)
    with SQLiteEventStore(":memory:") as store:
        store.create_run(Run(run_id="r1"))
        execute(documents, count, store=store, run_id="r1").summary()
        types = [event.type for event in store.read("r1")]
    assert types == ["run.created", "graph.started", "graph.completed"]


def test_d7_a_runtime_of_the_user_stays_open() -> None:
    documents, count = counting(1)
    with Runtime() as rt:
        assert execute(documents, count, runtime=rt).summary().complete
        assert execute(documents, count, runtime=rt).summary().complete
    summary = execute(documents, count, runtime=rt).summary()
    assert "closing" in str(summary.error)


def test_l16_a_runtime_is_not_closed_by_who_iterates_over_a_run_of_it() -> None:
    documents, chained = chain(a=fine, b=fine)
    rt = Runtime()
    steps = iter(execute(documents, chained, runtime=rt))
    next(steps)
    with pytest.raises(UsageError, match="stands still"):
        rt.close()
    assert rt.run(graph("g").node("n", lambda n: n), 1)["n"].output == 1  # nothing was refused
    assert len(list(steps)) == 1
    rt.close()


def test_d7_nodes_know_where_they_are() -> None:
    def look(state: Any, context: Any) -> str:
        state["where"] = (context.graph_id, context.node_id, context.loop_id)
        return "done"

    documents, chained = chain(look=look)
    run = execute(documents, chained)
    run.summary()
    assert run.state["where"] == (at("look"), "look", run.loop_id)


def test_d7_the_summary_says_it_to_people_without_markup_of_others() -> None:
    def hostile(state: Any, context: object) -> str:
        raise ValueError("<script>alert(1)</script>")

    documents, chained = chain(a=hostile)
    run = execute(documents, chained)
    shown = run.summary()._repr_html_()
    assert "<script>" not in shown
    assert "&lt;script&gt;" in shown
    assert repr(run) == "Execution('chain', failed, 1 steps)"


def test_d7_whoever_looks_between_two_nodes_finds_all_in_the_log() -> None:
    documents, count = counting(3)
    with SQLiteEventStore(":memory:") as store:
        run = execute(documents, count, store=store)
        for number, _ in enumerate(run, start=1):
            found = [event.type for event in store.read(run.loop_id)]
            assert found[1:] == ["graph.started", "graph.completed"] * number


def test_d7_a_graph_is_written_down_as_done_before_the_next_begins() -> None:
    seen: list[list[str]] = []

    def look(state: Any, context: Any) -> str:
        seen.append([event.type for event in store.read(context.loop_id)][1:])
        return "done"

    documents, chained = chain(a=look, b=look)
    with SQLiteEventStore(":memory:") as store:
        execute(documents, chained, store=store).summary()
    assert seen == [["graph.started"], ["graph.started", "graph.completed", "graph.started"]]


def test_d4_what_was_done_stands_in_the_log_before_the_end_of_the_budget() -> None:
    documents, count = counting(9)
    with SQLiteEventStore(":memory:") as store:
        run = execute(documents, count, store=store, max_steps=1)
        run.summary()
        types = [event.type for event in store.read(run.loop_id)]
    assert types == [
        "run.created", "graph.started", "graph.completed", "budget.exhausted", "run.failed",
    ]  # fmt: skip
