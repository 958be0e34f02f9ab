"""Runs of a Codex session: what was rolled back or summarised, and who began whom."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from sag_research.errors import FormatError
from sag_research.ingest._events import run_id_of
from sag_research.ingest._source import Source
from sag_research.ingest.formats import _shared as shared
from sag_research.ingest.formats._cli_turns import filled
from sag_research.ingest.formats._codex_forks import file_of, first_own
from sag_research.ingest.formats._codex_lines import (
    Line,
    Rollout,
    forked_from,
    parent_of,
    read_rollouts,
)
from sag_research.ingest.formats._codex_turns import Conversation, Facts, facts_of, prompt_in
from sag_research.ingest.formats._openhands_turns import mapping
from sag_research.ingest.formats._tree import branches
from sag_research.model import Trajectory, Usage

__all__ = ["runs_of"]

_COMPACTION: Final = "compaction"
_REPLIES: Final = frozenset({
    "custom_tool_call", "function_call", "local_shell_call", "reasoning", "web_search_call",
})  # fmt: skip
_REMOTE: Final = re.compile(r".*[:/]([\w.-]+)/([\w.-]+?)(?:\.git)?/?")
_NAMED: Final = re.compile(r"rollout-\d{4}-\d\d-\d\d.*|codex|output|rollout|session|stdout")
"""Names of files that say nothing of what was attempted."""
_ABOUT: Final = ("cli_version", "originator", "model_provider", "cwd", "agent_role")
_SETTINGS: Final = ("effort", "approval_policy", "cwd")


@dataclass(eq=False)
class _Way:
    """Lines that follow each other: a run, or what may become one."""

    above: _Way | None = None
    at: int = -1
    """Number of the line of that way behind which it begins."""
    relation: str = "fork"
    nodes: list[int] = field(default_factory=list)
    talk: Conversation | None = None
    goal: list[str] = field(default_factory=list)
    """What was asked in front of its first turn; if nothing, that of the run that it left."""
    first: int = 0
    """Number of its first step, counted from the start of the whole run."""


def runs_of(
    rollouts: list[Rollout], path: Path, notes: list[str], *, with_callers: bool = True
) -> list[Trajectory]:
    """Make runs of the sessions of a source, each behind the one that it left.

    Parameters
    ----------
    rollouts : list of Rollout
    path : Path
        The file.
    notes : list of str
        What became no step is added.
    with_callers : bool
        Look for the calls that began sub-agents.
    """
    sessions = [_Session(rollout, path) for rollout in rollouts]
    found = [run for one in sessions for run in one.runs(notes, with_callers=with_callers)]
    several = len(found) > 1
    made, records = list[Trajectory](), dict[int, str]()
    for number, run in enumerate(found):
        records[id(run.way)] = str(number)
        parent = None if run.way.above is None else records.get(id(run.way.above))
        made.append(run.trajectory(path, str(number) if several else None, parent))
    return made


class _Run(NamedTuple):
    session: _Session
    way: _Way
    talk: Conversation

    def trajectory(self, path: Path, record: str | None, parent: str | None) -> Trajectory:
        meta, talk, way = self.session.rollout.meta, self.talk, self.way
        models = list(filter(None, (shared.word(one.get("model")) for one in talk.contexts)))
        models = list(dict.fromkeys(models)) or self.session.models
        kind, status = talk.ended or (None, None)
        git = mapping(meta.get("git"))
        return Trajectory(
            task_id=_named(path, self.session.rollout.name),
            record=record,
            goal="\n\n".join(map(shared.problem_text, way.goal)),
            steps=talk.steps(),
            repo=_repo(git.get("repository_url")),
            agent="codex/subagent" if self.session.is_called else "codex",
            model=models[-1] if models else None,
            end=kind,
            exit_status=status,
            usage=self.session.usage,
            parent=parent,
            parent_step=way.first - 1 if parent is not None and way.first else None,
            relation=way.relation,
            config=self.config(models),
        )

    def config(self, models: list[str]) -> dict[str, Any]:
        """Return what else is known of a run; of the session's first run, of the session."""
        meta, talk = self.session.rollout.meta, self.talk
        config: dict[str, Any] = {"session_id": self.session.rollout.name}
        config |= {name: meta.get(name) for name in _ABOUT}
        for context in talk.contexts:
            config |= filled({name: context.get(name) for name in _SETTINGS})
            config |= filled({"sandbox": _type(context.get("sandbox_policy"))})
        git = mapping(meta.get("git"))
        beside = [[one.tokens_in, one.tokens_out] for one in talk.beside]
        config |= {
            "source": _type(meta.get("source")),
            "commit": git.get("commit_hash"),
            "branch": git.get("branch"),
            "forked_from": forked_from(meta),
            "parent_session": parent_of(meta),
            "models": models if len(models) > 1 else None,
            "preamble": talk.preamble,
            "compaction_summary": "\n\n".join(filter(None, talk.summary)),
            "tokens_beside": beside,
        }
        return filled(config | (self.session.about if self.way is self.session.kept[0] else {}))


