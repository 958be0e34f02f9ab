"""Forking at a step, going on in arms, and counting how that went."""

from __future__ import annotations

import asyncio
import math
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections import Counter as Count
from pathlib import Path
from typing import Any

import matplotlib
import pytest
from matplotlib import pyplot

import sag_research
from sag_research.errors import BadPayloadError, SagError, UsageError
from sag_research.llm import Reply, Scripted
from sag_research.log import SQLiteEventStore
from sag_research.model import WORKSPACE_RUN, Event, Outcome, Run, Usage
from sag_research.runtime import (
    Arm,
    Experiment,
    ExperimentResult,
    RunContext,
    RunEndedError,
    World,
    diff,
    lineage,
)
from sag_research.runtime._arms import give_up, seed_of
from sag_research.runtime._experiment_result import Continuation
from tests.runtime.experiment_agents import (
    Counter,
    StillCounter,
    bugfix_agent,
    bugfix_outcome,
    bugfix_world,
    counting_agent,
    counting_parent,
    hanging_experiment,
    record_bugfix_run,
    unwritable_agent,
)

matplotlib.use("agg")
ROOT = Path(__file__).parents[2]
Arms = dict[str, dict[str, Any]]


@pytest.fixture
def store(tmp_path: Path) -> SQLiteEventStore:
    store = SQLiteEventStore(tmp_path / "log.sqlite")
    counting_parent(store)
    return store


def counting(store: SQLiteEventStore, arms: Arms, **more: Any) -> Experiment:
    options: dict[str, Any] = {"step": 1, "repeats": 3, "agent_factory": counting_agent}
    options |= {"world_factory": Counter, **more}
    return Experiment(store, options.pop("run", "p"), arms=arms, **options)


def children(store: SQLiteEventStore) -> list[Run]:
    return [run for run in store.runs() if run.parent_id is not None]


def terminals(store: SQLiteEventStore, run: Run) -> list[str]:
    own = run.fork_position + 1
    wanted = {"run.completed", "run.failed", "run.abandoned", "run.cancelled"}
    return [event.type for event in store.read(run.run_id, own, types=wanted)]


# ---- design


def test_every_arm_and_repeat_is_carried_out_once(store: SQLiteEventStore) -> None:
    # after step 1 the world stands at 1 + 2; twice +1 is 5, twice +2 is 7, and above 5 is success
    result = counting(store, {"a": {"add": 1}, "b": {"add": 2}}).run()
    assert Count((run.arm, run.status) for run in result.runs) == {
        ("a", "failure"): 3,
        ("b", "success"): 3,
    }
    assert len(children(store)) == 6
    table = result.table_.set_index("arm")
    assert table.loc["b", ["n", "success", "failure", "crashed", "unknown"]].tolist() == [
        3, 3, 0, 0, 0,
    ]  # fmt: skip
    assert table.loc["b", "low"] == pytest.approx(3 / (3 + 3.8414588206941254))
    difference = result.differences_.set_index("measure").loc["success"]
    assert difference[["n_pairs", "n_left_out", "difference"]].tolist() == [3, 0, 1.0]
    assert store.verify().ok


def test_repeats_share_their_seed_over_arms_and_chance_follows_it(store: SQLiteEventStore) -> None:
    drawn: dict[tuple[str, int], float] = {}

    def tossing(change: dict[str, Any], seed: int) -> Any:
        def agent(ctx: RunContext) -> None:
            drawn[ctx.arm, ctx.repeat] = ctx.random()

        return agent

    result = counting(store, {"a": {}, "b": {"add": 1}}, agent_factory=tossing).run()
    seeds = {(run.arm, run.repeat): run.seed for run in result.runs}
    for values in (drawn, seeds):
        assert [values["a", i] for i in range(3)] == [values["b", i] for i in range(3)]  # type: ignore[index]
        assert len({values["a", i] for i in range(3)}) == 3  # type: ignore[index]


