"""OpenHands completion logs: what one call of the model was sent, and its reply."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from sag_research.errors import FormatError
from sag_research.ingest._format import Reading
from sag_research.ingest._json import Other, decode, outline
from sag_research.ingest._source import Source
from sag_research.ingest.formats import _shared as shared
from sag_research.ingest.formats._openhands_turns import as_typed, exit_code, mapping
from sag_research.model import Call, Step, Trajectory, Usage

__all__ = ["OpenHandsCompletions"]


class _Message(msgspec.Struct, gc=False):
    role: Any = None
    content: Any = None
    tool_calls: Any = None
    tool_call_id: Any = None
    reasoning_content: Any = None


class _Choice(msgspec.Struct, gc=False):
    message: _Message | Other = None


class _Response(msgspec.Struct, gc=False):
    model: Any = None
    created: Any = None
    usage: Any = None
    choices: list[_Choice | Other] | str | int | float | bool | None = None


_Messages = list[_Message | Other] | dict[str, Any] | str | int | float | bool | None


class _File(msgspec.Struct):
    messages: _Messages = None
    fncall_messages: _Messages = None
    raw_messages: _Messages = None
    response: _Response | Other = None
    fncall_response: _Response | Other = None
    kwargs: Any = None
    cost: Any = None
    latency_sec: Any = None


_DECODER: Final = msgspec.json.Decoder(_File)
_MARKS: Final = {"fncall_messages", "fncall_response", "raw_messages", "kwargs", "latency_sec"}
_FILE: Final = re.compile(r"(?P<model>.+)-(?P<epoch>\d{9,11}(?:\.\d+)?)\.json(?:\.(?:gz|zst))?")
_FUNCTION: Final = re.compile(r"<function=([^<>\s]{1,200})>(.*?)(?:</function>|\Z)", re.DOTALL)
_PARAMETER: Final = re.compile(r"<parameter=([^<>\s]{1,200})>(.*?)(?:</parameter>|\Z)", re.DOTALL)
_RESULT: Final = re.compile(r"\s*EXECUTION RESULT of \[[^\]\n]{0,200}\]:\n?")
_CODE: Final = re.compile(
    r"\[(?:The command completed|Command finished) with exit code (-?\d{1,9})\.?\]"
)
_TAIL: Final = 2_000
"""Characters at the end of a result in which its exit code is looked for."""
_TASK_BEGINS: Final = re.compile(r"-{5,30} NEW TASK DESCRIPTION -{5,30}\n")
_TASK_ENDS: Final = re.compile(r"\n-{5,30} END OF NEW TASK DESCRIPTION")


class OpenHandsCompletions:
    """OpenHands completion logs: a JSON object for one call of the model.

    Traps that are honoured

    * The messages are the whole run so far, and the model's last turn is not among them: it is
      in ``response``.
    * ``messages`` and ``fncall_messages`` (or ``raw_messages``) tell the same turns, in prompt
      style and as real tool calls: one of them is read, the one with real calls if there is
      one. ``config`` says which, as ``read_from``.
    * In prompt style a call is ``<function=…>`` in the reply's text, with or without its end,
      and its result is a message of the user.
    * Tokens and cost are of the last call alone, so they stand at the last step; of the whole
      run they are unknown. A cost of zero is unknown.
    * The folder is the instance; the file's name is the model and the time of the call.
    * A folder may hold every call of a run. Each holds all turns before it, so a file whose
      successor goes on from it is refused as a part of that.
    """

    name = "openhands-completions"

    def sniff(self, head: bytes, path: Path) -> float:
        """Claim objects with messages, a response, and what the log adds to them."""
        seen = outline(head)
        keys = set(seen.keys)
        if seen.root != "object" or not {"messages", "response"} <= keys:
            return 0.0
        return 0.9 if keys & _MARKS and {"cost", "timestamp"} & keys else 0.0

    def read(self, source: Source) -> Reading:
        """Read the run up to the logged call."""
        file = decode(source.bytes(), _DECODER)
        told, messages = _chosen(file)
        notes: list[str] = []
        turn = _last_turn(file)
        if turn is None:
            notes.append("the response holds no reply: the last turn is missing")
        else:
            messages = [*messages, turn]
        if later := _successor(source, told, messages):
            raise FormatError(f"an earlier call of the run that {later!r} holds")
        return Reading(f"1 ({told})", _trajectories(file, told, messages, source), notes)


def _list(value: _Messages) -> list[_Message]:
    return [one for one in value if isinstance(one, _Message)] if isinstance(value, list) else []


def _chosen(file: _File) -> tuple[str, list[_Message]]:
    """Choose one of the spellings in which the log tells the turns."""
    for name in ("fncall_messages", "raw_messages"):
        if found := _list(getattr(file, name)):
            return name, found
    if not isinstance(file.messages, list):
        raise FormatError("JSON of another shape", why="no list at $.messages")
    return "messages", _list(file.messages)


def _reply(response: _Response | Other) -> _Message | None:
    choices = response.choices if isinstance(response, _Response) else None
    first = choices[0] if isinstance(choices, list) and choices else None
    message = first.message if isinstance(first, _Choice) else None
    return message if isinstance(message, _Message) else None


def _last_turn(file: _File) -> _Message | None:
    replies = [_reply(one) for one in (file.fncall_response, file.response)]
    found = [reply for reply in replies if reply is not None]
    found = [one for one in found if one.tool_calls or shared.text_of(one.content)] or found
    if not found:
        return None
    found[0].role = "assistant"
    return found[0]


def _trajectories(
    file: _File, told: str, messages: list[_Message], source: Source
) -> Iterator[Trajectory]:
    named = _FILE.fullmatch(source.path.name)
    folder = source.path.absolute().parent.name
    task_id = (folder if named else "") or shared.bare_id(source.path)
    users = (shared.text_of(one.content) for one in messages if one.role == "user")
    steps = [_step(turn, replies) for turn, replies in shared.turns(messages)]
    if steps and _reply(file.response) is not None:
        steps[-1] = msgspec.structs.replace(
            steps[-1], usage=_usage(file), started=shared.number(_response(file).created)
        )
    finished = bool(steps) and any(call.name == "finish" for call in steps[-1].calls)
    yield Trajectory(
        task_id=task_id,
        goal=_goal(next(users, "")),
        steps=tuple(steps),
        repo=shared.repo_of(task_id),
        agent="openhands",
        model=_model(file, named),
        end="run.completed" if finished else None,
        exit_status="finish" if finished else None,
        config={"read_from": told},
    )


def _response(file: _File) -> _Response:
    return file.response if isinstance(file.response, _Response) else _Response()


def _model(file: _File, named: re.Match[str] | None) -> str | None:
    known = shared.word(_response(file).model) or shared.word(mapping(file.kwargs).get("model"))
    return known or (named["model"].replace("__", "/") if named else None)


def _usage(file: _File) -> Usage | None:
    found = mapping(_response(file).usage)
    return shared.usage_of(found.get("prompt_tokens"), found.get("completion_tokens"), file.cost)


def _goal(opening: str) -> str:
    begin = _TASK_BEGINS.search(opening)
    end = _TASK_ENDS.search(opening, begin.end() - 1) if begin else None
    task = opening[begin.end() : end.start()] if begin and end else opening
    return shared.problem_text(task)


def _step(turn: _Message, replies: Sequence[_Message]) -> Step:
    content = shared.text_of(turn.content)
    calls = shared.calls_from(turn.tool_calls)
    if not calls:
        content, calls = _prompt_style(content)
    results = [_result(one, calls) for one in replies if one.role in ("tool", "user")]
    answered, left = shared.with_results(tuple(map(as_typed, calls)), results)
    return Step(
        thought=content.strip() or shared.text_of(turn.reasoning_content).strip(),
        action=shared.joined([call.text for call in answered]),
        observation=shared.joined([*(call.observation for call in answered), *left]),
        calls=answered,
    )


def _prompt_style(content: str) -> tuple[str, tuple[Call, ...]]:
    """Part a reply into its thought and the calls written out in it."""
    found = list(_FUNCTION.finditer(content))
    if not found:
        return content, ()
    written = [{"function": {"name": one[1], "arguments": _parameters(one[2])}} for one in found]
    return content[: found[0].start()], shared.calls_from(written)


def _parameters(text: str) -> dict[str, str]:
    return {name: value.strip("\n") for name, value in _PARAMETER.findall(text)}


def _result(reply: _Message, calls: Sequence[Call]) -> shared.Result:
    text = shared.text_of(reply.content)
    call_id = shared.word(reply.tool_call_id)
    if reply.role == "user":
        shown = _RESULT.match(text)
        text = text[shown.end() :] if shown else text
        call_id = "" if shown else "(user)"  # calls in prompt style have no ids
    codes = _CODE.findall(text[-_TAIL:])
    code = exit_code(int(codes[-1])) if codes else None
    status = "unknown" if code is None else ("error" if code else "ok")
    return shared.Result(call_id, text, code, status)


# ---- several calls of one run


def _successor(source: Source, told: str, messages: list[_Message]) -> str | None:
    """Name the next call in the folder if it goes on from this one."""
    named = _FILE.fullmatch(source.path.name)
    if named is None:
        return None
    later = []
    for path in _siblings(source.path):
        other = _FILE.fullmatch(path.name)
        if other and other["model"] == named["model"]:
            after = float(other["epoch"]) - float(named["epoch"])
            later += [(after, path)] if after > 0 else []
    if not later:
        return None
    _, path = min(later)
    try:
        file = decode(Source(path).bytes(), _DECODER)
        other_told, sent = _chosen(file)
    except (FormatError, OSError):
        return None
    goes_on = other_told == told and len(sent) >= len(messages) and all(map(_same, messages, sent))
    return path.name if goes_on else None


def _siblings(path: Path) -> list[Path]:
    try:
        return list(path.absolute().parent.iterdir())
    except OSError:
        return []


def _same(mine: _Message, theirs: _Message) -> bool:
    """Tell whether two messages are one; blocks and text are spellings of the same content."""
    calls = [
        [(call.name, call.arguments) for call in shared.calls_from(one.tool_calls)]
        for one in (mine, theirs)
    ]
    return (
        mine.role == theirs.role
        and shared.text_of(mine.content) == shared.text_of(theirs.content)
        and calls[0] == calls[1]
    )
