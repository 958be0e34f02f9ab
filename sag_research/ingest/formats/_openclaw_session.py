"""OpenClaw's session transcripts: a tree of entries, which pi writes in the same layout."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from sag_research.errors import FormatError
from sag_research.ingest._source import Source
from sag_research.ingest.formats import _shared as shared
from sag_research.ingest.formats._cli_turns import counted, filled, leading, objects
from sag_research.ingest.formats._openclaw_messages import Talk
from sag_research.ingest.formats._openhands_tree import chains
from sag_research.ingest.formats._openhands_turns import key
from sag_research.ingest.formats._tree import Branch
from sag_research.model import Trajectory

__all__ = ["session_runs"]

_ABOUT: Final = ("session", "model_change", "session_info")
_TOLD: Final = frozenset({"compaction", "branch_summary", "custom_message"})
"""Entries that the model is told."""
_MOST_COPIES: Final = 1_000_000
"""Entries without a reply that are read again for the branches behind them."""


@dataclass
class _Path:
    """A chain of entries as it is read."""

    talk: Talk = field(default_factory=Talk)
    turns: dict[int, int] = field(default_factory=dict)
    """By entry: how many turns of this chain have begun up to it."""
    parent: _Path | None = None
    first: int = 0
    """Turns that it shares with the run that it left."""
    record: str | None = None


@dataclass
class _About:
    """What the entries say of the session."""

    header: dict[str, Any] = field(default_factory=dict)
    name: str | None = None
    models: dict[str, None] = field(default_factory=dict)
    silent: Counter[str] = field(default_factory=Counter)
    is_openclaw: bool = False


def session_runs(source: Source, task_id: str, notes: list[str]) -> Iterator[Trajectory]:
    """Yield the run that leads to the last entry, and behind it those that other branches are.

    Raises
    ------
    FormatError
        If no entry is in it.
    """
    about = _About()
    entries = [one for _, one in objects(source, notes) if not _tell(about, one)]
    if not entries:
        raise FormatError("no entry in it", why="; ".join(notes[:3]))
    found, problems = chains(
        [key(one.get("id")) for one in entries], [key(one.get("parentId")) for one in entries]
    )
    notes += problems
    paths = _paths(entries, found, about)
    kept = [path for path in paths if path.talk.turns.all] or paths[:1]
    if bare := len(paths) - len(kept):
        notes.append(f"{bare} branches hold no turn of the model")
    notes += counted(about.silent, "are part of no step")
    for number, path in enumerate(kept):
        path.record = str(number) if len(kept) > 1 else None
        notes += path.talk.notes(f"run {number}")
        yield _trajectory(path, about, task_id)


def _tell(about: _About, entry: dict[str, Any]) -> bool:
    """Take what an entry says of the session; true if it is none of the tree."""
    kind = shared.word(entry.get("type"))
    hint = f"{shared.text_of(entry.get('customType'))} {shared.text_of(entry.get('cwd'))}"
    about.is_openclaw |= "openclaw" in hint
    if kind == "session":
        about.header = about.header or entry
    elif kind == "model_change" and (model := leading(entry, "modelId")):
        about.models[model] = None
    elif kind == "session_info":
        about.name = shared.word(entry.get("name")) or about.name
    return kind == "session"


def _paths(entries: list[dict[str, Any]], found: list[Branch], about: _About) -> list[_Path]:
    paths: list[_Path] = []
    copies = _MOST_COPIES
    for branch in found:
        path = _Path()
        parent, at, before = branch.parent, branch.at, list[int]()
        while parent is not None and not paths[parent].talk.turns.all and copies > 0:
            nodes = found[parent].nodes
            copied = nodes[: nodes.index(at) + 1] if at is not None else []
            copies -= len(copied)
            before = copied + before
            above = found[parent]
            parent, at = above.parent, above.at
        if parent is not None:
            path.parent = paths[parent]
            path.first = path.parent.first + path.parent.turns.get(-1 if at is None else at, 0)
        for node in before:
            _take(path.talk, entries[node], Counter())
        for node in branch.nodes:
            _take(path.talk, entries[node], about.silent)
            path.turns[node] = len(path.talk.turns.all)
        paths.append(path)
    return paths


def _take(talk: Talk, entry: dict[str, Any], silent: Counter[str]) -> None:
    kind = shared.word(entry.get("type")) or "(no type)"
    message = entry.get("message")
    if kind == "message" and isinstance(message, dict):
        if message.get("timestamp") is None:
            message = {**message, "timestamp": entry.get("timestamp")}
        talk.take(message)
    elif kind in _TOLD:
        talk.hear(shared.text_of(entry.get("summary")) or shared.text_of(entry.get("content")))
    else:
        silent[kind] += 1


def _trajectory(path: _Path, about: _About, task_id: str) -> Trajectory:
    talk, parent = path.talk, path.parent
    goal = "\n\n".join(talk.goal)
    if not goal and parent is not None:
        goal = "\n\n".join(parent.talk.goal)
    models = list(talk.models) or list(about.models)
    config = {
        "session_id": about.header.get("id"),
        "cwd": about.header.get("cwd"),
        "parent_session": about.header.get("parentSession"),
        "name": about.name,
        "models": models if len(models) > 1 else None,
        "results_before_the_first_turn": talk.stray,
    }
    return Trajectory(
        task_id=task_id,
        record=path.record,
        goal=goal,
        steps=talk.steps(),
        agent="openclaw" if about.is_openclaw else None,
        model=models[0] if models else None,
        end="run.failed" if talk.stopped == "error" else None,
        exit_status=talk.stopped,
        parent=parent.record if parent else None,
        parent_step=path.first - 1 if parent and path.first else None,
        config=filled(config),
    )