def _type(value: Any) -> Any:
    """Return a word, or of an object its type or first key."""
    if isinstance(value, dict):
        return shared.word(value.get("type")) or next(iter(value), None)
    return value


def _repo(url: Any) -> str | None:
    found = _REMOTE.fullmatch(url.strip()) if isinstance(url, str) else None
    return f"{found[1]}/{found[2]}" if found else None


def _named(path: Path, session: str | None) -> str:
    """Return the name of the file; if it is one of the program's, the session's id."""
    stem = shared.bare_id(path).removesuffix(".txt")
    return session if session and _NAMED.fullmatch(stem) else stem


class _Session:
    """One session of a source."""

    def __init__(self, rollout: Rollout, path: Path) -> None:
        self.rollout = rollout
        self.facts: Facts = facts_of(rollout, first_own(rollout, path))
        contexts = (line.body for line in rollout.lines if line.kind == "context")
        found = filter(None, (shared.word(one.get("model")) for one in contexts))
        self.models = list(dict.fromkeys(found))[-1:]
        self.usage: Usage | None = None
        self.about: dict[str, Any] = {}
        self.kept: list[_Way] = []
        self._path = path

    @property
    def is_called(self) -> bool:
        """It is a sub-agent's."""
        meta = self.rollout.meta
        return parent_of(meta) is not None or "subagent" in mapping(meta.get("source"))

    def runs(self, notes: list[str], *, with_callers: bool) -> Iterator[_Run]:
        """Yield its runs, each behind the one that it left."""
        ways = self._ways()
        self._read(ways)
        if not self.kept:
            return
        self.usage = self.facts.usage if len(self.kept) == 1 else None
        caller = parent_of(self.rollout.meta) if with_callers else None
        if caller is not None and (called := _caller(caller, self.rollout.name, self._path)):
            self.about["called_by"] = called
        notes += self._notes(ways)
        for way in self.kept:
            if way.talk is not None:
                yield _Run(self, way, way.talk)

    def _ways(self) -> list[_Way]:
        """Part the lines: behind a summary, and where turns were rolled back."""
        lines, up = self.rollout.lines, list[int | None]()
        prompts, last = list[int](), None
        replies = []
        for number, line in enumerate(lines):
            up.append(last)
            last = number
            replies.append(_is_reply(line))
            if prompt_in(line, self.facts.said):
                prompts.append(number)
            elif line.kind == "event" and line.type == "thread_rolled_back":
                count = shared.integer(line.body.get("num_turns")) or 0
                dropped = prompts[-count:] if count > 0 else []
                if dropped:
                    del prompts[-len(dropped) :]
                    last = up[dropped[0]]
        rank = [number + len(lines) * reply for number, reply in enumerate(replies)]
        return self._cut(up, rank)

    def _cut(self, up: list[int | None], rank: list[int]) -> list[_Way]:
        place: dict[int, _Way] = {}
        found = []
        for branch in branches(up, rank)[0]:
            above = None if branch.at is None else place[branch.at]
            way = _Way(above, -1 if branch.at is None else branch.at)
            found.append(way)
            for node in branch.nodes:
                if self.rollout.lines[node].kind == "compacted" and way.nodes:
                    way = _Way(way, way.nodes[-1], _COMPACTION)
                    found.append(way)
                way.nodes.append(node)
                place[node] = way
        return found

    def _read(self, ways: list[_Way]) -> None:
        """Read the ways; one without a reply is no run, and those behind it left another one."""
        for way in ways:
            way.talk = talk = Conversation(self.facts)
            for node in way.nodes:
                talk.take(node, self.rollout.lines[node])
            talk.close()
            while way.above is not None and not self._has_steps(way.above):
                way.at, way.above = way.above.at, way.above.above
            if way.above is not None and way.above.talk is not None:
                way.first = way.above.first + bisect_right(way.above.talk.starts, way.at)
            way.goal = self._asked(talk) or (way.above.goal if way.above is not None else [])
            if talk.starts:
                self.kept.append(way)
        if not self.kept and ways:
            self.kept = ways[:1]
        kept = set(self.kept)
        left = [text for way in ways if way not in kept for text in _told(way)]
        if left:
            self.about["unanswered"] = left

    def _asked(self, talk: Conversation) -> list[str]:
        """Return the prompts in front of the first turn; of a sub-agent, those of its own."""
        own, end = self.facts.own, len(self.rollout.lines)
        begun = talk.starts[0] if talk.starts else end
        if self.is_called and own:
            first = next((one for one in talk.starts if one >= own), end)
            new = [text for number, text in talk.prompts if own <= number < first]
            if new:
                return new
        return [text for number, text in talk.prompts if number < begun]

    @staticmethod
    def _has_steps(way: _Way) -> bool:
        return way.talk is not None and bool(way.talk.starts)

    def _notes(self, ways: list[_Way]) -> list[str]:
        name = self.rollout.name or "session"
        talks = [way.talk for way in ways if way.talk is not None]
        unasked = sum(talk.unasked for talk in talks)
        lines = self.rollout.lines
        sealed = sum(
            line.kind == "item"
            and line.type == "reasoning"
            and bool(line.body.get("encrypted_content"))
            for line in lines
        )
        known = ("meta", "context", "item", "event", "compacted", "inter_agent_communication")
        others = Counter(line.kind for line in lines if line.kind not in known)
        kinds = ", ".join(f"{kind} {others[kind]}" for kind in sorted(others))
        counts = (
            (self.facts.own, "lines are copies of another session"),
            (sealed, "reasonings are encrypted"),
            (unasked, "results name a call that is not in their run"),
            (sum(others.values()), f"lines are part of no step: {kinds}"),
        )
        return [f"{name}: {count} {what}" for count, what in counts if count]


