"""mini-swe-agent ``.traj.json``, versions 1 and 1.1, and its bare message lists."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from sag_research.ingest._format import Reading
from sag_research.ingest._json import Other, decode, first_character, outline
from sag_research.ingest._source import Source
from sag_research.ingest.formats import _shared as shared
from sag_research.model import Call, Step, Trajectory, Usage

__all__ = ["MiniSweAgent"]


class _Reply(msgspec.Struct, gc=False):
    reasoning: Any = None
    reasoning_content: Any = None


class _Choice(msgspec.Struct, gc=False):
    message: _Reply | Other = None


class _Response(msgspec.Struct, gc=False):
    """The API's reply, of which only what is not in the message itself is read."""

    model: Any = None
    created: Any = None
    usage: Any = None
    choices: list[_Choice | Other] | str | int | float | bool | None = None


class _Extra(msgspec.Struct, gc=False):
    response: _Response | Other = None
    actions: Any = None
    cost: Any = None
    timestamp: Any = None
    returncode: Any = None
    exception_info: Any = None
    interrupt_type: Any = None
    exit_status: Any = None
    submission: Any = None


class _Message(msgspec.Struct, gc=False):
    role: Any = None
    content: Any = None
    tool_calls: Any = None
    tool_call_id: Any = None
    extra: _Extra | Other = None


class _Info(msgspec.Struct):
    exit_status: Any = None
    submission: Any = None
    model_stats: Any = None
    mini_version: Any = None
    config: Any = None


class _File(msgspec.Struct):
    messages: list[_Message | Other] | None = None
    info: _Info | Other = None
    instance_id: Any = None
    trajectory_format: Any = None


_OBJECT: Final = msgspec.json.Decoder(_File)
_LIST: Final = msgspec.json.Decoder(list[_Message | Other])

_MARK: Final = re.compile(rb'"trajectory_format"\s*:\s*"mini-swe-agent')
_LIST_MARK: Final = re.compile(rb"```(?:mswea_)?bash|<returncode>")

_OWN_FENCE: Final = re.compile(r"```mswea_bash_command[^\S\n]*\n(.*?)\n```", re.DOTALL)
_FENCE: Final = re.compile(r"```bash[^\S\n]*\n(.*?)\n```", re.DOTALL)
_RETURN_CODE: Final = re.compile(r"\s*<returncode>(-?\d{1,10})</returncode>")
_TIMED_OUT: Final = re.compile(r"\s*The last command <command>.*timed out", re.DOTALL)
_CORRECTION: Final = re.compile(
    r"EXACTLY ONE (?:action|tool call)|No tool calls? (?:was|were) found"
)
_SUBMIT: Final = re.compile(r"COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT|MINI_SWE_AGENT_FINAL_OUTPUT")


class MiniSweAgent:
    """mini-swe-agent ``.traj.json``: versions 1 and 1.1, and bare lists of messages.

    Traps that are honoured

    * A reply that does not hold exactly one fenced command was not run: it is a step with the
      flag ``rejected``, and the correction that follows is no observation.
    * Some versions do not keep the rejected replies and hold their corrections alone: those
      are counted in a note, since there is no reply to make a step of.
    * Messages of role ``user`` may follow each other, so turns are not taken by parity.
    * The end is a last message of role ``user`` that repeats the submission, or one of role
      ``exit``; both are the submission and no observation.
    * ``content`` is null for models that call tools; results are joined by id.
    * ``raw_output`` is not what the model saw and is not read.
    * Cost stands in the reply's ``usage`` or beside it; a cost of zero means unknown.
    * Every run ends in ``Submitted``, wrong ones too: that is the exit status, no outcome.
    """

    name = "mini-swe-agent"

    def sniff(self, head: bytes, path: Path) -> float:
        """Claim its objects, and lists of messages that hold its fenced commands."""
        seen = outline(head)
        if seen.root == "list":
            talk = {"role", "content"} <= set(seen.keys) and not {"agent", "id"} & set(seen.keys)
            return 0.5 if talk and _LIST_MARK.search(head) else 0.0
        if seen.root != "object":
            return 0.0
        if "mini_version" in seen.below("info") or _MARK.search(head):
            return 1.0
        talk = "role" in seen.below("messages")
        return 0.6 if talk and {"exit_status", "submission"} <= seen.below("info") else 0.0

    def read(self, source: Source) -> Reading:
        """Read the one run of the file."""
        data = source.bytes()
        if first_character(source.head) == b"[":
            file, version = _File(messages=decode(data, _LIST)), "messages"
        else:
            file = decode(data, _OBJECT)
            version = _version(file)
        notes: list[str] = []
        return Reading(version, _trajectories(file, source, notes), notes)


