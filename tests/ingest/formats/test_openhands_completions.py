import json
from contextlib import suppress

import pytest
from hypothesis import given, settings

from sag_research.errors import FormatError
from sag_research.ingest import ingest
from sag_research.ingest._source import Source
from sag_research.ingest.formats.openhands_completions import OpenHandsCompletions
from sag_research.log import SQLiteEventStore
from sag_research.model import Usage
from tests.ingest.formats.openhands_make import MODEL_FILE, completion, damaged, read
from tests.ingest.make import mini_file, tool_call, write

FORMAT = OpenHandsCompletions()


def one(path, value, name=f"org__repo-1/{MODEL_FILE}"):
    (run,), reading = read(FORMAT, path / name, value)
    return run, reading


def test_the_last_turn_comes_from_the_response(tmp_path):
    run, reading = one(tmp_path, completion())
    assert [(step.thought, step.action, step.observation) for step in run.steps] == [
        ("I look.", "ls", "a.py\n[Command finished with exit code 0]"),
        ("Done.", "finish({})", ""),
    ]
    assert (run.end, run.exit_status, run.outcome) == ("run.completed", "finish", None)
    assert (run.task_id, run.repo, run.model) == ("org__repo-1", "org/repo", "some/model")
    assert run.goal == "Mend it."
    assert reading.version == "1 (fncall_messages)"
    assert run.config == {"read_from": "fncall_messages"}


def test_both_spellings_tell_the_same_turns(tmp_path):
    whole = completion()
    prompt = {name: value for name, value in whole.items() if name != "fncall_messages"}
    real, _ = one(tmp_path / "a", whole)
    written, reading = one(tmp_path / "b", prompt)
    assert reading.version == "1 (messages)"
    assert [(s.thought, s.action, s.observation) for s in written.steps] == [
        (s.thought, s.action, s.observation) for s in real.steps
    ]
    (call,) = written.steps[0].calls
    assert (call.name, call.arguments, call.exit_code) == ("execute_bash", {"command": "ls"}, 0)


def test_the_response_with_real_calls_is_preferred(tmp_path):
    said = {"role": "assistant", "content": "End.", "tool_calls": [tool_call("finish", {}, "c9")]}
    value = completion(fncall_response={"choices": [{"message": said}]})
    run, _ = one(tmp_path, value)
    assert (run.steps[-1].thought, run.steps[-1].calls[0].id) == ("End.", "c9")


def test_tokens_and_cost_are_those_of_the_last_call(tmp_path):
    run, _ = one(tmp_path, completion())
    assert [step.usage for step in run.steps] == [None, Usage(tokens_in=50, tokens_out=5)]
    assert run.usage is None  # of the whole run nobody knows
    run, _ = one(tmp_path, completion(cost=0.5))
    assert run.steps[-1].usage.cost_usd == 0.5
    assert run.steps[-1].started == 1_757_015_070


def test_what_the_user_says_is_heard_and_answers_no_call(tmp_path):
    value = completion()
    value["fncall_messages"].append({"role": "user", "content": "Hurry."})
    run, _ = one(tmp_path, value)
    assert run.steps[0].observation.endswith("\nHurry.")
    assert "Hurry" not in run.steps[0].calls[0].observation


def test_a_task_behind_an_example_is_the_goal(tmp_path):
    line = "-" * 21
    task = f"Example: ls\n{line} NEW TASK DESCRIPTION {line}\nMend it.\n"
    task += f"{line} END OF NEW TASK DESCRIPTION {line}\nFollow the format."
    run, _ = one(tmp_path, completion(fncall_messages=[{"role": "user", "content": task}]))
    assert run.goal == "Mend it."


@pytest.mark.parametrize("code", [0, 3, -1])
def test_exit_codes_in_the_text(tmp_path, code):
    value = completion()
    value["fncall_messages"][3]["content"] = f"x\n[The command completed with exit code {code}.]"
    (call,) = one(tmp_path, value)[0].steps[0].calls
    known = {0: (0, "ok"), 3: (3, "error"), -1: (None, "unknown")}
    assert (call.exit_code, call.status) == known[code]


def test_a_response_without_a_reply_is_noted(tmp_path):
    run, reading = one(tmp_path, completion(response={"choices": []}))
    assert (len(run.steps), run.end) == (1, None)
    assert reading.notes == ["the response holds no reply: the last turn is missing"]


