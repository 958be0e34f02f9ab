"""A log of events with parents, parted into chains: a run and the runs that left it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from sag_research.ingest.formats._tree import Branch, branches, links

__all__ = ["ROOT", "chains"]

ROOT: Final = "__root__"
"""What the SDK writes as the parent of an event that begins a tree of its own."""


def chains(
    ids: Sequence[str | None], parents: Sequence[str | None], leaf: str | None = None
) -> tuple[list[Branch], list[str]]:
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
    chains : list of Branch
        Every event is in one of them.
    problems : list of str
        Ids that are used again, parents that are not there, cycles, more than one root.

    Examples
    --------
    >>> found, problems = chains(["a", "b", "c", "d"], [None, "a", "b", "a"])
    >>> [(chain.nodes, chain.parent, chain.at) for chain in found], problems
    ([([0, 3], None, None), ([1, 2], 0, 0)], [])
    >>> chains(["a", "b"], ["b", "a"])
    ([Branch(nodes=[0, 1], parent=None, at=None)], ['1 cycles of parents were cut'])
    """
    named = [None if parent == ROOT else parent for parent in parents]
    up, missing, again = links(ids, named)
    for node, parent in enumerate(parents):
        if node and up[node] is None and parent != ROOT:
            up[node] = node - 1
    rank = list(range(len(up)))
    if leaf is not None and leaf in ids:
        rank[ids.index(leaf)] = len(up)
    found, cycles = branches(up, rank)
    return found, list(_problems(again, len(missing), cycles, up.count(None) + cycles))


def _problems(again: int, missing: int, cycles: int, roots: int) -> Iterator[str]:
    if again:
        yield f"{again} events have the id of an earlier one"
    if missing:
        yield f"{missing} events name a parent that is not here, and follow the event before them"
    if cycles:
        yield f"{cycles} cycles of parents were cut"
    if roots > 1:
        yield f"{roots} events begin a tree of their own"
