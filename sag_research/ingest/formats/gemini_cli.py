"""Gemini CLI: its sessions as one object or as JSON lines, and the replies that tests play back."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from sag_research.ingest._format import Reading
from sag_research.ingest._json import first_character, first_lines, outline
from sag_research.ingest._source import Source
from sag_research.ingest.formats._cli_turns import shallow
from sag_research.ingest.formats._gemini_replies import replies
from sag_research.ingest.formats._gemini_runs import is_whole, runs_of

__all__ = ["GeminiCli"]

_LOOK: Final = 40
_TYPE: Final = re.compile(rb'"type"\s*:\s*"(?:user|gemini|info|error|warning)"')
_METHOD: Final = re.compile(rb'"method"\s*:\s*"generateContent(?:Stream)?"')
_HEAD: Final = frozenset({"sessionId", "projectHash"})


class GeminiCli:
    """Gemini CLI sessions: ``chats/session-….json`` and ``….jsonl``, and recorded replies.

    The layout is that of https://github.com/google-gemini/gemini-cli (its chat recording); of
    sessions no real file was at hand, of recorded replies (``--fake-responses``) one was.

    Traps that are honoured

    * In JSON lines a message is written again with each change, under its id: the last one
      counts. A record ``$set`` changes the head.
    * ``$rewindTo`` takes back a message and all behind it: they are a run that left the other one
      (``fork``), which leads to the last reply.
    * ``$set`` may replace all messages. Those that are known stay as they were: what is cut out of
      them to save room had been read. Where others replace them, these are a summary, which begins
      a run that left the one before it (``compaction``).
    * One message is one step, though calls of several replies without a text may be added to it.
    * Calls hold their results; what a message of the user holds of them is only read where a call
      has none. Calls and results are joined 0..n to 0..n.
    * An exit code is known only from the last lines of what the shell's tool gave back; one but 0
      is an error, though the tool succeeded. A step whose calls were all cancelled is
      ``rejected``.
    * Thoughts and tool prompts are counted beside output and input, cached tokens within the input.
      Tokens may be null.
    * What the program says (``info``, ``warning``, ``error``) is in ``config.preamble`` or in
      ``state.notices`` of the step before; a session whose last message is an error failed.
      Otherwise it is not known whether a session ended, and there is no outcome.
    * What the user says is no step: the goal, or what the model heard after its last turn.
    * A sub-agent (``kind``) has a file of its own; the call that names it is in the session after
      which its folder is called, and is looked for there (``config.called_by``).
    * Recorded replies come in chunks, of which the last one with amounts counts; requests and
      results of tools are not in them.
    """

    name = "gemini-cli"

    def sniff(self, head: bytes, path: Path) -> float:
        """Claim a session by its head, and lines by their shape."""
        if first_character(head) != b"{":
            return 0.0
        seen = outline(head).keys
        if {*_HEAD, "messages"} <= seen.keys():
            return 0.9
        return max(map(_claim, first_lines(head, _LOOK)), default=0.0)

    def read(self, source: Source) -> Reading:
        """Read the runs of a source."""
        notes: list[str] = []
        if any(_METHOD.search(line) for line in first_lines(source.head)):
            return Reading("replies", shallow(replies(source, notes)), notes)
        version = "object" if is_whole(source) else "lines"
        return Reading(version, shallow(runs_of(source, notes)), notes)


def _claim(line: bytes) -> float:
    keys = outline(line).keys.keys()
    if keys >= _HEAD:
        return 0.9
    if "$rewindTo" in keys or ("$set" in keys and keys == {"$set"}):
        return 0.7
    if {"id", "timestamp", "type", "content"} <= keys and _TYPE.search(line):
        return 0.7 if keys & {"toolCalls", "thoughts", "tokens", "displayContent"} else 0.5
    return 0.6 if keys == {"method", "response"} and _METHOD.search(line) else 0.0
