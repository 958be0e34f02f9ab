"""SWE-agent ``.traj``, 0.x to 1.x."""

from __future__ import annotations

import json
import re
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

import msgspec
from msgspec.structs import replace

from sag_research.errors import FormatError
from sag_research.ingest._format import Reading
from sag_research.ingest._json import Other, decode, outline
from sag_research.ingest._source import Source
from sag_research.ingest.formats import _shared as shared
from sag_research.model import Call, Step, Trajectory, Usage

__all__ = ["SweAgent", "end_of", "exit_parts", "typed"]


T = TypeVar("T")


class _Step(msgspec.Struct, gc=False):
    """One entry of ``trajectory``; ``messages``, ``query`` and ``extra_info`` are not read."""

    action: Any = None
    observation: Any = None
    response: Any = None
    thought: Any = None
    state: Any = None
    execution_time: Any = None


class _Message(msgspec.Struct, gc=False):
    role: Any = None
    content: Any = None
    is_demo: Any = None
    thought: Any = None
    action: Any = None
    tool_calls: Any = None
    tool_call_ids: Any = None


class _Info(msgspec.Struct):
    exit_status: Any = None
    submission: Any = None
    model_stats: Any = None
    swe_agent_version: Any = None
    best_attempt_idx: Any = None
    rloop_model_stats: Any = None


_NoList: TypeAlias = dict[str, Any] | str | int | float | bool | None
"""What may stand where a list is expected: refused, but it costs its attempt alone."""


class _File(msgspec.Struct):
    environment: Any = None
    trajectory: list[_Step | Other] | _NoList = None
    history: list[_Message | Other] | _NoList = None
    info: _Info | Other = None
    replay_config: Any = None
    attempts: list[_File | Other] | None = None


_DECODER: Final = msgspec.json.Decoder(_File)

_STEP_KEYS: Final = {"action", "observation", "response", "thought"}
_HISTORY_KEYS: Final = {"agent", "message_type", "is_demo"}
_ATTEMPT_KEYS: Final = {"trajectory", "history", "info"}

_CONTAINER: Final = re.compile(r"(?:\w*_)?main")
"""Names that 0.x gives to its containers; they say nothing about the task."""

_FOLDER: Final = re.compile(
    r"(?P<model>.+?)__(?P<dataset>.+)__(?P<config>.+?)__t-[\d.]+__p-[\d.]+__c-[\d.]+.*"
)

_EXIT: Final = re.compile(r"(?P<base>[^()]*?)(?: \((?P<reason>.*)\))?", re.DOTALL)

_COMMANDS: Final = frozenset({
    "open", "goto", "scroll_up", "scroll_down", "create", "edit", "insert", "append",
    "search_dir", "search_file", "find_file", "submit", "view", "str_replace_editor",
    "disassemble", "decompile", "connect_start", "connect_sendline", "connect_exec",
    "connect_stop", "debug_start", "debug_stop", "debug_exec", "debug_step", "debug_continue",
    "debug_add_breakpoint", "exit_forfeit",
})  # fmt: skip
"""Commands that the agent's interface adds to the shell."""


