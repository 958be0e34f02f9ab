"""LangGraph: trees of checkpoints, from files that may be hostile."""

import json
import sqlite3
import struct

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sag_research.errors import FormatError
from sag_research.ingest import ingest
from sag_research.ingest._source import Source
from sag_research.ingest.formats import recognise
from sag_research.ingest.formats.langgraph import LangGraph
from sag_research.log import SQLiteEventStore
from sag_research.model import Usage
from tests.ingest.formats import langgraph_make as make

FORMAT = LangGraph()


def read(path):
    reading = FORMAT.read(Source(path))
    return list(reading), reading


def actions(run):
    return [step.action for step in run.steps]


def test_every_leaf_is_a_run(tmp_path):
    (main, update, replay), reading = read(make.forked(tmp_path / "x.sqlite"))
    assert [run.record for run in (main, update, replay)] == ["c4", "c6", "c8"]
    assert [run.parent for run in (main, update, replay)] == [None, "c4", "c4"]
    assert [run.parent_step for run in (main, update, replay)] == [None, 0, 0]
    assert {run.relation for run in (update, replay)} == {"fork"}
    assert [actions(run) for run in (main, update, replay)] == [["a", "b"], ["b"], ["b"]]
    assert [run.config["latest"] for run in (main, update, replay)] == [False, False, True]
    assert update.config["opening"] == [{"update": {"foo": "forked", "bar": ["X"]}}]
    assert replay.config["opening"] == [{"fork": "c7"}]
    assert main.goal == '{"foo": "", "bar": []}'
    assert main.steps[0].observation == '{"foo": "a", "bar": ["a"]}'
    assert {run.end for run in (main, update, replay)} == {"run.completed"}
    assert {run.outcome for run in (main, update, replay)} == {None}
    assert reading.notes == []


def test_the_log_has_the_shared_steps(tmp_path):
    make.forked(tmp_path / "x.sqlite")
    with SQLiteEventStore(":memory:") as store:
        report = ingest(store, [tmp_path], progress=False)
        assert (report.runs, report.steps) == (3, 4)
        lengths = [
            sum(1 for _ in store.read(run.run_id, types=("agent.step",))) for run in store.runs()
        ]
        assert lengths == [2, 2, 2]


def test_a_talk_with_tools(tmp_path):
    (run,), _ = read(make.talk(tmp_path / "x.sqlite"))
    assert (run.goal, run.model, run.task_id) == ("Mend it.", "some-model", "t1")
    assert [(step.thought, step.action, step.observation) for step in run.steps] == [
        ("Look.", "ls", "a.py"), ("Done.", "", "Again."), ("No.", "", ""),
    ]  # fmt: skip
    assert run.steps[0].usage == Usage(tokens_in=10, tokens_out=4)
    assert run.steps[0].calls[0].status == "ok"
    assert run.steps[0].started == 1_767_225_600
    assert run.steps[0].state == {"checkpoint": "c3", "step": 1, "nodes": ["agent"]}


def test_a_result_that_another_branch_has_not_seen_is_a_step_of_its_own(tmp_path):
    maker = make.Maker(tmp_path / "x.sqlite")
    maker.checkpoint("c1")
    maker.write("c1", "agent", "messages", [make.called("Look.", "ls", "k1")])
    maker.checkpoint("c2", "c1")
    maker.write("c2", "tools", "messages", [make.answered("a.py", "k1")])
    maker.checkpoint("c3", "c2")
    maker.checkpoint("c4", "c2", "fork")
    maker.write("c4", "tools", "messages", [make.answered("b.py", "k1")])
    maker.checkpoint("c5", "c4")
    (main, fork), _ = read(maker.done())
    assert [(step.action, step.observation) for step in main.steps] == [
        ("ls", ""), ("tools", "a.py"),
    ]  # fmt: skip
    assert [(step.action, step.observation) for step in fork.steps] == [("tools", "b.py")]
    assert (fork.parent, fork.parent_step) == (main.record, 0)


def test_where_two_runs_go_on_the_states_are_compared(tmp_path):
    maker = make.Maker(tmp_path / "x.sqlite")
    maker.checkpoint("c1", values={"bar": ["a"]}, seen={"a": {"x": 1}})
    maker.write("c1", "b", "bar", ["wrong"])
    seen = {"a": {"x": 1}, "b": {"x": 2}}
    maker.checkpoint("c2", "c1", values={"bar": ["a", "first"]}, seen=seen)
    maker.checkpoint("c3", "c1", values={"bar": ["a", "second"]}, seen=seen)
    (one, two), _ = read(maker.done())
    assert [step.observation for run in (one, two) for step in run.steps[-1:]] == [
        '{"bar": ["first"]}', '{"bar": ["second"]}',
    ]  # fmt: skip
    assert actions(two) == ["b"]