def test_an_earlier_call_of_the_same_run_is_refused(tmp_path):
    first = completion()
    more = completion()
    more["fncall_messages"] += [
        {"role": "assistant", "content": [{"type": "text", "text": "Done.\n<function=finish>\n"}]},
        {"role": "user", "content": "Not yet."},
    ]
    folder = tmp_path / "org__repo-1"
    write(folder / "m-1757015000.1.json", first)
    write(folder / "m-1757015001.1.json", more)
    write(folder / "other-1757015002.1.json", completion())
    write(folder / "m-1757015003.1.json", completion(fncall_messages=[]))  # another run
    with pytest.raises(FormatError, match=r"earlier call .* 'm-1757015001\.1\.json'"):
        FORMAT.read(Source(folder / "m-1757015000.1.json"))
    assert [len(run.steps) for run in FORMAT.read(Source(folder / "m-1757015001.1.json"))] == [3]
    with SQLiteEventStore(":memory:") as store:
        report = ingest(store, [tmp_path])
        assert (report.files, report.ingested, len(report.rejected)) == (4, 3, 1)


@pytest.mark.parametrize(
    ("value", "claimed"),
    [
        (completion(), True),
        ({"messages": [], "response": {}, "cost": 1, "kwargs": {}}, True),
        ({"messages": [], "response": {}}, False),
        ({"messages": [{"role": "user", "content": "x"}]}, False),
        (mini_file(), False),
        ([completion()], False),
    ],
)
def test_files_are_claimed_by_content(tmp_path, value, claimed):
    head = json.dumps(value).encode()
    assert (FORMAT.sniff(head, tmp_path / "x.json") > 0) == claimed


def test_a_log_longer_than_the_head_is_known(tmp_path):
    value = completion()
    for spelling in ("messages", "fncall_messages"):
        value[spelling][0] = {"role": "system", "content": "x" * 200_000}
    write(tmp_path / "in/org__repo-1" / MODEL_FILE, value)
    with SQLiteEventStore(":memory:") as store:
        report = ingest(store, [tmp_path / "in"])
        assert report.by_format == {"openhands-completions": {"files": 1, "runs": 1, "steps": 2}}


def test_an_opening_full_of_headings_takes_no_time(tmp_path):
    line = "-" * 21
    text = f"{line} NEW TASK DESCRIPTION {line}\n" * 20_000
    run, _ = one(tmp_path, completion(fncall_messages=[{"role": "user", "content": text}]))
    assert run.goal == text.strip()


@pytest.mark.parametrize("text", ["<function=", "<function=a><parameter=", "<parameter=x>"])
def test_text_without_an_end_takes_no_time(tmp_path, text):
    value = completion(messages=[{"role": "assistant", "content": text * 60_000}])
    del value["fncall_messages"]
    run, _ = one(tmp_path, value)
    assert len(run.steps) == 2


@settings(max_examples=80)
@given(damaged(completion()))
def test_any_values_give_runs_or_a_reason(tmp_path_factory, value):
    path = write(tmp_path_factory.mktemp("any") / MODEL_FILE, value)
    with suppress(FormatError):  # nothing else may come out
        (run,) = FORMAT.read(Source(path))
        assert run.agent == "openhands"


@pytest.mark.parametrize(("kind", "spelling", "turns"), [
    ("llm-logs", "messages", 6),
    ("nonfncall-llm-logs", "raw_messages", 4),
])  # fmt: skip
def test_real_logs(real_data, kind, spelling, turns):
    folder = real_data / "openhands_sdk_v1/fixtures/llm_data" / kind
    earlier, last = sorted(folder.iterdir())
    with pytest.raises(FormatError, match="earlier call"):
        FORMAT.read(Source(earlier))
    raw = json.loads(last.read_text(encoding="utf-8"))
    (run,) = FORMAT.read(Source(last))
    replies = [message for message in raw[spelling] if message["role"] == "assistant"]
    final = raw["response"]["choices"][0]["message"]
    assert len(run.steps) == len(replies) + 1 == turns
    asked = [call["id"] for reply in [*replies, final] for call in reply["tool_calls"]]
    assert [call.id for step in run.steps for call in step.calls] == asked
    answers = [message for message in raw[spelling] if message["role"] == "tool"]
    shown = [
        answer["content"]
        if isinstance(answer["content"], str)
        else "".join(block["text"] for block in answer["content"])
        for answer in answers
    ]
    assert [call.observation for step in run.steps for call in step.calls] == [*shown, ""]
    used = raw["response"]["usage"]
    assert run.steps[-1].usage == Usage(
        tokens_in=used["prompt_tokens"], tokens_out=used["completion_tokens"], cost_usd=raw["cost"]
    )
    # the refused file holds nothing that is not in this one
    before = json.loads(earlier.read_text(encoding="utf-8"))
    assert before[spelling] == raw[spelling][: len(before[spelling])]
