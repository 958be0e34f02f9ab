"""Chat messages as OpenAI has them, one conversation a row."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import msgspec

from sag_research.errors import FormatError
from sag_research.ingest._format import Reading
from sag_research.ingest._json import Other
from sag_research.ingest._source import Source
from sag_research.ingest.formats import _chat as chat
from sag_research.ingest.formats import _shared as shared
from sag_research.ingest.formats._openhands_turns import mapping
from sag_research.ingest.formats._parquet import columns_of, is_parquet
from sag_research.ingest.formats._rows import Listed, Rows, columns_seen, judged, listed
from sag_research.model import Outcome, Trajectory, Usage

__all__ = ["OpenAiChat"]


class _Row(msgspec.Struct):
    messages: list[chat.Message | Other] | Listed = None
    id: Any = None
    task_id: Any = None
    instance_id: Any = None
    model: Any = None
    metadata: Any = None
    usage: Any = None
    resolved: Any = None
    success: Any = None


_ROWS: Final = Rows(_Row, "messages", chat.Message)
_FOREIGN: Final = {"response", "fncall_messages", "simulations"}
"""Columns of files that are something else: a call of a model, or a list of simulations."""


class OpenAiChat:
    """Conversations as OpenAI-style chat messages: ``{"messages": […]}`` as Parquet or JSON.

    A row may also have ``id, task_id, instance_id, model, metadata, usage, resolved, success``.
    The least specific of the formats: it takes what no other one claims more surely.

    Traps that are honoured

    * The task is ``task_id`` or ``instance_id``, in the row or its ``metadata``, else the row's
      ``id``, else its number behind the file's name: rows without any are tasks of their own.
    * Ids may repeat or be missing: a run is known by the number of its row, from 0.
    * ``content`` is text, a list of blocks, or null beside calls; ``arguments`` is text that
      holds JSON, or an object. ``function_call`` with an answer of the role ``function`` is the
      older form of a call.
    * A message of the user that follows a reply was heard by the model, but is no call's result.
    * A conversation in which the model says nothing is a prompt and no run: it is refused.
    * The outcome is ``resolved`` or ``success`` in the row or its ``metadata``, if that is true
      or false; a reward or a score is not taken for one, and ``metadata`` is kept as ``config``.
    * How a conversation ended is not known.
    """

    name = "openai-chat"

    def sniff(self, head: bytes, path: Path) -> float:
        """Claim rows with messages; also Parquet that nobody can read, to refuse it."""
        if is_parquet(head) and columns_of(head, path) is None:
            return 0.1
        for columns, complete in columns_seen(head, path):
            talk = {"role", "content"} <= columns.get("messages", set())
            if talk and not _FOREIGN & set(columns):
                return 0.55 if complete else 0.4
        return 0.0

    def read(self, source: Source) -> Reading:
        """Read the rows, one run each."""
        stem = shared.bare_id(source.path)

        def make(number: int, row: _Row, notes: list[str]) -> Trajectory:
            return _trajectory(stem, number, row, notes)

        return _ROWS.read(source, make)


def _trajectory(stem: str, number: int, row: _Row, notes: list[str]) -> Trajectory:
    messages = listed(row.messages, chat.MESSAGES, chat.Message, notes)
    if not any(one.role == "assistant" for one in messages):
        raise FormatError("no reply of a model in it")
    about = mapping(row.metadata)
    found = (row.task_id, row.instance_id, about.get("task_id"), about.get("instance_id"), row.id)
    task_id = next(filter(None, map(_key, found)), f"{stem}:{number}")
    known = _key(row.id)
    return Trajectory(
        task_id=task_id,
        goal=chat.goal_of(messages),
        steps=chat.steps(messages, chat.PLAIN),
        dataset=shared.word(about.get("dataset")),
        repo=shared.word(about.get("repo")) or shared.repo_of(task_id),
        agent=shared.word(about.get("agent")),
        model=shared.word(row.model) or shared.word(about.get("model")),
        record=str(number),
        end=None,
        usage=_usage(mapping(row.usage)),
        outcome=_outcome(row, about, notes),
        config=about | ({"id": known} if known else {}),
    )


def _key(value: Any) -> str | None:
    whole = shared.integer(value)
    return shared.word(value) if whole is None else str(whole)


def _usage(found: dict[str, Any]) -> Usage | None:
    return shared.usage_of(
        found.get("prompt_tokens", found.get("input_tokens")),
        found.get("completion_tokens", found.get("output_tokens")),
        found.get("cost"),
    )


def _outcome(row: _Row, about: dict[str, Any], notes: list[str]) -> Outcome | None:
    for name in ("resolved", "success"):
        said = getattr(row, name)
        label = about.get(name) if said is None else said
        if (outcome := judged(label, None, f"chat {name}", notes)) is not None:
            return outcome
    return None
