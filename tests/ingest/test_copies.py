"""Copies: found over spellings, linked, hidden, and taken back."""

import json
import shutil

import pytest

import sag_research as sag
from sag_research.ingest import apply_labels, ingest, read_labels
from tests.ingest.formats import spans_make as make
from tests.ingest.make import swe_file, swe_step, write

CALLS = [
    ("bash", {"command": "cd /testbed && grep -rn 'TimeoutError' --include=*.py src | head"}),
    ("str_replace_editor", {"command": "view", "path": "/testbed/src/a.py", "view_range": [1, 40]}),
    ("str_replace_editor", {"command": "str_replace", "path": "/testbed/src/a.py",
                            "old_str": "x = 1\n", "new_str": "x = 'two'\n"}),
    ("submit", {}),
]  # fmt: skip
TICKS = [
    "```\ncd /testbed && grep -rn 'TimeoutError' --include=*.py src | head\n```",
    "```\nstr_replace_editor view /testbed/src/a.py --view_range 1 40\n```",
    "```\nstr_replace_editor str_replace /testbed/src/a.py --old_str 'x = 1\n'"
    " --new_str 'x = '\"'\"'two'\"'\"'\n'\n```",
    "```\nsubmit\n```",
]
SAID = "Let me look at where this error comes from before I change it"


def xml(name, arguments):
    inner = "".join(f"<parameter={k}>{v}</parameter>\n" for k, v in arguments.items())
    return f"<function={name}>\n{inner}</function>"


def spelled(spelling, task="org__repo-1", said=SAID, calls=CALLS, **more):
    """One run as a native record, its actions in one of three spellings."""
    steps = []
    for number, (name, arguments) in enumerate(calls):
        step = {"thought": f"{said} {number}", "observation": "done"}
        if spelling == "tool":
            step["calls"] = [{"name": name, "arguments": arguments, "text": f"{name} …"}]
        else:
            step["action"] = TICKS[number] if spelling == "ticks" else xml(name, arguments)
        steps.append(step)
    return {"task_id": task, "model": "m", "steps": steps, **more}


def lines(*records):
    return "\n".join(map(json.dumps, records)).encode()


@pytest.fixture
def ws():
    with sag.open(":memory:") as ws:
        yield ws


def hidden(ws):
    return dict(ws.sql("SELECT run_id, copy_of FROM runs WHERE hidden").rows())


def three(folder, n=4):
    """A folder in which each of n runs is there in three spellings."""
    for spelling in ("tool", "xml", "ticks"):
        records = [
            spelled(spelling, f"task-{i}", outcome="success" if i % 2 else "failure")
            for i in range(n)
        ]
        write(folder / f"{spelling}.jsonl", lines(*records))
    return folder


class TestFound:
    def test_over_three_spellings(self, ws, tmp_path):
        report = ws.ingest(three(tmp_path))
        assert (report.runs, report.n_copies) == (12, 8)
        assert "8 hidden as copies" in repr(report)
        assert any("undo with ws.show(run)" in note for note in report.notes)
        shown = ws.sql("SELECT task_id, count(*) FROM runs WHERE NOT hidden GROUP BY 1").rows()
        assert sorted(shown) == [(f"task-{i}", 1) for i in range(4)]

    def test_over_formats(self, ws, tmp_path):
        actions = ["cat setup.py\n", "python -m pytest tests/test_a.py -q\n", "submit\n"]
        steps = [swe_step(action) for action in actions]
        write(tmp_path / "org__repo-1.traj", swe_file(*steps))
        steps = [{"action": one, "thought": "Look around.", "observation": "?"} for one in actions]
        write(tmp_path / "org__repo-1.jsonl", lines({"task_id": "org__repo-1", "steps": steps}))
        ws.ingest(tmp_path)
        assert len(hidden(ws)) == 1

    def test_also_where_the_other_spelling_comes_later(self, ws, tmp_path):
        for spelling in ("xml", "tool"):
            write(tmp_path / f"{spelling}.jsonl", lines(spelled(spelling)))
            ws.ingest(tmp_path)
        first, second = ws.runs().run_id
        assert hidden(ws) == {second: first}

    def test_the_same_file_twice_is_a_duplicate_before(self, ws, tmp_path):
        three(tmp_path / "a/run", 2)
        shutil.copytree(tmp_path / "a/run", tmp_path / "a/later/run")
        report = ws.ingest(tmp_path)
        assert (report.ingested, report.duplicates, report.runs, report.n_copies) == (3, 3, 6, 4)

    def test_the_one_with_a_known_outcome_is_kept(self, ws, tmp_path):
        write(tmp_path / "a.jsonl", lines(spelled("tool")))
        write(tmp_path / "b.jsonl", lines(spelled("xml", outcome="failure")))
        ws.ingest(tmp_path)
        assert ws.runs("NOT hidden").outcome.tolist() == ["failure"]

    def test_a_file_that_was_written_again(self, ws, tmp_path):
        path = tmp_path / "x/org__repo-1.traj"
        write(path, swe_file(swe_step("ls\n")))
        ws.ingest(tmp_path)
        write(path, swe_file(swe_step("pwd\n"), swe_step("make test\n")))
        report = ws.ingest(tmp_path)
        old, new = ws.runs().run_id
        assert hidden(ws) == {old: new}
        assert report.copies.hidden[0].why == "overwritten by"
        assert ws.steps(old).action.tolist() == ["ls\n"]  # the history is kept

    def test_runs_added_by_hand_are_looked_at_on_request(self, ws):
        ws.add([spelled("tool"), spelled("ticks")])
        assert hidden(ws) == {}
        assert len(ws.find_copies().hidden) == 1
        assert len(hidden(ws)) == 1


