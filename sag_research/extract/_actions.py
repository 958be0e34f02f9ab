"""Read an action as shell text: which programs run, and which files they change.

Agents write shell, their own editor tools, or calls as ``name {json}``. The splitter knows
quotes, here-documents, pipes, chains, substitutions, assignments and wrappers; it is no shell:
it never raises, and takes linear time on any text. Bodies of here-documents and of line edits
are text, not commands; those that the action runs or applies are read in `_scripts`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Final, NamedTuple

import msgspec

from ._python import PythonWords
from ._scripts import Body, Carrier, ScriptWords, Word, is_path, part_writes, parts

__all__ = ["Action", "ActionReader", "ActionWords"]

Span = tuple[int, int]

_BLANK: Final = re.compile(r"(?:[ \t\r\f\v]|\\\r?\n)++")
_BLANK_LINES: Final = re.compile(r"(?:\s|\\\r?\n)++")
_PIECE: Final = r"""[^\s'"\\;&|()<>`$#]++|\\[^\r\n]|'[^']*+'|"[^"\\]*+(?:\\.[^"\\]*+)*+"|\$(?!\()"""
_WORD: Final = re.compile(rf"(?:{_PIECE})(?:{_PIECE}|\#)*+", re.DOTALL)
_REDIRECT: Final = re.compile(r"(?:[0-9]{0,3}|&)(?P<op><<<|<<-?|<>|<&|<(?!\()|>>|>\||>&|>(?!\())")
_HEREDOC: Final = re.compile(r"""[ \t]*\\?(?P<quote>['"]?)(?P<word>[\w.!@%+-]+)(?P=quote)""")
_OPERATOR: Final = re.compile(r"&&|\|\||\|&|;;|[;&|]")
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_]\w*(?:\[[^\]]*\])?\+?=")
_PROGRAM: Final = re.compile(r"(?=[^0-9]*[A-Za-z_])[\w./~][\w./+@~-]*", re.ASCII)
_NUMBER: Final = re.compile(r"[0-9.]+[smhd]?|\{\}")
_LINES: Final = re.compile(r"[0-9]+:[0-9]+")
_LABEL: Final = re.compile(r"[A-Za-z_]\w*(?:\.\w+)*", re.ASCII)
_CARRIED: Final = re.compile(r"<<|\s-[A-Za-z]*c\s")
_DEPTH: Final = 100
"""Substitutions nested deeper are read as a flat chain."""
_CALL: Final = re.compile(r"[ \t]*(?=\{\s*\"|\{\s*\})")


class Writer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Programs that change the files they are given."""

    programs: frozenset[str]
    operands: str
    files: bool = False
    option: str | None = None
    script: frozenset[str] = frozenset()
    verbs: frozenset[str] = frozenset()


class ActionWords(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The table ``[actions]`` of the rules file."""

    keywords: frozenset[str]
    no_program: frozenset[str]
    wrappers: frozenset[str]
    wrapper_words: frozenset[str]
    wrapper_value_options: frozenset[str]
    not_shell: frozenset[str]
    open_file_editors: frozenset[str]
    edit_end: str
    label_runners: dict[str, str]
    label_value_options: frozenset[str]
    json_paths: frozenset[str]
    json_verbs: frozenset[str]
    json_writers: frozenset[str]
    json_shells: frozenset[str]
    writer: tuple[Writer, ...]
    scripts: ScriptWords
    python: PythonWords


class Action(NamedTuple):
    """What an action does.

    Attributes
    ----------
    commands : list of Word
        Programs invoked, in order.
    operands : list of (start, end, command, mutated)
        Words given to ``commands[command]``, sorted; ``mutated`` where it changes them.
    labels : list of Word
        Test labels given to a test runner.
    edits : list of (start, end)
        Where the file that is open gets changed.
    writes : dict
        Where the action surely names a file that it changes, and the command that does it (-1:
        none).
    carriers : list of Carrier
        Commands that may carry or run programs, in order; kept only where the text holds one.
    carries : bool
        Whether the text may hold a program.
    """

    commands: list[Word]
    operands: list[tuple[int, int, int, bool]]
    labels: list[Word]
    edits: list[Span]
    writes: dict[Span, int]
    carriers: list[Carrier]
    carries: bool


class _Simple:
    """A simple command while it is being read."""

    __slots__ = ("bodies", "opener", "sources", "strings", "targets", "words")

    def __init__(self, opener: str = "") -> None:
        self.words: list[Word] = []
        self.targets: list[Word] = []
        self.sources: list[Word] = []
        self.strings: list[Word] = []
        self.bodies: list[Body] = []
        self.opener = opener


class ActionReader:
    """Reads actions by one table of words."""

    def __init__(self, words: ActionWords) -> None:
        self._words = words
        self._writers: dict[str, list[tuple[Writer, re.Pattern[str] | None]]] = {}
        for writer in words.writer:
            option = re.compile(writer.option) if writer.option else None
            for program in writer.programs:
                self._writers.setdefault(program, []).append((writer, option))

    def read(self, text: str) -> Action:
        """Read one action; any text will do."""
        action = _nothing(bool(_CARRIED.search(text)))
        first = _WORD.match(text, len(text) - len(text.lstrip()))
        if first and first[0].lower() in self._words.not_shell and " " in text.strip():
            return action
        _Splitter(text, self, action).run()
        self._carried(text, action)
        action.operands.sort()
        return action

    def _carried(self, text: str, action: Action) -> None:
        """Add what the programs and diffs in the action change."""
        for part in parts(text, action.carriers, self._words.scripts):
            if part.kind == "shell":
                inner = _nothing(carries=False)
                _Splitter(text, self, inner, part.start, part.start + len(part.code)).run()
                changed = ((*span[:2], part.owner, True) for span in inner.operands if span[3])
                action.operands.extend(changed)
            else:
                for span in part_writes(part, self._words.python):
                    action.writes.setdefault(span, part.owner)

    def finish(self, simple: _Simple, action: Action) -> None:
        """Add a complete simple command to the action."""
        words = simple.words
        if not (words or simple.sources or simple.targets):
            return
        at = self._skip_leading(words, 0)
        owner = len(action.commands)
        mutated: set[Span] = {(word.start, word.end) for word in simple.targets}
        if at < len(words) and words[at].text not in self._words.no_program:
            at = self._programs(words, at, action)
            self._labels(words, action)
            mutated |= {(w.start, w.end) for w in self._changed(words, at, action)}
            if at < len(words) and words[at].text in self._words.open_file_editors:
                where = words[at + 1] if at + 1 < len(words) else words[at]
                action.edits.append((where.start, where.end))
        command = len(action.commands) - 1 if len(action.commands) > owner else -1
        if command >= 0 and action.carries:
            action.carriers.append(
                Carrier(
                    command, words[at].text, words[at + 1 :],
                    simple.targets, simple.sources, simple.strings, simple.bodies,
                )
            )  # fmt: skip
            if simple.bodies and words[at].text in self._words.scripts.keepers:
                action.writes.update((span, command) for span in _files(simple.targets))
        self._executed(words[at + 1 :], action)
        for word in words[at + 1 :] + simple.sources + simple.targets:
            span = (word.start, word.end)
            action.operands.append((*span, command, span in mutated))

    def call(self, text: str, name: Word, action: Action) -> int | None:
        """Read ``name {json}``; return where it ends, or None if it is no such call."""
        opening = _CALL.match(text, name.end)
        if not opening:
            return None
        try:
            arguments, end = json.JSONDecoder().raw_decode(text, opening.end())
        except (ValueError, RecursionError):
            return None
        action.commands.append(name)
        owner = len(action.commands) - 1
        verb = str(arguments.get("command", "edit"))
        writes = name.text in self._words.json_writers and verb in self._words.json_verbs
        shell = {"command", "cmd"} if name.text in self._words.json_shells else frozenset()
        for key in sorted(arguments.keys() & (self._words.json_paths | shell)):
            place = _value_span(text, opening.end(), end, arguments[key])
            if place and key in shell:
                _Splitter(text, self, action, *place).run()
            elif place:
                action.operands.append((*place, owner, writes))
        return end

    def is_line_edit(self, words: list[Word]) -> bool:
        """Whether the lines that follow are the new text of an edit."""
        return (
            len(words) >= 2
            and words[0].text in self._words.open_file_editors
            and bool(_LINES.fullmatch(words[1].text))
        )

    def copies(self, words: list[Word]) -> bool:
        """Whether a command hands its input on as it is."""
        return bool(words) and words[0].text in self._words.scripts.keepers

    @property
    def edit_end(self) -> str:
        """The line that ends an edit's text."""
        return self._words.edit_end

    def _skip_leading(self, words: list[Word], at: int) -> int:
        """Pass over keywords and assignments."""
        while at < len(words) and (
            words[at].text in self._words.keywords or _ASSIGNMENT.match(words[at].text)
        ):
            at += 1
        return at

    def _programs(self, words: list[Word], at: int, action: Action) -> int:
        """Add the program at ``at`` and, behind wrappers, the one that really runs."""
        while at < len(words) and _PROGRAM.fullmatch(words[at].text):
            action.commands.append(words[at])
            if words[at].text not in self._words.wrappers:
                break
            inner = self._behind_wrapper(words, at + 1)
            if inner >= len(words) or not _PROGRAM.fullmatch(words[inner].text):
                break
            at = inner
        return at

    def _executed(self, words: list[Word], action: Action) -> None:
        """Add programs that ``find -exec`` starts."""
        for option, program in pairwise(words):
            if option.text in {"-exec", "-execdir", "-ok"} and _PROGRAM.fullmatch(program.text):
                action.commands.append(program)

    def _behind_wrapper(self, words: list[Word], at: int) -> int:
        while at < len(words):
            text = words[at].text
            if text in self._words.wrapper_value_options:
                at += 2
            elif (
                text.startswith("-")
                or text in self._words.wrapper_words
                or _NUMBER.fullmatch(text)
                or _ASSIGNMENT.match(text)
            ):
                at += 1
            else:
                break
        return at

    def _labels(self, words: list[Word], action: Action) -> None:
        """Add the labels given to a test runner."""
        for at, word in enumerate(words):
            before = self._words.label_runners.get(word.text.rpartition("/")[2])
            if before is None:
                continue
            rest = words[at + 1 :]
            if before:
                if not rest or rest[0].text != before:
                    continue
                rest = rest[1:]
            option = ""
            for label in rest:
                if option not in self._words.label_value_options and _LABEL.fullmatch(label.text):
                    action.labels.append(label)
                option = label.text
            return

    def _changed(self, words: list[Word], at: int, action: Action) -> list[Word]:
        """Return the operands that the program at ``at`` changes; note those that are files."""
        if at >= len(words):
            return []
        options = [w.text for w in words[at + 1 :] if w.text.startswith("-")]
        for writer, option in self._writers.get(words[at].text, ()):
            if option and not any(option.fullmatch(text) for text in options):
                continue
            operands = _operands(words[at + 1 :], writer)
            if writer.files:
                command = len(action.commands) - 1
                action.writes.update((span, command) for span in _files(operands, writer.operands))
            if writer.operands.endswith("="):
                return [word for word in operands if word.text.startswith(writer.operands)]
            if writer.verbs:
                if not operands or operands[0].text not in writer.verbs:
                    continue
                operands = operands[1:]
            scripted = any(text in writer.script for text in options)
            chosen = {"first": operands[:1], "last": operands[-1:], "all": operands}
            return chosen.get(writer.operands, operands if scripted else operands[1:])
        return []


class _Splitter:
    """One pass over a text (or a part of it) that hands simple commands to the reader."""

    def __init__(
        self,
        text: str,
        reader: ActionReader,
        action: Action,
        start: int = 0,
        end: int | None = None,
    ) -> None:
        self.text = text
        self.reader = reader
        self.action = action
        self.position = start
        self.end = len(text) if end is None else end
        self.current = _Simple()
        self.outer: list[_Simple] = []
        self.heredocs: list[tuple[str, Body]] = []
        self.arithmetic = self.calls = True

    def run(self) -> None:
        """Read to the end."""
        while self.position < self.end:
            self._next()
        while True:
            self._finish()
            if not self.outer:
                return
            self.current = self.outer.pop()

    def _next(self) -> None:
        between = not (self.current.words or self.current.targets or self.heredocs)
        blank = (_BLANK_LINES if between else _BLANK).match(self.text, self.position, self.end)
        if blank:
            self.position = blank.end()
            return
        char = self.text[self.position]
        if char == "\n":
            self._newline()
        elif char == "#":
            self.position = self._find("\n", self.position)
        elif char in "$(`)" and self._bracket(char):
            return
        elif char in "<>&0123456789" and (
            found := _REDIRECT.match(self.text, self.position, self.end)
        ):
            self._redirect(found)
        elif operator := _OPERATOR.match(self.text, self.position, self.end):
            self.position = operator.end()
            copied = operator[0] in {"|", "|&"} and self.reader.copies(self.current.words)
            piped = self.current.bodies if copied else []
            self._finish()
            self.current.bodies = piped
        else:
            self._word()

    def _find(self, what: str, start: int) -> int:
        """Place of ``what`` from ``start`` on, or the end."""
        found = self.text.find(what, start, self.end)
        return self.end if found < 0 else found

    def _word(self) -> None:
        found = _WORD.match(self.text, self.position, self.end)
        start = self.position
        self.position = found.end() if found else start + 1
        word = Word(start, self.position, _unquote(self.text[start : self.position]))
        if self.calls and not self.current.words and _CALL.match(self.text, self.position):
            end = self.reader.call(self.text, word, self.action)
            if end is not None:
                self.position = end
                return
            self.calls = False
        self.current.words.append(word)

    def _bracket(self, char: str) -> bool:
        """Enter or leave a subshell or substitution; False if it is none."""
        if char == "$" and not self.text.startswith("$(", self.position):
            return False
        if char == "$" and self.arithmetic and self.text.startswith("$((", self.position):
            end = self._find("))", self.position)
            if end < self.end:
                self.position = end + 2
                return True
            self.arithmetic = False
        self.position += 2 if char == "$" else 1
        if char == ")" or (char == "`" and self.current.opener == "`"):
            self._leave()
            return True
        if char == "(" and len(self.current.words) == 1:
            self.current.words.clear()  # the name of a function being defined
        if len(self.outer) >= _DEPTH:
            self._finish()
            while self.position < self.end and self.text[self.position] in "$(`":
                self.position += 1
            return True
        self.outer.append(self.current)
        self.current = _Simple(char)
        return True

    def _leave(self) -> None:
        if not self.outer:
            self.current = _Simple()  # a pattern of `case`
            return
        self._finish()
        self.current = self.outer.pop()

    def _redirect(self, found: re.Match[str]) -> None:
        self.position = found.end()
        operator = found["op"]
        if operator in {"<<", "<<-"}:
            if opening := _HEREDOC.match(self.text, self.position, self.end):
                self.position = opening.end()
                self.current.bodies.append(Body())
                self.heredocs.append((opening["word"], self.current.bodies[-1]))
            return
        if blank := _BLANK.match(self.text, self.position, self.end):
            self.position = blank.end()
        target = _WORD.match(self.text, self.position, self.end)
        if target:
            self.position = target.end()
            word = Word(target.start(), target.end(), _unquote(target[0]))
            if operator == "<<<":
                self.current.strings.append(word)
            if ">" not in operator:
                self.current.sources.append(word)
            elif not word.text.isdigit():
                self.current.targets.append(word)

    def _newline(self) -> None:
        line_edit = self.reader.is_line_edit(self.current.words)
        self._finish()
        if line_edit:
            end = self._find("\n" + self.reader.edit_end, self.position)
            self.position = min(self.end, end + 1 + len(self.reader.edit_end))
        else:
            self.position += 1
        for word, body in self.heredocs:
            body.start = body.end = self.position
            self._skip_body(word)
            body.end = max(body.start, self.position - len(word))
        self.heredocs.clear()

    def _skip_body(self, word: str) -> None:
        """Pass over a here-document; without its end word the rest of the text is its body."""
        body = self.position
        at = self._find(word, body)
        while at < self.end:
            before = at
            while before > body and self.text[before - 1] == "\t":
                before -= 1
            after = self.text[at + len(word) : at + len(word) + 2]
            if (before == body or self.text[before - 1] == "\n") and (
                after[:1] in {"", "\n"} or after == "\r\n"
            ):
                self.position = at + len(word)
                return
            at = self._find(word, at + 1)
        self.position = self.end

    def _finish(self) -> None:
        opener = self.current.opener
        self.reader.finish(self.current, self.action)
        self.current = _Simple(opener)


def _operands(words: list[Word], writer: Writer) -> list[Word]:
    """Return the words that are neither options nor scripts given by an option."""
    out = []
    script = False
    for word in words:
        if not script and not word.text.startswith("-"):
            out.append(word)
        in_place = writer.option is not None and word.text.startswith("-i")
        script = word.text in writer.script and not in_place
    return out


def _nothing(carries: bool) -> Action:
    return Action([], [], [], [], {}, [], carries)


def _files(given: list[Word], before: str = "") -> Iterator[Span]:
    """Yield where words that are files for certain stand, if they are plain words."""
    prefix = len(before) if before.endswith("=") else 0
    for word in given:
        plain = word.end - word.start == len(word.text)
        if plain and (not prefix or word.text.startswith(before)) and is_path(word.text[prefix:]):
            yield word.start + prefix, word.end


def _unquote(text: str) -> str:
    """Drop quotes and escapes of one word."""
    return re.sub(r"\\(.)|['\"]", r"\1", text, flags=re.DOTALL) if _quoted(text) else text


def _quoted(text: str) -> bool:
    return "'" in text or '"' in text or "\\" in text


def _value_span(text: str, start: int, end: int, value: Any) -> Span | None:
    """Where a JSON string value stands literally, if it needs no escapes."""
    if not isinstance(value, str) or not value:
        return None
    at = text.find(f'"{value}"', start, end)
    return None if at < 0 else (at + 1, at + 1 + len(value))
