"""What is shown of something under way: a Stop button, and texts while they are written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from sag_research.viz._stop_widget import StopButton
    from sag_research.viz._tokens_widget import TokenView

__all__ = ["UnderWay", "stop_button", "token_view"]


class UnderWay(Protocol):
    """Something on a thread of its own that can be stopped, as a loop's handle."""

    @property
    def loop_id(self) -> str:
        """What it is called."""
        ...

    @property
    def status(self) -> str:
        """``running``, or how it ended."""
        ...

    def cancel(self, reason: str = "") -> None:
        """Ask it to stop."""
        ...

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for its end; returns whether it came in time."""
        ...


def stop_button(handle: UnderWay) -> StopButton:
    """Return a widget that says how something goes, and stops it.

    Parameters
    ----------
    handle : UnderWay
        E.g. a :class:`~sag_research.runtime.LoopHandle`.

    Notes
    -----
    A click reaches Python while no cell is running. The loop is on its own thread, so the cell
    that began it has ended by then; a second cell may stop it too, with ``handle.cancel()``.
    """
    from sag_research.viz._stop_widget import StopButton

    return StopButton(handle)


def token_view(title: str = "") -> TokenView:
    """Return a widget that shows answers while they are written; it is a sink for deltas.

    Parameters
    ----------
    title : str

    Examples
    --------
    >>> view = token_view()
    >>> view
    TokenView(0 deltas)
    """
    from sag_research.viz._tokens_widget import TokenView

    return TokenView(title)
