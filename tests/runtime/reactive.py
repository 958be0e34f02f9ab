"""What the tests of the reactive runtime and of replay share: a log, and three ways to dispatch."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sag_research.log import SQLiteEventStore
from sag_research.model import Event, Run
from sag_research.runtime import Budget, DispatchReport, ReactiveRuntime

Dispatch = Callable[..., DispatchReport]


def plainly(runtime: ReactiveRuntime, budget: Budget | None = None) -> DispatchReport:
    return runtime.dispatch_loop(budget)


def awaiting(runtime: ReactiveRuntime, budget: Budget | None = None) -> DispatchReport:
    return asyncio.run(runtime.adispatch_loop(budget))


def on_a_thread(runtime: ReactiveRuntime, budget: Budget | None = None) -> DispatchReport:
    return runtime.start(budget).result(timeout=30)


DRIVERS: dict[str, Dispatch] = {"sync": plainly, "async": awaiting, "thread": on_a_thread}


@pytest.fixture(params=DRIVERS)
def dispatch(request: pytest.FixtureRequest) -> Dispatch:
    """One of three ways to dispatch; each must give the same."""
    return DRIVERS[request.param]


@pytest.fixture
def store() -> Iterator[SQLiteEventStore]:
    with SQLiteEventStore(":memory:") as opened:
        opened.create_run(Run(run_id="r1", goal="mend the parser"))
        yield opened


@pytest.fixture
def runtime(store: SQLiteEventStore) -> Iterator[ReactiveRuntime]:
    with ReactiveRuntime(store=store) as made:
        yield made


def written(store: SQLiteEventStore, run_id: str = "r1", lo: int = 2) -> list[tuple[Any, ...]]:
    """Type, cause and actor of a run's events after its first."""
    return [(event.type, event.cause, event.actor) for event in store.read(run_id, lo=lo)]


def types(store: SQLiteEventStore, run_id: str = "r1", lo: int = 2) -> list[str]:
    return [event.type for event in store.read(run_id, lo=lo)]


def facts(store: SQLiteEventStore, type_: str) -> list[Event]:
    """Events about runs, which stand on the workspace's run."""
    return list(store.read("@workspace", types=[type_])) if store.has_run("@workspace") else []
