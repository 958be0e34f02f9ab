"""Saying what a replay missed: the recorded question most like the one that was asked."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from difflib import SequenceMatcher, unified_diff
from typing import Any, Final

import msgspec

from sag_research._text import clip
from sag_research.errors import StoreError
from sag_research.llm._errors import ReplayMiss
from sag_research.llm._questions import Question, question_of
from sag_research.log import SQLiteEventStore, count_calls
from sag_research.model import Event

__all__ = ["replay_miss"]

_CANDIDATES: Final = 200
_COMPARED: Final = 2_000
_WORK: Final = 5 * _COMPARED**2
_REQUESTS: Final = {"llm": "llm.requested", "tool": "tool.requested", "effect": "effect.recorded"}


def replay_miss(
    store: SQLiteEventStore, run_id: str, question: Question, occurrence: int
) -> ReplayMiss:
    """Make the error for a question without a recorded answer."""
    what = f"the replay of run {run_id!r} has no answer to {question.kind} call {question.name!r}"
    fix = "record the run again, or ask live with mode='reuse'"
    recorded = count_calls(store, question.key, run_id)
    if recorded > occurrence:
        why = "its recorded answer was redacted"
        return ReplayMiss(what, why, fix, question=question.body, nearest=question.body)
    if recorded:
        why = f"it was recorded {recorded} times, and this is time {occurrence + 1}"
        return ReplayMiss(what, why, fix, question=question.body, nearest=question.body)
    asked = _pretty(question.body)
    nearest = _nearest(store, run_id, question, asked)
    if nearest is None:
        why = f"the run has no recorded {question.kind} call"
        return ReplayMiss(what, why, fix, question=question.body)
    event, body = nearest
    diff = list(unified_diff(_pretty(body), asked, "recorded", "asked", lineterm="", n=1))
    changed = [line for line in diff[2:] if line[0] in "+-"]
    why = f"the nearest recorded one is event {event.position}: {clip(' '.join(changed), 300)}"
    return ReplayMiss(
        what, why, fix, question=question.body, nearest=body, position=event.position,
        diff="\n".join(diff),
    )  # fmt: skip


def _nearest(
    store: SQLiteEventStore, run_id: str, question: Question, asked: list[str]
) -> tuple[Event, dict[str, Any]] | None:
    """Compare the most promising candidates closely, within a bound on the work."""
    candidates = _candidates(store, run_id, question.kind)
    messages = question.body.get("messages") or []
    candidates.sort(key=lambda pair: _shared(pair[1].get("messages") or [], messages), reverse=True)
    best: tuple[Event, dict[str, Any]] | None = None
    best_score, work = -1.0, 0
    for event, body in candidates:
        score, cost = _likeness(_pretty(body), asked)
        if score > best_score:
            best, best_score = (event, body), score
        work += cost
        if work > _WORK:
            break
    return best


def _candidates(
    store: SQLiteEventStore, run_id: str, kind: str
) -> list[tuple[Event, dict[str, Any]]]:
    """Read the latest questions of a kind, the newest first."""
    recent = deque(store.read(run_id, types=[_REQUESTS[kind]]), maxlen=_CANDIDATES)
    known: dict[str, list[dict[str, Any]]] = {}
    found = []
    for event in recent:
        try:
            found.append((event, question_of(store, event, known)))
        except StoreError:
            continue  # a question that cannot be read is no candidate; `verify` reports it
    return found[::-1]


def _shared(a: Sequence[Any], b: Sequence[Any]) -> float:
    """Share of messages that two transcripts begin and end with alike."""
    head = _common(a, b)
    tail = _common(a[head:][::-1], b[head:][::-1])
    return (head + tail) / max(len(a), len(b), 1)


def _pretty(body: dict[str, Any]) -> list[str]:
    text = msgspec.json.encode(body, order="sorted")
    return msgspec.json.format(text, indent=1).decode().splitlines()


def _likeness(a: list[str], b: list[str]) -> tuple[float, int]:
    """Return the share of equal characters, and how much work it was to find.

    What both begin and end with is not compared again.
    """
    head = _common(a, b)
    tail = _common(a[head:][::-1], b[head:][::-1])
    rest_a = "\n".join(a[head : len(a) - tail])
    rest_b = "\n".join(b[head : len(b) - tail])
    same = sum(len(line) for line in (*b[:head], *b[len(b) - tail :]))
    clip_a, clip_b = rest_a[:_COMPARED], rest_b[:_COMPARED]
    ratio = SequenceMatcher(None, clip_a, clip_b, autojunk=False).ratio()
    rest = max(len(rest_a), len(rest_b))
    score = (same + ratio * rest) / (same + rest) if same + rest else 1.0
    return score, len(clip_a) * len(clip_b)


def _common(a: Sequence[Any], b: Sequence[Any]) -> int:
    return next(
        (n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b))
    )
