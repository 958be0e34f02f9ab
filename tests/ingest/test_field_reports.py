"""What others reported of such files, each with an input of the same kind."""

import io
import json
import tracemalloc
import zipfile

import pytest

import sag_research as sag
from sag_research.ingest import ingest, read_labels
from sag_research.ingest._source import Source
from sag_research.ingest.formats import by_name
from sag_research.log import SQLiteEventStore
from tests.ingest.formats import claude_make as claude
from tests.ingest.formats import inspect_make as im
from tests.ingest.formats import langgraph_make as langgraph
from tests.ingest.formats import openhands_make as oh
from tests.ingest.formats import rows_make as rows
from tests.ingest.formats import test_activegraph as activegraph
from tests.ingest.formats import test_atif, test_codex, test_codex_forks, test_tau2
from tests.ingest.make import swe_file, swe_step, write


@pytest.fixture
def store():
    with SQLiteEventStore(":memory:") as store:
        yield store


def steps_of(store, run_id):
    return [event.payload for event in store.read(run_id, types=("agent.step",))]


class TestB1:
    """A file that a crash left empty: it costs itself, and is listed."""

    @pytest.mark.parametrize("left", [b"", b" \n", b"{", b'{"trajectory": [{"action": "l'])
    def test_b1_what_a_crash_left_is_rejected_with_its_reason(self, store, tmp_path, left):
        write(tmp_path / "in/good.traj", swe_file())
        for name in ("empty.traj", "empty.traj.json", "empty.jsonl"):
            (tmp_path / "in" / name).write_bytes(left)
        report = ingest(store, [tmp_path / "in"])
        # equal bytes are looked at one by one: none of them is a copy of a run
        assert (report.files, report.ingested, report.duplicates) == (4, 1, 0)
        assert len(report.rejected) == 3
        assert all(reason for _, reason in report.rejected)
        assert len(store.runs()) == 1


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

    @pytest.mark.parametrize("parents", [
        {"a": "b", "b": "a"},
        {"a": "a"},
        {"a": "c", "b": "a", "c": "b"},
        {"a": "d", "b": "d", "d": "b"},
    ])  # fmt: skip
    def test_b12_a_session_with_a_cycle_is_read_to_its_end(self, store, tmp_path, parents):
        entries = [claude.reply(one, parents.get(one), one, f"m-{one}") for one in "abcd"]
        write(tmp_path / "s.jsonl", claude.lines(*entries))
        report = ingest(store, [tmp_path], progress=False)
        assert (report.ingested, report.steps) == (1, 4)
        said = [event.payload["thought"] for event in store.tail(types=("agent.step",))]
        assert sorted(said) == ["a", "b", "c", "d"]
        assert any("1 cycles of parents were cut" in note for note in report.notes)


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


def tokens_of(store):
    """Return the tokens read and written, and the steps that are some run's own."""
    steps = [event.payload for event in store.tail(types=("agent.step",))]
    own = [step for step in steps if "inherited" not in step["flags"]]
    used = [step.get("usage", {}) for step in own]
    read = sum(one.get("tokens_in", 0) for one in used)
    return read, sum(one.get("tokens_out", 0) for one in used), len(own)


class TestB15:
    """One reply is a line for each block, each with its usage: costs came out 2 to 4 times."""

    @pytest.mark.parametrize("written", [(1, 5, 90), (90, 90, 90), (1, 1, 90), (1, 90, 0)])
    def test_b15_tokens_are_those_of_the_last_line_that_has_any(self, store, tmp_path, written):
        blocks = [[claude.text("Hm.")], [claude.text("So.")], [claude.call("t", command="ls")]]
        entries = [
            claude.reply(f"a{n}", f"a{n - 1}" if n else None, block, "m", n, (100, tokens))
            for n, (block, tokens) in enumerate(zip(blocks, written, strict=True))
        ]
        if written[-1] == 0:
            del entries[-1]["message"]["usage"]
        write(tmp_path / "s.jsonl", claude.lines(*entries))
        ingest(store, [tmp_path], progress=False)
        assert tokens_of(store) == (100, 90, 1)

    def test_b15_lines_with_results_in_between(self, store, tmp_path):
        entries = [
            claude.reply("a", None, [claude.call("t1", command="ls")], "m", 0, (100, 1)),
            claude.result("r", "a", "t1", "x"),
            claude.reply("b", "r", [claude.call("t2", command="pwd")], "m", 1, (100, 40)),
            claude.result("s", "b", "t2", "/"),
            claude.reply("c", "s", "Done.", "n", 2, (130, 7)),
        ]
        write(tmp_path / "s.jsonl", claude.lines(*entries))
        ingest(store, [tmp_path], progress=False)
        assert tokens_of(store) == (230, 47, 2)

    def test_b15_the_printed_dialect_too(self, store, tmp_path):
        entries = claude.streamed()
        again = json.loads(json.dumps(entries[1]))
        again["message"]["content"] = [claude.text("and")]
        again["message"]["usage"]["output_tokens"] = 9
        write(tmp_path / "s.jsonl", claude.lines(*entries[:2], again, *entries[2:]))
        ingest(store, [tmp_path], progress=False)
        assert tokens_of(store) == (3 * 43, 9 + 1 + 1, 3)