def _version(file: _File) -> str:
    layout = shared.word(file.trajectory_format) or ""
    return layout.removeprefix("mini-swe-agent-") or "1"


def _trajectories(file: _File, source: Source, notes: list[str]) -> Iterator[Trajectory]:
    given = file.messages or []
    messages = [message for message in given if isinstance(message, _Message)]
    if left := len(given) - len(messages):
        notes.append(f"{left} messages are no objects and were left out")
    info = file.info if isinstance(file.info, _Info) else _Info()
    yield _Reader(file, info, messages, source, notes).trajectory()


@dataclass
class _Reader:
    """Turns a list of messages into a trajectory."""

    file: _File
    info: _Info
    messages: list[_Message]
    source: Source
    notes: list[str]

    def trajectory(self) -> Trajectory:
        body, end = self._split_end()
        steps = tuple(self._steps(body))
        task_id = shared.word(self.file.instance_id) or shared.bare_id(self.source.path)
        status, submission = self._status(end), self._submission(end)
        submitted = bool(steps) and bool(_SUBMIT.search(steps[-1].action)) and end is not None
        users = (shared.text_of(one.content) for one in body if one.role == "user")
        stats = self.info.model_stats if isinstance(self.info.model_stats, dict) else {}
        return Trajectory(
            task_id=task_id,
            goal=shared.problem_text(next(users, "")),
            steps=steps,
            repo=shared.repo_of(task_id),
            agent="mini-swe-agent",
            model=self._model(),
            end=_end(status) or ("run.completed" if submitted else None),
            exit_status=status,
            submission=submission,
            usage=shared.usage_of(None, None, stats.get("instance_cost")),
            config=self.info.config if isinstance(self.info.config, dict) else {},
        )

    def _split_end(self) -> tuple[list[_Message], _Message | None]:
        """Part the messages of the run from the one that only says how it ended."""
        if not self.messages:
            return [], None
        body, last = self.messages[:-1], self.messages[-1]
        if last.role == "exit":
            return body, last
        text = shared.text_of(last.content)
        if last.role != "user" or _is_observation(text) or not _replies(body):
            return self.messages, None
        told = self.info.exit_status is not None or self.info.submission is not None
        if told and text == shared.text_of(self.info.submission):
            return body, last
        asked = _SUBMIT.search(shared.text_of(_replies(body)[-1].content))
        return (body, last) if asked and body[-1].role == "assistant" else (self.messages, None)

    def _status(self, end: _Message | None) -> str | None:
        return shared.word(self.info.exit_status) or (
            shared.word(_extra(end).exit_status) if end is not None else None
        )

    def _submission(self, end: _Message | None) -> str | None:
        found = self.info.submission
        if not isinstance(found, str) and end is not None:
            extra = _extra(end).submission
            found = extra if isinstance(extra, str) else shared.text_of(end.content)
        return found if isinstance(found, str) else None

    def _model(self) -> str | None:
        config = self.info.config if isinstance(self.info.config, dict) else {}
        model = config.get("model")
        named = shared.word(model.get("model_name")) if isinstance(model, dict) else None
        replies = (shared.word(_response(one).model) for one in _replies(self.messages))
        return named or next(filter(None, replies), None)

    def _steps(self, body: list[_Message]) -> Iterator[Step]:
        lost = 0
        for turn, replies in shared.turns(body):
            step, corrections = _step(turn, replies)
            lost += corrections - ("rejected" in step.flags)
            yield step
        if lost > 0:
            self.notes.append(f"{lost} rejected replies are not in the file, their corrections are")


def _replies(messages: list[_Message]) -> list[_Message]:
    return [message for message in messages if message.role == "assistant"]


