"""Chat messages as steps: calls as objects, or written out in the text of a reply."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from sag_research.ingest._json import Other
from sag_research.ingest.formats import _shared as shared
from sag_research.ingest.formats._openhands_turns import as_typed, exit_code
from sag_research.model import Call, Step

__all__ = [
    "MESSAGES",
    "OPENHANDS",
    "PLAIN",
    "Dialect",
    "Message",
    "fenced",
    "goal_of",
    "is_finish",
    "steps",
    "written",
]


class Message(msgspec.Struct, gc=False):
    """A chat message; some fields are SWE-agent's own."""

    role: Any = None
    content: Any = None
    tool_calls: Any = None
    tool_call_id: Any = None
    tool_call_ids: Any = None
    function_call: Any = None
    reasoning_content: Any = None
    thought: Any = None
    action: Any = None


MESSAGES: Final = msgspec.json.Decoder(list[Message | Other])


_RULES: Final = ("system", "developer")
"""Roles that set rules and are no answer to a reply."""


class Turn(NamedTuple):
    """What a reply says, and what it calls."""

    thought: str
    calls: tuple[Call, ...]
    in_text: bool = False
    """The calls are written out in the text, so that messages of the user are their results."""


class Dialect(NamedTuple):
    """How an agent's messages are to be understood."""

    turn: Callable[[Message], Turn]
    result: Callable[[str], shared.Result]
    """Reads what came back; the id is filled in."""


def steps(messages: Sequence[Message], dialect: Dialect) -> tuple[Step, ...]:
    """Return each reply with its calls and what came back.

    Where the calls of a run are written out in its replies, a reply without one was not run: it
    has the flag ``rejected``, and what the user answers is no observation but stands in
    ``state``, under ``corrections``.
    """
    found = [(dialect.turn(turn), replies) for turn, replies in shared.turns(messages)]
    in_text = any(turn.in_text for turn, _ in found)
    return tuple(_step(turn, replies, dialect, in_text) for turn, replies in found)


def _step(turn: Turn, replies: Sequence[Message], dialect: Dialect, in_text: bool) -> Step:
    replies = [one for one in replies if one.role not in _RULES]
    if in_text and not turn.calls:
        told = [shared.text_of(one.content) for one in replies]
        state = {"corrections": told} if told else None
        return Step(thought=turn.thought, flags=("rejected",), state=state)
    results = [_result(one, turn, dialect) for one in replies]
    if len(turn.calls) == 1 == len(results) and _fits(results[0], turn.calls[0]):
        (result,) = results  # as nearly all turns are
        calls = (_answered(turn.calls[0], result),)
        return Step(
            thought=turn.thought, action=calls[0].text, observation=result.text, calls=calls
        )
    answered, left = shared.with_results(turn.calls, results)
    return Step(
        thought=turn.thought,
        action=shared.joined([call.text for call in answered]),
        observation=shared.joined([*(call.observation for call in answered), *left]),
        calls=answered,
    )


def _fits(result: shared.Result, call: Call) -> bool:
    return result.call_id is None or result.call_id == call.id


def _answered(call: Call, result: shared.Result) -> Call:
    return Call(
        id=call.id,
        name=call.name,
        arguments=call.arguments,
        text=call.text,
        observation=result.text,
        status=result.status,
        exit_code=result.exit_code,
    )


def _result(reply: Message, turn: Turn, dialect: Dialect) -> shared.Result:
    result = dialect.result(shared.text_of(reply.content))
    if reply.role == "user" and not turn.in_text:
        return result._replace(call_id="(user)")  # heard, but no call's result
    named = shared.word(reply.tool_call_id)
    if named is None and isinstance(reply.tool_call_ids, list) and len(reply.tool_call_ids) == 1:
        named = shared.word(reply.tool_call_ids[0])
    return result._replace(call_id=named) if named else result


def goal_of(messages: Sequence[Message]) -> str:
    """Return the task that the first message of the user sets."""
    users = (shared.text_of(one.content) for one in messages if one.role == "user")
    return shared.problem_text(next(users, ""))


# ---- calls as objects


def _plain_turn(message: Message) -> Turn:
    calls = shared.calls_from(message.tool_calls)
    if not calls and isinstance(message.function_call, dict):
        calls = shared.calls_from([message.function_call])
    return Turn(_thought(message), calls)


def _thought(message: Message) -> str:
    said = shared.text_of(message.content).strip()
    return said or shared.text_of(message.reasoning_content).strip()


