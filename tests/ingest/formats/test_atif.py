import json

import pytest

from sag_research.errors import FormatError
from sag_research.ingest import ingest
from sag_research.ingest._source import Source
from sag_research.ingest.formats.atif import Atif
from sag_research.log import SQLiteEventStore
from sag_research.model import Usage
from tests.ingest.make import write

FORMAT = Atif()


def read(path, value):
    reading = FORMAT.read(Source(write(path, value)))
    return list(reading), reading


def one(path, value):
    (run,), reading = read(path / "trajectory.json", value)
    return run, reading


def agent(message, *calls, results=(), **more):
    step = {
        "step_id": 1,
        "timestamp": "2025-01-01T00:00:10Z",
        "source": "agent",
        "message": message,
        "tool_calls": list(calls),
        "observation": {"results": list(results)},
        "metrics": {"prompt_tokens": 100, "completion_tokens": 5, "cached_tokens": 90},
    }
    return {**step, **more}


def call(call_id, name="bash", **arguments):
    return {"tool_call_id": call_id, "function_name": name, "arguments": arguments}


def user(message, **more):
    return {"step_id": 1, "source": "user", "message": message, **more}


def trajectory(*steps, **more):
    return {
        "schema_version": "ATIF-v1.6",
        "session_id": "session",
        "agent": {"name": "aide", "version": "1", "model_name": "some/model"},
        "steps": list(steps)
        or [
            {"step_id": 1, "source": "system", "message": "Be kind."},
            user("Mend it."),
            agent(
                "I look.",
                call("c1", command="ls"),
                results=[{"source_call_id": "c1", "content": "a.py"}],
            ),
            user("Go on."),
            agent("Done.", reasoning_content="All is well."),
        ],
        "final_metrics": {
            "total_prompt_tokens": 300,
            "total_completion_tokens": 12,
            "total_cost_usd": 0.0,
        },
        **more,
    }


def texts(run):
    return [(step.thought, step.action, step.observation) for step in run.steps]


def test_a_trajectory(tmp_path):
    run, reading = one(tmp_path, trajectory())
    assert texts(run) == [("I look.", "ls", "a.py\nGo on."), ("All is well.\nDone.", "", "")]
    assert (run.task_id, run.record) == ("trajectory", None)
    assert (run.goal, run.agent, run.model) == ("Mend it.", "aide", "some/model")
    # cached tokens are among those that went in; zero is unknown
    assert run.steps[0].usage == Usage(tokens_in=100, tokens_out=5)
    assert run.usage == Usage(tokens_in=300, tokens_out=12)
    assert run.steps[0].started == 1735689610
    assert run.outcome is None
    assert run.config["preface"] == [{"source": "system", "text": "Be kind."}]
    assert (reading.version, reading.notes, reading.refused) == ("v1.6", [], [])


@pytest.mark.parametrize("minor", range(9))
def test_all_versions_are_claimed(tmp_path, minor):
    value = trajectory(schema_version=f"ATIF-v1.{minor}")
    assert FORMAT.sniff(json.dumps(value).encode()[:4096], tmp_path / "x") > 0.9
    assert one(tmp_path, value)[1].version == f"v1.{minor}"


@pytest.mark.parametrize(
    ("results", "seen"),
    [
        ([{"content": "one"}, {"content": "two"}], ["one", "two"]),
        ([{"source_call_id": "c2", "content": "two"}], ["", "two"]),
        ([{"content": "both"}], ["", ""]),
        ([{"source_call_id": "c1", "content": "a"}, {"source_call_id": "c1", "content": "b"}],
         ["a\nb", ""]),
        ([{"source_call_id": "c9", "content": "lost"}, "junk"], ["", ""]),
    ],
)  # fmt: skip
def test_results_and_calls(tmp_path, results, seen):
    run, _ = one(tmp_path, trajectory(agent("x", call("c1"), call("c2"), results=results)))
    assert [one.observation for one in run.steps[0].calls] == seen
    told = [result["content"] for result in results if isinstance(result, dict)]
    assert run.steps[0].observation == "\n".join(told)


def test_a_result_without_a_name_is_that_of_the_only_call(tmp_path):
    results = [{"content": [{"type": "text", "text": "a"}]}, {"content": "b"}]
    run, _ = one(tmp_path, trajectory(agent("x", call("c1"), results=results)))
    assert run.steps[0].calls[0].observation == "a\nb"


