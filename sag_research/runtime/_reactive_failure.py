"""What is written down when a behaviour raises."""

from __future__ import annotations

from traceback import TracebackException
from types import TracebackType
from typing import Final

from sag_research._text import repair
from sag_research.model import Event
from sag_research.runtime._triggers import Behavior

__all__ = ["failure"]

_MESSAGE: Final = 4_000
_TRACEBACK: Final = 20_000


def failure(behavior: Behavior, event: Event, error: Exception) -> Event:
    """Make the event ``behavior.failed``.

    The traceback begins at the behaviour: what called it says nothing, and differs between a
    plain and an asynchronous dispatch.
    """
    kind = type(error)
    told = TracebackException(kind, error, _from_handler(error, behavior), compact=True)
    said = "".join(told.format_exception_only()).strip()
    payload = {
        "behavior": behavior.name,
        "fingerprint": behavior.fingerprint,
        "class": f"{kind.__module__}.{kind.__qualname__}",
        "message": _short(said.removeprefix(f"{kind.__module__}.").partition(": ")[2], _MESSAGE),
        "traceback": _short("".join(told.format()), _TRACEBACK),
    }
    return Event(run_id=event.run_id, type="behavior.failed", payload=payload)


def _from_handler(error: Exception, behavior: Behavior) -> TracebackType | None:
    code = getattr(behavior.handler, "__code__", None)
    frame = error.__traceback__
    while frame is not None and frame.tb_frame.f_code is not code:
        frame = frame.tb_next
    return frame or error.__traceback__


def _short(text: str, limit: int) -> str:
    """Keep the end of a text, where a traceback says what happened."""
    text = repair(text)
    return text if len(text) <= limit else "…" + text[1 - limit :]
