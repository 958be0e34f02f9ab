import json
from collections import Counter
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sag_research.errors import FormatError
from sag_research.ingest import ingest
from sag_research.ingest._source import Source
from sag_research.ingest._walk import find
from sag_research.ingest.formats._openhands_tree import ROOT, chains
from sag_research.ingest.formats.openhands_sdk import OpenHandsSdk
from sag_research.log import SQLiteEventStore
from sag_research.model import Usage
from tests.ingest.formats.openhands_make import (
    act,
    damaged,
    got,
    lines,
    read,
    read_folder,
    said,
    sdk,
    write_events,
)
from tests.ingest.make import write

FORMAT = OpenHandsSdk()


def state(event_id, key, value, **more):
    return sdk("ConversationStateUpdateEvent", event_id, key=key, value=value, **more)


def stats(tokens_in, tokens_out, cost=0.0):
    used = {
        "model_name": "some/model",
        "accumulated_cost": cost,
        "accumulated_token_usage": {"prompt_tokens": tokens_in, "completion_tokens": tokens_out},
    }
    idle = {"model_name": "small/model", "accumulated_cost": 0.0}
    return {"usage_to_metrics": {"condenser": idle, "default": used}}


def conversation():
    """Two turns, the first one with two calls, and an end."""
    return [
        sdk("SystemPromptEvent", "s", system_prompt={"type": "text", "text": "You help."}),
        said("u", "Mend it."),
        state("t1", "stats", stats(10, 1)),
        act("a", "ls", "r1"),
        act("b", "pwd", "r1", thought=[]),
        got("oa", "call-a", "x.py"),
        got("ob", "call-b", "/repo", 3),
        said("m", "What now?", source="agent", llm_response_id="r2"),
        said("v", "Finish."),
        state("t2", "stats", stats(30, 4)),
        act("c", "", "r3", tool_name="finish", action={"kind": "FinishAction", "message": "ok"},
            tool_call={"id": "call-c", "name": "finish", "arguments": '{"message": "ok"}'}),
        got("oc", "call-c", "ok", None),
        state("t3", "execution_status", "finished"),
    ]  # fmt: skip


def runs_of(path, events):
    return read(FORMAT, path / "org__repo-3.jsonl", lines(*events))


def one(path, events):
    (run,), reading = runs_of(path, events)
    return run, reading


def test_a_conversation(tmp_path):
    run, reading = one(tmp_path, conversation())
    assert [(step.thought, step.action, step.observation) for step in run.steps] == [
        ("I do ls.", "ls\npwd", "x.py\n/repo"),
        ("What now?", "", "Finish."),
        ("I do .", 'finish({"message": "ok"})', "ok"),
    ]
    assert (run.task_id, run.repo, run.goal) == ("org__repo-3", "org/repo", "Mend it.")
    assert (run.model, run.agent, run.record) == ("some/model", "openhands", None)
    assert (run.end, run.exit_status, run.outcome) == ("run.completed", "finished", None)
    assert run.usage == Usage(tokens_in=30, tokens_out=4)  # the last totals; zero is unknown
    assert reading.notes == [
        "4 events are part of no step: ConversationStateUpdateEvent 3, SystemPromptEvent 1"
    ]


def test_calls_and_their_results(tmp_path):
    run, _ = one(tmp_path, conversation())
    assert [(c.id, c.name, c.text, c.exit_code, c.status) for c in run.steps[0].calls] == [
        ("call-a", "terminal", "ls", 0, "ok"),
        ("call-b", "terminal", "pwd", 3, "error"),
    ]
    assert run.steps[0].calls[0].arguments == {"command": "ls", "security_risk": "LOW"}
    (end,) = run.steps[2].calls
    assert (end.exit_code, end.status) == (None, "unknown")  # -1 says that nobody knows


@pytest.mark.parametrize(
    ("observation", "text", "code", "status"),
    [
        ({"content": "x", "is_error": True, "exit_code": None}, "x", None, "error"),
        ({"content": "x", "is_error": False}, "x", None, "ok"),
        ({"content": "x", "is_error": False, "exit_code": -1}, "x", None, "unknown"),
        ({"content": "x", "exit_code": None, "metadata": {"exit_code": 2}}, "x", 2, "error"),
        ({"content": []}, "", None, "unknown"),
        ({"kind": "Other", "rows": [1]}, '{"rows": [1]}', None, "unknown"),
        ({"kind": "Other", "output": "x"}, "x", None, "unknown"),
        ("text", "text", None, "unknown"),
        (None, "", None, "unknown"),
    ],
)
def test_what_a_tool_gives_back(tmp_path, observation, text, code, status):
    run, _ = one(tmp_path, [act("a", "x", "r"), got("o", "call-a", "", observation=observation)])
    (call,) = run.steps[0].calls
    assert (call.observation, call.exit_code, call.status) == (text, code, status)


