"""The store room: its rules, its solver, its workers, and runs that are lost."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sag_research as sag
from sag_research.errors import MissingDataError, UsageError
from sag_research.lab import Assignment
from sag_research.lab.crates import (
    Board,
    CratesPlay,
    CratesWorld,
    Habits,
    Push,
    ScriptedWorker,
    carry_on,
    habit_names,
    habits,
    legal_pushes,
    level,
    levels,
    lost_at,
    parse_board,
    solution,
)
from sag_research.lab.crates._levels import made_levels
from sag_research.lab.crates.generate import generate
from sag_research.log import SQLiteEventStore
from sag_research.model import Run
from sag_research.runtime import Agent, Experiment


def shortest(board: Board) -> int | None:
    """The fewest pushes, by a search that leaves nothing out."""
    seen, queue = {(board.crates, min(board.reach()))}, deque([(board, 0)])
    while queue:
        here, pushes = queue.popleft()
        if here.solved:
            return pushes
        for push in legal_pushes(here):
            then = here.after(push)
            key = (then.crates, min(then.reach()))
            if key not in seen:
                seen.add(key)
                queue.append((then, pushes + 1))
    return None


def test_levels_are_solved_by_their_fewest_pushes() -> None:
    assert len(levels()) == 24
    for one in levels():
        path = solution(parse_board(one.board))
        assert path is not None
        assert len(path) == one.pushes
        board = parse_board(one.board)
        for push in path:
            board = board.after(push)
        assert board.solved


def test_levels_are_what_the_script_makes() -> None:
    made = {}
    for name, _, board, pushes in made_levels():
        made[name] = (board.text(), pushes)
        if name == "easy-7":
            break
    assert made == {one.name: (one.board, one.pushes) for one in levels()[:8]}


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**9), pushes=st.integers(0, 6))
def test_the_solver_agrees_with_a_search_that_leaves_nothing_out(seed: int, pushes: int) -> None:
    random = Random(seed)
    board = parse_board(random.choice(levels()[:16]).board)
    for _ in range(pushes):
        if moves := list(legal_pushes(board)):
            board = board.after(random.choice(moves))
    path = solution(board)
    assert (None if path is None else len(path)) == shortest(board)
    assert parse_board(board.text()) == board


def test_rules() -> None:
    board = parse_board("######\n#@$ .#\n######")
    assert board.after(Push(1, 2, "right")).text() == "######\n# @$.#\n######"
    for wrong in (Push(1, 2, "left"), Push(1, 2, "up"), Push(1, 3, "right"), Push(1, 2, "away")):
        with pytest.raises(UsageError):
            board.after(wrong)
    for text in ("#@$#", "@ .$\n@", "?", "", "@"):
        with pytest.raises(UsageError):
            parse_board(text)


def test_actions() -> None:
    world = CratesWorld("easy-0")
    before = world.snapshot()
    assert world.act("look()").text == level("easy-0").board
    for nonsense in ("", "push()", "push(row=1, column=1, direction=up); finish()", "dance()"):
        assert not world.act(nonsense).ok
    assert world.snapshot() == before
    path = solution(world.board)
    assert path is not None
    first = path[0]
    action = f"push(row={first.row}, column={first.column}, direction={first.direction})"
    assert world.act(action).ok
    after = world.snapshot()
    world.restore(before)
    assert world.snapshot() == before
    world.restore(after)
    assert world.snapshot() == after
    assert world.act("finish()").done
    assert not world.act("look()").ok


def played(policy: str | Habits, seed: int, scenario: str = "medium") -> SQLiteEventStore:
    store = SQLiteEventStore(":memory:")
    name = policy if isinstance(policy, str) else policy.name
    one = Assignment(world="crates", scenario=scenario, policy=name, seed=seed)
    CratesPlay().play(store, one, model=ScriptedWorker(policy, seed))
    return store


def steps(store: SQLiteEventStore) -> list[str]:
    (run,) = [r.run_id for r in store.runs() if r.run_id.startswith("crates")]
    return [e.payload["observation"] for e in store.read(run, types=("agent.step",))]


@pytest.mark.parametrize("scenario", CratesPlay().scenarios)
def test_a_worker_without_bad_habits_always_succeeds(scenario: str) -> None:
    store = SQLiteEventStore(":memory:")
    for variant in range(CratesPlay().variants):
        one = Assignment(
            world="crates", scenario=scenario, variant=variant, policy="perfect", seed=1
        )
        came = CratesPlay().play(store, one)
        assert (came.outcome.outcome, came.ending) == ("success", "finished")
        read = store.read(one.run_id, types=("agent.step",))
        assert lost_at(e.payload["observation"] for e in read) is None


def test_a_clumsy_worker_is_lost_at_a_known_step() -> None:
    wild = Habits(name="wild", clumsy=1.0)
    boards = steps(played(wild, seed=4))
    at = lost_at(boards)
    assert at is not None
    drawn = "\n".join(line for line in boards[at - 1].split("\n") if line.startswith("#"))
    assert shortest(parse_board(drawn)) is not None


def test_the_same_seed_plays_the_same() -> None:
    assert steps(played("clumsy", 5)) == steps(played("clumsy", 5))
    assert steps(played("clumsy", 5)) != steps(played("clumsy", 6))


def test_a_lost_run_is_taken_back_to_before_it_was_lost() -> None:
    wild = Habits(name="wild", clumsy=1.0)
    store = played(wild, seed=4)
    (run,) = [r.run_id for r in store.runs() if r.run_id.startswith("crates")]
    at = lost_at(steps(store))
    assert at is not None

    def world_of(run: Run) -> CratesWorld:
        return CratesWorld(str(run.config["level"]))

    def agent(change: Mapping[str, Any], seed: int) -> Agent:
        return carry_on(ScriptedWorker(change["worker"], seed))

    arms = {"clumsy": {"worker": "clumsy"}, "perfect": {"worker": "perfect"}}
    found = Experiment(
        store, run, step=at - 1, arms=arms, agent_factory=agent, world_factory=world_of,
        repeats=3, max_steps=40,
    ).run()  # fmt: skip
    rates = dict(zip(found.table_["arm"], found.table_["rate"], strict=True))
    assert rates["perfect"] == 1.0
    assert rates["clumsy"] <= 1.0


def test_names() -> None:
    assert habits("steady").name == "steady"
    assert habit_names()[0] == "perfect"
    with pytest.raises(MissingDataError):
        habits("nobody")
    with pytest.raises(MissingDataError):
        level("nowhere")


def test_the_bundled_set_says_where_runs_were_lost() -> None:
    with sag.open(":memory:") as ws:
        report = ws.ingest(sag.bundled("crates"))
        assert (report.runs, len(report.rejected)) == (360, 0)
        query = """
            SELECT run_id, CAST(body->>'$.config.lost_at' AS INT), runs.outcome, runs.n_steps
            FROM events JOIN runs USING (run_id) WHERE type = 'run.created'"""
        rows = ws.sql(query).rows()
        lost = [(run, at, outcome, n) for run, at, outcome, n in rows if at is not None]
        assert 40 <= len(lost) < 150
        assert {outcome for _, _, outcome, _ in lost} == {"failure"}
        assert all(0 <= at < n for _, at, _, n in lost)
        for run, at, _, _ in lost[:5]:
            assert lost_at(ws.steps(run)["observation"]) == at


def test_a_small_set_is_made_again_to_the_byte(tmp_path: Path) -> None:
    for name in ("one", "two"):
        assert generate(tmp_path / name, runs=6, jobs=1) == 6
    for name in ("runs.jsonl.zst", "README.md", "SHA256SUMS"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    with pytest.raises(UsageError):
        generate(tmp_path / "one")
