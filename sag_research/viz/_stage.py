"""From a bloomed graph to a scene: what is drawn, what is said of it, and where it stands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from sag_research._text import clip, repair, strip_terminal
from sag_research.bloom import weigh_entities
from sag_research.errors import UsageError
from sag_research.viz._force import place_force
from sag_research.viz._measure import box_width, short_name
from sag_research.viz._scene import Band, Edge, Node, Scene
from sag_research.viz._style import BRIDGE, is_crowded
from sag_research.viz._timeline import place_timeline

__all__ = ["LAYOUTS", "scene"]

Placed = tuple[dict[str, tuple[float, float]], list[Band]]
LAYOUTS: Final[dict[str, Callable[..., Placed]]] = {
    "timeline": place_timeline,
    "force": place_force,
}


class Drawn(NamedTuple):
    """The part of a graph that a picture shows."""

    runs: list[str]
    events: list[str]
    entities: list[str]
    notes: list[str]


def scene(
    graph: Any,
    layout: str = "timeline",
    seed: int = 7,
    *,
    entities: int = 60,
    events: int = 1_500,
    title: str = "",
) -> Scene:
    """Lay a bloomed graph out.

    Parameters
    ----------
    graph : networkx.MultiDiGraph or BloomGraph
        As made by :func:`sag_research.bloom.bloom_graph`; it is not changed.
    layout : {"timeline", "force"}
        Timeline: a lane a run, parents above children, equal steps to the right, entities on a
        shelf above near the middle of their mentions. Force: an attraction and repulsion
        layout, seeded.
    seed : int
        Of the force layout; the same graph and seed give the same scene.
    entities, events : int
        Draw at most so many: the most telling entities (what the graph was asked for, then see
        :func:`sag_research.bloom.weigh_entities`), the first events of the first runs. What is
        left out stands in :attr:`Scene.notes`.
    title : str
        Default: the runs' names.

    Returns
    -------
    Scene
        Nodes sorted by kind and id, coordinates rounded to 0.1 scene units.

    Raises
    ------
    UsageError
        The layout is unknown.
    """
    if layout not in LAYOUTS:
        raise UsageError(f"layout={layout!r} is unknown", fix=f"use one of {', '.join(LAYOUTS)}")
    graph = getattr(graph, "nx", graph)
    drawn = _choose(graph, entities, events)
    nodes = {key: _describe(graph, key) for key in (*drawn.runs, *drawn.events, *drawn.entities)}
    places, bands = LAYOUTS[layout](graph, drawn.runs, drawn.events, nodes, seed)
    edges = _choose_edges(graph, nodes)
    if is_crowded([edge.kind for edge in edges]):
        drawn.notes.append("click a node to see what is only named")
    return Scene(
        nodes=[_place(node, places[key]) for key, node in nodes.items()],
        edges=edges,
        layout=layout,
        title=clip(title, 120) or _title(graph, drawn.runs),
        notes=drawn.notes,
        bands=bands,
    )


_ENDS: Final = {"completed": "ended", "failed": "cut off"}
"""How a run stopped, in words that nobody takes for its outcome."""


def _place(node: Node, place: tuple[float, float]) -> Node:
    x, y = (round(value, 1) + 0.0 for value in place)
    return Node(
        id=node.id, kind=node.kind, label=node.label, caption=node.caption, detail=node.detail,
        x=x, y=y, size=node.size,
    )  # fmt: skip


def _choose(graph: Any, most_entities: int, most_events: int) -> Drawn:
    """Choose what is drawn; the graph itself stays whole."""
    notes = []
    runs = [key for key, label in graph.nodes(data="label") if label == "Run"]
    lane = {graph.nodes[key]["run_id"]: number for number, key in enumerate(runs)}
    every = [key for key, label in graph.nodes(data="label") if label == "Event"]
    every.sort(key=lambda k: (lane[graph.nodes[k]["run_id"]], graph.nodes[k]["position"]))
    events = every[:most_events]
    if len(events) < len(every):
        notes.append(f"{len(events):,} of {len(every):,} events drawn")
        shown = {graph.nodes[key]["run_id"] for key in events}
        runs = [key for key in runs if graph.nodes[key]["run_id"] in shown]
        if len(runs) < len(lane):
            notes.append(f"{len(runs):,} of {len(lane):,} runs drawn")
    weights = weigh_entities(graph)
    focus = [key for key in graph.graph.get("focus", ()) if key in weights]
    names = list(dict.fromkeys([*focus, *weights]))[: max(most_entities, len(focus))]
    if len(names) < len(weights):
        notes.append(f"{len(names):,} of {len(weights):,} entities drawn")
    return Drawn(runs, events, names, notes)


def _choose_edges(graph: Any, nodes: dict[str, Node]) -> list[Edge]:
    """Leave out what the picture says already: lanes show CONTAINS, NEXT shows its own cause."""
    edges = []
    begun: set[str] = set()
    for source, target, kind in sorted(graph.edges(keys=True), key=_edge_order(graph)):
        if source not in nodes or target not in nodes:
            continue
        if kind == "CONTAINS":
            if source in begun:
                continue
            begun.add(source)
        if kind == "CAUSED_BY" and graph.has_edge(target, source, key="NEXT"):
            continue
        n = graph.edges[source, target, kind].get("n", 1)
        label = f"{n}×" if n > 1 else ""
        edges.append(Edge(source=source, target=target, kind=kind, label=label))
    return edges


def _edge_order(graph: Any) -> Callable[[tuple[str, str, str]], tuple[Any, ...]]:
    def order(edge: tuple[str, str, str]) -> tuple[Any, ...]:
        source, target, kind = edge
        ends = (graph.nodes[key].get("position") or 0 for key in (source, target))
        return (kind, *ends, source, target)

    return order


def _title(graph: Any, runs: list[str]) -> str:
    names = [clip(graph.nodes[key]["run_id"], 60) for key in runs[:3]]
    more = f" and {len(runs) - 3} more" if len(runs) > 3 else ""
    return ", ".join(names) + more


def _describe(graph: Any, key: str) -> Node:
    data = graph.nodes[key]
    return {"Run": _run_node, "Event": _event_node, "Entity": _entity_node}[data["label"]](
        graph, key, data
    )


def _detail(**texts: Any) -> dict[str, str]:
    """Keep what is known; terminal codes go, markup stays as it is."""
    return {
        name.replace("_", " "): strip_terminal(repair(str(text)))
        for name, text in texts.items()
        if text not in (None, "")
    }


def _run_node(graph: Any, key: str, data: dict[str, Any]) -> Node:
    forked = None
    if data.get("parent_id"):
        forked = f"{data['parent_id']} at position {data.get('fork_position')}"
    names = ("task_id", "agent", "model", "outcome", "exit_status", "n_steps", "goal")
    detail = _detail(
        run=data["run_id"], **{name: data.get(name) for name in names}, forked_from=forked
    )
    return Node(id=key, kind="Run", detail=detail, size=11)


def _event_node(graph: Any, key: str, data: dict[str, Any]) -> Node:
    if data["step"] is None:
        word = data["type"].removeprefix("run.")
        word = _ENDS.get(word, word)
        detail = _detail(
            event=data["type"], run=data["run_id"], position=data["position"], body=data["body"]
        )
        return Node(id=key, kind="Event", caption=clip(word, 24), detail=detail, size=6)
    kind = "Step"
    if any(type == "MUTATED" for _, _, type in graph.out_edges(key, keys=True)):
        kind = "Edit"
    if data["exit_code"]:
        kind = "Fault"
    detail = _detail(
        step=data["step"], run=data["run_id"], position=data["position"],
        exit_code=data["exit_code"], inherited="yes" if data["inherited"] else None,
        thought=data["thought"], action=data["action"], observation=data["observation"],
    )  # fmt: skip
    caption = clip(data["action"] or data["thought"], 22)
    return Node(id=key, kind=kind, label=str(data["step"]), caption=caption, detail=detail, size=11)


def _entity_node(graph: Any, key: str, data: dict[str, Any]) -> Node:
    readers = [edge for edge in graph.in_edges(key, data=True) if edge[2]["type"] in BRIDGE]
    label = short_name(data["kind"], data["name"])
    detail = _detail(
        entity=data["name"], kind=data["kind"], scope=data["scope"],
        mentions=sum(edge["n"] for _, _, edge in readers),
        runs_in_the_workspace=data.get("runs_total") or None,
    )  # fmt: skip
    return Node(id=key, kind=data["kind"], label=label, detail=detail, size=box_width(label))
