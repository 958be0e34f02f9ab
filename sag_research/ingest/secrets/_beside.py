"""What tells of a secret from beside it: other arguments of a command, or what was typed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from sag_research.ingest.secrets._find import Finding

__all__ = ["Echo", "as_command", "echo_of", "name_inside"]

_LONGEST: Final = 400
"""Characters of an argument: what is longer is a text, and tells nothing of its neighbours."""
_SHORTEST: Final = 4
"""Characters of what is looked for elsewhere: less stands anywhere."""
_NAMES: Final = ("name", "key", "variable", "header", "field")
_VALUES: Final = frozenset({"value", "secret", "plain", "plaintext", "default", "text", "data"})


def as_command(items: Sequence[Any]) -> tuple[str, list[int]]:
    """Write a list as the command that it may be, and say where each item begins.

    Examples
    --------
    >>> as_command(["sshpass", "-p", "x"])
    ('sshpass -p x', [0, 8, 11])
    """
    parts = [
        item if isinstance(item, str) and len(item) <= _LONGEST and "\n" not in item else ""
        for item in items
    ]
    starts, at = [], 0
    for part in parts:
        starts.append(at)
        at += len(part) + 1
    return (" ".join(parts), starts) if sum(map(bool, parts)) > 1 else ("", [])


def name_inside(value: Mapping[Any, Any], key: str, outer: str) -> str:
    """Return the name by which an object's entry is judged: its own, or what it is a value of.

    Examples
    --------
    >>> name_inside({"name": "DB_PASSWORD", "value": "x"}, "value", "")
    'DB_PASSWORD'
    >>> name_inside({"value": "x"}, "value", "api_key"), name_inside({"user": "x"}, "user", "a")
    ('api_key', 'user')
    """
    if key.lower() not in _VALUES:
        return key
    for name in _NAMES:
        if name != key and isinstance(said := value.get(name), str) and said:
            return said
    return outer or key


class Echo(NamedTuple):
    """Secrets that were found in what a call says, to be taken out of its arguments."""

    pattern: re.Pattern[str]
    found: Mapping[str, tuple[str, str]]
    """Kind and token of each."""

    def with_more(self, other: Echo) -> Echo:
        """Return both as one."""
        return _echo({**self.found, **other.found})

    def clean(self, text: str, tell: Callable[[str, str], None]) -> str:
        """Return a text without them, itself where none was; ``tell`` hears of kind and token."""

        def token(match: re.Match[str]) -> str:
            if match[0] not in self.found:
                return match[0]  # a token: a secret may be the word for its kind
            tell(*self.found[match[0]])
            return self.found[match[0]][1]

        new = self.pattern.sub(token, text)
        return text if new == text else new


def echo_of(texts: Iterable[tuple[str, Sequence[Finding]]]) -> Echo | None:
    """Gather what was found in some texts."""
    found = {
        secret: (one.kind, one.token)
        for text, findings in texts
        for one in findings
        if len(secret := text[one.start : one.end]) >= _SHORTEST
    }
    return _echo(found) if found else None


def _echo(found: Mapping[str, tuple[str, str]]) -> Echo:
    words = "|".join(re.escape(one) for one in sorted(found, key=len, reverse=True))
    pattern = rf"\[secret:[a-z0-9:-]+\]|(?<![A-Za-z0-9])(?:{words})(?![A-Za-z0-9])"
    return Echo(re.compile(pattern), found)
