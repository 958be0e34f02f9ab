"""Codex rollouts that begin with the lines of another one, and sub-agents with a file each."""

import json
import os

import pytest

from sag_research.ingest import ingest
from sag_research.ingest.formats._codex_forks import file_of
from sag_research.log import SQLiteEventStore
from tests.ingest.formats.test_codex import (
    SESSION,
    call,
    clock,
    context,
    event,
    got,
    lines,
    meta,
    one,
    read,
    said,
    simple,
    tokens,
    used,
    user,
)
from tests.ingest.make import write

AT = 1767607200_000
"""Milliseconds since the epoch of the tests' clock at 0."""


def uuid7(seconds, tail=1):
    digits = f"{AT + int(seconds * 1000):012x}"
    return f"{digits[:8]}-{digits[8:]}-7000-8000-{tail:012x}"


PARENT, FORK = uuid7(0), uuid7(100, 2)


def stamped(entries, at=100.1):
    """The entries with the time of the fork."""
    return [{**one, "timestamp": clock(at + number / 1000)} for number, one in enumerate(entries)]


def parent(turn=None):
    rest = simple()[1:]
    turn = turn or uuid7(0.2, 3)
    text = json.dumps([meta(PARENT), *rest]).replace('"turn-1"', json.dumps(turn))
    return json.loads(text)


def own(turn=None, at=101.0):
    turn = turn or uuid7(at, 4)
    return [
        event("task_started", at, turn_id=turn),
        user("Go on.", at),
        context(turn, at),
        call("d1", "pwd", at + 3),
        tokens((480, 15), (200, 5), at + 3),
        got("d1", "/", at + 4),
        said("Here.", at + 6),
        tokens((700, 18), (220, 3), at + 6),
        event("task_complete", at + 6, turn_id=turn),
    ]


def forked(*more, turn=None, old=None):
    head = meta(FORK, 100, forked_from_id=PARENT)
    return [head, *stamped(parent(old)), *(more or own(turn))]


def flags(run):
    return [step.flags for step in run.steps]


def test_copied_lines_end_where_a_turn_is_its_own(tmp_path):
    run, reading = one(tmp_path, *forked())
    assert (run.task_id, run.goal, run.config["forked_from"]) == (FORK, "Mend it.", PARENT)
    assert flags(run) == [("inherited",), ("inherited",), (), ()]
    assert [step.action or step.thought for step in run.steps] == ["ls", "Done.", "pwd", "Here."]
    assert used(run) == [(130, 7), (150, 3), (200, 5), (220, 3)]
    assert (run.usage.tokens_in, run.usage.tokens_out) == (420, 8)
    assert [step.started is None for step in run.steps] == [True, True, False, False]
    assert run.steps[0].seconds == pytest.approx(0.2)  # as the output itself says
    assert any("lines are copies of another session" in note for note in reading.notes)


def test_a_fork_of_a_fork(tmp_path):
    again = uuid7(200, 9)
    head = meta(again, 200, forked_from_id=FORK)
    run, _ = one(tmp_path, head, *stamped(forked(), 200.1), *own(at=201))
    assert run.task_id == again
    assert flags(run) == [("inherited",)] * 4 + [(), ()]


def test_a_head_that_is_said_again_is_no_other_session(tmp_path):
    first, *rest = forked()
    run, _ = one(tmp_path, first, *rest[:-2], first, *rest[-2:])
    assert flags(run) == [("inherited",), ("inherited",), (), ()]


def test_a_fork_without_a_turn_of_its_own(tmp_path):
    run, _ = one(tmp_path, *forked(user("Hm?", 130)))
    assert flags(run) == [("inherited",), ("inherited",)]
    assert (run.end, run.usage) == (None, None)


def test_a_parent_behind_a_fork_in_one_file(tmp_path):
    runs, _ = read(tmp_path, *parent(), *forked())
    assert [(run.task_id, flags(run).count(("inherited",)), len(run.steps)) for run in runs] == [
        (PARENT, 0, 2), (FORK, 2, 4),
    ]  # fmt: skip


@pytest.mark.parametrize("with_parent", [True, False])
@pytest.mark.parametrize("at", [101.0, 100.15])
def test_turns_without_ids_that_tell(tmp_path, with_parent, at):
    """Then the parent's file tells, or that lines were written at once."""
    if with_parent:
        write(tmp_path / f"rollout-2026-01-05T10-00-00-{PARENT}.jsonl", lines(*parent("1")))
    head = meta(FORK, 100, forked_from_id=PARENT)
    run, _ = one(tmp_path, head, *stamped(parent("1")), *own("2", at=at))
    assert flags(run) == [("inherited",), ("inherited",), (), ()]


