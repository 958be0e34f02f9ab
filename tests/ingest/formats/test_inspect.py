import gzip
import json
import tracemalloc
import zipfile
import zlib

import pytest

from sag_research.errors import FormatError
from sag_research.ingest import ingest
from sag_research.ingest._source import Source
from sag_research.ingest.formats.inspect import Inspect
from sag_research.log import SQLiteEventStore
from sag_research.model import Outcome, Usage
from tests.ingest.formats.inspect_make import (
    asked,
    deflated,
    encoded,
    entries,
    header,
    log,
    ran,
    read,
    reply,
    sample,
    span,
    user,
    zipped,
)
from tests.ingest.make import write

FORMAT = Inspect()


def one(path, *events, **more):
    runs, reading = read(path / "x.json", log(sample(*events, **more)))
    return runs[0], reading


# ---- a sample


def test_a_sample(tmp_path):
    run, reading = one(tmp_path)
    assert (run.task_id, run.record, run.attempt) == ("looking:s1", "s1_1", 1)
    assert (run.goal, run.model, run.agent) == ("What is here?", "some/model", "react")
    assert (run.dataset, run.end, run.exit_status) == ("a-set", "run.completed", "stop")
    assert [(step.thought, step.action, step.observation) for step in run.steps] == [
        ("I look.", "ls", "a.py"),
        ("It is a.py.", "", ""),
    ]
    assert [step.usage for step in run.steps] == [Usage(tokens_in=10, tokens_out=5)] * 2
    assert [step.seconds for step in run.steps] == [1.5, None]
    assert run.steps[0].started == 1735689610
    assert run.usage is None  # the log's totals count the scorers as well
    assert run.outcome == Outcome(outcome="success", score=1.0, source="inspect score match")
    assert (run.config["target"], run.config["working_time"]) == ("a.py", 8.0)
    assert run.config["events"] == {
        "model": 2, "sample_init": 1, "span_begin": 1, "span_end": 1, "state": 1, "tool": 1,
    }  # fmt: skip
    assert (reading.version, reading.notes, reading.refused) == ("0.3.100", [], [])


def test_ids_may_be_numbers_and_epochs_are_attempts(tmp_path):
    value = log(*(sample(id=name, epoch=n) for name in (7, "7b") for n in (1, 2)))
    runs, _ = read(tmp_path / "x.json", value)
    assert [run.record for run in runs] == ["7_1", "7_2", "7b_1", "7b_2"]
    assert [run.attempt for run in runs] == [1, 2, 1, 2]
    assert {run.task_id for run in runs} == {"looking:7", "looking:7b"}


def test_records_that_repeat_are_told_apart(tmp_path):
    runs, _ = read(tmp_path / "x.json", log(sample(), sample(), sample(id=None)))
    assert [run.record for run in runs] == ["s1_1", "s1_1.2", "sample_1"]


def test_attachments_are_put_back_everywhere(tmp_path):
    key, other = "0123456789abcdef" * 2, "fedcba9876543210" * 2
    call = asked("c1", cmd=f"attachment://{key}")
    run, reading = one(
        tmp_path,
        reply("m1", f"attachment://{key}", call, where=None),
        ran("c1", f"attachment://{other}", where=None),
        reply("m2", "attachment://" + "0" * 32, where=None),
        attachments={key: "long text", other: "long result"},
    )
    step, last = run.steps
    assert (step.thought, step.action, step.observation) == ("long text",) * 2 + ("long result",)
    assert last.thought == "attachment://" + "0" * 32
    assert reading.notes == ["s1_1: 1 attachments are missing"]