class SweAgent:
    """SWE-agent ``.traj``: one JSON object per instance, 0.x to 1.x.

    Traps that are honoured

    * ``state`` is a string that holds JSON (0.x) or an object (1.x); ``replay_config`` is an
      object, a string that holds JSON, or absent; ``content`` is a string or blocks.
    * ``environment`` is a container's name in 0.x and the instance id in 1.x.
    * Tool calls stand in ``history`` only. Requeries and errors are in ``trajectory`` but not
      in ``history``, so the two are matched by what the model said, never by index.
    * A file may hold ``history`` alone; its steps are the model's turns. Demonstrations in it
      are nobody's steps.
    * With a retry agent the file holds ``attempts``, and the winner is copied to the root: the
      attempts are the runs, the copy is not read, and the winner's ``config`` says
      ``"chosen": true``. Only where the winner cannot be read in ``attempts``, the copy stands
      in for it. The root's ``model_stats`` are totals over all attempts: they are no run's
      usage, and are kept as ``retry_model_stats`` in the ``config`` of each, beside what the
      reviewer used (``rloop_model_stats``). While the agent is at work the file holds
      ``attempts`` alone, without ``info`` or any choice.
    * ``messages`` repeats the history at every step and may be most of the file: it is skipped.
    * ``exit_status`` says why the run stopped; the outcome is never in the file.
    * Counters of zero mean that nobody counted (human and replayed runs).
    """

    name = "swe-agent"

    def sniff(self, head: bytes, path: Path) -> float:
        """Claim objects with a ``trajectory`` of actions, a SWE-agent history, or attempts."""
        seen = outline(head)
        if seen.root != "object":
            return 0.0
        if seen.below("attempts") & _ATTEMPT_KEYS:
            return 0.95
        if seen.below("trajectory") & _STEP_KEYS:
            return 0.95
        if seen.below("history") & _HISTORY_KEYS and "content" in seen.below("history"):
            return 0.8
        bare = "trajectory" in seen.keys and not seen.below("trajectory")
        return 0.5 if bare and set(seen.keys) <= set(_File.__struct_fields__) else 0.0

    def read(self, source: Source) -> Reading:
        """Read the file; attempts of a retry agent are runs of their own."""
        root = decode(source.bytes(), _DECODER)
        notes: list[str] = []
        refused: list[tuple[str, str]] = []
        runs = _trajectories(root, source, notes, refused)
        return Reading(_version(root), runs, notes, refused)


def _trajectories(
    root: _File, source: Source, notes: list[str], refused: list[tuple[str, str]]
) -> Iterator[Trajectory]:
    attempts = root.attempts or []
    faults = [_fault(attempt) for attempt in attempts]
    refused += [(f"attempt {number}", fault) for number, fault in enumerate(faults) if fault]
    if not any(isinstance(attempt, _File) for attempt in attempts):
        if fault := _fault(root):
            raise FormatError("JSON of another shape", why=fault)
        yield _Reader(root, source, notes).trajectory()
        return
    info = _info(root)
    chosen = shared.integer(info.best_attempt_idx)
    totals = {"retry_model_stats": info.model_stats, "rloop_model_stats": info.rloop_model_stats}
    about = {name: stats for name, stats in totals.items() if isinstance(stats, dict)}
    for number, attempt in enumerate(attempts):
        if faults[number] and number == chosen and _stands_in(root):
            refused.remove((f"attempt {number}", faults[number]))
            notes.append(f"attempt {number}: {faults[number]}; its copy was read instead")
            attempt, info.model_stats = root, None
        elif not isinstance(attempt, _File) or faults[number]:
            continue
        attempt.environment = attempt.environment or root.environment
        attempt.replay_config = attempt.replay_config or root.replay_config
        run = _Reader(attempt, source, notes).trajectory()
        config = run.config | about | ({"chosen": True} if number == chosen else {})
        yield replace(run, record=str(number), attempt=number, config=config)


def _stands_in(root: _File) -> bool:
    """Tell whether the winner's copy at the root can be read in its place."""
    return not _fault(root) and isinstance(root.trajectory, list)


def _fault(file: _File | Other) -> str:
    """Say why a file, or an attempt in it, cannot be read; empty if it can."""
    if not isinstance(file, _File):
        return "no object"
    for name in ("trajectory", "history"):
        if not isinstance(getattr(file, name), list | None):
            return f"no list at $.{name}"
    return ""


def _list(value: list[T] | _NoList) -> list[T]:
    return value if isinstance(value, list) else []


def _info(file: _File) -> _Info:
    return file.info if isinstance(file.info, _Info) else _Info()


def _version(file: _File) -> str:
    for one in (file, *(file.attempts or ())):
        if isinstance(one, _File) and (version := shared.word(_info(one).swe_agent_version)):
            return version
    messages = [message for message in _list(file.history) if isinstance(message, _Message)]
    return "1.x" if any(message.tool_calls for message in messages) else "0.x"


