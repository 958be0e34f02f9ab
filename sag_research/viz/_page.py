"""A scene as a whole HTML page, or as a frame inside a notebook."""

from __future__ import annotations

import base64
import gzip
import os
from functools import cache, lru_cache
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from sag_research._text import atomic_write, escape, script_json
from sag_research.viz._pyvis import drawing_data, drawing_library
from sag_research.viz._scene import Scene
from sag_research.viz._style import legend

__all__ = ["View", "inline", "page"]


def page(scene: Scene) -> str:
    """Draw a scene on one self-contained page that can load nothing and send nothing.

    Returns
    -------
    str
        HTML, ASCII only; the same scene gives the same text.
    """
    kinds = {node.kind for node in scene.nodes}
    data = drawing_data(scene) | {
        "texts": [[node.label, node.caption, node.detail] for node in scene.nodes],
        "links": [[edge.kind, edge.label] for edge in scene.edges],
        "bands": [[b.label, b.x, b.y, b.width, b.height] for b in scene.bands],
        "kinds": [node.kind for node in scene.nodes],
        "legend": legend(kinds, {edge.kind for edge in scene.edges}),
        "notes": scene.notes,
        "title": scene.title,
        "layout": scene.layout,
    }
    return Template(_part("page.html")).substitute(
        title=escape(scene.title or "Bloomed graph").encode("ascii", "xmlcharrefreplace").decode(),
        style=_part("page.css"),
        library=_packed(drawing_library()),
        data=_packed(script_json(data)),
        script=_part("page.js"),
    )


def inline(scene: Scene, height: int = 600) -> str:
    """Wrap the page in a frame for a notebook: sandboxed, saved with the notebook, no file.

    Parameters
    ----------
    scene : Scene
    height : int
        Pixels.
    """
    return (
        f'<iframe srcdoc="{escape(page(scene))}" sandbox="allow-scripts" width="100%" '
        f'height="{int(height)}" style="border:0" title="Bloomed graph"></iframe>'
    )


class View:
    """A scene that shows itself in Jupyter.

    Parameters
    ----------
    scene : Scene
    height : int
        Pixels.

    Examples
    --------
    >>> View(Scene(nodes=[], edges=[], layout="timeline"))
    View(timeline, 0 nodes, 0 edges)
    """

    def __init__(self, scene: Scene, height: int = 600) -> None:
        self.scene = scene
        self.height = height

    def __repr__(self) -> str:
        return repr(self.scene).replace("Scene", "View", 1)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"text/plain": repr(self), "text/html": inline(self.scene, self.height)}

    def to_html(self, path: str | os.PathLike[str]) -> Path:
        """Write the page to a file; returns its path."""
        with atomic_write(path) as file:
            file.write(page(self.scene).encode("ascii"))
        return Path(path)


@lru_cache(maxsize=4)
def _packed(text: str) -> str:
    """Pack ASCII text (gzip, base64): 490 kB of script become 165 kB, and no markup is left."""
    packed = gzip.compress(text.encode("ascii"), compresslevel=9, mtime=0)
    return base64.b64encode(packed).decode("ascii")


@cache
def _part(name: str) -> str:
    return files(__package__).joinpath("js", name).read_text(encoding="utf-8")