def test_copied_steps_are_inherited_and_cost_nothing(tmp_path):
    value = trajectory(
        user("Mend it.", is_copied_context=True),
        agent("I look.", is_copied_context=True),
        user("Go on."),
        agent("Done."),
    )
    write(tmp_path / "in/trajectory.cont-1.json", value)
    (run,), _ = read(tmp_path / "in/trajectory.cont-1.json", value)
    assert [step.flags for step in run.steps] == [("inherited",), ()]
    assert [step.usage for step in run.steps] == [None, Usage(tokens_in=100, tokens_out=5)]
    assert run.usage is None  # the totals may hold what was copied
    with SQLiteEventStore(":memory:") as store:
        report = ingest(store, [tmp_path / "in"], progress=False)
        assert (report.runs, report.steps) == (1, 1)


def test_sub_agents_are_runs_behind_the_step_that_called_them(tmp_path):
    deeper = trajectory(agent("deep"), session_id="s", trajectory_id="t3")
    refers = {"content": "4", "subagent_trajectory_ref": [{"trajectory_id": "t3"}]}
    child = trajectory(
        agent("a"), agent("b", call("c1"), results=[refers]),
        session_id="s", trajectory_id="t2", subagent_trajectories=[deeper, "junk"],
    )  # fmt: skip
    files = {"trajectory_path": "elsewhere.json"}
    refers = {"content": "4", "subagent_trajectory_ref": [{"trajectory_id": "t2"}, files]}
    stray = trajectory(agent("stray"), session_id="other")
    value = trajectory(
        agent("one"), agent("two", call("c1"), results=[refers]), agent("three"),
        session_id="s", trajectory_id="t1", subagent_trajectories=[child, stray],
    )  # fmt: skip
    runs, reading = read(tmp_path / "trajectory.json", value)
    assert [(run.record, run.parent, run.parent_step) for run in runs] == [
        ("0", None, None),
        ("0.0", "0", 1),
        ("0.0.0", "0.0", 1),
        ("0.1", "0", None),
    ]
    assert {run.relation for run in runs[1:]} == {"subagent"}
    assert runs[0].config["subagent_files"] == [{"step": 1, **files}]
    assert reading.refused == [("sub-agent 0.0.1", "it holds no steps")]
    with SQLiteEventStore(":memory:") as store:
        report = ingest(store, [tmp_path], progress=False)
        assert (report.runs, report.steps) == (4, 7)


def test_sub_agents_in_any_depth(tmp_path):
    value = trajectory(agent("x"))
    for _ in range(40):
        value = trajectory(agent("x"), subagent_trajectories=[value])
    runs, reading = read(tmp_path / "x.json", value)
    assert len(runs) == 21
    assert reading.refused[0][1] == "nested too deeply"


def test_a_step_without_a_reply_has_a_flag(tmp_path):
    run, _ = one(tmp_path, trajectory(agent("x", llm_call_count=0), agent("y", llm_call_count=2)))
    assert [step.flags for step in run.steps] == [("no-model",), ()]


# ---- files that break the rules


@pytest.mark.parametrize(
    ("value", "records", "thoughts"),
    [
        ([trajectory(), trajectory(agent("x"))], ["0", "1"], [["I look.", "Done."], ["x"]]),
        (trajectory()["steps"], [None], [["I look.", "Done."]]),
        (trajectory() | {"steps": {"10": agent("b"), "9": agent("a")}}, [None], [["a", "b"]]),
        (trajectory(agent({"role": "assistant", "content": "x"})), [None], [["x"]]),
        (trajectory(agent([{"type": "text", "text": "x"}])), [None], [["x"]]),
        (trajectory(agent({"type": "text", "text": "x"})), [None], [["x"]]),
        (trajectory(agent({"odd": 1})), [None], [['{"odd": 1}']]),
        (trajectory(agent("x"), "a bare text", None, {"source": "moon"}), [None], [["x"]]),
        (trajectory(agent("x", tool_calls={"a": 1}, observation=[1])), [None], [["x"]]),
        (trajectory(agent("x", metrics="m", timestamp=7)), [None], [["x"]]),
    ],
)  # fmt: skip
def test_what_can_be_read_is_read(tmp_path, value, records, thoughts):
    runs, _ = read(tmp_path / "x.json", value)
    assert [run.record for run in runs] == records
    said = [[step.thought.split("\n")[-1] for step in run.steps] for run in runs]
    assert said == thoughts