def test_refused_and_misunderstood_calls_were_not_run(tmp_path):
    events = [
        act("a", "rm", "r1"),
        sdk("UserRejectObservation", "o", tool_call_id="call-a", rejection_reason="No."),
        act("b", "x", "r2", action=None),
        sdk("AgentErrorEvent", "e", tool_call_id="call-b", tool_name="x", error="No such tool."),
        act("c", "ls", "r3"),
        act("d", "rm", "r3"),
        sdk("UserRejectObservation", "p", tool_call_id="call-d", rejection_reason="No."),
    ]
    run, _ = one(tmp_path, events)
    assert [step.flags for step in run.steps] == [("rejected",), ("rejected",), ()]
    assert [step.observation for step in run.steps] == ["No.", "No such tool.", "No."]
    assert run.steps[1].calls[0].status == "error"


def test_calls_that_another_agent_reports(tmp_path):
    def call(event_id, call_id, **more):
        return sdk("ACPToolCallEvent", event_id, tool_call_id=call_id, title="Read a", **more)

    events = [
        call("a", "k1", status="in_progress", tool_kind="read", raw_input={"path": "a"}),
        call("b", "k1", status="completed", raw_output="text"),
        call("c", "k2", status="failed", is_error=True, raw_output="none"),
    ]
    run, _ = one(tmp_path, events)
    assert [(step.action, step.observation, step.calls[0].status) for step in run.steps] == [
        ('read({"path": "a"})', "text", "ok"),
        ("Read a(null)", "none", "error"),
    ]


def test_unknown_kinds_are_kept_and_cost_nothing(tmp_path):
    strange = sdk("BrandNewEvent", "n", data={"x": 1})
    run, reading = one(tmp_path, [said("u", "Go."), act("a", "x", "r"), strange])
    assert run.config["opaque_events"] == [strange]
    assert len(run.steps) == 1
    assert reading.notes == ["1 events are part of no step: BrandNewEvent 1"]


def test_an_error_of_the_conversation_ends_it(tmp_path):
    events = [act("a", "x", "r"), sdk("ConversationErrorEvent", "e", code="Oops", detail="x")]
    run, _ = one(tmp_path, events)
    assert (run.end, run.exit_status) == ("run.failed", "error")


# ---- trees


def fork():
    """Behind the first turn the conversation was taken back and went another way."""
    return [
        said("u", "Mend it."),
        act("a", "ls", "r1", parent_id="u"),
        got("oa", "call-a", "x.py", parent_id="a"),
        act("b", "left", "r2", parent_id="oa"),
        got("ob", "call-b", "wrong", parent_id="b"),
        act("c", "right", "r3", parent_id="oa"),
        got("oc", "call-c", "good", parent_id="c"),
    ]


def test_a_branch_is_a_run_with_its_own_steps_only(tmp_path):
    (main, branch), _ = runs_of(tmp_path, fork())
    assert [step.action for step in main.steps] == ["ls", "right"]
    assert [step.action for step in branch.steps] == ["left"]
    assert (main.record, main.parent, main.parent_step) == ("0", None, None)
    assert (branch.record, branch.parent, branch.parent_step) == ("1", "0", 0)
    assert branch.steps[0].observation == "wrong"


def test_the_leaf_says_which_branch_is_the_run(tmp_path):
    folder = write_events(tmp_path / "org__repo-3/events", fork())
    about = {"llm": {"model": "m"}}
    kept = {"leaf_event_id": "ob", "agent": about, "max_iterations": 9}
    write(folder.parent / "base_state.json", {**kept, "secret_registry": {"k": "hidden"}})
    (main, branch), _ = read_folder(FORMAT, folder)
    assert [step.action for step in main.steps] == ["ls", "left"]
    assert [step.action for step in branch.steps] == ["right"]
    assert (main.task_id, main.model) == ("org__repo-3", "m")
    assert main.config == {"read_from": "events", **kept}
    assert "hidden" not in str(main.config)