@pytest.mark.parametrize("pooled", ["message_pool", "events_data"])
def test_messages_from_a_pool(tmp_path, pooled):
    pool = [
        user("Go."),
        {"id": "m1", "role": "assistant", "content": "I look."},
        {"id": "t1", "role": "tool", "tool_call_id": "c1", "content": "a.py"},
        user("Hurry.", 9),
    ]
    first = reply("m1", "I look.", asked("c1", cmd="ls"), sent=[], input_refs=[[0, 1]])
    second = reply("m2", "Done.", sent=[], input_refs=[[0, 2], [2, 4]])
    given = (
        {"message_pool": pool} if pooled == "message_pool" else {"events_data": {"messages": pool}}
    )
    run, _ = one(tmp_path, first, second, messages=[], input=None, **given)
    assert run.goal == "Go."
    assert run.steps[0].observation == "a.py\nHurry."


@pytest.mark.parametrize(
    "refs", [[[0, 10**30]], [[5, 1]], ["x", [None, 1]], [[-3, 2]], [[0, 1]] * 9]
)
def test_odd_ranges_cost_nothing(tmp_path, refs):
    run, _ = one(tmp_path, reply("m1", "Hi.", sent=[], input_refs=refs), message_pool=[user("Go.")])
    assert [step.thought for step in run.steps] == ["Hi."]


def test_without_events_the_messages_are_read(tmp_path):
    slow = {"type": "timeout", "message": "slow"}
    messages = [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": [{"type": "text", "text": "Go."}]},
        {
            "role": "assistant",
            "content": [
                {"type": "reasoning", "reasoning": "Hm."},
                {"type": "text", "text": "Look"},
            ],
            "tool_calls": [asked("c1", cmd="ls"), asked("c2", "submit", answer=1)],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "", "error": slow},
        {"role": "tool", "tool_call_id": "c2", "content": "ok"},
        {"role": "user", "content": "And?"},
        {"role": "assistant", "content": "No more."},
    ]  # fmt: skip
    run, _ = read(tmp_path / "x.json", log(sample(messages=messages) | {"events": None}))
    first, second = run[0].steps
    assert (first.thought, first.action) == ("Hm.\nLook", 'ls\nsubmit({"answer": 1})')
    assert first.observation == "slow\nok\nAnd?"
    assert [call.status for call in first.calls] == ["error", "ok"]
    assert second.thought == "No more."
    assert run[0].config["system"] == "Be kind."


def test_results_of_an_agent_outside_come_from_what_the_model_was_sent(tmp_path):
    tool = {"role": "tool", "tool_call_id": "c1", "content": "a.py"}
    said = {"role": "assistant", "content": "I look."}
    run, _ = one(
        tmp_path,
        reply("m1", "I look.", asked("c1", cmd="ls")),
        reply("m2", "Again.", asked("c1", cmd="pwd"), sent=[user("Go."), said, tool]),
        messages=[user("Go."), said, tool, said, {**tool, "content": "/repo"}],
    )
    # a call's id that is used again: each call has its own result
    assert [step.observation for step in run.steps] == ["a.py", "/repo"]


def test_a_reply_is_counted_once_and_a_failed_call_is_no_step(tmp_path):
    again = reply("m1", "I look.", asked("c1", cmd="ls"))
    again["output"]["usage"]["output_tokens"] = 50
    run, reading = one(
        tmp_path,
        reply("m1", "I look.", asked("c1", cmd="ls")),
        again,
        {**reply("m9", "x"), "output": {"choices": []}, "error": "overloaded"},
        reply("m8", "", error="overloaded"),
        ran("c1", "a.py"),
        {**reply("m2", "Done."), "cache": "read"},
    )
    assert [step.usage for step in run.steps] == [Usage(tokens_in=10, tokens_out=50), None]
    assert [step.flags for step in run.steps] == [(), ("cached",)]
    assert run.config["failed_calls"] == 2
    assert reading.notes == ["s1_1: 2 calls of the model failed"]


def test_calls_that_were_not_run_are_rejected(tmp_path):
    error = {"type": "parsing", "message": "no such argument"}
    run, _ = one(tmp_path, reply("m1", "x", asked("c1", cmd=1)), ran("c1", "", error=error))
    assert (run.steps[0].flags, run.steps[0].observation) == (("rejected",), "no such argument")


