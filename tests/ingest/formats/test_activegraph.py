"""ActiveGraph: simulations among runtime events that say everything several times."""

import gzip
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sag_research.errors import FormatError
from sag_research.ingest import ingest
from sag_research.ingest._source import Source
from sag_research.ingest.formats import by_name, recognise
from sag_research.ingest.formats.activegraph import ActiveGraph
from sag_research.log import SQLiteEventStore
from sag_research.model import Outcome, Usage
from tests.ingest.formats.spans_make import JSON
from tests.ingest.make import write

FORMAT = ActiveGraph()
SECOND = "2026-01-01T00:00:{:02}.000000+00:00"
ARGV = ["run", "--domain", "mock", "--agent", "llm_agent", "--agent-llm", "p/some-model",
        "--save-to", "/home/somebody/runs"]  # fmt: skip


def event(number, kind, task="t1", payload=None, **more):
    return {
        "event_id": f"rt-{number:06}",
        "event_type": kind,
        "parent_event_id": None,
        "run_id": "20260101",
        "task_id": task,
        "component": "tau2.orchestrator",
        "phase": "traced",
        "state_hash": None,
        "tool_name": None,
        "message_role": None,
        "turn_index": None,
        "timestamp": SECOND.format(number % 60),
        "payload": {"runtime_trace": payload or {}},
        **more,
    }


def said(role, text=None, calls=None, **more):
    raw = {"role": role, "content": text, "timestamp": "2025-12-31T17:00:00", **more}
    if calls is not None:
        raw["tool_calls"] = [
            {"id": f"c{n}", "name": "find", "arguments": one, "requestor": "assistant"}
            for n, one in enumerate(calls)
        ]
    if role == "assistant" and "usage" not in more:
        raw["usage"] = {"prompt_tokens": 9, "completion_tokens": 3}
        raw["raw_data"] = {"model": "some-model-1", "created": 1_767_225_600}
    return {"message": {"class": "M", "content_preview": str(text), "raw": raw}}


def simulation(first=1, task="t1", reward=1.0, reason="user_stop"):
    kinds = [
        ("orchestrator_run_start", {"simulation_id": f"s-{task}"}),
        ("turn_start", said("assistant", "Hi!", usage=None)),
        ("user_response", said("user", "Help me.")),
        ("turn_start", said("user", "Help me.")),
        ("agent_response", said("assistant", None, [{"x": 1}])),
        ("tool_dispatch_end", {"response": said("tool", "found", id="c0")["message"]}),
        ("message_observed", said("tool", "found", id="c0", requestor="assistant")),
        ("turn_start", said("tool", "found", id="c0")),
        ("agent_response", said("assistant", "Done.")),
        ("user_response", said("user", "Bye.")),
        ("orchestrator_run_end", {"status": "ok"}),
        ("tool_dispatch_end", {"response": said("tool", "replayed", id="c9")["message"]}),
        ("simulation_execution_end", {"reward_info": {"reward": reward}}),
        ("simulation_end", {"status": "ok", "termination_reason": reason}),
    ]
    return [event(first + n, kind, task, payload) for n, (kind, payload) in enumerate(kinds)]


def batch(*simulations):
    return [
        event(0, "trace_bootstrap_start", None, {"argv": ARGV}),
        *(one for several in simulations for one in several),
    ]


def lines(events):
    return "".join(json.dumps(one) + "\n" for one in events).encode()


def read(path, events):
    reading = FORMAT.read(Source(write(path, lines(events))))
    return list(reading), reading


def test_a_simulation(tmp_path):
    (run,), reading = read(tmp_path / "x.jsonl", batch(simulation()))
    assert (run.task_id, run.record, run.dataset) == ("tau2:mock:t1", None, "tau2-bench")
    assert (run.agent, run.model, run.goal) == ("llm_agent", "p/some-model", "Help me.")
    assert [(step.thought, step.action, step.observation) for step in run.steps] == [
        ("", 'find({"x": 1})', "found"), ("Done.", "", "Bye."),
    ]  # fmt: skip
    assert run.steps[0].usage == Usage(tokens_in=9, tokens_out=3)
    assert run.outcome == Outcome(outcome="success", score=1.0, source="tau2 reward")
    assert (run.end, run.exit_status) == ("run.completed", "user_stop")
    assert [one["content"] for one in run.config["scripted"]] == ["Hi!"]
    assert "somebody" not in repr(run)
    assert (reading.notes, reading.refused) == ([], [])


