"""Small estimators and cohorts that the tests of the evaluation work on."""

from __future__ import annotations

from typing import Any

import numpy as np

from sag_research.deadend._model import RiskModel
from sag_research.deadend._prefixes import Floats, Looks, Prefixes


class Share(RiskModel):
    """Share of steps so far whose token starts with ``bad``; nothing is learnt."""

    name = "share"

    def __init__(self, sign: float = 1.0) -> None:
        self.sign = sign

    def _fit(self, prefixes: Prefixes, looks: Looks, failed: Floats, weight: Floats) -> None:
        pass

    def _predict(self, prefixes: Prefixes, looks: Looks) -> Floats:
        bad = np.array([name.startswith("bad") for name in prefixes.table.names], float)
        until = np.concatenate([[0.0], np.cumsum(bad[prefixes.table.tokens])])
        first = prefixes.start[looks.run]
        share = (until[first + looks.seen] - until[first] + 1) / (looks.seen + 2)
        return 0.5 + self.sign * (share - 0.5)


class Constant(RiskModel):
    """The base rate of the training runs."""

    name = "constant"

    def _fit(self, prefixes: Prefixes, looks: Looks, failed: Floats, weight: Floats) -> None:
        pass

    def _predict(self, prefixes: Prefixes, looks: Looks) -> Floats:
        return np.full(len(looks.run), self.base_rate_)


class Steps(RiskModel):
    """The number of steps so far; no probability."""

    name = "steps"
    calibrated = False

    def _fit(self, prefixes: Prefixes, looks: Looks, failed: Floats, weight: Floats) -> None:
        self.cap_ = float(np.percentile(prefixes.n_steps, 75))

    def _predict(self, prefixes: Prefixes, looks: Looks) -> Floats:
        return looks.seen.astype(float)

    def native_alarm(self, prefixes: Prefixes, looks: Looks) -> Any:
        return looks.seen >= self.cap_


class Remembers(RiskModel):
    """Knows the failure rate of each task that it was fitted on: a leak made flesh."""

    name = "remembers"

    def _fit(self, prefixes: Prefixes, looks: Looks, failed: Floats, weight: Floats) -> None:
        frame = prefixes.runs.assign(y=prefixes.failed)
        self.rate_ = frame.groupby("task_id")["y"].mean().to_dict()

    def _predict(self, prefixes: Prefixes, looks: Looks) -> Floats:
        rates = [self.rate_.get(task, self.base_rate_) for task in prefixes.runs["task_id"]]
        return np.array(rates)[looks.run]


def cohort(
    tasks: int = 40,
    runs: int = 4,
    seed: int = 0,
    signal: float = 0.3,
    spread: float = 2.0,
    **more: Any,
) -> Prefixes:
    """Runs of 12 to 30 steps; failing ones have more bad tokens, and tasks differ in difficulty."""
    random = np.random.default_rng(seed)
    tokens, outcomes, names = [], [], []
    for task in range(tasks):
        difficulty = random.beta(spread, spread)
        for _ in range(runs):
            failed = random.random() < difficulty
            share = 0.35 + signal * failed
            steps = int(random.integers(12, 31))
            kinds = np.where(random.random(steps) < share, "bad", "good")
            numbers = random.integers(0, 6, steps)
            tokens.append([f"{k}{i}|src|ok" for k, i in zip(kinds, numbers, strict=True)])
            outcomes.append("failure" if failed else "success")
            names.append(f"t{task:03d}")
    return Prefixes.from_tokens(tokens, outcomes, names, **more)
