"""What a picture holds, as plain JSON-able records."""

from __future__ import annotations

import msgspec

__all__ = ["Band", "Edge", "Node", "Scene"]


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """A thing drawn at a place."""

    id: str
    """Key of the node in the graph."""
    kind: str
    """Decides the looks: entity kind, ``Run``, ``Step``, ``Edit``, ``Fault`` or ``Event``."""
    label: str = ""
    """The short text on the node."""
    caption: str = ""
    """A short text beside the node."""
    detail: dict[str, str] = {}
    """Heading to text, for an inspector. Raw: whoever shows it must not read it as markup."""
    x: float = 0.0
    """Scene units, about pixels at natural size; x grows to the right."""
    y: float = 0.0
    """Scene units; y grows downwards."""
    size: float = 10.0
    """Half width of an event or run; whole width of an entity's box."""


class Edge(msgspec.Struct, frozen=True, kw_only=True):
    """A link between two drawn nodes."""

    source: str
    target: str
    kind: str
    """Type of the edge in the graph, such as ``NEXT``."""
    label: str = ""


class Band(msgspec.Struct, frozen=True, kw_only=True):
    """A titled strip behind the nodes: a run's lane or the entities' shelf."""

    label: str
    x: float
    """Left edge, scene units."""
    y: float
    """Upper edge, scene units."""
    width: float
    height: float


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """A picture before it is drawn: the same for pyvis, a live widget and 3D.

    Examples
    --------
    >>> scene = Scene(nodes=[Node(id="run:a", kind="Run")], edges=[], layout="timeline")
    >>> scene
    Scene(timeline, 1 node, 0 edges)
    """

    nodes: list[Node]
    edges: list[Edge]
    layout: str
    title: str = ""
    notes: list[str] = []
    """What the drawing leaves out."""
    bands: list[Band] = []

    def __repr__(self) -> str:
        nodes, edges = len(self.nodes), len(self.edges)
        return (
            f"Scene({self.layout}, {nodes} node{'' if nodes == 1 else 's'}, "
            f"{edges} edge{'' if edges == 1 else 's'})"
        )