def test_a_reply_whose_results_differ_is_in_both_and_counts_once(tmp_path):
    events = [
        said("u", "Mend it."),
        act("z", "first", "r0", parent_id="u"),
        got("oz", "call-z", "ok", parent_id="z"),
        act("a", "ls", "r1", parent_id="oz"),
        got("o1", "call-a", "lost in a crash", parent_id="a"),
        act("b", "left", "r2", parent_id="o1"),
        got("o2", "call-a", "run again", parent_id="a"),
        act("c", "right", "r3", parent_id="o2"),
    ]
    (main, branch), _ = runs_of(tmp_path, events)
    assert [step.observation for step in main.steps] == ["ok", "run again", ""]
    assert [step.observation for step in branch.steps] == ["lost in a crash", ""]
    assert [step.flags for step in branch.steps] == [("inherited", "shared-reply"), ()]
    assert (branch.parent, branch.parent_step) == ("0", 0)


def test_where_too_much_would_be_read_again_a_branch_shares_the_whole_turn(tmp_path, monkeypatch):
    monkeypatch.setattr("sag_research.ingest.formats._openhands_sdk._MOST_COPIES", 0)
    events = [
        act("a", "ls", "r1", parent_id=ROOT),
        got("o1", "call-a", "lost", parent_id="a"),
        act("b", "left", "r2", parent_id="o1"),
        got("o2", "call-a", "again", parent_id="a"),
        act("c", "right", "r3", parent_id="o2"),
    ]
    (main, branch), _ = runs_of(tmp_path, events)
    assert [step.action for step in main.steps] == ["ls", "right"]
    assert (branch.parent_step, [step.action for step in branch.steps]) == (0, ["left"])


def test_another_message_of_the_user_is_another_turn(tmp_path):
    events = [
        said("u", "Mend it."),
        act("a", "ls", "r1", parent_id="u"),
        got("oa", "call-a", "x", parent_id="a"),
        said("v", "Go left.", parent_id="oa"),
        act("b", "left", "r2", parent_id="v"),
        said("w", "Go right.", parent_id="oa"),
        act("c", "right", "r3", parent_id="w"),
    ]
    (main, branch), _ = runs_of(tmp_path, events)
    assert [step.observation for step in main.steps] == ["x\nGo right.", ""]
    assert [step.observation for step in branch.steps] == ["x\nGo left.", ""]
    assert (branch.parent_step, branch.steps[0].flags) == (-1, ("inherited", "shared-reply"))


def test_branches_of_branches(tmp_path):
    events = [
        act("a", "1", "r1", parent_id=ROOT),
        got("oa", "call-a", "", parent_id="a"),
        act("b", "2", "r2", parent_id="oa"),
        got("ob", "call-b", "", parent_id="b"),
        act("c", "3", "r3", parent_id="ob"),
        act("d", "4", "r4", parent_id="ob"),
        act("e", "5", "r5", parent_id="oa"),
    ]
    runs, _ = runs_of(tmp_path, events)
    shape = [
        (run.record, run.parent, run.parent_step, [s.action for s in run.steps]) for run in runs
    ]
    assert shape == [
        ("0", None, None, ["1", "5"]),
        ("1", "0", 0, ["2", "4"]),
        ("2", "1", 1, ["3"]),
    ]


def test_totals_of_a_conversation_are_of_no_single_branch(tmp_path):
    (main, branch), _ = runs_of(tmp_path, [*fork(), state("t", "stats", stats(30, 4))])
    assert (main.usage, branch.usage) == (None, None)
    assert main.config["conversation_usage"]["tokens_in"] == 30


def test_a_branch_without_a_turn_is_no_run_and_is_kept(tmp_path):
    events = [*fork(), said("w", "Hm.", parent_id="a"), act("d", "on", "r4", parent_id="oc")]
    runs, reading = runs_of(tmp_path, events)
    assert [len(run.steps) for run in runs] == [3, 1]
    assert "1 branches hold no turn of the model" in reading.notes
    assert runs[0].config["side_events"] == [events[-2]]


def test_several_roots_are_runs_of_their_own(tmp_path):
    events = [*conversation(), said("u2", "Anew.", parent_id=ROOT), act("z", "ls", "r9")]
    runs, reading = runs_of(tmp_path, events)
    assert [(run.goal, run.parent, len(run.steps)) for run in runs] == [
        ("Mend it.", None, 3),
        ("Anew.", None, 1),
    ]
    assert "2 events begin a tree of their own" in reading.notes


