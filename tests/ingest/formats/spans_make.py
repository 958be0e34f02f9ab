"""Small OpenTelemetry spans in the shapes that exporters give them, written for the tests."""

from __future__ import annotations

import base64
import json
from typing import Any

from hypothesis import strategies as st

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)  # fmt: skip
"""Any value."""

TRACE = "0af7651916cd43dd8448eb211c80319c"
EPOCH = 1_767_225_600
"""Seconds: the start of 2026."""


def span(
    number: int, name: str, attributes: dict[str, Any], parent: int | None = None, **more: Any
) -> dict[str, Any]:
    """A span in our own words; the functions below spell it as others do."""
    return {
        "trace": TRACE, "number": number, "name": name, "parent": parent, "start": number,
        "end": number + 1, "attributes": attributes, "status": 0, "message": "", "events": [],
        **more,
    }  # fmt: skip


def span_id(number: int | None) -> str:
    return "" if number is None else f"{number + 0xABC0:016x}"


def typed(value: Any) -> dict[str, Any]:
    """A value as OTLP has it: whole numbers are text."""
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, list):
        return {"arrayValue": {"values": [typed(one) for one in value]}}
    if isinstance(value, dict):
        return {"kvlistValue": {"values": pairs(value)}}
    return {"stringValue": value}


def pairs(attributes: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"key": name, "value": typed(value)} for name, value in attributes.items()]


def otlp(*spans: dict[str, Any], binary: bool = False, **resource: Any) -> dict[str, Any]:
    """An export request; ``binary``: its ids are base64, as protobuf's own JSON has them."""

    def spelled(text: str) -> str:
        return base64.b64encode(bytes.fromhex(text)).decode() if binary else text.upper()

    found = []
    for one in spans:
        found.append({
            "traceId": spelled(one["trace"]),
            "spanId": spelled(span_id(one["number"])),
            "parentSpanId": spelled(span_id(one["parent"])),
            "name": one["name"],
            "kind": 1,
            "startTimeUnixNano": f"{EPOCH + one['start']}000000000",
            "endTimeUnixNano": f"{EPOCH + one['end']}000000000",
            "attributes": pairs(one["attributes"]),
            "events": [
                {"name": name, "timeUnixNano": "0", "attributes": pairs(about)}
                for name, about in one["events"]
            ],
            "status": {"code": one["status"], "message": one["message"]},
        })  # fmt: skip
    scope = {"scope": {"name": "tests"}, "spans": found}
    return {"resourceSpans": [{"resource": {"attributes": pairs(resource)}, "scopeSpans": [scope]}]}


def sdk_python(one: dict[str, Any]) -> dict[str, Any]:
    """As the Python SDK's console exporter shows it."""
    parent = None if one["parent"] is None else f"0x{span_id(one['parent'])}"
    return {
        "name": one["name"],
        "context": {"trace_id": f"0x{one['trace']}", "span_id": f"0x{span_id(one['number'])}"},
        "kind": "SpanKind.INTERNAL",
        "parent_id": parent,
        "start_time": f"2026-01-01T00:00:{one['start']:02}.000000Z",
        "end_time": f"2026-01-01T00:00:{one['end']:02}.000000Z",
        "status": {"status_code": ("UNSET", "OK", "ERROR")[one["status"]]},
        "attributes": one["attributes"],
        "events": [{"name": name, "attributes": about} for name, about in one["events"]],
        "resource": {"attributes": {"service.name": "tests"}, "schema_url": ""},
    }


def sdk_js(one: dict[str, Any]) -> dict[str, Any]:
    """As JavaScript's spans look when they are dumped."""
    return {
        "name": one["name"],
        "spanContext": {"traceId": one["trace"], "spanId": span_id(one["number"])},
        "parentSpanContext": {"traceId": one["trace"], "spanId": span_id(one["parent"])},
        "attributes": one["attributes"],
        "status": {"code": one["status"]},
        "startTime": [EPOCH + one["start"], 0],
        "endTime": [EPOCH + one["end"], 0],
        "events": [{"name": name, "attributes": about} for name, about in one["events"]],
    }


def row(one: dict[str, Any]) -> dict[str, Any]:
    """As a row of a table of spans."""
    return {
        "name": one["name"],
        "span_kind": one["attributes"].get("openinference.span.kind", "UNKNOWN"),
        "parent_id": span_id(one["parent"]) or None,
        "start_time": f"2026-01-01T00:00:{one['start']:02}+00:00",
        "end_time": f"2026-01-01T00:00:{one['end']:02}+00:00",
        "status_code": ("UNSET", "OK", "ERROR")[one["status"]],
        "context.trace_id": one["trace"],
        "context.span_id": span_id(one["number"]),
        **{f"attributes.{name}": value for name, value in one["attributes"].items()},
    }


def lines(*values: Any) -> bytes:
    return "".join(json.dumps(one) + "\n" for one in values).encode()


# ---- OpenInference


def messages(prefix: str, *told: dict[str, Any]) -> dict[str, Any]:
    """Messages as flat attributes."""
    found: dict[str, Any] = {}
    for number, one in enumerate(told):
        start = f"{prefix}.{number}.message"
        found |= {f"{start}.{name}": one[name] for name in one if name != "calls"}
        for at, (name, arguments, call_id) in enumerate(one.get("calls", ())):
            call = f"{start}.tool_calls.{at}.tool_call"
            found |= {
                f"{call}.id": call_id,
                f"{call}.function.name": name,
                f"{call}.function.arguments": json.dumps(arguments),
            }
    return found


def llm(inputs: list[dict[str, Any]], output: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "openinference.span.kind": "LLM",
        "llm.model_name": "some-model",
        "llm.token_count.prompt": 12,
        "llm.token_count.completion": 3,
        **messages("llm.input_messages", *inputs),
        **messages("llm.output_messages", {"role": "assistant", **output}),
        **more,
    }


def tool(name: str, output: str, **more: Any) -> dict[str, Any]:
    return {"openinference.span.kind": "TOOL", "tool.name": name, "output.value": output, **more}


SYSTEM = {"role": "system", "content": "Be kind."}
ASKED = {"role": "user", "content": "Mend it."}
CALLED = {"role": "assistant", "content": "Look.", "calls": [("bash", {"command": "ls"}, "k1")]}


def trace() -> list[dict[str, Any]]:
    """An agent that calls a tool and answers; spans stand in the order of their ends."""
    given = [SYSTEM, ASKED]
    result = {"role": "tool", "content": "a.py", "tool_call_id": "k1"}
    agent = {"openinference.span.kind": "AGENT", "agent.name": "mender", "session.id": "s-1"}
    return [
        span(2, "chat", llm(given, {name: CALLED[name] for name in ("content", "calls")}), 1),
        span(4, "bash", tool("bash", "a.py", **{"tool_call.id": "k1"}), 1, end=7),
        span(8, "chat", llm([*given, CALLED, result], {"content": "Done."}), 1),
        span(1, "run", agent, end=10),
    ]
