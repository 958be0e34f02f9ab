"""What the views say of a small log, wherever its rows are."""

from __future__ import annotations

import math

import pytest

from sag_research.log import SQLiteEventStore
from sag_research.model import WORKSPACE_RUN, Event
from sag_research.warehouse import VIEWS
from tests.warehouse.support import end, open_warehouse, outcome, source_read, step

COLUMNS = {
    "runs": (
        "run_id kind task_id attempt dataset repo agent model goal source_id exit_status outcome"
        " detail score n_steps tokens_in tokens_out cost_usd started_at ended_at parent_id"
        " fork_position digest"
    ),
    "steps": (
        "run_id step position thought action observation n_calls tool exit_code seconds tokens_in"
        " tokens_out cost_usd started_at inherited flags"
    ),
    "calls": "run_id step call id name arguments observation status",
    "events": "run_id position seq type actor ts cause body",
    "outcomes": "run_id outcome detail score source known_at_step position",
    "entities": "entity_id kind scope name",
    "mentions": "run_id position step field start end entity_id role rule version",
    "relations": "source_id type target_id run_id position rule",
    "sources": ("source_id path digest bytes format format_version status reason n_runs n_steps"),
    "steps_all": "run_id step position",
}


def test_every_view_has_the_documented_columns_first():
    with SQLiteEventStore(":memory:") as store:
        warehouse = open_warehouse(None, store)
        assert set(VIEWS) == set(COLUMNS)
        for view, names in COLUMNS.items():
            wanted = names.split()
            assert warehouse.sql(f"FROM {view}").columns[: len(wanted)] == wanted, view
        assert "writer_id" in warehouse.sql("FROM steps_all").columns
        warehouse.close()


def test_an_empty_log_gives_empty_views(study):
    for view in VIEWS:
        assert study.rows(f"FROM {view}") == []


# ---- steps, calls, events


@pytest.mark.parametrize("text", ["ls", "ls -l"])
def test_a_call_is_the_same_row_whether_its_text_is_the_steps_own_or_not(study, text):
    study.run("r1")
    call = {"id": "c7", "name": "bash", "arguments": {"command": text}, "text": text}
    call |= {"observation": "saw ls", "status": "error", "exit_code": 2}
    study.add(step("r1", "ls", calls=[call]))
    columns = "step, call, id, name, arguments, observation, status, exit_code, text"
    arguments = '{"command":"' + text + '"}'
    expected = [(0, 0, "c7", "bash", arguments, "saw ls", "error", 2, text)]
    assert study.rows(f"SELECT {columns} FROM calls") == expected


def test_a_step_is_one_row_with_its_calls(study):
    study.run("r1", repo="a/b")
    study.checkpoint()
    first = {"id": "1", "name": "bash", "arguments": {"b": 1, "a": 2}, "text": "ls"}
    second = {"id": "2", "name": "edit", "arguments": "raw", "text": "e", "exit_code": 3}
    study.add(
        step(
            "r1", "x", calls=[first, second], flags=["rejected", "inherited"], seconds=1.5,
            started=1_700_000_000.25, usage={"tokens_in": 5, "tokens_out": 2, "cost_usd": 0.5},
        ),
        step("r1", "y", calls=[]),
    )  # fmt: skip
    shown = study.rows(
        "SELECT step, position, thought, action, observation, n_calls, tool, exit_code, seconds,"
        " tokens_in, tokens_out, cost_usd, epoch(started_at), inherited, flags"
        " FROM steps ORDER BY step"
    )
    when = 1_700_000_000.25
    assert shown == [
        (0, 2, "try x", "x", "saw x", 2, "edit", 3, 1.5, 5, 2, 0.5, when, True,
         ["rejected", "inherited"]),
        (1, 3, "try y", "y", "saw y", 0, None, None, None, None, None, None, None, False, []),
    ]  # fmt: skip
    query = 'SELECT step, "call", id, name, arguments, exit_code FROM calls ORDER BY id'
    assert study.rows(query) == [
        (0, 0, "1", "bash", '{"a":2,"b":1}', None),
        (0, 1, "2", "edit", "raw", 3),
    ]  # fmt: skip


def test_events_hold_every_event_once_with_the_body_of_all_but_steps(study):
    study.run("r1", goal="mend")
    study.add(Event(run_id="r1", type="note.taken", payload={"n": 1}, actor="me", cause=1))
    study.checkpoint()
    study.add(step("r1"), end("r1"))
    shown = study.rows("SELECT position, seq, type, actor, cause, body FROM events ORDER BY seq")
    assert shown == [
        (1, 1, "run.created", "log", None, '{"goal":"mend","kind":"agent"}'),
        (2, 2, "note.taken", "me", 1, '{"n":1}'),
        (3, 3, "agent.step", "agent", None, None),
        (4, 4, "run.completed", "agent", None, "{}"),
    ]


