"""opencode: exported sessions, its folder of sessions, and what ``run --format json`` prints."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from sag_research.errors import FormatError
from sag_research.ingest._format import Reading
from sag_research.ingest._json import decode, first_character, first_lines, outline
from sag_research.ingest._source import Source
from sag_research.ingest.formats import _shared as shared
from sag_research.ingest.formats._cli_turns import objects, shallow
from sag_research.ingest.formats._opencode_storage import stored_messages
from sag_research.ingest.formats._opencode_turns import Session, trajectory
from sag_research.ingest.formats._openhands_turns import mapping
from sag_research.model import Trajectory

__all__ = ["OpenCode"]

_ANY: Final = msgspec.json.Decoder(dict[str, Any])
_EVENT: Final = re.compile(
    rb'"type"\s*:\s*"(?:step_start|step_finish|tool_use|text|reasoning|error)"'
)
_STORED: Final = {"id", "projectID", "directory", "title", "time"}
_COMMON_NAMES: Final = frozenset({
    "export", "opencode", "output", "run", "session", "session_data", "stdout", "trajectory",
})  # fmt: skip
"""Names of files that say nothing of what was attempted."""
_GLANCE: Final = 4 * 2**10


class OpenCode:
    """opencode sessions: ``opencode export``, the files of its storage, or ``run --format json``.

    No real file was at hand: the layout is that of the project's source,
    https://github.com/anomalyco/opencode (before, sst/opencode).

    Traps that are honoured

    * A message of the model may hold several replies, each between ``step-start`` and
      ``step-finish``: each is a step with its own tokens and cost. The message's own, which add
      up or are those of the last reply, serve only where there is one reply without any.
    * Cached parts of a prompt are among its tokens. Some versions count the reasoning within the
      output and others beside it: it is added where the total says so. Zero is unknown.
    * A part of a tool holds the call and its result. One that is pending or running has none,
      and its status is unknown. A command with an exit code but 0 erred, though its part is
      ``completed``. A step whose calls were all refused has the flag ``rejected``.
    * What the user says is no step: the goal, without the texts that opencode itself put there
      (``synthetic``), or what the model heard after its last turn; texts that are ``ignored`` are
      not kept.
    * Replies behind the message at which the session was reverted have the flag ``reverted``; a
      summary that the model wrote to go on from has the flag ``compaction``.
    * A reply in which nothing was said or called is no step, and what it took is not counted;
      errors are in ``config.errors``. How the last reply ended is the end of the run, and no
      outcome.
    * A sub-agent is a session, and so a source, of its own: ``config.parent_session``.
    * Of the storage, ``session/<project>/<id>.json`` is the source, and ``message`` and ``part``
      beside it are read with it; alone, it is refused. Files that cannot be read are noted.
      Sessions that newer versions keep in a database have to be exported.
    * A message that is listed twice, with all its parts, is read once, and a note says so.
    * ``run --format json`` has no prompt; parts are put together by their
      ``messageID``.
    """

    name = "opencode"

    def sniff(self, head: bytes, path: Path) -> float:
        """Claim sessions with their messages, stored sessions, and lines with parts."""
        if first_character(head) != b"{":
            return 0.0
        if any(map(_is_event, first_lines(head))):
            return 0.85
        seen = outline(head)
        keys = set(seen.keys)
        if "info" in keys and {"id", "title", "time"} <= seen.below("info"):
            return 0.9 if {"info", "parts"} <= seen.below("messages") else 0.0
        is_session = keys >= _STORED and "messages" not in keys and b'"ses' in head[:_GLANCE]
        return 0.8 if is_session and not seen.more else 0.0

    def read(self, source: Source) -> Reading:
        """Read the session."""
        notes: list[str] = []
        if any(map(_is_event, first_lines(source.head))):
            return Reading("run", shallow(_streamed(source, notes)), notes)
        file = decode(source.bytes(), _ANY)
        messages = file.get("messages")
        is_export = isinstance(messages, list)
        info = mapping(file.get("info")) if is_export else file
        if not isinstance(messages, list):
            messages = stored_messages(source.path, file.get("id"), notes)
        if not any(mapping(mapping(one).get("info")).get("role") for one in messages):
            raise FormatError(
                "no message in it",
                why="" if is_export else "a stored session, without its messages beside it",
                fix="" if is_export else "ingest the whole storage, or use 'opencode export'",
            )
        run = _run(info, messages, file.get("todos"), source.path, notes)
        return Reading("export" if is_export else "storage", shallow(run), notes)


def _is_event(line: bytes) -> bool:
    if not _EVENT.search(line):
        return False
    return {"type", "timestamp", "sessionID"} <= set(outline(line).keys)


def _run(
    info: dict[str, Any], messages: list[Any], todos: Any, path: Path, notes: list[str]
) -> Iterator[Trajectory]:
    session = Session()
    revert = shared.word(mapping(info.get("revert")).get("messageID"))
    reverted = False
    odd, again = 0, 0
    seen: dict[str, Any] = {}
    for message in messages:
        if not isinstance(message, dict):
            odd += 1
            continue
        about = mapping(message.get("info"))
        name = shared.word(about.get("id"))
        if name and seen.setdefault(name, message) is not message and seen[name] == message:
            again += 1
            continue
        reverted |= revert is not None and about.get("id") == revert
        session.message(about, message.get("parts"), reverted=reverted)
    notes += [f"{odd} messages are no objects"] if odd else []
    notes += [f"{again} messages are there twice: the first one of each is taken"] if again else []
    notes += session.notes()
    yield trajectory(session, info, _task_id(path, info.get("id")), {"todos": todos})


def _task_id(path: Path, session: Any) -> str:
    """Return the name of the file, or the session's id if all such files have that name."""
    stem = shared.bare_id(path).removesuffix(".txt")
    return (shared.word(session) or stem) if stem in _COMMON_NAMES else stem


def _streamed(source: Source, notes: list[str]) -> Iterator[Trajectory]:
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    sessions: dict[str, Session] = {}
    replies: dict[str, int] = {}
    odd = 0
    for _, line in objects(source, notes):
        name = shared.word(line.get("sessionID")) or "unnamed"
        session = sessions.setdefault(name, Session())
        part = mapping(line.get("part"))
        if line.get("type") == "error":
            session.fail(mapping(line.get("error")))
        elif not part:
            odd += 1
        else:
            replies[name] = replies.get(name, 0) + (part.get("type") == "step-start")
            reply = shared.word(part.get("messageID")) or str(replies[name])
            part.setdefault("at", line.get("timestamp"))
            groups.setdefault((name, reply), []).append(part)
    notes += [f"{odd} lines have no part"] if odd else []
    for (name, _), parts in groups.items():
        _add(sessions[name], parts)
    if not groups:
        raise FormatError("no part in it", why="; ".join(notes[:3]))
    for name, session in sessions.items():
        notes += session.notes()
        run = trajectory(session, {"id": name}, _task_id(source.path, name), {})
        yield msgspec.structs.replace(run, record=name if len(sessions) > 1 else None)


def _add(session: Session, parts: list[dict[str, Any]]) -> None:
    """Add the parts of a reply in the order in which they were printed."""
    session.begin(parts[0].get("at"))
    for part in parts:
        session.part(part)
    session.close()
    reason = next((one.get("reason") for one in parts if one.get("type") == "step-finish"), None)
    if not session.is_failed:
        session.ended = shared.word(reason)
