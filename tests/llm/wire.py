"""A real HTTP server on the loopback address that speaks three providers' wire formats.

It answers from a script of behaviours, one a request, and keeps what it was sent.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

WORDS = ["The ", "answer ", "is ", "4."]
TEXT = "".join(WORDS)
ERROR = {"type": "overloaded_error", "code": 503, "message": "overloaded", "status": "UNAVAILABLE"}
ERROR_EVENT = f"data: {json.dumps({'type': 'error', 'error': ERROR})}\n\n"


@dataclass
class Sent:
    path: str
    headers: dict[str, str]
    body: dict[str, Any]


@dataclass
class Provider:
    """What the server is to do, and what it saw."""

    url: str = ""
    script: list[str] = field(default_factory=list)
    sent: list[Sent] = field(default_factory=list)
    answer: str = TEXT
    call: bool = False
    """Answer with a tool call as well."""
    arguments: str = '{"city": "Oslo"}'
    release: threading.Event = field(default_factory=threading.Event)
    """Ends the silence of requests that are to time out."""

    def then(self, *behaviours: str) -> None:
        self.script += behaviours


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    provider: Provider

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_POST(self) -> None:
        provider = self.provider
        raw = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        provider.sent.append(Sent(self.path, headers, json.loads(raw or b"{}")))
        behaviour = provider.script.pop(0) if provider.script else "ok"
        code, _, rest = behaviour.partition(" ")
        if code.isdigit():
            self.refuse(int(code), rest)
        elif behaviour == "silent":
            provider.release.wait(20)
            self.close_connection = True
        elif behaviour == "hang-up":
            self.close_connection = True
        elif behaviour == "malformed":
            self.whole(b'{"choices": [{"mess')
        elif behaviour == "wrong-shape":
            self.whole(b'{"choices": 7, "content": 7, "candidates": 7}')
        elif behaviour == "empty-object":
            self.whole(b"{}")
        elif behaviour == "html":
            self.whole(b"<html>sign in</html>", "text/html")
        elif behaviour == "cut-body":
            self.cut_body()
        elif self.wants_stream():
            self.stream(behaviour)
        else:
            self.whole(json.dumps(self.dialect().whole(provider)).encode())

    def dialect(self) -> type[OpenAI] | type[Claude] | type[Google]:
        if "/chat/completions" in self.path:
            return OpenAI
        return Claude if "/messages" in self.path else Google

    def wants_stream(self) -> bool:
        return "stream" in self.path or bool(self.provider.sent[-1].body.get("stream"))

    def whole(self, body: bytes, kind: str = "application/json") -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def cut_body(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", "4000")
        self.end_headers()
        self.wfile.write(b'{"choices": [')
        self.close_connection = True

    def refuse(self, status: int, retry_after: str) -> None:
        key = self.headers.get("x-api-key") or self.headers.get("x-goog-api-key")
        key = key or self.headers.get("Authorization", "").removeprefix("Bearer ")
        message = f"no {status} for key {key}"
        error = {"code": status, "message": message, "status": "REFUSED", "type": "refused"}
        body = json.dumps({"type": "error", "error": error}).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if retry_after:
            self.send_header("Retry-After", retry_after)
        self.end_headers()
        self.wfile.write(body)

    def stream(self, behaviour: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        events = self.dialect().events(self.provider)
        if behaviour in {"cut", "end-early", "bad-event", "stall", "error-event"}:
            events = events[: self.dialect().before_end]
        if behaviour in {"error-first", "error-event"}:
            named = "" if self.dialect() is Google else "event: error\n"
            events = [*(events if behaviour == "error-event" else []), named + ERROR_EVENT]
        for event in events:
            self.chunk(event.encode())
        if behaviour == "bad-event":
            self.chunk(b'event: content_block_delta\ndata: {"choices": [{"del\n\n')
        if behaviour == "stall":
            self.provider.release.wait(20)
        if behaviour in {"cut", "stall"}:
            self.close_connection = True  # without the chunk that ends the body
        else:
            self.chunk(b"")

    def chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()


class OpenAI:
    before_end = 3

    @staticmethod
    def whole(provider: Provider) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": provider.answer}
        if provider.call:
            function = {"name": "weather", "arguments": provider.arguments}
            message["tool_calls"] = [{"id": "c1", "type": "function", "function": function}]
        return {
            "id": "x", "object": "chat.completion", "created": 1, "model": "served-model",
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18},
        }  # fmt: skip

    @staticmethod
    def events(provider: Provider) -> list[str]:
        deltas: list[dict[str, Any]] = [{"content": word} for word in words(provider)]
        if provider.call:
            half = len(provider.arguments) // 2
            first = {"name": "weather", "arguments": provider.arguments[:half]}
            last = {"arguments": provider.arguments[half:]}
            deltas.append({"tool_calls": [{"index": 0, "id": "c1", "function": first}]})
            deltas.append({"tool_calls": [{"index": 0, "function": last}]})
        choices = [[{"index": 0, "delta": delta, "finish_reason": None}] for delta in deltas]
        choices.append([{"index": 0, "delta": {}, "finish_reason": "stop"}])
        frame = {"id": "x", "object": "chat.completion.chunk", "created": 1}
        frame["model"] = "served-model"
        parts: list[dict[str, Any]] = [{**frame, "choices": choice} for choice in choices]
        usage = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
        parts.append({**frame, "choices": [], "usage": usage})
        return [f"data: {json.dumps(part)}\n\n" for part in parts] + ["data: [DONE]\n\n"]


class Claude:
    before_end = 4

    @staticmethod
    def whole(provider: Provider) -> dict[str, Any]:
        content: list[dict[str, Any]] = [{"type": "text", "text": provider.answer}]
        if provider.call:
            given = json.loads(provider.arguments)
            content.append({"type": "tool_use", "id": "c1", "name": "weather", "input": given})
        return {
            "id": "x", "type": "message", "role": "assistant", "model": "served-model",
            "content": content, "stop_reason": "end_turn", "stop_sequence": None,
            "usage": {"input_tokens": 11, "output_tokens": 7},
        }  # fmt: skip

    @staticmethod
    def events(provider: Provider) -> list[str]:
        start = {**Claude.whole(provider), "content": [], "stop_reason": None}
        start["usage"] = {"input_tokens": 11, "output_tokens": 1}
        block: dict[str, Any] = {"type": "text", "text": ""}
        events: list[dict[str, Any]] = [
            {"type": "message_start", "message": start},
            {"type": "content_block_start", "index": 0, "content_block": block},
        ]
        for word in words(provider):
            delta = {"type": "text_delta", "text": word}
            events.append({"type": "content_block_delta", "index": 0, "delta": delta})
        events.append({"type": "content_block_stop", "index": 0})
        if provider.call:
            use = {"type": "tool_use", "id": "c1", "name": "weather", "input": {}}
            events.append({"type": "content_block_start", "index": 1, "content_block": use})
            half = len(provider.arguments) // 2
            for text in (provider.arguments[:half], provider.arguments[half:]):
                delta = {"type": "input_json_delta", "partial_json": text}
                events.append({"type": "content_block_delta", "index": 1, "delta": delta})
            events.append({"type": "content_block_stop", "index": 1})
        stop = {"stop_reason": "end_turn", "stop_sequence": None}
        events.append({"type": "message_delta", "delta": stop, "usage": {"output_tokens": 7}})
        events.append({"type": "message_stop"})
        return [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events]


class Google:
    before_end = 2

    @staticmethod
    def whole(provider: Provider) -> dict[str, Any]:
        parts: list[dict[str, Any]] = [{"text": provider.answer}]
        if provider.call:
            call = {"name": "weather", "args": json.loads(provider.arguments)}
            parts.append({"functionCall": call, "thoughtSignature": "c2ln"})
        return Google.part(parts, "STOP")

    @staticmethod
    def part(parts: list[dict[str, Any]], finish: str | None) -> dict[str, Any]:
        candidate: dict[str, Any] = {"content": {"role": "model", "parts": parts}, "index": 0}
        if finish:
            candidate["finishReason"] = finish
        counts = {"promptTokenCount": 11, "candidatesTokenCount": 5, "thoughtsTokenCount": 2}
        return {
            "candidates": [candidate], "modelVersion": "served-model", "usageMetadata": counts
        }  # fmt: skip

    @staticmethod
    def events(provider: Provider) -> list[str]:
        pieces: list[list[dict[str, Any]]] = [[{"text": word}] for word in words(provider)]
        if provider.call:
            call = {"name": "weather", "args": json.loads(provider.arguments)}
            pieces.append([{"functionCall": call, "thoughtSignature": "c2ln"}])
        last = len(pieces) - 1
        parts = [Google.part(p, "STOP" if n == last else None) for n, p in enumerate(pieces)]
        return [f"data: {json.dumps(part)}\r\n\r\n" for part in parts]


def words(provider: Provider) -> list[str]:
    """The answer in pieces that keep their blank."""
    pieces = provider.answer.split(" ")
    return [piece + " " for piece in pieces[:-1]] + [pieces[-1]]


@contextmanager
def serving() -> Iterator[Provider]:
    """Run the server for the length of a block."""
    provider = Provider()
    handler = type("BoundHandler", (Handler,), {"provider": provider})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    provider.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield provider
    finally:
        provider.release.set()
        server.shutdown()
        thread.join()
        server.server_close()
