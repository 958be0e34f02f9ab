"""What the tests of documents that run share: short ways to write them, and drivers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from sag_research.runtime import (
    Body,
    Document,
    Documents,
    EmbeddedDag,
    Execution,
    Gather,
    ItemExecution,
    NodeDone,
    NodeSpec,
    Placement,
    Scatter,
    SingleNode,
    Summary,
    Terminal,
    execute,
)
from sag_research.runtime._dag_document import routes_of

BASE = "urn:x:"
END, FAILED = Terminal(f"{BASE}end", "end", "completed"), Terminal(f"{BASE}bad", "bad", "failed")


def at(name: str) -> str:
    """IRI of a placement."""
    return BASE + name


def to(outputs: Mapping[str, str]) -> dict[str, str]:
    return {port: at(name) for port, name in outputs.items()}


def single(name: str, node: str = "", /, **outputs: str) -> SingleNode:
    return SingleNode(at(name), name, node or name, to(outputs))


def scatter(name: str, body: Body, outputs: Mapping[str, str], **more: Any) -> Scatter:
    more.setdefault("source", "items")
    return Scatter(at(name), name, body=body, outputs=to(outputs), **more)


def gather(name: str, sources: list[str], strategy: str, **more: Any) -> Gather:
    outputs = more.pop("outputs", {"success": "end", "error": "end", "empty": "end"})
    return Gather(at(name), name, tuple(map(at, sources)), strategy, to(outputs), **more)


def embedded(name: str, dag: str, /, **more: Any) -> EmbeddedDag:
    outputs = more.pop("outputs", {"completed": "end", "failed": "bad"})
    return EmbeddedDag(at(name), name, at(dag), to(outputs), **more)


def doc(name: str, entry: str, *placements: Placement) -> Document:
    """A document with an entry ``main``, and of the terminals ``end`` and ``bad`` those it uses."""
    used = {at(entry), *(target for one in placements for target in routes_of(one).values())}
    ends = [one for one in (END, FAILED) if one.id in used]
    return Document(at(name), name, "1", {"main": at(entry)}, (*placements, *ends))


ANY = dict.fromkeys(("all-success", "partial", "all-error", "empty"), "end")


def scattered(work: Callable[..., Any], items: Any, ports: tuple[str, ...] = ("success", "error"),
              **more: Any) -> tuple[Documents, Document, dict[str, Any]]:  # fmt: skip
    """A scatter of a node, whose records are gathered into ``out``, and the state for it."""
    execution = ItemExecution(more.pop("concurrency", 1), more.pop("throttle", None))
    more.setdefault("execution", execution)
    join = gather("join", ["each"], "collect", target="out")
    one = scatter("each", Body(node="work"), dict.fromkeys(ANY, "join"), **more)
    documents = Documents([NodeSpec("work", ports, work)])
    return documents, doc("many", "each", one, join), {"items": items}


def plainly(run: Execution) -> Summary:
    return run.summary()


def awaited(run: Execution) -> Summary:
    async def main() -> Summary:
        return await run

    return asyncio.run(main())


def iterated(run: Execution) -> Summary:
    for _ in run:
        pass
    return run.summary()


def aiterated(run: Execution) -> Summary:
    async def main() -> Summary:
        async for _ in run:
            pass
        return await run

    return asyncio.run(main())


WAYS: dict[str, Callable[[Execution], Summary]] = {
    "plain": plainly, "await": awaited, "for": iterated, "async for": aiterated,
}  # fmt: skip


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> Callable[[Execution], Summary]:
    """One of four ways to run a document; each must give the same."""
    return WAYS[request.param]


@pytest.fixture(params=["plain", "await"])
def end(request: pytest.FixtureRequest) -> Callable[[Execution], Summary]:
    """Plain code or an event loop."""
    return WAYS[request.param]


def trace(run: Execution) -> list[tuple[str, str]]:
    """Placements and ports, in their order."""
    return [(done.placement, done.port) for done in run]


def counting(limit: int) -> tuple[Documents, Document]:
    """A node that adds one to ``n``, again and again until it is at a limit."""
    documents = Documents()

    @documents.node("add", ports=("more", "enough"))
    def add(state: dict[str, Any], context: object) -> str:
        state["n"] = state.get("n", 0) + 1
        return "more" if state["n"] < limit else "enough"

    return documents, doc("count", "add", single("add", more="add", enough="end"))


__all__ = [
    "ANY", "WAYS", "NodeDone", "at", "awaited", "counting", "doc", "embedded", "end", "execute",
    "gather", "plainly", "scatter", "scattered", "single", "trace", "way",
]  # fmt: skip
