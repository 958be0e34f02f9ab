"""Texts for people and models, from ``texts.toml``."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

__all__ = ["language", "say", "system_text"]


@cache
def _texts() -> dict[str, Any]:
    return tomllib.loads((Path(__file__).parent / "texts.toml").read_text(encoding="utf-8"))


def language(goal: str) -> str:
    """Return the language of a goal: ``zh`` where it is written in Han characters.

    Examples
    --------
    >>> language("请完成导出"), language("Finish the export")
    ('zh', 'en')
    """
    return "zh" if re.search(r"[\u3400-\u9fff\U00020000-\U0003134f]", goal) else "en"


def system_text() -> str:
    """What a model is told first."""
    return str(_texts()["system"]).strip()


def say(name: str, goal: str | None = None, **fields: object) -> str:
    """Fill a text in; with a goal, in its language."""
    texts = _texts() if goal is None else _texts()[language(goal)]
    words = {"{" + field + "}": str(value) for field, value in fields.items()}
    pattern = "|".join(re.escape(word) for word in words) or r"(?!)"
    return re.sub(pattern, lambda found: words[found.group()], str(texts[name]))
