"""What a run did, in a form that is the same however its actions are spelled."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from sag_research._text import repair
from sag_research.errors import FormatError
from sag_research.ingest._json import loads
from sag_research.model import Step

__all__ = [
    "Deed",
    "Fingerprint",
    "deeds_of_payloads",
    "deeds_of_steps",
    "fingerprint",
    "is_of_trace",
    "sketch",
    "trace_sketch",
]

_SAMPLED: Final = 4
"""Actions that a sketch looks at: first, last, and two between."""
_SHINGLE: Final = 3
_TRACE: Final = "trace:"
_LONGEST_ID: Final = 200
_ENOUGH: Final = 1_000_000
"""Characters of one action or thought that are compared."""
_NOT_DONE: Final = frozenset({"rejected", "inherited"})

_SHELLS: Final = frozenset(
    {"bash", "execute_bash", "run_bash", "shell", "sh", "terminal", "run", "run_command",
     "execute_command", "exec", "cmd", "command", "mswea_bash_command"}
)  # fmt: skip
_SCRIPTS: Final = ("command", "cmd", "script", "code", "input")
"""The argument of a shell that is the command line."""

_TAG: Final = re.compile(r"</?(?:function|parameter)(?:=(?P<name>[^<>\n]*))?>")
_FENCE: Final = re.compile(r"^[ \t]*```[\w-]*[ \t]*$", re.MULTILINE)
_FLAG: Final = re.compile(r"(?<![\w-])--[A-Za-z][\w-]*")
_NAMED_JSON: Final = re.compile(r"\s*(?P<name>[\w.-]+)\s*\(?(?P<json>\{.*\})\)?\s*", re.DOTALL)
_WORD: Final = re.compile(r"[^\W_]+")


class Deed(NamedTuple):
    """One action that was carried out, as its source spells it."""

    text: str
    name: str = ""
    arguments: Any = None


class Fingerprint(NamedTuple):
    """What makes two runs the same, whatever their spelling."""

    actions: str
    """Digest of the sequence of actions, as 32 hex digits."""
    n_actions: int
    n_words: int
    thoughts: frozenset[int]
    """Hashes of the three-word stretches of all that the model said beside its actions."""


def deeds_of_steps(steps: Iterable[Step]) -> Iterator[Deed]:
    """Yield what was done in steps, each call on its own."""
    for step in steps:
        if not _NOT_DONE.isdisjoint(step.flags):
            continue
        if step.calls:
            yield from (Deed(call.text, call.name, call.arguments) for call in step.calls)
        elif step.action.strip():
            yield Deed(step.action)


def deeds_of_payloads(payloads: Iterable[Mapping[str, Any]]) -> Iterator[Deed]:
    """Yield what was done in the payloads of ``agent.step`` events."""
    for payload in payloads:
        if not _NOT_DONE.isdisjoint(payload.get("flags") or ()):
            continue
        calls = [call for call in payload.get("calls") or () if isinstance(call, Mapping)]
        if calls:
            yield from (
                Deed(
                    str(call.get("text") or ""), str(call.get("name") or ""), call.get("arguments")
                )
                for call in calls
            )
        elif (action := str(payload.get("action") or "")).strip():
            yield Deed(action)


def _deed(call: Mapping[str, Any]) -> Deed:
    text, name = (str(call.get(key) or "") for key in ("text", "name"))
    return Deed(text, name, call.get("arguments"))


def sketch(deeds: Sequence[Deed]) -> str:
    """Return a short digest that runs of the same actions share; few others do.

    It reads four of the actions, so it costs next to nothing where runs are written.

    Examples
    --------
    >>> sketch([Deed("ls -a"), Deed("submit")]) == sketch([Deed("ls -a"), Deed("submit", "submit")])
    True
    >>> sketch([])
    ''
    """
    if not deeds:
        return ""
    last = len(deeds) - 1
    places = sorted({round(last * part / (_SAMPLED - 1)) for part in range(_SAMPLED)})
    state = blake2b(str(len(deeds)).encode(), digest_size=8)
    for place in places:
        state.update(b"\n" + " ".join(_words(deeds[place])).encode("utf-8", "replace"))
    return state.hexdigest()


def trace_sketch(trace: object) -> str:
    """Return the sketch of a run in which nothing was done: the id of its trace, if it has one.

    Examples
    --------
    >>> is_of_trace(trace_sketch("0af7")), trace_sketch(None)
    (True, '')
    """
    return f"{_TRACE}{repair(trace[:_LONGEST_ID])}" if isinstance(trace, str) and trace else ""


def is_of_trace(sketched: str) -> bool:
    """Tell whether a sketch is a trace's id."""
    return sketched.startswith(_TRACE)


