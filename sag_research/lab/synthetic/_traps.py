"""World `traps`: runs make progress, explore, or sit in a trap from which few come back."""

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
    draw_rows,
    weights,
)

__all__ = ["Traps"]

NOISY = ("error", "test-fail", "same-as-before")
BATCH = 2_000


class Traps:
    """A hidden Markov chain with a class for each family, difficulty and habit.

    Before a step the state moves; in the new state the step is the submission with the state's
    probability of submitting, else its token repeats the one before or is drawn from the state's
    table. A run fails if it submits in the trap, or if its budget is used up. The probability of
    failure given the tokens is the filter's weight of each (class, state) times that state's
    probability of failing from there in the steps that are left, summed. The filter knows neither
    family nor difficulty nor habit: it starts from their shares.

    Parameters
    ----------
    parameters : mapping
        Section ``traps`` of ``worlds.toml``.
    difficulty : sequence of float
        Shares of the difficulties among tasks.
    shift : float
        Power to which the families' factors are raised; 0 makes the families alike.
    """

    def __init__(
        self, parameters: Mapping[str, Any], difficulty: Sequence[float], shift: float = 0.0
    ) -> None:
        self.budget = int(parameters["budget"])
        self.states = tuple(parameters["states"])
        self.habits = tuple(parameters["habits"]["names"])
        self.trap = self.states.index("trapped")
        tables = parameters["tokens"]
        self.names = tuple(sorted({name for table in tables.values() for name in table} | {SUBMIT}))
        self.submit_code = self.names.index(SUBMIT)
        families = {k: np.array(v) ** shift for k, v in parameters["families"].items()}
        self._habit_share = np.array(parameters["habits"]["share"], dtype=float)
        self._sizes = (len(families["into"]), len(difficulty), len(self.habits))
        classes = [np.ravel(c) for c in np.indices(self._sizes)]
        family, hard, habit = classes
        share = np.array(difficulty, dtype=float)[hard] * self._habit_share[habit]
        self.prior: Floats = share / share.sum()
        self.submits = np.array([parameters["submit"].get(s, 0.0) for s in self.states])
        self.moves = self._moves(parameters, families, classes)
        ours = np.array([parameters["repeats"][s] for s in self.states])
        factor = np.where(np.arange(len(ours)) == self.trap, 1.0, families["repeats"][family, None])
        self.repeats: Floats = np.minimum(ours * factor, 0.6)
        self.tokens = self._tokens(parameters, families["noise"], family, habit)
        self.fails_from = self._fails_from()

    def _moves(
        self, parameters: Mapping[str, Any], families: Mapping[str, Floats], classes: list[Ints]
    ) -> Floats:
        """Probabilities of moving, shape (classes, from, to)."""
        family, hard, habit = classes
        by_task = {name: np.array(values) for name, values in parameters["hard"].items()}
        into = families["into"][family] * by_task["into"][hard]
        into = into * np.array(parameters["habits"]["into"])[habit]
        pace = families["pace"][family] * by_task["pace"][hard]
        size = len(self.states)
        moves = np.zeros((len(self.prior), size, size))
        for start, row in parameters["moves"].items():
            for end, rate in row.items():
                factor = np.ones(len(self.prior))
                if end == "trapped":
                    factor = into
                elif start == "trapped":
                    factor = by_task["out_of"][hard]
                elif end == "ready":
                    factor = pace
                moves[:, self.states.index(start), self.states.index(end)] = rate * factor
        leaving = moves.sum(axis=2, keepdims=True)
        moves /= np.maximum(leaving / 0.9, 1.0)  # a state is left with probability 0.9 at most
        here = np.arange(size)
        moves[:, here, here] = 1.0 - moves.sum(axis=2)
        return moves

    def _tokens(
        self, parameters: Mapping[str, Any], noise: Floats, family: Ints, habit: Ints
    ) -> Floats:
        """Probabilities of tokens that do not repeat, shape (classes, states, tokens)."""
        base = np.stack([weights(parameters["tokens"][s], self.names) for s in self.states])
        verbs = parameters["habits"]["verbs"]
        liked = np.array(
            [
                [verbs.get(h, {}).get(name.split("|")[0], 1.0) for name in self.names]
                for h in self.habits
            ]
        )
        noisy = np.array([name.rsplit("|", 1)[-1] in NOISY for name in self.names])
        outside = np.arange(len(self.states)) != self.trap
        factor = np.where(noisy & outside[:, None], noise[family, None, None], 1.0)
        table = base * liked[habit][:, None, :] * factor
        scaled: Floats = table / table.sum(axis=2, keepdims=True)
        return scaled

    def _fails_from(self) -> Floats:
        """P(fail | class, state after t steps, running), shape (budget + 1, classes, states)."""
        ends_badly = np.arange(len(self.states)) == self.trap
        value = np.ones((self.budget + 1, *self.moves.shape[:2]))
        for seen in range(self.budget - 1, -1, -1):
            after = self.submits * ends_badly + (1 - self.submits) * value[seen + 1]
            value[seen] = np.einsum("cst,ct->cs", self.moves, after)
        return value

    def simulate(self, rng: np.random.Generator, drawn: Draw) -> Simulated:
        """Let runs happen, see :class:`~sag_research.lab.synthetic.SyntheticSet`."""
        n = len(drawn.family)
        habit = draw(rng, self._habit_share, n)
        c = np.ravel_multi_index((drawn.family, drawn.difficulty, habit), self._sizes)
        tokens = np.full((n, self.budget), -1, dtype=np.int64)
        state, running = np.zeros(n, dtype=np.int64), np.ones(n, dtype=bool)
        entered, failed = np.full(n, -1, dtype=np.int64), np.ones(n, dtype=bool)
        for t in range(self.budget):
            before, state = state, np.where(running, draw_rows(rng, self.moves[c, state]), state)
            falls = running & (state == self.trap) & ((before != self.trap) | (t == 0))
            entered[falls] = t
            submits = rng.random(n) < self.submits[state]
            repeats = (rng.random(n) < self.repeats[c, state]) & (t > 0)
            token = np.where(repeats, tokens[:, t - 1], draw_rows(rng, self.tokens[c, state]))
            tokens[running, t] = np.where(submits, self.submit_code, token)[running]
            ends = running & submits
            failed[ends] = state[ends] == self.trap
            running &= ~ends
        lost_at = np.where(failed & (state == self.trap), entered, -1)
        ending = np.where(running, "out of budget", "submitted")
        hidden = {
            "habit": [self.habits[i] for i in habit],
            "last_state": [self.states[i] for i in state],
            "ending": ending.tolist(),
        }
        return Simulated(tokens, failed, lost_at, hidden)

    def truth(self, tokens: Ints) -> Floats:
        """Return P(fail | tokens so far, still running), see :class:`World`."""
        parts = [self._truth(tokens[at : at + BATCH]) for at in range(0, len(tokens), BATCH)]
        return np.concatenate(parts) if parts else np.empty((0, self.budget))

    def _truth(self, tokens: Ints) -> Floats:
        n = len(tokens)
        risk = np.full(tokens.shape, np.nan)
        belief = np.zeros((n, *self.moves.shape[:2]))
        belief[:, :, 0] = self.prior
        ends_badly = (np.arange(len(self.states)) == self.trap).astype(float)
        emit = self.tokens.transpose(2, 0, 1)  # token first, for look-up
        for t in range(tokens.shape[1]):
            token = tokens[:, t]
            alive = np.flatnonzero(token >= 0)
            if not len(alive):
                break
            seen = token[alive]
            like = emit[seen]
            if t:
                again = (seen == tokens[alive, t - 1])[:, None, None]
                like = (1 - self.repeats) * like + self.repeats * again
            submitted = (seen == self.submit_code)[:, None, None]
            like = np.where(submitted, self.submits, (1 - self.submits) * like)
            now = np.einsum("ncs,cst->nct", belief[alive], self.moves, optimize=True) * like
            now /= now.sum(axis=(1, 2), keepdims=True)
            belief[alive] = now
            value = np.where(submitted, ends_badly, self.fails_from[t + 1])
            risk[alive, t] = (now * value).sum(axis=(1, 2))
        return risk