def test_results_that_answer_no_call_are_listed(tmp_path):
    _, reading = one(tmp_path, reply("m1", "x"), ran("c9", "lost"))
    assert reading.notes == ["s1_1: 1 results answer no call"]


# ---- the tree


def test_the_scorers_model_is_no_step(tmp_path):
    run, reading = one(
        tmp_path,
        span("main", "solver"),
        reply("m1", "Hi."),
        span("scorers", "scorers"),
        span("judge", "scorer", "scorers"),
        reply("g1", "GRADE: C", where="judge"),
    )
    assert [step.thought for step in run.steps] == ["Hi."]
    assert reading.notes == ["s1_1: 1 calls of the model are the scorer's"]


def test_steps_of_older_logs_nest_by_order(tmp_path):
    def step(action, name, kind):
        return {"event": "step", "action": action, "name": name, "type": kind}

    run, _ = one(
        tmp_path,
        step("begin", "generate", "solver"),
        reply("m1", "Hi.", where=None),
        step("end", "generate", "solver"),
        step("begin", "judge", "scorer"),
        reply("g1", "GRADE: I", where=None),
        step("end", "judge", "scorer"),
        step("end", "extra", "scorer"),
        reply("m2", "Bye.", where=None),
    )
    assert [step.thought for step in run.steps] == ["Hi.", "Bye."]


def test_agents_inside_tools_are_runs_of_their_own(tmp_path):
    runs, _ = read(tmp_path / "x.json", log(sample(
        span("main", "agent"),
        reply("m1", "Ask them.", asked("c1", "helper", q=1)),
        span("t", "tool", "main"),
        ran("c1", "they say 4", where="t"),
        span("a", "agent", "t"),
        reply("h1", "I compute.", asked("d1", cmd="bc"), where="a", sent=[user("2+2?")]),
        span("t2", "tool", "a"),
        ran("d1", "4", where="t2"),
        span("b", "agent", "t2"),
        reply("hh1", "deeper", where="b"),
        reply("h2", "4", where="a"),
        reply("m2", "It is 4."),
    )))  # fmt: skip
    assert [(run.record, run.parent, run.parent_step, run.agent) for run in runs] == [
        ("s1_1", None, None, "react"),
        ("s1_1.agent1", "s1_1", 0, "a"),
        ("s1_1.agent2", "s1_1.agent1", 0, "b"),
    ]
    main, helper, deeper = runs
    assert [step.observation for step in main.steps] == ["they say 4", ""]
    assert [step.observation for step in helper.steps] == ["4", ""]
    assert [step.thought for step in deeper.steps] == ["deeper"]
    assert {run.relation for run in runs[1:]} == {"subagent"}
    assert [run.outcome is None for run in runs] == [False, True, True]
    assert main.steps[0].state == {"agent": "main"}


def test_agents_at_once_do_not_mix_and_one_after_another_are_one_run(tmp_path):
    def agents(*between):
        return sample(
            span("a", "agent"), reply("a1", "one", where="a"), *between,
            span("b", "agent"), reply("b1", "two", where="b"), reply("a2", "three", where="a"),
        )  # fmt: skip

    runs, _ = read(tmp_path / "x.json", log(agents(), agents({"event": "span_end", "id": "a"})))
    assert [[step.thought for step in run.steps] for run in runs] == [
        ["one", "three"], ["two"], ["one", "two", "three"],
    ]  # fmt: skip
    assert [step.state["agent"] for step in runs[2].steps] == ["a", "b", "a"]


def test_agents_in_nested_events_of_older_logs(tmp_path):
    inner = [reply("h1", "inside"), {"event": "tool", "id": "x", "events": [reply("hh", "deep")]}]
    value = log(
        sample(reply("m1", "Ask.", asked("c1")), ran("c1", "4", agent="aide", events=inner))
    )
    runs, _ = read(tmp_path / "x.json", value)
    assert [[step.thought for step in run.steps] for run in runs] == [
        ["Ask."],
        ["inside"],
        ["deep"],
    ]
    assert [run.parent for run in runs] == [None, "s1_1", "s1_1.agent1"]


