"""OpenClaw's telemetry: snapshots of conversations, and tools as they begin and end."""

from __future__ import annotations

import json
from collections import Counter, defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from sag_research.errors import FormatError
from sag_research.ingest._source import Source
from sag_research.ingest.formats import _shared as shared
from sag_research.ingest.formats._cli_turns import (
    call_of,
    counted,
    filled,
    objects,
    seconds_of,
)
from sag_research.ingest.formats._openclaw_messages import Talk, calls_in
from sag_research.ingest.formats._openhands_turns import key, mapping
from sag_research.ingest.formats._shared import Result
from sag_research.model import Call, Trajectory

__all__ = ["TYPES", "telemetry_runs"]

TYPES: Final = frozenset({
    "agent.start", "agent.end", "tool.start", "tool.end", "message.in", "message.out",
    "message.sending", "llm.usage",
})  # fmt: skip
_CHANNEL: Final = ("message.in", "message.out")
_CHANNEL_KEPT: Final = ("type", "channel", "content", "timestamp", "success", "error")
_SUBAGENT: Final = ":subagent:"
_SPAWN: Final = "sessions_spawn"
_STATUS: Final = {True: "ok", False: "error"}
_NAMED: Final = 1_000
"""Sessions without a turn that are named, and calls that are looked at for a sub-agent's task."""
_MOST: Final = 1_000
"""Messages of channels that are kept."""


@dataclass
class _Tool:
    """A tool that began."""

    call: Call
    spelling: tuple[str, str]
    at: float | None
    took: float | None = None
    end: Result | None = None
    is_told: bool = False
    """A reply in a snapshot holds the call."""


@dataclass
class _Session:
    """What a file says of a session."""

    key: str
    agent: str | None
    entries: list[dict[str, Any] | _Tool | str] = field(default_factory=list)
    """Messages, tools and prompts in the order in which the file first has them."""
    seen: Counter[tuple[str, ...]] = field(default_factory=Counter)
    open: dict[tuple[str, str], deque[_Tool]] = field(default_factory=dict)
    """Tools that no reply of a snapshot has made yet, by name and arguments."""
    told: dict[int, list[_Tool]] = field(default_factory=dict)
    """By place of a reply: the tools that it began."""
    prompts: dict[str, deque[int]] = field(default_factory=dict)
    """Places of the prompts that are no message of a snapshot yet."""
    is_bare: bool = False
    """The turn was last said to begin without the messages before it."""
    end: dict[str, Any] | None = None
    markdown: dict[str, str] = field(default_factory=dict)

    def start(self, prompt: str | None, messages: Any) -> int:
        """Begin a turn; return what is no message.

        Two hooks may say so, one without the messages before it and then one with them.
        """
        self.end = None
        is_twin = self.is_bare and messages is not None
        self.is_bare = messages is None
        if prompt is not None and is_twin and self.entries and self.entries[-1] == prompt:
            self.entries.pop()
            self.prompts[prompt].pop()
        strange = self.merge(messages)
        if prompt is not None:
            self.prompts.setdefault(prompt, deque()).append(len(self.entries))
            self.entries.append(prompt)
        return strange

    def merge(self, messages: Any) -> int:
        """Add the messages of a snapshot that none before it had; return what is no message."""
        counts: Counter[tuple[str, ...]] = Counter()
        found = messages if isinstance(messages, list) else []
        sound = [one for one in found if isinstance(one, dict)]
        is_first = True
        for message in sound:
            known = _identity(message)
            counts[known] += 1
            if counts[known] > self.seen[known]:
                self.seen[known] = counts[known]
                self._add(message, is_first)
                is_first = False
        return len(found) - len(sound)

    def _add(self, message: dict[str, Any], is_first: bool) -> None:
        """Add a message; the first new one may stand where its prompt does, before the tools."""
        for spelling in calls_in(message):
            if waiting := self.open.get(spelling):
                tool = waiting.popleft()
                tool.is_told = True
                self.told.setdefault(len(self.entries), []).append(tool)
        if message.get("role") == "user":
            text = shared.text_of(message.get("content")).strip()
            if places := self.prompts.get(text):
                place = places.popleft()
                self.entries[place] = message if is_first else ""
                if is_first:
                    return
        self.entries.append(message)

    def begin(self, tool: _Tool) -> None:
        """Add a tool that began."""
        self.entries.append(tool)
        self.open.setdefault(tool.spelling, deque()).append(tool)