def test_a_fork_costs_its_own_events_and_says_what_was_changed(store: SQLiteEventStore) -> None:
    before = store.last_seq()
    result = counting(store, {"a": {"add": 2}}, repeats=1).run()
    run = result.runs[0]
    own = list(store.read(run.run_id, run.fork_position + 1))
    assert [event.type for event in own] == [
        "run.forked", "agent.step", "agent.step", "run.completed",
    ]  # fmt: skip
    assert store.last_seq() - before - len(own) == 2  # @workspace and the outcome on it
    assert own[0].payload == {
        "experiment": result.experiment, "arm": "a", "repeat": 0, "seed": run.seed,
        "change": {"add": 2},
    }  # fmt: skip
    assert [event.payload["observation"] for event in own[1:3]] == ["5", "7"]
    said = list(store.read(WORKSPACE_RUN, types=("outcome.recorded",)))
    assert [event.payload for event in said] == [
        {"run": run.run_id, "outcome": "success", "source": "experiment"}
    ]
    assert len(lineage(store, "p")) == 2


def test_arms_may_have_agents_of_their_own(store: SQLiteEventStore) -> None:
    def other(change: Any, seed: int) -> Any:
        return lambda ctx: Outcome(outcome="success", score=0.5)

    arms = {"a": Arm({"add": 1}), "b": Arm({}, other)}
    result = Experiment(
        store, "p", step=1, arms=arms, repeats=1, agent_factory=counting_agent,
        world_factory=Counter,
    ).run()  # fmt: skip
    assert [(run.status, run.score) for run in result.runs] == [("failure", None), ("success", 0.5)]


def test_bad_designs_are_refused(store: SQLiteEventStore) -> None:
    store.append(Event(run_id="p", type="run.completed"))
    bad: list[tuple[dict[str, Any], str]] = [
        ({"step": None}, "one place"),
        ({"at": 2}, "one place"),
        ({"step": None, "at": 99}, "no position 99"),
        ({"step": 9}, "no step 9"),
        ({"step": None, "at": 6}, "has ended at position 6"),
        ({"repeats": 0}, "repeats"),
        ({"agent_factory": None}, "no agent"),
        ({"run": [("p", 1), ("p", 1)], "step": None}, "each once"),
        ({"run": [("p", 1)]}, "a step each"),
    ]
    for options, message in bad:
        with pytest.raises(UsageError, match=message):
            counting(store, {"a": {}}, **options)
    with pytest.raises(UsageError, match="at least one arm"):
        counting(store, {})
    with pytest.raises(BadPayloadError):
        counting(store, {"a": {"x": {1}}})
    no_arm: Any = 5
    with pytest.raises(UsageError, match="5 is no arm"):
        counting(store, {"a": no_arm})
    assert children(store) == []


def test_plan_divides_repeats_over_the_forks(store: SQLiteEventStore) -> None:
    one = counting(store, {"a": {}, "b": {}}).plan(0.1)
    assert (one.repeats, one.repeats_for_difference, one.continuations) == (93, 193, 186)
    counting_parent(store, "q", "t2")
    two = counting(store, {"a": {}, "b": {}}, run=[("p", 1), ("q", 0)], step=None).plan(0.1)
    assert (two.repeats, two.repeats_for_difference, two.continuations) == (47, 97, 188)


# ---- worlds


@pytest.mark.parametrize(("step", "value"), [(0, 1), (1, 3), (2, 6)])
def test_the_world_is_what_it_was(store: SQLiteEventStore, step: int, value: int) -> None:
    """From the snapshot after step 0, and by replaying the steps after it."""
    result = counting(store, {"a": {"add": 10}}, step=step, repeats=1).run()
    first = next(store.read(result.runs[0].run_id, result.runs[0].fork_position + 2))
    assert first.payload["observation"] == str(value + 10)


def test_without_any_snapshot_all_is_replayed() -> None:
    store = SQLiteEventStore(":memory:")
    store.create_run(Run(run_id="q"))
    for text, seen in (("4", "4"), ("5", "9")):
        payload = {"action": text, "observation": seen}
        store.append(Event(run_id="q", type="agent.step", payload=payload))
    result = counting(store, {"a": {"add": 1}}, run="q", repeats=1).run()
    first = next(store.read(result.runs[0].run_id, 5))
    assert first.payload["observation"] == "10"


