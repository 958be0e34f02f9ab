"""Cursor: transcripts of its agent, and what ``cursor-agent`` prints as ``stream-json``."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from sag_research.errors import FormatError
from sag_research.ingest._format import Reading
from sag_research.ingest._json import Outline, first_character, first_lines, outline
from sag_research.ingest._source import Source
from sag_research.ingest.formats import _shared as shared
from sag_research.ingest.formats._cli_turns import (
    call_of,
    counted,
    filled,
    leading,
    objects,
    shallow,
    steps_of,
)
from sag_research.ingest.formats._cursor_stream import Stream
from sag_research.ingest.formats._openhands_turns import Turn, Turns, mapping
from sag_research.ingest.formats._shared import Result
from sag_research.model import Trajectory

__all__ = ["Cursor"]

_LOOK: Final = 40
_ROLE: Final = re.compile(rb'"role"\s*:\s*"(?:user|assistant)"')
_TYPE: Final = re.compile(rb'"type"\s*:\s*"(assistant|system|thinking|tool_call)"')
_INIT: Final = {
    "type", "subtype", "apiKeySource", "cwd", "session_id", "model", "permissionMode",
}  # fmt: skip
_COMMON_NAMES: Final = frozenset({"cursor", "cursor-agent", "output", "session", "stdout"})
"""Names of files that say nothing of what was attempted."""
_QUERY: Final = re.compile(r"<user_query>\s*")
_QUERY_END: Final = re.compile(r"\s*</user_query>")
_ENDS: Final = {
    "success": "run.completed",
    "completed": "run.completed",
    "aborted": "run.cancelled",
    "error": "run.failed",
}


class Cursor:
    """Cursor's agent: JSON lines of ``agent-transcripts``, or of ``--output-format stream-json``.

    No real file was at hand: ``stream-json`` is as Cursor's documentation has it
    (https://cursor.com/docs/cli), and transcripts are as several public readers of them have
    them. Chats that are exported as Markdown, and the editor's database, are not read.

    Traps that are honoured

    * The lines of ``stream-json`` look like those of Claude Code, whose ``system/init`` lists
      tools, and whose messages of the model have an id.
    * A text may come in parts (``--stream-partial-output``), with the whole behind them: it is
      kept once. ``result`` has all texts again, and is no step.
    * Calls share the ``model_call_id`` of their reply. Where there is none, calls that begin
      before a result comes are those of the reply before; a call that follows a result without a
      text is a reply of its own.
    * Calls are joined to results by ``call_id``, which may hold a line break, and may end in
      another order. A tool's name is the key of its object (``shellToolCall``: ``shell``).
    * A result is ``success``, ``rejected`` or another key, which is an error; a command with an
      exit code but 0 erred in any case. A step whose calls were all refused is ``rejected``.
    * Transcripts have neither times nor ids, and mostly no results: a call without one has an
      unknown status. A ``tool_result`` without an id goes to the first call that waits.
    * What the user says is no step: the goal, which stands in ``<user_query>``, or what the model
      heard after its last turn, as a whole.
    * ``turn_ended`` ends the run only if it is the last line. How a run ended is no outcome.
    * Tokens are those of the whole run, as ``result`` has them; cached ones are taken for a part
      of the prompt's.
    """

    name = "cursor"

    def sniff(self, head: bytes, path: Path) -> float:
        """Claim lines of a stream or of a transcript."""
        if first_character(head) != b"{":
            return 0.0
        return max(map(_claim, head.split(b"\n", _LOOK)[:_LOOK]), default=0.0)

    def read(self, source: Source) -> Reading:
        """Read the runs of a source."""
        notes: list[str] = []
        lines = first_lines(source.head, _LOOK)
        if any(_is_spoken(outline(line)) for line in lines):
            return Reading("transcript", shallow(_transcript(source, notes)), notes)
        return Reading("stream-json", shallow(_streams(source, notes)), notes)


def _claim(line: bytes) -> float:
    typed = _TYPE.search(line)
    if typed is None and not _ROLE.search(line):
        return 0.0
    seen = outline(line)
    keys = set(seen.keys)
    if "type" not in keys:
        return 0.8 if _is_spoken(seen) else 0.0
    kind = typed[1] if typed else b""
    if kind == b"tool_call" and {"subtype", "tool_call"} <= keys:
        return 0.95
    if kind == b"thinking" and {"subtype", "session_id"} <= keys:
        return 0.95
    if kind == b"system" and {"subtype", "apiKeySource", "session_id"} <= keys <= _INIT:
        return 0.9
    is_said = kind == b"assistant" and {"message", "session_id"} <= keys
    said = seen.below("message")
    return 0.9 if is_said and seen.complete and said == {"role", "content"} else 0.0


def _is_spoken(seen: Outline) -> bool:
    """Tell whether a line is one of a transcript."""
    is_said = {"role", "message"} <= seen.keys.keys() and "type" not in seen.keys
    return is_said and "content" in seen.below("message")


def _named(path: Path, session: str) -> str:
    """Return the name of the file, or the session's if all such files have that name."""
    stem = shared.bare_id(path).removesuffix(".txt")
    return session if stem in _COMMON_NAMES and session else stem


# ---- streams


def _streams(source: Source, notes: list[str]) -> Iterator[Trajectory]:
    found: dict[str, Stream] = {}
    for _, line in objects(source, notes):
        found.setdefault(shared.word(line.get("session_id")) or "", Stream()).take(line)
    for stream in found.values():
        stream.close()
    silent = sum((stream.silent for stream in found.values()), Counter[str]())
    notes += counted(silent, "are part of no step")
    kept = {name: one for name, one in found.items() if one.turns.all or one.goal or one.ended}
    if not kept:
        raise FormatError("no message in it", why="; ".join(notes[:3]))
    for name, stream in kept.items():
        yield _stream(name, stream, source.path, len(kept) > 1)


def _stream(name: str, stream: Stream, path: Path, several: bool) -> Trajectory:
    ended = mapping(stream.ended)
    failed = ended.get("is_error") is True or ended.get("subtype") not in (None, "success")
    end = None if stream.ended is None else "run.failed" if failed else "run.completed"
    used = mapping(ended.get("usage"))
    about = {key: stream.begun.get(key) for key in ("cwd", "permissionMode", "apiKeySource")}
    result = {key: ended[key] for key in ended if key not in ("type", "result", "session_id")}
    spans = {turn: last - first for turn, (first, last) in stream.spans.items()}
    return Trajectory(
        task_id=_named(path, name),
        record=(name or "unnamed") if several else None,
        goal="\n\n".join(map(_query, stream.goal)),
        steps=steps_of(stream.turns, spans),
        agent="cursor",
        model=shared.word(stream.begun.get("model")),
        end=end,
        exit_status=shared.word(ended.get("subtype")),
        usage=shared.usage_of(used.get("inputTokens"), used.get("outputTokens"), None),
        config=filled(about | {"session_id": name, "result": result}),
    )


# ---- transcripts


def _transcript(source: Source, notes: list[str]) -> Iterator[Trajectory]:
    turns, goal, ended = Turns(), list[str](), dict[str, Any]()
    silent: Counter[str] = Counter()
    count = 0
    for _, line in objects(source, notes):
        content = mapping(line.get("message")).get("content")
        blocks = content if isinstance(content, list) else [content]
        if line.get("role") == "assistant":
            _reply(turns, blocks)
        elif line.get("role") == "user":
            text = _heard(turns, blocks)
            if text and not turns.hear(text):
                goal.append(text)
        else:
            silent[shared.word(line.get("type")) or "(no type)"] += 1
        ended = line if line.get("type") == "turn_ended" else {}
        count += "role" in line
    notes += counted(silent, "are part of no step")
    if not count:
        raise FormatError("no message in it", why="; ".join(notes[:3]))
    status = shared.word(ended.get("status"))
    yield Trajectory(
        task_id=_named(source.path, source.path.absolute().parent.name),
        goal="\n\n".join(map(_query, goal)),
        steps=steps_of(turns),
        agent="cursor",
        end=_ENDS.get(status or ""),
        exit_status=status,
        config=filled({"error": ended.get("error")}),
    )


def _reply(turns: Turns, blocks: list[Any]) -> None:
    turn = turns.reply(None, None)
    for block in blocks:
        found = mapping(block)
        kind = found.get("type")
        if kind == "tool_use":
            call = call_of(found.get("id"), found.get("name"), found.get("input"))
            turns.ask(turn, call, None)
        elif kind == "tool_result":
            _give(turns, turn, found)
        else:
            text = found.get("thinking") if kind == "thinking" else shared.text_of(block)
            turn.thoughts.append(shared.text_of(text).strip())


def _heard(turns: Turns, blocks: list[Any]) -> str:
    """Give results to their calls; return what the user says."""
    said = []
    for block in blocks:
        found = mapping(block)
        if found.get("type") == "tool_result" and turns.all:
            _give(turns, turns.all[-1], found)
        else:
            said.append(shared.text_of(block))
    return shared.joined(said)


def _give(turns: Turns, turn: Turn, found: dict[str, Any]) -> None:
    """Give a result to the call that it names, or to the first one of a turn that waits."""
    text, failed = shared.text_of(found.get("content")), found.get("is_error")
    status = {True: "error", False: "ok"}[failed] if isinstance(failed, bool) else "unknown"
    named = leading(found, "tool_use_id", "id")
    result = Result(named, text, None, status)
    if named is not None and turns.answer(result, None, None):
        return
    waiting = next((answers for answers in turn.answers if not answers), None)
    if waiting is None:
        turns.hear(text)
    else:
        waiting.append(result)


def _query(text: str) -> str:
    """Return what the user typed, without what the editor put around it."""
    opened = _QUERY.search(text)
    closed = _QUERY_END.search(text, opened.end()) if opened else None
    if opened and closed and (typed := text[opened.end() : closed.start()].strip()):
        return typed
    return text.strip()
