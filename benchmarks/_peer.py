"""The straightforward way to extract: every rule, one after the other, with ``re.finditer``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from sag_research.extract._rules import load_rulebook

Rules = list[tuple[tuple[str, ...], str, re.Pattern[str]]]


def peer_rules() -> Rules:
    """Return fields, kind and compiled pattern of the shipped rules."""
    return [(c.rule.fields, c.rule.kind, c.python) for c in load_rulebook(None).rules]


def find_all(rules: Rules, field: str, text: str) -> Iterator[tuple[int, int, Any]]:
    """Yield span and name of every match."""
    for fields, _, pattern in rules:
        if field in fields:
            for match in pattern.finditer(text):
                yield match.start("name"), match.end("name"), match["name"]
