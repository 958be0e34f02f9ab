"""How wide text is drawn, without a screen to ask."""

from __future__ import annotations

import unicodedata
from typing import Final

from sag_research._text import clip
from sag_research.viz._style import FONT_SIZE

__all__ = ["BOX_HEIGHT", "box_width", "short_name", "text_width"]

BOX_HEIGHT: Final = 23.0
# of the widest sans-serif face in common use, so that no text outgrows its box
NARROW: Final = frozenset("fijlrtI.,:;'|!()[]/ ")
WIDE: Final = frozenset("mMwW@%…")
PADDING: Final = 14.0


def text_width(text: str) -> float:
    """Estimate the width of sans-serif text from above, in scene units.

    Examples
    --------
    >>> text_width("ill") < text_width("mmm") <= text_width("中中中")
    True
    """
    return FONT_SIZE * sum(_em(character) for character in text)


def _em(character: str) -> float:
    if unicodedata.east_asian_width(character) in "WF" or character in WIDE:
        return 1.0
    if character in NARROW:
        return 0.42
    return 0.79 if character.isupper() else 0.64


def box_width(label: str) -> float:
    """Give the width of an entity's box."""
    return round(text_width(label) + PADDING, 1)


def short_name(kind: str, name: str, limit: int = 22) -> str:
    """Shorten an entity's name: of a path or a dotted name the end tells, of others the start.

    Examples
    --------
    >>> short_name("File", "src/very/long/path/to/parser.py")
    '…ong/path/to/parser.py'
    """
    name = clip(name, 200)
    if len(name) <= limit or kind not in {"File", "Module", "Symbol", "Test"}:
        return clip(name, limit)
    return "…" + name[-(limit - 1) :].lstrip()