def test_times_are_those_of_the_events(tmp_path):
    (run,), _ = read(tmp_path / "x.jsonl", batch(simulation()))
    assert run.steps[0].started == 1_767_225_605  # UTC; the message says 17:00 of the day before


def test_a_trace_made_of_results_has_local_times(tmp_path):
    def told(number, kind, role=None, **payload):
        return event(number, f"baseline.{kind}", message_role=role) | {
            "payload": payload, "timestamp": f"2025-12-31T17:00:{number:02}",
        }  # fmt: skip

    events = [
        told(1, "task.started", simulation_id="s", trial=0, termination_reason="max_steps"),
        told(2, "message.observed", "assistant", content="Hi!"),
        told(3, "message.observed", "user", content="Help."),
        told(4, "message.observed", "assistant", content=None, usage={"prompt_tokens": 5},
             raw_data_summary={"created": 1_767_225_603}),
        told(5, "tool.requested", tool_call_id="k", arguments={}) | {"tool_name": "find"},
        told(6, "message.observed", "tool", content="found", message_id="k"),
        told(7, "evaluation.observed", reward_info={"reward": 0.0}),
    ]  # fmt: skip
    (run,), _ = read(tmp_path / "x.jsonl", events)
    assert [(step.action, step.observation) for step in run.steps] == [("find({})", "found")]
    assert run.steps[0].started == 1_767_225_604
    assert (run.attempt, run.exit_status, run.end) == (0, "max_steps", "run.completed")
    assert run.outcome == Outcome(outcome="failure", score=0.0, source="tau2 reward")


@pytest.mark.parametrize(
    ("reward", "reason", "outcome", "detail"),
    [
        (0.0, "user_stop", "failure", None),
        (0.5, "user_stop", "failure", "partial"),
        (0.0, "infrastructure_error", "unknown", "infra"),
        (0.0, "user_error", "unknown", "error"),
        (None, "user_stop", None, None),
        ("1", "user_stop", None, None),
    ],
)
def test_the_outcome_is_the_reward(tmp_path, reward, reason, outcome, detail):
    (run,), _ = read(tmp_path / "x.jsonl", batch(simulation(reward=reward, reason=reason)))
    found = (run.outcome.outcome, run.outcome.detail) if run.outcome else (None, None)
    assert found == (outcome, detail)


def test_several_simulations_and_one_that_never_ended(tmp_path):
    events = batch(simulation(1, "a"), simulation(20, "b")[:-2], simulation(40, "a"))
    runs, _ = read(tmp_path / "x.jsonl", events)
    assert [(run.task_id, run.record, len(run.steps)) for run in runs] == [
        ("tau2:mock:a", "0", 2), ("tau2:mock:b", "1", 2), ("tau2:mock:a", "2", 2),
    ]  # fmt: skip
    assert [run.end for run in runs] == ["run.completed", None, "run.completed"]
    assert runs[1].outcome is None


def test_an_attempt_that_broke_off(tmp_path):
    broken = simulation(1, "a")[:-3]
    broken.append(event(19, "simulation_end", "a", {"status": "error"}))
    (one, two), _ = read(tmp_path / "x.jsonl", batch(broken, simulation(20, "a")))
    assert (one.end, one.exit_status, one.outcome) == ("run.failed", "error", None)
    assert (two.end, two.exit_status) == ("run.completed", "user_stop")


def test_attempts_at_once_are_refused(tmp_path):
    one, two, other = simulation(1, "a"), simulation(20, "a"), simulation(40, "b")
    mixed = [event for pair in zip(one, two, strict=True) for event in pair]
    runs, reading = read(tmp_path / "x.jsonl", batch(mixed, other))
    assert [run.task_id for run in runs] == ["tau2:mock:b"]
    assert [why for _, why in reading.refused] == ["task a was tried several times at once"] * 2


def test_damaged_lines_and_events_that_are_there_twice(tmp_path):
    events = batch(simulation())
    content = lines([*events[:6], *events[4:]]) + b'3\n{"event_id": \n'
    reading = FORMAT.read(Source(write(tmp_path / "x.jsonl", content)))
    (run,) = reading
    assert len(run.steps) == 2
    assert reading.notes == ["2 events are there twice: the first one is taken"]
    assert [where for where, _ in reading.refused] == ["line 18", "line 19"]


