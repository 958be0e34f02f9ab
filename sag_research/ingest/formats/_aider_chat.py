"""The Markdown of an aider chat: sessions, who says what, and the turns in it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from sag_research.ingest.formats import _shared as shared
from sag_research.model import Call, Step, Usage

__all__ = ["START", "Session", "sessions_in"]

START: Final = re.compile(r"# aider chat started at (?P<when>\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d)\r?")
"""The line that begins a session; aider gives the local time without its zone."""
_USER, _TOOL, _MODEL = "user", "tool", "model"
_USER_LINE: Final = re.compile(r"####(?: (?P<text>.*?))?  \r?", re.DOTALL)
_TOOL_LINE: Final = re.compile(r">(?: (?P<text>.*?))?  \r?", re.DOTALL)
_SPENT: Final = re.compile(
    r"(?P<sent>[\d,]{1,18}) prompt tokens, (?P<got>[\d,]{1,18}) completion tokens"
    r"(?:, \$(?P<cost>\d{1,9}(?:\.\d{1,18})?) cost)?"
)
"""What a reply took, in the line before it."""
_REPORT: Final = re.compile(
    r"Tokens: (?P<sent>[\d.,]{1,12}[kM]?) sent,.{0,80}? (?P<got>[\d.,]{1,12}[kM]?) received\."
    r"(?: Cost: \$(?P<cost>\d{1,9}(?:\.\d{1,18})?) message)?.{0,80}"
)
"""The same as later versions say it: behind the reply, and rounded."""
_SCALES: Final = {"k": 1_000, "M": 1_000_000}
_OPENS: Final = re.compile(r"<{5,9} (?:SEARCH|ORIGINAL)\s*")
_CLOSES: Final = re.compile(r">{5,9} (?:REPLACE|UPDATED)\s*")
_FENCE: Final = r"(?:```|</?(?:source|code|pre|codeblock|sourcecode)>)"
"""What aider asks models to put around code; other marks where a file holds the first."""
_EMPTY: Final = re.compile(
    rf"^{_FENCE}[\w+.-]{{0,40}}[ \t]*\r?\n\s*?^{_FENCE}[ \t]*\r?$\n?", re.MULTILINE
)
_APPLIED: Final = re.compile(r"^Applied edit to (.+)$", re.MULTILINE)
_FAILED: Final = re.compile(
    r"^## SearchReplaceNoExactMatch: .{1,200}? (?:match|in) (?:lines in )?(\S+)$", re.MULTILINE
)


class _Part(NamedTuple):
    """Lines of one speaker that follow each other."""

    who: str
    text: str


class Session(NamedTuple):
    """One chat, from its first line to that of the next."""

    number: int
    when: str
    parts: tuple[_Part, ...]

    @property
    def replies(self) -> int:
        """How often the model said something."""
        return sum(part.who == _MODEL for part in self.parts)

    @property
    def cost(self) -> float:
        """Return what aider counted in the whole session, in US dollars."""
        said = [_usage(line) for part in self.parts if part.who == _TOOL for line in _lines(part)]
        return sum(usage.cost_usd or 0.0 for usage in said if usage is not None)

    @property
    def goal(self) -> str:
        """Return the first thing the user asked for; commands such as ``/add`` are no request."""
        said = [part.text.strip() for part in self.parts if part.who == _USER]
        return next((text for text in said if text and not text.startswith(("/", "!"))), "")

    @property
    def banner(self) -> str:
        """Return what the console said before anyone else."""
        first = self.parts[0] if self.parts else None
        return first.text if first is not None and first.who == _TOOL else ""

    def steps(self) -> tuple[Step, ...]:
        """Return one step a reply, with what was seen after it."""
        return tuple(_steps(self))


def _lines(part: _Part) -> list[str]:
    return part.text.split("\n")


# ---- lines


def sessions_in(text: str) -> Iterator[Session]:
    """Yield the sessions of a chat history, in order; what stands before the first is none."""
    number, when, begun = 0, None, 0
    every = text.split("\n")
    for place, line in _headings(every):
        if when is not None:
            yield Session(number, when, tuple(_parts(every[begun:place])))
            number += 1
        when, begun = line, place + 1
    if when is not None:
        yield Session(number, when, tuple(_parts(every[begun:])))


def _headings(lines: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Yield where sessions begin, and when.

    A model can write such a line, too. aider's stands behind an empty line, and before what the
    console says, unless nothing came of the session.
    """
    is_first = True
    for place, line in enumerate(lines):
        found = START.fullmatch(line)
        if found is None:
            continue
        behind = next(filter(str.strip, map(lines.__getitem__, range(place + 1, len(lines)))), None)
        is_own = behind is None or _TOOL_LINE.fullmatch(behind) or START.fullmatch(behind)
        if is_first or (is_own and not lines[place - 1].strip()):
            yield place, found["when"]
            is_first = False


def _parts(lines: Sequence[str]) -> Iterator[_Part]:
    who, said = "", list[str]()
    for line in lines:
        speaker, text = _spoken(line)
        if speaker != who and (speaker != _MODEL or text.strip() or who == _MODEL):
            if part := _part(who, said):
                yield part
            who, said = speaker, []
        if speaker == who:
            said.append(text)
    if part := _part(who, said):
        yield part


