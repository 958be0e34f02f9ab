"""What documents may name: nodes, reducers, ways to gather, tools and other documents."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from copy import deepcopy
from types import MappingProxyType
from typing import Any, Final, Protocol, TypeAlias, TypeVar

import msgspec

from sag_research._text import clip
from sag_research.errors import UsageError
from sag_research.runtime._dag_document import (
    REDUCER_PORTS,
    STRATEGIES,
    Document,
    DocumentError,
    Fault,
)
from sag_research.runtime._loop_graph import named
from sag_research.runtime._loop_node import is_async

__all__ = [
    "TOOL_PREFIX", "Documents", "GatherSpec", "NamedTool", "NodeRun", "NodeSpec", "ReducerSpec",
    "State",
]  # fmt: skip

TOOL_PREFIX: Final = "tool:"
"""The document of a tool has this before the tool's name."""

_TOOL_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}", re.ASCII)

State: TypeAlias = MutableMapping[str, Any]
"""What the nodes of a run share."""

NodeRun: TypeAlias = Callable[[Any, Any], Any]
"""``run(state, context)`` returns a port, or a port and a value; it may be ``async def``."""

F = TypeVar("F", bound=Callable[..., Any])


class NamedTool(Protocol):
    """All that is asked of a tool here; what it does is the executor's matter."""

    @property
    def name(self) -> str:
        """Its name; the document ``tool:<name>`` is it as a document of one node."""
        ...


T = TypeVar("T", bound=NamedTool)


class NodeSpec(msgspec.Struct, frozen=True):
    """An implementation: its name, the ports it may leave by, and the function."""

    name: str
    ports: tuple[str, ...]
    run: NodeRun


class ReducerSpec(msgspec.Struct, frozen=True):
    """What makes one port of a scatter out of its records, in the order of the source."""

    name: str
    ports: tuple[str, ...]
    run: Callable[..., Any]


class GatherSpec(msgspec.Struct, frozen=True):
    """A strategy for ``custom`` gathers."""

    name: str
    run: Callable[..., Any]


