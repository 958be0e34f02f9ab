import gzip
import json
from collections import Counter
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sag_research.errors import FormatError
from sag_research.ingest import ingest
from sag_research.ingest._source import Source
from sag_research.ingest.formats import recognise
from sag_research.ingest.formats.moatless import Moatless
from sag_research.log import SQLiteEventStore
from sag_research.model import Usage
from tests.ingest.formats.openhands_make import damaged
from tests.ingest.make import write

FORMAT = Moatless()


def completion(sent=100, got=10, cost=0.5):
    usage = {"prompt_tokens": sent, "completion_tokens": got, "completion_cost": cost}
    return {"model": "m", "input": [{"role": "user", "content": "long"}], "usage": usage}


def node(number, *children, **more):
    found = {
        "node_id": number,
        "action": {
            "thoughts": f"thought {number}",
            "path": f"{number}.py",
            "action_args_class": "moatless.actions.view_code.ViewCodeArgs",
        },
        "observation": {"message": f"seen {number}", "expect_correction": False},
        "reward": {"value": 60, "explanation": "fine"},
        "visits": 1,
        "value": 60.0,
        "completions": {"build_action": completion(), "value_function": completion(7, 1, 0.25)},
        "children": list(children),
    }
    return {**found, **more}


def root(*children, **more):
    bare = {"action": None, "observation": None, "reward": None, "completions": {}}
    return node(0, *children, **{**bare, "message": "It breaks.", **more})


def tree(top, **more):
    found = {
        "metadata": {"instance_id": "own__repo-1"},
        "max_expansions": 3,
        "max_iterations": 10,
        "selector": {"type": "BestFirstSelector"},
        "agent": {"system_prompt": "Be kind.", "completion": {"model": "some/model"}},
        "root": top,
    }
    return {**found, **more}


FORKED = tree(root(node(1, node(2, node(5)), node(3, node(4)))))


def state(number, *actions, **more):
    found = {"id": str(number), "name": "PlanToCode", "actions": list(actions)}
    return {**found, "previous_state_id": str(number - 1), **more}


def action(trigger="edit", message=None, **request):
    response = {"trigger": trigger, "output": {"file_path": "a.py"}}
    if message:
        response = {"trigger": trigger, "retry_message": message}
    return {
        "request": {"scratch_pad": "I think.", **request},
        "response": response,
        "completion": completion(),
    }


def loop(*states, **more):
    found = {
        "name": "MoatlessTools",
        "transition_rules": {"global_params": {"model": "some/model"}},
        "initial_message": "It breaks.",
        "transitions": [{"id": "0", "name": "Pending"}, *states],
        "info": {"instance_id": "own__repo-1", "status": "error", "submission": "diff\n"},
    }
    return {**found, **more}


def read(path, value):
    reading = FORMAT.read(Source(write(path, value)))
    return list(reading), reading


def shape(runs):
    return [
        (run.record, run.parent, run.parent_step, [step.thought[-1] for step in run.steps])
        for run in runs
    ]


def test_a_tree_of_one_way(tmp_path):
    (run,), reading = read(tmp_path / "x.json", tree(root(node(1, node(2)))))
    assert (run.task_id, run.goal, run.model) == ("own__repo-1", "It breaks.", "some/model")
    assert (run.agent, run.repo, run.outcome) == ("moatless", "own/repo", None)
    first = run.steps[0]
    assert (first.thought, first.observation) == ("thought 1", "seen 1")
    (call,) = first.calls
    assert (call.name, call.arguments, call.status) == ("ViewCode", {"path": "1.py"}, "ok")
    assert first.action == 'ViewCode({"path": "1.py"})'
    assert first.usage == Usage(tokens_in=100, tokens_out=10, cost_usd=0.5)
    assert first.state["judges"] == {"tokens_in": 7, "tokens_out": 1, "cost_usd": 0.25}
    assert (first.state["reward"]["value"], first.state["node_id"]) == (60, 1)
    assert (reading.version, reading.notes) == ("tree", [])


def test_branches_are_runs(tmp_path):
    runs, _ = read(tmp_path / "x.json", FORKED)
    assert shape(runs) == [("0", None, None, ["1", "3", "4"]), ("1", "0", 0, ["2", "5"])]
    assert {run.relation for run in runs} == {"fork"}
    with SQLiteEventStore(":memory:") as store:
        assert ingest(store, [tmp_path]).by_format == {
            "moatless": {"files": 1, "runs": 2, "steps": 5}
        }
        assert sum(run.parent_id is not None for run in store.runs()) == 1


def test_a_fork_at_the_root(tmp_path):
    runs, _ = read(tmp_path / "x.json", tree(root(node(1), node(2))))
    assert shape(runs) == [("0", None, None, ["2"]), ("1", "0", None, ["1"])]


def test_a_tree_as_a_list(tmp_path):
    flat = [
        {**root(), "children": [], "parent_id": None},
        *({**node(n), "children": [], "parent_id": up} for n, up in ((1, 0), (2, 1), (3, 1))),
    ]
    runs, reading = read(tmp_path / "x.json", tree(flat))
    assert shape(runs) == [("0", None, None, ["1", "3"]), ("1", "0", 0, ["2"])]
    assert reading.notes == []
    flat[1]["parent_id"], flat[3]["parent_id"] = 2, 9
    runs, reading = read(tmp_path / "y.json", tree(flat))
    assert sum(len(run.steps) for run in runs) == 3
    assert reading.notes == [
        "1 nodes name a parent that is not here", "1 cycles of parents were cut",
    ]  # fmt: skip