# ---- runs


def test_the_last_end_says_how_a_run_stopped_even_if_it_says_nothing(study):
    study.run("r1")
    study.run("r2")
    study.run("r3")
    study.add(end("r1", "run.failed", exit_status="cost limit", usage={"tokens_in": 9}))
    study.add(end("r2", "run.failed", exit_status="early"))
    study.checkpoint()
    study.add(end("r1", "run.completed", exit_status="submitted"), end("r2", "run.cancelled"))
    shown = study.rows("SELECT run_id, exit_status, end_type, tokens_in FROM runs ORDER BY run_id")
    assert shown == [
        ("r1", "submitted", "run.completed", None),
        ("r2", None, "run.cancelled", None),
        ("r3", None, None, None),
    ]


def test_tokens_and_cost_are_unknown_where_one_step_is_unknown(study):
    for run in ("known", "gap", "total", "none"):
        study.run(run)
    whole = {"tokens_in": 5, "tokens_out": 1, "cost_usd": 0.1}
    study.add(*(step("known", usage=whole) for _ in range(10)))
    study.add(step("gap", usage=whole), step("gap", usage={"tokens_in": 4, "cost_usd": 0.0}))
    study.checkpoint()
    study.add(step("total", usage=whole), step("total"))
    study.add(end("total", usage={"tokens_in": 100, "cost_usd": 2.5}), step("none"))
    shown = study.rows("SELECT run_id, tokens_in, tokens_out, cost_usd FROM runs ORDER BY run_id")
    assert shown == [
        ("gap", 9, None, 0.1),
        ("known", 50, 10, math.fsum([0.1] * 10)),
        ("none", None, None, None),
        ("total", 100, None, 2.5),
    ]


def test_inherited_steps_count_nowhere(study):
    study.run("r1")
    usage = {"tokens_in": 5, "tokens_out": 1, "cost_usd": 1.0}
    study.add(step("r1", flags=["inherited"]), step("r1", flags=["inherited"], started=10.0))
    study.checkpoint()
    study.add(step("r1", usage=usage, started=20.0))
    assert study.one("SELECT n_steps, tokens_in, cost_usd FROM runs") == (1, 5, 1.0)
    assert study.one("SELECT count(*) FROM steps WHERE inherited") == 2
    assert study.rows("SELECT step FROM steps ORDER BY step") == [(0,), (1,), (2,)]
    assert study.one("SELECT epoch(started_at) FROM runs") == 20.0


def test_clocks_are_those_of_the_run_and_not_of_its_ingestion(study):
    study.run("live", created_at=1_000.0)
    study.run("read", source_id="s1", created_at=1_000.0)
    study.run("dated", source_id="s1", created_at=1_000.0)
    study.checkpoint()
    study.add(step("dated", started=5.0), step("dated", started=7.0), end("dated"))
    study.add(step("read"), end("read"))
    study.add(Event(run_id="live", type="run.completed", ts=1_060.0))
    shown = study.rows(
        "SELECT run_id, epoch(started_at), epoch(ended_at) FROM runs ORDER BY run_id"
    )
    assert shown == [("dated", 5.0, 7.0), ("live", 1_000.0, 1_060.0), ("read", None, None)]


def test_a_time_beyond_the_calendar_is_unknown(study):
    study.run("r1")
    study.add(step("r1", started=1.7e12), step("r1", started=-9e11))
    assert study.rows("SELECT started_at FROM steps") == [(None,), (None,)]


def test_attempts_are_numbered_within_task_agent_and_model(study):
    study.run("a", task_id="t", agent="x", model="m", attempt=7)
    study.run("b", task_id="t", agent="x", model="m")
    study.checkpoint()
    study.run("c", task_id="t", agent="x", model="m", attempt=0)
    study.run("d", task_id="t", agent="x", model="other")
    study.run("e", task_id="u", agent="x", model="m", attempt=3)
    study.run("f", task_id="t", agent="x", model="m")
    shown = study.rows("SELECT run_id, attempt FROM runs ORDER BY run_id")
    assert shown == [("a", 2), ("b", 3), ("c", 1), ("d", 1), ("e", 1), ("f", 4)]