def _is_reply(line: Line) -> bool:
    if line.kind == "item" and line.type == "message":
        return line.body.get("role") == "assistant"
    return line.type in (_REPLIES if line.kind == "item" else ("agent_message",))


def _told(way: _Way) -> list[str]:
    return [] if way.talk is None else [text for _, text in way.talk.prompts]


# ---- who began a sub-agent


def _caller(parent: str, child: str | None, path: Path) -> dict[str, Any] | None:
    """Return the run, and the step if it is known, that began a sub-agent.

    Its session is looked for beside the file, whether or not it was ingested: its run has the id
    that is named here whenever it is.
    """
    try:
        place = None if child is None else file_of(parent, path)
        about = None if place is None else place.stat()
    except OSError:
        return None
    if child is None or place is None or about is None:
        return None
    found = _session(place, about.st_size, about.st_mtime_ns)
    if found is None:
        return None
    digest, rollout, runs = found
    call = _spawned(rollout, child)
    for run in runs if call is not None else ():
        for number, step in enumerate(run.steps):
            if any(one.id == call for one in step.calls):
                first = 0 if run.parent_step is None else run.parent_step + 1
                return {"run": run_id_of(run, digest), "step": first + number}
    return {"run": run_id_of(runs[0], digest), "step": None}


@lru_cache(maxsize=8)
def _session(path: Path, size: int, changed: int) -> tuple[str, Rollout, list[Trajectory]] | None:
    """Read a session, which is read again when its size or time differs."""
    source = Source(path)
    try:
        _, rollouts = read_rollouts(source, [])
        runs = runs_of(rollouts, path, [], with_callers=False)
        return (source.digest, rollouts[0], runs) if runs else None
    except (FormatError, OSError, RecursionError):
        return None


def _spawned(rollout: Rollout, child: str) -> str | None:
    """Return the id of the call that began a session."""
    for line in rollout.lines:
        names = (line.body.get(name) for name in ("agent_thread_id", "new_thread_id"))
        by_event = line.kind == "event" and child in names
        output = line.body.get("output") if line.type == "function_call_output" else None
        if by_event or (isinstance(output, str) and child in output):
            return shared.word(line.body.get("call_id")) or shared.word(line.body.get("event_id"))
    return None