def test_a_world_that_answers_otherwise_is_not_the_runs(store: SQLiteEventStore) -> None:
    payload = {"action": "1", "observation": "1000"}
    store.append(Event(run_id="p", type="agent.step", payload=payload))
    with pytest.raises(SagError, match="answers otherwise at step 3"):
        counting(store, {"a": {}}, step=3).run()
    assert children(store) == []


def test_a_world_that_cannot_act_needs_a_snapshot(store: SQLiteEventStore) -> None:
    assert isinstance(StillCounter(), World)
    with pytest.raises(UsageError, match="no snapshot of it after step 1"):
        counting(store, {"a": {}}, world_factory=StillCounter).run()


def test_a_snapshot_of_a_step_that_the_fork_does_not_see_is_not_used() -> None:
    store = SQLiteEventStore(":memory:")
    store.create_run(Run(run_id="q"))
    world = Counter()
    with RunContext(store, "q", world=world, snapshots=True) as ctx:
        ctx.step("", "1", world.act("1"))  # positions 2 (snapshot) and 3
        ctx.step("", "2", world.act("2"))  # positions 4 and 5
    result = counting(store, {"a": {"add": 0}}, run="q", step=None, at=4, repeats=1).run()
    assert next(store.read(result.runs[0].run_id, 6)).payload["observation"] == "1"


def test_continuations_can_be_forked_again_by_their_snapshots(store: SQLiteEventStore) -> None:
    first = counting(store, {"a": {"add": 1}}, repeats=1, snapshots=True).run().runs[0]
    again = counting(
        store, {"b": {"add": 100}}, run=first.run_id, step=3, repeats=1, world_factory=Counter
    ).run()
    own = next(store.read(again.runs[0].run_id, again.runs[0].fork_position + 2))
    assert own.payload["observation"] == "105"  # 1 + 2, then 1 + 1
    assert lineage(store, "p").runs[-1].depth == 2


def test_worlds_are_closed_also_after_a_crash(store: SQLiteEventStore) -> None:
    made: list[Counter] = []

    def world(run: Run) -> Counter:
        made.append(Counter())
        return made[-1]

    counting(store, {"a": {}, "b": {"raise": True}}, world_factory=world).run()
    assert len(made) == 7  # one replayed step 1, six were lived in
    assert all(one.closed for one in made)


# ---- intention to treat


def test_crashes_and_silence_are_counted_as_what_they_are(store: SQLiteEventStore) -> None:
    arms: Arms = {"good": {"add": 2}, "crash": {"raise": True}, "silent": {"silent": True}}
    result = counting(store, arms).run()
    table = result.table_.set_index("arm")
    counts = table[["n", "success", "failure", "crashed", "unknown"]]
    assert counts.loc["good"].tolist() == [3, 3, 0, 0, 0]
    assert counts.loc["crash"].tolist() == [3, 0, 0, 3, 0]
    assert counts.loc["silent"].tolist() == [3, 0, 0, 0, 3]
    assert table.loc["crash", "rate"] == 0.0  # started and no success
    assert math.isnan(table.loc["silent", "rate"])  # unknown is never failure
    ends = ["rate_if_unknown_failed", "rate_if_unknown_succeeded"]
    assert table.loc["silent", ends].tolist() == [0.0, 1.0]
    success = result.differences_.query("measure == 'success'").set_index("arm")
    assert success.loc["crash", ["n_pairs", "n_left_out", "difference"]].tolist() == [3, 0, -1.0]
    assert success.loc["silent", ["n_pairs", "n_left_out"]].tolist() == [0, 3]
    crashed = next(run for run in result.runs if run.arm == "crash")
    end = list(store.read(crashed.run_id))[-1]
    assert (end.type, end.payload["exit_status"]) == ("run.failed", "crashed")
    assert "ValueError: lost its" in end.payload["error"]
    said = [e.payload for e in store.read(WORKSPACE_RUN) if e.payload.get("run") == crashed.run_id]
    assert said == [{"run": crashed.run_id, "outcome": "unknown", "detail": "crashed",
                     "source": "experiment"}]  # fmt: skip
    # a crash is an end: nothing is carried out again
    assert len(counting(store, arms).run().runs) == len(children(store)) == 9


