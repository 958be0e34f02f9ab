"""What becomes of the records of a scatter: reducers, strategies, and the ports of both."""

from __future__ import annotations

from typing import Any

import pytest

from sag_research.runtime import (
    Body,
    Documents,
    ItemExecution,
    ItemRecord,
    NodeSpec,
    execute,
)
from sag_research.runtime._dag_document import GATHER_PORTS, REDUCER_PORTS, STRATEGIES
from sag_research.runtime._dag_gather import REDUCERS, gathered_port
from sag_research.runtime._dag_gather import STRATEGIES as FUNCTIONS
from tests.runtime.dags import ANY, awaited, doc, embedded, gather, plainly, scatter, single, trace

GOOD, BAD = "success", "error"


def records(*ports: str) -> list[ItemRecord]:
    return [ItemRecord(index=n, item=n, port=port) for n, port in enumerate(ports)]


@pytest.mark.parametrize(
    ("reducer", "ports", "port"),
    [
        ("aggregate", (), "empty"),
        ("aggregate", (GOOD,), "all-success"),
        ("aggregate", (GOOD, "done", "completed"), "all-success"),
        ("aggregate", (GOOD, BAD), "partial"),
        ("aggregate", ("failed", GOOD), "partial"),
        ("aggregate", (BAD, BAD), "all-error"),
        ("aggregate", ("failed",), "all-error"),
        ("all-success", (), "empty"),
        ("all-success", (GOOD, GOOD), "success"),
        ("all-success", (GOOD, BAD), "error"),
        ("any-success", (), "empty"),
        ("any-success", (BAD, GOOD), "success"),
        ("any-success", (BAD, BAD), "error"),
        ("terminal", (), "empty"),
        ("terminal", ("completed",), "success"),
        ("terminal", ("failed",), "error"),
    ],
)
def test_d9_reducers(reducer: str, ports: tuple[str, ...], port: str) -> None:
    assert REDUCERS[reducer].run(records(*ports)) == port


def test_d9_the_documents_and_the_executor_know_the_same_names() -> None:
    assert {name: one.ports for name, one in REDUCERS.items()} == dict(REDUCER_PORTS)
    assert {*FUNCTIONS, "custom"} == set(STRATEGIES)


def test_d9_terminal_is_for_a_single_record() -> None:
    with pytest.raises(Exception, match="2 records"):
        REDUCERS["terminal"].run(records(GOOD, GOOD))


@pytest.mark.parametrize(
    ("ports", "port"),
    [((), "empty"), ((GOOD,), "success"), ((GOOD, BAD), "error"), (("failed", GOOD), "error")],
)
def test_d9_the_ports_of_a_gather(ports: tuple[str, ...], port: str) -> None:
    assert gathered_port(records(*ports)) == port
    assert port in GATHER_PORTS


def work(state: Any, context: object) -> Any:
    """Double a number; refuse what is negative."""
    item = state["currentItem"]
    if item < 0:
        return "error", f"{item} is negative"
    state["output"] = {"twice": 2 * item}
    return "success", 2 * item


def run(strategy: str, items: list[int], state: dict[str, Any] | None = None, **more: Any) -> Any:
    """Scatter, gather, and return the port of the gather and the state."""
    documents = Documents([NodeSpec("work", ("success", "error"), work)])
    documents.strategy("mine")(more.pop("mine", lambda *_: None))
    each = scatter(
        "each", Body(node="work"), dict.fromkeys(ANY, "join"), execution=ItemExecution(3)
    )
    join = gather("join", ["each"], strategy, **more)
    state = {"items": items, **(state or {})}
    ran = execute(documents, doc("d", "each", each, join), state)
    port = dict(trace(ran)).get("join")
    return port, {key: value for key, value in state.items() if key != "items"}, ran


def test_d9_append() -> None:
    port, state, _ = run("append", [1, 2], {"out": [0]}, target="out")
    assert (port, state) == ("success", {"out": [0, 2, 4]})
    assert run("append", [], target="a.b")[:2] == ("empty", {"a": {"b": []}})


