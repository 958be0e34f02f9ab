"""What spans say: attributes of OpenInference and of OpenTelemetry's GenAI, old names and new."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from sag_research.errors import FormatError
from sag_research.ingest._json import loads
from sag_research.ingest.formats import _shared as shared
from sag_research.ingest.formats._openhands_turns import key, mapping
from sag_research.ingest.formats._shared import Result
from sag_research.ingest.formats._spans import Span
from sag_research.model import Call, Usage

__all__ = [
    "Message", "ToolRun", "decoded", "first_text", "inputs_of", "kind_of", "model_of", "outputs_of",
    "response_of", "tool_of", "usage_of",
]  # fmt: skip

_LLM: Final = frozenset({"chat", "text_completion", "generate_content", "completion"})
_OUTER: Final = frozenset({
    "ai.generateText", "ai.streamText", "ai.generateObject", "ai.streamObject",
})  # fmt: skip
_INNER: Final = (".doGenerate", ".doStream")
_INDEX: Final = re.compile(r"(\d{1,6})(?:\.(.+))?")
_ROLES: Final = {
    "human": "user", "model": "assistant", "ai": "assistant", "function": "tool",
    "developer": "system",
}  # fmt: skip
_EVENT: Final = re.compile(r"gen_ai\.(system|user|assistant|tool)\.message")
_SAID: Final = frozenset({"text", "input_text", "output_text"})
_THOUGHT: Final = frozenset({"reasoning", "thinking"})
_CALLED: Final = frozenset({"tool_call", "tool-call", "tool_use"})
_ANSWERED: Final = frozenset(
    {"tool_call_response", "tool-result", "tool_result", "tool_call_result"}
)


class Message(NamedTuple):
    """A message to a model, or of one."""

    role: str
    text: str
    calls: tuple[Call, ...] = ()
    results: tuple[Result, ...] = ()


class ToolRun(NamedTuple):
    """What the span of a tool says."""

    name: str
    arguments: Any
    result: Result


# ---- what a span is


def kind_of(span: Span) -> str:
    """Return ``llm``, ``tool``, ``outer`` (holds the reply of a span below it) or ``other``."""
    has = span.attributes.get
    said = str(has("openinference.span.kind") or "").upper()
    operation = str(has("ai.operationId") or "")
    if operation in _OUTER:
        return "outer"
    if operation.endswith(_INNER) and ".doEmbed" not in operation:
        return "llm"
    if operation == "ai.toolCall":
        return "tool"
    if said in ("LLM", "TOOL"):
        return said.lower()
    if said or operation:
        return "other"
    return _kind_by_genai(span)


def _kind_by_genai(span: Span) -> str:
    has = span.attributes.get
    operation = str(has("gen_ai.operation.name") or has("llm.request.type") or "").lower()
    if operation in _LLM:
        return "llm"
    if operation == "execute_tool" or has("traceloop.span.kind") == "tool":
        return "tool"
    if operation == "invoke_agent" and has("gen_ai.output.messages"):
        return "outer"
    if operation or has("traceloop.span.kind"):
        return "other"
    named = ("gen_ai.request.model", "gen_ai.response.model", "gen_ai.output.messages")
    return "llm" if any(has(name) for name in named) else "other"


def first_text(span: Span, *names: str) -> str | None:
    """Return the first of these attributes that is text, or a number as text."""
    return next((one for name in names if (one := key(span.attributes.get(name)))), None)


def model_of(span: Span) -> str | None:
    """Return the model that replied, as the span names it."""
    return first_text(
        span, "llm.model_name", "gen_ai.response.model", "gen_ai.request.model",
        "ai.response.model", "ai.model.id", "llm.request.model",
    )  # fmt: skip


def response_of(span: Span) -> str | None:
    """Return the provider's id of the reply."""
    about = mapping(decoded(span.attributes.get("ai.response.providerMetadata")))
    inner = (key(mapping(one).get("responseId")) for one in about.values())
    return first_text(span, "gen_ai.response.id", "ai.response.id", "llm.response.id") or next(
        (one for one in inner if one), None
    )


