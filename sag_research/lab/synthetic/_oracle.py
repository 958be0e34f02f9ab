"""The best that any estimator can do on a synthetic world: the truth itself."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from sag_research.deadend import Looks, Prefixes, RiskModel
from sag_research.errors import UsageError
from sag_research.lab.synthetic._generate import world_of
from sag_research.lab.synthetic._world import Floats, Ints

__all__ = ["OracleRisk"]


class OracleRisk(RiskModel):
    """P(fail | tokens so far, still running) of a synthetic world, computed from the tokens alone.

    It learns nothing: ``fit`` only takes note of the runs. Nobody who sees the tokens of single
    runs of tasks that are new to him can rank better, or be closer in Brier score, but by luck.

    Parameters
    ----------
    world : {"traps", "memory", "length"}
    shift : float
        As given to :func:`generate`.

    Examples
    --------
    >>> from sag_research.lab.synthetic import generate
    >>> made = generate("traps", tasks=10)
    >>> oracle = OracleRisk("traps").fit(made.prefixes)
    >>> bool(abs(oracle.predict(made.prefixes) - made.truth).max() < 1e-12)
    True
    """

    name: ClassVar[str] = "oracle"

    def __init__(self, world: str = "traps", shift: float = 0.0) -> None:
        self.world = world
        self.shift = shift

    def _fit(self, prefixes: Prefixes, looks: Looks, failed: Floats, weight: Floats) -> None:
        pass

    def _predict(self, prefixes: Prefixes, looks: Looks) -> Floats:
        risk = world_of(self.world, float(self.shift)).truth(self._padded(prefixes))
        return risk[looks.run, looks.seen - 1]

    def _padded(self, prefixes: Prefixes) -> Ints:
        """Codes of the world's tokens, shape (n_runs, budget), -1 after a run's end."""
        world = world_of(self.world, float(self.shift))
        names = prefixes.table.names
        strange = sorted(set(names) - set(world.names))
        if strange or int(prefixes.n_steps.max(initial=0)) > world.budget:
            raise UsageError(
                f"these runs are not of world {self.world!r}",
                why=f"unknown token {strange[0]!r}" if strange else "a run exceeds its budget",
            )
        code = np.array([world.names.index(name) for name in names], dtype=np.int64)
        padded = np.full((len(prefixes), world.budget), -1, dtype=np.int64)
        looks = prefixes.every_step()
        padded[looks.run, looks.seen - 1] = code[prefixes.table.tokens[prefixes.rows(looks)]]
        return padded
