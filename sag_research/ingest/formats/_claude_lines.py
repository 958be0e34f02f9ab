"""The lines of a Claude Code session, of both dialects, in one shape."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from sag_research.errors import FormatError
from sag_research.ingest._json import OtherShapeError, decode, loads
from sag_research.ingest._source import Source
from sag_research.ingest.formats import _shared as shared

__all__ = ["Line", "Lines", "Spoken", "blocks", "is_result", "mapping", "read_lines", "spoken"]

_QUIET: Final = frozenset({
    "agent-color", "agent-name", "ai-title", "attachment", "custom-title",
    "file-history-snapshot", "last-prompt", "mode", "permission-mode", "pr-link", "progress",
    "queue-operation", "rate_limit_event", "result", "stream_event", "summary", "system", "tag",
})  # fmt: skip
"""Types that are known and part of no step."""
_SYNTHETIC: Final = "<synthetic>"
_COMMAND: Final = re.compile(r"\s*(?:Caveat: |<(?:command-|local-command-))")
_CLEAR: Final = re.compile(r"<command-name>\s*/(?:clear|reset|new)\s*</command-name>")
_FIRST_YEAR: Final = 1970
_FAULTS: Final = 50
"""Damaged lines that are noted one by one."""
_OPAQUE: Final = 200
"""Lines of unknown types that are kept as they are."""
_Key: TypeAlias = tuple[str | None, str | None]


class _Raw(msgspec.Struct, rename="camel"):
    """What stands in a line; what is not named here is skipped while the line is decoded."""

    type: Any = None
    subtype: Any = None
    uuid: Any = None
    parent_uuid: Any = None
    logical_parent_uuid: Any = None
    session_id: Any = None
    stream_session: Any = msgspec.field(default=None, name="session_id")
    timestamp: Any = None
    is_sidechain: Any = None
    agent_id: Any = None
    parent_tool_use_id: Any = msgspec.field(default=None, name="parent_tool_use_id")
    request_id: Any = None
    message: Any = None
    tool_use_result: Any = None
    tool_denial_kind: Any = None
    attachment: Any = None
    stream_result: Any = msgspec.field(default=None, name="tool_use_result")
    is_meta: Any = None
    is_compact_summary: Any = None
    is_api_error_message: Any = None
    forked_from: Any = None
    cost: Any = msgspec.field(default=None, name="costUSD")
    version: Any = None
    cwd: Any = None
    git_branch: Any = None
    slug: Any = None
    summary: Any = None


_DECODER: Final = msgspec.json.Decoder(_Raw)


class Line(msgspec.Struct, kw_only=True):
    """A line that has a place in the tree."""

    number: int
    """In the file, from 1."""
    kind: str
    """``user``, ``assistant``, ``notice`` (of the harness), ``boundary`` or ``quiet``."""
    uuid: str | None
    parent: str | None
    session: str | None
    side: str | None
    """Which sub-agent it belongs to: its id, the call that began it, or ``sidechain``."""
    at: float | None
    content: Any
    """Of the message: text or blocks."""
    reply: _Key
    """Ids of the message and the request: equal in all lines of one reply."""
    model: str | None
    usage: Any
    cost: Any
    told: str
    """What came back, by the harness's own account."""
    agent: str | None
    """Id of the sub-agent whose result this is."""
    refused: bool
    """The call was not run: the user or a rule refused it."""
    is_meta: bool
    is_summary: bool
    is_copy: bool
    """It says itself that it was taken over from another session."""
    about: dict[str, str]

    @property
    def lane(self) -> tuple[str | None, str | None]:
        """Lines of one lane are one conversation."""
        return self.session, self.side


class Spoken(NamedTuple):
    """What a person, or the harness in that place, says in a line."""

    text: str
    is_command: bool
    """It is about the program, and not for the model."""
    clears: bool
    """It begins a conversation anew."""


@dataclass
class Lines:
    """What a source holds."""

    found: list[Line] = field(default_factory=list)
    quiet: Counter[str] = field(default_factory=Counter)
    summaries: list[str] = field(default_factory=list)
    opaque: list[Any] = field(default_factory=list)
    begun: dict[str | None, dict[str, Any]] = field(default_factory=dict)
    """By session: how the harness was set up."""
    ended: dict[str | None, list[dict[str, Any]]] = field(default_factory=dict)
    """By session: how the harness says that it went."""
    is_stream: bool = False
    copies: int = 0
    faults: list[str] = field(default_factory=list)

    def notes(self) -> list[str]:
        """Say what became no part of a step."""
        notes = list(self.faults[:_FAULTS])
        if (more := len(self.faults) - _FAULTS) > 0:
            notes.append(f"and {more} more lines like these")
        if self.quiet:
            kinds = ", ".join(f"{kind} {self.quiet[kind]}" for kind in sorted(self.quiet))
            notes.append(f"{self.quiet.total()} lines are part of no step: {kinds}")
        if self.copies:
            notes.append(f"{self.copies} lines repeat an earlier one")
        return notes


def mapping(value: Any) -> dict[str, Any]:
    """Return an object, or an empty one in the place of anything else."""
    return value if isinstance(value, dict) else {}


def read_lines(source: Source) -> Lines:
    """Read a source line by line; a damaged line costs that line."""
    lines = Lines()
    first: dict[str, Line] = {}
    for number, data in enumerate(source.lines(), start=1):
        if not data.strip():
            continue
        try:
            raw = decode(data, _DECODER)
        except OtherShapeError:
            lines.faults.append(f"line {number}: no object")
        except FormatError as error:
            lines.faults.append(f"line {number}: {error}")
        else:
            _take(lines, first, raw, number, data)
    return lines


