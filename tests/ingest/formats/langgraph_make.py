"""Small LangGraph checkpoint files, written for the tests."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import msgspec

TABLES = """
CREATE TABLE checkpoints (
    thread_id TEXT NOT NULL, checkpoint_ns TEXT NOT NULL DEFAULT '', checkpoint_id TEXT NOT NULL,
    parent_checkpoint_id TEXT, type TEXT, checkpoint BLOB, metadata BLOB,
    PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id));
CREATE TABLE writes (
    thread_id TEXT NOT NULL, checkpoint_ns TEXT NOT NULL DEFAULT '', checkpoint_id TEXT NOT NULL,
    task_id TEXT NOT NULL, task_path TEXT NOT NULL DEFAULT '', idx INTEGER NOT NULL,
    channel TEXT NOT NULL, type TEXT, value BLOB,
    PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id, task_id, idx));
"""


def packed(value: Any) -> bytes:
    return msgspec.msgpack.encode(value)


def an_object(module: str, name: str, value: Any, code: int = 5) -> msgspec.msgpack.Ext:
    """An object of a class, as LangGraph packs it."""
    return msgspec.msgpack.Ext(code, packed((module, name, value, "model_validate_json")))


def message(name: str, text: str, **more: Any) -> msgspec.msgpack.Ext:
    kind = {"AIMessage": "ai", "HumanMessage": "human", "ToolMessage": "tool"}[name]
    value = {"content": text, "type": kind, **more}
    return an_object(f"langchain_core.messages.{kind}", name, value)


def called(text: str, command: str, call_id: str, **more: Any) -> msgspec.msgpack.Ext:
    call = {"name": "bash", "args": {"command": command}, "id": call_id, "type": "tool_call"}
    return message("AIMessage", text, tool_calls=[call], **more)


def answered(text: str, call_id: str, **more: Any) -> msgspec.msgpack.Ext:
    return message("ToolMessage", text, tool_call_id=call_id, **more)


class Maker:
    """Writes a file, checkpoint by checkpoint."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.db = sqlite3.connect(path)
        self.db.executescript(TABLES)

    def checkpoint(
        self,
        own: str,
        parent: str | None = None,
        source: str = "loop",
        step: Any = 1,
        values: Any = None,
        seen: Any = None,
        thread: str = "t1",
        namespace: str = "",
        parents: Any = None,
        body: bytes | None = None,
    ) -> None:
        content = {
            "v": 4,
            "ts": "2026-01-01T00:00:00+00:00",
            "id": own,
            "channel_values": values or {},
            "versions_seen": seen or {},
        }
        about = json.dumps({"source": source, "step": step, "parents": parents or {}}).encode()
        data = packed(content) if body is None else body
        row = (thread, namespace, own, parent, "msgpack", data, about)
        self.db.execute("INSERT INTO checkpoints VALUES (?, ?, ?, ?, ?, ?, ?)", row)

    def write(
        self,
        on: str,
        node: str,
        channel: str,
        value: Any,
        idx: int = 0,
        thread: str = "t1",
        namespace: str = "",
        kind: str = "msgpack",
    ) -> None:
        data = value if kind != "msgpack" else packed(value)
        path = f"~__pregel_pull, {node}" if node else ""
        row = (thread, namespace, on, f"task-{node}", path, idx, channel, kind, data)
        self.db.execute("INSERT INTO writes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)

    def done(self) -> Path:
        self.db.commit()
        self.db.close()
        return self.path


def forked(path: Path) -> Path:
    """a, b; an update behind a, b; a replay from a, b: three leaves, step 3 twice."""
    maker = Maker(path)
    maker.checkpoint("c1", None, "input", -1, {"__start__": {"foo": "", "bar": []}})
    maker.checkpoint("c2", "c1", "loop", 0, {"foo": "", "bar": [], "branch:to:a": None})
    maker.write("c1", "__start__", "foo", "")
    maker.checkpoint("c3", "c2", step=1, values={"foo": "a", "bar": ["a"], "branch:to:b": None})
    maker.write("c2", "a", "foo", "a")
    maker.write("c2", "a", "bar", ["a"], 1)
    maker.checkpoint("c4", "c3", step=2, values={"foo": "b", "bar": ["a", "b"]})
    maker.write("c3", "b", "foo", "b")
    maker.checkpoint("c5", "c3", "update", 2, {"foo": "forked", "bar": ["a", "X"]})
    maker.checkpoint("c6", "c5", step=3, values={"foo": "b", "bar": ["a", "X", "b"]})
    maker.write("c5", "b", "foo", "b")
    maker.checkpoint("c7", "c3", "fork", 2, {"foo": "a", "bar": ["a"], "branch:to:b": None})
    maker.checkpoint("c8", "c7", step=3, values={"foo": "b", "bar": ["a", "b"]})
    maker.write("c7", "b", "foo", "b")
    return maker.done()


def talk(path: Path) -> Path:
    """An agent that calls a tool, and answers; then a person asks again."""
    maker = Maker(path)
    asked = message("HumanMessage", "Mend it.")
    maker.checkpoint("c1", None, "input", -1, {"__start__": {"messages": [asked]}})
    maker.checkpoint("c2", "c1", step=0)
    maker.write("c1", "__start__", "messages", [asked])
    maker.checkpoint("c3", "c2", step=1)
    used = {"input_tokens": 10, "output_tokens": 4}
    about = {"model_name": "some-model"}
    reply = called("Look.", "ls", "k1", usage_metadata=used, response_metadata=about)
    maker.write("c2", "agent", "messages", [reply])
    maker.checkpoint("c4", "c3", step=2)
    maker.write("c3", "tools", "messages", [answered("a.py", "k1")])
    maker.checkpoint("c5", "c4", step=3)
    maker.write("c4", "agent", "messages", message("AIMessage", "Done."))
    maker.checkpoint("c6", "c5", "input", 4, {"__start__": {"messages": ["Again."]}})
    maker.checkpoint("c7", "c6", step=5)
    maker.write("c6", "__start__", "messages", ["Again."])
    maker.checkpoint("c8", "c7", step=6)
    maker.write("c7", "agent", "messages", [message("AIMessage", "No.")])
    return maker.done()
