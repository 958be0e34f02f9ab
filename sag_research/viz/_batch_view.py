"""A batch under way in a cell's output: a bar, counts, a Stop button, and what is written."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final

import ipywidgets

from sag_research._text import clip, escape
from sag_research.viz._stop_widget import StopButton

if TYPE_CHECKING:
    from sag_research.viz._batch import Batch
    from sag_research.viz._tokens_widget import TokenView

__all__ = ["BatchView"]

_EVERY: Final = 0.5
"""Seconds between two looks at the batch."""
_STYLES: Final = {"completed": "success", "cancelled": "warning", "failed": "danger"}


class BatchView(ipywidgets.VBox):  # type: ignore[misc]  # it has no types
    """How far a batch is; made by :func:`~sag_research.viz.progress_view`.

    Attributes
    ----------
    bar : ipywidgets.IntProgress
    stop : StopButton
    told : ipywidgets.HTML
        The counts, and what runs said that could not be played; escaped.
    """

    def __init__(self, batch: Batch[Any], tokens: TokenView | None = None) -> None:
        self._batch, self._tokens = batch, tokens
        layout = ipywidgets.Layout(width="24em")
        self.bar = ipywidgets.IntProgress(max=max(batch.progress.total, 1), layout=layout)
        self.stop = StopButton(batch)
        self.told = ipywidgets.HTML()
        self._show()
        head = ipywidgets.HBox([self.bar, self.stop])
        super().__init__([head, self.told, *([] if tokens is None else [tokens])])
        threading.Thread(target=self._follow, name="sag-batch-view", daemon=True).start()

    def __repr__(self) -> str:
        return f"BatchView({self._batch.loop_id!r}, {self._batch.progress})"

    def _follow(self) -> None:
        while not self._batch.wait(_EVERY):
            self._show()
        self.bar.bar_style = _STYLES[self._batch.status]
        self._show()
        if self._tokens is not None:
            self._tokens.flush()

    def _show(self) -> None:
        progress = self._batch.progress
        self.bar.value = progress.done
        lines = [f"{clip(self._batch.loop_id, 60)}: {progress}", *progress.problems]
        shown = "<br>".join(escape(clip(line, 300)) for line in lines)
        if self.told.value != shown:
            self.told.value = shown
