"""One module a format: how it is recognised, how it is read, and its traps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sag_research.errors import UsageError
from sag_research.ingest._damaged import sound_lines
from sag_research.ingest._format import Format
from sag_research.ingest._json import looks_like_json
from sag_research.ingest._source import Source
from sag_research.ingest.formats.activegraph import ActiveGraph
from sag_research.ingest.formats.aider import Aider, looks_like_aider
from sag_research.ingest.formats.atif import Atif
from sag_research.ingest.formats.claude_code import ClaudeCode
from sag_research.ingest.formats.codex import Codex
from sag_research.ingest.formats.copilot_cli import CopilotCli
from sag_research.ingest.formats.cursor import Cursor
from sag_research.ingest.formats.gemini_cli import GeminiCli
from sag_research.ingest.formats.harbor import Harbor
from sag_research.ingest.formats.inspect import Inspect
from sag_research.ingest.formats.intercode import InterCode
from sag_research.ingest.formats.langgraph import LangGraph
from sag_research.ingest.formats.mini_swe_agent import MiniSweAgent
from sag_research.ingest.formats.moatless import Moatless
from sag_research.ingest.formats.native import Native
from sag_research.ingest.formats.nebius_openhands import NebiusOpenHands
from sag_research.ingest.formats.nebius_swe_agent import NebiusSweAgent
from sag_research.ingest.formats.openai_chat import OpenAiChat
from sag_research.ingest.formats.openclaw import OpenClaw
from sag_research.ingest.formats.opencode import OpenCode
from sag_research.ingest.formats.openhands import OpenHands
from sag_research.ingest.formats.openhands_completions import OpenHandsCompletions
from sag_research.ingest.formats.openhands_output import OpenHandsOutput
from sag_research.ingest.formats.openhands_sdk import OpenHandsSdk
from sag_research.ingest.formats.openinference import OpenInference
from sag_research.ingest.formats.otel_genai import OtelGenAi
from sag_research.ingest.formats.reflexion import Reflexion
from sag_research.ingest.formats.swe_agent import SweAgent
from sag_research.ingest.formats.swe_gym import SweGym
from sag_research.ingest.formats.swe_smith import SweSmith
from sag_research.ingest.formats.tables import Tables
from sag_research.ingest.formats.tau2 import Tau2
from sag_research.ingest.formats.tau_bench import TauBench
from sag_research.ingest.formats.terminal_bench import TerminalBench

__all__ = ["FORMATS", "by_name", "claimed", "recognise", "sure_of"]

FORMATS: Final[tuple[Format, ...]] = (
    SweAgent(),
    MiniSweAgent(),
    TauBench(),
    Native(),
    Tables(),
    OpenHands(),
    OpenHandsOutput(),
    OpenHandsCompletions(),
    OpenHandsSdk(),
    NebiusSweAgent(),
    NebiusOpenHands(),
    SweSmith(),
    SweGym(),
    OpenAiChat(),
    Inspect(),
    Atif(),
    Tau2(),
    ClaudeCode(),
    InterCode(),
    Reflexion(),
    LangGraph(),
    ActiveGraph(),
    OpenInference(),
    OtelGenAi(),
    Codex(),
    GeminiCli(),
    CopilotCli(),
    Cursor(),
    OpenClaw(),
    OpenCode(),
    Aider(),
    Harbor(),
    TerminalBench(),
    Moatless(),
)
"""All formats; where two are equally sure of a file, the first one has it."""


_GLANCE: Final = 4 * 2**10
_SURE: Final = 0.6
_LIKELY: Final = 0.5
_CONTAINERS: Final = (b"PK\x03\x04", b"PAR1", b"SQLite format 3\x00")
"""How zip archives (Inspect's logs), Parquet files and SQLite databases begin."""
_WHOLE: Final = 64 * 2**20
"""Bytes that are looked through if the beginning of a source does not tell."""


def recognise(source: Source, formats: Sequence[Format] = FORMATS) -> Format | None:
    """Choose the format of a source by its content; None if no format claims it.

    A short look is enough for most files. Where it is not, more is read: a large first value
    may hide the keys that tell. Of lines that begin with damaged ones, the others tell.
    """
    return claimed(source, formats)[0]


def sure_of(source: Source, formats: Sequence[Format]) -> Format | None:
    """Choose a format that takes a source for its own rather than not; None if none does."""
    best, claim = claimed(source, formats)
    return best if claim >= _LIKELY else None


def claimed(source: Source, formats: Sequence[Format]) -> tuple[Format | None, float]:
    """Return the format that is surest of a source, and how sure it is."""
    best, claim, head = None, 0.0, source.head
    if not head.startswith(_CONTAINERS) and (lines := sound_lines(source)):
        best, claim = _best(lines, source, formats)
    if claim > 0:
        return best, claim
    readable = looks_like_json(head) or looks_like_aider(head)
    if source.members or readable or head.startswith(_CONTAINERS):
        best, claim = _best(head[:_GLANCE], source, formats)
        if claim < _SURE and len(head) > _GLANCE:
            best, claim = _best(head, source, formats)
        if claim < _SURE and len(head) < source.size:
            best, claim = _best(_more(source), source, formats)
    return (best, claim) if claim > 0 else (None, 0.0)


def _more(source: Source) -> bytes:
    """Return all of a source; of one that is too large for that, its first line."""
    if source.size <= _WHOLE:
        return source.bytes()
    return next(source.lines(), b"")[:_WHOLE]


def _best(data: bytes, source: Source, formats: Sequence[Format]) -> tuple[Format | None, float]:
    best, claim = None, 0.0
    for one in formats:
        if (score := one.sniff(data, source.path)) > claim:
            best, claim = one, score
    return best, claim


def by_name(name: str) -> Format:
    """Return a format by its name.

    Raises
    ------
    UsageError
        If there is no such format.
    """
    for one in FORMATS:
        if one.name == name:
            return one
    known = ", ".join(one.name for one in FORMATS)
    raise UsageError(f"no format is called {name!r}", fix=f"choose one of {known}")
