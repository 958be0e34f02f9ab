"""What is asked of a model and what it answers, in one shape for all providers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, Protocol, TypeAlias, runtime_checkable

import msgspec

from sag_research._text import clip, repair
from sag_research.errors import UsageError
from sag_research.llm._errors import MalformedReply
from sag_research.model import Usage

__all__ = [
    "Asked",
    "Chunk",
    "Identity",
    "Message",
    "Model",
    "Reply",
    "Request",
    "Tool",
    "ToolCall",
    "as_read",
    "as_request",
    "clean",
    "join_chunks",
]

_TOO_DEEP: Final = 200  # beyond what the log takes; a value may even hold itself


class Identity(msgspec.Struct, frozen=True, omit_defaults=True):
    """Which model answers: the part of a question that names no secret.

    In a replay an identity can stand where a model would, so neither the provider's package nor
    a key is needed.
    """

    provider: str
    model: str
    base_url: str = ""


class ToolCall(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A tool that the model wants to be called."""

    name: str
    arguments: Any = None
    """An object; the raw text if what the model wrote is no JSON object."""
    id: str = ""
    signature: str = ""
    """A provider's own mark that must be sent back with the call (Gemini), base64."""


class Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One message of a conversation."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str = ""
    calls: tuple[ToolCall, ...] = ()
    """Of an assistant: the tools it asked for."""
    call_id: str = ""
    """Of a tool's result: the call it answers."""
    name: str = ""
    """Of a tool's result: the tool."""


class Tool(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A tool offered to the model."""

    name: str
    description: str = ""
    parameters: dict[str, Any] = {}
    """JSON schema of the arguments."""
    version: str = ""
    """Part of the question's key, not sent to the provider."""


class Request(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A question to a model.

    Examples
    --------
    >>> request = Request(messages=(Message(role="user", content="2 + 2?"),))
    >>> as_request("2 + 2?") == request
    True
    """

    messages: tuple[Message, ...]
    system: str = ""
    tools: tuple[Tool, ...] = ()
    parameters: dict[str, Any] = {}
    """``temperature top_p max_tokens seed stop`` mean the same for every provider; other names
    are passed on as they are."""
    output_schema: dict[str, Any] | None = None
    """JSON schema that the answer's text must be written in."""
    choices: tuple[str, ...] = ()
    """Answer with one of these and with the probability of each; see :class:`Local`."""


class Reply(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A model's whole answer."""

    text: str | None = None
    calls: tuple[ToolCall, ...] = ()
    usage: Usage | None = None
    finish: str | None = None
    """Why the model stopped, in the provider's word."""
    model: str | None = None
    """The model as the provider names it in the answer."""
    scores: dict[str, float] = {}
    """Probability of each of ``Request.choices``."""
    attempts: int = 1
    """How often the provider was asked, retries included."""

    def data(self) -> Any:
        """Return the text read as JSON.

        Raises
        ------
        MalformedReply
            If it is none.

        Examples
        --------
        >>> Reply(text='{"n": 4}').data()
        {'n': 4}
        """
        try:
            return msgspec.json.decode(self.text or "")
        except (msgspec.DecodeError, RecursionError) as error:
            why = f"{error}: {clip(self.text or 'an empty answer', 120)}"
            raise MalformedReply("the model's answer is no JSON", why=why, text=self.text) from None


class Chunk(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A part of an answer that arrives bit by bit; what follows the text comes with the last."""

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    usage: Usage | None = None
    finish: str | None = None
    model: str | None = None
    attempts: int = 1


@runtime_checkable
class Model(Protocol):
    """What an adapter offers: three functions."""

    def identity(self) -> Identity:
        """Return the part of the key that says who answers; needs no package and no key."""
        ...

    def complete(self, request: Request) -> Reply:
        """Ask, and wait for the whole answer."""
        ...

    def stream(self, request: Request) -> Iterator[Chunk]:
        """Ask, and take the answer in parts."""
        ...


Asked: TypeAlias = "Request | str | Mapping[str, Any] | Sequence[Message | Mapping[str, Any]]"
"""What can be asked: a request, a user's text, a request as a mapping, or messages."""


def as_request(asked: Asked) -> Request:
    """Make a request of a text, of messages, or of a mapping with a request's fields.

    Texts are repaired as in :func:`clean`, so what is sent is what is recorded.

    Raises
    ------
    UsageError
        If it has no such shape.
    """
    if isinstance(asked, str):
        return Request(messages=(Message(role="user", content=repair(asked)),))
    fields = asked if isinstance(asked, (Request, Mapping)) else {"messages": list(asked)}
    try:
        plain = msgspec.to_builtins(fields)
        return msgspec.convert(clean(plain), Request)
    except (msgspec.ValidationError, TypeError, NotImplementedError) as error:
        fix = "give a text, messages like {'role': 'user', 'content': …}, or a Request"
        raise UsageError("this cannot be asked of a model", why=str(error), fix=fix) from None


def join_chunks(chunks: Iterable[Chunk]) -> Reply:
    """Put an answer together from its parts.

    Examples
    --------
    >>> join_chunks([Chunk(text="He"), Chunk(text="llo", finish="stop")]).text
    'Hello'
    """
    parts = list(chunks)
    text = "".join(part.text for part in parts)
    calls = tuple(call for part in parts for call in part.calls)

    def last(name: str) -> Any:
        found = [value for part in parts if (value := getattr(part, name)) is not None]
        return found[-1] if found else None

    return Reply(
        text=text if text or not calls else None,
        calls=calls,
        usage=last("usage"),
        finish=last("finish"),
        model=last("model"),
        attempts=max((part.attempts for part in parts), default=1),
    )


def clean(value: Any, depth: int = 0) -> Any:
    r"""Bring a value into the form that the log takes: plain data with valid texts.

    Texts lose lone surrogates and NUL, tuples become lists, records become mappings.

    Examples
    --------
    >>> clean({"a": ("x\x00", 1)})
    {'a': ['x�', 1]}
    """
    kind = type(value)
    if value is None or kind in (bool, int, float):
        return value
    if isinstance(value, str):
        return repair(str(value))
    if depth <= _TOO_DEEP and isinstance(value, Mapping):
        return {_clean_key(key): clean(item, depth + 1) for key, item in value.items()}
    if depth <= _TOO_DEEP and isinstance(value, (list, tuple)):
        return [clean(item, depth + 1) for item in value]
    if isinstance(value, msgspec.Struct):
        return clean(msgspec.to_builtins(value), depth + 1)
    return value  # the log refuses it, and says where it stands


def _clean_key(key: Any) -> Any:
    return repair(key) if isinstance(key, str) else key


def as_read(value: Any) -> Any:
    """Bring a value into the form in which it is read back: clean, with keys in order.

    What is returned live is then what a replay returns, down to the order of a loop over it.

    Examples
    --------
    >>> as_read({"b": 1, "a": 2})
    {'a': 2, 'b': 1}
    """
    return _in_order(clean(value))


def _in_order(value: Any, depth: int = 0) -> Any:
    if depth > _TOO_DEEP:
        return value
    if isinstance(value, dict):
        keys = sorted(value) if all(isinstance(key, str) for key in value) else list(value)
        return {key: _in_order(value[key], depth + 1) for key in keys}
    return [_in_order(item, depth + 1) for item in value] if isinstance(value, list) else value
