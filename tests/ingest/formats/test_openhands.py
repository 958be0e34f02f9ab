import json
from collections import Counter

import pytest
from hypothesis import given, settings

from sag_research.errors import FormatError
from sag_research.ingest import ingest
from sag_research.ingest._source import Source
from sag_research.ingest.formats.openhands import OpenHands
from sag_research.log import SQLiteEventStore
from sag_research.model import Usage
from tests.ingest.formats.openhands_make import (
    action,
    damaged,
    ran,
    read,
    read_folder,
    response,
    seen,
    v0_events,
)
from tests.ingest.make import swe_file, swe_step, tau_result, tool_call, write

FORMAT = OpenHands()


def one(path, events):
    (run,), reading = read(FORMAT, path / "org__repo-7.json", events)
    return run, reading


def test_a_run(tmp_path):
    run, reading = one(tmp_path, v0_events())
    assert [(step.thought, step.action, step.observation) for step in run.steps] == [
        ("I look.", "ls\npwd", "a.py\n/repo"),
        ("Now build.", "make", "working\nbroken\nGo on."),
        ("I look.", 'finish({"message": "done"})', ""),
    ]
    assert (run.task_id, run.repo, run.agent) == ("org__repo-7", "org/repo", "openhands")
    assert (run.goal, run.model) == ("Mend it.", "some/model")
    assert (run.end, run.exit_status, run.outcome) == ("run.completed", "finished", None)
    assert run.config == {"read_from": "events", "agent_class": "CodeActAgent"}
    assert reading.notes == [
        "5 events are part of no step: agent_state_changed 1, null 1, recall 2, system 1"
    ]


def test_actions_of_one_reply_are_one_step_and_its_tokens_count_once(tmp_path):
    run, _ = one(tmp_path, v0_events())
    first, second, _ = run.steps
    assert [(call.id, call.name, call.arguments) for call in first.calls] == [
        ("c1", "execute_bash", {"command": "ls"}),
        ("c2", "execute_bash", {"command": "pwd"}),
    ]
    assert [(call.observation, call.exit_code, call.status) for call in first.calls] == [
        ("a.py", 0, "ok"),
        ("/repo", 0, "ok"),
    ]
    assert (first.usage, second.usage) == (Usage(tokens_in=100, tokens_out=7), None)


def test_the_last_usage_of_a_reply_wins(tmp_path):
    early = response("r", usage={"prompt_tokens": 9, "completion_tokens": 1})
    late = response("r", usage={"prompt_tokens": 9, "completion_tokens": 90})
    events = [
        action(1, "run", {"command": "a"}, tool_call_metadata={"model_response": early}),
        action(2, "run", {"command": "b"}, tool_call_metadata={"model_response": late}),
    ]
    run, _ = one(tmp_path, events)
    assert [step.usage for step in run.steps] == [Usage(tokens_in=9, tokens_out=90)]


def test_a_long_process_has_all_its_observations_and_the_last_exit_code(tmp_path):
    run, _ = one(tmp_path, v0_events())
    (call,) = run.steps[1].calls
    assert (call.observation, call.exit_code, call.status) == ("working\nbroken", 2, "error")


def test_exit_code_minus_one_is_unknown(tmp_path):
    run, _ = one(tmp_path, [action(1, "run", {"command": "x"}), ran(2, 1, "…", -1)])
    (call,) = run.steps[0].calls
    assert (call.exit_code, call.status) == (None, "unknown")


def test_times_have_no_zone_and_are_taken_for_utc(tmp_path):
    run, _ = one(tmp_path, v0_events())
    assert run.steps[0].started == 1_735_689_604.0
    assert run.steps[0].seconds == pytest.approx(4.5)  # from the first call to the last result


def test_old_files_hold_pairs_without_ids(tmp_path):
    def bare(event):
        return {name: value for name, value in event.items() if name not in ("id", "cause")}

    pairs = [
        [bare({**action(0, "message", {"content": "Mend it."}), "source": "user"}),
         bare(seen(0, None, "", "null"))],
        [bare(action(1, "run", {"command": "ls", "thought": "look"})), bare(ran(2, 1, "a.py"))],
        [bare(action(3, "run", {"command": "pwd"})), None],
        [bare(action(4, "run", {"command": "cat a"})), bare(ran(5, 4, "x", 1))],
    ]  # fmt: skip
    run, _ = one(tmp_path, pairs)
    assert [(step.action, step.observation) for step in run.steps] == [
        ("ls", "a.py"),
        ("pwd", ""),
        ("cat a", "x"),
    ]
    assert run.goal == "Mend it."


