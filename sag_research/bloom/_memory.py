"""Memory as a tool: what an agent may ask about past runs."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Protocol, Self

from sag_research.bloom._recall import Recall

__all__ = ["MemoryTool", "Remembers"]


class Remembers(Protocol):
    """A workspace, or whatever recalls like one."""

    def recall(self, names: Sequence[str] = (), **options: Any) -> Recall:
        """Find past runs; see :func:`sag_research.bloom.recall`."""


class MemoryTool:
    """What past runs did about the same things, in the shape that a tool call returns.

    Parameters
    ----------
    ws : Workspace
    run : str, optional
        The run that asks, as ``ws.resolve`` takes it: neither it nor its forks and copies are
        ever part of an answer.
    k : int
        So many runs at most in an answer.

    Examples
    --------
    >>> import sag_research as sag
    >>> with sag.open(":memory:") as ws, MemoryTool(ws) as memory:
    ...     _ = ws.add({"task_id": "t", "outcome": "success", "steps": [
    ...         {"action": "psql", "observation": "cannot reach postgres: timed out"}]})
    ...     paths = memory.query_past_trajectories(["pg"])
    >>> sorted({label for node in paths["nodes"] for label in node["labels"]})
    ['Entity', 'Event', 'Run']
    """

    def __init__(self, ws: Remembers, *, run: str | None = None, k: int = 5) -> None:
        self._ws = ws
        self.run = run
        self.k = k

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Leave the workspace open: it belongs to the caller."""

    def __repr__(self) -> str:
        asks = f", run={self.run!r}" if self.run else ""
        return f"MemoryTool({self._ws!r}{asks})"

    def query_past_trajectories(
        self, entity_names: Sequence[str], steps: int = 2, *, failures: int = 0, **options: Any
    ) -> dict[str, list[dict[str, Any]]]:
        """Return the paths of past runs that succeeded and met these entities.

        Parameters
        ----------
        entity_names : sequence of str
            Names or ids; aliases count.
        steps : int
            Steps before and after each match along NEXT.
        failures : int
            So many failed runs beside them, marked ``warning``.
        **options
            As for :func:`sag_research.bloom.recall`.

        Returns
        -------
        dict
            ``{"nodes": [{"id", "labels", "properties"}], "relationships": [{"type", "start",
            "end", "properties"}]}``; both empty where nothing is known.
        """
        return self.recall(entity_names, neighbours=steps, failures=failures, **options).to_dict()

    def recall(self, entity_names: Sequence[str] = (), **options: Any) -> Recall:
        """Return the same as a :class:`Recall`, without names by the asking run's steps so far."""
        return self._ws.recall(entity_names, **({"run": self.run, "k": self.k} | options))

    def prompt(
        self, entity_names: Sequence[str] = (), max_tokens: int = 400, **options: Any
    ) -> str:
        """Return the same as a short text for a model; see :meth:`Recall.prompt`."""
        return self.recall(entity_names, **options).prompt(max_tokens)