def _plain_result(text: str) -> shared.Result:
    return shared.Result(None, text)


PLAIN: Final = Dialect(_plain_turn, _plain_result)

# ---- OpenHands


_SHOWN: Final = re.compile(r"\s*(?:OBSERVATION:|EXECUTION RESULT of \[[^\]\n]{0,200}\]:)\n?")
_CODE: Final = re.compile(
    r"\[(?:The command completed|Command finished) with exit code (-?\d{1,9})\.?\]"
)
_TAIL: Final = 2_000
"""Characters at the end of a result in which its exit code is looked for."""


def _openhands_turn(message: Message) -> Turn:
    turn = _plain_turn(message)
    if turn.calls:
        return turn._replace(calls=tuple(map(as_typed, turn.calls)))
    thought, calls = written(turn.thought)
    return Turn(thought, tuple(map(as_typed, calls)), in_text=bool(calls))


def _openhands_result(text: str) -> shared.Result:
    shown = _SHOWN.match(text)
    plain = text[shown.end() :] if shown else text
    codes = _CODE.findall(plain, max(0, len(plain) - _TAIL))
    code = exit_code(int(codes[-1])) if codes else None
    failed = bool(code) or plain.startswith("ERROR:")
    return shared.Result(None, plain, code, "error" if failed else "ok" if code == 0 else "unknown")


OPENHANDS: Final = Dialect(_openhands_turn, _openhands_result)

# ---- calls in the text


_FUNCTION: Final = re.compile(r"<function=([^<>\s]{1,200})>(.*?)(?:</function>|\Z)", re.DOTALL)
_PARAMETER: Final = re.compile(r"<parameter=([^<>\s]{1,200})>(.*?)(?:</parameter>|\Z)", re.DOTALL)


def written(content: str) -> tuple[str, tuple[Call, ...]]:
    r"""Part a reply into its thought and the calls that are written out in it.

    A line break after a parameter's opening and before its end belongs to the notation.

    Examples
    --------
    >>> thought, calls = written("Look.\n\n<function=bash>\n<parameter=command>ls</parameter>\n")
    >>> thought, calls[0].name, calls[0].arguments
    ('Look.', 'bash', {'command': 'ls'})
    """
    if "<function=" not in content:
        return content.strip(), ()
    found = list(_FUNCTION.finditer(content))
    if not found:
        return content.strip(), ()
    calls = shared.calls_from(
        [{"function": {"name": one[1], "arguments": _parameters(one[2])}} for one in found]
    )
    around = (content[: found[0].start()].strip(), content[found[-1].end() :].strip())
    return "\n\n".join(filter(None, around)), calls


def _parameters(text: str) -> dict[str, str]:
    return {name: _unwrapped(value) for name, value in _PARAMETER.findall(text)}


def _unwrapped(value: str) -> str:
    if len(value) > 1 and value.startswith("\n") and value.endswith("\n"):
        return value[1:-1]
    return value


_FENCE: Final = re.compile(r"```(\S*)[^\S\n]*(?:\n|\Z)")
"""A fence, if it begins a line: that is checked after, since a search for ``^`` is slow."""


def fenced(text: str) -> tuple[str, str] | None:
    r"""Part a reply into what is around its last fenced block, and the block; None without one.

    A block may hold fenced blocks that name a language. As SWE-agent has it, the last block that
    stands in no other one is the action.

    Examples
    --------
    >>> fenced("Look.\n\n```\nls -l\n```\n")
    ('Look.', 'ls -l')
    >>> fenced("No command.") is None
    True
    """
    opened: list[tuple[int, int]] = []
    last: tuple[int, int, int, int] | None = None
    for fence in _FENCE.finditer(text):
        start, end = fence.span()
        if start and text[start - 1] != "\n":
            continue
        if opened and not fence[1]:
            begin = opened.pop()
            last = last if opened else (*begin, start, end)
        else:
            opened.append((start, end))
    if last is None:
        return None
    before, behind = text[: last[0]].strip(), text[last[3] :].strip()
    around = f"{before}\n\n{behind}" if before and behind else before or behind
    return around, text[last[1] : last[2]].removesuffix("\n")


def is_finish(calls: Sequence[Call], names: Sequence[str] = ("finish",)) -> bool:
    """Tell whether a turn ends the run by a call of one of these names."""
    return any(call.name in names for call in calls)
