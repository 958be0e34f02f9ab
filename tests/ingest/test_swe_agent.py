import json

import pytest

from sag_research.errors import FormatError
from sag_research.ingest import Source
from sag_research.ingest.formats import by_name
from sag_research.ingest.formats.swe_agent import exit_parts
from tests.ingest.make import swe_file, swe_step, tool_call, write

FORMAT = by_name("swe-agent")


@pytest.fixture
def read(tmp_path):
    def read_(value, name="org__repo-12.traj"):
        reading = FORMAT.read(Source(write(tmp_path / name, value)))
        return list(reading), reading

    return read_


def one(read, value, name="org__repo-12.traj"):
    (run,), _ = read(value, name)
    return run


def modern(turns, **more):
    """A 1.x file: ``turns`` are (thought, action, observation, tool calls)."""
    history = [
        {"role": "system", "content": "Help.", "agent": "main", "message_type": "system_prompt"},
        {
            "role": "user",
            "content": [{"type": "text", "text": "Mend it."}],
            "agent": "main",
            "message_type": "observation",
        },
    ]
    steps = []
    for thought, action, observation, calls in turns:
        steps.append(
            {
                "action": action,
                "observation": observation,
                "response": thought,
                "thought": thought,
                "execution_time": 0.5,
                "state": {"working_dir": "/testbed"},
                "messages": history[:],
            }
        )
        history.append(
            {
                "role": "assistant",
                "content": thought,
                "thought": thought,
                "action": action,
                "agent": "main",
                "tool_calls": calls,
                "message_type": "action",
            }
        )
        for call in calls:
            history.append(
                {
                    "role": "tool",
                    "content": [{"type": "text", "text": f"OBSERVATION:\n{observation}"}],
                    "agent": "main",
                    "tool_call_ids": [call["id"]],
                    "message_type": "observation",
                }
            )
    return {
        "trajectory": steps,
        "history": history,
        "info": {
            "swe_agent_version": "1.0.1",
            "exit_status": "submitted",
            "model_stats": {"instance_cost": 0.2, "tokens_sent": 10, "tokens_received": 3},
        },
        "replay_config": json.dumps({"agent": {"model": {"name": "claude"}}}),
        "environment": "pandas-dev__pandas.95280573.pr_53652",
        **more,
    }


def test_the_first_versions(read):
    run = one(read, swe_file())
    assert (run.task_id, run.repo, run.agent) == ("org__repo-12", "org/repo", "swe-agent")
    assert (run.goal, run.end, run.exit_status) == ("It is broken.", "run.completed", "submitted")
    assert run.submission == "diff"
    (step,) = run.steps
    assert (step.thought, step.action, step.observation) == ("Look around.", "ls\n", "a.py")
    assert step.state == {"open_file": "n/a", "working_dir": "/repo"}
    (call,) = step.calls
    assert (call.name, call.text, call.observation) == ("bash", "ls\n", "a.py")


def test_the_agents_own_commands_are_tools(read):
    run = one(
        read, swe_file(swe_step("open a.py\n"), swe_step("python a.py\n"), swe_step("submit\n"))
    )
    assert [step.calls[0].name for step in run.steps] == ["open", "bash", "submit"]


def test_modern_files_know_task_model_version_and_calls(read):
    calls = [tool_call("bash", {"command": "ls"}, "c9")]
    run, reading = read(modern([("Look.", "ls", "a.py\r\nb.py", calls)]), "any.traj")
    assert reading.version == "1.0.1"
    (run,) = run
    assert (run.task_id, run.repo) == ("pandas-dev__pandas.95280573.pr_53652", "pandas-dev/pandas")
    assert (run.model, run.goal) == ("claude", "Mend it.")
    assert (run.usage.tokens_in, run.usage.tokens_out, run.usage.cost_usd) == (10, 3, 0.2)
    (step,) = run.steps
    assert (step.seconds, step.state) == (0.5, {"working_dir": "/testbed"})
    (call,) = step.calls
    assert (call.id, call.name, call.arguments) == ("c9", "bash", {"command": "ls"})
    assert (call.text, call.observation) == ("ls", "a.py\r\nb.py")  # CRLF stays