def exit_parts(status: str) -> tuple[str, str]:
    """Split an exit status into its base and the reason in brackets.

    Examples
    --------
    >>> exit_parts("submitted (exit_cost)"), exit_parts("submitted")
    (('submitted', 'exit_cost'), ('submitted', ''))
    """
    found = _EXIT.fullmatch(status)
    return (found["base"], found["reason"] or "") if found else (status, "")


def end_of(status: str | None) -> str | None:
    """Choose the terminal event; a file without an exit status is of a run that was cut off."""
    if status is None:
        return None
    base, _ = exit_parts(status)
    if base == "exit_forfeit":
        return "run.abandoned"
    failed = base.startswith(("exit_", "early_exit")) or "error" in base
    return "run.failed" if failed else "run.completed"


@dataclass
class _Reader:
    """Turns one file, or one attempt in it, into a trajectory."""

    file: _File
    source: Source
    notes: list[str]

    def trajectory(self) -> Trajectory:
        config, info = self._config(), _info(self.file)
        task_id = self._task_id(config)
        status = shared.word(info.exit_status)
        folder = self._folder()
        return Trajectory(
            task_id=task_id,
            goal=self._goal(config),
            steps=tuple(self._steps()),
            dataset=folder.get("dataset"),
            repo=shared.repo_of(task_id),
            agent="swe-agent",
            model=_model(config) or folder.get("model"),
            end=end_of(status),
            exit_status=status,
            submission=info.submission if isinstance(info.submission, str) else None,
            usage=_totals(info),
            config=config,
        )

    def _messages(self) -> list[_Message]:
        found = _list(self.file.history)
        return [one for one in found if isinstance(one, _Message) and not one.is_demo]

    def _config(self) -> dict[str, Any]:
        config = self.file.replay_config
        if isinstance(config, str):
            try:
                config = json.loads(config)
            except (ValueError, RecursionError):
                self.notes.append("replay_config is no JSON and was left out")
        return config if isinstance(config, dict) else {}

    def _task_id(self, config: dict[str, Any]) -> str:
        problem = config.get("problem_statement")
        named = shared.word(problem.get("id")) if isinstance(problem, dict) else None
        environment = shared.word(self.file.environment)
        if environment and _CONTAINER.fullmatch(environment):
            environment = None
        return named or environment or shared.bare_id(self.source.path)

    def _goal(self, config: dict[str, Any]) -> str:
        problem = config.get("problem_statement")
        text = shared.word(problem.get("text")) if isinstance(problem, dict) else None
        if text:
            return text
        users = (one for one in self._messages() if one.role == "user")
        return shared.problem_text(shared.text_of(next(users, _Message()).content))

    def _folder(self) -> dict[str, str]:
        """Read what the name of an enclosing folder says; a repository is no data set."""
        for folder in list(self.source.path.absolute().parents)[:3]:
            if found := _FOLDER.fullmatch(folder.name):
                named = found.groupdict()
                return {key: name for key, name in named.items() if "__" not in name}
        return {}

    def _steps(self) -> Iterator[Step]:
        if self.file.trajectory is None:
            for turn, replies in shared.turns(self._messages()):
                yield _turn(turn, replies)
            return
        given = _list(self.file.trajectory)
        steps = [step for step in given if isinstance(step, _Step)]
        if left := len(given) - len(steps):
            self.notes.append(f"{left} entries of trajectory are no objects and were left out")
        said = _Said(self._messages())
        for step in steps:
            yield _step(step, said)


def _model(config: dict[str, Any]) -> str | None:
    """Find the model's name where the versions of ``replay_config`` keep it."""
    agent = config.get("agent")
    for holder in (agent, config):
        model = holder.get("model") if isinstance(holder, dict) else None
        if isinstance(model, dict):
            name = shared.word(model.get("name")) or shared.word(model.get("model_name"))
            if name:
                return name
    return None


