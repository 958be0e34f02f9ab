import json
from contextlib import suppress

import pytest
from hypothesis import given, settings

from sag_research.errors import FormatError
from sag_research.ingest._source import Source
from sag_research.ingest.formats import recognise
from sag_research.ingest.formats.swe_agent import SweAgent
from sag_research.ingest.formats.swe_smith import SweSmith
from sag_research.model import Outcome
from tests.ingest.formats.openhands_make import damaged
from tests.ingest.formats.rows_make import CONTAINERS, TURNS, container, read, seen, smith

FORMAT = SweSmith()
SPELLINGS = ("tool", "xml", "ticks")


def one(tmp_path, row, kind="jsonl"):
    (run,), reading = read(FORMAT, container(tmp_path / "a", [row], kind))
    return run, reading


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("kind", CONTAINERS)
def test_three_spellings_tell_the_same_turns(tmp_path, spelling, kind):
    run, reading = one(tmp_path, smith(spelling), kind)
    assert seen(run) == [(thought, action, back) for thought, _, _, action, back in TURNS]
    assert [call.name for step in run.steps for call in step.calls] == [turn[1] for turn in TURNS]
    assert (run.task_id, run.repo) == ("org__repo.0123abcd.pr_1", "org/repo")
    assert (run.model, run.agent, run.goal) == ("some-model", "swe-agent", "It breaks.")
    assert (run.end, run.exit_status) == ("run.completed", "submit")
    assert run.outcome == Outcome(outcome="success", source="swe-smith resolved")
    assert run.config == {
        "spelling": spelling, "traj_id": f"org__repo.0123abcd.pr_1.{spelling}", "patch": "diff",
    }  # fmt: skip
    assert (run.submission, reading.refused, reading.notes) == (None, [], [])


@pytest.mark.parametrize("spelling", ["xml", "ticks"])
def test_messages_may_be_a_list(tmp_path, spelling):
    text, _ = one(tmp_path, smith(spelling))
    for kind in ("parquet", "jsonl"):
        listed, _ = one(tmp_path, smith(spelling, as_text=False), kind)
        assert listed.steps == text.steps


def test_calls_keep_their_ids_and_arguments(tmp_path):
    run, _ = one(tmp_path, smith("tool"))
    calls = [call for step in run.steps for call in step.calls]
    assert [call.id for call in calls] == ["c0", "c1", "c2", "c3"]
    assert [call.arguments for call in calls] == [turn[2] for turn in TURNS]
    run, _ = one(tmp_path, smith("xml"))
    edit = run.steps[2].calls[0].arguments
    assert edit == TURNS[2][2]  # the line breaks of the notation are gone, those of the text not


