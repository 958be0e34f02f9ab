"""A Stop button for something that is under way on a thread of its own."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final

import ipywidgets

if TYPE_CHECKING:
    from sag_research.viz._stop import UnderWay

__all__ = ["StopButton"]

_WIDTH: Final = "7em"
REASON: Final = "the Stop button was pressed"


class StopButton(ipywidgets.HBox):  # type: ignore[misc]  # it has no types
    """A button that stops a handle, and a word on how the handle stands."""

    def __init__(self, handle: UnderWay) -> None:
        self._handle = handle
        layout = ipywidgets.Layout(width=_WIDTH)
        self.button = ipywidgets.Button(
            description="Stop", button_style="danger", icon="stop", layout=layout
        )
        self.told = ipywidgets.Label(value=handle.status)
        super().__init__([self.button, self.told])
        self.button.on_click(self._pressed)
        threading.Thread(target=self._watch, name="sag-stop-button", daemon=True).start()

    def __repr__(self) -> str:
        return f"StopButton({self._handle.loop_id!r})"

    def _pressed(self, _: Any) -> None:
        self._handle.cancel(REASON)
        if self._handle.status == "running":
            self.told.value = "stopping"

    def _watch(self) -> None:
        self._handle.wait()
        self.button.disabled = True
        self.told.value = self._handle.status