class TestNotFound:
    @pytest.mark.parametrize(
        "other",
        [
            spelled("xml", task="org__repo-2"),
            spelled("xml", calls=CALLS[:3]),
            spelled("xml", calls=[CALLS[1], CALLS[0], *CALLS[2:]]),
            {**spelled("xml"), "model": "another"},
            spelled("xml", said="Now quite something else is on my mind"),
        ],
        ids=["task", "shorter", "order", "model", "thoughts"],
    )
    def test_what_differs(self, ws, tmp_path, other):
        write(tmp_path / "a.jsonl", lines(spelled("tool")))
        write(tmp_path / "b.jsonl", lines(other))
        assert ws.ingest(tmp_path).n_copies == 0

    def test_attempts_in_one_file(self, ws, tmp_path):
        one, other = spelled("tool", attempt=1), spelled("tool", attempt=2)
        write(tmp_path / "a.jsonl", lines(one, other))
        assert ws.ingest(tmp_path).n_copies == 0

    def test_rows_of_one_file_must_be_equal_to_the_letter(self, ws, tmp_path):
        other = spelled("tool")
        other["steps"][0]["observation"] = "something else"
        write(tmp_path / "a.jsonl", lines(spelled("tool"), other, spelled("tool", goal="!")))
        assert ws.ingest(tmp_path).n_copies == 1

    def test_too_little_was_done_to_tell(self, ws, tmp_path):
        for name, action in (("a", "submit"), ("b", "<function=submit></function>")):
            step = {"action": action, "thought": SAID}
            write(tmp_path / f"{name}.jsonl", lines({"task_id": "t", "steps": [step]}))
        report = ws.ingest(tmp_path)
        assert (report.n_copies, len(report.copies.alike)) == (0, 1)
        assert any("may be copies and are kept" in note for note in report.notes)

    def test_runs_that_did_nothing(self, ws, tmp_path):
        for name in "ab":
            write(tmp_path / f"{name}.jsonl", lines({"task_id": "t", "steps": [], "goal": name}))
        assert ws.ingest(tmp_path).n_copies == 0


class TestWhatItChanges:
    def test_statistics_count_each_run_once(self, ws, tmp_path):
        write(
            tmp_path / "only/tool.jsonl",
            three(tmp_path / "all").joinpath("tool.jsonl").read_bytes(),
        )
        ws.ingest(tmp_path / "all")
        prefixes = ws.prefixes()
        assert (len(prefixes), prefixes.left_out) == (4, {"copy": 8})
        assert ws.compare().table_["n"].tolist() == [4]
        assert ws.compare(where="hidden OR NOT hidden").table_["n"].tolist() == [12]
        with sag.open(":memory:") as once:
            once.ingest(tmp_path / "only")
            assert (
                once.compare().table_["n_success"].tolist()
                == ws.compare().table_["n_success"].tolist()
            )

    def test_a_bloomed_graph_counts_each_run_once(self, ws, tmp_path):
        ws.ingest(three(tmp_path))
        bloomed = ws.bloom()
        shown = {run for (run,) in ws.sql("SELECT run_id FROM runs WHERE NOT hidden").rows()}
        assert set(bloomed.runs) == shown
        assert bloomed.nx.graph["runs_total"] == len(shown)
        named = [d["runs_total"] for n, d in bloomed.nx.nodes(data=True) if n.startswith("File|")]
        assert named
        assert set(named) == {len(shown)}

    def test_the_fingerprint_leaves_them_out(self, ws, tmp_path):
        ws.ingest(three(tmp_path))
        assert ws.digest() == ws.digest("NOT hidden") != ws.digest("hidden OR NOT hidden")

    def test_all_are_listed(self, ws, tmp_path):
        ws.ingest(three(tmp_path))
        table = ws.copies()
        assert len(table) == 8
        assert set(table.columns) >= {"run_id", "copy_of", "reason", "path", "shown_outcome"}
        assert len(ws.runs()) == 12
        assert ws.runs().hidden.sum() == 8

    def test_attempts_are_numbered_without_them(self, ws, tmp_path):
        write(tmp_path / "a.jsonl", lines(spelled("tool")))
        write(tmp_path / "b.jsonl", lines(spelled("xml")))
        write(tmp_path / "c.jsonl", lines(spelled("xml", said="An attempt of its own")))
        ws.ingest(tmp_path)
        rows = ws.sql("SELECT hidden, attempt FROM runs ORDER BY attempt").rows()
        assert rows == [(False, 1), (False, 2), (True, 3)]

    def test_a_label_of_the_task_is_about_the_one_that_is_shown(self, ws, tmp_path):
        write(tmp_path / "in/a.jsonl", lines(spelled("tool")))
        write(tmp_path / "in/b.jsonl", lines(spelled("xml")))
        write(tmp_path / "report.json", {"org__repo-1": {"resolved": True}})
        report = ws.ingest(tmp_path / "in", labels=tmp_path / "report.json").labels
        assert (report.applied, report.ambiguous) == (1, [])
        assert ws.runs("NOT hidden").outcome.tolist() == ["success"]


