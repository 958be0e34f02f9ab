"""What a picture holds, as plain JSON-able records."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    import pandas as pd

    from sag_research.viz._page import View

__all__ = ["Band", "Edge", "Node", "Scene"]


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """A thing drawn at a place."""

    id: str
    """Key of the node in the graph."""
    kind: str
    """Decides the looks: entity kind, ``Run``, ``Step``, ``Chain`` (of steps) or ``Event``."""
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
    mark: str = ""
    """What a step did: ``look search edit test submit other``; decides the shape."""
    tone: str = ""
    """What came back: ``ok error empty unknown``; decides the colour."""
    flags: tuple[str, ...] = ()
    """``alarm``, ``fork-point``."""
    scale: float = 1.0
    """How large an entity's text is: rare ones stand out."""


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
    run: str = ""
    """Id of the run whose lane it is; empty for the shelf."""
    outcome: str = ""
    """``success``, ``failure`` or ``unknown``, drawn at `end`."""
    end: tuple[float, float] = (0.0, 0.0)
    """Where the outcome's text begins, scene units."""
    risk: list[tuple[float, float, float]] = []
    """Left and right edge, and the risk there, between 0 and 1."""
    risk_y: float = 0.0
    """Lower edge of the strip that shows the risk, scene units."""
    captions: bool = False
    """Whether there is room for captions below the marks."""
    rows: list[tuple[str, float]] = []
    """On the shelf: kinds of entities, and the y of the lowest row of each."""


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

    @property
    def table_(self) -> pd.DataFrame:
        """The picture as a table, one row a node.

        Columns ``key kind run step did result flags name detail``: what the marks, colours and
        flags say, in words.
        """
        from sag_research.viz._table import scene_table

        return scene_table(self)

    def show(self, height: int = 600) -> View:
        """Draw the scene inline in a notebook: a frame that needs no network and no kernel.

        Parameters
        ----------
        height : int
            Pixels.
        """
        from sag_research.viz._page import View

        return View(self, height)

    def to_html(self, path: str | os.PathLike[str]) -> Path:
        """Write the scene as one self-contained, inert HTML file; returns its path."""
        return self.show().to_html(path)

    def to_png(self, path: str | os.PathLike[str], dpi: int = 200) -> Path:
        """Draw the scene into a PNG file; returns its path."""
        from sag_research.viz._static import save_scene

        return save_scene(self, path, ".png", dpi)

    def to_svg(self, path: str | os.PathLike[str]) -> Path:
        """Draw the scene into an SVG file, texts as outlines; returns its path."""
        from sag_research.viz._static import save_scene

        return save_scene(self, path, ".svg")

    def to_pdf(self, path: str | os.PathLike[str]) -> Path:
        """Draw the scene into a PDF file of one page; returns its path."""
        from sag_research.viz._static import save_scene

        return save_scene(self, path, ".pdf")

    def __repr__(self) -> str:
        nodes, edges = len(self.nodes), len(self.edges)
        return (
            f"Scene({self.layout}, {nodes} node{'' if nodes == 1 else 's'}, "
            f"{edges} edge{'' if edges == 1 else 's'})"
        )