HARNESS = {
    "tool": {"role": "assistant", "content": "Exit due to cost limit", "thought": "", "action": ""},
    "xml": {
        "role": "assistant",
        "content": "Since we have successfully fixed the issue and verified it works, let's go:\n\n"
        "<function=submit>\n</function>",
    },
    "ticks": {"role": "assistant", "content": "Exit due to cost limit\n\n```\nsubmit\n```"},
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_what_the_harness_said_is_no_submission_of_the_model(tmp_path, spelling):
    run, _ = one(tmp_path, smith(spelling, HARNESS[spelling], resolved=False))
    last = run.steps[-1]
    assert (last.flags, last.action, last.calls) == (("rejected", "harness"), "", ())
    assert (run.end, run.exit_status) == ("run.failed", "exit_cost")
    assert [step.action for step in run.steps[:-1]] == [turn[3] for turn in TURNS[:-1]]


def test_another_reason_is_said(tmp_path):
    last = {"role": "assistant", "content": "Exit due to context window"}
    run, _ = one(tmp_path, smith("xml", last))
    assert (run.exit_status, run.steps[-1].flags) == ("exit_context", ("rejected", "harness"))


def test_a_reply_without_a_call_was_not_run(tmp_path):
    talk = (
        {"role": "assistant", "content": "Hm."},
        {"role": "user", "content": "Call a function!"},
    )
    run, _ = one(tmp_path, smith("xml", *talk))
    assert run.steps[-1].flags == ("rejected",)
    assert run.steps[-1].state == {"corrections": ["Call a function!"]}
    assert run.end is None


@pytest.mark.parametrize(("said", "outcome"), [(False, "failure"), (0, "failure"), (1, "success")])
def test_resolved_is_the_outcome(tmp_path, said, outcome):
    run, _ = one(tmp_path, smith("xml", resolved=said, patch=""))
    assert run.outcome == Outcome(outcome=outcome, source="swe-smith resolved")


def test_without_a_label_the_outcome_is_unknown(tmp_path):
    row = {name: smith("xml", as_text=False)[name] for name in ("messages", "instance_id")}
    path = container(tmp_path / "a", [row], "jsonl")
    assert recognise(Source(path)).name == "swe-smith"
    (run,), _ = read(FORMAT, path)
    assert (run.outcome, run.dataset) == (None, None)


def test_a_chat_about_an_instance_is_not_claimed(tmp_path):
    row = {"messages": [{"role": "user", "content": "x"}], "instance_id": "a"}
    assert FORMAT.sniff(json.dumps(row).encode(), tmp_path / "a") == 0
    shown = json.dumps({**row, "system": "<function=bash>"}).encode()
    assert FORMAT.sniff(shown, tmp_path / "a") == 0


@pytest.mark.parametrize(
    ("messages", "why"),
    [(None, "no messages"), ("[{", "cut short"), ("7", "another shape"), ({}, "are no list")],
)
def test_messages_that_are_none(tmp_path, messages, why):
    rows = [smith("xml"), smith("xml", messages=messages)]
    runs, reading = read(FORMAT, container(tmp_path / "a", rows, "jsonl"))
    assert len(runs) == 1
    ((where, said),) = reading.refused
    assert where == "line 2"
    assert why in said


def test_the_first_line_may_be_longer_than_what_is_looked_at_first(tmp_path):
    row = {
        "messages": smith("xml", as_text=False)["messages"] * 400,
        "instance_id": "a",
        "traj_id": "b",
    }
    row["messages"] = [*row["messages"], {"role": "user", "content": "x" * 100_000}]
    path = container(tmp_path / "a", [row, row], "jsonl")
    assert recognise(Source(path)).name == "swe-smith"


def test_such_a_line_in_a_source_too_large_to_be_held(tmp_path, monkeypatch):
    monkeypatch.setattr("sag_research.ingest.formats._WHOLE", 300_000)
    row = {
        "messages": [{"role": "user", "content": "x" * 100_000}],
        "traj_id": "b",
        "instance_id": "a",
    }
    path = container(tmp_path / "a", [row] * 5, "jsonl")
    assert recognise(Source(path)).name == "swe-smith"


@pytest.mark.parametrize(
    "text", ["<function=", "<function=a><parameter=", "```\n", "<parameter=x>"]
)
def test_notation_without_an_end_takes_no_time(tmp_path, text):
    run, _ = one(tmp_path, smith("xml", {"role": "assistant", "content": text * 60_000}))
    assert len(run.steps) == len(TURNS)


@settings(max_examples=60)
@given(damaged([smith("tool", as_text=False), smith("xml", as_text=False), smith("ticks")]))
def test_any_values_give_runs_or_a_reason(tmp_path_factory, value):
    path = tmp_path_factory.mktemp("any") / "a.json"
    path.write_text(json.dumps(value), encoding="utf-8")
    with suppress(FormatError):  # nothing else may come out
        for run in FORMAT.read(Source(path)):
            assert run.agent == "swe-agent"


def test_real_rows(real_data):
    path = real_data / "swesmith_sweagent_v1/ft_xml_example.jsonl"
    assert recognise(Source(path)).name == "swe-smith"
    runs, reading = read(FORMAT, path)
    raw = [json.loads(line) for line in path.read_bytes().splitlines()]
    assert [run.task_id for run in runs] == [row["instance_id"] for row in raw]
    assert (reading.refused, reading.notes) == ([], [])
    for run, row in zip(runs, raw, strict=True):
        replies = [one["content"] for one in row["messages"] if one["role"] == "assistant"]
        assert len(run.steps) == len(replies)
        written = sum(reply.count("<function=") for reply in replies)
        assert sum(len(step.calls) for step in run.steps) == written
        assert run.outcome is None


def test_real_rows_have_the_actions_of_the_file_that_they_were_made_of(real_data):
    folder = real_data / "swesmith_sweagent_v1"
    rows, _ = read(FORMAT, folder / "ft_xml_example.jsonl")
    by_task = {run.task_id: run for run in rows}
    compared = 0
    for path in sorted((folder / "trajectories").rglob("*.traj")):
        (run,), _ = read(SweAgent(), path)
        row = by_task.get(run.task_id)
        if row is None:
            continue
        for theirs, ours in zip(run.steps, row.steps, strict=True):
            assert ours.action == theirs.action.strip("\n")
            assert [call.name for call in ours.calls] == [call.name for call in theirs.calls]
            compared += 1
    assert compared > 50
