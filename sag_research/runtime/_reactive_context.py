"""How the log tells what behaviours wrote and asked."""

from __future__ import annotations

from typing import Final

__all__ = ["ANSWERED_BY", "FRAME"]

FRAME: Final = "behavior"
"""Frame of the events that behaviours write; a replay makes these anew and takes others as given.
It stands in the envelope, outside the digested history."""

ANSWERED_BY: Final = "behavior"
"""Actor of the calls that behaviours make."""
