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

import msgspec

from sag_research._text import atomic_write, escape, repair, script_json
from sag_research.viz._grammar import OUTCOMES
from sag_research.viz._pyvis import drawing_data, drawing_library
from sag_research.viz._scene import Band, Scene
from sag_research.viz._style import legend

__all__ = ["View", "inline", "page", "scene_data"]


def scene_data(scene: Scene) -> dict[str, Any]:
    """Give all that ``js/draw.js`` draws, as plain JSON-able values.

    Returns
    -------
    dict
        ``keys`` (node ids in order), ``nodes``, ``edges`` and ``options`` (pyvis' form; a number
        is a place in ``keys``), ``kinds``, ``texts`` (label, caption and detail), ``marks`` (mark,
        tone, flags and scale), ``links`` (kind and label), ``bands``, ``legend``, ``notes``,
        ``title``, ``layout``.
    """
    return drawing_data(scene) | {
        "keys": _keys(scene),
        "texts": [[node.label, node.caption, node.detail] for node in scene.nodes],
        "kinds": [node.kind for node in scene.nodes],
        "marks": [[node.mark, node.tone, list(node.flags), node.scale] for node in scene.nodes],
        "links": [[edge.kind, edge.label] for edge in scene.edges],
        "bands": [_band(band) for band in scene.bands],
        "legend": legend(scene.nodes, {edge.kind for edge in scene.edges}),
        "notes": list(scene.notes),
        "title": repair(scene.title),
        "layout": scene.layout,
    }


def _band(band: Band) -> dict[str, Any]:
    """Give a band as a dict; its outcome in words, for a page draws what it is told."""
    plain: dict[str, Any] = msgspec.to_builtins(band)
    plain["label"], plain["run"] = repair(band.label), repair(band.run)
    # as they come back from JSON, so that drawings can be compared
    plain["end"] = list(band.end)
    plain["risk"], plain["rows"] = ([list(row) for row in rows] for rows in (band.risk, band.rows))
    plain["says"] = OUTCOMES.get(band.outcome, OUTCOMES["unknown"]) if band.outcome else ""
    return plain


def _keys(scene: Scene) -> list[str]:
    """Give the ids as valid text; two that became equal stay two."""
    keys: dict[str, None] = {}
    for node in scene.nodes:
        key = repair(node.id)
        while key in keys:
            key += "~"
        keys[key] = None
    return list(keys)


def page(scene: Scene) -> str:
    """Draw a scene on one self-contained page that can load nothing and send nothing.

    Returns
    -------
    str
        HTML, ASCII only; the same scene gives the same text.
    """
    return Template(_part("page.html")).substitute(
        title=escape(scene.title or "Bloomed graph").encode("ascii", "xmlcharrefreplace").decode(),
        style=_part("draw.css") + _part("page.css"),
        library=_packed(drawing_library() + "\n;" + _part("draw.js")),
        data=_packed(script_json(scene_data(scene))),
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