def test_calls_are_matched_by_what_was_said_and_never_by_index(read):
    file = modern(
        [
            ("First.", "ls", "a", [tool_call("bash", {"command": "ls"}, "c1")]),
            ("Same.", "pwd", "/x", [tool_call("bash", {"command": "pwd"}, "c2")]),
            ("Same.", "pwd", "/y", [tool_call("bash", {"command": "pwd"}, "c3")]),
        ]
    )
    requery = {
        "action": "",
        "observation": "",
        "response": "no call at all",
        "thought": "",
        "state": {},
        "execution_time": 0,
    }
    file["trajectory"].insert(0, requery)
    run = one(read, file)
    assert [[call.id for call in step.calls] for step in run.steps] == [[], ["c1"], ["c2"], ["c3"]]
    assert [step.flags for step in run.steps] == [("rejected",), (), (), ()]
    assert run.steps[0].thought == "no call at all"


def test_several_calls_in_one_turn_get_their_own_results(read):
    calls = [tool_call("bash", {"command": "ls"}, "c1"), tool_call("view", {"path": "x"}, "c2")]
    file = modern([("Both.", "ls; view x", "seen", calls)])
    file["history"][-1]["content"] = "second"
    file["history"][-2]["content"] = "first"
    (step,) = one(read, file).steps
    assert [call.observation for call in step.calls] == ["first", "second"]
    assert [call.text for call in step.calls] == ["ls", 'view({"path": "x"})']


def test_a_file_of_history_alone_gives_the_models_turns(read):
    file = {
        "history": modern(
            [
                ("Look.", "ls", "a.py", [tool_call("bash", {"command": "ls"})]),
                ("Done.", "submit", "diff", [tool_call("submit", "{}", "c2")]),
            ]
        )["history"]
    }
    demo = {"role": "assistant", "content": "shown", "is_demo": True, "agent": "main"}
    file["history"].insert(1, demo)
    run = one(read, file)
    assert [(step.action, step.observation) for step in run.steps] == [
        ("ls", "OBSERVATION:\na.py"),
        ("submit", "OBSERVATION:\ndiff"),
    ]
    assert [step.calls[0].name for step in run.steps] == ["bash", "submit"]
    assert (run.end, run.exit_status, run.goal) == (None, None, "Mend it.")


def test_attempts_are_runs_and_the_winners_copy_is_not(read):
    first, second = swe_file(swe_step("ls\n")), swe_file(swe_step("pwd\n"), swe_step("submit\n"))
    file = {**second, "attempts": [first, second]}
    file["info"] = {**second["info"], "best_attempt_idx": 1}
    runs, _ = read(file)
    assert [(run.record, run.attempt, len(run.steps)) for run in runs] == [("0", 0, 1), ("1", 1, 2)]
    assert [run.config for run in runs] == [{}, {"chosen": True}]


def test_an_attempt_that_cannot_be_read_costs_that_attempt(read):
    attempts = [7, swe_file(), {"trajectory": {}}, {"trajectory": [], "history": "x"}, swe_file()]
    runs, reading = read({"attempts": attempts, "info": {"best_attempt_idx": 4}})
    assert [(run.record, run.config.get("chosen")) for run in runs] == [("1", None), ("4", True)]
    assert reading.refused == [
        ("attempt 0", "no object"),
        ("attempt 2", "no list at $.trajectory"),
        ("attempt 3", "no list at $.history"),
    ]


def test_attempts_that_are_not_finished_are_runs_too(read):
    (run,), _ = read({"attempts": [{"trajectory": [], "history": [], "info": {}}]})
    assert (run.steps, run.exit_status, run.end) == ((), None, None)


def test_info_and_exit_status_are_optional(read):
    for file in (
        {"trajectory": []},
        {"trajectory": [swe_step()], "info": None},
        {"trajectory": [swe_step()], "info": {"exit_status": None}},
    ):
        assert one(read, file).end is None


