"""Rules and aliases: read from TOML, checked, and compiled for both regex engines."""

from __future__ import annotations

import hashlib
import re
import tomllib
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from ..errors import SagError
from ..model import ENTITY_KINDS, FIELDS

__all__ = ["MARK", "Rule", "Rulebook", "load_rulebook"]

MARK: Final = "\x00"
"""Stands around a name in marked text. Texts never hold it: repair replaces NUL."""

_NAME: Final = "(?P<name>"
_SET: Final = re.compile(r"%\{(\w+)\}")
_FORBIDDEN: Final = re.compile(r"\(\?(?:[=!>]|<[=!]|P=|P>|#|\()|\\[1-9AZBGpPQE]|[*+?}]\+")
_TOKEN: Final = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\(\?i:|.", re.DOTALL)
_ASCII: Final = {r"\w": "0-9A-Za-z_", r"\d": "0-9", r"\s": r" \t\n\r\x0b\x0c"}


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One rule as it stands in ``rules.toml``, which explains the fields."""

    name: str
    kind: str
    pattern: str
    example: str
    literals: tuple[str, ...]
    priority: int
    normalise: str = "same"
    fields: tuple[str, ...] = FIELDS
    items: str | None = None
    when_action: str | None = None
    in_mask: bool = False

    def is_wanted(self, action: str) -> bool:
        """Tell whether a step's action has a word that the rule asks for, if it asks for one."""
        return self.when_action is None or any(
            word in action for word in self.when_action.split("|")
        )


class Compiled(NamedTuple):
    """A rule ready to run: Rust text for the batch, Python objects for checks and items."""

    rule: Rule
    gate: str | None
    rust: str
    replacement: str
    python: re.Pattern[str]
    items: re.Pattern[str] | None


class _Names(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    roots: tuple[str, ...]
    system_folders: frozenset[str]
    not_files: frozenset[str]
    not_symbols: frozenset[str]
    not_settings: frozenset[str]
    not_errors: frozenset[str]
    not_tests: frozenset[str]
    error_words: dict[str, str]
    standard_errors: dict[str, frozenset[str]]


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    version: int
    sets: dict[str, str]
    names: _Names
    rule: tuple[Rule, ...]
    actions: dict[str, Any]


class Rulebook:
    """All rules of one extractor, compiled once.

    Attributes
    ----------
    version : str
        ``rules-<n>-<8 hex>``; the digits are a digest of the rules and all alias tables.
    aliases : dict
        Kind to {word in lower case: canonical name}.
    """

    def __init__(self, file: _File, aliases: dict[str, dict[str, str]], digest: str) -> None:
        self.file = file
        self.aliases = aliases
        self.version = f"rules-{file.version}-{digest[:8]}"
        self._sets = {**file.sets, **{kind: _words(table) for kind, table in aliases.items()}}

    @cached_property
    def rules(self) -> tuple[Compiled, ...]:
        """The rules in the order of the file."""
        return tuple(self._compile(rule) for rule in self.file.rule)

    def _compile(self, rule: Rule) -> Compiled:
        pattern = _SET.sub(lambda found: self._set(rule, found[1]), rule.pattern)
        if bad := _FORBIDDEN.search(pattern):
            raise SagError(f"rule {rule.name!r} uses {bad[0]!r}", "both regex engines must know it")
        before, name, after = _split(rule.name, pattern)
        whole = not before and not after
        rust = name if whole else f"({before})({name})({after})"
        return Compiled(
            rule,
            self._gate(rule),
            "(?m)" + _to_rust(f"({rust})" if whole else rust),
            f"{MARK}${{1}}{MARK}" if whole else f"${{1}}{MARK}${{2}}{MARK}${{3}}",
            re.compile(f"{before}(?P<name>{name}){after}", re.ASCII | re.MULTILINE),
            re.compile(rule.items, re.ASCII) if rule.items else None,
        )

    def _gate(self, rule: Rule) -> str | None:
        """Rust pattern of the literals: quick to look for, and necessary for a match."""
        if not rule.literals:
            return None
        parts = []
        for literal in rule.literals:
            named = _SET.fullmatch(literal)
            ignore_case = "(?i:" if named and named[1] in self.aliases else "(?:"
            part = self._set(rule, named[1]) if named else re.escape(literal)
            parts.append(f"{ignore_case}{part})")
        return _to_rust("|".join(parts))

    def _set(self, rule: Rule, name: str) -> str:
        if name not in self._sets:
            raise SagError(f"rule {rule.name!r} names the unknown set {name!r}")
        return self._sets[name]


def load_rulebook(aliases: Path | None = None) -> Rulebook:
    """Read the shipped rules and aliases, and a user's alias file.

    Raises
    ------
    SagError
        If a file cannot be read or is not of the expected shape.
    """
    here = files(__package__)
    texts = [(here / name).read_text(encoding="utf-8") for name in ("rules.toml", "aliases.toml")]
    if aliases is not None:
        try:
            texts.append(Path(aliases).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise SagError(f"cannot read the alias file {aliases}", str(error)) from error
    file = msgspec.convert(tomllib.loads(texts[0]), _File)
    table: dict[str, dict[str, str]] = {}
    for text, source in zip(texts[1:], ("aliases.toml", str(aliases)), strict=False):
        _merge_aliases(table, text, source)
    digest = hashlib.sha256("\0".join(texts).encode()).hexdigest()
    return Rulebook(file, table, digest)


def _merge_aliases(table: dict[str, dict[str, str]], text: str, source: str) -> None:
    """Add one alias file to the table; later files win."""
    try:
        found = msgspec.convert(tomllib.loads(text), dict[str, dict[str, list[str]]])
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise SagError(
            f"cannot understand the alias file {source}",
            str(error),
            'write [Kind] tables of "Name" = ["other way", ...]',
        ) from error
    if unknown := sorted(set(found) - set(ENTITY_KINDS)):
        raise SagError(
            f"unknown kind {unknown[0]!r} in the alias file {source}",
            fix=f"use one of {', '.join(ENTITY_KINDS)}",
        )
    for kind, names in found.items():
        words = table.setdefault(kind, {})
        for name, ways in names.items():
            words.update({way.lower(): name for way in (name, *ways) if way.strip()})


def _words(table: dict[str, str]) -> str:
    """Alternation of all words, longer first; runs of blanks match any blanks of a line."""
    ordered = sorted(table, key=lambda word: (-len(word), word))
    return "|".join(r"[ \t]+".join(map(re.escape, word.split())) for word in ordered)


def _split(rule: str, pattern: str) -> tuple[str, str, str]:
    """Split a pattern at its group ``name`` into before, name and after."""
    if _NAME not in pattern:
        return "", pattern, ""
    start = pattern.index(_NAME)
    depth, at = 1, start + len(_NAME)
    for token in _TOKEN.finditer(pattern, at):
        depth += (token[0][0] == "(") - (token[0] == ")")
        if not depth:
            at = token.start()
            break
    parts = pattern[:start], pattern[start + len(_NAME) : at], pattern[at + 1 :]
    for part in parts:
        if re.compile(part).groups:
            raise SagError(f"rule {rule!r} has a capturing group", fix="write (?:...) instead")
    return parts


def _to_rust(pattern: str) -> str:
    r"""Write a pattern for Rust so that classes, ``\b`` and (?i:) mean ASCII as in Python.

    Examples
    --------
    >>> _to_rust(r"\b[\w.]+\s(?i:pg)")
    '(?-u:\\b)[0-9A-Za-z_.]+[ \\t\\n\\r\\x0b\\x0c](?i-u:pg)'
    """

    def one(found: re.Match[str]) -> str:
        part = found[0]
        if part == r"\b":
            return r"(?-u:\b)"
        if part in _ASCII:
            return f"[{_ASCII[part]}]"
        if part.startswith("["):
            return re.sub(r"\\.", lambda escape: _ASCII.get(escape[0], escape[0]), part)
        return "(?i-u:" if part == "(?i:" else part

    return _TOKEN.sub(one, pattern)
