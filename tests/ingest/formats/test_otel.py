"""OpenTelemetry's GenAI conventions: one talk under all the names that it had."""

import json
from collections import Counter

import pytest

from sag_research.ingest import ingest
from sag_research.ingest._source import Source
from sag_research.ingest.formats import recognise
from sag_research.ingest.formats.otel_genai import OtelGenAi
from sag_research.log import SQLiteEventStore
from sag_research.model import Usage
from tests.ingest.formats import spans_make as make
from tests.ingest.formats.spans_make import span
from tests.ingest.make import write

FORMAT = OtelGenAi()
ARGUMENTS = {"command": "ls"}
CALL = {"id": "k1", "type": "function",
        "function": {"name": "bash", "arguments": json.dumps(ARGUMENTS)}}  # fmt: skip
NOW = {"gen_ai.operation.name": "chat", "gen_ai.response.model": "some-model",
       "gen_ai.usage.input_tokens": 12, "gen_ai.usage.output_tokens": 3}  # fmt: skip
BEFORE = {"llm.request.type": "chat", "gen_ai.request.model": "some-model",
          "gen_ai.usage.prompt_tokens": 12, "gen_ai.usage.completion_tokens": 3}  # fmt: skip


def parts():
    """Messages with parts, as JSON text."""
    asked = {"role": "user", "parts": [{"type": "text", "content": "Mend it."}]}
    called = {
        "role": "assistant",
        "parts": [
            {"type": "reasoning", "content": "Hm."},
            {"type": "text", "content": "Look."},
            {"type": "tool_call", "id": "k1", "name": "bash", "arguments": ARGUMENTS},
        ],
    }
    result = {"type": "tool_call_response", "id": "k1", "response": "a.py"}
    answered = {"role": "tool", "parts": [result]}
    done = {"role": "assistant", "parts": [{"type": "text", "content": "Done."}]}
    names = ("gen_ai.input.messages", "gen_ai.output.messages")
    return [
        span(1, "chat", {**NOW, names[0]: json.dumps([asked]), names[1]: json.dumps([called])}),
        span(3, "chat", {**NOW, names[0]: json.dumps([asked, called, answered]),
                         names[1]: json.dumps([done])}),
    ]  # fmt: skip


def structured():
    """The same, not as text but as values."""
    spans = parts()
    for one in spans:
        for name in ("gen_ai.input.messages", "gen_ai.output.messages"):
            one["attributes"][name] = json.loads(one["attributes"][name])
    return spans


def events():
    """Events of the span, one a message."""
    asked = ("gen_ai.user.message", {"content": "Mend it."})
    called = {"content": "Hm.\nLook.", "tool_calls": json.dumps([CALL])}
    choice = {"index": 0, "finish_reason": "tool_calls", "message": json.dumps(called)}
    answered = ("gen_ai.tool.message", {"content": "a.py", "id": "k1"})
    done = ("gen_ai.choice", {"index": 0, "message": json.dumps({"content": "Done."})})
    return [
        span(1, "chat", NOW, events=[asked, ("gen_ai.choice", choice)]),
        span(3, "chat", NOW, events=[asked, ("gen_ai.assistant.message", called), answered, done]),
    ]


def content_events():
    """The oldest events: all of the prompt, and all of the completion, in one each."""
    asked = {"role": "user", "content": "Mend it."}
    called = {"role": "assistant", "content": "Hm.\nLook.", "tool_calls": [CALL]}
    answered = {"role": "tool", "tool_call_id": "k1", "content": "a.py"}
    done = {"role": "assistant", "content": "Done."}

    def both(given, reply):
        return [
            ("gen_ai.content.prompt", {"gen_ai.prompt": json.dumps(given)}),
            ("gen_ai.content.completion", {"gen_ai.completion": json.dumps([reply])}),
        ]

    return [
        span(1, "chat", NOW, events=both([asked], called)),
        span(3, "chat", NOW, events=both([asked, called, answered], done)),
    ]


