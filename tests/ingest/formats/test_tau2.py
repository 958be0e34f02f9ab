import gzip
import json

import pytest

from sag_research.errors import FormatError
from sag_research.ingest import ingest
from sag_research.ingest._source import Source
from sag_research.ingest.formats.tau2 import Tau2
from sag_research.log import SQLiteEventStore
from sag_research.model import Outcome, Usage
from tests.ingest.make import write

FORMAT = Tau2()


def read(path, value):
    reading = FORMAT.read(Source(write(path, value)))
    return list(reading), reading


def asked(name, call_id="c1", requestor="assistant", **arguments):
    return {"id": call_id, "name": name, "arguments": arguments, "requestor": requestor}


def said(role, content, *calls, second=0, **more):
    return {
        "role": role,
        "content": content,
        "tool_calls": list(calls) or None,
        "timestamp": f"2025-01-01T00:00:{second:02}",
        **more,
    }


def reply(content, *calls, second=0, **more):
    usage = {"prompt_tokens": 100, "completion_tokens": 7}
    paid = {"usage": usage, "cost": 0.25, "raw_data": {"created": 1735693200 + second}}
    return said("assistant", content, *calls, second=second, **{**paid, **more})


def result(call_id, content, second=0, requestor="assistant", error=False):
    more = {"id": call_id, "requestor": requestor, "error": error}
    return said("tool", content, second=second, **more)


def talk():
    return [
        said("assistant", "Hi! How can I help?", cost=0.0),
        said("user", "My order is late."),
        reply(None, asked("find", id="mia"), second=10),
        result("c1", "no such user", second=12, error=True),
        reply("Who are you?", second=13),
        said("user", None, asked("look", "u1", "user")),
        result("u1", "a card", requestor="user"),
        said("user", "Mia Li."),
    ]


def simulation(*messages, task_id="0", **more):
    return {
        "id": "uuid",
        "task_id": task_id,
        "start_time": "2025-01-01T00:00:00",
        "end_time": "2025-01-01T00:01:00",
        "duration": 60.0,
        "termination_reason": "user_stop",
        "agent_cost": 0.5,
        "user_cost": 0.125,
        "reward_info": {"reward": 1.0, "reward_basis": ["DB"]},
        "messages": list(messages) or talk(),
        "ticks": None,
        "trial": 2,
        "seed": 7,
        **more,
    }


def results(*simulations, **more):
    return {
        "timestamp": "2025-01-01T00:00:00",
        "info": {
            "git_commit": "abc",
            "user_info": {"implementation": "user_simulator", "llm": "user/model"},
            "agent_info": {"implementation": "llm_agent", "llm": "some/model"},
            "environment_info": {"domain_name": "airline", "policy": "Be kind."},
        },
        "tasks": [{"id": "0", "user_scenario": {"instructions": {"reason": "A late order."}}}],
        "simulations": list(simulations) or [simulation()],
        **more,
    }  # fmt: skip


def one(path, *messages, **more):
    (run,), reading = read(path / "results.json", results(simulation(*messages, **more)))
    return run, reading


def test_a_simulation(tmp_path):
    run, reading = one(tmp_path)
    assert (run.task_id, run.record, run.attempt) == ("tau2:airline:0", "0", 2)
    assert (run.agent, run.model, run.goal) == ("llm_agent", "some/model", "reason: A late order.")
    assert (run.dataset, run.exit_status, run.end) == ("tau2-bench", "user_stop", "run.completed")
    assert [(step.thought, step.action, step.observation) for step in run.steps] == [
        ("", 'find({"id": "mia"})', "no such user"),
        ("Who are you?", "", "Mia Li."),
    ]
    assert run.steps[0].calls[0].status == "error"
    assert [step.usage for step in run.steps] == [
        Usage(tokens_in=100, tokens_out=7, cost_usd=0.25)
    ] * 2
    assert run.usage == Usage(cost_usd=0.5)
    assert run.outcome == Outcome(outcome="success", score=1.0, source="tau2 reward")
    assert run.config["user_cost"] == 0.125
    assert (reading.version, reading.notes, reading.refused) == ("results", [], [])


def test_the_customers_tools_are_not_the_agents(tmp_path):
    run, _ = one(tmp_path)
    assert sum(len(step.calls) for step in run.steps) == 1
    look = {"id": "u1", "name": "look", "arguments": {}, "observation": "a card"}
    assert run.steps[1].state == {"user_tools": [look]}
    assert "a card" not in run.steps[1].observation
    run, _ = one(tmp_path, *talk()[5:], *talk()[2:5])
    assert run.config["user_tools"] == [look]


def test_what_the_agent_did_not_say_is_no_step(tmp_path):
    history = [
        said("user", "Make a task."),
        said("assistant", None, asked("make", "h1")),
        result("h1", "made"),
        said("assistant", "It is made."),
    ]
    run, _ = one(tmp_path, *history, *talk()[1:])
    assert [step.thought for step in run.steps] == ["", "Who are you?"]
    assert [one["role"] for one in run.config["scripted"]] == ["assistant", "tool", "assistant"]
    assert run.config["opening"] == "Make a task.\nMy order is late."


