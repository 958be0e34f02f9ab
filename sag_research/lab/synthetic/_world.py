"""What the synthetic worlds share: drawing from tables, and what a simulation returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = ["SUBMIT", "Draw", "Floats", "Ints", "Simulated", "World", "draw", "draw_rows", "weights"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

SUBMIT = "submit|none|ok"
"""Token of the step that ends a run; only a run that uses up its budget ends with another one."""


@dataclass(frozen=True)
class Draw:
    """What is drawn for each run before its first step; shape (n_runs,) each.

    Attributes
    ----------
    difficulty : ndarray of int64
        Index of its task's difficulty.
    family : ndarray of int64
        Index of its task's family.
    """

    difficulty: Ints
    family: Ints


@dataclass(frozen=True)
class Simulated:
    """Runs of a world.

    Attributes
    ----------
    tokens : ndarray of int64, shape (n_runs, budget)
        Codes of the tokens, -1 after the end of a run.
    failed : ndarray of bool, shape (n_runs,)
    lost_at : ndarray of int64, shape (n_runs,)
        Step (0-based) at which the run was lost, -1 where no step lost it.
    hidden : dict of str to list of str
        What nobody could see, one entry a run.
    """

    tokens: Ints
    failed: NDArray[np.bool_]
    lost_at: Ints
    hidden: dict[str, list[str]]


class World(Protocol):
    """A generator whose probability of failure given a prefix is known."""

    names: tuple[str, ...]
    """Its tokens; a code is an index into them."""
    budget: int
    """The largest number of steps of a run."""

    def simulate(self, rng: np.random.Generator, drawn: Draw) -> Simulated:
        """Let runs happen."""
        ...

    def truth(self, tokens: Ints) -> Floats:
        """Return P(fail | tokens so far, still running) after each step.

        Parameters
        ----------
        tokens : ndarray of int64, shape (n_runs, budget)
            Codes, -1 after the end of a run.

        Returns
        -------
        ndarray of float64, shape (n_runs, budget)
            NaN after the end of a run. At the step that ends a run it is the probability given
            all its tokens and the fact that it ended there.
        """
        ...


def weights(table: Mapping[str, float], names: Sequence[str]) -> Floats:
    """Return a table of token weights as probabilities in the order of `names`."""
    values = np.array([float(table.get(name, 0.0)) for name in names])
    scaled: Floats = values / values.sum()
    return scaled


def draw(rng: np.random.Generator, p: Floats, size: int) -> Ints:
    """Draw `size` indices with probabilities `p`."""
    return draw_rows(rng, np.broadcast_to(np.asarray(p), (size, len(p))))


def draw_rows(rng: np.random.Generator, p: NDArray[Any]) -> Ints:
    """Draw one index for each row of probabilities, shape (n, k) -> (n,)."""
    below = rng.random(len(p))[:, None] >= np.cumsum(p, axis=1)
    chosen: Ints = np.minimum(below.sum(axis=1), p.shape[1] - 1).astype(np.int64)
    return chosen
