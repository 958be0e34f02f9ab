"""What the scores of an Inspect sample say of its outcome."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from sag_research.ingest.formats import _shared as shared
from sag_research.model import Outcome, OutcomeName

__all__ = ["outcome_of", "scales", "verdict"]

_WORDS: Final[Mapping[str, tuple[OutcomeName, float, str | None]]] = {
    "c": ("success", 1.0, None),
    "i": ("failure", 0.0, None),
    "p": ("unknown", 0.5, "partial"),
    "n": ("failure", 0.0, "empty"),
    "yes": ("success", 1.0, None),
    "true": ("success", 1.0, None),
    "no": ("failure", 0.0, None),
    "false": ("failure", 0.0, None),
}
"""The words to which Inspect itself gives a number; ``N`` says that there was no answer."""


def verdict(value: Any, *, unit: bool = True) -> tuple[OutcomeName, float | None, str | None]:
    """Read one score.

    Parameters
    ----------
    value
        A letter or a word, a number, a truth value, a list or an object.
    unit : bool
        The scorer's numbers lie between 0 and 1.

    Returns
    -------
    outcome, score, detail

    Examples
    --------
    >>> verdict("C"), verdict(0), verdict(0.25)
    (('success', 1.0, None), ('failure', 0.0, None), ('unknown', 0.25, 'partial'))
    >>> verdict(7), verdict({"a": "C", "b": "I"})
    (('unknown', 7.0, 'scale'), ('unknown', None, 'several'))
    """
    if isinstance(value, bool):
        return ("success", 1.0, None) if value else ("failure", 0.0, None)
    if isinstance(value, str):
        word = value.strip().lower()
        if word in _WORDS:
            return _WORDS[word]
        return _of_number(_parsed(word), unit)
    if isinstance(value, Mapping) and len(value) == 1:
        return verdict(next(iter(value.values())), unit=unit)
    if isinstance(value, (list, Mapping)):
        return ("unknown", None, "several") if value else ("unknown", None, None)
    return _of_number(shared.number(value), unit)


def _parsed(word: str) -> float | None:
    try:
        return shared.number(float(word))
    except ValueError:
        return None


def _of_number(found: float | None, unit: bool) -> tuple[OutcomeName, float | None, str | None]:
    if found is None or math.isnan(found):
        return "unknown", None, None
    if not unit or not 0 <= found <= 1:
        return "unknown", found, "scale"
    if found in (0, 1):
        return ("success" if found else "failure"), found, None
    return "unknown", found, "partial"


def scales(results: Any) -> frozenset[str]:
    """Return the names of scorers whose numbers go beyond 0 and 1, as the log's metrics show."""
    found = results.get("scores") if isinstance(results, dict) else None
    return frozenset(
        str(one.get("name"))
        for one in (found if isinstance(found, list) else [])
        if isinstance(one, dict) and _is_scale(one.get("metrics"))
    )


_LEVELS: Final = frozenset({"accuracy", "mean", "median", "max", "min"})


def _is_scale(metrics: Any) -> bool:
    for name, metric in metrics.items() if isinstance(metrics, dict) else ():
        value = shared.number(metric.get("value")) if isinstance(metric, dict) else None
        if value is not None and name in _LEVELS and not 0 <= value <= 1:
            return True
    return False


def outcome_of(scores: Mapping[str, Any], scaled: frozenset[str]) -> Outcome | None:
    """Return what the scores of a sample say together; None if there are none.

    The one known outcome is the outcome. Scorers that contradict each other leave it unknown.
    """
    read = {name: verdict(_value(score), unit=name not in scaled) for name, score in scores.items()}
    if not read:
        return None
    known = {outcome for outcome, _, _ in read.values() if outcome != "unknown"}
    first = next(iter(read.values()))
    source = f"inspect score {', '.join(read)}"
    if len(known) > 1:
        return Outcome(outcome="unknown", detail="conflict", source=source)
    found = [one for one in read.values() if one[0] in known] or [first]
    outcome, score, detail = found[0]
    return Outcome(outcome=outcome, detail=detail, score=score, source=source)


def _value(score: Any) -> Any:
    return score.get("value") if isinstance(score, dict) else score