def test_branches_are_forks_without_what_they_replayed(tmp_path):
    runs, reading = read(tmp_path / "x.json", log(sample(
        span("main", "agent"),
        reply("m1", "one"),
        {"event": "anchor", "span_id": "main", "anchor_id": "here"},
        reply("m2", "two"),
        span("left", "branch", "main"),
        reply("r1", "one again", where="left"),
        {"event": "branch", "span_id": "left", "from_span": "main", "from_anchor": "here"},
        reply("m3", "other two", where="left"),
        span("right", "branch", "main"),
        reply("m4", "three", where="right"),
    )))  # fmt: skip
    assert [(run.record, run.parent_step, run.relation) for run in runs[1:]] == [
        ("s1_1.branch1", 0, "fork"),
        ("s1_1.branch2", 1, "fork"),
    ]
    assert [[step.thought for step in run.steps] for run in runs] == [
        ["one", "two"], ["other two"], ["three"],
    ]  # fmt: skip
    assert reading.notes == ["s1_1: 1 replies were replayed at the start of a branch"]
    with SQLiteEventStore(":memory:") as store:
        report = ingest(store, [tmp_path], progress=False)
        assert (report.runs, report.steps) == (3, 4)
        child = next(run.run_id for run in store.runs() if run.run_id.endswith("branch1"))
        seen = [event.payload["thought"] for event in store.read(child, types=("agent.step",))]
        assert seen == ["one", "other two"]


def test_a_branch_of_a_branch_counts_all_steps_before_it(tmp_path):
    runs, _ = read(tmp_path / "x.json", log(sample(
        span("main", "agent"),
        reply("m1", "one"),
        reply("m2", "two"),
        span("left", "branch", "main"),
        reply("m3", "three", where="left"),
        span("deep", "branch", "left"),
        reply("m4", "four", where="deep"),
        span("t", "tool", "deep"),
        reply("m5", "five", where="t"),
    )))  # fmt: skip
    assert [(run.record, run.parent, run.parent_step) for run in runs[1:]] == [
        ("s1_1.branch1", "s1_1", 1),
        ("s1_1.branch2", "s1_1.branch1", 2),
        ("s1_1.agent3", "s1_1.branch2", 3),
    ]
    with SQLiteEventStore(":memory:") as store:
        ingest(store, [tmp_path], progress=False)
        child = next(run.run_id for run in store.runs() if run.run_id.endswith("branch2"))
        seen = [event.payload["thought"] for event in store.read(child, types=("agent.step",))]
        assert seen == ["one", "two", "three", "four"]


# ---- outcomes


@pytest.mark.parametrize(
    ("value", "outcome", "score", "detail"),
    [
        ("C", "success", 1.0, None),
        ("I", "failure", 0.0, None),
        ("P", "unknown", 0.5, "partial"),
        ("N", "failure", 0.0, "empty"),
        (True, "success", 1.0, None),
        (False, "failure", 0.0, None),
        (1, "success", 1.0, None),
        (0.0, "failure", 0.0, None),
        (0.75, "unknown", 0.75, "partial"),
        ("0.75", "unknown", 0.75, "partial"),
        (8, "unknown", 8.0, "scale"),
        (-1, "unknown", -1.0, "scale"),
        ("yes", "success", 1.0, None),
        ("B", "unknown", None, None),
        (None, "unknown", None, None),
        ([1, 0], "unknown", None, "several"),
        ({"a": "C", "b": "I"}, "unknown", None, "several"),
        ({"a": "C"}, "success", 1.0, None),
        ({}, "unknown", None, None),
    ],
)
def test_scores(tmp_path, value, outcome, score, detail):
    run, _ = one(tmp_path, scores={"s": {"value": value}})
    assert run.outcome == Outcome(
        outcome=outcome, score=score, detail=detail, source="inspect score s"
    )
    assert run.config["scores"] == {"s": {"value": value}}