def test_events_without_a_simulation(tmp_path):
    stray = event(3, "agent_response", "t1", said("assistant", "Lost."))
    with pytest.raises(FormatError, match="no simulation"):
        read(tmp_path / "x.jsonl", [stray])
    _, reading = read(tmp_path / "y.jsonl", [stray, *simulation(4)])
    assert reading.notes == ["1 agent_response outside of a simulation"]


@pytest.mark.parametrize("left_out", ["event_id", "parent_event_id", "component", "state_hash"])
def test_other_event_logs_are_not_claimed(left_out):
    other = [
        {name: one[name] for name in one if name != left_out} for one in simulation()
    ]  # fmt: skip
    assert FORMAT.sniff(lines(other), None) == 0
    assert FORMAT.sniff(lines(simulation()), None) > 0.9
    assert FORMAT.sniff(json.dumps(simulation()).encode(), None) == 0


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_any_values_give_runs_or_a_reason(tmp_path_factory, data):
    def graft(node, depth=0):
        if depth and data.draw(st.integers(0, 30)) == 0:
            return data.draw(JSON)
        if isinstance(node, dict):
            return {key: graft(item, depth + 1) for key, item in node.items()}
        if isinstance(node, list):
            return [graft(item, depth + 1) for item in node]
        return node

    events = [graft(one) for one in batch(simulation())]
    path = write(tmp_path_factory.mktemp("ag") / "x.jsonl", lines(events))
    with SQLiteEventStore(":memory:") as store:
        report = ingest(store, [path], format="activegraph", progress=False)
        assert report.ingested + len(report.rejected) == report.files == 1
        assert all(reason for _, reason in report.rejected)
        assert store.verify().ok


# ---- real files


def events_of(path):
    return [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]


def test_real_events(real_data):
    """Against what tau2's own results of the same batch say, read as plain JSON."""
    steps = nulls = total = 0
    for path in sorted((real_data / "activegraph_tau2_runs").glob("*/runtime_events.jsonl.gz")):
        events = events_of(path)
        total += len(events)
        nulls += sum(one["parent_event_id"] is None for one in events)
        assert recognise(Source(path)) is by_name("activegraph")
        runs = list(FORMAT.read(Source(path)))
        results = json.loads(
            gzip.decompress((path.parent / "tau2_output/results.json.gz").read_bytes())
        )
        by_task = {one["task_id"]: one for one in results["simulations"]}
        domain = results["info"]["environment_info"]["domain_name"]
        assert {run.task_id for run in runs} == {f"tau2:{domain}:{task}" for task in by_task}
        for run in runs:
            compare(run, by_task[run.task_id.split(":", 2)[2]])
        steps += sum(len(run.steps) for run in runs)
        assert steps_said(events) == sum(len(run.steps) for run in runs)
    assert (total, nulls, steps) == (1_299, 528, 89)


def steps_said(events):
    return sum(one["event_type"] == "agent_response" for one in events)


def compare(run, told):
    own = [one for one in told["messages"] if one["role"] == "assistant" and one["usage"]]
    assert [step.thought for step in run.steps] == [one["content"] or "" for one in own]
    calls = [[call["arguments"] for call in one["tool_calls"] or ()] for one in own]
    assert [[call.arguments for call in step.calls] for step in run.steps] == calls
    assert [step.usage.tokens_in for step in run.steps] == [
        one["usage"]["prompt_tokens"] for one in own
    ]
    assert (run.outcome.score, run.exit_status) == (
        told["reward_info"]["reward"], told["termination_reason"],
    )  # fmt: skip
    created = [one["raw_data"]["created"] for one in own]
    assert all(0 <= step.started - at < 20 for step, at in zip(run.steps, created, strict=True))


def test_all_real_files(real_data):
    with SQLiteEventStore(":memory:") as store:
        report = ingest(store, [real_data / "activegraph_tau2_runs"], progress=False)
        assert report.by_format == {
            "activegraph": {"files": 7, "runs": 20, "steps": 90},
            "tau2": {"files": 7, "runs": 20, "steps": 90},
        }
        assert (report.files, report.ingested, report.duplicates) == (64, 14, 7)
        assert len(report.ignored) == 37
        assert {reason for _, reason in report.rejected} == {"empty file"}
        # each run of events is that of a result; three did too little to be hidden for it
        assert (report.n_copies, len(report.copies.alike)) == (17, 3)
        assert all(a.split("~")[0] == b.split("~")[0] for a, b, _ in report.copies.alike)
