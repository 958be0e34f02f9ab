"""Runs that left other runs, from a file to the views: each step once, and counts that add up."""

import json

import pytest

import sag_research as sag
from tests.ingest.formats.claude_make import SESSION, family, lines, reply, simple, user
from tests.ingest.make import write

MAIN, AFTER, FORK, SIDE = range(4)


@pytest.fixture
def file(tmp_path):
    return write(tmp_path / "in" / "one.jsonl", lines(*family()))


@pytest.fixture
def ws(tmp_path, file):
    with sag.open(tmp_path / "study") as ws:
        ws.ingest(file, progress=False)
        yield ws


@pytest.fixture
def names(ws):
    """The ids of the runs, in the order of their records."""
    return [row[0] for row in ws.sql("SELECT run_id FROM runs ORDER BY run_id").rows()]


def column(ws, query, *parameters):
    return [row[0] for row in ws.sql(query, list(parameters)).rows()]


def test_the_report_counts_each_step_once(tmp_path, file):
    with sag.open(tmp_path / "other") as ws:
        report = ws.ingest(file, progress=False)
        assert (report.files, report.ingested, report.rejected) == (1, 1, [])
        # eight replies; the ninth step of the log is the fork's copy of a shared one
        assert (report.runs, report.steps) == (4, 8)
        assert report.by_format == {"claude-code": {"files": 1, "runs": 4, "steps": 8}}
        assert any("1 inherited steps not counted" in note for note in report.notes)
        assert column(ws, "SELECT n_steps FROM sources") == [8]
        assert column(ws, "SELECT n_runs FROM sources") == [4]


def test_parents_and_where_they_were_left(ws, names):
    rows = ws.sql("SELECT run_id, parent_id FROM runs ORDER BY run_id").rows()
    assert list(rows) == [
        (names[MAIN], None),
        (names[AFTER], names[MAIN]),
        (names[FORK], names[MAIN]),
        (names[SIDE], None),
    ]
    positions = dict(ws.sql("SELECT run_id, fork_position FROM runs").rows())
    assert positions[names[AFTER]] == ws.store.position_of_step(names[MAIN], 2)
    assert positions[names[FORK]] == ws.store.position_of_step(names[MAIN], 0)
    assert {row[0] for row in ws.sql("SELECT source_id FROM runs").rows()} == set(
        column(ws, "SELECT source_id FROM sources")
    )


def test_steps_stand_once_under_the_run_that_wrote_them(ws, names):
    rows = ws.sql("SELECT run_id, step, thought, inherited FROM steps ORDER BY run_id, step").rows()
    assert list(rows) == [
        (names[MAIN], 0, "I look.", False),
        (names[MAIN], 1, "Mended.", False),
        (names[MAIN], 2, "Documented.", False),
        (names[AFTER], 3, "Going on.", False),
        (names[FORK], 1, "Mended.", True),
        (names[FORK], 2, "", False),
        (names[FORK], 3, "Tested.", False),
        (names[SIDE], 0, "", False),
        (names[SIDE], 1, "All pass.", False),
    ]


def test_steps_all_walks_the_lineage(ws, names):
    def walked(run):
        query = "SELECT step, thought, inherited FROM steps_all WHERE run_id = $1 ORDER BY step"
        return list(ws.sql(query, [run]).rows())

    main = [(0, "I look."), (1, "Mended."), (2, "Documented.")]
    assert walked(names[AFTER]) == [*((*one, True) for one in main), (3, "Going on.", False)]
    assert walked(names[FORK]) == [
        (0, "I look.", True),
        (1, "Mended.", True),
        (2, "", False),
        (3, "Tested.", False),
    ]
    heard = "SELECT observation FROM steps_all WHERE run_id = $1 AND step = 1"
    assert column(ws, heard, names[FORK]) == ["Now test it."]
    assert column(ws, heard, names[MAIN]) == ["No, document it."]


def test_the_counts_and_tokens_of_runs_leave_out_what_was_inherited(ws, names):
    rows = ws.sql("SELECT run_id, n_steps, tokens_in, tokens_out FROM runs ORDER BY run_id").rows()
    assert list(rows) == [
        (names[MAIN], 3, 300, 30),
        (names[AFTER], 1, 100, 10),
        (names[FORK], 2, 200, 20),
        (names[SIDE], 2, 200, 20),
    ]