@pytest.mark.parametrize(
    ("scores", "outcome", "detail"),
    [
        ({"a": "C", "b": 1}, "success", None),
        ({"a": "C", "b": 0.5}, "success", None),
        ({"a": 0.5, "b": 0}, "failure", None),
        ({"a": "C", "b": "I"}, "unknown", "conflict"),
        ({"a": 0.5, "b": 0.25}, "unknown", "partial"),
    ],
)
def test_several_scorers(tmp_path, scores, outcome, detail):
    run, _ = one(tmp_path, scores={name: {"value": value} for name, value in scores.items()})
    assert (run.outcome.outcome, run.outcome.detail) == (outcome, detail)
    assert run.outcome.source == "inspect score a, b"


def test_a_scorer_that_goes_beyond_one_gives_no_outcome(tmp_path):
    results = {"scores": [{"name": "rating", "metrics": {"mean": {"value": 6.5}}}]}
    value = log(sample(scores={"rating": {"value": 1}}), results=results)
    (run,), _ = read(tmp_path / "x.json", value)
    assert (run.outcome.outcome, run.outcome.detail) == ("unknown", "scale")


def test_the_first_logs_had_one_score(tmp_path):
    run, _ = one(tmp_path, scores=None, score={"value": "I"})
    assert run.outcome == Outcome(outcome="failure", score=0.0, source="inspect score score")


def test_no_scores_say_nothing(tmp_path):
    run, _ = one(tmp_path, scores={})
    assert run.outcome is None


def test_errors_are_no_failures(tmp_path):
    error = {"message": "ConnectionError()", "traceback": "…"}
    run, _ = one(tmp_path, error=error, scores={"match": {"value": "I"}})
    assert (run.end, run.exit_status) == ("run.failed", "error")
    assert (run.outcome.outcome, run.outcome.detail) == ("unknown", "infra")
    assert run.config["error"] == "ConnectionError()"
    scored = header()["eval"] | {"config": {"score_on_error": True}}
    value = log(sample(error=error, scores={"match": {"value": "I"}}), eval=scored)
    (run,), _ = read(tmp_path / "x.json", value)
    assert (run.end, run.outcome.outcome) == ("run.failed", "failure")


def test_limits_and_invalid_samples(tmp_path):
    run, _ = one(tmp_path, limit={"type": "token", "limit": 5}, invalidation={"reason": "leak"})
    assert (run.end, run.exit_status) == ("run.completed", "token_limit")
    assert (run.outcome.outcome, run.outcome.detail) == ("unknown", "invalidated")
    run, _ = one(tmp_path, reply("m1", "x"), {"event": "sample_limit", "type": "time"})
    assert run.exit_status == "time_limit"


def test_earlier_attempts_are_runs_if_the_model_replied(tmp_path):
    retries = [
        {"message": "crash", "events": [reply("r1", "Try.")]},
        {"message": "crash", "events": [{"event": "error"}]},
    ]
    runs, reading = read(tmp_path / "x.json", log(sample(error_retries=retries)))
    assert [run.record for run in runs] == ["s1_1.attempt1", "s1_1"]
    assert (runs[0].outcome.detail, runs[0].config["retried_as"]) == ("infra", "s1_1")
    assert reading.notes == ["s1_1.attempt2 ended in an error before the model replied"]


# ---- archives