def test_ids_begin_again_in_each_session(tmp_path):
    events = [
        action(1, "run", {"command": "first"}),
        ran(2, 1, "one"),
        {**action(1, "message", {"content": "again"}), "source": "user"},
        action(2, "run", {"command": "second"}),
        ran(3, 2, "two"),
        ran(4, 1, "the user's", 1),  # number 1 is the user's by now
    ]
    run, _ = one(tmp_path, events)
    assert [[call.observation for call in step.calls] for step in run.steps] == [["one"], ["two"]]
    assert run.steps[0].calls[0].exit_code == 0
    assert run.steps[1].observation == "two\nthe user's"


def test_what_the_user_runs_is_no_step(tmp_path):
    events = [
        action(1, "run", {"command": "ls"}, source="user"),
        ran(2, 1, "nobody asked"),
        action(3, "run", {"command": "pwd"}),
        ran(4, 3, "/"),
        action(5, "run", {"command": "date"}, source="user"),
        ran(6, 5, "today"),
    ]
    run, reading = one(tmp_path, events)
    assert [(step.action, step.observation) for step in run.steps] == [("pwd", "/\ntoday")]
    assert run.steps[0].calls[0].observation == "/"
    assert reading.notes == ["3 events are part of no step: run 1, user's run 2"]


def test_a_refused_action_was_not_run(tmp_path):
    run, _ = one(tmp_path, [action(1, "run", {"command": "rm x"}),
                            seen(2, 1, "No!", "user_rejected")])  # fmt: skip
    assert run.steps[0].flags == ("rejected",)
    assert run.steps[0].calls[0].status == "error"


def test_an_error_that_answers_no_call_is_a_correction(tmp_path):
    events = [action(1, "run", {"command": "x"}), ran(2, 1, "ok"), seen(3, None, "Bad!", "error")]
    run, _ = one(tmp_path, events)
    assert run.steps[0].observation == "ok"
    assert run.steps[0].state == {"corrections": ["Bad!"]}


def test_an_error_that_answers_a_call_is_its_result(tmp_path):
    run, _ = one(tmp_path, [action(1, "read", {"path": "x"}), seen(2, 1, "No x.", "error")])
    (call,) = run.steps[0].calls
    assert (call.observation, call.status, run.steps[0].state) == ("No x.", "error", None)


@pytest.mark.parametrize(
    ("state", "end"),
    [
        ("finished", "run.completed"),
        ("error", "run.failed"),
        ("rejected", "run.abandoned"),
        ("stopped", "run.cancelled"),
        ("running", None),
    ],
)
def test_the_state_is_how_it_ended_and_no_outcome(tmp_path, state, end):
    events = [
        action(1, "run", {"command": "x"}),
        seen(2, None, "", "agent_state_changed", agent_state=state),
    ]
    run, _ = one(tmp_path, events)
    assert (run.end, run.exit_status, run.outcome) == (end, state, None)


def test_actions_of_any_name_are_calls_and_thinking_is_one(tmp_path):
    events = [
        action(1, "think", {"thought": "Hm."}),
        action(2, "novel_tool", {"x": 1, "hidden": False}),
        action(3, "run_ipython", {"code": "1+1", "thought": "", "kernel_init_code": "import x"}),
    ]
    run, _ = one(tmp_path, events)
    assert [step.action for step in run.steps] == [
        'think({"thought": "Hm."})',
        'novel_tool({"x": 1})',
        "1+1",
    ]
    assert run.steps[2].calls[0].arguments == {"code": "1+1"}


def test_totals_that_events_carry(tmp_path):
    metrics = {
        "accumulated_cost": 0.0,
        "accumulated_token_usage": {"prompt_tokens": 8, "completion_tokens": 2},
    }
    run, _ = one(tmp_path, [action(1, "run", {"command": "x"}, llm_metrics=metrics)])
    assert run.usage == Usage(tokens_in=8, tokens_out=2)  # a cost of zero is unknown


def test_entries_that_are_no_events_cost_themselves(tmp_path):
    run, reading = one(tmp_path, [7, {"a": 1}, *v0_events(), "x"])
    assert len(run.steps) == 3
    assert "3 entries are no events and were left out" in reading.notes


def test_an_object_with_the_events_as_its_trajectory(tmp_path):
    run, _ = one(tmp_path, {"trajectory": v0_events()})
    assert len(run.steps) == 3


def test_calls_without_an_id_do_not_take_each_others_words(tmp_path):
    reply = response("r", tool_call("execute_bash", {"command": "no"}, ""))
    about = {"function_name": "execute_bash", "tool_call_id": "", "model_response": reply}
    run, _ = one(tmp_path, [action(1, "run", {"command": "yes"}, tool_call_metadata=about)])
    assert run.steps[0].action == "yes"


