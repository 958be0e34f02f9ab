"""Values of LangGraph channels, decoded without making any object that they name."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, Final, NamedTuple

import msgspec

from sag_research.errors import FormatError
from sag_research.ingest._json import loads
from sag_research.ingest.formats import _shared as shared
from sag_research.ingest.formats._openhands_turns import mapping
from sag_research.model import Call, Usage

__all__ = ["Message", "as_text", "messages_in", "told_by", "value_of"]

_DEEPEST: Final = 60
_NESTED: Final = 12
"""Levels of packed objects in packed objects."""
_ROLES: Final = {
    "ai": "assistant", "assistant": "assistant", "aimessage": "assistant",
    "aimessagechunk": "assistant", "human": "user", "user": "user", "humanmessage": "user",
    "system": "system", "systemmessage": "system", "tool": "tool", "toolmessage": "tool",
    "function": "tool", "functionmessage": "tool",
}  # fmt: skip


class Message(NamedTuple):
    """A chat message in a channel."""

    role: str
    text: str
    calls: tuple[Call, ...] = ()
    call_id: str | None = None
    status: str = "ok"
    usage: Usage | None = None
    model: str | None = None


def value_of(kind: Any, data: Any) -> Any:
    r"""Decode a value as plain data.

    Objects (msgpack's extension types, LangChain's JSON constructors) are kept as data with the
    name of their class: nothing is imported or called. What was pickled stays closed.

    Parameters
    ----------
    kind : str or None
        ``msgpack``, ``json``, ``null``, ``bytes`` …, as the table has it.
    data : bytes, str or None

    Raises
    ------
    FormatError
        If the bytes cannot be decoded.

    Examples
    --------
    >>> value_of("msgpack", b"\x81\xa3foo\xa1a"), value_of("null", b"")
    ({'foo': 'a'}, None)
    >>> value_of("pickle", b"cos\nsystem\n")
    {'opaque': 'pickle', 'bytes': 11}
    """
    if kind == "null" or data is None:
        return None
    raw = data.encode("utf-8", "surrogateescape") if isinstance(data, str) else data
    if not isinstance(raw, bytes):
        return _plain(data)
    if kind == "msgpack":
        return _plain(_unpacked(raw, 0))
    if kind == "json":
        return _plain(loads(raw))
    return {"opaque": kind if isinstance(kind, str) else "unknown", "bytes": len(raw)}


def _unpacked(data: bytes, depth: int) -> Any:
    try:
        return msgspec.msgpack.decode(data, ext_hook=_hook(depth))
    except msgspec.DecodeError as error:
        raise FormatError("not valid msgpack", why=str(error)) from None
    except RecursionError:
        raise FormatError("msgpack that is nested too deeply") from None


def _hook(depth: int) -> Callable[[int, memoryview], Any]:
    """Return what makes plain data of a packed object: its class by name, and what it holds."""

    def inert(code: int, data: memoryview) -> Any:
        packed = bytes(data)
        if depth >= _NESTED:
            return {"opaque": f"ext {code}", "bytes": len(packed)}
        try:
            inner = _unpacked(packed, depth + 1)
        except FormatError:
            return {"opaque": f"ext {code}", "bytes": len(packed)}
        if isinstance(inner, list) and len(inner) >= 3 and isinstance(inner[1], str):
            return {"object": f"{inner[0]}.{inner[1]}", "value": inner[2]}
        return {"opaque": f"ext {code}", "value": inner}

    return inert


def _plain(value: Any, depth: int = 0) -> Any:
    if depth >= _DEEPEST:
        return "(nested too deeply)"
    if isinstance(value, dict):
        return {str(name): _plain(one, depth + 1) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one, depth + 1) for one in value]
    if isinstance(value, bytes | bytearray | memoryview):
        return {"opaque": "bytes", "bytes": len(value)}
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, str | int | float | None) else str(value)


# ---- messages


def messages_in(value: Any) -> list[Message]:
    """Return the messages that a value is, or that stand in its list or its object."""
    if isinstance(value, dict) and (found := _message(value)) is not None:
        return [found]
    if isinstance(value, dict) and "messages" in value:
        given = value["messages"]
        return messages_in([_as_given(one) for one in given] if isinstance(given, list) else given)
    if isinstance(value, list):
        return [one for item in value if (one := _message(item)) is not None]
    return []


def _as_given(one: Any) -> Any:
    """Write out the short forms that an input may have: a text, or a role and a text."""
    if isinstance(one, str):
        return {"role": "user", "content": one}
    if isinstance(one, list) and len(one) == 2 and all(isinstance(part, str) for part in one):
        return {"role": one[0], "content": one[1]}
    return one


def told_by(value: Any) -> str:
    """Return what a person says with an input: the texts of messages, or all of it as JSON."""
    said = [one.text for one in messages_in(value) if one.role == "user"]
    if said:
        return shared.joined(said)
    if value in (None, "", {}, []):
        return ""
    return as_text(value)


def as_text(value: Any) -> str:
    """Return text as it is, and any other value as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _message(value: Any) -> Message | None:
    fields, kind = _fields(value)
    role = _ROLES.get(kind.casefold())
    if role is None or not ("content" in fields or "tool_calls" in fields):
        return None
    used = mapping(fields.get("usage_metadata"))
    about = mapping(fields.get("response_metadata"))
    failed = role == "tool" and fields.get("status") == "error"
    return Message(
        role,
        _said(fields.get("content")),
        shared.calls_from(list(_calls(fields))) if role == "assistant" else (),
        shared.word(fields.get("tool_call_id")),
        "error" if failed else "ok",
        shared.usage_of(used.get("input_tokens"), used.get("output_tokens"), None),
        shared.word(about.get("model_name")) or shared.word(about.get("model")),
    )


def _said(content: Any) -> str:
    """Return the texts of a message; calls among them stand in a list of their own as well."""
    if isinstance(content, list):
        content = [one for one in content if mapping(one).get("type") != "tool_use"]
    return shared.text_of(content)


def _fields(value: Any) -> tuple[dict[str, Any], str]:
    """Return the fields of a message and what it calls itself; a role of its own is no matter."""
    found = mapping(value)
    if isinstance(name := found.get("object"), str):  # a packed object
        return mapping(found.get("value")), name.rpartition(".")[2]
    if found.get("type") == "constructor" and isinstance(path := found.get("id"), list) and path:
        return mapping(found.get("kwargs")), str(path[-1])
    kind = found.get("role") or found.get("type")
    return found, kind if isinstance(kind, str) else ""


def _calls(fields: dict[str, Any]) -> Iterator[dict[str, Any]]:
    own = fields.get("tool_calls")
    more = mapping(fields.get("additional_kwargs")).get("tool_calls")
    for call in own if isinstance(own, list) and own else more if isinstance(more, list) else ():
        about = mapping(call)
        if isinstance(about.get("function"), dict):
            yield about
        elif about:
            function = {"name": about.get("name"), "arguments": about.get("args")}
            yield {"id": about.get("id"), "function": function}