@pytest.mark.parametrize(
    "pack",
    [
        deflated,
        zipped,
        lambda files: zipped(files, 8),
        lambda files: zipped(files, 0),
        lambda files: zipped(files, 93, later=True),
        lambda files: gzip.compress(deflated(files)),
    ],
    ids=["deflate", "zstd", "own deflate", "stored", "sizes later", "gzip"],
)
def test_archives(tmp_path, pack):
    files = entries(sample(), sample(epoch=2), sample(id="a/../b ü"))
    runs, reading = read(tmp_path / "x.eval", pack(files))
    assert [run.record for run in runs] == ["s1_1", "s1_2", "a/../b ü_1"]
    assert {len(run.steps) for run in runs} == {2}
    assert (reading.version, reading.notes, reading.refused) == ("0.3.100", [], [])
    assert [path.name for path in tmp_path.iterdir()] == ["x.eval"]


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize("method", [8, 93])
def test_a_log_that_was_cut_short_is_salvaged(tmp_path, method, later):
    files = entries(sample(), sample(epoch=2), sample(epoch=3))
    whole = zipped(files, method, later)
    runs, reading = read(tmp_path / "x.eval", whole[: whole.index(b"samples/s1_epoch_3") + 99])
    assert [run.record for run in runs] == ["s1_1", "s1_2"]
    assert reading.refused[0][0] == "sample s1_epoch_3"
    assert "its directory is damaged" in reading.notes[0]
    assert "header.json is missing: the evaluation was not finished" in reading.notes
    assert runs[0].task_id == "looking:s1"  # from the journal


def test_a_damaged_sample_costs_itself(tmp_path):
    files = entries(sample(), sample(epoch=2), sample(epoch=3))
    whole = bytearray(zipped(files))
    at = whole.index(b"samples/s1_epoch_2.json") + len("samples/s1_epoch_2.json") + 40
    whole[at : at + 8] = b"\xff" * 8
    runs, reading = read(tmp_path / "x.eval", bytes(whole))
    assert [run.record for run in runs] == ["s1_1", "s1_3"]
    ((place, reason),) = reading.refused
    assert place == "sample s1_epoch_2"
    assert "damaged" in reason or "checksum" in reason


def test_a_sample_of_which_only_the_summary_is_left_is_listed(tmp_path):
    files = entries(sample(), sample(epoch=2))
    del files["samples/s1_epoch_2.json"]
    _, reading = read(tmp_path / "x.eval", zipped(files))
    assert reading.refused == [("sample s1_epoch_2", "only its summary is left")]


def test_an_entry_written_again_counts_once(tmp_path):
    files = [*entries().items(), ("samples/s1_epoch_1.json", sample(scores={}))]
    runs, reading = read(tmp_path / "x.eval", zipped(files))
    assert [run.outcome for run in runs] == [None]
    assert reading.notes == ["1 entries were written again: the last one counts"]


def test_an_unknown_packing_and_a_wrong_checksum_are_reasons(tmp_path):
    whole = zipped(entries(), 0)
    at = whole.index(b"samples/s1")
    strange = bytearray(whole)
    strange[at - 22 : at - 20] = (14).to_bytes(2, "little")
    _, reading = read(tmp_path / "x.eval", bytes(strange))
    assert "method 14" in reading.refused[0][1]
    wrong = whole.replace(b'"What is here?"', b'"What is there"', 1)
    _, reading = read(tmp_path / "x.eval", wrong)
    assert reading.refused == [("sample s1_epoch_1", "its checksum is wrong")]


def test_a_bomb_is_refused(tmp_path, monkeypatch):
    from sag_research.ingest.formats import _inspect_zip

    monkeypatch.setattr(_inspect_zip, "_EXPANDED", 2**23)
    blown = b'{"id": "s1", "epoch": 1, "input": "' + b"a" * 2**26 + b'"}'
    files = zipped(entries(sample(), sample(epoch=2)) | {"samples/s1_epoch_1.json": blown})
    tracemalloc.start()
    runs, reading = read(tmp_path / "x.eval", files)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [run.record for run in runs] == ["s1_2"]
    assert "expands to more than" in reading.refused[0][1]
    assert peak < 2**25