class TestB17:
    """A fork's file begins with the parent's lines: saved under its name, and counted twice."""

    def forked(self, **stamp):
        """Return the lines of a session, and those of one that goes on from it."""
        copied = [entry | stamp for entry in claude.simple()]
        own = [
            claude.user("v", "a2", "Go on.", sessionId="fork"),
            claude.reply("b", "v", "Going on.", "m3", 9, sessionId="fork"),
        ]
        return claude.simple(), [*copied, *own]

    @pytest.mark.parametrize("stamp", [
        {},
        {"sessionId": "fork", "forkedFrom": {"sessionId": claude.SESSION, "messageUuid": "a2"}},
        {"timestamp": claude.clock(500)},
    ])  # fmt: skip
    @pytest.mark.parametrize("with_parent", [True, False])
    def test_b17_copied_steps_are_inherited(self, store, tmp_path, stamp, with_parent):
        parent, fork = self.forked(**stamp)
        if with_parent:
            write(tmp_path / f"{claude.SESSION}.jsonl", claude.lines(*parent))
        write(tmp_path / "fork.jsonl", claude.lines(*fork))
        report = ingest(store, [tmp_path], progress=False)
        assert report.rejected == []
        own = 1 + 2 * with_parent
        assert (report.runs, report.steps) == (1 + with_parent, own)
        assert tokens_of(store) == (100 * own, 10 * own, own)
        names = {run.task_id for run in store.runs()}
        assert names == {"fork", claude.SESSION} if with_parent else {"fork"}

    @pytest.mark.parametrize("first", ["a", "z"])
    def test_b17_lines_that_were_given_the_new_session(self, store, tmp_path, first):
        """Nothing in the file of the fork tells, but the parent's stands beside it."""
        parent, fork = self.forked(sessionId="fork")
        write(tmp_path / f"{first}.jsonl", claude.lines(*parent))
        write(tmp_path / "fork.jsonl", claude.lines(*fork))
        report = ingest(store, [tmp_path], progress=False)
        assert (report.runs, report.steps) == (2, 3)
        assert tokens_of(store) == (300, 30, 3)
        (child,) = (run for run in store.runs() if run.task_id == "fork")
        flags = [step["flags"] for step in steps_of(store, child.run_id)]
        assert flags == [["inherited"], ["inherited"], []]

    def test_b17_a_chain_of_resumes_counts_each_reply_once(self, store, tmp_path):
        said = claude.simple()
        for number in range(4):
            said += [
                claude.user(f"v{number}", said[-1]["uuid"], "More.", 20 + 9 * number),
                claude.reply(
                    f"b{number}", f"v{number}", f"{number}", f"n{number}", 21 + 9 * number
                ),
            ]
            data = claude.lines(*(entry | {"sessionId": f"s{number}"} for entry in said))
            write(tmp_path / f"s{9 - number}.jsonl", data)
        report = ingest(store, [tmp_path], progress=False)
        assert (report.runs, report.steps) == (4, 6)
        assert tokens_of(store) == (600, 60, 6)

    def test_b17_in_one_file_they_are_written_once(self, store, tmp_path):
        parent, fork = self.forked()
        write(tmp_path / "all.jsonl", claude.lines(*parent, *fork))
        report = ingest(store, [tmp_path], progress=False)
        assert (report.runs, report.steps) == (2, 3)
        assert tokens_of(store) == (300, 30, 3)
        (child,) = (run for run in store.runs() if run.parent_id)
        assert len(steps_of(store, child.run_id)) == 3  # two of them are the parent's