def test_the_digest_of_a_run_is_its_head(study):
    study.run("r1")
    study.add(step("r1"))
    study.checkpoint()
    child = study.store.fork("r1", at=2, run_id="r2")
    study.add(step("r1"), step("r2"))
    heads = {run: study.store.head(run).digest for run in ("r1", child.run_id)}
    assert dict(study.rows("SELECT run_id, digest FROM runs")) == heads


def test_a_run_written_by_hand_twice_is_one_row(study):
    study.run("r1", goal="first")
    study.checkpoint()
    study.add(Event(run_id="r1", type="run.created", payload={"goal": "again"}))
    study.add(Event(run_id="r1", type="run.forked", payload={}))
    assert study.rows("SELECT run_id, goal FROM runs") == [("r1", "first")]


def test_the_workspace_run_is_no_run(study):
    study.run("r1", kind="workspace")
    study.add(outcome("r1", "success"))
    assert study.rows("SELECT run_id, kind FROM runs") == [("r1", "workspace")]


# ---- outcomes


def verdict(study, run_id="r1"):
    return study.one("SELECT outcome, detail, score FROM runs WHERE run_id = ?", [run_id])


def test_a_run_without_a_label_is_unknown(study):
    study.run("r1")
    study.add(end("r1", "run.failed", exit_status="error"))
    assert verdict(study) == ("unknown", None, None)


def test_the_last_word_of_each_source_counts(study):
    study.run("r1")
    study.add(outcome("r1", "failure", "a", detail="empty", score=0.0))
    study.checkpoint()
    study.add(step("r1"), end("r1"))
    study.add(outcome("r1", "success", "a", score=1.0, known_at_step=4))
    assert verdict(study) == ("success", None, 1.0)
    shown = study.rows("SELECT outcome, score, source, known_at_step, position FROM outcomes")
    assert shown == [("success", 1.0, "a", 4, 3)]


def test_sources_that_agree_are_one_verdict(study):
    study.run("r1")
    study.add(outcome("r1", "failure", "a", detail="partial", score=0.5))
    study.checkpoint()
    study.add(outcome("r1", "failure", "b", detail="empty", score=0.25))
    study.add(outcome("r1", "unknown", "c", detail="infra"))
    assert verdict(study) == ("failure", "empty", 0.25)


def test_a_conflict_is_unknown_and_stays_visible(study):
    study.run("r1")
    study.add(outcome("r1", "failure", "a", score=0.0))
    study.checkpoint()
    study.add(outcome("r1", "success", "b", score=1.0, detail="resolved"))
    assert verdict(study) == ("unknown", "conflict", None)
    assert study.rows("SELECT outcome, source FROM outcomes ORDER BY source") == [
        ("failure", "a"),
        ("success", "b"),
    ]


def test_a_label_that_is_unknown_keeps_its_detail(study):
    study.run("r1")
    study.add(outcome("r1", "unknown", "a", detail="infra"))
    assert verdict(study) == ("unknown", "infra", None)


def test_other_words_are_no_verdict(study):
    for number, word in enumerate(["resolved", "", 1, None, True, ["success"]]):
        study.run(f"r{number}")
        study.add(outcome(f"r{number}", word))
    assert study.rows("SELECT outcome FROM runs") == [("unknown",)] * 6


def test_a_label_may_come_before_its_run_and_for_no_run(study):
    study.add(outcome("r1", "success"), outcome("nobody", "failure"), outcome(None, "failure"))
    study.checkpoint()
    study.run("r1")
    assert study.rows("SELECT run_id, outcome FROM runs") == [("r1", "success")]
    assert study.one("SELECT count(*) FROM outcomes") == 3


def test_a_run_cannot_judge_itself(study):
    study.run("r1")
    own = {"run": "r1", "outcome": "success", "source": "me"}
    study.add(Event(run_id="r1", type="outcome.recorded", payload=own))
    assert verdict(study) == ("unknown", None, None)
    assert study.rows("FROM outcomes") == []


# ---- forks