def test_endless_agents_are_stopped_and_judged(store: SQLiteEventStore) -> None:
    result = counting(store, {"a": {"loop": True}}, repeats=1, max_steps=4,
                      outcome=lambda ctx: ctx.world.value == 7).run()  # fmt: skip
    run = result.runs[0]
    assert (run.steps, run.status, run.exit_status) == (4, "success", "steps exhausted")
    assert [e.payload for e in store.read(run.run_id, types=("budget.exhausted",))] == [
        {"budget": "steps", "limit": 4}
    ]


def test_later_labels_count(store: SQLiteEventStore) -> None:
    experiment = counting(store, {"a": {"silent": True}}, repeats=1)
    run = experiment.run().runs[0]
    assert run.status == "unknown"
    payload = {"run": run.run_id, "outcome": "success", "source": "reviewer"}
    store.append(Event(run_id=WORKSPACE_RUN, type="outcome.recorded", payload=payload))
    assert experiment.result().runs[0].status == "success"


def made(arm: str, repeat: int, status: str, task: str = "t", steps: int = 1) -> Continuation:
    return Continuation(
        run_id=f"{task}{arm}{repeat}", parent_id=task, fork_position=1, task_id=task, arm=arm,
        repeat=repeat, seed=repeat, status=status, exit_status=None, detail=None, score=None,
        steps=steps, tokens=None, cost_usd=None, attempts=1,
    )  # fmt: skip


def test_differences_are_paired_by_repeat_and_clustered_by_task() -> None:
    runs = [
        # task t: repeat 0 gains, 1 is equal; task u: both equal
        made("a", 0, "failure"), made("b", 0, "success", steps=4),
        made("a", 1, "success"), made("b", 1, "success", steps=2),
        made("a", 0, "success", "u"), made("b", 0, "success", "u"),
        made("a", 1, "crashed", "u"), made("b", 1, "failure", "u"),
        made("b", 2, "success", "u"),  # has no partner
    ]  # fmt: skip
    table = ExperimentResult("x", ["a", "b"], runs, 10).differences_.set_index("measure")
    success = table.loc["success"]
    assert success[["n_pairs", "n_tasks", "difference"]].tolist() == [4, 2, 0.25]
    # the two tasks' means are 0.5 and 0; t with one degree of freedom is 12.7, and 1 the most
    assert (success["low"], success["high"], success["note"]) == (-1.0, 1.0, "")
    assert table.loc["steps", "difference"] == 1.0
    assert table.loc["tokens", ["n_pairs", "n_left_out"]].tolist() == [0, 4]


