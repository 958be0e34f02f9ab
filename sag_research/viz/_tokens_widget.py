"""Answers while they are written, in a cell's output; texts only ever become text."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anywidget
import traitlets

if TYPE_CHECKING:
    from sag_research.runtime import Delta

__all__ = ["TokenView"]

_EVERY: Final = 0.05
"""Seconds between two looks of a page at a growing text."""
_LONGEST: Final = 20_000


class TokenView(anywidget.AnyWidget):
    """A sink that shows each conversation's text as it grows.

    Of a text longer than 20,000 characters the end is shown. ``texts_`` has it whole.
    """

    _esm = Path(__file__).parent / "tokens.js"
    title = traitlets.Unicode("").tag(sync=True)
    shown = traitlets.Dict().tag(sync=True)

    def __init__(self, title: str = "") -> None:
        self._parts: dict[str, list[str]] = {}
        self._guard, self._last = threading.Lock(), 0.0
        self._showing = threading.Lock()
        super().__init__(title=title)

    def __repr__(self) -> str:
        return f"TokenView({sum(map(len, self._parts.values()))} deltas)"

    def __call__(self, delta: Delta) -> None:
        """Take one delta; the page is told a little later, and by :meth:`flush`."""
        with self._guard:
            self._parts.setdefault(delta.route_key, []).append(delta.delta)
            now = time.monotonic()
            if now - self._last < _EVERY:
                return
            self._last = now
        self.flush()

    @property
    def texts_(self) -> dict[str, str]:
        """The text of each conversation so far."""
        with self._guard:
            return {route: "".join(parts) for route, parts in self._parts.items()}

    def flush(self) -> None:
        """Show all that was received."""
        with self._showing:  # else of two threads the one with the older texts may come last
            texts: dict[str, Any] = self.texts_
            self.shown = {route: text[-_LONGEST:] for route, text in texts.items()}
