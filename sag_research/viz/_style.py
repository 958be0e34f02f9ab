"""Colours and shapes, in one place for every drawing.

Entity kinds take Paul Tol's "muted" scheme, runs and steps Okabe and Ito's: both stay apart for
the common kinds of colour blindness. Shape tells runs, events and entities apart without colour.

References
----------
P. Tol, Colour Schemes, SRON technical note EPS/TN/09-002. M. Okabe, K. Ito, Color Universal
Design, 2008.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

__all__ = ["ENTITY_COLOURS", "FONT_SIZE", "LINKS", "MARKS", "Link", "Mark"]

FONT_SIZE: Final = 13

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


class Mark(NamedTuple):
    """How a run or event looks, and the words for it in the legend."""

    shape: str
    fill: str
    line: str
    text: str
    legend: str


MARKS: Final = {
    "Run": Mark("diamond", "#0072b2", "#004d7a", "#ffffff", "run"),
    "Step": Mark("circle", "#e8edf2", "#7c8b9a", "#26323d", "step"),
    "Edit": Mark("circle", "#e69f00", "#8a5f00", "#26200f", "changed something"),
    "Fault": Mark("circle", "#ffffff", "#d55e00", "#a03c00", "exit code not 0"),
    "Event": Mark("square", "#56b4e9", "#2f7aa5", "#10242f", "begin, end, fork"),
}


class Link(NamedTuple):
    """How an edge looks; ``legend`` is empty for what needs no explanation."""

    colour: str
    opacity: float
    width: float
    dashes: bool
    legend: str


LINKS: Final[dict[str, Link]] = {
    "NEXT": Link("#6b7885", 1.0, 2.0, False, "next"),
    "CONTAINS": Link("#6b7885", 0.6, 1.0, False, ""),
    "FORKED_FROM": Link("#0072b2", 1.0, 2.0, True, "forked from"),
    "CAUSED_BY": Link("#cc79a7", 0.8, 1.2, True, "caused by"),
    "PROCESSED": Link("#8996a3", 0.30, 1.0, False, "names"),
    "MUTATED": Link("#e69f00", 0.95, 2.0, False, "changed"),
    "": Link("#009e73", 0.55, 1.0, True, "relation between entities"),
}


BRIDGE: Final = ("PROCESSED", "MUTATED")
"""Edges from an event to an entity."""
CROWD: Final = 600
"""More such lines than this would cover the picture."""


def is_crowded(links: Sequence[str]) -> bool:
    """Tell whether a picture has too many lines between steps and entities to draw them all."""
    return sum(kind in BRIDGE for kind in links) > CROWD


def tint(colour: str, share: float = 0.14) -> str:
    """Mix a colour with white.

    Examples
    --------
    >>> tint("#000000", 0.0), tint("#102030", 1.0)
    ('#ffffff', '#102030')
    """
    parts = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    return "#" + "".join(f"{round(255 - (255 - part) * share):02x}" for part in parts)


def legend(kinds: set[str], links: set[str]) -> dict[str, Any]:
    """List the marks, entity kinds and links that a picture really holds, in a fixed order."""
    shown = {kind if kind in LINKS else "" for kind in links}
    return {
        "marks": [
            {"kind": kind, "shape": mark.shape, "fill": mark.fill, "line": mark.line}
            | {"text": mark.legend}
            for kind, mark in MARKS.items()
            if kind in kinds
        ],
        "entities": [
            {"kind": kind, "fill": tint(colour), "line": colour, "text": kind}
            for kind, colour in ENTITY_COLOURS.items()
            if kind in kinds
        ],
        "links": [
            {"kind": kind, "line": link.colour, "dashes": link.dashes, "text": link.legend}
            for kind, link in LINKS.items()
            if kind in shown and link.legend
        ],
    }