def test_only_the_family_is_looked_through(
    store: SQLiteEventStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(20):
        store.create_run(Run(run_id=f"stranger-{number}"))
    asked: list[str] = []
    family = SQLiteEventStore.family
    monkeypatch.setattr(SQLiteEventStore, "runs", None)
    monkeypatch.setattr(
        SQLiteEventStore, "family", lambda self, run: asked.append(run) or family(self, run)
    )
    result = counting(store, {"a": {}, "b": {}}, run=[("p", 1), ("p", 0)], step=None).run()
    assert len(result.runs) == 12
    assert set(asked) == {"p"}  # two forks, one family
    assert len(lineage(store, "p")) == 13


def test_results_are_shown(store: SQLiteEventStore) -> None:
    result = counting(store, {"<a>": {}, "$b$": {"silent": True}}, repeats=1, name="<x>").run()
    assert repr(result) == "ExperimentResult('<x>', 2 arms, 2 of 2 continuations, 1 tasks)"
    html = result._repr_html_()
    assert "<a>" not in html
    assert "&lt;a&gt;" in html
    assert list(result.runs_.columns) == list(Continuation.__struct_fields__)
    axes = pyplot.subplots()[1]
    assert result.plot(axes) is axes
    axes.figure.canvas.draw()
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels == ["<a> (n=1)", "$b$ (n=0)"]
    assert [line.get_xdata() for line in axes.lines][1] == [0.0]
    result.plot()
    pyplot.close("all")


# ---- going on after an interruption


def test_more_repeats_and_arms_only_add(store: SQLiteEventStore) -> None:
    counting(store, {"a": {}}, repeats=2).run()
    before = {run.run_id for run in children(store)}
    result = counting(store, {"a": {}, "b": {"add": 2}}, repeats=3).run()
    assert len(result.runs) == 6
    assert before < {run.run_id for run in result.runs}
    # what an arm changes is part of it
    assert len(counting(store, {"a": {"add": 5}}, repeats=2).run().runs) == 2
    assert len(children(store)) == 8


def test_an_interrupt_leaves_a_half_run_that_is_given_up_and_done_again(
    store: SQLiteEventStore,
) -> None:
    def interrupting(change: Any, seed: int) -> Any:
        def agent(ctx: RunContext) -> bool:
            ctx.step("", "1", "")
            if ctx.repeat == 1 and not children_ended:
                raise KeyboardInterrupt
            return True

        return agent

    children_ended: list[int] = []
    experiment = counting(store, {"a": {}}, agent_factory=interrupting)
    with pytest.raises(KeyboardInterrupt):
        experiment.run()
    assert [terminals(store, run) for run in children(store)] == [["run.completed"], []]
    assert [run.status for run in experiment.result().runs] == ["success", "unknown"]
    children_ended.append(1)
    result = experiment.run()
    assert [(run.status, run.attempts) for run in result.runs] == [
        ("success", 1), ("success", 2), ("success", 1),
    ]  # fmt: skip
    ends = Count(end for run in children(store) for end in terminals(store, run))
    assert ends == {"run.completed": 3, "run.abandoned": 1}


def test_a_run_that_was_given_up_takes_no_more_steps_and_no_outcome(
    store: SQLiteEventStore,
) -> None:
    """The process that was taken for dead still lives."""

    def slow(change: Any, seed: int) -> Any:
        def agent(ctx: RunContext) -> bool:
            ctx.step("", "1", "")
            if ctx.repeat == 0 and len(children(store)) == 1:
                give_up(store, ctx.run_id)  # what another process would do
                with pytest.raises(RunEndedError):
                    ctx.step("", "2", "")
            return True

        return agent

    result = counting(store, {"a": {}}, repeats=1, agent_factory=slow).run()
    first, second = children(store)
    assert terminals(store, first) == ["run.abandoned"]
    assert terminals(store, second) == ["run.completed"]
    assert [run.run_id for run in result.runs] == [second.run_id]
    assert len(list(store.read(WORKSPACE_RUN, types=("outcome.recorded",)))) == 1


def test_a_killed_process_costs_one_attempt(store: SQLiteEventStore, tmp_path: Path) -> None:
    arms: Arms = {"a": {"kill_once": str(tmp_path / "killed")}, "b": {"add": 2}}
    experiment = counting(store, arms, repeats=4)
    result = experiment.run(jobs=2)
    assert Count(run.arm for run in result.runs) == {"a": 4, "b": 4}
    attempts = {(run.arm, run.repeat): run.attempts for run in result.runs}
    assert attempts.pop(("a", 1)) == 2
    assert set(attempts.values()) == {1}
    assert [run.status for run in result.runs if run.arm == "b"] == ["success"] * 4
    before = store.last_seq()
    assert experiment.run(jobs=2).runs == result.runs
    assert store.last_seq() == before


def test_what_always_kills_its_process_counts_as_crashed(store: SQLiteEventStore) -> None:
    result = counting(store, {"a": {"kill": 0}, "b": {}}, repeats=2).run(jobs=2)
    lost = next(run for run in result.runs if (run.arm, run.repeat) == ("a", 0))
    assert (lost.status, lost.exit_status, lost.attempts) == ("crashed", "interrupted", 3)
    assert result.table_["n"].tolist() == [2, 2]


def test_an_experiment_goes_on_after_all_its_processes_were_killed(
    store: SQLiteEventStore, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    command = [sys.executable, "-m", "tests.runtime.experiment_agents", store.path, str(gate)]
    process = subprocess.Popen(command, cwd=ROOT, start_new_session=True)
    try:
        for _ in range(300):  # until one continuation hangs
            if gate.exists() or process.poll() is not None:
                break
            threading.Event().wait(0.1)
        assert gate.exists()
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    half = [run for run in children(store) if not terminals(store, run)]
    assert half
    result = hanging_experiment(store.path, str(gate)).run(jobs=2)
    assert Count(run.arm for run in result.runs) == {"a": 4, "b": 4}
    ends = Count(end for run in children(store) for end in terminals(store, run))
    assert ends == {"run.completed": 8, "run.abandoned": len(half)}
    assert store.verify().ok


def test_what_another_process_cannot_import_is_refused(store: SQLiteEventStore) -> None:
    with pytest.raises(UsageError, match="outcome cannot be taken"):
        counting(store, {"a": {}}, outcome=lambda ctx: True).run(jobs=2)
    memory = SQLiteEventStore(":memory:")
    counting_parent(memory)
    with pytest.raises(UsageError, match="in memory"):
        counting(memory, {"a": {}}).run(jobs=2)
    assert children(store) == []


def test_a_log_that_cannot_be_written_stops_the_experiment(store: SQLiteEventStore) -> None:
    with pytest.raises(SagError, match="could not be written"):
        counting(store, {"a": {}}, agent_factory=unwritable_agent).run(jobs=2)


def test_no_process_is_left(store: SQLiteEventStore) -> None:
    counting(store, {"a": {}, "b": {}}).run(jobs=2)
    assert multiprocessing.active_children() == []
    with pytest.raises(UsageError, match="processes"):
        counting(store, {"a": {}}).run(jobs=0)


# ---- several tasks, models, and the other rooms


def test_several_tasks_are_the_clusters(store: SQLiteEventStore) -> None:
    counting_parent(store, "q", "u")
    runs = [("p", 1), ("q", 2)]  # the worlds stand at 3 and 6
    result = counting(store, {"a": {}, "b": {"add": 2}}, run=runs, step=None).run()
    assert Count((run.task_id, run.arm, run.status) for run in result.runs) == {
        ("t", "a", "failure"): 3, ("t", "b", "success"): 3,
        ("u", "a", "success"): 3, ("u", "b", "success"): 3,
    }  # fmt: skip
    success = result.differences_.set_index("measure").loc["success"]
    assert success[["n_pairs", "n_tasks", "difference", "low", "high"]].tolist() == [
        6, 2, 0.5, -1.0, 1.0,
    ]  # fmt: skip
    assert len({run.seed for run in result.runs}) == 6  # another for every parent and repeat
    assert seed_of(7, "p", 3, 0) != seed_of(7, "q", 3, 0)


def test_agents_ask_models_on_behalf_of_their_run(store: SQLiteEventStore) -> None:
    def asking(change: Any, seed: int) -> Any:
        answer = Reply(text="yes", usage=Usage(tokens_in=7, tokens_out=2))

        def agent(ctx: RunContext) -> bool:
            model = Scripted([answer, answer])
            said = [ctx.llm(model, f"{change['prompt']}?").text for _ in range(2)]
            ctx.step("asked", "", " ".join(map(str, said)))
            return True

        return agent

    arms: Arms = {"a": {"prompt": "Is it"}, "b": {"prompt": "Really"}}
    result = counting(store, arms, agent_factory=asking, world_factory=None, repeats=1).run()
    assert [(run.steps, run.tokens, run.cost_usd) for run in result.runs] == [(1, 18, None)] * 2
    own = [event.type for event in store.read(result.runs[0].run_id, 4)]
    assert own.count("llm.responded") == 2


def test_a_workspace_sees_what_the_experiment_found(tmp_path: Path) -> None:
    with sag_research.open(tmp_path / "study") as ws:
        counting_parent(ws.store)
        result = Experiment(
            ws, "t", step=1, arms={"a": {"raise": True}, "b": {"add": 2}}, repeats=2,
            world_factory=Counter, agent_factory=counting_agent,
        ).run()  # fmt: skip
        query = """
            SELECT run_id, outcome, detail, exit_status, n_steps, tokens_in FROM runs
            WHERE parent_id IS NOT NULL ORDER BY seq"""
        assert ws.sql(query).rows() == [
            (run.run_id, "unknown", "crashed", "crashed", 1, None) if run.arm == "a"
            else (run.run_id, "success", None, "completed", 2, None)
            for run in result.runs
        ]  # fmt: skip


# ---- the real world


def test_back_to_before_the_wrong_edit(tmp_path: Path) -> None:
    """A hasty policy failed by a wrong edit; the same and a less hasty one go on from before it."""
    store = SQLiteEventStore(tmp_path / "log.sqlite")
    assert record_bugfix_run(store, "lost", "lumen__confkit-3", seed=5) is False
    actions = [e.payload["action"] for e in store.read("lost", types=("agent.step",))]
    wrong = next(i for i, action in enumerate(actions) if "editor str_replace" in action)
    before, size = store.last_seq(), store.head("lost").position
    arms: Arms = {"same policy": {}, "less hasty policy": {"haste": 0.01, "bait": -4.0}}
    experiment = Experiment(
        store, "lost", step=wrong - 1, arms=arms, repeats=4, world_factory=bugfix_world,
        agent_factory=bugfix_agent, outcome=bugfix_outcome, max_steps=30,
    )  # fmt: skip
    result = experiment.run(jobs=2)
    assert Count(run.arm for run in result.runs) == dict.fromkeys(arms, 4)
    assert {run.status for run in result.runs} == {"success", "failure"}
    seeds = {arm: [run.seed for run in result.runs if run.arm == arm] for arm in arms}
    assert seeds["same policy"] == seeds["less hasty policy"]
    # who looks before it submits takes more steps
    steps = result.differences_.set_index("measure").loc["steps"]
    assert (steps["difference"] > 0, steps["note"]) == (True, "one task: no interval")
    assert store.head("lost").position == size
    own = sum(kin.n_events for kin in lineage(store, "lost").runs[1:])
    assert store.last_seq() - before == own + 1 + 8  # @workspace, and an outcome each
    parent, child = "lost", result.runs[0].run_id
    assert diff(store, parent, child).shared == result.runs[0].fork_position == 2 * wrong + 1
    for run in result.runs:
        assert run.tokens == 110 * run.steps
        assert run.cost_usd == pytest.approx(0.001 * run.steps)
    assert store.verify().ok


def test_an_agent_that_ends_the_program_ends_its_continuation_alone(
    store: SQLiteEventStore,
) -> None:
    def leaving(change: dict[str, Any], seed: int) -> Any:
        def agent(ctx: Any) -> bool:
            if change.get("leave"):
                sys.exit(0)
            return True

        return agent

    arms: Arms = {"leaves": {"leave": True}, "stays": {}}
    result = counting(store, arms, repeats=1, agent_factory=leaving).run()
    assert [run.status for run in result.runs] == ["crashed", "success"]
    end = list(store.read(result.runs[0].run_id))[-1]
    assert "sys.exit(0)" in end.payload["error"]


def test_an_agent_may_be_asynchronous(store: SQLiteEventStore) -> None:
    def later(change: dict[str, Any], seed: int) -> Any:
        async def agent(ctx: Any) -> bool:
            await asyncio.sleep(0)
            ctx.step("wait", "wait", "")
            return True

        return agent

    result = counting(store, {"a": {}}, repeats=2, agent_factory=later).run()
    assert [(run.status, run.steps) for run in result.runs] == [("success", 1)] * 2
