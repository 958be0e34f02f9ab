"""In whose name code emits and asks: the run, and inside a behaviour the event it answers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, NamedTuple

from sag_research.model import Event
from sag_research.runtime._patterns import Match
from sag_research.runtime._triggers import Behavior

__all__ = ["Scope", "current", "entered"]


class Scope(NamedTuple):
    """What holds inside a ``with`` block; inner ones hide outer ones of the same runtime."""

    owner: object
    run_id: str
    behavior: Behavior | None = None
    event: Event | None = None
    depth: int = 0
    matched: tuple[Event, ...] = ()
    objects: Match | None = None
    outer: Scope | None = None


_scope: Final[ContextVar[Scope | None]] = ContextVar("sag_research_scope", default=None)


def current(owner: object) -> Scope | None:
    """Return the innermost scope of a runtime."""
    scope = _scope.get()
    while scope is not None and scope.owner is not owner:
        scope = scope.outer
    return scope


@contextmanager
def entered(scope: Scope) -> Iterator[None]:
    """Make a scope hold inside the block, in this thread or task alone."""
    token = _scope.set(scope._replace(outer=_scope.get()))
    try:
        yield
    finally:
        _scope.reset(token)
