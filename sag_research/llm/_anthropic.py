"""Anthropic's messages, through the package ``anthropic``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from sag_research.errors import UsageError
from sag_research.llm._asking import arguments_of
from sag_research.llm._errors import ModelError
from sag_research.llm._openai import as_data, stainless_error
from sag_research.llm._records import Chunk, Message, Reply, Request, ToolCall
from sag_research.llm._remote import RemoteModel, ToolCallParts, http_errors, status_error

__all__ = ["Anthropic"]

MAX_TOKENS: Final = 4_096


class _Block(msgspec.Struct):
    type: str
    text: str | None = None
    id: str = ""
    name: str = ""
    input: Any = None


class _Counts(msgspec.Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None


class _Answer(msgspec.Struct):
    content: list[_Block]
    stop_reason: str | None = None
    model: str | None = None
    usage: _Counts | None = None


class _Delta(msgspec.Struct):
    type: str | None = None
    text: str | None = None
    partial_json: str | None = None
    stop_reason: str | None = None


class _Part(msgspec.Struct):
    type: str
    index: int = 0
    message: _Answer | None = None
    content_block: _Block | None = None
    delta: _Delta | None = None
    usage: _Counts | None = None


class Anthropic(RemoteModel):
    """A model of Anthropic, through the package ``anthropic``.

    Parameters are those of :class:`OpenAICompatible`; the key's default is
    ``$ANTHROPIC_API_KEY``. The provider demands ``max_tokens``; where a request has none, 4,096
    are allowed.

    Examples
    --------
    >>> Anthropic("claude-x").identity().provider
    'anthropic'
    """

    provider = "anthropic"
    package = "anthropic"
    key_variables = ("ANTHROPIC_API_KEY",)
    default_url = "https://api.anthropic.com"

    def _connect(self, library: Any, key: str) -> Any:
        return library.Anthropic(
            api_key=key,
            base_url=self._url,
            timeout=self.timeout,
            max_retries=0,
            default_headers=self._headers,
        )

    def _send(self, client: Any, request: Request) -> Reply:
        answer = self._read(
            as_data(client.messages.create(**_arguments(self.model, request))), _Answer
        )
        counts = answer.usage or _Counts()
        texts = [block.text or "" for block in answer.content if block.type == "text"]
        return Reply(
            text="".join(texts) if texts else None,
            calls=tuple(
                ToolCall(id=block.id, name=block.name, arguments=block.input)
                for block in answer.content
                if block.type == "tool_use"
            ),
            usage=self._priced(counts.input_tokens, counts.output_tokens),
            finish=answer.stop_reason,
            model=answer.model,
        )

    def _receive(self, client: Any, request: Request) -> Iterator[Chunk]:
        calls, finish, model = ToolCallParts(arguments_of), None, None
        tokens_in, tokens_out, ended = None, None, False
        with client.messages.create(**_arguments(self.model, request), stream=True) as answer:
            for raw in answer:
                part = self._read(as_data(raw), _Part)
                ended = ended or part.type == "message_stop"
                if part.message is not None:
                    model, tokens_in = part.message.model, _tokens_in(part.message.usage)
                if part.usage is not None:
                    tokens_out = part.usage.output_tokens
                if (block := part.content_block) is not None and block.type == "tool_use":
                    calls.add(part.index, block.id, block.name, "")
                if part.delta is not None:
                    finish = part.delta.stop_reason or finish
                    if part.delta.partial_json is not None:
                        calls.add(part.index, "", "", part.delta.partial_json)
                    if part.delta.text:
                        yield Chunk(text=part.delta.text)
        usage = self._priced(tokens_in, tokens_out)
        yield Chunk(calls=calls.calls(), usage=usage, finish=finish if ended else None, model=model)

    def _raised(self, library: Any) -> tuple[type[Exception], ...]:
        return (library.AnthropicError, json.JSONDecodeError, *http_errors())

    def _translate(self, library: Any, error: Exception) -> ModelError:
        if isinstance(error, library.APIStatusError):
            after = error.response.headers.get("retry-after")
            return status_error(self.provider, error.status_code, str(error), after)
        return stainless_error(self.provider, library, error)


def _tokens_in(counts: _Counts | None) -> int | None:
    return None if counts is None else counts.input_tokens


def _arguments(model: str, request: Request) -> dict[str, Any]:
    if request.choices:
        raise UsageError(
            "anthropic cannot be held to choices", fix="use Local, or an output_schema"
        )
    more = dict(request.parameters)
    if "stop" in more:
        stop = more.pop("stop")
        more["stop_sequences"] = [stop] if isinstance(stop, str) else stop
    systems = [m.content for m in request.messages if m.role == "system"]
    system = "\n\n".join(text for text in (request.system, *systems) if text)
    arguments: dict[str, Any] = {
        "model": model,
        "max_tokens": more.pop("max_tokens", MAX_TOKENS),
        "messages": _messages([m for m in request.messages if m.role != "system"]),
        "extra_body": more,
    }
    if system:
        arguments["system"] = system
    if request.tools:
        arguments["tools"] = [
            {
                "name": tool.name,
                "description": tool.description,
                "input_schema": tool.parameters or {"type": "object", "properties": {}},
            }
            for tool in request.tools
        ]
    if request.output_schema is not None:
        form = {"type": "json_schema", "schema": request.output_schema}
        more["output_config"] = {"format": form}
    return arguments


def _messages(messages: list[Message]) -> list[dict[str, Any]]:
    """Write messages in turns of user and assistant; a tool's result is the user's turn."""
    turns: list[dict[str, Any]] = []
    for message in messages:
        role = "assistant" if message.role == "assistant" else "user"
        if not turns or turns[-1]["role"] != role:
            turns.append({"role": role, "content": []})
        turns[-1]["content"] += _blocks(message)
    return turns


def _blocks(message: Message) -> list[dict[str, Any]]:
    if message.role == "tool":
        result = {"type": "tool_result", "tool_use_id": message.call_id}
        return [{**result, "content": message.content}]
    blocks: list[dict[str, Any]] = []
    if message.content:
        blocks.append({"type": "text", "text": message.content})
    for call in message.calls:
        given = call.arguments if isinstance(call.arguments, dict) else {"text": call.arguments}
        blocks.append({"type": "tool_use", "id": call.id, "name": call.name, "input": given})
    return blocks
