"""The agent that reasons and acts as a document: the same nodes, with the routes as data."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, NoReturn

from msgspec.structs import replace

from sag_research.runtime import _react_nodes as node
from sag_research.runtime._dag_document import (
    DagReference,
    Document,
    Scatter,
    SingleNode,
    Terminal,
)
from sag_research.runtime._dag_jsonld import bundled_document
from sag_research.runtime._dag_registered import Documents, NodeSpec
from sag_research.runtime._dag_run import execute
from sag_research.runtime._loop_cancel import CancelToken
from sag_research.runtime._loop_errors import LoopCancelledError, NodeFailedError
from sag_research.runtime._loop_graph import GraphEvent
from sag_research.runtime._react_plan import Talk
from sag_research.runtime._tool import Tool

__all__ = ["carry_out", "react_document", "react_documents", "tool_document"]

_CALL: Final = "call-tool"
_GRAPHS: Final = 1_000_000
"""So many graphs at most; the budget that counts is one of turns."""


def react_document(tools: Iterable[str | Tool] = ("lookup",)) -> Document:
    """Return the document of the agent, for tools or the names of tools.

    Examples
    --------
    >>> react_document()
    Document('react-agent' 1, 12 placements, 32 routes)
    """
    shipped = bundled_document("react-agent")
    names = tuple(one.name if isinstance(one, Tool) else one for one in tools)
    placements = tuple(
        _offering(one, names) if isinstance(one, Scatter) else one for one in shipped.placements
    )
    return replace(shipped, placements=placements)


def _offering(one: Scatter, tools: tuple[str, ...]) -> Scatter:
    if not isinstance(one.body.dag, DagReference):
        return one
    dag = replace(one.body.dag, candidates=tuple(f"{node.TOOL}{name}" for name in tools))
    return replace(one, body=replace(one.body, dag=dag))


def tool_document(name: str) -> Document:
    """Return a tool as a document of one node.

    It comes to its end also where the tool fails: that is an observation, which the model is to
    see.

    Examples
    --------
    >>> tool_document("lookup").routes[1].port
    'error'
    """
    iri = f"{node.TOOL}{name}"
    call, end = f"{iri}#call", f"{iri}#end"
    placements = (
        SingleNode(call, _CALL, _CALL, {"success": end, "error": end}),
        Terminal(end, "end", "completed"),
    )
    return Document(iri, iri, "1", {"main": call}, placements)


def react_documents(bench: node.Bench) -> Documents:
    """Return what documents of the agent may name: its nodes, and a document for each tool."""
    specs = [NodeSpec(name, ports, _run(run, bench)) for name, (run, ports) in node.PORTS.items()]
    specs.append(NodeSpec(_CALL, ("success", "error"), _run(node.call_tool, bench)))
    return Documents(specs).register(*(tool_document(name) for name in bench.tools))


def _run(function: node.Node, bench: node.Bench) -> Callable[[Any, Any], str]:
    return lambda state, context: function(state, bench)


def carry_out(
    document: Document,
    talk: Talk,
    *,
    cancel: CancelToken,
    on_graph: Callable[[GraphEvent], object] | None = None,
) -> None:
    """Carry out a conversation as a document, to its end.

    Raises
    ------
    BudgetExceededError, LoopCancelledError, NodeFailedError
        As the plan does.
    DocumentError
        If the document has a fault.
    """
    documents = react_documents(talk.bench).register(document)
    options: Any = {"on_graph": on_graph} if on_graph else {}
    run = execute(documents, document, talk.state, max_steps=_GRAPHS, cancel=cancel, **options)
    summary = run.summary()
    if summary.error is not None:
        raise summary.error
    if summary.lifecycle in ("cancelled", "timed_out"):
        raise LoopCancelledError("the agent was cancelled", cancel.reason)
    if not summary.complete:
        _fail(talk.state, summary.terminal)


def _fail(state: node.State, terminal: str) -> NoReturn:
    told = state["error"] or {"code": "error", "message": f"it came to {terminal!r}"}
    raise NodeFailedError(**told)