def test_without_usage_every_message_of_the_agent_is_a_step(tmp_path):
    run, _ = one(tmp_path, said("assistant", "Hi!"), said("user", "x"), said("assistant", "y"))
    assert [step.thought for step in run.steps] == ["Hi!", "y"]
    assert [step.usage for step in run.steps] == [None, None]


def test_times_have_no_zone_unless_a_reply_tells(tmp_path):
    run, _ = one(tmp_path)
    # the provider's clock is an hour ahead of the local time taken for UTC
    assert [step.started for step in run.steps] == [1735693210, 1735693213]
    assert [step.seconds for step in run.steps] == [2, None]
    silent = [{**message, "raw_data": None} for message in talk()]
    run, _ = one(tmp_path, *silent)
    assert [step.started for step in run.steps] == [None, None]
    assert [step.seconds for step in run.steps] == [2, None]


@pytest.mark.parametrize(
    ("reason", "reward", "outcome", "detail"),
    [
        ("user_stop", 1.0, "success", None),
        ("user_stop", 0.9999999, "success", None),
        ("user_stop", 0.0, "failure", None),
        ("agent_stop", 0.5, "failure", "partial"),
        ("max_steps", 0.0, "failure", None),
        ("too_many_errors", 0.0, "failure", None),
        ("agent_error", 0.0, "failure", None),
        ("infrastructure_error", 0.0, "unknown", "infra"),
        ("context_window_exceeded", 0.0, "unknown", "infra"),
        ("user_error", 0.0, "unknown", "error"),
        ("unexpected_error", 1.0, "unknown", "error"),
    ],
)
def test_the_outcome_is_the_reward(tmp_path, reason, reward, outcome, detail):
    run, _ = one(tmp_path, termination_reason=reason, reward_info={"reward": reward})
    assert run.outcome == Outcome(
        outcome=outcome, detail=detail, score=reward, source="tau2 reward"
    )
    assert run.end == ("run.failed" if reason.endswith("_error") else "run.completed")


@pytest.mark.parametrize("info", [None, {}, {"reward": None}, {"reward": "1"}, 3])
def test_no_reward_says_nothing(tmp_path, info):
    assert one(tmp_path, reward_info=info)[0].outcome is None


def test_records_that_cannot_be_read(tmp_path):
    value = results(simulation(), 3, simulation(task_id=None), {**simulation(), "messages": "x"},
                    simulation(task_id=12), simulation(said("user", "x"), "junk"))  # fmt: skip
    runs, reading = read(tmp_path / "results.json", value)
    assert [(run.record, run.task_id) for run in runs] == [
        ("0", "tau2:airline:0"), ("4", "tau2:airline:12"), ("5", "tau2:airline:0"),
    ]  # fmt: skip
    assert [place for place, _ in reading.refused] == [
        "simulation 1",
        "simulation 2",
        "simulation 3",
    ]
    assert reading.notes == ["simulation 5: 1 messages are no objects"]


def test_several_results_in_one_message(tmp_path):
    both = {"role": "tool", "tool_messages": [result("c2", "two"), result("c1", "one")]}
    run, _ = one(tmp_path, reply(None, asked("a"), asked("b", "c2")), both)
    assert [call.observation for call in run.steps[0].calls] == ["one", "two"]


# ---- simulations in files of their own


def test_simulations_beside_the_results(tmp_path):
    short = {name: value for name, value in results().items() if name != "simulations"}
    write(tmp_path / "in/results.json", short)
    write(tmp_path / "in/simulations/a.json", simulation())
    write(tmp_path / "in/simulations/b.json", simulation(task_id="9", id="b"))
    with SQLiteEventStore(":memory:") as store:
        report = ingest(store, [tmp_path / "in"], progress=False)
        assert (report.runs, report.steps, report.rejected) == (2, 4, [])
        assert [path for path, _ in report.ignored] == ["results.json"]
        assert {run.task_id for run in store.runs()} == {"tau2:airline:0", "tau2:airline:9"}
        assert {run.model for run in store.runs()} == {"some/model"}


def test_a_simulation_alone(tmp_path):
    (run,), reading = read(tmp_path / "a/b.json", simulation())
    assert (run.task_id, run.model, run.record) == ("tau2:0", None, None)
    assert (run.goal, reading.version) == ("My order is late.", "simulation file")
    with pytest.raises(FormatError, match="no simulations"):
        read(tmp_path / "c.json", {"info": {}})


def tick(number, agent=None, user=None, **more):
    def chunk(role, spoken):
        words = {"audio_script_gold": spoken} if isinstance(spoken, str) else {}
        return {"role": role, "contains_speech": spoken is not None, "is_audio": True, **words}

    at = f"2025-01-01T00:00:{number:02}"
    chunks = {"agent_chunk": chunk("assistant", agent), "user_chunk": chunk("user", user)}
    return {"tick_id": number, "timestamp": at, **chunks, **more}


