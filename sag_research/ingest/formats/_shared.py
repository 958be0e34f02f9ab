"""Small pure functions that several formats need."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from msgspec.structs import replace

from sag_research.model import Call, Usage

__all__ = [
    "Result",
    "bare_id",
    "calls_from",
    "first_of",
    "id_of_events",
    "integer",
    "joined",
    "number",
    "problem_text",
    "repo_of",
    "text_of",
    "turns",
    "usage_of",
    "with_results",
    "word",
]

N = TypeVar("N", int, float)

_FAULTS: Final = 50
"""Damaged events that are noted one by one."""
_LARGEST: Final = 2**53
"""Whole numbers up to this one are exact as floats, too."""
_ENORMOUS: Final = 1e300
_SHELLS: Final = frozenset({"bash", "shell", "sh", "execute_bash", "run"})
"""Tools whose ``command`` is what a person would read as the action."""


def text_of(content: Any) -> str:
    r"""Return a message's content as text; of blocks, their texts in order.

    Examples
    --------
    >>> text_of([{"type": "text", "text": "a"}, {"type": "image_url"}, "b"])
    'a\n[image_url]\nb'
    """
    if isinstance(content, str):
        return content
    if content is None:
        return ""
    if isinstance(content, list):
        return "\n".join(map(_block_text, content))
    return _block_text(content)


def _block_text(block: Any) -> str:
    if isinstance(block, str):
        return block
    if isinstance(block, dict):
        text = block.get("text")
        return text if isinstance(text, str) else f"[{block.get('type', 'block')}]"
    return json.dumps(block)


def word(value: Any) -> str | None:
    """Return non-empty text without the space around it, else None."""
    return (value.strip() or None) if isinstance(value, str) else None


def number(value: Any) -> float | None:
    """Return a finite number of a sensible size, else None."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    if isinstance(value, int) and abs(value) > _LARGEST:
        return None
    return float(value) if abs(value) < _ENORMOUS else None


def integer(value: Any) -> int | None:
    """Return a whole number that is exact, else None."""
    found = number(value)
    return (
        int(value) if found is not None and found == int(found) and abs(found) <= _LARGEST else None
    )


def usage_of(tokens_in: Any, tokens_out: Any, cost: Any) -> Usage | None:
    """Return the known amounts: a zero in such files means that nobody counted."""
    usage = Usage(
        tokens_in=_positive(integer(tokens_in)),
        tokens_out=_positive(integer(tokens_out)),
        cost_usd=_positive(number(cost)),
    )
    return None if usage == Usage() else usage


def _positive(amount: N | None) -> N | None:
    return amount if amount is not None and amount > 0 else None


def bare_id(path: Path) -> str:
    """Return a file's name without the suffixes of formats and compression.

    Examples
    --------
    >>> bare_id(Path("a/django__django-1.traj.json.gz"))
    'django__django-1'
    """
    return re.sub(r"(?:\.(?:gz|zst|zstd|traj|jsonl?))+$", "", path.name) or path.name


def first_of(faults: list[str]) -> list[str]:
    """Return the first of many faults, and how many more there are.

    Examples
    --------
    >>> first_of(["line 3: empty"])
    ['line 3: empty']
    """
    more = len(faults) - _FAULTS
    return faults if more <= 0 else [*faults[:_FAULTS], f"and {more} more like these"]


def id_of_events(folder: Path) -> str:
    """Return what a folder of events is called, or the one above it if it says ``events``.

    Examples
    --------
    >>> id_of_events(Path("sessions/a-1/events")), id_of_events(Path("sessions/a-1"))
    ('a-1', 'a-1')
    """
    return (folder.parent.name if folder.name == "events" else folder.name) or "unnamed"


_REPO: Final = re.compile(
    r"(?P<owner>[A-Za-z0-9][\w.-]*?)__(?P<name>[\w.-]+?)(?:-i?\d+|\.[0-9a-f]{7,40}(?:\..*)?)"
)


def repo_of(task_id: str) -> str | None:
    """Return the repository that a task id names.

    Examples
    --------
    >>> repo_of("scikit-learn__scikit-learn-25232"), repo_of("getmoto__moto.694ce1f4.pr_7331")
    ('scikit-learn/scikit-learn', 'getmoto/moto')
    >>> repo_of("warmup") is None
    True
    """
    found = _REPO.fullmatch(task_id)
    return f"{found['owner']}/{found['name']}" if found else None


