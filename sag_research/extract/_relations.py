"""Edges between the entities of one text. Where a text leaves doubt there is no edge."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = ["Edge", "Mentions", "edges"]

Ints = NDArray[np.int64]

_LOCATION: Final = re.compile(
    r":[0-9]+(?::[0-9]+)?: (?:(?:fatal )?error: |runtime error: )?"
    r"|\([0-9]+,[0-9]+\): error |:[0-9]+:[0-9]+ - error |:\[[0-9]+,[0-9]+\] (?:error: )?"
)
_BEFORE_PLACE: Final = re.compile(r" in | at |\]: [^\n]*\n +--> |[^\n]*\n +--> ")
_TO_FRAME: Final = re.compile(r"[^\n]*\n[ \t]+at [^\n]*")
_ABOVE_FRAMES: Final = ("error-raised-java", "error-raised-script")
_GREP_IMPORT: Final = re.compile(r"(?::|[:-][0-9]+[:-])[ \t]*(?:from|import) ")
_DIFF_IMPORT: Final = re.compile(r"\n\+[ \t]*(?:from|import) \Z")
_CODE: Final = re.compile(r"\b(?:raise|except|import|def|class|with|return|assert\w*)\b|[#=]")
"""Source lines name errors and systems without any having happened."""
_REACH: Final = 60
"""Code points looked back or ahead for the words that tie two neighbours together."""
_LINE_REACH: Final = 300
"""The same where a whole line of message may stand between them."""


class Mentions(NamedTuple):
    """Mentions that stand, sorted by text and place; ``code`` points into the vocabulary."""

    text: Ints
    start: Ints
    end: Ints
    code: Ints


class Edge(NamedTuple):
    """A relation found in a text, between two codes of the vocabulary."""

    text: int
    source: int
    type: str
    target: int
    rule: str


class Words(Protocol):
    """What is needed of a vocabulary: rule, kind and name of each code, and new codes."""

    rules: list[str]
    kinds: list[str]
    names: list[str]

    def code(self, rule: str, kind: str, name: str) -> int:
        """Code of an entry, added if it is new."""


def edges(found: Mentions, texts: Sequence[str], words: Words) -> Iterator[Edge]:
    """Yield the edges that texts alone determine (the rest is in the actions).

    Parameters
    ----------
    found : Mentions
    texts : sequence of str
        As the mentions' spans count them.
    words : vocabulary
    """
    if not len(found.code):
        return
    kind = np.array(words.kinds, dtype=object)[found.code]
    rule = np.array(words.rules, dtype=object)[found.code]
    for name, mark in (("test-node", "::"), ("test-vitest", " > ")):
        for i in np.flatnonzero(rule == name).tolist():
            code = int(found.code[i])
            file = words.code(name, "File", words.names[code].partition(mark)[0])
            yield Edge(int(found.text[i]), code, "TESTS", file, name)
    yield from _above_frames(found, texts, kind, rule)
    yield from _neighbours(found, texts, kind)
    yield from _tracebacks(found, texts, rule)
    yield from _systems(found, texts, kind)
    yield from _diff_imports(found, texts, kind, rule)


def _neighbours(found: Mentions, texts: Sequence[str], kind: NDArray[np.object_]) -> Iterator[Edge]:
    """``Error in path``, ``path:3: Error`` and ``path:3:import x``."""
    gap = found.start[1:] - found.end[:-1]
    near = (found.text[1:] == found.text[:-1]) & (gap > 0) & (gap < _LINE_REACH)
    first, second = kind[:-1], kind[1:]
    wanted = (
        ((first == "Error") & (second == "File"))
        | ((first == "File") & (second == "Error"))
        | ((first == "File") & (second == "Module"))
    )
    for i in np.flatnonzero(near & wanted).tolist():
        text = int(found.text[i])
        between = texts[text][found.end[i] : found.start[i + 1]]
        left, right = int(found.code[i]), int(found.code[i + 1])
        if kind[i] == "Error":
            if _BEFORE_PLACE.fullmatch(between):
                yield Edge(text, right, "RAISED", left, "error-in-file")
        elif kind[i + 1] == "Error":
            if _LOCATION.fullmatch(between):
                yield Edge(text, left, "RAISED", right, "error-at-line")
        elif _GREP_IMPORT.fullmatch(between) and _at_line_start(texts[text], int(found.start[i])):
            yield Edge(text, left, "IMPORTS", right, "import-in-line")


def _above_frames(
    found: Mentions, texts: Sequence[str], kind: NDArray[np.object_], rule: NDArray[np.object_]
) -> Iterator[Edge]:
    """Where the error stands above its frames, the file of the first frame raised it."""
    for i in np.flatnonzero(np.isin(rule, _ABOVE_FRAMES)).tolist():
        text = int(found.text[i])
        for j in range(i + 1, min(i + 6, len(found.text))):
            if found.text[j] != text:
                break
            if kind[j] == "File":
                between = texts[text][found.end[i] : found.start[j]]
                if len(between) < 4 * _LINE_REACH and _TO_FRAME.fullmatch(between):
                    yield Edge(
                        text, int(found.code[j]), "RAISED", int(found.code[i]), "error-above-frame"
                    )
                break


def _at_line_start(text: str, place: int) -> bool:
    return place == 0 or text[place - 1] == "\n"


def _tracebacks(found: Mentions, texts: Sequence[str], rule: NDArray[np.object_]) -> Iterator[Edge]:
    """The file of the last frame raised the error below it."""
    frames = np.flatnonzero(rule == "file-frame")
    for i in np.flatnonzero(rule == "error-raised-traceback").tolist():
        at = int(np.searchsorted(frames, i)) - 1
        if at < 0:
            continue
        frame = int(frames[at])
        text = int(found.text[i])
        begin, end = int(found.end[frame]), int(found.start[i])
        if found.text[frame] == text and texts[text].find('File "', begin, end) < 0:
            yield Edge(text, int(found.code[frame]), "RAISED", int(found.code[i]), "traceback")


def _systems(found: Mentions, texts: Sequence[str], kind: NDArray[np.object_]) -> Iterator[Edge]:
    """On a line that names one system: its ports, and the errors it met."""
    for text in np.unique(found.text[kind == "System"]).tolist():
        low, high = np.searchsorted(found.text, (text, text + 1))
        breaks = [m.start() for m in re.finditer("\n", texts[text])]
        lines: dict[int, list[int]] = {}
        for i in range(int(low), int(high)):
            if kind[i] in {"System", "Configuration", "Error"}:
                lines.setdefault(bisect_right(breaks, int(found.start[i])), []).append(i)
        for members in lines.values():
            yield from _system_line(text, members, found, texts[text], kind)


def _system_line(
    text: int, members: list[int], found: Mentions, content: str, kind: NDArray[np.object_]
) -> Iterator[Edge]:
    systems = {int(found.code[i]) for i in members if kind[i] == "System"}
    if len(systems) != 1:
        return
    (system,) = systems
    low = content.rfind("\n", 0, int(found.start[members[0]])) + 1
    code_line = _CODE.search(content[low : found.end[members[-1]]])
    for i in members:
        code = int(found.code[i])
        if kind[i] == "Error":
            if not code_line:
                yield Edge(text, system, "ENCOUNTERED", code, "system-line")
        elif kind[i] == "Configuration" and content[found.end[i] - 1].isdigit():
            yield Edge(text, system, "CONFIGURED_WITH", code, "system-line")


def _diff_imports(
    found: Mentions, texts: Sequence[str], kind: NDArray[np.object_], rule: NDArray[np.object_]
) -> Iterator[Edge]:
    """A line that a diff adds to a file and that imports a module."""
    headers = np.flatnonzero(rule == "file-diff")
    if not len(headers):
        return
    modules = np.flatnonzero((kind == "Module") & np.isin(found.text, found.text[headers]))
    for i in modules.tolist():
        header = int(headers[max(0, int(np.searchsorted(headers, i)) - 1)])
        text, start = int(found.text[i]), int(found.start[i])
        content = texts[text]
        named = content.endswith("+++ b/", 0, int(found.start[header]))
        same_text = header < i and found.text[header] == text
        if same_text and named and _DIFF_IMPORT.search(content[max(0, start - _REACH) : start]):
            file, module = int(found.code[header]), int(found.code[i])
            yield Edge(text, file, "IMPORTS", module, "import-added")
