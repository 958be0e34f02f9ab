"""Google's Gemini, through the package ``google-genai``."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import msgspec

from sag_research.errors import UsageError
from sag_research.llm._asking import optional
from sag_research.llm._errors import MalformedReply, ModelError
from sag_research.llm._records import Chunk, Message, Reply, Request, ToolCall
from sag_research.llm._remote import RemoteModel, http_errors, status_error, transport_error

__all__ = ["Gemini"]

_NAMES: Final = {"max_tokens": "max_output_tokens", "stop": "stop_sequences"}


class _FunctionCall(msgspec.Struct):
    name: str
    id: str | None = None
    args: Any = None


class _Part(msgspec.Struct):
    text: str | None = None
    thought: bool | None = None
    function_call: _FunctionCall | None = None
    thought_signature: str | None = None


class _Content(msgspec.Struct):
    parts: list[_Part] | None = None


class _Candidate(msgspec.Struct):
    content: _Content | None = None
    finish_reason: str | None = None


class _Counts(msgspec.Struct):
    prompt_token_count: int | None = None
    candidates_token_count: int | None = None
    thoughts_token_count: int | None = None


class _Feedback(msgspec.Struct):
    block_reason: str | None = None


class _Answer(msgspec.Struct):
    candidates: list[_Candidate] | None = None
    model_version: str | None = None
    usage_metadata: _Counts | None = None
    prompt_feedback: _Feedback | None = None


class Gemini(RemoteModel):
    """A Gemini model, through the package ``google-genai``.

    Parameters are those of :class:`OpenAICompatible`; the key's default is ``$GEMINI_API_KEY``,
    else ``$GOOGLE_API_KEY``. Thoughts are counted as tokens out and left out of the text.

    Examples
    --------
    >>> Gemini("gemini-x").identity().provider
    'gemini'
    """

    provider = "gemini"
    package = "google-genai"
    key_variables = ("GEMINI_API_KEY", "GOOGLE_API_KEY")
    default_url = "https://generativelanguage.googleapis.com"

    def _library(self) -> Any:
        return optional("google.genai", self.package, self.extra)

    def _connect(self, library: Any, key: str) -> Any:
        options = library.types.HttpOptions(
            base_url=self._url,
            timeout=round(self.timeout * 1000),
            headers=self._headers,
            retry_options=library.types.HttpRetryOptions(attempts=1),
        )
        return library.Client(api_key=key, http_options=options, enterprise=False)

    def _send(self, client: Any, request: Request) -> Reply:
        arguments = _arguments(self._library(), self.model, request)
        answer = self._answer(_read_by_library(lambda: client.models.generate_content(**arguments)))
        if not answer.candidates:
            blocked = answer.prompt_feedback and answer.prompt_feedback.block_reason
            if not blocked:
                raise MalformedReply("gemini sent an answer without a candidate")
            return Reply(text=None, finish=blocked, usage=self._usage(answer))
        candidate = answer.candidates[0]
        parts = _parts(candidate)
        texts = [part.text for part in parts if part.text is not None and not part.thought]
        return Reply(
            text="".join(texts) if texts else None,
            calls=_calls(parts, 0),
            usage=self._usage(answer),
            finish=candidate.finish_reason,
            model=answer.model_version,
        )

    def _receive(self, client: Any, request: Request) -> Iterator[Chunk]:
        arguments = _arguments(self._library(), self.model, request)
        calls: list[ToolCall] = []
        last, finish = _Answer(), None
        answers = client.models.generate_content_stream(**arguments)
        while (raw := _read_by_library(lambda: next(answers, None))) is not None:
            last = self._answer(raw)
            for candidate in (last.candidates or [])[:1]:
                finish = candidate.finish_reason or finish
                parts = _parts(candidate)
                calls += _calls(parts, len(calls))
                if text := "".join(part.text or "" for part in parts if not part.thought):
                    yield Chunk(text=text)
            if last.prompt_feedback is not None:
                finish = last.prompt_feedback.block_reason or finish
        yield Chunk(
            calls=tuple(calls), usage=self._usage(last), finish=finish, model=last.model_version
        )

    def _answer(self, raw: Any) -> _Answer:
        return self._read(raw.model_dump(mode="json", exclude_none=True), _Answer)

    def _usage(self, answer: _Answer) -> Any:
        counts = answer.usage_metadata or _Counts()
        tokens_out = counts.candidates_token_count
        if counts.thoughts_token_count is not None:
            tokens_out = (tokens_out or 0) + counts.thoughts_token_count
        return self._priced(counts.prompt_token_count, tokens_out)

    def _raised(self, library: Any) -> tuple[type[Exception], ...]:
        pydantic = optional("pydantic", self.package, self.extra)
        unreadable = (library.errors.UnknownApiResponseError, pydantic.ValidationError)
        return (library.errors.APIError, json.JSONDecodeError, *unreadable, *http_errors())

    def _translate(self, library: Any, error: Exception) -> ModelError:
        if isinstance(error, library.errors.APIError):
            headers = getattr(error.response, "headers", None) or {}
            message = str(error.message or error.details)
            return status_error(self.provider, error.code, message, headers.get("retry-after"))
        if isinstance(error, http_errors()):
            timed_out = isinstance(error, http_errors("TimeoutException"))
            return transport_error(self.provider, error, timed_out=timed_out)
        return MalformedReply("gemini sent an answer that cannot be read", why=str(error)[:300])


def _read_by_library(step: Callable[[], Any]) -> Any:
    """Let the library read an answer; one of a wrong shape makes it stumble over itself."""
    try:
        return step()
    except (AttributeError, KeyError, TypeError) as error:
        raise MalformedReply("gemini sent an answer that cannot be read", why=str(error)) from None


def _parts(candidate: _Candidate) -> list[_Part]:
    return (candidate.content.parts if candidate.content is not None else None) or []


def _calls(parts: Sequence[_Part], before: int) -> tuple[ToolCall, ...]:
    """Read tool calls; where the provider gives no id, their number is one."""
    found = [(part, part.function_call) for part in parts if part.function_call is not None]
    return tuple(
        ToolCall(
            id=call.id or f"call_{before + number}",
            name=call.name,
            arguments=call.args if call.args is not None else {},
            signature=part.thought_signature or "",
        )
        for number, (part, call) in enumerate(found)
    )


def _arguments(library: Any, model: str, request: Request) -> dict[str, Any]:
    if request.choices:
        raise UsageError("gemini cannot be held to choices", fix="use Local, or an output_schema")
    config = {_NAMES.get(name, name): value for name, value in request.parameters.items()}
    if isinstance(config.get("stop_sequences"), str):
        config["stop_sequences"] = [config["stop_sequences"]]
    systems = [m.content for m in request.messages if m.role == "system"]
    if system := "\n\n".join(text for text in (request.system, *systems) if text):
        config["system_instruction"] = system
    if request.tools:
        declared = [
            {"name": t.name, "description": t.description, "parameters_json_schema": t.parameters}
            for t in request.tools
        ]
        config["tools"] = [{"function_declarations": declared}]
        config["automatic_function_calling"] = {"disable": True}
    if request.output_schema is not None:
        config["response_mime_type"] = "application/json"
        config["response_json_schema"] = request.output_schema
    try:
        checked = library.types.GenerateContentConfig(**config)
    except ValueError as error:
        raise UsageError("gemini does not take these parameters", why=str(error)) from None
    contents = _contents([m for m in request.messages if m.role != "system"])
    return {"model": model, "contents": contents, "config": checked}


def _contents(messages: list[Message]) -> list[dict[str, Any]]:
    """Write messages in turns of user and model; a tool's result is the user's turn."""
    names = {call.id: call.name for message in messages for call in message.calls}
    turns: list[dict[str, Any]] = []
    for message in messages:
        role = "model" if message.role == "assistant" else "user"
        if not turns or turns[-1]["role"] != role:
            turns.append({"role": role, "parts": []})
        turns[-1]["parts"] += _written(message, names)
    return turns


def _written(message: Message, names: dict[str, str]) -> list[dict[str, Any]]:
    if message.role == "tool":
        name = message.name or names.get(message.call_id, "")
        result = {"name": name, "response": {"result": message.content}}
        return [{"function_response": result}]
    parts: list[dict[str, Any]] = [{"text": message.content}] if message.content else []
    for call in message.calls:
        given = call.arguments if isinstance(call.arguments, dict) else {"text": call.arguments}
        part: dict[str, Any] = {"function_call": {"name": call.name, "args": given}}
        if call.signature:
            part["thought_signature"] = base64.b64decode(call.signature, altchars=b"-_")
        parts.append(part)
    return parts
