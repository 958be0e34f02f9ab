"""The context in which behaviours ask models, tools and the outside world."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any, Final

from sag_research.llm import Asked, Chunk, Context, Identity, Model, Reply
from sag_research.log import SQLiteEventStore

__all__ = ["ANSWERED_BY", "FRAME", "BehaviorContext"]

FRAME: Final = "behavior"
"""Frame of the events that behaviours write; a replay makes these anew and takes others as given.
It stands in the envelope, outside the digested history."""

ANSWERED_BY: Final = "behavior"
"""Actor of the calls that behaviours make."""


class BehaviorContext(Context):
    """A :class:`Context` whose asks are caused by the event that the behaviour answers.

    Parameters
    ----------
    store, run, options
        As for :class:`Context`.
    caused_by : callable
        Returns the position of that event, if there is one.
    """

    def __init__(
        self,
        store: SQLiteEventStore,
        run: str,
        caused_by: Callable[[], int | None],
        **options: Any,
    ) -> None:
        super().__init__(store, run, actor=ANSWERED_BY, frame=FRAME, **options)
        self._caused_by = caused_by

    def _cause(self, cause: int | None) -> int | None:
        return self._caused_by() if cause is None else cause

    def llm(
        self, model: Model | Identity | None, asked: Asked, *, cause: int | None = None
    ) -> Reply:
        """Ask a model; see :meth:`Context.llm`."""
        return super().llm(model, asked, cause=self._cause(cause))

    def stream(
        self, model: Model | Identity | None, asked: Asked, *, cause: int | None = None
    ) -> Generator[Chunk, None, None]:
        """Ask a model and take the answer in parts; see :meth:`Context.stream`."""
        return super().stream(model, asked, cause=self._cause(cause))

    def tool(
        self,
        name: str,
        fn: Callable[..., Any],
        arguments: Mapping[str, Any] | None = None,
        *,
        version: str = "",
        cause: int | None = None,
    ) -> Any:
        """Call a tool; see :meth:`Context.tool`."""
        return super().tool(name, fn, arguments, version=version, cause=self._cause(cause))

    async def atool(
        self,
        name: str,
        fn: Callable[..., Any],
        arguments: Mapping[str, Any] | None = None,
        *,
        version: str = "",
        cause: int | None = None,
    ) -> Any:
        """Call a tool without blocking the event loop; see :meth:`Context.atool`."""
        caused_by = self._cause(cause)
        return await super().atool(name, fn, arguments, version=version, cause=caused_by)