class TestB17Codex:
    """A fork of Codex begins with its parent's lines, the head included, with its own times."""

    def files(self, folder, *names):
        parent, fork = test_codex_forks.parent(), test_codex_forks.forked()
        for name in names:
            data = test_codex.lines(*(parent if name == "parent" else fork))
            write(folder / f"{name}.jsonl", data)

    @pytest.mark.parametrize("names", [("fork",), ("parent", "fork"), ("fork", "parent")])
    def test_b17_each_reply_counts_once(self, store, tmp_path, names):
        for name in names:
            self.files(tmp_path / name, name)
        report = ingest(store, [tmp_path / name for name in names], progress=False)
        assert report.rejected == []
        steps = 2 + 2 * (len(names) - 1)
        assert (report.runs, report.steps) == (len(names), steps)
        whole = (280 + 420, 10 + 8, 4) if len(names) > 1 else (420, 8, 2)
        assert tokens_of(store) == whole

    def test_b17_the_first_head_is_its_own(self, store, tmp_path):
        self.files(tmp_path, "fork")
        text = (tmp_path / "fork.jsonl").read_text(encoding="utf-8")
        assert text.count('"session_meta"') == 2
        ingest(store, [tmp_path], progress=False)
        (run,) = store.runs()
        assert run.config["session_id"] == test_codex_forks.FORK
        assert run.config["forked_from"] == test_codex_forks.PARENT

    def test_b17_copies_support_no_prefix(self, tmp_path):
        """What a fork copied is evidence once, not twice."""
        self.files(tmp_path, "parent", "fork")
        with sag.open(":memory:") as ws:
            ws.ingest(tmp_path, progress=False)
            shown = ws.sql("SELECT action FROM steps WHERE NOT inherited AND action <> ''").rows()
            assert sorted(shown) == [("ls",), ("pwd",)]
            assert ws.prefixes().n_steps.tolist() == [2, 2]


class TestB6:
    """Splits of a set hold the same runs respelled: rates were computed over all of them."""

    @pytest.mark.parametrize("kind", ["parquet", "jsonl"])
    def test_b6_three_spellings_are_one_run_and_its_copies(self, store, tmp_path, kind):
        for spelling in ("tool", "xml", "ticks"):
            rows.container(tmp_path / spelling, [rows.smith(spelling)], kind)
        report = ingest(store, [tmp_path], progress=False)
        assert (report.runs, report.n_copies) == (3, 2)

    def test_b6_runs_that_differ_in_one_action_are_no_copies(self, store, tmp_path):
        other = json.loads(json.dumps(rows.smith("xml", as_text=False)).replace("ls -l", "ls -a"))
        rows.container(tmp_path / "a", [rows.smith("tool"), other], "jsonl")
        assert ingest(store, [tmp_path], progress=False).n_copies == 0


class TestB18:
    """Half a character killed the rendering, or the evaluation, of everything."""

    @pytest.mark.parametrize("text", ["half \ud835 char", "\udcff", "\ud835\ud835 \x00"])
    def test_b18_half_characters_in_rows_cost_themselves(self, store, tmp_path, text):
        bad = rows.nebius(rows.ai(f"```\necho {text}\n```"), rows.heard(text))
        spoilt = [bad, rows.nebius(instance_id="b")]
        rows.container(tmp_path / "a", spoilt, "jsonl")
        report = ingest(store, [tmp_path], progress=False)
        assert (report.runs, report.refused_records) == (2, [])
        spoilt_run, whole = sorted(store.runs(), key=lambda run: run.task_id != "org__repo-1")
        (step,) = steps_of(store, spoilt_run.run_id)
        assert "repaired" in step["flags"]
        assert "\ufffd" in step["observation"]
        assert [step["flags"] for step in steps_of(store, whole.run_id)] == [[], []]

    @pytest.mark.parametrize("text", ["half \ud835 char", "\udcff", "\ud835\ud835 \x00"])
    def test_b18_half_characters_in_a_session_cost_themselves(self, store, tmp_path, text):
        entries = [
            claude.user("u", None, text),
            claude.reply("a", "u", [claude.call("t", command=text)], "m"),
            claude.result("r", "a", "t", text),
            claude.reply("b", "r", "whole", "n"),
        ]
        write(tmp_path / "s.jsonl", claude.lines(*entries))
        report = ingest(store, [tmp_path], progress=False)
        assert (report.ingested, report.runs, report.refused_records) == (1, 1, [])
        (run,) = store.runs()
        bad, good = steps_of(store, run.run_id)
        assert "repaired" in bad["flags"]
        assert (good["thought"], good["flags"]) == ("whole", [])
        raw = store.blob(bad["raw"]["observation"]).decode("utf-8", "surrogatepass")
        assert raw == text
        for kept in (run.goal, bad["action"], bad["observation"]):
            assert kept.encode("utf-8")