def test_a_missing_parent_costs_no_event(tmp_path):
    events = [*fork()[:3], act("c", "right", "r3", parent_id="gone")]
    run, reading = one(tmp_path, events)
    assert [step.action for step in run.steps] == ["ls", "right"]
    assert reading.notes == [
        "1 events name a parent that is not here, and follow the event before them"
    ]


TREES = st.lists(st.tuples(st.sampled_from("abcdef"), st.sampled_from(["a", "b", "c", "f", "q",
                 ROOT, None])), max_size=12)  # fmt: skip


@given(TREES, st.sampled_from(["a", "d", None]))
def test_any_tree_keeps_every_event_once(tree, leaf):
    ids, parents = [one for one, _ in tree], [one for _, one in tree]
    found, _ = chains(ids, parents, leaf)
    nodes = [node for chain in found for node in chain.nodes]
    assert sorted(nodes) == list(range(len(tree)))
    for number, chain in enumerate(found):
        assert chain.parent is None or chain.parent < number
        assert chain.parent is None or chain.at in found[chain.parent].nodes


@pytest.mark.parametrize("shape", ["line", "comb", "star", "ring"])
def test_large_trees_take_no_time(tmp_path, shape):
    count = 6_000
    parent = {
        "line": lambda n: f"e{n - 1}" if n else None,
        "comb": lambda n: f"e{n - n % 2 - 2}" if n > 1 else None,
        "star": lambda n: "e0" if n else None,
        "ring": lambda n: f"e{(n + 1) % count}",
    }[shape]
    kinds = {0: lambda n: act(f"e{n}", "x", f"r{n}"), 1: lambda n: said(f"e{n}", "go")}
    events = [{**kinds[n % 2](n), "parent_id": parent(n)} for n in range(count)]
    runs, _ = runs_of(tmp_path, events)
    assert sum(len(run.steps) for run in runs) >= count / 2


# ---- folders, lists, damage


def test_a_folder_a_list_and_lines_give_the_same_run(tmp_path):
    folder = write_events(tmp_path / "org__repo-3", conversation())
    (a,), reading = read_folder(FORMAT, folder)
    (b,), _ = read(FORMAT, tmp_path / "org__repo-3.json", conversation())
    c, _ = one(tmp_path, conversation())
    assert a == b == c
    assert "4 events are part of no step" in reading.notes[0]


def test_a_damaged_event_costs_itself_and_keeps_its_place(tmp_path):
    events = fork()
    folder = write_events(tmp_path / "x", events)
    (folder / "event-00002-oa.json").write_bytes(b'{"id": "oa", "ki')
    (main, branch), reading = read_folder(FORMAT, folder)
    assert [step.action for step in main.steps] == ["ls", "right"]
    assert (branch.parent_step, [step.action for step in branch.steps]) == (0, ["left"])
    assert reading.notes[0].startswith("event-00002-oa.json: JSON that is cut short")
    assert "1 events are part of no step: (unreadable) 1" in reading.notes


def test_a_missing_number_is_noted(tmp_path):
    folder = write_events(tmp_path / "x", conversation())
    (folder / "event-00002-t1.json").unlink()
    (run,), reading = read_folder(FORMAT, folder)
    assert len(run.steps) == 3
    assert reading.notes[0] == "1 numbers of events are missing"


def test_a_damaged_first_event_does_not_hide_the_folder(tmp_path):
    folder = write_events(tmp_path / "in/x", conversation())
    (folder / "event-00000-s.json").write_bytes(b'{"cut')
    with SQLiteEventStore(":memory:") as store:
        report = ingest(store, [tmp_path / "in"])
        assert report.by_format == {"openhands-sdk": {"files": 1, "runs": 1, "steps": 3}}


def test_a_bad_line_costs_that_event(tmp_path):
    value = lines(*conversation()[:4], b'{"id": ', 7, *conversation()[4:])
    (run,), reading = read(FORMAT, tmp_path / "x.jsonl", value)
    assert len(run.steps) == 3
    assert reading.notes[0].startswith("line 5: ")
    assert reading.notes[1] == "line 6: no object"


def test_many_bad_lines_are_noted_shortly(tmp_path):
    value = lines(*conversation(), *[b"{cut"] * 70)
    _, reading = read(FORMAT, tmp_path / "x.jsonl", value)
    assert sum(note.startswith("line ") for note in reading.notes) == 50
    assert "and 20 more like these" in reading.notes


