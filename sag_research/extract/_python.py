"""Find the files that a Python program writes.

Only paths that stand in it as literals count, directly or through a name that was last given a
literal; nothing is guessed. This is a lexer and no parser: it reads broken and old Python too,
never raises, runs nothing, and takes linear time on any text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

__all__ = ["PythonWords", "python_writes"]

Span = tuple[int, int]

_PIECE: Final = re.compile(
    r"""[A-Za-z_]\w*+(?!['"\w])"""
    r"""|(?:[bfrtuBFRTU]{1,2}(?=['"]))?(?:'''(?:[^'\\]|\\.|'(?!''))*+(?:'''|\\?\Z)"""
    r'''|"""(?:[^"\\]|\\.|"(?!""))*+(?:"""|\\?\Z)'''
    r"""|'(?:[^'\\\n]|\\.)*+'?+|"(?:[^"\\\n]|\\.)*+"?+)"""
    r"""|\w++|\#[^\n]*+|\\\r?\n|\n|[=!<>:]=|[^\s\w]""",
    re.DOTALL,
)
_STRING: Final = re.compile(
    r"""[bfrtuBFRTU]{0,2}(?P<quote>'{3}|"{3}|['"])(?P<text>[^\\]*)(?P=quote)"""
)
_MODE: Final = re.compile(r"(?=.*[wax+])[rwaxbtU+]{1,4}", re.DOTALL)
_HINT: Final = re.compile(
    r"\b(?:open|write_text|write_bytes|unlink|touch|rename|replace|os|shutil|fileinput)\b"
)
_LONGEST: Final = 300
_PARTS: Final = 5
_NESTED: Final = 3
_REACH: Final = 64
"""A call whose arguments go on longer is not read: they may nest, and time stays linear."""


class PythonWords(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The table ``[actions.python]`` of the rules file."""

    openers: frozenset[str]
    paths: frozenset[str]
    methods: frozenset[str]
    writers: dict[str, tuple[int, ...]]
    in_place: frozenset[str]


def python_writes(code: str, words: PythonWords) -> Iterator[Span]:
    """Yield where the literals stand that name the files a program writes.

    Examples
    --------
    >>> words = PythonWords(
    ...     openers=frozenset({"open"}), paths=frozenset(), methods=frozenset(),
    ...     writers={"os.remove": (0,)}, in_place=frozenset(),
    ... )
    >>> code = "p = 'a.py'; open(p, 'w'); open('b.py'); os.remove('c.py')"
    >>> [code[start:end] for start, end in python_writes(code, words)]
    ['a.py', 'c.py']
    """
    if _HINT.search(code):
        yield from _Python(code, words).run()


class _Value(NamedTuple):
    """Literals that a name stands for; ``is_path`` where it is a ``Path`` of them."""

    spans: tuple[Span, ...]
    is_path: bool = False
    is_list: bool = False


class _Python:
    """One pass over the pieces of a program."""

    def __init__(self, code: str, words: PythonWords) -> None:
        self.words = words
        self.code = code
        found = [m for m in _PIECE.finditer(code) if m[0][0] not in "#\\" or m[0] == "\\"]
        self.pieces = [m[0] for m in found] + ["\n"] * 2
        self.starts = [m.start() for m in found] + [len(code)] * 2
        self.values: dict[str, _Value] = {}

    def run(self) -> Iterator[Span]:
        """Yield spans of literals in the program's text."""
        depth, first = 0, 0
        for at, piece in enumerate(self.pieces[:-2]):
            if piece in "([{":
                if piece == "(":
                    yield from self._call(at)
                depth += 1
            elif piece in ")]}":
                depth = max(0, depth - 1)
            elif piece in "\n;" and not depth:
                first = at + 1
            elif piece == "=" and not depth:
                self._assign(first, at)
            elif piece == ":=" or piece == "as":
                self.values.pop(self.pieces[at + 1 if piece == "as" else at - 1], None)
            elif piece == "for":
                self._loop(at)
            elif piece in {"def", "lambda"}:
                self._parameters(at)

    def _assign(self, first: int, at: int) -> None:
        """A statement's ``=``: forget its targets, or remember the literal of its only one."""
        for name in self.pieces[first : min(at, first + _REACH)]:
            self.values.pop(name, None)
        value, end = self._value(at + 1)
        simple = at == first + 1 or self.pieces[first + 1] == ":"
        if value and simple and self.pieces[end] in "\n;":
            self.values[self.pieces[first]] = value

    def _loop(self, at: int) -> None:
        """``for name in [literals]``; any other loop hides what its names were before."""
        end = at + 1
        while end < at + _REACH and self.pieces[end] not in {"in", "\n", ":"}:
            self.values.pop(self.pieces[end], None)
            end += 1
        if self.pieces[end] == "in" and end == at + 2:
            value, stop = self._value(end + 1)
            if value and value.is_list and self.pieces[stop] == ":":
                self.values[self.pieces[at + 1]] = _Value(value.spans)

    def _parameters(self, at: int) -> None:
        """The parameters of a function hide what their names were before."""
        for name in self.pieces[at + 1 : at + _REACH]:
            if name in {")", "\n"}:
                return
            self.values.pop(name, None)

    def _value(self, at: int, deep: int = 0) -> tuple[_Value | None, int]:
        """Value of the expression at ``at`` if it is a literal or a known name; where it ends."""
        piece = self.pieces[at]
        if span := self._literal(at):
            return _Value((span,)), at + 1
        if piece in {"[", "("}:
            return self._list(at)
        name, end = self._dotted(at)
        called = self.pieces[end] == "(" and deep < _NESTED
        if called and (name in self.words.paths or name == "str"):
            value, stop = self._value(end + 1, deep + 1)
            if value and not value.is_list and self.pieces[stop] == ")":
                return value._replace(is_path=name != "str"), stop + 1
            return None, stop
        return self.values.get(name), end

    def _list(self, at: int) -> tuple[_Value | None, int]:
        spans: list[Span] = []
        for end in range(at + 1, min(at + _REACH, len(self.pieces))):
            if self.pieces[end] in {"]", ")"}:
                return _Value(tuple(spans), is_list=True), end + 1
            span = self._literal(end)
            alone = self.pieces[end - 1] in {"[", "(", ",", "\n"}
            if span and alone:
                spans.append(span)
            elif self.pieces[end] not in {",", "\n"}:
                break
        return None, at + 1

    def _dotted(self, at: int) -> tuple[str, int]:
        """Read ``a.b.c`` forward."""
        name, end = self.pieces[at], at + 1
        while self.pieces[end] == "." and end < at + 6:
            name, end = f"{name}.{self.pieces[end + 1]}", end + 2
        return name, end

    def _literal(self, at: int) -> Span | None:
        """Span of the text between the quotes, if the piece is a string without escapes."""
        piece = self.pieces[at]
        if piece[-1] not in "'\"" or len(piece) > _LONGEST:
            return None
        found = _STRING.fullmatch(piece)
        text = found["text"] if found else ""
        if not found or not text.strip(" "):
            return None
        start = self.starts[at] + found.start("text") + len(text) - len(text.lstrip(" "))
        return start, start + len(text.strip(" "))

    def _call(self, at: int) -> Iterator[Span]:
        """The call whose parenthesis is at ``at``: yield the literals it writes to."""
        if at == 0:
            return
        name, base = self._called(at - 1)
        words = self.words
        method = name.rpartition(".")[2]
        if name in words.openers:
            arguments = self._arguments(at)
            if self._writes(arguments, 1):
                yield from self._spans(arguments, 0)
        elif name in words.writers:
            arguments = self._arguments(at)
            for place in words.writers[name]:
                yield from self._spans(arguments, place)
        elif name in words.in_place:
            arguments = self._arguments(at)
            inplace = arguments.get("inplace")
            if inplace is not None and self.pieces[inplace] in {"True", "1"}:
                yield from self._spans(arguments, 0)
        elif base is not None and base.is_path and method in words.methods | {"open"}:
            arguments = self._arguments(at)
            if method != "open" or self._writes(arguments, 0):
                yield from base.spans
            if method in {"rename", "replace"}:
                yield from self._spans(arguments, 0)

    def _called(self, at: int) -> tuple[str, _Value | None]:
        """Dotted name that ends at ``at``, and the value that its last part is a method of."""
        parts, first = self._back(at)
        if len(parts) != 2 or parts[0] != ")":
            return ".".join(parts), self.values.get(parts[0]) if len(parts) == 2 else None
        opening = first - 2  # Path("a.py").write_text
        if opening >= 1 and self.pieces[opening] == "(":
            name = ".".join(self._back(opening - 1)[0])
            value, end = self._value(opening + 1)
            if value and not value.is_list and name in self.words.paths and end == first:
                return f".{parts[1]}", value._replace(is_path=True)
        return "", None

    def _back(self, at: int) -> tuple[list[str], int]:
        """Parts of the dotted name that ends at ``at``, and where it starts."""
        parts = [self.pieces[at]]
        while at >= 2 and self.pieces[at - 1] == "." and len(parts) < _PARTS:
            at -= 2
            parts.append(self.pieces[at])
        return parts[::-1], at

    def _arguments(self, at: int) -> dict[int | str, int]:
        """Where each argument starts, by place or keyword; nothing if there are very many."""
        found: dict[int | str, int] = {}
        depth, place, start = 0, 0, at + 1
        for end in range(at, min(at + _REACH, len(self.pieces))):
            piece = self.pieces[end]
            depth += (piece in "([{") - (piece in ")]}")
            if (piece == "," and depth == 1) or not depth:
                while self.pieces[start] == "\n" and start < end:
                    start += 1
                if start < end and self.pieces[start + 1] == "=":
                    found[self.pieces[start]] = start + 2
                elif start < end:
                    found[place] = start
                    place += 1
                start = end + 1
                if not depth:
                    return found
        return {}

    def _spans(self, arguments: dict[int | str, int], place: int) -> tuple[Span, ...]:
        """Literals that an argument stands for, if it is nothing but them."""
        at = arguments.get(place)
        if at is None:
            return ()
        value, end = self._value(at)
        while self.pieces[end] == "\n" and end + 2 < len(self.pieces):
            end += 1
        return value.spans if value and not value.is_list and self.pieces[end] in {",", ")"} else ()

    def _writes(self, arguments: dict[int | str, int], place: int) -> bool:
        """Whether the mode that a file is opened with lets write."""
        at = arguments.get("mode", arguments.get(place))
        span = None if at is None else self._literal(at)
        return span is not None and bool(_MODE.fullmatch(self.code, *span))