class TestB29:
    """A key that is first seen after many rows vanished without a word."""

    def test_b29_a_late_key_is_read(self, tmp_path):
        plain = {"messages": [{"role": "assistant", "content": "a"}]}
        late = {**plain, "resolved": True, "metadata": {"new": 1}}
        path = write(tmp_path / "a.jsonl", oh.lines(*[plain] * 20_500, late))
        *_, before, last = by_name("openai-chat").read(Source(path))
        assert (last.record, before.outcome, before.config) == ("20500", None, {})
        assert (last.outcome.outcome, last.config) == ("success", {"new": 1})


class TestB30:
    """A late 1.5 in a column of whole numbers became 2, a late true became 1."""

    def test_b30_values_stay_what_they_are(self, tmp_path):
        values = [1, 1, 1.5, True, "1", None, 2**53]
        told = [rows.rebench(gen_tests_correct=value) for value in values]
        path = rows.container(tmp_path / "a", told, "jsonl")
        read = [
            run.config.get("gen_tests_correct")
            for run in by_name("nebius-openhands").read(Source(path))
        ]
        assert [(type(value), value) for value in read] == [(type(one), one) for one in values]

    def test_b30_a_label_of_another_type_is_not_rounded(self, tmp_path):
        told = [rows.rebench(resolved=value) for value in (1, 1.5, True, 0.4)]
        path = rows.container(tmp_path / "a", told, "jsonl")
        read = [
            run.outcome and run.outcome.outcome
            for run in by_name("nebius-openhands").read(Source(path))
        ]
        assert read == ["success", None, "success", None]

    def test_b30_numbers_that_are_no_json_cost_themselves(self, store, tmp_path):
        about = b'{"big": 99999999999999999999999, "none": NaN, "much": Infinity}'
        row = json.dumps({"messages": rows.chat(), "metadata": 0}).encode()
        write(tmp_path / "a.jsonl", row.replace(b'"metadata": 0', b'"metadata": ' + about))
        assert ingest(store, [tmp_path], progress=False).runs == 1
        (run,) = store.runs()
        assert run.config == {"big": "99999999999999999999999", "none": "nan", "much": "inf"}


class TestB32:
    """Objects over 16 MiB, keys that repeat, and text behind an object."""

    def test_b32_a_large_object_is_read(self, tmp_path):
        large = [rows.message("assistant", "x" * 17 * 2**20), rows.message("user", "y")]
        path = rows.container(
            tmp_path / "a", [{"messages": large}, {"messages": rows.chat()}], "jsonl"
        )
        first, second = by_name("openai-chat").read(Source(path))
        assert len(first.steps[0].thought) == 17 * 2**20
        assert len(second.steps) == 2

    def test_b32_of_keys_that_repeat_the_last_counts(self, tmp_path):
        row = json.dumps(rows.rebench()).encode()
        path = write(tmp_path / "a.jsonl", row[:-1] + b', "resolved": 0, "resolved": 0}')
        (run,) = by_name("nebius-openhands").read(Source(path))
        assert run.outcome.outcome == "failure"

    @pytest.mark.parametrize("rest", [b"garbage", b"}", b'{"messages": []}', b"\x00"])
    def test_b32_text_behind_an_object_costs_its_line(self, store, tmp_path, rest):
        row = json.dumps({"messages": rows.chat()}).encode()
        write(tmp_path / "a.jsonl", b"\n".join((row, row + rest, row)))
        report = ingest(store, [tmp_path], progress=False)
        assert report.runs == 2
        assert [(path, at) for path, at, _ in report.refused_records] == [("a.jsonl", "line 2")]


