"""Make runs of a synthetic world, with the truth beside them."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from sag_research.deadend import Prefixes, StepTable
from sag_research.errors import UsageError
from sag_research.lab.synthetic._extras import entities, texts
from sag_research.lab.synthetic._length import Length
from sag_research.lab.synthetic._memory import Memory
from sag_research.lab.synthetic._traps import Traps
from sag_research.lab.synthetic._world import Draw, Floats, Ints, World, draw

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["WORLDS", "SyntheticSet", "generate", "parameters", "world_of"]

WORLDS = ("traps", "memory", "length")
FAMILIES = 10


@dataclass(frozen=True, eq=False, repr=False)
class SyntheticSet:
    """Runs whose probability of failure is known after every step.

    Attributes
    ----------
    prefixes : Prefixes
        The runs. Column ``repo`` of ``prefixes.runs`` is the task's family.
    truth : ndarray of float64, shape (n_steps,)
        P(fail | tokens so far, still running) after each step, by row of ``prefixes.table``. At a
        run's last step: given all its tokens and that it ended there.
    lost_at : ndarray of int64, shape (n_runs,)
        Step (0-based) at which the run was lost. `traps`: for a failed run that ended in the trap,
        the step of its last entry, from which it never came back. `memory`: for a failed run that
        chose the wrong file, the step of the choice. -1 where no step lost the run: successes,
        budgets used up outside the trap, failures in spite of the right choice, all of `length`.
    hidden : DataFrame
        What nobody could see, one row a run: ``difficulty``, and by world ``habit last_state
        ending`` or ``choice``.
    world : str
    seed : int
    shift : float

    Examples
    --------
    >>> made = generate("traps", tasks=50, runs=4, seed=1)
    >>> made
    SyntheticSet('traps', 200 runs, 50 tasks, 76 failed, seed=1, shift=0)
    >>> len(made.truth) == len(made.prefixes.table)
    True
    """

    prefixes: Prefixes
    truth: Floats
    lost_at: Ints
    hidden: pd.DataFrame
    world: str
    seed: int
    shift: float

    def __repr__(self) -> str:
        p = self.prefixes
        return (
            f"SyntheticSet({self.world!r}, {len(p)} runs, {p.runs['task_id'].nunique()} tasks, "
            f"{int(p.failed.sum())} failed, seed={self.seed}, shift={self.shift:g})"
        )


@cache
def parameters() -> Mapping[str, Any]:
    """Return the worlds' parameters, as they stand in ``worlds.toml``."""
    text = files("sag_research.lab.synthetic").joinpath("worlds.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


@cache
def world_of(name: str, shift: float = 0.0) -> World:
    """Return a world by its name.

    Raises
    ------
    UsageError
        If there is no such world, or it knows no shift.
    """
    if name not in WORLDS:
        raise UsageError(f"no world {name!r}", fix=f"one of {', '.join(WORLDS)}")
    if shift and name != "traps":
        raise UsageError(f"world {name!r} knows no shift of tasks", fix="choose 'traps'")
    share = parameters()["difficulty"]["share"]
    if name == "traps":
        return Traps(parameters()[name], share, shift)
    return (
        Memory(parameters()[name], share) if name == "memory" else Length(parameters()[name], share)
    )


def generate(
    world: str,
    tasks: int = 500,
    runs: int = 4,
    seed: int = 0,
    shift: float = 0.0,
    text: bool = False,
) -> SyntheticSet:
    """Make runs of a synthetic world, with P(fail | prefix) after each step.

    Parameters
    ----------
    world : {"traps", "memory", "length"}
        Progress, detours and traps; an early choice that decides late; duration alone.
    tasks, runs : int
        Number of tasks, and of runs of each.
    seed : int
        The same seed gives the same set.
    shift : float
        How far the families of tasks differ (`traps` only): 0 not at all, 1 as the parameters
        say. Group by ``repo`` to test on families that were not trained on.
    text : bool
        Whether the steps have texts, made from their tokens and the task's file names.

    Returns
    -------
    SyntheticSet

    Examples
    --------
    >>> made = generate("length", tasks=3, runs=2)
    >>> made.lost_at.tolist()
    [-1, -1, -1, -1, -1, -1]
    """
    if tasks < 1 or runs < 1:
        raise UsageError(f"cannot make {tasks} tasks of {runs} runs", fix="at least 1 of each")
    made = world_of(world, float(shift))
    rng = np.random.default_rng([WORLDS.index(world), seed])
    hard = parameters()["difficulty"]
    difficulty = draw(rng, np.array(hard["share"]), tasks)
    family = rng.permutation(np.arange(tasks) % FAMILIES)
    task = np.repeat(np.arange(tasks), runs)
    simulated = made.simulate(rng, Draw(difficulty[task], family[task]))
    there = simulated.tokens >= 0
    stop = np.cumsum(there.sum(axis=1))
    start = stop - there.sum(axis=1)
    table = _table(made.names, rng, simulated.tokens[there], np.repeat(task, stop - start), text)
    frame = pd.DataFrame(
        {
            "run_id": [f"{world}-{seed}-{i // runs:04d}~{i % runs}" for i in range(len(task))],
            "task_id": [f"task-{k:04d}" for k in task],
            "attempt": np.arange(len(task)) % runs,
            "dataset": f"synthetic-{world}",
            "repo": [f"family-{f}" for f in family[task]],
            "outcome": np.where(simulated.failed, "failure", "success"),
        }
    )
    named = [hard["names"][d] for d in difficulty[task]]
    return SyntheticSet(
        Prefixes.of(frame, start, stop, table),
        made.truth(simulated.tokens)[there],
        simulated.lost_at,
        pd.DataFrame({"difficulty": named, **simulated.hidden}),
        world,
        seed,
        float(shift),
    )


def _table(
    names: tuple[str, ...], rng: np.random.Generator, tokens: Ints, task: Ints, text: bool
) -> StepTable:
    """Return the steps, their entities, and their texts if asked for."""
    parts = [(v, o, r) for v, o, r in (name.split("|") for name in names)]
    found = entities(rng, parts, tokens, task)
    columns: pa.Table | None = None
    if text:
        import pyarrow as pa

        columns = pa.table(texts(rng, parts, tokens, task))
    return StepTable(tokens.astype(np.int32), names, columns, found)
