"""Raw text as evidence: hashed words and pairs of words, counted over the run so far."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from sag_research._text import clip
from sag_research.deadend._forest import both_outcomes, spread_looks
from sag_research.deadend._model import RiskModel
from sag_research.deadend._prefixes import Floats, Ints, Looks, Prefixes, StepTable

if TYPE_CHECKING:
    import pandas as pd

    from sag_research.deadend._step import SeenStep

__all__ = ["TextRisk", "text_words"]

BUCKETS = 1 << 16
SCAN = 8_000
"""Characters read of each text of a step: half from its start, half from its end."""
_WORD = re.compile(r"\w\w+")
_MIX = np.uint32(0x9E3779B1)  # an odd number: 2**32 divided by the golden ratio


class _Words(dict[str, int]):
    """The hash of each word; the same in every process."""

    def __missing__(self, word: str) -> int:
        value = self[word] = crc32(word.encode("utf-8", "surrogatepass"))
        return value


def _ends(text: str) -> str:
    return text if len(text) <= SCAN else f"{text[: SCAN // 2]} {text[-SCAN // 2 :]}"


def text_words(texts: tuple[str, ...], words: _Words) -> tuple[NDArray[np.int32], Ints]:
    """Return the buckets of a step's words and pairs of words, and how often each occurs."""
    found: list[NDArray[np.uint32]] = []
    for text in texts:
        found_words = _WORD.findall(_ends(text).lower())
        hashes = np.array([words[word] for word in found_words], dtype=np.uint32)
        found += [hashes, (hashes[:-1] * _MIX) ^ hashes[1:]]
    mixed = np.concatenate(found) * _MIX >> np.uint32(16)
    buckets, counts = np.unique(mixed, return_counts=True)
    return buckets.astype(np.int32), counts


class _Growth(NamedTuple):
    """What each step adds to its run's word weights, as the rows of a sparse matrix.

    The weight of a bucket counted c times is w = 1 + log c. A prefix's dot product with any
    vector, and its length, are sums over steps of what is stored here.
    """

    offsets: Ints
    bucket: NDArray[np.int32]
    weight: NDArray[np.float32]
    """By how much w grows."""
    square: NDArray[np.float32]
    """By how much w² grows."""
    first: NDArray[np.bool_]
    """Whether the bucket is new to the run."""


class _Follower:
    """Word counts of one run."""

    def __init__(self, words: _Words) -> None:
        self._words = words
        self._counts = np.zeros(BUCKETS)

    def take(self, texts: tuple[str, ...]) -> tuple[NDArray[Any], ...]:
        """Return bucket, weight, square and first of the next step."""
        bucket, n = text_words(texts, self._words)
        before = self._counts[bucket]
        after = self._counts[bucket] = before + n
        first = before == 0
        old = np.where(first, 0.0, 1.0 + np.log(np.where(first, 1.0, before)))
        new = 1.0 + np.log(after)
        square = (new * new - old * old).astype(np.float32)
        return bucket, (new - old).astype(np.float32), square, first


class _Known:
    """Word growth of the runs of a step table that were asked for so far."""

    def __init__(self) -> None:
        self.words = _Words()
        self.runs: dict[tuple[int, int], _Growth] = {}

    def of(self, table: StepTable, start: int, stop: int) -> _Growth:
        if (start, stop) not in self.runs:
            self.runs[start, stop] = self._grow(table, start, stop)
        return self.runs[start, stop]

    def _grow(self, table: StepTable, start: int, stop: int) -> _Growth:
        columns = [table.text(name)[start:stop] for name in ("thought", "action", "observation")]
        follower = _Follower(self.words)
        steps = [follower.take(texts) for texts in zip(*columns, strict=True)]
        parts = [np.concatenate(part) for part in zip(*steps, strict=True)]
        offsets = np.cumsum([0, *(len(step[0]) for step in steps)])
        return _Growth(offsets, *parts)


def _growth(prefixes: Prefixes, runs: list[int]) -> list[_Growth]:
    table = prefixes.table
    known = table.memo("words", _Known)
    return [known.of(table, int(prefixes.start[r]), int(prefixes.stop[r])) for r in runs]


