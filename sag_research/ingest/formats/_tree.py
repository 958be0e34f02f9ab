"""Records that name their parents, parted into paths: every record in exactly one of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["Branch", "branches", "links"]


class Branch(NamedTuple):
    """Nodes that follow each other, by their numbers."""

    nodes: list[int]
    parent: int | None = None
    """Number of the branch that it left; None for one that begins at a root."""
    at: int | None = None
    """The node of that branch behind which it begins."""


def links(
    ids: Sequence[str | None], parents: Sequence[str | None]
) -> tuple[list[int | None], list[int], int]:
    """Turn the ids of parents into numbers of nodes.

    An id that is used again stands for the first node that has it.

    Parameters
    ----------
    ids, parents : sequence of str or None
        Of each node, in the order of the file.

    Returns
    -------
    up : list of int or None
        The parent of each node; None if it names none, or none that is there.
    missing : list of int
        Nodes that name a parent that is not there.
    again : int
        Number of nodes that have the id of an earlier one.

    Examples
    --------
    >>> links(["a", "b", "a", None], [None, "a", "b", "x"])
    ([None, 0, 1, None], [3], 1)
    """
    first: dict[str, int] = {}
    again = 0
    for node, name in enumerate(ids):
        if name is not None and first.setdefault(name, node) != node:
            again += 1
    up = [None if parent is None else first.get(parent) for parent in parents]
    missing = [node for node, one in enumerate(up) if one is None and parents[node] is not None]
    return up, missing, again


def branches(
    up: Sequence[int | None], rank: Sequence[int] | None = None
) -> tuple[list[Branch], int]:
    """Part a forest into branches, each behind the one that it left.

    Where several nodes have one parent, the branch goes on to the one under which the node of
    the highest rank stands: by default the last one of the file. Each of the others begins a
    branch of its own. Roots come first, in the order of the file. Takes time in proportion to
    the number of nodes.

    Parameters
    ----------
    up : sequence of int or None
        The parent of each node, in the order of the file; a parent may stand behind its child.
    rank : sequence of int, optional
        Of each node: its number in the file by default. Of equals, the first one is taken.

    Returns
    -------
    branches : list of Branch
        Every node is in exactly one of them.
    cycles : int
        Number of cycles of parents. Each is cut in front of its earliest node, which becomes
        a root.

    Examples
    --------
    >>> branches([None, 0, 1, 0])
    ([Branch(nodes=[0, 3], parent=None, at=None), Branch(nodes=[1, 2], parent=0, at=0)], 0)
    >>> branches([1, 0])
    ([Branch(nodes=[0, 1], parent=None, at=None)], 1)
    """
    parents = list(up)
    cycles = _cut_cycles(parents)
    below: list[list[int]] = [[] for _ in parents]
    for node, parent in enumerate(parents):
        if parent is not None:
            below[parent].append(node)
    roots = [node for node, parent in enumerate(parents) if parent is None]
    highest = _highest(parents, below, roots, range(len(parents)) if rank is None else rank)
    return _parted(roots, below, highest), cycles


def _cut_cycles(up: list[int | None]) -> int:
    walk_of = [-1] * len(up)
    cycles = 0
    for start in range(len(up)):
        node: int | None = start
        while node is not None and walk_of[node] < 0:
            walk_of[node] = start
            node = up[node]
        if node is not None and walk_of[node] == start:
            cycle = [node]
            while (parent := up[cycle[-1]]) is not None and parent != node:
                cycle.append(parent)
            up[min(cycle)] = None
            cycles += 1
    return cycles


def _highest(
    up: Sequence[int | None], below: list[list[int]], roots: list[int], rank: Sequence[int]
) -> list[int]:
    """Of each node, the highest rank among it and all below it."""
    order = list(roots)
    for node in order:  # grows while it is walked
        order += below[node]
    highest = list(rank)
    for node in reversed(order):
        parent = up[node]
        if parent is not None:
            highest[parent] = max(highest[parent], highest[node])
    return highest


def _parted(roots: list[int], below: list[list[int]], highest: list[int]) -> list[Branch]:
    found: list[Branch] = []
    waiting = deque(Branch([root]) for root in roots)
    while waiting:
        branch = waiting.popleft()
        number, nodes = len(found), branch.nodes
        found.append(branch)
        while below[nodes[-1]]:
            fork = nodes[-1]
            onward = max(below[fork], key=highest.__getitem__)
            waiting += [Branch([one], number, fork) for one in below[fork] if one != onward]
            nodes.append(onward)
    return found