def usage_of(span: Span) -> Usage | None:
    """Return the tokens of a reply, under any of the names that they had."""
    has = span.attributes.get

    def first(*names: str) -> Any:
        return next((has(name) for name in names if has(name) is not None), None)

    return shared.usage_of(
        first(
            "llm.token_count.prompt", "gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens",
            "ai.usage.inputTokens", "ai.usage.promptTokens", "llm.usage.prompt_tokens",
        ),
        first(
            "llm.token_count.completion", "gen_ai.usage.output_tokens",
            "gen_ai.usage.completion_tokens", "ai.usage.outputTokens",
            "ai.usage.completionTokens", "llm.usage.completion_tokens",
        ),
        first("llm.cost.total", "gen_ai.usage.cost"),
    )  # fmt: skip


# ---- messages


def inputs_of(span: Span) -> list[Message]:
    """Return what the model was given, from the first way of saying it that the span uses."""
    return _first_of(span, _INPUTS)


def outputs_of(span: Span) -> list[Message]:
    """Return what the model replied."""
    return _first_of(span, _OUTPUTS)


_Way = Callable[[Span], list[Message]]


def _first_of(span: Span, ways: Sequence[_Way]) -> list[Message]:
    return next((found for way in ways if (found := way(span))), [])


def _openinference(prefix: str) -> _Way:
    def read(span: Span) -> list[Message]:
        return [_message(_from_openinference(one)) for one in _indexed(span.attributes, prefix)]

    return read


def _from_openinference(fields: dict[str, Any]) -> dict[str, Any]:
    parts = [
        {"type": one.get("message_content.type"), "text": one.get("message_content.text")}
        for one in _indexed(fields, "message.contents")
    ]
    calls = [
        {
            "id": one.get("tool_call.id"),
            "function": {
                "name": one.get("tool_call.function.name"),
                "arguments": one.get("tool_call.function.arguments"),
            },
        }
        for one in _indexed(fields, "message.tool_calls")
    ]
    if name := fields.get("message.function_call_name"):
        arguments = fields.get("message.function_call_arguments_json")
        calls.append({"id": None, "function": {"name": name, "arguments": arguments}})
    content = fields.get("message.content")
    return {
        "role": fields.get("message.role"),
        "content": parts if content in (None, "") else content,
        "tool_calls": calls,
        "tool_call_id": fields.get("message.tool_call_id"),
    }


def _as_json(*names: str) -> _Way:
    """Read messages that stand in one attribute, as JSON text or as they are."""

    def read(span: Span) -> list[Message]:
        for name in names:
            value = decoded(span.attributes.get(name))
            if isinstance(value, dict):
                value = value.get("messages") or _prompt(value)
            found = [_message(one) for one in value if isinstance(one, dict)] if isinstance(
                value, list
            ) else []  # fmt: skip
            if found:
                return found
        return []

    return read


