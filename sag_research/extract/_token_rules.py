"""The data by which steps become tokens: read from TOML, checked, and turned into look-ups."""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from importlib.resources import files
from itertools import chain
from pathlib import Path
from typing import Final

import msgspec

from ..errors import SagError
from ._actions import ActionWords
from ._rules import load_rulebook

__all__ = ["Observed", "Replies", "TokenRules", "load_token_rules", "verb_of"]

_SYMBOL: Final = re.compile(r"[a-z][a-z-]{0,19}")
_SHELL_WORDS: Final = (
    "keywords", "no_program", "wrappers", "wrapper_words", "wrapper_value_options",
    "not_shell", "open_file_editors", "edit_end",
)  # fmt: skip
"""What the shell splitter takes from ``rules.toml``: part of a vocabulary's version."""


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How much of a text is read."""

    action: int
    observation: int
    long: int
    notice: int
    opening: int


class Shell(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Habits of programs."""

    interpreters: frozenset[str]
    code_options: frozenset[str]
    shells: frozenset[str]
    pattern_first: frozenset[str]
    pattern_options: frozenset[str]
    last_operand: frozenset[str]
    folders: frozenset[str]
    writers: frozenset[str]
    final_words: tuple[str, ...]
    writing: tuple[str, ...]
    queries: dict[str, tuple[str, ...]]
    code: frozenset[str]


class Paths(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a path says of a file."""

    roots: str
    scratch: frozenset[str]
    test_folders: frozenset[str]
    test_names: frozenset[str]
    repro_anywhere: frozenset[str]
    repro: frozenset[str]
    script: frozenset[str]
    code: frozenset[str]
    config: frozenset[str]
    config_names: frozenset[str]
    doc: frozenset[str]
    doc_names: frozenset[str]
    data: frozenset[str]


class Tools(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Names of functions, and what they mean."""

    shell: frozenset[str]
    editor: frozenset[str]
    inline: frozenset[str]
    command_keys: tuple[str, ...]
    path_keys: tuple[str, ...]
    names: dict[str, tuple[str, ...]]
    words: dict[str, tuple[str, ...]]
    nouns: dict[str, tuple[str, ...]]


class Observed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Signs in an observation."""

    silent: frozenset[str]
    reading: frozenset[str]
    around: str
    exit_code: str
    empty: tuple[str, ...]
    cut: tuple[str, ...]
    timeout: tuple[str, ...]
    not_found: tuple[str, ...]
    complaint: tuple[str, ...]
    error: tuple[str, ...]
    unavailable: tuple[str, ...]
    mismatch: tuple[str, ...]
    forbidden: tuple[str, ...]
    edit_done: tuple[str, ...]
    edit_error: tuple[str, ...]
    syntax: tuple[str, ...]
    traceback: tuple[str, ...]
    run_error: tuple[str, ...]
    test_none_words: tuple[str, ...]
    test_fail_words: tuple[str, ...]
    test_pass_words: tuple[str, ...]
    test_fail: str
    test_pass: str
    test_none: str
    imports: tuple[str, ...] = msgspec.field(name="import")


class Replies(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Signs in what people say."""

    end: tuple[str, ...]
    yes: tuple[str, ...]
    no: tuple[str, ...]
    refusal: tuple[str, ...]
    report: tuple[str, ...]
    confirm: tuple[str, ...]
    offer: tuple[str, ...]


class TokenRules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The file ``tokens.toml``, which explains the fields."""

    version: int
    verbs: tuple[str, ...]
    objects: tuple[str, ...]
    results: tuple[str, ...]
    limits: Limits
    programs: dict[str, tuple[str, ...]]
    subcommands: dict[str, dict[str, tuple[str, ...]]]
    options: dict[str, dict[str, tuple[str, ...]]]
    shell: Shell
    modules: dict[str, tuple[str, ...]]
    paths: Paths
    tools: Tools
    observed: Observed
    replies: Replies


def verb_of(table: Mapping[str, Iterable[str]]) -> dict[str, str]:
    """Turn verb → words into word → verb; of a word listed twice, the first place counts.

    Examples
    --------
    >>> verb_of({"look": ["cat", "nl"], "edit": ["ed"]})
    {'cat': 'look', 'nl': 'look', 'ed': 'edit'}
    """
    verbs: dict[str, str] = {}
    for verb, words in table.items():
        for word in words:
            verbs.setdefault(word, verb)
    return verbs


def load_token_rules(path: Path | None = None) -> tuple[TokenRules, ActionWords, str]:
    """Read the rules of a vocabulary and the shell words it stands on.

    Returns
    -------
    rules : TokenRules
    words : ActionWords
    version : str
        ``tokens-<n>-<8 hex>``: number and digest of the data, comments left out.

    Raises
    ------
    SagError
        If the file cannot be read, has another shape, or uses a symbol that it does not list.
    """
    source = files(__package__) / "tokens.toml" if path is None else Path(path)
    try:
        data = tomllib.loads(source.read_text(encoding="utf-8"))
        rules = msgspec.convert(data, TokenRules)
    except (OSError, ValueError, msgspec.ValidationError) as error:
        raise SagError(
            f"cannot read the token rules {source}",
            str(error),
            "start from the shipped tokens.toml, which explains its fields",
        ) from error
    _check(rules, str(source))
    actions = load_rulebook().file.actions
    shell = {name: actions[name] for name in _SHELL_WORDS}
    digest = hashlib.sha256(msgspec.json.encode([data, shell], order="deterministic"))
    words = msgspec.convert(actions, ActionWords)
    return rules, words, f"tokens-{rules.version}-{digest.hexdigest()[:8]}"


def _check(rules: TokenRules, source: str) -> None:
    """Refuse symbols that are no plain words, or that are used and not listed."""
    for name, symbols in (
        ("verbs", rules.verbs), ("objects", rules.objects), ("results", rules.results),
    ):  # fmt: skip
        bad = [symbol for symbol in symbols if not _SYMBOL.fullmatch(symbol)]
        if bad or len(set(symbols)) < len(symbols) or "none" not in symbols:
            raise SagError(
                f"{name} in {source} are no list of different short words with 'none'",
                fix="use small letters and hyphens, up to 20 of them",
            )
    strange = set(_verbs(rules)) - set(rules.verbs) | set(rules.tools.nouns) - set(rules.objects)
    if strange:
        raise SagError(f"{source} uses {min(strange)!r}", "it is in no list of symbols there")
    try:
        for pattern in (rules.paths.roots, rules.observed.around, rules.observed.exit_code):
            re.compile(pattern)
        for pattern in (rules.observed.test_fail, rules.observed.test_pass):
            re.compile(pattern)
    except re.error as error:
        raise SagError(f"a pattern in {source} is wrong", str(error)) from error


def _verbs(rules: TokenRules) -> Iterator[str]:
    """Yield all verbs that tables of the rules use."""
    yield from chain(rules.programs, rules.modules, rules.shell.queries)
    yield from chain(rules.observed.reading, rules.observed.silent)
    yield from chain(rules.tools.names, rules.tools.words)
    for table in chain(rules.subcommands.values(), rules.options.values()):
        yield from table