class TestB18Interchange:
    """Half a character in one text ended the evaluation, the page, or the whole file."""

    HALF = "half \ud835 char"

    def files(self):
        message = im.reply("m1", self.HALF, im.asked("c1", cmd=f"echo {self.HALF}"))
        result = im.ran("c1", self.HALF)
        log = im.sample(message, result, input=self.HALF, messages=[])
        step = test_atif.agent(
            self.HALF,
            test_atif.call("c1", command=f"echo {self.HALF}"),
            results=[{"content": self.HALF}],
        )
        asked = test_tau2.asked("echo", text=self.HALF)
        talk = [
            test_tau2.said("user", self.HALF),
            test_tau2.reply(self.HALF, asked),
            test_tau2.result("c1", self.HALF),
        ]
        return {
            "a.json": im.log(log, im.sample(id="clean")),
            "b.eval": im.zipped(im.entries(log, im.sample(id="clean"))),
            "c.json": test_atif.trajectory(test_atif.user(self.HALF), step),
            "d.json": test_tau2.results(test_tau2.simulation(*talk)),
        }

    def test_b18_half_a_character_is_repaired_flagged_and_kept(self, store, tmp_path):
        for name, value in self.files().items():
            write(tmp_path / "in" / name, value)
        report = ingest(store, [tmp_path / "in"], progress=False)
        assert (report.ingested, report.rejected, report.refused_records) == (4, [], [])
        bad = [run for run in store.runs() if "clean" not in run.run_id]
        assert len(bad) == 4
        for run in bad:
            (step,) = steps_of(store, run.run_id)
            assert step["thought"] == "half \ufffd char"
            assert "half \ufffd char" in step["action"]
            assert "half \ufffd char" in step["observation"]
            assert "repaired" in step["flags"]
            raw = store.blob(step["raw"]["thought"]).decode("utf-8", "surrogatepass")
            assert raw == self.HALF
        clean = [run for run in store.runs() if run not in bad]
        flags = [step["flags"] for run in clean for step in steps_of(store, run.run_id)]
        assert flags == [[]] * 4  # the others of the file are as they were


class TestB19:
    """The archive's entries are packed by zstd now, which the standard library cannot unpack."""

    def test_b19_zstd_and_deflate_give_the_same_runs(self, tmp_path):
        files = im.entries(im.sample(), im.sample(epoch=2))
        old, new = im.deflated(files), im.zipped(files)
        with zipfile.ZipFile(io.BytesIO(new)) as archive, pytest.raises(NotImplementedError):
            archive.read("header.json")
        found = []
        for name, data in (("old.eval", old), ("new.eval", new)):
            reading = by_name("inspect").read(Source(write(tmp_path / name, data)))
            found.append(list(reading))
            assert reading.refused == []
        assert found[0] == found[1]
        assert len(found[0]) == 2

    @pytest.mark.parametrize("method", [12, 14, 95, 97])
    def test_b19_a_packing_that_is_not_known_is_named(self, store, tmp_path, method):
        data = bytearray(im.zipped(im.entries(), 0))
        at = data.index(b"samples/s1")
        data[at - 22 : at - 20] = method.to_bytes(2, "little")
        write(tmp_path / "x.eval", bytes(data))
        report = ingest(store, [tmp_path], progress=False)
        ((path, reason),) = report.rejected
        assert path == "x.eval"
        assert f"method {method}" in reason


class TestB22:
    """A sample of 40,553 events took 12.6 GB."""

    @pytest.mark.parametrize(("odd", "bound"), [("", 3), ("\ud835", 5)])
    def test_b22_events_that_tell_of_no_turn_are_never_built(self, tmp_path, odd, bound):
        change = {"op": "add", "path": "/a", "value": {"k": 1, "t": "x" * 20}}
        sent = [im.user("Go." * 20, n) for n in range(20)]
        turns = [im.reply(f"m{n}", f"step {n}{odd}", sent=sent) for n in range(553)]
        noise = [{"event": "state", "changes": [change]}] * 40_000
        data = im.encoded(im.sample(*turns, *noise))
        path = write(
            tmp_path / "x.eval", im.zipped(im.entries() | {"samples/s1_epoch_1.json": data})
        )
        tracemalloc.start()
        (run,) = by_name("inspect").read(Source(path))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.reset_peak()
        json.loads(data)
        naive = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert len(run.steps) == 553
        assert run.config["events"] == {"model": 553, "state": 40_000}
        assert peak < bound * len(data) < naive

    def test_b22_one_sample_is_in_memory_at_a_time(self, tmp_path):
        big = {"metadata": {"x": "y" * 2**20}}
        files = im.entries(*(im.sample(id=n) | big for n in range(24)))
        source = Source(write(tmp_path / "x.eval", im.zipped(files)))
        del files
        tracemalloc.start()
        records = [run.record for run in by_name("inspect").read(source)]
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert records == [f"{n}_1" for n in range(24)]
        assert peak < 8 * 2**20


