"""Endpoints that speak OpenAI's chat completions, as OpenRouter, vLLM and Ollama do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec

from sag_research.errors import UsageError
from sag_research.llm._asking import arguments_of
from sag_research.llm._errors import MalformedReply, ModelError, ServerFailed
from sag_research.llm._records import Chunk, Message, Reply, Request, Tool, ToolCall
from sag_research.llm._remote import (
    RemoteModel,
    ToolCallParts,
    http_errors,
    status_error,
    transport_error,
)

__all__ = ["OpenAICompatible", "as_data", "stainless_error"]


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: str | None = None


class _Call(msgspec.Struct):
    function: _Function
    id: str | None = None
    index: int = 0


class _Said(msgspec.Struct):
    content: str | None = None
    refusal: str | None = None
    tool_calls: list[_Call] | None = None


class _Choice(msgspec.Struct):
    message: _Said
    finish_reason: str | None = None


class _ChoicePart(msgspec.Struct):
    delta: _Said
    finish_reason: str | None = None


class _Counts(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class _Completion(msgspec.Struct):
    choices: list[_Choice]
    model: str | None = None
    usage: _Counts | None = None


class _CompletionPart(msgspec.Struct):
    choices: list[_ChoicePart] = []
    model: str | None = None
    usage: _Counts | None = None


class OpenAICompatible(RemoteModel):
    """A model behind an OpenAI-compatible endpoint, through the package ``openai``.

    Parameters
    ----------
    model : str
        As the endpoint names it.
    api_key : str, optional
        Default: ``$OPENAI_API_KEY``. It is sent to the endpoint and appears nowhere else.
    base_url : str, optional
        E.g. ``https://openrouter.ai/api/v1`` or ``http://localhost:11434/v1``.
    prices : mapping, optional
        US dollars for a million tokens in and out by model; without it costs are unknown.
    timeout : float
        Seconds to wait for the endpoint to say anything.
    retry : Retry, optional
    headers : mapping, optional
        Further HTTP headers; never recorded.

    Examples
    --------
    >>> OpenAICompatible("small", base_url="http://localhost:11434/v1").identity()
    Identity(provider='openai', model='small', base_url='http://localhost:11434/v1')
    """

    provider = "openai"
    package = "openai"
    key_variables = ("OPENAI_API_KEY",)
    default_url = "https://api.openai.com/v1"

    def _connect(self, library: Any, key: str) -> Any:
        return library.OpenAI(
            api_key=key,
            base_url=self._url,
            timeout=self.timeout,
            max_retries=0,
            default_headers=self._headers,
        )

    def _send(self, client: Any, request: Request) -> Reply:
        answer = client.chat.completions.create(**self._arguments(request))
        completion = self._read(as_data(answer), _Completion)
        if not completion.choices:
            raise MalformedReply(f"{self.provider} sent an answer without a choice")
        choice = completion.choices[0]
        said = choice.message
        parts = ToolCallParts(arguments_of)
        for index, call in enumerate(said.tool_calls or []):
            parts.add(index, call.id or "", call.function.name or "", call.function.arguments or "")
        counts = completion.usage or _Counts()
        return Reply(
            text=said.content if said.refusal is None else said.refusal,
            calls=parts.calls(),
            usage=self._priced(counts.prompt_tokens, counts.completion_tokens),
            finish="refusal" if said.refusal is not None else choice.finish_reason,
            model=completion.model,
        )

    def _receive(self, client: Any, request: Request) -> Iterator[Chunk]:
        arguments = self._arguments(request)
        parts, counts, finish, model = ToolCallParts(arguments_of), _Counts(), None, None
        with client.chat.completions.create(
            **arguments, stream=True, stream_options={"include_usage": True}
        ) as answer:
            for raw in answer:
                part = self._read(as_data(raw), _CompletionPart)
                counts, model = part.usage or counts, part.model or model
                for choice in part.choices[:1]:
                    finish = choice.finish_reason or finish
                    for call in choice.delta.tool_calls or []:
                        function = call.function
                        parts.add(
                            call.index, call.id or "", function.name or "", function.arguments or ""
                        )
                    if text := choice.delta.content or choice.delta.refusal:
                        yield Chunk(text=text)
        usage = self._priced(counts.prompt_tokens, counts.completion_tokens)
        yield Chunk(calls=parts.calls(), usage=usage, finish=finish, model=model)

    def _arguments(self, request: Request) -> dict[str, Any]:
        if request.choices:
            raise UsageError(
                f"{self.provider} cannot be held to choices", fix="use Local, or an output_schema"
            )
        system = [Message(role="system", content=request.system)] if request.system else []
        arguments: dict[str, Any] = {
            "model": self.model,
            "messages": [_message(message) for message in (*system, *request.messages)],
            "extra_body": dict(request.parameters),
        }
        if request.tools:
            arguments["tools"] = [_tool(tool) for tool in request.tools]
        if request.output_schema is not None:
            schema = {"name": "answer", "schema": request.output_schema, "strict": True}
            arguments["response_format"] = {"type": "json_schema", "json_schema": schema}
        return arguments

    def _raised(self, library: Any) -> tuple[type[Exception], ...]:
        return (library.OpenAIError, json.JSONDecodeError, *http_errors())

    def _translate(self, library: Any, error: Exception) -> ModelError:
        if isinstance(error, library.APIStatusError):
            after = error.response.headers.get("retry-after")
            return status_error(self.provider, error.status_code, str(error), after)
        return stainless_error(self.provider, library, error)


def stainless_error(provider: str, library: Any, error: Exception) -> ModelError:
    """Translate what the client libraries of OpenAI and Anthropic raise beside HTTP statuses."""
    if isinstance(error, (json.JSONDecodeError, library.APIResponseValidationError)):
        return MalformedReply(f"{provider} sent an answer that is no JSON", why=str(error))
    if isinstance(error, (library.APITimeoutError, *http_errors("TimeoutException"))):
        return transport_error(provider, error, timed_out=True)
    if isinstance(error, (library.APIConnectionError, *http_errors())):
        return transport_error(provider, error, timed_out=False)
    body = getattr(error, "body", None)
    return ServerFailed(f"{provider} failed", why=str(error), text=str(body or error))


def as_data(answer: Any) -> Any:
    """Return a client's record as plain data; what the client could not read stays as it is."""
    return answer.to_dict(mode="json", warnings=False) if hasattr(answer, "to_dict") else answer


def _message(message: Message) -> dict[str, Any]:
    written: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.role == "tool":
        written["tool_call_id"] = message.call_id
    if message.calls:
        written["tool_calls"] = [_call(call) for call in message.calls]
    return written


def _call(call: ToolCall) -> dict[str, Any]:
    arguments = call.arguments
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": text}}


def _tool(tool: Tool) -> dict[str, Any]:
    function = {
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters or {"type": "object", "properties": {}},
    }
    return {"type": "function", "function": function}