def numbered():
    """Numbered attributes."""
    asked = {"gen_ai.prompt.0.role": "user", "gen_ai.prompt.0.content": "Mend it."}

    def called(start):
        return {f"{start}.role": "assistant", f"{start}.content": "Hm.\nLook.",
                f"{start}.tool_calls.0.id": "k1", f"{start}.tool_calls.0.name": "bash",
                f"{start}.tool_calls.0.arguments": json.dumps(ARGUMENTS)}  # fmt: skip

    answered = {"gen_ai.prompt.2.role": "tool", "gen_ai.prompt.2.content": "a.py",
                "gen_ai.prompt.2.tool_call_id": "k1"}  # fmt: skip
    done = {"gen_ai.completion.0.role": "assistant", "gen_ai.completion.0.content": "Done."}
    return [
        span(1, "openai.chat", {**BEFORE, **asked, **called("gen_ai.completion.0")}),
        span(3, "openai.chat", {**BEFORE, **asked, **called("gen_ai.prompt.1"), **answered,
                                **done}),
    ]  # fmt: skip


def vercel():
    """The AI SDK, with its outer spans."""
    asked = {"role": "user", "content": [{"type": "text", "text": "Mend it."}]}
    call = {"toolCallId": "k1", "toolName": "bash", "input": json.dumps(ARGUMENTS)}
    called = {"role": "assistant", "content": [{"type": "tool-call", **call}]}
    result = {"type": "tool-result", "toolCallId": "k1", "toolName": "bash",
              "output": {"type": "text", "value": "a.py"}}  # fmt: skip
    used = {"ai.model.id": "some-model", "ai.usage.inputTokens": 12, "ai.usage.outputTokens": 3}
    inner = {"ai.operationId": "ai.generateText.doGenerate", **used}
    return [
        span(1, "ai.generateText", {"ai.operationId": "ai.generateText", **used,
                                    "ai.response.text": "Done."}),
        span(2, "ai.generateText.doGenerate", {
            **inner, "ai.prompt.messages": json.dumps([asked]),
            "ai.response.text": "Hm.\nLook.", "ai.response.toolCalls": json.dumps([call]),
        }, 1),
        span(3, "ai.generateText.doGenerate", {
            **inner, "ai.response.text": "Done.", "ai.prompt.messages": json.dumps(
                [asked, called, {"role": "tool", "content": [result]}]),
        }, 1),
    ]  # fmt: skip


WAYS = [parts, structured, events, content_events, numbered, vercel]


def read(path, spans):
    reading = FORMAT.read(Source(write(path / "x.json", make.otlp(*spans))))
    return list(reading), reading


@pytest.mark.parametrize("way", WAYS)
def test_one_talk_under_all_its_names(tmp_path, way):
    (run,), reading = read(tmp_path, way())
    assert recognise(Source(tmp_path / "x.json")).name == "otel-genai"
    assert [(step.thought, step.action, step.observation) for step in run.steps] == [
        ("Hm.\nLook.", "ls", "a.py"), ("Done.", "", ""),
    ]  # fmt: skip
    assert (run.goal, run.model) == ("Mend it.", "some-model")
    assert [step.usage for step in run.steps] == [Usage(tokens_in=12, tokens_out=3)] * 2
    assert run.steps[0].calls[0].arguments == ARGUMENTS
    assert (reading.notes, reading.refused, run.config.get("history")) == ([], [], None)


def test_outer_spans_alone_are_steps_and_agents_repeat_nothing(tmp_path):
    spans = parts()
    agent = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "mender",
        "gen_ai.output.messages": spans[1]["attributes"]["gen_ai.output.messages"],
    }
    (run,), _ = read(tmp_path, [span(0, "invoke_agent", agent), *spans])
    assert (len(run.steps), run.agent) == (2, "mender")
    (run,), _ = read(tmp_path, [span(0, "invoke_agent", agent)])
    assert [step.thought for step in run.steps] == ["Done."]
    (run,), _ = read(tmp_path, [span(0, "outer", agent), span(1, "inner", agent, 0)])
    assert [step.state["span"] for step in run.steps] == [make.span_id(1)]


