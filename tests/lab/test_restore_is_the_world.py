"""A restored world is the world: going on from a restore is as good as not having stopped.

Exactly: agents decide by their seed and the conversation alone, so with the same seed a run that
is carried on from any step in a restored world makes the same steps, bit for bit, and comes to
the same end. In distribution: with a fresh seed it succeeds as often. The second is tested in
pairs, a run and its continuation from a fork, which under the hypothesis are exchangeable: of the
pairs that differ, each order is equally likely (exact sign test, two-sided, alpha = 0.001, seeds
fixed, so that the test says the same each time). Its power, computed by ``power`` and asserted:

    store room   600 pairs, of which at most 30 in 100 differ: a success rate that is lower or
                 higher by 0.12 after a restore is found with probability 0.95 or more
    bugs          40 pairs, of which at most 45 in 100 differ: 0.43, with probability 0.80 or more
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any, NamedTuple

import numpy as np
import pytest
from scipy.stats import binom, binomtest

from sag_research.lab import bugfix, crates, export_job
from sag_research.log import SQLiteEventStore, canonical_digest
from sag_research.model import Outcome, Run
from sag_research.runtime import Agent, RunContext, World
from sag_research.runtime._experiment_context import state_at

ALPHA = 1e-3
STEPS = 30
"""Of a run in all, those before a fork included."""
CRATES = crates.Habits(name="shaky", clumsy=0.15, careless=0.1, blind=0.05, dither=0.05)


class Played(NamedTuple):
    """What was done after a step, and what it came to."""

    digests: list[str]
    outcome: str


class Bench(NamedTuple):
    """A world, and who works in it."""

    world: Callable[[Run], World]
    agent: Callable[[int], Agent]


def crates_bench() -> Bench:
    return Bench(
        lambda run: crates.CratesWorld(str(run.task_id)),
        lambda seed: crates.carry_on(crates.ScriptedWorker(CRATES, seed)),
    )


def bugfix_bench(*, remember: bool = False) -> Bench:
    return Bench(
        lambda run: bugfix.BugfixWorld(str(run.task_id), remember=remember),
        lambda seed: bugfix.carry_on(bugfix.ScriptedFixer("scripted-c", seed)),
    )


def export_bench() -> Bench:
    return Bench(
        lambda run: export_job.ExportJobWorld(str(run.task_id)),
        lambda seed: export_job.carry_on(
            export_job.Stochastic("hasty", seed), timeout=1.0, clock=lambda: 1.7e9
        ),
    )


def lived(
    store: SQLiteEventStore, bench: Bench, run: str, seed: int, *, restored: bool = True
) -> Played:
    """Live a run to its end; a fork in its parent's world, or, wrongly, in a fresh one."""
    record = store.get_run(run)
    with closing(bench.world(record)) as world:
        kept = record.fork_position
        if kept and restored:
            world.restore(state_at(store, run, kept, bench.world))
        left = STEPS - store.count_steps(run, kept + 1)
        with RunContext(
            store, run, world=world, seed=seed, max_steps=left, snapshots=True
        ) as ctx:  # fmt: skip
            said = bench.agent(seed)(ctx)
            own = [e for e in ctx.steps() if (e.position or 0) > kept]
    name = said.outcome if isinstance(said, Outcome) else str(said)
    return Played([canonical_digest(_timeless(e.payload)) for e in own], name)


def _timeless(payload: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in payload.items() if key not in ("started", "seconds")}


def begun(bench: Bench, task: str, seed: int) -> tuple[SQLiteEventStore, Played, list[int]]:
    """Live a run from beginning to end; returns the positions of its steps, too."""
    store = SQLiteEventStore(":memory:")
    store.create_run(Run(run_id="r", task_id=task))
    whole = lived(store, bench, "r", seed)
    return store, whole, [e.position or 0 for e in store.read("r", types=("agent.step",))]


def forked(
    store: SQLiteEventStore, bench: Bench, at: int, seed: int, *, restored: bool = True
) -> Played:
    """Go on from a step of the run ``r``, told nothing."""
    child = store.fork("r", at=at)
    return lived(store, bench, child.run_id, seed, restored=restored)


def check_exactly(bench: Bench, task: str, seed: int, every: int) -> int:
    store, whole, positions = begun(bench, task, seed)
    with store:
        for kept in range(1, len(positions), every):
            rest = forked(store, bench, positions[kept - 1], seed)
            assert rest == Played(whole.digests[kept:], whole.outcome), (task, seed, kept)
    return len(range(1, len(positions), every))