class TestTakenBack:
    def test_show_lasts(self, ws, tmp_path):
        ws.ingest(three(tmp_path, 1))
        copy = next(iter(hidden(ws)))
        ws.show(copy)
        ws.ingest(tmp_path)
        ws.find_copies()
        assert copy not in hidden(ws)
        assert len(ws.prefixes()) == 2

    def test_hide_by_hand(self, ws, tmp_path):
        ws.ingest(three(tmp_path, 2))
        run = ws.runs("NOT hidden").run_id[0]
        ws.hide(run, reason="a broken machine")
        assert ws.prefixes().left_out == {"copy": 4, "hidden": 1}
        assert ws.runs("run_id = ?", [run]).hidden_reason.tolist() == ["a broken machine"]

    def test_again_says_nothing(self, ws, tmp_path):
        ws.ingest(three(tmp_path))
        before = ws.store.last_seq()
        assert ws.ingest(tmp_path).n_copies == 0
        assert (ws.find_copies().hidden, ws.store.last_seq()) == ([], before)

    def test_a_later_start_finds_what_an_interrupted_one_left(self, ws, tmp_path, monkeypatch):
        whole = sag.open(":memory:")
        whole.ingest(three(tmp_path))

        def killed(*_):
            raise KeyboardInterrupt

        with monkeypatch.context() as context:
            context.setattr("sag_research.ingest._pipeline.hide_copies", killed)
            with pytest.raises(KeyboardInterrupt):
                ws.ingest(tmp_path)
        assert hidden(ws) == {}
        ws.ingest(tmp_path)
        assert ws.digest() == whole.digest()
        assert hidden(ws) == hidden(whole)

    def test_a_rebuilt_warehouse_knows_them(self, tmp_path):
        with sag.open(tmp_path / "ws") as ws:
            ws.ingest(three(tmp_path / "in"))
            before = hidden(ws)
            ws.rebuild()
            assert hidden(ws) == before != {}


def test_labels_of_a_hidden_run_by_its_own_name_are_kept(ws, tmp_path):
    write(tmp_path / "in/a.jsonl", lines(spelled("tool")))
    write(tmp_path / "in/b.jsonl", lines(spelled("xml")))
    ingest(ws.store, [tmp_path / "in"])
    (copy,) = hidden(ws)
    write(tmp_path / "l.csv", f"run_id,outcome\n{copy},failure\n".encode())
    assert apply_labels(ws.store, read_labels(tmp_path / "l.csv")).applied == 1


@pytest.mark.parametrize(
    ("folder", "runs"), [("taubench", 200), ("mini_swe_agent_v1_gemini3pro_verified", 235)]
)
def test_attempts_of_real_runs_are_no_copies(ws, real_data, folder, runs):
    report = ws.ingest(real_data / folder, progress=False)
    assert (report.runs, report.n_copies, report.copies.alike) == (runs, 0, [])


def test_attempts_of_the_bundled_runs_are_no_copies(ws):
    assert ws.ingest(sag.bundled("bugfix"), progress=False).n_copies == 0


def test_real_rows_that_were_made_of_runs_are_found(ws, real_data):
    ws.ingest(real_data / "swesmith_sweagent_v1", progress=False)
    pairs = ws.copies()
    assert sorted(one.partition("~")[0] for one in pairs.run_id) == sorted(
        one.partition("~")[0] for one in pairs.copy_of
    )
    assert len(pairs) == 2


def said_in_a_trace(text, trace="f" * 32):
    talk = make.llm([make.ASKED], {"content": text})
    return make.span(1, "chat", talk, trace=trace)


def test_a_trace_in_two_files_is_counted_once(ws, tmp_path):
    write(tmp_path / "a.json", make.otlp(said_in_a_trace("Hi.")))
    write(tmp_path / "b.jsonl", make.lines(make.sdk_python(said_in_a_trace("Hi."))))
    write(tmp_path / "c.json", make.otlp(said_in_a_trace("Hi.", "e" * 32)))
    ws.ingest(tmp_path)
    assert len(hidden(ws)) == 1
    (reason,) = ws.sql("SELECT hidden_reason FROM runs WHERE hidden").rows()[0]
    assert reason.startswith("the same trace as")


def test_parts_of_a_trace_in_two_files_are_no_copies(ws, tmp_path):
    write(tmp_path / "a.json", make.otlp(said_in_a_trace("Hi.")))
    write(tmp_path / "b.json", make.otlp(said_in_a_trace("Ho.")))
    ws.ingest(tmp_path)
    assert hidden(ws) == {}
