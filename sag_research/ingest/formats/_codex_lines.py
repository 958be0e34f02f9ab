"""Lines of a Codex rollout, of all its ages in one shape, parted into sessions."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import msgspec

from sag_research.ingest._json import decode, outline
from sag_research.ingest._source import Source
from sag_research.ingest.formats import _shared as shared
from sag_research.ingest.formats._cli_turns import objects, seconds_of
from sag_research.ingest.formats._openhands_turns import mapping

__all__ = [
    "BARE",
    "Line",
    "Rollout",
    "forked_from",
    "is_document",
    "is_injected",
    "minted",
    "parent_of",
    "read_rollouts",
    "text_parts",
]

BARE: Final = frozenset({
    "custom_tool_call", "custom_tool_call_output", "function_call", "function_call_output",
    "local_shell_call", "local_shell_call_output", "message", "reasoning", "web_search_call",
})  # fmt: skip
"""Items that stood in a line of their own, without an envelope, until September 2025."""
_KINDS: Final = {
    "session_meta": "meta",
    "turn_context": "context",
    "response_item": "item",
    "event_msg": "event",
}
_ANY: Final = msgspec.json.Decoder()
_UUID7: Final = re.compile(
    r"([0-9a-f]{8})-([0-9a-f]{4})-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}", re.IGNORECASE
)
_NEVER: Final = 4e9
"""Seconds: an id that was made behind this time holds no time."""
_INJECTED: Final = re.compile(
    r"\s*(?:<(?:apps_instructions|collaboration_mode|environment_context|model_switch"
    r"|multi_agent_mode|permissions instructions|personality_spec|plugins_instructions"
    r"|skills_instructions|subagent_notification|turn_aborted|user_instructions"
    r"|user_shell_command)>|# AGENTS\.md\b)",
    re.IGNORECASE,
)


class Line(NamedTuple):
    """A line that is an object."""

    kind: str
    """``meta``, ``context``, ``item``, ``event``, ``compacted``, or its type as it stands."""
    body: dict[str, Any]
    at: float | None

    @property
    def type(self) -> str:
        """The type of what it holds; empty if it has none."""
        return shared.word(self.body.get("type")) or ""


@dataclass
class Rollout:
    """The lines of one session, those that it copied from its ancestors included."""

    meta: dict[str, Any] = field(default_factory=dict)
    lines: list[Line] = field(default_factory=list)
    ancestors: dict[str, None] = field(default_factory=dict)
    """Sessions whose head was copied, in order."""
    _known: set[str] = field(default_factory=set)
    _begun: bool = False

    @property
    def name(self) -> str | None:
        """Its id."""
        return _name(self.meta)

    def takes(self, meta: dict[str, Any]) -> bool:
        """Tell whether a head is the session's own, or an ancestor's."""
        name = _name(meta)
        return not self._begun or name is None or name in self._known

    def add(self, line: Line) -> None:
        """Add a line."""
        if line.kind != "meta":
            self._begun = self._begun or line.kind in ("item", "event")
            self.lines.append(line)
            return
        self.meta = self.meta or line.body
        name = _name(line.body)
        if name is not None and name != self.name:
            self.ancestors[name] = None
        self._known.update(filter(None, (name, parent_of(line.body), forked_from(line.body))))


def _name(meta: dict[str, Any]) -> str | None:
    return shared.word(meta.get("id")) or shared.word(meta.get("session_id"))


def forked_from(meta: dict[str, Any]) -> str | None:
    """Return the session that this one left; one that names itself is no fork."""
    found = shared.word(meta.get("forked_from_id"))
    return None if found == _name(meta) else found


def parent_of(meta: dict[str, Any]) -> str | None:
    """Return the session that began this one as a sub-agent."""
    spawned = mapping(mapping(mapping(meta.get("source")).get("subagent")).get("thread_spawn"))
    nested = shared.word(spawned.get("parent_thread_id"))
    return nested or shared.word(meta.get("parent_thread_id"))


def read_rollouts(source: Source, notes: list[str]) -> tuple[str, list[Rollout]]:
    """Read the sessions of a source: mostly one.

    Returns
    -------
    version : str
        ``rollout``, ``bare`` (without an envelope) or ``document`` (one object).
    rollouts : list of Rollout
    """
    found: list[Rollout] = []
    others: Counter[str] = Counter()
    version = "rollout"
    for raw in _objects(source, notes):
        line = _line(raw)
        if line is None:
            others[shared.word(raw.get("type")) or "(no type)"] += "record_type" not in raw
            continue
        version = "rollout" if "payload" in raw else "bare"
        if not found or (line.kind == "meta" and not found[-1].takes(line.body)):
            found.append(Rollout())
        found[-1].add(line)
    if others := +others:
        kinds = ", ".join(f"{kind} {others[kind]}" for kind in sorted(others))
        notes.append(f"{sum(others.values())} lines are of no known shape: {kinds}")
    return "document" if is_document(source) else version, found


def is_document(source: Source) -> bool:
    """Tell whether a source is one object, as the first versions wrote it."""
    return {"session", "items"} <= outline(source.head).keys.keys()


def _objects(source: Source, notes: list[str]) -> Iterator[dict[str, Any]]:
    if not is_document(source):
        yield from (found for _, found in objects(source, notes))
        return
    whole = mapping(decode(source.bytes(), _ANY))
    yield {**mapping(whole.get("session")), "type": None}
    items = whole.get("items")
    yield from (one for one in (items if isinstance(items, list) else []) if isinstance(one, dict))


def _line(raw: dict[str, Any]) -> Line | None:
    kind, payload = raw.get("type"), raw.get("payload")
    at = seconds_of(raw.get("timestamp"))
    if isinstance(kind, str) and isinstance(payload, dict):
        return Line(_KINDS.get(kind, kind), payload, at)
    if isinstance(kind, str):
        return Line("item", raw, at) if kind in BARE else None
    return Line("meta", raw, at) if {"id", "timestamp"} <= raw.keys() else None


def minted(name: str | None) -> float | None:
    """Return when an id was made, in seconds since the epoch, if it is a UUID that tells.

    Examples
    --------
    >>> minted("019aa234-a2a1-75c3-a9bf-d8425e1785f5"), minted("x")
    (1763657949.857, None)
    """
    found = _UUID7.fullmatch(name or "")
    at = int(found[1] + found[2], 16) / 1000 if found else _NEVER
    return at if at < _NEVER else None


def text_parts(body: dict[str, Any]) -> Iterator[str]:
    """Yield the texts of a message, of reasoning, or of an event that says the same."""
    for name in ("message", "text", "content", "summary"):
        value = body.get(name)
        for part in value if isinstance(value, list) else [value]:
            text = shared.text_of(part).strip() if part else ""
            if text:
                yield text


def is_injected(text: str) -> bool:
    """Tell whether the harness says this in the place of the user.

    Examples
    --------
    >>> is_injected("<environment_context>..."), is_injected("Mend it.")
    (True, False)
    """
    return _INJECTED.match(text) is not None
