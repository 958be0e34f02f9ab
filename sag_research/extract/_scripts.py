"""Programs and diffs that an action carries in it, and the files they change.

Python in here-documents, here-strings and ``-c``; scripts that the action writes and then runs;
diffs that ``patch`` or ``git apply`` is given. Nothing is guessed: a body counts only where the
action says that it is run, and a path only where it stands as a literal.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import msgspec

from ._python import PythonWords, python_writes

__all__ = ["Body", "Carrier", "Part", "ScriptWords", "Word", "is_path", "part_writes", "parts"]

Span = tuple[int, int]

_HEADER: Final = re.compile(
    r"^(?:--- (?P<old>[^\t\r\n]++)[^\n]*+\n\+\+\+ (?P<new>[^\t\r\n]++)"
    r"|rename (?:from|to) (?P<moved>[^\r\n]++))",
    re.MULTILINE,
)
_NO_PATH: Final = re.compile(r"""[\x00-\x1f$`{}*?<>|"'\\%]|://|^[-\s]|^/dev(?:/|$)|[/\s]$""")
_LONGEST: Final = 300
_INTERPRETER: Final = re.compile(r"(?:.*/)?(?P<name>[a-z]+)[0-9.]*", re.DOTALL)
_SHEBANG: Final = re.compile(r"#![^\n]{0,80}?\b(?P<name>python|bash|sh)[0-9.]*(?:\s|\Z)")
_CODE_OPTION: Final = re.compile(r"-[A-Za-z]*c")
_MODULE_OPTION: Final = re.compile(r"-[A-Za-z]*m")
_EMBEDDED: Final = re.compile(r"""'"'"'|'\\''""")
_ESCAPED: Final = re.compile(r"""\\(["\\$`])""")


class ScriptWords(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The table ``[actions.scripts]`` of the rules file."""

    keepers: frozenset[str]
    interpreters: dict[str, str]
    value_options: frozenset[str]
    endings: dict[str, str]
    stdin_words: frozenset[str]


class Word(NamedTuple):
    """One word of a simple command; ``text`` is without quotes."""

    start: int
    end: int
    text: str


@dataclass(slots=True)
class Body:
    """Lines of a here-document; the place is known when they have been read."""

    start: int = 0
    end: int = 0


class Carrier(NamedTuple):
    """A command that may carry or run a program; ``words`` are those behind its own name."""

    owner: int
    program: str
    words: Sequence[Word]
    targets: Sequence[Word]
    sources: Sequence[Word]
    strings: Sequence[Word]
    bodies: Sequence[Body]


class Part(NamedTuple):
    """A program (``python``, ``shell``) or ``diff`` in the action.

    ``code`` is as long as what stands there; quotes that the shell takes away are blanks in it.
    """

    kind: str
    owner: int
    start: int
    code: str


def is_path(text: str) -> bool:
    """Whether a literal can be the path of a file that one can write."""
    return 0 < len(text) <= _LONGEST and any(map(str.isalnum, text)) and not _NO_PATH.search(text)


def parts(text: str, carriers: Sequence[Carrier], words: ScriptWords) -> Iterator[Part]:
    """Yield the parts of an action that its commands run or apply."""
    written: dict[str, Body] = {}
    ran: set[tuple[str, int]] = set()
    for carrier in carriers:
        if carrier.bodies and (kept := _kept(carrier, words)):
            written[_plain(kept)] = carrier.bodies[-1]
            continue
        kind = _kind(carrier, written, text, words)
        for place in _run(kind, carrier, written, words) if kind else ():
            if (kind, place.start) not in ran:  # a script that runs often is read once
                ran.add((kind, place.start))
                yield Part(kind, carrier.owner, *_inside(text, place))


def part_writes(part: Part, python: PythonWords) -> Iterator[Span]:
    """Yield where a part (no shell) names files that it changes, in places of the action."""
    spans = _diff_writes(part.code) if part.kind == "diff" else python_writes(part.code, python)
    for start, end in spans:
        if is_path(part.code[start:end]):
            yield part.start + start, part.start + end


def _kept(carrier: Carrier, words: ScriptWords) -> str:
    """Name of the file to which a command copies its input, if it does."""
    if carrier.program not in words.keepers:
        return ""
    if carrier.targets:
        return carrier.targets[-1].text
    operands = [word.text for word in carrier.words if not word.text.startswith("-")]
    return operands[0] if operands and carrier.program == "tee" else ""


def _run(
    kind: str, carrier: Carrier, written: dict[str, Body], words: ScriptWords
) -> Iterator[Body | Word]:
    """Yield where what one command runs or applies stands."""
    if (script := written.get(_plain(carrier.program))) is not None:
        yield script
        return
    if kind == "diff":
        files, reads = [*carrier.words, *carrier.sources], True
    else:
        operands, code = _operands(carrier.words, words)
        if code:
            yield code
            return
        reads = not operands or bool({operands[0].text, operands[-1].text} & words.stdin_words)
        files = [*operands[:1], *(carrier.sources if reads else ())]
    for word in files:
        if (script := written.get(_plain(word.text))) is not None:
            yield script
    if reads:
        yield from carrier.bodies
        yield from carrier.strings


def _kind(carrier: Carrier, written: dict[str, Body], text: str, words: ScriptWords) -> str:
    """What the command takes: python, shell or diff; empty if it is none that we know."""
    program = carrier.program
    verb = carrier.words[0].text if carrier.words else ""
    if program == "patch" or (program, verb) == ("git", "apply"):
        return "diff"
    if script := written.get(_plain(program)):
        shebang = _SHEBANG.match(text, script.start, script.end)
        ending = program.rpartition(".")[2]
        return words.interpreters[shebang["name"]] if shebang else words.endings.get(ending, "")
    found = _INTERPRETER.fullmatch(program)
    return words.interpreters.get(found["name"], "") if found else ""


def _operands(given: Sequence[Word], words: ScriptWords) -> tuple[list[Word], Word | None]:
    """Words that are no options, and the program behind ``-c``; a module reads no program."""
    skip = False
    for at, word in enumerate(given):
        if skip:
            skip = False
        elif word.text == "-" or not word.text.startswith("-"):
            return list(given[at:]), None
        elif _CODE_OPTION.fullmatch(word.text):
            return list(given[at + 1 :]), given[at + 1] if at + 1 < len(given) else None
        elif _MODULE_OPTION.fullmatch(word.text):
            return list(given[at:]), None
        skip = word.text in words.value_options
    return [], None


def _plain(path: str) -> str:
    return path.removeprefix("./")


def _inside(text: str, place: Body | Word) -> tuple[int, str]:
    """Start and text of a body, or of a quoted word's inside, as long as it stands there."""
    raw = text[place.start : place.end]
    if isinstance(place, Body):
        return place.start, raw
    if len(raw) >= 2 and raw[0] == raw[-1] == "'":
        return place.start + 1, _EMBEDDED.sub(lambda m: "'".center(len(m[0])), raw[1:-1])
    if len(raw) >= 2 and raw[0] == raw[-1] == '"':
        return place.start + 1, _ESCAPED.sub(r" \1", raw[1:-1])
    return place.start, raw if raw == place.text else ""


def _diff_writes(code: str) -> Iterator[Span]:
    """Yield where the paths of files that a unified diff changes stand."""
    for header in _HEADER.finditer(code):
        group = "moved" if header["moved"] else "new"
        if header[group].strip() == "/dev/null":
            group = "old"
        start, path = header.start(group), header[group].rstrip()
        if group != "moved" and path.startswith(("a/", "b/")):
            start, path = start + 2, path[2:]
        yield start, start + len(path)
