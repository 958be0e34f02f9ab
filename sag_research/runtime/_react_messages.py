"""What a model is told: how a conversation begins, and what is added to it with each turn."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from sag_research._text import repair
from sag_research.llm import Message, ToolCall
from sag_research.runtime._tool import Tool

__all__ = ["exchange", "first_state", "plain", "refused", "tools_in_text"]


def first_state(
    goal: str,
    *,
    system: str = "",
    hint: str = "",
    in_text: bool = False,
    steps: Iterable[Mapping[str, Any]] = (),
    told: tuple[int, str] = (0, ""),
) -> dict[str, Any]:
    """Return the state in which a conversation begins, or goes on after steps made before.

    ``told`` is what a fork was told, and after how many steps.

    Examples
    --------
    >>> first_state("2 + 2?", hint="earlier: 4")["messages"]
    [{'role': 'system', 'content': 'earlier: 4'}, {'role': 'user', 'content': '2 + 2?'}]
    """
    roles = (("system", hint), ("system", system), ("user", goal))
    state: dict[str, Any] = {
        "turn": 0,
        "messages": [{"role": role, "content": text} for role, text in roles if text],
        "final": None,
        "error": None,
        "toolOutputs": [],
    }
    after, feedback = told
    news = [{"role": "user", "content": feedback}] if feedback else []
    for payload in steps:
        if state["turn"] == after:
            state["messages"] += news
        state["turn"] += 1
        said, calls = payload.get("thought", ""), payload.get("calls", [])
        if "rejected" in payload.get("flags", ()):
            state["messages"] += refused(said, payload.get("feedback", ""))
        else:
            state["messages"] += exchange(said, calls, in_text)
    if state["turn"] <= after:
        state["messages"] += news
    return state


def exchange(said: str, calls: Iterable[Mapping[str, Any]], in_text: bool) -> list[dict[str, Any]]:
    """Return the messages of a turn that was carried out."""
    done = list(calls)
    if in_text and done:
        return [
            {
                "role": "assistant",
                "content": f"{said}\n{_listed('tool_calls', done, _ASKED)}".strip(),
            },
            {"role": "user", "content": _listed("tool_results", done, _CAME)},
        ]
    asked = tuple(ToolCall(name=c["name"], arguments=c["arguments"], id=c["id"]) for c in done)
    messages = [Message(role="assistant", content=said, calls=asked)]
    messages += [
        Message(role="tool", content=c["observation"], call_id=c["id"], name=c["name"])
        for c in done
    ]
    return [plain(message) for message in messages]


_ASKED: Final = ("name", "arguments", "id")
_CAME: Final = ("id", "name", "observation")


def _listed(name: str, calls: Iterable[Mapping[str, Any]], fields: Iterable[str]) -> str:
    """Write calls, or what came of them, as JSON: in it a result cannot pass for anything else."""
    told = [{field: call[field] for field in fields} for call in calls]
    return repair(json.dumps({name: told}, ensure_ascii=False))


def tools_in_text(tools: Iterable[Tool]) -> str:
    """Tell a model of tools that it is to call by writing; empty where there are none.

    Examples
    --------
    >>> tools_in_text([])
    ''
    """
    told = [
        {"name": one.name, "description": one.description, "arguments": one.input_schema}
        for one in tools
    ]
    if not told:
        return ""
    return _TOLD.format(tools="\n".join(json.dumps(one, ensure_ascii=False) for one in told))


_TOLD: Final = """To use tools, reply with JSON of this form, and with nothing after it:
{{"tool_calls": [{{"name": "…", "arguments": {{…}}}}]}}
What they return comes as "tool_results". When you know the answer, reply with the answer alone.
The tools, with the JSON schemas of their arguments:
{tools}"""


def plain(record: msgspec.Struct) -> dict[str, Any]:
    """Return a record as JSON has it."""
    fields: dict[str, Any] = msgspec.to_builtins(record)
    return {n: list(value) if isinstance(value, tuple) else value for n, value in fields.items()}


def refused(said: str, feedback: str) -> list[dict[str, Any]]:
    """Return the messages of a turn that was refused; its calls are not repeated to the model."""
    roles = (("assistant", said), ("user", feedback))
    return [{"role": role, "content": text} for role, text in roles if text]
