"""Other readings of a text, in which each character still knows its place in the original.

A key that a terminal has coloured, wrapped or escaped is found in the reading without colours,
line breaks or escapes, and taken out of the text as it was.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import Final

__all__ = ["View", "joined", "readings", "whole"]

_CODES: Final = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # colours, cursor movement
    r"|\x1b\][^\x07\x1b\n]*(?:\x07|\x1b\\)?"  # titles, hyperlinks
    r"|\x1b[@-Z\\^_()#%]?"
    r"|[^\x08\n]\x08"  # typed over
    r"|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\xad\u061c\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]"
)
_ESCAPES: Final = re.compile(r"\\(?:u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|033|[nrtbfe0\"'\\/])")
_PERCENT: Final = re.compile(r"%[0-9a-fA-F]{2}")
_ENTITIES: Final = re.compile(r"&(?:#[0-9]{1,6}|#[xX][0-9a-fA-F]{1,5}|amp|quot|apos|lt|gt);")
_BREAK: Final = re.compile(
    # begun only where no space stands before: each run of spaces is looked at once
    r"(?<![ \t])(?:[\"'][ \t]*(?:[\\+][ \t]*)?(?:\r?\n|\r)[ \t]*[\"']"  # between two literals
    r"|[ \t]*(?:[\\│┃|][ \t]*)?(?:\r?\n|\r)[ \t]*(?:[│┃|>+][ \t]*)?)"
)
_NAMED: Final = {"amp": "&", "quot": '"', "apos": "'", "lt": "<", "gt": ">"}
_END_OF_UNICODE: Final = 0x110000
_PLAIN: Final = {
    "n": "\n", "r": "\r", "t": "\t", "b": "\x08", "f": "\x0c", "e": "\x1b", "0": "\x00",
}  # fmt: skip


class View:
    """A reading of a text: pieces that were copied, and characters that stand for several.

    Parameters
    ----------
    text : str
    starts, origins, ends : list of int
        Where each piece begins here and there, and where it ends there.
    copied : list of bool
        Whether a piece is one to one.
    """

    def __init__(
        self,
        text: str,
        starts: list[int],
        origins: list[int],
        ends: list[int],
        copied: list[bool],
    ) -> None:
        self.text = text
        self._starts, self._origins, self._ends, self._copied = starts, origins, ends, copied

    @property
    def starts(self) -> list[int]:
        """Where pieces begin."""
        return self._starts

    def span(self, start: int, end: int) -> tuple[int, int]:
        """Give the span in the original of a span here that is not empty."""
        return self._place(start)[0], self._place(end - 1)[1]

    def _place(self, at: int) -> tuple[int, int]:
        piece = bisect_right(self._starts, at) - 1
        origin = self._origins[piece]
        if not self._copied[piece]:
            return origin, self._ends[piece]
        origin += at - self._starts[piece]
        return origin, origin + 1


def whole(text: str) -> View:
    """Read a text as it is."""
    return View(text, [0], [0], [len(text)], [True])


def _reread(view: View, pattern: re.Pattern[str], say: Callable[[str], str]) -> View | None:
    """Read a view with each match as the character that it stands for, or as nothing."""
    parts: list[str] = []
    starts: list[int] = []
    origins: list[int] = []
    ends: list[int] = []
    copied: list[bool] = []
    at = size = 0

    def put(text: str, start: int, end: int, same: bool) -> None:
        nonlocal size
        parts.append(text)
        starts.append(size)
        origins.append(start)
        ends.append(end)
        copied.append(same)
        size += len(text)

    for found in pattern.finditer(view.text):
        start, end = found.span()
        if start > at:
            put(view.text[at:start], at, start, True)
        if said := say(found[0]):
            put(said, start, end, False)
        at = end
    if at == 0:
        return None
    if at < len(view.text):
        put(view.text[at:], at, len(view.text), True)
    return _Above(view, "".join(parts), starts, origins, ends, copied) if parts else None


class _Above(View):
    """A reading of a reading."""

    def __init__(self, below: View, *pieces: str | list[int] | list[bool]) -> None:
        super().__init__(*pieces)  # type: ignore[arg-type]
        self._below = below

    def span(self, start: int, end: int) -> tuple[int, int]:
        return self._below.span(*super().span(start, end))


def _unescaped(code: str) -> str:
    if code[1] in "ux":
        return chr(int(code[2:], 16))
    return "\x1b" if code == "\\033" else _PLAIN.get(code[1], code[1])


def _nothing(_: str) -> str:
    return ""


def readings(text: str) -> Iterator[View]:
    r"""Read a text as it is, without codes, and with escapes as what they stand for.

    Examples
    --------
    >>> [view.text for view in readings("a\x1b[1mb")]
    ['a\x1b[1mb', 'ab']
    >>> list(readings("a%2Fb"))[1].span(1, 2)
    (1, 4)
    """
    base = whole(text)
    yield base
    if (plain := _reread(base, _CODES, _nothing)) is not None:
        yield plain
        base = plain
    said: View | None = base
    for _ in range(2):
        said = _reread(said, _ESCAPES, _unescaped) if said and "\\" in said.text else None
        if said is None:
            break
        said = _reread(said, _CODES, _nothing) or said
        yield said
    for mark, pattern, say in (("%", _PERCENT, _byte), ("&", _ENTITIES, _entity)):
        if mark in base.text and (said := _reread(base, pattern, say)) is not None:
            yield said


def _entity(code: str) -> str:
    name = code[1:-1]
    if not name.startswith("#"):
        return _NAMED[name]
    number = int(name[2:], 16) if name[1] in "xX" else int(name[1:])
    return chr(number) if number < _END_OF_UNICODE else ""


def _byte(code: str) -> str:
    return chr(int(code[1:], 16))


def joined(view: View) -> tuple[View, list[int]] | None:
    r"""Read a view with its lines joined; and where they were.

    Examples
    --------
    >>> both = joined(whole("ab\n  cd"))
    >>> both[0].text, both[1], both[0].span(1, 3)
    ('abcd', [2], (1, 6))
    """
    if "\n" not in view.text and "\r" not in view.text:
        return None
    one = _reread(view, _BREAK, _nothing)
    if one is None:
        return None
    return one, [start for start in one.starts if start]