def test_ticks_of_a_voice(tmp_path):
    ticks = [
        tick(0, user="My "), tick(1, user="order."), tick(2, agent="I "), tick(3),
        tick(4, agent="look."), tick(5, agent_tool_calls=[asked("find")]),
        tick(6, agent_tool_results=[result("c1", "late", 6)]), tick(7, agent=True),
        tick(8, user="Well?"), tick(9, agent=True, user="Hm."), "junk",
    ]  # fmt: skip
    run, _ = one(tmp_path, ticks=ticks, messages=None, mode="full_duplex")
    assert run.config["opening"] == "My order."
    assert [(step.thought, step.action, step.observation) for step in run.steps] == [
        ("I look.", "find({})", "late\nWell?"),
        ("", "", "Hm."),
    ]
    assert [step.flags for step in run.steps] == [(), ("speech-without-text",)]
    assert [step.state for step in run.steps] == [{"ticks": [2, 7]}, {"ticks": [9, 9]}]


@pytest.mark.parametrize(
    ("value", "claimed"),
    [
        (results(), True),
        (simulation(), True),
        ({**simulation(), "messages": None, "ticks": [tick(0)]}, True),
        ({**results(), "simulations": []}, False),
        ({name: value for name, value in results().items() if name != "simulations"}, False),
        ({"task_id": "t", "messages": []}, False),
        ([results()], False),
    ],
)
def test_files_are_claimed_by_content(tmp_path, value, claimed):
    assert (FORMAT.sniff(json.dumps(value).encode(), tmp_path / "x.json") > 0) == claimed


def test_simulations_behind_long_tasks(tmp_path):
    value = results(tasks=[{"id": str(n), "ticket": "x" * 1000} for n in range(200)])
    write(tmp_path / "in/results.json", value)
    with SQLiteEventStore(":memory:") as store:
        assert ingest(store, [tmp_path / "in"], progress=False).runs == 1


# ---- real files


def test_real_results(real_data):
    paths = sorted((real_data / "activegraph_tau2_runs").rglob("results.json.gz"))
    assert len(paths) == 14
    replies = runs_read = 0
    for path in paths:
        raw = json.loads(gzip.decompress(path.read_bytes()))
        runs = list(FORMAT.read(Source(path)))
        assert len(runs) == len(raw["simulations"])
        for run, told in zip(runs, raw["simulations"], strict=True):
            runs_read += 1
            replies += compare(run, told)
    assert (runs_read, replies) == (2 * 20, 2 * 90)


def compare(run, told):
    """Compare a run with its simulation and return the number of its replies."""
    own = [one for one in told["messages"] if one["role"] == "assistant" and one["usage"]]
    assert len(run.steps) == len(own)
    for step, message in zip(run.steps, own, strict=True):
        assert step.thought == (message["content"] or "")
        assert step.usage.tokens_in == message["usage"]["prompt_tokens"]
        assert [call.id for call in step.calls] == [
            call["id"] for call in message["tool_calls"] or []
        ]
        assert abs(step.started - message["raw_data"]["created"]) < 60
    back = {one["id"]: one["content"] for one in told["messages"]
            if one["role"] == "tool" and one["requestor"] == "assistant"}  # fmt: skip
    for call in (call for step in run.steps for call in step.calls):
        assert call.observation == back[call.id]
    reward = told["reward_info"]["reward"]
    assert run.outcome.outcome == ("success" if reward == 1 else "failure")
    assert run.exit_status == told["termination_reason"]
    return len(own)


def test_each_real_result_is_stored_twice(real_data):
    with SQLiteEventStore(":memory:") as store:
        report = ingest(store, [real_data / "activegraph_tau2_runs"], progress=False)
        assert report.by_format["tau2"] == {"files": 7, "runs": 20, "steps": 90}
        assert report.duplicates == 7
        assert {reason for _, reason in report.rejected} == {"empty file"}


def test_real_voices(real_data):
    folder = real_data / "tau2bench"
    for path in sorted(folder.rglob("simulations/*.json")):
        raw = json.loads(path.read_text(encoding="utf-8"))
        (run,) = FORMAT.read(Source(path))
        assert run.task_id == f"tau2:retail:{raw['task_id']}"
        assert len(run.steps) == floors(raw["ticks"]) > 0
        assert (run.outcome, run.exit_status) == (None, raw["termination_reason"])
        assert {step.flags for step in run.steps} == {("speech-without-text",)}
    with SQLiteEventStore(":memory:") as store:
        report = ingest(store, [folder], progress=False)
        assert (report.files, report.runs, report.rejected) == (4, 2, [])


def floors(ticks):
    """Count how often the agent took the floor."""
    taken, found = False, 0
    for one in ticks:
        agent, user = (one[name]["contains_speech"] for name in ("agent_chunk", "user_chunk"))
        found += agent and not taken
        taken = agent or (taken and not user)
    return found
