"""What a step's shape and colour say; the table lies beside this module."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Final, NamedTuple

from sag_research.extract import Vocabulary

__all__ = ["OUTCOMES", "Word", "mark_words", "step_look", "tone_words"]


class Word(NamedTuple):
    """One entry of the legend."""

    name: str
    words: str
    shape: str


OUTCOMES: Final = {"success": "✔ success", "failure": "✘ failure", "unknown": "? unknown"}
"""What stands at a lane's end: a sign and a word, so that no colour is needed."""


@cache
def _tables() -> dict[str, dict[str, dict[str, Any]]]:
    text = files(__package__).joinpath("grammar.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


@cache
def _kinds(table: str, key: str) -> dict[str, str]:
    return {word: name for name, entry in _tables()[table].items() for word in entry[key]}


@cache
def _vocabulary() -> Vocabulary:
    return Vocabulary()


def mark_words() -> list[Word]:
    """List what a step can have done, in the order of the legend."""
    return [Word(name, one["words"], one["shape"]) for name, one in _tables()["mark"].items()]


def tone_words() -> list[Word]:
    """List what can have come back, in the order of the legend."""
    return [Word(name, one["words"], "") for name, one in _tables()["tone"].items()]


def step_look(step: Mapping[str, Any]) -> tuple[str, str]:
    """Give a step's mark and tone.

    Parameters
    ----------
    step : mapping
        With ``thought``, ``action``, ``observation`` and ``exit_code``.

    Examples
    --------
    >>> step_look({"action": "pytest tests", "observation": "1 failed, 2 passed"})
    ('test', 'error')
    """
    verb, _, result = _vocabulary().parts(_vocabulary().token(step))
    return _kinds("mark", "verbs").get(verb, "other"), _kinds("tone", "results").get(
        result, "unknown"
    )
