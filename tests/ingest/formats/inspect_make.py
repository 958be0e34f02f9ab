"""Small Inspect logs of every shape, written for the tests."""

from __future__ import annotations

import io
import json
import struct
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import zstandard

from sag_research.ingest._source import Source
from sag_research.ingest.formats.inspect import Inspect
from tests.ingest.make import write


def read(path: Path, value: Any) -> tuple[list[Any], Any]:
    """Write a log and read it: the runs, and the reading."""
    reading = Inspect().read(Source(write(path, value)))
    return list(reading), reading


# ---- samples


def span(name: str, kind: str | None = None, parent: str | None = None) -> dict[str, Any]:
    return {"event": "span_begin", "id": name, "name": name, "type": kind, "parent_id": parent}


def user(text: str, number: int = 0) -> dict[str, Any]:
    return {"id": f"u{number}", "role": "user", "content": text}


def asked(call_id: str, name: str = "bash", **arguments: Any) -> dict[str, Any]:
    return {"id": call_id, "function": name, "arguments": arguments, "type": "function"}


def reply(
    name: str, text: str, *calls: dict[str, Any], sent: Any = None, where: str = "main", **more: Any
) -> dict[str, Any]:
    """An event of the model: 10 tokens in, 5 out."""
    message = {"id": name, "role": "assistant", "content": text, "source": "generate"}
    message |= {"tool_calls": list(calls)} if calls else {}
    return {
        "event": "model",
        "span_id": where,
        "timestamp": "2025-01-01T00:00:10+00:00",
        "model": "some/model",
        "input": [user("Go.")] if sent is None else sent,
        "output": {
            "model": "some-model-1",
            "choices": [{"message": message, "stop_reason": "stop"}],
            "usage": {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15},
        },
        **more,
    }


def ran(call_id: str, result: Any, where: str = "main", **more: Any) -> dict[str, Any]:
    return {
        "event": "tool",
        "span_id": where,
        "id": call_id,
        "function": "bash",
        "arguments": {},
        "result": result,
        "working_time": 1.5,
        **more,
    }


def sample(*events: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A sample whose agent looks and answers, unless other events are given."""
    return {
        "id": "s1",
        "epoch": 1,
        "input": "What is here?",
        "target": "a.py",
        "messages": [user("Go."), {"id": "m2", "role": "assistant", "content": "It is a.py."}],
        "output": {"choices": []},
        "scores": {"match": {"value": "C", "answer": "a.py"}},
        "model_usage": {"some/model": {"input_tokens": 20, "output_tokens": 10}},
        "total_time": 9.0,
        "working_time": 8.0,
        "events": list(events)
        or [
            {"event": "sample_init", "sample": {"id": "s1"}},
            span("main", "solver"),
            reply("m1", "I look.", asked("c1", cmd="ls")),
            ran("c1", "a.py"),
            {"event": "state", "changes": [{"op": "add", "path": "/a", "value": 1}]},
            reply("m2", "It is a.py."),
            {"event": "span_end", "id": "main"},
        ],
        "attachments": {},
        **more,
    }


def header(**more: Any) -> dict[str, Any]:
    return {
        "version": 2,
        "status": "success",
        "eval": {
            "task": "looking",
            "run_id": "r",
            "created": "2025-01-01T00:00:00+00:00",
            "dataset": {"name": "a-set", "samples": 1},
            "model": "some/model",
            "config": {},
            "packages": {"inspect_ai": "0.3.100"},
        },
        "plan": {"steps": [{"solver": "system_message"}, {"solver": "react"}]},
        "results": {"scores": [{"name": "match", "metrics": {"accuracy": {"value": 1.0}}}]},
        "stats": {},
        **more,
    }


def log(*samples: Any, **more: Any) -> dict[str, Any]:
    """A log as one object."""
    return {**header(**more), "samples": list(samples) or [sample()]}


# ---- archives


def entries(*samples: dict[str, Any], **more: Any) -> dict[str, Any]:
    """The entries of an archive by name, in the order in which they are written."""
    found = {"_journal/start.json": header()}
    for one in samples or (sample(),):
        found[f"samples/{one['id']}_epoch_{one['epoch']}.json"] = one
    summaries = [{"id": one["id"], "epoch": one["epoch"]} for one in samples or (sample(),)]
    return found | {"summaries.json": summaries, "header.json": header(**more)}


def deflated(files: dict[str, Any]) -> bytes:
    """An archive as older versions wrote it."""
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, value in files.items():
            archive.writestr(name, encoded(value))
    return whole.getvalue()


def encoded(value: Any) -> bytes:
    return value if isinstance(value, bytes) else json.dumps(value).encode()


def zipped(
    files: dict[str, Any] | Iterable[tuple[str, Any]], method: int = 93, later: bool = False
) -> bytes:
    """An archive packed entry by entry: 93 is zstd; ``later``: sizes stand behind the data."""
    whole, directory = b"", b""
    for name, value in files.items() if isinstance(files, dict) else files:
        plain = encoded(value)
        packed = pack(plain, method)
        sizes = (zlib.crc32(plain), len(packed), len(plain))
        flags = 0x808 if later else 0x800
        common = struct.pack("<HHHHHIII", 63, flags, method, 0, 0, *((0, 0, 0) if later else sizes))
        central = struct.pack("<HHHHHIII", 63, flags, method, 0, 0, *sizes)
        lengths = struct.pack("<HH", len(name.encode()), 0)
        place = len(whole)
        whole += b"PK\x03\x04" + common + lengths + name.encode() + packed
        whole += b"PK\x07\x08" + struct.pack("<III", *sizes) if later else b""
        directory += b"PK\x01\x02" + struct.pack("<H", 63) + central + lengths
        directory += struct.pack("<HHHII", 0, 0, 0, 0, place) + name.encode()
    count = directory.count(b"PK\x01\x02")
    end = struct.pack("<HHHHIIH", 0, 0, count, count, len(directory), len(whole), 0)
    return whole + directory + b"PK\x05\x06" + end


def pack(plain: bytes, method: int) -> bytes:
    if method == 93:
        return zstandard.ZstdCompressor().compress(plain)
    if method == 8:
        stream = zlib.compressobj(wbits=-zlib.MAX_WBITS)
        return stream.compress(plain) + stream.flush()
    return plain