def _part(who: str, said: list[str]) -> _Part | None:
    text = "\n".join(said).strip("\r\n")
    return _Part(who, text) if text.strip() else None


def _spoken(line: str) -> tuple[str, str]:
    """Tell who speaks: aider ends its own lines and the user's with two spaces, not the model's."""
    if found := _USER_LINE.fullmatch(line):
        return _USER, found["text"] or ""
    if found := _TOOL_LINE.fullmatch(line):
        return _TOOL, found["text"] or ""
    return _MODEL, line


# ---- turns


class _Turn:
    """A reply, what it took, and what came after it."""

    def __init__(self, text: str, usage: Usage | None) -> None:
        self.text, self.usage = text, usage
        self.seen: list[str] = []


def _steps(session: Session) -> Iterator[Step]:
    turns: list[_Turn] = []
    before: Usage | None = None
    for part in session.parts:
        if part.who == _MODEL:
            turns.append(_Turn(part.text, before))
            before = None
            continue
        for line in _lines(part) if part.who == _TOOL else ():
            if _SPENT.fullmatch(line):
                if before is not None:  # the reply that this was for is empty
                    turns.append(_Turn("", before))
                before = _usage(line)
            elif turns and turns[-1].usage is None and _REPORT.fullmatch(line):
                turns[-1].usage = _usage(line)
        if turns and (text := _without_counts(part)):
            turns[-1].seen.append(text)
    if before is not None:
        turns.append(_Turn("", before))
    yield from map(_step, turns)


def _without_counts(part: _Part) -> str:
    if part.who == _USER:
        return part.text
    kept = (
        line for line in _lines(part) if not (_SPENT.fullmatch(line) or _REPORT.fullmatch(line))
    )
    return "\n".join(kept).strip("\n")


def _usage(line: str) -> Usage | None:
    found = _SPENT.fullmatch(line) or _REPORT.fullmatch(line)
    if found is None:
        return None
    cost = float(found["cost"]) if found["cost"] else None
    said = shared.usage_of(_amount(found["sent"]), _amount(found["got"]), cost)
    return said or Usage()


def _amount(text: str) -> int | None:
    """Return a number of tokens.

    Examples
    --------
    >>> _amount("33,924"), _amount("3.1k"), _amount("1.2.3k")
    (33924, 3100, None)
    """
    scale = _SCALES.get(text[-1:], 1)
    try:
        return round(float(text.rstrip("kM").replace(",", "")) * scale)
    except ValueError:
        return None


def _step(turn: _Turn) -> Step:
    seen = shared.joined(turn.seen)
    blocks = list(_blocks(turn.text))
    calls = tuple(_calls(turn.text, blocks, seen))
    return Step(
        thought=_without(turn.text, blocks).strip(),
        action=shared.joined([call.text for call in calls]),
        observation=seen,
        calls=calls,
        usage=turn.usage,
    )


def _blocks(text: str) -> Iterator[tuple[int, int]]:
    """Yield where the SEARCH/REPLACE blocks of a reply begin and end; each line is read once."""
    start, place = None, 0
    for line in text.split("\n"):
        if start is None and _OPENS.fullmatch(line):
            start = place
        elif start is not None and _CLOSES.fullmatch(line):
            yield start, place + len(line)
            start = None
        place += len(line) + 1


def _without(text: str, blocks: Sequence[tuple[int, int]]) -> str:
    """Return a reply without its blocks and the fences that stood around them."""
    if not blocks:
        return text
    ends = [0, *(end for _, end in blocks)]
    starts = [*(start for start, _ in blocks), len(text)]
    return _EMPTY.sub("", "".join(text[end:start] for end, start in zip(ends, starts, strict=True)))


def _calls(text: str, blocks: Sequence[tuple[int, int]], seen: str) -> Iterator[Call]:
    """Yield the edits of a reply; of those in another form than blocks, what aider applied."""
    applied = {path.strip() for path in _APPLIED.findall(seen)}
    failed = {path.strip() for path in _FAILED.findall(seen)}
    written = set()
    path = ""
    for start, end in blocks:
        path = _path_before(text, start) or path
        edit = text[start:end]
        written.add(path)
        yield Call(
            name="edit",
            arguments={"path": path, "edit": edit},
            text=f"{path}\n{edit}" if path else edit,
            status=_status(path, applied, failed),
        )
    for path in sorted(applied - written):
        yield Call(name="edit", arguments={"path": path}, text=f"edit {path}")


def _status(path: str, applied: set[str], failed: set[str]) -> str:
    """Tell whether an edit took; of several to one file of which some failed, nobody knows."""
    if (path in applied) == (path in failed):
        return "unknown"
    return "ok" if path in applied else "error"


def _path_before(text: str, start: int) -> str:
    """Return the file that is named above a block and the fence around it."""
    above = text[max(0, start - 600) : start].rstrip("\r\n").split("\n")
    for line in reversed(above):
        plain = line.strip().strip("`*").rstrip(":").strip()
        if plain and not re.match(_FENCE, line.strip()):
            return plain if not re.search(r"\s", plain) else ""
    return ""