class TestB23:
    """``logs.json`` in a folder of logs is an index of them."""

    def test_b23_an_index_is_no_log(self, store, tmp_path):
        write(tmp_path / "in/a.eval", im.zipped(im.entries()))
        write(tmp_path / "in/b.json", im.log(im.sample(id="b")))
        write(tmp_path / "in/logs.json", {"a.eval": im.header(), "b.json": im.header()})
        write(tmp_path / "in/listing.json", {"a.eval": {"task": "looking", "status": "success"}})
        report = ingest(store, [tmp_path / "in"], progress=False)
        assert (report.runs, report.rejected) == (2, [])
        assert [path for path, _ in report.ignored] == ["listing.json", "logs.json"]

    def test_b23_a_log_is_known_whatever_its_name(self, store, tmp_path):
        write(tmp_path / "in/logs.json", im.log())
        write(tmp_path / "in/ignore.txt", im.log(im.sample(id="t")))
        write(tmp_path / "in/archive.zip", im.zipped(im.entries(im.sample(id="z"))))
        report = ingest(store, [tmp_path / "in"], progress=False)
        assert (report.ingested, report.by_format["inspect"]["runs"]) == (3, 3)


class TestB25:
    """One file that breaks the rules aborted the batch; results without a call were lost."""

    def test_b25_what_breaks_the_rules_costs_itself(self, store, tmp_path):
        good = test_atif.trajectory()
        odd = {
            "list.json": [good, good],
            "steps-object.json": good | {"steps": {"1": test_atif.agent("x")}},
            "string-step.json": test_atif.trajectory("a bare text", test_atif.agent("x")),
            "dict-message.json": test_atif.trajectory(test_atif.agent({"content": "x"})),
            "bare-steps.json": good["steps"],
        }
        bad = {
            "no-steps.json": good | {"steps": "none"},
            "cut.json": json.dumps(good).encode()[:-9],
        }
        for name, value in {"good.json": good, **odd, **bad}.items():
            write(tmp_path / "in" / name, value)
        report = ingest(store, [tmp_path / "in"], progress=False)
        assert sorted(path for path, _ in report.rejected) == sorted(bad)
        assert all(reason for _, reason in report.rejected)
        assert report.ingested == 1 + len(odd)
        assert (report.runs, report.ignored) == (7, [])

    def test_b25_results_that_name_no_call_are_kept(self, tmp_path):
        results = [{"content": "one"}, {"content": "two"}, {"source_call_id": "c9", "content": "x"}]
        step = test_atif.agent("look", test_atif.call("c1"), test_atif.call("c2"), results=results)
        path = write(tmp_path / "x.json", test_atif.trajectory(step))
        (run,) = by_name("atif").read(Source(path))
        assert run.steps[0].observation == "one\ntwo\nx"


class TestB5:
    """Output of a binary file: one observation that is no UTF-8 crashed the whole run."""

    BINARY = b"ok \xff\xfe\x00\x89PNG\r\n\x1a\n"

    def swe(self, raw):
        return json.dumps(swe_file(swe_step(observation="@@"))).encode().replace(b"@@", raw)

    def native(self, raw):
        step = b'{"action": "cat logo.png", "observation": "%s"}' % raw
        return b'{"task_id": "t", "steps": [%s]}\n' % step

    @pytest.mark.parametrize(
        "raw", [BINARY, BINARY.replace(b"\x00", b"\\u0000"), bytes(range(128, 256))]
    )
    @pytest.mark.parametrize(("name", "made"), [("x.traj", swe), ("x.jsonl", native)])
    def test_b5_bytes_are_replaced_flagged_and_kept(self, store, tmp_path, raw, name, made):
        escaped = raw.replace(b"\r", b"\\r").replace(b"\n", b"\\n")
        write(tmp_path / "in" / name, made(self, escaped))
        write(tmp_path / "in/good.traj", swe_file())
        report = ingest(store, [tmp_path / "in"], progress=False)
        assert (report.ingested, report.rejected) == (2, [])
        spoilt = next(run for run in store.runs() if not run.run_id.startswith("good"))
        (step,) = steps_of(store, spoilt.run_id)
        assert "repaired" in step["flags"]
        assert "\ufffd" in step["observation"]
        assert step["observation"].encode("utf-8")
        assert store.blob(step["raw"]["observation"])