def test_replay_config_may_be_an_object_and_is_kept_whole(read):
    config = {
        "agent": {"model": {"model_name": "m"}},
        "env": {"post_startup_commands": ["x"]},
        "problem_statement": {"text": "The text.", "id": "org__repo-7"},
    }
    run = one(read, swe_file(replay_config=config), "x.traj")
    assert (run.model, run.task_id, run.goal, run.config) == (
        "m",
        "org__repo-7",
        "The text.",
        config,
    )


def test_a_replay_config_that_is_no_json_is_noted(read):
    (run,), reading = read(swe_file(replay_config="{"))
    assert run.config == {}
    assert reading.notes == ["replay_config is no JSON and was left out"]


def test_the_folder_names_model_and_data_set(read):
    folder = "gpt4__my-data-set__default_from_url__t-0.00__p-0.95__c-3.00__install-1"
    run = one(read, swe_file(), f"{folder}/org__repo-i1.traj")
    assert (run.model, run.dataset, run.repo) == ("gpt4", "my-data-set", "org/repo")
    folder = "gpt4__org__repo__default__t-0.00__p-0.95__c-3.00__install-1"
    assert one(read, swe_file(), f"{folder}/x.traj").dataset is None  # a repository is no data set


def test_counters_of_zero_are_unknown(read):
    stats = {"instance_cost": 0, "tokens_sent": 0, "tokens_received": 0, "total_cost": 9.0}
    assert one(read, swe_file(info={"model_stats": stats})).usage is None


def test_a_step_that_is_no_object_costs_that_step(read):
    (run,), reading = read(swe_file(swe_step(), "junk", None))
    assert len(run.steps) == 1
    assert reading.notes == ["2 entries of trajectory are no objects and were left out"]


def test_texts_of_another_type_do_not_stop_the_reader(read):
    step = swe_step(action=None, observation=[{"type": "text", "text": "x"}], thought=3, state=7)
    (step,) = one(read, swe_file({**step, "execution_time": "fast"})).steps
    assert (step.thought, step.action, step.observation) == ("3", "", "x")
    assert (step.state, step.seconds) == (7, None)


def test_a_trajectory_that_is_no_list_is_refused(read):
    with pytest.raises(FormatError, match=r"\$\.trajectory"):
        read({"trajectory": {"action": "ls"}})


@pytest.mark.parametrize(
    ("status", "parts", "end"),
    [
        ("submitted", ("submitted", ""), "run.completed"),
        ("submitted (exit_cost)", ("submitted", "exit_cost"), "run.completed"),
        ("exit_context", ("exit_context", ""), "run.failed"),
        ("exit_forfeit", ("exit_forfeit", ""), "run.abandoned"),
        ("unknown_error (max_steps)", ("unknown_error", "max_steps"), "run.failed"),
        ("odd", ("odd", ""), "run.completed"),
        ("", None, None),
    ],
)
def test_the_exit_status_is_no_outcome(read, status, parts, end):
    run = one(read, swe_file(info={"exit_status": status}))
    assert (run.end, run.exit_status, run.outcome) == (end, status or None, None)
    if parts:
        assert exit_parts(status) == parts


@pytest.mark.parametrize(
    ("value", "claimed"),
    [
        (swe_file(), True),
        ({"trajectory": []}, True),
        ({"attempts": [{"trajectory": []}]}, True),
        ({"history": [{"role": "user", "content": "x", "agent": "main"}]}, True),
        ({"history": [{"role": "user", "content": "x"}]}, False),
        ({"trajectory": [], "more": 1}, False),
        ({"trajectory": [{"observation_id": 1}]}, False),
        ([swe_file()], False),
    ],
)
def test_files_are_claimed_by_content(tmp_path, value, claimed):
    head = json.dumps(value).encode()
    assert (FORMAT.sniff(head, tmp_path / "x.json") > 0) == claimed
