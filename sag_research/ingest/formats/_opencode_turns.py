"""Messages of opencode and their parts, as steps."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from msgspec.structs import replace

from sag_research.ingest.formats import _shared as shared
from sag_research.ingest.formats._cli_turns import (
    call_of,
    counted,
    filled,
    leading,
    seconds_of,
    total_of,
)
from sag_research.ingest.formats._openhands_turns import exit_code, mapping
from sag_research.model import Call, Step, Trajectory, Usage

__all__ = ["Session", "trajectory"]

_NOT_RUN: Final = re.compile(
    r"\s*(?:The user rejected permission|The user has specified a rule which prevents)"
)
_STATUS: Final = {"completed": "ok", "error": "error"}
_ABORTED: Final = "MessageAbortedError"
_QUIET: Final = frozenset({"agent", "compaction", "snapshot"})
"""Parts that are known and say nothing of a step."""


@dataclass
class _Turn:
    """One reply of the model while its parts come in."""

    started: float | None = None
    thoughts: list[str] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    heard: list[str] = field(default_factory=list)
    refused: int = 0
    seconds: float | None = None
    usage: Usage | None = None
    state: dict[str, Any] = field(default_factory=dict)
    flags: list[str] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        """The model neither said nor called anything."""
        return not (any(self.thoughts) or self.calls)

    def step(self) -> Step:
        """Return the turn as a step."""
        rejected = bool(self.calls) and self.refused == len(self.calls)
        return Step(
            thought=shared.joined(self.thoughts),
            action=shared.joined([call.text for call in self.calls]),
            observation=shared.joined([*(call.observation for call in self.calls), *self.heard]),
            calls=tuple(self.calls),
            flags=(*(("rejected",) if rejected else ()), *self.flags),
            usage=self.usage,
            started=self.started,
            seconds=self.seconds,
            state=self.state or None,
        )


class Session:
    """A session while its messages come in."""

    def __init__(self) -> None:
        self.goal: list[str] = []
        self.models: dict[str, None] = {}
        self.agents: dict[str, None] = {}
        self.errors: list[dict[str, Any]] = []
        self.ended: str | None = None
        """Why the last reply ended, or the error that it ended with."""
        self.is_failed = False
        self.last_usage: Any = None
        self._turns: list[_Turn] = []
        self._open: _Turn | None = None
        self._silent: Counter[str] = Counter()
        self._odd = 0

    def message(self, info: Any, parts: Any, *, reverted: bool = False) -> None:
        """Add a message with its parts."""
        about = mapping(info)
        found = [one for one in parts if isinstance(one, dict)] if isinstance(parts, list) else []
        self._odd += (len(parts) if isinstance(parts, list) else 0) - len(found)
        if about.get("role") == "user":
            self._user(found)
        elif about.get("role") == "assistant":
            first = len(self._turns)
            self._reply(about, found)
            for turn in self._turns[first:]:
                turn.flags += ["reverted"] if reverted else []
        else:
            self._odd += 1

    def _user(self, parts: list[dict[str, Any]]) -> None:
        told = [one for one in parts if one.get("ignored") is not True]
        typed = [text for one in told if one.get("synthetic") is not True and (text := _said(one))]
        if not self._turns:
            self.goal += typed or [text for one in told if (text := _said(one))]
        else:
            self._turns[-1].heard += [text for one in told if (text := _said(one))]

    def _reply(self, about: dict[str, Any], parts: list[dict[str, Any]]) -> None:
        model = [shared.word(about.get(name)) for name in ("providerID", "modelID")]
        if model[1]:
            self.models["/".join(filter(None, model))] = None
        if agent := leading(about, "agent", "mode"):
            self.agents[agent] = None
        first = len(self._turns)
        self.begin(mapping(about.get("time")).get("created"))
        for part in parts:
            self.part(part)
        self.close()
        own = self._turns[first:]
        if len(own) == 1 and own[0].usage is None:
            own[0].usage = _usage(about)
        if about.get("summary") is True:
            for turn in own:
                turn.flags.append("compaction")
        self.ended = shared.word(about.get("finish"))
        self.is_failed = False
        if error := mapping(about.get("error")):
            self.fail(error)

    def fail(self, error: dict[str, Any]) -> None:
        """Take an error that ended a reply."""
        self.errors.append(error)
        self.ended, self.is_failed = leading(error, "name", "code") or "error", True

    def begin(self, at: Any) -> None:
        """Begin a turn, unless the one that is open is still empty."""
        if self._open is not None and self._open.is_empty:
            return
        self.close()
        self._open = _Turn(seconds_of(at))

    def close(self) -> None:
        """End the turn that is open; one in which nothing was said is none."""
        if self._open is not None and not self._open.is_empty:
            self._turns.append(self._open)
        self._open = None

    def part(self, part: dict[str, Any]) -> None:
        """Add a part of a reply."""
        turn = self._open = self._open or _Turn()
        kind = shared.word(part.get("type")) or "(no type)"
        if turn.started is None:
            turn.started = seconds_of(mapping(part.get("time")).get("start"))
        if kind in ("text", "reasoning"):
            turn.thoughts.append(shared.text_of(part.get("text")).strip())
        elif kind == "tool":
            _tool(turn, part)
        elif kind == "step-start":
            self.begin(None)
        elif kind == "step-finish":
            turn.usage = _usage(part)
            turn.state |= filled({"snapshot": part.get("snapshot")})
            if not turn.is_empty:
                self.close()
        elif kind == "patch":
            turn.state["patch"] = {name: part.get(name) for name in ("hash", "files")}
        elif kind == "retry":
            turn.state.setdefault("retries", []).append(part.get("error"))
        elif kind not in _QUIET:
            self._silent[kind] += 1

    def steps(self) -> tuple[Step, ...]:
        """Return the turns as steps."""
        return tuple(turn.step() for turn in self._turns)

    def notes(self) -> Iterator[str]:
        """Say what became no step."""
        if self._odd:
            yield f"{self._odd} messages or parts are of another shape"
        for note in counted(self._silent, "are part of no step"):
            yield note.replace("lines", "parts", 1)


def _tool(turn: _Turn, part: dict[str, Any]) -> None:
    state = mapping(part.get("state"))
    call = call_of(part.get("callID"), part.get("tool"), state.get("input"))
    status = _STATUS.get(shared.text_of(state.get("status")), "unknown")
    code = exit_code(mapping(state.get("metadata")).get("exit"))
    seen = shared.text_of(state.get("error" if status == "error" else "output"))
    if status == "error" and _NOT_RUN.match(seen):
        turn.refused += 1
    if status == "ok" and code:
        status = "error"
    turn.calls.append(replace(call, observation=seen, status=status, exit_code=code))
    took = mapping(state.get("time"))
    start, end = shared.number(took.get("start")), shared.number(took.get("end"))
    if start is not None and end is not None and end >= start:
        turn.seconds = (turn.seconds or 0.0) + (end - start) / 1000


def _usage(found: dict[str, Any]) -> Usage | None:
    """Return what a reply took.

    Cached parts of a prompt are among its tokens. Some versions count the reasoning within the
    output, and others beside it: the total tells.
    """
    tokens = mapping(found.get("tokens"))
    cache = mapping(tokens.get("cache"))
    prompt = total_of(tokens.get("input"), cache.get("read"), cache.get("write"))
    output, reasoning = total_of(tokens.get("output")), total_of(tokens.get("reasoning"))
    both = total_of(output, reasoning)
    is_beside = total_of(prompt, both) == total_of(tokens.get("total")) or output is None
    return shared.usage_of(prompt, both if is_beside else output, found.get("cost"))


def _said(part: dict[str, Any]) -> str:
    kind = part.get("type")
    if kind == "text":
        return shared.text_of(part.get("text")).strip()
    if kind == "subtask":
        return shared.text_of(part.get("prompt")).strip()
    if kind == "file":
        return f"[file {leading(part, 'filename', 'mime') or ''}]"
    return ""


def trajectory(
    session: Session, info: dict[str, Any], task_id: str, config: dict[str, Any]
) -> Trajectory:
    """Return a session as a run."""
    parent = shared.word(info.get("parentID"))
    models, agents = list(session.models), list(session.agents)
    about = {
        "session_id": info.get("id"),
        "title": info.get("title"),
        "version": info.get("version"),
        "directory": info.get("directory"),
        "parent_session": parent,
        "agents": agents,
        "models": models if len(models) > 1 else None,
        "revert": info.get("revert"),
        "errors": session.errors,
    }
    end = "run.completed" if session.ended == "stop" else None
    if session.is_failed:
        end = "run.cancelled" if session.ended == _ABORTED else "run.failed"
    return Trajectory(
        task_id=task_id,
        goal="\n\n".join(session.goal),
        steps=session.steps(),
        agent="opencode/subagent" if parent else "opencode",
        model=models[0] if models else None,
        end=end,
        exit_status=session.ended,
        config=filled(about | config),
    )