def test_many_entries_over_the_same_data_are_a_bomb(tmp_path, monkeypatch):
    from sag_research.ingest.formats import _inspect_zip

    monkeypatch.setattr(_inspect_zip, "_EXPANDED", 2**10)
    monkeypatch.setattr(_inspect_zip, "_RATIO", 2)
    files = entries(*(sample(id=n) for n in range(50)))
    with pytest.raises(FormatError, match="expands"):
        read(tmp_path / "x.eval", zipped(files))


# ---- what is claimed


@pytest.mark.parametrize(
    ("value", "claimed"),
    [
        (log(), True),
        (header(), True),
        ({"a.eval": header(), "b.eval": header()}, False),
        ({"description": "x", "events": [reply("m", "x")], "expected": {}}, False),
        ([log()], False),
        ({"eval": "x", "status": "success", "samples": []}, False),
        (deflated(entries()), True),
        (deflated({"word/document.xml": b"<x/>"}), False),
        (deflated({"header.json": header()}), True),
        (b"PK\x03\x04", False),
    ],
)
def test_files_are_claimed_by_content(tmp_path, value, claimed):
    assert (FORMAT.sniff(encoded(value)[:4096], tmp_path / "x.eval") > 0) == claimed


def test_a_zip_of_something_else_has_a_reason(tmp_path):
    write(tmp_path / "x.eval", deflated({"word/document.xml": b"<x/>"}))
    write(tmp_path / "y.zip", deflated({"word/document.xml": b"<x/>"}))
    with SQLiteEventStore(":memory:") as store:
        report = ingest(store, [tmp_path], progress=False)
    assert [path for path, _ in report.rejected] == ["x.eval"]
    assert [path for path, _ in report.ignored] == ["y.zip/word/document.xml"]
    assert all("zip archive" in reason for _, reason in report.rejected)


def test_a_log_without_samples_says_so(tmp_path):
    write(tmp_path / "x.json", header())
    write(tmp_path / "y.eval", deflated({"header.json": header()}))
    with SQLiteEventStore(":memory:") as store:
        report = ingest(store, [tmp_path], progress=False)
    assert [path for path, _ in report.rejected] == ["x.json", "y.eval"]
    assert all("the log holds no samples" in reason for _, reason in report.rejected)


# ---- real logs


def logs_in(folder):
    """Every log of the folder as plain objects: the header, and the samples."""
    for path in sorted(folder.rglob("*")):
        if path.suffix == ".json":
            value = json.loads(path.read_text(encoding="utf-8"))
            if isinstance(value, dict) and "eval" in value:
                yield path, value, value.get("samples") or []
        elif path.suffix == ".eval":
            files = {name: json.loads(data) for name, data in unzipped(path)}
            samples = [value for name, value in files.items() if name.startswith("samples/")]
            yield path, files["header.json"], samples


def unzipped(path):
    import zstandard

    data = path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            n_name = int.from_bytes(
                data[info.header_offset + 26 : info.header_offset + 28], "little"
            )
            n_more = int.from_bytes(
                data[info.header_offset + 28 : info.header_offset + 30], "little"
            )
            start = info.header_offset + 30 + n_name + n_more
            packed = data[start : start + info.compress_size]
            if info.compress_type == 93:
                plain = zstandard.ZstdDecompressor().decompressobj().decompress(packed)
            else:
                plain = zlib.decompress(packed, -15) if info.compress_type == 8 else packed
            yield info.filename, plain


def replies_in(raw):
    """Replies of the agent's model, counted straight from the events."""
    judged, depth = set(), 0
    for event in raw.get("events") or []:
        if event["event"] == "span_begin":
            if event["type"] in ("scorer", "scorers") or event.get("parent_id") in judged:
                judged.add(event["id"])
        elif event["event"] == "step" and event["type"] == "scorer":
            depth += 1 if event["action"] == "begin" else -1
        elif event["event"] == "model" and event.get("span_id") not in judged and not depth:
            message = event["output"]["choices"][0]["message"] if event["output"]["choices"] else {}
            if message.get("content") or message.get("tool_calls"):
                yield event, message