def test_forks_of_forks_inherit_up_to_the_smallest_fork_position(study):
    study.run("a", task_id="t", repo="a/b")
    study.add(*(step("a", f"a{n}.py") for n in range(5)))  # positions 2..6
    study.store.fork("a", at=4, run_id="b")  # sees a's steps 0..2; own from position 5
    study.checkpoint()
    study.add(*(step("b", f"b{n}.py") for n in range(3)))  # positions 6..8
    study.store.fork("b", at=7, run_id="c")  # inherits b's 6..7 and a's 2..4
    study.store.fork("b", at=3, run_id="d")  # forks inside what b inherited: a's 2..3
    study.checkpoint()
    study.store.fork("d", at=2, run_id="e")  # at a fork position below d's own
    study.add(step("c", "c0.py"), step("d", "d0.py"), step("e", "e0.py"), step("a", "a5.py"))

    runs = study.rows(
        "SELECT run_id, task_id, repo, parent_id, fork_position, n_steps, n_inherited"
        " FROM runs ORDER BY run_id"
    )
    assert runs == [
        ("a", "t", "a/b", None, None, 6, 0),
        ("b", "t", "a/b", "a", 4, 3, 3),
        ("c", "t", "a/b", "b", 7, 1, 5),
        ("d", "t", "a/b", "b", 3, 1, 2),
        ("e", "t", "a/b", "d", 2, 1, 1),
    ]
    seen: dict[str, list[str]] = {}
    for run, writer, number, action in study.rows(
        "SELECT run_id, writer_id, step, action FROM steps_all ORDER BY run_id, position"
    ):
        assert number == len(seen.setdefault(run, []))
        assert writer == action[0]
        seen[run].append(action[:2])
    assert seen == {
        "a": ["a0", "a1", "a2", "a3", "a4", "a5"],
        "b": ["a0", "a1", "a2", "b0", "b1", "b2"],
        "c": ["a0", "a1", "a2", "b0", "b1", "c0"],
        "d": ["a0", "a1", "d0"],
        "e": ["a0", "e0"],
    }
    for run, actions in seen.items():
        logged = study.store.read(run, types=["agent.step"])
        assert actions == [event.payload["action"][:2] for event in logged]
    assert study.one("SELECT count(*) FROM steps") == 12
    assert study.one("SELECT count(*) FROM steps_all WHERE inherited") == 11
    assert study.one("SELECT count(*) FROM steps_all") == 23


# ---- entities


def test_mentions_and_relations_name_entities_of_the_runs_repository(study):
    study.run("r1", repo="a/b")
    study.run("r2")
    study.add(step("r1", "é open x.py y.py"))
    study.checkpoint()
    study.add(step("r2", "x.py"))
    shown = study.rows(
        'SELECT run_id, position, step, field, start, "end", entity_id, role, rule, version'
        " FROM mentions WHERE field = 'action' ORDER BY run_id, start"
    )
    assert shown == [
        ("r1", 2, 0, "action", 7, 11, "File|a/b|x.py", "MUTATED", "tiny-1", "tiny-1"),
        ("r1", 2, 0, "action", 12, 16, "File|a/b|y.py", "MUTATED", "tiny-1", "tiny-1"),
        ("r2", 2, 0, "action", 0, 4, "File||x.py", "MUTATED", "tiny-1", "tiny-1"),
    ]
    assert study.rows("FROM entities ORDER BY entity_id") == [
        ("File|a/b|x.py", "File", "a/b", "x.py"),
        ("File|a/b|y.py", "File", "a/b", "y.py"),
        ("File||x.py", "File", "", "x.py"),
    ]
    shown = study.rows("SELECT source_id, type, target_id, run_id FROM relations ORDER BY run_id")
    assert shown == [
        ("File|a/b|x.py", "IMPORTS", "File|a/b|y.py", "r1"),
        ("File||x.py", "IMPORTS", "File||x.py", "r2"),
    ]


# ---- sources


def test_the_last_word_on_each_file_counts(study):
    study.add(source_read("a.traj", "s1", "ingested", n_runs=1, n_steps=3, bytes=10))
    study.add(source_read("b.traj", "s1", "duplicate"))
    study.checkpoint()
    study.add(source_read("c.json", "s2", "rejected", reason="torn"))
    study.add(source_read("c.json", "s2", "ingested", n_runs=2, n_steps=4))
    study.add(source_read("a.traj", "s3", "ingested"))  # the file has changed since
    shown = study.rows(
        "SELECT path, source_id, status, reason, n_runs FROM sources ORDER BY path, source_id"
    )
    assert shown == [
        ("a.traj", "s1", "ingested", None, 1),
        ("a.traj", "s3", "ingested", None, None),
        ("b.traj", "s1", "duplicate", None, None),
        ("c.json", "s2", "ingested", None, 2),
    ]


def test_an_agent_cannot_add_a_source(study):
    study.run("r1")
    study.add(Event(run_id="r1", type="source.read", payload={"path": "x", "source_id": "s"}))
    assert study.rows("FROM sources") == []


# ---- payloads of users


