"""What a step of a plan, a node of a document and an item of a scatter cost.

    python benchmarks/runtime.py [--rounds 7] [--quick]

Contenders of one claim take turns in one process, in an order that changes. Each is timed twice
over: on the clock, and as processor time of the process, which other programs on the machine
disturb less. Per-unit figures are medians of the rounds, ratios are medians of the rounds' ratios.

* A step: the plan driver alone (graphs are ordered, settled and counted, and none is run), a loop
  with a node that does nothing, and ``bare``, a generator that is sent what a function returns:
  the floor, without budget, cancellation or events.
* A node: a document that goes round one node, in plain code, awaited with an asynchronous and
  with a plain node (which costs two switches of threads, so that the event loop stays free), and
  iterated over. Peers: ``bare``, a loop over a dict of functions; LangGraph (``pip install
  langgraph``), left out where it is not installed.
* A node with the log: each graph is written down before it begins and after it has ended.
  ``commits`` appends the same two events by themselves, which is the floor for a log that does
  one after the other.
* A scatter of 10,000 items at concurrency 8, with bodies that are nodes and bodies that are
  documents. Peers: ``executor``, a thread pool's ``map``, and LangGraph's ``Send``.
* Memory of a scatter: the peak of ``tracemalloc`` over a stream of items of 10 KB, of which none
  is to be kept, against the bytes of all items; and the widest number of items alive.

Written to ``benchmarks/results/runtime.json``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import operator
import os
import platform
import statistics
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any, TypedDict

from sag_research.log import SQLiteEventStore
from sag_research.model import Event, Run
from sag_research.runtime import (
    Body,
    CancelToken,
    Document,
    Documents,
    ItemExecution,
    NodeSpec,
    Runtime,
    Scatter,
    SingleNode,
    Terminal,
    execute,
    graph,
    graph_step,
    plan,
)
from sag_research.runtime._loop_core import Course, Finished, Order, Tally, conduct

RESULT = Path(__file__).resolve().parent / "results" / "runtime.json"
MICRO = 1e6
LANES = 8
ITEM_BYTES = 10_000

Contender = Callable[[int], object]
"""Does so many units."""


# ---- taking turns


def compared(contenders: dict[str, Contender], units: int, rounds: int) -> dict[str, Any]:
    """Run the contenders in turns; returns microseconds a unit and the ratios to the first."""
    took: dict[str, list[tuple[float, float]]] = {name: [] for name in contenders}
    for work in contenders.values():
        work(max(1, units // 20))  # what is made once is not counted
    for number in range(rounds):
        for name in sorted(contenders, reverse=number % 2 == 0):
            wall, cpu = time.perf_counter(), time.process_time()
            contenders[name](units)
            took[name].append((time.perf_counter() - wall, time.process_time() - cpu))
    first = next(iter(contenders))

    def median(name: str, column: int) -> float:
        return round(statistics.median(t[column] for t in took[name]) / units * MICRO, 2)

    return {
        "units": units,
        "us": {name: median(name, 0) for name in contenders},
        "cpu_us": {name: median(name, 1) for name in contenders},
        f"to_{first}": {
            name: round(
                statistics.median(
                    mine[1] / its[1] for mine, its in zip(took[name], took[first], strict=True)
                ), 2,
            )
            for name in contenders
        },
    }  # fmt: skip


# ---- a step of a plan

ECHO = graph("echo").node("n", lambda value: value)


@plan(max_iterations=10**9)
def steps(count: int) -> Generator[Any, Any, int]:
    """So many graphs, one after the other."""
    for number in range(count):
        yield from graph_step(ECHO, number)
    return count


def bare_steps(count: int) -> None:
    """A generator that is sent what a function returns."""

    def body() -> Generator[int, int, None]:
        number = 0
        while number < count:
            yield number
            number += 1

    def echo(value: int) -> int:
        return value

    generator = body()
    value = next(generator, None)
    while value is not None:
        try:
            value = generator.send(echo(value))
        except StopIteration:
            return


def driver(count: int) -> None:
    """The plan driver, with graphs that are not run."""
    token = CancelToken(parent=CancelToken())
    core = conduct(Course("p", "l", Tally(10**9), token, {}, {}), steps(count))
    nothing: Any = Finished({})
    order: object = core.send(None)
    while isinstance(order, Order):
        try:
            order = core.send(nothing)
        except StopIteration:
            return


def step(units: int, rounds: int) -> dict[str, Any]:
    """Steps of plans."""
    with Runtime() as rt:
        contenders: dict[str, Contender] = {
            "driver": driver,
            "loop": lambda count: rt.loop(steps, count),
            "bare": bare_steps,
        }
        return compared(contenders, units, rounds)


# ---- a node of a document


def going_round(is_async: bool = False) -> tuple[Documents, Document]:
    """A document that goes round one node until ``left`` is none."""

    def act(state: Any, context: object) -> str:
        state["left"] -= 1
        return "more" if state["left"] else "enough"

    async def aact(state: Any, context: object) -> str:
        return act(state, context)

    node = NodeSpec("act", ("more", "enough"), aact if is_async else act)
    act_iri, end = "urn:bench:act", "urn:bench:end"
    placements = (
        SingleNode(act_iri, "act", "act", {"more": act_iri, "enough": end}),
        Terminal(end, "end", "completed"),
    )
    return Documents([node]), Document("urn:bench", "bench", "1", {"main": act_iri}, placements)


def checked(summary: Any) -> None:
    """Raise where a run did not come to its end: it would have been cheap."""
    if not summary.complete:
        raise RuntimeError(repr(summary))


def bare_nodes(count: int) -> None:
    """A loop over a dict of functions."""

    def act(state: dict[str, int]) -> str:
        state["left"] -= 1
        return "more" if state["left"] else "enough"

    nodes, routes = {"act": act}, {("act", "more"): "act", ("act", "enough"): "end"}
    here, state = "act", {"left": count}
    while here != "end":
        here = routes[here, nodes[here](state)]


def lang_graph_node() -> Contender | None:
    """LangGraph, round one node; each of its steps is one node and one choice of the next."""
    if peer_version("langgraph") is None:
        return None
    from langgraph.graph import END, START, StateGraph

    class State(TypedDict):
        left: int

    made = StateGraph(State)
    made.add_node("act", lambda state: {"left": state["left"] - 1})
    made.add_edge(START, "act")
    made.add_conditional_edges("act", lambda state: "act" if state["left"] else END, ["act", END])
    compiled = made.compile()
    return lambda count: compiled.invoke({"left": count}, {"recursion_limit": count + 5})


def node(units: int, rounds: int) -> dict[str, Any]:
    """Nodes of documents, without the log."""
    plain, awaited = going_round(), going_round(is_async=True)

    def ours(count: int) -> None:
        checked(execute(*plain, {"left": count}, max_steps=count).summary())

    def iterated(count: int) -> None:
        run = execute(*plain, {"left": count}, max_steps=count)
        if sum(1 for _ in run) != count:
            raise RuntimeError(repr(run))

    def on_a_loop(document: tuple[Documents, Document]) -> Contender:
        async def main(count: int) -> None:
            checked(await execute(*document, {"left": count}, max_steps=count))

        return lambda count: asyncio.run(main(count))

    contenders: dict[str, Contender] = {
        "ours": ours,
        "ours_iterated": iterated,
        "ours_awaited": on_a_loop(awaited),
        "ours_plain_node_awaited": on_a_loop(plain),
        "bare": bare_nodes,
    }
    if (theirs := lang_graph_node()) is not None:
        contenders["langgraph"] = theirs
    return compared(contenders, units, rounds)


def logged_node(units: int, rounds: int) -> dict[str, Any]:
    """Nodes of documents, with the log."""
    document = going_round()
    with (
        tempfile.TemporaryDirectory() as name,
        SQLiteEventStore(Path(name) / "ours.sqlite") as store,
        SQLiteEventStore(Path(name) / "commits.sqlite") as other,
    ):
        other.create_run(Run(run_id="r"))

        def ours(count: int) -> None:
            run = execute(*document, {"left": count}, max_steps=count, store=store)
            checked(run.summary())
            if store.head(run.loop_id).position != 2 * count + 2:
                raise RuntimeError(f"{run!r} is not written down")

        def commits(count: int) -> None:
            for number in range(count):
                payload = {"plan": "bench", "iteration": number, "graph": "urn:bench:act",
                           "nodes": ["act"]}  # fmt: skip
                for what in ("started", "completed"):
                    other.append(
                        Event(run_id="r", type=f"graph.{what}", payload=payload,
                              actor="runtime", frame="loop:bench")
                    )  # fmt: skip

        return compared({"ours": ours, "commits": commits}, units, rounds)


# ---- a scatter


def scattered(body: Body, documents: Documents) -> Document:
    """One scatter at concurrency 8, of whose items nothing is kept."""
    each, end = "urn:bench:each", "urn:bench:end"
    ports = ("all-success", "partial", "all-error", "empty")
    how = ItemExecution(LANES)
    placements = (
        Scatter(each, "each", "items", body, dict.fromkeys(ports, end), execution=how),
        Terminal(end, "end", "completed"),
    )
    return Document("urn:bench:many", "many", "1", {"main": each}, placements)


def working() -> Documents:
    """The body as a node, and as a document of that node."""

    def work(state: Any, context: object) -> str:
        state["output"] = state["currentItem"]
        return "success"

    documents = Documents([NodeSpec("work", ("success",), work)])
    run, end = "urn:bench:work", "urn:bench:done"
    placements = (
        SingleNode(run, "work", "work", {"success": end}), Terminal(end, "done", "completed"),
    )  # fmt: skip
    one = Document("urn:bench:one", "one", "1", {"main": run}, placements)
    return documents.register(one)


def lang_graph_send() -> Contender | None:
    """LangGraph's ``Send`` to one node for each item."""
    if peer_version("langgraph") is None:
        return None
    from langgraph.graph import END, START, StateGraph
    from langgraph.types import Send

    class State(TypedDict):
        items: list[int]
        out: Annotated[list[int], operator.add]

    made = StateGraph(State)
    made.add_node("work", lambda state: {"out": [state["item"]]})
    made.add_conditional_edges(
        START, lambda state: [Send("work", {"item": item}) for item in state["items"]], ["work"]
    )
    made.add_edge("work", END)
    compiled = made.compile()
    config: Any = {"max_concurrency": LANES}
    return lambda count: compiled.invoke({"items": list(range(count)), "out": []}, config)