def test_the_reply_of_another_trace_is_not_counted_again(tmp_path):
    inner = {**span(2, "ai.generateText.doGenerate", {
        "ai.operationId": "ai.generateText.doGenerate", "ai.response.text": "a",
        "gen_ai.response.id": "r-1"}), "trace": "f" * 32}  # fmt: skip
    about = json.dumps({"openai": {"responseId": "r-1"}})
    outer = span(1, "ai.generateText", {"ai.operationId": "ai.generateText",
                 "ai.response.text": "a", "ai.response.providerMetadata": about})  # fmt: skip
    runs, reading = read(tmp_path, [outer, inner])
    assert [run.task_id for run in runs] == ["f" * 32]
    assert reading.notes == [
        f"trace {make.TRACE}: 1 spans repeat the reply of another one",
        f"trace {make.TRACE}: no reply of a model in it: ai.generateText 1",
    ]


def test_spans_of_tools(tmp_path):
    done = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "bash",
            "gen_ai.tool.call.id": "k1", "gen_ai.tool.call.result": "b.py"}  # fmt: skip
    (run,), _ = read(tmp_path, [*parts(), span(2, "execute_tool bash", done)])
    assert (run.steps[0].observation, run.steps[0].calls[0].status) == ("b.py", "ok")
    failed = {name: done[name] for name in done if name != "gen_ai.tool.call.result"}
    event = ("exception", {"exception.message": "no such file"})
    tool = span(2, "execute_tool bash", failed, status=2, events=[event])
    (run,), _ = read(tmp_path, [*parts(), tool])
    call = run.steps[0].calls[0]
    assert (call.observation, call.status) == ("no such file", "error")


def test_finish_reasons_are_no_outcome(tmp_path):
    spans = parts()
    spans[1]["attributes"]["gen_ai.response.finish_reasons"] = ["stop"]
    (run,), _ = read(tmp_path, spans)
    assert (run.steps[1].state["finish"], run.outcome) == (["stop"], None)


# ---- real files


def folder(real_data):
    return real_data / "openinference_spans"


def test_the_real_spans_by_operation(real_data):
    (path,) = folder(real_data).rglob("spans-by-operation.json")
    raw = json.loads(path.read_text(encoding="utf-8"))
    spans = [one for several in raw.values() for one in several]
    inner = [one for one in spans if one["name"].endswith((".doGenerate", ".doStream"))]
    assert (len(spans), len(inner)) == (10, 4)
    reading = FORMAT.read(Source(path))
    runs = list(reading)
    assert [run.config["trace_id"] for run in runs] == [
        one["spanContext"]["traceId"] for one in inner
    ]
    said = [one["attributes"] for one in inner]
    assert [[step.thought for step in run.steps] for run in runs] == [
        [one.get("ai.response.text") or one.get("ai.response.object")] for one in said
    ]
    assert sum(run.steps[0].usage.tokens_in for run in runs) == sum(
        one["gen_ai.usage.input_tokens"] for one in said
    )
    assert sum("repeat" in note for note in reading.notes) == 4  # an outer span for each
    assert Counter("no reply" in note for note in reading.notes)[True] == 6  # and two embeddings


def test_all_real_files(real_data):
    with SQLiteEventStore(":memory:") as store:
        report = ingest(store, [folder(real_data)], progress=False)
        assert report.by_format == {
            "openinference": {"files": 1, "runs": 1, "steps": 1},
            "otel-genai": {"files": 5, "runs": 8, "steps": 8},
        }
        assert [name.rpartition("/")[2] for name, _ in report.ignored] == ["capture-results.json"]
        rejected = [name.rpartition("/")[2] for name, _ in report.rejected]
        assert rejected == ["ai-embed-doEmbed.json", "ai-embed.json"]
        assert all("no reply of a model" in reason for _, reason in report.rejected)
