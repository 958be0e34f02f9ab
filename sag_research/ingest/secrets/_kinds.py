"""The kinds of secrets, read from the data file, and the tests that a pattern cannot make."""

from __future__ import annotations

import re
import tomllib
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Callable, Mapping
from functools import lru_cache
from importlib.resources import files
from typing import Any, Final

import msgspec

__all__ = ["Compiled", "Kind", "kinds", "kinds_for", "looks_chosen"]


class Kind(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A kind of secret as the data file has it; see there."""

    name: str
    keywords: tuple[str, ...]
    pattern: str
    near: int = 0
    ignore_case: bool = False
    low: bool = False
    check: str = ""
    bare: bool = False
    wrap: bool = True


_SHORTEST: Final = 3
"""Characters of a keyword that tells of a key within a word."""


class Compiled:
    """A kind, ready to be looked for."""

    def __init__(self, kind: Kind, rank: int) -> None:
        pattern = kind.pattern if kind.bare else _apart(kind.pattern)
        self.kind, self.rank = kind, rank
        self.regex = re.compile(pattern, re.IGNORECASE if kind.ignore_case else 0)
        self.accepts = CHECKS[kind.check]
        self.group: int | str = "s" if "s" in self.regex.groupindex else 0
        begins = not (kind.bare or kind.near or kind.ignore_case or self.group)
        short = min(map(len, kind.keywords)) < _SHORTEST
        self.loose = None if short or not begins else re.compile(kind.pattern)
        """Its pattern with anything before and behind, where its beginning is its own."""


def _apart(pattern: str) -> str:
    return f"(?<![A-Za-z0-9])(?:{pattern})(?![A-Za-z0-9])"


@lru_cache(1)
def kinds() -> tuple[Compiled, ...]:
    """Return all kinds, the more certain ones first."""
    text = files(__package__).joinpath("patterns.toml").read_text(encoding="utf-8")
    found: list[Mapping[str, Any]] = tomllib.loads(text)["kind"]
    read = [msgspec.convert(one, Kind) for one in found]
    return tuple(Compiled(kind, rank) for rank, kind in enumerate(read))


@lru_cache(1)
def _by_word() -> tuple[dict[str, list[Compiled]], dict[str, list[Compiled]]]:
    """Return the kinds by their keywords, and those by keywords in any case apart."""
    words: tuple[dict[str, list[Compiled]], dict[str, list[Compiled]]] = ({}, {})
    for one in kinds():
        for word in one.kind.keywords:
            words[one.kind.ignore_case].setdefault(word, []).append(one)
    return words


def kinds_for(text: str, lowered: str) -> list[Compiled]:
    """Return the kinds of which a keyword stands in a text; in most texts there are few."""
    exact, in_any_case = _by_word()
    found = {
        one.rank: one
        for words, where in ((exact, text), (in_any_case, lowered))
        for word in [word for word in words if word in where]
        for one in words[word]
    }
    return [found[rank] for rank in sorted(found)]


# ---- tests by name; each gets the secret and the whole match


def _is_spread(value: str, _: str) -> bool:
    """Tell apart what was drawn at random from what fills a place: ``xxxx``, ``abcabc``."""
    return len(set(value)) >= min(9, len(value) // 2)


def _is_mixed(value: str, match: str) -> bool:
    return _is_spread(value, match) and any(map(str.isdigit, value)) and _has_letter(value)


def _has_letter(value: str) -> bool:
    return any(map(str.isalpha, value))


def _has_digits(value: str, _: str) -> bool:
    return sum(map(str.isdigit, value)) >= 3


def _is_openai(value: str, match: str) -> bool:
    rest = value.removeprefix("sk-")
    for prefix in ("proj-", "svcacct-", "admin-", "None-", "service-"):
        rest = rest.removeprefix(prefix)
    parts = re.split(r"[-_]", rest)
    # names of packages and branches are words between hyphens
    return _is_mixed(rest, match) and max(map(len, parts)) >= 12


_WORDS: Final = re.compile(r"[a-z]{2,}|[A-Z][a-z]+|[A-Z]{2,}(?![a-z])")


def _is_key(value: str, match: str) -> bool:
    """Tell whether a value looks drawn at random: digits among letters, and no words or code."""
    if value.startswith("[secret:") or not _is_mixed(value, match):
        return False
    if re.search(r"[({<$]|\.\.|==|->|::", value) or _CODE.fullmatch(value):
        return False
    words = sum(len(word) for word in _WORDS.findall(value) if len(word) >= 4)
    return words <= 0.55 * len(value)


_CODE: Final = re.compile(
    r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+"  # an attribute of something
    r"|[a-z_]+[0-9]{0,3}|[A-Z_]+[0-9]{0,3}"  # a name, with a number at most
    r"|[0-9.,:/-]+"
    r"|https?[:].*"
    r"|[0-9]{4}-[0-9]{2}-[0-9]{2}[T_ ].*"
)


def _is_not_plain(value: str, match: str) -> bool:
    return not _CODE.fullmatch(value) and _is_spread(value, match)


def _is_bearer(value: str, _: str) -> bool:
    return len(set(value)) >= 20


def _is_basic(value: str, _: str) -> bool:
    """Tell whether the text is base64 of ``user:password``."""
    try:
        plain = b64decode(value + "=" * (-len(value) % 4), validate=True).decode()
    except (Base64Error, ValueError):
        return False
    return ":" in plain and plain.isprintable()


_PLACEHOLDER: Final = re.compile(
    r"(?i)[x*.#_-]{3,}|your.*|(?:my|the|some|enter|insert|change|replace|put)[_-][a-z_-]*"
    r"|(?:pass|pw|pwd|user|username|foo|bar|baz|foobar|test|testing|dummy|fake|mock|none"
    r"|null|nil|true|false|undefined|required|optional|string|str|int|bool|bytes|object|type|text"
    r"|value|values|key|auth|login|admin|root|guest|default|empty|unset|set|prompt|stdin|env|key"
    r"|self|request|data|input|args?|kwargs|config|settings|options|params)[0-9]{0,3}"
    r"|%[sd]|%\(.*|\$.*|\{.*|<.*|\[[a-z _-]*\]|\(.*\)|\[secret:.*"
)
_PLACEHOLDER_ENDS: Final = (
    "password", "passwd", "secret", "token", "redacted", "hidden", "placeholder", "example",
    "changeme", "change_me", "...",
)  # fmt: skip
_NAME: Final = re.compile(
    r"[A-Za-z_]+(?:[./:-][A-Za-z_]+)*"  # a word, or several
    r"|[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+|[a-z][a-z0-9]*(?:_[a-z0-9]+)+"  # a name in code
    r"|[0-9]{1,3}|[-=+:/.,*#@!?~^%]+"
)


def looks_chosen(value: str) -> bool:
    """Tell whether a value may be a password, and does not just fill the place of one.

    Examples
    --------
    >>> looks_chosen("hunter2"), looks_chosen("your-password"), looks_chosen("<password>")
    (True, False, False)
    """
    if len(value) < 3 or len(set(value)) < 3 or _PLACEHOLDER.fullmatch(value) is not None:
        return False
    return not value.rstrip("0123456789").lower().endswith(_PLACEHOLDER_ENDS)


def _is_password(value: str, _: str) -> bool:
    return looks_chosen(value)


def _is_assigned_password(value: str, match: str) -> bool:
    """Tell a password from code: what is quoted may be a word, what is not may be a name."""
    if not looks_chosen(value):
        return False
    before = match[: len(match) - len(value)].rstrip("\\")
    if before[-1:] in "\"'":
        return not _is_prose(value)
    if _NAME.fullmatch(value.rstrip(":.,;!?")):  # a word: only where an environment gives it
        tight = before[-1:] == "=" and before[-2:-1] not in ("=", ":", " ")
        single = value.isalpha() or any(map(str.isdigit, value))
        return tight and single and "." not in value and before[:4].isupper()
    return any(map(str.isalnum, value)) and not re.search(r"==|->|::|^[=.:/]", value)


def _is_command_password(value: str, match: str) -> bool:
    """Tell a password behind an option from the word of a sentence."""
    tight = match[: len(match) - len(value)].rstrip("\"'").endswith("=")
    return looks_chosen(value) and (tight or not value.isalpha())


def _is_session(value: str, match: str) -> bool:
    return _is_key(value, match) and _UUID.fullmatch(value) is None


_UUID: Final = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


def _is_prose(value: str) -> bool:
    """Tell a label or a path from a value."""
    return value.endswith((":", "/", "?")) or value.startswith(("/", "./", "#", ".", "http"))


def _is_url_password(value: str, _: str) -> bool:
    if value in _PORTS:
        return False
    return looks_chosen(value) or (value.lower() in _REAL_IN_URLS)


_REAL_IN_URLS: Final = frozenset({"admin", "root", "postgres", "guest", "password", "secret"})
"""What fills a place elsewhere, and is a password where a service is named beside it."""


_PORTS: Final = frozenset(("80", "443", "3000", "5000", "8000", "8080", "8443", "8888", "9000"))


def _is_cookie(value: str, _: str) -> bool:
    """Tell whether one of the cookies holds something long enough to be worth having."""
    values = [part.partition("=")[2] for part in value.split(";")]
    return any(len(one) >= 12 and _is_mixed(one, "") for one in values)


def _is_pem(_: str, __: str) -> bool:
    return True  # its body decides, which is looked for where the text is at hand


CHECKS: Final[Mapping[str, Callable[[str, str], bool]]] = {
    "": lambda value, _: len(set(value)) >= 6,
    "spread": _is_spread,
    "mixed": _is_mixed,
    "digits": _has_digits,
    "openai": _is_openai,
    "key": _is_key,
    "not-plain": _is_not_plain,
    "bearer": _is_bearer,
    "basic": _is_basic,
    "password": _is_password,
    "command-password": _is_command_password,
    "session": _is_session,
    "assigned-password": _is_assigned_password,
    "url-password": _is_url_password,
    "cookie": _is_cookie,
    "pem": _is_pem,
}
