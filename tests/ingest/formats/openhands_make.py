"""Small OpenHands files of every shape, written for the tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from sag_research.ingest._source import Source
from sag_research.ingest._walk import find
from tests.ingest.make import tool_call, write


def read(format_: Any, path: Path, value: Any) -> tuple[list[Any], Any]:
    """Write a file and read it: the runs, and the reading."""
    reading = format_.read(Source(write(path, value)))
    return list(reading), reading


def read_folder(format_: Any, folder: Path) -> tuple[list[Any], Any]:
    """Read a folder of events as the one source that it is."""
    (found,) = [one for one in find([folder]) if one.members]
    reading = format_.read(Source(found.path, found.name, found.root, found.members))
    return list(reading), reading


def lines(*records: Any) -> bytes:
    return b"\n".join(
        one if isinstance(one, bytes) else json.dumps(one).encode() for one in records
    )


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)  # fmt: skip


@st.composite
def damaged(draw: Any, value: Any) -> Any:
    """The value with a few of its parts replaced by any JSON, or taken away."""
    value = json.loads(json.dumps(value))
    for _ in range(draw(st.integers(1, 4))):
        places = list(_places(value))
        if not places:
            break
        holder, key = draw(st.sampled_from(places))
        if draw(st.booleans()):
            holder[key] = draw(JSON)
        else:
            del holder[key]
    return value


@st.composite
def bitten(draw: Any, data: bytes) -> bytes:
    """The bytes with a few of them changed, cut out or put in."""
    found = bytearray(data)
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, len(found)))
        found[place : place + draw(st.integers(0, 9))] = draw(st.binary(max_size=6))
    return bytes(found)


def _places(value: Any) -> Any:
    """Yield each object or list with each of its keys."""
    if isinstance(value, (dict, list)):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield value, key
            yield from _places(value[key])


# ---- V0


def response(response_id: str, *calls: dict[str, Any], **more: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": "I look.", "tool_calls": list(calls)}
    return {
        "id": response_id,
        "model": "some/model",
        "choices": [{"message": message}],
        "usage": {"prompt_tokens": 100, "completion_tokens": 7},
        **more,
    }


def action(number: int, kind: str, args: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "id": number,
        "timestamp": f"2025-01-01T00:00:{number % 60:02}",
        "source": "agent",
        "message": "",
        "action": kind,
        "args": args,
        **more,
    }


def seen(number: int, cause: int | None, content: str, kind: str = "run", **extras: Any) -> Any:
    event = {
        "id": number,
        "timestamp": f"2025-01-01T00:00:{number % 60:02}.5",
        "source": "agent",
        "message": "",
        "observation": kind,
        "content": content,
        "extras": extras,
    }
    return event if cause is None else {**event, "cause": cause}


def ran(number: int, cause: int, content: str, code: int = 0) -> dict[str, Any]:
    about = {"exit_code": code, "pid": -1}
    return {**seen(number, cause, content, metadata=about), "success": code == 0}


def v0_events() -> list[dict[str, Any]]:
    """A run of three turns: two calls in one reply, a long process, an end."""
    both = response("r1", tool_call("execute_bash", {"command": "ls"}, "c1"),
                    tool_call("execute_bash", {"command": "pwd"}, "c2"))  # fmt: skip
    last = response("r3", tool_call("finish", {"message": "done"}, "c4"))

    def about(name: str, call_id: str, reply: dict[str, Any]) -> dict[str, Any]:
        return {"function_name": name, "tool_call_id": call_id, "model_response": reply}

    return [
        action(0, "system", {"content": "You help.", "agent_class": "CodeActAgent"}),
        {**action(1, "message", {"content": "Mend it."}), "source": "user"},
        action(2, "recall", {"query": "Mend it."}, source="user"),
        seen(3, 2, "a repository", "recall"),
        action(4, "run", {"command": "ls", "thought": "I look."},
               tool_call_metadata=about("execute_bash", "c1", both)),
        ran(5, 4, "a.py"),
        action(6, "run", {"command": "pwd", "thought": ""},
               tool_call_metadata=about("execute_bash", "c2", both)),
        ran(8, 6, "/repo"),
        action(9, "run", {"command": "make", "thought": "Now build."}),
        ran(10, 9, "working", -1),
        seen(11, 9, "", "null"),
        ran(12, 9, "broken", 2),
        {**action(13, "message", {"content": "Go on."}), "source": "user"},
        action(20, "finish", {"final_thought": "done", "thought": ""},
               tool_call_metadata=about("finish", "c4", last)),
        seen(21, 20, "", "agent_state_changed", agent_state="finished"),
    ]  # fmt: skip


def record(**more: Any) -> dict[str, Any]:
    """A line of output.jsonl."""
    return {
        "instance_id": "org__repo-1",
        "test_result": {"git_patch": "diff"},
        "instruction": "<pr_description>\nIt is broken.\n</pr_description>",
        "metadata": {
            "agent_class": "CodeActAgent",
            "llm_config": {"model": "some/model", "api_key": "**********"},
            "max_iterations": 30,
            "dataset": "a-set",
        },
        "history": v0_events(),
        "metrics": {
            "accumulated_cost": 0.25,
            "accumulated_token_usage": {"prompt_tokens": 300, "completion_tokens": 21},
        },
        "error": None,
        **more,
    }


# ---- completion logs

MODEL_FILE = "some__model-1757015076.651.json"


def completion(**more: Any) -> dict[str, Any]:
    """What a call of the model was sent, in prompt style and with real calls."""
    asked = {"role": "user", "content": "Mend it."}
    system = {"role": "system", "content": "You help."}
    written = "I look.\n\n<function=execute_bash>\n<parameter=command>ls</parameter>\n</function>"
    shown = "EXECUTION RESULT of [execute_bash]:\na.py\n[Command finished with exit code 0]"
    return {
        "messages": [
            system,
            asked,
            {"role": "assistant", "content": written},
            {"role": "user", "content": [{"type": "text", "text": shown}]},
        ],
        "fncall_messages": [
            system,
            asked,
            {
                "role": "assistant",
                "content": "I look.",
                "tool_calls": [tool_call("execute_bash", {"command": "ls"}, "c1")],
            },
            {
                "role": "tool",
                "tool_call_id": "c1",
                "content": "a.py\n[Command finished with exit code 0]",
            },
        ],
        "response": {
            "id": "r2",
            "model": None,
            "created": 1_757_015_070,
            "choices": [
                {"message": {"role": "assistant", "content": "Done.\n<function=finish>\n"}}
            ],
            "usage": {"prompt_tokens": 50, "completion_tokens": 5},
        },
        "args": [],
        "kwargs": {},
        "timestamp": 1_757_015_076.651,
        "cost": 0.0,
        **more,
    }


# ---- SDK


def sdk(kind: str, event_id: str, **more: Any) -> dict[str, Any]:
    who = {"ActionEvent": "agent", "AgentErrorEvent": "agent"}.get(kind, "environment")
    return {"id": event_id, "timestamp": "2026-01-01T00:00:00", "source": who, "kind": kind, **more}


def said(event_id: str, text: str, source: str = "user", **more: Any) -> dict[str, Any]:
    role = "assistant" if source == "agent" else "user"
    message = {"role": role, "content": [{"type": "text", "text": text}]}
    return {**sdk("MessageEvent", event_id, llm_message=message, **more), "source": source}


def act(
    event_id: str, command: str, reply: str | None, call_id: str = "", **more: Any
) -> dict[str, Any]:
    call_id = call_id or f"call-{event_id}"
    return sdk(
        "ActionEvent",
        event_id,
        **{
            "thought": [{"type": "text", "text": f"I do {command}."}],
            "action": {"kind": "TerminalAction", "command": command},
            "tool_name": "terminal",
            "tool_call_id": call_id,
            "tool_call": {
                "id": call_id,
                "name": "terminal",
                "arguments": json.dumps({"command": command, "security_risk": "LOW"}),
            },
            "llm_response_id": reply,
            **more,
        },
    )


def got(
    event_id: str, call_id: str, text: str, code: int | None = 0, **more: Any
) -> dict[str, Any]:
    observation = {
        "kind": "TerminalObservation",
        "content": [{"type": "text", "text": text}],
        "is_error": False,
        "exit_code": code,
        "metadata": {"exit_code": -1 if code is None else code},
    }
    return sdk(
        "ObservationEvent",
        event_id,
        **{
            "tool_name": "terminal",
            "tool_call_id": call_id,
            "action_id": call_id.removeprefix("call-"),
            "observation": observation,
            **more,
        },
    )


def write_events(folder: Path, events: list[Any]) -> Path:
    """Write a folder with a file for each event; bytes are written as they are."""
    for number, event in enumerate(events):
        name = f"bad-{number}" if isinstance(event, bytes) else event["id"]
        write(folder / f"event-{number:05}-{name}.json", event)
    return folder
