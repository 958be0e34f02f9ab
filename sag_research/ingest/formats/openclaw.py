"""OpenClaw: session transcripts, and telemetry of its agents."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from sag_research.ingest._format import Reading
from sag_research.ingest._json import first_character, first_lines, outline
from sag_research.ingest._source import Source
from sag_research.ingest.formats import _shared as shared
from sag_research.ingest.formats._cli_turns import shallow
from sag_research.ingest.formats._openclaw_session import session_runs
from sag_research.ingest.formats._openclaw_telemetry import telemetry_runs

__all__ = ["OpenClaw"]

_LOOK: Final = 40
_BEGINNING: Final = 4 * 2**10
"""Bytes at either end of a line in which its type is looked for."""
_SESSION: Final = {"type", "version", "id", "timestamp", "cwd"}
_MESSAGE: Final = {"type", "id", "parentId", "timestamp", "message"}
_TYPE: Final = re.compile(
    rb'"type"\s*:\s*"(?:session|message|(?:agent|tool)\.(?:start|end)|message\.(?:in|out|sending))"'
)
_TELEMETRY: Final = re.compile(rb'"type"\s*:\s*"(?:agent|tool|message|llm)\.[a-z]')


class OpenClaw:
    """OpenClaw: JSON lines of a session transcript, or of a telemetry plug-in.

    Transcripts (``agents/<id>/sessions/<id>.jsonl``) are in the layout of the pi coding agent,
    whose session files are read, too; no real one was at hand, the layout is that of pi's own
    documentation. Telemetry is what the plug-ins of Knostic and of HAL write. Source projects:
    https://github.com/openclaw/openclaw and https://github.com/badlogic/pi-mono.

    Traps that are honoured

    * Telemetry repeats the whole conversation in each snapshot (``messages`` of ``agent.start``
      and ``agent.end``): a message is taken once, known by its role, time and id, though its
      text may be cut later on. Each ``sessionKey`` is a run.
    * ``agent.start`` is written twice, without and with the messages before it: one prompt. A
      prompt that a snapshot repeats as a message is heard once.
    * Tools that began (``tool.start``) and are calls of a reply in a snapshot are that call, known
      by name and arguments; the others are turns without a thought, since nothing says which of
      them were one reply. ``tool.end`` names no call: of equal names the first one ends first. It
      has no output, only whether the tool raised, and for how long it ran.
    * Tools may be written under another key than their session (``…:telegram:…`` for
      ``agent:main:main``): under a key in which no agent began or ended, they are those of the
      session in which the same agent began last. The notes count them.
    * A sub-agent (``:subagent:``) is a run of its own behind the one that called it: known by
      ``childSessionKey`` in the result or, if only one call gave it, by the task in its prompt.
    * Messages of channels name no session, and telemetry may hold the last replies only there:
      they are in the first run's ``config.channel_messages``. Their counts are in the notes.
    * ``success`` of ``agent.end`` says that it did not raise: how the run ended, no outcome.
      Without a later ``agent.end`` the end is unknown.
    * Cached parts of a prompt are among its tokens. Costs of zero are unknown.
    * Transcripts are trees by ``parentId``: the run leads to the last entry, and other branches
      with replies are runs that left it. Entries without parents follow each other (version 1).
      Cycles, missing parents and ids that are used again cost no entry.
    * Compaction summaries, and commands of the user, are what the model heard. What came back for
      a call that is not in the run is heard, too. The agent is named only where the file says it.
    """

    name = "openclaw"

    def sniff(self, head: bytes, path: Path) -> float:
        """Claim lines with the envelope of a transcript or of telemetry."""
        if first_character(head) != b"{":
            return 0.0
        return max(map(_claim, head.split(b"\n", _LOOK)[:_LOOK]), default=0.0)

    def read(self, source: Source) -> Reading:
        """Read the runs of a source."""
        notes: list[str] = []
        task_id = shared.bare_id(source.path)
        is_telemetry = any(map(_TELEMETRY.search, first_lines(source.head, _LOOK)))
        read = telemetry_runs if is_telemetry else session_runs
        version = "telemetry" if is_telemetry else "session"
        return Reading(version, shallow(read(source, task_id, notes)), notes)


def _claim(line: bytes) -> float:
    if not _TYPE.search(line[:_BEGINNING]) and not _TYPE.search(line[-_BEGINNING:]):
        return 0.0
    keys = set(outline(line).keys)
    if keys >= _SESSION or keys >= _MESSAGE:
        return 0.85
    if {"type", "sessionKey"} <= keys:
        return 0.9
    return 0.7 if {"type", "channel", "content", "metadata"} <= keys else 0.0
