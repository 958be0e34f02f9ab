"""OpenInference: spans as runs, in every shape that they come in."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sag_research.errors import FormatError
from sag_research.ingest import ingest
from sag_research.ingest._source import Source
from sag_research.ingest.formats import recognise
from sag_research.ingest.formats.openinference import OpenInference
from sag_research.log import SQLiteEventStore
from sag_research.model import Outcome, Usage
from tests.ingest.formats import spans_make as make
from tests.ingest.formats.spans_make import JSON, span, tool
from tests.ingest.make import write

FORMAT = OpenInference()
SHAPES = {
    "otlp": lambda spans: json.dumps(make.otlp(*spans)).encode(),
    "otlp-base64": lambda spans: json.dumps(make.otlp(*spans, binary=True)).encode(),
    "otlp-lines": lambda spans: make.lines(*(make.otlp(one) for one in spans)),
    "python-lines": lambda spans: make.lines(*map(make.sdk_python, spans)),
    "python-console": lambda spans: "\n".join(
        json.dumps(make.sdk_python(one), indent=4) for one in spans
    ).encode(),
    "javascript-list": lambda spans: json.dumps([make.sdk_js(one) for one in spans]).encode(),
    "by-name": lambda spans: json.dumps({"data": [make.sdk_js(one) for one in spans]}).encode(),
    "rows": lambda spans: make.lines(*map(make.row, spans)),
}


def read(path, spans, shape="otlp"):
    reading = FORMAT.read(Source(write(path / "x.json", SHAPES[shape](spans))))
    return list(reading), reading


@pytest.mark.parametrize("shape", SHAPES)
def test_a_trace_in_every_shape(tmp_path, shape):
    (run,), reading = read(tmp_path, make.trace(), shape)
    assert recognise(Source(tmp_path / "x.json")).name == "openinference"
    assert [(step.thought, step.action, step.observation) for step in run.steps] == [
        ("Look.", "ls", "a.py"), ("Done.", "", ""),
    ]  # fmt: skip
    assert [step.started for step in run.steps] == [make.EPOCH + 2, make.EPOCH + 8]
    assert [step.seconds for step in run.steps] == [3, None]
    assert {step.usage for step in run.steps} == {Usage(tokens_in=12, tokens_out=3)}
    assert (run.steps[0].calls[0].id, run.steps[0].calls[0].status) == ("k1", "ok")
    assert (run.task_id, run.agent, run.model, run.goal) == (
        "s-1", "mender", "some-model", "Mend it.",
    )  # fmt: skip
    assert (run.config["trace_id"], run.config["system"]) == (make.TRACE, "Be kind.")
    assert (run.end, run.exit_status, run.outcome, run.record) == (
        "run.completed", None, None, None,
    )  # fmt: skip
    assert (reading.notes, reading.refused) == ([], [])


def test_what_came_back_is_taken_once_wherever_it_stands(tmp_path):
    with_both = make.trace()
    for left in (with_both, [one for one in with_both if one["name"] != "bash"]):
        (run,), _ = read(tmp_path, left)
        assert run.steps[0].observation == "a.py"
    del with_both[1]["attributes"]["tool_call.id"]
    (run,), _ = read(tmp_path, with_both)
    assert (len(run.steps[0].calls), run.steps[0].observation) == (1, "a.py")


def test_results_are_joined_to_calls_as_they_come(tmp_path):
    calls = [("f", {"n": 1}, "k1"), ("f", {"n": 2}, "k1"), ("g", {}, "k2")]
    spans = [
        span(1, "chat", make.llm([make.ASKED], {"calls": calls})),
        span(2, "f", tool("f", "one", **{"tool_call.id": "k1"})),
        span(3, "f", tool("f", "two", **{"tool_call.id": "k1"})),
        span(4, "f", tool("f", "again", **{"tool_call.id": "k1"}), status=2),
        span(5, "h", tool("h", "unasked", **{"input.value": '{"a": 1}'})),
    ]
    (run,), _ = read(tmp_path, spans)
    (step,) = run.steps
    assert [(call.name, call.observation, call.status) for call in step.calls] == [
        ("f", "one", "ok"), ("f", "two\nagain", "error"), ("g", "", "unknown"),
        ("h", "unasked", "ok"),
    ]  # fmt: skip
    assert step.calls[3].arguments == {"a": 1}


def test_tools_that_name_no_call(tmp_path):
    """Two calls of one tool: the arguments tell, or the next messages, or else the order."""
    calls = [("f", {"n": 1}, "k1"), ("f", {"n": 2}, "k2")]
    reply = {"role": "assistant", "calls": calls}
    first = span(1, "chat", make.llm([make.ASKED], {"calls": calls}))
    two, one = (span(2, "f", tool("f", "two")), span(3, "f", tool("f", "one")))
    last = span(9, "chat", make.llm([make.ASKED, reply], {"content": "Done."}))

    def seen(*spans):
        (run,), _ = read(tmp_path, [first, *spans])
        return [call.observation for call in run.steps[0].calls]

    assert seen(two, one) == seen(two, one, last) == ["two", "one"]
    two["attributes"]["input.value"] = '{"n": 2}'
    assert seen(two, one) == ["one", "two"]
    del two["attributes"]["input.value"]
    results = [{"role": "tool", "tool_call_id": f"k{n}", "content": text}
               for n, text in ((1, "one"), (2, "two"))]  # fmt: skip
    last["attributes"] |= make.llm([make.ASKED, reply, *results], {"content": "Done."})
    assert seen(two, one, last) == ["one", "two"]
    for wrapped in ({"type": "tool", "data": {"content": "2", "tool_call_id": "k2"}},
                    {"kwargs": {"content": "2", "tool_call_id": "k2"}}):  # fmt: skip
        assert seen(span(2, "f", tool("f", json.dumps(wrapped)))) == ["", "2"]


def test_circles_of_parents_and_spans_that_are_there_twice(tmp_path):
    spans = [span(1, "chat", make.llm([make.ASKED], {"content": "a"}), 2)]
    spans.append(span(2, "run", {"openinference.span.kind": "CHAIN"}, 1))
    (run,), reading = read(tmp_path, [*spans, *spans])
    assert len(run.steps) == 1
    assert reading.notes == ["2 spans are there twice: the last one of each is taken"]


GENAI = {
    "gen_ai.operation.name": "chat", "gen_ai.request.model": "some-model",
    "gen_ai.usage.input_tokens": 12, "gen_ai.usage.output_tokens": 3,
    "gen_ai.output.messages": json.dumps([{"role": "assistant", "content": "Hi."}]),
}  # fmt: skip


@pytest.mark.parametrize("outer", [make.llm([make.ASKED], {"content": "Hi."}), GENAI])
@pytest.mark.parametrize("inner", [make.llm([make.ASKED], {"content": "Hi."}), GENAI])
@pytest.mark.parametrize("between", [False, True])
def test_one_reply_in_spans_inside_each_other_is_one_step(tmp_path, outer, inner, between):
    chain = [span(3, "chain", {"openinference.span.kind": "CHAIN"}, 1)] if between else []
    spans = [span(1, "ChatOpenAI", outer), *chain, span(4, "chat", inner, 3 if between else 1)]
    (run,), reading = read(tmp_path, spans)
    assert [step.state["span"] for step in run.steps] == [make.span_id(4)]
    assert (run.steps[0].thought, run.steps[0].usage) == ("Hi.", Usage(tokens_in=12, tokens_out=3))
    assert reading.notes == []


def test_model_calls_inside_each_other_that_are_not_alike(tmp_path):
    silent = {"openinference.span.kind": "LLM", "llm.token_count.prompt": 7}
    told = {name: one for name, one in make.llm([make.ASKED], {"content": "Hi."}).items()
            if "token" not in name}  # fmt: skip
    (run,), _ = read(tmp_path, [span(1, "outer", told), span(2, "inner", silent, 1)])
    assert [step.thought for step in run.steps] == ["Hi."]
    assert run.steps[0].usage == Usage(tokens_in=7)
    (run,), _ = read(tmp_path, [span(1, "outer", silent), span(2, "inner", told, 1)])
    assert [step.thought for step in run.steps] == ["Hi."]
    other = make.llm([make.ASKED], {"content": "Ho."}, **{"llm.token_count.prompt": 99})
    (run,), reading = read(tmp_path, [span(1, "outer", other), span(2, "inner", told, 1)])
    assert [step.thought for step in run.steps] == ["Ho.", "Hi."]
    assert reading.notes == [
        f"trace {make.TRACE}: 1 model calls are around others that say something else"
    ]


def test_model_calls_in_a_circle_are_steps(tmp_path):
    told = make.llm([make.ASKED], {"content": "Hi."})
    other = make.llm([make.ASKED], {"content": "Ho."}, **{"llm.token_count.prompt": 99})
    (run,), _ = read(tmp_path, [span(1, "a", told, 2), span(2, "b", other, 1)])
    assert [step.thought for step in run.steps] == ["Hi.", "Ho."]
    (run,), _ = read(tmp_path, [span(1, "a", told, 2), span(2, "b", told, 1)])
    assert [step.thought for step in run.steps] == ["Hi.", "Hi."]


def test_several_traces_and_one_without_a_reply(tmp_path):
    other = [{**one, "trace": "f" * 32} for one in make.trace()]
    embedding = {**span(1, "embed", {"openinference.span.kind": "EMBEDDING"}), "trace": "e" * 32}
    runs, reading = read(tmp_path, [*make.trace(), embedding, *other])
    assert [run.record for run in runs] == ["0", "2"]
    assert reading.notes == [f"trace {'e' * 32}: no reply of a model in it: embed 1"]


def test_a_failed_root_and_an_exported_label(tmp_path):
    spans = make.trace()
    spans[3] |= {"status": 2, "message": "out of time"}
    spans[3]["attributes"] |= {"sag.task_id": "t-7", "sag.outcome": "failure"}
    (run,), _ = read(tmp_path, spans)
    assert (run.end, run.exit_status, run.task_id) == ("run.failed", "out of time", "t-7")
    assert run.outcome == Outcome(outcome="failure", source="sag.outcome")


def test_a_person_who_speaks_again_is_heard_once(tmp_path):
    again = {"role": "user", "content": "Faster."}
    first = {"role": "assistant", "content": "No."}
    spans = [
        span(1, "chat", make.llm([make.ASKED], {"content": "No."})),
        span(2, "chat", make.llm([make.ASKED, first, again], {"content": "Yes."})),
        span(3, "chat", make.llm([make.ASKED, first, again, again], {"content": "Fine."})),
    ]
    (run,), _ = read(tmp_path, spans)
    assert [step.observation for step in run.steps] == ["Faster.", "", ""]


def test_parts_of_a_message_and_half_characters(tmp_path):
    attributes = {
        "openinference.span.kind": "LLM",
        "llm.output_messages.0.message.role": "assistant",
        "llm.output_messages.0.message.contents.0.message_content.type": "text",
        "llm.output_messages.0.message.contents.0.message_content.text": "half \ud835",
        "llm.output_messages.0.message.contents.1.message_content.type": "image",
        "input.value": "<b>Ask</b>",
    }
    (run,), _ = read(tmp_path, [span(1, "chat", attributes)])
    assert (run.steps[0].thought, run.goal) == ("half \ud835\n[image]", "<b>Ask</b>")
    with SQLiteEventStore(":memory:") as store:
        assert ingest(store, [tmp_path], progress=False).steps == 1


def test_damaged_lines_cost_themselves(tmp_path):
    content = make.lines(*map(make.sdk_python, make.trace())) + b'{"a": \n{"b": 1}\n'
    reading = FORMAT.read(Source(write(tmp_path / "x.jsonl", content)))
    assert len(list(reading)) == 1
    assert [where for where, _ in reading.refused] == ["line 5", "line 6"]


@pytest.mark.parametrize(
    "value",
    [
        {"attributeSummary": {"ai": ["openinference.span.kind"]}, "results": [{"name": "x"}]},
        {"text": '{"openinference.span.kind": "LLM"}'},
        {"messages": [{"openinference.span.kind": "LLM"}]},
        {"resourceSpans": [{"scopeSpans": [{"spans": [{"name": "GET /"}]}]}]},
    ],
)
def test_what_is_no_span_of_an_agent(value):
    assert FORMAT.sniff(json.dumps(value).encode(), None) == 0


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_any_values_give_runs_or_a_reason(tmp_path_factory, data):
    def graft(node):
        if data.draw(st.integers(0, 40)) == 0:
            return data.draw(JSON)
        if isinstance(node, dict):
            return {key: graft(item) for key, item in node.items()}
        if isinstance(node, list):
            return [graft(item) for item in node]
        return node

    value = json.loads(SHAPES["otlp"](make.trace()))
    path = write(tmp_path_factory.mktemp("oi") / "x.jsonl", graft(value))
    with SQLiteEventStore(":memory:") as store:
        report = ingest(store, [path], format="openinference", progress=False)
        assert report.ingested + len(report.rejected) == report.files == 1
        assert all(reason for _, reason in report.rejected)
        assert store.verify().ok


@pytest.mark.parametrize("depth", [90, 900, 5_000])
def test_deep_nesting(tmp_path, depth):
    nest = "[" * depth + "]" * depth
    text = '{"openinference.span.kind": "LLM", "llm.output_messages.0.message.content": "a", '
    path = write(tmp_path / "x.json", (text + f'"input.value": {nest}}}').encode())
    if depth > 1_000:
        with pytest.raises(FormatError, match="deep"):
            list(FORMAT.read(Source(path)))
    else:
        assert len(list(FORMAT.read(Source(path)))) <= 1


# ---- real files


def test_the_real_file_with_flat_attributes(real_data):
    folder = real_data / "openinference_spans/js/packages/openinference-genai/test/__fixtures__"
    path = folder / "openinference_client_span_tool_calls.json"
    raw = json.loads(path.read_text(encoding="utf-8"))
    (run,) = FORMAT.read(Source(path))
    (step,) = run.steps
    said = "llm.output_messages.0.message.contents.0.message_content.text"
    asked = "llm.input_messages.0.message.contents.0.message_content.text"
    assert (step.thought, run.goal, run.model) == (raw[said], raw[asked], raw["llm.model_name"])
    assert step.usage == Usage(
        tokens_in=raw["llm.token_count.prompt"], tokens_out=raw["llm.token_count.completion"]
    )
    assert [one["role"] for one in run.config["history"]] == ["assistant", "tool"]
    assert run.config["history"][0]["calls"] == ['get_weather({"location": "Paris"})']
    assert (run.outcome, run.end) == (None, None)
