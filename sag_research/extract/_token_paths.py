"""From a path to the class of the file that it names."""

from __future__ import annotations

import re
from typing import Final

from ._token_rules import Paths

__all__ = ["PathClasses"]

_PATH: Final = re.compile(r"[\w.~@+$*{}][\w./~@+$*{}:,\[\]-]{0,300}|/[\w./~@+$*{}:,\[\]-]{0,300}")
_FIRST_WORD: Final = re.compile(r"[a-z]+")
_ENDING: Final = re.compile(r"[a-z][a-z0-9]{0,9}|1")
_KEPT: Final = 4096


class PathClasses:
    """Says of paths whether they are source, tests, programs of the agent's own, and so on."""

    def __init__(self, rules: Paths) -> None:
        self._rules = rules
        self._roots = re.compile(rules.roots)
        self._known: dict[str, str] = {}

    def of(self, path: str, folder: str = "", bare: bool = False) -> str:
        """Return an object symbol, or "" if the text is no path.

        Parameters
        ----------
        path : str
            One word of a command.
        folder : str
            Where the command runs, as far as the action says so.
        bare : bool
            Whether a word without slash and ending is a path, too.
        """
        key = f"{folder}/{path}" if folder and path[:1] != "/" else path
        if folder and not bare and "." not in path and "/" not in path:
            return ""
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= _KEPT:
                self._known.clear()
            found = self._class(key)
            if len(key) <= 300:
                self._known[key] = found
        if found == "bare":
            return "folder" if bare else ""
        return found

    def _class(self, text: str) -> str:
        """Return the class, "bare" for a lone word, "" for what is no path."""
        rules = self._rules
        path = text.partition("::")[0]
        if not _PATH.fullmatch(path) or "{}" in path:
            return ""
        root = self._roots.match(path)
        if root:
            path = path[root.end() :]
        while path.startswith("./"):
            path = path[2:]
        parts = [part for part in path.lower().split("/") if part]
        if not parts or parts in (["."], [".."], ["~"], ["*"]):
            return "folder" if root or text[:1] in "./~" else ""
        top = len(parts) == 1 or parts[0] in rules.scratch
        name = parts[-1]
        stem, dot, ending = name.rpartition(".")
        if not dot or not _ENDING.fullmatch(ending.strip("*")):
            return self._without_ending(parts, root is not None or "/" in text)
        if name in rules.config_names or (not stem and ending in rules.config):
            return "config"
        if ending in rules.code:
            return self._code(parts, stem, top)
        if not rules.test_folders.isdisjoint(parts[:-1]):
            return "test"
        for kind in ("config", "doc", "data"):
            if ending in getattr(rules, kind):
                return kind
        return "data" if "/" in text else ""

    def _without_ending(self, parts: list[str], sure: bool) -> str:
        if parts[-1] in self._rules.config_names:
            return "config"
        if parts[-1] in self._rules.doc_names:
            return "doc"
        if not self._rules.test_folders.isdisjoint(parts):
            return "test"
        if parts[-1].isdigit():
            return ""
        return "folder" if sure else "bare"

    def _code(self, parts: list[str], stem: str, top: bool) -> str:
        rules = self._rules
        word = self._first_word(stem)
        if word in rules.repro_anywhere or self._first_word(parts[0]) in rules.repro_anywhere:
            return "repro"
        if top and word in rules.script:
            return "script"
        if top and (word in rules.repro or parts[0] in rules.scratch or stem.endswith("_test")):
            return "repro"
        if (
            not rules.test_folders.isdisjoint(parts[:-1])
            or stem.startswith("test_")
            or stem.endswith(("_test", "_tests", ".test", ".spec"))
            or parts[-1] in rules.test_names
            or stem in ("test", "tests")
        ):
            return "test"
        return "src"

    def _first_word(self, name: str) -> str:
        first = _FIRST_WORD.match(name)
        return first[0] if first else ""
