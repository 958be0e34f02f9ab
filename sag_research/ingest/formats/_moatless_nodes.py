"""Moatless: the nodes of a search tree, or the states of an older straight loop, as steps."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from sag_research.ingest.formats import _shared as shared
from sag_research.ingest.formats._openhands_turns import key, mapping
from sag_research.model import Call, Step, Usage

__all__ = ["Node", "states_in", "tree_nodes"]

_THOUGHTS: Final = ("thoughts", "scratch_pad", "thought")
_CLASS: Final = "action_args_class"
_JUDGES: Final = frozenset({"value_function", "feedback", "selector", "discriminator"})
"""Completions that are about a step, and none of the agent's replies."""
_STATE: Final = ("node_id", "reward", "value", "visits", "is_duplicate", "terminal", "feedback")


class Node(NamedTuple):
    """One node or state, with the steps that it holds."""

    id: str | None
    parent: str | None
    steps: tuple[Step, ...]
    up: int | None = None
    """Number of the node above, where the file nests them."""


# ---- trees


def tree_nodes(root: Any) -> list[Node]:
    """Return the nodes of a tree: nested by ``children``, or listed with a ``parent_id``."""
    if isinstance(root, list):
        listed = [one for one in root if isinstance(one, dict)]
        return [
            Node(key(one.get("node_id")), key(one.get("parent_id")), _steps(one)) for one in listed
        ]
    found: list[Node] = []
    waiting: list[tuple[Any, int | None]] = [(root, None)]
    while waiting:  # not by recursion: a tree may be deep
        node, up = waiting.pop()
        if not isinstance(node, dict):
            continue
        found.append(Node(key(node.get("node_id")), None, _steps(node), up))
        children = node.get("children")
        below = children if isinstance(children, list) else []
        waiting += [(child, len(found) - 1) for child in reversed(below)]
    return found


def _steps(node: dict[str, Any]) -> tuple[Step, ...]:
    pairs = _actions(node)
    if not pairs:
        return ()
    calls = tuple(_call(action, seen) for action, seen in pairs)
    thoughts = [_thought(action) for action, _ in pairs]
    said = shared.text_of(node.get("assistant_message"))
    step = Step(
        thought=shared.joined([said, *thoughts]),
        action=shared.joined([call.text for call in calls]),
        observation=shared.joined([call.observation for call in calls]),
        calls=calls,
        usage=_replies(node, judges=False),
        state=_state(node) or None,
    )
    return (step,)


def _actions(node: dict[str, Any]) -> list[tuple[dict[str, Any], Any]]:
    """Return the actions of a node with what each gave: one, or several in later versions."""
    listed = node.get("action_steps")
    if isinstance(listed, list) and listed:
        steps = [one for one in listed if isinstance(one, dict)]
        return [(mapping(one.get("action")), one.get("observation")) for one in steps]
    action = node.get("action")
    seen = node.get("observation") if node.get("observation") is not None else node.get("output")
    return [(action, seen)] if isinstance(action, dict) and action else []


def _call(action: dict[str, Any], seen: Any) -> Call:
    name = (shared.word(action.get(_CLASS)) or shared.word(action.get("name")) or "").split(".")[-1]
    name = name.removesuffix("Args")
    arguments = {one: action[one] for one in action if one not in {_CLASS, "name", *_THOUGHTS}}
    about = mapping(seen)
    text = shared.text_of(about.get("message")) if about else shared.text_of(seen)
    return Call(
        name=name,
        arguments=arguments,
        text=f"{name}({json.dumps(arguments, ensure_ascii=False)})",
        observation=text,
        status="error"
        if about.get("expect_correction") is True
        else "unknown"
        if seen is None
        else "ok",
    )


def _thought(action: dict[str, Any]) -> str:
    return next(filter(None, (shared.text_of(action.get(name)) for name in _THOUGHTS)), "")


def _state(node: dict[str, Any]) -> dict[str, Any]:
    kept = {name: node.get(name) for name in _STATE}
    judged = _replies(node, judges=True)
    if judged is not None:
        kept["judges"] = {
            "tokens_in": judged.tokens_in,
            "tokens_out": judged.tokens_out,
            "cost_usd": judged.cost_usd,
        }
    return {name: value for name, value in kept.items() if value is not None}


def _replies(node: dict[str, Any], *, judges: bool) -> Usage | None:
    """Add up what the replies in a node took: those of the agent, or those about it."""
    completions = mapping(node.get("completions"))
    listed = node.get("action_steps")
    said = [one for name, one in completions.items() if (name in _JUDGES) == judges]
    if not judges and isinstance(listed, list):
        said += [one.get("completion") for one in listed if isinstance(one, dict)]
    return _sum([_usage(mapping(one)) for one in said])


def _usage(completion: dict[str, Any]) -> Usage | None:
    usage = mapping(completion.get("usage"))
    names = ("prompt_tokens", "completion_tokens", "completion_cost")
    return shared.usage_of(*(usage.get(name) for name in names))


def _sum(found: Sequence[Usage | None]) -> Usage | None:
    known = [one for one in found if one is not None]
    if not known:
        return None
    ins = [one.tokens_in for one in known if one.tokens_in is not None]
    outs = [one.tokens_out for one in known if one.tokens_out is not None]
    costs = [one.cost_usd for one in known if one.cost_usd is not None]
    return Usage(
        tokens_in=sum(ins) if ins else None,
        tokens_out=sum(outs) if outs else None,
        cost_usd=sum(costs) if costs else None,
    )


# ---- states of a loop


def states_in(transitions: list[Any]) -> list[Node]:
    """Return the states of an older loop; each names the one before it."""
    states = [one for one in transitions if isinstance(one, dict)]
    return [
        Node(key(one.get("id")), key(one.get("previous_state_id")), tuple(_tries(one)))
        for one in states
    ]


def _tries(state: dict[str, Any]) -> Iterator[Step]:
    """Yield one step for each action of a state: one that was refused is tried again in it."""
    actions = state.get("actions")
    name = shared.word(state.get("name")) or ""
    for action in actions if isinstance(actions, list) else ():
        if isinstance(action, dict):
            yield _try(action, name, key(state.get("id")))


def _try(action: dict[str, Any], name: str, state_id: str | None) -> Step:
    request, response = mapping(action.get("request")), mapping(action.get("response"))
    arguments = {one: request[one] for one in request if one not in _THOUGHTS}
    output = response.get("output")
    shown = mapping(output).get("message")
    seen = [shared.text_of(response.get("retry_message")), shared.text_of(shown)]
    if output and not shown:
        seen.append(json.dumps(output, ensure_ascii=False))
    trigger = shared.word(response.get("trigger"))
    status = "error" if trigger == "retry" else "ok" if trigger else "unknown"
    text = f"{name}({json.dumps(arguments, ensure_ascii=False)})"
    observation = shared.joined(seen)
    return Step(
        thought=_thought(request),
        action=text,
        observation=observation,
        calls=(
            Call(name=name, arguments=arguments, text=text, observation=observation, status=status),
        ),
        usage=_usage(mapping(action.get("completion"))),
        state={"state": state_id, "trigger": trigger},
    )
