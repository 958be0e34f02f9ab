"""World `length`: tokens say nothing; how long a run takes decides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sag_research.lab.synthetic._world import (
    SUBMIT,
    Draw,
    Floats,
    Ints,
    Simulated,
    draw,
    weights,
)

__all__ = ["Length"]


class Length:
    """All tokens are drawn from one table; P(fail) grows with the number of steps alone.

    Difficulty sets how soon runs end. The probability of failure after *t* steps is the mean of
    that of all lengths above *t*, weighted by their probability among runs that still run.

    Parameters
    ----------
    parameters : mapping
        Section ``length`` of ``worlds.toml``.
    difficulty : sequence of float
        Shares of the difficulties among tasks.
    """

    def __init__(self, parameters: Mapping[str, Any], difficulty: Sequence[float]) -> None:
        self.budget = int(parameters["budget"])
        table = parameters["tokens"]["any"]
        self.names = tuple(sorted({*table, SUBMIT}))
        self.submit_code = self.names.index(SUBMIT)
        self.any = weights(table, self.names)
        self.earliest_end, self.end = int(parameters["earliest_end"]), np.array(parameters["end"])
        steps = np.arange(1, self.budget + 1)
        excess = (steps - float(parameters["fail_half"])) / float(parameters["fail_scale"])
        self.p_fail: Floats = 1 / (1 + np.exp(-excess))
        share = np.array(difficulty, dtype=float)
        self.share: Floats = share / share.sum()

    def simulate(self, rng: np.random.Generator, drawn: Draw) -> Simulated:
        """Let runs happen; no step of a run is where it was lost."""
        n = len(drawn.difficulty)
        ends = self.earliest_end + rng.geometric(self.end[drawn.difficulty]) - 1
        length = np.minimum(ends, self.budget)
        tokens = np.stack([draw(rng, self.any, n) for _ in range(self.budget)], axis=1)
        tokens[np.arange(n), length - 1] = self.submit_code
        tokens[np.arange(self.budget) >= length[:, None]] = -1
        failed = rng.random(n) < self.p_fail[length - 1]
        return Simulated(tokens, failed, np.full(n, -1, dtype=np.int64), {})

    def truth(self, tokens: Ints) -> Floats:
        """Return P(fail | tokens so far, still running), see :class:`World`."""
        length = self._length_share()
        later = np.append(np.cumsum(length[::-1])[::-1][1:], 0.0)
        bad = np.append(np.cumsum((length * self.p_fail)[::-1])[::-1][1:], 0.0)
        running = np.divide(bad, later, out=self.p_fail.copy(), where=later > 0)
        ended = (tokens == self.submit_code) | (np.arange(self.budget) == self.budget - 1)
        risk = np.where(ended, self.p_fail, running)
        risk[tokens < 0] = np.nan
        return risk

    def _length_share(self) -> Floats:
        """P(a run has n steps), n = 1 ... budget, over all difficulties."""
        steps = np.arange(1, self.budget + 1)
        ends = np.where(steps < self.earliest_end, 0.0, self.end[:, None])
        ends[:, -1] = 1.0
        survives = np.cumprod(1 - ends, axis=1)
        before = np.concatenate([np.ones((len(self.end), 1)), survives[:, :-1]], axis=1)
        shares: Floats = self.share @ (before * ends)
        return shares