_PROBLEM: Final = tuple(
    (re.compile(begin), re.compile(end))
    for begin, end in (
        (
            r"<pr_description>\s*(?:Consider the following PR description:\s*)?",
            r"</pr_description>",
        ),
        (r"<issue>\s*", r"</issue>"),
        (r"<task>\s*", r"</task>"),
        (r"\bISSUE:\s*", r"\n[ \t]*INSTRUCTIONS:"),
        (r"\APlease solve this issue:\s*", r"\n[ \t]*You can execute bash commands"),
    )
)
"""How the marks around a problem begin and end. Each is sought once: a text that opens a mark ten
thousand times and never closes it is read once, not ten thousand times."""


def problem_text(message: str) -> str:
    r"""Return the problem statement inside an opening message, or all of it if none is marked.

    Examples
    --------
    >>> problem_text("<pr_description>\nIt breaks.\n</pr_description>\nNow mend it.")
    'It breaks.'
    """
    for begin, end in _PROBLEM:
        opened = begin.search(message)
        closed = end.search(message, opened.end()) if opened else None
        if opened and closed and (problem := message[opened.end() : closed.start()].strip()):
            return problem
    return message.strip()


class _HasRole(Protocol):
    role: Any


M = TypeVar("M", bound=_HasRole)


def turns(messages: Sequence[M]) -> Iterator[tuple[M, Sequence[M]]]:
    """Yield each reply of the model with the messages up to its next one."""
    starts = [number for number, message in enumerate(messages) if message.role == "assistant"]
    for start, stop in pairwise([*starts, len(messages)]):
        yield messages[start], messages[start + 1 : stop]


class Result(NamedTuple):
    """What came back from a tool call."""

    call_id: str | None
    text: str
    exit_code: int | None = None
    status: str = "unknown"


def calls_from(tool_calls: Any) -> tuple[Call, ...]:
    """Read an assistant message's ``tool_calls``; entries of another shape are left out."""
    found = tool_calls if isinstance(tool_calls, list) else []
    return tuple(_call(entry) for entry in found if isinstance(entry, dict))


def _call(entry: dict[str, Any]) -> Call:
    function = entry.get("function")
    function = function if isinstance(function, dict) else entry
    arguments = _arguments(function.get("arguments"))
    name = text_of(function.get("name"))
    return Call(
        id=text_of(entry.get("id")),
        name=name,
        arguments=arguments,
        text=_call_text(name, arguments),
        status="unknown",
    )


def _call_text(name: str, arguments: Any) -> str:
    if isinstance(arguments, dict) and (name in _SHELLS or set(arguments) == {"command"}):
        command = arguments.get("command")
        if isinstance(command, str):
            return command
    plain = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return f"{name}({plain})"


def _arguments(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def with_results(
    calls: Sequence[Call], results: Sequence[Result]
) -> tuple[tuple[Call, ...], list[str]]:
    """Give each call what came back under its id.

    A second result for one call is added to the first; a result that names no call goes to
    the only call there is.

    Returns
    -------
    calls : tuple of Call
    left : list of str
        Texts of the results that belong to no call.
    """
    texts: list[list[Result]] = [[] for _ in calls]
    left = []
    for result in results:
        fitting = [number for number, call in enumerate(calls) if _fits(result, call, len(calls))]
        if fitting:
            open_ = [number for number in fitting if not texts[number]]
            texts[(open_ or fitting[-1:])[0]].append(result)
        else:
            left.append(result.text)
    return tuple(map(_answered, calls, texts)), left


def _fits(result: Result, call: Call, calls: int) -> bool:
    if result.call_id is None:
        return calls == 1
    return result.call_id == call.id


def _answered(call: Call, results: list[Result]) -> Call:
    if not results:
        return call
    return replace(
        call,
        observation=joined([result.text for result in results]),
        exit_code=results[-1].exit_code,
        status=results[-1].status,
    )


def joined(texts: Sequence[str]) -> str:
    """Join the texts of calls, or of what came back, into one; empty ones are left out."""
    return "\n".join(filter(None, texts))
