"""What others reported of such files, each with an input of the same kind."""

import json

import pytest

from sag_research.ingest import ingest
from sag_research.ingest._source import Source
from sag_research.ingest.formats import by_name
from sag_research.log import SQLiteEventStore
from tests.ingest.formats import openhands_make as oh
from tests.ingest.make import swe_file, swe_step, write


@pytest.fixture
def store():
    with SQLiteEventStore(":memory:") as store:
        yield store


def steps_of(store, run_id):
    return [event.payload for event in store.read(run_id, types=("agent.step",))]


class TestB2:
    """An unfinished batch: ``info`` and all in it may be missing."""

    @pytest.mark.parametrize(
        "value",
        [
            {"attempts": [{"trajectory": [], "history": [], "info": {}}]},
            {"attempts": [{"trajectory": [swe_step()]}, {"trajectory": [], "info": None}]},
            {"trajectory": []},
            {"trajectory": [swe_step()], "info": {"exit_status": None}},
        ],
    )
    def test_b2_unfinished_files_are_runs_without_an_end(self, store, tmp_path, value):
        write(tmp_path / "in/org__repo-1.traj", value)
        write(tmp_path / "in/good.traj", swe_file())
        report = ingest(store, [tmp_path / "in"])
        assert (report.ingested, report.rejected) == (2, [])
        ends = {event.run_id.partition("~")[0] for event in store.tail(types=("run.completed",))}
        assert ends == {"good"}
        assert report.runs == 1 + len(value.get("attempts", [0]))


CONFIG = {
    "env": {
        "name": "main",
        "post_startup_commands": ["pip install -e .", "export A=1"],
        "post_startup_command_timeout": 900,
        "deployment": {"image": "img:1", "startup_timeout": 180},
    },
    "agent": {"model": {"name": "m", "temperature": 0.0}},
}


class TestB4:
    """A replay in another environment: start-up commands, timeout and name were dropped."""

    @pytest.mark.parametrize("spelling", [json.dumps, dict])
    def test_b4_the_whole_configuration_is_kept(self, store, tmp_path, spelling):
        write(tmp_path / "org__repo-1.traj", swe_file(replay_config=spelling(CONFIG)))
        ingest(store, [tmp_path])
        (run,) = store.runs()
        assert run.config == CONFIG

    def test_b4_the_attempts_of_a_retry_keep_theirs(self, store, tmp_path):
        other = {**CONFIG, "env": {**CONFIG["env"], "name": "second"}}
        file = {
            "attempts": [swe_file(replay_config=CONFIG), swe_file(replay_config=other)],
            "replay_config": CONFIG,
        }
        write(tmp_path / "org__repo-1.traj", file)
        ingest(store, [tmp_path])
        assert [run.config for run in store.runs()] == [CONFIG, other]

    def test_b4_an_evaluations_metadata_is_kept(self, store, tmp_path):
        record = oh.record()
        write(tmp_path / "output.jsonl", oh.lines(record))
        ingest(store, [tmp_path])
        (run,) = store.runs()
        assert run.config == {**record["metadata"], "read_from": "history"}


class TestB9:
    """An event of an unknown kind dropped the whole conversation."""

    @pytest.mark.parametrize(
        "event",
        [
            {"kind": "ObservationEvent", "observation": {"kind": "MyToolObservation"}},
            oh.sdk("TotallyNewEvent", "n", payload={"deep": [1, {"x": None}]}),
            oh.sdk("ActionEvent", "n", action={"kind": "MyToolAction", "x": 1}),
            {"id": "n"},
            {"kind": ["ActionEvent"], "id": {"n": 1}},
        ],
    )
    @pytest.mark.parametrize("place", [0, 2, 4])
    def test_b9_unknown_kinds_cost_nothing(self, store, tmp_path, event, place):
        events = [oh.said("u", "Go."), oh.act("a", "ls", "r1"), oh.got("o", "call-a", "x"),
                  oh.act("b", "pwd", "r2"), oh.got("p", "call-b", "/")]  # fmt: skip
        value = oh.lines(*events[:place], event, *events[place:])
        write(tmp_path / "c.jsonl", value)
        report = ingest(store, [tmp_path])
        assert report.ingested == 1
        (run,) = store.runs()
        steps = steps_of(store, run.run_id)
        assert {"ls", "pwd"} <= {step["action"] for step in steps}
        assert [step["observation"] for step in steps if step["action"] == "pwd"] == ["/"]

    def test_b9_what_an_unknown_tool_gave_back_is_kept(self, store, tmp_path):
        observation = {"kind": "MyToolObservation", "rows": [[1, "x"]]}
        events = [oh.act("a", "q", "r1"), oh.got("o", "call-a", "", observation=observation)]
        write(tmp_path / "c.jsonl", oh.lines(*events))
        ingest(store, [tmp_path])
        (run,) = store.runs()
        (step,) = steps_of(store, run.run_id)
        assert step["observation"] == '{"rows": [[1, "x"]]}'