def test_nodes_that_run_at_once(tmp_path):
    maker = make.Maker(tmp_path / "x.sqlite")
    maker.checkpoint("c1")
    maker.write("c1", "b", "log", ["b"])
    maker.write("c1", "c", "log", ["c"])
    maker.checkpoint("c2", "c1")
    for number in (1, 0):  # tasks that were sent name no node
        row = ("t1", "", "c2", f"s{number}", f"~__pregel_push, {number}", 0, "log", "msgpack",
               make.packed([f"w{number}"]))  # fmt: skip
        maker.db.execute("INSERT INTO writes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
    maker.checkpoint("c3", "c2", seen={"w": {"x": 1}})
    (run,), _ = read(maker.done())
    assert [(step.action, step.observation) for step in run.steps] == [
        ("b\nc", '{"log": ["b"]}\n{"log": ["c"]}'), ("w", '{"log": ["w0"]}\n{"log": ["w1"]}'),
    ]  # fmt: skip


def test_subgraphs_serve_the_step_that_ran_them(tmp_path):
    maker = make.Maker(tmp_path / "x.sqlite")
    maker.checkpoint("c1", None, "input", -1, {"__start__": "go"})
    maker.checkpoint("c2", "c1", seen={"a": {"x": 1}})
    below = {"namespace": "child:task-1", "parents": {"": "c2"}}
    maker.checkpoint("d1", None, "input", -1, {"__start__": "inner"}, **below)
    maker.checkpoint("d2", "d1", seen={"inner": {"x": 1}}, **below)
    maker.checkpoint("e1", "c2", seen={"a": {"x": 1}, "child": {"x": 1}})
    (outer, inner), _ = read(maker.done())
    assert (actions(outer), actions(inner)) == (["a", "child"], ["inner"])
    assert (inner.parent, inner.relation, inner.parent_step) == (outer.record, "subagent", 1)
    assert (inner.goal, inner.config["checkpoint_ns"]) == ("inner", "child:task-1")


def test_how_runs_end(tmp_path):
    maker = make.Maker(tmp_path / "x.sqlite")
    for thread, channel in (("1", "__error__"), ("2", "__interrupt__"), ("3", "other")):
        maker.checkpoint("c1", values={"branch:to:b": None}, seen={"a": {}}, thread=thread)
        maker.write("c1", "b", channel, "why", -1, thread=thread)
    runs, _ = read(maker.done())
    assert [(run.end, run.exit_status) for run in runs] == [
        ("run.failed", "error"), (None, "interrupted"), (None, None),
    ]  # fmt: skip
    assert (runs[0].config["errors"], runs[1].config["interrupts"]) == (["why"], ["why"])
    assert len({run.record for run in runs}) == 3


def test_answers_of_people_are_told(tmp_path):
    maker = make.Maker(tmp_path / "x.sqlite")
    maker.checkpoint("c1")
    maker.write("c1", "", "__resume__", "yes", -4)
    maker.write("c1", "ask", "foo", "yes")
    maker.checkpoint("c2", "c1")
    (run,), _ = read(maker.done())
    assert run.steps[0].state["told"] == [{"resume": "yes"}]


# ---- hostile files


def test_nothing_that_is_packed_is_made(tmp_path):
    evil = make.an_object("os", "system", "touch /tmp/owned", code=0)
    deep = evil
    for _ in range(40):
        deep = make.an_object("os", "system", deep, code=1)
    maker = make.Maker(tmp_path / "x.sqlite")
    maker.checkpoint("c1")
    maker.write(
        "c1", "a", "foo", {"evil": evil, "deep": deep, "raw": msgspec.msgpack.Ext(6, b"\xc1")}
    )
    maker.write("c1", "a", "bar", b"cos\nsystem\n(S'id'\ntR.", 1, kind="pickle")
    maker.checkpoint("c2", "c1")
    (run,), _ = read(maker.done())
    told = json.loads(run.steps[0].observation)
    assert told["foo"]["evil"] == {"object": "os.system", "value": "touch /tmp/owned"}
    assert told["foo"]["raw"] == {"opaque": "ext 6", "bytes": 1}
    assert '"opaque": "ext 1"' in run.steps[0].observation
    assert told["bar"] == {"opaque": "pickle", "bytes": 21}


@pytest.mark.parametrize(
    "schema",
    [
        "CREATE VIEW checkpoints AS SELECT 't' AS thread_id, '' AS checkpoint_ns, 'c' AS"
        " checkpoint_id, NULL AS parent_checkpoint_id, 'null' AS type, NULL AS checkpoint,"
        " NULL AS metadata -- CREATE TABLE checkpoints (",
        "CREATE VIRTUAL TABLE checkpoints USING fts4(thread_id, checkpoint_id,"
        " parent_checkpoint_id, metadata)",
        "CREATE TABLE checkpoints (thread_id PRIMARY KEY, checkpoint_id, parent_checkpoint_id,"
        " metadata) WITHOUT ROWID",
        "CREATE TABLE checkpoints (thread_id, checkpoint_id, parent_checkpoint_id, metadata,"
        " checkpoint GENERATED ALWAYS AS (hex(zeroblob(1000000))))",
    ],
)
def test_schemas_that_would_run_something(tmp_path, schema):
    db = sqlite3.connect(tmp_path / "x.sqlite")
    db.execute(schema)
    if "GENERATED" in schema:
        db.execute("INSERT INTO checkpoints VALUES ('t', 'c', NULL, '{}')")
    db.commit()
    db.close()
    with pytest.raises(FormatError):
        read(tmp_path / "x.sqlite")


def test_rows_of_odd_types(tmp_path):
    maker = make.Maker(tmp_path / "x.sqlite")
    rows = [
        (b"t\xff", 3, 7, 7, 5, 1.5, b"\xff"),  # its own parent
        ("half", "", "c1", "nowhere", "msgpack", b"\xc1", "[]"),
        ("half", "", "c2", "c1", "json", '{"channel_values": [1], "ts": {}}', '{"parents": 3}'),
        ("", "", b"", None, None, None, None),
    ]
    for row in rows:
        maker.db.execute("INSERT INTO checkpoints VALUES (?, ?, ?, ?, ?, ?, ?)", row)
    writes = [("half", "", "c1", 1, None, None, "foo", "msgpack", b"\x91")]
    maker.db.execute("PRAGMA ignore_check_constraints = ON")
    maker.db.execute("DROP TABLE writes")
    maker.db.execute(
        "CREATE TABLE writes (thread_id, checkpoint_ns, checkpoint_id, task_id, task_path, idx,"
        " channel, type, value)"
    )
    maker.db.executemany("INSERT INTO writes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", writes)
    runs, reading = read(maker.done())
    assert [run.record for run in runs] == ["c2", "7"]
    assert "a checkpoint without an id" in reading.notes
    assert "1 checkpoints name a parent that is not there" in reading.notes
    assert any("what was written to foo" in note for note in reading.notes)
    assert any("circle" in note for note in reading.notes)


def test_damaged_pages_cost_their_rows(tmp_path):
    maker = make.Maker(tmp_path / "x.sqlite")
    for number in range(200):
        values = {"foo": f"{number}" * 200}
        maker.checkpoint(
            f"c{number:03}", f"c{number - 1:03}", values=values, seen={f"n{number}": 1}
        )
    data = bytearray(maker.done().read_bytes())
    whole, _ = read(tmp_path / "x.sqlite")
    size = struct.unpack(">H", data[16:18])[0]
    at = 20 * size
    data[at : at + size] = b"\xaa" * size
    (tmp_path / "x.sqlite").write_bytes(data)
    runs, reading = read(tmp_path / "x.sqlite")
    assert 0 < sum(len(run.steps) for run in runs) < len(whole[0].steps)
    assert any("malformed" in note for note in reading.notes)


def test_checkpoints_in_json_and_with_odd_versions(tmp_path):
    """LangGraph.js writes JSON, with objects as constructors and their arguments."""
    maker = make.Maker(tmp_path / "x.sqlite")
    reply = {
        "lc": 1,
        "type": "constructor",
        "id": ["langchain_core", "messages", "AIMessage"],
        "kwargs": {"content": [{"type": "text", "text": "Look."}, {"type": "tool_use"}],
                   "tool_calls": [{"name": "bash", "args": {"command": "ls"}, "id": "k1"}]},
    }  # fmt: skip
    body = {"ts": "2026-01-01T00:00:00Z", "channel_values": {"messages": [reply]},
            "versions_seen": {"agent": {"x": 1}}}  # fmt: skip
    maker.checkpoint("c1", body=make.packed({"versions_seen": {1: 2, b"n": 3}}))
    maker.checkpoint("c2", "c1")
    query = "UPDATE checkpoints SET type = 'json', checkpoint = ? WHERE checkpoint_id = 'c2'"
    maker.db.execute(query, (json.dumps(body),))
    (run,), reading = read(maker.done())
    assert [(step.thought, step.action) for step in run.steps[1:]] == [("Look.", "ls")]
    assert run.steps[0].state["nodes"] == ["1", "b'n'"]
    assert reading.notes == []


def test_a_log_beside_is_noted(tmp_path):
    path = make.forked(tmp_path / "x.sqlite")
    (tmp_path / "x.sqlite-wal").write_bytes(b"more")
    assert "write-ahead log" in read(path)[1].notes[0]


def test_files_in_write_ahead_mode_are_not_touched(tmp_path):
    path = make.forked(tmp_path / "x.sqlite")
    db = sqlite3.connect(path)
    assert db.execute("PRAGMA journal_mode = WAL").fetchone() == ("wal",)
    db.close()
    before = path.read_bytes()
    assert before[18:20] == b"\x02\x02"
    assert len(read(path)[0]) == 3
    assert path.read_bytes() == before
    assert [one.name for one in tmp_path.iterdir()] == ["x.sqlite"]


def test_other_databases_are_not_claimed(tmp_path):
    with SQLiteEventStore(tmp_path / "log.sqlite") as store:
        ingest(store, [make.forked(tmp_path / "in/x.sqlite")], progress=False)
    assert recognise(Source(tmp_path / "log.sqlite")) is None
    db = sqlite3.connect(tmp_path / "other.sqlite")
    db.execute("CREATE TABLE checkpoints (thread_id, note TEXT)")
    db.execute("CREATE TABLE t (a DEFAULT 'checkpoint_id parent_checkpoint_id metadata')")
    db.commit()
    db.close()
    assert recognise(Source(tmp_path / "other.sqlite")) is None


@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_any_damage_gives_runs_or_a_reason(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("lg")
    maker = data.draw(st.sampled_from([make.forked, make.talk]))
    content = bytearray(maker(folder / "x.sqlite").read_bytes())
    for _ in range(data.draw(st.integers(1, 12))):
        place = data.draw(st.integers(0, len(content) - 1))
        content[place] = data.draw(st.integers(0, 255))
    content = content[: data.draw(st.integers(0, len(content)))] if data.draw(
        st.booleans()
    ) else content  # fmt: skip
    (folder / "x.sqlite").write_bytes(content)
    with SQLiteEventStore(":memory:") as store:
        report = ingest(store, [folder], progress=False)
        refused = len(report.ignored) + len(report.rejected)
        assert report.ingested + refused == report.files == 1
        assert all(reason for _, reason in report.ignored + report.rejected)
        assert store.verify().ok


# ---- the real file


def raw_rows(path):
    """Rows of the real file, by SQLite alone."""
    data = bytearray(path.read_bytes())
    data[18:20] = b"\x01\x01"
    db = sqlite3.connect(":memory:")
    db.deserialize(bytes(data))
    query = "SELECT thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, metadata"
    rows = db.execute(f"{query} FROM checkpoints").fetchall()
    return [(*row[:4], json.loads(row[4])) for row in rows]


def test_the_real_thread(real_data):
    path = real_data / "langgraph_sqlite_generated/checkpoints.sqlite"
    rows = raw_rows(path)
    leaves = {row[2] for row in rows} - {row[3] for row in rows}
    runs, reading = read(path)
    assert (len(rows), len(leaves), len(runs)) == (8, 3, 3)
    assert {run.record for run in runs} == leaves
    newest = max(row[2] for row in rows)  # ids begin with their time
    assert [run.record for run in runs if run.config["latest"]] == [newest]
    assert [row[4]["step"] for row in rows].count(3) == 2
    fork = next(row[3] for row in rows if row[4]["source"] == "update")
    assert fork.endswith("b67b6c")
    assert {run.steps[0].state["checkpoint"] for run in runs[:1]} == {fork}
    assert [(run.parent, run.parent_step) for run in runs[1:]] == [(runs[0].record, 0)] * 2
    made = [step.state["checkpoint"] for run in runs for step in run.steps]
    by_nodes = [row[2] for row in rows if row[4]["source"] == "loop" and row[4]["step"] > 0]
    assert sorted(made) == sorted(by_nodes)
    assert (len(made), reading.notes) == (4, [])


def test_the_real_file_is_ingested(real_data):
    with SQLiteEventStore(":memory:") as store:
        report = ingest(store, [real_data / "langgraph_sqlite_generated"], progress=False)
        assert report.by_format == {"langgraph": {"files": 1, "runs": 3, "steps": 4}}
        assert report.n_copies == 0
        assert (report.ignored, report.rejected) == ([], [])
