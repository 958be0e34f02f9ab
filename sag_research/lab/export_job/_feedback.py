"""What a run that was taken back is told, as a message of its conversation, and read from it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from sag_research._text import clip, visible
from sag_research.llm import Message, Reply, ToolCall

__all__ = [
    "Told", "call_text", "feedback_message", "feedback_of", "is_feedback", "listed", "told_of",
]  # fmt: skip

_TELLS: Final = "monitor"
_NOWHERE: Final = "nowhere"
_QUOTE: Final = 160
_ANSWER: Final = re.compile(r'\{"status": ?"(completed|needs-human)"')


def feedback_of(change: Mapping[str, Any]) -> str:
    """Return the text of a context's change: its feedback, or its list of what to avoid.

    Examples
    --------
    >>> print(feedback_of({"avoid": ['job_retry({"jobId":"JOB-204"})']}))
    From here, this was tried and led nowhere:
    - job_retry({"jobId":"JOB-204"})
    """
    told = str(change.get("feedback") or "")
    avoid = change.get("avoid") or ()
    if told or not isinstance(avoid, Sequence) or isinstance(avoid, str) or not avoid:
        return told
    lines = [f"- {visible(clip(str(action), _QUOTE))}" for action in avoid]
    return "\n".join(["From here, this was tried and led nowhere:", *lines])


def feedback_message(text: str) -> Message:
    """Make a message that is told apart from what the loop says of a refused answer."""
    return Message(role="user", name=_TELLS, content=text)


def is_feedback(message: Message) -> bool:
    """Whether a message is one of :func:`feedback_message`."""
    return message.role == "user" and message.name == _TELLS


class Told(NamedTuple):
    """What a conversation says was tried before, calls and answers as texts."""

    nowhere: frozenset[str]
    """Said to have led nowhere."""
    well: frozenset[str]
    """Said to be what successful runs did."""


def told_of(messages: Sequence[Message]) -> Told:
    """Read the lists of what was tried in feedback; nothing else in a text is understood.

    Lines with ``-`` below one that speaks of ``nowhere`` warn; lines with ``+`` recommend.
    """
    nowhere, well = set[str](), set[str]()
    for message in filter(is_feedback, messages):
        bad = False
        for line in message.content.split("\n"):
            if line.startswith("+ "):
                well.add(_key(line[2:]))
            elif line.startswith("- "):
                nowhere.update([_key(line[2:])] * bad)
            else:
                bad = _NOWHERE in line
    return Told(frozenset(nowhere), frozenset(well))


def listed(reply: Reply, texts: frozenset[str]) -> bool:
    """Whether a reply is among texts: an equal call, or an equal way to end."""
    said = [call_text(call) for call in reply.calls] or [reply.text or ""]
    return any(_key(visible(clip(text, _QUOTE))) in texts for text in said)


def call_text(call: ToolCall) -> str:
    """Write a call as the log does."""
    return f"{call.name}({msgspec.json.encode(call.arguments, order='sorted').decode()})"


def _key(text: str) -> str:
    """Take a way to end for its status: its words and ids differ from time to time."""
    answer = _ANSWER.match(text)
    return text if answer is None else answer[1]
