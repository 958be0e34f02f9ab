"""The agent that reasons and acts, as a plan: think, act, and again, until there is an answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from sag_research.runtime import _react_nodes as node
from sag_research.runtime._loop_graph import Graph, NodeResult, graph, graph_step
from sag_research.runtime._plan import Steps, plan

__all__ = ["GRAPHS_A_TURN", "Talk", "react_plan"]


class Talk(NamedTuple):
    """One conversation: its state, and what it needs from outside."""

    state: node.State
    bench: node.Bench


@plan(id="react")
def react_plan(talk: Talk) -> Steps[str]:
    """Let a model think and act until it answers; returns the answer."""
    while (yield from graph_step(THINK, talk))["read"].unwrap() != "text":
        (yield from graph_step(ACT, talk))["collect"].unwrap()
    (yield from graph_step(ANSWER, talk))["write"].unwrap()
    return str(talk.state["final"])


def _stage(id: str, **functions: node.Node) -> Graph:
    """Return a graph of nodes that run one after the other, until one fails."""
    stage = graph(id)
    for name, function in functions.items():
        stage = stage.node(name, _work(function), deps=list(stage.nodes)[-1:], bind=_after)
    return stage


def _after(talk: Talk, deps: Mapping[str, NodeResult[str]]) -> Talk:
    for result in deps.values():
        result.unwrap()
    return talk


def _work(function: node.Node) -> Callable[[Any], NodeResult[str]]:
    def work(talk: Talk) -> NodeResult[str]:
        port = function(*talk)
        error = talk.state["error"]
        return NodeResult.failed(**error) if error else NodeResult.success(port)

    return work


THINK: Final = _stage(
    "think",
    request=node.build_request,
    ask=node.call_model,
    read=node.normalize_response,
)
ACT: Final = _stage(
    "act",
    decode=node.decode_tools,
    check=node.normalize_tools,
    lay_out=node.build_worksets,
    call=node.dispatch_tools,
    collect=node.collect_results,
)
ANSWER: Final = _stage("answer", write=node.append_assistant)
GRAPHS_A_TURN: Final = 2
