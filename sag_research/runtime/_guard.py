"""The one place that outlives whatever the code of users raises.

Behaviours, agents, worlds, judges and listeners are functions of others: they may raise
anything, and what runs them must go on and write it down.
"""

from __future__ import annotations

from types import TracebackType

from sag_research._text import clip

__all__ = ["Caught", "said"]

_MESSAGE = 300


class Caught:
    """Keeps the error of a block that runs code of others, for the caller to write down.

    Interrupts and cancellations are no errors of that code and pass.
    """

    def __init__(self) -> None:
        self.error: Exception | None = None

    def __enter__(self) -> Caught:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        if isinstance(error, Exception):
            self.error = error
        return self.error is not None


def said(error: Exception) -> str:
    """Return an error's class and message in short, whatever its ``__str__`` does.

    Examples
    --------
    >>> said(KeyError("a"))
    "KeyError: 'a'"
    """
    text = ""
    with Caught():
        text = str(error)
    return clip(f"{type(error).__qualname__}: {text}", _MESSAGE)
