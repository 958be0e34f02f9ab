"""From a bloomed graph to a scene: what is drawn, what is said of it, and where it stands."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

from sag_research._text import clip, repair, strip_terminal
from sag_research.bloom import weigh_entities
from sag_research.errors import UsageError
from sag_research.viz._alarms import read_alarms
from sag_research.viz._collapse import CHAIN, MOST, Marks, fit_marks
from sag_research.viz._drawn import Drawn
from sag_research.viz._force import place_force
from sag_research.viz._grammar import mark_words, step_look, tone_words
from sag_research.viz._measure import box_width, short_name
from sag_research.viz._scene import Band, Edge, Node, Scene
from sag_research.viz._style import BRIDGE, is_crowded
from sag_research.viz._timeline import place_timeline

__all__ = ["LAYOUTS", "scene"]

Placed = tuple[dict[str, tuple[float, float]], list[Band]]
LAYOUTS: Final[dict[str, Callable[[Drawn, Mapping[str, Node], int], Placed]]] = {
    "timeline": place_timeline,
    "force": place_force,
}
_ENDS: Final = {"completed": "ended", "failed": "cut off"}
"""How a run stopped, in words that nobody takes for its outcome."""
LONGEST: Final = 20_000
"""Characters of one text that a drawing carries."""
_SMALL, _LARGE = 0.85, 1.2
"""Sizes of the texts of entities that all runs name, and that one names."""


def scene(
    graph: Any,
    layout: str = "timeline",
    seed: int = 7,
    *,
    entities: int = 60,
    events: int = 1_500,
    title: str = "",
    risk: Mapping[str, Sequence[float]] | None = None,
    alarms: Mapping[str, int] | None = None,
    collapse: bool = False,
    expand: Collection[str] = (),
) -> Scene:
    """Lay a bloomed graph out.

    A step's shape says what was done and its colour what came back, as the vocabulary of steps
    (:class:`sag_research.extract.Vocabulary`) reads them.

    Parameters
    ----------
    graph : networkx.MultiDiGraph or BloomGraph
        As made by :func:`sag_research.bloom.bloom_graph`; it is not changed.
    layout : {"timeline", "force"}
        Timeline: a lane a run, parents above children, a fork beginning where it parts, entities
        on a shelf above, by kind, near the middle of their mentions. Force: an attraction and
        repulsion layout, seeded.
    seed : int
        Of the force layout; the same graph and seed give the same scene.
    entities, events : int
        Draw at most so many: the most telling entities (what the graph was asked for, then see
        :func:`sag_research.bloom.weigh_entities`), and so many marks on lanes. More steps are
        collapsed into chains of one kind; then the first runs are drawn. More than 2,000 nodes
        are never drawn; what is left out stands in :attr:`Scene.notes`.
    title : str
        Default: the runs' names.
    risk : mapping of str to sequence of float, optional
        By run id, the risk after step 0, 1, …, those taken over from a parent included; NaN
        where it is not known.
    alarms : mapping of str to int, optional
        By run id, the step with which an alarm was raised. Default: what events of the graph
        (``deadend.predicted``, ``run.backtracked``, ``run.abandoned``) say.
    collapse : bool
        Draw neighbouring steps that did the same with the same result as one mark.
    expand : collection of str
        Keys of chains (``chain:event:…``) to leave open.

    Returns
    -------
    Scene
        Coordinates rounded to 0.1 scene units.

    Raises
    ------
    UsageError
        The layout is unknown.
    """
    if layout not in LAYOUTS:
        raise UsageError(
            f"layout={clip(repr(layout), 40)} is unknown", fix=f"use one of {', '.join(LAYOUTS)}"
        )
    graph = getattr(graph, "nx", graph)
    drawn = _choose(graph, entities, events, collapse, expand, read_alarms(graph, risk, alarms))
    nodes = {key: _describe(drawn, key) for key in (*drawn.runs, *drawn.marks, *drawn.entities)}
    places, bands = LAYOUTS[layout](drawn, nodes, seed)
    edges = _choose_edges(drawn, nodes)
    if layout == "force" and is_crowded([edge.kind for edge in edges]):
        drawn.notes.append("click a node to see what is only named")
    return Scene(
        nodes=[_place(node, places[key]) for key, node in nodes.items()],
        edges=edges,
        layout=layout,
        title=clip(title, 120) or _title(graph, drawn.runs),
        notes=drawn.notes,
        bands=bands,
    )


def _place(node: Node, place: tuple[float, float]) -> Node:
    x, y = (round(value, 1) + 0.0 for value in place)
    return Node(
        id=node.id, kind=node.kind, label=node.label, caption=node.caption, detail=node.detail,
        x=x, y=y, size=node.size, mark=node.mark, tone=node.tone, flags=node.flags,
        scale=node.scale,
    )  # fmt: skip


def _choose(
    graph: Any, most_entities: int, most_events: int, collapsed: bool, expand: Collection[str],
    told: Any,
) -> Drawn:  # fmt: skip
    """Choose what is drawn; the graph itself stays whole."""
    notes: list[str] = []
    runs = [key for key, label in graph.nodes(data="label") if label == "Run"][: MOST // 2]
    lane = {graph.nodes[key]["run_id"]: number for number, key in enumerate(runs)}
    every = [key for key, label in graph.nodes(data="label") if label == "Event"]
    n_runs = sum(1 for _, label in graph.nodes(data="label") if label == "Run")
    chosen = [key for key in every if graph.nodes[key]["run_id"] in lane]
    chosen.sort(key=lambda k: (lane[graph.nodes[k]["run_id"]], graph.nodes[k]["position"]))
    weights = weigh_entities(graph)
    focus = [key for key in graph.graph.get("focus", ()) if key in weights]
    names = list(dict.fromkeys([*focus, *weights]))[: max(most_entities, len(focus))]
    names = names[: MOST // 2]
    looks = {key: step_look(graph.nodes[key]) for key in chosen
             if graph.nodes[key]["step"] is not None}  # fmt: skip
    flags = {key: tuple(sorted(words)) for key, words in told.flags.items()}
    most = min(most_events, MOST - len(runs) - len(names))
    marks = fit_marks(graph, chosen, looks, flags, most, collapsed, expand)
    marks, runs = _cut(graph, marks, runs, most)
    shown = sum(map(len, marks.values()))
    if any(len(group) > 1 for group in marks.values()):
        notes.append(f"{shown:,} events drawn as {len(marks):,} marks")
    if shown < len(every):
        notes.append(f"{shown:,} of {len(every):,} events drawn")
    if len(runs) < n_runs:
        notes.append(f"{len(runs):,} of {n_runs:,} runs drawn")
    if len(names) < len(weights):
        notes.append(f"{len(names):,} of {len(weights):,} entities drawn")
    return Drawn(graph, runs, marks, names, looks, flags, told.risk, notes)


def _cut(graph: Any, marks: Marks, runs: list[str], most: int) -> tuple[Marks, list[str]]:
    """Leave out the last marks that are too many, and runs of which nothing is left."""
    if len(marks) <= most:
        return marks, runs
    kept = dict(list(marks.items())[: max(most, 0)])
    writers = {graph.nodes[group[0]]["run_id"] for group in kept.values()}
    return kept, [key for key in runs if graph.nodes[key]["run_id"] in writers]


def _choose_edges(drawn: Drawn, nodes: Mapping[str, Node]) -> list[Edge]:
    """Leave out what the picture says already: lanes show CONTAINS, NEXT shows its own cause."""
    graph, home = drawn.graph, drawn.home
    counts: dict[tuple[str, str, str], int] = {}
    begun: set[str] = set()
    for source, target, kind in sorted(graph.edges(keys=True), key=_edge_order(graph)):
        ends = home.get(source, source), home.get(target, target)
        if ends[0] not in nodes or ends[1] not in nodes or ends[0] == ends[1]:
            continue
        if kind == "CONTAINS":
            if source in begun:
                continue
            begun.add(source)
        if kind == "CAUSED_BY" and graph.has_edge(target, source, key="NEXT"):
            continue
        key = (*ends, clip(kind, 60))
        counts[key] = counts.get(key, 0) + graph.edges[source, target, kind].get("n", 1)
    return [
        Edge(source=source, target=target, kind=kind, label=f"{n}×" if n > 1 else "")
        for (source, target, kind), n in counts.items()
    ]


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


def _describe(drawn: Drawn, key: str) -> Node:
    if key in drawn.marks:
        if key.startswith(CHAIN):
            return _chain_node(drawn, key)
        return _event_node(drawn, key, drawn.graph.nodes[key])
    data = drawn.graph.nodes[key]
    return _run_node(key, data) if data["label"] == "Run" else _entity_node(drawn.graph, key, data)


def _detail(**texts: Any) -> dict[str, str]:
    """Keep what is known; terminal codes go, markup stays as it is, endless texts are cut."""
    return {
        name.replace("_", " "): _cut_text(strip_terminal(repair(str(text))))
        for name, text in texts.items()
        if text not in (None, "")
    }


def _cut_text(text: str) -> str:
    if len(text) <= LONGEST:
        return text
    return f"{text[:LONGEST]}… ({len(text) - LONGEST:,} more characters)"


def _run_node(key: str, data: dict[str, Any]) -> Node:
    forked = None
    if data.get("parent_id"):
        forked = f"{data['parent_id']} at position {data.get('fork_position')}"
    names = ("task_id", "agent", "model", "outcome", "exit_status", "n_steps", "goal")
    detail = _detail(
        run=data["run_id"], **{name: data.get(name) for name in names}, forked_from=forked
    )
    return Node(id=key, kind="Run", label="▶", detail=detail, size=11)


def _event_node(drawn: Drawn, key: str, data: dict[str, Any]) -> Node:
    if data["step"] is None:
        word = data["type"].removeprefix("run.")
        word = _ENDS.get(word, word)
        detail = _detail(
            event=data["type"], run=data["run_id"], position=data["position"], body=data["body"]
        )
        return Node(id=key, kind="Event", caption=clip(word, 24), detail=detail, size=5)
    mark, tone = drawn.looks[key]
    detail = _detail(
        step=data["step"], run=data["run_id"], position=data["position"],
        did=_DID[mark], result=_RESULT[tone], exit_code=data["exit_code"],
        inherited="yes" if data["inherited"] else None,
        thought=data["thought"], action=data["action"], observation=data["observation"],
    )  # fmt: skip
    return Node(
        id=key, kind="Step", label=str(data["step"]), detail=detail, size=12, mark=mark, tone=tone,
        caption=clip(data["action"] or data["thought"], 22), flags=drawn.flags.get(key, ()),
    )  # fmt: skip


def _chain_node(drawn: Drawn, key: str) -> Node:
    group = drawn.marks[key]
    looks = [drawn.looks[event] for event in group]
    marks, tones = {mark for mark, _ in looks}, {tone for _, tone in looks}
    # of several things, what most of its steps did
    mark, tone = (Counter(one).most_common(1)[0][0] for one in zip(*looks, strict=True))
    first, last = (drawn.graph.nodes[event] for event in (group[0], group[-1]))
    detail = _detail(
        steps=f"{first['step']}–{last['step']}", run=first["run_id"], count=len(group),
        did=", ".join(word.words for word in mark_words() if word.name in marks),
        result=", ".join(word.words for word in tone_words() if word.name in tones),
        action="\n".join(clip(drawn.graph.nodes[event]["action"], 120) for event in group[:40]),
    )  # fmt: skip
    caption = f"{len(group)} steps"
    return Node(id=key, kind="Chain", label=f"{len(group)}×", detail=detail, size=15, mark=mark,
                tone=tone, caption=caption)  # fmt: skip


def _entity_node(graph: Any, key: str, data: dict[str, Any]) -> Node:
    readers = [edge for edge in graph.in_edges(key, data=True) if edge[2]["type"] in BRIDGE]
    label = short_name(data["kind"], data["name"])
    detail = _detail(
        entity=data["name"], kind=data["kind"], scope=data["scope"],
        mentions=sum(edge["n"] for _, _, edge in readers),
        runs_in_the_workspace=data.get("runs_total") or None,
    )  # fmt: skip
    here = len({graph.nodes[source]["run_id"] for source, _, _ in readers})
    total = graph.graph.get("runs_total", 0)
    scale = _scale(total, data.get("runs_total") or here) if total else 1.0
    return Node(id=key, kind=clip(data["kind"], 24), label=label, detail=detail, scale=scale,
                size=round(box_width(label) * scale, 1))  # fmt: skip


def _scale(total: int, df: int) -> float:
    """Size an entity's text by its inverse document frequency.

    Examples
    --------
    >>> _scale(100, 1), _scale(100, 100)
    (1.2, 0.85)
    """
    if total < 2:
        return 1.0
    idf = math.log(total / min(max(df, 1), total)) / math.log(total)
    return round(_SMALL + (_LARGE - _SMALL) * idf, 2)


_DID: Final = {word.name: word.words for word in mark_words()}
_RESULT: Final = {word.name: word.words for word in tone_words()}
