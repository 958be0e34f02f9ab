"""Replies of Gemini as they were recorded, to be played back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sag_research.errors import FormatError
from sag_research.ingest._source import Source
from sag_research.ingest.formats import _shared as shared
from sag_research.ingest.formats._cli_turns import call_of, filled, objects
from sag_research.ingest.formats._gemini_turns import parts_of, with_more
from sag_research.ingest.formats._openhands_turns import Turns, mapping
from sag_research.model import Trajectory, Usage

__all__ = ["replies"]


def replies(source: Source, notes: list[str]) -> Iterator[Trajectory]:
    """Yield the one run of a source, a step for each reply."""
    turns, others, reasons = Turns(), 0, list[str]()
    for _, record in objects(source, notes):
        method = shared.word(record.get("method")) or ""
        if not method.startswith("generateContent"):
            others += 1
            continue
        turn = turns.reply(None, None)
        texts: dict[bool, list[str]] = {True: [], False: []}
        for chunk in map(mapping, parts_of(record.get("response"))):
            turn.usage = _usage(mapping(chunk.get("usageMetadata"))) or turn.usage
            for candidate in map(mapping, parts_of(chunk.get("candidates"))[:1]):
                reasons += filter(None, [shared.word(candidate.get("finishReason"))])
                for part in map(mapping, parts_of(mapping(candidate.get("content")).get("parts"))):
                    texts[part.get("thought") is True].append(shared.text_of(part.get("text")))
                    if asked := mapping(part.get("functionCall")):
                        call = call_of(asked.get("id"), asked.get("name"), asked.get("args"))
                        turns.ask(turn, call, None)
        turn.thoughts += ["".join(texts[True]).strip(), "".join(texts[False]).strip()]
    if not turns.all:
        raise FormatError("no reply in it", why="; ".join(notes[:3]))
    if others:
        notes.append(f"{others} lines are no replies of the model")
    yield Trajectory(
        task_id=shared.bare_id(source.path),
        steps=tuple(turn.step() for turn in turns.all),
        agent="gemini-cli",
        end=None,
        config=filled({"finish_reasons": sorted(set(reasons))}),
    )


def _usage(used: dict[str, Any]) -> Usage | None:
    prompt = with_more(used, "promptTokenCount", "toolUsePromptTokenCount")
    reply = with_more(used, "candidatesTokenCount", "thoughtsTokenCount")
    return shared.usage_of(prompt, reply, None)
