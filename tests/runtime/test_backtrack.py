"""Runs that seem lost are halted, taken back, told what to avoid, and go on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import pytest

from sag_research.errors import UsageError
from sag_research.lab.crates import CratesWorld, Habits, ScriptedWorker, carry_on, lost_at
from sag_research.log import SQLiteEventStore
from sag_research.model import Run
from sag_research.runtime import Agent, BacktrackPolicy, RunContext, backtrack


class Said(NamedTuple):
    risk: float
    low: float
    high: float
    alarm: bool
    evidence: str


class Oracle:
    """Knows when the room cannot be solved any more, as no real monitor does."""

    def __init__(self, patience: int = 0) -> None:
        self.tokens_: list[str] = []
        self.verdicts_: list[Said] = []
        self.alarm_at_: int | None = None
        self._seen: list[str] = []
        self._patience = patience

    def observe(self, step: Mapping[str, Any], /) -> Said:
        self._seen.append(str(step.get("observation", "")))
        self.tokens_.append("call|push|ok")
        at = lost_at(self._seen)
        lost = at is not None and len(self._seen) - 1 - at >= self._patience
        if lost and self.alarm_at_ is None:
            self.alarm_at_ = len(self._seen)
        risk = 0.2 if at is None else 0.9
        said = Said(risk, 0.1, 1.0, self.alarm_at_ is not None, "the board says so")
        self.verdicts_.append(said)
        return said


WILD = Habits(name="wild", clumsy=0.4)


@pytest.fixture
def store() -> SQLiteEventStore:
    made = SQLiteEventStore(":memory:")
    made.create_run(Run(run_id="r", task_id="crates-medium-0", config={"level": "medium-0"}))
    return made


def world_of(run: Run) -> CratesWorld:
    return CratesWorld(str(run.config["level"]))


def wild_agent(change: Mapping[str, Any], seed: int) -> Agent:
    return carry_on(ScriptedWorker(WILD, seed))


def go(store: SQLiteEventStore, **options: Any) -> Any:
    given: dict[str, Any] = {
        "agent_factory": wild_agent, "watch": Oracle, "world_factory": world_of, "seed": 9,
        "policy": BacktrackPolicy(max_backtracks=8, max_steps=200), **options,
    }  # fmt: skip
    return backtrack(store, "r", **given)


def types(store: SQLiteEventStore, run: str) -> list[str]:
    own = store.get_run(run).fork_position + 1
    return [event.type for event in store.read(run, own)]


def test_a_lost_run_is_taken_back_until_it_succeeds(store: SQLiteEventStore) -> None:
    result = go(store)
    assert result.outcome == "success"
    assert len(result.runs) > 1
    assert repr(result).endswith(f"taken back {len(result.runs) - 1} times)")
    for left, child in zip(result.runs, result.runs[1:], strict=False):
        assert types(store, left)[-2:] == ["deadend.predicted", "run.abandoned"]
        assert types(store, child)[:2] == ["run.forked", "run.backtracked"]
        first = next(store.read(child, store.get_run(child).fork_position + 1))
        assert first.payload["from"] == left
        assert first.payload["change"]["avoid"]
    assert types(store, result.runs[-1])[-1] == "run.completed"
    assert store.verify().ok


def test_the_fork_is_before_the_step_with_which_it_was_lost(store: SQLiteEventStore) -> None:
    result = go(store)
    table = result.table_.set_index("run_id")
    for left, child in zip(result.runs, result.runs[1:], strict=False):
        seen = [e.payload["observation"] for e in store.read(left, types=("agent.step",))]
        at = lost_at(seen)
        assert at is not None
        assert table.fork_step[child] == at - 1
        told = next(e for e in store.read(child) if e.type == "run.backtracked")
    assert told.payload["evidence"] == "the board says so"
    assert table.exit_status.tolist()[:-1] == ["dead end predicted"] * (len(table) - 1)


def test_the_world_is_the_one_of_the_fork(store: SQLiteEventStore) -> None:
    boards: list[tuple[int, str]] = []

    def looking(change: Mapping[str, Any], seed: int) -> Agent:
        inner = carry_on(ScriptedWorker(WILD, seed))

        def agent(ctx: RunContext) -> Any:
            assert isinstance(ctx.world, CratesWorld)
            boards.append((len(ctx.steps()), ctx.world.board.text()))
            return inner(ctx)

        return agent

    result = go(store, agent_factory=looking)
    for (steps, board), run in zip(boards[1:], result.runs[1:], strict=True):
        kept = list(store.read(run, types=("agent.step",)))[:steps]
        assert kept[-1].payload["observation"].endswith(board)


def test_a_shadow_halts_nothing(store: SQLiteEventStore) -> None:
    result = go(store, policy=BacktrackPolicy(when="shadow", max_steps=60))
    assert result.runs == ["r"]
    assert types(store, "r").count("deadend.predicted") == 1
    assert types(store, "r")[-1] == "run.completed"
    assert result.outcome == "failure"


def test_attempts_and_steps_are_bounded(store: SQLiteEventStore) -> None:
    result = go(store, policy=BacktrackPolicy(max_backtracks=1, max_steps=200))
    assert len(result.runs) == 2
    other = SQLiteEventStore(":memory:")
    other.create_run(Run(run_id="r", config={"level": "medium-0"}))
    few = go(other, policy=BacktrackPolicy(max_backtracks=8, max_steps=12))
    assert few.steps <= 12
    assert few.steps == sum(few.table_.own_steps)


@pytest.mark.parametrize(
    ("where", "expected"), [("start", {None}), ("fixed", {2, 1, 0, None}), ("change-point", None)]
)
def test_where_it_goes_back_to(
    where: Any, expected: set[int | None] | None, store: SQLiteEventStore
) -> None:
    policy = BacktrackPolicy(where=where, back=2, max_backtracks=3, feedback="none", max_steps=90)
    result = go(store, policy=policy)
    forks = [e.payload for run in result.runs[1:] for e in store.read(run)
             if e.type == "run.backtracked"]  # fmt: skip
    assert forks
    for payload in forks:
        if where == "start":
            assert payload["fork_step"] is None
        if where == "fixed":
            assert payload["fork_step"] is None or payload["fork_step"] >= 0
    first = next(store.read(result.runs[1], store.get_run(result.runs[1]).fork_position + 1))
    assert "avoid" not in first.payload["change"]


def killed_at(store: SQLiteEventStore, type_: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the process die when an event of a type is about to be written."""
    plain = SQLiteEventStore.append_many

    def append_many(self: SQLiteEventStore, events: Any, **more: Any) -> Any:
        listed = list(events)
        if any(event.type == type_ for event in listed):
            raise KeyboardInterrupt
        return plain(self, listed, **more)

    with monkeypatch.context() as patch:
        patch.setattr(SQLiteEventStore, "append_many", append_many)
        with pytest.raises(KeyboardInterrupt):
            go(store)