def scatter(units: int, rounds: int) -> dict[str, Any]:
    """Items of scatters."""
    documents = working()
    by_node = scattered(Body(node="work"), documents)
    by_document = scattered(Body(dag="urn:bench:one"), documents)

    def ours(document: Document) -> Contender:
        def run(count: int) -> None:
            state = {"items": range(count)}
            checked(execute(documents, document, state, max_steps=count + 1).summary())

        return run

    def executor(count: int) -> None:
        with ThreadPoolExecutor(LANES) as pool:
            if len(list(pool.map(lambda item: {"output": item}, range(count)))) != count:
                raise RuntimeError("items were lost")

    contenders = {
        "ours": ours(by_node), "ours_documents": ours(by_document), "executor": executor,
    }  # fmt: skip
    if (theirs := lang_graph_send()) is not None:
        contenders["langgraph"] = theirs
    return compared(contenders, units, rounds)


class Item:
    """An item of 10 KB that counts how many there are."""

    alive = widest = 0

    def __init__(self) -> None:
        self.text = bytes(ITEM_BYTES)
        Item.alive += 1
        Item.widest = max(Item.widest, Item.alive)

    def __del__(self) -> None:
        Item.alive -= 1


def memory(count: int) -> dict[str, Any]:
    """What is in memory at the most while a stream of items goes through a scatter."""
    documents = working()
    document = scattered(Body(node="work"), documents)

    def stream() -> Iterator[Item]:
        for _ in range(count):
            yield Item()

    checked(execute(documents, document, {"items": range(9)}).summary())
    tracemalloc.start()
    checked(execute(documents, document, {"items": stream()}).summary())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return {
        "items": count,
        "bytes_of_items": count * ITEM_BYTES,
        "peak_bytes": peak,
        "peak_bytes_per_item": round(peak / count, 1),
        "items_alive_at_most": Item.widest,
    }


# ---- all together


def peer_version(name: str) -> str | None:
    """Version of a peer, if it is here."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def main() -> None:
    """Run and write the result."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--quick", action="store_true", help="a tenth of the units, 3 rounds")
    options = parser.parse_args()
    share, rounds = (10, 3) if options.quick else (1, options.rounds)
    result = {
        "step": step(20_000 // share, rounds),
        "node": node(5_000 // share, rounds),
        "node_with_log": logged_node(2_000 // share, rounds),
        "scatter": scatter(10_000 // share, rounds),
        "scatter_memory": memory(10_000 // share),
        "langgraph": peer_version("langgraph") or "skipped: not installed",
        "machine": {
            "cores": os.cpu_count(),
            "load": os.getloadavg()[0],
            "python": platform.python_version(),
        },
    }
    path = RESULT.with_stem("runtime-quick") if options.quick else RESULT
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