class TestB11:
    """A second result for a call, and a result whose call is on another branch."""

    def test_b11_results_are_joined_0_to_n(self, store, tmp_path):
        events = [
            oh.act("a", "ls", "r1", "A"),
            oh.got("o1", "A", "first", action_id="a"),
            oh.got("o2", "A", "second", 1, action_id="a"),
            oh.got("o3", "B", "of no call", action_id="b"),
            oh.act("c", "pwd", "r2", "C"),
        ]
        write(tmp_path / "c.jsonl", oh.lines(*events))
        report = ingest(store, [tmp_path])
        (run,) = store.runs()
        first, second = steps_of(store, run.run_id)
        assert first["calls"][0]["observation"] == "first\nsecond"
        assert first["observation"] == "first\nsecond\nof no call"
        assert (second["calls"][0]["observation"], second["observation"]) == ("", "")
        assert any("1 results name a call" in note for note in report.notes)

    def test_b11_calls_that_share_an_id_have_a_result_each(self, tmp_path):
        events = [
            oh.act("a", "ls", "r1", "A"),
            oh.act("b", "pwd", "r1", "A"),
            oh.got("o1", "A", "one", action_id=None),
            oh.got("o2", "A", "two", action_id=None),
            oh.got("o3", "A", "three", action_id=None),
        ]
        path = write(tmp_path / "c.jsonl", oh.lines(*events))
        (run,) = by_name("openhands-sdk").read(Source(path))
        assert [call.observation for call in run.steps[0].calls] == ["one", "two\nthree"]

    def test_b11_a_result_does_not_reach_into_another_branch(self, tmp_path):
        events = [
            oh.said("u", "Go."),
            oh.act("a", "left", "r1", "A", parent_id="u"),
            oh.act("b", "right", "r2", "B", parent_id="u"),
            oh.got("o", "A", "of the other", action_id="a", parent_id="b"),
        ]
        path = write(tmp_path / "c.jsonl", oh.lines(*events))
        right, left = by_name("openhands-sdk").read(Source(path))
        assert (left.steps[0].action, left.steps[0].observation) == ("left", "")
        assert right.steps[0].calls[0].observation == ""
        assert right.steps[0].observation == "of the other"

    def test_b11_v0_observations_are_joined_the_same_way(self, tmp_path):
        events = [
            oh.action(1, "run", {"command": "ls"}),
            oh.ran(2, 1, "first"),
            oh.ran(3, 1, "second"),
            oh.ran(4, 99, "of no call"),
        ]
        path = write(tmp_path / "c.json", events)
        (run,) = by_name("openhands").read(Source(path))
        (step,) = run.steps
        assert step.calls[0].observation == "first\nsecond"
        assert step.observation == "first\nsecond\nof no call"


class TestB12:
    """A cycle of parents: an uncaught error, or a walk without an end."""

    @pytest.mark.parametrize(
        "parents",
        [
            {"a": "b", "b": "a"},
            {"a": "a", "b": "b"},
            {"a": "b", "b": "c", "c": "d", "d": "b"},
            {"b": "d", "d": "c", "c": "b"},
        ],
    )
    def test_b12_cycles_cost_no_event(self, tmp_path, parents):
        events = [oh.act(one, one, f"r-{one}", parent_id=parents.get(one)) for one in "abcd"]
        path = write(tmp_path / "c.jsonl", oh.lines(*events))
        reading = by_name("openhands-sdk").read(Source(path))
        actions = [step.action for run in reading for step in run.steps]
        assert sorted(actions) == ["a", "b", "c", "d"]
        assert any("cycles of parents were cut" in note for note in reading.notes)


class TestB13:
    """A history rebuilt from events is not what the model was sent."""

    def test_b13_a_run_says_which_of_the_two_it_was_read_from(self, store, tmp_path):
        write(tmp_path / "output.jsonl", oh.lines(oh.record(instance_id="i")))
        write(tmp_path / "events.json", oh.v0_events())
        write(tmp_path / "i" / oh.MODEL_FILE, oh.completion())
        prompt = oh.completion()
        del prompt["fncall_messages"]
        write(tmp_path / "j" / oh.MODEL_FILE, prompt)
        ingest(store, [tmp_path])
        said = {(run.task_id, run.config["read_from"]) for run in store.runs()}
        assert said == {
            ("i", "history"),
            ("events", "events"),
            ("i", "fncall_messages"),
            ("j", "messages"),
        }

    def test_b13_no_turn_is_empty(self, store, tmp_path):
        write(tmp_path / "i" / oh.MODEL_FILE, oh.completion())
        write(tmp_path / "output.jsonl", oh.lines(oh.record()))
        ingest(store, [tmp_path])
        for run in store.runs():
            assert all(step["thought"] or step["action"] for step in steps_of(store, run.run_id))