def test_the_parents_file_tells_where_a_fork_ends_early(tmp_path):
    write(tmp_path / f"rollout-a-{PARENT}.jsonl", lines(*parent("1")))
    head = meta(FORK, 100, forked_from_id=PARENT)
    copied = stamped(parent("1"))[:13]  # up to the first result
    run, _ = one(tmp_path, head, *copied, said("Mine.", 100.2))
    assert flags(run) == [("inherited",), ()]


def test_a_parent_in_the_folder_of_another_day(tmp_path):
    days = tmp_path / "sessions/2026/01"
    place = write(days / f"05/rollout-2026-01-05T10-00-00-{PARENT}.jsonl", lines(*parent("1")))
    child = days / "09/rollout-2026-01-09T10-00-00-x.jsonl"
    assert file_of(PARENT, child) == place
    assert file_of(FORK, child) is None
    assert file_of("../../x", child) is None
    assert file_of(uuid7(1e10), tmp_path / "1/2/3/x") is None


def test_strange_files_beside_it(tmp_path):
    (tmp_path / f"rollout-0-{PARENT}.jsonl").mkdir()
    os.mkfifo(tmp_path / f"rollout-1-{PARENT}.jsonl")
    write(tmp_path / f"rollout-2-{PARENT}.jsonl", b"\xff\n[1]\n")
    head = meta(FORK, 100, forked_from_id=PARENT)
    run, _ = one(tmp_path, head, *stamped(parent("1")), *own("2"))
    assert flags(run) == [("inherited",), ("inherited",), (), ()]


# ---- sub-agents


def spawned(**more):
    source = {"subagent": {"thread_spawn": {"parent_thread_id": PARENT, "depth": 1}}}
    return meta(FORK, 100, source=source, agent_role="worker", **more)


def calling():
    entries = parent()
    spawn = [
        call("s1", "x", 99, name="spawn_agent"),
        event("sub_agent_activity", 99.5, event_id="s1", agent_thread_id=FORK, kind="started"),
        got("s1", '{"task_name": "look"}', 99.6),
    ]
    return [*entries, user("Ask another."), *spawn, said("It works.", 120)]


def test_a_sub_agent_has_no_copies_though_it_has_the_parents_head(tmp_path):
    run, _ = one(tmp_path, spawned(), meta(PARENT, 100), *own())
    assert flags(run) == [(), ()]
    assert (run.task_id, run.agent, run.goal) == (FORK, "codex/subagent", "Go on.")
    assert run.config["parent_session"] == PARENT
    assert run.config["source"] == "subagent"


def test_a_sub_agent_with_the_history_of_its_parent(tmp_path):
    run, _ = one(tmp_path, spawned(forked_from_id=PARENT), *stamped(calling()), *own())
    assert [bool(one) for one in flags(run)] == [True] * 4 + [False] * 2
    assert run.goal == "Go on."


@pytest.mark.parametrize("by_output", [True, False])
def test_the_call_that_began_a_sub_agent(tmp_path, by_output):
    entries = calling()
    if by_output:  # as older versions tell it
        entries = [one for one in entries if one["payload"].get("type") != "sub_agent_activity"]
        text = json.dumps(entries).replace("task_name", "agent_id").replace("look", FORK)
        entries = json.loads(text)
    write(tmp_path / f"rollout-2026-01-05T10-00-00-{PARENT}.jsonl", lines(*entries))
    write(tmp_path / f"rollout-2026-01-05T10-01-40-{FORK}.jsonl", lines(spawned(), *own()))
    with SQLiteEventStore(":memory:") as store:
        report = ingest(store, [tmp_path], progress=False)
        runs = {run.task_id: run for run in store.runs()}
        assert (report.runs, report.steps, report.rejected) == (2, 6, [])
        assert runs[FORK].config["called_by"] == {"run": runs[PARENT].run_id, "step": 2}


def test_sub_agents_that_name_each_other(tmp_path):
    for name, other in ((PARENT, FORK), (FORK, PARENT)):
        head = meta(name, parent_thread_id=other)
        write(tmp_path / f"rollout-2026-01-05T10-00-00-{name}.jsonl", lines(head, said("x")))
    with SQLiteEventStore(":memory:") as store:
        assert ingest(store, [tmp_path], progress=False).runs == 2
        assert all(run.config["called_by"]["step"] is None for run in store.runs())


def test_a_parent_that_is_not_here(tmp_path):
    run, _ = one(tmp_path, spawned(), *own())
    assert "called_by" not in run.config


def test_the_session_of_other_tests_is_no_fork(tmp_path):
    run, _ = one(tmp_path, *simple())
    assert (run.task_id, flags(run)) == (SESSION, [(), ()])


def test_a_session_that_names_itself_is_no_fork(tmp_path):
    first, *rest = simple()
    first["payload"]["forked_from_id"] = SESSION
    run, _ = one(tmp_path, first, *rest)
    assert (flags(run), run.config.get("forked_from")) == ([(), ()], None)
    plain, _ = one(tmp_path, *simple())
    assert run.usage == plain.usage
