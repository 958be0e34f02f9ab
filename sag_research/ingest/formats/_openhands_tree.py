"""A log of events with parents, parted into chains: a run and the runs that left it."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

__all__ = ["ROOT", "Chain", "chains"]

ROOT: Final = "__root__"
"""What the SDK writes as the parent of an event that begins a tree of its own."""


class Chain(NamedTuple):
    """Events that follow each other, by their numbers in the log."""

    nodes: list[int]
    parent: int | None = None
    """Number of the chain that it left."""
    branch: int | None = None
    """Event of that chain behind which it begins."""


def chains(
    ids: Sequence[str | None], parents: Sequence[str | None], leaf: str | None = None
) -> tuple[list[Chain], list[str]]:
    """Part a log into chains, each behind the one that it left.

    An event without a parent follows the one before it, as in logs that are no trees. At a
    fork the chain goes on to the leaf, or without one to the latest event; the other ways are
    chains of their own.

    Parameters
    ----------
    ids, parents : sequence of str or None
        Of each event, in the order of the log.
    leaf : str, optional
        The event that the conversation stands at.

    Returns
    -------
    chains : list of Chain
        Every event is in one of them.
    problems : list of str
        Ids that are used again, parents that are not there, cycles, more than one root.

    Examples
    --------
    >>> found, problems = chains(["a", "b", "c", "d"], [None, "a", "b", "a"])
    >>> [(chain.nodes, chain.parent, chain.branch) for chain in found], problems
    ([([0, 3], None, None), ([1, 2], 0, 0)], [])
    >>> chains(["a", "b"], ["b", "a"])
    ([Chain(nodes=[0, 1], parent=None, branch=None)], ['1 cycles of parents were cut'])
    """
    up, problems = _links(ids, parents)
    if cut := _cut_cycles(up):
        problems.append(f"{cut} cycles of parents were cut")
    below: list[list[int]] = [[] for _ in up]
    for node, parent in enumerate(up):
        if parent is not None:
            below[parent].append(node)
    roots = [node for node, parent in enumerate(up) if parent is None]
    if len(roots) > 1:
        problems.append(f"{len(roots)} events begin a tree of their own")
    latest = _latest(up, below, roots, ids, leaf)
    return _parted(roots, below, latest), problems


def _links(
    ids: Sequence[str | None], parents: Sequence[str | None]
) -> tuple[list[int | None], list[str]]:
    first: dict[str, int] = {}
    again = missing = 0
    for node, name in enumerate(ids):
        if name is not None and first.setdefault(name, node) != node:
            again += 1
    up: list[int | None] = []
    for node, parent in enumerate(parents):
        before = node - 1 if node else None
        if parent is None:
            up.append(before)
        elif parent == ROOT:
            up.append(None)
        elif parent in first:
            up.append(first[parent])
        else:
            up.append(before)
            missing += 1
    problems = [f"{again} events have the id of an earlier one"] if again else []
    if missing:
        problems.append(
            f"{missing} events name a parent that is not here, and follow the event before them"
        )
    return up, problems


def _cut_cycles(up: list[int | None]) -> int:
    """Make the earliest event of each cycle a root; count the cycles."""
    walk_of = [0] * len(up)  # 0: not seen yet
    cycles = 0
    for walk, start in enumerate(range(len(up)), start=1):
        node: int | None = start
        while node is not None and not walk_of[node]:
            walk_of[node] = walk
            node = up[node]
        if node is not None and walk_of[node] == walk:
            cycle = [node]
            while (parent := up[cycle[-1]]) is not None and parent != node:
                cycle.append(parent)
            up[min(cycle)] = None
            cycles += 1
    return cycles


def _latest(
    up: list[int | None],
    below: list[list[int]],
    roots: list[int],
    ids: Sequence[str | None],
    leaf: str | None,
) -> list[int]:
    """Of each event, the latest one among it and its descendants; the leaf is the very latest."""
    order = list(roots)
    for node in order:  # grows while it is walked
        order += below[node]
    latest = list(range(len(up)))
    if leaf is not None and leaf in ids:
        latest[ids.index(leaf)] = len(up)
    for node in reversed(order):
        parent = up[node]
        if parent is not None:
            latest[parent] = max(latest[parent], latest[node])
    return latest


def _parted(roots: list[int], below: list[list[int]], latest: list[int]) -> list[Chain]:
    found: list[Chain] = []
    waiting = deque(Chain([root]) for root in roots)
    while waiting:
        chain = waiting.popleft()
        number, nodes = len(found), chain.nodes
        found.append(chain)
        while below[nodes[-1]]:
            fork = nodes[-1]
            onward = max(below[fork], key=latest.__getitem__)
            waiting += [Chain([one], number, fork) for one in below[fork] if one != onward]
            nodes.append(onward)
    return found