def test_what_holds_no_event_is_refused(tmp_path):
    for value in (b"[]", b"{}", b"{", [7], {"a": 1}):
        with pytest.raises(FormatError):
            read(FORMAT, tmp_path / "x.json", value)


@pytest.mark.parametrize(
    ("value", "claimed"),
    [
        (lines(*conversation()), True),
        (json.dumps(conversation()).encode(), True),
        (b'{"kind": "main", "id": "x", "source": "y", "messages": []}', False),
        (b'{"kind": "ActionEvent"}', False),
        (b'{"id": 1, "timestamp": "t", "source": "user", "action": "message"}', False),
    ],
)
def test_files_are_claimed_by_content(tmp_path, value, claimed):
    assert (FORMAT.sniff(value, tmp_path / "x.json") > 0) == claimed


@settings(max_examples=80)
@given(damaged(conversation() + fork()))
def test_any_values_give_runs_or_a_reason(tmp_path_factory, events):
    path = write(tmp_path_factory.mktemp("any") / "x.jsonl", lines(*events))
    with suppress(FormatError):  # nothing else may come out
        assert list(FORMAT.read(Source(path)))


def test_real_events(real_data):
    path = real_data / "openhands_sdk_v1/sdk/conversation/goal/fixtures/events.jsonl"
    events = [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]
    kinds = Counter(event["kind"] for event in events)
    reading = FORMAT.read(Source(path))
    (run,) = reading
    replies = {event["llm_response_id"] for event in events if event["kind"] == "ActionEvent"}
    assert len(run.steps) == len(replies) == 2
    assert sum(len(step.calls) for step in run.steps) == kinds["ActionEvent"] == 2
    texts = [
        block["text"]
        for event in events
        if event["kind"] == "ObservationEvent"
        for block in event["observation"]["content"]
    ]
    assert len(texts) == 3  # the call of one is not in the file
    everything = "\n".join(step.observation for step in run.steps)
    assert all(text in everything for text in texts)
    assert reading.notes == [
        f"{kinds['ConversationStateUpdateEvent']} events are part of no step: "
        f"ConversationStateUpdateEvent {kinds['ConversationStateUpdateEvent']}",
        "1 results name a call that is not in their run",
    ]
    last = [event["value"] for event in events if event.get("key") == "stats"][-1]
    used = last["usage_to_metrics"]["default"]["accumulated_token_usage"]
    assert run.usage == Usage(tokens_in=used["prompt_tokens"], tokens_out=used["completion_tokens"])
    codes = [event["observation"]["exit_code"] for event in events if "observation" in event]
    assert codes == [None, None, 1]
    assert [call.exit_code for step in run.steps for call in step.calls] == [None, 1]


def test_the_whole_real_folder_gives_every_item_a_reason(real_data):
    folders = [real_data / name for name in ("openhands_events", "openhands_output_jsonl",
                                             "openhands_sdk_v1")]  # fmt: skip
    with SQLiteEventStore(":memory:") as store:
        report = ingest(store, folders)
        assert report.files == sum(1 for _ in find(folders))
        assert all(reason for _, reason in report.ignored + report.rejected)
        ours = {name: one for name, one in report.by_format.items() if "openhands" in name}
        assert ours == {
            "openhands": {"files": 1, "runs": 1, "steps": 3},
            "openhands-output": {"files": 1, "runs": 2, "steps": 26},
            "openhands-completions": {"files": 2, "runs": 2, "steps": 10},
            "openhands-sdk": {"files": 1, "runs": 1, "steps": 2},
        }
        assert store.verify().ok


def test_a_branch_is_a_fork_in_the_log(tmp_path):
    write_events(tmp_path / "in/org__repo-3/events", fork())
    with SQLiteEventStore(":memory:") as store:
        report = ingest(store, [tmp_path / "in"])
        assert (report.files, report.runs, report.steps) == (1, 2, 3)
        main, branch = store.runs()
        assert (branch.parent_id, branch.task_id) == (main.run_id, "org__repo-3")
        actions = [
            [event.payload["action"] for event in store.read(run.run_id, types=("agent.step",))]
            for run in (main, branch)
        ]
        assert actions == [["ls", "right"], ["ls", "left"]]
        assert sum(event.type == "agent.step" for event in store.tail()) == 3  # each stored once
        assert store.verify().ok
