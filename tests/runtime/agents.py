"""What the tests of agents share: scripted models and small tools."""

from __future__ import annotations

from typing import Any

from sag_research.llm import Reply, Scripted, ToolCall
from sag_research.runtime import Tool, tool

ANSWER = "Based on the lookup, a graph without cycles can be run in the order of its edges. "
WORDS = 13
"""Of a reply's text, in :func:`scripted`; the last with a space after it."""
QUERY = {"query": "acyclic graph"}


@tool
def lookup(query: str) -> dict[str, str]:
    """Look something up."""
    return {"about": query, "text": "a graph without cycles"}


def asks(
    name: str = "lookup", arguments: Any = None, id: str = "", text: str | None = None
) -> Reply:
    """A turn that calls one tool."""
    given = QUERY if arguments is None else arguments
    return Reply(text=text, calls=(ToolCall(name=name, arguments=given, id=id),), finish="calls")


def scripted(text: str | None = "planning to invoke a tool", answer: str = "") -> Scripted:
    """One tool call, then an answer of 13 words."""
    words = " ".join(f"word{n}" for n in range(1, WORDS + 1)) + " "
    return Scripted([asks(text=text), answer or words])


def failing(error: BaseException, name: str = "lookup") -> Tool:
    """A tool that raises."""

    def run(**arguments: Any) -> Any:
        raise error

    return Tool(name, "", {"type": "object"}, run)
