"""The explorer's drawing, flat or in space; what is chosen in one is chosen in the other."""

from __future__ import annotations

from typing import Any

import ipywidgets

from sag_research.errors import UsageError
from sag_research.viz._bloom3d import Bloom3D
from sag_research.viz._bloom_view import BloomView

__all__ = ["Drawing"]


class Drawing(ipywidgets.VBox):  # type: ignore[misc]  # it has no types
    """Shows a flat view, or the same scene in space.

    Parameters
    ----------
    flat : BloomView

    Attributes
    ----------
    space : Bloom3D or None
        Made when first shown.
    """

    def __init__(self, flat: BloomView) -> None:
        self._flat = flat
        self.space: Bloom3D | None = None
        super().__init__([flat], layout=ipywidgets.Layout(width="100%", overflow="hidden"))
        flat.observe(self._chosen_flat, "selected")

    def __repr__(self) -> str:
        return f"Drawing({self.children[0]!r})"

    @property
    def in_space(self) -> bool:
        """Whether the view in space is shown."""
        return self.children[0] is not self._flat

    def turn(self, to_space: bool) -> None:
        """Show the view in space, or the flat one."""
        if not to_space:
            self.children = [self._flat]
            return
        if self.space is None:
            self.space = Bloom3D(self._flat.scene, self._flat.height)
            self.space.observe(self._chosen_in_space, "selected")
        self.children = [self.space]
        self.follow()

    def follow(self) -> None:
        """Draw in space what the flat view holds, if that is shown."""
        if self.space is None or not self.in_space:
            return
        if self.space.scene is not self._flat.scene:
            self.space.scene = self._flat.scene
        _choose(self.space, self._flat.selected)

    def _chosen_flat(self, change: Any) -> None:
        if self.space is not None and self.in_space and self.space.scene is self._flat.scene:
            _choose(self.space, change["new"])

    def _chosen_in_space(self, change: Any) -> None:
        if self.in_space and self._flat.scene is change["owner"].scene:
            _choose(self._flat, change["new"])


def _choose(view: Any, key: str) -> None:
    """Choose a node; none where the key names none there, as of two nodes of one name."""
    try:
        view.selected = key
    except UsageError:
        view.selected = ""