class TextRisk(RiskModel):
    """Logistic regression on hashed TF-IDF of everything said and seen so far.

    Words and pairs of words of thoughts, actions and observations fall into 2**16 buckets, counted
    over the run; weights are (1 + log count) · idf, scaled to length 1. Inverse document
    frequencies are those of the runs it is fitted on; buckets of fewer than `min_runs` of them
    count for nothing.

    Parameters
    ----------
    C : float
        Inverse strength of the penalty.
    min_runs : int
        Fewest runs that must hold a word.
    looks_per_run : int
        Most looks of one run to learn from, evenly spread.
    seed : int
        Seed of the solver.

    Attributes
    ----------
    coef_ : ndarray of float64, shape (65536,)
        Weight of each bucket.
    idf_ : ndarray of float64, shape (65536,)
    intercept_ : float
    """

    name = "text-tfidf"
    needs_text = True

    def __init__(
        self, C: float = 3.0, min_runs: int = 3, looks_per_run: int = 6, seed: int = 0
    ) -> None:
        self.C, self.min_runs, self.looks_per_run, self.seed = C, min_runs, looks_per_run, seed

    def _fit(self, prefixes: Prefixes, looks: Looks, failed: Floats, weight: Floats) -> None:
        from sklearn.linear_model import LogisticRegression

        kept = spread_looks(looks, self.looks_per_run)
        looks, failed = Looks(looks.run[kept], looks.seen[kept]), failed[kept]
        both_outcomes(failed, self.name)
        self.idf_ = self._inverse_frequencies(prefixes, looks)
        model = LogisticRegression(C=self.C, solver="liblinear", dual=True, random_state=self.seed)
        model.fit(self._matrix(prefixes, looks), failed, prefixes.weights(looks))
        self.coef_ = np.asarray(model.coef_[0], dtype=np.float64)
        self.intercept_ = float(model.intercept_[0])

    def _inverse_frequencies(self, prefixes: Prefixes, looks: Looks) -> Floats:
        runs, last = np.unique(looks.run[::-1], return_index=True)
        seen = looks.seen[::-1][last]
        held = np.zeros(BUCKETS)
        for growth, steps in zip(_growth(prefixes, runs.tolist()), seen.tolist(), strict=True):
            end = growth.offsets[steps]
            held[growth.bucket[:end][growth.first[:end]]] += 1
        idf = np.log((1 + len(runs)) / (1 + held)) + 1
        return np.where(held >= self.min_runs, idf, 0.0)

    def _matrix(self, prefixes: Prefixes, looks: Looks) -> Any:
        """Return the rows that the regression is fitted on, shape (n_looks, 65536), sparse."""
        from scipy.sparse import csr_matrix, vstack
        from sklearn.preprocessing import normalize

        runs, first = np.unique(looks.run, return_index=True)
        parts = []
        for growth, seen in zip(
            _growth(prefixes, runs.tolist()), np.split(looks.seen, first[1:]), strict=True
        ):
            steps = csr_matrix(
                (growth.weight.astype(np.float64), growth.bucket, growth.offsets),
                shape=(len(growth.offsets) - 1, BUCKETS),
            )
            until = np.arange(steps.shape[0]) < seen[:, None]
            parts.append(csr_matrix(until.astype(np.float64)) @ steps)
        rows = vstack(parts, format="csr")
        rows.data *= self.idf_[rows.indices]
        rows.eliminate_zeros()
        return normalize(rows, copy=False)

    def _predict(self, prefixes: Prefixes, looks: Looks) -> Floats:
        scores = np.empty(len(looks.run))
        runs, first = np.unique(looks.run, return_index=True)
        after = np.append(first, len(looks.run))[1:]
        weight, square = self.coef_ * self.idf_, self.idf_**2
        for run, a, b in zip(runs.tolist(), first.tolist(), after.tolist(), strict=True):
            (growth,) = _growth(prefixes, [run])
            dot = _per_step(weight[growth.bucket] * growth.weight, growth.offsets)
            length = _per_step(square[growth.bucket] * growth.square, growth.offsets)
            steps = looks.seen[a:b] - 1
            scores[a:b] = self._score(dot[steps], length[steps])
        return scores

    def _score(self, dot: Any, square: Any) -> Any:
        """Return the risk of prefixes of these dot products and squared lengths."""
        length = np.sqrt(np.maximum(square, 1e-12))
        return 1.0 / (1.0 + np.exp(-(dot / length + self.intercept_)))

    def reasons(self, prefixes: Prefixes, looks: Looks, most: int = 3) -> list[list[str]]:
        """Say which words move the risk of each look most.

        Returns
        -------
        list of list of str
            For each look ``'word' (effect)``, in log odds. Words that share a bucket with others
            of the run are named by the first of them; pairs of words are left out.
        """
        said = []
        for run, seen in zip(looks.run.tolist(), looks.seen.tolist(), strict=True):
            start = int(prefixes.start[run])
            counts, words = _spelt(prefixes.table, start, start + seen)
            weight = (1 + np.log(np.array(list(counts.values())))) if counts else np.empty(0)
            bucket = np.fromiter(counts, dtype=np.int64, count=len(counts))
            effect = weight * self.coef_[bucket] * self.idf_[bucket]
            (growth,) = _growth(prefixes, [run])
            square = self.idf_[growth.bucket] ** 2 * growth.square
            effect /= np.sqrt(max(float(square[: growth.offsets[seen]].sum()), 1e-12))
            largest = np.argsort(-np.abs(effect), kind="stable")[:most]
            named = [(words[int(bucket[i])], effect[i]) for i in largest if effect[i]]
            said.append([f"{clip(word, 40)!r} ({x:+.2f})" for word, x in named])
        return said

    def begin(self) -> _TextStream:
        """Return a follower of one new run."""
        self._check_fitted()
        return _TextStream(self)

    @property
    def table_(self) -> pd.DataFrame:
        """The buckets that count for something: ``bucket idf coefficient``."""
        import pandas as pd

        self._check_fitted()
        used = np.flatnonzero(self.idf_)
        columns = {"bucket": used, "idf": self.idf_[used], "coefficient": self.coef_[used]}
        return pd.DataFrame(columns).sort_values(
            "coefficient", ascending=False, kind="stable", ignore_index=True
        )

    def _state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        return {"coef": self.coef_, "idf": self.idf_}, {"intercept": self.intercept_}

    def _restore(self, arrays: dict[str, NDArray[Any]], meta: dict[str, Any]) -> None:
        self.coef_, self.idf_ = arrays["coef"], arrays["idf"]
        self.intercept_ = float(meta["intercept"])