def fingerprint(deeds: Iterable[Deed], thoughts: Iterable[str]) -> Fingerprint:
    r"""Read all actions, and what was said beside them.

    Examples
    --------
    >>> tool = Deed("", "str_replace_editor", {"command": "view", "path": "/repo/a.py"})
    >>> xml = Deed(
    ...     "<function=str_replace_editor><parameter=command>view</parameter>"
    ...     "<parameter=path>/repo/a.py</parameter></function>"
    ... )
    >>> ticks = Deed("```\nstr_replace_editor view /repo/a.py\n```")
    >>> len({fingerprint([one], []).actions for one in (tool, xml, ticks)})
    1
    """
    state, n_actions, n_words = blake2b(digest_size=16), 0, 0
    for deed in deeds:
        words = _words(deed)
        state.update(" ".join(words).encode("utf-8", "replace") + b"\n")
        n_actions, n_words = n_actions + 1, n_words + len(words)
    return Fingerprint(state.hexdigest(), n_actions, n_words, frozenset(_shingles(thoughts)))


def _shingles(thoughts: Iterable[str]) -> Iterator[int]:
    for thought in thoughts:
        words = _WORD.findall(_plain(thought).casefold())
        for place in range(max(1, len(words) - _SHINGLE + 1) if words else 0):
            yield hash(tuple(words[place : place + _SHINGLE]))


def _words(deed: Deed) -> list[str]:
    """Return the words of an action, sorted: spellings differ in the order of arguments."""
    return sorted(_WORD.findall(_flat(deed).casefold()))


def _flat(deed: Deed) -> str:
    """Write name and values of a call in a row; names of arguments are spelling."""
    if isinstance(deed.arguments, Mapping):
        return _of_call(deed.name, deed.arguments)
    text = _plain(deed.text)
    if "{" in text and (named := _NAMED_JSON.fullmatch(text)) is not None:
        try:
            arguments = loads(named["json"].encode("utf-8", "surrogatepass"))
        except FormatError:
            return text
        if isinstance(arguments, dict):
            return _of_call(named["name"], arguments)
    return text


def _of_call(name: str, arguments: Mapping[str, Any]) -> str:
    if name.rpartition(".")[2].casefold() in _SHELLS:
        script = next((arguments[key] for key in _SCRIPTS if key in arguments), None)
        if isinstance(script, (str, list)):
            return " ".join(_values(script))
        return " ".join(_values(arguments))
    return " ".join((name, *_values(arguments)))


def _values(value: Any) -> Iterator[str]:
    """Yield the values in a value; deeper than any call goes, they are left out."""
    pending = [(value, 0)]
    while pending:
        one, depth = pending.pop()
        if isinstance(one, Mapping) and depth < 20:
            pending += [(item, depth + 1) for item in one.values()]
        elif isinstance(one, (list, tuple)) and depth < 20:
            pending += [(item, depth + 1) for item in one]
        elif one is not None:
            yield _plain(str(one))


def _plain(text: str) -> str:
    """Take the marks of a spelling out of a text, of which enough is read to know it."""
    text = text[:_ENOUGH]
    if "<" in text:
        text = _TAG.sub(_function_name, text)
    if "```" in text:
        text = _FENCE.sub(" ", text)
    return _FLAG.sub(" ", text) if "--" in text else text


def _function_name(tag: re.Match[str]) -> str:
    name = tag["name"] or ""
    kept = tag[0].startswith("<function") and name.casefold() not in _SHELLS
    return f" {name} " if kept else " "