def _identity(message: dict[str, Any]) -> tuple[str, ...]:
    """Return what a message is known by, though its text may be cut in a later snapshot."""
    role, at = shared.text_of(message.get("role")), key(message.get("timestamp"))
    named = key(message.get("toolCallId")) or key(message.get("responseId"))
    if at is None and named is None:
        return role, json.dumps(message.get("content"), sort_keys=True)
    return role, at or "", named or ""


def telemetry_runs(source: Source, task_id: str, notes: list[str]) -> Iterator[Trajectory]:
    """Yield the sessions of a telemetry file, each behind the one that began it.

    Raises
    ------
    FormatError
        If no session is in it.
    """
    file = _File(_with_agents(source))
    for number, line in objects(source, notes):
        file.take(number, line)
    if not file.sessions:
        raise FormatError("no session in it", why="; ".join(notes[:3]))
    notes += file.notes()
    yield from _runs(file, task_id, notes)


def _with_agents(source: Source) -> frozenset[str]:
    """Return the sessions that an agent is said to have begun or ended in."""
    found = (line for _, line in objects(source, []))
    return frozenset(
        session
        for line in found
        if line.get("type") in ("agent.start", "agent.end")
        and (session := shared.word(line.get("sessionKey")))
    )


class _File:
    """The sessions of a file while its lines come in."""

    def __init__(self, agents: frozenset[str]) -> None:
        self.sessions: dict[str, _Session] = {}
        self.channel: list[dict[str, Any]] = []
        self._agents = agents
        self._last: dict[str, str] = {}
        """By agent: the session in which it began last, sub-agents aside."""
        self._running: defaultdict[tuple[str, str], deque[_Tool]] = defaultdict(deque)
        self._aliases: Counter[tuple[str, str]] = Counter()
        self._silent: Counter[str] = Counter()
        self._odd = self._strays = 0

    def take(self, number: int, line: dict[str, Any]) -> None:
        """Add a line."""
        kind = shared.word(line.get("type")) or "(no type)"
        key_ = shared.word(line.get("sessionKey"))
        if kind.startswith("agent.") and kind in TYPES and key_:
            self._agent(kind, self._session(key_, line), line)
        elif kind == "tool.start" and key_:
            self._start(self._of_tool(key_, line), key_, line, number)
        elif kind == "tool.end" and key_:
            self._end(key_, line)
        else:
            self._silent[kind] += 1
            if kind in _CHANNEL and len(self.channel) < _MOST:
                self.channel.append({name: line[name] for name in _CHANNEL_KEPT if name in line})

    def _session(self, key_: str, line: dict[str, Any]) -> _Session:
        agent = shared.word(line.get("agentId"))
        return self.sessions.setdefault(key_, _Session(key_, agent))

    def _of_tool(self, key_: str, line: dict[str, Any]) -> _Session:
        """Return the session of a tool: one that no agent began in is another name of one."""
        agent = shared.word(line.get("agentId")) or ""
        if key_ in self._agents or agent not in self._last:
            return self._session(key_, line)
        self._aliases[key_, self._last[agent]] += 1
        return self.sessions[self._last[agent]]

    def _agent(self, kind: str, session: _Session, line: dict[str, Any]) -> None:
        if _SUBAGENT not in session.key:
            self._last[session.agent or ""] = session.key
        if kind == "agent.start":
            self._odd += session.start(shared.word(line.get("prompt")), line.get("messages"))
            return
        self._odd += session.merge(line.get("messages"))
        session.end = line
        files = line.get("markdown")
        for file in map(mapping, files if isinstance(files, list) else []):
            if name := shared.word(file.get("filename")):
                session.markdown[name] = shared.text_of(file.get("content"))

    def _start(self, session: _Session, key_: str, line: dict[str, Any], number: int) -> None:
        name = shared.text_of(line.get("toolName"))
        params = line.get("params")
        call = call_of(f"line {number}", name, params)
        spelling = (name, json.dumps(params, sort_keys=True))
        tool = _Tool(call, spelling, seconds_of(line.get("ts")))
        session.begin(tool)
        self._running[key_, name].append(tool)

    def _end(self, key_: str, line: dict[str, Any]) -> None:
        running = self._running[key_, shared.text_of(line.get("toolName"))]
        if not running:
            self._strays += 1
            return
        tool = running.popleft()
        took = shared.number(line.get("durationMs"))
        tool.took = took / 1000 if took is not None and took >= 0 else None
        done = line.get("success")
        status = _STATUS[done] if isinstance(done, bool) else "unknown"
        tool.end = Result(tool.call.id, shared.text_of(line.get("error")), None, status)

    def notes(self) -> list[str]:
        """Say what became no step, and what is taken for something else."""
        found = counted(self._silent, "are part of no step")
        if self._strays:
            found.append(f"{self._strays} tools ended that did not begin")
        if self._odd:
            found.append(f"{self._odd} messages are no objects")
        return found + [
            f"{count} tools of {other} are taken for those of {session}: no agent began there"
            for (other, session), count in self._aliases.items()
        ]


