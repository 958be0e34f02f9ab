"""A scene in a notebook that stays alive: it can be changed, and tells what is chosen.

How Python and its pages talk
-----------------------------
A page gets the drawing when the widget's channel is opened (``_start``: a version's number and
the drawing, gzipped JSON) and from then on numbered patches, whether or not it shows a view. A
page that finds a gap, and each one that is new, says ``{"type": "hello", "cursor": n}`` and is
sent what it lacks: ``{"type": "patches", "start": a, "end": b}`` with what leads from version a
to b, or ``{"type": "snapshot", "at": b}`` with the whole. ``{"type": "fit"}`` lets views show the
whole picture. While a cell is busy no page is heard, but each still hears: until its first
hello, a message repeats the last patches, which a page that knows them skips.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import anywidget
import ipywidgets
import traitlets

from sag_research._text import repair
from sag_research.errors import UsageError
from sag_research.viz._js_lib import JsLib, js_lib
from sag_research.viz._page import View, scene_data
from sag_research.viz._patch_log import PatchLog
from sag_research.viz._saved import Saved
from sag_research.viz._scene import Scene

__all__ = ["BloomView"]

EVERY: Final = 1.0
"""Seconds between two redraws, at least."""
REPEATED: Final = 10
"""Patches that are sent again while no page has said that it listens."""


class BloomView(anywidget.AnyWidget):
    """A live drawing of a scene.

    Setting :attr:`scene` changes every view of it, on this page and others, at most once a
    second; of scenes that come faster the last one is drawn. It may be set from any thread, and
    while a cell is busy. The saved notebook holds the last drawing as an inert page.

    Parameters
    ----------
    scene : Scene
    height : int
        Pixels.
    theme : {"auto", "light", "dark"}
        ``auto`` is the notebook's.

    Attributes
    ----------
    selected : str
        Key of the chosen node, ``""`` for none. Set by a click, or by you.
    height, theme
        Can be set at any time.
    details : bool
        Whether the drawing has an inspector of its own; set it before the view is shown.
    follow : bool
        Whether a picture that grows is kept in sight, until its reader moves it.
    cursor : int
        Number of the version that pages were told of.

    Notes
    -----
    ``layout`` is what every widget has under this name: the box around the view. How the nodes
    are laid out is the scene's own :attr:`~Scene.layout`; for another one set another scene.

    Examples
    --------
    >>> from sag_research.viz import Node, Scene
    >>> view = BloomView(Scene(nodes=[Node(id="run:a", kind="Run")], edges=[], layout="timeline"))
    >>> view
    BloomView(timeline, 1 node, 0 edges)
    >>> view.selected = "run:a"
    >>> view.scene = Scene(nodes=[], edges=[], layout="timeline")
    >>> view.flush()
    >>> view.cursor, view.selected
    (1, '')
    """

    _esm = Path(__file__).parent / "js" / "bloom_view.js"
    _lib = traitlets.Instance(JsLib).tag(sync=True, **ipywidgets.widget_serialization)
    _start = traitlets.Bool(True).tag(sync=True, to_json=lambda _, view: view._beginning())
    selected = traitlets.Unicode("").tag(sync=True)
    height = traitlets.Int(600, min=80).tag(sync=True)
    theme = traitlets.Enum(("auto", "light", "dark"), "auto").tag(sync=True)
    details = traitlets.Bool(True).tag(sync=True)
    follow = traitlets.Bool(False).tag(sync=True)
    cursor = traitlets.Int(0)

    def __init__(
        self, scene: Scene, height: int = 600, *, theme: str = "auto", follow: bool = False
    ) -> None:
        # taken again within: a page's hello is answered, and its selection checked, in one go
        self._guard = threading.RLock()
        self._scene, self._drawn = scene, scene
        self._keys = {repair(node.id) for node in scene.nodes}
        self._log = PatchLog(scene_data(scene))
        self._flushed = float("-inf")
        self._timer: threading.Timer | None = None
        self._heard, self._told = False, 0
        self._saved = Saved(self)
        super().__init__(_lib=js_lib(), height=height, theme=theme, follow=follow)
        self.on_msg(self._hear)

    def __repr__(self) -> str:
        return repr(self._scene).replace("Scene", "BloomView", 1)

    # ---- the drawing

    @property
    def scene(self) -> Scene:
        """What is drawn, or will be within a second."""
        return self._scene

    @scene.setter
    def scene(self, scene: Scene) -> None:
        with self._guard:
            self._scene = scene
            self._keys = {repair(node.id) for node in scene.nodes}
            if self.selected not in self._keys:
                self.selected = ""
            wait = self._flushed + EVERY - time.monotonic()
            if wait <= 0:
                self.flush()
            elif self._timer is None:
                self._timer = threading.Timer(wait, self.flush)
                self._timer.daemon = True
                self._timer.start()

    def flush(self) -> None:
        """Draw the newest scene now, without waiting for the second to be over."""
        with self._guard:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            if self._drawn is self._scene:
                return
            self._drawn, self._flushed = self._scene, time.monotonic()
            if self._log.update(scene_data(self._scene)):
                self._tell(self._told if self._heard else max(self._log.version - REPEATED, 0))
                self._told = self.cursor = self._log.version
                self._saved.later()

    def fit(self) -> None:
        """Let every view show the whole picture."""
        self.send({"type": "fit"})

    def on_select(self, callback: Callable[[str], object]) -> Callable[[], None]:
        """Call back with the key of each node that is chosen, ``""`` when none is any more.

        Returns
        -------
        callable
            Ends it.
        """

        def told(change: Any) -> None:
            callback(change["new"])

        self.observe(told, "selected")
        return lambda: self.unobserve(told, "selected")

    @traitlets.validate("selected")
    def _known(self, proposal: Any) -> str:
        key = str(proposal["value"])
        if not key or key in self._keys:
            return key
        if "selected" in self._property_lock:  # a click on what was removed meanwhile
            return ""
        raise UsageError(f"no node {key!r} is drawn", fix="choose one of the scene's nodes")

    # ---- talking to pages

    def _beginning(self) -> dict[str, Any]:
        """Give a page that is new what there is: called whenever the whole state is sent."""
        with self._guard:
            self._heard = False
            return {"cursor": self._log.version, "scene": self._log.snapshot()}

    def _hear(self, _: Any, content: Any, buffers: Any) -> None:
        if not isinstance(content, dict) or content.get("type") != "hello":
            return
        with self._guard:
            self._heard = True
            cursor = content.get("cursor")
            self._tell(cursor if type(cursor) is int else -1)

    def _tell(self, cursor: int) -> None:
        message = self._log.since(cursor)
        if message is not None:
            self.send(message.content, [message.body])

    # ---- showing and saving

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        """Return the live view, and for readers without a kernel its last state as a page."""
        live: Any = super()._repr_mimebundle_(**kwargs)
        data, metadata = live if isinstance(live, tuple) else (live, {})
        return {**data, "text/plain": repr(self), "text/html": self._saved.html()}, metadata

    def _ipython_display_(self) -> None:
        self.show_in(self, repr(self))

    def show_in(self, live: ipywidgets.Widget, text: str) -> None:
        """Show a widget that holds this view, and beside it what is saved with the notebook.

        Parameters
        ----------
        live : ipywidgets.Widget
            A box with this view in it.
        text : str
            What stands for the widget where only text is shown.
        """
        self._saved.show(live, text)

    def save(self) -> None:
        """Renew what is saved with the notebook; it is renewed a few seconds after a change."""
        self._saved.now()

    def to_html(self, path: str | os.PathLike[str]) -> Path:
        """Write what is drawn to one self-contained page; returns its path."""
        return View(self._scene, self.height).to_html(path)
