import json
from contextlib import suppress

import pytest
from hypothesis import given, settings

from sag_research.errors import FormatError
from sag_research.ingest._source import Source
from sag_research.ingest.formats import recognise
from sag_research.ingest.formats.openai_chat import OpenAiChat
from sag_research.model import Outcome, Usage
from tests.ingest.formats.openhands_make import completion, damaged
from tests.ingest.formats.rows_make import (
    CONTAINERS,
    chat,
    container,
    gym,
    message,
    read,
    seen,
    smith,
)
from tests.ingest.make import mini_file, tau_result, tool_call

FORMAT = OpenAiChat()


def row(*messages, **more):
    return {"messages": chat(*messages), **more}


def one(tmp_path, value, kind="jsonl"):
    (run,), reading = read(FORMAT, container(tmp_path / "a", [value], kind))
    return run, reading


@pytest.mark.parametrize("kind", CONTAINERS)
def test_a_line_is_a_run(tmp_path, kind):
    path = container(tmp_path / "talks", [row(), row()], kind)
    assert recognise(Source(path)).name == "openai-chat"
    (run, other), reading = read(FORMAT, path)
    assert seen(run) == [
        ("I look.", "ls", "OBSERVATION:\na.py\n[Command finished with exit code 0]"),
        ("", "finish({})", ""),
    ]
    assert run.goal == "It breaks."
    assert (run.end, run.outcome, run.usage, run.agent) == (None, None, None, None)
    assert [run.record, other.record] == ["0", "1"]
    assert run.task_id != other.task_id  # nothing says that they are of one task
    assert reading.refused == []


@pytest.mark.parametrize(
    ("more", "task_id"),
    [
        ({"id": "a"}, "a"),
        ({"id": 7}, "7"),
        ({"id": "a", "task_id": "t"}, "t"),
        ({"instance_id": "org__repo-1", "id": "a"}, "org__repo-1"),
        ({"id": "a", "metadata": {"instance_id": "t"}}, "t"),
        ({"id": "", "metadata": "none"}, "a:0"),
        ({"id": True}, "a:0"),
        ({}, "a:0"),
    ],
)
def test_the_task(tmp_path, more, task_id):
    assert one(tmp_path, row(**more))[0].task_id == task_id


@pytest.mark.parametrize(
    ("more", "outcome"),
    [
        ({"resolved": True}, Outcome(outcome="success", source="chat resolved")),
        ({"metadata": {"success": 0}}, Outcome(outcome="failure", source="chat success")),
        ({"metadata": {"reward": 0.0, "score": 0}}, None),
        ({"success": None, "metadata": {}}, None),
    ],
)
def test_only_a_label_is_an_outcome(tmp_path, more, outcome):
    assert one(tmp_path, row(**more))[0].outcome == outcome


def test_what_a_row_says_of_itself_is_kept(tmp_path):
    about = {"model": "m", "agent": "a", "repo": "o/r", "dataset": "d", "note": [1, {"x": None}]}
    usage = {"prompt_tokens": 10, "completion_tokens": 0}
    run, _ = one(tmp_path, row(id="x", metadata=about, usage=usage))
    assert (run.model, run.agent, run.repo, run.dataset) == ("m", "a", "o/r", "d")
    assert run.config == {**about, "id": "x"}
    assert run.usage == Usage(tokens_in=10)
    assert one(tmp_path, row(model="n", metadata=about))[0].model == "n"


def test_content_of_every_kind(tmp_path):
    blocks = [{"type": "text", "text": "Look: "}, {"type": "image_url", "image_url": {"url": "x"}}]
    turns = (
        message("assistant", blocks),
        message("user", [{"type": "text", "text": "Yes?"}]),
        message("assistant", None, reasoning_content="I think."),
        message("assistant", {"text": "odd"}),
        message("developer", "Be kind."),
        message("assistant", 7),
    )
    run, _ = one(tmp_path, row(*turns))
    assert [(step.thought, step.observation) for step in run.steps] == [
        ("Look: \n[image_url]", "Yes?"), ("I think.", ""), ("odd", ""), ("7", ""),
    ]  # fmt: skip


