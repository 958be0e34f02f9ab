"""What the tests of loops share: three drivers of one core, and small graphs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sag_research.log import SQLiteEventStore
from sag_research.runtime import Graph, GraphEvent, Runtime, graph

Drive = Callable[..., Any]
PATIENCE = 30


def plainly(rt: Runtime, definition: Any, input: Any = None, **options: Any) -> Any:
    return rt.loop(definition, input, **options)


def awaiting(rt: Runtime, definition: Any, input: Any = None, **options: Any) -> Any:
    return asyncio.run(rt.aloop(definition, input, **options))


def on_a_thread(rt: Runtime, definition: Any, input: Any = None, **options: Any) -> Any:
    return rt.start(definition, input, **options).result(timeout=PATIENCE)


DRIVERS: dict[str, Drive] = {"sync": plainly, "async": awaiting, "thread": on_a_thread}


@pytest.fixture(params=DRIVERS)
def drive(request: pytest.FixtureRequest) -> Drive:
    """One of three ways to run a loop; each must give the same."""
    return DRIVERS[request.param]


@pytest.fixture
def rt() -> Iterator[Runtime]:
    with Runtime() as made:
        yield made


@pytest.fixture
def store() -> Iterator[SQLiteEventStore]:
    with SQLiteEventStore(":memory:") as opened:
        yield opened


def one(id: str, work: Any) -> Graph:
    """A graph of the one node ``n``."""
    return graph(id).node("n", work)


def boom(error: BaseException) -> Callable[[Any], Any]:
    """Work that raises an error."""

    def work(_: Any) -> Any:
        raise error

    return work


ECHO = one("echo", lambda value: value)


class Seen(list[GraphEvent]):
    """An observer that keeps what it is told."""

    def __call__(self, event: GraphEvent) -> None:
        self.append(event)

    @property
    def short(self) -> list[tuple[int, str, str]]:
        return [(event.iteration, event.graph_id, event.status) for event in self]
