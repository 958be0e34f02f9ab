"""The tree of a Claude Code session: lines joined to replies, replies parted into paths."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from sag_research.ingest.formats._claude_lines import Line, spoken
from sag_research.ingest.formats._tree import Branch, branches, links

__all__ = ["CLEAR", "COMPACTION", "FORK", "RESUME", "SUBAGENT", "Path", "in_order", "paths"]

CLEAR: Final = "clear"
COMPACTION: Final = "compaction"
FORK: Final = "fork"
RESUME: Final = "resume"
SUBAGENT: Final = "subagent"

_Lane: TypeAlias = tuple[str | None, str | None]


@dataclass
class Path:
    """Nodes that follow each other in one conversation; a node is a line, or all of a reply."""

    parent: int | None = None
    """Number of the path that it left."""
    at: int = -1
    """Place in that path behind which it begins."""
    relation: str | None = None
    nodes: list[list[Line]] = field(default_factory=list)
    replies: int = 0

    @property
    def lane(self) -> _Lane:
        """Session and sub-agent of its first line that has a session."""
        lines = (line for node in self.nodes for line in node)
        return next((line.lane for line in lines if line.session or line.side), (None, None))


def paths(lines: Sequence[Line], own: str | None) -> tuple[list[Path], list[str]]:
    """Part the lines of a source into paths, each behind the one that it left.

    Parameters
    ----------
    lines : sequence of Line
    own : str or None
        The session of the source: lines of another one in front of its own are copies, and no
        run of their own. None if every session is a run.

    Returns
    -------
    paths : list of Path
        Every line is in exactly one of them.
    problems : list of str
        What is wrong with the tree.
    """
    up, problems = _up(lines)
    nodes, above = _joined(lines, up)
    replies = [lines[node[0]].kind == "assistant" for node in nodes]
    # a way that ends in a prompt without a reply is no run: no run may be left for it
    rank = [number + len(nodes) * reply for number, reply in enumerate(replies)]
    found, cycles = branches(above, rank)
    if cycles:
        problems.append(f"{cycles} cycles of parents were cut")
    return _cut(found, [[lines[one] for one in node] for node in nodes], own), problems


# ---- from lines to nodes


def _up(lines: Sequence[Line]) -> tuple[list[int | None], list[str]]:
    """Find the line before each line.

    A line without a parent begins a tree, unless no line of its conversation has one: then
    they follow each other as in the file. So does a line whose parent was never written, and a
    compaction that names as its parent a message which was kept and put behind it.
    """
    up, missing, again = links([line.uuid for line in lines], [line.parent for line in lines])
    linked = {line.lane for line in lines if line.parent is not None}
    lost = set(missing)
    before: dict[_Lane, int] = {}
    for number, line in enumerate(lines):
        parent = up[number]
        if line.kind == "boundary":
            follows = parent is None or parent >= number
        else:
            follows = parent is None and (number in lost or line.lane not in linked)
        if follows:
            up[number] = before.get(line.lane)
        before[line.lane] = number
    problems = []
    if again:
        problems.append(f"{again} lines have the uuid of an earlier one")
    if missing:
        problems.append(
            f"{len(missing)} lines name a parent that is not here, and follow the line before them"
        )
    return up, problems


def _joined(
    lines: Sequence[Line], up: Sequence[int | None]
) -> tuple[list[list[int]], list[int | None]]:
    """Join the lines of each reply into one node, which stands where the first of them does.

    The copy of a history, which repeats the replies under other uuids, so falls onto the
    original. A reply with known ids that answers a prompt behind the known one is another
    reply: some services use one id again and again.
    """
    heads: dict[tuple[str | None, str | None], int] = {}
    node_of: list[int] = []
    nodes: list[list[int]] = []
    answered: list[tuple[int, bool]] = []  # the last reply up to a line; a prompt came behind it
    for number, line in enumerate(lines):
        last = _last_reply(lines, up[number], number, node_of, answered)
        node = len(nodes)
        if line.kind == "assistant":
            known = heads.get(line.reply, -1)
            if line.reply != (None, None) and known >= 0 and last != (known, True):
                node = known
            heads[line.reply] = node
            last = (node, False)
        if node == len(nodes):
            nodes.append([])
        nodes[node].append(number)
        node_of.append(node)
        answered.append(last)
    first = [up[node[0]] for node in nodes]
    return nodes, [None if parent is None else node_of[parent] for parent in first]


def _last_reply(
    lines: Sequence[Line],
    parent: int | None,
    number: int,
    node_of: Sequence[int],
    answered: Sequence[tuple[int, bool]],
) -> tuple[int, bool]:
    if parent is None or parent >= number:
        return -1, False
    before = lines[parent]
    if before.kind == "assistant":
        return node_of[parent], False
    reply, prompted = answered[parent]
    return reply, prompted or (before.kind == "user" and _is_prompt(before))


def _is_prompt(line: Line) -> bool:
    said = spoken(line)
    return bool(said.text.strip()) and not said.is_command


# ---- from branches to paths


def _cut(found: Sequence[Branch], nodes: Sequence[list[Line]], own: str | None) -> list[Path]:
    cut: list[Path] = []
    where: dict[int, tuple[int, int]] = {}  # of a node: number of its path, and place in it
    last: dict[int, Line] = {}
    for branch in found:
        before = branch.at
        for node in branch.nodes:
            line = nodes[node][0]
            path = cut[-1] if cut and node != branch.nodes[0] else None
            relation = _relation(None if before is None else last[before], line, path, own)
            if path is None or relation is not None:
                parent, at = (None, -1) if before is None else where[before]
                path = Path(parent, at, relation or (None if before is None else FORK))
                cut.append(path)
            where[node] = (len(cut) - 1, len(path.nodes))
            path.nodes.append(nodes[node])
            path.replies += line.kind == "assistant"
            quiet = line.kind == "quiet" and before is not None
            last[node] = last[before] if quiet and before is not None else line
            before = node
    return cut


def _relation(before: Line | None, line: Line, path: Path | None, own: str | None) -> str | None:
    """Say whether a line leaves the conversation of the line before it, and how."""
    if line.kind == "quiet":
        return None
    if before is None:
        return SUBAGENT if line.side is not None else None
    if line.side != before.side:
        return SUBAGENT if line.side is not None else CLEAR
    if line.kind == "boundary" or (line.is_summary and before.kind != "boundary"):
        return COMPACTION
    if line.kind == "user" and (path is None or path.replies) and spoken(line).clears:
        return CLEAR
    other = line.session is not None and before.session is not None
    if own is None and other and line.session != before.session:
        return RESUME
    return None


def in_order(parents: Sequence[int | None]) -> Iterator[int]:
    """Yield numbers, each behind its parent; what hangs on a cycle comes last.

    Examples
    --------
    >>> list(in_order([1, None, 4, 1, 2]))
    [1, 0, 3, 2, 4]
    """
    below: dict[int, list[int]] = {}
    for number, parent in enumerate(parents):
        if parent is not None:
            below.setdefault(parent, []).append(number)
    waiting = deque(number for number, parent in enumerate(parents) if parent is None)
    left = dict.fromkeys(range(len(parents)))
    while waiting:
        number = waiting.popleft()
        del left[number]
        yield number
        waiting += below.get(number, ())
    yield from left
