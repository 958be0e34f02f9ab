"""A scene in space, which can be turned; flat where the browser has no WebGL."""

from __future__ import annotations

import os
from importlib.resources import files
from pathlib import Path
from typing import Any, ClassVar, Final

import anywidget
import ipywidgets
import traitlets

from sag_research._text import script_json
from sag_research.errors import UsageError
from sag_research.viz._js_lib import JsLib, js_lib, packed
from sag_research.viz._page import View, scene_data
from sag_research.viz._saved import Saved
from sag_research.viz._scene import Scene
from sag_research.viz._space import space_data

__all__ = ["MOST_NODES", "Bloom3D", "SpaceLib", "space_lib", "space_library"]

MOST_NODES: Final = 2_000
_FILE: Final = ("js", "vendor", "3d-force-graph.min.js")


class SpaceLib(ipywidgets.Widget):  # type: ignore[misc]  # it has no types
    """Carries 3d-force-graph to the page, gzipped, once a kernel; see :func:`space_lib`."""

    _view_name = traitlets.Unicode(None, allow_none=True).tag(sync=True)
    source = traitlets.Bytes().tag(sync=True)

    _made: ClassVar[SpaceLib | None] = None

    def __repr__(self) -> str:
        return "SpaceLib()"


def space_lib() -> SpaceLib:
    """Return this kernel's drawing code for views in space, made at the first call."""
    lib = SpaceLib._made
    if lib is None or lib.comm is None:  # closed, as by Widget.close_all()
        lib = SpaceLib._made = SpaceLib(source=packed(space_library()))
    return lib


def space_library() -> str:
    """Read the vendored 3d-force-graph, a UMD script (MIT; licences stand beside it)."""
    return files(__package__).joinpath(*_FILE).read_text(encoding="utf-8")


class Bloom3D(anywidget.AnyWidget):
    """A scene in space: steps to the right, runs one behind the other, entities above.

    The places come from the scene, so the same scene looks the same. Drag turns it, the wheel
    with Ctrl zooms, the arrow keys go from node to node, ``0`` shows all again. Where the browser
    has no WebGL the same scene is drawn flat, and the view says so.

    Parameters
    ----------
    scene : Scene
        Of at most 2,000 nodes.
    height : int
        Pixels.
    theme : {"auto", "light", "dark"}
        ``auto`` is the notebook's.
    force : bool
        Let attraction and repulsion move the nodes, until they have cooled.

    Attributes
    ----------
    selected : str
        Key of the chosen node, ``""`` for none. Set by a click, or by you.
    height, theme, force
        Can be set at any time.

    Raises
    ------
    UsageError
        The scene has more nodes than can be turned fluently.

    Examples
    --------
    >>> from sag_research.viz import Node, Scene
    >>> Bloom3D(Scene(nodes=[Node(id="run:a", kind="Run")], edges=[], layout="timeline"))
    Bloom3D(timeline, 1 node, 0 edges)
    """

    _esm = Path(__file__).parent / "js" / "bloom3d.js"
    _css = Path(__file__).parent / "js" / "bloom3d.css"
    _lib = traitlets.Instance(SpaceLib).tag(sync=True, **ipywidgets.widget_serialization)
    _flat = traitlets.Instance(JsLib).tag(sync=True, **ipywidgets.widget_serialization)
    _data = traitlets.Bytes().tag(sync=True)
    selected = traitlets.Unicode("").tag(sync=True)
    height = traitlets.Int(600, min=80).tag(sync=True)
    theme = traitlets.Enum(("auto", "light", "dark"), "auto").tag(sync=True)
    force = traitlets.Bool(False).tag(sync=True)

    def __init__(
        self, scene: Scene, height: int = 600, *, theme: str = "auto", force: bool = False
    ) -> None:
        self._scene = scene
        self._keys: list[str] = []
        self._saved = Saved(self)
        data = self._pack(scene)
        super().__init__(
            _lib=space_lib(), _flat=js_lib(), _data=data, height=height, theme=theme, force=force
        )

    def __repr__(self) -> str:
        return repr(self._scene).replace("Scene", "Bloom3D", 1)

    @property
    def scene(self) -> Scene:
        """What is drawn; another one may be set."""
        return self._scene

    @scene.setter
    def scene(self, scene: Scene) -> None:
        data = self._pack(scene)
        self._scene = scene
        if self.selected not in self._keys:
            self.selected = ""
        self._data = data
        self._saved.later()

    def _pack(self, scene: Scene) -> bytes:
        if len(scene.nodes) > MOST_NODES:
            raise UsageError(
                f"a scene of {len(scene.nodes):,} nodes is not drawn in space",
                why=f"more than {MOST_NODES:,} cannot be turned fluently",
                fix="draw fewer: scene(graph, events=1_500, entities=60), or fewer runs",
            )
        data = scene_data(scene) | {"space": space_data(scene)}
        self._keys = data["keys"]
        return packed(script_json(data))

    @traitlets.validate("selected")
    def _known(self, proposal: Any) -> str:
        key = str(proposal["value"])
        if not key or key in self._keys:
            return key
        if "selected" in self._property_lock:  # a click on what was removed meanwhile
            return ""
        raise UsageError(f"no node {key!r} is drawn", fix="choose one of the scene's nodes")

    # ---- showing and saving

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        """Return the view, and for readers without a kernel the same scene as a flat page."""
        live: Any = super()._repr_mimebundle_(**kwargs)
        data, metadata = live if isinstance(live, tuple) else (live, {})
        return {**data, "text/plain": repr(self), "text/html": self._saved.html()}, metadata

    def _ipython_display_(self) -> None:
        self._saved.show(self, repr(self))

    def to_html(self, path: str | os.PathLike[str]) -> Path:
        """Write the scene, flat, to one self-contained page; returns its path."""
        return View(self._scene, self.height).to_html(path)