def test_d9_append_keeps_the_item_where_the_body_gives_nothing() -> None:
    documents = Documents([NodeSpec("work", ("done",), lambda *_: "done")])
    each = scatter("each", Body(node="work"), dict.fromkeys(ANY, "join"))
    state: dict[str, Any] = {"items": ["a", "b"]}
    join = gather("join", ["each"], "append", target="out")
    assert execute(documents, doc("d", "each", each, join), state).summary().complete
    assert state["out"] == ["a", "b"]


def test_d9_append_needs_a_target_that_is_a_list() -> None:
    for more, said in [({}, "needs a target"), ({"target": "out"}, "nothing can be appended")]:
        *_, ran = run("append", [1], {"out": 3}, **more)
        assert said in str(ran.summary().error)
        assert ran.summary().lifecycle == "failed"


def test_d9_map() -> None:
    port, state, _ = run("map", [3, 1, 2], mapping={"output.twice": "answers", "currentItem": "x"})
    assert (port, state) == ("success", {"answers": [6, 2, 4], "x": [3, 1, 2]})


def test_d9_map_leaves_out_what_a_body_did_not_write() -> None:
    port, state, _ = run("map", [1, -1, 2], mapping={"output": "outputs"})
    assert (port, state) == ("error", {"outputs": [{"twice": 2}, {"twice": 4}]})


def test_d9_partition_by_port() -> None:
    port, state, _ = run("partition", [1, -1, 2], {"out": "old"}, target="out")
    assert port == "error"
    assert state == {"out": {"success": [2, 4], "error": ["-1 is negative"]}}


def test_d9_collect() -> None:
    _, state, _ = run("collect", [1, -1], {"out": ["old"]}, target="out")
    assert state["out"] == [
        {"index": 0, "port": "success", "item": 1, "value": 2, "error": ""},
        {"index": 1, "port": "error", "item": -1, "value": "-1 is negative", "error": ""},
    ]


def test_d9_discard_keeps_the_port_alone() -> None:
    assert run("discard", [1])[:2] == ("success", {})
    assert run("discard", [-1])[:2] == ("error", {})
    assert run("discard", [])[:2] == ("empty", {})


def test_d9_custom() -> None:
    def best(state: Any, records: Any, gathering: Any) -> None:
        state[gathering.target] = max(record.value for record in records)

    port, state, _ = run("custom", [1, 3, 2], function="mine", target="best", mine=best)
    assert (port, state) == ("success", {"best": 6})


def test_d9_a_strategy_that_raises_ends_the_run() -> None:
    def broken(*_: Any) -> None:
        raise KeyError("x")

    *_, ran = run("custom", [1], function="mine", mine=broken)
    assert isinstance(ran.summary().error, KeyError)
    assert ran.summary().cursor.placement.endswith("join")


def test_d9_a_reducer_of_the_user_by_name() -> None:
    documents = Documents([NodeSpec("work", ("success", "error"), work)])

    @documents.reducer("most", ports=("most", "few"))
    def most(found: Any) -> str:
        return "most" if sum(record.ok for record in found) > len(found) / 2 else "few"

    each = scatter("each", Body(node="work"), {"most": "end", "few": "bad"}, reducer="most")
    for items, lifecycle in [([1, 2, -1], "completed"), ([1, -1], "failed")]:
        for how in (plainly, awaited):
            ran = execute(documents, doc("d", "each", each), {"items": items})
            assert how(ran).lifecycle == lifecycle


def test_d9_a_reducer_that_gives_no_port() -> None:
    documents = Documents([NodeSpec("work", ("success", "error"), work)])
    documents.reducer("odd", ports=("a",))(lambda found: None)
    each = scatter("each", Body(node="work"), {"a": "end"}, reducer="odd")
    error = execute(documents, doc("d", "each", each), {"items": [1]}).summary().error
    assert "the reducer 'odd' returned None" in str(error)