class Documents:
    """What is registered: documents, and all that they may name.

    Examples
    --------
    >>> from sag_research.runtime import SingleNode, Terminal
    >>> documents = Documents()
    >>> @documents.node("say-hello", ports=("done",))
    ... def say_hello(state, context):
    ...     state["said"] = "hello"
    ...     return "done"
    >>> hello, end = "urn:sag:dag:greet:hello", "urn:sag:dag:greet:end"
    >>> greet = Document(
    ...     "urn:sag:dag:greet",
    ...     "greet",
    ...     "1",
    ...     {"main": hello},
    ...     (
    ...         SingleNode(hello, "hello", "say-hello", {"done": end}),
    ...         Terminal(end, "end", "completed"),
    ...     ),
    ... )
    >>> documents.register(greet)
    Documents(1 document, 1 node)
    """

    def __init__(
        self,
        nodes: Iterable[NodeSpec] = (),
        tools: Iterable[NamedTool] = (),
    ) -> None:
        self._lock = threading.RLock()
        self._nodes: dict[str, NodeSpec] = {}
        self._reducers: dict[str, ReducerSpec] = {}
        self._gathers: dict[str, GatherSpec] = {}
        self._tools: dict[str, NamedTool] = {}
        self._documents: dict[str, Document] = {}
        for spec in nodes:
            self.add_node(spec)
        for tool in tools:
            self.tool(tool)

    def __repr__(self) -> str:
        counts: dict[str, Mapping[str, Any]] = {
            "document": self._documents,
            "node": self._nodes,
            "tool": self._tools,
        }
        shown = [f"{len(d)} {what}" + "s" * (len(d) != 1) for what, d in counts.items() if d]
        return f"Documents({', '.join(shown)})"

    @property
    def nodes(self) -> Mapping[str, NodeSpec]:
        """The implementations by name."""
        return MappingProxyType(self._nodes)

    @property
    def reducers(self) -> Mapping[str, ReducerSpec]:
        """The reducers that were added, by name."""
        return MappingProxyType(self._reducers)

    @property
    def strategies(self) -> Mapping[str, GatherSpec]:
        """The strategies for ``custom`` gathers, by name."""
        return MappingProxyType(self._gathers)

    @property
    def tools(self) -> Mapping[str, NamedTool]:
        """The tools by name."""
        return MappingProxyType(self._tools)

    @property
    def documents(self) -> Mapping[str, Document]:
        """The documents by IRI."""
        return MappingProxyType(self._documents)

    def node(self, name: str, *, ports: Sequence[str]) -> Callable[[F], F]:
        """Register the decorated function as an implementation.

        Parameters
        ----------
        name : str
        ports : sequence of str
            All that it may leave by. A document has a route for each.

        Raises
        ------
        UsageError
            If the name is blank or another implementation has it, or a port is none.
        """

        def add(function: F) -> F:
            self.add_node(NodeSpec(name, _ports(ports, f"node {name!r}"), function))
            return function

        return add

    def add_node(self, spec: NodeSpec) -> None:
        """Register an implementation; the same one twice is no error.

        Raises
        ------
        UsageError
            As of :meth:`node`.
        """
        _ports(spec.ports, f"node {spec.name!r}")
        self._add(self._nodes, named(spec.name, "a node"), spec, "node")

    def reducer(self, name: str, *, ports: Sequence[str]) -> Callable[[F], F]:
        """Register the decorated function as a reducer for scatters.

        Parameters
        ----------
        name : str
            None of those that are always there.
        ports : sequence of str
            All that it may return. A document has a route for each.

        Raises
        ------
        UsageError
            If the name is blank or taken, a port is none, or the function is asynchronous.
        """

        def add(function: F) -> F:
            given = _plain(function, f"reducer {name!r}")
            spec = ReducerSpec(name, _ports(ports, f"reducer {name!r}"), given)
            self._add(self._reducers, _free(name, REDUCER_PORTS, "a reducer"), spec, "reducer")
            return function

        return add

    def strategy(self, name: str) -> Callable[[F], F]:
        """Register the decorated function as what a ``custom`` gather may do.

        Raises
        ------
        UsageError
            If the name is blank or taken, or the function is asynchronous.
        """

        def add(function: F) -> F:
            spec = GatherSpec(name, _plain(function, f"strategy {name!r}"))
            self._add(self._gathers, _free(name, STRATEGIES, "a strategy"), spec, "strategy")
            return function

        return add

    def tool(self, tool: T) -> T:
        """Register a tool, which is then the document ``tool:<name>``; twice is no error.

        Returns
        -------
        NamedTool
            The tool, so that this can stand above a decorated one.

        Raises
        ------
        UsageError
            If the name is no such, or another tool has it.
        """
        if not _TOOL_NAME.fullmatch(str(tool.name)):
            raise UsageError(
                f"a tool cannot be named {clip(tool.name)!r}", why="models call it by that name",
                fix="give 1 to 64 of the letters A-Z and a-z, digits, `_`, `-` and `.`",
            )  # fmt: skip
        if TOOL_PREFIX + tool.name in self._documents:
            raise UsageError(f"{TOOL_PREFIX}{tool.name} is a document already")
        self._add(self._tools, tool.name, tool, "tool")
        return tool

    def _add(self, known: dict[str, Any], name: str, spec: Any, what: str) -> None:
        with self._lock:
            if name in known and known[name] != spec:
                raise UsageError(f"another {what} is named {name!r}", fix="give it a new name")
            known[name] = spec

    def register(self, *documents: Document) -> Documents:
        """Register documents, all of them or none.

        Documents that are given together may name each other. One that is registered already
        is passed over. Copies are kept: what is changed afterwards in what was given is not
        checked, and changes nothing here.

        Returns
        -------
        Documents
            This object.

        Raises
        ------
        DocumentError
            If there is a fault in any of them. Its ``faults`` are all there are.
        """
        with self._lock:
            if faults := self.faults(*documents):
                names = ", ".join(dict.fromkeys(clip(d.name, 40) for d in documents))
                raise DocumentError(f"nothing of {names} is registered", tuple(faults))
            held = self._documents
            new = {d.id: deepcopy(d) for d in documents if d.id not in held}
            self._documents = {**held, **new}  # copies: routes of what was given can be changed
        return self

    def faults(self, *documents: Document) -> list[Fault]:
        """Return all that keeps documents from being registered together.

        Returns
        -------
        list of Fault
            In the order of the documents; empty where :meth:`register` would take them.
        """
        from sag_research.runtime._dag_validate import validate_document

        with self._lock:
            new = [d for d in documents if self._documents.get(d.id) != d]
            iris = {*self._documents, *(d.id for d in new)}
            iris.update(TOOL_PREFIX + name for name in self._tools)
            ports = {name: spec.ports for name, spec in self._reducers.items()}
            found = self._taken(new)
            for document in new:
                found += validate_document(
                    document, nodes=self._nodes, documents=iris, reducers=ports,
                    strategies=self._gathers,
                )  # fmt: skip
        return found

    def _taken(self, new: Sequence[Document]) -> list[Fault]:
        """Return a fault for each document whose IRI or name is another's."""
        held = [*self._documents.values()]
        found = []
        for document in new:
            others = [d for d in held if d != document]
            if any(d.id == document.id for d in others) or self._is_tool(document.id):
                found.append(
                    Fault(document.id, "", "", "taken-id", "something else has this IRI",
                          "give it an IRI of its own")
                )  # fmt: skip
            elif any(d.name == document.name for d in others):
                what = f"another document is named {clip(document.name)!r}"
                found.append(Fault(document.id, "", "", "taken-name", what, "rename one of them"))
            held.append(document)
        return found

    def _is_tool(self, iri: str) -> bool:
        return iri.startswith(TOOL_PREFIX) and iri.removeprefix(TOOL_PREFIX) in self._tools

    def document(self, name: str) -> Document:
        """Return a registered document by IRI or name.

        Raises
        ------
        DocumentError
            If there is none.
        """
        held = self._documents
        found = held.get(name) or next((d for d in held.values() if d.name == name), None)
        if found is None:
            known = ", ".join(clip(d.name, 40) for d in held.values()) or "none"
            raise DocumentError(f"no document {clip(name)!r}, there is {known}")
        return found

    def resolve(self, iri: str) -> Document | NamedTool:
        """Return what a placement names by IRI: a document, or a tool by ``tool:<name>``.

        Raises
        ------
        DocumentError
            If there is no such.
        """
        if self._is_tool(iri):
            return self._tools[iri.removeprefix(TOOL_PREFIX)]
        if iri not in self._documents:
            raise DocumentError(f"there is no document or tool {clip(iri, 120)!r}")
        return self._documents[iri]


def _ports(ports: Sequence[str], what: str) -> tuple[str, ...]:
    """Return ports that are some, each once."""
    if isinstance(ports, str) or not ports or not all(ports) or len(set(ports)) != len(ports):
        raise UsageError(
            f"the ports of {what} cannot be {ports!r}",
            fix="give at least one, each once, as in ports=('done', 'error')",
        )
    return tuple(ports)


def _plain(function: F, what: str) -> F:
    """Return a function that needs no awaiting: what is never awaited does nothing."""
    if is_async(function):
        raise UsageError(
            f"{what} is asynchronous", why="only nodes are awaited", fix="write it with `def`"
        )
    return function


def _free(name: str, always: Iterable[str], what: str) -> str:
    """Return a name that is none of those that are always there."""
    if name in always:
        raise UsageError(f"{what} named {name!r} is always there", fix="give it a new name")
    return named(name, what)
