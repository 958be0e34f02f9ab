"""From found text to a canonical name, or a refusal.

A normaliser takes the found text and returns a name, or ``None`` where the text is no mention
after all. Rules choose one by name (``normalise`` in ``rules.toml``).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cached_property
from typing import Final

from ._rules import Rulebook

__all__ = ["Namer"]

_LONGEST_PORT: Final = 65535
_NAMELESS: Final = re.compile(r"[0-9]+|func[0-9]+|lambda\$.*|anonymous")
_QUOTED: Final = re.compile(r"‘[^’]*’|(?<!\w)'[^']*'|`[^']*'(?!\w)")
_NUMBER: Final = re.compile(r"(?<![\w-])-?[0-9]+\b")
_NAME_LIMIT: Final = 500
"""Longer names are noise (minified code, dumps) and would swell every table."""


class Namer:
    """Canonical names under one rulebook.

    Examples
    --------
    >>> from sag_research.extract._rules import load_rulebook
    >>> namer = Namer(load_rulebook())
    >>> namer.name("File", "file", "/testbed/./a//b.py"), namer.name("System", "system", "pg")
    ('a/b.py', 'Postgres')
    """

    def __init__(self, book: Rulebook) -> None:
        self._names = book.file.names
        self._aliases = book.aliases
        self._roots = re.compile(
            "|".join(sorted(self._names.roots, key=len, reverse=True)), re.ASCII
        )

    def name(self, kind: str, normaliser: str, text: str) -> str | None:
        """Return the canonical name of what was found, or None if it is refused."""
        name = self._normalisers[normaliser](text)
        if not name or len(name) > _NAME_LIMIT:
            return None
        return self._aliases.get(kind, {}).get(" ".join(name.lower().split()), name)

    @property
    def normalisers(self) -> frozenset[str]:
        """Names that rules may use."""
        return frozenset(self._normalisers)

    @cached_property
    def _normalisers(self) -> dict[str, Callable[[str], str | None]]:
        return {
            "same": lambda text: text,
            "file": self.file,
            "bare_file": self._bare_file,
            "risky_file": self._risky_file,
            "error": self._error,
            "setting": lambda text: None if text in self._names.not_settings else text,
            "error_word": self._error_word,
            "message": _message,
            "unquoted": _unquoted,
            "flag": self._flag,
            "java_short": _java_short,
            "test_title": lambda text: None if text in self._names.not_tests else text,
            "symbol": self._symbol,
            "module": lambda text: text.rstrip(".") or None,
            "package": _package,
            "port": _port,
            "system": lambda text: text,
            "host": _host,
            "ip": _ip,
            "commit": lambda text: text,
            "commit_mixed": _commit_mixed,
            "test_node": self._test_node,
        }

    def file(self, text: str) -> str | None:
        r"""Return a path without repository root, `.` parts, doubled or Windows separators."""
        path = text.replace("\\", "/").strip()
        if path.startswith("..."):
            return None  # the start was left out, so the name is not known
        absolute = path.startswith("/")
        parts: list[str] = []
        for part in path.split("/"):
            if part == ".." and parts and parts[-1] != "..":
                parts.pop()
            elif part not in ("", ".") and not (part == ".." and absolute):
                parts.append(part)
        if ".." in parts[:1]:
            outside = [part for part in parts if part != ".."]
            absolute = bool(outside) and outside[0] in self._names.system_folders
            parts = outside if absolute else parts
        name = ("/" if absolute else "") + "/".join(parts)
        root = self._roots.match(name) if absolute else None
        return name[root.end() :] if root else name

    def _bare_file(self, text: str) -> str | None:
        first = text.split(".", 1)[0]
        return None if first in self._names.not_files else self.file(text)

    def _risky_file(self, text: str) -> str | None:
        """Refuse attributes: dotted identifiers whose parts before the last are two or more."""
        return None if text.count(".") > 1 else self._bare_file(text)

    def _error(self, text: str) -> str | None:
        """Return an exception's name; those of the standard library without their module."""
        module, _, name = text.rpartition(".")
        known = self._names.standard_errors.get(module, frozenset())
        text = name if name in known or "*" in known else text
        return None if text in self._names.not_errors else text

    def _error_word(self, text: str) -> str | None:
        return self._names.error_words.get(text.lower(), text)

    def _flag(self, text: str) -> str | None:
        """Return a warning's flag, as an error or not."""
        name = text.replace("-Werror=", "-W")
        return None if name in self._names.not_errors else name

    def _symbol(self, text: str) -> str | None:
        """Return the last part of a qualified name; functions without a name are none."""
        if "<" in text or text in self._names.not_symbols:
            return None
        name = re.split(r"[.:]", text)[-1].lstrip("#")
        return None if not name or _NAMELESS.fullmatch(name) else name

    def _test_node(self, text: str) -> str | None:
        path, _, rest = text.partition("::")
        file = self.file(path)
        return file and f"{file}::{rest}"


def _message(text: str) -> str | None:
    """Return a compiler's message without what it quotes and counts: they differ each time."""
    return " ".join(_NUMBER.sub("", _QUOTED.sub("‘…’", text)).split())


def _unquoted(text: str) -> str | None:
    return " ".join(_QUOTED.sub("", text).split())


def _java_short(text: str) -> str | None:
    """Return an exception's name with the ending that Surefire leaves out."""
    return text if text.endswith(("Error", "Failure", "Exception")) else f"{text}Exception"


def _package(text: str) -> str | None:
    """Return a distribution's name; file names and lone words of options are none."""
    return None if text.endswith((".txt", ".whl", ".gz", ".zip", ".toml")) else text


def _port(text: str) -> str | None:
    digits = re.search(r"[0-9]+$", text)
    if not digits or not 0 < int(digits[0]) <= _LONGEST_PORT:
        return None
    return f"Port {int(digits[0])}"


def _host(text: str) -> str | None:
    return text.lower().rstrip(".")


def _ip(text: str) -> str | None:
    return text if all(int(part) <= 255 for part in text.split(".")) else None


def _commit_mixed(text: str) -> str | None:
    """Without a context word, digits and letters must both be there: words and counts are not."""
    return text if not text.isdigit() and any(c.isdigit() for c in text) else None