def test_what_cannot_be_read_is_kept(tmp_path):
    run, reading = one(tmp_path, trajectory(agent("x"), "a bare text"))
    assert run.config["unreadable"] == [{"step": 1, "value": "a bare text"}]
    assert reading.notes == ["1 steps are no objects, or nobody's"]


@pytest.mark.parametrize("value", [[], ["a"], [1], "x", 3, b"{", b"", [[trajectory()]]])
def test_no_trajectory_is_a_reason(tmp_path, value):
    with pytest.raises(FormatError):
        read(tmp_path / "x.json", value)


@pytest.mark.parametrize("steps", ["x", None, 3, {"a": agent("x")}])
def test_steps_of_another_kind_are_refused(tmp_path, steps):
    runs, reading = read(tmp_path / "x.json", trajectory() | {"steps": steps})
    assert (runs, reading.refused) == ([], [("the trajectory", "its steps are no list")])
    runs, reading = read(tmp_path / "y.json", [trajectory() | {"steps": steps}, trajectory(), 4])
    assert [run.record for run in runs] == ["1"]
    assert sorted(place for place, _ in reading.refused) == ["trajectory 0", "trajectory 2"]


def test_a_trajectory_a_line(tmp_path):
    lines = [json.dumps(trajectory()), "{cut", json.dumps(trajectory(agent("x")))]
    runs, reading = read(tmp_path / "x.jsonl", "\n".join(lines).encode())
    assert [run.record for run in runs] == ["0", "2"]
    assert [place for place, _ in reading.refused] == ["line 2"]
    assert [run.task_id for run in runs] == ["session", "session"]


# ---- names


def test_the_task_of_a_trial(tmp_path):
    path = tmp_path / "job/hello-world__aB3xY9z/agent/trajectory.json"
    (run,), _ = read(path, trajectory())
    assert run.task_id == "hello-world"
    write(path.parent.parent / "result.json", {"task_name": "org/hello-world"})
    (run,), _ = read(path, trajectory())
    assert run.task_id == "org/hello-world"
    write(path.parent.parent / "result.json", b"{cut")
    (run,), _ = read(path, trajectory())
    assert run.task_id == "hello-world"


def test_the_task_that_the_trajectory_names(tmp_path):
    run, _ = one(tmp_path, trajectory(extra={"instance_id": "django__django-1"}))
    assert (run.task_id, run.repo) == ("django__django-1", "django/django")


@pytest.mark.parametrize(
    ("value", "claimed"),
    [
        (trajectory(), True),
        ([trajectory()], True),
        (trajectory()["steps"], True),
        ({"steps": [user("x")]}, True),
        ({"schema_version": "1.0", "steps": []}, False),
        ({"task_id": "t", "steps": [{"thought": "x", "action": "y"}]}, False),
        ({"text": '"schema_version": "ATIF-v1.5"'}, False),
    ],
)
def test_files_are_claimed_by_content(tmp_path, value, claimed):
    assert (FORMAT.sniff(json.dumps(value).encode(), tmp_path / "x") > 0) == claimed


# ---- real files


def test_real_trajectories(real_data):
    folder = real_data / "inspect_scout/sources/atif_source/fixtures"
    paths = sorted(folder.glob("*.json"))
    assert len(paths) == 2
    for path in paths:
        raw = json.loads(path.read_text(encoding="utf-8"))
        (run,) = FORMAT.read(Source(path))
        agents = [step for step in raw["steps"] if step["source"] == "agent"]
        assert len(run.steps) == len(agents)
        for step, own in zip(run.steps, agents, strict=True):
            assert step.thought == own["message"]
            assert step.usage.tokens_in == own["metrics"]["prompt_tokens"]
            assert [one.id for one in step.calls] == [
                one["tool_call_id"] for one in own.get("tool_calls") or []
            ]
            results = own.get("observation", {}).get("results", [])
            assert step.observation == "\n".join(one["content"] for one in results)
        totals = raw["final_metrics"]
        assert run.usage.tokens_in == totals["total_prompt_tokens"]
        assert run.usage.cost_usd == totals["total_cost_usd"]
        told = [step["message"] for step in raw["steps"] if step["source"] != "agent"]
        assert {run.goal, *(one["text"] for one in run.config["preface"])} <= {
            *told, run.goal,
        }  # fmt: skip
        assert 1 + len(run.config["preface"]) == len(told)
