"""OpenAI Codex: rollouts of its command line, in all their ages."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from sag_research.errors import FormatError
from sag_research.ingest._format import Reading
from sag_research.ingest._json import first_character, outline
from sag_research.ingest._source import Source
from sag_research.ingest.formats._cli_turns import shallow
from sag_research.ingest.formats._codex_lines import read_rollouts
from sag_research.ingest.formats._codex_runs import runs_of

__all__ = ["Codex"]

_LOOK: Final = 40
_TYPE: Final = re.compile(
    rb'"type"\s*:\s*"(?:session_meta|turn_context|response_item|event_msg|compacted)"'
)
_BARE: Final = re.compile(
    rb'"type"\s*:\s*"(?:message|reasoning|(?:function|local_shell|custom_tool)_call(?:_output)?)"'
)
_INPUT: Final = re.compile(rb'"type"\s*:\s*"(?:input|output|summary)_text"')
_HEAD: Final = frozenset({"id", "timestamp", "instructions"})


class Codex:
    """Codex CLI sessions: ``rollout-….jsonl``, of versions before September 2025 as bare items.

    No real file was at hand: the layout is that of https://github.com/openai/codex (protocol and
    rollout), and of what several public readers say of old files. What ``codex exec --json`` prints
    is another format, which is not read.

    Traps that are honoured

    * A fork begins with the lines of its parent, which have the time of the fork, and among them
      the parent's ``session_meta``: the first one is the session's own. The steps that are copied
      are ``inherited``. Their end is where a turn has an id (UUIDv7) that was made behind the
      fork; without such ids, where the parent's file beside ends to be the same, or else the lines
      that were written at once. Copies have no time of their own.
    * A sub-agent's rollout has its parent's head, too, often without any copy: its first turn is
      its own. The call that began it is looked for in the parent's file, also if that is ingested
      at another time or not at all (``config.called_by``).
    * The same text is an item (``response_item``) and an event (``event_msg``): events add only
      what no item says.
    * Amounts of ``token_count`` are told again and again, are null, or come in front of the items
      of their reply. Each reply has those of one request; what no reply took, as a summary did, is
      in ``config.tokens_beside``. Cached tokens are a part of the prompt's.
    * A reply is reasoning, text and calls up to a result, a prompt, or its tokens. Reasoning may
      be encrypted; what is readable of it is the thought.
    * The exit code stands inside the text of the output: in JSON, or in lines in front of it.
      Where it does not, the event of the call (``exec_command_end``) tells, if it was kept.
    * ``custom_tool_call`` has text as its input, ``local_shell_call`` a list of words, and
      ``web_search_call`` no result. Calls and results are joined 0..n to 0..n.
    * What the harness says as the user or developer is no goal: it is in ``config.preamble``, or
      in ``state.notices`` of the step before. A summary (``compacted``) begins a run that left the
      one before it (``compaction``); its history, which it repeats, is left out.
    * ``thread_rolled_back`` takes turns back: they are a run that left it (``fork``).
    * ``task_complete`` and ``turn_aborted`` end a run only if nothing came behind them. How a run
      ended is no outcome.
    * Several sessions in a file are a run each; damaged lines cost themselves.
    """

    name = "codex"

    def sniff(self, head: bytes, path: Path) -> float:
        """Claim lines with the envelope of a rollout, or bare items."""
        if first_character(head) != b"{":
            return 0.0
        keys = outline(head).keys
        if {"session", "items"} <= keys.keys() and "id" in keys["session"]:
            return 0.7 if "timestamp" in keys["session"] else 0.0
        return max(map(_claim, head.split(b"\n", _LOOK)[:_LOOK]), default=0.0)

    def read(self, source: Source) -> Reading:
        """Read the runs of a source."""
        notes: list[str] = []
        try:
            version, rollouts = read_rollouts(source, notes)
            runs = runs_of(rollouts, source.path, notes)
        except RecursionError:
            raise FormatError("JSON that is nested too deeply") from None
        if not any(one.lines for one in rollouts):
            raise FormatError("no line of a session in it", why="; ".join(notes[:3]))
        return Reading(version, shallow(iter(runs)), notes)


def _claim(line: bytes) -> float:
    if _TYPE.search(line):
        seen = outline(line)
        if {"type", "payload"} <= seen.keys.keys():
            return 0.9 if "timestamp" in seen.keys else 0.7
    elif _BARE.search(line) and b'"record_type"' not in line:
        keys = outline(line).keys.keys()
        is_call = {"type", "call_id"} <= keys
        return 0.6 if is_call or ("type" in keys and bool(_INPUT.search(line))) else 0.0
    elif b'"instructions"' in line:
        keys = outline(line).keys.keys()
        return 0.6 if keys >= _HEAD and "type" not in keys else 0.0
    return 0.0
