"""Claude Code: session files, and what the program prints as ``stream-json``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from sag_research.errors import FormatError
from sag_research.ingest._format import Reading
from sag_research.ingest._json import first_character, outline
from sag_research.ingest._source import Source
from sag_research.ingest.formats import _shared as shared
from sag_research.ingest.formats._claude_agents import with_callers
from sag_research.ingest.formats._claude_lines import read_lines
from sag_research.ingest.formats._claude_runs import runs_of
from sag_research.ingest.formats._claude_siblings import copied_replies

__all__ = ["ClaudeCode"]

_LOOK: Final = 40
"""Lines that are looked at to recognise a source."""
_TYPE: Final = re.compile(
    rb'"type"\s*:\s*"(?:user|assistant|system|summary|file-history-snapshot)"'
)
_SESSION: Final = frozenset({"parentUuid", "sessionId", "uuid", "isSidechain", "leafUuid"})
_STREAM: Final = frozenset({"session_id", "parent_tool_use_id", "message", "subtype"})
_SNAPSHOT: Final = frozenset({"messageId", "snapshot", "isSnapshotUpdate"})
_COMMON_NAMES: Final = frozenset({
    "claude", "claude-code", "messages", "output", "session", "stdout", "stream", "trajectory",
    "transcript",
})  # fmt: skip
"""Names of files that say nothing of what was attempted."""


class ClaudeCode:
    """Claude Code sessions: JSON lines of a session file, or of ``--output-format stream-json``.

    Traps that are honoured

    * One reply of the model is several lines with one ``message.id``, a block in each or a
      growing text: one step, whose tokens are those of the last line that has any. The parts
      of a prompt that were cached are among its tokens. Text and thinking are the thought,
      calls of tools the action.
    * Calls and results are joined 0..n to 0..n. Results of parallel calls hang on branches of
      their own: what came back in a branch without a reply goes to the call. A result whose
      call is not in its run is what the model heard in that turn.
    * ``toolUseResult`` has any type; it is read only where the message holds no text of the
      result. An exit code is known only from a text that begins with ``Exit code``.
    * What the user says is no step: the goal, or what the model heard after its last turn.
      Command lines and meta lines in front of the first turn are in ``config.preamble``.
    * Lines form a tree by ``parentUuid``. The run leads to the last reply of the file, and
      other branches with replies are runs that left it (``fork``). If the turn in which it
      was left went on otherwise there, the branch begins with its own copy of this turn, with
      the flags ``inherited`` and ``shared-reply`` and without its tokens.
    * A branch without a reply is no run; what it says is in ``config.unanswered``.
    * A compaction begins a run that left the one before it (``compaction``); the summary is in
      ``config.compaction_summary``. ``/clear`` begins a run that shares nothing.
    * Several sessions in a file are a run each. One that goes on behind the lines of another
      left it (``resume``), unless the file is named after it: then the lines of the other are
      copies, and their steps have the flag ``inherited``. So have lines with ``forkedFrom``.
    * A history that was written again into the same file, with old or new ids, falls onto the
      original, and its lines are counted as repeated.
    * A resumed session begins with the whole history, often under its own session id. So the
      ``.jsonl`` files of the same folder are looked at: replies that stand in one that ended
      before are ``inherited``. Alone in another folder, such a copy looks like an original.
    * Sub-agents (``isSidechain``, ``parent_tool_use_id``, ``agent-*.jsonl``) are runs of their
      own, begun by the call with their id or, in old files, with their prompt. Those in files
      of their own are linked to the session's file, which is looked for beside them or above a
      folder ``subagents``, also if it is ingested at another time or not at all.
    * Parents that were never written, cycles, several roots and ids that are used again cost
      no line. Without any parents, lines follow each other.
    * Lines of the harness in the place of the model (API errors) are no replies: they are in
      ``state.notices`` of the step before. A run that ends in one failed, as ``api_error``.
    * A step whose calls were all refused, by the user or a rule, has the flag ``rejected``.
    * Damaged lines, and lines that are no objects, cost themselves: a note names each. Lines of
      no use are counted in the notes; of unknown types they are kept in ``config.opaque_lines``.
    * Only ``stream-json`` says how a run ended; its cost includes that of sub-agents.
    """

    name = "claude-code"

    def sniff(self, head: bytes, path: Path) -> float:
        """Claim lines with the envelope of a session or of a stream."""
        if first_character(head) != b"{":
            return 0.0
        claims = map(_claim, head.split(b"\n", _LOOK)[:_LOOK])
        return max(claims, default=0.0)

    def read(self, source: Source) -> Reading:
        """Read the runs of a source."""
        notes: list[str] = []
        lines = read_lines(source)
        version = "stream-json" if lines.is_stream else "session"
        if not any(line.kind != "quiet" for line in lines.found):
            why = "; ".join(lines.notes()[:3])
            raise FormatError("no message in it", why=why)
        copied = frozenset() if lines.is_stream else copied_replies(source.path)
        runs, found = runs_of(lines, _stem(source.path), copied)
        notes += found
        return Reading(version, iter(with_callers(runs, source.path)), notes)


def _stem(path: Path) -> str:
    """Return the name of the file, or of its folder if all such files have that name."""
    stem = shared.bare_id(path).removesuffix(".txt")
    folder = path.absolute().parent.name
    return folder if stem in _COMMON_NAMES and folder else stem


def _claim(line: bytes) -> float:
    if not _TYPE.search(line):
        return 0.0
    keys = set(outline(line).keys)
    if "type" not in keys:
        return 0.0
    if len(keys & _SESSION) >= 3 and ("message" in keys or "sessionId" in keys):
        return 0.9
    if len(keys & _STREAM) >= 2 and "session_id" in keys:
        return 0.85
    if {"summary", "leafUuid"} <= keys or keys >= _SNAPSHOT:
        return 0.7
    return 0.0
