"""Graphs that go on where another process left them: after each wave of nodes it is written down.

A wave is what can begin at the same time. Between two waves nothing is under way, so what is
done is known; what was under way when a process died is not, and a graph does not go on over
that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol

import msgspec

from sag_research._text import clip
from sag_research.errors import UsageError
from sag_research.log import canonical_digest
from sag_research.runtime._loop_errors import CheckpointMismatchError, UncertainError
from sag_research.runtime._loop_graph import Graph, GraphStep, NodeResult, Work
from sag_research.runtime._loop_node import Bound, BoundNode, Progress

__all__ = ["GraphCheckpoint", "Waves", "checkpoint_key", "fingerprints"]

_FINGERPRINTS: Final = ("shape", "input", "version")


class GraphCheckpoint(Protocol):
    """Where a graph keeps what is done; a loop's checkpoint will do."""

    def load(self, loop: str) -> Mapping[str, Any] | None:
        """Return what was saved last under a name, ``None`` where nothing was."""
        ...

    def save(self, loop: str, record: Mapping[str, Any]) -> object:
        """Keep a record ``{shape, input, version, completed, uncertain, whole}``."""
        ...


def checkpoint_key(graph: Graph) -> str:
    """Return the name under which a graph is kept.

    Examples
    --------
    >>> checkpoint_key(Graph("build"))
    'graph:build'
    """
    return f"graph:{graph.id}"


def fingerprints(graph: Graph, input: Any, version: str) -> dict[str, str]:
    """Return what must be equal for a graph to go on: of its shape, its input and its version.

    Raises
    ------
    BadPayloadError
        If the input is no plain JSON data.
    """
    shape = [
        {"id": node.id, "deps": list(node.deps), "work": _name(node.work),
         "bind": "" if node.bind is None else _name(node.bind)}
        for node in graph.nodes.values()
    ]  # fmt: skip
    return {
        "shape": canonical_digest({"graph": graph.id, "nodes": shape}),
        "input": canonical_digest({"input": input}),
        "version": version,
    }


def _name(work: str | Work | Any) -> str:
    if isinstance(work, str):
        return work
    named = work if hasattr(work, "__qualname__") else type(work)
    return f"{named.__module__}.{named.__qualname__}"


class _Record(msgspec.Struct):
    """What is kept, beside the fingerprints."""

    completed: dict[str, NodeResult[Any]]
    uncertain: list[str]
    whole: bool


class Waves(Progress):
    """Progress of a graph that is written down between its waves.

    Raises
    ------
    CheckpointMismatchError
        If what was kept is of another shape, input or version, or damaged.
    UncertainError
        If a node had begun when that was kept and nobody has said what became of it.
    UsageError
        If something is said of a node that is not uncertain.
    """

    def __init__(self, bound: Bound, step: GraphStep) -> None:
        super().__init__(bound)
        if step.checkpoint is None:
            raise UsageError(f"graph {bound.graph.id!r} has no checkpoint")
        self._checkpoint: GraphCheckpoint = step.checkpoint
        self._prints = fingerprints(bound.graph, step.input, step.version)
        self._begun: set[str] = set()
        self._wave: list[str] = []
        self._is_told = False
        found = self._checkpoint.load(checkpoint_key(bound.graph))
        known = {} if found is None else self._known(found, step.settled)
        if found is None and step.settled:
            raise _not_uncertain(sorted(step.settled))
        self.ready.clear()
        self._wave = [name for name, waits in self._waits.items() if not waits]
        for name in bound.nodes:  # in the order of declaration, so what it waits for comes before
            if name in known and name in self._wave:
                self._wave.remove(name)
                self.done(name, known[name])
        self._is_told = found is not None and bool(found["whole"])

    def _known(
        self, found: Mapping[str, Any], settled: Mapping[str, NodeResult[Any] | None]
    ) -> dict[str, NodeResult[Any]]:
        """Return the results that are kept or were settled since."""
        graph = self._bound.graph
        kept: Any = found
        if not isinstance(kept, Mapping):
            raise _damaged(graph, f"it is {clip(repr(kept))}")
        for name in _FINGERPRINTS:
            if found.get(name) != self._prints[name]:
                raise CheckpointMismatchError(
                    f"graph {graph.id!r} cannot go on from its checkpoint",
                    why=f"that is of another {name}", fix="go on as it was begun, or begin anew",
                )  # fmt: skip
        record = self._read(found)
        if strangers := [name for name in settled if name not in record.uncertain]:
            raise _not_uncertain(strangers)
        if left := [name for name in record.uncertain if name not in settled]:
            raise UncertainError(graph.id, left)
        told = {name: result for name, result in settled.items() if result is not None}
        return record.completed | told

    def _read(self, found: Mapping[str, Any]) -> _Record:
        graph = self._bound.graph
        try:
            record = msgspec.convert(dict(found), _Record)
        except msgspec.ValidationError as error:
            raise _damaged(graph, str(error)) from error
        if strangers := {*record.completed, *record.uncertain} - {*graph.nodes}:
            raise _damaged(graph, f"there is no node {clip(min(strangers))!r}")
        if record.whole and len(record.completed) < len(graph.nodes):
            raise _damaged(graph, "it is said to be whole, and results are missing")
        return record

    # ---- as the graph goes

    def take(self) -> tuple[BoundNode, dict[str, NodeResult[Any]]]:
        """Return a node that can begin; from then on it is not known what it does."""
        self._begun.add(self.ready[0])
        return super().take()

    def done(self, name: str, result: NodeResult[Any]) -> None:
        """Note what a node reported; what waited for it is for the next wave."""
        self.results[name] = result
        self._begun.discard(name)
        for other in self._bound.after[name]:
            self._waits[other] -= 1
            if not self._waits[other]:
                self._wave.append(other)

    def failed(self, name: str, error: BaseException) -> None:
        """Note that a node raised. It has come to its end, so it may be run again."""
        if isinstance(error, Exception):
            self._begun.discard(name)
        super().failed(name, error)

    def turn(self) -> bool:
        """Write down what is done, and let the next wave begin where there is one."""
        if self._is_told:
            return False
        self._is_told = self.stopped or not self._wave
        if self._is_told:
            self._save(sorted(self._begun))
            return False
        self._save(sorted(self._wave))
        self.ready.extend(self._wave)
        self._wave.clear()
        return True

    def _save(self, uncertain: list[str]) -> None:
        completed = {name: msgspec.to_builtins(one) for name, one in self.results.items()}
        record = {"completed": completed, "uncertain": uncertain, "whole": self.is_whole}
        self._checkpoint.save(checkpoint_key(self._bound.graph), {**self._prints, **record})


def _damaged(graph: Graph, why: str) -> CheckpointMismatchError:
    return CheckpointMismatchError(
        f"the checkpoint of graph {graph.id!r} is damaged", why=why, fix="begin anew"
    )


def _not_uncertain(names: list[str]) -> UsageError:
    return UsageError(f"node {clip(names[0])!r} is not uncertain", fix="settle only what is")
