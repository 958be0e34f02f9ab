"""World `memory`: a file chosen at step 2 to 4 decides how the run ends, much later."""

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

__all__ = ["Memory"]


class Memory:
    """Early on the right or the wrong file is chosen; nothing after that tells which.

    One of the steps of the window edits a file; the others look and search. Its token shows the
    choice with probability `shown`, and the other choice else. All later steps, and the number of
    steps, are drawn alike for both. So the probability of failure given a prefix changes inside
    the window and never again, and a context of the last few tokens cannot know it.

    Parameters
    ----------
    parameters : mapping
        Section ``memory`` of ``worlds.toml``.
    difficulty : sequence of float
        Shares of the difficulties among tasks.
    """

    def __init__(self, parameters: Mapping[str, Any], difficulty: Sequence[float]) -> None:
        self.budget = int(parameters["budget"])
        tables = parameters["tokens"]
        choices = (parameters["right"], parameters["wrong"])
        names = {name for table in tables.values() for name in table} | {*choices, SUBMIT}
        self.names = tuple(sorted(names))
        self.choice_codes = np.array([self.names.index(name) for name in choices])
        self.submit_code = self.names.index(SUBMIT)
        self.window = np.array(parameters["window"]) - 1
        self.shown = float(parameters["shown"])
        self.earliest_end, self.end = int(parameters["earliest_end"]), float(parameters["end"])
        self.opening = weights(tables["opening"], self.names)
        self.later = weights(tables["later"], self.names)
        hard = parameters["hard"]
        self.p_wrong = np.array(hard["choose_wrong"], dtype=float)
        self.p_fail = np.array([hard["fail_if_right"], hard["fail_if_wrong"]]).T
        share = np.array(difficulty, dtype=float)
        self.share: Floats = share / share.sum()

    def simulate(self, rng: np.random.Generator, drawn: Draw) -> Simulated:
        """Let runs happen; a failed run that chose the wrong file was lost at that step."""
        n = len(drawn.difficulty)
        wrong = (rng.random(n) < self.p_wrong[drawn.difficulty]).astype(np.int64)
        at = self.window[rng.integers(len(self.window), size=n)]
        looks_wrong = np.where(rng.random(n) < self.shown, wrong, 1 - wrong)
        tokens = np.empty((n, self.budget), dtype=np.int64)
        last = int(self.window.max())
        for t in range(self.budget):
            tokens[:, t] = draw(rng, self.opening if t <= last else self.later, n)
        tokens[np.arange(n), at] = self.choice_codes[looks_wrong]
        length = np.minimum(self.earliest_end + rng.geometric(self.end, n) - 1, self.budget)
        tokens[np.arange(n), length - 1] = self.submit_code
        tokens[np.arange(self.budget) >= length[:, None]] = -1
        failed = rng.random(n) < self.p_fail[drawn.difficulty, wrong]
        hidden = {"choice": np.where(wrong == 1, "wrong", "right").tolist()}
        return Simulated(tokens, failed, np.where(failed & (wrong == 1), at, -1), hidden)

    def truth(self, tokens: Ints) -> Floats:
        """Return P(fail | tokens so far, still running), see :class:`World`."""
        wrong = np.stack([1 - self.p_wrong, self.p_wrong], axis=1)  # (difficulty, choice)
        prior = self.share[:, None] * wrong
        unseen = float((prior * self.p_fail).sum())
        shows = np.array([[self.shown, 1 - self.shown], [1 - self.shown, self.shown]])
        after = prior[None] * shows.T[:, None, :]  # (token shown, difficulty, choice)
        known = (after * self.p_fail).sum(axis=(1, 2)) / after.sum(axis=(1, 2))
        risk = np.full(tokens.shape, unseen)
        for position in self.window:
            for code, value in zip(self.choice_codes, known, strict=True):
                chosen = tokens[:, position] == code
                risk[chosen, position:] = value
        risk[tokens < 0] = np.nan
        return risk