def test_what_was_changed_is_in_the_intervention(ws, names):
    (left,) = ws.store.read(names[FORK], types=("run.forked",))
    assert left.payload["relation"] == "fork"
    assert left.payload["goal"] == "Now test it."
    (left,) = ws.store.read(names[AFTER], types=("run.forked",))
    assert left.payload["relation"] == "compaction"
    summary = left.payload["config"]["compaction_summary"]
    assert summary == "They mended and documented a parser."


def test_a_subagent_names_the_step_that_called_it(ws, names):
    run = ws.store.get_run(names[SIDE])
    assert run.config["called_by"] == {"run": names[FORK], "step": 2}
    query = "SELECT name FROM calls WHERE run_id = $1 AND step = 2"
    assert column(ws, query, names[FORK]) == ["Task"]


def test_the_log_verifies(ws):
    assert ws.verify().ok


def test_a_second_ingest_appends_nothing(ws, file):
    before = ws.store.head("@workspace"), len(list(ws.store.tail())), ws.digest()
    report = ws.ingest(file, progress=False)
    assert (report.ingested, report.duplicates, report.runs, report.steps) == (0, 1, 0, 0)
    assert (ws.store.head("@workspace"), len(list(ws.store.tail())), ws.digest()) == before


def test_the_same_file_gives_the_same_digest_anywhere(ws, tmp_path, file):
    other = tmp_path / "elsewhere" / "one.jsonl"
    write(other, file.read_bytes())
    with sag.open(tmp_path / "again") as again:
        again.ingest(other, progress=False)
        assert again.digest() == ws.digest()
        assert list(again.sql("SELECT run_id, digest FROM runs ORDER BY 1").rows()) == list(
            ws.sql("SELECT run_id, digest FROM runs ORDER BY 1").rows()
        )


def test_two_runs_share_a_prefix_exactly_as_far_as_they_do(ws, names):
    def digests(run):
        return [event.digest for event in ws.store.read(run)]

    main, after, fork = (digests(names[one]) for one in (MAIN, AFTER, FORK))
    assert after[: len(main)] == main
    same = [one == other for one, other in zip(main, fork, strict=False)]
    assert same == [True, True, False, False]  # created, the first step; then they part


def test_a_rebuild_keeps_the_lineage(ws):
    before = list(ws.sql("SELECT * FROM steps_all ORDER BY run_id, step").rows())
    ws.rebuild()
    assert list(ws.sql("SELECT * FROM steps_all ORDER BY run_id, step").rows()) == before


def test_a_resume_in_the_file_of_the_later_session(tmp_path):
    entries = [
        *simple(),
        user("v", "a2", "Go on.", sessionId="later"),
        reply("b", "v", "Going on.", "m3", sessionId="later"),
    ]
    first = write(tmp_path / "in" / f"{SESSION}.jsonl", lines(*simple()))
    later = write(tmp_path / "in" / "later.jsonl", lines(*entries))
    with sag.open(tmp_path / "study") as ws:
        report = ws.ingest(tmp_path / "in", progress=False)
        assert (report.runs, report.steps) == (2, 3)
        tokens = dict(ws.sql("SELECT task_id, tokens_in FROM runs").rows())
        assert tokens == {first.stem: 200, later.stem: 100}
        counts = dict(ws.sql("SELECT task_id, n_steps FROM runs").rows())
        assert counts == {first.stem: 2, later.stem: 1}
        assert column(ws, "SELECT count(*) FROM steps WHERE NOT inherited") == [3]


def test_forks_are_no_support_of_their_own(ws):
    prefixes = ws.prefixes()
    assert prefixes.left_out == {"fork": 2}
    assert prefixes.runs["n_steps"].sum() == 3 + 2  # of the main run and the sub-agent


def test_texts_that_had_to_be_repaired_in_what_was_changed(tmp_path):
    entries = [*simple(), reply("b1", "a2", "One.", "m3"), user("v", "a2", "half \ud835")]
    entries += [reply("b2", "v", "Two.", "m4"), user("w", "b1", "end")]
    entries += [reply("b3", "a2", "Three.", "m5")]
    file = write(tmp_path / "x.jsonl", lines(*entries))
    with sag.open(tmp_path / "study") as ws:
        ws.ingest(file, progress=False)
        goals = [event.payload.get("goal") for event in ws.store.tail(types=("run.forked",))]
        assert "half \ufffd" in goals
        assert json.dumps(goals).isascii()
        assert ws.verify().ok