def _extra(message: _Message) -> _Extra:
    return message.extra if isinstance(message.extra, _Extra) else _Extra()


def _response(message: _Message) -> _Response:
    found = _extra(message).response
    return found if isinstance(found, _Response) else _Response()


def _end(status: str | None) -> str | None:
    if status is None:
        return None
    return "run.completed" if status.lower() == "submitted" else "run.failed"


def _is_observation(text: str) -> bool:
    return bool(_RETURN_CODE.match(text) or _TIMED_OUT.match(text))


def _is_correction(message: _Message) -> bool:
    if _extra(message).interrupt_type is not None:
        return True
    text = shared.text_of(message.content)
    return not _is_observation(text) and bool(_CORRECTION.search(text[:400]))


def _step(turn: _Message, replies: Sequence[_Message]) -> tuple[Step, int]:
    """Make a step of a reply and what followed; also count the corrections among that."""
    heard = [one for one in replies if one.role in ("user", "tool")]
    results = [_result(one) for one in heard if not _is_correction(one)]
    corrections = len(heard) - len(results)
    thought, calls = _said(turn)
    rejected = not calls
    if rejected:
        thought = shared.text_of(turn.content).strip() or thought
    answered, left = shared.with_results(calls, results)
    extra = _extra(turn)
    step = Step(
        thought=thought,
        action=shared.joined([call.text for call in answered]),
        observation=shared.joined([*(call.observation for call in answered), *left]),
        calls=answered,
        flags=("rejected",) if rejected else (),
        usage=_usage(turn),
        started=shared.number(extra.timestamp) or shared.number(_response(turn).created),
    )
    return step, corrections


def _said(turn: _Message) -> tuple[str, tuple[Call, ...]]:
    """Part a reply into the thought and the commands that were run."""
    content = shared.text_of(turn.content)
    calls = shared.calls_from(turn.tool_calls) or _actions(_extra(turn).actions)
    if calls:
        found = _one_fence(content) if not turn.tool_calls else None
        thought = _around(content, found) if found else content.strip()
        return thought or _reasoning(turn), calls
    found = _one_fence(content)
    if found is None:
        return content.strip() or _reasoning(turn), ()
    call = Call(name="bash", text=found[1], status="unknown")
    return _around(content, found) or _reasoning(turn), (call,)


def _one_fence(content: str) -> re.Match[str] | None:
    found = list(_OWN_FENCE.finditer(content)) or list(_FENCE.finditer(content))
    return found[0] if len(found) == 1 else None


def _around(content: str, fence: re.Match[str]) -> str:
    parts = (content[: fence.start()].strip(), content[fence.end() :].strip())
    return "\n\n".join(filter(None, parts))


def _actions(actions: Any) -> tuple[Call, ...]:
    found = actions if isinstance(actions, list) else []
    return tuple(
        Call(
            id=shared.text_of(action.get("tool_call_id")),
            name="bash",
            text=shared.text_of(action.get("command")),
            status="unknown",
        )
        for action in found
        if isinstance(action, dict) and action.get("command")
    )


def _reasoning(turn: _Message) -> str:
    choices = _response(turn).choices
    for choice in choices if isinstance(choices, list) else ():
        reply = choice.message if isinstance(choice, _Choice) else None
        if isinstance(reply, _Reply):
            return shared.text_of(reply.reasoning or reply.reasoning_content).strip()
    return ""


def _result(message: _Message) -> shared.Result:
    text, extra = shared.text_of(message.content), _extra(message)
    found = _RETURN_CODE.match(text)
    code = int(found[1]) if found else shared.integer(extra.returncode)
    failed = bool(_TIMED_OUT.match(text)) or bool(extra.exception_info)
    status = "unknown" if code is None else ("error" if code else "ok")
    call_id = shared.word(message.tool_call_id)
    return shared.Result(call_id, text, code, "error" if failed else status)


def _usage(turn: _Message) -> Usage | None:
    found = _response(turn).usage
    usage = found if isinstance(found, dict) else {}
    return shared.usage_of(
        usage.get("prompt_tokens", usage.get("input_tokens")),
        usage.get("completion_tokens", usage.get("output_tokens")),
        usage.get("cost") or _extra(turn).cost,
    )