def test_later_versions_take_several_actions_in_a_node(tmp_path):
    steps = [
        {"action": {"name": "Bash", "command": "ls"}, "observation": {"message": "a"},
         "completion": completion(1, 1, 0.1)},
        {"action": {"name": "Finish"}, "observation": None},
    ]  # fmt: skip
    made = node(1, action=None, action_steps=steps, completions={}, assistant_message="I look.")
    (run,), _ = read(tmp_path / "x.json", tree(root(made)))
    (step,) = run.steps
    assert (step.thought, step.observation) == ("I look.", "a")
    assert [(call.name, call.status) for call in step.calls] == [
        ("Bash", "ok"), ("Finish", "unknown"),
    ]  # fmt: skip
    assert step.usage == Usage(tokens_in=1, tokens_out=1, cost_usd=0.1)


def test_a_search_that_never_began(tmp_path):
    (run,), _ = read(tmp_path / "own__repo-2/trajectory.json", tree(root(), metadata={}))
    assert (run.task_id, run.steps, run.end) == ("own__repo-2", (), None)


def test_a_deep_tree(tmp_path):
    top = node(300)
    for number in range(299, 0, -1):
        top = node(number, top)
    (run,), _ = read(tmp_path / "x.json", tree(root(top)))
    assert len(run.steps) == 300


def test_a_loop(tmp_path):
    told = loop(
        state(1, action(file_path="a.py")),
        state(2),
        state(3, action("retry", "The same."), action("reject")),
    )
    (run,), reading = read(tmp_path / "x.json", told)
    assert (run.exit_status, run.submission, run.outcome) == ("error", "diff\n", None)
    assert reading.version == "loop"
    assert [step.calls[0].status for step in run.steps] == ["ok", "error", "ok"]
    assert [step.observation for step in run.steps] == [
        '{"file_path": "a.py"}', "The same.", '{"file_path": "a.py"}',
    ]  # fmt: skip
    assert run.steps[0].action == 'PlanToCode({"file_path": "a.py"})'
    assert [step.state["state"] for step in run.steps] == ["1", "3", "3"]


def test_a_loop_that_went_back(tmp_path):
    told = loop(state(1, action()), state(2, action()), state(3, action(), previous_state_id="1"))
    runs, _ = read(tmp_path / "x.json", told)
    assert [(run.parent, run.parent_step, len(run.steps)) for run in runs] == [
        (None, None, 2), ("0", 0, 1),
    ]  # fmt: skip


@pytest.mark.parametrize("value", [[], 3, {"root": 3}, {"root": []}, {"transitions": []}, {}])
def test_what_is_none(tmp_path, value):
    assert FORMAT.sniff(json.dumps(value).encode(), tmp_path) == 0
    with pytest.raises(FormatError):
        read(tmp_path / "x.json", value)


@given(st.data())
def test_any_value(tmp_path_factory, data):
    value = data.draw(damaged(data.draw(st.sampled_from([FORKED, loop(state(1, action()))]))))
    path = write(tmp_path_factory.mktemp("any") / "x.json", value)
    FORMAT.sniff(path.read_bytes(), path)
    with suppress(FormatError):
        runs = list(FORMAT.read(Source(path)))
        records = [run.record for run in runs]
        assert len(set(records)) == len(records)
        assert all(run.parent in records[:n] for n, run in enumerate(runs) if run.parent)


# ---- real files


def test_real_files(real_data):
    folder = real_data / "moatless_trees"
    (path,) = [one for one in folder.rglob("trajectory.json*") if one.is_file()]
    raw = path.read_bytes()
    told = json.loads(gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw)
    assert recognise(Source(path)).name == "moatless"
    (run,) = FORMAT.read(Source(path))
    tries = [one for state in told["transitions"] for one in state.get("actions") or []]
    assert (len(told["transitions"]), len(run.steps)) == (16, len(tries)) == (16, 18)
    assert Counter(step.calls[0].status for step in run.steps) == Counter(
        "error" if one["response"]["trigger"] == "retry" else "ok" for one in tries
    )
    assert [step.thought for step in run.steps] == [
        one["request"].get("scratch_pad", "") for one in tries
    ]
    usages = [one["completion"]["usage"] for one in tries if one.get("completion")]
    counted = [step.usage for step in run.steps if step.usage]
    assert [one.tokens_in for one in counted] == [one["prompt_tokens"] for one in usages]
    assert [one.cost_usd for one in counted] == [one["completion_cost"] for one in usages]
    assert run.task_id == "scikit-learn__scikit-learn-13779"
    assert (run.exit_status, run.submission) == ("error", told["info"]["submission"])


def test_real_files_are_ingested(real_data):
    with SQLiteEventStore(":memory:") as store:
        report = ingest(store, [real_data / "moatless_trees"], progress=False)
        assert report.by_format == {"moatless": {"files": 2, "runs": 2, "steps": 18}}
        assert (report.rejected, len(report.ignored)) == ([], 1)
