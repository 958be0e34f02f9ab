"""OTLP: read by OpenTelemetry's own classes, with ids and times that say what they are."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

import sag_research as sag
from sag_research.exchange import export_otlp

CALLS = [
    {"id": "a", "name": "bash", "arguments": {"command": "ls"}, "text": "ls", "observation": "x",
     "status": "ok"},
    {"id": "b", "name": "open", "observation": "no", "status": "error"},
]  # fmt: skip
STEPS = [
    {"thought": "look", "calls": CALLS, "usage": {"tokens_in": 3, "cost_usd": 0.5},
     "started": 1.7e9 + 0.5, "seconds": 2.0},
    {"thought": "done", "observation": "thanks"},
    {"thought": "bye"},
]  # fmt: skip


def lines(folder: Path) -> list[dict[str, Any]]:
    with sag.open(":memory:") as ws:
        base = {"goal": "mend", "agent": "s", "model": "m", "steps": STEPS}
        ws.add(base | {"task_id": "t1", "outcome": "failure"})
        ws.add(base | {"task_id": "t2"})
        report = export_otlp(ws, folder / "traces.jsonl")
    assert report.made_up["started"] == 4
    return [json.loads(one) for one in (folder / "traces.jsonl").read_bytes().splitlines()]


def spans(request: dict[str, Any]) -> list[dict[str, Any]]:
    return [span for resource in request["resourceSpans"] for scope in resource["scopeSpans"]
            for span in scope["spans"]]  # fmt: skip


def said(span: dict[str, Any]) -> dict[str, Any]:
    return {one["key"]: next(iter(one["value"].values())) for one in span["attributes"]}


def test_opentelemetry_reads_it(tmp_path: Path) -> None:
    json_format = pytest.importorskip("google.protobuf.json_format")
    service = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
    for request in lines(tmp_path):
        for span in spans(request):  # OTLP writes ids in hex, protobuf's own JSON in base64
            for name in ("traceId", "spanId", "parentSpanId"):
                if name in span:
                    span[name] = base64.b64encode(bytes.fromhex(span[name])).decode()
        read = json_format.ParseDict(request, service.ExportTraceServiceRequest())
        found = read.resource_spans[0].scope_spans[0].spans
        assert [len(found[0].trace_id), len(found[0].span_id)] == [16, 8]
        ids = {span.span_id: span for span in found}
        assert len(ids) == len(found) == 6
        kinds = {}
        for span in found:
            about = {one.key: one.value.string_value for one in span.attributes}
            kinds[span.span_id] = about["openinference.span.kind"]
            assert 0 < span.start_time_unix_nano <= span.end_time_unix_nano
        above = [(kinds[span.span_id], kinds.get(span.parent_span_id)) for span in found]
        assert above == [
            ("AGENT", None), ("LLM", "AGENT"), ("TOOL", "LLM"), ("TOOL", "LLM"),
            ("LLM", "AGENT"), ("LLM", "AGENT"),
        ]  # fmt: skip


def test_the_conventions_are_kept(tmp_path: Path) -> None:
    root, first, ok, failed, *_, last = spans(lines(tmp_path)[0])
    assert said(root)["sag.outcome"] == "failure"
    about = said(first)
    assert about["llm.model_name"] == about["gen_ai.request.model"] == "m"
    assert about["llm.token_count.prompt"] == about["gen_ai.usage.input_tokens"] == "3"
    assert about["llm.input_messages.0.message.content"] == "mend"
    message = "llm.output_messages.0.message"
    assert about[f"{message}.tool_calls.0.tool_call.function.arguments"] == '{"command":"ls"}'
    assert said(ok)["tool.name"] == said(ok)["gen_ai.tool.name"] == "bash"
    assert said(ok)["output.value"] == "x"
    assert [ok["status"], failed["status"]] == [{"code": 1}, {"code": 2}]
    assert said(last)["input.value"] == "thanks"


def test_times_that_nobody_knows_are_marked(tmp_path: Path) -> None:
    found = spans(lines(tmp_path)[0])
    assert ["sag.time.made_up" in said(span) for span in found] == [
        True, False, False, False, True, True,
    ]  # fmt: skip
    first = found[1]
    assert int(first["endTimeUnixNano"]) - int(first["startTimeUnixNano"]) == 2 * 10**9
    assert first["startTimeUnixNano"] == "1700000000500000000"


def test_equal_runs_are_two_traces(tmp_path: Path) -> None:
    ids = {span["traceId"] for request in lines(tmp_path) for span in spans(request)}
    assert len(ids) == 2


def test_another_reader_takes_it(tmp_path: Path) -> None:
    agentpile = pytest.importorskip("agentpile")
    lines(tmp_path)
    runs = list(agentpile.load(tmp_path / "traces.jsonl", reader="otlp-json"))
    assert len(runs) == 2
