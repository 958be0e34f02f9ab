"""The last state of a live view, kept in the notebook for readers without a kernel.

JupyterLab does not save what widgets hold, and shows an error in their place. So beside the live
view stands an inert page of the same drawing: hidden while a view is alive in the same output,
renewed now and then, saved with the notebook.
"""

from __future__ import annotations

import threading
from typing import Any, Final, Protocol
from uuid import uuid4

from sag_research.viz._page import inline
from sag_research.viz._scene import Scene

__all__ = ["Saved"]

EVERY: Final = 5.0
"""Seconds between two renewals, at least."""
NAME: Final = "sag-saved"
"""The class that ``bloom_view.js`` hides."""


class Drawn(Protocol):
    """A view that has a scene, and a height in pixels."""

    @property
    def scene(self) -> Scene:
        """What is drawn."""
        ...

    height: Any


class Saved:
    """Copies of a view's drawing in cells' outputs.

    Parameters
    ----------
    view : BloomView, Bloom3D
    """

    def __init__(self, view: Drawn) -> None:
        self._view = view
        self._shown: list[str] = []
        self._timer: threading.Timer | None = None
        self._guard = threading.Lock()

    def html(self) -> str:
        """Return the drawing as markup for a cell's output."""
        frame = inline(self._view.scene, self._view.height)
        if ' loading="lazy"' not in frame:  # a copy that is hidden draws nothing
            frame = frame.replace("<iframe ", '<iframe loading="lazy" ', 1)
        return f'<div class="{NAME}">{frame}</div>'

    def show(self, live: Any, text: str) -> None:
        """Show the view in the running cell, and a copy beside it.

        Parameters
        ----------
        live : Widget
            The view, or a widget that holds it.
        text : str
            What stands for it where only text is shown.
        """
        bundle = live._repr_mimebundle_()
        data, metadata = bundle if isinstance(bundle, tuple) else (bundle, {})
        data.pop("text/html", None)
        _publish({**data, "text/plain": text}, metadata)
        name = uuid4().hex
        with self._guard:
            self._shown.append(name)
        _publish(self._copy(), transient={"display_id": name})

    def later(self) -> None:
        """Renew the copies soon."""
        with self._guard:
            if self._timer is None and self._shown:
                self._timer = threading.Timer(EVERY, self.now)
                self._timer.daemon = True
                self._timer.start()

    def now(self) -> None:
        """Renew the copies."""
        with self._guard:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            shown = list(self._shown)
        if not shown:
            return
        for name in shown:
            _publish(self._copy(), transient={"display_id": name}, update=True)

    def _copy(self) -> dict[str, str]:
        return {"text/plain": repr(self._view), "text/html": self.html()}


def _publish(data: dict[str, Any], metadata: Any = None, **more: Any) -> None:
    from IPython.display import publish_display_data

    publish_display_data(data, metadata, **more)  # type: ignore[no-untyped-call]
