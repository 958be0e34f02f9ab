import gzip
import json

import pytest

from sag_research.errors import FormatError
from sag_research.ingest import ingest
from sag_research.ingest._source import Source
from sag_research.ingest.formats.intercode import InterCode
from sag_research.log import SQLiteEventStore
from sag_research.model import Outcome
from tests.ingest.make import write

FORMAT = InterCode()


def read(path, value):
    reading = FORMAT.read(Source(write(path, value)))
    return list(reading), reading


def history(**more):
    return {
        "actions": ["ls", "lz", "cat a"],
        "observations": ["a\n", "no lz\n", "1\n"],
        "rewards": [0.5, 0, 1.0],
        "valid_action": [True, False, None],
        **more,
    }


def episode(rewards=None, **more):
    turns = history() if rewards is None else history(rewards=rewards)
    found = {
        "environment": "ic_bash",
        "dataset": "./data/shell/shell_1.json",
        "task_id": 0,
        "query": "Show the file.",
        "turn_history": turns,
        "summary": {"max_reward": 1.0, "max_reward_idx": 2, "turns_taken": 3, "turns_max": 10},
        **more,
    }
    return {name: value for name, value in found.items() if value is not None}


def of_a_person(**more):
    return {
        "environment": "ic_sql",
        "query": "How many?",
        "query_idx": 7,
        "gold": "select 1",
        "reward": 1.0,
        "trajectory": [
            {"action": "show tables;", "observation": "('t',)"},
            {"action": "select 1;", "observation": "(1,)"},
        ],
        "info": {"corrupt_gold": False},
        **more,
    }


def one(path, *rewards, **more):
    (run,), reading = read(path / "x.json", {"0": episode(list(rewards) or None, **more)})
    return run, reading


def test_an_episode(tmp_path):
    run, reading = one(tmp_path)
    assert (run.task_id, run.record) == ("intercode:bash:shell_1:0", "0")
    assert (run.goal, run.dataset, run.model) == ("Show the file.", "intercode", None)
    assert [(step.thought, step.action, step.observation) for step in run.steps] == [
        ("", "ls", "a\n"), ("", "lz", "no lz\n"), ("", "cat a", "1\n"),
    ]  # fmt: skip
    assert [step.calls[0].status for step in run.steps] == ["ok", "error", "unknown"]
    assert [step.state for step in run.steps] == [{"reward": 0.5}, {"reward": 0}, {"reward": 1}]
    assert run.outcome == Outcome(
        outcome="success", score=1.0, source="intercode reward", known_at_step=2
    )
    assert run.config["summary"]["turns_max"] == 10
    assert (reading.notes, reading.refused) == ([], [])


def test_an_episode_of_a_person(tmp_path):
    (run,), _ = read(tmp_path / "x.json", {"7": of_a_person()})
    assert (run.task_id, run.record, len(run.steps)) == ("intercode:sql:7", "7", 2)
    assert run.outcome == Outcome(outcome="success", score=1.0, source="intercode reward")
    assert (run.config["gold"], run.steps[1].state) == ("select 1", None)
    assert run.steps[1].calls[0].status == "unknown"


def test_the_right_answer_could_not_be_run(tmp_path):
    value = of_a_person(reward=0.0, info={"corrupt_gold": True})
    (run,), _ = read(tmp_path / "x.json", {"7": value})
    assert (run.outcome.outcome, run.outcome.detail) == ("unknown", "infra")


@pytest.mark.parametrize(
    ("rewards", "highest", "outcome", "detail", "step"),
    [
        ([1.0, 0.2, 0.1], 1.0, "success", None, 0),
        ([0, 1, 1], 1, "success", None, 1),
        ([0.2, 0.81, 0.3], 0.81, "failure", "partial", None),
        ([0, 0, 0], 0, "failure", None, None),
        ([0, 0, 0], 1, "unknown", "conflict", None),
        ([0, 0, 1], 0, "unknown", "conflict", None),
        ([None, "1", 1], 1, "success", None, 2),
        ([None, None, None], 1, "success", None, None),
    ],
)
def test_the_outcome_is_the_highest_reward(tmp_path, rewards, highest, outcome, detail, step):
    run, _ = one(tmp_path, *rewards, summary={"max_reward": highest})
    assert run.outcome == Outcome(
        outcome=outcome,
        detail=detail,
        score=highest,
        source="intercode reward",
        known_at_step=step,
    )