# ---- gathers in cycles


def turns(strategy: str, **more: Any) -> list[Any]:
    """Scatter and gather three times with items of each turn; returns the state after each."""
    documents = Documents([NodeSpec("work", ("success", "error"), work)])
    seen: list[Any] = []

    @documents.node("next", ports=("again", "over"))
    def following(state: Any, context: object) -> str:
        seen.append(state.get("out"))
        state["turn"] += 1
        state["items"] = [10 * state["turn"], 10 * state["turn"] + 1]
        return "again" if state["turn"] < 3 else "over"

    each = scatter("each", Body(node="work"), dict.fromkeys(ANY, "join"))
    outputs = dict.fromkeys(GATHER_PORTS, "next")
    join = gather("join", ["each"], strategy, outputs=outputs, **more)
    cycle = doc("d", "next", single("next", again="each", over="end"), each, join)
    assert execute(documents, cycle, {"turn": 0}).summary().complete
    return seen


def test_d9_map_holds_the_results_of_this_turn_only() -> None:
    """Appended onto those of the turn before, the first would be taken for the newest."""
    assert turns("map", mapping={"output.twice": "out"}) == [None, [20, 22], [40, 42]]


def test_d9_append_holds_those_of_all_turns() -> None:
    assert turns("append", target="out") == [None, [20, 22], [20, 22, 40, 42]]


def test_d9_a_gather_takes_the_records_of_a_scatter_once() -> None:
    documents = Documents([NodeSpec("work", ("success", "error"), work)])
    each = scatter("each", Body(node="work"), dict.fromkeys(ANY, "join"))
    outputs = {"success": "join", "error": "bad", "empty": "end"}  # back to itself: nothing new
    join = gather("join", ["each"], "append", target="out", outputs=outputs)
    state: dict[str, Any] = {"items": [1]}
    ran = execute(documents, doc("d", "each", each, join), state, max_steps=9)
    assert trace(ran) == [("each", "all-success"), ("join", "success"), ("join", "empty")]
    assert state["out"] == [2]


def test_d9_several_sources_are_gathered_in_the_order_of_the_gather() -> None:
    documents = Documents([NodeSpec("work", ("success", "error"), work)])
    one = scatter("one", Body(node="work"), dict.fromkeys(ANY, "two"))
    two = scatter("two", Body(node="work"), dict.fromkeys(ANY, "join"), source="more")
    join = gather("join", ["two", "one"], "append", target="out")
    state = {"items": [1, 2], "more": [5]}
    assert execute(documents, doc("d", "one", one, two, join), state).summary().complete
    assert state["out"] == [10, 2, 4]


def test_d9_a_node_may_be_gathered_from() -> None:
    documents = Documents([NodeSpec("tell", ("done", "error"), lambda *_: ("done", 7))])
    join = gather("join", ["tell"], "append", target="out")
    one = doc("d", "tell", single("tell", done="join", error="join"), join)
    state: dict[str, Any] = {}
    assert execute(documents, one, state).summary().complete
    assert state["out"] == [7]


def test_d9_an_embedded_document_may_be_gathered_from_each_time_it_is_come_to() -> None:
    documents = Documents([NodeSpec("tell", ("done",), lambda state, _: ("done", state["n"]))])
    documents.register(doc("inner", "tell", single("tell", done="end")))

    @documents.node("next", ports=("again", "over"))
    def following(state: Any, context: object) -> str:
        state["n"] += 1
        return "again" if state["n"] < 3 else "over"

    sub = embedded("sub", "inner", outputs={"completed": "join", "failed": "bad"})
    join = gather(
        "join", ["sub"], "append", target="out", outputs=dict.fromkeys(GATHER_PORTS, "next")
    )
    cycle = doc("d", "sub", sub, join, single("next", again="sub", over="end"))
    state: dict[str, Any] = {"n": 0}
    assert execute(documents, cycle, state).summary().complete
    assert state["out"] == [0, 1, 2]
