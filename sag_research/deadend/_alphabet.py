"""The symbols that an estimator tells apart: the tokens that enough of its training runs show."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np
from numpy.typing import NDArray

from sag_research.deadend._prefixes import Prefixes, StepTable
from sag_research.errors import UsageError

__all__ = ["RARE", "Alphabet"]

RARE = "RARE"
"""The symbol of every token that too few training runs show."""


class Alphabet:
    """Codes of tokens, learnt from training runs only.

    A token of fewer than `min_runs` training runs, or of none, is :data:`RARE`, code 0. With
    `coarser`, it first falls back to ``verb|object``, then to ``verb``, where those are frequent
    enough.

    Attributes
    ----------
    names : tuple of str
        The symbols; ``names[0]`` is ``RARE``, the others are sorted.
    min_runs : int
    coarser : bool

    Examples
    --------
    >>> runs = ["look|src|ok edit|src|ok", "look|src|ok test|none|error", "test|none|ok"]
    >>> p = Prefixes.from_tokens([run.split() for run in runs], ["success", "failure", "failure"])
    >>> a = Alphabet.fit(p, min_runs=2)
    >>> a.names
    ('RARE', 'look|src|ok')
    >>> a.codes(p.table).tolist()
    [1, 0, 1, 0, 0]
    >>> Alphabet.fit(p, min_runs=2, coarser=True).names
    ('RARE', 'look|src|ok', 'test|none')
    """

    def __init__(self, names: Sequence[str], min_runs: int = 5, coarser: bool = False) -> None:
        self.names = tuple(names)
        self.min_runs = min_runs
        self.coarser = coarser
        self._code = {name: code for code, name in enumerate(self.names)}
        if not self.names or self.names[0] != RARE or len(self._code) < len(self.names):
            raise UsageError(f"an alphabet is {RARE!r}, then other symbols, each once")

    @classmethod
    def fit(cls, prefixes: Prefixes, min_runs: int = 5, coarser: bool = False) -> Self:
        """Find the tokens that at least `min_runs` of these runs show.

        Parameters
        ----------
        prefixes : Prefixes
            The training runs.
        min_runs : int
            Fewest runs for a symbol of its own; 1 keeps every token.
        coarser : bool
            Whether rarer tokens fall back to ``verb|object`` and ``verb`` before ``RARE``.

        Raises
        ------
        UsageError
            If `min_runs` is below 1.
        """
        if min_runs < 1:
            raise UsageError(f"min_runs={min_runs}", fix="give 1 or more")
        looks = prefixes.every_step()
        tokens = prefixes.table.tokens[prefixes.rows(looks)].astype(np.int64)
        current = np.array(prefixes.table.names, dtype=object)
        kept: set[str] = set()
        for _ in range(3 if coarser else 1):
            names, code = np.unique(current.astype(str), return_inverse=True)
            frequent = _runs_of_each(code[tokens], looks.run, len(names)) >= min_runs
            kept.update(names[frequent].tolist())
            if not coarser:
                break
            done = frequent[code]
            current = np.array(
                ["" if d else _shorter(n) for n, d in zip(current, done, strict=True)], dtype=object
            )
        return cls((RARE, *sorted(kept - {"", RARE})), min_runs, coarser)

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        back = ", coarser" if self.coarser else ""
        return f"Alphabet({len(self)} symbols, min_runs={self.min_runs}{back})"

    def code_of(self, token: str) -> int:
        """Return the code of a token, 0 where it is rare or unseen."""
        code = self._code.get(token)
        while code is None and self.coarser and "|" in token:
            token = _shorter(token)
            code = self._code.get(token)
        return code or 0

    def codes(self, table: StepTable) -> NDArray[np.int32]:
        """Return the codes of all steps, shape (n_steps,)."""
        return self.translate(table.names)[table.tokens]

    def translate(self, names: Sequence[str]) -> NDArray[np.int32]:
        """Return the code of each of these tokens, shape (n_names,)."""
        return np.fromiter(map(self.code_of, names), dtype=np.int32, count=len(names))


def _shorter(token: str) -> str:
    """Leave out a token's last part; nothing is left of a verb alone."""
    return token.rpartition("|")[0]


def _runs_of_each(codes: NDArray[np.int64], run: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """Count the distinct runs in which each code occurs; `run` is sorted."""
    pairs = np.unique(run * size + codes)
    return np.bincount(pairs % size, minlength=size).astype(np.int64)