def _totals(info: _Info) -> Usage | None:
    stats = info.model_stats if isinstance(info.model_stats, dict) else {}
    return shared.usage_of(
        stats.get("tokens_sent"), stats.get("tokens_received"), stats.get("instance_cost")
    )


class _Said:
    """The tool calls of ``history``, found by what the model said and did in that turn."""

    def __init__(self, messages: list[_Message]) -> None:
        self.turns: defaultdict[tuple[str, str], deque[_Message]] = defaultdict(deque)
        self.results: list[_Message] = []
        for message in messages:
            if message.role == "assistant" and message.tool_calls:
                said = shared.text_of(message.thought) or shared.text_of(message.content)
                self.turns[said, shared.text_of(message.action)].append(message)
            elif message.tool_call_ids:
                self.results.append(message)

    def calls(self, thought: str, action: str) -> tuple[Call, ...]:
        turns = self.turns.get((thought, action))
        return shared.calls_from(turns.popleft().tool_calls) if turns else ()

    def answers(self, calls: tuple[Call, ...]) -> list[shared.Result]:
        """What came back, where every call of the turn has a result of its own."""
        found = [
            shared.Result(call.id, shared.text_of(message.content))
            for call in calls
            for message in self.results
            if message.tool_call_ids == [call.id]
        ]
        return found if {result.call_id for result in found} == {call.id for call in calls} else []


def _step(step: _Step, said: _Said) -> Step:
    action, observation = shared.text_of(step.action), shared.text_of(step.observation)
    response = shared.text_of(step.response)
    thought = shared.text_of(step.thought) or ("" if action else response)
    calls = said.calls(shared.text_of(step.thought) or response, action)
    rejected = bool(response) and not action and not observation and not calls
    return Step(
        thought=thought,
        action=action,
        observation=observation,
        calls=_calls(calls, said, action, observation),
        flags=("rejected",) if rejected else (),
        seconds=shared.number(step.execution_time),
        state=_state(step.state),
    )


def _calls(calls: tuple[Call, ...], said: _Said, action: str, observation: str) -> tuple[Call, ...]:
    if not calls:
        return (typed(action, observation),) if action.strip() else ()
    if len(calls) == 1:
        return (replace(calls[0], text=action or calls[0].text, observation=observation),)
    answered, _ = shared.with_results(calls, said.answers(calls))
    if any(call.observation for call in answered):
        return answered
    return (*calls[:-1], replace(calls[-1], observation=observation))


def typed(action: str, observation: str) -> Call:
    """Make the call of an agent that types its actions: a command of its own, or the shell's."""
    first = action.split(maxsplit=1)[0]
    name = first if first in _COMMANDS else "bash"
    return Call(name=name, text=action, observation=observation, status="unknown")


def _state(state: Any) -> Any:
    if not isinstance(state, str):
        return state
    try:
        return json.loads(state)
    except (ValueError, RecursionError):
        return state or None


def _turn(turn: _Message, replies: Sequence[_Message]) -> Step:
    """Make a step of a reply in the history and the messages that answer it."""
    action = shared.text_of(turn.action)
    calls = shared.calls_from(turn.tool_calls)
    if not calls and action.strip():
        calls = (typed(action, ""),)
    elif len(calls) == 1 and action:
        calls = (replace(calls[0], text=action),)
    results = [shared.Result(_call_id(one), shared.text_of(one.content)) for one in replies]
    calls, left = shared.with_results(calls, results)
    return Step(
        thought=shared.text_of(turn.thought) or ("" if action else shared.text_of(turn.content)),
        action=action or shared.joined([call.text for call in calls]),
        observation=shared.joined([*(call.observation for call in calls), *left]),
        calls=calls,
    )


def _call_id(reply: _Message) -> str | None:
    found = reply.tool_call_ids
    return shared.text_of(found[0]) if isinstance(found, list) and found else None