@pytest.mark.parametrize("summary", [None, {}, {"max_reward": None}, {"max_reward": "1"}, 3])
def test_without_a_summary_the_turns_tell(tmp_path, summary):
    assert one(tmp_path, summary=summary)[0].outcome.outcome == "success"
    assert one(tmp_path, None, None, None, summary=summary)[0].outcome is None


def test_lists_of_other_lengths(tmp_path):
    value = {
        "a": episode(turn_history=history(observations=["a"])),
        "b": episode(turn_history=history(actions="ls")),
        "c": episode(turn_history=history(rewards=[1.0], valid_action="x")),
    }
    (run,), reading = read(tmp_path / "x.json", value)
    assert reading.refused == [
        ("episode a", "3 actions, but 1 observations"),
        ("episode b", "its actions or observations are no list"),
    ]
    assert reading.notes == [
        "episode c: valid_action is no list of 3",
        "episode c: rewards is no list of 3",
    ]
    assert (run.record, len(run.steps), run.outcome.known_at_step) == ("c", 3, None)


def test_records_that_cannot_be_read(tmp_path):
    value = {
        "0": episode(), "1": 3, "2": episode(task_id=None), "3": episode(turn_history=None),
        "4": of_a_person(trajectory=["junk", {"action": "x\ud835<b>", "observation": None}]),
    }  # fmt: skip
    runs, reading = read(tmp_path / "x.json", value)
    assert [run.record for run in runs] == ["0", "4"]
    assert [why for _, why in reading.refused] == ["no object", "names no task", "has no turns"]
    assert reading.notes == ["episode 4: 1 turns are no objects"]
    assert [(step.action, step.observation) for step in runs[1].steps] == [("x\ud835<b>", "")]
    with pytest.raises(FormatError, match="no episodes"):
        read(tmp_path / "y.json", {"0": {"a": 1}})


def test_data_files_of_other_systems(tmp_path):
    assert one(tmp_path, dataset="data\\shell\\s_2.json")[0].task_id == "intercode:bash:s_2:0"
    assert one(tmp_path, dataset=None, environment=None)[0].task_id == "intercode:0"


@pytest.mark.parametrize(
    "value",
    [
        {"0": {"environment": "x", "query": "y"}},
        {"0": {"environment": "x", "turn_history": {}}},
        [episode()],
        episode(),
        of_a_person(),
    ],
)
def test_what_is_no_result(value):
    assert FORMAT.sniff(json.dumps(value).encode(), None) == 0


# ---- real files

OUTCOMES = (979, 482)
"""Success and failure, by the ``max_reward`` or ``reward`` of each episode."""


def test_real_episodes(real_data):
    runs_read, actions = 0, {"turn_history": 0, "trajectory": 0}
    for path in sorted((real_data / "intercode").rglob("*.json.gz")):
        raw = json.loads(gzip.decompress(path.read_bytes()))
        runs = list(FORMAT.read(Source(path)))
        assert [run.record for run in runs] == list(raw)
        for run in runs:
            told = raw[run.record]
            name = "turn_history" if "turn_history" in told else "trajectory"
            compare(run, told)
            actions[name] += len(run.steps)
        runs_read += len(runs)
    assert (runs_read, actions) == (1_461, {"turn_history": 8_108, "trajectory": 112})


def compare(run, told):
    turns = told.get("turn_history")
    said = turns["actions"] if turns else [one["action"] for one in told["trajectory"]]
    seen = turns["observations"] if turns else [one["observation"] for one in told["trajectory"]]
    assert [step.action for step in run.steps] == said
    assert [step.observation for step in run.steps] == seen
    reward = told["summary"]["max_reward"] if turns else told["reward"]
    assert run.outcome.outcome == ("success" if reward == 1 else "failure")
    assert run.goal == told["query"].strip()


def test_all_real_episodes_are_ingested(real_data):
    with SQLiteEventStore(":memory:") as store:
        report = ingest(store, [real_data / "intercode"], progress=False)
        assert report.by_format == {"intercode": {"files": 8, "runs": 1_461, "steps": 8_220}}
        assert (report.files, report.rejected, report.ignored) == (8, [], [])
        assert len({run.task_id for run in store.runs()}) == 1_461
        events = store.read("@workspace", types=("outcome.recorded",))
        found = [event.payload["outcome"] for event in events]
        assert (found.count("success"), found.count("failure")) == OUTCOMES