def _spelt(table: StepTable, start: int, stop: int) -> tuple[dict[int, int], dict[int, str]]:
    """Return how often each bucket of single words occurs in these steps, and a word of it."""
    hashes, counts, words = _Words(), dict[int, int](), dict[int, str]()
    for name in ("thought", "action", "observation"):
        for text in table.text(name)[start:stop]:
            for word in _WORD.findall(_ends(text).lower()):
                bucket = (hashes[word] * int(_MIX) & 0xFFFFFFFF) >> 16
                counts[bucket] = counts.get(bucket, 0) + 1
                words.setdefault(bucket, word)
    return counts, words


def _per_step(values: Floats, offsets: Ints) -> Floats:
    """Return the sum of the values of all steps up to each step."""
    return np.concatenate(([0.0], np.cumsum(values)))[offsets[1:]]


class _TextStream:
    def __init__(self, model: TextRisk) -> None:
        self._model = model
        self._follower = _Follower(_Words())
        self._weight, self._square = model.coef_ * model.idf_, model.idf_**2
        self._dot = self._length = 0.0

    def observe(self, step: SeenStep) -> float:
        texts = (step.thought, step.action, step.observation)
        bucket, weight, square, _ = self._follower.take(texts)
        self._dot += float(self._weight[bucket] @ weight)
        self._length += float(self._square[bucket] @ square)
        return float(self._model._score(self._dot, self._length))