def test_calls_of_the_older_form(tmp_path):
    turns = (
        message("assistant", None, function_call={"name": "find", "arguments": '{"id": 1}'}),
        message("function", "found", name="find"),
    )
    run, _ = one(tmp_path, row(*turns))
    (call,) = run.steps[0].calls
    assert (call.name, call.arguments, call.observation) == ("find", {"id": 1}, "found")


def test_arguments_may_be_an_object_or_no_json(tmp_path):
    calls = [
        {"id": "a", "function": {"name": "f", "arguments": {"x": 1}}},
        tool_call("g", "{", "b"),
    ]
    run, _ = one(tmp_path, row(message("assistant", "", tool_calls=[*calls, None, 7])))
    assert [call.arguments for call in run.steps[0].calls] == [{"x": 1}, "{"]


def test_a_prompt_alone_is_no_run(tmp_path):
    prompt = {"messages": [message("user", "Hello")]}
    runs, reading = read(FORMAT, container(tmp_path / "a", [prompt, row()], "jsonl"))
    assert len(runs) == 1
    assert reading.refused == [("line 1", "no reply of a model in it")]


def test_half_characters_are_read(tmp_path):
    text = json.dumps(row(message("assistant", "half \ud835 char"))).encode()
    path = tmp_path / "a.jsonl"
    path.write_bytes(text + b"\n" + text.replace(b"half", b"h\xfflf") + b"\n")
    (first, second), _ = read(FORMAT, path)
    assert first.steps[0].thought == "half \ud835 char"
    assert second.steps[0].thought.startswith("h\udcfflf")


def test_one_object_over_many_lines(tmp_path):
    path = tmp_path / "a.json"
    path.write_text(json.dumps(row(id="x"), indent=2), encoding="utf-8")
    assert recognise(Source(path)).name == "openai-chat"
    assert [run.task_id for run in read(FORMAT, path)[0]] == ["x"]
    long = row(message("assistant", "x" * 70_000), id="x")
    path.write_text(json.dumps(long, indent=2), encoding="utf-8")
    assert [run.task_id for run in read(FORMAT, path)[0]] == ["x"]


def test_one_object_over_many_lines_that_is_damaged(tmp_path):
    path = tmp_path / "a.json"
    path.write_text(json.dumps(row(id="x"), indent=2)[:-30], encoding="utf-8")
    with pytest.raises(FormatError, match="cut short"):
        read(FORMAT, path)


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (mini_file(), "mini-swe-agent"),
        (completion(), "openhands-completions"),
        ([tau_result()], "tau-bench"),
        (gym(), "swe-gym"),
        (smith("xml", as_text=False), "swe-smith"),
        ({"messages": [{"text": "x"}]}, None),
        ({"messages": "[]"}, None),
        ({"messages": chat(), "response": {"choices": []}}, None),
        ({"messages": [{"role": "user", "content_preview": "x", "tool_calls": None}]}, None),
        ({"messages": []}, None),
    ],
)
def test_files_of_others_are_left_to_them(tmp_path, value, name):
    path = tmp_path / "a.json"
    path.write_text(json.dumps(value), encoding="utf-8")
    found = recognise(Source(path))
    assert (found and found.name) == name


@settings(max_examples=80)
@given(damaged([row(id="a", metadata={"resolved": True}), row()]))
def test_any_values_give_runs_or_a_reason(tmp_path_factory, value):
    path = tmp_path_factory.mktemp("any") / "a.json"
    path.write_text(json.dumps(value), encoding="utf-8")
    with suppress(FormatError):  # nothing else may come out
        for run in FORMAT.read(Source(path)):
            assert isinstance(run.task_id, str)
