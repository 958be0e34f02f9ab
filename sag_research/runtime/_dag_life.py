"""How the run of a document goes and ends, and where it may be taken up again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias, get_args

import msgspec

from sag_research.errors import SagError, UsageError

__all__ = [
    "AwaitingInputError", "Cursor", "Lifecycle", "LifecycleError", "LifecycleName", "RoutingError",
]  # fmt: skip

LifecycleName: TypeAlias = Literal[
    "new", "running", "completed", "failed", "cancelled", "timed_out", "awaiting-input"
]
"""Where a run stands; the last five are ends."""

_ENDS: Final = frozenset(get_args(LifecycleName)[2:])
_NEXT: Final[Mapping[str, frozenset[str]]] = {
    "new": frozenset({"running", "cancelled"}),
    "running": _ENDS,
}


class LifecycleError(UsageError):
    """A run was to go from one state to another that does not come after it."""


class RoutingError(SagError):
    """A run cannot go on, because nothing says where to."""


class AwaitingInputError(SagError):
    """Raised by a node that cannot go on before somebody has answered.

    The run ends as ``awaiting-input``; put the answer into the state and go on from its cursor,
    which is at the same node.

    Examples
    --------
    >>> str(AwaitingInputError("may the file be removed?"))
    'may the file be removed?'
    """


class Lifecycle:
    """Where a run stands. An end is kept for good.

    Examples
    --------
    >>> life = Lifecycle()
    >>> life.become("running"); life.become("completed")
    >>> life
    Lifecycle('completed')
    >>> life.become("failed")
    Traceback (most recent call last):
    sag_research.runtime._dag_life.LifecycleError: a run that is 'completed' cannot become ...
    """

    def __init__(self) -> None:
        self.name: LifecycleName = "new"

    def __repr__(self) -> str:
        return f"Lifecycle({self.name!r})"

    @property
    def is_over(self) -> bool:
        """Whether the run has ended."""
        return self.name in _ENDS

    def become(self, name: LifecycleName) -> None:
        """Go on to another state.

        Raises
        ------
        LifecycleError
            If that does not come after this one.
        """
        if name not in _NEXT.get(self.name, ()):
            raise LifecycleError(
                f"a run that is {self.name!r} cannot become {name!r}",
                why="an end is kept for good" if self.is_over else "that does not come next",
                fix="execute the document again, from the cursor where there is one",
            )
        self.name = name


class Cursor(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where a run goes on: the placement that comes next. Plain data, as long as states are.

    Examples
    --------
    >>> Cursor("urn:x:ask").placement
    'urn:x:ask'
    """

    placement: str
    """Its IRI."""
    begun: bool = False
    """Whether it had been begun: a scatter then does the items that are not done."""
    visits: Mapping[str, int] = {}
    """How often each scatter has been begun, by IRI; the items that are done are kept by that."""
    taken: Mapping[str, int] = {}
    """Which visit's records each gather has taken, by its IRI and the scatter's."""
    inner: Cursor | None = None
    """Where the document goes on that is embedded at the placement."""
    state: Mapping[str, Any] = {}
    """State of the embedded document, for ``inner``."""