def _prompt(value: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the messages of a prompt that is one text, with its rules."""
    said = [{"role": role, "content": value.get(name)} for role, name in
            (("system", "system"), ("user", "prompt"))]  # fmt: skip
    return [one for one in said if isinstance(one["content"], str)]


def _numbered(prefix: str, role: str) -> _Way:
    """Read messages of numbered attributes: ``gen_ai.prompt.0.content``."""

    def read(span: Span) -> list[Message]:
        found = []
        for one in _indexed(span.attributes, prefix):
            calls = _indexed(one, "tool_calls")
            found.append(_message({"role": role, **one, "tool_calls": calls}))
        return found

    return read


def _by_events(outputs: bool) -> _Way:
    """Read messages of a span's events, as older conventions have it."""

    def read(span: Span) -> list[Message]:
        found: list[Message] = []
        for name, about in span.events:
            told = _EVENT.fullmatch(name)
            if outputs and name == "gen_ai.choice":
                own = mapping(decoded(about.get("message"))) or about
                found.append(_message({"role": "assistant", **_decoded_fields(own)}))
            elif not outputs and told:
                own = _decoded_fields(about)
                own.setdefault("tool_call_id", own.get("id"))
                found.append(_message({"role": told[1], **own}))
            else:
                found += _in_attribute(name, about, outputs)
        return found

    return read


def _in_attribute(name: str, about: dict[str, Any], outputs: bool) -> list[Message]:
    """Read messages that an event holds in one of its attributes."""
    names = {
        "gen_ai.client.inference.operation.details": (
            "gen_ai.output.messages" if outputs else "gen_ai.input.messages"
        ),
        "gen_ai.content.completion" if outputs else "gen_ai.content.prompt": (
            "gen_ai.completion" if outputs else "gen_ai.prompt"
        ),
    }
    value = decoded(about.get(names.get(name, "")))
    value = [value] if isinstance(value, dict) else value
    return [_message(one) for one in value or () if isinstance(one, dict)] if isinstance(
        value, list
    ) else []  # fmt: skip


def _decoded_fields(about: dict[str, Any]) -> dict[str, Any]:
    return {name: decoded(about.get(name)) if name in ("tool_calls", "content") else value
            for name, value in about.items()}  # fmt: skip


def _vercel_reply(span: Span) -> list[Message]:
    has = span.attributes.get
    calls = decoded(has("ai.response.toolCalls") or has("ai.result.toolCalls"))
    names = ("ai.response.text", "ai.response.object", "ai.result.text", "ai.result.object")
    text = next((value for name in names if isinstance(value := has(name), str) and value), None)
    reason = {"type": "reasoning", "text": has("ai.response.reasoning")}
    if text is None and not calls:
        return []
    parts = [*([reason] if reason["text"] else []), {"type": "text", "text": text or ""}]
    return [_message({"role": "assistant", "content": parts, "tool_calls": calls})]


def _plain_text(role: str, *names: str) -> _Way:
    def read(span: Span) -> list[Message]:
        value = next((span.attributes[one] for one in names if span.attributes.get(one)), None)
        inner = decoded(value)
        if isinstance(inner, dict):
            listed = inner.get("messages")
            if isinstance(listed, list) and role == "user":
                return [_message(one) for one in listed if isinstance(one, dict)]
            value = inner.get("text") or inner.get("content") or value
        return [Message(role, shared.text_of(value))] if value else []

    return read


_INPUTS: Final[tuple[_Way, ...]] = (
    _openinference("llm.input_messages"),
    _as_json("gen_ai.input.messages", "ai.prompt.messages", "ai.prompt"),
    _numbered("gen_ai.prompt", "user"),
    _by_events(outputs=False),
    _plain_text("user", "input.value", "input"),
)
_OUTPUTS: Final[tuple[_Way, ...]] = (
    _openinference("llm.output_messages"),
    _as_json("gen_ai.output.messages"),
    _vercel_reply,
    _numbered("gen_ai.completion", "assistant"),
    _by_events(outputs=True),
    _plain_text("assistant", "output.value", "output"),
)


def _indexed(fields: dict[str, Any], prefix: str) -> list[dict[str, Any]]:
    """Return what stands under ``prefix.0.``, ``prefix.1.`` …, in order of the numbers.

    Examples
    --------
    >>> _indexed({"a.1.b": 2, "a.0.b.c": 1, "a.x": 3, "ab.0": 4}, "a")
    [{'b.c': 1}, {'b': 2}]
    """
    found: dict[int, dict[str, Any]] = {}
    start = f"{prefix}."
    for name, value in fields.items():
        if name.startswith(start) and (told := _INDEX.fullmatch(name, len(start))):
            own = found.setdefault(int(told[1]), {})
            if told[2]:
                own[told[2]] = value
            elif not isinstance(value, dict):
                own["content"] = value
    return [found[number] for number in sorted(found)]


def decoded(value: Any) -> Any:
    """Decode JSON text of an object or a list; anything else is returned as it is."""
    if not isinstance(value, str) or value[:1] not in ("{", "["):
        return value
    try:
        return loads(value.encode("utf-8", "surrogatepass"))
    except FormatError:
        return value


# ---- one message


def _message(fields: dict[str, Any]) -> Message:
    told = shared.word(fields.get("role")) or ""
    role = _ROLES.get(told.casefold(), told.casefold())
    content = (
        fields.get("parts") if isinstance(fields.get("parts"), list) else fields.get("content")
    )
    parts = content if isinstance(content, list) else [content]
    named = key(fields.get("tool_call_id"))
    calls = [*_calls(fields.get("tool_calls")), *(_part_call(one) for one in _of(parts, _CALLED))]
    results = [_part_result(one) for one in _of(parts, _ANSWERED)]
    text = shared.joined([*map(_thought, _of(parts, _THOUGHT)), *_texts(parts)])
    if role == "tool" and not results:
        results = [Result(named, text)]
    return Message(role, text, shared.calls_from(calls), tuple(results))


def _of(parts: Sequence[Any], kinds: frozenset[str]) -> Iterator[dict[str, Any]]:
    for one in parts:
        if isinstance(one, dict) and isinstance(one.get("type"), str) and one["type"] in kinds:
            yield one


def _texts(parts: Sequence[Any]) -> Iterator[str]:
    for one in parts:
        kind = mapping(one).get("type")
        if not isinstance(one, dict):
            yield shared.text_of(one)
        elif kind in _SAID or kind is None:
            yield shared.text_of(one.get("text") if one.get("text") is not None
                                 else one.get("content"))  # fmt: skip
        elif not isinstance(kind, str) or kind not in _THOUGHT | _CALLED | _ANSWERED:
            yield f"[{kind}]"


def _thought(part: dict[str, Any]) -> str:
    return shared.text_of(part.get("content") or part.get("text") or part.get("thinking"))


def _calls(value: Any) -> Iterator[dict[str, Any]]:
    for one in value if isinstance(value, list) else ():
        about = mapping(one)
        if isinstance(about.get("function"), dict):
            yield about
        elif about:
            yield _part_call(about)


def _part_call(part: dict[str, Any]) -> dict[str, Any]:
    names = ("arguments", "args", "input", "parameters")
    arguments = next((part[name] for name in names if part.get(name) is not None), None)
    return {
        "id": key(part.get("id")) or key(part.get("toolCallId")),
        "function": {"name": part.get("name") or part.get("toolName"), "arguments": arguments},
    }


def _part_result(part: dict[str, Any]) -> Result:
    names = ("response", "result", "output", "content")
    value = next((part[name] for name in names if part.get(name) is not None), None)
    named = next(
        (one for name in ("id", "toolCallId", "tool_use_id", "tool_call_id")
         if (one := key(part.get(name)))), None,
    )  # fmt: skip
    failed = part.get("is_error") is True or part.get("isError") is True
    return Result(named, _shown(value), None, "error" if failed else "unknown")


def _shown(value: Any) -> str:
    """Return a tool's answer as text: an object as JSON, what is wrapped as a value by itself."""
    if isinstance(value, dict) and set(value) == {"type", "value"}:
        value = value["value"]
    return (
        json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else shared.text_of(value)
    )


# ---- tools


def tool_of(span: Span) -> ToolRun:
    """Return what the span of a tool says of its call."""
    has = span.attributes.get
    name = first_text(span, "tool.name", "gen_ai.tool.name", "ai.toolCall.name",
                      "traceloop.entity.name")  # fmt: skip
    named = first_text(span, "tool_call.id", "gen_ai.tool.call.id", "ai.toolCall.id", "tool.id")
    arguments = next(
        (value for one in ("tool_call.function.arguments", "gen_ai.tool.call.arguments",
                           "ai.toolCall.args", "input.value", "tool.parameters",
                           "traceloop.entity.input") if (value := has(one)) is not None), None,
    )  # fmt: skip
    output = next(
        (value for one in ("output.value", "gen_ai.tool.call.result", "ai.toolCall.result",
                           "traceloop.entity.output") if (value := has(one)) is not None), None,
    )  # fmt: skip
    inner, text = _tool_message(decoded(output))
    if text is None:
        text = _exception(span) if output is None else _shown(output)
    status = "error" if span.failed else "ok"
    result = Result(named or inner, text, None, status)
    return ToolRun(name or span.name, decoded(arguments), result)


def _tool_message(output: Any) -> tuple[str | None, str | None]:
    """Return id and text of an answer that is a whole message, as LangChain's tools give it."""
    told = mapping(output)
    told = mapping(told.get("data")) or mapping(told.get("kwargs")) or told
    named = key(told.get("tool_call_id"))
    return (named, shared.text_of(told.get("content"))) if named else (None, None)


def _exception(span: Span) -> str:
    said = (about.get("exception.message") for name, about in span.events if name == "exception")
    return next((one for one in said if isinstance(one, str)), span.message)
