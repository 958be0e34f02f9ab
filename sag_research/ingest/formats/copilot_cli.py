"""GitHub Copilot CLI: the events of a session, and the dumps of its first versions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from sag_research.errors import FormatError
from sag_research.ingest._format import Reading
from sag_research.ingest._json import Other, decode, first_character, outline
from sag_research.ingest._source import Source
from sag_research.ingest.formats import _shared as shared
from sag_research.ingest.formats._chat import PLAIN, Message, goal_of, steps
from sag_research.ingest.formats._cli_turns import filled, objects, shallow, total_of
from sag_research.ingest.formats._copilot_lanes import MAIN, Lane, Session
from sag_research.ingest.formats._openhands_turns import mapping
from sag_research.model import Trajectory, Usage

__all__ = ["CopilotCli"]


class _Dump(msgspec.Struct, rename="camel"):
    session_id: Any = None
    start_time: Any = None
    chat_messages: list[Message | Other] = []


_DUMP: Final = msgspec.json.Decoder(_Dump)
_LOOK: Final = 40
_TYPE: Final = re.compile(
    rb'"type"\s*:\s*"(?:session\.[a-z]|user\.message|assistant\.[a-z]|tool\.execution_|abort")'
)
_COMMON_NAMES: Final = frozenset({"copilot", "events", "output", "session", "stdout"})
"""Names of files that say nothing of what was attempted."""


class CopilotCli:
    """Copilot CLI sessions: ``session-state/<id>/events.jsonl``, or ``--output-format json``.

    No real file was at hand: the layout is that of the events which
    https://github.com/github/copilot-sdk declares. Transcripts of Copilot Chat in VS Code have
    the same events and are read, too, and so are the dumps of the first versions
    (``history-session-state``: an object with ``chatMessages``).

    Traps that are honoured

    * ``parentId`` names the event before: events are a chain, and no tree.
    * A message holds its calls (``toolRequests``); the tools' own events are the same calls, joined
      by ``toolCallId``. A tool that no message asked for is a turn of its own.
    * Several messages with one ``apiCallId`` or ``messageId`` are chunks of one reply: one step. A
      number of tokens that they repeat counts once.
    * Reasoning stands in the message (``reasoningText``), or in an event before or behind it.
    * What is only streamed (``…_delta``, ``…_progress``) is said again as a whole, and left out.
    * An exit code is known only from a result that ends with ``<exited with exit code …>``. A
      command with another one than 0 erred, though its tool succeeded. A step whose calls were
      all denied has the flag ``rejected``.
    * Sub-agents (``agentId``, before ``parentToolCallId``) are runs of their own, begun by the call
      that ``subagent.started`` names.
    * What the user says is no step: the goal, or what the model heard after its last turn.
    * Tokens of a prompt include its cached parts. ``session.shutdown`` gives totals since the
      session began, so the last one counts; ``cost`` there is in requests, not in dollars.
    * A session that was resumed goes on in the same file: it ended only if nothing came behind
      ``session.shutdown``, ``abort`` or ``result``. ``session.task_complete`` is what the model
      says of itself, kept in ``config``; there is no outcome.
    """

    name = "copilot-cli"

    def sniff(self, head: bytes, path: Path) -> float:
        """Claim lines with the envelope of an event, and dumps with chat messages."""
        if first_character(head) != b"{":
            return 0.0
        keys = set(outline(head).keys)
        if {"sessionId", "startTime", "chatMessages"} <= keys:
            return 0.85
        return max(map(_claim, head.split(b"\n", _LOOK)[:_LOOK]), default=0.0)

    def read(self, source: Source) -> Reading:
        """Read the runs of a source."""
        notes: list[str] = []
        if {"sessionId", "chatMessages"} <= set(outline(source.head).keys):
            dump = decode(source.bytes(), _DUMP)
            return Reading("history", shallow(_dumped(dump, source.path, notes)), notes)
        return Reading("events", shallow(_runs(source, notes)), notes)


def _claim(line: bytes) -> float:
    if not _TYPE.search(line):
        return 0.0
    seen = outline(line)
    keys = set(seen.keys)
    if not {"type", "data"} <= keys:
        return 0.0
    return 0.9 if len({"id", "timestamp", "parentId"} & keys) >= 2 else 0.6


def _named(path: Path, session: Any) -> str:
    """Return the name of the file; if all such files have it, the session's id or the folder."""
    stem = shared.bare_id(path).removesuffix(".txt")
    if stem not in _COMMON_NAMES:
        return stem
    return shared.word(session) or path.absolute().parent.name or stem