HUGE = 10**300
ODD = [
    {}, {"calls": 5}, {"calls": "ls"}, {"calls": {"name": "x"}}, {"calls": ["ls", None, 3, [1]]},
    {"calls": [{"name": 5, "arguments": HUGE, "exit_code": 2**40, "status": {"a": None}}]},
    {"flags": "rejected"}, {"flags": 7}, {"flags": [None, 1, {"x": 2}]}, {"usage": 3},
    {"usage": ["a"]}, {"usage": {"tokens_in": HUGE, "tokens_out": "7", "cost_usd": -HUGE}},
    {"usage": {"tokens_in": 2.5, "tokens_out": True, "cost_usd": False}},
    {"thought": 1, "action": ["a", {"b": 2}], "observation": {"x": [None]}},
    {"thought": "nul \x00 in text", "action": "\x1b[31m", "observation": "<script>"},
    {"state": 4}, {"state": {"open_file": 3}}, {"state": "n/a"}, {"raw": [], "extra": HUGE},
]  # fmt: skip


def test_odd_steps_are_steps(study):
    for number, payload in enumerate(ODD):
        study.run(f"r{number}", repo="a/b")
        study.add(Event(run_id=f"r{number}", type="agent.step", payload=payload))
        study.add(step(f"r{number}", "x.py"))
        if number == len(ODD) // 2:
            study.checkpoint()
    assert study.one("SELECT min(n_steps), max(n_steps), count(*) FROM runs") == (2, 2, len(ODD))
    query = "SELECT list(step ORDER BY position) FROM steps GROUP BY run_id"
    assert study.rows(query) == [([0, 1],)] * len(ODD)
    assert study.one("SELECT sum(n_calls) FROM steps") == study.one("SELECT count(*) FROM calls")
    thought, action = study.one("SELECT thought, action FROM steps WHERE thought LIKE 'nul%'")
    assert (thought, action) == ("nul \x00 in text", "\x1b[31m")


def test_odd_values_are_text_where_text_is_meant_and_else_unknown(study):
    study.run("r1")
    odd = {"name": 5, "arguments": HUGE, "exit_code": 2**40, "status": {"a": None}}
    usage = {"tokens_in": 2**63, "tokens_out": True, "cost_usd": 10**400}
    study.add(step("r1", thought=[1], calls=["ls", odd], flags="rejected", usage=usage))
    query = 'SELECT name, arguments, text, status, exit_code FROM calls ORDER BY "call"'
    assert study.rows(query) == [
        (None, None, "ls", None, None),
        ("5", str(HUGE), None, '{"a":null}', None),
    ]  # fmt: skip
    shown = study.one("SELECT thought, flags, tokens_in, tokens_out, cost_usd FROM steps")
    assert shown == ("[1]", ["rejected"], None, None, None)


def test_odd_ends_are_ends(study):
    payloads = [{"usage": 1}, {"exit_status": {"code": HUGE}}, {"usage": {}}, {"usage": [HUGE]}]
    for number, payload in enumerate(payloads):
        study.run(f"r{number}")
        study.add(Event(run_id=f"r{number}", type="run.failed", payload=payload))
    assert study.rows("SELECT end_type, tokens_in FROM runs") == [("run.failed", None)] * 4


def test_odd_facts_are_facts(study):
    study.run("r1")
    study.add(outcome("r1", "success", 5, detail={"a": 1}, score="high", known_at_step=2.5))
    study.add(outcome(7, "failure", None))
    study.add(source_read([1], HUGE, None, bytes="many", n_runs=HUGE))
    assert study.one("SELECT outcome, detail, score FROM runs") == ("success", '{"a":1}', None)
    shown = study.rows("SELECT run_id, source FROM outcomes ORDER BY run_id")
    assert shown == [("7", ""), ("r1", "5")]
    assert study.one("SELECT path, source_id, status, bytes, n_runs FROM sources") == (
        "[1]", str(HUGE), None, None, None,
    )  # fmt: skip


def test_odd_runs_are_runs(study):
    study.run("r1", kind=5, goal=["a"], task_id={"b": 1}, model=HUGE, repo=3)
    study.add(step("r1", "x.py"))
    study.add(Event(run_id=WORKSPACE_RUN, type="run.hidden", payload={"run": "r1"}))
    shown = study.one("SELECT kind, goal, task_id, model, repo FROM runs")
    assert shown == ("5", '["a"]', '{"b":1}', str(HUGE), "3")
    assert study.one("SELECT DISTINCT scope FROM mentions") == "3"


def test_every_column_is_explained(study):
    rows = study.warehouse.schema().rows()
    assert {view for view, *_ in rows} == {*VIEWS, ""}
    assert [row for row in rows if not row[3]] == []
    documented = {(view, column) for view, column, *_ in rows if view and column}
    real = {(view, c) for view in VIEWS for c in study.warehouse.sql(f"FROM {view}").columns}
    assert documented == real
