"""The drawing code for live views: sent to a page once per kernel, whatever the number of views."""

from __future__ import annotations

import gzip
from importlib.resources import files
from typing import ClassVar, Final

import ipywidgets
import traitlets

from sag_research.viz._pyvis import drawing_library

__all__ = ["JsLib", "js_lib", "packed"]

_OWN: Final = {"draw": "js", "css": "css"}


class JsLib(ipywidgets.Widget):  # type: ignore[misc]  # it has no types
    """Carries vis-network and ``draw.js`` to the page, gzipped, when its channel is opened.

    It travels ahead of the views that refer to it, so that one shown while a cell is busy need
    not ask for anything. Get the one of this kernel from :func:`js_lib`.
    """

    _view_name = traitlets.Unicode(None, allow_none=True).tag(sync=True)
    vis = traitlets.Bytes().tag(sync=True)
    """vis-network, a UMD script."""
    draw = traitlets.Bytes().tag(sync=True)
    """The function ``sagDraw``."""
    css = traitlets.Bytes().tag(sync=True)
    """Its style."""

    _made: ClassVar[JsLib | None] = None

    def __repr__(self) -> str:
        return "JsLib()"


def js_lib() -> JsLib:
    """Return this kernel's drawing code, made at the first call."""
    lib = JsLib._made
    if lib is None or lib.comm is None:  # closed, as by Widget.close_all()
        own = {name: packed(_part(f"draw.{suffix}")) for name, suffix in _OWN.items()}
        lib = JsLib._made = JsLib(vis=packed(drawing_library()), **own)
    return lib


def _part(name: str) -> str:
    return files(__package__).joinpath("js", name).read_text(encoding="utf-8")


def packed(text: str) -> bytes:
    """Gzip a text; equal texts give equal bytes."""
    return gzip.compress(text.encode("utf-8"), compresslevel=6, mtime=0)
