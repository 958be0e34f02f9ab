"""Chains of steps of one kind as one mark, where all of them would be too many."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final

__all__ = ["CHAIN", "MOST", "collapse", "fit_marks"]

CHAIN: Final = "chain:"
"""Key of a chain: this, and the key of its first event."""
MOST: Final = 2_000
"""More nodes than this are never drawn."""

Look = tuple[str, str]
Marks = dict[str, list[str]]
_ALIKE: Final[tuple[Callable[[Look], Any], ...]] = (
    lambda look: look,  # the same done with the same result
    lambda look: look[0],  # the same done
    lambda look: None,  # anything
)


def collapse(
    graph: Any, events: list[str], looks: Mapping[str, Look], alone: Collection[str],
    level: int, expand: Collection[str] = (), longest: int | None = None,
) -> Marks:  # fmt: skip
    """Group events into the marks that are drawn.

    Parameters
    ----------
    events : list of str
        Keys in the order of their lanes.
    looks : mapping of str to (mark, tone)
        Of the steps; an event that is no step stands alone.
    alone : collection of str
        Steps that something is said of, such as the step where a fork parts.
    level : int
        0: each event is a mark. 1 to 3: neighbours that did the same with the same result, that
        did the same, that did anything.
    expand : collection of str
        Keys of chains to leave open.
    longest : int, optional
        No chain is longer than this.

    Returns
    -------
    dict of str to list of str
        By key of the mark, the events it stands for.
    """
    marks: Marks = {}
    for group in _groups(graph, events, looks, alone, level, longest or len(events)):
        key = CHAIN + group[0]
        if len(group) == 1 or key in expand:
            marks |= {event: [event] for event in group}
        else:
            marks[key] = group
    return marks


def _groups(
    graph: Any, events: list[str], looks: Mapping[str, Look], alone: Collection[str],
    level: int, longest: int,
) -> Iterator[list[str]]:  # fmt: skip
    open_: list[str] = []
    for key in events:
        room = level and len(open_) < longest
        if open_ and not (room and _continues(graph, open_[-1], key, looks, alone, level)):
            yield open_
            open_ = []
        open_.append(key)
    if open_:
        yield open_


def _continues(
    graph: Any, before: str, key: str, looks: Mapping[str, Look], alone: Collection[str],
    level: int,
) -> bool:  # fmt: skip
    if before not in looks or key not in looks or before in alone or key in alone:
        return False
    one, two = graph.nodes[before], graph.nodes[key]
    if one["run_id"] != two["run_id"] or one["rank"] + 1 != two["rank"]:
        return False
    alike = _ALIKE[level - 1]
    return bool(alike(looks[before]) == alike(looks[key]))


def fit_marks(
    graph: Any, events: list[str], looks: Mapping[str, Look], alone: Collection[str],
    most: int, collapsed: bool, expand: Collection[str],
) -> Marks:  # fmt: skip
    """Collapse as little as is needed for at most so many marks, and at most whole lanes."""
    marks: Marks = {}
    last = len(_ALIKE)
    for level in range(1 if collapsed else 0, last):
        marks = collapse(graph, events, looks, alone, level, expand)
        if len(marks) <= most:
            return marks
    longest = -(-len(events) // max(most, 1))
    while True:
        marks = collapse(graph, events, looks, alone, last, expand, longest)
        if len(marks) <= most or longest >= len(events):
            return marks
        longest += max(1, longest // 4)