@pytest.mark.parametrize(
    ("value", "claimed"),
    [
        (v0_events(), True),
        ([[v0_events()[0], v0_events()[5]]], True),
        ([ran(1, 0, "x")], True),
        ({"trajectory": v0_events()}, True),
        (swe_file(), False),
        ([tau_result()], False),
        ([{"action": "x", "args": {}}], False),
        ([{"kind": "ActionEvent", "id": "a", "source": "agent", "action": {}}], False),
        ({"action": "x", "args": {}, "id": 1}, False),
    ],
)
def test_files_are_claimed_by_content(tmp_path, value, claimed):
    head = json.dumps(value).encode()
    assert (FORMAT.sniff(head, tmp_path / "x.json") > 0) == claimed


def test_what_is_no_list_is_refused(tmp_path):
    for value in ({"a": 1}, 7, b"[1, "):
        with pytest.raises(FormatError):
            read(FORMAT, tmp_path / "x.json", value)


@settings(max_examples=80)
@given(damaged(v0_events()))
def test_any_values_give_runs(tmp_path_factory, events):
    path = write(tmp_path_factory.mktemp("any") / "x.json", events)
    (run,) = FORMAT.read(Source(path))
    assert len(run.steps) <= len(events)


def test_real_events(real_data):
    path = real_data / "openhands_events/runtime_trajs/basic_interactions.json"
    events = json.loads(path.read_text(encoding="utf-8"))
    by_source = Counter(event["source"] for event in events)
    (run,) = FORMAT.read(Source(path))
    assert len(run.steps) == by_source["agent"] == 3  # one reply each
    heard = [event["args"]["content"] for event in events if event["source"] == "user"]
    assert [run.goal, run.steps[0].observation, run.steps[1].observation] == heard
    usage = events[-1]["tool_call_metadata"]["model_response"]["usage"]
    last = run.steps[-1]
    assert last.usage.tokens_in == usage["prompt_tokens"]
    assert last.calls[0].id == events[-1]["tool_call_metadata"]["tool_call_id"]


@pytest.mark.parametrize("value", [v0_events(), {"trajectory": v0_events()}])
def test_the_pipeline_knows_it(tmp_path, value):
    write(tmp_path / "in/org__repo-7.json", value)
    with SQLiteEventStore(":memory:") as store:
        report = ingest(store, [tmp_path / "in"])
        assert report.by_format == {"openhands": {"files": 1, "runs": 1, "steps": 3}}


# ---- a file for each event


def session(folder, events=None):
    """Write a session as the server keeps it: events, and pages that repeat them."""
    events = v0_events() if events is None else events
    for number, event in enumerate(events):
        write(folder / f"events/{number}.json", event)
    write(folder / "event_cache/0-25.json", events)
    return folder


def test_a_folder_of_events_is_the_run_that_their_list_is(tmp_path):
    assert len(v0_events()) > 10  # 10.json stands before 2.json in the order of names
    (listed,), _ = read(OpenHands(), tmp_path / "s-1.json", v0_events())
    (run,), reading = read_folder(OpenHands(), session(tmp_path / "s-1"))
    assert (run, reading.version, len(reading.notes)) == (listed, "v0", 1)


@pytest.mark.parametrize("given", ["", "s-1", "s-1/events"])
def test_each_session_is_one_source_and_pages_count_for_nothing(tmp_path, given):
    session(tmp_path / "all/s-1")
    if not given:
        session(tmp_path / "all/s-2", [*v0_events(), action(99, "think", {"thought": "more"})])
    with SQLiteEventStore(":memory:") as store:
        report = ingest(store, [tmp_path / "all" / given])
        tasks = [run.task_id for run in store.runs()]
    n = 1 if given else 2
    pages = 0 if given.endswith("events") else n
    assert (report.ingested, report.runs, report.duplicates, report.rejected) == (n, n, 0, [])
    assert tasks == [f"s-{number + 1}" for number in range(n)]
    assert [why for _, why in report.ignored] == ["a page of the events in the folder 'events'"
                                                  " beside it"] * pages  # fmt: skip
    assert report.files == n + pages


@pytest.mark.parametrize("spoilt", ["0.json", "4.json"])
@pytest.mark.parametrize("data", [b"", b'{"id": 4, "act', b"gone", b"7"])
def test_a_damaged_event_costs_that_event(tmp_path, spoilt, data):
    folder = session(tmp_path / "s-1") / "events"
    (folder / spoilt).write_bytes(data)
    (folder / "8.json").unlink()
    with SQLiteEventStore(":memory:") as store:
        report = ingest(store, [folder])
    assert (report.runs, report.by_format["openhands"]["files"]) == (1, 1)
    notes = "\n".join(report.notes)
    assert "1 numbers of events are missing" in notes
    assert f"{spoilt}: " in notes or "1 entries are no events" in notes


def test_numbers_that_are_no_events_are_files_of_their_own(tmp_path):
    for number in range(2):
        write(tmp_path / f"events/{number}.json", swe_file(swe_step(f"echo {number}")))
    with SQLiteEventStore(":memory:") as store:
        assert ingest(store, [tmp_path]).by_format["swe-agent"]["files"] == 2