def _runs(source: Source, notes: list[str]) -> Iterator[Trajectory]:
    session = Session()
    count = 0
    for _, event in objects(source, notes):
        count += isinstance(event.get("type"), str)
        session.take(event)
    if not count:
        raise FormatError("no event in it", why="; ".join(notes[:3]))
    notes += session.notes()
    lanes = {name: lane for name, lane in session.lanes.items() if lane.turns.all or name == MAIN}
    callers = {
        call.id: (name, number)
        for name, lane in lanes.items()
        for number, turn in enumerate(lane.turns.all)
        for call in turn.calls
        if call.id
    }
    done: set[str] = set()
    for start in lanes:
        for name in reversed(_up(start, lanes, callers, done)):
            done.add(name)
            parent = callers.get(name)
            known = parent if parent and parent[0] in done and parent[0] != name else None
            yield _run(session, name, known, len(lanes) > 1, source.path)


def _up(
    name: str, lanes: dict[str, Lane], callers: dict[str, tuple[str, int]], done: set[str]
) -> list[str]:
    """Return a lane and those above it that are not read yet; a circle ends where it closes."""
    path: dict[str, None] = {}
    while name in lanes and name not in done and name not in path:
        path[name] = None
        name = callers.get(name, (MAIN, 0))[0]
    return list(path)


def _run(
    session: Session, name: str, parent: tuple[str, int] | None, several: bool, path: Path
) -> Trajectory:
    lane, start = session.lanes[name], session.start
    context = mapping(start.get("context"))
    kind = "copilot-chat" if "vscodeVersion" in start else "copilot-cli"
    end, status = _end(session) if name == MAIN else _end_of(lane)
    models = list(lane.models)
    config: dict[str, Any] = {"models": models if len(models) > 1 else None}
    if name == MAIN:
        about = ("sessionId", "version", "producer", "copilotVersion", "vscodeVersion")
        config |= {key: start.get(key) for key in about} | {"context": context}
        config |= session.kept | {"model_metrics": session.totals}
    else:
        config |= {"agent_id": name} | lane.about
    return Trajectory(
        task_id=_named(path, start.get("sessionId")),
        record=(name or "main") if several else None,
        goal="\n\n".join(lane.goal) or _prompt(session, name, parent),
        steps=lane.steps(),
        repo=shared.word(context.get("repository")),
        agent=kind if name == MAIN else f"{kind}/subagent",
        model=models[0] if models else None,
        end=end,
        exit_status=status,
        usage=_totals(session.totals) if not several else None,
        parent=(parent[0] or "main") if parent else None,
        parent_step=parent[1] if parent else None,
        relation="subagent" if parent else "fork",
        config=filled(config),
    )


def _prompt(session: Session, name: str, parent: tuple[str, int] | None) -> str:
    """Return what the call asked of a sub-agent, of which no message of the user is kept."""
    if parent is None:
        return ""
    calls = session.lanes[parent[0]].turns.all[parent[1]].calls
    given = next((mapping(call.arguments) for call in calls if call.id == name), {})
    return shared.text_of(given.get("prompt")) or shared.text_of(given.get("description"))


def _end(session: Session) -> tuple[str | None, str | None]:
    if session.ended is None:
        return None, None
    kind, data = session.ended
    if kind == "abort":
        return "run.cancelled", "abort"
    if kind == "result":
        code = shared.integer(data.get("exitCode"))
        status = None if code is None else f"exit code {code}"
        return None if code is None else "run.failed" if code else "run.completed", status
    status = shared.word(data.get("shutdownType"))
    return "run.failed" if status == "error" else "run.completed", status


def _end_of(lane: Lane) -> tuple[str | None, str | None]:
    if "subagent.failed" in lane.about:
        return "run.failed", "subagent.failed"
    done = "subagent.completed" in lane.about
    return ("run.completed", "subagent.completed") if done else (None, None)


def _totals(metrics: dict[str, Any]) -> Usage | None:
    used = [mapping(mapping(one).get("usage")) for one in metrics.values()]
    prompt = total_of(*(one.get("inputTokens") for one in used))
    return shared.usage_of(prompt, total_of(*(one.get("outputTokens") for one in used)), None)


def _dumped(dump: _Dump, path: Path, notes: list[str]) -> Iterator[Trajectory]:
    messages = [one for one in dump.chat_messages if isinstance(one, Message)]
    if len(messages) < len(dump.chat_messages):
        notes.append(f"{len(dump.chat_messages) - len(messages)} messages are no objects")
    if not messages:
        raise FormatError("no message in it")
    yield Trajectory(
        task_id=_named(path, dump.session_id),
        goal=goal_of(messages),
        steps=steps(messages, PLAIN),
        agent="copilot-cli",
        end=None,
        config=filled({"session_id": dump.session_id, "start_time": dump.start_time}),
    )
