"""How scripted models spell their edits, and what they say with them."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, Final

from sag_research.lab.bugfix._tasks import Edit

__all__ = ["BLUNT", "CUNNING", "replacement", "reverse", "say", "sed_command", "slipped"]

BLUNT: Final[Mapping[str, float]] = {"easy": 0.5, "medium": 0.0, "hard": -0.8}
CUNNING: Final[Mapping[str, float]] = {"easy": -0.5, "medium": 0.1, "hard": 0.5}


def replacement(edit: Edit) -> dict[str, Any]:
    """Arguments of the editor's ``str_replace``."""
    return {
        "command": "str_replace",
        "path": f"/repo/{edit.file}",
        "old_str": edit.old,
        "new_str": edit.new,
    }


def slipped(edit: Edit) -> dict[str, Any]:
    """Arguments mistyped such that nothing is found."""
    return {**replacement(edit), "old_str": edit.old.replace("    ", "  ") + " "}


def reverse(edit: Edit) -> Edit:
    """Return the edit that takes this one back."""
    return Edit(edit.file, edit.new, edit.old)


def sed_command(edit: Edit) -> str | None:
    """Spell an edit for sed; ``None`` where that would need quoting.

    Examples
    --------
    >>> sed_command(Edit("a.py", "x = 1", "x = 2"))
    "sed -i 's|x = 1|x = 2|' /repo/a.py"
    """
    if re.search(r"[\n'|\\&]", edit.old + edit.new):
        return None
    return f"sed -i 's|{_escaped(edit.old)}|{_escaped(edit.new)}|' /repo/{edit.file}"


def _escaped(text: str) -> str:
    return re.sub(r"([.*\[\]^$/])", r"\\\1", text)


def say(rng: Random, intent: str, words: Mapping[str, str]) -> str:
    """Put an intent into a sentence that fits what is thought of."""
    pool = _thoughts()
    sentence = rng.choice(pool[intent]).format_map(words)
    return rng.choice(pool["lead"]) + sentence + rng.choice(pool["tail"])


@cache
def _thoughts() -> dict[str, list[str]]:
    """Return the sentences, by intent."""
    path = Path(__file__).parent / "thoughts.toml"
    return tomllib.loads(path.read_text(encoding="utf-8"))
