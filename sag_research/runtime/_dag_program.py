"""A document with all that it names found, so that nothing is missing when it runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol, TypeAlias

from sag_research._text import clip
from sag_research.errors import UsageError
from sag_research.runtime._dag_document import (
    DagReference,
    Document,
    EmbeddedDag,
    Gather,
    Phase,
    Placement,
    Scatter,
    SingleNode,
    Terminal,
    kind_of,
)
from sag_research.runtime._dag_gather import (
    ALL,
    REDUCERS,
    STRATEGIES,
    Needs,
    Records,
    Strategy,
    needs_of,
)
from sag_research.runtime._dag_path import MISSING, look
from sag_research.runtime._dag_registered import TOOL_PREFIX, Documents, NodeSpec, State
from sag_research.runtime._loop_node import is_async

__all__ = ["Answer", "Program", "Programs", "Reduce", "answer", "entry_of", "tool_program"]

Reduce: TypeAlias = Callable[[Records], str]


class Program(NamedTuple):
    """One document, ready to be run."""

    document: Document
    by_id: Mapping[str, Placement]
    specs: Mapping[str, NodeSpec]
    """By the IRI of a placement: the node that it, or the body of its scatter, runs."""
    reducers: Mapping[str, Reduce]
    strategies: Mapping[str, Strategy]
    needs: Mapping[str, Needs]
    """By the IRI of a scatter: what must be kept of its items."""
    inner: tuple[str, ...]
    """IRIs of the documents that its placements run."""
    is_async: bool
    """Whether a node of its own is asynchronous."""


class Answer(NamedTuple):
    """What a node returned: a port, and what it gave beside it."""

    port: str
    value: Any = None


def answer(spec: NodeSpec, returned: object) -> Answer:
    """Return what a node returned, if it is a port or a port and a value.

    Raises
    ------
    UsageError
    """
    value = None
    if isinstance(returned, tuple) and len(returned) == 2:
        returned, value = returned
    if not isinstance(returned, str) or returned not in spec.ports:
        raise UsageError(
            f"node {spec.name!r} returned {clip(repr(returned))}, which is no port of it",
            why=f"its ports are {', '.join(spec.ports)}", fix="return one, or (port, value)",
        )  # fmt: skip
    return Answer(returned, value)


class Programs:
    """The programs of a document and of all that it runs, by IRI.

    Raises
    ------
    UsageError
        If something is named that is not registered, or is never run; nothing has run then.
    """

    def __init__(self, documents: Documents, document: Document) -> None:
        self._documents, self.main = documents, document
        self._known: dict[str, Program] = {}
        waiting = [document]
        while waiting:
            found = waiting.pop()
            if found.id not in self._known:
                program = self._known[found.id] = _program(documents, found)
                waiting += [self._find(iri) for iri in program.inner if not self.tool(iri)]

    def tool(self, iri: str) -> Any:
        """Return the tool that an IRI names, ``None`` where it names a document."""
        if iri in self._documents.documents or not iri.startswith(TOOL_PREFIX):
            return None
        return self._documents.tools.get(iri.removeprefix(TOOL_PREFIX))

    def __getitem__(self, iri: str) -> Program:
        return self._known[iri]

    def _find(self, iri: str) -> Document:
        found = self.main if iri == self.main.id else self._documents.documents.get(iri)
        if found is None:
            raise UsageError(
                f"there is no document {clip(iri)!r}", why=f"{clip(self.main.name)!r} runs it",
                fix="register it",
            )  # fmt: skip
        return found

    def is_async(self, iri: str) -> bool:
        """Whether a document, or one that it runs, has an asynchronous node."""
        seen, waiting = set[str](), [iri]
        while waiting:
            if (one := waiting.pop()) not in seen and not self.tool(one):
                seen.add(one)
                if self._known[one].is_async:
                    return True
                waiting += self._known[one].inner
        return False


def entry_of(document: Document, entry: str) -> str:
    """Return the IRI of the placement where a document begins.

    Raises
    ------
    UsageError
        If it has no such entry.
    """
    if entry not in document.entrypoints:
        raise UsageError(
            f"document {clip(document.name)!r} has no entry {entry!r}",
            fix=f"its entries are {', '.join(map(repr, document.entrypoints)) or 'none'}",
        )
    return document.entrypoints[entry]


def _program(documents: Documents, document: Document) -> Program:
    specs: dict[str, NodeSpec] = {}
    reducers: dict[str, Reduce] = {}
    strategies: dict[str, Strategy] = {}
    inner: list[str] = []
    for one in document.placements:
        if isinstance(one, Phase):
            raise UsageError(
                f"placement {clip(one.name)!r} is a phase, and phases are not run",
                why="they are checked and drawn only", fix="make it a SingleNode on the way",
            )  # fmt: skip
        if isinstance(one, SingleNode):
            specs[one.id] = _named(documents.nodes, one.node, one, "node")
        elif isinstance(one, Scatter):
            reducers[one.id] = _reducer(documents, one)
            if one.body.node:
                specs[one.id] = _named(documents.nodes, one.body.node, one, "node")
            else:
                dag = one.body.dag
                inner += dag.candidates if isinstance(dag, DagReference) else [dag]
        elif isinstance(one, Gather):
            strategies[one.id] = _strategy(documents, one)
        elif isinstance(one, EmbeddedDag):
            inner.append(one.dag)
    awaits = any(is_async(spec.run) for spec in specs.values())
    needs = _needs(document)
    return Program(
        document, document.by_id, specs, reducers, strategies, needs, tuple(inner), awaits
    )


def _needs(document: Document) -> dict[str, Needs]:
    needs: dict[str, Needs] = {}
    for one in document.placements:
        if isinstance(one, Scatter) and one.reducer not in REDUCERS:
            needs[one.id] = ALL
        if isinstance(one, Gather):
            for source in one.sources:
                needs[source] = needs.get(source, Needs()) | needs_of(one.strategy, one.mapping)
    return needs


class _Run(Protocol):
    """Something registered that has a function."""

    @property
    def run(self) -> Callable[..., Any]: ...


def _named(known: Mapping[str, Any], name: str, one: Placement, what: str) -> Any:
    if name not in known:
        raise UsageError(
            f"{kind_of(one)} {clip(one.name)!r} names {what} {clip(name)!r}",
            why="it is not registered", fix=f"register the {what} first",
        )  # fmt: skip
    return known[name]


def _reducer(documents: Documents, one: Scatter) -> Reduce:
    if one.reducer in REDUCERS:
        return REDUCERS[one.reducer].run
    spec: _Run = _named(documents.reducers, one.reducer, one, "reducer")
    return spec.run


def _strategy(documents: Documents, one: Gather) -> Strategy:
    if one.strategy in STRATEGIES:
        return STRATEGIES[one.strategy]
    name = one.function if one.strategy == "custom" else one.strategy
    spec: _Run = _named(documents.strategies, name, one, "strategy")
    return spec.run


# ---- a tool as a document of one node


def tool_program(tool: Any, item_key: str = "") -> Program:
    """Return a tool as a document of one node, which leaves what came of the call as ``output``.

    Parameters
    ----------
    tool : Tool
    item_key : str
        Where in the state the call stands; empty where its parts are the state's own.
    """
    iri, end, failed = (f"{TOOL_PREFIX}{tool.name}{part}" for part in ("", "#done", "#failed"))
    run = SingleNode(f"{iri}#run", tool.name, iri, {"success": end, "error": failed})
    placements = (
        run, Terminal(end, "done", "completed"), Terminal(failed, "failed", "failed"),
    )  # fmt: skip
    key = f"{iri}#{item_key}"  # the same tool is another program where its call stands elsewhere
    document = Document(key, iri, getattr(tool, "version", ""), {"main": run.id}, placements)

    def call(state: State, _: object) -> tuple[str, Any]:
        item = look(state, item_key) if item_key else state
        asked = look(item, "call")
        asked = item if asked is MISSING else asked
        arguments = look(asked, "arguments")
        result = tool.call({} if arguments is MISSING else arguments)
        told = {"status": result.status, "observation": result.text}
        if (name := look(asked, "id")) is not MISSING:
            told["id"] = name
        state["output"] = told
        return ("success" if result.error is None else "error"), told

    spec = NodeSpec(iri, ("success", "error"), call)
    return Program(document, document.by_id, {run.id: spec}, {}, {}, {}, (), False)