# ---- sessions as runs


def _runs(file: _File, task_id: str, notes: list[str]) -> Iterator[Trajectory]:
    talks = {name: _talk(session) for name, session in file.sessions.items()}
    kept = {name: talk for name, talk in talks.items() if talk.turns.all}
    if bare := [name for name in talks if name not in kept]:
        notes += [f"{name}: no turn of the model in it" for name in bare[:_NAMED]]
    kept = kept or dict(list(talks.items())[:1])
    parents = _parents(kept)
    channel = file.channel
    for name in _in_order(list(kept), parents):
        notes += kept[name].notes(name)
        parent = parents.get(name)
        yield _trajectory(file.sessions[name], kept[name], task_id, parent, channel)
        channel = []


def _talk(session: _Session) -> Talk:
    talk = Talk()
    for place, entry in enumerate(session.entries):
        if isinstance(entry, str):
            talk.hear(entry)
        elif isinstance(entry, _Tool):
            if not entry.is_told:
                _alone(talk, entry)
        else:
            talk.take(entry)
            took = [tool.took for tool in session.told.get(place, []) if tool.took is not None]
            if took:
                talk.timed[len(talk.turns.all) - 1] = sum(took)
    return talk


def _alone(talk: Talk, tool: _Tool) -> None:
    """Make a turn of a tool whose reply is in no snapshot."""
    turn = talk.turns.reply(None, tool.at)
    talk.turns.ask(turn, tool.call, None)
    if tool.end is not None:
        talk.turns.answer(tool.end, None, None)
    if tool.took is not None:
        talk.timed[len(talk.turns.all) - 1] = tool.took


def _parents(talks: dict[str, Talk]) -> dict[str, tuple[str, int]]:
    """Return of each sub-agent the session that began it, and the step of the call."""
    found = {
        child: (name, step)
        for name, talk in talks.items()
        for child, step in talk.children.items()
        if child in talks and child != name
    }
    spawns = [
        (task, name, step)
        for name, talk in talks.items()
        for step, turn in enumerate(talk.turns.all)
        for call in turn.calls
        if call.name == _SPAWN and (task := shared.word(mapping(call.arguments).get("task")))
    ]
    for child, talk in talks.items():
        if _SUBAGENT in child and child not in found:
            goal = "\n".join(talk.goal)
            places = [(n, s) for task, n, s in spawns[:_NAMED] if task in goal and n != child]
            if len(set(places)) == 1:
                found[child] = places[0]
    return found


def _in_order(names: list[str], parents: dict[str, tuple[str, int]]) -> list[str]:
    """Return the names, parents first; a circle of parents is cut where it is met."""
    done: dict[str, None] = {}
    for name in names:
        path: dict[str, None] = {}
        while name not in done and name not in path:
            path[name] = None
            if name not in parents:
                break
            name = parents[name][0]
        if name in path and name in parents:
            del parents[next(reversed(path))]
        done |= dict.fromkeys(reversed(path))
    return list(done)


def _trajectory(
    session: _Session,
    talk: Talk,
    task_id: str,
    parent: tuple[str, int] | None,
    channel: list[dict[str, Any]],
) -> Trajectory:
    ended = mapping(session.end)
    done = ended.get("success")
    models = list(talk.models)
    config = {
        "session_key": session.key,
        "agent_id": session.agent,
        "models": models if len(models) > 1 else None,
        "duration_ms": ended.get("durationMs"),
        "workspace_files": session.markdown,
        "channel_messages": channel,
    }
    return Trajectory(
        task_id=f"{task_id}:{session.key}",
        record=session.key,
        goal="\n\n".join(talk.goal),
        steps=talk.steps(),
        agent="openclaw/subagent" if _SUBAGENT in session.key else "openclaw",
        model=models[0] if models else None,
        end={True: "run.completed", False: "run.failed"}[done] if isinstance(done, bool) else None,
        exit_status=(shared.word(ended.get("error")) or talk.stopped) if ended else None,
        parent=parent[0] if parent else None,
        parent_step=parent[1] if parent else None,
        relation="subagent" if parent else "fork",
        config=filled(config),
    )
