"""Random documents come to a terminal or to their budget, whatever their nodes do."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from sag_research.runtime import (
    AwaitingInputError,
    Body,
    BudgetExceededError,
    CancelToken,
    DagReference,
    Document,
    Documents,
    GraphEvent,
    ItemExecution,
    NodeSpec,
    Placement,
    execute,
)
from sag_research.runtime._dag_document import GATHER_PORTS
from tests.runtime.dags import ANY, WAYS, at, doc, embedded, gather, scatter, single

PORTS = ("one", "two")
ACTS = ("one", "two", "raise", "cancel", "wait", "odd")
KINDS = ("single", "single", "scatter", "embedded", "gather")


@st.composite
def shapes(draw: Any, kinds: tuple[str, ...] = KINDS, most: int = 6) -> list[tuple[str, list[int]]]:
    """Placements by kind, and for each of their ports the number of the placement after it."""
    count = draw(st.integers(1, most))
    kind = st.sampled_from(kinds)
    nexts = st.lists(st.integers(0, count + 1), min_size=4, max_size=4)
    return [(draw(kind), draw(nexts)) for _ in range(count)]


def written(name: str, shape: list[tuple[str, list[int]]], body: Body) -> Document:
    """Write a document of a shape."""
    names = [f"{name}{n}" for n in range(len(shape))] + ["end", "bad"]
    scatters = [names[n] for n, (kind, _) in enumerate(shape) if kind == "scatter"]
    placements: list[Placement] = []
    for own, (kind, nexts) in zip(names, shape, strict=False):
        after = [names[n] for n in nexts]
        if kind == "single":
            placements.append(single(own, "act", one=after[0], two=after[1]))
        elif kind == "scatter":
            routes = dict(zip(ANY, after, strict=True))
            placements.append(scatter(own, body, routes, execution=ItemExecution(nexts[0] % 3 + 1)))
        elif kind == "embedded":
            routes = {"completed": after[0], "failed": after[1]}
            placements.append(embedded(own, "inner", outputs=routes))
        else:
            routes = dict(zip(GATHER_PORTS, after, strict=False))
            placements.append(gather(own, scatters, "append", target="out", outputs=routes))
    return doc(name, names[0], *placements)


def acting(script: list[str], token: CancelToken, seed: int) -> NodeSpec:
    """A node that does what a script says, one thing after the other, and then chooses a port."""
    choose = random.Random(seed)

    def act(state: Any, context: object) -> str:
        what = script.pop(0) if script else choose.choice(PORTS)
        if what == "raise":
            raise ZeroDivisionError
        if what == "cancel":
            token.cancel("enough")
            return "one"
        if what == "wait":
            raise AwaitingInputError("really?")
        return what

    return NodeSpec("act", PORTS, act)


@settings(max_examples=150, deadline=None)
@given(
    shape=shapes(),
    inner=shapes(("single", "scatter"), 3),
    script=st.lists(st.sampled_from(ACTS[:2] * 3 + ACTS), max_size=6),
    seed=st.integers(0, 99),
    limit=st.integers(1, 12),
    way=st.sampled_from(sorted(WAYS)),
    by_dag=st.booleans(),
)
def test_l8_l12_l13_d4_random_documents_come_to_an_end(
    shape: Any, inner: Any, script: list[str], seed: int, limit: int, way: str, by_dag: bool
) -> None:
    token, events = CancelToken(), list[GraphEvent]()
    body = Body(dag=DagReference("dagIri", (at("inner"),))) if by_dag else Body(node="act")
    documents = Documents([acting(script, token, seed)])
    one, sub = written("outer", shape, body), written("inner", inner, Body(node="act"))
    documents._documents = {sub.id: sub}  # some have placements that nothing leads to
    state = {"items": [{"dagIri": at("inner")}] * 2}
    run = execute(documents, one, state, max_steps=limit, cancel=token, on_graph=events.append)
    summary = WAYS[way](run)

    began = [event.iteration for event in events if event.status == "started"]
    ended = sorted(event.iteration for event in events if event.status != "started")
    assert sorted(began) == ended == list(range(len(began)))  # one end for each beginning
    assert summary.steps == len(began) <= limit
    assert summary.lifecycle == run.lifecycle
    if summary.terminal:
        assert summary.lifecycle == {"end": "completed", "bad": "failed"}[summary.terminal]
        assert summary.cursor is None
        assert not token.cancelled
        return
    assert summary.cursor is not None
    assert summary.cursor.placement in one.by_id
    if token.cancelled:
        assert summary.lifecycle == "cancelled"
    elif isinstance(summary.error, AwaitingInputError):
        assert summary.lifecycle == "awaiting-input"
    else:
        assert summary.lifecycle == "failed"
    if isinstance(summary.error, BudgetExceededError):
        assert summary.steps == limit


@settings(max_examples=60, deadline=None)
@given(
    shape=shapes(("single", "gather", "scatter")), seed=st.integers(0, 99), limit=st.integers(1, 9)
)
def test_d4_valid_documents_run_to_a_terminal_or_the_budget(
    shape: Any, seed: int, limit: int
) -> None:
    documents = Documents([acting([], CancelToken(), seed)])
    one = written("outer", shape, Body(node="act"))
    faults = documents.faults(one)
    run = execute(documents, one, {"items": [1, 2]}, max_steps=limit)
    summary = run.summary()
    assert summary.terminal or isinstance(summary.error, BudgetExceededError), (faults, summary)
    if not faults:  # registered as it is, it does the same
        documents.register(one)
        assert documents.document(one.id) == one


@settings(max_examples=60, deadline=None)
@given(
    script=st.lists(st.sampled_from(("one", "raise", "wait")), max_size=8),
    stop=st.integers(1, 5),
    way=st.sampled_from(sorted(WAYS)),
)
def test_d7_however_often_it_is_gone_on_with_each_node_is_done_once(
    script: list[str], stop: int, way: str
) -> None:
    names = [f"n{n}" for n in range(6)]
    done: list[str] = []
    acts = list(script)

    def act(state: Any, context: Any) -> str:
        what = acts.pop(0) if acts else "one"
        if what == "raise":
            raise ZeroDivisionError
        if what == "wait":
            raise AwaitingInputError
        done.append(context.node_id)
        return "one"

    placements = [
        single(name, "act", one=after, two="bad")
        for name, after in zip(names, [*names[1:], "end"], strict=True)
    ]
    documents = Documents([NodeSpec("act", PORTS, act)])
    run = execute(documents, doc("d", names[0], *placements), max_steps=stop)
    for _ in range(40):
        if WAYS[way](run).complete:
            break
        run = run.resume()
    assert run.lifecycle == "completed"
    assert done == names