# ------------------------------------------------------------------ exactly


def test_the_store_room_goes_on_exactly() -> None:
    names = [one.name for one in crates.levels()]
    forks = sum(check_exactly(crates_bench(), task, seed, 2) for task in names for seed in (1,))
    assert forks > 70


BUGS = (
    "acme__billing-104", "fenwick__ledger-23", "heron__planner-71", "kestrel__logscan-7",
    "lumen__confkit-3", "quarry__textindex-18",
)  # fmt: skip


def test_the_bugs_go_on_exactly() -> None:
    """Every program is really run again: nothing is remembered here."""
    forks = sum(check_exactly(bugfix_bench(), task, 3, 5) for task in BUGS[:3])
    assert forks >= 5


def test_the_bugs_go_on_exactly_also_where_programs_are_remembered() -> None:
    bench = bugfix_bench(remember=True)
    forks = sum(check_exactly(bench, task, seed, 2) for task in BUGS for seed in (4,))
    assert forks > 20


@pytest.mark.parametrize("scenario", export_job.scenario_names()[:3])
def test_the_export_job_goes_on_exactly(scenario: str) -> None:
    assert check_exactly(export_bench(), scenario, 5, 2) >= 1


def test_a_world_that_is_not_restored_is_noticed() -> None:
    """The comparison can fail: in a fresh world the same agent does something else."""
    for bench, task, seed in (
        (crates_bench(), "medium-0", 1), (bugfix_bench(remember=True), BUGS[0], 4),
    ):  # fmt: skip
        store, whole, positions = begun(bench, task, seed)
        with store:
            differ = [
                forked(store, bench, at, seed, restored=False).digests != whole.digests[kept:]
                for kept, at in enumerate(positions[:-1], 1)
            ]
        assert any(differ)


# ------------------------------------------------------------------ in distribution


def pairs(bench: Bench, tasks: list[str], n: int, least: int) -> Iterator[tuple[bool, bool]]:
    """Play runs, and each again from about its middle with another seed; yields both successes.

    The step to go back to is drawn from the run's number, not from how long the run became: a
    run that had ended by then came to what it came to, whoever goes on.
    """
    for number in range(n):
        store, whole, positions = begun(bench, tasks[number % len(tasks)], 10_000 + number)
        kept, again = least + number % 4, whole
        with store:
            if kept < len(positions):
                again = forked(store, bench, positions[kept - 1], 20_000 + number)
        yield _good(whole), _good(again)


def _good(played: Played) -> bool:
    return played.outcome in ("True", "success")


def power(n: int, differ: float, shift: float, alpha: float = ALPHA) -> float:
    """Probability that the sign test finds a difference of success rates.

    Parameters
    ----------
    n : int
        Pairs.
    differ : float
        Share of pairs whose outcomes differ.
    shift : float
        Difference of the success rates, at most ``differ``.
    alpha : float
    """
    one_way = (differ + shift) / (2 * differ)
    m = np.arange(1, n + 1)
    edge = binom.ppf(alpha / 2, m, 0.5)
    edge -= binom.cdf(edge, m, 0.5) > alpha / 2  # the most of one kind that is still rejected
    tails = binom.cdf(edge, m, one_way) + binom.sf(m - edge - 1, m, one_way)
    return float(np.sum(binom.pmf(m, n, differ) * tails))


def check_distribution(both: list[tuple[bool, bool]], most: float) -> None:
    better = sum(after and not before for before, after in both)
    worse = sum(before and not after for before, after in both)
    assert 0.05 * len(both) < better + worse <= most * len(both)  # what the power was computed for
    assert binomtest(better, better + worse, 0.5).pvalue > ALPHA


def test_the_store_room_is_left_as_often_solved() -> None:
    assert power(600, 0.30, 0.12) >= 0.95
    names = [one.name for one in crates.levels() if one.difficulty != "hard"]
    check_distribution(list(pairs(crates_bench(), names, 600, 2)), 0.30)


def test_the_bugs_are_repaired_as_often() -> None:
    assert power(40, 0.45, 0.43) >= 0.80
    tasks = list(bugfix.task_ids()[::16])
    check_distribution(list(pairs(bugfix_bench(remember=True), tasks, 40, 3)), 0.45)


def test_power_is_the_size_of_the_test_without_a_difference() -> None:
    assert 0 < power(600, 0.30, 0.0) <= ALPHA
    assert power(600, 0.30, 0.12) > power(200, 0.30, 0.12)
