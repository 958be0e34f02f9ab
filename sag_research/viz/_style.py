"""Colours and shapes, in one place for every drawing.

Entity kinds take Paul Tol's "muted" scheme, results Okabe and Ito's blue and vermilion: both stay
apart for the common kinds of colour blindness. What a step did is its shape; failures also have a
heavier outline, and outcomes and flags are words. Drawings on a screen take the colours that depend
on light or dark from ``js/draw.css``; what is printed takes them from here.

References
----------
P. Tol, Colour Schemes, SRON technical note EPS/TN/09-002. M. Okabe, K. Ito, Color Universal
Design, 2008.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from sag_research.viz._grammar import mark_words, tone_words
from sag_research.viz._scene import Node, Scene

__all__ = [
    "BRIDGE",
    "ENTITY_COLOURS",
    "FONT_SIZE",
    "LINKS",
    "MARKS",
    "OPEN",
    "TONES",
    "UNKNOWN",
    "Link",
    "hidden_edges",
    "is_crowded",
    "legend",
    "tint",
]

FONT_SIZE: Final = 13
UNKNOWN: Final = "#999999"
"""Of an entity of a kind that is not listed."""

ENTITY_COLOURS: Final = {
    "Error": "#cc6677",
    "Test": "#aa4499",
    "File": "#332288",
    "Module": "#88ccee",
    "Symbol": "#44aa99",
    "Command": "#999933",
    "Configuration": "#ddcc77",
    "System": "#117733",
    "Host": "#882255",
    "Commit": "#999999",
}


MARKS: Final = ("Run", "Step", "Chain", "Event")
"""Kinds of nodes that stand on a lane; all others are entities."""

TONES: Final = {
    "ok": ("#0072b2", "#ffffff"),
    "error": ("#f0883e", "#1a0a00"),
    "empty": ("#ffffff", "#1c2329"),
    "unknown": ("#b8c0c8", "#1c2329"),
}
"""Fill of a step's mark, and of the number on it, by what came back; on paper."""


class Link(NamedTuple):
    """How an edge looks on paper; ``legend`` is empty for what needs no explanation."""

    colour: str
    width: float
    dashes: bool
    legend: str


LINKS: Final[dict[str, Link]] = {
    "NEXT": Link("#6b7885", 2.0, False, "next step"),
    "CONTAINS": Link("#6b7885", 1.0, False, ""),
    "FORKED_FROM": Link("#0072b2", 2.0, True, "forked: tried again from there"),
    "CAUSED_BY": Link("#b0588f", 1.2, True, "caused by"),
    "PROCESSED": Link("#7c8b9a", 1.0, False, "names"),
    "MUTATED": Link("#c47f00", 2.0, False, "changed"),
    "": Link("#009e73", 1.0, True, "relation between entities"),
}

BRIDGE: Final = ("PROCESSED", "MUTATED")
"""Edges from an event to an entity."""
OPEN: Final = ("NEXT", "CONTAINS", "FORKED_FROM")
"""Edges that a timeline always draws; it shows the others of a node that is pointed at."""
CROWD: Final = 600
"""More lines between steps and entities than this would cover a picture."""


def is_crowded(links: Sequence[str]) -> bool:
    """Tell whether a picture has too many lines between steps and entities to draw them all."""
    return sum(kind in BRIDGE for kind in links) > CROWD


def hidden_edges(scene: Scene) -> list[bool]:
    """Tell which edges are drawn only while one of their ends is pointed at.

    A timeline always draws what follows what and where a fork parts; a force layout draws all,
    but what is only named where that would be too much.
    """
    if scene.layout != "timeline":
        crowded = is_crowded([edge.kind for edge in scene.edges])
        return [crowded and edge.kind == "PROCESSED" for edge in scene.edges]
    lane = {node.id: node.y for node in scene.nodes}
    return [
        # from one lane to another, the fork's own edge says it
        edge.kind not in OPEN or (edge.kind == "NEXT" and lane[edge.source] != lane[edge.target])
        for edge in scene.edges
    ]


def tint(colour: str, share: float = 0.14, paper: str = "#ffffff") -> str:
    """Mix a colour with that of the paper.

    Examples
    --------
    >>> tint("#000000", 0.0), tint("#102030", 1.0)
    ('#ffffff', '#102030')
    """
    parts = [(int(colour[i : i + 2], 16), int(paper[i : i + 2], 16)) for i in (1, 3, 5)]
    return "#" + "".join(f"{round(back + (part - back) * share):02x}" for part, back in parts)


def legend(nodes: Sequence[Node], links: set[str]) -> dict[str, Any]:
    """List the marks, entity kinds and links that a picture really holds, in a fixed order."""
    shown = {kind if kind in LINKS else "" for kind in links}
    held = {field: {getattr(node, field) for node in nodes} for field in ("mark", "tone", "kind")}
    others = sorted(held["kind"] - set(ENTITY_COLOURS) - set(MARKS))
    return {
        "marks": [
            {"mark": word.name, "shape": word.shape, "text": word.words}
            for word in mark_words()
            if word.name in held["mark"]
        ],
        "tones": [
            {"tone": word.name, "text": word.words}
            for word in tone_words()
            if word.name in held["tone"]
        ],
        "entities": [
            {"kind": kind, "line": ENTITY_COLOURS.get(kind, UNKNOWN), "text": kind}
            for kind in (*ENTITY_COLOURS, *others)
            if kind in held["kind"]
        ],
        "links": [
            {"kind": kind, "dashes": link.dashes, "text": link.legend}
            for kind, link in LINKS.items()
            if kind in shown and link.legend
        ],
        "flags": sorted({flag for node in nodes for flag in node.flags}),
    }