@pytest.mark.parametrize("folder", ["inspect_ai", "inspect_ai_generated", "inspect_scout"])
def test_real_logs(real_data, folder):
    counted = 0
    for path, head, samples in logs_in(real_data / folder):
        reading = FORMAT.read(Source(path))
        runs = {run.record: run for run in reading}
        assert reading.refused == []
        assert len(runs) == len(samples)
        for raw in samples:
            run = runs[f"{raw['id']}_{raw['epoch']}"]
            counted += 1
            check(run, raw, head)
    assert counted == {"inspect_ai": 8, "inspect_ai_generated": 6, "inspect_scout": 116}[folder]


def check(run, raw, head):
    assert (run.model, run.attempt) == (head["eval"]["model"], raw["epoch"])
    found = list(replies_in(raw))
    assert len(run.steps) == len(found)
    for step, (event, message) in zip(run.steps, found, strict=True):
        content = message["content"]
        if isinstance(content, str) and not content.startswith("attachment://"):
            assert step.thought == content
        usage = event["output"].get("usage")
        if usage:
            assert (step.usage.tokens_in, step.usage.tokens_out) == (
                usage["input_tokens"], usage["output_tokens"],
            )  # fmt: skip
        assert [call.id for call in step.calls] == [
            call["id"] for call in message.get("tool_calls") or []
        ]
    ran_ = [event for event in raw.get("events") or [] if event["event"] == "tool"]
    assert sum(call.status == "ok" for step in run.steps for call in step.calls) == len(ran_)
    letters = {"C": "success", "I": "failure"}
    said = {letters.get(score["value"]) for score in (raw.get("scores") or {}).values()}
    if raw.get("error"):
        assert (run.outcome.outcome, run.outcome.detail) == ("unknown", "infra")
    elif said:
        assert {run.outcome.outcome} == said
    else:
        assert run.outcome is None


def test_real_folders_are_accounted_for(real_data):
    with SQLiteEventStore(":memory:") as store:
        report = ingest(
            store, [real_data / "inspect_ai", real_data / "inspect_scout"], progress=False
        )
        assert report.by_format["inspect"]["runs"] == 8 + 116
        assert {path.rsplit("_", 1)[-1] for path, _ in report.rejected} == {"no-samples.json"}
        ignored = dict(report.ignored)
        fixtures = [path for path in ignored if "/events/" in path or "/test_skeleton/" in path]
        # event trees made to test another tool: no logs, and each has a reason
        assert len(fixtures) == 33 + 6
        assert all(ignored[path] for path in fixtures)


def models_in(events):
    for event in events:
        if event["event"] == "model":
            yield event
        yield from models_in(event.get("events") or [])


def test_no_reply_of_a_real_tree_is_lost(real_data, tmp_path):
    folders = ("inspect_scout/transcript/nodes/fixtures/events", "inspect_ai/log/test_skeleton")
    paths = [path for folder in folders for path in sorted((real_data / folder).glob("*.json"))]
    assert len(paths) == 39
    counted = 0
    for path in paths:
        events = json.loads(path.read_text(encoding="utf-8"))["events"]
        models = list(models_in(events))
        for number, event in enumerate(models):  # the trees hold no replies, so give each one
            message = {"id": f"m{number}", "role": "assistant", "content": f"reply {number}"}
            event["output"] = event.get("output", {}) | {"choices": [{"message": message}]}
        runs, reading = read(tmp_path / path.name, log(sample(messages=[]) | {"events": events}))
        judged = sum(
            int(note.split()[1]) for note in reading.notes if note.endswith("are the scorer's")
        )
        steps = [step.thought for run in runs for step in run.steps]
        assert len(set(steps)) == len(steps)
        assert len(steps) + judged + replayed(reading.notes) == len(models), path.name
        counted += len(models)
    assert counted > 100


def replayed(notes):
    return sum(int(note.split()[1]) for note in notes if "replayed" in note)
