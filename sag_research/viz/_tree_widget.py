"""The part that both trees of a notebook have in common: how they are shown and kept."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anywidget
import traitlets

from sag_research._text import atomic_write
from sag_research.errors import UsageError
from sag_research.viz._figures import save_figure
from sag_research.viz._tree_page import tree_frame, tree_page, tree_script, tree_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["TreeWidget"]

_PIXELS: Final = (200, 4_000)


class TreeWidget(anywidget.AnyWidget):
    """A tree that is drawn by a page, alive in a notebook or on its own."""

    _esm = tree_script("tree_widget.js")
    _css = tree_style()
    _start = traitlets.Dict().tag(sync=True)
    """``kind``, ``data`` and ``options``: sent once, when the channel is opened."""
    height = traitlets.Int(640, min=_PIXELS[0], max=_PIXELS[1]).tag(sync=True)
    """Pixels; counts when it is shown the next time."""

    def _page(self) -> dict[str, Any]:
        """Return what a page without Python gets: the start, as it is looked at now."""
        raise NotImplementedError

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the tree for print."""
        raise NotImplementedError

    def to_html(self, path: str | PathLike[str]) -> Path:
        """Write one page that needs no network and no Python; returns its path."""
        with atomic_write(path) as file:
            file.write(tree_page(self._page()).encode("ascii"))
        return Path(path)

    def to_svg(self, path: str | PathLike[str]) -> Path:
        """Write the figure as SVG; returns its path."""
        return self._save(path, ".svg")

    def to_png(self, path: str | PathLike[str]) -> Path:
        """Write the figure as PNG; returns its path."""
        return self._save(path, ".png")

    def to_pdf(self, path: str | PathLike[str]) -> Path:
        """Write the figure as PDF; returns its path."""
        return self._save(path, ".pdf")

    def _save(self, path: str | PathLike[str], suffix: str) -> Path:
        from matplotlib import pyplot

        if Path(path).suffix.lower() != suffix:
            raise UsageError(f"{Path(path).name} does not end in {suffix}")
        ax = self.plot()
        try:
            return save_figure(ax, path)
        finally:
            pyplot.close(ax.get_figure(root=True))

    def _repr_html_(self) -> str:
        return tree_frame(self._page(), self.height)

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        """Return the live view, and for readers without a kernel its state as a page."""
        live: Any = super()._repr_mimebundle_(**kwargs)
        data, metadata = live if isinstance(live, tuple) else (live, {})
        return {**data, "text/plain": repr(self), "text/html": self._repr_html_()}, metadata

    def _ipython_display_(self) -> None:
        """Show the live view, and beside it what a notebook without a kernel still shows.

        JupyterLab does not save what widgets hold, and prefers an error in their place to the
        page; so the page has an output of its own, hidden while the view is alive.
        """
        from IPython.display import publish_display_data

        data, metadata = self._repr_mimebundle_()
        page = data.pop("text/html")
        show: Any = publish_display_data  # it has no types
        show(data, metadata)
        show({"text/plain": repr(self), "text/html": page})