def _take(lines: Lines, first: dict[str, Line], raw: _Raw, number: int, data: bytes) -> None:
    kind = shared.word(raw.type) or "(no type)"
    session = shared.word(raw.session_id) or shared.word(raw.stream_session)
    lines.is_stream |= raw.session_id is None and raw.stream_session is not None
    steering = mapping(raw.attachment) if kind == "attachment" else {}
    if steering.get("type") == "queued_command" and steering.get("prompt"):
        kind, raw.message = "user", {"content": steering["prompt"]}
    if kind not in ("user", "assistant"):
        _note(lines, kind, raw, session, data)
        if raw.uuid is None:
            return
    line = _line(raw, kind, session, number)
    known = first.setdefault(line.uuid, line) if line.uuid is not None else line
    if known is not line and (known.kind, known.content) == (line.kind, line.content):
        known.usage = line.usage or known.usage
        lines.copies += line.kind != "quiet"
        return
    lines.found.append(line)


def _note(lines: Lines, kind: str, raw: _Raw, session: str | None, data: bytes) -> None:
    subtype = shared.word(raw.subtype)
    lines.quiet[f"{kind}/{subtype}" if subtype else kind] += 1
    if kind == "summary" and shared.word(raw.summary):
        lines.summaries.append(raw.summary)
    elif (kind, subtype) == ("system", "init"):
        lines.begun.setdefault(session, _envelope(data))
    elif kind == "result":
        lines.ended.setdefault(session, []).append(_envelope(data))
    elif kind not in _QUIET and len(lines.opaque) < _OPAQUE:
        lines.opaque.append(loads(data))


def _envelope(data: bytes) -> dict[str, Any]:
    left_out = ("type", "uuid", "session_id")
    return {name: value for name, value in mapping(loads(data)).items() if name not in left_out}


def _line(raw: _Raw, kind: str, session: str | None, number: int) -> Line:
    message = mapping(raw.message)
    model = shared.word(message.get("model"))
    told = raw.stream_result if raw.tool_use_result is None else raw.tool_use_result
    boundary = kind == "system" and raw.subtype == "compact_boundary"
    if kind == "assistant" and (raw.is_api_error_message is True or model == _SYNTHETIC):
        kind = "notice"
    elif kind not in ("user", "assistant"):
        kind = "boundary" if boundary else "quiet"
    return Line(
        number=number,
        kind=kind,
        uuid=shared.word(raw.uuid),
        parent=shared.word(raw.parent_uuid) or shared.word(raw.logical_parent_uuid),
        session=session,
        side=_side(raw),
        at=_clock(raw.timestamp),
        content=message.get("content") if message else raw.message,
        reply=(shared.word(message.get("id")), shared.word(raw.request_id)),
        model=None if model == _SYNTHETIC else model,
        usage=message.get("usage"),
        cost=raw.cost,
        told=_told(told),
        agent=_agent(raw, told),
        refused=raw.tool_denial_kind in ("permission-rule", "user-rejected"),
        is_meta=raw.is_meta is True,
        is_summary=raw.is_compact_summary is True,
        is_copy=isinstance(raw.forked_from, dict),
        about=_about(raw),
    )


def _side(raw: _Raw) -> str | None:
    call = shared.word(raw.parent_tool_use_id)
    if raw.is_sidechain is True:
        return shared.word(raw.agent_id) or call or "sidechain"
    return call


def _agent(raw: _Raw, told: Any) -> str | None:
    aside = None if raw.is_sidechain is True else shared.word(raw.agent_id)
    return shared.word(mapping(told).get("agentId")) or aside


def _about(raw: _Raw) -> dict[str, str]:
    said = {
        "cwd": raw.cwd,
        "version": raw.version,
        "git_branch": raw.git_branch,
        "slug": raw.slug,
        "agent_id": raw.agent_id,
    }
    return {name: text for name, value in said.items() if (text := shared.word(value))}


def _told(value: Any) -> str:
    """Return what the harness keeps of a result beside the message, as text."""
    if isinstance(value, dict):
        parts = [value.get("stdout"), value.get("stderr")]
        shown = [part for part in parts if isinstance(part, str)]
        return shared.joined(shown) if shown else shared.text_of(value.get("content"))
    return shared.text_of(value)


def _clock(value: Any) -> float | None:
    """Return seconds since the epoch.

    Examples
    --------
    >>> _clock("1970-01-01T00:01:00.5Z"), _clock("soon"), _clock(60)
    (60.5, None, 60.0)
    """
    if not isinstance(value, str):
        return shared.number(value)
    try:
        found = datetime.fromisoformat(value)
        zoned = found if found.tzinfo else found.replace(tzinfo=UTC)
        return zoned.timestamp() if found.year >= _FIRST_YEAR else None
    except (ValueError, OverflowError):
        return None


# ---- what is in a message


def blocks(content: Any) -> Iterator[dict[str, Any]]:
    """Yield the blocks of a message; text stands for a block of it."""
    if isinstance(content, list):
        for block in content:
            yield block if isinstance(block, dict) else {"type": "text", "text": block}
    elif content is not None:
        yield {"type": "text", "text": content} if isinstance(content, str) else mapping(content)


def is_result(block: dict[str, Any]) -> bool:
    """Tell whether a block is what came back from a call."""
    return str(block.get("type")).endswith("tool_result")


def spoken(line: Line) -> Spoken:
    """Return what is said in a line, results of calls aside."""
    said = [block for block in blocks(line.content) if block and not is_result(block)]
    text = shared.joined([shared.text_of(block.get("text", [block])) for block in said])
    is_command = line.is_meta or bool(_COMMAND.match(text))
    return Spoken(text, is_command, bool(_CLEAR.search(text)) and not line.is_meta)
