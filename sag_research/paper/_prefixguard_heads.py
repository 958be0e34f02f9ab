"""Scorers for the PrefixGuard protocol: what they read of a prefix, and what they make of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from sag_research.deadend import Prefixes

__all__ = ["HEADS", "Features"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Chosen = NDArray[np.bool_]

WORDS: Final = 2**14
LONGEST: Final = 2_000
"""Characters of one step's text that are read."""
WINDOW: Final = 3
"""Last steps whose text is read."""
SMOOTHING: Final = 5.0
"""Examples that a state's rate is mixed with, at the overall rate."""


class Features:
    """What may be read of each prefix; made once for all heads and splits, and label-free."""

    def __init__(self, prefixes: Prefixes, run: Ints, seen: Ints) -> None:
        self.prefixes, self.run, self.seen = prefixes, run, seen
        self.row = prefixes.start[run] + seen - 1
        self.tokens = prefixes.table.tokens

    @cached_property
    def length(self) -> Floats:
        """Steps seen, as they are and in logarithms."""
        seen = self.seen.astype(np.float64)
        return np.column_stack([seen / 10, np.log(seen), 1 / seen])

    @cached_property
    def typed(self) -> Any:
        """Tokens so far (log counts), the last and the one before; sparse."""
        from scipy import sparse

        width = len(self.prefixes.table.names)
        rows, columns, values = [], [], []
        for example, (row, seen) in enumerate(zip(self.row, self.seen, strict=True)):
            so_far = self.tokens[row - seen + 1 : row + 1]
            kinds, counts = np.unique(so_far, return_counts=True)
            last = [width * (1 + back) + int(so_far[-1 - back]) for back in range(min(2, seen))]
            rows += [example] * (len(kinds) + len(last))
            columns += [*kinds.tolist(), *last]
            values += [*np.log1p(counts).tolist(), *([1.0] * len(last))]
        shape = (len(self.row), 3 * width)
        return sparse.csr_matrix((values, (rows, columns)), shape=shape)

    @cached_property
    def words(self) -> Any:
        """Counts of words and pairs of words in the last steps' texts; hashed, sparse."""
        from sklearn.feature_extraction.text import HashingVectorizer

        table = self.prefixes.table
        texts = [
            f"{action[:LONGEST]}\n{observation[:LONGEST]}"
            for action, observation in zip(
                table.text("action"), table.text("observation"), strict=True
            )
        ]
        documents = (
            "\n".join(texts[max(row - WINDOW + 1, row - seen + 1) : row + 1])
            for row, seen in zip(self.row, self.seen, strict=True)
        )
        counts = HashingVectorizer(
            n_features=WORDS, norm=None, alternate_sign=False, ngram_range=(1, 2)
        )
        return counts.transform(documents)


def _constant(features: Features, positive: Chosen, fit: Chosen) -> Floats:
    return np.full(len(positive), float(positive[fit].mean()))


def _logistic(matrix: Any, positive: Chosen, fit: Chosen) -> Floats:
    from sklearn.linear_model import LogisticRegression

    if positive[fit].all() or not positive[fit].any():
        return np.full(len(positive), float(positive[fit].mean()))
    model = LogisticRegression(C=1.0, solver="liblinear", random_state=0)
    found: Floats = model.fit(matrix[fit], positive[fit]).predict_proba(matrix)[:, 1]
    return found


def _length(features: Features, positive: Chosen, fit: Chosen) -> Floats:
    return _logistic(features.length, positive, fit)


def _typed(features: Features, positive: Chosen, fit: Chosen) -> Floats:
    return _logistic(features.typed, positive, fit)


def _text(features: Features, positive: Chosen, fit: Chosen) -> Floats:
    from sklearn.feature_extraction.text import TfidfTransformer

    weighing = TfidfTransformer(sublinear_tf=True).fit(features.words[fit])
    return _logistic(weighing.transform(features.words), positive, fit)


def _states(features: Features, positive: Chosen, fit: Chosen) -> Floats:
    """Take the last two tokens for the state, and its rate of positives for the risk."""
    before = np.where(features.seen > 1, features.tokens[np.maximum(features.row - 1, 0)], -1)
    states = list(zip(before.tolist(), features.tokens[features.row].tolist(), strict=True))
    overall = float(positive[fit].mean())
    counts: dict[tuple[int, int], list[float]] = defaultdict(lambda: [0.0, 0.0])
    for at in np.flatnonzero(fit).tolist():
        counts[states[at]][0] += float(positive[at])
        counts[states[at]][1] += 1.0
    risk = {
        state: (bad + SMOOTHING * overall) / (n + SMOOTHING) for state, (bad, n) in counts.items()
    }
    return np.array([risk.get(state, overall) for state in states])


HEADS: Final[dict[str, Callable[[Features, Chosen, Chosen], Floats]]] = {
    "constant": _constant,
    "steps seen, logistic": _length,
    "raw text, logistic": _text,
    "typed steps, states": _states,
    "typed steps, logistic": _typed,
}
"""Input and head by name; each is given the features, the labels, and which examples to fit on."""