class TestB6Rates:
    """The same runs respelled, in splits of unequal size: the rate of all is nobody's rate."""

    def test_b6_rates_count_each_run_once(self, tmp_path):
        resolved = [True, False, False]
        for spelling, n in (("tool", 3), ("xml", 3), ("ticks", 1)):  # conversion lost two
            found = [
                rows.smith(spelling, instance_id=f"org__repo-{i}", resolved=resolved[i])
                for i in range(n)
            ]
            rows.container(tmp_path / "in" / spelling, found, "jsonl")
        with sag.open(":memory:") as ws:
            ws.ingest(tmp_path / "in", progress=False)
            pooled = ws.runs().outcome.value_counts().to_dict()
            once = ws.compare().table_
            prefixes = ws.prefixes()
        assert pooled == {"success": 3, "failure": 4}
        assert (once["n"].item(), once["n_success"].item()) == (3, 1)
        assert (len(prefixes), prefixes.left_out) == (3, {"copy": 4})


B7_REPORT = {
    "resolved_ids": ["pass"],
    "unresolved_ids": ["fail", "empty", "error", "infra"],  # as harnesses count them
    "empty_patch_ids": ["empty"],
    "error_ids": ["error"],
    "infra_ids": ["infra"],
    "incomplete_ids": ["incomplete"],
    "unresolved_instances": 5,
}
B7_SAID = {
    "pass": ("success", None),
    "fail": ("failure", None),
    "empty": ("failure", "empty"),
    "error": ("unknown", "error"),
    "infra": ("unknown", "infra"),
    "incomplete": ("unknown", "incomplete"),
    "absent": ("unknown", None),
}


class TestB7:
    """Failures of the machines were reported as unsolved; nobody could tell them apart."""

    @pytest.fixture
    def ws(self, tmp_path):
        with sag.open(":memory:") as ws:
            ws.add(
                {"task_id": task, "steps": [{"action": "ls", "observation": task}]}
                for task in B7_SAID
            )
            ws.label(write(tmp_path / "report.json", B7_REPORT))
            yield ws

    def test_b7_each_way_to_fail_has_its_own_word(self, ws):
        rows = ws.sql("SELECT task_id, outcome, detail FROM runs").rows()
        assert {task: (outcome, detail) for task, outcome, detail in rows} == B7_SAID

    def test_b7_statistics_leave_out_what_was_not_judged(self, ws):
        (row,) = ws.compare(by="kind").table_.itertuples()
        assert (row.n, row.n_success, row.n_failure, row.n_unknown) == (7, 1, 2, 4)
        assert row.rate == pytest.approx(1 / 3)
        known = ws.prefixes("outcome <> 'unknown'")
        assert sorted(known.runs["task_id"]) == ["empty", "fail", "pass"]

    def test_b7_records_of_single_evaluations_say_the_same(self, tmp_path):
        flags = {"empty": "empty_generation", "error": "error_eval"}
        lines = [
            {"instance_id": task, "report": {"resolved": False, flag: True}}
            for task, flag in flags.items()
        ]
        path = write(tmp_path / "out.jsonl", "\n".join(map(json.dumps, lines)).encode())
        said = {one.key: (one.outcome.outcome, one.outcome.detail) for one in read_labels(path)}
        assert said == {task: B7_SAID[task] for task in flags}


class TestB26:
    """After time travel, the newest checkpoint is not the one of the highest step."""

    def test_b26_the_latest_is_known_by_its_id(self, store, tmp_path):
        maker = langgraph.Maker(tmp_path / "x.sqlite")
        for number in range(1, 6):  # the first run goes as far as step 5
            before = f"c{number - 1}" if number > 1 else None
            maker.checkpoint(f"c{number}", before, step=number, seen={"n": {"x": number}})
        maker.checkpoint("d1", "c1", "fork", 2)  # travelled back to step 1
        maker.checkpoint("d2", "d1", step=3, seen={"n": {"x": 9}})
        maker.done()
        ingest(store, [tmp_path])
        main, fork = store.runs()
        assert main.config["checkpoint_id"] == "c5"
        assert (main.config["latest"], fork.parent_id) == (False, main.run_id)
        (forked,) = store.read(fork.run_id, types=("run.forked",))
        told = forked.payload["config"]
        assert (told["checkpoint_id"], told["latest"]) == ("d2", True)