@pytest.mark.parametrize("type_", ["deadend.predicted", "run.backtracked", "run.abandoned"])
def test_what_was_cut_off_goes_on_to_the_same_lineage(
    type_: str, store: SQLiteEventStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = SQLiteEventStore(":memory:")
    whole.create_run(Run(run_id="r", task_id="crates-medium-0", config={"level": "medium-0"}))
    expected = go(whole)
    killed_at(store, type_, monkeypatch)
    result = go(store)
    assert result.runs == expected.runs
    for run in result.runs:
        assert store.head(run).digest == whole.head(run).digest
    assert result.steps == expected.steps


def test_a_run_that_has_ended_is_told_again(store: SQLiteEventStore) -> None:
    first = go(store)
    head = store.last_seq()
    asked: list[Callable[..., Any]] = []

    def nobody(change: Mapping[str, Any], seed: int) -> Agent:
        asked.append(nobody)
        return carry_on(ScriptedWorker(WILD, seed))

    again = go(store, agent_factory=nobody)
    assert (again.runs, again.outcome) == (first.runs, first.outcome)
    assert (asked, store.last_seq()) == ([], head)


def test_limits_that_are_none() -> None:
    strange: list[dict[str, Any]] = [{"back": 0}, {"max_steps": 0}, {"max_backtracks": -1}]
    for wrong in strange:
        with pytest.raises(UsageError):
            BacktrackPolicy(**wrong)
