"""Messages of a Gemini CLI session: their latest text, and what was taken back or summarised."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from sag_research.ingest.formats import _shared as shared
from sag_research.ingest.formats._tree import branches

__all__ = ["COMPACTION", "SUMMARY", "Session", "Way"]

COMPACTION: Final = "compaction"
SUMMARY: Final = "summary"
"""The type that messages get here which sum up others."""
_ABOUT: Final = (
    "sessionId", "projectHash", "kind", "startTime", "summary", "directories", "memoryScratchpad",
    "activeExtensionName",
)  # fmt: skip


class Way(NamedTuple):
    """Messages that follow each other."""

    nodes: list[int]
    parent: int | None = None
    """Number of the way that it left."""
    at: int | None = None
    """The message of that way behind which it begins."""
    relation: str = "fork"


@dataclass
class Session:
    """The records of a source, taken one by one."""

    about: dict[str, Any] = field(default_factory=dict)
    messages: list[dict[str, Any]] = field(default_factory=list)
    unknown: int = 0
    """Records of no known shape."""
    _up: list[int | None] = field(default_factory=list)
    _nodes: dict[str, int] = field(default_factory=dict)
    """By id: the message that was written last under it."""
    _live: list[int] = field(default_factory=list)
    """Messages that were neither taken back nor summarised, in order."""
    _cuts: set[int] = field(default_factory=set)
    """Messages that begin anew with a summary."""

    def take(self, record: dict[str, Any]) -> None:
        """Add a record of JSON lines, or a session that is one object."""
        change = record.get("$set")
        if isinstance(record.get("$rewindTo"), str):
            self._rewind(record["$rewindTo"])
        elif isinstance(record.get("id"), str) and "sessionId" not in record:
            self._write(record)
        elif isinstance(change, dict):
            self._learn(change)
        elif "sessionId" in record:
            self._learn(record)
        else:
            self.unknown += 1

    def _learn(self, found: dict[str, Any]) -> None:
        self.about |= {name: found[name] for name in _ABOUT if found.get(name) is not None}
        messages = found.get("messages")
        if isinstance(messages, list) and messages:
            self._replace([one for one in messages if isinstance(one, dict)])
            self.unknown += sum(not isinstance(one, dict) for one in messages)

    def _write(self, message: dict[str, Any]) -> None:
        """Add a message, or write it anew: each change of one is written down with all of it."""
        node = self._known(message)
        if node is None:
            self._live.append(self._add(message))
        else:
            self.messages[node] = message

    def _add(self, message: dict[str, Any]) -> int:
        node = len(self.messages)
        self.messages.append(message)
        self._up.append(self._live[-1] if self._live else None)
        if isinstance(message.get("id"), str):
            self._nodes[message["id"]] = node
        return node

    def _place(self, node: int | None) -> int | None:
        """Return where a message stands among the live ones, which are in the order of numbers."""
        if node is None:
            return None
        place = bisect_left(self._live, node)
        return place if place < len(self._live) and self._live[place] == node else None

    def _known(self, message: dict[str, Any]) -> int | None:
        name = message.get("id")
        node = self._nodes.get(name) if isinstance(name, str) else None
        return None if self._place(node) is None else node

    def _rewind(self, name: str) -> None:
        """Take back a message and all behind it; all of them, if it is not there."""
        del self._live[self._place(self._nodes.get(name)) or 0 :]

    def _replace(self, messages: Iterable[dict[str, Any]]) -> None:
        """Take a list that replaces all messages.

        Messages that are known stay as they were written first: what is cut out of them
        afterwards, to save room, had been read by the model. Where some are gone and others are
        new, these are a summary of those.
        """
        nodes, new = set[int](), []
        for message in messages:
            node = self._known(message)
            if node is None:
                new.append(message)
            else:
                nodes.add(node)
        before = self._live
        is_summary = bool(new) and bool(set(before) - nodes)
        self._live = list(before)
        for message in new:
            self._live.append(self._add(_summary(message) if is_summary else message))
        added = self._live[len(before) :]
        if is_summary:
            self._cuts.add(added[0])
        self._live = [*sorted(nodes), *added]

    def ways(self) -> list[Way]:
        """Part the messages; the way on which the session went on is the first one."""
        replies = [one.get("type") == "gemini" for one in self.messages]
        rank = [number + len(replies) * reply for number, reply in enumerate(replies)]
        found: list[Way] = []
        place: dict[int, int] = {}
        for branch in branches(self._up, rank)[0]:
            above = None if branch.at is None else place[branch.at]
            way = Way([], above, branch.at)
            found.append(way)
            for node in branch.nodes:
                if node in self._cuts and way.nodes:
                    way = Way([], len(found) - 1, way.nodes[-1], COMPACTION)
                    found.append(way)
                way.nodes.append(node)
                place[node] = len(found) - 1
        return found

    def notes(self) -> list[str]:
        """Say what was left out."""
        kinds = {"user", "gemini", "info", "error", "warning", SUMMARY}
        strange = sum(shared.word(one.get("type")) not in kinds for one in self.messages)
        counts = (
            (self.unknown, "records are of no known shape"),
            (strange, "messages are of an unknown type"),
        )
        return [f"{count} {what}" for count, what in counts if count]


def _summary(message: dict[str, Any]) -> dict[str, Any]:
    """Mark a message that sums up others, and what the program answers for the model."""
    if message.get("type") == "user":
        return {**message, "type": SUMMARY}
    is_reply = any(message.get(name) for name in ("model", "tokens", "thoughts", "toolCalls"))
    return message if is_reply else {**message, "type": "info"}