class TestB27:
    """A fork changes the namespace of subgraphs, and reruns or reuses what was there before."""

    def test_b27_identity_is_thread_namespace_and_checkpoint(self, store, tmp_path):
        maker = langgraph.Maker(tmp_path / "x.sqlite")
        maker.checkpoint("c1", seen={"a": {"x": 1}})
        maker.checkpoint("c5", "c1", seen={"a": {"x": 1}, "child": {"x": 1}})
        maker.checkpoint("c6", "c1", "fork", seen={"a": {"x": 1}})
        maker.checkpoint("c9", "c6", seen={"a": {"x": 1}, "child": {"x": 2}})
        for task, own, on in (("t-1", "c2", "c1"), ("t-2", "c7", "c6")):
            below = {"namespace": f"child:{task}", "parents": {"": on}, "seen": {"in": {"x": 1}}}
            maker.checkpoint(own, None, **below)
        maker.checkpoint("c2", None, thread="t2", seen={"a": {"x": 1}})  # the same id elsewhere
        maker.done()
        report = ingest(store, [tmp_path])
        assert (report.runs, report.rejected, report.refused_records) == (5, [], [])
        runs = {run.run_id.rpartition(".")[2]: run for run in store.runs()}
        (first, fork) = (runs[one].run_id for one in ("c5", "c9"))
        called = [run.config["called_by"] for run in runs.values() if "called_by" in run.config]
        assert called == [{"run": first, "step": 1}, {"run": fork, "step": 1}]

    def test_b27_a_fork_has_nothing_that_its_parent_did_after_the_cut(self, store, tmp_path):
        langgraph.forked(tmp_path / "x.sqlite")
        ingest(store, [tmp_path])
        made = {
            run.run_id: [step["state"]["checkpoint"] for step in steps_of(store, run.run_id)]
            for run in store.runs()
        }
        assert sorted(made.values()) == [["c3", "c4"], ["c3", "c6"], ["c3", "c8"]]


class TestActiveGraph:
    """Null parents, results that are there twice, and two clocks that are hours apart."""

    def test_activegraph_events_belong_together_without_their_parents(self, store, tmp_path):
        events = activegraph.batch(activegraph.simulation())
        assert {event["parent_event_id"] for event in events} == {None}
        write(tmp_path / "runtime_events.jsonl", activegraph.lines(events))
        assert ingest(store, [tmp_path]).by_format["activegraph"]["steps"] == 2

    def test_activegraph_a_result_beside_its_events_is_a_copy(self, store, tmp_path):
        calls = [{"query": "look for the parcel of Mia Li"}]
        said = [activegraph.said("assistant", None, calls), activegraph.said("assistant", "Sold.")]
        messages = [one["message"]["raw"] for one in said]
        result = test_tau2.results(test_tau2.simulation(task_id="t1", messages=messages))
        argv = ["--domain", "airline", "--agent-llm", "some/model"]
        events = [
            activegraph.event(1, "trace_bootstrap_start", None, {"argv": argv}),
            activegraph.event(2, "orchestrator_run_start"),
            activegraph.event(3, "agent_response", payload=said[0]),
            activegraph.event(4, "agent_response", payload=said[1]),
        ]
        write(tmp_path / "events.jsonl", activegraph.lines(events))
        for name in ("tau2_output", "tau2_artifacts"):
            write(tmp_path / name / "results.json", result)
        report = ingest(store, [tmp_path])
        assert (report.ingested, report.duplicates, report.runs) == (2, 1, 2)
        assert report.n_copies == 1

    def test_activegraph_times_are_utc(self, store, tmp_path):
        events = activegraph.batch(activegraph.simulation())
        write(tmp_path / "runtime_events.jsonl", activegraph.lines(events))
        ingest(store, [tmp_path])
        (run,) = store.runs()
        assert [step["started"] for step in steps_of(store, run.run_id)] == [
            1_767_225_605, 1_767_225_609,
        ]  # fmt: skip
