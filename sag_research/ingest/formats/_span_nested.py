"""Spans of one reply inside each other, where two instrumentors wrote it down."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sag_research.ingest.formats import _shared as shared
from sag_research.ingest.formats._span_messages import kind_of, outputs_of, response_of, usage_of
from sag_research.ingest.formats._spans import Span
from sag_research.model import Usage

__all__ = ["Nested", "nested_replies"]


@dataclass
class Nested:
    """What is to be done with model calls that stand in each other."""

    repeated: set[str] = field(default_factory=set)
    """Ids of spans that are no steps: another one is the same reply."""
    usage: dict[str, Usage] = field(default_factory=dict)
    """By the id of a span that is a step: what only the span in it counted."""
    others: int = 0
    """Spans around other ones that say something else: both are steps."""


def nested_replies(spans: Sequence[Span]) -> Nested:
    """Tell which model calls repeat one that stands in them.

    The inner span is the reply. It is the outer one where only that says what was replied.

    Parameters
    ----------
    spans : sequence of Span
        Those of a trace; links to parents may be missing or lead in a circle.
    """
    found = Nested()
    calls = {span.id: span for span in spans if span.id and kind_of(span) == "llm"}
    inside = _inside(spans, calls)
    for one in _in_circles(inside, calls):
        inside.pop(one, None)
    for outer, inner in inside.items():
        _judge(calls[outer], [calls[one] for one in inner], found)
    return found


def _in_circles(inside: dict[str, list[str]], calls: dict[str, Span]) -> set[str]:
    """Return the calls of which nobody knows which one is outside: those no way down leads to."""
    held = {one for inner in inside.values() for one in inner}
    waiting = [one for one in calls if one not in held]
    left = set(calls)
    while waiting:
        one = waiting.pop()
        left.discard(one)
        waiting += inside.get(one, [])
    return left


def _inside(spans: Sequence[Span], calls: dict[str, Span]) -> dict[str, list[str]]:
    """Return the calls inside others, by the id of the nearest one around them."""
    up = {span.id: span.parent for span in spans if span.id}
    nearest: dict[str, str] = {}
    found: defaultdict[str, list[str]] = defaultdict(list)
    for one in calls:
        path, node = [], up[one]
        while node and node not in calls and node not in nearest:
            nearest[node] = ""  # a circle ends here
            path.append(node)
            node = up.get(node, "")
        around = node if node in calls else nearest.get(node, "")
        nearest.update(dict.fromkeys(path, around))
        if around and around != one:
            found[around].append(one)
    return found


def _judge(outer: Span, inner: list[Span], found: Nested) -> None:
    said = _said(outer)
    told = [_said(one) for one in inner]
    if not any(said) or said in told or any(_same(outer, one, inner) for one in inner):
        found.repeated.add(outer.id)
    elif not any(map(any, told)):
        found.repeated.update(one.id for one in inner)
        counted = [used for one in inner if (used := usage_of(one)) is not None]
        if len(counted) == 1 and usage_of(outer) is None:
            found.usage[outer.id] = counted[0]
    else:
        found.others += 1


def _said(span: Span) -> tuple[str, tuple[Any, ...]]:
    replies = [one for one in outputs_of(span) if one.role in ("assistant", "")]
    calls = tuple(call.text for one in replies for call in one.calls)
    return shared.joined([one.text.strip() for one in replies]), calls


def _same(outer: Span, one: Span, inner: list[Span]) -> bool:
    """Tell whether two spans are one reply by its id, or by what it took."""
    named = response_of(outer)
    if named is not None and response_of(one) is not None:
        return named == response_of(one)
    used = usage_of(outer)
    is_counted = used is not None and bool(used.tokens_in) and bool(used.tokens_out)
    return len(inner) == 1 and is_counted and any(_said(one)) and used == usage_of(one)
