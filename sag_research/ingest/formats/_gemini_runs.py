"""Runs of a Gemini CLI session, and the call that began a sub-agent."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from sag_research.errors import FormatError
from sag_research.ingest._events import run_id_of
from sag_research.ingest._json import decode, outline
from sag_research.ingest._source import Source
from sag_research.ingest.formats import _shared as shared
from sag_research.ingest.formats._cli_turns import filled, objects
from sag_research.ingest.formats._gemini_session import Session, Way
from sag_research.ingest.formats._gemini_turns import Talk
from sag_research.ingest.formats._openhands_turns import mapping
from sag_research.model import Trajectory

__all__ = ["is_whole", "runs_of"]

_ANY: Final = msgspec.json.Decoder()
_NAMED: Final = re.compile(r"session-\d{4}-\d\d-\d\d.*|checkpoint|output|session|stdout")
"""Names of files that say nothing of what was attempted."""
_SHORT: Final = 8
"""Characters of a session's id in the name of its file."""
_MOST: Final = 10_000
"""Files of a folder that are looked at."""


def is_whole(source: Source) -> bool:
    """Tell whether a session is one object."""
    return "messages" in outline(source.head).keys


def _session(source: Source, notes: list[str]) -> Session:
    session = Session()
    if is_whole(source):
        try:
            session.take(mapping(decode(source.bytes(), _ANY)))
            return session
        except FormatError:
            session = Session()  # lines, the first of which has messages
    for _, record in objects(source, notes):
        session.take(record)
    return session


def runs_of(source: Source, notes: list[str], *, with_caller: bool = True) -> Iterator[Trajectory]:
    """Yield the runs of a session, each behind the one that it left.

    Parameters
    ----------
    source : Source
    notes : list of str
        What became no step is added.
    with_caller : bool
        Look for the call that began a sub-agent.
    """
    session = _session(source, notes)
    if not session.messages:
        raise FormatError("no message in it", why="; ".join(notes[:3]))
    notes += session.notes()
    ways, talks = session.ways(), list[Talk]()
    for way in ways:
        talks.append(talk := Talk())
        for node in way.nodes:
            talk.take(node, session.messages[node])
    unasked = sum(talk.unasked for talk in talks)
    notes += [f"{unasked} results name a call that is not in their run"] if unasked else []
    called = _called_by(session, source.path) if with_caller else None
    for run in _made(session, ways, talks, source.path):
        is_called = called is not None and run.parent is None
        yield replace(run, config=run.config | {"called_by": called}) if is_called else run


def _made(session: Session, ways: list[Way], talks: list[Talk], path: Path) -> Iterator[Trajectory]:
    """Yield the ways with a reply as runs; those behind another one left the run before that."""
    kept = [number for number, talk in enumerate(talks) if talk.starts] or [0]
    records = {number: str(place) for place, number in enumerate(kept)}
    left = [
        text for number, talk in enumerate(talks) if number not in records for text in talk.goal
    ]
    first, anchors = [0] * len(ways), list[tuple[int | None, int | None]]()
    for number, way in enumerate(ways):
        above, at = way.parent, way.at
        if above is not None and above not in records:
            above, at = anchors[above]
        anchors.append((above, at))
        if above is not None and at is not None:
            first[number] = first[above] + bisect_right(talks[above].starts, at)
        if number not in records:
            continue
        goal = talks[number].goal or ([] if above is None else talks[above].goal)
        one = _trajectory(session, talks[number], path)
        aside = {"unanswered": left} if number == kept[0] and left else {}
        yield replace(
            one,
            goal="\n\n".join(map(shared.problem_text, goal)),
            record=records[number] if len(kept) > 1 else None,
            parent=None if above is None else records[above],
            parent_step=first[number] - 1 if above is not None and first[number] else None,
            relation=way.relation,
            config=one.config | aside,
        )


def _trajectory(session: Session, talk: Talk, path: Path) -> Trajectory:
    about = session.about
    models = list(talk.models)
    is_called = about.get("kind") == "subagent"
    config = {name: about[name] for name in about if name != "kind"}
    config |= {
        "session_id": config.pop("sessionId", None),
        "models": models if len(models) > 1 else None,
        "preamble": talk.preamble,
        "compaction_summary": "\n\n".join(talk.summary),
    }
    return Trajectory(
        task_id=_named(path, shared.word(about.get("sessionId"))),
        steps=talk.steps(),
        agent="gemini-cli/subagent" if is_called else "gemini-cli",
        model=models[0] if models else None,
        end="run.failed" if talk.ended else None,
        exit_status=talk.ended,
        config=filled(config),
    )


def _named(path: Path, session: str | None) -> str:
    """Return the name of the file; if it is one of the program's, the session's id."""
    stem = shared.bare_id(path).removesuffix(".txt")
    return session if session and _NAMED.fullmatch(stem) else stem


# ---- who began a sub-agent


def _called_by(session: Session, path: Path) -> dict[str, Any] | None:
    """Return the run and the step that began a sub-agent.

    Its folder is called after the session that began it, whose file stands beside that folder.
    """
    name = shared.word(session.about.get("sessionId"))
    if session.about.get("kind") != "subagent" or name is None:
        return None
    folder = path.absolute().parent
    ends = tuple(f"-{folder.name[:_SHORT]}{suffix}" for suffix in (".json", ".jsonl"))
    try:
        files = sorted(folder.parent.iterdir())[:_MOST]
        found = [one for one in files if one.name.endswith(ends) and one.is_file()]
        sizes = [(one, one.stat()) for one in found]
    except OSError:
        return None
    for one, about in sizes:
        caller = _caller(one, about.st_size, about.st_mtime_ns)
        if caller is not None and caller[0] == folder.name:
            return caller[1][name if name in caller[1] else ""]
    return None


@lru_cache(maxsize=8)
def _caller(path: Path, size: int, changed: int) -> tuple[str, dict[str, dict[str, Any]]] | None:
    """Read a session, again when its size or time differs: its id, and the calls of sub-agents."""
    source = Source(path)
    try:
        runs = list(runs_of(source, [], with_caller=False))
        session = _session(source, [])
    except (FormatError, OSError, RecursionError):
        return None
    agents = {}
    for message in session.messages:
        recorded = message.get("toolCalls")
        for call in map(mapping, recorded if isinstance(recorded, list) else []):
            if agent := shared.word(call.get("agentId")):
                agents[shared.word(call.get("id"))] = agent
    found: dict[str, dict[str, Any]] = {
        "": {"run": run_id_of(runs[0], source.digest), "step": None}
    }
    for run in runs:
        first = 0 if run.parent_step is None else run.parent_step + 1
        for number, step in enumerate(run.steps, start=first):
            for call_id in (one.id for one in step.calls if one.id in agents):
                place = {"run": run_id_of(run, source.digest), "step": number}
                found.setdefault(agents[call_id], place)
    return shared.word(session.about.get("sessionId")) or "", found
